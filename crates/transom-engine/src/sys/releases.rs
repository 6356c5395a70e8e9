//! The thread that releases what other processes can make slow to release.
//!
//! Closing a Unix socket releases the descriptors that lie in it unread, and the last close of a
//! descriptor waits for as long as its sender likes: a TCP socket for its SO_LINGER time (socket(7)), a
//! file of a FUSE file system for its server. Taking a large mapping of a peer's memory away may free
//! all of its pages. No thread that serves a connection does either: a descriptor that is
//! [foreign](super::Fd::foreign), and a mapping of lent memory, comes here.
//!
//! A process that keeps this thread waiting keeps what is behind it in the queue from being released. So
//! that this stays bounded, no further Unix socket is accepted or connected while much waits
//! ([`is_behind`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::{Fd, fork_generation, spawn_quiet};

/// With so many releases waiting, nothing is begun that would need another one.
const MOST: usize = 256;

/// Something to release.
pub(super) enum Release {
    /// Closed by its drop.
    Close(Fd),
    /// Addresses without a reference into them.
    Unmap { base: usize, length: usize },
}

impl Release {
    fn now(self) {
        match self {
            Release::Close(fd) => drop(fd),
            Release::Unmap { base, length } => {
                // SAFETY: the caller of `release` has given up the mapping, which has no reference into it.
                let _ = unsafe { rustix::mm::munmap(base as *mut _, length) };
            }
        }
    }
}

/// The queue of one process: a forked child has neither the thread nor what waits for it.
struct Queue {
    generation: u64,
    state: Mutex<State>,
    changed: Condvar,
    waiting: AtomicUsize,
}

#[derive(Default)]
struct State {
    releases: VecDeque<Release>,
    keepers: usize,
    runs: bool,
}

static QUEUE: AtomicPtr<Queue> = AtomicPtr::new(std::ptr::null_mut());

/// The queue of this process. One that was made in a parent is never looked into: a thread of the parent's may
/// have held its lock.
fn queue() -> &'static Queue {
    let generation = fork_generation();
    loop {
        let before = QUEUE.load(Ordering::Acquire);
        // SAFETY: null, or stored below and never freed.
        match unsafe { before.as_ref() } {
            Some(queue) if queue.generation == generation => return queue,
            _ => {}
        }
        let fresh = Box::into_raw(Box::new(Queue {
            generation,
            state: Mutex::default(),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }));
        let stored = QUEUE.compare_exchange(before, fresh, Ordering::AcqRel, Ordering::Acquire);
        if stored.is_err() {
            // SAFETY: made above, and not stored anywhere.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Start the thread if there is none.
    fn serve(&'static self, state: &mut State) -> std::io::Result<()> {
        if !state.runs {
            spawn_quiet("transom-release", || self.run())?;
            state.runs = true;
        }
        Ok(())
    }

    /// Releases one after the other, until there are neither any nor keepers.
    fn run(&self) {
        let mut state = self.lock();
        loop {
            if let Some(release) = state.releases.pop_front() {
                self.waiting.store(state.releases.len(), Ordering::Relaxed);
                drop(state);
                release.now();
                state = self.lock();
            } else if state.keepers == 0 {
                state.runs = false;
                return;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Have the thread release something. Waits for nothing. Where no thread can be had it stays unreleased
/// until one can.
pub(super) fn release(what: Release) {
    let queue = queue();
    let mut state = queue.lock();
    state.releases.push_back(what);
    queue.waiting.store(state.releases.len(), Ordering::Relaxed);
    let _ = queue.serve(&mut state);
    drop(state);
    queue.changed.notify_one();
}

/// Whether so much waits to be released that nothing may be begun which needs another release.
pub(crate) fn is_behind() -> bool {
    queue().waiting.load(Ordering::Relaxed) >= MOST
}

/// Has the thread run for as long as this lives, so that no release has to start it.
#[derive(Debug)]
pub(crate) struct ReleaseKeeper {
    generation: u64,
}

impl ReleaseKeeper {
    /// Start the thread, unless it runs.
    ///
    /// # Errors
    /// The error of the system, which has no thread.
    pub(crate) fn new() -> std::io::Result<ReleaseKeeper> {
        let queue = queue();
        let mut state = queue.lock();
        queue.serve(&mut state)?;
        state.keepers += 1;
        Ok(ReleaseKeeper { generation: queue.generation })
    }
}

impl Drop for ReleaseKeeper {
    fn drop(&mut self) {
        let queue = queue();
        if self.generation == queue.generation {
            queue.lock().keepers -= 1;
            queue.changed.notify_one();
        }
    }
}
