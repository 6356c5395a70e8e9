//! How queue pairs find each other without a connection manager (Verbs V73 to Verbs V79).
//!
//! A queue pair number is a TCP port on which its context listens, and an index there. Programs
//! exchange numbers and GIDs by themselves; the queue pair with the smaller number connects to the
//! other one, and both prove by private data that they mean each other.

mod hello;
mod ports;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use transom_engine::{EndReason, Status, raw};
use transom_wire::ReadLimits;

use crate::abi::{gid_bytes, qps};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::kind::kind;
use crate::queue_pair::QueuePair;
use crate::requests::Passive;
use crate::{cm, explain, gid, limits, timers, usage};

use hello::{Hello, type_of_peer};
pub(crate) use ports::{FIRST_PORT, Number, Ports, close_idle_later};

/// How long a Request for a queue pair that is not in RTR yet is held, and how many.
const HELD_FOR: Duration = Duration::from_secs(60);
const HELD_MOST: usize = 16;
/// The side that waits connects, too, after so long.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the side that connects leaves a Request of the other one unanswered, because its own
/// connection may be about to succeed.
const PREFERENCE: Duration = Duration::from_millis(500);
/// Pauses between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Once the peer has been there and has left, and nothing waits for it. A peer that begins anew connects by
/// itself, so that these attempts are for one whose own do not arrive.
const LONGEST_PAUSE_WITHOUT_PEER: Duration = Duration::from_secs(8);

impl Passive for Context {
    fn adapter(&self) -> &raw::Adapter {
        &self.adapter
    }

    fn requested(self: &Arc<Context>, connector: raw::Connector) -> bool {
        request(self, Arc::new(connector));
        true
    }
}

/// Where a queue pair is on its way to a stream.
#[derive(Debug, Default)]
pub(crate) struct Rendezvous {
    inner: Mutex<Inner>,
    /// Held while a connection takes the queue pair, so that none does behind a [`Rendezvous::leave`].
    /// Locked before `inner`, which a callback of the connection's may lock meanwhile.
    taking: Mutex<()>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Counts the ways that were begun: what belongs to an earlier one is stale.
    round: u64,
    /// The connection under way, or the one there is.
    stream: Option<Arc<raw::Connector>>,
    /// The connection is established.
    open: bool,
    /// Since the queue pair came to RTR, one was.
    met: bool,
    /// How the last attempt to connect has ended.
    last: Option<Status>,
    /// Requests of peers that came too early.
    held: VecDeque<Early>,
}

/// A Request that has come too early.
#[derive(Debug)]
struct Early {
    connector: Arc<raw::Connector>,
    until: Instant,
    #[expect(dead_code, reason = "held, not read")]
    held: raw::HeldDescriptor,
}

/// Both ends, by address.
#[derive(Clone, Copy, Debug)]
struct Ends {
    own: IpAddr,
    /// The index of the interface of both.
    interface: u32,
    peer: IpAddr,
    destination: u32,
}

impl Ends {
    /// The port at which the peer's process listens; `None`: no queue pair has such a number.
    fn port(&self) -> Option<u16> {
        u16::try_from(self.destination >> 8).ok().filter(|port| *port >= FIRST_PORT)
    }
}

fn ends(queue_pair: &QueuePair) -> Option<Ends> {
    let attr = *queue_pair.attributes();
    let own = queue_pair.context().gids.get(usize::from(attr.ah_attr.grh.sgid_index))?;
    Some(Ends {
        own: own.address,
        interface: own.interface,
        peer: gid::address_of(gid_bytes(attr.ah_attr.grh.dgid)),
        destination: attr.dest_qp_num,
    })
}

/// Whether this side connects first.
fn leads(queue_pair: &QueuePair, ends: &Ends) -> bool {
    let own = (queue_pair.number, gid::bytes_of(ends.own));
    is_itself(queue_pair, ends) || own < (ends.destination, gid::bytes_of(ends.peer))
}

/// Whether the queue pair is its own peer (Verbs V78).
fn is_itself(queue_pair: &QueuePair, ends: &Ends) -> bool {
    ends.destination == queue_pair.number && queue_pair.context().index_of(ends.peer).is_some()
}

