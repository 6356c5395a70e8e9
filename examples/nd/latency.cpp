// Half a round trip of two Writes through IND2QueuePair, as `transom bench write-latency` measures it through the
// Rust API: each side Writes into the other's memory and watches the last byte of its own while it polls.
//
//   latency [--size BYTES] [--seconds S]      prints the median in nanoseconds
//
// examples/nd/latency-ratio runs the two in turns and prints the ratio.
#include <ndsupport.h>

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static void must(HRESULT hr, const char *what)
{
    if (hr != ND_SUCCESS) {
        std::fprintf(stderr, "%s: %08x\n", what, (unsigned)hr);
        std::exit(1);
    }
}
#define MUST(call) must((call), #call)

// A processor for each process: two that spin on one would measure the scheduler.
static void sit(int seat)
{
    cpu_set_t allowed, mine;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2)
        return;
    CPU_ZERO(&mine);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &allowed) && seat-- == 0) {
            CPU_SET(cpu, &mine);
            sched_setaffinity(0, sizeof mine, &mine);
            return;
        }
}

struct Grant {
    UINT64 address;
    UINT32 token;
};

struct End {
    IND2Adapter *adapter;
    IND2CompletionQueue *queue;
    IND2QueuePair *pair;
    IND2Connector *connector;
    IND2MemoryRegion *lent, *own;
    IND2MemoryWindow *window;
    HANDLE file;
    OVERLAPPED ov = {};
    std::vector<unsigned char> theirs_to_write, ours, message = std::vector<unsigned char>(sizeof(Grant));
    IND2MemoryRegion *mail;
    Grant peer;

    HRESULT wait(IND2Overlapped *object, HRESULT hr) { return hr == ND_PENDING ? object->GetOverlappedResult(&ov, TRUE) : hr; }
    IND2MemoryRegion *region(std::vector<unsigned char> &bytes)
    {
        IND2MemoryRegion *made;
        MUST(adapter->CreateMemoryRegion(IID_IND2MemoryRegion, file, (void **)&made));
        MUST(wait(made, made->Register(bytes.data(), bytes.size(), ND_MR_FLAG_ALLOW_LOCAL_WRITE, &ov)));
        return made;
    }
    End(const sockaddr_in &at, size_t size) : theirs_to_write(size), ours(size)
    {
        MUST(NdStartup());
        MUST(NdOpenAdapter(IID_IND2Adapter, (const sockaddr *)&at, sizeof at, (void **)&adapter));
        MUST(adapter->CreateOverlappedFile(&file));
        ov.hEvent = CreateEvent(nullptr, FALSE, FALSE, nullptr);
        MUST(adapter->CreateCompletionQueue(IID_IND2CompletionQueue, file, 128, 0, 0, (void **)&queue));
        MUST(adapter->CreateQueuePair(IID_IND2QueuePair, queue, queue, nullptr, 8, 64, 1, 1, 0, (void **)&pair));
        MUST(adapter->CreateConnector(IID_IND2Connector, file, (void **)&connector));
        MUST(adapter->CreateMemoryWindow(IID_IND2MemoryWindow, (void **)&window));
        lent = region(theirs_to_write);
        own = region(ours);
        mail = region(message);
        const ND2_SGE all = {message.data(), (ULONG)message.size(), mail->GetLocalToken()};
        MUST(pair->Receive(&message, &all, 1));
    }
    // Lend memory to the other side, and learn what it lends.
    void meet()
    {
        MUST(pair->Bind(nullptr, lent, window, theirs_to_write.data(), theirs_to_write.size(), ND_OP_FLAG_ALLOW_WRITE));
        std::vector<unsigned char> out(sizeof(Grant));
        IND2MemoryRegion *source = region(out);
        const Grant grant = {(UINT64)theirs_to_write.data(), window->GetRemoteToken()};
        std::memcpy(out.data(), &grant, sizeof grant);
        const ND2_SGE sge = {out.data(), sizeof grant, source->GetLocalToken()};
        MUST(pair->Send(nullptr, &sge, 1, 0));
        for (int left = 3; left > 0;) { // the Bind, the Send, and the other side's
            ND2_RESULT r;
            if (queue->GetResults(&r, 1) == 0)
                continue;
            MUST(r.Status);
            --left;
        }
        std::memcpy(&peer, message.data(), sizeof peer);
        MUST(wait(source, source->Deregister(&ov)));
        source->Release();
    }
    unsigned char seen() { return __atomic_load_n(&theirs_to_write.back(), __ATOMIC_ACQUIRE); }
    void put(unsigned char turn)
    {
        __atomic_store_n(&ours.back(), turn, __ATOMIC_RELEASE);
        const ND2_SGE sge = {ours.data(), (ULONG)ours.size(), own->GetLocalToken()};
        MUST(pair->Write(nullptr, &sge, 1, peer.address, peer.token, 0));
    }
    unsigned char take(unsigned char turn)
    {
        for (;;) {
            const unsigned char now = seen();
            if (now == turn || now == 0xFF)
                return now;
            ND2_RESULT done[8];
            const ULONG count = queue->GetResults(done, 8);
            for (ULONG i = 0; i < count; ++i)
                MUST(done[i].Status);
        }
    }
};

