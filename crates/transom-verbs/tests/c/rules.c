/* The promises of the interface, call by call. Each case is run by its name; 0: it holds. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <transom_verbs.h>

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

/* A call that fails with a number, which is errno, too. */
#define REFUSED(call, number)            \
    do {                                 \
        errno = 0;                       \
        CHECK((call) == (number));       \
        CHECK(errno == (number));        \
    } while (0)

/* A call that fails with null and errno. */
#define NO_OBJECT(call, number)          \
    do {                                 \
        errno = 0;                       \
        CHECK((call) == NULL);           \
        CHECK(errno == (number));        \
    } while (0)

enum { SIZE = 4096, DEPTH = 16 };

static struct ibv_device **list;
static struct ibv_context *context;
static struct ibv_pd *pd;

static void open_device(void) {
    list = ibv_get_device_list(NULL);
    CHECK(list && list[0] && !list[1]);
    context = ibv_open_device(list[0]);
    CHECK(context);
    pd = ibv_alloc_pd(context);
    CHECK(pd);
}

static void close_device(void) {
    CHECK(ibv_dealloc_pd(pd) == 0);
    CHECK(ibv_close_device(context) == 0);
    ibv_free_device_list(list);
}

/* A side of a connection. */
struct side {
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    char *bytes;
};

static struct ibv_qp *queue_pair(struct ibv_cq *cq, struct ibv_srq *srq) {
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 2},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    return qp;
}

static struct side make(void) {
    struct side side;
    side.cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    CHECK(side.cq);
    side.qp = queue_pair(side.cq, NULL);
    side.bytes = calloc(1, SIZE);
    side.mr = ibv_reg_mr(pd, side.bytes, SIZE,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    CHECK(side.mr);
    return side;
}

static void drop(struct side side) {
    CHECK(ibv_destroy_qp(side.qp) == 0);
    CHECK(ibv_destroy_cq(side.cq) == 0);
    CHECK(ibv_dereg_mr(side.mr) == 0);
    free(side.bytes);
}

static int to_init(struct ibv_qp *qp, int access) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

enum { RTR_MASK = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER };

static struct ibv_qp_attr rtr(uint32_t number) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number,
        .max_dest_rd_atomic = 4, .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 0, .hop_limit = 1}},
    };
    CHECK(ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid) == 0);
    return attr;
}

static int to_rts(struct ibv_qp *qp, int timeout, int rnr_retry) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .timeout = timeout, .retry_cnt = timeout == 1 ? 0 : 7,
                               .rnr_retry = rnr_retry, .max_rd_atomic = 4};
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

enum { ALL = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

static void ready(struct ibv_qp *qp, uint32_t number, int access, int rnr_retry) {
    CHECK(to_init(qp, access) == 0);
    struct ibv_qp_attr attr = rtr(number);
    CHECK(ibv_modify_qp(qp, &attr, RTR_MASK) == 0);
    CHECK(to_rts(qp, 14, rnr_retry) == 0);
}

static void connect_both(struct side a, struct side b) {
    ready(a.qp, b.qp->qp_num, ALL, 7);
    ready(b.qp, a.qp->qp_num, ALL, 7);
}

static int state_of(struct ibv_qp *qp) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
    return attr.qp_state;
}

static int receive(struct side side, uint64_t id, uint32_t length) {
    struct ibv_sge sge = {.addr = (uintptr_t)side.bytes, .length = length, .lkey = side.mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
    return ibv_post_recv(side.qp, &wr, &bad);
}

static int post(struct side side, uint64_t id, int opcode, struct ibv_sge sge, uint64_t address,
                uint32_t rkey, int flags) {
    struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
                             .send_flags = flags,
                             .wr.rdma = {.remote_addr = address, .rkey = rkey}},
                       *bad = NULL;
    int done = ibv_post_send(side.qp, &wr, &bad);
    CHECK(done == 0 || bad == &wr);
    return done;
}

static struct ibv_sge all_of(struct side side, uint32_t length) {
    struct ibv_sge sge = {.addr = (uintptr_t)side.bytes, .length = length, .lkey = side.mr->lkey};
    return sge;
}

/* The next completion; waits for it for as long as the test may run. */
static struct ibv_wc next(struct ibv_cq *cq) {
    struct ibv_wc wc;
    int found;
    while ((found = ibv_poll_cq(cq, 1, &wc)) == 0)
        ;
    CHECK(found == 1);
    return wc;
}

static void expect(struct ibv_cq *cq, uint64_t id, int status) {
    struct ibv_wc wc = next(cq);
    if (wc.wr_id != id || (int)wc.status != status)
        fprintf(stderr, "wr_id %ld, %s\n", (long)wc.wr_id, ibv_wc_status_str(wc.status));
    CHECK(wc.wr_id == id && (int)wc.status == status);
}

/* ---- cases ---------------------------------------------------------------------------------- */

