/* NDKPI in user space: names, structures, values and dispatch tables of the kernel interface, for
 * C and C++ programs that link libtransom_ndkpi. Semantics as documented for the original; what is
 * not built answers STATUS_NOT_SUPPORTED (see README.md).
 *
 * Instead of a miniport there are NdkOpenAdapter and NdkCloseAdapter at the end, and instead of
 * kernel memory there are MDLs of this process: see "MDLs".
 *
 * All ULONGs have 32 bits, on every platform. On Windows too this is a program in user space; with
 * <ntstatus.h>, include that first. */
#ifndef TRANSOM_NDKPI_H
#define TRANSOM_NDKPI_H

#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#include <winsock2.h>
#include <windows.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifdef _WIN32
typedef LONG NTSTATUS;
typedef const struct sockaddr *PCSOCKADDR;
#else
typedef void VOID, *PVOID;
typedef uint8_t BOOLEAN;
typedef uint16_t USHORT;
typedef uint32_t ULONG, UINT32;
typedef uint64_t UINT64;
typedef size_t SIZE_T;
typedef uintptr_t ULONG_PTR;
typedef int32_t NTSTATUS;
typedef struct { uint32_t Data1; uint16_t Data2, Data3; uint8_t Data4[8]; } GUID;
struct sockaddr;
typedef const struct sockaddr *PCSOCKADDR;
typedef struct sockaddr *PSOCKADDR;
typedef struct { ULONG_PTR Mask; USHORT Group; USHORT Reserved[3]; } GROUP_AFFINITY;
#define TRUE 1
#define FALSE 0
#endif

/* ---- status values ---- */
#ifndef NT_SUCCESS
#define NT_SUCCESS(s) ((NTSTATUS)(s) >= 0) /* STATUS_PENDING is one: compare for it first */
#endif
#ifndef NT_ERROR
#define NT_ERROR(s) (((uint32_t)(s)) >> 30 == 3)
#endif
#ifndef _NTSTATUS_ /* <ntstatus.h> has the same values */
#ifdef _WIN32      /* <windows.h> has these as DWORD */
#undef STATUS_PENDING
#undef STATUS_TIMEOUT
#undef STATUS_ACCESS_VIOLATION
#undef STATUS_INVALID_PARAMETER
#undef STATUS_NO_MEMORY
#endif
#define STATUS_SUCCESS ((NTSTATUS)0x00000000)
#define STATUS_TIMEOUT ((NTSTATUS)0x00000102) /* NT_SUCCESS holds: compare for it first */
#define STATUS_PENDING ((NTSTATUS)0x00000103)
#define STATUS_BUFFER_OVERFLOW ((NTSTATUS)0x80000005)
#define STATUS_DEVICE_BUSY ((NTSTATUS)0x80000011)
#define STATUS_NO_MORE_ENTRIES ((NTSTATUS)0x8000001A)
#define STATUS_UNSUCCESSFUL ((NTSTATUS)0xC0000001)
#define STATUS_ACCESS_VIOLATION ((NTSTATUS)0xC0000005)
#define STATUS_INVALID_PARAMETER ((NTSTATUS)0xC000000D)
#define STATUS_INVALID_DEVICE_REQUEST ((NTSTATUS)0xC0000010)
#define STATUS_NO_MEMORY ((NTSTATUS)0xC0000017)
#define STATUS_BUFFER_TOO_SMALL ((NTSTATUS)0xC0000023)
#define STATUS_INVALID_PARAMETER_MIX ((NTSTATUS)0xC0000030)
#define STATUS_DATA_OVERRUN ((NTSTATUS)0xC000003C)
#define STATUS_SHARING_VIOLATION ((NTSTATUS)0xC0000043)
#define STATUS_INSUFFICIENT_RESOURCES ((NTSTATUS)0xC000009A)
#define STATUS_IO_TIMEOUT ((NTSTATUS)0xC00000B5)
#define STATUS_NOT_SUPPORTED ((NTSTATUS)0xC00000BB)
#define STATUS_INTERNAL_ERROR ((NTSTATUS)0xC00000E5)
#define STATUS_CANCELLED ((NTSTATUS)0xC0000120)
#define STATUS_REMOTE_RESOURCES ((NTSTATUS)0xC000013D)
#define STATUS_INVALID_ADDRESS ((NTSTATUS)0xC0000141)
#define STATUS_INVALID_DEVICE_STATE ((NTSTATUS)0xC0000184)
#define STATUS_INVALID_BUFFER_SIZE ((NTSTATUS)0xC0000206)
#define STATUS_TOO_MANY_ADDRESSES ((NTSTATUS)0xC0000209)
#define STATUS_ADDRESS_ALREADY_EXISTS ((NTSTATUS)0xC000020A)
#define STATUS_CONNECTION_DISCONNECTED ((NTSTATUS)0xC000020C)
#define STATUS_CONNECTION_REFUSED ((NTSTATUS)0xC0000236)
#define STATUS_CONNECTION_INVALID ((NTSTATUS)0xC000023A)
#define STATUS_CONNECTION_ACTIVE ((NTSTATUS)0xC000023B)
#define STATUS_NETWORK_UNREACHABLE ((NTSTATUS)0xC000023C)
#define STATUS_HOST_UNREACHABLE ((NTSTATUS)0xC000023D)
#define STATUS_REQUEST_ABORTED ((NTSTATUS)0xC0000240)
#define STATUS_CONNECTION_ABORTED ((NTSTATUS)0xC0000241)
#define STATUS_DEVICE_REMOVED ((NTSTATUS)0xC00002B6)
#define STATUS_IMPLEMENTATION_LIMIT ((NTSTATUS)0xC000042B)
#endif
#define NDIS_STATUS_BAD_VERSION ((NTSTATUS)0xC0010004)
#define NDIS_STATUS_ADAPTER_NOT_READY ((NTSTATUS)0xC0010011)

