//! MPA frames (FPDUs): length, padding, CRC32c, and the markers a peer may ask for
//! (RFC 5044 4). Markers are only generated: this side never asks for any.

use crc_fast::CrcAlgorithm::Crc32Iscsi;

use crate::ddp::{Header, UNTAGGED};

/// Bytes of the length field.
pub const LENGTH: usize = 2;
/// Bytes of the checksum field, which is there even when no checksum was agreed.
pub const CRC: usize = 4;
/// The largest FPDU that can arrive: ULPDU_Length 65535 (iW F3).
pub const LARGEST: usize = size(65_535);
/// The longest ULPDU an RFC 5044 sender makes.
pub const RFC_ULPDU: usize = 64_768;
/// The shortest ULPDU that is a DDP segment: a tagged header.
pub const SHORTEST: usize = 14;

/// Bytes of an FPDU without markers, given its ULPDU's.
#[must_use]
pub const fn size(ulpdu: usize) -> usize {
    (LENGTH + ulpdu).next_multiple_of(4) + CRC
}

/// CRC32c as its bytes travel: least significant first (iW 3.4).
#[must_use]
pub fn crc(bytes: &[u8]) -> [u8; 4] {
    // The algorithm's value has 32 bits in a u64; its low bytes come first.
    let [a, b, c, d, ..] = crc_fast::checksum(Crc32Iscsi, bytes).to_le_bytes();
    [a, b, c, d]
}

/// The fault of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// ULPDU_Length is below the shortest header.
    Short(u16),
    /// The checksum does not match.
    Crc,
}

/// Reads the FPDU at the front of `bytes`: its ULPDU and its size. `Ok(None)`: more bytes are
/// needed. With `checksum`, nothing is returned before it was verified.
///
/// # Errors
/// [`Broken`]: the frame is shorter than any segment, or its checksum is wrong.
pub fn parse(bytes: &[u8], checksum: bool) -> Result<Option<(&[u8], usize)>, Broken> {
    let Some((&length, rest)) = bytes.split_first_chunk::<LENGTH>() else { return Ok(None) };
    let length = u16::from_be_bytes(length);
    let ulpdu = usize::from(length);
    if ulpdu < SHORTEST {
        return Err(Broken::Short(length));
    }
    let size = size(ulpdu);
    let Some((covered, sum)) = bytes.get(..size).and_then(<[u8]>::split_last_chunk::<CRC>) else {
        return Ok(None);
    };
    if checksum && crc(covered) != *sum {
        return Err(Broken::Crc);
    }
    Ok(rest.get(..ulpdu).map(|ulpdu| (ulpdu, size)))
}

/// Pads and closes the FPDU that begins at `start`. Without `checksum` the field holds zeros.
pub fn seal(out: &mut Vec<u8>, start: usize, checksum: bool) {
    let padded = start + out.len().saturating_sub(start).next_multiple_of(4);
    out.resize(padded, 0);
    let sum = if checksum { out.get(start..).map_or([0; 4], crc) } else { [0; 4] };
    out.extend_from_slice(&sum);
}

/// Bytes of the longest payload of a frame that is composed in one place, and moved once.
pub const SMALL: usize = 32;

/// Appends the FPDU of one segment, without markers.
#[inline(always)]
pub fn append(out: &mut Vec<u8>, header: &Header, payload: &[u8], checksum: bool) {
    if payload.len() > SMALL {
        return append_longer(out, header, payload, checksum);
    }
    let mut room = [0; size(UNTAGGED + SMALL)];
    let begin = LENGTH + header.as_ref().len();
    let end = begin + payload.len();
    room[..LENGTH].copy_from_slice(&((end - LENGTH) as u16).to_be_bytes());
    // The whole array: the payload goes over its unused rest, and a fixed size is one move.
    room[LENGTH..LENGTH + UNTAGGED].copy_from_slice(header.room());
    if let Some(place) = room.get_mut(begin..end) {
        place.copy_from_slice(payload);
    }
    let padded = end.next_multiple_of(4);
    if checksum && let Some((covered, [a, b, c, d, ..])) = room.split_at_mut_checked(padded) {
        [*a, *b, *c, *d] = crc(covered);
    }
    out.extend_from_slice(room.get(..padded + CRC).unwrap_or_default());
}

#[inline(never)]
fn append_longer(out: &mut Vec<u8>, header: &Header, payload: &[u8], checksum: bool) {
    let (start, header) = (out.len(), header.as_ref());
    let length = u16::try_from(header.len() + payload.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(header);
    out.extend_from_slice(payload);
    seal(out, start, checksum);
}

/// Bytes between markers, in the stream as it travels.
const SPACING: usize = 512;
/// Bytes of a marker.
const MARKER: usize = 4;

/// Position of the next outbound byte since the first FPDU, markers counted, modulo 512.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Markers {
    position: usize,
}

impl Markers {
    /// Pads and closes the FPDU that begins at `start`, with the markers that fall into it.
    ///
    /// A marker lies in front of every 512th byte, first of all in front of the first FPDU; it
    /// holds the distance back to the FPDU's length field, 0 if it precedes it, and is covered by
    /// the FPDU's checksum. All units are multiples of four, so none is ever split (RFC 5044 4.3).
    pub fn seal(&mut self, out: &mut Vec<u8>, start: usize, checksum: bool) {
        let data = out.len().saturating_sub(start).next_multiple_of(4);
        let gap = (SPACING - self.position) % SPACING;
        let apart = SPACING - MARKER;
        let count = if gap <= data { 1 + (data - gap) / apart } else { 0 };
        out.resize(start + data + count * MARKER, 0);
        let leading = if gap == 0 { MARKER } else { 0 };
        // From the back, so that every piece moves once into room already made.
        for marker in (0..count).rev() {
            let from = gap + marker * apart;
            let to = (from + apart).min(data);
            let shifted = from + marker * MARKER;
            out.copy_within(start + from..start + to, start + shifted + MARKER);
            let back = u16::try_from(shifted.saturating_sub(leading)).unwrap_or(0).to_be_bytes();
            if let Some(room) = out.get_mut(start + shifted..start + shifted + MARKER) {
                room.copy_from_slice(&[0, 0, back[0], back[1]]);
            }
        }
        let sum = if checksum { out.get(start..).map_or([0; 4], crc) } else { [0; 4] };
        out.extend_from_slice(&sum);
        self.position = (self.position + data + count * MARKER + CRC) % SPACING;
    }
}
