//! Where fuzzing begins: inputs that are understood, one for each thing that can be said.

use transom::{Grant, Rights};
use transom_iwarp::ddp::Target;
use transom_iwarp::extension::{Ack, Announce, Refused};
use transom_iwarp::mpa::{self, Enhanced, FrameKind, StartUp};
use transom_iwarp::rdmap::{self, Opcode, ReadRequest};
use transom_iwarp::terminate::{About, Terminate};
use transom_iwarp::{TerminateForm, fpdu};
use transom_process::record::{self, Header, RecordKind as Record};
use transom_winsock_direct::descriptor::Descriptor;
use transom_wire::{Operation, RefusalClass};

use crate::mutate::Dice;
use crate::{start_up, stream, upgrade};

/// The inputs of each target, and how the names of their files begin.
#[must_use]
pub fn all() -> Vec<(&'static str, &'static str, Vec<Vec<u8>>)> {
    vec![
        ("stream", "", recorded()),
        ("stream", "forged", crate::forged::sessions()),
        ("start_up", "", start_ups()),
        ("talk", "", talks()),
        ("rings", "", rings()),
        ("descriptors", "", descriptors()),
        ("upgrade", "", upgrades()),
        ("segment", "", segments()),
    ]
}

/// Each side of the recorded sessions of siw that are at most 4,000 bytes long.
fn recorded() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for session in transom_testing::captures::siw().unwrap_or_default() {
        if session.turns.iter().map(|turn| turn.bytes.len()).sum::<usize>() > 4000 {
            continue;
        }
        for from_client in [true, false] {
            let bytes = session.bytes(from_client);
            let role = if from_client { 0 } else { stream::ACTIVE };
            let ready = if session.name.contains("strict") { stream::PEER_TO_PEER } else { 0 };
            for more in [0, stream::REFUSE, stream::SILENT] {
                seeds.push([&[role | ready | more, 200][..], &bytes].concat());
            }
        }
    }
    seeds
}

pub(crate) fn frame(segment: &transom_iwarp::ddp::Segment<'_>, payload: &[u8]) -> Vec<u8> {
    let header = segment.header();
    let length = (header.as_ref().len() + payload.len()) as u16;
    let mut out = [&length.to_be_bytes()[..], header.as_ref(), payload].concat();
    fpdu::seal(&mut out, 0, true);
    out
}

fn untagged(opcode: Opcode, queue: u32, number: u32, payload: &[u8]) -> Vec<u8> {
    let target = Target::Untagged { ulp: 0, queue, number, offset: 0 };
    frame(&rdmap::segment(opcode, true, target), payload)
}

fn tagged(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let target = Target::Tagged { stag: 0x1234, offset: 0x5000 };
    frame(&rdmap::segment(opcode, true, target), payload)
}

const READ: ReadRequest =
    ReadRequest { sink_stag: 1, sink_offset: 2, size: 300, source_stag: 3, source_offset: 4 };

/// Frames as they may follow start-up.
fn frames() -> Vec<u8> {
    [
        tagged(Opcode::Write, &[]),
        untagged(Opcode::Send, 0, 1, &[7; 40]),
        untagged(Opcode::ReadRequest, 1, 1, &READ.to_bytes()),
        tagged(Opcode::Write, &[9; 100]),
    ]
    .concat()
}

