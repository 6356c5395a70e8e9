//! Shared receive queues.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use transom_engine::{Status, raw};

use crate::abi::{event, ibv_srq_attr};
use crate::channel::Acknowledged;
use crate::completion::Queue;
use crate::context::{AsyncEvent, Context};
use crate::errno::{Errno, Result};
use crate::limits;
use crate::memory::{Domain, Users};
use crate::xrc::XrcDomain;

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    pub(crate) domain: Arc<Domain>,
    pub(crate) engine: raw::SharedReceiveQueue,
    pub(crate) handle: u32,
    /// Where the program's structure is.
    pub(crate) address: AtomicUsize,
    pub(crate) users: Users,
    pub(crate) async_events: Acknowledged,
    attr: Mutex<ibv_srq_attr>,
    /// Entries of a receive.
    pub(crate) max_sge: u32,
    /// Of a queue that messages find by its number.
    pub(crate) xrc: Option<Numbered>,
    /// The domain does not count it any more.
    left: AtomicBool,
}

/// A queue's place in an XRC domain.
#[derive(Debug)]
pub(crate) struct Numbered {
    domain: Arc<XrcDomain>,
    completions: Arc<Queue>,
    pub(crate) number: u32,
}

/// Bits of the mask of `ibv_modify_srq`.
const MAX_WR: u32 = 1;
const LIMIT: u32 = 2;

impl SharedQueue {
    /// A queue at least as deep as asked for; what is granted is written back.
    /// `xrc`: the XRC domain in which messages find it, and where its receives complete.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        xrc: Option<(&Arc<XrcDomain>, &Arc<Queue>)>,
        asked: &mut ibv_srq_attr,
    ) -> Result<SharedQueue> {
        let fits =
            (1..=limits::SHARED_DEPTH).contains(&asked.max_wr) && asked.max_sge <= limits::SGE;
        if !fits || asked.srq_limit > asked.max_wr {
            return Err(Errno::EINVAL);
        }
        let context = &domain.context;
        let foreign = |of: &Arc<Context>| !Arc::ptr_eq(of, context);
        if xrc.is_some_and(|(of, queue)| foreign(of.context()) || foreign(&queue.context)) {
            return Err(Errno::EINVAL);
        }
        context.counters.shared_queues.take()?;
        let granted = ibv_srq_attr {
            max_wr: asked.max_wr.next_power_of_two(),
            max_sge: asked.max_sge.max(1),
            srq_limit: 0,
        };
        let (depth, sge) = (granted.max_wr as usize, granted.max_sge as usize);
        let engine = context
            .adapter
            .shared_receive_queue_in(domain.domain, depth, sge)
            .inspect_err(|_| {
                context.counters.shared_queues.give_back();
            })?;
        let xrc = xrc.map(|(domain, completions)| {
            let number = domain.engine.add(&engine, &completions.engine)?;
            domain.users.join();
            completions.users.join();
            Ok(Numbered { domain: domain.clone(), completions: completions.clone(), number })
        });
        let xrc = xrc.transpose().inspect_err(|_: &Errno| {
            context.counters.shared_queues.give_back();
        })?;
        domain.join();
        *asked = granted;
        Ok(SharedQueue {
            domain: domain.clone(),
            engine,
            handle: context.handle(),
            address: AtomicUsize::new(0),
            users: Users::default(),
            async_events: Acknowledged::default(),
            attr: Mutex::new(granted),
            max_sge: granted.max_sge,
            xrc,
            left: AtomicBool::new(false),
        })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.domain.context
    }

    pub(crate) fn query(&self) -> ibv_srq_attr {
        *self.attr.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Change depth or limit. The limit raises one event (Verbs V59).
    pub(crate) fn modify(self: &Arc<SharedQueue>, asked: &ibv_srq_attr, mask: u32) -> Result {
        if mask & !(MAX_WR | LIMIT) != 0 {
            return Err(Errno::EINVAL);
        }
        let mut attr = self.attr.lock().unwrap_or_else(PoisonError::into_inner);
        let depth = if mask & MAX_WR == 0 { attr.max_wr } else { asked.max_wr };
        let limit = if mask & LIMIT == 0 { attr.srq_limit } else { asked.srq_limit };
        if depth == 0 || depth > limits::SHARED_DEPTH || limit > depth {
            return Err(Errno::EINVAL);
        }
        if mask & MAX_WR != 0 {
            let depth = depth.next_power_of_two();
            self.engine.modify(depth as usize, 0).map_err(|_| Errno::EINVAL)?;
            attr.max_wr = depth;
        }
        if mask & LIMIT != 0 {
            self.engine.cancel();
            attr.srq_limit = limit;
            if limit > 0 {
                self.engine.modify(0, limit as usize).map_err(|_| Errno::EINVAL)?;
                drop(attr); // the sink may be called before `notify` returns
                let queue = Arc::downgrade(self);
                let sink = raw::Sink::call(move |status| {
                    if let (Some(queue), Status::Success) = (queue.upgrade(), status) {
                        queue.reached();
                    }
                });
                self.engine.notify(sink)?;
            }
        }
        Ok(())
    }

    fn reached(self: &Arc<SharedQueue>) {
        self.attr.lock().unwrap_or_else(PoisonError::into_inner).srq_limit = 0;
        let raised = AsyncEvent::SharedReceives(self.clone(), event::SRQ_LIMIT_REACHED);
        self.context().events.push_of(&self.async_events, raised);
    }

    /// `EBUSY` while a queue pair takes receives from it.
    pub(crate) fn destroy(&self) -> Result {
        self.users.none()?;
        self.engine.cancel();
        // A notification may have begun, and raise its event later.
        self.async_events.end();
        self.context().take_back_events(std::ptr::from_ref(self).cast());
        self.async_events.wait();
        self.leave();
        Ok(())
    }

    /// The domain is not busy with it any more. A queue pair that is about to end may hold it longer.
    fn leave(&self) {
        if !self.left.swap(true, Ordering::AcqRel) {
            if let Some(Numbered { domain, completions, number }) = &self.xrc {
                domain.engine.remove(*number);
                domain.users.leave();
                completions.users.leave();
            }
            self.domain.leave();
            self.context().counters.shared_queues.give_back();
        }
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        self.leave();
    }
}
