/* SMB Direct between two processes, or with any peer that speaks it over iWARP.
 *
 *     smb_direct serve [OPTIONS] ADDRESS PORT         PORT 0: one of the system's choice, which is printed
 *     smb_direct copy [OPTIONS] ADDRESS PORT FILE [BACK]     sends FILE there and back, and compares;
 *                                                     BACK: a file for what came back
 *
 * On iWARP, SMB Direct has port 5445. In the place of SMB2 are four requests, enough to see every part of
 * the transport at work: ECHO comes back as a message, of as many fragments as it takes; PUT has the
 * server read a buffer of the client's by RDMA, GET has it write one; BYE ends. */
#include "smbd.h"

#ifdef _WIN32
#include <ws2tcpip.h>
#else
#include <arpa/inet.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ECHO = 1, PUT, GET, BYE };
enum { CHANNEL_RDMA = 1, CHANNEL_RDMA_INVALIDATE = 2 }; /* as SMB2 counts */

/* A request: operation u32, channel u32, place in the server's memory u64, bytes u32, 0 u32, descriptor.
 * An answer: 0 for success u32, bytes u32. ECHO's data stands behind its request. */
#define REQUEST 40
#define ANSWER 8
#define STORE (64u << 20) /* bytes that the server keeps for each client */
#define PART SMBD_READ_WRITE

static int usage(void) {
    fprintf(stderr, "smb_direct serve [OPTIONS] ADDRESS PORT\nsmb_direct copy [OPTIONS] ADDRESS PORT FILE [BACK]\n"
                    "options: --from ADDRESS (of this host, if that is not the server's), --credits N, --send-size N, --receive-size N, --fragmented N, --idle MS, --answer MS, --negotiate MS\n");
    return 2;
}

/* ---- the server ---- */
typedef struct {
    NDK_ADAPTER *adapter;
    SMBD_OPTIONS options;
} SERVER;
typedef struct {
    SERVER *server;
    NDK_CONNECTOR *connector;
    PIO_WORKITEM item;
    int number;
} CLIENT;
static LONG clients;

/* Serves a request. FALSE: the client has said goodbye, or the connection has ended. */
static BOOLEAN serve_request(SMBD *s, uint8_t *store, const SMBD_MESSAGE *m) {
    uint8_t answer[ANSWER] = { 0 };
    if (m->length < REQUEST) return smbd_end(s, "a request of fewer than 40 bytes"), FALSE;
    uint32_t operation = smbd_get32(m->bytes), channel = smbd_get32(m->bytes + 4), length = smbd_get32(m->bytes + 16);
    uint64_t place = smbd_get64(m->bytes + 8);
    SMBD_DESCRIPTOR theirs;
    smbd_get_descriptor(m->bytes + 24, &theirs);
    switch (operation) {
    case ECHO: return smbd_send(s, m->bytes, m->length, 0) == NULL;
    case PUT:
    case GET:
        if (length == 0 || length > PART || place > STORE || length > STORE - place) return smbd_end(s, "a request beyond the server's memory"), FALSE;
        if (smbd_rdma(s, operation == GET, store + place, length, &theirs)) return FALSE;
        smbd_put32(answer + 4, length);
        return smbd_send(s, answer, ANSWER, channel == CHANNEL_RDMA_INVALIDATE ? theirs.token : 0) == NULL;
    case BYE: return smbd_send(s, answer, ANSWER, 0), FALSE;
    default: return smbd_end(s, "a request that this server does not know"), FALSE;
    }
}

/* At PASSIVE_LEVEL: this may block for as long as the client lives. */
static void serve_client(PDEVICE_OBJECT device, PVOID context) {
    (void)device;
    CLIENT *c = context;
    SMBD *s = calloc(1, sizeof *s);
    uint8_t *store = calloc(1, STORE);
    BOOLEAN goodbye = FALSE;
    if (s && store && !smbd_accept(s, c->server->adapter, &c->server->options, c->connector)) {
        SMBD_MESSAGE *message;
        BOOLEAN more = TRUE;
        while (more && !smbd_receive(s, &message)) {
            more = serve_request(s, store, message);
            free(message);
        }
        /* The peer ends the connection behind the answer to its goodbye. */
        goodbye = !more && !s->ended;
        while (goodbye && smbd_progress(s)) {}
    }
    printf("client %d: %s\n", c->number, goodbye ? "goodbye" : s && s->ended ? s->ended : "no memory");
    fflush(stdout);
    if (s) smbd_close(s);
    free(s);
    free(store);
    IoFreeWorkItem(c->item);
    free(c);
}

static void on_closed_alone(PVOID context) { (void)context; }