fn start_ups() -> Vec<Vec<u8>> {
    let word = |peer_to_peer, write, read, limit| {
        Some(Enhanced { peer_to_peer, send: true, write, read, ird: limit, ord: limit })
    };
    let words = [
        None,
        word(false, false, false, 4),
        word(true, true, true, 4),
        word(true, false, true, mpa::UNLIMITED),
        word(true, true, false, 0),
        word(true, false, false, 1),
    ];
    let flags = [0, mpa::CHECKSUM, mpa::MARKERS, mpa::MARKERS | mpa::CHECKSUM, mpa::REJECT];
    let options =
        [0, stream::CHECKSUM | stream::PEER_TO_PEER, stream::EXTENSION | 16, stream::REFUSE];
    let mores = [0, start_up::DISORDER, start_up::LATE | start_up::OPEN, start_up::OLDER];
    let mut seeds = Vec::new();
    let mut at = 0_usize;
    for kind in [FrameKind::Request, FrameKind::Reply] {
        let (role, extra) = match kind {
            FrameKind::Request => (0, [0, mpa::OFFER, mpa::OFFER | mpa::NO_READS]),
            FrameKind::Reply => (stream::ACTIVE, [0, mpa::ACCEPT, mpa::OFFER]),
        };
        for enhanced in words {
            for flags in flags {
                at += 1;
                let more = mores[at % 4] | if at.is_multiple_of(7) { start_up::SIW } else { 0 };
                let private = &[0x44; 600][..[0, 5, 508, 20][at % 4]];
                let s = if enhanced.is_some() { mpa::ENHANCED } else { 0 };
                let revision = if enhanced.is_some() { 2 } else { 1 };
                let flags = flags | s | extra[at % 3];
                let said = StartUp { kind, flags, revision, enhanced, private };
                let mut bytes = vec![role | options[at % 4], more, (at % 5) as u8 * 63, 200];
                said.write(&mut bytes);
                bytes.extend(frames());
                seeds.push(bytes);
            }
        }
    }
    // Over records: Request, Reply, Reject and Ready.
    for (role, kinds) in [(0, [1, 4, 7]), (1, [2, 7, 6]), (1, [3, 0, 0]), (0, [1, 7, 10])] {
        for more in [0, start_up::DISORDER, start_up::LATE] {
            let mut bytes = vec![role, start_up::PROCESS | more, 30, 200];
            for kind in kinds.into_iter().filter_map(record::RecordKind::from_number) {
                let header =
                    Header { address: 4, token: 4, length: 5, flags: 1, ..Header::new(kind) };
                bytes.extend(record::to_bytes(header.words()));
                bytes.extend([0x33; 5]);
            }
            seeds.push(bytes);
        }
    }
    // The link ends without a word, or with half of one.
    for role in [0, 1] {
        seeds.push(vec![role, start_up::LATE, 0, 1, b'M', b'P', b'A']);
    }
    seeds
}

/// Programs of steps, see `talk`.
fn talks() -> Vec<Vec<u8>> {
    let mut dice = Dice(0x7461_6c6b);
    let mut seeds = Vec::new();
    for number in 0..96_usize {
        // A start that comes about, most of the time; then traffic.
        let mut input = vec![(number % 4) as u8];
        input.extend([(); 4].map(|()| dice.roll(256) as u8));
        input.extend([0x44, (number % 3) as u8 * 40, 4, 4, 4 + 0xC0, 0x86, 15]);
        for step in 0..40 {
            let trouble = number % 3 == 0 && step > 10;
            let what = match dice.roll(if trouble { 24 } else { 16 }) {
                0..=5 => dice.roll(3),
                6 | 7 => 3,
                8 | 9 => 4,
                10 => 6,
                11 => 7,
                12 => 8,
                13 => 9,
                14 => 13,
                15 => 15,
                _ if dice.roll(3) == 0 => 10 + dice.roll(5),
                _ => 4,
            };
            let when =
                if what == 6 { dice.roll(if trouble { 8 } else { 5 }) } else { dice.roll(8) };
            input.push((what | dice.roll(2) << 4 | when << 5) as u8);
            let more = if what == 10 { 2 } else { usize::from(matches!(what, 0..=3 | 9 | 11)) };
            for _ in 0..more {
                input.push(dice.roll(256) as u8);
            }
        }
        input.extend([15, 6, 15, 4]);
        seeds.push(input);
    }
    seeds
}

fn rings() -> Vec<Vec<u8>> {
    let mut dice = Dice(0x7269_6e67);
    let mut seeds = Vec::new();
    for number in 0..48_usize {
        let active = number % 2;
        let mut input = vec![(active | dice.roll(2) << 1 | (number % 5 / 4) << 3) as u8];
        // Request and Ready, or Reply.
        let step = |kind| (0..=255_u8).find(|s| s % 8 < 4 && s % 13 == kind).unwrap_or(0);
        let begin = if active == 1 { vec![2] } else { vec![1, 4] };
        begin.into_iter().for_each(|kind| input.extend([step(kind), 1, 0, 0, 4, 4, 0]));
        for _ in 0..30 {
            let step = dice.roll(256) as u8;
            let step = if dice.roll(3) > 0 { step & !4 } else { step };
            input.push(step);
            let more = match step % 8 {
                0..=3 => 6,
                4 => 32,
                5 => 10,
                6 => 8,
                _ => 0,
            };
            for _ in 0..more {
                let few = dice.roll(4) > 0;
                input.push(dice.roll(if few { 12 } else { 256 }) as u8);
            }
        }
        seeds.push(input);
    }
    seeds.extend(rules_of_records());
    seeds
}

