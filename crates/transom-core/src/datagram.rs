//! Queue pairs of datagrams: each request is sent when it is posted, and each datagram of a peer's
//! fills a receive or is dropped (Verbs V139).

use transom_memory::{Actor, DomainId, Purpose, QueuePairId};
use transom_wire::{Bytes, Room};

use crate::chain::Chain;
use crate::copy::{AccessError, Accessor};
use crate::queue::{Progress, Slot};
use crate::{
    CompletionFlags, Cx, Data, DenialCause, DenialRecord, Flags, Operation, QueuePair,
    QueuePairKind, QueuePairState, Request, Side, Status,
};

/// Bytes in front of a datagram's payload in its receive: the global route header, or room for it.
pub const ROUTE_HEADER: usize = 40;

/// A key with this bit in a request stands for the key of the queue pair that sends it.
const OWN_KEY: u32 = 1 << 31;

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
pub struct Destination<T> {
    /// The domain of the address handle: that of the queue pair, or the request fails.
    pub domain: DomainId,
    /// The key that the receiving queue pair is to have; with bit 31, the sender's own key is sent.
    pub key: u32,
    /// The address, as the driver needs it.
    pub at: T,
}

/// A datagram that is to leave.
#[derive(Clone, Copy, Debug)]
pub struct Departure<'a, T> {
    /// The address of its destination.
    pub at: T,
    /// The key that it carries.
    pub key: u32,
    /// Immediate data, as the program gave it.
    pub immediate: Option<u32>,
    /// The receiver's completion is to be solicited.
    pub solicited: bool,
    /// The bytes.
    pub payload: &'a [u8],
}

/// A datagram of a peer's.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The queue pair that has sent it.
    pub source: QueuePairId,
    /// The key that it carries.
    pub key: u32,
    /// Where it came from and where it was sent to, as the receive shows it.
    pub route: &'a [u8; ROUTE_HEADER],
    /// The way here was IPv6.
    pub over_ipv6: bool,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// The sender asked for a solicited event.
    pub solicited: bool,
    /// The bytes.
    pub payload: &'a [u8],
}

