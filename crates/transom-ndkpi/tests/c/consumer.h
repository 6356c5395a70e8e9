/* Shared by the test programs: waiting for callbacks with the events of ndkkernel.h, and checks that
 * name their line. */
#define _DEFAULT_SOURCE
#include "ndkkernel.h"

#ifdef _WIN32
#include <winsock2.h>
#else
#include <arpa/inet.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *now_in = "start";
#define STEP(what) (now_in = (what))
#define CHECK(fact)                                                                  \
    do {                                                                             \
        if (!(fact)) {                                                               \
            fprintf(stderr, "%s:%d (%s): %s\n", __FILE__, __LINE__, now_in, #fact);  \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)
#define EXPECT(call, status)                                                                     \
    do {                                                                                         \
        NTSTATUS got_ = (call), wanted_ = (status);                                              \
        if (got_ != wanted_) {                                                                   \
            fprintf(stderr, "%s:%d (%s): %s: 0x%08x, not 0x%08x\n", __FILE__, __LINE__, now_in, \
                    #call, (unsigned)got_, (unsigned)wanted_);                                   \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

/* Nothing here takes longer, however busy the machine is. */
#define PATIENCE (-60LL * 10000000)

typedef struct {
    KEVENT event;
    NTSTATUS status;
    PVOID object;
    LONG times;
} WAIT;

static void wait_init(WAIT *wait) {
    memset(wait, 0, sizeof *wait);
    KeInitializeEvent(&wait->event, SynchronizationEvent, FALSE);
}
static void wait_set(WAIT *wait, NTSTATUS status, PVOID object) {
    wait->status = status;
    wait->object = object;
    wait->times++;
    KeSetEvent(&wait->event, IO_NO_INCREMENT, FALSE);
}
static inline NTSTATUS wait_for(WAIT *wait) {
    LARGE_INTEGER limit = { .QuadPart = PATIENCE };
    EXPECT(KeWaitForSingleObject(&wait->event, Executive, KernelMode, FALSE, &limit), STATUS_SUCCESS);
    return wait->status;
}

static inline void on_request(PVOID context, NTSTATUS status) { wait_set(context, status, NULL); }
static inline void on_created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object) { wait_set(context, status, object); }
static inline void on_closed(PVOID context) { wait_set(context, STATUS_SUCCESS, NULL); }

/* The end of a call that may be pending. In a call, `w` is the WAIT. */
#define END(call)                                          \
    ({                                                     \
        WAIT wait_, *w = &wait_;                           \
        wait_init(w);                                      \
        NTSTATUS end_ = (call);                            \
        end_ == STATUS_PENDING ? wait_for(w) : end_;       \
    })
/* Waits for a create function, whose last argument is `&object`. */
#define CREATE(type, call)                                 \
    ({                                                     \
        WAIT wait_, *w = &wait_;                           \
        wait_init(w);                                      \
        type *object = NULL;                               \
        NTSTATUS end_ = (call);                            \
        if (end_ == STATUS_PENDING) {                      \
            end_ = wait_for(w);                            \
            object = w->object;                            \
        }                                                  \
        EXPECT(end_, STATUS_SUCCESS);                      \
        CHECK(object != NULL);                             \
        object;                                            \
    })
#define CLOSE(object, function) EXPECT(END((object)->Dispatch->function(&(object)->Header, on_closed, w)), STATUS_SUCCESS)

static inline struct sockaddr_in loopback(unsigned port) {
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}
#define ADDRESS(at) (PCSOCKADDR)&(at), sizeof(at)

static inline NDK_ADAPTER *open_adapter(ULONG mode) {
    NDK_VERSION version = { 2, 0 };
    NDK_OPEN_OPTIONS options = { .CompletionMode = mode };
    struct sockaddr_in here = loopback(0);
    NDK_ADAPTER *adapter = NULL;
    EXPECT(NdkOpenAdapter(version, ADDRESS(here), &options, &adapter), STATUS_SUCCESS);
    return adapter;
}
