/* Speed of connections between two processes: speed ROW, a line with one number, better if larger. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SPIN, BLOCK, EPOLL };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void check(int good, const char *what) {
    if (!good) {
        perror(what);
        _exit(1);
    }
}

static struct sockaddr_in at = {.sin_family = AF_INET};

static int listening(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t size = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check(bind(s, (void *)&at, sizeof at) == 0 && listen(s, 1024) == 0, "listen");
    getsockname(s, (void *)&at, &size);
    return s;
}

static int ready(int s, int how) {
    int one = 1;
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (how != BLOCK) fcntl(s, F_SETFL, O_NONBLOCK);
    return s;
}

static int connected(int how) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(s, (void *)&at, sizeof at) == 0, "connect");
    return ready(s, how);
}

/* A set that has `s`, where sets are used: a connection of a set that nobody has waited for stays with TCP. */
static int set_of(int s, int how) {
    if (how != EPOLL) return -1;
    int e = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = s};
    check(epoll_ctl(e, EPOLL_CTL_ADD, s, &event) == 0, "epoll_ctl");
    return e;
}

/* 0 at the end of the stream. */
static int receive(int s, int set, int how, char *to, int size) {
    for (int done = 0; done < size;) {
        ssize_t got = recv(s, to + done, size - done, 0);
        if (got == 0) return 0;
        if (got > 0) { done += got; continue; }
        check(errno == EAGAIN, "recv");
        struct epoll_event event;
        if (how == EPOLL) epoll_wait(set, &event, 1, -1);
    }
    return 1;
}

/* `rounds` round trips of 64 bytes over `active` of `count` connections: per second. */
static double ping_pong(int how, int count, int active, int rounds) {
    int l = listening();
    char bytes[64] = {0};
    pid_t child = fork();
    if (child == 0) {
        if (count == 1) {
            int s = ready(accept(l, 0, 0), how), set = set_of(s, how);
            while (receive(s, set, how, bytes, 64)) send(s, bytes, 64, 0);
            _exit(0);
        }
        int set = epoll_create1(0), open = 0;
        for (int i = 0; i < count; i++, open++) {
            struct epoll_event event = {.events = EPOLLIN, .data.fd = ready(accept(l, 0, 0), how)};
            epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event);
        }
        while (open > 0) {
            struct epoll_event events[64];
            int found = epoll_wait(set, events, 64, -1);
            for (int i = 0; i < found; i++) {
                int s = events[i].data.fd;
                ssize_t got = recv(s, bytes, 64, 0);
                if (got > 0) send(s, bytes, got, 0);
                else if (got == 0 || errno != EAGAIN) { close(s); open--; }
            }
        }
        _exit(0);
    }
    int s[1024], set = how == EPOLL ? epoll_create1(0) : -1;
    for (int i = 0; i < count; i++) {
        s[i] = connected(how);
        struct epoll_event event = {.events = EPOLLIN, .data.fd = s[i]};
        if (set >= 0 && i < active) epoll_ctl(set, EPOLL_CTL_ADD, s[i], &event);
    }
    double begin = 0;
    for (int round = -rounds / 10; round < rounds; round++) {
        if (round == 0) begin = now();
        for (int i = 0; i < active; i++) check(send(s[i], bytes, 64, 0) == 64, "send");
        if (active == 1) check(receive(s[0], set, how, bytes, 64), "end");
        else for (int left = active; left > 0;) {
            struct epoll_event events[64];
            int found = epoll_wait(set, events, 64, -1);
            for (int i = 0; i < found; i++) left -= recv(events[i].data.fd, bytes, 64, 0) == 64;
        }
    }
    double seconds = now() - begin;
    for (int i = 0; i < count; i++) close(s[i]);
    waitpid(child, 0, 0);
    return rounds * active / seconds;
}

/* Sends of 64 KiB: bytes per second, or per second of processor time of both sides. */
static double stream(double size, int per_processor) {
    int l = listening();
    static char bytes[65536];
    pid_t child = fork();
    if (child == 0) {
        int s = accept(l, 0, 0);
        while (recv(s, bytes, sizeof bytes, 0) > 0) {}
        send(s, bytes, 1, 0);
        _exit(0);
    }
    int s = connected(BLOCK);
    double begin = now();
    for (double sent = 0; sent < size; sent += sizeof bytes)
        check(send(s, bytes, sizeof bytes, 0) == sizeof bytes, "send");
    shutdown(s, SHUT_WR);
    check(recv(s, bytes, 1, 0) == 1, "recv");
    double seconds = now() - begin;
    waitpid(child, 0, 0);
    if (per_processor) {
        struct rusage own, others;
        getrusage(RUSAGE_SELF, &own);
        getrusage(RUSAGE_CHILDREN, &others);
        seconds = own.ru_utime.tv_sec + own.ru_stime.tv_sec + others.ru_utime.tv_sec + others.ru_stime.tv_sec
            + (own.ru_utime.tv_usec + own.ru_stime.tv_usec + others.ru_utime.tv_usec + others.ru_stime.tv_usec) * 1e-6;
    }
    return size / seconds;
}

/* Connect, one exchange of a byte, close: connections per second, by the median of their times. */
static int less(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double brief(int count) {
    int l = listening();
    char byte = 1;
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < count; i++) {
            int s = accept(l, 0, 0);
            while (recv(s, &byte, 1, 0) == 1) send(s, &byte, 1, 0);
            close(s);
        }
        _exit(0);
    }
    double *times = malloc(count * sizeof *times);
    for (int i = 0; i < count; i++) {
        double begin = now();
        int s = connected(BLOCK);
        check(send(s, &byte, 1, 0) == 1 && recv(s, &byte, 1, 0) == 1, "exchange");
        close(s);
        times[i] = now() - begin;
    }
    waitpid(child, 0, 0);
    qsort(times, count, sizeof *times, less);
    return 1 / times[count / 2];
}

int main(int count, char **words) {
    const char *row = count > 1 ? words[1] : "";
    double result;
    if (!strcmp(row, "spin")) result = ping_pong(SPIN, 1, 1, 4000);
    else if (!strcmp(row, "block")) result = ping_pong(BLOCK, 1, 1, 20000);
    else if (!strcmp(row, "epoll")) result = ping_pong(EPOLL, 1, 1, 20000);
    else if (!strcmp(row, "many")) result = ping_pong(EPOLL, 1000, 10, 2000);
    else if (!strcmp(row, "short")) result = brief(3000);
    else if (!strcmp(row, "stream")) result = stream(1e9, 0);
    else if (!strcmp(row, "stream-cpu")) result = stream(1e9, 1);
    else return 2;
    printf("%f\n", result);
    return 0;
}
