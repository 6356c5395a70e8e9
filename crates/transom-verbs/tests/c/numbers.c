/* Numbers of queue pairs and what lies behind them, messages that are too long, and threads that rest. */
#include <dirent.h>

#include "common.h"
/* How many TCP sockets of this network namespace have a local port and a state. */
static int sockets(int port, int state) {
    static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
    int found = 0;
    for (int i = 0; i < 2; i++) {
        char line[512];
        unsigned own, is;
        FILE *f = fopen(tables[i], "r");
        while (f && fgets(line, sizeof line, f))
            if (sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x", &own, &is) == 2)
                found += own == (unsigned)port && is == (unsigned)state;
        if (f)
            fclose(f);
    }
    return found;
}
enum { ESTABLISHED = 1, LISTENS = 10 };
/* How often the other threads of this process have gone to sleep. */
static long sleeps(void) {
    DIR *tasks = MADE(opendir("/proc/self/task"));
    long all = 0;
    for (struct dirent *d; (d = readdir(tasks));) {
        char path[300], line[256];
        if (d->d_name[0] == '.' || atoi(d->d_name) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", d->d_name);
        FILE *f = fopen(path, "r");
        long n;
        while (f && fgets(line, sizeof line, f))
            if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1)
                all += n;
        if (f)
            fclose(f);
    }
    closedir(tasks);
    return all;
}
static void numbers(void) {
    struct end e;
    struct ibv_qp *more[300];
    bool seen[256] = {false};
    int ports = 1;
    open_end(&e, NULL, ALL);
    int port = e.qp->qp_num >> 8;
    CHECK("V73", sockets(port, LISTENS) > 0, "nothing listens at port %d", port);
    seen[e.qp->qp_num & 255] = true;
    for (int i = 0; i < 300; i++) {
        more[i] = new_qp(&e);
        uint32_t n = more[i]->qp_num;
        CHECK("V73", n >> 24 == 0 && (n & 255) != 0, "number %x", n);
        if ((int)(n >> 8) == port) {
            CHECK("V73", !seen[n & 255], "number %x twice", n);
            seen[n & 255] = true;
        } else if (ports == 1) {
            int taken = 0;
            for (int k = 1; k < 256; k++)
                taken += seen[k];
            CHECK("V73", taken == 255, "another port after %d numbers", taken);
            CHECK("V73", sockets(n >> 8, LISTENS) > 0, "nothing listens at port %d", n >> 8);
            ports++;
        }
    }
    CHECK("V73", ports == 2, "301 queue pairs at one port");
    for (int i = 0; i < 300; i++)
        SUCCEEDS(ibv_destroy_qp(more[i]));
    SUCCEEDS(ibv_close_device(e.ctx));
}
static void who_connects(void) {
    bool tcp = strcmp(getenv("TRANSOM_PATH"), "tcp") == 0;
    for (int later = 0; later < 2; later++) {
        struct end a, b;
        open_end(&a, NULL, ALL);
        open_end(&b, NULL, ALL);
        if (a.qp->qp_num > b.qp->qp_num) {
            struct end t = a;
            a = b;
            b = t;
        }
        int to = b.qp->qp_num >> 8, from = a.qp->qp_num >> 8;
        if (later)
            qp_up(b.qp, a.gid, a.qp->qp_num, DEF);
        qp_up(a.qp, b.gid, b.qp->qp_num, DEF);
        if (!later) {
            /* The smaller number does not wait for the other side. */
            double until = now() + HANG / 1000;
            while (tcp && !sockets(to, ESTABLISHED) && now() < until)
                usleep(1000);
            qp_up(b.qp, a.gid, a.qp->qp_num, DEF);
        }
        SUCCEEDS(post_recv(&b, 1, b.buf, 64, b.mr->lkey));
        SUCCEEDS(post(&a, 2, IBV_WR_SEND, SIG, a.buf, 8, a.mr->lkey, 0, 0));
        EXPECT_WC("V74", a.scq, 2, IBV_WC_SUCCESS);
        EXPECT_WC("V74", b.rcq, 1, IBV_WC_SUCCESS);
        /* Where the larger number was first, it may have lost patience on a busy machine. */
        if (tcp && !later) {
            CHECK("V74", sockets(to, ESTABLISHED) > 0, "no connection at port %d", to);
            CHECK("V74", sockets(from, ESTABLISHED) == 0, "a connection at port %d", from);
        }
        SUCCEEDS(ibv_close_device(a.ctx));
        SUCCEEDS(ibv_close_device(b.ctx));
    }
}
static void too_long(void) {
    struct end a, b;
    struct ibv_port_attr port;
    open_end(&a, NULL, ALL);
    open_end(&b, NULL, ALL);
    pair_up(&a, &b, DEF);
    SUCCEEDS(ibv_query_port(a.ctx, 1, &port));
    size_t most = port.max_msg_sz;
    /* Nothing of it is ever touched. */
    char *much = mmap(NULL, most + 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK("V90", much != MAP_FAILED, "no %zu bytes of addresses", most);
    struct ibv_mr *mr = MADE(ibv_reg_mr(a.pd, much, most + 4096, ALL));
    struct ibv_sge parts[2] = {{(uintptr_t)much, most, mr->lkey},
                               {(uintptr_t)much + most, 1, mr->lkey}};
    struct ibv_send_wr w = {.wr_id = 7,
                            .sg_list = parts,
                            .num_sge = 2,
                            .opcode = IBV_WR_RDMA_WRITE,
                            .send_flags = SIG,
                            .wr.rdma = {(uintptr_t)b.buf, b.mr->rkey}},
                       *bad;
    memset(b.buf, 0x5a, 64);
    SUCCEEDS(ibv_post_send(a.qp, &w, &bad));
    EXPECT_WC("V90", a.scq, 7, IBV_WC_LOC_LEN_ERR);
    CHECK("V90", b.buf[0] == 0x5a && b.buf[63] == 0x5a, "bytes of a refused Write came");
    CHECK("V92", state_of(a.qp) == IBV_QPS_ERR, "state %d", state_of(a.qp));
    SUCCEEDS(ibv_close_device(a.ctx));
    SUCCEEDS(ibv_close_device(b.ctx));
    munmap(much, most + 4096);
}
/* Neither side calls anything while bytes move: the target watches memory, the requester sleeps in epoll. */
static void progress(void) {
    struct end a, b;
    open_end(&a, NULL, ALL);
    open_end(&b, NULL, ALL);
    pair_up(&a, &b, DEF);
    SUCCEEDS(ibv_req_notify_cq(a.scq, 0));
    a.buf[0] = 'w';
    SUCCEEDS(post(&a, 1, IBV_WR_RDMA_WRITE, SIG, a.buf, 1, a.mr->lkey, (uintptr_t)b.buf,
                  b.mr->rkey));
    int set = MADE(epoll_create1(0));
    struct epoll_event e = {.events = EPOLLIN};
    SUCCEEDS(epoll_ctl(set, EPOLL_CTL_ADD, a.ch->fd, &e));
    CHECK("V102", epoll_wait(set, &e, 1, HANG) == 1, "no event without a call");
    double until = now() + HANG / 1000;
    while (*(volatile char *)b.buf != 'w' && now() < until)
        ;
    CHECK("V102", b.buf[0] == 'w', "no byte came");
    struct ibv_cq *cq;
    void *context;
    SUCCEEDS(ibv_get_cq_event(a.ch, &cq, &context));
    ibv_ack_cq_events(cq, 1);
    EXPECT_WC("V102", a.scq, 1, IBV_WC_SUCCESS);
    close(set);
    SUCCEEDS(ibv_close_device(a.ctx));
    SUCCEEDS(ibv_close_device(b.ctx));
}
static void rest(void) {
    struct end e;
    open_end(&e, NULL, ALL);
    qp_init(e.qp, REMOTE);
    long before, after = sleeps();
    /* The work of the calls above ends first. */
    for (int i = 0; i < 20; i++) {
        before = after;
        usleep(500000);
        after = sleeps();
        if (after == before)
            break;
    }
    CHECK("V103", after == before, "threads wake up without a connection: %ld times", after - before);
    SUCCEEDS(ibv_close_device(e.ctx));
}
int main(void) {
    numbers();
    who_connects();
    too_long();
    progress();
    rest();
    return finish();
}