/* A callback: the connection is made where a thread may block. */
static void on_connect(PVOID context, NDK_CONNECTOR *connector) {
    CLIENT *c = calloc(1, sizeof *c);
    if (c) c->item = IoAllocateWorkItem(NULL);
    if (!c || !c->item) {
        free(c);
        connector->Dispatch->NdkCloseConnector(&connector->Header, on_closed_alone, NULL); /* rejects */
        return;
    }
    c->server = context;
    c->connector = connector;
    c->number = (int)__atomic_add_fetch(&clients, 1, __ATOMIC_RELAXED);
    IoQueueWorkItem(c->item, serve_client, DelayedWorkQueue, c);
}

static int serve(NDK_ADAPTER *adapter, const SMBD_OPTIONS *options, struct sockaddr_in at) {
    SERVER server = { .adapter = adapter, .options = *options };
    NDK_LISTENER *listener = NULL;
    SMBD_WAIT wait;
    smbd_wait_init(&wait);
    NTSTATUS returned = adapter->Dispatch->NdkCreateListener(adapter, on_connect, &server, smbd_on_created, &wait, &listener);
    NTSTATUS status = smbd_wait_end(&wait, returned);
    if (returned == STATUS_PENDING) listener = wait.object;
    if (status == STATUS_SUCCESS) status = smbd_wait_end(&wait, listener->Dispatch->NdkListen(listener, (PCSOCKADDR)&at, sizeof at, smbd_on_request, &wait));
    if (status != STATUS_SUCCESS) {
        fprintf(stderr, "smb_direct: cannot listen: 0x%08x\n", (unsigned)status);
        return 1;
    }
    ULONG size = sizeof at;
    listener->Dispatch->NdkGetLocalAddress(listener, (PSOCKADDR)&at, &size);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    /* Until standard input ends. */
    while (getchar() != EOF) {}
    listener->Dispatch->NdkControlConnectEvents(listener, TRUE);
    smbd_wait_end(&wait, listener->Dispatch->NdkCloseListener(&listener->Header, smbd_on_closed, &wait));
    return 0;
}

/* ---- the client ---- */
static const char *ask(SMBD *s, uint8_t *request, ULONG length, ULONG answer, SMBD_MESSAGE **message) {
    const char *why = smbd_send(s, request, length, 0);
    if (!why) why = smbd_receive(s, message);
    if (!why && (*message)->length != answer) why = "an answer of another length";
    return why;
}

static const char *move(SMBD *s, uint32_t operation, uint32_t channel, uint64_t place, uint8_t *buffer, ULONG length, ULONG *invalidated) {
    uint8_t request[REQUEST] = { 0 };
    SMBD_MESSAGE *message = NULL;
    SMBD_REGION *region = smbd_register(s, buffer, length, operation == GET);
    if (!region) return s->ended ? s->ended : "a buffer that cannot be registered";
    smbd_put32(request, operation);
    smbd_put32(request + 4, channel);
    smbd_put64(request + 8, place);
    smbd_put32(request + 16, length);
    smbd_put_descriptor(request + 24, &region->descriptor);
    const char *why = ask(s, request, REQUEST, ANSWER, &message);
    if (!why && (smbd_get32(message->bytes) != 0 || smbd_get32(message->bytes + 4) != length)) why = "an answer of failure";
    free(message);
    *invalidated += region->invalidated;
    if (!why && region->invalidated != (channel == CHANNEL_RDMA_INVALIDATE)) why = "an answer that invalidates another token than was asked";
    if (!why) why = smbd_unregister(s, region);
    return why;
}

static const char *echo(SMBD *s, const uint8_t *data, ULONG length) {
    uint8_t *request = calloc(1, REQUEST + (SIZE_T)length);
    SMBD_MESSAGE *message = NULL;
    if (!request) return "no memory";
    smbd_put32(request, ECHO);
    memcpy(request + REQUEST, data, length);
    const char *why = ask(s, request, REQUEST + length, REQUEST + length, &message);
    if (!why && memcmp(message->bytes, request, REQUEST + length)) why = "an echo of other bytes";
    free(message);
    free(request);
    return why;
}

static uint8_t *read_file(const char *path, ULONG *length) {
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc(STORE);
    if (!file || !bytes) return NULL;
    *length = (ULONG)fread(bytes, 1, STORE, file);
    fclose(file);
    return bytes;
}

static BOOLEAN write_file(const char *path, const uint8_t *bytes, ULONG length) {
    FILE *file = fopen(path, "wb");
    BOOLEAN written = file && fwrite(bytes, 1, length, file) == length;
    return file && fclose(file) == 0 && written;
}

