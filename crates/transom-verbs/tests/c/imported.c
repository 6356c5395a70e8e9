/* A second structure for a device, for a protection domain and for a region: whatever one of them
 * does holds for the other, and ending a structure ends nothing else. Parent domains: another domain
 * for the same memory. */
#include "common.h"

/* A Write of `text` by a queue pair that belongs to what was imported, or by any other. */
static void writes(struct end *from, struct end *to, uint64_t id, const char *text, uint32_t lkey,
                   uint32_t rkey, int status) {
    strcpy(from->buf, text);
    memset(to->buf, 0, 64);
    SUCCEEDS(post(from, id, IBV_WR_RDMA_WRITE, SIG, from->buf, strlen(text) + 1, lkey,
                  (uintptr_t)to->buf, rkey));
    EXPECT_WC("V154", from->scq, id, status);
    const char *wanted = status == IBV_WC_SUCCESS ? text : "";
    CHECK("V154", !strcmp(to->buf, wanted), "%s, wanted %s", to->buf, wanted);
}

static void descriptors(struct ibv_context *c) {
    int null = open("/dev/null", O_RDONLY), gone = dup(null);
    close(gone);
    NULLS("V154", ibv_import_device(-1), EINVAL);
    NULLS("V154", ibv_import_device(gone), EINVAL);
    NULLS("V154", ibv_import_device(null), EINVAL);
    CHECK("V154", fcntl(null, F_GETFD) >= 0, "a refused descriptor was closed");
    int events = dup(c->async_fd);
    NULLS("V154", ibv_import_device(events), EINVAL);
    close(events);
    close(null);
}

static void *never(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type) {
    CHECK("V35", 0, "a buffer was asked for");
    return NULL;
}
static void nor(struct ibv_pd *pd, void *context, void *buffer, uint64_t type) {
    CHECK("V35", 0, "a buffer was freed");
}

static void parents(struct end *a, struct end *b, struct ibv_context *other) {
    struct ibv_td_init_attr plain = {0}, unknown = {.comp_mask = 1};
    NULLS("V35", ibv_alloc_td(a->ctx, &unknown), EINVAL);
    NULLS("V35", ibv_alloc_td(a->ctx, NULL), EINVAL);
    struct ibv_td *td = MADE(ibv_alloc_td(a->ctx, &plain)), *foreign = MADE(ibv_alloc_td(other, &plain));
    struct ibv_parent_domain_init_attr init = {.pd = a->pd, .td = td, .alloc = never, .free = nor};
    struct ibv_parent_domain_init_attr wrong = init;
    wrong.pd = NULL;
    NULLS("V35", ibv_alloc_parent_domain(a->ctx, &wrong), EINVAL);
    wrong = init, wrong.td = NULL;
    NULLS("V35", ibv_alloc_parent_domain(other, &wrong), EINVAL);
    wrong = init, wrong.td = foreign;
    NULLS("V35", ibv_alloc_parent_domain(a->ctx, &wrong), EINVAL);
    wrong = init, wrong.comp_mask = 8;
    NULLS("V35", ibv_alloc_parent_domain(a->ctx, &wrong), EINVAL);
    wrong = init, wrong.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS, wrong.alloc = NULL;
    NULLS("V35", ibv_alloc_parent_domain(a->ctx, &wrong), EINVAL);
    wrong.alloc = never, wrong.free = NULL;
    NULLS("V35", ibv_alloc_parent_domain(a->ctx, &wrong), EINVAL);
    NULLS("V35", ibv_alloc_parent_domain(other, &init), EINVAL);
    SUCCEEDS(ibv_dealloc_td(foreign));
    SUCCEEDS(ibv_dealloc_td(td)); /* the refusals have not used it */
    td = init.td = MADE(ibv_alloc_td(a->ctx, &plain));

    init.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
        | 4 /* ALLOW_CC_UNPROTECTED_ALLOC, of rdma-core 65 */;
    struct ibv_pd *base = MADE(ibv_alloc_pd(a->ctx));
    init.pd = base;
    struct ibv_pd *idle = MADE(ibv_alloc_parent_domain(a->ctx, &init));
    FAILS("V35", ibv_dealloc_pd(base), EBUSY);
    FAILS("V35", ibv_dealloc_td(td), EBUSY);
    SUCCEEDS(ibv_dealloc_pd(idle));
    SUCCEEDS(ibv_dealloc_pd(base));
    init.pd = a->pd;
    struct ibv_pd *parent = MADE(ibv_alloc_parent_domain(a->ctx, &init));
    CHECK("V35", parent != a->pd && parent->context == a->ctx && parent->handle != a->pd->handle,
          "the parent domain");

    /* Queues may belong to it, but not to a plain domain or to another device's. */
    struct ibv_cq_init_attr_ex queue = {.cqe = 15,
                                        .wc_flags = IBV_WC_STANDARD_FLAGS,
                                        .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
                                        .parent_domain = a->pd};
    NULLS("V35", ibv_create_cq_ex(a->ctx, &queue), EINVAL);
    queue.parent_domain = NULL;
    NULLS("V35", ibv_create_cq_ex(a->ctx, &queue), EINVAL);
    queue.parent_domain = parent;
    NULLS("V35", ibv_create_cq_ex(other, &queue), EINVAL);
    struct ibv_cq_ex *cq = MADE(ibv_create_cq_ex(a->ctx, &queue));
    FAILS("V35", ibv_dealloc_pd(parent), EBUSY);
    SUCCEEDS(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));

    /* A queue pair of the parent domain reaches the memory of the domain, and of no other. */
    struct end i = *a, j = *b;
    i.pd = parent;
    i.qp = new_qp(&i), j.qp = new_qp(&j);
    pair_up(&i, &j, DEF);
    writes(&i, &j, 11, "from the domain", a->mr->lkey, b->mr->rkey, IBV_WC_SUCCESS);
    writes(&j, &i, 12, "to the domain", b->mr->lkey, a->mr->rkey, IBV_WC_SUCCESS);
    struct ibv_mr *own = MADE(ibv_reg_mr(parent, a->buf, a->len, ALL));
    FAILS("V35", ibv_dealloc_pd(parent), EBUSY);
    writes(&i, &j, 13, "from the parent's", own->lkey, b->mr->rkey, IBV_WC_SUCCESS);
    struct ibv_pd *apart = MADE(ibv_alloc_pd(a->ctx));
    struct ibv_mr *its = MADE(ibv_reg_mr(apart, a->buf, a->len, ALL));
    writes(&j, &i, 14, "to another domain", b->mr->lkey, its->rkey, IBV_WC_REM_ACCESS_ERR);
    SUCCEEDS(ibv_dereg_mr(its));
    SUCCEEDS(ibv_dealloc_pd(apart));
    SUCCEEDS(ibv_dereg_mr(own));
    SUCCEEDS(ibv_destroy_qp(i.qp));
    SUCCEEDS(ibv_destroy_qp(j.qp));
    SUCCEEDS(ibv_dealloc_pd(parent));
    SUCCEEDS(ibv_dealloc_td(td));
}

