// Calls that are refused, cancelled or made in an odd order, and what is there behind each of them: refused WAY,
// with WAY event or port; refused WAY CASE runs one case. A refused call changes nothing, and every request that has
// begun ends once.
#include "refused_overlapped.h"

constexpr HRESULT OK = ND_SUCCESS, INV = ND_CONNECTION_INVALID, ACT = ND_CONNECTION_ACTIVE, STA = ND_INVALID_DEVICE_STATE,
                  AV = ND_ACCESS_VIOLATION, AAS = (HRESULT)0xC0000238, NAS = (HRESULT)0xC0000239, DIS = (HRESULT)0xC000020C;
constexpr ULONG ALL = ND_MR_FLAG_ALLOW_REMOTE_READ | ND_MR_FLAG_ALLOW_REMOTE_WRITE;

static std::string private_data(IND2Connector *c)
{
    char room[600];
    ULONG size = sizeof room;
    HR(c->GetPrivateData(room, &size), OK);
    return std::string(room, size);
}

// Calls on a connector that connects already: the first Connect stays as it was.
static void connect_twice(Watch &watch)
{
    Watched e(watch);
    Side &a = e.active, &p = e.passive;
    Request first(watch), second(watch), wrong(watch);
    e.go("");
    IND2QueuePair *spare = Ends::pair(a);
    wrong.refused(e.connect_to(a.connector, a.qp, e.port, &wrong), NAS);
    a.bind();
    HR(e.connect_to(a.connector, a.qp, e.port, &first, "first"), ND_PENDING);
    for (IND2QueuePair *qp : {a.qp, spare}) {
        second.refused(e.connect_to(a.connector, qp, e.other_port, &second, "second"), ACT);
        second.refused(a.connector->Accept(qp, 0, 0, "second", 6, &second), ACT);
    }
    wrong.refused(a.connector->CompleteConnect(&wrong), INV);
    wrong.refused(a.connector->Disconnect(&wrong), INV);
    wrong.refused(a.connector->NotifyDisconnect(&wrong), INV);
    HR(a.connector->Reject("second", 6), STA);
    const sockaddr_in from = address("127.0.0.1", 0);
    HR(a.connector->Bind(sa(from), sizeof from), AAS);
    // Not even with the OVERLAPPED of the first.
    HR(e.connect_to(a.connector, spare, e.other_port, &first, "second"), ACT);
    HR(a.connector->CompleteConnect(&first), INV);
    HR(a.connector->Disconnect(&first), INV);
    first.pends({a.connector, a.cq, p.listener});
    e.steps("qr");
    CHECK(private_data(p.connector) == "first");
    ULONG in = 0, out = 0;
    HR(p.connector->GetReadLimits(&in, &out), OK);
    CHECK(in == 4 && out == 4);
    e.step('a');
    first.ends(a.connector, OK);
    e.answer = OK;
    wrong.refused(e.connect_to(a.connector, spare, e.port, &wrong), ACT);
    CHECK(private_data(a.connector) == "welcome");
    e.step('K');
    wrong.refused(a.connector->CompleteConnect(&wrong), INV);
    e.talk();
    // The queue pair of the refused calls is as new.
    e.keep();
    e.fresh();
    a.qp->Release();
    a.qp = spare;
    e.steps("bCqraWK");
    e.talk();
}

