//! A [`Stream`] plays each side of each recorded session of siw, with tokens, addresses and
//! payloads as recorded: whatever it emits must be what siw emitted, byte for byte.

use transom_iwarp::ddp::{Segment, Target};
use transom_iwarp::mpa::{self, FrameKind, StartUp};
use transom_iwarp::rdmap::{self, Opcode, ReadRequest};
use transom_iwarp::{Config, Ready, Revision, Stream, fpdu};
use transom_testing::captures::{Session, Unit};
use transom_wire::{
    Begin, Event, Message, MessageId, Operation, Payload, ReadLimits, Receiving, Refusal,
    RefusalClass, Role, Sending, StartUp as _, Time,
};

/// The task of siw in a session, read off the recording.
struct Player<'s> {
    session: &'s Session,
    units: Vec<Unit>,
    client: bool,
    stream: Stream,
    next_id: u64,
    /// The engine of that side refuses the answer to its read (siw-terminate-bounds).
    refuses: bool,
}

fn parse(unit: &Unit) -> StartUp<'_> {
    let kind = if unit.from_client { FrameKind::Request } else { FrameKind::Reply };
    StartUp::parse(&unit.bytes, kind).unwrap().unwrap().0
}

/// Reads are limited to what the frame says; a Reply that names a ready-to-receive frame needs one.
fn limits(frame: &StartUp<'_>) -> ReadLimits {
    frame.enhanced.map_or(ReadLimits { inbound: 8, outbound: 8 }, |word| ReadLimits {
        inbound: word.ird.into(),
        outbound: word.ord.into(),
    })
}

fn config(own: &StartUp<'_>, segment: u32, role: Role) -> Config {
    let peer_to_peer = own.enhanced.is_some_and(|word| word.peer_to_peer);
    Config {
        revision: if own.revision == 2 { Revision::Two } else { Revision::One },
        checksum: role == Role::Active && own.has(mpa::CHECKSUM),
        peer_to_peer,
        preferred_ready: Ready::Write,
        largest_frame: segment,
        ..Config::siw(role)
    }
}

fn ulpdu(unit: &Unit) -> &[u8] {
    fpdu::parse(&unit.bytes, false).unwrap().unwrap().0
}

/// siw leaves what was in its buffer where padding belongs; the RFC wants zeros, and the checksum
/// covers them.
fn padded_with_zeros(unit: &Unit) -> Vec<u8> {
    if unit.start_up {
        return unit.bytes.clone();
    }
    let mut bytes = unit.bytes[..fpdu::LENGTH + ulpdu(unit).len()].to_vec();
    let checksum = unit.bytes[unit.bytes.len() - fpdu::CRC..] != [0; fpdu::CRC];
    fpdu::seal(&mut bytes, 0, checksum);
    bytes
}

