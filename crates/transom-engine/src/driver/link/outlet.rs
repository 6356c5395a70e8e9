//! The outgoing side of a TCP link, as its connection sees it during one call: frames are collected and written
//! at once, or large ones from where their payload lies.

use transom_memory::Segment;
use transom_wire::{Around, Buffer, Direct, Room};

use super::Link;
use super::carrier::Tcp;
use crate::HostMemory;
use crate::sys::{Host, IoError};

/// Payloads from this size on are written from where they lie, when nothing in the frame depends
/// on them: below, a copy is cheaper than a call.
const DIRECT: usize = 8 * 1024;

/// A link's outgoing side for one call of [`Connection::transmit`](crate::Connection::transmit).
pub(super) struct Outlet<'a> {
    pub(super) link: &'a Link,
    /// Frames that the socket has not taken, and how much of them it has.
    pub(super) out: &'a mut Buffer,
    pub(super) written: &'a mut usize,
    /// The socket waits for more before it sends a segment.
    pub(super) corked: &'a mut bool,
    /// Bytes that may leave before others have their turn, and bytes that have left.
    pub(super) budget: usize,
    pub(super) sent: usize,
    /// The socket has taken everything so far.
    pub(super) flowing: bool,
    /// Nothing further may begin.
    pub(super) stop: bool,
}

impl transom_wire::Carrier for Outlet<'_> {
    #[inline]
    fn room(&self) -> usize {
        // Bytes written straight from memory count as if they were in the buffer, so that a pass
        // ends.
        if self.stop || self.sent >= self.budget { 0 } else { self.out.room() }
    }

    #[inline]
    fn takes(&self, _length: usize) -> bool {
        self.room() > 0
    }

    #[inline]
    fn reserve(&mut self, around: Around, length: usize) -> Room<'_> {
        self.out.reserve(around, length)
    }

    fn put(&mut self, payload: &[u8]) {
        self.out.put(payload);
    }

    #[inline]
    fn frame(&mut self) -> &mut [u8] {
        self.out.frame()
    }

    #[inline]
    fn commit(&mut self) {
        self.out.commit();
    }

    fn release(&mut self) {
        self.out.release();
    }

    #[inline]
    fn wants_lend(&self, length: usize) -> bool {
        length >= DIRECT && self.flowing
    }

    fn wants_sink(&self, _length: u64) -> bool {
        false
    }

    fn lend_sink(&mut self, _header: &[u8], _sink: Segment) -> bool {
        false
    }

    fn lend(&mut self, header: &[u8], payload: &[Segment], trailer: &[u8]) -> Direct {
        let before = self.out.bytes.get(*self.written..).unwrap_or_default();
        let waiting = before.len();
        let size: u64 = payload.iter().map(|segment| segment.length).sum();
        let frame = header.len() + usize::try_from(size).unwrap_or(usize::MAX) + trailer.len();
        let parts = [before, header, trailer];
        let taken = match Host.send(&self.link.stream, parts, payload) {
            Ok(taken) => taken,
            Err(IoError::Fault) => return Direct::Fault,
            // Full, or broken: that comes up again when the buffer is written.
            Err(_) => {
                self.flowing = false;
                return Direct::Copy;
            }
        };
        self.sent += taken;
        *self.corked = true;
        if taken < waiting {
            *self.written += taken;
            self.flowing = false;
            return Direct::Copy;
        }
        self.out.bytes.clear();
        *self.written = 0;
        let part = taken - waiting;
        if part == frame {
            return Direct::Taken;
        }
        // The rest is copied now: the memory may be touched during this call only.
        self.flowing = false;
        self.keep_rest(part, header, payload, trailer, frame)
    }
}

impl<'a> Outlet<'a> {
    /// An output into the socket, which takes at most `budget` bytes.
    #[inline]
    pub(super) fn new(
        link: &'a Link,
        (out, written): (&'a mut Buffer, &'a mut usize),
        tcp: &'a mut Tcp,
        budget: usize,
    ) -> Outlet<'a> {
        let (sent, flowing, stop) = (0, true, false);
        Outlet { link, out, written, corked: &mut tcp.corked, budget, sent, flowing, stop }
    }

    /// Write the buffer. What is left, because the socket is full or broken, is for a pass.
    #[inline]
    pub(super) fn write(self) {
        let rest = self.out.bytes.get(*self.written..).unwrap_or_default();
        if rest.is_empty() {
            return;
        }
        match self.link.stream.send(rest) {
            Ok(count) if count == rest.len() => {
                self.out.bytes.clear();
                (*self.written, *self.corked) = (0, false);
            }
            Ok(count) => *self.written += count,
            Err(_) => {}
        }
    }
}

impl Outlet<'_> {
    fn keep_rest(
        &mut self,
        part: usize,
        header: &[u8],
        payload: &[Segment],
        trailer: &[u8],
        frame: usize,
    ) -> Direct {
        let bytes = &mut self.out.bytes;
        bytes.extend_from_slice(header.get(part..).unwrap_or_default());
        let mut skip = part.saturating_sub(header.len()) as u64;
        for segment in payload {
            let gone = skip.min(segment.length);
            skip -= gone;
            let left = usize::try_from(segment.length - gone).unwrap_or(0);
            if left > 0 && Host.append(segment.host + gone, left, bytes).is_err() {
                bytes.clear();
                return if part == 0 { Direct::Fault } else { Direct::Torn };
            }
        }
        let of_trailer = part.saturating_sub(frame - trailer.len());
        bytes.extend_from_slice(trailer.get(of_trailer..).unwrap_or_default());
        Direct::Taken
    }
}
