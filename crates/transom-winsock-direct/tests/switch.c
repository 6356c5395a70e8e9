/* A switch in C: what is offered is chosen, and a refusal is explained, by the two codes of Transom's
 * own. Both ends are in this process. */
#ifndef _WIN32
#include <netinet/in.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ws2san.h"

static WSPPROC_TABLE table;

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                            \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

static SOCKET create_handle(DWORD entry, DWORD_PTR context, LPINT error) {
    (void)entry, (void)error;
    return context + 1;
}
static int close_handle(SOCKET s, LPINT error) { (void)s, (void)error; return 0; }
static BOOL event(WSAEVENT which, LPINT error) { (void)which, (void)error; return 1; }
static int complete(SOCKET s, LPWSAOVERLAPPED o, DWORD e, DWORD n, LPINT error) {
    (void)s, (void)o, (void)e, (void)n, (void)error;
    return 0;
}

static int ask(SOCKET s, DWORD code, const void *in, DWORD in_size, void *out, DWORD out_size, DWORD *got) {
    int error = 0;
    int done = table.lpWSPIoctl(s, code, (void *)in, in_size, out, out_size, got, NULL, NULL, NULL, &error);
    return done == 0 ? 0 : error;
}

static int find(GUID which, void *function) {
    DWORD got;
    return ask(INVALID_SOCKET, SIO_GET_EXTENSION_FUNCTION_POINTER, &which, sizeof which, function, sizeof(void *), &got);
}

static int offer(DWORD bits) {
    DWORD got = 9;
    int error = ask(INVALID_SOCKET, SIO_TRANSOM_OFFER, &bits, sizeof bits, NULL, 0, &got);
    CHECK(error != 0 || got == 0);
    return error;
}

static int name(SOCKET s, const TRANSOM_NAME *what, DWORD size) {
    DWORD got;
    return ask(s, SIO_TRANSOM_NAME, what, size, NULL, 0, &got);
}

static SOCKET new_socket(void) {
    int error = 0;
    SOCKET s = table.lpWSPSocket(2, 1, 6, NULL, 0, WSA_FLAG_OVERLAPPED, &error);
    CHECK(s != INVALID_SOCKET);
    return s;
}

/* The condition: who asks, and for which address. */
static struct sockaddr_in asked_for;
static int condition(LPWSABUF caller, LPWSABUF data, LPQOS qos, LPQOS group_qos, LPWSABUF callee, LPWSABUF reply,
                     GROUP *group, DWORD_PTR context) {
    (void)qos, (void)group_qos, (void)reply, (void)group;
    CHECK(context == 7 && data == NULL);
    CHECK(caller->len == sizeof(struct sockaddr_in) && callee->len == sizeof asked_for);
    memcpy(&asked_for, callee->buf, sizeof asked_for);
    return CF_ACCEPT;
}