impl Rendezvous {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue pair has come to RTR: find its peer.
    pub(crate) fn begin(&self, queue_pair: &Arc<QueuePair>) -> Result {
        let ends = ends(queue_pair).ok_or(Errno::EINVAL)?;
        if ends.port().is_none() {
            return cm::join(queue_pair, ends.destination);
        }
        if !kind().has("way to connect queue pairs by number; rdma_cm connects them (perftest: -R)")
        {
            return Err(Errno::EINVAL);
        }
        let (round, held) = {
            let mut inner = self.lock();
            inner.round += 1;
            (inner.met, inner.last) = (false, None);
            (inner.round, std::mem::take(&mut inner.held))
        };
        for Early { connector, .. } in held {
            request(queue_pair.context(), connector);
        }
        let pause = if leads(queue_pair, &ends) { Duration::ZERO } else { PATIENCE };
        self.dial_later(queue_pair, round, pause, FIRST_PAUSE);
        Ok(())
    }

    fn dial_later(&self, queue_pair: &Arc<QueuePair>, round: u64, wait: Duration, pause: Duration) {
        if wait.is_zero() {
            return dial(queue_pair, round, pause);
        }
        let later = Arc::downgrade(queue_pair);
        timers::after(wait, move || {
            if let Some(queue_pair) = later.upgrade() {
                dial(&queue_pair, round, pause);
            }
        });
    }

    /// Why the queue pair has no stream: `None` if it has, or had one.
    pub(crate) fn why_none(&self, queue_pair: &QueuePair) -> Option<String> {
        let ends = ends(queue_pair)?;
        let (met, last) = {
            let inner = self.lock();
            (inner.met, inner.last)
        };
        if met || is_itself(queue_pair, &ends) || cm::is_alias(ends.destination) {
            return None;
        }
        let why = match last {
            _ if ends.port().is_none() => "no queue pair has such a number",
            Some(Status::ConnectionRefused) => {
                "no process listens at the port that the number names"
            }
            Some(_) => "its process has no such queue pair, or one that expects another peer",
            None => "it did not connect, and was not reached",
        };
        let Ends { destination, peer, .. } = ends;
        Some(format!(
            "no queue pair {destination:#08x} answers at {peer}: {why}. Is the number right, and its byte \
             order?"
        ))
    }

    fn taking(&self) -> MutexGuard<'_, ()> {
        self.taking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `connector` is the connection of this way still.
    fn is_current(&self, connector: &Arc<raw::Connector>, round: u64) -> bool {
        let inner = self.lock();
        inner.round == round && inner.stream.as_ref().is_some_and(|s| Arc::ptr_eq(s, connector))
    }

    /// The connection under way, if it has not taken the queue pair yet.
    fn give_up(&self, round: u64) -> Option<Arc<raw::Connector>> {
        let _taking = self.taking();
        let mut inner = self.lock();
        if inner.round == round && !inner.open { inner.stream.take() } else { None }
    }

    /// The queue pair forgets its peer: it goes to RESET or ERR, or is destroyed. No connection of
    /// the way that ends here takes it afterwards. What is returned disconnects, and rejects, when it is
    /// dropped: behind a reset of the queue pair, of which nothing completes (Verbs V68).
    #[must_use = "the way ends when this is dropped"]
    pub(crate) fn leave(&self) -> impl Sized + use<> {
        let _taking = self.taking();
        let mut inner = self.lock();
        inner.round += 1;
        inner.open = false;
        (inner.stream.take(), std::mem::take(&mut inner.held))
    }
}

/// Connect to the peer, unless there is a connection.
fn dial(queue_pair: &Arc<QueuePair>, round: u64, pause: Duration) {
    let Some(ends) = ends(queue_pair) else { return };
    let Some(port) = ends.port() else { return };
    let mut inner = queue_pair.rendezvous.lock();
    if inner.round != round || inner.stream.is_some() || !queue_pair.is_ready() {
        return;
    }
    let Ok(connector) = queue_pair.context().adapter.connector() else { return };
    let connector = Arc::new(connector);
    inner.stream = Some(connector.clone());
    drop(inner);
    let connector = &connector;
    let later = (Arc::downgrade(queue_pair), Arc::downgrade(connector));
    let sink = raw::Sink::call(move |status| {
        let (queue_pair, connector) = later;
        if let (Some(queue_pair), Some(connector)) = (queue_pair.upgrade(), connector.upgrade()) {
            dialled(&queue_pair, &connector, round, pause, status);
        }
    });
    let hello = Hello::of(queue_pair).to_bytes();
    let begun = connector.bind(gid::socket_address(ends.own, 0, ends.interface)).and_then(|()| {
        if is_itself(queue_pair, &ends) {
            return connector.connect_to_itself(read_limits(queue_pair), sink);
        }
        let peer = gid::socket_address(ends.peer, port, ends.interface);
        connector.connect(None, peer, read_limits(queue_pair), &hello, sink)
    });
    if let Err(error) = begun {
        dialled(queue_pair, connector, round, pause, error.status);
    }
}

