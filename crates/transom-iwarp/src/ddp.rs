//! DDP segments (RFC 5041 4): fourteen or eighteen bytes in front of every payload.

/// Bytes of a tagged header.
pub const TAGGED: usize = 14;
/// Bytes of an untagged header.
pub const UNTAGGED: usize = 18;
/// The only version there is.
pub const VERSION: u8 = 1;

const TAGGED_BIT: u8 = 0x80;
const LAST_BIT: u8 = 0x40;

/// The first byte of a segment. `bits`: the version, and reserved ones.
pub(crate) const fn first(bits: u8, last: bool, tagged: bool) -> u8 {
    let last = if last { LAST_BIT } else { 0 };
    let tagged = if tagged { TAGGED_BIT } else { 0 };
    bits | last | tagged
}

/// Where a segment's payload belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// In memory the receiver has advertised.
    Tagged {
        /// Token.
        stag: u32,
        /// Offset of the payload's first byte (TO).
        offset: u64,
    },
    /// In a buffer the receiver has queued.
    Untagged {
        /// Four bytes that belong to the layer above: the token to invalidate, if any.
        ulp: u32,
        /// Queue number (QN).
        queue: u32,
        /// Message sequence number (MSN).
        number: u32,
        /// Offset of the payload in the message (MO).
        offset: u32,
    },
}

/// A DDP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'b> {
    /// First byte without the tagged and last bits: reserved bits and version.
    pub bits: u8,
    /// The message ends here (L).
    pub last: bool,
    /// The byte that belongs to RDMAP.
    pub control: u8,
    /// Where the payload belongs.
    pub target: Target,
    /// The rest.
    pub payload: &'b [u8],
}

impl<'b> Segment<'b> {
    /// Reads a segment. `None`: too short for its header.
    #[must_use]
    pub fn parse(ulpdu: &'b [u8]) -> Option<Segment<'b>> {
        let (&[first, control, a, b, c, d], rest) = ulpdu.split_first_chunk::<6>()?;
        let word = u32::from_be_bytes([a, b, c, d]);
        let (target, payload) = if first & TAGGED_BIT != 0 {
            let (&offset, payload) = rest.split_first_chunk::<8>()?;
            (Target::Tagged { stag: word, offset: u64::from_be_bytes(offset) }, payload)
        } else {
            let (&queue, rest) = rest.split_first_chunk::<4>()?;
            let (&number, rest) = rest.split_first_chunk::<4>()?;
            let (&offset, payload) = rest.split_first_chunk::<4>()?;
            let target = Target::Untagged {
                ulp: word,
                queue: u32::from_be_bytes(queue),
                number: u32::from_be_bytes(number),
                offset: u32::from_be_bytes(offset),
            };
            (target, payload)
        };
        let bits = first & !(TAGGED_BIT | LAST_BIT);
        Some(Segment { bits, last: first & LAST_BIT != 0, control, target, payload })
    }

    /// The version it claims.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.bits & 0x03
    }

    /// Writes the header, without the payload.
    #[must_use]
    #[inline]
    pub fn header(&self) -> Header {
        let mut bytes = [0; UNTAGGED];
        let (word, tagged) = match self.target {
            Target::Tagged { stag, offset } => {
                bytes[6..14].copy_from_slice(&offset.to_be_bytes());
                (stag, true)
            }
            Target::Untagged { ulp, queue, number, offset } => {
                bytes[6..10].copy_from_slice(&queue.to_be_bytes());
                bytes[10..14].copy_from_slice(&number.to_be_bytes());
                bytes[14..18].copy_from_slice(&offset.to_be_bytes());
                (ulp, false)
            }
        };
        bytes[0] = first(self.bits, self.last, tagged);
        bytes[1] = self.control;
        bytes[2..6].copy_from_slice(&word.to_be_bytes());
        Header { bytes, length: if tagged { TAGGED } else { UNTAGGED } }
    }
}

/// A header as it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    bytes: [u8; UNTAGGED],
    length: usize,
}

impl Header {
    /// The bytes and the unused rest, which is zero.
    pub(crate) fn room(&self) -> &[u8; UNTAGGED] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Header {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
