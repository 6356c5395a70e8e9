/* Threads that are cancelled while they sleep in calls of sockets: each ends there, by its handlers, and the connection
   goes on. With cancellation off a thread sleeps on. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
static const char *names[] = {"recv", "read", "readv", "recvmsg", "recv of all", "poll", "poll of two", "select", "epoll_wait", "send", "write", "splice", "read of a pipe", "off"};
static int c, s, set, pipes[2];
static volatile pid_t thread;
static char much[32 << 20];
static void cleans(void *which) { printf("%s: cleaned, ", (char *)which); }
static void *waits(void *which) {
    char bytes[99];
    struct iovec vector = {bytes, 9};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    struct pollfd both[] = {{s, POLLIN, 0}, {pipes[0], POLLIN, 0}};
    struct epoll_event event;
    fd_set reads;
    long got = 0;
    pthread_cleanup_push(cleans, which);
    thread = syscall(SYS_gettid);
    FD_ZERO(&reads);
    FD_SET(s, &reads);
    if (which == names[0]) got = recv(s, bytes, 1, 0);
    if (which == names[1]) got = read(s, bytes, 1);
    if (which == names[2]) got = readv(s, &vector, 1);
    if (which == names[3]) got = recvmsg(s, &message, 0);
    if (which == names[4]) got = recv(s, bytes, 9, MSG_WAITALL);
    if (which == names[5]) got = poll(both, 1, -1);
    if (which == names[6]) got = poll(both, 2, -1);
    if (which == names[7]) got = select(s + 1, &reads, 0, 0, 0);
    if (which == names[8]) got = epoll_wait(set, &event, 1, -1);
    if (which == names[9]) for (;;) send(s, much, sizeof much, 0);
    if (which == names[10]) for (;;) write(s, much, sizeof much);
    if (which == names[11]) got = splice(s, 0, pipes[1], 0, 9, 0);
    if (which == names[12]) got = read(pipes[0], bytes, 9);
    if (which == names[13]) {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, 0);
        got = recv(s, bytes, 9, 0);
        printf("%s: %ld, ", (char *)which, got);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, 0);
        got = recv(s, bytes, 9, 0);
    }
    printf("%s: returned %ld, ", (char *)which, got);
    pthread_cleanup_pop(0);
    return 0;
}
/* The thread sleeps. */
static void await(void) {
    char name[64], text[512];
    for (char state = 0; state != 'S';) {
        snprintf(name, sizeof name, "/proc/self/task/%d/stat", thread);
        int file = open(name, O_RDONLY);
        long n = read(file, text, sizeof text - 1);
        close(file);
        text[n > 0 ? n : 0] = 0;
        char *at = strrchr(text, ')');
        state = at ? at[2] : 0;
    }
}
/* More threads that sleep at once than the library has places for at first. */
enum { MANY = 1100 };
static pid_t numbers[MANY];
static void *waits_for_nothing(void *number) {
    struct epoll_event event;
    __atomic_store_n((pid_t *)number, syscall(SYS_gettid), __ATOMIC_RELEASE);
    epoll_wait(set, &event, 1, -1);
    return 0;
}
static int cancel_many(void) {
    static pthread_t threads[MANY];
    int cancelled = 0;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    set = epoll_create1(0);
    for (int i = 0; i < MANY; i++)
        if (pthread_create(&threads[i], &small, waits_for_nothing, &numbers[i])) return printf("no threads\n"), 0;
    for (int i = 0; i < MANY; i++) {
        while (!(thread = __atomic_load_n(&numbers[i], __ATOMIC_ACQUIRE))) sched_yield();
        await();
    }
    for (int i = 0; i < MANY; i++) pthread_cancel(threads[i]);
    for (int i = 0; i < MANY; i++) {
        void *result;
        pthread_join(threads[i], &result);
        cancelled += result == PTHREAD_CANCELED;
    }
    printf("%d cancelled\n", cancelled);
    return 0;
}
int main(int count, char **words) {
    if (count > 1) return cancel_many();
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    char byte;
    int l = socket(AF_INET, SOCK_STREAM, 0);
    bind(l, (void *)&at, size); listen(l, 5); getsockname(l, (void *)&at, &size);
    setbuf(stdout, 0);
    /* Connections that are switched, and young ones. */
    for (int turns = 45; turns >= 0; turns -= 45) for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        pthread_t one;
        void *result;
        if (pipe(pipes)) return 1;
        c = socket(AF_INET, SOCK_STREAM, 0);
        connect(c, (void *)&at, size); s = accept(l, 0, 0);
        for (int t = 0; t < turns; t++) { send(c, "x", 1, 0); recv(s, &byte, 1, 0); send(s, "y", 1, 0); recv(c, &byte, 1, 0); }
        set = epoll_create1(0);
        struct epoll_event event = {EPOLLIN, {0}};
        epoll_ctl(set, EPOLL_CTL_ADD, s, &event);
        thread = 0;
        pthread_create(&one, 0, waits, (void *)names[i]);
        while (!thread);
        /* For some time: what sleeps on a word first sleeps in the kernel then. */
        for (int t = 0; t < (i % 2 ? 1 : 100); t++) { usleep(1000); await(); }
        pthread_cancel(one);
        if (i == 13) send(c, "some", 4, 0);
        pthread_join(one, &result);
        printf("%s", result == PTHREAD_CANCELED ? "cancelled" : "ended");
        /* The end comes once no call holds the connection. */
        close(s);
        while (recv(c, much, sizeof much, 0) > 0);
        printf(", the end\n");
        close(c); close(set); close(pipes[0]); close(pipes[1]);
    }
}