/// The attempt to connect has ended.
fn dialled(
    queue_pair: &Arc<QueuePair>,
    connector: &Arc<raw::Connector>,
    round: u64,
    pause: Duration,
    status: Status,
) {
    let answer = connector.private_data().ok();
    let hello = answer.and_then(|bytes| Hello::from_bytes(&bytes));
    let itself = ends(queue_pair).is_some_and(|ends| is_itself(queue_pair, &ends));
    let fits = itself
        || hello.is_some_and(|hello| {
            let own = Hello::of(queue_pair);
            (hello.destination, hello.source) == (own.source, own.destination)
        });
    let joined = || {
        let _taking = queue_pair.rendezvous.taking();
        queue_pair.rendezvous.is_current(connector, round)
            && connector
                .join(&queue_pair.engine)
                .and_then(|()| connector.complete_connect())
                .is_ok()
    };
    if status == Status::Success && fits && joined() {
        if let Some(hello) = hello {
            compare_numbers(queue_pair, hello);
        }
        return established(queue_pair, connector, round);
    }
    forget(queue_pair, connector);
    if status == Status::Canceled {
        return;
    }
    // An answer without a connection is a rejection, as one that fits no queue pair is.
    let nobody = matches!(connector.ended(), Some(EndReason::Link(_)));
    let refused = status == Status::ConnectionRefused && nobody;
    let had_peer = {
        let mut inner = queue_pair.rendezvous.lock();
        inner.last = Some(if refused { status } else { Status::InvalidRequest });
        inner.met
    };
    let waits = queue_pair.engine.outstanding().0 > 0;
    let next = next_pause(pause, had_peer && !waits);
    queue_pair.rendezvous.dial_later(queue_pair, round, pause, next);
}

/// The pause behind the next attempt. `without_peer`: the peer has left, and nothing waits for it.
fn next_pause(pause: Duration, without_peer: bool) -> Duration {
    let longest = if without_peer { LONGEST_PAUSE_WITHOUT_PEER } else { LONGEST_PAUSE };
    (pause * 2).min(longest)
}

/// A connection has come to nothing, or has ended.
fn forget(queue_pair: &QueuePair, connector: &Arc<raw::Connector>) -> bool {
    let mut inner = queue_pair.rendezvous.lock();
    let mine = inner.stream.as_ref().is_some_and(|stream| Arc::ptr_eq(stream, connector));
    if mine {
        inner.open = false;
        let gone = inner.stream.take();
        drop(inner);
        drop(gone);
    }
    mine
}

fn established(queue_pair: &Arc<QueuePair>, connector: &Arc<raw::Connector>, round: u64) {
    {
        let mut inner = queue_pair.rendezvous.lock();
        if inner.round != round || !inner.stream.as_ref().is_some_and(|s| Arc::ptr_eq(s, connector))
        {
            return;
        }
        (inner.open, inner.met) = (true, true);
    }
    usage::connected(queue_pair.context());
    let later = (Arc::downgrade(queue_pair), Arc::downgrade(connector));
    let sink = raw::Sink::call(move |_| {
        let (queue_pair, connector) = later;
        if let (Some(queue_pair), Some(connector)) = (queue_pair.upgrade(), connector.upgrade()) {
            ended(&queue_pair, &connector, round);
        }
    });
    if connector.notify_disconnect(sink).is_err() {
        ended(queue_pair, connector, round);
    }
}

/// The stream has ended. The queue pair stays as it is (Verbs V79); if the peer comes back with the same
/// numbers, a new one is made.
fn ended(queue_pair: &Arc<QueuePair>, connector: &Arc<raw::Connector>, round: u64) {
    if !forget(queue_pair, connector) {
        return;
    }
    let Some(ends) = ends(queue_pair) else { return };
    if leads(queue_pair, &ends) {
        queue_pair.rendezvous.dial_later(queue_pair, round, FIRST_PAUSE, FIRST_PAUSE * 2);
    }
}

