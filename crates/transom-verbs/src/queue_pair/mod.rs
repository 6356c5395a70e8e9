//! Queue pairs: creation, attributes and states.

mod posting;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use transom_engine::{Data, QueuePairKind, QueuePairState, Request, Sge, Status, raw};
use transom_memory::QueuePairId;

use crate::abi::{ibv_qp_attr, ibv_qp_cap, mask, ops, qps};
use crate::channel::Acknowledged;
use crate::completion::Queue;
use crate::context::Context;
use crate::datagram::group::Groups;
use crate::datagram::{Outgoing, To};
use crate::errno::{Errno, Result};
use crate::kind::kind;
use crate::memory::{Domain, remote_rights};
use crate::receive::SharedQueue;
use crate::rendezvous::{Number, Rendezvous};
use crate::xrc::XrcDomain;
use crate::{datagram, explain, gid, limits, timers, transitions, usage};

pub(crate) use posting::{atomic, limit_length, operation, post_error};

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) domain: Arc<Domain>,
    pub(crate) send: Arc<Queue>,
    pub(crate) receive: Arc<Queue>,
    pub(crate) shared: Option<Arc<SharedQueue>>,
    pub(crate) xrc: Option<Arc<XrcDomain>>,
    /// Port of its context's listener, and index there (Verbs V73).
    pub(crate) number: u32,
    pub(crate) handle: u32,
    /// Where the program's structure is.
    pub(crate) address: AtomicUsize,
    /// All of them: a queue pair of an XRC domain may be opened again.
    shells: Mutex<Vec<usize>>,
    pub(crate) caps: ibv_qp_cap,
    pub(crate) signal_all: bool,
    pub(crate) engine: raw::QueuePair,
    /// Where its datagrams leave and arrive; `None`: it is of type RC.
    datagrams: Option<Outlet>,
    groups: Groups,
    pub(crate) rendezvous: Rendezvous,
    pub(crate) async_events: Acknowledged,
    /// The state that the program has moved it to; the engine knows whether it has failed since.
    state: AtomicU32,
    attributes: Mutex<ibv_qp_attr>,
    /// Sends posted in SQD, until it goes on.
    held: Mutex<Vec<Held>>,
    /// Bytes that its requests have named.
    bytes: AtomicU64,
    /// Domain and queues do not count it any more.
    left: AtomicBool,
}

/// Where datagrams leave.
#[derive(Debug)]
struct Outlet {
    port: Arc<raw::DatagramPort>,
    /// Locked from the moment when requests are taken until their datagrams are sent, so that these keep
    /// their order.
    outgoing: Mutex<Outgoing>,
}

/// A send that waits for the end of SQD.
#[derive(Debug)]
pub(crate) struct Held {
    request: Request,
    list: Vec<Sge>,
    inline: Option<Vec<u8>>,
    to: Destination,
}

/// The parts of a queue pair.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) domain: Arc<Domain>,
    pub(crate) send: Arc<Queue>,
    pub(crate) receive: Arc<Queue>,
    pub(crate) shared: Option<Arc<SharedQueue>>,
    /// Of a queue pair that receives for an XRC domain; the other three are of no use to it.
    pub(crate) xrc: Option<Arc<XrcDomain>>,
    pub(crate) signal_all: bool,
    pub(crate) kind: QueuePairKind,
}

/// Where at the peer a request goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Destination {
    /// To the peer of the connection.
    Peer,
    /// A datagram's destination.
    Datagram(To),
    /// A shared receive queue of the peer's XRC domain.
    Target(u32),
}

/// A request with its data and its destination.
pub(crate) type Post<'a> = (Request, Data<'a>, Destination);

/// Numbers that are tried for a queue pair.
const NUMBER_TRIES: usize = 64;

/// Send operations of a queue pair of datagrams.
pub(crate) const DATAGRAM_OPS: u64 = ops::SEND | ops::SEND_IMM;
/// Send operations of an unreliable queue pair.
pub(crate) const UNRELIABLE_OPS: u64 = SEND_OPS & !(ops::READ | ops::CMP_SWP | ops::FETCH_ADD);
/// Send operations of a reliable queue pair.
pub(crate) fn reliable_ops() -> u64 {
    let infiniband = ops::WRITE_IMM | ops::SEND_IMM | ops::CMP_SWP | ops::FETCH_ADD;
    if kind().infiniband { SEND_OPS } else { SEND_OPS & !infiniband }
}
/// Send operations of the `wr_*` interface that there are.
const SEND_OPS: u64 = ops::WRITE
    | ops::WRITE_IMM
    | ops::SEND
    | ops::SEND_IMM
    | ops::READ
    | ops::CMP_SWP
    | ops::FETCH_ADD
    | ops::BIND_MW
    | ops::LOCAL_INV
    | ops::SEND_INV;

