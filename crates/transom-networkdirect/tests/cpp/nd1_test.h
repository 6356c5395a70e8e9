// Shared by the tests of version 1: nodes, ends, and pairs of them in one process.
#pragma once

#include "nd_test.h"

#ifndef _WIN32
#include <endian.h>
#endif

#include <cstring>
#include <initializer_list>
#include <map>
#include <string>
#include <thread>

#ifdef _WIN32
inline UINT64 htobe64(UINT64 value) { return __builtin_bswap64(value); }
inline UINT64 be64toh(UINT64 value) { return __builtin_bswap64(value); }
inline UINT32 htobe32(UINT32 value) { return __builtin_bswap32(value); }
#endif

constexpr DWORD SILENT = ND_OP_FLAG_SILENT_SUCCESS, FENCE = ND_OP_FLAG_READ_FENCE, SOLICIT = ND_OP_FLAG_SEND_AND_SOLICIT_EVENT,
                MAY_READ = ND_OP_FLAG_ALLOW_READ, MAY_WRITE = ND_OP_FLAG_ALLOW_WRITE;

// An OVERLAPPED with its event.
struct Request : OVERLAPPED {
    Request() : OVERLAPPED() { hEvent = CreateEvent(nullptr, FALSE, FALSE, nullptr); }
    Request(const Request &) = delete;
    ~Request() { CloseHandle((HANDLE)((ULONG_PTR)hEvent & ~(ULONG_PTR)1)); }
};

inline HRESULT result_of(INDOverlapped *object, HRESULT hr, OVERLAPPED &ov)
{
    SIZE_T bytes;
    return hr == ND_PENDING ? object->GetOverlappedResult(&ov, &bytes, TRUE) : hr;
}

// An adapter and one registered buffer.
struct Node {
    static constexpr SIZE_T SIZE = 256 * 1024;
    INDAdapter *adapter = nullptr;
    char *const buffer = new char[SIZE]();
    ND_MR_HANDLE mr = nullptr;

    explicit Node(const char *ip = "127.0.0.1")
    {
        HR(NdStartup(), ND_SUCCESS);
        const sockaddr_in a = address(ip, 0);
        HR(NdOpenV1Adapter(sa(a), sizeof a, &adapter), ND_SUCCESS);
        mr = add(buffer, SIZE);
    }
    Node(const Node &) = delete;
    ~Node()
    {
        if (mr)
            HR(remove(mr), ND_SUCCESS);
        CHECK_EQ(adapter->Release(), 0);
        delete[] buffer;
        HR(NdCleanup(), ND_SUCCESS);
    }
    ND_MR_HANDLE add(const void *at, SIZE_T size)
    {
        Request r;
        ND_MR_HANDLE handle = nullptr;
        HR(result_of(adapter, adapter->RegisterMemory(at, size, &r, &handle), r), ND_SUCCESS);
        CHECK(handle != nullptr);
        return handle;
    }
    HRESULT remove(ND_MR_HANDLE handle)
    {
        Request r;
        return result_of(adapter, adapter->DeregisterMemory(handle, &r), r);
    }
    INDCompletionQueue *queue(SIZE_T entries)
    {
        INDCompletionQueue *cq = nullptr;
        HR(adapter->CreateCompletionQueue(entries, &cq), ND_SUCCESS);
        return cq;
    }
    INDConnector *connector()
    {
        INDConnector *made = nullptr;
        HR(adapter->CreateConnector(&made), ND_SUCCESS);
        return made;
    }
    INDMemoryWindow *window(ND_RESULT &invalidated)
    {
        INDMemoryWindow *mw = nullptr;
        HR(adapter->CreateMemoryWindow(&invalidated, &mw), ND_SUCCESS);
        return mw;
    }
    ND_SGE sge(SIZE_T at, SIZE_T size) const { return ND_SGE{buffer + at, size, mr}; }
    bool holds(SIZE_T at, SIZE_T size, char what) const
    {
        for (SIZE_T i = at; i < at + size; i++)
            if (buffer[i] != what)
                return false;
        return true;
    }
};

