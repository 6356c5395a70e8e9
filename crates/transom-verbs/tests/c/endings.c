/* A thread destroys an object while another one is inside a call about it or its neighbour. The call is made
 * instruction by instruction: at one of them, another one each time, the other thread destroys, until it is
 * done or waits. Memory that is freed meanwhile is kept and filled, and looked at when both are done. */
#include "common.h"
#include <malloc.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <ucontext.h>

/* ---- memory that is freed ------------------------------------------------------------------- */

extern void __libc_free(void *block);
#define FILL 0xA5
static bool keeping;
static void *kept[4096];
/* Blocks that are kept, and threads that are keeping one: those of the library free at any time. */
static int kept_count, at_it;
void free(void *block) {
    __atomic_fetch_add(&at_it, 1, __ATOMIC_SEQ_CST);
    bool keeps = block && __atomic_load_n(&keeping, __ATOMIC_SEQ_CST);
    if (keeps) {
        memset(block, FILL, malloc_usable_size(block));
        int at = __atomic_fetch_add(&kept_count, 1, __ATOMIC_SEQ_CST);
        if (at < 4096)
            kept[at] = block;
    }
    __atomic_fetch_sub(&at_it, 1, __ATOMIC_SEQ_CST);
    if (!keeps)
        __libc_free(block);
}
/* Keep no more; whether nothing has written to what was freed. */
static bool untouched(void) {
    __atomic_store_n(&keeping, false, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&at_it, __ATOMIC_SEQ_CST))
        sched_yield();
    bool same = true;
    int count = kept_count < 4096 ? kept_count : 4096;
    for (int i = 0; i < count; i++) {
        unsigned char *bytes = kept[i];
        for (size_t at = 0; at < malloc_usable_size(bytes); at++)
            same &= bytes[at] == FILL;
        __libc_free(bytes);
    }
    kept_count = 0;
    return same;
}

/* ---- two threads ---------------------------------------------------------------------------- */

/* The single step flag of this thread. */
#define STEPS(change)                                                            \
    asm volatile("lea -128(%%rsp), %%rsp; pushfq; " change ", (%%rsp); popfq; "  \
                 "lea 128(%%rsp), %%rsp" ::: "cc", "memory")
