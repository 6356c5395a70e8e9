//! The calls of the sequences.

use std::ffi::{c_int, c_long, c_uint, c_void};

use super::rarer;
use super::together;
use super::world::{World, digest, number_of, pattern, until};

unsafe extern "C" {
    fn __write(fd: c_int, from: *const c_void, length: usize) -> isize;
    fn dprintf(fd: c_int, format: *const std::ffi::c_char, ...) -> c_int;
    fn sockatmark(fd: c_int) -> c_int;
    fn __read(fd: c_int, to: *mut c_void, length: usize) -> isize;
    fn __send(fd: c_int, from: *const c_void, length: usize, flags: c_int) -> isize;
    fn pwritev2(fd: c_int, at: *const libc::iovec, count: c_int, to: i64, how: c_int) -> isize;
    fn preadv2(fd: c_int, at: *const libc::iovec, count: c_int, from: i64, how: c_int) -> isize;
}

/// Bytes that lie unread at an end at most: every buffer has room for them.
pub(crate) const MOST: usize = 24_000;

/// A kind of step.
pub(crate) type Kind = fn(&mut World);

/// Kinds of steps, and how often each comes.
const KINDS: &[(usize, Kind)] = &[
    (12, sends),
    (14, receives),
    (6, waits),
    (3, makes_a_set),
    (6, changes_a_set),
    (8, waits_for_a_set),
    (4, sets_an_option),
    (4, gets_an_option),
    (3, asks),
    (2, changes_blocking),
    (2, duplicates),
    (2, closes_a_duplicate),
    (2, moves_between_files),
    (2, together::forks),
    (2, together::is_interrupted),
    (2, together::has_two_threads),
    (1, shuts_down),
    (2, is_wrong),
];

/// A step: some call on some end.
pub(crate) fn step(world: &mut World) {
    let rarer: &[(usize, Kind)] = if world.rarer { rarer::KINDS } else { &[] };
    let kinds = || KINDS.iter().chain(rarer);
    let all: usize = kinds().map(|(weight, _)| weight).sum();
    let mut at = world.random.below(all);
    for (weight, kind) in kinds() {
        if at < *weight {
            return kind(world);
        }
        at -= weight;
    }
}

/// The vectors of `bytes`, cut at random places.
fn cut(world: &mut World, bytes: &mut [u8]) -> Vec<libc::iovec> {
    let mut vectors = Vec::new();
    let mut rest = bytes;
    while vectors.len() < 4 && (world.random.chance(2) || vectors.is_empty()) {
        let length = world.random.below(rest.len() + 1);
        let (one, more) = rest.split_at_mut(length);
        vectors.push(libc::iovec { iov_base: one.as_mut_ptr().cast(), iov_len: one.len() });
        rest = more;
    }
    vectors.push(libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() });
    vectors
}

fn length(world: &mut World) -> usize {
    let most = world.random.one(&[0, 1, 2, 7, 64, 1000, 4096, 9000]);
    if world.random.chance(3) { world.random.below(most + 1) } else { most }
}

/// A message of these vectors.
pub(crate) fn message(vectors: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: zeros are a message without parts.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (vectors.as_mut_ptr(), vectors.len());
    message
}

