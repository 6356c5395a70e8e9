//! Shared receive queues and their notification callback (NDK SRQ-1 to SRQ-8).

use std::sync::{Arc, Mutex};

use transom_engine::{Sge, raw};

use super::{CqNotification, Pd};
use crate::Status;
use crate::deliver::{Call, Done, Pending, lock, returned};
use crate::life::Life;
use crate::table::sink;

/// The callback: fewer receives than the threshold wait.
pub type SrqNotification = CqNotification;

/// A shared receive queue.
pub struct Srq {
    pub(crate) life: Arc<Life>,
    pub(crate) pd: Arc<Pd>,
    pub(crate) raw: raw::SharedReceiveQueue,
    notification: Option<SrqNotification>,
    arm: Mutex<Arm>,
}

/// At most one notification is outstanding (NDK SRQ-2).
#[derive(Debug, Default)]
struct Arm {
    /// The number of the notification that is armed.
    armed: Option<u64>,
    last: u64,
}

impl Arm {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.armed = Some(self.last);
        self.last
    }
}

impl std::fmt::Debug for Srq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Srq").field("arm", &self.arm).finish_non_exhaustive()
    }
}

impl Srq {
    pub(crate) fn new(
        pd: &Arc<Pd>,
        depth: u32,
        sge: u32,
        threshold: u32,
        notification: Option<SrqNotification>,
    ) -> Result<Arc<Srq>, Status> {
        let info = pd.adapter.info();
        if depth > info.max_srq_depth || sge > info.max_receive_request_sge {
            return Err(Status::INVALID_PARAMETER);
        }
        let adapter = &pd.adapter.raw;
        let raw = adapter.shared_receive_queue_in(pd.raw, depth as usize, sge as usize)?;
        raw.modify(0, threshold as usize)?;
        let life = Life::new(&pd.adapter.deliverer, &[&pd.life]);
        let (pd, arm) = (Arc::clone(pd), Mutex::default());
        let srq = Arc::new(Srq { life, pd, raw, notification, arm });
        if threshold > 0 {
            // An empty queue does not notify (NDK SRQ-5).
            srq.arm(|fired| srq.raw.notify_when_used(fired))?;
        }
        Ok(srq)
    }

    /// Ask for a notification by `ask`.
    fn arm(self: &Arc<Self>, ask: impl FnOnce(raw::Sink) -> raw::Result<()>) -> Result<(), Status> {
        if self.notification.is_none() {
            return Ok(());
        }
        let number = lock(&self.arm).next();
        let srq = Arc::downgrade(self);
        let fired = sink(move |status| {
            if let Some(srq) = srq.upgrade() {
                srq.fired(number, status);
            }
        });
        Ok(ask(fired)?)
    }

    fn fired(self: &Arc<Self>, number: u64, status: Status) {
        {
            let mut arm = lock(&self.arm);
            if status == Status::CANCELLED || arm.armed != Some(number) {
                return; // closed, or armed anew
            }
            arm.armed = None;
        }
        // NDK LT-7: the callback is over before the close is.
        let Some(busy) = self.life.busy() else { return };
        let srq = Arc::clone(self);
        self.pd.adapter.deliverer.event(Box::new(move || {
            if let Some(notification) = &srq.notification {
                notification(status);
            }
            drop(busy);
        }));
    }

    /// `NdkModifySrq`: a threshold arms the notification, which comes now if fewer receives wait
    /// (NDK SRQ-3); 0 leaves depth, or threshold and arm state, as they are (NDK SRQ-4).
    ///
    /// # Errors
    /// `INVALID_PARAMETER` for a depth above the adapter's; `BUFFER_OVERFLOW` if more receives than
    /// that wait; `DEVICE_REMOVED`. Nothing has changed then.
    pub fn modify(self: &Arc<Self>, depth: u32, threshold: u32, done: Done<()>) -> Status {
        let _call = Call::enter();
        if depth > self.pd.adapter.info().max_srq_depth {
            return Status::INVALID_PARAMETER;
        }
        if let Err(status) = self.try_modify(depth, threshold) {
            return status;
        }
        let pending = Pending::new(&self.pd.adapter.deliverer, self.life.busy(), done);
        pending.resolve(Status::SUCCESS, ());
        returned(pending.settle())
    }

    fn try_modify(self: &Arc<Self>, depth: u32, threshold: u32) -> Result<(), Status> {
        let before = lock(&self.arm).armed;
        self.raw.modify(depth as usize, threshold as usize)?;
        let was_fired = before.is_some() && lock(&self.arm).armed.is_none();
        if threshold == 0 || was_fired {
            return Ok(());
        }
        self.raw.cancel(); // what is armed anew below
        self.arm(|fired| self.raw.notify(fired))
    }

    /// `NdkSrqReceive`.
    ///
    /// # Errors
    /// `NO_MORE_ENTRIES` for a full queue, `DATA_OVERRUN` for a list that is too long,
    /// `BUFFER_OVERFLOW` for too many bytes, `DEVICE_REMOVED`.
    pub fn receive(&self, context: u64, sges: &[Sge]) -> Status {
        let _call = Call::enter();
        let resolved = self.pd.resolved(sges);
        let posted = self.raw.post_receive(context, resolved.as_deref().unwrap_or(sges));
        posted.map_or_else(Status::from, |()| Status::SUCCESS)
    }

    /// `NdkCloseSrq`: receives that no queue pair has taken are gone.
    pub fn close(self: &Arc<Self>, done: impl FnOnce() + Send + 'static) -> Status {
        let _call = Call::enter();
        let srq = Arc::clone(self);
        self.life.close(Box::new(move || srq.raw.cancel()), Box::new(done))
    }
}
