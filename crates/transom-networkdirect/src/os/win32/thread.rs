//! Threads, as handles.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::wait::{WaitKind, Waitable};

static NEXT: AtomicU32 = AtomicU32::new(4);

thread_local! {
    static ID: Cell<u32> = const { Cell::new(0) };
    static LAST_ERROR: Cell<u32> = const { Cell::new(0) };
}

/// This thread's number, a multiple of 4 as on Windows.
pub(crate) fn current() -> u32 {
    ID.with(|id| {
        if id.get() == 0 {
            id.set(NEXT.fetch_add(4, Ordering::Relaxed));
        }
        id.get()
    })
}

/// Run `start` in a thread of its own; the object to wait for, and its number.
pub(crate) fn spawn(
    stack: usize,
    start: impl FnOnce() -> u32 + Send + 'static,
) -> std::io::Result<(Arc<Waitable>, u32)> {
    let done = Waitable::new(WaitKind::Thread(None));
    let id = NEXT.fetch_add(4, Ordering::Relaxed);
    let (theirs, builder) = (done.clone(), transom_os::threads::builder());
    let builder = if stack > 0 { builder.stack_size(stack.max(64 * 1024)) } else { builder };
    builder.spawn(move || {
        ID.with(|slot| slot.set(id));
        theirs.exited(start());
    })?;
    Ok((done, id))
}

/// The value that GetLastError returns on this thread.
pub(crate) fn last_error() -> u32 {
    LAST_ERROR.with(Cell::get)
}

/// Sets the value, as SetLastError does.
pub(crate) fn set_last_error(error: u32) {
    LAST_ERROR.with(|last| last.set(error));
}