fn sends(world: &mut World) {
    let end = world.random.below(2);
    let room = MOST.saturating_sub(world.ends[1 - end].unread);
    let length = length(world).min(room);
    let mut bytes = pattern(world.ends[end].position, length);
    let flags = world.random.one(&[0, 0, libc::MSG_DONTWAIT, libc::MSG_NOSIGNAL]);
    // Bytes that wait for more do so for 200 ms.
    let flags = if world.random.chance(40) { flags | libc::MSG_MORE } else { flags };
    let fd = world.fd(end);
    let mut vectors = cut(world, &mut bytes);
    let at: *const c_void = bytes.as_ptr().cast();
    let names = [
        "write",
        "__write",
        "send",
        "__send",
        "sendto",
        "writev",
        "pwritev2",
        "sendmsg",
        "sendmmsg",
        "syscall",
        "dprintf",
        "eventfd_write",
    ];
    let which = world.random.below(names.len());
    let mut counted = None;
    // SAFETY: vectors and lengths are those of the bytes.
    let done = unsafe {
        match which {
            0 => libc::write(fd, at, length),
            1 => __write(fd, at, length),
            2 => libc::send(fd, at, length, flags),
            3 => __send(fd, at, length, flags),
            4 => libc::sendto(fd, at, length, flags, std::ptr::null(), 0),
            5 => libc::writev(fd, vectors.as_ptr(), vectors.len() as c_int),
            6 => pwritev2(fd, vectors.as_ptr(), vectors.len() as c_int, -1, 0),
            7 => libc::sendmsg(fd, &message(&mut vectors), flags),
            8 => {
                let (one, other) = vectors.split_at_mut(1);
                let mut both = [
                    libc::mmsghdr { msg_hdr: message(one), msg_len: 0 },
                    libc::mmsghdr { msg_hdr: message(other), msg_len: 0 },
                ];
                let done = libc::sendmmsg(fd, both.as_mut_ptr(), 2, flags);
                let sent = both.iter().take(done.max(0) as usize).map(|one| one.msg_len as usize);
                counted = Some(sent.sum());
                done as isize
            }
            9 => libc::syscall(libc::SYS_write, fd, at, length) as isize,
            10 => {
                let text: Vec<u8> = bytes.iter().map(|byte| byte % 26 + b'a').chain([0]).collect();
                dprintf(fd, c"%s".as_ptr(), text.as_ptr()) as isize
            }
            _ => {
                let value = u64::from_ne_bytes(*b"eventfd.");
                let done = libc::eventfd_write(fd, value) as isize;
                counted = Some(if done == 0 && room >= 8 { 8 } else { 0 });
                if room < 8 && done == 0 {
                    counted = Some(8);
                }
                done
            }
        }
    };
    let sent = counted.unwrap_or(done.max(0) as usize);
    world.ends[end].position += sent;
    world.ends[1 - end].unread += sent;
    world.answer(&format!("{end} {}({length}, {flags:#x})", names[which]), done);
}

fn receives(world: &mut World) {
    let end = world.random.below(2);
    let wanted = length(world);
    let mut flags = world.random.one(&[
        0,
        0,
        0,
        libc::MSG_DONTWAIT,
        libc::MSG_PEEK,
        libc::MSG_WAITALL,
        libc::MSG_PEEK | libc::MSG_WAITALL,
        libc::MSG_TRUNC,
        libc::MSG_OOB,
        libc::MSG_ERRQUEUE,
    ]);
    let names = [
        "recv", "recvfrom", "recvmsg", "recvmmsg", "read", "__read", "readv", "preadv2", "syscall",
    ];
    let mut which = world.random.below(names.len());
    let enough =
        if flags & libc::MSG_WAITALL != 0 { wanted } else { world.ends[end].low_water.min(wanted) };
    // A `recvmmsg` waits for both of its messages.
    let at_once = world.has(end, if which == 3 { enough + 1 } else { enough });
    let nothing_follows = world.has(end, usize::MAX);
    // A look from an offset on waits for bytes behind it.
    let looks_on = flags & libc::MSG_PEEK != 0 && world.ends[end].peeks_from_offset;
    let waits = !at_once && !world.ends[end].nonblocking;
    if waits || (which == 3 || looks_on) && !nothing_follows {
        flags |= libc::MSG_DONTWAIT;
        which %= 4;
    }
    let flags = if which < 4 { flags } else { 0 };
    let fd = world.fd(end);
    let mut bytes = vec![0xEE_u8; wanted];
    let mut vectors = cut(world, &mut bytes);
    let at: *mut c_void = bytes.as_mut_ptr().cast();
    let mut more = String::new();
    let mut taken = None;
    // SAFETY: vectors and lengths are those of the bytes.
    let done = unsafe {
        match which {
            0 => libc::recv(fd, at, wanted, flags),
            1 => {
                let (mut name, mut size) = ([0_u8; 32], 32);
                let done =
                    libc::recvfrom(fd, at, wanted, flags, name.as_mut_ptr().cast(), &raw mut size);
                more = if done >= 0 { format!(" name {size}") } else { String::new() };
                done
            }
            2 => {
                let mut control = [0_u64; 16];
                let mut whole = message(&mut vectors);
                whole.msg_control = control.as_mut_ptr().cast();
                whole.msg_controllen = size_of_val(&control);
                let done = libc::recvmsg(fd, &raw mut whole, flags);
                if done >= 0 {
                    let kind = if whole.msg_controllen > 0 { control[1] } else { 0 };
                    more = format!(
                        " flags {:#x} control {} {kind:#x}",
                        whole.msg_flags, whole.msg_controllen
                    );
                }
                done
            }
            3 => {
                let (one, other) = vectors.split_at_mut(1);
                let mut both = [
                    libc::mmsghdr { msg_hdr: message(one), msg_len: 0 },
                    libc::mmsghdr { msg_hdr: message(other), msg_len: 0 },
                ];
                let done = libc::recvmmsg(fd, both.as_mut_ptr(), 2, flags, std::ptr::null_mut());
                let lengths: Vec<u32> =
                    both.iter().take(done.max(0) as usize).map(|one| one.msg_len).collect();
                taken = Some(lengths.iter().map(|length| *length as usize).sum());
                more = format!(" {lengths:?}");
                done as isize
            }
            4 => libc::read(fd, at, wanted),
            5 => __read(fd, at, wanted),
            6 => libc::readv(fd, vectors.as_ptr(), vectors.len() as c_int),
            7 => preadv2(fd, vectors.as_ptr(), vectors.len() as c_int, -1, 0),
            _ => libc::syscall(libc::SYS_read, fd, at, wanted) as isize,
        }
    };
    let what = format!("{end} {}({wanted}, {flags:#x})", names[which]);
    let taken = if flags & (libc::MSG_PEEK | libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
        0
    } else {
        taken.unwrap_or(done.max(0) as usize)
    };
    world.ends[end].unread -= taken.min(world.ends[end].unread);
    if done < 0 {
        world.answer(&what, done);
    } else {
        world.say(&what, &format!("{done} {}{more}", digest(&bytes)));
    }
}

