//! Two ends of one segment, with a TCP stream between them that carries the first bytes and the doorbells:
//! whatever the order of partial sends and receives, and wherever each side changes to the ring, the
//! bytes come out as they went in. And a segment that the other side scribbles over does no harm.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)] // tests

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use transom_switch::layout::{
    HEADER, Header, LARGE, MAGIC, Side, Unfit, VERSION, ring_begin, ring_size, segment_length,
    side_length,
};
use transom_switch::session::{Road, Session, State, Stretches};
use transom_switch::wait::{Wait, Wake};

const RING: u64 = 4096;

/// The work of `transom-sockets`, with vectors in place of system calls.
struct Pair {
    header: Box<Header>,
    rings: [Vec<u8>; 2],
    /// Bytes of the TCP stream, of the side that sends.
    tcp: [VecDeque<u8>; 2],
    /// Bytes of memory that the kernel was given, of the side that sends.
    given: [usize; 2],
}

fn other(side: Side) -> usize {
    side.other() as usize
}

impl Pair {
    fn new() -> Pair {
        let header = Box::<Header>::default();
        header.prepare(RING, 7);
        assert_eq!(header.examine(segment_length(RING)), Ok(RING));
        let rings = || vec![0; side_length(RING) as usize];
        Pair { header, rings: [rings(), rings()], tcp: Default::default(), given: [0; 2] }
    }

    /// The kernel has this memory of a side's rings now.
    fn give(&mut self, side: usize, memory: impl IntoIterator<Item = (usize, usize)>) {
        for (begin, length) in memory {
            self.rings[side][begin..][..length].fill(0xEE);
            self.given[side] += length;
        }
    }

