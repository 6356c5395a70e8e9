//! Shared regions: memory of this process that a peer's process maps, and mappings of such memory.
//!
//! A region is a sealed memfd: a page of the side's own, with the word that says whether the region
//! was dropped, and the bytes. Dropping it sets the word, has the system take the pages back, and
//! unmaps, in this order: a copy of zeros in place of the bytes is a copy behind the word, so the copier
//! that reads the word after the bytes knows ([`Borrowed::copy_to`]).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use std::time::Duration;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Resource, getrlimit};
use transom_memory::Segment;
use transom_process::lending;
use transom_process::upgrade::MemoryFacts;

use super::copy::{copy_across, copy_in, copy_out, tail_length};
use super::fd::Change;
use super::region::{facts, never_forked};
use super::releases::{GivingBack, Release, release};
use super::{Fd, address_space_limit, fork_generation, kill_point};
use crate::Fault;

/// Bytes before those of the region: a page, so that these are aligned to one.
const FRONT: usize = 4096;
const DROPPED: u32 = 1;
/// Bytes of address space that regions of peers take in this process at most, and no more than a quarter of what it
/// may have.
const MOST_BORROWED: usize = 1 << 42;
/// Those that they take.
static BORROWED: AtomicUsize = AtomicUsize::new(0);
/// A drop waits for so long for the pages to be taken back, which takes microseconds unless a peer that
/// has mapped them, or has put something slow into a socket, delays it.
const PAGES_WITHIN: Duration = Duration::from_millis(100);

/// Memory of ours that peers may map. Dropping the last handle does not revoke it: [`Lent::revoke`]
/// does.
#[derive(Debug)]
pub(crate) struct Lent {
    /// `None`: memory that no peer can map, because a file of its size is more than this process may make.
    fd: Option<Fd>,
    base: usize,
    pub(super) length: usize,
    pub(super) revoked: AtomicBool,
}

impl Lent {
    /// Fresh memory, all zeros, all of it there.
    pub(crate) fn create(length: usize) -> std::io::Result<Lent> {
        let fits = (1..=lending::LARGEST).contains(&(length as u64));
        let whole = length.checked_add(FRONT).filter(|_| fits);
        let whole = whole.ok_or(std::io::ErrorKind::InvalidInput)?;
        // Beyond this limit the system ends the process with a signal.
        let limit = getrlimit(Resource::Fsize).current;
        let (fd, base) = if limit.is_some_and(|most| most < whole as u64) {
            (None, map_alone(whole)?)
        } else {
            let fd = sealed(whole)?;
            let base = map(&fd, whole, ProtFlags::READ | ProtFlags::WRITE)?;
            (Some(fd), base)
        };
        Ok(Lent { fd, base, length, revoked: AtomicBool::new(false) })
    }

    /// The address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        (self.base + FRONT) as u64
    }

    /// To hand over, if a peer can map it at all.
    pub(crate) fn fd(&self) -> Option<&Fd> {
        self.fd.as_ref()
    }

    /// Take the memory back from every process, this one included. Waits for none of them for long.
    pub(crate) fn revoke(&self) {
        if self.revoked.swap(true, Ordering::AcqRel) {
            return;
        }
        // A forked child has a mapping, and the memory is its parent's.
        if !self.fd.as_ref().is_some_and(Fd::is_ours) {
            return self.unmap();
        }
        dropped_word(self.base).store(DROPPED, Ordering::SeqCst);
        kill_point("a region marked, its pages still there");
        // By another thread, because a peer can keep it waiting; where it does, or where this fails, the mark
        // still keeps the bytes from every target of an honest peer.
        let pages = GivingBack::begin(self.base + FRONT, self.length);
        release(Release::Unmap { base: self.base, length: FRONT + self.length });
        pages.wait(PAGES_WITHIN);
    }

    fn unmap(&self) {
        // SAFETY: mapped by `create`, and unmapped once; the caller of `revoke` has deregistered it, so
        // that no reference into it exists.
        let _ = unsafe { rustix::mm::munmap(self.base as *mut _, FRONT + self.length) };
    }
}

/// A mapping of memory that a peer has lent. For reading, until a Read of the peer's names a sink in it.
#[derive(Debug)]
pub(crate) struct Borrowed {
    base: usize,
    length: usize,
    writable: AtomicBool,
    generation: u64,
    _space: AddressSpace,
}

