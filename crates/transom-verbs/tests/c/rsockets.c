/* Sockets of rsocket, as a program uses them: two ends, in two threads or in one. */
#include "common.h"
#include <netinet/tcp.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

static int port;

static struct sockaddr_in at(int p) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(p)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

/* A call that returns -1 with errno. */
#define REFUSES(call, e)                                                                       \
    do {                                                                                       \
        errno = 0;                                                                             \
        long _r = (call);                                                                      \
        int _e = errno;                                                                        \
        CHECK("V137", _r == -1 && _e == (e), "%s returned %ld, errno %d, wanted -1, %d", #call, \
              _r, _e, e);                                                                      \
    } while (0)
#define IS(call, wanted)                                                               \
    do {                                                                               \
        errno = 0;                                                                     \
        long _r = (call), _w = (wanted);                                               \
        CHECK("V137", _r == _w, "%s returned %ld, errno %d, wanted %ld", #call, _r, errno, _w); \
    } while (0)

static int listener(void) {
    int s = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK("V137", s >= 0, "errno %d", errno);
    struct sockaddr_in a = at(0);
    socklen_t l = sizeof a;
    IS(rbind(s, (void *)&a, sizeof a), 0);
    IS(rlisten(s, 8), 0);
    IS(rgetsockname(s, (void *)&a, &l), 0);
    port = ntohs(a.sin_port);
    CHECK("V137", port > 0 && l == sizeof a, "port %d", port);
    return s;
}

static void *connects(void *number) {
    int s = *(int *)number;
    struct sockaddr_in a = at(port);
    IS(rconnect(s, (void *)&a, sizeof a), 0);
    return NULL;
}

/* Two connected ends. Options of both may be set before. */
static void pair_of(int l, int *a, int *b) {
    pthread_t t;
    if (*a < 0)
        *a = rsocket(AF_INET, SOCK_STREAM, 0);
    pthread_create(&t, NULL, connects, a);
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    *b = raccept(l, (void *)&from, &length);
    pthread_join(t, NULL);
    CHECK("V137", *b >= 0, "errno %d", errno);
    struct sockaddr_in peer, own;
    length = sizeof peer;
    IS(rgetpeername(*a, (void *)&peer, &length), 0);
    CHECK("V137", ntohs(peer.sin_port) == port, "%d", ntohs(peer.sin_port));
    length = sizeof own;
    IS(rgetsockname(*a, (void *)&own, &length), 0);
    CHECK("V137", from.sin_addr.s_addr == own.sin_addr.s_addr, "accepted from elsewhere");
}

static int ready(int s, int events, int ms) {
    struct pollfd p = {s, events, 0};
    int n = rpoll(&p, 1, ms);
    return n < 0 ? -1 : n == 0 ? 0 : p.revents;
}

/* Waits until n bytes can be read at once: pieces of a list may arrive one by one. */
static void arrived(int s, size_t n) {
    char seen[64];
    do
        ready(s, POLLIN, -1);
    while (rrecv(s, seen, n, MSG_PEEK) < (ssize_t)n);
}

static unsigned char byte_at(size_t i) {
    return (i * 2654435761u) >> 13;
}
enum { MUCH = 5 << 20 };
struct way {
    int s, chunk;
};
static void *sends(void *of) {
    struct way *w = of;
    unsigned char *all = malloc(MUCH);
    for (size_t i = 0; i < MUCH; i++)
        all[i] = byte_at(i);
    for (size_t i = 0; i < MUCH;) {
        size_t n = i + w->chunk > MUCH ? MUCH - i : (size_t)w->chunk;
        ssize_t done = rsend(w->s, all + i, n, 0);
        CHECK("V137", done == (ssize_t)n, "rsend %zd of %zu, errno %d", done, n, errno);
        if (done <= 0)
            break;
        i += done;
    }
    free(all);
    return NULL;
}
static void receives(int s, int chunk) {
    unsigned char *some = malloc(chunk);
    size_t i = 0, wrong = 0;
    while (i < MUCH) {
        ssize_t done = rrecv(s, some, chunk, 0);
        if (done <= 0) {
            CHECK("V137", 0, "rrecv %zd behind %zu, errno %d", done, i, errno);
            break;
        }
        for (ssize_t k = 0; k < done; k++)
            wrong += some[k] != byte_at(i + k);
        i += done;
    }
    CHECK("V137", wrong == 0, "%zu wrong bytes", wrong);
    free(some);
}

/* Streams in both directions at once, in pieces of many sizes. */
static void streams(int l) {
    int sizes[][2] = {{1 << 20, 1 << 16}, {777, 100000}, {65536, 333}, {MUCH, MUCH}};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int a = -1, b;
        pair_of(l, &a, &b);
        pthread_t t[2];
        struct way w[2] = {{a, sizes[i][0]}, {b, sizes[i][1]}};
        pthread_create(&t[0], NULL, sends, &w[0]);
        receives(b, sizes[i][1]);
        pthread_join(t[0], NULL);
        pthread_create(&t[1], NULL, sends, &w[1]);
        receives(a, sizes[i][0]);
        pthread_join(t[1], NULL);
        IS(rclose(a), 0);
        IS(rclose(b), 0);
    }
}