    fn session(&self, side: Side) -> Session<'_> {
        Session::new(&self.header, side, RING)
    }

    fn ring(&mut self, side: Side, wake: Wake) {
        if wake.doorbell {
            self.header.end(side).rung.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.tcp[side as usize].push_back(0xFF);
        }
    }

    /// Send what there is room for; how much that was.
    fn send(&mut self, side: Side, bytes: &[u8]) -> usize {
        if let Road::Tcp(_) = self.session(side).road_out() {
            self.tcp[side as usize].extend(bytes);
            self.session(side).sent_by_tcp(bytes.len() as u64);
            return bytes.len();
        }
        let room = self.session(side).room(bytes.len()).unwrap();
        assert!(!room.is_large() || self.session(side).hold(), "no reader is at work");
        let (first, second) = bytes[..room.length()].split_at(room.first.1);
        let ring = &mut self.rings[side as usize];
        ring[room.first.0..][..room.first.1].copy_from_slice(first);
        ring[room.second.0..][..room.second.1].copy_from_slice(second);
        let wake = self.session(side).filled(room.length());
        self.ring(side, wake);
        let unused = self.session(side).let_go();
        assert!(unused.is_none() || room.length() == 0, "memory that the reader has not seen");
        self.give(side as usize, unused);
        room.length()
    }

    /// Send what all rings have room for.
    fn send_deep(&mut self, side: Side, bytes: &[u8]) -> usize {
        self.session(side).settle();
        let mut done = 0;
        while done < bytes.len() {
            let sent = self.send(side, &bytes[done..]);
            done += sent;
            if sent == 0 {
                let Some(larger) = self.session(side).larger() else {
                    self.session(side).found_full();
                    break;
                };
                self.session(side).change_to(larger);
            }
        }
        done
    }

    fn bytes(&self, side: Side, at: &Stretches) -> Vec<u8> {
        let ring = &self.rings[other(side)];
        [&ring[at.first.0..][..at.first.1], &ring[at.second.0..][..at.second.1]].concat()
    }

    /// Receive up to `most` bytes of the rings without taking them.
    fn peek(&self, side: Side, most: usize) -> Vec<u8> {
        let incoming = self.session(side).arrived().unwrap();
        let mut seen = Vec::new();
        while seen.len() < most {
            let at =
                self.session(side).at(&incoming, seen.len() as u64, most - seen.len()).unwrap();
            if at.length() == 0 {
                break;
            }
            seen.extend(self.bytes(side, &at));
        }
        seen
    }

    /// Receive up to `most` bytes.
    fn receive(&mut self, side: Side, most: usize) -> Vec<u8> {
        loop {
            match self.session(side).road_in().unwrap() {
                Road::Tcp(limit) => {
                    let there = self.tcp[other(side)].len();
                    let count = most.min(there).min(limit.map_or(usize::MAX, |left| left as usize));
                    if count == 0 {
                        return Vec::new();
                    }
                    let mut got: Vec<u8> = self.tcp[other(side)].drain(..count).collect();
                    let payload = self.session(side).received_by_tcp(count as u64).unwrap();
                    got.truncate(payload as usize);
                    if payload > 0 {
                        return got;
                    }
                }
                Road::Ring => {
                    let incoming = self.session(side).arrived().unwrap();
                    if incoming.bytes == 0 && incoming.at_mark {
                        let at = self.session(side).at_mark(&incoming).unwrap();
                        self.consume(side, &at);
                        continue;
                    }
                    let at = self.session(side).at(&incoming, 0, most).unwrap();
                    let got = self.bytes(side, &at);
                    self.consume(side, &at);
                    return got;
                }
            }
        }
    }

    fn consume(&mut self, side: Side, at: &Stretches) {
        let left = self.session(side).left_behind(at);
        let wake = self.session(side).consumed(at.length());
        self.ring(side, wake);
        let mut given = Vec::from_iter(left);
        self.session(side).give_back(|begin, length| given.push((begin, length)));
        self.give(other(side), given);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send(bool, usize),
    SendDeep(bool, usize),
    Receive(bool, usize),
    Claim,
    Arm(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<bool>(), 0..6000_usize).prop_map(|(side, count)| Step::Send(side, count)),
        2 => (any::<bool>(), 0..300_000_usize).prop_map(|(side, count)| Step::SendDeep(side, count)),
        2 => (any::<bool>(), 1..300_000_usize).prop_map(|(side, count)| Step::Receive(side, count)),
        4 => (any::<bool>(), 1..6000_usize).prop_map(|(side, count)| Step::Receive(side, count)),
        1 => Just(Step::Claim),
        1 => any::<bool>().prop_map(Step::Arm),
    ]
}

fn side(active: bool) -> Side {
    if active { Side::Active } else { Side::Passive }
}

