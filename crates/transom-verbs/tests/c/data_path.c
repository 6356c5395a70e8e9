/* Posting and polling allocate nothing. The program brings the allocator's names, which count for
 * the calling thread, so that every call of the library's counts, too. */
#include "common.h"

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);
static __thread unsigned long allocations;
void *malloc(size_t n) {
    allocations++;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t each) {
    allocations++;
    return __libc_calloc(n, each);
}
void *realloc(void *p, size_t n) {
    allocations++;
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t to, size_t n) {
    allocations++;
    return __libc_memalign(to, n);
}
int posix_memalign(void **p, size_t to, size_t n) {
    allocations++;
    *p = __libc_memalign(to, n);
    return *p ? 0 : ENOMEM;
}

enum { DEPTH = 8, WARM = 2, ROUNDS = 50 };

static struct end a, b;
static struct ibv_qp_ex *x;

/* Sends and Writes from lists, inline, and by the calls of ibv_qp_ex. */
static void post_all(uint64_t to) {
    post(&a, 1, IBV_WR_SEND, SIG, a.buf, 100, a.mr->lkey, 0, 0);
    post(&a, 2, IBV_WR_SEND, SIG | IBV_SEND_INLINE, a.buf, 200, 0, 0, 0);
    post(&a, 3, IBV_WR_RDMA_WRITE, SIG, a.buf, 32768, a.mr->lkey, to, b.mr->rkey);
    post(&a, 4, IBV_WR_RDMA_WRITE, SIG | IBV_SEND_INLINE, a.buf, 64, 0, to, b.mr->rkey);
    post(&a, 5, IBV_WR_RDMA_READ, SIG, a.buf + 4096, 4096, a.mr->lkey, to, b.mr->rkey);
    ibv_wr_start(x);
    x->wr_id = 6, x->wr_flags = SIG;
    ibv_wr_rdma_write(x, b.mr->rkey, to);
    ibv_wr_set_sge(x, a.mr->lkey, (uintptr_t)a.buf, 8);
    x->wr_id = 7;
    ibv_wr_rdma_read(x, b.mr->rkey, to);
    ibv_wr_set_sge(x, a.mr->lkey, (uintptr_t)a.buf, 8);
    x->wr_id = 8, x->wr_flags = SIG | IBV_SEND_SOLICITED;
    ibv_wr_send(x);
    ibv_wr_set_inline_data(x, a.buf, 8);
    CHECK("V67", ibv_wr_complete(x) == 0, "errno %d", errno);
}

/* Block until a queue has an event: a thread of the library moves the bytes. */
static void event(struct ibv_comp_channel *ch, struct ibv_cq *wanted) {
    struct ibv_cq *cq;
    void *of;
    SUCCEEDS(ibv_get_cq_event(ch, &cq, &of));
    CHECK("V101", cq == wanted, "the event of another queue");
    ibv_ack_cq_events(cq, 1);
}

/* Take completions that are there, one first: polls that do nothing else. */
static unsigned long takes(struct ibv_cq *cq, int wanted) {
    struct ibv_wc wc[16];
    unsigned long before = allocations;
    int n = ibv_poll_cq(cq, 1, wc);
    n += n == 1 && wanted > 1 ? ibv_poll_cq(cq, wanted - 1, wc + 1) : 0;
    unsigned long all = allocations - before;
    CHECK("V83", n == wanted, "%d of %d", n, wanted);
    for (int i = 0; i < n; i++)
        CHECK("V83", wc[i].status == IBV_WC_SUCCESS, "%s", st(wc[i].status));
    return all;
}

int main(void) {
    open_end(&a, NULL, ALL);
    open_end(&b, a.ctx, ALL);
    struct ibv_qp_init_attr_ex want = {
        .send_cq = a.scq,
        .recv_cq = a.rcq,
        .cap = {16, 16, 4, 4, 256},
        .qp_type = IBV_QPT_RC,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = a.pd,
        .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ};
    ibv_destroy_qp(a.qp);
    a.qp = MADE(ibv_create_qp_ex(a.ctx, &want));
    x = ibv_qp_to_qp_ex(a.qp);
    CHECK("self", allocations > 0, "the program's allocator is not used");
    uint64_t to = (uintptr_t)b.buf + 8192;
    for (int i = 0; i < WARM + ROUNDS; i++) {
        /* Posted before there is a connection: nothing but the posts happens meanwhile. */
        qp_up(a.qp, b.gid, b.qp->qp_num, DEF);
        qp_init(b.qp, DEF.access);
        unsigned long before = allocations;
        for (int k = 0; k < DEPTH; k++)
            post_recv(&b, k, b.buf, 4096, b.mr->lkey);
        post_recv(&a, 1, a.buf, 4096, a.mr->lkey);
        post_all(to);
        unsigned long posts = allocations - before;
        SUCCEEDS(ibv_req_notify_cq(b.rcq, 1));
        SUCCEEDS(ibv_req_notify_cq(a.rcq, 0));
        qp_rtr(b.qp, a.gid, a.qp->qp_num, DEF);
        qp_rts(b.qp, DEF);
        event(b.ch, b.rcq);
        unsigned long polls = takes(b.rcq, 3);
        /* In front of the answer came what the posts were owed. */
        post(&b, 1, IBV_WR_SEND, 0, b.buf, 8, b.mr->lkey, 0, 0);
        event(a.ch, a.rcq);
        polls += takes(a.scq, 8) + takes(a.rcq, 1);
        if (i >= WARM) {
            CHECK("design rule 12", posts == 0, "%lu allocations in posts", posts);
            CHECK("design rule 12", polls == 0, "%lu allocations in polls", polls);
        }
        qp_state(a.qp, IBV_QPS_RESET);
        qp_state(b.qp, IBV_QPS_RESET);
    }
    return finish();
}
