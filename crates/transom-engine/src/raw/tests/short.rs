//! Writes of one frame, and Binds, while their link is in an unusual state.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use transom_memory::{Purpose, Rights, Segment, Token};

use super::harness::*;
use crate::raw::{Options, Path, Window};
use crate::{CompletionKind, Data, Flags, Operation, QueuePairState, Request, Sge, Status};

/// The most bytes that lie in a slot of a ring, those of one guard, and more inline data than fits a slot.
const SMALL: usize = transom_process::ring::INLINE;
const WHOLE: usize = 64 * 1024;
const LARGEST_INLINE: usize = 512;

/// Two ends, memory of the first, and a window of the second, over which Writes have gone for so long that
/// nothing about the link is new.
fn busy(path: Path) -> (End, End, Buffer, Buffer, Token) {
    let (writer, owner) = pair_with(&Options { path, ..Options::from_env() });
    let (from, to) = (writer.buffer(64), owner.buffer(64));
    let window = owner.window(&to, Rights::REMOTE_WRITE);
    from.fill(|at| at as u8);
    for _ in 0..100 {
        writer.post(write(window, &to, 0), &[from.sge(0, 8)]);
        writer.expect(CompletionKind::Write);
    }
    (writer, owner, from, to, window)
}

fn write(window: Token, to: &Buffer, offset: u64) -> Operation {
    Operation::Write { token: window.0, address: to.address() + offset }
}

#[test]
fn a_small_write_does_not_overtake_a_send_that_waits_for_a_receive() {
    for path in [Path::Process, Path::Tcp] {
        let (writer, owner, from, to, window) = busy(path);
        let (read, sink) = (writer.buffer(8), owner.buffer(8));
        let readable = writer.window(&read, Rights::REMOTE_READ);
        writer.post(Operation::Send, &[from.sge(0, 4)]);
        writer.cq.progress();
        writer.post(write(window, &to, 8), &[from.sge(1, 8)]);
        writer.cq.progress();
        // The answer to this read comes after all that the writer has sent.
        let address = read.address();
        owner.post(Operation::Read { token: readable.0, address }, &[sink.all()]);
        owner.expect(CompletionKind::Read);
        assert_eq!(to.bytes()[8..16], [0; 8], "it waits behind the Send");
        owner.qp.post_receive(9, &[sink.all()]).unwrap();
        writer.expect(CompletionKind::Send);
        writer.expect(CompletionKind::Write);
        assert_eq!(to.bytes()[8..16], from.bytes()[1..9]);
    }
}

#[test]
fn of_several_small_writes_those_before_one_that_is_refused_are_written() {
    for path in [Path::Process, Path::Tcp] {
        for bad in 0..3 {
            let (writer, _owner, from, to, window) = busy(path);
            let gone = writer.buffer(8);
            writer.adapter.deregister(gone.token).unwrap();
            let entries: Vec<_> =
                (0..3).map(|at| if at == bad { gone.all() } else { from.sge(8, 8) }).collect();
            let list = entries.iter().enumerate().map(|(at, entry)| {
                let operation = write(window, &to, 8 * at as u64 + 8);
                let request = Request { context: at as u64, operation, flags: Flags::NONE };
                (request, Data::Sges(std::slice::from_ref(entry)))
            });
            writer.qp.post_chain(3, |chain| chain.post_all(list.clone())).unwrap().unwrap();
            for at in 0..3 {
                let done = writer.next();
                let status = match at.cmp(&bad) {
                    std::cmp::Ordering::Less => Status::Success,
                    std::cmp::Ordering::Equal => Status::LocalAccess,
                    std::cmp::Ordering::Greater => Status::Canceled,
                };
                assert_eq!((done.request_context, done.status), (at as u64, status));
            }
            for at in 0..3 {
                let written = to.bytes()[8 * at + 8..][..8] == from.bytes()[8..16];
                assert_eq!(written, at < bad, "Write {at} of those where {bad} is refused");
            }
        }
    }
}

