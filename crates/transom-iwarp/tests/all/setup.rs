//! Start-up: the rules of iW 1.2 and 2, read limits, verdicts, and what a real siw needs (iW 18).

use std::time::Duration;

use crate::common::{Got, LIMITS, Pair, Side, hex, terminate_code};
use transom_iwarp::{Config, Revision, TerminateForm, mpa};
use transom_wire::{
    Begin, Message, MessageId, ReadLimits, Receiving, Role, Sending, SetupError, StartUp, Verdicts,
    Waiting,
};

fn plain(role: Role) -> Config {
    Config { extension: false, ..Config::new(role) }
}

fn reads(inbound: u32, outbound: u32) -> ReadLimits {
    ReadLimits { inbound, outbound }
}

fn waiting(config: Config) -> Side {
    let mut side = Side::new(config);
    side.wire.connect(side.now, LIMITS, b"").unwrap();
    side.talk();
    side
}

fn reply(rest: &str) -> Vec<u8> {
    [&mpa::REPLY_KEY[..], &hex(rest)].concat()
}

fn request(rest: &str) -> Vec<u8> {
    [&mpa::REQUEST_KEY[..], &hex(rest)].concat()
}

// ---- order ------------------------------------------------------------------------------------

#[test]
fn rule_1_the_passive_side_says_nothing_before_a_request() {
    let mut side = Side::new(Config::new(Role::Passive));
    side.send(b"too early");
    assert_eq!(side.talk(), b"");
    assert_eq!(side.waiting, Some(Waiting::Start));
    assert_eq!(side.wire.accept(side.now, LIMITS, b""), Err(SetupError::Order));
    assert_eq!(side.wire.reject(side.now, b""), Err(SetupError::Order));
}

#[test]
fn rule_2_the_active_side_sends_no_frame_before_the_reply_and_its_program() {
    let mut side = waiting(plain(Role::Active));
    side.send(b"too early");
    assert_eq!(side.talk(), b"");
    assert_eq!(side.wire.confirm(side.now), Err(SetupError::Order));
    side.feed(&reply("5002 0004 0004 0004"));
    side.wait(Duration::from_secs(1));
    assert_eq!(side.talk(), b"");
    side.wire.confirm(side.now).unwrap();
    side.listen();
    assert_ne!(side.talk(), b"");
    assert_eq!(side.wire.confirm(side.now), Err(SetupError::Order));
    assert_eq!(side.wire.connect(side.now, LIMITS, b""), Err(SetupError::Order));
}

#[test]
fn rule_3_frames_glued_to_a_reply_are_taken() {
    // siw may send the first frame with its Reply when no ready-to-receive frame was agreed (iW
    // 9.3).
    let mut side = waiting(plain(Role::Active));
    let mut bytes = reply("5002 0004 0004 0004");
    bytes.extend_from_slice(&hex(
        "0017 4143 00000000 00000000 00000001 00000000 68656c6c6f 000000 b990b10c",
    ));
    side.feed(&bytes);
    let got = side.taken();
    assert!(matches!(&got[..], [Got::Accepted { .. }, Got::Send { data, .. }] if data == b"hello"));
}

#[test]
fn rule_4_the_passive_side_holds_its_frames_until_the_first_of_the_peer() {
    // With a ready-to-receive frame, without one, and in revision 1: never behind the Reply.
    for rest in ["5002 0004 8004 c004", "5002 0004 0004 0004", "4001 0000"] {
        let mut side = Side::new(plain(Role::Passive));
        side.feed(&request(rest));
        side.wire.accept(side.now, LIMITS, b"").unwrap();
        side.send(b"server talks first");
        let reply = side.talk();
        assert_eq!(reply.len(), if rest.starts_with("40") { 20 } else { 24 });
        side.wait(Duration::from_nanos(99_999_999));
        assert_eq!(side.talk(), b"", "{rest}");
        assert_eq!(side.waiting, Some(Waiting::Start));
        side.feed(&hex("000e c140 00000001 0000000000000000 ebd34c5f"));
        assert_eq!(side.waiting, None);
        assert_ne!(side.talk(), b"");
    }
}

/// siw's Request of `ucmatose`: no ready-to-receive frame, and a client that waits for its server.
#[test]
fn rule_4_the_first_word_is_left_to_a_peer_that_promises_none_for_100_ms() {
    for rest in ["1002 0004 0001 0001", "5002 0004 0004 0004", "4001 0000"] {
        let mut side = Side::new(plain(Role::Passive));
        side.feed(&request(rest));
        side.wire.accept(side.now, LIMITS, b"").unwrap();
        side.send(b"server talks first");
        side.talk();
        assert_eq!(side.wire.deadline(), Some(side.now.after(Duration::from_millis(100))));
        side.wait(Duration::from_millis(100));
        assert_eq!(side.waiting, None, "whoever waits is told");
        assert_eq!(side.talk()[..4], hex("0024 4143"), "a Send of 18 bytes");
        assert_eq!(side.wire.deadline(), None);
    }
    // A side that promises one is waited for.
    let mut side = Side::new(plain(Role::Passive));
    side.feed(&request("5002 0004 8004 c004"));
    side.wire.accept(side.now, LIMITS, b"").unwrap();
    side.send(b"server talks first");
    side.talk();
    side.wait(Duration::from_secs(59));
    assert_eq!((side.talk(), side.waiting), (vec![], Some(Waiting::Start)));
}