proptest! {
    /// Both sides have exchanged some bytes before the segment is offered. The passive side claims at any
    /// moment, and more than once.
    #[test]
    fn bytes_come_out_as_they_went_in(
        steps in prop::collection::vec(step(), 1..120),
        early in (0..200_usize, 0..200_usize, 0..200_usize, 0..200_usize),
    ) {
        let mut pair = Pair::new();
        let (mut sent, mut got) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        // Sent and received by each side before: the rest is in the TCP stream.
        let (by_active, by_passive) = (early.0, early.1);
        let (at_active, at_passive) = (early.2.min(by_passive), early.3.min(by_active));
        for (side, all, read) in
            [(Side::Active, by_active, at_passive), (Side::Passive, by_passive, at_active)]
        {
            sent[side as usize] = vec![252; all];
            got[side as usize] = vec![252; read];
            pair.tcp[side as usize].extend(vec![252; all - read]);
        }
        pair.session(Side::Active).count_before(by_active as u64, at_active as u64);
        let mut next = 0_u8;
        for step in steps {
            match step {
                Step::Send(active, count) | Step::SendDeep(active, count) => {
                    let bytes: Vec<u8> = (0..count)
                        .map(|_| {
                            next = (next + 1) % 251;
                            next
                        })
                        .collect();
                    let done = if let Step::Send(..) = step {
                        pair.send(side(active), &bytes)
                    } else {
                        pair.send_deep(side(active), &bytes)
                    };
                    sent[side(active) as usize].extend_from_slice(&bytes[..done]);
                }
                Step::Receive(active, count) => {
                    let bytes = pair.receive(side(active), count);
                    got[other(side(active))].extend(bytes);
                }
                Step::Claim => {
                    let before = sent[Side::Passive as usize].len() as u64;
                    let received = got[Side::Active as usize].len() as u64;
                    pair.session(Side::Passive).claim(9, before, received);
                }
                Step::Arm(active) => pair.session(side(active)).for_bytes().arm(),
            }
            for (sent, got) in sent.iter().zip(&got) {
                prop_assert!(sent.starts_with(got), "{} of {}", got.len(), sent.len());
            }
        }
        for active in [true, false] {
            loop {
                let bytes = pair.receive(side(active), 1000);
                if bytes.is_empty() {
                    break;
                }
                got[other(side(active))].extend(bytes);
            }
        }
        prop_assert!(sent == got, "{:?} of {:?}", got.map(|got| got.len()), sent.map(|sent| sent.len()));
    }

    /// Noise in every word of the segment, between any two steps: no panic, and no byte outside of a ring.
    #[test]
    fn noise_in_the_segment_does_no_harm(
        steps in prop::collection::vec((step(), any::<(u16, u64)>()), 1..60),
    ) {
        let pair = Pair::new();
        pair.session(Side::Passive).claim(9, 0, 0);
        for (step, (at, noise)) in steps {
            scribble(&pair.header, usize::from(at), noise);
            let session = pair.session(Side::Active);
            let _ = session.claim(1, 2, 3);
            let _ = (session.urgent(), session.queued(), session.smaller());
            session.settle();
            if let Some(larger) = session.larger() {
                prop_assert!(inside(&session.room_in(larger, usize::from(at))));
                session.change_to(larger);
            }
            let _ = (session.is_writable(), session.is_all_read(), session.doorbells());
            let count = match step {
                Step::Send(_, count) | Step::SendDeep(_, count) | Step::Receive(_, count) => count,
                _ => 1,
            };
            if let Ok(room) = session.room(count) {
                prop_assert!(inside(&room) && room.length() <= count);
                let _ = session.filled(room.length());
            }
            if let Ok(incoming) = session.arrived()
                && let Ok(at) = session.at(&incoming, noise % 7, count)
            {
                prop_assert!(inside(&at) && at.length() <= count);
                let mut given = Vec::from_iter(session.left_behind(&at));
                let _ = session.consumed(at.length());
                session.give_back(|begin, length| given.push((begin, length)));
                let _ = session.hold();
                given.extend(session.let_go());
                for (begin, length) in given {
                    prop_assert!(begin % 4096 == 0 && length % 4096 == 0);
                    prop_assert!(begin >= ring_begin(RING, LARGE) as usize);
                    prop_assert!(begin + length <= side_length(RING) as usize);
                }
            }
            let _ = session.received_by_tcp(count as u64);
            let _ = (session.road_in(), session.road_out());
        }
    }
}

/// Another process writes a word of the segment.
fn scribble(header: &Header, at: usize, word: u64) {
    let words = std::ptr::from_ref(header).cast::<std::sync::atomic::AtomicU64>();
    let at = at % (HEADER / 8);
    // SAFETY: the header consists of atomics, which may be written through a shared reference, and is
    // as long.
    unsafe { &*words.add(at) }.store(word, std::sync::atomic::Ordering::Relaxed);
}

fn inside(at: &Stretches) -> bool {
    let begin = ring_begin(RING, at.ring) as usize;
    let end = begin + ring_size(RING, at.ring) as usize;
    let within = |(at, length): (usize, usize)| begin <= at && at + length <= end;
    within(at.first) && within(at.second) && end <= side_length(RING) as usize
}

