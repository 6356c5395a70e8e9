/* ndkkernel.h as a port of a kernel consumer uses it, written from the original's documentation. */
#include "consumer.h"

#include <pthread.h>
#ifdef _WIN32
static char *four_pages(void) {
    DWORD before;
    char *base = VirtualAlloc(NULL, 4 * PAGE_SIZE, MEM_RESERVE, PAGE_NOACCESS);
    CHECK(base != NULL && VirtualAlloc(base, 3 * PAGE_SIZE, MEM_COMMIT, PAGE_READWRITE) == base);
    CHECK(VirtualProtect(base + 2 * PAGE_SIZE, PAGE_SIZE, PAGE_READONLY, &before));
    return base;
}
#else
#include <sys/mman.h>
static char *four_pages(void) {
    char *base = mmap(NULL, 4 * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(base != MAP_FAILED);
    mprotect(base + 2 * PAGE_SIZE, PAGE_SIZE, PROT_READ);
    munmap(base + 3 * PAGE_SIZE, PAGE_SIZE);
    return base;
}
#endif

static NTSTATUS wait_at_most(KEVENT *event, LONGLONG timeout) {
    LARGE_INTEGER limit = { .QuadPart = timeout };
    return KeWaitForSingleObject(event, Executive, KernelMode, FALSE, &limit);
}

/* ---- events ---- */
typedef struct { KEVENT go, seen; NTSTATUS status; } WAITER;
static void *waiter(void *argument) {
    WAITER *w = argument;
    w->status = KeWaitForSingleObject(&w->go, Executive, KernelMode, FALSE, NULL);
    KeSetEvent(&w->seen, IO_NO_INCREMENT, FALSE);
    return NULL;
}

static void events(void) {
    STEP("events");
    for (EVENT_TYPE type = NotificationEvent; type <= SynchronizationEvent; type++) {
        KEVENT event;
        KeInitializeEvent(&event, type, TRUE);
        CHECK(KeReadStateEvent(&event) != 0);
        EXPECT(wait_at_most(&event, 0), STATUS_SUCCESS);
        CHECK((KeReadStateEvent(&event) != 0) == (type == NotificationEvent));
        EXPECT(wait_at_most(&event, 0), type == NotificationEvent ? STATUS_SUCCESS : STATUS_TIMEOUT);
        KeClearEvent(&event);
        CHECK(KeReadStateEvent(&event) == 0);
        CHECK(KeSetEvent(&event, IO_NO_INCREMENT, FALSE) == 0);
        CHECK(KeSetEvent(&event, IO_NO_INCREMENT, FALSE) != 0);
        CHECK(KeResetEvent(&event) != 0 && KeResetEvent(&event) == 0);
        EXPECT(wait_at_most(&event, 0), STATUS_TIMEOUT);
        EXPECT(wait_at_most(&event, -10000), STATUS_TIMEOUT); /* a millisecond */
        LARGE_INTEGER now;
        KeQuerySystemTime(&now);
        EXPECT(wait_at_most(&event, now.QuadPart - 1), STATUS_TIMEOUT);
        EXPECT(wait_at_most(&event, now.QuadPart + 10000), STATUS_TIMEOUT);
    }
    CHECK(NT_SUCCESS(STATUS_TIMEOUT));

    STEP("a thread waits for ever, until it is set");
    WAITER w[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        KeInitializeEvent(&w[i].go, i ? SynchronizationEvent : NotificationEvent, FALSE);
        KeInitializeEvent(&w[i].seen, NotificationEvent, FALSE);
        CHECK(pthread_create(&threads[i], NULL, waiter, &w[i]) == 0);
        CHECK(KeReadStateEvent(&w[i].seen) == 0);
        KeSetEvent(&w[i].go, IO_NO_INCREMENT, FALSE);
        EXPECT(wait_at_most(&w[i].seen, PATIENCE), STATUS_SUCCESS);
        pthread_join(threads[i], NULL);
        EXPECT(w[i].status, STATUS_SUCCESS);
        CHECK((KeReadStateEvent(&w[i].go) != 0) == (i == 0));
    }
}

/* ---- a synchronization event lets one waiter through, a notification event all of them ---- */
typedef struct { KEVENT go, started, through; KSPIN_LOCK lock; int count; int waiting; } GATE;
static void *through_the_gate(void *argument) {
    GATE *g = argument;
    KIRQL irql;
    KeAcquireSpinLock(&g->lock, &irql);
    if (++g->waiting == 3) KeSetEvent(&g->started, IO_NO_INCREMENT, FALSE);
    KeReleaseSpinLock(&g->lock, irql);
    EXPECT(wait_at_most(&g->go, PATIENCE), STATUS_SUCCESS);
    KeAcquireSpinLock(&g->lock, &irql);
    g->count++;
    KeReleaseSpinLock(&g->lock, irql);
    KeSetEvent(&g->through, IO_NO_INCREMENT, FALSE);
    return NULL;
}
static void gates(void) {
    STEP("gates");
    for (EVENT_TYPE type = NotificationEvent; type <= SynchronizationEvent; type++) {
        GATE g = { .count = 0 };
        KeInitializeEvent(&g.go, type, FALSE);
        KeInitializeEvent(&g.started, NotificationEvent, FALSE);
        KeInitializeEvent(&g.through, SynchronizationEvent, FALSE);
        KeInitializeSpinLock(&g.lock);
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, through_the_gate, &g) == 0);
        EXPECT(wait_at_most(&g.started, PATIENCE), STATUS_SUCCESS);
        for (int i = 1; type == SynchronizationEvent && i <= 3; i++) {
            CHECK(KeSetEvent(&g.go, IO_NO_INCREMENT, FALSE) == 0);
            EXPECT(wait_at_most(&g.through, PATIENCE), STATUS_SUCCESS);
            CHECK(g.count == i);
        }
        KeSetEvent(&g.go, IO_NO_INCREMENT, FALSE);
        for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
        CHECK(g.count == 3);
    }
}

