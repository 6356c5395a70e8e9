//! How completions reach the consumer (NDK 0.5): which thread, and when.
//!
//! Whatever the mode, a callback runs with no lock of this provider held, and never after the call
//! has returned anything but `PENDING`.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use transom_os::threads;

use crate::Status;
use crate::life::Busy;

/// When completions are delivered. The forced modes exist so that a consumer (and this provider)
/// can be tested against every order that the interface permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Mode {
    /// Inline when the outcome is known, else on the provider's thread.
    #[default]
    Natural = 0,
    /// Always pending, and the callback runs on the calling thread inside the call.
    Nested = 1,
    /// Always pending, and the callback runs on another thread and returns before the call does.
    OtherThread = 2,
    /// Always pending, and the callback runs after the call has returned.
    AfterReturn = 3,
}

impl Mode {
    /// The three forced modes and the natural one.
    pub const ALL: [Mode; 4] = [Mode::Natural, Mode::Nested, Mode::OtherThread, Mode::AfterReturn];
}

/// Something to be run for the consumer.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Lock without giving up on poison: the state is consistent at every unlock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs jobs in the order in which it was given them.
#[derive(Clone, Debug)]
pub(crate) struct Deliverer {
    mode: Mode,
    worker: Sender<Job>,
}

thread_local! {
    /// Callbacks that the outermost call of this thread leaves for the moment it has returned.
    static LEFT: RefCell<Option<Vec<Job>>> = const { RefCell::new(None) };
}

/// A provider function is being executed on this thread.
pub(crate) struct Call {
    outermost: bool,
}

impl Call {
    pub(crate) fn enter() -> Call {
        let outermost = LEFT.with_borrow_mut(|left| {
            let outermost = left.is_none();
            left.get_or_insert_default();
            outermost
        });
        Call { outermost }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.outermost {
            let left = LEFT.with_borrow_mut(Option::take);
            left.into_iter().flatten().for_each(|job| job());
        }
    }
}

/// Leave something for the end of the outermost call; without one, do it now.
fn at_return(job: Job) {
    let now = LEFT.with_borrow_mut(|left| match left {
        Some(left) => {
            left.push(job);
            None
        }
        None => Some(job),
    });
    if let Some(job) = now {
        job();
    }
}

