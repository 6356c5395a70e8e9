// Random sequences of calls on version 1's and version 2's objects, connected to each other in every
// combination: valid calls, and the misuse that docs/networkdirect.md lists. Whatever is called when:
// nothing crashes, every request that was accepted completes exactly once (a silent one only if it
// fails), nothing completes that was not accepted, and no object is left.
//
// TRANSOM_SEED=s TRANSOM_SEQUENCES=n: n sequences from seed s on. A failure prints its own.
#include "nd1_test.h"


#include <unordered_map>

struct Random {
    UINT64 state;
    UINT64 next()
    {
        UINT64 z = (state += 0x9E3779B97F4A7C15ull); // splitmix64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        return z ^ (z >> 31);
    }
    UINT64 below(UINT64 limit) { return next() % limit; }
    bool one_in(UINT64 n) { return below(n) == 0; }
};

struct Record {
    ND_RESULT result = {};
    bool silent = false, accepted = false, window = false;
    int completions = 0;
};

constexpr SIZE_T BYTES = 65536, DEPTH = 12;

// An adapter of either version, with a buffer and windows.
struct Owner {
    virtual ~Owner() {}
    virtual bool old() const = 0;
};
struct OldOwner : Owner {
    Node node;
    Listening listening{node};
    bool old() const override { return true; }
};
struct NewOwner : Owner {
    Side side;
    std::vector<char> buffer = std::vector<char>(BYTES);
    IND2MemoryRegion *mr = nullptr;
    USHORT port = 0;
    NewOwner()
    {
        mr = side.region(buffer.data(), BYTES, ND_MR_FLAG_ALLOW_LOCAL_WRITE | ND_MR_FLAG_RDMA_READ_SINK);
        port = side.listen();
    }
    bool old() const override { return false; }
};

struct Fuzz {
    Random random;
    std::vector<ND_MW_DESCRIPTOR> known; // windows of anybody, live and dead
    explicit Fuzz(UINT64 seed) : random{seed} {}

    // An end of a connection.
    struct Party {
        Fuzz &fuzz;
        OldOwner *one = nullptr;
        NewOwner *two = nullptr;
        INDCompletionQueue *in = nullptr, *out = nullptr;
        INDConnector *connector1 = nullptr;
        INDEndpoint *endpoint = nullptr;
        IND2CompletionQueue *cq = nullptr;
        IND2Connector *connector2 = nullptr;
        IND2QueuePair *qp = nullptr;
        Request ov;
        std::vector<std::unique_ptr<Request>> pending; // Notify and NotifyDisconnect
        std::unordered_map<void *, std::unique_ptr<Record>> records;
        std::vector<std::pair<INDMemoryWindow *, Record *>> windows1;
        std::vector<IND2MemoryWindow *> windows2;