/* A thread sends and receives on a socket while another does the same on its peer. */
static void *echoes(void *number) {
    int s = *(int *)number;
    char some[5000];
    ssize_t n;
    while ((n = rrecv(s, some, sizeof some, 0)) > 0)
        IS(rsend(s, some, n, 0), n);
    IS(n, 0);
    return NULL;
}
static void both_ways(int l) {
    int a = -1, b;
    pair_of(l, &a, &b);
    pthread_t echo, send;
    struct way w = {a, 40000};
    pthread_create(&echo, NULL, echoes, &b);
    pthread_create(&send, NULL, sends, &w);
    receives(a, 30000);
    pthread_join(send, NULL);
    IS(rshutdown(a, SHUT_WR), 0);
    pthread_join(echo, NULL);
    char c;
    IS(rclose(b), 0);
    IS(rrecv(a, &c, 1, 0), 0);
    IS(rclose(a), 0);
}

static void small_calls(int l) {
    int a = -1, b;
    pair_of(l, &a, &b);
    char got[64] = {0};
    IS(rsend(a, "hello", 5, 0), 5);
    IS(rrecv(b, got, 3, MSG_PEEK), 3);
    IS(rrecv(b, got, sizeof got, 0), 5);
    CHECK("V137", !memcmp(got, "hello", 5), "%.5s", got);
    REFUSES(rrecv(b, got, 1, MSG_DONTWAIT), EAGAIN);
    struct iovec out[3] = {{"ab", 2}, {"", 0}, {"cde", 3}};
    IS(rwritev(a, out, 3), 5);
    char x[1], y[10];
    struct iovec in[2] = {{x, 1}, {y, 10}};
    arrived(b, 5);
    IS(rreadv(b, in, 2), 5);
    CHECK("V137", x[0] == 'a' && !memcmp(y, "bcde", 4), "%.1s%.4s", x, y);
    struct msghdr m = {.msg_iov = out, .msg_iovlen = 3};
    IS(rsendmsg(b, &m, 0), 5);
    m.msg_iov = in, m.msg_iovlen = 2;
    arrived(a, 5);
    IS(rrecvmsg(a, &m, 0), 5);
    IS(rwrite(a, "z", 1), 1);
    IS(rread(b, got, sizeof got), 1);
    IS(rsend(a, got, 0, 0), 0);
    IS(rrecv(b, got, 0, 0), 0);
    IS(rsend(a, "12", 2, 0), 2);
    IS(rsend(a, "34", 2, 0), 2);
    IS(rrecv(b, got, 4, MSG_WAITALL), 4);
    CHECK("V137", !memcmp(got, "1234", 4), "%.4s", got);
    IS(rclose(a), 0);
    IS(rclose(b), 0);
}

