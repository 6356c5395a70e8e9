//! Frames on their way in: they carry what the peer sent, and their bytes go where they may, in order.

use transom_core::{CompletionKind, Operation};
use transom_memory::{Actor, Purpose, Rule, Scope};
use transom_wire::{Atomic, Bytes, Event, Framing, MessageId};

use super::{Delivered, EndId, Receive, Sealed, Serving, Stream, Watch, immediate_of, written_to};
use crate::model::{Books, Life, Run, Verdict};
use crate::watch::outbound::parts;

/// Something that has come in and must be placed, delivered or refused.
#[derive(Debug)]
pub struct Piece {
    /// The kind of piece.
    pub what: What,
    /// The message: the peer's, or of an answer our own.
    pub message: usize,
    /// The bytes that have come.
    pub bytes: Vec<u8>,
    /// Bytes among these that are placed.
    pub placed: usize,
    /// The last of its message.
    pub last: bool,
}

/// The kinds of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A question without bytes: may this be done at all? `false`: it must be refused.
    Ask(bool),
    /// Bytes of a Write; the last ones may bring immediate data.
    Write { token: u32, address: u64, immediate: Option<u32> },
    /// Bytes of a Send.
    Send { offset: u64, solicited: bool, invalidate: Option<u32>, immediate: Option<u32> },
    /// Bytes of an answer.
    Answer { offset: u64 },
    /// A word to be changed.
    Change { token: u32, address: u64, change: Atomic },
}

impl Watch {
    /// The wire has made something of the peer's bytes.
    pub fn decoded(&mut self, event: &Event<'_>) {
        self.with(|watch, end, stream| {
            watch.settle(end, stream);
            stream.heard = watch.now;
            if stream.ended.is_none() {
                if stream.refused {
                    watch.fail("something behind a refused message is looked at (rule 4)");
                }
                watch.take(end, stream, event);
            }
        });
    }

    /// Counts the kinds of frames that have ways of their own.
    pub fn count_kind(&mut self, event: &Event<'_>, framing: Framing) {
        if let Event::Write { payload, last: true, immediate: None, .. } = event {
            self.counters.hit(match (framing, payload) {
                (Framing::Fpdus, _) => "write of a stream",
                (Framing::Records, Bytes::Own(_)) => "write in a slot",
                (Framing::Records, _) => "write in the data area",
            });
        }
    }

