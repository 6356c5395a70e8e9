// A NetworkDirect ping in one file, for Linux and Windows:
//   g++ -std=c++17 ping.cpp $(pkg-config --cflags --libs transom-nd) && ./a.out
//
//   ping                       both sides, in two threads
//   ping serve ADDRESS PORT    the server, at an address of this machine
//   ping ADDRESS PORT          the client, which may run on another machine and another system
//
// The server opens a window on eight bytes, the client writes into it and is answered by a Send. Then the
// window is closed, and the next Write is refused with an explanation.
#include <ndsupport.h>
#include <transom_nd.h>

#include <ws2tcpip.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

static void must(HRESULT hr, HRESULT wanted, const char *what)
{
    if (hr != wanted) {
        std::fprintf(stderr, "%s: %08x\n", what, (unsigned)hr);
        std::exit(1);
    }
}
#define MUST(call) must((call), ND_SUCCESS, #call)

struct End {
    IND2Adapter *adapter;
    IND2CompletionQueue *queue;
    IND2QueuePair *pair;
    IND2Connector *connector;
    IND2MemoryRegion *region;
    HANDLE file;
    OVERLAPPED ov = {};
    char memory[64] = {};

    HRESULT wait(IND2Overlapped *object, HRESULT hr) { return hr == ND_PENDING ? object->GetOverlappedResult(&ov, TRUE) : hr; }
    ND2_RESULT result()
    {
        ND2_RESULT r;
        while (queue->GetResults(&r, 1) == 0)
            wait(queue, queue->Notify(ND_CQ_NOTIFY_ANY, &ov));
        return r;
    }
    End(const sockaddr_in &at)
    {
        MUST(NdStartup());
        MUST(NdOpenAdapter(IID_IND2Adapter, (const sockaddr *)&at, sizeof at, (void **)&adapter));
        MUST(adapter->CreateOverlappedFile(&file));
        ov.hEvent = CreateEvent(nullptr, FALSE, FALSE, nullptr);
        MUST(adapter->CreateCompletionQueue(IID_IND2CompletionQueue, file, 16, 0, 0, (void **)&queue));
        MUST(adapter->CreateQueuePair(IID_IND2QueuePair, queue, queue, nullptr, 8, 8, 1, 1, 0, (void **)&pair));
        MUST(adapter->CreateConnector(IID_IND2Connector, file, (void **)&connector));
        MUST(adapter->CreateMemoryRegion(IID_IND2MemoryRegion, file, (void **)&region));
        MUST(wait(region, region->Register(memory, sizeof memory, ND_MR_FLAG_ALLOW_LOCAL_WRITE, &ov)));
    }
    ~End()
    {
        wait(connector, connector->Disconnect(&ov));
        for (IUnknown *one : {(IUnknown *)pair, (IUnknown *)region, (IUnknown *)connector, (IUnknown *)queue})
            one->Release();
        CloseHandle(file);
        CloseHandle(ov.hEvent);
        adapter->Release();
        NdCleanup();
    }
    ND2_SGE sge(ULONG length) { return ND2_SGE{memory, length, region->GetLocalToken()}; }
    void receive()
    {
        const ND2_SGE all = sge(sizeof memory);
        MUST(pair->Receive(nullptr, &all, 1));
    }
};

struct Grant {
    UINT64 address;
    UINT32 token;
};

