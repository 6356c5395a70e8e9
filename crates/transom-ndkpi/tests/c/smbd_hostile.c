/* A peer of SMB Direct that does what no peer may: each case is one connection with frames that are wrong
 * in one way. Written on ndkpi.h and MS-SMBD alone; shares no code with examples/smbd.
 *
 *     smbd_hostile attack PORT       against a server, whose reasons it foretells, one a line
 *     smbd_hostile silent PORT       says nothing
 *     smbd_hostile mute PORT         says nothing once it has negotiated
 *     smbd_hostile serve CASE        a server that is wrong in its response; prints its port
 */
#include "consumer.h"

enum { ROOM = 8192, RECEIVES = 16 };

typedef struct {
    NDK_ADAPTER *adapter;
    NDK_PD *pd;
    NDK_CQ *receive_cq, *send_cq;
    NDK_QP *qp;
    NDK_MR *mr;
    NDK_CONNECTOR *connector;
    uint8_t *memory;
    ULONG next; /* receives arrive in the order of their posting */
    WAIT news, gone, accepted, connected;
} PEER;

static void on_news(PVOID context, NTSTATUS status) { wait_set(&((PEER *)context)->news, status, NULL); }
static void on_gone(PVOID context) { wait_set(&((PEER *)context)->gone, STATUS_SUCCESS, NULL); }
static void on_accepted(PVOID context, NTSTATUS status) { wait_set(&((PEER *)context)->accepted, status, NULL); }

static void post(PEER *p, ULONG slot) {
    NDK_SGE sge = { .VirtualAddress = p->memory + slot * ROOM, .Length = ROOM, .MemoryRegionToken = p->mr->Dispatch->NdkGetLocalTokenFromMr(p->mr) };
    EXPECT(p->qp->Dispatch->NdkReceive(p->qp, NULL, &sge, 1), STATUS_SUCCESS);
}

static PEER *make_peer(NDK_ADAPTER *adapter) {
    PEER *p = calloc(1, sizeof *p);
    p->adapter = adapter;
    wait_init(&p->news);
    wait_init(&p->gone);
    wait_init(&p->accepted);
    wait_init(&p->connected);
    p->pd = CREATE(NDK_PD, adapter->Dispatch->NdkCreatePd(adapter, on_created, w, &object));
    p->receive_cq = CREATE(NDK_CQ, adapter->Dispatch->NdkCreateCq(adapter, RECEIVES, on_news, p, NULL, on_created, w, &object));
    p->send_cq = CREATE(NDK_CQ, adapter->Dispatch->NdkCreateCq(adapter, 64, on_news, p, NULL, on_created, w, &object));
    p->qp = CREATE(NDK_QP, p->pd->Dispatch->NdkCreateQp(p->pd, p->receive_cq, p->send_cq, NULL, RECEIVES, 64, 1, 1, 4096, on_created, w, &object));
    p->mr = CREATE(NDK_MR, p->pd->Dispatch->NdkCreateMr(p->pd, FALSE, on_created, w, &object));
    p->memory = aligned_alloc(PAGE_SIZE, RECEIVES * ROOM);
    MDL *mdl = IoAllocateMdl(p->memory, RECEIVES * ROOM, FALSE, FALSE, NULL);
    EXPECT(TransomProbeAndLockPages(mdl, KernelMode, IoModifyAccess), STATUS_SUCCESS);
    EXPECT(END(p->mr->Dispatch->NdkRegisterMr(p->mr, mdl, RECEIVES * ROOM, NDK_MR_FLAG_ALLOW_LOCAL_WRITE, on_request, w)), STATUS_SUCCESS);
    IoFreeMdl(mdl);
    for (ULONG i = 0; i < RECEIVES; i++) post(p, i);
    return p;
}

static void end_peer(PEER *p) {
    p->qp->Dispatch->NdkFlush(p->qp);
    CLOSE(p->connector, NdkCloseConnector);
    CLOSE(p->qp, NdkCloseQp);
    CLOSE(p->receive_cq, NdkCloseCq);
    CLOSE(p->send_cq, NdkCloseCq);
    CLOSE(p->mr, NdkCloseMr);
    CLOSE(p->pd, NdkClosePd);
    free(p->memory);
    free(p);
}

static NDK_RESULT next(PEER *p, NDK_CQ *cq) {
    NDK_RESULT result;
    while (cq->Dispatch->NdkGetCqResults(cq, &result, 1) == 0) {
        cq->Dispatch->NdkArmCq(cq, NDK_CQ_NOTIFY_ANY);
        if (cq->Dispatch->NdkGetCqResults(cq, &result, 1) == 1) break;
        wait_for(&p->news);
    }
    return result;
}

