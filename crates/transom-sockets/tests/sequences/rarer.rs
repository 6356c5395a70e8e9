//! Rarer calls, flags and arguments: what `man 2` and `man 7` promise of them, and few programs use.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use super::calls::{Kind, MOST, message};
use super::world::{World, digest, errno, handle, number_of, pattern, polled, until};

unsafe extern "C" {
    fn pwritev2(fd: c_int, at: *const libc::iovec, count: c_int, to: i64, how: c_int) -> isize;
    fn preadv2(fd: c_int, at: *const libc::iovec, count: c_int, from: i64, how: c_int) -> isize;
}

/// Kinds of steps, and how often each comes.
pub(crate) const KINDS: &[(usize, Kind)] = &[
    (10, sends),
    (10, receives),
    (8, waits_with_a_mask),
    (6, polls),
    (5, changes_a_set),
    (4, gets_it_again),
    (3, replaces_a_duplicate),
    (2, closes_a_range),
    (5, moves_bytes),
    (6, sets_an_option),
    (6, gets_an_option),
    (4, asks),
    (8, has_an_urgent_byte),
    (4, connects_again),
];

/// Memory that no program has.
fn nowhere<T>() -> *mut T {
    std::ptr::without_provenance_mut(8)
}

fn sends(world: &mut World) {
    let end = world.random.below(2);
    let room = MOST.saturating_sub(world.ends[1 - end].unread);
    let length = world.random.one(&[0, 1, 5, 700, 5000]).min(room / 3);
    let bytes = pattern(world.ends[end].position, 3 * length);
    let fd = world.fd(end);
    let flags = libc::MSG_NOSIGNAL
        | world.random.one(&[
            0,
            libc::MSG_EOR,
            libc::MSG_DONTROUTE,
            libc::MSG_CONFIRM,
            libc::MSG_ZEROCOPY,
            libc::MSG_DONTWAIT,
        ]);
    let which = world.random.below(6);
    // Of a direction that has ended the kernel says so before it looks at control data.
    let odd = if world.ends[end].finished { 5 } else { world.random.below(8) };
    let mut vectors: Vec<libc::iovec> = (0..3)
        .map(|at| libc::iovec {
            iov_base: bytes[at * length..].as_ptr().cast_mut().cast(),
            iov_len: length,
        })
        .collect();
    let sent;
    // SAFETY: lengths are those of the bytes, and where they are not the calls refuse them.
    let done = unsafe {
        let mut name: libc::sockaddr_storage = std::mem::zeroed();
        name.ss_family = libc::AF_INET as libc::sa_family_t;
        let at: *mut libc::sockaddr_storage = &raw mut name;
        match which {
            0 => {
                let (to, size) =
                    [(at, 16), (at, 0), (at, 128), (at, 129), (nowhere(), 16), (at, u32::MAX)]
                        [odd % 6];
                let text = bytes.as_ptr().cast();
                let done = libc::sendto(fd, text, length, flags, to.cast(), size);
                sent = done.max(0) as usize;
                done
            }
            1 | 2 => {
                let mut whole = message(&mut vectors);
                let mut control = [20_u64, libc::SOL_SOCKET as u64, 0];
                control[1] |= [1_u64, 2, 77, 61][odd % 4] << 32;
                if which == 1 {
                    whole.msg_control = control.as_mut_ptr().cast();
                    whole.msg_controllen = [24, 24, 24, 24, 3, 0, 24, 16][odd];
                    if odd == 6 {
                        whole.msg_control = nowhere();
                    }
                } else {
                    whole.msg_name = if odd == 6 { nowhere() } else { at.cast() };
                    whole.msg_namelen = [16, 0, 28, 128, 500, u32::MAX, 16, 2][odd];
                }
                let done = libc::sendmsg(fd, &raw const whole, flags);
                sent = done.max(0) as usize;
                done
            }
            3 | 4 => {
                let mut all: Vec<libc::mmsghdr> = vectors
                    .chunks_mut(1)
                    .map(|one| libc::mmsghdr { msg_hdr: message(one), msg_len: 77 })
                    .collect();
                if odd < 2 {
                    (*all[1 + odd % 2].msg_hdr.msg_iov).iov_base = nowhere();
                }
                let count = world.random.one(&[0, 1, 3, 3]);
                let done = libc::sendmmsg(fd, all.as_mut_ptr(), count, flags);
                sent = all.iter().take(done.max(0) as usize).map(|one| one.msg_len as usize).sum();
                done as isize
            }
            _ => {
                let how = [0, 1, 2, 4, 8, 16, 8, 1 << 20][odd];
                let done = pwritev2(fd, vectors.as_ptr(), 3, -1, how);
                sent = done.max(0) as usize;
                done
            }
        }
    };
    world.ends[end].position += sent;
    world.ends[1 - end].unread += sent;
    world.answer(&format!("{end} sends {which} {odd} {length} {flags:#x}, {sent} in all"), done);
}

