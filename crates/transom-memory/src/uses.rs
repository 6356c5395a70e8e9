//! Counts of the copies through each token, for people who look at a process. Decides nothing.
//!
//! A table counts only if its [`Config`](crate::Config) says so: then the head of every entry has
//! a bit by which a check leaves its short way. Without it, a check costs what it did.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::table::boxed;
use crate::token::{CHUNK, DIRECTORY, Place};
use crate::{Access, Nanoseconds, Rights};

/// The copies that were made through a token so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Copies permitted, each of at most [`LARGEST_GRANT`](crate::LARGEST_GRANT) bytes.
    pub copies: u64,
    /// Bytes of them all.
    pub bytes: u64,
    /// How long ago the last one was permitted.
    pub last: Option<Nanoseconds>,
    /// The first address of the last copy. Of copies that threads make at the same time, `last`
    /// and this may be those of two.
    pub last_address: Option<u64>,
    /// First address touched, and the number of bytes from there to the end of the last one; of a
    /// token that peers may use, by peers.
    pub touched: Option<(u64, u64)>,
    /// Rights of which the copies made use.
    pub rights: Rights,
}

/// The counts of one token, on cache lines of its own: what the lane that used it first writes is in
/// the first line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Counter {
    /// The lane that used the token first ([`Hazard::number`](crate::hazard::Hazard::number)); 0: none
    /// has. That lane alone writes the two counts behind it, so that it needs no exchange with other
    /// processors for them.
    first: AtomicU64,
    own_copies: AtomicU64,
    own_bytes: AtomicU64,
    /// When the last copy was permitted.
    last: AtomicU64,
    /// The first address of the last copy.
    last_address: AtomicU64,
    /// The lowest address touched, inverted, so that 0 is the beginning of everything.
    lowest: AtomicU64,
    /// The highest address touched.
    highest: AtomicU64,
    /// Where the program has made it ([`ORIGIN`]), [`REVIEWED`], and the rights that the copies used
    /// ([`RIGHTS_SHIFT`]).
    origin: AtomicU64,
    /// Copies of all other lanes.
    copies: AtomicU64,
    bytes: AtomicU64,
    /// When the token was made.
    began: AtomicU64,
}

const ORIGIN: u64 = 0xffff_ffff;
/// The memory of a token that outlives it has gone, and was reviewed.
const REVIEWED: u64 = 1 << 32;
/// The 16 bits of the rights begin here.
const RIGHTS_SHIFT: u32 = 48;

impl Counter {
    /// A copy of at least one byte was permitted on a lane by a token with these rights. Lanes may do
    /// this at the same time: no copy is lost, and `last` is that of one of them.
    pub(crate) fn count(&self, lane: u64, access: &Access, granted: Rights, now: Nanoseconds) {
        if self.is_first(lane) {
            // A lane is used by one thread at a time, and passes from one to another in order.
            let add = |count: &AtomicU64, more| {
                count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
            };
            add(&self.own_copies, 1);
            add(&self.own_bytes, access.length);
        } else {
            self.copies.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(access.length, Ordering::Relaxed);
        }
        self.last.store(now, Ordering::Relaxed);
        self.last_address.store(access.address, Ordering::Relaxed);
        // Read first: a word that stays as it is stays in the caches of other threads.
        let highest = access.address.wrapping_add(access.length - 1);
        let rights = u64::from((granted & access.purpose.rights()).0) << RIGHTS_SHIFT;
        if self.origin.load(Ordering::Relaxed) & rights != rights {
            self.origin.fetch_or(rights, Ordering::Relaxed);
        }
        if granted.intersects(Rights::REMOTE) && !access.purpose.is_remote() {
            return;
        }
        if self.lowest.load(Ordering::Relaxed) < !access.address {
            self.lowest.fetch_max(!access.address, Ordering::Relaxed);
        }
        if self.highest.load(Ordering::Relaxed) < highest {
            self.highest.fetch_max(highest, Ordering::Relaxed);
        }
    }

    /// Whether a lane is the first that has used the token; it is, if there was none.
    fn is_first(&self, lane: u64) -> bool {
        match self.first.load(Ordering::Relaxed) {
            0 => {
                let taken =
                    self.first.compare_exchange(0, lane, Ordering::Relaxed, Ordering::Relaxed);
                taken.is_ok()
            }
            first => first == lane,
        }
    }