/// A queue pair that serves no Reads agrees to one, and refuses it when it comes: both sides learn of the
/// mistake then (Verbs V92).
fn read_limits(queue_pair: &QueuePair) -> ReadLimits {
    let inbound = u32::from(queue_pair.attributes().max_dest_rd_atomic.max(1));
    ReadLimits { inbound, outbound: limits::READS }
}

/// On hardware nothing would arrive.
fn compare_numbers(queue_pair: &QueuePair, peer: Hello) {
    let own = Hello::of(queue_pair);
    if queue_pair.state() == qps::RTS && peer.rq_psn != own.sq_psn {
        explain::line(&format!(
            "queue pair {:#08x} sends from packet number {}, and its peer expects {}: an adapter in \
             hardware would drop everything",
            own.source, own.sq_psn, peer.rq_psn
        ));
    }
}

/// A Request has arrived.
fn request(context: &Arc<Context>, connector: Arc<raw::Connector>) {
    let hello = connector.private_data().ok().and_then(|bytes| Hello::from_bytes(&bytes));
    let (Some(hello), Ok(peer)) = (hello, connector.peer()) else {
        let _ = connector.reject(&[]);
        return;
    };
    let Some(queue_pair) = context.queue_pair(hello.destination) else {
        let _ = connector.reject(&[]);
        return;
    };
    if is_early(&queue_pair) {
        return hold(context, &queue_pair, connector);
    }
    let expected = ends(&queue_pair).filter(|ends| {
        ends.destination == hello.source
            && ends.peer == peer.ip().to_canonical()
            && hello.kind == type_of_peer(&queue_pair)
    });
    let Some(ends) = expected.filter(|_| queue_pair.is_ready()) else {
        let _ = connector.reject(&[]);
        return;
    };
    let taking = queue_pair.rendezvous.taking();
    let mut inner = queue_pair.rendezvous.lock();
    if !queue_pair.is_ready() {
        drop(inner);
        drop(taking);
        return request(context, connector); // it has changed its state meanwhile
    }
    let round = inner.round;
    if inner.open {
        // Any process that knows both numbers can send such a Request, and the queue pair has its peer. A peer that
        // begins anew repeats its Request, until the end of its last connection is known here.
        drop(inner);
        let _ = connector.reject(&[]);
        return;
    }
    if inner.stream.is_some() && leads(&queue_pair, &ends) {
        drop(inner);
        if !context.early.has_room(usize::MAX) {
            let _ = connector.reject(&[]);
            return;
        }
        // The queue pair's own connection is preferred, for a while.
        let (context, held) = (context.clone(), context.early.take());
        timers::after(PREFERENCE, move || {
            drop(held);
            if let Some(queue_pair) = context.queue_pair(hello.destination)
                && let Some(own) = queue_pair.rendezvous.give_up(round)
            {
                let _ = own.cancel();
            }
            request(&context, connector);
        });
        return;
    }
    let before = inner.stream.replace(connector.clone());
    drop(inner);
    drop(taking);
    if let Some(before) = before {
        // First, because a connection that this side ends takes its queue pair along.
        let _ = queue_pair.engine.part();
        let _ = before.cancel();
    }
    let later = (Arc::downgrade(&queue_pair), Arc::downgrade(&connector));
    let sink = raw::Sink::call(move |status| {
        let (queue_pair, connector) = later;
        let (Some(queue_pair), Some(connector)) = (queue_pair.upgrade(), connector.upgrade())
        else {
            return;
        };
        if status == Status::Success {
            established(&queue_pair, &connector, round);
        } else {
            forget(&queue_pair, &connector);
        }
    });
    compare_numbers(&queue_pair, hello);
    let answer = Hello::of(&queue_pair).to_bytes();
    let limits = read_limits(&queue_pair);
    let taking = queue_pair.rendezvous.taking();
    let accepted = queue_pair.rendezvous.is_current(&connector, round)
        && connector.accept(&queue_pair.engine, limits, &answer, sink).is_ok();
    drop(taking);
    if !accepted {
        forget(&queue_pair, &connector);
    }
}

/// Whether a Request for the queue pair comes too early.
fn is_early(queue_pair: &QueuePair) -> bool {
    matches!(queue_pair.state(), qps::RESET | qps::INIT)
}

