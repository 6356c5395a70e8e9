//! A queue pair with its completion queues, and the link that works on it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use transom_memory::QueuePairId;
use transom_wire::Time;

use super::cq::{Cq, LOOKS};
use super::srq::Srq;
use super::xrc::Targets;
use crate::dialect::PeerGone;
use crate::driver::config::options::Resets;
use crate::driver::link::Link;
use crate::driver::link::control::report;
use crate::driver::link::notifications::Notifications;
use crate::driver::link::queues::{Queues, QueuesOverview};
use crate::driver::schedule::shared::Shared;
use crate::driver::schedule::source::{ReceiveWaiter, Source};
use crate::driver::schedule::workers::Worker;
use crate::sys::{self, Host};
use crate::{
    Chain, Completion, Cx, Data, Datagram, DenialRecord, Denials, Departure, Destination, Effect,
    Effects, Execution, Operation, QueuePair, QueuePairConfig, QueuePairEvent, QueuePairState,
    ReceiveChain, Request, SharedReceives, Side, Status,
};

/// The state that a posting thread needs, under a lock that is never held while bytes move.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) pair: QueuePair,
    link: Option<Arc<Link>>,
    /// The tools of a queue pair of datagrams.
    datagrams: Worker,
}

/// Refusals of a queue pair without a connection.
struct OwnDenials<'a>(&'a Shared);

impl Denials for OwnDenials<'_> {
    fn record(&self, record: DenialRecord) -> u64 {
        self.0.denials().record(record)
    }

    fn explain(&self, _id: u64) -> Option<String> {
        None // no peer waits for an answer
    }
}

#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) number: QueuePairId,
    pub(crate) config: QueuePairConfig,
    pub(crate) initiator: Arc<Cq>,
    pub(crate) receive: Arc<Cq>,
    /// The two queues as the completion queues number them.
    members: [u32; 2],
    pub(crate) shared: Option<Arc<Srq>>,
    /// In place of it, of a queue pair of an XRC domain.
    targets: Option<Targets>,
    adapter: Arc<Shared>,
    /// The queue pair's key among the timers, if its requests may wait for a connection.
    key: u64,
    front: Mutex<Front>,
    /// Posts may be in the front half that the link has not got: none may go past them. Written under the
    /// front half's lock.
    waiting: AtomicBool,
    /// The link of its first connection, once that is established.
    first_link: OnceLock<Arc<Link>>,
    /// How often it has begun anew: written under the front half's lock, and read by passes without it.
    resets: AtomicU64,
}

/// A queue pair whose requests may wait for a connection, as the timers hold it.
#[derive(Debug)]
struct ConnectionTimer(Weak<Qp>);

impl Source for ConnectionTimer {
    fn ready(self: Arc<Self>, _now: Time) {}

    fn due(self: Arc<Self>, now: Time) {
        if let Some(qp) = self.0.upgrade() {
            qp.due(now);
        }
    }

    fn serve(&self, _now: Time) -> bool {
        false
    }

    fn finish_served(&self) {}

    fn stop_accepting(self: Arc<Self>, _status: Status) {}

    fn end(&self, _status: Status) {
        // With a connection, that ends it.
        if let Some(qp) = self.0.upgrade().filter(|qp| qp.link().is_none()) {
            let mut notifications = Notifications::default();
            qp.flush(&mut notifications);
            notifications.fire();
        }
    }
}

impl Qp {
    pub(crate) fn new(
        pair: QueuePair,
        (initiator, receive): (Arc<Cq>, Arc<Cq>),
        (shared, targets): (Option<Arc<Srq>>, Option<Targets>),
        adapter: Arc<Shared>,
    ) -> Qp {
        let config = *pair.config();
        let (requests, receives) = pair.places();
        let receives = shared.as_ref().map_or(receives, |shared| shared.places());
        // In turn: both may be one completion queue.
        let requests = initiator.queue().bind(requests, config.initiator_depth as usize);
        let receives = receive.queue().bind(receives, config.receive_depth as usize);
        let members = [requests, receives];
        let front = Mutex::new(Front { pair, link: None, datagrams: Worker::default() });
        let (number, key) = (config.number, adapter.new_key());
        let (waiting, first_link) = (AtomicBool::new(false), OnceLock::new());
        Qp {
            number,
            config,
            initiator,
            receive,
            members,
            shared,
            targets,
            adapter,
            key,
            front,
            waiting,
            first_link,
            resets: AtomicU64::new(0),
        }
    }

