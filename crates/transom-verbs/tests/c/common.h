/* Shared by the programs: checks, ends of connections, completions and events. A program counts
 * what deviates, says it, and ends with 1 if anything did. */
#define _GNU_SOURCE
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-variable"
#include <infiniband/verbs.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int failures, checks;
/* A deviation from a rule is counted and said. */
#define CHECK(rule, cond, ...)                                      \
    do {                                                            \
        checks++;                                                   \
        if (!(cond)) {                                              \
            failures++;                                             \
            printf("FAIL %s line %d: %s: ", rule, __LINE__, #cond); \
            printf(__VA_ARGS__);                                    \
            printf("\n");                                           \
            fflush(stdout);                                         \
        }                                                           \
    } while (0)
/* Without this the rest of the program makes no sense. */
#define MADE(x)                                                                                \
    ({                                                                                         \
        typeof(x) _m = (x);                                                                    \
        if (!_m) {                                                                             \
            printf("FATAL line %d: %s errno %d (%s)\n", __LINE__, #x, errno, strerror(errno)); \
            fflush(stdout);                                                                    \
            exit(99);                                                                          \
        }                                                                                      \
        _m;                                                                                    \
    })
#define SUCCEEDS(x)                                                               \
    ({                                                                            \
        errno = 0;                                                                \
        int _z = (x);                                                             \
        if (_z) {                                                                 \
            printf("FATAL line %d: %s = %d errno %d\n", __LINE__, #x, _z, errno); \
            fflush(stdout);                                                       \
            exit(98);                                                             \
        }                                                                         \
        0;                                                                        \
    })
/* A call that fails with a number, which is errno, too. */
#define FAILS(rule, call, e)                                                                      \
    do {                                                                                          \
        errno = 0;                                                                                \
        int _r = (call);                                                                          \
        int _e = errno;                                                                           \
        CHECK(rule, _r == (e) && _e == (e), "%s returned %d, errno %d, wanted %d", #call, _r, _e, \
              e);                                                                                 \
    } while (0)
/* A call that fails with null and errno. */
#define NULLS(rule, call, e)                                                                 \
    do {                                                                                     \
        errno = 0;                                                                           \
        void *_r = (call);                                                                   \
        int _e = errno;                                                                      \
        CHECK(rule, _r == NULL && _e == (e), "%s returned %p, errno %d, wanted null and %d", \
              #call, _r, _e, e);                                                             \
    } while (0)

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* An end of a connection, with all that belongs to it. */
struct end {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_cq *scq, *rcq;
    struct ibv_comp_channel *ch;
    struct ibv_qp *qp;
    struct ibv_srq *srq;
    struct ibv_mr *mr;
    char *buf;
    size_t len;
    union ibv_gid gid;
};
static struct ibv_context *open_dev(void) {
    int n = 0;
    struct ibv_device **l = MADE(ibv_get_device_list(&n));
    if (n < 1) {
        printf("FATAL no device\n");
        exit(97);
    }
    struct ibv_context *c = MADE(ibv_open_device(l[0]));
    ibv_free_device_list(l);
    return c;
}
static struct ibv_qp *new_qp(struct end *e) {
    struct ibv_qp_init_attr a = {.send_cq = e->scq,
                                 .recv_cq = e->rcq,
                                 .srq = e->srq,
                                 .cap = {16, 16, 4, 4, 0},
                                 .qp_type = IBV_QPT_RC};
    return MADE(ibv_create_qp(e->pd, &a));
}
static void open_end(struct end *e, struct ibv_context *c, int access) {
    e->ctx = c ? c : open_dev();
    e->pd = MADE(ibv_alloc_pd(e->ctx));
    e->ch = MADE(ibv_create_comp_channel(e->ctx));
    e->scq = MADE(ibv_create_cq(e->ctx, 63, e, e->ch, 0));
    e->rcq = MADE(ibv_create_cq(e->ctx, 63, e, e->ch, 0));
    e->len = 65536;
    e->buf = mmap(NULL, e->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    e->mr = MADE(ibv_reg_mr(e->pd, e->buf, e->len, access));
    e->srq = NULL;
    SUCCEEDS(ibv_query_gid(e->ctx, 1, 0, &e->gid));
    e->qp = new_qp(e);
}
#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define M_INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define M_RTR                                                                       \
    (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | \
     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define M_RTS                                                                              \
    (IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | \
     IBV_QP_MAX_QP_RD_ATOMIC)
struct tune {
    int access, timeout, retry, rnr, min_rnr, rd, dest_rd;
};
static struct tune DEF = {REMOTE, 14, 7, 7, 12, 4, 4};
static struct ibv_qp_attr a_init(int access) {
    return (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};
}
static struct ibv_qp_attr a_rtr(union ibv_gid gid, uint32_t dest, struct tune t) {
    return (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                                .path_mtu = IBV_MTU_1024,
                                .dest_qp_num = dest,
                                .rq_psn = 0x111,
                                .max_dest_rd_atomic = t.dest_rd,
                                .min_rnr_timer = t.min_rnr,
                                .ah_attr = {.is_global = 1,
                                            .port_num = 1,
                                            .grh = {.dgid = gid, .sgid_index = 0, .hop_limit = 1}}};
}
static struct ibv_qp_attr a_rts(struct tune t) {
    return (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                .timeout = t.timeout,
                                .retry_cnt = t.retry,
                                .rnr_retry = t.rnr,
                                .sq_psn = 0x111,
                                .max_rd_atomic = t.rd};
}
static void qp_init(struct ibv_qp *q, int access) {
    struct ibv_qp_attr a = a_init(access);
    SUCCEEDS(ibv_modify_qp(q, &a, M_INIT));
}
static void qp_rtr(struct ibv_qp *q, union ibv_gid g, uint32_t dest, struct tune t) {
    struct ibv_qp_attr a = a_rtr(g, dest, t);
    SUCCEEDS(ibv_modify_qp(q, &a, M_RTR));
}
static void qp_rts(struct ibv_qp *q, struct tune t) {
    struct ibv_qp_attr a = a_rts(t);
    SUCCEEDS(ibv_modify_qp(q, &a, M_RTS));
}
static void qp_state(struct ibv_qp *q, int s) {
    struct ibv_qp_attr a = {.qp_state = s};
    SUCCEEDS(ibv_modify_qp(q, &a, IBV_QP_STATE));
}
static void qp_up(struct ibv_qp *q, union ibv_gid g, uint32_t dest, struct tune t) {
    qp_init(q, t.access);
    qp_rtr(q, g, dest, t);
    qp_rts(q, t);
}
static void pair_up(struct end *a, struct end *b, struct tune t) {
    qp_up(a->qp, b->gid, b->qp->qp_num, t);
    qp_up(b->qp, a->gid, a->qp->qp_num, t);
}
static int state_of(struct ibv_qp *q) {
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr i;
    memset(&a, 0xee, sizeof a);
    if (ibv_query_qp(q, &a, IBV_QP_STATE, &i))
        return -1;
    return a.qp_state;
}
/* Events that must come are waited for until a machine of any load has had its time, in milliseconds: only a hang takes so
 * long. */
enum { HANG = 300000 };
/* A completion within a time, or none. */
static int poll_one(struct ibv_cq *cq, struct ibv_wc *wc, int ms) {
    double end = now() + ms / 1000.0;
    int n;
    memset(wc, 0xee, sizeof *wc);
    do {
        n = ibv_poll_cq(cq, 1, wc);
        if (n)
            return n;
        usleep(200);
    } while (now() < end);
    return 0;
}
static const char *st(int s) {
    return ibv_wc_status_str(s);
}
#define EXPECT_WC(rule, cq, id, stat)                                                              \
    ({                                                                                             \
        struct ibv_wc _w;                                                                          \
        int _n = poll_one(cq, &_w, HANG);                                                         \
        CHECK(rule, _n == 1, "no completion (%d), wanted id %ld %s", _n, (long)(id), st(stat));    \
        if (_n == 1)                                                                               \
            CHECK(rule, _w.wr_id == (uint64_t)(id) && _w.status == (stat),                         \
                  "id %ld status %s, wanted id %ld %s", (long)_w.wr_id, st(_w.status), (long)(id), \
                  st(stat));                                                                       \
        _w;                                                                                        \
    })
#define EXPECT_NONE(rule, cq, ms)                                                               \
    do {                                                                                        \
        struct ibv_wc _w;                                                                       \
        int _n = poll_one(cq, &_w, ms);                                                         \
        CHECK(rule, _n == 0, "unexpected completion id %ld %s", (long)_w.wr_id, st(_w.status)); \
    } while (0)
static int post_recv(struct end *e, uint64_t id, void *p, uint32_t len, uint32_t key) {
    struct ibv_sge s = {(uintptr_t)p, len, key};
    struct ibv_recv_wr w = {.wr_id = id, .sg_list = &s, .num_sge = 1}, *bad;
    return ibv_post_recv(e->qp, &w, &bad);
}
static int post(struct end *e, uint64_t id, int op, int flags, void *p, uint32_t len, uint32_t lkey,
                uint64_t raddr, uint32_t rkey) {
    struct ibv_sge s = {(uintptr_t)p, len, lkey};
    struct ibv_send_wr w = {.wr_id = id,
                            .sg_list = &s,
                            .num_sge = 1,
                            .opcode = op,
                            .send_flags = flags},
                       *bad;
    w.wr.rdma.remote_addr = raddr;
    w.wr.rdma.rkey = rkey;
    return ibv_post_send(e->qp, &w, &bad);
}
static int async_event(struct ibv_context *c, int ms, struct ibv_async_event *ev) {
    struct pollfd p = {c->async_fd, POLLIN, 0};
    if (poll(&p, 1, ms) <= 0)
        return -1;
    if (ibv_get_async_event(c, ev))
        return -2;
    return ev->event_type;
}
/* Whether a thread of this process waits for something. */
static bool rests(int thread) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    int file = open(path, O_RDONLY);
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = 0;
    char *behind = strrchr(text, ')');
    return behind && behind[2] == 'S';
}
#define SIG IBV_SEND_SIGNALED
static int finish(void) {
    printf("%s: %d checks, %d failures\n", failures ? "DEVIATES" : "HOLDS", checks, failures);
    fflush(stdout);
    return failures != 0;
}
