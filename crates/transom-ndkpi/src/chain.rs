//! From a chain of MDLs to the list of segments that a registration covers (NDK 11.1).
//!
//! The first MDL's virtual address names the region's first byte and nothing more: no byte is
//! reached through it (MR-6). The bytes lie in the pages that the MDLs list.

use crate::Status;
use transom_memory::Segment;

/// Bytes of a page (`PAGE_SIZE`).
pub const PAGE_SIZE: u64 = 4096;

/// A chain with more empty MDLs in a row than this is taken for a ring.
const MOST_EMPTY: usize = 4096;

/// One MDL, copied out of its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// `StartVa + ByteOffset`.
    pub virtual_address: u64,
    /// `ByteCount`.
    pub byte_count: u32,
    /// Address of each page that it spans.
    pub pages: Vec<u64>,
}

/// What a registration covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Address of byte 0 as programs and peers name it (MR-7).
    pub base: u64,
    /// Where the bytes lie; neighbouring pages are one segment.
    pub segments: Vec<Segment>,
}

/// Why a chain is not a region. All of them are the caller's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainError {
    /// No MDL, or no bytes asked for (MR-4).
    Empty,
    /// The region would begin at address 0 (MR-8).
    ZeroBased,
    /// The region would wrap around the end of the address space (MR-4).
    Wraps,
    /// The chain holds fewer bytes than were asked for (MR-4).
    TooShort {
        /// Bytes it holds.
        holds: u64,
    },
    /// An MDL does not begin where the one before it ends (MR-2, MR-3).
    NotContiguous {
        /// Where it would have to begin.
        expected: u64,
        /// Where it begins.
        found: u64,
    },
    /// Two MDLs share a virtual page and put different pages there (MR-10).
    SplitPage {
        /// The virtual page.
        page: u64,
    },
    /// An MDL whose pages were never filled in, or are fewer than it spans.
    NotBuilt,
}

impl ChainError {
    /// What the interface calls it (MR-3, MR-4).
    #[must_use]
    pub fn status(self) -> Status {
        Status::INVALID_PARAMETER
    }
}

impl std::fmt::Display for ChainError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ChainError::Empty => f.write_str("caller: no MDL or Length 0; at least 1 byte (MR-4)"),
            ChainError::ZeroBased => {
                f.write_str("caller: the first MDL's address is 0; any other address (MR-8)")
            }
            ChainError::Wraps => {
                f.write_str("caller: address + Length passes the end of the address space (MR-4)")
            }
            ChainError::TooShort { holds } => {
                write!(f, "caller: Length is more than the chain's {holds} bytes (MR-4)")
            }
            ChainError::NotContiguous { expected, found } => write!(
                f,
                "caller: an MDL begins at {found:#x}, the one before it ends at {expected:#x} (MR-2)"
            ),
            ChainError::SplitPage { page } => {
                write!(f, "caller: two MDLs put different pages at {page:#x} (MR-10)")
            }
            ChainError::NotBuilt => {
                f.write_str("caller: an MDL has no pages; build it for a buffer or for pages first")
            }
        }
    }
}

impl std::error::Error for ChainError {}

/// Judge a chain and list the segments of its first `length` bytes. Pieces behind these are not
/// looked at (MR-2).
pub fn translate(
    chain: impl IntoIterator<Item = Result<Piece, ChainError>>,
    length: u64,
) -> Result<Layout, ChainError> {
    if length == 0 {
        return Err(ChainError::Empty);
    }
    let mut segments: Vec<Segment> = Vec::new();
    let mut base = None;
    // Virtual address of the next byte, and the page the last piece ended in.
    let mut next = 0_u64;
    let mut last_page = None;
    let mut left = length;
    let mut empty = 0;
    for piece in chain {
        let piece = piece?;
        if base.is_none() {
            base = Some(piece.virtual_address);
            next = piece.virtual_address;
            if next == 0 {
                return Err(ChainError::ZeroBased);
            }
            next.checked_add(length).ok_or(ChainError::Wraps)?;
        }
        if piece.virtual_address != next {
            let found = piece.virtual_address;
            return Err(ChainError::NotContiguous { expected: next, found });
        }
        empty = if piece.byte_count == 0 { empty + 1 } else { 0 };
        if empty > MOST_EMPTY {
            return Err(ChainError::TooShort { holds: length - left });
        }
        let mut piece_left = left.min(u64::from(piece.byte_count));
        for (index, &page) in piece.pages.iter().enumerate() {
            let offset = next % PAGE_SIZE;
            let virtual_page = next - offset;
            if index == 0
                && last_page.is_some_and(|(at, other)| at == virtual_page && other != page)
            {
                return Err(ChainError::SplitPage { page: virtual_page });
            }
            if piece_left == 0 {
                break;
            }
            let bytes = piece_left.min(PAGE_SIZE - offset);
            let host = page.checked_add(offset).ok_or(ChainError::NotBuilt)?;
            append(&mut segments, host, bytes);
            last_page = Some((virtual_page, page));
            next += bytes;
            left -= bytes;
            piece_left -= bytes;
        }
        if piece_left > 0 {
            return Err(ChainError::NotBuilt);
        }
        if left == 0 {
            break;
        }
    }
    match base {
        None => Err(ChainError::Empty),
        Some(_) if left > 0 => Err(ChainError::TooShort { holds: length - left }),
        Some(base) => Ok(Layout { base, segments }),
    }
}