        Party(Fuzz &f, Owner &owner) : fuzz(f)
        {
            if (owner.old()) {
                one = static_cast<OldOwner *>(&owner);
                in = one->node.queue(2 * DEPTH);
                out = fuzz.random.one_in(2) ? in : one->node.queue(2 * DEPTH);
                if (in == out)
                    in->AddRef();
                connector1 = one->node.connector();
            } else {
                two = static_cast<NewOwner *>(&owner);
                // A place is free when a request completes, so that a queue that nobody empties has to
                // hold them all; version 1 keeps places until then (ND1 EP-8), and 2 * DEPTH will do.
                HR(two->side.adapter->CreateCompletionQueue(IID_IND2CompletionQueue, two->side.file, 4096, 0, 0, (void **)&cq), ND_SUCCESS);
                HR(two->side.adapter->CreateConnector(IID_IND2Connector, two->side.file, (void **)&connector2), ND_SUCCESS);
            }
        }
        char *buffer() { return one ? one->node.buffer : two->buffer.data(); }
        void make_endpoint()
        {
            if (one)
                HR(connector1->CreateEndpoint(in, out, DEPTH, DEPTH, 4, 4, 4, 4, nullptr, &endpoint), ND_SUCCESS);
            else
                HR(two->side.adapter->CreateQueuePair(IID_IND2QueuePair, cq, cq, nullptr, DEPTH, DEPTH, 4, 4, 256, (void **)&qp), ND_SUCCESS);
        }
        HRESULT wait(HRESULT hr)
        {
            if (hr != ND_PENDING)
                return hr;
            SIZE_T bytes;
            return one ? connector1->GetOverlappedResult(&ov, &bytes, TRUE) : connector2->GetOverlappedResult(&ov, TRUE);
        }
        Record *record(bool silent)
        {
            auto made = std::make_unique<Record>();
            made->silent = silent;
            Record *r = made.get();
            records.emplace(r, std::move(made));
            return r;
        }
        void posted(Record *r, HRESULT hr)
        {
            CHECK(hr != ND_PENDING && hr != ND_INTERNAL_ERROR);
            if (hr == ND_SUCCESS)
                r->accepted = true;
            else
                records.erase(r);
        }
        void completed(void *which, HRESULT status)
        {
            const auto found = records.find(which);
            CHECK(found != records.end());
            Record &r = *found->second;
            if (r.window) {
                HR(status, ND_SUCCESS);
                return;
            }
            CHECK(r.accepted);
            CHECK_EQ(++r.completions, 1);
            CHECK(!r.silent || status != ND_SUCCESS);
        }
        SIZE_T poll(SIZE_T most)
        {
            SIZE_T n = 0;
            if (one)
                for (INDCompletionQueue *queue : {in, out}) {
                    ND_RESULT *got[8];
                    const SIZE_T count = queue->GetResults(got, most);
                    for (SIZE_T i = 0; i < count; i++)
                        completed(got[i], got[i]->Status); // the record begins with it
                    n += count;
                }
            else {
                ND2_RESULT got[8];
                const ULONG count = cq->GetResults(got, (ULONG)most);
                for (ULONG i = 0; i < count; i++)
                    completed(got[i].RequestContext, got[i].Status);
                n = count;
            }
            return n;
        }
        // The end: everything is told, and told once.
        void finish()
        {
            Random &random = fuzz.random;
            if (random.one_in(2))
                wait(one ? connector1->Disconnect(&ov) : connector2->Disconnect(&ov));
            IUnknown *both[2] = {one ? (IUnknown *)endpoint : qp, one ? (IUnknown *)connector1 : connector2};
            const int first = (int)random.below(2);
            for (auto &one_window : windows1)
                if (random.one_in(2)) {
                    CHECK_EQ(one_window.first->Release(), 0);
                    one_window.first = nullptr;
                }
            CHECK_EQ(both[first]->Release(), 0);
            CHECK_EQ(both[1 - first]->Release(), 0);
            while (poll(8) != 0)
                ;
            for (const auto &one_record : records)
                CHECK(one_record.second->window || one_record.second->silent || one_record.second->completions == 1);
            for (INDOverlapped *queue : {(INDOverlapped *)in, (INDOverlapped *)out})
                if (queue)
                    HR(queue->CancelOverlappedRequests(), ND_SUCCESS);
            if (cq)
                HR(cq->CancelOverlappedRequests(), ND_SUCCESS);
            // Another thread may be about to say so: that the peer had left, say. The alarm limits it.
            for (const auto &request : pending)
                while (reinterpret_cast<std::atomic<ULONG_PTR> *>(&request->Internal)->load() == (ULONG_PTR)ND_PENDING)
                    std::this_thread::yield();
            for (const auto &[window, invalidated] : windows1)
                if (window)
                    CHECK_EQ(window->Release(), 0);
            for (IND2MemoryWindow *window : windows2)
                CHECK_EQ(window->Release(), 0);
            if (one) {
                in->Release();
                out->Release();
            } else {
                CHECK_EQ(cq->Release(), 0);
            }
        }

        // ---- one random call ------------------------------------------------------------------
        DWORD flags()
        {
            static const DWORD some[] = {0, 0, 0, SILENT, FENCE, SOLICIT, SILENT | FENCE, MAY_READ, 0x40, 0x80000000};
            return some[fuzz.random.below(10)];
        }
        ND_MW_DESCRIPTOR descriptor()
        {
            Random &random = fuzz.random;
            ND_MW_DESCRIPTOR d = {};
            if (!fuzz.known.empty() && !random.one_in(16))
                d = fuzz.known[fuzz.known.size() - 1 - random.below(std::min<SIZE_T>(fuzz.known.size(), 4))];
            if (random.one_in(32))
                d.Token ^= 1u << random.below(32);
            return d;
        }
        void step();
        void call1();
        void call2();
    };
};

