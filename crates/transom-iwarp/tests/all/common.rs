//! A side of a connection for tests: a [`Stream`] and the little that an engine does around it.
#![allow(unreachable_pub)]

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use transom_iwarp::{Config, Stream};
use transom_wire::{
    Atomic, Begin, Event, Frame, Immediate, Message, MessageId, Payload, PeerError, ReadLimits,
    Receiving, Refusal, RefusalClass, Release, Role, Sending, StartUp, Time, Violation, Waiting,
};

/// The output of a [`Stream`], pieces put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Got {
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
    },
    Send {
        data: Vec<u8>,
        solicited: bool,
        invalidate: Option<u32>,
    },
    Asked {
        slot: u32,
        token: u32,
        address: u64,
        length: u32,
    },
    Read {
        id: u64,
        data: Vec<u8>,
    },
    Atomic {
        token: u32,
        address: u64,
        operation: Atomic,
    },
    /// The value of the word before.
    Old {
        id: u64,
        value: u64,
    },
    /// Behind the message that brought it: the bytes, and whether it is solicited.
    Immediate(u32, bool),
    Target(u32),
    Done(u64),
    Failed {
        id: Option<u64>,
        error: PeerError,
    },
    Resume,
    CreditWanted,
}

/// The byte of both sides' memory at an address.
pub fn byte_at(token: u32, address: u64) -> u8 {
    (address as u8).wrapping_mul(31) ^ (token as u8) ^ (address >> 8) as u8
}

pub fn memory(token: u32, address: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|i| byte_at(token, address.wrapping_add(i))).collect()
}

