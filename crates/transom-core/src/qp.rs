//! The front half of a queue pair: what a posting thread touches.
//!
//! A plain value: the driver puts it behind a small lock that is never held while bytes move. A
//! connection's own half is the [`Execution`]; [`QueuePair::carry`] carries posts there. All else is one
//! value that both halves have (`pair.rs`).

use std::sync::Arc;
use std::time::Duration;

use transom_memory::{DomainId, Memory, Purpose, QueuePairId, Rights};
use transom_wire::Time;

use crate::chain::{Chain, ReceiveChain};
use crate::copy::Accessor;
use crate::dialect::PeerGone;
use crate::exec::{Execution, Outcome};
use crate::local::LocalActor;
use crate::occupancy::Places;
use crate::pair::{Leaving, Pair};
use crate::queue::{Progress, RequestQueue, Slot};
use crate::request::why_unsupported;
use crate::tables::QueuePairState;
use crate::{
    Completion, Cx, Data, DenialCause, Dialect, Effects, Operation, Request, Settle, Sge, Side,
    Status,
};

/// Kind of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QueuePairKind {
    /// Reliable, connected.
    #[default]
    Rc,
    /// Unreliable, connected: a request has succeeded when it has been sent, and a message that its
    /// receiver cannot take is dropped (Verbs V96).
    Uc,
    /// Datagrams, without a connection.
    Ud,
    /// Reliable, connected; each request names the peer's shared receive queue that it is for, and the peer
    /// asks for nothing (Verbs V155).
    XrcSend,
    /// The other end of such a one: a receive side alone, over the shared receive queues of one XRC domain
    /// (Verbs V155).
    XrcReceive,
}

/// The parameters of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QueuePairConfig {
    /// The queue pair's number: random, 24 bits, unique in its adapter while it lives.
    pub number: QueuePairId,
    /// The queue pair's protection domain.
    pub domain: DomainId,
    /// Comes back in every completion.
    pub context: u64,
    /// Kind.
    pub kind: QueuePairKind,
    /// The rules it follows.
    pub dialect: &'static Dialect,
    /// Requests outstanding at a time.
    pub initiator_depth: u32,
    /// Receives outstanding at a time; 0 with a shared queue.
    pub receive_depth: u32,
    /// Entries of a request's list.
    pub initiator_sge: u32,
    /// Entries of a receive's list.
    pub receive_sge: u32,
    /// Bytes of an inline request.
    pub inline_size: u32,
    /// Bytes of a transfer.
    pub largest_transfer: u64,
    /// Receives come from a shared queue.
    pub shared: bool,
    /// The domain in which receives are judged: of the shared queue, if that has one of its own.
    pub receive_domain: DomainId,
}

/// For how long a queue pair's requests may wait, where its dialect leaves that to the queue pair
/// ([`PeerGone::Await`]), `None` = for ever; and whether it serves Reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// For its first connection, counted from the first request that waits (Verbs V77).
    pub connection: Option<Duration>,
    /// For the next connection, when one has ended (Verbs V79).
    pub reconnection: Option<Duration>,
    /// For a receive of the peer's (Verbs V94).
    pub receive: Option<Duration>,
    /// Not even that long: only until the peer has said that it has none (Verbs V94).
    pub one_try: bool,
    /// A Read or an atomic of the peer's is refused, whatever it names (Verbs V92).
    pub refuses_reads: bool,
}

/// An event of a queue pair behind its program's back (Verbs V104).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueuePairEvent {
    /// The first message of the peer's over a connection has come.
    FirstMessage,
    /// The peer asked for what it may not do, and was refused; the queue pair is in error.
    AccessError,
    /// The peer asked for what this queue pair does not do, and was refused; the queue pair is in
    /// error.
    RequestError,
    /// This side failed, or the peer broke a rule of the wire; the queue pair is in error.
    Fatal,
    /// The queue pair is in error, and takes no receive of its shared queue any more (Verbs V60).
    LastReceive,
}