/// The empty Write that ends start-up is used up; any other first frame is looked at like those that
/// follow.
#[test]
fn only_the_ready_to_receive_write_is_used_up() {
    let first = |frame: &str| {
        let mut side = Side::new(plain(Role::Passive));
        side.feed(&request("5002 0004 8004 c004"));
        side.wire.accept(side.now, LIMITS, b"").unwrap();
        side.talk();
        side.taken();
        side.feed(&hex(frame));
        (side.taken(), side.violation.is_some())
    };
    let ready = "000e c140 00000001 0000000000000000 ebd34c5f";
    assert_eq!(first(ready), (vec![Got::Established], false));
    let others = [
        ("bytes", "0012 c140 00000007 0000000000000000 64617461 6fba51c5"),
        ("not its end", "000e 8140 00000007 0000000000000000 1c585d21"),
        ("a Send", "0012 4143 00000000 00000000 00000001 00000000 587be8c4"),
        ("another version", "000e c240 00000007 0000000000000000 73341b90"),
        ("a Read Response", "000e c142 00000007 0000000000000000 73bbb60d"),
    ];
    for (what, frame) in others {
        let (got, broken) = first(frame);
        assert!(got.len() == 2 || broken, "{what}: {got:?}");
    }
}

#[test]
fn rule_4_can_be_given_up_towards_peers_that_do_not_keep_it() {
    let mut side = Side::new(Config { fence: Duration::ZERO, ..plain(Role::Passive) });
    side.feed(&request("5002 0004 0004 0004"));
    side.wire.accept(side.now, LIMITS, b"").unwrap();
    side.send(b"server talks first");
    assert!(side.talk().len() > 24);
}

#[test]
fn rule_7_every_wait_ends() {
    // The peer's program has a minute to answer, and to confirm.
    let (config, minute) = (Config::new(Role::Active).common, Duration::from_secs(60));
    assert_eq!((config.reply_timeout, config.confirm_timeout), (minute, Some(minute)));
    let mut side = waiting(plain(Role::Active));
    side.wait(config.handshake_timeout);
    assert_eq!(side.violation, None, "the peer's program may think (ND2 C32)");
    side.wait(config.reply_timeout);
    assert_eq!(side.violation.unwrap().rule, "RFC 5044 7.1.2");
    let mut side = Side::new(plain(Role::Passive));
    side.feed(&request("5002 0004 8004 c004"));
    // The program may think as long as it likes.
    side.wait(Duration::from_secs(3600));
    assert_eq!((&side.violation, side.wire.deadline()), (&None, None));
    side.wire.accept(side.now, LIMITS, b"").unwrap();
    side.talk();
    side.wait(config.confirm_timeout.unwrap());
    assert_eq!(side.violation.unwrap().rule, "RFC 5044 7.1.2");
}

#[test]
fn rule_9_checksums_are_asked_for_by_default_and_on_if_either_side_asks() {
    for (active, passive) in [(true, true), (true, false), (false, true), (false, false)] {
        let config = |role, checksum| Config { checksum, ..plain(role) };
        let pair = Pair::connected(config(Role::Active, active), config(Role::Passive, passive));
        for side in [&pair.active, &pair.passive] {
            assert_eq!(side.wire.facts().unwrap().checksum, active || passive);
        }
    }
    assert!(Config::new(Role::Active).checksum);
}

#[test]
fn the_active_side_may_be_rejected_in_any_revision() {
    for rest in ["3002 0004 0004 0004", "2001 0002 6e6f", "2002 0002 6e6f"] {
        let mut side = waiting(Config::new(Role::Active));
        side.feed(&reply(rest));
        assert!(matches!(side.taken()[..], [Got::Rejected { .. }]));
        assert_eq!(side.violation, None);
        assert_eq!(side.wire.link_closed(side.now, true), Ok(()));
    }
}

#[test]
fn a_reply_in_another_form_than_the_request_is_refused() {
    for rest in ["4001 0000", "4002 0000"] {
        let mut side = waiting(Config::new(Role::Active));
        side.feed(&reply(rest));
        assert_eq!(side.violation.as_ref().unwrap().rule, "RFC 6581 10");
        assert_eq!(side.talk(), b"");
    }
}