fn events(world: &mut World) -> i16 {
    let all = [
        libc::POLLIN,
        libc::POLLOUT,
        libc::POLLPRI,
        libc::POLLRDHUP,
        libc::POLLRDNORM,
        libc::POLLWRNORM,
    ];
    all.into_iter().filter(|_| world.random.chance(2)).fold(0, |sum, one| sum | one)
}

fn waits(world: &mut World) {
    let mut entries = Vec::new();
    for end in 0..2 {
        let events = events(world);
        entries.push(libc::pollfd { fd: world.fd(end), events, revents: 0 });
    }
    let count = entries.len() as libc::nfds_t;
    let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let which = world.random.below(4);
    if which < 2 {
        // SAFETY: the entries are as many as is said.
        let done = unsafe {
            if which == 0 {
                libc::poll(entries.as_mut_ptr(), count, 0)
            } else {
                libc::ppoll(entries.as_mut_ptr(), count, &raw const none, std::ptr::null())
            }
        };
        let found: Vec<String> =
            entries.iter().map(|one| format!("{:#x}/{:#x}", one.revents, one.events)).collect();
        return world.say(["poll", "ppoll"][which], &format!("{done} {}", found.join(" ")));
    }
    // SAFETY: zeros are empty sets; the descriptors are small.
    let (done, found) = unsafe {
        let mut sets: [libc::fd_set; 3] = std::mem::zeroed();
        for entry in &entries {
            for (set, event) in sets.iter_mut().zip([libc::POLLIN, libc::POLLOUT, libc::POLLPRI]) {
                if entry.events & event != 0 {
                    libc::FD_SET(entry.fd, set);
                }
            }
        }
        let last = entries.iter().map(|one| one.fd).max().unwrap_or_default() + 1;
        let [reads, writes, others] = sets.each_mut().map(|set| &raw mut *set);
        let mut no_time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let done = if which == 2 {
            libc::select(last, reads, writes, others, &raw mut no_time)
        } else {
            libc::pselect(last, reads, writes, others, &raw const none, std::ptr::null())
        };
        let has =
            |fd: c_int| sets.each_ref().map(|set| u8::from(libc::FD_ISSET(fd, &raw const *set)));
        (done, entries.iter().map(|one| format!("{:?}", has(one.fd))).collect::<Vec<_>>())
    };
    world.say(["select", "pselect"][which - 2], &format!("{done} {}", found.join(" ")));
}

