//! Transom's extension: absent unless both sides know it; acknowledgements, announcements, credits,
//! refusals.

use std::time::Duration;

use crate::common::{self, Got, LIMITS, Pair, Side};
use transom_iwarp::extension::{Ack, Extra};
use transom_iwarp::rdmap::Opcode;
use transom_iwarp::rfc7306::{AtomicRequest, AtomicResponse};
use transom_iwarp::{Config, ddp::Segment, fpdu, mpa};
use transom_wire::{
    Atomic, Event, Immediate, Message, Operation, RefusalClass, Role, Verdicts, Waiting, Wire,
};

/// The frames in `bytes`: acknowledgements as such, others by opcode.
#[derive(Debug, PartialEq, Eq)]
enum Frame {
    Ack(Ack),
    Announce(u32, u64, u32),
    Refusal(String),
    Immediate(Immediate),
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
    Frame::Ack(Ack { executed, credits, shared: false, wanted: false, extended: true })
}

/// Two Transoms that owe each other nothing, with 1000 receives each.
fn quiet() -> Pair {
    let mut pair = Pair::transoms();
    pair.settle();
    pair.active.taken();
    pair.passive.taken();
    pair
}

// ---- agreement ----------------------------------------------------------------------------------

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

// ---- acknowledgements ---------------------------------------------------------------------------

#[test]
fn an_owed_acknowledgement_rides_on_the_next_frame_before_its_data() {
    let mut pair = quiet();
    pair.active.send(b"ping");
    pair.passive.feed(&pair.active.talk());
    assert_eq!(pair.passive.talk(), b"", "alone, it waits");
    pair.passive.send(b"pong");
    let answer = pair.passive.talk();
    assert_eq!(frames(&answer), [ack(1, 1000), Frame::Other(Opcode::Send)]);
    pair.active.feed(&answer);
    let pong = Got::Send { data: b"pong".to_vec(), solicited: false, invalidate: None };
    assert_eq!(pair.active.taken(), [Got::Done(0), pong]);
}

/// A passive side that has executed one message and said nothing.
fn owing() -> Side {
    let mut pair = quiet();
    pair.active.send(b"ping");
    pair.passive.feed(&pair.active.talk());
    assert_eq!(pair.passive.talk(), b"");
    pair.passive
}

#[test]
fn alone_it_leaves_after_two_idle_passes() {
    let mut side = owing();
    side.wire.idle_pass(side.now);
    assert_eq!(side.talk(), b"");
    side.wire.idle_pass(side.now);
    assert_eq!(frames(&side.talk()), [ack(1, 1000)]);
    side.wire.idle_pass(side.now);
    side.wire.idle_pass(side.now);
    assert_eq!(side.talk(), b"", "once");
}

#[test]
fn alone_it_leaves_after_20_us() {
    let mut side = owing();
    assert_eq!(side.wire.deadline(), Some(side.now.after(Duration::from_micros(20))));
    side.wait(Duration::from_nanos(19_999));
    assert_eq!(side.talk(), b"");
    side.wait(Duration::from_nanos(1));
    assert_eq!(frames(&side.talk()), [ack(1, 1000)]);
    assert_eq!(side.wire.deadline(), None, "an idle connection wants no timer");
}

#[test]
fn alone_it_leaves_on_flush() {
    let mut side = owing();
    assert!(!side.wire.has_output(), "it waits for something to ride on");
    side.wire.flush(side.now);
    assert!(side.wire.has_output());
    assert_eq!(frames(&side.talk()), [ack(1, 1000)]);
    assert!(!side.wire.has_output());
    side.wire.flush(side.now);
    assert_eq!(side.talk(), b"");
}

#[test]
fn sixteen_owed_are_not_kept_waiting() {
    let mut pair = quiet();
    for round in 0..16 {
        pair.active.write(7, 0, b"data", true);
        pair.passive.feed(&pair.active.talk());
        let said = pair.passive.talk();
        assert_eq!(said.is_empty(), round < 15, "round {round}");
        pair.active.feed(&said);
    }
    assert_eq!(pair.active.taken(), [Got::Done(15)]);
}

#[test]
fn nothing_is_acknowledged_before_it_was_executed() {
    let mut pair = quiet();
    pair.passive.busy = true;
    pair.active.send(b"ping");
    pair.settle();
    assert_eq!(pair.active.taken(), []);
    pair.passive.wire.executed(pair.passive.now);
    pair.settle();
    assert_eq!(pair.active.taken(), [Got::Done(0)]);
    // Reports of what never came are not passed on.
    pair.passive.wire.executed(pair.passive.now);
    pair.settle();
    assert_eq!((pair.active.taken(), &pair.active.violation), (vec![], &None));
}

