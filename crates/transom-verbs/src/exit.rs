//! The end of the process: acknowledgements that are owed leave, so that a peer which has sent its last
//! message sees that it arrived.

use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::time::Duration;

use crate::context::Context;
use crate::{explain, rsocket, sys};

/// How long a stream may take to end in order.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

static CONTEXTS: Mutex<Vec<Weak<Context>>> = Mutex::new(Vec::new());

/// A context to finish when the process ends.
pub(crate) fn remember(context: &Arc<Context>) {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| sys::at_exit(at_exit));
    let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    contexts.retain(|context| context.strong_count() > 0);
    contexts.push(Arc::downgrade(context));
}

/// The contexts of this process.
pub(crate) fn contexts() -> Vec<Arc<Context>> {
    let contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    contexts.iter().filter_map(Weak::upgrade).collect()
}

extern "C" fn at_exit() {
    let finished = std::panic::catch_unwind(|| {
        rsocket::say_goodbye();
        // A forked child may have inherited the lock from a thread that it does not have.
        let Ok(contexts) = CONTEXTS.try_lock() else { return };
        let all: Vec<_> = contexts.iter().filter_map(Weak::upgrade).collect();
        drop(contexts);
        for context in &all {
            let _ = context.adapter.finish(PATIENCE);
        }
        explain::count_at_exit();
        // Threads of the program may still use them.
        std::mem::forget(all);
    });
    drop(finished);
}
