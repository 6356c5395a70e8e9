//! Calls of several processes and threads, signals, and the end of the connection.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::calls::{MOST, message};
use super::world::{World, digest, errno, handle, on_signal, pattern, polled, until};

/// A child makes a call on what it has inherited.
pub(crate) fn forks(world: &mut World) {
    let end = world.random.below(2);
    let fd = world.fd(end);
    let sends = world.random.chance(2);
    let length = 1 + world.random.below(2000);
    if sends && world.ends[1 - end].unread > MOST / 2 {
        return;
    }
    let bytes = pattern(world.ends[end].position, length);
    let [from_pipe, to_pipe] = world.pipe;
    // SAFETY: the child makes system calls only, and ends.
    let done = unsafe {
        let child = libc::fork();
        if child == 0 {
            let mut room = [0_u8; 2000];
            let done = if sends {
                libc::send(
                    fd,
                    bytes.as_ptr().cast(),
                    length,
                    libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
                )
            } else {
                libc::recv(fd, room.as_mut_ptr().cast(), length, libc::MSG_DONTWAIT)
            };
            let sum = room
                .iter()
                .fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
            let answer =
                [done as i64, i64::from(if done < 0 { errno() } else { 0 }), sum.cast_signed()];
            libc::write(to_pipe, answer.as_ptr().cast(), 24);
            libc::_exit(0);
        }
        let mut status = 0;
        libc::waitpid(child, &raw mut status, 0);
        let mut answer = [0_i64; 3];
        libc::read(from_pipe, answer.as_mut_ptr().cast(), 24);
        world.say(&format!("{end} child, sends {sends} {length}"), &format!("{status} {answer:?}"));
        answer[0].max(0) as usize
    };
    if sends {
        world.ends[end].position += done;
        world.ends[1 - end].unread += done;
    } else {
        world.ends[end].unread -= done;
    }
}

/// The state of a thread: S, it sleeps.
fn sleeps(thread: c_int) -> bool {
    let about =
        std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    about.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
}

/// A signal comes while a call waits; then bytes do, which end one that goes on (signal(7)).
pub(crate) fn is_interrupted(world: &mut World) {
    let end = world.random.below(2);
    let (this, other) = (&world.ends[end], &world.ends[1 - end]);
    if this.unread > 0 || this.nonblocking || this.deaf || other.finished || this.low_water > 1 {
        return;
    }
    let (fd, peer) = (world.fd(end), world.fd(1 - end));
    let (restart, limited) = (world.random.chance(2), world.random.chance(2));
    let which = world.random.below(6);
    handle(libc::SIGUSR1, on_signal, if restart { libc::SA_RESTART } else { 0 });
    let set_limit = |seconds: i64| {
        let time = libc::timeval { tv_sec: seconds, tv_usec: 0 };
        // SAFETY: one time.
        unsafe {
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const time).cast(), 16)
        };
    };
    set_limit(if limited { 100 } else { 0 });
    let ends = which > 2 || !restart || limited;
    // SAFETY: the calls have the room that they are told, and the other thread ends before the world does.
    unsafe {
        let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid) as c_int);
        let over = AtomicBool::new(false);
        let mut done = 0;
        let mut error = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                until(|| sleeps(thread) || over.load(Ordering::Acquire));
                libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1);
                if ends {
                    // A signal between two sleeps of a call does not end it.
                    while !over.load(Ordering::Acquire) {
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        if !over.load(Ordering::Acquire) && sleeps(thread) {
                            libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1);
                        }
                    }
                } else {
                    until(|| sleeps(thread) || over.load(Ordering::Acquire));
                }
                libc::send(peer, b"after".as_ptr().cast(), 5, 0);
            });
            let mut room = [0_u8; 3];
            let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            done = match which {
                0 => libc::recv(fd, room.as_mut_ptr().cast(), 3, 0),
                1 => libc::read(fd, room.as_mut_ptr().cast(), 3),
                2 => {
                    let mut vector =
                        [libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: 3 }];
                    libc::recvmsg(fd, &mut message(&mut vector), 0)
                }
                3 => libc::poll(&raw mut one, 1, -1) as isize,
                4 => {
                    let mut set: libc::fd_set = std::mem::zeroed();
                    libc::FD_SET(fd, &raw mut set);
                    let none = std::ptr::null_mut();
                    libc::select(fd + 1, &raw mut set, none, none, std::ptr::null_mut()) as isize
                }
                _ => {
                    let set = libc::epoll_create1(0);
                    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 1 };
                    libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &raw mut event);
                    let done = libc::epoll_wait(set, &raw mut event, 1, -1);
                    error = errno();
                    libc::close(set);
                    done as isize
                }
            };
            error = if which < 5 { errno() } else { error };
            over.store(true, Ordering::Release);
        });
        set_limit(0);
        let taken = if which < 3 { done.max(0) as usize } else { 0 };
        world.ends[end].unread += 5 - taken;
        let error = if done < 0 { error } else { 0 };
        world.say(
            &format!("{end} signal {which} restart {restart} limit {limited}"),
            &format!("{done} errno {error}"),
        );
    }
}

