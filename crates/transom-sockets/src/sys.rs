//! System calls of the library's own: straight to the kernel, so that none of them comes back through
//! the calls that this library defines.

use std::arch::asm;
use std::ffi::{CStr, c_int, c_long, c_void};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

const SHM_INFO: c_int = 14;

/// A number of `errno`.
pub(crate) type Errno = c_int;

/// A system call.
///
/// # Safety
/// The arguments are as the call demands.
#[inline]
pub(crate) unsafe fn call(number: c_long, arguments: [usize; 6]) -> Result<usize, Errno> {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the kernel keeps all registers but these; the caller answers for the arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    if (-4095..0).contains(&result) { Err(-result as Errno) } else { Ok(result as usize) }
}

/// Fewer arguments than six, and zeros.
#[inline]
fn padded(given: &[usize]) -> [usize; 6] {
    let mut all = [0; 6];
    for (to, from) in all.iter_mut().zip(given) {
        *to = *from;
    }
    all
}

macro_rules! call {
    ($number:expr $(, $argument:expr)*) => {
        call($number, padded(&[$($argument as usize),*]))
    };
}

/// Set `errno`, and answer as a call that has failed.
pub(crate) fn fail(error: Errno) -> isize {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = error };
    -1
}

pub(crate) fn open(path: &CStr, flags: c_int, mode: u32) -> Result<c_int, Errno> {
    // SAFETY: the path is a C string.
    unsafe { call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, mode) }
        .map(|fd| fd as c_int)
}

/// Bytes of memory that the machine has.
pub(crate) fn memory() -> u64 {
    // SAFETY: zeros are a value of the structure, and the kernel writes one.
    let about = unsafe {
        let mut about: libc::sysinfo = std::mem::zeroed();
        let _ = call!(libc::SYS_sysinfo, &raw mut about);
        about
    };
    about.totalram.saturating_mul(u64::from(about.mem_unit))
}

/// Whether a program gets capabilities from its file (capabilities(7)).
pub(crate) fn gives_capabilities(path: &CStr) -> bool {
    let mut value = [0_u8; 32];
    let (name, to) = (c"security.capability".as_ptr(), value.as_mut_ptr());
    // SAFETY: two C strings, and room for so many bytes.
    unsafe { call!(libc::SYS_getxattr, path.as_ptr(), name, to, value.len()) }.is_ok()
}

pub(crate) fn close(fd: c_int) {
    // SAFETY: no memory is touched.
    let _ = unsafe { call!(libc::SYS_close, fd) };
}

pub(crate) fn unlink(path: &CStr) {
    // SAFETY: the path is a C string.
    let _ = unsafe { call!(libc::SYS_unlink, path.as_ptr()) };
}

pub(crate) fn mkdir(path: &CStr, mode: u32) -> Result<usize, Errno> {
    // SAFETY: the path is a C string.
    unsafe { call!(libc::SYS_mkdir, path.as_ptr(), mode) }
}

pub(crate) fn stat(path: &CStr, flags: c_int) -> Option<libc::stat> {
    // SAFETY: zeros are a value of this type.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a C string, and the kernel writes one such structure.
    unsafe {
        call!(libc::SYS_newfstatat, libc::AT_FDCWD, path.as_ptr(), &raw mut about, flags).ok()?;
    }
    Some(about)
}

fn about(fd: c_int) -> Option<libc::stat> {
    // SAFETY: zeros are a value of this type, and the kernel writes one such structure.
    unsafe {
        let mut about = std::mem::zeroed();
        call!(libc::SYS_fstat, fd, &raw mut about).ok()?;
        Some(about)
    }
}

pub(crate) fn is_pipe(fd: c_int) -> bool {
    about(fd).is_some_and(|about| about.st_mode & libc::S_IFMT == libc::S_IFIFO)
}

/// Whether it is a file that says how long it is.
pub(crate) fn has_length(fd: c_int) -> bool {
    let is = |about: libc::stat| about.st_mode & libc::S_IFMT == libc::S_IFREG && about.st_size > 0;
    about(fd).is_some_and(is)
}