/// Words of this end that the peer has written say that a ring holds more than it can.
#[test]
fn a_ring_that_holds_more_than_it_can_has_no_room() {
    let pair = Pair::new();
    pair.session(Side::Passive).claim(9, 0, 0);
    let session = pair.session(Side::Active);
    let _ = session.road_out();
    session.change_to(1);
    while let Ok(room) = session.room(1 << 20)
        && room.length() > 0
    {
        let _ = session.filled(room.length());
    }
    for at in 0..HEADER / 8 {
        let words = std::ptr::from_ref(&*pair.header).cast::<std::sync::atomic::AtomicU64>();
        // SAFETY: as in `scribble`.
        let kept = unsafe { &*words.add(at) }.load(std::sync::atomic::Ordering::Relaxed);
        for word in [0, 1, 1 << 32, kept & 0xFFFF_FFFF, kept.wrapping_add(RING)] {
            scribble(&pair.header, at, word);
            if let Ok(room) = session.room(1 << 20) {
                assert!(inside(&room), "word {at} as {word}: {room:?}");
            }
        }
        scribble(&pair.header, at, kept);
    }
}

#[test]
fn a_full_ring_has_no_room_and_one_byte_read_makes_some() {
    let mut pair = Pair::new();
    assert!(pair.session(Side::Passive).claim(9, 0, 0));
    assert_eq!(pair.send(Side::Passive, &[1; 5000]), RING as usize);
    assert_eq!(pair.send(Side::Passive, &[2; 1]), 0);
    pair.session(Side::Passive).found_full();
    assert!(!pair.session(Side::Passive).is_writable());
    assert_eq!(pair.receive(Side::Active, 1), [1]);
    assert_eq!(pair.send(Side::Passive, &[2; 5]), 1);
}

/// A sender that waits is woken at the mark at which it is writable, and not before.
#[test]
fn a_sender_is_woken_when_half_of_what_was_queued_is_read() {
    let mut pair = Pair::new();
    pair.session(Side::Passive).claim(9, 0, 0);
    pair.send(Side::Passive, &[1; 4096]);
    assert!(pair.session(Side::Passive).is_writable(), "no send has found it full");
    pair.session(Side::Passive).found_full();
    let _ = pair.session(Side::Passive).for_room().fall_asleep();
    for (count, writable) in [(2047, false), (1, true)] {
        let session = pair.session(Side::Active);
        let wake = session.consumed(count);
        assert_eq!(wake.sleepers, writable);
        assert_eq!(pair.session(Side::Passive).is_writable(), writable);
    }
}

#[test]
fn an_end_comes_behind_the_bytes_before_it() {
    let mut pair = Pair::new();
    pair.session(Side::Passive).claim(9, 0, 0);
    pair.send(Side::Passive, b"last");
    let wake = pair.session(Side::Passive).finish();
    assert!(!wake.doorbell, "the first byte has rung already");
    let incoming = pair.session(Side::Active).arrived().unwrap();
    assert!(incoming.finished && incoming.bytes == 4);
    assert_eq!(pair.receive(Side::Active, 9), b"last");
    assert!(pair.session(Side::Passive).is_all_read());
    assert_eq!(pair.session(Side::Active).arrived().unwrap().bytes, 0);
    // The other direction goes on.
    assert_eq!(pair.send(Side::Active, b"still"), 5);
    assert_eq!(pair.receive(Side::Passive, 9), b"still");
}

