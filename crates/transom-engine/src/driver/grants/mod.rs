//! The ledger of grants: what of the windows and regions that peers may use was not as it should be,
//! printed when the process exits.
//!
//! Each adapter that asks for it has its memory table review the grants ([`Review`]); an adapter that
//! ends leaves its findings here. `sites` knows where in the program each grant was made, `text` has
//! the words.

mod sites;
mod text;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use transom_memory::{QueuePairId, Review, Token};

use self::sites::Sites;
use super::config::options::GrantLedger;
use super::schedule::shared::Shared;
use crate::sys::{self, AtExit};

/// The exit status of a process that would have ended with 0, if its ledger is strict and has
/// findings.
pub const LEDGER_STATUS: i32 = 97;

/// Queue pairs whose peer is remembered, for the report.
const MOST_PEERS: usize = 4096;

/// The ledger of one process.
#[derive(Debug)]
struct Books {
    /// The process: see [`sys::fork_generation`].
    generation: u64,
    wanted: GrantLedger,
    adapters: Vec<Weak<Shared>>,
    /// Findings of adapters that have ended.
    ended: Review,
    sites: Sites,
    peers: HashMap<u32, SocketAddr>,
}

/// Each process has a slot of its own, by its generation: a lock that another thread held at the moment
/// of a fork stays locked in the child, which uses the next one.
static SLOTS: [Mutex<Option<Books>>; 64] = [const { Mutex::new(None) }; 64];

/// The slot of this process; what a process far up the line of forks has left is gone from it.
fn books() -> MutexGuard<'static, Option<Books>> {
    let generation = sys::fork_generation();
    let slot = &SLOTS[generation as usize % SLOTS.len()];
    let mut books = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if books.as_ref().is_some_and(|books| books.generation != generation) {
        *books = None;
    }
    books
}

/// The grants of an adapter are looked at from now on, and printed when the process exits.
///
/// # Errors
/// Why that is impossible.
pub(crate) fn begin(shared: &Arc<Shared>) -> Result<(), &'static str> {
    let Some(wanted) = shared.options.ledger else { return Ok(()) };
    sys::add_exit_hook(AtExit::GrantLedger, at_exit)?;
    let mut books = books();
    let books = books.get_or_insert_with(|| Books {
        generation: sys::fork_generation(),
        wanted,
        adapters: Vec::new(),
        ended: Review::default(),
        sites: Sites::default(),
        peers: HashMap::new(),
    });
    books.wanted.strict |= wanted.strict;
    books.wanted.backtrace |= wanted.backtrace;
    books.adapters.push(Arc::downgrade(shared));
    Ok(())
}

/// An adapter ends: what is open now was never closed by its program.
pub(crate) fn end(shared: &Arc<Shared>) {
    if shared.options.ledger.is_none() {
        return;
    }
    let review = shared.memory.review(sys::now().0);
    if let Some(books) = &mut *books() {
        let before = books.adapters.len();
        books.adapters.retain(|one| !std::ptr::addr_eq(one.as_ptr(), Arc::as_ptr(shared)));
        if books.adapters.len() < before {
            books.ended.merge(&review);
        }
    }
}

impl Shared {
    /// A region or a window was made by the calling thread; a window for the peer of a queue pair.
    #[inline]
    pub(crate) fn made(
        &self,
        token: Token,
        to: impl FnOnce() -> Option<(QueuePairId, SocketAddr)>,
    ) {
        if self.options.ledger.is_some() {
            self.enter(token, to());
        } else if self.options.inspect {
            self.memory.made(token, 0, sys::recently().0);
        }
    }

    /// Enter what was made in the ledger of grants.
    #[inline(never)]
    fn enter(&self, token: Token, to: Option<(QueuePairId, SocketAddr)>) {
        let frames = sys::call_frames();
        let origin = match &mut *books() {
            Some(books) => {
                if let Some((number, peer)) = to.filter(|_| books.peers.len() < MOST_PEERS) {
                    books.peers.insert(number.0, peer);
                }
                books.sites.number(frames)
            }
            None => 0,
        };
        self.memory.made(token, origin, sys::recently().0);
    }
}

/// The process exits: print the ledger. The status to exit with instead, if there is one.
fn at_exit(status: i32) -> Option<i32> {
    let mut books = books();
    let books = books.as_mut()?;
    let mut review = std::mem::take(&mut books.ended);
    for shared in books.adapters.drain(..).filter_map(|one| one.upgrade()) {
        review.merge(&shared.memory.review(sys::now().0));
        // Threads of the program may still use it.
        std::mem::forget(shared);
    }
    let report = text::report(&review, &books.sites, &books.peers, books.wanted.backtrace);
    transom_os::say!("{}", report.trim_end_matches('\n'));
    let findings = !review.findings().is_empty() || review.left_out > 0;
    (books.wanted.strict && findings && status == 0).then_some(LEDGER_STATUS)
}
