//! The tools of a pass: everything that the core may use, taken out of the link for as long as the core is called.

use std::sync::{Arc, MutexGuard};

use transom_wire::Time;

use super::queues::Queues;
use super::{Link, LinkDenials, LinkState};
use crate::driver::capture::tap::Tap;
use crate::driver::schedule::workers::Worker;
use crate::sys::Host;
use crate::trace::Tracer;
use crate::{Attention, Cx, Effects};

/// The tools of one pass. [`Tools::put_back`] follows. A control call's closure runs between the two: what it sets in the
/// fields that are put back is lost.
pub(super) struct Tools<'a> {
    link: &'a Link,
    /// Over a socket, those of the thread.
    worker: Option<MutexGuard<'a, Worker>>,
    /// Over rings, the link's own, which need no room to receive into.
    own: Worker,
    /// The queue pair, if its receives come from a shared queue.
    sharer: Option<Arc<dyn Queues>>,
    effects: Effects,
    denials: LinkDenials<'a>,
    tap: Option<Tap<'a>>,
}

impl Link {
    /// The thread's tools, for a link over a socket. One over rings has a lane of its own, until it rests: a
    /// close of memory looks at all lanes.
    pub(super) fn worker(&self, state: &LinkState) -> Option<MutexGuard<'_, Worker>> {
        (!state.carrier.is_shared_memory()).then(|| self.shared.workers.take())
    }
}

impl<'a> Tools<'a> {
    pub(super) fn take(
        link: &'a Link,
        state: &mut LinkState,
        worker: Option<MutexGuard<'a, Worker>>,
    ) -> Tools<'a> {
        state.connection.attention().set(Attention::BEHIND);
        Tools {
            link,
            worker,
            own: Worker { lane: state.lane.take(), ..Worker::default() },
            sharer: state.qp.clone().filter(|_| state.connection.has_attention(Attention::SHARED)),
            effects: std::mem::take(&mut state.effects),
            denials: LinkDenials(link),
            tap: Tap::of(link, state.captured),
        }
    }

    /// These tools as the core has them, and room to receive into.
    pub(super) fn core(&mut self, now: Time) -> (Cx<'_>, &mut Vec<u8>) {
        let memory = &self.link.shared.memory;
        let worker = self.worker.as_deref_mut().unwrap_or(&mut self.own);
        let (lane, staging) = worker.tools(memory);
        let cx = Cx {
            now,
            memory,
            lane,
            host: &Host,
            denials: &self.denials,
            shared: self.sharer.as_ref().and_then(|qp| qp.shared_receives()),
            effects: &mut self.effects,
            trace: self.tap.as_mut().map(|tap| tap as &mut dyn Tracer),
        };
        (cx, staging)
    }

    /// The core is not called any more.
    pub(super) fn put_back(self, state: &mut LinkState) {
        state.captured = self.tap.and_then(|tap| tap.end);
        state.effects = self.effects;
        state.lane = self.own.lane;
    }
}
