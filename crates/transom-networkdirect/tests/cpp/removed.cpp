// A device that is removed: its address is taken away, on a machine of this process's own (ND2 4.5, "Device
// removed": new calls and pending overlapped requests answer ND_DEVICE_REMOVED, only what cleans up succeeds).

#include "nd1_test.h"

#include <sched.h>

#include <cstdlib>
#include <string>

constexpr const char *OURS = "10.203.8.1", *PEERS = "10.203.8.2";

inline bool ip(const std::string &arguments)
{
    return std::system(("ip " + arguments + " 2>/dev/null").c_str()) == 0;
}

// Before there are threads. `false`, and a sentence, where that cannot be had.
inline bool own_machine()
{
    const bool own = (unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) && ip("link set lo up") &&
                     ip("link add removable type veth peer name other") && ip("link set removable up") && ip("link set other up") &&
                     ip(std::string("addr add ") + OURS + "/32 dev removable") && ip(std::string("addr add ") + PEERS + "/32 dev other");
    if (!own)
        std::fprintf(stderr, "SKIPPED: no network namespace may be made here, or there is no ip (package iproute2)\n");
    return own;
}

inline void remove_our_address() { CHECK(ip(std::string("addr del ") + OURS + "/32 dev removable")); }

// A program that lets others connect, and says nothing.
struct Silent {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at = address(PEERS, 0);
    Silent()
    {
        socklen_t size = sizeof at;
        CHECK(bind(fd, sa(at), sizeof at) == 0 && listen(fd, 1) == 0 && getsockname(fd, (sockaddr *)&at, &size) == 0);
    }
    ~Silent() { close(fd); }
};

constexpr HRESULT GONE = ND_DEVICE_REMOVED;

static HRESULT end_of(IND2Overlapped *object, OVERLAPPED &ov) { return object->GetOverlappedResult(&ov, TRUE); }
static HRESULT end_of(INDOverlapped *object, OVERLAPPED &ov)
{
    SIZE_T bytes;
    return object->GetOverlappedResult(&ov, &bytes, TRUE);
}

// Up to the point where `passive` holds the request of `active`.
static void offer(Side &active, Side &passive)
{
    if (!passive.listener)
        passive.listen(OURS);
    sockaddr_in at;
    ULONG size = sizeof at;
    HR(passive.listener->GetLocalAddress((sockaddr *)&at, &size), ND_SUCCESS);
    passive.make_connector();
    HR(passive.listener->GetConnectionRequest(passive.connector, &passive.ov), ND_PENDING);
    active.bind(PEERS);
    HR(active.connector->Connect(active.qp, sa(at), sizeof at, 4, 4, nullptr, 0, &active.ov), ND_PENDING);
    HR(end_of(passive.listener, passive.ov), ND_SUCCESS);
}