/* ---- spin locks ---- */
static KSPIN_LOCK counter_lock;
static long counter;
static void *counting(void *unused) {
    (void)unused;
    for (int i = 0; i < 20000; i++) {
        KIRQL irql;
        KeAcquireSpinLock(&counter_lock, &irql);
        CHECK(irql == PASSIVE_LEVEL);
        counter++;
        KeReleaseSpinLock(&counter_lock, irql);
    }
    return NULL;
}
static void spin_locks(void) {
    STEP("spin locks");
    KSPIN_LOCK inner;
    KIRQL outer_irql, inner_irql;
    KeInitializeSpinLock(&counter_lock);
    KeInitializeSpinLock(&inner);
    CHECK(KeGetCurrentIrql() == PASSIVE_LEVEL);
    KeAcquireSpinLock(&counter_lock, &outer_irql);
    CHECK(outer_irql == PASSIVE_LEVEL && KeGetCurrentIrql() == DISPATCH_LEVEL);
    KeAcquireSpinLock(&inner, &inner_irql);
    CHECK(inner_irql == DISPATCH_LEVEL);
    KeReleaseSpinLock(&inner, inner_irql);
    CHECK(KeGetCurrentIrql() == DISPATCH_LEVEL);
    KeAcquireSpinLockAtDpcLevel(&inner);
    KeReleaseSpinLockFromDpcLevel(&inner);
    CHECK(KeGetCurrentIrql() == DISPATCH_LEVEL);
    KeReleaseSpinLock(&counter_lock, outer_irql);
    CHECK(KeGetCurrentIrql() == PASSIVE_LEVEL);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, counting, NULL) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    CHECK(counter == 80000);
}

/* ---- work items ---- */
typedef struct {
    PIO_WORKITEM item;
    PDEVICE_OBJECT device;
    pthread_t caller;
    int runs;
    KEVENT *meet[2], done;
} WORK;
static void again(PDEVICE_OBJECT device, PVOID context) {
    WORK *work = context;
    CHECK(device == work->device && !pthread_equal(pthread_self(), work->caller));
    CHECK(KeGetCurrentIrql() == PASSIVE_LEVEL);
    if (++work->runs < 3) {
        IoQueueWorkItem(work->item, again, DelayedWorkQueue, work); /* queued again by its routine */
    } else {
        IoFreeWorkItem(work->item); /* and freed by it */
        KeSetEvent(&work->done, IO_NO_INCREMENT, FALSE);
    }
}
/* Each waits for the other one: both must run at a time. */
static void meeting(PDEVICE_OBJECT device, PVOID context) {
    (void)device;
    WORK *work = context;
    KeSetEvent(work->meet[0], IO_NO_INCREMENT, FALSE);
    EXPECT(wait_at_most(work->meet[1], PATIENCE), STATUS_SUCCESS);
    KeSetEvent(&work->done, IO_NO_INCREMENT, FALSE);
}
static void work_items(void) {
    STEP("work items");
    int device;
    WORK work = { .device = (PDEVICE_OBJECT)&device, .caller = pthread_self() };
    KeInitializeEvent(&work.done, NotificationEvent, FALSE);
    work.item = IoAllocateWorkItem(work.device);
    CHECK(work.item != NULL);
    IoQueueWorkItem(work.item, again, DelayedWorkQueue, &work);
    EXPECT(wait_at_most(&work.done, PATIENCE), STATUS_SUCCESS);
    CHECK(work.runs == 3);

    enum { N = 12 };
    KEVENT events[N];
    WORK items[N];
    for (int i = 0; i < N; i++) KeInitializeEvent(&events[i], NotificationEvent, FALSE);
    for (int i = 0; i < N; i++) {
        items[i] = (WORK){ .item = IoAllocateWorkItem(NULL), .meet = { &events[i], &events[(i + 1) % N] } };
        KeInitializeEvent(&items[i].done, NotificationEvent, FALSE);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) KeClearEvent(&items[i].done);
        for (int i = 0; i < N; i++) IoQueueWorkItem(items[i].item, meeting, CriticalWorkQueue, &items[i]);
        for (int i = 0; i < N; i++) EXPECT(wait_at_most(&items[i].done, PATIENCE), STATUS_SUCCESS);
        for (int i = 0; i < N; i++) KeClearEvent(&events[i]);
    }
    for (int i = 0; i < N; i++) IoFreeWorkItem(items[i].item);
    IoFreeWorkItem(NULL);
}

