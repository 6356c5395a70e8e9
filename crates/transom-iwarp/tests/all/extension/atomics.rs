//! Atomics.

use super::*;

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
    // An atomic too many, with Reads and without.
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