/// The sizes granted for those asked for (Verbs V28, Verbs V52, Verbs V53).
fn granted(asked: ibv_qp_cap, shared: bool) -> Result<ibv_qp_cap> {
    let of_receives = |most| if shared { u32::MAX } else { most };
    let sizes = [
        ("max_send_wr", asked.max_send_wr, limits::DEPTH),
        ("max_recv_wr", asked.max_recv_wr, of_receives(limits::DEPTH)),
        ("max_send_sge", asked.max_send_sge, limits::SGE),
        ("max_recv_sge", asked.max_recv_sge, of_receives(limits::SGE)),
        ("max_inline_data", asked.max_inline_data, limits::INLINE),
    ];
    for (name, asked, most) in sizes {
        if asked > most {
            return Err(explain::invalid(|| {
                format!("ibv_create_qp: {name} is {asked}, and may be {most} at most")
            }));
        }
    }
    let depth = |asked: u32| if asked == 0 { 0 } else { asked.next_power_of_two() };
    Ok(ibv_qp_cap {
        max_send_wr: depth(asked.max_send_wr),
        max_recv_wr: if shared { 0 } else { depth(asked.max_recv_wr) },
        max_send_sge: asked.max_send_sge.max(1),
        max_recv_sge: if shared { 0 } else { asked.max_recv_sge.max(1) },
        max_inline_data: asked.max_inline_data.max(limits::INLINE_LEAST),
    })
}

impl QueuePair {
    /// A queue pair in RESET. The sizes granted are in `caps`.
    pub(crate) fn new(parts: Parts, asked: ibv_qp_cap) -> Result<Arc<QueuePair>> {
        let context = parts.domain.context.clone();
        let foreign = |of: &Arc<Context>| !Arc::ptr_eq(of, &context);
        if foreign(&parts.send.context)
            || foreign(&parts.receive.context)
            || parts.shared.as_ref().is_some_and(|shared| foreign(shared.context()))
        {
            return Err(Errno::EINVAL);
        }
        let caps = match parts.kind {
            QueuePairKind::XrcReceive => ibv_qp_cap::default(),
            kind => granted(asked, parts.shared.is_some() || kind == QueuePairKind::XrcSend)?,
        };
        context.counters.queue_pairs.take()?;
        let made = QueuePair::make(&context, parts, caps);
        if made.is_err() {
            context.counters.queue_pairs.give_back();
        }
        made
    }

    fn make(context: &Arc<Context>, parts: Parts, caps: ibv_qp_cap) -> Result<Arc<QueuePair>> {
        let Parts { domain, send, receive, shared, xrc, signal_all, kind } = parts;
        let options = |number| raw::QueuePairOptions {
            context: u64::from(number),
            number: Some(QueuePairId(number)),
            initiator_depth: caps.max_send_wr.max(1),
            receive_depth: caps.max_recv_wr.max(1),
            initiator_sge: caps.max_send_sge.max(1),
            receive_sge: caps.max_recv_sge.max(1),
            inline_size: caps.max_inline_data,
            kind,
        };
        let shared_engine = shared.as_ref().map(|shared| &shared.engine);
        let engine_of = |number| {
            if let Some(xrc) = &xrc {
                return context.adapter.xrc_receive_side(&xrc.engine, &options(number));
            }
            let (send, receive) = (&send.engine, &receive.engine);
            context.adapter.queue_pair(
                domain.domain,
                send,
                receive,
                shared_engine,
                &options(number),
            )
        };
        // The engine may still have a number whose queue pair another thread destroys at this moment.
        let mut refused = Vec::new();
        let made = loop {
            let Number { number, datagrams } =
                match context.ports.take(context, kind == QueuePairKind::Ud) {
                    Ok(number) => number,
                    Err(error) => break Err(error),
                };
            match engine_of(number) {
                Ok(engine) => break Ok((number, datagrams, engine)),
                Err(error) => {
                    refused.push(number);
                    if error.status != Status::SharingViolation || refused.len() > NUMBER_TRIES {
                        break Err(error.into());
                    }
                }
            }
        };
        for number in refused {
            context.ports.give_back(number);
        }
        let (number, datagrams, engine) = made?;
        domain.join();
        send.users.join();
        if !Arc::ptr_eq(&send, &receive) {
            receive.users.join();
        }
        if let Some(shared) = &shared {
            shared.users.join();
        }
        if let Some(xrc) = &xrc {
            xrc.users.join();
        }
        let queue_pair = Arc::new(QueuePair {
            handle: context.handle(),
            domain,
            send,
            receive,
            shared,
            xrc,
            number,
            address: AtomicUsize::new(0),
            shells: Mutex::default(),
            caps,
            signal_all,
            engine,
            datagrams: datagrams.map(|port| Outlet { port, outgoing: Mutex::default() }),
            groups: Groups::default(),
            rendezvous: Rendezvous::default(),
            async_events: Acknowledged::default(),
            state: AtomicU32::new(qps::RESET),
            attributes: Mutex::default(),
            held: Mutex::default(),
            bytes: AtomicU64::new(0),
            left: AtomicBool::new(false),
        });
        usage::made();
        context.add_queue_pair(&queue_pair);
        if let Some(outlet) = &queue_pair.datagrams {
            queue_pair.receive.add_datagrams(&outlet.port);
        }
        Ok(queue_pair)
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.domain.context
    }

