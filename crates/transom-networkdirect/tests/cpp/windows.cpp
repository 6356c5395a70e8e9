// ND2 5.5 (b) and (c) through the interface: what a Bind may ask for, and what a peer may do through a window.
#include "nd_scene.h"

constexpr HRESULT OK = ND_SUCCESS, AV = ND_ACCESS_VIOLATION;
constexpr ULONG R = ND_OP_FLAG_ALLOW_READ, W = ND_OP_FLAG_ALLOW_WRITE;
constexpr UINT32 BYTES = 4096, BASE = 1024, LENGTH = 512; // a region, and the window on it

static void binds()
{
    static const ULONG asked[] = {0, R, W, R | W};
    static const struct {
        ULONG region;
        HRESULT bind[ARRAYSIZE(asked)];
    } table[] = {
        {0x0, {OK, OK, AV, AV}}, {0x2, {OK, OK, AV, AV}}, {0x8, {OK, OK, AV, AV}}, {0xA, {OK, OK, AV, AV}},
        {0x1, {OK, OK, OK, OK}}, {0x3, {OK, OK, OK, OK}}, {0x5, {OK, OK, OK, OK}}, {0x7, {OK, OK, OK, OK}},
        {0x9, {OK, OK, OK, OK}}, {0x80000000, {OK, OK, AV, AV}}, {0x80000001, {OK, OK, OK, OK}},
    };
    Ends e;
    e.connect();
    Side &s = e.passive;
    std::vector<char> memory(BYTES);
    for (const auto &row : table)
        for (size_t i = 0; i < ARRAYSIZE(asked); ++i) {
            IND2MemoryRegion *mr = s.region(memory.data(), BYTES, row.region);
            IND2MemoryWindow *mw = s.window();
            HR(s.qp->Bind(mw, mr, mw, memory.data() + BASE, LENGTH, asked[i]), row.bind[i]);
            if (row.bind[i] == OK) {
                s.expect(OK, mw, Nd2RequestTypeBind);
                HR(mr->Deregister(&s.ov), ND_DEVICE_BUSY); // also by a window without rights
                HR(s.qp->Invalidate(mr, mw, 0), OK);
                s.expect(OK, mr, Nd2RequestTypeInvalidate);
            }
            HR(s.wait(mr, mr->Deregister(&s.ov)), OK); // a refused Bind leaves nothing bound
        }
    HR(s.qp->Receive(nullptr, nullptr, 0), OK); // and the connection as it was
    HR(e.active.qp->Send(nullptr, nullptr, 0, 0), OK);
    HR(s.result().Status, OK);
}

enum Where { Inside, Outside, OtherPair, Invalidated, Unbound };

