//! Counters of the port, and their files below the directory that stands for `/sys` (Verbs V175).
//!
//! The files are the sums: those of a device are the same for all processes that have it, and stay when a process
//! ends. Each process adds what has come since it last did so, while it has queue pairs and when it closes the device.
//! Nothing is counted on the way of a message: the rings know how many records have gone through them, and the system
//! how many segments of TCP have.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use transom_engine::{Completion, CompletionKind};

use crate::abi::status;
use crate::context::Context;
use crate::{environment, sysfs, timers};

/// How old the files are at most while something is moved: as old as those of the kernel's `hw_counters`, whose
/// `lifespan` is this.
const LIVELY: Duration = Duration::from_millis(10);
/// How old otherwise.
const RESTING: Duration = Duration::from_millis(250);
/// Rest begins so long after the last change.
const CALM: Duration = Duration::from_secs(1);
/// No more than this part of a processor's time is spent on the files.
const PART: u32 = 100;
/// How often the last sums are tried to be added, which other processes may do at the same moment, and how long apart.
const TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(1);

/// Counters of the port, in the order of [`Context::traffic`].
pub(crate) const TRAFFIC: [&str; 8] = [
    "port_xmit_data",
    "port_xmit_packets",
    "unicast_xmit_packets",
    "multicast_xmit_packets",
    "port_rcv_data",
    "port_rcv_packets",
    "unicast_rcv_packets",
    "multicast_rcv_packets",
];

/// Counters of completions in error, in the order of [`Failure`].
pub(crate) const FAILURES: [&str; 7] = [
    "req_cqe_error",
    "req_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "resp_local_length_error",
];

/// Counters of what cannot happen to a port without a wire of its own: zero.
pub(crate) const NEVER: [&str; 13] = [
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_rcv_constraint_errors",
    "port_xmit_constraint_errors",
    "port_xmit_discards",
    "port_xmit_wait",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
];

/// A file and its text: how old the counters of its folder are at most, in milliseconds.
pub(crate) const LIFESPAN: (&str, &str) = ("lifespan", "10\n");

/// `port_xmit_data` and `port_rcv_data` count words of four bytes.
const WORD: u64 = 4;

#[derive(Clone, Copy)]
enum Failure {
    Request,
    RequestFlushed,
    RequestAccess,
    RequestInvalid,
    Receive,
    ReceiveFlushed,
    ReceiveTooShort,
}

/// Datagrams in one direction.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    unicast: AtomicU64,
    multicast: AtomicU64,
    bytes: AtomicU64,
}

impl Datagrams {
    pub(crate) fn count(&self, bytes: usize, multicast: bool) {
        let which = if multicast { &self.multicast } else { &self.unicast };
        which.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The sums of one context: of traffic, and of failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    traffic: [u64; TRAFFIC.len()],
    failures: [u64; FAILURES.len()],
}

/// Counters of the port, as far as one context moves them.
#[derive(Debug, Default)]
pub(crate) struct Port {
    pub(crate) sent: Datagrams,
    pub(crate) received: Datagrams,
    failures: [AtomicU64; FAILURES.len()],
    /// The directory that stands for `/sys`.
    root: Option<PathBuf>,
    /// Sums that have been added to the files.
    added: Mutex<Sums>,
    /// Which chain of timers goes on: the last that was begun.
    chain: AtomicU64,
    /// When something has last changed.
    changed: Mutex<Option<Instant>>,
}

impl Port {
    pub(crate) fn new() -> Port {
        let root = environment::variable("TRANSOM_SYSFS").map(PathBuf::from);
        Port { root, ..Port::default() }
    }

