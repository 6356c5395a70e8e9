/*
 * ndspi.h - the interfaces of the NetworkDirect service provider, versions 2 and 1.
 *
 * The order of the methods is the order in the table of methods. A derived interface has the same
 * pointer value as its base. Objects are made by factory methods and end with their last Release.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef _NDSPI_H_
#define _NDSPI_H_

#include <winsock2.h>
#include <unknwn.h>
#include "nddef.h"
#include "ndstatus.h"

/* An identifier is there in every source file: on Windows without initguid.h, too. */
#ifdef _WIN32
#define TRANSOM_DEFINE_GUID(name, l, w1, w2, b1, b2, b3, b4, b5, b6, b7, b8)                            \
    EXTERN_C const GUID DECLSPEC_SELECTANY name = {l, w1, w2, {b1, b2, b3, b4, b5, b6, b7, b8}}
#else
#define TRANSOM_DEFINE_GUID DEFINE_GUID
#endif

/* ==== version 2 ==== */

/* Objects with asynchronous requests. */
TRANSOM_DEFINE_GUID(IID_IND2Overlapped, 0xABF72719, 0xB016, 0x4A40, 0xA6, 0xF7, 0x62, 0x27, 0x91, 0xA7, 0x04, 0x4C);
struct IND2Overlapped : public IUnknown {
    virtual HRESULT STDMETHODCALLTYPE CancelOverlappedRequests() = 0;
    virtual HRESULT STDMETHODCALLTYPE GetOverlappedResult(OVERLAPPED *pOverlapped, BOOL wait) = 0;
};

/* A queue of results. */
TRANSOM_DEFINE_GUID(IID_IND2CompletionQueue, 0x20CC445E, 0x64A0, 0x4CBB, 0xAA, 0x75, 0xF6, 0xA7, 0x25, 0x1F, 0xDA, 0x9E);
struct IND2CompletionQueue : public IND2Overlapped {
    virtual HRESULT STDMETHODCALLTYPE GetNotifyAffinity(USHORT *pGroup, KAFFINITY *pAffinity) = 0;
    virtual HRESULT STDMETHODCALLTYPE Resize(ULONG queueDepth) = 0;
    virtual HRESULT STDMETHODCALLTYPE Notify(ULONG type, OVERLAPPED *pOverlapped) = 0;
    virtual ULONG STDMETHODCALLTYPE GetResults(ND2_RESULT results[], ULONG nResults) = 0;
};

/* Receives that several queue pairs draw from. */
TRANSOM_DEFINE_GUID(IID_IND2SharedReceiveQueue, 0xAABD67DC, 0x459A, 0x4DB1, 0x82, 0x6B, 0x56, 0xCF, 0xCC, 0x27, 0x88, 0x83);
struct IND2SharedReceiveQueue : public IND2Overlapped {
    virtual HRESULT STDMETHODCALLTYPE GetNotifyAffinity(USHORT *pGroup, KAFFINITY *pAffinity) = 0;
    virtual HRESULT STDMETHODCALLTYPE Modify(ULONG queueDepth, ULONG notifyThreshold) = 0;
    virtual HRESULT STDMETHODCALLTYPE Notify(OVERLAPPED *pOverlapped) = 0;
    virtual HRESULT STDMETHODCALLTYPE Receive(VOID *requestContext, const ND2_SGE sge[], ULONG nSge) = 0;
};

/* A revocable view of a region, for one peer. */
TRANSOM_DEFINE_GUID(IID_IND2MemoryWindow, 0x070FE1F5, 0x0AB5, 0x4361, 0x88, 0xDB, 0x97, 0x4B, 0xA7, 0x04, 0xD4, 0xB9);
struct IND2MemoryWindow : public IUnknown {
    virtual UINT32 STDMETHODCALLTYPE GetRemoteToken() = 0;
};

/* A registered buffer. */
TRANSOM_DEFINE_GUID(IID_IND2MemoryRegion, 0x55DFEA2F, 0xBC56, 0x4982, 0x8A, 0x45, 0x03, 0x01, 0xBE, 0x46, 0xC4, 0x13);
struct IND2MemoryRegion : public IND2Overlapped {
    virtual HRESULT STDMETHODCALLTYPE Register(const VOID *pBuffer, SIZE_T cbBuffer, ULONG flags, OVERLAPPED *pOverlapped) = 0;
    virtual HRESULT STDMETHODCALLTYPE Deregister(OVERLAPPED *pOverlapped) = 0;
    virtual UINT32 STDMETHODCALLTYPE GetLocalToken() = 0;
    virtual UINT32 STDMETHODCALLTYPE GetRemoteToken() = 0;
};