// An access of the active side to a window of the passive side; how it ends.
static HRESULT access(Ends &e, ULONG rights, bool write, Where where)
{
    e.connect();
    Side &owner = e.passive, &peer = e.active;
    std::vector<char> memory(BYTES, 'o'), own(BYTES, 'p');
    IND2MemoryRegion *mr = owner.region(memory.data(), BYTES, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
    IND2MemoryRegion *sink = peer.region(own.data(), BYTES, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
    IND2MemoryWindow *mw = owner.window();
    if (where != Unbound) {
        HR(owner.qp->Bind(nullptr, mr, mw, memory.data() + BASE, LENGTH, rights), OK);
        owner.expect(OK, nullptr, Nd2RequestTypeBind);
    }
    if (where == Invalidated) {
        HR(owner.qp->Invalidate(nullptr, mw, 0), OK);
        owner.expect(OK, nullptr, Nd2RequestTypeInvalidate);
    }
    if (where == OtherPair) {
        e.keep();
        e.connect(); // of the same adapters
    }
    HR(owner.qp->Receive(mw, nullptr, 0), OK);
    const UINT64 at = (UINT64)memory.data() + BASE + (where == Outside ? LENGTH - 7 : 0);
    const ND2_SGE sge = peer.sge(sink, own.data(), 8);
    HR(write ? peer.qp->Write(mr, &sge, 1, at, mw->GetRemoteToken(), 0)
             : peer.qp->Read(mr, &sge, 1, at, mw->GetRemoteToken(), 0), OK); // never inline
    const ND2_RESULT r = peer.result();
    CHECK(r.RequestContext == mr && r.RequestType == (write ? Nd2RequestTypeWrite : Nd2RequestTypeRead));
    const bool moved = r.Status == OK;
    if (!moved)
        owner.expect(ND_CANCELED, mw, Nd2RequestTypeReceive);
    for (UINT32 i = 0; i < BYTES; ++i) {
        const bool here = moved && i >= BASE && i < BASE + 8;
        CHECK_EQ(memory[i], write && here ? 'p' : 'o');
        CHECK_EQ(own[i], !write && moved && i < 8 ? 'o' : 'p');
    }
    HR(peer.disconnect(), OK); // also after a violation (ND2 4.7.2)
    Ends::drop(owner.qp);
    for (Side *side : {&owner, &peer}) {
        for (IUnknown *one : side->owned)
            one->Release();
        side->owned.clear();
    }
    return r.Status;
}

static void accesses()
{
    static const struct {
        const char *name;
        Where where;
        bool write;
    } columns[] = {
        {"Read inside", Inside, false}, {"Write inside", Inside, true}, {"Read too far", Outside, false},
        {"Write too far", Outside, true}, {"Read, other pair", OtherPair, false}, {"Write, other pair", OtherPair, true},
        {"Read after Invalidate", Invalidated, false}, {"Write after Invalidate", Invalidated, true},
        {"Read before Bind", Unbound, false}, {"Write before Bind", Unbound, true}};
    static const struct {
        ULONG rights;
        HRESULT ends[ARRAYSIZE(columns)];
    } table[] = {
        {0,     {AV, AV, AV, AV, AV, AV, AV, AV, AV, AV}},
        {R,     {OK, AV, AV, AV, AV, AV, AV, AV, AV, AV}},
        {W,     {AV, OK, AV, AV, AV, AV, AV, AV, AV, AV}},
        {R | W, {OK, OK, AV, AV, AV, AV, AV, AV, AV, AV}},
    };
    Ends e;
    for (const auto &row : table)
        for (size_t i = 0; i < ARRAYSIZE(columns); ++i) {
            const HRESULT got = access(e, row.rights, columns[i].write, columns[i].where);
            if (got != row.ends[i])
                std::fprintf(stderr, "%s with rights %#x\n", columns[i].name, (unsigned)row.rights);
            HR(got, row.ends[i]);
        }
}

// ND2 5.6: Deregister against Bind, Invalidate and the end of the connection.
static void deregister()
{
    static const struct {
        const char *before; // b: Bind, silent; i: Invalidate; c: both completed; d: Disconnect; r: the window is released
        HRESULT result;
    } table[] = {
        {"b", ND_DEVICE_BUSY}, {"bc", ND_DEVICE_BUSY}, {"bcic", OK}, {"bcd", OK}, {"bd", OK}, {"bcr", OK}};
    Ends e;
    char memory[64];
    for (const auto &row : table) {
        e.connect();
        Side &s = e.passive;
        IND2MemoryRegion *mr = s.region(memory, sizeof memory, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
        IND2MemoryWindow *mw = s.window();
        for (const char *c = row.before; *c; ++c) {
            if (*c == 'b')
                HR(s.qp->Bind(nullptr, mr, mw, memory, sizeof memory, W | ND_OP_FLAG_SILENT_SUCCESS), OK);
            else if (*c == 'i')
                HR(s.qp->Invalidate(nullptr, mw, ND_OP_FLAG_SILENT_SUCCESS), OK);
            else if (*c == 'd')
                HR(s.disconnect(), OK);
            else if (*c == 'r') {
                s.owned.pop_back();
                CHECK_EQ(mw->Release(), 0);
            } else { // a request behind it has completed
                HR(s.qp->Write(&s, nullptr, 0, 0, 0, 0), OK);
                s.expect(OK, &s, Nd2RequestTypeWrite);
            }
        }
        HR(s.wait(mr, mr->Deregister(&s.ov)), row.result);
    }
}

int main(int argc, char **argv)
{
    time_limit(300);
    const std::string which = argc > 1 ? argv[1] : "";
    if (which == "binds")
        binds();
    else if (which == "accesses")
        accesses();
    else if (which == "deregister")
        deregister();
    else
        CHECK(!"a case");
    CHECK_EQ(transom_nd_live_objects(), 0);
    return 0;
}
