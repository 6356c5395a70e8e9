// Version 1's connections: ND1 16, T25 to T28, T30, T31; every call in every state (ND1 11.3).
#include "nd1_test.h"

static void t25()
{
    struct {
        SIZE_T active_in, active_out, passive_in, passive_out; // asked for
        SIZE_T offered_in, offered_out;                        // what the passive side is told
        SIZE_T agreed_in, agreed_out;                          // what the active side is told
    } const rows[] = {
        {4, 4, 4, 4, 4, 4, 4, 4},
        {8, 2, 2, 8, 2, 8, 8, 2},
        {8, 8, 1, 2, 8, 8, 2, 1}, // reduced by the passive side
        {0, 4, 4, 0, 4, 0, 0, 4},
        {0, 0, 0, 0, 0, 0, 0, 0},
        {4, 4, 0, 4, 4, 4, 4, 0}, // the passive side serves none
        {0, 4, 4, 4, 4, 0, 0, 4}, // the active side serves none, and the passive one asks for some
    };
    Lab lab;
    for (const auto &row : rows) {
        Sizes xs, ys;
        xs.reads_in = row.active_in, xs.reads_out = row.active_out;
        ys.reads_in = row.passive_in, ys.reads_out = row.passive_out;
        End x(lab.a, xs), y(lab.b, ys);
        SIZE_T in = 99, out = 99;
        lab.listening.offer(x, y);
        HR(y.connector->GetConnectionData(&in, &out, nullptr, nullptr), ND_SUCCESS);
        CHECK(in == row.offered_in && out == row.offered_out);
        lab.listening.accept(x, y);
        HR(x.connector->GetConnectionData(&in, &out, nullptr, nullptr), ND_SUCCESS);
        CHECK(in == row.agreed_in && out == row.agreed_out);
        HR(x.complete(), ND_SUCCESS);
        HR(y.wait(ND_PENDING), ND_SUCCESS);
        ND_RESULT one, two, r;
        INDMemoryWindow *xw = lab.a.window(one), *yw = lab.b.window(two);
        const ND_MW_DESCRIPTOR to_y = y.bound(yw, 0, 64, MAY_READ), to_x = x.bound(xw, 0, 64, MAY_READ);
        // With a limit of none a Read is refused by the call, and the endpoint lives (ND1 RW-5).
        if (row.agreed_out == 0)
            HR(x.read(r, 64, 8, to_y), ND_INVALID_DEVICE_REQUEST);
        else
            x.reads(ND_SUCCESS, 64, 8, to_y);
        if (row.agreed_in == 0)
            HR(y.read(r, 64, 8, to_x), ND_INVALID_DEVICE_REQUEST);
        else
            y.reads(ND_SUCCESS, 64, 8, to_x);
        CHECK_EQ(xw->Release() + yw->Release(), 0);
    }
    // More posted than may be under way: they wait.
    Sizes one_read;
    one_read.reads_out = 1;
    Link1 link(lab, one_read);
    ND_RESULT invalidated, r[8];
    INDMemoryWindow *mw = lab.b.window(invalidated);
    const ND_MW_DESCRIPTOR d = link.y.bound(mw, 0, 65536, MAY_READ);
    for (ND_RESULT &one : r)
        HR(link.x.read(one, 0, 65536, d), ND_SUCCESS);
    for (ND_RESULT &one : r)
        link.x.done(one);
    CHECK_EQ(mw->Release(), 0);
    // Above what the adapter can: refused by position.
    End end(lab.a);
    ND_ADAPTER_INFO info;
    SIZE_T size = sizeof info;
    HR(lab.a.adapter->Query(ND_VERSION_1, &info, &size), ND_SUCCESS);
    INDEndpoint *none = nullptr;
    const auto make = [&](SIZE_T in, SIZE_T out, SIZE_T insge, SIZE_T outsge, SIZE_T rin, SIZE_T rout) {
        return end.connector->CreateEndpoint(end.in, end.out, in, out, insge, outsge, rin, rout, nullptr, &none);
    };
    HR(make(info.MaxInboundRequests + 1, 1, 1, 1, 1, 1), ND_INVALID_PARAMETER_3);
    HR(make(1, info.MaxOutboundRequests + 1, 1, 1, 1, 1), ND_INVALID_PARAMETER_4);
    HR(make(1, 1, info.MaxInboundSge + 1, 1, 1, 1), ND_INVALID_PARAMETER_5);
    HR(make(1, 1, 1, info.MaxOutboundSge + 1, 1, 1), ND_INVALID_PARAMETER_6);
    HR(make(1, 1, 1, 1, info.MaxInboundReadLimit + 1, 1), ND_INVALID_PARAMETER_7);
    HR(make(1, 1, 1, 1, 1, info.MaxOutboundReadLimit + 1), ND_INVALID_PARAMETER_8);
}

