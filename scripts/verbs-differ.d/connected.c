/* Queue pairs of type RC and UC that are connected by number: requests of every opcode with right and wrong arguments,
 * windows of both types, shared receive queues, events, states, limits, destroys in any order. */
#define _GNU_SOURCE
#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDES = 2, REGION = 2048, REGIONS = 4, WINDOWS = 3, STEPS = 50, UNKNOWN = 3 };

struct region {
    struct ibv_mr *mr;
    int access;
    uint8_t *bytes;
};
struct window {
    struct ibv_mw *mw;
    uint32_t rkey;
    uint64_t base, length;
};
struct side {
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct news news;
    int armed; /* 1: for all completions; 2: for solicited ones; UNKNOWN: no longer watched */
    int failed;
    struct ibv_qp *qp;
    enum ibv_qp_state state;
    struct region regions[REGIONS];
    struct window windows[WINDOWS];
    uint64_t next;
    int owed;     /* signalled requests without a completion */
    int silent;   /* the last request says nothing if it succeeds */
    int receives; /* receives without one */
    int due;      /* of UC: messages that are on their way to a receive */
};
static __thread struct side sides[SIDES];
static __thread enum ibv_qp_type type;
static __thread int right; /* of UC: what is wrong with an own request has other results, see the list */

/* Receives and requests complete side by side in no order. */
static __thread FILE *files[SIDES][2];
static int take(int at) {
    struct side *s = &sides[at];
    struct ibv_wc wc;
    int some = 0;
    while (s->cq && ibv_poll_cq(s->cq, 1, &wc) == 1) {
        some++;
        int receive = wc.wr_id >> 32 != 0;
        FILE *all = out;
        out = files[at][receive];
        if (receive) (s->receives--, s->due--);
        else if (s->owed > 0) s->owed--;
        if (wc.status != IBV_WC_SUCCESS) {
            s->failed = 1;
            say(" %d: %s%u %s", at, receive ? "r" : "s", (unsigned)wc.wr_id, ibv_wc_status_str(wc.status));
            out = all;
            continue;
        }
        say(" %d: %s%u ok %s", at, receive ? "r" : "s", (unsigned)wc.wr_id, kind_of(&wc));
        if (receive)
            say(" %d:  %u bytes, flags %d, immediate %x", at, wc.byte_len,
                wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV),
                wc.wc_flags & IBV_WC_WITH_IMM ? ntohl(wc.imm_data) : 0);
        out = all;
    }
    return some;
}

/* Waits for what is owed. What each side has got is printed side by side, whatever came first. */
static void settle(void) {
    uint64_t since = milliseconds(), quiet = since;
    char *text[SIDES][2];
    size_t sizes[SIDES][2];
    for (int at = 0; at < SIDES; at++)
        for (int queue = 0; queue < 2; queue++) files[at][queue] = open_memstream(&text[at][queue], &sizes[at][queue]);
    for (int looks = 0;; looks++) { /* a busy machine may take its time between two of them */
        int some = 0;
        for (int at = 0; at < SIDES; at++) some += take(at);
        uint64_t now = milliseconds();
        if (some) (quiet = now, looks = 0);
        int owed = sides[0].owed + sides[1].owed + (sides[0].due > 0) + (sides[1].due > 0);
        int patience = sides[0].silent || sides[1].silent ? 200 : 4;
        if (!owed && now - quiet >= (uint64_t)patience && looks > 8) break;
        if (now - quiet > 3000 || now - since > 9000) break;
        if (!some) usleep(200);
    }
    for (int at = 0; at < SIDES; at++) {
        for (int queue = 0; queue < 2; queue++) {
            fclose(files[at][queue]);
            fputs(text[at][queue], out);
            free(text[at][queue]);
        }
        if (sides[at].owed) say(" %d: %d requests have no completion", at, sides[at].owed);
        sides[at].owed = sides[at].due = sides[at].silent = 0;
        struct ibv_cq *of;
        void *nothing;
        if (sides[at].armed && !ibv_get_cq_event(sides[at].channel, &of, &nothing)) {
            ibv_ack_cq_events(of, 1);
            /* A failure counts as solicited (ibv_req_notify_cq's manual page); rxe forgets that. */
            if (sides[at].armed == 1 || (sides[at].armed == 2 && !sides[at].failed))
                say(" %d: its completion queue has an event", at);
            sides[at].armed = sides[at].armed == 1 || !sides[at].failed ? 0 : UNKNOWN;
        }
        if (sides[at].failed && sides[at].armed == 2) sides[at].armed = UNKNOWN;
        sides[at].failed = 0;
        hear();
        say_news(&sides[at].news, at ? "1" : "0");
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        if (sides[at].qp && !ibv_query_qp(sides[at].qp, &attr, IBV_QP_STATE, &init)) {
            sides[at].state = attr.qp_state;
            say(" %d: state %d", at, attr.qp_state);
        }
    }
}