static int copy(NDK_ADAPTER *adapter, const SMBD_OPTIONS *options, struct sockaddr_in from, struct sockaddr_in to, const char *path, const char *to_path) {
    ULONG length = 0, invalidated = 0, parts = 0;
    uint8_t *file = read_file(path, &length), *back = malloc(STORE + 1);
    if (!file || !back || !length) {
        perror(path);
        return 1;
    }
    SMBD *s = calloc(1, sizeof *s);
    const char *why = smbd_connect(s, adapter, options, (PCSOCKADDR)&from, (PCSOCKADDR)&to, sizeof to);
    /* Buffers begin anywhere in a page, and end anywhere. */
    uint8_t *sink = back + 1;
    for (ULONG at = 0; !why && at < length; parts++) {
        ULONG most = s->max_read_write - (parts * 1237) % 4096, bytes = length - at < most ? length - at : most;
        uint32_t channel = parts % 2 ? CHANNEL_RDMA : CHANNEL_RDMA_INVALIDATE;
        why = move(s, PUT, channel, at, file + at, bytes, &invalidated);
        if (!why) why = move(s, GET, channel, at, sink + at, bytes, &invalidated);
        at += bytes;
    }
    if (!why && memcmp(file, sink, length)) why = "other bytes came back";
    if (!why && to_path && !write_file(to_path, sink, length)) why = "the file for what came back cannot be written";
    ULONG largest = 0;
    if (!why) {
        ULONG most = s->max_fragmented_send < options->max_fragmented_size ? s->max_fragmented_send : options->max_fragmented_size;
        largest = most - REQUEST < length ? most - REQUEST : length;
    }
    for (ULONG size = 1; !why && size < largest; size = size * 7 + 1) why = echo(s, file, size);
    if (!why) why = echo(s, file, largest);
    if (!why) {
        uint8_t bye[REQUEST] = { BYE };
        SMBD_MESSAGE *message = NULL;
        why = ask(s, bye, REQUEST, ANSWER, &message);
        free(message);
    }
    if (why) printf("ended: %s\n", why);
    else
        printf("copied %u bytes there and back in %u parts, %u of them invalidated by the server; largest message %u bytes; %u Sends, %u of them grants alone, %u receives\n",
               (unsigned)length, (unsigned)parts, (unsigned)invalidated / 2, (unsigned)largest, (unsigned)s->sent, (unsigned)s->grants_alone,
               (unsigned)s->received);
    smbd_close(s);
    free(s);
    free(file);
    free(back);
    return why != NULL;
}

int main(int argc, char **argv) {
    SMBD_OPTIONS options = smbd_defaults();
    const char *plain[5] = { NULL }, *from = NULL;
    int count = 0;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0) {
            if (count == 5) return usage();
            plain[count++] = argv[i];
            continue;
        }
        if (i + 1 == argc) return usage();
        const char *name = argv[i] + 2;
        ULONG value = (ULONG)strtoul(argv[++i], NULL, 10);
        if (!strcmp(name, "from")) from = argv[i];
        else if (!strcmp(name, "credits")) options.receive_credit_max = options.send_credit_target = value;
        else if (!strcmp(name, "send-size")) options.max_send_size = value;
        else if (!strcmp(name, "receive-size")) options.max_receive_size = value;
        else if (!strcmp(name, "fragmented")) options.max_fragmented_size = value;
        else if (!strcmp(name, "idle")) options.idle_ms = value;
        else if (!strcmp(name, "answer")) options.answer_ms = value;
        else if (!strcmp(name, "negotiate")) options.negotiate_ms = value;
        else return usage();
    }
    BOOLEAN serving = count == 3 && !strcmp(plain[0], "serve");
    if (!serving && !((count == 4 || count == 5) && !strcmp(plain[0], "copy"))) return usage();
    struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(plain[2])) }, here = { .sin_family = AF_INET };
    if (inet_pton(AF_INET, plain[1], &there.sin_addr) != 1) return usage();
    here.sin_addr = there.sin_addr;
    if (!serving && from && inet_pton(AF_INET, from, &here.sin_addr) != 1) return usage();
    NDK_VERSION version = { 1, 2 };
    NDK_ADAPTER *adapter;
    NTSTATUS status = NdkOpenAdapter(version, (PCSOCKADDR)&here, sizeof here, NULL, &adapter);
    if (status != STATUS_SUCCESS) {
        fprintf(stderr, "smb_direct: no adapter: 0x%08x\n", (unsigned)status);
        return 1;
    }
    int code = serving ? serve(adapter, &options, there) : copy(adapter, &options, here, there, plain[3], count == 5 ? plain[4] : NULL);
    NdkCloseAdapter(adapter);
    return code;
}