#[test]
fn a_rejecting_side_takes_no_frame_any_more() {
    let mut side = Side::new(plain(Role::Passive));
    side.feed(&request("5002 0004 8004 c004"));
    side.taken();
    side.wire.reject(side.now, b"no").unwrap();
    assert_eq!(side.talk(), reply("7002 0006 8004 c004 6e6f"));
    side.feed(&hex("000e c140 00000001 0000000000000000 ebd34c5f"));
    assert_eq!(side.taken(), []);
    assert_eq!(side.violation, None);
    assert_eq!(side.wire.link_closed(side.now, true), Ok(()));
}

#[test]
fn private_data_has_the_wires_limit() {
    let limited = |private_limit, mut config: Config| {
        config.common.private_limit = private_limit;
        Side::new(config)
    };
    let mut side = limited(600, plain(Role::Active));
    let result = side.wire.connect(side.now, LIMITS, &[0; 509]);
    assert_eq!(result, Err(SetupError::PrivateData { limit: 508 }));
    assert_eq!(side.wire.connect(side.now, LIMITS, &[0; 508]), Ok(()));
    let mut side = limited(600, Config { revision: Revision::One, ..plain(Role::Active) });
    let result = side.wire.connect(side.now, LIMITS, &[0; 513]);
    assert_eq!(result, Err(SetupError::PrivateData { limit: 512 }));
    let mut side = limited(251, plain(Role::Passive));
    side.feed(&request("5002 0004 8004 c004"));
    let result = side.wire.accept(side.now, LIMITS, &[0; 252]);
    assert_eq!(result, Err(SetupError::PrivateData { limit: 251 }));
    assert_eq!(side.wire.accept(side.now, LIMITS, &[0; 251]), Ok(()));
}

// ---- revisions ----------------------------------------------------------------------------------

#[test]
fn a_peer_that_hangs_up_on_revision_2_may_be_asked_again_with_revision_1() {
    let mut side = waiting(Config::new(Role::Active));
    assert!(!side.wire.retry_older());
    assert!(side.wire.link_closed(side.now, true).is_err());
    assert!(side.wire.retry_older());
    // Not when it has said anything, not twice, and not on the other side.
    let mut side = waiting(Config::new(Role::Active));
    side.feed(&mpa::REPLY_KEY[..1]);
    assert!(side.wire.link_closed(side.now, true).is_err());
    assert!(!side.wire.retry_older());
    let mut side = waiting(Config { revision: Revision::One, ..Config::new(Role::Active) });
    assert!(side.wire.link_closed(side.now, true).is_err());
    assert!(!side.wire.retry_older());
    let mut side = Side::new(Config::new(Role::Passive));
    assert!(side.wire.link_closed(side.now, true).is_err());
    assert!(!side.wire.retry_older());
}

#[test]
fn revision_1_works_without_limits_and_verdicts() {
    let one = |role| Config { revision: Revision::One, ..plain(role) };
    let mut pair = Pair::connected(one(Role::Active), one(Role::Passive));
    let facts = pair.active.wire.facts().unwrap();
    assert_eq!(facts.wire, "iWARP over TCP (MPA revision 1)");
    assert_eq!((facts.verdicts, facts.limits), (Verdicts::SentOnly, LIMITS));
    assert!(pair.passive.got.contains(&Got::Established));
    pair.active.write(7, 0, b"data", true);
    pair.run();
    assert!(pair.active.taken().contains(&Got::Done(0)), "complete when sent");
    assert_eq!(pair.passive.wire.facts().unwrap().wire, "iWARP over TCP (MPA revision 1)");
}

#[test]
fn revision_1_between_transoms_is_established_by_the_first_frame() {
    let one = |role| Config { revision: Revision::One, ..Config::new(role) };
    let mut pair = Pair::connected(one(Role::Active), one(Role::Passive));
    assert!(pair.passive.got.contains(&Got::Established));
    assert_eq!(pair.passive.wire.facts().unwrap().verdicts, Verdicts::Acknowledged);
    pair.passive.send(b"server talks first");
    pair.run();
    assert_eq!(pair.active.violation, None);
}

#[test]
fn revision_2_without_enhanced_word_is_answered_in_kind() {
    let mut side = Side::new(plain(Role::Passive));
    side.feed(&request("4002 0003 616263"));
    let got = side.taken();
    assert!(matches!(&got[..], [Got::Request { private, .. }] if private == b"abc"));
    side.wire.accept(side.now, LIMITS, b"x").unwrap();
    assert_eq!(side.talk(), reply("4002 0001 78"));
}

// ---- read limits --------------------------------------------------------------------------------