static void v26_v29_tables(void) {
    open_device();
    struct ibv_port_attr port;
    struct ibv_gid_entry entry;
    union ibv_gid gid;
    __be16 pkey;
    REFUSED(ibv_query_port(context, 2, &port), EINVAL);
    CHECK(ibv_query_port(context, 1, &port) == 0 && port.link_layer == IBV_LINK_LAYER_ETHERNET);
    CHECK(ibv_query_gid_ex(context, 1, 0, &entry, 0) == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V1);
    CHECK(ibv_query_gid_ex(context, 1, 3, &entry, 0) == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2);
    REFUSED(ibv_query_gid_ex(context, 1, port.gid_tbl_len - 1, &entry, 0), ENODATA);
    REFUSED(ibv_query_gid_ex(context, 1, port.gid_tbl_len, &entry, 0), EINVAL);
    REFUSED(ibv_query_gid_ex(context, 1, 0, &entry, 1), EINVAL);
    CHECK(ibv_query_gid(context, 1, port.gid_tbl_len - 1, &gid) == 0 && gid.global.interface_id == 0);
    CHECK(ibv_query_gid(context, 1, port.gid_tbl_len, &gid) == -1 && errno == EINVAL);
    CHECK(ibv_query_pkey(context, 1, 0, &pkey) == 0 && pkey == 0xffff);
    CHECK(ibv_query_pkey(context, 1, 1, &pkey) == -1 && errno == EINVAL);
    CHECK(ibv_get_pkey_index(context, 1, 0xffff) == 0);
    struct ibv_gid_entry table[64];
    ssize_t count = ibv_query_gid_table(context, table, 64, 0);
    CHECK(count > 0);
    CHECK(ibv_query_gid_table(context, table, count, 0) == count);
    CHECK(ibv_query_gid_table(context, table, count - 1, 0) == -EINVAL);
    CHECK(dup(context->cmd_fd) >= 0);
    close_device();
}

static void v34_v35_handles_and_busy_objects(void) {
    open_device();
    char *bytes = calloc(1, SIZE);
    struct ibv_mr *mr = ibv_reg_mr(pd, bytes, SIZE, 0);
    CHECK(mr && mr->lkey == mr->rkey);
    REFUSED(ibv_dealloc_pd(pd), EBUSY);
    pd->handle += 1000;
    NO_OBJECT(ibv_reg_mr(pd, bytes, SIZE, 0), ENOENT);
    REFUSED(ibv_dealloc_pd(pd), ENOENT);
    pd->handle -= 1000;
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 10, NULL, channel, 0);
    CHECK(channel && cq);
    REFUSED(ibv_destroy_comp_channel(channel), EBUSY);
    struct ibv_qp *qp = queue_pair(cq, NULL);
    REFUSED(ibv_destroy_cq(cq), EBUSY);
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 10, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &init);
    CHECK(srq);
    struct ibv_qp *sharing = queue_pair(cq, srq);
    REFUSED(ibv_destroy_srq(srq), EBUSY);
    struct ibv_sge sge = {.addr = (uintptr_t)bytes, .length = 1, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    CHECK(to_init(sharing, 0) == 0);
    CHECK(ibv_post_recv(sharing, &wr, &bad) == EINVAL && bad == &wr); /* Verbs V58 */
    CHECK(ibv_destroy_qp(sharing) == 0 && ibv_destroy_srq(srq) == 0);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
    CHECK(ibv_destroy_comp_channel(channel) == 0);
    CHECK(ibv_dereg_mr(mr) == 0);
    free(bytes);
    close_device();
}

