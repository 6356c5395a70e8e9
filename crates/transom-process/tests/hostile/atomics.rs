//! Atomics come one by one, with their operands, no more of them than reads, and are answered in order.

use super::*;

/// An atomic with the pattern for its operands.
fn atomic(detail: u16, length: u32) -> Header {
    Header { detail, token: 7, address: 0x1000, length, ..Header::new(RecordKind::Atomic) }
}

fn old(value: u64) -> Header {
    Header { address: value, ..Header::new(RecordKind::AtomicAnswer) }
}

fn operands() -> [u64; 2] {
    let bytes = pattern(16);
    [&bytes[..8], &bytes[8..]].map(|eight| u64::from_ne_bytes(eight.try_into().unwrap()))
}

const ADD: Message =
    Message::Atomic { token: 7, address: 0x1000, operation: Atomic::FetchAdd { add: 3 } };

#[test]
fn v95_each_kind_comes_with_its_operands_and_is_answered() {
    let [first, second] = operands();
    let mut side = open();
    let (token, address) = (7, 0x1000);
    for (detail, operation) in [
        (1, Atomic::CompareSwap { compare: first, swap: second }),
        (2, Atomic::FetchAdd { add: first }),
    ] {
        side.record(atomic(detail, 16));
        assert_eq!(side.taken(), [Got::Atomic { token, address, operation }]);
        assert_eq!(side.said(), [(old(OLD), vec![])]);
    }
    assert_eq!(side.acknowledged(), 4, "each counts as executed");
}

#[test]
fn v95_operands_are_sixteen_bytes_of_a_known_kind() {
    for (detail, length) in [(0, 16), (3, 16), (0x0101, 16), (1, 0), (1, 8), (2, 15)] {
        let mut side = open();
        side.record(atomic(detail, length));
        broken(&mut side, "messages", &format!("an atomic of kind {detail}, {length} bytes"));
    }
    // More than the largest payload is none of the ring's records.
    let mut side = open();
    side.record(atomic(1, 17));
    lied(&mut side, RingViolation::Record);
}

#[test]
fn v95_an_atomic_stands_between_messages() {
    let mut side = open();
    side.record(announce(7, 0, 100));
    side.taken();
    side.record(atomic(1, 16));
    let partial = "Write { token: 7, next: 0, left: 100, immediate: None }";
    broken(&mut side, "messages", &format!("an atomic inside an unfinished {partial}"));
}

/// Reads and atomics together: as many as were agreed, and not one more.
#[test]
fn v92_no_more_of_them_than_reads_were_agreed() {
    for last in [atomic(2, 16), read(7, 0x1000, 8)] {
        let mut side = open();
        side.record(read(7, 0x1000, 8));
        (0..3).for_each(|_| side.record(atomic(2, 16)));
        assert_eq!(side.taken().len(), 4);
        side.record(last);
        broken_reads(&mut side);
    }
    let mut side = open_with(ReadLimits { inbound: 0, outbound: 4 });
    side.record(atomic(2, 16));
    let detail = "more than the 0 reads and atomics at a time agreed";
    broken(&mut side, "reads", detail);
}

/// As [`broken`], with answers that are still owed and are not given any more.
fn broken_reads(side: &mut Side) {
    assert_eq!(side.taken(), []);
    let violation = side.violation.take().unwrap();
    let detail = "more than the 4 reads and atomics at a time agreed";
    assert_eq!((violation.rule, &violation.detail[..]), ("reads", detail));
    let said = side.said();
    assert_eq!(
        said[..],
        [(Header { address: u64::MAX, ..Header::new(RecordKind::Refuse) }, vec![])]
    );
}

#[test]
fn v95_answers_come_in_the_order_of_the_requests() {
    let mut side = open();
    side.record(read(7, 0x1000, 8));
    side.record(atomic(2, 16));
    side.record(read(7, 0x1000, 8));
    let kinds: Vec<_> = side.said().iter().map(|(header, _)| header.kind).collect();
    assert_eq!(kinds, [RecordKind::Answer, RecordKind::AtomicAnswer, RecordKind::Answer]);
}

