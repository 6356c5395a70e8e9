//! The half of a queue pair that its connection works on, under the link's lock.

use std::sync::Arc;

use transom_memory::{Actor, ConnectionId, DomainId, Memory, QueuePairId};
use transom_wire::Time;

use crate::chain::{Chain, ReceiveChain};
use crate::context::{Effects, SharedReceives, Side};
use crate::pair::{Leaving, Pair};
use crate::queue::{Progress, RequestQueue, Slot};
use crate::tables::QueuePairState;
use crate::{
    Completion, CompletionFlags, CompletionKind, Data, Flags, Operation, QueuePairKind, Request,
    Status,
};

/// Requests under way, receives, and what is known of their outcome.
#[derive(Debug)]
pub struct Execution {
    pub(crate) pair: Arc<Pair>,
    pub(crate) number: QueuePairId,
    pub(crate) domain: DomainId,
    /// All requests that have not completed, in posting order.
    pub(crate) requests: RequestQueue,
    /// Receives; the oldest is being filled when `receiving`.
    pub(crate) receives: RequestQueue,
    pub(crate) receives_posted: u64,
    pub(crate) receiving: bool,
    /// Sequence number of the next request to start.
    pub(crate) next: u64,
    /// Number of the next message.
    pub(crate) next_message: u64,
    /// The request whose frames are leaving.
    pub(crate) under_way: Option<u64>,
    /// Sends and Writes below this number have succeeded.
    pub(crate) succeeded: u64,
    /// Reads and atomics started and not finished.
    pub(crate) reads: u32,
    /// A request has failed by itself: nothing further starts, and the connection ends when all
    /// before it have completed.
    pub(crate) failed: bool,
    pub(crate) outcome: Outcome,
    pub(crate) kind: QueuePairKind,
    /// Of a receive side over several shared receive queues: the one that the peer's message is for.
    pub(crate) target: u32,
}

/// How far the connection of a queue pair has come, as the queue pair shows it behind the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Unopened,
    Opened,
    /// The peer has disconnected, and the dialect leaves the requests to the program.
    Kept,
}

/// A message as the completion of its receive shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// [`CompletionKind::Receive`] or [`CompletionKind::ReceiveWrite`].
    pub(crate) kind: CompletionKind,
    pub(crate) length: u32,
    pub(crate) solicited: bool,
    pub(crate) value: Value,
}

/// The four bytes that a message may bring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    None,
    /// The token of the window that it has closed.
    Invalidated(u32),
    /// Immediate data.
    Immediate(u32),
}

impl Execution {
    pub(crate) fn new(pair: &Arc<Pair>) -> Execution {
        Execution {
            pair: Arc::clone(pair),
            number: pair.config.number,
            domain: pair.config.domain,
            requests: RequestQueue::default(),
            receives: RequestQueue::default(),
            receives_posted: 0,
            receiving: false,
            next: 0,
            next_message: 0,
            under_way: None,
            succeeded: 0,
            reads: 0,
            failed: false,
            outcome: Outcome::Unopened,
            kind: pair.config.kind,
            target: 0,
        }
    }

    /// Messages flow.
    pub(crate) fn open(&mut self) {
        self.pair.enter(QueuePairState::Connected);
        self.outcome = Outcome::Opened;
    }

    /// Whether a request succeeds when it has been sent, and a message that cannot be taken is dropped
    /// (Verbs V96).
    #[inline]
    pub(crate) fn is_unreliable(&self) -> bool {
        self.kind == QueuePairKind::Uc
    }

    /// Whether receives come from a shared queue.
    #[inline]
    pub(crate) fn shares_receives(&self) -> bool {
        self.pair.config.shared
    }

    /// The queue pair's number.
    #[must_use]
    pub fn number(&self) -> QueuePairId {
        self.number
    }

