//! Credits of Sends.

use super::*;

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
    assert_eq!(pair.active.waiting, Some(Waiting::Receive { limit, refused: true }));
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
    assert_eq!(a.waiting, Some(Waiting::Receive { limit: None, refused: false }));
    // The passive side reads the wish and answers that there is nothing.
    p.feed(&request);
    let answer = p.talk();
    a.feed(&answer);
    a.talk();
    let limit = Some(Config::new(Role::Active).common.receive_wait);
    assert_eq!(a.waiting, Some(Waiting::Receive { limit, refused: true }));
}

#[test]
fn an_empty_shared_queue_never_fails_a_send() {
    let mut pair = with_receives(0, true);
    pair.active.send(b"one");
    pair.run();
    assert_eq!(pair.active.waiting, Some(Waiting::Receive { limit: None, refused: true }));
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
    pair.active.wire.release(Release::Now);
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