int main(int argc, char **argv) {
    WSPUPCALLTABLEEX upcalls = {
        .lpWPUCloseSocketHandle = close_handle,
        .lpWPUCreateSocketHandle = create_handle,
        .lpWPUResetEvent = event,
        .lpWPUSetEvent = event,
        .lpWPUCompleteOverlappedRequest = complete,
    };
    int error = 0;
    CHECK(argc == 2);
    CHECK(WSPStartupEx(0x0202, NULL, NULL, &upcalls, &table) == 0);

    /* what is offered */
    GUID read_id = WSAID_RDMAREAD, callback_id = WSAID_MEMORYREGISTRATIONCACHECALLBACK;
    GUID write_id = WSAID_RDMAWRITE, register_id = WSAID_REGISTERMEMORY, expose_id = WSAID_REGISTERRDMAMEMORY;
    void *function;
    CHECK(find(read_id, &function) == 0 && find(callback_id, &function) == 0);
    CHECK(offer(4) == WSAEINVAL && find(read_id, &function) == 0);
    CHECK(offer(TRANSOM_OFFER_CACHE_CALLBACK) == 0);
    CHECK(find(read_id, &function) == WSAEOPNOTSUPP && find(callback_id, &function) == 0);
    CHECK(offer(TRANSOM_OFFER_RDMA_READ) == 0);
    CHECK(find(read_id, &function) == 0 && find(callback_id, &function) == WSAEOPNOTSUPP);
    DWORD got;
    CHECK(ask(INVALID_SOCKET, SIO_TRANSOM_OFFER, NULL, 4, NULL, 0, &got) == WSAEFAULT);
    CHECK(offer(3) == 0);

    /* a connection */
    LPFN_WSPREGISTERMEMORY register_memory;
    LPFN_WSPREGISTERRDMAMEMORY expose;
    LPFN_WSPRDMAWRITE rdma_write;
    CHECK(find(register_id, &register_memory) == 0 && find(expose_id, &expose) == 0 && find(write_id, &rdma_write) == 0);
    struct sockaddr_in at = {.sin_family = 2, .sin_port = htons((uint16_t)atoi(argv[1]))};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    SOCKET listener = new_socket(), client = new_socket();
    CHECK(table.lpWSPBind(listener, (struct sockaddr *)&at, sizeof at, &error) == 0);
    CHECK(table.lpWSPListen(listener, 4, &error) == 0);
    CHECK(table.lpWSPEventSelect(client, (WSAEVENT)8, FD_CONNECT, &error) == 0);
    CHECK(table.lpWSPConnect(client, (struct sockaddr *)&at, sizeof at, NULL, NULL, NULL, NULL, &error) == SOCKET_ERROR);
    CHECK(error == WSAEWOULDBLOCK);
    /* too little room for the peer's address: the request waits on */
    SOCKET accepted;
    struct sockaddr_in from;
    int room = sizeof from - 1;
    CHECK(table.lpWSPAccept(listener, (struct sockaddr *)&from, &room, NULL, 0, &error) == INVALID_SOCKET);
    CHECK(error == WSAEFAULT);
    do {
        accepted = table.lpWSPAccept(listener, NULL, NULL, condition, 7, &error);
        CHECK(accepted != INVALID_SOCKET || error == WSAEWOULDBLOCK);
    } while (accepted == INVALID_SOCKET);
    CHECK(asked_for.sin_family == 2 && asked_for.sin_port == at.sin_port);
    CHECK(asked_for.sin_addr.s_addr == at.sin_addr.s_addr);
    WSANETWORKEVENTS events;
    do {
        CHECK(table.lpWSPEnumNetworkEvents(client, NULL, &events, &error) == 0);
    } while (!(events.lNetworkEvents & FD_CONNECT));
    CHECK(events.iErrorCode[FD_CONNECT_BIT] == 0);

    /* no buffers */
    WSAOVERLAPPED unused = {.hEvent = (WSAEVENT)1};
    DWORD none;
    CHECK(table.lpWSPSend(client, NULL, 1, &none, 0, &unused, NULL, NULL, &error) == SOCKET_ERROR);
    CHECK(error == WSAEFAULT);

    /* no refusal yet */
    char text[1024];
    CHECK(ask(client, SIO_TRANSOM_EXPLAIN, NULL, 0, text, sizeof text, &got) == 0 && got == 1 && text[0] == 0);
    CHECK(ask(INVALID_SOCKET, SIO_TRANSOM_EXPLAIN, NULL, 0, text, sizeof text, &got) == WSAENOTSOCK);

    /* a write to memory that may only be read */
    static char lent[4096], own[4096];
    unsigned char descriptor[16];
    DWORD length = sizeof descriptor;
    CHECK(expose(accepted, lent, sizeof lent, MEM_READ, descriptor, &length, &error) == 0);
    HANDLE handle = register_memory(client, own, sizeof own, MEM_READ, &error);
    CHECK(handle != NULL);
    TRANSOM_NAME named = {.Name = "lent"}, unknown = {.hMemory = (HANDLE)77, .Name = "x"};
    CHECK(name(accepted, &named, sizeof named) == WSAEINVAL); /* no descriptor at all */
    memcpy(named.RdmaDescriptor, descriptor, sizeof descriptor);
    CHECK(name(client, &named, sizeof named) == WSAEINVAL); /* the other end's */
    CHECK(name(accepted, &unknown, sizeof unknown) == WSAEINVAL);
    CHECK(name(accepted, &named, sizeof named - 1) == WSAEFAULT && name(accepted, NULL, sizeof named) == WSAEFAULT);
    unknown.hMemory = handle;
    memset(unknown.Name, 'x', sizeof unknown.Name); /* no NUL */
    CHECK(name(client, &unknown, sizeof unknown) == WSAEINVAL);
    unknown.Name[31] = 0;
    CHECK(name(client, &unknown, sizeof unknown) == 0);
    CHECK(name(accepted, &named, sizeof named) == 0);
    memset(own, 7, sizeof own);
    WSABUFEX buffer = {100, own, handle};
    WSAOVERLAPPED overlapped = {.hEvent = (WSAEVENT)1};
    CHECK(rdma_write(client, &buffer, 1, descriptor, length, 0, &got, 0, &overlapped, NULL, NULL, &error) == SOCKET_ERROR);
    CHECK(error == WSA_IO_PENDING);
    DWORD moved, flags;
    while (!table.lpWSPGetOverlappedResult(client, &overlapped, &moved, 0, &flags, &error) && error == WSA_IO_INCOMPLETE) {
    }
    CHECK(error == WSAECONNABORTED && lent[0] == 0);
    CHECK(ask(client, SIO_TRANSOM_EXPLAIN, NULL, 0, text, 1, &got) == WSAEFAULT && got > 1 && got <= sizeof text);
    DWORD needed = got;
    CHECK(ask(client, SIO_TRANSOM_EXPLAIN, NULL, 0, text, needed, &got) == 0 && got == needed);
    CHECK(strlen(text) == needed - 1);
    printf("asker: %s\n", text);
    CHECK(ask(accepted, SIO_TRANSOM_EXPLAIN, NULL, 0, text, sizeof text, &got) == 0 && got > 1);
    CHECK(strstr(text, "region \"lent\"") != NULL);
    printf("owner: %s\n", text);
    CHECK(table.lpWSPCleanup(&error) == 0);
    return 0;
}