static void t26()
{
    Lab lab;
    for (int how = 0; how < 3; how++) {
        End x(lab.a), y(lab.b);
        ND_RESULT pending;
        lab.listening.offer(x, y);
        y.receive(pending);
        lab.listening.accept(x, y);
        if (how == 0)
            HR(x.connector->Reject("no", 2), ND_SUCCESS);
        else if (how == 1)
            HR(x.connector->Reject(nullptr, 0), ND_SUCCESS);
        else {
            CHECK_EQ(x.connector->Release(), 0); // ND1 C-6
            x.connector = nullptr;
        }
        HR(y.wait(ND_PENDING), ND_CONNECTION_ABORTED);
        y.got(pending, ND_CANCELED);
        if (how < 2) {
            HR(x.connector->CompleteConnect(&x.ov), ND_CONNECTION_ABORTED);
            HR(x.connector->Disconnect(&x.ov), ND_CONNECTION_INVALID);
        }
    }
}

// GetConnectionData's answers when asked with every size of buffer.
static void has_data(End &end, const std::string &whole)
{
    INDConnector *c = end.connector;
    std::vector<char> data(whole.size() + 1);
    for (SIZE_T room = 0; room < whole.size(); room++) {
        std::fill(data.begin(), data.end(), '.');
        SIZE_T in = 99, out = 99, size = room;
        HR(c->GetConnectionData(&in, &out, data.data(), &size), ND_BUFFER_OVERFLOW);
        CHECK_EQ(size, whole.size());
        CHECK(whole.compare(0, room, data.data(), room) == 0 && data[room] == '.');
        CHECK(in != 99 && out != 99);
    }
    SIZE_T size = data.size();
    HR(c->GetConnectionData(nullptr, nullptr, data.data(), &size), ND_SUCCESS);
    CHECK(size == whole.size() && whole.compare(0, size, data.data(), size) == 0);
    size = 0;
    HR(c->GetConnectionData(nullptr, nullptr, nullptr, &size), whole.empty() ? ND_SUCCESS : ND_BUFFER_OVERFLOW);
    CHECK_EQ(size, whole.size());
    HR(c->GetConnectionData(nullptr, nullptr, nullptr, nullptr), ND_SUCCESS);
}

static void t27()
{
    Lab lab;
    ND_ADAPTER_INFO info;
    SIZE_T size = sizeof info;
    HR(lab.a.adapter->Query(ND_VERSION_1, &info, &size), ND_SUCCESS);
    const std::string caller(info.MaxCallerData, 'c'), callee(info.MaxCalleeData, 'd');
    for (const bool most : {false, true}) {
        End x(lab.a), y(lab.b);
        const std::string hello = most ? caller : "hello", welcome = most ? callee : "welcome";
        lab.listening.offer(x, y, hello.data(), hello.size());
        has_data(y, hello);
        lab.listening.accept(x, y, welcome.data(), welcome.size());
        has_data(x, welcome);
        HR(x.complete(), ND_SUCCESS);
        HR(y.wait(ND_PENDING), ND_SUCCESS);
        has_data(x, welcome);
        has_data(y, hello);
        HR(x.disconnect(), ND_SUCCESS);
        HR(y.hear_of_disconnect(), ND_SUCCESS);
        has_data(y, hello); // also when the peer has gone, and when this side has (ND1 11.3)
        has_data(x, welcome);
    }
    // A Reject's data, or its lack of them; then the same connector and endpoint try again.
    End x(lab.a);
    for (const std::string sorry : {"sorry", ""}) {
        End y(lab.b);
        lab.listening.offer(x, y);
        HR(y.connector->Reject((callee + "!").data(), callee.size() + 1), ND_BUFFER_OVERFLOW);
        HR(y.connector->Reject((void *)16, 8), ND_ACCESS_VIOLATION);
        HR(y.connector->Reject(sorry.data(), sorry.size()), ND_SUCCESS);
        HR(x.wait(ND_PENDING), ND_CONNECTION_REFUSED);
        has_data(x, sorry);
    }
    HR(x.start_connect(lab.listening.port, (caller + "!").data(), caller.size() + 1), ND_BUFFER_OVERFLOW);
    HR(x.start_connect(lab.listening.port, (void *)16, 8), ND_ACCESS_VIOLATION);
    End y(lab.b);
    lab.listening.offer(x, y);
    HR(y.connector->Accept(y.endpoint, callee.data(), callee.size() + 1, &y.ov), ND_BUFFER_OVERFLOW);
    HR(y.connector->Accept(x.endpoint, nullptr, 0, &y.ov), ND_INVALID_PARAMETER_1);
    lab.listening.accept(x, y);
    HR(x.complete(), ND_SUCCESS);
    HR(y.wait(ND_PENDING), ND_SUCCESS);
}

