//! The segment: every word that the two sides share.
//!
//! A segment is a [`Header`] followed by the rings of the active side and those of the passive side, indexed
//! by the side that writes. Zeros are a fresh header, but for what [`Header::prepare`] sets.
//!
//! Each side has four rings, each larger than the one before. Most connections need the smallest one only; a
//! sender whose peer does not read goes on in a larger one ([`Session::larger`](super::session::Session::larger)).

use super::sync::{AtomicU32, AtomicU64, Ordering};
use super::wait::Wait;

/// The first word of a segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"trnsock1");
/// The layout of this file. A side that finds another version stays with TCP.
pub const VERSION: u32 = 5;
/// Features that both sides must know: none yet. A side that finds one it lacks stays with TCP.
pub const FEATURES: u32 = 0;
/// Sizes of a side's smallest ring that are taken, in bytes: powers of two.
pub const RING_SIZES: std::ops::RangeInclusive<u64> = 4096..=65_536;
/// Rings of each side.
pub const RINGS: usize = 4;
/// Rings from here on give their memory back once they are read.
pub const LARGE: usize = 2;
/// How often each ring doubles the smallest one. All four of 16 KiB together have 20 MiB, what a TCP connection
/// takes whose reader does not read, at most: 4 MiB unsent (`tcp_wmem`), and a window of half of 32 MiB
/// (`tcp_rmem`).
const DOUBLINGS: [u32; RINGS] = [0, 4, 8, 10];
/// Where each ring begins, and all of them end, in sizes of the smallest one.
const BEGINS: [u64; RINGS + 1] = {
    let mut begins = [0; RINGS + 1];
    let mut ring = 0;
    while ring < RINGS {
        begins[ring + 1] = begins[ring] + (1 << DOUBLINGS[ring]);
        ring += 1;
    }
    begins
};

/// The size of a ring, where the smallest one has `smallest` bytes.
#[must_use]
#[inline]
pub fn ring_size(smallest: u64, ring: usize) -> u64 {
    smallest << DOUBLINGS[ring & (RINGS - 1)]
}

/// Where a ring begins among those of its side.
#[must_use]
#[inline]
pub fn ring_begin(smallest: u64, ring: usize) -> u64 {
    smallest * BEGINS[ring & (RINGS - 1)]
}

/// Bytes of all rings of a side.
#[must_use]
#[inline]
pub fn side_length(smallest: u64) -> u64 {
    smallest * BEGINS[RINGS]
}

/// Bytes of a segment.
#[must_use]
pub fn segment_length(smallest: u64) -> u64 {
    HEADER as u64 + 2 * side_length(smallest)
}

/// The end of a connection that this process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that connected, and has made the segment.
    Active,
    /// The end that was accepted.
    Passive,
}

impl Side {
    /// The other end.
    #[must_use]
    #[inline]
    pub fn other(self) -> Side {
        match self {
            Side::Active => Side::Passive,
            Side::Passive => Side::Active,
        }
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// Words that one side writes often and the other one reads: two cache lines, which are fetched in
/// pairs.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Alone<T>(pub(crate) T);

/// Words that the sender of a direction publishes.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Published {
    /// Bytes written into the rings since the connection began.
    pub(crate) head: AtomicU64,
    /// Where each ring was left, and for which one: a position times four, and a ring, plus 1. 0: it was not
    /// left, or was not used.
    pub(crate) left: [AtomicU64; RINGS],
    /// The bytes plus 1 that went over TCP before the ring; 0 while the sender uses TCP.
    pub(crate) switched: AtomicU64,
    /// The position plus 1 of the last urgent byte.
    pub(crate) urgent: AtomicU64,
    /// The last urgent byte.
    pub(crate) urgent_byte: AtomicU32,
    /// 1: nothing follows `head`.
    pub(crate) finished: AtomicU32,
    /// A sender that has found no room is woken when everything up to this position is read.
    pub(crate) mark: AtomicU64,
    /// 1: a sender writes into a large ring, whose memory stays.
    pub(crate) keeps: AtomicU32,
}

/// Words that the processes at the sending end share.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Sending {
    pub(crate) lock: AtomicU32,
    /// The ring that bytes are written into, or one that was left for it.
    pub(crate) ring: AtomicU32,
    /// The position at which that ring was entered.
    pub(crate) entered: AtomicU64,
    /// Bytes that went over TCP.
    pub(crate) by_tcp: AtomicU64,
    /// How often a send has found no room.
    pub(crate) full: AtomicU64,
}

/// Words that the receiver of a direction publishes.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Taken {
    /// Bytes read from the rings.
    pub(crate) tail: AtomicU64,
    /// 1: a receiver gives the memory of a large ring back, of which everything is read.
    pub(crate) gives_back: AtomicU32,
}

/// Words that the processes at the receiving end share.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Receiving {
    pub(crate) lock: AtomicU32,
    /// The ring that bytes are read from, or one that was left for it.
    pub(crate) ring: AtomicU32,
    /// The large ring that has memory of bytes that were read; 0: none.
    pub(crate) behind: AtomicU32,
    /// Bytes of the stream that came over TCP.
    pub(crate) by_tcp: AtomicU64,
    /// The position plus 1 of the last urgent byte that was received out of band.
    pub(crate) urgent: AtomicU64,
}

/// A direction, indexed by the side that sends.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Way {
    pub(crate) published: Alone<Published>,
    pub(crate) taken: Alone<Taken>,
    /// Receivers that wait for bytes.
    pub(crate) for_bytes: Alone<Wait>,
    /// Senders that wait for room.
    pub(crate) for_room: Alone<Wait>,
    pub(crate) sending: Alone<Sending>,
    pub(crate) receiving: Alone<Receiving>,
}