impl Deliverer {
    pub(crate) fn new(mode: Mode) -> std::io::Result<Deliverer> {
        let (worker, jobs) = channel::<Job>();
        threads::builder().name("transom-ndk".into()).spawn(move || {
            // Ends when the adapter, the last holder of a sender, is gone.
            for job in jobs {
                // A callback that panics (a Rust consumer's) must not take the others along.
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
        })?;
        Ok(Deliverer { mode, worker })
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Run an event or a completion whose call returned long ago, on the provider's thread.
    pub(crate) fn post(&self, job: Job) {
        // The worker lives as long as a deliverer does.
        let _ = self.worker.send(job);
    }

    /// Run an event's callback: by the mode if a call of the consumer's caused it, else on the
    /// provider's thread.
    pub(crate) fn event(&self, job: Job) {
        if LEFT.with_borrow(Option::is_some) {
            self.run(job);
        } else {
            self.post(job);
        }
    }

    /// Run something that became due inside some call of the consumer's, by the mode.
    pub(crate) fn run(&self, job: Job) {
        match self.mode {
            Mode::Natural => self.post(job),
            Mode::Nested => job(),
            Mode::OtherThread => run_elsewhere(job),
            Mode::AfterReturn => {
                let deliverer = self.clone();
                at_return(Box::new(move || deliverer.post(job)));
            }
        }
    }
}

fn run_elsewhere(job: Job) {
    let job = Arc::new(Mutex::new(Some(job)));
    let theirs = Arc::clone(&job);
    let take = move || lock(&theirs).take();
    let thread = threads::builder().spawn(move || {
        if let Some(job) = take() {
            job();
        }
    });
    match thread {
        Ok(thread) => drop(thread.join()),
        Err(_) => {
            // No thread to be had: better here than never.
            let job = lock(&job).take();
            if let Some(job) = job {
                job();
            }
        }
    }
}

/// A request under way: its outcome and its callback find each other here.
pub(crate) struct Pending<T> {
    cell: Mutex<Cell<T>>,
    known: Condvar,
    deliverer: Deliverer,
}

struct Cell<T> {
    outcome: Option<(Status, T)>,
    done: Option<Done<T>>,
    /// The call has returned `PENDING` (or may: natural mode), so the outcome goes to the callback.
    detached: bool,
    busy: Option<Busy>,
}

/// A request's callback.
pub type Done<T> = Box<dyn FnOnce(Status, T) + Send>;

impl<T: Send + 'static> Pending<T> {
    /// `busy` keeps the object from being closed until the callback has returned (NDK LT-7).
    pub(crate) fn new(deliverer: &Deliverer, busy: Option<Busy>, done: Done<T>) -> Arc<Pending<T>> {
        let cell = Cell { outcome: None, done: Some(done), detached: false, busy };
        Arc::new(Pending {
            cell: Mutex::new(cell),
            known: Condvar::new(),
            deliverer: deliverer.clone(),
        })
    }

    /// The outcome is known. Only the first one counts.
    pub(crate) fn resolve(self: &Arc<Self>, status: Status, value: T) {
        let mut cell = lock(&self.cell);
        if cell.outcome.is_some() || cell.done.is_none() {
            return;
        }
        cell.outcome = Some((status, value));
        let detached = cell.detached;
        drop(cell);
        self.known.notify_all();
        if detached {
            let pending = Arc::clone(self);
            self.deliverer.post(Box::new(move || pending.call_back()));
        }
    }

    /// End of the provider function: what it returns. `Ok` is an outcome delivered inline.
    pub(crate) fn settle(self: &Arc<Self>) -> Result<(Status, T), PendingReturned> {
        match self.deliverer.mode {
            Mode::Natural => {
                let mut cell = lock(&self.cell);
                let Some(outcome) = cell.outcome.take() else {
                    cell.detached = true;
                    return Err(PendingReturned);
                };
                let (done, busy) = (cell.done.take(), cell.busy.take());
                drop(cell);
                drop((done, busy));
                return Ok(outcome);
            }
            Mode::Nested => {
                self.wait();
                self.call_back();
            }
            Mode::OtherThread => {
                self.wait();
                let pending = Arc::clone(self);
                run_elsewhere(Box::new(move || pending.call_back()));
            }
            Mode::AfterReturn => {
                let pending = Arc::clone(self);
                at_return(Box::new(move || pending.detach()));
            }
        }
        Err(PendingReturned)
    }

    /// As [`Pending::settle`], for work that resolves this and takes too long for a call that may
    /// not block: it is done on the provider's thread, behind the call. In the forced modes a call
    /// waits for its outcome, so it is done inside the call.
    pub(crate) fn settle_after(self: &Arc<Self>, work: Job) {
        if self.deliverer.mode == Mode::Natural {
            self.detach();
            self.deliverer.post(work);
        } else {
            work();
            let _ = self.settle();
        }
    }

    fn detach(self: &Arc<Self>) {
        let mut cell = lock(&self.cell);
        cell.detached = true;
        let known = cell.outcome.is_some();
        drop(cell);
        if known {
            let pending = Arc::clone(self);
            self.deliverer.post(Box::new(move || pending.call_back()));
        }
    }

    fn wait(&self) {
        let mut cell = lock(&self.cell);
        while cell.outcome.is_none() {
            cell = self.known.wait(cell).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn call_back(&self) {
        let mut cell = lock(&self.cell);
        let (outcome, done) = (cell.outcome.take(), cell.done.take());
        let busy = cell.busy.take();
        drop(cell);
        if let (Some((status, value)), Some(done)) = (outcome, done) {
            done(status, value);
        }
        // Only now may a close of the object complete.
        drop(busy);
    }
}

/// The function returns `PENDING`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingReturned;

/// The result of a function whose outcome has no value.
pub(crate) fn returned(settled: Result<(Status, ()), PendingReturned>) -> Status {
    match settled {
        Ok((status, ())) => status,
        Err(PendingReturned) => Status::PENDING,
    }
}
