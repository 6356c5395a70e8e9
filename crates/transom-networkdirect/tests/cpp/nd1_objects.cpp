// Version 1's objects: ND1 16, T1, T2; reference counts (ND2 1.3); the overlapped contract (ND1 5,
// ND2 2.3); why something was refused.
#include "nd1_test.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>

// Slots as ND1 2.3 numbers them, with what each interface inherits.
static const std::map<std::string, std::vector<std::string>> SLOTS = {
    {"INDProvider", {"QueryAddressList", "OpenAdapter"}},
    {"INDAdapter",
     {"CancelOverlappedRequests", "GetOverlappedResult", "GetFileHandle", "Query", "Control", "CreateCompletionQueue", "RegisterMemory",
      "DeregisterMemory", "CreateMemoryWindow", "CreateConnector", "Listen"}},
    {"INDCompletionQueue", {"CancelOverlappedRequests", "GetOverlappedResult", "Resize", "Notify", "GetResults"}},
    {"INDEndpoint",
     {"Flush", "StartRequestBatch", "SubmitRequestBatch", "Send", "SendAndInvalidate", "Receive", "Bind", "Invalidate", "Read", "Write"}},
    {"INDConnector",
     {"CancelOverlappedRequests", "GetOverlappedResult", "CreateEndpoint", "Connect", "CompleteConnect", "Accept", "Reject",
      "GetConnectionData", "GetLocalAddress", "GetPeerAddress", "NotifyDisconnect", "Disconnect"}},
    {"INDListen", {"CancelOverlappedRequests", "GetOverlappedResult", "GetConnectionRequest"}},
};

static void t1()
{
    // The library's tables. That the headers agree is what every call of these tests shows.
    std::map<std::string, std::map<UINT64, std::string>> tables;
    const char *name;
    UINT64 value;
    for (ULONG i = 0; transom_nd_fact(i, &name, &value); i++) {
        const std::string fact = name;
        const size_t dot = fact.find('.');
        if (fact.compare(0, 5, "slot ") == 0 && SLOTS.count(fact.substr(5, dot - 5)))
            tables[fact.substr(5, dot - 5)][value] = fact.substr(dot + 1);
    }
    for (const auto &[interface_name, methods] : SLOTS) {
        std::map<UINT64, std::string> expected;
        for (const std::string &method : methods)
            expected[3 + expected.size()] = method;
        CHECK(tables[interface_name] == expected);
    }
    const sockaddr_in a = address("127.0.0.1", 0);
    IClassFactory *factory = nullptr;
    HR(DllGetClassObject(GUID{}, IID_IClassFactory, (void **)&factory), S_OK);
    INDProvider *provider = nullptr;
    HR(factory->CreateInstance(factory, IID_INDProvider, (void **)&provider), CLASS_E_NOAGGREGATION);
    HR(factory->CreateInstance(nullptr, IID_INDProvider, (void **)&provider), S_OK);
    INDProvider *second = nullptr;
    HR(factory->CreateInstance(nullptr, IID_INDProvider, (void **)&second), S_OK); // as often as one likes
    CHECK_EQ(second->Release(), 0);
    for (int i = 0; i < 2; ++i)
        HR(factory->LockServer(TRUE), S_OK);
    CHECK_EQ(factory->Release(), 0); // its locks stay
    {
        Lab lab;
        Link1 link(lab);
        ND_RESULT invalidated;
        INDMemoryWindow *mw = lab.b.window(invalidated);
        struct {
            IUnknown *object;
            GUID iid;
            bool overlapped;
        } const objects[] = {
            {provider, IID_INDProvider, false},      {lab.b.adapter, IID_INDAdapter, true},
            {link.y.in, IID_INDCompletionQueue, true}, {mw, IID_INDMemoryWindow, false},
            {link.y.endpoint, IID_INDEndpoint, false}, {link.y.connector, IID_INDConnector, true},
            {lab.listening.listen, IID_INDListen, true},
        };
        const GUID every[] = {IID_IUnknown,    IID_INDOverlapped,  IID_INDCompletionQueue, IID_INDMemoryWindow, IID_INDEndpoint,
                              IID_INDConnector, IID_INDListen,      IID_INDAdapter,         IID_INDProvider,     IID_IClassFactory,
                              IID_IND2Adapter,  IID_IND2Overlapped, IID_IND2QueuePair,      IID_IND2MemoryRegion, GUID{}};
        for (const auto &one : objects) {
            const ULONG before = one.object->AddRef() - 1;
            CHECK_EQ(one.object->Release(), before);
            CHECK_EQ(before, 1);
            for (const GUID &iid : every) {
                const bool answers = iid == IID_IUnknown || iid == one.iid || (one.overlapped && iid == IID_INDOverlapped);
                void *out = (void *)1;
                HR(one.object->QueryInterface(iid, &out), answers ? S_OK : E_NOINTERFACE);
                CHECK_EQ(out, answers ? one.object : nullptr);
                CHECK_EQ(one.object->AddRef(), before + 1 + answers);
                one.object->Release();
                if (answers)
                    CHECK_EQ(((IUnknown *)out)->Release(), before);
            }
            HR(one.object->QueryInterface(IID_IUnknown, (void **)nullptr), E_POINTER);
        }
        CHECK_EQ(mw->Release(), 0);
    }
    INDAdapter *adapter = nullptr;
    HR(provider->OpenAdapter(sa(a), sizeof a, &adapter), ND_SUCCESS);
    CHECK_EQ(provider->Release(), 0); // the adapter goes on without it
    ND_ADAPTER_INFO info;
    std::memset(&info, 0x55, sizeof info);
    SIZE_T size = sizeof info - 1;
    HR(adapter->Query(ND_VERSION_1, &info, &size), ND_BUFFER_OVERFLOW);
    CHECK(size == sizeof info && info.VendorId == 0x55555555);
    size = 1000;
    HR(adapter->Query(2, &info, &size), ND_NOT_SUPPORTED);
    HR(adapter->Query(ND_VERSION_1, &info, &size), ND_SUCCESS);
    CHECK(size == sizeof info && info.MaxInboundSge > 0 && info.MaxWindowSize > 0 && info.MaxCallerData > 0);
    const HANDLE file = adapter->GetFileHandle();
    CHECK(file != INVALID_HANDLE_VALUE && file != nullptr);
    CHECK_EQ(adapter->Release(), 0);
#ifndef _WIN32 // there its number may be in use again
    CHECK(!CloseHandle(file)); // the adapter's, and it ends with it
    CHECK_EQ(GetLastError(), 6);
#endif
    CHECK_EQ(transom_nd_live_objects(), 0);
    HR(DllCanUnloadNow(), S_FALSE); // the locks of the factory that is gone
    HR(DllGetClassObject(GUID{}, IID_IClassFactory, (void **)&factory), S_OK);
    for (int i = 0; i < 2; ++i)
        HR(factory->LockServer(FALSE), S_OK);
    HR(factory->LockServer(FALSE), E_UNEXPECTED);
    HR(DllCanUnloadNow(), S_FALSE); // an object
    CHECK_EQ(factory->Release(), 0);
    HR(DllCanUnloadNow(), S_OK);
}

