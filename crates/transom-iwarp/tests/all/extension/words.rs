//! Words of the fronts, which two Transoms tell each other in start-up (iW 1.2 rule 12).

use super::*;

const OWN: u32 = 0x1234_5678;
const PEERS: u32 = 0x9ABC_DEF0;

fn asking() -> Config {
    Config { asks_front_word: true, ..Config::new(Role::Passive) }
}

/// An active side that has sent its Request, and the Request.
fn asked(private: &[u8]) -> (Side, Vec<u8>) {
    let mut side = Side::new(Config::new(Role::Active));
    side.wire.set_front_word(OWN);
    side.wire.connect(side.now, LIMITS, private).unwrap();
    let request = side.talk();
    (side, request)
}

fn connect(active: Option<u32>, passive: Option<u32>, config: Config) -> Pair {
    let mut pair = Pair::new(Config::new(Role::Active), config);
    if let Some(word) = active {
        pair.active.wire.set_front_word(word);
    }
    if let Some(word) = passive {
        pair.passive.wire.set_front_word(word);
    }
    pair.connect(LIMITS, LIMITS);
    pair
}

#[test]
fn each_side_learns_the_others_and_private_data_is_the_programs() {
    let pair = connect(Some(OWN), Some(PEERS), asking());
    assert_eq!(pair.active.wire.peer_front_word(), Some(PEERS));
    assert_eq!(pair.passive.wire.peer_front_word(), Some(OWN));
    assert!(pair.passive.got.contains(&Got::Request { limits: LIMITS, private: b"hello".into() }));
    assert!(
        pair.active.got.contains(&Got::Accepted { limits: LIMITS, private: b"welcome".into() })
    );
    assert!(pair.active.wire.facts().unwrap().extension);
}

#[test]
fn the_word_is_there_when_the_request_is_shown() {
    let (mut active, request) = asked(b"hello");
    let mut passive = Side::new(asking());
    passive.feed(&request);
    assert_eq!((passive.taken(), passive.wire.peer_front_word()), (vec![], None));
    let question = passive.talk();
    assert_eq!(question, mpa::QUESTION);
    active.feed(&question);
    assert_eq!(active.taken(), []);
    passive.feed(&active.talk());
    let shown = Got::Request { limits: LIMITS, private: b"hello".into() };
    assert_eq!((passive.taken(), passive.wire.peer_front_word()), (vec![shown], Some(OWN)));
}

#[test]
fn a_side_without_a_word_is_not_asked_and_not_told() {
    for (active, asks, known) in
        [(None, true, (None, None)), (Some(OWN), false, (Some(PEERS), None))]
    {
        let config = Config { asks_front_word: asks, ..Config::new(Role::Passive) };
        let pair = connect(active, Some(PEERS), config);
        let words = (pair.active.wire.peer_front_word(), pair.passive.wire.peer_front_word());
        assert_eq!(words, known);
    }
    let pair = connect(Some(OWN), None, asking());
    assert_eq!(pair.active.wire.peer_front_word(), None);
    assert_eq!(pair.passive.wire.peer_front_word(), Some(OWN));
}

/// A plain peer gets a Request of its form, and its private data is all its program's.
#[test]
fn a_plain_peer_is_neither_asked_nor_told() {
    let plain = |role| Config { extension: false, ..Config::new(role) };
    let mut pair = Pair::new(Config::new(Role::Active), plain(Role::Passive));
    pair.active.wire.set_front_word(OWN);
    pair.passive.wire.set_front_word(PEERS);
    pair.connect(LIMITS, LIMITS);
    assert!(
        pair.passive.got.iter().any(
            |got| matches!(got, Got::Request { private, .. } if private.as_slice() == b"hello")
        )
    );
    assert!(pair.active.got.iter().any(
        |got| matches!(got, Got::Accepted { private, .. } if private.as_slice() == b"welcome")
    ));
    assert_eq!(pair.active.wire.peer_front_word(), None);
    // siw answers with the flags of the Request (iW 9.3).
    let (mut active, request) = asked(b"");
    assert_eq!(request[16] & 0x0F, mpa::OFFER | mpa::ANSWERS);
    let mut reply = request;
    reply[..16].copy_from_slice(&mpa::REPLY_KEY);
    reply[18..20].copy_from_slice(&[0, 8]);
    reply[20..24].copy_from_slice(&common::hex("8004 8004"));
    reply.extend_from_slice(b"data");
    active.feed(&reply);
    assert!(
        matches!(&active.taken()[..], [Got::Accepted { private, .. }] if private.as_slice() == b"data")
    );
    assert!(!active.wire.facts().unwrap().extension);
    // Whatever such a peer has in its reserved bits, its private data is whole.
    let mut active = asked(b"").0;
    reply[16] |= mpa::TELLS;
    active.feed(&reply);
    assert!(
        matches!(&active.taken()[..], [Got::Accepted { private, .. }] if private.as_slice() == b"data")
    );
    // A Request of a plain peer with that bit is not asked.
    let mut passive = Side::new(asking());
    let mut request = asked(b"").1;
    request[16] &= !mpa::OFFER;
    passive.feed(&request);
    assert!(matches!(passive.taken()[..], [Got::Request { .. }]));
}

