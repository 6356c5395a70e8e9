//! Completion queues and their notification callback (NDK 8).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use transom_engine::{Completion, Moderation, NotifyKind, raw};

use super::Adapter;
use crate::Status;
use crate::deliver::{Call, Done, Pending, lock, returned};
use crate::flags::notify;
use crate::life::Life;
use crate::table::sink;

/// The callback; called once per arm, and not while it is running.
pub type CqNotification = Box<dyn Fn(Status) + Send + Sync>;

/// A completion queue.
pub struct Cq {
    pub(crate) life: Arc<Life>,
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) raw: raw::CompletionQueue,
    notification: Option<CqNotification>,
    arm: Mutex<Arm>,
}

#[derive(Debug, Default)]
struct Arm {
    /// Armed, and for what: ERRORS < SOLICITED < ANY, whatever their numbers are (NDK CQ-5).
    armed: Option<u8>,
    /// The engine has a waiter for the failure of the queue.
    errors_watched: bool,
    running: bool,
    /// Satisfied while the callback was running (NDK CQ-3).
    due: Option<Status>,
}

impl std::fmt::Debug for Cq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cq").field("arm", &self.arm).finish_non_exhaustive()
    }
}

impl Cq {
    pub(crate) fn new(
        adapter: &Arc<Adapter>,
        depth: u32,
        notification: Option<CqNotification>,
    ) -> Result<Arc<Cq>, Status> {
        let raw = adapter.raw.completion_queue(depth as usize)?;
        let life = Life::new(&adapter.deliverer, &[&adapter.life]);
        let adapter = Arc::clone(adapter);
        Ok(Arc::new(Cq { life, adapter, raw, notification, arm: Mutex::default() }))
    }

    /// `NdkArmCq`. Unknown types are ignored (NDK CQ-15). Two arms combine to the greater (NDK
    /// CQ-5); the engine fires at once for entries newer than the last callback (NDK CQ-4).
    pub fn arm(self: &Arc<Self>, kind: u32) {
        let _call = Call::enter();
        let (rank, kind) = match kind {
            notify::ERRORS => (0, NotifyKind::Errors),
            notify::SOLICITED => (1, NotifyKind::Solicited),
            notify::ANY => (2, NotifyKind::Any),
            _ => return,
        };
        if self.notification.is_none() || self.life.is_closing() {
            return;
        }
        {
            let mut arm = lock(&self.arm);
            if arm.armed.is_some_and(|before| before >= rank) {
                return;
            }
            arm.armed = Some(rank);
            if rank == 0 && std::mem::replace(&mut arm.errors_watched, true) {
                return;
            }
        }
        let cq = Arc::downgrade(self);
        let fired = sink(move |status| {
            if let Some(cq) = cq.upgrade() {
                cq.fired(status);
            }
        });
        // A forked child gets no notification: it has no adapter.
        let _ = self.raw.notify(kind, fired);
    }

    fn fired(self: &Arc<Self>, status: Status) {
        if status == Status::CANCELLED {
            return; // the queue is being closed
        }
        {
            let mut arm = lock(&self.arm);
            if arm.armed.take().is_none() {
                return; // an earlier arm that the last callback has answered (NDK CQ-2, CQ-5)
            }
            if arm.running {
                arm.due = Some(status);
                return;
            }
            arm.running = true;
        }
        // NDK LT-7: the callback is over before the close is.
        let Some(busy) = self.life.busy() else { return };
        let cq = Arc::clone(self);
        self.adapter.deliverer.event(Box::new(move || {
            cq.run(status);
            drop(busy);
        }));
    }

    fn run(&self, mut status: Status) {
        loop {
            if let Some(notification) = &self.notification {
                notification(status);
            }
            let mut arm = lock(&self.arm);
            match arm.due.take() {
                Some(next) if !self.life.is_closing() => status = next,
                _ => {
                    arm.running = false;
                    return;
                }
            }
        }
    }

    /// `NdkResizeCq`: no entry is lost (NDK CQ-14).
    ///
    /// # Errors
    /// `INVALID_PARAMETER` for a depth above the adapter's; `BUFFER_OVERFLOW` if more entries than that
    /// are in it; `DEVICE_REMOVED`. The depth is as before then.
    pub fn resize(self: &Arc<Self>, depth: u32, done: Done<()>) -> Status {
        let _call = Call::enter();
        if depth > self.adapter.info().max_cq_depth {
            return Status::INVALID_PARAMETER;
        }
        if let Err(error) = self.raw.resize(depth as usize) {
            return error.into();
        }
        let pending = Pending::new(&self.adapter.deliverer, self.life.busy(), done);
        pending.resolve(Status::SUCCESS, ());
        returned(pending.settle())
    }

    /// `NdkControlCqInterruptModeration`: the notification waits for at most `interval` microseconds
    /// and `count` completions, from the moment at which the arm is satisfied (NDK 8).
    ///
    /// # Errors
    /// `INVALID_PARAMETER_MIX` if neither has an end: the interval is `u32::MAX`, and the count that
    /// or more than the queue holds. `DEVICE_REMOVED`. The moderation is as before then.
    pub fn moderate(&self, interval: u32, count: u32) -> Status {
        let _call = Call::enter();
        let moderation = match (interval, count) {
            (0, _) | (_, 0 | 1) => None,
            (u32::MAX, count) if count == u32::MAX || count as usize > self.raw.capacity() => {
                return Status::INVALID_PARAMETER_MIX;
            }
            (interval, count) => Some(Moderation {
                count: if count == u32::MAX { usize::MAX } else { count as usize },
                interval: (interval != u32::MAX)
                    .then(|| Duration::from_micros(u64::from(interval))),
            }),
        };
        self.raw.moderate(moderation).map_or_else(Status::from, |()| Status::SUCCESS)
    }

    /// `NdkGetCqResults(Ex)`: removes up to `results.len()` entries, in order (NDK CQ-9).
    pub fn results(&self, results: &mut [Completion]) -> usize {
        let _call = Call::enter();
        self.raw.poll(results)
    }

    /// `NdkCloseCq`.
    pub fn close(self: &Arc<Self>, done: impl FnOnce() + Send + 'static) -> Status {
        let _call = Call::enter();
        let cq = Arc::clone(self);
        self.life.close(Box::new(move || cq.raw.cancel()), Box::new(done))
    }
}