static void t2()
{
    static_assert(sizeof(void *) == 8, "the other column of ND1 3 is for 32-bit programs");
    static_assert(sizeof(ND_SGE) == 24 && offsetof(ND_SGE, Length) == 8 && offsetof(ND_SGE, hMr) == 16);
    static_assert(sizeof(ND_RESULT) == 16 && offsetof(ND_RESULT, BytesTransferred) == 8);
    static_assert(sizeof(ND_MW_DESCRIPTOR) == 20 && alignof(ND_MW_DESCRIPTOR) == 1);
    static_assert(offsetof(ND_MW_DESCRIPTOR, Length) == 8 && offsetof(ND_MW_DESCRIPTOR, Token) == 16);
    static_assert(sizeof(ND_ADAPTER_INFO) == 128 && offsetof(ND_ADAPTER_INFO, MaxInboundSge) == 8);
    static_assert(offsetof(ND_ADAPTER_INFO, MaxWindowSize) == 96 && offsetof(ND_ADAPTER_INFO, MaxCalleeData) == 120);
    static_assert(sizeof(OVERLAPPED) == 32 && offsetof(OVERLAPPED, hEvent) == 24);
    const std::map<std::string, UINT64> sizes = {
        {"sizeof ND_SGE", 24}, {"sizeof ND_RESULT", 16}, {"sizeof ND_MW_DESCRIPTOR", 20}, {"sizeof ND_ADAPTER_INFO", 128}};
    size_t seen = 0;
    const char *name;
    UINT64 value;
    for (ULONG i = 0; transom_nd_fact(i, &name, &value); i++)
        if (const auto one = sizes.find(name); one != sizes.end()) {
            CHECK_EQ(value, one->second);
            seen++;
        }
    CHECK_EQ(seen, sizes.size());
}

