//! The end of the process: acknowledgements that are owed leave, so that a peer which has sent its last
//! message sees that it arrived.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::context::Context;
use crate::process::PerProcess;
use crate::{explain, port, rsocket, sys, usage};

/// How long a stream may take to end in order.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// The contexts of this process.
static CONTEXTS: PerProcess<Mutex<Vec<Weak<Context>>>> = PerProcess::new();

fn lock() -> MutexGuard<'static, Vec<Weak<Context>>> {
    CONTEXTS.get_or_default().lock().unwrap_or_else(PoisonError::into_inner)
}

/// A context to finish when the process ends.
pub(crate) fn remember(context: &Arc<Context>) {
    // No `Once`: a forked child would wait for the thread that was inside.
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        sys::at_exit(at_exit);
    }
    let mut contexts = lock();
    contexts.retain(|context| context.strong_count() > 0);
    contexts.push(Arc::downgrade(context));
}

/// The contexts of this process.
pub(crate) fn contexts() -> Vec<Arc<Context>> {
    lock().iter().filter_map(Weak::upgrade).collect()
}

extern "C" fn at_exit() {
    let finished = std::panic::catch_unwind(|| {
        rsocket::say_goodbye();
        // A handler of signals may have interrupted a call that holds the lock, and ended the process.
        let Ok(contexts) = CONTEXTS.get_or_default().try_lock() else { return };
        let all: Vec<_> = contexts.iter().filter_map(Weak::upgrade).collect();
        drop(contexts);
        for context in &all {
            let _ = context.adapter.finish(PATIENCE);
            port::finish(context);
        }
        explain::count_at_exit();
        usage::report(&all);
        // Threads of the program may still use them.
        std::mem::forget(all);
    });
    drop(finished);
}
