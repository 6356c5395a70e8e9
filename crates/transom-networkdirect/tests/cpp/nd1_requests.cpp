// Version 1's requests and queues: ND1 16, T7, T18 to T24, T29.
#include "nd1_test.h"

// Places: one is free when its result was retrieved, and a silent one when it has succeeded (ND1 EP-8).
static void t7()
{
    Lab lab;
    Sizes four;
    four.out = 4;
    four.in = 2;
    Link1 link(lab, {}, four);
    ND_RESULT invalidated[5], r[5], received[3];
    INDMemoryWindow *mw[5];
    ND_MW_DESCRIPTOR d[5];
    for (int i = 0; i < 5; i++)
        mw[i] = lab.b.window(invalidated[i]);
    for (int i = 0; i < 4; i++)
        HR(link.y.bind(r[i], mw[i], 0, 64, MAY_WRITE, d[i]), ND_SUCCESS);
    HR(link.y.bind(r[4], mw[4], 0, 64, MAY_WRITE, d[4]), ND_NO_MORE_ENTRIES);
    HR(link.y.endpoint->Send(&r[4], nullptr, 0, 0), ND_NO_MORE_ENTRIES);
    HR(link.y.endpoint->Invalidate(&r[4], mw[0], SILENT), ND_NO_MORE_ENTRIES);
    link.x.writes(ND_SUCCESS, 0, 8, d[3]); // all four are executed, and nothing was retrieved
    HR(link.y.bind(r[4], mw[4], 0, 64, MAY_WRITE, d[4]), ND_NO_MORE_ENTRIES);
    link.y.done(r[0]);
    HR(link.y.bind(r[4], mw[4], 0, 64, MAY_WRITE, d[4]), ND_SUCCESS);
    HR(link.y.endpoint->Send(&r[0], nullptr, 0, 0), ND_NO_MORE_ENTRIES);
    for (int i = 1; i < 5; i++)
        link.y.done(r[i]);
    for (int i = 0; i < 100; i++) {
        HR(link.y.endpoint->Invalidate(&r[0], mw[0], SILENT), ND_SUCCESS);
        HR(link.y.bind(r[1], mw[0], 0, 64, MAY_WRITE, d[0]), ND_SUCCESS);
        link.y.done(r[1]);
    }
    link.x.writes(ND_SUCCESS, 0, 8, d[0]);
    link.x.writes(ND_SUCCESS, 0, 8, d[4]);
    // Receives the same.
    link.y.receive(received[0]);
    link.y.receive(received[1]);
    HR(link.y.endpoint->Receive(&received[2], nullptr, 0), ND_NO_MORE_ENTRIES);
    link.x.send_nothing(r[0]);
    link.x.done(r[0]);
    HR(link.y.endpoint->Receive(&received[2], nullptr, 0), ND_NO_MORE_ENTRIES);
    link.y.got(received[0]);
    link.y.receive_nothing(received[2]);
    for (INDMemoryWindow *one : mw)
        CHECK_EQ(one->Release(), 0);
}

