// Version 1 (ND1), and a version 1 with a version 2 program: v1 CASE.
#include "nd_test.h"

#include <string>

// One side of version 1.
struct Old {
    INDAdapter *adapter = nullptr;
    INDCompletionQueue *cq = nullptr;
    INDConnector *connector = nullptr;
    INDEndpoint *endpoint = nullptr;
    INDListen *listen = nullptr;
    OVERLAPPED ov = {};
    char buffer[4096] = {};
    ND_MR_HANDLE mr = nullptr;

    Old()
    {
        HR(NdStartup(), ND_SUCCESS);
        const sockaddr_in a = address("127.0.0.1", 0);
        HR(NdOpenV1Adapter(sa(a), sizeof a, &adapter), ND_SUCCESS);
        ov.hEvent = CreateEvent(nullptr, FALSE, FALSE, nullptr);
        HR(adapter->CreateCompletionQueue(64, &cq), ND_SUCCESS);
        HR(adapter->CreateConnector(&connector), ND_SUCCESS);
        HR(wait(adapter, adapter->RegisterMemory(buffer, sizeof buffer, &ov, &mr)), ND_SUCCESS);
        CHECK(mr != nullptr);
    }
    ~Old()
    {
        endpoint->Release();
        connector->Release();
        if (listen)
            listen->Release();
        HR(wait(adapter, adapter->DeregisterMemory(mr, &ov)), ND_SUCCESS);
        HR(adapter->DeregisterMemory(mr, &ov), ND_INVALID_HANDLE);
        cq->Release();
        adapter->Release();
        CloseHandle(ov.hEvent);
        NdCleanup();
    }
    HRESULT wait(INDOverlapped *object, HRESULT hr)
    {
        SIZE_T bytes;
        return hr == ND_PENDING ? object->GetOverlappedResult(&ov, &bytes, TRUE) : hr;
    }
    void make_endpoint()
    {
        SIZE_T inline_size = 0;
        HR(connector->CreateEndpoint(cq, cq, 8, 8, 2, 2, 4, 4, &inline_size, &endpoint), ND_SUCCESS);
        CHECK(inline_size > 0);
        INDEndpoint *second = nullptr;
        HR(connector->CreateEndpoint(cq, cq, 8, 8, 2, 2, 4, 4, nullptr, &second), ND_NOT_SUPPORTED);
    }
    USHORT start_listening()
    {
        USHORT port = 0;
        HR(adapter->Listen(0, 6, 0, nullptr, &listen), ND_INVALID_PARAMETER_MIX); // T30
        HR(adapter->Listen(0, 6, 0, &port, &listen), ND_SUCCESS);
        INDListen *again = nullptr;
        HR(adapter->Listen(0, 6, port, nullptr, &again), ND_ADDRESS_ALREADY_EXISTS);
        HR(adapter->Listen(0, 256, port, nullptr, &again), ND_INVALID_PARAMETER_2);
        return ntohs(port);
    }
    void accept()
    {
        HR(wait(listen, listen->GetConnectionRequest(connector, &ov)), ND_SUCCESS);
        SIZE_T in = 0, out = 0, size = 2;
        char data[2];
        HR(connector->GetConnectionData(&in, &out, data, &size), ND_BUFFER_OVERFLOW); // T27
        CHECK(size == 5 && data[0] == 'h' && in == 4 && out == 4);
        make_endpoint();
        ND_RESULT posted;
        HR(endpoint->Send(&posted, nullptr, 0, 0), ND_CONNECTION_INVALID);
        HR(endpoint->Receive(&received, &(const ND_SGE &)ND_SGE{buffer, sizeof buffer, mr}, 1), ND_SUCCESS);
        HR(wait(connector, connector->Accept(endpoint, nullptr, 0, &ov)), ND_SUCCESS);
    }
    void connect(USHORT port)
    {
        make_endpoint();
        HR(endpoint->Receive(&received, &(const ND_SGE &)ND_SGE{buffer, sizeof buffer, mr}, 1), ND_SUCCESS);
        const sockaddr_in to = address("127.0.0.1", port);
        std::vector<char> much(4096);
        HR(connector->Connect(endpoint, sa(to), sizeof to, 6, 0, much.data(), much.size(), &ov), ND_BUFFER_OVERFLOW);
        HR(wait(connector, connector->Connect(endpoint, sa(to), sizeof to, 6, 0, "hello", 5, &ov)), ND_SUCCESS);
        HR(wait(connector, connector->CompleteConnect(&ov)), ND_SUCCESS);
    }
    ND_RESULT received = {};
    // The next result, which must be `which`.
    void expect(ND_RESULT &which, HRESULT status)
    {
        ND_RESULT *got = nullptr;
        while (cq->GetResults(&got, 1) == 0)
            wait(cq, cq->Notify(ND_CQ_NOTIFY_ANY, &ov));
        CHECK_EQ(got, &which);
        HR(which.Status, status);
    }
    void disconnect() { HR(wait(connector, connector->Disconnect(&ov)), ND_SUCCESS); }
};

