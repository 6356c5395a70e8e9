//! Sessions of a peer that breaks one rule each, behind a start-up that is right: what mutations of
//! honest bytes come to rarely.

use transom_iwarp::ddp::Target;
use transom_iwarp::extension::{Ack, Announce};
use transom_iwarp::mpa::{self, FrameKind, StartUp};
use transom_iwarp::rdmap::{self, Opcode, ReadRequest};

use crate::seeds::frame;
use crate::stream::{EXTENSION, FAIL};

const STAG: u32 = 0x1234;
const AT: u64 = 0x5000;

fn write(stag: u32, offset: u64, payload: &[u8], last: bool) -> Vec<u8> {
    frame(&rdmap::segment(Opcode::Write, last, Target::Tagged { stag, offset }), payload)
}

fn answer(stag: u32, offset: u64, payload: &[u8], last: bool) -> Vec<u8> {
    frame(&rdmap::segment(Opcode::ReadResponse, last, Target::Tagged { stag, offset }), payload)
}

fn send(number: u32, offset: u32, payload: &[u8], last: bool) -> Vec<u8> {
    let target = Target::Untagged { ulp: 0, queue: 0, number, offset };
    frame(&rdmap::segment(Opcode::Send, last, target), payload)
}

fn read(source_offset: u64) -> Vec<u8> {
    let asked =
        ReadRequest { sink_stag: 1, sink_offset: 2, size: 300, source_stag: 3, source_offset };
    let target = Target::Untagged { ulp: 0, queue: 1, number: 1, offset: 0 };
    frame(&rdmap::segment(Opcode::ReadRequest, true, target), &asked.to_bytes())
}

/// A header of the extension's, as a whole frame.
fn extra(header: &[u8], payload: &[u8]) -> Vec<u8> {
    let bytes = [header, payload].concat();
    transom_iwarp::ddp::Segment::parse(&bytes).map_or(Vec::new(), |s| frame(&s, s.payload))
}

fn announce(token: u32, address: u64, length: u32) -> Vec<u8> {
    let header = Announce { token, address, length }.header();
    // Behind its header an announcement has the address.
    extra(header.as_ref(), &[])
}

fn ack(executed: u32, credits: u32) -> Vec<u8> {
    extra(
        Ack { executed, credits, shared: false, wanted: true, extended: true, none: false }
            .header()
            .as_ref(),
        &[],
    )
}

/// Inputs of `stream`.
pub(crate) fn sessions() -> Vec<Vec<u8>> {
    let piece = [0x55; 100];
    let begun = write(STAG, AT, &piece, false);
    let whole = send(1, 0, b"hello", true);
    // From a plain peer: a Write that is interrupted, goes on elsewhere, or wraps; a Send too long;
    // a read that wraps; answers that match no read, or the wrong place of one.
    let plain = [
        [&begun[..], &send(1, 0, b"hello", true)].concat(),
        [&begun[..], &write(STAG + 1, AT + 100, &piece, true)].concat(),
        [&begun[..], &write(STAG, AT + 99, &piece, true)].concat(),
        [&begun[..], &write(STAG, AT + 100, &piece, true)].concat(),
        write(STAG, u64::MAX - 10, &piece, true),
        [send(1, 0, &piece, false), begun.clone()].concat(),
        [send(1, 0, &piece, false), send(1, u32::MAX - 5, &piece, true)].concat(),
        [send(1, 0, &piece, false), send(1, 90, &piece, true)].concat(),
        [send(1, 0, &piece, false), send(1, 100, &piece, true)].concat(),
        read(u64::MAX - 10),
        [&whole[..], &answer(1, 0, &[7; 64], true)].concat(),
        [&whole[..], &answer(2, 0, &[7; 64], true)].concat(),
        [&whole[..], &answer(1, 1, &[7; 64], true)].concat(),
        [&whole[..], &answer(1, 0, &[7; 65], true)].concat(),
        [&whole[..], &answer(1, 0, &[7; 30], true)].concat(),
        [&whole[..], &answer(1, 0, &[7; 30], false), &answer(1, 30, &[7; 34], true)].concat(),
    ];
    // From a peer with the extension: announcements that are not kept, or wrap; several frames
    // without one; receives taken back, and work acknowledged that was never asked for.
    let extended = [
        begun.clone(),
        [&announce(STAG, AT, 200), &begun[..], &write(STAG, AT + 100, &piece, true)].concat(),
        [&announce(STAG, AT, 150), &begun[..], &write(STAG, AT + 100, &piece, true)].concat(),
        [&announce(STAG, AT, 300), &begun[..], &write(STAG, AT + 100, &piece, true)].concat(),
        [&announce(STAG, AT, 200)[..], &write(STAG + 1, AT, &piece, false)].concat(),
        [&announce(STAG, AT, 200)[..], &whole].concat(),
        [announce(STAG, AT, 200), announce(STAG, AT, 200)].concat(),
        [&begun[..], &announce(STAG, AT, 200)].concat(),
        announce(STAG, u64::MAX - 10, 200),
        [ack(0, 9), ack(0, 3)].concat(),
        [ack(0, 9), ack(1, 9), ack(2, 12)].concat(),
        ack(100, 1),
    ];
    // And one of each that does nothing wrong, to a side that fails.
    let honest = [whole, write(STAG, AT, &piece, true)].concat();
    let mut inputs = Vec::new();
    for (list, options, flags) in [(&plain[..], 0, 0), (&extended[..], EXTENSION, mpa::OFFER)] {
        let fails = FAIL | options;
        for (frames, options) in list.iter().map(|f| (f, options)).chain([(&honest, fails)]) {
            let said = StartUp {
                kind: FrameKind::Request,
                flags,
                revision: 1,
                enhanced: None,
                private: b"",
            };
            let mut input = vec![options, 200];
            said.write(&mut input);
            input.extend_from_slice(frames);
            inputs.push(input);
        }
    }
    inputs
}
