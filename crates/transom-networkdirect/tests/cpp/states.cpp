// ND2 4.7.3 and 4.7.4 through the interface: every call in every state, one line per row.
#include "nd_scene.h"

constexpr HRESULT OK = ND_SUCCESS, INV = ND_CONNECTION_INVALID, ACT = ND_CONNECTION_ACTIVE, ABT = ND_CONNECTION_ABORTED,
                  STA = ND_INVALID_DEVICE_STATE, AAS = (HRESULT)0xC0000238, NAS = (HRESULT)0xC0000239,
                  DIS = (HRESULT)0xC000020C;

// The columns: how a connector gets there. ActDisc is not among them, because Disconnect is finished when it
// returns (ND2 4.9): a state that no program can meet.
struct State {
    const char *name;
    char end; // whose connector is asked: A or P
    const char *steps;
};
static const State states[] = {
    /* 0*/ {"Idle", 'A', ""},
    /* 1*/ {"Bound", 'A', "b"},
    /* 2*/ {"Bound, refused with data", 'A', "bCqriW"},
    /* 3*/ {"Queued", 'P', "q"},
    /* 4*/ {"ReqRcvd", 'P', "bCqr"},
    /* 5*/ {"Accepting", 'P', "bCqra"},
    /* 6*/ {"Connecting", 'A', "bC"},
    /* 7*/ {"RepRcvd", 'A', "bCqraW"},
    /* 8*/ {"Connected, active", 'A', "bCqraWK"},
    /* 9*/ {"Connected, passive", 'P', "bCqraWK"},
    /*10*/ {"PasDisc, active", 'A', "bCqraWKdL"},
    /*11*/ {"PasDisc, passive", 'P', "bCqraWKDl"},
    /*12*/ {"Disc, active", 'A', "bCqraWKD"},
    /*13*/ {"Disc, passive", 'P', "bCqraWKd"},
    /*14*/ {"Disc, has rejected", 'P', "bCqrj"},
    /*15*/ {"Disc, has rejected the answer", 'A', "bCqraWJ"},
    /*16*/ {"Disc, the peer left first", 'P', "bCqrXl"},
    /*17*/ {"Disc, Connect cancelled", 'A', "bCZ"},
};
constexpr int STATES = ARRAYSIZE(states);

static OVERLAPPED scratch;
static Side &side_of(Ends &e, const State &s) { return s.end == 'A' ? e.active : e.passive; }

static HRESULT bind(Side &s)
{
    const sockaddr_in a = address("127.0.0.1", 0);
    return s.connector->Bind(sa(a), sizeof a);
}
static IND2QueuePair *spare; // one more of the side that is asked
static USHORT nobody;        // where somebody listens and nobody answers
static HRESULT connect(Side &s)
{
    const sockaddr_in a = address("127.0.0.1", nobody);
    return s.connector->Connect(spare, sa(a), sizeof a, 0, 0, nullptr, 0, &scratch);
}
static HRESULT complete(Side &s) { return s.connector->CompleteConnect(&scratch); }
static HRESULT accept(Side &s) { return s.connector->Accept(spare, 0, 0, nullptr, 0, &scratch); }
static HRESULT reject(Side &s) { return s.connector->Reject(nullptr, 0); }
static HRESULT limits(Side &s)
{
    ULONG in, out;
    return s.connector->GetReadLimits(&in, &out);
}
static HRESULT private_data(Side &s)
{
    char data[600];
    ULONG size = sizeof data;
    return s.connector->GetPrivateData(data, &size);
}
static HRESULT local(Side &s)
{
    sockaddr_in a;
    ULONG size = sizeof a;
    return s.connector->GetLocalAddress((sockaddr *)&a, &size);
}
static HRESULT peer(Side &s)
{
    sockaddr_in a;
    ULONG size = sizeof a;
    return s.connector->GetPeerAddress((sockaddr *)&a, &size);
}
static HRESULT notify(Side &s) { return s.connector->NotifyDisconnect(&scratch); }
static HRESULT disconnect(Side &s) { return s.connector->Disconnect(&scratch); }
static HRESULT take(Side &s) { return s.listener->GetConnectionRequest(s.connector, &scratch); }

