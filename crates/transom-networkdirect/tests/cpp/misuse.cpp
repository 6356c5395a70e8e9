// Answers to misuse. docs/networkdirect.md lists these cases; what is not there is undefined.
#include "nd_scene.h"

#include <algorithm>

#include <string>

// Somebody else's object.
struct Stranger : IUnknown {
    ULONG references = 1;
    HRESULT STDMETHODCALLTYPE QueryInterface(REFIID iid, void **object) override
    {
        *object = nullptr;
        if (iid != IID_IUnknown)
            return E_NOINTERFACE;
        *object = this;
        return ++references, S_OK;
    }
    ULONG STDMETHODCALLTYPE AddRef() override { return ++references; }
    ULONG STDMETHODCALLTYPE Release() override { return --references; }
};

static void with_objects(Side &s, IUnknown *wrong_cq, IUnknown *wrong_qp, IUnknown *wrong_mr, IUnknown *wrong_mw, IUnknown *wrong_connector)
{
    IND2QueuePair *qp = s.qp;
    HR(s.adapter->CreateQueuePair(IID_IND2QueuePair, wrong_cq, s.cq, nullptr, 1, 1, 1, 1, 0, (void **)&qp), ND_INVALID_PARAMETER_2);
    CHECK(qp == nullptr);
    qp = s.qp;
    HR(s.adapter->CreateQueuePair(IID_IND2QueuePair, s.cq, wrong_cq, nullptr, 1, 1, 1, 1, 0, (void **)&qp), ND_INVALID_PARAMETER_3);
    CHECK(qp == nullptr);
    qp = s.qp;
    HR(s.adapter->CreateQueuePairWithSrq(IID_IND2QueuePair, s.cq, s.cq, wrong_mr, nullptr, 1, 1, 0, (void **)&qp), ND_INVALID_PARAMETER_4);
    CHECK(qp == nullptr);
    qp = s.qp;
    const sockaddr_in to = address("127.0.0.1", 9);
    HR(s.connector->Connect(wrong_qp, sa(to), sizeof to, 0, 0, nullptr, 0, &s.ov), ND_INVALID_PARAMETER_1);
    HR(s.connector->Accept(wrong_qp, 0, 0, nullptr, 0, &s.ov), ND_INVALID_PARAMETER_1);
    HR(s.listener->GetConnectionRequest(wrong_connector, &s.ov), ND_INVALID_PARAMETER_1);
    char buffer[8];
    IND2MemoryRegion *mr = s.region(buffer, 8, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
    IND2MemoryWindow *mw = s.window();
    HR(s.qp->Bind(nullptr, wrong_mr, mw, buffer, 8, ND_OP_FLAG_ALLOW_READ), ND_INVALID_PARAMETER_2);
    HR(s.qp->Bind(nullptr, mr, wrong_mw, buffer, 8, ND_OP_FLAG_ALLOW_READ), ND_INVALID_PARAMETER_3);
    HR(s.qp->Invalidate(nullptr, wrong_mw, 0), ND_INVALID_PARAMETER_2);
    HR(s.qp->Bind(nullptr, mr, mw, buffer, 8, ND_OP_FLAG_ALLOW_READ), ND_CONNECTION_INVALID);
    ITransomExplain *why = nullptr;
    HR(s.qp->QueryInterface(IID_ITransomExplain, (void **)&why), S_OK);
    char text[1024] = "";
    ULONG size = sizeof text;
    HR(s.qp->Bind(nullptr, mr, mw, buffer, 9, ND_OP_FLAG_ALLOW_READ), ND_ACCESS_VIOLATION);
    HR(why->GetLastRefusal(text, &size), S_OK);
    CHECK(strstr(text, "1 byte past the end"));
    why->Release();
    HR(s.qp->Bind(nullptr, mr, mw, buffer, 8, ND_OP_FLAG_SEND_AND_SOLICIT_EVENT), ND_INVALID_PARAMETER_6);
    HR(s.qp->Send(nullptr, nullptr, 0, ND_OP_FLAG_ALLOW_READ), ND_INVALID_PARAMETER_4);
    HR(s.qp->Write(nullptr, nullptr, 0, 0, 0, ND_OP_FLAG_ALLOW_READ), ND_INVALID_PARAMETER_6);
    HR(s.qp->Read(nullptr, nullptr, 0, 0, 0, ND_OP_FLAG_INLINE), ND_INVALID_PARAMETER_6);
    HR(s.qp->Invalidate(nullptr, mw, ND_OP_FLAG_INLINE), ND_INVALID_PARAMETER_3);
}

static void prepare(Side &s)
{
    s.make_queues();
    s.make_connector();
    s.listen();
}

static void foreign()
{
    Stranger stranger;
    {
        Side s;
        prepare(s);
        with_objects(s, &stranger, &stranger, &stranger, &stranger, &stranger);
        with_objects(s, s.qp, s.cq, s.qp, s.cq, s.cq); // ours, of the wrong kind
        with_objects(s, nullptr, nullptr, nullptr, nullptr, nullptr);
    }
    CHECK_EQ(stranger.references, 1);
}

static void adapter()
{
    Side s, other;
    prepare(s);
    prepare(other);
    char buffer[8];
    with_objects(s, other.cq, other.qp, other.region(buffer, 8, 1), other.window(), other.connector);
}

static void handles()
{
    Link link;
    Child child(link, [](Link &parent) {
        Side c;
        parent.to_server.put(c.file);
        parent.to_client.get<int>();
    });
    Side s;
    const HANDLE theirs = link.to_server.get<HANDLE>();
    IND2MemoryRegion *mr = nullptr;
    for (HANDLE wrong : {(HANDLE) nullptr, INVALID_HANDLE_VALUE, (HANDLE)0x1234, s.ov.hEvent})
        HR(s.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, wrong, (void **)&mr), ND_INVALID_HANDLE);
#ifndef _WIN32
    // A handle that is open, but another process's. On Windows its number may be one of this process, too.
    HR(s.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, theirs, (void **)&mr), ND_INVALID_HANDLE);
    CHECK(!CloseHandle(theirs));