    fn take(&mut self, end: EndId, stream: &mut Stream, event: &Event<'_>) {
        match *event {
            Event::WriteAnnounced { token, address, length } => {
                let message = self.arriving(end);
                let announced =
                    self.peer(end).and_then(|p| p.messages.get(message)).is_some_and(|m| {
                        written_to(m.operation) == Some((token, address)) && m.length == length
                    });
                if !announced {
                    return self.fail(format!("{event:?} announces what was not posted"));
                }
                if !self.find_target(end, stream, message) {
                    return;
                }
                self.ask(stream, message, Purpose::RemoteWrite, (token, address, length));
            }
            Event::Write { token, address, payload, last, immediate } => {
                let Some(sealed) = self.arrives(end, payload, last) else {
                    return;
                };
                let message = self.peer(end).and_then(|p| p.messages.get(sealed.message));
                let right = message.is_some_and(|m| {
                    let at =
                        written_to(m.operation).map(|(t, a)| (t, a.wrapping_add(sealed.offset)));
                    let value = immediate_of(m.operation).filter(|_| last);
                    at == Some((token, address))
                        && immediate.map(|i| i.value) == value
                        && immediate.is_none_or(|i| i.solicited == m.solicited)
                });
                if sealed.answer || !right {
                    return self
                        .fail(format!("a Write to {token:#x} at {address:#x} that nobody posted"));
                }
                if !self.find_target(end, stream, sealed.message) {
                    return;
                }
                let immediate = immediate.map(|immediate| immediate.value);
                let what = What::Write { token, address, immediate };
                stream.inbox.push_back(Piece::of(sealed, what));
            }
            Event::Send { offset, payload, last, solicited, invalidate, immediate } => {
                let Some(sealed) = self.arrives(end, payload, last) else {
                    return;
                };
                let message = self.peer(end).and_then(|p| p.messages.get(sealed.message));
                let wanted = match message.map(|m| m.operation) {
                    Some(Operation::Send | Operation::SendWithImmediate { .. }) => None,
                    Some(Operation::SendWithInvalidate { token }) => Some(token),
                    _ => return self.fail("a Send that nobody posted"),
                };
                let value = message.and_then(|m| immediate_of(m.operation)).filter(|_| last);
                let right = wanted == invalidate
                    && immediate == value
                    && sealed.offset == u64::from(offset)
                    && message.is_some_and(|m| m.solicited == solicited);
                if sealed.answer || !right {
                    self.fail("a Send that differs from the one that was posted");
                }
                if !self.find_target(end, stream, sealed.message) {
                    return;
                }
                let offset = u64::from(offset);
                let what = What::Send { offset, solicited, invalidate, immediate };
                stream.inbox.push_back(Piece::of(sealed, what));
            }
            Event::ReadRequest { slot, token, address, length } => {
                let Some(sealed) = self.arrives(end, Bytes::Own(&[]), true) else { return };
                let message = self.peer(end).and_then(|p| p.messages.get(sealed.message));
                let right = message.is_some_and(|m| {
                    m.operation == Operation::Read { token, address }
                        && m.length == u64::from(length)
                });
                if sealed.answer || !right {
                    return self.fail("a Read that nobody posted");
                }
                if !self.find_target(end, stream, sealed.message) {
                    return;
                }
                let length = u64::from(length);
                self.ask(stream, sealed.message, Purpose::RemoteRead, (token, address, length));
                let message = sealed.message;
                let (slot, domain) = (slot.0, stream.actor.domain);
                let serving = Serving { slot, message, domain, token, address, length, sent: 0 };
                stream.serving.push_back(serving);
            }
            Event::ReadData { id, offset, payload, last } => {
                let message = id.0 as usize;
                let empty = stream.messages.get(message).is_some_and(|m| m.length == 0);
                let sealed = if empty && payload.is_empty() {
                    Sealed { answer: true, message, offset: 0, bytes: Vec::new(), last }
                } else {
                    let Some(sealed) = self.arrives(end, payload, last) else {
                        return;
                    };
                    sealed
                };
                if !sealed.answer || sealed.message != message || sealed.offset != u64::from(offset)
                {
                    self.fail("an answer to another Read, or another part of it");
                }
                let what = What::Answer { offset: u64::from(offset) };
                stream.inbox.push_back(Piece::of(sealed, what));
            }
            Event::Atomic { token, address, operation: change } => {
                let Some(sealed) = self.arrives(end, Bytes::Own(&[]), true) else { return };
                let message = self.peer(end).and_then(|p| p.messages.get(sealed.message));
                let posted = Operation::Atomic { token, address, change };
                if sealed.answer || message.is_none_or(|m| m.operation != posted) {
                    return self.fail("an atomic that nobody posted");
                }
                if !self.find_target(end, stream, sealed.message) {
                    return;
                }
                let what = What::Change { token, address, change };
                let (message, bytes) = (sealed.message, vec![0; 8]);
                stream.inbox.push_back(Piece { what, message, bytes, placed: 0, last: true });
            }
            Event::AtomicAnswer { id, value } => {
                let message = id.0 as usize;
                let held = stream.messages.get(message).and_then(|m| m.old.filter(|_| !m.executed));
                if held != Some(value) {
                    self.fail(format!("an atomic is answered with {value:#x}, not {held:x?}"));
                }
                let what = What::Answer { offset: 0 };
                let bytes = value.to_ne_bytes().to_vec();
                stream.inbox.push_back(Piece { what, message, bytes, placed: 0, last: true });
            }
            Event::Done { through } => self.done(stream, through),
            Event::ConnectRequest { .. }
            | Event::Accepted { .. }
            | Event::Rejected { .. }
            | Event::Established
            | Event::Target { .. }
            | Event::PeerFailed { .. }
            | Event::Resume
            | Event::CreditWanted => {}
        }
    }