static void t28()
{
    Lab lab;
    Link1 link(lab);
    ND_RESULT invalidated, received, late, sent, r, *got;
    Request early;
    INDMemoryWindow *mw = lab.a.window(invalidated);
    link.x.receive(received);
    HR(link.x.connector->NotifyDisconnect(&early), ND_PENDING);
    HR(link.y.disconnect(), ND_SUCCESS);
    HR(result_of(link.x.connector, ND_PENDING, early), ND_SUCCESS);
    HR(link.x.hear_of_disconnect(), ND_SUCCESS); // as often as one asks
    CHECK_EQ(link.x.in->GetResults(&got, 1), 0); // nothing was flushed
    link.x.receive_nothing(late);
    link.x.send_nothing(sent); // accepted; nobody will take it
    CHECK_EQ(link.x.in->GetResults(&got, 1), 0);
    ND_MW_DESCRIPTOR d;
    HR(link.x.bind(r, mw, 0, 8, MAY_READ, d), ND_SUCCESS);
    HR(link.x.disconnect(), ND_SUCCESS);
    link.x.got(received, ND_CANCELED);
    link.x.got(late, ND_CANCELED);
    link.x.done(sent, ND_CANCELED);
    link.x.done(r, ND_CANCELED);
    HR(lab.a.remove(lab.a.mr), ND_SUCCESS); // the canceled Bind holds nothing (ND1 MW-5)
    lab.a.mr = nullptr;
    CHECK_EQ(mw->Release(), 0);
    // A local Disconnect ends a pending indication, too.
    Link1 second(lab);
    HR(second.y.connector->NotifyDisconnect(&early), ND_PENDING);
    HR(second.y.disconnect(), ND_SUCCESS);
    HR(result_of(second.y.connector, ND_PENDING, early), ND_SUCCESS);
    // Only CancelOverlappedRequests cancels one, on the connector or on the whole adapter (ND1 OV-8).
    for (const bool whole : {false, true}) {
        Link1 third(lab);
        HR(third.y.connector->NotifyDisconnect(&early), ND_PENDING);
        INDOverlapped *on = third.y.connector;
        HR((whole ? lab.b.adapter : on)->CancelOverlappedRequests(), ND_SUCCESS);
        SIZE_T bytes;
        HR(third.y.connector->GetOverlappedResult(&early, &bytes, FALSE), ND_CANCELED);
    }
}

