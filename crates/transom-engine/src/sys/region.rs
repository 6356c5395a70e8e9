//! Memory that two processes share: a sealed memfd, mapped. Sealed, because a mapping of a file that
//! shrinks is a trap, and the other side is not trusted with ours.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use transom_process::Area;
use transom_process::ring::{DATA, Shared};
use transom_process::upgrade::MemoryFacts;

use super::Fd;
use super::copy::copy_out_raw;
use super::fd::Change;
use super::kill_point;
use super::releases::{GivingBack, Release, is_behind, release};

/// Where the data areas begin, one per side.
const FRONT: usize = size_of::<Shared>().next_multiple_of(4096);
/// All of it.
const SIZE: usize = FRONT + 2 * DATA;
/// `statfs` of what memfd_create makes, unless it was asked for huge pages: those may run out when
/// they are touched, which is a signal.
const TMPFS: i64 = 0x0102_1994;

/// The properties of memory that another process made. Seals come first: only memory has them (fcntl(2),
/// F_GET_SEALS), and another file's server could keep the other calls waiting.
pub(super) fn facts(fd: &Fd) -> std::io::Result<MemoryFacts> {
    /// Of `stat`.
    const BLOCK: u64 = 512;
    // Memory that can grow may have pages beyond its end (fallocate(2), KEEP_SIZE), which count as held.
    let needed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let seals = rustix::fs::fcntl_get_seals(fd)?;
    let about = rustix::fs::fstat(fd)?;
    Ok(MemoryFacts {
        keeps_its_size: seals.contains(needed),
        is_ordinary: rustix::fs::fstatfs(fd)?.f_type as i64 == TMPFS,
        size: u64::try_from(about.st_size).unwrap_or(0),
        held: u64::try_from(about.st_blocks).unwrap_or(0).saturating_mul(BLOCK),
    })
}

/// Why memory of so many bytes cannot be had, in plain words where the user's limit is the reason.
pub(super) fn too_large(error: rustix::io::Errno, length: usize) -> std::io::Error {
    if error == rustix::io::Errno::FBIG {
        let needed = length.div_ceil(1024);
        let why = format!(
            "the limit of file sizes (ulimit -f, RLIMIT_FSIZE) is below the {needed} KiB that it takes"
        );
        return std::io::Error::new(std::io::ErrorKind::FileTooLarge, why);
    }
    error.into()
}

/// Have forked children do without a mapping, which is this process's own.
pub(super) fn never_forked(base: usize, length: usize) -> std::io::Result<()> {
    // SAFETY: nothing of the mapping changes in this process.
    unsafe { rustix::mm::madvise(base as *mut _, length, rustix::mm::Advice::LinuxDontFork)? };
    Ok(())
}

/// A mapping of rings and data areas.
#[derive(Debug)]
pub(crate) struct Region {
    base: usize,
    /// The process that has it: a forked child has no such mapping.
    generation: u64,
    /// Pages of it may be on their way back to the system.
    gives_back: AtomicBool,
}

impl Region {
    /// A fresh one, all zeros, and the descriptor to hand over.
    pub(crate) fn create() -> std::io::Result<(Region, Fd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = Fd::make(|| rustix::fs::memfd_create("transom", flags))?;
        // A limit of file sizes holds for memory, too.
        transom_os::signals::without_signals(|| rustix::fs::ftruncate(&fd, SIZE as u64))
            .map_err(|e| too_large(e, SIZE))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Region::map(&fd)?, fd))
    }

    /// Map memory that another process made, if it is harmless: it has the right size and keeps it.
    pub(crate) fn adopt(mut fd: Fd) -> std::io::Result<Region> {
        let wrong = |what| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
        facts(&fd)?.check(SIZE as u64).map_err(wrong)?;
        let region = Region::map(&fd)?;
        fd.close_here(); // memory, and mapped: this is not its last close
        Ok(region)
    }

    fn map(fd: &Fd) -> std::io::Result<Region> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let _change = Change::begin();
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), SIZE, rights, MapFlags::SHARED, fd, 0)?
        };
        let (generation, gives_back) = (super::fork_generation(), AtomicBool::new(false));
        let region = Region { base: base.addr(), generation, gives_back };
        // A child that goes astray would write into a conversation of its parent's.
        never_forked(region.base, SIZE)?;
        Ok(region)
    }

    /// Address and length of all of it.
    #[cfg(test)]
    pub(crate) fn whole(&self) -> (usize, usize) {
        (self.base, SIZE)
    }

    /// Whether `length` bytes from `offset` on lie in a data area.
    fn holds(offset: usize, length: usize) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= DATA)
    }

    /// Have the system take back the pages of a side's data area, for both sides: they are zeros when
    /// they are touched again. `None`: not now, because too much waits to be released.
    pub(crate) fn give_back(&self, side: usize) -> Option<GivingBack> {
        if is_behind() {
            return None;
        }
        self.gives_back.store(true, Ordering::Relaxed);
        Some(GivingBack::begin(self.address(side, 0) as usize, DATA))
    }
}

