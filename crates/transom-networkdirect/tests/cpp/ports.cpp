// Overlapped files on Windows: what a program can do to a request with the system's own calls, and that it comes to
// no harm (docs/windows.md).
#include "nd_test.h"

#include <thread>

struct Packet {
    BOOL done = FALSE;
    OVERLAPPED *ov = nullptr;
    DWORD error = 0;
};

// A completion queue whose notifications are requests that stay until they are canceled, and a port.
struct Bench {
    Side side;
    HANDLE port = CreateIoCompletionPort(side.file, nullptr, 7, 0);
    IND2QueuePair *pair;

    Bench()
    {
        CHECK(port);
        side.make_queues();
        pair = side.qp;
    }
    ~Bench()
    {
        if (port) {
            CHECK(next().ov == nullptr);
            CloseHandle(port);
        }
    }
    Packet next()
    {
        Packet packet;
        DWORD bytes;
        ULONG_PTR key;
        packet.done = GetQueuedCompletionStatus(port, &bytes, &key, &packet.ov, 0);
        packet.error = packet.done ? 0 : GetLastError();
        return packet;
    }
    void asks(OVERLAPPED &ov)
    {
        HR(side.cq->Notify(ND_CQ_NOTIFY_ANY, &ov), ND_PENDING);
        CHECK_EQ(ov.Internal, STATUS_PENDING);
        CHECK(next().ov == nullptr);
    }
    // The event that the notifications wait for.
    void happens()
    {
        HR(pair->Receive(nullptr, nullptr, 0), ND_SUCCESS);
        HR(pair->Flush(), ND_SUCCESS);
        ND2_RESULT r;
        CHECK_EQ(side.cq->GetResults(&r, 1), 1);
    }
    void succeeded(OVERLAPPED &ov)
    {
        const Packet packet = next();
        CHECK(packet.done && packet.ov == &ov);
        HR(side.cq->GetOverlappedResult(&ov, FALSE), ND_SUCCESS);
    }
    void canceled(OVERLAPPED &ov)
    {
        const Packet packet = next();
        CHECK(!packet.done && packet.ov == &ov);
        CHECK_EQ(packet.error, ERROR_OPERATION_ABORTED);
        HR(side.cq->GetOverlappedResult(&ov, FALSE), ND_CANCELED);
    }
};

// A request that has ended is not ended again, by whatever call.
static void finished()
{
    Bench b;
    OVERLAPPED ov = {};
    b.asks(ov);
    b.happens();
    for (int i = 0; i < 2; ++i) {
        HR(b.side.cq->CancelOverlappedRequests(), ND_SUCCESS);
        CancelIoEx(b.side.file, &ov);
        CancelIoEx(b.side.file, nullptr);
        CancelIo(b.side.file);
    }
    b.succeeded(ov);
    HR(b.side.cq->CancelOverlappedRequests(), ND_SUCCESS);
    CHECK(b.next().ov == nullptr);
    HR(b.side.cq->GetOverlappedResult(&ov, TRUE), ND_SUCCESS);
    b.asks(ov);
    HR(b.side.cq->CancelOverlappedRequests(), ND_SUCCESS);
    CancelIoEx(b.side.file, &ov);
    HR(b.side.cq->CancelOverlappedRequests(), ND_SUCCESS);
    b.canceled(ov);
}

// The system's own cancel does not end a request, NetworkDirect's does.
static void system_cancel()
{
    Bench b;
    OVERLAPPED first = {}, second = {};
    b.asks(first);
    b.asks(second);
    CHECK(!CancelIoEx(b.side.file, &first));
    CHECK_EQ(GetLastError(), ERROR_NOT_FOUND);
    CancelIoEx(b.side.file, nullptr);
    CancelIo(b.side.file);
    CHECK(b.next().ov == nullptr);
    HR(b.side.cq->GetOverlappedResult(&first, FALSE), ND_PENDING);
    b.happens();
    b.succeeded(first);
    b.succeeded(second);
    b.asks(second);
    HR(b.side.cq->CancelOverlappedRequests(), ND_SUCCESS);
    b.canceled(second);
}

