//! Time, randomness, threads, forks.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use transom_wire::Time;

/// Monotonic time.
#[must_use]
pub fn now() -> Time {
    let (seconds, nanos) = read(libc::CLOCK_MONOTONIC);
    Time(seconds.saturating_mul(1_000_000_000).saturating_add(u64::from(nanos)))
}

/// CPU time that this process has used, in all threads.
#[cfg(test)]
pub(crate) fn cpu_time() -> Duration {
    let (seconds, nanos) = read(libc::CLOCK_PROCESS_CPUTIME_ID);
    Duration::new(seconds, nanos)
}

/// CPU time that this thread has used.
pub fn thread_time() -> Duration {
    let (seconds, nanos) = read(libc::CLOCK_THREAD_CPUTIME_ID);
    Duration::new(seconds, nanos)
}

/// A clock of this process, by the C library's call: rustix reads the vDSO itself, which valgrind hides, and a
/// program under it would be told of an invalid read.
fn read(clock: libc::clockid_t) -> (u64, u32) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is this function's own.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// How many descriptors this process may have, if that is limited.
#[must_use]
pub fn descriptor_limit() -> Option<usize> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.and_then(|n| usize::try_from(n).ok())
}

/// How many descriptors this process has, if the kernel says so (Linux 6.2).
#[must_use]
pub(crate) fn descriptors_in_use() -> Option<usize> {
    let about = rustix::fs::stat("/proc/self/fd").ok()?;
    usize::try_from(about.st_size).ok().filter(|count| *count > 0)
}

/// How many bytes of address space this process may have, if that is limited.
#[must_use]
pub(crate) fn address_space_limit() -> Option<usize> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As);
    limit.current.and_then(|n| usize::try_from(n).ok())
}

/// Unpredictable bytes. `Err` if the kernel has none, which no supported kernel says.
///
/// # Errors
/// The error of the system.
pub fn random_seed() -> std::io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    let mut filled = 0;
    while filled < seed.len() {
        let Some(rest) = seed.get_mut(filled..) else { break };
        match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(seed)
}

static FORKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn before() {
    super::fd::before_fork();
}

extern "C" fn in_parent() {
    super::fd::after_fork();
}

extern "C" fn in_child() {
    super::fd::close_all();
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// How many forks lie between this process and the one that asked first. A handle made in another
/// generation belongs to the parent: its threads, its sockets' other ends, its memory.
#[must_use]
pub fn fork_generation() -> u64 {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the callbacks use atomics; the first one sleeps, and the child's closes descriptors, which is
        // allowed there.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

/// How long a thread that starts may take to say that it has.
const STARTS_WITHIN: Duration = Duration::from_secs(1);

/// Start a thread that takes no signal of the program's: all are blocked, except those that the
/// kernel raises for the thread's own instructions (blocked, they would kill).
///
/// The thread has its own arena of `malloc` when this returns. An arena begins with `munmap`, and
/// libfabric and UCX write over the first instructions of `munmap`, `madvise` and `brk` when they open a
/// domain, right behind the device: a thread that was in there died of SIGSEGV. A constructor of a
/// library may hold the loader's lock, which a new thread needs first, so the wait has an end.
///
/// # Errors
/// The error of the system, which has no thread.
pub fn spawn_quiet<F: FnOnce() + Send + 'static>(
    name: &str,
    work: F,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let (started, starts) = std::sync::mpsc::sync_channel(1);
    // SAFETY: plain signal-set calls on local sets; the caller's mask is put back below.
    let before = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        for own in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP] {
            libc::sigdelset(&raw mut set, own);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, &raw mut before);
        before
    };
    let thread = transom_os::threads::builder().name(name.to_owned()).spawn(move || {
        std::hint::black_box(Box::new(0_u8));
        let _ = started.send(());
        work();
    });
    // SAFETY: `before` was filled in above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    if thread.is_ok() {
        let _ = starts.recv_timeout(STARTS_WITHIN);
    }
    thread
}

/// Let others run for a while. No lock may be held.
pub fn pause(length: std::time::Duration) {
    std::thread::sleep(length);
}

/// The name of the file that this process runs.
pub(crate) fn program() -> String {
    let file = std::env::current_exe().ok();
    let name = file.as_ref().and_then(|file| file.file_name());
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The machine's name.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
