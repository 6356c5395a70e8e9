/* Connects that are refused: by the program at the other end, at once, and by nobody. The end of one. */
#include "common.h"
#include <rdma/rdma_cma.h>

enum { THREADS = 3, ROUNDS = 100 };
static struct sockaddr_in loopback(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons(port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}
static int port, over, finished;
static long requests;
static pthread_t calling[THREADS];
/* Pauses whoever calls, wherever it is: the answer to a connect may come before the call returns. */
static void pause_here(int signal) {
    int kept = errno;
    usleep(2000);
    errno = kept;
    (void)signal;
}
static void *pauser(void *p) {
    unsigned seed = 1;
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
        for (int i = 0; i < THREADS; i++)
            pthread_kill(calling[i], SIGUSR1);
        usleep(rand_r(&seed) % 3000);
    }
    return p;
}
/* Rejects every request as soon as it is there, and says nothing besides. */
static void *rejecter(void *p) {
    struct rdma_event_channel *channel = p;
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
        struct pollfd fd = {channel->fd, POLLIN, 0};
        if (poll(&fd, 1, 20) != 1)
            continue;
        struct rdma_cm_event *event;
        SUCCEEDS(rdma_get_cm_event(channel, &event));
        CHECK("V121", event->event == RDMA_CM_EVENT_CONNECT_REQUEST, "event %s",
              rdma_event_str(event->event));
        requests++;
        struct rdma_cm_id *id = event->id;
        CHECK("V124", rdma_reject(id, NULL, 0) == 0, "reject errno %d", errno);
        SUCCEEDS(rdma_ack_cm_event(event));
        SUCCEEDS(rdma_destroy_id(id));
    }
    return NULL;
}
/* A synchronous connect to a port: the status of its REJECTED, or -1. */
static int refused(int to) {
    struct rdma_cm_id *id;
    SUCCEEDS(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
    struct sockaddr_in peer = loopback(to);
    SUCCEEDS(rdma_resolve_addr(id, NULL, (void *)&peer, 2000));
    SUCCEEDS(rdma_resolve_route(id, 2000));
    errno = 0;
    int done = rdma_connect(id, NULL);
    CHECK("V111", done == -1 && errno == ECONNREFUSED, "connect %d errno %d", done, errno);
    bool told = id->event && id->event->event == RDMA_CM_EVENT_REJECTED;
    int status = told ? id->event->status : -1;
    if (told) {
        struct rdma_conn_param *seen = &id->event->param.conn;
        CHECK("V126", !seen->responder_resources && !seen->initiator_depth && !seen->retry_count && !seen->qp_num,
              "a rejection has parameters");
    }
    SUCCEEDS(rdma_destroy_id(id));
    return status;
}
static void *caller(void *p) {
    for (int round = 0; round < ROUNDS; round++) {
        int status = refused(port);
        CHECK("V124", status == 28, "rejected by the program: status %d", status);
    }
    __atomic_fetch_add(&finished, 1, __ATOMIC_RELEASE);
    return p;
}
/* An attempt to connect is repeated, and its port is nobody else's between two attempts. */
static void port_is_held(int to) {
    struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
    struct rdma_cm_id *id;
    struct rdma_cm_event *event;
    SUCCEEDS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    struct sockaddr_in peer = loopback(to), own = loopback(0);
    SUCCEEDS(rdma_resolve_addr(id, NULL, (void *)&peer, 2000));
    SUCCEEDS(rdma_resolve_route(id, 2000));
    own.sin_port = rdma_get_src_port(id);
    SUCCEEDS(rdma_connect(id, NULL));
    int seen = -1, tries = 0, taken = 0;
    while (seen != RDMA_CM_EVENT_REJECTED && seen != RDMA_CM_EVENT_UNREACHABLE) {
        struct pollfd fd = {channel->fd, POLLIN, 0};
        if (poll(&fd, 1, 1) == 1) {
            SUCCEEDS(rdma_get_cm_event(channel, &event));
            seen = event->event;
            SUCCEEDS(rdma_ack_cm_event(event));
        } else {
            int other = socket(AF_INET, SOCK_STREAM, 0);
            tries++;
            taken += bind(other, (void *)&own, sizeof own) == 0;
            close(other);
        }
    }
    CHECK("V123", tries > 0 && taken == 0, "taken %d of %d times", taken, tries);
    CHECK("V123", seen == RDMA_CM_EVENT_REJECTED, "event %s", rdma_event_str(seen));
    SUCCEEDS(rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
}
/* A connection within the process: both ids, each with a channel of its own. */
static void connected(struct rdma_cm_id *ids[2], struct rdma_event_channel *channels[2]) {
    struct rdma_cm_id *listener;
    struct rdma_cm_event *event;
    struct sockaddr_in any = loopback(0);
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}}, same = init;
    for (int i = 0; i < 2; i++)
        channels[i] = MADE(rdma_create_event_channel());
    SUCCEEDS(rdma_create_id(channels[1], &listener, NULL, RDMA_PS_TCP));
    SUCCEEDS(rdma_bind_addr(listener, (void *)&any));
    SUCCEEDS(rdma_listen(listener, 0));
    struct sockaddr_in peer = loopback(ntohs(rdma_get_src_port(listener)));
    SUCCEEDS(rdma_create_id(channels[0], &ids[0], NULL, RDMA_PS_TCP));
    SUCCEEDS(rdma_resolve_addr(ids[0], NULL, (void *)&peer, 2000));
    SUCCEEDS(rdma_get_cm_event(channels[0], &event));
    SUCCEEDS(rdma_ack_cm_event(event));
    SUCCEEDS(rdma_resolve_route(ids[0], 2000));
    SUCCEEDS(rdma_get_cm_event(channels[0], &event));
    SUCCEEDS(rdma_ack_cm_event(event));
    SUCCEEDS(rdma_create_qp(ids[0], NULL, &init));
    SUCCEEDS(rdma_connect(ids[0], NULL));
    SUCCEEDS(rdma_get_cm_event(channels[1], &event));
    ids[1] = event->id;
    SUCCEEDS(rdma_ack_cm_event(event));
    SUCCEEDS(rdma_create_qp(ids[1], NULL, &same));
    SUCCEEDS(rdma_accept(ids[1], NULL));
    for (int i = 0; i < 2; i++) {
        SUCCEEDS(rdma_get_cm_event(channels[i], &event));
        CHECK("V121", event->event == RDMA_CM_EVENT_ESTABLISHED, "event %s",
              rdma_event_str(event->event));
        SUCCEEDS(rdma_ack_cm_event(event));
    }
    SUCCEEDS(rdma_destroy_id(listener));
}
static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}
/* DISCONNECTED does not overtake the completion of what was sent before: a program that destroys its
 * queue pair when the peer leaves would lose it. It does come if nobody polls. */
