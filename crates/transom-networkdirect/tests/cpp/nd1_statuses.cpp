// Every status that version 1's specification lists for a method or a completion (ND1 4.3, 6 to 11):
// reached here, or why it cannot be.
#include "nd1_test.h"

struct Row {
    const char *method;
    HRESULT status;
    std::function<HRESULT()> reach;
    const char *why; // not reachable here, because
};

static ND_RESULT r, other, third;
static ND_MW_DESCRIPTOR nothing;

// The status with which `result` comes out of `cq`.
static HRESULT comes(INDCompletionQueue *cq, const ND_RESULT &result)
{
    CHECK_EQ(next(cq), &result);
    return result.Status;
}

static std::vector<Row> rows(Lab &lab)
{
    INDAdapter *b = lab.b.adapter;
    const char *never_memory = "memory that runs out ends the process, and no call reports it";
    const char *never_removed = "removed.cpp takes an adapter's address away";
    const char *in_call = "the call says so already: a list that is too long or too large is not posted";
    const char *no_failure = "a defect of this side; no program can provoke one";
    const char *elsewhere_timeout = "takes a silent host, which the engine's tests have in virtual time; Send reaches it";
    const auto connected = [&lab](std::function<HRESULT(Link1 &)> f) {
        return [&lab, f] {
            Sizes two;
            two.in = two.out = 2;
            Link1 link(lab, two);
            return f(link);
        };
    };
    const auto idle = [&lab](std::function<HRESULT(End &)> f) {
        return [&lab, f] {
            End end(lab.a);
            end.make_endpoint();
            return f(end);
        };
    };
    const auto info = [b](DWORD version, SIZE_T size) {
        ND_ADAPTER_INFO i;
        return b->Query(version, &i, &size);
    };
    const auto reg = [b](const void *at, SIZE_T size) {
        Request ov;
        ND_MR_HANDLE mr = nullptr;
        const HRESULT hr = result_of(b, b->RegisterMemory(at, size, &ov, &mr), ov);
        if (hr == ND_SUCCESS)
            HR(result_of(b, b->DeregisterMemory(mr, &ov), ov), ND_SUCCESS);
        return hr;
    };
    const auto listen = [b](INT protocol, USHORT port, bool assigned) {
        USHORT got;
        INDListen *made = nullptr;
        const HRESULT hr = b->Listen(0, protocol, port, assigned ? &got : nullptr, &made);
        if (made)
            made->Release();
        return hr;
    };
    const auto make = [&lab](int which) {
        End end(lab.a);
        SIZE_T v[6] = {1, 1, 1, 1, 1, 1};
        if (which >= 3)
            v[which - 3] = 1 << 30;
        INDEndpoint *made = nullptr;
        const HRESULT hr = end.connector->CreateEndpoint(which == 1 ? nullptr : end.in, which == 2 ? nullptr : end.out, v[0], v[1], v[2],
                                                         v[3], v[4], v[5], nullptr, &made);
        if (made)
            made->Release();
        return hr;
    };
    const std::vector<ND_SGE> many(17, lab.a.sge(0, 1));
    const ND_SGE huge = {lab.a.buffer, (SIZE_T)1 << 31, lab.a.mr}, outside = {lab.a.buffer + Node::SIZE - 4, 8, lab.a.mr};
    std::vector<Row> t = {
        {"OpenAdapter", ND_INVALID_ADDRESS,
         [] {
             INDProvider *provider = nullptr;
             IClassFactory *factory = nullptr;
             HR(DllGetClassObject(GUID{}, IID_IClassFactory, (void **)&factory), S_OK);
             HR(factory->CreateInstance(nullptr, IID_INDProvider, (void **)&provider), S_OK);
             const sockaddr_in far = address("192.0.2.1", 0);
             INDAdapter *none = nullptr;
             HR(provider->OpenAdapter(sa(far), 4, &none), ND_INVALID_ADDRESS);
             const HRESULT hr = provider->OpenAdapter(sa(far), sizeof far, &none);
             SIZE_T size = 0;
             HR(provider->QueryAddressList(nullptr, &size), ND_BUFFER_OVERFLOW);
             std::vector<char> list(size);
             HR(provider->QueryAddressList((SOCKET_ADDRESS_LIST *)list.data(), &size), ND_SUCCESS);
             provider->Release();
             factory->Release();
             return hr;
         }, nullptr},
        {"OpenAdapter", ND_NO_MEMORY, nullptr, never_memory},
        {"Query", ND_SUCCESS, [=] { return info(ND_VERSION_1, sizeof(ND_ADAPTER_INFO)); }, nullptr},
        {"Query", ND_BUFFER_OVERFLOW, [=] { return info(ND_VERSION_1, 8); }, nullptr},
        {"Query", ND_NOT_SUPPORTED, [=] { return info(ND_VERSION_2, sizeof(ND_ADAPTER_INFO)); }, nullptr},
        {"Control", ND_NOT_SUPPORTED,
         [b] {
             SIZE_T bytes = 1;
             Request ov;
             const HRESULT hr = b->Control(1, nullptr, 0, nullptr, 0, &bytes, &ov);
             CHECK_EQ(bytes, 0);
             return hr;
         }, nullptr},
        {"CreateCompletionQueue", ND_INVALID_PARAMETER_1,
         [b] {
             INDCompletionQueue *none = reinterpret_cast<INDCompletionQueue *>(b);
             HR(b->CreateCompletionQueue(0, &none), ND_INVALID_PARAMETER_1);
             CHECK(none == nullptr); // ND2 1.6
             return b->CreateCompletionQueue(SIZE_MAX, &none);
         }, nullptr},
        {"CreateCompletionQueue", ND_NO_MEMORY, nullptr, never_memory},
        {"CreateCompletionQueue", ND_INSUFFICIENT_RESOURCES, nullptr, never_memory},
        {"CreateMemoryWindow", ND_INVALID_PARAMETER_1, [b] { INDMemoryWindow *none; return b->CreateMemoryWindow(nullptr, &none); }, nullptr},
        {"RegisterMemory", ND_SUCCESS, [=, &lab] { return reg(lab.b.buffer, 8); }, nullptr},
        {"RegisterMemory", ND_ACCESS_VIOLATION, [=] { HR(reg((void *)16, 8), ND_ACCESS_VIOLATION); return reg(nullptr, 8); }, nullptr},
        {"RegisterMemory", ND_INVALID_PARAMETER,
         [=, &lab] { HR(reg(lab.b.buffer, 0), ND_INVALID_PARAMETER); return reg(lab.b.buffer, (SIZE_T)1 << 62); }, nullptr},
        {"RegisterMemory", ND_INSUFFICIENT_RESOURCES, nullptr, "millions of tokens; the memory table's own tests use them up"},
#ifndef _WIN32
        {"RegisterMemory", ND_DEVICE_REMOVED,
         [&lab, b] {
             const pid_t child = fork();
             if (child == 0) {
                 OVERLAPPED ov = {};
                 ND_MR_HANDLE mr = nullptr;
                 vanish(b->RegisterMemory(lab.b.buffer, 8, &ov, &mr) == ND_DEVICE_REMOVED ? 0 : 1);
             }
             int status = 0;
             CHECK(waitpid(child, &status, 0) == child);
             return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? ND_DEVICE_REMOVED : ND_SUCCESS;
         }, nullptr},
#else
        {"RegisterMemory", ND_DEVICE_REMOVED, nullptr, never_removed},
#endif
        {"other methods", ND_DEVICE_REMOVED, nullptr, never_removed},
        {"DeregisterMemory", ND_INVALID_HANDLE, [&lab] { return lab.b.remove((ND_MR_HANDLE)77); }, nullptr},
        {"DeregisterMemory", ND_DEVICE_BUSY,
         connected([&lab](Link1 &link) {
             INDMemoryWindow *mw = lab.b.window(r);
             link.y.bound(mw, 0, 8, MAY_READ);
             const HRESULT hr = lab.b.remove(lab.b.mr);
             mw->Release();
             return hr;
         }), nullptr},
        {"Listen", ND_SUCCESS, [=] { return listen(6, 0, true); }, nullptr},
        {"Listen", ND_INVALID_PARAMETER_2, [=] { return listen(256, 0, true); }, nullptr},
        {"Listen", ND_INVALID_PARAMETER_MIX, [=] { return listen(6, 0, false); }, nullptr},
        {"Listen", ND_ADDRESS_ALREADY_EXISTS, [=, &lab] { return listen(6, htons(lab.listening.port), false); }, nullptr},
        {"Listen", ND_INSUFFICIENT_RESOURCES, nullptr, "descriptors that run out; the engine's tests use them up"},
        {"GetConnectionRequest", ND_INVALID_PARAMETER_1,
         [&lab] {
             Request ov;
             INDConnector *foreign = lab.a.connector();
             const HRESULT hr = lab.listening.listen->GetConnectionRequest(foreign, &ov);
             foreign->Release();
             return hr;
         }, nullptr},
        {"CreateEndpoint", ND_SUCCESS, [=] { return make(0); }, nullptr},
        {"CreateEndpoint", ND_INSUFFICIENT_RESOURCES, nullptr, "2^24 endpoints"},
        {"CreateEndpoint", ND_NOT_SUPPORTED,
         idle([](End &e) { INDEndpoint *none; return e.connector->CreateEndpoint(e.in, e.out, 1, 1, 1, 1, 0, 0, nullptr, &none); }), nullptr},
        // Connect and what follows: every state and argument is in nd1_connections.
        {"Connect", ND_NETWORK_UNREACHABLE, nullptr, "the system's answers for hosts and networks become HOST_UNREACHABLE"},
        {"Connect", ND_HOST_UNREACHABLE,
         idle([](End &e) {
             const sockaddr_in away = address("203.0.113.1", 9); // from a loopback address
             return e.wait(e.connector->Connect(e.endpoint, sa(away), sizeof away, 6, 0, nullptr, 0, &e.ov));
         }), nullptr},
        {"Connect", ND_TIMEOUT, nullptr, "takes a minute; the core's tests have it in virtual time"},
        {"Connect", ND_CANCELED,
         idle([&lab](End &e) {
             Listening quiet(lab.b);
             HR(e.start_connect(quiet.port), ND_PENDING);
             HR(e.connector->CancelOverlappedRequests(), ND_SUCCESS);
             return e.wait(ND_PENDING);
         }), nullptr},
        {"Accept", ND_CANCELED,
         [&lab] {
             End x(lab.a), y(lab.b);
             lab.listening.offer(x, y);
             lab.listening.accept(x, y);
             HR(y.connector->CancelOverlappedRequests(), ND_SUCCESS);
             return y.wait(ND_PENDING);
         }, nullptr},
        {"Accept", ND_CONNECTION_ABORTED,
         [&lab] {
             End x(lab.a), y(lab.b);
             lab.listening.offer(x, y);
             HR(y.connector->Reject(nullptr, 0), ND_SUCCESS);
             return y.wait(y.connector->Accept(y.endpoint, nullptr, 0, &y.ov));
         }, nullptr},
        {"Reject", ND_PENDING, nullptr, "it has no OVERLAPPED"},
        {"GetLocalAddress", ND_BUFFER_OVERFLOW,
         connected([](Link1 &link) {
             char room[128];
             SIZE_T size = 4;
             HR(link.x.connector->GetPeerAddress((sockaddr *)room, &size), ND_BUFFER_OVERFLOW);
             CHECK_EQ(size, sizeof(sockaddr_in));
             size = 0;
             return link.x.connector->GetLocalAddress(nullptr, &size);
         }), nullptr},
        {"GetLocalAddress", ND_CONNECTION_INVALID,
         idle([](End &e) {
             sockaddr_in room;
             SIZE_T size = sizeof room;
             HR(e.connector->GetPeerAddress((sockaddr *)&room, &size), ND_CONNECTION_INVALID);
             return e.connector->GetLocalAddress((sockaddr *)&room, &size);
         }), nullptr},
        {"Resize", ND_SUCCESS, idle([](End &e) { return e.in->Resize(e.sizes.cq * 2); }), nullptr},
        {"Resize", ND_INVALID_PARAMETER, idle([](End &e) { return e.in->Resize(SIZE_MAX); }), nullptr},
        {"Resize", ND_BUFFER_OVERFLOW,
         connected([](Link1 &link) {
             link.y.receive_nothing(r);
             link.y.receive_nothing(other);
             HR(link.y.endpoint->Flush(), ND_SUCCESS);
             const HRESULT hr = link.y.in->Resize(1);
             link.y.got(r, ND_CANCELED);
             link.y.got(other, ND_CANCELED); // none is lost
             return hr;
         }), nullptr},
        {"Notify", ND_CANCELED,
         idle([](End &e) {
             HR(e.in->Notify(ND_CQ_NOTIFY_ANY, &e.ov), ND_PENDING);
             HR(e.in->CancelOverlappedRequests(), ND_SUCCESS);
             return e.wait(ND_PENDING);
         }), nullptr},
        {"Notify", ND_BUFFER_OVERFLOW, // a queue that runs over is dead, with its endpoints (ND1 NT-7)
         [&lab] {
             Sizes one;
             one.cq = 1;
             Link1 link(lab, {}, one);
             Request errors;
             HR(link.y.in->Notify(ND_CQ_NOTIFY_ERRORS, &errors), ND_PENDING);
             link.y.receive_nothing(r);
             link.y.receive_nothing(other);
             link.x.send_nothing(third);
             link.x.done(third);
             link.x.send_nothing(third);
             const HRESULT hr = result_of(link.y.in, ND_PENDING, errors);
             CHECK(next(link.x.out) == &third);
             HR(result_of(link.y.in, link.y.in->Notify(ND_CQ_NOTIFY_ANY, &errors), errors), hr);
             ND_RESULT *none;
             CHECK_EQ(link.y.in->GetResults(&none, 1), 0);
             return hr;
         }, nullptr},
        {"Notify", ND_INTERNAL_ERROR, nullptr, no_failure},
        {"Notify", ND_INSUFFICIENT_RESOURCES, nullptr, never_memory},
        // Posting.
        {"Send", ND_BUFFER_OVERFLOW, connected([=](Link1 &l) { return l.x.endpoint->Send(&r, &huge, 1, 0); }), nullptr},
        {"Send", ND_DATA_OVERRUN, connected([=](Link1 &l) { return l.x.endpoint->Send(&r, many.data(), many.size(), 0); }), nullptr},
        {"Send", ND_NO_MORE_ENTRIES, connected([](Link1 &l) {
             for (int i = 0; i < 2; i++)
                 l.x.send_nothing(r);
             return l.x.endpoint->Send(&other, nullptr, 0, 0);
         }), nullptr},
        {"Send", ND_CONNECTION_INVALID, idle([](End &e) { return e.endpoint->Send(&r, nullptr, 0, 0); }), nullptr},
        {"Send", ND_INVALID_PARAMETER_4, connected([](Link1 &l) { return l.x.endpoint->Send(&r, nullptr, 0, MAY_READ); }), nullptr},
        {"SendAndInvalidate", ND_INVALID_PARAMETER_5,
         connected([](Link1 &l) { return l.x.endpoint->SendAndInvalidate(&r, nullptr, 0, &nothing, 8); }), nullptr},
        {"SendAndInvalidate", ND_INVALID_PARAMETER_4,
         connected([](Link1 &l) { return l.x.endpoint->SendAndInvalidate(&r, nullptr, 0, nullptr, 0); }), nullptr},
        {"Receive", ND_BUFFER_OVERFLOW, idle([=](End &e) { return e.endpoint->Receive(&r, &huge, 1); }), nullptr},
        {"Receive", ND_DATA_OVERRUN, idle([=](End &e) { return e.endpoint->Receive(&r, many.data(), many.size()); }), nullptr},
        {"Read", ND_INVALID_PARAMETER_6, connected([](Link1 &l) { return l.x.read(r, 0, 8, nothing, 0, SOLICIT); }), nullptr},
        {"Read", ND_INVALID_PARAMETER_4, connected([](Link1 &l) { return l.x.endpoint->Read(&r, nullptr, 0, nullptr, 0, 0); }), nullptr},
        {"Write", ND_INVALID_PARAMETER_6, connected([](Link1 &l) { return l.x.write(r, 0, 8, nothing, 0, MAY_WRITE); }), nullptr},
        {"Write", ND_DATA_OVERRUN, connected([=](Link1 &l) { return l.x.endpoint->Write(&r, many.data(), many.size(), &nothing, 0, 0); }), nullptr},
        {"Write", ND_BUFFER_OVERFLOW, connected([=](Link1 &l) { return l.x.endpoint->Write(&r, &huge, 1, &nothing, 0, 0); }), nullptr},
        // Completions (ND1 4.3).
        {"any completion", ND_LOCAL_LENGTH, nullptr, in_call},
        {"any completion", ND_INTERNAL_ERROR, nullptr, no_failure},
        {"completion of a Send", ND_ACCESS_VIOLATION, connected([=](Link1 &l) {
             HR(l.x.endpoint->Send(&r, &outside, 1, 0), ND_SUCCESS);
             return comes(l.x.out, r);
         }), nullptr},
        {"completion of a Write", ND_ACCESS_VIOLATION, connected([&lab](Link1 &l) { // a registration that is gone (ND1 DER-2)
             const ND_MR_HANDLE mr = lab.a.add(lab.a.buffer, 64);
             HR(lab.a.remove(mr), ND_SUCCESS);
             const ND_SGE sge = {lab.a.buffer, 8, mr};
             HR(l.x.endpoint->Write(&r, &sge, 1, &nothing, 0, 0), ND_SUCCESS);
             return comes(l.x.out, r);
         }), nullptr},
        {"completion of a Read", ND_ACCESS_VIOLATION, connected([=](Link1 &l) {
             HR(l.x.endpoint->Read(&r, &outside, 1, &nothing, 0, 0), ND_SUCCESS);
             return comes(l.x.out, r);
         }), nullptr},
        {"completion of a Receive", ND_ACCESS_VIOLATION, connected([&lab](Link1 &l) {
             const ND_SGE sge = {lab.b.buffer + Node::SIZE - 4, 8, lab.b.mr}, eight = lab.a.sge(0, 8);
             HR(l.y.endpoint->Receive(&r, &sge, 1), ND_SUCCESS);
             HR(l.x.endpoint->Send(&other, &eight, 1, 0), ND_SUCCESS);
             HR(comes(l.x.out, other), ND_REMOTE_ERROR);
             return comes(l.y.in, r);
         }), nullptr},
        {"completion of a Bind", ND_ACCESS_VIOLATION, nullptr, "a reserved window keeps its registration busy, so that it cannot vanish in between"},
        {"completion of a Send", ND_INVALID_DEVICE_REQUEST, nullptr, "nothing about a Send can be malformed once it was posted"},
        {"completion of a Read", ND_TIMEOUT, nullptr, elsewhere_timeout},
        {"completion of a Receive", ND_TIMEOUT, nullptr, "a Receive waits for as long as the connection lasts"},
        {"completion of a Receive", ND_REMOTE_ERROR, nullptr, "the peer's errors end the connection, and Receives are canceled"},
    };
    for (int which = 1; which <= 8; which++)
        t.push_back({"CreateEndpoint", (HRESULT)(ND_INVALID_PARAMETER_1 + which - 1), [=] { return make(which); }, nullptr});
    return t;
}

int main()
{
    time_limit(300);
    {
        Lab lab;
        int reached = 0, reasons = 0;
        for (const Row &row : rows(lab)) {
            if (!row.reach) {
                CHECK(std::strlen(row.why) > 10);
                reasons++;
                continue;
            }
            const HRESULT hr = row.reach();
            if ((UINT32)hr != (UINT32)row.status)
                std::fprintf(stderr, "%s: %#x, not %#x\n", row.method, (unsigned)hr, (unsigned)row.status);
            HR(hr, row.status);
            reached++;
        }
        std::fprintf(stderr, "%d statuses reached, %d with a reason\n", reached, reasons);
    }
    CHECK_EQ(transom_nd_live_objects(), 0);
    return 0;
}
