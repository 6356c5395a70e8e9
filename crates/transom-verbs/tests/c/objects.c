/* The device and its objects: what is advertised and granted, refusals and their numbers,
 * handles, busy objects, registrations. */
#include "common.h"
/* V170: enhancements of a connection, of which there are none. */
static void enhancements(struct end *e) {
    struct ibv_ece own;
    memset(&own, 0xee, sizeof own);
    SUCCEEDS(ibv_query_ece(e->qp, &own));
    CHECK("V170", own.vendor_id == 0x5452 && own.options == 0 && own.comp_mask == 0, "vendor %x options %x",
          own.vendor_id, own.options);
    struct ibv_ece peers = own;
    SUCCEEDS(ibv_set_ece(e->qp, &peers));
    peers.options = 0x30;
    SUCCEEDS(ibv_set_ece(e->qp, &peers));
    CHECK("V170", peers.options == 0, "accepted %x", peers.options);
    struct ibv_ece none = {0}, longer = {.vendor_id = 0x5452, .comp_mask = 1}, other = {.vendor_id = 0x2c9};
    FAILS("V170", ibv_set_ece(e->qp, &none), EOPNOTSUPP);
    FAILS("V170", ibv_set_ece(e->qp, &longer), EINVAL);
    FAILS("V170", ibv_set_ece(e->qp, &other), EINVAL);
}

/* V171: memory of a descriptor, which a peer reads and writes. */
static void of_descriptor(void) {
    static struct end a, b;
    struct end *e = &b;
    open_end(&a, NULL, ALL);
    open_end(&b, a.ctx, ALL);
    pair_up(&a, &b, DEF);
    enum { SIZE = 3 * 4096, AT = 4096 + 8, IOVA = 0x70000008 };
    int fd = memfd_create("pages", 0), both[2], flags = IBV_ACCESS_LOCAL_WRITE | REMOTE;
    CHECK("V171", fd >= 0 && ftruncate(fd, SIZE) == 0 && pipe(both) == 0, "errno %d", errno);
    NULLS("V171", ibv_reg_dmabuf_mr(e->pd, 0, 0, 0, -1, 0), EOPNOTSUPP);
    NULLS("V171", ibv_reg_dmabuf_mr(e->pd, 0, 4096, 0, 1 << 20, flags), EOPNOTSUPP);
    NULLS("V171", ibv_reg_dmabuf_mr(e->pd, 0, 4096, 0, both[0], flags), EOPNOTSUPP);
    NULLS("V171", ibv_reg_dmabuf_mr(e->pd, 8, 8, 0, fd, flags), EINVAL);
    NULLS("V171", ibv_reg_dmabuf_mr(e->pd, 0, 0, 0, fd, flags), EINVAL);
    NULLS("V171", ibv_reg_dmabuf_mr(e->pd, 0, SIZE + 1, 0, fd, flags), EINVAL);
    SUCCEEDS(ibv_dereg_mr(MADE(ibv_reg_dmabuf_mr(e->pd, 0, SIZE, 0, fd, flags))));
    struct ibv_mr *mr = MADE(ibv_reg_dmabuf_mr(e->pd, AT, 4096, IOVA, fd, flags));
    CHECK("V171", (uintptr_t)mr->addr == AT && mr->length == 4096 && mr->pd == e->pd, "addr %p", mr->addr);
    char *seen = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    memset(a.buf, 0x5a, 64);
    SUCCEEDS(post(&a, 1, IBV_WR_RDMA_WRITE, SIG, a.buf, 64, a.mr->lkey, IOVA + 16, mr->rkey));
    EXPECT_WC("V171", a.scq, 1, IBV_WC_SUCCESS);
    CHECK("V171", seen[AT + 15] == 0 && !memcmp(seen + AT + 16, a.buf, 64) && seen[AT + 80] == 0, "bytes");
    seen[AT + 4095] = 0x33;
    SUCCEEDS(post(&a, 2, IBV_WR_RDMA_READ, SIG, a.buf, 1, a.mr->lkey, IOVA + 4095, mr->rkey));
    EXPECT_WC("V171", a.scq, 2, IBV_WC_SUCCESS);
    CHECK("V171", a.buf[0] == 0x33, "read %x", a.buf[0]);
    SUCCEEDS(ibv_dereg_mr(mr));
    munmap(seen, SIZE);
    /* Memory that may not be written can still be read. */
    int sealed = memfd_create("sealed", MFD_ALLOW_SEALING);
    CHECK("V171", ftruncate(sealed, 4096) == 0 && fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE) == 0, "errno %d", errno);
    NULLS("V171", ibv_reg_dmabuf_mr(e->pd, 0, 4096, 0, sealed, flags), EOPNOTSUPP);
    SUCCEEDS(ibv_dereg_mr(MADE(ibv_reg_dmabuf_mr(e->pd, 0, 4096, 0, sealed, IBV_ACCESS_REMOTE_READ))));
    close(sealed);
    close(both[0]);
    close(both[1]);
}

