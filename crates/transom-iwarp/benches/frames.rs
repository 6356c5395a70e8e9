//! Nanoseconds per frame: `cargo bench -p transom-iwarp`. No thresholds; for comparing.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Instant;

use transom_iwarp::{Config, Stream};
use transom_wire::{
    Begin, Message, MessageId, Payload, ReadLimits, Receiving, Release, Role, Sending, StartUp,
    Time,
};

const NOW: Time = Time(1);

fn carry(from: &mut Stream, to: &mut Stream) {
    let mut bytes = Vec::new();
    while let Some(frame) = from.next_frame(NOW) {
        let start = bytes.len();
        bytes.extend_from_slice(frame.header());
        bytes.resize(bytes.len() + usize::from(frame.back), 0);
        from.seal(&frame, &mut bytes[start..]);
    }
    let mut at = 0;
    while at < bytes.len() {
        at += to.decode(NOW, &bytes[at..]).unwrap().consumed;
    }
}

fn connected(checksum: bool, extension: bool) -> (Stream, Stream) {
    let config = |role| Config {
        checksum,
        extension,
        hold: std::time::Duration::ZERO,
        verdict_reads: false,
        ..Config::new(role)
    };
    let mut active = Stream::new(config(Role::Active), NOW);
    let mut passive = Stream::new(config(Role::Passive), NOW);
    let limits = ReadLimits { inbound: 4, outbound: 4 };
    active.connect(NOW, limits, b"").unwrap();
    carry(&mut active, &mut passive);
    passive.accept(NOW, limits, b"").unwrap();
    carry(&mut passive, &mut active);
    active.confirm(NOW).unwrap();
    active.receives_posted(NOW, 1 << 30, false);
    passive.receives_posted(NOW, 1 << 30, false);
    carry(&mut active, &mut passive);
    carry(&mut passive, &mut active);
    (active, passive)
}

fn run(size: usize, checksum: bool, extension: bool) {
    let (mut active, mut passive) = connected(checksum, extension);
    let payload = vec![7u8; size];
    let mut out = Vec::with_capacity(1 << 20);
    let rounds = 20_000_000 / (size + 2000);
    let (mut sending, mut receiving) = (0, 0);
    let mut id = 0;
    for _ in 0..rounds / 16 {
        out.clear();
        let start = Instant::now();
        for _ in 0..16 {
            let length = u32::try_from(size).unwrap();
            let message =
                Message::Write { token: 7, address: 0, length, verdict: false, immediate: None };
            assert_eq!(active.begin(NOW, MessageId(id), &message), Begin::Started);
            id += 1;
            while let Some(frame) = active.next_frame(NOW) {
                let at = out.len();
                out.extend_from_slice(frame.header());
                if frame.payload != Payload::None {
                    out.extend_from_slice(&payload[..frame.length as usize]);
                }
                match active.trailer(&frame) {
                    Some(end) => out.extend_from_slice(&end.bytes[..usize::from(end.length)]),
                    None => {
                        out.resize(out.len() + usize::from(frame.back), 0);
                        active.seal(&frame, &mut out[at..])
                    }
                }
            }
        }
        sending += start.elapsed().as_nanos();
        let start = Instant::now();
        let mut at = 0;
        while at < out.len() {
            let decoded = black_box(passive.decode(NOW, &out[at..]).unwrap());
            at += decoded.consumed;
            if matches!(decoded.event, Some(transom_wire::Event::Write { last: true, .. })) {
                passive.executed(NOW);
            }
        }
        receiving += start.elapsed().as_nanos();
        passive.release(Release::Now);
        carry(&mut passive, &mut active);
    }
    let each = |nanos: u128| nanos as f64 / (rounds / 16 * 16) as f64;
    println!(
        "write {size:>6} B  crc {checksum:<5}  extension {extension:<5}  send {:>8.1} ns  receive {:>8.1} ns",
        each(sending),
        each(receiving)
    );
}

fn main() {
    for size in [8, 1024, 65_460, 200_000] {
        for (checksum, extension) in [(true, false), (false, false), (true, true), (false, true)] {
            run(size, checksum, extension);
        }
    }
}