/// Whether a `sendfile` of `count` bytes from this place of a file moves the place: devices may have none.
///
/// # Errors
/// The kernel's, where `sendfile` takes no such file.
pub(crate) fn moves_from(fd: c_int, at: i64, count: usize) -> Result<bool, Errno> {
    let Ok(nowhere) = open(c"/dev/null", libc::O_WRONLY | libc::O_CLOEXEC, 0) else {
        return Ok(true);
    };
    let mut place = at;
    // SAFETY: the kernel reads and writes one word.
    let sent = unsafe { call!(libc::SYS_sendfile, nowhere, fd, &raw mut place, count.min(1)) };
    close(nowhere);
    sent.map(|sent| sent == 0 || place != at)
}

pub(crate) fn read(fd: c_int, to: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel writes into the slice.
    unsafe { call!(libc::SYS_read, fd, to.as_mut_ptr(), to.len()) }
}

/// How many descriptors this process has places for, a power of two that grows with the highest one.
pub(crate) fn places_for_descriptors() -> Option<usize> {
    let status = read_whole(c"/proc/thread-self/status").ok()?;
    let mut lines = std::str::from_utf8(&status).ok()?.lines();
    lines.find_map(|line| line.strip_prefix("FDSize:")).and_then(|size| size.trim().parse().ok())
}

/// The content of a file of `/proc`, which does not say how long it is.
pub(crate) fn read_whole(path: &CStr) -> Result<Vec<u8>, Errno> {
    let file = open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0)?;
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    let done = loop {
        match read(file, &mut piece) {
            Ok(0) => break Ok(all),
            Ok(got) => all.extend_from_slice(piece.get(..got).unwrap_or_default()),
            Err(error) => break Err(error),
        }
    };
    close(file);
    done
}

/// Call `act` with the name of each entry of a folder.
pub(crate) fn each_name(path: &CStr, mut act: impl FnMut(&CStr)) {
    /// Where the length of an entry lies in `struct linux_dirent64`, and its name.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let Ok(folder) = open(path, flags, 0) else { return };
    let mut entries = [0_u8; 4096];
    loop {
        let (at, room) = (entries.as_mut_ptr(), entries.len());
        // SAFETY: the kernel writes at most the array.
        let got = unsafe { call!(libc::SYS_getdents64, folder, at, room) }.unwrap_or_default();
        let mut rest = entries.get(..got).unwrap_or_default();
        if rest.is_empty() {
            return close(folder);
        }
        while let Some(&[low, high]) = rest.get(LENGTH..LENGTH + 2) {
            let length = usize::from(u16::from_ne_bytes([low, high]));
            if let Some(name) = rest.get(NAME..length)
                && let Ok(name) = CStr::from_bytes_until_nul(name)
            {
                act(name);
            }
            rest = rest.get(length.max(NAME)..).unwrap_or_default();
        }
    }
}

/// Where a symbolic link leads to.
pub(crate) fn link<'a>(path: &CStr, to: &'a mut [u8]) -> Option<&'a [u8]> {
    let (at, room) = (to.as_mut_ptr(), to.len());
    // SAFETY: the path is a C string, and the kernel writes at most the slice.
    let got = unsafe { call!(libc::SYS_readlinkat, libc::AT_FDCWD, path.as_ptr(), at, room) };
    to.get(..got.ok()?)
}

pub(crate) fn descriptor_flags(fd: c_int) -> Result<c_int, Errno> {
    // SAFETY: no memory is touched.
    unsafe { call!(libc::SYS_fcntl, fd, libc::F_GETFD) }.map(|flags| flags as c_int)
}

pub(crate) fn set_descriptor_flags(fd: c_int, flags: c_int) {
    // SAFETY: no memory is touched.
    let _ = unsafe { call!(libc::SYS_fcntl, fd, libc::F_SETFD, flags) };
}

/// Another descriptor of the same, which no other program gets.
pub(crate) fn duplicate(fd: c_int) -> Result<c_int, Errno> {
    const LOWEST: c_int = 3;
    // SAFETY: no memory is touched.
    unsafe { call!(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, LOWEST) }.map(|fd| fd as c_int)
}

/// Let `fd` name what `of` does.
pub(crate) fn put_in_place(of: c_int, fd: c_int) {
    // SAFETY: no memory is touched.
    let _ = unsafe { call!(libc::SYS_dup3, of, fd, 0) };
}