fn makes_a_set(world: &mut World) {
    if world.sets.len() < 3 {
        // SAFETY: no memory is touched.
        let set = unsafe {
            if world.random.chance(2) {
                libc::epoll_create1(libc::EPOLL_CLOEXEC)
            } else {
                libc::epoll_create(9)
            }
        };
        world.sets.push(set);
        world.answer("epoll_create", isize::from(set >= 0));
    }
}

/// A set, and which it is.
fn a_set(world: &mut World) -> Option<(usize, c_int)> {
    let at = world.random.below(world.sets.len());
    world.sets.get(at).map(|set| (at, *set))
}

fn changes_a_set(world: &mut World) {
    let Some((at, set)) = a_set(world) else { return makes_a_set(world) };
    let end = world.random.below(2);
    // The first descriptor: a set keeps an entry whose descriptor was closed while another one of the same
    // socket is open.
    let fd = world.ends[end].fds[0];
    let what = world.random.one(&[
        libc::EPOLL_CTL_ADD,
        libc::EPOLL_CTL_ADD,
        libc::EPOLL_CTL_MOD,
        libc::EPOLL_CTL_DEL,
    ]);
    let how = world.random.one(&[
        0,
        0,
        libc::EPOLLET,
        libc::EPOLLONESHOT,
        libc::EPOLLET | libc::EPOLLONESHOT,
    ]);
    let events = (c_int::from(events(world)) | how).cast_unsigned();
    let data = world.random.next();
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: one event.
    let done = unsafe { libc::epoll_ctl(set, what, fd, &raw mut event) };
    world.answer(
        &format!("epoll_ctl(set {at}, {what}, end {end}, {events:#x}, {data:x})"),
        done as isize,
    );
}

fn waits_for_a_set(world: &mut World) {
    let Some((at, set)) = a_set(world) else { return makes_a_set(world) };
    let mut found = [libc::epoll_event { events: 0, u64: 0 }; 4];
    let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let which = world.random.below(3);
    // SAFETY: there is room for so many events.
    let done = unsafe {
        match which {
            0 => libc::epoll_wait(set, found.as_mut_ptr(), 4, 0),
            1 => libc::epoll_pwait(set, found.as_mut_ptr(), 4, 0, std::ptr::null()),
            _ => libc::syscall(
                libc::SYS_epoll_pwait2,
                set,
                found.as_mut_ptr(),
                4,
                &raw const none,
                0,
                8,
            ) as c_int,
        }
    };
    let mut seen: Vec<String> = found[..done.max(0) as usize]
        .iter()
        .map(|event| format!("{:x}:{:#x}", { event.u64 }, { event.events }))
        .collect();
    seen.sort();
    world.say(&format!("epoll_wait {which} (set {at})"), &format!("{done} {}", seen.join(" ")));
}

/// Options of a number, whose values a program can read back.
const OPTIONS: &[(c_int, c_int, &[c_int])] = &[
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, &[0, 1]),
    (libc::SOL_SOCKET, libc::SO_REUSEADDR, &[0, 1]),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE, &[0, 1]),
    (libc::SOL_SOCKET, libc::SO_PRIORITY, &[0, 5]),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT, &[0, 1, 1, 10]),
    (libc::SOL_SOCKET, libc::SO_PEEK_OFF, &[0, 3, -1, -1]),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY, &[0, 1]),
    (libc::IPPROTO_TCP, libc::TCP_CORK, &[0, 0, 0]),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, &[9, 60]),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, &[0, 90_000]),
    (libc::IPPROTO_TCP, libc::TCP_INQ, &[0, 1]),
    (libc::IPPROTO_TCP, libc::TCP_ULP, &[0]),
    (libc::IPPROTO_IP, libc::IP_TOS, &[0, 16]),
];