/* ---- flags ---- */
#define NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED 0x00000001
#define NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED 0x00000002
#define NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED 0x00000004
#define NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED 0x00000008
#define NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED 0x00000010
#define NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED 0x00000100
#define NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED 0x00010000

#define NDK_MR_FLAG_ALLOW_LOCAL_READ 0x00000000
#define NDK_MR_FLAG_ALLOW_LOCAL_WRITE 0x00000001
#define NDK_MR_FLAG_ALLOW_REMOTE_READ 0x00000002
#define NDK_MR_FLAG_ALLOW_REMOTE_WRITE 0x00000005 /* has LOCAL_WRITE built in */
#define NDK_MR_FLAG_RDMA_READ_SINK 0x00000008

#define NDK_OP_FLAG_SILENT_SUCCESS 0x00000001
#define NDK_OP_FLAG_READ_FENCE 0x00000002
#define NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT 0x00000004
#define NDK_OP_FLAG_ALLOW_REMOTE_READ 0x00000008
#define NDK_OP_FLAG_ALLOW_LOCAL_WRITE 0x00000010
#define NDK_OP_FLAG_ALLOW_REMOTE_WRITE 0x00000030 /* has ALLOW_LOCAL_WRITE built in */
#define NDK_OP_FLAG_INLINE 0x00000040
#define NDK_OP_FLAG_RDMA_READ_SINK 0x00000080
#define NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE 0x00000100
#define NDK_OP_FLAG_DEFER 0x00000200

#define NDK_CQ_NOTIFY_ERRORS 0
#define NDK_CQ_NOTIFY_ANY 1
#define NDK_CQ_NOTIFY_SOLICITED 2

/* ---- objects ---- */
typedef struct { USHORT Major, Minor; } NDK_VERSION;

typedef enum {
    NdkObjectTypeUndefined = 0,
    NdkObjectTypeAdapter,
    NdkObjectTypeQp,
    NdkObjectTypeCq,
    NdkObjectTypeMr,
    NdkObjectTypeMw,
    NdkObjectTypePd,
    NdkObjectTypeSharedEndpoint,
    NdkObjectTypeConnector,
    NdkObjectTypeListener,
    NdkObjectTypeSrq,
    NdkObjectTypeMax
} NDK_OBJECT_TYPE;

typedef struct { PVOID rf[4]; } NDK_OBJECT_HEADER_RESERVED_BLOCK;

typedef struct {
    NDK_VERSION Version;
    NDK_OBJECT_TYPE ObjectType;
    NDK_OBJECT_HEADER_RESERVED_BLOCK NdkReserved;
} NDK_OBJECT_HEADER;

#define NDK_DECLARE(Name)                                        \
    struct NDK_##Name##_DISPATCH_T;                              \
    typedef struct NDK_##Name##_DISPATCH_T NDK_##Name##_DISPATCH; \
    typedef struct {                                             \
        NDK_OBJECT_HEADER Header;                                \
        const NDK_##Name##_DISPATCH *Dispatch;                   \
    } NDK_##Name;
NDK_DECLARE(ADAPTER)
NDK_DECLARE(PD)
NDK_DECLARE(CQ)
NDK_DECLARE(QP)
NDK_DECLARE(MR)
NDK_DECLARE(MW)
NDK_DECLARE(SRQ)
NDK_DECLARE(CONNECTOR)
NDK_DECLARE(LISTENER)
NDK_DECLARE(SHARED_ENDPOINT)
#undef NDK_DECLARE

typedef enum {
    NdkUndefined = 0,
    NdkiWarp,
    NdkInfiniBand,
    NdkRoCE,
    NdkRoCEv2,
    NdkMaxTechnology
} NDK_RDMA_TECHNOLOGY;

