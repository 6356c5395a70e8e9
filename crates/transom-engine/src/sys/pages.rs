//! Is there memory behind a range that somebody wants to register (ND2 R9)? Holes, pages that may
//! not be read, and read-only pages registered for writing are refused. What happens to the pages
//! later is the business of the copy: no check at registration replaces the one at placement.

use std::sync::{Arc, Mutex, TryLockError};

use super::Fd;
use rustix::fs::{Mode, OFlags};

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

struct Mapping {
    start: u64,
    end: u64,
    read: bool,
    write: bool,
}

/// `struct procmap_query` of linux/fs.h (kernel 6.11), without the parts that we do not ask for.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Query>(b'f', 17);
const COVERING_OR_NEXT: u64 = 0x10;
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;

/// The memory map of this very process: opened anew after a fork, because the parent's descriptor
/// goes on describing the parent.
fn maps_fd(generation: u64) -> Option<Arc<Fd>> {
    // In a forked child the lock may be that of a thread which is not there: it is not waited for.
    let mut cached = match MAPS.try_lock() {
        Ok(cached) => Some(cached),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    };
    if let Some(Some((g, fd))) = cached.as_deref()
        && *g == generation
    {
        return Some(fd.clone());
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = Arc::new(Fd::from(rustix::fs::open("/proc/self/maps", flags, Mode::empty()).ok()?));
    if let Some(cached) = &mut cached {
        **cached = Some((generation, fd.clone()));
    }
    Some(fd)
}

/// The generation it was opened in, and the descriptor.
type Cached = Option<(u64, Arc<Fd>)>;
static MAPS: Mutex<Cached> = Mutex::new(None);

/// What a thread has that does not give it back.
#[cfg(test)]
pub(crate) fn hold() -> std::sync::MutexGuard<'static, Cached> {
    MAPS.lock().unwrap()
}

/// The first mapping that ends after `address`. `Err` if the kernel cannot be asked this way.
fn query(fd: &Fd, address: u64) -> Result<Option<Mapping>, ()> {
    let mut q = Query {
        size: std::mem::size_of::<Query>() as u64,
        query_flags: COVERING_OR_NEXT,
        query_addr: address,
        ..Query::default()
    };
    // SAFETY: the opcode's argument is this structure, complete and with its size in it; the
    // kernel writes no other memory because both name and build id are not asked for.
    let result = unsafe {
        rustix::ioctl::ioctl(fd, rustix::ioctl::Updater::<{ PROCMAP_QUERY }, Query>::new(&mut q))
    };
    match result {
        Ok(()) => Ok(Some(Mapping {
            start: q.vma_start,
            end: q.vma_end,
            read: q.vma_flags & READABLE != 0,
            write: q.vma_flags & WRITABLE != 0,
        })),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(_) => Err(()),
    }
}

/// The same from the text of the maps file, for kernels before 6.11. `None`: it cannot be had.
fn parse_maps() -> Option<Vec<Mapping>> {
    let text = std::fs::read_to_string("/proc/self/maps").ok()?;
    Some(text.lines().filter_map(parse_line).collect())
}

fn parse_line(line: &str) -> Option<Mapping> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let rights = rest.as_bytes();
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        read: rights.first() == Some(&b'r'),
        write: rights.get(1) == Some(&b'w'),
    })
}

/// Walk the mappings of a range; `next` finds the first one that ends after an address.
fn walk(
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

/// Check `length` bytes at `start`. `write`: they must be writable too.
pub fn check_pages(start: u64, length: u64, write: bool) -> Result<(), PageError> {
    if let Some(fd) = maps_fd(super::fork_generation())
        && let Ok(verdict) = walk(start, length, write, |at| query(&fd, at))
    {
        return verdict;
    }
    check_by_text(start, length, write)
}

pub(super) fn check_by_text(start: u64, length: u64, write: bool) -> Result<(), PageError> {
    // A system without /proc, or a process without a descriptor for it, cannot be asked: registration
    // goes on trust, placement is still safe.
    let Some(maps) = parse_maps() else { return Ok(()) };
    let mut maps = maps.into_iter().peekable();
    let verdict = walk(start, length, write, |at| {
        while maps.peek().is_some_and(|m| m.end <= at) {
            maps.next();
        }
        Ok(maps.next())
    });
    verdict.unwrap_or(Ok(()))
}
