//! Many futures on one thread: as little of an executor as is needed to measure what is below it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use transom::Adapter;

use crate::command::exit::Outcome;

type Task<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// A future, until it is through, and what wakes it.
struct Slot<'a> {
    task: Option<Task<'a>>,
    handle: Arc<Handle>,
    waker: Waker,
}

/// Futures, and which of them want to be polled.
pub(crate) struct Tasks<'a> {
    tasks: Vec<Slot<'a>>,
    /// Slots of futures that are through.
    free: Vec<usize>,
    ready: Arc<Ready>,
    running: usize,
    added: Spawner<'a>,
}

/// Lets a running future add others.
#[derive(Clone, Default)]
pub(crate) struct Spawner<'a>(Rc<RefCell<Vec<Task<'a>>>>);

impl<'a> Spawner<'a> {
    /// Another task, to be polled soon.
    pub(crate) fn add(&self, task: impl Future<Output = Outcome> + 'a) {
        self.0.borrow_mut().push(Box::pin(task));
    }
}

#[derive(Default)]
struct Ready {
    queue: Mutex<VecDeque<usize>>,
    changed: Condvar,
}

impl Ready {
    fn queue(&self) -> MutexGuard<'_, VecDeque<usize>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Handle {
    index: usize,
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for Handle {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.queue().push_back(self.index);
            self.ready.changed.notify_one();
        }
    }
}

impl<'a> Tasks<'a> {
    pub(crate) fn new() -> Tasks<'a> {
        let (ready, added) = (Arc::default(), Spawner::default());
        Tasks { tasks: Vec::new(), free: Vec::new(), ready, running: 0, added }
    }

    /// Another task, to be polled soon.
    pub(crate) fn add(&mut self, task: impl Future<Output = Outcome> + 'a) {
        self.start(Box::pin(task));
    }

    /// For futures that add others.
    pub(crate) fn spawner(&self) -> Spawner<'a> {
        self.added.clone()
    }

    fn start(&mut self, task: Task<'a>) {
        let index = self.free.pop().unwrap_or(self.tasks.len());
        let handle =
            Arc::new(Handle { index, queued: AtomicBool::new(true), ready: self.ready.clone() });
        self.ready.queue().push_back(index);
        let waker = Waker::from(handle.clone());
        let slot = Slot { task: Some(task), handle, waker };
        match self.tasks.get_mut(index) {
            Some(through) => *through = slot,
            None => self.tasks.push(slot),
        }
        self.running += 1;
    }

    /// Poll them until all are through, or `over` says so after one of them was polled. Meanwhile
    /// `spin` on an adapter, or sleep while its own thread works.
    pub(crate) fn run(&mut self, spin: Option<&Adapter>, over: impl Fn() -> bool) -> Outcome {
        while self.running > 0 && !over() {
            let Some(index) = self.next(spin) else { continue };
            let Some(slot) = self.tasks.get_mut(index) else { continue };
            // From here on it may be woken again.
            slot.handle.queued.swap(false, Ordering::AcqRel);
            let Some(task) = &mut slot.task else { continue };
            let done = task.as_mut().poll(&mut Context::from_waker(&slot.waker));
            if let Poll::Ready(outcome) = done {
                slot.task = None;
                self.free.push(index);
                self.running -= 1;
                outcome?;
            }
            let added = self.added.0.take();
            added.into_iter().for_each(|task| self.start(task));
        }
        Ok(())
    }

    fn next(&self, spin: Option<&Adapter>) -> Option<usize> {
        let mut queue = self.ready.queue();
        if let Some(adapter) = spin {
            if let Some(index) = queue.pop_front() {
                return Some(index);
            }
            drop(queue);
            adapter.poll();
            return None;
        }
        loop {
            match queue.pop_front() {
                Some(index) => return Some(index),
                None => {
                    queue = self.ready.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}
