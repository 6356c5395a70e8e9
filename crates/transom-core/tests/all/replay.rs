//! The engine plays each side of each recorded session of siw: it gets the peer's recorded bytes,
//! posts what the recorded program posted, and must emit what siw emitted.
//!
//! Tokens are injected by renaming: memory is registered at the recorded addresses, and a recorded
//! token of this side is replaced by the one that was issued. Remote tokens are as recorded.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, VecDeque};

use crate::support::{Host, HostConfig};
use transom_core::tables::ConnectorState;
use transom_core::{Connection, ConnectionConfig, Flags, Operation, Sge, Status, dialect};
use transom_iwarp::ddp::{Segment, Target};
use transom_iwarp::mpa::{self, FrameKind, StartUp};
use transom_iwarp::rdmap::{self, Opcode, ReadRequest};
use transom_iwarp::{Config, Ready, Revision, Stream, fpdu};
use transom_memory::{ConnectionId, Rights};
use transom_testing::captures::{Session, Unit};
use transom_wire::Buffer;
use transom_wire::{ReadLimits, Role, Time};

const NOW: Time = Time(1);
/// The engine's name of the sink of its Reads on the wire.
const SINK: u32 = 1;

fn parse(unit: &Unit) -> StartUp<'_> {
    let kind = if unit.from_client { FrameKind::Request } else { FrameKind::Reply };
    StartUp::parse(&unit.bytes, kind).unwrap().unwrap().0
}

fn ulpdu(unit: &Unit) -> &[u8] {
    fpdu::parse(&unit.bytes, false).unwrap().unwrap().0
}

fn segment(unit: &Unit) -> (Opcode, Segment<'_>) {
    let segment = Segment::parse(ulpdu(unit)).unwrap();
    (rdmap::opcode(segment.control).unwrap(), segment)
}

/// This frame around another header and payload.
fn rebuilt(unit: &Unit, segment: &Segment<'_>, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; fpdu::LENGTH];
    out.extend_from_slice(segment.header().as_ref());
    out.extend_from_slice(payload);
    let length = u16::try_from(out.len() - fpdu::LENGTH).unwrap();
    out[..fpdu::LENGTH].copy_from_slice(&length.to_be_bytes());
    let checksum = unit.bytes[unit.bytes.len() - fpdu::CRC..] != [0; fpdu::CRC];
    fpdu::seal(&mut out, 0, checksum);
    out
}

struct Player<'s> {
    name: &'s str,
    units: Vec<Unit>,
    client: bool,
    host: Host,
    /// Issued tokens by recorded ones.
    tokens: BTreeMap<u32, u32>,
    /// Where the recorded sinks of our Reads begin, oldest first.
    sinks: VecDeque<u64>,
    /// The bytes that our answers must hold, oldest first.
    answers: VecDeque<Vec<u8>>,
    receives: crate::support::Buffer,
    posted: u64,
    refused: bool,
}

