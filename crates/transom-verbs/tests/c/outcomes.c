/* How requests end, between two processes: the child answers, the parent asks. */
#include "common.h"
#include "processes.h"
static bool child;
struct id {
    uint32_t qpn, key, key2;
    uint64_t addr, addr2;
    union ibv_gid gid;
};
static struct end e;
static struct id peer;
static void exchange(uint32_t key2, void *addr2) {
    struct id me = {e.qp->qp_num, e.mr->rkey, key2, (uintptr_t)e.buf, (uintptr_t)addr2, e.gid};
    send_all(&me, sizeof me);
    receive_all(&peer, sizeof peer);
}
static void up(struct tune t) {
    qp_state(e.qp, IBV_QPS_RESET);
    wait_for_each_other();
    struct ibv_wc w;
    while (ibv_poll_cq(e.scq, 1, &w) > 0 || ibv_poll_cq(e.rcq, 1, &w) > 0)
        ;
    struct ibv_async_event ev;
    while (async_event(e.ctx, 0, &ev) >= 0)
        ibv_ack_async_event(&ev);
    qp_up(e.qp, peer.gid, peer.qpn, t);
    wait_for_each_other();
}
static int drain_event(int ms) {
    struct ibv_async_event ev;
    int t = async_event(e.ctx, ms, &ev);
    if (t >= 0) {
        CHECK("V104", ev.element.qp == e.qp, "event of another queue pair");
        ibv_ack_async_event(&ev);
    }
    return t;
}
/* remote failure of one request: requester sees status `want`, then flush behind; responder ERR,
 * event, receives flushed */