/// The front half.
#[derive(Debug)]
pub struct QueuePair {
    pub(crate) pair: Arc<Pair>,
    link: Attachment,
    /// Since when a request waits for a connection, as far as that was asked.
    waits_since: Option<Time>,
    pub(crate) posted: RequestQueue,
    pub(crate) receives: RequestQueue,
    /// Of datagrams: the key that those to it have to carry.
    pub(crate) queue_key: u32,
}

/// The connection of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attachment {
    /// None has been open since the queue pair began.
    Never,
    /// A connection has the other half; whether there has been one before.
    Attached { again: bool },
    /// There was one, and it is over.
    Over,
    /// There was one, and its requests wait for the program to disconnect.
    Kept,
}

impl QueuePair {
    /// A queue pair, idle.
    #[must_use]
    pub fn new(config: QueuePairConfig) -> QueuePair {
        QueuePair::settling(config, None)
    }

    /// As [`QueuePair::new`]; `settle`, if there is one, takes requests that succeed, which do not complete then.
    #[must_use]
    pub fn settling(config: QueuePairConfig, settle: Option<Arc<dyn Settle>>) -> QueuePair {
        QueuePair {
            pair: Arc::new(Pair::new(config, settle)),
            link: Attachment::Never,
            waits_since: None,
            posted: RequestQueue::default(),
            receives: RequestQueue::default(),
            queue_key: 0,
        }
    }

    /// The parameters it was made with.
    #[must_use]
    pub fn config(&self) -> &QueuePairConfig {
        &self.pair.config
    }

    /// The queue pair's state.
    #[must_use]
    pub fn state(&self) -> QueuePairState {
        self.pair.state()
    }

