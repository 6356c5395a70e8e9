//! Memory that is described page by page: which bytes of which pages a registration covers (NDK
//! 11.1, 11.5).
//!
//! Addresses given to the program are names, the pages are places: no byte is reached through the
//! former (NDK MR-6).

use crate::{Segment, rules};

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// A chain with more empty pieces in a row than this is taken for a ring.
const MOST_EMPTY: usize = 4096;

/// A piece of a chain: a run of virtual addresses, and the pages behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Virtual address of the first byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// Host address of each page that it spans.
    pub pages: Vec<u64>,
}

/// The bytes that a registration covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chained {
    /// Address of byte 0 as programs and peers name it (NDK MR-7).
    pub base: u64,
    /// Where the bytes lie; neighbouring pages are one segment.
    pub segments: Vec<Segment>,
}

/// Why a description is not a region. All of them are the caller's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainError {
    /// No piece, or no bytes asked for (NDK MR-4).
    Empty,
    /// The region would begin at address 0 (NDK MR-8).
    ZeroBased,
    /// The region would wrap around the end of the address space (NDK MR-4).
    Wraps,
    /// There are fewer bytes than were asked for (NDK MR-4, FR-8).
    TooShort {
        /// Bytes there are.
        holds: u64,
    },
    /// A piece does not begin where the one before it ends (NDK MR-2, MR-3).
    NotContiguous {
        /// Where it would have to begin.
        expected: u64,
        /// Where it begins.
        found: u64,
    },
    /// Two pieces share a virtual page and put different pages there (NDK MR-10).
    SplitPage {
        /// The virtual page.
        page: u64,
    },
    /// A piece whose pages were never filled in, or are fewer than it spans.
    NotBuilt,
    /// The first byte does not lie in its page where its address says (NDK FR-8, FR-9).
    Misplaced {
        /// Offset in the page, by the address.
        expected: u64,
        /// Offset that was given.
        found: u64,
    },
}

impl std::fmt::Display for ChainError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ChainError::Empty => {
                write!(
                    f,
                    "there is no memory: describe at least one byte {}",
                    rules::REGISTRATION_SIZE
                )
            }
            ChainError::ZeroBased => {
                write!(f, "the first address is 0: give another one {}", rules::NO_ZERO_BASE)
            }
            ChainError::Wraps => {
                write!(f, "address + length passes the end of the address space {}", rules::NO_WRAP)
            }
            ChainError::TooShort { holds } => write!(
                f,
                "the length is more than the {holds} bytes described: describe all of them {}",
                rules::PAGE_LIST
            ),
            ChainError::NotContiguous { expected, found } => write!(
                f,
                "a piece begins at {found:#x}, the one before it ends at {expected:#x}: let it begin there {}",
                rules::PAGE_LIST
            ),
            ChainError::SplitPage { page } => {
                let rule = rules::PAGE_LIST;
                write!(f, "two pieces put different pages at {page:#x}: give both the same {rule}")
            }
            ChainError::NotBuilt => {
                write!(f, "a piece is without its pages: build it first {}", rules::PAGE_LIST)
            }
            ChainError::Misplaced { expected, found } => write!(
                f,
                "the first byte is at {found:#x} of its page, its address says {expected:#x}: let \
                 them agree {}",
                rules::PAGE_OFFSET
            ),
        }
    }
}

impl std::error::Error for ChainError {}

/// Judge a chain and list the segments of its first `length` bytes. Pieces behind these are not
/// looked at (NDK MR-2).
///
/// # Errors
/// [`ChainError`]: the piece's own; `Empty` for no bytes or no piece, `ZeroBased`, `Wraps`,
/// `NotContiguous`, `SplitPage`, and `TooShort` if the pieces hold fewer than `length` bytes.
pub fn chained(
    chain: impl IntoIterator<Item = Result<Piece, ChainError>>,
    length: u64,
) -> Result<Chained, ChainError> {
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
            base = Some(piece.address);
            next = piece.address;
            if next == 0 {
                return Err(ChainError::ZeroBased);
            }
            next.checked_add(length).ok_or(ChainError::Wraps)?;
        }
        if piece.address != next {
            let found = piece.address;
            return Err(ChainError::NotContiguous { expected: next, found });
        }
        empty = if piece.length == 0 { empty + 1 } else { 0 };
        if empty > MOST_EMPTY {
            return Err(ChainError::TooShort { holds: length - left });
        }
        let mut piece_left = left.min(u64::from(piece.length));
        for (index, &page) in piece.pages.iter().enumerate() {
            let offset = next % PAGE;
            let virtual_page = next - offset;
            if index == 0
                && last_page.is_some_and(|(at, other)| at == virtual_page && other != page)
            {
                return Err(ChainError::SplitPage { page: virtual_page });
            }
            if piece_left == 0 {
                break;
            }
            let bytes = piece_left.min(PAGE - offset);
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
        Some(base) => Ok(Chained { base, segments }),
    }
}