#[test]
fn limits_are_the_smaller_of_both_sides_nd2_4_8() {
    let mut pair = Pair::new(Config::new(Role::Active), Config::new(Role::Passive));
    pair.connect(reads(6, 3), reads(2, 9));
    assert_eq!(
        pair.passive.got.first(),
        Some(&Got::Request { limits: reads(3, 6), private: b"hello".to_vec() })
    );
    assert_eq!(pair.active.wire.facts().unwrap().limits, reads(6, 2));
    assert_eq!(pair.passive.wire.facts().unwrap().limits, reads(2, 6));
}

#[test]
fn a_verdict_has_a_slot_above_the_users_limit() {
    let mut pair = Pair::new(plain(Role::Active), plain(Role::Passive));
    pair.connect(reads(4, 3), reads(4, 3));
    // The passive side serves four; the active side's program asked for three.
    assert_eq!(pair.active.wire.facts().unwrap().limits.outbound, 3);
    for _ in 0..3 {
        pair.active.read(9, 0, 8);
    }
    pair.active.write(7, 0, b"data", true);
    pair.active.read(9, 0, 8);
    let sent = pair.active.talk();
    assert_eq!(pair.active.waiting, Some(Waiting::ReadSlot), "the slot is not the user's");
    pair.passive.feed(&sent);
    assert_eq!(pair.passive.violation, None);
    pair.run();
    assert!(pair.active.taken().contains(&Got::Done(3)));
}

#[test]
fn a_verdict_without_a_slot_of_its_own_takes_turns_with_the_program() {
    let mut pair = Pair::new(plain(Role::Active), plain(Role::Passive));
    pair.connect(reads(4, 4), reads(1, 4));
    // A single Read is served, and the program sees one.
    assert_eq!(pair.active.wire.facts().unwrap().limits.outbound, 1);
    pair.run();
    pair.active.taken();
    pair.active.read(9, 0, 8);
    pair.active.write(7, 0, b"data", true);
    let sent = pair.active.talk();
    assert!(!pair.active.wire.has_output(), "nothing to do before an answer");
    pair.passive.feed(&sent);
    let answers = pair.passive.talk();
    pair.active.feed(&answers);
    // The verdict has waited longer than the next read: it has the free slot.
    pair.active.read(9, 0, 8);
    let sent = pair.active.talk();
    assert_eq!(pair.active.waiting, Some(Waiting::ReadSlot));
    pair.passive.feed(&sent);
    let answers = pair.passive.talk();
    pair.active.feed(&answers);
    assert!(pair.active.taken().contains(&Got::Done(1)));
    // And then it is the read's turn, without being asked.
    assert_eq!(pair.active.waiting, None);
    pair.run();
    assert_eq!((&pair.active.violation, &pair.passive.violation), (&None, &None));
}

#[test]
fn a_verdict_shares_the_only_read() {
    // A peer that serves one read at a time.
    let mut side = waiting(Config { peer_to_peer: false, ..plain(Role::Active) });
    side.feed(&reply("5002 0004 0001 0001"));
    let facts = side.wire.facts().unwrap();
    assert_eq!((facts.limits.outbound, facts.verdicts), (1, Verdicts::ProbedByRead));
    // A peer that serves none: a Write is done when it is sent.
    let mut side = waiting(Config { peer_to_peer: false, ..plain(Role::Active) });
    side.feed(&reply("5002 0004 0000 0001"));
    let facts = side.wire.facts().unwrap();
    assert_eq!((facts.limits.outbound, facts.verdicts), (0, Verdicts::SentOnly));
    // Neither side wants to read.
    let mut side = Side::new(Config { peer_to_peer: false, ..plain(Role::Active) });
    side.wire.connect(side.now, reads(4, 0), b"").unwrap();
    side.talk();
    side.feed(&reply("5002 0004 0001 0001"));
    let facts = side.wire.facts().unwrap();
    assert_eq!((facts.limits.outbound, facts.verdicts), (0, Verdicts::ProbedByRead));
}

/// ND2 4.8: 0 is a limit like any other, whatever else a plain peer has to learn (iW L2).
#[test]
fn between_transoms_no_reads_are_none() {
    for (asked, granted) in [(reads(0, 3), reads(2, 2)), (reads(3, 0), reads(2, 2))] {
        let mut pair = Pair::new(Config::new(Role::Active), Config::new(Role::Passive));
        pair.connect(asked, granted);
        let mirror = reads(asked.outbound, asked.inbound);
        assert!(
            matches!(pair.passive.got[0], Got::Request { limits, .. } if limits == mirror),
            "{:?}",
            pair.passive.got
        );
        let agreed = reads(asked.inbound.min(2), asked.outbound.min(2));
        assert_eq!(pair.active.wire.facts().unwrap().limits, agreed);
        let agreed = reads(agreed.outbound, agreed.inbound);
        assert_eq!(pair.passive.wire.facts().unwrap().limits, agreed);
        pair.run();
        assert!(pair.passive.got.contains(&Got::Established));
    }
    let mut pair = Pair::new(Config::new(Role::Active), Config::new(Role::Passive));
    pair.connect(reads(4, 4), reads(0, 0));
    assert_eq!(pair.active.wire.facts().unwrap().limits, reads(0, 0));
    assert!(pair.passive.got.contains(&Got::Established));
}

