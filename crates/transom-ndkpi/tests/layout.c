/* The layout of ndkpi.h, held by the compiler: structures and values of NDK 4, tables of NDK 5; and of
 * ndkkernel.h. */
#include "ndkkernel.h"

#ifdef __cplusplus
#define HOLDS(fact) static_assert(fact, #fact)
#else
#define HOLDS(fact) _Static_assert(fact, #fact)
#endif
#define AT(type, member, offset) HOLDS(offsetof(type, member) == (offset))
#define SLOT(table, entry, index) AT(table, entry, (index) * sizeof(void *))
#define SLOTS(table, count) HOLDS(sizeof(table) == (count) * sizeof(void *))

/* NDK 0.2, 4.1: 64-bit */
HOLDS(sizeof(ULONG) == 4 && sizeof(USHORT) == 2 && sizeof(BOOLEAN) == 1 && sizeof(NTSTATUS) == 4);
HOLDS(sizeof(GUID) == 16 && sizeof(GROUP_AFFINITY) == 16 && sizeof(NDK_VERSION) == 4);
HOLDS(sizeof(NDK_OBJECT_HEADER) == 40 && sizeof(NDK_OBJECT_HEADER_RESERVED_BLOCK) == 32);
AT(NDK_OBJECT_HEADER, ObjectType, 4);
AT(NDK_OBJECT_HEADER, NdkReserved, 8);
HOLDS(sizeof(NDK_RESULT) == 24);
AT(NDK_RESULT, BytesTransferred, 4);
AT(NDK_RESULT, QPContext, 8);
AT(NDK_RESULT, RequestContext, 16);
HOLDS(sizeof(NDK_RESULT_EX) == 40);
AT(NDK_RESULT_EX, Type, 24);
AT(NDK_RESULT_EX, ProviderErrorCode, 28);
AT(NDK_RESULT_EX, TypeSpecificCompletionOutput, 32);
HOLDS(sizeof(NDK_SGE) == 16);
AT(NDK_SGE, Length, 8);
AT(NDK_SGE, MemoryRegionToken, 12);
HOLDS(sizeof(NDK_LOGICAL_ADDRESS) == 8 && sizeof(NDK_LOGICAL_ADDRESS_MAPPING) == 24);
AT(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageCount, 8);
AT(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray, 16);
HOLDS(sizeof(NDK_EXTENSION_INTERFACE) == sizeof(void *));
HOLDS(sizeof(NDK_ADAPTER_INFO) == 104);
AT(NDK_ADAPTER_INFO, VendorId, 4);
AT(NDK_ADAPTER_INFO, DeviceId, 8);
AT(NDK_ADAPTER_INFO, MaxRegistrationSize, 16);
AT(NDK_ADAPTER_INFO, MaxWindowSize, 24);
AT(NDK_ADAPTER_INFO, FRMRPageCount, 32);
AT(NDK_ADAPTER_INFO, MaxInitiatorRequestSge, 36);
AT(NDK_ADAPTER_INFO, MaxReceiveRequestSge, 40);
AT(NDK_ADAPTER_INFO, MaxReadRequestSge, 44);
AT(NDK_ADAPTER_INFO, MaxTransferLength, 48);
AT(NDK_ADAPTER_INFO, MaxInlineDataSize, 52);
AT(NDK_ADAPTER_INFO, MaxInboundReadLimit, 56);
AT(NDK_ADAPTER_INFO, MaxOutboundReadLimit, 60);
AT(NDK_ADAPTER_INFO, MaxReceiveQueueDepth, 64);
AT(NDK_ADAPTER_INFO, MaxInitiatorQueueDepth, 68);
AT(NDK_ADAPTER_INFO, MaxSrqDepth, 72);
AT(NDK_ADAPTER_INFO, MaxCqDepth, 76);
AT(NDK_ADAPTER_INFO, LargeRequestThreshold, 80);
AT(NDK_ADAPTER_INFO, MaxCallerData, 84);
AT(NDK_ADAPTER_INFO, MaxCalleeData, 88);
AT(NDK_ADAPTER_INFO, AdapterFlags, 92);
AT(NDK_ADAPTER_INFO, RdmaTechnology, 96);