/// Steps of `segment`: an honest part, then one in which the other process writes words.
fn segments() -> Vec<Vec<u8>> {
    let mut dice = Dice(0x7365_676d);
    let mut seeds = Vec::new();
    for number in 0..48_usize {
        let mut input = vec![(number % 2) as u8, dice.roll(256) as u8];
        let honest = [0, 3, 6, 7, 8, 9, 10, 13, 14, 15];
        let steps = 20 + dice.roll(40);
        for at in 0..steps {
            let kind = if number >= 24 && at > steps / 2 {
                dice.roll(16)
            } else {
                let last = if at + 4 > steps { honest.len() } else { 5 };
                honest[dice.roll(last)]
            };
            let kind = if at == 6 { 8 } else { kind };
            input.extend([(kind | dice.roll(8) << 5) as u8, dice.roll(256) as u8]);
            if kind == 13 || kind == 11 {
                (0..9).for_each(|_| input.push(dice.roll(256) as u8));
            }
        }
        seeds.push(input);
    }
    seeds
}

/// A step of `rings`: a record of that kind.
fn step(kind: Record, flags: u8, address: u8, token: u8, length: u32) -> [u8; 7] {
    // The upper half of a step shifts the length.
    let fits = |s: &u8| {
        let least = length >> (s >> 4) << (s >> 4) == length && length >> (s >> 4) < 256;
        s % 8 < 4 && s % 13 == kind as u8 && least
    };
    let step = (0..=255).find(fits).unwrap();
    [step, flags, 0, 0, address, token, (length >> (step >> 4)) as u8]
}

/// Each rule of the records kept and broken: what comes first, and what then may come or not.
fn rules_of_records() -> Vec<Vec<u8>> {
    const LAST: u8 = record::LAST;
    let write = |address, length, flags| step(Record::Write, flags, address, 1, length);
    let announce = |length| step(Record::Announce, 0, 0, 1, length);
    let send = |length, flags| step(Record::Send, flags, 0, 0, length);
    let read = |length| step(Record::Read, LAST, 0, 1, length);
    let answer = |length, flags| step(Record::Answer, flags, 0, 0, length);
    let befores = [
        vec![],
        vec![announce(100), write(0, 40, 0)],
        vec![send(40, 0)],
        vec![write(0, 8, LAST), answer(32, 0)],
        vec![send(8, LAST); 7],
        vec![read(255 << 12); 4],
    ];
    let nexts = [
        vec![write(40, 60, LAST)],
        vec![write(0, 60, LAST)],
        vec![write(40, 62, LAST)],
        vec![write(40, 60, 0)],
        vec![write(40, 20, LAST)],
        vec![step(Record::Write, LAST, 40, 2, 60)],
        vec![write(0, 8, 0)],
        vec![announce(60), write(0, 60, LAST)],
        vec![announce(0)],
        vec![send(8, LAST), send(8, LAST)],
        vec![send(8, LAST | record::SOLICITED)],
        vec![send(0, 0)],
        vec![read(8)],
        vec![read(0)],
        vec![answer(32, LAST)],
        vec![answer(33, LAST)],
        vec![answer(64, LAST)],
        vec![answer(66, LAST)],
        vec![step(Record::Request, 0, 4, 4, 0)],
        vec![step(Record::Ready, 0, 0, 0, 0)],
        vec![write(40, 60, LAST | record::ELSEWHERE), send(8, LAST | record::ELSEWHERE)],
    ];
    // A word, and a record behind which it is read.
    let (word, first) = ([6 | 32, 1, 0, 0, 0, 8, 0, 0, 0], step(Record::Request, 0, 4, 4, 0));
    let begin = [first, step(Record::Ready, 0, 0, 0, 0)].concat();
    let mut seeds = vec![[&[2][..], &begin, &word, &write(0, 8, LAST)].concat()];
    for (number, next) in nexts.iter().enumerate() {
        for (other, before) in befores.iter().enumerate() {
            let active = (number + other) % 2 == 1;
            let begin = if active {
                vec![step(Record::Reply, 0, 4, 4, 0)]
            } else {
                vec![step(Record::Request, 0, 4, 4, 0), step(Record::Ready, 0, 0, 0, 0)]
            };
            let options = u8::from(active) | (u8::from(number / 2 % 2 == 1) << 1);
            seeds.push([&[options][..], &[&begin[..], before, next].concat().concat()].concat());
        }
    }
    seeds
}

