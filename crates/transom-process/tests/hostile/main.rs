//! A peer that writes what it likes into the rings: each arm of the decoder, each limit at n and
//! n + 1. After each refusal the state behind it is tested, too: nothing is delivered, nothing is
//! acknowledged, and the connection has ended for exactly that reason.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod acknowledgements;
mod atomics;
mod carrier;
mod duplex;
mod immediate;
mod lent;
mod messages;
mod order;
mod reads;
mod receives;
mod records;
mod refusals;
mod ring;
mod start_up;
mod targets;
mod upgrade;

use std::time::Duration;

use common::Plain;
use transom_process::duplex::Next;
use transom_process::record::{
    self, HEADER, Header, LARGEST_PAYLOAD, LARGEST_TEXT, LAST, RecordKind,
};
use transom_process::ring::{
    Body, Consumer, DATA, Found, INLINE, Producer, Record, RingViolation, SLOTS, SMALL,
    Side as Words, Taken,
};
use transom_process::{Area, Channel, Duplex};
use transom_wire::{
    Atomic, Begin, Blame, Bytes, Config, Event, Immediate, Message, MessageId, Operation,
    PeerError, ReadLimits, Receiving, Refusal, RefusalClass, Release, Role, Sending, StartUp, Time,
    Violation, Waiting,
};

/// The value of every word of the side under test.
const OLD: u64 = 0x0102_0304_0506_0708;

const LIMITS: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };

/// An event, with its payload copied from where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Got {
    Request {
        limits: ReadLimits,
        private: Vec<u8>,
    },
    Accepted {
        limits: ReadLimits,
        private: Vec<u8>,
    },
    Rejected {
        private: Vec<u8>,
    },
    Established,
    Announced {
        token: u32,
        address: u64,
        length: u64,
    },
    Write {
        token: u32,
        address: u64,
        data: Vec<u8>,
        last: bool,
    },
    Send {
        offset: u32,
        data: Vec<u8>,
        last: bool,
        solicited: bool,
        invalidate: Option<u32>,
    },
    Asked {
        slot: u32,
        token: u32,
        address: u64,
        length: u32,
    },
    Answer {
        id: u64,
        offset: u32,
        data: Vec<u8>,
        last: bool,
    },
    Atomic {
        token: u32,
        address: u64,
        operation: Atomic,
    },
    Old {
        id: u64,
        value: u64,
    },
    /// Behind the message that brought it: the bytes, and whether it is solicited.
    Immediate(u32, bool),
    Done(u64),
    Failed {
        id: Option<u64>,
        error: PeerError,
    },
    Resume,
    CreditWanted,
    Target(u32),
}

/// How a test comes to a side.
type Make = fn() -> Side;

/// Which event to refuse, why, and what the peer may know.
type Refuse = (fn(&Event<'_>) -> bool, RefusalClass, &'static str);

/// The side under test, driven as a link drives it, and the raw peer at the other end of its rings.
struct Side {
    wire: Channel,
    duplex: Duplex<Plain>,
    memory: Plain,
    now: Time,
    got: Vec<Got>,
    violation: Option<Violation>,
    lie: Option<RingViolation>,
    refuse: Option<Refuse>,
    /// Messages are delivered, and not executed.
    busy: bool,
    out: Vec<u8>,
    written: usize,
    next_id: u64,
    /// The peer's ends of the rings, and how many records it has written to them.
    writer: Producer,
    reader: Consumer,
    published: u32,
    /// How many of its records ours say were executed.
    told: u32,
    /// Records that the side has been given, through the ring or not.
    records: u32,
}

/// The payload of the peer's records, and of ours.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + (at >> 8) + 1) as u8).collect()
}

impl Side {
    fn new(config: Config) -> Side {
        let memory = Plain::new();
        let mine = usize::from(config.role == Role::Passive);
        let now = Time(1_000_000);
        Side {
            wire: Channel::new(config, now),
            duplex: Duplex::new(memory.clone(), mine),
            memory,
            now,
            got: Vec::new(),
            violation: None,
            lie: None,
            refuse: None,
            busy: false,
            out: Vec::new(),
            written: 0,
            next_id: 0,
            writer: Producer::new(SLOTS, DATA),
            reader: Consumer::new(SLOTS, DATA),
            published: 0,
            told: 0,
            records: 0,
        }
    }

