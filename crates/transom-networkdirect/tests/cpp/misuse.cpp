// What misuse is answered with. docs/networkdirect.md lists these cases; what is not there is undefined.
#include "nd_test.h"

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
    IND2QueuePair *qp = nullptr;
    HR(s.adapter->CreateQueuePair(IID_IND2QueuePair, wrong_cq, s.cq, nullptr, 1, 1, 1, 1, 0, (void **)&qp), ND_INVALID_PARAMETER_2);
    HR(s.adapter->CreateQueuePair(IID_IND2QueuePair, s.cq, wrong_cq, nullptr, 1, 1, 1, 1, 0, (void **)&qp), ND_INVALID_PARAMETER_3);
    HR(s.adapter->CreateQueuePairWithSrq(IID_IND2QueuePair, s.cq, s.cq, wrong_mr, nullptr, 1, 1, 0, (void **)&qp), ND_INVALID_PARAMETER_4);
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
    HR(s.qp->Bind(nullptr, mr, mw, buffer, 9, ND_OP_FLAG_ALLOW_READ), ND_ACCESS_VIOLATION);
    HR(s.qp->Bind(nullptr, mr, mw, buffer, 8, ND_OP_FLAG_SEND_AND_SOLICIT_EVENT), ND_INVALID_PARAMETER_6);
    HR(s.qp->Send(nullptr, nullptr, 0, ND_OP_FLAG_ALLOW_READ), ND_INVALID_PARAMETER_4);
    HR(s.qp->Write(nullptr, nullptr, 0, 0, 0, ND_OP_FLAG_ALLOW_READ), ND_INVALID_PARAMETER_6);
    HR(s.qp->Read(nullptr, nullptr, 0, 0, 0, ND_OP_FLAG_INLINE), ND_INVALID_PARAMETER_6);
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
    Side s;
    IND2MemoryRegion *mr = nullptr;
    for (HANDLE wrong : {(HANDLE) nullptr, INVALID_HANDLE_VALUE, (HANDLE)0x1234, s.ov.hEvent,
                         (HANDLE)((ULONG_PTR)s.file ^ ((ULONG_PTR)1 << 48)) /* another process's */})
        HR(s.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, wrong, (void **)&mr), ND_INVALID_HANDLE);
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

static void null()
{
    Side s;
    prepare(s);
    HR(s.adapter->CreateOverlappedFile(nullptr), ND_INVALID_PARAMETER_1);
    HR(s.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, s.file, nullptr), E_POINTER);
    HR(s.adapter->Query(nullptr, nullptr), ND_INVALID_PARAMETER_2);
    HR(s.cq->QueryInterface(IID_IUnknown, (void **)nullptr), E_POINTER);
    HR(s.cq->Notify(ND_CQ_NOTIFY_ANY, nullptr), ND_INVALID_PARAMETER);
    HR(s.cq->Notify(7, &s.ov), ND_INVALID_PARAMETER_1);
    CHECK_EQ(s.cq->GetResults(nullptr, 5), 0);
    HR(s.cq->GetOverlappedResult(nullptr, FALSE), ND_INVALID_PARAMETER_1);
    HR(s.qp->Receive(nullptr, nullptr, 1), ND_INVALID_PARAMETER_2);
    HR(s.qp->Send(nullptr, nullptr, 1, 0), ND_INVALID_PARAMETER_2);
    HR(s.connector->Bind(nullptr, 16), ND_INVALID_ADDRESS);
    const sockaddr_in elsewhere = address("192.0.2.1", 0);
    HR(s.connector->Bind(sa(elsewhere), sizeof elsewhere), ND_INVALID_ADDRESS);
    HR(s.connector->Bind(sa(elsewhere), 4), ND_INVALID_ADDRESS);
    HR(s.connector->GetPrivateData(nullptr, nullptr), ND_CONNECTION_INVALID);
    const sockaddr_in to = address("127.0.0.1", 9);
    HR(s.connector->Connect(s.qp, sa(to), sizeof to, 0, 0, (void *)16, 8, &s.ov), ND_ACCESS_VIOLATION);
    IND2MemoryRegion *mr = nullptr;
    HR(s.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, s.file, (void **)&mr), ND_SUCCESS);
    HR(mr->Register((void *)16, 8, 0, &s.ov), ND_ACCESS_VIOLATION);
    HR(mr->Register(&s, 8, 0x40, &s.ov), ND_INVALID_PARAMETER_3);
    HR(mr->Deregister(&s.ov), ND_INVALID_DEVICE_STATE);
    CHECK_EQ(mr->Release(), 0);
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
    else
        CHECK(!"a case");
    CHECK_EQ(transom_nd_live_objects(), 0);
    return 0;
}