// Each of the six kinds: silent when it succeeds, and an entry when it fails.
static void t18()
{
    Lab lab;
    {
        Link1 link(lab);
        ND_RESULT invalidated, mine, r, marker, received[3];
        INDMemoryWindow *mw = lab.b.window(invalidated), *own = lab.a.window(mine);
        const ND_MW_DESCRIPTOR d = link.y.bound(mw, 0, 64, MAY_READ | MAY_WRITE);
        ND_MW_DESCRIPTOR e;
        for (ND_RESULT &one : received)
            link.y.receive_nothing(one);
        HR(link.x.bind(r, own, 0, 64, MAY_READ | SILENT, e), ND_SUCCESS);
        HR(link.x.endpoint->Invalidate(&r, own, SILENT), ND_SUCCESS);
        HR(link.x.write(r, 0, 8, d, 0, SILENT), ND_SUCCESS);
        HR(link.x.read(r, 0, 8, d, 0, SILENT), ND_SUCCESS);
        link.x.send_nothing(r, SILENT);
        // Behind the fence: it may not close the window under the Read (ND1 RW-8).
        HR(link.x.endpoint->SendAndInvalidate(&r, nullptr, 0, &d, SILENT | FENCE), ND_SUCCESS);
        link.x.send_nothing(marker);
        link.x.done(marker); // nothing before it, and it proves them all (ND1 MW-6)
        link.y.got(received[0]);
        link.y.got(invalidated);
        link.y.got(received[1]);
        CHECK_EQ(mw->Release() + own->Release(), 0);
    }
    enum { Send, SendInvalidate, Bind, Invalidate, Read, Write, KINDS };
    for (int kind = 0; kind < KINDS; kind++) {
        Link1 link(lab);
        ND_RESULT invalidated, mine, r = {1, 1}, before, received;
        INDMemoryWindow *mw = lab.b.window(invalidated), *own = lab.a.window(mine);
        ND_MW_DESCRIPTOR d = link.y.bound(mw, 0, 64, MAY_READ), e;
        link.x.bound(own, 0, 64, MAY_READ);
        link.y.receive_nothing(received);
        const ND_SGE sge = lab.a.sge(0, 8);
        ND_MW_DESCRIPTOR bad = d;
        bad.Token ^= 0x10;
        HRESULT expected = ND_REMOTE_ERROR;
        switch (kind) {
        case Send: // longer than the peer's Receive
            HR(link.x.endpoint->Send(&r, &sge, 1, SILENT), ND_SUCCESS);
            break;
        case SendInvalidate:
            HR(link.x.endpoint->SendAndInvalidate(&r, nullptr, 0, &bad, SILENT), ND_SUCCESS);
            break;
        case Read:
            HR(link.x.read(r, 0, 8, bad, 0, SILENT), ND_SUCCESS);
            break;
        case Write:
            HR(link.x.write(r, 0, 8, bad, 0, SILENT), ND_SUCCESS);
            break;
        default: // held back by the fence until the Read before it has failed
            HR(link.x.read(before, 0, 8, bad), ND_SUCCESS);
            if (kind == Bind) {
                INDMemoryWindow *late = lab.a.window(invalidated);
                HR(link.x.bind(r, late, 0, 8, MAY_READ | SILENT | FENCE, e), ND_SUCCESS);
                late->Release();
            } else {
                HR(link.x.endpoint->Invalidate(&r, own, SILENT | FENCE), ND_SUCCESS);
            }
            link.x.done(before, ND_REMOTE_ERROR);
            expected = ND_CANCELED;
        }
        link.x.done(r, expected);
        CHECK_EQ(mw->Release() + own->Release(), 0);
    }
}

// Slow Reads and quick Binds: results in the order of posting, on each queue.
static void t19()
{
    Lab lab;
    Sizes many;
    many.out = 64;
    Link1 link(lab, many);
    ND_RESULT invalidated, r[32], mine[16];
    INDMemoryWindow *mw = lab.b.window(invalidated), *own[16];
    const ND_MW_DESCRIPTOR d = link.y.bound(mw, 0, Node::SIZE, MAY_READ);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 16; i++) {
            own[i] = lab.a.window(mine[i]);
            ND_MW_DESCRIPTOR e;
            HR(link.x.read(r[2 * i], 0, Node::SIZE / 2, d), ND_SUCCESS);
            HR(link.x.bind(r[2 * i + 1], own[i], 0, 64, MAY_READ | (i % 2 ? FENCE : 0), e), ND_SUCCESS);
        }
        for (int i = 0; i < 32; i++) {
            link.x.done(r[i]);
            if (i % 2 == 0)
                CHECK_EQ(r[i].BytesTransferred, Node::SIZE / 2);
        }
        for (INDMemoryWindow *one : own)
            CHECK_EQ(one->Release(), 0);
    }
    // A fence holds back what comes behind it: the Write may not overtake the Read of the same bytes.
    ND_RESULT both, read, write;
    INDMemoryWindow *open = lab.b.window(both);
    const ND_MW_DESCRIPTOR e = link.y.bound(open, 0, Node::SIZE, MAY_READ | MAY_WRITE);
    std::memset(lab.b.buffer, 'o', Node::SIZE / 2);
    std::memset(lab.a.buffer + Node::SIZE / 2, 'n', Node::SIZE / 2);
    HR(link.x.read(read, 0, Node::SIZE / 2, e), ND_SUCCESS);
    HR(link.x.write(write, Node::SIZE / 2, Node::SIZE / 2, e, 0, FENCE), ND_SUCCESS);
    link.x.done(read);
    link.x.done(write);
    CHECK(lab.a.holds(0, Node::SIZE / 2, 'o') && lab.b.holds(0, Node::SIZE / 2, 'n'));
    CHECK_EQ(mw->Release() + open->Release(), 0);
}