fn sets_an_option(world: &mut World) {
    let end = world.random.below(2);
    let fd = world.fd(end);
    if world.random.chance(6) {
        let name = world.random.one(&[&b"reno"[..], b"cubic", b"none such"]);
        // SAFETY: the name has so many bytes.
        let done = unsafe {
            let size = name.len() as libc::socklen_t;
            libc::setsockopt(
                fd,
                libc::IPPROTO_TCP,
                libc::TCP_CONGESTION,
                name.as_ptr().cast(),
                size,
            )
        };
        return world.answer(&format!("{end} TCP_CONGESTION {name:?}"), done as isize);
    }
    if world.random.chance(6) {
        let value = world.random.one(&[[0_i32, 0], [1, 5], [0, 0]]);
        // SAFETY: two numbers.
        let done = unsafe {
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const value).cast(), 8)
        };
        return world.answer(&format!("{end} SO_LINGER {value:?}"), done as isize);
    }
    let (level, name, values) = world.random.one(OPTIONS);
    let value = world.random.one(values);
    // SAFETY: one number.
    let done = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), 4) };
    if done == 0 && (level, name) == (libc::SOL_SOCKET, libc::SO_RCVLOWAT) {
        world.ends[end].low_water = value.max(1) as usize;
    }
    if done == 0 && (level, name) == (libc::SOL_SOCKET, libc::SO_PEEK_OFF) {
        world.ends[end].peeks_from_offset = value >= 0;
    }
    world.answer(&format!("{end} setsockopt({level}, {name}, {value})"), done as isize);
}

fn gets_an_option(world: &mut World) {
    let end = world.random.below(2);
    let fd = world.fd(end);
    let more = [
        (libc::SOL_SOCKET, libc::SO_ERROR),
        (libc::SOL_SOCKET, libc::SO_TYPE),
        (libc::SOL_SOCKET, libc::SO_LINGER),
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN),
        (libc::SOL_SOCKET, libc::SO_PROTOCOL),
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION),
        (libc::SOL_SOCKET, libc::SO_PEEK_OFF),
    ];
    let at = world.random.below(OPTIONS.len() + more.len());
    let (level, name) = OPTIONS
        .get(at)
        .map_or_else(|| more[at - OPTIONS.len()], |(level, name, _)| (*level, *name));
    let mut value = [0xEE_u8; 16];
    let mut size = world.random.one(&[4, 4, 16, 1]);
    // SAFETY: there is room for so many bytes.
    let done =
        unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut size) };
    if done < 0 {
        return world.answer(&format!("{end} getsockopt({level}, {name})"), done as isize);
    }
    world.say(
        &format!("{end} getsockopt({level}, {name})"),
        &format!("{size} {:x?}", &value[..size as usize]),
    );
}

fn asks(world: &mut World) {
    let end = world.random.below(2);
    let fd = world.fd(end);
    let answer = match world.random.below(6) {
        0 => format!("FIONREAD {}", number_of(fd, libc::FIONREAD)),
        1 => {
            // Bytes on their way are acknowledged in the end.
            let none = until(|| number_of(fd, libc::TIOCOUTQ) == 0);
            format!("TIOCOUTQ {none}")
        }
        // SAFETY: no memory is touched.
        2 => format!("sockatmark {}", unsafe { sockatmark(fd) }),
        // SAFETY: no memory is touched.
        3 => format!("F_GETFL {:#x}", unsafe { libc::fcntl(fd, libc::F_GETFL) }),
        // SAFETY: no memory is touched.
        4 => format!("F_GETFD {:#x}", unsafe { libc::fcntl(fd, libc::F_GETFD) }),
        _ => {
            let (mut name, mut size) = ([0_u8; 32], 32);
            // SAFETY: there is room for so many bytes.
            let done = unsafe { libc::getpeername(fd, name.as_mut_ptr().cast(), &raw mut size) };
            format!("getpeername {done} {size} {}", name[0])
        }
    };
    world.say(&format!("{end}"), &answer);
}

fn changes_blocking(world: &mut World) {
    let end = world.random.below(2);
    let fd = world.fd(end);
    let nonblocking = world.random.chance(2);
    // SAFETY: a number is read at most.
    let done = unsafe {
        match world.random.below(3) {
            0 => {
                let value = c_int::from(nonblocking);
                libc::ioctl(fd, libc::FIONBIO, &raw const value)
            }
            1 => libc::fcntl(fd, libc::F_SETFL, if nonblocking { libc::O_NONBLOCK } else { 0 }),
            _ => libc::syscall(
                libc::SYS_fcntl,
                fd,
                libc::F_SETFL,
                if nonblocking { libc::O_NONBLOCK } else { 0 },
            ) as c_int,
        }
    };
    world.ends[end].nonblocking = nonblocking;
    world.answer(&format!("{end} nonblocking {nonblocking}"), done as isize);
}

