//! A link: one TCP connection, or a pair of rings beside it, with its lock, buffers, readiness,
//! fairness and lease.
//!
//! Three kinds of thread make progress on a link, all by [`Link::drive`]: one that posts, one that
//! polls or waits for completions, and the background thread. While a thread polls it holds a
//! *lease*: the background thread neither touches the link nor arms its descriptor, looks again
//! when the lease ends, and takes over if it has lapsed. A thread that blocks counts as a *waiter*,
//! with the same effect and no clock.
//!
//! Invariant: a link that is not gone is armed in epoll, or noted in the timers, or has a waiter, or
//! waits to be armed (see `ready_set.rs`).

pub(crate) mod carrier;
pub(crate) mod control;
pub(crate) mod event_queue;
mod lending;
pub(crate) mod notifications;
mod outlet;
pub(crate) mod pass;
pub(crate) mod queues;
mod quick;
mod rearm;
mod rings;
pub(crate) mod shared_memory;
pub(crate) mod silence;
pub(crate) mod tcp;
mod tools;
pub(crate) mod upgrade;
pub(crate) mod work;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use transom_memory::{Lane, Token};
use transom_packets::EndId;
use transom_wire::{Buffer, Time};

use carrier::{Carrier, Stage};
use event_queue::{EventQueue, Owner};
use notifications::Notifications;
use pass::Pass;
use queues::{Queues, QueuesOverview};
use rearm::{AtomicInterest, Interest};
use rings::Rings;
use silence::Silence;
use work::{LeftWork, Work};

use super::config::options::Explain;
use super::config::path::PathReason;
use super::limits::admission::Starting;
use super::limits::guess_limiter::PeerIdentity;
use super::limits::requests::{Request, RequestState};
use super::observe::Observer;
use super::schedule::combining_lock::CombiningLock;
use super::schedule::shared::Shared;
use super::schedule::source::{Looked, Source};
use super::schedule::sync;
use super::schedule::traffic::Traffic;
use super::schedule::watch::{Responsible, Watch};
use crate::sys::{self, Epoll, Fd, IoError, Local, Stream};
use crate::{
    Attention, Connection, ConnectionOverview, DenialCause, DenialRecord, Denials, EndReason,
    Status,
};

/// Bytes queued for a link at a time, which one system call tries to write: enough for a few of the
/// largest frames.
const OUT: usize = 224 * 1024;
pub(crate) const NEVER: u64 = u64::MAX;

pub(crate) struct Link {
    pub(crate) key: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) stream: Stream,
    /// Once it is rings that carry the bytes: what to wait for instead of the stream.
    pub(crate) bell: OnceLock<Local>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) lock: CombiningLock<LinkState>,
    left: LeftWork,
    /// The thread that is responsible for the next look.
    pub(crate) watch: Watch,
    /// The events that a thread which sleeps waits for.
    interest: AtomicInterest,
    /// A pass of [`Work::SERVE`] was made, and the one of [`Work::REST`] has not come.
    served: AtomicBool,
    /// A pass ended with something to read, and no descriptor will say so.
    unread: AtomicBool,
    /// The link is torn down: no thread makes a pass over it.
    gone: AtomicBool,
    /// The peer, if it was identified as the link came in.
    pub(crate) known: OnceLock<PeerIdentity>,
    /// The silence that has ended the link, if one has.
    pub(crate) silence: OnceLock<Silence>,
    pub(crate) events: EventQueue,
    pub(crate) observer: Observer,
    pub(crate) owner: Mutex<Weak<dyn Owner>>,
    /// The request of a peer, as one of those at a listener.
    request: Mutex<Option<Request>>,
}

