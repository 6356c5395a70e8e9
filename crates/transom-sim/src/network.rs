//! Links: bytes on their way, late, in pieces, or never.

use std::collections::VecDeque;

use transom_core::{Connection, Effects, HostMemory};
use transom_memory::Segment;
use transom_wire::{Around, Buffer, Carrier, Direct, Room, Time};

use crate::arena::Arena;
use crate::rings::Rings;
use crate::watch::Watcher;

/// A direction of a link.
#[derive(Debug, Default)]
pub struct Way {
    queue: VecDeque<(Time, VecDeque<u8>)>,
    /// Bytes on their way.
    pub bytes: usize,
    /// Nothing comes behind them.
    pub closed: bool,
    /// Nothing is delivered for now.
    pub stalled: bool,
    /// Everything is lost without a word.
    pub lost: bool,
    /// The receiver has seen the end.
    pub told: bool,
    /// Over rings: when the receiver is woken, if it sleeps.
    pub bell: Option<Time>,
}

impl Way {
    /// Send bytes: they arrive at `at`, and never before what was sent earlier.
    pub fn push(&mut self, at: Time, bytes: Vec<u8>) {
        if self.closed || self.lost || bytes.is_empty() {
            return;
        }
        let at = self.queue.back().map_or(at, |(last, _)| at.max(*last));
        self.bytes += bytes.len();
        self.queue.push_back((at, bytes.into()));
    }

    /// At most `most` bytes that have arrived.
    pub fn take(&mut self, now: Time, most: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < most {
            let Some((at, bytes)) = self.queue.front_mut() else { break };
            if *at > now {
                break;
            }
            let count = bytes.len().min(most - out.len());
            out.extend(bytes.drain(..count));
            if bytes.is_empty() {
                self.queue.pop_front();
            }
        }
        self.bytes -= out.len();
        out
    }

    /// When the next bytes arrive.
    pub fn next(&self) -> Option<Time> {
        self.queue.front().map(|(at, _)| *at)
    }

    /// Lose what is on its way.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.bytes = 0;
    }

    /// Spoil one bit.
    pub fn spoil(&mut self, at: usize, bit: u32) -> bool {
        let mut before = 0;
        for (_, bytes) in &mut self.queue {
            if let Some(byte) = bytes.get_mut(at.wrapping_sub(before)) {
                *byte ^= 1 << (bit % 8);
                return true;
            }
            before += bytes.len();
        }
        false
    }
}

/// A side of a link.
#[derive(Debug)]
pub struct End {
    /// Index of the process.
    pub process: usize,
    /// Index of its queue pair there.
    pub pair: Option<usize>,
    /// The shipped state machine.
    pub connection: Connection,
    /// Bytes that the link has not taken.
    pub out: Vec<u8>,
    /// Bytes that the connection has not used up.
    pub held: Vec<u8>,
    /// The connection waits for a receive.
    pub read_paused: bool,
    /// The rings that carry its records, if the link is not one of bytes.
    pub rings: Option<Rings>,
    /// The writing side is shut down.
    pub shut: bool,
    /// Effects that the last call wants done.
    pub effects: Effects,
}

/// A link.
#[derive(Debug)]
pub struct Link {
    /// Active side first.
    pub ends: [Option<End>; 2],
    /// Towards each side.
    pub ways: [Way; 2],
    /// Bytes that may be on their way, each way.
    pub window: usize,
    /// Every frame has a checksum: bytes may be spoilt.
    pub checksum: bool,
}

impl Link {
    /// When this side can read something more; of what it can read by now, any time.
    #[must_use]
    pub fn next(&self, side: usize) -> Option<Time> {
        let (Some(way), Some(end)) = (self.ways.get(side), self.ends.get(side)?) else {
            return None;
        };
        let reads = end.connection.wants_read();
        let ends = way.closed && !way.told && reads;
        let Some(rings) = &end.rings else {
            // A message that waited for a receive has found one: what has come behind it is here.
            if end.read_paused && reads {
                return Some(Time(0));
            }
            return way.next().or((ends && !way.lost).then_some(Time(0)));
        };
        if way.lost {
            None
        } else if ends || !rings.asleep && rings.duplex.has_news() {
            Some(Time(0))
        } else {
            way.bell.filter(|_| rings.asleep)
        }
    }
}

/// How a frame is sent without a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Straight {
    /// The link takes all of it.
    Yes,
    /// The link is full.
    No,
    /// Part of it has left before its pages are found to be gone.
    Torn,
}

/// A link's outgoing side during one call.
#[derive(Debug)]
pub struct Outlet<'a> {
    /// Bytes that wait.
    pub out: Buffer,
    /// Where segments lie.
    pub arena: &'a Arena,
    /// The fate of a frame offered without a copy.
    pub straight: Straight,
    /// The frame's pages vanish while it is sent.
    pub tears: bool,
    /// Counts.
    pub watcher: &'a Watcher,
}

impl Carrier for Outlet<'_> {
    fn room(&self) -> usize {
        self.out.room()
    }

    fn takes(&self, length: usize) -> bool {
        self.out.takes(length)
    }

    fn reserve(&mut self, around: Around, length: usize) -> Room<'_> {
        self.out.reserve(around, length)
    }

    fn put(&mut self, payload: &[u8]) {
        self.out.put(payload);
    }

    fn frame(&mut self) -> &mut [u8] {
        self.out.frame()
    }

    fn commit(&mut self) {
        self.out.commit();
    }

    fn release(&mut self) {
        self.out.release();
    }

    fn wants_lend(&self, length: usize) -> bool {
        length >= 64
    }

    fn wants_sink(&self, length: u64) -> bool {
        self.out.wants_sink(length)
    }

    fn lend_sink(&mut self, header: &[u8], sink: Segment) -> bool {
        self.out.lend_sink(header, sink)
    }

    fn lend(&mut self, header: &[u8], payload: &[Segment], trailer: &[u8]) -> Direct {
        if self.straight == Straight::No {
            return Direct::Copy;
        }
        if std::mem::take(&mut self.tears)
            && self.straight == Straight::Torn
            && let Some(last) = payload.last()
        {
            self.arena.tear(last.host + last.length / 2);
        }
        let before = self.out.bytes.len();
        self.out.bytes.extend_from_slice(header);
        for segment in payload {
            if self
                .arena
                .append(segment.host, segment.length as usize, &mut self.out.bytes)
                .is_err()
            {
                if self.straight == Straight::Torn {
                    self.watcher.see().torn();
                    return Direct::Torn;
                }
                self.out.bytes.truncate(before);
                return Direct::Fault;
            }
        }
        self.out.bytes.extend_from_slice(trailer);
        self.watcher.see().counters.hit("sent without a copy");
        Direct::Taken
    }
}