    /// Requests that name so many bytes were posted.
    #[inline]
    pub(crate) fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that its requests have named.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn attributes(&self) -> MutexGuard<'_, ibv_qp_attr> {
        self.attributes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- states ---------------------------------------------------------------------------------

    /// The state now: ERR as soon as the engine says so.
    pub(crate) fn state(&self) -> u32 {
        let state = self.state.load(Ordering::Acquire);
        let failed =
            matches!(self.engine.state(), QueuePairState::Error | QueuePairState::Disconnected);
        match state {
            qps::RESET => qps::RESET,
            _ if failed => qps::ERR,
            qps::RTS if self.kind() != QueuePairKind::Rc && self.engine.sends_failed() => qps::SQE,
            state => state,
        }
    }

    /// The type of the queue pair.
    pub(crate) fn kind(&self) -> QueuePairKind {
        self.engine.config().kind
    }

    /// Whether it is of type UD.
    pub(crate) fn is_datagrams(&self) -> bool {
        self.datagrams.is_some()
    }

    /// The longest message that it sends: a longer one fails with `LOC_LEN_ERR`.
    pub(crate) fn longest(&self) -> u32 {
        if self.is_datagrams() { datagram::longest() } else { limits::MESSAGE }
    }

    /// Whether a stream may be attached.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state(), qps::RTR | qps::RTS | qps::SQD | qps::SQE)
    }

    /// All attributes, whatever the mask (Verbs V64).
    pub(crate) fn query(&self) -> ibv_qp_attr {
        let state = self.state();
        let mut attr = *self.attributes();
        attr.qp_state = state;
        attr.cur_qp_state = state;
        attr.cap = self.caps;
        let draining = state == qps::SQD && self.engine.outstanding().0 > 0;
        attr.sq_draining = u8::from(draining);
        attr
    }

    /// Change attributes and state; a refusal changes nothing.
    ///
    /// No lock is held while the engine is called: it may run the notifications of this queue pair,
    /// which look at its attributes.
    pub(crate) fn modify(self: &Arc<QueuePair>, attr: &ibv_qp_attr, mask: u32) -> Result<u32> {
        let from = self.state();
        let kind = self.kind();
        let to = transitions::target(kind, from, attr, mask)?;
        transitions::values(attr, mask)?;
        if mask & mask::AV != 0 {
            self.check_address(attr)?;
        }
        let anew = (from, to) == (qps::RESET, qps::INIT) || to == qps::RESET;
        let changed = |kept: &ibv_qp_attr| {
            let mut next = if anew { ibv_qp_attr::default() } else { *kept };
            transitions::keep(&mut next, attr, mask);
            next
        };
        let before = *self.attributes();
        let next = changed(&before);
        if to == qps::RESET {
            // First, so that no connection takes it any more.
            self.state.store(to, Ordering::Release);
            let left = self.rendezvous.leave();
            self.engine.reset().inspect_err(|_| self.state.store(from, Ordering::Release))?;
            drop(left);
            self.held().clear();
        }
        if mask & mask::ACCESS_FLAGS != 0 {
            self.engine.set_access(remote_rights(next.qp_access_flags))?;
        }
        self.engine.set_limits(timers::limits(kind, &next))?;
        if self.is_datagrams() {
            self.engine.set_queue_key(next.qkey)?;
        }
        if from == qps::SQE && to == qps::RTS {
            self.engine.resume_sends()?;
        }
        let next = {
            let mut kept = self.attributes();
            *kept = changed(&kept);
            self.state.store(to, Ordering::Release);
            *kept
        };
        match (from, to) {
            (qps::ERR, qps::ERR) => {}
            (_, qps::ERR) => {
                self.engine.flush()?;
                self.release_held();
                drop(self.rendezvous.leave());
            }
            (qps::INIT, qps::RTR) if kind != QueuePairKind::Ud => {
                self.rendezvous.begin(self).inspect_err(|_| self.put_back(from, &before))?;
            }
            (qps::SQD, qps::RTS) => self.release_held(),
            (qps::RTS, qps::SQD) if next.en_sqd_async_notify != 0 => self.report_drained(),
            _ => {}
        }
        Ok(to)
    }

    /// The change from `state` and its attributes was refused.
    fn put_back(&self, state: u32, before: &ibv_qp_attr) {
        *self.attributes() = *before;
        self.state.store(state, Ordering::Release);
        // Both were granted before, and are taken back from a queue pair without a connection.
        let _ = self.engine.set_access(remote_rights(before.qp_access_flags));
        let _ = self.engine.set_limits(timers::limits(self.kind(), before));
    }

    fn check_address(&self, attr: &ibv_qp_attr) -> Result {
        let ah = &attr.ah_attr;
        if ah.is_global == 0 {
            return Err(no_address(
                "no GRH in the address vector (is_global is 0), and RoCE needs a GID: give the program a GID \
                 index (`-g 0`, `-x 0`; qperf: `-cm1`); this port has no LIDs",
            ));
        }
        let destination = gid::address_of(crate::abi::gid_bytes(ah.grh.dgid));
        if destination.is_unspecified() {
            return Err(no_address(
                "dgid is zero: it has to be a GID of the peer's port (`ibv_query_gid` there)",
            ));
        }
        if destination.is_multicast() {
            return Err(no_address("dgid is a multicast group, which only datagrams reach"));
        }
        if self.context().address(usize::from(ah.grh.sgid_index)).is_none() {
            let index = ah.grh.sgid_index;
            return Err(no_address(&format!(
                "sgid_index is {index}, and that entry of the GID table is empty"
            )));
        }
        if ah.port_num != 1 {
            return Err(no_address(&format!(
                "ah_attr.port_num is {}, and the port is 1",
                ah.port_num
            )));
        }
        Ok(())
    }

    /// To ERR by rdma_cm.
    pub(crate) fn fail(self: &Arc<QueuePair>) {
        let attr = ibv_qp_attr { qp_state: qps::ERR, ..ibv_qp_attr::default() };
        let _ = self.modify(&attr, mask::STATE);
    }

    /// SQ_DRAINED once nothing is outstanding.
    fn report_drained(self: &Arc<QueuePair>) {
        if self.state() != qps::SQD {
            return;
        }
        if self.engine.outstanding().0 == 0 {
            return self.context().raise(self, crate::abi::event::SQ_DRAINED);
        }
        let later = Arc::downgrade(self);
        timers::after(Duration::from_millis(2), move || {
            if let Some(queue_pair) = later.upgrade() {
                queue_pair.report_drained();
            }
        });
    }

    // ---- multicast groups -----------------------------------------------------------------------

    /// Datagrams to a group are delivered to it from now on (Verbs V136).
    pub(crate) fn attach(self: &Arc<QueuePair>, group: IpAddr) -> Result {
        if self.is_datagrams() { self.groups.attach(self, group) } else { Err(Errno::EINVAL) }
    }

    /// Datagrams to a group are not delivered to it any more.
    pub(crate) fn detach(&self, group: IpAddr) -> Result {
        self.groups.detach(self, group)
    }

    /// `EBUSY` while it is attached to a group.
    pub(crate) fn unattached(&self) -> Result {
        if self.groups.are_none() { Ok(()) } else { Err(Errno::EBUSY) }
    }

    /// No group is delivered to it any more.
    pub(crate) fn detach_all(&self) {
        self.groups.clear(self);
    }

    // ---- its end --------------------------------------------------------------------------------

    /// The program destroys it, or closes its device: nothing of it is left in its queues.
    pub(crate) fn end(self: &Arc<QueuePair>) {
        let left = self.rendezvous.leave();
        let _ = self.engine.reset();
        drop(left);
        self.context().remove_queue_pair(self.number);
    }

    /// Domain and queues are not busy with it any more. A connection that is about to end may hold the
    /// queue pair itself a little longer.
    fn leave(&self) {
        if !self.left.swap(true, Ordering::AcqRel) {
            self.domain.leave();
            self.send.users.leave();
            if !Arc::ptr_eq(&self.send, &self.receive) {
                self.receive.users.leave();
            }
            if let Some(outlet) = &self.datagrams {
                self.receive.remove_datagrams(&outlet.port);
            }
            if let Some(shared) = &self.shared {
                shared.users.leave();
            }
            if let Some(xrc) = &self.xrc {
                xrc.users.leave();
            }
        }
    }

    /// A structure of the program's stands for it: its events name the first one.
    pub(crate) fn opened(&self, address: usize) {
        let mut opened = self.shells();
        opened.push(address);
        self.name(&opened);
    }

    /// A structure of the program's stands for it no longer. `true`: another one does, and events that name
    /// this one are acknowledged.
    pub(crate) fn closed(&self, address: usize) -> bool {
        let mut opened = self.shells();
        let named = opened.first() == Some(&address);
        opened.retain(|known| *known != address);
        if opened.is_empty() {
            return false; // its events name it until they are taken back
        }
        self.name(&opened);
        drop(opened);
        if named {
            self.async_events.wait();
        }
        true
    }

    /// Where the structures are that stand for it.
    pub(crate) fn shells(&self) -> MutexGuard<'_, Vec<usize>> {
        self.shells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, opened: &[usize]) {
        self.address.store(opened.first().copied().unwrap_or_default(), Ordering::Release);
    }

    /// No further event, and those that were handed out are acknowledged.
    pub(crate) fn destroy(self: &Arc<QueuePair>) {
        self.end();
        self.context().take_back_events(Arc::as_ptr(self).cast());
        self.async_events.wait();
        self.leave();
    }
}

