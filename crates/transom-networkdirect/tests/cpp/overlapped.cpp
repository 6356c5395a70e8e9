// ND2 2.3: every overlapped call, driven in each way that a program may drive it: overlapped WAY, with WAY one of
// poll, event, event1 (hEvent with bit 0 set) and port (a completion port with four threads); or overlapped cancel.
#include "nd_scene.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

struct Packet {
    OVERLAPPED *ov;
    BOOL done;
    int count;
};

// Four threads that take packets from one port.
struct Port {
    HANDLE handle = CreateIoCompletionPort(INVALID_HANDLE_VALUE, nullptr, 0, 4);
    std::mutex lock;
    std::condition_variable changed;
    std::map<OVERLAPPED *, Packet> packets;
    std::vector<std::thread> threads;

    explicit Port(int count)
    {
        for (int i = 0; i < count; ++i)
            threads.emplace_back([this] { take(); });
    }
    ~Port()
    {
        for (size_t i = 0; i < threads.size(); ++i)
            CHECK(PostQueuedCompletionStatus(handle, 0, 0, nullptr));
        for (std::thread &one : threads)
            one.join();
        DWORD bytes;
        ULONG_PTR key;
        OVERLAPPED *ov = nullptr;
        CHECK(!GetQueuedCompletionStatus(handle, &bytes, &key, &ov, 0)); // nothing nobody has asked for
        CloseHandle(handle);
    }
    void take()
    {
        DWORD bytes;
        ULONG_PTR key;
        for (;;) {
            OVERLAPPED *ov = nullptr;
            const BOOL done = GetQueuedCompletionStatus(handle, &bytes, &key, &ov, INFINITE);
            if (!ov)
                return;
            std::lock_guard<std::mutex> guard(lock);
            Packet &packet = packets[ov];
            packet = Packet{ov, done, packet.count + 1};
            changed.notify_all();
        }
    }
    Packet wait(OVERLAPPED *ov)
    {
        std::unique_lock<std::mutex> guard(lock);
        changed.wait(guard, [&] { return packets.count(ov) != 0; });
        const Packet packet = packets[ov];
        packets.erase(ov);
        return packet;
    }
    bool is_empty()
    {
        std::lock_guard<std::mutex> guard(lock);
        return packets.empty();
    }
};

enum Way { Poll, Event, EventOnly, ByPort };

// An overlapped call, from its start to its end.
struct Call {
    Way way;
    Port *port;
    HANDLE event = CreateEvent(nullptr, TRUE, TRUE, nullptr); // signalled: the start resets it (2.3 rule 3)
    OVERLAPPED ov;

    Call(Way way_, Port *port_) : way(way_), port(port_)
    {
        std::memset(&ov, 0xCD, sizeof ov); // as memory of a stack may be
        ov.hEvent = way == Event ? event : way == EventOnly ? (HANDLE)((ULONG_PTR)event | 1) : nullptr;
    }
    ~Call() { CloseHandle(event); }
    OVERLAPPED *operator&() { return &ov; }

    // The object it was called on, and how it shall end. `after`: what brings the end about.
    void ends(IND2Overlapped *object, HRESULT status)
    {
        switch (way) {
        case Poll:
            while (object->GetOverlappedResult(&ov, FALSE) == ND_PENDING)
                Sleep(0);
            break;
        case Event:
        case EventOnly:
            CHECK_EQ(WaitForSingleObject(event, INFINITE), WAIT_OBJECT_0);
            break;
        case ByPort: {
            const Packet packet = port->wait(&ov);
            CHECK_EQ(packet.count, 1);
            CHECK_EQ(packet.done, status >= 0); // a failed request is a failed packet (2.3 rule 5)
            break;
        }
        }
        HR(object->GetOverlappedResult(&ov, FALSE), status);
        HR(object->GetOverlappedResult(&ov, TRUE), status);
        CHECK_EQ((UINT32)ov.Internal, internal(status));
        if (way == EventOnly)
            CHECK(port->is_empty());
    }
};

