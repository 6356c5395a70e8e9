// Registration latency, and rate with 1 to 8 threads on one completion port. A thread may dequeue the packet of
// another's region, and asks its own for the result (ND2 2.3 rule 7). TRANSOM_REGISTRATIONS=10000 for more of them.
#include "nd_test.h"

#include <cstdlib>
#include <thread>

constexpr ULONG SIZES[] = {1, 4096, 65536, 4 << 20};

static void at_once(IND2MemoryRegion *mr, HRESULT hr, OVERLAPPED *ov)
{
    HR(hr, ND_PENDING);
    HR(mr->GetOverlappedResult(ov, TRUE), ND_SUCCESS);
}

// A region, again and again.
static void latency(Side &s, char *memory, int count)
{
    IND2MemoryRegion *mr = nullptr;
    HR(s.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, s.file, (void **)&mr), ND_SUCCESS);
    const HANDLE event = CreateEvent(nullptr, FALSE, FALSE, nullptr);
    OVERLAPPED ov = {};
    ov.hEvent = (HANDLE)((ULONG_PTR)event | 1); // no packets
    for (ULONG size : SIZES) {
        UINT32 last = 0;
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < count; ++i) {
            at_once(mr, mr->Register(memory, size, ND_MR_FLAG_ALLOW_LOCAL_WRITE, &ov), &ov);
            CHECK(mr->GetLocalToken() != last); // never the token of the one before
            last = mr->GetLocalToken();
            at_once(mr, mr->Deregister(&ov), &ov);
        }
        const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
        std::printf("%8u bytes: register and deregister in %.2f us\n", (unsigned)size, us / count);
    }
    CHECK_EQ(mr->Release(), 0);
    CloseHandle(event);
}

// `count` regions per thread on the same buffer, all registered at a time.
static void rate(Side &s, HANDLE port, int threads, char *memory, ULONG size, int count)
{
    std::atomic<int> packets{0};
    const auto one_thread = [&] {
        std::vector<IND2MemoryRegion *> regions(count);
        std::vector<OVERLAPPED> ov(count, OVERLAPPED{});
        const auto take = [&](IND2MemoryRegion *mine) {
            DWORD bytes;
            ULONG_PTR key;
            OVERLAPPED *got = nullptr;
            CHECK(GetQueuedCompletionStatus(port, &bytes, &key, &got, INFINITE));
            HR(mine->GetOverlappedResult(got, FALSE), ND_SUCCESS); // whosever it is
            ++packets;
        };
        for (int i = 0; i < count; ++i) {
            HR(s.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, s.file, (void **)&regions[i]), ND_SUCCESS);
            HR(regions[i]->Register(memory, size, ND_MR_FLAG_ALLOW_LOCAL_WRITE, &ov[i]), ND_PENDING);
            take(regions[i]);
        }
        for (int i = 0; i < count; ++i) {
            while (ov[i].Internal == (ULONG_PTR)ND_PENDING) // dequeued by another thread, perhaps not yet
                Sleep(0);
            HR(regions[i]->Deregister(&ov[i]), ND_PENDING);
            take(regions[i]);
        }
        // Every packet has been dequeued by somebody before any OVERLAPPED goes.
        while (packets < 2 * count * threads)
            Sleep(0);
        for (IND2MemoryRegion *one : regions)
            CHECK_EQ(one->Release(), 0);
    };
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i)
        all.emplace_back(one_thread);
    for (std::thread &one : all)
        one.join();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%d threads, %8u bytes: %.0f registrations a second\n", threads, (unsigned)size, threads * count / seconds);
    DWORD bytes;
    ULONG_PTR key;
    OVERLAPPED *got = nullptr;
    CHECK(!GetQueuedCompletionStatus(port, &bytes, &key, &got, 0) && !got); // one packet each, no more
}

int main()
{
    time_limit(600);
    const char *asked = std::getenv("TRANSOM_REGISTRATIONS");
    const int count = asked ? std::atoi(asked) : 200;
    {
        Side s;
        const HANDLE port = CreateIoCompletionPort(s.file, nullptr, 0, 8);
        std::vector<char> memory(4 << 20);
        latency(s, memory.data(), count);
        for (int threads = 1; threads <= 8; ++threads)
            for (ULONG size : SIZES)
                rate(s, port, threads, memory.data(), size, count);
        CloseHandle(port);
    }
    CHECK_EQ(transom_nd_live_objects(), 0);
    return 0;
}