    fn ours(&self) -> &Words {
        &self.memory.shared().sides[self.duplex.mine()]
    }

    fn theirs(&self) -> &Words {
        &self.memory.shared().sides[1 - self.duplex.mine()]
    }

    // ---- the peer -------------------------------------------------------------------------------

    /// The peer writes four words into the next slot, and a pattern for a payload.
    fn raw(&mut self, words: record::Words) {
        self.raw_with(words, 0);
    }

    /// As [`Side::raw`], with a word behind the header if it has one.
    fn raw_with(&mut self, words: record::Words, word: u64) {
        let header = Header::from_words(words);
        let (front, length) = header.map_or((HEADER, 0), |h| (h.front(), h.payload()));
        let placed = front + length > SMALL && length <= 2 * LARGEST_PAYLOAD;
        let body = if placed {
            let offset = self.writer.place(length).unwrap();
            self.memory.fill_bytes(1 - self.duplex.mine(), offset, &pattern(length));
            Body::Placed(length, word)
        } else {
            let behind = [&word.to_ne_bytes()[..front - HEADER], &pattern(INLINE)].concat();
            Body::Inline(record::words_of(behind[..INLINE].try_into().unwrap()))
        };
        let slots = self.memory.shared().sides[1 - self.duplex.mine()].slots();
        assert!(self.writer.publish(slots, words, body));
        self.published += 1;
        self.records += 1;
    }

    /// A record of the peer; the side looks at it. Its places can be used again.
    fn record(&mut self, header: Header) {
        self.raw(header.words());
        self.look();
        self.writer.consumed(self.published).unwrap();
    }

    /// A record of the peer with a word behind its header.
    fn record_with(&mut self, header: Header, word: u64) {
        self.raw_with(header.words(), word);
        self.look();
        self.writer.consumed(self.published).unwrap();
    }

    /// The peer acknowledges beside its records.
    fn beside(&mut self, word: u64) {
        self.theirs().acknowledge(word);
        self.look();
    }

    /// The records written since the last call, as the peer reads them, without acknowledgements.
    fn said(&mut self) -> Vec<(Header, Vec<u8>)> {
        self.said_with_words().into_iter().map(|(h, text)| (Header { ack: 0, ..h }, text)).collect()
    }

    fn said_with_words(&mut self) -> Vec<(Header, Vec<u8>)> {
        self.transmit();
        let mine = self.duplex.mine();
        let mut all = Vec::new();
        while let Some(record) = self.reader.take(self.memory.shared().sides[mine].slots()) {
            let Record { header, body } = record.unwrap();
            // The word behind a header is the first of the bytes.
            let (before, length) = (header.front() - HEADER, header.payload());
            let mut bytes = vec![0; before + length];
            match body {
                Found::Inline(words) => {
                    bytes.copy_from_slice(&record::to_bytes(words)[..before + length]);
                }
                Found::At(offset, word) => {
                    let (head, payload) = bytes.split_at_mut(before);
                    head.copy_from_slice(&word.to_ne_bytes()[..before]);
                    self.memory.read_bytes(mine, offset, payload);
                }
                Found::Lent(_) | Found::Sink(_) | Found::Placed => panic!("no region was lent"),
            }
            self.told = self.told.max(header.ack as u32);
            all.push((header, bytes));
        }
        all
    }

    // ---- the side under test --------------------------------------------------------------------

    /// Take records as a link does: as they lie, or by themselves; then the word beside them.
    fn look(&mut self) {
        let mut staging = vec![0; HEADER + LARGEST_PAYLOAD];
        while self.violation.is_none() && self.lie.is_none() {
            let mut small = [0; SMALL];
            let next = match self.duplex.read_small(&mut small, &mut 0) {
                Err(lie) => Some(Err(lie)),
                Ok(Next::Record) => {
                    self.hear(&small);
                    continue;
                }
                Ok(Next::Left | Next::None) => self.duplex.read(),
            };
            let (header, body) = match next {
                Some(Ok(record)) => (record.header, record.body),
                Some(Err(lie)) => return self.lie = Some(lie),
                None => match self.duplex.news_beside() {
                    Ok(Some(header)) => (header, Found::Inline([0; INLINE / 8])),
                    Ok(None) => return,
                    Err(lie) => return self.lie = Some(lie),
                },
            };
            let used = self.duplex.copy(&header, body, &mut staging);
            assert_eq!(self.hear(&staging[..used]), used, "a record is taken as a whole");
        }
    }

