//! Rule 10: an accepted request completes exactly once, a silent success not at all, in posting order,
//! and a flush is one batch.

use std::collections::VecDeque;

use transom_core::{
    Completion, CompletionFlags, ConnectionEvent, Data, Dialect, Effect, EndReason, Flags, Limits,
    Operation, QueuePairKind, Request, Sge, Side, Status,
};
use transom_memory::{DomainId, QueuePairId, Rights, Segment};

use super::{EndId, Pair, PairId, Posted, Receive, Stream, Watch, outlives, written_to};
use crate::model::Life;

impl Pair {
    /// A queue pair, before its first post.
    #[must_use]
    pub fn new(
        domain: DomainId,
        dialect: &'static Dialect,
        kind: QueuePairKind,
        context: u64,
        shared: Option<usize>,
    ) -> Pair {
        Pair {
            domain,
            dialect,
            kind,
            context,
            shared,
            requests: Vec::new(),
            first: 0,
            next: 0,
            failed: false,
            receives: VecDeque::new(),
            end: None,
            over: false,
            lost: false,
            limits: Limits::default(),
            access: Rights::REMOTE,
            waits: None,
            reconnects: false,
            gave_up: false,
        }
    }

    /// Requests and receives that have not completed.
    #[must_use]
    pub fn outstanding(&self) -> (usize, usize) {
        (self.requests.len() - self.first, self.receives.len())
    }
}

impl Watch {
    /// A request was accepted.
    pub fn posted(&mut self, key: PairId, target: u32, request: &Request, data: Data<'_>) {
        let at = self.now;
        let (mut list, mut inline, mut memory): (&[Sge], _, &[Segment]) = (&[], None, &[]);
        match data {
            Data::Sges(sges) => list = sges,
            Data::Inline(bytes) => inline = Some(bytes),
            Data::Memory(segments) => memory = segments,
        }
        self.say(|| format!("process {} pair {:#x} posts {request:?} {list:x?}", key.0, key.1));
        let Some(pair) = self.pairs.get_mut(&key) else { return };
        let length = match inline {
            Some(bytes) => bytes.len() as u64,
            None => list.iter().map(|sge| u64::from(sge.length)).sum(),
        };
        pair.requests.push(Posted {
            context: request.context,
            operation: request.operation,
            target,
            flags: request.flags,
            list: list.to_vec(),
            memory: memory.to_vec(),
            inline: inline.map(<[u8]>::to_vec),
            length,
            at,
            message: None,
            executed: false,
            bad: None,
        });
        *self.counters.0.entry("requests").or_default() += 1;
    }

    /// A receive was accepted.
    pub fn posted_receive(&mut self, key: PairId, context: u64, list: &[Sge]) {
        self.say(|| {
            format!("process {} pair {:#x} posts receive {context} {list:x?}", key.0, key.1)
        });
        if let Some(pair) = self.pairs.get_mut(&key) {
            pair.receives.push_back(Receive::new(context, list));
        }
    }

    /// A connection takes the oldest receive of a shared queue.
    pub fn taken(&mut self, process: usize, pool: usize, number: QueuePairId, got: bool) {
        self.say(|| format!("  pair {:#x} takes a shared receive: {got}", number.0));
        let receive = match self.pools.get_mut(&(process, pool)) {
            Some(pool) if got => pool.pop_front(),
            Some(pool) => {
                if !pool.is_empty() {
                    self.fail("a shared queue has receives, and gives none");
                }
                self.counters.hit("shared queue empty");
                return;
            }
            None => None,
        };
        let pair = self.pairs.get_mut(&(process, number.0));
        match (receive, pair) {
            (Some(receive), Some(pair)) => pair.receives.push_back(receive),
            _ => self.fail("a receive is taken that nobody posted"),
        }
    }

    /// A receive was posted to a shared queue: connections with a Send that waits for one are to be run.
    pub fn woken(&mut self, process: usize, pool: usize, wake: &[QueuePairId]) {
        let forgotten = self.ends.values().any(|stream| {
            let waits = stream.waits.is_some() && stream.ended.is_none();
            waits
                && stream.pair.is_some_and(|key| {
                    let shared = self.pairs.get(&key).and_then(|pair| pair.shared);
                    key.0 == process && shared == Some(pool) && !wake.contains(&QueuePairId(key.1))
                })
        });
        if forgotten {
            self.fail("a Send waits for a receive, and nobody looks when one is posted");
        }
    }

