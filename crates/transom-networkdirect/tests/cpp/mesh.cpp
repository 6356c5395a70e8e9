// Four processes, every one connected to every other, as message passing libraries do it (ND2 7.4,
// ndmpic's idea): all of them connect to all at once. Where two meet head to head, the request of the
// lower rank is kept: the other answers it, and its own is rejected. Then everybody sends its rank to
// everybody. Nothing sleeps.
#include "nd_test.h"

#include <algorithm>
#include <map>
#include <string>

constexpr int RANKS = 4;

struct Mesh {
    int rank;
    Side side;
    HANDLE port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, nullptr, 0, 1);
    USHORT ports[RANKS] = {};

    struct Request : OVERLAPPED {
        std::function<void(HRESULT)> then;
        IND2Overlapped *on = nullptr;
        Request() : OVERLAPPED() {}
    };
    struct Peer {
        IND2QueuePair *qp = nullptr;
        IND2Connector *out = nullptr, *in = nullptr, *used = nullptr;
        Request connect, complete, accept, gone;
        bool connected = false;
    } peers[RANKS];
    Request incoming, notified;
    IND2Connector *waiting = nullptr;
    int connected = 0, rejected = 0;

    explicit Mesh(int r) : rank(r)
    {
        side.make_queues(16, 2, 256);
        side.qp->Release();
        side.qp = nullptr;
        CHECK(CreateIoCompletionPort(side.file, port, 1, 0) == port);
        ports[rank] = side.listen();
        for (int i = 0; i < RANKS; i++)
            if (i != rank)
                HR(side.adapter->CreateQueuePair(IID_IND2QueuePair, side.cq, side.cq, (void *)(ULONG_PTR)i, 8, 8, 2, 2, 0,
                                                 (void **)&peers[i].qp),
                   ND_SUCCESS);
    }
    ~Mesh()
    {
        for (Peer &peer : peers)
            for (IUnknown *one : {(IUnknown *)peer.qp, (IUnknown *)peer.out, (IUnknown *)peer.in})
                if (one)
                    one->Release();
        if (waiting)
            waiting->Release();
        CloseHandle(port);
    }
    IND2Connector *connector()
    {
        IND2Connector *made = nullptr;
        HR(side.adapter->CreateConnector(IID_IND2Connector, side.file, (void **)&made), ND_SUCCESS);
        return made;
    }
    void begin(Request &r, IND2Overlapped *on, std::function<void(HRESULT)> then)
    {
        r.on = on;
        r.then = std::move(then);
    }
    // A packet, and what it leads to.
    void step()
    {
        DWORD bytes;
        ULONG_PTR key;
        OVERLAPPED *ov = nullptr;
        GetQueuedCompletionStatus(port, &bytes, &key, &ov, INFINITE);
        CHECK(ov != nullptr);
        Request *r = static_cast<Request *>(ov);
        const HRESULT hr = r->on->GetOverlappedResult(r, FALSE);
        CHECK(hr != ND_PENDING);
        const auto then = r->then; // it may begin the next one
        then(hr);
    }
    void is_connected(int with, IND2Connector *by)
    {
        Peer &peer = peers[with];
        CHECK(!peer.connected);
        peer.connected = true;
        peer.used = by;
        connected++;
    }
    void listen()
    {
        waiting = connector();
        begin(incoming, side.listener, [this](HRESULT hr) { request(hr); });
        HR(side.listener->GetConnectionRequest(waiting, &incoming), ND_PENDING);
    }
    void request(HRESULT hr)
    {
        HR(hr, ND_SUCCESS);
        IND2Connector *from = waiting;
        waiting = nullptr;
        int who = -1;
        ULONG size = sizeof who;
        HR(from->GetPrivateData(&who, &size), ND_SUCCESS);
        CHECK(size == sizeof who && who >= 0 && who < RANKS && who != rank);
        Peer &peer = peers[who];
        if (who > rank) {
            // Head to head: ours is the one that counts.
            HR(from->Reject(&rank, sizeof rank), ND_SUCCESS);
            from->Release();
            rejected++;
        } else {
            CHECK(peer.in == nullptr);
            peer.in = from;
            answer(who);
        }
        listen();
    }
    // The lower rank's request is accepted once our own attempt has ended: it has the queue pair.
    void answer(int who)
    {
        Peer &peer = peers[who];
        if (!peer.in || peer.out)
            return;
        begin(peer.accept, peer.in, [this, who](HRESULT hr) {
            HR(hr, ND_SUCCESS);
            is_connected(who, peers[who].in);
        });
        HR(peer.in->Accept(peer.qp, 1, 1, &rank, sizeof rank, &peer.accept), ND_PENDING);
    }
    void connect(int who)
    {
        Peer &peer = peers[who];
        peer.out = connector();
        const sockaddr_in from = address("127.0.0.1", 0), to = address("127.0.0.1", ports[who]);
        HR(peer.out->Bind(sa(from), sizeof from), ND_SUCCESS);
        begin(peer.connect, peer.out, [this, who](HRESULT hr) { replied(who, hr); });
        HR(peer.out->Connect(peer.qp, sa(to), sizeof to, 1, 1, &rank, sizeof rank, &peer.connect), ND_PENDING);
    }
    void replied(int who, HRESULT hr)
    {
        Peer &peer = peers[who];
        if (hr == ND_CONNECTION_REFUSED) {
            CHECK(who < rank); // only the lower rank rejects
            int by = -1;
            ULONG size = sizeof by;
            HR(peer.out->GetPrivateData(&by, &size), ND_SUCCESS);
            CHECK_EQ(by, who);
            peer.out->Release();
            peer.out = nullptr;
            answer(who);
            return;
        }
        HR(hr, ND_SUCCESS);
        begin(peer.complete, peer.out, [this, who](HRESULT end) {
            HR(end, ND_SUCCESS);
            is_connected(who, peers[who].out);
        });
        HR(peer.out->CompleteConnect(&peer.complete), ND_PENDING);
    }
};