// A listener's calls before their time.
static void listen_order(Watch &watch)
{
    Watched e(watch);
    Side &p = e.passive;
    e.go("");
    Ends::drop(p.listener);
    HR(p.adapter->CreateListener(IID_IND2Listener, p.file, (void **)&p.listener), OK);
    Request wrong(watch), taken(watch);
    IND2Listener *other = nullptr;
    HR(p.adapter->CreateListener(IID_IND2Listener, p.file, (void **)&other), OK);
    sockaddr_in at = address("127.0.0.1", 0);
    ULONG size = sizeof at;
    HR(p.listener->Listen(0), STA);
    wrong.refused(p.listener->GetConnectionRequest(p.connector, &wrong), STA);
    HR(p.listener->GetLocalAddress((sockaddr *)&at, &size), STA);
    const sockaddr_in elsewhere = address("192.0.2.1", 0);
    HR(p.listener->Bind(sa(elsewhere), sizeof elsewhere), ND_INVALID_ADDRESS);
    const sockaddr_in free_port = address("127.0.0.1", 0);
    at = free_port;
    HR(p.listener->Bind(sa(at), sizeof at), OK);
    wrong.refused(p.listener->GetConnectionRequest(p.connector, &wrong), STA);
    size = sizeof at;
    HR(p.listener->GetLocalAddress((sockaddr *)&at, &size), OK);
    e.port = ntohs(at.sin_port);
    HR(p.listener->Bind(sa(free_port), sizeof free_port), AAS);
    HR(p.listener->Listen(0), OK);
    HR(p.listener->Listen(1), STA);
    HR(other->Bind(sa(at), sizeof at), ND_SHARING_VIOLATION);
    HR(other->Listen(0), STA); // still not bound
    HR(other->Bind(sa(free_port), sizeof free_port), OK);
    CHECK_EQ(other->Release(), 0);
    // A connector waits once; one that is bound does not wait at all.
    HR(p.listener->GetConnectionRequest(p.connector, &taken), ND_PENDING);
    wrong.refused(p.listener->GetConnectionRequest(p.connector, &wrong), ACT);
    IND2Connector *bound = e.connector(p);
    HR(bound->Bind(sa(free_port), sizeof free_port), OK);
    wrong.refused(p.listener->GetConnectionRequest(bound, &wrong), ACT);
    CHECK_EQ(bound->Release(), 0);
    taken.pends({p.listener, p.connector});
    e.steps("bC");
    taken.ends(p.listener, OK);
    e.steps("aWK");
    e.talk();
}

// Accept and Reject without a request, with too much data, with a queue pair of another adapter.
static void accept_without_request(Watch &watch)
{
    Watched e(watch);
    Side &a = e.active, &p = e.passive;
    Request wrong(watch), taken(watch), accepted(watch);
    e.go("");
    wrong.refused(p.connector->Accept(p.qp, 4, 4, "early", 5, &wrong), INV);
    HR(p.connector->Reject("early", 5), STA);
    HR(p.listener->GetConnectionRequest(p.connector, &taken), ND_PENDING);
    wrong.refused(p.connector->Accept(p.qp, 4, 4, "early", 5, &wrong), INV);
    HR(p.connector->Reject("early", 5), STA);
    taken.pends({p.listener, p.connector});
    e.steps("bC");
    taken.ends(p.connector, OK);
    const std::vector<char> much(p.info().MaxCalleeData + 1, 'm');
    wrong.refused(p.connector->Accept(p.qp, 4, 4, much.data(), (ULONG)much.size(), &wrong), ND_INVALID_BUFFER_SIZE);
    HR(p.connector->Reject(much.data(), (ULONG)much.size()), ND_INVALID_BUFFER_SIZE);
    wrong.refused(p.connector->Accept(a.qp, 4, 4, "theirs", 6, &wrong), ND_INVALID_PARAMETER_1);
    wrong.refused(p.connector->Accept(p.cq, 4, 4, "no pair", 7, &wrong), ND_INVALID_PARAMETER_1);
    wrong.refused(p.connector->Disconnect(&wrong), INV);
    wrong.refused(p.connector->CompleteConnect(&wrong), INV);
    HR(a.connector->GetOverlappedResult(&a.ov, FALSE), ND_PENDING); // nothing has reached the peer
    HR(p.connector->Accept(p.qp, 4, 4, "right", 5, &accepted), ND_PENDING);
    wrong.refused(p.connector->Accept(p.qp, 4, 4, "again", 5, &wrong), ACT);
    HR(p.connector->Reject("again", 5), STA);
    e.step('W');
    CHECK(private_data(a.connector) == "right");
    HR(a.wait(a.connector, a.connector->CompleteConnect(&a.ov)), OK);
    accepted.ends(p.connector, OK);
    HR(p.connector->Reject("late", 4), STA);
    HR(a.connector->Reject("late", 4), STA);
    e.talk();
}