static void t30()
{
    Lab lab;
    INDAdapter *adapter = lab.b.adapter;
    INDListen *listen = nullptr, *other = nullptr;
    USHORT port = 0, second = 0;
    listen = reinterpret_cast<INDListen *>(adapter);
    HR(adapter->Listen(0, 6, 0, nullptr, &listen), ND_INVALID_PARAMETER_MIX);
    CHECK(listen == nullptr); // ND2 1.6
    HR(adapter->Listen(0, 256, 0, &port, &listen), ND_INVALID_PARAMETER_2);
    HR(adapter->Listen(0, -1, 0, &port, &listen), ND_INVALID_PARAMETER_2);
    for (int tries = 0;; ++tries) {
        HR(adapter->Listen(0, 6, 0, &port, &listen), ND_SUCCESS);
        CHECK(port != 0);
        // The ports of other protocols lie elsewhere: somebody may have one of those, or root alone may.
        bool free = true;
        for (const INT protocol : {17, 1}) {
            INDListen *probe = nullptr;
            free = free && adapter->Listen(0, protocol, port, &second, &probe) == ND_SUCCESS;
            if (probe)
                probe->Release();
        }
        if (free)
            break;
        CHECK(tries < 100);
        CHECK_EQ(listen->Release(), 0);
    }
    HR(adapter->Listen(0, 6, port, nullptr, &other), ND_ADDRESS_ALREADY_EXISTS);
    // A port's number of another protocol is another port (ND1 T30), and each connects to its own.
    for (const INT protocol : {17, 1}) {
        HR(adapter->Listen(0, protocol, port, &second, &other), ND_SUCCESS);
        CHECK_EQ(second, port);
        INDListen *again = nullptr;
        HR(adapter->Listen(0, protocol, port, nullptr, &again), ND_ADDRESS_ALREADY_EXISTS);
        End x(lab.a), y(lab.b), wrong(lab.b);
        x.make_endpoint();
        HR(listen->GetConnectionRequest(wrong.connector, &wrong.ov), ND_PENDING);
        HR(other->GetConnectionRequest(y.connector, &y.ov), ND_PENDING);
        HR(x.start_connect(ntohs(port), nullptr, 0, protocol), ND_PENDING);
        HR(y.wait(ND_PENDING), ND_SUCCESS);
        SIZE_T bytes;
        HR(wrong.connector->GetOverlappedResult(&wrong.ov, &bytes, FALSE), ND_PENDING);
        sockaddr_in local, peer;
        SIZE_T size = sizeof local;
        HR(y.connector->GetLocalAddress((sockaddr *)&local, &size), ND_SUCCESS);
        CHECK_EQ(local.sin_port, port);
        HR(y.connector->GetPeerAddress((sockaddr *)&peer, &size), ND_SUCCESS);
        HR(x.connector->GetLocalAddress((sockaddr *)&local, &size), ND_SUCCESS);
        CHECK_EQ(local.sin_port, peer.sin_port);
        HR(x.connector->GetPeerAddress((sockaddr *)&peer, &size), ND_SUCCESS);
        CHECK_EQ(peer.sin_port, port);
        CHECK_EQ(other->Release(), 0);
        HR(listen->CancelOverlappedRequests(), ND_SUCCESS);
        HR(wrong.wait(ND_PENDING), ND_CANCELED);
        HR(x.start_connect(ntohs(port), nullptr, 0, 300), ND_INVALID_PARAMETER_4);
    }
    CHECK_EQ(listen->Release(), 0);
    // A full backlog refuses (ND1 11.2); a listener that goes refuses what waits in it (ND1 C-5).
    HR(adapter->Listen(1, 6, 0, &port, &listen), ND_SUCCESS);
    End first(lab.a), next_one(lab.a);
    first.make_endpoint();
    next_one.make_endpoint();
    HR(first.start_connect(ntohs(port)), ND_PENDING);
    HR(next_one.start_connect(ntohs(port)), ND_PENDING);
    // Whichever came first waits; the other is refused.
    HANDLE events[2] = {first.ov.hEvent, next_one.ov.hEvent};
    const DWORD which = WaitForMultipleObjects(2, events, FALSE, INFINITE);
    CHECK(which < 2);
    End &refused = which == 0 ? first : next_one, &waits = which == 0 ? next_one : first;
    SIZE_T bytes;
    HR(refused.connector->GetOverlappedResult(&refused.ov, &bytes, FALSE), ND_CONNECTION_REFUSED);
    HR(waits.connector->GetOverlappedResult(&waits.ov, &bytes, FALSE), ND_PENDING);
    CHECK_EQ(listen->Release(), 0);
    HR(waits.wait(ND_PENDING), ND_CONNECTION_REFUSED);
    // Nobody listens at a port that somebody has: one that is free might be a neighbour's by now.
    const SOCKET held = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in there = address("127.0.0.1", 0);
    socklen_t there_size = sizeof there;
    CHECK(::bind(held, sa(there), there_size) == 0);
    CHECK(::getsockname(held, (sockaddr *)&there, &there_size) == 0);
    HR(waits.wait(waits.start_connect(ntohs(there.sin_port))), ND_CONNECTION_REFUSED);
    CHECK(::closesocket(held) == 0);
    // A local port that somebody has.
    USHORT taken = htons(lab.listening.port);
    const sockaddr_in to = address("127.0.0.1", lab.listening.port);
    Node same("127.0.0.1");
    End z(same);
    z.make_endpoint();
    HR(z.wait(z.connector->Connect(z.endpoint, sa(to), sizeof to, 6, taken, nullptr, 0, &z.ov)), ND_ADDRESS_ALREADY_EXISTS);
    HR(z.start_connect(0), ND_INVALID_ADDRESS);
    HR(z.connector->Connect(z.endpoint, sa(to), 4, 6, 0, nullptr, 0, &z.ov), ND_INVALID_ADDRESS);
    HR(z.connector->Connect(first.endpoint, sa(to), sizeof to, 6, 0, nullptr, 0, &z.ov), ND_INVALID_PARAMETER_1);
    End w(lab.b);
    lab.listening.join(z, w); // after all that
}