/// Which event to refuse, why, and what the peer may know.
pub type Refuse = (fn(&Event<'_>) -> bool, RefusalClass, &'static str);

pub struct Side {
    pub wire: Stream,
    pub now: Time,
    /// Bytes that have come and were not consumed.
    pub input: Vec<u8>,
    /// Bytes to go.
    pub out: Vec<u8>,
    pub got: Vec<Got>,
    pub violation: Option<Violation>,
    /// Messages to begin, and their payloads.
    pub queue: VecDeque<(Message, Vec<u8>)>,
    pub next_id: u64,
    pub waiting: Option<Waiting>,
    /// Refuse the next event that this accepts.
    pub refuse: Option<Refuse>,
    /// Do not report messages as executed.
    pub busy: bool,
    /// The words that atomics change, by address.
    pub words: HashMap<u64, u64>,
    /// The peer has no such message.
    pub unknown: bool,
    /// Use `trailer` when it is offered.
    pub gather: bool,
    under_way: Option<MessageId>,
    payloads: HashMap<u64, Vec<u8>>,
    partial: Vec<u8>,
}

impl Side {
    pub fn new(config: Config) -> Side {
        Side {
            wire: Stream::new(config, Time(0)),
            now: Time(0),
            input: Vec::new(),
            out: Vec::new(),
            got: Vec::new(),
            violation: None,
            queue: VecDeque::new(),
            next_id: 0,
            waiting: None,
            refuse: None,
            busy: false,
            words: HashMap::new(),
            unknown: false,
            gather: false,
            under_way: None,
            payloads: HashMap::new(),
            partial: Vec::new(),
        }
    }

    pub fn post(&mut self, message: Message, data: &[u8]) {
        self.queue.push_back((message, data.to_vec()));
    }

    pub fn send(&mut self, data: &[u8]) {
        let length = data.len() as u32;
        self.post(
            Message::Send { length, solicited: false, invalidate: None, immediate: None },
            data,
        );
    }

    pub fn write(&mut self, token: u32, address: u64, data: &[u8], verdict: bool) {
        let length = data.len() as u32;
        self.post(Message::Write { token, address, length, verdict, immediate: None }, data);
    }

    pub fn read(&mut self, token: u32, address: u64, length: u32) {
        let message =
            Message::Read { token, address, length, sink_token: 0x51, sink_address: 0x5000 };
        self.post(message, &[]);
    }

    pub fn atomic(&mut self, token: u32, address: u64, operation: Atomic) {
        self.post(Message::Atomic { token, address, operation }, &[]);
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.listen();
    }

    /// Decode what is there, then take events.
    pub fn listen(&mut self) {
        let mut input = std::mem::take(&mut self.input);
        let mut at = 0;
        while self.violation.is_none() {
            let decoded = match self.wire.decode(self.now, &input[at..]) {
                Ok(decoded) => decoded,
                Err(violation) => {
                    self.violation = Some(violation);
                    break;
                }
            };
            assert!(decoded.consumed <= input.len() - at, "consumed more than there is");
            if let Some(through) = decoded.done {
                self.take(Event::Done { through });
            }
            let mut any = false;
            while let Some(event) = self.wire.poll_event() {
                self.take(event);
                any = true;
            }
            assert_eq!(decoded.news, any, "news are announced");
            if decoded.consumed == 0 {
                assert!(decoded.event.is_none(), "an event without bytes");
                break;
            }
            at += decoded.consumed;
            if let Some(event) = decoded.event {
                self.take(event);
            }
        }
        input.drain(..at);
        if self.violation.is_none() {
            assert!(input.len() <= 65_544, "kept {} bytes", input.len());
        }
        self.input = input;
        while let Some(event) = self.wire.poll_event() {
            self.take(event);
        }
    }

    fn take(&mut self, event: Event<'_>) {
        if let Some((which, class, explanation)) = self.refuse
            && which(&event)
        {
            let operation = match event {
                Event::Send { invalidate: Some(_), .. }
                    if class == RefusalClass::NotInvalidatable =>
                {
                    transom_wire::Operation::Invalidate
                }
                Event::Send { .. } => transom_wire::Operation::Send,
                Event::ReadRequest { .. } => transom_wire::Operation::Read,
                Event::Atomic { .. } => transom_wire::Operation::Atomic,
                _ => transom_wire::Operation::Write,
            };
            let explanation = Some(explanation).filter(|text| !text.is_empty());
            self.wire.refuse(self.now, Some(&Refusal { operation, class, explanation }));
            return;
        }
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
                let before = self.partial.len() as u64;
                self.partial.extend_from_slice(payload.own().unwrap());
                if !last {
                    return;
                }
                if !self.busy {
                    self.wire.executed(self.now);
                }
                let data = std::mem::take(&mut self.partial);
                Got::Write { token, address: address - before, data }
            }
            Event::Send { offset, payload, last, solicited, invalidate, .. } => {
                assert_eq!(offset as usize, self.partial.len());
                self.partial.extend_from_slice(payload.own().unwrap());
                if !last {
                    return;
                }
                if !self.busy {
                    self.wire.executed(self.now);
                }
                Got::Send { data: std::mem::take(&mut self.partial), solicited, invalidate }
            }
            Event::ReadRequest { slot, token, address, length } => {
                Got::Asked { slot: slot.0, token, address, length }
            }
            Event::ReadData { id, offset, payload, last } => {
                assert_eq!(offset as usize, self.partial.len());
                self.partial.extend_from_slice(payload.own().unwrap());
                if !last {
                    return;
                }
                Got::Read { id: id.0, data: std::mem::take(&mut self.partial) }
            }
            Event::Atomic { token, address, operation } => {
                let old = self.words.entry(address).or_insert(0);
                let before = std::mem::replace(old, operation.result(*old));
                self.wire.answer(self.now, before);
                Got::Atomic { token, address, operation }
            }
            Event::AtomicAnswer { id, value } => Got::Old { id: id.0, value },
            Event::Done { through } => Got::Done(through.0),
            Event::PeerFailed { id, error } => Got::Failed { id: id.map(|id| id.0), error },
            Event::Resume => {
                self.waiting = None;
                Got::Resume
            }
            Event::CreditWanted => Got::CreditWanted,
            Event::Target { number } => Got::Target(number),
        };
        self.got.push(got);
        self.got.extend(brought);
    }

    /// Write one frame out, if there is one.
    pub fn step(&mut self) -> Option<Frame> {
        if self.under_way.is_none()
            && self.waiting.is_none()
            && let Some((message, data)) = self.queue.front()
        {
            let id = MessageId(self.next_id);
            match self.wire.begin(self.now, id, message) {
                Begin::Started => {
                    self.payloads.insert(id.0, data.clone());
                    self.queue.pop_front();
                    self.next_id += 1;
                    self.under_way = Some(id);
                }
                Begin::Wait(waiting) => self.waiting = Some(waiting),
                Begin::Unknown => {
                    self.unknown = true;
                    self.queue.pop_front();
                }
            }
        }
        let frame = self.wire.next_frame(self.now)?;
        let start = self.out.len();
        self.out.extend_from_slice(frame.header());
        let length = frame.length as usize;
        match frame.payload {
            Payload::None => assert!(length == 0 && !frame.last),
            Payload::Message { id, offset } => {
                assert_eq!(Some(id), self.under_way);
                let data = &self.payloads[&id.0];
                self.out.extend_from_slice(&data[offset as usize..offset as usize + length]);
                if frame.last {
                    self.under_way = None;
                    self.payloads.remove(&id.0);
                }
            }
            Payload::Memory { token, address, .. } => {
                self.out.extend_from_slice(&memory(token, address, length));
            }
        }
        match self.wire.trailer(&frame).filter(|_| self.gather) {
            Some(trailer) => {
                self.out.extend_from_slice(&trailer.bytes[..usize::from(trailer.length)]);
            }
            None => {
                self.out.resize(self.out.len() + usize::from(frame.back), 0);
                self.wire.seal(&frame, &mut self.out[start..])
            }
        }
        while let Some(event) = self.wire.poll_event() {
            self.take(event);
        }
        Some(frame)
    }

    /// Write all there is.
    pub fn talk(&mut self) -> Vec<u8> {
        loop {
            while self.step().is_some() {}
            if self.waiting.is_some() || self.queue.is_empty() || self.under_way.is_some() {
                break;
            }
        }
        std::mem::take(&mut self.out)
    }

    /// Forget what was seen.
    pub fn taken(&mut self) -> Vec<Got> {
        let got = std::mem::take(&mut self.got);
        got.into_iter().filter(|got| *got != Got::Resume).collect()
    }

    pub fn wait(&mut self, by: Duration) {
        self.now = self.now.after(by);
        if let Err(violation) = self.wire.on_deadline(self.now) {
            self.violation = Some(violation);
        }
        while let Some(event) = self.wire.poll_event() {
            self.take(event);
        }
    }
}