/// Offers at an upgrade socket, see `upgrade`.
fn upgrades() -> Vec<Vec<u8>> {
    let mut dice = Dice(0x646f_6f72);
    let mut seeds = Vec::new();
    for number in 0..48_usize {
        let mut input = vec![if number % 3 == 0 { 0 } else { upgrade::OTHERS }];
        for _ in 0..30 {
            let who = dice.roll(4) as u8;
            let say = |input: &mut Vec<u8>, dice: &mut Dice| {
                let form = if dice.roll(3) == 0 { dice.roll(8) } else { 4 } + dice.roll(2) * 128;
                input.extend([form as u8, dice.roll(8) as u8]);
                input.extend([(); 3].map(|()| dice.roll(256) as u8).iter().take(form % 2));
            };
            match number % 5 {
                // A guest comes, says something at once, and is asked for.
                0 | 1 => {
                    input.push(2 | who << 3);
                    say(&mut input, &mut dice);
                    input.extend([4, dice.roll(8) as u8]);
                }
                // Some come, some speak, time passes.
                2 => {
                    input.extend([who << 3, who << 3, 1 | (dice.roll(3) as u8) << 3]);
                    say(&mut input, &mut dice);
                    input.extend([3 | (dice.roll(12) as u8) << 3, 5, dice.roll(8) as u8]);
                }
                // Bytes over TCP.
                3 => {
                    input.push(6 | (dice.roll(32) as u8) << 3);
                    input.extend([(); 5].map(|()| dice.roll(256) as u8));
                    input.extend([
                        7,
                        dice.roll(3) as u8,
                        dice.roll(32) as u8,
                        dice.roll(256) as u8,
                    ]);
                }
                // Many offers, one of which is claimed.
                _ => {
                    input.extend([0; 12]);
                    input.push(1);
                    say(&mut input, &mut dice);
                    input.extend([4, dice.roll(8) as u8]);
                }
            }
        }
        seeds.push(input);
    }
    seeds
}

fn descriptors() -> Vec<Vec<u8>> {
    let with = |what: u8, bytes: &[u8]| [&[what][..], bytes].concat();
    let mut seeds = Vec::new();
    for rights in [Rights::NONE, Rights::READ, Rights::WRITE, Rights::READ | Rights::WRITE] {
        seeds.push(with(0, &Grant::from_parts(7, 0x1000, 4096, rights).to_bytes()));
    }
    seeds.push(with(0, &Grant::from_parts(7, 8, 8, Rights::ATOMIC).to_bytes()));
    seeds.push(with(0, &Grant::from_parts(7, u64::MAX, 1, Rights::READ).to_bytes()));
    seeds.push(with(1, &Descriptor { token: 0xFEED, base: u64::MAX }.encode()));
    for kind in record::RecordKind::ALL {
        let detail = record::detail(Some(Operation::Read), Some(RefusalClass::Wrap));
        let header = Header { flags: 1, detail, length: 40, ..Header::new(kind) };
        seeds.push(with(2, &record::to_bytes(header.words())));
    }
    let enhanced = Some(Enhanced { peer_to_peer: true, ird: 3, ord: 4, ..Enhanced::default() });
    for (what, kind) in [(3, FrameKind::Request), (4, FrameKind::Reply)] {
        for (revision, flags, enhanced) in
            [(1, 0, None), (2, mpa::ENHANCED, enhanced), (2, 0, None)]
        {
            let said = StartUp { kind, flags, revision, enhanced, private: b"private" };
            let mut bytes = vec![what];
            said.write(&mut bytes);
            seeds.push(bytes);
        }
    }
    let send = untagged(Opcode::Send, 0, 1, &[7; 40]);
    let write = tagged(Opcode::Write, &[9; 100]);
    for bytes in [&send, &write] {
        seeds.push(with(5, bytes));
        seeds.push(with(6, bytes));
    }
    for bits in 0..16 {
        let Some(opcode) = Opcode::from_bits(bits) else { continue };
        let one = if opcode.tagged() { tagged(opcode, b"x") } else { untagged(opcode, 0, 1, b"x") };
        seeds.push(with(7, &one[2..]));
    }
    let announce = Announce { token: 1, address: 2, length: 3 }.header();
    let refused = Refused {
        operation: Operation::Write,
        class: RefusalClass::Bounds,
        number: 1,
        offset: 0,
        text: b"no",
        last: true,
    };
    let ack =
        Ack { executed: 1, credits: 2, shared: true, wanted: true, extended: true, none: false };
    seeds.push(with(7, ack.header().as_ref()));
    seeds.push(with(7, &[announce.as_ref(), &8_u64.to_be_bytes()].concat()));
    seeds.push(with(7, &[refused.header().as_ref(), b"no"].concat()));
    let about =
        About { length: 46, length_valid: true, header: &send[2..20], request: &READ.to_bytes() };
    for form in [TerminateForm::Rfc, TerminateForm::Siw] {
        for about in [None, Some(about), Some(About { request: &[], ..about })] {
            for code in [(0, 1, 2), (1, 2, 5), (2, 0, 6)] {
                let (bytes, length) = Terminate { code, about }.to_bytes(form);
                seeds.push(with(8, &[&[0], &bytes[..length]].concat()));
            }
        }
    }
    seeds.push(with(9, &READ.to_bytes()));
    seeds.push(with(9, &[5; 52]));
    seeds.push(with(9, &[5; 12]));
    seeds
}