    /// A queue pair puts back what it took and did not use.
    pub fn given_back(&mut self, process: usize, pool: usize, count: usize) {
        self.say(|| format!("  {count} shared receives are put back"));
        let key = self.current.and_then(|end| self.ends.get(&end)).and_then(|stream| stream.pair);
        let Some(pair) = key.and_then(|key| self.pairs.get_mut(&key)) else { return };
        // A receive that is being filled has been completed already, as far as the engine goes.
        let skip = pair.receives.len().saturating_sub(count);
        let back: Vec<Receive> = pair.receives.drain(skip..).collect();
        let all_unused =
            back.len() == count && back.iter().all(|r| r.done.is_none() && r.bad.is_none());
        if let Some(pool) = self.pools.get_mut(&(process, pool)) {
            back.into_iter().rev().for_each(|receive| pool.push_front(receive));
        }
        if !all_unused {
            self.fail(format!("{count} receives are put back; the model knows of others"));
        }
    }

    /// The effects of one call, before they are carried out.
    pub fn effects(&mut self, end: Option<EndId>, key: Option<PairId>, effects: &[Effect]) {
        let Some(key) = key else { return };
        let before = self.current;
        self.current = end;
        let (mut flushing, mut kept) = (false, false);
        for effect in effects {
            match effect {
                Effect::Event(ConnectionEvent::Ended(ended)) => {
                    let stream = end.and_then(|end| self.ends.get(&end));
                    kept = stream.is_some_and(|stream| stream.keeps)
                        && ended.reason == EndReason::PeerDisconnected;
                    flushing |= !kept && self.pairs.get(&key).is_some_and(|pair| pair.over);
                }
                Effect::Complete(side, completion) => {
                    flushing |= !completion.status.is_success();
                    self.completed(key, *side, completion);
                }
                other => {
                    let left = self.pairs.get(&key).is_some_and(|pair| self.oldest(pair).is_some());
                    if flushing && left {
                        self.fail(format!("{other:?} in the middle of a flush (rule 10)"));
                    }
                }
            }
        }
        if flushing {
            self.flushed(key);
        }
        if kept && self.pairs.get(&key).is_some_and(|pair| pair.outstanding() != (0, 0)) {
            self.counters.hit("requests kept for the program");
        }
        self.current = before;
    }

    /// After a flush nothing is left.
    pub fn flushed(&mut self, key: PairId) {
        self.skip_silent(key);
        let Some(pair) = self.pairs.get(&key) else { return };
        let (requests, receives) = pair.outstanding();
        if requests > 0 || receives > 0 {
            self.fail(format!(
                "a flush leaves {requests} requests and {receives} receives (rule 10)"
            ));
        }
    }

    /// Requests that have succeeded in silence are over as soon as one behind them is, or when they
    /// are asked for.
    pub fn skip_silent(&mut self, key: PairId) {
        let Some(mut pair) = self.pairs.remove(&key) else { return };
        while pair.requests.get(pair.first).is_some_and(|request| {
            request.flags.contains(Flags::SILENT_SUCCESS) && self.has_succeeded(request)
        }) {
            self.counters.hit("silent success");
            pair.first += 1;
        }
        self.pairs.insert(key, pair);
    }

