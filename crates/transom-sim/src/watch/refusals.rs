//! Refusals: each must be the model's answer too, and name the rule that the model names.

use transom_core::{DenialCause, DenialRecord, Operation, QueuePairKind, Status};
use transom_memory::{Denial, Purpose, Rule};

use super::inbound::{What, may_close};
use super::{EndId, Stream, Watch, immediate_of, outlives, wants_receive, written_to};
use crate::model::Verdict;

/// How long a Send waits for a receive, less the slack of one timer.
const PATIENCE: u64 = 990_000_000;

impl Watch {
    /// The owner's record of a refusal.
    pub fn denied(&mut self, record: &DenialRecord) {
        self.say(|| format!("  record {:?}: {}", record.request, record.cause));
        self.with(|watch, end, stream| match &record.cause {
            DenialCause::Peer(denial) => watch.peer_denied(end, stream, denial),
            DenialCause::Own(denial) => watch.own_denied(end, stream, denial, record.request),
            DenialCause::Vanished { .. } => watch.vanished(end, stream, record.request),
            DenialCause::ByPeer(_) => {
                if watch.peer(end).is_some_and(|peer| peer.ended.is_none()) && !stream.spoilt {
                    watch.fail("the peer is said to have failed, and has not");
                }
            }
            DenialCause::Violation(violation) => {
                if stream.open && !stream.spoilt {
                    watch.fail(format!("a violation that nobody committed: {violation}"));
                }
                // A handshake that took too long.
                stream.spoilt = true;
            }
            DenialCause::QueuePair(purpose) => watch.queue_pair_denied(end, stream, *purpose),
            cause @ (DenialCause::Register(_)
            | DenialCause::Bind(_)
            | DenialCause::Call(_)
            | DenialCause::Other(_)) => {
                watch.other(end, stream, record.request, &cause.to_string());
            }
        });
    }

    /// The model's answer to the access of a denial. `None`: it allows it.
    fn rule_for(&self, stream: &Stream, denial: &Denial) -> Option<Rule> {
        let access = denial.access;
        if access.purpose == Purpose::Close {
            let books = self.books.get(stream.process)?;
            return may_close(books, &stream.actor, access.token.0).err().map(|_| denial.rule);
        }
        let (token, address) = (access.token.0, access.address);
        match self.judge(stream, access.purpose, token, address, access.length) {
            Verdict::Yes(_) => None,
            Verdict::No(rule) | Verdict::Either(_, rule) => Some(rule),
        }
    }

    fn right_denial(&mut self, stream: &Stream, denial: &Denial) {
        if denial.access.actor != stream.actor {
            self.fail(format!("a check names {:?}, not {:?}", denial.access.actor, stream.actor));
        }
        if !self.admits(stream, denial.access.purpose, denial.access.length) {
            self.fail("a token is judged although the queue pair admits no such access (V93)");
        }
        match self.rule_for(stream, denial) {
            Some(rule) if rule == denial.rule || stream.ended.is_some() => {}
            other => self.fail(format!(
                "refused by {:?}; the model says {other:?} (rule 2): {:x?}",
                denial.rule, denial.access
            )),
        }
        // A peer without a connection is counted with peers outside the scope.
        let rule = if denial.rule == Rule::Connected { Rule::Scope } else { denial.rule };
        if denial.access.purpose.is_remote() {
            self.counters.hit(rule.named().name());
        }
    }

    /// The queue pair itself refuses the peer (V93).
    fn queue_pair_denied(&mut self, end: EndId, stream: &mut Stream, purpose: Purpose) {
        self.counters.hit("refused: by the queue pair");
        if self.admits(stream, purpose, 1) {
            self.fail(format!("the queue pair admits {purpose:?}, and refuses it (V93)"));
        }
        stream.refused = true;
        let message = if purpose == Purpose::RemoteRead && stream.frame.take().is_some() {
            stream.serving.front().map(|serving| serving.message)
        } else {
            stream.inbox.pop_front().map(|piece| piece.message)
        };
        stream.inbox.clear();
        if message.is_none() && stream.ended.is_none() {
            self.fail("the queue pair refuses the peer what it did not ask for");
        }
        self.blame(end, message, unsupported(stream));
    }