static long left, steps;
static sem_t begin;
static void (*destroy)(void);
static int destroyer, done;
static bool begun(void) {
    return __atomic_load_n(&done, __ATOMIC_SEQ_CST) > 0;
}
static bool destroyed(void) {
    return __atomic_load_n(&done, __ATOMIC_SEQ_CST) > 1;
}
static void *destroys(void *unused) {
    __atomic_store_n(&destroyer, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    while (sem_wait(&begin) == 0) {
        __atomic_store_n(&done, 1, __ATOMIC_SEQ_CST);
        destroy();
        __atomic_store_n(&done, 2, __ATOMIC_SEQ_CST);
    }
    return unused;
}
/* Let the other thread destroy, until it is done or rests. */
static void let_destroy(void) {
    sem_post(&begin);
    for (int times = 0; !destroyed() && times < 20; sched_yield())
        times = begun() && rests(destroyer) ? times + 1 : 0;
}
static void on_step(int signal, siginfo_t *about, void *stopped) {
    int error = errno;
    steps++;
    if (left-- == 0) {
        let_destroy();
        ((ucontext_t *)stopped)->uc_mcontext.gregs[REG_EFL] &= ~0x100; // the rest at once
    }
    errno = error;
}
struct pair {
    const char *rule, *name;
    void (*prepare)(void), (*call)(void), (*settle)(void), (*destroy)(void), (*clear)(void);
};
static long at;
/* Make the call once, with the other thread's part behind `point` instructions; how many there were. */
static long once(const struct pair *p, long point) {
    at = point;
    p->prepare();
    destroy = p->destroy;
    steps = done = 0;
    left = point;
    __atomic_store_n(&keeping, true, __ATOMIC_SEQ_CST);
    STEPS("orq $0x100");
    p->call();
    STEPS("andq $~0x100");
    if (left >= 0)
        let_destroy();
    p->settle();
    while (!destroyed())
        sched_yield();
    CHECK(p->rule, untouched(), "%s: freed memory is written to, at %ld", p->name, at);
    p->clear();
    return steps;
}
static void nothing(void) {
}
/* At how many instructions of a call the other thread destroys: fewer in a longer call. */
static void try(const struct pair *p) {
    once(p, 1L << 40);
    long whole = once(p, 1L << 40), points = 300000 / (whole + 1), stride;
    stride = whole / (points > 60 ? 60 : points < 20 ? 20 : points) + 1;
    for (long point = 0; point < whole; point += stride)
        once(p, point);
}
static void readable(int fd) {
    struct pollfd wanted = {fd, POLLIN, 0};
    SUCCEEDS(poll(&wanted, 1, HANG) != 1);
    SUCCEEDS(fcntl(fd, F_SETFL, O_NONBLOCK));
}

/* ---- completion events ---------------------------------------------------------------------- */

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static char bytes[4096];
static union ibv_gid gid;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq, *found;
static void *found_context;
static int result;
static struct ibv_qp *queue_pair(struct ibv_cq *cq, struct ibv_srq *srq) {
    struct ibv_qp_init_attr attr = {
        .send_cq = cq, .recv_cq = cq, .srq = srq, .cap = {4, 4, 1, 1}, .qp_type = IBV_QPT_RC};
    return MADE(ibv_create_qp(pd, &attr));
}
static void flushed(void) {
    cq = MADE(ibv_create_cq(context, 15, bytes, channel, 0));
    struct ibv_qp *qp = queue_pair(cq, NULL);
    qp_init(qp, 0);
    struct ibv_recv_wr wr = {.wr_id = 1}, *bad;
    SUCCEEDS(ibv_post_recv(qp, &wr, &bad));
    SUCCEEDS(ibv_req_notify_cq(cq, 0));
    qp_state(qp, IBV_QPS_ERR);
    readable(channel->fd);
    SUCCEEDS(ibv_destroy_qp(qp));
}
static void get_cq_event(void) {
    result = ibv_get_cq_event(channel, &found, &found_context);
}
static void ack_cq_event(void) {
    ibv_ack_cq_events(found, 1);
}
static void settle_cq(void) {
    if (result)
        return;
    CHECK("V36", !destroyed(), "a queue ends before its event is acknowledged, at %ld", at);
    CHECK("V36", found == cq && found_context == bytes, "event of %p, not %p, at %ld", found, cq, at);
    if (!destroyed())
        ack_cq_event();
}
static void destroy_cq(void) {
    SUCCEEDS(ibv_destroy_cq(cq));
}
static void flushed_and_fetched(void) {
    flushed();
    get_cq_event();
    SUCCEEDS(result);
}

/* ---- asynchronous events -------------------------------------------------------------------- */

static struct ibv_qp *qp;
static struct ibv_srq *srq;
static struct ibv_async_event event;
static void drained(void) {
    cq = MADE(ibv_create_cq(context, 15, NULL, NULL, 0));
    qp = queue_pair(cq, NULL);
    qp_up(qp, gid, qp->qp_num, DEF);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
    SUCCEEDS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
    readable(context->async_fd);
}
static void limit_reached(void) {
    struct ibv_srq_init_attr attr = {.attr = {4, 1, 0}};
    srq = MADE(ibv_create_srq(pd, &attr));
    struct ibv_srq_attr limit = {.srq_limit = 2};
    SUCCEEDS(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
    cq = MADE(ibv_create_cq(context, 15, NULL, NULL, 0));
    qp = queue_pair(cq, srq);
    qp_up(qp, gid, qp->qp_num, DEF);
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;
    for (int i = 0; i < 2; i++)
        SUCCEEDS(ibv_post_srq_recv(srq, &receive, &bad_receive));
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .send_flags = SIG}, *bad;
    SUCCEEDS(ibv_post_send(qp, &send, &bad));
    struct ibv_wc wc;
    for (int i = 0; i < 2; i++)
        CHECK("V59", poll_one(cq, &wc, HANG) == 1 && !wc.status, "no completion");
    readable(context->async_fd);
    SUCCEEDS(ibv_destroy_qp(qp));
    destroy_cq();
}
static void get_async_event(void) {
    result = ibv_get_async_event(context, &event);
}
static void ack_async_event(void) {
    ibv_ack_async_event(&event);
}
static void settle_async(void) {
    if (result)
        return;
    CHECK("V36", !destroyed(), "an object ends before its event is acknowledged, at %ld", at);
    if (!destroyed())
        ack_async_event();
}
static void destroy_qp(void) {
    SUCCEEDS(ibv_destroy_qp(qp));
}
static void destroy_srq(void) {
    SUCCEEDS(ibv_destroy_srq(srq));
}
static void drained_and_fetched(void) {
    drained();
    get_async_event();
    SUCCEEDS(result);
}
static void limit_reached_and_fetched(void) {
    limit_reached();
    get_async_event();
    SUCCEEDS(result);
}

/* ---- events of ids -------------------------------------------------------------------------- */

static struct rdma_event_channel *channels[2], *other;
static struct rdma_cm_id *listener, *ids[2];
static struct rdma_cm_event *cm_event;
static struct ibv_cq *cm_cq;
static struct rdma_cm_id *fetched(int i, int kind) {
    struct rdma_cm_event *event;
    struct pollfd wanted = {channels[i]->fd, POLLIN, 0};
    SUCCEEDS(poll(&wanted, 1, HANG) != 1);
    SUCCEEDS(rdma_get_cm_event(channels[i], &event));
    CHECK("V130", (int)event->event == kind, "event %s", rdma_event_str(event->event));
    struct rdma_cm_id *id = event->id;
    SUCCEEDS(rdma_ack_cm_event(event));
    return id;
}
static void add_queue_pair(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr attr = {
        .send_cq = cm_cq, .recv_cq = cm_cq, .cap = {4, 4, 1, 1}, .qp_type = IBV_QPT_RC};
    SUCCEEDS(rdma_create_qp(id, NULL, &attr));
}
/* ids[0] has asked for a connection; its queue pair is `qp`. */
static void asked(void) {
    struct sockaddr_in address = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
    for (int i = 0; i < 2; i++)
        channels[i] = MADE(rdma_create_event_channel());
    SUCCEEDS(rdma_create_id(channels[1], &listener, NULL, RDMA_PS_TCP));
    SUCCEEDS(rdma_bind_addr(listener, (struct sockaddr *)&address));
    SUCCEEDS(rdma_listen(listener, 4));
    address.sin_port = rdma_get_src_port(listener);
    SUCCEEDS(rdma_create_id(channels[0], &ids[0], NULL, RDMA_PS_TCP));
    SUCCEEDS(rdma_resolve_addr(ids[0], NULL, (struct sockaddr *)&address, 2000));
    fetched(0, RDMA_CM_EVENT_ADDR_RESOLVED);
    SUCCEEDS(rdma_resolve_route(ids[0], 2000));
    fetched(0, RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (!cm_cq)
        cm_cq = MADE(ibv_create_cq(ids[0]->verbs, 63, NULL, NULL, 0));
    add_queue_pair(ids[0]);
    qp = ids[0]->qp;
    struct rdma_conn_param parameters = {.retry_count = 7};
    SUCCEEDS(rdma_connect(ids[0], &parameters));
    readable(channels[1]->fd);
}
static void answered(void) {
    asked();
    ids[1] = fetched(1, RDMA_CM_EVENT_CONNECT_REQUEST);
    add_queue_pair(ids[1]);
    struct rdma_conn_param parameters = {.retry_count = 7};
    SUCCEEDS(rdma_accept(ids[1], &parameters));
    readable(channels[0]->fd);
}
static void refused(void) {
    asked();
    ids[1] = fetched(1, RDMA_CM_EVENT_CONNECT_REQUEST);
    SUCCEEDS(rdma_reject(ids[1], NULL, 0));
    readable(channels[0]->fd);
}
static void left_by_peer(void) {
    answered();
    fetched(0, RDMA_CM_EVENT_ESTABLISHED);
    fetched(1, RDMA_CM_EVENT_ESTABLISHED);
    SUCCEEDS(rdma_disconnect(ids[1]));
    readable(channels[0]->fd);
    other = MADE(rdma_create_event_channel());
}
static void get_request(void) {
    result = rdma_get_cm_event(channels[1], &cm_event);
}
static void get_cm_event(void) {
    result = rdma_get_cm_event(channels[0], &cm_event);
}
static void settle_cm(void) {
    if (result)
        return;
    CHECK("V119", !destroyed(), "an id ends, or goes, before its event is acknowledged, at %ld", at);
    struct rdma_cm_id *id = cm_event->id;
    bool request = cm_event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
    if (!destroyed())
        SUCCEEDS(rdma_ack_cm_event(cm_event));
    if (request)
        SUCCEEDS(rdma_destroy_id(id));
}
static void settle_state(void) {
    if (!result)
        SUCCEEDS(rdma_ack_cm_event(cm_event));
}
static void destroy_listener(void) {
    SUCCEEDS(rdma_destroy_id(listener));
    listener = NULL;
}
static void destroy_id(void) {
    SUCCEEDS(rdma_destroy_id(ids[0]));
    ids[0] = NULL;
}
static void migrate(void) {
    SUCCEEDS(rdma_migrate_id(ids[0], other));
}
static void destroy_qp_of_id(void) {
    destroy_qp();
    qp = NULL;
}
static void clear_ids(void) {
    if (qp)
        destroy_qp();
    if (ids[1] && ids[1]->qp)
        rdma_destroy_qp(ids[1]);
    struct rdma_cm_id *all[] = {ids[0], ids[1], listener};
    for (int i = 0; i < 3; i++)
        if (all[i])
            SUCCEEDS(rdma_destroy_id(all[i]));
    for (int i = 0; i < 2; i++)
        rdma_destroy_event_channel(channels[i]);
    if (other)
        rdma_destroy_event_channel(other);
    ids[1] = NULL;
    other = NULL;
}

/* ---- threads that are canceled -------------------------------------------------------------- */

static void *fetches_cq_event(void *unused) {
    get_cq_event();
    return unused;
}
static void *fetches_async_event(void *unused) {
    get_async_event();
    return unused;
}
static void *fetches_cm_event(void *channel) {
    rdma_get_cm_event(channel, &cm_event);
    return channel;
}
/* A thread that waits for an event ends where it is canceled, as in a read. */
static void canceled(void) {
    struct rdma_event_channel *empty = MADE(rdma_create_event_channel());
    void *(*fetches[])(void *) = {fetches_cq_event, fetches_async_event, fetches_cm_event};
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        SUCCEEDS(pthread_create(&thread, NULL, fetches[i], empty));
        SUCCEEDS(pthread_cancel(thread));
        struct timespec limit;
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += 20;
        void *value = NULL;
        int joined = pthread_timedjoin_np(thread, &value, &limit);
        CHECK("V98", !joined && value == PTHREAD_CANCELED, "fetch %d: join %d, %p", i, joined, value);
    }
    rdma_destroy_event_channel(empty);
}

static const struct pair pairs[] = {
    {"V36", "get_cq_event, destroy_cq", flushed, get_cq_event, settle_cq, destroy_cq, nothing},
    {"V36", "ack_cq_events, destroy_cq", flushed_and_fetched, ack_cq_event, nothing, destroy_cq,
     nothing},
    {"V36", "get_async_event, destroy_qp", drained, get_async_event, settle_async, destroy_qp,
     destroy_cq},
    {"V36", "ack_async_event, destroy_qp", drained_and_fetched, ack_async_event, nothing, destroy_qp,
     destroy_cq},
    {"V36", "get_async_event, destroy_srq", limit_reached, get_async_event, settle_async,
     destroy_srq, nothing},
    {"V36", "ack_async_event, destroy_srq", limit_reached_and_fetched, ack_async_event, nothing,
     destroy_srq, nothing},
    {"V119", "CONNECT_REQUEST, destroy_id", asked, get_request, settle_cm, destroy_listener,
     clear_ids},
    {"V119", "REJECTED, destroy_id", refused, get_cm_event, settle_cm, destroy_id, clear_ids},
    {"V119", "DISCONNECTED, destroy_id", left_by_peer, get_cm_event, settle_cm, destroy_id,
     clear_ids},
    {"V118", "DISCONNECTED, migrate_id", left_by_peer, get_cm_event, settle_cm, migrate, clear_ids},
    {"V124", "REJECTED, ibv_destroy_qp", refused, get_cm_event, settle_state, destroy_qp_of_id,
     clear_ids},
};
int main(void) {
    context = open_dev();
    pd = MADE(ibv_alloc_pd(context));
    mr = MADE(ibv_reg_mr(pd, bytes, sizeof bytes, ALL));
    SUCCEEDS(ibv_query_gid(context, 1, 0, &gid));
    channel = MADE(ibv_create_comp_channel(context));
    canceled();
    sem_init(&begin, 0, 0);
    pthread_t thread;
    SUCCEEDS(pthread_create(&thread, NULL, destroys, NULL));
    while (!__atomic_load_n(&destroyer, __ATOMIC_SEQ_CST))
        sched_yield();
    struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_RESTART | SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        try(&pairs[i]);
    return finish();
}
