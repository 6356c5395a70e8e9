/* Queue pairs of type UC, in one process: `a` sends, `b` receives. What is lost is known by what was
 * sent behind it and has arrived. */
#include "common.h"
#define M_RTR_UC (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
static struct end a, b;

static struct ibv_qp *uc_qp(struct end *e) {
    struct ibv_qp_init_attr i = {.send_cq = e->scq,
                                 .recv_cq = e->rcq,
                                 .cap = {16, 16, 4, 4, 64},
                                 .qp_type = IBV_QPT_UC};
    return MADE(ibv_create_qp(e->pd, &i));
}
static void uc_rtr(struct ibv_qp *q, union ibv_gid gid, uint32_t dest) {
    struct ibv_qp_attr at = a_rtr(gid, dest, DEF);
    SUCCEEDS(ibv_modify_qp(q, &at, M_RTR_UC));
}
static void uc_rts(struct ibv_qp *q) {
    struct ibv_qp_attr at = {.qp_state = IBV_QPS_RTS, .sq_psn = 0x111};
    SUCCEEDS(ibv_modify_qp(q, &at, IBV_QP_STATE | IBV_QP_SQ_PSN));
}
static void uc_up(struct ibv_qp *q, union ibv_gid gid, uint32_t dest) {
    qp_init(q, REMOTE);
    uc_rtr(q, gid, dest);
    uc_rts(q);
}
/* A request of a's that has succeeded, whatever became of it. */
static void sent(const char *rule, uint64_t id, int op, void *p, uint32_t length, uint64_t raddr,
                 uint32_t rkey) {
    SUCCEEDS(post(&a, id, op, SIG, p, length, a.mr->lkey, raddr, rkey));
    EXPECT_WC(rule, a.scq, id, IBV_WC_SUCCESS);
}
/* Both begin anew, and have a stream: until there is one, a message is lost after a second. */
static void anew(void) {
    qp_state(a.qp, IBV_QPS_RESET);
    qp_state(b.qp, IBV_QPS_RESET);
    uc_up(a.qp, b.gid, b.qp->qp_num);
    uc_up(b.qp, a.gid, a.qp->qp_num);
    SUCCEEDS(post_recv(&b, 90, b.buf + 60000, 8, b.mr->lkey));
    struct ibv_wc w;
    int n = 0;
    for (double until = now() + HANG / 1000; !n && now() < until;) {
        sent("V96", 91, IBV_WR_SEND, a.buf, 8, 0, 0);
        n = poll_one(b.rcq, &w, 2000);
    }
    CHECK("V96", n == 1 && w.wr_id == 90 && !w.status, "%d", n);
}
/* Everything that was sent before has been taken or dropped. */
static void arrives(uint64_t id) {
    SUCCEEDS(post_recv(&b, id, b.buf + 60000, 8, b.mr->lkey));
    sent("V96", id + 1000, IBV_WR_SEND, a.buf, 8, 0, 0);
    EXPECT_WC("V96", b.rcq, id, IBV_WC_SUCCESS);
}
static void lives(void) {
    CHECK("V96", state_of(a.qp) == IBV_QPS_RTS, "a is in %d", state_of(a.qp));
    CHECK("V96", state_of(b.qp) == IBV_QPS_RTS, "b is in %d", state_of(b.qp));
    struct ibv_async_event ev;
    int type = async_event(a.ctx, 0, &ev);
    if (type >= 0)
        ibv_ack_async_event(&ev);
    CHECK("V96", type < 0 || type == IBV_EVENT_COMM_EST, "event %d", type);
}

static void states(void) {
    struct ibv_qp *q = uc_qp(&a);
    qp_init(q, REMOTE);
    struct ibv_qp_attr at = a_rtr(b.gid, b.qp->qp_num, DEF);
    FAILS("V61", ibv_modify_qp(q, &at, M_RTR), EINVAL); /* attributes of RC */
    FAILS("V61", ibv_modify_qp(q, &at, M_RTR_UC & ~IBV_QP_RQ_PSN), EINVAL);
    SUCCEEDS(ibv_modify_qp(q, &at, M_RTR_UC));
    struct ibv_qp_attr rts = a_rts(DEF);
    FAILS("V61", ibv_modify_qp(q, &rts, M_RTS), EINVAL);
    uc_rts(q);
    struct ibv_qp_init_attr init;
    SUCCEEDS(ibv_query_qp(q, &at, 0, &init));
    CHECK("V64", at.qp_state == IBV_QPS_RTS && init.qp_type == IBV_QPT_UC, "%d %d", at.qp_state,
          init.qp_type);
    SUCCEEDS(ibv_destroy_qp(q));
}