fn receives(world: &mut World) {
    let end = world.random.below(2);
    let wanted = world.random.one(&[0, 1, 3, 100, 3000]);
    let flags = libc::MSG_DONTWAIT
        | world.random.one(&[
            0,
            libc::MSG_WAITALL,
            libc::MSG_TRUNC,
            libc::MSG_PEEK | libc::MSG_TRUNC,
            libc::MSG_WAITALL | libc::MSG_TRUNC,
            libc::MSG_CMSG_CLOEXEC,
            libc::MSG_PEEK,
        ]);
    let fd = world.fd(end);
    let which = world.random.below(4);
    let odd = world.random.below(6);
    let mut bytes = vec![0xEE_u8; 3 * wanted];
    let mut taken = None;
    let mut more = String::new();
    // SAFETY: lengths are those of the bytes, and where they are not the calls refuse them.
    let done = unsafe {
        let at: *mut c_void = bytes.as_mut_ptr().cast();
        match which {
            0 => {
                let mut name = [7_u8; 32];
                let mut size = [16_u32, 0, 3, u32::MAX, 16, 16][odd];
                let from = if odd == 4 { std::ptr::null_mut() } else { name.as_mut_ptr() };
                let place = if odd == 5 { nowhere() } else { &raw mut size };
                let before = number_of(fd, libc::FIONREAD);
                let done = libc::recvfrom(fd, at, wanted, flags, from.cast(), place);
                more = format!(" name {size} {}", name[0]);
                // A wrong place for the name is told behind the bytes.
                if done < 0 && before > 0 {
                    taken = Some((before - number_of(fd, libc::FIONREAD)).max(0) as usize);
                }
                done
            }
            1 => {
                let mut vectors = [libc::iovec { iov_base: at, iov_len: wanted }];
                let mut whole = message(&mut vectors);
                whole.msg_namelen = [0, 5, u32::MAX, 0, 0, 0][odd];
                whole.msg_flags = 0x55;
                let done = libc::recvmsg(fd, &raw mut whole, flags);
                more = format!(" flags {:#x} {}", whole.msg_flags, whole.msg_namelen);
                done
            }
            2 => {
                let mut vectors: Vec<libc::iovec> = bytes
                    .chunks_mut(wanted.max(1))
                    .map(|one| libc::iovec { iov_base: one.as_mut_ptr().cast(), iov_len: wanted })
                    .collect();
                let mut all: Vec<libc::mmsghdr> = vectors
                    .chunks_mut(1)
                    .map(|one| libc::mmsghdr { msg_hdr: message(one), msg_len: 77 })
                    .collect();
                let mut time = libc::timespec {
                    tv_sec: [9, 9, 0, -1, 9, 9][odd],
                    tv_nsec: [0, 0, 0, 0, 2_000_000_000, 0][odd],
                };
                let limit = if odd == 0 { std::ptr::null_mut() } else { &raw mut time };
                let flags = if odd == 1 {
                    flags & !libc::MSG_WAITALL | libc::MSG_WAITFORONE
                } else {
                    flags
                };
                let count = all.len() as c_uint;
                let done = libc::recvmmsg(fd, all.as_mut_ptr(), count, flags, limit);
                let lengths: Vec<u32> =
                    all.iter().take(done.max(0) as usize).map(|one| one.msg_len).collect();
                taken = Some(lengths.iter().map(|length| *length as usize).sum());
                more = format!(" {lengths:?}");
                done as isize
            }
            _ => {
                let vectors = [libc::iovec { iov_base: at, iov_len: wanted }];
                let how = [8, 8 | 1, 8 | 2, 8 | 16, 1 << 20, 8][odd];
                preadv2(fd, vectors.as_ptr(), 1, -1, how)
            }
        }
    };
    let peek = flags & libc::MSG_PEEK != 0 && which < 3;
    let taken = if peek { 0 } else { taken.unwrap_or(done.max(0) as usize) };
    world.ends[end].unread -= taken.min(world.ends[end].unread);
    let what = format!("{end} receives {which} {odd} {wanted} {flags:#x}");
    if done < 0 {
        let error = errno();
        world.say(&what, &format!("{done} errno {error}{more}"));
    } else {
        world.say(&what, &format!("{done} {}{more}", digest(&bytes)));
    }
}