#[test]
fn reads_are_not_counted() {
    let mut pair = quiet();
    pair.active.read(1, 0, 8);
    pair.active.send(b"ping");
    pair.active.read(1, 0, 8);
    pair.settle();
    let got = pair.active.taken();
    assert!(got.contains(&Got::Done(1)), "{got:?}");
    assert!(!got.iter().any(|got| matches!(got, Got::Done(0 | 2))), "{got:?}");
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

#[test]
fn hostile_acknowledgements_and_refusals_end_the_stream() {
    // Of a message never sent; taking back a receive; with bytes behind it; not whole.
    extension_fault(quiet().active, &extra("414f 00000000 00000004 00000001 000003e8", b""));
    extension_fault(quiet().active, &extra("414f 00000000 00000004 00000000 000003e7", b""));
    extension_fault(quiet().active, &extra("414f 00000000 00000004 00000000 000003e8", b"x"));
    extension_fault(quiet().active, &extra("014f 00000000 00000004 00000000 000003e8", b""));
    // A refusal with an unknown operation, with a gap in its text.
    extension_fault(quiet().active, &extra("414f 07000000 00000006 00000001 00000000", b"no"));
    extension_fault(quiet().active, &extra("414f 00000000 00000006 00000001 00000001", b"no"));
    // An announcement of another size; two of them; with another message behind it.
    extension_fault(quiet().active, &extra("414f 00000007 00000005 00000000 00000100", b"short"));
    let announce = extra("414f 00000007 00000005 00000000 00000100", &[0; 8]);
    let send = extra("4143 00000000 00000000 00000001 00000000", b"data");
    let elsewhere = extra("8140 00000007 0000000000000008", b"data");
    for second in [&announce, &send, &elsewhere] {
        let mut side = quiet().active;
        side.feed(&announce);
        assert_eq!(side.taken(), [Got::Announced { token: 7, address: 0, length: 256 }]);
        extension_fault(side, second);
    }
    // A Write of several frames without announcement.
    extension_fault(quiet().active, &extra("8140 00000007 0000000000000000", b"data"));
}

#[test]
fn refusals_cannot_fill_memory() {
    let mut side = quiet().active;
    let text = [b'x'; 96];
    for part in 0..5 {
        side.feed(&extra(&format!("014f 00000000 00000006 00000001 {:08x}", part * 96), &text));
        assert_eq!(side.violation, None);
    }
    extension_fault(side, &extra("014f 00000000 00000006 00000001 000001e0", &text));
}

// ---- announcements ------------------------------------------------------------------------------

#[test]
fn writes_of_several_segments_are_announced_and_others_are_not() {
    let mut pair = quiet();
    let largest = pair.active.wire.facts().unwrap().largest_payload;
    pair.active.write(7, 0x1000, &vec![1; largest], true);
    assert_eq!(frames(&pair.active.talk()), [Frame::Other(Opcode::Write)]);
    pair.active.write(7, 0x1000, &vec![1; largest + 1], true);
    let said = frames(&pair.active.talk());
    let announce = Frame::Announce(7, 0x1000, u32::try_from(largest + 1).unwrap());
    assert_eq!(said, [announce, Frame::Other(Opcode::Write), Frame::Other(Opcode::Write)]);
}

#[test]
fn a_write_refused_at_its_announcement_moves_no_byte() {
    let mut pair = quiet();
    pair.passive.refuse = Some((
        |event| matches!(event, Event::WriteAnnounced { .. }),
        RefusalClass::Bounds,
        "41 bytes past the end",
    ));
    pair.active.send(b"before");
    pair.active.write(7, 0x1000, &[1; 200_000], true);
    pair.run();
    let before = Got::Send { data: b"before".to_vec(), solicited: false, invalidate: None };
    assert_eq!(pair.passive.taken(), [before]);
    let got = pair.active.taken();
    let [Got::Done(0), Got::Failed { id: Some(1), error }] = &got[..] else {
        unreachable!("{got:?}")
    };
    assert_eq!(error.class, Some(RefusalClass::Bounds));
    assert_eq!(error.operation, Some(Operation::Write));
    assert_eq!(error.explanation.as_deref(), Some("41 bytes past the end"));
    assert!(error.code.starts_with("Terminate 1/1/01"), "{}", error.code);
}

/// The same while the Write is still being sent: the refusal names it, and not an older message that
/// waits for its acknowledgement.
#[test]
fn a_write_is_refused_while_it_is_sent() {
    let mut pair = quiet();
    pair.passive.refuse = Some((
        |event| matches!(event, Event::WriteAnnounced { .. }),
        RefusalClass::Bounds,
        "41 bytes past the end",
    ));
    pair.active.write(7, 0x1000, b"before", true);
    pair.active.write(7, 0x1000, &[1; 400_000], true);
    // The first one, the announcement, a piece.
    for _ in 0..3 {
        assert!(pair.active.step().is_some());
    }
    assert_eq!(pair.active.next_id, 2, "the second one is under way");
    let sent = std::mem::take(&mut pair.active.out);
    pair.passive.feed(&sent);
    let answer = pair.passive.talk();
    pair.active.feed(&answer);
    let got = pair.active.taken();
    let Some(Got::Failed { id, error }) = got.last() else { unreachable!("{got:?}") };
    assert_eq!((*id, error.class), (Some(1), Some(RefusalClass::Bounds)), "{got:?}");
}

// ---- immediate data -----------------------------------------------------------------------------

fn with_immediate(length: u32, value: u32, solicited: bool) -> Message {
    let immediate = Some(Immediate { value, solicited });
    Message::Write { token: 7, address: 0x1000, length, verdict: true, immediate }
}

#[test]
fn v87_immediate_data_goes_in_front_of_its_message() {
    let mut pair = quiet();
    let value = 0x1234_5678;
    let largest = u32::try_from(pair.active.wire.facts().unwrap().largest_payload).unwrap();
    for (length, solicited) in [(0, false), (8, true), (largest + 1, false)] {
        let data = vec![3; length as usize];
        pair.active.post(with_immediate(length, value, solicited), &data);
        let said = pair.active.talk();
        pair.passive.feed(&said);
        let said = frames(&said);
        assert_eq!(said[0], Frame::Immediate(Immediate { value, solicited }));
        assert_eq!(said.len(), if length > largest { 4 } else { 2 });
        let got = pair.passive.taken();
        let write = Got::Write { token: 7, address: 0x1000, data };
        assert_eq!(got[got.len() - 2..], [write, Got::Immediate(value, solicited)]);
    }
    let (length, solicited, invalidate) = (4, true, None);
    let send = Message::Send { length, solicited, invalidate, immediate: Some(7) };
    pair.active.post(send, b"data");
    pair.settle();
    let sent = Got::Send { data: b"data".to_vec(), solicited: true, invalidate: None };
    assert_eq!(pair.passive.taken(), [sent, Got::Immediate(7, true)]);
    assert_eq!(pair.active.taken(), [Got::Done(3)], "each is one message");
    // The announcement belongs to one message.
    pair.active.write(7, 0, b"data", true);
    pair.settle();
    assert!(matches!(pair.passive.taken()[..], [Got::Write { .. }]));
}

#[test]
fn v87_a_write_with_immediate_data_uses_a_receive() {
    let mut pair = quiet();
    pair.passive.wire.receives_posted(pair.passive.now, 1001, false);
    pair.settle();
    for _ in 0..1000 {
        pair.active.post(with_immediate(0, 1, false), &[]);
    }
    pair.active.send(b"the last");
    pair.settle();
    assert_eq!(pair.passive.taken().len(), 2001);
    pair.active.taken();
    pair.active.post(with_immediate(0, 1, false), &[]);
    pair.settle();
    assert!(matches!(pair.active.waiting, Some(Waiting::Receive { limit: Some(_) })));
    assert_eq!(pair.passive.taken(), []);
    pair.passive.wire.receives_posted(pair.passive.now, 1002, false);
    pair.settle();
    assert_eq!(pair.passive.taken().len(), 2);
    // A shared queue is asked for what such Writes have used, too.
    let mut pair = quiet();
    pair.passive.wire.receives_posted(pair.passive.now, 1000, true);
    pair.settle();
    for _ in 0..1001 {
        pair.active.post(with_immediate(0, 1, false), &[]);
    }
    pair.settle();
    let wanted = pair.passive.taken().into_iter().filter(|got| *got == Got::CreditWanted);
    assert_eq!(wanted.count(), 1);
}

#[test]
fn v87_hostile_immediate_data_ends_the_stream() {
    let immediate = extra("414f 00000001 00000007 00000000 00000000", b"");
    // With bytes behind it; not whole.
    extension_fault(quiet().active, &extra("414f 00000001 00000007 00000000 00000000", b"x"));
    extension_fault(quiet().active, &extra("014f 00000001 00000007 00000000 00000000", b""));
    // In front of a read request, of itself, of a Send that closes a window, of an answer.
    let read = extra("4141 00000000 00000001 00000001 00000000", &[0; 28]);
    let closes = extra("4144 00000007 00000000 00000001 00000000", b"data");
    for second in [&read, &immediate, &closes] {
        let mut side = quiet().active;
        side.feed(&immediate);
        assert_eq!((side.taken(), &side.violation), (vec![], &None));
        extension_fault(side, second);
    }
    let mut side = quiet().active;
    side.read(7, 0, 4);
    side.talk();
    side.feed(&immediate);
    extension_fault(side, &extra("c142 00000051 0000000000005000", b"data"));
    // Behind an announcement, and inside a message.
    let mut side = quiet().active;
    side.feed(&extra("414f 00000007 00000005 00000000 00000100", &[0; 8]));
    side.taken();
    extension_fault(side, &immediate);
    let mut side = quiet().active;
    side.feed(&extra("0143 00000000 00000000 00000001 00000000", b"data"));
    side.feed(&immediate);
    assert_eq!(common::terminate_code(&side.talk()), Some((0, 2, 6)), "no frame may stand there");
    // To a side that has not agreed to the extension it is an unknown operation.
    let mut side = Pair::plain().active;
    side.taken();
    side.feed(&immediate);
    assert_eq!(common::terminate_code(&side.talk()), Some((0, 2, 6)));
}

#[test]
fn v87_a_stream_that_ends_behind_immediate_data_is_cut_short() {
    let mut side = quiet().active;
    side.feed(&extra("414f 00000001 00000007 00000000 00000000", b""));
    assert!(side.wire.link_closed(side.now, false).is_err());
}

// ---- atomics ------------------------------------------------------------------------------------

const ADD: Atomic = Atomic::FetchAdd { add: 3 };
const SWAP: Atomic = Atomic::CompareSwap { compare: 3, swap: u64::MAX };

#[test]
fn v95_atomics_are_carried_out_and_answered_in_order_with_reads() {
    let mut pair = quiet();
    for operation in [ADD, SWAP, ADD] {
        pair.active.atomic(7, 0x1000, operation);
    }
    pair.active.read(7, 0x2000, 4);
    let said = pair.active.talk();
    let (request, read) = (Opcode::AtomicRequest, Opcode::ReadRequest);
    let sent = [request, request, request, read].map(Frame::Other);
    assert_eq!(frames(&said), sent, "nothing is announced");
    pair.passive.feed(&said);
    let asked = |operation| Got::Atomic { token: 7, address: 0x1000, operation };
    let got = pair.passive.taken();
    assert_eq!(got[..3], [ADD, SWAP, ADD].map(asked));
    assert_eq!(pair.passive.words[&0x1000], 2, "0, 3, -1, 2");
    let said = pair.passive.talk();
    let response = Opcode::AtomicResponse;
    let answers = [response, response, response, Opcode::ReadResponse].map(Frame::Other);
    assert_eq!(frames(&said), answers);
    pair.active.feed(&said);
    let old = |id, value| Got::Old { id, value };
    let data = common::memory(7, 0x2000, 4);
    let expected = [old(0, 0), old(1, 3), old(2, u64::MAX), Got::Read { id: 3, data }];
    assert_eq!(pair.active.taken(), expected);
}

#[test]
fn v92_atomics_take_the_places_of_reads() {
    let mut pair = quiet();
    pair.active.read(7, 0x2000, 4);
    (0..4).for_each(|_| pair.active.atomic(7, 0x1000, ADD));
    let said = pair.active.talk();
    assert_eq!(frames(&said).len(), 4, "as many as were agreed");
    assert_eq!(pair.active.waiting, Some(Waiting::ReadSlot));
    pair.passive.feed(&said);
    pair.run();
    let olds = pair.active.taken().iter().filter(|got| matches!(got, Got::Old { .. })).count();
    assert_eq!(olds, 4);
    assert_eq!(pair.passive.words[&0x1000], 12);
}

#[test]
fn v95_a_refusal_names_the_atomic() {
    let mut pair = quiet();
    let class = RefusalClass::Misaligned;
    pair.passive.refuse = Some((|event| matches!(event, Event::Atomic { .. }), class, "it is odd"));
    pair.active.write(7, 0, b"data", true);
    pair.active.read(7, 0x2000, 4);
    pair.active.atomic(7, 0x1001, ADD);
    pair.active.read(7, 0x2000, 4);
    pair.run();
    let got = pair.active.taken();
    let Some(Got::Failed { id, error }) = got.last() else { unreachable!("{got:?}") };
    assert_eq!(
        (*id, error.class, error.operation),
        (Some(2), Some(class), Some(Operation::Atomic))
    );
    assert_eq!(error.explanation.as_deref(), Some("it is odd"));
    assert!(got.contains(&Got::Done(0)), "what came before it has succeeded");
    assert!(pair.passive.words.is_empty());
}

/// The sink of an answer is gone: that is no refusal of a message of the peer's, whatever the Terminate
/// says of the token.
#[test]
fn v95_an_answer_that_cannot_be_placed_blames_no_message_of_the_peer() {
    let mut pair = quiet();
    let answer = |event: &Event<'_>| matches!(event, Event::AtomicAnswer { .. });
    pair.active.refuse = Some((answer, RefusalClass::Token, ""));
    pair.active.atomic(7, 0x1000, ADD);
    pair.passive.write(7, 0x2000, b"data", true);
    pair.run();
    let got = pair.passive.taken();
    let Some(Got::Failed { id, error }) = got.last() else { unreachable!("{got:?}") };
    assert_eq!((*id, error.class), (None, Some(RefusalClass::Internal)), "{error:?}");
}

/// A Request of 52 bytes with these operands.
fn atomic_request(number: u32, operation: u8, masks: [u64; 2]) -> Vec<u8> {
    let (identifier, stag, offset, data, compare) = (number, 7, 0x1000, 1, 2);
    let [mask, compare_mask] = masks;
    let request =
        AtomicRequest { operation, identifier, stag, offset, data, mask, compare, compare_mask };
    let header = format!("414a 00000000 00000001 {number:08x} 00000000");
    extra(&header, &request.to_bytes())
}

#[test]
fn v95_hostile_atomics_end_the_stream() {
    let whole = atomic_request(1, 0, [0, 0]);
    // Too short, too long, not whole; no operation that a whole word has.
    let header = "414a 00000000 00000001 00000001 00000000";
    extension_fault(quiet().active, &extra(header, &[0; 51]));
    extension_fault(quiet().active, &extra(header, &[0; 53]));
    let cut = extra("014a 00000000 00000001 00000001 00000000", &[0; 52]);
    extension_fault(quiet().active, &cut);
    for (operation, masks) in [
        (1, [u64::MAX; 2]),
        (3, [u64::MAX; 2]),
        (0, [1 << 31, 0]),
        (2, [u64::MAX - 1, u64::MAX]),
        (2, [u64::MAX, 1]),
    ] {
        extension_fault(quiet().active, &atomic_request(1, operation, masks));
    }
    // An add may name the end of the word as the end of its only field.
    let mut side = quiet().active;
    side.feed(&atomic_request(1, 0, [1 << 63, 0]));
    assert!(matches!(
        side.taken()[..],
        [Got::Atomic { operation: Atomic::FetchAdd { add: 1 }, .. }]
    ));
    // Out of its place: number, offset, queue; inside a message, behind an announcement, behind
    // immediate data.
    let code = |mut side: Side, bytes: &[u8]| {
        side.feed(bytes);
        assert_eq!(side.taken(), []);
        common::terminate_code(&side.talk()).unwrap()
    };
    assert_eq!(code(quiet().active, &atomic_request(2, 0, [0, 0])), (1, 2, 3));
    let late = extra("414a 00000000 00000001 00000001 00000004", &[0; 52]);
    assert_eq!(code(quiet().active, &late), (1, 2, 4));
    let elsewhere = extra("414a 00000000 00000000 00000001 00000000", &[0; 52]);
    assert_eq!(code(quiet().active, &elsewhere), (1, 2, 1));
    let mut side = quiet().active;
    side.feed(&extra("0143 00000000 00000000 00000001 00000000", b"data"));
    assert_eq!(code(side, &whole), (0, 2, 6));
    for before in [
        extra("414f 00000007 00000005 00000000 00000100", &[0; 8]),
        extra("414f 00000001 00000007 00000000 00000000", b""),
    ] {
        let mut side = quiet().active;
        side.feed(&before);
        side.taken();
        extension_fault(side, &whole);
    }
    // One too many, with Reads and without.
    let mut side = quiet().active;
    (1..=4).for_each(|number| side.feed(&atomic_request(number, 0, [0, 0])));
    assert_eq!(side.taken().len(), 4);
    let read = extra("4141 00000000 00000001 00000005 00000000", &[1; 28]);
    assert_eq!(code(side, &read), (1, 2, 2));
    let mut side = quiet().active;
    (1..=4).for_each(|number| side.feed(&atomic_request(number, 0, [0, 0])));
    side.taken();
    assert_eq!(code(side, &atomic_request(5, 0, [0, 0])), (1, 2, 2));
    // A side that has not agreed to the extension does not know it.
    let mut side = Pair::plain().active;
    side.taken();
    assert_eq!(code(side, &whole), (0, 2, 6));
}

#[test]
fn v95_answers_that_nobody_waits_for_end_the_stream() {
    let answer = |number: u32, identifier: u32, last: bool| {
        let control = if last { "414b" } else { "014b" };
        let header = format!("{control} 00000000 00000003 {number:08x} 00000000");
        extra(&header, &AtomicResponse { identifier, value: 9 }.to_bytes())
    };
    let waiting = |messages: &[Message]| {
        let mut side = quiet().active;
        messages.iter().for_each(|message| side.post(*message, &[]));
        side.talk();
        side
    };
    // The first request of the quiet side has this number: one was the ready-to-receive frame.
    let first = 2;
    let atomic = Message::Atomic { token: 7, address: 0x1000, operation: ADD };
    let (sink_token, sink_address) = (0x51, 0x5000);
    let read = Message::Read { token: 7, address: 0, length: 4, sink_token, sink_address };
    let mut right = waiting(&[atomic]);
    right.feed(&answer(1, first, true));
    assert_eq!(right.taken(), [Got::Old { id: 0, value: 9 }]);
    let code = |mut side: Side, bytes: &[u8]| {
        side.feed(bytes);
        assert_eq!(side.taken(), []);
        common::terminate_code(&side.talk()).unwrap()
    };
    let unasked = (0, 2, 6);
    assert_eq!(code(waiting(&[]), &answer(1, first, true)), unasked);
    assert_eq!(
        code(waiting(&[read, atomic]), &answer(1, first + 1, true)),
        unasked,
        "a Read comes first"
    );
    assert_eq!(code(waiting(&[atomic]), &answer(1, first + 1, true)), unasked, "another's");
    assert_eq!(code(right, &answer(2, first, true)), unasked, "a second one");
    assert_eq!(code(waiting(&[atomic]), &answer(2, first, true)), (1, 2, 3));
    let data = extra("c142 00000051 0000000000005000", b"data");
    assert_eq!(code(waiting(&[atomic]), &data), unasked, "the answer to a Read in its place");
    let elsewhere = extra("414b 00000000 00000001 00000001 00000000", &[0; 12]);
    assert_eq!(code(waiting(&[atomic]), &elsewhere), (1, 2, 1));
    extension_fault(waiting(&[atomic]), &answer(1, first, false));
    let short = extra("414b 00000000 00000003 00000001 00000000", &[0; 11]);
    extension_fault(waiting(&[atomic]), &short);
    let long = extra("414b 00000000 00000003 00000001 00000000", &[0; 13]);
    extension_fault(waiting(&[atomic]), &long);
}

/// A peer of an earlier version says nothing of atomics and immediate data, and is sent neither; until
/// its first acknowledgement nobody knows.
#[test]
fn v134_a_peer_that_does_not_say_that_it_takes_them_gets_none() {
    for (flags, extended) in [("00000000", false), ("00000004", true)] {
        let mut pair = Pair::new(Config::new(Role::Active), Config::new(Role::Passive));
        let Pair { active: side, passive: peer } = &mut pair;
        side.wire.connect(side.now, LIMITS, b"").unwrap();
        peer.feed(&side.talk());
        peer.wire.accept(peer.now, LIMITS, b"").unwrap();
        side.feed(&peer.talk());
        side.wire.confirm(side.now).unwrap();
        side.taken();
        side.atomic(7, 0x1000, ADD);
        side.talk();
        assert_eq!((side.waiting, side.unknown), (Some(Waiting::Start), false));
        side.feed(&extra(&format!("414f {flags} 00000004 00000000 00000009"), b""));
        assert_eq!(side.waiting, None);
        let said = frames(&side.talk());
        assert_eq!(side.unknown, !extended);
        assert_eq!(said.contains(&Frame::Other(Opcode::AtomicRequest)), extended);
        let (length, value) = (4, 7);
        side.unknown = false;
        side.post(with_immediate(length, value, false), b"data");
        side.talk();
        assert_eq!(side.unknown, !extended);
        side.write(7, 0, b"data", true);
        assert!(!side.talk().is_empty(), "and everything else");
    }
}

// ---- refusals -----------------------------------------------------------------------------------

/// Posts four messages, of which the peer refuses the first that `which` accepts.
fn refused(which: fn(&Event<'_>) -> bool, class: RefusalClass, why: &'static str) -> Vec<Got> {
    let mut pair = quiet();
    pair.passive.refuse = Some((which, class, why));
    pair.active.send(b"first");
    pair.active.write(7, 0, b"second", true);
    pair.active.read(9, 0, 8);
    let message =
        Message::Send { length: 0, solicited: false, invalidate: Some(3), immediate: None };
    pair.active.post(message, b"");
    pair.run();
    pair.active.taken()
}

#[test]
fn a_refusal_names_the_message_and_what_came_before_it_has_succeeded() {
    let write = |event: &Event<'_>| matches!(event, Event::Write { .. });
    let read = |event: &Event<'_>| matches!(event, Event::ReadRequest { .. });
    let invalidate = |event: &Event<'_>| matches!(event, Event::Send { invalidate: Some(_), .. });
    type Which = fn(&Event<'_>) -> bool;
    let cases: [(Which, _, _, Option<u64>, _); 3] = [
        (write, RefusalClass::Right, Some(0), Some(1), Operation::Write),
        (read, RefusalClass::Token, Some(1), Some(2), Operation::Read),
        (invalidate, RefusalClass::NotInvalidatable, Some(1), Some(3), Operation::Invalidate),
    ];
    for (which, class, done, blamed, operation) in cases {
        let got = refused(which, class, "why not");
        let last =
            got.iter().rev().find_map(|got| if let Got::Done(id) = got { Some(*id) } else { None });
        assert_eq!(last, done, "{got:?}");
        let Some(Got::Failed { id, error }) = got.last() else { unreachable!("{got:?}") };
        assert_eq!((*id, error.class, error.operation), (blamed, Some(class), Some(operation)));
        assert_eq!(error.explanation.as_deref(), Some("why not"));
    }
}

#[test]
fn an_explanation_of_several_frames_arrives_whole_and_bounded() {
    let why: &'static str = "€ is three bytes ".repeat(60).leak();
    let got = refused(|event| matches!(event, Event::Write { .. }), RefusalClass::Right, why);
    let Some(Got::Failed { error, .. }) = got.last() else { unreachable!("{got:?}") };
    let explanation = error.explanation.as_deref().unwrap();
    assert!(explanation.len() > 500 && why.starts_with(explanation), "{explanation}");
}

#[test]
fn a_peers_text_is_made_printable() {
    let why = "two\nlines\x1b[31m and \0";
    let got = refused(|event| matches!(event, Event::Write { .. }), RefusalClass::Right, why);
    let Some(Got::Failed { error, .. }) = got.last() else { unreachable!("{got:?}") };
    assert_eq!(error.explanation.as_deref(), Some("two lines [31m and  "));
}

#[test]
fn a_plain_peer_gets_no_explanation() {
    let mut pair = Pair::plain();
    pair.passive.refuse = Some((|_| true, RefusalClass::Bounds, "secret"));
    pair.active.write(7, 0, b"data", true);
    pair.passive.feed(&pair.active.talk());
    let said = pair.passive.talk();
    assert!(!said.windows(6).any(|bytes| bytes == b"secret"));
    assert_eq!(common::terminate_code(&said), Some((1, 1, 1)));
}

#[test]
fn a_refusal_whose_terminate_was_lost_still_counts() {
    let mut pair = quiet();
    pair.passive.refuse = Some((|_| true, RefusalClass::Bounds, "no"));
    pair.active.write(7, 0, b"data", true);
    pair.passive.feed(&pair.active.talk());
    let said = pair.passive.talk();
    let terminate = fpdu::size(18 + 4 + 2 + 14);
    pair.active.feed(&said[..said.len() - terminate]);
    assert_eq!(pair.active.wire.link_closed(pair.active.now, true), Ok(()));
    pair.active.listen();
    assert!(matches!(pair.active.taken()[..], [Got::Failed { id: Some(0), .. }]));
}

// ---- credits ------------------------------------------------------------------------------------

/// Two Transoms; the passive side has `receives` from a plain or a shared queue.
fn with_receives(receives: u64, shared: bool) -> Pair {
    let mut pair = Pair::new(Config::new(Role::Active), Config::new(Role::Passive));
    let Pair { active: a, passive: p } = &mut pair;
    a.wire.connect(a.now, LIMITS, b"").unwrap();
    p.feed(&a.talk());
    p.wire.receives_posted(p.now, receives, shared);
    p.wire.accept(p.now, LIMITS, b"").unwrap();
    a.feed(&p.talk());
    a.wire.confirm(a.now).unwrap();
    pair.run();
    pair.active.taken();
    pair.passive.taken();
    pair
}

#[test]
fn a_send_without_credit_waits_at_its_sender() {
    let mut pair = with_receives(1, false);
    pair.active.send(b"one");
    pair.active.send(b"two");
    pair.run();
    let limit = Some(Config::new(Role::Active).common.receive_wait);
    assert_eq!(pair.active.waiting, Some(Waiting::Receive { limit }));
    assert_eq!(pair.passive.taken().len(), 1);
    // An empty queue blocks nothing: the connection works on.
    pair.passive.send(b"other way");
    pair.active.wire.receives_posted(pair.active.now, 1, false);
    pair.run();
    assert_eq!(pair.active.violation, None);
    // A receive is posted: the peer waits, so it learns at once.
    pair.passive.wire.receives_posted(pair.passive.now, 2, false);
    pair.run();
    assert_eq!(pair.active.waiting, None);
    let two = Got::Send { data: b"two".to_vec(), solicited: false, invalidate: None };
    assert_eq!(pair.passive.taken(), [Got::Done(0), two]);
}

/// A peer that has not said what it grants may be slow: its silence is no lack of receives.
#[test]
fn the_time_of_a_send_runs_from_the_peers_first_word() {
    let mut pair = Pair::new(Config::new(Role::Active), Config::new(Role::Passive));
    let Pair { active: a, passive: p } = &mut pair;
    a.wire.connect(a.now, LIMITS, b"").unwrap();
    p.feed(&a.talk());
    p.wire.receives_posted(p.now, 0, false);
    p.wire.accept(p.now, LIMITS, b"").unwrap();
    a.feed(&p.talk());
    a.wire.confirm(a.now).unwrap();
    a.send(b"one");
    let request = a.talk();
    assert_eq!(a.waiting, Some(Waiting::Receive { limit: None }));
    // The passive side reads the wish and answers that there is nothing.
    p.feed(&request);
    let answer = p.talk();
    a.feed(&answer);
    a.talk();
    let limit = Some(Config::new(Role::Active).common.receive_wait);
    assert_eq!(a.waiting, Some(Waiting::Receive { limit }));
}

#[test]
fn an_empty_shared_queue_never_fails_a_send() {
    let mut pair = with_receives(0, true);
    pair.active.send(b"one");
    pair.run();
    assert_eq!(pair.active.waiting, Some(Waiting::Receive { limit: None }));
    assert_eq!(pair.passive.taken(), [Got::CreditWanted]);
    pair.passive.wire.receives_posted(pair.passive.now, 1, true);
    pair.run();
    let one = Got::Send { data: b"one".to_vec(), solicited: false, invalidate: None };
    assert_eq!(pair.passive.taken(), [one]);
    // A credit is good for one Send.
    pair.active.send(b"two");
    pair.run();
    assert_eq!(pair.passive.taken(), [Got::CreditWanted]);
}

#[test]
fn a_wish_that_crossed_its_credit_asks_for_no_second() {
    let mut pair = with_receives(0, true);
    pair.active.send(b"one");
    let wish = pair.active.talk();
    pair.passive.feed(&wish);
    assert_eq!(pair.passive.taken(), [Got::CreditWanted]);
    pair.passive.wire.receives_posted(pair.passive.now, 1, true);
    let grant = pair.passive.talk();
    // Before the grant arrives, the waiting side says something else that repeats the wish.
    pair.passive.taken();
    pair.active.wire.receives_posted(pair.active.now, 1001, false);
    pair.active.wire.flush(pair.active.now);
    let again = pair.active.talk();
    assert!(frames(&again).iter().any(|frame| matches!(frame, Frame::Ack(ack) if ack.wanted)));
    pair.passive.feed(&again);
    assert_eq!(pair.passive.taken(), []);
    pair.active.feed(&grant);
    pair.run();
    assert!(matches!(pair.passive.taken()[..], [Got::Send { .. }]));
}

#[test]
fn writes_and_reads_need_no_credit() {
    let mut pair = with_receives(0, false);
    pair.active.write(7, 0, b"data", true);
    pair.active.read(9, 0, 8);
    pair.settle();
    assert_eq!(pair.active.waiting, None);
    assert_eq!(pair.passive.taken().len(), 2);
}

#[test]
fn plain_peers_know_no_credit() {
    let mut pair = Pair::plain();
    pair.passive.taken();
    for _ in 0..2000 {
        pair.active.send(b"x");
    }
    pair.run();
    assert_eq!(pair.passive.taken().len(), 2000);
}

#[test]
fn the_first_message_needs_no_hold_and_no_extra_flight() {
    // The ready-to-receive frame and the first credits leave at once.
    let mut pair = Pair::new(Config::new(Role::Active), Config::new(Role::Passive));
    let Pair { active: a, passive: p } = &mut pair;
    a.wire.connect(a.now, LIMITS, b"").unwrap();
    a.wire.receives_posted(a.now, 4, false);
    p.feed(&a.talk());
    p.wire.accept(p.now, LIMITS, b"").unwrap();
    p.wire.receives_posted(p.now, 4, false);
    a.feed(&p.talk());
    a.wire.confirm(a.now).unwrap();
    assert_eq!(frames(&a.talk()), [Frame::Other(Opcode::ReadRequest), ack(0, 4)]);
}
