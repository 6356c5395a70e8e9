/* The needs of the port of a kernel consumer beside ndkpi.h, in user space: locked pages, events, spin
 * locks, work items. Names, shapes and semantics as documented for the original, on threads of this
 * process: PASSIVE_LEVEL is a thread that may block, and a level masks nothing.
 *
 * What the original takes and has no meaning here (priority boosts, wait reasons, processor modes,
 * queue types) is taken and not looked at. */
#ifndef TRANSOM_NDKKERNEL_H
#define TRANSOM_NDKKERNEL_H

#include "ndkpi.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef _WIN32
typedef int32_t LONG;
typedef int64_t LONGLONG;
typedef union {
    struct { ULONG LowPart; LONG HighPart; };
    LONGLONG QuadPart;
} LARGE_INTEGER, *PLARGE_INTEGER;
#endif

typedef int8_t KPROCESSOR_MODE;
#define KernelMode 0
#define UserMode 1

/* ---- pages ----
 * The buffer at the MDL's own address must be there, and writable unless it is for IoReadAccess; its
 * pages are listed. Nothing is pinned, and pages that vanish later end a request, never the program.
 *
 * The original raises an exception for a buffer that is not there. Here the MDL lacks the flag
 * MDL_PAGES_LOCKED then, and every call refuses it; TransomProbeAndLockPages returns
 * STATUS_ACCESS_VIOLATION. */
typedef enum { IoReadAccess, IoWriteAccess, IoModifyAccess } LOCK_OPERATION;
#define MDL_PAGES_LOCKED 0x0002
VOID MmProbeAndLockPages(MDL *Mdl, KPROCESSOR_MODE AccessMode, LOCK_OPERATION Operation);
NTSTATUS TransomProbeAndLockPages(MDL *Mdl, KPROCESSOR_MODE AccessMode, LOCK_OPERATION Operation);
VOID MmUnlockPages(MDL *Mdl);

/* ---- events ---- */
typedef enum { NotificationEvent, SynchronizationEvent } EVENT_TYPE;
typedef enum { Executive, UserRequest = 6 } KWAIT_REASON;
typedef struct { UINT64 Opaque[4]; } KEVENT, *PKEVENT;
#define IO_NO_INCREMENT 0

VOID KeInitializeEvent(KEVENT *Event, EVENT_TYPE Type, BOOLEAN State);
/* Both return the state before: 0, or not. */
LONG KeSetEvent(KEVENT *Event, LONG Increment, BOOLEAN Wait);
LONG KeResetEvent(KEVENT *Event);
VOID KeClearEvent(KEVENT *Event);
LONG KeReadStateEvent(KEVENT *Event);
/* Object: a KEVENT. Timeout: NULL waits for ever; otherwise in units of 100 ns, below 0 an interval, 0
 * no wait at all, above 0 a system time. STATUS_SUCCESS or STATUS_TIMEOUT. Never in a callback of the
 * provider, unless with a Timeout of 0: callbacks must not block. */
NTSTATUS KeWaitForSingleObject(PVOID Object, KWAIT_REASON WaitReason, KPROCESSOR_MODE WaitMode, BOOLEAN Alertable, PLARGE_INTEGER Timeout);
/* Units of 100 ns since 1601. */
VOID KeQuerySystemTime(PLARGE_INTEGER CurrentTime);

/* ---- spin locks ---- */
typedef ULONG_PTR KSPIN_LOCK, *PKSPIN_LOCK;
typedef uint8_t KIRQL, *PKIRQL;
#define PASSIVE_LEVEL 0
#define DISPATCH_LEVEL 2
VOID KeInitializeSpinLock(KSPIN_LOCK *SpinLock);
VOID KeAcquireSpinLock(KSPIN_LOCK *SpinLock, KIRQL *OldIrql);
VOID KeReleaseSpinLock(KSPIN_LOCK *SpinLock, KIRQL NewIrql);
VOID KeAcquireSpinLockAtDpcLevel(KSPIN_LOCK *SpinLock);
VOID KeReleaseSpinLockFromDpcLevel(KSPIN_LOCK *SpinLock);
KIRQL KeGetCurrentIrql(VOID);

/* ---- work items: a routine that runs later at PASSIVE_LEVEL, so that a callback can start what may
 * block. An item is freed when it is not queued; its routine may free it, or queue it again. ---- */
typedef struct _DEVICE_OBJECT *PDEVICE_OBJECT; /* handed through */
typedef struct _IO_WORKITEM *PIO_WORKITEM;
typedef VOID IO_WORKITEM_ROUTINE(PDEVICE_OBJECT DeviceObject, PVOID Context);
typedef enum { CriticalWorkQueue, DelayedWorkQueue, HyperCriticalWorkQueue } WORK_QUEUE_TYPE;
PIO_WORKITEM IoAllocateWorkItem(PDEVICE_OBJECT DeviceObject);
VOID IoQueueWorkItem(PIO_WORKITEM IoWorkItem, IO_WORKITEM_ROUTINE *WorkerRoutine, WORK_QUEUE_TYPE QueueType, PVOID Context);
VOID IoFreeWorkItem(PIO_WORKITEM IoWorkItem);

#ifdef __cplusplus
}
#endif
#endif