impl Borrowed {
    /// Map memory that another process made, if that is harmless: the memory keeps its size.
    pub(crate) fn adopt(mut fd: Fd) -> std::io::Result<Borrowed> {
        let wrong = |what| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
        let facts: MemoryFacts = facts(&fd)?;
        let length = facts.check_region(FRONT as u64).map_err(wrong)?;
        let length = usize::try_from(length).map_err(|_| wrong("the region is too large"))?;
        let space = AddressSpace::take(FRONT + length)?;
        let _change = Change::begin();
        let base = map(&fd, FRONT + length, ProtFlags::READ)?;
        let (writable, generation) = (AtomicBool::new(false), fork_generation());
        let borrowed = Borrowed { base, length, writable, generation, _space: space };
        never_forked(base, FRONT + length)?;
        fd.close_here(); // memory, and mapped: this is not its last close
        Ok(borrowed)
    }

    /// The address of a byte.
    pub(crate) fn address(&self, offset: u64) -> u64 {
        (self.base + FRONT) as u64 + offset.min(self.length as u64)
    }

    /// Whether these bytes lie in it.
    fn holds(&self, from: u64, length: usize) -> bool {
        let offset = from.checked_sub(self.address(0));
        let end = offset.and_then(|offset| offset.checked_add(length as u64));
        end.is_some_and(|end| end <= self.length as u64)
    }

    /// Copy memory of this process, which the caller may read now, to bytes of it, in increasing order.
    ///
    /// # Safety
    /// As [`copy_out`], for each segment.
    pub(crate) unsafe fn fill(&self, mut offset: u64, payload: &[Segment]) -> Result<(), Fault> {
        for segment in payload {
            let length = usize::try_from(segment.length).map_err(|_| Fault)?;
            let to = self.address(offset);
            if offset > self.length as u64 || !self.holds(to, length) || !self.make_writable() {
                return Err(Fault);
            }
            // SAFETY: the destination lies in the mapping, to whose bytes no reference exists; the source is
            // the caller's promise.
            unsafe { copy_across(segment.host, to, length) }.map_err(|_| Fault)?;
            offset += segment.length;
        }
        Ok(())
    }

    /// Have the bytes writable, the word in front not.
    fn make_writable(&self) -> bool {
        if self.writable.load(Ordering::Relaxed) {
            return true;
        }
        let (at, rights) = (self.base + FRONT, MprotectFlags::READ | MprotectFlags::WRITE);
        // SAFETY: pages of the mapping, to whose bytes no reference exists.
        let done = unsafe { rustix::mm::mprotect(at as *mut _, self.length, rights) }.is_ok();
        self.writable.store(done, Ordering::Relaxed);
        done
    }

    /// Copy bytes of it to registered memory, in increasing order; the last ones only if the region has
    /// not been dropped before they were read.
    ///
    /// # Safety
    /// As [`copy_in`] for `to`.
    pub(crate) unsafe fn copy_to(&self, from: u64, to: u64, length: usize) -> Result<(), Fault> {
        if !self.holds(from, length) {
            return Err(Fault);
        }
        let end = (to as usize).wrapping_add(length);
        let tail = tail_length(end, length);
        let body = length - tail;
        let mut last = [0; 8];
        let last = last.get_mut(..tail).ok_or(Fault)?;
        // SAFETY: the source lies in the mapping, to whose bytes no reference exists; the destination is
        // the caller's promise.
        unsafe { copy_across(from, to, body) }.map_err(|_| Fault)?;
        // SAFETY: the source lies in the mapping.
        unsafe { copy_out(from + body as u64, last) }.map_err(|_| Fault)?;
        // The mark is set before the pages go: a reader of a byte that is gone sees the mark.
        fence(Ordering::Acquire);
        if lending::Borrowed::is_dropped(self) {
            return Err(Fault);
        }
        // SAFETY: the caller's promise.
        unsafe { copy_in(to + body as u64, last) }.map_err(|_| Fault)
    }
}

impl lending::Borrowed for Borrowed {
    fn length(&self) -> u64 {
        self.length as u64
    }

    fn is_dropped(&self) -> bool {
        dropped_word(self.base).load(Ordering::Acquire) != 0
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if self.generation == fork_generation() {
            // By another thread: the pages of a large file may go with it. No reference into it exists.
            release(Release::Unmap { base: self.base, length: FRONT + self.length });
        }
    }
}

/// Address space for a region of a peer's, counted until this is dropped.
#[derive(Debug)]
struct AddressSpace(usize);