static HITS: AtomicU32 = AtomicU32::new(0);

extern "C" fn counts(_: c_int) {
    HITS.fetch_add(1, Ordering::Relaxed);
}

/// A signal that waits for its turn is let through by the mask of a call: it ends the call if nothing is there, and
/// does not come otherwise (ppoll(2), epoll_pwait(2)).
fn waits_with_a_mask(world: &mut World) {
    let end = world.random.below(2);
    let fd = world.fd(end);
    let lets_through = world.random.chance(2);
    // A call that a signal ends has time for that on a busy machine.
    let nanoseconds = match world.random.below(3) {
        0 if lets_through => 900_000_000,
        0 => 1_000_000,
        _ => 0,
    };
    let events = world.random.one(&[libc::POLLIN, libc::POLLRDHUP, libc::POLLIN | libc::POLLOUT]);
    let which = world.random.below(4);
    handle(libc::SIGUSR2, counts, 0);
    HITS.store(0, Ordering::Relaxed);
    // SAFETY: sets, masks and entries are whole.
    let (done, error, hits) = unsafe {
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut blocked, libc::SIGUSR2);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut());
        let thread = libc::syscall(libc::SYS_gettid);
        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR2);
        let mask: libc::sigset_t = if lets_through { std::mem::zeroed() } else { blocked };
        let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
        let mut one = libc::pollfd { fd, events, revents: 0 };
        let done = match which {
            0 => libc::ppoll(&raw mut one, 1, &raw const time, &raw const mask),
            1 => {
                let mut sets: [libc::fd_set; 2] = std::mem::zeroed();
                for (set, event) in sets.iter_mut().zip([libc::POLLIN, libc::POLLOUT]) {
                    if events & event != 0 {
                        libc::FD_SET(fd, set);
                    }
                }
                let [reads, writes] = sets.each_mut().map(|set| &raw mut *set);
                let others = std::ptr::null_mut();
                libc::pselect(fd + 1, reads, writes, others, &raw const time, &raw const mask)
            }
            _ => {
                let set = libc::epoll_create1(libc::EPOLL_CLOEXEC);
                let events = c_int::from(events).cast_unsigned();
                let mut event = libc::epoll_event { events, u64: 5 };
                libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &raw mut event);
                let done = if which == 2 {
                    let limit = (nanoseconds / 1_000_000) as c_int;
                    libc::epoll_pwait(set, &raw mut event, 1, limit, &raw const mask)
                } else {
                    let (time, mask) = (&raw const time, &raw const mask);
                    libc::syscall(
                        libc::SYS_epoll_pwait2,
                        set,
                        &raw mut event,
                        1,
                        time,
                        mask,
                        8_usize,
                    ) as c_int
                };
                let error = errno();
                libc::close(set);
                *libc::__errno_location() = error;
                done
            }
        };
        let (error, hits) = (errno(), HITS.load(Ordering::Relaxed));
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const blocked, std::ptr::null_mut());
        (done, if done < 0 { error } else { 0 }, hits)
    };
    world.say(
        &format!("{end} mask {which} {lets_through} {nanoseconds} {events:#x}"),
        &format!("{done} errno {error}, {hits} before, {:?} behind", HITS),
    );
}

