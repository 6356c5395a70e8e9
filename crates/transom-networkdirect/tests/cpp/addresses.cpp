// Addresses of both families, and what the client library says about them: connections over IPv6, NdResolveAddress,
// NdFlushProviders (ND2 6.3).
#include "nd_test.h"

#include <cstring>
#include <string>
#include <thread>

static const HRESULT OK = ND_SUCCESS;

static sockaddr_in6 six(const char *ip, USHORT port)
{
    sockaddr_in6 a = {};
    a.sin6_family = AF_INET6;
    a.sin6_port = htons(port);
    CHECK(inet_pton(AF_INET6, ip, &a.sin6_addr) == 1);
    return a;
}

// Whether this machine has IPv6; says so where it has not.
static bool has_six()
{
    WSADATA data;
    CHECK(WSAStartup(MAKEWORD(2, 2), &data) == 0);
    const SOCKET fd = socket(AF_INET6, SOCK_STREAM, 0);
    const sockaddr_in6 here = six("::1", 0);
    const bool has = fd != INVALID_SOCKET && bind(fd, sa(here), sizeof here) == 0;
    if (fd != INVALID_SOCKET)
        closesocket(fd);
    if (!has)
        std::fprintf(stderr, "SKIPPED: no IPv6\n");
    return has;
}

// An address of IPv6 as a call gives it, behind the size that it asks for.
template <class Size, class Call> static sockaddr_in6 address_by(Call call)
{
    char room[sizeof(sockaddr_in6) + 1] = {};
    Size size = sizeof(sockaddr_in6) - 1;
    HR(call((sockaddr *)room, &size), ND_BUFFER_OVERFLOW);
    CHECK(size == sizeof(sockaddr_in6) && room[0] == 0);
    HR(call((sockaddr *)room, &size), OK);
    CHECK(size == sizeof(sockaddr_in6) && room[sizeof(sockaddr_in6)] == 0);
    sockaddr_in6 a;
    std::memcpy(&a, room, sizeof a);
    CHECK(a.sin6_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&a.sin6_addr));
    return a;
}