#else
    (void)theirs;
#endif
    link.to_client.put(1);
    CHECK(child.ends_well());
    // An object outlives the handle of its file, and its packets still arrive.
    HANDLE file = nullptr;
    HR(s.adapter->CreateOverlappedFile(&file), ND_SUCCESS);
    const HANDLE port = CreateIoCompletionPort(file, nullptr, 3, 0);
    HR(s.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, file, (void **)&mr), ND_SUCCESS);
    CHECK(CloseHandle(file) && !CloseHandle(file));
    CHECK_EQ(GetLastError(), ERROR_INVALID_HANDLE);
    char buffer[8];
    OVERLAPPED ov = {};
    HR(mr->Register(buffer, 8, 0, &ov), ND_PENDING);
    DWORD bytes;
    ULONG_PTR key;
    OVERLAPPED *got = nullptr;
    CHECK(GetQueuedCompletionStatus(port, &bytes, &key, &got, 0) && got == &ov && key == 3);
    IND2MemoryRegion *second = nullptr;
    HR(s.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, file, (void **)&second), ND_INVALID_HANDLE);
    ov.hEvent = (HANDLE)0x5000; // no event
    HR(mr->Deregister(&ov), ND_INVALID_HANDLE);
    ov.hEvent = nullptr;
    HR(mr->Deregister(&ov), ND_PENDING);
    mr->Release();
    CloseHandle(port);
}

// Null where an OVERLAPPED belongs, for every overlapped call.
static void null_overlapped()
{
    Ends e;
    e.connect();
    Side &s = e.active;
    char memory[8];
    IND2MemoryRegion *mr = nullptr;
    HR(s.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, s.file, (void **)&mr), ND_SUCCESS);
    s.owned.push_back(mr);
    IND2SharedReceiveQueue *srq = nullptr;
    HR(s.adapter->CreateSharedReceiveQueue(IID_IND2SharedReceiveQueue, s.file, 4, 1, 1, 0, 0, (void **)&srq), ND_SUCCESS);
    s.owned.push_back(srq);
    HR(mr->Register(memory, sizeof memory, 0, nullptr), ND_INVALID_PARAMETER);
    HR(s.wait(mr, mr->Register(memory, sizeof memory, 0, &s.ov)), ND_SUCCESS);
    HR(mr->Deregister(nullptr), ND_INVALID_PARAMETER);
    HR(s.cq->Notify(ND_CQ_NOTIFY_ANY, nullptr), ND_INVALID_PARAMETER);
    HR(srq->Notify(nullptr), ND_INVALID_PARAMETER);
    HR(s.connector->NotifyDisconnect(nullptr), ND_INVALID_PARAMETER);
    HR(s.connector->Disconnect(nullptr), ND_INVALID_PARAMETER);
    HR(s.connector->CompleteConnect(nullptr), ND_INVALID_PARAMETER);
    const sockaddr_in to = address("127.0.0.1", e.port);
    HR(s.connector->Connect(s.qp, sa(to), sizeof to, 0, 0, nullptr, 0, nullptr), ND_INVALID_PARAMETER);
    HR(s.connector->Accept(s.qp, 0, 0, nullptr, 0, nullptr), ND_INVALID_PARAMETER);
    HR(s.listener->GetConnectionRequest(s.connector, nullptr), ND_INVALID_PARAMETER);
    HR(s.connector->GetOverlappedResult(nullptr, TRUE), ND_INVALID_PARAMETER_1);
    HR(e.passive.qp->Receive(&e, nullptr, 0), ND_SUCCESS); // and nothing has been harmed
    HR(s.qp->Send(&e, nullptr, 0, 0), ND_SUCCESS);
    HR(e.passive.result().Status, ND_SUCCESS);
}

