//! Frames of iWARP as far as a capture looks into them: which bytes make a frame, and what is kept of
//! one whose payload is too long.
//!
//! Dissectors look at a frame's end before its headers, so a packet that is merely cut short says
//! nothing. What is kept becomes a frame again, with a length and a checksum of its own.

use transom_iwarp::ddp::{Segment, TAGGED};
use transom_iwarp::fpdu::{self, CRC, LENGTH};
use transom_iwarp::mpa::{FrameKind, MARKERS, QUESTION, StartUp};
use transom_iwarp::rdmap::{self, Opcode};

/// The part of a frame that is kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Whole,
    /// A shorter frame.
    Cut(Vec<u8>),
    /// The first bytes, so many, of what is no frame, or none that can be made shorter.
    Truncated(usize),
}

/// The part of a frame that is kept if no more than `limit` bytes of its payload are to be.
pub(crate) fn keep(frame: &[u8], limit: usize) -> Kept {
    let truncated = || {
        let kept = limit.saturating_add(LENGTH);
        if kept < frame.len() { Kept::Truncated(kept) } else { Kept::Whole }
    };
    let Ok(Some((ulpdu, size))) = fpdu::parse(frame, false) else { return truncated() };
    let Some(segment) = Segment::parse(ulpdu).filter(|_| size == frame.len()) else {
        return truncated();
    };
    let own = matches!(
        rdmap::opcode(segment.control),
        Some(Opcode::ReadRequest | Opcode::Terminate | Opcode::Experimental)
    );
    if own || segment.payload.len() <= limit {
        return Kept::Whole;
    }
    let checksum = match fpdu::parse(frame, true) {
        Ok(_) => true,
        Err(_) if frame.ends_with(&[0; CRC]) => false,
        Err(_) => return truncated(), // a wrong checksum is not to become a right one
    };
    let ulpdu = ulpdu.get(..ulpdu.len() - segment.payload.len() + limit).unwrap_or(ulpdu);
    let mut cut = Vec::with_capacity(fpdu::size(ulpdu.len()));
    cut.extend_from_slice(&u16::try_from(ulpdu.len()).unwrap_or(u16::MAX).to_be_bytes());
    cut.extend_from_slice(ulpdu);
    fpdu::seal(&mut cut, 0, checksum);
    Kept::Cut(cut)
}

/// Bytes to keep of a frame where the peer asked for markers: they lie at fixed places of the stream, so a
/// frame cannot be made shorter.
pub(crate) fn keep_among_markers(frame: &[u8], limit: usize) -> Kept {
    let kept = (LENGTH + TAGGED).saturating_add(limit);
    if kept < frame.len() { Kept::Truncated(kept) } else { Kept::Whole }
}

/// Bytes to keep of a start-up frame, whose private data is the program's.
pub(crate) fn keep_of_start_up(frame: &[u8], limit: usize) -> Kept {
    if *frame == QUESTION {
        return Kept::Whole;
    }
    let Some((parsed, _)) = start_up(frame) else { return Kept::Truncated(limit) };
    match parsed.private.get(..limit) {
        Some(private) if private.len() < parsed.private.len() => {
            let mut cut = Vec::new();
            StartUp { private, ..parsed }.write(&mut cut);
            Kept::Cut(cut)
        }
        _ => Kept::Whole,
    }
}

/// A start-up frame at the front of `bytes`, of either kind.
pub(crate) fn start_up(bytes: &[u8]) -> Option<(StartUp<'_>, usize)> {
    [FrameKind::Request, FrameKind::Reply]
        .into_iter()
        .find_map(|kind| StartUp::parse(bytes, kind).ok().flatten())
}

/// Bytes that may become a start-up frame, and are none yet.
pub(crate) fn is_start_up_begun(bytes: &[u8]) -> bool {
    [FrameKind::Request, FrameKind::Reply]
        .into_iter()
        .any(|kind| matches!(StartUp::parse(bytes, kind), Ok(None)))
}

/// Bytes that may become a frame, and are none yet.
pub(crate) fn is_begun(bytes: &[u8]) -> bool {
    matches!(fpdu::parse(bytes, false), Ok(None))
}

/// The sender of this start-up frame wants markers in what it receives.
pub(crate) fn wants_markers(frame: &[u8]) -> bool {
    start_up(frame).is_some_and(|(frame, _)| frame.has(MARKERS))
}