/// Judge a list of whole pages whose first byte, `offset` into the first of them, is called `base`,
/// and list the segments of `length` bytes (NDK FR-7 to FR-10). A base of 0 is an address like any
/// other here.
///
/// # Errors
/// [`ChainError`]: `Empty` for no bytes, `Misplaced` if `offset` is not that of `base` in its page,
/// `TooShort` if the pages hold fewer bytes, `Wraps`.
pub fn paged(base: u64, offset: u64, length: u64, pages: &[u64]) -> Result<Chained, ChainError> {
    if length == 0 {
        return Err(ChainError::Empty);
    }
    if base % PAGE != offset {
        return Err(ChainError::Misplaced { expected: base % PAGE, found: offset });
    }
    base.checked_add(length).ok_or(ChainError::Wraps)?;
    let mut segments = Vec::new();
    let (mut left, mut skip) = (length, offset);
    for page in pages {
        let bytes = left.min(PAGE - skip);
        append(&mut segments, page.checked_add(skip).ok_or(ChainError::NotBuilt)?, bytes);
        (left, skip) = (left - bytes, 0);
        if left == 0 {
            return Ok(Chained { base, segments });
        }
    }
    Err(ChainError::TooShort { holds: length - left })
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

    fn piece(address: u64, length: u32, pages: &[u64]) -> Result<Piece, ChainError> {
        Ok(Piece { address, length, pages: pages.to_vec() })
    }

    fn run(host: u64, length: u64) -> Segment {
        Segment { host, length }
    }

    /// NDK MR-2, MR-5, MR-7: byte i of the region is byte i of the pages in order, from any offset.
    #[test]
    fn scattered_pages_become_segments_in_order() {
        let chain =
            [piece(0x7000_0123, 0x1edd, &[0xa000, 0x5000]), piece(0x7000_2000, 0x10, &[0x6000])];
        let layout = chained(chain, 0x1eed).unwrap();
        assert_eq!(layout.base, 0x7000_0123);
        assert_eq!(layout.segments, [run(0xa123, 0xedd), run(0x5000, 0x1010)]);
    }

    /// NDK MR-2, MR-3: a gap of one byte, an overlap of one byte.
    #[test]
    fn a_gap_or_an_overlap_is_refused() {
        for (start, byte) in [(0x2001, 0x2001), (0x1fff, 0x1fff)] {
            let chain = [piece(0x1000, 0x1000, &[0xa000]), piece(start, 8, &[0xb000, 0xc000])];
            let error = chained(chain, 0x1008).unwrap_err();
            assert_eq!(error, ChainError::NotContiguous { expected: 0x2000, found: byte });
        }
    }

    /// NDK MR-2: what lies behind Length is not looked at, however wrong it is.
    #[test]
    fn pieces_behind_length_are_not_examined() {
        let chain = [piece(0x1000, 0x1000, &[0xa000]), Err(ChainError::NotBuilt)];
        assert_eq!(chained(chain.clone(), 0x1000).unwrap().segments, [run(0xa000, 0x1000)]);
        assert_eq!(chained(chain, 0x1001), Err(ChainError::NotBuilt));
    }

    /// NDK MR-4: Length 0, no MDL, more than the chain holds, a wrap.
    #[test]
    fn length_is_held_against_the_chain() {
        assert_eq!(chained([piece(0x1000, 8, &[0xa000])], 0), Err(ChainError::Empty));
        assert_eq!(chained([], 8), Err(ChainError::Empty));
        let short = chained([piece(0x1000, 8, &[0xa000])], 9);
        assert_eq!(short, Err(ChainError::TooShort { holds: 8 }));
        let wraps = chained([piece(u64::MAX - 6, 8, &[0xa000])], 8);
        assert_eq!(wraps, Err(ChainError::Wraps));
    }

    /// NDK MR-8: no address 0.
    #[test]
    fn a_base_of_zero_is_refused() {
        assert_eq!(chained([piece(0, 8, &[0xa000])], 8), Err(ChainError::ZeroBased));
    }

    /// NDK MR-10: interior boundaries need not be page aligned, but the shared page must be one
    /// page.
    #[test]
    fn a_shared_virtual_page_must_be_one_page() {
        let good = [piece(0x1000, 0x800, &[0xa000]), piece(0x1800, 0x800, &[0xa000])];
        assert_eq!(chained(good, 0x1000).unwrap().segments, [run(0xa000, 0x1000)]);
        let bad = [piece(0x1000, 0x800, &[0xa000]), piece(0x1800, 0x800, &[0xb000])];
        assert_eq!(chained(bad, 0x1000), Err(ChainError::SplitPage { page: 0x1000 }));
    }

    /// A ring of empty MDLs ends.
    #[test]
    fn an_endless_chain_ends() {
        let chain = std::iter::repeat_with(|| piece(0x1000, 0, &[0xa000]));
        assert_eq!(chained(chain, 8), Err(ChainError::TooShort { holds: 0 }));
    }

    /// Pages missing at the end of an MDL.
    #[test]
    fn an_mdl_without_its_pages_is_refused() {
        assert_eq!(chained([piece(0x1800, 0x1000, &[0xa000])], 0x1000), Err(ChainError::NotBuilt));
    }

    /// NDK FR-7 to FR-10: a list of pages under a base that agrees with the offset, 0 included.
    #[test]
    fn pages_lie_under_any_base_that_agrees_with_the_offset() {
        let pages = [0xa000, 0xb000, 0x5000];
        for base in [0x123, 0x7000_0123, 0xffff_ffff_0000_0123] {
            let found = paged(base, 0x123, 0x2000, &pages).unwrap();
            assert_eq!(found.base, base);
            assert_eq!(found.segments, [run(0xa123, 0x1edd), run(0x5000, 0x123)]);
        }
        assert_eq!(paged(0, 0, 0x3000, &pages).unwrap().base, 0, "FR-10");
        let short = paged(0x123, 0x123, 0x2ede, &pages);
        assert_eq!(short, Err(ChainError::TooShort { holds: 0x2edd }), "FR-8");
        let misplaced = ChainError::Misplaced { expected: 0x123, found: 0x124 };
        assert_eq!(paged(0x123, 0x124, 8, &pages), Err(misplaced), "FR-9");
        assert!(paged(0x1000, 0x1000, 8, &pages).is_err(), "FR-8: an offset is less than a page");
        assert_eq!(paged(0, 0, 0, &pages), Err(ChainError::Empty), "FR-8");
        assert_eq!(paged(u64::MAX - 0xfff, 0, 0x1000, &pages), Err(ChainError::Wraps));
    }
}
