/* Forked children, and descriptors that the program closes. */
#include "common.h"
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
static bool idle;
/* Opens and closes what a child uses, so that a fork meets it inside. */
static void *busy(void *owner) {
    struct end *e = owner;
    int n;
    struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
    while (!__atomic_load_n(&idle, __ATOMIC_ACQUIRE)) {
        ibv_free_device_list(MADE(ibv_get_device_list(&n)));
        SUCCEEDS(ibv_destroy_qp(new_qp(e)));
        struct rdma_cm_id *id;
        SUCCEEDS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
        SUCCEEDS(rdma_destroy_id(id));
    }
    rdma_destroy_event_channel(channel);
    return NULL;
}
/* Looks for a device and a socket that there are not. */
static void *asking(void *owner) {
    struct end *e = owner;
    while (!__atomic_load_n(&idle, __ATOMIC_ACQUIRE)) {
        ibv_import_device(e->ctx->async_fd);
        rfcntl(-1, F_GETFL);
    }
    return NULL;
}
/* A child waits for no lock of a thread that it does not have. */
static void forked_amid_calls(struct end *e) {
    enum { THREADS = 3, CHILDREN = 100 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, i ? busy : asking, e);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (!child) {
            alarm(600);
            int n;
            struct rdma_cm_id *id;
            bool done = ibv_get_device_list(&n) && !rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) &&
                        rsocket(AF_INET, SOCK_STREAM, 0) >= 0 && !ibv_import_device(e->ctx->cmd_fd) &&
                        !ibv_destroy_qp(e->qp) && !ibv_close_device(e->ctx);
            _exit(!done);
        }
        int status;
        waitpid(child, &status, 0);
        CHECK("V146", status == 0, "child %d: %x", i, status);
        if (status)
            break;
    }
    __atomic_store_n(&idle, true, __ATOMIC_RELEASE);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}