// Requests on a queue pair that was never connected take none of its room and leave no result.
static void unconnected_pair(Watch &watch)
{
    Watched e(watch);
    Side &a = e.active, &p = e.passive;
    constexpr int DEPTH = 4;
    e.fresh(DEPTH);
    char memory[64] = "before";
    IND2MemoryRegion *mr = a.region(memory, sizeof memory, ALL);
    IND2MemoryWindow *mw = a.window();
    const ND2_SGE sge = a.sge(mr, memory, sizeof memory);
    for (int i = 0; i < DEPTH; ++i)
        HR(a.qp->Receive(&memory[i], &sge, 1), OK);
    for (int i = 0; i < 3 * DEPTH; ++i) {
        HR(a.qp->Send(&e, &sge, 1, 0), INV);
        HR(a.qp->Write(&e, &sge, 1, (UINT64)(ULONG_PTR)memory, mr->GetRemoteToken(), 0), INV);
        HR(a.qp->Read(&e, &sge, 1, (UINT64)(ULONG_PTR)memory, mr->GetRemoteToken(), 0), INV);
        HR(a.qp->Bind(&e, mr, mw, memory, sizeof memory, ND_OP_FLAG_ALLOW_READ), INV);
        HR(a.qp->Invalidate(&e, mw, 0), INV);
    }
    Watched::silent(a);
    CHECK(std::string(memory) == "before");
    Request dereg(watch), again(watch); // the refused Bind has bound nothing
    HR(mr->Deregister(&dereg), ND_PENDING);
    dereg.ends(mr, OK);
    HR(mr->Register(memory, sizeof memory, ALL, &again), ND_PENDING);
    again.ends(mr, OK);
    e.steps("bCqraWK");
    Watched::silent(a);
    // All of the room is there, and the receives that were posted first are still first.
    for (int i = 0; i < DEPTH; ++i)
        HR(p.qp->Receive(nullptr, nullptr, 0), OK);
    for (int i = 0; i < DEPTH; ++i)
        HR(a.qp->Send(&memory[i], nullptr, 0, 0), OK);
    for (int i = 0; i < DEPTH; ++i) {
        a.expect(OK, &memory[i], Nd2RequestTypeSend);
        p.expect(OK, nullptr, Nd2RequestTypeReceive);
    }
    HR(p.qp->Send(&e, nullptr, 0, 0), OK);
    a.expect(OK, &memory[0], Nd2RequestTypeReceive);
}

// Binds that come to nothing: the window stays free, the connection stays up.
static void bind_unregistered(Watch &watch)
{
    Watched e(watch);
    Side &a = e.active, &p = e.passive;
    e.connect();
    char memory[64] = "owner's", copy[64] = {};
    IND2MemoryRegion *none = nullptr;
    HR(p.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, p.file, (void **)&none), OK);
    p.owned.push_back(none);
    IND2MemoryWindow *mw = p.window();
    HR(p.qp->Bind(&e, none, mw, memory, sizeof memory, ND_OP_FLAG_ALLOW_READ), AV);
    Request began(watch), ended(watch), last(watch), busy(watch);
    HR(none->Register(memory, 32, 0, &began), ND_PENDING);
    began.ends(none, OK);
    HR(p.qp->Bind(&e, none, mw, memory, 33, ND_OP_FLAG_ALLOW_READ), AV);
    HR(p.qp->Bind(&e, none, mw, memory - 1, 2, ND_OP_FLAG_ALLOW_READ), AV);
    HR(p.qp->Bind(&e, none, mw, memory + 1, (SIZE_T)-1, ND_OP_FLAG_ALLOW_READ), AV);
    HR(p.qp->Bind(&e, none, mw, memory, 32, ND_OP_FLAG_ALLOW_WRITE), AV);
    HR(p.qp->Bind(&e, none, mw, memory, 0, ND_OP_FLAG_ALLOW_READ), ND_INVALID_BUFFER_SIZE);
    HR(none->Deregister(&ended), ND_PENDING); // not busy
    ended.ends(none, OK);
    HR(p.qp->Bind(&e, none, mw, memory, 32, ND_OP_FLAG_ALLOW_READ), AV); // not any more
    busy.refused(none->Deregister(&busy), STA);
    Watched::silent(p);
    HR(none->Register(memory, sizeof memory, ND_MR_FLAG_ALLOW_LOCAL_WRITE, &last), ND_PENDING);
    last.ends(none, OK);
    HR(p.qp->Bind(&e, none, mw, memory, sizeof memory, ND_OP_FLAG_ALLOW_READ), OK);
    p.expect(OK, &e, Nd2RequestTypeBind);
    const ND2_SGE sge = a.sge(a.region(copy, sizeof copy, ND_MR_FLAG_ALLOW_LOCAL_WRITE), copy, sizeof copy);
    HR(a.qp->Read(&e, &sge, 1, (UINT64)(ULONG_PTR)memory, mw->GetRemoteToken(), 0), OK);
    a.expect(OK, &e, Nd2RequestTypeRead);
    CHECK(std::string(copy) == "owner's");
    e.talk();
}