fn duplicates(world: &mut World) {
    let end = world.random.below(2);
    if world.ends[end].fds.len() > 3 {
        return;
    }
    let fd = world.fd(end);
    let which = world.random.below(5);
    // SAFETY: no memory is touched.
    let new = unsafe {
        match which {
            0 => libc::dup(fd),
            1 => libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 40),
            2 => libc::dup2(fd, libc::dup(world.file)),
            3 => libc::dup3(fd, libc::dup(world.file), libc::O_CLOEXEC),
            _ => libc::syscall(libc::SYS_dup, fd) as c_int,
        }
    };
    world.ends[end].fds.push(new);
    world.answer(&format!("{end} dup {which}"), isize::from(new >= 0));
}

fn closes_a_duplicate(world: &mut World) {
    let end = world.random.below(2);
    if world.ends[end].fds.len() < 2 {
        return;
    }
    let at = 1 + world.random.below(world.ends[end].fds.len() - 1);
    let fd = world.ends[end].fds.remove(at);
    // SAFETY: the sequence's own.
    let done = unsafe {
        match world.random.below(3) {
            0 => libc::close(fd),
            1 => libc::syscall(libc::SYS_close_range, fd, fd, 0) as c_int,
            _ => libc::syscall(libc::SYS_close, fd) as c_int,
        }
    };
    world.answer(&format!("{end} close of a duplicate"), done as isize);
}

/// Between the connection and a file or a pipe.
fn moves_between_files(world: &mut World) {
    let end = world.random.below(2);
    let fd = world.fd(end);
    let [from_pipe, to_pipe] = world.pipe;
    let length = 1 + world.random.below(3000);
    let room = world.ends[1 - end].unread < MOST / 2;
    let mut bytes = vec![0_u8; 4096];
    let none = std::ptr::null_mut::<i64>();
    let unread = world.ends[end].unread;
    // SAFETY: lengths are those of the bytes.
    unsafe {
        match world.random.below(4) {
            0 if room && !world.ends[end].finished => {
                let mut at = 100;
                let done = libc::sendfile(fd, world.file, &raw mut at, length);
                world.ends[1 - end].unread += done.max(0) as usize;
                world.answer(&format!("{end} sendfile({length}) to {at}"), done);
            }
            1 if room && !world.ends[end].finished => {
                let text = pattern(3, length);
                libc::write(to_pipe, text.as_ptr().cast(), length);
                let done = libc::splice(from_pipe, none, fd, none, length, libc::SPLICE_F_MOVE);
                world.ends[1 - end].unread += done.max(0) as usize;
                let left = number_of(from_pipe, libc::FIONREAD);
                libc::read(from_pipe, bytes.as_mut_ptr().cast(), left.max(0) as usize);
                world.answer(&format!("{end} splice to it({length}), {left} left"), done);
            }
            2 | 3 if unread > 0 && !world.ends[end].deaf => {
                let by_splice = world.random.chance(2);
                let done = if by_splice {
                    libc::splice(fd, none, to_pipe, none, length, libc::SPLICE_F_NONBLOCK)
                } else {
                    libc::sendfile(to_pipe, fd, none, length)
                };
                // How much of it a pipe takes at once is the kernel's affair: the rest of it follows.
                let mut all = Vec::new();
                let got = libc::read(from_pipe, bytes.as_mut_ptr().cast(), bytes.len());
                all.extend_from_slice(&bytes[..got.max(0) as usize]);
                let rest = length.min(unread).saturating_sub(all.len());
                let more = libc::recv(fd, bytes.as_mut_ptr().cast(), rest, libc::MSG_DONTWAIT);
                all.extend_from_slice(&bytes[..more.max(0) as usize]);
                world.ends[end].unread -= all.len();
                let some = done > 0;
                world.say(
                    &format!("{end} into a pipe {by_splice}"),
                    &format!("{some} {}", digest(&all)),
                );
            }
            _ => {}
        }
    }
}