static void null()
{
    Side s;
    prepare(s);
    IND2Adapter *a = s.adapter;
    HR(a->CreateOverlappedFile(nullptr), ND_INVALID_PARAMETER_1);
    IND2SharedReceiveQueue *srq = nullptr;
    HR(a->CreateSharedReceiveQueue(IID_IND2SharedReceiveQueue, s.file, 4, 1, 1, 0, 0, (void **)&srq), ND_SUCCESS);
    s.owned.push_back(srq);
    const ULONGLONG before = transom_nd_live_objects();
    const HRESULT made[] = {
        a->CreateCompletionQueue(IID_IND2CompletionQueue, s.file, 8, 0, 0, nullptr),
        a->CreateMemoryRegion(IID_IND2MemoryRegion, s.file, nullptr),
        a->CreateMemoryWindow(IID_IND2MemoryWindow, nullptr),
        a->CreateSharedReceiveQueue(IID_IND2SharedReceiveQueue, s.file, 4, 1, 1, 0, 0, nullptr),
        a->CreateQueuePair(IID_IND2QueuePair, s.cq, s.cq, nullptr, 1, 1, 1, 1, 0, nullptr),
        a->CreateQueuePairWithSrq(IID_IND2QueuePair, s.cq, s.cq, srq, nullptr, 1, 1, 0, nullptr),
        a->CreateConnector(IID_IND2Connector, s.file, nullptr),
        a->CreateListener(IID_IND2Listener, s.file, nullptr),
        s.cq->QueryInterface(IID_IUnknown, (void **)nullptr),
    };
    for (HRESULT hr : made)
        HR(hr, E_POINTER);
    CHECK_EQ(transom_nd_live_objects(), before);
    // After a call that fails the pointer is null.
    const std::function<HRESULT(void **)> failing[] = {
        [&](void **out) { return a->CreateCompletionQueue(IID_IND2CompletionQueue, s.file, 0, 0, 0, out); },
        [&](void **out) { return a->CreateMemoryRegion(IID_IND2MemoryRegion, nullptr, out); },
        [&](void **out) { return a->CreateMemoryWindow(IID_IND2Adapter, out); },
        [&](void **out) { return a->CreateSharedReceiveQueue(IID_IND2SharedReceiveQueue, s.file, 0, 1, 1, 0, 0, out); },
        [&](void **out) { return a->CreateConnector(IID_IND2Connector, nullptr, out); },
        [&](void **out) { return a->CreateListener(IID_IND2Listener, nullptr, out); },
        [&](void **out) { return NdOpenAdapter(IID_IND2Adapter, nullptr, 16, out); },
        [&](void **out) { return NdOpenV1Adapter(nullptr, 16, (INDAdapter **)out); },
    };
    for (const auto &call : failing) {
        void *out = &s;
        CHECK(FAILED(call(&out)));
        CHECK(out == nullptr);
    }
    HR(a->Query(nullptr, nullptr), ND_INVALID_PARAMETER_2);
    HR(s.cq->Notify(7, &s.ov), ND_INVALID_PARAMETER_1);
    CHECK_EQ(s.cq->GetResults(nullptr, 5), 0);
    HR(s.connector->GetPrivateData(nullptr, nullptr), ND_CONNECTION_INVALID);
    // Lists.
    HR(s.qp->Receive(nullptr, nullptr, 1), ND_INVALID_PARAMETER_2);
    HR(s.qp->Send(nullptr, nullptr, 1, 0), ND_INVALID_PARAMETER_2);
    HR(s.qp->Read(nullptr, nullptr, 1, 0, 0, 0), ND_INVALID_PARAMETER_2);
    HR(s.qp->Write(nullptr, nullptr, 1, 0, 0, 0), ND_INVALID_PARAMETER_2);
    HR(srq->Receive(nullptr, nullptr, 1), ND_INVALID_PARAMETER_2);
    // Addresses.
    const sockaddr_in elsewhere = address("192.0.2.1", 7), to = address("127.0.0.1", 9);
    sockaddr_in odd = to;
    odd.sin_family = 77;
    IND2Listener *listener = nullptr;
    HR(a->CreateListener(IID_IND2Listener, s.file, (void **)&listener), ND_SUCCESS);
    s.owned.push_back(listener);
    const struct {
        const sockaddr *address;
        ULONG size;
    } wrong[] = {{nullptr, 16}, {sa(elsewhere), sizeof elsewhere}, {sa(to), 4}, {sa(odd), sizeof odd}};
    for (const auto &one : wrong) {
        HR(s.connector->Bind(one.address, one.size), ND_INVALID_ADDRESS);
        HR(listener->Bind(one.address, one.size), ND_INVALID_ADDRESS);
        if (one.address != sa(elsewhere))
            HR(s.connector->Connect(s.qp, one.address, one.size, 0, 0, nullptr, 0, &s.ov), ND_INVALID_ADDRESS);
    }
    // Private data and buffers that are not there.
    HR(s.connector->Connect(s.qp, sa(to), sizeof to, 0, 0, (void *)16, 8, &s.ov), ND_ACCESS_VIOLATION);
    HR(s.connector->Accept(s.qp, 0, 0, (void *)16, 8, &s.ov), ND_ACCESS_VIOLATION);
    HR(s.connector->Reject((void *)16, 8), ND_ACCESS_VIOLATION);
    IND2MemoryRegion *mr = nullptr;
    HR(a->CreateMemoryRegion(IID_IND2MemoryRegion, s.file, (void **)&mr), ND_SUCCESS);
    HR(mr->Register((void *)16, 8, 0, &s.ov), ND_ACCESS_VIOLATION);
    HR(mr->Register(&s, 8, 0x40, &s.ov), ND_INVALID_PARAMETER_3);
    HR(mr->Deregister(&s.ov), ND_INVALID_DEVICE_STATE);
    CHECK_EQ(mr->Release(), 0);
}