static void version_2()
{
    Side peer(PEERS), s(OURS);
    peer.make_queues();
    s.make_queues();
    offer(peer, s);
    HR(s.connector->Accept(s.qp, 4, 4, nullptr, 0, &s.ov), ND_PENDING);
    HR(end_of(peer.connector, peer.ov), ND_SUCCESS);
    HR(peer.wait(peer.connector, peer.connector->CompleteConnect(&peer.ov)), ND_SUCCESS);
    HR(end_of(s.connector, s.ov), ND_SUCCESS);

    // The objects that a program may hold.
    char buffer[256] = {};
    IND2MemoryRegion *mr = s.region(buffer, sizeof buffer, ND_MR_FLAG_ALLOW_LOCAL_WRITE), *unregistered = nullptr;
    HR(s.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, s.file, (void **)&unregistered), ND_SUCCESS);
    s.owned.push_back(unregistered);
    IND2MemoryWindow *mw = s.window();
    HR(s.qp->Bind(&s, mr, mw, buffer, sizeof buffer, ND_OP_FLAG_ALLOW_READ), ND_SUCCESS);
    s.expect(ND_SUCCESS, &s, Nd2RequestTypeBind);
    const ND2_SGE sge = s.sge(mr, buffer, sizeof buffer);
    HR(s.qp->Receive(&peer, nullptr, 0), ND_SUCCESS);
    HR(s.qp->Receive(&s, &sge, 1), ND_SUCCESS);

    // A request of each kind that waits.
    Request disconnects, requests, arrivals, refills, connects, accepts;
    HR(s.connector->NotifyDisconnect(&disconnects), ND_PENDING);
    IND2Connector *waiting = nullptr, *connecting = nullptr;
    for (IND2Connector **one : {&waiting, &connecting}) {
        HR(s.adapter->CreateConnector(IID_IND2Connector, s.file, (void **)one), ND_SUCCESS);
        s.owned.push_back(*one);
    }
    IND2CompletionQueue *cq = nullptr;
    HR(s.adapter->CreateCompletionQueue(IID_IND2CompletionQueue, s.file, 8, 0, 0, (void **)&cq), ND_SUCCESS);
    s.owned.push_back(cq);
    HR(cq->Notify(ND_CQ_NOTIFY_ERRORS, &arrivals), ND_PENDING);
    IND2SharedReceiveQueue *srq = nullptr;
    HR(s.adapter->CreateSharedReceiveQueue(IID_IND2SharedReceiveQueue, s.file, 8, 1, 1, 0, 0, (void **)&srq), ND_SUCCESS);
    s.owned.push_back(srq);
    HR(srq->Receive(nullptr, nullptr, 0), ND_SUCCESS);
    HR(srq->Notify(&refills), ND_PENDING);
    IND2QueuePair *unused = nullptr;
    HR(s.adapter->CreateQueuePair(IID_IND2QueuePair, cq, cq, nullptr, 4, 4, 1, 1, 0, (void **)&unused), ND_SUCCESS);
    s.owned.push_back(unused);
    const Silent silent;
    const sockaddr_in from = address(OURS, 0);
    HR(connecting->Bind(sa(from), sizeof from), ND_SUCCESS);
    HR(connecting->Connect(unused, sa(silent.at), sizeof silent.at, 1, 1, nullptr, 0, &connects), ND_PENDING);
    Side half(PEERS);
    half.make_queues();
    IND2Connector *first = s.connector;
    s.owned.push_back(first);
    offer(half, s);
    IND2QueuePair *accepting = nullptr;
    HR(s.adapter->CreateQueuePair(IID_IND2QueuePair, cq, cq, nullptr, 4, 4, 1, 1, 0, (void **)&accepting), ND_SUCCESS);
    s.owned.push_back(accepting);
    HR(s.connector->Accept(accepting, 1, 1, nullptr, 0, &accepts), ND_PENDING);
    HR(end_of(half.connector, half.ov), ND_SUCCESS); // and it never completes
    HR(s.listener->GetConnectionRequest(waiting, &requests), ND_PENDING);

    remove_our_address();
    HR(end_of(first, disconnects), GONE);
    HR(end_of(s.listener, requests), GONE);
    HR(end_of(cq, arrivals), GONE);
    HR(end_of(srq, refills), GONE);
    HR(end_of(connecting, connects), GONE);
    HR(end_of(s.connector, accepts), GONE);

    // Requests that were posted, and those posted now, are canceled and can be retrieved.
    s.expect(ND_CANCELED, &peer, Nd2RequestTypeReceive);
    s.expect(ND_CANCELED, &s, Nd2RequestTypeReceive);
    HR(s.qp->Send(&peer, nullptr, 0, 0), ND_SUCCESS);
    s.expect(ND_CANCELED, &peer, Nd2RequestTypeSend);
    HR(unused->Send(nullptr, nullptr, 0, 0), ND_CONNECTION_INVALID);

    // New calls.
    void *none = nullptr;
    HANDLE file = nullptr;
    IND2Adapter *a = s.adapter;
    HR(a->CreateOverlappedFile(&file), GONE);
    HR(a->CreateCompletionQueue(IID_IND2CompletionQueue, s.file, 8, 0, 0, &none), GONE);
    HR(a->CreateMemoryRegion(IID_IND2MemoryRegion, s.file, &none), GONE);
    HR(a->CreateMemoryWindow(IID_IND2MemoryWindow, &none), GONE);
    HR(a->CreateSharedReceiveQueue(IID_IND2SharedReceiveQueue, s.file, 8, 1, 0, 0, 0, &none), GONE);
    HR(a->CreateQueuePair(IID_IND2QueuePair, s.cq, s.cq, nullptr, 1, 1, 1, 1, 0, &none), GONE);
    HR(a->CreateQueuePairWithSrq(IID_IND2QueuePair, s.cq, s.cq, srq, nullptr, 1, 1, 0, &none), GONE);
    HR(a->CreateConnector(IID_IND2Connector, s.file, &none), GONE);
    HR(a->CreateListener(IID_IND2Listener, s.file, &none), GONE);
    CHECK(!none && !file);
    Request ov;
    USHORT group = 7;
    KAFFINITY affinity = 7;
    HR(unregistered->Register(buffer, sizeof buffer, 0, &ov), GONE);
    HR(cq->Notify(ND_CQ_NOTIFY_ANY, &ov), GONE);
    HR(cq->Resize(16), GONE);
    HR(cq->GetNotifyAffinity(&group, &affinity), GONE);
    HR(srq->Notify(&ov), GONE);
    HR(srq->Modify(16, 0), GONE);
    HR(srq->GetNotifyAffinity(&group, &affinity), GONE);
    CHECK(group == 7 && affinity == 7);
    HR(s.listener->GetConnectionRequest(waiting, &ov), GONE);
    HR(waiting->Bind(sa(from), sizeof from), GONE);
    HR(connecting->Connect(unused, sa(silent.at), sizeof silent.at, 1, 1, nullptr, 0, &ov), GONE);
    HR(connecting->CompleteConnect(&ov), GONE);
    HR(s.connector->Accept(accepting, 1, 1, nullptr, 0, &ov), GONE);
    HR(s.connector->Reject(nullptr, 0), GONE);
    HR(first->NotifyDisconnect(&ov), GONE);
    HR(ov.Internal, GONE);

    // The calls that clean up.
    for (IND2Overlapped *one : std::initializer_list<IND2Overlapped *>{cq, srq, first, connecting, s.connector, s.listener, mr})
        HR(one->CancelOverlappedRequests(), ND_SUCCESS);
    HR(s.wait(first, first->Disconnect(&s.ov)), ND_SUCCESS);
    HR(s.qp->Flush(), ND_SUCCESS);
    HR(s.wait(mr, mr->Deregister(&s.ov)), ND_SUCCESS); // the window on it has died with its connection

    // The address is back; so is a device, which is another one.
    CHECK(ip(std::string("addr add ") + OURS + "/32 dev removable"));
    HR(a->CreateMemoryWindow(IID_IND2MemoryWindow, &none), GONE);
    Side again(OURS);
    again.make_queues();
    again.window();
}

