/* A queue pair that begins anew alone, again and again: its peer in another process stays ready, and
 * every message arrives. */
#include "common.h"
#include "processes.h"
#define TURNS 60
struct id {
    uint32_t qpn;
    union ibv_gid gid;
};
static struct end e;
static struct id peer;
static void come_back(void) {
    for (int i = 0; i < TURNS; i++) {
        qp_state(e.qp, IBV_QPS_RESET);
        qp_up(e.qp, peer.gid, peer.qpn, DEF);
        SUCCEEDS(post(&e, 100 + i, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0));
        EXPECT_WC("V79", e.scq, 100 + i, IBV_WC_SUCCESS);
    }
    wait_for_each_other();
}
static void stay(void) {
    for (int i = 0; i < TURNS; i++) {
        SUCCEEDS(post_recv(&e, i, e.buf, 8, e.mr->lkey));
        EXPECT_WC("V79", e.rcq, i, IBV_WC_SUCCESS);
        CHECK("V79", state_of(e.qp) == IBV_QPS_RTS, "state %d after turn %d", state_of(e.qp), i);
    }
    wait_for_each_other();
}
int main(void) {
    int sv[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
    pid_t pid = fork();
    bool child = pid == 0;
    sock = sv[child];
    close(sv[!child]);
    open_end(&e, NULL, ALL);
    struct id me = {e.qp->qp_num, e.gid};
    send_all(&me, sizeof me);
    receive_all(&peer, sizeof peer);
    qp_up(e.qp, peer.gid, peer.qpn, DEF);
    wait_for_each_other();
    if (child) {
        stay();
        come_back();
        _exit(finish());
    }
    come_back();
    stay();
    int status = 0;
    waitpid(pid, &status, 0);
    CHECK("V79", WIFEXITED(status) && WEXITSTATUS(status) == 0, "the other process: %d", status);
    return finish();
}
