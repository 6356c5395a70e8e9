// Shared by the C++ tests: checks, a side of a connection, two processes.
#pragma once

#include <ndsupport.h>
#include <transom_nd.h>
#include <ws2tcpip.h>

#include "system.h"

#ifdef _WIN32 // words of our own that are macros there
#undef ERROR
#undef far
#undef near
#endif

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#define HR(a, b) CHECK_EQ((UINT32)(a), (UINT32)(b))

// A request has ended so: what the system's own words for it are. Windows' knows one failure.
#ifdef _WIN32
inline UINT32 internal(HRESULT status) { return status >= 0 ? 0 : (UINT32)ND_CANCELED; }
inline DWORD packet_error(DWORD) { return ERROR_OPERATION_ABORTED; }
#else
inline UINT32 internal(HRESULT status) { return (UINT32)status; }
inline DWORD packet_error(DWORD error) { return error; }
#endif

inline sockaddr_in address(const char *ip, USHORT port)
{
    sockaddr_in a = {};
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    CHECK(inet_pton(AF_INET, ip, &a.sin_addr) == 1);
    return a;
}
template <class T> const sockaddr *sa(const T &a) { return reinterpret_cast<const sockaddr *>(&a); }

// Everything one side needs. Members are public: tests take them apart.
struct Side {
    IND2Adapter *adapter = nullptr;
    HANDLE file = nullptr;
    OVERLAPPED ov = {};
    IND2CompletionQueue *cq = nullptr;
    IND2QueuePair *qp = nullptr;
    IND2Connector *connector = nullptr;
    IND2Listener *listener = nullptr;
    std::vector<IUnknown *> owned;