/// A Request for a queue pair that is not in RTR yet.
fn hold(context: &Arc<Context>, queue_pair: &Arc<QueuePair>, connector: Arc<raw::Connector>) {
    let mut inner = queue_pair.rendezvous.lock();
    // [`Rendezvous::begin`] takes what is held behind the change of the state: what would be held
    // afterwards would stay there.
    if !is_early(queue_pair) {
        drop(inner);
        return request(context, connector);
    }
    // As many queue pairs as a program has may be in this state.
    if inner.held.len() >= HELD_MOST || !context.early.has_room(usize::MAX) {
        drop(inner);
        let _ = connector.reject(&[]);
        return;
    }
    let until = Instant::now() + HELD_FOR;
    inner.held.push_back(Early { connector, until, held: context.early.take() });
    drop(inner);
    let later = Arc::downgrade(queue_pair);
    timers::after(HELD_FOR, move || {
        let Some(queue_pair) = later.upgrade() else { return };
        let now = Instant::now();
        let mut inner = queue_pair.rendezvous.lock();
        let all = std::mem::take(&mut inner.held);
        let (late, kept): (VecDeque<_>, VecDeque<_>) =
            all.into_iter().partition(|early| early.until <= now);
        inner.held = kept;
        drop(inner);
        drop(late); // rejects
    });
}

#[cfg(test)]
mod tests {
    use transom_engine::QueuePairKind;

    use super::*;
    use crate::abi::{ibv_qp_attr, ibv_qp_cap, mask};
    use crate::completion::Queue;
    use crate::memory::Domain;
    use crate::queue_pair::Parts;

    /// A queue pair whose peer has been destroyed does not connect in vain for ever as often as one that awaits
    /// its peer, or whose requests wait.
    #[test]
    fn v79_attempts_become_rare_once_the_peer_has_left_and_nothing_waits() {
        let pauses = |without_peer| {
            std::iter::successors(Some(FIRST_PAUSE), move |pause| {
                Some(next_pause(*pause, without_peer))
            })
        };
        let within = |without_peer, time| {
            let mut at = Duration::ZERO;
            let begun = |pause: &Duration| {
                at += *pause;
                at <= time
            };
            pauses(without_peer).take_while(begun).count()
        };
        let minute = Duration::from_secs(60);
        assert!(within(false, minute) > 200, "{}", within(false, minute));
        assert!(within(true, minute) < 20, "{}", within(true, minute));
        assert_eq!(next_pause(LONGEST_PAUSE_WITHOUT_PEER, false), LONGEST_PAUSE, "a request waits");
    }

    /// A Request for a queue pair in INIT is looked at when it comes to RTR. The state may change
    /// between a look at it and [`hold`], which holds nothing then that no [`Rendezvous::begin`] takes.
    #[test]
    fn v76_no_request_is_held_behind_the_way_to_rtr() {
        let gids = gid::tables().remove(0);
        let context = Context::open(0, gids).unwrap();
        let domain = Domain::new(&context).unwrap();
        let queue = Arc::new(Queue::new(&context, 4, None, None).unwrap().0);
        let (send, receive, kind) = (queue.clone(), queue, QueuePairKind::Rc);
        let parts =
            Parts { domain, send, receive, shared: None, xrc: None, signal_all: false, kind };
        let queue_pair = QueuePair::new(parts, ibv_qp_cap::default()).unwrap();
        let held = || queue_pair.rendezvous.lock().held.len();
        let early = || Arc::new(context.adapter.connector().unwrap());

        let mut attr = ibv_qp_attr { qp_state: qps::INIT, port_num: 1, ..ibv_qp_attr::default() };
        let init = mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::ACCESS_FLAGS;
        queue_pair.modify(&attr, init).unwrap();
        hold(&context, &queue_pair, early());
        assert_eq!(held(), 1);

        attr.qp_state = qps::RTR;
        (attr.path_mtu, attr.dest_qp_num) = (3, queue_pair.number + 1);
        (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, 1);
        let dgid = u128::from_be_bytes(gid::bytes_of(context.address(0).unwrap()));
        attr.ah_attr.grh.dgid = [(dgid >> 64) as u64, dgid as u64].map(u64::to_be);
        let rtr = mask::STATE
            | mask::AV
            | mask::PATH_MTU
            | mask::DEST_QPN
            | mask::RQ_PSN
            | mask::MAX_DEST_RD_ATOMIC
            | mask::MIN_RNR_TIMER;
        queue_pair.modify(&attr, rtr).unwrap();
        assert_eq!(held(), 0);
        hold(&context, &queue_pair, early());
        assert_eq!(held(), 0);
    }
}
