/* Two processes talk through a network plugin of NCCL, as NCCL's proxy threads do, in memory of the host: each listens,
 * hands its handle to the other, connects and accepts, and sends 400 messages of 1 byte to 4 MiB, eight at a time. Every
 * byte is compared.
 *
 * nccl-net LIBRARY TABLE VERSION     such as libnccl-net.so ncclNetPlugin_v8 8; versions 8 to 12 of the interface */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOST_MEMORY = 1, SLOTS = 8, MESSAGES = 400, LARGEST = 4 << 20, HANDLE = 128 };

/* The beginning of the table of functions. From version 9 on sizes are size_t, from 10 on connections have settings and
 * requests a parent, from 11 on the network has a context. */
static struct {
    const char *name;
    int (*init)();
    int (*devices)(int *);
    int (*properties)(int, void *);
    int (*listen)(), (*connect)(), (*accept)(void *, void **, void **);
    int (*reg)(void *, void *, size_t, int, void **);
    void *reg_dmabuf;
    int (*dereg)(void *, void *);
    int (*send)(), (*recv)(), (*flush)();
    int (*test)(void *, int *, int *);
    int (*close_send)(void *), (*close_recv)(void *), (*close_listen)(void *);
} *net;

static int version, who;
static void *context, *listen_comm, *send_comm, *recv_comm;

#define MUST(call)                                                      \
    do {                                                                \
        int _r = (call);                                                \
        if (_r) {                                                       \
            fprintf(stderr, "side %d: %s: %d\n", who, #call, _r);       \
            exit(1);                                                    \
        }                                                               \
    } while (0)

static void says(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
    va_list list;
    (void)flags, (void)file, (void)line;
    if (level > 2) /* beyond warnings */
        return;
    va_start(list, format);
    fprintf(stderr, "side %d: ", who);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
}

static int profiler(void **handle, int kind, void *parent, int64_t id, void *data) {
    (void)handle, (void)kind, (void)parent, (void)id, (void)data;
    return 0;
}

static void begin(int out, int in) {
    char mine[HANDLE] = {0}, theirs[HANDLE];
    void *properties[64] = {0}, *device;
    int settings[8] = {-1}, devices = 0;
    MUST(version >= 11   ? net->init(&context, (uint64_t)4711, settings, says, profiler)
         : version == 10 ? net->init(says, profiler)
                         : net->init(says));
    MUST(net->devices(&devices));
    MUST(devices < 1);
    MUST(net->properties(0, properties));
    fprintf(stderr, "side %d: %s, device %s\n", who, net->name, (char *)properties[0]);
    MUST(version >= 11 ? net->listen(context, 0, mine, &listen_comm) : net->listen(0, mine, &listen_comm));
    MUST(write(out, mine, HANDLE) != HANDLE || read(in, theirs, HANDLE) != HANDLE);
    while (!send_comm || !recv_comm) {
        device = NULL;
        if (!send_comm)
            MUST(version >= 11   ? net->connect(context, 0, theirs, &send_comm, &device)
                 : version == 10 ? net->connect(0, settings, theirs, &send_comm, &device)
                                 : net->connect(0, theirs, &send_comm, &device));
        device = NULL;
        if (!recv_comm)
            MUST(net->accept(listen_comm, &recv_comm, &device));
    }
}

static unsigned char byte(int from, int message, size_t at) {
    return from * 91 + message * 7 + at * 13 + (at >> 11);
}

static size_t size_of(int message) {
    static const size_t sizes[] = {1, 8, 100, 4096, 65536, 65537, 1 << 20, LARGEST};
    return sizes[message % 8];
}

static void check(int message, const unsigned char *bytes, int size) {
    size_t wanted = size_of(message), at = 0;
    while (at < wanted && bytes[at] == byte(!who, message, at))
        at++;
    if ((size_t)size != wanted || at != wanted || bytes[wanted] != 0xee) {
        fprintf(stderr, "side %d: message %d of %d bytes instead of %zu differs at %zu\n", who, message, size, wanted, at);
        exit(1);
    }
}

static void run(void) {
    unsigned char *out[SLOTS], *in[SLOTS];
    void *out_key[SLOTS], *in_key[SLOTS], *sends[SLOTS], *recvs[SLOTS], *parent = NULL;
    int offered = 0, sent = 0, asked = 0, received = 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        MUST(posix_memalign((void **)&out[slot], 4096, LARGEST + 1) || posix_memalign((void **)&in[slot], 4096, LARGEST + 1));
        MUST(net->reg(send_comm, out[slot], LARGEST, HOST_MEMORY, &out_key[slot]));
        MUST(net->reg(recv_comm, in[slot], LARGEST, HOST_MEMORY, &in_key[slot]));
    }
    while (sent < MESSAGES || received < MESSAGES) {
        int done = 0, size = 0;
        if (asked < MESSAGES && asked - received < SLOTS) {
            int slot = asked % SLOTS, tag = 0, narrow = LARGEST;
            size_t wide = LARGEST;
            void *data = in[slot];
            memset(in[slot], 0xee, size_of(asked) + 1);
            recvs[slot] = NULL;
            MUST(version >= 10  ? net->recv(recv_comm, 1, &data, &wide, &tag, &in_key[slot], &parent, &recvs[slot])
                 : version == 9 ? net->recv(recv_comm, 1, &data, &wide, &tag, &in_key[slot], &recvs[slot])
                                : net->recv(recv_comm, 1, &data, &narrow, &tag, &in_key[slot], &recvs[slot]));
            asked += recvs[slot] != NULL;
        }
        if (offered < MESSAGES && offered - sent < SLOTS) {
            int slot = offered % SLOTS;
            size_t length = size_of(offered);
            for (size_t at = 0; at < length; at++)
                out[slot][at] = byte(who, offered, at);
            sends[slot] = NULL;
            MUST(version >= 10  ? net->send(send_comm, out[slot], length, 0, out_key[slot], parent, &sends[slot])
                 : version == 9 ? net->send(send_comm, out[slot], length, 0, out_key[slot], &sends[slot])
                                : net->send(send_comm, out[slot], (int)length, 0, out_key[slot], &sends[slot]));
            offered += sends[slot] != NULL;
        }
        if (sent < offered)
            MUST(net->test(sends[sent % SLOTS], &done, &size));
        sent += done;
        done = 0;
        if (received < asked)
            MUST(net->test(recvs[received % SLOTS], &done, &size));
        if (done)
            check(received, in[received % SLOTS], size);
        received += done;
    }
    for (int slot = 0; slot < SLOTS; slot++) {
        MUST(net->dereg(send_comm, out_key[slot]));
        MUST(net->dereg(recv_comm, in_key[slot]));
    }
}

int main(int count, char **words) {
    int to_child[2], to_parent[2], status = 0;
    char word = 1;
    MUST(count != 4 || pipe(to_child) || pipe(to_parent));
    pid_t child = fork();
    who = child == 0;
    int out = who ? to_parent[1] : to_child[1], in = who ? to_child[0] : to_parent[0];
    void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    net = library ? dlsym(library, words[2]) : NULL;
    if (!net) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    version = atoi(words[3]);
    begin(out, in);
    run();
    MUST(write(out, &word, 1) != 1 || read(in, &word, 1) != 1); /* the other side is done, too */
    MUST(net->close_send(send_comm));
    MUST(net->close_recv(recv_comm));
    MUST(net->close_listen(listen_comm));
    if (who)
        exit(0);
    MUST(waitpid(child, &status, 0) != child || status);
    printf("%d messages each way are right\n", MESSAGES);
    exit(0);
}
