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
//! waits to be armed (see `crowd.rs`).

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use transom_wire::Time;

use super::admission::Starting;
use super::handover::Stage;
use super::latch::Latch;
use super::lease::Lease;
use super::mail::{Mail, Owner};
use super::options::Explain;
use super::qp::{Front, Qp};
use super::rings::Rings;
use super::shared::Shared;
use super::sink::Told;
use super::traffic::First;
use super::workers::Worker;
use crate::sys::{self, Fd, Host, IoError, Local, Stream};
use crate::trace::{TraceEvent, Tracer};
use crate::{
    Buffer, Connection, Cx, DenialRecord, Denials, Effect, EndReason, LinkWish, SharedReceives,
};

/// Receive before sending.
pub(crate) const RECEIVE: u8 = 1;
/// A thread is about to block: owed acknowledgements go out.
pub(crate) const FLUSH: u8 = 1 << 1;
/// Have epoll watch afterwards, unless somebody else does.
pub(crate) const ARM: u8 = 1 << 2;
/// Something was posted.
const POSTED: u8 = 1 << 3;
/// What was posted has been carried over already.
const CARRIED: u8 = 1 << 5;
/// The background thread comes because nobody else does.
const LAPSED: u8 = 1 << 4;
/// Another pass with `ARM` follows soon.
const SERVED: u8 = 1 << 6;

/// Bytes queued for a link at a time, which one system call tries to write: enough for a few of the
/// largest frames.
const OUT: usize = 224 * 1024;
const NEVER: u64 = u64::MAX;

pub(crate) struct Link {
    pub(crate) key: u64,
    pub(crate) peer: SocketAddr,
    pub(super) stream: Stream,
    /// Once it is rings that carry the bytes: what to wait for instead of the stream.
    pub(super) bell: OnceLock<Local>,
    pub(super) shared: Arc<Shared>,
    pub(super) latch: Latch<State>,
    /// What those who lost the `try_lock` want done.
    todo: AtomicU8,
    /// Held by a polling thread.
    lease: Lease,
    /// A polling thread is in the middle of a pass, which may outlast its lease.
    at_work: AtomicBool,
    /// When the timers will have the background thread look.
    noted: AtomicU64,
    waiters: AtomicU32,
    /// Output waits for room in the socket.
    stuck: AtomicBool,
    /// A pass with `SERVED` was made, and the one with `ARM` has not come.
    served: AtomicBool,
    /// A pass ended with something to read, and no descriptor will say so.
    unread: AtomicBool,
    pub(super) mail: Mail,
    pub(super) owner: Mutex<Owner>,
}

/// What the latch guards.
pub(crate) struct State {
    pub(crate) connection: Connection,
    pub(crate) qp: Option<Arc<Qp>>,
    pub(super) effects: crate::Effects,
    /// The TCP connection is being made, or its path found out.
    pub(super) connecting: bool,
    pub(super) stage: Stage,
    /// What carries the bytes instead of the stream.
    pub(super) rings: Option<Rings>,
    /// The beginning of a frame whose rest has not arrived.
    pub(super) partial: Vec<u8>,
    /// A message waited for a receive: `partial` may hold whole frames.
    pub(super) paused: bool,
    pub(super) out: Buffer,
    /// Bytes of `out` that were written.
    pub(super) written: usize,
    /// The system was told that more would follow.
    pub(super) corked: bool,
    /// The pass ended with more to send.
    pub(super) more: bool,
    fin_sent: bool,
    gone: bool,
    starting: Option<Starting>,
    /// The last pass left nothing to do before more bytes, more posts or this time.
    calm_until: Option<Time>,
    /// The connection's deadline, as of the last pass.
    deadline: Option<Time>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("key", &self.key).field("peer", &self.peer).finish()
    }
}

/// Refusals of one link: who may learn more is a question about its peer.
struct LinkDenials<'a>(&'a Link);