static void v40_v41_registrations(void) {
    open_device();
    char *bytes = mmap(NULL, 3 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(munmap(bytes + SIZE, SIZE) == 0);
    CHECK(mprotect(bytes + 2 * SIZE, SIZE, PROT_READ) == 0);
    NO_OBJECT(ibv_reg_mr(pd, bytes, 2 * SIZE, 0), EFAULT);
    NO_OBJECT(ibv_reg_mr(pd, bytes + 2 * SIZE, SIZE, IBV_ACCESS_LOCAL_WRITE), EFAULT);
    NO_OBJECT(ibv_reg_mr(pd, bytes, SIZE, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    NO_OBJECT(ibv_reg_mr(pd, (void *)(UINTPTR_MAX - 10), 20, 0), EINVAL);
    NO_OBJECT(ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, -1, 0), EOPNOTSUPP);
    struct ibv_mr *read_only = ibv_reg_mr(pd, bytes + 2 * SIZE, SIZE, IBV_ACCESS_REMOTE_READ);
    NO_OBJECT(ibv_reg_mr(pd, bytes, 0, IBV_ACCESS_LOCAL_WRITE), EINVAL);
    struct ibv_mr *empty = ibv_reg_mr(pd, bytes + 8, 0, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr *relaxed = ibv_reg_mr(pd, bytes, SIZE, IBV_ACCESS_RELAXED_ORDERING);
    CHECK(read_only && empty && relaxed);
    CHECK(ibv_rereg_mr(relaxed, 64, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
    CHECK(ibv_rereg_mr(relaxed, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) == 0);
    CHECK(ibv_dereg_mr(read_only) == 0 && ibv_dereg_mr(empty) == 0 && ibv_dereg_mr(relaxed) == 0);
    close_device();
}

static void v28_v30_v52_sizes(void) {
    open_device();
    NO_OBJECT(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
    NO_OBJECT(ibv_create_cq(context, 1 << 22, NULL, NULL, 0), EINVAL);
    NO_OBJECT(ibv_create_cq(context, 1, NULL, NULL, 1), EINVAL);
    struct ibv_cq *cq = ibv_create_cq(context, 500, NULL, NULL, 0);
    CHECK(cq && cq->cqe == 511);
    REFUSED(ibv_req_notify_cq(cq, 0), EINVAL);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
                                    .cap = {.max_inline_data = 4096, .max_send_wr = 3}};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp && init.cap.max_inline_data == 4096 && init.cap.max_send_wr == 4);
    CHECK(state_of(qp) == IBV_QPS_RESET && ibv_destroy_qp(qp) == 0);
    init.cap.max_inline_data = 4097;
    NO_OBJECT(ibv_create_qp(pd, &init), EINVAL);
    init.cap.max_inline_data = 0;
    init.cap.max_send_sge = 33;
    NO_OBJECT(ibv_create_qp(pd, &init), EINVAL);
    init.cap.max_send_sge = 1;
    init.qp_type = IBV_QPT_RAW_PACKET;
    NO_OBJECT(ibv_create_qp(pd, &init), EOPNOTSUPP);
    CHECK(ibv_destroy_cq(cq) == 0);
    close_device();
}

static void v61_v65_states_and_posts(void) {
    open_device();
    struct side side = make();
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    REFUSED(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT), EINVAL);
    attr.port_num = 2;
    REFUSED(ibv_modify_qp(side.qp, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), EINVAL);
    CHECK(state_of(side.qp) == IBV_QPS_RESET);
    CHECK(receive(side, 1, 10) == EINVAL);
    CHECK(post(side, 1, IBV_WR_SEND, all_of(side, 1), 0, 0, 0) == EINVAL);
    CHECK(to_init(side.qp, 0) == 0 && receive(side, 1, 10) == 0);
    CHECK(post(side, 1, IBV_WR_SEND, all_of(side, 1), 0, 0, 0) == EINVAL);
    struct ibv_qp_attr to = rtr(0x123456);
    to.ah_attr.is_global = 0; /* Verbs V63 */
    REFUSED(ibv_modify_qp(side.qp, &to, RTR_MASK), EINVAL);
    CHECK(state_of(side.qp) == IBV_QPS_INIT);
    to.ah_attr.is_global = 1;
    to.max_dest_rd_atomic = 17;
    REFUSED(ibv_modify_qp(side.qp, &to, RTR_MASK), EINVAL);
    to.max_dest_rd_atomic = 16;
    CHECK(ibv_modify_qp(side.qp, &to, RTR_MASK) == 0 && side.qp->state == IBV_QPS_RTR);
    CHECK(post(side, 1, IBV_WR_SEND, all_of(side, 1), 0, 0, 0) == EINVAL);
    CHECK(to_rts(side.qp, 14, 7) == 0);
    struct ibv_sge sge[3] = {{0}};
    struct ibv_send_wr wr = {.sg_list = sge, .num_sge = 3, .opcode = IBV_WR_SEND}, *bad;
    CHECK(ibv_post_send(side.qp, &wr, &bad) == EINVAL && bad == &wr);
    wr.num_sge = 0;
    wr.opcode = 99;
    CHECK(ibv_post_send(side.qp, &wr, &bad) == EINVAL);
    /* Verbs V67: everything outstanding is flushed, receives and sends; later posts at once. */
    CHECK(post(side, 2, IBV_WR_SEND, all_of(side, 1), 0, 0, IBV_SEND_SIGNALED) == 0);
    attr.qp_state = IBV_QPS_ERR;
    CHECK(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE) == 0 && state_of(side.qp) == IBV_QPS_ERR);
    int seen = 0;
    for (int i = 0; i < 2; i++) {
        struct ibv_wc wc = next(side.cq);
        CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
        seen |= wc.wr_id;
    }
    CHECK(seen == 3);
    CHECK(receive(side, 7, 10) == 0);
    expect(side.cq, 7, IBV_WC_WR_FLUSH_ERR);
    /* Verbs V68: as new, with the same number. */
    uint32_t number = side.qp->qp_num;
    CHECK(receive(side, 8, 10) == 0);
    attr.qp_state = IBV_QPS_RESET;
    CHECK(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE) == 0 && state_of(side.qp) == IBV_QPS_RESET);
    struct ibv_wc wc;
    CHECK(ibv_poll_cq(side.cq, 1, &wc) == 0); /* Verbs V37 */
    CHECK(side.qp->qp_num == number && to_init(side.qp, 0) == 0);
    drop(side);
    close_device();
}

static void v88_bytes_arrive(void) {
    open_device();
    struct side a = make(), b = make();
    connect_both(a, b);
    strcpy(a.bytes, "written");
    CHECK(post(a, 1, IBV_WR_RDMA_WRITE, all_of(a, 8), (uintptr_t)b.bytes + 100, b.mr->rkey, 0) == 0);
    CHECK(receive(b, 2, 64) == 0);
    CHECK(post(a, 3, IBV_WR_SEND, all_of(a, 8), 0, 0, IBV_SEND_SIGNALED) == 0);
    struct ibv_wc wc = next(b.cq);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len == 8);
    CHECK(wc.qp_num == b.qp->qp_num && wc.wr_id == 2);
    CHECK(strcmp(b.bytes, "written") == 0 && strcmp(b.bytes + 100, "written") == 0);
    expect(a.cq, 3, IBV_WC_SUCCESS); /* Verbs V83: the Write makes none */
    strcpy(b.bytes + 200, "read");
    CHECK(post(a, 4, IBV_WR_RDMA_READ, all_of(a, 5), (uintptr_t)b.bytes + 200, b.mr->rkey,
               IBV_SEND_SIGNALED) == 0);
    wc = next(a.cq);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_READ && strcmp(a.bytes, "read") == 0);
    /* Verbs V86: inline data is taken during the call. */
    char inline_bytes[8] = "inline";
    struct ibv_sge sge = {.addr = (uintptr_t)inline_bytes, .length = 7, .lkey = 0xdead};
    CHECK(receive(b, 5, 64) == 0);
    CHECK(post(a, 6, IBV_WR_SEND, sge, 0, 0, IBV_SEND_SIGNALED | IBV_SEND_INLINE) == 0);
    memset(inline_bytes, 'x', sizeof inline_bytes);
    expect(b.cq, 5, IBV_WC_SUCCESS);
    CHECK(strcmp(b.bytes, "inline") == 0);
    expect(a.cq, 6, IBV_WC_SUCCESS);
    CHECK(post(a, 7, IBV_WR_RDMA_READ, sge, 0, 0, IBV_SEND_INLINE) == EINVAL);
    /* Verbs V89: no bytes succeed whatever the keys say. */
    struct ibv_sge none = {.addr = 1, .length = 0, .lkey = 1};
    CHECK(post(a, 8, IBV_WR_RDMA_WRITE, none, 1, 1, IBV_SEND_SIGNALED) == 0);
    expect(a.cq, 8, IBV_WC_SUCCESS);
    drop(a);
    drop(b);
    close_device();
}