/* ---- bytes ---- */
static void put(uint8_t *at, int size, uint64_t value) {
    for (int i = 0; i < size; i++) at[i] = (uint8_t)(value >> 8 * i);
}
static uint32_t get(const uint8_t *at, int size) {
    uint32_t value = 0;
    for (int i = 0; i < size; i++) value |= (uint32_t)at[i] << 8 * i;
    return value;
}

static void say(PEER *p, const uint8_t *bytes, ULONG length) {
    NDK_SGE sge = { .VirtualAddress = (PVOID)bytes, .Length = length };
    EXPECT(p->qp->Dispatch->NdkSend(p->qp, NULL, &sge, 1, NDK_OP_FLAG_INLINE), STATUS_SUCCESS);
}
/* The next message: its bytes, until the one after RECEIVES more. */
static const uint8_t *hear(PEER *p, ULONG *length) {
    NDK_RESULT result = next(p, p->receive_cq);
    EXPECT(result.Status, STATUS_SUCCESS);
    *length = result.BytesTransferred;
    ULONG slot = p->next++ % RECEIVES;
    static uint8_t copy[ROOM];
    memcpy(copy, p->memory + slot * ROOM, ROOM);
    post(p, slot);
    return copy;
}

/* ---- messages ---- */
typedef struct { uint32_t min, max, credits, preferred, receive, fragmented, length; } ASK;
static const ASK good = { 0x100, 0x100, 10, 1024, 1024, 131072, 20 };
static void ask(PEER *p, ASK a) {
    uint8_t bytes[20] = { 0 };
    put(bytes, 2, a.min);
    put(bytes + 2, 2, a.max);
    put(bytes + 6, 2, a.credits);
    put(bytes + 8, 4, a.preferred);
    put(bytes + 12, 4, a.receive);
    put(bytes + 16, 4, a.fragmented);
    say(p, bytes, a.length);
}
typedef struct { uint32_t credits, granted, flags, remaining, offset, data, length; } DATA;
static void data(PEER *p, DATA d) {
    uint8_t bytes[4096] = { 0 };
    put(bytes, 2, d.credits);
    put(bytes + 2, 2, d.granted);
    put(bytes + 4, 2, d.flags);
    put(bytes + 8, 4, d.remaining);
    put(bytes + 12, 4, d.offset);
    put(bytes + 16, 4, d.data);
    say(p, bytes, d.length);
}

static PEER *attack(NDK_ADAPTER *adapter, unsigned port) {
    PEER *p = make_peer(adapter);
    struct sockaddr_in from = loopback(0), to = loopback(port);
    p->connector = CREATE(NDK_CONNECTOR, adapter->Dispatch->NdkCreateConnector(adapter, on_created, w, &object));
    EXPECT(END(p->connector->Dispatch->NdkConnect(p->connector, p->qp, ADDRESS(from), ADDRESS(to), 16, 0, NULL, 0, on_request, w)), STATUS_SUCCESS);
    EXPECT(END(p->connector->Dispatch->NdkCompleteConnect(p->connector, on_gone, p, on_request, w)), STATUS_SUCCESS);
    return p;
}
/* The example of the specification: 10 credits, 1 KiB, 128 KiB. */
static PEER *negotiated(NDK_ADAPTER *adapter, unsigned port) {
    PEER *p = attack(adapter, port);
    ULONG length;
    ask(p, good);
    const uint8_t *answer = hear(p, &length);
    CHECK(length == 32);
    CHECK(get(answer, 2) == 0x100 && get(answer + 2, 2) == 0x100 && get(answer + 4, 2) == 0x100);
    CHECK(get(answer + 8, 2) >= 1 && get(answer + 10, 2) == 10 && get(answer + 12, 4) == 0);
    CHECK(get(answer + 16, 4) == 0x100000);
    CHECK(get(answer + 20, 4) <= 1024); /* its Sends fit our receives */
    CHECK(get(answer + 24, 4) == 1024); /* its receives are as large as our Sends */
    CHECK(get(answer + 28, 4) >= 131072);
    return p;
}
/* The server is there, and answers. */
static void alive(PEER *p) {
    ULONG length;
    data(p, (DATA){ .credits = 10, .granted = 1, .flags = 1, .length = 20 });
    const uint8_t *answer = hear(p, &length);
    CHECK(length >= 20 && get(answer, 2) >= 1 && get(answer + 16, 4) == 0);
    CHECK(get(answer + 4, 2) == 0); /* an answer, and no question after a while */
}
static void goes(PEER *p, const char *why) {
    static int number;
    wait_for(&p->gone);
    end_peer(p);
    printf("client %d: %s\n", ++number, why);
}

