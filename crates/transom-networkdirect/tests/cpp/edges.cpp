// Limits of version 2 at n and n + 1, and what each flag bit, size and null means (ND2 2.5 to 2.10, 4.8).
#include "nd_scene.h"

constexpr HRESULT OK = ND_SUCCESS;

// A second adapter of the same address: its objects are no arguments here (ND2 1.4).
static void creating()
{
    Side s, other;
    s.make_queues();
    const ND2_ADAPTER_INFO i = s.info();
    IND2Adapter *a = s.adapter;
    void *made = nullptr;
    const auto drop = [&] {
        CHECK(made != nullptr);
        ((IUnknown *)made)->Release();
        made = nullptr;
    };
    const auto cq = [&](ULONG depth) { return a->CreateCompletionQueue(IID_IND2CompletionQueue, s.file, depth, 0, 0, &made); };
    HR(cq(0), ND_INVALID_PARAMETER_3);
    HR(cq(i.MaxCompletionQueueDepth + 1), ND_INVALID_PARAMETER_3);
    HR(cq(i.MaxCompletionQueueDepth), OK); // ND2 C3
    drop();
    HR(cq(1), OK);
    drop();
    const auto srq = [&](ULONG depth, ULONG sge) {
        return a->CreateSharedReceiveQueue(IID_IND2SharedReceiveQueue, s.file, depth, sge, 0, 0, 0, &made);
    };
    HR(srq(i.MaxSharedReceiveQueueDepth + 1, 1), ND_INVALID_PARAMETER_3);
    HR(srq(1, i.MaxReceiveSge + 1), ND_INVALID_PARAMETER_4);
    CHECK(!made);
    HR(srq(i.MaxSharedReceiveQueueDepth, i.MaxReceiveSge), OK);
    drop();
    HR(srq(0, 1), ND_INVALID_PARAMETER_3);
    HR(srq(1, 1), OK);
    drop();
    HR(srq(8, 2), OK);
    IND2SharedReceiveQueue *shared = (IND2SharedReceiveQueue *)made, *foreign = nullptr;
    made = nullptr;
    s.owned.push_back(shared);
    HR(other.adapter->CreateSharedReceiveQueue(IID_IND2SharedReceiveQueue, other.file, 8, 2, 0, 0, 0, (void **)&foreign), OK);
    other.owned.push_back(foreign);
    const auto pair = [&](ULONG receives, ULONG initiator, ULONG receive_sge, ULONG sge, ULONG inline_size) {
        return a->CreateQueuePair(IID_IND2QueuePair, s.cq, s.cq, nullptr, receives, initiator, receive_sge, sge, inline_size, &made);
    };
    const ULONG depth = i.MaxReceiveQueueDepth, most = i.MaxInitiatorQueueDepth;
    HR(pair(depth + 1, 1, 1, 1, 0), ND_INVALID_PARAMETER_5);
    HR(pair(1, most + 1, 1, 1, 0), ND_INVALID_PARAMETER_6);
    HR(pair(1, 1, i.MaxReceiveSge + 1, 1, 0), ND_INVALID_PARAMETER_7);
    HR(pair(1, 1, 1, i.MaxInitiatorSge + 1, 0), ND_INVALID_PARAMETER_8);
    HR(pair(1, 1, 1, 1, i.MaxInlineDataSize + 1), ND_INVALID_PARAMETER_9);
    HR(pair(depth, most, i.MaxReceiveSge, i.MaxInitiatorSge, i.MaxInlineDataSize), OK);
    drop();
    const auto with_srq = [&](IUnknown *q, ULONG initiator, ULONG sge, ULONG inline_size) {
        return a->CreateQueuePairWithSrq(IID_IND2QueuePair, s.cq, s.cq, q, nullptr, initiator, sge, inline_size, &made);
    };
    HR(with_srq(foreign, 1, 1, 0), ND_INVALID_PARAMETER_4);
    HR(with_srq(nullptr, 1, 1, 0), ND_INVALID_PARAMETER_4);
    HR(with_srq(shared, most + 1, 1, 0), ND_INVALID_PARAMETER_6);
    HR(with_srq(shared, 1, i.MaxInitiatorSge + 1, 0), ND_INVALID_PARAMETER_7);
    HR(with_srq(shared, 1, 1, i.MaxInlineDataSize + 1), ND_INVALID_PARAMETER_8);
    HR(with_srq(shared, most, i.MaxInitiatorSge, i.MaxInlineDataSize), OK);
    drop();
    // Resize and Modify; 0 leaves a value of a shared queue as it is (ND2 2.7).
    HR(s.cq->Resize(0), ND_INVALID_PARAMETER);
    HR(s.cq->Resize(i.MaxCompletionQueueDepth + 1), ND_INVALID_PARAMETER);
    HR(s.cq->Resize(i.MaxCompletionQueueDepth), OK);
    HR(shared->Modify(i.MaxSharedReceiveQueueDepth + 1, 0), ND_INVALID_PARAMETER);
    HR(shared->Modify(i.MaxSharedReceiveQueueDepth, 0), OK);
    HR(shared->Modify(0, 0), OK);
    // Lists of a shared queue: as long as it was asked for (ND2 2.7).
    const ND2_SGE list[3] = {};
    HR(shared->Receive(nullptr, list, 2), OK);
    HR(shared->Receive(nullptr, list, 3), ND_DATA_OVERRUN);
    // Of an interface that is not there nothing is given.
    made = &s;
    HR(a->CreateMemoryWindow(IID_IND2QueuePair, &made), E_NOINTERFACE);
    CHECK(!made);
    made = &s;
    HR(s.cq->QueryInterface(IID_IND2QueuePair, &made), E_NOINTERFACE);
    CHECK(!made);
}

