//! Where frames go.

use transom_memory::Segment;
use transom_wire::{Message, MessageId, Time, Wire};

use crate::SMALL;

/// The fate of a frame that was offered without a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direct {
    /// The frame is on its way: what the link did not take at once was copied behind the buffer.
    Taken,
    /// Nothing was done: copy it into the buffer.
    Copy,
    /// The pages are gone, nothing was sent: as a failed copy.
    Fault,
    /// The pages are gone and part of the frame has been sent: the link must be cut.
    Torn,
}

/// A link's outgoing side, as [`Connection::transmit`](crate::Connection::transmit) sees it.
pub trait Output {
    /// Bytes that may still be queued; 0 ends the pass. A frame that has begun is always finished,
    /// so a buffer may grow by one frame beyond it.
    fn room(&self) -> usize;

    /// Bytes waiting to be written, in order. Frames are appended.
    fn buffer(&mut self) -> &mut Vec<u8>;

    /// Whether a payload of so many bytes is worth offering to [`direct`](Output::direct).
    fn wants_direct(&self, length: usize) -> bool {
        let _ = length;
        false
    }

    /// Whether a message of so many bytes can be written as one frame now, behind what was written:
    /// by [`whole`](Output::whole), or by [`lend_whole`](Output::lend_whole) if its bytes lie in memory.
    fn takes(&self, length: usize) -> bool {
        let _ = length;
        false
    }

    /// Have `wire` begin a message of as many bytes as this output [takes](Output::takes), and write its
    /// one frame. `false`: nothing has happened.
    #[inline]
    fn whole(
        &mut self,
        (wire, now): (&mut dyn Wire, Time),
        id: MessageId,
        message: &Message,
        payload: &[u8],
    ) -> bool {
        wire.append_whole(now, id, message, payload, self.buffer())
    }

    /// As [`whole`](Output::whole), for bytes of the application's memory, which may be touched during this call
    /// only: they are copied before the message begins. [`Direct::Copy`] and [`Direct::Fault`]: it has not begun.
    fn lend_whole(
        &mut self,
        link: (&mut dyn Wire, Time),
        id: MessageId,
        message: &Message,
        payload: &[Segment],
    ) -> Direct {
        let _ = (link, id, message, payload);
        Direct::Copy
    }

    /// Whether the sink of a Read of so many bytes is worth naming to [`request`](Output::request).
    fn wants_sink(&self, length: u64) -> bool {
        let _ = length;
        false
    }

    /// Write the frame of a Read, behind what waits, whose answer the peer may copy to its sink by itself: all
    /// of it lies at `sink`. `false`: nothing was done; copy the frame into the buffer.
    fn request(&mut self, header: &[u8], sink: Segment) -> bool {
        let _ = (header, sink);
        false
    }

    /// Write a frame straight from the application's memory: the buffer first, then `header`, the
    /// segments, `trailer`. Must not block; what does not fit is copied into the buffer before it
    /// returns, because the segments may be touched during this call only.
    fn direct(&mut self, header: &[u8], payload: &[Segment], trailer: &[u8]) -> Direct {
        let _ = (header, payload, trailer);
        Direct::Copy
    }
}

/// A plain buffer with a limit.
#[derive(Debug, Default)]
pub struct Buffer {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// How many may wait.
    pub limit: usize,
}

impl Output for Buffer {
    fn room(&self) -> usize {
        self.limit.saturating_sub(self.bytes.len())
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    fn takes(&self, length: usize) -> bool {
        length <= self.room().min(SMALL)
    }
}
