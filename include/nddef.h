/*
 * nddef.h - constants and structures of NetworkDirect, versions 1 and 2.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef _NDDEF_H_
#define _NDDEF_H_

#include <winsock2.h>

#define ND_VERSION_1 0x1
#define ND_VERSION_2 0x20000
#ifndef NDVER
#define NDVER ND_VERSION_2
#endif

/* ND2_ADAPTER_INFO.AdapterFlags */
#define ND_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED            0x00000001
#define ND_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED 0x00000004
#define ND_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED            0x00000008
#define ND_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED               0x00000100
#define ND_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED    0x00010000

/* The events that a completion queue's Notify waits for. */
#define ND_CQ_NOTIFY_ERRORS    0
#define ND_CQ_NOTIFY_ANY       1
#define ND_CQ_NOTIFY_SOLICITED 2

/* Rights of a memory region. Remote write includes local write: test bit 0x4 alone. */
#define ND_MR_FLAG_ALLOW_LOCAL_READ   0x00000000
#define ND_MR_FLAG_ALLOW_LOCAL_WRITE  0x00000001
#define ND_MR_FLAG_ALLOW_REMOTE_READ  0x00000002
#define ND_MR_FLAG_ALLOW_REMOTE_WRITE 0x00000005
#define ND_MR_FLAG_RDMA_READ_SINK     0x00000008
#define ND_MR_FLAG_DO_NOT_SECURE_VM   0x80000000

/* Flags of a request. */
#define ND_OP_FLAG_SILENT_SUCCESS         0x00000001
#define ND_OP_FLAG_READ_FENCE             0x00000002
#define ND_OP_FLAG_SEND_AND_SOLICIT_EVENT 0x00000004
#define ND_OP_FLAG_ALLOW_READ             0x00000008
#define ND_OP_FLAG_ALLOW_WRITE            0x00000010
#if NDVER >= ND_VERSION_2
#define ND_OP_FLAG_INLINE                 0x00000020
#endif

/* Winsock catalogue: this entry is a NetworkDirect provider. */
#define PFL_NETWORKDIRECT_PROVIDER 0x00000010

/* ---- version 2 ---- */

typedef struct _ND2_ADAPTER_INFO {
    ULONG   InfoVersion;
    UINT16  VendorId;
    UINT16  DeviceId;
    UINT64  AdapterId;
    SIZE_T  MaxRegistrationSize;
    SIZE_T  MaxWindowSize;
    ULONG   MaxInitiatorSge;
    ULONG   MaxReceiveSge;
    ULONG   MaxReadSge;
    ULONG   MaxTransferLength;
    ULONG   MaxInlineDataSize;
    ULONG   MaxInboundReadLimit;
    ULONG   MaxOutboundReadLimit;
    ULONG   MaxReceiveQueueDepth;
    ULONG   MaxInitiatorQueueDepth;
    ULONG   MaxSharedReceiveQueueDepth;
    ULONG   MaxCompletionQueueDepth;
    ULONG   InlineRequestThreshold;
    ULONG   LargeRequestThreshold;
    ULONG   MaxCallerData;
    ULONG   MaxCalleeData;
    ULONG   AdapterFlags;
} ND2_ADAPTER_INFO;

typedef enum _ND2_REQUEST_TYPE {
    Nd2RequestTypeReceive,
    Nd2RequestTypeSend,
    Nd2RequestTypeBind,
    Nd2RequestTypeInvalidate,
    Nd2RequestTypeRead,
    Nd2RequestTypeWrite
} ND2_REQUEST_TYPE;

typedef struct _ND2_RESULT {
    HRESULT          Status;
    ULONG            BytesTransferred; /* of a Receive */
    VOID            *QueuePairContext;
    VOID            *RequestContext;
    ND2_REQUEST_TYPE RequestType;
} ND2_RESULT;

typedef struct _ND2_SGE {
    VOID  *Buffer;
    ULONG  BufferLength;
    UINT32 MemoryRegionToken;
} ND2_SGE;

/* ---- version 1 ---- */

DECLARE_HANDLE(ND_MR_HANDLE);

typedef struct _ND_ADAPTER_INFO1 {
    UINT32  VendorId;
    UINT32  DeviceId;
    SIZE_T  MaxInboundSge;
    SIZE_T  MaxInboundRequests;
    SIZE_T  MaxInboundLength;
    SIZE_T  MaxOutboundSge;
    SIZE_T  MaxOutboundRequests;
    SIZE_T  MaxOutboundLength;
    SIZE_T  MaxInlineData;
    SIZE_T  MaxInboundReadLimit;
    SIZE_T  MaxOutboundReadLimit;
    SIZE_T  MaxCqEntries;
    SIZE_T  MaxRegistrationSize;
    SIZE_T  MaxWindowSize;
    SIZE_T  LargeRequestThreshold;
    SIZE_T  MaxCallerData;
    SIZE_T  MaxCalleeData;
} ND_ADAPTER_INFO1, ND_ADAPTER_INFO;

/* The caller's; its address names the request. */
typedef struct _ND_RESULT {
    HRESULT Status;
    SIZE_T  BytesTransferred;
} ND_RESULT;

/* hMr == NULL: the bytes are copied while the call lasts. */
typedef struct _ND_SGE {
    VOID        *pAddr;
    SIZE_T       Length;
    ND_MR_HANDLE hMr;
} ND_SGE;

/* Travels from the owner of a window to its peer as it is: network order, no padding. */
#pragma pack(push, 1)
typedef struct _ND_MW_DESCRIPTOR {
    UINT64 Base;
    UINT64 Length;
    UINT32 Token;
} ND_MW_DESCRIPTOR;
#pragma pack(pop)

#endif