/// Inline bytes are the request's from the call on: what the program writes there afterwards does not count,
/// they need no registered memory, and they keep their order with others. Their ring has wrapped often.
#[test]
fn inline_writes_carry_the_bytes_of_the_call_in_order() {
    for path in [Path::Process, Path::Tcp] {
        let (writer, owner, from, _, _) = busy(path);
        let to = owner.buffer(16 + LARGEST_INLINE + 2);
        let window = owner.window(&to, Rights::REMOTE_WRITE);
        for round in 0..200_usize {
            // Up to a little more than goes by way of the slot, and than goes at all.
            let length =
                1 + round / 2 * [1, 6][round % 2] % [SMALL + 2, LARGEST_INLINE + 2][round % 2];
            let mut bytes = [round as u8; LARGEST_INLINE + 2];
            let operation = write(window, &to, 16);
            let request = Request { context: 1, operation, flags: Flags::NONE };
            writer.qp.post(&request, Data::Inline(&bytes[..length])).unwrap();
            bytes.fill(0xff);
            writer.post(write(window, &to, 8), &[from.sge(round % 32, 8)]);
            writer.qp.post(&request, Data::Inline(&[round as u8 + 1])).unwrap();
            let lengths = [length, 8, 1].map(|length| {
                let done = writer.expect(CompletionKind::Write);
                (done.length as usize == length, done.status)
            });
            assert_eq!(lengths, [(true, Status::Success); 3]);
            let written = to.bytes();
            assert_eq!(written[8..16], from.bytes()[round % 32..][..8], "round {round}");
            assert_eq!(written[16], round as u8 + 1);
            assert!(written[17..16 + length].iter().all(|byte| *byte == round as u8));
        }
        drop(owner);
    }
}

/// Lengths around each limit of the short way, each Write by itself and between two small ones, alone and in
/// a batch: whole, and in order.
#[test]
fn writes_of_every_length_arrive_whole_and_in_order() {
    for path in [Path::Process, Path::Tcp] {
        let (writer, owner, from, to, window) = busy(path);
        let (source, large) = (writer.buffer(2 * WHOLE), owner.buffer(2 * WHOLE));
        let big = owner.window(&large, Rights::REMOTE_WRITE);
        let limits = [SMALL, 256, 1024, 4096, 8192, WHOLE];
        for length in limits.into_iter().flat_map(|limit| [limit - 1, limit, limit + 1]) {
            for batch in [false, true] {
                let mark = (length % 251) as u8 + u8::from(batch);
                source.fill(|at| mark ^ (at % 253) as u8);
                let bytes = source.bytes();
                let address = large.address() + 3;
                let three = [
                    (write(window, &to, 8), from.sge(length % 32, 8)),
                    (Operation::Write { token: big.0, address }, source.sge(1, length)),
                    (write(window, &to, 16), source.sge(5, 8)),
                ];
                if batch {
                    let list = three.iter().map(|(operation, entry)| {
                        let (operation, flags) = (*operation, Flags::NONE);
                        let request = Request { context: 1, operation, flags };
                        (request, Data::Sges(std::slice::from_ref(entry)))
                    });
                    writer.qp.post_chain(3, |chain| chain.post_all(list.clone())).unwrap().unwrap();
                } else {
                    three.iter().for_each(|(operation, entry)| writer.post(*operation, &[*entry]));
                }
                let lengths = [8, length, 8]
                    .map(|length| writer.expect(CompletionKind::Write).length as usize == length);
                assert_eq!(lengths, [true; 3]);
                let written = large.bytes();
                assert!(written[3..][..length] == bytes[1..][..length], "{length}");
                assert_eq!(written[3 + length], 0, "nothing behind it");
                assert_eq!(to.bytes()[8..16], from.bytes()[length % 32..][..8]);
                assert_eq!(to.bytes()[16..24], bytes[5..13]);
            }
        }
    }
}

