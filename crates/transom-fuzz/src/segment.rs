//! The other process writes what it likes into the segment of a switched connection, while a victim sends,
//! receives and asks as `transom-sockets` does: every stretch lies inside its ring, no count is larger
//! than what there is, and no step is a panic. As long as the other process keeps the rules, the bytes
//! come out as they went in.
//!
//! Input: two bytes of options, then steps: what to do, and its bytes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use transom_switch::layout::{
    HEADER, Header, RING_SIZES, Side, ring_begin, ring_size, segment_length, side_length,
};
use transom_switch::session::{Road, Session, State, Stretches};
use transom_switch::wait::Wake;

use crate::Input;

const ACTIVE: u8 = 1;
/// Bytes of the smallest ring.
const RING: u64 = 4096;
/// Most doorbells that are taken at once.
const DOORBELLS: usize = 65_536;

/// The words of a header: the other process does not ask the types of this one.
#[allow(unsafe_code)]
fn words(header: &Header) -> &[AtomicU64; HEADER / 8] {
    // SAFETY: a `Header` is `repr(C)`, aligned to a page, and nothing but atomics and gaps between them.
    unsafe { &*std::ptr::from_ref(header).cast::<[AtomicU64; HEADER / 8]>() }
}

struct Connection {
    header: Box<Header>,
    rings: [Vec<u8>; 2],
    /// The bytes in the TCP stream, of the side that sends.
    tcp: [VecDeque<u8>; 2],
    /// The bytes that the receiver has to get, while both sides keep the rules.
    owed: [VecDeque<u8>; 2],
    /// Bytes that the passive side has sent and received over TCP: its claim says so.
    counts: (u64, u64),
    honest: bool,
    next: u8,
}

/// Plays one input.
pub fn segment(input: &[u8]) {
    let mut input = Input(input);
    let (Some(options), Some(before)) = (input.byte(), input.byte()) else { return };
    let side = if options & ACTIVE != 0 { Side::Active } else { Side::Passive };
    let mut one = Connection {
        header: Box::default(),
        rings: [0, 1].map(|_| vec![0; side_length(RING) as usize]),
        tcp: Default::default(),
        owed: Default::default(),
        counts: (u64::from(before >> 4), u64::from(before & 15)),
        honest: true,
        next: 0,
    };
    one.header.prepare(RING, 7);
    // Bytes that the two sides have exchanged before the offer.
    let (sent, received) = one.counts;
    one.session(Side::Active).count_before(received, sent);
    one.session(Side::Passive).count_before(sent, received);
    while let Some(step) = input.byte() {
        let count = usize::from(input.byte().unwrap_or(0)) << (step >> 5);
        match step % 16 {
            0..=2 => one.send(side, count),
            3..=5 => one.receive(side, count),
            6 => one.send(side.other(), count),
            7 => one.receive(side.other(), count),
            8 => {
                let taken = one.session(Side::Passive).claim(9, one.counts.0, one.counts.1);
                assert!(taken || !one.honest || one.is_withdrawn());
            }
            9 => one.end(side, step),
            10 => one.ask(side),
            11 => {
                // Any word, with any value or with one close to what it was.
                let word = &words(&one.header)[count % (HEADER / 8)];
                let value =
                    if step & 16 != 0 { input.word() } else { word.load(Ordering::Relaxed) };
                let near = u64::from(input.byte().unwrap_or(0)).wrapping_sub(128);
                word.store(value.wrapping_add(near), Ordering::Relaxed);
                one.honest = false;
            }
            12 => {
                // Bytes in the TCP stream that are no doorbells.
                one.tcp[side.other() as usize].extend(std::iter::repeat_n(0x55, count.min(300)));
                one.honest = false;
            }
            13 => one.examine(input.word()),
            14 => one.session(side).for_bytes().arm(),
            _ => one.sleep(side, step),
        }
        one.ask(side);
    }
}

fn inside(at: &Stretches, most: usize) -> bool {
    let begin = ring_begin(RING, at.ring) as usize;
    let end = begin + ring_size(RING, at.ring) as usize;
    let within = |(at, length): (usize, usize)| begin <= at && at + length <= end;
    within(at.first) && within(at.second) && at.length() <= most
}

