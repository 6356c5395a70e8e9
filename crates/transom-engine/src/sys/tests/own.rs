//! Tests of what only this system has: signals, the maps file, descriptors, tables of sockets.

use super::tests::{pair, put};
use super::vanishing::{PAGE, Pages};
use super::*;
use std::net::{IpAddr, SocketAddr};

/// By the kernel's word about one socket, and by its table of all of them.
pub(super) fn ways_to_know_a_peer() -> Vec<fn(SocketAddr, SocketAddr) -> bool> {
    vec![peer_is_same_user, super::identity::is_in_the_table]
}

/// Addresses of this machine at each of which a socket without an address answers as that address.
pub(super) const ADDRESSES: [&str; 2] = ["127.0.0.1", "127.0.0.2"];

/// Fields of a header that a sender chooses.
pub(super) const FIELDS: [IpFields; 2] =
    [IpFields { traffic_class: 0xb8, hop_limit: 7 }, IpFields { traffic_class: 4, hop_limit: 0 }];

/// Whether the destination of a message to `address` is named as it should be.
pub(super) fn is_named(destination: IpAddr, address: IpAddr) -> bool {
    destination == address
}

#[test]
fn a_stream_knows_its_segments_and_its_congestion_control() {
    let (active, ..) = pair();
    assert!(active.segment_size().unwrap() > 500);
    assert_eq!(active.congestion().as_deref(), Some("cubic"));
}

/// Run this very test again in a process of its own, because signal handlers are the process's.
/// `None`: this is that process.
fn in_a_process(test: &str) -> Option<std::process::ExitStatus> {
    if std::env::var_os("TRANSOM_TEST_CHILD").is_some() {
        return None;
    }
    let name = format!("sys::own_tests::{test}");
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &name]).env("TRANSOM_TEST_CHILD", "1");
    Some(child.output().unwrap().status)
}

/// Faults that are not ours go to the handler installed before.
#[test]
fn foreign_faults_reach_the_previous_handler() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn theirs(_: i32) {
        SEEN.fetch_add(1, Ordering::Relaxed);
    }
    if let Some(status) = in_a_process("foreign_faults_reach_the_previous_handler") {
        assert!(status.success(), "{status}");
        return;
    }
    // A program that installs its own handler after ours: we go on top at the next registration.
    // SAFETY: a complete action whose handler only counts; raise is a plain call.
    unsafe {
        recheck_fault_handler();
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = theirs as *const () as usize;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
        recheck_fault_handler();
        libc::raise(libc::SIGBUS);
    }
    assert_eq!(SEEN.load(Ordering::Relaxed), 1);
    let pages = Pages::of_file(PAGE as u64);
    assert_eq!(put(pages.at(PAGE - 1), &[1; 2]), Err(Fault { placed: 1 }));
    assert_eq!(SEEN.load(Ordering::Relaxed), 1, "our own fault was none of their business");
}

/// Services block every signal in their threads, and take them by sigwait(3). A fault that meets a block ends the
/// process, whatever handlers there are. A signal that a process has sent stays blocked.
#[test]
fn threads_that_block_every_signal_survive_faults() {
    if let Some(status) = in_a_process("threads_that_block_every_signal_survive_faults") {
        assert!(status.success(), "{status}");
        return;
    }
    let block_all = || {
        // SAFETY: plain calls on a set of this function.
        unsafe {
            let mut all = std::mem::zeroed::<libc::sigset_t>();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
        }
    };
    let copy = || {
        for (way, make) in super::vanishing::WAYS {
            let pages = make();
            assert_eq!(put(pages.at(PAGE - 1), &[1; 2]), Err(Fault { placed: 1 }), "{way}");
            let mut room = [0; 2];
            // SAFETY: what is not there faults.
            let out = unsafe { copy_out(pages.at(PAGE - 1), &mut room) };
            assert_eq!(out, Err(Fault { placed: 1 }), "{way}");
        }
    };
    // The handler is installed by the first of them, and is there for the second one.
    for _ in 0..2 {
        let thread = std::thread::spawn(move || {
            block_all();
            copy();
        });
        thread.join().unwrap();
    }
    let thread = std::thread::spawn(move || {
        block_all();
        // SAFETY: plain calls; the signal is blocked, and pending from now on.
        unsafe {
            libc::pthread_kill(libc::pthread_self(), libc::SIGBUS);
            assert!(copy_out(0, &mut [0]).is_err());
            let mut pending = std::mem::zeroed::<libc::sigset_t>();
            libc::sigpending(&raw mut pending);
            assert_eq!(libc::sigismember(&raw const pending, libc::SIGBUS), 1);
        }
    });
    thread.join().unwrap();
}

