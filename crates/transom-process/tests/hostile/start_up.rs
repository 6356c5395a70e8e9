//! Start-up: what comes at the wrong time, or with the wrong size, or not at all.

use super::*;

const START_UP: [RecordKind; 4] =
    [RecordKind::Request, RecordKind::Reply, RecordKind::Reject, RecordKind::Ready];
const MESSAGES: [RecordKind; 7] = [
    RecordKind::Announce,
    RecordKind::Write,
    RecordKind::Send,
    RecordKind::Read,
    RecordKind::Answer,
    RecordKind::Refuse,
    RecordKind::Ack,
];

/// A passive side whose program has not decided yet.
fn pending() -> Side {
    let mut side = passive();
    side.record(limits(RecordKind::Request, LIMITS));
    side.taken();
    side
}

/// A passive side that has accepted.
fn accepted() -> Side {
    let mut side = pending();
    side.wire.accept(side.now, LIMITS, b"").unwrap();
    side.said();
    side
}

/// An active side that was accepted and has not completed.
fn answered() -> Side {
    let mut side = active();
    side.record(limits(RecordKind::Reply, LIMITS));
    side.taken();
    side
}

#[test]
fn each_phase_takes_its_own_records_only() {
    let phases: [(Make, &[RecordKind]); 5] = [
        (passive, &[RecordKind::Request]),
        (pending, &[]),
        (accepted, &[RecordKind::Ready]),
        (active, &[RecordKind::Reply, RecordKind::Reject]),
        (answered, &[]),
    ];
    for (phase, fit) in phases {
        for kind in START_UP.into_iter().chain(MESSAGES) {
            let mut side = phase();
            side.hear_record(Header { flags: LAST, ..Header::new(kind) });
            if fit.contains(&kind) {
                assert!(!side.taken().is_empty() && side.violation.is_none(), "{kind:?}");
            } else {
                silent(&mut side, &format!("a {kind:?} where start-up has not come so far"));
            }
        }
    }
}

/// A peer that does so does not learn what was wrong, and nothing of it is kept.
#[test]
fn a_record_of_no_kind_ends_start_up() {
    let mut side = passive();
    side.hear(&[0xFF; HEADER]);
    let violation = side.violation.take().unwrap();
    assert_eq!((violation.rule, &violation.detail[..]), ("records", "a record of no known kind"));
    assert_eq!((side.taken(), side.said()), (vec![], vec![]));
    assert!(side.wire.facts().is_none());
    ended(&mut side);
}

/// The smaller of what each side wants, in each direction, and never more than a side's own cap.
#[test]
fn limits_of_the_peer_are_capped() {
    let huge = Header { address: u64::MAX, token: u32::MAX, ..Header::new(RecordKind::Request) };
    let mut side = passive();
    side.record(huge);
    let caps = ReadLimits { inbound: 128, outbound: 128 };
    assert_eq!(side.taken(), [Got::Request { limits: caps, private: vec![] }]);
    side.wire.accept(side.now, ReadLimits { inbound: 129, outbound: 3 }, b"").unwrap();
    let agreed = ReadLimits { inbound: 128, outbound: 3 };
    assert_eq!(side.said(), [(limits(RecordKind::Reply, agreed), vec![])]);
    assert_eq!(side.wire.facts().unwrap().limits, agreed);
    // Each side may ask for as much as the other serves.
    let mut side = passive();
    side.record(limits(RecordKind::Request, ReadLimits { inbound: 5, outbound: 6 }));
    let seen = ReadLimits { inbound: 6, outbound: 5 };
    assert_eq!(side.taken(), [Got::Request { limits: seen, private: vec![] }]);
    side.wire.accept(side.now, caps, b"").unwrap();
    assert_eq!(side.said(), [(limits(RecordKind::Reply, seen), vec![])]);
    // A Reply cannot raise what was asked for.
    for (theirs, inbound, outbound) in [(u32::MAX, 4, 4), (4, 4, 4), (3, 3, 3), (0, 0, 0)] {
        let mut side = active();
        side.record(Header {
            kind: RecordKind::Reply,
            address: theirs.into(),
            token: theirs,
            ..huge
        });
        let limits = ReadLimits { inbound, outbound };
        assert_eq!(side.taken(), [Got::Accepted { limits, private: vec![] }]);
        assert_eq!(side.wire.facts().unwrap().limits, limits);
    }
    let mut side = active();
    side.record(limits(RecordKind::Reply, ReadLimits { inbound: 1, outbound: 2 }));
    let limits = ReadLimits { inbound: 2, outbound: 1 };
    assert_eq!(side.taken(), [Got::Accepted { limits, private: vec![] }]);
}