/// The state that the lock of a link guards.
pub(crate) struct LinkState {
    pub(crate) connection: Connection,
    pub(crate) qp: Option<Arc<dyn Queues>>,
    pub(crate) effects: crate::Effects,
    /// The link's end in a capture, once a frame was recorded.
    pub(crate) captured: Option<EndId>,
    pub(crate) phase: LinkPhase,
    pub(crate) carrier: Carrier,
    /// Registered among the unaccepted links: not accepted when it was last armed.
    unaccepted: bool,
    /// Why it has the path that it has.
    pub(crate) reason: PathReason,
    /// The beginning of a frame whose rest has not arrived.
    pub(crate) partial: Vec<u8>,
    pub(crate) out: Buffer,
    /// Bytes of `out` that were written.
    pub(crate) written: usize,
    pub(crate) starting: Option<Starting>,
    /// The lane in which accesses are announced; a link over rings keeps one until it rests.
    pub(crate) lane: Option<Lane>,
    /// The last pass left nothing to do before more bytes, more posts or this time.
    pub(crate) idle_until: Option<Time>,
    /// When to see what is due at the latest, however much there is to do.
    pub(crate) housekeeping_at: Time,
    /// The connection's deadline, as of the last such look.
    pub(crate) deadline: Option<Time>,
    /// How much of its traffic was [counted](Link::count_traffic).
    counted: [Traffic; 2],
}

/// How far the connection that carries a link has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkPhase {
    /// The TCP connection is being made, or its path found out.
    Connecting,
    Open,
    /// This side has said that it sends no more.
    Finished,
    /// The adapter is closed: the link is torn down by the pass that is under way.
    Cut,
    /// The link is torn down.
    Gone,
}

/// A link at one moment: see [`Link::overview`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkOverview {
    pub(crate) connection: ConnectionOverview,
    pub(crate) queues: Option<QueuesOverview>,
    pub(crate) shares_receives: bool,
    pub(crate) unaccepted: bool,
    pub(crate) reason: PathReason,
    /// Bytes of a frame whose rest has not arrived.
    pub(crate) unread: usize,
    /// Bytes that the peer has not taken.
    pub(crate) unsent: usize,
    /// Shared regions of this side that the peer's process has mapped, and their bytes; and the other way
    /// round.
    pub(crate) lent: (usize, u64),
    pub(crate) borrowed: (usize, u64),
    pub(crate) deadline: Option<Time>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("key", &self.key).field("peer", &self.peer).finish()
    }
}

/// Refusals of one link: the options say which peers may learn more than the class of rule.
pub(crate) struct LinkDenials<'a>(pub(super) &'a Link);

impl Denials for LinkDenials<'_> {
    fn record(&self, record: DenialRecord) -> u64 {
        let link = self.0;
        let record = DenialRecord { peer: Some(link.peer), ..record };
        if let DenialCause::Peer(denial) = &record.cause
            && denial.is_guess()
        {
            let user = link.bell.get().and_then(Local::user);
            let guess_limiter = &link.shared.guess_limiter;
            let ask = || guess_limiter.who(link.stream.local().ok()?, link.peer, user);
            let who = || link.known.get().copied().or_else(ask);
            guess_limiter.guessed(who, record.time);
        }
        link.observer.refused(&record);
        link.shared.denials().record(record)
    }

    fn explain(&self, id: u64) -> Option<String> {
        let link = self.0;
        let allowed = match link.shared.options.explain {
            Explain::Nobody => false,
            Explain::Everyone => true,
            // Asked only now, because it means calls to the kernel.
            Explain::SameUser => match link.bell.get() {
                Some(bell) => bell.user().is_some_and(sys::is_our_user),
                None => link.is_of_our_user(),
            },
        };
        let denials = link.shared.denials();
        denials.get(id).filter(|_| allowed).map(|record| record.cause.for_peer())
    }
}

impl Link {
    /// Whether a socket of our user is at the other end, as far as there is time to find that out.
    fn is_of_our_user(&self) -> bool {
        let Ok(local) = self.stream.local() else { return false };
        let look = || sys::peer_is_same_user(local, self.peer);
        self.shared.query_budget.ask(look).unwrap_or(false)
    }