static void bytes(void) {
    if (sides[0].state != IBV_QPS_RTS || sides[1].state != IBV_QPS_RTS) return;
    for (int at = 0; at < SIDES; at++)
        for (int i = 0; i < REGIONS; i++)
            say(" %d: memory %d %016llx", at, i, (unsigned long long)sum_of(sides[at].regions[i].bytes, REGION));
}

/* ---- objects ------------------------------------------------------------------------------------------- */

static void make_region(struct side *s, int i) {
    static const int rights[] = {0,
                                 IBV_ACCESS_LOCAL_WRITE,
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                                 IBV_ACCESS_REMOTE_READ,
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
                                 IBV_ACCESS_REMOTE_WRITE,
                                 IBV_ACCESS_REMOTE_ATOMIC};
    struct region *r = &s->regions[i];
    int access = rights[i && one_in(3) ? any(8) : 5]; /* the first one grants everything */
    if (r->mr) return;
    r->access = access;
    r->mr = ibv_reg_mr(s->pd, r->bytes, REGION, access);
    say("region %d of %d, rights %x: %s", i, (int)(s - sides), access, made(r->mr));
}

static int attributes(struct side *peer, enum ibv_qp_state to, struct ibv_qp_attr *attr) {
    *attr = (struct ibv_qp_attr){.qp_state = to};
    switch (to) {
    case IBV_QPS_INIT:
        attr->port_num = 1;
        attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    case IBV_QPS_RTR:
        attr->path_mtu = IBV_MTU_1024;
        attr->dest_qp_num = peer->qp ? peer->qp->qp_num : 17;
        attr->rq_psn = 7;
        attr->max_dest_rd_atomic = 4;
        attr->min_rnr_timer = 1;
        attr->ah_attr = (struct ibv_ah_attr){.grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 64},
                                             .is_global = 1,
                                             .port_num = 1};
        return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               (type == IBV_QPT_RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
    case IBV_QPS_RTS:
        attr->sq_psn = 7;
        attr->timeout = 10;
        attr->retry_cnt = 1;
        attr->rnr_retry = 0;
        attr->max_rd_atomic = 4;
        if (type == IBV_QPT_UC) return IBV_QP_STATE | IBV_QP_SQ_PSN;
        return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
               IBV_QP_MAX_QP_RD_ATOMIC;
    default: return IBV_QP_STATE;
    }
}

static int move(int at, enum ibv_qp_state to, int leave_out) {
    struct ibv_qp_attr attr;
    struct side *s = &sides[at];
    int mask = attributes(&sides[1 - at], to, &attr) & ~leave_out;
    int error = ibv_modify_qp(s->qp, &attr, mask);
    if (!error) s->state = to;
    return error;
}