struct Sizes {
    SIZE_T in = 16, out = 16, reads_in = 4, reads_out = 4, cq = 64;
};

// The next result of a queue.
inline ND_RESULT *next(INDCompletionQueue *cq)
{
    ND_RESULT *got = nullptr;
    Request r;
    while (cq->GetResults(&got, 1) == 0) {
        const HRESULT hr = result_of(cq, cq->Notify(ND_CQ_NOTIFY_ANY, &r), r);
        CHECK(hr == ND_SUCCESS);
    }
    return got;
}
inline void expect(INDCompletionQueue *cq, const ND_RESULT &which, HRESULT status)
{
    const ND_RESULT *got = next(cq);
    CHECK_EQ(got, &which);
    HR(which.Status, status);
}

// An end of a connection, with a queue for each direction.
struct End {
    Node &node;
    const Sizes sizes;
    INDCompletionQueue *in, *out;
    INDConnector *connector;
    INDEndpoint *endpoint = nullptr;
    SIZE_T inline_size = 0;
    Request ov;

    explicit End(Node &n, Sizes s = {}) : node(n), sizes(s), in(n.queue(s.cq)), out(n.queue(s.cq)), connector(n.connector()) {}
    End(const End &) = delete;
    ~End()
    {
        if (endpoint)
            endpoint->Release();
        if (connector)
            connector->Release();
        in->Release();
        out->Release();
    }
    void make_endpoint()
    {
        HR(connector->CreateEndpoint(in, out, sizes.in, sizes.out, 4, 4, sizes.reads_in, sizes.reads_out, &inline_size, &endpoint),
           ND_SUCCESS);
    }
    HRESULT wait(HRESULT hr) { return result_of(connector, hr, ov); }
    HRESULT start_connect(USHORT port, const void *data = nullptr, SIZE_T size = 0, INT protocol = 6)
    {
        const sockaddr_in to = address("127.0.0.1", port);
        return connector->Connect(endpoint, sa(to), sizeof to, protocol, 0, data, size, &ov);
    }
    HRESULT complete() { return wait(connector->CompleteConnect(&ov)); }
    HRESULT disconnect() { return wait(connector->Disconnect(&ov)); }
    HRESULT hear_of_disconnect() { return wait(connector->NotifyDisconnect(&ov)); }

    void receive(ND_RESULT &r, SIZE_T at = 0, SIZE_T size = 4096)
    {
        const ND_SGE sge = node.sge(at, size);
        HR(endpoint->Receive(&r, &sge, 1), ND_SUCCESS);
    }
    void receive_nothing(ND_RESULT &r) { HR(endpoint->Receive(&r, nullptr, 0), ND_SUCCESS); }
    void send_nothing(ND_RESULT &r, DWORD flags = 0) { HR(endpoint->Send(&r, nullptr, 0, flags), ND_SUCCESS); }
    void got(const ND_RESULT &r, HRESULT status = ND_SUCCESS) { expect(in, r, status); }
    void done(const ND_RESULT &r, HRESULT status = ND_SUCCESS) { expect(out, r, status); }
    HRESULT bind(ND_RESULT &r, INDMemoryWindow *mw, SIZE_T at, SIZE_T size, DWORD flags, ND_MW_DESCRIPTOR &d)
    {
        return endpoint->Bind(&r, node.mr, mw, node.buffer + at, size, flags, &d);
    }
    // A window that is bound when this returns.
    ND_MW_DESCRIPTOR bound(INDMemoryWindow *mw, SIZE_T at, SIZE_T size, DWORD flags)
    {
        ND_MW_DESCRIPTOR d;
        ND_RESULT r;
        HR(bind(r, mw, at, size, flags, d), ND_SUCCESS);
        done(r);
        return d;
    }
    HRESULT write(ND_RESULT &r, SIZE_T from, SIZE_T size, const ND_MW_DESCRIPTOR &d, ULONGLONG offset = 0, DWORD flags = 0)
    {
        const ND_SGE sge = node.sge(from, size);
        return endpoint->Write(&r, &sge, 1, &d, offset, flags);
    }
    HRESULT read(ND_RESULT &r, SIZE_T to, SIZE_T size, const ND_MW_DESCRIPTOR &d, ULONGLONG offset = 0, DWORD flags = 0)
    {
        const ND_SGE sge = node.sge(to, size);
        return endpoint->Read(&r, &sge, 1, &d, offset, flags);
    }
    // Write or Read that ends in `status`.
    void writes(HRESULT status, SIZE_T from, SIZE_T size, const ND_MW_DESCRIPTOR &d, ULONGLONG offset = 0)
    {
        ND_RESULT r;
        HR(write(r, from, size, d, offset), ND_SUCCESS);
        done(r, status);
    }
    void reads(HRESULT status, SIZE_T to, SIZE_T size, const ND_MW_DESCRIPTOR &d, ULONGLONG offset = 0)
    {
        ND_RESULT r;
        HR(read(r, to, size, d, offset), ND_SUCCESS);
        done(r, status);
    }
};