/* A request that the peer must refuse: both sides' ends, and the event. */
static void refused_as(struct side a, struct side b, uint64_t address, uint32_t rkey, int opcode,
                       enum ibv_wc_status status, enum ibv_event_type type) {
    CHECK(receive(b, 1, 64) == 0);
    CHECK(post(a, 2, opcode, all_of(a, 8), address, rkey, IBV_SEND_SIGNALED) == 0);
    CHECK(post(a, 3, opcode, all_of(a, 8), address, rkey, IBV_SEND_SIGNALED) == 0);
    struct ibv_wc wc = next(a.cq);
    CHECK(wc.wr_id == 2 && wc.status == status && wc.vendor_err != 0);
    CHECK(state_of(a.qp) == IBV_QPS_ERR);
    expect(a.cq, 3, IBV_WC_WR_FLUSH_ERR);
    expect(b.cq, 1, IBV_WC_WR_FLUSH_ERR);
    CHECK(state_of(b.qp) == IBV_QPS_ERR);
    struct ibv_async_event event;
    CHECK(ibv_get_async_event(context, &event) == 0);
    CHECK(event.event_type == type && event.element.qp == b.qp);
    ibv_ack_async_event(&event);
}
static void refused(struct side a, struct side b, uint64_t address, uint32_t rkey, int opcode) {
    refused_as(a, b, address, rkey, opcode, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

static void v92_remote_access_errors(void) {
    open_device();
    for (int kind = 0; kind < 4; kind++) {
        struct side a = make(), b = make();
        memset(b.bytes, 'b', SIZE);
        ready(a.qp, b.qp->qp_num, ALL, 7);
        /* Verbs V93: 3 is a queue pair that does not allow Writes, whatever the key says. */
        ready(b.qp, a.qp->qp_num, kind == 3 ? IBV_ACCESS_REMOTE_READ : ALL, 7);
        uint64_t address = (uintptr_t)b.bytes;
        struct ibv_pd *other = ibv_alloc_pd(context);
        struct ibv_mr *foreign = ibv_reg_mr(other, b.bytes, SIZE,
                                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        CHECK(other && foreign);
        switch (kind) {
        case 0: refused(a, b, address, b.mr->rkey + 1, IBV_WR_RDMA_WRITE); break;
        case 1: refused(a, b, address + SIZE - 7, b.mr->rkey, IBV_WR_RDMA_WRITE); break;
        case 2: refused(a, b, address, foreign->rkey, IBV_WR_RDMA_WRITE); break;
        case 3:
            refused_as(a, b, address, b.mr->rkey, IBV_WR_RDMA_WRITE, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
            break;
        }
        for (int i = 0; i < SIZE; i++)
            CHECK(b.bytes[i] == 'b');
        CHECK(ibv_dereg_mr(foreign) == 0 && ibv_dealloc_pd(other) == 0);
        drop(a);
        drop(b);
    }
    close_device();
}

static void v92_local_errors(void) {
    open_device();
    struct side a = make(), b = make();
    connect_both(a, b);
    struct ibv_sge bad = all_of(a, 8);
    bad.lkey += 1;
    CHECK(post(a, 1, IBV_WR_RDMA_WRITE, bad, (uintptr_t)b.bytes, b.mr->rkey, 0) == 0);
    expect(a.cq, 1, IBV_WC_LOC_PROT_ERR); /* Verbs V83: although it is unsignaled */
    CHECK(state_of(a.qp) == IBV_QPS_ERR);
    CHECK(state_of(b.qp) == IBV_QPS_RTS); /* Verbs V79 */
    drop(a);
    drop(b);
    a = make(), b = make();
    connect_both(a, b);
    CHECK(receive(b, 2, 7) == 0);
    CHECK(post(a, 3, IBV_WR_SEND, all_of(a, 8), 0, 0, IBV_SEND_SIGNALED) == 0);
    expect(b.cq, 2, IBV_WC_LOC_LEN_ERR);
    expect(a.cq, 3, IBV_WC_REM_INV_REQ_ERR);
    drop(a);
    drop(b);
    close_device();
}

static void v77_v94_no_listener(void) {
    open_device();
    struct side a = make(), b = make();
    CHECK(to_init(a.qp, ALL) == 0);
    /* The number of neither: indices are drawn at random, and may be neighbours. */
    uint32_t none = b.qp->qp_num ^ (a.qp->qp_num == (b.qp->qp_num ^ 1) ? 2 : 1);
    struct ibv_qp_attr attr = rtr(none);
    CHECK(ibv_modify_qp(a.qp, &attr, RTR_MASK) == 0 && to_rts(a.qp, 1, 7) == 0);
    CHECK(post(a, 1, IBV_WR_SEND, all_of(a, 8), 0, 0, 0) == 0);
    expect(a.cq, 1, IBV_WC_RETRY_EXC_ERR);
    CHECK(state_of(a.qp) == IBV_QPS_ERR);
    drop(a);
    drop(b);
    a = make(), b = make();
    ready(a.qp, b.qp->qp_num, ALL, 1);
    ready(b.qp, a.qp->qp_num, ALL, 1);
    CHECK(post(a, 2, IBV_WR_SEND, all_of(a, 8), 0, 0, 0) == 0);
    expect(a.cq, 2, IBV_WC_RNR_RETRY_EXC_ERR);
    CHECK(state_of(b.qp) == IBV_QPS_RTS);
    drop(a);
    drop(b);
    close_device();
}

/* Verbs V66: a side in RTR serves; it has posted before its peer was ready. */
static void v66_v76_either_side_may_come_first(void) {
    open_device();
    for (int first = 0; first < 2; first++) {
        struct side a = make(), b = make();
        struct side early = first ? b : a, late = first ? a : b;
        ready(early.qp, late.qp->qp_num, ALL, 7);
        CHECK(post(early, 1, IBV_WR_SEND, all_of(early, 8), 0, 0, IBV_SEND_SIGNALED) == 0);
        usleep(50000);
        CHECK(to_init(late.qp, ALL) == 0 && receive(late, 2, 64) == 0);
        struct ibv_qp_attr attr = rtr(early.qp->qp_num);
        CHECK(ibv_modify_qp(late.qp, &attr, RTR_MASK) == 0);
        expect(late.cq, 2, IBV_WC_SUCCESS);
        expect(early.cq, 1, IBV_WC_SUCCESS);
        drop(a);
        drop(b);
    }
    close_device();
}

static void v79_v68_again_with_the_same_numbers(void) {
    open_device();
    struct side a = make(), b = make();
    for (int round = 0; round < 3; round++) {
        connect_both(a, b);
        CHECK(receive(b, 1, 64) == 0);
        CHECK(post(a, 2, IBV_WR_SEND, all_of(a, 8), 0, 0, IBV_SEND_SIGNALED) == 0);
        expect(b.cq, 1, IBV_WC_SUCCESS);
        expect(a.cq, 2, IBV_WC_SUCCESS);
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
        CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) == 0);
        CHECK(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE) == 0);
    }
    drop(a);
    drop(b);
    close_device();
}

static void v98_v100_completion_events(void) {
    open_device();
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    CHECK(channel);
    struct side a = make(), b = make();
    CHECK(ibv_destroy_qp(b.qp) == 0 && ibv_destroy_cq(b.cq) == 0);
    int mine;
    b.cq = ibv_create_cq(context, 64, &mine, channel, 0);
    CHECK(b.cq);
    b.qp = queue_pair(b.cq, NULL);
    connect_both(a, b);
    struct ibv_cq *named;
    void *cq_context;
    CHECK(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
    CHECK(ibv_get_cq_event(channel, &named, &cq_context) == -1 && errno == EAGAIN);
    CHECK(ibv_req_notify_cq(b.cq, 0) == 0);
    CHECK(receive(b, 1, 64) == 0);
    CHECK(post(a, 2, IBV_WR_SEND, all_of(a, 8), 0, 0, 0) == 0);
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    CHECK(poll(&fd, 1, 300000) == 1);
    CHECK(ibv_get_cq_event(channel, &named, &cq_context) == 0);
    CHECK(named == b.cq && cq_context == &mine);
    CHECK(ibv_get_cq_event(channel, &named, &cq_context) == -1 && errno == EAGAIN);
    ibv_ack_cq_events(b.cq, 1);
    expect(b.cq, 1, IBV_WC_SUCCESS);
    drop(a);
    drop(b);
    CHECK(ibv_destroy_comp_channel(channel) == 0);
    close_device();
}

static void v91_requests_are_built_and_posted_together(void) {
    open_device();
    struct side a = make(), b = make();
    CHECK(ibv_destroy_qp(a.qp) == 0);
    struct ibv_qp_init_attr_ex init = {
        .send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_RC, .pd = pd,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
    };
    a.qp = ibv_create_qp_ex(context, &init);
    CHECK(a.qp);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(a.qp);
    CHECK(ex && ex->wr_rdma_read == NULL && ibv_qp_to_qp_ex(b.qp) == NULL);
    ibv_wr_start(ex);
    ex->wr_id = 1;
    ibv_wr_send(ex);
    CHECK(ibv_wr_complete(ex) == EINVAL); /* RESET */
    connect_both(a, b);
    CHECK(receive(b, 9, 64) == 0);
    char *large = calloc(1, 300);
    ibv_wr_start(ex);
    ex->wr_id = 2, ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(ex, b.mr->rkey, (uintptr_t)b.bytes + 512);
    ibv_wr_set_inline_data(ex, "first", 6);
    ibv_wr_send(ex);
    ibv_wr_set_inline_data(ex, large, 300);
    CHECK(ibv_wr_complete(ex) == EINVAL); /* none of them is posted */
    ibv_wr_start(ex);
    ex->wr_id = 3, ex->wr_flags = 0;
    ibv_wr_rdma_write(ex, b.mr->rkey, (uintptr_t)b.bytes + 512);
    ibv_wr_set_inline_data(ex, "again", 6);
    ex->wr_id = 4, ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(ex);
    strcpy(a.bytes, "sent");
    ibv_wr_set_sge(ex, a.mr->lkey, (uintptr_t)a.bytes, 5);
    CHECK(ibv_wr_complete(ex) == 0);
    expect(b.cq, 9, IBV_WC_SUCCESS);
    CHECK(strcmp(b.bytes, "sent") == 0 && strcmp(b.bytes + 512, "again") == 0);
    expect(a.cq, 4, IBV_WC_SUCCESS);
    free(large);
    drop(a);
    drop(b);
    close_device();
}

static void v56_extended_completion_queues(void) {
    open_device();
    struct side a = make(), b = make();
    CHECK(ibv_destroy_qp(b.qp) == 0 && ibv_destroy_cq(b.cq) == 0);
    struct ibv_cq_init_attr_ex init = {.cqe = 16, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN};
    struct ibv_cq_ex *ex = ibv_create_cq_ex(context, &init);
    CHECK(ex);
    b.cq = ibv_cq_ex_to_cq(ex);
    b.qp = queue_pair(b.cq, NULL);
    connect_both(a, b);
    struct ibv_poll_cq_attr poll_attr = {0};
    CHECK(ibv_start_poll(ex, &poll_attr) == ENOENT);
    poll_attr.comp_mask = 1;
    CHECK(ibv_start_poll(ex, &poll_attr) == EINVAL);
    poll_attr.comp_mask = 0;
    for (int i = 0; i < 2; i++) {
        CHECK(receive(b, 10 + i, 64) == 0);
        CHECK(post(a, i, IBV_WR_SEND, all_of(a, 8 + i), 0, 0, 0) == 0);
    }
    int done;
    while ((done = ibv_start_poll(ex, &poll_attr)) == ENOENT)
        ;
    CHECK(done == 0 && ex->wr_id == 10 && ex->status == IBV_WC_SUCCESS);
    CHECK(ibv_wc_read_byte_len(ex) == 8 && ibv_wc_read_opcode(ex) == IBV_WC_RECV);
    while ((done = ibv_next_poll(ex)) == ENOENT)
        ;
    CHECK(done == 0 && ex->wr_id == 11 && ibv_wc_read_byte_len(ex) == 9);
    ibv_end_poll(ex);
    init.wc_flags = IBV_WC_EX_WITH_FLOW_TAG;
    NO_OBJECT(ibv_create_cq_ex(context, &init), EOPNOTSUPP);
    drop(a);
    drop(b);
    close_device();
}

/* The count of the device's clock. */
static uint64_t device_clock(void) {
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    CHECK(ibv_query_rt_values_ex(context, &values) == 0);
    return values.raw_clock.tv_nsec;
}

static uint64_t time_of_day(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* Verbs V174: the time of a completion is that at which it came, however much later it is retrieved. */
static void v174_completions_have_the_times_at_which_they_came(void) {
    open_device();
    struct ibv_device_attr_ex device;
    CHECK(ibv_query_device_ex(context, NULL, &device) == 0);
    CHECK(device.completion_timestamp_mask == UINT64_MAX && device.hca_core_clock == 1000000);
    struct side a = make(), b = make();
    CHECK(ibv_destroy_qp(b.qp) == 0 && ibv_destroy_cq(b.cq) == 0);
    struct ibv_cq_init_attr_ex init = {
        .cqe = 16,
        .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
            | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    };
    struct ibv_cq_ex *ex = ibv_create_cq_ex(context, &init);
    CHECK(ex);
    b.cq = ibv_cq_ex_to_cq(ex);
    b.qp = queue_pair(b.cq, NULL);
    connect_both(a, b);
    struct ibv_poll_cq_attr attr = {0};
    uint64_t before = device_clock(), day_before = time_of_day();
    for (int i = 0; i < 2; i++) {
        CHECK(receive(b, 20 + i, 64) == 0);
        CHECK(post(a, i, IBV_WR_SEND, all_of(a, 8), 0, 0, 0) == 0);
    }
    int done;
    while ((done = ibv_start_poll(ex, &attr)) == ENOENT)
        ;
    CHECK(done == 0 && ex->wr_id == 20);
    uint64_t first = ibv_wc_read_completion_ts(ex);
    uint64_t day_first = ibv_wc_read_completion_wallclock_ns(ex);
    CHECK(before <= first && first <= device_clock());
    /* Two clocks are read one behind the other: this one may have been set meanwhile by little. */
    CHECK(day_before < day_first + 1000000 && day_first < time_of_day() + 1000000);
    while ((done = ibv_next_poll(ex)) == ENOENT)
        ;
    CHECK(done == 0 && ex->wr_id == 21);
    uint64_t second = ibv_wc_read_completion_ts(ex);
    CHECK(first <= second);
    ibv_end_poll(ex);
    /* The queue pair ends, and flushes its receive now. The time is that, though nobody looks until later. */
    CHECK(receive(b, 22, 64) == 0);
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    before = device_clock();
    CHECK(ibv_modify_qp(b.qp, &error, IBV_QP_STATE) == 0);
    uint64_t behind = device_clock();
    CHECK(ibv_start_poll(ex, &attr) == 0 && ex->wr_id == 22);
    CHECK(ex->status == IBV_WC_WR_FLUSH_ERR);
    CHECK(before <= ibv_wc_read_completion_ts(ex) && ibv_wc_read_completion_ts(ex) <= behind);
    ibv_end_poll(ex);
    drop(a);
    drop(b);
    close_device();
}

/* Verbs V176: an event is held back for the period while fewer completions have come than the count says. */
static void v176_events_are_held_back(void) {
    open_device();
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    CHECK(channel);
    struct side a = make(), b = make();
    CHECK(ibv_destroy_qp(b.qp) == 0 && ibv_destroy_cq(b.cq) == 0);
    b.cq = ibv_create_cq(context, 64, NULL, channel, 0);
    CHECK(b.cq);
    b.qp = queue_pair(b.cq, NULL);
    connect_both(a, b);
    struct ibv_cq *named;
    void *cq_context;
    struct {
        int count, period, messages;
    } rows[] = {{1000, 4095, 1}, {1000, 4095, 3}, {2, 4095, 2}, {0, 0, 1}};
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        struct ibv_modify_cq_attr attr = {
            .attr_mask = IBV_CQ_ATTR_MODERATE,
            .moderate = {rows[row].count, rows[row].period},
        };
        CHECK(ibv_modify_cq(b.cq, &attr) == 0);
        for (int i = 0; i < rows[row].messages; i++)
            CHECK(receive(b, i, 64) == 0);
        CHECK(ibv_req_notify_cq(b.cq, 0) == 0);
        uint64_t before = device_clock();
        for (int i = 0; i < rows[row].messages; i++)
            CHECK(post(a, i, IBV_WR_SEND, all_of(a, 8), 0, 0, 0) == 0);
        CHECK(ibv_get_cq_event(channel, &named, &cq_context) == 0 && named == b.cq);
        if (rows[row].count > rows[row].messages)
            CHECK(device_clock() - before >= 4095000);
        ibv_ack_cq_events(b.cq, 1);
        for (int i = 0; i < rows[row].messages; i++)
            expect(b.cq, i, IBV_WC_SUCCESS);
    }
    drop(a);
    drop(b);
    CHECK(ibv_destroy_comp_channel(channel) == 0);
    close_device();
}

/* Verbs V59: one event when fewer receives than the limit are left. */
static void v59_v60_shared_receive_queues(void) {
    open_device();
    struct side a = make(), b = make();
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &init);
    CHECK(srq && ibv_destroy_qp(b.qp) == 0);
    b.qp = queue_pair(b.cq, srq);
    connect_both(a, b);
    struct ibv_sge sge = all_of(b, 64);
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    for (int i = 0; i < 3; i++) {
        wr.wr_id = i;
        CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
    }
    struct ibv_srq_attr limit = {.srq_limit = 3};
    CHECK(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0);
    CHECK(post(a, 5, IBV_WR_SEND, all_of(a, 8), 0, 0, IBV_SEND_SIGNALED) == 0);
    expect(b.cq, 0, IBV_WC_SUCCESS);
    struct ibv_async_event event;
    CHECK(ibv_get_async_event(context, &event) == 0);
    CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
    ibv_ack_async_event(&event);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    CHECK(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE) == 0);
    CHECK(ibv_get_async_event(context, &event) == 0);
    CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == b.qp);
    ibv_ack_async_event(&event);
    drop(a);
    drop(b);
    CHECK(ibv_destroy_srq(srq) == 0);
    close_device();
}

