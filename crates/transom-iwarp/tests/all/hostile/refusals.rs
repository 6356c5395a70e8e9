//! The words that a peer gets about tokens.

use super::*;

#[test]
fn g1_g2_g13_no_such_token() {
    assert_eq!(told(RefusalClass::Token, &frame(WRITE, b"data")), (1, 1, 0));
    assert_eq!(told(RefusalClass::Token, &read_request(2, 8, 0)), (0, 1, 0));
}

#[test]
fn g3_g4_token_of_another_domain_or_stream() {
    assert_eq!(told(RefusalClass::Scope, &frame(WRITE, b"data")), (1, 1, 2));
    assert_eq!(told(RefusalClass::Scope, &read_request(2, 8, 0)), (0, 1, 3));
}

#[test]
fn g5_right() {
    assert_eq!(told(RefusalClass::Right, &frame(WRITE, b"data")), (0, 1, 2));
    assert_eq!(told(RefusalClass::Right, &read_request(2, 8, 0)), (0, 1, 2));
}

#[test]
fn g6_a_range_that_wraps_around_is_the_engines_to_refuse() {
    // The record of a refusal is made where all ranges are judged.
    let write = frame("c140 00012a07 fffffffffffffff8", &[1; 16]);
    let read = read_request(2, 16, u64::MAX - 7);
    let mut side = peer();
    side.feed(&write);
    side.feed(&read);
    let token = 0x0001_2a07;
    let written = Got::Write { token, address: u64::MAX - 7, data: vec![1; 16] };
    let asked = Got::Asked { slot: 2, token, address: u64::MAX - 7, length: 16 };
    assert_eq!(side.taken(), [written, asked]);
    assert_eq!(told(RefusalClass::Wrap, &write), (1, 1, 3));
    assert_eq!(told(RefusalClass::Wrap, &read), (0, 1, 4));
}

#[test]
fn g7_bounds() {
    assert_eq!(told(RefusalClass::Bounds, &frame(WRITE, b"data")), (1, 1, 1));
    assert_eq!(told(RefusalClass::Bounds, &read_request(2, 8, 0)), (0, 1, 1));
}

#[test]
fn g8_nothing_is_asked_about_a_read_of_nothing() {
    let mut side = peer();
    side.feed(&read_request(2, 0, u64::MAX));
    assert_eq!(side.taken(), []);
    assert_eq!(side.talk(), frame("c142 00000500 0000000000001000", b""));
    // A Write of nothing is a message all the same.
    side.feed(&frame("c140 00000000 ffffffffffffffff", b""));
    assert_eq!(side.taken(), [Got::Write { token: 0, address: u64::MAX, data: vec![] }]);
}

#[test]
fn g10_invalidations() {
    let send = frame("4144 00012a07 00000000 00000001 00000000", b"data");
    assert_eq!(told(RefusalClass::NotInvalidatable, &send), (0, 2, 9));
    let invalidate = transom_wire::Operation::Invalidate;
    let code = |class| transom_iwarp::faults::Fault::of(invalidate, class).row().code;
    assert_eq!(code(RefusalClass::Token), (0, 2, 9));
    assert_eq!(code(RefusalClass::Scope), (0, 1, 9));
}
