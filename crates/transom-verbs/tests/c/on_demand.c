/* Memory that is registered on demand: pages that are not there yet, or may not be written, are found out about
 * when they are used. `e` owns it, `f` is its peer. */
#include "common.h"
static struct end e, f;
static void clear(struct end *end) {
    struct ibv_wc w;
    qp_state(end->qp, IBV_QPS_RESET);
    while (ibv_poll_cq(end->scq, 1, &w) > 0 || ibv_poll_cq(end->rcq, 1, &w) > 0)
        ;
}
static void again(void) {
    clear(&e);
    clear(&f);
    pair_up(&e, &f, DEF);
}
static void capabilities(void) {
    struct ibv_device_attr_ex a = {0};
    SUCCEEDS(ibv_query_device_ex(e.ctx, NULL, &a));
    CHECK("V45", a.odp_caps.general_caps == IBV_ODP_SUPPORT, "general %llx", (long long)a.odp_caps.general_caps);
    uint32_t rc = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
                  IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV,
             ud = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    CHECK("V45", a.odp_caps.per_transport_caps.rc_odp_caps == rc, "rc %x", a.odp_caps.per_transport_caps.rc_odp_caps);
    CHECK("V45", a.odp_caps.per_transport_caps.uc_odp_caps == (ud | IBV_ODP_SUPPORT_WRITE), "uc %x",
          a.odp_caps.per_transport_caps.uc_odp_caps);
    CHECK("V45", a.odp_caps.per_transport_caps.ud_odp_caps == ud, "ud %x", a.odp_caps.per_transport_caps.ud_odp_caps);
    CHECK("V45", a.xrc_odp_caps == (rc & ~IBV_ODP_SUPPORT_RECV), "xrc %x", a.xrc_odp_caps);
}
#define DEMAND (ALL | IBV_ACCESS_ON_DEMAND)
enum { PAGE = 4096, PAGES = 4 };
#define OK IBV_WC_SUCCESS
#define REFUSED IBV_WC_REM_ACCESS_ERR
/* The key is right, and the memory is not there. */
#define GONE IBV_WC_REM_OP_ERR
/* `f` asks for bytes of `mr` at `at`. */
static void asks(int op, struct ibv_mr *mr, char *at, int wanted) {
    SUCCEEDS(post(&f, 5, op, SIG, f.buf, 8, f.mr->lkey, (uintptr_t)at, mr->rkey));
    EXPECT_WC("V45", f.scq, 5, wanted);
    if (wanted != OK)
        again();
}
static void sends(struct ibv_mr *mr, char *at, int wanted) {
    SUCCEEDS(post_recv(&f, 6, f.buf, 64, f.mr->lkey));
    SUCCEEDS(post(&e, 7, IBV_WR_SEND, SIG, at, 8, mr->lkey, 0, 0));
    EXPECT_WC("V45", e.scq, 7, wanted);
    if (wanted != OK)
        again();
    else
        EXPECT_WC("V45", f.rcq, 6, OK);
}
static bool is_there(char *page) {
    unsigned char there = 0;
    SUCCEEDS(mincore(page, PAGE, &there));
    return there & 1;
}
int main(void) {
    open_end(&e, NULL, ALL);
    open_end(&f, NULL, ALL);
    pair_up(&e, &f, DEF);
    capabilities();
    /* All of the address space under one key: refused as by an adapter without it. */
    NULLS("V45", ibv_reg_mr(e.pd, NULL, SIZE_MAX, DEMAND), EINVAL);
    NULLS("V45", ibv_reg_mr(e.pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND), EINVAL);

    char *at = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NULLS("V40", ibv_reg_mr(e.pd, at, PAGES * PAGE, ALL), EFAULT);
    struct ibv_mr *mr = MADE(ibv_reg_mr(e.pd, at, PAGES * PAGE, DEMAND));
    asks(IBV_WR_RDMA_WRITE, mr, at, GONE);
    asks(IBV_WR_RDMA_READ, mr, at, GONE);
    sends(mr, at, IBV_WC_LOC_PROT_ERR);
    SUCCEEDS(mprotect(at + PAGE, PAGE, PROT_READ | PROT_WRITE));
    memcpy(f.buf, "now here", 8);
    asks(IBV_WR_RDMA_WRITE, mr, at + PAGE, OK);
    CHECK("V45", memcmp(at + PAGE, "now here", 8) == 0, "the bytes are %.8s", at + PAGE);
    memset(f.buf, 0, 8);
    asks(IBV_WR_RDMA_READ, mr, at + PAGE, OK);
    CHECK("V45", memcmp(f.buf, "now here", 8) == 0, "the bytes are %.8s", f.buf);
    sends(mr, at + PAGE, OK);
    /* Across the end of what is there, and of the region. */
    asks(IBV_WR_RDMA_WRITE, mr, at + 2 * PAGE - 4, GONE);
    asks(IBV_WR_RDMA_WRITE, mr, at + PAGES * PAGE - 4, REFUSED);
    SUCCEEDS(mprotect(at + 2 * PAGE, PAGE, PROT_READ));
    asks(IBV_WR_RDMA_READ, mr, at + 2 * PAGE, OK);
    asks(IBV_WR_RDMA_WRITE, mr, at + 2 * PAGE, GONE);
    /* Receives, too. */
    SUCCEEDS(post_recv(&e, 8, at, 64, mr->lkey));
    SUCCEEDS(post(&f, 9, IBV_WR_SEND, SIG, f.buf, 8, f.mr->lkey, 0, 0));
    EXPECT_WC("V45", e.rcq, 8, IBV_WC_LOC_PROT_ERR);
    again();
    /* Given back, and mapped again: the region is as it was. */
    SUCCEEDS(munmap(at, PAGES * PAGE));
    asks(IBV_WR_RDMA_WRITE, mr, at + PAGE, GONE);
    MADE(mmap(at, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
    asks(IBV_WR_RDMA_WRITE, mr, at + PAGE, OK);

    /* Pages are asked for ahead. */
    struct ibv_sge s = {(uintptr_t)at + 3 * PAGE, PAGE, mr->lkey};
    CHECK("V45", !is_there(at + 3 * PAGE), "untouched so far");
    SUCCEEDS(ibv_advise_mr(e.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, &s, 1));
    CHECK("V45", !is_there(at + 3 * PAGE), "no fault");
    SUCCEEDS(ibv_advise_mr(e.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &s, 1));
    CHECK("V45", is_there(at + 3 * PAGE), "there before it is used");
    SUCCEEDS(ibv_advise_mr(e.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &s, 1));
    FAILS("V45", ibv_advise_mr(e.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 2, &s, 1), EINVAL);
    FAILS("V45", ibv_advise_mr(e.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &s, 0), EINVAL);
    FAILS("V45", ibv_advise_mr(e.pd, 3, 0, &s, 1), EOPNOTSUPP);
    FAILS("V45", ibv_advise_mr(f.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &s, 1), EFAULT);
    s.length = PAGE + 1;
    FAILS("V45", ibv_advise_mr(e.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &s, 1), EFAULT);
    s.length = PAGE;
    SUCCEEDS(mprotect(at + 3 * PAGE, PAGE, PROT_NONE));
    FAILS("V45", ibv_advise_mr(e.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &s, 1), EFAULT);
    struct ibv_mr *read = MADE(ibv_reg_mr(e.pd, at, PAGE, IBV_ACCESS_ON_DEMAND));
    struct ibv_sge of[2] = {{(uintptr_t)at, 8, read->lkey}, {(uintptr_t)at, 8, read->lkey ^ 1}};
    SUCCEEDS(ibv_advise_mr(e.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, of, 1));
    FAILS("V45", ibv_advise_mr(e.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, of, 1), EFAULT);
    FAILS("V45", ibv_advise_mr(e.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, of, 2), EFAULT);

    /* Rights change without a look at its pages, too. */
    SUCCEEDS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND));
    asks(IBV_WR_RDMA_READ, mr, at, OK);
    asks(IBV_WR_RDMA_WRITE, mr, at, REFUSED);
    SUCCEEDS(ibv_dereg_mr(read));
    SUCCEEDS(ibv_dereg_mr(mr));
    return finish();
}