/* Requests to one peer. */
TRANSOM_DEFINE_GUID(IID_IND2QueuePair, 0xEEF2F332, 0xB75D, 0x4063, 0xBC, 0xE3, 0x3A, 0x0B, 0xAD, 0x2D, 0x02, 0xCE);
struct IND2QueuePair : public IUnknown {
    virtual HRESULT STDMETHODCALLTYPE Flush() = 0;
    virtual HRESULT STDMETHODCALLTYPE Send(VOID *requestContext, const ND2_SGE sge[], ULONG nSge, ULONG flags) = 0;
    virtual HRESULT STDMETHODCALLTYPE Receive(VOID *requestContext, const ND2_SGE sge[], ULONG nSge) = 0;
    virtual HRESULT STDMETHODCALLTYPE Bind(VOID *requestContext, IUnknown *pMemoryRegion, IUnknown *pMemoryWindow, const VOID *pBuffer,
         SIZE_T cbBuffer, ULONG flags) = 0;
    virtual HRESULT STDMETHODCALLTYPE Invalidate(VOID *requestContext, IUnknown *pMemoryWindow, ULONG flags) = 0;
    virtual HRESULT STDMETHODCALLTYPE Read(VOID *requestContext, const ND2_SGE sge[], ULONG nSge, UINT64 remoteAddress, UINT32 remoteToken,
         ULONG flags) = 0;
    virtual HRESULT STDMETHODCALLTYPE Write(VOID *requestContext, const ND2_SGE sge[], ULONG nSge, UINT64 remoteAddress, UINT32 remoteToken,
          ULONG flags) = 0;
};

/* An end of a connection. */
TRANSOM_DEFINE_GUID(IID_IND2Connector, 0x7DD615C4, 0x6B4C, 0x4866, 0x95, 0x0C, 0xF3, 0xB1, 0xD2, 0x5A, 0x53, 0x02);
struct IND2Connector : public IND2Overlapped {
    virtual HRESULT STDMETHODCALLTYPE Bind(const struct sockaddr *pAddress, ULONG cbAddress) = 0;
    virtual HRESULT STDMETHODCALLTYPE Connect(IUnknown *pQueuePair, const struct sockaddr *pDestAddress, ULONG cbDestAddress, ULONG inboundReadLimit,
            ULONG outboundReadLimit, const VOID *pPrivateData, ULONG cbPrivateData, OVERLAPPED *pOverlapped) = 0;
    virtual HRESULT STDMETHODCALLTYPE CompleteConnect(OVERLAPPED *pOverlapped) = 0;
    virtual HRESULT STDMETHODCALLTYPE Accept(IUnknown *pQueuePair, ULONG inboundReadLimit, ULONG outboundReadLimit, const VOID *pPrivateData,
           ULONG cbPrivateData, OVERLAPPED *pOverlapped) = 0;
    virtual HRESULT STDMETHODCALLTYPE Reject(const VOID *pPrivateData, ULONG cbPrivateData) = 0;
    virtual HRESULT STDMETHODCALLTYPE GetReadLimits(ULONG *pInboundReadLimit, ULONG *pOutboundReadLimit) = 0;
    virtual HRESULT STDMETHODCALLTYPE GetPrivateData(VOID *pPrivateData, ULONG *pcbPrivateData) = 0;
    virtual HRESULT STDMETHODCALLTYPE GetLocalAddress(struct sockaddr *pAddress, ULONG *pcbAddress) = 0;
    virtual HRESULT STDMETHODCALLTYPE GetPeerAddress(struct sockaddr *pAddress, ULONG *pcbAddress) = 0;
    virtual HRESULT STDMETHODCALLTYPE NotifyDisconnect(OVERLAPPED *pOverlapped) = 0;
    virtual HRESULT STDMETHODCALLTYPE Disconnect(OVERLAPPED *pOverlapped) = 0;
};

/* Waits for connections. */
TRANSOM_DEFINE_GUID(IID_IND2Listener, 0x65D23D83, 0x3A57, 0x4E02, 0x86, 0xA4, 0x35, 0x01, 0x65, 0xC2, 0xD1, 0x30);
struct IND2Listener : public IND2Overlapped {
    virtual HRESULT STDMETHODCALLTYPE Bind(const struct sockaddr *pAddress, ULONG cbAddress) = 0;
    virtual HRESULT STDMETHODCALLTYPE Listen(ULONG backlog) = 0;
    virtual HRESULT STDMETHODCALLTYPE GetLocalAddress(struct sockaddr *pAddress, ULONG *pcbAddress) = 0;
    virtual HRESULT STDMETHODCALLTYPE GetConnectionRequest(IUnknown *pConnector, OVERLAPPED *pOverlapped) = 0;
};