impl AddressSpace {
    fn take(length: usize) -> std::io::Result<AddressSpace> {
        let limit = address_space_limit().map_or(MOST_BORROWED, |all| MOST_BORROWED.min(all / 4));
        let more = |taken: usize| taken.checked_add(length).filter(|all| *all <= limit);
        BORROWED
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .map_err(|_| std::io::ErrorKind::OutOfMemory)?;
        Ok(AddressSpace(length))
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        BORROWED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// The word in front of a region's bytes.
fn dropped_word(base: usize) -> &'static AtomicU32 {
    // SAFETY: the first bytes of a live mapping, aligned to a page; any content is valid, and every
    // writer, in this process or another, writes atomically as far as this one can tell. The callers
    // let the reference go at once.
    unsafe { &*(base as *const AtomicU32) }
}

/// A memfd of so many bytes, all of them there, that keeps its size.
fn sealed(length: usize) -> std::io::Result<Fd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = Fd::make(|| rustix::fs::memfd_create("shared-by-transom", flags))?;
    // A page that is lacking is an error here, and a signal when it is touched first.
    let fill = || rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, length as u64);
    transom_os::signals::without_signals(fill).map_err(|e| super::region::too_large(e, length))?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// Memory of this process alone.
fn map_alone(length: usize) -> std::io::Result<usize> {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
    let base = unsafe { mmap_anonymous(std::ptr::null_mut(), length, rights, flags)? };
    Ok(base.expose_provenance())
}

fn map(fd: &Fd, length: usize, rights: ProtFlags) -> std::io::Result<usize> {
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
    let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, rights, flags, fd, 0)? };
    Ok(base.expose_provenance())
}

#[cfg(test)]
mod tests {
    use transom_process::lending::Borrowed as _;

    use super::*;

    fn write(at: u64, byte: u8, length: usize) {
        // SAFETY: memory of a region that the test has made, to which no reference exists.
        unsafe { copy_in(at, &vec![byte; length]) }.unwrap();
    }

    /// Copy so many bytes from `offset` on into a buffer of sevens; the buffer.
    fn copy(from: &Borrowed, offset: u64, length: usize) -> (Result<(), Fault>, Vec<u8>) {
        let mut room = vec![7_u8; 40_000];
        let to = room.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the buffer lives, and is looked at afterwards only.
        let done = unsafe { from.copy_to(from.address(offset), to, length) };
        (done, room)
    }

    /// The descriptor as a peer gets it.
    fn handed_over(region: &Lent) -> Fd {
        rustix::io::fcntl_dupfd_cloexec(region.fd().unwrap(), 0).unwrap().into()
    }

    #[test]
    fn a_peer_sees_the_bytes_and_no_others() {
        let region = Lent::create(10_000).unwrap();
        let mapped = Borrowed::adopt(handed_over(&region)).unwrap();
        write(region.address(), 1, 10_000);
        write(region.address() + 9_990, 2, 10);
        for length in [1, 7, 8, 63, 64, 4096, 10_000] {
            let (done, room) = copy(&mapped, 10_000 - length as u64, length);
            assert_eq!(done, Ok(()));
            assert_eq!(room[length - 1], 2);
            assert_eq!(room[length], 7, "and not one more");
        }
        assert_eq!(copy(&mapped, 9_999, 2).0, Err(Fault));
        assert_eq!(copy(&mapped, 0, 10_001).1, vec![7; 40_000], "nothing moves");
        let at = region.address();
        assert_eq!(region.offset_of(at + 9_999, 1), Some(9_999));
        assert_eq!(region.offset_of(at + 9_999, 2), None);
        assert_eq!(region.offset_of(at - 1, 1), None);
        assert_eq!(region.offset_of(u64::MAX, 1), None);
    }

    #[test]
    fn a_dropped_region_has_no_bytes_and_never_gives_a_last_one() {
        let region = Lent::create(10_000).unwrap();
        let mapped = Borrowed::adopt(handed_over(&region)).unwrap();
        write(region.address(), 1, 10_000);
        assert!(!mapped.is_dropped() && !region.is_dropped());
        let at = region.address();
        region.revoke();
        assert!(mapped.is_dropped() && region.is_dropped());
        assert_eq!(region.offset_of(at, 1), None, "its addresses may be other memory's now");
        for length in [1, 8, 100, 4096] {
            let (done, room) = copy(&mapped, 0, length);
            assert_eq!(done, Err(Fault));
            assert_eq!(room[length - 1], 7, "never the last byte");
        }
        let mut bytes = [1; 64];
        // SAFETY: a live slice; the source lies in the mapping.
        unsafe { copy_out(mapped.address(4096), &mut bytes) }.unwrap();
        assert_eq!(bytes, [0; 64], "the pages are gone");
        region.revoke();
    }