// The end of a port takes its packets with it; requests end all the same.
static void closed_port()
{
    Bench b;
    OVERLAPPED queued = {}, waits = {}, later = {};
    waits.hEvent = CreateEvent(nullptr, FALSE, FALSE, nullptr);
    b.asks(queued);
    b.happens();
    HR(b.side.cq->Notify(ND_CQ_NOTIFY_ANY, &waits), ND_PENDING);
    CloseHandle(b.port);
    b.port = nullptr;
    HR(b.side.cq->GetOverlappedResult(&queued, FALSE), ND_SUCCESS);
    HR(b.side.cq->GetOverlappedResult(&waits, FALSE), ND_PENDING);
    b.happens();
    CHECK_EQ(WaitForSingleObject(waits.hEvent, INFINITE), WAIT_OBJECT_0);
    HR(b.side.cq->GetOverlappedResult(&waits, TRUE), ND_SUCCESS);
    HR(b.side.cq->Notify(ND_CQ_NOTIFY_ANY, &later), ND_PENDING);
    HR(b.side.cq->CancelOverlappedRequests(), ND_SUCCESS);
    HR(b.side.cq->GetOverlappedResult(&later, TRUE), ND_CANCELED);
    CloseHandle(waits.hEvent);
}

// A thread may end before the request that it began.
static void threads()
{
    Bench b;
    OVERLAPPED ov[2] = {};
    std::thread([&] { b.asks(ov[0]); }).join();
    b.asks(ov[1]);
    HR(b.side.cq->GetOverlappedResult(&ov[0], FALSE), ND_PENDING);
    std::thread([&] { b.happens(); }).join();
    b.succeeded(ov[0]);
    b.succeeded(ov[1]);
}

// An event that is closed meanwhile is signaled all the same for those who have another handle of it.
static void closed_event()
{
    Bench b;
    const HANDLE event = CreateEvent(nullptr, FALSE, FALSE, nullptr);
    HANDLE other = nullptr;
    CHECK(DuplicateHandle(GetCurrentProcess(), event, GetCurrentProcess(), &other, 0, FALSE, DUPLICATE_SAME_ACCESS));
    OVERLAPPED ov = {};
    ov.hEvent = event;
    b.asks(ov);
    CloseHandle(event);
    b.happens();
    CHECK_EQ(WaitForSingleObject(other, 0), WAIT_OBJECT_0);
    const Packet packet = b.next();
    CHECK(packet.done && packet.ov == &ov);
    CloseHandle(other);
    // No event, and nothing has begun.
    OVERLAPPED wrong = {};
    for (HANDLE no_event : {b.port, b.side.file, GetCurrentThread(), (HANDLE)0x7FFFFFF0}) {
        wrong.hEvent = no_event;
        HR(b.side.cq->Notify(ND_CQ_NOTIFY_ANY, &wrong), ND_INVALID_HANDLE);
        CHECK_EQ(wrong.Internal, 0);
    }
    b.happens();
}

// The system's GetOverlappedResult knows whether, and one way how.
static void system_result()
{
    Bench b;
    OVERLAPPED ov = {};
    DWORD bytes;
    OVERLAPPED refused = {};
    b.side.bind();
    const sockaddr_in nobody = address("127.0.0.1", 1);
    HR(b.side.connector->Connect(b.pair, sa(nobody), sizeof nobody, 0, 0, nullptr, 0, &refused), ND_PENDING);
    HR(b.side.connector->GetOverlappedResult(&refused, TRUE), ND_CONNECTION_REFUSED);
    CHECK(!GetOverlappedResult(b.side.file, &refused, &bytes, FALSE));
    CHECK_EQ(GetLastError(), ERROR_OPERATION_ABORTED);
    const Packet packet = b.next();
    CHECK(!packet.done && packet.ov == &refused);
    b.asks(ov);
    CHECK(!GetOverlappedResult(b.side.file, &ov, &bytes, FALSE));
    CHECK_EQ(GetLastError(), ERROR_IO_INCOMPLETE);
    b.happens();
    CHECK(GetOverlappedResult(b.side.file, &ov, &bytes, FALSE));
    b.succeeded(ov);
}