#[test]
fn v95_ours_takes_the_place_of_a_read() {
    let mut side = open();
    assert_eq!(side.begin(ADD), Begin::Started);
    side.transmit();
    let (detail, bytes) = record::operands(Atomic::FetchAdd { add: 3 });
    let sent = atomic(detail, 16);
    assert_eq!(side.said(), [(sent, bytes.to_vec())]);
    (0..3).for_each(|_| side.post(our_read(8)));
    side.said();
    assert_eq!(side.begin(ADD), Begin::Wait(Waiting::ReadSlot));
    side.record(old(41));
    assert_eq!(side.taken(), [Got::Resume, Got::Old { id: 0, value: 41 }]);
    assert_eq!(side.begin(ADD), Begin::Started);
}

#[test]
fn v95_an_answer_that_nobody_waits_for_is_a_lie() {
    let unasked = "the answer to an atomic nobody asked for";
    let mut side = open();
    side.record(old(1));
    broken(&mut side, "reads", unasked);
    // A read comes first; an atomic that was answered is not answered again.
    let mut side = open();
    side.post(our_read(8));
    side.post(ADD);
    side.said();
    side.record(old(1));
    broken(&mut side, "reads", unasked);
    let mut side = open();
    side.post(ADD);
    side.said();
    side.record(old(1));
    side.taken();
    side.record(old(1));
    broken(&mut side, "reads", unasked);
    // The answer to a read in its place.
    let mut side = open();
    side.post(ADD);
    side.said();
    side.record(answer(8, LAST));
    broken(&mut side, "reads", "the answer to a read nobody asked for");
    // Inside a message.
    let mut side = open();
    side.post(ADD);
    side.said();
    side.record(announce(7, 0, 100));
    side.taken();
    side.record(old(1));
    let partial = "Write { token: 7, next: 0, left: 100, immediate: None }";
    let detail = format!("the answer to an atomic inside an unfinished {partial}");
    broken(&mut side, "messages", &detail);
}

#[test]
fn v95_a_refusal_names_the_atomic() {
    let mut side = open();
    side.refuse =
        Some((|event| matches!(event, Event::Atomic { .. }), RefusalClass::Misaligned, ""));
    side.record(atomic(2, 16));
    let detail = record::detail(Some(Operation::Atomic), Some(RefusalClass::Misaligned));
    let said = side.said();
    // The records before it: Request, Ready.
    assert_eq!(
        said[..],
        [(Header { detail, address: 2, ..Header::new(RecordKind::Refuse) }, vec![])]
    );
    ended(&mut side);
    // And ours is the one that the peer names.
    let mut side = open();
    side.post(our_write(8));
    side.post(ADD);
    let first = side.said().len() as u64;
    side.record(Header { detail, address: first, ..Header::new(RecordKind::Refuse) });
    let got = side.taken();
    let [Got::Failed { id, error }] = &got[..] else { panic!("{got:?}") };
    assert_eq!(*id, Some(1));
    assert_eq!(error.class, Some(RefusalClass::Misaligned));
    assert_eq!(error.operation, Some(Operation::Atomic));
}

/// A peer of an earlier version says nothing of atomics and immediate data, and is sent neither.
#[test]
fn v134_a_peer_that_does_not_say_that_it_takes_them_gets_none() {
    let immediate = Some(Immediate { value: 1, solicited: false });
    let with = Message::Write { token: 7, address: 0, length: 8, verdict: true, immediate };
    for extended in [false, true] {
        let flags = if extended { record::EXTENDED } else { 0 };
        let mut accepting = passive();
        accepting.record(Header { flags, ..limits(RecordKind::Request, LIMITS) });
        accepting.wire.accept(accepting.now, LIMITS, b"").unwrap();
        accepting.said();
        accepting.record(Header::new(RecordKind::Ready));
        let mut connecting = active();
        connecting.record(Header { flags, ..limits(RecordKind::Reply, LIMITS) });
        connecting.wire.confirm(connecting.now).unwrap();
        for mut side in [accepting, connecting] {
            side.said();
            side.beside(4 << 32);
            let other = if extended { Begin::Started } else { Begin::Unknown };
            assert_eq!(side.begin(ADD), other);
            side.transmit();
            assert_eq!(side.begin(with), other);
            side.transmit();
            let kinds: Vec<_> = side.said().iter().map(|(header, _)| header.kind).collect();
            let sent: &[RecordKind] =
                if extended { &[RecordKind::Atomic, RecordKind::Write] } else { &[] };
            assert_eq!(kinds, sent);
            assert_eq!(side.begin(our_write(8)), Begin::Started, "and everything else");
        }
    }
}
