//! The outgoing side of a link, as a connection sees it.
//!
//! A frame goes out in four steps: a place for it is reserved, its payload is copied there under the grant of
//! the check that permits it, the wire fills in what is around the payload, and the frame is committed. A
//! payload that could not be read ends that before the wire has said anything.

use transom_memory::Segment;

/// Bytes of a frame that are not payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// In front of the payload.
    pub front: usize,
    /// Behind it.
    pub back: usize,
}

/// The place of a payload.
#[derive(Debug)]
pub enum Room<'a> {
    /// In these bytes, all of them.
    Here(&'a mut [u8]),
    /// Behind these bytes.
    Behind(&'a mut Vec<u8>),
    /// In memory that is shared with the peer, from this address on.
    Shared(u64),
}

/// The fate of a frame that was offered without a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direct {
    /// The frame is on its way: the link has copied what it could not take at once.
    Taken,
    /// Nothing was done: reserve a place for it.
    Copy,
    /// The pages are gone, nothing was sent: as a failed copy.
    Fault,
    /// The pages are gone and part of the frame has been sent: the link must be cut.
    Torn,
}

/// Carries the frames of one link to its peer.
pub trait Carrier {
    /// Bytes that may still be queued; 0 ends the pass. There is always a place for the frame that follows a
    /// number above 0, and for the rest of one that has begun, however long they are.
    fn room(&self) -> usize;

    /// Whether there is a place for a frame with so much payload, behind everything before.
    fn takes(&self, length: usize) -> bool;

    /// Reserve the place of a frame with `length` bytes of payload, which is copied to what this returns.
    fn reserve(&mut self, around: Around, length: usize) -> Room<'_>;

    /// Copy the payload of the reserved frame from bytes of this side's own.
    fn put(&mut self, payload: &[u8]);

    /// The reserved frame, for the wire to complete: the bytes around its payload, and the payload between
    /// them, unless that is [shared](Room::Shared) with the peer.
    fn frame(&mut self) -> &mut [u8];

    /// The reserved frame is complete, and goes to the peer.
    fn commit(&mut self);

    /// The reserved frame does not come.
    fn release(&mut self);

    /// Whether a payload of so many bytes is worth offering to [`lend`](Carrier::lend).
    fn wants_lend(&self, length: usize) -> bool;

    /// Take a frame whose payload lies in the application's memory, without a copy of this side's in between.
    /// Must not block; what does not fit is copied before this returns, because the segments may be touched
    /// during this call only.
    fn lend(&mut self, header: &[u8], payload: &[Segment], trailer: &[u8]) -> Direct;

    /// Whether the sink of a Read of so many bytes is worth naming to [`lend_sink`](Carrier::lend_sink).
    fn wants_sink(&self, length: u64) -> bool;

    /// Take the frame of a Read whose answer the peer may copy to its sink by itself: all of it lies at
    /// `sink`. `false`: nothing was done; reserve a place for it.
    fn lend_sink(&mut self, header: &[u8], sink: Segment) -> bool;
}

/// Bytes of a frame that is composed in one place, and moved once.
const SMALL: usize = 128;

/// A plain buffer with a limit.
#[derive(Debug)]
pub struct Buffer {
    /// The bytes. Behind those that were committed there may be a reserved frame.
    pub bytes: Vec<u8>,
    /// How many may wait.
    pub limit: usize,
    /// A reserved frame that is small, and its bytes: 0, if it is none.
    small: [u8; SMALL],
    used: usize,
    /// Where the payload of a small frame goes on.
    at: usize,
    /// Where any other reserved frame begins, and how many bytes it has behind its payload.
    reserved: (usize, usize),
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::new(0)
    }
}

impl Buffer {
    /// An empty one, in which so many bytes may wait.
    #[must_use]
    pub fn new(limit: usize) -> Buffer {
        let (bytes, small, used, at) = (Vec::new(), [0; SMALL], 0, 0);
        Buffer { bytes, limit, small, used, at, reserved: (0, 0) }
    }
}

impl Carrier for Buffer {
    #[inline]
    fn room(&self) -> usize {
        self.limit.saturating_sub(self.bytes.len())
    }

    #[inline]
    fn takes(&self, _length: usize) -> bool {
        self.room() > 0
    }