pub struct Pair {
    pub active: Side,
    pub passive: Side,
}

pub const LIMITS: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };

impl Pair {
    pub fn new(active: Config, passive: Config) -> Pair {
        Pair { active: Side::new(active), passive: Side::new(passive) }
    }

    /// Two sides that have got to know each other.
    pub fn connected(active: Config, passive: Config) -> Pair {
        let mut pair = Pair::new(active, passive);
        pair.connect(LIMITS, LIMITS);
        pair
    }

    pub fn plain() -> Pair {
        let off = |role| Config { extension: false, ..Config::new(role) };
        Pair::connected(off(Role::Active), off(Role::Passive))
    }

    pub fn transoms() -> Pair {
        Pair::connected(Config::new(Role::Active), Config::new(Role::Passive))
    }

    pub fn connect(&mut self, active: ReadLimits, passive: ReadLimits) {
        let Pair { active: a, passive: p } = self;
        a.wire.connect(a.now, active, b"hello").unwrap();
        p.feed(&a.talk());
        let question = p.talk();
        if !question.is_empty() {
            a.feed(&question);
            p.feed(&a.talk());
        }
        assert!(matches!(p.got[..], [Got::Request { .. }]), "{:?} {:?}", p.got, p.violation);
        p.wire.accept(p.now, passive, b"welcome").unwrap();
        a.feed(&p.talk());
        assert!(matches!(a.got[..], [Got::Accepted { .. }]), "{:?} {:?}", a.got, a.violation);
        a.wire.confirm(a.now).unwrap();
        a.wire.receives_posted(a.now, 1000, false);
        p.wire.receives_posted(p.now, 1000, false);
        // Behind the Reply, and behind a ready-to-receive Write (iW L1).
        for _ in 0..2 {
            self.wait(Duration::from_millis(20));
            self.run();
        }
    }

    pub fn wait(&mut self, by: Duration) {
        self.active.wait(by);
        self.passive.wait(by);
    }

    /// Until both are silent.
    pub fn run(&mut self) {
        loop {
            let there = self.active.talk();
            self.passive.feed(&there);
            let back = self.passive.talk();
            self.active.feed(&back);
            if there.is_empty() && back.is_empty() {
                break;
            }
        }
    }

    /// Until both are silent and owe nothing.
    pub fn settle(&mut self) {
        self.run();
        self.active.wire.release(Release::Now);
        self.passive.wire.release(Release::Now);
        self.run();
    }
}

/// Bytes from hexadecimal digits, blanks ignored.
pub fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let value = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
    digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}

/// The code of the Terminate that `bytes` end with, RFC order.
pub fn terminate_code(bytes: &[u8]) -> Option<(u8, u8, u8)> {
    use transom_iwarp::{ddp::Segment, fpdu};
    let mut rest = bytes;
    let mut code = None;
    while let Ok(Some((ulpdu, used))) = fpdu::parse(rest, false) {
        let segment = Segment::parse(ulpdu).unwrap();
        if segment.control == 0x47 {
            let [layer, number, ..] = *segment.payload else { unreachable!() };
            code = Some((layer >> 4, layer & 0x0F, number));
        }
        rest = &rest[used..];
    }
    code
}
