// Depths, thresholds and affinities of queues that are in use: Resize, Modify, GetNotifyAffinity (ND2 2.6, 2.7).
#include "nd_test.h"

#include <string>
#include <thread>

static const HRESULT OK = ND_SUCCESS;

// Two sides of one connection, in this process; the server's receives may be a shared queue's.
struct Scene {
    Side server, client;
    IND2SharedReceiveQueue *shared = nullptr;

    // Depth and threshold of the shared queue; no depth: none.
    explicit Scene(ULONG depth = 0, ULONG threshold = 0)
    {
        client.make_queues();
        if (depth) {
            IND2Adapter *a = server.adapter;
            HR(a->CreateCompletionQueue(IID_IND2CompletionQueue, server.file, 64, 0, 0, (void **)&server.cq), OK);
            HR(a->CreateSharedReceiveQueue(IID_IND2SharedReceiveQueue, server.file, depth, 1, threshold, 0, 0, (void **)&shared), OK);
            HR(a->CreateQueuePairWithSrq(IID_IND2QueuePair, server.cq, server.cq, shared, &server, 8, 1, 0, (void **)&server.qp), OK);
        } else {
            server.make_queues(8, 2, 4); // the completion queue is elastic: it holds what its queues may complete
        }
        const USHORT port = server.listen();
        std::thread active([&] { client.connect_and_complete(port); });
        server.take_request();
        HR(server.accept(), OK);
        active.join();
    }
    ~Scene()
    {
        if (shared)
            shared->Release();
    }
    // A message has arrived, and its completion is in the server's queue: a Read behind it is answered in order.
    void message()
    {
        HR(client.qp->Send(this, nullptr, 0, 0), OK);
        client.expect(OK, this, Nd2RequestTypeSend);
        HR(client.qp->Read(this, nullptr, 0, 0, 0, 0), OK);
        client.expect(OK, this, Nd2RequestTypeRead);
    }
    // The receives that have completed, in order.
    void got(ULONG_PTR first, ULONG_PTR last)
    {
        for (ULONG_PTR which = first; which <= last; ++which)
            server.expect(OK, (void *)which, Nd2RequestTypeReceive);
        ND2_RESULT r;
        CHECK_EQ(server.cq->GetResults(&r, 1), 0);
    }
    HRESULT receive(ULONG_PTR which)
    {
        return shared ? shared->Receive((void *)which, nullptr, 0) : server.qp->Receive((void *)which, nullptr, 0);
    }
    HRESULT pending(OVERLAPPED &ov) { return server.cq->GetOverlappedResult(&ov, FALSE); }
};

// Entries stay, in order; too few places are refused, and change nothing (ND2 C29). Who waits goes on waiting.
static void resize()
{
    Scene s;
    const ULONG most = s.server.info().MaxCompletionQueueDepth;
    OVERLAPPED ov = {};
    ov.hEvent = CreateEvent(nullptr, FALSE, FALSE, nullptr);
    HR(s.server.cq->Notify(ND_CQ_NOTIFY_ANY, &ov), ND_PENDING);
    HR(s.server.cq->Resize(2), OK);
    HR(s.pending(ov), ND_PENDING);
    for (ULONG_PTR which = 1; which <= 5; ++which) {
        HR(s.receive(which), OK);
        if (which > 1)
            HR(s.server.cq->Notify(ND_CQ_NOTIFY_ANY, &ov), ND_PENDING);
        s.message();
        // The peer may hear that its Send was executed before the entry is there.
        HR(s.server.cq->GetOverlappedResult(&ov, TRUE), OK);
    }
    for (ULONG wrong : {(ULONG)0, most + 1})
        HR(s.server.cq->Resize(wrong), ND_INVALID_PARAMETER);
    for (ULONG few : {1u, 4u})
        HR(s.server.cq->Resize(few), ND_BUFFER_OVERFLOW);
    HR(s.server.cq->Resize(5), OK);
    HR(s.server.cq->Resize(most), OK);
    s.got(1, 5);
    HR(s.server.cq->Resize(1), OK);
    HR(s.receive(6), OK);
    s.message();
    s.got(6, 6);
    CloseHandle(ov.hEvent);
}

