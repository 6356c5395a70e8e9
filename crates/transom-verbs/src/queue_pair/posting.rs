//! Posting, and the requests of a queue pair in the engine's words.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use transom_engine::raw::Atomic;
use transom_engine::{Data, Departure, Flags, Operation, QueuePairKind, Request, Status, raw};

use super::{Destination, Held, Outlet, Post, QueuePair};
use crate::abi::{qps, send, wr};
use crate::datagram::{Address, Outgoing};
use crate::errno::{Errno, Result};
use crate::explain;
use crate::kind::kind;

/// The name of immediate data, for a device that has none.
const IMMEDIATE: &str = "immediate data";

impl QueuePair {
    pub(super) fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn release_held(&self) {
        let held = std::mem::take(&mut *self.held());
        // A request that is refused now was counted when it was posted, so a place is free.
        let _ = self.post_chain_now(held.len(), |chain| {
            for Held { request, list, inline, to } in &held {
                let data = inline.as_ref().map_or(Data::Sges(list), |bytes| Data::Inline(bytes));
                let _ = chain.post(request, data, to);
            }
            Ok(())
        });
    }

    /// Post Sends of datagrams: all of them or none.
    fn send_datagrams<'a>(
        &self,
        outlet: &Outlet,
        list: impl Iterator<Item = Post<'a>> + Clone,
    ) -> Result {
        let mut outgoing = outlet.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        let posted = self.send_some(&mut outgoing, list);
        outgoing.send(&outlet.port, &self.context().port.sent);
        posted
    }

    /// Post requests without sending them yet.
    fn send_some<'a>(
        &self,
        outgoing: &mut Outgoing,
        list: impl Iterator<Item = Post<'a>> + Clone,
    ) -> Result {
        let addressed = |(request, data, to)| match to {
            Destination::Datagram(to) => Some((request, data, to)),
            _ => None,
        };
        if list.clone().any(|post| addressed(post).is_none()) {
            return Err(Errno::EINVAL);
        }
        let list = list.filter_map(addressed);
        let depart = |departure: Departure<'_, Address>| outgoing.push(self.number, &departure);
        self.engine.post_datagrams(list, depart).map_err(post_error)
    }

    /// Whether sends are taken in its state (Verbs V65).
    #[inline]
    pub(crate) fn sends(&self) -> Result {
        match self.state.load(Ordering::Acquire) {
            qps::RESET | qps::INIT | qps::RTR => Err(explain::invalid(|| {
                format!("ibv_post_send: queue pair {:#08x} takes sends from RTS on", self.number)
            })),
            _ if self.xrc.is_some() => Err(Errno::EINVAL), // it has no send queue
            _ => Ok(()),
        }
    }

    /// Post one request.
    #[inline]
    pub(crate) fn post_send(&self, request: &Request, data: Data<'_>, to: &Destination) -> Result {
        let held = self.state.load(Ordering::Relaxed) == qps::SQD;
        if held || self.datagrams.is_some() || matches!(to, Destination::Target(_)) {
            return self.post_chain(1, |chain| chain.post(request, data, to));
        }
        self.engine.post(request, data).map_err(post_error)
    }

    /// Have `post`, which is called once, post requests of which `expected` are expected, by one call of the
    /// engine. Its result is returned; what it has posted before an error stays posted.
    pub(crate) fn post_chain(
        &self,
        expected: usize,
        mut post: impl FnMut(&mut Chain<'_, '_, '_>) -> Result,
    ) -> Result {
        if self.state.load(Ordering::Relaxed) == qps::SQD {
            let held = self.held();
            let before = held.len();
            return post(&mut Chain::Held { pair: self, held, before });
        }
        self.post_chain_now(expected, post)
    }

    fn post_chain_now(
        &self,
        expected: usize,
        mut post: impl FnMut(&mut Chain<'_, '_, '_>) -> Result,
    ) -> Result {
        let Some(outlet) = &self.datagrams else {
            let posted = self.engine.post_chain(expected, |chain| post(&mut Chain::Engine(chain)));
            return posted.map_err(post_error)?;
        };
        let mut outgoing = outlet.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        let posted = post(&mut Chain::Datagrams { pair: self, outgoing: &mut outgoing });
        outgoing.send(&outlet.port, &self.context().port.sent);
        posted
    }

    /// Post all of them or none.
    pub(crate) fn post_all<'a>(&self, list: impl Iterator<Item = Post<'a>> + Clone) -> Result {
        match &self.datagrams {
            Some(outlet) if self.state.load(Ordering::Relaxed) != qps::SQD => {
                self.send_datagrams(outlet, list)
            }
            _ => self.post_chain(list.clone().count(), |chain| {
                let mut list = list.clone();
                list.try_for_each(|(request, data, to)| chain.post(&request, data, &to))
                    .inspect_err(|_| chain.cancel())
            }),
        }
    }

    /// Keep a request until SQD ends.
    fn hold(
        &self,
        held: &mut Vec<Held>,
        request: &Request,
        data: Data<'_>,
        to: Destination,
    ) -> Result {
        if self.is_datagrams() && !matches!(to, Destination::Datagram(_)) {
            return Err(Errno::EINVAL);
        }
        if self.engine.occupied().0 as usize + held.len() >= self.caps.max_send_wr as usize {
            return Err(Errno::ENOMEM);
        }
        let (list, inline) = match data {
            Data::Inline(bytes) => (Vec::new(), Some(bytes.to_vec())),
            Data::Sges(list) => (list.to_vec(), None),
            Data::Memory(_) => return Err(Errno::EINVAL), // no call of the front makes one
        };
        held.push(Held { request: *request, list, inline, to });
        Ok(())
    }

    /// Have `post` post receives, of which `expected` are expected, by one call of the engine.
    #[inline]
    pub(crate) fn post_receives(
        &self,
        expected: usize,
        post: impl FnMut(&mut raw::ReceiveChain<'_, '_>) -> Result,
    ) -> Result {
        let elsewhere = self.shared.is_some()
            || matches!(self.kind(), QueuePairKind::XrcSend | QueuePairKind::XrcReceive);
        if elsewhere {
            return Err(explain::invalid(|| {
                format!(
                    "ibv_post_recv: the receives of queue pair {:#08x} are a shared queue's",
                    self.number
                )
            }));
        }
        if self.state.load(Ordering::Acquire) == qps::RESET {
            return Err(explain::invalid(|| {
                format!(
                    "ibv_post_recv: queue pair {:#08x} takes receives from INIT on",
                    self.number
                )
            }));
        }
        if self.caps.max_recv_wr == 0 {
            return Err(Errno::ENOMEM);
        }
        self.engine.post_receives(expected, post).map_err(post_error)?
    }

    /// Flags of a request in the engine's words.
    #[inline]
    pub(crate) fn flags(&self, given: u32) -> Flags {
        let mut flags = Flags::NONE;
        if given & send::SIGNALED == 0 && !self.signal_all {
            flags = flags | Flags::SILENT_SUCCESS;
        }
        if given & send::FENCE != 0 {
            flags = flags | Flags::READ_FENCE;
        }
        if given & send::SOLICITED != 0 {
            flags = flags | Flags::SOLICIT;
        }
        flags
    }
}