impl<'s> Player<'s> {
    fn new(session: &'s Session, client: bool) -> Option<Player<'s>> {
        let units = session.units();
        let own = units.iter().find(|unit| unit.start_up && unit.from_client == client)?;
        let own = parse(own);
        if own.has(mpa::MARKERS) {
            return None; // we never ask for markers
        }
        if session.name.starts_with("siw-terminate-bounds") && !client {
            return None; // siw refuses the answer to its own Read there: nothing we would post
        }
        let role = if client { Role::Active } else { Role::Passive };
        let tagged = |unit: &&Unit| {
            unit.from_client == client && !unit.start_up && ulpdu(unit)[0] & 0xC0 == 0x80
        };
        let cut = units.iter().find(tagged).map_or(session.segment, |unit| unit.bytes.len() as u32);
        let wire = Config {
            revision: if own.revision == 2 { Revision::Two } else { Revision::One },
            checksum: role == Role::Active && own.has(mpa::CHECKSUM),
            peer_to_peer: own.enhanced.is_some_and(|word| word.peer_to_peer),
            preferred_ready: Ready::Write,
            largest_frame: cut,
            ..Config::siw(role)
        };
        let mut config = HostConfig::new(&dialect::ND2);
        config.depth = 1024;
        config.caps.reads = ReadLimits { inbound: 1 << 20, outbound: 1 << 20 };
        let mut host = Host::new(config, 0xA);
        let id = ConnectionId { number: 1, epoch: 1 };
        let config = ConnectionConfig { id, role, dialect: &dialect::ND2, explain: false };
        host.connection = Some(Connection::new(config, Box::new(Stream::new(wire, NOW)), NOW));
        let receives = host.register(vec![0; 1 << 20], Rights::LOCAL_WRITE);
        let (name, units) = (session.name.as_str(), units);
        let mut player = Player {
            name,
            client,
            host,
            receives,
            units,
            tokens: BTreeMap::new(),
            sinks: VecDeque::new(),
            answers: VecDeque::new(),
            posted: 0,
            refused: false,
        };
        player.register();
        Some(player)
    }

    /// Memory of this side, as far as the peer names it, and what our answers held.
    fn register(&mut self) {
        let mut extents: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let mut answer = Vec::new();
        for unit in self.units.iter().filter(|unit| !unit.start_up) {
            let (opcode, segment) = segment(unit);
            let (token, from, length) = match (opcode, segment.target) {
                (Opcode::Write, Target::Tagged { stag, offset }) => {
                    (stag, offset, segment.payload.len() as u64)
                }
                (Opcode::ReadRequest, _) => {
                    let request = ReadRequest::parse(segment.payload).unwrap();
                    (request.source_stag, request.source_offset, u64::from(request.size))
                }
                (Opcode::ReadResponse, _) if unit.from_client == self.client => {
                    answer.extend_from_slice(segment.payload);
                    if segment.last {
                        self.answers.push_back(std::mem::take(&mut answer));
                    }
                    continue;
                }
                _ => continue,
            };
            if unit.from_client != self.client && length > 0 {
                let extent = extents.entry(token).or_insert((from, from + length));
                *extent = (extent.0.min(from), extent.1.max(from + length));
            }
        }
        let refusing = self.name.starts_with("siw-terminate-bounds");
        for (token, (from, to)) in extents {
            assert!(!refusing || self.client);
            let rights = Rights::REMOTE_READ | Rights::REMOTE_WRITE | Rights::LOCAL_WRITE;
            let bytes = vec![0; (to - from) as usize];
            let buffer = self.host.register_at(from, bytes, rights).unwrap();
            self.tokens.insert(token, buffer.token.0);
        }
    }

    fn play(mut self) -> (usize, usize) {
        let (mut emitted, mut expected, mut frames) = (Vec::new(), Vec::new(), 0);
        let units = std::mem::take(&mut self.units);
        let alone = units.iter().all(|unit| unit.from_client == self.client);
        for (at, unit) in units.iter().enumerate() {
            if unit.from_client == self.client {
                self.speak(unit, &units[at..]);
                expected.extend(self.expect(unit));
                frames += 1;
            } else {
                self.hear(unit);
            }
            let mut out = Buffer::new(usize::MAX);
            out.bytes = std::mem::take(&mut emitted);
            self.host.transmit(NOW, &mut out);
            emitted = out.bytes;
            if alone {
                break;
            }
        }
        let differ = emitted.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differ, None, "{}, client {}: of {}", self.name, self.client, expected.len());
        assert_eq!(emitted.len(), expected.len(), "{}, client {}", self.name, self.client);
        let outcomes = self.host.outcomes();
        for (context, status) in &outcomes {
            let fine = *status == Status::Success || self.refused;
            assert!(fine, "{}, client {}: {context} {status:?}", self.name, self.client);
        }
        (frames, outcomes.len())
    }

    /// The frame that we must emit for a recorded frame of ours.
    fn expect(&self, unit: &Unit) -> Vec<u8> {
        if unit.start_up {
            return unit.bytes.clone();
        }
        let (opcode, segment) = segment(unit);
        if opcode != Opcode::ReadRequest {
            return rebuilt(unit, &segment, segment.payload);
        }
        let request = ReadRequest::parse(segment.payload).unwrap();
        let request = ReadRequest { sink_stag: SINK, sink_offset: 0, ..request };
        rebuilt(unit, &segment, &request.to_bytes())
    }

    /// Do what the recorded program did.
    fn speak(&mut self, unit: &Unit, units: &[Unit]) {
        if unit.start_up {
            return self.start(unit, units);
        }
        let (opcode, first) = segment(unit);
        let mut bytes = Vec::new();
        for unit in units.iter().filter(|unit| unit.from_client == self.client) {
            let (other, piece) = segment(unit);
            if other == opcode {
                bytes.extend_from_slice(piece.payload);
                if piece.last {
                    break;
                }
            }
        }
        let operation = match (opcode, first.target) {
            (Opcode::Send, Target::Untagged { offset: 0, .. }) => Operation::Send,
            (Opcode::Write, Target::Tagged { stag: 1, .. }) => return, // ready to receive
            (Opcode::Write, Target::Tagged { stag, offset }) => {
                if std::mem::replace(&mut self.posted, u64::from(!first.last)) == 1 {
                    return; // a later segment
                }
                Operation::Write { token: stag, address: offset }
            }
            (Opcode::ReadRequest, _) => {
                let request = ReadRequest::parse(first.payload).unwrap();
                self.sinks.push_back(request.sink_offset);
                bytes = vec![0; request.size as usize];
                Operation::Read { token: request.source_stag, address: request.source_offset }
            }
            _ => return, // an answer, or a later segment
        };
        let buffer = self.host.register(bytes, Rights::LOCAL_WRITE);
        let list: &[Sge] = if buffer.length == 0 { &[] } else { &[buffer.all()] };
        self.host.post(7, operation, Flags::NONE, list).unwrap();
    }