static void set_up(void) {
    for (int at = 0; at < SIDES; at++) {
        struct side *s = &sides[at];
        memset(s, 0, sizeof *s);
        s->pd = ibv_alloc_pd(context);
        s->channel = ibv_create_comp_channel(context);
        fcntl(s->channel->fd, F_SETFL, fcntl(s->channel->fd, F_GETFL) | O_NONBLOCK);
        s->cq = ibv_create_cq(context, 4 * DEPTH, &s->news, s->channel, 0);
        if (one_in(4)) {
            struct ibv_srq_init_attr init = {.srq_context = &s->news, .attr = {.max_wr = DEPTH, .max_sge = PIECES}};
            s->srq = ibv_create_srq(s->pd, &init);
            say("shared receive queue of %d: %s", at, made(s->srq));
        }
        struct ibv_qp_init_attr init = {.send_cq = s->cq,
                                        .recv_cq = s->cq,
                                        .srq = s->srq,
                                        .cap = {DEPTH, s->srq ? 0 : DEPTH, PIECES, s->srq ? 0 : PIECES, INLINE},
                                        .qp_type = type};
        s->qp = ibv_create_qp(s->pd, &init);
        say("queue pair of %d: %s", at, made(s->qp));
        for (int i = 0; i < REGIONS; i++) {
            s->regions[i].bytes = aligned_alloc(4096, REGION);
            fill(s->regions[i].bytes, REGION);
            make_region(s, i);
        }
        for (int i = 0; i < WINDOWS; i++) {
            s->windows[i].mw = ibv_alloc_mw(s->pd, i ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
            say("window %d of %d: %s", i, at, made(s->windows[i].mw));
        }
    }
    for (int to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++)
        for (int at = 0; at < SIDES; at++) say("%d to %d: %s", at, to, name(move(at, to, 0)));
}

static void tear_down(void) {
    step = STEPS + 1;
    for (int at = 0; at < SIDES; at++) /* rxe waits fifty seconds for windows whose queue pair ends before them */
        for (int i = 0; i < WINDOWS; i++) DESTROY("window", ibv_dealloc_mw, sides[at].windows[i].mw)
    /* In an order of the seed's: what is in use refuses. */
    for (int round = 0; round < 4; round++)
        for (int at = 0; at < SIDES; at++) {
            struct side *s = &sides[at];
            int all = round == 3;
            if (all || one_in(3)) DESTROY("completion queue", ibv_destroy_cq, s->cq)
            if (all || one_in(3)) DESTROY("channel", ibv_destroy_comp_channel, s->channel)
            if (all || one_in(3)) DESTROY("shared receive queue", ibv_destroy_srq, s->srq)
            if (all || one_in(3)) DESTROY("queue pair", ibv_destroy_qp, s->qp)
            if (all || one_in(3)) DESTROY("domain", ibv_dealloc_pd, s->pd)
            for (int i = 0; i < REGIONS; i++)
                if (all || one_in(3)) DESTROY("region", ibv_dereg_mr, s->regions[i].mr)
        }
    for (int at = 0; at < SIDES; at++) {
        struct side *s = &sides[at];
        DESTROY("completion queue at last", ibv_destroy_cq, s->cq)
        DESTROY("channel at last", ibv_destroy_comp_channel, s->channel)
        DESTROY("shared receive queue at last", ibv_destroy_srq, s->srq)
        for (int i = 0; i < REGIONS; i++) DESTROY("region at last", ibv_dereg_mr, s->regions[i].mr)
        DESTROY("domain at last", ibv_dealloc_pd, s->pd)
        for (int i = 0; i < REGIONS; i++) free(s->regions[i].bytes);
    }
}

/* ---- requests ------------------------------------------------------------------------------------------ */

/* Places of a side's own, most of them right. */
static int pieces(struct side *s, struct ibv_sge *list, uint32_t total, int wrong, int all_rights) {
    int count = all_rights ? 1 : 1 + (int)any(PIECES); /* pieces that overlap are filled in no order */
    for (int i = 0; i < count; i++) {
        struct region *r = &s->regions[all_rights ? 0 : any(REGIONS)];
        uint32_t length = i == count - 1 ? total : any(total + 1);
        total -= length;
        uint32_t offset = any(REGION - length + 1);
        list[i] = (struct ibv_sge){(uintptr_t)r->bytes + offset, length, r->mr ? r->mr->lkey : 0};
    }
    if (wrong == 1) list[any(count)].lkey ^= 0x40000000;
    if (wrong == 2) list[any(count)].addr -= REGION;
    return count;
}

static void post_receive(int at) {
    struct side *s = &sides[at];
    if (!s->srq && s->state != IBV_QPS_RTS) return;
    struct ibv_sge list[PIECES + 2];
    struct ibv_recv_wr wr = {.wr_id = (1ull << 32) | s->next, .sg_list = list}, *bad = NULL;
    wr.num_sge = pieces(s, list, right ? 600 : any(600), !right && one_in(20) ? 1 : 0, right);
    if (one_in(25)) wr.num_sge = PIECES + 2;
    if (s->receives >= DEPTH && wr.num_sge <= PIECES) return; /* adapters round the depth up */
    int error = s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->qp, &wr, &bad);
    say("receive r%u of %d, %d pieces: %s", (unsigned)s->next, at, wr.num_sge, name(error));
    s->next++;
    if (!error) s->receives++;
}

