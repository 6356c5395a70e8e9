// Two processes that move bytes: traffic CASE.
#include "nd_test.h"

#include <process.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

struct Grant {
    UINT64 address;
    UINT32 token;
};

// How a program learns that a notification is over.
struct Waiter {
    std::string how;
    Side &side;
    HANDLE port = nullptr, event = nullptr;
    OVERLAPPED ov = {};
    explicit Waiter(const std::string &how_, Side &side_) : how(how_), side(side_)
    {
        event = CreateEvent(nullptr, FALSE, FALSE, nullptr);
        port = CreateIoCompletionPort(side.file, nullptr, 0, 4);
        ov.hEvent = how == "event" ? event : how == "event1" ? (HANDLE)((ULONG_PTR)event | 1) : nullptr;
    }
    ~Waiter()
    {
        DWORD bytes;
        ULONG_PTR key;
        OVERLAPPED *got = nullptr;
        if (how == "event1")
            CHECK(!GetQueuedCompletionStatus(port, &bytes, &key, &got, 0)); // never a packet
        CloseHandle(port);
        CloseHandle(event);
    }
    ND2_RESULT next()
    {
        ND2_RESULT r;
        while (side.cq->GetResults(&r, 1) == 0) {
            if (how == "poll")
                continue;
            HR(side.cq->Notify(ND_CQ_NOTIFY_ANY, &ov), ND_PENDING);
            if (how == "port") {
                DWORD bytes;
                ULONG_PTR key;
                OVERLAPPED *got = nullptr;
                CHECK(GetQueuedCompletionStatus(port, &bytes, &key, &got, INFINITE));
                CHECK(got == &ov);
            } else {
                CHECK_EQ(WaitForSingleObject(event, INFINITE), WAIT_OBJECT_0);
                if (how == "event") {
                    DWORD bytes;
                    ULONG_PTR key;
                    OVERLAPPED *got = nullptr;
                    CHECK(GetQueuedCompletionStatus(port, &bytes, &key, &got, INFINITE) && got == &ov);
                }
            }
            HR(side.cq->GetOverlappedResult(&ov, FALSE), ND_SUCCESS);
        }
        return r;
    }
};

// Two processes of one user share memory, unless they were told to take TCP.
static void path_is_the_one_asked_for()
{
    const char *path = std::getenv("TRANSOM_PATH");
    const bool tcp = path && std::string(path) == "tcp";
#ifdef _WIN32
    (void)tcp; // there is no other
#else
    std::ifstream maps("/proc/self/maps");
    const std::string text((std::istreambuf_iterator<char>(maps)), {});
    CHECK((text.find("memfd:transom") == std::string::npos) == tcp);
#endif
}

static void ping_pong(const std::string &how)
{
    const int rounds = 300;
    const auto play = [&](Side &side, bool first) {
        Waiter wait(how, side);
        int buffer[2] = {-1, -1};
        IND2MemoryRegion *mr = nullptr;
        HR(side.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, side.file, (void **)&mr), ND_SUCCESS);
        OVERLAPPED quiet = {};
        const HANDLE event = CreateEvent(nullptr, FALSE, FALSE, nullptr);
        quiet.hEvent = (HANDLE)((ULONG_PTR)event | 1);
        HR(mr->Register(buffer, sizeof buffer, ND_MR_FLAG_ALLOW_LOCAL_WRITE, &quiet), ND_PENDING);
        side.owned.push_back(mr);
        const ND2_SGE out = side.sge(mr, &buffer[0], 4), in = side.sge(mr, &buffer[1], 4);
        HR(side.qp->Receive(&buffer[1], &in, 1), ND_SUCCESS);
        quiet.Internal = 0;
        HRESULT hr = first ? side.connector->CompleteConnect(&quiet) : side.connector->Accept(side.qp, 0, 0, nullptr, 0, &quiet);
        HR(hr == ND_PENDING ? side.connector->GetOverlappedResult(&quiet, TRUE) : hr, ND_SUCCESS);
        path_is_the_one_asked_for();
        for (int i = 0; i < rounds; ++i) {
            buffer[0] = i;
            if (first)
                HR(side.qp->Send(&buffer[0], &out, 1, 0), ND_SUCCESS);
            bool sent = !first, received = false;
            while (!received || !sent) {
                const ND2_RESULT r = wait.next();
                HR(r.Status, ND_SUCCESS);
                if (r.RequestType == Nd2RequestTypeSend) {
                    sent = true;
                    continue;
                }
                CHECK(r.RequestContext == &buffer[1] && r.BytesTransferred == 4);
                CHECK_EQ(buffer[1], i);
                received = true;
                HR(side.qp->Receive(&buffer[1], &in, 1), ND_SUCCESS);
                if (!first) {
                    sent = false;
                    HR(side.qp->Send(&buffer[0], &out, 1, 0), ND_SUCCESS);
                }
            }
        }
        CloseHandle(event);
    };
    two(
        [&](Link &link) {
            Side s;
            s.make_queues();
            link.to_client.put(s.listen());
            s.take_request();
            play(s, false);
            link.to_client.put(1);
        },
        [&](Link &link) {
            Side c;
            c.make_queues();
            c.bind();
            HR(c.connect(link.to_client.get<USHORT>()), ND_SUCCESS);
            play(c, true);
            link.to_client.get<int>();
        });
}

