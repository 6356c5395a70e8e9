//! Work items: routines that run later, where they may block.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::deliver::{Job, lock};

/// `IO_WORKITEM_ROUTINE`, with the device object and the context.
pub type WorkItemRoutine = Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>;

/// Threads that stay when there is nothing to do.
const KEPT: usize = 4;

/// `IO_WORKITEM`.
#[derive(Debug)]
pub struct WorkItem {
    device: usize,
}

struct Workers {
    state: Mutex<WorkState>,
    queued: Condvar,
}

struct WorkState {
    jobs: VecDeque<Job>,
    /// Threads that wait for a job, and threads in all.
    idle: usize,
    threads: usize,
}

static WORKERS: Workers = Workers {
    state: Mutex::new(WorkState { jobs: VecDeque::new(), idle: 0, threads: 0 }),
    queued: Condvar::new(),
};

impl Workers {
    /// Make sure of one thread, without which nothing queued would ever run.
    fn ensure(&'static self) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.threads == 0 { self.start(&mut state) } else { Ok(()) }
    }

    fn start(&'static self, state: &mut WorkState) -> io::Result<()> {
        let worker = transom_os::threads::builder().name("transom-work".into());
        worker.spawn(move || self.work())?;
        state.threads += 1;
        Ok(())
    }

    /// A job waits for no other: routines may block, also for each other.
    fn queue(&'static self, job: Job) {
        let mut state = lock(&self.state);
        state.jobs.push_back(job);
        if state.jobs.len() > state.idle {
            // Without one more thread the next one that is idle takes it.
            let _ = self.start(&mut state);
        }
        self.queued.notify_one();
    }

    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            while let Some(job) = state.jobs.pop_front() {
                drop(state);
                // A routine that panics (a Rust consumer's) must not take the others along.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = lock(&self.state);
            }
            if state.idle == KEPT {
                state.threads -= 1;
                return;
            }
            state.idle += 1;
            state = self.queued.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

/// A work item; `device` is handed to its routine. Null: no thread could be had for it.
///
/// # Safety
/// None beyond those of C: `device` is not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn IoAllocateWorkItem(device: *mut c_void) -> *mut WorkItem {
    match WORKERS.ensure() {
        Ok(()) => Box::into_raw(Box::new(WorkItem { device: device.expose_provenance() })),
        Err(_) => std::ptr::null_mut(),
    }
}

/// Have `routine` called once with `context`, on another thread, where it may block. `queue` has no
/// meaning here. The item can be queued again, or freed, once the routine runs, also by itself.
///
/// # Safety
/// `item` came from [`IoAllocateWorkItem`]; the routine may be called with that context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn IoQueueWorkItem(
    item: &WorkItem,
    routine: WorkItemRoutine,
    _queue: u32,
    context: *mut c_void,
) {
    let (device, context) = (item.device, context.expose_provenance());
    let Some(routine) = routine else { return };
    WORKERS.queue(Box::new(move || {
        let pointer = std::ptr::with_exposed_provenance_mut;
        // SAFETY: this function's contract.
        unsafe { routine(pointer(device), pointer(context)) };
    }));
}

/// Free a work item that is not queued.
///
/// # Safety
/// `item` is null or came from [`IoAllocateWorkItem`], and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn IoFreeWorkItem(item: *mut WorkItem) {
    if !item.is_null() {
        // SAFETY: this function's contract.
        drop(unsafe { Box::from_raw(item) });
    }
}