typedef struct {
    NDK_VERSION Version;
    UINT32 VendorId, DeviceId;
    SIZE_T MaxRegistrationSize, MaxWindowSize;
    ULONG FRMRPageCount;
    ULONG MaxInitiatorRequestSge, MaxReceiveRequestSge, MaxReadRequestSge;
    ULONG MaxTransferLength, MaxInlineDataSize;
    ULONG MaxInboundReadLimit, MaxOutboundReadLimit;
    ULONG MaxReceiveQueueDepth, MaxInitiatorQueueDepth, MaxSrqDepth, MaxCqDepth;
    ULONG LargeRequestThreshold, MaxCallerData, MaxCalleeData;
    ULONG AdapterFlags;
    NDK_RDMA_TECHNOLOGY RdmaTechnology;
} NDK_ADAPTER_INFO;

typedef union { int64_t QuadPart; } NDK_LOGICAL_ADDRESS;

typedef struct {
    union {
        PVOID VirtualAddress;
        NDK_LOGICAL_ADDRESS LogicalAddress;
    };
    ULONG Length;
    UINT32 MemoryRegionToken;
} NDK_SGE;

typedef struct {
    PVOID AdapterContext;
    ULONG AdapterPageCount;
    NDK_LOGICAL_ADDRESS AdapterPageArray[1];
} NDK_LOGICAL_ADDRESS_MAPPING;

typedef enum {
    NdkOperationTypeReceive = 1,
    NdkOperationTypeSend = 2,
    NdkOperationTypeFastRegister = 4,
    NdkOperationTypeBind = 8,
    NdkOperationTypeInvalidate = 16,
    NdkOperationTypeRead = 32,
    NdkOperationTypeWrite = 64,
    NdkOperationTypeReceiveAndInvalidate = 0x8001
} NDK_OPERATION_TYPE;

typedef struct {
    NTSTATUS Status;
    ULONG BytesTransferred; /* receives only */
    PVOID QPContext, RequestContext;
} NDK_RESULT;

typedef struct {
    NTSTATUS Status;
    ULONG BytesTransferred;
    PVOID QPContext, RequestContext;
    NDK_OPERATION_TYPE Type;
    ULONG ProviderErrorCode; /* 2.1; names the record of a refusal: NdkExplain */
    ULONG_PTR TypeSpecificCompletionOutput;
} NDK_RESULT_EX;

typedef struct { const VOID *Dispatch; } NDK_EXTENSION_INTERFACE;

/* ---- MDLs: header, then one page frame number per page spanned ---- */
#define PAGE_SIZE 4096

typedef struct _MDL {
    struct _MDL *Next;
    int16_t Size, MdlFlags;
    uint16_t AllocationProcessorNumber, Reserved;
    PVOID Process, MappedSystemVa;
    PVOID StartVa;
    ULONG ByteCount, ByteOffset;
} MDL, *PMDL;

/* A page frame number is the address of a page of this process divided by PAGE_SIZE. */
typedef ULONG_PTR PFN_NUMBER;

SIZE_T MmSizeOfMdl(PVOID Base, SIZE_T Length);
VOID MmInitializeMdl(MDL *Mdl, PVOID Base, SIZE_T Length);
MDL *IoAllocateMdl(PVOID VirtualAddress, ULONG Length, BOOLEAN Secondary, BOOLEAN ChargeQuota, PVOID Irp);
VOID IoFreeMdl(MDL *Mdl);
/* List the pages of the buffer at the MDL's own address. */
VOID MmBuildMdlForNonPagedPool(MDL *Mdl);
VOID IoBuildPartialMdl(const MDL *Source, MDL *Target, PVOID VirtualAddress, ULONG Length);
/* List pages from anywhere, as many as the MDL spans; its own address need not be mapped. */
BOOLEAN TransomBuildMdlForPages(MDL *Mdl, PVOID const *Pages, SIZE_T Count);
PFN_NUMBER *MmGetMdlPfnArray(const MDL *Mdl);
PVOID MmGetMdlVirtualAddress(const MDL *Mdl);
ULONG MmGetMdlByteCount(const MDL *Mdl);
ULONG MmGetMdlByteOffset(const MDL *Mdl);

