/* States, attributes and posts of queue pairs, in one process. Before and after each refused
 * call every attribute is compared. */
#include "common.h"
static void same(const char *rule, struct ibv_qp *q, struct ibv_qp_attr *b, int line) {
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr i;
    memset(&a, 0, sizeof a);
    SUCCEEDS(ibv_query_qp(q, &a, 0xfffff, &i));
    CHECK(rule, !memcmp(&a, b, sizeof a),
          "attributes changed by a refused call of line %d (state %d -> %d)", line, b->qp_state,
          a.qp_state);
    CHECK(rule, q->state == a.qp_state, "qp->state %d query %d", q->state, a.qp_state);
}
static struct ibv_qp_attr snap(struct ibv_qp *q) {
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr i;
    memset(&a, 0, sizeof a);
    SUCCEEDS(ibv_query_qp(q, &a, 0xfffff, &i));
    return a;
}
#define REFUSED(rule, q, attr, mask)                        \
    do {                                                    \
        struct ibv_qp_attr _b = snap(q), _x = (attr);       \
        FAILS(rule, ibv_modify_qp(q, &_x, (mask)), EINVAL); \
        same(rule, q, &_b, __LINE__);                       \
    } while (0)

static void masks(const char *name, struct ibv_qp *q, struct ibv_qp_attr attr, int required,
                  int optional) {
    struct ibv_qp_attr b = snap(q);
    for (int bit = 1; bit < 32; bit++) {
        int m = 1 << bit;
        if (required & m) {
            struct ibv_qp_attr x = attr;
            errno = 0;
            int r = ibv_modify_qp(q, &x, required & ~m);
            CHECK("V61", r == EINVAL && errno == EINVAL, "%s without bit %d: %d errno %d", name,
                  bit, r, errno);
            same("V61", q, &b, __LINE__);
            if (r == 0)
                return;
        } else if (!(optional & m)) {
            struct ibv_qp_attr x = attr;
            errno = 0;
            int r = ibv_modify_qp(q, &x, required | m);
            CHECK("V61", r == EINVAL && errno == EINVAL, "%s with extra bit %d: %d errno %d", name,
                  bit, r, errno);
            same("V61", q, &b, __LINE__);
            if (r == 0)
                return;
        }
    }
}
int main(void) {
    struct end e = {0}, f = {0};
    open_end(&e, NULL, ALL);
    open_end(&f, e.ctx, ALL);
    struct ibv_qp *q = e.qp;
    struct ibv_wc wc;
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr in;
    /* V72 */
    CHECK("V72", q->state == IBV_QPS_RESET && state_of(q) == IBV_QPS_RESET, "state %d", q->state);
    CHECK("V72",
          q->pd == e.pd && q->send_cq == e.scq && q->recv_cq == e.rcq && q->srq == NULL &&
              q->qp_type == IBV_QPT_RC && q->context == e.ctx,
          "members");
    SUCCEEDS(ibv_query_qp(q, &a, 0, &in));
    CHECK("V64",
          in.send_cq == e.scq && in.recv_cq == e.rcq && in.qp_type == IBV_QPT_RC &&
              in.srq == NULL && in.sq_sig_all == 0,
          "init attr");
    CHECK("V52", in.cap.max_send_wr == 16 && in.cap.max_recv_wr == 16, "caps %u %u",
          in.cap.max_send_wr, in.cap.max_recv_wr);
    CHECK("V53", in.cap.max_inline_data == 256, "inline %u", in.cap.max_inline_data);
    CHECK("V64", !memcmp(&a.cap, &in.cap, sizeof a.cap), "caps in attr");
    {
        struct ibv_qp_init_attr z = {
            .send_cq = e.scq, .recv_cq = e.rcq, .qp_type = IBV_QPT_RC, .qp_context = &z};
        struct ibv_qp *zq = ibv_create_qp(e.pd, &z);
        CHECK("V72", zq, "no depths: %d", errno);
        if (zq) {
            CHECK("V72", zq->qp_context == &z, "context");
            CHECK("V52", z.cap.max_recv_wr == 0, "recv depth %u", z.cap.max_recv_wr);
            SUCCEEDS(ibv_destroy_qp(zq));
        }
    }
    for (int t = 0; t < 12; t++)
        if (t != IBV_QPT_RC && t != IBV_QPT_UC && t != IBV_QPT_UD && t != IBV_QPT_XRC_SEND &&
            t != IBV_QPT_XRC_RECV) {
            struct ibv_qp_init_attr z = {
                .send_cq = e.scq, .recv_cq = e.rcq, .qp_type = t, .cap = {1, 1, 1, 1, 0}};
            NULLS("V71/V152", ibv_create_qp(e.pd, &z), EOPNOTSUPP);
        }
    {
        struct ibv_qp_init_attr z = {
            .send_cq = e.scq, .recv_cq = e.rcq, .qp_type = 255, .cap = {1, 1, 1, 1, 0}};
        NULLS("V71", ibv_create_qp(e.pd, &z), EOPNOTSUPP);
    }
    {
        struct ibv_qp_init_attr z = {.recv_cq = e.rcq, .qp_type = 2, .cap = {1, 1, 1, 1, 0}};
        NULLS("V28", ibv_create_qp(e.pd, &z), EINVAL);
    }
    {
        struct ibv_qp_init_attr z = {.send_cq = e.scq, .qp_type = 2, .cap = {1, 1, 1, 1, 0}};
        NULLS("V28", ibv_create_qp(e.pd, &z), EINVAL);
    }
    int big[5][5] = {{16385, 1, 1, 1, 0},
                     {1, 16385, 1, 1, 0},
                     {1, 1, 33, 1, 0},
                     {1, 1, 1, 33, 0},
                     {1, 1, 1, 1, 4097}};
    for (int i = 0; i < 5; i++) {
        struct ibv_qp_init_attr z = {
            .send_cq = e.scq,
            .recv_cq = e.rcq,
            .qp_type = 2,
            .cap = {big[i][0], big[i][1], big[i][2], big[i][3], big[i][4]}};
        NULLS("V28", ibv_create_qp(e.pd, &z), EINVAL);
    }
    int fit[5][5] = {{16384, 1, 1, 1, 0},
                     {1, 16384, 1, 1, 0},
                     {1, 1, 32, 1, 0},
                     {1, 1, 1, 32, 0},
                     {1, 1, 1, 1, 4096}};
    for (int i = 0; i < 5; i++) {
        struct ibv_qp_init_attr z = {
            .send_cq = e.scq,
            .recv_cq = e.rcq,
            .qp_type = 2,
            .cap = {fit[i][0], fit[i][1], fit[i][2], fit[i][3], fit[i][4]}};
        struct ibv_qp *zq = ibv_create_qp(e.pd, &z);
        CHECK("V28", zq, "advertised %d refused: %d", i, errno);
        if (zq)
            SUCCEEDS(ibv_destroy_qp(zq));
    }
    /* create_qp_ex */
    {
        struct ibv_qp_init_attr_ex x = {
            .send_cq = e.scq, .recv_cq = e.rcq, .qp_type = 2, .cap = {1, 1, 1, 1, 0}, .pd = e.pd};
        x.comp_mask = 0;
        NULLS("V71", ibv_create_qp_ex(e.ctx, &x), EINVAL);
        int ms[] = {2, 8, 16, 32};
        for (int i = 0; i < 4; i++) {
            x.comp_mask = 1 | ms[i];
            x.max_tso_header = 64;
            NULLS("V71", ibv_create_qp_ex(e.ctx, &x), EOPNOTSUPP);
        }
        x.comp_mask = 1 | 4;
        x.create_flags = 2;
        NULLS("V71", ibv_create_qp_ex(e.ctx, &x), EOPNOTSUPP);
        x.comp_mask = 1 | 64;
        x.create_flags = 0;
        int so[] = {1024, 2048, 4096, 8192};
        for (int i = 0; i < 4; i++) {
            x.send_ops_flags = 1 | so[i];
            NULLS("V71", ibv_create_qp_ex(e.ctx, &x), EOPNOTSUPP);
        }
    }
    /* refused transitions out of RESET */
    for (int s = IBV_QPS_RTR; s <= IBV_QPS_SQE; s++)
        REFUSED("V61", q, ((struct ibv_qp_attr){.qp_state = s}), IBV_QP_STATE);
    REFUSED("V61", q, a_rtr(e.gid, f.qp->qp_num, DEF), M_RTR);
    REFUSED("V61", q, a_rts(DEF), M_RTS);
    for (int s = 7; s < 12; s++)
        REFUSED("V61", q, ((struct ibv_qp_attr){.qp_state = s}), IBV_QP_STATE);
    masks("RESET->INIT", q, a_init(REMOTE), M_INIT, IBV_QP_CUR_STATE);
    /* posts in RESET */
    FAILS("V65", post_recv(&e, 1, e.buf, 8, e.mr->lkey), EINVAL);
    FAILS("V65", post(&e, 1, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0), EINVAL);
    /* V62 */
    a = a_init(REMOTE);
    a.port_num = 0;
    REFUSED("V62", q, a, M_INIT);
    a.port_num = 2;
    REFUSED("V62", q, a, M_INIT);
    a = a_init(REMOTE);
    a.pkey_index = 1;
    REFUSED("V62", q, a, M_INIT);
    a = a_init(REMOTE);
    a.qp_access_flags = 1 << 12;
    REFUSED("V62", q, a, M_INIT);
    a = a_init(REMOTE);
    a.qp_access_flags = 1 << 31;
    REFUSED("V62", q, a, M_INIT);
    qp_init(q, REMOTE);
    CHECK("V61", q->state == IBV_QPS_INIT, "state member %d", q->state);
    a = snap(q);
    CHECK("V64", a.qp_access_flags == REMOTE && a.port_num == 1 && a.pkey_index == 0, "attrs %x %d",
          a.qp_access_flags, a.port_num);
    CHECK("V65", post_recv(&e, 1, e.buf, 8, e.mr->lkey) == 0, "recv in INIT");
    FAILS("V65", post(&e, 1, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0), EINVAL);
    /* INIT->INIT with and without STATE */
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .qp_access_flags = IBV_ACCESS_REMOTE_READ};
    CHECK("V61", !ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), "INIT->INIT");
    CHECK("V61", snap(q).qp_access_flags == IBV_ACCESS_REMOTE_READ, "not changed");
    a.qp_access_flags = REMOTE;
    CHECK("V61", !ibv_modify_qp(q, &a, IBV_QP_ACCESS_FLAGS), "access alone");
    CHECK("V61", snap(q).qp_access_flags == REMOTE, "not changed");
    REFUSED("V61", q, ((struct ibv_qp_attr){.min_rnr_timer = 3}), IBV_QP_MIN_RNR_TIMER);
    REFUSED("V61", q, ((struct ibv_qp_attr){.timeout = 3}), IBV_QP_TIMEOUT);
    for (int s = IBV_QPS_RTS; s <= IBV_QPS_SQE; s++)
        REFUSED("V61", q, ((struct ibv_qp_attr){.qp_state = s}), IBV_QP_STATE);
    /* CUR_STATE is not allowed in INIT->RTR */
    a = a_rtr(f.gid, f.qp->qp_num, DEF);
    a.cur_qp_state = IBV_QPS_RTS;
    REFUSED("V61", q, a, M_RTR | IBV_QP_CUR_STATE);
    masks("INIT->RTR", q, a_rtr(f.gid, f.qp->qp_num, DEF), M_RTR,
          IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX);
    a = a_rtr(f.gid, f.qp->qp_num, DEF);
    struct ibv_qp_attr g = a;
