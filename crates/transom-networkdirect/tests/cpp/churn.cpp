// Connections as fast as they come, everything through one completion port: each sends 4 KiB both ways and
// disconnects. None may be refused, for want of a port or anything else. 100,000 of them: TRANSOM_CONNECTIONS=100000.
#include "nd_test.h"

#include <cstdlib>
#include <thread>

constexpr int THREADS = 4;
constexpr int AT_A_TIME = 32;
constexpr ULONG BYTES = 4096;

// An overlapped call and what follows it.
struct Op : OVERLAPPED {
    std::function<void(BOOL)> then;
};

struct Worker : Side {
    HANDLE port;
    IND2CompletionQueue *sends = nullptr, *receives = nullptr;
    Op sent, received;
    std::vector<char> memory = std::vector<char>(2 * BYTES);
    IND2MemoryRegion *mr;
    std::atomic<int> running{0};

    // The receiver of a queue pair's completions.
    struct Pair {
        virtual void on_send(HRESULT) = 0;
        virtual void on_receive(HRESULT) = 0;
        virtual ~Pair() {}
    };

    Worker()
    {
        mr = region(memory.data(), memory.size(), ND_MR_FLAG_ALLOW_LOCAL_WRITE);
        port = CreateIoCompletionPort(file, nullptr, 0, THREADS);
        for (auto queue : {&sends, &receives})
            HR(adapter->CreateCompletionQueue(IID_IND2CompletionQueue, file, 64, 0, 0, (void **)queue), ND_SUCCESS);
        owned.push_back(sends);
        owned.push_back(receives);
        watch(sends, sent, &Pair::on_send);
        watch(receives, received, &Pair::on_receive);
    }
    ~Worker() { CloseHandle(port); }
    void call(Op &op, std::function<void(BOOL)> then)
    {
        static_cast<OVERLAPPED &>(op) = {};
        op.then = std::move(then);
    }
    void watch(IND2CompletionQueue *queue, Op &op, void (Pair::*tell)(HRESULT))
    {
        call(op, [=, &op](BOOL done) {
            if (!done) {
                HR(queue->GetOverlappedResult(&op, FALSE), ND_CANCELED);
                return;
            }
            ND2_RESULT r;
            while (queue->GetResults(&r, 1) == 1)
                (static_cast<Pair *>(r.RequestContext)->*tell)(r.Status);
            watch(queue, op, tell);
        });
        HR(queue->Notify(ND_CQ_NOTIFY_ANY, &op), ND_PENDING);
    }
    IND2QueuePair *pair(Pair *context)
    {
        IND2QueuePair *made = nullptr;
        HR(adapter->CreateQueuePair(IID_IND2QueuePair, receives, sends, nullptr, 1, 1, 1, 1, 0, (void **)&made), ND_SUCCESS);
        const ND2_SGE in = sge(mr, memory.data() + BYTES, BYTES);
        HR(made->Receive(context, &in, 1), ND_SUCCESS);
        return made;
    }
    void send(IND2QueuePair *to, Pair *context)
    {
        const ND2_SGE out = sge(mr, memory.data(), BYTES);
        HR(to->Send(context, &out, 1, 0), ND_SUCCESS);
    }
    void run()
    {
        std::vector<std::thread> threads;
        for (int i = 0; i < THREADS; ++i)
            threads.emplace_back([this] {
                DWORD bytes;
                ULONG_PTR key;
                for (;;) {
                    OVERLAPPED *ov = nullptr;
                    const BOOL done = GetQueuedCompletionStatus(port, &bytes, &key, &ov, INFINITE);
                    if (!ov)
                        return;
                    auto then = std::move(static_cast<Op *>(ov)->then);
                    then(done);
                }
            });
        for (std::thread &one : threads)
            one.join();
    }
    void stop()
    {
        for (int i = 0; i < THREADS; ++i)
            CHECK(PostQueuedCompletionStatus(port, 0, 0, nullptr));
    }
};

// A connection: gone when its last part has ended.
struct Connection : Worker::Pair {
    Worker &worker;
    IND2Connector *connector = nullptr;
    IND2QueuePair *qp = nullptr;
    std::atomic<int> parts;
    Op op, gone;

