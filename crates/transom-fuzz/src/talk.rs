//! Two ends of one wire, and what may happen between them: messages of every kind and size, pieces of
//! any length, time, refusals, memory that is gone, spoilt bytes, the end of the link.
//!
//! As long as nothing is spoilt, refused or cut, what arrives is what was sent, in order, and
//! neither end reports a fault.
//!
//! Input: six bytes of options (which wire, two for each end, limits), then steps.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

use transom_iwarp::{Config, Ready, Revision, Stream, TerminateForm};
use transom_process::Channel;
use transom_process::record::{self, Header, RecordKind};
use transom_wire::{
    Atomic, Begin, Bytes, Event, Immediate, Message, MessageId, Operation, Payload, ReadLimits,
    Refusal, RefusalClass, Release, Role, Time, Wire,
};

use crate::Input;

const LENGTHS: [u32; 16] =
    [0, 1, 4, 7, 31, 32, 33, 63, 500, 1400, 1448, 3000, 9000, 65_536, 65_537, 140_000];
/// A bit of an active side's options: revision 1.
const OLDER: u8 = 8;

/// The byte at an address of either side's memory, and of every message.
fn byte_at(address: u64) -> u8 {
    (address as u8).wrapping_mul(31) ^ (address >> 8) as u8
}

fn fill(out: &mut Vec<u8>, address: u64, length: u32) {
    out.extend((0..u64::from(length)).map(|i| byte_at(address.wrapping_add(i))));
}

/// The value of every word: atomics change nothing here.
fn word(token: u32, address: u64) -> u64 {
    address ^ u64::from(token) << 40
}

/// The answer that is missing.
#[derive(Debug)]
enum Asked {
    /// From an address on, so many.
    Bytes(u64, u32),
    /// Of a token, at an address.
    Word(u32, u64),
}

#[derive(Debug)]
struct End<W> {
    wire: W,
    input: Vec<u8>,
    out: Vec<u8>,
    queue: VecDeque<Message>,
    next: u64,
    under_way: Option<Message>,
    /// Reads and atomics of ours whose answers have not come, by id.
    reads: VecDeque<(u64, Asked)>,
    /// Atomics of ours that have not come.
    atomics: VecDeque<Atomic>,
    /// Sends and Writes begun, and the youngest of them that is known to be done.
    begun: VecDeque<Message>,
    done: Option<u64>,
    /// Refuse what comes next; supply no more payload.
    refuse: Option<RefusalClass>,
    withhold: bool,
    dead: bool,
    established: bool,
    /// Why, if this end found fault.
    fault: Option<String>,
    limits: ReadLimits,
    /// Receives posted; they may come from a shared queue, and then go out when asked for.
    receives: u64,
    shared: bool,
}

/// Plays one input.
pub fn talk(input: &[u8]) {
    let mut input = Input(input);
    let Some(which) = input.byte() else { return };
    let [a, b, c, d, limits] = [(); 5].map(|()| input.byte().unwrap_or(0));
    let mut limits =
        ReadLimits { inbound: u32::from(limits & 7), outbound: u32::from(limits >> 4 & 7) };
    if a & OLDER != 0 {
        limits.inbound = limits.outbound; // revision 1 agrees on nothing: the programs have to know
    }
    if which % 4 == 3 {
        let end = |role| Channel::new(transom_wire::Config::new(role), Time(0));
        return run(end(Role::Active), end(Role::Passive), limits, input);
    }
    let active = Stream::new(config(Role::Active, a, b), Time(0));
    let passive = Stream::new(config(Role::Passive, c, d), Time(0));
    run(active, passive, limits, input);
}