/* Threads that make and destroy queue pairs do not get in each other's way. */
static struct end shared_end;
static void *makes(void *unused) {
    long failed = 0;
    for (int i = 0; i < 1000; i++) {
        struct ibv_qp_init_attr init = {.send_cq = shared_end.scq,
                                        .recv_cq = shared_end.rcq,
                                        .cap = {1, 1, 1, 1, 0},
                                        .qp_type = IBV_QPT_RC};
        struct ibv_qp *q = ibv_create_qp(shared_end.pd, &init);
        failed += q == NULL || ibv_destroy_qp(q) != 0;
    }
    return (void *)failed;
}
static void threads(void) {
    pthread_t t[5];
    open_end(&shared_end, NULL, ALL);
    for (int i = 0; i < 5; i++)
        SUCCEEDS(pthread_create(&t[i], NULL, makes, NULL));
    for (int i = 0; i < 5; i++) {
        void *failed;
        SUCCEEDS(pthread_join(t[i], &failed));
        CHECK("V147", failed == NULL, "%ld of 1000", (long)failed);
    }
}

int main(void) {
    struct ibv_context *c = open_dev(), *c2 = open_dev();
    struct end e = {0}, f = {0};
    open_end(&e, c, ALL);
    open_end(&f, c2, ALL);
    long pg = sysconf(_SC_PAGESIZE);
    /* device */
    struct ibv_device_attr d;
    SUCCEEDS(ibv_query_device(c, &d));
    CHECK("V152", d.atomic_cap == IBV_ATOMIC_HCA, "atomic_cap %d", d.atomic_cap);
    CHECK("V152", !(d.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A), "flags %x",
          d.device_cap_flags);
    CHECK("V28",
          d.max_qp == 32768 && d.max_qp_wr == 16384 && d.max_sge == 32 && d.max_sge_rd == 32 &&
              d.max_cq == 65536 && d.max_cqe == 4194303 && d.max_mr == 1 << 20 &&
              d.max_pd == 65536 && d.max_srq == 32768 && d.max_srq_wr == 65536 &&
              d.max_srq_sge == 32 && d.max_qp_rd_atom == 16 && d.max_qp_init_rd_atom == 16 &&
              d.max_pkeys == 1 && d.phys_port_cnt == 1 && d.vendor_id == 0x5452,
          "device attributes");
    struct ibv_device_attr_ex dx;
    memset(&dx, 0xee, sizeof dx);
    SUCCEEDS(ibv_query_device_ex(c, NULL, &dx));
    CHECK("V28",
          dx.comp_mask == 0 && dx.phys_port_cnt_ex == 1 && dx.max_dm_size == 0,
          "device_ex");
    struct ibv_port_attr pa;
    SUCCEEDS(ibv_query_port(c, 1, &pa));
    CHECK("V28",
          pa.state == 4 && pa.max_mtu == 5 && pa.active_mtu == 5 && pa.gid_tbl_len == 32 &&
              pa.max_msg_sz == 1 << 30 && pa.pkey_tbl_len == 1 && pa.lid == 0 &&
              pa.link_layer == IBV_LINK_LAYER_ETHERNET && pa.phys_state == 5,
          "port");
    FAILS("V28", ibv_query_port(c, 0, &pa), EINVAL);
    FAILS("V28", ibv_query_port(c, 2, &pa), EINVAL);
    union ibv_gid g;
    CHECK("V26", ibv_query_gid(c, 1, 31, &g) == 0, "empty index");
    {
        union ibv_gid z = {0};
        CHECK("V26", !memcmp(&z, &g, 16), "gid zero");
    }
    errno = 0;
    CHECK("V26/V33", ibv_query_gid(c, 1, 32, &g) == -1 && errno, "beyond");
    errno = 0;
    CHECK("V33", ibv_query_gid(c, 2, 0, &g) == -1 && errno, "port");
    CHECK("V33", ibv_query_gid(c, 1, -1, &g) == -1, "negative");
    struct ibv_gid_entry ge;
    CHECK("V26",
          ibv_query_gid_ex(c, 1, 3, &ge, 0) == 0 && ge.gid_type == IBV_GID_TYPE_ROCE_V2 &&
              ge.gid_index == 3 && ge.port_num == 1,
          "gid_ex");
    FAILS("V26", ibv_query_gid_ex(c, 1, 31, &ge, 0), ENODATA);
    FAILS("V26", ibv_query_gid_ex(c, 1, 32, &ge, 0), EINVAL);
    FAILS("V26", ibv_query_gid_ex(c, 2, 0, &ge, 0), EINVAL);
    FAILS("V26", ibv_query_gid_ex(c, 1, 0, &ge, 1), EINVAL);
    {
        struct ibv_gid_entry t[64];
        ssize_t n = ibv_query_gid_table(c, t, 64, 0);
        CHECK("V26", n >= 1, "table %zd", n);
        CHECK("V26", ibv_query_gid_table(c, t, n - 1, 0) == -EINVAL, "small");
        CHECK("V26", ibv_query_gid_table(c, t, n, 0) == n, "exact");
        CHECK("V26", ibv_query_gid_table(c, t, 64, 1) == -EINVAL, "flags");
    }
    __be16 pk;
    CHECK("V29", ibv_query_pkey(c, 1, 0, &pk) == 0 && pk == 0xffff, "pkey");
    errno = 0;
    CHECK("V29", ibv_query_pkey(c, 1, 1, &pk) == -1 && errno == EINVAL, "pkey 1");
    errno = 0;
    CHECK("V29", ibv_get_pkey_index(c, 1, 0xffff) == 0, "index");
    CHECK("V29", ibv_get_pkey_index(c, 1, 0x7fff) == -1 && errno == EINVAL, "index");
    CHECK("V30", c->num_comp_vectors == 1, "vectors");
    CHECK("V31", fcntl(c->cmd_fd, F_GETFD) >= 0 && fcntl(c->async_fd, F_GETFD) >= 0, "fds");
    /* CQ */
    NULLS("V30", ibv_create_cq(c, 10, NULL, NULL, 1), EINVAL);
    NULLS("V30", ibv_create_cq(c, 10, NULL, NULL, -1), EINVAL);
    NULLS("V30", ibv_create_cq(c, 0, NULL, NULL, 0), EINVAL);
    NULLS("V30", ibv_create_cq(c, -1, NULL, NULL, 0), EINVAL);
    NULLS("V30", ibv_create_cq(c, 4194304, NULL, NULL, 0), EINVAL);
    int depths[][2] = {{1, 1},  {2, 3},       {3, 3},       {4, 7},      {7, 7},
                       {8, 15}, {1000, 1023}, {1023, 1023}, {1024, 2047}};
    for (int i = 0; i < 9; i++) {
        struct ibv_cq *q = MADE(ibv_create_cq(c, depths[i][0], &i, NULL, 0));
        CHECK("V52", q->cqe == depths[i][1], "%d -> %d", depths[i][0], q->cqe);
        CHECK("V52", q->cq_context == &i && q->context == c && q->channel == NULL, "members");
        SUCCEEDS(ibv_destroy_cq(q));
    }
    {
        struct ibv_cq *q = ibv_create_cq(c, 4194303, NULL, NULL, 0);
        CHECK("V28", q, "max_cqe %d", errno);
        if (q) {
            CHECK("V52", q->cqe == 4194303, "cqe %d", q->cqe);
            SUCCEEDS(ibv_destroy_cq(q));
        }
    }
    {
        struct ibv_cq *q = MADE(ibv_create_cq(c, 10, NULL, NULL, 0));
        FAILS("V28", ibv_resize_cq(q, 0), EINVAL);
        FAILS("V28", ibv_resize_cq(q, 4194304), EINVAL);
        CHECK("V52", q->cqe == 15, "cqe %d", q->cqe);
        SUCCEEDS(ibv_resize_cq(q, 100));
        CHECK("V52", q->cqe == 127, "cqe %d", q->cqe);
        SUCCEEDS(ibv_resize_cq(q, 3));
        CHECK("V52", q->cqe == 3, "cqe %d", q->cqe);
        FAILS("V100", ibv_req_notify_cq(q, 0), EINVAL);
        struct ibv_wc w;
        CHECK("V57", ibv_poll_cq(q, 1, &w) == 0, "empty");
        CHECK("V57", ibv_poll_cq(q, 0, &w) == 0, "zero");
        SUCCEEDS(ibv_destroy_cq(q));
    }
    {
        struct ibv_cq_init_attr_ex x = {.cqe = 10, .wc_flags = 127};
        struct ibv_cq_ex *q = ibv_create_cq_ex(c, &x);
        CHECK("V56", q, "cq_ex %d", errno);
        if (q) {
            struct ibv_poll_cq_attr pa = {0};
            FAILS("V56", ibv_start_poll(q, &pa), ENOENT);
            pa.comp_mask = 1;
            FAILS("V56", ibv_start_poll(q, &pa), EINVAL);
            pa.comp_mask = 0;
            FAILS("V56", ibv_start_poll(q, &pa), ENOENT);
            SUCCEEDS(ibv_destroy_cq(ibv_cq_ex_to_cq(q)));
        }
        int u[] = {256, 512, 1024, 4096};
        for (int i = 0; i < 4; i++) {
            x.wc_flags = u[i];
            NULLS("V56", ibv_create_cq_ex(c, &x), EOPNOTSUPP);
        }
        x.wc_flags = 0;
        x.comp_mask = 1;
        for (int i = 0; i < 2; i++) {
            x.flags = 1 << i;
            q = ibv_create_cq_ex(c, &x);
            CHECK("V56", q, "flag %d", 1 << i);
            if (q)
                ibv_destroy_cq(ibv_cq_ex_to_cq(q));
        }
        x.flags = 4;
        NULLS("V56", ibv_create_cq_ex(c, &x), EINVAL);
        x.flags = 0;
        x.comp_mask = 4;
        NULLS("V56", ibv_create_cq_ex(c, &x), EINVAL);
        x.comp_mask = 0;
        x.comp_vector = 1;
        NULLS("V30", ibv_create_cq_ex(c, &x), EINVAL);
        x.comp_vector = 0;
        x.cqe = 0;
        NULLS("V30", ibv_create_cq_ex(c, &x), EINVAL);
        x.cqe = 4194304;
        NULLS("V30", ibv_create_cq_ex(c, &x), EINVAL);
    }
    /* V40 */
    char *m = e.buf;
    NULLS("V40", ibv_reg_mr(e.pd, m, 100, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    NULLS("V40", ibv_reg_mr(e.pd, m, 100, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
    NULLS("V40", ibv_reg_mr(e.pd, m, 100, 0x100), EOPNOTSUPP);
    NULLS("V40", ibv_reg_mr(e.pd, m, 100, 0x200), EOPNOTSUPP);
    NULLS("V40", ibv_reg_mr(e.pd, m, 100, 0x400), EOPNOTSUPP);
    NULLS("V40", ibv_reg_mr(e.pd, m, 100, 1 << 30), EOPNOTSUPP);
    int ok[] = {0, 1, 4, 5, 7, 0x80, 0x81, 0x100001, 0x3ff00001, 0x10, 0x20, 0xb, 0x41};
    for (int i = 0; i < 13; i++) {
        struct ibv_mr *r = ibv_reg_mr(e.pd, m + 3, 101, ok[i]);
        CHECK("V40", r, "access %x: %d", ok[i], errno);
        if (r) {
            CHECK("V42",
                  r->lkey == r->rkey && r->addr == m + 3 && r->length == 101 && r->pd == e.pd &&
                      r->context == c,
                  "members");
            SUCCEEDS(ibv_dereg_mr(r));
        }
    }
    NULLS("V40", ibv_reg_mr(e.pd, (void *)-4096L, 8192, 1), EINVAL);
    NULLS("V40", ibv_reg_mr(e.pd, m, SIZE_MAX, 1), EINVAL);
    NULLS("V28", ibv_reg_mr(e.pd, m, (1UL << 46) + 1, 0), EINVAL);
    char *h = mmap(NULL, 4 * pg, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(h + pg, pg);
    NULLS("V40", ibv_reg_mr(e.pd, h, 3 * pg, 1), EFAULT);
    NULLS("V40", ibv_reg_mr(e.pd, h, pg + 1, 0), EFAULT);
    NULLS("V40", ibv_reg_mr(e.pd, h + pg, 1, 0), EFAULT);
    NULLS("V40", ibv_reg_mr(e.pd, h + 2 * pg - 1, 2, 0), EFAULT);
    {
        struct ibv_mr *r = ibv_reg_mr(e.pd, h, pg, 1);
        CHECK("V40", r, "before the hole");
        if (r)
            ibv_dereg_mr(r);
        r = ibv_reg_mr(e.pd, h + 2 * pg, pg, 1);
        CHECK("V40", r, "behind");
        if (r)
            ibv_dereg_mr(r);
    }
    mprotect(h + 2 * pg, pg, PROT_READ);
    NULLS("V40", ibv_reg_mr(e.pd, h + 2 * pg, pg, 1), EFAULT);
    {
        struct ibv_mr *r = ibv_reg_mr(e.pd, h + 2 * pg, pg, 4);
        CHECK("V40", r, "read-only pages for reading: %d", errno);
        if (r)
            ibv_dereg_mr(r);
        r = ibv_reg_mr(e.pd, "constant", 8, 0);
        CHECK("V40", r, "constant: %d", errno);
        if (r)
            ibv_dereg_mr(r);
        NULLS("V40", ibv_reg_mr(e.pd, "constant", 8, 1), EFAULT);
    }
    mprotect(h + 2 * pg, pg, PROT_NONE);
    NULLS("V40", ibv_reg_mr(e.pd, h + 2 * pg, pg, 0), EFAULT);
    NULLS("V40", ibv_reg_mr(e.pd, NULL, 8, 0), EFAULT);
    NULLS("V40", ibv_reg_mr_iova(e.pd, m, 4096, -100, 1), EINVAL);
    {
        struct ibv_mr *r = ibv_reg_mr_iova(e.pd, m, 4096, 0x1000000, 7);
        CHECK("V40", r, "iova");
        if (r)
            ibv_dereg_mr(r);
    }
    /* V41 */
    {
        NULLS("V41", ibv_reg_mr(e.pd, m, 0, ALL), EINVAL);
        NULLS("V41", ibv_reg_mr(e.pd, NULL, 0, 0), EINVAL);
        void *within = (char *)m + 1;
        struct ibv_mr *r = ibv_reg_mr(e.pd, within, 0, ALL);
        CHECK("V41", r, "length 0: %d", errno);
        if (r) {
            CHECK("V42", r->length == 0 && r->addr == within && r->pd == e.pd, "members");
            struct ibv_mr *s = ibv_reg_mr(e.pd, (char *)m + 4095, 0, 0);
            CHECK("V41", s, "the last byte of a page, 0");
            if (s) {
                CHECK("V41", s->handle != r->handle, "same handles");
                SUCCEEDS(ibv_dereg_mr(s));
            }
            FAILS("V35", ibv_dealloc_pd(e.pd), EBUSY);
            SUCCEEDS(ibv_dereg_mr(r));
        }
    }
    /* V46 */
    {
        struct ibv_alloc_dm_attr da = {.length = 64};
        NULLS("V46", ibv_alloc_dm(c, &da), EOPNOTSUPP);
        NULLS("V46", ibv_alloc_null_mr(e.pd), EOPNOTSUPP);
        NULLS("V46", ibv_reg_dmabuf_mr(e.pd, 0, 64, 0, -1, 1), EOPNOTSUPP);
        struct ibv_wq_init_attr wa = {
            .wq_type = 0, .max_wr = 1, .max_sge = 1, .pd = e.pd, .cq = e.rcq};
        NULLS("V9", ibv_create_wq(c, &wa), EOPNOTSUPP);
        struct ibv_counters_init_attr ca = {0};
        NULLS("V9", ibv_create_counters(c, &ca), EOPNOTSUPP);
        struct ibv_flow_attr fa = {.size = sizeof fa};
        NULLS("V9", ibv_create_flow(e.qp, &fa), EOPNOTSUPP);
        struct ibv_modify_cq_attr mc = {.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {65535, 4095}};
        SUCCEEDS(ibv_modify_cq(e.rcq, &mc));
        mc.moderate.cq_period = 4096;
        FAILS("V176", ibv_modify_cq(e.rcq, &mc), EINVAL);
        mc = (struct ibv_modify_cq_attr){.attr_mask = 0};
        FAILS("V176", ibv_modify_cq(e.rcq, &mc), EINVAL);
        mc.attr_mask = IBV_CQ_ATTR_MODERATE | 2;
        FAILS("V176", ibv_modify_cq(e.rcq, &mc), EOPNOTSUPP);
        FAILS("V176", ibv_modify_cq(e.rcq, NULL), EINVAL);
        mc.attr_mask = IBV_CQ_ATTR_MODERATE;
        SUCCEEDS(ibv_modify_cq(e.rcq, &mc));
        struct ibv_device_attr_ex dx;
        SUCCEEDS(ibv_query_device_ex(c, NULL, &dx));
        CHECK("V176", dx.cq_mod_caps.max_cq_count == 65535 && dx.cq_mod_caps.max_cq_period == 4095,
              "moderation %u %u", dx.cq_mod_caps.max_cq_count, dx.cq_mod_caps.max_cq_period);
        struct ibv_values_ex ve = {.comp_mask = 3}, later = {.comp_mask = 1};
        SUCCEEDS(ibv_query_rt_values_ex(c, &ve));
        CHECK("V174", ve.comp_mask == IBV_VALUES_MASK_RAW_CLOCK, "mask %u", ve.comp_mask);
        SUCCEEDS(ibv_query_rt_values_ex(c, &later));
        CHECK("V174", later.raw_clock.tv_nsec >= ve.raw_clock.tv_nsec && !later.raw_clock.tv_sec,
              "clock %ld", later.raw_clock.tv_nsec);
        ve = (struct ibv_values_ex){.comp_mask = 2, .raw_clock = {5, 6}};
        SUCCEEDS(ibv_query_rt_values_ex(c, &ve));
        CHECK("V174", ve.comp_mask == 0 && ve.raw_clock.tv_nsec == 6, "mask %u", ve.comp_mask);
        FAILS("V174", ibv_query_rt_values_ex(c, NULL), EINVAL);
        CHECK("2.1", ibv_qp_to_qp_ex(e.qp) == NULL, "qp_ex of a plain one");
    }
    /* V44 */
    {
        struct ibv_mr *r = MADE(ibv_reg_mr(e.pd, m, 4096, 1));
        struct ibv_pd *p2 = MADE(ibv_alloc_pd(c));
        uint32_t k = r->lkey;
#define REREG_FAILS(call, er)                                                            \
    do {                                                                                 \
        errno = 0;                                                                       \
        int _r = (call);                                                                 \
        CHECK("V44", _r == -1 && errno == (er), "%s: %d errno %d", #call, _r, errno);    \
        CHECK("V44", r->lkey == k && r->addr == m && r->length == 4096 && r->pd == e.pd, \
              "MR changed by %s", #call);                                                \
    } while (0)
        REREG_FAILS(ibv_rereg_mr(r, 8, NULL, NULL, 0, 0), EINVAL);
        REREG_FAILS(ibv_rereg_mr(r, 0, NULL, NULL, 0, 0), EINVAL);
        REREG_FAILS(ibv_rereg_mr(r, 1, NULL, NULL, 0, 0), EINVAL);
        REREG_FAILS(ibv_rereg_mr(r, 2, NULL, NULL, 0, 0), EINVAL);
        {
            int x = ibv_rereg_mr(r, 4, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE);
            CHECK("V44", x != 0 && errno == EINVAL, "bad access %d errno %d", x, errno);
            CHECK("V44", r->lkey == k && r->length == 4096, "changed");
        }
        {
            int x = ibv_rereg_mr(r, 1, NULL, h + pg, pg, 0);
            CHECK("V44", x != 0 && errno == EFAULT, "hole: %d errno %d", x, errno);
            CHECK("V44", r->lkey == k && r->addr == m, "changed");
        }
        SUCCEEDS(ibv_rereg_mr(r, 2, p2, NULL, 0, 0));
        CHECK("V44", r->pd == p2 && r->addr == m && r->length == 4096, "pd");
        FAILS("V35", ibv_dealloc_pd(p2), EBUSY);
        SUCCEEDS(ibv_rereg_mr(r, 7, e.pd, m + 8192, 100, ALL));
        CHECK("V44", r->pd == e.pd && r->addr == m + 8192 && r->length == 100, "all");
        CHECK("V44/V42", r->lkey == r->rkey, "keys");
        SUCCEEDS(ibv_dealloc_pd(p2));
        SUCCEEDS(ibv_rereg_mr(r, 4, NULL, NULL, 0, 1));
        SUCCEEDS(ibv_dereg_mr(r));
    }
    /* V44: a change of access keeps the address that peers use */
    {
        struct end g = {0};
        open_end(&g, c, ALL);
        SUCCEEDS(ibv_destroy_qp(g.qp));
        g.qp = new_qp(&g);
        struct end h = {0};
        open_end(&h, c, ALL);
        pair_up(&g, &h, DEF);
        struct ibv_mr *r = MADE(ibv_reg_mr_iova(h.pd, h.buf, 4096, 0x7000000000, 1));
        uint32_t key = r->rkey;
        SUCCEEDS(ibv_rereg_mr(r, 4, NULL, NULL, 0, ALL));
        CHECK("V44", r->rkey == key && r->lkey == key, "key %x after %x", r->rkey, key);
        strcpy(g.buf, "moved");
        SUCCEEDS(post(&g, 1, IBV_WR_RDMA_WRITE, SIG, g.buf, 6, g.mr->lkey, 0x7000000010, r->rkey));
        EXPECT_WC("V44", g.scq, 1, IBV_WC_SUCCESS);
        CHECK("V44", !strcmp(h.buf + 16, "moved"), "bytes");
        SUCCEEDS(ibv_rereg_mr(r, 4, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE));
        strcpy(g.buf, "later");
        SUCCEEDS(post(&g, 2, IBV_WR_RDMA_WRITE, SIG, g.buf, 6, g.mr->lkey, 0x7000000010, key));
        EXPECT_WC("V44", g.scq, 2, IBV_WC_REM_ACCESS_ERR);
        CHECK("V44", !strcmp(h.buf + 16, "moved"), "bytes that the new access forbids");
        SUCCEEDS(ibv_dereg_mr(r));
        SUCCEEDS(ibv_destroy_qp(g.qp));
        SUCCEEDS(ibv_destroy_qp(h.qp));
    }
    /* V34 */
    struct ibv_srq_init_attr sa = {.attr = {16, 2, 0}};
    struct ibv_srq *srq = MADE(ibv_create_srq(e.pd, &sa));
    struct ibv_ah_attr aa = {
        .is_global = 1, .port_num = 1, .grh = {.dgid = e.gid, .sgid_index = 0}};
    struct ibv_ah *ah = ibv_create_ah(e.pd, &aa);
    CHECK("V142", ah, "ah %d", errno);
    {
        struct ibv_ah_attr b = aa;
        b.is_global = 0;
        NULLS("V63", ibv_create_ah(e.pd, &b), EINVAL);
        b = aa;
        b.port_num = 2;
        NULLS("V142", ibv_create_ah(e.pd, &b), EINVAL);
        b = aa;
        b.grh.sgid_index = 31;
        NULLS("V142", ibv_create_ah(e.pd, &b), EINVAL);
        b = aa;
        b.dlid = 0xc000;
        struct ibv_ah *x = ibv_create_ah(e.pd, &b);
        CHECK("V142", x, "dlid");
        if (x)
            SUCCEEDS(ibv_destroy_ah(x));
    }
    struct ibv_qp_attr qa = a_init(0);
    struct ibv_qp_init_attr qi;
    struct ibv_srq_attr sra = {16, 2, 1};
#define HANDLE(obj, call)               \
    do {                                \
        uint32_t _h = (obj)->handle;    \
        (obj)->handle = _h + 0x1234567; \
        FAILS("V34", call, ENOENT);     \
        (obj)->handle = _h;             \
    } while (0)
#define HANDLEN(obj, call)              \
    do {                                \
        uint32_t _h = (obj)->handle;    \
        (obj)->handle = _h + 0x1234567; \
        NULLS("V34", call, ENOENT);     \
        (obj)->handle = _h;             \
    } while (0)
    HANDLE(e.pd, ibv_dealloc_pd(e.pd));
    HANDLEN(e.pd, ibv_reg_mr(e.pd, m, 10, 1));
    HANDLEN(e.pd, ibv_create_srq(e.pd, &sa));
    HANDLEN(e.pd, ibv_create_ah(e.pd, &aa));
    struct ibv_qp_init_attr ia = {
        .send_cq = e.scq, .recv_cq = e.rcq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    HANDLEN(e.pd, ibv_create_qp(e.pd, &ia));
    HANDLEN(e.scq, ibv_create_qp(e.pd, &ia));
    HANDLEN(e.rcq, ibv_create_qp(e.pd, &ia));
    ia.srq = srq;
    HANDLEN(srq, ibv_create_qp(e.pd, &ia));
    ia.srq = NULL;
    HANDLE(e.mr, ibv_dereg_mr(e.mr));
    HANDLE(e.scq, ibv_destroy_cq(e.scq));
    HANDLE(e.scq, ibv_resize_cq(e.scq, 100));
    HANDLE(e.scq, ibv_req_notify_cq(e.scq, 0));
    HANDLE(e.qp, ibv_destroy_qp(e.qp));
    HANDLE(e.qp, ibv_modify_qp(e.qp, &qa, M_INIT));
    HANDLE(e.qp, ibv_query_qp(e.qp, &qa, 1, &qi));
    HANDLE(srq, ibv_destroy_srq(srq));
    HANDLE(srq, ibv_modify_srq(srq, &sra, 2));
    HANDLE(srq, ibv_query_srq(srq, &sra));
    if (ah)
        HANDLE(ah, ibv_destroy_ah(ah));
    {
        uint32_t hh = e.mr->handle;
        e.mr->handle += 99999;
        errno = 0;
        int r = ibv_rereg_mr(e.mr, 4, NULL, NULL, 0, 1);
        CHECK("V34", r != 0 && errno == ENOENT, "rereg %d errno %d", r, errno);
        e.mr->handle = hh;
    }
    CHECK("V34", state_of(e.qp) == IBV_QPS_RESET, "state %d", state_of(e.qp));
    {
        uint32_t hh = e.mr->handle;
        struct ibv_mr *r = MADE(ibv_reg_mr(e.pd, m, 10, 1));
        e.mr->handle = r->handle;
        FAILS("V34", ibv_dereg_mr(e.mr), ENOENT);
        e.mr->handle = hh;
        SUCCEEDS(ibv_dereg_mr(r));
    }
    {
        uint32_t hh = e.scq->handle;
        e.scq->handle = e.rcq->handle;
        FAILS("V34", ibv_destroy_cq(e.scq), ENOENT);
        e.scq->handle = hh;
    }
    /* V39 */
    ia.send_cq = f.scq;
    NULLS("V39", ibv_create_qp(e.pd, &ia), EINVAL);
    ia.send_cq = e.scq;
    ia.recv_cq = f.rcq;
    NULLS("V39", ibv_create_qp(e.pd, &ia), EINVAL);
    ia.recv_cq = e.rcq;
    ia.srq = srq;
    ia.send_cq = f.scq;
    ia.recv_cq = f.rcq;
    NULLS("V39", ibv_create_qp(f.pd, &ia), EINVAL);
    NULLS("V39", ibv_create_cq(c, 10, NULL, f.ch, 0), EINVAL);
    {
        errno = 0;
        uint32_t k = e.mr->lkey;
        int r = ibv_rereg_mr(e.mr, 2, f.pd, NULL, 0, 0);
        CHECK("V39", r && errno == EINVAL && e.mr->lkey == k && e.mr->pd == e.pd,
              "rereg to another context's PD %d %d", r, errno);
    }
    ia = (struct ibv_qp_init_attr){.send_cq = e.scq,
                                   .recv_cq = e.rcq,
                                   .cap = {1, 1, 1, 1, 0},
                                   .qp_type = IBV_QPT_RC,
                                   .srq = srq};
    /* V35 */
    struct ibv_qp *sq = MADE(ibv_create_qp(e.pd, &ia));
    CHECK("V72", sq->srq == srq, "srq");
    FAILS("V35", ibv_destroy_srq(srq), EBUSY);
    FAILS("V35", ibv_destroy_cq(e.scq), EBUSY);
    FAILS("V35", ibv_destroy_cq(e.rcq), EBUSY);
    FAILS("V35", ibv_destroy_comp_channel(e.ch), EBUSY);
    {
        struct ibv_pd *p = MADE(ibv_alloc_pd(c));
        struct ibv_ah *x = MADE(ibv_create_ah(p, &aa));
        FAILS("V35", ibv_dealloc_pd(p), EBUSY);
        SUCCEEDS(ibv_destroy_ah(x));
        struct ibv_srq *s = MADE(ibv_create_srq(p, &sa));
        FAILS("V35", ibv_dealloc_pd(p), EBUSY);
        SUCCEEDS(ibv_destroy_srq(s));
        ia.srq = NULL;
        struct ibv_qp *x2 = MADE(ibv_create_qp(p, &ia));
        FAILS("V35", ibv_dealloc_pd(p), EBUSY);
        SUCCEEDS(ibv_destroy_qp(x2));
        struct ibv_mr *r = MADE(ibv_reg_mr(p, m, 10, 0));
        FAILS("V35", ibv_dealloc_pd(p), EBUSY);
        SUCCEEDS(ibv_dereg_mr(r));
        SUCCEEDS(ibv_dealloc_pd(p));
    }
    SUCCEEDS(ibv_destroy_qp(sq));
    SUCCEEDS(ibv_destroy_srq(srq));
    if (ah)
        SUCCEEDS(ibv_destroy_ah(ah));
    SUCCEEDS(ibv_destroy_qp(e.qp));
    SUCCEEDS(ibv_destroy_cq(e.scq));
    FAILS("V35", ibv_destroy_comp_channel(e.ch), EBUSY);
    SUCCEEDS(ibv_destroy_cq(e.rcq));
    SUCCEEDS(ibv_destroy_comp_channel(e.ch));
    FAILS("V35", ibv_dealloc_pd(e.pd), EBUSY);
    SUCCEEDS(ibv_dereg_mr(e.mr));
    SUCCEEDS(ibv_dealloc_pd(e.pd));
    /* SRQ attributes */
    {
        struct ibv_srq_init_attr x = {.attr = {65537, 1, 0}};
        NULLS("V28", ibv_create_srq(f.pd, &x), EINVAL);
        x.attr.max_wr = 1;
        x.attr.max_sge = 33;
        NULLS("V28", ibv_create_srq(f.pd, &x), EINVAL);
        x.attr.max_wr = 0;
        x.attr.max_sge = 1;
        NULLS("V28", ibv_create_srq(f.pd, &x), EINVAL);
        x.attr = (struct ibv_srq_attr){65536, 32, 0};
        struct ibv_srq *s = ibv_create_srq(f.pd, &x);
        CHECK("V28", s, "largest srq %d", errno);
        if (s)
            SUCCEEDS(ibv_destroy_srq(s));
    }
    /* V38 */
    SUCCEEDS(ibv_close_device(c2));
    SUCCEEDS(ibv_close_device(c));
    threads();
    enhancements(&shared_end);
    of_descriptor();
    CHECK("V172",
          ibv_query_qp_data_in_order(shared_end.qp, IBV_WR_RDMA_WRITE, 0) == 1 &&
              ibv_query_qp_data_in_order(shared_end.qp, IBV_WR_RDMA_WRITE, 1) == 3,
          "order");
    return finish();
}