// Records are the program's again once they were handed out.
static void t20()
{
    Lab lab;
    Link1 link(lab);
    struct {
        ND_RESULT sent, received, invalidated, bound;
    } r;
    static_assert(sizeof r == 4 * sizeof(ND_RESULT));
    INDMemoryWindow *mw = lab.b.window(r.invalidated);
    ND_MW_DESCRIPTOR d;
    HR(link.y.bind(r.bound, mw, 0, 64, MAY_WRITE, d), ND_SUCCESS);
    link.y.done(r.bound);
    link.y.receive(r.received);
    HR(link.x.endpoint->SendAndInvalidate(&r.sent, nullptr, 0, &d, 0), ND_SUCCESS);
    link.x.done(r.sent);
    link.y.got(r.invalidated);
    link.y.got(r.received);
    std::memset((void *)&r, 0xAA, sizeof r);
    ND_RESULT other[2];
    for (int i = 0; i < 100; i++) {
        link.y.receive(other[0]);
        link.x.send_nothing(other[1]);
        link.x.done(other[1]);
        link.y.got(other[0]);
    }
    HR(link.y.endpoint->Flush(), ND_SUCCESS);
    HR(link.y.disconnect(), ND_SUCCESS);
    HR(link.x.disconnect(), ND_SUCCESS);
    CHECK_EQ(mw->Release(), 0);
    for (const char *p = (const char *)&r; p < (const char *)(&r + 1); p++)
        CHECK_EQ((unsigned char)*p, 0xAA);
}

static void t21()
{
    Lab lab;
    Sizes deep;
    deep.in = 32;
    Link1 link(lab, {}, deep);
    // No wake-up is lost: drain, ask, wait.
    const int count = 3000;
    std::thread sender([&] {
        ND_RESULT sent;
        for (int i = 0; i < count; i++) {
            link.x.send_nothing(sent);
            link.x.done(sent);
        }
    });
    ND_RESULT received[32];
    for (ND_RESULT &one : received)
        link.y.receive_nothing(one);
    Request r[3];
    for (int seen = 0; seen < count;) {
        ND_RESULT *got[4];
        SIZE_T n;
        while ((n = link.y.in->GetResults(got, 4)) != 0)
            for (SIZE_T i = 0; i < n; i++, seen++) {
                HR(got[i]->Status, ND_SUCCESS);
                link.y.receive_nothing(*got[i]);
            }
        if (seen < count)
            HR(result_of(link.y.in, link.y.in->Notify(ND_CQ_NOTIFY_ANY, &r[0]), r[0]), ND_SUCCESS);
    }
    sender.join();
    SIZE_T bytes;
    const auto notify = [&](Request &one, DWORD type) { HR(link.y.in->Notify(type, &one), ND_PENDING); };
    const auto pending = [&](Request &one) { HR(link.y.in->GetOverlappedResult(&one, &bytes, FALSE), ND_PENDING); };
    const auto over = [&](Request &one, HRESULT status = ND_SUCCESS) { HR(link.y.in->GetOverlappedResult(&one, &bytes, TRUE), status); };
    ND_RESULT sent, *got;
    const auto arrives = [&](DWORD flags) {
        link.x.send_nothing(sent, flags);
        link.x.done(sent); // executed at the peer, whose result is in its queue, or about to be
    };
    const auto drain = [&] {
        while (link.y.in->GetResults(&got, 1) == 0)
            std::this_thread::yield();
    };
    // Those outstanding all end together; ANY beats SOLICITED.
    notify(r[0], ND_CQ_NOTIFY_SOLICITED);
    notify(r[1], ND_CQ_NOTIFY_ANY);
    notify(r[2], ND_CQ_NOTIFY_ERRORS);
    arrives(0);
    over(r[0]);
    over(r[1]);
    pending(r[2]); // ND1 NT-6
    // An entry that has satisfied one notification does not satisfy the next, though it was not
    // fetched (ND1 NT-3).
    notify(r[0], ND_CQ_NOTIFY_ANY);
    pending(r[0]);
    arrives(0);
    over(r[0]);
    drain();
    drain();
    // SOLICITED waits for a solicited one.
    notify(r[0], ND_CQ_NOTIFY_SOLICITED);
    arrives(0);
    pending(r[0]);
    drain();
    arrives(SOLICIT);
    over(r[0]);
    drain();
    // Asked behind the entry (ND1 NT-2).
    arrives(SOLICIT);
    notify(r[0], ND_CQ_NOTIFY_SOLICITED);
    over(r[0]);
    drain();
    // An error satisfies it.
    notify(r[0], ND_CQ_NOTIFY_SOLICITED);
    HR(link.y.endpoint->Flush(), ND_SUCCESS);
    over(r[0]);
    drain();
    HR(got->Status, ND_CANCELED);
    pending(r[2]);
    HR(link.y.in->Notify(3, &r[0]), ND_INVALID_PARAMETER_1);
    // A queue that goes takes its notifications with it (ND1 NT-5).
    HR(link.y.in->CancelOverlappedRequests(), ND_SUCCESS);
    over(r[2], ND_CANCELED);
}