    fn start(&mut self, unit: &Unit, units: &[Unit]) {
        let own = parse(unit);
        let mut limits = own.enhanced.map_or(ReadLimits { inbound: 8, outbound: 8 }, |word| {
            ReadLimits { inbound: word.ird.into(), outbound: word.ord.into() }
        });
        if self.client {
            if own.enhanced.is_some_and(|word| word.peer_to_peer) && limits.outbound == 1 {
                // The slot may be the ready-to-receive frame's alone.
                let reads = |unit: &Unit| {
                    unit.from_client && !unit.start_up && segment(unit).0 == Opcode::ReadRequest
                };
                limits.outbound = u32::from(units.iter().any(reads));
            }
            self.host.connector.bind().unwrap();
            let private = own.private.len();
            let Host { connector, queue_pair, .. } = &mut self.host;
            let (execution, limits) = connector.connect(queue_pair, 1, limits, private).unwrap();
            self.host.with(NOW, |_, link, _, cx| {
                link.unwrap().connect(cx, execution, limits, own.private).unwrap();
            });
        } else {
            assert_eq!(self.host.connector.state(), ConnectorState::Requested, "{}", self.name);
            let reject = own.has(mpa::REJECT);
            self.host.with(NOW, |connector, link, queue_pair, cx| {
                if reject {
                    connector.reject(cx, link, own.private).unwrap();
                } else {
                    connector.accept(cx, link, queue_pair, 2, limits, own.private).unwrap();
                }
            });
        }
    }

    /// Receive a frame of the peer, with this side's tokens.
    fn hear(&mut self, unit: &Unit) {
        let bytes = if unit.start_up { unit.bytes.clone() } else { self.renamed(unit) };
        if unit.start_up && !self.client {
            self.host.listener.bind().unwrap();
            self.host.listener.listen(0).unwrap();
            self.host.listener.take_request(&mut self.host.connector, 0, 3).unwrap();
        }
        if self.host.queue_pair.outstanding().1 < 8 {
            self.host.post_receive(8, &[self.receives.all()]).unwrap();
        }
        let received = self.host.receive(NOW, &bytes);
        assert_eq!(received.consumed, bytes.len(), "{}, client {}", self.name, self.client);
        assert!(!received.read_paused, "{}", self.name);
        if self.host.connector.state() == ConnectorState::Replied {
            self.host.with(NOW, |c, link, _, cx| c.complete_connect(cx, link)).unwrap();
        }
    }

    fn renamed(&mut self, unit: &Unit) -> Vec<u8> {
        let (opcode, mut segment) = segment(unit);
        let token = |stag: &u32| self.tokens.get(stag).copied().unwrap_or(*stag);
        match (opcode, &mut segment.target) {
            (Opcode::Write, Target::Tagged { stag, .. }) => *stag = token(stag),
            (Opcode::ReadResponse, Target::Tagged { stag, offset }) => {
                let begin = *self.sinks.front().unwrap();
                (*stag, *offset) = (SINK, *offset - begin);
                if segment.last {
                    self.sinks.pop_front();
                }
            }
            (Opcode::ReadRequest, _) => {
                let request = ReadRequest::parse(segment.payload).unwrap();
                let source_stag = token(&request.source_stag);
                if let Some(answer) = self.answers.pop_front() {
                    let _ = transom_core::HostMemory::write(
                        &self.host.arena,
                        request.source_offset,
                        &answer,
                    );
                }
                let request = ReadRequest { source_stag, ..request };
                return rebuilt(unit, &segment, &request.to_bytes());
            }
            (Opcode::Terminate, _) => self.refused = true,
            _ => {}
        }
        let payload = segment.payload;
        rebuilt(unit, &segment, payload)
    }
}

#[test]
fn each_side_of_each_session_does_what_siw_did() {
    let (mut sides, mut frames, mut completions) = (0, 0, 0);
    for session in &transom_testing::captures::siw().unwrap() {
        for client in [true, false] {
            if let Some(player) = Player::new(session, client) {
                let (said, completed) = player.play();
                (sides, frames, completions) = (sides + 1, frames + said, completions + completed);
            }
        }
    }
    // 34 connections with both sides, but for one that asks for markers, one whose own Read is
    // refused by its own side, and one that was refused by TCP before MPA.
    assert_eq!(sides, 66);
    assert!(frames > 700, "{frames} frames");
    assert!(completions > 700, "{completions} completions");
}