impl Denials for LinkDenials<'_> {
    fn record(&self, record: DenialRecord) -> u64 {
        self.0.shared.denials().record(record)
    }

    fn explain(&self, id: u64) -> Option<String> {
        let link = self.0;
        let allowed = match link.shared.options.explain {
            Explain::Nobody => false,
            Explain::Everyone => true,
            // Asked only now, because it means reading a table as long as the machine has sockets.
            Explain::SameUser => match link.bell.get() {
                Some(bell) => bell.user() == Some(sys::user()),
                None => {
                    let local = link.stream.local();
                    local.is_ok_and(|local| sys::peer_is_same_user(local, link.peer))
                }
            },
        };
        let denials = link.shared.denials();
        denials.get(id).filter(|_| allowed).map(|record| record.cause.for_peer())
    }
}

impl Link {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        key: u64,
        (stream, peer): (Stream, SocketAddr),
        connection: Connection,
        owner: Owner,
        (starting, stage): (Starting, Stage),
    ) -> Arc<Link> {
        let connecting = matches!(starting, Starting::Asking(_));
        let state = State {
            connection,
            qp: None,
            effects: crate::Effects::default(),
            connecting,
            stage,
            rings: None,
            partial: Vec::new(),
            paused: false,
            out: Buffer { bytes: Vec::new(), limit: OUT },
            written: 0,
            corked: false,
            more: false,
            fin_sent: false,
            gone: false,
            starting: Some(starting),
            calm_until: None,
            deadline: None,
        };
        Arc::new(Link {
            key,
            peer,
            stream,
            bell: OnceLock::new(),
            shared: shared.clone(),
            latch: Latch::new(state),
            todo: AtomicU8::new(0),
            lease: Lease::new(shared.options.lease),
            at_work: AtomicBool::new(false),
            noted: AtomicU64::new(NEVER),
            waiters: AtomicU32::new(0),
            stuck: AtomicBool::new(false),
            served: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            mail: Mail::default(),
            owner: Mutex::new(owner),
        })
    }

    /// What to wait for.
    pub(crate) fn fd(&self) -> &Fd {
        self.bell.get().map_or(self.stream.fd(), Local::fd)
    }

    pub(crate) fn local(&self) -> Result<SocketAddr, IoError> {
        self.stream.local()
    }

    // ---- who makes progress, and why -----------------------------------------------------------

    /// Make a pass, or have whoever is making one make another.
    pub(crate) fn drive(&self, bits: u8) {
        self.drive_with(bits, None);
    }

    /// The same, for a post: its queue pair's front half is locked, and a pass that begins at once
    /// carries the post over before it lets go of that.
    fn drive_with(&self, bits: u8, post: Option<(&Qp, MutexGuard<'_, Front>)>) {
        let (bits, post) = (Cell::new(bits), Cell::new(post));
        self.latch.drive(
            || {
                drop(post.take());
                self.todo.fetch_or(bits.take(), Ordering::AcqRel);
            },
            |state| {
                let carried = post.take().is_some_and(|(qp, front)| state.carry(qp, front));
                let bits = if carried { CARRIED } else { bits.take() } | self.left_over();
                let mut told = Told::default();
                self.pass(state, bits, &mut told);
                told
            },
            |told| self.afterwards(told),
        );
    }

    /// What those who lost the `try_lock` want done.
    fn left_over(&self) -> u8 {
        if self.todo.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.todo.swap(0, Ordering::AcqRel)
    }

    fn afterwards(&self, told: Told) {
        told.tell();
        self.deliver();
    }

    /// Something was posted.
    pub(crate) fn posted(&self) {
        self.drive(POSTED);
    }

    /// Something was posted to its queue pair, whose front half is `front`.
    pub(super) fn posted_at(&self, qp: &Qp, front: MutexGuard<'_, Front>) {
        self.drive_with(POSTED, Some((qp, front)));
    }

    /// It is to be armed soon, and takes receives over then: credit for the peer travels with the
    /// program's answer, or at the latest with the next turn. Ask with the front half locked.
    pub(super) fn is_served(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    /// A thread polls, at `now`: usually in vain, so that is kept short.
    /// `tries`: how often to look before that is believed.
    pub(crate) fn poll(&self, now: Time, tries: u32) {
        self.take_lease(now);
        self.latch.attempt(
            |state| {
                let bits = RECEIVE | self.left_over();
                let mut worker = self.shared.workers.take();
                let calm = bits == RECEIVE && state.calm_until.is_some_and(|until| now < until);
                let first = if calm { self.glance(state, &mut worker, now, tries) } else { None };
                if first == Some(Err(IoError::NotNow)) {
                    state.connection.idle_pass(now);
                    if !state.connection.wants_write() {
                        self.settle_up(state, now);
                        return None;
                    }
                }
                let mut told = Told::default();
                self.at_work.store(true, Ordering::Relaxed);
                self.pass_with(state, &mut worker, now, (bits, first), &mut told);
                self.at_work.store(false, Ordering::Relaxed);
                Some(told)
            },
            |told| {
                if let Some(told) = told {
                    self.afterwards(told);
                }
            },
        );
    }

    fn take_lease(&self, now: Time) {
        if let Some(until) = self.lease.take(now) {
            self.note(until);
        }
    }

    fn is_waited_for(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) != 0
    }

    /// Have the background thread look at `when` or earlier.
    fn note(&self, when: Time) {
        if self.noted.load(Ordering::Relaxed) > when.0 {
            self.noted.store(when.0, Ordering::Relaxed);
            self.shared.note(self.key, when);
        }
    }

    /// The background thread: a time that was noted has come.
    pub(crate) fn due(&self, now: Time) {
        self.noted.store(NEVER, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.ready(now);
    }

    /// The background thread: the descriptor is ready, or it is time to look.
    pub(crate) fn ready(&self, now: Time) {
        if self.is_waited_for() {
            // Of several that wait, one may have left with the ring awake.
            self.drive(if self.bell.get().is_some() { RECEIVE | FLUSH } else { 0 });
        } else if let Some(until) = self.lease.held(now) {
            self.lease.renewed();
            self.note(until);
        } else if self.at_work.load(Ordering::Relaxed) {
            // It polls: what it takes in now has not been waiting for us.
            self.lease.renewed();
            self.note(now.after(self.shared.options.lease));
        } else {
            self.drive(RECEIVE | FLUSH | ARM | LAPSED);
        }
    }

    /// The same for a thread of the program, which will [arm](ARM) the link soon.
    pub(super) fn serve(&self, now: Time) {
        if self.is_waited_for() || self.lease.held(now).is_some() {
            self.ready(now);
        } else {
            self.served.store(true, Ordering::Relaxed);
            self.drive(RECEIVE | SERVED);
        }
    }

    /// What [`Link::serve`] has put off: acknowledge, take posts over, arm.
    pub(super) fn settle_served(&self) {
        // The front half's lock sees to it that who posts sees this, or the pass what was posted.
        self.served.store(false, Ordering::Relaxed);
        self.drive(FLUSH | ARM);
    }

    /// This thread is going to wait for the link's descriptor.
    pub(crate) fn wait_here(self: &Arc<Link>) -> Waiting {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.drive(RECEIVE | FLUSH);
        Waiting(self.clone())
    }

    // ---- one pass ------------------------------------------------------------------------------

    /// Run `work` with everything the core may use.
    fn with_cx<R>(
        &self,
        state: &mut State,
        worker: &mut Worker,
        now: Time,
        work: impl FnOnce(&mut State, &mut Cx<'_>, &mut Vec<u8>) -> R,
    ) -> R {
        let qp = state.qp.take();
        let mut effects = std::mem::take(&mut state.effects);
        let denials = LinkDenials(self);
        let trace = self.shared.options.trace.clone();
        let mut tracer = trace.map(|trace| move |event: &TraceEvent| (trace.0)(event));
        let mut cx = Cx {
            now,
            memory: &self.shared.memory,
            lane: &mut worker.lane,
            host: &Host,
            denials: &denials,
            shared: qp
                .as_ref()
                .and_then(|qp| qp.shared.as_deref())
                .map(|shared| shared as &dyn SharedReceives),
            effects: &mut effects,
            trace: tracer.as_mut().map(|tracer| tracer as &mut dyn Tracer),
        };
        let result = work(state, &mut cx, &mut worker.staging);
        if state.qp.is_none() {
            state.qp = qp; // unless the call has just brought one
        }
        state.effects = effects;
        state.report();
        result
    }

    fn pass(&self, state: &mut State, bits: u8, told: &mut Told) {
        let mut worker = self.shared.workers.take();
        self.pass_with(state, &mut worker, sys::recently(), (bits, None), told);
    }

    /// A pass whose first receive has been done, perhaps.
    fn pass_with(
        &self,
        state: &mut State,
        worker: &mut Worker,
        now: Time,
        (bits, first): (u8, First),
        told: &mut Told,
    ) {
        if state.gone {
            return;
        }
        let fruitful = matches!(first, Some(Ok(_)));
        if bits & !(RECEIVE | CARRIED) != 0 || bits == 0 {
            state.exchange();
        }
        self.with_cx(state, worker, now, |state, cx, staging| {
            self.step(state, cx, staging, bits, first);
            if bits & (FLUSH | ARM) != 0 {
                self.before_sleep(state, |state| {
                    self.step(state, cx, staging, RECEIVE | FLUSH, None);
                });
            }
        });
        self.conclude(state, told);
        if state.gone {
            return;
        }
        if fruitful && !self.stuck.load(Ordering::Relaxed) && !state.is_pending() {
            // A polling thread has found something and holds the lease: it will post or poll, or the
            // lease will lapse, and what is due until then is found out by whichever it is.
            state.calm_until = None;
        } else {
            self.rest(state, now, bits);
        }
    }

    /// Receive, keep time, send.
    fn step(
        &self,
        state: &mut State,
        cx: &mut Cx<'_>,
        staging: &mut Vec<u8>,
        bits: u8,
        first: First,
    ) {
        if state.deadline.is_some_and(|deadline| deadline <= cx.now) {
            state.connection.on_deadline(cx);
        }
        if state.connecting && !self.connected(state, cx) {
            return;
        }
        if bits & RECEIVE != 0 {
            let asks = bits & (FLUSH | ARM | SERVED) != 0;
            let any = self.take_in(state, cx, staging, (first, asks));
            if !any && first.is_none() {
                state.connection.idle_pass(cx.now);
            } else if any && bits & LAPSED != 0 {
                self.lease.kept_waiting();
            }
        }
        if bits & FLUSH != 0 {
            state.connection.before_blocking(cx.now);
        }
        if bits != RECEIVE || state.connection.wants_write() || !state.out.bytes.is_empty() {
            self.send(state, cx);
        }
        if state.paused && state.connection.wants_read() {
            self.take_in(state, cx, staging, (None, false));
            self.send(state, cx);
        }
    }

    /// Hang up if the connection wants that, and carry out what it has decided.
    fn conclude(&self, state: &mut State, told: &mut Told) {
        let all_written = state.out.bytes.is_empty();
        match state.connection.link_wish() {
            LinkWish::Keep => {}
            LinkWish::Finish => {
                if all_written && !state.fin_sent && !state.connecting {
                    state.fin_sent = true;
                    match self.bell.get() {
                        Some(bell) => bell.finish(),
                        None => self.stream.finish(),
                    }
                }
            }
            LinkWish::Close => state.gone = true,
        }
        if state.connecting && state.connection.ended().is_some() {
            state.gone = true; // there is nobody to take leave of
        }
        if state.starting.is_some()
            && state.effects.list.iter().any(|effect| matches!(effect, Effect::Event(_)))
        {
            // A request has arrived, or an answer: who it is has been said.
            state.starting = None;
        }
        let over = state.connection.ended().is_some();
        let unused = if over { state.connection.take_unused() } else { None };
        let undone = unused.and_then(|execution| Some((state.qp.take()?, execution)));
        if let Some((qp, execution)) = undone {
            // Before anybody hears that the Connect came to nothing: it may be tried again at once.
            qp.detach(self, execution, told);
            self.mail.post(&mut state.effects, Some(&qp), told);
        } else {
            self.mail.post(&mut state.effects, state.qp.as_ref(), told);
        }
        if state.gone {
            self.tear_down(state, told);
        }
    }

    fn tear_down(&self, state: &mut State, told: &mut Told) {
        let execution = state.connection.take_execution();
        if let (Some(qp), Some(execution)) = (state.qp.take(), execution) {
            // Completions may still be waiting in the mail; none may overtake them (ND2 4.9).
            qp.leave(self);
            self.mail.detach(qp, execution, told);
        }
        state.starting = None;
        state.partial = Vec::new();
        state.out.bytes = Vec::new();
        self.mail.hang_up();
        self.shared.epoll.remove(self.fd());
        self.stream.shut();
        if let Some(bell) = self.bell.get() {
            bell.shut();
        }
        state.rings = None;
        state.stage = Stage::Settled;
        self.shared.remove(self.key);
    }

    /// See to it that somebody looks at the link again.
    fn rest(&self, state: &mut State, now: Time, bits: u8) {
        let pending = state.is_pending();
        // Nobody says when a ring has room: its reader wakes us. An answer is waited for, not room.
        let asked = matches!(state.stage, Stage::Asked(..));
        let stuck = pending && state.rings.is_none() && !asked;
        if self.stuck.load(Ordering::Relaxed) != stuck {
            self.stuck.store(stuck, Ordering::Relaxed);
        }
        let arming = bits & ARM != 0;
        let calm = !pending && !state.paused && state.connection.wants_read();
        let deadline = state.connection.deadline();
        state.deadline = deadline;
        state.calm_until = calm.then(|| deadline.unwrap_or(Time(NEVER)));
        let leased = self.lease.held(now);
        let waited = self.is_waited_for();
        if let Some(mut when) = deadline.filter(|_| bits & SERVED == 0) {
            if !arming {
                // A thread of the program was here just now and may be back at once; what is due
                // sooner than a lease can wait for it that long.
                when = when.max(now.after(self.shared.options.lease));
            }
            self.note(when);
        }
        if let Some(until) = leased {
            self.note(until);
        } else if arming || stuck || asked {
            let hears = !state.connecting || asked;
            let read = state.connection.wants_read() && !waited && hears;
            if read || stuck {
                let _ = self.shared.epoll.arm(self.fd(), self.key, read, stuck);
            }
        }
        if (arming || waited) && self.is_unread() {
            // The one that waits may not know: it was asleep before this pass, or left it to us.
            self.note(now);
        }
        if arming {
            // Going to sleep: an idle connection holds no buffers.
            if state.partial.is_empty() {
                state.partial = Vec::new();
            }
            if state.out.bytes.is_empty() {
                state.out.bytes = Vec::new();
            }
        }
    }

    // ---- control -------------------------------------------------------------------------------

    /// A control call: takes the lock for real, and is finished, notices written, when it returns.
    /// What came in before it counts (ND2 4.2 rules 5 and 6). `Some(true)`: the caller must
    /// [`drive`](Link::drive) once it holds no lock. `None`: the link is gone.
    pub(crate) fn control<R>(
        &self,
        told: &mut Told,
        work: impl FnOnce(&mut State, &mut Cx<'_>) -> R,
    ) -> (Option<R>, bool) {
        self.latch.control(|state| {
            if state.gone {
                return None;
            }
            let mut worker = self.shared.workers.take();
            state.exchange();
            let now = sys::now();
            let attended = self.lease.held(now).is_some() || self.is_waited_for();
            let result = self.with_cx(state, &mut worker, now, |state, cx, staging| {
                if !state.connecting {
                    self.take_in(state, cx, staging, (None, false));
                }
                let result = work(state, cx);
                state.connection.before_blocking(cx.now);
                if !state.connecting {
                    self.send(state, cx);
                }
                if !attended {
                    self.before_sleep(state, |state| {
                        self.step(state, cx, staging, RECEIVE | FLUSH, None);
                    });
                }
                result
            });
            state.exchange();
            self.conclude(state, told);
            if !state.gone {
                self.rest(state, now, if attended { 0 } else { ARM });
            }
            Some(result)
        })
    }

    /// The program flushes the queue pair. [`Link::settle`] follows, with no lock held.
    pub(crate) fn flush(&self, told: &mut Told) {
        let _ = self.control(told, |state, cx| state.connection.flush(cx));
    }

    /// Catch up with what was left while a control call held the lock.
    pub(crate) fn settle(&self) {
        self.drive(0);
        self.deliver();
    }

    /// The last handle of the queue pair is gone: as a disconnect without anybody who waits.
    pub(crate) fn release(&self) {
        if let Owner::Conn(conn) = self.owner()
            && let Some(conn) = conn.upgrade()
        {
            conn.release();
        }
    }

    /// The connection cannot go on, for a reason outside of it.
    pub(crate) fn fail(&self, reason: EndReason) {
        let mut told = Told::default();
        let _ = self.control(&mut told, |state, cx| state.connection.fail(cx, reason));
        told.tell();
        self.settle();
    }

    /// Nobody will take the request that came over it.
    pub(crate) fn turn_away(&self) {
        let mut told = Told::default();
        let _ = self.control(&mut told, |state, cx| {
            if state.connection.reject(cx, &[]).is_err() {
                state.connection.give_up(cx);
            }
        });
        told.tell();
        self.settle();
    }

    /// Cut the link at once and forget it: its adapter is closed. Nothing touches memory through it
    /// when this returns.
    pub(crate) fn cut(&self) {
        let mut told = Told::default();
        let _ = self.control(&mut told, |state, cx| {
            state.connection.disconnect(cx);
            state.gone = true;
        });
        told.tell();
        self.deliver();
    }

    /// See `unread`.
    pub(super) fn set_unread(&self, unread: bool) {
        self.unread.store(unread, Ordering::Relaxed);
    }

    fn is_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// The memory that this link shares with its peer.
    #[cfg(test)]
    pub(crate) fn shared_memory(&self) -> Option<(usize, usize)> {
        self.latch.control(|state| state.rings.as_ref().map(Rings::memory)).0
    }

    pub(crate) fn set_owner(&self, owner: Owner) {
        *self.owner.lock().unwrap_or_else(PoisonError::into_inner) = owner;
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl State {
    /// There is more to send than the socket takes, or it is not connected yet.
    fn is_pending(&self) -> bool {
        !self.out.bytes.is_empty() || self.more || self.connecting
    }

    /// Carry new posts over, and what the front half must know back.
    fn exchange(&mut self) {
        if let (Some(qp), Some(execution)) = (&self.qp, self.connection.execution()) {
            qp.front().pair.exchange(execution);
        }
    }

    /// The same, for a post that has the front half of `posted` locked. `false`: that is not the
    /// link's queue pair (yet, or any more).
    fn carry(&mut self, posted: &Qp, mut front: MutexGuard<'_, Front>) -> bool {
        match (&self.qp, self.connection.execution()) {
            (Some(qp), Some(execution)) if std::ptr::eq(&**qp, posted) => {
                front.pair.exchange(execution);
                true
            }
            _ => false,
        }
    }

    /// After a pass: tell the front half of places that are free again, without its lock, and of
    /// more than that under it.
    fn report(&mut self) {
        let (Some(qp), Some(execution)) = (&self.qp, self.connection.execution()) else { return };
        if execution.is_news() {
            qp.front().pair.exchange(execution);
        } else {
            qp.freed.add(execution.take_freed());
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

    /// What to wait for: the descriptor, and whether for room to write too.
    pub(crate) fn interest(&self) -> (&Fd, bool) {
        (self.0.fd(), self.0.stuck.load(Ordering::Relaxed))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // First the lease, so that somebody is responsible at every moment.
        self.0.take_lease(sys::now());
        self.0.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}
