//! The two directions of a stream: what may be sent, what has come, what is to be granted. Numbers
//! only: no memory, no queue pair.

use std::collections::VecDeque;

use super::wire::Target;

/// Places in the array of targets that a side offers.
pub(crate) const TARGETS: u32 = 2;
/// Most bytes of one message.
const LONGEST: u32 = 64 << 10;

/// The peer has told of bytes that it was granted no room for, or of more messages than it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation;

/// Bytes that leave: through a ring of this side's into targets of the peer's.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Of the ring.
    size: u32,
    /// Where the next byte goes.
    at: u32,
    used: u32,
    /// The rest of the target that is being filled.
    target: Target,
    /// The place of the array from which the next target comes.
    place: u32,
    /// Messages sent, and how far the peer's grant reaches.
    sent: u16,
    granted: u16,
    /// Messages under way, and their most.
    under_way: u32,
    most: u32,
}

/// A piece of the ring, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) at: u32,
    pub(crate) length: u32,
    pub(crate) to: u64,
    pub(crate) key: u32,
}

impl Outgoing {
    /// A ring of `size` bytes, and `most` messages at a time.
    pub(crate) fn new(size: u32, most: u32) -> Outgoing {
        let target = Target::default();
        Outgoing { size, at: 0, used: 0, target, place: 1, sent: 0, granted: 0, under_way: 0, most }
    }

    /// The peer has introduced itself.
    pub(crate) fn begin(&mut self, credits: u16, target: Target) {
        self.granted = credits;
        self.target = target;
    }

    pub(crate) fn grant(&mut self, count: u16) {
        self.granted = count;
    }

    /// The place of the array to look at for another target.
    pub(crate) fn needs_target(&self) -> Option<u32> {
        (self.target.length == 0).then_some(self.place)
    }

    /// The target of that place: what is written there from now on is another one.
    pub(crate) fn take_target(&mut self, target: Target) {
        self.target = target;
        self.place = (self.place + 1) % TARGETS;
    }

    fn has_room(&self) -> bool {
        self.used < self.size && self.under_way < self.most
    }

    /// Whether a message that needs a credit may leave.
    pub(crate) fn has_credit(&self) -> bool {
        self.sent != self.granted && self.under_way < self.most
    }

    /// Whether at least one byte may leave.
    pub(crate) fn is_open(&self) -> bool {
        self.has_credit() && self.has_room() && self.target.length > 0
    }

    /// The next piece of at most `wanted` bytes, which does not reach beyond the end of the ring.
    /// [`Outgoing::sent`] follows if it was posted.
    pub(crate) fn piece(&self, wanted: usize) -> Option<Piece> {
        if !self.is_open() || wanted == 0 {
            return None;
        }
        let length = self.free_run(wanted).min(self.target.length);
        Some(Piece { at: self.at, length, to: self.target.address, key: self.target.key })
    }

    /// A piece for memory that the peer has mapped, `to` which it goes without a message.
    pub(crate) fn direct(&self, wanted: usize, to: u64, key: u32) -> Option<Piece> {
        let length = if self.has_room() { self.free_run(wanted) } else { 0 };
        (length > 0).then_some(Piece { at: self.at, length, to, key })
    }

    fn free_run(&self, wanted: usize) -> u32 {
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        wanted.min(LONGEST).min(self.size - self.used).min(self.size - self.at)
    }

    /// A piece was posted; with `message`, into the target.
    pub(crate) fn posted(&mut self, piece: Piece, message: bool) {
        self.at = (self.at + piece.length) % self.size;
        self.used += piece.length;
        self.under_way += 1;
        if message {
            self.sent = self.sent.wrapping_add(1);
            self.target.address = self.target.address.wrapping_add(piece.length.into());
            self.target.length -= piece.length;
        }
    }

    /// A message without bytes of the ring was posted.
    pub(crate) fn posted_mapping(&mut self) {
        self.sent = self.sent.wrapping_add(1);
        self.under_way += 1;
    }

