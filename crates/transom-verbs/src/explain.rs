//! Explanations on standard error: which rule, and which mistake (Verbs V97).

use std::io::IsTerminal;
use std::panic::Location;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use transom_engine::{Completion, Status};

use crate::context::Context;
use crate::environment;
use crate::errno::Errno;

/// Lines that a process prints at most.
const MOST: u32 = 20;
/// Lines about refusals of one kind: programs that try what is granted are refused on purpose.
const MOST_OF_A_KIND: u32 = 2;

static LINES: AtomicU32 = AtomicU32::new(0);

/// Whether explanations are printed.
pub(crate) fn wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| match environment::variable("TRANSOM_EXPLAIN").as_deref() {
        Some("0") => false,
        Some(_) => true,
        None => std::io::stderr().is_terminal(),
    })
}

/// The program and the process, of which several may share a terminal.
pub(crate) fn who() -> String {
    let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    format!("{}[{}]", program.trim_end(), std::process::id())
}

/// A line, unless explanations are silenced or there were many already.
pub(crate) fn line(text: &str) {
    if !wanted() {
        return;
    }
    let before = LINES.fetch_add(1, Ordering::Relaxed);
    if before < MOST {
        transom_os::say!("transom: {}: {text}", who());
    } else if before == MOST {
        transom_os::say!("transom: {}: further explanations are left out", who());
    }
}

/// The number of an argument that is refused, and a line about it.
#[cold]
#[track_caller]
pub(crate) fn invalid(why: impl FnOnce() -> String) -> Errno {
    refused(Errno::EINVAL, why)
}

/// The number of a refusal, and a line about it, unless there were some from the same place.
#[cold]
#[track_caller]
pub(crate) fn refused(error: Errno, why: impl FnOnce() -> String) -> Errno {
    if wanted() && is_new(Location::caller()) {
        line(&why());
    }
    error
}

fn is_new(place: &'static Location<'static>) -> bool {
    static KINDS: Mutex<Vec<(&Location<'static>, u32)>> = Mutex::new(Vec::new());
    // A forked child may have inherited the lock of a thread that it does not have.
    let Ok(mut kinds) = KINDS.try_lock() else { return true };
    match kinds.iter_mut().find(|(known, _)| *known == place) {
        Some((_, said)) => {
            *said += 1;
            *said <= MOST_OF_A_KIND
        }
        None => {
            kinds.push((place, 1));
            true
        }
    }
}

/// Why a request failed, if there is a record of it, or if its queue pair has found no peer.
pub(crate) fn completion(context: &Context, completion: &Completion) {
    if !wanted() {
        return;
    }
    let number = completion.queue_pair.0;
    if completion.denial == 0 {
        let lonely = matches!(completion.status, Status::RetryExceeded | Status::IoTimeout);
        let why = context.queue_pair(number).filter(|_| lonely);
        if let Some(why) = why.and_then(|queue_pair| queue_pair.rendezvous.why_none(&queue_pair)) {
            line(&format!("queue pair {number:#08x}: {why}"));
        }
        return;
    }
    if let Some(record) = context.adapter.denial(completion.denial) {
        line(&format!(
            "queue pair {number:#08x}, wr_id {:#x}: {}",
            completion.request_context, record.cause
        ));
    }
}

/// Prints how many lines [`line`] left out, at the end of the process.
pub(crate) fn count_at_exit() {
    let all = LINES.load(Ordering::Relaxed);
    if wanted() && all > MOST {
        transom_os::say!("transom: {}: {all} explanations in all", who());
    }
}