/* Makes everything else; scope of all tokens. */
TRANSOM_DEFINE_GUID(IID_IND2Adapter, 0xD89C798C, 0x4823, 0x4D69, 0x84, 0x6C, 0xDF, 0xDC, 0xCF, 0xF9, 0xE5, 0xF3);
struct IND2Adapter : public IUnknown {
    virtual HRESULT STDMETHODCALLTYPE CreateOverlappedFile(HANDLE *phOverlappedFile) = 0;
    virtual HRESULT STDMETHODCALLTYPE Query(ND2_ADAPTER_INFO *pInfo, ULONG *pcbInfo) = 0;
    virtual HRESULT STDMETHODCALLTYPE QueryAddressList(SOCKET_ADDRESS_LIST *pAddressList, ULONG *pcbAddressList) = 0;
    virtual HRESULT STDMETHODCALLTYPE CreateCompletionQueue(REFIID iid, HANDLE hOverlappedFile, ULONG queueDepth, USHORT group, KAFFINITY affinity,
                          VOID **ppCompletionQueue) = 0;
    virtual HRESULT STDMETHODCALLTYPE CreateMemoryRegion(REFIID iid, HANDLE hOverlappedFile, VOID **ppMemoryRegion) = 0;
    virtual HRESULT STDMETHODCALLTYPE CreateMemoryWindow(REFIID iid, VOID **ppMemoryWindow) = 0;
    virtual HRESULT STDMETHODCALLTYPE CreateSharedReceiveQueue(REFIID iid, HANDLE hOverlappedFile, ULONG queueDepth, ULONG maxRequestSge,
                             ULONG notifyThreshold, USHORT group, KAFFINITY affinity, VOID **ppSharedReceiveQueue) = 0;
    virtual HRESULT STDMETHODCALLTYPE CreateQueuePair(REFIID iid, IUnknown *pReceiveCompletionQueue, IUnknown *pInitiatorCompletionQueue, VOID *context,
                    ULONG receiveQueueDepth, ULONG initiatorQueueDepth, ULONG maxReceiveRequestSge,
                    ULONG maxInitiatorRequestSge, ULONG inlineDataSize, VOID **ppQueuePair) = 0;
    virtual HRESULT STDMETHODCALLTYPE CreateQueuePairWithSrq(REFIID iid, IUnknown *pReceiveCompletionQueue, IUnknown *pInitiatorCompletionQueue,
                           IUnknown *pSharedReceiveQueue, VOID *context, ULONG initiatorQueueDepth,
                           ULONG maxInitiatorRequestSge, ULONG inlineDataSize, VOID **ppQueuePair) = 0;
    virtual HRESULT STDMETHODCALLTYPE CreateConnector(REFIID iid, HANDLE hOverlappedFile, VOID **ppConnector) = 0;
    virtual HRESULT STDMETHODCALLTYPE CreateListener(REFIID iid, HANDLE hOverlappedFile, VOID **ppListener) = 0;
};

/* The way in: local addresses and their adapters. */
TRANSOM_DEFINE_GUID(IID_IND2Provider, 0x49EAE6C1, 0x76C4, 0x46D0, 0x80, 0x03, 0x5C, 0x2E, 0xAA, 0x2C, 0x9A, 0x8E);
struct IND2Provider : public IUnknown {
    virtual HRESULT STDMETHODCALLTYPE QueryAddressList(SOCKET_ADDRESS_LIST *pAddressList, ULONG *pcbAddressList) = 0;
    virtual HRESULT STDMETHODCALLTYPE ResolveAddress(const struct sockaddr *pAddress, ULONG cbAddress, UINT64 *pAdapterId) = 0;
    virtual HRESULT STDMETHODCALLTYPE OpenAdapter(REFIID iid, UINT64 adapterId, VOID **ppAdapter) = 0;
};

/* ==== version 1 ==== */

struct INDEndpoint;
struct INDConnector;

/* Objects with asynchronous requests. */
TRANSOM_DEFINE_GUID(IID_INDOverlapped, 0xC859E15E, 0x75E2, 0x4FE3, 0x8D, 0x6D, 0x0D, 0xFF, 0x36, 0xF0, 0x24, 0x42);
struct INDOverlapped : public IUnknown {
    virtual HRESULT STDMETHODCALLTYPE CancelOverlappedRequests() = 0;
    virtual HRESULT STDMETHODCALLTYPE GetOverlappedResult(OVERLAPPED *pOverlapped, SIZE_T *pNumberOfBytesTransferred, BOOL bWait) = 0;
};

