//! Answers of the kernel about this process's memory, and whether that memory has what a
//! registration asks for. As in `answers` of `transom-os`, nothing here asks for anything.

use std::collections::BTreeMap;

/// Why a range cannot be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// Nothing is mapped at this address.
    Hole {
        /// First such address.
        at: u64,
    },
    /// Mapped, but without access.
    NoAccess {
        /// First such address.
        at: u64,
    },
    /// Mapped read-only, and the registration wants to write.
    ReadOnly {
        /// First such address.
        at: u64,
    },
}

impl std::fmt::Display for PageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PageError::Hole { at } => {
                write!(f, "no memory is mapped at {at:#x}; register mapped memory alone")
            }
            PageError::NoAccess { at } => {
                write!(f, "the memory at {at:#x} may not be read; let it be readable (mprotect)")
            }
            PageError::ReadOnly { at } => {
                write!(f, "the memory at {at:#x} is read-only; register it without LOCAL_WRITE")
            }
        }
    }
}

impl std::error::Error for PageError {}

/// Memory that is all alike.
#[derive(Clone, Copy)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) read: bool,
    pub(super) write: bool,
}

/// Check ranges (address, bytes), in order; `ask` finds the first mapping that ends after an address.
/// A mapping is asked for once, however many ranges lie in it: a region of scattered pages has tens of
/// thousands of ranges, mostly in a few mappings, and a question is a system call.
pub(super) fn check(
    ranges: impl IntoIterator<Item = (u64, u64)>,
    write: bool,
    mut ask: impl FnMut(u64) -> Result<Option<Mapping>, ()>,
) -> Result<Result<(), PageError>, ()> {
    // The mapping found last, and those found before it by their ends: memory that lies in one
    // mapping, as nearly all does, needs no map.
    let (mut last, mut known) = (None::<Mapping>, BTreeMap::<u64, Mapping>::new());
    let mut covering = |at: u64| {
        if let Some(mapping) = last.filter(|m| m.start <= at && at < m.end) {
            return Ok(Some(mapping));
        }
        let nearest = known.range(at + 1..).next().map(|(_, mapping)| *mapping);
        if let Some(mapping) = nearest.filter(|m| m.start <= at) {
            return Ok(Some(mapping));
        }
        let found = ask(at)?.filter(|m| m.start <= at && m.end > at);
        if let Some(before) = found.and_then(|mapping| last.replace(mapping)) {
            known.insert(before.end, before);
        }
        Ok(found)
    };
    for (start, length) in ranges {
        let end = start.saturating_add(length);
        let mut at = start;
        while at < end {
            match covering(at)? {
                None => return Ok(Err(PageError::Hole { at })),
                // Memory that can be written can be read: no processor that Linux runs on here has pages for
                // writing only, and Linux pins these for an adapter in hardware.
                Some(m) if !m.read && !m.write => return Ok(Err(PageError::NoAccess { at })),
                Some(m) if write && !m.write => return Ok(Err(PageError::ReadOnly { at })),
                Some(m) => at = m.end,
            }
        }
    }
    Ok(Ok(()))
}

/// Check ranges by the text of the maps file, for kernels before 6.11.
pub(super) fn check_text(
    text: &[u8],
    ranges: impl IntoIterator<Item = (u64, u64)>,
    write: bool,
) -> Result<(), PageError> {
    let maps: Vec<_> = text.split(|byte| *byte == b'\n').filter_map(mapping).collect();
    let ask = |at| Ok(maps.get(maps.partition_point(|m| m.end <= at)).copied());
    check(ranges, write, ask).unwrap_or(Ok(()))
}

/// `7f0123456000-7f0123457000 rw-p ...`: what follows may be a name, in any bytes.
fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut words = line.split(|byte| *byte == b' ');
    let (start, end) = std::str::from_utf8(words.next()?).ok()?.split_once('-')?;
    let rights = words.next()?;
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        read: rights.first() == Some(&b'r'),
        write: rights.get(1) == Some(&b'w'),
    })
}