// `at`: the server's address and port.
static void client(const sockaddr_in &at)
{
    sockaddr_in from = {};
    SIZE_T length = sizeof from;
    MUST(NdStartup());
    MUST(NdResolveAddress((const sockaddr *)&at, sizeof at, (sockaddr *)&from, &length));
    End c(from);
    MUST(c.connector->Bind((const sockaddr *)&from, sizeof from));
    c.receive();
    MUST(c.wait(c.connector, c.connector->Connect(c.pair, (const sockaddr *)&at, sizeof at, 1, 1, nullptr, 0, &c.ov)));
    MUST(c.wait(c.connector, c.connector->CompleteConnect(&c.ov)));
    MUST(c.result().Status);
    Grant grant;
    std::memcpy(&grant, c.memory, sizeof grant);
    for (int i = 1; i <= 3; ++i) {
        std::snprintf(c.memory, sizeof c.memory, "ping %d", i);
        c.receive();
        const ND2_SGE out = c.sge(8);
        MUST(c.pair->Write(nullptr, &out, 1, grant.address, grant.token, ND_OP_FLAG_SILENT_SUCCESS));
        MUST(c.pair->Send(nullptr, nullptr, 0, 0));
        MUST(c.result().Status);
        MUST(c.result().Status);
        std::printf("client: %s\n", c.memory);
    }
    const ND2_SGE out = c.sge(8);
    MUST(c.pair->Write(nullptr, &out, 1, grant.address, grant.token, 0));
    must(c.result().Status, ND_ACCESS_VIOLATION, "the window is closed");
    ITransomExplain *why;
    MUST(c.queue->QueryInterface(IID_ITransomExplain, (void **)&why));
    char text[2048];
    ULONG size = sizeof text;
    must(why->GetLastRefusal(text, &size), S_OK, "the explanation");
    std::printf("client: refused: %s\n", text);
    std::fflush(stdout);
    why->Release();
    NdCleanup();
}

// `listens` is called with the address and port once a client may connect.
static void server(sockaddr_in at, const std::function<void(const sockaddr_in &)> &listens)
{
    End s(at);
    IND2Listener *listener;
    IND2MemoryWindow *window;
    MUST(s.adapter->CreateListener(IID_IND2Listener, s.file, (void **)&listener));
    MUST(listener->Bind((const sockaddr *)&at, sizeof at));
    MUST(listener->Listen(0));
    ULONG size = sizeof at;
    MUST(listener->GetLocalAddress((sockaddr *)&at, &size));
    listens(at);
    MUST(s.wait(listener, listener->GetConnectionRequest(s.connector, &s.ov)));
    MUST(s.pair->Receive(nullptr, nullptr, 0));
    MUST(s.wait(s.connector, s.connector->Accept(s.pair, 1, 1, nullptr, 0, &s.ov)));
    MUST(s.adapter->CreateMemoryWindow(IID_IND2MemoryWindow, (void **)&window));
    MUST(s.pair->Bind(nullptr, s.region, window, s.memory + 32, 8, ND_OP_FLAG_ALLOW_WRITE));
    MUST(s.result().Status);
    const Grant grant = {(UINT64)(s.memory + 32), window->GetRemoteToken()};
    std::memcpy(s.memory, &grant, sizeof grant);
    ND2_SGE out = s.sge(sizeof(Grant));
    MUST(s.pair->Send(nullptr, &out, 1, 0));
    MUST(s.result().Status);
    for (int i = 1; i <= 3; ++i) {
        MUST(s.result().Status); // the client's Send
        std::printf("server: %s\n", s.memory + 32);
        std::fflush(stdout);
        MUST(s.pair->Receive(nullptr, nullptr, 0));
        if (i == 3) {
            MUST(s.pair->Invalidate(nullptr, window, 0));
            MUST(s.result().Status);
        }
        std::snprintf(s.memory, 32, "pong %d", i);
        out = s.sge(8);
        MUST(s.pair->Send(nullptr, &out, 1, 0));
        MUST(s.result().Status);
    }
    must(s.result().Status, ND_CANCELED, "the connection ends with the refusal");
    window->Release();
    listener->Release();
}

static sockaddr_in address(const char *text, const char *port)
{
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_port = htons((USHORT)std::atoi(port));
    if (inet_pton(AF_INET, text, &at.sin_addr) != 1) {
        std::fprintf(stderr, "%s: no IPv4 address\n", text);
        std::exit(2);
    }
    return at;
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        std::thread other;
        server(address("127.0.0.1", "0"), [&](const sockaddr_in &at) { other = std::thread(client, at); });
        other.join();
    } else if (argc == 4 && std::strcmp(argv[1], "serve") == 0) {
        server(address(argv[2], argv[3]), [](const sockaddr_in &at) {
            std::printf("server: listens at port %d\n", ntohs(at.sin_port));
            std::fflush(stdout);
        });
    } else if (argc == 3) {
        client(address(argv[1], argv[2]));
    } else {
        std::fprintf(stderr, "usage: ping | ping serve ADDRESS PORT | ping ADDRESS PORT\n");
        return 2;
    }
}