// Version 2: an adapter, a listener and a connection at ::1, with the addresses that each of them tells.
static void version_2()
{
    HR(NdStartup(), OK);
    const sockaddr_in6 here = six("::1", 0);
    const sockaddr_in other = address("127.0.0.1", 0);
    struct End {
        IND2Adapter *adapter = nullptr;
        HANDLE file = nullptr;
        IND2CompletionQueue *cq = nullptr;
        IND2QueuePair *qp = nullptr;
        IND2Connector *connector = nullptr;
        OVERLAPPED ov = {};
        HRESULT wait(IND2Overlapped *object, HRESULT hr) { return hr == ND_PENDING ? object->GetOverlappedResult(&ov, TRUE) : hr; }
    } a, p;
    for (End *end : {&a, &p}) {
        HR(NdOpenAdapter(IID_IND2Adapter, sa(here), sizeof here, (void **)&end->adapter), OK);
        HR(end->adapter->CreateOverlappedFile(&end->file), OK);
        HR(end->adapter->CreateCompletionQueue(IID_IND2CompletionQueue, end->file, 16, 0, 0, (void **)&end->cq), OK);
        HR(end->adapter->CreateQueuePair(IID_IND2QueuePair, end->cq, end->cq, end, 4, 4, 1, 1, 0, (void **)&end->qp), OK);
        HR(end->adapter->CreateConnector(IID_IND2Connector, end->file, (void **)&end->connector), OK);
        end->ov.hEvent = CreateEvent(nullptr, FALSE, FALSE, nullptr);
    }
    IND2Listener *listener = nullptr;
    HR(p.adapter->CreateListener(IID_IND2Listener, p.file, (void **)&listener), OK);
    HR(listener->Bind(sa(other), sizeof other), ND_INVALID_ADDRESS); // of the other family
    HR(listener->Bind(sa(here), sizeof here - 1), ND_INVALID_ADDRESS);
    HR(listener->Bind(sa(here), sizeof here), OK);
    HR(listener->Listen(0), OK);
    const sockaddr_in6 there = address_by<ULONG>([&](sockaddr *at, ULONG *size) { return listener->GetLocalAddress(at, size); });
    CHECK(there.sin6_port != 0);
    HR(listener->GetConnectionRequest(p.connector, &p.ov), ND_PENDING);
    HR(a.connector->Bind(sa(other), sizeof other), ND_INVALID_ADDRESS);
    HR(a.connector->Bind(sa(here), sizeof here), OK);
    const sockaddr_in elsewhere = address("127.0.0.1", ntohs(there.sin6_port));
    HR(a.connector->Connect(a.qp, sa(elsewhere), sizeof elsewhere, 1, 1, nullptr, 0, &a.ov), ND_INVALID_ADDRESS);
    HR(a.connector->Connect(a.qp, sa(there), sizeof there, 1, 1, "six", 3, &a.ov), ND_PENDING);
    HR(listener->GetOverlappedResult(&p.ov, TRUE), OK);
    HR(p.connector->Accept(p.qp, 1, 1, nullptr, 0, &p.ov), ND_PENDING);
    HR(a.connector->GetOverlappedResult(&a.ov, TRUE), OK);
    HR(a.wait(a.connector, a.connector->CompleteConnect(&a.ov)), OK);
    HR(p.connector->GetOverlappedResult(&p.ov, TRUE), OK);
    const auto local = [](IND2Connector *c) { return address_by<ULONG>([=](sockaddr *at, ULONG *size) { return c->GetLocalAddress(at, size); }); };
    const auto peer = [](IND2Connector *c) { return address_by<ULONG>([=](sockaddr *at, ULONG *size) { return c->GetPeerAddress(at, size); }); };
    const sockaddr_in6 own = local(a.connector);
    CHECK(own.sin6_port != 0 && own.sin6_port == peer(p.connector).sin6_port);
    CHECK(peer(a.connector).sin6_port == there.sin6_port && local(p.connector).sin6_port == there.sin6_port);
    HR(p.qp->Receive(&p, nullptr, 0), OK);
    HR(a.qp->Send(&a, nullptr, 0, 0), OK);
    for (End *end : {&a, &p}) {
        ND2_RESULT r;
        while (end->cq->GetResults(&r, 1) == 0)
            end->wait(end->cq, end->cq->Notify(ND_CQ_NOTIFY_ANY, &end->ov));
        HR(r.Status, OK);
        CHECK_EQ(r.RequestContext, end);
    }
    listener->Release();
    for (End *end : {&a, &p}) {
        end->connector->Release();
        end->qp->Release();
        end->cq->Release();
        CloseHandle(end->file);
        CHECK_EQ(end->adapter->Release(), 0);
        CloseHandle(end->ov.hEvent);
    }
    HR(NdCleanup(), OK);
}