static void every_call(Way way)
{
    Port port(way == Poll || way == Event ? 0 : 4);
    {
        Ends e;
        Side &a = e.active, &p = e.passive;
        for (Side *side : {&a, &p}) {
            side->ov = {}; // its own calls, without event and packet, are not what is tried here
            if (way == EventOnly || way == ByPort)
                CHECK(CreateIoCompletionPort(side->file, port.handle, 7, 0) == port.handle);
        }
        const sockaddr_in from = address("127.0.0.1", 0), to = address("127.0.0.1", e.port), nobody = address("127.0.0.1", 1);
        const auto call = [&] { return Call(way, &port); };

        // A region.
        char memory[64];
        IND2MemoryRegion *mr = nullptr;
        HR(a.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, a.file, (void **)&mr), ND_SUCCESS);
        Call registered = call(), deregistered = call();
        HR(mr->Register(memory, sizeof memory, 0, &registered), ND_PENDING);
        registered.ends(mr, ND_SUCCESS);
        HR(mr->Deregister(&deregistered), ND_PENDING);
        deregistered.ends(mr, ND_SUCCESS);
        mr->Release();

        // Notifications of a completion queue: three at once, of all kinds; all end together (ND2 N3).
        Call any = call(), second = call(), errors = call();
        HR(a.cq->Notify(ND_CQ_NOTIFY_ANY, &any), ND_PENDING);
        HR(a.cq->Notify(ND_CQ_NOTIFY_SOLICITED, &second), ND_PENDING);
        HR(a.cq->Notify(ND_CQ_NOTIFY_ERRORS, &errors), ND_PENDING);
        IND2QueuePair *qp = Ends::pair(a);
        HR(qp->Receive(nullptr, nullptr, 0), ND_SUCCESS);
        HR(qp->Flush(), ND_SUCCESS);
        any.ends(a.cq, ND_SUCCESS);
        second.ends(a.cq, ND_SUCCESS);
        HR(a.cq->GetOverlappedResult(&errors, FALSE), ND_PENDING); // ND2 N7
        HR(a.cq->CancelOverlappedRequests(), ND_SUCCESS);
        errors.ends(a.cq, ND_CANCELED);
        qp->Release();

        // Notifications of a shared receive queue.
        IND2SharedReceiveQueue *srq = nullptr;
        HR(a.adapter->CreateSharedReceiveQueue(IID_IND2SharedReceiveQueue, a.file, 4, 1, 2, 0, 0, (void **)&srq), ND_SUCCESS);
        Call few = call(), never = call();
        HR(srq->Notify(&few), ND_PENDING); // fewer than two are outstanding
        few.ends(srq, ND_SUCCESS);
        HR(srq->Receive(nullptr, nullptr, 0), ND_SUCCESS);
        HR(srq->Receive(nullptr, nullptr, 0), ND_SUCCESS);
        HR(srq->Notify(&never), ND_PENDING);
        HR(srq->CancelOverlappedRequests(), ND_SUCCESS);
        never.ends(srq, ND_CANCELED);
        srq->Release();

        // A connection, from the request to both ends.
        e.fresh();
        Call request = call(), connect = call(), accept = call(), complete = call(), gone = call(), end = call(), last = call();
        HR(p.listener->GetConnectionRequest(p.connector, &request), ND_PENDING);
        HR(a.connector->Bind(sa(from), sizeof from), ND_SUCCESS);
        HR(a.connector->Connect(a.qp, sa(to), sizeof to, 0, 0, nullptr, 0, &connect), ND_PENDING);
        request.ends(p.listener, ND_SUCCESS);
        HR(p.connector->Accept(p.qp, 0, 0, nullptr, 0, &accept), ND_PENDING);
        connect.ends(a.connector, ND_SUCCESS);
        HR(a.connector->CompleteConnect(&complete), ND_PENDING);
        complete.ends(a.connector, ND_SUCCESS);
        accept.ends(p.connector, ND_SUCCESS);
        HR(a.connector->NotifyDisconnect(&gone), ND_PENDING);
        HR(p.connector->Disconnect(&end), ND_PENDING);
        end.ends(p.connector, ND_SUCCESS);
        gone.ends(a.connector, ND_SUCCESS);
        HR(a.connector->Disconnect(&last), ND_PENDING);
        last.ends(a.connector, ND_SUCCESS);

        // Calls that fail later: refused by nobody's port, by the program, by the active side.
        e.go("b");
        Call refused = call(), rejected = call(), taken_back = call(), turned = call();
        HR(a.connector->Connect(a.qp, sa(nobody), sizeof nobody, 0, 0, nullptr, 0, &refused), ND_PENDING);
        refused.ends(a.connector, ND_CONNECTION_REFUSED);
        HR(p.listener->GetConnectionRequest(p.connector, &turned), ND_PENDING);
        HR(a.connector->Connect(a.qp, sa(to), sizeof to, 0, 0, nullptr, 0, &rejected), ND_PENDING);
        turned.ends(p.listener, ND_SUCCESS);
        HR(p.connector->Reject(nullptr, 0), ND_SUCCESS);
        rejected.ends(a.connector, ND_CONNECTION_REFUSED);
        Ends::drop(p.connector);
        p.make_connector();
        Call again = call(), asked = call();
        HR(p.listener->GetConnectionRequest(p.connector, &asked), ND_PENDING);
        HR(a.connector->Connect(a.qp, sa(to), sizeof to, 0, 0, nullptr, 0, &again), ND_PENDING);
        asked.ends(p.listener, ND_SUCCESS);
        HR(p.connector->Accept(p.qp, 0, 0, nullptr, 0, &taken_back), ND_PENDING);
        again.ends(a.connector, ND_SUCCESS);
        HR(a.connector->Reject(nullptr, 0), ND_SUCCESS);
        taken_back.ends(p.connector, ND_CONNECTION_REFUSED);
    }
}