    /// The peer's message that is arriving: the oldest that has not come completely.
    pub(super) fn arriving(&self, end: EndId) -> usize {
        let Some(peer) = self.peer(end) else { return usize::MAX };
        let in_flight =
            peer.flight.iter().find(|sealed| !sealed.answer).map(|sealed| sealed.message);
        in_flight.unwrap_or_else(|| peer.messages.len().wrapping_sub(1))
    }

    /// The next frame of the peer that has a payload or asks for one.
    fn arrives(&mut self, end: EndId, payload: Bytes<'_>, last: bool) -> Option<Sealed> {
        let sealed = self.peer_mut(end).and_then(|peer| peer.flight.pop_front());
        // Bytes that lie in shared memory are compared when they are placed.
        let same = |sealed: &Sealed| match payload.own() {
            Some(bytes) => sealed.bytes == bytes,
            None => sealed.bytes.len() == payload.len(),
        };
        match sealed {
            Some(sealed) if same(&sealed) && sealed.last == last => Some(sealed),
            other => {
                let other = other.map(|s| (s.answer, s.message, s.offset, s.bytes.len(), s.last));
                self.fail(format!(
                    "{} bytes (last: {last}) come in; the peer sent {other:?}",
                    payload.len()
                ));
                None
            }
        }
    }

    /// Whether the whole of it may be done: if not, none of its bytes moves (rule 3).
    fn ask(
        &mut self,
        stream: &mut Stream,
        message: usize,
        purpose: Purpose,
        (token, address, length): (u32, u64, u64),
    ) {
        let may = match self.judge(stream, purpose, token, address, length) {
            _ if purpose == Purpose::RemoteRead && !self.serves_reads(stream) => false,
            Verdict::Yes(_) | Verdict::Either(..) => true,
            Verdict::No(_) => false,
        };
        let piece =
            Piece { what: What::Ask(may), message, bytes: Vec::new(), placed: 0, last: false };
        stream.inbox.push_back(piece);
    }

    /// The wire says that the peer has executed what it was asked, without new bytes.
    pub fn vouched(&mut self, through: MessageId) {
        self.with(|watch, _, stream| {
            if stream.ended.is_none() {
                watch.done(stream, through);
            }
        });
    }

    /// The peer says that it has executed what it was asked.
    fn done(&mut self, stream: &Stream, through: MessageId) {
        for message in stream.messages.iter().take(through.0 as usize + 1) {
            let fetches = message.operation.fetches();
            if !fetches && (!message.sent || stream.extension && !message.executed) {
                return self.fail("the peer vouches for a message that it has not executed");
            }
        }
    }

    /// The engine tells the wire that a message of the peer was executed.
    pub fn executed(&mut self) {
        self.with(|watch, end, stream| {
            let ready = stream.inbox.front().is_some_and(|piece| {
                piece.last
                    && piece.placed == piece.bytes.len()
                    && !matches!(piece.what, What::Ask(_))
            });
            if !ready {
                return watch.fail("a message is acknowledged before its last byte is placed");
            }
            stream.waits = None;
            watch.settle(end, stream);
        });
    }

    /// The engine writes application memory. The region whose guard must be held.
    pub fn writes(&mut self, process: usize, to: u64, bytes: &[u8]) -> Option<u32> {
        self.say(|| format!("  writes {} bytes at {to:#x}", bytes.len()));
        self.with(|watch, end, stream| {
            if stream.process != process {
                watch.fail("memory of another process is written");
            }
            if stream.ended.is_some() {
                watch.fail("memory is written on behalf of a connection that is over (rules 2, 5)");
            }
            if bytes.len() > 64 * 1024 {
                watch.fail("one copy of more than 64 KiB (rule 5)");
            }
            watch.pass_by(end, stream);
            let Some((verdict, token)) = watch.expected(stream) else {
                watch.fail(format!("{} bytes are written at {to:#x} for no frame", bytes.len()));
                return None;
            };
            let run = match &verdict {
                Verdict::Yes(runs) | Verdict::Either(runs, _) => runs.first().copied(),
                Verdict::No(_) => None,
            };
            let piece = stream.inbox.front_mut()?;
            let rest = piece.bytes.get(piece.placed..).unwrap_or_default();
            let fits = run.is_some_and(|Run { host, length }| host == to && bytes.len() as u64 <= length);
            if !fits || rest.get(..bytes.len()) != Some(bytes) {
                watch.fail(format!(
                    "{} bytes are written at {to:#x} for {:?}; allowed: {verdict:x?} (rules 2, 3, 11)",
                    bytes.len(),
                    piece.what
                ));
            }
            piece.placed = (piece.placed + bytes.len()).min(piece.bytes.len());
            let count = bytes.len() as u64;
            watch.counters.0.entry("bytes placed").and_modify(|n| *n += count).or_insert(count);
            watch.books.get(process).map(|books| books.region(token))
        })
        .flatten()
    }