// Version 1, the same; its ports are arguments.
static void version_1()
{
    HR(NdStartup(), OK);
    const sockaddr_in6 here = six("::1", 0);
    struct End {
        INDAdapter *adapter = nullptr;
        INDCompletionQueue *cq = nullptr;
        INDConnector *connector = nullptr;
        INDEndpoint *endpoint = nullptr;
        OVERLAPPED ov = {};
        ND_RESULT result = {};
        HRESULT wait(INDOverlapped *object, HRESULT hr)
        {
            SIZE_T bytes;
            return hr == ND_PENDING ? object->GetOverlappedResult(&ov, &bytes, TRUE) : hr;
        }
    } a, p;
    for (End *end : {&a, &p}) {
        SIZE_T inline_size;
        HR(NdOpenV1Adapter(sa(here), sizeof here, &end->adapter), OK);
        HR(end->adapter->CreateCompletionQueue(16, &end->cq), OK);
        HR(end->adapter->CreateConnector(&end->connector), OK);
        HR(end->connector->CreateEndpoint(end->cq, end->cq, 4, 4, 1, 1, 1, 1, &inline_size, &end->endpoint), OK);
        end->ov.hEvent = CreateEvent(nullptr, FALSE, FALSE, nullptr);
    }
    INDListen *listen = nullptr;
    USHORT port = 0;
    HR(p.adapter->Listen(0, 6, 0, &port, &listen), OK);
    sockaddr_in6 there = here;
    there.sin6_port = port;
    HR(listen->GetConnectionRequest(p.connector, &p.ov), ND_PENDING);
    HR(a.connector->Connect(a.endpoint, sa(there), sizeof there - 1, 6, 0, nullptr, 0, &a.ov), ND_INVALID_ADDRESS);
    const sockaddr_in elsewhere = address("127.0.0.1", ntohs(port));
    HR(a.connector->Connect(a.endpoint, sa(elsewhere), sizeof elsewhere, 6, 0, nullptr, 0, &a.ov), ND_INVALID_ADDRESS);
    HR(a.connector->Connect(a.endpoint, sa(there), sizeof there, 6, 0, nullptr, 0, &a.ov), ND_PENDING);
    HR(p.wait(p.connector, ND_PENDING), OK);
    HR(p.connector->Accept(p.endpoint, nullptr, 0, &p.ov), ND_PENDING);
    HR(a.wait(a.connector, ND_PENDING), OK);
    HR(a.wait(a.connector, a.connector->CompleteConnect(&a.ov)), OK);
    HR(p.wait(p.connector, ND_PENDING), OK);
    const auto local = [](INDConnector *c) { return address_by<SIZE_T>([=](sockaddr *at, SIZE_T *size) { return c->GetLocalAddress(at, size); }); };
    const auto peer = [](INDConnector *c) { return address_by<SIZE_T>([=](sockaddr *at, SIZE_T *size) { return c->GetPeerAddress(at, size); }); };
    CHECK(local(a.connector).sin6_port == peer(p.connector).sin6_port);
    CHECK(peer(a.connector).sin6_port == port && local(p.connector).sin6_port == port);
    HR(p.endpoint->Receive(&p.result, nullptr, 0), OK);
    HR(a.endpoint->Send(&a.result, nullptr, 0, 0), OK);
    for (End *end : {&a, &p}) {
        ND_RESULT *got = nullptr;
        while (end->cq->GetResults(&got, 1) == 0)
            end->wait(end->cq, end->cq->Notify(ND_CQ_NOTIFY_ANY, &end->ov));
        CHECK_EQ(got, &end->result);
        HR(end->result.Status, OK);
    }
    listen->Release();
    for (End *end : {&a, &p}) {
        end->endpoint->Release();
        end->connector->Release();
        end->cq->Release();
        CHECK_EQ(end->adapter->Release(), 0);
        CloseHandle(end->ov.hEvent);
    }
    HR(NdCleanup(), OK);
}