void Fuzz::Party::call1()
{
    Random &random = fuzz.random;
    Node &node = one->node;
    ND_SGE list[20];
    SIZE_T count = random.below(4);
    if (random.one_in(32))
        count = 20;
    for (SIZE_T i = 0; i < count; i++) {
        list[i] = node.sge(random.below(BYTES), random.below(2000));
        if (random.one_in(8))
            list[i].hMr = nullptr;
        if (random.one_in(64))
            list[i].hMr = (ND_MR_HANDLE)random.next();
        if (random.one_in(64))
            list[i].Length = random.next() >> random.below(64);
    }
    const ND_SGE *sgl = random.one_in(64) ? nullptr : list;
    const DWORD f = flags();
    const ND_MW_DESCRIPTOR d = descriptor();
    Record *r = record(f & SILENT);
    ND_RESULT *result = random.one_in(64) ? nullptr : &r->result;
    switch (random.below(12)) {
    case 0:
        return posted(r, endpoint->Send(result, sgl, count, f));
    case 1:
        return posted(r, endpoint->SendAndInvalidate(result, sgl, count, random.one_in(64) ? nullptr : &d, f));
    case 2:
    case 3:
    case 4:
        r->silent = false;
        return posted(r, endpoint->Receive(result, sgl, count));
    case 5:
        return posted(r, endpoint->Read(result, sgl, count, &d, random.below(3000), f));
    case 6:
    case 7:
        return posted(r, endpoint->Write(result, sgl, count, &d, random.one_in(32) ? random.next() : random.below(3000), f));
    case 8:
    case 9: {
        INDMemoryWindow *mw = nullptr;
        if (windows1.size() < 4 || random.one_in(8)) {
            Record *invalidated = record(false);
            invalidated->window = true;
            mw = node.window(invalidated->result);
            windows1.emplace_back(mw, invalidated);
        } else {
            mw = windows1[random.below(windows1.size())].first;
        }
        ND_MW_DESCRIPTOR made;
        IUnknown *const wrong[] = {endpoint, in, connector1};
        if (random.one_in(32))
            mw = reinterpret_cast<INDMemoryWindow *>(wrong[random.below(3)]);
        const HRESULT hr = endpoint->Bind(result, random.one_in(64) ? (ND_MR_HANDLE)9 : node.mr, mw, node.buffer + random.below(BYTES) - random.below(8),
                                          random.one_in(16) ? random.next() : random.below(5000), f | (DWORD)(random.below(4) << 3), &made);
        if (hr == ND_SUCCESS)
            fuzz.known.push_back(made);
        return posted(r, hr);
    }
    case 10:
        if (!windows1.empty())
            return posted(r, endpoint->Invalidate(result, windows1[random.below(windows1.size())].first, f));
        break;
    default:
        if (!windows1.empty() && random.one_in(4)) {
            const SIZE_T which = random.below(windows1.size());
            CHECK_EQ(windows1[which].first->Release(), 0); // bound or not; its record may still be on its way
            windows1.erase(windows1.begin() + (long)which);
        }
        random.one_in(2) ? endpoint->StartRequestBatch() : endpoint->SubmitRequestBatch();
    }
    records.erase(r);
}