/* NDK 4.3 */
HOLDS(sizeof(MDL) == 48);
AT(MDL, Size, 8);
AT(MDL, MdlFlags, 10);
AT(MDL, MappedSystemVa, 24);
AT(MDL, StartVa, 32);
AT(MDL, ByteCount, 40);
AT(MDL, ByteOffset, 44);

/* NDK 2.1, 4.2 */
HOLDS(NdkObjectTypeAdapter == 1 && NdkObjectTypeQp == 2 && NdkObjectTypeCq == 3);
HOLDS(NdkObjectTypeMr == 4 && NdkObjectTypeMw == 5 && NdkObjectTypePd == 6);
HOLDS(NdkObjectTypeSharedEndpoint == 7 && NdkObjectTypeConnector == 8 && NdkObjectTypeListener == 9);
HOLDS(NdkObjectTypeSrq == 10 && NdkObjectTypeMax == 11);
HOLDS(NdkiWarp == 1 && NdkInfiniBand == 2 && NdkRoCE == 3 && NdkRoCEv2 == 4 && NdkMaxTechnology == 5);
HOLDS(NDK_MR_FLAG_ALLOW_LOCAL_WRITE == 1 && NDK_MR_FLAG_ALLOW_REMOTE_READ == 2);
HOLDS(NDK_MR_FLAG_ALLOW_REMOTE_WRITE == 5 && NDK_MR_FLAG_RDMA_READ_SINK == 8);
HOLDS(NDK_OP_FLAG_ALLOW_REMOTE_READ == 0x8 && NDK_OP_FLAG_ALLOW_LOCAL_WRITE == 0x10);
HOLDS(NDK_OP_FLAG_ALLOW_REMOTE_WRITE == 0x30 && NDK_OP_FLAG_INLINE == 0x40);
HOLDS(NDK_OP_FLAG_RDMA_READ_SINK == 0x80 && NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE == 0x100);
HOLDS(NDK_OP_FLAG_DEFER == 0x200);
HOLDS(NDK_CQ_NOTIFY_ERRORS == 0 && NDK_CQ_NOTIFY_ANY == 1 && NDK_CQ_NOTIFY_SOLICITED == 2);
HOLDS(NdkOperationTypeReceive == 1 && NdkOperationTypeSend == 2 && NdkOperationTypeFastRegister == 4);
HOLDS(NdkOperationTypeBind == 8 && NdkOperationTypeInvalidate == 16 && NdkOperationTypeRead == 32);
HOLDS(NdkOperationTypeWrite == 64 && NdkOperationTypeReceiveAndInvalidate == 0x8001);

/* NDK 4.1, open and close; NDK 15 */
HOLDS(sizeof(NDIS_OPEN_NDK_ADAPTER_PARAMETERS) == 12);
AT(NDIS_OPEN_NDK_ADAPTER_PARAMETERS, SwitchId, 4);
AT(NDIS_OPEN_NDK_ADAPTER_PARAMETERS, VPortId, 8);
HOLDS(sizeof(NDIS_NDK_CAPABILITIES) == 56);
AT(NDIS_NDK_CAPABILITIES, MissingCounterMask, 40);
AT(NDIS_NDK_CAPABILITIES, NdkInfo, 48);
SLOTS(WSK_PROVIDER_NDK_DISPATCH, 2);