// A region with a window: neither Deregister, Register nor a second Bind takes anything from the peer.
static void deregister_bound(Watch &watch)
{
    Watched e(watch);
    Side &a = e.active, &p = e.passive;
    e.connect();
    char memory[64] = "through", other[64] = "another", copy[64] = {};
    IND2MemoryRegion *mr = p.region(memory, sizeof memory, ALL), *second = p.region(other, sizeof other, ALL);
    IND2MemoryWindow *mw = p.window();
    const UINT32 local = mr->GetLocalToken(), remote = mr->GetRemoteToken();
    HR(p.qp->Bind(&e, mr, mw, memory, sizeof memory, ND_OP_FLAG_ALLOW_READ), OK);
    p.expect(OK, &e, Nd2RequestTypeBind);
    const UINT32 through = mw->GetRemoteToken();
    Request wrong(watch), ended(watch), gone(watch);
    IND2QueuePair *elsewhere = Ends::pair(p);
    const ND2_SGE sge = a.sge(a.region(copy, sizeof copy, ND_MR_FLAG_ALLOW_LOCAL_WRITE), copy, sizeof copy);
    for (int i = 0; i < 2; ++i) {
        wrong.refused(mr->Deregister(&wrong), ND_DEVICE_BUSY);
        wrong.refused(mr->Register(other, sizeof other, 0, &wrong), STA);
        HR(p.qp->Bind(&e, second, mw, other, sizeof other, ND_OP_FLAG_ALLOW_READ), STA);
        HR(elsewhere->Bind(&e, second, mw, other, sizeof other, ND_OP_FLAG_ALLOW_READ), STA);
        CHECK(mr->GetLocalToken() == local && mr->GetRemoteToken() == remote && mw->GetRemoteToken() == through);
        for (UINT32 token : {through, remote}) {
            std::memset(copy, 0, sizeof copy);
            HR(a.qp->Read(&e, &sge, 1, (UINT64)(ULONG_PTR)memory, token, 0), OK);
            a.expect(OK, &e, Nd2RequestTypeRead);
            CHECK(std::string(copy) == "through");
        }
    }
    elsewhere->Release();
    HR(second->Deregister(&ended), ND_PENDING); // the refused Binds have not made it busy
    ended.ends(second, OK);
    HR(p.qp->Invalidate(&e, mw, 0), OK);
    p.expect(OK, &e, Nd2RequestTypeInvalidate);
    HR(mr->Deregister(&gone), ND_PENDING);
    gone.ends(mr, OK);
    e.talk();
    HR(a.qp->Read(&e, &sge, 1, (UINT64)(ULONG_PTR)memory, through, 0), OK);
    a.expect(AV, &e, Nd2RequestTypeRead);
}