// The objects of a connection that is in use, with a window that is bound, released in every order; the file's
// handle and the adapter go at every position, too.
static void orders()
{
    int order[] = {0, 1, 2, 3, 4};
    unsigned turn = 0;
    do {
        Side *other = nullptr;
        {
            Ends e;
            e.connect();
            Side &s = e.passive;
            other = &e.active;
            char memory[64];
            IND2MemoryRegion *mr = s.region(memory, sizeof memory, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
            IND2MemoryWindow *mw = s.window();
            HR(s.qp->Bind(nullptr, mr, mw, memory, sizeof memory, ND_OP_FLAG_ALLOW_READ), ND_SUCCESS);
            s.expect(ND_SUCCESS, nullptr, Nd2RequestTypeBind);
            HR(s.qp->Receive(nullptr, nullptr, 0), ND_SUCCESS);
            HR(other->qp->Receive(&e, nullptr, 0), ND_SUCCESS);
            s.owned.clear();
            IUnknown *objects[] = {mr, mw, s.cq, s.qp, s.connector};
            s.cq = nullptr;
            s.qp = nullptr;
            s.connector = nullptr;
            s.adapter->AddRef(); // the Side's own, for its end
            for (unsigned i = 0; i < 5; ++i) {
                if (i == turn % 5)
                    CHECK(CloseHandle(s.file));
                if (i == turn / 5 % 5)
                    s.adapter->Release();
                CHECK_EQ(objects[order[i]]->Release(), 0);
            }
            HR(s.adapter->CreateOverlappedFile(&s.file), ND_SUCCESS);
            other->expect(ND_CANCELED, &e, Nd2RequestTypeReceive); // the peer has been told
        }
        CHECK_EQ(transom_nd_live_objects(), 0);
        ++turn;
    } while (std::next_permutation(order, order + 5));
    CHECK_EQ(turn, 120);
}

int main(int argc, char **argv)
{
    const std::string which = argc > 1 ? argv[1] : "";
    if (which == "foreign")
        foreign();
    else if (which == "adapter")
        adapter();
    else if (which == "handles")
        handles();
    else if (which == "null")
        null();
    else if (which == "overlapped")
        null_overlapped();
    else if (which == "orders")
        orders();
    else
        CHECK(!"a case");
    CHECK_EQ(transom_nd_live_objects(), 0);
    return 0;
}
