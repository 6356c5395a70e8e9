/* Mistakes of newcomers: each call is refused, or its request fails, and the library says why. */
#include "common.h"

int main(void) {
    struct end e = {0};
    open_end(&e, NULL, ALL);
    struct ibv_qp_attr attr;
    NULLS("V40", ibv_reg_mr(e.pd, e.buf, 64, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    struct ibv_qp_init_attr init = {
        .send_cq = e.scq, .recv_cq = e.rcq, .cap = {1, 1, 1, 1, 100000}, .qp_type = IBV_QPT_RC};
    NULLS("V28", ibv_create_qp(e.pd, &init), EINVAL);
    FAILS("V65", post_recv(&e, 1, e.buf, 8, e.mr->lkey), EINVAL);
    FAILS("V65", post(&e, 1, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0), EINVAL);
    attr = a_rtr(e.gid, 17, DEF);
    FAILS("V61", ibv_modify_qp(e.qp, &attr, M_RTR), EINVAL);
    attr = a_init(REMOTE);
    attr.port_num = 2;
    FAILS("V62", ibv_modify_qp(e.qp, &attr, M_INIT), EINVAL);
    qp_init(e.qp, REMOTE);
    attr = a_rtr(e.gid, 17, DEF);
    FAILS("V61", ibv_modify_qp(e.qp, &attr, M_RTR & ~(IBV_QP_AV | IBV_QP_PATH_MTU)), EINVAL);
    attr.ah_attr.is_global = 0;
    FAILS("V63", ibv_modify_qp(e.qp, &attr, M_RTR), EINVAL);
    attr = a_rtr((union ibv_gid){.raw = {0}}, 17, DEF);
    FAILS("V62", ibv_modify_qp(e.qp, &attr, M_RTR), EINVAL);
    attr = a_rtr(e.gid, 17, DEF);
    attr.ah_attr.grh.sgid_index = 200;
    FAILS("V62", ibv_modify_qp(e.qp, &attr, M_RTR), EINVAL);
    qp_rtr(e.qp, e.gid, 17, DEF);
    struct tune soon = DEF;
    soon.timeout = 1;
    qp_rts(e.qp, soon);
    FAILS("V81",
          post(&e, 1, IBV_WR_SEND, SIG | IBV_SEND_INLINE, e.buf, 5000, e.mr->lkey, 0, 0), EINVAL);
    struct ibv_sge many[5] = {{0}};
    struct ibv_recv_wr receive = {.sg_list = many, .num_sge = 5}, *bad;
    FAILS("V81", ibv_post_recv(e.qp, &receive, &bad), EINVAL);
    receive.num_sge = 1;
    for (int posted = 0; posted < 16; posted++)
        SUCCEEDS(ibv_post_recv(e.qp, &receive, &bad));
    for (int beyond = 0; beyond < 5; beyond++)
        FAILS("V82", ibv_post_recv(e.qp, &receive, &bad), ENOMEM);
    SUCCEEDS(post(&e, 2, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0));
    EXPECT_WC("V77", e.scq, 2, IBV_WC_RETRY_EXC_ERR);
    return finish();
}