static void both(const std::function<void(Old &, Link &)> &server, const std::function<void(Old &, Link &)> &client)
{
    two(
        [&](Link &link) {
            Old s;
            link.to_client.put(s.start_listening());
            s.accept();
            server(s, link);
        },
        [&](Link &link) {
            Old c;
            c.connect(link.to_client.get<USHORT>());
            client(c, link);
        });
}

// T8, T14, T15: Bind, Send without waiting, Write through it, SendAndInvalidate.
static void window()
{
    both(
        [](Old &s, Link &) {
            ND_RESULT invalidated = {1, 1}, bound, sent;
            INDMemoryWindow *mw = nullptr;
            HR(s.adapter->CreateMemoryWindow(nullptr, &mw), ND_INVALID_PARAMETER_1);
            HR(s.adapter->CreateMemoryWindow(&invalidated, &mw), ND_SUCCESS);
            char *at = s.buffer + 1024;
            ND_MW_DESCRIPTOR d;
            // T5, T6
            for (DWORD flags : {0u, 1u, 2u, 3u, 0x20u})
                HR(s.endpoint->Bind(&bound, s.mr, mw, at, 1024, flags, &d), ND_INVALID_PARAMETER_6);
            HR(s.endpoint->Bind(&bound, s.mr, mw, s.buffer - 1, 8, 8, &d), ND_INVALID_PARAMETER_4);
            HR(s.endpoint->Bind(&bound, s.mr, mw, s.buffer + sizeof s.buffer, 1, 8, &d), ND_INVALID_PARAMETER_4);
            HR(s.endpoint->Bind(&bound, s.mr, mw, at, sizeof s.buffer, 8, &d), ND_INVALID_PARAMETER_5);
            HR(s.endpoint->Bind(&bound, s.mr, mw, at, SIZE_MAX, 8, &d), ND_INVALID_PARAMETER_5);
            HR(s.endpoint->Bind(&bound, s.mr, mw, at, 0, 8, &d), ND_INVALID_PARAMETER_5);
            HR(s.endpoint->Bind(&bound, (ND_MR_HANDLE)12, mw, at, 8, 8, &d), ND_INVALID_PARAMETER_2);
            HR(s.endpoint->Invalidate(&bound, mw, 0), ND_INVALID_DEVICE_STATE);

            HR(s.endpoint->Bind(&bound, s.mr, mw, at, 1024, ND_OP_FLAG_ALLOW_WRITE, &d), ND_SUCCESS);
            CHECK_EQ(be64toh(d.Base), at);
            CHECK_EQ(be64toh(d.Length), 1024);
            HR(s.endpoint->Bind(&sent, s.mr, mw, at, 8, 8, &d), ND_INVALID_DEVICE_STATE);
            HR(s.adapter->DeregisterMemory(s.mr, &s.ov), ND_DEVICE_BUSY); // T14
            const ND_SGE inline_sge = {&d, sizeof d, nullptr};
            HR(s.endpoint->Send(&sent, &inline_sge, 1, 0), ND_SUCCESS);
            s.expect(bound, ND_SUCCESS);
            s.expect(sent, ND_SUCCESS);
            s.expect(invalidated, ND_SUCCESS); // right before the Receive (15.11)
            s.expect(s.received, ND_SUCCESS);
            CHECK_EQ(s.received.BytesTransferred, 0);
            CHECK(std::memcmp(at + 16, "through the window", 18) == 0);
            // Bound again, with another token.
            ND_MW_DESCRIPTOR again;
            HR(s.endpoint->Bind(&bound, s.mr, mw, at, 8, ND_OP_FLAG_ALLOW_READ | ND_OP_FLAG_SILENT_SUCCESS, &again), ND_SUCCESS);
            CHECK(again.Token != d.Token);
            HR(s.endpoint->Invalidate(&sent, mw, 0), ND_SUCCESS);
            s.expect(sent, ND_SUCCESS);
            CHECK_EQ(mw->Release(), 0);
        },
        [](Old &c, Link &) {
            c.expect(c.received, ND_SUCCESS);
            ND_MW_DESCRIPTOR d;
            CHECK_EQ(c.received.BytesTransferred, sizeof d);
            std::memcpy(&d, c.buffer, sizeof d);
            char text[] = "through the window";
            const ND_SGE sge = {text, 18, nullptr};
            ND_RESULT wrote, sent;
            HR(c.endpoint->Write(&wrote, &sge, 1, &d, 16, 0), ND_SUCCESS);
            std::memset(text, 0, sizeof text); // captured already (T24)
            HR(c.endpoint->SendAndInvalidate(&sent, nullptr, 0, &d, ND_OP_FLAG_SEND_AND_SOLICIT_EVENT), ND_SUCCESS);
            c.expect(wrote, ND_SUCCESS);
            c.expect(sent, ND_SUCCESS);
            // Wait for the other side's end, which this version does not flush on.
            HR(c.wait(c.connector, c.connector->NotifyDisconnect(&c.ov)), ND_SUCCESS);
        });
}