static void messages(void) {
    memset(a.buf, 7, a.len);
    memset(b.buf, 0, b.len);
    uint64_t at = (uintptr_t)b.buf;
    sent("V96", 1, IBV_WR_RDMA_WRITE, a.buf, 4000, at, b.mr->rkey);
    SUCCEEDS(post_recv(&b, 10, b.buf + 5000, 5000, b.mr->lkey));
    sent("V96", 2, IBV_WR_SEND, a.buf, 5000, 0, 0);
    struct ibv_wc w = EXPECT_WC("V96", b.rcq, 10, IBV_WC_SUCCESS);
    CHECK("V84", w.byte_len == 5000 && w.opcode == IBV_WC_RECV, "%u %d", w.byte_len, w.opcode);
    CHECK("V88", !memcmp(a.buf, b.buf, 4000) && !b.buf[4000], "the Write");
    CHECK("V88", !memcmp(a.buf, b.buf + 5000, 5000), "the Send");
    SUCCEEDS(post_recv(&b, 11, NULL, 0, 0));
    struct ibv_sge s = {(uintptr_t)a.buf, 8, a.mr->lkey};
    struct ibv_send_wr i = {.wr_id = 3,
                            .sg_list = &s,
                            .num_sge = 1,
                            .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                            .send_flags = SIG,
                            .imm_data = htonl(0x1234)},
                       *bad;
    i.wr.rdma.remote_addr = at + 4000;
    i.wr.rdma.rkey = b.mr->rkey;
    SUCCEEDS(ibv_post_send(a.qp, &i, &bad));
    EXPECT_WC("V96", a.scq, 3, IBV_WC_SUCCESS);
    w = EXPECT_WC("V87", b.rcq, 11, IBV_WC_SUCCESS);
    CHECK("V87", w.opcode == IBV_WC_RECV_RDMA_WITH_IMM && w.imm_data == htonl(0x1234), "%d %x",
          w.opcode, w.imm_data);
    CHECK("V87", w.byte_len == 8 && b.buf[4007] == 7, "%u", w.byte_len);
    lives();
}

/* Each is lost, and nothing else is. */
static void dropped(void) {
    uint64_t at = (uintptr_t)b.buf;
    memset(b.buf, 0, b.len);
    sent("V96", 1, IBV_WR_RDMA_WRITE, a.buf, 9, at + b.len - 8, b.mr->rkey); /* past the end */
    arrives(20);
    sent("V96", 2, IBV_WR_RDMA_WRITE, a.buf, 60000, at + 8192, b.mr->rkey); /* far past it */
    arrives(21);
    CHECK("V96", !b.buf[b.len - 1] && !b.buf[8192], "a refused Write has placed something");
    SUCCEEDS(post_recv(&b, 30, b.buf, 8, b.mr->lkey));
    sent("V96", 3, IBV_WR_SEND, a.buf, 9, 0, 0); /* longer than its receive */
    sent("V96", 4, IBV_WR_SEND, a.buf, 7, 0, 0);
    struct ibv_wc w = EXPECT_WC("V96", b.rcq, 30, IBV_WC_SUCCESS);
    CHECK("V96", w.byte_len == 7, "%u", w.byte_len);
    sent("V96", 5, IBV_WR_SEND, a.buf, 8, 0, 0); /* no receive */
    EXPECT_NONE("V96", b.rcq, 0);
    arrives(31);
    EXPECT_NONE("V96", b.rcq, 0);
    /* A key of a region that is gone. */
    struct ibv_mr *gone = MADE(ibv_reg_mr(b.pd, b.buf, 4096, ALL));
    uint32_t key = gone->rkey;
    SUCCEEDS(ibv_dereg_mr(gone));
    sent("V96", 6, IBV_WR_RDMA_WRITE, a.buf, 8, at, key);
    arrives(32);
    /* Operations that the queue pair may not do. */
    struct ibv_qp_attr access = {.qp_access_flags = 0};
    SUCCEEDS(ibv_modify_qp(b.qp, &access, IBV_QP_ACCESS_FLAGS));
    memset(b.buf, 0, 8);
    sent("V93", 7, IBV_WR_RDMA_WRITE, a.buf, 8, at, b.mr->rkey);
    arrives(33);
    CHECK("V93", !b.buf[0], "placed without the queue pair's leave");
    lives();
}

/* A key that was never issued costs the stream; another one follows. */
static void guessed(void) {
    anew();
    arrives(40);
    sent("V96", 1, IBV_WR_RDMA_WRITE, a.buf, 8, (uintptr_t)b.buf, 0xdeadbe00);
    SUCCEEDS(post_recv(&b, 41, b.buf, 8, b.mr->lkey));
    struct ibv_wc w;
    int n = 0;
    for (double until = now() + HANG / 1000; !n && now() < until;) {
        sent("V96", 2, IBV_WR_SEND, a.buf, 8, 0, 0); /* lost until there is a stream again */
        n = poll_one(b.rcq, &w, 50);
    }
    CHECK("V96", n == 1 && w.wr_id == 41 && !w.status, "%d", n);
    lives();
}

