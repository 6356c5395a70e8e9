/* Counters of the port, read from its files as a monitor reads them: they are kept open. `argv[1]` is the
 * folder of the port. */
#include <poll.h>
#include <sys/inotify.h>

#include "common.h"
static const char *folder;
static int file_of(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_RDONLY);
    if (file < 0) {
        printf("FATAL no file %s\n", path);
        exit(96);
    }
    return file;
}
static unsigned long long value(int file) {
    char text[32] = {0};
    ssize_t length = pread(file, text, sizeof text - 1, 0);
    CHECK("V175", length > 1 && text[length - 1] == '\n', "a line, and nothing else");
    return strtoull(text, NULL, 10);
}
/* The counter comes to `wanted`: each change of the file is awaited. */
static bool comes_to(int file, unsigned long long wanted) {
    char path[32], events[4096];
    int changes = inotify_init1(IN_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    CHECK("V175", inotify_add_watch(changes, path, IN_MODIFY) >= 0, "watched");
    bool comes;
    struct pollfd change = {changes, POLLIN, 0};
    while (!(comes = value(file) >= wanted) && poll(&change, 1, HANG) == 1)
        CHECK("V175", read(changes, events, sizeof events) > 0, "a change");
    close(changes);
    return comes;
}
enum { BYTES = 4096, TIMES = 200, WORD = 4 };
static void datagrams(struct ibv_context *ctx, int sent, int multicast) {
    struct end e = {.ctx = ctx};
    e.pd = MADE(ibv_alloc_pd(ctx));
    e.scq = e.rcq = MADE(ibv_create_cq(ctx, 63, NULL, NULL, 0));
    e.buf = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    e.mr = MADE(ibv_reg_mr(e.pd, e.buf, 4096, IBV_ACCESS_LOCAL_WRITE));
    struct ibv_qp_init_attr a = {
        .send_cq = e.scq, .recv_cq = e.rcq, .cap = {16, 16, 1, 1, 0}, .qp_type = IBV_QPT_UD};
    e.qp = MADE(ibv_create_qp(e.pd, &a));
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7};
    SUCCEEDS(ibv_modify_qp(e.qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
    qp_state(e.qp, IBV_QPS_RTR);
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .sq_psn = 1};
    SUCCEEDS(ibv_modify_qp(e.qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN));
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}};
    SUCCEEDS(ibv_query_gid(ctx, 1, 0, &to.grh.dgid));
    struct ibv_ah *ah = MADE(ibv_create_ah(e.pd, &to));
    unsigned long long before = value(sent), group = value(multicast);
    for (int i = 0; i < 5; i++) {
        SUCCEEDS(post_recv(&e, 1, e.buf, 1024, e.mr->lkey));
        struct ibv_sge s = {(uintptr_t)e.buf + 2048, 64, e.mr->lkey};
        struct ibv_send_wr w = {.wr_id = 2, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
        w.wr.ud.ah = ah;
        w.wr.ud.remote_qpn = e.qp->qp_num;
        w.wr.ud.remote_qkey = 7;
        SUCCEEDS(ibv_post_send(e.qp, &w, &bad));
        EXPECT_WC("V175", e.rcq, 1, IBV_WC_SUCCESS);
    }
    CHECK("V175", comes_to(sent, before + 5), "five datagrams on top of %llu, and %llu", before, value(sent));
    CHECK("V175", value(multicast) == group, "none to a group");
    SUCCEEDS(ibv_destroy_ah(ah));
    SUCCEEDS(ibv_destroy_qp(e.qp));
}
int main(int argc, char **argv) {
    struct end e, f;
    folder = argc > 1 ? argv[1] : "";
    open_end(&e, NULL, ALL);
    open_end(&f, e.ctx, ALL);
    int data = file_of("counters/port_xmit_data"), got = file_of("counters/port_rcv_data"),
        packets = file_of("counters/port_xmit_packets"), came = file_of("counters/port_rcv_packets"),
        unicast = file_of("counters/unicast_xmit_packets"), multicast = file_of("counters/multicast_xmit_packets"),
        errors = file_of("hw_counters/req_cqe_error"), access = file_of("hw_counters/req_remote_access_errors"),
        flushed = file_of("hw_counters/resp_cqe_flush_error"), still = file_of("counters/symbol_error");
    unsigned long long words = value(data), rwords = value(got), sent = value(packets), rcvd = value(came),
                       failed = value(errors), refused = value(access), flush = value(flushed);
    pair_up(&e, &f, DEF);
    for (int i = 0; i < TIMES; i++) {
        SUCCEEDS(post(&e, i, IBV_WR_RDMA_WRITE, SIG, e.buf, BYTES, e.mr->lkey, (uintptr_t)f.buf, f.mr->rkey));
        EXPECT_WC("V175", e.scq, i, IBV_WC_SUCCESS);
    }
    unsigned long long more = BYTES / WORD * TIMES;
    CHECK("V175", comes_to(data, words + more), "%llu words on top of %llu, and %llu", more, words, value(data));
    CHECK("V175", comes_to(got, rwords + more), "%llu words on top of %llu, and %llu", more, rwords, value(got));
    /* Headers and acknowledgements, and nothing that was counted twice. */
    CHECK("V175", value(data) < words + more + more / 4, "%llu words behind %llu", value(data), words);
    CHECK("V175", comes_to(packets, sent + TIMES), "each Write awaits its completion, so each is a packet");
    CHECK("V175", comes_to(came, rcvd + TIMES), "%llu packets", value(came));
    CHECK("V175", comes_to(unicast, value(packets)), "all to one peer");
    CHECK("V175", value(still) == 0, "no wire, no symbol");
    CHECK("V175", value(errors) == failed && value(access) == refused, "nothing has failed");
    SUCCEEDS(post_recv(&e, 3, e.buf, 64, e.mr->lkey));
    SUCCEEDS(post(&e, 4, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, e.mr->lkey, (uintptr_t)f.buf, f.mr->rkey ^ 1));
    EXPECT_WC("V92", e.scq, 4, IBV_WC_REM_ACCESS_ERR);
    EXPECT_WC("V92", e.rcq, 3, IBV_WC_WR_FLUSH_ERR);
    CHECK("V175", comes_to(access, refused + 1) && value(access) == refused + 1, "%llu", value(access));
    CHECK("V175", comes_to(errors, failed + 1) && value(errors) == failed + 1, "%llu", value(errors));
    CHECK("V175", comes_to(flushed, flush + 1) && value(flushed) == flush + 1, "%llu", value(flushed));
    datagrams(e.ctx, unicast, multicast);
    return finish();
}