/* A side that ends its direction, one that closes, one that dies. */
static void ends(int l) {
    int a = -1, b;
    char c;
    pair_of(l, &a, &b);
    IS(rsend(a, "x", 1, 0), 1);
    IS(rshutdown(a, SHUT_WR), 0);
    REFUSES(rsend(a, "y", 1, 0), EPIPE);
    IS(rrecv(b, &c, 1, 0), 1);
    IS(rrecv(b, &c, 1, 0), 0);
    IS(rsend(b, "z", 1, 0), 1);
    IS(rrecv(a, &c, 1, 0), 1);
    IS(rclose(a), 0);
    CHECK("V137", ready(b, POLLIN, -1) & POLLIN, "the end is not seen");
    IS(rrecv(b, &c, 1, 0), 0);
    double until = now() + 30;
    while (rsend(b, "w", 1, 0) == 1 && now() < until)
        usleep(1000);
    REFUSES(rsend(b, "w", 1, 0), EPIPE);
    IS(rclose(b), 0);
    REFUSES(rclose(b), EBADF);
    REFUSES(rsend(b, "x", 1, 0), EBADF);

    /* Bytes sent before a close arrive although their receiver reads them later. */
    a = -1;
    pair_of(l, &a, &b);
    char much[50000] = {7};
    IS(rsend(a, much, sizeof much, 0), sizeof much);
    IS(rclose(a), 0);
    IS(rrecv(b, much, sizeof much, MSG_WAITALL), sizeof much);
    IS(rrecv(b, much, 1, 0), 0);
    IS(rclose(b), 0);

    /* A process that exits has closed its sockets; one that is killed has not. */
    for (int killed = 0; killed < 2; killed++) {
        int go[2];
        char ok;
        SUCCEEDS(pipe(go));
        pid_t child = fork();
        if (!child) {
            struct sockaddr_in to = at(port);
            int s = rsocket(AF_INET, SOCK_STREAM, 0);
            int r = rconnect(s, (void *)&to, sizeof to);
            if (r == 0 && rsend(s, "bye", 3, 0) == 3)
                r = read(go[0], &ok, 1) != 1;
            exit(r != 0);
        }
        b = raccept(l, NULL, NULL);
        IS(rrecv(b, much, 3, MSG_WAITALL), 3);
        if (killed)
            kill(child, SIGKILL);
        else
            IS(write(go[1], "g", 1), 1);
        if (killed)
            REFUSES(rrecv(b, much, 1, 0), ECONNRESET);
        else
            IS(rrecv(b, much, 1, 0), 0);
        int status;
        waitpid(child, &status, 0);
        CHECK("V137", killed || status == 0, "the child ended with %d", status);
        IS(rclose(b), 0);
        close(go[0]), close(go[1]);
    }
}

static void nonblocking(int l) {
    int a = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), error = -1;
    socklen_t length = sizeof error;
    CHECK("V137", rfcntl(a, F_GETFL) & O_NONBLOCK, "SOCK_NONBLOCK is lost");
    struct sockaddr_in to = at(port);
    /* The listener connects its peers by itself, and may have done so by now. */
    int done = rconnect(a, (void *)&to, sizeof to);
    CHECK("V137", done == 0 || (done == -1 && errno == EINPROGRESS), "%d, errno %d", done, errno);
    CHECK("V137", ready(l, POLLIN, -1) == POLLIN, "no connection to accept");
    int b = raccept(l, NULL, NULL);
    CHECK("V137", ready(a, POLLIN | POLLOUT, -1) == POLLOUT, "not connected");
    IS(rgetsockopt(a, SOL_SOCKET, SO_ERROR, &error, &length), 0);
    IS(error, 0);
    REFUSES(rconnect(a, (void *)&to, sizeof to), EISCONN);
    /* Full, and room again once the peer reads. */
    static char much[1 << 20];
    long sent = 0, n;
    while ((n = rsend(a, much, sizeof much, 0)) > 0 || ready(a, POLLOUT, 200) == POLLOUT)
        sent += n > 0 ? n : 0;
    CHECK("V137", n == -1 && errno == EAGAIN, "%ld, errno %d", n, errno);
    CHECK("V137", sent > 0 && sent <= 4 << 20, "%ld bytes without a reader", sent);
    IS(ready(a, POLLOUT, 0), 0);
    for (long got = 0; got < sent; got += n)
        if ((n = rrecv(b, much, sizeof much, 0)) <= 0) {
            CHECK("V137", 0, "%ld behind %ld", n, got);
            break;
        }
    CHECK("V137", ready(a, POLLOUT, -1) == POLLOUT, "no room");
    /* Sockets beside a plain descriptor, in poll and in select. */
    int plain[2];
    SUCCEEDS(pipe(plain));
    struct pollfd p[3] = {{a, POLLIN, 0}, {plain[0], POLLIN, 0}, {b, POLLIN, 0}};
    IS(rpoll(p, 3, 0), 0);
    IS(write(plain[1], "p", 1), 1);
    IS(rpoll(p, 3, -1), 1);
    CHECK("V137", p[1].revents == POLLIN && !p[0].revents && !p[2].revents, "%d %d %d",
          p[0].revents, p[1].revents, p[2].revents);
    IS(rsend(b, "q", 1, 0), 1);
    CHECK("V137", ready(a, POLLIN, -1) == POLLIN, "nothing came");
    fd_set in, out;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(a, &in);
    FD_SET(b, &in);
    FD_SET(plain[0], &in);
    FD_SET(b, &out);
    IS(rselect(64, &in, &out, NULL, NULL), 3);
    CHECK("V137", FD_ISSET(a, &in) && !FD_ISSET(b, &in) && FD_ISSET(plain[0], &in) && FD_ISSET(b, &out),
          "wrong sets");
    IS(rfcntl(a, F_SETFL, 0), 0);
    IS(rrecv(a, much, 1, 0), 1);
    IS(rclose(a), 0);
    IS(rclose(b), 0);
    REFUSES(raccept(a, NULL, NULL), EBADF);
}