// T9: the wrong right is a REMOTE_ERROR to version 1.
static void refused()
{
    both(
        [](Old &s, Link &) {
            ND_RESULT invalidated, bound, sent;
            INDMemoryWindow *mw = nullptr;
            HR(s.adapter->CreateMemoryWindow(&invalidated, &mw), ND_SUCCESS);
            ND_MW_DESCRIPTOR d;
            HR(s.endpoint->Bind(&bound, s.mr, mw, s.buffer, 64, ND_OP_FLAG_ALLOW_READ, &d), ND_SUCCESS);
            const ND_SGE inline_sge = {&d, sizeof d, nullptr};
            HR(s.endpoint->Send(&sent, &inline_sge, 1, 0), ND_SUCCESS);
            s.expect(bound, ND_SUCCESS);
            s.expect(sent, ND_SUCCESS);
            s.expect(s.received, ND_CANCELED);
            mw->Release();
        },
        [](Old &c, Link &) {
            c.expect(c.received, ND_SUCCESS);
            ND_MW_DESCRIPTOR d;
            std::memcpy(&d, c.buffer, sizeof d);
            const ND_SGE sge = {c.buffer, 8, c.mr};
            ND_RESULT first, second;
            HR(c.endpoint->Write(&first, &sge, 1, &d, 0, 0), ND_SUCCESS);
            const HRESULT hr = c.endpoint->Send(&second, nullptr, 0, 0);
            c.expect(first, ND_REMOTE_ERROR);
            if (hr == ND_SUCCESS)
                c.expect(second, ND_CANCELED);
        });
}

// A version 2 server and a version 1 client.
static void mixed()
{
    two(
        [](Link &link) {
            Side s;
            s.make_queues();
            char buffer[64] = {};
            IND2MemoryRegion *mr = s.region(buffer, sizeof buffer, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
            const ND2_SGE sge = s.sge(mr, buffer, sizeof buffer);
            HR(s.qp->Receive(&s, &sge, 1), ND_SUCCESS);
            link.to_client.put(s.listen());
            s.take_request();
            HR(s.accept(), ND_SUCCESS);
            s.expect(ND_SUCCESS, &s, Nd2RequestTypeReceive);
            CHECK(std::memcmp(buffer, "one to two", 10) == 0);
            HR(s.qp->Send(&s, &sge, 1, 0), ND_SUCCESS);
            s.expect(ND_SUCCESS, &s, Nd2RequestTypeSend);
            link.to_server.get<int>();
        },
        [](Link &link) {
            Old c;
            c.connect(link.to_client.get<USHORT>());
            char text[] = "one to two";
            const ND_SGE sge = {text, 10, nullptr};
            ND_RESULT sent;
            HR(c.endpoint->Send(&sent, &sge, 1, 0), ND_SUCCESS);
            c.expect(sent, ND_SUCCESS);
            c.expect(c.received, ND_SUCCESS);
            CHECK(c.received.BytesTransferred == 64 && std::memcmp(c.buffer, "one to two", 10) == 0);
            link.to_server.put(1);
        });
}

// T1, and the class factory.
static void identity()
{
    const GUID any = {};
    IClassFactory *factory = nullptr;
    HR(DllGetClassObject(any, IID_IClassFactory, (void **)&factory), S_OK);
    INDProvider *provider = nullptr;
    HR(factory->CreateInstance(factory, IID_INDProvider, (void **)&provider), CLASS_E_NOAGGREGATION);
    HR(factory->CreateInstance(nullptr, IID_INDProvider, (void **)&provider), S_OK);
    CHECK_EQ(factory->Release(), 0);
    const sockaddr_in a = address("127.0.0.1", 0);
    INDAdapter *adapter = nullptr;
    HR(provider->OpenAdapter(sa(a), sizeof a, &adapter), ND_SUCCESS);
    CHECK_EQ(provider->Release(), 0);
    INDOverlapped *overlapped = nullptr;
    HR(adapter->QueryInterface(IID_INDOverlapped, &overlapped), S_OK);
    CHECK_EQ(overlapped, adapter);
    CHECK_EQ(overlapped->Release(), 1);
    void *wrong = adapter;
    HR(adapter->QueryInterface(IID_IND2Adapter, &wrong), E_NOINTERFACE);
    CHECK(wrong == nullptr);
    ND_ADAPTER_INFO info;
    SIZE_T size = sizeof info;
    HR(adapter->Query(2, &info, &size), ND_NOT_SUPPORTED);
    HR(adapter->Query(ND_VERSION_1, &info, &size), ND_SUCCESS);
    CHECK(info.MaxInboundSge > 0 && adapter->GetFileHandle() != nullptr);
    CHECK_EQ(adapter->Release(), 0);
}

int main(int argc, char **argv)
{
    const std::string which = argc > 1 ? argv[1] : "";
    if (which == "window")
        window();
    else if (which == "refused")
        refused();
    else if (which == "mixed")
        mixed();
    else if (which == "identity")
        identity();
    else
        CHECK(!"a case");
    CHECK_EQ(transom_nd_live_objects(), 0);
    return 0;
}