static void negotiation(NDK_ADAPTER *adapter, unsigned port) {
    STEP("negotiation");
    struct { ASK ask; const char *why; } cases[] = {
        { good, "a negotiate request of fewer than 20 bytes" },
        { good, "a negotiate request for no credits" },
        { good, "a negotiate request with receives below 128 bytes" },
        { good, "a negotiate request with messages below 128 KiB" },
        { good, "a negotiate request for no version" },
    };
    cases[0].ask.length = 19;
    cases[1].ask.credits = 0;
    cases[2].ask.receive = 127;
    cases[3].ask.fragmented = 131071;
    cases[4].ask.min = 0x101;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PEER *p = attack(adapter, port);
        ask(p, cases[i].ask);
        goes(p, cases[i].why);
    }
    STEP("other versions");
    uint32_t versions[][2] = { { 0x101, 0x300 }, { 0, 0xff } };
    for (int i = 0; i < 2; i++) {
        PEER *p = attack(adapter, port);
        ASK a = good;
        ULONG length;
        a.min = versions[i][0];
        a.max = versions[i][1];
        ask(p, a);
        const uint8_t *answer = hear(p, &length);
        CHECK(length == 32 && get(answer + 12, 4) == 0xC00000BB && get(answer + 10, 2) == 0);
        goes(p, "a negotiate request for other versions");
    }
    STEP("the smallest values");
    PEER *p = attack(adapter, port);
    ULONG length;
    ask(p, (ASK){ 0, 0xffff, 1, 0, 128, 131072, 20 });
    const uint8_t *answer = hear(p, &length);
    CHECK(length == 32 && get(answer + 10, 2) == 2 && get(answer + 20, 4) == 128 && get(answer + 24, 4) == 128);
    data(p, (DATA){ .credits = 1, .granted = 2, .flags = 1, .length = 20 });
    hear(p, &length);
    CHECK(length <= 128);
    data(p, (DATA){ .credits = 0, .length = 20 });
    goes(p, "a data transfer that requests no credits");
}