struct Row {
    const char *name;
    HRESULT (*call)(Side &);
    bool overlapped;
    HRESULT expected[STATES];
};
static const Row rows[] = {
    //                                                0    1    2    3    4    5    6    7    8    9    10   11   12   13   14   15   16   17
    {"Bind",             bind,         false, {OK,  AAS, AAS, AAS, AAS, AAS, AAS, AAS, AAS, AAS, AAS, AAS, AAS, AAS, AAS, AAS, AAS, AAS}},
    {"Connect",          connect,      true,  {NAS, OK,  OK,  STA, ACT, ACT, ACT, ACT, ACT, ACT, ACT, ACT, STA, STA, STA, STA, STA, STA}},
    {"CompleteConnect",  complete,     true,  {INV, INV, INV, INV, INV, INV, INV, OK,  INV, INV, INV, INV, ABT, INV, INV, ABT, INV, ABT}},
    {"Accept",           accept,       true,  {INV, INV, INV, INV, OK,  ACT, ACT, ACT, ACT, ACT, ACT, ACT, ABT, ABT, ABT, ABT, ABT, ABT}},
    {"Reject",           reject,       false, {STA, STA, STA, STA, OK,  STA, STA, OK,  STA, STA, STA, STA, INV, INV, INV, INV, ABT, INV}},
    {"GetReadLimits",    limits,       false, {INV, INV, INV, INV, OK,  OK,  INV, OK,  OK,  OK,  INV, INV, INV, INV, INV, INV, INV, INV}},
    {"GetPrivateData",   private_data, false, {INV, INV, OK,  INV, OK,  OK,  INV, OK,  OK,  OK,  INV, INV, INV, INV, INV, INV, INV, INV}},
    {"GetLocalAddress",  local,        false, {INV, OK,  OK,  INV, OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK }},
    {"GetPeerAddress",   peer,         false, {INV, INV, INV, INV, OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK }},
    {"NotifyDisconnect", notify,       true,  {INV, INV, INV, INV, INV, INV, INV, INV, OK,  OK,  OK,  OK,  DIS, DIS, DIS, DIS, DIS, DIS}},
    {"Disconnect",       disconnect,   true,  {INV, INV, INV, INV, INV, INV, INV, INV, OK,  OK,  OK,  OK,  INV, INV, INV, INV, INV, INV}},
    {"request for it",   take,         true,  {OK,  ACT, ACT, ACT, ACT, ACT, ACT, ACT, ACT, ACT, ACT, ACT, ACT, ACT, ACT, ACT, ACT, ACT}},
};

// A call that fails has changed nothing that a program can see.
struct Seen {
    HRESULT limits, data, local, peer;
    explicit Seen(Side &s) : limits(::limits(s)), data(private_data(s)), local(::local(s)), peer(::peer(s)) {}
    bool operator==(const Seen &o) const { return limits == o.limits && data == o.data && local == o.local && peer == o.peer; }
};

static void connectors()
{
    Ends e;
    int wrong = 0;
    for (const Row &row : rows)
        for (int i = 0; i < STATES; ++i) {
            e.go(states[i].steps);
            Side &s = side_of(e, states[i]);
            spare = Ends::pair(s);
            nobody = e.other_port;
            std::memset(&scratch, 0, sizeof scratch);
            const Seen before(s);
            const HRESULT hr = row.call(s);
            const HRESULT wanted = row.expected[i] == OK && row.overlapped ? ND_PENDING : row.expected[i];
            const bool inline_end = row.call == complete && hr == ND_SUCCESS; // allowed (2.3 rule 8)
            const bool same = hr >= 0 || Seen(s) == before;
            if ((hr != wanted && !inline_end) || !same) {
                std::fprintf(stderr, "%s in %s: %08x, not %08x%s\n", row.name, states[i].name, (unsigned)hr,
                             (unsigned)wanted, same ? "" : "; and it has changed something");
                ++wrong;
            }
            // A call that has begun ends before its OVERLAPPED serves again.
            s.connector->CancelOverlappedRequests();
            s.listener->CancelOverlappedRequests();
            if (hr == ND_PENDING)
                while (scratch.Internal == (ULONG_PTR)ND_PENDING)
                    Sleep(0);
            spare->Release();
            // Requests that nobody took do not wait for the next cell.
            Ends::drop(e.active.connector);
            Ends::drop(e.passive.connector);
            e.passive.listener->Release();
            e.passive.listener = nullptr;
            e.port = e.passive.listen();
        }
    CHECK_EQ(wrong, 0);
}

