/* Makes sequences of calls from seeds, and prints what each call did: its result, the state of the queue pairs,
 * completions in the order of their queue, events, and a sum of the bytes in memory. Nothing is printed that an
 * adapter may choose, such as keys, numbers and addresses, so two adapters that agree print the same.
 *
 *   differ KIND DEVICE GID-INDEX FIRST-SEED COUNT
 *
 * KIND is rc, uc, ud or cm. Both ends of a connection are objects of one process. Two threads, or of cm eight
 * processes, work side by side, each on sequences of its own. Choices depend on the seed alone, never on results. */
#define _GNU_SOURCE
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 2, PROCESSES = 8 }; /* connections are waited for, most of the time; and librdmacm dies of threads */

__thread int step;
__thread FILE *out;
struct ibv_context *context;
union ibv_gid gid;
int gid_index;

static __thread uint64_t state;
static uint64_t number(void) { /* splitmix64 */
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
uint32_t any(uint32_t below) { return (uint32_t)(number() % below); }
int one_in(uint32_t n) { return any(n) == 0; }
void fill(void *bytes, size_t length) {
    for (size_t at = 0; at + 8 <= length; at += 8) {
        uint64_t some = number();
        memcpy((char *)bytes + at, &some, 8);
    }
}
uint64_t sum_of(const void *bytes, size_t length) {
    uint64_t sum = 14695981039346656037u;
    for (size_t at = 0; at < length; at++) sum = (sum ^ ((const uint8_t *)bytes)[at]) * 1099511628211u;
    return sum;
}

void say(const char *format, ...) {
    va_list list;
    va_start(list, format);
    fprintf(out, "%d ", step);
    vfprintf(out, format, list);
    fputc('\n', out);
    va_end(list);
}
const char *name(int error) { return error ? strerrorname_np(error < 0 ? -error : error) : "ok"; }
const char *made(const void *object) { return object ? "ok" : name(errno); }
uint64_t milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

const char *kind_of(const struct ibv_wc *wc) {
    switch (wc->opcode) {
    case IBV_WC_SEND: return "SEND";
    case IBV_WC_RDMA_WRITE: return "WRITE";
    case IBV_WC_RDMA_READ: return "READ";
    case IBV_WC_COMP_SWAP: return "SWAP";
    case IBV_WC_FETCH_ADD: return "ADD";
    case IBV_WC_BIND_MW: return "BIND";
    case IBV_WC_LOCAL_INV: return "INV";
    case IBV_WC_RECV: return "RECV";
    case IBV_WC_RECV_RDMA_WITH_IMM: return "RECV_WRITE";
    default: return "other";
    }
}

/* ---- asynchronous events ------------------------------------------------------------------------------- */

static pthread_mutex_t hearing = PTHREAD_MUTEX_INITIALIZER;

void hear(void) {
    struct ibv_async_event event;
    pthread_mutex_lock(&hearing);
    while (!ibv_get_async_event(context, &event)) {
        struct news *news = NULL;
        switch (event.event_type) {
        case IBV_EVENT_CQ_ERR: news = event.element.cq->cq_context; break;
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_SRQ_LIMIT_REACHED: news = event.element.srq->srq_context; break;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_COMM_EST:
        case IBV_EVENT_SQ_DRAINED:
        case IBV_EVENT_PATH_MIG:
        case IBV_EVENT_PATH_MIG_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED: news = event.element.qp->qp_context; break;
        default: break;
        }
        if (news) news->counts[event.event_type]++;
        ibv_ack_async_event(&event);
    }
    pthread_mutex_unlock(&hearing);
}

void say_news(struct news *news, const char *of) {
    pthread_mutex_lock(&hearing);
    for (unsigned type = 0; type < sizeof news->counts / sizeof *news->counts; type++)
        if (news->counts[type]) say(" event of %s: %s", of, ibv_event_type_str(type));
    memset(news, 0, sizeof *news);
    pthread_mutex_unlock(&hearing);
}

/* ---- threads ------------------------------------------------------------------------------------------- */

static const char *kind;
static uint64_t next, end, stride = 1;
static int turn; /* of processes: a file of each one's own, which it locks to print */
static pthread_mutex_t taking = PTHREAD_MUTEX_INITIALIZER;

static void *sequences(void *nothing) {
    (void)nothing;
    for (;;) {
        pthread_mutex_lock(&taking);
        uint64_t seed = next;
        next += stride;
        pthread_mutex_unlock(&taking);
        if (seed >= end) return NULL;
        char *text = NULL;
        size_t length;
        out = open_memstream(&text, &length);
        state = seed;
        state = number(); /* neighbours have nothing in common */
        step = 0;
        if (!strcmp(kind, "cm")) connections();
        else if (!strcmp(kind, "ud")) datagrams();
        else connected(!strcmp(kind, "uc") ? IBV_QPT_UC : IBV_QPT_RC);
        fclose(out);
        pthread_mutex_lock(&taking);
        flock(turn, LOCK_EX);
        printf("seed %llu\n%s", (unsigned long long)seed, text);
        fflush(stdout);
        flock(turn, LOCK_UN);
        pthread_mutex_unlock(&taking);
        free(text);
    }
}

int main(int count, char **words) {
    if (count < 6) return 2;
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    kind = words[1];
    gid_index = atoi(words[3]);
    next = strtoull(words[4], NULL, 0);
    end = next + strtoull(words[5], NULL, 0);
    int processes = !strcmp(kind, "cm"), own = 0;
    if (processes) {
        for (stride = PROCESSES; own < PROCESSES; own++)
            if (!fork()) break;
        if (own == PROCESSES) {
            int ended, wrong = 0;
            while (wait(&ended) > 0) wrong |= ended;
            return wrong ? 1 : 0;
        }
        next += (uint64_t)own;
    }
    turn = open(words[0], O_RDONLY);
    int devices;
    struct ibv_device **list = ibv_get_device_list(&devices);
    for (int i = 0; i < devices; i++)
        if (!strcmp(ibv_get_device_name(list[i]), words[2])) context = ibv_open_device(list[i]);
    if (!context || ibv_query_gid(context, 1, gid_index, &gid)) {
        fprintf(stderr, "%s: no such device, or no such GID\n", words[2]);
        return 2;
    }
    fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
    pthread_t threads[THREADS];
    int some = processes ? 1 : THREADS;
    for (int i = 0; i < some; i++)
        if (pthread_create(&threads[i], NULL, sequences, NULL)) return 2;
    for (int i = 0; i < some; i++) pthread_join(threads[i], NULL);
    return 0;
}