// Cancel finds its packets already queued when it returns, in the order of the requests, and only its object's.
static void cancels()
{
    Ends e;
    Side &a = e.active, &p = e.passive;
    const HANDLE port = CreateIoCompletionPort(a.file, nullptr, 7, 0);
    CHECK(CreateIoCompletionPort(p.file, port, 8, 0) == port);
    a.ov.hEvent = (HANDLE)((ULONG_PTR)a.ov.hEvent | 1); // no packets of these
    p.ov.hEvent = (HANDLE)((ULONG_PTR)p.ov.hEvent | 1);
    const auto next = [&](DWORD error) -> OVERLAPPED * {
        DWORD bytes;
        ULONG_PTR key;
        OVERLAPPED *ov = nullptr;
        const BOOL done = GetQueuedCompletionStatus(port, &bytes, &key, &ov, 0);
        CHECK(!done);
        CHECK_EQ(GetLastError(), ov ? error : WAIT_TIMEOUT);
        return ov;
    };
    OVERLAPPED ov[3];
    const auto expect_all = [&](IND2Overlapped *object, int count) {
        CHECK(next(ERROR_OPERATION_ABORTED) == nullptr);
        HR(object->CancelOverlappedRequests(), ND_SUCCESS);
        for (int i = 0; i < count; ++i) {
            CHECK(next(ERROR_OPERATION_ABORTED) == &ov[i]);
            HR(object->GetOverlappedResult(&ov[i], FALSE), ND_CANCELED);
        }
        CHECK(next(ERROR_OPERATION_ABORTED) == nullptr);
        HR(object->CancelOverlappedRequests(), ND_SUCCESS); // nothing is left, and that is fine
    };
    std::memset(ov, 0, sizeof ov);

    for (OVERLAPPED &one : ov) // a completion queue
        HR(a.cq->Notify(&one == ov + 1 ? ND_CQ_NOTIFY_ERRORS : ND_CQ_NOTIFY_ANY, &one), ND_PENDING);
    expect_all(a.cq, 3);

    IND2SharedReceiveQueue *srq = nullptr; // a shared receive queue
    HR(a.adapter->CreateSharedReceiveQueue(IID_IND2SharedReceiveQueue, a.file, 4, 1, 1, 0, 0, (void **)&srq), ND_SUCCESS);
    a.owned.push_back(srq);
    HR(srq->Receive(nullptr, nullptr, 0), ND_SUCCESS);
    for (OVERLAPPED &one : ov)
        HR(srq->Notify(&one), ND_PENDING);
    expect_all(srq, 3);

    IND2Connector *waiting[3]; // a listener
    for (int i = 0; i < 3; ++i) {
        HR(p.adapter->CreateConnector(IID_IND2Connector, p.file, (void **)&waiting[i]), ND_SUCCESS);
        HR(p.listener->GetConnectionRequest(waiting[i], &ov[i]), ND_PENDING);
    }
    expect_all(p.listener, 3);
    for (IND2Connector *one : waiting)
        CHECK_EQ(one->Release(), 0);

    e.connect(); // a connector: what waits for the peer's end
    for (OVERLAPPED &one : ov)
        HR(a.connector->NotifyDisconnect(&one), ND_PENDING);
    expect_all(a.connector, 3);
    HR(a.connector->NotifyDisconnect(&ov[0]), ND_PENDING); // a local Disconnect ends it first (ND2 C33)
    HR(a.connector->Disconnect(&ov[1]), ND_PENDING);
    CHECK(next(packet_error(ERROR_GEN_FAILURE)) == &ov[0] || !"NotifyDisconnect comes first");
    HR(a.connector->GetOverlappedResult(&ov[0], FALSE), 0xC000020C);
    DWORD bytes;
    ULONG_PTR key;
    OVERLAPPED *got = nullptr;
    CHECK(GetQueuedCompletionStatus(port, &bytes, &key, &got, 0) && got == &ov[1]);

    e.go("b"); // a Connect that nobody answers
    const sockaddr_in to = address("127.0.0.1", e.port);
    HR(a.connector->Connect(a.qp, sa(to), sizeof to, 0, 0, nullptr, 0, &ov[0]), ND_PENDING);
    expect_all(a.connector, 1);
    CloseHandle(port);
}

int main(int argc, char **argv)
{
    time_limit(300);
    const std::string which = argc > 1 ? argv[1] : "";
    const std::map<std::string, Way> ways = {{"poll", Poll}, {"event", Event}, {"event1", EventOnly}, {"port", ByPort}};
    if (which == "cancel")
        cancels();
    else {
        CHECK(ways.count(which));
        every_call(ways.at(which));
    }
    CHECK_EQ(transom_nd_live_objects(), 0);
    return 0;
}