    fn peer_denied(&mut self, end: EndId, stream: &mut Stream, denial: &Denial) {
        if denial.access.purpose == Purpose::RemoteRead
            && stream.frame.is_some()
            && let Some(serving) = stream.serving.front()
        {
            stream.actor.domain = serving.domain;
        }
        self.right_denial(stream, denial);
        stream.refused = true;
        let message = if denial.access.purpose == Purpose::RemoteRead && stream.frame.is_some() {
            self.counters.hit("refused: answer to a read");
            stream.frame = None;
            stream.serving.front().map(|serving| serving.message)
        } else {
            let piece = stream.inbox.pop_front();
            stream.inbox.clear();
            match piece.as_ref().map(|piece| piece.what) {
                Some(What::Ask(_)) if denial.access.purpose == Purpose::RemoteWrite => {
                    self.counters.hit("refused: announced");
                }
                Some(What::Write { address, immediate, .. }) => {
                    if immediate.is_some() {
                        self.counters.hit("refused: write with immediate data");
                    }
                    let first = piece.as_ref().and_then(|p| {
                        self.peer(end)
                            .and_then(|peer| peer.messages.get(p.message))
                            .map(|m| m.operation)
                    });
                    if first.and_then(written_to).is_none_or(|(_, first)| first != address) {
                        self.counters.hit("refused: in the middle");
                    }
                }
                Some(What::Send { .. }) => {
                    self.counters.hit("refused: invalidation");
                    self.receive_is_bad(stream, Status::InvalidRequest);
                }
                Some(_) => {}
                None if stream.ended.is_some() => {}
                None => self.fail("something of the peer is refused that it did not ask for"),
            }
            piece.map(|piece| piece.message)
        };
        let status = match (denial.access.purpose, denial.rule) {
            (Purpose::Close, _) => Status::RemoteError,
            (_, Rule::Aligned) => Status::PeerInvalidRequest,
            _ => Status::RemoteAccess,
        };
        self.blame(end, message, status);
    }

    /// The peer's message will fail there with this status.
    fn blame(&mut self, end: EndId, message: Option<usize>, status: Status) {
        let message = message
            .and_then(|number| self.peer_mut(end).and_then(|peer| peer.messages.get_mut(number)));
        if let Some(message) = message {
            message.refused.get_or_insert(status);
        }
    }

    /// A request or a receive of ours is bad. `false`: there is none of that context.
    fn own_is_bad(&mut self, stream: &Stream, context: u64, status: Status) -> bool {
        let Some(pair) = stream.pair.and_then(|key| self.pairs.get_mut(&key)) else { return false };
        if let Some(receive) = pair.receives.iter_mut().find(|r| r.context == context) {
            receive.bad = Some(status);
            return true;
        }
        let first = pair.first;
        let requests = pair.requests.iter_mut().enumerate().skip(first);
        let Some((number, request)) = requests.into_iter().find(|(_, r)| r.context == context)
        else {
            return false;
        };
        request.bad = Some(status);
        // Requests in front of it that have no message execute first.
        pair.next = pair.next.max(number + 1);
        pair.failed = true;
        true
    }

    fn own_denied(
        &mut self,
        end: EndId,
        stream: &mut Stream,
        denial: &Denial,
        context: Option<u64>,
    ) {
        self.start_local(stream);
        self.right_denial(stream, denial);
        let found = context.is_some_and(|c| self.own_is_bad(stream, c, Status::LocalAccess));
        if !found {
            self.fail("a list is refused that nobody posted");
        }
        stream.frame = None;
        if denial.access.purpose == Purpose::ReceiveBuffer {
            self.counters.hit("receive refused");
            stream.refused = true;
            let message = stream.inbox.pop_front().map(|piece| piece.message);
            self.blame(end, message, Status::RemoteError);
            stream.inbox.clear();
        } else {
            self.counters.hit("local list refused");
            // The sink of an answer; a Send that waits for a receive goes on waiting.
            if stream.inbox.front().is_some_and(|piece| matches!(piece.what, What::Answer { .. })) {
                stream.inbox.clear();
            }
        }
    }

    fn vanished(&mut self, end: EndId, stream: &mut Stream, context: Option<u64>) {
        self.counters.hit("pages vanished");
        if !stream.faulted {
            self.fail("pages are said to be gone, and are not");
        }
        if stream.frame.take().is_some() && context.is_none() {
            stream.refused = true;
            let message = stream.serving.front().map(|serving| serving.message);
            return self.blame(end, message, Status::RemoteError);
        }
        let piece = stream.inbox.pop_front();
        stream.inbox.clear();
        match (context, piece) {
            (Some(context), piece) => {
                if !self.own_is_bad(stream, context, Status::LocalAccess) {
                    self.fail("pages of a request that nobody posted are gone");
                }
                if let Some(piece) = piece.filter(|p| matches!(p.what, What::Send { .. })) {
                    stream.refused = true;
                    self.blame(end, Some(piece.message), Status::RemoteError);
                }
            }
            (None, Some(piece)) => {
                stream.refused = true;
                self.blame(end, Some(piece.message), Status::RemoteError);
            }
            (None, None) => self.fail("pages are gone that nobody asked for"),
        }
    }

    fn receive_is_bad(&mut self, stream: &Stream, status: Status) {
        let pair = stream.pair.and_then(|key| self.pairs.get_mut(&key));
        let open = pair.and_then(|pair| {
            pair.receives.iter_mut().find(|r| r.done.is_none() && r.bad.is_none())
        });
        if let Some(receive) = open {
            receive.bad = Some(status);
        }
    }

