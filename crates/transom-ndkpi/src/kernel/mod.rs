//! The parts of the kernel's interface, beside `ndkpi.h`, that a consumer needs in user space
//! (`ndkkernel.h`): locked pages, events, spin locks, work items.
//!
//! Names, shapes and documented semantics of the original, on threads of this process. An interrupt
//! request level belongs to its thread and masks nothing.
#![allow(non_snake_case, reason = "exported names")]

mod event;
mod pages;
mod spin_lock;
mod work_item;

pub use event::{
    EventType, KEvent, KeClearEvent, KeInitializeEvent, KeQuerySystemTime, KeReadStateEvent,
    KeResetEvent, KeSetEvent, KeWaitForSingleObject, TIMEOUT,
};
pub use pages::{LockOperation, MmProbeAndLockPages, MmUnlockPages, TransomProbeAndLockPages};
pub use spin_lock::{
    DISPATCH_LEVEL, KSpinLock, KeAcquireSpinLock, KeAcquireSpinLockAtDpcLevel, KeGetCurrentIrql,
    KeInitializeSpinLock, KeReleaseSpinLock, KeReleaseSpinLockFromDpcLevel, PASSIVE_LEVEL,
};
pub use work_item::{
    IoAllocateWorkItem, IoFreeWorkItem, IoQueueWorkItem, WorkItem, WorkItemRoutine,
};