#[test]
fn a_read_stops_at_the_urgent_byte_and_passes_over_it() {
    for inline in [false, true] {
        let mut pair = Pair::new();
        pair.session(Side::Passive).claim(9, 0, 0);
        let end = pair.header.end(Side::Active);
        end.inline.store(u32::from(inline), std::sync::atomic::Ordering::Relaxed);
        pair.send(Side::Passive, b"ab");
        pair.session(Side::Passive).mark_urgent(1, b'!');
        assert_eq!(pair.session(Side::Active).urgent(), None, "announced, and not written");
        pair.send(Side::Passive, b"!");
        pair.send(Side::Passive, b"cd");
        assert_eq!(pair.session(Side::Active).urgent(), Some(b'!'));
        assert_eq!(pair.receive(Side::Active, 9), b"ab");
        assert!(pair.session(Side::Active).arrived().unwrap().at_mark);
        pair.session(Side::Active).took_urgent();
        assert_eq!(pair.session(Side::Active).urgent(), None);
        let rest: &[u8] = if inline { b"!cd" } else { b"cd" };
        assert_eq!(pair.receive(Side::Active, 9), rest);
        assert!(!pair.session(Side::Active).arrived().unwrap().at_mark);
    }
}

/// tcp(7): the byte of which TCP says that it is urgent is kept until a read has passed it.
#[test]
fn an_urgent_byte_can_be_taken_until_a_read_has_passed_it() {
    let mut pair = Pair::new();
    pair.session(Side::Passive).claim(9, 0, 0);
    pair.session(Side::Passive).mark_urgent(1, b'!');
    pair.send(Side::Passive, b"!xy");
    assert_eq!(pair.session(Side::Active).urgent(), Some(b'!'));
    assert_eq!(pair.receive(Side::Active, 1), b"x");
    assert_eq!(pair.session(Side::Active).urgent(), None);
}

/// A sender that leaves a ring with an urgent byte leads its reader on, which passes over that byte, and finds what
/// follows; the ring can be used again.
#[test]
fn an_urgent_byte_may_be_the_first_of_its_ring() {
    let mut pair = Pair::new();
    pair.session(Side::Passive).claim(9, 0, 0);
    let all = vec![7; 500_000];
    for lap in 0..3 {
        assert_eq!(pair.send_deep(Side::Passive, &all), all.len());
        assert!(pair.session(Side::Passive).room(1).unwrap().is_large());
        let mut left = all.len();
        while left > 0 {
            let got = pair.receive(Side::Active, left);
            assert!(got.iter().all(|byte| *byte == 7), "{lap}");
            left -= got.len();
        }
        pair.session(Side::Passive).settle();
        assert_eq!(pair.session(Side::Passive).room(1).unwrap().ring, 1);
        pair.session(Side::Passive).mark_urgent(1, b'!');
        pair.send(Side::Passive, b"!");
        pair.send(Side::Passive, b"ab");
        assert_eq!(pair.receive(Side::Active, 9), b"ab", "{lap}");
    }
}

/// More than all rings have room for goes through them in turn, and each is used again once it is read:
/// with pieces of any length, and memory that goes to the kernel as it is read.
#[test]
fn a_stream_goes_through_all_rings_whole() {
    let mut pair = Pair::new();
    pair.session(Side::Passive).claim(9, 0, 0);
    let pattern = |at: usize| (at * 7 + at / 251) as u8;
    let (mut sent, mut got) = (0, 0);
    let mut most = 0;
    for lap in 0..60_usize {
        // Sends more than there is room for, and reads more and more of it.
        let bytes: Vec<u8> = (sent..sent + 700_000 + lap).map(pattern).collect();
        sent += pair.send_deep(Side::Passive, &bytes);
        most = most.max(sent - got);
        let read = match lap % 20 {
            0..10 => lap * 1000 + 1,
            10..15 => 900_001,
            _ => usize::MAX,
        };
        let until = got.saturating_add(read).min(sent);
        let seen = pair.peek(Side::Active, 70_000);
        let wrong = seen.iter().enumerate().position(|(at, byte)| *byte != pattern(got + at));
        assert_eq!(wrong, None, "{lap}");
        assert_eq!(seen.len(), 70_000.min(sent - got));
        while got < until {
            let bytes = pair.receive(Side::Active, (until - got).min(50_021));
            assert!(!bytes.is_empty());
            let wrong = bytes.iter().enumerate().position(|(at, byte)| *byte != pattern(got + at));
            assert_eq!(wrong, None, "{lap}");
            got += bytes.len();
        }
    }
    let all = side_length(RING) as usize;
    assert!(most > all - 300_000 && most <= all, "{most} of {all}");
}