// A connected side with a bound window, released in every order (ND2 1.3 rules 2 to 8).
static void orders()
{
    enum { ADAPTER, QUEUE, CONNECTOR, ENDPOINT, WINDOW, LISTEN, OBJECTS };
    Node a;
    const UINT64 base = transom_nd_live_objects();
    int order[OBJECTS] = {ADAPTER, QUEUE, CONNECTOR, ENDPOINT, WINDOW, LISTEN};
    char *buffer = new char[4096];
    int number = 0;
    do {
        if (number++ % 6 != 0)
            continue; // every sixth of the 720: each object in each place
        End x(a);
        INDAdapter *adapter = nullptr;
        const sockaddr_in at = address("127.0.0.1", 0);
        HR(NdOpenV1Adapter(sa(at), sizeof at, &adapter), ND_SUCCESS);
        INDCompletionQueue *cq = nullptr;
        INDConnector *connector = nullptr;
        INDEndpoint *endpoint = nullptr;
        INDMemoryWindow *mw = nullptr;
        INDListen *listen = nullptr;
        ND_MR_HANDLE mr = nullptr;
        ND_RESULT invalidated, bound, pending;
        ND_MW_DESCRIPTOR d;
        USHORT port = 0;
        Request r;
        HR(adapter->CreateCompletionQueue(16, &cq), ND_SUCCESS);
        HR(adapter->CreateConnector(&connector), ND_SUCCESS);
        HR(adapter->CreateMemoryWindow(&invalidated, &mw), ND_SUCCESS);
        HR(result_of(adapter, adapter->RegisterMemory(buffer, 4096, &r, &mr), r), ND_SUCCESS);
        HR(adapter->Listen(0, 6, 0, &port, &listen), ND_SUCCESS);
        HR(listen->GetConnectionRequest(connector, &r), ND_PENDING);
        x.make_endpoint();
        HR(x.start_connect(ntohs(port)), ND_PENDING);
        HR(result_of(listen, ND_PENDING, r), ND_SUCCESS);
        HR(connector->CreateEndpoint(cq, cq, 4, 4, 1, 1, 1, 1, nullptr, &endpoint), ND_SUCCESS);
        HR(connector->Accept(endpoint, nullptr, 0, &r), ND_PENDING);
        HR(x.wait(ND_PENDING), ND_SUCCESS);
        HR(x.complete(), ND_SUCCESS);
        HR(result_of(connector, ND_PENDING, r), ND_SUCCESS);
        HR(endpoint->Bind(&bound, mr, mw, buffer, 64, MAY_WRITE, &d), ND_SUCCESS);
        HR(endpoint->Receive(&pending, nullptr, 0), ND_SUCCESS);
        expect(cq, bound, ND_SUCCESS);
        IUnknown *const objects[OBJECTS] = {adapter, cq, connector, endpoint, mw, listen};
        bool queue_lives = true;
        for (int i = 0; i < OBJECTS; i++) {
            CHECK_EQ(objects[order[i]]->Release(), 0);
            queue_lives &= order[i] != QUEUE;
            // The end of the connection is in the queue, if there still is one (ND1 D-8, CQ-4).
            if ((order[i] == ENDPOINT || order[i] == CONNECTOR) && queue_lives && pending.Status != ND_CANCELED)
                expect(cq, pending, ND_CANCELED);
        }
        HR(x.hear_of_disconnect(), ND_SUCCESS);
        // The other side's own six objects are all that is left.
        CHECK_EQ(transom_nd_live_objects() - base, 4);
        pending.Status = 0;
    } while (std::next_permutation(order, order + OBJECTS));
    delete[] buffer;
}

// The ways in which a program learns that a request is over.
struct Port {
    HANDLE handle = CreateIoCompletionPort(INVALID_HANDLE_VALUE, nullptr, 0, 4);
    std::mutex mutex;
    std::condition_variable arrived;
    std::map<OVERLAPPED *, bool> packets; // whether it dequeued as a success
    std::vector<std::thread> threads;