/// Entries that are none, wrong, twice there, or something else than a connection.
fn polls(world: &mut World) {
    let mut entries = Vec::new();
    for _ in 0..1 + world.random.below(10) {
        let end = world.random.below(2);
        let choices = [
            world.fd(end),
            world.fd(end),
            world.fd(end),
            -1,
            -world.fd(end),
            900,
            world.pipe[0],
            world.pipe[1],
            world.file,
        ];
        let fd = world.random.one(&choices);
        let events = world.random.one(&[0, libc::POLLIN, libc::POLLOUT | libc::POLLPRI, 0x7FFF]);
        entries.push(libc::pollfd { fd, events, revents: 0x55 });
    }
    let count = entries.len() as libc::nfds_t;
    // SAFETY: the entries are as many as is said.
    let done = unsafe { libc::poll(entries.as_mut_ptr(), count, 0) };
    let found: Vec<String> =
        entries.iter().map(|one| format!("{:#x}/{:#x}", one.revents, one.events)).collect();
    world.say("odd poll", &format!("{done} {}", found.join(" ")));
}

fn changes_a_set(world: &mut World) {
    let Some(set) = world.sets.first().copied() else { return };
    let end = world.random.below(2);
    let fd = world.ends[end].fds[0];
    let events = (libc::EPOLLIN | world.random.one(&[0, libc::EPOLLOUT, libc::EPOLLET]))
        .cast_unsigned()
        | world.random.one(&[0, libc::EPOLLEXCLUSIVE as u32, libc::EPOLLWAKEUP as u32]);
    let (set, what, fd) = match world.random.below(8) {
        0 => (set, 77, fd),
        1 => (set, libc::EPOLL_CTL_ADD, set),
        2 => (fd, libc::EPOLL_CTL_ADD, world.pipe[0]),
        3 => (set, libc::EPOLL_CTL_MOD, 900),
        4 => (set, libc::EPOLL_CTL_ADD, world.file),
        5 => (set, libc::EPOLL_CTL_MOD, fd),
        _ => (set, libc::EPOLL_CTL_ADD, fd),
    };
    let mut event = libc::epoll_event { events, u64: world.random.next() };
    // SAFETY: one event.
    let done = unsafe { libc::epoll_ctl(set, what, fd, &raw mut event) };
    world.answer(&format!("odd epoll_ctl({what}, end {end}, {events:#x})"), done as isize);
}

/// Another descriptor of the same socket, in a message or by the process's own descriptor.
fn gets_it_again(world: &mut World) {
    let end = world.random.below(2);
    if world.ends[end].fds.len() > 3 {
        return;
    }
    let fd = world.fd(end);
    let by_message = world.random.chance(2);
    // SAFETY: the message and its control data are whole.
    let new = unsafe {
        if by_message {
            let mut pair = [0; 2];
            libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr());
            let mut byte = [1_u8];
            let mut vectors = [libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 }];
            let mut control = [20_u64, libc::SOL_SOCKET as u64 | 1 << 32, fd as u64];
            let mut whole = message(&mut vectors);
            whole.msg_control = control.as_mut_ptr().cast();
            whole.msg_controllen = 24;
            libc::sendmsg(pair[0], &raw const whole, 0);
            control = [0; 3];
            libc::recvmsg(pair[1], &raw mut whole, libc::MSG_CMSG_CLOEXEC);
            libc::close(pair[0]);
            libc::close(pair[1]);
            control[2] as c_int
        } else {
            let me = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) as c_int;
            let new = libc::syscall(libc::SYS_pidfd_getfd, me, fd, 0) as c_int;
            libc::close(me);
            new
        }
    };
    world.ends[end].fds.push(new);
    world.answer(&format!("{end} again, by message {by_message}"), isize::from(new > 0));
}

/// A duplicate of one end comes to name the other end, or the end that it is of already.
fn replaces_a_duplicate(world: &mut World) {
    let (end, of) = (world.random.below(2), world.random.below(2));
    if world.ends[end].fds.len() < 2 || world.ends[of].fds.len() > 4 {
        return;
    }
    let at = 1 + world.random.below(world.ends[end].fds.len() - 1);
    let from = world.ends[of].fds[0];
    let fd = world.ends[end].fds.remove(at);
    // SAFETY: the sequence's own descriptors.
    let done = unsafe { libc::dup2(from, fd) };
    world.ends[of].fds.push(fd);
    world.answer(&format!("dup2 of {of} over one of {end}"), isize::from(done == fd));
}