#[test]
fn a_reply_that_wants_more_reads_than_offered_is_terminated() {
    let mut side = waiting(plain(Role::Active));
    side.feed(&reply("5002 0004 8004 c005"));
    assert_eq!(side.taken(), []);
    assert_eq!(terminate_code(&side.talk()), Some((2, 0, 6)));
}

#[test]
fn a_passive_side_whose_reply_is_terminated_was_never_established() {
    for (vector, code) in [("2006", "2/0/06"), ("0206", "2/0/06 (siw)"), ("2007", "2/0/07")] {
        let mut side = Side::new(plain(Role::Passive));
        side.feed(&request("5002 0004 8004 c004"));
        side.wire.accept(side.now, LIMITS, b"").unwrap();
        side.talk();
        side.taken();
        let header = "0016 4147 00000000 00000002 00000001 00000000";
        let mut bytes = hex(&format!("{header} {vector} 0000"));
        transom_iwarp::fpdu::seal(&mut bytes, 0, true);
        side.feed(&bytes);
        let got = side.taken();
        let [Got::Failed { id: None, error }] = &got[..] else { unreachable!("{got:?}") };
        assert!(error.code.starts_with(&format!("Terminate {}", &code[..6])), "{}", error.code);
    }
}

/// iW 7.3: 02 05 is a refused start-up in siw's bit order as long as nothing has come, and behind a
/// message an unknown RDMAP version in the RFC's.
#[test]
fn a_terminate_behind_a_message_is_not_about_the_start_up() {
    for (message, code) in [(false, "Terminate 2/0/05"), (true, "Terminate 0/2/05")] {
        let mut side = Side::new(plain(Role::Passive));
        side.feed(&request("5002 0004 8004 c004"));
        side.wire.accept(side.now, LIMITS, b"").unwrap();
        side.talk();
        side.taken();
        if message {
            let mut send = hex("0012 4143 00000000 00000000 00000001 00000000");
            transom_iwarp::fpdu::seal(&mut send, 0, true);
            side.feed(&send);
            assert_eq!(side.taken().len(), 2, "established, and a Send");
        }
        let mut bytes = hex("0016 4147 00000000 00000002 00000001 00000000 0205 0000");
        transom_iwarp::fpdu::seal(&mut bytes, 0, true);
        side.feed(&bytes);
        let got = side.taken();
        let [Got::Failed { id: None, error }] = &got[..] else { unreachable!("{got:?}") };
        assert!(error.code.starts_with(code), "{}", error.code);
    }
}

#[test]
fn do_not_negotiate_keeps_both_sides_own_limits() {
    // RFC 6581 9.1: 0x3FFF.
    let mut side = Side::new(plain(Role::Passive));
    side.feed(&request("5002 0004 3fff 3fff"));
    side.wire.accept(side.now, reads(7, 5), b"").unwrap();
    assert_eq!(side.talk(), reply("5002 0004 3fff 3fff"));
    assert_eq!(side.wire.facts().unwrap().limits, reads(7, 5));
    let mut side = waiting(Config { peer_to_peer: false, ..plain(Role::Active) });
    side.feed(&reply("5002 0004 3fff 3fff"));
    assert_eq!(side.wire.facts().unwrap().limits, LIMITS);
    // We never say it ourselves.
    let mut config = plain(Role::Active);
    config.common.read_caps = reads(u32::MAX, u32::MAX);
    let mut side = Side::new(config);
    side.wire.connect(side.now, reads(u32::MAX, u32::MAX), b"").unwrap();
    assert_eq!(side.talk()[20..], hex("bffe fffe"));
}

#[test]
fn the_readys_read_needs_a_slot_on_both_sides() {
    // iW 2.2: a responder may raise its IRD to 1.
    let mut pair = Pair::new(plain(Role::Active), plain(Role::Passive));
    pair.connect(reads(0, 0), reads(0, 0));
    assert_eq!((&pair.active.violation, &pair.passive.violation), (&None, &None));
    assert!(pair.passive.got.contains(&Got::Established));
}

// ---- iW 18 --------------------------------------------------------------------------------------

#[test]
fn l1_the_first_frame_to_a_plain_peer_waits_20_ms_behind_the_reply() {
    let mut side = waiting(plain(Role::Active));
    side.feed(&reply("5002 0004 8004 8004"));
    side.wire.confirm(side.now).unwrap();
    side.listen();
    side.send(b"data");
    assert_eq!(side.talk(), b"");
    assert_eq!(side.wire.deadline(), Some(side.now.after(Duration::from_millis(20))));
    side.wait(Duration::from_nanos(19_999_999));
    assert_eq!(side.talk(), b"");
    side.wait(Duration::from_nanos(1));
    assert_eq!(side.waiting, None, "and whoever waits is told");
    assert_eq!(side.talk()[..20], hex("000e c140 00000001 0000000000000000 ebd34c5f"));
}