// The depth counts from the next Receive on; receives that wait stay. 0 leaves a value as it is (ND2 2.7).
static void modify_depth()
{
    Scene s(4);
    const ULONG most = s.server.info().MaxSharedReceiveQueueDepth;
    const auto fill = [&](ULONG_PTR from, ULONG_PTR to) {
        for (ULONG_PTR which = from; which <= to; ++which)
            HR(s.receive(which), OK);
        HR(s.receive(99), ND_NO_MORE_ENTRIES);
    };
    fill(1, 4);
    HR(s.shared->Modify(6, 0), OK);
    fill(5, 6);
    for (HRESULT refused : {s.shared->Modify(5, 0), s.shared->Modify(1, 0)})
        HR(refused, ND_BUFFER_OVERFLOW);
    HR(s.shared->Modify(most + 1, 0), ND_INVALID_PARAMETER);
    HR(s.shared->Modify(0, 0), OK);
    fill(7, 6); // no more than before
    s.message();
    s.message();
    s.got(1, 2);
    fill(7, 8); // the depth is six still
    HR(s.shared->Modify(6, 0), OK);
    fill(9, 8);
    for (int i = 0; i < 6; ++i)
        s.message();
    s.got(3, 8);
    HR(s.shared->Modify(1, 0), OK);
    fill(9, 9);
    s.message();
    s.got(9, 9);
}

// A notification comes when fewer receives than the threshold wait, to all that have asked, once.
static void modify_threshold()
{
    Scene s(8);
    OVERLAPPED ov[2] = {};
    for (OVERLAPPED &one : ov)
        one.hEvent = CreateEvent(nullptr, FALSE, FALSE, nullptr);
    const auto ends = [&](int which) { return s.shared->GetOverlappedResult(&ov[which], FALSE); };
    HR(s.shared->Notify(&ov[0]), ND_PENDING);
    HR(ends(0), ND_PENDING); // without a threshold, and empty
    for (ULONG_PTR which = 1; which <= 4; ++which)
        HR(s.receive(which), OK);
    HR(s.shared->Modify(0, 3), OK);
    HR(s.shared->Notify(&ov[1]), ND_PENDING);
    s.message();
    for (int which : {0, 1})
        HR(ends(which), ND_PENDING); // three are left: not fewer than three
    HR(s.shared->Modify(0, 0), OK);
    HR(s.shared->Modify(2, 2), ND_BUFFER_OVERFLOW); // and the threshold stays, too
    s.message();
    for (int which : {0, 1})
        HR(s.shared->GetOverlappedResult(&ov[which], TRUE), OK);
    // Two wait. It is over at once for a threshold of three, and comes by a higher threshold.
    HR(s.shared->Modify(0, 2), OK);
    HR(s.shared->Notify(&ov[0]), ND_PENDING);
    HR(ends(0), ND_PENDING);
    HR(s.shared->Modify(0, 3), OK);
    HR(s.shared->GetOverlappedResult(&ov[0], TRUE), OK);
    s.got(1, 2);
    for (OVERLAPPED &one : ov)
        CloseHandle(one.hEvent);
}

// The values that were asked for, of both kinds of queues; a null pointer is refused, and the other one not written.
static void affinity()
{
    Side s;
    IND2CompletionQueue *cq = nullptr;
    IND2SharedReceiveQueue *shared = nullptr;
    const USHORT group = 3;
    const KAFFINITY mask = (KAFFINITY)0x8000000000000005;
    for (bool none : {false, true}) {
        const USHORT g = none ? 0 : group;
        const KAFFINITY m = none ? 0 : mask;
        HR(s.adapter->CreateCompletionQueue(IID_IND2CompletionQueue, s.file, 4, g, m, (void **)&cq), OK);
        HR(s.adapter->CreateSharedReceiveQueue(IID_IND2SharedReceiveQueue, s.file, 4, 1, 0, g, m, (void **)&shared), OK);
        const auto ask = [&](auto *queue) {
            USHORT its_group = 77;
            KAFFINITY its_mask = 77;
            HR(queue->GetNotifyAffinity(nullptr, &its_mask), ND_INVALID_PARAMETER);
            HR(queue->GetNotifyAffinity(&its_group, nullptr), ND_INVALID_PARAMETER);
            CHECK(its_group == 77 && its_mask == 77);
            HR(queue->GetNotifyAffinity(&its_group, &its_mask), OK);
            CHECK_EQ(its_group, g);
            CHECK_EQ(its_mask, m);
        };
        ask(cq);
        ask(shared);
        cq->Release();
        shared->Release();
    }
}

int main(int argc, char **argv)
{
    time_limit(300);
    CHECK(argc == 2);
    const std::string which = argv[1];
    if (which == "resize")
        resize();
    else if (which == "depth")
        modify_depth();
    else if (which == "threshold")
        modify_threshold();
    else if (which == "affinity")
        affinity();
    else
        CHECK(!"a case");
    CHECK_EQ(transom_nd_live_objects(), 0);
}