    pub(crate) fn new(
        shared: &Arc<Shared>,
        key: u64,
        (stream, peer): (Stream, SocketAddr),
        mut connection: Connection,
        owner: Weak<dyn Owner>,
        (starting, stage, reason): (Starting, Option<Stage>, PathReason),
    ) -> Arc<Link> {
        let connecting = matches!(starting, Starting::Asking(_));
        let unaccepted = matches!(starting, Starting::Incoming(_));
        if !connecting {
            tcp::learn_segment_size(&stream, &mut connection);
        }
        let observer = Observer::new(peer, connection.id());
        let state = LinkState {
            unaccepted,
            connection,
            qp: None,
            effects: crate::Effects::default(),
            captured: None,
            phase: if connecting { LinkPhase::Connecting } else { LinkPhase::Open },
            carrier: Carrier::tcp(stage),
            reason,
            partial: Vec::new(),
            out: Buffer::new(OUT),
            written: 0,
            starting: Some(starting),
            lane: None,
            idle_until: None,
            housekeeping_at: Time(0),
            deadline: None,
            counted: [Traffic::default(); 2],
        };
        Arc::new(Link {
            key,
            peer,
            stream,
            bell: OnceLock::new(),
            shared: shared.clone(),
            lock: CombiningLock::new(state),
            left: LeftWork::default(),
            watch: Watch::new(shared.options.lease),
            interest: AtomicInterest::default(),
            served: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            known: OnceLock::new(),
            silence: OnceLock::new(),
            events: EventQueue::default(),
            observer,
            owner: Mutex::new(owner),
            request: Mutex::default(),
        })
    }

    /// The descriptor that epoll waits for.
    pub(crate) fn fd(&self) -> &Fd {
        self.bell.get().map_or(self.stream.fd(), Local::fd)
    }

    /// Rings carry its bytes.
    pub(crate) fn is_over_rings(&self) -> bool {
        self.bell.get().is_some()
    }