    /// Decode bytes; how many were taken.
    fn hear(&mut self, bytes: &[u8]) -> usize {
        let decoded = match self.wire.decode(self.now, bytes) {
            Ok(decoded) => decoded,
            Err(violation) => {
                assert_eq!(self.violation.replace(violation), None);
                return bytes.len();
            }
        };
        let consumed = decoded.consumed;
        // The acknowledgements of our own messages come first.
        if let Some(through) = decoded.done {
            self.take(Event::Done { through });
        }
        assert_eq!(decoded.news, self.poll(), "news are announced");
        if let Some(event) = decoded.event {
            self.take(event);
        }
        consumed
    }

    /// Decode a record as it comes without a ring, its payload behind it.
    fn hear_record(&mut self, header: Header) {
        let bytes = with_payload(header);
        self.records += u32::from(header.kind != RecordKind::Ack);
        assert_eq!(self.hear(&bytes), bytes.len());
    }

    fn poll(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.wire.poll_event() {
            self.take(event);
            any = true;
        }
        any
    }

    fn take(&mut self, event: Event<'_>) {
        if let Some((which, class, explanation)) = self.refuse
            && which(&event)
        {
            let operation = match event {
                Event::Send { .. } => Operation::Send,
                Event::ReadRequest { .. } => Operation::Read,
                Event::Atomic { .. } => Operation::Atomic,
                _ => Operation::Write,
            };
            let explanation = Some(explanation).filter(|text| !text.is_empty());
            return self.wire.refuse(self.now, Some(&Refusal { operation, class, explanation }));
        }
        let ends =
            matches!(event, Event::Write { last: true, .. } | Event::Send { last: true, .. });
        let data = |payload: Bytes<'_>| match payload {
            Bytes::Placed { .. } => panic!("no sink was lent"),
            Bytes::Own(bytes) => bytes.to_vec(),
            Bytes::Shared { address, length } => {
                self.memory.at(1 - self.duplex.mine(), address, length as usize)
            }
        };
        let brought = match event {
            Event::Write { immediate: Some(Immediate { value, solicited }), .. }
            | Event::Send { immediate: Some(value), solicited, .. } => {
                Some(Got::Immediate(value, solicited))
            }
            _ => None,
        };
        let got = match event {
            Event::ConnectRequest { limits, private } => {
                Got::Request { limits, private: private.to_vec() }
            }
            Event::Accepted { limits, private } => {
                Got::Accepted { limits, private: private.to_vec() }
            }
            Event::Rejected { private } => Got::Rejected { private: private.to_vec() },
            Event::Established => Got::Established,
            Event::WriteAnnounced { token, address, length } => {
                Got::Announced { token, address, length }
            }
            Event::Write { token, address, payload, last, .. } => {
                Got::Write { token, address, data: data(payload), last }
            }
            Event::Send { offset, payload, last, solicited, invalidate, .. } => {
                Got::Send { offset, data: data(payload), last, solicited, invalidate }
            }
            Event::ReadRequest { slot, token, address, length } => {
                Got::Asked { slot: slot.0, token, address, length }
            }
            Event::ReadData { id, offset, payload, last } => {
                Got::Answer { id: id.0, offset, data: data(payload), last }
            }
            Event::Atomic { token, address, operation } => {
                self.wire.answer(self.now, OLD);
                Got::Atomic { token, address, operation }
            }
            Event::AtomicAnswer { id, value } => Got::Old { id: id.0, value },
            Event::Done { through } => Got::Done(through.0),
            Event::PeerFailed { id, error } => Got::Failed { id: id.map(|id| id.0), error },
            Event::Resume => Got::Resume,
            Event::CreditWanted => Got::CreditWanted,
            Event::Target { number } => Got::Target(number),
        };
        self.got.push(got);
        self.got.extend(brought);
        if ends && !self.busy {
            self.wire.executed(self.now);
        }
    }

    /// The events since the last call.
    fn taken(&mut self) -> Vec<Got> {
        std::mem::take(&mut self.got)
    }

    /// Write everything there is to the rings, as a link does; payload is the pattern.
    fn transmit(&mut self) {
        if self.duplex.write(&mut self.out, &mut self.written) {
            while self.duplex.has_room(&self.out[self.written..]) {
                let more = self.wire.has_output();
                let frame = self.wire.next_frame(self.now);
                assert_eq!(more, frame.is_some(), "a link that asks first misses no frame");
                let Some(frame) = frame else { break };
                self.out.extend_from_slice(frame.header());
                self.out.extend_from_slice(&pattern(frame.length as usize));
                self.duplex.write(&mut self.out, &mut self.written);
            }
        }
        let _ = self.duplex.acknowledge(self.wire.acknowledgement(self.now));
    }

    fn begin(&mut self, message: Message) -> Begin {
        let begin = self.wire.begin(self.now, MessageId(self.next_id), &message);
        self.next_id += u64::from(begin == Begin::Started);
        begin
    }

    /// Begin a message and write all of it.
    fn post(&mut self, message: Message) {
        assert_eq!(self.begin(message), Begin::Started);
        self.transmit();
    }

    /// Grant the peer so many receives in all, and have the peer know.
    fn grant(&mut self, total: u64, shared: bool) {
        self.wire.receives_posted(self.now, total, shared);
        self.wire.release(Release::Now);
        self.transmit();
    }

    /// How many of its records the peer may take to be executed.
    fn acknowledged(&mut self) -> u32 {
        self.wire.release(Release::Now);
        self.said_with_words();
        self.told.max(self.ours().acknowledged() as u32)
    }
}

