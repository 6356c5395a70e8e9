/*
 * ndsupport.h - the calls a NetworkDirect program starts with.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef _NETDIRECT_H_
#define _NETDIRECT_H_

#include "ndspi.h"

#define ND_HELPER_API __stdcall

/* Which addresses NdQueryAddressList leaves out. */
#define ND_QUERY_EXCLUDE_EMULATOR_ADDRESSES 0x00000001
#define ND_QUERY_EXCLUDE_NDv1_ADDRESSES     0x00000002
#define ND_QUERY_EXCLUDE_NDv2_ADDRESSES     0x00000004

#ifdef __cplusplus
extern "C" {
#endif

/* Counted: every NdStartup wants its NdCleanup. All other calls need one that is still in force. */
HRESULT ND_HELPER_API NdStartup(VOID);
HRESULT ND_HELPER_API NdCleanup(VOID);
VOID ND_HELPER_API NdFlushProviders(VOID);

/* Local addresses an adapter can be opened for. (NULL, 0) asks for the size: ND_BUFFER_OVERFLOW. */
HRESULT ND_HELPER_API NdQueryAddressList(DWORD flags, SOCKET_ADDRESS_LIST *pAddressList, SIZE_T *pcbAddressList);
/* The local address from which pRemoteAddress is reached. */
HRESULT ND_HELPER_API NdResolveAddress(const struct sockaddr *pRemoteAddress, SIZE_T cbRemoteAddress,
                                       struct sockaddr *pLocalAddress, SIZE_T *pcbLocalAddress);
HRESULT ND_HELPER_API NdCheckAddress(const struct sockaddr *pAddress, SIZE_T cbAddress);
HRESULT ND_HELPER_API NdOpenAdapter(REFIID iid, const struct sockaddr *pAddress, SIZE_T cbAddress, VOID **ppIAdapter);
HRESULT ND_HELPER_API NdOpenV1Adapter(const struct sockaddr *pAddress, SIZE_T cbAddress, INDAdapter **ppIAdapter);

/* Exports of a provider's library; the calls above are built on them. */
HRESULT STDAPICALLTYPE DllGetClassObject(REFCLSID clsid, REFIID iid, VOID **ppObject);
HRESULT STDAPICALLTYPE DllCanUnloadNow(VOID);

#ifdef __cplusplus
}
#endif

#endif