/// Add a run of bytes, in the same segment if it follows the last one.
fn append(segments: &mut Vec<Segment>, host: u64, length: u64) {
    match segments.last_mut() {
        Some(last) if last.host.checked_add(last.length) == Some(host) => last.length += length,
        _ => segments.push(Segment { host, length }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(virtual_address: u64, byte_count: u32, pages: &[u64]) -> Result<Piece, ChainError> {
        Ok(Piece { virtual_address, byte_count, pages: pages.to_vec() })
    }

    fn run(host: u64, length: u64) -> Segment {
        Segment { host, length }
    }

    /// MR-2, MR-5, MR-7: byte i of the region is byte i of the pages in order, from any offset.
    #[test]
    fn scattered_pages_become_segments_in_order() {
        let chain =
            [piece(0x7000_0123, 0x1edd, &[0xa000, 0x5000]), piece(0x7000_2000, 0x10, &[0x6000])];
        let layout = translate(chain, 0x1eed).unwrap();
        assert_eq!(layout.base, 0x7000_0123);
        assert_eq!(layout.segments, [run(0xa123, 0xedd), run(0x5000, 0x1010)]);
    }

    /// MR-2, MR-3: a gap of one byte, an overlap of one byte.
    #[test]
    fn a_gap_or_an_overlap_is_refused() {
        for (start, byte) in [(0x2001, 0x2001), (0x1fff, 0x1fff)] {
            let chain = [piece(0x1000, 0x1000, &[0xa000]), piece(start, 8, &[0xb000, 0xc000])];
            let error = translate(chain, 0x1008).unwrap_err();
            assert_eq!(error, ChainError::NotContiguous { expected: 0x2000, found: byte });
            assert_eq!(error.status(), Status::INVALID_PARAMETER);
        }
    }

    /// MR-2: what lies behind Length is not looked at, however wrong it is.
    #[test]
    fn pieces_behind_length_are_not_examined() {
        let chain = [piece(0x1000, 0x1000, &[0xa000]), Err(ChainError::NotBuilt)];
        assert_eq!(translate(chain.clone(), 0x1000).unwrap().segments, [run(0xa000, 0x1000)]);
        assert_eq!(translate(chain, 0x1001), Err(ChainError::NotBuilt));
    }

    /// MR-4: Length 0, no MDL, more than the chain holds, a wrap.
    #[test]
    fn length_is_held_against_the_chain() {
        assert_eq!(translate([piece(0x1000, 8, &[0xa000])], 0), Err(ChainError::Empty));
        assert_eq!(translate([], 8), Err(ChainError::Empty));
        let short = translate([piece(0x1000, 8, &[0xa000])], 9);
        assert_eq!(short, Err(ChainError::TooShort { holds: 8 }));
        let wraps = translate([piece(u64::MAX - 6, 8, &[0xa000])], 8);
        assert_eq!(wraps, Err(ChainError::Wraps));
    }

    /// MR-8: no address 0.
    #[test]
    fn a_base_of_zero_is_refused() {
        assert_eq!(translate([piece(0, 8, &[0xa000])], 8), Err(ChainError::ZeroBased));
    }

    /// MR-10: interior boundaries need not be page aligned, but the shared page must be one page.
    #[test]
    fn a_shared_virtual_page_must_be_one_page() {
        let good = [piece(0x1000, 0x800, &[0xa000]), piece(0x1800, 0x800, &[0xa000])];
        assert_eq!(translate(good, 0x1000).unwrap().segments, [run(0xa000, 0x1000)]);
        let bad = [piece(0x1000, 0x800, &[0xa000]), piece(0x1800, 0x800, &[0xb000])];
        assert_eq!(translate(bad, 0x1000), Err(ChainError::SplitPage { page: 0x1000 }));
    }

    /// A ring of empty MDLs ends.
    #[test]
    fn an_endless_chain_ends() {
        let chain = std::iter::repeat_with(|| piece(0x1000, 0, &[0xa000]));
        assert_eq!(translate(chain, 8), Err(ChainError::TooShort { holds: 0 }));
    }

    /// Pages missing at the end of an MDL.
    #[test]
    fn an_mdl_without_its_pages_is_refused() {
        assert_eq!(
            translate([piece(0x1800, 0x1000, &[0xa000])], 0x1000),
            Err(ChainError::NotBuilt)
        );
    }
}
