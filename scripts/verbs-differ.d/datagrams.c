/* Queue pairs of type UD: datagrams with right and wrong handles, keys, numbers, lengths and pieces, to both. */
#define _GNU_SOURCE
#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENDS = 2, SPACE = 3 * 4096, KEY = 0x11223344, HEADER = 40, ROUNDS = 40 };

struct end {
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    struct ibv_ah *ah;
    uint8_t *bytes;
    uint32_t key;
    enum ibv_qp_state state;
    unsigned next;
    int owed, receives;
    int due; /* datagrams that are on their way to it */
};
static __thread struct end ends[ENDS];
static __thread uint32_t mtu;
static __thread int right; /* what is wrong with an own request has other results: see the list */

static void settle(void) {
    uint64_t quiet = milliseconds();
    char *text[ENDS][2];
    size_t sizes[ENDS][2];
    FILE *files[ENDS][2], *all = out;
    for (int at = 0; at < ENDS; at++)
        for (int queue = 0; queue < 2; queue++) files[at][queue] = open_memstream(&text[at][queue], &sizes[at][queue]);
    for (int looks = 0;; looks++) { /* a busy machine may take its time between two of them */
        int some = 0, owed = 0;
        for (int at = 0; at < ENDS; at++) {
            struct end *e = &ends[at];
            struct ibv_wc wc;
            while (e->cq && ibv_poll_cq(e->cq, 1, &wc) == 1) {
                int receive = wc.wr_id >> 32 != 0;
                some = 1;
                if (receive) (e->receives--, e->due--);
                else e->owed--;
                out = files[at][receive];
                if (wc.status != IBV_WC_SUCCESS)
                    say(" %d: %s%u %s", at, receive ? "r" : "s", (unsigned)wc.wr_id, ibv_wc_status_str(wc.status));
                else if (receive)
                    say(" %d: r%u ok %s, %u bytes, flags %x, immediate %x, of %d", at, (unsigned)wc.wr_id, kind_of(&wc),
                        wc.byte_len, wc.wc_flags, wc.wc_flags & IBV_WC_WITH_IMM ? ntohl(wc.imm_data) : 0,
                        ends[1].qp && wc.src_qp == ends[1].qp->qp_num);
                else
                    say(" %d: s%u ok %s", at, (unsigned)wc.wr_id, kind_of(&wc));
                out = all;
            }
            owed += e->owed > 0 || e->due > 0;
        }
        uint64_t now = milliseconds();
        if (some) (quiet = now, looks = 0);
        if (now - quiet >= (owed ? 3000 : 10) && looks > 20) break;
        if (!some) usleep(200);
    }
    for (int at = 0; at < ENDS; at++) {
        for (int queue = 0; queue < 2; queue++) {
            fclose(files[at][queue]);
            fputs(text[at][queue], out);
            free(text[at][queue]);
        }
        if (ends[at].owed > 0) say(" %d: %d datagrams have no completion", at, ends[at].owed);
        ends[at].owed = ends[at].due = 0;
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        if (ends[at].qp && !ibv_query_qp(ends[at].qp, &attr, IBV_QP_STATE, &init)) {
            if (ends[at].state != attr.qp_state) say(" %d: state %d", at, attr.qp_state);
            ends[at].state = attr.qp_state;
        }
    }
}

static int move(int at, enum ibv_qp_state to) {
    struct end *e = &ends[at];
    struct ibv_qp_attr attr = {.qp_state = to, .port_num = 1, .qkey = e->key};
    int mask = IBV_QP_STATE;
    if (to == IBV_QPS_INIT) mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    if (to == IBV_QPS_RTS) mask |= IBV_QP_SQ_PSN;
    int error = ibv_modify_qp(e->qp, &attr, mask);
    if (!error) e->state = to;
    return error;
}

static void begin(int at) {
    for (int to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++) say("%d to %d: %s", at, to, name(move(at, (enum ibv_qp_state)to)));
}

static struct ibv_sge piece(struct end *e, uint32_t length) {
    return (struct ibv_sge){(uintptr_t)e->bytes + any(SPACE - length + 1), length, e->mr->lkey};
}

static void receive(int at) {
    struct end *e = &ends[at];
    if (e->receives >= DEPTH) return;
    struct ibv_sge list[PIECES] = {piece(e, !right && one_in(8) ? any(HEADER + 200) : HEADER + 1024)};
    if (!right && one_in(25)) list[0].lkey ^= 0x40000000;
    struct ibv_recv_wr wr = {.wr_id = 1ull << 32 | e->next, .sg_list = list, .num_sge = 1}, *bad = NULL;
    if (one_in(30)) wr.num_sge = PIECES + 2;
    int error = wr.num_sge > PIECES || e->state == IBV_QPS_RTS || e->state == IBV_QPS_INIT
                    ? ibv_post_recv(e->qp, &wr, &bad)
                    : -1;
    if (error < 0) return;
    say("receive r%u of %d, %u bytes: %s", e->next, at, list[0].length, name(error));
    e->next++;
    if (!error) e->receives++;
}