static void t22()
{
    Lab lab;
    Link1 link(lab);
    ND_RESULT received[2], sent, behind;
    link.y.receive(received[0], 0, 63);
    link.y.receive(received[1]);
    const ND_SGE sge = lab.a.sge(0, 64);
    HR(link.x.endpoint->Send(&sent, &sge, 1, 0), ND_SUCCESS);
    link.x.send_nothing(behind);
    link.y.got(received[0], ND_BUFFER_OVERFLOW);
    link.y.got(received[1], ND_CANCELED);
    link.x.done(sent, ND_REMOTE_ERROR);
    link.x.done(behind, ND_CANCELED);
    link.is_dead();
}

static void t23()
{
    Lab lab;
    Link1 link(lab);
    ND_RESULT invalidated, r, received[2];
    INDMemoryWindow *mw = lab.b.window(invalidated);
    const ND_MW_DESCRIPTOR d = link.y.bound(mw, 0, 64, MAY_READ | MAY_WRITE);
    link.y.receive_nothing(received[0]);
    link.y.receive(received[1]);
    std::memset(lab.b.buffer, 'b', 64);
    INDEndpoint *ep = link.x.endpoint;
    HR(ep->Write(&r, nullptr, 0, &d, 0, 0), ND_SUCCESS);
    link.x.done(r);
    CHECK_EQ(r.BytesTransferred, 0);
    HR(ep->Read(&r, nullptr, 0, &d, 0, 0), ND_SUCCESS);
    link.x.done(r);
    CHECK_EQ(r.BytesTransferred, 0);
    HR(ep->Send(&r, nullptr, 0, 0), ND_SUCCESS);
    link.x.done(r);
    HR(ep->SendAndInvalidate(&r, nullptr, 0, &d, 0), ND_SUCCESS);
    link.x.done(r);
    link.y.got(received[0]);
    CHECK_EQ(received[0].BytesTransferred, 0); // the Write has made no receive (ND1 EP-10)
    link.y.got(invalidated);
    link.y.got(received[1]);
    CHECK_EQ(received[1].BytesTransferred, 0);
    CHECK(lab.b.holds(0, 64, 'b'));
    CHECK_EQ(mw->Release(), 0);
}