// A time-out, as a version 1 and as a version 2 program sees it: nobody posts a Receive.
static void t31()
{
    Lab lab;
    Link1 old(lab);
    Side young;
    young.make_queues();
    young.bind();
    End peer(lab.b);
    HR(lab.listening.listen->GetConnectionRequest(peer.connector, &peer.ov), ND_PENDING);
    const sockaddr_in to = address("127.0.0.1", lab.listening.port);
    HR(young.connector->Connect(young.qp, sa(to), sizeof to, 4, 4, nullptr, 0, &young.ov), ND_PENDING);
    HR(peer.wait(ND_PENDING), ND_SUCCESS);
    peer.make_endpoint();
    HR(peer.connector->Accept(peer.endpoint, nullptr, 0, &peer.ov), ND_PENDING);
    HR(young.wait(young.connector, ND_PENDING), ND_SUCCESS);
    HR(young.wait(young.connector, young.connector->CompleteConnect(&young.ov)), ND_SUCCESS);
    ND_RESULT sent;
    old.x.send_nothing(sent);
    HR(young.qp->Send(&young, nullptr, 0, 0), ND_SUCCESS);
    old.x.done(sent, ND_TIMEOUT);
    CHECK_EQ((UINT32)sent.Status, 0x102);
    CHECK(SUCCEEDED(sent.Status)); // so that a program has to compare with ND_SUCCESS (ND1 15.9)
    young.expect((HRESULT)0xC00000B5, &young, Nd2RequestTypeSend);
}