fn shuts_down(world: &mut World) {
    let end = world.random.below(2);
    if world.random.chance(2) {
        return;
    }
    let fd = world.fd(end);
    let how = world.random.one(&[libc::SHUT_WR, libc::SHUT_WR, libc::SHUT_RD, 7]);
    let both = |one, other| how == one && other;
    // Bytes that come to an end which has ended both directions are answered by a reset over TCP, and are left
    // unread in a ring.
    if both(libc::SHUT_WR, world.ends[end].deaf) || both(libc::SHUT_RD, world.ends[end].finished) {
        return;
    }
    // SAFETY: no memory is touched.
    let done = unsafe { libc::shutdown(fd, how) };
    world.ends[end].finished |= how == libc::SHUT_WR;
    world.ends[end].deaf |= how == libc::SHUT_RD;
    world.answer(&format!("{end} shutdown({how})"), done as isize);
}

/// The last bytes of the lower half of the addresses: an entry of `poll` begins there, and ends where a program has
/// no memory.
const WRONG_END: usize = 0x7FFF_FFFF_EFF8;

/// Arguments that no call takes.
fn is_wrong(world: &mut World) {
    let end = world.random.below(2);
    let fd = world.fd(end);
    let bad = 8_usize as *mut c_void;
    let none = libc::iovec { iov_base: bad, iov_len: 1 };
    let long = libc::iovec { iov_base: bad, iov_len: usize::MAX };
    let (can_send, unread) = (!world.ends[end].finished, world.ends[end].unread > 0);
    let set = a_set(world).map_or(-1, |(_, set)| set);
    let mut one = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    let mut reads = [0_u64; 16];
    reads[fd as usize / 64] |= 1 << (fd % 64);
    let (fds, none_of): (*mut libc::fd_set, _) = (reads.as_mut_ptr().cast(), std::ptr::null_mut());
    let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the calls refuse these.
    let done = unsafe {
        match world.random.below(24) {
            11 => libc::poll(bad.cast(), 1, 0) as isize,
            12 => libc::poll(WRONG_END as *mut libc::pollfd, 2, 0) as isize,
            // The C library itself reads the times of these three.
            13 => libc::syscall(libc::SYS_ppoll, &raw mut one, 1, bad, 0, 8) as isize,
            14 => libc::ppoll(&raw mut one, 1, &raw const no_time, bad.cast()) as isize,
            15 => libc::select(fd + 1, bad.cast(), none_of, none_of, none_of.cast()) as isize,
            16 => libc::syscall(libc::SYS_select, fd + 1, 0, fds, 0, bad) as isize,
            17 => libc::pselect(
                fd + 1,
                fds,
                none_of,
                bad.cast(),
                &raw const no_time,
                std::ptr::null(),
            ) as isize,
            18 => libc::syscall(libc::SYS_pselect6, fd + 1, fds, 0, 0, &raw const no_time, bad)
                as isize,
            19 => libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, bad.cast()) as isize,
            20 => libc::epoll_ctl(set, libc::EPOLL_CTL_MOD, fd, bad.cast()) as isize,
            // Without an event it is no error; a doorbell is one for the kernel.
            21 => {
                libc::epoll_wait(set, bad.cast(), 3, 0);
                0
            }
            22 => libc::epoll_wait(set, bad.cast(), 0, 0) as isize,
            23 => libc::sendfile(fd, world.file, bad.cast(), 0),
            0 => libc::writev(fd, &raw const none, -1),
            1 => libc::readv(fd, &raw const none, 2000),
            2 => libc::lseek(fd, 0, libc::SEEK_CUR) as isize,
            3 => libc::pwrite(fd, bad, 1, 0),
            4 => preadv2(fd, &raw const none, 1, 5, 0),
            5 => libc::writev(fd, &raw const long, 1),
            6 if can_send => libc::write(fd, bad, 10),
            7 if unread => libc::recv(fd, bad, 10, libc::MSG_DONTWAIT),
            8 if unread => libc::recv(fd, bad, 10, libc::MSG_DONTWAIT | libc::MSG_PEEK),
            9 => libc::ioctl(fd, libc::FIONREAD, bad) as isize,
            _ => libc::syscall(-1 as c_long, 0 as c_uint) as isize,
        }
    };
    world.answer(&format!("{end} wrong arguments"), done);
}
