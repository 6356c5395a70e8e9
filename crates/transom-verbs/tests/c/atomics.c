/* Atomics, between two processes: the child answers, the parent asks. */
#include "common.h"
#include "processes.h"
static bool child;
struct id {
    uint32_t qpn, key, no_atomics;
    uint64_t addr;
    union ibv_gid gid;
};
static struct end e;
static struct id peer;
static struct tune tune;
#define ATOMIC (REMOTE | IBV_ACCESS_REMOTE_ATOMIC)
#define TURNS 2000
static void start_over(void) {
    qp_state(e.qp, IBV_QPS_RESET);
    wait_for_each_other();
    qp_up(e.qp, peer.gid, peer.qpn, tune);
    wait_for_each_other();
}
static int post_atomic(uint64_t id, int op, int flags, void *old, uint32_t len, uint32_t lkey,
                       uint64_t raddr, uint32_t rkey, uint64_t compare_add, uint64_t swap) {
    struct ibv_sge s = {(uintptr_t)old, len, lkey};
    struct ibv_send_wr w = {.wr_id = id,
                            .sg_list = &s,
                            .num_sge = 1,
                            .opcode = op,
                            .send_flags = flags},
                       *bad;
    w.wr.atomic.remote_addr = raddr;
    w.wr.atomic.rkey = rkey;
    w.wr.atomic.compare_add = compare_add;
    w.wr.atomic.swap = swap;
    return ibv_post_send(e.qp, &w, &bad);
}
static uint64_t *words(void) {
    return (uint64_t *)e.buf;
}
/* The events of the refusals that follow, and a word that nothing has changed. */
static void refuse(int event) {
    struct ibv_async_event ev;
    int seen = -1;
    while (seen != event) {
        seen = async_event(e.ctx, HANG, &ev);
        CHECK("V104", seen == event || seen == IBV_EVENT_COMM_EST, "event %d, wanted %d", seen, event);
        if (seen < 0)
            break;
        ibv_ack_async_event(&ev);
    }
    CHECK("V92", state_of(e.qp) == IBV_QPS_ERR, "state");
    CHECK("V95", words()[0] == 5 && words()[1] == 6, "words %lx %lx", words()[0], words()[1]);
    wait_for_each_other();
    start_over();
}
static void serve(void) {
    words()[0] = 41;
    words()[1] = 0;
    wait_for_each_other();
    /* The owner's program adds, too. */
    for (int i = 0; i < TURNS; i++)
        __atomic_fetch_add(&words()[1], 1, __ATOMIC_RELAXED);
    wait_for_each_other();
    CHECK("V95", words()[0] == 0xF00DFACE12345678, "swapped: %lx", words()[0]);
    CHECK("V95", words()[1] == 2 * TURNS, "added: %lu", words()[1]);
    words()[0] = 5;
    words()[1] = 6;
    wait_for_each_other();
    refuse(IBV_EVENT_QP_ACCESS_ERR); /* another key */
    refuse(IBV_EVENT_QP_ACCESS_ERR); /* behind the end */
    refuse(IBV_EVENT_QP_REQ_ERR);    /* no multiple of 8 */
    tune.access = REMOTE;
    start_over();
    refuse(IBV_EVENT_QP_REQ_ERR); /* the queue pair's own flags */
    tune.access = ATOMIC;
    tune.dest_rd = 0;
    start_over();
    refuse(IBV_EVENT_QP_REQ_ERR); /* none are served */
}
static uint64_t old_at(int at) {
    return ((uint64_t *)e.buf)[at];
}
static void refused(uint64_t raddr, uint32_t rkey, int status) {
    memset(e.buf, 7, 64);
    SUCCEEDS(post_atomic(30, IBV_WR_ATOMIC_FETCH_AND_ADD, SIG, e.buf, 8, e.mr->lkey, raddr, rkey, 1, 0));
    SUCCEEDS(post_atomic(31, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, e.buf, 8, e.mr->lkey, peer.addr,
                         peer.key, 1, 0));
    EXPECT_WC("V92", e.scq, 30, status);
    EXPECT_WC("V92", e.scq, 31, IBV_WC_WR_FLUSH_ERR);
    CHECK("V95", old_at(0) == 0x0707070707070707, "nothing is fetched");
    wait_for_each_other();
    start_over();
}
static void ask(void) {
    int A = IBV_WR_ATOMIC_FETCH_AND_ADD, S = IBV_WR_ATOMIC_CMP_AND_SWP;
    uint32_t k = e.mr->lkey;
    wait_for_each_other();
    /* A word that holds something else is left alone; then it is swapped; the answers come in order. */
    SUCCEEDS(post_atomic(1, S, SIG, e.buf, 8, k, peer.addr, peer.key, 40, 1));
    SUCCEEDS(post_atomic(2, A, 0, e.buf + 8, 8, k, peer.addr, peer.key, -1, 0));
    SUCCEEDS(post_atomic(3, S, SIG | IBV_SEND_FENCE, e.buf + 16, 8, k, peer.addr, peer.key, 40,
                         0xF00DFACE12345678));
    struct ibv_wc w = EXPECT_WC("V84", e.scq, 1, IBV_WC_SUCCESS);
    CHECK("V84", w.opcode == IBV_WC_COMP_SWAP && w.byte_len == 8, "%d, %u", w.opcode, w.byte_len);
    w = EXPECT_WC("V84", e.scq, 3, IBV_WC_SUCCESS);
    CHECK("V95", old_at(0) == 41 && old_at(1) == 41 && old_at(2) == 40, "%lu %lu %lu", old_at(0),
          old_at(1), old_at(2));
    uint64_t last = 0;
    for (int i = 0; i < TURNS; i++) {
        SUCCEEDS(post_atomic(4, A, SIG, e.buf, 8, k, peer.addr + 8, peer.key, 1, 0));
        w = EXPECT_WC("V84", e.scq, 4, IBV_WC_SUCCESS);
        CHECK("V84", w.opcode == IBV_WC_FETCH_ADD && w.byte_len == 8, "%d, %u", w.opcode, w.byte_len);
        CHECK("V95", i == 0 || old_at(0) > last, "%lu after %lu", old_at(0), last);
        last = old_at(0);
    }
    wait_for_each_other();
    wait_for_each_other();
    /* The wrong length, or no place for what comes, is this side's fault: nothing is sent. */
    for (int i = 0; i < 3; i++) {
        struct ibv_mr *ro = MADE(ibv_reg_mr(e.pd, e.buf, 4096, IBV_ACCESS_REMOTE_READ));
        SUCCEEDS(post_atomic(20 + i, i ? A : S, SIG, e.buf, i == 0 ? 16 : i == 1 ? 4 : 8,
                             i == 2 ? ro->lkey : k, peer.addr, peer.key, 5, 0));
        EXPECT_WC("V95", e.scq, 20 + i, i == 2 ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_LEN_ERR);
        SUCCEEDS(ibv_dereg_mr(ro));
        CHECK("V92", state_of(e.qp) == IBV_QPS_ERR, "state");
        qp_state(e.qp, IBV_QPS_RESET);
        qp_up(e.qp, peer.gid, peer.qpn, tune);
    }
    refused(peer.addr, peer.no_atomics, IBV_WC_REM_ACCESS_ERR);
    refused(peer.addr + e.len - 4, peer.key, IBV_WC_REM_ACCESS_ERR);
    refused(peer.addr + 4, peer.key, IBV_WC_REM_INV_REQ_ERR);
    start_over();
    refused(peer.addr, peer.key, IBV_WC_REM_INV_REQ_ERR);
    start_over();
    refused(peer.addr, peer.key, IBV_WC_REM_INV_REQ_ERR);
}
/* The wr_* interface, on a queue pair that is its own peer. */
static void ask_by_wr(void) {
    struct ibv_qp_init_attr_ex x = {
        .send_cq = e.scq,
        .recv_cq = e.rcq,
        .qp_type = IBV_QPT_RC,
        .cap = {8, 1, 2, 1, 0},
        .pd = e.pd,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD};
    struct ibv_qp *p = MADE(ibv_create_qp_ex(e.ctx, &x));
    struct ibv_qp_ex *q = MADE(ibv_qp_to_qp_ex(p));
    CHECK("V91", q->wr_atomic_cmp_swp && q->wr_atomic_fetch_add && !q->wr_rdma_read, "pointers");
    qp_up(p, e.gid, p->qp_num, tune);
    uint64_t *word = words() + 100;
    uintptr_t at = (uintptr_t)word;
    *word = 1;
    struct ibv_sge split[2] = {{(uintptr_t)e.buf, 3, e.mr->lkey}, {(uintptr_t)e.buf + 3, 5, e.mr->lkey}};
    ibv_wr_start(q);
    q->wr_id = 1, q->wr_flags = SIG;
    ibv_wr_atomic_fetch_add(q, e.mr->rkey, at, 0x0102030405060708);
    ibv_wr_set_sge_list(q, 2, split);
    q->wr_id = 2;
    ibv_wr_atomic_cmp_swp(q, e.mr->rkey, at, 0x0102030405060709, 9);
    ibv_wr_set_sge(q, e.mr->lkey, (uintptr_t)e.buf + 8, 8);
    SUCCEEDS(ibv_wr_complete(q));
    EXPECT_WC("V91", e.scq, 1, IBV_WC_SUCCESS);
    EXPECT_WC("V91", e.scq, 2, IBV_WC_SUCCESS);
    CHECK("V78", *word == 9 && old_at(0) == 1 && old_at(1) == 0x0102030405060709, "%lx %lx %lx",
          *word, old_at(0), old_at(1));
    /* Inline data makes no sense. */
    ibv_wr_start(q);
    q->wr_id = 3;
    ibv_wr_atomic_fetch_add(q, e.mr->rkey, at, 1);
    ibv_wr_set_inline_data(q, e.buf, 8);
    FAILS("V91", ibv_wr_complete(q), EINVAL);
    ibv_wr_start(q);
    ibv_wr_atomic_fetch_add(q, e.mr->rkey, at, 1);
    ibv_wr_set_sge(q, e.mr->lkey, (uintptr_t)e.buf, 7);
    SUCCEEDS(ibv_wr_complete(q));
    EXPECT_WC("V95", e.scq, 3, IBV_WC_LOC_LEN_ERR);
    CHECK("V95", *word == 9, "%lx", *word);
    SUCCEEDS(ibv_destroy_qp(p));
}
int main(void) {
    int sv[2];
    tune = DEF;
    tune.access = ATOMIC;
    socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
    pid_t pid = fork();
    child = pid == 0;
    sock = sv[child];
    close(sv[!child]);
    open_end(&e, NULL, ALL | IBV_ACCESS_REMOTE_ATOMIC);
    struct ibv_mr *other = MADE(ibv_reg_mr(e.pd, e.buf, 4096, ALL));
    struct id me = {e.qp->qp_num, e.mr->rkey, other->rkey, (uintptr_t)e.buf, e.gid};
    send_all(&me, sizeof me);
    receive_all(&peer, sizeof peer);
    qp_up(e.qp, peer.gid, peer.qpn, tune);
    wait_for_each_other();
    if (child) {
        serve();
        _exit(finish());
    }
    ask();
    ask_by_wr();
    int status = 0;
    waitpid(pid, &status, 0);
    CHECK("V95", WIFEXITED(status) && WEXITSTATUS(status) == 0, "the other process: %d", status);
    return finish();
}