    Connection(Worker &w, int parts_) : worker(w), parts(parts_)
    {
        HR(w.adapter->CreateConnector(IID_IND2Connector, w.file, (void **)&connector), ND_SUCCESS);
    }
    virtual void last() = 0;
    void part()
    {
        if (--parts == 0) {
            qp->Release();
            CHECK_EQ(connector->Release(), 0);
            last();
            delete this;
        }
    }
    void must(BOOL done)
    {
        if (!done)
            HR(connector->GetOverlappedResult(&op, FALSE), ND_SUCCESS);
    }
    void on_send(HRESULT status) override
    {
        HR(status, ND_SUCCESS);
        part();
    }
};

struct Client : Worker {
    sockaddr_in to;
    std::atomic<int> left;
    std::atomic<int> alive{AT_A_TIME};
    Client(USHORT at, int count) : to(address("127.0.0.1", at)), left(count) {}
    void next();
};
struct Outgoing : Connection {
    Client &client;
    explicit Outgoing(Client &c) : Connection(c, 3), client(c)
    {
        qp = c.pair(this);
        const sockaddr_in from = address("127.0.0.1", 0);
        HR(connector->Bind(sa(from), sizeof from), ND_SUCCESS);
        c.call(op, [this](BOOL done) { connected(done); });
        HR(connector->Connect(qp, sa(c.to), sizeof c.to, 0, 0, nullptr, 0, &op), ND_PENDING);
    }
    void connected(BOOL done)
    {
        must(done);
        client.call(op, [this](BOOL ok) {
            must(ok);
            client.send(qp, this);
        });
        HR(connector->CompleteConnect(&op), ND_PENDING);
    }
    void on_receive(HRESULT status) override
    {
        HR(status, ND_SUCCESS);
        client.call(gone, [this](BOOL done) {
            CHECK(done);
            part();
        });
        HR(connector->Disconnect(&gone), ND_PENDING);
        part();
    }
    void last() override { client.next(); }
};
void Client::next()
{
    if (left.fetch_sub(1) > 0)
        new Outgoing(*this);
    else if (--alive == 0)
        stop();
}

struct Server : Worker {
    std::atomic<int> left;
    explicit Server(int count) : left(count) {}
    void take();
};
struct Incoming : Connection {
    Server &server;
    explicit Incoming(Server &s) : Connection(s, 4), server(s)
    {
        s.call(op, [this](BOOL done) { asked(done); });
        HR(s.listener->GetConnectionRequest(connector, &op), ND_PENDING);
    }
    void asked(BOOL done)
    {
        if (!done) { // the listener is cancelled, at the end
            HR(connector->GetOverlappedResult(&op, FALSE), ND_CANCELED);
            connector->Release();
            delete this;
            return;
        }
        server.take(); // the next one
        qp = server.pair(this);
        server.call(op, [this](BOOL ok) {
            must(ok);
            server.call(gone, [this](BOOL ended) { over(ended); });
            HR(connector->NotifyDisconnect(&gone), ND_PENDING);
            part();
        });
        HR(connector->Accept(qp, 0, 0, nullptr, 0, &op), ND_PENDING);
    }
    void on_receive(HRESULT status) override
    {
        HR(status, ND_SUCCESS);
        server.send(qp, this); // allowed from the first message on (ND2 4.1)
        part();
    }
    void over(BOOL ended)
    {
        CHECK(ended);
        server.call(gone, [this](BOOL done) {
            CHECK(done);
            part();
        });
        HR(connector->Disconnect(&gone), ND_PENDING);
    }
    void last() override
    {
        if (--server.left == 0)
            server.stop();
    }
};
void Server::take() { new Incoming(*this); }

int main()
{
    const char *asked = std::getenv("TRANSOM_CONNECTIONS");
    const int count = asked ? std::atoi(asked) : 3000;
    const auto start = std::chrono::steady_clock::now();
    two(
        [&](Link &link) {
            time_limit(1000);
            {
                Server s(count);
                link.to_client.put(s.listen());
                for (int i = 0; i < AT_A_TIME; ++i)
                    s.take();
                s.run();
                HR(s.listener->CancelOverlappedRequests(), ND_SUCCESS);
                s.sends->CancelOverlappedRequests();
                s.receives->CancelOverlappedRequests();
                s.stop();
                s.run(); // what was cancelled is ahead of the ends
            }
        },
        [&](Link &link) {
            time_limit(1000);
            Client c(link.to_client.get<USHORT>(), count);
            for (int i = 0; i < AT_A_TIME; ++i)
                c.next();
            c.run();
            c.sends->CancelOverlappedRequests();
            c.receives->CancelOverlappedRequests();
            c.stop();
            c.run();
        });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%d connections, none refused: %.0f a second\n", count, count / seconds);
    return 0;
}