// Objects that go first although others, or requests, need them.
static void release_order(Watch &watch)
{
    Request notified(watch), notified_again(watch), taken(watch), taken_again(watch), connecting(watch), gone(watch);
    Watched e(watch);
    Side &a = e.active, &p = e.passive;
    // The adapter and the handle of its file.
    e.fresh();
    CHECK(CloseHandle(a.file));
    a.adapter->Release();
    e.steps("bCqraWK");
    e.talk();
    HR(a.connector->NotifyDisconnect(&gone), ND_PENDING);
    // The completion queue, with requests of its queue pair outstanding and two notifications.
    HR(a.qp->Receive(&e, nullptr, 0), OK);
    HR(a.cq->Notify(ND_CQ_NOTIFY_ERRORS, &notified), ND_PENDING);
    HR(a.cq->Notify(ND_CQ_NOTIFY_ANY, &notified_again), ND_PENDING);
    CHECK_EQ(a.cq->Release(), 0);
    a.cq = nullptr;
    notified.has_ended(a.connector, ND_CANCELED);
    notified_again.has_ended(a.connector, ND_CANCELED);
    HR(p.qp->Send(&e, nullptr, 0, 0), OK); // the connection is up, the receive is there
    p.expect(OK, &e, Nd2RequestTypeSend);
    gone.pends({a.connector});
    // The queue pair of a connection; the connector tells its end.
    CHECK_EQ(a.qp->Release(), 0);
    a.qp = nullptr;
    CHECK(gone.end(a.connector) != ND_PENDING);
    HR(p.qp->Receive(&e, nullptr, 0), OK);
    p.expect(ND_CANCELED, &e, Nd2RequestTypeReceive);
    Ends::drop(a.connector);
    // A listener with a request that waits; its connector is free again.
    Ends::drop(p.connector);
    Ends::drop(p.qp);
    p.qp = Ends::pair(p);
    p.make_connector();
    HR(p.listener->GetConnectionRequest(p.connector, &taken), ND_PENDING);
    CHECK_EQ(p.listener->Release(), 0);
    p.listener = nullptr;
    taken.has_ended(p.connector, ND_CANCELED);
    // A connector that connects, and one that waits.
    p.bind();
    HR(e.connect_to(p.connector, p.qp, e.other_port, &connecting), ND_PENDING);
    CHECK_EQ(p.connector->Release(), 0);
    p.connector = nullptr;
    connecting.ends(p.cq, ND_CANCELED);
    e.port = p.listen();
    IND2Connector *waiting = e.connector(p);
    HR(p.listener->GetConnectionRequest(waiting, &taken_again), ND_PENDING);
    CHECK_EQ(waiting->Release(), 0);
    HR(p.listener->CancelOverlappedRequests(), OK);
    CHECK(taken_again.end(p.listener) == ND_CANCELED);
    // Released by the end of this scene.
    sockaddr_in at = address("127.0.0.1", 0);
    HR(NdOpenAdapter(IID_IND2Adapter, sa(at), sizeof at, (void **)&a.adapter), OK);
    HR(a.adapter->CreateOverlappedFile(&a.file), OK);
}

// The last calls of a connection, twice.
static void end_twice(Watch &watch)
{
    Watched e(watch);
    Side &a = e.active, &p = e.passive;
    Request wrong(watch), gone(watch), end(watch), end_too(watch), late(watch);
    e.go("bCqraW");
    HR(e.answer, OK);
    wrong.refused(a.connector->Disconnect(&wrong), INV); // not connected yet
    wrong.refused(a.connector->NotifyDisconnect(&wrong), INV);
    HR(a.qp->Send(nullptr, nullptr, 0, 0), INV);
    Watched::silent(a);
    e.step('K');
    HR(a.connector->NotifyDisconnect(&gone), ND_PENDING);
    HR(a.connector->Disconnect(&end), ND_PENDING);
    gone.ends(a.connector, DIS);
    end.ends(a.connector, OK);
    wrong.refused(a.connector->Disconnect(&wrong), INV);
    wrong.refused(a.connector->NotifyDisconnect(&wrong), DIS);
    wrong.refused(a.connector->CompleteConnect(&wrong), ND_CONNECTION_ABORTED);
    HR(a.connector->Reject(nullptr, 0), INV);
    // The peer sees the end once, and disconnects on its own.
    HR(p.connector->NotifyDisconnect(&late), ND_PENDING);
    late.ends(p.connector, OK);
    HR(p.connector->Disconnect(&end_too), ND_PENDING);
    end_too.ends(p.connector, OK);
    wrong.refused(p.connector->Disconnect(&wrong), INV);
    wrong.refused(p.connector->NotifyDisconnect(&wrong), DIS);
    HR(p.qp->Receive(&e, nullptr, 0), OK);
    p.expect(ND_CANCELED, &e, Nd2RequestTypeReceive);
    Watched::silent(p);
}