    /// The oldest request that has not succeeded in silence.
    #[must_use]
    pub fn oldest<'a>(&self, pair: &'a Pair) -> Option<&'a Posted> {
        pair.requests.get(pair.first..)?.iter().find(|request| {
            !request.flags.contains(Flags::SILENT_SUCCESS) || !self.has_succeeded(request)
        })
    }

    fn completed(&mut self, key: PairId, side: Side, completion: &Completion) {
        self.say(|| format!("  completion {side:?} {completion:?}"));
        let Some(mut pair) = self.pairs.remove(&key) else {
            return self.fail("a completion of no queue pair");
        };
        if completion.queue_pair.0 != key.1 || completion.queue_pair_context != pair.context {
            self.fail("a completion names another queue pair");
        }
        match side {
            Side::Initiator => self.request_completed(key, &mut pair, completion),
            Side::Receive | Side::Target(_) => self.receive_completed(&mut pair, completion),
        }
        if completion.status == Status::Canceled && !pair.over {
            self.fail("a request is canceled on a connection that goes on");
        }
        self.pairs.insert(key, pair);
    }

    fn request_completed(&mut self, key: PairId, pair: &mut Pair, completion: &Completion) {
        let request = loop {
            let Some(request) = pair.requests.get(pair.first).cloned() else {
                return self
                    .fail(format!("{completion:?} completes no request, or one again (rule 10)"));
            };
            pair.first += 1;
            if request.context == completion.request_context {
                break request;
            }
            let silent = request.flags.contains(Flags::SILENT_SUCCESS);
            if !silent || !self.has_succeeded(&request) {
                return self.fail(format!(
                    "{completion:?} comes before {request:?} has completed (rule 10)"
                ));
            }
            self.counters.hit("silent success");
        };
        if completion.kind != request.operation.kind() {
            self.fail(format!("{completion:?} for {:?}", request.operation));
        }
        if completion.status.is_success() {
            if request.flags.contains(Flags::SILENT_SUCCESS) {
                self.fail("a silent success completes (rule 10)");
            }
            if !self.has_succeeded(&request) {
                self.fail(format!(
                    "{:?} completes with success before it has succeeded",
                    request.operation
                ));
            }
            if u64::from(completion.length) != request.length {
                self.fail("a completion of another length");
            }
            if pair.lost && pair.dialect.flushes_acknowledged {
                self.fail("a request succeeds behind one that has failed (V67)");
            }
            self.count_success(&request);
            return;
        }
        self.never_bound(key.0, request.operation);
        self.judge_failure(pair, &request, completion.status);
        pair.lost = true;
    }

    /// A Bind that has not been executed never will be (rule 6).
    pub(super) fn never_bound(&mut self, process: usize, operation: Operation) {
        if let Operation::Bind { window } = operation
            && let Some(object) =
                self.books.get_mut(process).and_then(|b| b.objects.get_mut(&window.0))
            && object.life == Life::Reserved
        {
            object.life = Life::Dead;
            self.counters.hit("reserved and never bound");
        }
    }

    fn count_success(&mut self, request: &Posted) {
        self.counters.hit(match request.operation {
            Operation::Write { .. } => "write ok",
            Operation::WriteWithImmediate { .. } => "write with immediate data ok",
            Operation::SendWithImmediate { .. } => "send with immediate data ok",
            Operation::Read { .. } => "read ok",
            Operation::Atomic { .. } => "atomic ok",
            Operation::Bind { .. } | Operation::BindStanding { .. } => "bind ok",
            Operation::Invalidate { .. } => "invalidate ok",
            Operation::FastRegister { .. } => "fast register ok",
            Operation::Send | Operation::SendWithInvalidate { .. } => "send ok",
            Operation::Unsupported { .. } | Operation::Receive => {
                return self.fail(format!("{:?} succeeds", request.operation));
            }
        });
        if request.inline.is_some() {
            self.counters.hit("inline");
        }
        if request.list.iter().filter(|sge| sge.length > 0).count() > 1 {
            self.counters.hit("gather of several");
        }
        if request.length == 0 && request.operation.has_data() {
            self.counters.hit("empty message");
        }
    }

    /// Whether what a request asks for has been done.
    pub(super) fn has_succeeded(&self, request: &Posted) -> bool {
        if request.bad.is_some() {
            return false;
        }
        if request.operation.on_wire().is_none() {
            return request.executed;
        }
        let Some((end, number)) = request.message else { return false };
        let Some(stream) = self.ends.get(&end) else { return false };
        let Some(message) = stream.messages.get(number) else { return false };
        // A plain peer vouches for Writes that complete; everything else is over when it is sent.
        let vouched = stream.extension
            || request.operation.fetches()
            || matches!(request.operation, Operation::Write { .. })
                && !request.flags.contains(Flags::SILENT_SUCCESS);
        // The peer vouches for those by an orderly close, too, executed or not: its refusals it
        // reports.
        let settled = stream.finished && !stream.extension && message.sent;
        let write = written_to(request.operation).is_some();
        if vouched {
            (message.executed || settled && write) && message.refused.is_none()
        } else {
            message.sent
        }
    }

    /// The peer of this end closes in order, and has taken everything. `false`: the network was unkind.
    pub fn finished(&mut self, end: EndId) -> bool {
        let Some(stream) = self.ends.get_mut(&end).filter(|stream| !stream.hurt) else {
            return false;
        };
        stream.finished = true;
        let waits = |m: &super::Message| {
            m.sent && !m.executed && matches!(m.operation, Operation::Write { .. })
        };
        if !stream.extension && stream.messages.iter().any(waits) {
            self.counters.hit("plain peer closed on a write");
        }
        true
    }

    /// A request that fails has a reason, and says the right one.
    fn judge_failure(&mut self, pair: &Pair, request: &Posted, status: Status) {
        let end = request.message.map(|(end, _)| end).or(pair.end);
        let stream = end.and_then(|end| self.ends.get(&end));
        let message: Option<&super::Message> =
            request.message.and_then(|(_, number)| stream?.messages.get(number));
        let refused = message.and_then(|message| message.refused);
        // A plain peer refuses what is over at this side: the oldest request that is left reports it.
        let late = stream.is_some_and(|stream| {
            let closes =
                |m: &super::Message| matches!(m.operation, Operation::SendWithInvalidate { .. });
            let told =
                |m: &super::Message| m.refused == Some(status) || m.refused.is_some() && closes(m);
            !stream.extension && stream.messages.iter().any(told)
        });
        let hurt = stream.is_none_or(|s: &Stream| s.hurt || s.spoilt);
        let old = self.now.since(request.at).as_millis() >= 990;
        let peer_over = end.and_then(|end| self.peer(end)).is_none_or(|peer| peer.ended.is_some());
        // An answer may be refused in front of a message that was refused before: the first one counts.
        let first =
            stream.and_then(|s| s.messages.iter().position(|message| message.refused.is_some()));
        // Whom the peer has refused, it tells so (rule 4), unless it stood still for as long as it may take.
        let stood_still = end.and_then(|end| self.peer(end)).is_some_and(|p| p.stood_still);
        let unheard = request.message.is_some_and(|(_, number)| first == Some(number))
            && !hurt
            && !stood_still
            && stream.is_some_and(|s| {
                let by_peer = [EndReason::PeerFailed, EndReason::PeerDisconnected].map(Some);
                s.extension && by_peer.contains(&s.ended)
            });
        // The peer executes and answers in order: what is in front of the first that it refuses succeeds.
        let in_front = request.message.zip(stream).is_some_and(|((_, number), s)| {
            let says = end.and_then(|end| self.peer(end)).map(|peer| peer.ended);
            s.extension
                && s.ended == Some(EndReason::PeerFailed)
                && says == Some(Some(EndReason::Refused))
                && first.is_some_and(|first| number < first)
        });
        let overtaken = in_front && !hurt && !stood_still;
        let right = match status {
            Status::Canceled => pair.over && !unheard && !overtaken,
            Status::LocalAccess | Status::InvalidRequest | Status::NotSupported => {
                request.bad == Some(status)
            }
            Status::RemoteAccess | Status::PeerReceiveTooSmall | Status::PeerInvalidRequest => {
                late || refused == Some(status)
                    || refused.is_some()
                        && matches!(request.operation, Operation::SendWithInvalidate { .. })
            }
            // The peer failed for another reason, or could not say for which.
            Status::RemoteError => peer_over || hurt,
            Status::IoTimeout if !outlives(pair.dialect) => {
                late || request.bad == Some(status) || refused == Some(status) || hurt || old
            }
            Status::ReceiverNotReady if outlives(pair.dialect) => {
                late || request.bad == Some(status) || refused == Some(status)
            }
            Status::RetryExceeded if outlives(pair.dialect) => {
                let silent = stream.is_some_and(|s| s.ended == Some(EndReason::TimedOut));
                !pair.lost && !unheard && (pair.gave_up || silent && pair.over)
            }
            _ => false,
        };
        if !right {
            let reason = request.bad.or(refused);
            self.fail(format!(
                "{:?} fails with {status:?}; the model says {reason:?}",
                request.operation
            ));
        }
    }

    fn receive_completed(&mut self, pair: &mut Pair, completion: &Completion) {
        let Some(receive) = pair.receives.pop_front() else {
            return self.fail("a receive completes that nobody posted, or one again (rule 10)");
        };
        if receive.context != completion.request_context {
            return self.fail("receives complete out of order (rule 10)");
        }
        if !completion.status.is_success() {
            let right =
                completion.status == Status::Canceled || receive.bad == Some(completion.status);
            if !right {
                self.fail(format!(
                    "a receive fails with {completion:?}; the model says {:?}",
                    receive.bad
                ));
            }
            if receive.done.is_some() {
                self.fail("a receive is filled and fails");
            }
            return;
        }
        let flags = completion.flags;
        let says = super::Delivered {
            kind: completion.kind,
            length: u64::from(completion.length),
            solicited: flags.contains(CompletionFlags::SOLICITED),
            invalidated: flags.contains(CompletionFlags::INVALIDATED).then_some(completion.value),
            immediate: flags.contains(CompletionFlags::IMMEDIATE).then_some(completion.value),
        };
        if receive.done != Some(says) {
            self.fail(format!("a receive completes with {says:?}; it got {:?}", receive.done));
        }
        self.counters.hit("receive ok");
        if says.solicited {
            self.counters.hit("solicited");
        }
    }
}

impl Receive {
    /// A receive that was just posted.
    #[must_use]
    pub fn new(context: u64, list: &[Sge]) -> Receive {
        let length = list.iter().map(|sge| u64::from(sge.length)).sum();
        Receive { context, list: list.to_vec(), length, done: None, bad: None }
    }
}
