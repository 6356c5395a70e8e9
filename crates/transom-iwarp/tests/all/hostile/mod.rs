//! The hostile-input checklist of iW 14, a test per line, named after it. The rules of
//! `docs/rules/iwarp.md` say which lines are held elsewhere.

mod floods;
mod framing;
mod headers;
mod refusals;
mod start_up;

use std::time::Duration;

use crate::common::{self, Got, Pair, Side, hex, terminate_code};
use transom_iwarp::{Config, Ready, Stream, fpdu, mpa};
use transom_wire::{Blame, ReadLimits, Receiving, RefusalClass, Role, Sending, StartUp};

/// An FPDU with a right checksum.
fn frame(header: &str, payload: &[u8]) -> Vec<u8> {
    let ulpdu = [&hex(header)[..], payload].concat();
    raw(&ulpdu)
}

fn raw(ulpdu: &[u8]) -> Vec<u8> {
    let length = u16::try_from(ulpdu.len()).unwrap();
    let mut bytes = [&length.to_be_bytes()[..], ulpdu].concat();
    fpdu::seal(&mut bytes, 0, true);
    bytes
}

/// A plain passive side that has been connected to, and has shown everything so far.
fn peer() -> Side {
    peer_with(|config| config)
}

fn peer_with(change: fn(Config) -> Config) -> Side {
    let plain = |role| change(Config { extension: false, ..Config::new(role) });
    let mut pair = Pair::connected(plain(Role::Active), plain(Role::Passive));
    pair.passive.taken();
    pair.passive
}

/// The stream ended with this Terminate; nothing came out.
fn refused(side: &mut Side, code: (u8, u8, u8)) {
    assert_eq!(side.taken(), []);
    assert!(side.violation.is_some());
    let said = side.talk();
    assert_eq!(terminate_code(&said), Some(code));
    // Once, and nothing after it (RFC 5040 7.1).
    assert_eq!(side.talk(), b"");
    assert!(!side.wire.has_output());
    assert!(side.wire.facts().is_some(), "what was agreed stays known");
    // Later bytes are thrown away.
    let late = frame("4143 00000000 00000000 00000001 00000000", b"late");
    assert_eq!(side.wire.decode(side.now, &late).unwrap().consumed, late.len());
}

const SEND_1: &str = "4143 00000000 00000000 00000001 00000000";

const WRITE: &str = "c140 00012a07 0000000000001000";

fn with_byte(header: &str, at: usize, byte: u8) -> String {
    let mut bytes = hex(header);
    bytes[at] = byte;
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Refuse the next Send, Write or Read.
fn refuse(side: &mut Side, class: RefusalClass) {
    side.refuse = Some((|_| true, class, ""));
}

fn read_request(number: u32, size: u32, source: u64) -> Vec<u8> {
    let mut payload = hex("00000500 0000000000001000");
    payload.extend_from_slice(&size.to_be_bytes());
    payload.extend_from_slice(&hex("00012a07"));
    payload.extend_from_slice(&source.to_be_bytes());
    frame(&format!("4141 00000000 00000001 {number:08x} 00000000"), &payload)
}

fn told(class: RefusalClass, bytes: &[u8]) -> (u8, u8, u8) {
    let mut side = peer();
    refuse(&mut side, class);
    side.feed(bytes);
    assert_eq!(side.taken(), []);
    terminate_code(&side.talk()).unwrap()
}

fn passive() -> Side {
    Side::new(Config::new(Role::Passive))
}

fn request(rest: &str) -> Vec<u8> {
    [&mpa::REQUEST_KEY[..], &hex(rest)].concat()
}

fn reply(rest: &str) -> Vec<u8> {
    [&mpa::REPLY_KEY[..], &hex(rest)].concat()
}

/// An active side that waits for its Reply.
fn waiting() -> Side {
    let mut side = Side::new(Config::new(Role::Active));
    side.wire.connect(side.now, common::LIMITS, b"").unwrap();
    side.talk();
    side
}

/// The stream has ended without a word and without an event.
fn closed_silently(mut side: Side, blame: Blame) {
    assert_eq!(side.violation.as_ref().unwrap().blame, blame);
    assert_eq!(side.taken(), []);
    assert_eq!(side.talk(), b"");
    assert!(!side.wire.has_output());
    assert_eq!(side.wire.deadline(), None);
    assert!(side.wire.facts().is_none());
}