    /// A Write has completed: `length` bytes of the ring are free again.
    pub(crate) fn completed(&mut self, length: u32) {
        self.under_way = self.under_way.saturating_sub(1);
        self.used = self.used.saturating_sub(length);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.under_way == 0
    }
}

/// Bytes that come: into a ring of this side's, which the peer is granted half by half.
#[derive(Debug)]
pub(crate) struct Incoming {
    size: u32,
    /// The next byte to be read.
    at: u32,
    /// Lengths of messages that have come and were not read wholly.
    messages: VecDeque<u32>,
    /// Bytes of those messages.
    here: usize,
    /// Bytes that were granted and have not come.
    open: u32,
    /// Bytes that were read since they were granted last, and where these begin.
    read: u32,
    grant_at: u32,
    /// Messages that were read, and at which count the next credits are due.
    taken: u16,
    due: u16,
    /// Messages that the peer may send ahead.
    depth: u16,
}

/// The next announcement to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The count of messages up to which it may send.
    pub(crate) count: u16,
    /// A piece of the ring that it may fill: where, and how long.
    pub(crate) target: Option<(u32, u32)>,
}

impl Incoming {
    /// A ring of `size` bytes, an even number, whose first half is granted, and `depth` messages.
    pub(crate) fn new(size: u32, depth: u16) -> Incoming {
        let half = size / 2;
        Incoming {
            size,
            at: 0,
            messages: VecDeque::with_capacity(depth.into()),
            here: 0,
            open: half,
            read: half,
            grant_at: half,
            taken: 0,
            due: depth / 2,
            depth,
        }
    }

    /// A message of data has come.
    pub(crate) fn arrived(&mut self, length: u32) -> Result<(), Violation> {
        if length > self.open || self.messages.len() >= self.depth.into() {
            return Err(Violation);
        }
        self.open -= length;
        self.here += length as usize;
        self.messages.push_back(length);
        Ok(())
    }

