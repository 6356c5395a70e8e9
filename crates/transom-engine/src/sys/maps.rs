//! What the kernel says about this process's memory, and whether it has what a registration asks for. As
//! in `answers.rs`, nothing here asks for anything.

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
            PageError::Hole { at } => write!(f, "no memory is mapped at {at:#x}"),
            PageError::NoAccess { at } => write!(f, "the memory at {at:#x} may not be read"),
            PageError::ReadOnly { at } => {
                write!(f, "the memory at {at:#x} is read-only; register it without LOCAL_WRITE")
            }
        }
    }
}

impl std::error::Error for PageError {}

/// Memory that is all alike.
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) read: bool,
    pub(super) write: bool,
}

/// Walk the mappings of a range; `next` finds the first one that ends after an address.
pub(super) fn walk(
    start: u64,
    length: u64,
    write: bool,
    mut next: impl FnMut(u64) -> Result<Option<Mapping>, ()>,
) -> Result<Result<(), PageError>, ()> {
    let end = start.saturating_add(length);
    let mut at = start;
    while at < end {
        match next(at)? {
            Some(m) if m.start <= at && m.end > at => {
                if !m.read {
                    return Ok(Err(PageError::NoAccess { at }));
                }
                if write && !m.write {
                    return Ok(Err(PageError::ReadOnly { at }));
                }
                at = m.end;
            }
            _ => return Ok(Err(PageError::Hole { at })),
        }
    }
    Ok(Ok(()))
}

/// The same by the text of the maps file, for kernels before 6.11.
pub(super) fn check_text(
    text: &[u8],
    start: u64,
    length: u64,
    write: bool,
) -> Result<(), PageError> {
    let mut maps = text.split(|byte| *byte == b'\n').filter_map(mapping);
    let next = |at| Ok(maps.find(|m| m.end > at));
    walk(start, length, write, next).unwrap_or(Ok(()))
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
