/* Extended reliable connections: a request names the shared receive queue of its target; one receive
 * side serves all queues of an XRC domain. */
#include "common.h"
#include <sched.h>
#include <sys/syscall.h>
/* A domain with two shared receive queues, each with a protection domain, a completion queue and memory
 * of its own, and the receive side of a connection. */
struct place {
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_mr *mr;
    char *buf;
    uint32_t number;
};
enum { LONG = 200000 };
static struct ibv_context *ctx;
static struct ibv_xrcd *xrcd;
static struct place at[2];
static struct ibv_qp *in, *out;
static struct end e; /* of the sender; its queue pair of type RC is not used */
static union ibv_gid gid;
static struct ibv_xrcd *open_domain(struct ibv_context *c, int fd, int flags) {
    struct ibv_xrcd_init_attr a = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = flags};
    return ibv_open_xrcd(c, &a);
}
static struct ibv_srq *new_srq(struct ibv_pd *pd, struct ibv_xrcd *d, struct ibv_cq *cq, int less) {
    struct ibv_srq_init_attr_ex a = {
        .attr = {.max_wr = 16, .max_sge = 2},
        .srq_type = IBV_SRQT_XRC,
        .pd = pd,
        .xrcd = d,
        .cq = cq,
        .comp_mask = (IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                      IBV_SRQ_INIT_ATTR_CQ) &
                     ~less};
    return ibv_create_srq_ex(pd->context, &a);
}
static struct ibv_qp *receive_side(struct ibv_context *c, struct ibv_xrcd *d) {
    struct ibv_qp_init_attr_ex a = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = d};
    return ibv_create_qp_ex(c, &a);
}
static struct ibv_qp *send_side(struct end *e, uint64_t ops) {
    struct ibv_qp_init_attr_ex a = {.qp_type = IBV_QPT_XRC_SEND,
                                    .send_cq = e->scq,
                                    .cap = {.max_send_wr = 16, .max_send_sge = 2},
                                    .comp_mask = IBV_QP_INIT_ATTR_PD |
                                                 (ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
                                    .pd = e->pd,
                                    .send_ops_flags = ops};
    return ibv_create_qp_ex(e->ctx, &a);
}
#define M_RTR_SEND \
    (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define M_RTS_RECV (IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN)
static void up(struct ibv_qp *receiver, union ibv_gid rg, struct ibv_qp *sender, union ibv_gid sg) {
    int access = REMOTE | IBV_ACCESS_REMOTE_ATOMIC;
    qp_init(receiver, access);
    qp_rtr(receiver, sg, sender->qp_num, DEF);
    struct ibv_qp_attr a = a_rts(DEF);
    SUCCEEDS(ibv_modify_qp(receiver, &a, M_RTS_RECV));
    qp_init(sender, 0);
    a = a_rtr(rg, receiver->qp_num, DEF);
    SUCCEEDS(ibv_modify_qp(sender, &a, M_RTR_SEND));
    qp_rts(sender, DEF);
}
static void again(void) {
    qp_state(in, IBV_QPS_RESET);
    qp_state(out, IBV_QPS_RESET);
    up(in, gid, out, e.gid);
}
static int post_to(struct ibv_qp *q, uint64_t id, uint32_t number, int op, uint32_t len,
                   uint64_t raddr, uint32_t rkey) {
    struct ibv_sge s = {(uintptr_t)e.buf, len, e.mr->lkey};
    struct ibv_send_wr w = {.wr_id = id,
                            .sg_list = &s,
                            .num_sge = 1,
                            .opcode = op,
                            .send_flags = SIG,
                            .imm_data = htonl(0x01020304)},
                       *bad;
    w.qp_type.xrc.remote_srqn = number;
    if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        w.wr.atomic.remote_addr = raddr;
        w.wr.atomic.rkey = rkey;
        w.wr.atomic.compare_add = 3;
    } else {
        w.wr.rdma.remote_addr = raddr;
        w.wr.rdma.rkey = rkey;
    }
    return ibv_post_send(q, &w, &bad);
}
static int post_place(struct place *p, uint64_t id, uint32_t len) {
    struct ibv_sge s = {(uintptr_t)p->buf, len, p->mr->lkey};
    struct ibv_recv_wr w = {.wr_id = id, .sg_list = &s, .num_sge = 1}, *bad;
    return ibv_post_srq_recv(p->srq, &w, &bad);
}
static void make_place(struct place *p) {
    p->pd = MADE(ibv_alloc_pd(ctx));
    p->cq = MADE(ibv_create_cq(ctx, 63, p, NULL, 0));
    p->buf = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    p->mr = MADE(ibv_reg_mr(p->pd, p->buf, LONG, ALL | IBV_ACCESS_REMOTE_ATOMIC));
    p->srq = MADE(new_srq(p->pd, xrcd, p->cq, 0));
    SUCCEEDS(ibv_get_srq_num(p->srq, &p->number));
}
static void domains(void) {
    struct ibv_device_attr da;
    SUCCEEDS(ibv_query_device(ctx, &da));
    CHECK("V155", da.device_cap_flags & IBV_DEVICE_XRC, "%x", da.device_cap_flags);
    struct ibv_xrcd_init_attr a = {.comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = -1};
    NULLS("V155", ibv_open_xrcd(ctx, &a), EINVAL);
    a.comp_mask = IBV_XRCD_INIT_ATTR_OFLAGS;
    NULLS("V155", ibv_open_xrcd(ctx, &a), EINVAL);
    a.comp_mask = 7;
    NULLS("V155", ibv_open_xrcd(ctx, &a), EOPNOTSUPP);
    NULLS("V155", open_domain(ctx, 1000000, O_CREAT), EBADF);
    char name[] = "/tmp/xrc-XXXXXX";
    int fd = mkstemp(name), same = open(name, O_RDONLY), other = memfd_create("other", 0);
    unlink(name);
    NULLS("V155", open_domain(ctx, fd, 0), EAGAIN);
    struct ibv_xrcd *first = MADE(open_domain(ctx, fd, O_CREAT | O_EXCL));
    NULLS("V155", open_domain(ctx, same, O_CREAT | O_EXCL), EINVAL);
    struct ibv_xrcd *second = MADE(open_domain(ctx, same, 0));
    struct ibv_xrcd *third = MADE(open_domain(ctx, other, O_CREAT));
    struct ibv_qp *qp = MADE(receive_side(ctx, first));
    struct ibv_qp_open_attr oa = {
        .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE |
                     IBV_QP_OPEN_ATTR_CONTEXT,
        .qp_num = qp->qp_num,
        .xrcd = second,
        .qp_context = &oa,
        .qp_type = IBV_QPT_XRC_RECV};
    struct ibv_qp *opened = MADE(ibv_open_qp(ctx, &oa));
    CHECK("V155", opened != qp && opened->qp_num == qp->qp_num && opened->qp_context == &oa &&
                      opened->qp_type == IBV_QPT_XRC_RECV,
          "opened");
    oa.xrcd = third;
    NULLS("V155", ibv_open_qp(ctx, &oa), EINVAL);
    oa.xrcd = second;
    oa.qp_type = IBV_QPT_XRC_SEND;
    NULLS("V155", ibv_open_qp(ctx, &oa), EINVAL);
    oa.qp_type = IBV_QPT_XRC_RECV;
    oa.comp_mask &= ~IBV_QP_OPEN_ATTR_XRCD;
    NULLS("V155", ibv_open_qp(ctx, &oa), EINVAL);
    oa.comp_mask |= IBV_QP_OPEN_ATTR_XRCD;
    oa.qp_num = 0x500001;
    NULLS("V155", ibv_open_qp(ctx, &oa), EOPNOTSUPP);
    SUCCEEDS(ibv_close_xrcd(second));
    FAILS("V35", ibv_close_xrcd(first), EBUSY);
    SUCCEEDS(ibv_destroy_qp(qp));
    qp_init(opened, REMOTE); /* it is there still */
    FAILS("V35", ibv_close_xrcd(first), EBUSY);
    SUCCEEDS(ibv_destroy_qp(opened));
    SUCCEEDS(ibv_close_xrcd(first));
    SUCCEEDS(ibv_close_xrcd(third));
    NULLS("V155", open_domain(ctx, fd, 0), EAGAIN);
    close(fd);
    close(same);
    close(other);
}
static void objects(void) {
    NULLS("V155", new_srq(at[0].pd, xrcd, at[0].cq, IBV_SRQ_INIT_ATTR_CQ), EINVAL);
    NULLS("V155", new_srq(at[0].pd, xrcd, at[0].cq, IBV_SRQ_INIT_ATTR_XRCD), EINVAL);
    NULLS("V155", new_srq(at[0].pd, xrcd, at[0].cq, IBV_SRQ_INIT_ATTR_PD), EINVAL);
    struct ibv_srq_init_attr basic = {.attr = {16, 1, 0}};
    struct ibv_srq *plain = MADE(ibv_create_srq(at[0].pd, &basic));
    uint32_t number;
    FAILS("V155", ibv_get_srq_num(plain, &number), EINVAL);
    SUCCEEDS(ibv_destroy_srq(plain));
    CHECK("V155", at[0].number && at[1].number && at[0].number != at[1].number, "numbers %x %x",
          at[0].number, at[1].number);
    FAILS("V35", ibv_destroy_cq(at[0].cq), EBUSY);
    FAILS("V35", ibv_close_xrcd(xrcd), EBUSY);
    struct ibv_qp_init_attr pa = {.qp_type = IBV_QPT_XRC_RECV, .send_cq = e.scq, .recv_cq = e.rcq};
    NULLS("V155", ibv_create_qp(e.pd, &pa), EINVAL);
    struct ibv_qp_init_attr_ex xa = {.qp_type = IBV_QPT_XRC_RECV};
    NULLS("V155", ibv_create_qp_ex(ctx, &xa), EINVAL);
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr ia;
    SUCCEEDS(ibv_query_qp(in, &a, IBV_QP_CAP, &ia));
    CHECK("V155", ia.qp_type == IBV_QPT_XRC_RECV && !a.cap.max_send_wr && !a.cap.max_recv_wr,
          "receive side: %d, %u, %u", ia.qp_type, a.cap.max_send_wr, a.cap.max_recv_wr);
    SUCCEEDS(ibv_query_qp(out, &a, IBV_QP_CAP, &ia));
    CHECK("V155", ia.qp_type == IBV_QPT_XRC_SEND && a.cap.max_send_wr >= 16 && !a.cap.max_recv_wr,
          "send side: %d, %u, %u", ia.qp_type, a.cap.max_send_wr, a.cap.max_recv_wr);
    struct ibv_sge s = {(uintptr_t)e.buf, 8, e.mr->lkey};
    struct ibv_recv_wr r = {.sg_list = &s, .num_sge = 1}, *bad;
    FAILS("V155", ibv_post_recv(in, &r, &bad), EINVAL);
    FAILS("V155", ibv_post_recv(out, &r, &bad), EINVAL);
    FAILS("V155", post_to(in, 1, at[0].number, IBV_WR_SEND, 8, 0, 0), EINVAL);
}
/* The bytes that arrived at a place; no others did. */
static void arrived(struct place *p, uint64_t id, int opcode, uint32_t length) {
    struct ibv_wc w = EXPECT_WC("V155", p->cq, id, IBV_WC_SUCCESS);
    CHECK("V155", w.opcode == opcode && w.byte_len == length && w.qp_num == in->qp_num,
          "opcode %d, %u bytes, queue pair %x", w.opcode, w.byte_len, w.qp_num);
    bool immediate = opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    CHECK("V87", !immediate || (w.wc_flags & IBV_WC_WITH_IMM && w.imm_data == htonl(0x01020304)),
          "immediate data %x", w.imm_data);
    EXPECT_NONE("V155", at[p == at].cq, 0);
}
static void traffic(void) {
    for (int i = 0; i < 8; i++) {
        struct place *p = &at[i % 3 == 0];
        SUCCEEDS(post_place(p, 10 + i, 64));
        snprintf(e.buf, 64, "message %d", i);
        SUCCEEDS(post_to(out, i, p->number, IBV_WR_SEND, 64, 0, 0));
        EXPECT_WC("V155", e.scq, i, IBV_WC_SUCCESS);
        arrived(p, 10 + i, IBV_WC_RECV, 64);
        CHECK("V88", !strcmp(p->buf, e.buf), "%s", p->buf);
    }
    /* Several at once, for both in turns. */
    for (int i = 0; i < 8; i++)
        SUCCEEDS(post_place(&at[i % 2], i, 64));
    for (int i = 0; i < 8; i++)
        SUCCEEDS(post_to(out, i, at[i % 2].number, IBV_WR_SEND, i, 0, 0));
    for (int i = 0; i < 8; i++) {
        EXPECT_WC("V155", e.scq, i, IBV_WC_SUCCESS);
        struct ibv_wc w = EXPECT_WC("V155", at[i % 2].cq, i, IBV_WC_SUCCESS);
        CHECK("V155", w.byte_len == i, "%u bytes", w.byte_len);
    }
    /* Messages of several frames. */
    for (int i = 0; i < LONG; i++)
        e.buf[i] = i * 7;
    for (int i = 0; i < 2; i++) {
        struct place *p = &at[i];
        SUCCEEDS(post_place(p, 1, LONG));
        SUCCEEDS(post_to(out, 2, p->number, IBV_WR_SEND, LONG, 0, 0));
        EXPECT_WC("V155", e.scq, 2, IBV_WC_SUCCESS);
        arrived(p, 1, IBV_WC_RECV, LONG);
        CHECK("V88", !memcmp(p->buf, e.buf, LONG), "bytes");
        memset(p->buf, 0, LONG);
        SUCCEEDS(post_place(p, 3, 8));
        uint64_t to = (uintptr_t)p->buf;
        SUCCEEDS(post_to(out, 4, p->number, IBV_WR_RDMA_WRITE_WITH_IMM, LONG, to, p->mr->rkey));
        EXPECT_WC("V155", e.scq, 4, IBV_WC_SUCCESS);
        arrived(p, 3, IBV_WC_RECV_RDMA_WITH_IMM, LONG);
        CHECK("V88", !memcmp(p->buf, e.buf, LONG), "bytes");
    }
    /* Writes of a few bytes, Reads and atomics, each in the domain of the queue that it names. */
    for (int i = 0; i < 6; i++) {
        struct place *p = &at[i % 2];
        uint64_t to = (uintptr_t)p->buf, word;
        memset(e.buf, 0x40 + i, 8);
        SUCCEEDS(post_to(out, 1, p->number, IBV_WR_RDMA_WRITE, 8, to, p->mr->rkey));
        EXPECT_WC("V155", e.scq, 1, IBV_WC_SUCCESS);
        CHECK("V88", p->buf[7] == 0x40 + i, "byte %x", p->buf[7]);
        memcpy(&word, p->buf, 8);
        SUCCEEDS(post_to(out, 2, p->number, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, to, p->mr->rkey));
        EXPECT_WC("V155", e.scq, 2, IBV_WC_SUCCESS);
        CHECK("V95", !memcmp(e.buf, &word, 8) && *(uint64_t *)p->buf == word + 3, "word");
        /* Reads are answered while messages for the other queue come in. */
        struct place *other = &at[!(i % 2)];
        uint64_t there = (uintptr_t)other->buf;
        memset(p->buf, i, LONG);
        SUCCEEDS(post_to(out, 3, p->number, IBV_WR_RDMA_READ, LONG, to, p->mr->rkey));
        SUCCEEDS(post_to(out, 4, other->number, IBV_WR_RDMA_WRITE, 0, there, other->mr->rkey));
        SUCCEEDS(post_to(out, 5, other->number, IBV_WR_RDMA_READ, 8, there, other->mr->rkey));
        for (int id = 3; id < 6; id++)
            EXPECT_WC("V155", e.scq, id, IBV_WC_SUCCESS);
        CHECK("V88", e.buf[LONG - 1] == i, "byte %x", e.buf[LONG - 1]);
    }
    /* A Send waits for a receive of its queue, whatever the other one has. */
    SUCCEEDS(post_place(&at[1], 20, 64));
    SUCCEEDS(post_to(out, 6, at[0].number, IBV_WR_SEND, 8, 0, 0));
    EXPECT_NONE("V94", e.scq, 100);
    SUCCEEDS(post_place(&at[0], 21, 64));
    EXPECT_WC("V94", e.scq, 6, IBV_WC_SUCCESS);
    arrived(&at[0], 21, IBV_WC_RECV, 8);
    SUCCEEDS(post_to(out, 7, at[1].number, IBV_WR_SEND, 8, 0, 0));
    EXPECT_WC("V155", e.scq, 7, IBV_WC_SUCCESS);
    arrived(&at[1], 20, IBV_WC_RECV, 8);
}
/* Requests that are built one by one name their queue, too. */
static void built(void) {
    struct ibv_qp *q = MADE(send_side(&e, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE));
    struct ibv_qp *r = MADE(receive_side(ctx, xrcd));
    struct ibv_qp_ex *x = MADE(ibv_qp_to_qp_ex(q));
    up(r, gid, q, e.gid);
    for (int i = 0; i < 2; i++)
        SUCCEEDS(post_place(&at[i], 30 + i, 64));
    ibv_wr_start(x);
    for (int i = 0; i < 2; i++) {
        x->wr_id = i;
        x->wr_flags = SIG;
        ibv_wr_send(x);
        ibv_wr_set_xrc_srqn(x, at[i].number);
        ibv_wr_set_sge(x, e.mr->lkey, (uintptr_t)e.buf, 8);
    }
    SUCCEEDS(ibv_wr_complete(x));
    for (int i = 0; i < 2; i++) {
        EXPECT_WC("V91", e.scq, i, IBV_WC_SUCCESS);
        struct ibv_wc w = EXPECT_WC("V91", at[i].cq, 30 + i, IBV_WC_SUCCESS);
        CHECK("V155", w.qp_num == r->qp_num, "queue pair %x", w.qp_num);
    }
    /* The first connection still serves the same queues. */
    SUCCEEDS(post_place(&at[0], 32, 64));
    SUCCEEDS(post_to(out, 8, at[0].number, IBV_WR_SEND, 8, 0, 0));
    EXPECT_WC("V155", e.scq, 8, IBV_WC_SUCCESS);
    arrived(&at[0], 32, IBV_WC_RECV, 8);
    SUCCEEDS(ibv_destroy_qp(q));
    SUCCEEDS(ibv_destroy_qp(r));
}
/* A number that is none of the domain's: nothing is consumed, and nothing moves. */
static void refused(uint32_t number, const char *what) {
    static const int ops[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE,
                              IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD};
    struct ibv_async_event ev;
    for (int i = 0; i < 5; i++) {
        memset(at[0].buf, 0x55, 8);
        SUCCEEDS(post_to(out, 1, number, ops[i], 8, (uintptr_t)at[0].buf, at[0].mr->rkey));
        struct ibv_wc w = EXPECT_WC(what, e.scq, 1, IBV_WC_REM_INV_REQ_ERR);
        CHECK("V155", w.status != IBV_WC_REM_INV_REQ_ERR || w.vendor_err, "no record");
        CHECK("V155", at[0].buf[0] == 0x55, "bytes have moved");
        int kind;
        do
            kind = async_event(ctx, HANG, &ev);
        while (kind == IBV_EVENT_COMM_EST && (ibv_ack_async_event(&ev), true));
        CHECK("V104", kind == IBV_EVENT_QP_REQ_ERR && ev.element.qp == in, "event %d", kind);
        if (kind >= 0)
            ibv_ack_async_event(&ev);
        while (async_event(ctx, 100, &ev) >= 0)
            ibv_ack_async_event(&ev);
        CHECK("V155", state_of(in) == IBV_QPS_ERR, "state %d", state_of(in));
        EXPECT_NONE(what, at[0].cq, 0);
        EXPECT_NONE(what, at[1].cq, 0);
        again();
    }
}
static void wrong_numbers(void) {
    SUCCEEDS(post_place(&at[0], 40, 64));
    SUCCEEDS(post_place(&at[1], 41, 64));
    struct ibv_xrcd *d = MADE(open_domain(ctx, -1, O_CREAT));
    struct ibv_srq *s = MADE(new_srq(at[0].pd, d, at[0].cq, 0));
    uint32_t number;
    SUCCEEDS(ibv_get_srq_num(s, &number));
    refused(number, "a queue of another domain");
    SUCCEEDS(ibv_destroy_srq(s));
    SUCCEEDS(ibv_close_xrcd(d));
    s = MADE(new_srq(at[0].pd, xrcd, at[0].cq, 0));
    SUCCEEDS(ibv_get_srq_num(s, &number));
    SUCCEEDS(ibv_destroy_srq(s));
    refused(number, "a queue that is destroyed");
    refused(0, "no number");
    refused(~0u, "the largest number");
    /* The key of another queue's domain. */
    memset(at[1].buf, 0x66, 8);
    uint64_t there = (uintptr_t)at[1].buf;
    SUCCEEDS(post_to(out, 1, at[0].number, IBV_WR_RDMA_WRITE, 8, there, at[1].mr->rkey));
    EXPECT_WC("V92", e.scq, 1, IBV_WC_REM_ACCESS_ERR);
    CHECK("V92", at[1].buf[0] == 0x66, "bytes have moved");
    again();
    /* Both receives wait still. */
    for (int i = 0; i < 2; i++) {
        SUCCEEDS(post_to(out, 2, at[i].number, IBV_WR_SEND, 8, 0, 0));
        EXPECT_WC("V155", e.scq, 2, IBV_WC_SUCCESS);
        arrived(&at[i], 40 + i, IBV_WC_RECV, 8);
    }
}
/* Types that do not belong together find no peer. */
static void wrong_types(void) {
    struct tune t = DEF;
    t.timeout = 1;
    t.retry = 0;
    struct ibv_qp *r = MADE(receive_side(ctx, xrcd));
    qp_init(r, REMOTE);
    qp_rtr(r, e.gid, e.qp->qp_num, DEF);
    qp_up(e.qp, gid, r->qp_num, t);
    SUCCEEDS(post(&e, 1, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0));
    EXPECT_WC("V75", e.scq, 1, IBV_WC_RETRY_EXC_ERR);
    SUCCEEDS(ibv_destroy_qp(r));
}
/* A structure that an event names ends once the event is acknowledged, though another one stands for the
 * same receive side. */
static int destroyer, ended;
static void *destroys(void *qp) {
    __atomic_store_n(&destroyer, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    SUCCEEDS(ibv_destroy_qp(qp));
    __atomic_store_n(&ended, 1, __ATOMIC_SEQ_CST);
    return NULL;
}
static void structure_of_an_event(void) {
    struct ibv_qp_open_attr attr = {
        .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
        .qp_num = in->qp_num,
        .xrcd = xrcd,
        .qp_type = IBV_QPT_XRC_RECV};
    struct ibv_qp *other = MADE(ibv_open_qp(ctx, &attr));
    SUCCEEDS(post_to(out, 1, ~0u, IBV_WR_SEND, 8, 0, 0));
    EXPECT_WC("V155", e.scq, 1, IBV_WC_REM_INV_REQ_ERR);
    struct ibv_async_event event;
    int kind;
    while ((kind = async_event(ctx, HANG, &event)) >= 0 && kind != IBV_EVENT_QP_REQ_ERR)
        ibv_ack_async_event(&event); // of what was before
    CHECK("V104", kind == IBV_EVENT_QP_REQ_ERR && event.element.qp == in, "event %d", kind);
    pthread_t thread;
    SUCCEEDS(pthread_create(&thread, NULL, destroys, in));
    for (int times = 0; !__atomic_load_n(&ended, __ATOMIC_SEQ_CST) && times < 20; sched_yield()) {
        int known = __atomic_load_n(&destroyer, __ATOMIC_SEQ_CST);
        times = known && rests(known) ? times + 1 : 0;
    }
    bool early = __atomic_load_n(&ended, __ATOMIC_SEQ_CST);
    CHECK("V36", !early, "it ends before its event is acknowledged");
    if (!early)
        ibv_ack_async_event(&event);
    SUCCEEDS(pthread_join(thread, NULL));
    in = other;
}
int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    ctx = open_dev();
    SUCCEEDS(ibv_query_gid(ctx, 1, 0, &gid));
    open_end(&e, NULL, ALL);
    e.buf = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    e.mr = MADE(ibv_reg_mr(e.pd, e.buf, LONG, ALL));
    domains();
    xrcd = MADE(open_domain(ctx, -1, O_CREAT));
    make_place(&at[0]);
    make_place(&at[1]);
    in = MADE(receive_side(ctx, xrcd));
    out = MADE(send_side(&e, 0));
    objects();
    up(in, gid, out, e.gid);
    traffic();
    built();
    wrong_numbers();
    wrong_types();
    structure_of_an_event();
    SUCCEEDS(ibv_destroy_qp(in));
    SUCCEEDS(ibv_destroy_qp(out));
    for (int i = 0; i < 2; i++) {
        SUCCEEDS(ibv_destroy_srq(at[i].srq));
        SUCCEEDS(ibv_destroy_cq(at[i].cq));
        SUCCEEDS(ibv_dereg_mr(at[i].mr));
        SUCCEEDS(ibv_dealloc_pd(at[i].pd));
    }
    SUCCEEDS(ibv_close_xrcd(xrcd));
    return finish();
}