// A queue pair that is attached already: ACT, whatever the connector's state.
static void attached()
{
    Ends e;
    e.connect();
    IND2Connector *second = nullptr;
    HR(e.active.adapter->CreateConnector(IID_IND2Connector, e.active.file, (void **)&second), ND_SUCCESS);
    const sockaddr_in from = address("127.0.0.1", 0), to = address("127.0.0.1", e.port);
    HR(second->Bind(sa(from), sizeof from), ND_SUCCESS);
    HR(second->Connect(e.active.qp, sa(to), sizeof to, 0, 0, nullptr, 0, &scratch), ND_CONNECTION_ACTIVE);
    CHECK_EQ(second->Release(), 0);
    IND2QueuePair *used = e.passive.qp;
    e.keep();
    e.go("bCqr");
    HR(e.passive.connector->Accept(used, 0, 0, nullptr, 0, &scratch), ND_CONNECTION_ACTIVE);
    e.step('a'); // its own will do
    e.step('W');
    e.step('K');
}

static void listeners()
{
    enum { Bind, Listen, GetLocalAddress, GetConnectionRequest };
    static const struct {
        const char *name;
        int call;
        HRESULT idle, bound, listening;
    } table[] = {
        {"Bind", Bind, OK, AAS, AAS},
        {"Listen", Listen, STA, OK, STA},
        {"GetLocalAddress", GetLocalAddress, STA, OK, OK},
        {"GetConnectionRequest", GetConnectionRequest, STA, STA, ND_PENDING},
    };
    Side s;
    for (const auto &row : table)
        for (int state = 0; state < 3; ++state) {
            HR(s.adapter->CreateListener(IID_IND2Listener, s.file, (void **)&s.listener), ND_SUCCESS);
            sockaddr_in a = address("127.0.0.1", 0);
            ULONG size = sizeof a;
            if (state > 0)
                HR(s.listener->Bind(sa(a), sizeof a), ND_SUCCESS);
            if (state > 1)
                HR(s.listener->Listen(0), ND_SUCCESS);
            s.make_connector();
            const HRESULT hr = row.call == Bind     ? s.listener->Bind(sa(a), sizeof a)
                               : row.call == Listen ? s.listener->Listen(0)
                               : row.call == GetLocalAddress
                                   ? s.listener->GetLocalAddress((sockaddr *)&a, &size)
                                   : s.listener->GetConnectionRequest(s.connector, &s.ov);
            HR(hr, state == 0 ? row.idle : state == 1 ? row.bound : row.listening);
            CHECK_EQ(s.listener->Release(), 0);
            s.listener = nullptr;
            if (hr == ND_PENDING)
                HR(s.connector->GetOverlappedResult(&s.ov, TRUE), ND_CANCELED);
            CHECK_EQ(s.connector->Release(), 0);
            s.connector = nullptr;
        }
}