static void the_last_completion_comes_first(bool polls) {
    struct rdma_event_channel *channels[2];
    struct rdma_cm_id *ids[2];
    struct rdma_cm_event *event;
    struct ibv_wc wc;
    connected(ids, channels);
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;
    struct ibv_send_wr send = {.wr_id = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED},
                       *bad_send;
    SUCCEEDS(ibv_post_recv(ids[1]->qp, &receive, &bad_receive));
    SUCCEEDS(ibv_post_send(ids[0]->qp, &send, &bad_send));
    while (ibv_poll_cq(ids[1]->recv_cq, 1, &wc) == 0)
        ;
    CHECK("V88", wc.status == IBV_WC_SUCCESS, "status %d", wc.status);
    double left = seconds();
    SUCCEEDS(rdma_disconnect(ids[1]));
    if (polls) {
        struct pollfd fd = {channels[0]->fd, POLLIN, 0};
        bool early = poll(&fd, 1, 300) == 1 && seconds() - left < 0.9;
        CHECK("V130", !early, "DISCONNECTED before the program has polled");
        /* The answer may still be on its way on a busy machine. */
        EXPECT_WC("V80", ids[0]->send_cq, 2, IBV_WC_SUCCESS);
    }
    SUCCEEDS(rdma_get_cm_event(channels[0], &event));
    CHECK("V130", event->event == RDMA_CM_EVENT_DISCONNECTED, "event %s",
          rdma_event_str(event->event));
    SUCCEEDS(rdma_ack_cm_event(event));
    for (int i = 0; i < 2; i++) {
        rdma_destroy_qp(ids[i]);
        SUCCEEDS(rdma_destroy_id(ids[i]));
        rdma_destroy_event_channel(channels[i]);
    }
}
static void expect_event(struct rdma_event_channel *channel, struct rdma_cm_id *id, int wanted) {
    struct rdma_cm_event *event;
    SUCCEEDS(rdma_get_cm_event(channel, &event));
    CHECK("V130", (int)event->event == wanted && event->id == id, "event %s", rdma_event_str(event->event));
    SUCCEEDS(rdma_ack_cm_event(event));
}
/* TIMEWAIT_EXIT comes behind the program's own disconnect, be it the first or the answer to the peer's, and once. */
static void exits(void) {
    struct rdma_event_channel *channels[2];
    struct rdma_cm_id *ids[2];
    connected(ids, channels);
    for (int i = 1; i >= 0; i--) {
        if (i == 0)
            expect_event(channels[0], ids[0], RDMA_CM_EVENT_DISCONNECTED);
        double left = seconds();
        SUCCEEDS(rdma_disconnect(ids[i]));
        SUCCEEDS(rdma_disconnect(ids[i]));
        if (i == 1)
            expect_event(channels[1], ids[1], RDMA_CM_EVENT_DISCONNECTED);
        expect_event(channels[i], ids[i], RDMA_CM_EVENT_TIMEWAIT_EXIT);
        CHECK("V130", seconds() - left > 0.9, "it came of the peer's");
    }
    for (int i = 0; i < 2; i++) {
        struct pollfd fd = {channels[i]->fd, POLLIN, 0};
        CHECK("V130", poll(&fd, 1, 0) == 0, "another event");
        rdma_destroy_qp(ids[i]);
        SUCCEEDS(rdma_destroy_id(ids[i]));
        rdma_destroy_event_channel(channels[i]);
    }
}
/* An event that the peer's end raises looks at no queue pair: ibv_destroy_qp leaves the id's pointer to one that
 * is gone, whose memory may be anything by now. */
