// The headers against the library: sizes, offsets, slots, identifiers, values (ND2 2, 3; ND1 2, 3).
#include "nd_test.h"

#include <map>
#include <string>

// Facts that hold whatever the library says.
static_assert(sizeof(ND2_ADAPTER_INFO) == 96 && sizeof(ND2_RESULT) == 32 && sizeof(ND2_SGE) == 16, "ND2 3.3, 3.4");
static_assert(offsetof(ND2_ADAPTER_INFO, AdapterFlags) == 92 && offsetof(ND2_ADAPTER_INFO, MaxWindowSize) == 24, "ND2 3.3");
static_assert(offsetof(ND2_RESULT, RequestContext) == 16 && offsetof(ND2_RESULT, RequestType) == 24, "ND2 3.4");
static_assert(sizeof(ND_ADAPTER_INFO) == 128 && sizeof(ND_RESULT) == 16 && sizeof(ND_SGE) == 24, "ND1 T2");
static_assert(sizeof(ND_MW_DESCRIPTOR) == 20 && alignof(ND_MW_DESCRIPTOR) == 1, "ND1 T2");
static_assert(sizeof(OVERLAPPED) == 32 && sizeof(SOCKET_ADDRESS) == 16 && offsetof(SOCKET_ADDRESS_LIST, Address) == 8, "ND2 3.7");
static_assert(sizeof(GROUP_AFFINITY) == 16 && sizeof(SOCKADDR_INET) == 28 && sizeof(GUID) == 16, "ND2 3.7");
static_assert(ND_MR_FLAG_ALLOW_REMOTE_WRITE == 5 && ND_MR_FLAG_RDMA_READ_SINK == 8 && ND_OP_FLAG_INLINE == 0x20, "ND2 3.2");
static_assert(Nd2RequestTypeReceive == 0 && Nd2RequestTypeWrite == 5, "ND2 3.2");
static_assert(ND_LOCAL_LENGTH == ND_DATA_OVERRUN && ND_INVALIDATION_ERROR == ND_INVALID_DEVICE_REQUEST, "ND1 4.2");

static std::map<std::string, UINT64> ours;

// A pointer to a virtual method is 1 + 8 * slot (Itanium C++ ABI).
template <class M> UINT64 slot(M method)
{
    UINT64 words[2] = {};
    static_assert(sizeof method == sizeof words, "two words");
    std::memcpy(words, &method, sizeof words);
    return (words[0] - 1) / 8;
}
static void guid(const char *name, REFGUID value)
{
    UINT64 words[2];
    std::memcpy(words, &value, sizeof words);
    ours[std::string("guid ") + name + " 1"] = words[0];
    ours[std::string("guid ") + name + " 2"] = words[1];
}
#define SIZE(t) ours["sizeof " #t] = sizeof(t)
#define OFFSET(t, m) ours["offsetof " #t "." #m] = offsetof(t, m)
#define SLOT(i, m) ours["slot " #i "." #m] = slot(&i::m)
#define GUID_OF(i) guid("IID_" #i, IID_##i)
#define VALUE(v) ours[#v] = (UINT32)(v)