struct Listening {
    INDListen *listen = nullptr;
    USHORT port = 0; // host order

    explicit Listening(Node &node, INT protocol = 6)
    {
        USHORT assigned = 0;
        HR(node.adapter->Listen(0, protocol, 0, &assigned, &listen), ND_SUCCESS);
        port = ntohs(assigned);
        CHECK(port != 0);
    }
    Listening(const Listening &) = delete;
    ~Listening()
    {
        if (listen)
            listen->Release();
    }
    // Up to the point where `passive` holds the request of `active`.
    void offer(End &active, End &passive, const void *data = nullptr, SIZE_T size = 0, INT protocol = 6)
    {
        HR(listen->GetConnectionRequest(passive.connector, &passive.ov), ND_PENDING);
        if (!active.endpoint)
            active.make_endpoint();
        HR(active.start_connect(port, data, size, protocol), ND_PENDING);
        HR(passive.wait(ND_PENDING), ND_SUCCESS);
        if (!passive.endpoint)
            passive.make_endpoint();
    }
    // Up to the point where `active` has the reply.
    void accept(End &active, End &passive, const void *data = nullptr, SIZE_T size = 0)
    {
        HR(passive.connector->Accept(passive.endpoint, data, size, &passive.ov), ND_PENDING);
        HR(active.wait(ND_PENDING), ND_SUCCESS);
    }
    void join(End &active, End &passive)
    {
        offer(active, passive);
        accept(active, passive);
        HR(active.complete(), ND_SUCCESS);
        HR(passive.wait(ND_PENDING), ND_SUCCESS);
    }
};

// Two nodes. Connections between them are cheap.
struct Lab {
    Node a, b;
    Listening listening{b};
};
// A connection: `x` is the active side, on node `a`; `y` owns the windows.
struct Link1 {
    End x, y;
    explicit Link1(Lab &lab, Sizes active = {}, Sizes passive = {}) : x(lab.a, active), y(lab.b, passive) { lab.listening.join(x, y); }
    // The connection has ended for both sides, and nothing goes through any more. A side whose peer
    // has left by itself keeps its requests until it disconnects (ND1 D-4).
    void is_dead()
    {
        for (End *end : {&x, &y}) {
            HR(end->hear_of_disconnect(), ND_SUCCESS);
            ND_RESULT r;
            end->send_nothing(r);
            HR(end->disconnect(), ND_SUCCESS);
            while (next(end->out) != &r)
                ;
            HR(r.Status, ND_CANCELED);
        }
    }
};

using Case = void (*)();
inline int run_case(int argc, char **argv, const std::map<std::string, Case> &cases)
{
    time_limit(300);
    const auto found = cases.find(argc > 1 ? argv[1] : "");
    CHECK(found != cases.end());
    found->second();
    CHECK_EQ(transom_nd_live_objects(), 0);
    return 0;
}
