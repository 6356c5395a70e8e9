// Cases of refused.cpp about the ends of overlapped requests: cancelled, asked for early, one OVERLAPPED used again.
#pragma once

#include "nd_watch.h"

#include <thread>

// ND2 4.7.4: Connect, Accept and NotifyDisconnect end once, and what they leave behind.
static void cancel_connector(Watch &watch)
{
    Watched e(watch);
    Side &a = e.active, &p = e.passive;
    Request connecting(watch), accepted(watch), gone(watch), gone_again(watch), wrong(watch), late(watch);
    e.go("b");
    HR(a.connector->CancelOverlappedRequests(), ND_SUCCESS); // nothing to cancel
    HR(e.connect_to(a.connector, a.qp, e.port, &connecting, "withdrawn"), ND_PENDING);
    connecting.pends({a.connector});
    HR(a.cq->CancelOverlappedRequests(), ND_SUCCESS); // of another object of the same file
    HR(a.listener->CancelOverlappedRequests(), ND_SUCCESS);
    connecting.pends({a.connector});
    HR(a.connector->CancelOverlappedRequests(), ND_SUCCESS);
    connecting.has_ended(a.connector, ND_CANCELED);
    HR(a.connector->CancelOverlappedRequests(), ND_SUCCESS);
    wrong.refused(e.connect_to(a.connector, a.qp, e.port, &wrong), ND_INVALID_DEVICE_STATE);
    // The queue pair is free for another connector; the withdrawn request is no connection.
    Ends::drop(p.listener);
    e.port = p.listen();
    Ends::drop(a.connector);
    a.make_connector();
    e.steps("bCqraWK");
    CHECK_EQ(a.cq->GetOverlappedResult(&a.ov, FALSE), ND_SUCCESS);
    e.talk();
    // NotifyDisconnect; the connection stays.
    HR(p.connector->NotifyDisconnect(&gone), ND_PENDING);
    HR(p.connector->NotifyDisconnect(&gone_again), ND_PENDING);
    HR(p.connector->CancelOverlappedRequests(), ND_SUCCESS);
    gone.has_ended(p.connector, ND_CANCELED);
    gone_again.has_ended(p.connector, ND_CANCELED);
    e.talk();
    HR(p.connector->NotifyDisconnect(&gone), ND_PENDING); // the same OVERLAPPED
    gone.pends({p.connector});
    e.step('D');
    gone.ends(p.connector, ND_SUCCESS);
    // Accept; the peer cannot complete any more.
    e.go("bCqr");
    HR(p.connector->Accept(p.qp, 4, 4, nullptr, 0, &accepted), ND_PENDING);
    e.step('W');
    HR(e.answer, ND_SUCCESS);
    HR(p.connector->CancelOverlappedRequests(), ND_SUCCESS);
    accepted.has_ended(p.connector, ND_CANCELED);
    late.refused(p.connector->Disconnect(&late), ND_CONNECTION_INVALID);
    Ends::drop(p.connector);
    const HRESULT completed = a.wait(a.connector, a.connector->CompleteConnect(&a.ov));
    if (completed == ND_SUCCESS) // the peer's end has come behind it
        Ends::until_gone(a);
    else
        HR(completed, ND_CONNECTION_ABORTED);
}