int main()
{
    SIZE(ND2_ADAPTER_INFO);
    OFFSET(ND2_ADAPTER_INFO, InfoVersion);
    OFFSET(ND2_ADAPTER_INFO, VendorId);
    OFFSET(ND2_ADAPTER_INFO, DeviceId);
    OFFSET(ND2_ADAPTER_INFO, AdapterId);
    OFFSET(ND2_ADAPTER_INFO, MaxRegistrationSize);
    OFFSET(ND2_ADAPTER_INFO, MaxWindowSize);
    OFFSET(ND2_ADAPTER_INFO, MaxInitiatorSge);
    OFFSET(ND2_ADAPTER_INFO, MaxReceiveSge);
    OFFSET(ND2_ADAPTER_INFO, MaxReadSge);
    OFFSET(ND2_ADAPTER_INFO, MaxTransferLength);
    OFFSET(ND2_ADAPTER_INFO, MaxInlineDataSize);
    OFFSET(ND2_ADAPTER_INFO, MaxInboundReadLimit);
    OFFSET(ND2_ADAPTER_INFO, MaxOutboundReadLimit);
    OFFSET(ND2_ADAPTER_INFO, MaxReceiveQueueDepth);
    OFFSET(ND2_ADAPTER_INFO, MaxInitiatorQueueDepth);
    OFFSET(ND2_ADAPTER_INFO, MaxSharedReceiveQueueDepth);
    OFFSET(ND2_ADAPTER_INFO, MaxCompletionQueueDepth);
    OFFSET(ND2_ADAPTER_INFO, InlineRequestThreshold);
    OFFSET(ND2_ADAPTER_INFO, LargeRequestThreshold);
    OFFSET(ND2_ADAPTER_INFO, MaxCallerData);
    OFFSET(ND2_ADAPTER_INFO, MaxCalleeData);
    OFFSET(ND2_ADAPTER_INFO, AdapterFlags);
    SIZE(ND2_RESULT);
    OFFSET(ND2_RESULT, Status);
    OFFSET(ND2_RESULT, BytesTransferred);
    OFFSET(ND2_RESULT, QueuePairContext);
    OFFSET(ND2_RESULT, RequestContext);
    OFFSET(ND2_RESULT, RequestType);
    SIZE(ND2_SGE);
    OFFSET(ND2_SGE, Buffer);
    OFFSET(ND2_SGE, BufferLength);
    OFFSET(ND2_SGE, MemoryRegionToken);
    SIZE(ND_ADAPTER_INFO);
    OFFSET(ND_ADAPTER_INFO, VendorId);
    OFFSET(ND_ADAPTER_INFO, DeviceId);
    OFFSET(ND_ADAPTER_INFO, MaxInboundSge);
    OFFSET(ND_ADAPTER_INFO, MaxInboundRequests);
    OFFSET(ND_ADAPTER_INFO, MaxInboundLength);
    OFFSET(ND_ADAPTER_INFO, MaxOutboundSge);
    OFFSET(ND_ADAPTER_INFO, MaxOutboundRequests);
    OFFSET(ND_ADAPTER_INFO, MaxOutboundLength);
    OFFSET(ND_ADAPTER_INFO, MaxInlineData);
    OFFSET(ND_ADAPTER_INFO, MaxInboundReadLimit);
    OFFSET(ND_ADAPTER_INFO, MaxOutboundReadLimit);
    OFFSET(ND_ADAPTER_INFO, MaxCqEntries);
    OFFSET(ND_ADAPTER_INFO, MaxRegistrationSize);
    OFFSET(ND_ADAPTER_INFO, MaxWindowSize);
    OFFSET(ND_ADAPTER_INFO, LargeRequestThreshold);
    OFFSET(ND_ADAPTER_INFO, MaxCallerData);
    OFFSET(ND_ADAPTER_INFO, MaxCalleeData);
    SIZE(ND_RESULT);
    OFFSET(ND_RESULT, Status);
    OFFSET(ND_RESULT, BytesTransferred);
    SIZE(ND_SGE);
    OFFSET(ND_SGE, pAddr);
    OFFSET(ND_SGE, Length);
    OFFSET(ND_SGE, hMr);
    SIZE(ND_MW_DESCRIPTOR);
    OFFSET(ND_MW_DESCRIPTOR, Base);
    OFFSET(ND_MW_DESCRIPTOR, Length);
    OFFSET(ND_MW_DESCRIPTOR, Token);
    GUID_OF(IND2Overlapped);
    GUID_OF(IND2CompletionQueue);
    SLOT(IND2CompletionQueue, CancelOverlappedRequests);
    SLOT(IND2CompletionQueue, GetOverlappedResult);
    SLOT(IND2CompletionQueue, GetNotifyAffinity);
    SLOT(IND2CompletionQueue, Resize);
    SLOT(IND2CompletionQueue, Notify);
    SLOT(IND2CompletionQueue, GetResults);
    GUID_OF(IND2SharedReceiveQueue);
    SLOT(IND2SharedReceiveQueue, CancelOverlappedRequests);
    SLOT(IND2SharedReceiveQueue, GetOverlappedResult);
    SLOT(IND2SharedReceiveQueue, GetNotifyAffinity);
    SLOT(IND2SharedReceiveQueue, Modify);
    SLOT(IND2SharedReceiveQueue, Notify);
    SLOT(IND2SharedReceiveQueue, Receive);
    GUID_OF(IND2MemoryWindow);
    SLOT(IND2MemoryWindow, GetRemoteToken);
    GUID_OF(IND2MemoryRegion);
    SLOT(IND2MemoryRegion, CancelOverlappedRequests);
    SLOT(IND2MemoryRegion, GetOverlappedResult);
    SLOT(IND2MemoryRegion, Register);
    SLOT(IND2MemoryRegion, Deregister);
    SLOT(IND2MemoryRegion, GetLocalToken);
    SLOT(IND2MemoryRegion, GetRemoteToken);
    GUID_OF(IND2QueuePair);
    SLOT(IND2QueuePair, Flush);
    SLOT(IND2QueuePair, Send);
    SLOT(IND2QueuePair, Receive);
    SLOT(IND2QueuePair, Bind);
    SLOT(IND2QueuePair, Invalidate);
    SLOT(IND2QueuePair, Read);
    SLOT(IND2QueuePair, Write);
    GUID_OF(IND2Connector);
    SLOT(IND2Connector, CancelOverlappedRequests);
    SLOT(IND2Connector, GetOverlappedResult);
    SLOT(IND2Connector, Bind);
    SLOT(IND2Connector, Connect);
    SLOT(IND2Connector, CompleteConnect);
    SLOT(IND2Connector, Accept);
    SLOT(IND2Connector, Reject);
    SLOT(IND2Connector, GetReadLimits);
    SLOT(IND2Connector, GetPrivateData);
    SLOT(IND2Connector, GetLocalAddress);
    SLOT(IND2Connector, GetPeerAddress);
    SLOT(IND2Connector, NotifyDisconnect);
    SLOT(IND2Connector, Disconnect);
    GUID_OF(IND2Listener);
    SLOT(IND2Listener, CancelOverlappedRequests);
    SLOT(IND2Listener, GetOverlappedResult);
    SLOT(IND2Listener, Bind);
    SLOT(IND2Listener, Listen);
    SLOT(IND2Listener, GetLocalAddress);
    SLOT(IND2Listener, GetConnectionRequest);
    GUID_OF(IND2Adapter);
    SLOT(IND2Adapter, CreateOverlappedFile);
    SLOT(IND2Adapter, Query);
    SLOT(IND2Adapter, QueryAddressList);
    SLOT(IND2Adapter, CreateCompletionQueue);
    SLOT(IND2Adapter, CreateMemoryRegion);
    SLOT(IND2Adapter, CreateMemoryWindow);
    SLOT(IND2Adapter, CreateSharedReceiveQueue);
    SLOT(IND2Adapter, CreateQueuePair);
    SLOT(IND2Adapter, CreateQueuePairWithSrq);
    SLOT(IND2Adapter, CreateConnector);
    SLOT(IND2Adapter, CreateListener);
    GUID_OF(IND2Provider);
    SLOT(IND2Provider, QueryAddressList);
    SLOT(IND2Provider, ResolveAddress);
    SLOT(IND2Provider, OpenAdapter);
    GUID_OF(INDOverlapped);
    GUID_OF(INDCompletionQueue);
    SLOT(INDCompletionQueue, CancelOverlappedRequests);
    SLOT(INDCompletionQueue, GetOverlappedResult);
    SLOT(INDCompletionQueue, Resize);
    SLOT(INDCompletionQueue, Notify);
    SLOT(INDCompletionQueue, GetResults);
    GUID_OF(INDMemoryWindow);
    GUID_OF(INDEndpoint);
    SLOT(INDEndpoint, Flush);
    SLOT(INDEndpoint, StartRequestBatch);
    SLOT(INDEndpoint, SubmitRequestBatch);
    SLOT(INDEndpoint, Send);
    SLOT(INDEndpoint, SendAndInvalidate);
    SLOT(INDEndpoint, Receive);
    SLOT(INDEndpoint, Bind);
    SLOT(INDEndpoint, Invalidate);
    SLOT(INDEndpoint, Read);
    SLOT(INDEndpoint, Write);
    GUID_OF(INDConnector);
    SLOT(INDConnector, CancelOverlappedRequests);
    SLOT(INDConnector, GetOverlappedResult);
    SLOT(INDConnector, CreateEndpoint);
    SLOT(INDConnector, Connect);
    SLOT(INDConnector, CompleteConnect);
    SLOT(INDConnector, Accept);
    SLOT(INDConnector, Reject);
    SLOT(INDConnector, GetConnectionData);
    SLOT(INDConnector, GetLocalAddress);
    SLOT(INDConnector, GetPeerAddress);
    SLOT(INDConnector, NotifyDisconnect);
    SLOT(INDConnector, Disconnect);
    GUID_OF(INDListen);
    SLOT(INDListen, CancelOverlappedRequests);
    SLOT(INDListen, GetOverlappedResult);
    SLOT(INDListen, GetConnectionRequest);
    GUID_OF(INDAdapter);
    SLOT(INDAdapter, CancelOverlappedRequests);
    SLOT(INDAdapter, GetOverlappedResult);
    SLOT(INDAdapter, GetFileHandle);
    SLOT(INDAdapter, Query);
    SLOT(INDAdapter, Control);
    SLOT(INDAdapter, CreateCompletionQueue);
    SLOT(INDAdapter, RegisterMemory);
    SLOT(INDAdapter, DeregisterMemory);
    SLOT(INDAdapter, CreateMemoryWindow);
    SLOT(INDAdapter, CreateConnector);
    SLOT(INDAdapter, Listen);
    GUID_OF(INDProvider);
    SLOT(INDProvider, QueryAddressList);
    SLOT(INDProvider, OpenAdapter);
    GUID_OF(IUnknown);
    GUID_OF(IClassFactory);
    GUID_OF(ITransomExplain);
    SLOT(ITransomExplain, GetLastRefusal);
    GUID_OF(ITransomNames);
    SLOT(ITransomNames, NameLocalToken);
    SLOT(ITransomNames, NameRemoteToken);
    VALUE(ND_SUCCESS);
    VALUE(ND_TIMEOUT);
    VALUE(ND_PENDING);
    VALUE(ND_BUFFER_OVERFLOW);
    VALUE(ND_DEVICE_BUSY);
    VALUE(ND_NO_MORE_ENTRIES);
    VALUE(ND_UNSUCCESSFUL);
    VALUE(ND_ACCESS_VIOLATION);
    VALUE(ND_INVALID_HANDLE);
    VALUE(ND_INVALID_PARAMETER);
    VALUE(ND_INVALID_DEVICE_REQUEST);
    VALUE(ND_NO_MEMORY);
    VALUE(ND_INVALID_PARAMETER_MIX);
    VALUE(ND_DATA_OVERRUN);
    VALUE(ND_SHARING_VIOLATION);
    VALUE(ND_INSUFFICIENT_RESOURCES);
    VALUE(ND_DEVICE_NOT_READY);
    VALUE(ND_IO_TIMEOUT);
    VALUE(ND_NOT_SUPPORTED);
    VALUE(ND_INTERNAL_ERROR);
    VALUE(ND_INVALID_PARAMETER_1);
    VALUE(ND_INVALID_PARAMETER_2);
    VALUE(ND_INVALID_PARAMETER_3);
    VALUE(ND_INVALID_PARAMETER_4);
    VALUE(ND_INVALID_PARAMETER_5);
    VALUE(ND_INVALID_PARAMETER_6);
    VALUE(ND_INVALID_PARAMETER_7);
    VALUE(ND_INVALID_PARAMETER_8);
    VALUE(ND_INVALID_PARAMETER_9);
    VALUE(ND_INVALID_PARAMETER_10);
    VALUE(ND_CANCELED);
    VALUE(ND_REMOTE_ERROR);
    VALUE(ND_INVALID_ADDRESS);
    VALUE(ND_INVALID_DEVICE_STATE);
    VALUE(ND_INVALID_BUFFER_SIZE);
    VALUE(ND_TOO_MANY_ADDRESSES);
    VALUE(ND_ADDRESS_ALREADY_EXISTS);
    VALUE(ND_CONNECTION_REFUSED);
    VALUE(ND_CONNECTION_INVALID);
    VALUE(ND_CONNECTION_ACTIVE);
    VALUE(ND_NETWORK_UNREACHABLE);
    VALUE(ND_HOST_UNREACHABLE);
    VALUE(ND_CONNECTION_ABORTED);
    VALUE(ND_DEVICE_REMOVED);
    VALUE(S_OK);
    VALUE(S_FALSE);
    VALUE(E_NOINTERFACE);
    VALUE(E_UNEXPECTED);
    VALUE(E_POINTER);
    VALUE(CLASS_E_NOAGGREGATION);
    VALUE(CLASS_E_CLASSNOTAVAILABLE);

    const char *name = nullptr;
    UINT64 value = 0;
    size_t compared = 0;
    for (ULONG i = 0; transom_nd_fact(i, &name, &value); ++i) {
        const auto found = ours.find(name);
        if (found == ours.end()) {
            // The library knows them without a name in these headers, or they are not layout.
            const std::string text = name;
            CHECK(text.rfind("STATUS_", 0) == 0 || text.rfind("limit ", 0) == 0 ||
                  text == "slot INDMemoryWindow.GetRemoteToken");
            continue;
        }
        if (found->second != value)
            std::fprintf(stderr, "%s: the header says %llx, the library %llx\n", name,
                         (unsigned long long)found->second, (unsigned long long)value);
        CHECK_EQ(found->second, value);
        ours.erase(found);
        ++compared;
    }
    for (const auto &left : ours)
        std::fprintf(stderr, "the library does not know %s\n", left.first.c_str());
    CHECK(ours.empty() && compared > 200);
    return 0;
}