/* ---- callbacks of the consumer: must not block ---- */
typedef VOID NDK_FN_CREATE_COMPLETION(PVOID Context, NTSTATUS Status, NDK_OBJECT_HEADER *pNdkObject);
typedef VOID NDK_FN_REQUEST_COMPLETION(PVOID Context, NTSTATUS Status);
typedef VOID NDK_FN_CLOSE_COMPLETION(PVOID Context);
typedef VOID NDK_FN_CQ_NOTIFICATION_CALLBACK(PVOID CqNotificationContext, NTSTATUS CqStatus);
typedef VOID NDK_FN_SRQ_NOTIFICATION_CALLBACK(PVOID SrqNotificationContext, NTSTATUS SrqStatus);
typedef VOID NDK_FN_CONNECT_EVENT_CALLBACK(PVOID ConnectEventContext, NDK_CONNECTOR *pNdkConnector);
typedef VOID NDK_FN_DISCONNECT_EVENT_CALLBACK(PVOID DisconnectEventContext);
typedef VOID NDK_FN_DISCONNECT_EVENT_CALLBACK_EX(PVOID DisconnectEventContext, ULONG ProviderDisconnectReason);

/* ---- functions of the provider ---- */
#define NDK_CREATE_TAIL(Type) NDK_FN_CREATE_COMPLETION *CreateCompletion, PVOID RequestContext, Type **ppObject
#define NDK_REQUEST_TAIL NDK_FN_REQUEST_COMPLETION *RequestCompletion, PVOID RequestContext

typedef NTSTATUS NDK_FN_CLOSE_OBJECT(NDK_OBJECT_HEADER *pNdkObject, NDK_FN_CLOSE_COMPLETION *CloseCompletion, PVOID RequestContext);
typedef NTSTATUS NDK_FN_QUERY_EXTENSION_INTERFACE(NDK_OBJECT_HEADER *pNdkObject, const GUID *ExtensionInterfaceID, NDK_VERSION ExtensionInterfaceVersion, NDK_EXTENSION_INTERFACE *pExtensionInterface);

typedef NTSTATUS NDK_FN_QUERY_ADAPTER_INFO(NDK_ADAPTER *pNdkAdapter, NDK_ADAPTER_INFO *pInfo, ULONG *pBufferSize);
typedef NTSTATUS NDK_FN_CREATE_CQ(NDK_ADAPTER *pNdkAdapter, ULONG CqDepth, NDK_FN_CQ_NOTIFICATION_CALLBACK *CqNotification, PVOID CqNotificationContext, GROUP_AFFINITY *Affinity, NDK_CREATE_TAIL(NDK_CQ));
typedef NTSTATUS NDK_FN_CREATE_PD(NDK_ADAPTER *pNdkAdapter, NDK_CREATE_TAIL(NDK_PD));
typedef NTSTATUS NDK_FN_CREATE_SHARED_ENDPOINT(NDK_ADAPTER *pNdkAdapter, PCSOCKADDR pAddress, ULONG AddressLength, NDK_CREATE_TAIL(NDK_SHARED_ENDPOINT));
typedef NTSTATUS NDK_FN_CREATE_CONNECTOR(NDK_ADAPTER *pNdkAdapter, NDK_CREATE_TAIL(NDK_CONNECTOR));
typedef NTSTATUS NDK_FN_CREATE_LISTENER(NDK_ADAPTER *pNdkAdapter, NDK_FN_CONNECT_EVENT_CALLBACK *ConnectEvent, PVOID ConnectEventContext, NDK_CREATE_TAIL(NDK_LISTENER));
typedef NTSTATUS NDK_FN_BUILD_LAM(NDK_ADAPTER *pNdkAdapter, MDL *Mdl, SIZE_T Length, NDK_REQUEST_TAIL, NDK_LOGICAL_ADDRESS_MAPPING *pNdkLAM, ULONG *pLAMSize, ULONG *pFBO);
typedef VOID NDK_FN_RELEASE_LAM(NDK_ADAPTER *pNdkAdapter, NDK_LOGICAL_ADDRESS_MAPPING *pNdkLAM);

typedef NTSTATUS NDK_FN_CREATE_MR(NDK_PD *pNdkPd, BOOLEAN FastRegister, NDK_CREATE_TAIL(NDK_MR));
typedef NTSTATUS NDK_FN_CREATE_MW(NDK_PD *pNdkPd, NDK_CREATE_TAIL(NDK_MW));
typedef NTSTATUS NDK_FN_CREATE_SRQ(NDK_PD *pNdkPd, ULONG SrqDepth, ULONG MaxReceiveRequestSge, ULONG NotifyThreshold, NDK_FN_SRQ_NOTIFICATION_CALLBACK *SrqNotification, PVOID SrqNotificationContext, GROUP_AFFINITY *Affinity, NDK_CREATE_TAIL(NDK_SRQ));
typedef NTSTATUS NDK_FN_CREATE_QP(NDK_PD *pNdkPd, NDK_CQ *pReceiveCq, NDK_CQ *pInitiatorCq, PVOID QPContext, ULONG ReceiveQueueDepth, ULONG InitiatorQueueDepth, ULONG MaxReceiveRequestSge, ULONG MaxInitiatorRequestSge, ULONG InlineDataSize, NDK_CREATE_TAIL(NDK_QP));
typedef NTSTATUS NDK_FN_CREATE_QP_WITH_SRQ(NDK_PD *pNdkPd, NDK_CQ *pReceiveCq, NDK_CQ *pInitiatorCq, NDK_SRQ *pSrq, PVOID QPContext, ULONG InitiatorQueueDepth, ULONG MaxInitiatorRequestSge, ULONG InlineDataSize, NDK_CREATE_TAIL(NDK_QP));
typedef VOID NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN(NDK_PD *pNdkPd, UINT32 *pToken);

