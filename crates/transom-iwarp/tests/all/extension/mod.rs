//! Transom's extension: absent unless both sides know it; acknowledgements, announcements, credits,
//! refusals.
mod acknowledgements;
mod announcements;
mod atomics;
mod credits;
mod immediate;
mod refusals;
mod targets;
mod whole;
mod words;

use std::time::Duration;

use crate::common::{self, Got, LIMITS, Pair, Side};
use transom_iwarp::extension::{Ack, Extra};
use transom_iwarp::rdmap::Opcode;
use transom_iwarp::rfc7306::{AtomicRequest, AtomicResponse};
use transom_iwarp::{Config, ddp::Segment, fpdu, mpa};
use transom_wire::{
    Atomic, Event, Immediate, Message, Operation, Receiving, RefusalClass, Release, Role, Sending,
    StartUp, Verdicts, Waiting,
};

/// The frames in `bytes`: acknowledgements as such, others by opcode.
#[derive(Debug, PartialEq, Eq)]
enum Frame {
    Ack(Ack),
    Announce(u32, u64, u32),
    Refusal(String),
    Immediate(Immediate),
    Target(u32),
    Other(Opcode),
}

fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (ulpdu, used) = fpdu::parse(bytes, true).unwrap().unwrap();
        bytes = &bytes[used..];
        let segment = Segment::parse(ulpdu).unwrap();
        let opcode = transom_iwarp::rdmap::opcode(segment.control).unwrap();
        frames.push(if opcode == Opcode::Experimental {
            match Extra::parse(segment.target, segment.last, segment.payload).unwrap() {
                Extra::Ack(ack) => Frame::Ack(ack),
                Extra::Announce(write) => Frame::Announce(write.token, write.address, write.length),
                Extra::Immediate(immediate) => Frame::Immediate(immediate),
                Extra::Target(number) => Frame::Target(number),
                Extra::Refusal(refused) => {
                    Frame::Refusal(String::from_utf8_lossy(refused.text).into_owned())
                }
            }
        } else {
            Frame::Other(opcode)
        });
    }
    frames
}

fn ack(executed: u32, credits: u32) -> Frame {
    Frame::Ack(Ack { executed, credits, shared: false, wanted: false, extended: true, none: false })
}

/// Two Transoms that owe each other nothing, with 1000 receives each.
fn quiet() -> Pair {
    let mut pair = Pair::transoms();
    pair.settle();
    pair.active.taken();
    pair.passive.taken();
    pair
}

fn extra(header: &str, payload: &[u8]) -> Vec<u8> {
    let ulpdu = [&common::hex(header)[..], payload].concat();
    let mut bytes = [&u16::try_from(ulpdu.len()).unwrap().to_be_bytes()[..], &ulpdu].concat();
    fpdu::seal(&mut bytes, 0, true);
    bytes
}

fn extension_fault(mut side: Side, bytes: &[u8]) {
    side.feed(bytes);
    assert_eq!(side.taken(), []);
    assert_eq!(side.violation.as_ref().map(|violation| violation.rule), Some("Transom extension"));
    assert_eq!(common::terminate_code(&side.talk()), Some((0, 2, 0xFF)));
}

fn with_immediate(length: u32, value: u32, solicited: bool) -> Message {
    let immediate = Some(Immediate { value, solicited });
    Message::Write { token: 7, address: 0x1000, length, verdict: true, immediate }
}

// ---- agreement ------------------------------------------------------------------------------------

#[test]
fn it_is_used_only_if_both_sides_know_it() {
    for (offer, accept) in [(true, true), (true, false), (false, true), (false, false)] {
        let config = |role, extension| Config { extension, ..Config::new(role) };
        let pair = Pair::connected(config(Role::Active, offer), config(Role::Passive, accept));
        for side in [&pair.active, &pair.passive] {
            let facts = side.wire.facts().unwrap();
            assert_eq!(facts.extension, offer && accept);
            let expected =
                if offer && accept { Verdicts::Acknowledged } else { Verdicts::ProbedByRead };
            assert_eq!(facts.verdicts, expected);
        }
    }
}

#[test]
fn a_peer_that_mirrors_reserved_bits_does_not_accept_by_that() {
    // siw answers a Request with the Request's own flag byte (iW 9.3).
    let mut active = Side::new(Config::new(Role::Active));
    active.wire.connect(active.now, LIMITS, b"").unwrap();
    let request = active.talk();
    assert_eq!(request[16] & 0x0F, mpa::OFFER);
    let mut reply = request.clone();
    reply[..16].copy_from_slice(&mpa::REPLY_KEY);
    reply[20..24].copy_from_slice(&common::hex("8004 8004"));
    active.feed(&reply);
    assert!(!active.wire.facts().unwrap().extension);
    // Nor does one that sets every bit there is.
    let mut active = Side::new(Config::new(Role::Active));
    active.wire.connect(active.now, LIMITS, b"").unwrap();
    active.talk();
    reply[16] |= 0x0F;
    active.feed(&reply);
    assert!(!active.wire.facts().unwrap().extension);
}

#[test]
fn the_passive_side_answers_with_another_bit_and_never_mirrors() {
    let mut passive = Side::new(Config::new(Role::Passive));
    let mut active = Side::new(Config::new(Role::Active));
    active.wire.connect(active.now, LIMITS, b"").unwrap();
    let mut request = active.talk();
    request[16] |= 0x09;
    passive.feed(&request);
    passive.wire.accept(passive.now, LIMITS, b"").unwrap();
    assert_eq!(passive.talk()[16] & 0x0F, mpa::ACCEPT);
}

#[test]
fn read_limits_are_the_programs_own() {
    // The Request counts a slot for verdicts that an accepted extension does not need.
    let mut pair = Pair::new(Config::new(Role::Active), Config::new(Role::Passive));
    pair.connect(LIMITS, LIMITS);
    assert!(pair.passive.got.contains(&Got::Request { limits: LIMITS, private: b"hello".into() }));
    assert!(
        pair.active.got.contains(&Got::Accepted { limits: LIMITS, private: b"welcome".into() })
    );
    assert_eq!(pair.active.wire.facts().unwrap().limits, LIMITS);
    assert_eq!(pair.passive.wire.facts().unwrap().limits, LIMITS);
}