impl Connection {
    fn session(&self, side: Side) -> Session<'_> {
        Session::new(&self.header, side, RING)
    }

    fn is_withdrawn(&self) -> bool {
        self.session(Side::Active).state() == State::Withdrawn
    }

    fn ring(&mut self, side: Side, wake: Wake) {
        if wake.doorbell && self.session(side).sends_by_ring() {
            self.header.end(side).rung.fetch_add(1, Ordering::Relaxed);
            self.tcp[side as usize].push_back(0xFF);
        }
    }

    fn send(&mut self, side: Side, count: usize) {
        let count = count.min(2 * RING as usize);
        let bytes: Vec<u8> = (0..count)
            .map(|_| {
                self.next = (self.next + 1) % 251;
                self.next
            })
            .collect();
        if self.session(side).has_finished() {
            return;
        }
        let done = if let Road::Tcp(_) = self.session(side).road_out() {
            self.tcp[side as usize].extend(&bytes);
            self.session(side).sent_by_tcp(count as u64);
            if side == Side::Passive {
                self.counts.0 += count as u64;
            }
            count
        } else {
            self.session(side).settle();
            let Ok(mut room) = self.session(side).room(count) else {
                assert!(!self.honest, "no room in an honest ring");
                return;
            };
            if room.length() == 0
                && count > 0
                && let Some(larger) = self.session(side).larger()
            {
                room = self.session(side).room_in(larger, count);
                self.session(side).change_to(larger);
            }
            assert!(inside(&room, count), "{room:?}");
            if room.is_large() && !self.session(side).hold() {
                assert!(!self.honest, "no reader is giving memory back");
                room = Stretches::default();
            }
            let (first, second) = bytes[..room.length()].split_at(room.first.1);
            let ring = &mut self.rings[side as usize];
            ring[room.first.0..][..first.len()].copy_from_slice(first);
            ring[room.second.0..][..second.len()].copy_from_slice(second);
            let wake = self.session(side).filled(room.length());
            self.ring(side, wake);
            let unused = self.session(side).let_go();
            self.give(side, unused);
            room.length()
        };
        self.owed[side as usize].extend(&bytes[..done]);
    }

    /// The kernel has this memory of a side's rings now.
    fn give(&mut self, side: Side, memory: impl IntoIterator<Item = (usize, usize)>) {
        for (begin, length) in memory {
            self.rings[side as usize][begin..][..length].fill(0xEE);
        }
    }

    fn got(&mut self, from: Side, bytes: &[u8]) {
        for byte in bytes {
            let owed = self.owed[from as usize].pop_front();
            assert!(!self.honest || owed == Some(*byte), "{byte} in place of {owed:?}");
        }
    }

    fn receive(&mut self, side: Side, count: usize) {
        let from = side.other();
        match self.session(side).road_in() {
            Err(_) => assert!(!self.honest, "an honest sender counts right"),
            Ok(Road::Tcp(limit)) => {
                let most = limit.map_or(count as u64, |limit| limit.min(count as u64)) as usize;
                let there = self.tcp[from as usize].len().min(most);
                let taken: Vec<u8> = self.tcp[from as usize].drain(..there).collect();
                match self.session(side).received_by_tcp(there as u64) {
                    Ok(payload) => {
                        assert!(payload <= there as u64, "{payload} of {there} bytes");
                        self.got(from, &taken[..payload as usize]);
                        if side == Side::Passive {
                            self.counts.1 += payload;
                        }
                    }
                    Err(_) => assert!(!self.honest, "an honest sender counts right"),
                }
            }
            Ok(Road::Ring) => {
                let Ok(incoming) = self.session(side).arrived() else {
                    assert!(!self.honest, "an honest sender writes what there is room for");
                    return;
                };
                let Ok(at) = self.session(side).at(&incoming, 0, count) else {
                    assert!(!self.honest, "an honest sender leaves its rings one for the other");
                    return;
                };
                assert!(inside(&at, count) && at.length() as u64 <= incoming.bytes, "{at:?}");
                let ring = &self.rings[from as usize];
                let piece = |(at, length): (usize, usize)| &ring[at..][..length];
                let bytes = [piece(at.first), piece(at.second)].concat();
                let mut given = Vec::from_iter(self.session(side).left_behind(&at));
                self.got(from, &bytes);
                let wake = self.session(side).consumed(at.length());
                self.ring(side, wake);
                self.session(side).give_back(|begin, length| given.push((begin, length)));
                self.give(from, given);
                self.drain(side);
            }
        }
    }

    /// Take doorbells.
    fn drain(&mut self, side: Side) {
        let count = self.session(side).doorbells();
        assert!(count <= DOORBELLS, "{count} doorbells");
        let there = count.min(self.tcp[side.other() as usize].len());
        let bells = self.tcp[side.other() as usize].drain(..there);
        assert!(!self.honest || bells.into_iter().all(|byte| byte == 0xFF), "a byte is lost");
        self.header.end(side).drained.fetch_add(there as u64, Ordering::Relaxed);
    }

    fn end(&mut self, side: Side, step: u8) {
        if step & 16 == 0 {
            let wake = self.session(side).finish();
            self.ring(side, wake);
        } else {
            let _ = self.session(side).withdraw();
        }
    }

    fn sleep(&mut self, side: Side, step: u8) {
        let session = self.session(side);
        let wait = if step & 16 == 0 { session.for_bytes() } else { session.for_room() };
        let _ = wait.fall_asleep();
        let _ = wait.wake_sleepers();
    }

    /// The questions of pollers and options.
    fn ask(&self, side: Side) {
        let session = self.session(side);
        let all = side_length(RING);
        if let Ok(incoming) = session.arrived() {
            assert!(incoming.bytes <= incoming.all && incoming.all <= all, "{incoming:?}");
            if let Ok(at) = session.at(&incoming, incoming.all / 2, usize::MAX) {
                assert!(inside(&at, all as usize), "{at:?}");
            }
        }
        if let Ok(room) = session.room(usize::MAX) {
            assert!(inside(&room, ring_size(RING, room.ring) as usize), "{room:?}");
        }
        let _ = (session.urgent(), session.queued(), session.smaller());
        assert!(session.doorbells() <= DOORBELLS);
        let _ = (session.is_writable(), session.is_all_read(), session.state());
    }

    /// A file of some length is a segment only if its rings lie in it.
    fn examine(&self, length: u64) {
        if let Ok(ring) = self.header.examine(length) {
            let sizes = RING_SIZES.contains(&ring) && ring.is_power_of_two();
            assert!(sizes && segment_length(ring) <= length, "{ring} in {length}");
        }
    }
}