/* A queue of results. */
TRANSOM_DEFINE_GUID(IID_INDCompletionQueue, 0x1245A633, 0x2A32, 0x473A, 0x83, 0x0C, 0xE0, 0x5D, 0x1F, 0x86, 0x9D, 0x02);
struct INDCompletionQueue : public INDOverlapped {
    virtual HRESULT STDMETHODCALLTYPE Resize(SIZE_T nEntries) = 0;
    virtual HRESULT STDMETHODCALLTYPE Notify(DWORD Type, OVERLAPPED *pOverlapped) = 0;
    virtual SIZE_T STDMETHODCALLTYPE GetResults(ND_RESULT *pResults[], SIZE_T nResults) = 0;
};

/* A revocable view of registered memory. Its identifier is also IND2MemoryWindow's. */
TRANSOM_DEFINE_GUID(IID_INDMemoryWindow, 0x070FE1F5, 0x0AB5, 0x4361, 0x88, 0xDB, 0x97, 0x4B, 0xA7, 0x04, 0xD4, 0xB9);
struct INDMemoryWindow : public IUnknown {
};

/* Requests to one peer. */
TRANSOM_DEFINE_GUID(IID_INDEndpoint, 0xDBD00EAB, 0xB679, 0x44A9, 0xBD, 0x65, 0xE8, 0x2F, 0x3D, 0xE1, 0x2D, 0x1A);
struct INDEndpoint : public IUnknown {
    virtual HRESULT STDMETHODCALLTYPE Flush() = 0;
    virtual VOID STDMETHODCALLTYPE StartRequestBatch() = 0;
    virtual VOID STDMETHODCALLTYPE SubmitRequestBatch() = 0;
    virtual HRESULT STDMETHODCALLTYPE Send(ND_RESULT *pResult, const ND_SGE *pSgl, SIZE_T nSge, DWORD Flags) = 0;
    virtual HRESULT STDMETHODCALLTYPE SendAndInvalidate(ND_RESULT *pResult, const ND_SGE *pSgl, SIZE_T nSge,
                      const ND_MW_DESCRIPTOR *pRemoteMwDescriptor, DWORD Flags) = 0;
    virtual HRESULT STDMETHODCALLTYPE Receive(ND_RESULT *pResult, const ND_SGE *pSgl, SIZE_T nSge) = 0;
    virtual HRESULT STDMETHODCALLTYPE Bind(ND_RESULT *pResult, ND_MR_HANDLE hMr, INDMemoryWindow *pMw, const VOID *pBuffer, SIZE_T BufferSize,
         DWORD Flags, ND_MW_DESCRIPTOR *pMwDescriptor) = 0;
    virtual HRESULT STDMETHODCALLTYPE Invalidate(ND_RESULT *pResult, INDMemoryWindow *pMw, DWORD Flags) = 0;
    virtual HRESULT STDMETHODCALLTYPE Read(ND_RESULT *pResult, const ND_SGE *pSgl, SIZE_T nSge, const ND_MW_DESCRIPTOR *pRemoteMwDescriptor,
         ULONGLONG Offset, DWORD Flags) = 0;
    virtual HRESULT STDMETHODCALLTYPE Write(ND_RESULT *pResult, const ND_SGE *pSgl, SIZE_T nSge, const ND_MW_DESCRIPTOR *pRemoteMwDescriptor,
          ULONGLONG Offset, DWORD Flags) = 0;
};