    /// A message without data has come that took a credit.
    pub(crate) fn arrived_mapping(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    /// Bytes that can be read.
    pub(crate) fn available(&self) -> usize {
        self.here
    }

    /// The bytes behind the first `skipped` that can be read in one piece: where, and how many.
    pub(crate) fn run(&self, skipped: usize) -> (u32, u32) {
        let skipped = skipped.min(self.here) as u32;
        let at = (self.at + skipped) % self.size;
        (at, (self.here as u32 - skipped).min(self.size - at))
    }

    /// Bytes were read.
    pub(crate) fn read(&mut self, count: u32) {
        let mut left = count.min(self.here as u32);
        self.here -= left as usize;
        self.read += left;
        self.at = (self.at + left) % self.size;
        while let Some(first) = self.messages.front_mut() {
            if *first > left {
                *first -= left;
                break;
            }
            left -= *first;
            self.messages.pop_front();
            self.taken = self.taken.wrapping_add(1);
            if left == 0 {
                break;
            }
        }
    }

    /// The announcement that is due. [`Incoming::granted`] follows if it was posted.
    pub(crate) fn grant(&self) -> Option<Grant> {
        let half = self.size / 2;
        let target = (self.read >= half).then_some((self.grant_at, half));
        let behind = self.taken.wrapping_sub(self.due).cast_signed() >= 0;
        let count = self.taken.wrapping_add(self.depth);
        (target.is_some() || behind).then_some(Grant { count, target })
    }

    pub(crate) fn granted(&mut self, grant: Grant) {
        self.due = self.taken.wrapping_add(self.depth / 2);
        if let Some((_, length)) = grant.target {
            self.read -= length;
            self.open += length;
            self.grant_at = (self.grant_at + length) % self.size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u32 = 1 << 10;
    const DEPTH: u16 = 8;

    /// Both directions of one stream without a network: what one grants the other gets at once.
    struct Pipe {
        out: Outgoing,
        into: Incoming,
        targets: [Target; 2],
        next: usize,
    }

    impl Pipe {
        fn new() -> Pipe {
            let mut out = Outgoing::new(SIZE, 100);
            out.begin(DEPTH, Target { address: 0, key: 7, length: SIZE / 2 });
            let targets = [Target::default(); 2];
            Pipe { out, into: Incoming::new(SIZE, DEPTH), targets, next: 1 }
        }

        fn send(&mut self, wanted: usize) -> Option<Piece> {
            if let Some(place) = self.out.needs_target() {
                let target = std::mem::take(&mut self.targets[place as usize]);
                if target.length > 0 {
                    self.out.take_target(target);
                }
            }
            let piece = self.out.piece(wanted)?;
            self.out.posted(piece, true);
            self.into.arrived(piece.length).unwrap();
            self.out.completed(piece.length);
            Some(piece)
        }

        fn grant(&mut self) {
            while let Some(grant) = self.into.grant() {
                self.into.granted(grant);
                self.out.grant(grant.count);
                if let Some((at, length)) = grant.target {
                    self.targets[self.next] = Target { address: at.into(), key: 7, length };
                    self.next = (self.next + 1) % 2;
                }
            }
        }
    }

    /// Every byte goes where the receiver reads it, over many turns of both rings and of the counts.
    #[test]
    fn v137_the_stream_keeps_its_order_through_rings_and_grants() {
        let mut pipe = Pipe::new();
        let (mut written, mut read, mut messages) = (0_u64, 0_u64, 0_u32);
        let mut seed = 1_u32;
        while messages < 200_000 {
            pipe.grant();
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let wanted = (seed >> 16) as usize % 300 + 1;
            while let Some(piece) = pipe.send(wanted) {
                // The ring of the receiver: its address 0 is its first byte.
                assert_eq!(piece.to, written % u64::from(SIZE));
                written += u64::from(piece.length);
                messages += 1;
            }
            while pipe.into.available() > 0 {
                let (at, run) = pipe.into.run(0);
                assert_eq!(u64::from(at), read % u64::from(SIZE));
                let some = run.min((seed >> 8) % 200 + 1);
                pipe.into.read(some);
                read += u64::from(some);
            }
            assert_eq!(read, written);
        }
    }

    #[test]
    fn v137_a_reader_that_reads_nothing_stops_its_writer() {
        let mut pipe = Pipe::new();
        let mut sent = 0;
        pipe.grant();
        while let Some(piece) = pipe.send(100) {
            sent += piece.length;
            pipe.grant();
        }
        assert!(sent <= SIZE && pipe.into.available() == sent as usize);
        let mut messages = Pipe::new();
        messages.grant();
        let small = std::iter::from_fn(|| messages.send(1)).count();
        assert_eq!(small, usize::from(DEPTH));
    }

    #[test]
    fn v137_what_the_peer_was_not_granted_is_a_violation() {
        let mut bytes = Incoming::new(SIZE, DEPTH);
        assert_eq!(bytes.arrived(SIZE / 2 + 1), Err(Violation));
        assert_eq!(bytes.arrived(SIZE / 2), Ok(()));
        assert_eq!(bytes.arrived(1), Err(Violation));
        let mut messages = Incoming::new(SIZE, DEPTH);
        for _ in 0..DEPTH {
            assert_eq!(messages.arrived(1), Ok(()));
        }
        assert_eq!(messages.arrived(1), Err(Violation));
    }

    #[test]
    fn v137_messages_without_bytes_are_read_with_those_before_them() {
        let mut into = Incoming::new(SIZE, DEPTH);
        for length in [0, 5, 0] {
            into.arrived(length).unwrap();
        }
        into.read(5);
        assert_eq!(into.available(), 0);
        assert!(into.messages.len() <= 1);
    }
}