/// An address vector that is refused.
#[track_caller]
fn no_address(why: &str) -> Errno {
    explain::invalid(|| format!("ibv_modify_qp: {why}"))
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let context = self.context();
        // A forked child leaves the parent's ports alone: their lock may be a thread's that it has not.
        if !context.adapter.is_forked() {
            usage::ended(self.bytes());
            context.ports.give_back(self.number);
            crate::rendezvous::close_idle_later(context);
        }
        context.counters.queue_pairs.give_back();
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(inline: u32, sge: u32, depth: u32) -> ibv_qp_cap {
        ibv_qp_cap {
            max_send_wr: depth,
            max_recv_wr: depth,
            max_send_sge: sge,
            max_recv_sge: sge,
            max_inline_data: inline,
        }
    }

    #[test]
    fn v28_what_is_advertised_is_granted_and_one_more_refused() {
        let all = granted(asked(4096, 32, 16_384), false).unwrap();
        assert_eq!((all.max_inline_data, all.max_send_sge, all.max_send_wr), (4096, 32, 16_384));
        for beyond in [asked(4097, 1, 1), asked(0, 33, 1), asked(0, 1, 16_385)] {
            assert_eq!(granted(beyond, false), Err(Errno::EINVAL));
        }
        // Sizes of a receive queue that there is not are not looked at.
        let ignored = ibv_qp_cap { max_recv_wr: u32::MAX, max_recv_sge: 33, ..asked(0, 1, 1) };
        assert!(granted(ignored, true).is_ok());
        assert_eq!(granted(ignored, false), Err(Errno::EINVAL));
    }

    #[test]
    fn v52_v53_small_wishes_are_rounded_up() {
        let caps = granted(asked(0, 0, 500), false).unwrap();
        assert_eq!((caps.max_inline_data, caps.max_send_sge, caps.max_recv_wr), (256, 1, 512));
        let none = granted(asked(0, 0, 0), false).unwrap();
        assert_eq!((none.max_send_wr, none.max_recv_wr), (0, 0));
    }
}