// ND1 11.3. DISCONNECTING cannot be looked at: Disconnect is over when it returns.
static void states()
{
    enum State { IDLE, CONNECTING, OFFERED, REFUSED, REQUESTED, ACCEPTING, CONNECTED, PEER_DISC, ERROR, CLOSED, STATES };
    enum Call { Connect, CompleteConnect, Accept, Reject, GetData, Notify, Disconnect, Send, Receive, CALLS };
    const HRESULT ok = ND_SUCCESS, inv = ND_CONNECTION_INVALID, act = ND_CONNECTION_ACTIVE, sta = ND_INVALID_DEVICE_STATE,
                  abt = ND_CONNECTION_ABORTED;
    const HRESULT table[CALLS][STATES] = {
        //                 IDLE CONNG OFFRD REFSD REQD  ACCNG COND  PEERD ERROR CLOSED
        /* Connect */     {ok,  act,  sta,  ok,   sta,  sta,  act,  act,  act,  sta},
        /* Complete */    {inv, inv,  ok,   inv,  inv,  inv,  inv,  inv,  inv,  inv},
        /* Accept */      {inv, sta,  sta,  sta,  ok,   sta,  act,  sta,  sta,  abt},
        /* Reject */      {inv, inv,  ok,   sta,  ok,   sta,  inv,  sta,  sta,  inv},
        /* GetData */     {inv, inv,  ok,   ok,   ok,   ok,   ok,   ok,   ok,   ok},
        /* Notify */      {inv, inv,  inv,  inv,  inv,  inv,  ok,   ok,   ok,   ok},
        /* Disconnect */  {inv, inv,  inv,  inv,  inv,  inv,  ok,   ok,   ok,   inv},
        /* Send */        {inv, inv,  inv,  inv,  inv,  inv,  ok,   ok,   ok,   inv},
        /* Receive */     {ok,  ok,   ok,   ok,   ok,   ok,   ok,   ok,   ok,   inv},
    };
    Lab lab;
    for (int state = 0; state < STATES; state++)
        for (int call = 0; call < CALLS; call++) {
            Listening listening(lab.b);
            End x(lab.a), y(lab.b);
            End *e = &y;
            ND_RESULT r, bad;
            ND_MW_DESCRIPTOR none = {};
            switch (state) {
            case CONNECTING:
                x.make_endpoint();
                HR(x.start_connect(listening.port), ND_PENDING);
                break;
            case OFFERED:
            case ACCEPTING:
                listening.offer(x, y);
                listening.accept(x, y);
                break;
            case REFUSED:
                listening.offer(x, y);
                HR(y.connector->Reject(nullptr, 0), ND_SUCCESS);
                HR(x.wait(ND_PENDING), ND_CONNECTION_REFUSED);
                break;
            case REQUESTED:
                listening.offer(x, y);
                break;
            case CONNECTED:
            case PEER_DISC:
            case ERROR:
            case CLOSED:
                listening.join(x, y);
                if (state == PEER_DISC)
                    HR(x.disconnect(), ND_SUCCESS);
                if (state == ERROR)
                    HR(x.write(bad, 0, 8, none), ND_SUCCESS);
                if (state == PEER_DISC || state == ERROR)
                    HR(y.hear_of_disconnect(), ND_SUCCESS);
                if (state == CLOSED)
                    HR(y.disconnect(), ND_SUCCESS);
                break;
            default:
                x.make_endpoint();
            }
            if (state <= REFUSED)
                e = &x;
            Request ov;
            HRESULT hr = ND_SUCCESS;
            switch (call) {
            case Connect:
                e->ov.Internal = 0;
                hr = [&] {
                    const sockaddr_in to = address("127.0.0.1", listening.port);
                    return e->connector->Connect(e->endpoint, sa(to), sizeof to, 6, 0, nullptr, 0, &ov);
                }();
                break;
            case CompleteConnect:
                hr = e->connector->CompleteConnect(&ov);
                break;
            case Accept:
                hr = e->connector->Accept(e->endpoint, nullptr, 0, &ov);
                break;
            case Reject:
                hr = e->connector->Reject(nullptr, 0);
                break;
            case GetData:
                hr = e->connector->GetConnectionData(nullptr, nullptr, nullptr, nullptr);
                break;
            case Notify:
                hr = e->connector->NotifyDisconnect(&ov);
                break;
            case Disconnect:
                hr = e->connector->Disconnect(&ov);
                break;
            case Send:
                hr = e->endpoint->Send(&r, nullptr, 0, 0);
                break;
            case Receive:
                hr = e->endpoint->Receive(&r, nullptr, 0);
                break;
            }
            if (hr == ND_PENDING)
                hr = ND_SUCCESS;
            if ((UINT32)hr != (UINT32)table[call][state])
                std::fprintf(stderr, "call %d in state %d\n", call, state);
            HR(hr, table[call][state]);
            if (state == ERROR && (call == Send || call == Receive)) {
                (call == Send ? y.done(r, ND_CANCELED) : y.got(r, ND_CANCELED));
            }
            // Whatever is outstanding ends with the connectors, before its OVERLAPPED goes.
            for (End *end : {&x, &y}) {
                CHECK_EQ(end->connector->Release(), 0);
                end->connector = nullptr;
            }
        }
}

int main(int argc, char **argv)
{
    return run_case(argc, argv,
                    {{"t25", t25}, {"t26", t26}, {"t27", t27}, {"t28", t28}, {"t30", t30}, {"t31", t31}, {"states", states}});
}