static void ping_pong_by_read()
{
    connected(
        [](Side &s, Link &link) {
            volatile UINT64 value = 0;
            IND2MemoryRegion *mr = s.region((void *)&value, 8, ND_MR_FLAG_ALLOW_REMOTE_READ);
            HR(s.accept(), ND_SUCCESS);
            link.to_client.put(Grant{(UINT64)&value, mr->GetRemoteToken()});
            for (UINT64 i = 1; i <= 200; ++i) {
                __atomic_store_n(&value, i, __ATOMIC_RELEASE);
                CHECK_EQ(link.to_server.get<UINT64>(), i);
            }
        },
        [](Side &c, Link &link) {
            UINT64 seen = 0;
            IND2MemoryRegion *mr = c.region(&seen, 8, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
            const Grant g = link.to_client.get<Grant>();
            const ND2_SGE sge = c.sge(mr, &seen, 8);
            for (UINT64 i = 1; i <= 200; ++i) {
                do {
                    HR(c.qp->Read(&c, &sge, 1, g.address, g.token, 0), ND_SUCCESS);
                    c.expect(ND_SUCCESS, &c, Nd2RequestTypeRead);
                } while (seen != i);
                link.to_server.put(i);
            }
        });
}

static void notify()
{
    // Each one posted, notified, waited for. TRANSOM_WRITES=8388608 writes every second word of the window.
    const char *asked = std::getenv("TRANSOM_WRITES");
    const UINT32 count = asked ? (UINT32)std::atoi(asked) : 20000;
    const SIZE_T size = 64 << 20; // a power of two: an odd stride meets each word once
    connected(
        [&](Side &s, Link &link) {
            time_limit(300 + count / 1000);
            std::vector<UINT32> buffer(size / 4);
            IND2MemoryRegion *mr = s.region(buffer.data(), size, ND_MR_FLAG_ALLOW_LOCAL_WRITE | ND_MR_FLAG_RDMA_READ_SINK);
            HR(s.accept(), ND_SUCCESS);
            IND2MemoryWindow *mw = s.window();
            HR(s.qp->Bind(&s, mr, mw, buffer.data(), size, ND_OP_FLAG_ALLOW_READ | ND_OP_FLAG_ALLOW_WRITE), ND_SUCCESS);
            s.expect(ND_SUCCESS, &s, Nd2RequestTypeBind);
            link.to_client.put(Grant{(UINT64)buffer.data(), mw->GetRemoteToken()});
            link.to_server.get<int>();
            for (UINT32 i = 0; i < count; ++i)
                CHECK_EQ(buffer[(i * 7919ull * 61) % buffer.size()], i + 1);
        },
        [&](Side &c, Link &link) {
            time_limit(300 + count / 1000);
            UINT32 value = 0;
            IND2MemoryRegion *mr = c.region(&value, 4, 0);
            const Grant g = link.to_client.get<Grant>();
            const ND2_SGE sge = c.sge(mr, &value, 4);
            for (UINT32 i = 0; i < count; ++i) {
                value = i + 1;
                const UINT64 at = (i * 7919ull * 61) % (size / 4) * 4;
                HR(c.qp->Write(&value, &sge, 1, g.address + at, g.token, 0), ND_SUCCESS);
                c.expect(ND_SUCCESS, &value, Nd2RequestTypeWrite);
            }
            link.to_server.put(1);
        });
}

// ND2 5.5 (a) and (b): what each set of rights permits.
static void rights()
{
    struct Row {
        ULONG flags;
        bool receive, sink, peer_read, peer_write, bind_write;
    };
    static const Row rows[] = {
        {0x0, false, false, false, false, false}, {0x1, true, true, false, false, true},
        {0x2, false, false, true, false, false},  {0x3, true, true, true, false, true},
        {0x5, true, true, false, true, true},     {0x7, true, true, true, true, true},
        {0x8, false, true, false, false, false},  {0x9, true, true, false, false, true},
        {0x80000001, true, true, false, false, true}};
    enum Deed { Source, Receive, Sink, PeerRead, PeerWrite, BindWrite };
    for (const Row &row : rows)
        for (Deed deed : {Source, Receive, Sink, PeerRead, PeerWrite, BindWrite}) {
            const bool allowed = deed == Source ? true : deed == Receive ? row.receive : deed == Sink ? row.sink
                                 : deed == PeerRead ? row.peer_read : deed == PeerWrite ? row.peer_write : row.bind_write;
            const HRESULT wanted = allowed ? ND_SUCCESS : ND_ACCESS_VIOLATION;
            connected(
                [&](Side &s, Link &link) { // the owner of the region
                    char buffer[64] = {}, other[64];
                    IND2MemoryRegion *mr = s.region(buffer, sizeof buffer, row.flags);
                    IND2MemoryRegion *full = s.region(other, sizeof other, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
                    const ND2_SGE sge = s.sge(mr, buffer, 8), end = s.sge(full, other, 8);
                    HR(s.qp->Receive(&s, deed == Receive ? &sge : &end, 1), ND_SUCCESS);
                    HR(s.accept(), ND_SUCCESS);
                    link.to_client.put(Grant{(UINT64)buffer, mr->GetRemoteToken()});
                    const Grant peer = link.to_server.get<Grant>();
                    if (deed == Source || deed == Sink) {
                        HR(deed == Source ? s.qp->Write(&s.ov, &sge, 1, peer.address, peer.token, 0)
                                          : s.qp->Read(&s.ov, &sge, 1, peer.address, peer.token, 0), ND_SUCCESS);
                        ND2_RESULT r;
                        do
                            r = s.result();
                        while (r.RequestContext != &s.ov);
                        HR(r.Status, wanted);
                    } else if (deed == BindWrite) {
                        IND2MemoryWindow *mw = s.window();
                        HR(s.qp->Bind(&s.ov, mr, mw, buffer, 8, ND_OP_FLAG_ALLOW_WRITE), wanted);
                        HR(s.qp->Send(&s.connector, nullptr, 0, 0), ND_SUCCESS); // it has harmed nothing
                    } else if (deed == Receive) {
                        HR(s.result().Status, wanted);
                    }
                    link.to_client.put(1);
                    link.to_server.get<int>();
                },
                [&](Side &c, Link &link) {
                    char buffer[64] = {};
                    IND2MemoryRegion *mr = c.region(buffer, sizeof buffer, 0x7);
                    const ND2_SGE sge = c.sge(mr, buffer, 8);
                    HR(c.qp->Receive(&c, nullptr, 0), ND_SUCCESS);
                    const Grant g = link.to_client.get<Grant>();
                    link.to_server.put(Grant{(UINT64)buffer, mr->GetRemoteToken()});
                    if (deed == PeerRead || deed == PeerWrite) {
                        HR(deed == PeerRead ? c.qp->Read(&c.ov, &sge, 1, g.address, g.token, 0)
                                            : c.qp->Write(&c.ov, &sge, 1, g.address, g.token, 0), ND_SUCCESS);
                        ND2_RESULT r;
                        do
                            r = c.result();
                        while (r.RequestContext != &c.ov);
                        HR(r.Status, wanted);
                    } else if (deed == Receive) {
                        HR(c.qp->Send(&c.ov, &sge, 1, 0), ND_SUCCESS);
                    }
                    link.to_client.get<int>();
                    link.to_server.put(1);
                });
        }
}

int main(int argc, char **argv)
{
    const std::string which = argc > 1 ? argv[1] : "";
    if (which == "poll" || which == "event" || which == "event1" || which == "port")
        ping_pong(which);
    else if (which == "read")
        ping_pong_by_read();
    else if (which == "notify")
        notify();
    else if (which == "rights")
        rights();
    else
        CHECK(!"a case");
    return 0;
}