#[test]
fn l1_the_first_message_to_a_plain_peer_has_a_segment_of_its_own() {
    // The frames that siw's acceptor has missed: its Reply, the ready-to-receive Write, the Send
    // behind that.
    let mut side = waiting(plain(Role::Active));
    side.feed(&reply("5002 0004 8004 8004"));
    side.wire.confirm(side.now).unwrap();
    side.wait(Duration::from_millis(20));
    side.send(b"data");
    let ready = hex("000e c140 00000001 0000000000000000 ebd34c5f");
    assert_eq!(side.talk(), ready, "and nothing behind it");
    assert_eq!(side.wire.deadline(), Some(side.now.after(Duration::from_millis(20))));
    side.wait(Duration::from_nanos(19_999_999));
    assert_eq!(side.talk(), b"");
    side.wait(Duration::from_nanos(1));
    assert_eq!(side.waiting, None, "whoever waits is told");
    let sent = side.talk();
    assert_eq!(sent[..4], hex("0016 4143"), "a Send of 4 bytes");
    side.send(b"more");
    assert_eq!(side.talk()[..4], hex("0016 4143"), "the next one waits for nothing");
}

/// siw's acceptor overlooks the ready-to-receive Write and the Send behind it when it is busy, and
/// takes both when anything more comes.
#[test]
fn l1_an_acceptor_that_stays_silent_is_woken_up() {
    let ready = hex("000e c140 00000001 0000000000000000 ebd34c5f");
    let mut side = waiting(plain(Role::Active));
    side.feed(&reply("5002 0004 8004 8004"));
    side.wire.confirm(side.now).unwrap();
    side.wait(Duration::from_millis(20));
    side.send(b"data");
    assert_eq!(side.talk(), ready);
    let since = side.now;
    side.wait(Duration::from_millis(20));
    assert_eq!(side.talk()[..4], hex("0016 4143"));
    for at in [100, 300, 700, 1500, 3100] {
        let due = since.after(Duration::from_millis(at));
        assert_eq!(side.wire.deadline(), Some(due));
        side.wait(due.since(side.now) - Duration::from_nanos(1));
        assert!(!side.wire.has_output());
        side.wait(Duration::from_nanos(1));
        assert!(side.wire.has_output());
        assert_eq!(side.talk(), ready, "{at} ms");
    }
    assert_eq!(side.wire.deadline(), None, "a peer may be silent");
    side.send(b"more");
    side.talk();
    assert_eq!(side.wire.deadline(), None);
}

#[test]
fn l1_a_peer_that_has_spoken_is_not_woken_up() {
    for (what, frame) in [
        ("a Send", "0012 4143 00000000 00000000 00000001 00000000 587be8c4"),
        ("a Write of no bytes", "000e c140 00000001 0000000000000000 ebd34c5f"),
    ] {
        let mut side = waiting(plain(Role::Active));
        side.feed(&reply("5002 0004 0004 0004"));
        side.wire.confirm(side.now).unwrap();
        side.wait(Duration::from_millis(20));
        side.send(b"data");
        side.talk();
        side.feed(&hex(frame));
        assert_eq!(side.wire.deadline(), None, "{what}");
        side.wait(Duration::from_secs(1));
        assert_eq!(side.talk(), b"", "{what}");
    }
}

/// Segments of two messages are never mixed: what wakes the peer up waits for the end of a message
/// that has begun, and whose bytes wake it up as well.
#[test]
fn l1_a_peer_is_not_woken_up_in_the_middle_of_a_message() {
    let mut side = waiting(plain(Role::Active));
    side.feed(&reply("5002 0004 0004 0004"));
    side.wire.confirm(side.now).unwrap();
    side.wait(Duration::from_millis(20));
    side.send(&[1; 150_000]);
    assert!(side.step().is_some_and(|frame| !frame.last));
    side.wait(Duration::from_millis(100));
    assert!(side.step().is_some_and(|frame| frame.length > 0 && !frame.last));
    assert!(side.step().is_some_and(|frame| frame.length > 0 && frame.last));
    assert!(side.step().is_some_and(|frame| frame.length == 0), "the Write of no bytes");
    assert!(side.step().is_none());
}