// Two adapters of one process, a connection each way, and one of an adapter with itself.
static void two_adapters(Watch &watch)
{
    Watched e(watch);
    Side &a = e.active, &p = e.passive;
    e.connect();
    IND2QueuePair *there = a.qp, *here = p.qp;
    e.keep();
    for (Side *side : {&a, &p}) {
        side->qp = Ends::pair(*side);
        side->make_connector();
    }
    // Back: the passive adapter connects to the active one's listener.
    Request connecting(watch), taken(watch), accepted(watch), wrong(watch);
    p.bind();
    wrong.refused(e.connect_to(p.connector, a.qp, e.other_port, &wrong), ND_INVALID_PARAMETER_1);
    wrong.refused(a.listener->GetConnectionRequest(p.connector, &wrong), ND_INVALID_PARAMETER_1);
    HR(e.connect_to(p.connector, p.qp, e.other_port, &connecting), ND_PENDING);
    HR(a.listener->GetConnectionRequest(a.connector, &taken), ND_PENDING);
    taken.ends(a.listener, OK);
    HR(a.connector->Accept(a.qp, 4, 4, nullptr, 0, &accepted), ND_PENDING);
    connecting.ends(p.connector, OK);
    HR(p.wait(p.connector, p.connector->CompleteConnect(&p.ov)), OK);
    accepted.ends(a.connector, OK);
    e.talk();
    // A region belongs to its adapter: objects and remote tokens of the other one are not to be used here.
    char memory[64] = "the other adapter's", copy[64] = {};
    IND2MemoryRegion *theirs = p.region(memory, sizeof memory, ALL), *own = a.region(copy, sizeof copy, ALL);
    IND2MemoryWindow *mw = a.window();
    HR(a.qp->Bind(&e, theirs, mw, memory, sizeof memory, ND_OP_FLAG_ALLOW_READ), ND_INVALID_PARAMETER_2);
    HR(p.qp->Bind(&e, theirs, mw, memory, sizeof memory, ND_OP_FLAG_ALLOW_READ), ND_INVALID_PARAMETER_3);
    const ND2_SGE sge = a.sge(own, copy, sizeof copy);
    HR(there->Read(&e, &sge, 1, (UINT64)(ULONG_PTR)memory, theirs->GetRemoteToken(), 0), OK);
    a.expect(OK, &e, Nd2RequestTypeRead);
    CHECK(std::strcmp(copy, memory) == 0);
    // An end of one connection is not an end of the other.
    const ND2_SGE foreign = {memory, sizeof memory, theirs->GetLocalToken()};
    HR(there->Send(&e, &foreign, 1, 0), OK);
    a.expect(AV, &e, Nd2RequestTypeSend);
    HR(here->Receive(&e, nullptr, 0), OK);
    p.expect(ND_CANCELED, &e, Nd2RequestTypeReceive);
    e.talk();
    // With itself.
    e.keep();
    IND2QueuePair *ends[] = {Ends::pair(a), Ends::pair(a)};
    IND2Connector *from = e.connector(a), *to = e.connector(a);
    const sockaddr_in any = address("127.0.0.1", 0);
    HR(from->Bind(sa(any), sizeof any), OK);
    HR(e.connect_to(from, ends[0], e.other_port, &connecting), ND_PENDING);
    HR(a.listener->GetConnectionRequest(to, &taken), ND_PENDING);
    taken.ends(to, OK);
    HR(to->Accept(ends[1], 4, 4, nullptr, 0, &accepted), ND_PENDING);
    connecting.ends(from, OK);
    HR(a.wait(from, from->CompleteConnect(&a.ov)), OK);
    accepted.ends(to, OK);
    HR(ends[1]->Receive(ends, nullptr, 0), OK);
    HR(ends[0]->Send(&e, nullptr, 0, 0), OK);
    int seen = 0;
    for (int i = 0; i < 2; ++i) {
        const ND2_RESULT r = a.result();
        HR(r.Status, OK);
        seen |= r.RequestContext == ends ? 1 : r.RequestContext == &e ? 2 : 4;
    }
    CHECK_EQ(seen, 3);
    HR(to->Disconnect(&accepted), ND_PENDING);
    accepted.ends(to, OK);
    for (IUnknown *one : {(IUnknown *)ends[0], (IUnknown *)from, (IUnknown *)to, (IUnknown *)ends[1]})
        CHECK_EQ(one->Release(), 0);
}

