//! Explanations on standard error: which rule, and which mistake (Verbs V97).

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use transom_engine::Completion;

use crate::context::Context;
use crate::environment;
use crate::errno::Errno;

/// Lines that a process prints at most.
const MOST: u32 = 20;

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

/// A line, unless explanations are silenced or there were many already.
pub(crate) fn line(text: &str) {
    if !wanted() {
        return;
    }
    let before = LINES.fetch_add(1, Ordering::Relaxed);
    if before < MOST {
        eprintln!("transom: {text}");
    } else if before == MOST {
        eprintln!("transom: further explanations are left out");
    }
}

/// The number of a call's argument that is refused, and a line about it.
#[cold]
pub(crate) fn invalid(why: impl FnOnce() -> String) -> Errno {
    refused(Errno::EINVAL, why)
}

/// The number of a refusal, and a line about it.
#[cold]
pub(crate) fn refused(error: Errno, why: impl FnOnce() -> String) -> Errno {
    if wanted() {
        line(&why());
    }
    error
}

/// Why a request failed, if there is a record of it.
pub(crate) fn completion(context: &Context, completion: &Completion) {
    if completion.denial == 0 || !wanted() {
        return;
    }
    if let Some(record) = context.adapter.denial(completion.denial) {
        line(&format!(
            "queue pair {:#08x}, wr_id {:#x}: {}",
            completion.queue_pair.0, completion.request_context, record.cause
        ));
    }
}

/// Prints how many lines [`line`] left out, at the end of the process.
pub(crate) fn count_at_exit() {
    let all = LINES.load(Ordering::Relaxed);
    if wanted() && all > MOST {
        eprintln!("transom: {} explanations in all", all);
    }
}