/// A thread sends more than a buffer has room for, while another one receives it.
pub(crate) fn has_two_threads(world: &mut World) {
    let end = world.random.below(2);
    let (this, other) = (&world.ends[end], &world.ends[1 - end]);
    if this.finished || other.deaf || other.fds.is_empty() || other.low_water > 1 {
        return;
    }
    let (from, to) = (world.fd(end), world.fd(1 - end));
    let length = world.random.one(&[1000, 100_000, 700_000]);
    let (piece, how) = (world.random.one(&[900, 20_000, 1_000_000]), world.random.below(3));
    let bytes = pattern(world.ends[end].position, length);
    let unread = world.ends[1 - end].unread;
    let mut got = Vec::new();
    let failed = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut done = 0;
            while done < length {
                let rest = &bytes[done..length.min(done + piece)];
                // SAFETY: the slice has so many bytes.
                match unsafe {
                    libc::send(from, rest.as_ptr().cast(), rest.len(), libc::MSG_NOSIGNAL)
                } {
                    sent @ 0.. => done += sent.cast_unsigned(),
                    _ if errno() == libc::EAGAIN => {
                        until(|| polled(from, libc::POLLOUT) != 0);
                    }
                    _ => return failed.store(errno().cast_unsigned(), Ordering::Relaxed),
                }
            }
        });
        let mut room = vec![0_u8; 30_000];
        while got.len() < length + unread && failed.load(Ordering::Relaxed) == 0 {
            let wanted = room.len().min(length + unread - got.len());
            let mut one = libc::pollfd { fd: to, events: libc::POLLIN, revents: 0 };
            // SAFETY: there is room for so many bytes.
            let done = unsafe {
                if how == 0 {
                    libc::poll(&raw mut one, 1, 1000);
                }
                let flags = if how == 1 { libc::MSG_WAITALL } else { 0 };
                libc::recv(to, room.as_mut_ptr().cast(), wanted, flags)
            };
            match done {
                0 => break,
                1.. => got.extend_from_slice(&room[..done.cast_unsigned()]),
                _ if errno() == libc::EAGAIN => {
                    until(|| polled(to, libc::POLLIN) != 0);
                }
                _ => break,
            }
        }
    });
    world.ends[end].position += length;
    world.ends[1 - end].unread = 0;
    // Whether a send has found no room is a matter of buffers and time, and an edge for a set.
    for set in world.sets.clone() {
        for end in &world.ends {
            // SAFETY: no memory is touched.
            unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_DEL, end.fds[0], std::ptr::null_mut()) };
        }
    }
    world.say(
        &format!("{end} two threads, {length} by {piece}"),
        &format!("{} {failed:?}", digest(&got)),
    );
}

/// The end of the connection: one end is closed, and the other one asked.
pub(crate) fn end(world: &mut World) {
    let first = world.random.below(2);
    let resets = world.random.chance(5);
    if resets {
        let value = [1_i32, 0];
        // SAFETY: two numbers.
        unsafe {
            let at: *const c_void = (&raw const value).cast();
            libc::setsockopt(world.ends[first].fds[0], libc::SOL_SOCKET, libc::SO_LINGER, at, 8);
        }
    }
    let lost = resets || world.ends[first].unread > 0;
    for fd in std::mem::take(&mut world.ends[first].fds) {
        // SAFETY: the sequence's own.
        unsafe { libc::close(fd) };
    }
    let last = 1 - first;
    let fd = world.ends[last].fds[0];
    until(|| polled(fd, libc::POLLRDHUP) & (libc::POLLRDHUP | libc::POLLHUP) != 0);
    let gone = if lost { libc::POLLHUP } else { libc::POLLRDHUP };
    until(|| polled(fd, libc::POLLRDHUP) & gone != 0);
    let mut answers = vec![format!("poll {:#x}", polled(fd, 0x7FF | libc::POLLRDHUP))];
    for turn in 0..6 {
        let mut room = vec![0_u8; 50_000];
        let call = world.random.below(4);
        // SAFETY: there is room for so many bytes.
        let done = unsafe {
            match call {
                0 | 1 => {
                    let done =
                        libc::recv(fd, room.as_mut_ptr().cast(), room.len(), libc::MSG_DONTWAIT);
                    room.truncate(done.max(0) as usize);
                    done
                }
                2 => {
                    let (mut value, mut size) = (0_i32, 4);
                    let at: *mut c_void = (&raw mut value).cast();
                    libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, at, &raw mut size);
                    value as isize
                }
                // Bytes sent to an end that has closed are answered by a reset, a moment later.
                _ if turn > 3 || lost => {
                    libc::send(fd, b"late".as_ptr().cast(), 4, libc::MSG_DONTWAIT)
                }
                _ => 0,
            }
        };
        let error = if done < 0 { errno() } else { 0 };
        let text = if call < 2 { digest(&room) } else { String::new() };
        answers.push(format!("{call}: {done} {error} {text}"));
        if call == 3 && done > 0 {
            until(|| polled(fd, 0) & libc::POLLHUP != 0);
        }
    }
    for fd in std::mem::take(&mut world.ends[last].fds) {
        // SAFETY: the sequence's own.
        unsafe { libc::close(fd) };
    }
    world.say(&format!("{first} closes, resets {resets}"), &answers.join(", "));
}
