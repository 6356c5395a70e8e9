//! Messages of every kind between two adapters.

use transom_memory::Rights;

use super::harness::*;
use crate::raw::{Options, Path};
use crate::{Completion, CompletionKind, Operation, Status};

/// Step 1 of everything: one Write through a window.
#[test]
fn a_write_goes_through_a_window() {
    let (active, passive) = pair();
    let (from, to) = (active.buffer(100_000), passive.buffer(100_000));
    from.fill(|i| (i % 251) as u8);
    let window = passive.window(&to, Rights::REMOTE_WRITE);
    active.post(Operation::Write { token: window.0, address: to.address() }, &[from.all()]);
    active.expect(CompletionKind::Write);
    assert_eq!(to.bytes(), from.bytes());
}

#[test]
fn a_read_fetches_and_a_send_arrives_with_every_option() {
    for (checksum, extension) in [(true, true), (false, true), (true, false), (false, false)] {
        let options = Options { checksum, extension, path: Path::Tcp, ..Options::from_env() };
        let (active, passive) = pair_with(&options);
        let facts = active.connector.info().unwrap().facts;
        assert_eq!((facts.checksum, facts.extension), (checksum, extension));
        let (mine, theirs) = (active.buffer(300_000), passive.buffer(300_000));
        theirs.fill(|i| (i % 247) as u8);
        let window = passive.window(&theirs, Rights::REMOTE_READ);
        active.post(Operation::Read { token: window.0, address: theirs.address() }, &[mine.all()]);
        active.expect(CompletionKind::Read);
        assert_eq!(mine.bytes(), theirs.bytes());

        passive.qp.post_receive(7, &[theirs.sge(10, 1000)]).unwrap();
        mine.fill(|i| (i % 13) as u8);
        active.post(Operation::Send, &[mine.sge(0, 500), mine.sge(1000, 300)]);
        active.expect(CompletionKind::Send);
        let got = passive.expect(CompletionKind::Receive);
        assert_eq!((got.request_context, got.length), (7, 800));
        let (sent, seen) = (mine.bytes(), theirs.bytes());
        assert_eq!(seen[10..510], sent[..500]);
        assert_eq!(seen[510..810], sent[1000..1300]);
    }
}

/// ND2 4.5: the initiator's completion carries the target's verdict, and both sides end.
#[test]
fn a_refused_write_says_so_and_ends_both_sides() {
    let (active, passive) = pair();
    let (from, to) = (active.buffer(64), passive.buffer(64));
    let window = passive.window(&to, Rights::REMOTE_READ);
    let (sink, gone) = signal();
    passive.connector.notify_disconnect(sink).unwrap();
    from.fill(|_| 0xee);
    active.post(Operation::Write { token: window.0, address: to.address() }, &[from.all()]);
    let verdict = active.next();
    assert_eq!((verdict.kind, verdict.status), (CompletionKind::Write, Status::RemoteAccess));
    assert_eq!(gone.wait(), Status::Success);
    assert_eq!(to.bytes(), [0; 64], "of a refused request no byte is placed");
    // The owner keeps the record; the peer, a process of the same user on this host, got it, too.
    let kept = passive.adapter.denials(|_| true);
    assert_eq!(kept.len(), 1, "{kept:?}");
    let learnt = active.adapter.denial(verdict.denial).unwrap().cause.to_string();
    assert!(learnt.contains(&kept[0].1.cause.for_peer()), "{learnt} / {kept:?}");
}

/// A message whose sender has its completion is in the receiver's queue behind
/// [`process_arrived`](crate::raw::QueuePair::process_arrived), whichever thread was at the link.
#[test]
fn what_the_sender_was_acknowledged_is_there_behind_process_arrived() {
    for path in [Path::Tcp, Path::Process] {
        let options = Options { path, ..Options::from_env() };
        let (active, passive) = pair_with(&options);
        let (mine, theirs) = (active.buffer(64), passive.buffer(64));
        for round in 0..2_000 {
            passive.qp.post_receive(round, &[theirs.all()]).unwrap();
            active.post(Operation::Send, &[mine.sge(0, 9)]);
            active.expect(CompletionKind::Send);
            passive.qp.process_arrived().unwrap();
            let mut found = [Completion::BLANK; 2];
            assert_eq!(passive.cq.poll(&mut found), 1, "{path:?}, round {round}");
            assert_eq!((found[0].request_context, found[0].length), (round, 9));
        }
    }
}