int main(int argc, char **argv)
{
    size_t size = 8;
    double seconds = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!std::strcmp(argv[i], "--size"))
            size = std::strtoul(argv[i + 1], nullptr, 10);
        else if (!std::strcmp(argv[i], "--seconds"))
            seconds = std::atof(argv[i + 1]);
    }
    int port[2];
    if (size == 0 || pipe(port) != 0)
        return 2;
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const pid_t child = fork();
    if (child == 0) { // the side that measures
        sit(0);
        if (read(port[0], &at.sin_port, sizeof at.sin_port) != sizeof at.sin_port)
            return 2;
        End c(at, size);
        sockaddr_in from = at;
        from.sin_port = 0;
        MUST(c.connector->Bind((const sockaddr *)&from, sizeof from));
        MUST(c.wait(c.connector, c.connector->Connect(c.pair, (const sockaddr *)&at, sizeof at, 1, 1, nullptr, 0, &c.ov)));
        MUST(c.wait(c.connector, c.connector->CompleteConnect(&c.ov)));
        c.meet();
        std::vector<double> samples;
        unsigned char turn = 0;
        using Clock = std::chrono::steady_clock;
        const auto begin = Clock::now();
        for (bool last = false; !last;) {
            last = std::chrono::duration<double>(Clock::now() - begin).count() >= seconds;
            turn = last ? 0xFF : (turn + 1) % 0xFF;
            const auto sent = Clock::now();
            c.put(turn);
            if (c.take(turn) != turn)
                return 3;
            samples.push_back(std::chrono::duration<double, std::nano>(Clock::now() - sent).count() / 2);
        }
        samples.erase(samples.begin(), samples.begin() + samples.size() / 10); // getting warm
        std::nth_element(samples.begin(), samples.begin() + samples.size() / 2, samples.end());
        std::printf("%.1f\n", samples[samples.size() / 2]);
        std::fflush(stdout);
        _exit(0);
    }
    sit(1);
    End s(at, size);
    IND2Listener *listener;
    MUST(s.adapter->CreateListener(IID_IND2Listener, s.file, (void **)&listener));
    MUST(listener->Bind((const sockaddr *)&at, sizeof at));
    MUST(listener->Listen(0));
    ULONG length = sizeof at;
    MUST(listener->GetLocalAddress((sockaddr *)&at, &length));
    if (write(port[1], &at.sin_port, sizeof at.sin_port) != sizeof at.sin_port)
        return 2;
    MUST(s.wait(listener, listener->GetConnectionRequest(s.connector, &s.ov)));
    MUST(s.wait(s.connector, s.connector->Accept(s.pair, 1, 1, nullptr, 0, &s.ov)));
    s.meet();
    for (unsigned char turn = 0, seen = 0; seen != 0xFF;) {
        turn = (turn + 1) % 0xFF;
        seen = s.take(turn);
        s.put(seen);
    }
    int status = 1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