/* An end of a connection. */
TRANSOM_DEFINE_GUID(IID_INDConnector, 0x1BCAF2D1, 0xE274, 0x4AEB, 0xAC, 0x57, 0xCD, 0x5D, 0x43, 0x76, 0xE0, 0xB7);
struct INDConnector : public INDOverlapped {
    virtual HRESULT STDMETHODCALLTYPE CreateEndpoint(INDCompletionQueue *pInboundCq, INDCompletionQueue *pOutboundCq, SIZE_T nInboundEntries,
                   SIZE_T nOutboundEntries, SIZE_T nInboundSge, SIZE_T nOutboundSge, SIZE_T InboundReadLimit,
                   SIZE_T OutboundReadLimit, SIZE_T *pMaxInlineData, INDEndpoint **ppEndpoint) = 0;
    virtual HRESULT STDMETHODCALLTYPE Connect(INDEndpoint *pEndpoint, const struct sockaddr *pAddress, SIZE_T AddressLength, INT Protocol, USHORT LocalPort,
            const VOID *pPrivateData, SIZE_T PrivateDataLength, OVERLAPPED *pOverlapped) = 0;
    virtual HRESULT STDMETHODCALLTYPE CompleteConnect(OVERLAPPED *pOverlapped) = 0;
    virtual HRESULT STDMETHODCALLTYPE Accept(INDEndpoint *pEndpoint, const VOID *pPrivateData, SIZE_T PrivateDataLength, OVERLAPPED *pOverlapped) = 0;
    virtual HRESULT STDMETHODCALLTYPE Reject(const VOID *pPrivateData, SIZE_T PrivateDataLength) = 0;
    virtual HRESULT STDMETHODCALLTYPE GetConnectionData(SIZE_T *pInboundReadLimit, SIZE_T *pOutboundReadLimit, VOID *pPrivateData,
                      SIZE_T *pPrivateDataLength) = 0;
    virtual HRESULT STDMETHODCALLTYPE GetLocalAddress(struct sockaddr *pAddress, SIZE_T *pAddressLength) = 0;
    virtual HRESULT STDMETHODCALLTYPE GetPeerAddress(struct sockaddr *pAddress, SIZE_T *pAddressLength) = 0;
    virtual HRESULT STDMETHODCALLTYPE NotifyDisconnect(OVERLAPPED *pOverlapped) = 0;
    virtual HRESULT STDMETHODCALLTYPE Disconnect(OVERLAPPED *pOverlapped) = 0;
};

/* Waits for connections on one port. */
TRANSOM_DEFINE_GUID(IID_INDListen, 0xBB902588, 0xBA3F, 0x4441, 0x9F, 0xE1, 0x3B, 0x67, 0x95, 0xE4, 0xE6, 0x68);
struct INDListen : public INDOverlapped {
    virtual HRESULT STDMETHODCALLTYPE GetConnectionRequest(INDConnector *pConnector, OVERLAPPED *pOverlapped) = 0;
};

/* Makes everything else; owner of the one file. */
TRANSOM_DEFINE_GUID(IID_INDAdapter, 0xA023C5A0, 0x5B73, 0x43BC, 0x8D, 0x20, 0x33, 0xAA, 0x07, 0xE9, 0x51, 0x0F);
struct INDAdapter : public INDOverlapped {
    virtual HANDLE STDMETHODCALLTYPE GetFileHandle() = 0;
    virtual HRESULT STDMETHODCALLTYPE Query(DWORD VersionRequested, ND_ADAPTER_INFO *pInfo, SIZE_T *pBufferSize) = 0;
    virtual HRESULT STDMETHODCALLTYPE Control(DWORD IoControlCode, const VOID *pInBuffer, SIZE_T InBufferSize, VOID *pOutBuffer, SIZE_T OutBufferSize,
            SIZE_T *pBytesReturned, OVERLAPPED *pOverlapped) = 0;
    virtual HRESULT STDMETHODCALLTYPE CreateCompletionQueue(SIZE_T nEntries, INDCompletionQueue **ppCq) = 0;
    virtual HRESULT STDMETHODCALLTYPE RegisterMemory(const VOID *pBuffer, SIZE_T BufferSize, OVERLAPPED *pOverlapped, ND_MR_HANDLE *phMr) = 0;
    virtual HRESULT STDMETHODCALLTYPE DeregisterMemory(ND_MR_HANDLE hMr, OVERLAPPED *pOverlapped) = 0;
    virtual HRESULT STDMETHODCALLTYPE CreateMemoryWindow(ND_RESULT *pInvalidateResult, INDMemoryWindow **ppMw) = 0;
    virtual HRESULT STDMETHODCALLTYPE CreateConnector(INDConnector **ppConnector) = 0;
    virtual HRESULT STDMETHODCALLTYPE Listen(SIZE_T Backlog, INT Protocol, USHORT Port, USHORT *pAssignedPort, INDListen **ppListen) = 0;
};

/* The way in: local addresses and their adapters. */
TRANSOM_DEFINE_GUID(IID_INDProvider, 0x0C5DD316, 0x5FDF, 0x47E6, 0xB2, 0xD0, 0x2A, 0x6E, 0xDA, 0x8D, 0x39, 0xDD);
struct INDProvider : public IUnknown {
    virtual HRESULT STDMETHODCALLTYPE QueryAddressList(SOCKET_ADDRESS_LIST *pAddressList, SIZE_T *pBufferSize) = 0;
    virtual HRESULT STDMETHODCALLTYPE OpenAdapter(const struct sockaddr *pAddress, SIZE_T AddressLength, INDAdapter **ppAdapter) = 0;
};

#endif