/// Words that the processes at one end share.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct End {
    /// The kernel's number of this end's TCP socket, which is never used twice (`SO_COOKIE`). 0: not
    /// claimed.
    pub cookie: AtomicU64,
    /// How often a process has given this end up. The other end looks whether the TCP socket is closed.
    pub departures: AtomicU32,
    /// 1: a close of this end is a reset (`SO_LINGER` with no time).
    pub abortive: AtomicU32,
    /// Not 0: this end reads no more (`SHUT_RD`). 2: nor does the kernel.
    pub read_shut: AtomicU32,
    /// Calls of `shutdown` at this end.
    pub shutdowns: AtomicU32,
    /// 1: urgent bytes stay in the stream (`SO_OOBINLINE`).
    pub inline: AtomicU32,
    /// Bytes below which this end is not readable (`SO_RCVLOWAT`); 0 counts as 1.
    pub low_water: AtomicU32,
    /// How often that was set to what is reached.
    pub low_waters: AtomicU32,
    /// 1: TCP_NODELAY, as the program has it; doorbells never wait.
    pub no_delay: AtomicU32,
    /// 1: TCP_CORK, as the program has it.
    pub cork: AtomicU32,
    /// 1: what comes behind a close of this end is answered by a reset at once (`TCP_LINGER2` below 0).
    pub brief: AtomicU32,
    /// TCP_CONGESTION, as the program has it: sixteen bytes of a name.
    congestion: [AtomicU64; 2],
    /// Where a look at the stream begins, plus 1 (`SO_PEEK_OFF`); 0: at what is read next.
    pub peek_offset: AtomicU32,
    /// Messages that a `recvmsg` at this end brings: bits of the front's.
    pub messages: AtomicU32,
    /// Threads that wait in the kernel for doorbells of the other end, but for epoll sets.
    pub waiting: AtomicU32,
    /// Epoll sets that have this end.
    pub members: AtomicU32,
    /// Doorbells sent by this end.
    pub rung: AtomicU64,
    /// Doorbells of the other end that were taken from the TCP stream.
    pub drained: AtomicU64,
    /// The sleep of an epoll set that has armed this end together with others, any of whose doorbells
    /// ends it; a number that no other sleep has. 0: each doorbell is sent.
    pub sleep: AtomicU64,
    /// How many bytes had come when as many as [`End::low_water`] were there last, while fewer are.
    pub reached: AtomicU64,
}

impl End {
    /// The name of the program's congestion control, padded with zeros.
    #[must_use]
    pub fn congestion(&self) -> [u8; 16] {
        let mut name = [0; 16];
        for (bytes, word) in name.chunks_exact_mut(8).zip(&self.congestion) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        name
    }

    /// Keep the name of the program's congestion control.
    pub fn keep_congestion(&self, name: [u8; 16]) {
        let name = u128::from_ne_bytes(name);
        let halves = if cfg!(target_endian = "little") {
            [name as u64, (name >> 64) as u64]
        } else {
            [(name >> 64) as u64, name as u64]
        };
        for (word, half) in self.congestion.iter().zip(halves) {
            word.store(half, Ordering::Relaxed);
        }
    }
}

/// The first part of a segment.
#[derive(Debug, Default)]
#[repr(C, align(4096))]
pub struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    features: AtomicU32,
    ring: AtomicU64,
    /// Addresses and ports, as [`Header::name_peers`] has got them.
    peers: [AtomicU64; 6],
    pub(crate) state: Alone<AtomicU32>,
    pub(crate) ends: [End; 2],
    pub(crate) ways: [Way; 2],
}

/// Why a segment is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// No segment, or not finished.
    Magic,
    /// Another version of the layout.
    Version,
    /// A feature that this side does not know.
    Feature,
    /// A size of ring that is not taken, or more than there is.
    Size,
}

/// Bytes of the header.
pub const HEADER: usize = size_of::<Header>();

impl Header {
    /// Fill in a fresh header.
    pub fn prepare(&self, ring: u64, cookie: u64) {
        self.version.store(VERSION, Ordering::Relaxed);
        self.features.store(FEATURES, Ordering::Relaxed);
        self.ring.store(ring, Ordering::Relaxed);
        self.ends[Side::Active.index()].cookie.store(cookie, Ordering::Relaxed);
        for way in &self.ways {
            // The first byte through the ring rings, wherever its reader waits by then.
            way.for_bytes.0.arm();
        }
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// The size of the smallest ring of a segment that another process has made, of `length` bytes.
    ///
    /// # Errors
    /// [`Unfit`]: the segment is not used.
    pub fn examine(&self, length: u64) -> Result<u64, Unfit> {
        if self.magic.load(Ordering::Acquire) != MAGIC {
            return Err(Unfit::Magic);
        }
        if self.version.load(Ordering::Relaxed) != VERSION {
            return Err(Unfit::Version);
        }
        if self.features.load(Ordering::Relaxed) & !FEATURES != 0 {
            return Err(Unfit::Feature);
        }
        let ring = self.ring.load(Ordering::Relaxed);
        let fits =
            ring.is_power_of_two() && RING_SIZES.contains(&ring) && length >= segment_length(ring);
        if fits { Ok(ring) } else { Err(Unfit::Size) }
    }

    /// Say whose connection this is, for who lists connections.
    pub fn name_peers(&self, peers: [u64; 6]) {
        for (word, value) in self.peers.iter().zip(peers) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The argument of [`Header::name_peers`]; zeros before.
    #[must_use]
    pub fn peers(&self) -> [u64; 6] {
        std::array::from_fn(|at| self.peers[at].load(Ordering::Relaxed))
    }

    /// The words that the processes at one end share.
    #[must_use]
    #[inline]
    pub fn end(&self, side: Side) -> &End {
        &self.ends[side.index()]
    }
}