#define BADRTR(stmt)                 \
    do {                             \
        a = g;                       \
        stmt;                        \
        REFUSED("V62", q, a, M_RTR); \
    } while (0)
    BADRTR(a.path_mtu = 0);
    BADRTR(a.path_mtu = 6);
    BADRTR(a.path_mtu = 99);
    BADRTR(a.max_dest_rd_atomic = 17);
    BADRTR(a.max_dest_rd_atomic = 255);
    BADRTR(a.min_rnr_timer = 32);
    BADRTR(a.ah_attr.grh.sgid_index = 200);
    BADRTR(a.ah_attr.grh.sgid_index = 31);
    BADRTR(a.ah_attr.port_num = 2);
    BADRTR(a.ah_attr.port_num = 0);
    BADRTR(memset(&a.ah_attr.grh.dgid, 0, 16));
    BADRTR(a.ah_attr.grh.dgid.raw[0] = 0xff);
    BADRTR((memset(&a.ah_attr.grh.dgid, 0, 16), a.ah_attr.grh.dgid.raw[10] = 0xff,
            a.ah_attr.grh.dgid.raw[11] = 0xff, a.ah_attr.grh.dgid.raw[12] = 224,
            a.ah_attr.grh.dgid.raw[15] = 1));
    a = g;
    a.ah_attr.is_global = 0;
    REFUSED("V63", q, a, M_RTR);
    a = g;
    a.qp_access_flags = 1 << 12;
    REFUSED("V62", q, a, M_RTR | IBV_QP_ACCESS_FLAGS);
    a = g;
    a.pkey_index = 5;
    REFUSED("V62", q, a, M_RTR | IBV_QP_PKEY_INDEX);
    qp_rtr(q, f.gid, f.qp->qp_num, DEF);
    a = snap(q);
    CHECK("V64",
          a.dest_qp_num == f.qp->qp_num && a.path_mtu == IBV_MTU_1024 && a.rq_psn == 0x111 &&
              a.max_dest_rd_atomic == 4 && a.min_rnr_timer == 12 && a.ah_attr.is_global == 1 &&
              !memcmp(&a.ah_attr.grh.dgid, &f.gid, 16) && a.ah_attr.port_num == 1 &&
              a.qp_access_flags == REMOTE && a.ah_attr.grh.hop_limit == 1,
          "attributes after RTR");
    FAILS("V65", post(&e, 1, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0), EINVAL);
    CHECK("V65", post_recv(&e, 2, e.buf, 8, e.mr->lkey) == 0, "recv in RTR");
    REFUSED("V61", q, a_init(REMOTE), M_INIT);
    REFUSED("V61", q, g, M_RTR);
    REFUSED("V61", q, ((struct ibv_qp_attr){.qp_state = IBV_QPS_SQD}), IBV_QP_STATE);
    REFUSED("V61", q, ((struct ibv_qp_attr){.min_rnr_timer = 1}), IBV_QP_MIN_RNR_TIMER);
    masks("RTR->RTS", q, a_rts(DEF), M_RTS,
          IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
              IBV_QP_PATH_MIG_STATE);
    a = a_rts(DEF);
    a.cur_qp_state = IBV_QPS_INIT;
    REFUSED("V61", q, a, M_RTS | IBV_QP_CUR_STATE);
    a = a_rts(DEF);
    a.cur_qp_state = IBV_QPS_RTS;
    REFUSED("V61", q, a, M_RTS | IBV_QP_CUR_STATE);
