//! The thread that releases what other processes can make slow to release.
//!
//! Closing a Unix socket releases the descriptors that lie in it unread, and the last close of a
//! descriptor waits for as long as its sender likes: a TCP socket for its SO_LINGER time (socket(7)), a
//! file of a FUSE file system for its server. Taking a large mapping of a peer's memory away may free
//! all of its pages. Giving pages of shared memory back waits for the lock of its file, which a peer holds
//! while it writes to the file out of memory whose pages do not come (userfaultfd(2)). No thread that
//! serves a connection does any of it: a descriptor that is [foreign](super::Fd::foreign), a mapping of
//! lent memory, and pages to be given back come here.
//!
//! A process that keeps this thread waiting keeps what is behind it in the queue from being released. So
//! that this stays bounded, no upgrade is begun while much waits ([`is_behind`]), and no other Unix socket is
//! accepted or connected while twice as much does ([`is_full`]): upgrade sockets are open to all, and what
//! is given to them keeps no inspection and no hand-over of a socket from coming about.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::mm::{Advice, madvise, munmap};

use super::{Fd, fork_generation, now, pause, spawn_quiet};

/// With so many releases waiting, nothing is begun that has another way; with twice as many, nothing
/// that would need another one.
const MOST: usize = 256;

/// Something to release.
pub(super) enum Release {
    /// A descriptor of ours.
    Close(Fd),
    /// Addresses without a reference into them.
    Unmap { base: usize, length: usize },
    /// Pages of a mapping that an [`Unmap`](Release::Unmap) behind this takes away, if anything does. They
    /// are zeros afterwards, for every process.
    GiveBack { base: usize, length: usize, progress: Arc<AtomicU8> },
}

const ASKED: u8 = 0;
const BEGUN: u8 = 1;
const OVER: u8 = 2;

/// Pages that are on their way back to the system.
#[derive(Debug)]
pub(crate) struct GivingBack(Arc<AtomicU8>);

impl GivingBack {
    /// Have the thread give pages back.
    pub(super) fn begin(base: usize, length: usize) -> GivingBack {
        let progress = Arc::new(AtomicU8::new(ASKED));
        release(Release::GiveBack { base, length, progress: progress.clone() });
        GivingBack(progress)
    }

    /// Keep the pages if they have not been given back. `false`: they are being given back this moment.
    pub(crate) fn stop(&self) -> bool {
        let stopped = self.0.compare_exchange(ASKED, OVER, Ordering::AcqRel, Ordering::Acquire);
        stopped.is_ok() || self.is_over()
    }

    fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == OVER
    }

    /// Wait until they have been given back, for `most`: they will be, later than that, too.
    pub(super) fn wait(&self, most: Duration) {
        const PAUSE: Duration = Duration::from_micros(20);
        let end = now().after(most);
        while !self.is_over() && now() < end {
            pause(PAUSE);
        }
    }
}

impl Release {
    fn now(self) {
        match self {
            Release::Close(fd) => fd.close_slowly(),
            Release::Unmap { base, length } => {
                // SAFETY: the caller of `release` has given up the mapping, which has no reference into it.
                let _ = unsafe { munmap(base as *mut _, length) };
            }
            Release::GiveBack { base, length, progress } => {
                let begun =
                    progress.compare_exchange(ASKED, BEGUN, Ordering::AcqRel, Ordering::Acquire);
                if begun.is_ok() {
                    // SAFETY: pages of a mapping of shared memory, which is taken away behind this at the
                    // earliest; no reference into them exists, and nothing is unmapped.
                    let _ = unsafe { madvise(base as *mut _, length, Advice::LinuxRemove) };
                    progress.store(OVER, Ordering::Release);
                }
            }
        }
    }
}

/// The queue of one process: a forked child has neither the thread nor what waits for it.
struct Queue {
    generation: u64,
    state: Mutex<ReleaseState>,
    changed: Condvar,
    waiting: AtomicUsize,
}

#[derive(Default)]
struct ReleaseState {
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
    fn lock(&self) -> MutexGuard<'_, ReleaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Start the thread if there is none.
    fn serve(&'static self, state: &mut ReleaseState) -> std::io::Result<()> {
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

/// Whether so much waits to be released that nothing may be begun which needs another release and could do
/// without.
pub(crate) fn is_behind() -> bool {
    queue().waiting.load(Ordering::Relaxed) >= MOST
}

/// Whether so much waits to be released that nothing may be begun which needs another release.
pub(super) fn is_full() -> bool {
    queue().waiting.load(Ordering::Relaxed) >= 2 * MOST
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