/* Errors of a's own stop its sends, not its receives. */
static void own_errors(void) {
    for (int which = 0; which < 4; which++) {
        anew();
        SUCCEEDS(post_recv(&a, 50, a.buf, 8, a.mr->lkey));
        arrives(51);
        uint32_t lkey = which == 0 ? a.mr->lkey ^ 0x100 : a.mr->lkey;
        int op = which == 1   ? IBV_WR_RDMA_READ
                 : which == 2 ? IBV_WR_ATOMIC_FETCH_AND_ADD
                              : IBV_WR_SEND;
        struct ibv_sge s = {(uintptr_t)a.buf, 8, lkey};
        if (which == 3)
            s.addr = (uintptr_t)a.buf + a.len - 7;
        struct ibv_send_wr r = {
            .wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = op, .send_flags = SIG},
                           *bad;
        r.wr.rdma.remote_addr = (uintptr_t)b.buf;
        r.wr.rdma.rkey = b.mr->rkey;
        if (which == 2) {
            r.wr.atomic.remote_addr = (uintptr_t)b.buf;
            r.wr.atomic.rkey = b.mr->rkey;
        }
        SUCCEEDS(ibv_post_send(a.qp, &r, &bad));
        int status = which == 1 || which == 2 ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_PROT_ERR;
        EXPECT_WC("V81", a.scq, 1, status);
        CHECK("V70", state_of(a.qp) == IBV_QPS_SQE, "%d: state %d", which, state_of(a.qp));
        SUCCEEDS(post(&a, 2, IBV_WR_SEND, SIG, a.buf, 8, a.mr->lkey, 0, 0));
        EXPECT_WC("V70", a.scq, 2, IBV_WC_WR_FLUSH_ERR);
        SUCCEEDS(post(&b, 3, IBV_WR_SEND, SIG, b.buf, 8, b.mr->lkey, 0, 0));
        EXPECT_WC("V70", b.scq, 3, IBV_WC_SUCCESS);
        EXPECT_WC("V70", a.rcq, 50, IBV_WC_SUCCESS);
        struct ibv_qp_attr wrong = {.qp_state = IBV_QPS_SQD};
        FAILS("V61", ibv_modify_qp(a.qp, &wrong, IBV_QP_STATE), EINVAL);
        qp_state(a.qp, IBV_QPS_RTS);
        arrives(52);
        lives();
    }
}

/* A peer that goes away costs nothing but what was sent to it. */
static void alone(void) {
    anew();
    arrives(60);
    qp_state(b.qp, IBV_QPS_RESET);
    SUCCEEDS(post_recv(&a, 61, a.buf, 8, a.mr->lkey));
    for (uint64_t id = 1; id < 4; id++)
        sent("V96", id, IBV_WR_SEND, a.buf, 8, 0, 0);
    CHECK("V96", state_of(a.qp) == IBV_QPS_RTS, "state %d", state_of(a.qp));
    EXPECT_NONE("V96", a.rcq, 0);
    qp_state(a.qp, IBV_QPS_ERR);
    EXPECT_WC("V67", a.rcq, 61, IBV_WC_WR_FLUSH_ERR);
    SUCCEEDS(post(&a, 5, IBV_WR_SEND, SIG, a.buf, 8, a.mr->lkey, 0, 0));
    EXPECT_WC("V67", a.scq, 5, IBV_WC_WR_FLUSH_ERR);
    /* A reliable queue pair is none of its peers. */
    struct ibv_qp *uc = b.qp;
    b.qp = new_qp(&b);
    qp_state(a.qp, IBV_QPS_RESET);
    uc_up(a.qp, b.gid, b.qp->qp_num);
    qp_up(b.qp, a.gid, a.qp->qp_num, DEF);
    SUCCEEDS(post_recv(&b, 70, b.buf, 8, b.mr->lkey));
    sent("V75", 6, IBV_WR_SEND, a.buf, 8, 0, 0);
    EXPECT_NONE("V75", b.rcq, 0);
    SUCCEEDS(ibv_destroy_qp(b.qp));
    b.qp = uc;
}

int main(void) {
    open_end(&a, NULL, ALL);
    open_end(&b, a.ctx, ALL);
    SUCCEEDS(ibv_destroy_qp(a.qp));
    SUCCEEDS(ibv_destroy_qp(b.qp));
    a.qp = uc_qp(&a);
    b.qp = uc_qp(&b);
    states();
    anew();
    messages();
    dropped();
    guessed();
    own_errors();
    alone();
    return finish();
}
