//! Frames on their way out: what they carry was posted, or asked for, and may be read at this moment.

use std::collections::VecDeque;

use transom_core::{Flags, Operation, QueuePairKind, Status};
use transom_memory::{Purpose, Rule, Scope};
use transom_wire::{Frame, Message as Wire, MessageId, Payload};

use super::{EndId, Message, Pair, Stream, Watch, immediate_of, written_to};
use crate::model::{Life, Run, Verdict};

/// A frame whose payload is being supplied.
#[derive(Debug)]
pub struct Filling {
    of: Payload,
    length: usize,
    last: bool,
    /// Ranges that may be read for it, in order, and the region of each.
    runs: VecDeque<(Run, u32)>,
    /// Bytes that were read.
    bytes: Vec<u8>,
    /// The payload is read before its message begins: a whole Write.
    ahead: bool,
}

/// A frame that has left, as far as it carries a payload or asks for one.
#[derive(Debug)]
pub struct Sealed {
    /// A message of the sender's, or the answer to a Read of the receiver's with that number.
    pub answer: bool,
    /// Number of the message.
    pub message: usize,
    /// Offset in it.
    pub offset: u64,
    /// The payload.
    pub bytes: Vec<u8>,
    /// The last of it.
    pub last: bool,
}

impl Watch {
    /// Requests without a message execute in order, once everything before them has left (rule 6).
    pub(super) fn start_local(&mut self, stream: &Stream) {
        if !self.transmitting || !stream.open || stream.refused || stream.ended.is_some() {
            return;
        }
        let Some(key) = stream.pair else { return };
        let (Some(pair), Some(books)) =
            (self.pairs.get_mut(&key), self.books.get_mut(stream.process))
        else {
            return;
        };
        while !pair.failed && stream.messages.last().is_none_or(|m| m.sent) {
            let Some(request) = pair.requests.get_mut(pair.next) else { break };
            if request.flags.contains(Flags::READ_FENCE) && reads(stream) > 0 {
                break;
            }
            let by = stream.actor.queue_pair;
            let worked = match request.operation {
                Operation::Bind { window } => {
                    books.execute(window.0, &[Life::Reserved], Life::Live, by)
                }
                Operation::Invalidate { window } => {
                    books.execute(window.0, &[Life::Reserved, Life::Live], Life::Dead, by)
                        || stream.ignores
                }
                Operation::FastRegister { region, base, rights } => {
                    let scope = Scope::Domain(pair.domain);
                    let runs: Vec<Run> = request
                        .memory
                        .iter()
                        .map(|s| Run { host: s.host, length: s.length })
                        .collect();
                    books.supply(region.0, scope, rights, base, runs)
                }
                Operation::BindStanding { .. }
                | Operation::Unsupported { .. }
                | Operation::Send
                | Operation::SendWithInvalidate { .. }
                | Operation::SendWithImmediate { .. }
                | Operation::Write { .. }
                | Operation::WriteWithImmediate { .. }
                | Operation::Read { .. }
                | Operation::Atomic { .. }
                | Operation::Receive => break,
            };
            if worked {
                request.executed = true;
            } else {
                request.bad = Some(Status::InvalidRequest);
                pair.failed = true;
            }
            pair.next += 1;
        }
    }

    /// The wire has agreed to start a message.
    pub fn begun(&mut self, id: MessageId, wire: &Wire) {
        self.with(|watch, end, stream| {
            // Bytes read for it ahead are read again.
            watch.frame_done(stream);
            watch.start_local(stream);
            let Some(mut pair) = stream.pair.and_then(|key| watch.pairs.remove(&key)) else {
                return watch.fail("a message without a queue pair");
            };
            watch.begin(end, stream, &mut pair, (id, wire));
            if let Some(key) = stream.pair {
                watch.pairs.insert(key, pair);
            }
        });
    }