/* Posts a request. Whether it fetches something: what is posted beside that may come before its answer. */
static int post(int at, int last) {
    static const enum ibv_wr_opcode opcodes[] = {
        IBV_WR_SEND,           IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_RDMA_READ,      IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_SEND_WITH_INV,  IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND};
    struct side *s = &sides[at], *peer = &sides[1 - at];
    struct ibv_sge list[PIECES + 2];
    struct ibv_send_wr wr = {.wr_id = s->next, .sg_list = list, .opcode = opcodes[any(13)]}, *bad = NULL;
    uint32_t length = one_in(8) ? 0 : any(500);
    int wrong = !right && one_in(16) ? 1 + (int)any(2) : 0;
    int mistake = one_in(10) ? (right ? 3 : 1) + (int)any(right ? 1 : 4) : 0;
    wr.send_flags = IBV_SEND_SIGNALED | (one_in(10) ? IBV_SEND_FENCE : 0) | (one_in(8) ? IBV_SEND_SOLICITED : 0);
    if (wr.opcode == IBV_WR_SEND_WITH_IMM || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
        wr.imm_data = htonl(0xABC00000 + (uint32_t)s->next);
    int atomic = wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    int fetches = atomic || wr.opcode == IBV_WR_RDMA_READ;
    if (right && (fetches || wr.opcode == IBV_WR_SEND_WITH_INV || wr.opcode == IBV_WR_LOCAL_INV)) return 0;
    if (atomic) length = 8;
    if (fetches) wrong = 0; /* rxe judges the requester's memory when the answer comes */
    if (type == IBV_QPT_RC && !fetches && !last && one_in(4)) wr.send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
    wr.num_sge = pieces(s, list, length, wrong, fetches || right);
    struct region *target = &peer->regions[right ? 0 : any(REGIONS)];
    uint64_t address = (uintptr_t)target->bytes + any(REGION - 600);
    uint32_t rkey = target->mr ? target->mr->rkey : 0;
    int unknown = mistake == 1; /* a key that was never issued */
    struct window *window = &peer->windows[any(WINDOWS)], *own = &s->windows[1 + any(WINDOWS - 1)];
    if (window->rkey && !right && one_in(3)) {
        rkey = window->rkey;
        address = window->base + any(64);
        /* rxe lets a peer reach all of the region (mr_check_range gets the region): stay inside. */
        if (address + length > window->base + window->length) address = window->base;
        if (length > window->length) unknown = 1;
    }
    if (unknown) rkey ^= 0x55000000;
    if (mistake == 2) address = (uintptr_t)target->bytes + REGION - any(4);
    if (mistake == 3) wr.num_sge = PIECES + 2;
    if (atomic) {
        list[0].length = 8, wr.num_sge = mistake == 3 ? wr.num_sge : 1;
        list[0].addr &= ~7ull;
        address &= ~7ull; /* others are refused by rxe's post */
        wr.wr.atomic.remote_addr = address;
        wr.wr.atomic.rkey = rkey;
        wr.wr.atomic.compare_add = any(1000);
        wr.wr.atomic.swap = any(1000);
    } else {
        wr.wr.rdma.remote_addr = address;
        wr.wr.rdma.rkey = rkey;
    }
    int sends = wr.opcode == IBV_WR_SEND || wr.opcode == IBV_WR_RDMA_WRITE;
    /* Inline data is taken without a look at its key: beside a region lies nothing that is the same everywhere. */
    if (sends && length <= INLINE + 4 && one_in(2) && wrong != 2) wr.send_flags |= IBV_SEND_INLINE;
    if (wr.opcode == IBV_WR_BIND_MW) {
        struct region *r = &s->regions[any(REGIONS)];
        if (right) r = s->regions; /* grants everything */
        if (!own->mw || !r->mr || (right && own->rkey)) return 0;
        uint32_t offset = any(REGION / 2), size = 1 + any(REGION / 2);
        if (mistake == 2 && !right) size = REGION;
        wr.num_sge = 0;
        wr.bind_mw.mw = own->mw;
        wr.bind_mw.rkey = ibv_inc_rkey(own->rkey ? own->rkey : own->mw->rkey);
        wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
            .mr = r->mr, .addr = (uintptr_t)r->bytes + offset, .length = size,
            .mw_access_flags = IBV_ACCESS_REMOTE_READ | (one_in(2) ? IBV_ACCESS_REMOTE_WRITE : 0)};
    }
    if (wr.opcode == IBV_WR_LOCAL_INV || wr.opcode == IBV_WR_SEND_WITH_INV) {
        struct window *which = wr.opcode == IBV_WR_LOCAL_INV ? own : &peer->windows[1 + any(WINDOWS - 1)];
        if (!which->rkey) return 0; /* rxe is wrong about windows that are not bound */
        wr.invalidate_rkey = which->rkey;
        if (wr.opcode == IBV_WR_LOCAL_INV) wr.num_sge = 0;
        which->rkey = 0;
    }
    int error = ibv_post_send(s->qp, &wr, &bad);
    say("post s%u of %d: opcode %d, flags %x, %u bytes in %d pieces, wrong %d, mistake %d: %s%s", (unsigned)s->next, at,
        wr.opcode, wr.send_flags, length, wr.num_sge, wrong, mistake, name(error), error && bad != &wr ? ", not named" : "");
    s->next++;
    if (error) return 0;
    s->silent = !(wr.send_flags & IBV_SEND_SIGNALED);
    s->owed += !s->silent;
    peer->due += right && (wr.opcode == IBV_WR_SEND || wr.opcode == IBV_WR_SEND_WITH_IMM || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
    if (wr.opcode == IBV_WR_BIND_MW) {
        own->mw->rkey = own->rkey = wr.bind_mw.rkey; /* rxe compares the program's key with its own */
        own->base = wr.bind_mw.bind_info.addr;
        own->length = wr.bind_mw.bind_info.length;
    }
    return fetches;
}

/* A window of type 1, which the call itself binds, binds anew and, with no length, unbinds. */
static void bind_window(int at) {
    struct side *s = &sides[at];
    struct window *own = &s->windows[0];
    struct region *r = &s->regions[any(REGIONS)];
    uint32_t offset = any(REGION / 2), size = one_in(5) ? 0 : 1 + any(REGION / 2), write = one_in(2), fits = right || !one_in(10);
    if (right) r = s->regions;
    if (!own->mw || !r->mr) return;
    struct ibv_mw_bind bind = {
        .wr_id = s->next,
        .send_flags = IBV_SEND_SIGNALED,
        .bind_info = {.mr = r->mr,
                      .addr = (uintptr_t)r->bytes + offset,
                      .length = fits ? size : REGION,
                      .mw_access_flags = IBV_ACCESS_REMOTE_READ | (write ? IBV_ACCESS_REMOTE_WRITE : 0)}};
    uint32_t before = own->mw->rkey;
    int error = ibv_bind_mw(s->qp, own->mw, &bind);
    say("bind s%u of %d, %u bytes: %s, key %s", (unsigned)s->next, at, (unsigned)bind.bind_info.length, name(error),
        own->mw->rkey == before ? "kept" : "new");
    s->next++;
    if (error) return;
    s->owed++;
    own->rkey = bind.bind_info.length ? own->mw->rkey : 0;
    own->base = bind.bind_info.addr;
    own->length = bind.bind_info.length;
}

/* ---- other calls --------------------------------------------------------------------------------------- */

static void other(int at) {
    struct side *s = &sides[at];
    struct ibv_pd *pd = s->pd;
    switch (any(11)) {
    case 0: {
        int entries = one_in(2) ? 0 : one_in(2) ? -1 : 1 + (int)any(100);
        struct ibv_cq *cq = ibv_create_cq(context, entries, NULL, NULL, one_in(4) ? 1000 : 0);
        say("completion queue of %d entries: %s", entries, made(cq));
        if (cq) {
            say(" at least that: %d", cq->cqe >= entries);
            say(" destroyed: %s", name(ibv_destroy_cq(cq)));
        }
        break;
    }
    case 1: {
        struct ibv_qp_init_attr init = {.send_cq = s->cq, .recv_cq = s->cq, .cap = {4, 4, 1, 1, 0}, .qp_type = type};
        int what = (int)any(5);
        if (what == 0) init.cap.max_send_wr = 1u << 30;
        if (what == 1) init.cap.max_send_sge = 1000;
        if (what == 2) init.cap.max_recv_wr = 1u << 30;
        if (what == 3) init.cap.max_inline_data = 1u << 20;
        struct ibv_qp *qp = ibv_create_qp(pd, &init);
        say("queue pair, too much of %d: %s", what, made(qp));
        if (qp) {
            struct ibv_qp_attr attr;
            say(" to RTS at once: %s", name(ibv_modify_qp(qp, memset(&attr, 3, sizeof attr), IBV_QP_STATE)));
            say(" destroyed: %s", name(ibv_destroy_qp(qp)));
        }
        break;
    }
    case 2: {
        struct ibv_srq_init_attr init = {.attr = {.max_wr = one_in(3) ? 1u << 30 : 8, .max_sge = one_in(3) ? 1000 : 1}};
        struct ibv_srq *srq = ibv_create_srq(pd, &init);
        say("shared receive queue: %s", made(srq));
        if (srq) {
            struct ibv_srq_attr attr = {.srq_limit = one_in(3) ? 1000 : any(8)};
            say(" limit %u: %s", attr.srq_limit, name(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT)));
            say(" destroyed: %s", name(ibv_destroy_srq(srq)));
        }
        break;
    }
    case 3: {
        struct ibv_ah_attr attr = {.grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 1}, .is_global = 1, .port_num = 1};
        if (one_in(3)) attr.port_num = 2 + any(3);
        struct ibv_ah *ah = ibv_create_ah(pd, &attr);
        say("address handle, port %d: %s", attr.port_num, made(ah));
        if (ah) say(" destroyed: %s", name(ibv_destroy_ah(ah)));
        break;
    }
    case 4: {
        static uint8_t page[4096] __attribute__((aligned(4096)));
        int what = (int)any(3);
        struct ibv_mr *mr = ibv_reg_mr(pd, what == 1 ? (void *)16 : page, what == 2 ? 1ull << 62 : 4096, IBV_ACCESS_LOCAL_WRITE);
        say("region, %s: %s", what == 1 ? "of nothing" : what == 2 ? "too long" : "right", made(mr));
        if (mr) say(" destroyed: %s", name(ibv_dereg_mr(mr)));
        break;
    }
    case 5: make_region(s, (int)any(REGIONS)); break;
    case 6: {
        struct region *r = &s->regions[any(REGIONS)];
        if (r->mr && r != s->regions && one_in(2)) {
            int error = ibv_dereg_mr(r->mr);
            say("region of %d given back: %s", at, name(error));
            if (!error) r->mr = NULL;
        }
        break;
    }
    case 7: {
        /* Transitions that miss an attribute, or are none. */
        static const int left_out[] = {IBV_QP_PORT, IBV_QP_AV, IBV_QP_TIMEOUT, IBV_QP_DEST_QPN, IBV_QP_SQ_PSN};
        int to = IBV_QPS_INIT + (int)any(3), miss = left_out[any(5)];
        struct ibv_qp_attr attr;
        int all = attributes(&sides[1 - at], to, &attr);
        if (s->state == IBV_QPS_RTS && to == IBV_QPS_RTS) break; /* what may be changed there */
        if (s->state == (enum ibv_qp_state)(to - 1) && !(all & miss)) break;
        if (s->state == IBV_QPS_INIT && to == IBV_QPS_INIT) break;
        say("%d from %d to %d without %x: %s", at, s->state, to, miss & all, name(ibv_modify_qp(s->qp, &attr, all & ~miss)));
        break;
    }
    case 8: {
        int solicited = one_in(2);
        if (s->armed) break;
        say("completion queue of %d armed%s: %s", at, solicited ? " for solicited ones" : "",
            name(ibv_req_notify_cq(s->cq, solicited)));
        s->armed = 1 + solicited;
        break;
    }
    case 9: {
        struct ibv_srq_attr attr = {.srq_limit = 1 + any(6)};
        if (!s->srq || s->receives <= (int)attr.srq_limit) break; /* rxe tells of it only when it falls below */
        say("limit %u of %d: %s", attr.srq_limit, at, name(ibv_modify_srq(s->srq, &attr, IBV_SRQ_LIMIT)));
        break;
    }
    case 10: {
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        if (ibv_query_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_CAP | IBV_QP_AV, &init)) break;
        say("%d is in state %d, port %d, type %d, signals all %d, shared %d, at least %d", at, attr.qp_state, attr.port_num,
            init.qp_type, init.sq_sig_all, init.srq == s->srq, init.cap.max_send_wr >= DEPTH);
        break;
    }
    }
}