// A handle that the program has duplicated names the file, a closed one does not; nothing can be read from it.
static void handles()
{
    Bench b;
    HANDLE other = nullptr;
    IND2MemoryRegion *mr = nullptr;
    CHECK(DuplicateHandle(GetCurrentProcess(), b.side.file, GetCurrentProcess(), &other, 0, FALSE, DUPLICATE_SAME_ACCESS));
    char buffer[8];
    DWORD bytes;
    OVERLAPPED ov = {}, own = {};
    CHECK(!ReadFile(b.side.file, buffer, 1, &bytes, &own) && GetLastError() == ERROR_ACCESS_DENIED);
    CHECK(!WriteFile(b.side.file, buffer, 1, &bytes, &own) && GetLastError() == ERROR_ACCESS_DENIED);
    HR(b.side.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, other, (void **)&mr), ND_SUCCESS);
    CloseHandle(other);
    HR(mr->Register(buffer, sizeof buffer, 0, &ov), ND_PENDING);
    b.succeeded(ov);
    CHECK_EQ(mr->Release(), 0);
    const HANDLE wrong[] = {nullptr, INVALID_HANDLE_VALUE, GetCurrentThread(), b.port, b.side.ov.hEvent, (HANDLE)0x7FFFFFF0};
    for (HANDLE no_file : wrong) {
        HR(b.side.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, no_file, (void **)&mr), ND_INVALID_HANDLE);
        IND2CompletionQueue *cq = nullptr;
        HR(b.side.adapter->CreateCompletionQueue(IID_IND2CompletionQueue, no_file, 8, 0, 0, (void **)&cq), ND_INVALID_HANDLE);
        CHECK(cq == nullptr);
    }
}

// Packets go to the system's own pool of threads, too.
static void pool()
{
    Side side;
    side.make_queues();
    struct Call : OVERLAPPED {
        HANDLE over = CreateEvent(nullptr, FALSE, FALSE, nullptr);
        DWORD error = 77;
        Call() : OVERLAPPED() {}
    } call;
    const auto over = [](DWORD error, DWORD, OVERLAPPED *ov) {
        Call *ended = static_cast<Call *>(ov);
        ended->error = error;
        SetEvent(ended->over);
    };
    CHECK(BindIoCompletionCallback(side.file, over, 0));
    for (bool cancel : {false, true}) {
        HR(side.cq->Notify(ND_CQ_NOTIFY_ANY, &call), ND_PENDING);
        if (cancel) {
            HR(side.cq->CancelOverlappedRequests(), ND_SUCCESS);
        } else {
            HR(side.qp->Receive(nullptr, nullptr, 0), ND_SUCCESS);
            HR(side.qp->Flush(), ND_SUCCESS);
            ND2_RESULT r;
            CHECK_EQ(side.cq->GetResults(&r, 1), 1);
        }
        CHECK_EQ(WaitForSingleObject(call.over, INFINITE), WAIT_OBJECT_0);
        CHECK_EQ(call.error != 0, cancel);
        HR(side.cq->GetOverlappedResult(&call, FALSE), cancel ? ND_CANCELED : ND_SUCCESS);
    }
    CloseHandle(call.over);
}

int main(int argc, char **argv)
{
    time_limit(300);
    static const struct {
        const char *name;
        void (*run)();
    } cases[] = {{"finished", finished}, {"cancel", system_cancel}, {"port", closed_port}, {"threads", threads},
                 {"event", closed_event}, {"result", system_result}, {"handles", handles}, {"pool", pool}};
    for (const auto &one : cases)
        if (argc > 1 && std::string(one.name) == argv[1]) {
            one.run();
            CHECK_EQ(transom_nd_live_objects(), 0);
            return 0;
        }
    CHECK(!"a case");
}