    fn begin(
        &mut self,
        end: EndId,
        stream: &mut Stream,
        pair: &mut Pair,
        (id, wire): (MessageId, &Wire),
    ) {
        if id.0 != stream.messages.len() as u64 {
            self.fail(format!("message {} begins after {}", id.0, stream.messages.len()));
        }
        if stream.refused {
            self.fail("a message begins although the connection is to end (rule 4)");
        }
        if pair.failed || stream.ended.is_some() || stream.messages.last().is_some_and(|m| !m.sent)
        {
            self.fail("a message begins behind one that failed or is under way");
        }
        let Some(request) = pair.requests.get_mut(pair.next) else {
            return self.fail("a message begins that nobody posted");
        };
        let flags = request.flags;
        let (length, solicited) = (request.length, flags.contains(Flags::SOLICIT));
        let right = match (*wire, request.operation) {
            (Wire::Send { length: l, solicited: s, invalidate, immediate }, operation) => {
                let wanted = match operation {
                    Operation::Send | Operation::SendWithImmediate { .. } => None,
                    Operation::SendWithInvalidate { token } => Some(token),
                    _ => return self.fail("a Send in place of another request"),
                };
                (u64::from(l), s, invalidate) == (length, solicited, wanted)
                    && immediate == immediate_of(operation)
            }
            (Wire::Write { token, address, length: l, immediate, .. }, operation) => {
                written_to(operation) == Some((token, address))
                    && u64::from(l) == length
                    && immediate.map(|i| i.value) == immediate_of(operation)
                    && immediate.is_none_or(|i| i.solicited == solicited)
            }
            (
                Wire::Read { token: t, address: a, length: l, .. },
                Operation::Read { token, address },
            ) => (t, a, u64::from(l)) == (token, address, length),
            (
                Wire::Atomic { token: t, address: a, operation },
                Operation::Atomic { token, address, change },
            ) => (t, a, operation, 8) == (token, address, change, length),
            (Wire::Read { .. } | Wire::Atomic { .. }, _) => false,
        };
        let operation = request.operation;
        let list = if request.inline.is_some() { Vec::new() } else { request.list.clone() };
        request.message = Some((end, stream.messages.len()));
        let target = request.target;
        if pair.kind == QueuePairKind::XrcSend && stream.aimed != Some(target) {
            self.fail(format!("a message for {target:#x} begins; named was {:x?}", stream.aimed));
        }
        let request = pair.next;
        pair.next += 1;
        if !right {
            self.fail(format!("{wire:?} begins, but {operation:?} of {length} bytes was posted"));
        }
        if flags.contains(Flags::READ_FENCE) {
            if reads(stream) > 0 {
                self.fail("a fenced request starts before the Reads in front of it are over");
            }
            if stream.messages.iter().any(|m| m.operation.fetches()) {
                self.counters.hit("fenced behind a read");
            }
        }
        let fetches = operation.fetches();
        let purpose = if fetches { stream.sink } else { Purpose::LocalSource };
        for sge in &list {
            let verdict =
                self.judge(stream, purpose, sge.token, sge.address, u64::from(sge.length));
            if let Verdict::No(rule) = verdict {
                self.fail(format!(
                    "{operation:?} starts although its list breaks {rule:?} (rule 3)"
                ));
            }
        }
        if fetches && reads(stream) >= stream.reads {
            self.fail("more Reads under way than agreed");
        }
        self.say(|| format!("  begun {operation:?} of {length} bytes as message {}", id.0));
        stream.messages.push(Message {
            request,
            target,
            operation,
            length,
            solicited,
            framed: 0,
            sent: false,
            executed: false,
            answered: 0,
            old: None,
            refused: None,
        });
    }