    #[inline]
    fn reserve(&mut self, around: Around, length: usize) -> Room<'_> {
        let end = around.front + length;
        (self.used, self.at) = (end + around.back, around.front);
        if self.used <= SMALL
            && let Some(room) = self.small.get_mut(around.front..end)
        {
            return Room::Here(room);
        }
        let start = self.bytes.len();
        (self.used, self.reserved) = (0, (start, around.back));
        self.bytes.resize(start + around.front, 0);
        Room::Behind(&mut self.bytes)
    }

    fn put(&mut self, payload: &[u8]) {
        if self.used == 0 {
            return self.bytes.extend_from_slice(payload);
        }
        if let Some(room) = self.small.get_mut(self.at..self.at + payload.len()) {
            room.copy_from_slice(payload);
        }
        self.at += payload.len();
    }

    #[inline]
    fn frame(&mut self) -> &mut [u8] {
        if self.used > 0 {
            return self.small.get_mut(..self.used).unwrap_or_default();
        }
        let (start, back) = (self.reserved.0, std::mem::take(&mut self.reserved.1));
        self.bytes.resize(self.bytes.len() + back, 0);
        self.bytes.get_mut(start..).unwrap_or_default()
    }

    #[inline]
    fn commit(&mut self) {
        let small = self.small.get(..std::mem::take(&mut self.used)).unwrap_or_default();
        self.bytes.extend_from_slice(small);
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.used) == 0 {
            self.bytes.truncate(self.reserved.0);
        }
    }

    #[inline]
    fn wants_lend(&self, _length: usize) -> bool {
        false
    }

    fn lend(&mut self, _header: &[u8], _payload: &[Segment], _trailer: &[u8]) -> Direct {
        Direct::Copy
    }

    #[inline]
    fn wants_sink(&self, _length: u64) -> bool {
        false
    }

    fn lend_sink(&mut self, _header: &[u8], _sink: Segment) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AROUND: Around = Around { front: 2, back: 1 };

    /// Reserve a frame of this payload, put it there in two pieces, fill in what is around it.
    fn compose(out: &mut Buffer, payload: &[u8]) {
        let _ = out.reserve(AROUND, payload.len());
        let (first, second) = payload.split_at(payload.len() / 2);
        out.put(first);
        out.put(second);
        let frame = out.frame();
        assert_eq!(frame.len(), 2 + payload.len() + 1);
        frame[..2].copy_from_slice(b"<<");
        *frame.last_mut().unwrap_or(&mut 0) = b'>';
    }

    /// A small frame is composed apart and a larger one in its place; committed, both stand there whole.
    #[test]
    fn a_frame_is_there_when_it_is_committed_and_not_before() {
        for length in [0, 1, SMALL - 3, SMALL - 2, 300] {
            let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let expected = [b"<<", &payload[..], b">"].concat();
            let mut out = Buffer::new(1000);
            compose(&mut out, &payload);
            out.commit();
            assert_eq!(out.bytes, expected, "{length}");
            compose(&mut out, &payload);
            out.release();
            assert_eq!(out.bytes, expected, "{length}: nothing of it comes");
            compose(&mut out, &payload);
            out.commit();
            assert_eq!(out.bytes, [&expected[..], &expected[..]].concat(), "{length}");
        }
    }

    /// A place is written to directly, too.
    #[test]
    fn a_reserved_place_is_the_payloads() {
        let mut out = Buffer::new(1000);
        match out.reserve(AROUND, 3) {
            Room::Here(room) => room.copy_from_slice(b"abc"),
            room => panic!("{room:?}"),
        }
        assert_eq!(out.frame().get(2..5), Some(&b"abc"[..]));
        out.release();
        match out.reserve(AROUND, 200) {
            Room::Behind(bytes) => bytes.extend_from_slice(&[7; 200]),
            room => panic!("{room:?}"),
        }
        assert_eq!(out.frame().get(2..203), Some(&[[7; 200].as_slice(), &[0]].concat()[..]));
    }

    #[test]
    fn as_many_bytes_wait_as_the_limit_says() {
        let mut out = Buffer::new(7);
        assert!(out.room() == 7 && out.takes(100), "the last frame may be of any length");
        compose(&mut out, b"abc");
        out.commit();
        assert!(out.room() == 1 && out.takes(100));
        compose(&mut out, b"");
        out.commit();
        assert!(out.room() == 0 && !out.takes(0));
    }

    /// All that a buffer holds has been copied.
    #[test]
    fn a_buffer_takes_nothing_from_where_it_lies() {
        let mut out = Buffer::new(1000);
        let segment = Segment { host: 0, length: 500 };
        assert!(!out.wants_lend(1 << 20) && !out.wants_sink(1 << 20));
        assert_eq!(out.lend(b"<<", &[segment], b">"), Direct::Copy);
        assert!(!out.lend_sink(b"<<", segment) && out.bytes.is_empty());
    }
}