/* A request that is not advertised, or too long, is taken and fails when its turn comes. */
static void v81_v90_v152_requests_that_cannot_be_done(void) {
    open_device();
    struct ibv_sge large[2] = {{.length = 1u << 30}, {.length = 1}};
    struct { int opcode, sges, status; } cases[] = {
        {IBV_WR_ATOMIC_CMP_AND_SWP, 2, IBV_WC_LOC_LEN_ERR},
        {IBV_WR_ATOMIC_FETCH_AND_ADD, 0, IBV_WC_LOC_LEN_ERR},
        {IBV_WR_SEND, 2, IBV_WC_LOC_LEN_ERR},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct side a = make(), b = make();
        connect_both(a, b);
        CHECK(receive(b, 9, 64) == 0);
        struct ibv_sge small = all_of(a, 8);
        struct ibv_send_wr second = {.wr_id = 2, .opcode = IBV_WR_SEND, .sg_list = &small, .num_sge = 1},
                           first = {.wr_id = 1, .opcode = cases[i].opcode, .num_sge = cases[i].sges,
                                    .sg_list = cases[i].sges == 2 ? large : &small, .next = &second},
                           *bad;
        CHECK(ibv_post_send(a.qp, &first, &bad) == 0);
        expect(a.cq, 1, cases[i].status);
        expect(a.cq, 2, IBV_WC_WR_FLUSH_ERR);
        CHECK(state_of(a.qp) == IBV_QPS_ERR && state_of(b.qp) == IBV_QPS_RTS);
        drop(a);
        drop(b);
    }
    /* Of a list, what stands before the bad one is posted. */
    struct side a = make(), b = make();
    connect_both(a, b);
    CHECK(receive(b, 9, 64) == 0);
    struct ibv_sge small = all_of(a, 8);
    struct ibv_send_wr second = {.wr_id = 2, .opcode = 99},
                       first = {.wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
                                .sg_list = &small, .num_sge = 1, .next = &second},
                       *bad = NULL;
    CHECK(ibv_post_send(a.qp, &first, &bad) == EINVAL && bad == &second);
    expect(b.cq, 9, IBV_WC_SUCCESS);
    expect(a.cq, 1, IBV_WC_SUCCESS);
    /* V81: a full queue is ENOMEM. */
    struct ibv_recv_wr wr = {.wr_id = 3, .sg_list = &small, .num_sge = 1}, *bad_wr;
    int posted = 0, done;
    while ((done = ibv_post_recv(b.qp, &wr, &bad_wr)) == 0)
        posted++;
    CHECK(done == ENOMEM && posted == DEPTH && bad_wr == &wr);
    drop(a);
    drop(b);
    close_device();
}