static void remote(const char *what, struct tune rt, int op, uint64_t addr, uint32_t len,
                   uint32_t key, int want, int event, bool responder_err) {
    printf("-- %s\n", what);
    fflush(stdout);
    struct tune t = DEF;
    if (child)
        t = rt;
    up(t);
    if (child) {
        SUCCEEDS(post_recv(&e, 500, e.buf + 60000, 16, e.mr->lkey));
        wait_for_each_other();
        wait_for_each_other();
        if (responder_err) {
            EXPECT_WC("V92 responder", e.rcq, 500, IBV_WC_WR_FLUSH_ERR);
            CHECK("7.2", state_of(e.qp) == IBV_QPS_ERR, "%s: responder state %d", what,
                  state_of(e.qp));
            int ev = drain_event(HANG);
            CHECK("7.2", ev == event, "%s: event %d wanted %d", what, ev, event);
            CHECK("7.2", drain_event(50) == -1, "%s: second event", what);
        } else {
            EXPECT_NONE("7.2", e.rcq, 100);
            CHECK("7.2", state_of(e.qp) == IBV_QPS_RTS, "%s: responder state %d", what,
                  state_of(e.qp));
            CHECK("7.2", drain_event(50) == -1, "%s: event", what);
        }
        wait_for_each_other();
    } else {
        wait_for_each_other();
        SUCCEEDS(post_recv(&e, 7, e.buf, 16, e.mr->lkey));
        SUCCEEDS(post(&e, 1, op, 0, e.buf + 100, len, e.mr->lkey, addr, key));
        int r2 = post(&e, 2, IBV_WR_RDMA_WRITE, SIG, e.buf + 100, 8, e.mr->lkey, peer.addr + 40000,
                      peer.key);
        CHECK("V67", r2 == 0, "second post %d", r2);
        struct ibv_wc w;
        int n = poll_one(e.scq, &w, HANG);
        CHECK("7.2", n == 1 && w.wr_id == 1 && w.status == want, "%s: %d id %ld %s, wanted %s",
              what, n, (long)w.wr_id, st(w.status), st(want));
        CHECK("V92", state_of(e.qp) == IBV_QPS_ERR, "%s: requester state %d", what, state_of(e.qp));
        CHECK("V57", w.qp_num == e.qp->qp_num, "qp_num");
        EXPECT_WC("V67", e.scq, 2, IBV_WC_WR_FLUSH_ERR);
        EXPECT_WC("V67", e.rcq, 7, IBV_WC_WR_FLUSH_ERR);
        CHECK("7.2", drain_event(30) == -1, "%s: event at the requester", what);
        wait_for_each_other();
        wait_for_each_other();
    }
}
static void sendlike(const char *what, struct tune rt, uint32_t rlen, uint64_t raddr, uint32_t rkey,
                     uint32_t slen, int want, int rwant) {
    printf("-- %s\n", what);
    fflush(stdout);
    up(child ? rt : DEF);
    if (child) {
        SUCCEEDS(post_recv(&e, 500, (void *)raddr, rlen, rkey));
        SUCCEEDS(post_recv(&e, 501, e.buf, 16, e.mr->lkey));
        wait_for_each_other();
        EXPECT_WC("7.2", e.rcq, 500, rwant);
        if (rwant) {
            EXPECT_WC("7.2", e.rcq, 501, IBV_WC_WR_FLUSH_ERR);
            CHECK("7.2", state_of(e.qp) == IBV_QPS_ERR, "state %d", state_of(e.qp));
        }
        wait_for_each_other();
    } else {
        wait_for_each_other();
        SUCCEEDS(post(&e, 1, IBV_WR_SEND, SIG, e.buf, slen, e.mr->lkey, 0, 0));
        EXPECT_WC(what, e.scq, 1, want);
        CHECK("V92", state_of(e.qp) == (want ? IBV_QPS_ERR : IBV_QPS_RTS), "state %d",
              state_of(e.qp));
        wait_for_each_other();
    }
}
static void local(const char *what, int op, void *p, uint32_t len, uint32_t lkey) {
    printf("-- %s\n", what);
    fflush(stdout);
    up(DEF);
    if (child) {
        SUCCEEDS(post_recv(&e, 500, e.buf + 60000, 16, e.mr->lkey));
        wait_for_each_other();
        wait_for_each_other();
        EXPECT_NONE("7.2", e.rcq, 200);
        CHECK("7.2/V79", state_of(e.qp) == IBV_QPS_RTS, "%s: responder state %d", what,
              state_of(e.qp));
        CHECK("7.2", drain_event(20) == -1, "event");
        wait_for_each_other();
    } else {
        wait_for_each_other();
        SUCCEEDS(post(&e, 1, op, 0, p, len, lkey, peer.addr, peer.key));
        EXPECT_WC(what, e.scq, 1, IBV_WC_LOC_PROT_ERR);
        CHECK("V92", state_of(e.qp) == IBV_QPS_ERR, "%s state %d", what, state_of(e.qp));
        CHECK("V65", !post(&e, 2, IBV_WR_SEND, 0, e.buf, 1, e.mr->lkey, 0, 0), "post in ERR");
        EXPECT_WC("V67", e.scq, 2, IBV_WC_WR_FLUSH_ERR);
        wait_for_each_other();
        wait_for_each_other();
    }
}
static volatile int stop;
static volatile long moved;
int main(void) {
    int sv[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
    pid_t pid = fork();
    child = pid == 0;
    sock = sv[child];
    close(sv[!child]);
    open_end(&e, NULL, ALL);
    long pg = 4096;
    struct ibv_mr *ro = MADE(ibv_reg_mr(e.pd, e.buf, 4096, IBV_ACCESS_REMOTE_READ)),
                  *wo = MADE(ibv_reg_mr(e.pd, e.buf, 4096,
                                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)),
                  *lo = MADE(ibv_reg_mr(e.pd, e.buf, 4096, 1));
    struct ibv_pd *p2 = MADE(ibv_alloc_pd(e.ctx));
    struct ibv_mr *other = MADE(ibv_reg_mr(p2, e.buf, 4096, ALL)),
                  *none = MADE(ibv_reg_mr(e.pd, e.buf, 4096, 0)),
                  *zb = MADE(ibv_reg_mr_iova(e.pd, e.buf, 4096, 0x7000000000, ALL));
    uint32_t keys[6] = {ro->rkey, wo->rkey, lo->rkey, other->rkey, none->rkey, zb->rkey}, k[6];
    exchange(0, NULL);
    send_all(keys, sizeof keys);
    receive_all(k, sizeof k);
    int W = IBV_WR_RDMA_WRITE, R = IBV_WR_RDMA_READ, A = IBV_WC_REM_ACCESS_ERR,
        Q = IBV_EVENT_QP_ACCESS_ERR, I = IBV_WC_REM_INV_REQ_ERR, B = IBV_EVENT_QP_REQ_ERR;
    uint64_t a = peer.addr;
    remote("WRITE unknown key", DEF, W, a, 8, peer.key ^ 0x5500, A, Q, true);
    remote("READ unknown key", DEF, R, a, 8, peer.key + 77, A, Q, true);
    remote("WRITE other PD", DEF, W, a, 8, k[3], A, Q, true);
    remote("READ other PD", DEF, R, a, 8, k[3], A, Q, true);
    remote("WRITE one byte beyond", DEF, W, a + 4089, 8, k[1], A, Q, true);
    remote("READ one byte beyond", DEF, R, a + 4089, 8, k[0], A, Q, true);
    remote("WRITE before", DEF, W, a - 1, 8, peer.key, A, Q, true);
    remote("READ wrapping", DEF, R, (uint64_t)-4, 8, peer.key, A, Q, true);
    remote("WRITE without right", DEF, W, a, 8, k[0], A, Q, true);
    remote("READ without right", DEF, R, a, 8, k[1], A, Q, true);
    remote("WRITE local key", DEF, W, a, 8, k[2], A, Q, true);
    remote("iova: old address", DEF, W, a, 8, k[5], A, Q, true);
    struct tune no = DEF;
    no.access = 0;
    remote("V93 WRITE not allowed by the queue pair", no, W, a, 8, peer.key, I, B, true);
    remote("V93 READ not allowed", no, R, a, 8, peer.key, I, B, true);
    no.access = IBV_ACCESS_REMOTE_READ;
    remote("V93 WRITE, only READ allowed", no, W, a, 8, peer.key, I, B, true);
    no.access = IBV_ACCESS_REMOTE_WRITE;
    remote("V93 READ, only WRITE allowed", no, R, a, 8, peer.key, I, B, true);
    struct tune unread = DEF;
    unread.dest_rd = 0;
    remote("READ where none are served", unread, R, a, 8, peer.key, I, B, true);
    sendlike("SEND longer", DEF, 16, (uintptr_t)e.buf, e.mr->lkey, 17, IBV_WC_REM_INV_REQ_ERR,
             IBV_WC_LOC_LEN_ERR);
    sendlike("SEND exact", DEF, 16, (uintptr_t)e.buf, e.mr->lkey, 16, 0, 0);
    sendlike("receive bad key", DEF, 16, (uintptr_t)e.buf, e.mr->lkey ^ 0x3300, 8,
             IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
    sendlike("receive no LOCAL_WRITE", DEF, 16, (uintptr_t)e.buf, none->lkey, 8, IBV_WC_REM_OP_ERR,
             IBV_WC_LOC_PROT_ERR);
    sendlike("receive other PD", DEF, 16, (uintptr_t)e.buf, other->lkey, 8, IBV_WC_REM_OP_ERR,
             IBV_WC_LOC_PROT_ERR);
    sendlike("receive beyond", DEF, 16, (uintptr_t)e.buf + e.len - 4, e.mr->lkey, 8,
             IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
    {
        char *g = mmap(NULL, pg, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct ibv_mr *gm = MADE(ibv_reg_mr(e.pd, g, pg, ALL));
        munmap(g, pg);
        exchange(gm->rkey, g);
        sendlike("receive, pages gone", DEF, 16, (uintptr_t)g, gm->lkey, 8, IBV_WC_REM_OP_ERR,
                 IBV_WC_LOC_PROT_ERR);
        remote("WRITE, pages gone under a valid grant", DEF, W, peer.addr2, 8, peer.key2,
               IBV_WC_REM_OP_ERR, IBV_EVENT_QP_FATAL, true);
        remote("READ, pages gone under a valid grant, a WRITE behind", DEF, R, peer.addr2, 8,
               peer.key2, IBV_WC_REM_OP_ERR, IBV_EVENT_QP_FATAL, true);
        printf("-- requester's own pages gone\n");
        local("WRITE of gone pages", W, g, 8, gm->lkey);
        local("READ into gone pages", R, g, 8, gm->lkey);
        SUCCEEDS(ibv_dereg_mr(gm));
    }
    local("own unknown key WRITE", W, e.buf, 8, e.mr->lkey + 9);
    local("own unknown key SEND", IBV_WR_SEND, e.buf, 8, e.mr->lkey + 9);
    local("own range", W, e.buf + e.len - 4, 8, e.mr->lkey);
    local("own other PD", W, e.buf, 8, other->lkey);
    local("READ without LOCAL_WRITE", R, e.buf, 8, ro->lkey);
    local("READ range", R, e.buf + e.len - 4, 8, e.mr->lkey);
    local("READ unknown", R, e.buf, 8, 0x1234);
    /* iova and byte_len of a good READ */
    printf("-- good ones\n");
    up(DEF);
    if (child) {
        memcpy(e.buf + 64, "from the peer", 14);
        wait_for_each_other();
        wait_for_each_other();
        CHECK("V40", !memcmp(e.buf + 128, "to the peer", 12), "iova write");
    } else {
        wait_for_each_other();
        memset(e.buf, 0, 100);
        SUCCEEDS(post(&e, 1, R, SIG, e.buf, 14, e.mr->lkey, 0x7000000040, k[5]));
        struct ibv_wc w = EXPECT_WC("V40", e.scq, 1, IBV_WC_SUCCESS);
        CHECK("V84", w.opcode == IBV_WC_RDMA_READ && w.byte_len == 14, "byte_len %u", w.byte_len);
        CHECK("V40", !strcmp(e.buf, "from the peer"), "bytes");
        memcpy(e.buf, "to the peer", 12);
        SUCCEEDS(post(&e, 2, W, SIG, e.buf, 12, e.mr->lkey, 0x7000000080, k[5]));
        EXPECT_WC("V40", e.scq, 2, IBV_WC_SUCCESS);
        wait_for_each_other();
    }
    /* RNR: V94 */
    printf("-- RNR\n");
    struct tune t = DEF;
    t.min_rnr = 1;
    /* A single try finds the receive that was posted before the Send, and no other; more wait for a program that
     * comes late. */
    for (int more = 0; more < 2; more++) {
        t.rnr = child ? 7 : more;
        up(t);
        if (child) {
            if (more) usleep(1000000);
            SUCCEEDS(post_recv(&e, 8, e.buf, 16, e.mr->lkey));
            if (!more) wait_for_each_other();
            EXPECT_WC("V94", e.rcq, 8, IBV_WC_SUCCESS);
            wait_for_each_other();
            wait_for_each_other();
            CHECK("7.2", state_of(e.qp) == IBV_QPS_RTS, "responder state after RNR");
        } else {
            if (!more) wait_for_each_other();
            SUCCEEDS(post(&e, 1, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0));
            EXPECT_WC("V94", e.scq, 1, IBV_WC_SUCCESS);
            wait_for_each_other();
            double b = now();
            SUCCEEDS(post(&e, 2, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0));
            EXPECT_WC("V94", e.scq, 2, IBV_WC_RNR_RETRY_EXC_ERR);
            if (more) CHECK("V94", now() - b >= 4.999, "before 5 s: %f", now() - b);
            CHECK("V92", state_of(e.qp) == IBV_QPS_ERR, "state");
            wait_for_each_other();
        }
    }
    {
        t.rnr = 7;
        up(t);
        if (child) {
            usleep(1500000);
            SUCCEEDS(post_recv(&e, 9, e.buf, 16, e.mr->lkey));
            EXPECT_WC("V94", e.rcq, 9, IBV_WC_SUCCESS);
            wait_for_each_other();
        } else {
            SUCCEEDS(post(&e, 1, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0));
            EXPECT_WC("V94 for ever", e.scq, 1, IBV_WC_SUCCESS);
            wait_for_each_other();
        }
        /* the receive comes in time; writes behind the waiting SEND keep order */
        t.rnr = 6;
        t.min_rnr = 31;
        up(t);
        if (child) {
            e.buf[50] = 0;
            wait_for_each_other();
            usleep(300000);
            CHECK("V88", e.buf[50] == 0, "a WRITE overtook a SEND");
            SUCCEEDS(post_recv(&e, 9, e.buf, 16, e.mr->lkey));
            EXPECT_WC("V94", e.rcq, 9, IBV_WC_SUCCESS);
            wait_for_each_other();
        } else {
            wait_for_each_other();
            e.buf[100] = 1;
            SUCCEEDS(post(&e, 1, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0));
            SUCCEEDS(post(&e, 2, W, SIG, e.buf + 100, 1, e.mr->lkey, peer.addr + 50, peer.key));
            EXPECT_WC("V94", e.scq, 1, IBV_WC_SUCCESS);
            EXPECT_WC("V88", e.scq, 2, IBV_WC_SUCCESS);
            wait_for_each_other();
        }
    }
    /* V66 one-directional: the responder stays in RTR, and hears that its peer is there (V104) */
    printf("-- RTR only\n");
    for (int first_is_write = 0; first_is_write < 2; first_is_write++) {
        qp_state(e.qp, IBV_QPS_RESET);
        wait_for_each_other();
        qp_init(e.qp, REMOTE);
        qp_rtr(e.qp, peer.gid, peer.qpn, DEF);
        if (!child)
            qp_rts(e.qp, DEF);
        struct ibv_wc w;
        while (ibv_poll_cq(e.rcq, 1, &w) > 0)
            ;
        wait_for_each_other();
        if (child) {
            if (first_is_write) {
                int event = drain_event(HANG);
                CHECK("V104", event == IBV_EVENT_COMM_EST, "WRITE in RTR: event %d", event);
            }
            SUCCEEDS(post_recv(&e, 3, e.buf, 16, e.mr->lkey));
            EXPECT_WC("V66", e.rcq, 3, IBV_WC_SUCCESS);
            if (!first_is_write) {
                int event = drain_event(HANG);
                CHECK("V104", event == IBV_EVENT_COMM_EST, "SEND in RTR: event %d", event);
            }
            wait_for_each_other();
            CHECK("V66", state_of(e.qp) == IBV_QPS_RTR, "state");
            CHECK("V104", drain_event(0) == -1, "a second event");
        } else {
            if (first_is_write) {
                SUCCEEDS(post(&e, 5, W, SIG, e.buf, 8, e.mr->lkey, a, peer.key));
                EXPECT_WC("V66", e.scq, 5, IBV_WC_SUCCESS);
            }
            SUCCEEDS(post(&e, 1, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0));
            EXPECT_WC("V66", e.scq, 1, IBV_WC_SUCCESS);
            SUCCEEDS(post(&e, 2, R, SIG, e.buf, 8, e.mr->lkey, a, peer.key));
            EXPECT_WC("V66", e.scq, 2, IBV_WC_SUCCESS);
            wait_for_each_other();
        }
    }
    /* V43: dereg in the middle of a peer's accesses */
    printf("-- V43\n");
    for (int round = 0; round < 20; round++) {
        size_t big = 1 << 20;
        char *g = mmap(NULL, big, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct ibv_mr *gm = MADE(ibv_reg_mr(e.pd, g, big, ALL));
        exchange(gm->rkey, g);
        up(DEF);
        if (child) {
            wait_for_each_other();
            while (*(volatile char *)g == 0 && !round % 2)
                ;
            usleep(200 * round);
            CHECK("V43", ibv_dereg_mr(gm) == 0, "dereg");
            memset(g, 0x11, big);
            usleep(20000);
            size_t bad = 0;
            for (size_t i = 0; i < big; i++)
                bad += g[i] != 0x11;
            CHECK("V43", bad == 0, "%zu bytes moved after dereg", bad);
            wait_for_each_other();
            munmap(g, big);
        } else {
            memset(g, 0x55, big);
            wait_for_each_other();
            bool over = false;
            double end = now() + HANG / 1000;
            int id = 0, out = 0;
            while (!over && now() < end) {
                while (out < 8 &&
                       post(&e, id, W, SIG, g, big, gm->lkey, peer.addr2, peer.key2) == 0) {
                    id++;
                    out++;
                }
                struct ibv_wc w;
                while (ibv_poll_cq(e.scq, 1, &w) > 0) {
                    out--;
                    if (w.status) {
                        CHECK("V43", over || w.status == A, "status %s", st(w.status));
                        over = true;
                    }
                }
            }
            CHECK("V43", over, "never refused");
            wait_for_each_other();
            SUCCEEDS(ibv_dereg_mr(gm));
            munmap(g, big);
        }
    }
    /* V43: own MR ended while posted */
    printf("-- V43 posted receive\n");
    {
        char *g = mmap(NULL, pg, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct ibv_mr *gm = MADE(ibv_reg_mr(e.pd, g, pg, ALL));
        up(DEF);
        if (child) {
            SUCCEEDS(post_recv(&e, 3, g, 16, gm->lkey));
            CHECK("V43", !ibv_dereg_mr(gm), "dereg with a receive posted");
            wait_for_each_other();
            EXPECT_WC("V43", e.rcq, 3, IBV_WC_LOC_PROT_ERR);
            wait_for_each_other();
        } else {
            wait_for_each_other();
            SUCCEEDS(post(&e, 1, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0));
            EXPECT_WC("V43", e.scq, 1, IBV_WC_REM_OP_ERR);
            wait_for_each_other();
        }
    }
    wait_for_each_other();
    finish();
    if (!child) {
        int s;
        waitpid(pid, &s, 0);
        return failures || s;
    }
    return failures != 0;
}