/// Behind a burst the next bytes go through a ring that keeps its memory.
#[test]
fn a_sender_leaves_a_large_ring_once_it_is_read() {
    let mut pair = Pair::new();
    pair.session(Side::Passive).claim(9, 0, 0);
    let sent = pair.send_deep(Side::Passive, &[7; 500_000]);
    assert!(pair.session(Side::Passive).room(1).unwrap().is_large());
    let mut left = sent;
    while left > 0 {
        left -= pair.receive(Side::Active, left).len();
        pair.session(Side::Passive).settle();
    }
    let room = pair.session(Side::Passive).room(1).unwrap();
    assert_eq!((room.ring, room.is_large()), (1, false));
}

/// Memory of large rings goes back as a whole: when its ring is left, and when everything is read.
#[test]
fn memory_of_large_rings_goes_back_once_they_are_read() {
    let mut pair = Pair::new();
    pair.session(Side::Passive).claim(9, 0, 0);
    let sizes: Vec<usize> = (0..4).map(|ring| ring_size(RING, ring) as usize).collect();
    let given = |pair: &Pair| pair.given[Side::Passive as usize];
    let read = |pair: &mut Pair, most: usize| {
        let mut left = most;
        while left > 0 {
            left -= pair.receive(Side::Active, left).len();
        }
    };
    let all = sizes.iter().sum::<usize>();
    let occupied = |pair: &Pair| pair.session(Side::Passive).occupied() as usize;
    let little = vec![7; sizes[0] + sizes[1] + 5];
    assert_eq!(pair.send_deep(Side::Passive, &little), little.len());
    assert_eq!(occupied(&pair), 5);
    let rest = vec![7; all - little.len()];
    assert_eq!(pair.send_deep(Side::Passive, &rest), rest.len());
    assert_eq!(occupied(&pair), sizes[2] + sizes[3]);
    read(&mut pair, sizes[0] + sizes[1] + sizes[2]);
    assert_eq!(given(&pair), 0, "more may be written there, as far as the reader knows");
    read(&mut pair, 1);
    assert_eq!(given(&pair), sizes[2]);
    read(&mut pair, sizes[3] - 2);
    assert_eq!((given(&pair), occupied(&pair)), (sizes[2], sizes[3]), "one byte is not read");
    read(&mut pair, 1);
    assert_eq!((given(&pair), occupied(&pair)), (sizes[2] + sizes[3], 0));
    // Through the small rings there is none.
    assert_eq!(pair.send_deep(Side::Passive, &[1; 5000]), 5000);
    read(&mut pair, 5000);
    assert_eq!(given(&pair), sizes[2] + sizes[3]);
}

/// Whichever side comes second: a reader that is giving memory back sends the sender elsewhere, and a sender that is
/// writing gives back what its reader could not.
#[test]
fn memory_of_a_large_ring_stays_while_a_sender_writes_there() {
    let mut pair = Pair::new();
    pair.session(Side::Passive).claim(9, 0, 0);
    let large = (ring_begin(RING, LARGE) as usize, ring_size(RING, LARGE) as usize);
    pair.send(Side::Passive, &[1; 4096]);
    pair.session(Side::Passive).change_to(LARGE);
    let (sender, reader) = (pair.session(Side::Passive), pair.session(Side::Active));
    let read = || {
        let at = reader.at(&reader.arrived().unwrap(), 0, 4096).unwrap();
        assert_eq!(reader.left_behind(&at), None);
        let _ = reader.consumed(at.length());
    };
    read();
    assert!(sender.hold());
    let _ = sender.filled(1);
    read();
    reader.give_back(|_, _| panic!("a sender writes there"));
    assert_eq!(sender.let_go(), Some(large));
    let mut given = None;
    reader.give_back(|at, length| {
        given = Some((at, length));
        assert!(!sender.hold(), "the memory is going");
        assert_eq!(sender.smaller(), Some(1), "nothing waits in the rings before");
    });
    assert_eq!(given, Some(large));
    assert!(sender.hold());
    let _ = sender.filled(1);
    assert_eq!(sender.let_go(), None, "it is not read");
    reader.give_back(|_, _| panic!("there is something to read"));
}