    /// Whether a connection has its other half.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        matches!(self.link, Attachment::Attached { .. })
    }

    /// Post requests, of which `expected` are expected. Afterwards the driver runs the connection; without
    /// one it calls [`QueuePair::complete_ended`].
    #[must_use]
    pub fn chain(&mut self, expected: usize) -> Chain<'_> {
        let open = self.needs_connection().and_then(|()| self.pair.takes_requests());
        Chain::new(&self.pair, open, &mut self.posted, expected)
    }

    /// Post a request, as a [`Chain`] of one. An error changes nothing.
    ///
    /// # Errors
    /// `ConnectionInvalid` in a state without posts; `NoMoreEntries`; `DataOverrun`;
    /// `BufferOverflow`; `NotSupported`; `InvalidRequest` for a queue pair of datagrams, or without a
    /// send queue. Nothing is changed.
    pub fn post(&mut self, request: &Request, data: Data<'_>) -> Result<(), Status> {
        self.chain(1).post(request, data)
    }

    /// Requests or receives wait for [`QueuePair::carry`]: none may go past them ([`Execution::post`]).
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.posted.is_empty() || !self.receives.is_empty()
    }

    fn needs_connection(&self) -> Result<(), Status> {
        match self.pair.config.kind {
            QueuePairKind::Rc | QueuePairKind::Uc | QueuePairKind::XrcSend => Ok(()),
            QueuePairKind::Ud | QueuePairKind::XrcReceive => Err(Status::InvalidRequest),
        }
    }

    /// Post receives, of which `expected` are expected.
    #[must_use]
    pub fn receive_chain(&mut self, expected: usize) -> ReceiveChain<'_> {
        self.pair.receive_chain(&mut self.receives, expected)
    }

    /// Post a receive, as a [`ReceiveChain`] of one. An error changes nothing.
    ///
    /// # Errors
    /// `InvalidRequest` with a shared queue; `ConnectionInvalid` in a state without receives;
    /// `NoMoreEntries`; `DataOverrun`; `BufferOverflow`.
    pub fn post_receive(&mut self, context: u64, list: &[Sge]) -> Result<(), Status> {
        self.receive_chain(1).post(context, list)
    }

    /// Give the other half to a connection that is being made (`Connecting` or `Accepting`).
    ///
    /// # Errors
    /// `ConnectionActive` while a connection has it; `InvalidState` after a disconnect or a flush, and
    /// for a queue pair of datagrams.
    pub fn attach(&mut self, state: QueuePairState) -> Result<Execution, Status> {
        if self.is_attached() {
            return Err(Status::ConnectionActive);
        }
        match self.state() {
            QueuePairState::Idle if self.pair.config.kind != QueuePairKind::Ud => {}
            // Not to be used again after a disconnect or a flush (ND2 2.9).
            _ => return Err(Status::InvalidState),
        }
        if self.posted.front().is_some_and(|slot| slot.progress != Progress::Waiting) {
            // The peer may have executed it: it fails, rather than being executed again (Verbs V79).
            return Err(Status::ConnectionActive);
        }
        self.link = Attachment::Attached { again: self.link != Attachment::Never };
        self.pair.enter(state);
        Ok(Execution::new(&self.pair))
    }

    /// Take the other half back: of a Connect that failed, the queue pair is as it was before it; of
    /// a connection that is over, it stays in error, or waits for the next one, as its dialect says.
    pub fn detach(&mut self, mut execution: Execution) {
        self.carry(&mut execution);
        let again = matches!(self.link, Attachment::Attached { again: true });
        self.link = match execution.outcome {
            Outcome::Unopened if again => Attachment::Over,
            Outcome::Unopened => Attachment::Never,
            Outcome::Opened => Attachment::Over,
            Outcome::Kept => Attachment::Kept,
        };
        if execution.outcome != Outcome::Unopened {
            self.waits_since = None;
        }
        if matches!(self.state(), QueuePairState::Connecting | QueuePairState::Accepting) {
            self.pair.enter(QueuePairState::Idle);
        }
        self.posted = std::mem::take(&mut execution.requests);
        self.receives = std::mem::take(&mut execution.receives);
    }

    /// Carry new posts to the other half, under the link's lock.
    pub fn carry(&mut self, execution: &mut Execution) {
        execution.receives_posted += self.receives.len() as u64;
        execution.requests.append(&mut self.posted);
        execution.receives.append(&mut self.receives);
    }

    /// Without a connection: complete what was posted behind a flush (ND2 4.1, last rows). Does
    /// nothing in other states.
    /// Binds among it never execute: their tokens never live (ND1 MW-5).
    pub fn complete_ended(&mut self, memory: &Memory, now: Time, effects: &mut Effects) {
        let ended = matches!(self.state(), QueuePairState::Error | QueuePairState::Disconnected);
        if self.is_attached() || self.link == Attachment::Kept || !ended {
            return;
        }
        let next = |pair: &mut QueuePair| match pair.posted.pop() {
            Some(slot) => Some((Side::Initiator, slot)),
            None => pair.receives.pop().map(|slot| (Side::Receive, slot)),
        };
        let (mut behind_failure, mut behind_cause) = (false, false);
        while let Some((side, mut slot)) = next(self) {
            let done = slot.progress == Progress::Done;
            let has_cause = done && !slot.status.is_success();
            if !done || if has_cause { behind_cause } else { behind_failure } {
                (slot.status, slot.length, slot.denial) = (Status::Canceled, 0, 0);
            }
            behind_cause |= has_cause;
            behind_failure |= self.pair.fails_what_follows(slot.status);
            self.complete_slot(side, &slot, (memory, now), effects);
        }
    }

    /// Complete what has left its queue, without a connection, with its status.
    pub(crate) fn complete_slot(
        &self,
        side: Side,
        slot: &Slot,
        (memory, now): (&Memory, Time),
        effects: &mut Effects,
    ) {
        if let Operation::Bind { window } = slot.operation
            && !slot.status.is_success()
        {
            memory.abandon(window, now.0);
        }
        match side {
            Side::Initiator => match self.pair.leave(slot.flags, slot.status) {
                Leaving::Silent => {}
                Leaving::Settled => self.pair.settle(slot.context, effects),
                Leaving::Completes(place) => effects.complete(side, self.completion(slot, place)),
            },
            Side::Receive | Side::Target(_) => {
                effects.complete(side, self.completion(slot, self.receive_place()));
            }
        }
    }

    /// The place of a receive that completes here.
    pub(crate) fn receive_place(&self) -> u32 {
        let Pair { config, receives, .. } = &*self.pair;
        if config.shared { 0 } else { receives.complete() }
    }

    pub(crate) fn completion(&self, slot: &Slot, place: u32) -> Completion {
        Completion {
            request_context: slot.context,
            queue_pair_context: self.pair.config.context,
            queue_pair: self.pair.config.number,
            kind: slot.operation.kind(),
            status: slot.status,
            length: slot.length as u32,
            denial: slot.denial,
            place,
            ..Completion::BLANK
        }
    }

    /// The places of its requests, and of its own receives, for the completion queues that free them.
    #[must_use]
    pub fn places(&self) -> (Places, Places) {
        (Places::of_requests(&self.pair), Places::of_receives(&self.pair))
    }

    /// Flush without a connection (ND2 4.9). With one, see [`Connection::flush`](crate::Connection::flush).
    pub fn flush(&mut self, memory: &Memory, now: Time, effects: &mut Effects) {
        if !self.is_attached() {
            self.forget_kept();
            if self.state() == QueuePairState::Idle {
                self.fail(memory, now, effects);
            } else {
                self.complete_ended(memory, now, effects);
            }
        }
    }

    /// The requests of a connection that is gone need not wait for the program any more.
    fn forget_kept(&mut self) {
        if self.link == Attachment::Kept {
            self.link = Attachment::Over;
        }
    }

    /// How long its requests may wait.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.pair.limits()
    }

    /// Change how long its requests may wait, also those of a connection, whose deadline changes with it.
    pub fn set_limits(&self, limits: Limits) {
        self.pair.set_limits(limits);
    }

    /// Change what its peer may do at all, whatever tokens grant: remote rights; all of them at first
    /// (Verbs V93). What a connection judges now may still be judged by those before.
    pub fn set_access(&self, access: Rights) {
        self.pair.set_access(access);
    }

    /// Whether requests wait for a connection.
    fn awaits_connection(&self) -> bool {
        self.pair.config.dialect.peer_gone == PeerGone::Await
            && !self.is_attached()
            && self.state() == QueuePairState::Idle
            && !self.posted.is_empty()
    }

    /// Until when a connection has to come about for the requests that wait for one. Ask behind each
    /// post without a connection, and when a connection has ended.
    pub fn connection_due(&mut self, now: Time) -> Option<Time> {
        if !self.awaits_connection() {
            return None;
        }
        let since = *self.waits_since.get_or_insert(now);
        let Limits { connection, reconnection, .. } = self.limits();
        let first = self.link == Attachment::Never;
        Some(since.after(if first { connection? } else { reconnection? }))
    }

    /// Without a connection: the oldest requests that need no peer are executed now, and one that is wrong by
    /// itself fails, whether or not there will be a connection: an adapter looks at a request, and at the memory
    /// that it names, before it sends anything (InfiniBand 10.7.3.2; `rxe_requester` of Linux). Ask behind
    /// each post without a connection, and when a connection has ended.
    pub fn execute_unconnected(&mut self, cx: &mut Cx<'_>) {
        while self.awaits_connection() {
            let Some(mut slot) = self.posted.front().copied() else { return };
            if self.pair.sends_failed() || slot.progress != Progress::Waiting {
                return;
            }
            let Some(done) = self.judge_unconnected(cx, &slot) else { return };
            slot.progress = Progress::Done;
            if let Err((status, cause)) = done {
                (slot.status, slot.denial) = (status, self.deny(cx, &slot, cause));
                if let Some(oldest) = self.posted.front_mut() {
                    *oldest = slot;
                }
                return self.fail(cx.memory, cx.now, cx.effects);
            }
            let _ = self.posted.pop();
            self.waits_since = None;
            self.complete_slot(Side::Initiator, &slot, (cx.memory, cx.now), cx.effects);
        }
    }

    /// The outcome of a request that needs no peer, if this is one, or is wrong by itself.
    fn judge_unconnected(
        &self,
        cx: &mut Cx<'_>,
        slot: &Slot,
    ) -> Option<Result<(), (Status, DenialCause)>> {
        let config = &self.pair.config;
        let (domain, number, dialect) = (config.domain, config.number, config.dialect);
        let actor = LocalActor { domain, number, dialect };
        if let Some(done) = actor.execute(cx, &self.posted, slot) {
            return Some(done.map_err(|cause| (Status::InvalidRequest, cause)));
        }
        if config.kind == QueuePairKind::Uc {
            return None; // what is wrong is lost with the rest, or found when there is a stream
        }
        match slot.operation {
            Operation::Unsupported { status } => {
                Some(Err((status, DenialCause::Other(why_unsupported(status)))))
            }
            operation if operation.has_data() && !slot.inline => {
                let sink = operation.fetches().then_some(dialect.sink);
                let purpose = sink.unwrap_or(Purpose::LocalSource);
                let accessor = Accessor { actor: self.actor(domain), purpose };
                let error = accessor.probe_list(cx, &self.posted, slot).err()?;
                Some(Err((Status::LocalAccess, error.cause(false))))
            }
            _ => None,
        }
    }

    /// Time has passed: fail what has waited for a connection for too long, and with it the queue pair
    /// (Verbs V77, V79).
    pub fn on_deadline(&mut self, memory: &Memory, now: Time, effects: &mut Effects) {
        if self.connection_due(now).is_none_or(|due| due > now) {
            return;
        }
        if self.pair.config.kind == QueuePairKind::Uc {
            return self.lose_all(memory, now, effects);
        }
        if let Some(oldest) = self.posted.front_mut() {
            oldest.progress = Progress::Done;
            oldest.status = Status::RetryExceeded;
        }
        self.fail(memory, now, effects);
    }

    /// Requests that are posted are lost on their way, which is no error (Verbs V96). A request that is no message has
    /// not been executed, and does not succeed.
    fn lose_all(&mut self, memory: &Memory, now: Time, effects: &mut Effects) {
        self.waits_since = None;
        while let Some(mut slot) = self.posted.pop() {
            slot.progress = Progress::Done;
            slot.status = match slot.operation {
                _ if self.pair.sends_failed() => Status::Canceled,
                Operation::Unsupported { status } => status,
                operation => match operation.on_wire() {
                    Some(message) if message.is_answered() => Status::NotSupported,
                    Some(_) => Status::Success,
                    None => Status::RetryExceeded,
                },
            };
            if !slot.status.is_success() {
                self.pair.set_sends_failed(true);
            }
            self.complete_slot(Side::Initiator, &slot, (memory, now), effects);
        }
    }

    fn fail(&mut self, memory: &Memory, now: Time, effects: &mut Effects) {
        self.pair.enter(QueuePairState::Error);
        memory.close_queue_pair(self.pair.config.number, now.0);
        self.complete_ended(memory, now, effects);
    }

    /// Drop everything that is posted, without completions, and begin anew, under the same number
    /// (Verbs V68).
    ///
    /// # Errors
    /// `ConnectionActive` while a connection has its other half; nothing is changed.
    pub fn reset(&mut self, memory: &Memory, now: Time) -> Result<(), Status> {
        if self.is_attached() {
            return Err(Status::ConnectionActive);
        }
        while let Some(slot) = self.posted.pop() {
            if let Operation::Bind { window } = slot.operation {
                memory.abandon(window, now.0);
            }
        }
        while self.receives.pop().is_some() {}
        memory.close_queue_pair(self.pair.config.number, now.0);
        (self.link, self.waits_since, self.queue_key) = (Attachment::Never, None, 0);
        self.pair.set_sends_failed(false);
        self.pair.enter(QueuePairState::Idle);
        Ok(())
    }

    /// All places are free, behind a [`reset`](QueuePair::reset) and once its completion queues have
    /// [dropped](crate::CompletionQueue::purge) what was not retrieved.
    pub fn clear_places(&mut self) {
        self.pair.requests.clear();
        self.pair.receives.clear();
    }

    /// This side disconnects what has no connection any more.
    pub fn disconnected(&mut self, memory: &Memory, now: Time, effects: &mut Effects) {
        if !self.is_attached() && self.state() == QueuePairState::Error {
            self.pair.enter(QueuePairState::Disconnected);
            self.forget_kept();
            self.complete_ended(memory, now, effects);
        }
    }

    /// Requests and receives that have not completed.
    #[must_use]
    pub fn outstanding(&self) -> (u32, u32) {
        (self.pair.requests.uncompleted(), self.pair.receives.uncompleted())
    }

    /// Requests and receives that take up places: those, and those whose completions are not retrieved.
    #[must_use]
    pub fn occupied(&self) -> (u32, u32) {
        (self.pair.requests.len(), self.pair.receives.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flags, dialect};
    use transom_memory::{Config, Registration, Scope, Segment, WindowSpec};

    const NUMBER: QueuePairId = QueuePairId(7);
    const DOMAIN: DomainId = DomainId(1);

    /// A connected queue pair with room for two requests, its other half, and a table of memory.
    fn connected() -> (QueuePair, Execution, Memory) {
        let mut pair = QueuePair::new(QueuePairConfig {
            number: NUMBER,
            domain: DOMAIN,
            context: 0,
            kind: QueuePairKind::Rc,
            dialect: &dialect::ND2,
            initiator_depth: 2,
            receive_depth: 2,
            initiator_sge: 1,
            receive_sge: 1,
            inline_size: 0,
            largest_transfer: 64,
            shared: false,
            receive_domain: DOMAIN,
        });
        let mut execution = pair.attach(QueuePairState::Connecting).unwrap();
        execution.open();
        (pair, execution, Memory::new([1; 32], Config::default()))
    }

    fn bind(memory: &Memory, flags: Flags) -> Request {
        let scope = Scope::Domain(DOMAIN);
        let segments = [Segment { host: 0, length: 64 }];
        let rights = Rights::BIND;
        let region = memory.register(&Registration { scope, rights, base: 0, segments: &segments });
        let (domain, rights) = (DOMAIN, Rights::REMOTE_READ);
        let region = region.unwrap();
        let window = WindowSpec { region, domain, scope, base: 0, length: 8, rights };
        let window = memory.reserve(&window, 0).unwrap();
        Request { context: 1, operation: Operation::Bind { window }, flags }
    }

    /// Whether the window is reserved still: a reservation can be taken once.
    fn waits(memory: &Memory, request: &Request) -> bool {
        matches!(request.operation, Operation::Bind { window } if memory.activate(window))
    }

    /// A queue pair in error whose connection is over is disconnected from then on (ND2 4.9).
    #[test]
    fn only_a_queue_pair_that_has_lost_its_connection_is_disconnected_afterwards() {
        let disconnect = |pair: &mut QueuePair, memory: &Memory| {
            pair.disconnected(memory, Time(0), &mut Effects::default());
            pair.state()
        };
        let (mut pair, execution, memory) = connected();
        assert_eq!(disconnect(&mut pair, &memory), QueuePairState::Connected);
        pair.pair.enter(QueuePairState::Error);
        assert_eq!(disconnect(&mut pair, &memory), QueuePairState::Error, "its half is away");
        pair.detach(execution);
        assert_eq!(disconnect(&mut pair, &memory), QueuePairState::Disconnected);
        assert_eq!(disconnect(&mut pair, &memory), QueuePairState::Disconnected);
        pair.reset(&memory, Time(0)).unwrap();
        assert_eq!(disconnect(&mut pair, &memory), QueuePairState::Idle);
    }

    #[test]
    fn a_bind_executes_at_its_call_when_nothing_is_before_it() {
        let (pair, execution, memory) = connected();
        let request = bind(&memory, Flags::SILENT_SUCCESS);
        assert_eq!(execution.bind_now(&request, &memory), Some(Ok(())));
        assert!(!waits(&memory, &request), "it is open");
        assert_eq!((pair.outstanding(), execution.requests.is_empty()), ((0, 0), true));
        // The window's reservation is gone: the Bind fails in its turn.
        assert_eq!(execution.bind_now(&request, &memory), None);
    }

    /// Each leaves the reservation and the queue pair as they were.
    #[test]
    fn a_bind_that_has_to_wait_or_is_refused_changes_nothing() {
        let silent = Flags::SILENT_SUCCESS;
        let fenced = Flags(silent.0 | Flags::READ_FENCE.0);
        type Spoil = fn(&mut QueuePair, &mut Execution);
        let send = Request { context: 2, operation: Operation::Send, flags: Flags::NONE };
        let post = move |pair: &mut QueuePair| pair.post(&send, Data::Sges(&[])).unwrap();
        let behind: [(&str, Flags, Spoil); 6] = [
            ("its completion is asked for", Flags::NONE, |_, _| ()),
            ("a Read is under way before its fence", fenced, |_, to| to.reads = 1),
            ("a request has failed", silent, |_, to| to.failed = true),
            ("an unreliable request has failed", silent, |_, to| to.pair.set_sends_failed(true)),
            ("a message is under way", silent, |_, to| to.under_way = Some(0)),
            ("the connection has ended", silent, |_, to| to.pair.enter(QueuePairState::Error)),
        ];
        for (why, flags, spoil) in behind {
            let (mut pair, mut execution, memory) = connected();
            spoil(&mut pair, &mut execution);
            let request = bind(&memory, flags);
            assert_eq!(execution.bind_now(&request, &memory), None, "{why}");
            assert!(waits(&memory, &request) && pair.outstanding() == (0, 0), "{why}");
        }
        let (mut pair, mut execution, memory) = connected();
        post(&mut pair);
        assert!(pair.is_waiting(), "its caller asks for that");
        pair.carry(&mut execution);
        let request = bind(&memory, silent);
        assert_eq!(execution.bind_now(&request, &memory), None, "a request is before it");
        assert!(waits(&memory, &request) && pair.outstanding() == (1, 0));
        // The queue is full of what has gone.
        let (mut pair, mut execution, memory) = connected();
        post(&mut pair);
        post(&mut pair);
        pair.carry(&mut execution);
        execution.advance(Progress::Sent);
        let request = bind(&memory, silent);
        assert_eq!(execution.bind_now(&request, &memory), None, "the second has not gone");
        execution.advance(Progress::Sent);
        let full = Some(Err(Status::NoMoreEntries));
        assert_eq!(execution.bind_now(&request, &memory), full);
        assert!(waits(&memory, &request) && pair.outstanding() == (2, 0));
    }

    /// Whichever half takes a request, it takes one of the same places, and by the same rule.
    #[test]
    fn both_halves_share_their_places() {
        let (mut pair, mut execution, _) = connected();
        let send = Request { context: 2, operation: Operation::Send, flags: Flags::NONE };
        let full = Err(Status::NoMoreEntries);
        assert_eq!(pair.post(&send, Data::Sges(&[])), Ok(()));
        let mut two = execution.chain(2);
        assert_eq!(two.post(&send, Data::Sges(&[])), Ok(()));
        assert_eq!(two.post(&send, Data::Sges(&[])), full, "one place is left");
        two.cancel();
        drop(two);
        assert_eq!(execution.post(&send, Data::Sges(&[])), Ok(()));
        assert_eq!((pair.outstanding(), execution.requests.len()), ((2, 0), 1));
        assert_eq!(pair.post(&send, Data::Sges(&[])), full);
        assert_eq!(execution.post(&send, Data::Sges(&[])), full);
        let entries = [Sge::default(); 2];
        let long = execution.post(&send, Data::Sges(&entries));
        assert_eq!(long, Err(Status::DataOverrun));
        assert_eq!((pair.outstanding(), execution.requests.len()), ((2, 0), 1));
        assert!(pair.is_waiting());
    }
}