#[test]
fn a_question_may_be_cut_anywhere_and_is_answered_once() {
    let (mut active, request) = asked(b"hello");
    for byte in mpa::QUESTION {
        active.feed(&[byte]);
    }
    let answer = active.talk();
    let word = [&OWN.to_be_bytes()[..], b"hello"].concat();
    assert_eq!(answer[..18], request[..18]);
    assert_eq!(answer[18..20], [0, 13]);
    assert_eq!(answer[20..24], request[20..24]);
    assert_eq!(answer[24..], word);
    active.feed(&mpa::QUESTION);
    assert_eq!(active.violation.as_ref().map(|found| found.rule), Some("RFC 5044 7.1.1"));
    // A side that has no word does not know the question.
    let mut other = Side::new(Config::new(Role::Active));
    other.wire.connect(other.now, LIMITS, b"").unwrap();
    other.talk();
    other.feed(&mpa::QUESTION[..8]);
    assert!(other.violation.is_some());
    assert_eq!(other.talk(), b"");
}

#[test]
fn an_answer_without_its_word_ends_the_stream() {
    for length in 0..5 {
        let mut passive = Side::new(asking());
        passive.feed(&asked(b"").1);
        assert_eq!(passive.talk(), mpa::QUESTION);
        passive.feed(&asked(&[7; 4][..length.min(4)]).1[..]);
        assert_eq!(passive.violation.is_some(), length < 4, "{length} bytes");
        let word = (length >= 4).then_some(0x0707_0707);
        assert_eq!(passive.wire.peer_front_word(), word);
    }
    // The other way round: a Reply that promises one.
    let (mut active, request) = asked(b"");
    let mut reply = request;
    reply[..16].copy_from_slice(&mpa::REPLY_KEY);
    reply[16] = mpa::CHECKSUM | mpa::ENHANCED | mpa::ACCEPT | mpa::TELLS;
    reply[18..20].copy_from_slice(&[0, 7]);
    reply[20..24].copy_from_slice(&common::hex("8004 8004"));
    reply.extend_from_slice(&[1, 2, 3]);
    active.feed(&reply);
    assert!(active.violation.is_some());
    assert_eq!(active.taken(), []);
}

/// A side that is asked and does not answer has the time of a Request, and no more.
#[test]
fn a_question_that_is_not_answered_times_out() {
    let mut passive = Side::new(asking());
    let limit = Config::new(Role::Passive).common.handshake_timeout;
    passive.wait(limit - Duration::from_nanos(2));
    passive.feed(&asked(b"").1);
    passive.talk();
    passive.wait(Duration::from_nanos(1));
    assert_eq!(passive.violation, None);
    passive.wait(Duration::from_nanos(1));
    assert!(passive.violation.is_some());
    assert_eq!(passive.taken(), []);
}

/// Four bytes of private data are the word's, where there is one to be told.
#[test]
fn private_data_has_room_beside_the_word() {
    let mut active = Side::new(Config::new(Role::Active));
    active.wire.set_front_word(OWN);
    let too_long = Err(transom_wire::SetupError::PrivateData { limit: 504 });
    assert_eq!(active.wire.connect(active.now, LIMITS, &[0; 505]), too_long);
    active.wire.connect(active.now, LIMITS, &[5; 504]).unwrap();
    let mut passive = Side::new(asking());
    passive.wire.set_front_word(PEERS);
    passive.feed(&active.talk());
    active.feed(&passive.talk());
    passive.feed(&active.talk());
    let shown = Got::Request { limits: LIMITS, private: vec![5; 504] };
    assert_eq!(passive.taken(), [shown]);
    assert_eq!(passive.wire.accept(passive.now, LIMITS, &[0; 505]), too_long);
    passive.wire.accept(passive.now, LIMITS, &[6; 504]).unwrap();
    active.feed(&passive.talk());
    assert_eq!(active.taken(), [Got::Accepted { limits: LIMITS, private: vec![6; 504] }]);
}

#[test]
fn a_rejection_behind_the_question_has_its_private_data() {
    let (mut active, request) = asked(b"");
    let mut passive = Side::new(asking());
    passive.wire.set_front_word(PEERS);
    passive.feed(&request);
    active.feed(&passive.talk());
    passive.feed(&active.talk());
    passive.wire.reject(passive.now, b"no").unwrap();
    active.feed(&passive.talk());
    assert_eq!(active.taken(), [Got::Rejected { private: b"no".into() }]);
    assert_eq!(active.wire.peer_front_word(), None);
}
