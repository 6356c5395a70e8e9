//! Frames that a wire wants written.

use crate::{MessageId, ReadSlot};

/// Room for the largest header that any wire puts in front of a payload, and for the largest frame
/// that has no payload of the engine's (a start-up frame is larger and travels in pieces). Frames
/// are passed by value, so it is not larger than a Terminate (72 bytes) asks for.
pub const MAX_HEADER: usize = 80;

/// The kind of frames that a wire has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// Start-up frames of MPA, then FPDUs, one behind the other in a stream of bytes.
    Fpdus,
    /// Records of rings in shared memory.
    Records,
}

/// Frames that have come, one behind the other. They are read where they are: to move one that has just been
/// stored in other pieces is to wait for the stores.
pub trait Frames {
    /// Bytes that begin with the next frame. `None`: there is none, for now.
    fn next(&mut self) -> Option<&[u8]>;

    /// The caller has taken `bytes` bytes of what [`next`](Frames::next) returned.
    fn taken(&mut self, bytes: usize);

    /// Bytes that are kept for as long as none is taken.
    fn waiting(&self) -> usize {
        0
    }
}

/// A stretch of a stream.
impl Frames for &[u8] {
    #[inline]
    fn next(&mut self) -> Option<&[u8]> {
        (!self.is_empty()).then_some(*self)
    }

    #[inline]
    fn taken(&mut self, bytes: usize) {
        *self = self.get(bytes..).unwrap_or_default();
    }

    fn waiting(&self) -> usize {
        self.len()
    }
}

/// A frame to write: header bytes, then `length` bytes of payload, then what
/// [`Sending::seal`](crate::Sending::seal) adds.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Header; the first `header_length` bytes count.
    pub header: [u8; MAX_HEADER],
    /// Bytes of `header` in use.
    pub header_length: u8,
    /// Where the payload comes from.
    pub payload: Payload,
    /// Bytes of payload.
    pub length: u32,
    /// Bytes behind the payload.
    pub back: u16,
    /// The frame needs [`Sending::seal`](crate::Sending::seal); start-up frames do not.
    pub sealed: bool,
    /// The message (or the answer to a read) that `payload` names is complete with this frame;
    /// `false` where it names none. A message without bytes has one frame, of length 0.
    pub last: bool,
}

/// Where a frame's payload comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// The frame has none and belongs to no message: start-up, acknowledgements, errors.
    None,
    /// Bytes of a message of ours, from `offset` on.
    Message {
        /// Which.
        id: MessageId,
        /// First byte of this frame's payload in it.
        offset: u32,
    },
    /// Bytes of our memory that the peer reads: to be checked anew for each frame.
    Memory {
        /// Which of the peer's reads.
        slot: ReadSlot,
        /// Token the peer named.
        token: u32,
        /// First byte of this frame's payload.
        address: u64,
    },
}

impl Frame {
    /// The header bytes in use.
    #[must_use]
    #[inline]
    pub fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_length).min(MAX_HEADER)]
    }
}

/// Up to 8 bytes behind a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// The bytes; the first `length` count.
    pub bytes: [u8; 8],
    /// Bytes in use.
    pub length: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_of_a_stream_is_taken_piece_by_piece() {
        let mut stretch: &[u8] = b"abcde";
        for (rest, taken) in [(&b"abcde"[..], 2), (b"cde", 3)] {
            assert_eq!(Frames::next(&mut stretch), Some(rest));
            assert_eq!(stretch.waiting(), rest.len());
            stretch.taken(taken);
        }
        assert_eq!(Frames::next(&mut stretch), None);
        assert_eq!(stretch.waiting(), 0);
    }
}