// Every object of version 2 asked for every identifier, and made by one that is not its own.
static void query_interface(Watch &watch)
{
    Watched e(watch);
    e.connect();
    Side &s = e.active;
    char memory[8];
    IND2SharedReceiveQueue *srq = nullptr;
    HR(s.adapter->CreateSharedReceiveQueue(IID_IND2SharedReceiveQueue, s.file, 4, 1, 1, 0, 0, (void **)&srq), OK);
    s.owned.push_back(srq);
    const struct {
        IUnknown *object;
        GUID iid;
        bool overlapped, explains, names;
    } objects[] = {
        {s.adapter, IID_IND2Adapter, false, false, true},
        {s.cq, IID_IND2CompletionQueue, true, true, false},
        {s.qp, IID_IND2QueuePair, false, true, false},
        {s.connector, IID_IND2Connector, true, false, false},
        {s.listener, IID_IND2Listener, true, false, false},
        {s.region(memory, sizeof memory, 0), IID_IND2MemoryRegion, true, false, false},
        {s.window(), IID_IND2MemoryWindow, false, false, false},
        {srq, IID_IND2SharedReceiveQueue, true, false, false},
    };
    GUID near_miss = IID_IND2Overlapped;
    near_miss.Data4[7] ^= 1;
    const GUID every[] = {
        IID_IUnknown, IID_IClassFactory, IID_IND2Overlapped, IID_IND2CompletionQueue, IID_IND2SharedReceiveQueue,
        IID_IND2MemoryWindow, IID_IND2MemoryRegion, IID_IND2QueuePair, IID_IND2Connector, IID_IND2Listener, IID_IND2Adapter,
        IID_IND2Provider, IID_INDOverlapped, IID_INDCompletionQueue, IID_INDMemoryWindow, IID_INDEndpoint, IID_INDConnector,
        IID_INDListen, IID_INDAdapter, IID_INDProvider, IID_ITransomExplain, IID_ITransomNames, near_miss, GUID{}};
    const ULONGLONG live = transom_nd_live_objects();
    for (const auto &one : objects)
        for (const GUID &iid : every) {
            const bool extension = (iid == IID_ITransomExplain && one.explains) || (iid == IID_ITransomNames && one.names);
            const bool same = iid == IID_IUnknown || iid == one.iid || (iid == IID_IND2Overlapped && one.overlapped);
            void *out = (void *)1, *back = nullptr;
            HR(one.object->QueryInterface(iid, &out), same || extension ? S_OK : E_NOINTERFACE);
            if (same)
                CHECK_EQ(out, one.object);
            if (extension) // an object of its own: no way leads back (transom_nd.h)
                HR(((IUnknown *)out)->QueryInterface(one.iid, &back), E_NOINTERFACE);
            if (same || extension)
                ((IUnknown *)out)->Release();
            else
                CHECK(out == nullptr);
            CHECK_EQ(one.object->AddRef(), 2);
            CHECK_EQ(one.object->Release(), 1);
        }
    for (const GUID &iid : every) {
        const auto made = [&](const GUID &own, bool overlapped, const std::function<HRESULT(void **)> &make) {
            void *out = (void *)1;
            const HRESULT hr = make(&out);
            if (iid == own || iid == IID_IUnknown || (iid == IID_IND2Overlapped && overlapped)) {
                HR(hr, OK);
                CHECK_EQ(((IUnknown *)out)->Release(), 0);
            } else if (iid != IID_ITransomExplain) { // which two of these have
                HR(hr, E_NOINTERFACE);
                CHECK(out == nullptr);
            } else if (hr == OK)
                ((IUnknown *)out)->Release();
        };
        IND2Adapter *a = s.adapter;
        made(IID_IND2CompletionQueue, true, [&](void **o) { return a->CreateCompletionQueue(iid, s.file, 4, 0, 0, o); });
        made(IID_IND2MemoryRegion, true, [&](void **o) { return a->CreateMemoryRegion(iid, s.file, o); });
        made(IID_IND2MemoryWindow, false, [&](void **o) { return a->CreateMemoryWindow(iid, o); });
        made(IID_IND2SharedReceiveQueue, true,
             [&](void **o) { return a->CreateSharedReceiveQueue(iid, s.file, 4, 1, 1, 0, 0, o); });
        made(IID_IND2QueuePair, false, [&](void **o) { return a->CreateQueuePair(iid, s.cq, s.cq, &e, 1, 1, 1, 1, 0, o); });
        made(IID_IND2Connector, true, [&](void **o) { return a->CreateConnector(iid, s.file, o); });
        made(IID_IND2Listener, true, [&](void **o) { return a->CreateListener(iid, s.file, o); });
    }
    CHECK_EQ(transom_nd_live_objects(), live);
    e.talk();
}