/// A stream that its peer has reset: it closed with bytes unread.
pub(crate) fn reset_socket() -> Option<c_int> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes two descriptors.
    unsafe { call!(libc::SYS_socketpair, libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }.ok()?;
    let _ = send(ends[0], &[0], libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
    close(ends[1]);
    Some(ends[0])
}

/// Pages of zeros.
pub(crate) fn pages(length: usize) -> Option<*mut u8> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the kernel chooses an address that is free.
    let at = unsafe { call!(libc::SYS_mmap, 0, length, rights, flags, -1_isize, 0) };
    at.ok().map(|at| at as *mut u8)
}

pub(crate) fn write(fd: c_int, from: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel reads from the slice.
    unsafe { call!(libc::SYS_write, fd, from.as_ptr(), from.len()) }
}

/// A write of this library's own to a file or to standard error: of a limit of file sizes, or a pipe without a
/// reader, the program gets no signal.
pub(crate) fn write_quietly(fd: c_int, from: &[u8]) -> Result<usize, Errno> {
    transom_os::signals::without_signals(|| write(fd, from))
}

/// # Safety
/// Nothing in the mapping is used any more.
pub(crate) unsafe fn unmap(at: *mut c_void, length: usize) {
    // SAFETY: the caller's.
    let _ = unsafe { call!(libc::SYS_munmap, at, length) };
}