void Fuzz::Party::call2()
{
    Random &random = fuzz.random;
    ND2_SGE list[20];
    ULONG count = (ULONG)random.below(4);
    if (random.one_in(32))
        count = 20;
    const UINT32 token = two->mr->GetLocalToken();
    for (ULONG i = 0; i < count; i++) {
        list[i] = ND2_SGE{two->buffer.data() + random.below(BYTES), (ULONG)random.below(2000), token};
        if (random.one_in(64))
            list[i].MemoryRegionToken = (UINT32)random.next();
        if (random.one_in(64))
            list[i].BufferLength = (ULONG)random.next();
    }
    const ND2_SGE *sgl = random.one_in(64) ? nullptr : list;
    DWORD f = flags();
    if (random.one_in(8))
        f |= ND_OP_FLAG_INLINE;
    for (ULONG i = 0; i < count && f & ND_OP_FLAG_INLINE; i++)
        list[i].BufferLength %= 64; // bytes of ours: they are copied now
    const ND_MW_DESCRIPTOR d = descriptor();
    const UINT64 at = be64toh(d.Base) + random.below(3000);
    Record *r = record(f & SILENT);
    switch (random.below(11)) {
    case 0:
    case 1:
        return posted(r, qp->Send(r, sgl, count, f));
    case 2:
    case 3:
    case 4:
        r->silent = false;
        return posted(r, qp->Receive(r, sgl, count));
    case 5:
        return posted(r, qp->Read(r, sgl, count, at, d.Token, f));
    case 6:
        return posted(r, qp->Write(r, sgl, count, at, d.Token, f));
    case 7:
    case 8: {
        IND2MemoryWindow *mw = nullptr;
        if (windows2.size() < 4 || random.one_in(8)) {
            HR(two->side.adapter->CreateMemoryWindow(IID_IND2MemoryWindow, (void **)&mw), ND_SUCCESS);
            windows2.push_back(mw);
        } else {
            mw = windows2[random.below(windows2.size())];
        }
        IUnknown *const any[] = {two->mr, two->mr, two->mr, two->mr, two->mr, two->mr, nullptr, qp, cq};
        char *const base = two->buffer.data() + random.below(BYTES);
        const SIZE_T size = random.below(5000);
        const HRESULT hr = qp->Bind(r, any[random.below(9)], mw, base, size, (f & ~0x40u) | (DWORD)(random.below(4) << 3));
        if (hr == ND_SUCCESS)
            fuzz.known.push_back(ND_MW_DESCRIPTOR{htobe64((ULONG_PTR)base), htobe64(size), mw->GetRemoteToken()});
        return posted(r, hr);
    }
    case 9:
        if (!windows2.empty())
            return posted(r, qp->Invalidate(r, random.one_in(16) ? (IUnknown *)cq : windows2[random.below(windows2.size())], f));
        break;
    default:
        if (!windows2.empty() && random.one_in(4)) {
            const SIZE_T which = random.below(windows2.size());
            CHECK_EQ(windows2[which]->Release(), 0);
            windows2.erase(windows2.begin() + (long)which);
        }
    }
    records.erase(r);
}

void Fuzz::Party::step()
{
    Random &random = fuzz.random;
    if (random.below(10) < 6)
        return one ? call1() : call2();
    switch (random.below(12)) {
    case 0:
        if (random.one_in(12))
            CHECK_EQ(one ? endpoint->Flush() : qp->Flush(), ND_SUCCESS);
        break;
    case 1:
        if (random.one_in(12))
            wait(one ? connector1->Disconnect(&ov) : connector2->Disconnect(&ov));
        break;
    case 2: {
        auto request = std::make_unique<Request>();
        const DWORD type = (DWORD)random.below(4);
        const HRESULT hr = one ? in->Notify(type, request.get()) : cq->Notify(type, request.get());
        CHECK_EQ(hr, type == 3 ? ND_INVALID_PARAMETER_1 : ND_PENDING);
        if (hr == ND_PENDING)
            pending.push_back(std::move(request));
        break;
    }
    case 3: {
        auto request = std::make_unique<Request>();
        const HRESULT hr = one ? connector1->NotifyDisconnect(request.get()) : connector2->NotifyDisconnect(request.get());
        if (hr == ND_PENDING)
            pending.push_back(std::move(request));
        break;
    }
    case 4: { // in no state that lets them through
        Request request;
        CHECK(FAILED(one ? connector1->CompleteConnect(&request) : connector2->CompleteConnect(&request)));
        CHECK(FAILED(one ? connector1->Reject(nullptr, 0) : connector2->Reject(nullptr, 0)));
        CHECK(FAILED(one ? connector1->Accept(endpoint, nullptr, 0, &request) : connector2->Accept(qp, 1, 1, nullptr, 0, &request)));
        break;
    }
    case 5: { // whatever it answers, a reference is given back
        void *asked = nullptr;
        static const GUID every[] = {IID_IUnknown, IID_INDEndpoint, IID_IND2QueuePair, IID_ITransomExplain, IID_INDOverlapped};
        IUnknown *object = one ? (IUnknown *)endpoint : qp;
        if (object->QueryInterface(every[random.below(5)], &asked) == S_OK)
            static_cast<IUnknown *>(asked)->Release();
        break;
    }
    case 6:
        HR(one ? in->CancelOverlappedRequests() : cq->CancelOverlappedRequests(), ND_SUCCESS);
        break;
    default:
        poll(1 + random.below(8));
    }
}