    explicit Side(const char *ip = "127.0.0.1")
    {
        HR(NdStartup(), ND_SUCCESS);
        const sockaddr_in a = address(ip, 0);
        HR(NdOpenAdapter(IID_IND2Adapter, sa(a), sizeof a, (void **)&adapter), ND_SUCCESS);
        HR(adapter->CreateOverlappedFile(&file), ND_SUCCESS);
        ov.hEvent = CreateEvent(nullptr, FALSE, FALSE, nullptr);
    }
    ~Side()
    {
        for (IUnknown *one : owned)
            one->Release();
        for (IUnknown *one : {(IUnknown *)qp, (IUnknown *)connector, (IUnknown *)listener, (IUnknown *)cq})
            if (one)
                one->Release();
        CloseHandle(file);
        adapter->Release();
        CloseHandle(ov.hEvent);
        HR(NdCleanup(), ND_SUCCESS);
    }
    ND2_ADAPTER_INFO info()
    {
        ND2_ADAPTER_INFO i = {};
        i.InfoVersion = ND_VERSION_2;
        ULONG size = sizeof i;
        HR(adapter->Query(&i, &size), ND_SUCCESS);
        return i;
    }
    void make_queues(ULONG depth = 64, ULONG sge = 2, ULONG cq_depth = 64, ULONG inline_size = 0)
    {
        HR(adapter->CreateCompletionQueue(IID_IND2CompletionQueue, file, cq_depth, 0, 0, (void **)&cq), ND_SUCCESS);
        HR(adapter->CreateQueuePair(IID_IND2QueuePair, cq, cq, this, depth, depth, sge, sge, inline_size, (void **)&qp),
           ND_SUCCESS);
    }
    void make_connector() { HR(adapter->CreateConnector(IID_IND2Connector, file, (void **)&connector), ND_SUCCESS); }
    IND2MemoryRegion *region(void *buffer, SIZE_T size, ULONG flags)
    {
        IND2MemoryRegion *mr = nullptr;
        HR(adapter->CreateMemoryRegion(IID_IND2MemoryRegion, file, (void **)&mr), ND_SUCCESS);
        HR(wait(mr, mr->Register(buffer, size, flags, &ov)), ND_SUCCESS);
        owned.push_back(mr);
        return mr;
    }
    IND2MemoryWindow *window()
    {
        IND2MemoryWindow *mw = nullptr;
        HR(adapter->CreateMemoryWindow(IID_IND2MemoryWindow, (void **)&mw), ND_SUCCESS);
        owned.push_back(mw);
        return mw;
    }
    // The result of an overlapped call that returned hr.
    HRESULT wait(IND2Overlapped *object, HRESULT hr) { return hr == ND_PENDING ? object->GetOverlappedResult(&ov, TRUE) : hr; }
    ND2_RESULT result()
    {
        for (;;) {
            ND2_RESULT r;
            if (cq->GetResults(&r, 1) == 1)
                return r;
            wait(cq, cq->Notify(ND_CQ_NOTIFY_ANY, &ov));
        }
    }
    // As `result`, beside a notification of the test's own: a completion that has ended that one is reported
    // to no second one (ND2 N2), so that a notification that is asked for here might wait for the next one.
    ND2_RESULT polled()
    {
        ND2_RESULT r;
        while (cq->GetResults(&r, 1) == 0)
            Sleep(0);
        return r;
    }
    void expect(HRESULT status, void *context, ND2_REQUEST_TYPE type) { is(result(), status, context, type); }
    void is(const ND2_RESULT &r, HRESULT status, void *context, ND2_REQUEST_TYPE type)
    {
        HR(r.Status, status);
        CHECK_EQ(r.RequestContext, context);
        CHECK_EQ(r.RequestType, type);
        CHECK_EQ(r.QueuePairContext, this);
    }
    USHORT listen(const char *ip = "127.0.0.1")
    {
        HR(adapter->CreateListener(IID_IND2Listener, file, (void **)&listener), ND_SUCCESS);
        sockaddr_in a = address(ip, 0);
        HR(listener->Bind(sa(a), sizeof a), ND_SUCCESS);
        HR(listener->Listen(0), ND_SUCCESS);
        ULONG size = sizeof a;
        HR(listener->GetLocalAddress((sockaddr *)&a, &size), ND_SUCCESS);
        return ntohs(a.sin_port);
    }
    void take_request()
    {
        make_connector();
        HR(wait(listener, listener->GetConnectionRequest(connector, &ov)), ND_SUCCESS);
    }
    HRESULT accept(ULONG reads = 4)
    {
        return wait(connector, connector->Accept(qp, reads, reads, nullptr, 0, &ov));
    }
    void bind(const char *ip = "127.0.0.1")
    {
        if (!connector)
            make_connector();
        const sockaddr_in from = address(ip, 0);
        HR(connector->Bind(sa(from), sizeof from), ND_SUCCESS);
    }
    HRESULT connect(USHORT port, const void *data = nullptr, ULONG size = 0)
    {
        const sockaddr_in to = address("127.0.0.1", port);
        return wait(connector, connector->Connect(qp, sa(to), sizeof to, 4, 4, data, size, &ov));
    }
    void connect_and_complete(USHORT port)
    {
        bind();
        HR(connect(port), ND_SUCCESS);
        HR(wait(connector, connector->CompleteConnect(&ov)), ND_SUCCESS);
    }
    HRESULT disconnect() { return wait(connector, connector->Disconnect(&ov)); }
    ND2_SGE sge(IND2MemoryRegion *mr, void *at, ULONG size) { return ND2_SGE{at, size, mr->GetLocalToken()}; }
};

// A server in this process, a client in a child; pipes between them for what is not ND's business.
inline void two(const std::function<void(Link &)> &server, const std::function<void(Link &)> &client)
{
    Link link;
    Child child(link, client);
    if (Child::is_one())
        return;
    time_limit(300);
    server(link);
    CHECK(child.ends_well());
    CHECK_EQ(transom_nd_live_objects(), 0);
}

// A side each, connected; the client's part runs in the child.
inline void connected(const std::function<void(Side &, Link &)> &server, const std::function<void(Side &, Link &)> &client)
{
    two(
        [&](Link &link) {
            Side s;
            s.make_queues();
            link.to_client.put(s.listen());
            s.take_request();
            server(s, link);
        },
        [&](Link &link) {
            Side c;
            c.make_queues();
            c.connect_and_complete(link.to_client.get<USHORT>());
            client(c, link);
        });
}
