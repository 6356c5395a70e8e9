//! Checks that there is memory behind a range to register (ND2 R9). Holes, pages that may not be
//! read, and read-only pages registered for writing are refused. The copy handles what happens to
//! the pages later: no check at registration replaces the one at placement.

use std::sync::{Arc, Mutex, TryLockError};

use super::Fd;
use super::maps::{Mapping, PageError, check, check_text};
use rustix::fs::{Mode, OFlags};

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
    let open = || rustix::fs::open("/proc/self/maps", flags, Mode::empty());
    let fd = Arc::new(Fd::make(open).ok()?);
    if let Some(cached) = &mut cached {
        **cached = Some((generation, fd.clone()));
    }
    Some(fd)
}

/// The generation it was opened in, and the descriptor.
type Cached = Option<(u64, Arc<Fd>)>;
static MAPS: Mutex<Cached> = Mutex::new(None);

/// The cached reading of the maps, locked, so that no other test replaces it.
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

/// Check `length` bytes at `start`. `write`: they must be writable too.
///
/// # Errors
/// The first page that is not there, or lacks the access.
pub fn check_pages(start: u64, length: u64, write: bool) -> Result<(), PageError> {
    check_ranges([(start, length)], write)
}

/// Check ranges (address, bytes), with one question to the kernel for each mapping that they touch.
pub fn check_ranges(
    ranges: impl IntoIterator<Item = (u64, u64)> + Clone,
    write: bool,
) -> Result<(), PageError> {
    if let Some(fd) = maps_fd(super::fork_generation())
        && let Ok(verdict) = check(ranges.clone(), write, |at| query(&fd, at))
    {
        return verdict;
    }
    check_by_text(ranges, write)
}

pub(super) fn check_by_text(
    ranges: impl IntoIterator<Item = (u64, u64)>,
    write: bool,
) -> Result<(), PageError> {
    // A system without /proc, or a process without a descriptor for it, cannot be asked: registration
    // goes on trust, placement is still safe.
    std::fs::read("/proc/self/maps").map_or(Ok(()), |text| check_text(&text, ranges, write))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel writes names of files as they are.
    #[test]
    fn a_name_that_is_no_text_hides_no_memory() {
        let text = b"1000-2000 r--p 00000000 00:00 0  /\xff\xfe\n2000-3000 rw-p 00000000 00:00 0\n";
        let one = |start, write| check_text(text, [(start, 0x1000)], write);
        assert_eq!(one(0x1800, false), Ok(()));
        assert_eq!(one(0x1800, true), Err(PageError::ReadOnly { at: 0x1800 }));
        assert_eq!(one(0x2800, true), Err(PageError::Hole { at: 0x3000 }));
    }

    /// A mapping for writing alone can be read, too, by the processor and by an adapter.
    #[test]
    fn a_mapping_for_writing_alone_is_memory() {
        let text = b"1000-2000 -w-p 00000000 00:00 0\n2000-3000 ---p 00000000 00:00 0\n";
        let one = |start, write| check_text(text, [(start, 0x1000)], write);
        assert_eq!((one(0x1000, true), one(0x1000, false)), (Ok(()), Ok(())));
        assert_eq!(one(0x2000, false), Err(PageError::NoAccess { at: 0x2000 }));
    }

    /// A registration of scattered pages asks about each mapping once, not about each page, in
    /// whatever order they come; and what it asked once still decides about every page.
    #[test]
    fn a_mapping_is_asked_about_once_for_any_number_of_ranges() {
        let all = |start, end, write| Mapping { start, end, read: true, write };
        let maps = [all(0x1000, 0x40_0000, true), all(0x40_0000, 0x80_0000, false)];
        let count = |ranges: &[(u64, u64)], write| {
            let mut questions = 0;
            let ask = |at| {
                questions += 1;
                Ok(maps.into_iter().find(|m| m.end > at))
            };
            let verdict = check(ranges.iter().copied(), write, ask).unwrap();
            (verdict, questions)
        };
        let page = |index: u64| (0x1000 * index, 0x1000);
        let scattered: Vec<_> = (0..0x3ff).map(|i| page(1 + i * 611 % 0x3ff)).collect();
        assert_eq!(count(&scattered, true), (Ok(()), 1));
        let to_and_fro: Vec<_> = (0..1000).map(|i| page(0x100 + i % 2 * 0x400)).collect();
        assert_eq!(count(&to_and_fro, false), (Ok(()), 2));
        assert_eq!(count(&[(0x3f_f000, 0x2000)], false), (Ok(()), 2), "across the border");
        let refused = Err(PageError::ReadOnly { at: 0x50_0000 });
        assert_eq!(count(&[page(1), page(0x500), page(2)], true), (refused, 2));
        assert_eq!(count(&[page(1), page(0)], false), (Err(PageError::Hole { at: 0 }), 2));
        let behind = Err(PageError::Hole { at: 0x80_0000 });
        assert_eq!(count(&[page(0x7ff), page(0x800)], false), (behind, 2));
    }
}