impl QueuePair {
    /// Post Sends of a queue pair of datagrams, in order: all of them, or, after an error, none. Each
    /// has completed when this returns; `depart` has what is to be sent.
    ///
    /// # Errors
    /// As [`QueuePair::post`]; `InvalidRequest` for a queue pair that needs a connection.
    pub fn post_datagrams<'a, T>(
        &mut self,
        cx: &mut Cx<'_>,
        list: impl Iterator<Item = (Request, Data<'a>, Destination<T>)> + Clone,
        staging: &mut Vec<u8>,
        mut depart: impl FnMut(Departure<'_, T>),
    ) -> Result<(), Status> {
        if self.config().kind != QueuePairKind::Ud {
            return Err(Status::InvalidRequest);
        }
        let open = self.pair.takes_requests();
        let count = list.clone().count();
        let mut chain = Chain::new(&self.pair, open, &mut self.posted, count);
        for (request, data, _) in list.clone() {
            if let Err(status) = chain.post(&request, data) {
                chain.cancel();
                return Err(status);
            }
        }
        drop(chain);
        if self.pair.state() != QueuePairState::Idle {
            return Ok(()); // behind a flush: `complete_ended` is to follow
        }
        for (request, _, to) in list {
            let Some(mut slot) = self.posted.front().copied() else { break };
            let gathered = self.gather(cx, &request, &slot, to.domain, staging);
            let _ = self.posted.pop();
            slot.progress = Progress::Done;
            match gathered {
                Ok(immediate) => {
                    let key = if to.key & OWN_KEY == 0 { to.key } else { self.queue_key };
                    let solicited = request.flags.contains(Flags::SOLICIT);
                    let payload = staging.as_slice();
                    depart(Departure { at: to.at, key, immediate, solicited, payload });
                }
                Err((status, denial)) => {
                    slot.length = 0;
                    // A local error stops the sends; receives go on (Verbs V70).
                    self.pair.set_sends_failed(true);
                    (slot.status, slot.denial) = (status, denial);
                }
            }
            self.complete_slot(Side::Initiator, &slot, (cx.memory, cx.now), cx.effects);
        }
        Ok(())
    }

    /// Collect the bytes of the oldest request, and its immediate data.
    fn gather(
        &self,
        cx: &mut Cx<'_>,
        request: &Request,
        slot: &Slot,
        domain: DomainId,
        staging: &mut Vec<u8>,
    ) -> Result<Option<u32>, (Status, u64)> {
        staging.clear();
        if self.pair.sends_failed() {
            return Err((Status::Canceled, 0));
        }
        let immediate = match request.operation {
            Operation::Send => None,
            Operation::SendWithImmediate { immediate } => Some(immediate),
            Operation::Unsupported { status } => return Err((status, 0)),
            _ => return Err((Status::NotSupported, 0)),
        };
        if domain != self.config().domain {
            let why = "the address handle belongs to another protection domain than the queue pair: \
                       create it with the queue pair's own domain";
            return Err((Status::InvalidRequest, self.deny(cx, slot, DenialCause::Other(why))));
        }
        let accessor = Accessor { actor: self.actor(domain), purpose: Purpose::LocalSource };
        let fetched = if !slot.inline {
            let all = (0, slot.length);
            accessor.fetch_list(cx, &self.posted, slot, all, &mut Room::Behind(staging))
        } else if let Some((left, right)) = self.posted.inline(slot, 0, slot.length) {
            staging.extend_from_slice(left);
            staging.extend_from_slice(right);
            Ok(())
        } else {
            Err(AccessError::Missing)
        };
        match fetched {
            Ok(()) => Ok(immediate),
            Err(error) => Err((Status::LocalAccess, self.deny(cx, slot, error.cause(false)))),
        }
    }

    /// Deliver a datagram. `false`: it is dropped, and nothing has changed: another key, no receive, or
    /// a queue pair that takes none.
    pub fn deliver(&mut self, cx: &mut Cx<'_>, datagram: &Datagram<'_>) -> bool {
        let config = *self.config();
        let takes = config.kind == QueuePairKind::Ud && self.pair.state() == QueuePairState::Idle;
        if !takes || datagram.key != self.queue_key {
            return false;
        }
        let found = !self.receives.is_empty()
            || cx.shared.is_some_and(|shared| shared.take(config.number, &mut self.receives));
        let Some(mut slot) = self.receives.front().copied().filter(|_| found) else { return false };
        let placed = self.place(cx, &slot, datagram);
        let _ = self.receives.pop();
        slot.length = (ROUTE_HEADER + datagram.payload.len()) as u64;
        if let Err((status, denial)) = placed {
            (slot.status, slot.denial, slot.length) = (status, denial, 0);
        }
        let mut completion = self.completion(&slot, self.receive_place());
        let set = |condition: bool, flag: CompletionFlags| if condition { flag.0 } else { 0 };
        if slot.status.is_success() {
            completion.flags = CompletionFlags(
                CompletionFlags::DATAGRAM.0
                    | set(datagram.over_ipv6, CompletionFlags::OVER_IPV6)
                    | set(datagram.solicited, CompletionFlags::SOLICITED)
                    | set(datagram.immediate.is_some(), CompletionFlags::IMMEDIATE),
            );
            completion.value = datagram.immediate.unwrap_or(0);
            completion.source = datagram.source;
        }
        cx.effects.complete(Side::Receive, completion);
        true
    }

    fn place(
        &self,
        cx: &mut Cx<'_>,
        slot: &Slot,
        datagram: &Datagram<'_>,
    ) -> Result<(), (Status, u64)> {
        let (route, payload) = (Bytes::Own(datagram.route), Bytes::Own(datagram.payload));
        if slot.length < (ROUTE_HEADER + datagram.payload.len()) as u64 {
            let why = "the datagram and the 40 bytes in front of it are longer than the receive that it \
                       met: post longer receives, or send less";
            return Err((Status::ReceiveTooSmall, self.deny(cx, slot, DenialCause::Other(why))));
        }
        let actor = self.actor(self.config().receive_domain);
        let accessor = Accessor { actor, purpose: Purpose::ReceiveBuffer };
        let behind = ROUTE_HEADER as u64;
        accessor
            .place_list(cx, &self.receives, slot, 0, route)
            .and_then(|()| accessor.place_list(cx, &self.receives, slot, behind, payload))
            .map_err(|error| (Status::LocalAccess, self.deny(cx, slot, error.cause(false))))
    }

    pub(crate) fn actor(&self, domain: DomainId) -> Actor {
        Actor { domain, queue_pair: self.config().number, connection: None }
    }

    pub(crate) fn deny(&self, cx: &mut Cx<'_>, slot: &Slot, cause: DenialCause) -> u64 {
        let queue_pair = Some(self.config().number);
        let request = Some(slot.context);
        cx.denials.record(DenialRecord { time: cx.now, peer: None, queue_pair, request, cause })
    }

    /// Set the key that datagrams to it have to carry; 0 at first.
    pub fn set_queue_key(&mut self, key: u32) {
        self.queue_key = key;
    }

    /// Whether a request of its own has failed, so that those posted since are cancelled (Verbs V70).
    #[must_use]
    pub fn sends_failed(&self) -> bool {
        self.pair.sends_failed()
    }

    /// Send again what is posted from now on. With a connection, see
    /// [`Connection::resume_sends`](crate::Connection::resume_sends).
    pub fn resume_sends(&mut self) {
        self.pair.set_sends_failed(false);
    }
}
