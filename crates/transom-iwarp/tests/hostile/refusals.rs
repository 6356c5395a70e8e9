//! What a peer is told about tokens.

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
fn g6_a_range_that_wraps_around_is_refused_before_anyone_is_asked() {
    let mut side = peer();
    side.feed(&frame("c140 00012a07 fffffffffffffff8", &[1; 16]));
    refused(&mut side, (1, 1, 3));
    let mut side = peer();
    side.feed(&read_request(2, 16, u64::MAX - 7));
    refused(&mut side, (0, 1, 4));
    // The last bytes there are do not wrap.
    let mut side = peer();
    side.feed(&frame("c140 00012a07 fffffffffffffff8", &[1; 8]));
    assert_eq!(side.taken().len(), 1);
    // As the engine would say it.
    assert_eq!(told(RefusalClass::Wrap, &frame(WRITE, b"data")), (1, 1, 3));
    assert_eq!(told(RefusalClass::Wrap, &read_request(2, 8, 0)), (0, 1, 4));
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