fn config(role: Role, a: u8, b: u8) -> Config {
    let older = role == Role::Active && a & OLDER != 0;
    let peer_to_peer = a & 4 == 0;
    let ack_limit = 1 + u32::from(b >> 1 & 15);
    Config {
        common: transom_wire::Config { ack_limit, ..transom_wire::Config::new(role) },
        checksum: a & 1 != 0,
        extension: a & 2 == 0,
        asks_front_word: b & 32 != 0,
        peer_to_peer,
        revision: if older { Revision::One } else { Revision::Two },
        preferred_ready: if a & 16 != 0 { Ready::Write } else { Ready::Read },
        verdict_reads: a & 32 == 0,
        fence: if a & 64 == 0 { Duration::MAX } else { Duration::ZERO },
        terminate: if a & 128 != 0 { TerminateForm::Siw } else { TerminateForm::Rfc },
        least_reads: u32::from(b & 1),
        largest_frame: [transom_iwarp::DEFAULT_FRAME, 2000, 256, 70_000][usize::from(b >> 6)],
        ..Config::new(role)
    }
}

fn run<W: Wire + Debug>(active: W, passive: W, limits: ReadLimits, mut input: Input<'_>) {
    let mut ends = [active, passive].map(|wire| End::new(wire, limits));
    let mut now = Time(0);
    let mut clean = true;
    let private = input.byte().unwrap_or(0);
    (ends[0].shared, ends[1].shared) = (private & 1 != 0, private & 2 != 0);
    let words = [0x1111_1111, 0x2222_2222];
    if private & 4 != 0 {
        for (end, word) in ends.iter_mut().zip(words) {
            end.wire.set_front_word(word);
        }
    }
    let private = vec![0x5A; usize::from(private)];
    ends[0].wire.connect(now, limits, &private).unwrap();
    while let Some(step) = input.byte() {
        let (what, at) = (step & 15, usize::from(step >> 4 & 1));
        let argument = || u32::from(step >> 5);
        match what {
            0..=2 => {
                let choice = input.byte().unwrap_or(0);
                ends[at].post(what, choice);
            }
            3 => carry(&mut ends, now, at, usize::from(input.byte().unwrap_or(0)) + 1),
            4 | 5 => {
                for at in [0, 1] {
                    carry(&mut ends, now, at, usize::MAX);
                }
            }
            6 => {
                let waits = [1, 15, 100, 2000, 21_000, 1_100_000, 6_000_000, 70_000_000];
                now = now.after(Duration::from_micros(waits[argument() as usize]));
                clean &= argument() < 5;
                ends.iter_mut().for_each(|end| end.pass(now));
            }
            7 => ends[at].wire.release(Release::IdlePass),
            8 => ends[at].wire.release(Release::Now),
            9 => {
                let more = u64::from(input.byte().unwrap_or(0));
                ends[at].receive(now, more);
            }
            10 => {
                clean = false;
                let (place, bit) = (input.byte().unwrap_or(0), input.byte().unwrap_or(0));
                let out = &mut ends[at].out;
                if let Some(byte) = out.get_mut(usize::from(place)) {
                    *byte ^= bit;
                }
            }
            11 => {
                clean = false;
                ends[at].refuse = Some(
                    RefusalClass::ALL
                        [usize::from(input.byte().unwrap_or(0)) % RefusalClass::ALL.len()],
                );
            }
            12 => {
                clean = false;
                ends[at].withhold = true;
            }
            13 => ends[at].wire.set_segment_size([0, 536, 1448, 65_483][argument() as usize % 4]),
            14 => {
                clean = false;
                let end = &mut ends[at];
                end.dead |= end.wire.link_closed(now, false).is_err();
                end.input.clear();
            }
            _ => {
                for end in &mut ends {
                    end.wire.release(Release::Now);
                }
                for _ in 0..8 {
                    carry(&mut ends, now, 0, usize::MAX);
                    carry(&mut ends, now, 1, usize::MAX);
                }
            }
        }
        if clean {
            let [one, other] = &ends;
            let faults = (&one.fault, &other.fault);
            assert!(faults == (&None, &None), "{faults:?}");
        }
    }
    for _ in 0..20 {
        carry(&mut ends, now, 0, usize::MAX);
        carry(&mut ends, now, 1, usize::MAX);
    }
    let [one, other] = &mut ends;
    if clean {
        let known = [&*one, other].map(|end| end.wire.peer_front_word());
        assert!(known[0].is_none_or(|word| word == words[1]), "{known:?}");
        assert!(known[1].is_none_or(|word| word == words[0]), "{known:?}");
        let faults = (&one.fault, &other.fault);
        assert!(faults == (&None, &None), "{faults:?}");
    }
    for end in &mut ends {
        let _ = end.wire.link_closed(now, true);
        while end.wire.poll_event().is_some() {}
        while end.wire.next_frame(now).is_some() {}
        assert!(!end.wire.has_output() && end.wire.deadline().is_none());
    }
}

