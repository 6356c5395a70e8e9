//! Inspection: what this process has registered, which peers may touch it, and which have tried.
//!
//! A process whose adapters ask for it has one thread and one socket ([`server`]), in a folder that
//! only its user can enter. A client of the same user gets the whole report ([`report`]); nothing
//! is read from it. The tables are read under the locks that control calls take; the data path is
//! not involved.

mod report;
mod server;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub(crate) use report::open_metrics;
use server::Server;

use super::schedule::shared::Shared;
use crate::sys;

/// An adapter that may be asked about.
#[derive(Clone, Debug)]
struct Inspected {
    number: u64,
    address: IpAddr,
    shared: Weak<Shared>,
}

/// The inspection of one process, while an adapter asks for it.
struct Inspection {
    /// The process: see [`sys::fork_generation`].
    generation: u64,
    next: u64,
    server: Arc<Server>,
}

type Slot = Mutex<Option<Inspection>>;

/// Each process has a slot of its own, by its generation: a lock that another thread held at the moment
/// of a fork stays locked in the child, which uses the next one.
static SLOTS: [Slot; 64] = [const { Mutex::new(None) }; 64];

fn lock(generation: u64) -> MutexGuard<'static, Option<Inspection>> {
    let slot = &SLOTS[generation as usize % SLOTS.len()];
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An adapter may be asked about from now on.
///
/// # Errors
/// Why the process cannot answer.
pub(crate) fn begin(shared: &Arc<Shared>, address: IpAddr) -> Result<(), String> {
    let generation = sys::fork_generation();
    let mut slot = lock(generation);
    // The socket of an ancestor further up the line of forks belongs to another process.
    if slot.as_ref().is_none_or(|inspection| inspection.generation != generation) {
        *slot = Some(Inspection { generation, next: 1, server: Server::start()? });
    }
    if let Some(Inspection { next, server, .. }) = slot.as_mut() {
        let inspected = Inspected { number: *next, address, shared: Arc::downgrade(shared) };
        *next += 1;
        server.adapters().push(inspected);
    }
    Ok(())
}

/// An adapter ends. With the last one the socket goes.
pub(crate) fn end(shared: &Arc<Shared>) {
    if !shared.options.inspect {
        return;
    }
    let mut slot = lock(sys::fork_generation());
    let Some(inspection) = slot.as_ref() else { return };
    let none_left = {
        let mut adapters = inspection.server.adapters();
        adapters.retain(|one| !std::ptr::addr_eq(one.shared.as_ptr(), Arc::as_ptr(shared)));
        adapters.is_empty()
    };
    if none_left {
        inspection.server.stop();
        *slot = None;
    }
}