/* ---- pages ---- */
static NTSTATUS registered(NDK_PD *pd, MDL *mdl, SIZE_T length) {
    NDK_MR *mr = CREATE(NDK_MR, pd->Dispatch->NdkCreateMr(pd, FALSE, on_created, w, &object));
    NTSTATUS status = END(mr->Dispatch->NdkRegisterMr(mr, mdl, length, NDK_MR_FLAG_ALLOW_LOCAL_WRITE, on_request, w));
    CLOSE(mr, NdkCloseMr);
    return status;
}
static void pages(void) {
    STEP("pages");
    NDK_ADAPTER *adapter = open_adapter(NDK_COMPLETE_NATURALLY);
    NDK_PD *pd = CREATE(NDK_PD, adapter->Dispatch->NdkCreatePd(adapter, on_created, w, &object));
    char *base = four_pages(); /* two that may be written, one that may be read, one that is not there */
    for (int n = 2; n <= 4; n++) {
        const NTSTATUS refused = STATUS_ACCESS_VIOLATION;
        SIZE_T length = (SIZE_T)n * PAGE_SIZE - 100;
        MDL *mdl = IoAllocateMdl(base + 100, (ULONG)length, FALSE, FALSE, NULL);
        for (LOCK_OPERATION o = IoReadAccess; o <= IoModifyAccess; o++) {
            NTSTATUS wanted = n == 2 || (n == 3 && o == IoReadAccess) ? STATUS_SUCCESS : refused;
            EXPECT(registered(pd, mdl, length), STATUS_INVALID_PARAMETER); /* not locked */
            EXPECT(TransomProbeAndLockPages(mdl, KernelMode, o), wanted);
            CHECK(((mdl->MdlFlags & MDL_PAGES_LOCKED) != 0) == (wanted == STATUS_SUCCESS));
            if (wanted == STATUS_SUCCESS) {
                CHECK(MmGetMdlPfnArray(mdl)[n - 1] == ((uintptr_t)base >> 12) + (unsigned)n - 1);
                EXPECT(TransomProbeAndLockPages(mdl, KernelMode, o), STATUS_INVALID_PARAMETER); /* twice */
                CHECK(mdl->MdlFlags & MDL_PAGES_LOCKED);
            }
            if (n == 2) EXPECT(registered(pd, mdl, length), STATUS_SUCCESS);
            MmUnlockPages(mdl);
            CHECK(!(mdl->MdlFlags & MDL_PAGES_LOCKED));
            MmProbeAndLockPages(mdl, KernelMode, o); /* the original's shape */
            CHECK(((mdl->MdlFlags & MDL_PAGES_LOCKED) != 0) == (wanted == STATUS_SUCCESS));
            MmUnlockPages(mdl);
        }
        IoFreeMdl(mdl);
    }
    EXPECT(TransomProbeAndLockPages(NULL, KernelMode, IoReadAccess), STATUS_INVALID_PARAMETER);
    MmUnlockPages(NULL);
    CLOSE(pd, NdkClosePd);
    NdkCloseAdapter(adapter);
}

int main(void) {
    events();
    gates();
    spin_locks();
    work_items();
    pages();
    puts("ok");
    return 0;
}