typedef NTSTATUS NDK_FN_RESIZE_CQ(NDK_CQ *pNdkCq, ULONG CqDepth, NDK_REQUEST_TAIL);
typedef VOID NDK_FN_ARM_CQ(NDK_CQ *pNdkCq, ULONG Type);
typedef ULONG NDK_FN_GET_CQ_RESULTS(NDK_CQ *pNdkCq, NDK_RESULT Results[], ULONG nResults);
typedef NTSTATUS NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION(NDK_CQ *pNdkCq, ULONG ModerationInterval, ULONG ModerationCount);
typedef ULONG NDK_FN_GET_CQ_RESULTS_EX(NDK_CQ *pNdkCq, NDK_RESULT_EX Results[], ULONG nResults);

typedef VOID NDK_FN_FLUSH(NDK_QP *pNdkQp);
typedef NTSTATUS NDK_FN_SEND(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl, ULONG nSge, ULONG Flags);
typedef NTSTATUS NDK_FN_RECEIVE(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl, ULONG nSge);
typedef NTSTATUS NDK_FN_BIND(NDK_QP *pNdkQp, PVOID RequestContext, NDK_MR *pMr, NDK_MW *pMw, PVOID VirtualAddress, SIZE_T Length, ULONG Flags);
typedef NTSTATUS NDK_FN_FAST_REGISTER(NDK_QP *pNdkQp, PVOID RequestContext, NDK_MR *pMr, ULONG AdapterPageCount, const NDK_LOGICAL_ADDRESS *AdapterPageArray, ULONG FBO, SIZE_T Length, PVOID BaseVirtualAddress, ULONG Flags);
typedef NTSTATUS NDK_FN_INVALIDATE(NDK_QP *pNdkQp, PVOID RequestContext, NDK_OBJECT_HEADER *pNdkMrOrMw, ULONG Flags);
typedef NTSTATUS NDK_FN_READ(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl, ULONG nSge, UINT64 RemoteAddress, UINT32 RemoteToken, ULONG Flags);
typedef NTSTATUS NDK_FN_WRITE(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl, ULONG nSge, UINT64 RemoteAddress, UINT32 RemoteToken, ULONG Flags);
typedef NTSTATUS NDK_FN_SEND_AND_INVALIDATE(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl, ULONG nSge, ULONG Flags, UINT32 RemoteToken);

typedef NTSTATUS NDK_FN_REGISTER_MR(NDK_MR *pNdkMr, MDL *Mdl, SIZE_T Length, ULONG Flags, NDK_REQUEST_TAIL);
typedef NTSTATUS NDK_FN_DEREGISTER_MR(NDK_MR *pNdkMr, NDK_REQUEST_TAIL);
typedef NTSTATUS NDK_FN_INITIALIZE_FAST_REGISTER_MR(NDK_MR *pNdkMr, ULONG AdapterPageCount, BOOLEAN RemoteAccess, NDK_REQUEST_TAIL);
typedef UINT32 NDK_FN_GET_REMOTE_TOKEN_FROM_MR(NDK_MR *pNdkMr);
typedef UINT32 NDK_FN_GET_LOCAL_TOKEN_FROM_MR(NDK_MR *pNdkMr);
typedef UINT32 NDK_FN_GET_REMOTE_TOKEN_FROM_MW(NDK_MW *pNdkMw);
typedef NTSTATUS NDK_FN_MODIFY_SRQ(NDK_SRQ *pNdkSrq, ULONG SrqDepth, ULONG NotifyThreshold, NDK_REQUEST_TAIL);
typedef NTSTATUS NDK_FN_SRQ_RECEIVE(NDK_SRQ *pNdkSrq, PVOID RequestContext, const NDK_SGE *pSgl, ULONG nSge);