#[test]
fn l1_the_answer_to_the_ready_to_receive_read_ends_the_wait() {
    let mut side = waiting(plain(Role::Active));
    side.feed(&reply("5002 0004 8004 4004"));
    side.wire.confirm(side.now).unwrap();
    side.wait(Duration::from_millis(20));
    side.send(b"data");
    assert_eq!(side.talk()[..4], hex("002e 4141"), "a Read, and nothing behind it");
    side.feed(&hex("000e c142 00000000 0000000000000000 6975d6ca"));
    assert_eq!(side.talk()[..4], hex("0016 4143"));
}

#[test]
fn l1_the_peers_first_frame_ends_the_wait() {
    let mut side = waiting(plain(Role::Active));
    side.feed(&reply("5002 0004 0004 0004"));
    side.wire.confirm(side.now).unwrap();
    side.send(b"data");
    assert_eq!(side.talk(), b"");
    side.feed(&hex("0012 4143 00000000 00000000 00000001 00000000 587be8c4"));
    assert_ne!(side.talk(), b"");
}

#[test]
fn l1_time_spent_by_the_program_counts() {
    let mut side = waiting(plain(Role::Active));
    side.feed(&reply("5002 0004 8004 8004"));
    side.wait(Duration::from_millis(20));
    side.wire.confirm(side.now).unwrap();
    assert_ne!(side.talk(), b"");
}

#[test]
fn l2_start_up_is_revision_2_with_read_limits_that_are_not_zero() {
    let mut side = Side::new(plain(Role::Active));
    side.wire.connect(side.now, reads(0, 0), b"").unwrap();
    let word =
        mpa::StartUp::parse(&side.talk(), mpa::FrameKind::Request).unwrap().unwrap().0.enhanced;
    let word = word.unwrap();
    assert!(word.ird >= 1 && word.ord >= 1);
}

#[test]
fn l4_markers_are_never_asked_for() {
    for config in [Config::new(Role::Active), plain(Role::Active), Config::siw(Role::Active)] {
        let mut side = Side::new(config);
        side.wire.connect(side.now, LIMITS, b"").unwrap();
        assert_eq!(side.talk()[16] & mpa::MARKERS, 0);
    }
}

#[test]
fn a_frame_never_follows_a_reply_at_once() {
    // iW 0.1 trap 2: not even with the fence open and something to say.
    let mut side = Side::new(plain(Role::Passive));
    side.feed(&request("5002 0004 0004 0004"));
    side.wire.accept(side.now, LIMITS, b"").unwrap();
    let begun = side.wire.begin(
        side.now,
        MessageId(0),
        &Message::Send { length: 0, solicited: false, invalidate: None, immediate: None },
    );
    assert_eq!(begun, Begin::Wait(Waiting::Start));
    assert_eq!(side.talk().len(), 24);
}

// ---- verdicts from plain peers ------------------------------------------------------------------

#[test]
fn a_signalled_write_is_done_when_the_read_behind_it_is_answered() {
    let mut pair = Pair::plain();
    pair.active.taken();
    pair.active.write(7, 0, b"silent", false);
    pair.active.write(7, 0, b"signalled", true);
    pair.active.send(b"behind it");
    let sent = pair.active.talk();
    assert_eq!(pair.active.taken(), [Got::Done(0)], "a Send is done when sent, but in order");
    pair.passive.feed(&sent);
    let answer = pair.passive.talk();
    pair.active.feed(&answer);
    assert_eq!(pair.active.taken(), [Got::Done(2)]);
}

#[test]
fn verdicts_never_go_back() {
    // A Send was done when its frame was handed out; no event was asked for since.
    let mut pair = Pair::plain();
    pair.active.taken();
    pair.active.write(7, 0, b"signalled", true);
    let sent = pair.active.talk();
    pair.passive.feed(&sent);
    let answer = pair.passive.talk();
    let Pair { active, .. } = &mut pair;
    let now = active.now;
    let send = Message::Send { length: 0, solicited: false, invalidate: None, immediate: None };
    let hand_out = |active: &mut Side, id| {
        assert_eq!(active.wire.begin(now, MessageId(id), &send), Begin::Started);
        assert!(active.wire.next_frame(now).is_some());
    };
    hand_out(active, 1);
    active.feed(&answer);
    assert_eq!(active.taken(), [Got::Done(1)]);
    // An older verdict waits as well: sent once, with the younger.
    let write = Message::Write { token: 7, address: 0, length: 0, verdict: true, immediate: None };
    hand_out(active, 2);
    assert_eq!(active.wire.begin(now, MessageId(3), &write), Begin::Started);
    while active.wire.next_frame(now).is_some() {}
    active.feed(&hex("000e c142 00000000 0000000000000000 6975d6ca"));
    assert_eq!(active.taken(), [Got::Done(3)]);
}

