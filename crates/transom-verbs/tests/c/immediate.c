/* Immediate data, between two processes: the child answers, the parent asks. */
#include "common.h"
#include "processes.h"
static bool child;
struct id {
    uint32_t qpn, key, read_only;
    uint64_t addr;
    union ibv_gid gid;
};
static struct end e;
static struct id peer;
static void start_over(void) {
    qp_state(e.qp, IBV_QPS_RESET);
    wait_for_each_other();
    qp_up(e.qp, peer.gid, peer.qpn, DEF);
    wait_for_each_other();
}
static int post_imm(uint64_t id, int op, int flags, uint32_t imm, void *p, uint32_t len,
                    uint64_t raddr, uint32_t rkey) {
    struct ibv_sge s = {(uintptr_t)p, len, e.mr->lkey};
    struct ibv_send_wr w = {.wr_id = id,
                            .sg_list = &s,
                            .num_sge = 1,
                            .opcode = op,
                            .send_flags = flags,
                            .imm_data = imm},
                       *bad;
    w.wr.rdma.remote_addr = raddr;
    w.wr.rdma.rkey = rkey;
    return ibv_post_send(e.qp, &w, &bad);
}
/* A receive that has completed, with its four bytes as they travelled. */
static void arrived(uint64_t id, int opcode, uint32_t len, const char bytes[4]) {
    struct ibv_wc w = EXPECT_WC("V87", e.rcq, id, IBV_WC_SUCCESS);
    CHECK("V87", w.opcode == (enum ibv_wc_opcode)opcode, "opcode %d, wanted %d", w.opcode, opcode);
    CHECK("V87", w.wc_flags == (bytes ? IBV_WC_WITH_IMM : 0), "flags %x", w.wc_flags);
    CHECK("V87", w.byte_len == len, "byte_len %u, wanted %u", w.byte_len, len);
    if (bytes)
        CHECK("V87", !memcmp(&w.imm_data, bytes, 4), "imm_data %08x", w.imm_data);
}
#define IMM(s) ({ uint32_t _i; memcpy(&_i, s, 4); _i; })
static void serve(void) {
    char *receive = e.buf + 40000;
    for (int i = 0; i < 6; i++)
        SUCCEEDS(post_recv(&e, 100 + i, receive + 64 * i, 64, e.mr->lkey));
    memset(e.buf, 0, 40000);
    memset(receive, 7, 4096);
    wait_for_each_other();
    arrived(100, IBV_WC_RECV_RDMA_WITH_IMM, 30000, "abcd");
    CHECK("V88", e.buf[0] == 1 && e.buf[29999] == 1, "bytes are visible before");
    arrived(101, IBV_WC_RECV_RDMA_WITH_IMM, 0, "\0\0\0\1");
    CHECK("V87", receive[0] == 7 && receive[64] == 7, "a Write leaves the receive's memory alone");
    arrived(102, IBV_WC_RECV, 8, "\xff\xff\xff\xff");
    arrived(103, IBV_WC_RECV, 0, "wxyz");
    arrived(104, IBV_WC_RECV, 4, NULL);
    arrived(105, IBV_WC_RECV_RDMA_WITH_IMM, 5, "inli");
    CHECK("V86", !memcmp(e.buf + 100, "kept", 5), "inline data: %.5s", e.buf + 100);
    wait_for_each_other();
    /* No receive: it waits. */
    wait_for_each_other();
    EXPECT_NONE("V94", e.rcq, 100);
    SUCCEEDS(post_recv(&e, 110, receive, 8, e.mr->lkey));
    arrived(110, IBV_WC_RECV_RDMA_WITH_IMM, 8, "late");
    wait_for_each_other();
    /* A bad key: nothing is consumed. */
    start_over();
    SUCCEEDS(post_recv(&e, 120, receive, 8, e.mr->lkey));
    wait_for_each_other();
    EXPECT_WC("V87", e.rcq, 120, IBV_WC_WR_FLUSH_ERR);
    wait_for_each_other();
    /* A shared queue, and solicited events. */
    SUCCEEDS(ibv_destroy_qp(e.qp));
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
    e.srq = MADE(ibv_create_srq(e.pd, &init));
    e.qp = new_qp(&e);
    send_all(&e.qp->qp_num, 4);
    receive_all(&peer.qpn, 4);
    qp_up(e.qp, peer.gid, peer.qpn, DEF);
    struct ibv_sge s = {(uintptr_t)receive, 8, e.mr->lkey};
    struct ibv_recv_wr w = {.wr_id = 130, .sg_list = &s, .num_sge = 1}, *bad;
    for (; w.wr_id < 133; w.wr_id++)
        SUCCEEDS(ibv_post_srq_recv(e.srq, &w, &bad));
    SUCCEEDS(ibv_req_notify_cq(e.rcq, 1));
    wait_for_each_other();
    arrived(130, IBV_WC_RECV_RDMA_WITH_IMM, 8, "srq1");
    struct pollfd p = {e.ch->fd, POLLIN, 0};
    CHECK("V100", poll(&p, 1, 100) == 0, "an event for what is not solicited");
    wait_for_each_other();
    struct ibv_cq *cq;
    void *context;
    SUCCEEDS(ibv_get_cq_event(e.ch, &cq, &context));
    CHECK("V100", cq == e.rcq, "queue");
    ibv_ack_cq_events(cq, 1);
    arrived(131, IBV_WC_RECV_RDMA_WITH_IMM, 8, "srq2");
    arrived(132, IBV_WC_RECV, 8, "srq3");
    wait_for_each_other();
}
static void ask(void) {
    int W = IBV_WR_RDMA_WRITE_WITH_IMM, S = IBV_WR_SEND_WITH_IMM;
    memset(e.buf, 1, 40000);
    wait_for_each_other();
    SUCCEEDS(post_imm(1, W, SIG, IMM("abcd"), e.buf, 30000, peer.addr, peer.key));
    struct ibv_wc w = EXPECT_WC("V84", e.scq, 1, IBV_WC_SUCCESS);
    CHECK("V84", w.opcode == IBV_WC_RDMA_WRITE, "opcode %d", w.opcode);
    SUCCEEDS(post_imm(2, W, 0, IMM("\0\0\0\1"), e.buf, 0, 0, 0));
    SUCCEEDS(post_imm(3, S, SIG, IMM("\xff\xff\xff\xff"), e.buf, 8, 0, 0));
    w = EXPECT_WC("V83", e.scq, 3, IBV_WC_SUCCESS);
    CHECK("V84", w.opcode == IBV_WC_SEND, "opcode %d", w.opcode);
    SUCCEEDS(post_imm(4, S, 0, IMM("wxyz"), e.buf, 0, 0, 0));
    SUCCEEDS(post(&e, 5, IBV_WR_SEND, 0, e.buf, 4, e.mr->lkey, 0, 0));
    strcpy(e.buf, "kept");
    SUCCEEDS(post_imm(6, W, IBV_SEND_INLINE | SIG, IMM("inli"), e.buf, 5, peer.addr + 100,
                      peer.key));
    strcpy(e.buf, "gone");
    EXPECT_WC("V86", e.scq, 6, IBV_WC_SUCCESS);
    wait_for_each_other();
    SUCCEEDS(post_imm(7, W, SIG, IMM("late"), e.buf, 8, peer.addr, peer.key));
    EXPECT_NONE("V94", e.scq, 100);
    wait_for_each_other();
    EXPECT_WC("V94", e.scq, 7, IBV_WC_SUCCESS);
    wait_for_each_other();
    start_over();
    wait_for_each_other();
    SUCCEEDS(post_imm(8, W, SIG, IMM("none"), e.buf, 8, peer.addr, peer.read_only));
    EXPECT_WC("V87", e.scq, 8, IBV_WC_REM_ACCESS_ERR);
    wait_for_each_other();
    /* The wr_* interface. */
    SUCCEEDS(ibv_destroy_qp(e.qp));
    struct ibv_qp_init_attr_ex x = {
        .send_cq = e.scq,
        .recv_cq = e.rcq,
        .qp_type = IBV_QPT_RC,
        .cap = {8, 1, 1, 1, 0},
        .pd = e.pd,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_IMM};
    e.qp = MADE(ibv_create_qp_ex(e.ctx, &x));
    struct ibv_qp_ex *q = MADE(ibv_qp_to_qp_ex(e.qp));
    CHECK("V91", q->wr_rdma_write_imm && q->wr_send_imm && !q->wr_send, "pointers");
    send_all(&e.qp->qp_num, 4);
}
static void ask_by_wr(void) {
    struct ibv_qp_ex *q = ibv_qp_to_qp_ex(e.qp);
    qp_up(e.qp, peer.gid, peer.qpn, DEF);
    wait_for_each_other();
    ibv_wr_start(q);
    q->wr_id = 1, q->wr_flags = SIG;
    ibv_wr_rdma_write_imm(q, peer.key, peer.addr, IMM("srq1"));
    ibv_wr_set_sge(q, e.mr->lkey, (uintptr_t)e.buf, 8);
    SUCCEEDS(ibv_wr_complete(q));
    EXPECT_WC("V91", e.scq, 1, IBV_WC_SUCCESS);
    wait_for_each_other();
    ibv_wr_start(q);
    q->wr_id = 2, q->wr_flags = SIG | IBV_SEND_SOLICITED;
    ibv_wr_rdma_write_imm(q, peer.key, peer.addr, IMM("srq2"));
    ibv_wr_set_inline_data(q, e.buf, 8);
    q->wr_id = 3;
    ibv_wr_send_imm(q, IMM("srq3"));
    ibv_wr_set_sge(q, e.mr->lkey, (uintptr_t)e.buf, 8);
    SUCCEEDS(ibv_wr_complete(q));
    EXPECT_WC("V91", e.scq, 2, IBV_WC_SUCCESS);
    EXPECT_WC("V91", e.scq, 3, IBV_WC_SUCCESS);
    wait_for_each_other();
}
int main(void) {
    int sv[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
    pid_t pid = fork();
    child = pid == 0;
    sock = sv[child];
    close(sv[!child]);
    open_end(&e, NULL, ALL);
    struct ibv_mr *ro = MADE(ibv_reg_mr(e.pd, e.buf, 4096, IBV_ACCESS_REMOTE_READ));
    struct id me = {e.qp->qp_num, e.mr->rkey, ro->rkey, (uintptr_t)e.buf, e.gid};
    send_all(&me, sizeof me);
    receive_all(&peer, sizeof peer);
    qp_up(e.qp, peer.gid, peer.qpn, DEF);
    wait_for_each_other();
    if (child) {
        serve();
        _exit(finish());
    }
    ask();
    receive_all(&peer.qpn, 4);
    ask_by_wr();
    int status = 0;
    waitpid(pid, &status, 0);
    CHECK("V87", WIFEXITED(status) && WEXITSTATUS(status) == 0, "the other process: %d", status);
    return finish();
}