typedef NTSTATUS NDK_FN_CONNECT(NDK_CONNECTOR *pNdkConnector, NDK_QP *pNdkQp, PCSOCKADDR pSrcAddress, ULONG SrcAddressLength, PCSOCKADDR pDestAddress, ULONG DestAddressLength, ULONG InboundReadLimit, ULONG OutboundReadLimit, const VOID *pPrivateData, ULONG PrivateDataLength, NDK_REQUEST_TAIL);
typedef NTSTATUS NDK_FN_CONNECT_WITH_SHARED_ENDPOINT(NDK_CONNECTOR *pNdkConnector, NDK_QP *pNdkQp, NDK_SHARED_ENDPOINT *pNdkSharedEndpoint, PCSOCKADDR pDestAddress, ULONG DestAddressLength, ULONG InboundReadLimit, ULONG OutboundReadLimit, const VOID *pPrivateData, ULONG PrivateDataLength, NDK_REQUEST_TAIL);
typedef NTSTATUS NDK_FN_COMPLETE_CONNECT(NDK_CONNECTOR *pNdkConnector, NDK_FN_DISCONNECT_EVENT_CALLBACK *DisconnectEvent, PVOID DisconnectEventContext, NDK_REQUEST_TAIL);
typedef NTSTATUS NDK_FN_COMPLETE_CONNECT_EX(NDK_CONNECTOR *pNdkConnector, NDK_FN_DISCONNECT_EVENT_CALLBACK_EX *DisconnectEvent, PVOID DisconnectEventContext, NDK_REQUEST_TAIL);
typedef NTSTATUS NDK_FN_ACCEPT(NDK_CONNECTOR *pNdkConnector, NDK_QP *pNdkQp, ULONG InboundReadLimit, ULONG OutboundReadLimit, const VOID *pPrivateData, ULONG PrivateDataLength, NDK_FN_DISCONNECT_EVENT_CALLBACK *DisconnectEvent, PVOID DisconnectEventContext, NDK_REQUEST_TAIL);
typedef NTSTATUS NDK_FN_ACCEPT_EX(NDK_CONNECTOR *pNdkConnector, NDK_QP *pNdkQp, ULONG InboundReadLimit, ULONG OutboundReadLimit, const VOID *pPrivateData, ULONG PrivateDataLength, NDK_FN_DISCONNECT_EVENT_CALLBACK_EX *DisconnectEvent, PVOID DisconnectEventContext, NDK_REQUEST_TAIL);
typedef NTSTATUS NDK_FN_REJECT(NDK_CONNECTOR *pNdkConnector, const VOID *pPrivateData, ULONG PrivateDataLength);
typedef NTSTATUS NDK_FN_GET_CONNECTION_DATA(NDK_CONNECTOR *pNdkConnector, ULONG *pInboundReadLimit, ULONG *pOutboundReadLimit, PVOID pPrivateData, ULONG *pPrivateDataLength);
typedef NTSTATUS NDK_FN_GET_LOCAL_ADDRESS(NDK_CONNECTOR *pNdkConnector, PSOCKADDR pAddress, ULONG *pAddressLength);
typedef NTSTATUS NDK_FN_GET_PEER_ADDRESS(NDK_CONNECTOR *pNdkConnector, PSOCKADDR pAddress, ULONG *pAddressLength);
typedef NTSTATUS NDK_FN_DISCONNECT(NDK_CONNECTOR *pNdkConnector, NDK_REQUEST_TAIL);
typedef NTSTATUS NDK_FN_LISTEN(NDK_LISTENER *pNdkListener, PCSOCKADDR pAddress, ULONG AddressLength, NDK_REQUEST_TAIL);
typedef NTSTATUS NDK_FN_GET_LISTENER_LOCAL_ADDRESS(NDK_LISTENER *pNdkListener, PSOCKADDR pAddress, ULONG *pAddressLength);
typedef VOID NDK_FN_CONTROL_CONNECT_EVENTS(NDK_LISTENER *pNdkListener, BOOLEAN Pause);
typedef NTSTATUS NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS(NDK_SHARED_ENDPOINT *pNdkSharedEndpoint, PSOCKADDR pAddress, ULONG *pAddressLength);