fn closes_a_range(world: &mut World) {
    let end = world.random.below(2);
    let fd = world.fd(end);
    let keeps = world.random.chance(3);
    let flags = if keeps { libc::CLOSE_RANGE_CLOEXEC } else { 0 };
    // SAFETY: the numbers are the sequence's own.
    let (done, left) = unsafe {
        for number in [700, 701, 703] {
            libc::dup2(fd, number);
        }
        let done = libc::syscall(libc::SYS_close_range, 700, 703, flags) as isize;
        let left = [700, 701, 703].map(|number| libc::fcntl(number, libc::F_GETFD));
        libc::syscall(libc::SYS_close_range, 700, 703, 0);
        (done, left)
    };
    world.answer(&format!("{end} close_range {flags} {left:?}"), done);
}

/// Between pipes, files and the connection, in ways that are refused or do nothing, too.
fn moves_bytes(world: &mut World) {
    let end = world.random.below(2);
    let fd = world.fd(end);
    let other = world.fd(1 - end);
    let [from_pipe, to_pipe] = world.pipe;
    let none = std::ptr::null_mut::<i64>();
    let finished = world.ends[end].finished;
    let room = world.ends[1 - end].unread < MOST / 2;
    let length = 1 + world.random.below(3000);
    // Pages of a pipe that were given to it may not change (vmsplice(2)).
    let text = pattern(11, length).leak();
    let which = world.random.below(11);
    let mut more = String::new();
    // SAFETY: lengths are those of the bytes.
    let done = unsafe {
        match which {
            0 if room && !finished => {
                let one =
                    libc::iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: length };
                libc::vmsplice(to_pipe, &raw const one, 1, 0);
                let flags = libc::SPLICE_F_MORE | libc::SPLICE_F_MOVE;
                let done = libc::splice(from_pipe, none, fd, none, length, flags);
                world.ends[1 - end].unread += done.max(0) as usize;
                done
            }
            1 if room && !finished => {
                let zeros = libc::open(c"/dev/zero".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
                let done = libc::sendfile(fd, zeros, std::ptr::null_mut(), length);
                libc::close(zeros);
                world.ends[1 - end].unread += done.max(0) as usize;
                done
            }
            2 => libc::tee(fd, to_pipe, length, libc::SPLICE_F_NONBLOCK),
            3 => libc::splice(fd, none, other, none, length, libc::SPLICE_F_NONBLOCK),
            4 => libc::sendfile(fd, other, std::ptr::null_mut(), length),
            5 => libc::splice(from_pipe, none, fd, none, length, libc::SPLICE_F_NONBLOCK),
            6 => libc::splice(fd, none, to_pipe, none, 0, 0),
            7 if !finished => {
                libc::lseek(world.file, 4090, libc::SEEK_SET);
                let done = libc::sendfile(fd, world.file, std::ptr::null_mut(), 100);
                world.ends[1 - end].unread += done.max(0) as usize;
                more = format!(" at {}", libc::lseek(world.file, 0, libc::SEEK_CUR));
                done
            }
            8 => libc::sendfile(fd, world.file, std::ptr::null_mut(), usize::MAX),
            9 => libc::splice(fd, none, world.file, none, length, libc::SPLICE_F_NONBLOCK),
            _ => libc::sendfile(fd, world.sets.first().copied().unwrap_or(-1), none, length),
        }
    };
    world.answer(&format!("{end} moves {which} {length}{more}"), done);
}

/// Options of a number, and values of which some are wrong.
const OPTIONS: &[(c_int, c_int, &[c_int])] = &[
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT, &[-1, 1 << 30, 0]),
    (libc::SOL_SOCKET, libc::SO_SNDLOWAT, &[5]),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE, &[0]),
    (libc::SOL_SOCKET, libc::SO_BROADCAST, &[0, 1]),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT, &[0, 1]),
    (libc::SOL_SOCKET, libc::SO_BUSY_POLL, &[0, -1]),
    (libc::SOL_SOCKET, libc::SO_TYPE, &[1]),
    (libc::SOL_SOCKET, libc::SO_ERROR, &[1]),
    (libc::SOL_SOCKET, 12_345, &[1]),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, &[7, 0, 40_000]),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, &[3, 0, 200]),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, &[0, 40_000]),
    (libc::IPPROTO_TCP, libc::TCP_LINGER2, &[0, 20]),
    (libc::IPPROTO_TCP, libc::TCP_SYNCNT, &[3, 0, 300]),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &[4096, -1]),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &[0, 1]),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, &[-1, 0]),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN, &[5]),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, &[1]),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY, &[-7, 9]),
    (libc::IPPROTO_TCP, 12_345, &[1]),
    (libc::IPPROTO_IP, libc::IP_TTL, &[0, 64, 300]),
    (libc::IPPROTO_IP, libc::IP_RECVTOS, &[0, 0]),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &[1]),
];