// GetConnectionRequests end once; the listener, its backlog and the connectors stay.
static void cancel_listener(Watch &watch)
{
    Watched e(watch);
    Side &p = e.passive;
    e.go("");
    Request waits(watch), waits_too(watch), taken(watch), unused(watch);
    IND2Connector *second = e.connector(p);
    HR(p.listener->CancelOverlappedRequests(), ND_SUCCESS);
    HR(p.listener->GetConnectionRequest(p.connector, &waits), ND_PENDING);
    HR(p.listener->GetConnectionRequest(second, &waits_too), ND_PENDING);
    HR(p.connector->CancelOverlappedRequests(), ND_SUCCESS); // the connector has begun nothing
    waits.pends({p.listener, p.connector});
    HR(p.listener->CancelOverlappedRequests(), ND_SUCCESS);
    waits.has_ended(p.listener, ND_CANCELED);
    waits_too.has_ended(p.listener, ND_CANCELED);
    const sockaddr_in from = address("127.0.0.1", 0);
    HR(second->Bind(sa(from), sizeof from), ND_SUCCESS); // idle again
    CHECK_EQ(second->Release(), 0);
    // A request that comes while none waits is kept, and a cancel does not lose it.
    e.steps("bC");
    HR(p.listener->CancelOverlappedRequests(), ND_SUCCESS);
    HR(p.listener->GetConnectionRequest(p.connector, &taken), ND_PENDING);
    taken.ends(p.listener, ND_SUCCESS);
    HR(p.listener->CancelOverlappedRequests(), ND_SUCCESS);
    HR(e.active.connector->GetOverlappedResult(&e.active.ov, FALSE), ND_PENDING);
    e.steps("aWK");
    e.talk();
    // The end of the listener does not end its connections.
    Ends::drop(p.listener);
    e.talk();
}

// Notify against results that arrive meanwhile: each ends once, and no result is without its notification.
static void cancel_notify(Watch &watch)
{
    Watched e(watch);
    Side &a = e.active, &p = e.passive;
    e.connect();
    Request any(watch), solicited(watch), errors(watch);
    HR(p.cq->Notify(ND_CQ_NOTIFY_ANY, &any), ND_PENDING);
    HR(p.cq->Notify(ND_CQ_NOTIFY_SOLICITED, &solicited), ND_PENDING);
    HR(p.cq->Notify(ND_CQ_NOTIFY_ERRORS, &errors), ND_PENDING);
    any.pends({p.cq, a.cq, p.connector});
    HR(a.cq->CancelOverlappedRequests(), ND_SUCCESS);
    any.pends({p.cq});
    HR(p.cq->CancelOverlappedRequests(), ND_SUCCESS);
    any.has_ended(p.cq, ND_CANCELED);
    solicited.has_ended(p.cq, ND_CANCELED);
    errors.has_ended(p.cq, ND_CANCELED);
    int fired = 0;
    for (int i = 0; i < 100; ++i) {
        HR(p.qp->Receive(&any, nullptr, 0), ND_SUCCESS);
        HR(p.cq->Notify(ND_CQ_NOTIFY_ANY, &any), ND_PENDING);
        std::thread sender([&] { HR(a.qp->Send(&e, nullptr, 0, 0), ND_SUCCESS); });
        for (int turn = i % 10; turn > 0; --turn)
            std::this_thread::yield();
        HR(p.cq->CancelOverlappedRequests(), ND_SUCCESS);
        const HRESULT ended = any.end(p.cq);
        CHECK(ended == ND_SUCCESS || ended == ND_CANCELED);
        fired += ended == ND_SUCCESS;
        if (ended == ND_CANCELED) { // the result is there, or will be
            HR(p.cq->Notify(ND_CQ_NOTIFY_ANY, &any), ND_PENDING);
            any.ends(p.cq, ND_SUCCESS);
        }
        ND2_RESULT r;
        CHECK_EQ(p.cq->GetResults(&r, 1), 1);
        HR(r.Status, ND_SUCCESS);
        sender.join();
        a.expect(ND_SUCCESS, &e, Nd2RequestTypeSend);
    }
    std::fprintf(stderr, "%d of 100 fired before their cancel\n", fired);
}