    /// A message of one frame is read before it begins, and leaves with its one frame as soon as it has begun.
    pub fn begun_whole(&mut self, id: MessageId, wire: &Wire) {
        self.with(|watch, end, stream| {
            if stream.frame.is_none() {
                // Inline bytes are in the request already, or there are none: no memory is read for them.
                watch.start_local(stream);
                stream.frame = watch.ahead(stream).filter(|filling| filling.runs.is_empty());
            }
            let Some(mut filling) = stream.frame.take().filter(|filling| filling.ahead) else {
                return watch.fail("a message leaves at once, and nothing was read for it");
            };
            let Some(mut pair) = stream.pair.and_then(|key| watch.pairs.remove(&key)) else {
                return watch.fail("a message without a queue pair");
            };
            watch.begin(end, stream, &mut pair, (id, wire));
            if let Some(key) = stream.pair {
                watch.pairs.insert(key, pair);
            }
            filling.ahead = false;
            stream.frame = Some(filling);
            watch.frame_done(stream);
            watch.counters.hit("whole message sent at once");
        });
    }

    /// A record is complete, and carries this payload.
    pub fn carried(&mut self, payload: &[u8]) {
        self.with(|watch, _, stream| {
            // Of a message that began with its one frame, or of the frame that was asked for last.
            let read = match &stream.frame {
                Some(filling) => Some(&filling.bytes),
                None => stream.flight.back().map(|sealed| &sealed.bytes),
            };
            if read.is_none_or(|bytes| bytes != payload) {
                watch.fail("a frame carries other bytes than were read for it (rule 3)");
            }
        });
    }

    /// The ranges that may be read for the next request, if it brings bytes or asks for some.
    fn ahead(&self, stream: &Stream) -> Option<Filling> {
        let pair = self.pairs.get(&stream.pair?)?;
        let request = pair.requests.get(pair.next)?;
        let under_way = stream.messages.last().is_some_and(|m| !m.sent);
        let begins = request.operation.on_wire().is_some();
        if pair.failed || under_way || !begins {
            return None;
        }
        let fetches = request.operation.fetches();
        let bytes = request.inline.clone().unwrap_or_default();
        let list = if request.inline.is_some() || fetches { &[][..] } else { &request.list };
        let mut runs = VecDeque::new();
        for (token, address, length) in parts(list, 0, request.length) {
            match self.judge(stream, Purpose::LocalSource, token, address, length) {
                Verdict::Yes(these) | Verdict::Either(these, _) => {
                    runs.extend(these.into_iter().map(|run| (run, token)));
                }
                Verdict::No(_) => return None,
            }
        }
        Some(Filling {
            of: Payload::Message { id: MessageId(stream.messages.len() as u64), offset: 0 },
            length: if fetches { 0 } else { request.length as usize },
            last: true,
            runs,
            bytes,
            ahead: true,
        })
    }

    /// Ask the model for an actor.
    pub(super) fn judge(
        &self,
        stream: &Stream,
        purpose: Purpose,
        token: u32,
        address: u64,
        length: u64,
    ) -> Verdict {
        if !self.admits(stream, purpose, length) {
            return Verdict::No(Rule::Right);
        }
        let established = stream.open && stream.ended.is_none();
        match self.books.get(stream.process) {
            Some(books) => books.judge(&stream.actor, established, purpose, token, address, length),
            None => Verdict::Yes(Vec::new()),
        }
    }

    /// The wire wants a frame filled.
    pub fn next_frame(&mut self, frame: &Frame) {
        self.with(|watch, _, stream| {
            watch.frame_done(stream);
            if stream.ended.is_some() {
                // Asked for and not sent: the engine throws it away.
                return;
            }
            let filling = match frame.payload {
                Payload::None => return,
                Payload::Message { id, offset } => {
                    watch.own_frame(stream, frame, id, u64::from(offset))
                }
                Payload::Memory { slot, token, address } => {
                    // Where messages name a queue, that of another one may have come since.
                    let domain = stream.actor.domain;
                    stream.actor.domain = stream.serving.front().map_or(domain, |s| s.domain);
                    let filling = watch.answer_frame(stream, frame, (slot.0, token, address));
                    stream.actor.domain = domain;
                    filling
                }
            };
            stream.frame = filling;
        });
    }