impl Area for Region {
    /// The rings.
    fn shared(&self) -> &Shared {
        // SAFETY: the mapping lives as long as `self`, is aligned to a page and larger than a
        // `Shared`, which consists of atomics only: any content is valid, and any writer, in this
        // process or another, writes atomically as far as this one can tell.
        unsafe { &*(self.base as *const Shared) }
    }

    /// The address of a place in a side's data area. Only ever given to copies that use raw addresses.
    fn address(&self, side: usize, offset: usize) -> u64 {
        let offset = offset.min(DATA);
        (self.base + FRONT + side.min(1) * DATA + offset) as u64
    }

    /// Copy bytes of ours into a data area. Nothing happens if they do not fit there.
    fn fill_bytes(&self, side: usize, offset: usize, bytes: &[u8]) {
        if Region::holds(offset, bytes.len()) {
            let to = self.address(side, offset) as usize as *mut u8;
            // SAFETY: the source is a live slice; the destination lies in the mapping.
            let _ = unsafe { copy_out_raw(bytes.as_ptr().addr() as u64, to, bytes.len()) };
        }
    }

    /// Copy bytes out of a data area. They may be changed meanwhile; afterwards they are ours.
    fn read_bytes(&self, side: usize, offset: usize, into: &mut [u8]) {
        if Region::holds(offset, into.len()) {
            let from = self.address(side, offset);
            // SAFETY: a live exclusive slice; the source lies in the mapping.
            let _ = unsafe { copy_out_raw(from, into.as_mut_ptr(), into.len()) };
        }
    }

    #[inline]
    fn fetch_to_write(&self, line: usize) {
        super::host::fetch_to_write(line);
    }

    #[inline]
    fn point(&self, name: &'static str) {
        kill_point(name);
    }
}

/// Whether the system lets this process share memory at all.
pub(crate) fn try_to_share() -> std::io::Result<()> {
    let (_, fd) = Region::create()?;
    Region::adopt(fd).map(drop)
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.generation != super::fork_generation() {
            return;
        }
        if self.gives_back.load(Ordering::Relaxed) {
            // Behind the pages, by the same thread. No reference to it outlives `self`.
            return release(Release::Unmap { base: self.base, length: SIZE });
        }
        // SAFETY: mapped by `map`, and no reference to it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base as *mut _, SIZE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_could_shrink_is_not_adopted() {
        let make = |size: u64, seals: SealFlags| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let fd = Fd::from(rustix::fs::memfd_create("test", flags).unwrap());
            rustix::fs::ftruncate(&fd, size).unwrap();
            rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
            fd
        };
        let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        assert!(Region::adopt(make(SIZE as u64, all)).is_ok());
        assert!(Region::adopt(make(SIZE as u64, SealFlags::GROW | SealFlags::SEAL)).is_err());
        assert!(Region::adopt(make(SIZE as u64, SealFlags::SHRINK | SealFlags::SEAL)).is_err());
        assert!(Region::adopt(make(SIZE as u64, SealFlags::SHRINK)).is_err(), "nor unsealed");
        assert!(Region::adopt(make(SIZE as u64 - 4096, all)).is_err(), "nor a smaller one");
        assert!(Region::adopt(make(SIZE as u64, all | SealFlags::WRITE)).is_err());
        let (a, _b) = rustix::pipe::pipe().unwrap();
        assert!(Region::adopt(a.into()).is_err(), "nor anything else");
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(Region::adopt(Fd::from(rustix::fd::OwnedFd::from(file))).is_err());
    }

    #[test]
    fn two_mappings_are_the_same_memory() {
        let (ours, fd) = Region::create().unwrap();
        let theirs = Region::adopt(fd).unwrap();
        ours.shared().sides[0].acknowledge(7);
        assert_eq!(theirs.shared().sides[0].acknowledged(), 7);
        ours.fill_bytes(1, DATA - 5, b"hello");
        let mut bytes = [0; 5];
        theirs.read_bytes(1, DATA - 5, &mut bytes);
        assert_eq!(&bytes, b"hello");
        ours.fill_bytes(1, DATA - 4, b"hello");
        theirs.read_bytes(1, DATA - 4, &mut bytes);
        assert_eq!(&bytes, b"hello", "nothing outside of an area moves");
    }
}