    /// The engine changes a word. The region whose guard must be held.
    pub fn changes(&mut self, process: usize, word: u64, operation: Atomic) -> Option<u32> {
        self.say(|| format!("  does {operation:?} at {word:#x}"));
        self.with(|watch, end, stream| {
            if stream.process != process {
                watch.fail("a word of another process is changed");
            }
            if stream.ended.is_some() {
                watch.fail("a word is changed on behalf of a connection that is over (rules 2, 5)");
            }
            watch.pass_by(end, stream);
            let piece = stream.inbox.front().map(|piece| (piece.what, piece.message));
            let Some((What::Change { token, address, change }, message)) = piece else {
                watch.fail(format!("a word is changed at {word:#x} for no atomic"));
                return None;
            };
            if !watch.serves_reads(stream) {
                watch.fail("a queue pair that serves no Reads carries out an atomic (V92)");
            }
            let verdict = watch.judge(stream, Purpose::RemoteAtomic, token, address, 8);
            let runs = match &verdict {
                Verdict::Yes(runs) | Verdict::Either(runs, _) => &runs[..],
                Verdict::No(_) => &[],
            };
            if runs != [Run { host: word, length: 8 }] || change != operation {
                watch.fail(format!(
                    "{operation:?} at {word:#x} for {change:?}; allowed: {verdict:x?} (rules 2, 3)"
                ));
            }
            let done = watch.peer(end).and_then(|p| p.messages.get(message)).and_then(|m| m.old);
            if done.is_some() {
                watch.fail("an atomic is carried out a second time");
            }
            watch.books.get(process).map(|books| books.region(token))
        })
        .flatten()
    }

    /// And this is what the word held.
    pub fn changed(&mut self, old: u64) {
        self.with(|watch, end, stream| {
            let Some(piece) = stream.inbox.front_mut() else { return };
            piece.placed = piece.bytes.len();
            let message = piece.message;
            if let Some(message) = watch.peer_mut(end).and_then(|p| p.messages.get_mut(message)) {
                message.old = Some(old);
            }
        });
    }

    /// The engine hands the answer to an atomic to the wire.
    pub fn answered(&mut self, old: u64) {
        self.with(|watch, end, stream| {
            let done = stream.inbox.front().filter(|piece| piece.placed == piece.bytes.len());
            let message = done.map(|piece| piece.message);
            let held = message.and_then(|m| watch.peer(end)?.messages.get(m)?.old);
            if held != Some(old) {
                watch.fail(format!("an atomic is answered with {old:#x}; its word held {held:x?}"));
            }
        });
    }

    /// Where the next byte of the oldest piece belongs, and whether it may be put there now.
    fn expected(&self, stream: &Stream) -> Option<(Verdict, u32)> {
        let piece = stream.inbox.front()?;
        let (done, rest) = (piece.placed as u64, (piece.bytes.len() - piece.placed) as u64);
        let (list, offset, purpose) = match piece.what {
            What::Ask(_) | What::Change { .. } => return None,
            What::Write { token, address, .. } => {
                let at = address.wrapping_add(done);
                return Some((self.judge(stream, Purpose::RemoteWrite, token, at, rest), token));
            }
            What::Send { offset, .. } => {
                let receives = &self.pairs.get(&stream.pair?)?.receives;
                let receive = receives.iter().find(|r| r.done.is_none() && r.bad.is_none())?;
                (&receive.list, offset, Purpose::ReceiveBuffer)
            }
            What::Answer { offset } => {
                let pair = self.pairs.get(&stream.pair?)?;
                let request = stream.messages.get(piece.message)?.request;
                if request < pair.first {
                    return None;
                }
                (&pair.requests.get(request)?.list, offset, stream.sink)
            }
        };
        let (token, address, length) = *parts(list, offset + done, rest).first()?;
        Some((self.judge(stream, purpose, token, address, length), token))
    }

