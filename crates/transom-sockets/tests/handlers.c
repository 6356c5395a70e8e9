// Calls that a handler of a signal may make (signal-safety(7)), while the interrupted thread is within malloc: a call
// that takes memory from malloc there would wait for its own thread. Prints each call that did, and "done".
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void __libc_free(void *);
static volatile int within, allocated;
static int l, c, s, one, set, pipes[2];
static struct sockaddr_in at = {.sin_family = AF_INET};
static socklen_t size = sizeof at;
static char bytes[64];

static void enter(void) {
    if (within) allocated = 1;
    else if (one >= 0) { within = 1; raise(SIGUSR1); within = 0; }
}
void *malloc(size_t n) { enter(); return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { enter(); return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { enter(); return __libc_realloc(p, n); }
void free(void *p) { if (within) allocated = 1; __libc_free(p); }

static long turn(void) { return send(c, "x", 1, 0) + recv(s, bytes, 1, 0) + send(s, "y", 1, 0) + recv(c, bytes, 1, 0); }
static long call_poll(void) {
    struct pollfd fds[70];
    for (int i = 0; i < 70; i++) fds[i] = (struct pollfd){i % 2 ? pipes[0] : s, POLLIN, 0};
    return poll(fds, 70, 0) + poll(fds, 1, 0) + ppoll(fds, 40, &(struct timespec){0, 0}, NULL);
}
static long call_select(void) {
    fd_set fds; FD_ZERO(&fds); FD_SET(s, &fds); FD_SET(pipes[0], &fds);
    struct timeval now = {0, 0};
    long n = select(s + 1, &fds, NULL, NULL, &now);
    FD_ZERO(&fds); FD_SET(c, &fds);
    return n + pselect(c + 1, NULL, &fds, NULL, &(struct timespec){0, 0}, NULL);
}
static long call_send(void) {
    struct iovec parts[2] = {{"ab", 2}, {"c", 1}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    return send(c, "1", 1, 0) + sendto(c, "2", 1, 0, NULL, 0) + write(c, "3", 1) + writev(c, parts, 2) + sendmsg(c, &message, 0);
}
static long call_receive(void) {
    struct iovec parts[2] = {{bytes, 2}, {bytes + 2, 1}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    return recv(s, bytes, 1, 0) + recvfrom(s, bytes, 1, 0, NULL, NULL) + read(s, bytes, 1) + readv(s, parts, 2) + recvmsg(s, &message, 0);
}
static long call_socket(void) {
    int a = socket(AF_INET, SOCK_STREAM, 0), b = socket(AF_INET, SOCK_STREAM, 0), n = bind(a, (void *)&(struct sockaddr_in){.sin_family = AF_INET}, size);
    struct sockaddr_in to; socklen_t length = size;
    n += listen(a, 5) + getsockname(a, (void *)&to, &length) + connect(b, (void *)&to, size);
    int d = accept(a, NULL, NULL), e = dup(d), f = dup2(e, 100), g = fcntl(f, F_DUPFD, 101), flags = fcntl(g, F_GETFL);
    n += write(b, "x", 1) + read(g, bytes, 1) + (flags == O_RDWR) + shutdown(g, SHUT_WR) + read(b, bytes, 1);
    return n + close(a) + close(b) + close(d) + close(e) + close(f) + close(g);
}
static long call_options(void) {
    int on = 1; socklen_t length = sizeof on;
    return setsockopt(c, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) + getsockopt(s, SOL_SOCKET, SO_ERROR, &on, &length) + on;
}
static long call_set(void) {
    struct epoll_event event = {EPOLLIN, {.u64 = 7}}, got[4];
    int other = epoll_create1(0);
    long n = epoll_ctl(other, EPOLL_CTL_ADD, s, &event) + epoll_wait(other, got, 4, 0) + epoll_wait(set, got, 4, 0);
    return n + epoll_ctl(other, EPOLL_CTL_DEL, s, NULL) + close(other);
}
static long call_turns(void) { long n = 0; for (int i = 0; i < 40; i++) n += turn(); return n; }
static long call_fork(void) {
    pid_t child = fork();
    if (child == 0) { close(dup(c)); _exit(poll(&(struct pollfd){s, POLLIN, 0}, 1, 0)); }
    int status = -1; waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static const struct { const char *name; long (*call)(void); } calls[] = {
    {"poll", call_poll}, {"select", call_select}, {"send", call_send}, {"receive", call_receive}, {"socket", call_socket},
    {"options", call_options}, {"set", call_set}, {"turns", call_turns}, {"fork", call_fork}, {"turns again", call_turns},
    {"poll", call_poll}, {"select", call_select}, {"send", call_send}, {"receive", call_receive}, {"set", call_set}, {"fork", call_fork},
};
static volatile long result;
static void handler(int number) { int kept = errno; result = calls[one].call(); errno = kept; (void)number; }

int main(void) {
    one = -1;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    l = socket(AF_INET, SOCK_STREAM, 0); c = socket(AF_INET, SOCK_STREAM, 0);
    bind(l, (void *)&at, size); listen(l, 5); getsockname(l, (void *)&at, &size); connect(c, (void *)&at, size); s = accept(l, NULL, NULL);
    if (pipe(pipes)) return 1;
    set = epoll_create1(0);
    epoll_ctl(set, EPOLL_CTL_ADD, s, &(struct epoll_event){EPOLLIN, {.u64 = 5}});
    signal(SIGUSR1, handler);
    for (int round = 0; round < 3; round++)
        for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
            one = i; allocated = 0;
            void *volatile p = malloc(10);
            one = -1;
            free(p);
            char line[100];
            int n = snprintf(line, sizeof line, "%s: %ld%s\n", calls[i].name, result, allocated ? ", takes memory" : "");
            if (write(1, line, n) != n) return 1;
        }
    puts("done");
}