/// Everything that `from` has to say is said; so many bytes of it arrive.
fn carry<W: Wire>(ends: &mut [End<W>; 2], now: Time, from: usize, most: usize) {
    ends[from].speak(now);
    let [one, other] = ends;
    let (from, to) = if from == 0 { (one, other) } else { (other, one) };
    let most = most.min(from.out.len());
    to.input.extend(from.out.drain(..most));
    to.hear(now, from);
    to.speak(now);
}

impl<W: Wire> End<W> {
    fn new(wire: W, limits: ReadLimits) -> End<W> {
        End {
            wire,
            input: Vec::new(),
            out: Vec::new(),
            queue: VecDeque::new(),
            next: 0,
            under_way: None,
            reads: VecDeque::new(),
            atomics: VecDeque::new(),
            begun: VecDeque::new(),
            done: None,
            refuse: None,
            withhold: false,
            dead: false,
            established: false,
            fault: None,
            limits,
            receives: 0,
            shared: false,
        }
    }

    fn receive(&mut self, now: Time, more: u64) {
        self.receives += more;
        self.wire.receives_posted(now, self.receives, self.shared);
    }

    fn post(&mut self, what: u8, choice: u8) {
        let length = LENGTHS[usize::from(choice & 15)];
        let (token, address) = (u32::from(choice), u64::from(choice) << 9);
        let flag = choice & 16 != 0;
        self.queue.push_back(match what {
            0 => {
                let invalidate = (choice & 32 != 0).then_some(token);
                let immediate = (choice & 96 == 64).then_some(token);
                Message::Send { length, solicited: flag, invalidate, immediate }
            }
            1 => {
                let immediate = (choice & 32 != 0).then_some(token);
                let immediate = immediate.map(|value| Immediate { value, solicited: flag });
                Message::Write { token, address, length, verdict: flag, immediate }
            }
            _ if choice & 32 != 0 => {
                let (compare, swap) = (word(token, address), u64::from(choice));
                let operation = if flag {
                    Atomic::CompareSwap { compare, swap }
                } else {
                    Atomic::FetchAdd { add: swap }
                };
                Message::Atomic { token, address, operation }
            }
            _ => Message::Read { token, address, length, sink_token: 9, sink_address: 0x900 },
        });
    }

    fn found(&mut self, fault: String) {
        self.dead = true;
        self.fault.get_or_insert(fault);
    }

    fn pass(&mut self, now: Time) {
        self.wire.release(Release::IdlePass);
        if !self.dead
            && let Err(violation) = self.wire.on_deadline(now)
        {
            self.found(violation.to_string());
        }
    }