int main(void) {
    struct end a, b, other;
    open_end(&a, NULL, ALL);
    open_end(&b, NULL, ALL);
    open_end(&other, NULL, ALL);
    descriptors(a.ctx);
    parents(&a, &b, other.ctx);

    /* Each context is known by its own descriptor, however often that was duplicated. */
    int descriptor = dup(dup(a.ctx->cmd_fd));
    struct ibv_context *c = MADE(ibv_import_device(descriptor));
    CHECK("V154", c != a.ctx && c->cmd_fd == descriptor, "%d, wanted %d", c->cmd_fd, descriptor);
    CHECK("V154", c->device == a.ctx->device && c->async_fd >= 0, "another device");
    struct ibv_device_attr d;
    SUCCEEDS(ibv_query_device(c, &d));

    struct ibv_context *its = MADE(ibv_import_device(dup(other.ctx->cmd_fd)));
    struct ibv_mr *same =
        MADE(ibv_import_mr(MADE(ibv_import_pd(its, other.pd->handle)), other.mr->handle));
    CHECK("V154", same->rkey == other.mr->rkey, "%x, wanted %x", same->rkey, other.mr->rkey);

    /* Objects are found by handle, in their own device only. */
    NULLS("V154", ibv_import_pd(c, 0), ENOENT);
    NULLS("V154", ibv_import_pd(c, a.mr->handle), ENOENT);
    NULLS("V154", ibv_import_pd(other.ctx, 1 << 20), ENOENT);
    struct ibv_pd *pd = MADE(ibv_import_pd(c, a.pd->handle));
    CHECK("V154", pd != a.pd && pd->context == c && pd->handle == a.pd->handle, "the domain");
    NULLS("V154", ibv_import_mr(pd, a.pd->handle), ENOENT);
    NULLS("V154", ibv_import_mr(NULL, a.mr->handle), EINVAL);
    struct ibv_mr *mr = MADE(ibv_import_mr(pd, a.mr->handle));
    CHECK("V154",
          mr->lkey == a.mr->lkey && mr->rkey == a.mr->rkey && mr->length == a.len &&
              mr->addr == NULL && mr->pd == pd && mr->context == c && mr->handle == a.mr->handle,
          "lkey %x length %zu", mr->lkey, mr->length);
    struct ibv_pd *empty = MADE(ibv_alloc_pd(c));
    NULLS("V154", ibv_import_mr(empty, a.mr->handle), ENOENT);
    SUCCEEDS(ibv_dealloc_pd(empty));

    /* A queue pair of imported objects, with queues of either context. */
    struct end i = a;
    i.ctx = c, i.pd = pd, i.mr = mr;
    i.scq = MADE(ibv_create_cq(c, 15, NULL, NULL, 0));
    i.qp = new_qp(&i);
    pair_up(&i, &b, DEF);
    writes(&i, &b, 1, "by an imported key", mr->lkey, b.mr->rkey, IBV_WC_SUCCESS);
    writes(&b, &i, 2, "to an imported key", b.mr->lkey, mr->rkey, IBV_WC_SUCCESS);

    /* Objects of either structure keep both domains busy. */
    FAILS("V154", ibv_dealloc_pd(a.pd), EBUSY);
    FAILS("V154", ibv_dealloc_pd(pd), EBUSY);
    struct ibv_mr *more = MADE(ibv_reg_mr(pd, b.buf, 8, 0));
    SUCCEEDS(ibv_dereg_mr(more));

    /* Ending a structure leaves the region as it is. */
    ibv_unimport_mr(mr);
    writes(&b, &i, 3, "after an unimport", b.mr->lkey, a.mr->rkey, IBV_WC_SUCCESS);
    mr = MADE(ibv_import_mr(pd, a.mr->handle));

    /* New rights hold under both; a new registration ends both but the one that has it. */
    SUCCEEDS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL));
    writes(&b, &i, 4, "after a rereg", b.mr->lkey, a.mr->rkey, IBV_WC_SUCCESS);

    /* The region ends by either: its key is refused, and the other structure is stale. */
    uint32_t rkey = a.mr->rkey, handle = a.mr->handle;
    SUCCEEDS(ibv_dereg_mr(mr));
    FAILS("V154", ibv_dereg_mr(a.mr), ENOENT);
    NULLS("V154", ibv_import_mr(pd, handle), ENOENT);
    writes(&b, &i, 5, "by a key that has ended", b.mr->lkey, rkey, IBV_WC_REM_ACCESS_ERR);

    /* The domain ends by either, too. */
    SUCCEEDS(ibv_destroy_qp(i.qp));
    SUCCEEDS(ibv_destroy_qp(a.qp));
    SUCCEEDS(ibv_destroy_cq(i.scq));
    uint32_t domain = pd->handle;
    SUCCEEDS(ibv_dealloc_pd(pd));
    FAILS("V154", ibv_dealloc_pd(a.pd), ENOENT);
    NULLS("V154", ibv_reg_mr(a.pd, a.buf, 8, 0), ENOENT);
    NULLS("V154", ibv_import_pd(c, domain), ENOENT);
    ibv_unimport_mr(a.mr);
    ibv_unimport_pd(a.pd);

    /* The device is open until its last structure is closed, and closes the descriptor it was given. */
    int third = dup(a.ctx->cmd_fd), late = dup(a.ctx->cmd_fd);
    SUCCEEDS(ibv_close_device(a.ctx));
    struct ibv_pd *left = MADE(ibv_alloc_pd(c));
    struct ibv_mr *open = MADE(ibv_reg_mr(left, a.buf, a.len, ALL));
    struct ibv_context *again = MADE(ibv_import_device(third));
    SUCCEEDS(ibv_close_device(c));
    CHECK("V154", fcntl(descriptor, F_GETFD) < 0 && errno == EBADF, "the descriptor is open");
    CHECK("V154", again->cmd_fd == third, "%d", again->cmd_fd);
    struct ibv_mr *found = MADE(ibv_import_mr(MADE(ibv_import_pd(again, left->handle)), open->handle));
    CHECK("V154", found->rkey == open->rkey, "%x, wanted %x", found->rkey, open->rkey);
    struct end last = a;
    last.ctx = again, last.pd = left;
    last.scq = MADE(ibv_create_cq(again, 15, NULL, NULL, 0)), last.rcq = last.scq;
    last.qp = new_qp(&last);
    SUCCEEDS(ibv_destroy_qp(b.qp));
    b.qp = new_qp(&b);
    pair_up(&last, &b, DEF);
    writes(&b, &last, 6, "before the last close", b.mr->lkey, open->rkey, IBV_WC_SUCCESS);
    strcpy(b.buf, "after it");
    memset(a.buf, 0, 64);
    SUCCEEDS(ibv_close_device(again));
    SUCCEEDS(post(&b, 7, IBV_WR_RDMA_WRITE, SIG, b.buf, 9, b.mr->lkey, (uintptr_t)a.buf, found->rkey));
    struct ibv_wc ended;
    CHECK("V154", poll_one(b.scq, &ended, HANG) == 1 && ended.status != IBV_WC_SUCCESS, "%s",
          st(ended.status));
    CHECK("V154", a.buf[0] == 0, "%s", a.buf);
    NULLS("V154", ibv_import_device(late), EINVAL);
    close(late);
    return finish();
}
