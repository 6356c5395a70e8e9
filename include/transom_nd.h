/*
 * transom_nd.h - what Transom offers NetworkDirect programs beyond NetworkDirect.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TRANSOM_ND_H
#define TRANSOM_ND_H

#include "ndspi.h"

/*
 * Why was a request refused? QueryInterface of an IND2QueuePair, IND2CompletionQueue, INDEndpoint or
 * INDCompletionQueue answers this identifier. The text belongs to the last refusal that the object has
 * seen, on either side of the connection: the owner of the memory reads all of it, its peer as much as
 * the owner tells (by default: everything, for the same user on the same host). The interface is an
 * object of its own, as is that of ITransomNames: its QueryInterface does not lead back.
 *
 * With TRANSOM_EXPLAIN=1 in the environment every refusal is also printed to standard error.
 */
TRANSOM_DEFINE_GUID(IID_ITransomExplain, 0x8B0C5A5E, 0x6E6B, 0x4F2D, 0x9C, 0x41, 0x54, 0x52, 0x41, 0x4E, 0x53, 0x4D);
struct ITransomExplain : public IUnknown {
    /*
     * UTF-8 text with its final zero byte. *pcbText holds the room on entry and the need on return.
     * S_OK; S_FALSE if nothing was refused yet; ND_BUFFER_OVERFLOW if the room is too small.
     */
    virtual HRESULT STDMETHODCALLTYPE GetLastRefusal(char *pText, ULONG *pcbText) = 0;
};

/*
 * Names for messages and for `transom show`. QueryInterface of an IND2Adapter or INDAdapter answers this
 * identifier. A token is named while it is open: a region by its local token (GetLocalToken; the lower
 * half of an ND_MR_HANDLE) or its remote token, a window by its remote token (GetRemoteToken; the token
 * of an ND_MW_DESCRIPTOR) once it is bound. The first 31 bytes of the UTF-8 text are kept. S_OK;
 * ND_INVALID_HANDLE if the token names nothing that is open; E_POINTER.
 */
TRANSOM_DEFINE_GUID(IID_ITransomNames, 0x3E1D9A70, 0x5C42, 0x4B8E, 0xB7, 0x12, 0x54, 0x52, 0x41, 0x4E, 0x53, 0x4D);
struct ITransomNames : public IUnknown {
    virtual HRESULT STDMETHODCALLTYPE NameLocalToken(UINT32 Token, const char *pName) = 0;
    virtual HRESULT STDMETHODCALLTYPE NameRemoteToken(UINT32 Token, const char *pName) = 0;
};

#ifdef __cplusplus
extern "C" {
#endif
/*
 * The layout that the library was built with, for a program that wants to compare: the number, size,
 * offset, method slot or identifier number `index`. 0 when there are no more.
 */
int transom_nd_fact(ULONG index, const char **pName, UINT64 *pValue);
/* Live objects of this library in the process; 0 when a program has released everything. */
UINT64 transom_nd_live_objects(VOID);
#ifdef __cplusplus
}
#endif

#endif