/* ---- dispatch tables: the order is the binary interface ---- */
struct NDK_ADAPTER_DISPATCH_T {
    NDK_FN_QUERY_EXTENSION_INTERFACE *NdkQueryExtension;
    NDK_FN_QUERY_ADAPTER_INFO *NdkQueryAdapterInfo;
    NDK_FN_CREATE_CQ *NdkCreateCq;
    NDK_FN_CREATE_PD *NdkCreatePd;
    NDK_FN_CREATE_SHARED_ENDPOINT *NdkCreateSharedEndpoint;
    NDK_FN_CREATE_CONNECTOR *NdkCreateConnector;
    NDK_FN_CREATE_LISTENER *NdkCreateListener;
    NDK_FN_BUILD_LAM *NdkBuildLAM;
    NDK_FN_RELEASE_LAM *NdkReleaseLAM;
};
struct NDK_PD_DISPATCH_T {
    NDK_FN_CLOSE_OBJECT *NdkClosePd;
    NDK_FN_QUERY_EXTENSION_INTERFACE *NdkQueryExtension;
    NDK_FN_CREATE_MR *NdkCreateMr;
    NDK_FN_CREATE_MW *NdkCreateMw;
    NDK_FN_CREATE_SRQ *NdkCreateSrq;
    NDK_FN_CREATE_QP *NdkCreateQp;
    NDK_FN_CREATE_QP_WITH_SRQ *NdkCreateQpWithSrq;
    NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN *NdkGetPrivilegedMemoryRegionToken;
};
struct NDK_CQ_DISPATCH_T {
    NDK_FN_CLOSE_OBJECT *NdkCloseCq;
    NDK_FN_QUERY_EXTENSION_INTERFACE *NdkQueryExtension;
    NDK_FN_RESIZE_CQ *NdkResizeCq;
    NDK_FN_ARM_CQ *NdkArmCq;
    NDK_FN_GET_CQ_RESULTS *NdkGetCqResults;
    NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION *NdkControlCqInterruptModeration;
    NDK_FN_GET_CQ_RESULTS_EX *NdkGetCqResultsEx;
};
struct NDK_QP_DISPATCH_T {
    NDK_FN_CLOSE_OBJECT *NdkCloseQp;
    NDK_FN_QUERY_EXTENSION_INTERFACE *NdkQueryExtension;
    NDK_FN_FLUSH *NdkFlush;
    NDK_FN_SEND *NdkSend;
    NDK_FN_RECEIVE *NdkReceive;
    NDK_FN_BIND *NdkBind;
    NDK_FN_FAST_REGISTER *NdkFastRegister;
    NDK_FN_INVALIDATE *NdkInvalidate;
    NDK_FN_READ *NdkRead;
    NDK_FN_WRITE *NdkWrite;
    NDK_FN_SEND_AND_INVALIDATE *NdkSendAndInvalidate;
};
struct NDK_MR_DISPATCH_T {
    NDK_FN_CLOSE_OBJECT *NdkCloseMr;
    NDK_FN_QUERY_EXTENSION_INTERFACE *NdkQueryExtension;
    NDK_FN_REGISTER_MR *NdkRegisterMr;
    NDK_FN_DEREGISTER_MR *NdkDeregisterMr;
    NDK_FN_INITIALIZE_FAST_REGISTER_MR *NdkInitializeFastRegisterMr;
    NDK_FN_GET_REMOTE_TOKEN_FROM_MR *NdkGetRemoteTokenFromMr;
    NDK_FN_GET_LOCAL_TOKEN_FROM_MR *NdkGetLocalTokenFromMr;
};
struct NDK_MW_DISPATCH_T {
    NDK_FN_CLOSE_OBJECT *NdkCloseMw;
    NDK_FN_QUERY_EXTENSION_INTERFACE *NdkQueryExtension;
    NDK_FN_GET_REMOTE_TOKEN_FROM_MW *NdkGetRemoteTokenFromMw;
};
struct NDK_SRQ_DISPATCH_T {
    NDK_FN_CLOSE_OBJECT *NdkCloseSrq;
    NDK_FN_QUERY_EXTENSION_INTERFACE *NdkQueryExtension;
    NDK_FN_MODIFY_SRQ *NdkModifySrq;
    NDK_FN_SRQ_RECEIVE *NdkSrqReceive;
};
struct NDK_CONNECTOR_DISPATCH_T {
    NDK_FN_CLOSE_OBJECT *NdkCloseConnector;
    NDK_FN_QUERY_EXTENSION_INTERFACE *NdkQueryExtension;
    NDK_FN_CONNECT *NdkConnect;
    NDK_FN_CONNECT_WITH_SHARED_ENDPOINT *NdkConnectWithSharedEndpoint;
    NDK_FN_COMPLETE_CONNECT *NdkCompleteConnect;
    NDK_FN_ACCEPT *NdkAccept;
    NDK_FN_REJECT *NdkReject;
    NDK_FN_GET_CONNECTION_DATA *NdkGetConnectionData;
    NDK_FN_GET_LOCAL_ADDRESS *NdkGetLocalAddress;
    NDK_FN_GET_PEER_ADDRESS *NdkGetPeerAddress;
    NDK_FN_DISCONNECT *NdkDisconnect;
    NDK_FN_COMPLETE_CONNECT_EX *NdkCompleteConnectEx; /* 2.1 */
    NDK_FN_ACCEPT_EX *NdkAcceptEx;                    /* 2.1 */
};
struct NDK_LISTENER_DISPATCH_T {
    NDK_FN_CLOSE_OBJECT *NdkCloseListener;
    NDK_FN_QUERY_EXTENSION_INTERFACE *NdkQueryExtension;
    NDK_FN_LISTEN *NdkListen;
    NDK_FN_GET_LISTENER_LOCAL_ADDRESS *NdkGetLocalAddress;
    NDK_FN_CONTROL_CONNECT_EVENTS *NdkControlConnectEvents;
};
struct NDK_SHARED_ENDPOINT_DISPATCH_T {
    NDK_FN_CLOSE_OBJECT *NdkCloseSharedEndpoint;
    NDK_FN_QUERY_EXTENSION_INTERFACE *NdkQueryExtension;
    NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS *NdkGetLocalAddress;
};