/* A listener connects its peers before the program accepts them, as many as its backlog, so that one thread has both
 * ends (rdma-core, rsockets since version 25). */
static void before_the_accept(void) {
    int l = listener(), first = rsocket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = at(port);
    char c;
    IS(ready(l, POLLIN, 0), 0);
    IS(rfcntl(l, F_SETFL, O_NONBLOCK), 0);
    REFUSES(raccept(l, NULL, NULL), EAGAIN);
    IS(rconnect(first, (void *)&to, sizeof to), 0);
    IS(rsend(first, "early", 5, 0), 5);
    CHECK("V137", ready(l, POLLIN, -1) == POLLIN, "no connection to accept");
    int b = raccept(l, NULL, NULL);
    CHECK("V137", b >= 0 && !(rfcntl(b, F_GETFL) & O_NONBLOCK), "%d: the listener's mode is inherited", b);
    char got[5];
    IS(rrecv(b, got, 5, MSG_WAITALL), 5);
    IS(rclose(b), 0);
    IS(rrecv(first, &c, 1, 0), 0);
    IS(rclose(first), 0);

    /* A connection that is never accepted is reset when its listener is closed. */
    first = rsocket(AF_INET, SOCK_STREAM, 0);
    IS(rconnect(first, (void *)&to, sizeof to), 0);
    CHECK("V137", ready(l, POLLIN, -1) == POLLIN, "no connection to accept");
    IS(rclose(l), 0);
    REFUSES(rrecv(first, &c, 1, 0), ECONNRESET);
    IS(rclose(first), 0);

    /* A backlog of one: the second connection waits until the first one is accepted. */
    l = rsocket(AF_INET, SOCK_STREAM, 0);
    to.sin_port = 0;
    IS(rbind(l, (void *)&to, sizeof to), 0);
    IS(rlisten(l, 1), 0);
    socklen_t length = sizeof to;
    IS(rgetsockname(l, (void *)&to, &length), 0);
    first = rsocket(AF_INET, SOCK_STREAM, 0);
    int second = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    IS(rconnect(first, (void *)&to, sizeof to), 0);
    REFUSES(rconnect(second, (void *)&to, sizeof to), EINPROGRESS);
    IS(ready(second, POLLOUT, 200), 0);
    REFUSES(rsend(second, "x", 1, 0), EAGAIN);
    b = raccept(l, NULL, NULL);
    CHECK("V137", ready(second, POLLOUT, -1) == POLLOUT, "not connected");
    int d = raccept(l, NULL, NULL);
    IS(rsend(second, "2", 1, 0), 1);
    IS(rrecv(d, &c, 1, 0), 1);
    IS(rclose(b), 0);
    IS(rclose(d), 0);
    IS(rclose(first), 0);
    IS(rclose(second), 0);
    IS(rclose(l), 0);
}