    fn reset(&self) {
        let Counter { first, own_copies, own_bytes, last, last_address, lowest, .. } = self;
        let Counter { highest, origin, copies, bytes, began, .. } = self;
        for word in [first, own_copies, own_bytes, last, last_address, lowest] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [highest, origin, copies, bytes, began] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The counts, as of `now`. A copy that is counted meanwhile may be in a part of them.
    fn uses(&self, now: Nanoseconds) -> Uses {
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let copies = read(&self.copies) + read(&self.own_copies);
        if copies == 0 {
            return Uses::default();
        }
        let lowest = !read(&self.lowest);
        let length = read(&self.highest).checked_sub(lowest).map(|last| last.saturating_add(1));
        Uses {
            copies,
            bytes: read(&self.bytes).wrapping_add(read(&self.own_bytes)),
            last: Some(now.saturating_sub(read(&self.last))),
            last_address: Some(read(&self.last_address)),
            touched: length.map(|length| (lowest, length)),
            rights: Rights((read(&self.origin) >> RIGHTS_SHIFT) as u16),
        }
    }
}

type Chunk = Box<[Counter; CHUNK]>;

/// The counts of a table, beside its entries.
#[derive(Debug)]
pub(crate) struct Counters {
    directory: Box<[OnceLock<Chunk>]>,
}

impl Counters {
    pub(crate) fn new() -> Counters {
        Counters { directory: std::iter::repeat_with(OnceLock::new).take(DIRECTORY).collect() }
    }

    pub(crate) fn add_chunk(&self, position: usize) {
        if let (Some(cell), Some(chunk)) = (self.directory.get(position), boxed(Counter::default)) {
            // A chunk that exists stays.
            let _ = cell.set(chunk);
        }
    }

    pub(crate) fn counter(&self, place: Place) -> Option<&Counter> {
        self.directory.get(place.position())?.get()?.get(place.slot())
    }

    /// A new token begins in a slot: no copy through the one before is under way.
    pub(crate) fn begin(&self, place: Place) {
        if let Some(counter) = self.counter(place) {
            counter.reset();
        }
    }

    /// Note when a token was made, and where in the program.
    pub(crate) fn made(&self, place: Place, origin: u32, now: Nanoseconds) {
        if let Some(counter) = self.counter(place) {
            counter.began.store(now, Ordering::Relaxed);
            counter.origin.fetch_and(!ORIGIN, Ordering::Relaxed);
            counter.origin.fetch_or(u64::from(origin), Ordering::Relaxed);
        }
    }

    /// Where the program has made a token.
    pub(crate) fn origin(&self, place: Place) -> u32 {
        self.counter(place).map_or(0, |counter| counter.origin.load(Ordering::Relaxed) as u32)
    }

    /// Whether what the token opened is to be reviewed, which is so once.
    pub(crate) fn take_review(&self, place: Place) -> bool {
        let before =
            self.counter(place).map(|counter| counter.origin.fetch_or(REVIEWED, Ordering::Relaxed));
        before.is_some_and(|before| before & REVIEWED == 0)
    }

    /// A token that outlives its memory gets other memory, whose uses are counted from here on.
    pub(crate) fn begin_again(&self, place: Place) {
        if let Some(counter) = self.counter(place) {
            let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
            let (began, origin) = (read(&counter.began), read(&counter.origin));
            counter.reset();
            counter.began.store(began, Ordering::Relaxed);
            counter.origin.store(origin & ORIGIN, Ordering::Relaxed);
        }
    }

    /// How long ago a token was made, and its uses.
    pub(crate) fn uses(&self, place: Place, now: Nanoseconds) -> Option<(Nanoseconds, Uses)> {
        let counter = self.counter(place)?;
        let began = counter.began.load(Ordering::Relaxed);
        Some((now.saturating_sub(began), counter.uses(now)))
    }

    /// Memory that the counts of so many slots and the directory occupy, in bytes.
    pub(crate) fn bytes(slots: usize) -> usize {
        slots * size_of::<Counter>() + DIRECTORY * size_of::<OnceLock<Chunk>>()
    }
}