/// A ring whose memory ends is left again for a smaller one, once the reader is seen to be behind that.
#[test]
fn a_sender_goes_back_to_a_ring_that_is_read() {
    let mut pair = Pair::new();
    pair.session(Side::Passive).claim(9, 0, 0);
    assert_eq!(pair.send(Side::Passive, &[1; 4096]), 4096);
    pair.session(Side::Passive).change_to(1);
    assert_eq!(pair.send(Side::Passive, b"xy"), 2);
    for read in [4096, 1] {
        assert_eq!(pair.session(Side::Passive).smaller(), None, "it is not read, or not left");
        assert_eq!(pair.receive(Side::Active, read).len(), read);
    }
    assert_eq!(pair.session(Side::Passive).smaller(), Some(0));
    pair.session(Side::Passive).change_to(0);
    assert_eq!(pair.send(Side::Passive, &[2; 5000]), 4096);
    assert_eq!(pair.receive(Side::Active, 9), b"y");
    assert_eq!(pair.receive(Side::Active, 9), [2; 9]);
}

/// A process that dies between the two stores of a change leaves the change to the next one.
#[test]
fn a_change_of_rings_outlives_its_process() {
    let mut pair = Pair::new();
    pair.session(Side::Passive).claim(9, 0, 0);
    pair.send(Side::Passive, &[1; 4096]);
    let before = words_of(&pair.header);
    pair.session(Side::Passive).change_to(1);
    pair.send(Side::Passive, b"next");
    // State that the sender alone keeps is as it was before.
    let changed = words_of(&pair.header);
    let own = (0..changed.len()).filter(|at| changed[*at] != before[*at]);
    let kept: Vec<usize> = own.filter(|at| [1 << 32, 4096].contains(&changed[*at])).collect();
    for at in kept {
        scribble(&pair.header, at, before[at]);
    }
    assert_eq!(pair.send(Side::Passive, b" and more"), 9);
    assert_eq!(pair.receive(Side::Active, 4096), [1; 4096]);
    assert_eq!(pair.receive(Side::Active, 99), b"next and more");
}

fn words_of(header: &Header) -> Vec<u64> {
    let words = std::ptr::from_ref(header).cast::<std::sync::atomic::AtomicU64>();
    // SAFETY: as of `scribble`.
    (0..HEADER / 8).map(|at| unsafe { &*words.add(at) }.load(Ordering::Relaxed)).collect()
}

/// A list of connections names them by these.
#[test]
fn a_segment_says_whose_connection_it_is() {
    let pair = Pair::new();
    assert_eq!(pair.header.peers(), [0; 6]);
    pair.session(Side::Active).name_peers([4, 5 << 16 | 6, 7, 8, 9, 10]);
    assert_eq!(pair.header.peers(), [4, 5 << 16 | 6, 7, 8, 9, 10]);
}

/// A peer that does not claim finds the whole stream on TCP; one that claims late finds the rest in the
/// ring.
#[test]
fn a_peer_that_has_not_claimed_sees_tcp_only() {
    let mut pair = Pair::new();
    pair.session(Side::Active).count_before(2, 3);
    assert_eq!(pair.send(Side::Active, b"question"), 8);
    assert_eq!(pair.tcp[Side::Active as usize], b"question");
    pair.tcp[Side::Passive as usize].extend(b"answer");
    assert_eq!(pair.receive(Side::Active, 99), b"answer");
    assert_eq!(pair.session(Side::Active).state(), State::Offered);
    assert!(pair.session(Side::Passive).claim(9, 9, 2));
    assert_eq!(pair.send(Side::Active, b"more"), 4);
    assert_eq!(pair.tcp[Side::Active as usize], b"question\xFF", "and a doorbell");
    assert_eq!(pair.receive(Side::Passive, 99), b"question");
    assert_eq!(pair.receive(Side::Passive, 99), b"more");
    assert_eq!(pair.send(Side::Passive, b"end"), 3);
    assert_eq!(pair.receive(Side::Active, 99), b"end");
}