static void t24()
{
    Lab lab;
    Link1 link(lab);
    CHECK(link.x.inline_size > 0);
    const SIZE_T most = link.x.inline_size;
    ND_RESULT invalidated, r, sent, received[3];
    INDMemoryWindow *mw = lab.b.window(invalidated);
    const ND_MW_DESCRIPTOR d = link.y.bound(mw, 65536, 8192, MAY_READ | MAY_WRITE);
    for (int i = 0; i < 3; i++)
        link.y.receive(received[i], 8192 * i, 8192);
    std::vector<char> stack(most + 1, 'i');
    INDEndpoint *ep = link.x.endpoint;
    const ND_SGE all = {stack.data(), most, nullptr}, more = {stack.data(), most + 1, nullptr};
    // Overwritten right behind the return.
    HR(ep->Send(&sent, &all, 1, 0), ND_SUCCESS);
    std::memset(stack.data(), 'x', most);
    link.x.done(sent);
    CHECK_EQ(sent.BytesTransferred, most);
    link.y.got(received[0]);
    CHECK_EQ(received[0].BytesTransferred, most);
    CHECK(lab.b.holds(0, most, 'i'));
    std::memset(stack.data(), 'w', most);
    HR(ep->Write(&r, &all, 1, &d, 0, 0), ND_SUCCESS);
    std::memset(stack.data(), 'x', most);
    link.x.done(r);
    CHECK(lab.b.holds(65536, most, 'w'));
    // Too large, or where nothing can be captured: refused by the call, and the endpoint lives.
    HR(ep->Send(&r, &more, 1, 0), ND_BUFFER_OVERFLOW);
    HR(ep->Write(&r, &more, 1, &d, 0, 0), ND_BUFFER_OVERFLOW);
    HR(ep->SendAndInvalidate(&r, &more, 1, &d, 0), ND_BUFFER_OVERFLOW);
    HR(ep->Read(&r, &all, 1, &d, 0, 0), ND_INVALID_PARAMETER_2);
    HR(ep->Receive(&r, &all, 1), ND_INVALID_PARAMETER_2);
    const ND_SGE nowhere = {(void *)16, 8, nullptr};
    HR(ep->Send(&r, &nowhere, 1, 0), ND_ACCESS_VIOLATION);
    HR(ep->Send(&r, nullptr, 1, 0), ND_INVALID_PARAMETER_2);
    // Beside registered bytes, in their order; all of them are captured.
    std::memset(stack.data(), '1', 4);
    std::memset(lab.a.buffer, '2', 4);
    ND_SGE mixed[3] = {{stack.data(), 4, nullptr}, lab.a.sge(0, 4), {stack.data(), 4, nullptr}};
    HR(ep->Send(&sent, mixed, 3, 0), ND_SUCCESS);
    std::memset(lab.a.buffer, 'x', 4);
    link.x.done(sent);
    link.y.got(received[1]);
    CHECK(std::memcmp(lab.b.buffer + 8192, "111122221111", 12) == 0);
    ND_SGE long_mixed[2] = {{stack.data(), most, nullptr}, lab.a.sge(0, 1)};
    HR(ep->Send(&r, long_mixed, 2, 0), ND_INVALID_PARAMETER_2);
    std::vector<ND_SGE> many(17, ND_SGE{stack.data(), 1, nullptr});
    HR(ep->Send(&r, many.data(), many.size(), 0), ND_DATA_OVERRUN);
    // A registration that does not cover its bytes is no way to have them captured.
    mixed[1] = {stack.data(), 4, lab.a.mr};
    HR(ep->Send(&sent, mixed, 3, 0), ND_SUCCESS);
    link.x.done(sent, ND_ACCESS_VIOLATION);
    link.is_dead();
    link.y.got(received[2], ND_CANCELED);
    CHECK_EQ(mw->Release(), 0);
}

// After Disconnect the memory is the program's alone, whatever the peer still sends.
static void t29()
{
    Lab lab;
    for (int round = 0; round < 5; round++) {
        Link1 link(lab);
        ND_RESULT invalidated, received, own;
        INDMemoryWindow *mw = lab.b.window(invalidated);
        const ND_MW_DESCRIPTOR d = link.y.bound(mw, 0, 65536, MAY_WRITE | MAY_READ);
        link.y.receive(received, 65536, 65536);
        std::atomic<int> started{0};
        std::atomic<bool> over{false};
        std::memset(lab.a.buffer, 'p', 65536);
        std::thread peer([&] {
            for (;;) {
                ND_RESULT r;
                HR(link.x.write(r, 0, 65536, d), ND_SUCCESS);
                started++;
                CHECK_EQ(next(link.x.out), &r);
                if (r.Status != ND_SUCCESS) {
                    over = true;
                    return;
                }
            }
        });
        while (started < 3)
            std::this_thread::yield();
        const ND_SGE source = lab.b.sge(131072, 65536);
        HR(link.y.endpoint->Send(&own, &source, 1, 0), ND_SUCCESS); // there is no Receive for it
        HR(link.y.disconnect(), ND_SUCCESS);
        HR(lab.b.remove(lab.b.mr), ND_SUCCESS); // nothing is bound, nothing is in use
        std::memset(lab.b.buffer, 'q', Node::SIZE);
        link.y.got(received, ND_CANCELED);
        link.y.done(own, ND_CANCELED);
        // The other side's end flushes nothing here (ND1 D-4); a Write posted behind a flush awaits the next.
        while (!over) {
            HR(link.x.endpoint->Flush(), ND_SUCCESS);
            std::this_thread::yield();
        }
        peer.join();
        CHECK(lab.b.holds(0, Node::SIZE, 'q'));
        lab.b.mr = lab.b.add(lab.b.buffer, Node::SIZE);
        CHECK_EQ(mw->Release(), 0);
    }
}

int main(int argc, char **argv)
{
    return run_case(argc, argv,
                    {{"t7", t7}, {"t18", t18}, {"t19", t19}, {"t20", t20}, {"t21", t21}, {"t22", t22}, {"t23", t23}, {"t24", t24}, {"t29", t29}});
}