    fn speak(&mut self, now: Time) {
        for _ in 0..400 {
            self.begin(now);
            let Some(frame) = self.wire.next_frame(now) else { return self.acknowledge(now) };
            let start = self.out.len();
            if frame.length > 0 && std::mem::take(&mut self.withhold) {
                let (operation, class) = (Operation::Write, RefusalClass::Internal);
                let refusal = Refusal { operation, class, explanation: None };
                self.wire.abandon(now, &frame, &refusal);
                self.dead = true;
                continue;
            }
            self.out.extend_from_slice(frame.header());
            let address = match (frame.payload, self.under_way) {
                (Payload::Memory { address, .. }, _) => address,
                (Payload::Message { offset, .. }, Some(Message::Write { address, .. })) => {
                    address + u64::from(offset)
                }
                (Payload::Message { offset, .. }, _) => u64::from(offset),
                (Payload::None, _) => {
                    assert!(frame.length == 0 && !frame.last);
                    0
                }
            };
            fill(&mut self.out, address, frame.length);
            match self.wire.trailer(&frame).filter(|_| self.next.is_multiple_of(2)) {
                Some(trailer) => {
                    self.out.extend_from_slice(&trailer.bytes[..usize::from(trailer.length)]);
                }
                None => {
                    self.out.resize(self.out.len() + usize::from(frame.back), 0);
                    self.wire.seal(&frame, &mut self.out[start..])
                }
            }
            if matches!(frame.payload, Payload::Message { .. }) && frame.last {
                self.under_way = None;
            }
        }
    }

    /// The word that a ring has a place for goes as a record of its own.
    fn acknowledge(&mut self, now: Time) {
        if let Some(ack) = self.wire.acknowledgement(now) {
            let header = Header { ack, ..Header::new(RecordKind::Ack) };
            self.out.extend_from_slice(&record::to_bytes(header.words()));
        }
    }

    fn begin(&mut self, now: Time) {
        if self.under_way.is_some() || self.dead {
            return;
        }
        let Some(message) = self.queue.front().copied() else { return };
        match self.wire.begin(now, MessageId(self.next), &message) {
            Begin::Started => {}
            Begin::Wait(_) => return,
            Begin::Unknown => {
                assert!(message.is_extended());
                self.queue.pop_front();
                return;
            }
        }
        self.queue.pop_front();
        match message {
            // The length is 0 where nothing was asked for: then nothing arrives at the peer.
            Message::Read { address, length, .. } => {
                self.reads.push_back((self.next, Asked::Bytes(address, length)));
            }
            Message::Atomic { token, address, operation } => {
                self.reads.push_back((self.next, Asked::Word(token, address)));
                self.atomics.push_back(operation);
            }
            _ => self.begun.push_back(message),
        }
        self.under_way = Some(message);
        self.next += 1;
    }

    fn hear(&mut self, now: Time, peer: &mut End<W>) {
        let bytes = std::mem::take(&mut self.input);
        let mut at = 0;
        loop {
            match self.wire.decode(now, &bytes[at..]) {
                Err(violation) => {
                    assert!(!self.dead, "a second violation: {violation}");
                    self.found(format!("{violation}"));
                }
                Ok(decoded) if decoded.consumed == 0 => break,
                Ok(decoded) => {
                    at += decoded.consumed;
                    if let Some(through) = decoded.done {
                        self.take(now, Event::Done { through }, peer);
                    }
                    let mut any = false;
                    while let Some(event) = self.wire.poll_event() {
                        self.take(now, event, peer);
                        any = true;
                    }
                    assert_eq!(decoded.news, any);
                    if let Some(event) = decoded.event {
                        assert!(!self.dead, "an event on a dead stream: {event:?}");
                        self.take(now, event, peer);
                    }
                }
            }
            while let Some(event) = self.wire.poll_event() {
                self.take(now, event, peer);
            }
        }
        self.input.extend_from_slice(&bytes[at..]);
    }