// A call that writes at most `size` bytes and says how many it needs, at every size around that.
static void sizes_of(const char *name, bool partial, const std::function<HRESULT(void *, ULONG *)> &ask)
{
    std::fprintf(stderr, "  %s\n", name);
    ULONG need = 0;
    HR(ask(nullptr, &need), ND_BUFFER_OVERFLOW);
    CHECK(need > 0 && need < 10000);
    std::vector<char> whole(need);
    const ULONG version = ND_VERSION_2; // of Query
    std::memcpy(whole.data(), &version, sizeof version);
    ULONG size = need;
    HR(ask(whole.data(), &size), OK);
    CHECK_EQ(size, need);
    for (ULONG given : {(ULONG)0, (ULONG)1, need - 1, need, need + 1, need + 64}) {
        std::vector<unsigned char> room(need + 128, 0xA5);
        if (given >= 4)
            std::memcpy(room.data(), &version, sizeof version);
        const std::vector<unsigned char> before = room;
        size = given;
        HR(ask(room.data(), &size), given < need ? ND_BUFFER_OVERFLOW : OK);
        CHECK_EQ(size, need);
        const ULONG written = given >= need ? need : partial ? given : 0;
        CHECK(std::memcmp(room.data() + written, before.data() + written, room.size() - written) == 0);
        if (partial)
            CHECK(std::memcmp(room.data(), whole.data(), written) == 0);
    }
    // No buffer, and a size as if there were one.
    size = need;
    CHECK(FAILED(ask(nullptr, &size)));
}

static void buffer_sizes(Watch &watch)
{
    Watched e(watch);
    e.connect();
    Side &a = e.active, &p = e.passive;
    sizes_of("Query", false, [&](void *to, ULONG *size) { return a.adapter->Query((ND2_ADAPTER_INFO *)to, size); });
    sizes_of("QueryAddressList", false, [&](void *to, ULONG *size) {
        return a.adapter->QueryAddressList((SOCKET_ADDRESS_LIST *)to, size);
    });
    for (Side *side : {&a, &p}) {
        sizes_of("the listener's address", false, [&](void *to, ULONG *size) {
            return side->listener->GetLocalAddress((sockaddr *)to, size);
        });
        sizes_of("the local address", false, [&](void *to, ULONG *size) {
            return side->connector->GetLocalAddress((sockaddr *)to, size);
        });
        sizes_of("the peer's address", false, [&](void *to, ULONG *size) {
            return side->connector->GetPeerAddress((sockaddr *)to, size);
        });
        sizes_of("private data", true, [&](void *to, ULONG *size) { return side->connector->GetPrivateData(to, size); });
    }
    CHECK(private_data(a.connector) == "welcome" && private_data(p.connector) == "hello");
    e.talk();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(Watch &);
    } cases[] = {
        {"connect_twice", connect_twice},
        {"listen_order", listen_order},
        {"accept_without_request", accept_without_request},
        {"unconnected_pair", unconnected_pair},
        {"bind_unregistered", bind_unregistered},
        {"deregister_bound", deregister_bound},
        {"end_twice", end_twice},
        {"release_order", release_order},
        {"two_adapters", two_adapters},
        {"cancel_connector", cancel_connector},
        {"cancel_listener", cancel_listener},
        {"cancel_notify", cancel_notify},
        {"result_before_end", result_before_end},
        {"overlapped_again", overlapped_again},
        {"query_interface", query_interface},
        {"buffer_sizes", buffer_sizes},
    };
    time_limit(300);
    const std::string way = argc > 1 ? argv[1] : "", only = argc > 2 ? argv[2] : "";
    CHECK(way == "event" || way == "port");
    int done = 0;
    for (const auto &one : cases)
        if (only.empty() || only == one.name) {
            std::fprintf(stderr, "%s\n", one.name); // the last one named is the one that failed
            {
                Watch watch(way == "port");
                one.run(watch);
            }
            CHECK_EQ(transom_nd_live_objects(), 0);
            ++done;
        }
    CHECK(done > 0);
    return 0;
}