/// An offer that is withdrawn is not taken any more.
#[test]
fn a_connection_stays_with_tcp_behind_a_withdrawal() {
    let mut pair = Pair::new();
    assert!(pair.session(Side::Active).withdraw());
    assert!(!pair.session(Side::Passive).claim(9, 0, 0));
    assert_eq!(pair.session(Side::Passive).state(), State::Withdrawn);
    assert_eq!(pair.send(Side::Passive, b"answer"), 6);
    assert_eq!(pair.tcp[Side::Passive as usize], b"answer");
}

#[test]
fn one_socket_claims_a_segment_and_no_other() {
    let pair = Pair::new();
    assert!(pair.session(Side::Passive).claim(9, 0, 0));
    assert!(pair.session(Side::Passive).claim(9, 0, 0), "another process that holds the socket");
    assert!(!pair.session(Side::Passive).claim(10, 0, 0), "another socket");
    assert!(!pair.session(Side::Active).withdraw(), "it is used");
}

#[test]
fn a_segment_of_another_layout_is_not_used() {
    let full = segment_length(RING);
    let header = Box::<Header>::default();
    assert_eq!(header.examine(full), Err(Unfit::Magic), "not finished");
    header.prepare(RING, 7);
    assert_eq!(header.examine(full), Ok(RING));
    assert_eq!(header.examine(full - 1), Err(Unfit::Size));
    for ring in [0, 2048, RING + 1, 128 << 10, u64::MAX] {
        header.prepare(ring, 7);
        assert_eq!(header.examine(u64::MAX), Err(Unfit::Size), "{ring}");
    }
    header.prepare(RING, 7);
    scribble(&header, 1, u64::from(VERSION) + 1);
    assert_eq!(header.examine(full), Err(Unfit::Version));
    scribble(&header, 1, u64::from(VERSION) | 1 << 32);
    assert_eq!(header.examine(full), Err(Unfit::Feature));
    scribble(&header, 0, MAGIC + 1);
    assert_eq!(header.examine(full), Err(Unfit::Magic));
}

/// A doorbell that ends a sleep of a set is spared only where nothing else waits for it.
#[test]
fn a_doorbell_is_shared_by_one_set_and_no_other_waiter() {
    let pair = Pair::new();
    let (own, peer) = (pair.session(Side::Active), pair.session(Side::Passive));
    peer.shares_sleep(5);
    let end = pair.header.end(Side::Passive);
    for (waiting, members, sleep) in [(0, 1, 5), (1, 1, 0), (0, 2, 0), (1, 2, 0)] {
        end.waiting.store(waiting, Ordering::SeqCst);
        end.members.store(members, Ordering::SeqCst);
        assert_eq!(own.peer_sleep(), sleep, "{waiting} {members}");
    }
}

#[test]
fn a_doorbell_is_armed_until_it_is_sent() {
    let wait = Wait::default();
    assert!(!wait.is_armed());
    wait.arm();
    assert!(wait.is_armed());
    assert!(wait.wake().doorbell);
    assert!(!wait.is_armed());
}

#[test]
fn each_send_that_met_a_full_ring_counts_for_its_sender_alone() {
    let pair = Pair::new();
    pair.session(Side::Active).found_full();
    pair.session(Side::Active).found_full();
    assert_eq!(pair.session(Side::Active).times_full(), 2);
    assert_eq!(pair.session(Side::Passive).times_full(), 0);
}