static void destroyed_queue_pair(void) {
    struct rdma_event_channel *channels[2];
    struct rdma_cm_id *ids[2];
    connected(ids, channels);
    SUCCEEDS(rdma_disconnect(ids[1]));
    struct ibv_qp *gone = ids[0]->qp;
    SUCCEEDS(ibv_destroy_qp(gone));
    void *blocks[3 * 256];
    for (int i = 0; i < 3 * 256; i++)
        blocks[i] = MADE(calloc(1, 16 * (1 + i / 3)));
    expect_event(channels[0], ids[0], RDMA_CM_EVENT_DISCONNECTED);
    for (int i = 0; i < 3 * 256; i++)
        free(blocks[i]);
    ids[0]->qp = NULL;
    rdma_destroy_qp(ids[1]);
    for (int i = 0; i < 2; i++) {
        SUCCEEDS(rdma_destroy_id(ids[i]));
        rdma_destroy_event_channel(channels[i]);
    }
}
/* A synchronous disconnect behind the peer's own takes the DISCONNECTED that is there; another has none. */
static void synchronous_end(void) {
    struct rdma_event_channel *channels[2];
    struct rdma_cm_id *ids[2];
    connected(ids, channels);
    SUCCEEDS(rdma_migrate_id(ids[0], NULL));
    SUCCEEDS(rdma_disconnect(ids[1]));
    struct pollfd fd = {ids[0]->channel->fd, POLLIN, 0};
    CHECK("V130", poll(&fd, 1, HANG) == 1, "no event");
    for (int i = 0; i < 2; i++) {
        SUCCEEDS(rdma_disconnect(ids[0]));
        struct rdma_cm_event *event = ids[0]->event;
        CHECK("V111", event && event->event == RDMA_CM_EVENT_DISCONNECTED, "event %s",
              event ? rdma_event_str(event->event) : "none");
    }
    for (int i = 0; i < 2; i++) {
        rdma_destroy_qp(ids[i]);
        SUCCEEDS(rdma_destroy_id(ids[i]));
        rdma_destroy_event_channel(channels[i]);
    }
}
/* A thread that asks a channel which another one has destroyed does not end its process. */
static void *asks_too_late(void *channel) {
    struct rdma_cm_event *event;
    _exit(rdma_get_cm_event(channel, &event) ? 1 : 2);
}
static void destroyed_channel(void) {
    pid_t child = fork();
    if (!child) {
        struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
        pthread_t late;
        rdma_destroy_event_channel(channel);
        pthread_create(&late, NULL, asks_too_late, channel);
        usleep(200000); /* time to fail in */
        exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    CHECK("V147", status == 0, "the process ended with %x", status);
}
/* The event that comes next is acknowledged; its id is the caller's. */
static struct rdma_cm_id *next_of(struct rdma_event_channel *channel, int expected) {
    struct rdma_cm_event *event;
    SUCCEEDS(rdma_get_cm_event(channel, &event));
    CHECK("V121", event->event == expected, "event %s", rdma_event_str(event->event));
    struct rdma_cm_id *id = event->id;
    SUCCEEDS(rdma_ack_cm_event(event));
    return id;
}
/* A listener that is destroyed leaves its port at once, also with a request that has just come. */
static void port_is_left(void) {
    struct rdma_event_channel *serving = MADE(rdma_create_event_channel());
    struct rdma_event_channel *asking = MADE(rdma_create_event_channel());
    /* A socket that shares the port keeps it from other programs that ask for any. */
    struct sockaddr_in at = loopback(0);
    int taken = 0, on = 1, held = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof at;
    SUCCEEDS(setsockopt(held, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    SUCCEEDS(bind(held, (void *)&at, length));
    SUCCEEDS(getsockname(held, (void *)&at, &length));
    for (int round = 0; round < 3 * ROUNDS; round++) {
        struct rdma_cm_id *listener, *id, *request;
        SUCCEEDS(rdma_create_id(serving, &listener, NULL, RDMA_PS_TCP));
        if (rdma_bind_addr(listener, (void *)&at)) {
            CHECK("V119", errno == EADDRINUSE, "bind errno %d", errno);
            taken++;
            SUCCEEDS(rdma_destroy_id(listener));
            continue;
        }
        SUCCEEDS(rdma_listen(listener, 0));
        SUCCEEDS(rdma_create_id(asking, &id, NULL, RDMA_PS_TCP));
        SUCCEEDS(rdma_resolve_addr(id, NULL, (void *)&at, 2000));
        next_of(asking, RDMA_CM_EVENT_ADDR_RESOLVED);
        SUCCEEDS(rdma_resolve_route(id, 2000));
        next_of(asking, RDMA_CM_EVENT_ROUTE_RESOLVED);
        SUCCEEDS(rdma_connect(id, NULL));
        request = next_of(serving, RDMA_CM_EVENT_CONNECT_REQUEST);
        SUCCEEDS(rdma_destroy_id(listener));
        struct rdma_cm_id *again;
        SUCCEEDS(rdma_create_id(serving, &again, NULL, RDMA_PS_TCP));
        taken += rdma_bind_addr(again, (void *)&at) != 0;
        SUCCEEDS(rdma_destroy_id(again));
        SUCCEEDS(rdma_destroy_id(request));
        SUCCEEDS(rdma_destroy_id(id));
    }
    CHECK("V119", taken == 0, "the port was taken %d times", taken);
    close(held);
    rdma_destroy_event_channel(serving);
    rdma_destroy_event_channel(asking);
}
int main(void) {
    destroyed_channel();
    exits();
    destroyed_queue_pair();
    synchronous_end();
    port_is_left();
    the_last_completion_comes_first(true);
    the_last_completion_comes_first(false);
    struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
    struct rdma_cm_id *listener;
    SUCCEEDS(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
    struct sockaddr_in any = loopback(0);
    SUCCEEDS(rdma_bind_addr(listener, (void *)&any));
    SUCCEEDS(rdma_listen(listener, 0));
    port = ntohs(rdma_get_src_port(listener));
    struct sigaction pausing = {.sa_handler = pause_here, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &pausing, NULL);
    pthread_t serving, disturbing;
    pthread_create(&serving, NULL, rejecter, channel);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&calling[i], NULL, caller, NULL);
    pthread_create(&disturbing, NULL, pauser, NULL);
    while (__atomic_load_n(&finished, __ATOMIC_ACQUIRE) < THREADS)
        usleep(1000);
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    pthread_join(disturbing, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(calling[i], NULL);
    pthread_join(serving, NULL);
    CHECK("V123", requests == THREADS * ROUNDS, "%ld requests of %d connects", requests,
          THREADS * ROUNDS);
    SUCCEEDS(rdma_destroy_id(listener));
    rdma_destroy_event_channel(channel);
    /* A port that is bound, and at which nobody listens. */
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    any = loopback(0);
    SUCCEEDS(bind(fd, (void *)&any, sizeof any));
    socklen_t length = sizeof any;
    SUCCEEDS(getsockname(fd, (void *)&any, &length));
    int status = refused(ntohs(any.sin_port));
    CHECK("V124", status == 8, "nobody listens: status %d", status);
    port_is_held(ntohs(any.sin_port));
    close(fd);
    return finish();
}
