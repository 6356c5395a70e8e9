// ND2 4.5 through the interface: what goes wrong, and what each side sees. A line per row.
#include "nd_scene.h"

#include <csignal>

constexpr HRESULT OK = ND_SUCCESS, AV = ND_ACCESS_VIOLATION, CAN = ND_CANCELED, REM = ND_REMOTE_ERROR,
                  TIM = ND_IO_TIMEOUT, BAD = ND_INVALID_DEVICE_REQUEST, LONG_SEND = (HRESULT)0xC000003E;
constexpr UINT32 BYTES = 4096;

// A connection, memory on both sides, and windows of the passive side.
struct Stage {
    Ends ends;
    Side &near, &far;
    char mine[BYTES], theirs[BYTES];
    IND2MemoryRegion *own, *only_read, *dead, *theirs_mr, *theirs_only_read;
    IND2MemoryWindow *both, *only_write, *closed, *of_another, *never, *elsewhere;

    Stage() : near(ends.active), far(ends.passive)
    {
        own = near.region(mine, BYTES, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
        only_read = near.region(mine, BYTES, 0);
        dead = near.region(mine, BYTES, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
        HR(near.wait(dead, dead->Deregister(&near.ov)), OK);
        theirs_mr = far.region(theirs, BYTES, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
        theirs_only_read = far.region(theirs, BYTES, 0);
        ends.connect();
        of_another = window(ND_OP_FLAG_ALLOW_READ | ND_OP_FLAG_ALLOW_WRITE);
        elsewhere = near.window(); // of ours, on the other pair
        HR(near.qp->Bind(nullptr, own, elsewhere, mine, BYTES, ND_OP_FLAG_ALLOW_READ), OK);
        near.expect(OK, nullptr, Nd2RequestTypeBind);
        ends.keep();
        ends.connect();
        both = window(ND_OP_FLAG_ALLOW_READ | ND_OP_FLAG_ALLOW_WRITE);
        only_write = window(ND_OP_FLAG_ALLOW_WRITE);
        closed = window(ND_OP_FLAG_ALLOW_READ | ND_OP_FLAG_ALLOW_WRITE);
        HR(far.qp->Invalidate(nullptr, closed, 0), OK);
        far.expect(OK, nullptr, Nd2RequestTypeInvalidate);
        never = near.window();
    }
    IND2MemoryWindow *window(ULONG rights)
    {
        IND2MemoryWindow *mw = far.window();
        HR(far.qp->Bind(nullptr, theirs_mr, mw, theirs, BYTES, rights), OK);
        far.expect(OK, nullptr, Nd2RequestTypeBind);
        return mw;
    }
    HRESULT send(IND2MemoryRegion *mr, UINT32 from, UINT32 size) { return send({mine + from, size, mr->GetLocalToken()}); }
    HRESULT send(ND2_SGE sge) { return near.qp->Send(this, &sge, 1, 0); }
    // [from, from + size) of the peer's memory, by a token of its.
    HRESULT read(UINT32 token, UINT64 from, UINT32 size, IND2MemoryRegion *into = nullptr)
    {
        const ND2_SGE sge = near.sge(into ? into : own, mine, size);
        return near.qp->Read(this, &sge, 1, (UINT64)theirs + from, token, 0);
    }
    HRESULT write(UINT32 token, UINT64 from, UINT32 size, UINT32 at = 0)
    {
        const ND2_SGE sge = near.sge(own, mine + at, size);
        return near.qp->Write(this, &sge, 1, (UINT64)theirs + from, token, 0);
    }
    UINT32 token() { return both->GetRemoteToken(); }
};

// The receives that the peer has posted.
enum Receives { Good, None, Bad };
struct Row {
    const char *name;
    HRESULT (*ask)(Stage &);
    HRESULT initiator, receive;
    Receives receives = Good;
};
static const Row rows[] = {
    // Here: a list outside its region, a token that is dead or was never given, a sink without the right.
    {"Send, a byte beyond the region", [](Stage &t) { return t.send(t.own, 4000, 97); }, AV, CAN},
    {"Write, a byte beyond the region", [](Stage &t) { return t.write(t.token(), 0, 97, 4000); }, AV, CAN},
    {"Send, a dead token", [](Stage &t) { return t.send(t.dead, 0, 8); }, AV, CAN},
    {"Send, no token", [](Stage &t) { return t.send({t.mine, 8, 0x5EED5EED}); }, AV, CAN},
    {"Send, a window's token", [](Stage &t) { return t.send({t.mine, 8, t.token()}); }, AV, CAN},
    {"Read, a byte beyond the region", [](Stage &t) { return t.read(t.token(), 0, BYTES + 1); }, AV, CAN},
    {"Read, a sink without the right", [](Stage &t) { return t.read(t.token(), 0, 8, t.only_read); }, AV, CAN},
    // There: a token that is unknown, dead, another's, without the right; a range outside.
    {"Read, unknown token", [](Stage &t) { return t.read(0x5EED5EED, 0, 8); }, AV, CAN},
    {"Write, unknown token", [](Stage &t) { return t.write(0x5EED5EED, 0, 8); }, AV, CAN},
    {"Read, invalidated window", [](Stage &t) { return t.read(t.closed->GetRemoteToken(), 0, 8); }, AV, CAN},
    {"Write, invalidated window", [](Stage &t) { return t.write(t.closed->GetRemoteToken(), 0, 8); }, AV, CAN},
    {"Read, another's window", [](Stage &t) { return t.read(t.of_another->GetRemoteToken(), 0, 8); }, AV, CAN},
    {"Write, another's window", [](Stage &t) { return t.write(t.of_another->GetRemoteToken(), 0, 8); }, AV, CAN},
    {"Read without the right", [](Stage &t) { return t.read(t.only_write->GetRemoteToken(), 0, 8); }, AV, CAN},
    {"Write without the right", [](Stage &t) { return t.write(t.theirs_mr->GetRemoteToken(), 0, 8); }, AV, CAN},
    {"Read too far", [](Stage &t) { return t.read(t.token(), BYTES - 7, 8); }, AV, CAN},
    {"Write too far", [](Stage &t) { return t.write(t.token(), BYTES - 7, 8); }, AV, CAN},
    {"Write in front", [](Stage &t) { return t.write(t.token(), ~0ull, 8); }, AV, CAN},
    {"Write round the end of the address space", [](Stage &t) { return t.write(t.token(), 0ull - (UINT64)t.theirs - 4, 8); }, AV, CAN},
    // The other rows.
    {"Send longer than the receive", [](Stage &t) { return t.send(t.own, 0, 65); }, LONG_SEND, ND_BUFFER_OVERFLOW},
    {"Send, no receive", [](Stage &t) { return t.send(t.own, 0, 8); }, TIM, CAN, None},
    {"Send, a receive into memory without the right", [](Stage &t) { return t.send(t.own, 0, 8); }, REM, AV, Bad},
    {"Invalidate of a window that is not bound", [](Stage &t) { return t.near.qp->Invalidate(&t, t.never, 0); }, BAD, CAN},
    {"Invalidate of a window of another pair", [](Stage &t) { return t.near.qp->Invalidate(&t, t.elsewhere, 0); }, BAD, CAN},
};

// A side whose connection has ended: NotifyDisconnect says so, and what is posted is cancelled.
static void ended(Side &s)
{
    HR(s.wait(s.connector, s.connector->NotifyDisconnect(&s.ov)), OK);
    HR(s.qp->Send(&s, nullptr, 0, 0), OK);
    s.expect(CAN, &s, Nd2RequestTypeSend);
    HR(s.qp->Receive(&s, nullptr, 0), OK);
    s.expect(CAN, &s, Nd2RequestTypeReceive);
    HR(s.disconnect(), OK);
}

static void rows_of_4_5()
{
    for (const Row &row : rows) {
        Stage t;
        std::fill(t.theirs, t.theirs + BYTES, 'o');
        const ND2_SGE list = row.receives == Bad ? t.far.sge(t.theirs_only_read, t.theirs, 64) : t.far.sge(t.theirs_mr, t.theirs, 64);
        for (UINT_PTR i = 0; i < 2 && row.receives != None; ++i)
            HR(t.far.qp->Receive((void *)i, &list, 1), OK);
        HR(t.near.qp->Receive(&t.far, nullptr, 0), OK);
        const HRESULT inline_status = row.ask(t);
        if (inline_status != OK)
            std::fprintf(stderr, "%s: not accepted\n", row.name);
        HR(inline_status, OK);
        HR(t.near.qp->Send(&t.near, nullptr, 0, 0), OK);
        const ND2_RESULT r = t.near.result();
        if (r.Status != row.initiator)
            std::fprintf(stderr, "%s\n", row.name);
        HR(r.Status, row.initiator);
        CHECK(r.RequestContext == &t);
        for (int i = 0; i < 2; ++i) { // the Send behind it and our receive: flushed
            const ND2_RESULT flushed = t.near.result();
            HR(flushed.Status, CAN);
            CHECK(flushed.RequestContext == &t.near || flushed.RequestContext == &t.far);
        }
        for (UINT_PTR i = 0; i < 2 && row.receives != None; ++i)
            t.far.expect(i == 0 ? row.receive : CAN, (void *)i, Nd2RequestTypeReceive);
        ended(t.near);
        ended(t.far);
        if (row.receive == CAN)
            for (char c : t.theirs)
                CHECK_EQ(c, 'o'); // no byte has been placed
    }
}

// The peer leaves while a Send waits for a receive.
static void peer_disconnects()
{
    static const struct {
        const char *name;
        void (*leave)(Side &);
    } table[] = {
        {"Disconnect", [](Side &s) { HR(s.disconnect(), OK); }},
        {"the connector is released", [](Side &s) { Ends::drop(s.connector); }},
        {"the queue pair is released", [](Side &s) { Ends::drop(s.qp); }}};
    for (const auto &row : table) {
        Ends e;
        e.connect();
        OVERLAPPED told = {};
        HR(e.active.connector->NotifyDisconnect(&told), ND_PENDING);
        HR(e.active.qp->Receive(&told, nullptr, 0), OK);
        HR(e.active.qp->Send(&e, nullptr, 0, 0), OK);
        row.leave(e.passive);
        ND2_RESULT r[2] = {e.active.result(), e.active.result()};
        HR(e.active.connector->GetOverlappedResult(&told, FALSE), OK); // before the flush
        for (const ND2_RESULT &one : r)
            HR(one.Status, CAN);
        ended(e.active);
    }
}

// A place is free when its result was retrieved: a completion queue that nobody looks at does not run over, and a
// post says that there is no room.
static void full()
{
    constexpr int DEPTH = 4;
    Ends e;
    e.go("");
    Side &s = e.passive;
    IND2CompletionQueue *small = nullptr;
    HR(s.adapter->CreateCompletionQueue(IID_IND2CompletionQueue, s.file, 1, 0, 0, (void **)&small), OK);
    s.owned.push_back(small);
    Ends::drop(s.qp);
    HR(s.adapter->CreateQueuePair(IID_IND2QueuePair, small, small, &s, DEPTH, 1, 1, 1, 0, (void **)&s.qp), OK);
    for (const char *c = "bCqraWK"; *c; ++c)
        e.step(*c);
    // The queue is elastic: it holds what its pairs can have outstanding.
    for (int i = 0; i < DEPTH; ++i) {
        HR(s.qp->Receive(nullptr, nullptr, 0), OK);
        HR(e.active.qp->Send(nullptr, nullptr, 0, 0), OK);
        HR(e.active.result().Status, OK);
    }
    ND2_RESULT one;
    for (int i = 0; i < DEPTH; ++i) {
        HR(s.qp->Receive(nullptr, nullptr, 0), ND_NO_MORE_ENTRIES);
        while (small->GetResults(&one, 1) == 0)
            Sleep(0); // the end of a Send does not say that the other side has queued its completion
        HR(one.Status, OK);
        HR(s.qp->Receive(nullptr, nullptr, 0), OK);
    }
    HR(s.qp->Receive(nullptr, nullptr, 0), ND_NO_MORE_ENTRIES);
    for (int i = 0; i < DEPTH; ++i) {
        HR(e.active.qp->Send(nullptr, nullptr, 0, 0), OK);
        HR(e.active.result().Status, OK);
    }
    HR(s.wait(small, small->Notify(ND_CQ_NOTIFY_ANY, &s.ov)), OK);
}

#ifndef _WIN32
// A peer that has stopped: its host still answers, it does not.
static void peer_lost()
{
    Link link;
    Child child(link, [](Link &parent) {
        Side c;
        c.make_queues();
        HR(c.qp->Receive(nullptr, nullptr, 0), OK);
        c.connect_and_complete(parent.to_client.get<USHORT>());
        parent.to_server.put(1);
        raise(SIGSTOP);
        vanish(1);
    });
    time_limit(300);
    {
        Side s;
        s.make_queues();
        link.to_client.put(s.listen());
        s.take_request();
        HR(s.accept(), OK);
        link.to_server.get<int>();
        int status = 0;
        CHECK(waitpid(child.number(), &status, WUNTRACED) == child.number() && WIFSTOPPED(status));
        HR(s.qp->Send(&s, nullptr, 0, 0), OK);
        HR(s.qp->Write(&s.cq, nullptr, 0, 0, 0, 0), OK);
        s.expect(TIM, &s, Nd2RequestTypeSend);       // the oldest
        s.expect(CAN, &s.cq, Nd2RequestTypeWrite);
        ended(s);
        child.kill();
    }
}
#endif

// A peer that dies leaves as by Disconnect (ND2 4.9).
static void peer_dies()
{
    Link link;
    Child child(link, [](Link &parent) {
        Side c;
        c.make_queues();
        c.connect_and_complete(parent.to_client.get<USHORT>());
        parent.to_server.put(1);
        parent.to_client.get<int>(); // never comes
    });
    time_limit(300);
    Side s;
    s.make_queues();
    link.to_client.put(s.listen());
    s.take_request();
    HR(s.qp->Receive(&s, nullptr, 0), OK);
    HR(s.accept(), OK);
    link.to_server.get<int>();
    child.kill();
    s.expect(CAN, &s, Nd2RequestTypeReceive);
    ended(s);
}

#ifndef _WIN32
// The nearest thing to a device that is removed: the adapter of a parent process.
static void device_removed()
{
    Side s;
    s.make_queues();
    const pid_t child = fork();
    if (child == 0) {
        void *none = nullptr;
        HANDLE file = nullptr;
        IND2Adapter *a = s.adapter;
        const HRESULT answers[] = {
            a->CreateOverlappedFile(&file),
            a->CreateCompletionQueue(IID_IND2CompletionQueue, s.file, 8, 0, 0, &none),
            a->CreateMemoryRegion(IID_IND2MemoryRegion, s.file, &none),
            a->CreateMemoryWindow(IID_IND2MemoryWindow, &none),
            a->CreateSharedReceiveQueue(IID_IND2SharedReceiveQueue, s.file, 8, 1, 0, 0, 0, &none),
            a->CreateQueuePair(IID_IND2QueuePair, s.cq, s.cq, nullptr, 1, 1, 1, 1, 0, &none),
            a->CreateConnector(IID_IND2Connector, s.file, &none),
            a->CreateListener(IID_IND2Listener, s.file, &none),
        };
        for (HRESULT hr : answers)
            HR(hr, ND_DEVICE_REMOVED);
        CHECK(!none && !file);
        vanish(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    s.make_connector(); // the parent's goes on
}
#endif

int main(int argc, char **argv)
{
    time_limit(300);
    static const struct {
        const char *name;
        void (*run)();
    } cases[] = {{"rows", rows_of_4_5}, {"disconnects", peer_disconnects}, {"full", full},
#ifndef _WIN32
                 {"lost", peer_lost},   {"removed", device_removed},
#endif
                 {"dies", peer_dies}};
    for (const auto &one : cases)
        if (argc > 1 && std::string(one.name) == argv[1]) {
            one.run();
            CHECK_EQ(transom_nd_live_objects(), 0);
            return 0;
        }
    CHECK(!"a case");
}