    fn own_frame(
        &mut self,
        stream: &Stream,
        frame: &Frame,
        id: MessageId,
        offset: u64,
    ) -> Option<Filling> {
        let Some(message) =
            stream.messages.last().filter(|_| id.0 + 1 == stream.messages.len() as u64)
        else {
            self.fail("a frame of a message that is not under way");
            return None;
        };
        let (length, fetches) = (u64::from(frame.length), message.operation.fetches());
        let whole = if fetches { 0 } else { message.length };
        if message.sent || offset != message.framed || frame.last != (offset + length == whole) {
            self.fail(format!("a frame of bytes {offset}+{length} of a message of {whole}"));
        }
        let key = stream.pair?;
        let request = self.pairs.get(&key)?.requests.get(message.request)?.clone();
        if self.pairs.get(&key).is_some_and(|pair| pair.first > message.request) {
            self.fail("a frame of a request that has completed");
        }
        let mut filling = Filling::of(frame);
        match request.inline {
            Some(bytes) => {
                let part = bytes.get(offset as usize..(offset + length) as usize);
                filling.bytes.extend_from_slice(part.unwrap_or_default());
            }
            None if !fetches => {
                for (token, address, length) in parts(&request.list, offset, length) {
                    match self.judge(stream, Purpose::LocalSource, token, address, length) {
                        Verdict::Yes(runs) | Verdict::Either(runs, _) => {
                            filling.runs.extend(runs.into_iter().map(|run| (run, token)));
                        }
                        Verdict::No(_) => break,
                    }
                }
            }
            None => {}
        }
        Some(filling)
    }

    fn answer_frame(
        &mut self,
        stream: &Stream,
        frame: &Frame,
        (slot, token, address): (u32, u32, u64),
    ) -> Option<Filling> {
        let length = u64::from(frame.length);
        let Some(serving) = stream.serving.front() else {
            self.fail("an answer to no Read");
            return None;
        };
        let right = serving.slot == slot
            && serving.token == token
            && serving.address.wrapping_add(serving.sent) == address
            && serving.sent + length <= serving.length
            && frame.last == (serving.sent + length == serving.length);
        if !right {
            self.fail(format!("an answer of {length} bytes at {address:#x} to {serving:?}"));
        }
        let mut filling = Filling::of(frame);
        let region = self.books.get(stream.process).map_or(0, |books| books.region(token));
        match self.judge(stream, Purpose::RemoteRead, token, address, length) {
            Verdict::Yes(runs) | Verdict::Either(runs, _) => {
                filling.runs.extend(runs.into_iter().map(|run| (run, region)));
            }
            Verdict::No(_) => {}
        }
        Some(filling)
    }

    /// The engine reads application memory. The region whose guard must be held.
    pub fn reads(&mut self, process: usize, from: u64, length: u64) -> Option<u32> {
        self.with(|watch, _, stream| {
            if stream.process != process {
                watch.fail("memory of another process is read");
            }
            if stream.frame.is_none() {
                watch.start_local(stream);
                stream.frame = watch.ahead(stream);
            }
            let Some(filling) = &mut stream.frame else {
                watch.fail(format!("{length} bytes at {from:#x} are read for no frame"));
                return None;
            };
            if stream.ended.is_some() {
                watch.fail("memory is read on behalf of a connection that is over (rule 5)");
            }
            if length > 64 * 1024 {
                watch.fail("one copy of more than 64 KiB (rule 5)");
            }
            match filling.runs.pop_front() {
                Some((run, region)) if run.host == from && length <= run.length => {
                    if length < run.length {
                        let rest = Run { host: from + length, length: run.length - length };
                        filling.runs.push_front((rest, region));
                    }
                    Some(region)
                }
                other => {
                    watch.fail(format!(
                        "{length} bytes at {from:#x} are read; allowed: {other:x?} (rules 2, 3, 5)"
                    ));
                    None
                }
            }
        })
        .flatten()
    }