    /// The rest: what it is follows from what is under way.
    fn other(&mut self, end: EndId, stream: &mut Stream, context: Option<u64>, text: &str) {
        self.start_local(stream);
        let pair = stream.pair.and_then(|key| self.pairs.get(&key));
        let request = context.and_then(|context| {
            pair.and_then(|pair| pair.requests[pair.first..].iter().find(|r| r.context == context))
        });
        if let (Some(request), Some(context)) = (request, context) {
            let waited = match pair.filter(|pair| outlives(pair.dialect)) {
                Some(pair) => {
                    pair.limits.receive.is_some_and(|limit| request.at.after(limit) <= self.now)
                }
                None => self.now.0 - request.at.0 >= PATIENCE,
            };
            let status = match request.operation {
                Operation::Bind { .. }
                | Operation::Invalidate { .. }
                | Operation::BindStanding { .. }
                | Operation::FastRegister { .. } => request.bad,
                Operation::Read { .. } | Operation::Atomic { .. } if stream.reads == 0 => {
                    self.counters.hit("read limit 0");
                    Some(Status::InvalidRequest)
                }
                _ if pair.is_some_and(|p| p.kind == QueuePairKind::XrcSend)
                    && !stream.extension =>
                {
                    self.counters.hit("named a queue to a plain peer");
                    Some(Status::NotSupported)
                }
                Operation::Atomic { .. } if !stream.extension => {
                    self.counters.hit("atomic to a plain peer");
                    Some(Status::NotSupported)
                }
                operation if immediate_of(operation).is_some() && !stream.extension => {
                    self.counters.hit("immediate data to a plain peer");
                    Some(Status::NotSupported)
                }
                operation if wants_receive(operation) && waited => {
                    self.counters.hit("no receive in time");
                    Some(stream.dialect.no_receive)
                }
                _ => None,
            };
            match status {
                Some(status) => {
                    self.own_is_bad(stream, context, status);
                }
                None => self.fail(format!("a request fails that should not: {text}")),
            }
            return;
        }
        let Some(piece) = stream.inbox.pop_front() else {
            return self.fail(format!("refused, with nothing under way: {text}"));
        };
        stream.inbox.clear();
        stream.refused = true;
        if self.names_nothing(end, stream, piece.message) {
            return self.blame(end, Some(piece.message), Status::PeerInvalidRequest);
        }
        let limit = pair.filter(|_| self.has_targets(stream)).map(|pair| pair.limits.receive);
        if let (What::Write { immediate: Some(_), .. }, Some(limit), Some(since)) =
            (piece.what, limit, stream.waits)
            && limit.is_some_and(|limit| since.after(limit) <= self.now)
        {
            self.counters.hit("no receive in time");
            let status = self.peer(end).map_or(Status::IoTimeout, |peer| peer.dialect.no_receive);
            return self.blame(end, Some(piece.message), status);
        }
        let operation = self.peer(end).and_then(|p| p.messages.get(piece.message));
        if operation.is_some_and(|m| m.operation.fetches()) && !self.serves_reads(stream) {
            self.counters.hit("refused: serves no reads");
            return self.blame(end, Some(piece.message), unsupported(stream));
        }
        if piece.brings_immediate() && !stream.immediate {
            self.counters.hit("refused: immediate data");
            return self.blame(end, Some(piece.message), Status::PeerInvalidRequest);
        }
        let What::Send { offset, invalidate, .. } = piece.what else {
            return self.fail(format!("{:?} is refused: {text}", piece.what));
        };
        let size = offset + piece.bytes.len() as u64;
        let receive = pair
            .and_then(|pair| pair.receives.iter().find(|r| r.done.is_none() && r.bad.is_none()));
        let status = match (receive, stream.waits) {
            (Some(receive), _) if size > receive.length => {
                self.counters.hit("receive too small");
                self.receive_is_bad(stream, Status::ReceiveTooSmall);
                Status::PeerReceiveTooSmall
            }
            (None, Some(since))
                if match limit {
                    Some(limit) => limit.is_some_and(|limit| since.after(limit) <= self.now),
                    None => self.now.0 - since.0 >= PATIENCE,
                } =>
            {
                self.counters.hit("no receive in time");
                self.peer(end).map_or(Status::IoTimeout, |peer| peer.dialect.no_receive)
            }
            (Some(_), _) if piece.last && invalidate.is_some() => {
                let books = self.books.get(stream.process);
                let may =
                    books.zip(invalidate).map(|(b, token)| may_close(b, &stream.actor, token));
                if matches!(may, Some(Ok(true))) {
                    self.fail("a peer may close this token, and is refused");
                }
                self.counters.hit("refused: invalidation");
                self.receive_is_bad(stream, Status::InvalidRequest);
                Status::RemoteError
            }
            _ => {
                self.fail(format!("a Send is refused for no reason: {text}"));
                Status::RemoteError
            }
        };
        self.blame(end, Some(piece.message), status);
    }
}

/// The status of an operation that the queue pair does not do for its peer. To a plain peer an access
/// right is missing (RFC 5040 7.2).
fn unsupported(stream: &Stream) -> Status {
    if stream.extension { Status::PeerInvalidRequest } else { Status::RemoteAccess }
}