/// Have memory behind a part of a mapping, or an error instead of SIGBUS at the first access.
pub(crate) fn populate(at: *mut u8, length: usize) -> Result<(), Errno> {
    const MADV_POPULATE_WRITE: usize = 23;
    let begin = at as usize & !4095;
    let length = (at as usize + length).next_multiple_of(4096) - begin;
    // SAFETY: the content of the pages stays as it is.
    match unsafe { call!(libc::SYS_madvise, begin, length, MADV_POPULATE_WRITE) } {
        // A kernel without this advice.
        Ok(_) | Err(libc::EINVAL) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Give the kernel the memory of whole pages of a shared mapping: they are zeros from now on.
pub(crate) fn give_back(at: *mut u8, length: usize) {
    // SAFETY: the pages stay mapped.
    let _ = unsafe { call!(libc::SYS_madvise, at, length, libc::MADV_REMOVE) };
}

/// The processor's clock.
#[inline]
pub(crate) fn ticks() -> u64 {
    // SAFETY: the instruction writes two registers.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Bytes of shared memory that are attached.
static ATTACHED: AtomicUsize = AtomicUsize::new(0);

/// Count so many bytes more as attached. `ENOMEM`: the program needs the rest of an address space that is limited.
fn count_attached(length: usize) -> Result<(), Errno> {
    let most = limit_of(libc::RLIMIT_AS) / 4;
    let more = |all: usize| all.checked_add(length).filter(|all| *all as u64 <= most);
    let counted = ATTACHED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    counted.map(drop).map_err(|_| libc::ENOMEM)
}

/// Detach shared memory.
///
/// # Safety
/// Nothing in it is used any more; it was attached by one of the next two functions, with this length.
pub(crate) unsafe fn detach_memory(at: *mut c_void, length: usize) {
    // SAFETY: the caller's.
    unsafe { unmap(at, length) };
    ATTACHED.fetch_sub(length, Ordering::Relaxed);
}

/// Shared memory without a name, which the kernel removes with the last process that has it attached. Its
/// number, and where it is attached.
pub(crate) fn shared_memory(length: usize) -> Result<(u32, *mut c_void), Errno> {
    count_attached(length)?;
    let made = make_memory(length);
    if made.is_err() {
        ATTACHED.fetch_sub(length, Ordering::Relaxed);
    }
    made
}

fn make_memory(length: usize) -> Result<(u32, *mut c_void), Errno> {
    // Pages cost memory when they are used.
    let flags = libc::IPC_CREAT | 0o600 | libc::SHM_NORESERVE;
    // SAFETY: no memory is touched.
    let id = unsafe { call!(libc::SYS_shmget, libc::IPC_PRIVATE, length, flags) }? as u32;
    // SAFETY: the kernel chooses an address that is free.
    let at = unsafe { call!(libc::SYS_shmat, id, 0, 0) };
    // Attached memory is removed when it is detached everywhere.
    // SAFETY: no memory is touched.
    let _ = unsafe { call!(libc::SYS_shmctl, id, libc::IPC_RMID, 0) };
    at.map(|at| (id, at as *mut c_void))
}

/// The kernel's word on shared memory with this number: its length, and the user who has made it.
pub(crate) fn about_memory(id: u32) -> Option<(u64, u32)> {
    // SAFETY: zeros are a value of this type, and the kernel writes one such structure.
    let about: libc::shmid_ds = unsafe {
        let mut about = std::mem::zeroed();
        call!(libc::SYS_shmctl, id, libc::IPC_STAT, &raw mut about).ok()?;
        about
    };
    let same = about.shm_perm.uid == about.shm_perm.cuid;
    same.then_some((about.shm_segsz as u64, about.shm_perm.cuid))
}

/// Attach `length` bytes of shared memory that another process has made. `EINVAL`: it is of huge pages, which may
/// be lacking when they are touched, and that is SIGBUS. The kernel attaches such memory to no address that is not
/// a multiple of its pages.
pub(crate) fn attach_memory(id: u32, length: usize) -> Result<*mut c_void, Errno> {
    count_attached(length)?;
    let attached = attach(id, length);
    if attached.is_err() {
        ATTACHED.fetch_sub(length, Ordering::Relaxed);
    }
    attached
}

fn attach(id: u32, length: usize) -> Result<*mut c_void, Errno> {
    const PAGE: usize = 4096;
    const SMALLEST_HUGE: usize = 2 << 20;
    let length = length.next_multiple_of(PAGE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the kernel chooses an address that is free, for a page more than is attached. What is attached
    // takes the place of this mapping, and the page left over, at either end, is given back.
    unsafe {
        let room = call!(libc::SYS_mmap, 0, length + PAGE, libc::PROT_NONE, flags, -1_isize, 0)?;
        let begins_huge = room.is_multiple_of(SMALLEST_HUGE);
        let (at, left) = if begins_huge { (room + PAGE, room) } else { (room, room + length) };
        let attached = call!(libc::SYS_shmat, id, at, libc::SHM_REMAP);
        match attached {
            Ok(_) => unmap(left as *mut c_void, PAGE),
            Err(_) => unmap(room as *mut c_void, length + PAGE),
        }
        attached.map(|at| at as *mut c_void)
    }
}

/// How many pieces of shared memory there are, of how many there can be, in this host's namespace.
pub(crate) fn count_of_memory() -> Option<(u64, u64)> {
    // The system's numbers come as five words and six, the second of which are counts.
    let (mut limits, mut now) = ([0_u64; 16], [0_u64; 16]);
    // SAFETY: the kernel writes fewer words than the arrays have.
    unsafe {
        call!(libc::SYS_shmctl, 0, libc::IPC_INFO, limits.as_mut_ptr()).ok()?;
        call!(libc::SYS_shmctl, 0, SHM_INFO, now.as_mut_ptr()).ok()?;
    }
    Some((now[0] & 0xFFFF_FFFF, limits[2]))
}

pub(crate) fn pid() -> u32 {
    // SAFETY: no memory is touched.
    unsafe { call!(libc::SYS_getpid) }.unwrap_or_default() as u32
}

/// A number that no other process has.
pub(crate) fn random() -> u64 {
    let mut bytes = [0_u8; 8];
    // SAFETY: the array has as many bytes as it says.
    let got = unsafe { call!(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), 0) };
    let otherwise = now() ^ u64::from(pid()) << 40;
    if got == Ok(bytes.len()) { u64::from_ne_bytes(bytes) } else { otherwise }
}

pub(crate) fn tid() -> u32 {
    // SAFETY: no memory is touched.
    unsafe { call!(libc::SYS_gettid) }.unwrap_or_default() as u32
}

pub(crate) use transom_os::users::own as user;

/// Whether a user, as the kernel has named it, is this process's.
pub(crate) fn is_ours(owner: u32) -> bool {
    transom_os::users::is_ours_with(read_beginning, owner)
}

/// Whether a folder is this user's, of which the kernel says that its owner is `owner`.
pub(crate) fn owns(folder: &CStr, owner: u32) -> bool {
    if owner != user() || !transom_os::users::is_ambiguous(read_beginning, owner) {
        return owner == user();
    }
    let Ok(fd) = open(folder, libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC, 0) else {
        return false;
    };
    let owns = transom_os::users::may_change(fd);
    close(fd);
    owns
}

/// Read the beginning of a file: how many bytes.
fn read_beginning(path: &CStr, to: &mut [u8]) -> usize {
    let Ok(fd) = open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0) else { return 0 };
    let count = read(fd, to);
    close(fd);
    count.unwrap_or(0)
}

/// Whether there is a process or thread with this number.
pub(crate) fn lives(id: u32) -> bool {
    // SAFETY: no memory is touched.
    let found = unsafe { call!(libc::SYS_kill, id as c_int, 0) };
    found != Err(libc::ESRCH)
}

/// The signal of a write to a connection that is gone, to this thread.
pub(crate) fn raise_pipe() {
    // SAFETY: no memory is touched.
    let _ = unsafe { call!(libc::SYS_tgkill, pid(), tid(), libc::SIGPIPE) };
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one such structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn timespec(nanoseconds: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as i64,
        tv_nsec: (nanoseconds % 1_000_000_000) as i64,
    }
}

/// Sleep while the word, which other processes may share, has this value. As with `recv`, a signal
/// whose handler was installed with SA_RESTART does not end the sleep.
pub(crate) fn sleep_on(word: &AtomicU32, value: u32, limit: Duration) -> Result<(), Errno> {
    /// `struct futex_waitv` of the kernel.
    #[repr(C)]
    struct Waiter {
        value: u64,
        at: u64,
        flags: u32,
        reserved: u32,
    }
    const FUTEX_32: u32 = 2;
    let waiter = Waiter {
        value: u64::from(value),
        at: std::ptr::from_ref(word) as u64,
        flags: FUTEX_32,
        reserved: 0,
    };
    let until = timespec(now() + limit.as_nanos() as u64);
    // SAFETY: the kernel reads the waiter, the time and the word.
    let done = unsafe {
        call!(
            libc::SYS_futex_waitv,
            &raw const waiter,
            1,
            0,
            &raw const until,
            libc::CLOCK_MONOTONIC
        )
    };
    match done {
        Ok(_) | Err(libc::EAGAIN) => Ok(()),
        Err(libc::ENOSYS) => short_sleep(word, value),
        Err(error) => Err(error),
    }
}

/// As [`sleep_on`], but a signal whose handler runs ends the sleep, whatever flags it was installed with, as
/// with `poll`.
pub(crate) fn sleep_until_signal(
    word: &AtomicU32,
    value: u32,
    limit: Duration,
) -> Result<(), Errno> {
    let limit = timespec(limit.as_nanos() as u64);
    let at = std::ptr::from_ref(word);
    // SAFETY: the kernel reads the word and the time.
    match unsafe { call!(libc::SYS_futex, at, libc::FUTEX_WAIT, value, &raw const limit) } {
        Ok(_) | Err(libc::EAGAIN) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Without `futex_waitv` (before Linux 5.16): a short sleep, which signals do not end.
#[cold]
fn short_sleep(word: &AtomicU32, value: u32) -> Result<(), Errno> {
    let limit = timespec(5_000_000);
    let at = std::ptr::from_ref(word);
    // SAFETY: the kernel reads the word and the time.
    match unsafe { call!(libc::SYS_futex, at, libc::FUTEX_WAIT, value, &raw const limit) } {
        Err(libc::ETIMEDOUT) => Err(libc::ETIMEDOUT),
        _ => Ok(()),
    }
}

pub(crate) fn wake(word: &AtomicU32, most: i32) {
    let at = std::ptr::from_ref(word);
    // SAFETY: the kernel looks at the address only.
    let _ = unsafe { call!(libc::SYS_futex, at, libc::FUTEX_WAKE, most) };
}

pub(crate) fn option<T>(fd: c_int, level: c_int, name: c_int) -> Result<T, Errno>
where
    T: Copy + Default,
{
    let mut value = T::default();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into a value of plain numbers.
    unsafe {
        call!(libc::SYS_getsockopt, fd, level, name, &raw mut value, &raw mut length)?;
    }
    Ok(value)
}

pub(crate) fn set_option(fd: c_int, level: c_int, name: c_int, value: c_int) {
    let length = size_of::<c_int>();
    // SAFETY: the kernel reads one number.
    let _ = unsafe { call!(libc::SYS_setsockopt, fd, level, name, &raw const value, length) };
}

/// Congestion control without pacing, which every kernel allows every user.
pub(crate) fn set_reno(fd: c_int) {
    let name = b"reno";
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
    // SAFETY: the kernel reads the name.
    let _ = unsafe { call!(libc::SYS_setsockopt, fd, level, option, name.as_ptr(), name.len()) };
}

/// The name of a socket's congestion control, padded with zeros.
pub(crate) fn congestion(fd: c_int) -> [u8; 16] {
    option(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION).unwrap_or_default()
}

/// The time of day.
pub(crate) fn time_of_day() -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one such structure.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    time
}

pub(crate) fn socket(family: c_int, kind: c_int, protocol: c_int) -> Result<c_int, Errno> {
    // SAFETY: no memory is touched.
    unsafe { call!(libc::SYS_socket, family, kind | libc::SOCK_CLOEXEC, protocol) }
        .map(|fd| fd as c_int)
}

/// `getsockname` or `getpeername`: the address, and how long it is.
pub(crate) fn name(fd: c_int, number: c_long) -> Result<([u8; 128], usize), Errno> {
    let mut bytes = [0; 128];
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes.
    unsafe { call!(number, fd, bytes.as_mut_ptr(), &raw mut length)? };
    Ok((bytes, (length as usize).min(128)))
}

pub(crate) fn bind(fd: c_int, address: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel reads the slice.
    unsafe { call!(libc::SYS_bind, fd, address.as_ptr(), address.len()) }
}

pub(crate) fn send(fd: c_int, bytes: &[u8], flags: c_int) -> Result<usize, Errno> {
    // SAFETY: the kernel reads the slice.
    unsafe { call!(libc::SYS_sendto, fd, bytes.as_ptr(), bytes.len(), flags, 0, 0) }
}

pub(crate) fn receive(fd: c_int, bytes: &mut [u8], flags: c_int) -> Result<usize, Errno> {
    // SAFETY: the kernel writes into the slice.
    unsafe { call!(libc::SYS_recvfrom, fd, bytes.as_mut_ptr(), bytes.len(), flags, 0, 0) }
}

/// # Safety
/// The message is one that `recvmsg` may fill.
pub(crate) unsafe fn receive_message(
    fd: c_int,
    message: *mut libc::msghdr,
    flags: c_int,
) -> Result<usize, Errno> {
    // SAFETY: the caller's.
    unsafe { call!(libc::SYS_recvmsg, fd, message, flags) }
}

/// # Safety
/// The message is one that `sendmsg` may read.
pub(crate) unsafe fn send_message(
    fd: c_int,
    message: *const libc::msghdr,
    flags: c_int,
) -> Result<usize, Errno> {
    // SAFETY: the caller's.
    unsafe { call!(libc::SYS_sendmsg, fd, message, flags) }
}

pub(crate) fn shutdown(fd: c_int, how: c_int) -> Result<usize, Errno> {
    // SAFETY: no memory is touched.
    unsafe { call!(libc::SYS_shutdown, fd, how) }
}

pub(crate) fn status_flags(fd: c_int) -> Result<c_int, Errno> {
    // SAFETY: no memory is touched.
    unsafe { call!(libc::SYS_fcntl, fd, libc::F_GETFL) }.map(|flags| flags as c_int)
}

/// `ppoll`; `limit` in nanoseconds, none for ever. Eight bytes of signal mask, or none.
pub(crate) fn poll(
    fds: &mut [libc::pollfd],
    limit: Option<u64>,
    mask: *const c_void,
) -> Result<usize, Errno> {
    let time = limit.map(timespec);
    let at = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the kernel writes the slice; the mask is the caller's, eight bytes or null.
    unsafe { call!(libc::SYS_ppoll, fds.as_mut_ptr(), fds.len(), at, mask, 8) }
}

/// `epoll_pwait2`, or `epoll_pwait` where the kernel has no such call.
///
/// # Safety
/// `events` has room for `most` events, and the mask is eight bytes or null.
pub(crate) unsafe fn epoll_wait(
    fd: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    limit: Option<u64>,
    mask: *const c_void,
) -> Result<usize, Errno> {
    let milliseconds = match limit {
        None => -1,
        Some(0) => 0,
        Some(limit) => {
            let time = timespec(limit);
            // SAFETY: as of this function.
            let done = unsafe {
                call!(libc::SYS_epoll_pwait2, fd, events, most, &raw const time, mask, 8)
            };
            if done != Err(libc::ENOSYS) {
                return done;
            }
            limit.div_ceil(1_000_000).min(i32::MAX as u64) as i32
        }
    };
    // SAFETY: as of this function.
    unsafe { call!(libc::SYS_epoll_pwait, fd, events, most, milliseconds, mask, 8) }
}

/// `epoll_ctl`.
pub(crate) fn epoll_control(
    set: c_int,
    what: c_int,
    fd: c_int,
    events: u32,
    data: u64,
) -> Result<usize, Errno> {
    let event = libc::epoll_event { events, u64: data };
    // SAFETY: the kernel reads one event.
    unsafe { call!(libc::SYS_epoll_ctl, set, what, fd, &raw const event) }
}

/// `struct tcp_info`, up to what is used.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct TcpInfo([u64; 27]);

/// The state of a TCP connection.
pub(crate) struct Tcp {
    /// Both sides have it open in both directions. A side that is done with one direction only says so in
    /// the segment.
    pub(crate) established: bool,
    /// `None`: the kernel does not say.
    pub(crate) counts: Option<Counts>,
}

/// Bytes that were ever written to and received by a TCP socket, read or not.
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// Look at a TCP connection. `None`: there is none.
pub(crate) fn look_at_tcp(fd: c_int) -> Option<Tcp> {
    const ESTABLISHED: u64 = 1;
    /// The peer has ended its direction, which counts as a byte; or may have, before a reset that a doorbell on its
    /// way has brought about (7).
    const ENDED: [u64; 4] = [7, 8, 9, 11];
    let mut info = TcpInfo::default();
    let mut length = size_of::<TcpInfo>() as libc::socklen_t;
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    // SAFETY: the kernel writes at most `length` bytes of plain numbers.
    unsafe {
        call!(libc::SYS_getsockopt, fd, level, name, &raw mut info, &raw mut length).ok()?;
    }
    let word = |at: usize| info.0[at / 8];
    let state = word(0) & 0xFF;
    let not_sent = word(144) & 0xFFFF_FFFF;
    let counts = || {
        let sent = word(200).checked_sub(word(208))? + not_sent;
        let received = word(128).checked_sub(u64::from(ENDED.contains(&state)))?;
        Some(Counts { sent, received })
    };
    let known = length as usize >= size_of::<TcpInfo>();
    Some(Tcp { established: state == ESTABLISHED, counts: known.then(counts).flatten() })
}

/// End a TCP connection at once, with a reset.
pub(crate) fn reset(fd: c_int) {
    let none = [0_u8; 16];
    // SAFETY: the kernel reads an address of the family AF_UNSPEC.
    let _ = unsafe { call!(libc::SYS_connect, fd, none.as_ptr(), none.len()) };
}

/// Bytes that lie unread in a socket.
pub(crate) fn unread(fd: c_int) -> u64 {
    let mut count: c_int = 0;
    // SAFETY: the kernel writes one number.
    let _ = unsafe { call!(libc::SYS_ioctl, fd, libc::FIONREAD, &raw mut count) };
    count.max(0) as u64
}

/// Whether the next byte of a TCP connection is an urgent one (sockatmark(3)).
pub(crate) fn is_at_mark(fd: c_int) -> bool {
    const SIOCATMARK: c_int = 0x8905;
    let mut at_mark: c_int = 0;
    // SAFETY: the kernel writes one number.
    let _ = unsafe { call!(libc::SYS_ioctl, fd, SIOCATMARK, &raw mut at_mark) };
    at_mark != 0
}

/// Processors that this thread may run on.
pub(crate) fn processors() -> usize {
    let mut mask = [0_u64; 128];
    // SAFETY: the kernel writes at most the array.
    let done =
        unsafe { call!(libc::SYS_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr()) };
    if done.is_err() { 1 } else { mask.iter().map(|word| word.count_ones() as usize).sum() }
}

/// A page of zeros that is zero again in the child of a fork.
pub(crate) fn page_wiped_on_fork() -> Option<*mut AtomicU32> {
    const MADV_WIPEONFORK: usize = 18;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the kernel chooses an address that is free; the advice is for this page only.
    unsafe {
        let page = call!(libc::SYS_mmap, 0, 4096, rights, flags, -1_isize, 0).ok()?;
        call!(libc::SYS_madvise, page, 4096, MADV_WIPEONFORK).ok()?;
        Some(page as *mut AtomicU32)
    }
}

/// A page of zeros that children of a fork share.
pub(crate) fn shared_page() -> Option<*mut c_void> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: the kernel chooses an address that is free.
    let page = unsafe { call!(libc::SYS_mmap, 0, 4096, rights, flags, -1_isize, 0) };
    page.ok().map(|at| at as *mut c_void)
}

/// End a system call of a thread of this process by the signal with which the C library cancels threads, whose handler
/// leaves alone a thread that allows no end at any moment. `false`: the C library has no such handler.
pub(crate) fn interrupt_for_cancel(thread: u32) -> bool {
    /// The kernel's `struct sigaction`.
    #[repr(C)]
    #[derive(Default)]
    struct Action {
        handler: usize,
        flags: usize,
        restorer: usize,
        mask: u64,
    }
    const SIGCANCEL: c_int = 32;
    let mut action = Action::default();
    let (at, size) = (&raw mut action, size_of::<u64>());
    // SAFETY: the kernel writes and reads one such structure; a signal with a handler of the C library's ends nothing.
    unsafe {
        let known = call!(libc::SYS_rt_sigaction, SIGCANCEL, 0, at, size).is_ok();
        if !known || matches!((*at).handler, libc::SIG_DFL | libc::SIG_IGN) {
            return false;
        }
        let restarts = libc::SA_RESTART as usize;
        if (*at).flags & restarts != 0 {
            (*at).flags &= !restarts;
            let _ = call!(libc::SYS_rt_sigaction, SIGCANCEL, at, 0, size);
        }
        call!(libc::SYS_tgkill, pid(), thread, SIGCANCEL).is_ok()
    }
}

pub(crate) fn yield_now() {
    // SAFETY: no memory is touched.
    let _ = unsafe { call!(libc::SYS_sched_yield) };
}

/// Let no signal reach this thread; the mask before.
pub(crate) fn block_signals() -> u64 {
    let (all, mut before) = (u64::MAX, 0_u64);
    // SAFETY: the kernel reads one mask of eight bytes and writes one.
    let _ = unsafe {
        call!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, &raw mut before, 8)
    };
    before
}

/// The end of [`block_signals`].
pub(crate) fn restore_signals(mask: u64) {
    // SAFETY: the kernel reads one mask of eight bytes.
    let _ = unsafe { call!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, 0, 8) };
}