/// Requests that one call posts, in order.
pub(crate) enum Chain<'a, 'chain, 'queue> {
    /// By one call of the engine.
    Engine(&'a mut raw::Chain<'chain, 'queue>),
    /// Behind the sends that wait for the end of SQD.
    Held { pair: &'a QueuePair, held: MutexGuard<'a, Vec<Held>>, before: usize },
    /// Datagrams, which leave together.
    Datagrams { pair: &'a QueuePair, outgoing: &'a mut Outgoing },
}

impl Chain<'_, '_, '_> {
    /// Post the next request. After an error the chain is as before.
    #[inline(always)]
    pub(crate) fn post(&mut self, request: &Request, data: Data<'_>, to: &Destination) -> Result {
        match (self, to) {
            (Chain::Engine(chain), Destination::Target(number)) => {
                chain.post_to(*number, request, data).map_err(post_error)
            }
            (Chain::Engine(chain), _) => chain.post(request, data).map_err(post_error),
            (Chain::Held { pair, held, .. }, to) => pair.hold(held, request, data, *to),
            (Chain::Datagrams { pair, outgoing }, to) => {
                pair.send_some(outgoing, std::iter::once((*request, data, *to)))
            }
        }
    }

    /// Take back what was posted so far. Datagrams have left.
    fn cancel(&mut self) {
        match self {
            Chain::Engine(chain) => chain.cancel(),
            Chain::Held { held, before, .. } => held.truncate(*before),
            Chain::Datagrams { .. } => {}
        }
    }
}

/// The error of a post.
pub(crate) fn post_error(error: raw::Error) -> Errno {
    match error.status {
        Status::NoMoreEntries => explain::refused(Errno::ENOMEM, || {
            "a queue is full (ENOMEM from a post): a place is free once the completion of its request has \
             been polled; programs may wait for that"
                .to_owned()
        }),
        Status::Forked => Errno::EIO,
        _ => Errno::EINVAL,
    }
}

/// The operation of a request: `EINVAL` for a number that there is not. `value` is the union of a
/// token and of immediate data, whose four bytes are in network order (Verbs V87).
#[inline]
pub(crate) fn operation(opcode: u32, address: u64, rkey: u32, value: u32) -> Result<Operation> {
    Ok(match opcode {
        wr::SEND => Operation::Send,
        wr::RDMA_WRITE => Operation::Write { token: rkey, address },
        wr::RDMA_READ => Operation::Read { token: rkey, address },
        wr::SEND_WITH_INV => Operation::SendWithInvalidate { token: value },
        wr::LOCAL_INV => Operation::Invalidate { window: transom_memory::Token(value) },
        wr::SEND_WITH_IMM if kind().has(IMMEDIATE) => {
            Operation::SendWithImmediate { immediate: u32::from_be(value) }
        }
        wr::RDMA_WRITE_WITH_IMM if kind().has(IMMEDIATE) => {
            Operation::WriteWithImmediate { token: rkey, address, immediate: u32::from_be(value) }
        }
        _ => return Err(Errno::EINVAL),
    })
}

/// The atomic of a request (Verbs V95).
#[inline]
pub(crate) fn atomic(address: u64, rkey: u32, change: Atomic) -> Operation {
    Operation::Atomic { token: rkey, address, change }
}

/// A request whose list has so many bytes fails with `LOC_LEN_ERR` in its turn, unless that fits: a message
/// is no longer than `most`, and what an atomic fetches are eight bytes (Verbs V95).
#[inline]
pub(crate) fn limit_length(operation: &mut Operation, length: u64, most: u32) {
    let fits = match operation {
        Operation::Atomic { .. } => length == 8,
        _ => length <= u64::from(most),
    };
    if !fits {
        *operation = Operation::Unsupported { status: Status::BufferOverflow };
    }
}