static void refusals(void) {
    REFUSES(rsocket(AF_INET, SOCK_DGRAM, 0), EOPNOTSUPP);
    REFUSES(rsocket(AF_UNIX, SOCK_STREAM, 0), EOPNOTSUPP);
    REFUSES(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EOPNOTSUPP);
    int s = rsocket(AF_INET, SOCK_STREAM, IPPROTO_TCP), value = 1;
    char c;
    REFUSES(rrecv(s, &c, 1, 0), ENOTCONN);
    REFUSES(rsend(s, &c, 1, 0), ENOTCONN);
    REFUSES(rshutdown(s, SHUT_WR), ENOTCONN);
    REFUSES(raccept(s, NULL, NULL), EINVAL);
    REFUSES(riomap(s, &c, 1, PROT_WRITE, 0, 0), ENOTCONN);
    REFUSES(rsetsockopt(s, SOL_SOCKET, 9999, &value, sizeof value), ENOPROTOOPT);
    REFUSES(rsetsockopt(s, SOL_SOCKET, SO_SNDBUF, &value, 1), EINVAL);
    socklen_t length = sizeof value;
    IS(rsetsockopt(s, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value), 0);
    IS(rgetsockopt(s, SOL_SOCKET, SO_TYPE, &value, &length), 0);
    IS(value, SOCK_STREAM);
    struct tcp_info info;
    memset(&info, 0xee, sizeof info);
    length = sizeof info;
    IS(rgetsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
    CHECK("V137", info.tcpi_state == TCP_CLOSE && info.tcpi_total_retrans == 0, "%d", info.tcpi_state);
    length = sizeof value;
    /* Nobody listens there: what the system says of such a port. */
    struct sockaddr_in free_port = at(0);
    int probe = socket(AF_INET, SOCK_STREAM, 0);
    SUCCEEDS(bind(probe, (void *)&free_port, sizeof free_port));
    length = sizeof free_port;
    SUCCEEDS(getsockname(probe, (void *)&free_port, &length));
    REFUSES(rconnect(s, (void *)&free_port, sizeof free_port), ECONNREFUSED);
    close(probe);
    IS(rclose(s), 0);
}

/* Memory that the peer writes by offset. */
static void mapped(int l) {
    static char memory[2 << 20], source[1 << 20];
    int a = rsocket(AF_INET, SOCK_STREAM, 0), b, two = 2;
    char c;
    IS(rsetsockopt(a, SOL_RDMA, RDMA_IOMAPSIZE, &two, sizeof two), 0);
    pair_of(l, &a, &b);
    REFUSES(rsetsockopt(a, SOL_RDMA, RDMA_IOMAPSIZE, &two, sizeof two), EINVAL);
    /* The other side has room for none. */
    REFUSES(riomap(a, memory, sizeof memory, PROT_WRITE, 0, 0), ENOMEM);
    REFUSES(riomap(b, memory, sizeof memory, PROT_READ, 0, 0), EINVAL);
    IS(riomap(b, memory, 1 << 20, PROT_WRITE, 0, 4096), 4096);
    IS(riomap(b, memory + (1 << 20), 1 << 20, PROT_WRITE, 0, 1 << 30), 1 << 30);
    REFUSES(riomap(b, memory, 1, PROT_WRITE, 0, 1 << 20), ENOMEM);
    IS(riomap(b, source, 1, PROT_NONE, 0, -1), (long)source);
    IS(riowrite(a, "x", 1, 4096, 0), 0);
    IS(rsend(b, "m", 1, 0), 1);
    IS(rrecv(a, &c, 1, 0), 1);
    for (size_t i = 0; i < sizeof source; i++)
        source[i] = byte_at(i);
    IS(riowrite(a, source, sizeof source, 4096, 0), sizeof source);
    IS(riowrite(a, "end", 3, (1 << 30) + 100, 0), 3);
    IS(riowrite(a, "beyond", 6, 4096 + (1 << 20) - 2, 0), 2);
    IS(riowrite(a, "none", 4, 0, 0), 0);
    IS(rsend(a, "n", 1, 0), 1);
    IS(rrecv(b, &c, 1, 0), 1);
    source[sizeof source - 2] = 'b', source[sizeof source - 1] = 'e';
    CHECK("V137", !memcmp(memory, source, sizeof source), "other bytes");
    CHECK("V137", !memcmp(memory + (1 << 20) + 100, "end", 3), "other bytes");
    CHECK("V137", !memory[(1 << 20) + 99] && !memory[(1 << 20) + 103], "bytes beside");
    IS(riounmap(b, memory, 1 << 20), 0);
    REFUSES(riounmap(b, memory, 1 << 20), EINVAL);
    /* Nothing moves through it any more: the connection ends. */
    riowrite(a, "late", 4, 4096, 0);
    double until = now() + 30;
    while (rsend(a, "w", 1, MSG_DONTWAIT) != -1 && now() < until)
        usleep(1000);
    CHECK("V137", memcmp(memory, "late", 4), "written behind riounmap");
    IS(rclose(a), 0);
    IS(rclose(b), 0);
}

/* A peer that speaks rdma_cm, and not quite the protocol. */
struct peer {
    int introduces;
    uint32_t word;
    int length, connected;
};
static void *misbehaves(void *of) {
    struct peer *p = of;
    struct sockaddr_in to = at(port);
    struct rdma_cm_id *id;
    SUCCEEDS(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
    SUCCEEDS(rdma_resolve_addr(id, NULL, (void *)&to, 2000));
    SUCCEEDS(rdma_resolve_route(id, 2000));
    struct ibv_qp_init_attr a = {
        .cap = {4, 4, 1, 1, 64}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
    SUCCEEDS(rdma_create_qp(id, NULL, &a));
    char intro[40] = {p->introduces, 2, 0, 16};
    intro[23] = 2; /* places for targets */
    struct rdma_conn_param c = {
        .private_data = intro, .private_data_len = sizeof intro, .retry_count = 7, .rnr_retry_count = 7};
    p->connected = rdma_connect(id, &c) == 0;
    CHECK("V137", p->connected || errno == ECONNREFUSED, "errno %d", errno);
    if (p->connected) {
        struct ibv_sge s = {(uintptr_t)&p->word, p->length, 0};
        struct ibv_send_wr w = {
            .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE}, *bad;
        SUCCEEDS(ibv_post_send(id->qp, &w, &bad));
        /* Until the other side has had enough. */
        struct rdma_cm_event *e = NULL;
        rdma_get_cm_event(id->channel, &e);
        CHECK("V137", e && e->event == RDMA_CM_EVENT_DISCONNECTED, "event %d", e ? (int)e->event : -1);
        rdma_ack_cm_event(e);
    }
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
    return NULL;
}
static void hostile(int l) {
    struct {
        struct peer p;
        int error;
    } of[] = {
        {{0, 0, 4}, 0},                         /* another version is refused */
        {{1, 1 << 20, 4}, EPROTO},              /* bytes that it was granted no room for */
        {{1, 1u << 29, 4}, EPROTO},             /* no such word */
        {{1, 7u << 29 | 9, 4}, EPROTO},         /* nor such an end */
        {{1, 0, 3}, EPROTO},                    /* half a word */
        {{1, 4u << 29 | 7, 4}, 0},              /* credits: legal */
    };
    for (unsigned i = 0; i < sizeof of / sizeof *of; i++) {
        pthread_t t;
        char c;
        pthread_create(&t, NULL, misbehaves, &of[i].p);
        int b = -1;
        if (of[i].p.introduces) {
            b = raccept(l, NULL, NULL);
            CHECK("V137", b >= 0, "errno %d", errno);
            if (of[i].error)
                REFUSES(rrecv(b, &c, 1, 0), of[i].error);
            IS(rclose(b), 0);
            pthread_join(t, NULL);
        } else {
            /* Turned away without the program. */
            pthread_join(t, NULL);
            IS(ready(l, POLLIN, 0), 0);
        }
        CHECK("V137", of[i].p.connected == of[i].p.introduces, "case %u", i);
    }
}

int main(void) {
    refusals();
    before_the_accept();
    int l = listener();
    small_calls(l);
    streams(l);
    both_ways(l);
    ends(l);
    nonblocking(l);
    mapped(l);
    hostile(l);
    IS(rclose(l), 0);
    return finish();
}