// The version counts where it can be, and only there (ND2 C2).
static void query()
{
    Side s;
    ND2_ADAPTER_INFO i = {};
    ULONG size;
    const auto ask = [&](ULONG version, ULONG room) {
        i.InfoVersion = version;
        size = room;
        return s.adapter->Query(&i, &size);
    };
    for (ULONG room : {0u, 3u}) {
        HR(ask(77, room), ND_BUFFER_OVERFLOW);
        CHECK_EQ(size, sizeof i);
    }
    for (ULONG room : {(ULONG)4, (ULONG)sizeof i - 1, (ULONG)sizeof i})
        HR(ask(77, room), ND_NOT_SUPPORTED);
    HR(ask(ND_VERSION_2, sizeof i - 1), ND_BUFFER_OVERFLOW);
    CHECK(size == sizeof i && i.InfoVersion == ND_VERSION_2 && i.MaxRegistrationSize == 0); // untouched
    HR(ask(1, sizeof i), OK);
    CHECK_EQ(i.InfoVersion, ND_VERSION_2);
    size = 0;
    HR(s.adapter->Query(nullptr, &size), ND_BUFFER_OVERFLOW);
}

// Every bit of the flags of every operation (2.9, the table). A queue pair that was never connected says so
// of what is well formed.
static void flags()
{
    Side s;
    s.make_queues(8, 2, 64, 64);
    char buffer[65] = {};
    IND2MemoryRegion *mr = s.region(buffer, sizeof buffer, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
    const ND2_SGE sge = s.sge(mr, buffer, 8);
    IND2MemoryWindow *mw = s.window();
    const struct {
        const char *name;
        ULONG allowed;
        HRESULT invalid;
        std::function<HRESULT(ULONG)> post;
    } operations[] = {
        {"Send", 0x27, ND_INVALID_PARAMETER_4, [&](ULONG f) { return s.qp->Send(nullptr, &sge, 1, f); }},
        {"Write", 0x23, ND_INVALID_PARAMETER_6, [&](ULONG f) { return s.qp->Write(nullptr, &sge, 1, 0, 0, f); }},
        {"Read", 0x03, ND_INVALID_PARAMETER_6, [&](ULONG f) { return s.qp->Read(nullptr, &sge, 1, 0, 0, f); }},
        {"Bind", 0x1B, ND_INVALID_PARAMETER_6, [&](ULONG f) { return s.qp->Bind(nullptr, mr, mw, buffer, 8, f); }},
        {"Invalidate", 0x03, ND_INVALID_PARAMETER_3, [&](ULONG f) { return s.qp->Invalidate(nullptr, mw, f); }},
    };
    for (const auto &one : operations)
        for (ULONG bit = 1; bit != 0; bit <<= 1) {
            const HRESULT want = one.allowed & bit ? ND_CONNECTION_INVALID : one.invalid, hr = one.post(bit);
            if (hr != want)
                std::fprintf(stderr, "%s with %#x: %08x\n", one.name, (unsigned)bit, (unsigned)hr);
            HR(hr, want);
        }
    // Inline bytes: as many as the queue pair was made for (ND2 2.9).
    ND2_SGE bytes = {buffer, 64, 0};
    HR(s.qp->Send(nullptr, &bytes, 1, ND_OP_FLAG_INLINE), ND_CONNECTION_INVALID);
    bytes.BufferLength = 65;
    HR(s.qp->Send(nullptr, &bytes, 1, ND_OP_FLAG_INLINE), ND_BUFFER_OVERFLOW);
    HR(s.qp->Write(nullptr, &bytes, 1, 0, 0, ND_OP_FLAG_INLINE), ND_BUFFER_OVERFLOW);
    HR(s.qp->Bind(nullptr, mr, mw, buffer, 0, 0), ND_INVALID_BUFFER_SIZE); // 5.3
}

// ND2 R1: one buffer at a time, and a second Register changes nothing.
static void registering()
{
    Side s;
    char one[64], two[64];
    IND2MemoryRegion *mr = s.region(one, sizeof one, ND_MR_FLAG_ALLOW_REMOTE_WRITE);
    const UINT32 local = mr->GetLocalToken(), remote = mr->GetRemoteToken();
    HR(mr->Register(two, sizeof two, 0, &s.ov), ND_INVALID_DEVICE_STATE);
    CHECK(mr->GetLocalToken() == local && mr->GetRemoteToken() == remote);
    const unsigned char *wire = (const unsigned char *)&remote; // ND2 5.4: the bytes in memory are wire order
    CHECK_EQ(local, (UINT32)wire[0] << 24 | (UINT32)wire[1] << 16 | (UINT32)wire[2] << 8 | wire[3]);
    HR(s.wait(mr, mr->Deregister(&s.ov)), OK);
    HR(mr->Deregister(&s.ov), ND_INVALID_DEVICE_STATE); // ND2 R19
    HR(s.wait(mr, mr->Register(two, sizeof two, 0, &s.ov)), OK);
    CHECK(mr->GetLocalToken() != local);
}

// ND2 2.6: a Notify that is pending when its queue is destroyed ends as canceled, though a queue pair keeps the queue.
static void destroying()
{
    Side s;
    s.make_queues();
    HR(s.cq->Notify(ND_CQ_NOTIFY_ANY, &s.ov), ND_PENDING);
    CHECK_EQ(s.cq->Release(), 0);
    s.cq = nullptr;
    CHECK_EQ(s.ov.Internal, (UINT32)ND_CANCELED);
}

static void connecting()
{
    Ends e;
    e.go("");
    Side &a = e.active, &p = e.passive;
    // 0.0.0.0 is the adapter's address; another one is none of its own.
    const sockaddr_in any = address("0.0.0.0", 0), another = address("127.0.0.2", 0);
    HR(a.connector->Bind(sa(another), sizeof another), ND_INVALID_ADDRESS);
    HR(a.connector->Bind(sa(any), sizeof any - 1), ND_INVALID_ADDRESS);
    HR(a.connector->Bind(sa(any), sizeof any), OK);
    const sockaddr_in to = address("127.0.0.1", e.port);
    HR(a.connector->Connect(a.qp, sa(to), sizeof to, 2, 3, "abc", 3, &a.ov), ND_PENDING);
    sockaddr_in local = {};
    ULONG size = sizeof local;
    HR(a.connector->GetLocalAddress((sockaddr *)&local, &size), OK);
    CHECK_EQ(ntohl(local.sin_addr.s_addr), 0x7F000001);
    HR(p.wait(p.listener, p.listener->GetConnectionRequest(p.connector, &p.ov)), OK);
    // ND2 4.8: either side sees the other's offer mirrored; what is agreed is the smaller number.
    ULONG inbound = 77, outbound = 77;
    HR(p.connector->GetReadLimits(&inbound, &outbound), OK);
    CHECK(inbound == 3 && outbound == 2);
    HR(p.connector->GetReadLimits(nullptr, nullptr), OK);
    char data[8] = {};
    size = sizeof data;
    HR(p.connector->GetPrivateData(nullptr, &size), ND_BUFFER_OVERFLOW); // nowhere to put it
    CHECK_EQ(size, 3);
    size = 2;
    HR(p.connector->GetPrivateData(data, &size), ND_BUFFER_OVERFLOW); // as much as fits
    CHECK(size == 3 && data[0] == 'a' && data[1] == 'b' && data[2] == 0);
    HR(p.connector->GetPrivateData(data, &size), OK);
    CHECK(size == 3 && data[2] == 'c' && data[3] == 0);
    HR(p.connector->Accept(p.qp, 9, 1, nullptr, 0, &p.ov), ND_PENDING);
    HR(a.connector->GetOverlappedResult(&a.ov, TRUE), OK);
    HR(a.connector->GetReadLimits(&inbound, &outbound), OK);
    CHECK(inbound == 1 && outbound == 3);
    HR(a.wait(a.connector, a.connector->CompleteConnect(&a.ov)), OK);
    HR(p.connector->GetOverlappedResult(&p.ov, TRUE), OK);
    HR(p.connector->GetReadLimits(&inbound, &outbound), OK);
    CHECK(inbound == 3 && outbound == 1);
    size = sizeof data;
    HR(a.connector->GetPrivateData(data, &size), OK); // none at all
    CHECK_EQ(size, 0);
}

// ND2 2.11: a wildcard is this adapter's address, and no other's.
static void listening()
{
    Side s;
    HR(s.adapter->CreateListener(IID_IND2Listener, s.file, (void **)&s.listener), OK);
    const sockaddr_in any = address("0.0.0.0", 0), another = address("127.0.0.2", 0);
    HR(s.listener->Bind(sa(another), sizeof another), ND_INVALID_ADDRESS);
    HR(s.listener->Bind(sa(any), sizeof any), OK);
    sockaddr_in at = {};
    ULONG size = sizeof at - 1;
    HR(s.listener->GetLocalAddress((sockaddr *)&at, &size), ND_BUFFER_OVERFLOW);
    CHECK(size == sizeof at && at.sin_port == 0); // untouched
    HR(s.listener->GetLocalAddress((sockaddr *)&at, &size), OK);
    CHECK(ntohl(at.sin_addr.s_addr) == 0x7F000001 && at.sin_port != 0);
}

// ND2 W11, W12, W20, C9, C15: when a window may be bound again.
static void rebinding()
{
    Ends e;
    e.connect();
    Side &s = e.passive;
    char buffer[64];
    IND2MemoryRegion *mr = s.region(buffer, sizeof buffer, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
    IND2MemoryWindow *mw = s.window();
    CHECK_EQ(mw->GetRemoteToken(), 0); // 5.4
    const auto bind = [&](void *context) { return s.qp->Bind(context, mr, mw, buffer, 8, ND_OP_FLAG_ALLOW_READ); };
    HR(bind(&s), OK);
    s.expect(OK, &s, Nd2RequestTypeBind);
    const UINT32 first = mw->GetRemoteToken();
    HR(bind(&s), ND_INVALID_DEVICE_STATE);
    CHECK_EQ(mw->GetRemoteToken(), first);
    // Behind an Invalidate that is posted, and has not been executed: the peer has no receive yet.
    HR(s.qp->Send(&e, nullptr, 0, 0), OK);
    HR(s.qp->Invalidate(&mr, mw, 0), OK);
    HR(bind(&mw), OK);
    CHECK(mw->GetRemoteToken() != first);
    HR(e.active.qp->Receive(nullptr, nullptr, 0), OK);
    s.expect(OK, &e, Nd2RequestTypeSend);
    s.expect(OK, &mr, Nd2RequestTypeInvalidate);
    s.expect(OK, &mw, Nd2RequestTypeBind);
    // The end of its queue pair has unbound it.
    HR(s.disconnect(), OK);
    e.keep();
    e.connect();
    HR(bind(&s), OK);
    s.expect(OK, &s, Nd2RequestTypeBind);
}

int main(int argc, char **argv)
{
    time_limit(300);
    static const struct {
        const char *name;
        void (*run)();
    } cases[] = {{"creating", creating},       {"query", query},           {"flags", flags},
                 {"registering", registering}, {"destroying", destroying}, {"connecting", connecting},
                 {"listening", listening},     {"rebinding", rebinding}};
    for (const auto &one : cases)
        if (argc > 1 && std::string(one.name) == argv[1]) {
            one.run();
            CHECK_EQ(transom_nd_live_objects(), 0);
            return 0;
        }
    CHECK(!"a case");
}