/* ---- how the original opens and closes adapters: laid out, not used here ---- */
typedef int32_t NDIS_STATUS;
typedef PVOID NDIS_HANDLE;
typedef struct {
    NDK_VERSION Version;
    ULONG SwitchId, VPortId; /* from NDIS 6.50 on */
} NDIS_OPEN_NDK_ADAPTER_PARAMETERS;
typedef NDIS_STATUS (OPEN_NDK_ADAPTER_HANDLER)(NDIS_HANDLE MiniportAdapterContext, NDIS_OPEN_NDK_ADAPTER_PARAMETERS *Parameters, NDK_ADAPTER **ppNdkAdapter);
typedef VOID (CLOSE_NDK_ADAPTER_HANDLER)(NDIS_HANDLE MiniportAdapterContext, NDK_ADAPTER *pNdkAdapter);
typedef struct { uint8_t Type, Revision; USHORT Size; } NDIS_OBJECT_HEADER;
typedef struct {
    NDIS_OBJECT_HEADER Header; /* Type 0xB2, Revision 1 */
    ULONG Flags;               /* 0 */
    OPEN_NDK_ADAPTER_HANDLER *OpenNDKAdapterHandler;
    CLOSE_NDK_ADAPTER_HANDLER *CloseNDKAdapterHandler;
} NDIS_NDK_PROVIDER_CHARACTERISTICS;
typedef struct {
    NDIS_OBJECT_HEADER Header;
    ULONG Flags;
    ULONG MaxQpCount, MaxCqCount, MaxMrCount, MaxPdCount;
    ULONG MaxInboundReadLimit, MaxOutboundReadLimit; /* 0: no limit of the adapter's */
    ULONG MaxMwCount, MaxSrqCount;
    UINT64 MissingCounterMask;
    NDK_ADAPTER_INFO *NdkInfo;
} NDIS_NDK_CAPABILITIES;
typedef struct {
    NTSTATUS (*WskOpenNdkAdapter)(PVOID Client, NDK_VERSION Version, ULONG IfIndex, NDK_ADAPTER **ppNdkAdapter);
    VOID (*WskCloseNdkAdapter)(PVOID Client, NDK_ADAPTER *pNdkAdapter);
} WSK_PROVIDER_NDK_DISPATCH;

/* ---- open and close: the only exported functions beside the MDL's; both may block ---- */

/* When completions arrive: the interface permits all of these, and consumers are tested by forcing
 * each one. */
#define NDK_COMPLETE_NATURALLY 0
#define NDK_COMPLETE_NESTED 1       /* inside the call, on the calling thread */
#define NDK_COMPLETE_OTHER_THREAD 2 /* on another thread, before the call returns */
#define NDK_COMPLETE_AFTER_RETURN 3 /* after the call has returned */

typedef struct {
    ULONG CompletionMode;   /* NDK_COMPLETE_* */
    BOOLEAN ReadSinkNeeded; /* clear RDMA_READ_SINK_NOT_REQUIRED: sinks need RDMA_READ_SINK */
    ULONG MaxRegistrations; /* more at a time are STATUS_INSUFFICIENT_RESOURCES; 0: no limit */
} NDK_OPEN_OPTIONS;

/* Version.Minor is the lowest that will do. pAddress: the adapter's address, IPv4 or IPv6.
 * pOptions may be NULL. */
NTSTATUS NdkOpenAdapter(NDK_VERSION Version, PCSOCKADDR pAddress, ULONG AddressLength, const NDK_OPEN_OPTIONS *pOptions, NDK_ADAPTER **ppNdkAdapter);
/* Waits until every object of the adapter is closed and every callback has returned. */
VOID NdkCloseAdapter(NDK_ADAPTER *pNdkAdapter);

/* The record of a refusal that a completion's ProviderErrorCode names, as a sentence of at most
 * Capacity bytes with its NUL. Returns the bytes it has (0: no such record). */
SIZE_T NdkExplain(NDK_ADAPTER *pNdkAdapter, ULONG ProviderErrorCode, char *pText, SIZE_T Capacity);
/* Give a region or window a name, for messages and for `transom show`: the first 31 bytes of a UTF-8
 * text. Token: of NdkGetLocalTokenFromMr, NdkGetRemoteTokenFromMr or NdkGetRemoteTokenFromMw.
 * STATUS_INVALID_PARAMETER: the token names nothing that is open. */
NTSTATUS NdkName(NDK_ADAPTER *pNdkAdapter, UINT32 Token, const char *pName);

#ifdef __cplusplus
}
#endif
#endif
