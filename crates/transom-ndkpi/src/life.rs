//! Lifetimes (NDK 3): which object must outlive which, and when a close is over.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::Status;
use crate::deliver::{Deliverer, Job, Mode, lock};

/// The life of one object. An *antecedent* lives at least as long as its *successors*: its close
/// waits for theirs (NDK LT-9).
pub(crate) struct Life {
    state: Mutex<LifeState>,
    closed: Condvar,
    deliverer: Deliverer,
}

#[derive(Default)]
struct LifeState {
    antecedents: Vec<Arc<Life>>,
    successors: usize,
    /// Requests whose callback has not returned, and callbacks that are running.
    busy: usize,
    closing: bool,
    /// Ends what belongs to the object: runs once, when nothing hangs on it any more.
    end: Option<Job>,
    /// The callback for when the close is over; `None` once it was taken.
    done: Option<Job>,
    over: bool,
}

/// Keeps its object's close from being over.
pub(crate) struct Busy(Arc<Life>);

impl Life {
    pub(crate) fn new(deliverer: &Deliverer, antecedents: &[&Arc<Life>]) -> Arc<Life> {
        let life = Arc::new(Life {
            state: Mutex::new(LifeState::default()),
            closed: Condvar::new(),
            deliverer: deliverer.clone(),
        });
        for antecedent in antecedents {
            life.follow(antecedent);
        }
        life
    }

    /// A relation that begins later than creation: QP to connector, MR to window (NDK 2.2).
    pub(crate) fn follow(&self, antecedent: &Arc<Life>) {
        lock(&antecedent.state).successors += 1;
        lock(&self.state).antecedents.push(Arc::clone(antecedent));
    }

    /// The relation ends before either object does.
    pub(crate) fn leave(&self, antecedent: &Arc<Life>) {
        let mut state = lock(&self.state);
        let found = state.antecedents.iter().position(|other| Arc::ptr_eq(other, antecedent));
        let left = found.map(|index| state.antecedents.swap_remove(index));
        drop(state);
        if let Some(antecedent) = left {
            antecedent.successor_gone();
        }
    }

    /// A request begins, or a callback for this object is about to run. `None`: it is being closed,
    /// and nothing new may start (NDK LT-8).
    pub(crate) fn busy(self: &Arc<Self>) -> Option<Busy> {
        let mut state = lock(&self.state);
        if state.closing {
            return None;
        }
        state.busy += 1;
        Some(Busy(Arc::clone(self)))
    }

    pub(crate) fn is_closing(&self) -> bool {
        lock(&self.state).closing
    }

    /// Close: never fails (NDK LT-3). `SUCCESS`: it is over, `done` is not called. `PENDING`:
    /// `done` is called once, as the object's last callback. The object has already cancelled what
    /// it had under way (NDK LT-6). `end` runs in either case, before it is over.
    pub(crate) fn close(self: &Arc<Self>, end: Job, done: Job) -> Status {
        let mut state = lock(&self.state);
        if state.closing {
            // The consumer's fault, and harmless: the first close is the one that counts.
            return Status::SUCCESS;
        }
        state.closing = true;
        let idle = state.successors == 0 && state.busy == 0;
        if idle && self.deliverer.mode() == Mode::Natural {
            state.over = true;
            drop(state);
            end();
            self.release();
            return Status::SUCCESS;
        }
        state.end = Some(end);
        state.done = Some(done);
        drop(state);
        self.settle();
        Status::PENDING
    }

    /// Close and wait: the adapter's way (NDK LT-11).
    pub(crate) fn close_and_wait(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        state.closing = true;
        while state.successors > 0 || state.busy > 0 {
            state = self.closed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.over = true;
    }

    fn settle(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        if !state.closing || state.over || state.successors > 0 || state.busy > 0 {
            return;
        }
        let Some(done) = state.done.take() else {
            // A thread waits instead.
            drop(state);
            self.closed.notify_all();
            return;
        };
        state.over = true;
        let end = state.end.take();
        drop(state);
        if let Some(end) = end {
            end();
        }
        let life = Arc::clone(self);
        self.deliverer.run(Box::new(move || {
            done();
            // Antecedents may close only after this callback has returned (NDK LT-10).
            life.release();
        }));
    }

    /// Let go of every antecedent.
    fn release(&self) {
        let antecedents = std::mem::take(&mut lock(&self.state).antecedents);
        for antecedent in antecedents {
            antecedent.successor_gone();
        }
    }

    fn successor_gone(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        state.successors = state.successors.saturating_sub(1);
        drop(state);
        self.settle();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.busy = state.busy.saturating_sub(1);
        drop(state);
        self.0.settle();
    }
}

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("Life")
            .field("successors", &state.successors)
            .field("busy", &state.busy)
            .field("closing", &state.closing)
            .finish_non_exhaustive()
    }
}