    void start()
    {
        for (int i = 0; i < 4; i++)
            threads.emplace_back([this] {
                for (;;) {
                    DWORD bytes;
                    ULONG_PTR key;
                    OVERLAPPED *ov = nullptr;
                    const BOOL well = GetQueuedCompletionStatus(handle, &bytes, &key, &ov, INFINITE);
                    if (!ov)
                        return;
                    CHECK_EQ(key, 77);
                    std::lock_guard<std::mutex> guard(mutex);
                    CHECK(packets.emplace(ov, well).second); // one packet for one request
                    arrived.notify_all();
                }
            });
    }
    bool take(OVERLAPPED *ov)
    {
        std::unique_lock<std::mutex> guard(mutex);
        arrived.wait(guard, [&] { return packets.count(ov) != 0; });
        const bool well = packets[ov];
        packets.erase(ov);
        return well;
    }
    bool empty()
    {
        DWORD bytes;
        ULONG_PTR key;
        OVERLAPPED *ov = nullptr;
        return !GetQueuedCompletionStatus(handle, &bytes, &key, &ov, 0) && !ov;
    }
    // All packets were asked for; later ones are of no interest.
    void stop()
    {
        for (size_t i = 0; i < threads.size(); i++)
            PostQueuedCompletionStatus(handle, 0, 0, nullptr);
        for (std::thread &thread : threads)
            thread.join();
        CHECK(packets.empty() && empty());
        threads.clear();
    }
    ~Port() { CloseHandle(handle); }
};

enum Mode { POLL, EVENT, EVENT_WITHOUT_PACKET, PACKET };

static void overlapped(Mode mode)
{
    Port port;
    if (mode == PACKET)
        port.start();
    Node a, b;
    if (mode >= EVENT_WITHOUT_PACKET)
        for (Node *node : {&a, &b})
            CHECK(CreateIoCompletionPort(node->adapter->GetFileHandle(), port.handle, 77, 0) == port.handle);
    // Begin with `call`, learn of the end as the mode says, and ask for the result.
    const auto prepare = [&](Request &r) {
        if (mode == EVENT_WITHOUT_PACKET)
            r.hEvent = (HANDLE)((ULONG_PTR)r.hEvent | 1);
    };
    const auto finish = [&](INDOverlapped *object, Request &r) {
        SIZE_T bytes;
        HRESULT hr = ND_PENDING;
        bool well = true;
        if (mode == PACKET)
            well = port.take(&r);
        else if (mode != POLL)
            CHECK_EQ(WaitForSingleObject((HANDLE)((ULONG_PTR)r.hEvent & ~(ULONG_PTR)1), INFINITE), WAIT_OBJECT_0);
        do
            hr = object->GetOverlappedResult(&r, &bytes, FALSE);
        while (mode == POLL && hr == ND_PENDING);
        CHECK(hr != ND_PENDING);
        if (mode == PACKET)
            CHECK_EQ(well, SUCCEEDED(hr)); // failed requests dequeue as failed (rule 5)
        if (mode == EVENT_WITHOUT_PACKET)
            CHECK(port.empty());
        HR(object->GetOverlappedResult(&r, &bytes, TRUE), hr); // as often as one asks
        return hr;
    };
    Request r[8];
    for (Request &one : r)
        prepare(one);
    ND_MR_HANDLE mr = nullptr;
    HR(b.adapter->RegisterMemory(b.buffer, 4096, &r[0], &mr), ND_PENDING);
    HR(finish(b.adapter, r[0]), ND_SUCCESS);
    Listening listening(b);
    End x(a), y(b), unheard(a);
    unheard.make_endpoint();
    x.make_endpoint();
    y.make_endpoint();
    const auto connect = [&](End &end, USHORT to_port, Request &request) {
        const sockaddr_in to = address("127.0.0.1", to_port);
        HR(end.connector->Connect(end.endpoint, sa(to), sizeof to, 6, 0, nullptr, 0, &request), ND_PENDING);
    };
    // Nobody listens at a port that somebody has: one that is free might be a neighbour's by now.
    const SOCKET held = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in there = address("127.0.0.1", 0);
    socklen_t there_size = sizeof there;
    CHECK(::bind(held, sa(there), there_size) == 0);
    CHECK(::getsockname(held, (sockaddr *)&there, &there_size) == 0);
    connect(unheard, ntohs(there.sin_port), r[0]);
    HR(finish(unheard.connector, r[0]), ND_CONNECTION_REFUSED);
    CHECK(::closesocket(held) == 0);
    HR(listening.listen->GetConnectionRequest(y.connector, &r[1]), ND_PENDING);
    connect(x, listening.port, r[2]);
    HR(finish(listening.listen, r[1]), ND_SUCCESS);
    HR(y.connector->Accept(y.endpoint, nullptr, 0, &r[3]), ND_PENDING);
    HR(finish(x.connector, r[2]), ND_SUCCESS);
    const HRESULT complete = x.connector->CompleteConnect(&r[4]);
    HR(complete, ND_PENDING);
    HR(finish(x.connector, r[4]), ND_SUCCESS);
    HR(finish(y.connector, r[3]), ND_SUCCESS);
    ND_RESULT received, sent;
    y.receive_nothing(received);
    HR(y.in->Notify(ND_CQ_NOTIFY_ANY, &r[5]), ND_PENDING);
    x.send_nothing(sent);
    HR(finish(y.in, r[5]), ND_SUCCESS);
    for (End *end : {&x, &y}) {
        ND_RESULT *got = nullptr; // without a notification: its packet would be of no interest
        while ((end == &x ? x.out : y.in)->GetResults(&got, 1) == 0)
            std::this_thread::yield();
        CHECK(got == (end == &x ? &sent : &received) && got->Status == ND_SUCCESS);
    }
    // Cancel: the packets are there when it returns, in the order of the requests (ND2 2.3 rule 9).
    HR(y.in->Notify(ND_CQ_NOTIFY_ANY, &r[5]), ND_PENDING);
    HR(y.in->Notify(ND_CQ_NOTIFY_SOLICITED, &r[6]), ND_PENDING);
    HR(y.in->Notify(ND_CQ_NOTIFY_ERRORS, &r[7]), ND_PENDING);
    HR(y.in->CancelOverlappedRequests(), ND_SUCCESS);
    for (int i = 5; i < 8; i++)
        HR(finish(y.in, r[i]), ND_CANCELED);
    HR(y.in->CancelOverlappedRequests(), ND_SUCCESS); // nothing to cancel
    HR(x.connector->NotifyDisconnect(&r[0]), ND_PENDING);
    HR(y.connector->Disconnect(&r[1]), ND_PENDING);
    HR(finish(y.connector, r[1]), ND_SUCCESS);
    HR(finish(x.connector, r[0]), ND_SUCCESS);
    HR(b.adapter->DeregisterMemory(mr, &r[2]), ND_PENDING);
    HR(finish(b.adapter, r[2]), ND_SUCCESS);
    // A failure that the call returns delivers nothing (ND1 OV-3).
    HR(b.adapter->DeregisterMemory(mr, &r[2]), ND_INVALID_HANDLE);
    HR(y.connector->Disconnect(&r[2]), ND_CONNECTION_INVALID);
    HR(y.connector->CompleteConnect(nullptr), ND_INVALID_PARAMETER);
    port.stop();
}