// ND2 2.3 rule 6: a wait ends with the request, not with a signal from elsewhere.
static void result_before_end(Watch &watch)
{
    Watched e(watch);
    Side &a = e.active, &p = e.passive;
    e.connect();
    OVERLAPPED never = {};
    HR(p.cq->GetOverlappedResult(&never, FALSE), ND_SUCCESS); // Internal is 0
    Request any(watch), gone(watch);
    HR(p.cq->Notify(ND_CQ_NOTIFY_ANY, &any), ND_PENDING);
    HR(p.connector->NotifyDisconnect(&gone), ND_PENDING);
    any.pends({p.cq, p.connector, p.listener, a.cq, a.connector});
    gone.pends({p.cq, p.connector, a.listener});
    Watched::talk(a, p); // one ends, the other stays
    any.ends(a.connector, ND_SUCCESS);
    gone.pends({p.connector});
    // A stale signal of an automatic event, and a wait.
    OVERLAPPED stale = {};
    stale.hEvent = CreateEvent(nullptr, FALSE, FALSE, nullptr);
    const HANDLE event = stale.hEvent;
    if (watch.port)
        stale.hEvent = (HANDLE)((ULONG_PTR)event | 1);
    HR(p.qp->Receive(&e, nullptr, 0), ND_SUCCESS);
    HR(p.cq->Notify(ND_CQ_NOTIFY_ANY, &stale), ND_PENDING);
    CHECK(SetEvent(event));
    std::atomic<bool> sent{false};
    std::thread sender([&] {
        for (int i = 0; i < 100; ++i)
            std::this_thread::yield();
        sent = true;
        HR(a.qp->Send(&e, nullptr, 0, 0), ND_SUCCESS);
    });
    HR(p.cq->GetOverlappedResult(&stale, TRUE), ND_SUCCESS);
    CHECK(sent);
    sender.join();
    CloseHandle(event);
    e.step('D');
    gone.ends(p.connector, ND_SUCCESS);
}

// An OVERLAPPED for one call after the other, on objects of all kinds, failed ones and refused ones among them.
static void overlapped_again(Watch &watch)
{
    Watched e(watch);
    Side &a = e.active, &p = e.passive;
    e.go("");
    Request one(watch), taken(watch), accepted(watch);
    char memory[64];
    IND2MemoryRegion *mr = nullptr;
    HR(a.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, a.file, (void **)&mr), ND_SUCCESS);
    a.owned.push_back(mr);
    for (int i = 0; i < 20; ++i) {
        HR(mr->Register(memory, sizeof memory, 0, &one), ND_PENDING);
        one.has_ended(a.cq, ND_SUCCESS);
        one.refused(mr->Register(memory, sizeof memory, 0, &one), ND_INVALID_DEVICE_STATE);
        HR(a.cq->Notify(ND_CQ_NOTIFY_ANY, &one), ND_PENDING);
        one.pends({a.cq, mr});
        HR(a.cq->CancelOverlappedRequests(), ND_SUCCESS);
        one.has_ended(mr, ND_CANCELED);
        one.refused(a.cq->Notify(9, &one), ND_INVALID_PARAMETER_1);
        HR(mr->Deregister(&one), ND_PENDING);
        one.has_ended(a.listener, ND_SUCCESS);
        if (i % 2)
            one.fill();
    }
    a.bind();
    HR(e.connect_to(a.connector, a.qp, 1, &one), ND_PENDING);
    one.ends(a.connector, ND_CONNECTION_REFUSED);
    HR(e.connect_to(a.connector, a.qp, e.port, &one), ND_PENDING);
    one.pends({a.connector, a.cq}); // the last end is not taken for this one's
    HR(p.listener->GetConnectionRequest(p.connector, &taken), ND_PENDING);
    taken.ends(p.listener, ND_SUCCESS);
    HR(p.connector->Accept(p.qp, 4, 4, nullptr, 0, &accepted), ND_PENDING);
    one.ends(a.connector, ND_SUCCESS);
    const HRESULT completed = a.connector->CompleteConnect(&one);
    if (completed != ND_SUCCESS)
        one.ends(a.connector, ND_SUCCESS);
    accepted.ends(p.connector, ND_SUCCESS);
    HR(a.connector->NotifyDisconnect(&one), ND_PENDING);
    HR(a.connector->CancelOverlappedRequests(), ND_SUCCESS);
    one.has_ended(a.connector, ND_CANCELED);
    HR(a.connector->Disconnect(&one), ND_PENDING);
    one.ends(a.connector, ND_SUCCESS);
    one.refused(a.connector->Disconnect(&one), ND_CONNECTION_INVALID);
}