/* A program that ends at once finds nothing busy, however often it does. */
static void v35_everything_can_be_destroyed_at_once(void) {
    open_device();
    for (int round = 0; round < 300; round++) {
        struct side a = make();
        struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
        struct ibv_pd *own = ibv_alloc_pd(context), *shared = pd;
        CHECK(own);
        pd = own;
        struct side b = make();
        struct ibv_srq *srq = ibv_create_srq(pd, &init);
        CHECK(srq && ibv_destroy_qp(b.qp) == 0);
        b.qp = queue_pair(b.cq, srq);
        connect_both(a, b);
        struct ibv_sge sge = all_of(b, 64);
        struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
        CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
        /* A connection that has just come about, or is about to, may hold its queue pair. */
        if (round < 40) {
            CHECK(post(a, 1, IBV_WR_SEND, all_of(a, 8), 0, 0, IBV_SEND_SIGNALED) == 0);
            expect(b.cq, 0, IBV_WC_SUCCESS);
        }
        drop(b);
        CHECK(ibv_destroy_srq(srq) == 0);
        CHECK(ibv_dealloc_pd(own) == 0);
        pd = shared;
        drop(a);
    }
    close_device();
}

static void v78_a_queue_pair_is_its_own_peer(void) {
    open_device();
    struct side a = make();
    ready(a.qp, a.qp->qp_num, ALL, 7);
    CHECK(receive(a, 1, 64) == 0);
    strcpy(a.bytes + 100, "to itself");
    struct ibv_sge from = {.addr = (uintptr_t)a.bytes + 100, .length = 10, .lkey = a.mr->lkey};
    CHECK(post(a, 2, IBV_WR_SEND, from, 0, 0, IBV_SEND_SIGNALED) == 0);
    for (int i = 0; i < 2; i++) {
        struct ibv_wc wc = next(a.cq);
        CHECK(wc.status == IBV_WC_SUCCESS && (wc.wr_id == 1 || wc.wr_id == 2));
        CHECK(wc.qp_num == a.qp->qp_num);
    }
    CHECK(strcmp(a.bytes, "to itself") == 0);
    from.addr = (uintptr_t)a.bytes + 200;
    CHECK(post(a, 3, IBV_WR_RDMA_READ, from, (uintptr_t)a.bytes, a.mr->rkey, IBV_SEND_SIGNALED) == 0);
    expect(a.cq, 3, IBV_WC_SUCCESS);
    CHECK(strcmp(a.bytes + 200, "to itself") == 0);
    CHECK(post(a, 4, IBV_WR_RDMA_WRITE, from, (uintptr_t)a.bytes + 300, a.mr->rkey, IBV_SEND_SIGNALED) == 0);
    expect(a.cq, 4, IBV_WC_SUCCESS);
    CHECK(strcmp(a.bytes + 300, "to itself") == 0);
    CHECK(post(a, 5, IBV_WR_RDMA_WRITE, from, (uintptr_t)a.bytes, a.mr->rkey + 1, 0) == 0);
    expect(a.cq, 5, IBV_WC_REM_ACCESS_ERR);
    CHECK(state_of(a.qp) == IBV_QPS_ERR);
    drop(a);
    close_device();
}

