// Version 1 where it is strict, by its environment: one bound window for each endpoint (ND1 15.1), and an active side
// that speaks first (ND1 C-7). Each case also says what is allowed without.
#include "nd1_test.h"

// A second Bind is refused as long as a window is bound, whatever the window; and changes nothing.
static void windows(bool strict)
{
    Lab lab;
    Link1 link(lab), other(lab);
    const HRESULT second = strict ? ND_INVALID_DEVICE_STATE : ND_SUCCESS;
    ND_RESULT invalidated[3], r, w;
    ND_MW_DESCRIPTOR d, more;
    INDMemoryWindow *mw[3];
    for (int i = 0; i < 3; i++)
        mw[i] = lab.b.window(invalidated[i]);
    const auto binds = [&](HRESULT status) {
        more = ND_MW_DESCRIPTOR{1, 2, 3};
        HR(link.y.bind(r, mw[1], 64, 8, MAY_READ, more), status);
        CHECK((more.Base == 1 && more.Length == 2 && more.Token == 3) == (status != ND_SUCCESS));
        if (status != ND_SUCCESS)
            return;
        link.y.done(r);
        HR(link.y.endpoint->Invalidate(&r, mw[1], 0), ND_SUCCESS);
        link.y.done(r);
    };
    lab.b.buffer[0] = 'b';
    // From the call on, not only when it has executed.
    HR(link.y.bind(w, mw[0], 0, 8, MAY_READ | MAY_WRITE, d), ND_SUCCESS);
    if (strict)
        binds(second);
    link.y.done(w);
    binds(second);
    HR(link.y.bind(r, mw[0], 0, 8, MAY_READ, more), ND_INVALID_DEVICE_STATE); // the same window: always
    link.x.reads(ND_SUCCESS, 0, 1, d); // the first one is as it was
    CHECK(lab.a.buffer[0] == 'b');
    // Another endpoint has a window of its own.
    const ND_MW_DESCRIPTOR elsewhere = other.y.bound(mw[2], 0, 8, MAY_READ);
    other.x.reads(ND_SUCCESS, 8, 1, elsewhere);
    binds(second);
    HR(other.y.endpoint->Invalidate(&r, mw[2], 0), ND_SUCCESS);
    other.y.done(r);
    // The post of its Invalidate ends it ...
    HR(link.y.endpoint->Invalidate(&w, mw[0], 0), ND_SUCCESS);
    HR(link.y.bind(r, mw[1], 64, 8, MAY_READ, more), ND_SUCCESS);
    link.y.done(w);
    link.y.done(r);
    HR(link.y.endpoint->Invalidate(&r, mw[1], 0), ND_SUCCESS);
    link.y.done(r);
    binds(ND_SUCCESS);
    // ... and the peer's does ...
    d = link.y.bound(mw[0], 0, 8, MAY_READ);
    binds(second);
    link.y.receive_nothing(r);
    HR(link.x.endpoint->SendAndInvalidate(&w, nullptr, 0, &d, 0), ND_SUCCESS);
    link.x.done(w);
    link.y.got(invalidated[0]);
    link.y.got(r);
    // ... also when the window is bound elsewhere by now ...
    other.y.bound(mw[0], 0, 8, MAY_READ);
    binds(ND_SUCCESS);
    HR(other.y.endpoint->Invalidate(&w, mw[0], 0), ND_SUCCESS);
    other.y.done(w);
    // ... and its release.
    link.y.bound(mw[0], 0, 8, MAY_READ);
    binds(second);
    CHECK_EQ(mw[0]->Release(), 0);
    binds(ND_SUCCESS);
    // A Bind that is refused for another reason leaves the place free.
    HR(link.y.bind(r, mw[1], 64, Node::SIZE, MAY_READ, more), ND_INVALID_PARAMETER_5);
    binds(ND_SUCCESS);
    for (int i = 1; i < 3; i++)
        CHECK_EQ(mw[i]->Release(), 0);
}

// The passive side's requests are refused until it has retrieved a message; Receive, Bind and Invalidate are not.
static void speaking(bool strict)
{
    Lab lab;
    Link1 link(lab);
    ND_RESULT r, s, invalidated;
    ND_MW_DESCRIPTOR theirs, own;
    INDMemoryWindow *mw = lab.a.window(invalidated), *mine = lab.b.window(s);
    theirs = link.x.bound(mw, 0, 64, MAY_READ | MAY_WRITE); // of the active side, which may
    const auto speaks = [&](bool refused) {
        const HRESULT status = refused ? ND_INVALID_DEVICE_STATE : ND_SUCCESS;
        ND_RESULT got;
        const ND_SGE sge = lab.b.sge(0, 8);
        const auto ends = [&](HRESULT hr) {
            HR(hr, status);
            if (!refused)
                link.y.done(r);
        };
        if (!refused)
            link.x.receive_nothing(got);
        ends(link.y.endpoint->Send(&r, nullptr, 0, 0));
        if (!refused)
            link.x.got(got);
        ends(link.y.endpoint->Read(&r, &sge, 1, &theirs, 0, 0));
        ends(link.y.endpoint->Write(&r, &sge, 1, &theirs, 0, 0));
        if (refused)
            ends(link.y.endpoint->SendAndInvalidate(&r, nullptr, 0, &theirs, 0));
    };
    speaks(strict);
    // A fault of the request is said first.
    HR(link.y.endpoint->Send(&r, nullptr, 1, 0), ND_INVALID_PARAMETER_2);
    HR(link.y.endpoint->Send(&r, nullptr, 0, 0x8000), ND_INVALID_PARAMETER_4);
    own = link.y.bound(mine, 0, 8, MAY_READ);
    ND_RESULT first, second;
    link.y.receive_nothing(first);
    link.y.receive_nothing(second);
    speaks(strict);
    // The message has arrived, and the program has not seen it: a Read behind it is answered.
    link.x.send_nothing(r);
    link.x.done(r);
    link.x.reads(ND_SUCCESS, 128, 8, own);
    speaks(strict);
    link.y.got(first);
    speaks(false);
    link.x.send_nothing(r);
    link.x.done(r);
    link.y.got(second);
    speaks(false);
    HR(link.y.endpoint->Invalidate(&r, mine, 0), ND_SUCCESS);
    link.y.done(r);
    // Unconnected it is said so, as ever.
    HR(link.y.disconnect(), ND_SUCCESS);
    HR(link.y.endpoint->Send(&r, nullptr, 0, 0), ND_CONNECTION_INVALID);
    CHECK_EQ(mw->Release(), 0);
    CHECK_EQ(mine->Release(), 0);
}

int main(int argc, char **argv)
{
    return run_case(argc, argv,
                    {{"one_window", [] { windows(true); }},
                     {"any_windows", [] { windows(false); }},
                     {"speak_first", [] { speaking(true); }},
                     {"speak", [] { speaking(false); }}});
}
