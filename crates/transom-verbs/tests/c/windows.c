/* Memory windows of both types, in one process: `e` owns the memory, `f` is its peer; `g` is another
 * queue pair of the owner's domain, and `h` its peer. */
#include "common.h"
static struct end e, f, g, h;
static struct tune tune;
static void clear(struct end *end) {
    struct ibv_wc w;
    qp_state(end->qp, IBV_QPS_RESET);
    while (ibv_poll_cq(end->scq, 1, &w) > 0 || ibv_poll_cq(end->rcq, 1, &w) > 0)
        ;
}
static void again(struct end *a, struct end *b) {
    struct ibv_async_event ev;
    clear(a);
    clear(b);
    while (async_event(a->ctx, 0, &ev) >= 0)
        ibv_ack_async_event(&ev);
    pair_up(a, b, tune);
}
static struct ibv_mw_bind_info part(struct ibv_mr *mr, uint64_t at, uint64_t length, int access) {
    return (struct ibv_mw_bind_info){mr, (uintptr_t)e.buf + at, length, access};
}
static int post_bind(struct end *end, uint64_t id, struct ibv_mw *mw, int key,
                     struct ibv_mw_bind_info info) {
    struct ibv_send_wr w = {.wr_id = id, .opcode = IBV_WR_BIND_MW, .send_flags = SIG}, *bad;
    w.bind_mw.mw = mw;
    w.bind_mw.rkey = (mw->rkey & ~0xffu) | key;
    w.bind_mw.bind_info = info;
    return ibv_post_send(end->qp, &w, &bad);
}
static void bind_2(uint64_t id, struct ibv_mw *mw, int key, struct ibv_mw_bind_info info, int wanted) {
    uint32_t before = mw->rkey;
    SUCCEEDS(post_bind(&e, id, mw, key, info));
    CHECK("V47", mw->rkey == ((before & ~0xffu) | key), "rkey %x after %x", mw->rkey, before);
    struct ibv_wc w = EXPECT_WC("V48", e.scq, id, wanted);
    CHECK("V84", wanted != IBV_WC_SUCCESS || w.opcode == IBV_WC_BIND_MW, "opcode %d", w.opcode);
    if (wanted != IBV_WC_SUCCESS) {
        CHECK("V48", state_of(e.qp) == IBV_QPS_ERR, "state %d", state_of(e.qp));
        again(&e, &f);
    }
}
/* The owner closes a key. */
static void invalidate(uint32_t key, int wanted) {
    struct ibv_send_wr w = {.wr_id = 77, .opcode = IBV_WR_LOCAL_INV, .send_flags = SIG}, *bad;
    w.invalidate_rkey = key;
    SUCCEEDS(ibv_post_send(e.qp, &w, &bad));
    struct ibv_wc c = EXPECT_WC("V50", e.scq, 77, wanted);
    CHECK("V84", wanted != IBV_WC_SUCCESS || c.opcode == IBV_WC_LOCAL_INV, "opcode %d", c.opcode);
    if (wanted != IBV_WC_SUCCESS)
        again(&e, &f);
}
/* `peer` of `owner` asks; a refusal ends both, and they begin anew. */
static void ask(struct end *owner, struct end *peer, int op, uint64_t at, uint32_t length,
                uint32_t key, int wanted) {
    SUCCEEDS(post(peer, 50, op, SIG, peer->buf, length, peer->mr->lkey, at, key));
    EXPECT_WC("V92", peer->scq, 50, wanted);
    if (wanted != IBV_WC_SUCCESS)
        again(owner, peer);
}
static void asks(int op, uint64_t at, uint32_t length, uint32_t key, int wanted) {
    ask(&e, &f, op, (uintptr_t)e.buf + at, length, key, wanted);
}
#define OK IBV_WC_SUCCESS
#define REFUSED IBV_WC_REM_ACCESS_ERR
#define BIND IBV_WC_MW_BIND_ERR
#define WRITE IBV_WR_RDMA_WRITE
#define READ IBV_WR_RDMA_READ
static void objects(void) {
    struct ibv_device_attr a;
    SUCCEEDS(ibv_query_device(e.ctx, &a));
    CHECK("4", a.max_mw == 65536, "max_mw %d", a.max_mw);
    unsigned has = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS;
    CHECK("4", (a.device_cap_flags & has) == has, "flags %x", a.device_cap_flags);
    CHECK("4", !(a.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A), "not both 2A and 2B");
    for (int type = 0; type < 5; type++)
        if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
            NULLS("V47", ibv_alloc_mw(e.pd, type), EINVAL);
    struct ibv_pd *pd = MADE(ibv_alloc_pd(e.ctx));
    struct ibv_mw *one = MADE(ibv_alloc_mw(pd, IBV_MW_TYPE_1)), *two = MADE(ibv_alloc_mw(pd, IBV_MW_TYPE_2));
    CHECK("V47", one->type == IBV_MW_TYPE_1 && two->type == IBV_MW_TYPE_2, "types");
    CHECK("V47", one->pd == pd && one->context == e.ctx && one->rkey >> 8 != two->rkey >> 8, "members");
    FAILS("V35", ibv_dealloc_pd(pd), EBUSY);
    SUCCEEDS(ibv_dealloc_mw(one));
    FAILS("V35", ibv_dealloc_pd(pd), EBUSY);
    SUCCEEDS(ibv_dealloc_mw(two));
    SUCCEEDS(ibv_dealloc_pd(pd));
}
static void type_2(void) {
    struct ibv_mw *w = MADE(ibv_alloc_mw(e.pd, IBV_MW_TYPE_2));
    asks(WRITE, 4096, 8, w->rkey, REFUSED); /* not bound */
    bind_2(1, w, 0x5a, part(e.mr, 4096, 4096, REMOTE), OK);
    asks(WRITE, 4096, 8, w->rkey, OK);
    asks(READ, 8184, 8, w->rkey, OK);
    FAILS("V51", ibv_dereg_mr(e.mr), EBUSY);
    /* Another queue pair of the same domain, and one's own key as a local one. */
    ask(&g, &h, WRITE, (uintptr_t)e.buf + 4096, 8, w->rkey, REFUSED);
    asks(WRITE, 4096, 8, w->rkey, OK);
    /* Bound already: also under another key, also on another queue pair. */
    struct ibv_mw *x = MADE(ibv_alloc_mw(e.pd, IBV_MW_TYPE_2));
    bind_2(2, x, 1, part(e.mr, 0, 64, REMOTE), OK);
    uint32_t key = w->rkey;
    SUCCEEDS(post_bind(&g, 3, w, 0x5b, part(e.mr, 4096, 4096, REMOTE)));
    EXPECT_WC("V48", g.scq, 3, BIND);
    again(&g, &h);
    asks(WRITE, 4096, 8, key, OK);
    w->rkey = key;
    invalidate(key, OK);
    invalidate(key, OK); /* closed already */
    asks(WRITE, 4096, 8, key, REFUSED);
    bind_2(4, w, 0x5c, part(e.mr, 4096, 4096, REMOTE), OK);
    bind_2(5, w, 0x5c, part(e.mr, 4096, 4096, REMOTE), BIND);
    /* That has ended the queue pair, and with it its windows. */
    asks(WRITE, 4096, 8, w->rkey, REFUSED);
    bind_2(6, w, 0, part(e.mr, 4096, 4096, IBV_ACCESS_REMOTE_READ), OK);
    asks(READ, 4096, 4096, w->rkey, OK);
    asks(WRITE, 4096, 8, w->rkey, REFUSED);
    /* A Bind behind the Invalidate of what the window had. */
    bind_2(7, w, 1, part(e.mr, 4096, 64, REMOTE), OK);
    struct ibv_send_wr bound = {.wr_id = 8, .opcode = IBV_WR_BIND_MW, .send_flags = SIG};
    struct ibv_send_wr first = {.wr_id = 9, .next = &bound, .opcode = IBV_WR_LOCAL_INV}, *bad;
    first.invalidate_rkey = w->rkey;
    bound.bind_mw.mw = w;
    bound.bind_mw.rkey = ibv_inc_rkey(w->rkey);
    bound.bind_mw.bind_info = part(e.mr, 8192, 64, REMOTE);
    SUCCEEDS(ibv_post_send(e.qp, &first, &bad));
    EXPECT_WC("V48", e.scq, 8, OK);
    asks(WRITE, 8192, 64, w->rkey, OK);
    asks(WRITE, 8192, 65, w->rkey, REFUSED);
    /* dealloc closes first. */
    bind_2(10, w, 2, part(e.mr, 0, 64, REMOTE), OK);
    key = w->rkey;
    SUCCEEDS(ibv_dealloc_mw(w));
    asks(WRITE, 0, 8, key, REFUSED);
    SUCCEEDS(ibv_dealloc_mw(x));
}
static void refused_binds(void) {
    struct ibv_mw *w = MADE(ibv_alloc_mw(e.pd, IBV_MW_TYPE_2)), *o = MADE(ibv_alloc_mw(e.pd, IBV_MW_TYPE_1));
    struct ibv_mr *no_bind = MADE(ibv_reg_mr(e.pd, e.buf, 4096, ALL));
    struct ibv_mr *fixed = MADE(ibv_reg_mr(e.pd, e.buf, 4096, IBV_ACCESS_MW_BIND));
    struct ibv_mr *foreign = MADE(ibv_reg_mr(h.pd, e.buf, 4096, ALL | IBV_ACCESS_MW_BIND));
    bind_2(1, w, 1, part(no_bind, 0, 64, REMOTE), BIND);
    bind_2(2, w, 2, part(fixed, 0, 64, IBV_ACCESS_REMOTE_WRITE), BIND);
    bind_2(3, w, 3, part(fixed, 0, 64, IBV_ACCESS_REMOTE_ATOMIC), BIND);
    bind_2(4, w, 4, part(e.mr, 65536 - 63, 64, REMOTE), BIND);
    bind_2(5, w, 5, part(e.mr, 0, 0, REMOTE), BIND);
    bind_2(6, w, 6, part(foreign, 0, 64, REMOTE), BIND);
    struct ibv_mw *far = MADE(ibv_alloc_mw(h.pd, IBV_MW_TYPE_2));
    bind_2(7, far, 7, part(e.mr, 0, 64, REMOTE), BIND);
    /* The region itself grants peers nothing, the window does. */
    bind_2(8, w, 8, part(fixed, 0, 64, IBV_ACCESS_REMOTE_READ), OK);
    asks(READ, 0, 64, w->rkey, OK);
    asks(READ, 0, 64, fixed->rkey, REFUSED);
    /* The wrong kind of call, and arguments that cannot be: nothing is posted. */
    uint32_t key = o->rkey;
    FAILS("V48", post_bind(&e, 9, o, 1, part(e.mr, 0, 64, REMOTE)), EINVAL);
    FAILS("V48", post_bind(&e, 9, w, 1, part(NULL, 0, 64, REMOTE)), EINVAL);
    FAILS("V48", post_bind(&e, 9, w, 1, part(e.mr, 0, 64, 1 << 20)), EINVAL);
    CHECK("V48", o->rkey == key, "a refused post leaves the key");
    struct ibv_mw_bind b = {.wr_id = 9, .send_flags = SIG, .bind_info = part(e.mr, 0, 64, REMOTE)};
    CHECK("V48", ibv_bind_mw(e.qp, w, &b) == EINVAL, "the header's own");
    w->type = IBV_MW_TYPE_1; /* past the inline function of the header */
    FAILS("V48", ibv_bind_mw(e.qp, w, &b), EINVAL);
    w->type = IBV_MW_TYPE_2;
    EXPECT_NONE("V48", e.scq, 20);
    /* LOCAL_INV of what is no window of this queue pair. */
    invalidate(e.mr->rkey, BIND);
    invalidate(o->rkey, BIND);
    bind_2(10, w, 10, part(e.mr, 0, 64, REMOTE), OK);
    struct ibv_send_wr inv = {.wr_id = 11, .opcode = IBV_WR_LOCAL_INV, .send_flags = SIG}, *bad;
    inv.invalidate_rkey = w->rkey;
    SUCCEEDS(ibv_post_send(g.qp, &inv, &bad));
    EXPECT_WC("V48", g.scq, 11, BIND);
    again(&g, &h);
    asks(WRITE, 0, 8, w->rkey, OK);
    SUCCEEDS(ibv_dealloc_mw(w));
    SUCCEEDS(ibv_dealloc_mw(o));
    SUCCEEDS(ibv_dealloc_mw(far));
    SUCCEEDS(ibv_dereg_mr(no_bind));
    SUCCEEDS(ibv_dereg_mr(fixed));
    SUCCEEDS(ibv_dereg_mr(foreign));
}
/* The peer closes `key` by a Send. */
static void peer_closes(uint32_t key, int wanted) {
    SUCCEEDS(post_recv(&e, 60, e.buf + 60000, 16, e.mr->lkey));
    struct ibv_sge s = {(uintptr_t)f.buf, 8, f.mr->lkey};
    struct ibv_send_wr w = {.wr_id = 61, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_INV,
                            .send_flags = SIG},
                       *bad;
    w.invalidate_rkey = key;
    SUCCEEDS(ibv_post_send(f.qp, &w, &bad));
    EXPECT_WC("V50", f.scq, 61, wanted);
    if (wanted == OK) {
        struct ibv_wc c = EXPECT_WC("V50", e.rcq, 60, OK);
        CHECK("V50", c.wc_flags & IBV_WC_WITH_INV && c.invalidated_rkey == key, "flags %x, key %x",
              c.wc_flags, c.invalidated_rkey);
    } else {
        struct ibv_wc c;
        int n = poll_one(e.rcq, &c, HANG);
        CHECK("V50", n == 1 && c.status != OK, "the receive ended with %s", n == 1 ? st(c.status) : "-");
        CHECK("V50", state_of(e.qp) == IBV_QPS_ERR, "state %d", state_of(e.qp));
        again(&e, &f);
    }
}
static void closed_by_peers(void) {
    struct ibv_mw *w = MADE(ibv_alloc_mw(e.pd, IBV_MW_TYPE_2)), *o = MADE(ibv_alloc_mw(e.pd, IBV_MW_TYPE_1));
    bind_2(1, w, 1, part(e.mr, 0, 64, REMOTE), OK);
    peer_closes(w->rkey, OK);
    asks(WRITE, 0, 8, w->rkey, REFUSED);
    bind_2(2, w, 2, part(e.mr, 0, 64, REMOTE), OK);
    peer_closes(w->rkey, OK);
    peer_closes(w->rkey, REFUSED); /* dead */
    peer_closes(0x12345678, REFUSED);
    peer_closes(e.mr->rkey, REFUSED);
    struct ibv_mw_bind b = {.wr_id = 3, .send_flags = SIG, .bind_info = part(e.mr, 0, 64, REMOTE)};
    SUCCEEDS(ibv_bind_mw(e.qp, o, &b));
    EXPECT_WC("V48", e.scq, 3, OK);
    peer_closes(o->rkey, REFUSED); /* type 1 */
    asks(WRITE, 0, 8, o->rkey, OK);
    SUCCEEDS(post_bind(&g, 4, w, 4, part(e.mr, 0, 64, REMOTE)));
    EXPECT_WC("V48", g.scq, 4, OK);
    peer_closes(w->rkey, REFUSED); /* another queue pair's */
    ask(&g, &h, WRITE, (uintptr_t)e.buf, 8, w->rkey, OK);
    SUCCEEDS(ibv_dealloc_mw(w));
    SUCCEEDS(ibv_dealloc_mw(o));
}
static void bind_1(struct end *end, struct ibv_mw *mw, struct ibv_mw_bind_info info, int wanted) {
    struct ibv_mw_bind b = {.wr_id = 30, .send_flags = SIG, .bind_info = info};
    uint32_t before = mw->rkey;
    SUCCEEDS(ibv_bind_mw(end->qp, mw, &b));
    CHECK("5.3", mw->rkey != before, "a new key each time");
    struct ibv_wc w = EXPECT_WC("V48", end->scq, 30, wanted);
    CHECK("V84", wanted != OK || w.opcode == IBV_WC_BIND_MW, "opcode %d", w.opcode);
}
static void type_1(void) {
    struct ibv_mw *w = MADE(ibv_alloc_mw(e.pd, IBV_MW_TYPE_1));
    asks(WRITE, 0, 8, w->rkey, REFUSED);
    bind_1(&e, w, part(e.mr, 0, 64, REMOTE), OK);
    uint32_t first = w->rkey;
    asks(WRITE, 0, 64, first, OK);
    ask(&g, &h, WRITE, (uintptr_t)e.buf, 64, first, OK); /* the whole domain */
    bind_1(&g, w, part(e.mr, 4096, 64, IBV_ACCESS_REMOTE_READ), OK);
    asks(WRITE, 0, 8, first, REFUSED);
    ask(&g, &h, READ, (uintptr_t)e.buf + 4096, 64, w->rkey, OK);
    asks(READ, 4096, 64, w->rkey, OK);
    asks(WRITE, 4096, 8, w->rkey, REFUSED);
    /* A refused Bind leaves what there was. */
    uint32_t second = w->rkey;
    bind_1(&e, w, part(e.mr, 65536, 64, REMOTE), BIND);
    again(&e, &f);
    asks(READ, 4096, 64, second, OK);
    /* Without bytes it is closed; twice is no mistake. */
    FAILS("V51", ibv_dereg_mr(e.mr), EBUSY);
    bind_1(&e, w, (struct ibv_mw_bind_info){NULL, 0, 0, 0}, OK);
    asks(READ, 4096, 64, second, REFUSED);
    asks(READ, 4096, 64, w->rkey, REFUSED);
    bind_1(&e, w, part(e.mr, 0, 0, REMOTE), OK);
    /* The window outlives the queue pair on which it was bound. */
    bind_1(&e, w, part(e.mr, 0, 64, REMOTE), OK);
    again(&e, &f);
    asks(WRITE, 0, 64, w->rkey, OK);
    uint32_t last = w->rkey;
    SUCCEEDS(ibv_dealloc_mw(w));
    asks(WRITE, 0, 8, last, REFUSED);
    /* Another domain's is not closed here either. */
    struct ibv_mw *far = MADE(ibv_alloc_mw(h.pd, IBV_MW_TYPE_1));
    bind_1(&e, far, (struct ibv_mw_bind_info){NULL, 0, 0, 0}, BIND);
    again(&e, &f);
    SUCCEEDS(ibv_dealloc_mw(far));
}
static void zero_based_and_atomics(void) {
    struct ibv_mw *w = MADE(ibv_alloc_mw(e.pd, IBV_MW_TYPE_2));
    bind_2(1, w, 1, part(e.mr, 4096, 64, REMOTE | IBV_ACCESS_ZERO_BASED), OK);
    memset(e.buf + 4096, 0, 128);
    memset(f.buf, 7, 64);
    ask(&e, &f, WRITE, 0, 64, w->rkey, OK);
    CHECK("V49", e.buf[4096] == 7 && e.buf[4159] == 7 && e.buf[4160] == 0, "where it fell");
    ask(&e, &f, WRITE, 1, 64, w->rkey, REFUSED);
    bind_2(2, w, 2, part(e.mr, 4096, 64, IBV_ACCESS_REMOTE_ATOMIC), OK);
    *(uint64_t *)(e.buf + 4096) = 40;
    struct ibv_sge s = {(uintptr_t)f.buf, 8, f.mr->lkey};
    struct ibv_send_wr a = {.wr_id = 3, .sg_list = &s, .num_sge = 1,
                            .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = SIG},
                       *bad;
    a.wr.atomic.remote_addr = (uintptr_t)e.buf + 4096;
    a.wr.atomic.rkey = w->rkey;
    a.wr.atomic.compare_add = 2;
    SUCCEEDS(ibv_post_send(f.qp, &a, &bad));
    EXPECT_WC("V95", f.scq, 3, OK);
    CHECK("V95", *(uint64_t *)(e.buf + 4096) == 42 && *(uint64_t *)f.buf == 40, "the sum");
    asks(WRITE, 4096, 8, w->rkey, REFUSED);
    SUCCEEDS(ibv_dealloc_mw(w));
}
static void by_wr(void) {
    struct ibv_qp_init_attr_ex a = {.send_cq = e.scq, .recv_cq = e.rcq, .cap = {16, 16, 4, 4, 0},
                                    .qp_type = IBV_QPT_RC,
                                    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                    .pd = e.pd,
                                    .send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV};
    struct ibv_qp *old = e.qp;
    e.qp = MADE(ibv_create_qp_ex(e.ctx, &a));
    again(&e, &f);
    struct ibv_qp_ex *q = ibv_qp_to_qp_ex(e.qp);
    struct ibv_mw *w = MADE(ibv_alloc_mw(e.pd, IBV_MW_TYPE_2)), *o = MADE(ibv_alloc_mw(e.pd, IBV_MW_TYPE_1));
    struct ibv_mw_bind_info info = part(e.mr, 0, 64, REMOTE);
    ibv_wr_start(q);
    q->wr_id = 1;
    q->wr_flags = SIG;
    ibv_wr_bind_mw(q, w, (w->rkey & ~0xffu) | 9, &info);
    SUCCEEDS(ibv_wr_complete(q));
    EXPECT_WC("V91", e.scq, 1, OK);
    CHECK("V47", (w->rkey & 0xff) == 9, "rkey %x", w->rkey);
    asks(WRITE, 0, 8, w->rkey, OK);
    /* A bind that is not posted binds nothing, and the window has the key it had. */
    ibv_wr_start(q);
    ibv_wr_bind_mw(q, w, (w->rkey & ~0xffu) | 10, &info);
    ibv_wr_abort(q);
    CHECK("V91", (w->rkey & 0xff) == 9, "rkey %x of an aborted bind", w->rkey);
    ibv_wr_start(q);
    ibv_wr_bind_mw(q, w, (w->rkey & ~0xffu) | 10, &info);
    ibv_wr_bind_mw(q, o, 5, &info); /* type 1 */
    FAILS("V91", ibv_wr_complete(q), EINVAL);
    CHECK("V91", (w->rkey & 0xff) == 9, "rkey %x of a refused bind", w->rkey);
    ibv_wr_start(q);
    q->wr_id = 2;
    ibv_wr_local_inv(q, w->rkey);
    ibv_wr_bind_mw(q, o, 5, &info); /* type 1: none of the two is posted */
    FAILS("V91", ibv_wr_complete(q), EINVAL);
    EXPECT_NONE("V91", e.scq, 20);
    asks(WRITE, 0, 8, w->rkey, OK);
    SUCCEEDS(ibv_dealloc_mw(w));
    SUCCEEDS(ibv_dealloc_mw(o));
    SUCCEEDS(ibv_destroy_qp(e.qp));
    e.qp = old;
}
int main(void) {
    int all = ALL | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
    tune = DEF;
    tune.access = REMOTE | IBV_ACCESS_REMOTE_ATOMIC;
    open_end(&e, NULL, all);
    open_end(&f, e.ctx, all);
    open_end(&h, e.ctx, all);
    g = e;
    g.scq = MADE(ibv_create_cq(e.ctx, 63, NULL, NULL, 0));
    g.rcq = MADE(ibv_create_cq(e.ctx, 63, NULL, NULL, 0));
    g.qp = new_qp(&g);
    again(&e, &f);
    again(&g, &h);
    objects();
    type_2();
    refused_binds();
    closed_by_peers();
    type_1();
    zero_based_and_atomics();
    by_wr();
    return finish();
}
