/* Lends the pages of a file, in an order of its own, to one peer.
 *
 *     serve_pages FILE
 *
 * Maps the file, lists its pages backwards in an MDL whose virtual address is not mapped at all,
 * registers them with NdkRegisterMr, and opens a window for the peer that connects. The peer reads
 * them by RDMA; what it must find is in the message that it gets. Prints the port. */
#define _DEFAULT_SOURCE
#include "ndkpi.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The message to the peer: 8 bytes each, little-endian. */
typedef struct { uint64_t address, length, token, digest; } OFFER;

static void fail(const char *what, NTSTATUS status) {
    fprintf(stderr, "serve_pages: %s: 0x%08x\n", what, (unsigned)status);
    exit(1);
}

/* ---- waiting for callbacks ---- */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int done;
    NTSTATUS status;
    void *object;
} WAIT;
#define NEW_WAIT { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, NULL }

static void set(WAIT *wait, NTSTATUS status, void *object) {
    pthread_mutex_lock(&wait->lock);
    wait->done = 1;
    wait->status = status;
    wait->object = object;
    pthread_cond_signal(&wait->changed);
    pthread_mutex_unlock(&wait->lock);
}
static NTSTATUS get(WAIT *wait, NTSTATUS returned) {
    if (returned != STATUS_PENDING) return returned; /* inline: no callback comes */
    pthread_mutex_lock(&wait->lock);
    while (!wait->done) pthread_cond_wait(&wait->changed, &wait->lock);
    wait->done = 0;
    pthread_mutex_unlock(&wait->lock);
    return wait->status;
}
static void on_request(PVOID context, NTSTATUS status) { set(context, status, NULL); }
static void on_created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object) { set(context, status, object); }
static void on_closed(PVOID context) { set(context, STATUS_SUCCESS, NULL); }
static void on_connect(PVOID context, NDK_CONNECTOR *connector) { set(context, STATUS_SUCCESS, connector); }