/// The position of a file.
pub(crate) fn position(fd: c_int) -> Result<i64, Errno> {
    // SAFETY: no memory is touched.
    unsafe { call!(libc::SYS_lseek, fd, 0, libc::SEEK_CUR) }.map(|at| at as i64)
}

pub(crate) fn set_position(fd: c_int, at: i64) {
    // SAFETY: no memory is touched.
    let _ = unsafe { call!(libc::SYS_lseek, fd, at, libc::SEEK_SET) };
}

pub(crate) fn read_at(fd: c_int, to: &mut [u8], at: i64) -> Result<usize, Errno> {
    // SAFETY: the kernel writes into the slice.
    unsafe { call!(libc::SYS_pread64, fd, to.as_mut_ptr(), to.len(), at) }
}

/// Whether the limit of file sizes lets this process write so far into a file.
pub(crate) fn may_write(length: u64) -> bool {
    limit_of(libc::RLIMIT_FSIZE) >= length
}

/// A limit of this process, `u64::MAX` if there is none.
fn limit_of(which: libc::__rlimit_resource_t) -> u64 {
    let mut limits = [u64::MAX; 2];
    // SAFETY: the kernel writes two numbers.
    let _ = unsafe { call!(libc::SYS_prlimit64, 0, which, 0, limits.as_mut_ptr()) };
    limits[0]
}

/// As [`write_quietly`], at a place of a file.
pub(crate) fn write_at(fd: c_int, from: &[u8], at: i64) -> Result<usize, Errno> {
    transom_os::signals::without_signals(|| {
        // SAFETY: the kernel reads from the slice.
        unsafe { call!(libc::SYS_pwrite64, fd, from.as_ptr(), from.len(), at) }
    })
}

pub(crate) fn splice(from: c_int, to: c_int, count: usize, flags: u32) -> Result<usize, Errno> {
    // SAFETY: no memory is touched.
    unsafe { call!(libc::SYS_splice, from, 0, to, 0, count, flags) }
}
