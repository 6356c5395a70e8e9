/* The peer ends while this end looks at its TCP socket: the kernel reads the state of a socket, then waits for its
   lock, and then reads the counts. A thread that peeks at a doorbell, into a page which is not there, has the lock. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
static int c, s;
static volatile pid_t reader;
static volatile int over;
static char *page, answer[99];
static long past(long n, long a, long b, long d, long e) {
    register long r10 __asm__("r10") = e, r8 __asm__("r8") = 0, r9 __asm__("r9") = 0;
    __asm__ volatile("syscall" : "+a"(n) : "D"(a), "S"(b), "d"(d), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return n;
}
/* Past the library: has the lock of the TCP socket for as long as the page is not there. */
static void *holder(void *none) { past(SYS_recvfrom, c, (long)page, 1, MSG_PEEK); return none; }
static void *receives(void *none) {
    char byte;
    reader = syscall(SYS_gettid);
    long got = recv(c, &byte, 1, 0);
    snprintf(answer, sizeof answer, "%ld %s", got, got < 0 ? strerror(errno) : "the end");
    over = 1;
    return none;
}
static int state(pid_t thread) {
    char name[64], text[512] = "";
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", thread);
    int file = open(name, O_RDONLY);
    long n = read(file, text, sizeof text - 1);
    close(file);
    char *at = n > 0 ? strrchr(text, ')') : 0;
    return at ? at[2] : 0;
}
int main(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    char byte;
    int faults = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register range = {{(long)page, 4096}, UFFDIO_REGISTER_MODE_MISSING, 0};
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &range)) {
        return puts("SKIPPED") < 0;
    }
    int l = socket(AF_INET, SOCK_STREAM, 0);
    c = socket(AF_INET, SOCK_STREAM, 0);
    bind(l, (void *)&at, size); listen(l, 5); getsockname(l, (void *)&at, &size);
    connect(c, (void *)&at, size); s = accept(l, 0, 0);
    for (int i = 0; i < 45; i++) { send(c, "x", 1, 0); recv(s, &byte, 1, 0); send(s, "y", 1, 0); recv(c, &byte, 1, 0); }
    /* A poll of two that finds nothing has asked for a doorbell, and the byte's read leaves it in the TCP socket. */
    struct pollfd both[] = {{c, POLLIN, 0}, {l, POLLIN, 0}};
    poll(both, 2, 1);
    send(s, "z", 1, 0); recv(c, &byte, 1, 0);
    int doorbells = 0;
    past(SYS_ioctl, c, FIONREAD, (long)&doorbells, 0);
    if (doorbells == 0) return puts("no doorbell") < 0;
    pthread_t one, other;
    pthread_create(&one, 0, holder, 0);
    struct uffd_msg told;
    if (read(faults, &told, sizeof told) != sizeof told) return 1;
    shutdown(s, SHUT_WR);
    pthread_create(&other, 0, receives, 0);
    /* The reader waits for the lock, and has read that the connection is established. */
    int waits = 0;
    while (!waits && !over) waits = reader && state(reader) == 'D';
    close(s);
    struct uffdio_zeropage zeros = {.range = {(long)page, 4096}};
    ioctl(faults, UFFDIO_ZEROPAGE, &zeros);
    pthread_join(other, 0);
    shutdown(c, SHUT_WR);
    pthread_join(one, 0);
    printf("%s, %s\n", answer, waits ? "seen while looking" : "seen without a look");
}