// ND2 4.1: what may be posted in which state. P: accepted and queued; C: accepted, and cancelled at once; X: refused.
static void posts()
{
    enum { P, C, X };
    static const struct {
        const char *name;
        char end;
        const char *steps;
        int receive, initiator;
    } table[] = {
        {"Idle", 'A', "", P, X},
        {"Idle, a Connect was refused", 'A', "bCqrjW", P, X},
        {"Connecting", 'A', "bC", P, X},
        {"Connecting, has the answer", 'A', "bCqraW", P, X},
        {"Accepting", 'P', "bCqra", P, X},
        {"Connected, active", 'A', "bCqraWK", P, P},
        {"Connected, passive", 'P', "bCqraWK", P, P},
        {"Error, the peer has disconnected", 'A', "bCqraWKdL", C, C},
        {"Error, the peer has disconnected", 'P', "bCqraWKDl", C, C},
        {"Error, flushed", 'A', "bCqraWKF", C, C},
        {"Error, flushed without a connection", 'A', "F", C, C}, // as the reference does
        {"Disconnected", 'A', "bCqraWKD", C, C},
        {"Disconnected", 'P', "bCqraWKd", C, C},
    };
    Ends e;
    for (const auto &row : table) {
        std::string steps = row.steps;
        const bool flush = !steps.empty() && steps.back() == 'F';
        if (flush)
            steps.pop_back();
        e.go(steps.c_str());
        Side &s = row.end == 'A' ? e.active : e.passive;
        if (flush)
            HR(s.qp->Flush(), ND_SUCCESS);
        std::fprintf(stderr, "%s\n", row.name); // the last one named is the one that failed
        // Zero-length requests need neither memory nor the peer's leave.
        HR(s.qp->Receive(&s, nullptr, 0), ND_SUCCESS);
        if (row.receive == C)
            s.expect(ND_CANCELED, &s, Nd2RequestTypeReceive);
        char memory[8];
        IND2MemoryRegion *mr = s.region(memory, sizeof memory, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
        IND2MemoryWindow *mw = s.window();
        const HRESULT wanted = row.initiator == X ? ND_CONNECTION_INVALID : ND_SUCCESS;
        const HRESULT ends = row.initiator == C ? ND_CANCELED : ND_SUCCESS;
        const struct {
            ND2_REQUEST_TYPE type;
            std::function<HRESULT()> post;
        } requests[] = {
            {Nd2RequestTypeWrite, [&] { return s.qp->Write(&e, nullptr, 0, 0, 0, 0); }},
            {Nd2RequestTypeRead, [&] { return s.qp->Read(&e, nullptr, 0, 0, 0, 0); }},
            {Nd2RequestTypeBind, [&] { return s.qp->Bind(&e, mr, mw, memory, sizeof memory, ND_OP_FLAG_ALLOW_READ); }},
            {Nd2RequestTypeInvalidate, [&] { return s.qp->Invalidate(&e, mw, 0); }},
            {Nd2RequestTypeSend, [&] { return s.qp->Send(&e, nullptr, 0, 0); }},
        };
        Side &other = row.end == 'A' ? e.passive : e.active;
        other.qp->Receive(&other, nullptr, 0);
        for (const auto &one : requests) {
            HR(one.post(), wanted);
            if (wanted == ND_SUCCESS)
                s.expect(ends, &e, one.type);
        }
        Ends::drop(e.passive.listener); // and the request that nobody took
        e.port = e.passive.listen();
    }
}

// 4.7.4.
static void cancels()
{
    Ends e;
    nobody = e.other_port;
    const auto restart = [&] { // requests of cancelled Connects may be in the backlog
        Ends::drop(e.passive.listener);
        e.port = e.passive.listen();
    };
    e.go("bCZ"); // Connecting: Disc, and the queue pair is free again
    HR(e.active.connector->GetOverlappedResult(&e.active.ov, FALSE), ND_CANCELED);
    spare = e.active.qp;
    HR(connect(e.active), ND_INVALID_DEVICE_STATE);
    restart();
    e.active.connector->Release();
    e.active.make_connector();
    for (const char *s = "bCqraWK"; *s; ++s)
        e.step(*s);
    e.go("bCqraz"); // Accepting: Disc
    HR(e.passive.connector->GetOverlappedResult(&e.passive.ov, FALSE), ND_CANCELED);
    spare = e.passive.qp;
    HR(accept(e.passive), ND_CONNECTION_ABORTED);
    e.connect(); // Connected: only NotifyDisconnect ends
    std::memset(&scratch, 0, sizeof scratch);
    HR(notify(e.passive), ND_PENDING);
    e.step('z');
    HR(e.passive.connector->GetOverlappedResult(&scratch, FALSE), ND_CANCELED);
    HR(e.passive.qp->Receive(nullptr, nullptr, 0), ND_SUCCESS);
    HR(e.active.qp->Send(nullptr, nullptr, 0, 0), ND_SUCCESS);
    HR(e.passive.result().Status, ND_SUCCESS);
    for (const char *idle : {"", "b"}) { // anything else: nothing
        e.go(idle);
        e.step('Z');
        e.step('z');
    }
}

int main(int argc, char **argv)
{
    time_limit(300);
    const std::string which = argc > 1 ? argv[1] : "";
    if (which == "connectors")
        connectors();
    else if (which == "attached")
        attached();
    else if (which == "listeners")
        listeners();
    else if (which == "posts")
        posts();
    else if (which == "cancels")
        cancels();
    else
        CHECK(!"a case");
    CHECK_EQ(transom_nd_live_objects(), 0);
    return 0;
}