    /// And this is what it got.
    pub fn on_bytes_read(&mut self, bytes: &[u8]) {
        self.with(|_, _, stream| {
            if let Some(filling) = &mut stream.frame {
                filling.bytes.extend_from_slice(bytes);
            }
        });
    }

    /// The engine has put a frame's payload behind its header.
    pub fn sealed(&mut self, frame: &Frame, payload: &[u8]) {
        self.with(|watch, _, stream| {
            if stream.ended.is_some() && frame.payload != Payload::None {
                watch.fail("a frame with a payload leaves a connection that is over");
            }
            if let Some(filling) = &stream.frame
                && filling.bytes != payload
            {
                watch.fail("a frame carries other bytes than were read for it (rule 3)");
            }
        });
    }

    /// The frame will not be sent.
    pub fn abandoned(&mut self) {
        self.with(|_, _, stream| stream.frame = None);
    }

    /// A frame is out, or was given up.
    pub fn frame_out(&mut self) {
        self.with(|watch, _, stream| watch.frame_done(stream));
    }

    /// The frame before is complete.
    pub(super) fn frame_done(&mut self, stream: &mut Stream) {
        let Some(filling) = stream.frame.take() else { return };
        if stream.ended.is_some() || filling.ahead {
            return;
        }
        if filling.bytes.len() != filling.length {
            return self.fail("a frame without its payload");
        }
        let mut entry = Sealed {
            answer: false,
            message: 0,
            offset: 0,
            last: filling.last,
            bytes: filling.bytes,
        };
        let count = entry.bytes.len() as u64;
        self.counters.0.entry("bytes sent").and_modify(|n| *n += count).or_insert(count);
        match filling.of {
            Payload::Message { id, .. } => {
                let Some(message) = stream.messages.get_mut(id.0 as usize) else { return };
                (entry.message, entry.offset) = (id.0 as usize, message.framed);
                message.framed += count;
                message.sent = entry.last;
                if message.framed > count {
                    self.counters.hit("message of several frames");
                }
                let empty_read =
                    matches!(message.operation, Operation::Read { .. }) && message.length == 0;
                if !empty_read {
                    stream.flight.push_back(entry);
                }
                self.start_local(stream);
            }
            _ => {
                let Some(serving) = stream.serving.front_mut() else { return };
                (entry.answer, entry.message, entry.offset) = (true, serving.message, serving.sent);
                serving.sent += count;
                if entry.last {
                    stream.serving.pop_front();
                }
                stream.flight.push_back(entry);
            }
        }
    }

    /// Half a frame has left, and the rest of it is gone: nothing more can be said on this link.
    pub fn torn(&mut self) {
        self.counters.hit("torn frame");
        let Some((link, _)) = self.current else { return };
        for side in [0, 1] {
            if let Some(stream) = self.ends.get_mut(&(link, side)) {
                stream.hurt = true;
            }
        }
    }
}

impl Filling {
    fn of(frame: &Frame) -> Filling {
        Filling {
            of: frame.payload,
            length: frame.length as usize,
            last: frame.last,
            runs: VecDeque::new(),
            bytes: Vec::new(),
            ahead: false,
        }
    }
}

/// Reads and atomics under way.
fn reads(stream: &Stream) -> u32 {
    let under_way = |m: &&Message| m.operation.fetches() && !m.executed;
    stream.messages.iter().filter(under_way).count() as u32
}

/// The parts of a list that hold `length` bytes from `offset` on: token, address, length.
pub(super) fn parts(
    list: &[transom_core::Sge],
    mut offset: u64,
    mut length: u64,
) -> Vec<(u32, u64, u64)> {
    let mut out = Vec::new();
    for sge in list {
        let size = u64::from(sge.length);
        if offset >= size {
            offset -= size;
            continue;
        }
        let take = (size - offset).min(length);
        if take > 0 {
            out.push((sge.token, sge.address.wrapping_add(offset), take));
        }
        length -= take;
        offset = 0;
    }
    out
}