fn sets_an_option(world: &mut World) {
    let end = world.random.below(2);
    let fd = world.fd(end);
    let (level, name, values) = world.random.one(OPTIONS);
    let value = world.random.one(values);
    let size = world.random.one(&[4, 4, 4, 1, 8, u32::MAX]);
    let room = [value, 0];
    // SAFETY: two numbers, and lengths that the kernel refuses.
    let done = unsafe { libc::setsockopt(fd, level, name, (&raw const room).cast(), size) };
    let what = format!("{end} odd setsockopt({level}, {name}, {value}, {size})");
    world.answer(&what, done as isize);
    if done == 0 && (level, name) == (libc::SOL_SOCKET, libc::SO_RCVLOWAT) {
        let (one, mut kept, mut size) = (1_i32, 0_i32, 4);
        // SAFETY: one number each.
        unsafe {
            libc::getsockopt(fd, level, name, (&raw mut kept).cast(), &raw mut size);
            libc::setsockopt(fd, level, name, (&raw const one).cast(), 4);
        }
        world.ends[end].low_water = 1;
        world.say(&what, &format!("kept {kept}"));
    }
}

fn gets_an_option(world: &mut World) {
    let end = world.random.below(2);
    let fd = world.fd(end);
    let more = [
        (libc::SOL_SOCKET, libc::SO_DOMAIN),
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
        (libc::SOL_SOCKET, libc::SO_LINGER),
        (libc::SOL_SOCKET, libc::SO_PEEK_OFF),
        (libc::SOL_SOCKET, libc::SO_BINDTODEVICE),
        (libc::SOL_SOCKET, libc::SO_ERROR),
        (libc::IPPROTO_TCP, libc::TCP_CORK),
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION),
    ];
    let at = world.random.below(OPTIONS.len() + more.len());
    let (level, name) = OPTIONS
        .get(at)
        .map_or_else(|| more[at - OPTIONS.len()], |(level, name, _)| (*level, *name));
    let mut value = [0xEE_u8; 32];
    let mut size = world.random.one(&[4, 3, 0, 32, u32::MAX]);
    let odd = world.random.below(12);
    // SAFETY: there is room for so many bytes, and the call refuses other places.
    let done = unsafe {
        let to = if odd == 0 { nowhere() } else { value.as_mut_ptr() };
        let place = if odd == 1 { std::ptr::null_mut() } else { &raw mut size };
        libc::getsockopt(fd, level, name, to.cast(), place)
    };
    if done < 0 {
        return world
            .answer(&format!("{end} odd getsockopt({level}, {name}) {odd}"), done as isize);
    }
    world.say(
        &format!("{end} odd getsockopt({level}, {name})"),
        &format!("{size} {:x?}", &value[..size.min(32) as usize]),
    );
}

fn asks(world: &mut World) {
    /// Bytes that have not left (`linux/sockios.h`).
    const SIOCOUTQNSD: libc::c_ulong = 0x894B;
    let end = world.random.below(2);
    let fd = world.fd(end);
    // SAFETY: each call has the room that it is told.
    unsafe {
        let (what, done) = match world.random.below(7) {
            0 => ("FIOCLEX", libc::ioctl(fd, libc::FIOCLEX)),
            1 => ("FIONCLEX", libc::ioctl(fd, libc::FIONCLEX)),
            2 => ("SIOCOUTQNSD", {
                until(|| number_of(fd, SIOCOUTQNSD) == 0);
                number_of(fd, SIOCOUTQNSD)
            }),
            3 => ("fsync", libc::fsync(fd)),
            4 => ("ftruncate", libc::ftruncate(fd, 3)),
            5 => ("F_GETOWN", libc::fcntl(fd, libc::F_GETOWN)),
            _ => {
                let (mut name, mut size) = ([7_u8; 32], world.random.one(&[0, 4, 32, u32::MAX]));
                let done = libc::getsockname(fd, name.as_mut_ptr().cast(), &raw mut size);
                let text = format!("getsockname {done} {size} {:?}", &name[..2]);
                return world.say(&format!("{end}"), &text);
            }
        };
        world.answer(&format!("{end} {what}"), done as isize);
    }
}