static void post(int at) {
    struct end *e = &ends[at], *to = &ends[any(ENDS)];
    uint32_t length = one_in(8) ? 0 : one_in(10) ? 1024 : any(600);
    int mistake = one_in(6) ? 1 + (int)any(right ? 1 : 6) : 0, pieces = 1;
    if (mistake == 2) length = mtu + 1 + any(2000);
    struct ibv_sge list[PIECES + 2] = {piece(e, length)};
    struct ibv_send_wr wr = {.wr_id = e->next,
                             .sg_list = list,
                             .opcode = one_in(3) ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED | (one_in(4) ? IBV_SEND_SOLICITED : 0),
                             .wr.ud = {.ah = e->ah, .remote_qpn = to->qp->qp_num, .remote_qkey = to->key}},
                       *bad = NULL;
    if (wr.opcode == IBV_WR_SEND_WITH_IMM) wr.imm_data = htonl(0xABC00000 + e->next);
    if (mistake == 1) wr.wr.ud.remote_qkey ^= 1;
    if (mistake == 3) list[0].lkey ^= 0x40000000;
    if (mistake == 4) pieces = PIECES + 2;
    if (mistake == 5) wr.opcode = IBV_WR_RDMA_WRITE;
    if (mistake == 6) wr.opcode = IBV_WR_RDMA_READ;
    if (length <= INLINE && one_in(2) && mistake != 3) wr.send_flags |= IBV_SEND_INLINE;
    wr.num_sge = pieces;
    int error = ibv_post_send(e->qp, &wr, &bad);
    say("post s%u of %d to %d: opcode %d, %u bytes, mistake %d: %s", e->next, at, (int)(to - ends), wr.opcode,
        mistake == 2 ? 0 : length, mistake, name(error));
    e->next++;
    if (!error) e->owed++;
    if (!error && right && !mistake) to->due++;
}

void datagrams(void) {
    struct ibv_port_attr port;
    if (ibv_query_port(context, 1, &port)) return;
    mtu = 128u << port.active_mtu;
    right = !one_in(5);
    for (int at = 0; at < ENDS; at++) {
        struct end *e = &ends[at];
        memset(e, 0, sizeof *e);
        e->key = KEY + (uint32_t)at;
        e->pd = ibv_alloc_pd(context);
        e->cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
        struct ibv_qp_init_attr init = {
            .send_cq = e->cq, .recv_cq = e->cq, .cap = {DEPTH, DEPTH, PIECES, PIECES, INLINE}, .qp_type = IBV_QPT_UD};
        e->qp = ibv_create_qp(e->pd, &init);
        e->bytes = aligned_alloc(4096, SPACE);
        fill(e->bytes, SPACE);
        e->mr = ibv_reg_mr(e->pd, e->bytes, SPACE, IBV_ACCESS_LOCAL_WRITE);
        struct ibv_ah_attr handle = {.grh = {.dgid = gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 64},
                                     .is_global = 1,
                                     .port_num = 1};
        e->ah = ibv_create_ah(e->pd, &handle);
        say("queue pair of %d: %s, handle %s", at, made(e->qp), made(e->ah));
        begin(at);
    }
    for (step = 1; step <= ROUNDS; step++) {
        int at = (int)any(ENDS);
        switch (any(8)) {
        case 0: receive(at); break;
        case 1:
            settle();
            if (ends[at].state != IBV_QPS_RTS || one_in(6)) {
                say("%d to RESET: %s", at, name(move(at, IBV_QPS_RESET)));
                ends[at].receives = 0;
                settle();
                begin(at);
            }
            break;
        case 2:
            if (!one_in(6)) break;
            settle();
            say("%d to ERR: %s", at, name(move(at, IBV_QPS_ERR)));
            settle();
            break;
        default:
            if (ends[0].state != IBV_QPS_RTS || ends[1].state != IBV_QPS_RTS) break;
            for (int side = 0; side < ENDS; side++)
                while (ends[side].receives < 4) receive(side);
            for (int more = 1 + (int)any(3); more > 0; more--) post(at);
            settle();
        }
    }
    step = ROUNDS + 1;
    for (int round = 0; round < 3; round++)
        for (int at = 0; at < ENDS; at++) {
            struct end *e = &ends[at];
            int all = round == 2;
            if (all || one_in(3)) DESTROY("completion queue", ibv_destroy_cq, e->cq)
            if (all || one_in(3)) DESTROY("handle", ibv_destroy_ah, e->ah)
            if (all || one_in(3)) DESTROY("queue pair", ibv_destroy_qp, e->qp)
            if (all || one_in(3)) DESTROY("domain", ibv_dealloc_pd, e->pd)
            if (all || one_in(3)) DESTROY("region", ibv_dereg_mr, e->mr)
        }
    for (int at = 0; at < ENDS; at++) {
        struct end *e = &ends[at];
        DESTROY("completion queue at last", ibv_destroy_cq, e->cq)
        DESTROY("domain at last", ibv_dealloc_pd, e->pd)
        free(e->bytes);
    }
}
