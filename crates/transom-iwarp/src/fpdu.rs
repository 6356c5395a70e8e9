//! MPA frames (FPDUs): length, padding, CRC32c, and the markers a peer may ask for
//! (RFC 5044 4). Markers are only generated: this side never asks for any.

use crc_fast::CrcAlgorithm::Crc32Iscsi;

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

/// Bytes behind a ULPDU of so many, without markers: padding and checksum.
#[must_use]
#[inline]
pub const fn behind(ulpdu: usize) -> usize {
    size(ulpdu) - LENGTH - ulpdu
}

/// Pads and closes the FPDU that begins at `start`. Without `checksum` the field holds zeros.
pub fn seal(out: &mut Vec<u8>, start: usize, checksum: bool) {
    let filled = out.len().saturating_sub(start);
    out.resize(start + filled.next_multiple_of(4) + CRC, 0);
    close(out.get_mut(start..).unwrap_or_default(), checksum);
}

/// Closes an FPDU, whose padding is there. Without `checksum` the field holds zeros.
#[inline]
pub fn close(fpdu: &mut [u8], checksum: bool) {
    if let Some((covered, sum)) = fpdu.split_last_chunk_mut::<CRC>() {
        *sum = if checksum { crc(covered) } else { [0; 4] };
    }
}

/// Fills in what is around the payload of an FPDU: length field, header, padding and checksum.
#[inline]
pub fn surround(fpdu: &mut [u8], header: &[u8], payload: usize, checksum: bool) {
    let begin = LENGTH + header.len();
    let end = begin + payload;
    if let Some((length, rest)) = fpdu.split_first_chunk_mut::<LENGTH>() {
        *length = ((end - LENGTH) as u16).to_be_bytes();
        if let Some(room) = rest.get_mut(..header.len()) {
            room.copy_from_slice(header);
        }
    }
    if let Some(padding) = fpdu.get_mut(end..) {
        padding.fill(0);
    }
    close(fpdu, checksum);
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
    /// Bytes behind the payload of an FPDU whose length field, header and payload are so many: padding,
    /// markers and checksum.
    #[must_use]
    pub fn behind(&self, filled: usize) -> usize {
        let data = filled.next_multiple_of(4);
        data - filled + self.count(data) * MARKER + CRC
    }

    /// How many markers fall into so many bytes.
    fn count(&self, data: usize) -> usize {
        let gap = self.gap();
        if gap <= data { 1 + (data - gap) / (SPACING - MARKER) } else { 0 }
    }

    /// Bytes up to the next marker.
    fn gap(&self) -> usize {
        (SPACING - self.position) % SPACING
    }

    /// Closes an FPDU of whose bytes the first `filled` are there, and the others as many as are
    /// [behind](Markers::behind) them, with the markers that fall into it.
    ///
    /// A marker lies in front of every 512th byte, first of all in front of the first FPDU; it
    /// holds the distance back to the FPDU's length field, 0 if it precedes it, and is covered by
    /// the FPDU's checksum. All units are multiples of four, so none is ever split (RFC 5044 4.3).
    pub fn seal(&mut self, fpdu: &mut [u8], filled: usize, checksum: bool) {
        let data = filled.next_multiple_of(4);
        let (gap, count, apart) = (self.gap(), self.count(data), SPACING - MARKER);
        if let Some(behind) = fpdu.get_mut(filled..) {
            behind.fill(0);
        }
        let leading = if gap == 0 { MARKER } else { 0 };
        // From the back, so that every piece moves once into room already made.
        for marker in (0..count).rev() {
            let from = gap + marker * apart;
            let to = (from + apart).min(data);
            let shifted = from + marker * MARKER;
            if shifted + MARKER + (to - from) <= fpdu.len() {
                fpdu.copy_within(from..to, shifted + MARKER);
            }
            let back = u16::try_from(shifted.saturating_sub(leading)).unwrap_or(0).to_be_bytes();
            if let Some(room) = fpdu.get_mut(shifted..shifted + MARKER) {
                room.copy_from_slice(&[0, 0, back[0], back[1]]);
            }
        }
        close(fpdu, checksum);
        self.position = (self.position + data + count * MARKER + CRC) % SPACING;
    }
}