/// A side that waits for a Request.
fn passive() -> Side {
    Side::new(Config::new(Role::Passive))
}

/// A side that waits for the Reply.
fn active() -> Side {
    let mut side = Side::new(Config::new(Role::Active));
    side.wire.connect(side.now, LIMITS, b"").unwrap();
    side.said();
    side
}

fn limits(kind: RecordKind, ReadLimits { inbound, outbound }: ReadLimits) -> Header {
    let flags = record::EXTENDED;
    Header { flags, address: inbound.into(), token: outbound, ..Header::new(kind) }
}

/// A connected passive side without receives; all so far has been shown.
fn open() -> Side {
    open_with(LIMITS)
}

fn open_with(agreed: ReadLimits) -> Side {
    let mut side = passive();
    side.record(limits(RecordKind::Request, LIMITS));
    side.wire.accept(side.now, agreed, b"").unwrap();
    side.said();
    side.record(Header::new(RecordKind::Ready));
    side.said();
    side.taken();
    assert_eq!(side.acknowledged(), 2);
    side
}

/// A connected active side.
fn open_active() -> Side {
    let mut side = active();
    side.record(limits(RecordKind::Reply, LIMITS));
    side.wire.confirm(side.now).unwrap();
    side.said();
    side.poll();
    side.taken();
    assert_eq!(side.acknowledged(), 1);
    side
}

// ---- records of the peer --------------------------------------------------------------------------

fn write(token: u32, address: u64, length: usize, flags: u8) -> Header {
    Header { flags, token, address, length: length as u32, ..Header::new(RecordKind::Write) }
}

/// A record with its payload behind it.
fn with_payload(header: Header) -> Vec<u8> {
    [&record::to_bytes(header.words())[..], &pattern(header.payload())].concat()
}

fn announce(token: u32, address: u64, length: u32) -> Header {
    Header { token, address, length, ..Header::new(RecordKind::Announce) }
}

fn send(length: usize, flags: u8) -> Header {
    Header { flags, length: length as u32, ..Header::new(RecordKind::Send) }
}

fn read(token: u32, address: u64, length: u32) -> Header {
    Header { flags: LAST, token, address, length, ..Header::new(RecordKind::Read) }
}

fn answer(length: usize, flags: u8) -> Header {
    Header { flags, length: length as u32, ..Header::new(RecordKind::Answer) }
}