/* NDK 5 */
AT(NDK_ADAPTER, Dispatch, 40);
SLOTS(NDK_ADAPTER_DISPATCH, 9);
SLOT(NDK_ADAPTER_DISPATCH, NdkQueryExtension, 0);
SLOT(NDK_ADAPTER_DISPATCH, NdkQueryAdapterInfo, 1);
SLOT(NDK_ADAPTER_DISPATCH, NdkCreateCq, 2);
SLOT(NDK_ADAPTER_DISPATCH, NdkCreatePd, 3);
SLOT(NDK_ADAPTER_DISPATCH, NdkCreateSharedEndpoint, 4);
SLOT(NDK_ADAPTER_DISPATCH, NdkCreateConnector, 5);
SLOT(NDK_ADAPTER_DISPATCH, NdkCreateListener, 6);
SLOT(NDK_ADAPTER_DISPATCH, NdkBuildLAM, 7);
SLOT(NDK_ADAPTER_DISPATCH, NdkReleaseLAM, 8);
AT(NDK_PD, Dispatch, 40);
SLOTS(NDK_PD_DISPATCH, 8);
SLOT(NDK_PD_DISPATCH, NdkClosePd, 0);
SLOT(NDK_PD_DISPATCH, NdkQueryExtension, 1);
SLOT(NDK_PD_DISPATCH, NdkCreateMr, 2);
SLOT(NDK_PD_DISPATCH, NdkCreateMw, 3);
SLOT(NDK_PD_DISPATCH, NdkCreateSrq, 4);
SLOT(NDK_PD_DISPATCH, NdkCreateQp, 5);
SLOT(NDK_PD_DISPATCH, NdkCreateQpWithSrq, 6);
SLOT(NDK_PD_DISPATCH, NdkGetPrivilegedMemoryRegionToken, 7);
AT(NDK_CQ, Dispatch, 40);
SLOTS(NDK_CQ_DISPATCH, 7);
SLOT(NDK_CQ_DISPATCH, NdkCloseCq, 0);
SLOT(NDK_CQ_DISPATCH, NdkQueryExtension, 1);
SLOT(NDK_CQ_DISPATCH, NdkResizeCq, 2);
SLOT(NDK_CQ_DISPATCH, NdkArmCq, 3);
SLOT(NDK_CQ_DISPATCH, NdkGetCqResults, 4);
SLOT(NDK_CQ_DISPATCH, NdkControlCqInterruptModeration, 5);
SLOT(NDK_CQ_DISPATCH, NdkGetCqResultsEx, 6);
AT(NDK_QP, Dispatch, 40);
SLOTS(NDK_QP_DISPATCH, 11);
SLOT(NDK_QP_DISPATCH, NdkCloseQp, 0);
SLOT(NDK_QP_DISPATCH, NdkQueryExtension, 1);
SLOT(NDK_QP_DISPATCH, NdkFlush, 2);
SLOT(NDK_QP_DISPATCH, NdkSend, 3);
SLOT(NDK_QP_DISPATCH, NdkReceive, 4);
SLOT(NDK_QP_DISPATCH, NdkBind, 5);
SLOT(NDK_QP_DISPATCH, NdkFastRegister, 6);
SLOT(NDK_QP_DISPATCH, NdkInvalidate, 7);
SLOT(NDK_QP_DISPATCH, NdkRead, 8);
SLOT(NDK_QP_DISPATCH, NdkWrite, 9);
SLOT(NDK_QP_DISPATCH, NdkSendAndInvalidate, 10);
AT(NDK_MR, Dispatch, 40);
SLOTS(NDK_MR_DISPATCH, 7);
SLOT(NDK_MR_DISPATCH, NdkCloseMr, 0);
SLOT(NDK_MR_DISPATCH, NdkQueryExtension, 1);
SLOT(NDK_MR_DISPATCH, NdkRegisterMr, 2);
SLOT(NDK_MR_DISPATCH, NdkDeregisterMr, 3);
SLOT(NDK_MR_DISPATCH, NdkInitializeFastRegisterMr, 4);
SLOT(NDK_MR_DISPATCH, NdkGetRemoteTokenFromMr, 5);
SLOT(NDK_MR_DISPATCH, NdkGetLocalTokenFromMr, 6);
AT(NDK_MW, Dispatch, 40);
SLOTS(NDK_MW_DISPATCH, 3);
SLOT(NDK_MW_DISPATCH, NdkCloseMw, 0);
SLOT(NDK_MW_DISPATCH, NdkQueryExtension, 1);
SLOT(NDK_MW_DISPATCH, NdkGetRemoteTokenFromMw, 2);
AT(NDK_SRQ, Dispatch, 40);
SLOTS(NDK_SRQ_DISPATCH, 4);
SLOT(NDK_SRQ_DISPATCH, NdkCloseSrq, 0);
SLOT(NDK_SRQ_DISPATCH, NdkQueryExtension, 1);
SLOT(NDK_SRQ_DISPATCH, NdkModifySrq, 2);
SLOT(NDK_SRQ_DISPATCH, NdkSrqReceive, 3);
AT(NDK_CONNECTOR, Dispatch, 40);
SLOTS(NDK_CONNECTOR_DISPATCH, 13);
SLOT(NDK_CONNECTOR_DISPATCH, NdkCloseConnector, 0);
SLOT(NDK_CONNECTOR_DISPATCH, NdkQueryExtension, 1);
SLOT(NDK_CONNECTOR_DISPATCH, NdkConnect, 2);
SLOT(NDK_CONNECTOR_DISPATCH, NdkConnectWithSharedEndpoint, 3);
SLOT(NDK_CONNECTOR_DISPATCH, NdkCompleteConnect, 4);
SLOT(NDK_CONNECTOR_DISPATCH, NdkAccept, 5);
SLOT(NDK_CONNECTOR_DISPATCH, NdkReject, 6);
SLOT(NDK_CONNECTOR_DISPATCH, NdkGetConnectionData, 7);
SLOT(NDK_CONNECTOR_DISPATCH, NdkGetLocalAddress, 8);
SLOT(NDK_CONNECTOR_DISPATCH, NdkGetPeerAddress, 9);
SLOT(NDK_CONNECTOR_DISPATCH, NdkDisconnect, 10);
SLOT(NDK_CONNECTOR_DISPATCH, NdkCompleteConnectEx, 11);
SLOT(NDK_CONNECTOR_DISPATCH, NdkAcceptEx, 12);
AT(NDK_LISTENER, Dispatch, 40);
SLOTS(NDK_LISTENER_DISPATCH, 5);
SLOT(NDK_LISTENER_DISPATCH, NdkCloseListener, 0);
SLOT(NDK_LISTENER_DISPATCH, NdkQueryExtension, 1);
SLOT(NDK_LISTENER_DISPATCH, NdkListen, 2);
SLOT(NDK_LISTENER_DISPATCH, NdkGetLocalAddress, 3);
SLOT(NDK_LISTENER_DISPATCH, NdkControlConnectEvents, 4);
AT(NDK_SHARED_ENDPOINT, Dispatch, 40);
SLOTS(NDK_SHARED_ENDPOINT_DISPATCH, 3);
SLOT(NDK_SHARED_ENDPOINT_DISPATCH, NdkCloseSharedEndpoint, 0);
SLOT(NDK_SHARED_ENDPOINT_DISPATCH, NdkQueryExtension, 1);
SLOT(NDK_SHARED_ENDPOINT_DISPATCH, NdkGetLocalAddress, 2);

/* ndkkernel.h: what the library has behind these names fits, and the values are the original's. */
HOLDS(sizeof(LARGE_INTEGER) == 8 && sizeof(KSPIN_LOCK) == sizeof(void *) && sizeof(KIRQL) == 1);
HOLDS(sizeof(KEVENT) == 32 && sizeof(KPROCESSOR_MODE) == 1);
AT(LARGE_INTEGER, HighPart, 4);
HOLDS(IoReadAccess == 0 && IoWriteAccess == 1 && IoModifyAccess == 2);
HOLDS(NotificationEvent == 0 && SynchronizationEvent == 1 && Executive == 0 && UserRequest == 6);
HOLDS(KernelMode == 0 && UserMode == 1 && PASSIVE_LEVEL == 0 && DISPATCH_LEVEL == 2);
HOLDS(CriticalWorkQueue == 0 && DelayedWorkQueue == 1 && HyperCriticalWorkQueue == 2);
HOLDS(STATUS_TIMEOUT == 0x102 && MDL_PAGES_LOCKED == 2);