impl<'s> Player<'s> {
    fn new(session: &'s Session, client: bool) -> Option<Player<'s>> {
        let units = session.units();
        let own = units.iter().find(|unit| unit.start_up && unit.from_client == client)?;
        if parse(own).has(mpa::MARKERS) {
            return None; // not siw's side, and we never ask for markers
        }
        let role = if client { Role::Active } else { Role::Passive };
        // The plain-socket program used frames of 1,400 bytes of payload where they are that long.
        let tagged = |unit: &&Unit| {
            unit.from_client == client && !unit.start_up && ulpdu(unit)[0] & 0xC0 == 0x80
        };
        let cut = units.iter().find(tagged).map_or(session.segment, |unit| unit.bytes.len() as u32);
        let stream = Stream::new(config(&parse(own), cut, role), Time(0));
        let refuses = session.name.starts_with("siw-terminate-bounds") && !client;
        Some(Player { session, client, stream, next_id: 0, refuses, units })
    }

    fn play(mut self) -> usize {
        let units = std::mem::take(&mut self.units);
        let mut compared = 0;
        for (at, unit) in units.iter().enumerate() {
            if unit.from_client != self.client {
                self.hear(unit);
                continue;
            }
            if unit.start_up {
                self.start(unit, &units);
            } else {
                self.speak(unit, &units[at..]);
            }
            let emitted = self.emit(unit);
            assert_eq!(
                emitted,
                padded_with_zeros(unit),
                "{}, unit {at} of {}",
                self.session.name,
                units.len()
            );
            compared += 1;
            if unit.start_up && self.client && units.iter().all(|unit| unit.from_client) {
                break;
            }
        }
        assert!(self.stream.next_frame(Time(0)).is_none(), "{}: more to say", self.session.name);
        compared
    }

    fn start(&mut self, unit: &Unit, units: &[Unit]) {
        let own = parse(unit);
        // A side that got 0 reads raises them to the peer's (iW 9.3): the recorded values.
        let mut limits = limits(&own);
        if self.client {
            if own.enhanced.is_some_and(|word| word.peer_to_peer) && limits.outbound == 1 {
                limits.outbound = 0; // a slot for the ready-to-receive frame
                let asked = units
                    .iter()
                    .any(|unit| unit.from_client && !unit.start_up && ulpdu(unit)[1] & 0x0F == 1);
                limits.outbound = u32::from(asked);
            }
            self.stream.connect(Time(0), limits, own.private).unwrap();
        } else if own.has(mpa::REJECT) {
            self.stream.reject(Time(0), own.private).unwrap();
        } else {
            self.stream.accept(Time(0), limits, own.private).unwrap();
        }
    }

    /// Begin the message that `units` starts with, unless it is under way or an answer.
    fn speak(&mut self, unit: &Unit, units: &[Unit]) {
        let segment = Segment::parse(ulpdu(unit)).unwrap();
        let opcode = rdmap::opcode(segment.control).unwrap();
        let mut length = 0;
        for unit in units.iter().filter(|unit| unit.from_client == self.client) {
            let piece = Segment::parse(ulpdu(unit)).unwrap();
            if rdmap::opcode(piece.control) == Some(opcode) {
                length += piece.payload.len() as u32;
                if piece.last {
                    break;
                }
            }
        }
        let message = match (opcode, segment.target) {
            (Opcode::Send, Target::Untagged { offset: 0, .. }) => {
                Message::Send { length, solicited: false, invalidate: None, immediate: None }
            }
            (Opcode::Write, Target::Tagged { stag: 1, .. }) => return, // ready to receive
            (Opcode::Write, Target::Tagged { stag, offset }) => Message::Write {
                token: stag,
                address: offset,
                length,
                verdict: true,
                immediate: None,
            },
            (Opcode::ReadRequest, _) => {
                let request = ReadRequest::parse(segment.payload).unwrap();
                Message::Read {
                    token: request.source_stag,
                    address: request.source_offset,
                    length: request.size,
                    sink_token: request.sink_stag,
                    sink_address: request.sink_offset,
                }
            }
            _ => return,
        };
        match self.stream.begin(Time(0), MessageId(self.next_id), &message) {
            Begin::Started => self.next_id += 1,
            // A later segment of the message under way.
            Begin::Wait(_) | Begin::Unknown => {}
        }
    }

    fn emit(&mut self, recorded: &Unit) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some(frame) = self.stream.next_frame(Time(0)) {
            out.extend_from_slice(frame.header());
            let payload = if frame.sealed { Segment::parse(ulpdu(recorded)) } else { None };
            if frame.payload != Payload::None {
                let payload = payload.unwrap().payload;
                let payload = if frame.length == 0 { &[] } else { payload };
                assert_eq!(payload.len(), frame.length as usize, "{}", self.session.name);
                out.extend_from_slice(payload);
            }
            out.resize(out.len() + usize::from(frame.back), 0);
            self.stream.seal(&frame, &mut out);
            if frame.sealed {
                break;
            }
        }
        out
    }

    fn hear(&mut self, unit: &Unit) {
        let mut at = 0;
        while at < unit.bytes.len() {
            let decoded = self.stream.decode(Time(0), &unit.bytes[at..]);
            let decoded = decoded.unwrap_or_else(|v| panic!("{}: {v}", self.session.name));
            assert_ne!(decoded.consumed, 0, "{}", self.session.name);
            at += decoded.consumed;
            match decoded.event {
                Some(Event::Accepted { .. }) => self.stream.confirm(Time(0)).unwrap(),
                Some(Event::Write { last: true, .. } | Event::Send { last: true, .. }) => {
                    self.stream.executed(Time(0));
                }
                Some(Event::ReadData { .. }) if self.refuses => {
                    let (operation, class) = (Operation::Read, RefusalClass::Bounds);
                    let refusal = Refusal { operation, class, explanation: None };
                    self.stream.refuse(Time(0), Some(&refusal));
                    self.refuses = false;
                }
                _ => {}
            }
        }
        while self.stream.poll_event().is_some() {}
    }
}

#[test]
fn each_side_of_each_session_emits_what_siw_emitted() {
    let mut compared = 0;
    let mut sides = 0;
    for session in &transom_testing::captures::siw().unwrap() {
        for client in [true, false] {
            if let Some(player) = Player::new(session, client) {
                compared += player.play();
                sides += 1;
            }
        }
    }
    // 34 connections with both sides, but for one that asks for markers; one more was refused by
    // TCP before MPA.
    assert_eq!(sides, 67);
    assert!(compared > 700, "{compared} frames");
}