#define BADRTS(stmt)                 \
    do {                             \
        a = a_rts(DEF);              \
        stmt;                        \
        REFUSED("V62", q, a, M_RTS); \
    } while (0)
    BADRTS(a.timeout = 32);
    BADRTS(a.retry_cnt = 8);
    BADRTS(a.rnr_retry = 8);
    BADRTS(a.max_rd_atomic = 17);
    a = a_rts(DEF);
    a.min_rnr_timer = 32;
    REFUSED("V62", q, a, M_RTS | IBV_QP_MIN_RNR_TIMER);
    a = a_rts(DEF);
    a.cur_qp_state = IBV_QPS_RTR;
    CHECK("V61", !ibv_modify_qp(q, &a, M_RTS | IBV_QP_CUR_STATE), "true CUR_STATE refused");
    a = snap(q);
    CHECK("V64",
          a.timeout == 14 && a.retry_cnt == 7 && a.rnr_retry == 7 && a.sq_psn == 0x111 &&
              a.max_rd_atomic == 4 && a.qp_state == IBV_QPS_RTS && a.cur_qp_state == IBV_QPS_RTS,
          "attributes after RTS %d %d", a.qp_state, a.cur_qp_state);
    /* RTS->RTS */
    a = (struct ibv_qp_attr){.min_rnr_timer = 1};
    CHECK("V61", !ibv_modify_qp(q, &a, IBV_QP_MIN_RNR_TIMER), "min_rnr alone in RTS");
    CHECK("V61", snap(q).min_rnr_timer == 1, "kept");
    REFUSED("V62", q, ((struct ibv_qp_attr){.min_rnr_timer = 32}), IBV_QP_MIN_RNR_TIMER);
    REFUSED("V61", q, ((struct ibv_qp_attr){.timeout = 1}), IBV_QP_TIMEOUT);
    REFUSED("V61", q, ((struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQD}),
            IBV_QP_STATE | IBV_QP_CUR_STATE);
    masks("RTS->RTS", q, (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_RTS},
          IBV_QP_STATE,
          IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |
              IBV_QP_MIN_RNR_TIMER);
    for (int s = 1; s <= 2; s++)
        REFUSED("V61", q, ((struct ibv_qp_attr){.qp_state = s}), IBV_QP_STATE);
    REFUSED("V61", q, ((struct ibv_qp_attr){.qp_state = IBV_QPS_SQE}), IBV_QP_STATE);
    /* bring f up; exchange */
    qp_up(f.qp, e.gid, q->qp_num, DEF);
    CHECK("V65", post_recv(&f, 100, f.buf, 64, f.mr->lkey) == 0, "recv in RTS");
    strcpy(e.buf + 100, "hello");
    CHECK("V65", !post(&e, 10, IBV_WR_SEND, SIG, e.buf + 100, 6, e.mr->lkey, 0, 0), "send");
    wc = EXPECT_WC("V84", e.scq, 10, IBV_WC_SUCCESS);
    CHECK("V84", wc.opcode == IBV_WC_SEND && wc.qp_num == q->qp_num, "opcode %d qp %x", wc.opcode,
          wc.qp_num);
    wc = EXPECT_WC("V84", f.rcq, 100, IBV_WC_SUCCESS);
    CHECK("V84",
          wc.opcode == IBV_WC_RECV && wc.byte_len == 6 && wc.qp_num == f.qp->qp_num &&
              wc.wc_flags == 0,
          "recv wc %d %d %x", wc.opcode, wc.byte_len, wc.wc_flags);
    CHECK("V88", !strcmp(f.buf, "hello"), "bytes");
    /* SQD */
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
    CHECK("V69", !ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), "SQD");
    struct ibv_async_event ev;
    int t = async_event(e.ctx, HANG, &ev);
    CHECK("V69", t == IBV_EVENT_SQ_DRAINED && ev.element.qp == q, "event %d", t);
    if (t >= 0)
        ibv_ack_async_event(&ev);
    a = snap(q);
    CHECK("V69", a.qp_state == IBV_QPS_SQD && a.sq_draining == 0, "state %d draining %d",
          a.qp_state, a.sq_draining);
    CHECK("V65",
          !post(&e, 11, IBV_WR_RDMA_WRITE, SIG, e.buf + 100, 6, e.mr->lkey, (uintptr_t)f.buf + 200,
                f.mr->rkey),
          "send in SQD");
    EXPECT_NONE("V69", e.scq, 300);
    CHECK("V69", f.buf[200] == 0, "moved in SQD");
    a = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_SQD, .timeout = 15, .retry_cnt = 6, .rnr_retry = 3};
    CHECK(
        "V61",
        !ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY),
        "SQD->SQD");
    a = snap(q);
    CHECK("V61", a.timeout == 15 && a.retry_cnt == 6 && a.rnr_retry == 3, "kept %d %d %d",
          a.timeout, a.retry_cnt, a.rnr_retry);
    a = (struct ibv_qp_attr){.timeout = 14};
    CHECK("V61", !ibv_modify_qp(q, &a, IBV_QP_TIMEOUT), "SQD attribute without STATE");
    REFUSED("V61", q, ((struct ibv_qp_attr){.qp_state = IBV_QPS_SQD, .sq_psn = 15}),
            IBV_QP_STATE | IBV_QP_SQ_PSN);
    REFUSED("V61", q, ((struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 15}),
            IBV_QP_STATE | IBV_QP_TIMEOUT);
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQD};
    CHECK("V61", !ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_CUR_STATE), "SQD->RTS");
    EXPECT_WC("V69", e.scq, 11, IBV_WC_SUCCESS);
    CHECK("V69", !strcmp(f.buf + 200, "hello"), "bytes after SQD");
    EXPECT_NONE("V69", e.scq, 50);
    /* ERR: recv 1 and 2 are still posted. post three more sends after */
    qp_state(q, IBV_QPS_ERR);
    CHECK("V67", q->state == IBV_QPS_ERR && state_of(q) == IBV_QPS_ERR, "state");
    EXPECT_WC("V67", e.rcq, 1, IBV_WC_WR_FLUSH_ERR);
    EXPECT_WC("V67", e.rcq, 2, IBV_WC_WR_FLUSH_ERR);
    CHECK("V65", !post_recv(&e, 3, e.buf, 8, e.mr->lkey), "recv in ERR");
    EXPECT_WC("V65", e.rcq, 3, IBV_WC_WR_FLUSH_ERR);
    CHECK("V65", !post(&e, 12, IBV_WR_SEND, 0, e.buf, 8, e.mr->lkey, 0, 0), "send in ERR");
    wc = EXPECT_WC("V65/V83", e.scq, 12, IBV_WC_WR_FLUSH_ERR);
    CHECK("V57", wc.qp_num == q->qp_num, "qp_num");
    for (int s = 1; s <= 5; s++)
        REFUSED("V61", q, ((struct ibv_qp_attr){.qp_state = s}), IBV_QP_STATE);
    REFUSED("V61", q, a_init(REMOTE), M_INIT);
    REFUSED("V61", q, a_rts(DEF), M_RTS);
    /* RESET and again, same number */
    uint32_t num = q->qp_num;
    post_recv(&e, 4, e.buf, 8, e.mr->lkey);
    qp_state(q, IBV_QPS_RESET);
    EXPECT_NONE("V37/V68", e.rcq, 100);
    CHECK("V68", q->qp_num == num && q->state == IBV_QPS_RESET, "number");
    FAILS("V65", post_recv(&e, 1, e.buf, 8, e.mr->lkey), EINVAL);
    qp_state(f.qp, IBV_QPS_RESET);
    pair_up(&e, &f, DEF);
    CHECK("V68", !post_recv(&f, 200, f.buf + 300, 64, f.mr->lkey), "recv");
    CHECK("V68", !post(&e, 20, IBV_WR_SEND, SIG, e.buf + 100, 6, e.mr->lkey, 0, 0), "send");
    EXPECT_WC("V68", e.scq, 20, IBV_WC_SUCCESS);
    EXPECT_WC("V68", f.rcq, 200, IBV_WC_SUCCESS);
    /* unpolled completions are removed by RESET */
    post_recv(&f, 201, f.buf + 300, 64, f.mr->lkey);
    post(&e, 21, IBV_WR_SEND, SIG, e.buf + 100, 6, e.mr->lkey, 0, 0);
    post_recv(&f, 202, f.buf + 300, 64, f.mr->lkey);
    {
        struct ibv_wc w;
        double end = now() + HANG / 1000;
        while (now() < end && memcmp(f.buf + 300, "hello", 6))
            usleep(1000);
        usleep(100000);
        (void)w;
    }
    qp_state(q, IBV_QPS_RESET);
    qp_state(f.qp, IBV_QPS_RESET);
    EXPECT_NONE("V37", e.scq, 50);
    EXPECT_NONE("V37", f.rcq, 50);
    /* nothing completes, so there is no event: of a queue pair that is connected, too */
    pair_up(&e, &f, DEF);
    SUCCEEDS(post_recv(&f, 203, f.buf + 300, 64, f.mr->lkey));
    SUCCEEDS(post(&e, 22, IBV_WR_SEND, SIG, e.buf + 100, 6, e.mr->lkey, 0, 0));
    EXPECT_WC("V68", f.rcq, 203, IBV_WC_SUCCESS);
    SUCCEEDS(post_recv(&f, 204, f.buf + 300, 64, f.mr->lkey));
    SUCCEEDS(ibv_req_notify_cq(f.rcq, 0));
    qp_state(f.qp, IBV_QPS_RESET);
    struct pollfd dropped = {f.ch->fd, POLLIN, 0};
    CHECK("V68", poll(&dropped, 1, 100) == 0, "an event for a receive that a reset drops");
    qp_state(q, IBV_QPS_RESET);
    /* RESET from INIT, RTR, ERR from RESET */
    qp_init(q, 0);
    qp_state(q, IBV_QPS_RESET);
    qp_init(q, 0);
    qp_rtr(q, f.gid, f.qp->qp_num, DEF);
    qp_state(q, IBV_QPS_ERR);
    qp_state(q, IBV_QPS_ERR);
    qp_state(q, IBV_QPS_RESET);
    qp_state(q, IBV_QPS_RESET);
    qp_state(q, IBV_QPS_ERR);
    CHECK("V61", state_of(q) == IBV_QPS_ERR, "any to ERR from RESET");
    CHECK("V65", !post(&e, 30, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0),
          "send in ERR of a fresh one");
    EXPECT_WC("V65", e.scq, 30, IBV_WC_WR_FLUSH_ERR);
    CHECK("V65", !post_recv(&e, 31, e.buf, 8, e.mr->lkey), "recv in ERR of a fresh one");
    EXPECT_WC("V65", e.rcq, 31, IBV_WC_WR_FLUSH_ERR);
    SUCCEEDS(ibv_destroy_qp(q));
    SUCCEEDS(ibv_destroy_qp(f.qp));
    return finish();
}