// The address that leads to a peer, of its family and without a port; what is none is refused, and nothing written.
// (easy_25 asks for addresses of networks.)
static void resolve()
{
    sockaddr_in6 room = {};
    SIZE_T size = sizeof room;
    const sockaddr_in peer = address("127.0.0.1", 4711);
    HR(NdResolveAddress(sa(peer), sizeof peer, (sockaddr *)&room, &size), ND_DEVICE_NOT_READY); // not started
    HR(NdStartup(), OK);
    const sockaddr_in own = address("127.0.0.1", 0);
    const auto ask = [&](const sockaddr *to, SIZE_T length) {
        std::memset(&room, 0, sizeof room);
        size = sizeof room;
        return NdResolveAddress(to, length, (sockaddr *)&room, &size);
    };
    HR(ask(sa(peer), sizeof peer), OK);
    CHECK(size == sizeof own && std::memcmp(&room, &own, sizeof own) == 0);
    IND2Adapter *adapter = nullptr; // and it can be opened
    HR(NdOpenAdapter(IID_IND2Adapter, (const sockaddr *)&room, size, (void **)&adapter), OK);
    adapter->Release();
    size = sizeof own - 1;
    room = {};
    HR(NdResolveAddress(sa(peer), sizeof peer, (sockaddr *)&room, &size), ND_BUFFER_OVERFLOW);
    CHECK(size == sizeof own && room.sin6_family == 0);
    HR(NdResolveAddress(sa(peer), sizeof peer, (sockaddr *)&room, &size), OK); // exactly as large as it asks for
    HR(ask(sa(peer), sizeof peer - 1), ND_INVALID_ADDRESS);
    HR(ask(sa(peer), 0), ND_INVALID_ADDRESS);
    HR(ask(nullptr, sizeof peer), ND_INVALID_ADDRESS);
    sockaddr_in unknown = peer;
    unknown.sin_family = AF_UNIX;
    HR(ask(sa(unknown), sizeof unknown), ND_INVALID_ADDRESS);
    if (has_six()) {
        const sockaddr_in6 peer6 = six("::1", 4711), own6 = six("::1", 0);
        HR(ask(sa(peer6), sizeof peer6), OK);
        CHECK(size == sizeof own6 && std::memcmp(&room, &own6, sizeof own6) == 0);
        HR(ask(sa(peer6), sizeof peer6 - 1), ND_INVALID_ADDRESS);
    }
    HR(NdCleanup(), OK);
    HR(ask(sa(peer), sizeof peer), ND_DEVICE_NOT_READY);
}

// Nothing that is in use is unloaded, whether the library was started or not; what was found stays as it is.
static void flush()
{
    NdFlushProviders(); // not started
    HR(NdStartup(), OK);
    const sockaddr_in own = address("127.0.0.1", 0);
    SIZE_T before = 0, after = 0;
    HR(NdQueryAddressList(0, nullptr, &before), ND_BUFFER_OVERFLOW);
    {
        Side s;
        s.make_queues();
        NdFlushProviders();
        NdFlushProviders();
        const USHORT port = s.listen();
        Side c;
        c.make_queues();
        std::thread active([&] { c.connect_and_complete(port); });
        s.take_request();
        NdFlushProviders();
        HR(s.accept(), OK);
        active.join();
        NdFlushProviders();
        HR(s.qp->Receive(&s, nullptr, 0), OK);
        HR(c.qp->Send(&c, nullptr, 0, 0), OK);
        c.expect(OK, &c, Nd2RequestTypeSend);
        s.expect(OK, &s, Nd2RequestTypeReceive);
    }
    NdFlushProviders();
    HR(NdCheckAddress(sa(own), sizeof own), OK);
    // Too short for its family: the length is wrong, not the address (ndutil's ValidateAddress).
    const sockaddr_in6 any_six = six("::", 0);
    HR(NdCheckAddress(sa(own), sizeof own - 1), ND_INVALID_PARAMETER_2);
    HR(NdCheckAddress(sa(any_six), sizeof any_six - 1), ND_INVALID_PARAMETER_2);
    HR(NdCheckAddress(sa(any_six), sizeof any_six), ND_INVALID_ADDRESS);
    void *none = &none;
    HR(NdOpenAdapter(IID_IND2Adapter, sa(any_six), sizeof any_six - 1, &none), ND_INVALID_PARAMETER_2);
    CHECK(none == nullptr);
    HR(NdQueryAddressList(0, nullptr, &after), ND_BUFFER_OVERFLOW);
    CHECK_EQ(before, after);
    HR(NdCleanup(), OK);
    NdFlushProviders(); // and again not
    HR(NdCheckAddress(sa(own), sizeof own), ND_DEVICE_NOT_READY);
}

int main(int argc, char **argv)
{
    time_limit(300);
    CHECK(argc == 2);
    const std::string which = argv[1];
    if (which == "resolve")
        resolve();
    else if (which == "flush")
        flush();
    else if (which == "version_2" || which == "version_1") {
        if (has_six())
            which == "version_2" ? version_2() : version_1();
    } else
        CHECK(!"a case");
    CHECK_EQ(transom_nd_live_objects(), 0);
}