    /// A completion in error was retrieved. Those of requests that were flushed are counted apart.
    pub(crate) fn failed(&self, completion: &Completion, status: u32) {
        let receive =
            matches!(completion.kind, CompletionKind::Receive | CompletionKind::ReceiveWrite);
        let (all, detail) = match (receive, status) {
            (true, status::WR_FLUSH_ERR) => (Failure::ReceiveFlushed, None),
            (true, status::LOC_LEN_ERR) => (Failure::Receive, Some(Failure::ReceiveTooShort)),
            (true, _) => (Failure::Receive, None),
            (false, status::WR_FLUSH_ERR) => (Failure::RequestFlushed, None),
            (false, status::REM_ACCESS_ERR) => (Failure::Request, Some(Failure::RequestAccess)),
            (false, status::REM_INV_REQ_ERR) => (Failure::Request, Some(Failure::RequestInvalid)),
            (false, _) => (Failure::Request, None),
        };
        for failure in [Some(all), detail].into_iter().flatten() {
            if let Some(count) = self.failures.get(failure as usize) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn changed(&self) -> MutexGuard<'_, Option<Instant>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The counters of a context.
fn sums(context: &Context) -> Sums {
    let [sent, received] = context.adapter.traffic();
    let port = &context.port;
    let direction = |links: transom_engine::raw::Traffic, datagrams: &Datagrams| {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let (unicast, multicast) =
            (links.packets + count(&datagrams.unicast), count(&datagrams.multicast));
        let data = (links.bytes + count(&datagrams.bytes)) / WORD;
        [data, unicast + multicast, unicast, multicast]
    };
    let [a, b, c, d] = direction(sent, &port.sent);
    let [e, f, g, h] = direction(received, &port.received);
    Sums {
        traffic: [a, b, c, d, e, f, g, h],
        failures: port.failures.each_ref().map(|count| count.load(Ordering::Relaxed)),
    }
}

/// The files follow what this context does from now on, if there are any.
pub(crate) fn watch(context: &Arc<Context>) {
    if context.port.root.is_some() {
        *context.port.changed() = Some(Instant::now());
        let chain = context.port.chain.fetch_add(1, Ordering::Relaxed) + 1;
        later(context, chain, LIVELY);
    }
}

fn later(context: &Arc<Context>, chain: u64, wait: Duration) {
    let context = Arc::downgrade(context);
    timers::after(wait, move || {
        let Some(context) = context.upgrade() else { return };
        if context.port.chain.load(Ordering::Relaxed) != chain {
            return;
        }
        let begun = Instant::now();
        if add(&context) != Added::Nothing {
            *context.port.changed() = Some(begun);
        }
        let calm = context.port.changed().is_none_or(|then| begun.duration_since(then) >= CALM);
        if calm && !context.has_queue_pairs() {
            return; // the next queue pair begins another chain
        }
        let wait = if calm { RESTING } else { LIVELY };
        later(&context, chain, wait.max(begun.elapsed() * PART));
    });
}

/// Add the last counts of a context that is being closed.
pub(crate) fn finish(context: &Context) {
    context.port.chain.fetch_add(1, Ordering::Relaxed);
    for _ in 0..TRIES {
        if add(context) != Added::Later {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

#[derive(PartialEq, Eq)]
enum Added {
    /// There is nothing to add, or nowhere.
    Nothing,
    All,
    /// Another process adds at this moment.
    Later,
}

/// Add what has come since the last time to the files.
fn add(context: &Context) -> Added {
    let Some(root) = &context.port.root else { return Added::Nothing };
    let mut added = context.port.added.lock().unwrap_or_else(PoisonError::into_inner);
    let now = sums(context);
    if *added == now {
        return Added::Nothing;
    }
    let done = add_between(root, context.device, &mut added, now);
    match done {
        Ok(true) => Added::All,
        Ok(false) => Added::Later,
        // Said when the device was written.
        Err(_) => Added::Nothing,
    }
}

fn add_between(root: &Path, device: usize, added: &mut Sums, now: Sums) -> std::io::Result<bool> {
    let Some(name) = environment::devices().get(device).map(|device| &*device.name) else {
        return Ok(true);
    };
    let Sums { traffic, failures } = added;
    Ok(sysfs::count(root, (device, name), "counters", &TRAFFIC, traffic, &now.traffic)?
        && sysfs::count(root, (device, name), "hw_counters", &FAILURES, failures, &now.failures)?)
}