fn wrote(token: u32, address: u64, length: usize, last: bool) -> Got {
    Got::Write { token, address, data: pattern(length), last }
}

fn sent(offset: u32, length: usize, last: bool) -> Got {
    Got::Send { offset, data: pattern(length), last, solicited: false, invalidate: None }
}

// ---- messages of this side ------------------------------------------------------------------------

const SEND: Message =
    Message::Send { length: 8, solicited: false, invalidate: None, immediate: None };

fn our_write(length: u32) -> Message {
    Message::Write { token: 7, address: 0x1000, length, verdict: true, immediate: None }
}

fn our_read(length: u32) -> Message {
    Message::Read { token: 7, address: 0x1000, length, sink_token: 8, sink_address: 0x2000 }
}

// ---- what a refusal leaves behind -----------------------------------------------------------------

/// The peer broke this rule with its last record: it raised no event and does not count as
/// executed. The peer learns that it broke a rule but not which one, and nothing happens any more.
#[track_caller]
fn broken(side: &mut Side, rule: &str, detail: &str) {
    assert_eq!(side.taken(), [], "nothing is delivered");
    let violation = side.violation.take().unwrap();
    assert_eq!(
        (violation.blame, violation.rule, &violation.detail[..]),
        (Blame::Peer, rule, detail)
    );
    let before = side.ours().acknowledged() as u32;
    let said = side.said_with_words();
    let [(last_words, text)] = &said[..] else { panic!("{said:?}") };
    let plain = Header { ack: 0, ..*last_words };
    assert_eq!(plain, Header { address: u64::MAX, ..Header::new(RecordKind::Refuse) });
    assert_eq!(text, b"");
    assert_eq!(
        last_words.ack as u32,
        side.records - 1,
        "all before it is acknowledged, and not it"
    );
    assert_eq!(side.ours().acknowledged() as u32, before, "nothing is acknowledged beside");
    assert!(side.wire.facts().is_some(), "what was agreed stays known");
    ended(side);
}

/// The peer broke a rule of start-up: the link ends without a word.
#[track_caller]
fn silent(side: &mut Side, detail: &str) {
    assert_eq!(side.taken(), []);
    let violation = side.violation.take().unwrap();
    assert_eq!(
        (violation.blame, violation.rule, &violation.detail[..]),
        (Blame::Peer, "start-up", detail)
    );
    assert_eq!(side.said(), []);
    ended(side);
}

/// The ring itself says that the peer lies: nothing of the record comes out.
#[track_caller]
fn lied(side: &mut Side, lie: RingViolation) {
    assert_eq!(side.lie, Some(lie));
    assert_eq!(side.taken(), []);
    assert_eq!(side.violation, None);
}

/// Begin a message of one record: its header. `None`: it does not go that way, and nothing has happened.
fn whole(side: &mut Side, id: u64, message: &Message) -> Option<[u8; HEADER]> {
    let around = side.wire.around(side.now, message)?;
    assert_eq!((around.front, around.back), (HEADER, 0));
    let mut header = [0; HEADER];
    side.wire.begin_whole(side.now, MessageId(id), message, &mut header);
    Some(header)
}

/// Nothing more is said, awaited or taken in.
#[track_caller]
fn ended(side: &mut Side) {
    let now = side.now.after(Duration::from_secs(3600));
    assert!(!side.wire.has_output());
    assert!(side.wire.next_frame(now).is_none());
    assert_eq!(side.wire.deadline(), None);
    assert_eq!(side.wire.acknowledgement(now), None);
    assert_eq!(side.wire.poll_event(), None);
    let small = with_payload(write(7, 0, 8, LAST));
    assert_eq!(whole(side, 99, &our_write(8)), None);
    assert_eq!(side.begin(our_write(8)), Begin::Wait(Waiting::Start));
    let late = [&small[..HEADER], b"too late"].concat();
    assert_eq!(side.hear(&late), late.len(), "what comes later is thrown away");
    assert_eq!((side.taken(), side.violation.take()), (vec![], None));
    assert_eq!(side.wire.on_deadline(now), Ok(()));
    assert_eq!(side.wire.link_closed(now, false), Ok(()));
}
