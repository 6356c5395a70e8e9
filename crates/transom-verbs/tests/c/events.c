/* Completion channels and asynchronous events. */
#include "common.h"
static int pollfd_(int fd, int ms) {
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, ms);
}
static struct end e, f;
static volatile int done;
static void *destroyer(void *p) {
    SUCCEEDS(ibv_destroy_cq(p));
    done = 1;
    return NULL;
}
static void *qp_destroyer(void *p) {
    SUCCEEDS(ibv_destroy_qp(p));
    done = 1;
    return NULL;
}
static void *getter(void *p) {
    struct ibv_cq *cq;
    void *cx;
    int r = ibv_get_cq_event(p, &cq, &cx);
    if (r == 0)
        ibv_ack_cq_events(cq, 1);
    return (void *)(long)(r == 0);
}
static void onalrm(int s) {
    (void)s;
}
static void write_(int id) {
    SUCCEEDS(
        post(&e, id, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, e.mr->lkey, (uintptr_t)f.buf, f.mr->rkey));
    EXPECT_WC("up", e.scq, id, IBV_WC_SUCCESS);
}
static void send_(int id, int flags) {
    SUCCEEDS(post_recv(&f, id, f.buf, 64, f.mr->lkey));
    SUCCEEDS(post(&e, id, IBV_WR_SEND, SIG | flags, e.buf, 8, e.mr->lkey, 0, 0));
}
static volatile int polling;
static void *poller(void *p) {
    struct ibv_wc w;
    while (polling)
        ibv_poll_cq(p, 1, &w);
    return NULL;
}
static void *poster(void *p) {
    int i = 0;
    while (polling) {
        post(&e, i++, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, e.mr->lkey, (uintptr_t)f.buf, f.mr->rkey);
        if (i % 8 == 0)
            usleep(100);
    }
    return p;
}
int main(void) {
    open_end(&e, NULL, ALL);
    open_end(&f, e.ctx, ALL);
    pair_up(&e, &f, DEF);
    struct ibv_cq *cq;
    void *cx;
    pthread_t t;
    void *rv;
    /* flags of descriptors */
    CHECK("V98", fcntl(e.ch->fd, F_GETFD) & FD_CLOEXEC, "close-on-exec of the channel");
    CHECK("V98", fcntl(e.ctx->async_fd, F_GETFD) & FD_CLOEXEC, "async fd");
    CHECK("V98", !(fcntl(e.ch->fd, F_GETFL) & O_NONBLOCK), "blocking by default");
    fcntl(e.ch->fd, F_SETFL, O_NONBLOCK);
    errno = 0;
    CHECK("V98", ibv_get_cq_event(e.ch, &cq, &cx) == -1 && errno == EAGAIN, "empty: errno %d",
          errno);
    {
        struct ibv_async_event ev;
        fcntl(e.ctx->async_fd, F_SETFL, O_NONBLOCK);
        errno = 0;
        CHECK("V98", ibv_get_async_event(e.ctx, &ev) == -1 && errno == EAGAIN, "async: errno %d",
              errno);
    }
    /* completions that are there before arming, arming, event */
    write_(1);
    CHECK("V100", pollfd_(e.ch->fd, 50) == 0, "event without arming");
    SUCCEEDS(ibv_req_notify_cq(e.scq, 0));
    CHECK("V100", pollfd_(e.ch->fd, 50) == 0, "event at arming of an empty queue");
    write_(2);
    CHECK("V99", pollfd_(e.ch->fd, HANG) == 1, "no event");
    CHECK("V98", !ibv_get_cq_event(e.ch, &cq, &cx) && cq == e.scq && cx == &e, "event %p", cq);
    CHECK("V99", pollfd_(e.ch->fd, 0) == 0, "still readable");
    write_(3);
    CHECK("V100", pollfd_(e.ch->fd, 50) == 0, "one event for one arming");
    ibv_ack_cq_events(e.scq, 1);
    /* armed twice: one event */
    SUCCEEDS(ibv_req_notify_cq(e.scq, 0));
    SUCCEEDS(ibv_req_notify_cq(e.scq, 0));
    write_(4);
    write_(5);
    CHECK("V100", pollfd_(e.ch->fd, HANG) == 1 && !ibv_get_cq_event(e.ch, &cq, &cx), "event");
    CHECK("V100", pollfd_(e.ch->fd, 50) == 0, "twice");
    ibv_ack_cq_events(e.scq, 1);
    /* solicited: f's receive queue */
    fcntl(f.ch->fd, F_SETFL, O_NONBLOCK);
    SUCCEEDS(ibv_req_notify_cq(f.rcq, 1));
    send_(10, 0);
    EXPECT_WC("up", e.scq, 10, 0);
    EXPECT_WC("up", f.rcq, 10, 0);
    CHECK("V100", pollfd_(f.ch->fd, 100) == 0, "unsolicited raised an event");
    send_(11, IBV_SEND_SOLICITED);
    EXPECT_WC("up", e.scq, 11, 0);
    EXPECT_WC("up", f.rcq, 11, 0);
    CHECK("V100", pollfd_(f.ch->fd, HANG) == 1 && !ibv_get_cq_event(f.ch, &cq, &cx) && cq == f.rcq,
          "solicited");
    ibv_ack_cq_events(f.rcq, 1);
    SUCCEEDS(ibv_req_notify_cq(f.rcq, 0));
    SUCCEEDS(ibv_req_notify_cq(f.rcq, 1));
    send_(12, 0);
    EXPECT_WC("up", e.scq, 12, 0);
    EXPECT_WC("up", f.rcq, 12, 0);
    CHECK("V100", pollfd_(f.ch->fd, HANG) == 1 && !ibv_get_cq_event(f.ch, &cq, &cx),
          "any overrides solicited");
    ibv_ack_cq_events(f.rcq, 1);
    SUCCEEDS(ibv_req_notify_cq(f.rcq, 1));
    SUCCEEDS(ibv_req_notify_cq(f.rcq, 0));
    send_(13, 0);
    EXPECT_WC("up", e.scq, 13, 0);
    EXPECT_WC("up", f.rcq, 13, 0);
    CHECK("V100", pollfd_(f.ch->fd, HANG) == 1 && !ibv_get_cq_event(f.ch, &cq, &cx),
          "any after solicited");
    ibv_ack_cq_events(f.rcq, 1);
    /* epoll edge triggered */
    int ep = epoll_create1(0);
    struct epoll_event ee = {EPOLLIN | EPOLLET, {.fd = 1}}, got;
    epoll_ctl(ep, EPOLL_CTL_ADD, f.ch->fd, &ee);
    for (int i = 0; i < 5; i++) {
        SUCCEEDS(ibv_req_notify_cq(f.rcq, 0));
        send_(20 + i, 0);
        CHECK("V98", epoll_wait(ep, &got, 1, 5000) == 1, "edge %d", i);
        CHECK("V98", !ibv_get_cq_event(f.ch, &cq, &cx), "fetch");
        ibv_ack_cq_events(cq, 1);
        EXPECT_WC("up", f.rcq, 20 + i, 0);
        EXPECT_WC("up", e.scq, 20 + i, 0);
    }
    /* two queues on one channel: two events, each with its queue; unfetched edge events */
    SUCCEEDS(ibv_req_notify_cq(e.scq, 0));
    SUCCEEDS(ibv_req_notify_cq(e.rcq, 0));
    SUCCEEDS(post_recv(&e, 30, e.buf, 64, e.mr->lkey));
    SUCCEEDS(post(&f, 31, IBV_WR_SEND, SIG, f.buf, 8, f.mr->lkey, 0, 0));
    write_(32);
    EXPECT_WC("up", e.rcq, 30, 0);
    EXPECT_WC("up", f.scq, 31, 0);
    {
        int a = 0, b = 0;
        for (int i = 0; i < 2; i++)
            if (pollfd_(e.ch->fd, HANG) == 1 && !ibv_get_cq_event(e.ch, &cq, &cx)) {
                a += cq == e.scq;
                b += cq == e.rcq;
                ibv_ack_cq_events(cq, 1);
            }
        CHECK("V100", a == 1 && b == 1, "%d %d", a, b);
        CHECK("V99", pollfd_(e.ch->fd, 20) == 0, "more");
    }
    /* blocking, EINTR */
    fcntl(e.ch->fd, F_SETFL, 0);
    struct sigaction sa = {.sa_handler = onalrm};
    sigaction(SIGALRM, &sa, NULL);
    alarm(1);
    errno = 0;
    CHECK("V98", ibv_get_cq_event(e.ch, &cq, &cx) == -1 && errno == EINTR, "errno %d", errno);
    /* a thread blocks; another completes: nobody polls */
    SUCCEEDS(ibv_req_notify_cq(e.scq, 0));
    pthread_create(&t, NULL, getter, e.ch);
    usleep(100000);
    SUCCEEDS(
        post(&e, 33, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, e.mr->lkey, (uintptr_t)f.buf, f.mr->rkey));
    {
        struct timespec ts;
        clock_gettime(CLOCK_REALTIME, &ts);
        ts.tv_sec += HANG / 1000;
        int r = pthread_timedjoin_np(t, &rv, &ts);
        CHECK("V101", r == 0 && rv, "blocked thread %d", r);
    }
    EXPECT_WC("up", e.scq, 33, 0);
    /* two threads block on one channel with two queues */
    {
        pthread_t t2;
        SUCCEEDS(ibv_req_notify_cq(e.scq, 0));
        SUCCEEDS(ibv_req_notify_cq(e.rcq, 0));
        pthread_create(&t, NULL, getter, e.ch);
        pthread_create(&t2, NULL, getter, e.ch);
        usleep(100000);
        SUCCEEDS(post_recv(&e, 34, e.buf, 64, e.mr->lkey));
        SUCCEEDS(post(&e, 35, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, e.mr->lkey, (uintptr_t)f.buf,
                      f.mr->rkey));
        SUCCEEDS(post(&f, 36, IBV_WR_SEND, SIG, f.buf, 8, f.mr->lkey, 0, 0));
        struct timespec ts;
        clock_gettime(CLOCK_REALTIME, &ts);
        ts.tv_sec += HANG / 1000;
        CHECK("V101", pthread_timedjoin_np(t, &rv, &ts) == 0 && rv, "first");
        CHECK("V101", pthread_timedjoin_np(t2, &rv, &ts) == 0 && rv, "second");
        EXPECT_WC("up", e.rcq, 34, 0);
        EXPECT_WC("up", e.scq, 35, 0);
        EXPECT_WC("up", f.scq, 36, 0);
    }
    /* V36: destroy of a queue waits for acknowledgements */
    {
        struct ibv_comp_channel *ch = MADE(ibv_create_comp_channel(e.ctx));
        struct ibv_cq *q = MADE(ibv_create_cq(e.ctx, 10, NULL, ch, 0));
        struct end g = e;
        g.scq = q;
        g.rcq = q;
        g.qp = new_qp(&g);
        SUCCEEDS(ibv_req_notify_cq(q, 0));
        qp_state(g.qp, IBV_QPS_ERR);
        SUCCEEDS(post_recv(&g, 1, g.buf, 1, g.mr->lkey));
        SUCCEEDS(ibv_get_cq_event(ch, &cq, &cx));
        CHECK("V98", cq == q, "queue");
        SUCCEEDS(ibv_destroy_qp(g.qp));
        done = 0;
        pthread_create(&t, NULL, destroyer, q);
        usleep(200000);
        CHECK("V36", !done, "destroyed with an event unacknowledged");
        ibv_ack_cq_events(q, 1);
        {
            struct timespec ts;
            clock_gettime(CLOCK_REALTIME, &ts);
            ts.tv_sec += HANG / 1000;
            CHECK("V36", pthread_timedjoin_np(t, NULL, &ts) == 0, "never");
        }
        q = MADE(ibv_create_cq(e.ctx, 10, NULL, ch, 0));
        g.scq = g.rcq = q;
        g.qp = new_qp(&g);
        SUCCEEDS(ibv_req_notify_cq(q, 0));
        qp_state(g.qp, IBV_QPS_ERR);
        SUCCEEDS(post_recv(&g, 1, g.buf, 1, g.mr->lkey));
        CHECK("V67", pollfd_(ch->fd, HANG) == 1, "event of a flush");
        SUCCEEDS(ibv_destroy_qp(g.qp));
        SUCCEEDS(ibv_destroy_cq(q));
        CHECK("V36", pollfd_(ch->fd, 20) == 0, "event of a destroyed queue is left");
        SUCCEEDS(ibv_destroy_comp_channel(ch));
    }
    /* V36: events of a destroyed queue pair */
    {
        struct ibv_async_event ev;
        struct end g = e;
        g.qp = new_qp(&g);
        struct ibv_qp_attr a;
        struct end h = f;
        h.qp = new_qp(&h);
        pair_up(&g, &h, DEF);
        fcntl(e.ctx->async_fd, F_SETFL, 0);
        a = (struct ibv_qp_attr){.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
        SUCCEEDS(ibv_modify_qp(g.qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
        CHECK("V69", pollfd_(e.ctx->async_fd, HANG) == 1, "drained");
        SUCCEEDS(ibv_get_async_event(e.ctx, &ev));
        done = 0;
        pthread_create(&t, NULL, qp_destroyer, g.qp);
        usleep(200000);
        CHECK("V36", !done, "queue pair destroyed with an event unacknowledged");
        ibv_ack_async_event(&ev);
        {
            struct timespec ts;
            clock_gettime(CLOCK_REALTIME, &ts);
            ts.tv_sec += HANG / 1000;
            CHECK("V36", pthread_timedjoin_np(t, NULL, &ts) == 0, "never");
        }
        SUCCEEDS(ibv_modify_qp(h.qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
        CHECK("V69", pollfd_(e.ctx->async_fd, HANG) == 1, "drained");
        SUCCEEDS(ibv_destroy_qp(h.qp));
        CHECK("V36", pollfd_(e.ctx->async_fd, 20) == 0, "event of a destroyed queue pair is left");
    }
    /* destroy while another thread polls */
    for (int i = 0; i < 20; i++) {
        struct end g = e;
        struct end h = f;
        g.qp = new_qp(&g);
        h.qp = new_qp(&h);
        pair_up(&g, &h, DEF);
        polling = 1;
        pthread_create(&t, NULL, poller, e.scq);
        pthread_t t3;
        pthread_create(&t3, NULL, poller, f.rcq);
        for (int k = 0; k < 8; k++) {
            post_recv(&h, k, f.buf, 64, f.mr->lkey);
            post(&g, k, IBV_WR_SEND, SIG, e.buf, 8, e.mr->lkey, 0, 0);
        }
        if (i % 2)
            usleep(1000);
        SUCCEEDS(ibv_destroy_qp(g.qp));
        SUCCEEDS(ibv_destroy_qp(h.qp));
        polling = 0;
        pthread_join(t, NULL);
        pthread_join(t3, NULL);
    }
    /* ERR and RESET while another thread posts and polls */
    {
        struct ibv_wc w;
        while (ibv_poll_cq(e.scq, 1, &w) > 0)
            ;
        pthread_t t3;
        polling = 1;
        pthread_create(&t, NULL, poller, e.scq);
        pthread_create(&t3, NULL, poster, NULL);
        for (int i = 0; i < 10; i++) {
            usleep(5000);
            qp_state(e.qp, IBV_QPS_ERR);
            usleep(1000);
            qp_state(e.qp, IBV_QPS_RESET);
            qp_state(f.qp, IBV_QPS_RESET);
            pair_up(&e, &f, DEF);
        }
        polling = 0;
        pthread_join(t, NULL);
        pthread_join(t3, NULL);
    }
    /* a completion queue that is smaller than the queue overruns while another thread modifies the pair */
    SUCCEEDS(ibv_destroy_qp(e.qp));
    struct ibv_qp_init_attr deep = {.send_cq = e.scq,
                                    .recv_cq = e.rcq,
                                    .cap = {256, 16, 4, 4, 0},
                                    .qp_type = IBV_QPT_RC};
    e.qp = MADE(ibv_create_qp(e.pd, &deep));
    qp_state(f.qp, IBV_QPS_RESET);
    pair_up(&e, &f, DEF);
    for (int i = 0; i < 20; i++) {
        struct ibv_qp_attr a = {.min_rnr_timer = 12};
        polling = 1;
        pthread_create(&t, NULL, poster, NULL);
        while (ibv_modify_qp(e.qp, &a, IBV_QP_MIN_RNR_TIMER) == 0)
            ;
        polling = 0;
        pthread_join(t, NULL);
        struct ibv_wc w;
        while (ibv_poll_cq(e.scq, 1, &w) > 0)
            ;
        qp_state(e.qp, IBV_QPS_RESET);
        qp_state(f.qp, IBV_QPS_RESET);
        pair_up(&e, &f, DEF);
    }
    close(ep);
    return finish();
}