    /// Leave behind what has nothing more to be placed, while the engine goes on in the same call.
    fn pass_by(&mut self, end: EndId, stream: &mut Stream) {
        while stream.inbox.front().is_some_and(|piece| match piece.what {
            What::Ask(may) => may,
            _ => piece.placed == piece.bytes.len(),
        }) && stream.inbox.len() > 1
        {
            if !self.finish(end, stream) {
                break;
            }
        }
    }

    /// Everything that has come must have been placed, delivered or refused by now; but for a Send
    /// that waits for a receive.
    pub(super) fn settle(&mut self, end: EndId, stream: &mut Stream) {
        if stream.ended.is_some() {
            stream.inbox.clear();
        }
        while let Some(piece) = stream.inbox.front() {
            let left = piece.bytes.len() - piece.placed;
            let what = piece.what;
            if what == What::Ask(false) {
                return self.fail("what must be refused as a whole is not refused (rule 3)");
            }
            if piece.brings_immediate() && !stream.immediate {
                return self.fail("immediate data comes to a program that knows none (V87)");
            }
            let receives =
                matches!(what, What::Send { .. } | What::Write { immediate: Some(_), .. });
            if receives && stream.waits.is_some() && !self.transmitting {
                // The Send goes on with the next call that looks for a receive.
                return;
            }
            if let What::Send { offset, .. } = what {
                let size = offset + piece.bytes.len() as u64;
                match self.current_receive(stream) {
                    None => {
                        let pool =
                            stream.pair.and_then(|key| self.pairs.get(&key)).and_then(|p| p.shared);
                        let waiting = pool.and_then(|pool| self.pools.get(&(stream.process, pool)));
                        if waiting.is_some_and(|pool| !pool.is_empty()) && !self.transmitting {
                            self.fail("a Send waits although its shared queue has a receive");
                        }
                        if stream.extension && !self.has_targets(stream) {
                            // The sender knows how many receives there are.
                            self.fail("a Send comes for which no receive was granted");
                        }
                        if stream.waits.is_none() {
                            stream.waits = Some(self.now);
                            self.counters.hit("waited for a receive");
                        }
                        return;
                    }
                    Some(receive) if size > receive.length => {
                        return self.fail("a Send is longer than its receive, and is not refused");
                    }
                    Some(_) => {}
                }
            }
            if let What::Write { immediate: Some(_), .. } = what
                && self.current_receive(stream).is_none()
            {
                if self.has_targets(stream) && left == 0 {
                    stream.waits.get_or_insert(self.now);
                    return;
                }
                // The sender knows how many receives there are.
                return self.fail("a Write with immediate data comes, and no receive was granted");
            }
            if left > 0 {
                return self
                    .fail(format!("{left} bytes of {what:?} are neither placed nor refused"));
            }
            if !self.finish(end, stream) {
                return;
            }
        }
    }

    /// Deal with what is complete, before the rest is dropped with its connection.
    pub(super) fn finish_placed(&mut self, end: EndId, stream: &mut Stream) {
        while let Some(piece) = stream.inbox.front() {
            let ready = match piece.what {
                What::Ask(may) => may,
                // Even if no byte of it is missing: the engine has not said that it was executed.
                What::Send { .. } | What::Write { .. } if piece.last => false,
                _ => piece.placed == piece.bytes.len(),
            };
            if !ready || !self.finish(end, stream) {
                break;
            }
        }
    }

    fn current_receive(&self, stream: &Stream) -> Option<&Receive> {
        let receives = &self.pairs.get(&stream.pair?)?.receives;
        receives.iter().find(|r| r.done.is_none() && r.bad.is_none())
    }