/// Memory in more pieces than a link is told of at once, as source and as target.
#[test]
fn a_write_from_and_to_many_pieces_arrives_whole() {
    for path in [Path::Process, Path::Tcp] {
        let (writer, owner, _, _, _) = busy(path);
        let scattered = |end: &End, pieces: usize| {
            let memory = end.buffer(pieces * 32);
            // The pieces of a region lie in the opposite order to its addresses.
            let at = |piece: usize| memory.address() + 32 * (pieces - 1 - piece) as u64;
            let segments: Vec<_> =
                (0..pieces).map(|piece| Segment { host: at(piece), length: 32 }).collect();
            // SAFETY: the buffer is leaked.
            let token = unsafe { end.adapter.register(end.domain, 0x1000, &segments, ALL) };
            (memory, token.unwrap())
        };
        for pieces in [2, 8, 9, 40] {
            let (source, from) = scattered(&writer, pieces);
            let (target, to) = scattered(&owner, pieces);
            source.fill(|at| (at % 251) as u8);
            let length = pieces as u32 * 32;
            let window = Window {
                region: to,
                base: 0x1000,
                length: length.into(),
                rights: Rights::REMOTE_WRITE,
            };
            let window = owner.qp.reserve_window(&window).unwrap().posted();
            owner.post(Operation::Bind { window }, &[]);
            owner.expect(CompletionKind::Bind);
            let operation = Operation::Write { token: window.0, address: 0x1000 };
            writer.post(operation, &[Sge { token: from.0, address: 0x1000, length }]);
            writer.expect(CompletionKind::Write);
            assert_eq!(target.bytes(), source.bytes(), "{pieces} pieces");
        }
    }
}

/// A Write that leaves its window by a byte, or comes from memory that is not registered, moves nothing at
/// any length, and is refused with the same words.
#[test]
fn a_write_of_any_length_is_judged() {
    for path in [Path::Process, Path::Tcp] {
        for length in [8, SMALL + 1, 1024, 1025, WHOLE, WHOLE + 1] {
            let (writer, owner, _, _, _) = busy(path);
            let (source, target) = (writer.buffer(length + 1), owner.buffer(length + 1));
            source.fill(|_| 7);
            let window = owner.window(&target, Rights::REMOTE_WRITE);
            let at =
                |offset| Operation::Write { token: window.0, address: target.address() + offset };
            writer.post(at(1), &[source.sge(0, length)]);
            writer.expect(CompletionKind::Write);
            writer.post(at(2), &[source.sge(0, length)]);
            assert_eq!(writer.next().status, Status::RemoteAccess, "{length}");
            assert_eq!(owner.adapter.denials(|_| true).len(), 1);
            let expected = [&[0][..], &vec![7; length]].concat();
            assert!(target.bytes() == expected, "{length}");
            let (writer, owner, _, _, _) = busy(path);
            let (source, target) = (writer.buffer(length), owner.buffer(length));
            let window = owner.window(&target, Rights::REMOTE_WRITE);
            let operation = Operation::Write { token: window.0, address: target.address() };
            writer.post(operation, &[Sge { address: source.address() + 1, ..source.all() }]);
            assert_eq!(writer.next().status, Status::LocalAccess, "{length}");
            assert_eq!(writer.adapter.denials(|_| true).len(), 1);
        }
    }
}

/// Requests of all kinds, one behind the other: the short way is open and closed between them.
#[test]
fn small_writes_among_other_requests_keep_their_order() {
    for path in [Path::Process, Path::Tcp] {
        let (writer, owner, from, to, window) = busy(path);
        let large = owner.buffer(4096);
        let big = owner.window(&large, Rights::REMOTE_WRITE | Rights::REMOTE_READ);
        let source = writer.buffer(4096);
        for round in 0..50_u8 {
            source.fill(|_| round);
            owner.qp.post_receive(9, &[large.sge(0, 8)]).unwrap();
            let address = large.address();
            writer.post(write(window, &to, 16), &[from.sge(0, 8)]);
            writer.post(Operation::Write { token: big.0, address }, &[source.all()]);
            writer.post(write(window, &to, 24), &[source.sge(0, 8)]);
            writer.post(Operation::Read { token: big.0, address }, &[source.all()]);
            writer.post(write(window, &to, 32), &[source.sge(8, 8)]);
            writer.post(Operation::Send, &[source.sge(0, 8)]);
            writer.post(write(window, &to, 40), &[source.sge(16, 8)]);
            use CompletionKind::{Read, Send, Write};
            for kind in [Write, Write, Write, Read, Write, Send, Write] {
                writer.expect(kind);
            }
            assert_eq!(to.bytes()[24..48], [round; 24]);
            owner.expect(CompletionKind::Receive);
        }
    }
}