/* Events of the parent, one that waits and one that a thread is at, are the parent's. */
static void a_child_destroys_what_has_events(void) {
    struct end e = {0}, f = {0};
    struct ibv_cq *cq;
    void *context;
    open_end(&e, NULL, ALL);
    open_end(&f, e.ctx, ALL);
    pair_up(&e, &f, DEF);
    for (int i = 0; i < 2; i++) {
        SUCCEEDS(ibv_req_notify_cq(e.scq, 0));
        SUCCEEDS(post(&e, i, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, e.mr->lkey, (uintptr_t)f.buf,
                      f.mr->rkey));
        EXPECT_WC("V146", e.scq, i, 0);
        if (!i)
            SUCCEEDS(ibv_get_cq_event(e.ch, &cq, &context));
    }
    struct pollfd waits = {e.ch->fd, POLLIN, 0};
    CHECK("V146", poll(&waits, 1, HANG) == 1, "event of the parent");
    pid_t child = fork();
    if (!child) {
        alarm(600);
        _exit(ibv_destroy_qp(e.qp) || ibv_destroy_cq(e.scq));
    }
    int status;
    waitpid(child, &status, 0);
    CHECK("V146", status == 0, "child %x", status);
    CHECK("V146", poll(&waits, 1, 0) == 1, "event that a child took");
    SUCCEEDS(ibv_get_cq_event(e.ch, &cq, &context));
    ibv_ack_cq_events(cq, 2);
    SUCCEEDS(ibv_destroy_qp(e.qp));
    SUCCEEDS(ibv_destroy_cq(e.scq));
}
int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK("V145", ibv_fork_init() == 0, "fork_init");
    CHECK("V145", ibv_is_fork_initialized() == IBV_FORK_UNNEEDED, "status");
    struct end e = {0}, f = {0};
    open_end(&e, NULL, ALL);
    open_end(&f, e.ctx, ALL);
    pair_up(&e, &f, DEF);
    CHECK("V145", ibv_fork_init() == 0, "late");
    SUCCEEDS(
        post(&e, 1, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, e.mr->lkey, (uintptr_t)f.buf, f.mr->rkey));
    EXPECT_WC("up", e.scq, 1, 0);
    int s;
    pid_t p = fork();
    if (!p) {
        alarm(600);
        failures = 0;
        struct ibv_wc w;
        struct ibv_recv_wr r = {0}, *rb;
        errno = 0;
        struct ibv_mr *mm = ibv_reg_mr(e.pd, e.buf, 10, 1);
        CHECK("V146", mm == NULL, "reg_mr on an inherited PD");
        int x =
            post(&e, 2, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, e.mr->lkey, (uintptr_t)f.buf, f.mr->rkey);
        CHECK("V146", x == EIO, "post_send %d", x);
        x = ibv_post_recv(e.qp, &r, &rb);
        CHECK("V146", x == EIO, "post_recv %d", x);
        x = ibv_poll_cq(e.scq, 1, &w);
        CHECK("V146", x < 0 || x == EIO, "poll %d", x);
        struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
        x = ibv_modify_qp(e.qp, &a, IBV_QP_STATE);
        CHECK("V146", x == EIO, "modify %d", x);
        CHECK("V146", ibv_alloc_pd(e.ctx) == NULL && errno == EIO, "alloc_pd errno %d", errno);
        struct ibv_device_attr da;
        x = ibv_query_device(e.ctx, &da);
        CHECK("V146", x == EIO || x == 0, "query_device %d", x);
        /* a new context works, before and after destroying the inherited ones */
        struct end g = {0}, h = {0};
        open_end(&g, NULL, ALL);
        open_end(&h, NULL, ALL);
        pair_up(&g, &h, DEF);
        strcpy(g.buf, "child");
        SUCCEEDS(post(&g, 5, IBV_WR_RDMA_WRITE, SIG, g.buf, 8, g.mr->lkey, (uintptr_t)h.buf,
                      h.mr->rkey));
        EXPECT_WC("V146 new context", g.scq, 5, 0);
        CHECK("V146", !strcmp(h.buf, "child"), "bytes");
        CHECK("V146", ibv_destroy_qp(e.qp) == 0, "destroy_qp");
        CHECK("V146", ibv_destroy_qp(f.qp) == 0, "destroy_qp");
        CHECK("V146", ibv_dereg_mr(e.mr) == 0, "dereg");
        CHECK("V146", ibv_destroy_cq(e.scq) == 0, "cq");
        CHECK("V146", ibv_destroy_cq(e.rcq) == 0, "cq");
        CHECK("V146", ibv_destroy_comp_channel(e.ch) == 0, "channel");
        CHECK("V146", ibv_dealloc_pd(e.pd) == 0, "pd");
        CHECK("V146", ibv_close_device(e.ctx) == 0, "close");
        SUCCEEDS(post(&g, 6, IBV_WR_RDMA_WRITE, SIG, g.buf, 8, g.mr->lkey, (uintptr_t)h.buf,
                      h.mr->rkey));
        EXPECT_WC("V146 afterwards", g.scq, 6, 0);
        SUCCEEDS(ibv_destroy_qp(g.qp));
        SUCCEEDS(ibv_destroy_qp(h.qp));
        finish();
        exit(failures != 0);
    }
    waitpid(p, &s, 0);
    CHECK("V146", s == 0, "child %x", s);
    /* parent unharmed */
    SUCCEEDS(
        post(&e, 3, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, e.mr->lkey, (uintptr_t)f.buf, f.mr->rkey));
    EXPECT_WC("V146 parent", e.scq, 3, 0);
    SUCCEEDS(post_recv(&f, 4, f.buf, 64, f.mr->lkey));
    SUCCEEDS(post(&e, 4, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0));
    EXPECT_WC("V146 parent", e.scq, 4, 0);
    EXPECT_WC("V146 parent", f.rcq, 4, 0);
    SUCCEEDS(ibv_req_notify_cq(e.scq, 0));
    SUCCEEDS(
        post(&e, 5, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, e.mr->lkey, (uintptr_t)f.buf, f.mr->rkey));
    struct pollfd pp = {e.ch->fd, POLLIN, 0};
    CHECK("V146", poll(&pp, 1, HANG) == 1, "event of the parent");
    struct ibv_cq *cq;
    void *cx;
    SUCCEEDS(ibv_get_cq_event(e.ch, &cq, &cx));
    ibv_ack_cq_events(cq, 1);
    EXPECT_WC("V146 parent", e.scq, 5, 0);
    /* child that exits without doing anything, and one that _exits, and one that execs */
    for (int i = 0; i < 3; i++) {
        p = fork();
        if (!p) {
            alarm(600);
            if (i == 0)
                exit(0);
            if (i == 1)
                _exit(0);
            execl("/bin/true", "true", NULL);
            _exit(9);
        }
        waitpid(p, &s, 0);
        CHECK("V146/V148", s == 0, "child %d: %x", i, s);
        SUCCEEDS(post(&e, 6, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, e.mr->lkey, (uintptr_t)f.buf,
                      f.mr->rkey));
        EXPECT_WC("V146 parent", e.scq, 6, 0);
    }
    forked_amid_calls(&f);
    a_child_destroys_what_has_events();
    /* the child destroys nothing but the descriptor's number was reused in it */
    p = fork();
    if (!p) {
        alarm(600);
        close(e.ch->fd);
        int fd = open("/dev/null", O_RDWR);
        dup2(fd, e.ch->fd);
        SUCCEEDS(ibv_destroy_qp(e.qp));
        SUCCEEDS(ibv_destroy_qp(f.qp));
        SUCCEEDS(ibv_destroy_cq(e.scq));
        SUCCEEDS(ibv_destroy_cq(e.rcq));
        SUCCEEDS(ibv_destroy_comp_channel(e.ch));
        _exit(0);
    }
    waitpid(p, &s, 0);
    CHECK("V146", s == 0, "child %x", s);
    /* V149: descriptors closed under us */
    p = fork();
    if (!p) {
        alarm(600);
        struct end g = {0}, h = {0};
        open_end(&g, NULL, ALL);
        open_end(&h, NULL, ALL);
        pair_up(&g, &h, DEF);
        SUCCEEDS(post(&g, 5, IBV_WR_RDMA_WRITE, SIG, g.buf, 8, g.mr->lkey, (uintptr_t)h.buf,
                      h.mr->rkey));
        EXPECT_WC("V149", g.scq, 5, 0);
        closefrom(3);
        int null[40];
        for (int i = 0; i < 40; i++)
            null[i] = open("/tmp", O_TMPFILE | O_RDWR, 0600);
        post(&g, 6, IBV_WR_RDMA_WRITE, SIG, g.buf, 8, g.mr->lkey, (uintptr_t)h.buf, h.mr->rkey);
        usleep(500000);
        struct ibv_wc w;
        ibv_poll_cq(g.scq, 1, &w);
        ibv_req_notify_cq(g.scq, 0);
        post(&g, 7, IBV_WR_RDMA_WRITE, SIG, g.buf, 8, g.mr->lkey, (uintptr_t)h.buf, h.mr->rkey);
        usleep(300000);
        ibv_destroy_qp(g.qp);
        ibv_destroy_qp(h.qp);
        ibv_destroy_cq(g.scq);
        ibv_close_device(g.ctx);
        int written = 0;
        for (int i = 0; i < 40; i++) {
            if (lseek(null[i], 0, SEEK_END) > 0)
                written++;
        }
        CHECK("V149", written == 0, "%d files of the program written to", written);
        finish();
        _exit(failures != 0);
    }
    waitpid(p, &s, 0);
    CHECK("V149", s == 0, "child %x", s);
    return finish();
}