// Connect `active` with `passive`.
static void connect(Fuzz::Party &active, Fuzz::Party &passive)
{
    if (passive.one)
        HR(passive.one->listening.listen->GetConnectionRequest(passive.connector1, &passive.ov), ND_PENDING);
    else
        HR(passive.two->side.listener->GetConnectionRequest(passive.connector2, &passive.ov), ND_PENDING);
    const sockaddr_in from = address("127.0.0.1", 0), to = address("127.0.0.1", passive.one ? passive.one->listening.port : passive.two->port);
    active.make_endpoint();
    if (active.one)
        HR(active.connector1->Connect(active.endpoint, sa(to), sizeof to, 6, 0, nullptr, 0, &active.ov), ND_PENDING);
    else {
        HR(active.connector2->Bind(sa(from), sizeof from), ND_SUCCESS);
        HR(active.connector2->Connect(active.qp, sa(to), sizeof to, 4, 4, nullptr, 0, &active.ov), ND_PENDING);
    }
    HR(passive.wait(ND_PENDING), ND_SUCCESS);
    passive.make_endpoint();
    HR(passive.one ? passive.connector1->Accept(passive.endpoint, nullptr, 0, &passive.ov)
                   : passive.connector2->Accept(passive.qp, 4, 4, nullptr, 0, &passive.ov),
       ND_PENDING);
    HR(active.wait(ND_PENDING), ND_SUCCESS);
    HR(active.wait(active.one ? active.connector1->CompleteConnect(&active.ov) : active.connector2->CompleteConnect(&active.ov)), ND_SUCCESS);
    HR(passive.wait(ND_PENDING), ND_SUCCESS);
}

static void sequence(UINT64 seed)
{
    Fuzz fuzz(seed);
    std::unique_ptr<Owner> owners[2];
    for (auto &owner : owners)
        owner = fuzz.random.one_in(2) ? std::unique_ptr<Owner>(new OldOwner) : std::unique_ptr<Owner>(new NewOwner);
    for (int links = 0; links < 4; links++) {
        Fuzz::Party a(fuzz, *owners[0]), b(fuzz, *owners[1]);
        connect(a, b);
        const UINT64 steps = 20 + fuzz.random.below(100);
        for (UINT64 i = 0; i < steps; i++)
            (fuzz.random.one_in(2) ? a : b).step();
        a.finish();
        b.finish();
    }
    for (auto &owner : owners)
        owner.reset();
    CHECK_EQ(transom_nd_live_objects(), 0);
}

int main()
{
    const char *asked = std::getenv("TRANSOM_SEED"), *many = std::getenv("TRANSOM_SEQUENCES");
    const UINT64 first = asked ? std::strtoull(asked, nullptr, 0) : 1, count = many ? std::strtoull(many, nullptr, 0) : 60;
    // The sequences run in a child, which tells each seed before it begins: whatever ends it, the seed is known.
    Link link;
    Child child(link, [&](Link &parent) {
        for (UINT64 i = 0; i < count; i++) {
            parent.to_server.put(first + i);
            time_limit(300);
            sequence(first + i);
        }
    });
    link.to_server.is_the_child_s();
    UINT64 now = first;
    while (link.to_server.read_all(&now, sizeof now))
        ;
    if (child.ends_well())
        return 0;
    std::fprintf(stderr, "replay with TRANSOM_SEED=%llu TRANSOM_SEQUENCES=1\n", (unsigned long long)now);
    return 1;
}