#[test]
fn one_read_vouches_for_all_writes_before_it() {
    let mut pair = Pair::plain();
    pair.active.taken();
    for _ in 0..10 {
        pair.active.write(7, 0, b"data", true);
    }
    let sent = pair.active.talk();
    let reads = |bytes: &[u8]| {
        let mut rest = bytes;
        let mut count = 0;
        while let Some((ulpdu, used)) = transom_iwarp::fpdu::parse(rest, true).unwrap() {
            count += usize::from(ulpdu[1] == 0x41);
            rest = &rest[used..];
        }
        count
    };
    assert_eq!(reads(&sent), 1, "one slot, one read at a time");
    pair.passive.feed(&sent);
    pair.active.feed(&pair.passive.talk());
    assert_eq!(pair.active.taken(), [Got::Done(0)]);
    pair.run();
    assert_eq!(pair.active.taken(), [Got::Done(9)]);
}

/// A plain peer whose TCP has acknowledged everything, and which closes in order before it answers
/// the zero-length Read, has executed the Write: this is how siw ends a session.
#[test]
fn an_orderly_close_vouches_for_what_the_peers_tcp_has_taken() {
    // Whether the link delivered everything, and what is done.
    for (delivered, done) in [(true, &[Got::Done(2)][..]), (false, &[])] {
        let mut pair = Pair::plain();
        pair.active.taken();
        pair.active.write(7, 0, b"signalled", true);
        pair.active.write(7, 0, b"signalled, too", true);
        pair.active.send(b"behind them");
        pair.passive.feed(&pair.active.talk());
        assert_eq!(pair.active.taken(), []);
        let active = &mut pair.active;
        assert_eq!(active.wire.link_closed(active.now, delivered), Ok(()));
        active.listen();
        assert_eq!(active.taken(), done, "delivered: {delivered}");
    }
    // A message that has not gone out completely is not vouched for.
    let mut pair = Pair::plain();
    pair.active.taken();
    pair.active.write(7, 0, b"signalled", true);
    pair.active.write(7, 0, &[1; 200_000], true);
    while pair.active.step().is_some_and(|frame| frame.length < 1000) {}
    let active = &mut pair.active;
    assert_eq!(active.wire.link_closed(active.now, true), Ok(()));
    active.listen();
    assert_eq!(active.taken(), [Got::Done(0)]);
}

/// A refusal counts, whatever the link has delivered: before the close, or instead of its rest.
#[test]
fn an_orderly_close_behind_a_terminate_or_a_torn_frame_vouches_for_nothing() {
    let mut pair = Pair::plain();
    pair.active.taken();
    pair.passive.refuse = Some((|_| true, transom_wire::RefusalClass::Bounds, ""));
    pair.active.write(7, 0, b"refused", true);
    pair.passive.feed(&pair.active.talk());
    let said = pair.passive.talk();
    pair.active.feed(&said);
    let active = &mut pair.active;
    assert_eq!(active.wire.link_closed(active.now, true), Ok(()));
    active.listen();
    let got = active.taken();
    assert!(matches!(got[..], [Got::Failed { id: Some(0), .. }]), "{got:?}");

    // Half a Terminate, too.
    let mut pair = Pair::plain();
    pair.active.taken();
    pair.active.write(7, 0, b"refused", true);
    pair.active.talk();
    pair.active.feed(&said[..said.len() / 2]);
    let active = &mut pair.active;
    assert!(active.wire.link_closed(active.now, true).is_err());
    active.listen();
    assert_eq!(active.taken(), []);
}

/// A Transom acknowledges what it has executed: its close says nothing about the rest.
#[test]
fn an_orderly_close_of_a_transom_vouches_for_nothing() {
    let mut pair = Pair::transoms();
    pair.active.taken();
    pair.active.write(7, 0, b"signalled", true);
    pair.active.talk();
    let active = &mut pair.active;
    assert_eq!(active.wire.link_closed(active.now, true), Ok(()));
    active.listen();
    assert_eq!(active.taken(), []);
}

#[test]
fn siws_terminates_are_understood() {
    // A peer that is siw refuses a Write: the message is known, and those before it were right.
    let siw = Config { checksum: true, terminate: TerminateForm::Siw, ..plain(Role::Passive) };
    let mut pair = Pair::connected(plain(Role::Active), siw);
    pair.active.taken();
    pair.passive.refuse = Some((
        |event| matches!(event, transom_wire::Event::Write { address: 0x2000, .. }),
        transom_wire::RefusalClass::Bounds,
        "",
    ));
    pair.active.write(7, 0x1000, b"right", true);
    pair.active.write(7, 0x2000, b"wrong", true);
    pair.active.write(7, 0x3000, b"never", true);
    let sent = pair.active.talk();
    pair.passive.feed(&sent);
    let said = pair.passive.talk();
    pair.active.feed(&said);
    let got = pair.active.taken();
    let [Got::Done(0), Got::Failed { id: Some(1), error }] = &got[..] else {
        unreachable!("{got:?}")
    };
    assert!(error.code.contains("1/1/01") && error.code.contains("siw"), "{}", error.code);
}