    fn take(&mut self, now: Time, event: Event<'_>, peer: &mut End<W>) {
        let data = |payload: Bytes<'_>, address: u64| {
            let payload = payload.own().unwrap_or_default();
            (0..).zip(payload).all(|(i, byte)| *byte == byte_at(address.wrapping_add(i)))
        };
        let right = match event {
            Event::ConnectRequest { private, .. } => {
                if let Some(class) = self.refuse.take() {
                    let _ = self.wire.reject(now, &[class as u8]);
                } else {
                    assert_eq!(self.wire.accept(now, self.limits, private), Ok(()));
                    self.receive(now, if self.shared { 0 } else { 1000 });
                }
                true
            }
            Event::Accepted { .. } => {
                assert_eq!(self.wire.confirm(now), Ok(()));
                self.receive(now, if self.shared { 0 } else { 1000 });
                true
            }
            Event::Established => !std::mem::replace(&mut self.established, true),
            Event::Rejected { .. } => {
                self.dead = true;
                true
            }
            Event::WriteAnnounced { .. } => {
                self.judged(now, Operation::Write, false);
                true
            }
            Event::Write { address, payload, last, immediate, .. } => {
                let right = data(payload, address);
                let brought = peer.begun.front().map(Message::immediate);
                let sent = !last
                    || matches!(peer.begun.front(), Some(Message::Write { .. }))
                        && brought == Some(immediate);
                self.judged(now, Operation::Write, last);
                if last {
                    peer.begun.pop_front();
                }
                right && sent
            }
            Event::Send { offset, payload, last, solicited, invalidate, immediate } => {
                let right = data(payload, offset.into());
                let length = offset + payload.len() as u32;
                let sent = Message::Send { length, solicited, invalidate, immediate };
                let sent = !last || peer.begun.front() == Some(&sent);
                let operation =
                    if invalidate.is_some() { Operation::Invalidate } else { Operation::Send };
                self.judged(now, operation, last);
                if last {
                    peer.begun.pop_front();
                }
                right && sent
            }
            Event::ReadRequest { .. } => {
                self.judged(now, Operation::Read, false);
                true
            }
            Event::ReadData { id, offset, payload, last } => {
                let end = offset + payload.len() as u32;
                let right = match self.reads.front() {
                    Some((asked, Asked::Bytes(address, length))) => {
                        data(payload, address.wrapping_add(offset.into()))
                            && *asked == id.0
                            && last == (end == *length)
                    }
                    _ => false,
                };
                if last {
                    self.reads.pop_front();
                }
                self.judged(now, Operation::Read, false);
                right
            }
            Event::Atomic { token, address, operation } => {
                let right = peer.atomics.pop_front() == Some(operation);
                let refused = self.refuse.is_some();
                self.judged(now, Operation::Atomic, false);
                if !refused {
                    self.wire.answer(now, word(token, address));
                }
                right
            }
            Event::AtomicAnswer { id, value } => match self.reads.pop_front() {
                Some((asked, Asked::Word(token, address))) => {
                    asked == id.0 && value == word(token, address)
                }
                _ => false,
            },
            Event::Done { through } => {
                assert!(through.0 < self.next, "done before it was begun");
                let later = self.done.is_none_or(|done| done < through.0);
                self.done = Some(through.0);
                later
            }
            Event::PeerFailed { error, .. } => {
                let text = error.explanation.unwrap_or_default();
                assert!(!text.chars().any(char::is_control));
                self.fault.get_or_insert(format!("the peer: {}", error.code));
                self.dead = true;
                true
            }
            Event::CreditWanted => {
                self.receive(now, 1);
                true
            }
            Event::Resume => true,
            Event::Target { .. } => false, // neither side has said one
        };
        if !right {
            self.fault.get_or_insert("not what was sent".into());
        }
    }

    /// The engine's answer to an event: a refusal, if one was ordered.
    fn judged(&mut self, now: Time, operation: Operation, last: bool) {
        if let Some(class) = self.refuse.take() {
            let explanation = Some("no: \u{e4}\u{2026}").filter(|_| class != RefusalClass::Scope);
            self.wire.refuse(now, Some(&Refusal { operation, class, explanation }));
            self.dead = true;
        } else if last {
            self.wire.executed(now);
        }
    }
}