static void run(int rank, Link &parent)
{
    Mesh mesh(rank);
    parent.to_server.put(mesh.ports[rank]);
    CHECK(parent.to_client.read_all(mesh.ports, sizeof mesh.ports));
    mesh.listen();
    for (int who = 0; who < RANKS; who++)
        if (who != rank)
            mesh.connect(who);
    while (mesh.connected < RANKS - 1)
        mesh.step();
    CHECK_EQ(mesh.rejected, RANKS - 1 - rank); // everybody above has met us head to head
    // Everybody's rank to everybody, over the connections that are left.
    int inbox[RANKS];
    std::fill(inbox, inbox + RANKS, -1);
    IND2MemoryRegion *mr = nullptr;
    HR(mesh.side.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, mesh.side.file, (void **)&mr), ND_SUCCESS);
    Mesh::Request registered;
    mesh.begin(registered, mr, [](HRESULT hr) { HR(hr, ND_SUCCESS); });
    bool over = false;
    registered.then = [&](HRESULT hr) {
        HR(hr, ND_SUCCESS);
        over = true;
    };
    HR(mr->Register(inbox, sizeof inbox, ND_MR_FLAG_ALLOW_LOCAL_WRITE, &registered), ND_PENDING);
    while (!over)
        mesh.step();
    inbox[rank] = rank;
    int outstanding = 0;
    for (int who = 0; who < RANKS; who++) {
        if (who == rank)
            continue;
        const ND2_SGE in = {&inbox[who], sizeof(int), mr->GetLocalToken()}, out = {&inbox[rank], sizeof(int), mr->GetLocalToken()};
        HR(mesh.peers[who].qp->Receive(nullptr, &in, 1), ND_SUCCESS);
        HR(mesh.peers[who].qp->Send(nullptr, &out, 1, 0), ND_SUCCESS);
        outstanding += 2;
    }
    while (outstanding > 0) {
        ND2_RESULT r;
        if (mesh.side.cq->GetResults(&r, 1) == 1) {
            HR(r.Status, ND_SUCCESS);
            outstanding--;
            continue;
        }
        bool woken = false;
        mesh.begin(mesh.notified, mesh.side.cq, [&](HRESULT hr) {
            HR(hr, ND_SUCCESS);
            woken = true;
        });
        HR(mesh.side.cq->Notify(ND_CQ_NOTIFY_ANY, &mesh.notified), ND_PENDING);
        while (!woken)
            mesh.step();
    }
    for (int who = 0; who < RANKS; who++)
        CHECK_EQ(inbox[who], who);
    // Nobody leaves before everybody has heard everybody: the parent says when.
    parent.to_server.put((char)1);
    parent.to_client.get<char>();
    HR(mesh.side.listener->CancelOverlappedRequests(), ND_SUCCESS);
    mesh.incoming.then = [](HRESULT hr) { HR(hr, ND_CANCELED); };
    mesh.step();
    mr->Release();
}

int main()
{
    time_limit(300);
    Link links[RANKS];
    std::vector<Child> children;
    for (int rank = 0; rank < RANKS; rank++)
        children.emplace_back(links[rank], [rank](Link &parent) {
            run(rank, parent);
            CHECK_EQ(transom_nd_live_objects(), 0);
        });
    USHORT ports[RANKS];
    for (int rank = 0; rank < RANKS; rank++)
        ports[rank] = links[rank].to_server.get<USHORT>();
    for (Link &link : links)
        CHECK(link.to_client.write_all(ports, sizeof ports));
    for (Link &link : links)
        link.to_server.get<char>();
    for (Link &link : links)
        link.to_client.put((char)1);
    for (Child &child : children)
        CHECK(child.ends_well());
    return 0;
}