    /// There is nothing left to do on it.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    pub(crate) fn local(&self) -> Result<SocketAddr, IoError> {
        self.stream.local()
    }

    // ---- who makes progress, and why -----------------------------------------------------------

    /// Make a pass, or have the thread that is making one make another.
    pub(crate) fn drive(&self, work: Work) {
        // Asked of one pass: those behind it do what others have left.
        let mut asked = work;
        self.lock.drive(
            || self.left.leave(work),
            |state| {
                let work = self.with_left(std::mem::replace(&mut asked, Work::POSTS));
                let mut notifications = Notifications::default();
                let pass = Pass::of(work, sys::recently());
                self.pass(state, self.worker(state), pass, &mut notifications);
                notifications
            },
            |notifications| self.afterwards(notifications),
        );
    }

    /// `work`, and what was left by threads whose `try_lock` failed.
    #[inline]
    fn with_left(&self, work: Work) -> Work {
        self.left.take().map_or(work, |left| work.and(left))
    }

    fn afterwards(&self, notifications: Notifications) {
        self.observer.emit();
        notifications.fire();
        if self.events.has_deferred() {
            self.deliver();
        }
    }

    /// Something was posted.
    pub(crate) fn posted(&self) {
        self.drive(Work::POSTS);
    }

    /// Whether the link will be armed soon, and takes receives over then: credit for the peer
    /// travels with the program's answer, or at the latest with the next round. Ask with the front
    /// half locked.
    pub(crate) fn is_served(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    /// A thread polls, at `now`. Most polls find nothing, so the way to that answer is short.
    /// `tries`: how often to look before the answer is that there is nothing.
    pub(crate) fn poll(&self, now: Time, tries: u32) {
        self.watch.take(now, self.alarm());
        self.look_once(now, tries);
    }

    /// Take what has come, if no other thread has the lock.
    #[inline(always)]
    fn look_once(&self, now: Time, tries: u32) -> Looked {
        let mut looked = Looked::InVain;
        self.lock.attempt(
            |state| {
                let work = self.with_left(Work::POLL);
                let idle = work == Work::POLL && state.idle_until.is_some_and(|until| now < until);
                if idle && self.finds_no_record(state, now, tries) && self.idles(state, now) {
                    return None;
                }
                let mut notifications = Notifications::default();
                looked = if idle { Looked::Found } else { Looked::Passed };
                if idle && self.receive_quick(state, now, &mut notifications) {
                    return Some(notifications);
                }
                let (mut worker, mut first) = (self.worker(state), None);
                if let Some(worker) = worker.as_deref_mut().filter(|_| idle) {
                    first = self.glance(state, worker, tries);
                    if first == Some(Err(IoError::NotNow)) && self.idles(state, now) {
                        looked = Looked::InVain;
                        return None;
                    }
                    if self.receive_few(state, worker, now, &mut first, &mut notifications) {
                        return Some(notifications);
                    }
                }
                self.watch.set_at_work(true);
                let pass = Pass { first, found: idle, ..Pass::of(work, now) };
                self.pass(state, worker, pass, &mut notifications);
                self.watch.set_at_work(false);
                Some(notifications)
            },
            |notifications| {
                if let Some(notifications) = notifications {
                    self.afterwards(notifications);
                }
            },
        );
        looked
    }

    /// A look was in vain. Whether that is all.
    fn idles(&self, state: &mut LinkState, now: Time) -> bool {
        state.connection.idle_pass();
        let all = !state.connection.wants_write();
        if all {
            self.acknowledge_and_wake(state, now);
        }
        all
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        self.watch.is_waited_for()
    }

    /// Whether a thread of the program polls it, or waits for it.
    pub(super) fn is_attended(&self, now: Time) -> bool {
        self.is_waited_for() || self.watch.is_leased(now)
    }

    /// A call that makes the background thread look at a given time.
    pub(crate) fn alarm(&self) -> impl FnOnce(Time) {
        |when| self.shared.note(self.key, when)
    }

    /// Have the background thread look at `when` or earlier.
    pub(crate) fn note(&self, when: Time) {
        self.watch.note(when, self.alarm());
    }

    /// This thread is going to wait for the link's descriptor.
    pub(crate) fn wait_here(self: &Arc<Link>) -> Waiting {
        self.watch.join();
        self.drive(Work::BLOCK);
        Waiting(self.clone())
    }

    /// A pass has ended with something to read that no descriptor will tell of, or with nothing.
    pub(crate) fn set_unread(&self, unread: bool) {
        self.unread.store(unread, Ordering::Relaxed);
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// Run `work` unless a message of the peer's that names `region` is being executed. None begins
    /// meanwhile.
    pub(crate) fn unless_executing<R>(&self, region: Token, work: impl FnOnce() -> R) -> Option<R> {
        let work = |state: &mut LinkState| (!state.connection.is_executing(region)).then(work);
        let (done, again) = self.lock.control(work);
        if again {
            self.catch_up();
        }
        done
    }

    /// Bytes of memory that it has because of its peer: beginnings of frames, and what the peer does
    /// not take.
    pub(crate) fn held(&self) -> usize {
        let held = |state: &mut LinkState| state.partial.capacity() + state.out.bytes.capacity();
        let (held, again) = self.lock.control(held);
        if again {
            self.catch_up();
        }
        held
    }

    /// Add what has gone over the link since the last time to the adapter's traffic. May wait for a pass.
    pub(crate) fn count_traffic(&self) {
        let ((), again) = self.lock.control(|state| self.count(state));
        if again {
            self.catch_up();
        }
    }

    fn count(&self, state: &mut LinkState) {
        if let Some(now) = state.carrier.traffic(&self.stream) {
            self.shared.traffic.add(state.counted, now);
            state.counted = now;
        }
    }

    /// The link as it is now. May wait for a pass.
    pub(crate) fn overview(&self) -> LinkOverview {
        let overview = |state: &mut LinkState| LinkOverview {
            connection: state.connection.overview(),
            queues: state.qp.as_ref().map(|qp| qp.overview()),
            shares_receives: state.connection.has_attention(Attention::SHARED),
            unaccepted: state.unaccepted,
            reason: state.reason,
            unread: state.partial.len(),
            unsent: state.out.bytes.len().saturating_sub(state.written),
            lent: state.carrier.rings().map_or((0, 0), Rings::lent),
            borrowed: state.carrier.rings().map_or((0, 0), Rings::borrowed),
            deadline: state.deadline,
        };
        let (overview, again) = self.lock.control(overview);
        if again {
            self.catch_up();
        }
        overview
    }

    /// When the background thread is to look at the latest.
    #[cfg(test)]
    pub(crate) fn noted(&self) -> Time {
        self.watch.noted()
    }

    /// The peer, if it was identified as the link came in.
    #[cfg(test)]
    pub(crate) fn known(&self) -> Option<PeerIdentity> {
        self.known.get().copied()
    }

    /// Run `work` with the link's lock held, and look at nothing that is left meanwhile.
    #[cfg(test)]
    pub(crate) fn while_held(&self, work: impl FnOnce()) {
        self.lock.control(|_| work());
    }

    /// Whether a thread has left something that is to be sent or reported, and makes no pass for it.
    #[cfg(test)]
    pub(crate) fn has_left(&self) -> bool {
        let left = |state: &mut LinkState| {
            let gone = state.phase == LinkPhase::Gone;
            !state.effects.list.is_empty() || !gone && state.connection.wants_write()
        };
        // No control call: a pass would end early for that.
        let (left, again) = self.lock.try_with(left).unwrap_or_default();
        if again {
            self.catch_up();
        }
        left
    }

    /// The memory that this link shares with its peer.
    #[cfg(test)]
    pub(crate) fn shared_memory(&self) -> Option<(usize, usize)> {
        self.lock.control(|state| state.carrier.rings().map(Rings::memory)).0
    }

    /// Whether pages of this side's data area are being given back.
    #[cfg(test)]
    pub(crate) fn gives_back(&self) -> bool {
        let gives_back =
            |state: &mut LinkState| state.carrier.rings().is_some_and(Rings::gives_back);
        let (gives_back, again) = self.lock.control(gives_back);
        if again {
            // A thread that asks again and again would keep the background thread away.
            self.catch_up();
        }
        gives_back
    }

    /// Bytes of payload that have gone through this side's data area.
    #[cfg(test)]
    pub(crate) fn placed(&self) -> u64 {
        self.lock.control(|state| state.carrier.rings().map_or(0, Rings::placed)).0
    }

    /// The set in which it lies.
    pub(crate) fn home(&self, state: &LinkState) -> &Epoll {
        if state.unaccepted { &self.shared.unaccepted } else { &self.shared.epoll }
    }

    /// Leave the unaccepted links, once accepted.
    pub(crate) fn leave_unaccepted(&self, state: &mut LinkState) {
        // If there is no room elsewhere, it stays where it is.
        if state.unaccepted
            && state.qp.is_some()
            && self.shared.epoll.add(self.fd(), self.key).is_ok()
        {
            self.shared.unaccepted.remove(self.fd());
            state.unaccepted = false;
        }
    }

    pub(crate) fn set_owner(&self, owner: Weak<dyn Owner>) {
        *self.owner.lock().unwrap_or_else(PoisonError::into_inner) = owner;
        self.set_request_state(RequestState::Taken);
    }

    /// The peer's request has arrived at a listener.
    pub(crate) fn set_request(&self, request: Request) {
        *self.request.lock().unwrap_or_else(PoisonError::into_inner) = Some(request);
    }

    /// How far the peer's request has come with the program, if the peer has made one.
    pub(crate) fn set_request_state(&self, state: RequestState) {
        if let Some(request) = &mut *self.request.lock().unwrap_or_else(PoisonError::into_inner) {
            request.enter(state);
        }
    }

    pub(crate) fn owner(&self) -> Weak<dyn Owner> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether `owner` is the link's.
    pub(crate) fn is_owned_by<O>(&self, owner: &Arc<O>) -> bool {
        std::ptr::addr_eq(self.owner().as_ptr(), Arc::as_ptr(owner))
    }

    /// The link of this key, if there is one.
    pub(crate) fn of_key(shared: &Shared, key: u64) -> Option<Arc<Link>> {
        shared.source(key).and_then(Link::of_source)
    }

    /// All links of an adapter.
    pub(crate) fn all(shared: &Shared) -> Vec<Arc<Link>> {
        shared.sources().into_iter().filter_map(Link::of_source).collect()
    }

    fn of_source(source: Arc<dyn Source>) -> Option<Arc<Link>> {
        let source: Arc<dyn std::any::Any + Send + Sync> = source;
        source.downcast().ok()
    }

    /// Have epoll and the timers know it: among the unaccepted links, or not.
    pub(crate) fn register(self: &Arc<Link>, unaccepted: bool) -> std::io::Result<()> {
        self.shared.add(self.key, self.fd(), self.clone(), unaccepted)
    }
}

impl Source for Link {
    fn ready(self: Arc<Self>, now: Time) {
        if let Some(work) = self.work_for_background(now) {
            self.drive(work);
        }
    }

    fn due(self: Arc<Self>, now: Time) {
        self.watch.due();
        self.ready(now);
    }

    fn serve(&self, now: Time) -> bool {
        let work = if self.is_attended(now) {
            self.work_for_background(now)
        } else {
            self.served.store(true, Ordering::Relaxed);
            Some(Work::SERVE)
        };
        if let Some(work) = work {
            self.drive(work);
        }
        true
    }

    fn finish_served(&self) {
        // The front half's lock sees to it that a post sees this, or the pass what was posted.
        self.served.store(false, Ordering::Relaxed);
        self.drive(Work::REST);
    }

    fn stay_awake(&self) -> bool {
        // A thread that waits has said under this lock that it sleeps, and relies on that.
        let awake = |state: &mut LinkState| {
            let here = !self.is_attended(sys::now());
            if here && let Some(rings) = state.carrier.rings() {
                rings.duplex.wake_up();
            }
            here
        };
        let Some((awake, left)) = self.lock.try_with(awake) else { return false };
        if left {
            self.catch_up();
        }
        awake
    }

    fn look_on(&self, now: Time) -> Looked {
        if self.is_gone() || self.is_attended(now) {
            return Looked::NotHere;
        }
        self.look_once(now, 1)
    }

    fn rest(&self) {
        self.drive(Work::ATTEND);
    }

    fn stop_accepting(self: Arc<Self>, _status: Status) {}

    fn end(&self, status: Status) {
        self.fail(EndReason::Link(status));
    }
}

impl Link {
    /// The work that other threads leave to the background thread, if any.
    fn work_for_background(&self, now: Time) -> Option<Work> {
        match self.watch.responsible(now, self.alarm()) {
            // A waiter among several may have left and taken the ring's wake-up with it.
            Responsible::Waiter if self.is_over_rings() => Some(Work::BLOCK),
            Responsible::Waiter => Some(Work::POSTS),
            Responsible::Poller => None,
            Responsible::Background => Some(Work::TAKE_OVER),
        }
    }
}

/// A thread that waits for the link.
pub(crate) struct Waiting(Arc<Link>);

impl Waiting {
    /// There is something to do already.
    pub(crate) fn is_unread(&self) -> bool {
        self.0.is_unread()
    }

    /// The descriptor to wait for, and whether to wait for room to write, too. `None` while bytes
    /// are not read on purpose: the thread would only spin over them.
    pub(crate) fn interest(&self) -> Option<(&Fd, bool)> {
        match self.0.interest.get() {
            Interest::Nothing => None,
            interest => Some((self.0.fd(), interest == Interest::BytesAndRoom)),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.watch.leave(sys::now(), self.0.alarm());
    }
}