    #[test]
    fn regions_of_peers_take_a_part_of_the_address_space() {
        let before = BORROWED.load(Ordering::Relaxed);
        let first = AddressSpace::take(MOST_BORROWED / 2).unwrap();
        assert!(AddressSpace::take(MOST_BORROWED / 2 + 1).is_err());
        drop((AddressSpace::take(MOST_BORROWED / 4).unwrap(), first));
        // Other tests have some meanwhile, and few bytes.
        assert!(BORROWED.load(Ordering::Relaxed) < before + MOST_BORROWED / 4);
    }

    #[test]
    fn a_sink_takes_bytes_inside_of_it_and_nowhere_else() {
        let region = Lent::create(10_000).unwrap();
        let mapped = Borrowed::adopt(handed_over(&region)).unwrap();
        let source = vec![3_u8; 20_000];
        let at = source.as_ptr().expose_provenance() as u64;
        let two = |first, second| {
            [Segment { host: at, length: first }, Segment { host: at, length: second }]
        };
        // SAFETY: the sources live.
        let fill = |offset, payload: &[Segment]| unsafe { mapped.fill(offset, payload) };
        assert_eq!(fill(100, &two(50, 9_850)), Ok(()));
        let mut bytes = vec![0; 10_000];
        // SAFETY: memory of the region, to which no reference exists.
        unsafe { copy_out(region.address(), &mut bytes) }.unwrap();
        assert!(bytes[..100] == [0; 100] && bytes[100..].iter().all(|b| *b == 3));
        assert_eq!(fill(100, &two(50, 9_851)), Err(Fault));
        assert_eq!(fill(10_000, &two(1, 0)[..1]), Err(Fault));
        assert_eq!(fill(10_001, &two(0, 0)), Err(Fault));
        assert_eq!(fill(u64::MAX, &two(1, 1)), Err(Fault));
        assert!(!mapped.is_dropped(), "the word in front is not the peer's to write");
    }

    #[test]
    fn memory_that_could_shrink_is_not_mapped() {
        let make = |size: u64, seals: SealFlags| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let fd = Fd::from(rustix::fs::memfd_create("test", flags).unwrap());
            rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, size).unwrap();
            rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
            fd
        };
        let kept = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let front = FRONT as u64;
        assert!(Borrowed::adopt(make(front + 1, kept)).is_ok());
        // Pages that are lacking would be made, and paid for, by this side.
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A region with as many pages beyond its end looks as if it had all.
        for (seals, beyond) in
            [(SealFlags::SHRINK | SealFlags::GROW, 0), (SealFlags::SHRINK, front)]
        {
            let holes = make(3 * front, seals);
            rustix::fs::fallocate(&holes, punch, front, front).unwrap();
            if beyond > 0 {
                let keep = FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&holes, keep, 3 * front, beyond).unwrap();
                assert!(facts(&holes).unwrap().held >= 3 * front);
            }
            rustix::fs::fcntl_add_seals(&holes, SealFlags::SEAL).unwrap();
            assert!(Borrowed::adopt(holes).is_err(), "a hole");
        }
        assert!(Borrowed::adopt(make(front, kept)).is_err(), "no bytes");
        assert!(Borrowed::adopt(make(front + 1, SealFlags::SEAL)).is_err());
        assert!(Borrowed::adopt(make(front + 1, SealFlags::SHRINK)).is_err());
        assert!(Borrowed::adopt(make(front + 1, SealFlags::SHRINK | SealFlags::SEAL)).is_err());
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert!(Borrowed::adopt(pipe.into()).is_err());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(Borrowed::adopt(Fd::from(rustix::fd::OwnedFd::from(file))).is_err());
        // The region's own seals, which keep a peer from cutting it under its owner, too.
        let region = Lent::create(1).unwrap();
        assert!(rustix::fs::ftruncate(region.fd().unwrap(), 0).is_err());
        assert!(rustix::fs::ftruncate(region.fd().unwrap(), 1 << 20).is_err());
    }

    #[test]
    fn more_than_may_be_is_refused_at_once() {
        let most = usize::try_from(lending::LARGEST).unwrap();
        let error = Lent::create(most + 1).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(Lent::create(usize::MAX).is_err());
        assert!(Lent::create(0).is_err());
    }
}