/// A program cannot tell which path it has.
#[test]
fn private_data_has_the_limit_of_the_other_path() {
    use transom_wire::SetupError::{Order, PrivateData};
    let (fits, too_long) = (pattern(508), pattern(509));
    let refused = Err(PrivateData { limit: 508 });
    let mut side = passive();
    assert_eq!(side.wire.accept(side.now, LIMITS, b""), Err(Order));
    assert_eq!(side.wire.reject(side.now, b""), Err(Order));
    let mut side = pending();
    assert_eq!(side.wire.accept(side.now, LIMITS, &too_long), refused);
    assert_eq!(side.wire.reject(side.now, &too_long), refused);
    assert_eq!(side.said(), [], "and nothing has happened");
    assert!(side.wire.facts().is_none());
    side.wire.accept(side.now, LIMITS, &fits).unwrap();
    let reply = Header { length: 508, ..limits(RecordKind::Reply, LIMITS) };
    assert_eq!(side.said(), [(reply, fits.clone())]);
    assert_eq!(side.wire.accept(side.now, LIMITS, b""), Err(Order));
    let mut side = pending();
    side.wire.reject(side.now, &fits).unwrap();
    assert_eq!(
        side.said(),
        [(Header { length: 508, ..Header::new(RecordKind::Reject) }, fits.clone())]
    );
    ended(&mut side);
    let mut side = Side::new(Config::new(Role::Active));
    assert_eq!(side.wire.connect(side.now, LIMITS, &too_long), refused);
    assert_eq!((side.said(), side.wire.deadline()), (vec![], None));
    assert_eq!(side.wire.confirm(side.now), Err(Order));
    side.wire.connect(side.now, LIMITS, &fits).unwrap();
    assert_eq!(
        side.said(),
        [(Header { length: 508, ..limits(RecordKind::Request, LIMITS) }, fits)]
    );
    assert_eq!(side.wire.connect(side.now, LIMITS, b""), Err(Order));
    assert_eq!(side.wire.confirm(side.now), Err(Order));
}

/// A side that was rejected says nothing and expects nothing.
#[test]
fn a_rejected_side_has_ended() {
    let mut side = active();
    side.record(Header { length: 40, ..Header::new(RecordKind::Reject) });
    assert_eq!(side.taken(), [Got::Rejected { private: pattern(40) }]);
    assert_eq!(side.said(), []);
    assert_eq!(side.wire.confirm(side.now), Err(transom_wire::SetupError::Order));
    assert!(side.wire.facts().is_none());
    ended(&mut side);
}

#[test]
fn every_wait_for_the_peer_ends() {
    let config = Config::new(Role::Passive);
    let waits: [(Make, Duration, &str); 3] = [
        (passive, config.handshake_timeout, "the peer did not send a connection request in time"),
        (active, config.reply_timeout, "the peer did not answer the connection request in time"),
        (
            accepted,
            config.confirm_timeout.unwrap(),
            "the peer did not complete the connection in time",
        ),
    ];
    for (phase, wait, detail) in waits {
        let mut side = phase();
        let at = side.now.after(wait);
        assert_eq!(side.wire.deadline(), Some(at));
        assert_eq!(side.wire.on_deadline(Time(at.0 - 1)), Ok(()));
        assert_eq!(side.wire.deadline(), Some(at), "a nanosecond is left");
        side.violation = side.wire.on_deadline(at).err();
        silent(&mut side, detail);
    }
    // A program may think for as long as it likes, and may wait without limit if it says so.
    for side in [pending(), answered()] {
        assert_eq!(side.wire.deadline(), None);
    }
    let config = Config { confirm_timeout: None, ..Config::new(Role::Passive) };
    let mut side = Side::new(config);
    side.record(limits(RecordKind::Request, LIMITS));
    side.wire.accept(side.now, LIMITS, b"").unwrap();
    assert_eq!(side.wire.deadline(), None);
}

#[test]
fn the_link_does_not_end_in_start_up() {
    let phases: [(Make, &str); 5] = [
        (passive, "the link ended during start-up"),
        (pending, "the link ended during start-up"),
        (active, "the link ended during start-up"),
        (answered, "the link ended during start-up"),
        (accepted, "the peer went away instead of completing the connection"),
    ];
    for (phase, detail) in phases {
        let mut side = phase();
        side.violation = side.wire.link_closed(side.now, false).err();
        silent(&mut side, detail);
    }
}

/// The terms go with the link: a Reply that waits does not leave any more.
#[test]
fn nothing_leaves_after_start_up_has_failed() {
    let mut side = pending();
    side.wire.accept(side.now, LIMITS, b"hello").unwrap();
    side.hear_record(send(8, LAST));
    silent(&mut side, "a Send where start-up has not come so far");
}

/// No message goes out before start-up is over, and the first word grants the first receives.
#[test]
fn messages_wait_for_the_end_of_start_up() {
    let phases: [Make; 5] = [passive, pending, accepted, active, answered];
    for phase in phases {
        let mut side = phase();
        assert_eq!(side.begin(our_write(8)), Begin::Wait(Waiting::Start));
        assert_eq!(whole(&mut side, 0, &our_write(8)), None);
        side.wire.receives_posted(side.now, 3, false);
        side.wire.release(Release::Now);
        assert_eq!(side.wire.acknowledgement(side.now), None);
        assert_eq!((side.said(), side.ours().acknowledged()), (vec![], 0));
    }
    let mut side = accepted();
    side.wire.receives_posted(side.now, 3, false);
    side.record(Header::new(RecordKind::Ready));
    let got = side.taken();
    assert!(got.len() == 2 && got.contains(&Got::Established) && got.contains(&Got::Resume));
    side.transmit();
    assert_eq!(side.ours().acknowledged(), 2 | 3 << 32);
}