/* Create functions end alike: the object is in the out parameter, or comes with the callback. */
#define CREATE(type, name, call)                          \
    type *name = NULL;                                  \
    do {                                                  \
        WAIT wait = NEW_WAIT;                             \
        NTSTATUS returned = (call);                       \
        NTSTATUS status = get(&wait, returned);           \
        if (status != STATUS_SUCCESS) fail(#call, status); \
        if (returned == STATUS_PENDING) name = wait.object; \
    } while (0)
#define REQUEST(what, call)                               \
    do {                                                  \
        WAIT wait = NEW_WAIT;                             \
        NTSTATUS status = get(&wait, (call));             \
        if (status != STATUS_SUCCESS) fail(what, status); \
    } while (0)
#define CLOSE(target, function)                                                  \
    do {                                                                         \
        WAIT wait = NEW_WAIT;                                                    \
        get(&wait, (target)->Dispatch->function(&(target)->Header, on_closed, &wait)); \
    } while (0)

/* The next completion of a queue. */
static NDK_RESULT_EX next(NDK_CQ *cq) {
    NDK_RESULT_EX result;
    while (cq->Dispatch->NdkGetCqResultsEx(cq, &result, 1) == 0) usleep(50);
    return result;
}

int main(int argc, char **argv) {
    if (argc != 2) { fprintf(stderr, "serve_pages FILE\n"); return 2; }
    int file = open(argv[1], O_RDONLY);
    struct stat about;
    if (file < 0 || fstat(file, &about) != 0 || about.st_size < PAGE_SIZE) { perror(argv[1]); return 1; }
    size_t pages = (size_t)about.st_size / PAGE_SIZE, length = pages * PAGE_SIZE;
    unsigned char *map = mmap(NULL, length, PROT_READ, MAP_PRIVATE, file, 0);
    if (map == MAP_FAILED) { perror("mmap"); return 1; }

    /* Addresses that exist nowhere: a reservation that is given back. */
    void *nowhere = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(nowhere, length);

    NDK_VERSION version = { 2, 0 };
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    PCSOCKADDR address = (PCSOCKADDR)&here;
    NDK_ADAPTER *adapter;
    NTSTATUS status = NdkOpenAdapter(version, address, sizeof here, NULL, &adapter);
    if (status != STATUS_SUCCESS) fail("NdkOpenAdapter", status);
    const NDK_ADAPTER_DISPATCH *a = adapter->Dispatch;
    CREATE(NDK_PD, pd, a->NdkCreatePd(adapter, on_created, &wait, &pd));
    CREATE(NDK_CQ, cq, a->NdkCreateCq(adapter, 64, NULL, NULL, NULL, on_created, &wait, &cq));
    CREATE(NDK_QP, qp, pd->Dispatch->NdkCreateQp(pd, cq, cq, NULL, 8, 8, 1, 1, 64, on_created, &wait, &qp));
    CREATE(NDK_MR, mr, pd->Dispatch->NdkCreateMr(pd, FALSE, on_created, &wait, &mr));
    CREATE(NDK_MW, mw, pd->Dispatch->NdkCreateMw(pd, on_created, &wait, &mw));

    /* Two MDLs, virtually contiguous, with the file's pages backwards in them. */
    PVOID *list = calloc(pages, sizeof *list);
    OFFER offer = { (uintptr_t)nowhere, length, 0, 0xcbf29ce484222325 };
    for (size_t i = 0; i < pages; i++) {
        list[i] = map + (pages - 1 - i) * PAGE_SIZE;
        for (size_t j = 0; j < PAGE_SIZE; j++)
            offer.digest = (offer.digest ^ ((unsigned char *)list[i])[j]) * 0x100000001b3;
    }
    size_t first = (pages + 1) / 2;
    MDL *head = IoAllocateMdl(nowhere, (ULONG)(first * PAGE_SIZE), FALSE, FALSE, NULL), *tail = NULL;
    if (!head || !TransomBuildMdlForPages(head, list, first)) fail("MDL", STATUS_NO_MEMORY);
    if (pages > first) {
        tail = IoAllocateMdl((char *)nowhere + first * PAGE_SIZE, (ULONG)((pages - first) * PAGE_SIZE), FALSE, FALSE, NULL);
        if (!tail || !TransomBuildMdlForPages(tail, list + first, pages - first)) fail("MDL", STATUS_NO_MEMORY);
    }
    head->Next = tail;
    REQUEST("NdkRegisterMr", mr->Dispatch->NdkRegisterMr(mr, head, length, NDK_MR_FLAG_ALLOW_LOCAL_READ, on_request, &wait));
    IoFreeMdl(head); /* only needed until the request is complete */
    if (tail) IoFreeMdl(tail);
    free(list);

    WAIT event = NEW_WAIT;
    CREATE(NDK_LISTENER, listener, a->NdkCreateListener(adapter, on_connect, &event, on_created, &wait, &listener));
    REQUEST("NdkListen", listener->Dispatch->NdkListen(listener, address, sizeof here, on_request, &wait));
    ULONG size = sizeof here;
    listener->Dispatch->NdkGetLocalAddress(listener, (PSOCKADDR)&here, &size);
    printf("%d\n", ntohs(here.sin_port));
    fflush(stdout);

    get(&event, STATUS_PENDING);
    NDK_CONNECTOR *peer = event.object;
    qp->Dispatch->NdkReceive(qp, NULL, NULL, 0); /* "done", without bytes */
    REQUEST("NdkAccept", peer->Dispatch->NdkAccept(peer, qp, 16, 16, NULL, 0, NULL, NULL, on_request, &wait));

    /* A window for this peer, and the message that tells it. */
    status = qp->Dispatch->NdkBind(qp, NULL, mr, mw, nowhere, length, NDK_OP_FLAG_ALLOW_REMOTE_READ);
    if (status != STATUS_SUCCESS) fail("NdkBind", status);
    offer.token = mw->Dispatch->NdkGetRemoteTokenFromMw(mw);
    NDK_SGE sge = { .VirtualAddress = &offer, .Length = sizeof offer };
    status = qp->Dispatch->NdkSend(qp, NULL, &sge, 1, NDK_OP_FLAG_INLINE);
    if (status != STATUS_SUCCESS) fail("NdkSend", status);

    for (int seen = 0; seen < 3;) { /* Bind, Send, and the peer's "done" */
        NDK_RESULT_EX result = next(cq);
        if (result.Status != STATUS_SUCCESS) fail("a request", result.Status);
        seen++;
    }
    printf("served %zu scattered pages\n", pages);

    CLOSE(peer, NdkCloseConnector);
    CLOSE(listener, NdkCloseListener);
    CLOSE(mw, NdkCloseMw);
    CLOSE(mr, NdkCloseMr);
    CLOSE(qp, NdkCloseQp);
    CLOSE(cq, NdkCloseCq);
    CLOSE(pd, NdkClosePd);
    NdkCloseAdapter(adapter);
    return 0;
}