// An address whose interface is down is none that an adapter can be opened for (ND2 2.4).
static void down()
{
    Side other(PEERS);
    const sockaddr_in ours = address(OURS, 0);
    HR(NdCheckAddress(sa(ours), sizeof ours), ND_SUCCESS);
    CHECK(ip("link set removable down"));
    HR(NdCheckAddress(sa(ours), sizeof ours), ND_INVALID_ADDRESS);
    IND2Adapter *none = nullptr;
    HR(NdOpenAdapter(IID_IND2Adapter, sa(ours), sizeof ours, (void **)&none), ND_INVALID_ADDRESS);
    CHECK(ip("link set removable up"));
    HR(NdCheckAddress(sa(ours), sizeof ours), ND_SUCCESS);
}

static void version_1()
{
    Node a(PEERS), b(OURS);
    Listening listening(b), other(b);
    const auto connect = [](End &end, const sockaddr_in &to) {
        HR(end.connector->Connect(end.endpoint, sa(to), sizeof to, 6, 0, nullptr, 0, &end.ov), ND_PENDING);
    };
    const sockaddr_in there = address(OURS, listening.port);
    const auto reach = [&](End &x, End &y) {
        HR(listening.listen->GetConnectionRequest(y.connector, &y.ov), ND_PENDING);
        x.make_endpoint();
        y.make_endpoint();
        connect(x, there);
        HR(end_of(y.connector, y.ov), ND_SUCCESS);
        listening.accept(x, y);
    };
    End x(a), y(b), half(a), accepting(b), waiting(b), connecting(b);
    reach(x, y);
    HR(x.complete(), ND_SUCCESS);
    HR(end_of(y.connector, y.ov), ND_SUCCESS);
    ND_RESULT invalidated, received;
    INDMemoryWindow *mw = b.window(invalidated);
    y.bound(mw, 0, 64, MAY_READ);
    y.receive(received);
    Request disconnects, arrivals, ov;
    HR(y.connector->NotifyDisconnect(&disconnects), ND_PENDING);
    INDCompletionQueue *cq = b.queue(4);
    HR(cq->Notify(ND_CQ_NOTIFY_ERRORS, &arrivals), ND_PENDING);
    HR(other.listen->GetConnectionRequest(waiting.connector, &waiting.ov), ND_PENDING);
    reach(half, accepting);
    const Silent silent;
    connecting.make_endpoint();
    connect(connecting, silent.at);

    remove_our_address();
    HR(end_of(y.connector, disconnects), GONE);
    HR(end_of(cq, arrivals), GONE);
    HR(end_of(waiting.connector, waiting.ov), GONE);
    HR(end_of(accepting.connector, accepting.ov), GONE);
    HR(end_of(connecting.connector, connecting.ov), GONE);
    ND_RESULT *got = nullptr;
    while (y.in->GetResults(&got, 1) == 0)
        Sleep(0);
    CHECK_EQ(got, &received);
    HR(received.Status, ND_CANCELED);

    ND_MR_HANDLE mr = nullptr;
    INDCompletionQueue *no_queue = nullptr;
    INDConnector *no_connector = nullptr;
    INDMemoryWindow *no_window = nullptr;
    INDEndpoint *no_endpoint = nullptr;
    INDListen *no_listen = nullptr;
    USHORT port = 0;
    HR(b.adapter->RegisterMemory(b.buffer, 8, &ov, &mr), GONE);
    HR(b.adapter->CreateCompletionQueue(4, &no_queue), GONE);
    HR(b.adapter->CreateConnector(&no_connector), GONE);
    HR(b.adapter->CreateMemoryWindow(&invalidated, &no_window), GONE);
    HR(b.adapter->Listen(0, 6, 0, &port, &no_listen), GONE);
    HR(waiting.connector->CreateEndpoint(waiting.in, waiting.out, 4, 4, 4, 4, 1, 1, nullptr, &no_endpoint), GONE);
    CHECK(!mr && !no_queue && !no_connector && !no_window && !no_endpoint && !no_listen);
    HR(cq->Notify(ND_CQ_NOTIFY_ANY, &ov), GONE);
    HR(cq->Resize(8), GONE);
    HR(connecting.connector->Connect(connecting.endpoint, sa(silent.at), sizeof silent.at, 6, 0, nullptr, 0, &ov), GONE);
    HR(accepting.connector->Accept(accepting.endpoint, nullptr, 0, &ov), GONE);
    HR(accepting.connector->Reject(nullptr, 0), GONE);
    HR(y.connector->NotifyDisconnect(&ov), GONE);
    HR(listening.listen->GetConnectionRequest(waiting.connector, &ov), GONE);

    HR(b.adapter->CancelOverlappedRequests(), ND_SUCCESS);
    HR(y.disconnect(), ND_SUCCESS);
    mw->Release();
    cq->Release();
}

int main(int argc, char **argv)
{
    if (!own_machine())
        return 0;
    return run_case(argc, argv, {{"version_2", version_2}, {"version_1", version_1}, {"down", down}});
}