    /// Have the timers know it, if its requests may wait for a connection.
    pub(crate) fn register(self: &Arc<Qp>) {
        if self.config.dialect.peer_gone == PeerGone::Await {
            self.adapter.add_timer(self.key, Arc::new(ConnectionTimer(Arc::downgrade(self))));
        }
    }

    pub(crate) fn front(&self) -> MutexGuard<'_, Front> {
        self.front.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        self.front().link.clone()
    }

    /// The link of its first connection, found without a lock. A queue pair that outlives connections may
    /// have another one by now: [`LinkState::execution_of`](crate::driver::link::LinkState::execution_of) tells.
    #[inline]
    fn first_link(&self) -> Option<&Link> {
        match self.first_link.get() {
            Some(link) => Some(&**link).filter(|link| !link.is_gone()),
            None => self.find_first_link().map(|link| &**link),
        }
    }

    #[cold]
    fn find_first_link(&self) -> Option<&Arc<Link>> {
        let front = self.front();
        let established = front.pair.state() == QueuePairState::Connected;
        let link = front.link.clone().filter(|_| established)?;
        drop(front);
        Some(self.first_link.get_or_init(|| link))
    }

    /// A link works on it from now on; its completion queues poll that link. `front`: as it was locked
    /// when a connection took the other half, so that nobody sees one without the other.
    pub(crate) fn attach(&self, mut front: MutexGuard<'_, Front>, link: &Arc<Link>) {
        front.link = Some(link.clone());
        drop(front);
        if let Some(targets) = &self.targets {
            return targets.attach(link);
        }
        self.initiator.attach(link);
        self.receive.attach(link);
    }

    pub(crate) fn post(&self, request: &Request, data: Data<'_>) -> Result<(), Status> {
        let bound = match (request.operation, data) {
            (Operation::Bind { .. }, Data::Sges([])) => self.with_link(|link| {
                let memory = &self.adapter.memory;
                link.bind_now(|state| state.execution_of(self)?.bind_now(request, memory))
            }),
            _ => None,
        };
        let done = bound.or_else(|| self.post_quick(|execution| execution.post(request, data)));
        if let Some(done) = done {
            return done;
        }
        let mut front = self.front();
        front.pair.post(request, data)?;
        self.run(front, false);
        Ok(())
    }

    /// Have `post`, which is called once, post requests of which `expected` are expected.
    pub(crate) fn post_chain<R>(
        &self,
        expected: usize,
        mut post: impl FnMut(&mut Chain<'_>) -> R,
    ) -> R {
        if let Some(done) = self.post_quick(|execution| post(&mut execution.chain(expected))) {
            return done;
        }
        let mut front = self.front();
        let done = post(&mut front.pair.chain(expected));
        self.run(front, false);
        done
    }

    /// Have `post` put requests or receives before the link, which does at once what they ask for. `None`: that
    /// is not for now, and nothing has happened.
    #[inline]
    fn post_quick<R>(&self, post: impl FnOnce(&mut Execution) -> R) -> Option<R> {
        self.with_link(|link| link.post_quick(|state| Some(post(state.execution_of(self)?))))
    }

    /// Have `post` do something on the link, if there is one and nothing waits to be carried there.
    /// The second value of its result: the link is to catch up.
    #[inline]
    fn with_link<R>(&self, post: impl FnOnce(&Link) -> Option<(R, bool)>) -> Option<R> {
        // A thread sees here what it has posted itself; the link's lock orders it behind a carrier.
        if self.waiting.load(Ordering::Relaxed) {
            return None;
        }
        let held;
        let link = match self.first_link() {
            Some(link) => link,
            None => {
                held = self.link()?;
                &held
            }
        };
        let (done, more) = post(link)?;
        if more {
            link.catch_up();
        }
        Some(done)
    }

    /// Make progress on the link, as a polling thread does, for a program that polls no other in its
    /// completion queue.
    #[inline]
    pub(crate) fn progress(&self) {
        let outlives = self.config.dialect.peer_gone == PeerGone::Await;
        match self.first_link().filter(|_| !outlives) {
            Some(link) => link.poll(sys::recently(), LOOKS),
            None => self.initiator.progress(),
        }
    }

    /// Have `post`, which is called once, post receives of which `expected` are expected.
    pub(crate) fn post_receives<R>(
        &self,
        expected: usize,
        mut post: impl FnMut(&mut ReceiveChain<'_>) -> R,
    ) -> R {
        let done = self.post_quick(|execution| execution.receive_chain(expected, &mut post));
        if let Some(done) = done {
            return done;
        }
        let mut front = self.front();
        let done = post(&mut front.pair.receive_chain(expected));
        self.run(front, true);
        done
    }

    /// Have the link do what was posted. `patient`: it need not be at once.
    fn run(&self, front: MutexGuard<'_, Front>, patient: bool) {
        self.waiting.store(front.pair.is_waiting(), Ordering::Relaxed);
        match front.link.clone() {
            Some(link) if patient && link.is_served() => {}
            Some(link) => {
                drop(front);
                link.posted();
            }
            None => {
                let mut notifications = Notifications::default();
                self.unlinked(front, &mut notifications, |pair, cx, _| {
                    pair.execute_unconnected(cx)
                });
                notifications.fire();
            }
        }
    }

    /// Set a timer for the moment when a request has waited too long for a connection.
    fn note_due(&self, front: &mut Front, now: Time) {
        if let Some(due) = front.pair.connection_due(now) {
            self.adapter.note(self.key, due);
        }
    }

    /// Something may have waited for a connection for too long.
    fn due(&self, now: Time) {
        let mut effects = Effects::default();
        let mut notifications = Notifications::default();
        let mut front = self.front();
        let before = front.pair.state();
        front.pair.on_deadline(&self.adapter.memory, now, &mut effects);
        self.report_error(before, &front, &mut notifications);
        self.note_due(&mut front, now);
        // Under the front's lock, as in `complete_unlinked`.
        self.complete_all(effects, &mut notifications);
        drop(front);
        notifications.fire();
    }

    /// Have `change` change limits or rights. They hold when this returns: nothing is judged by those before.
    pub(crate) fn change(&self, change: impl FnOnce(&QueuePair)) {
        let link = {
            let mut front = self.front();
            change(&front.pair);
            self.note_due(&mut front, sys::now());
            front.link.clone()
        };
        if let Some(link) = link {
            link.process_arrived();
        }
    }

    /// Send again what is posted from now on (Verbs V70).
    pub(crate) fn resume_sends(&self) {
        if !self.link().is_some_and(|link| link.resume_sends()) {
            self.front().pair.resume_sends();
        }
    }

    /// End the connection, and keep what is posted (Verbs V79).
    pub(crate) fn part(&self) {
        if let Some(link) = self.link() {
            link.reset();
        }
    }

    /// Have `work` do something with datagrams, and complete what it has completed.
    fn with_datagrams<R>(
        &self,
        work: impl FnOnce(&mut QueuePair, &mut Cx<'_>, &mut Vec<u8>) -> R,
    ) -> R {
        let mut notifications = Notifications::default();
        let result = self.unlinked(self.front(), &mut notifications, work);
        notifications.fire();
        result
    }

    /// Have `work` do something without a link, and complete what it, or an end before, has completed.
    fn unlinked<R>(
        &self,
        mut front: MutexGuard<'_, Front>,
        notifications: &mut Notifications,
        work: impl FnOnce(&mut QueuePair, &mut Cx<'_>, &mut Vec<u8>) -> R,
    ) -> R {
        let memory = &self.adapter.memory;
        let mut effects = Effects::default();
        let before = front.pair.state();
        let Front { pair, datagrams, .. } = &mut *front;
        let (lane, staging) = datagrams.tools(memory);
        let mut cx = Cx {
            now: sys::now(),
            memory,
            lane,
            host: &Host,
            denials: &OwnDenials(&self.adapter),
            shared: self.shared.as_deref().map(|shared| shared as &dyn SharedReceives),
            effects: &mut effects,
            trace: None,
        };
        let result = work(pair, &mut cx, staging);
        let now = cx.now;
        pair.complete_ended(memory, now, cx.effects);
        self.report_error(before, &front, notifications);
        self.note_due(&mut front, now);
        // Under the front's lock: two threads must not complete out of order.
        self.complete_all(effects, notifications);
        result
    }

    /// Post Sends of datagrams; `depart` sends each, and must not wait.
    pub(crate) fn post_datagrams<'a, T>(
        &self,
        list: impl Iterator<Item = (Request, Data<'a>, Destination<T>)> + Clone,
        depart: impl FnMut(Departure<'_, T>),
    ) -> Result<(), Status> {
        self.with_datagrams(|pair, cx, staging| pair.post_datagrams(cx, list, staging, depart))
    }

    /// Deliver a datagram. `false`: it is dropped.
    pub(crate) fn deliver(&self, datagram: &Datagram<'_>) -> bool {
        self.with_datagrams(|pair, cx, _| pair.deliver(cx, datagram))
    }

    /// Drop everything that is posted and everything that was not retrieved, and begin anew (Verbs V68).
    /// Finished when it returns.
    pub(crate) fn reset(&self) -> Result<(), Status> {
        let mut front = loop {
            let link = self.link();
            if let Some(link) = &link {
                link.reset();
            }
            let mut front = self.front();
            let same = front.link.as_ref().map(Arc::as_ptr) == link.as_ref().map(Arc::as_ptr);
            match front.pair.reset(&self.adapter.memory, sys::now()) {
                // Another connection has taken it in between: that one ends, too.
                Err(Status::ConnectionActive) if !same => {}
                done => {
                    done?;
                    break front;
                }
            }
        };
        self.resets.fetch_add(1, Ordering::Relaxed);
        // With the front half locked nothing is added for it.
        self.initiator.purge(self.number);
        self.receive.purge(self.number);
        if let Some(targets) = &self.targets {
            targets.purge(self.number);
        }
        front.pair.clear_places();
        Ok(())
    }

    /// How often it has begun anew.
    pub(crate) fn resets(&self) -> u64 {
        self.resets.load(Ordering::Relaxed)
    }

    /// Run `work` with the front half locked, unless the queue pair has begun anew since `resets`.
    pub(crate) fn unless_reset<R>(&self, resets: Resets, work: impl FnOnce() -> R) -> Option<R> {
        let _front = self.front();
        (self.resets() == resets.0).then(work)
    }

    /// A completion with the number of its queue.
    #[inline]
    fn stamped(&self, side: Side, completion: Completion) -> Completion {
        let [requests, receives] = self.members;
        let member = if side == Side::Initiator { requests } else { receives };
        Completion { member, ..completion }
    }

    /// Whether the program has yet to retrieve completions of its requests or receives.
    pub(crate) fn has_unretrieved(&self) -> bool {
        self.initiator.holds(self.number)
            || self.receive.holds(self.number)
            || self.targets.as_ref().is_some_and(|targets| targets.holds(self.number))
    }

    /// Flush without a link (ND2 4.9).
    pub(crate) fn flush(&self, notifications: &mut Notifications) {
        let mut effects = Effects::default();
        let mut front = self.front();
        let before = front.pair.state();
        front.pair.flush(&self.adapter.memory, sys::now(), &mut effects);
        self.report_error(before, &front, notifications);
        self.complete_all(effects, notifications);
    }

    /// This side disconnects, and there is no link any more to do it on.
    pub(crate) fn disconnected(&self, notifications: &mut Notifications) {
        let mut effects = Effects::default();
        let mut front = self.front();
        front.pair.disconnected(&self.adapter.memory, sys::now(), &mut effects);
        self.complete_all(effects, notifications);
    }

    /// Say so if the queue pair is in error now, and was not before, without a connection that would.
    fn report_error(
        &self,
        before: QueuePairState,
        front: &Front,
        notifications: &mut Notifications,
    ) {
        let error = QueuePairState::Error;
        if self.config.shared && before != error && front.pair.state() == error {
            let event = (QueuePairEvent::LastReceive, Resets(self.resets()));
            report(&self.adapter, self.number, event, notifications);
        }
    }

    fn complete_all(&self, mut effects: Effects, notifications: &mut Notifications) {
        if effects.settled {
            notifications.later(&mut effects.later);
            self.settled();
        }
        if effects.list.is_empty() {
            return;
        }
        for effect in effects.list.drain(..) {
            if let Effect::Complete(side, completion) = effect {
                self.complete(side, completion);
            }
        }
        self.finish_batch(notifications);
    }
}

impl Queues for Qp {
    fn number(&self) -> QueuePairId {
        self.number
    }

    fn resets(&self) -> u64 {
        Qp::resets(self)
    }

    fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    fn carry(&self, execution: &mut Execution) {
        let mut front = self.front();
        front.pair.carry(execution);
        self.waiting.store(false, Ordering::Relaxed);
    }

    fn overview(&self) -> QueuesOverview {
        let (requests, receives) = self.front().pair.occupied();
        QueuesOverview {
            requests: (requests, self.config.initiator_depth),
            receives: (receives, self.config.receive_depth),
        }
    }

    fn shared_receives(&self) -> Option<&dyn SharedReceives> {
        match &self.targets {
            Some(targets) => Some(targets),
            None => self.shared.as_deref().map(|shared| shared as &dyn SharedReceives),
        }
    }

    fn look_again(&self) {
        if let Some(targets) = &self.targets {
            targets.look_again();
        }
        self.initiator.wake();
        self.receive.wake();
    }

    fn leave(&self, link: &Link) {
        if let Some(targets) = &self.targets {
            targets.detach(link);
        }
        self.initiator.detach(link);
        self.receive.detach(link);
    }

    fn reclaim(&self, execution: Execution, notifications: &mut Notifications) {
        {
            let mut front = self.front();
            front.pair.detach(execution);
            self.waiting.store(front.pair.is_waiting(), Ordering::Relaxed);
            let link = front.link.take();
            drop(front);
            drop(link);
        }
        self.unlinked(self.front(), notifications, |pair, cx, _| pair.execute_unconnected(cx));
    }

    fn settled(&self) {
        self.initiator.wake();
    }

    fn complete_batch(&self, batch: &mut Vec<Effect>, notifications: &mut Notifications) {
        if let [Effect::Complete(side, completion)] = batch.as_slice()
            && self.targets.is_none()
            && self.shared.is_none()
        {
            let initiates = *side == Side::Initiator;
            let queue = if initiates { &self.initiator } else { &self.receive };
            queue.add_one(self.stamped(*side, *completion), notifications);
            return batch.clear();
        }
        let of = |wanted: Option<Side>| {
            batch.iter().filter_map(move |effect| match effect {
                Effect::Complete(side, c) if wanted.is_none_or(|w| w == *side) => {
                    Some(self.stamped(*side, *c))
                }
                _ => None,
            })
        };
        if self.targets.is_some() {
            for effect in batch.drain(..) {
                if let Effect::Complete(side, completion) = effect {
                    self.complete(side, completion);
                }
            }
            return self.finish_batch(notifications);
        }
        if let Some(shared) = &self.shared {
            shared.collect_fired(notifications);
        }
        if Arc::ptr_eq(&self.initiator, &self.receive) {
            self.initiator.add_all(of(None), notifications);
        } else {
            self.initiator.add_all(of(Some(Side::Initiator)), notifications);
            self.receive.add_all(of(Some(Side::Receive)), notifications);
        }
        batch.clear();
    }

    fn complete(&self, side: Side, completion: Completion) {
        match side {
            Side::Initiator => self.initiator.add(self.stamped(side, completion)),
            Side::Receive => self.receive.add(self.stamped(side, completion)),
            Side::Target(number) => {
                if let Some(targets) = &self.targets {
                    targets.complete(number, completion);
                }
            }
        }
    }

    fn finish_batch(&self, notifications: &mut Notifications) {
        if let Some(targets) = &self.targets {
            return targets.finish_batch(notifications);
        }
        if let Some(shared) = &self.shared {
            shared.collect_fired(notifications);
        }
        Cq::finish_batch(&self.initiator, notifications);
        if !Arc::ptr_eq(&self.initiator, &self.receive) {
            Cq::finish_batch(&self.receive, notifications);
        }
    }
}

impl ReceiveWaiter for Qp {
    fn receives_posted(&self) {
        if let Some(link) = self.link() {
            link.posted();
        }
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        if self.adapter.is_foreign() {
            return; // a forked child takes none of its parent's locks: their holder may be missing
        }
        if self.config.dialect.peer_gone == PeerGone::Await {
            self.adapter.remove(self.key);
        }
        let [requests, receives] = self.members;
        self.initiator.queue().unbind(requests);
        self.receive.queue().unbind(receives);
    }
}