/// Bytes, of which one is urgent; each call on them answers at once (tcp(7), `MSG_OOB`; tcp_poll() of the kernel's).
fn has_an_urgent_byte(world: &mut World) {
    const SIOCATMARK: libc::c_ulong = 0x8905;
    let end = world.random.below(2);
    let (this, other) = (&world.ends[end], &world.ends[1 - end]);
    let over = this.deaf || this.finished || other.finished || other.deaf || other.fds.is_empty();
    if over || this.unread > 0 || this.low_water > 1 || this.peeks_from_offset {
        return;
    }
    let (fd, peer) = (this.fds[0], other.fds[0]);
    let inline = world.random.one(&[0, 0, 1]);
    let set_inline = |value: c_int| {
        // SAFETY: one number.
        unsafe {
            let at = (&raw const value).cast();
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_OOBINLINE, at, 4)
        };
    };
    set_inline(inline);
    let at_once: c_int = 1;
    let urgent_turn = world.random.below(4);
    for turn in 0..9 {
        let length = 1 + world.random.below(6);
        let bytes = pattern(turn * 10, length);
        let text: *const c_void = bytes.as_ptr().cast();
        let mut room = [0_u8; 8];
        let at: *mut c_void = room.as_mut_ptr().cast();
        let which = world.random.below(9);
        let what = format!("{end} urgent {turn} {which} {length}");
        // SAFETY: there is room for so many bytes.
        unsafe {
            if turn == urgent_turn || turn < 4 && which < 4 {
                let flags = if turn == urgent_turn { libc::MSG_OOB } else { 0 };
                libc::setsockopt(
                    fd,
                    libc::IPPROTO_TCP,
                    libc::TCP_QUICKACK,
                    (&raw const at_once).cast(),
                    4,
                );
                let done = libc::send(peer, text, length, flags);
                // The byte, and what it says of the stream, have arrived when they are acknowledged.
                until(|| number_of(peer, libc::TIOCOUTQ) == 0);
                world.answer(&what, done);
                continue;
            }
            let flags = libc::MSG_DONTWAIT | world.random.one(&[0, 0, libc::MSG_WAITALL]);
            let done = match which {
                0 | 1 => libc::recv(fd, at, length, flags),
                2 => libc::recv(fd, at, length, flags | libc::MSG_PEEK),
                3 => libc::recv(fd, at, 1, flags | libc::MSG_OOB),
                4 => libc::recv(fd, at, 1, flags | libc::MSG_OOB | libc::MSG_PEEK),
                5 => number_of(fd, SIOCATMARK) as isize,
                6 => number_of(fd, libc::FIONREAD) as isize,
                7 => libc::recv(fd, at, 8, flags),
                _ => polled(fd, libc::POLLIN | libc::POLLPRI | libc::POLLRDBAND) as isize,
            };
            let error = if done < 0 { errno() } else { 0 };
            world.say(&what, &format!("{done} errno {error} {}", digest(&room)));
        }
    }
    // The rest is read: the first call may end before the urgent byte.
    for _ in 0..4 {
        let mut room = [0_u8; 100];
        // SAFETY: there is room for so many bytes.
        unsafe { libc::recv(fd, room.as_mut_ptr().cast(), 100, libc::MSG_DONTWAIT) };
    }
    set_inline(0);
}

/// A socket that is connected is connected, bound and asked for connections once more.
fn connects_again(world: &mut World) {
    let end = world.random.below(2);
    let fd = world.fd(end);
    // A connection that is over can be bound again, and listen.
    if world.ends.iter().any(|end| end.finished) {
        return;
    }
    // SAFETY: an address, and its length.
    let done = unsafe {
        let (mut name, mut size): (libc::sockaddr_in, _) = (std::mem::zeroed(), 16);
        let (at, place) = ((&raw mut name).cast::<libc::sockaddr>(), &raw mut size);
        libc::getsockname(fd, at, place);
        match world.random.below(4) {
            0 => libc::connect(fd, at, size),
            1 => libc::bind(fd, at, size),
            2 => libc::listen(fd, 1),
            _ => libc::accept4(fd, std::ptr::null_mut(), std::ptr::null_mut(), 0),
        }
    };
    world.answer(&format!("{end} connects again"), done as isize);
}