static void transfers(NDK_ADAPTER *adapter, unsigned port) {
    STEP("transfers");
    const uint32_t most = 1 << 20; /* of a message, as the server says */
    struct { DATA data; const char *why; } cases[] = {
        { { 10, 1, 0, 0, 0, 0, 19 }, "a data transfer of fewer than 20 bytes" },
        { { 0, 1, 0, 0, 0, 0, 20 }, "a data transfer that requests no credits" },
        { { 10, 1, 0, 0, 28, 4, 64 }, "data at an offset that is no multiple of 8" },
        { { 10, 1, 0, 0, 7, 0, 64 }, "data at an offset that is no multiple of 8" },
        { { 10, 1, 0, 0, 24, 41, 64 }, "data beyond the end of its message" },
        { { 10, 1, 0, 0, 72, 0, 64 }, "data beyond the end of its message" },
        { { 10, 1, 0, 0, 0xfffffff8, 16, 64 }, "data beyond the end of its message" },
        { { 10, 1, 0, 0, 24, 0xffffffff, 64 }, "data beyond the end of its message" },
        { { 10, 1, 0, 0, 16, 8, 64 }, "data inside the header" },
        { { 10, 1, 0, 0, 0, 8, 64 }, "data inside the header" },
        { { 10, 1, 0, most - 39, 24, 40, 64 }, "a message larger than was negotiated" },
        { { 10, 1, 0, 0xffffffff, 24, 40, 64 }, "a message larger than was negotiated" },
        { { 10, 1, 0, 8, 0, 0, 20 }, "a fragment without data" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PEER *p = negotiated(adapter, port);
        alive(p);
        data(p, cases[i].data);
        goes(p, cases[i].why);
    }
    STEP("fragments");
    DATA begin = { 10, 1, 0, most - 40, 24, 40, 64 }; /* as large as it may be */
    for (int off = -1; off <= 1; off++) {
        PEER *p = negotiated(adapter, port);
        data(p, begin);
        alive(p); /* a message without data may come between */
        data(p, (DATA){ 10, 1, 0, most - 80 + (uint32_t)off, 24, 40, 64 });
        if (off != 0) {
            goes(p, "a fragment that does not continue its message");
            continue;
        }
        alive(p);
        data(p, (DATA){ 10, 1, 0, 0, 24, 40, 64 });
        goes(p, "a fragment that does not continue its message");
    }
    STEP("a Send too large");
    PEER *p = negotiated(adapter, port);
    data(p, (DATA){ 10, 1, 0, 0, 24, 1000, 1024 });
    goes(p, "a request that this server does not know"); /* zeros are none, but they fit */
    p = negotiated(adapter, port);
    data(p, (DATA){ 10, 1, 0, 0, 24, 1001, 1025 });
    goes(p, "a Send larger than was negotiated");
}

/* The server does not use its last credit for a message that grants none (MS-SMBD 3.1.5.1). */
static void last_credit(NDK_ADAPTER *adapter, unsigned port) {
    STEP("the last credit");
    PEER *p = negotiated(adapter, port);
    /* A request with one credit asks for an answer, and with nine of ours left the server has none to grant. */
    data(p, (DATA){ .credits = 1, .granted = 1, .flags = 1, .length = 20 });
    PEER *other = negotiated(adapter, port); /* and some time */
    alive(other);
    data(p, (DATA){ .credits = 0, .length = 20 });
    wait_for(&p->gone);
    NDK_RESULT result;
    while (p->receive_cq->Dispatch->NdkGetCqResults(p->receive_cq, &result, 1) == 1) CHECK(result.Status != STATUS_SUCCESS);
    wait_set(&p->gone, STATUS_SUCCESS, NULL);
    goes(p, "a data transfer that requests no credits");
    data(other, (DATA){ .credits = 0, .length = 20 });
    goes(other, "a data transfer that requests no credits");
}

/* Requests of the example's own, with descriptors that are not what they should be. */
static void descriptors(NDK_ADAPTER *adapter, unsigned port) {
    STEP("descriptors");
    struct { uint32_t operation, length; uint64_t place, offset; uint32_t token, there, size; const char *why; } cases[] = {
        { 2, 16, 0, 0x1000, 0x12345678, 16, 40, "an RDMA request failed" },
        { 3, 16, 0, 0x1000, 0x12345678, 16, 40, "an RDMA request failed" },
        { 2, 16, 0, 0x1000, 0x12345678, 15, 40, "a descriptor shorter than its request" },
        { 2, 16, 0, UINT64_MAX - 14, 0x12345678, 16, 40, "a descriptor shorter than its request" },
        { 2, 0, 0, 0x1000, 1, 16, 40, "a request beyond the server's memory" },
        { 2, 0x100001, 0, 0x1000, 1, 0xffffffff, 40, "a request beyond the server's memory" },
        { 3, 16, (64 << 20) - 15, 0x1000, 1, 16, 40, "a request beyond the server's memory" },
        { 3, 16, UINT64_MAX, 0x1000, 1, 16, 40, "a request beyond the server's memory" },
        { 9, 16, 0, 0x1000, 1, 16, 40, "a request that this server does not know" },
        { 2, 16, 0, 0x1000, 1, 16, 39, "a request of fewer than 40 bytes" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PEER *p = negotiated(adapter, port);
        uint8_t bytes[64] = { 0 };
        put(bytes, 2, 10);
        put(bytes + 2, 2, 2);
        put(bytes + 12, 4, 24);
        put(bytes + 16, 4, cases[i].size);
        put(bytes + 24, 4, cases[i].operation);
        put(bytes + 28, 4, 1);
        put(bytes + 32, 8, cases[i].place);
        put(bytes + 40, 4, cases[i].length);
        put(bytes + 48, 8, cases[i].offset);
        put(bytes + 56, 4, cases[i].token);
        put(bytes + 60, 4, cases[i].there);
        say(p, bytes, 24 + cases[i].size);
        goes(p, cases[i].why);
    }
}

/* The server asks a peer that is silent, and goes on when that answers. */
static void keepalive(NDK_ADAPTER *adapter, unsigned port) {
    STEP("keepalive");
    PEER *p = negotiated(adapter, port);
    ULONG length;
    data(p, (DATA){ .credits = 10, .granted = 8, .length = 20 });
    for (int answers = 0; answers < 2; answers++) {
        while (!(get(hear(p, &length) + 4, 2) & 1)) {} /* grants come, too */
        data(p, (DATA){ .credits = 10, .granted = 2, .length = 20 });
    }
    data(p, (DATA){ .credits = 0, .length = 20 });
    goes(p, "a data transfer that requests no credits");
}

/* Without any credit the server cannot even ask, and still does not wait for ever. */
static void mute(NDK_ADAPTER *adapter, unsigned port) {
    STEP("mute");
    goes(negotiated(adapter, port), "no answer to a keepalive");
    PEER *p = negotiated(adapter, port);
    data(p, (DATA){ .credits = 10, .granted = 8, .length = 20 });
    goes(p, "no answer to a keepalive");
}

/* ---- a server that is wrong ---- */
static PEER *server;
static void on_connect(PVOID context, NDK_CONNECTOR *connector) {
    PEER *p = context;
    p->connector = connector;
    NTSTATUS status = connector->Dispatch->NdkAccept(connector, p->qp, 0, 16, NULL, 0, on_gone, p, on_accepted, p);
    if (status != STATUS_PENDING) on_accepted(p, status);
}
static void serve(NDK_ADAPTER *adapter, int wrong) {
    server = make_peer(adapter);
    NDK_LISTENER *listener = CREATE(NDK_LISTENER, adapter->Dispatch->NdkCreateListener(adapter, on_connect, server, on_created, w, &object));
    struct sockaddr_in at = loopback(0);
    ULONG length = sizeof at;
    EXPECT(END(listener->Dispatch->NdkListen(listener, ADDRESS(at), on_request, w)), STATUS_SUCCESS);
    EXPECT(listener->Dispatch->NdkGetLocalAddress(listener, (PSOCKADDR)&at, &length), STATUS_SUCCESS);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    EXPECT(wait_for(&server->accepted), STATUS_SUCCESS);
    const uint8_t *asked = hear(server, &length);
    CHECK(length == 20 && get(asked + 12, 4) == 8192);
    /* {version, requested, granted, status, preferred, receive, fragmented, bytes} */
    uint32_t answers[][8] = {
        { 0x100, 10, 10, 0, 8192, 8192, 131072, 31 }, { 0x100, 10, 10, 0xC00000BB, 8192, 8192, 131072, 32 },
        { 0x200, 10, 10, 0, 8192, 8192, 131072, 32 }, { 0x100, 0, 10, 0, 8192, 8192, 131072, 32 },
        { 0x100, 10, 0, 0, 8192, 8192, 131072, 32 },  { 0x100, 10, 10, 0, 8192, 127, 131072, 32 },
        { 0x100, 10, 10, 0, 8192, 8192, 131071, 32 }, { 0x100, 10, 10, 0, 8193, 8192, 131072, 32 },
        { 0x100, 10, 10, 0, 8192, 8192, 131072, 32 },
    };
    const uint32_t *a = answers[wrong];
    uint8_t bytes[32] = { 0 };
    put(bytes, 2, 0x100);
    put(bytes + 2, 2, 0x100);
    put(bytes + 4, 2, a[0]);
    put(bytes + 8, 2, a[1]);
    put(bytes + 10, 2, a[2]);
    put(bytes + 12, 4, a[3]);
    put(bytes + 16, 4, 1 << 20);
    put(bytes + 20, 4, a[4]);
    put(bytes + 24, 4, a[5]);
    put(bytes + 28, 4, a[6]);
    say(server, bytes, a[7]);
    if (wrong == 8) { /* nothing is wrong: the client grants credits, and asks */
        asked = hear(server, &length);
        CHECK(length >= 20 && get(asked, 2) >= 1 && get(asked + 2, 2) >= 1);
        data(server, (DATA){ .credits = 0, .length = 20 });
    }
    wait_for(&server->gone);
    end_peer(server);
    CLOSE(listener, NdkCloseListener);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    NDK_ADAPTER *adapter = open_adapter(NDK_COMPLETE_NATURALLY);
    if (!strcmp(argv[1], "serve")) {
        serve(adapter, atoi(argv[2]));
    } else if (!strcmp(argv[1], "silent")) {
        goes(attack(adapter, (unsigned)atoi(argv[2])), "no negotiation in time");
    } else if (!strcmp(argv[1], "mute")) {
        mute(adapter, (unsigned)atoi(argv[2]));
    } else {
        unsigned port = (unsigned)atoi(argv[2]);
        negotiation(adapter, port);
        transfers(adapter, port);
        last_credit(adapter, port);
        descriptors(adapter, port);
        keepalive(adapter, port);
    }
    NdkCloseAdapter(adapter);
    return 0;
}
