// ND2 7.5 through the interface: the sub-tests of the public memory test, one line per row, in our own words.
#include "nd_scene.h"

constexpr HRESULT OK = ND_SUCCESS, AV = ND_ACCESS_VIOLATION, CAN = ND_CANCELED;
constexpr UINT32 MIB4 = 4 << 20;

static const ULONG R = ND_OP_FLAG_ALLOW_READ, W = ND_OP_FLAG_ALLOW_WRITE;

static HRESULT accepted(Ends &e) { return e.passive.connector->GetOverlappedResult(&e.passive.ov, TRUE); }

// The client (active) opens 4 MiB; the server asks for `length` bytes by a list as long as that.
static void asks_for(bool write, ULONG region, ULONG window, bool closed, UINT32 length, UINT32 local)
{
    Ends e;
    e.connect();
    Side &owner = e.active, &asker = e.passive;
    std::vector<char> theirs(MIB4, 'o'), mine(MIB4 + 64, 'm');
    IND2MemoryRegion *mr = owner.region(theirs.data(), MIB4, region);
    IND2MemoryWindow *mw = owner.window();
    HR(owner.qp->Receive(&theirs, nullptr, 0), OK);
    HR(owner.qp->Bind(&mr, mr, mw, theirs.data(), MIB4, window), OK);
    owner.expect(OK, &mr, Nd2RequestTypeBind);
    const UINT32 token = mw->GetRemoteToken();
    if (closed) {
        HR(owner.qp->Invalidate(&mw, mw, 0), OK);
        owner.expect(OK, &mw, Nd2RequestTypeInvalidate);
    }
    IND2MemoryRegion *sink = asker.region(mine.data(), local, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
    const ND2_SGE sge = asker.sge(sink, mine.data(), length);
    HR(write ? asker.qp->Write(&mine, &sge, 1, (UINT64)theirs.data(), token, 0)
             : asker.qp->Read(&mine, &sge, 1, (UINT64)theirs.data(), token, 0), OK);
    asker.expect(AV, &mine, write ? Nd2RequestTypeWrite : Nd2RequestTypeRead);
    owner.expect(CAN, &theirs, Nd2RequestTypeReceive);
    for (char c : theirs)
        CHECK_EQ(c, 'o');
}

static void conn_close()
{
    Ends e;
    e.go("bCqraW");
    CHECK_EQ(e.active.connector->Release(), 0);
    e.active.connector = nullptr;
    HR(accepted(e), ND_CONNECTION_REFUSED);
}
static void conn_reject()
{
    Ends e;
    e.go("bCqraWJ");
    HR(accepted(e), ND_CONNECTION_REFUSED);
}
static void listener_closing()
{
    Ends e;
    Ends::drop(e.passive.listener);
    e.go("bCW");
    HR(e.answer, ND_CONNECTION_REFUSED);
    e.port = e.passive.listen(); // and also when the request is in the backlog already
    e.go("bC");
    Sleep(20);
    Ends::drop(e.passive.listener);
    e.step('W');
    HR(e.answer, ND_CONNECTION_REFUSED);
}
static void dual_connection()
{
    Ends e;
    e.go("bCqraW");
    const sockaddr_in from = address("127.0.0.1", 0), to = address("127.0.0.1", e.port);
    HR(e.active.connector->Bind(sa(from), sizeof from), 0xC0000238);
    HR(e.active.connector->Connect(e.active.qp, sa(to), sizeof to, 0, 0, nullptr, 0, &e.active.ov), ND_CONNECTION_ACTIVE);
    Ends::drop(e.active.connector);
    HR(accepted(e), 0xC0000236);
}
static void dual_listen()
{
    Side s, other;
    const USHORT port = s.listen();
    const sockaddr_in at = address("127.0.0.1", port);
    HR(s.listener->Bind(sa(at), sizeof at), 0xC0000238);
    CHECK(s.listener->Listen(0) != OK);
    HR(other.adapter->CreateListener(IID_IND2Listener, other.file, (void **)&other.listener), OK);
    HR(other.listener->Bind(sa(at), sizeof at), ND_SHARING_VIOLATION); // ND2 C30
}
static void invalid_ip()
{
    Ends e;
    e.go("b");
    const sockaddr_in to = address("0.0.0.0", e.port);
    Side &a = e.active;
    HR(a.wait(a.connector, a.connector->Connect(a.qp, sa(to), sizeof to, 0, 0, nullptr, 0, &a.ov)), 0xC00000CC);
}
static void large_private_data()
{
    Ends e;
    e.go("bq");
    const ND2_ADAPTER_INFO info = e.active.info();
    std::vector<char> data(info.MaxCallerData + info.MaxCalleeData + 1, 'd');
    const sockaddr_in to = address("127.0.0.1", e.port);
    Side &a = e.active, &p = e.passive;
    HR(a.connector->Connect(a.qp, sa(to), sizeof to, 0, 0, data.data(), info.MaxCallerData + 1, &a.ov), ND_INVALID_BUFFER_SIZE);
    HR(a.connector->Connect(a.qp, sa(to), sizeof to, 0, 0, data.data(), info.MaxCallerData, &a.ov), ND_PENDING);
    e.step('r');
    HR(p.connector->Accept(p.qp, 0, 0, data.data(), info.MaxCalleeData + 1, &p.ov), ND_INVALID_BUFFER_SIZE);
    HR(p.connector->Accept(p.qp, 0, 0, data.data(), info.MaxCalleeData, &p.ov), ND_PENDING);
    e.step('W');
    e.step('K');
    HR(p.qp->Receive(&p, nullptr, 0), OK);
    HR(a.qp->Send(&a, nullptr, 0, 0), OK);
    a.expect(OK, &a, Nd2RequestTypeSend);
    p.expect(OK, &p, Nd2RequestTypeReceive);
}
static void large_depth()
{
    Side s;
    s.make_queues();
    IND2QueuePair *qp = nullptr;
    const ND2_ADAPTER_INFO i = s.info();
    HR(s.adapter->CreateQueuePair(IID_IND2QueuePair, s.cq, s.cq, nullptr, i.MaxReceiveQueueDepth + 1, 1, 1, 1, 0, (void **)&qp),
       ND_INVALID_PARAMETER_5);
}
static void all_maxima()
{
    Side s;
    s.make_connector();
    HR(s.adapter->CreateCompletionQueue(IID_IND2CompletionQueue, s.file, 2, 0, 0, (void **)&s.cq), OK);
    const ND2_ADAPTER_INFO i = s.info();
    HR(s.adapter->CreateQueuePair(IID_IND2QueuePair, s.cq, s.cq, nullptr, i.MaxReceiveSge, i.MaxInitiatorQueueDepth, i.MaxReceiveSge,
                                  i.MaxInitiatorSge, 0, (void **)&s.qp), OK);
    HR(s.connector->Disconnect(&s.ov), ND_CONNECTION_INVALID);
}
static void deregister_bound()
{
    Ends e;
    e.connect();
    Side &s = e.passive;
    char memory[64];
    IND2MemoryRegion *mr = s.region(memory, sizeof memory, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
    HR(s.qp->Bind(nullptr, mr, s.window(), memory, sizeof memory, 0), OK);
    s.expect(OK, nullptr, Nd2RequestTypeBind);
    HR(mr->Deregister(&s.ov), ND_DEVICE_BUSY);
}
static void invalid_buffer()
{
    Side s;
    char ten[10];
    IND2MemoryRegion *mr = nullptr;
    HR(s.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, s.file, (void **)&mr), OK);
    HR(mr->Register(nullptr, 0, ND_MR_FLAG_ALLOW_LOCAL_WRITE, &s.ov), ND_INVALID_PARAMETER);
    HR(mr->Register(ten, 0, ND_MR_FLAG_ALLOW_LOCAL_WRITE, &s.ov), ND_INVALID_BUFFER_SIZE);
    mr->Release();
}
static void flush_idle()
{
    Side s;
    s.make_queues();
    HR(s.qp->Receive(&s, nullptr, 0), OK);
    HR(s.qp->Receive(&s, nullptr, 0), OK);
    HR(s.qp->Flush(), OK);
    HR(s.wait(s.cq, s.cq->Notify(ND_CQ_NOTIFY_ANY, &s.ov)), OK);
    ND2_RESULT r[2];
    CHECK_EQ(s.cq->GetResults(r, 2), 2);
    HR(r[0].Status, CAN);
    HR(r[1].Status, CAN);
}
static void send_no_receive()
{
    Ends e;
    e.connect();
    std::vector<char> data(MIB4);
    const ND2_SGE sge = e.active.sge(e.active.region(data.data(), MIB4, ND_MR_FLAG_ALLOW_LOCAL_WRITE), data.data(), MIB4);
    const ULONGLONG start = GetTickCount64();
    HR(e.active.qp->Send(&data, &sge, 1, 0), OK);
    e.active.expect(ND_IO_TIMEOUT, &data, Nd2RequestTypeSend);
    CHECK(GetTickCount64() - start < 5000);
    ND2_RESULT r;
    CHECK_EQ(e.passive.cq->GetResults(&r, 1), 0);
}
static void receive_then_closed()
{
    Ends e;
    e.fresh();
    HR(e.passive.qp->Receive(&e, nullptr, 0), OK);
    for (const char *s = "bCqraWKD"; *s; ++s) // with K, the server's Accept has succeeded
        e.step(*s);
    e.passive.expect(CAN, &e, Nd2RequestTypeReceive);
}

static const struct {
    const char *name;
    void (*run)();
} rows[] = {
    {"NdConnClose", conn_close},
    {"NdConnReject", conn_reject},
    {"NdConnListenClosing", listener_closing},
    {"NdDualConnection", dual_connection},
    {"NdDualListen", dual_listen},
    {"NdInvalidIP", invalid_ip},
    {"NdInvalidRead", [] { asks_for(false, 0x7, R | W, true, MIB4 + 41, MIB4 + 40); }},
    {"NdInvalidWrite", [] { asks_for(true, 0x7, R | W, true, MIB4 + 41, MIB4); }},
    {"NdInvalidRead, a list that is right", [] { asks_for(false, 0x7, R | W, true, MIB4, MIB4); }},
    {"NdInvalidWrite, a list that is right", [] { asks_for(true, 0x7, R | W, true, MIB4, MIB4); }},
    {"NdOverRead", [] { asks_for(false, 0x7, R | W, false, MIB4 + 41, MIB4 + 64); }},
    {"NdOverWrite", [] { asks_for(true, 0x7, R | W, false, MIB4 + 41, MIB4 + 64); }},
    {"NdWriteViolation", [] { asks_for(true, 0x1, R, false, MIB4, MIB4); }},
    {"NdLargePrivateData", large_private_data},
    {"NdLargeQPDepth", large_depth},
    {"NdQpMax", all_maxima},
    {"NdMRDeregister", deregister_bound},
    {"NdMRInvalidBuffer", invalid_buffer},
    {"NdReceiveFlushQP", flush_idle},
    {"NdSendNoReceive", send_no_receive},
    {"NdReceiveConnClosed", receive_then_closed},
};

int main()
{
    time_limit(300);
    for (const auto &row : rows) {
        std::fprintf(stderr, "%s\n", row.name); // the last one named is the one that failed
        row.run();
        CHECK_EQ(transom_nd_live_objects(), 0);
    }
    return 0;
}