/// A Read has to be answered, an end to be reported, a refusal to be told: the call that receives one of them
/// on a quiet link leaves nothing of that to a later one.
#[test]
fn what_a_poll_receives_and_cannot_finish_has_had_a_pass_when_it_returns() {
    type Act = fn(&End, Operation, Sge);
    let read: Act = |peer, read, sink| {
        peer.post(read, &[sink]);
        peer.expect(CompletionKind::Write);
        peer.expect(CompletionKind::Read);
    };
    let leave: Act = |peer, _, _| peer.connector.disconnect(signal().0).unwrap();
    let trespass: Act = |peer, _, source| {
        peer.post(Operation::Write { token: 1, address: 0 }, &[source]);
        peer.expect(CompletionKind::Write);
        assert!(!peer.next().status.is_success());
    };
    for path in [Path::Process, Path::Tcp] {
        for (act, connections, rounds) in [(read, 1, 100), (leave, 8, 1), (trespass, 8, 1)] {
            for _ in 0..connections {
                let (peer, owner, local, to, writable) = busy(path);
                let window = owner.window(&to, Rights::REMOTE_READ);
                let operation = Operation::Read { token: window.0, address: to.address() };
                let link = owner.qp.0.qp.link().unwrap();
                let (polls, over) = (AtomicU32::new(0), AtomicBool::new(false));
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        // The owner's thread polls: other threads leave the link to it.
                        until("no poll", || polls.load(Ordering::Relaxed) > 100);
                        for _ in 0..rounds {
                            // A message right behind a Write finds no deadline to be looked at.
                            peer.post(write(writable, &to, 0), &[local.sge(0, 8)]);
                            act(&peer, operation, local.sge(0, 8));
                        }
                        over.store(true, Ordering::Relaxed);
                    });
                    until("it has not come to an end", || {
                        polls.fetch_add(1, Ordering::Relaxed);
                        owner.cq.progress();
                        assert!(!link.has_left(), "{path:?}: to be sent or reported");
                        over.load(Ordering::Relaxed)
                            && (rounds > 1 || owner.qp.state() != QueuePairState::Connected)
                    });
                });
            }
        }
    }
}

/// More than the queue pair has places for, while no thread looks at its completion queue.
#[test]
fn binds_of_an_idle_link_execute_at_once_and_give_their_places_back() {
    for path in [Path::Process, Path::Tcp] {
        let (writer, owner, from, to, _) = busy(path);
        let windows: Vec<_> = (0..300)
            .map(|_| {
                let window = owner.reserve(&to, Rights::REMOTE_WRITE);
                let (operation, flags) = (Operation::Bind { window }, Flags::SILENT_SUCCESS);
                let request = Request { context: 1, operation, flags };
                // Another thread may hold the link for a moment.
                until("no place came back", || owner.qp.post(&request, Data::Sges(&[])).is_ok());
                window
            })
            .collect();
        let token = owner.window(&to, Rights::REMOTE_WRITE);
        windows.into_iter().for_each(|window| owner.adapter.revoke(window).unwrap());
        writer.post(write(token, &to, 48), &[from.sge(48, 8)]);
        writer.expect(CompletionKind::Write);
        assert_eq!(to.bytes()[48..56], from.bytes()[48..56]);
    }
}

/// ND2 5.6, design rule 6: access begins when the Bind executes, which is in its turn.
#[test]
fn a_bind_executes_at_its_call_but_not_before_a_send_that_waits() {
    for path in [Path::Process, Path::Tcp] {
        let (owner, peer) = pair_with(&Options { path, ..Options::from_env() });
        let (to, inbox) = (owner.buffer(64), peer.buffer(8));
        let bind = || {
            let window = owner.reserve(&to, Rights::REMOTE_WRITE);
            owner.post_with(Operation::Bind { window }, &[], Flags::SILENT_SUCCESS);
            window
        };
        let is_open = |window: Token| {
            let entry = Sge { token: window.0, address: to.address(), length: 8 };
            let connection = owner.connector.connection();
            owner.qp.probe(connection, Purpose::RemoteWrite, &entry).is_ok()
        };
        let first = bind();
        until("the Bind did not execute", || is_open(first));
        owner.post(Operation::Send, &[to.sge(0, 4)]);
        owner.cq.progress();
        let second = bind();
        owner.cq.progress();
        assert!(is_open(first) && !is_open(second), "{path:?}: it waits behind the Send");
        peer.qp.post_receive(9, &[inbox.all()]).unwrap();
        owner.expect(CompletionKind::Send);
        until("the Bind did not execute", || is_open(second));
    }
}