    /// Post requests straight to this half, under the link's lock: as [`QueuePair::chain`], if nothing
    /// [waits](crate::QueuePair::is_waiting) in the front half.
    ///
    /// [`QueuePair::chain`]: crate::QueuePair::chain
    #[must_use]
    #[inline]
    pub fn chain(&mut self, expected: usize) -> Chain<'_> {
        let open = self.pair.takes_requests();
        Chain::new(&self.pair, open, &mut self.requests, expected)
    }

    /// Post one request.
    ///
    /// # Errors
    /// As [`QueuePair::post`](crate::QueuePair::post).
    #[inline]
    pub fn post(&mut self, request: &Request, data: Data<'_>) -> Result<(), Status> {
        self.pair.post(&mut self.requests, request, data)
    }

    /// Have `post` post receives, as [`Execution::chain`]. A
    /// [`Connection::transmit`](crate::Connection::transmit) follows.
    #[inline]
    pub fn receive_chain<R>(
        &mut self,
        expected: usize,
        post: impl FnOnce(&mut ReceiveChain<'_>) -> R,
    ) -> R {
        let before = self.receives.end();
        let done = post(&mut self.pair.receive_chain(&mut self.receives, expected));
        self.receives_posted += self.receives.end() - before;
        done
    }

    /// Post a Bind, as [`Execution::post`], and execute it, if everything that was posted before has
    /// gone and its success is silent: the window is open when this returns, and there is nothing left
    /// to retire. `None`: it is to be posted like any other request, and nothing has happened.
    #[inline]
    pub fn bind_now(&self, request: &Request, memory: &Memory) -> Option<Result<(), Status>> {
        let Operation::Bind { window } = request.operation else { return None };
        let fenced = request.flags.contains(Flags::READ_FENCE) && self.reads > 0;
        let silent = request.flags.contains(Flags::SILENT_SUCCESS);
        // Of requests behind one that failed by itself, none is carried out (Verbs V70).
        let open = self.pair.state() == QueuePairState::Connected && !self.pair.sends_failed();
        if fenced || !silent || !open || !self.is_all_gone() {
            return None;
        }
        if let Err(status) = self.pair.probe(request, Data::Sges(&[])) {
            return Some(Err(status));
        }
        // A Bind whose reservation is gone fails like any other request.
        memory.activate(window).then_some(Ok(()))
    }

    pub(crate) fn actor(&self, connection: ConnectionId) -> Actor {
        Actor { domain: self.domain, queue_pair: self.number, connection: Some(connection) }
    }

    /// The actor that receives: judged where the receives belong.
    pub(crate) fn receiver(&self, connection: ConnectionId) -> Actor {
        if self.kind == QueuePairKind::XrcReceive {
            return self.actor(connection);
        }
        Actor { domain: self.pair.config.receive_domain, ..self.actor(connection) }
    }

    /// The next request to start, unless something before it has failed.
    #[inline(always)]
    pub(crate) fn startable(&self) -> Option<&Slot> {
        if self.failed || self.pair.sends_failed() || self.under_way.is_some() {
            return None;
        }
        self.next_request()
    }

    /// The next request, which may have to wait.
    #[inline(always)]
    pub(crate) fn next_request(&self) -> Option<&Slot> {
        self.requests.get(self.next)
    }

    /// Whether every request has gone out whole, and none has failed.
    #[inline]
    pub(crate) fn is_all_gone(&self) -> bool {
        !self.failed && self.under_way.is_none() && self.is_all_begun()
    }

    /// Whether no request waits for its turn.
    #[inline]
    pub(crate) fn is_all_begun(&self) -> bool {
        self.next == self.requests.end()
    }

    /// The next request is executed or begun; go on to the one behind it.
    pub(crate) fn advance(&mut self, progress: Progress) {
        if let Some(slot) = self.requests.get_mut(self.next) {
            slot.progress = progress;
        }
        self.next += 1;
    }

    /// The request `sequence` has failed by itself.
    pub(crate) fn fail(&mut self, sequence: u64, status: Status, denial: u64) {
        if let Some(slot) = self.requests.get_mut(sequence) {
            slot.progress = Progress::Done;
            slot.status = status;
            slot.denial = denial;
            self.failed = true;
        }
    }

    /// Whether a request has failed, and none in front of it waits for the peer.
    pub(crate) fn fails_first(&self) -> bool {
        let end = self.owed().unwrap_or(self.requests.end());
        self.failed
            && (self.requests.first()..end).any(|sequence| {
                self.requests.get(sequence).is_some_and(|slot| !slot.status.is_success())
            })
    }

    /// Sequence number of the request with message `id`.
    pub(crate) fn find(&self, id: u64) -> Option<u64> {
        // Numbers grow along the queue, and what has one comes before `next`.
        let end = self.next.min(self.requests.end());
        (self.requests.first()..end)
            .find(|sequence| self.requests.get(*sequence).is_some_and(|s| s.message == id))
    }

    /// The request whose frames have left is finished, or waits for the peer's word.
    pub(crate) fn sent(&self) -> Progress {
        if self.is_unreliable() { Progress::Done } else { Progress::Sent }
    }

    /// Behind a request that has failed by itself, those of an unreliable queue pair are cancelled.
    pub(crate) fn cancel_behind_failure(&mut self) {
        while self.pair.sends_failed() && self.next < self.requests.end() {
            if let Some(slot) = self.requests.get_mut(self.next) {
                slot.status = Status::Canceled;
            }
            self.advance(Progress::Done);
        }
    }

    fn finished(&self, slot: &Slot) -> bool {
        match slot.progress {
            Progress::Done => true,
            Progress::Sent => !slot.operation.fetches() && slot.message < self.succeeded,
            Progress::Waiting | Progress::Running => false,
        }
    }

    /// Sequence number of the oldest request that the peer owes an answer, if it does.
    pub(crate) fn owed(&self) -> Option<u64> {
        let started = self.requests.first()..self.next.min(self.requests.end());
        started.into_iter().find(|sequence| {
            self.requests.get(*sequence).is_some_and(|slot| {
                matches!(slot.progress, Progress::Running | Progress::Sent) && !self.finished(slot)
            })
        })
    }

    /// The oldest Send or Write without an outcome has succeeded.
    pub(crate) fn next_succeeded(&mut self) {
        let mut started = self.requests.first()..self.next.min(self.requests.end());
        let message = started.find_map(|sequence| {
            let slot = self.requests.get(sequence)?;
            let waits = matches!(slot.progress, Progress::Running | Progress::Sent)
                && !slot.operation.fetches()
                && slot.message >= self.succeeded;
            waits.then_some(slot.message)
        });
        if let Some(message) = message {
            self.succeeded = message + 1;
        }
    }

    /// Whether the peer owes an answer.
    pub(crate) fn owes(&self) -> bool {
        self.next > self.requests.first() && self.owed().is_some()
    }

    /// The oldest request without an outcome, begun or not.
    pub(crate) fn oldest(&self) -> Option<u64> {
        let all = self.requests.first()..self.requests.end();
        all.into_iter()
            .find(|sequence| self.requests.get(*sequence).is_some_and(|slot| !self.finished(slot)))
    }

    /// The oldest of these that is of the kind a peer blames.
    pub(crate) fn owed_kind(&self, kind: Option<transom_wire::Operation>) -> Option<u64> {
        use transom_wire::Operation as Wire;
        let kind = kind?;
        let is_blamed = |operation: Operation| match kind {
            Wire::Invalidate => matches!(operation, Operation::SendWithInvalidate { .. }),
            Wire::Send | Wire::Write | Wire::Read | Wire::Atomic => {
                operation.on_wire() == Some(kind)
            }
        };
        (self.owed()?..self.next.min(self.requests.end())).find(|sequence| {
            let slot = self.requests.get(*sequence);
            slot.is_some_and(|slot| !self.finished(slot) && is_blamed(slot.operation))
        })
    }

    /// Complete what has succeeded, in posting order. `true`: a failed request is the oldest now, so
    /// the connection has to end.
    pub(crate) fn retire(&mut self, effects: &mut Effects) -> bool {
        while let Some(slot) = self.requests.front() {
            if !self.finished(slot) {
                return false;
            }
            let (status, denial) = (slot.status, slot.denial);
            if !status.is_success() && !self.is_unreliable() {
                return true;
            }
            self.pop_request(effects, status, denial);
            if !status.is_success() {
                self.failed = false;
                self.pair.set_sends_failed(true);
            }
        }
        false
    }

    #[inline(always)]
    fn pop_request(&mut self, effects: &mut Effects, status: Status, denial: u64) {
        let Some(slot) = self.requests.front() else { return };
        match self.pair.leave(slot.flags, status) {
            Leaving::Silent => {}
            Leaving::Settled => self.pair.settle(slot.context, effects),
            Leaving::Completes(place) => {
                let completion = self.completion(slot, status, slot.length, denial);
                effects.complete(Side::Initiator, Completion { place, ..completion });
            }
        }
        self.requests.remove();
        self.next = self.next.max(self.requests.first());
    }

    fn completion(&self, slot: &Slot, status: Status, length: u64, denial: u64) -> Completion {
        Completion {
            request_context: slot.context,
            queue_pair_context: self.pair.config.context,
            queue_pair: self.number,
            kind: slot.operation.kind(),
            status,
            length: if status.is_success() { length as u32 } else { 0 },
            denial,
            ..Completion::BLANK
        }
    }

    /// Complete the receive that a message has consumed.
    #[inline]
    pub(crate) fn complete_receive(&mut self, effects: &mut Effects, arrival: &Arrival) {
        let Some(slot) = self.receives.front() else { return };
        let mut flags = CompletionFlags::default();
        if arrival.solicited {
            flags.0 |= CompletionFlags::SOLICITED.0;
        }
        let value = match arrival.value {
            Value::None => 0,
            Value::Invalidated(token) => {
                flags.0 |= CompletionFlags::INVALIDATED.0;
                token
            }
            Value::Immediate(bytes) => {
                flags.0 |= CompletionFlags::IMMEDIATE.0;
                bytes
            }
        };
        let completion = self.completion(slot, Status::Success, u64::from(arrival.length), 0);
        let (kind, place) = (arrival.kind, self.remove_receive());
        effects
            .complete(self.receive_side(), Completion { kind, flags, value, place, ..completion });
    }

    /// Complete the oldest receive with an error.
    pub(crate) fn fail_receive(&mut self, effects: &mut Effects, status: Status, denial: u64) {
        let Some(slot) = self.receives.front() else { return };
        let completion = self.completion(slot, status, 0, denial);
        let place = self.remove_receive();
        effects.complete(self.receive_side(), Completion { place, ..completion });
    }

    fn receive_side(&self) -> Side {
        match self.kind {
            QueuePairKind::XrcReceive => Side::Target(self.target),
            _ => Side::Receive,
        }
    }

    /// Remove the oldest receive: the place of its completion.
    #[inline(always)]
    fn remove_receive(&mut self) -> u32 {
        self.receives.remove();
        self.receiving = false;
        if self.shares_receives() { 0 } else { self.pair.receives.complete() }
    }

    /// Whether there is a receive for a message of the peer's, after a look into the shared queue.
    pub(crate) fn has_receive(&mut self, shared: Option<&dyn SharedReceives>) -> bool {
        !self.receives.is_empty()
            || self.shares_receives()
                && shared.is_some_and(|shared| shared.take(self.number, &mut self.receives))
    }

    /// Whether a receive is posted that this half has not got: another thread holds the lock under which it is
    /// carried over, and has still to do so.
    pub(crate) fn has_receive_in_front(&self) -> bool {
        !self.shares_receives() && self.pair.receives.uncompleted() as usize > self.receives.len()
    }

    /// The connection is over, and the queue pair goes on: what has succeeded completes, and what
    /// was begun and not finished stays. A failure behind that is taken back, for it is not the first.
    pub(crate) fn part(&mut self, effects: &mut Effects, shared: Option<&dyn SharedReceives>) {
        if self.is_unreliable()
            && let Some(slot) = self.under_way.and_then(|sequence| self.requests.get_mut(sequence))
        {
            slot.progress = Progress::Done; // what was to follow is lost
        }
        let _ = self.retire(effects);
        if std::mem::take(&mut self.failed) {
            for sequence in self.requests.first()..self.requests.end() {
                if let Some(slot) = self.requests.get_mut(sequence) {
                    (slot.status, slot.denial) = (Status::Success, 0);
                }
            }
        }
        self.pair.enter(QueuePairState::Idle);
        (self.under_way, self.reads, self.receiving) = (None, 0, false);
        if self.shares_receives()
            && let Some(shared) = shared
        {
            shared.give_back(&mut self.receives);
        }
    }

    /// Complete everything: what has succeeded so far, the first that has failed with its status, the rest
    /// canceled (ND2 4.5, 4.9; Verbs V67). Binds that did not execute never will.
    pub(crate) fn flush(
        &mut self,
        effects: &mut Effects,
        memory: &Memory,
        shared: Option<&dyn SharedReceives>,
        now: Time,
        denial: u64,
    ) {
        let (mut behind_failure, mut behind_cause) = (false, false);
        while let Some(slot) = self.requests.front() {
            let has_cause = !slot.status.is_success();
            let (status, id) = if has_cause && !behind_cause {
                (slot.status, slot.denial)
            } else if !has_cause && !behind_failure && self.finished(slot) {
                (Status::Success, 0)
            } else {
                (Status::Canceled, denial)
            };
            behind_cause |= has_cause;
            behind_failure |= self.pair.fails_what_follows(status);
            if let Operation::Bind { window } = slot.operation
                && !status.is_success()
            {
                memory.abandon(window, now.0);
            }
            self.pop_request(effects, status, id);
        }
        self.under_way = None;
        self.reads = 0;
        if self.shares_receives() {
            if self.receiving {
                self.fail_receive(effects, Status::Canceled, denial);
            }
            if let Some(shared) = shared {
                shared.give_back(&mut self.receives);
            }
        } else {
            while !self.receives.is_empty() {
                self.fail_receive(effects, Status::Canceled, denial);
            }
        }
    }
}