// The explanation of a refusal, from every object that has seen it.
static void explain()
{
    Lab lab;
    Link1 link(lab);
    ND_RESULT invalidated, pending;
    INDMemoryWindow *mw = lab.b.window(invalidated);
    const auto text = [](IUnknown *object, HRESULT expected) {
        ITransomExplain *why = nullptr;
        HR(object->QueryInterface(IID_ITransomExplain, (void **)&why), S_OK);
        char words[4096] = "";
        ULONG size = 1;
        const HRESULT first = why->GetLastRefusal(words, &size);
        HR(first, expected == S_OK ? ND_BUFFER_OVERFLOW : expected);
        size = sizeof words;
        HR(why->GetLastRefusal(words, &size), expected);
        CHECK_EQ(why->Release(), 0);
        return std::string(words);
    };
    IUnknown *const all[] = {link.x.endpoint, link.x.out, link.y.endpoint, link.y.in};
    for (IUnknown *one : all)
        CHECK(text(one, S_FALSE).empty());
    link.y.receive(pending);
    const ND_MW_DESCRIPTOR d = link.y.bound(mw, 0, 64, MAY_READ);
    ITransomNames *names = nullptr;
    HR(lab.b.adapter->QueryInterface(IID_ITransomNames, (void **)&names), S_OK);
    HR(names->NameRemoteToken(d.Token ^ 1, "lent"), ND_INVALID_HANDLE);
    HR(names->NameRemoteToken(d.Token, nullptr), E_POINTER);
    HR(names->NameRemoteToken(d.Token, "lent"), S_OK);
    CHECK_EQ(names->Release(), 0);
    link.x.writes(ND_REMOTE_ERROR, 0, 8, d);
    link.y.got(pending, ND_CANCELED);
    for (IUnknown *one : all) {
        const std::string words = text(one, S_OK);
        CHECK(words.find("REMOTE_WRITE") != std::string::npos); // what was asked, whichever side tells it
    }
    CHECK_EQ(mw->Release(), 0);
}

int main(int argc, char **argv)
{
    return run_case(argc, argv,
                    {{"t1", t1},
                     {"t2", t2},
                     {"orders", orders},
                     {"poll", [] { overlapped(POLL); }},
                     {"event", [] { overlapped(EVENT); }},
                     {"event1", [] { overlapped(EVENT_WITHOUT_PACKET); }},
                     {"port", [] { overlapped(PACKET); }},
                     {"explain", explain}});
}