static void v145_v146_a_forked_child(void) {
    CHECK(ibv_fork_init() == 0 && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
    open_device();
    struct side a = make(), b = make();
    connect_both(a, b);
    pid_t child = fork();
    if (child == 0) {
        ibv_destroy_qp(a.qp);
        struct ibv_context *again = ibv_open_device(list[0]);
        CHECK(again && ibv_close_device(again) == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(receive(b, 1, 64) == 0);
    CHECK(post(a, 2, IBV_WR_SEND, all_of(a, 8), 0, 0, IBV_SEND_SIGNALED) == 0);
    expect(b.cq, 1, IBV_WC_SUCCESS);
    expect(a.cq, 2, IBV_WC_SUCCESS);
    drop(a);
    drop(b);
    close_device();
}

/* Verbs V38, Verbs V148: nothing that is left open harms. */
static void v38_a_device_is_closed_with_objects_left(void) {
    open_device();
    struct side a = make(), b = make();
    connect_both(a, b);
    CHECK(post(a, 2, IBV_WR_SEND, all_of(a, 8), 0, 0, IBV_SEND_SIGNALED) == 0);
    CHECK(ibv_close_device(context) == 0);
}

/* The owner's message has the name that its program has given to the region. */
static void v97_a_region_has_a_name(void) {
    open_device();
    struct side a = make(), b = make();
    connect_both(a, b);
    CHECK(transom_name(context, b.mr->rkey ^ 1, "log") == EINVAL);
    CHECK(transom_name(context, b.mr->rkey, NULL) == EINVAL);
    CHECK(transom_name(NULL, b.mr->rkey, "log") != 0);
    CHECK(transom_name(context, b.mr->rkey, "log of b") == 0);
    refused(a, b, (uintptr_t)b.bytes + SIZE - 7, b.mr->rkey, IBV_WR_RDMA_WRITE);
    drop(a);
    drop(b);
    close_device();
}

#define CASE(name) {#name, name}

int main(int count, char **words) {
    static const struct { const char *name; void (*run)(void); } cases[] = {
        CASE(v26_v29_tables), CASE(v34_v35_handles_and_busy_objects), CASE(v40_v41_registrations),
        CASE(v28_v30_v52_sizes), CASE(v61_v65_states_and_posts), CASE(v88_bytes_arrive),
        CASE(v92_remote_access_errors), CASE(v92_local_errors), CASE(v97_a_region_has_a_name), CASE(v77_v94_no_listener),
        CASE(v66_v76_either_side_may_come_first), CASE(v79_v68_again_with_the_same_numbers),
        CASE(v98_v100_completion_events), CASE(v176_events_are_held_back),
        CASE(v91_requests_are_built_and_posted_together),
        CASE(v56_extended_completion_queues),
        CASE(v174_completions_have_the_times_at_which_they_came),
        CASE(v59_v60_shared_receive_queues),
        CASE(v81_v90_v152_requests_that_cannot_be_done),
        CASE(v78_a_queue_pair_is_its_own_peer), CASE(v35_everything_can_be_destroyed_at_once), CASE(v145_v146_a_forked_child),
        CASE(v38_a_device_is_closed_with_objects_left),
    };
    for (size_t i = 0; count == 2 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(words[1], cases[i].name) == 0) {
            alarm(600); /* what never comes ends the case, too */
            cases[i].run();
            return 0;
        }
    }
    fprintf(stderr, "no such case\n");
    return 2;
}