/// The arenas of `malloc` other than the first, which begin at multiples of 64 MiB.
fn arenas() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let begins = |line: &str| u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    maps.lines().filter(|line| begins(line) % (64 << 20) == 0).count()
}

/// A thread that is still making its arena is in `munmap`, which other libraries write over.
#[test]
fn a_thread_has_its_arena_when_its_start_returns() {
    if let Some(status) = in_a_process("a_thread_has_its_arena_when_its_start_returns") {
        assert!(status.success(), "{status}");
        return;
    }
    // On one processor, a new thread begins when this one waits.
    // SAFETY: plain calls on a local set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        libc::CPU_SET(usize::try_from(libc::sched_getcpu()).unwrap(), &mut set);
        assert_eq!(libc::sched_setaffinity(0, size, &raw const set), 0);
    }
    let mut ends = Vec::new();
    for _ in 0..8 {
        let (say, said) = std::sync::mpsc::channel::<()>();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = spawn_quiet("test", move || {
            say.send(()).unwrap();
            let _ = ended.recv();
        });
        let before = arenas();
        said.recv().unwrap();
        assert_eq!(arenas(), before);
        ends.push((end, thread.unwrap()));
    }
    for (end, thread) in ends {
        end.send(()).unwrap();
        thread.join().unwrap();
    }
}

/// A program that dereferences a wild pointer still dies of it.
#[test]
fn a_crash_of_the_program_is_still_a_crash() {
    use std::os::unix::process::ExitStatusExt;
    if let Some(status) = in_a_process("a_crash_of_the_program_is_still_a_crash") {
        assert_eq!(status.signal(), Some(libc::SIGSEGV));
        return;
    }
    assert!(put(0, &[1]).is_err());
    // SAFETY: deliberately not: address 16 is never mapped, and the process dies here.
    unsafe { std::ptr::without_provenance_mut::<u8>(16).write_volatile(1) };
}

/// ND2 R9, by the kernel's query and by the text of the maps file alike.
#[test]
fn ranges_without_the_needed_memory_are_refused() {
    type Check = fn(u64, u64, bool) -> Result<(), PageError>;
    let checks: [Check; 2] =
        [check_pages, |at, length, write| super::pages::check_by_text([(at, length)], write)];
    for check in checks {
        let pages = Pages::new();
        let (at, second) = (pages.at(0), pages.at(PAGE));
        assert_eq!(check(at, 2 * PAGE as u64, true), Ok(()));
        pages.protect_second(true);
        assert_eq!(check(at, 2 * PAGE as u64, false), Ok(()));
        assert_eq!(check(at, PAGE as u64, true), Ok(()));
        assert_eq!(check(at, PAGE as u64 + 1, true), Err(PageError::ReadOnly { at: second }));
        pages.protect_second(false);
        assert_eq!(check(second, 1, false), Err(PageError::NoAccess { at: second }));
        pages.unmap_second();
        assert_eq!(check(at, PAGE as u64 + 1, false), Err(PageError::Hole { at: second }));
        assert_eq!(check(u64::MAX - 10, 100, false), Err(PageError::Hole { at: u64::MAX - 10 }));
    }
}

/// A descriptor that other code closed is a dead link, not a panic.
#[test]
fn a_closed_descriptor_is_an_error() {
    use rustix::fd::AsRawFd;
    let bell = Doorbell::new().unwrap();
    let fd = Fd::from(rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    // A number that nothing else of this process uses, so that closing it harms no other test.
    // SAFETY: duplicates a descriptor of ours to a number far above any other, then closes that.
    let far = unsafe {
        let far = libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 900);
        libc::close(far);
        <rustix::fd::OwnedFd as rustix::fd::FromRawFd>::from_raw_fd(far)
    };
    let closed = Fd::from(far);
    assert!(rustix::io::write(&closed, b"x").is_err());
    bell.ring();
    poll_any(&[(&closed, false)], &bell, None).unwrap();
    drop(closed);
}