/* Both begin anew, with other windows: whether a window that is bound outlives a reset is no adapter's promise. */
static void begin_anew(void) {
    settle();
    for (int at = 0; at < SIDES; at++) {
        struct side *s = &sides[at];
        /* Nobody promises what a request that failed has left in memory. */
        for (int i = 0; i < REGIONS; i++)
            fill(s->regions[i].bytes, REGION);
        say("%d to RESET: %s", at, name(move(at, IBV_QPS_RESET, 0)));
        if (!s->srq) s->receives = 0;
        for (int i = 0; i < WINDOWS; i++) {
            struct window *w = &s->windows[i];
            say("window of %d given back: %s", at, name(w->mw ? ibv_dealloc_mw(w->mw) : 0));
            *w = (struct window){.mw = ibv_alloc_mw(s->pd, i ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1)};
        }
    }
    settle();
    for (int to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++)
        for (int at = 0; at < SIDES; at++) say("%d to %d: %s", at, to, name(move(at, to, 0)));
}

void connected(enum ibv_qp_type of) {
    type = of;
    right = type == IBV_QPT_UC && !one_in(5);
    set_up();
    for (step = 1; step <= STEPS; step++) {
        int at = (int)any(SIDES);
        switch (any(8)) {
        case 0:
        case 1: post_receive(at); break;
        case 2: other(at); break;
        case 3:
            if (sides[0].state != IBV_QPS_RTS || sides[1].state != IBV_QPS_RTS || one_in(8)) begin_anew();
            break;
        default:
            /* Posts in other states, and receives for a queue pair in error, are left out: see the list. A message of
             * UC that finds no receive is lost, at once or after a while. */
            if (sides[1 - at].receives < 4 && (type == IBV_QPT_UC || !one_in(30)))
                for (int i = 0; i < 4; i++) post_receive(1 - at);
            int more = 1 + (int)any(3), both = sides[0].state == IBV_QPS_RTS && sides[1].state == IBV_QPS_RTS;
            if (!both && !one_in(6)) more = 0;
            for (; more > 0; more--)
                if (sides[at].state == IBV_QPS_RTS || sides[at].state == IBV_QPS_ERR) {
                    if (one_in(12)) bind_window(at);
                    else if (post(at, more == 1)) break;
                }
            settle();
            if (one_in(4)) bytes();
        }
    }
    bytes();
    tear_down();
}
