/* Peers that die, stop, leave, come late, or never come. */
#include "common.h"
#include "processes.h"
struct id {
    uint32_t qpn, key;
    uint64_t addr;
    union ibv_gid gid;
};
static struct end e;
static struct id peer;
static void exchange(void) {
    struct id me = {e.qp->qp_num, e.mr->rkey, (uintptr_t)e.buf, e.gid};
    send_all(&me, sizeof me);
    receive_all(&peer, sizeof peer);
}
static pid_t start(void (*f)(void)) {
    int sv[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
    pid_t p = fork();
    if (!p) {
        close(sv[0]);
        sock = sv[1];
        f();
        finish();
        fflush(stdout);
        _exit(failures != 0);
    }
    close(sv[1]);
    sock = sv[0];
    return p;
}
static void serve(void) {
    open_end(&e, NULL, ALL);
    exchange();
    qp_up(e.qp, peer.gid, peer.qpn, DEF);
    for (int i = 0; i < 8; i++)
        post_recv(&e, i, e.buf, 64, e.mr->lkey);
    wait_for_each_other();
    for (;;)
        pause();
}
static void serve_reset(void) {
    open_end(&e, NULL, ALL);
    exchange();
    qp_up(e.qp, peer.gid, peer.qpn, DEF);
    wait_for_each_other();
    wait_for_each_other();
    qp_state(e.qp, IBV_QPS_RESET);
    wait_for_each_other();
    usleep(300000);
    qp_up(e.qp, peer.gid, peer.qpn, DEF);
    post_recv(&e, 5, e.buf, 64, e.mr->lkey);
    wait_for_each_other();
    EXPECT_WC("V79 peer", e.rcq, 5, IBV_WC_SUCCESS);
    wait_for_each_other();
}
static void serve_destroy(void) {
    open_end(&e, NULL, ALL);
    exchange();
    qp_up(e.qp, peer.gid, peer.qpn, DEF);
    post_recv(&e, 5, e.buf, 64, e.mr->lkey);
    wait_for_each_other();
    EXPECT_WC("V80", e.rcq, 5, IBV_WC_SUCCESS);
    SUCCEEDS(ibv_destroy_qp(e.qp));
    wait_for_each_other();
    wait_for_each_other();
}
static void serve_exit(void) {
    open_end(&e, NULL, ALL);
    exchange();
    qp_up(e.qp, peer.gid, peer.qpn, DEF);
    post_recv(&e, 5, e.buf, 64, e.mr->lkey);
    wait_for_each_other();
    struct ibv_wc w;
    while (!ibv_poll_cq(e.rcq, 1, &w))
        ;
    exit(0);
}
static void serve_late(void) {
    open_end(&e, NULL, ALL);
    exchange();
    qp_init(e.qp, REMOTE);
    wait_for_each_other();
    usleep(2500000);
    qp_rtr(e.qp, peer.gid, peer.qpn, DEF);
    post_recv(&e, 5, e.buf, 64, e.mr->lkey);
    EXPECT_WC("V76", e.rcq, 5, IBV_WC_SUCCESS);
    wait_for_each_other();
}
static void again(void) {
    SUCCEEDS(ibv_destroy_qp(e.qp));
    e.qp = new_qp(&e);
}
static void timed_fail(const char *what, double least) {
    double b = now();
    SUCCEEDS(post(&e, 40, IBV_WR_RDMA_WRITE, 0, e.buf, 8, e.mr->lkey, peer.addr, peer.key));
    SUCCEEDS(post(&e, 41, IBV_WR_SEND, 0, e.buf, 8, e.mr->lkey, 0, 0));
    EXPECT_WC(what, e.scq, 40, IBV_WC_RETRY_EXC_ERR);
    double d = now() - b;
    CHECK(what, d >= least, "after %f s, wanted at least %f", d, least);
    EXPECT_WC("V67", e.scq, 41, IBV_WC_WR_FLUSH_ERR);
    CHECK("V92", state_of(e.qp) == IBV_QPS_ERR, "state");
}
int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    int s;
    pid_t p;
    printf("-- SIGKILL\n");
    p = start(serve);
    open_end(&e, NULL, ALL);
    exchange();
    qp_up(e.qp, peer.gid, peer.qpn, DEF);
    wait_for_each_other();
    SUCCEEDS(post_recv(&e, 9, e.buf, 8, e.mr->lkey));
    SUCCEEDS(post(&e, 1, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0));
    EXPECT_WC("up", e.scq, 1, IBV_WC_SUCCESS);
    kill(p, SIGKILL);
    waitpid(p, &s, 0);
    usleep(300000);
    CHECK("V79", state_of(e.qp) == IBV_QPS_RTS, "state after the peer's death %d", state_of(e.qp));
    EXPECT_NONE("V79", e.rcq, 300);
    struct ibv_async_event ev;
    CHECK("V79", async_event(e.ctx, 10, &ev) == -1, "event");
    timed_fail("V79 killed", 0.3);
    EXPECT_WC("V67", e.rcq, 9, IBV_WC_WR_FLUSH_ERR);
    close(sock);
    printf("-- SIGKILL while requests are outstanding\n");
    p = start(serve);
    again();
    exchange();
    qp_up(e.qp, peer.gid, peer.qpn, DEF);
    wait_for_each_other();
    SUCCEEDS(post(&e, 1, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0));
    EXPECT_WC("up", e.scq, 1, IBV_WC_SUCCESS);
    kill(p, SIGSTOP);
    CHECK("stopped", waitpid(p, &s, WUNTRACED) == p && WIFSTOPPED(s), "status %d", s);
    for (int i = 0; i < 4; i++)
        SUCCEEDS(
            post(&e, 10 + i, IBV_WR_RDMA_READ, SIG, e.buf, 8, e.mr->lkey, peer.addr, peer.key));
    usleep(100000);
    kill(p, SIGKILL);
    waitpid(p, &s, 0);
    {
        struct ibv_wc w;
        int n = poll_one(e.scq, &w, HANG);
        CHECK("V79", n == 1 && w.wr_id == 10 && w.status == IBV_WC_RETRY_EXC_ERR, "%d id %ld %s", n,
              (long)w.wr_id, st(w.status));
        for (int i = 1; i < 4; i++)
            EXPECT_WC("V67", e.scq, 10 + i, IBV_WC_WR_FLUSH_ERR);
    }
    close(sock);
    printf("-- SIGSTOP then SIGCONT\n");
    p = start(serve);
    again();
    exchange();
    struct tune tt = DEF;
    tt.timeout = 18;
    qp_up(e.qp, peer.gid, peer.qpn, tt);
    wait_for_each_other();
    SUCCEEDS(post(&e, 1, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0));
    EXPECT_WC("up", e.scq, 1, IBV_WC_SUCCESS);
    kill(p, SIGSTOP);
    CHECK("stopped", waitpid(p, &s, WUNTRACED) == p && WIFSTOPPED(s), "status %d", s);
    SUCCEEDS(post(&e, 2, IBV_WR_RDMA_READ, SIG, e.buf, 8, e.mr->lkey, peer.addr, peer.key));
    usleep(1500000);
    kill(p, SIGCONT);
    EXPECT_WC("stopped for 1.5 s with T = 8 s", e.scq, 2, IBV_WC_SUCCESS);
    kill(p, SIGKILL);
    waitpid(p, &s, 0);
    close(sock);
    printf("-- RESET of the peer\n");
    p = start(serve_reset);
    again();
    exchange();
    qp_up(e.qp, peer.gid, peer.qpn, DEF);
    wait_for_each_other();
    SUCCEEDS(post(&e, 1, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, e.mr->lkey, peer.addr, peer.key));
    EXPECT_WC("up", e.scq, 1, IBV_WC_SUCCESS);
    wait_for_each_other();
    wait_for_each_other();
    CHECK("V79", state_of(e.qp) == IBV_QPS_RTS, "state");
    wait_for_each_other();
    SUCCEEDS(post(&e, 2, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0));
    EXPECT_WC("V79 new stream", e.scq, 2, IBV_WC_SUCCESS);
    wait_for_each_other();
    waitpid(p, &s, 0);
    CHECK("peer", s == 0, "peer's exit %x", s);
    close(sock);
    printf("-- destroy right after the last receive\n");
    for (int i = 0; i < 10; i++) {
        p = start(serve_destroy);
        again();
        exchange();
        qp_up(e.qp, peer.gid, peer.qpn, DEF);
        wait_for_each_other();
        SUCCEEDS(post(&e, 1, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0));
        EXPECT_WC("V80 destroy", e.scq, 1, IBV_WC_SUCCESS);
        wait_for_each_other();
        wait_for_each_other();
        waitpid(p, &s, 0);
        close(sock);
    }
    printf("-- exit right after the last receive\n");
    for (int i = 0; i < 10; i++) {
        p = start(serve_exit);
        again();
        exchange();
        qp_up(e.qp, peer.gid, peer.qpn, DEF);
        wait_for_each_other();
        SUCCEEDS(post(&e, 1, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0));
        EXPECT_WC("V80 exit", e.scq, 1, IBV_WC_SUCCESS);
        waitpid(p, &s, 0);
        close(sock);
    }
    printf("-- peer late\n");
    p = start(serve_late);
    again();
    exchange();
    tt = DEF;
    tt.timeout = 0;
    qp_up(e.qp, peer.gid, peer.qpn, tt);
    wait_for_each_other();
    SUCCEEDS(post(&e, 1, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0));
    EXPECT_WC("V76/V77 timeout 0", e.scq, 1, IBV_WC_SUCCESS);
    wait_for_each_other();
    waitpid(p, &s, 0);
    close(sock);
    printf("-- no peer at all\n");
    tt = DEF;
    tt.timeout = 1;
    tt.retry = 0;
    again();
    uint32_t nobody = 0x500001;
    qp_up(e.qp, e.gid, nobody, tt);
    usleep(1500000);
    CHECK("V77", state_of(e.qp) == IBV_QPS_RTS, "failed without a request");
    timed_fail("V77 at least 1 s", 0.99);
    again();
    tt.timeout = 17;
    tt.retry = 3;
    qp_up(e.qp, e.gid, nobody, tt);
    timed_fail("V77 2.1 s", 2.0);
    /* deaf: dgid of another host number */
    printf("-- dgid does not match\n");
    struct end f = {0};
    open_end(&f, e.ctx, ALL);
    again();
    tt = DEF;
    tt.timeout = 1;
    union ibv_gid w = e.gid;
    w.raw[15] ^= 3;
    qp_up(f.qp, w, e.qp->qp_num, DEF);
    qp_up(e.qp, f.gid, f.qp->qp_num, tt);
    timed_fail("V75 another address", 0.99);
    /* destination number does not match */
    again();
    qp_state(f.qp, IBV_QPS_RESET);
    qp_up(f.qp, e.gid, e.qp->qp_num ^ 1, DEF);
    qp_up(e.qp, f.gid, f.qp->qp_num, tt);
    timed_fail("V75 another number", 0.99);
    /* A queue pair that names one which has its peer: it reaches nothing, and the two go on. */
    printf("-- a second claimant\n");
    struct end g = {0};
    open_end(&g, e.ctx, ALL);
    again();
    qp_state(f.qp, IBV_QPS_RESET);
    qp_up(e.qp, f.gid, f.qp->qp_num, DEF);
    qp_up(f.qp, e.gid, e.qp->qp_num, DEF);
    for (int i = 7; i < 9; i++)
        SUCCEEDS(post_recv(&e, i, e.buf, 8, e.mr->lkey));
    SUCCEEDS(post(&f, 1, IBV_WR_SEND, SIG, f.buf, 8, f.mr->lkey, 0, 0));
    EXPECT_WC("V75", f.scq, 1, IBV_WC_SUCCESS);
    EXPECT_WC("V75", e.rcq, 7, IBV_WC_SUCCESS);
    memset(e.buf, 0x11, 64);
    memset(g.buf, 0x22, 64);
    qp_up(g.qp, e.gid, e.qp->qp_num, tt);
    SUCCEEDS(post(&g, 2, IBV_WR_SEND, SIG, g.buf, 8, g.mr->lkey, 0, 0));
    SUCCEEDS(post(&g, 3, IBV_WR_RDMA_WRITE, SIG, g.buf, 8, g.mr->lkey, (uintptr_t)e.buf,
                  e.mr->rkey));
    EXPECT_WC("V75", g.scq, 2, IBV_WC_RETRY_EXC_ERR);
    EXPECT_WC("V75", g.scq, 3, IBV_WC_WR_FLUSH_ERR);
    EXPECT_NONE("V75", e.rcq, 0);
    CHECK("V75", state_of(e.qp) == IBV_QPS_RTS && e.buf[0] == 0x11, "state %d, byte %x",
          state_of(e.qp), e.buf[0]);
    SUCCEEDS(post(&f, 4, IBV_WR_SEND, SIG, f.buf, 8, f.mr->lkey, 0, 0));
    EXPECT_WC("V75", f.scq, 4, IBV_WC_SUCCESS);
    EXPECT_WC("V75", e.rcq, 8, IBV_WC_SUCCESS);
    return finish();
}