    /// The oldest piece is dealt with.
    fn finish(&mut self, end: EndId, stream: &mut Stream) -> bool {
        let Some(piece) = stream.inbox.pop_front() else { return false };
        stream.waits = None;
        match piece.what {
            What::Ask(_) | What::Change { .. } => {}
            What::Write { immediate, .. } => {
                let message = self.peer(end).and_then(|peer| peer.messages.get(piece.message));
                let message = message.map(|message| (message.length, message.solicited));
                if let Some((immediate, (length, solicited))) = immediate.zip(message) {
                    let done = Delivered {
                        kind: CompletionKind::ReceiveWrite,
                        length,
                        solicited,
                        invalidated: None,
                        immediate: Some(immediate),
                    };
                    self.receive_done(stream, done);
                }
                self.peer_executed(end, &piece);
            }
            What::Send { offset, solicited, invalidate, immediate } => {
                if !piece.last {
                    return true;
                }
                if let Some(token) = invalidate {
                    let Some(books) = self.books.get_mut(stream.process) else { return true };
                    match may_close(books, &stream.actor, token) {
                        Ok(true) => {
                            let by = stream.actor.queue_pair;
                            books.execute(token, &[Life::Live], Life::Dead, by);
                            books.certain();
                            self.counters.hit("send closes a window");
                        }
                        Ok(false) if stream.ignores => {}
                        Ok(false) => self.fail(format!(
                            "a peer closes {token:#x} again, which its dialect forbids"
                        )),
                        Err(rule) => {
                            self.fail(format!(
                                "a peer closes {token:#x} although {rule:?} forbids it"
                            ));
                        }
                    }
                }
                let length = offset + piece.bytes.len() as u64;
                let (kind, invalidated) = (CompletionKind::Receive, invalidate);
                let done = Delivered { kind, length, solicited, invalidated, immediate };
                self.receive_done(stream, done);
                self.peer_executed(end, &piece);
            }
            What::Answer { .. } => {
                if let Some(message) = stream.messages.get_mut(piece.message) {
                    message.answered += piece.bytes.len() as u64;
                    message.executed |= piece.last && message.answered == message.length;
                }
            }
        }
        true
    }

    /// A message has consumed the oldest receive.
    fn receive_done(&mut self, stream: &Stream, done: Delivered) {
        let pair = stream.pair.and_then(|key| self.pairs.get_mut(&key));
        let receive = pair.and_then(|pair| {
            pair.receives.iter_mut().find(|r| r.done.is_none() && r.bad.is_none())
        });
        if let Some(receive) = receive {
            receive.done = Some(done);
        }
    }

    fn peer_executed(&mut self, end: EndId, piece: &Piece) {
        if piece.last
            && let Some(message) =
                self.peer_mut(end).and_then(|p| p.messages.get_mut(piece.message))
        {
            message.executed = true;
        }
    }
}

/// Whether a peer may close a token (NDK INV-9). `Ok(false)`: it is closed already, by name.
pub(super) fn may_close(books: &Books, actor: &Actor, token: u32) -> Result<bool, Rule> {
    let Some(object) = books.objects.get(&token) else { return Err(Rule::LiveToken) };
    let whose = match object.scope {
        Scope::Domain(domain) => domain == actor.domain,
        Scope::QueuePair(domain, pair) => domain == actor.domain && pair == actor.queue_pair,
        Scope::Connection(domain, connection) => {
            domain == actor.domain && Some(connection) == actor.connection
        }
    };
    let closable = object.window_of.is_some() || object.standing;
    match object.life {
        _ if !whose => Err(Rule::Scope),
        // Memory that windows are bound to does not go; no rule of a check says so.
        Life::Live if object.standing && books.windows(token) > 0 => Err(Rule::LiveToken),
        Life::Live if closable => Ok(true),
        Life::Dead if closable && object.named => Ok(false),
        _ => Err(Rule::LiveToken),
    }
}

impl Piece {
    /// The message has immediate data, which comes with its last piece.
    pub(super) fn brings_immediate(&self) -> bool {
        match self.what {
            What::Write { immediate, .. } | What::Send { immediate, .. } => immediate.is_some(),
            _ => false,
        }
    }

    fn of(sealed: Sealed, what: What) -> Piece {
        let Sealed { message, bytes, last, .. } = sealed;
        Piece { what, message, bytes, placed: 0, last }
    }
}
