//! Calls that read and write.

use std::ffi::{c_int, c_uint, c_void};

use super::{answer, calls};
use crate::epoll;
use crate::said::Why;
use crate::stream::{self, Receive};
use crate::sys::{self, Errno};
use crate::table::{self, Held};
use crate::young::{self, Served, Use};

type Bytes = *mut c_void;
type Vector = libc::iovec;
type Message = libc::msghdr;

fn one(at: Bytes, length: usize) -> [Vector; 1] {
    [Vector { iov_base: at, iov_len: length }]
}

fn receive(held: &Held, fd: c_int, at: Bytes, length: usize, flags: c_int) -> isize {
    let vectors = one(at, length);
    answer(stream::receive(held, fd, Receive { vectors: &vectors, flags, message: None }))
}

/// As [`receive`], of calls for files: nothing that is asked for is there at once.
fn read_into(held: &Held, fd: c_int, vectors: &[Vector], flags: c_int) -> isize {
    if stream::total(vectors) == 0 {
        return 0;
    }
    answer(stream::receive(held, fd, Receive { vectors, flags, message: None }))
}

/// Send what several pieces have: nothing is sent of nothing, whatever has become of the connection.
fn write_from(held: &Held, fd: c_int, vectors: &[Vector], flags: c_int) -> isize {
    if stream::total(vectors) == 0 {
        return 0;
    }
    answer(stream::send(held, fd, vectors, flags, None))
}

fn put(held: &Held, fd: c_int, at: *const c_void, length: usize, flags: c_int) -> isize {
    answer(stream::send(held, fd, &one(at.cast_mut(), length), flags, None))
}

/// The vectors of a call.
///
/// # Safety
/// As of `readv`.
unsafe fn vectors<'a>(at: *const Vector, count: usize) -> Option<&'a [Vector]> {
    // The limit is the kernel's.
    if count > 1024 || at.is_null() && count > 0 {
        return None;
    }
    // SAFETY: the caller has so many vectors.
    Some(if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(at, count) } })
}

/// As [`vectors`], with the count of a call: `None` if that is no count.
///
/// # Safety
/// As of `readv`.
unsafe fn entries<'a>(at: *const Vector, count: c_int) -> Option<&'a [Vector]> {
    // SAFETY: the caller's.
    usize::try_from(count).ok().and_then(|count| unsafe { vectors(at, count) })
}

/// The flags of a message that `preadv2` or `pwritev2` means. A stream has no places (preadv2(2)).
fn without_place(place: i64, how: c_int) -> Result<c_int, Errno> {
    /// Those that the kernel takes for a socket: RWF_HIPRI, RWF_DSYNC, RWF_SYNC, RWF_NOWAIT, RWF_APPEND.
    const KNOWN: c_int = 0x1F;
    const RWF_NOWAIT: c_int = 8;
    match place {
        -1 if how & !KNOWN != 0 => Err(libc::EOPNOTSUPP),
        -1 => Ok(if how & RWF_NOWAIT != 0 { libc::MSG_DONTWAIT } else { 0 }),
        0.. => Err(libc::ESPIPE),
        _ => Err(libc::EINVAL),
    }
}

unsafe fn receive_message(held: &Held, fd: c_int, message: *mut Message, flags: c_int) -> isize {
    // SAFETY: the caller's message.
    let Some(message) = (unsafe { message.as_mut() }) else { return sys::fail(libc::EFAULT) };
    // SAFETY: the message's vectors.
    let Some(vectors) = (unsafe { vectors(message.msg_iov, message.msg_iovlen) }) else {
        return sys::fail(libc::EMSGSIZE);
    };
    answer(stream::receive(held, fd, Receive { vectors, flags, message: Some(message) }))
}

unsafe fn send_message(held: &Held, fd: c_int, message: *const Message, flags: c_int) -> isize {
    // SAFETY: the caller's message.
    let Some(message) = (unsafe { message.as_ref() }) else { return sys::fail(libc::EFAULT) };
    // SAFETY: the message's vectors.
    let Some(vectors) = (unsafe { vectors(message.msg_iov, message.msg_iovlen) }) else {
        return sys::fail(libc::EMSGSIZE);
    };
    answer(stream::send(held, fd, vectors, flags, Some(message)))
}

/// A connected TCP socket names no sender.
unsafe fn no_sender(length: *mut libc::socklen_t) {
    // SAFETY: the caller's, or null.
    if let Some(length) = unsafe { length.as_mut() } {
        *length = 0;
    }
}

calls! {
    fn read(fd: c_int, to: Bytes, length: usize) -> isize, -1; |next| {
        match young::enter(fd, Use::Receive) {
            Served::Ours(held) => read_into(&held, fd, &one(to, length), 0),
            Served::Kernel(flight) => flight.received(0, next(fd, to, length)),
        }
    }

    fn __read(fd: c_int, to: Bytes, length: usize) -> isize, -1; |next| {
        read(fd, to, length)
    }

    fn __read_chk(fd: c_int, to: Bytes, length: usize, room: usize) -> isize, -1; |next| {
        match young::enter(fd, Use::Receive) {
            Served::Ours(held) if length <= room => read_into(&held, fd, &one(to, length), 0),
            Served::Ours(_) => next(fd, to, length, room),
            Served::Kernel(flight) => flight.received(0, next(fd, to, length, room)),
        }
    }

    fn readv(fd: c_int, at: *const Vector, count: c_int) -> isize, -1; |next| {
        match (young::enter(fd, Use::Receive), vectors(at, count.max(0) as usize)) {
            (Served::Ours(held), Some(vectors)) if count >= 0 => {
                read_into(&held, fd, vectors, 0)
            }
            (Served::Ours(_), _) => next(fd, at, count),
            (Served::Kernel(flight), _) => flight.received(0, next(fd, at, count)),
        }
    }

    fn preadv2(fd: c_int, at: *const Vector, count: c_int, from: i64, how: c_int) -> isize, -1; |next| {
        match young::enter(fd, Use::Receive) {
            Served::Ours(held) => match (without_place(from, how), entries(at, count)) {
                (Ok(flags), Some(vectors)) => read_into(&held, fd, vectors, flags),
                (Err(error), _) => sys::fail(error),
                (_, None) => sys::fail(libc::EINVAL),
            },
            Served::Kernel(flight) => flight.received(0, next(fd, at, count, from, how)),
        }
    }

    fn preadv64v2(fd: c_int, at: *const Vector, count: c_int, from: i64, how: c_int) -> isize, -1; |next| {
        preadv2(fd, at, count, from, how)
    }

    fn eventfd_read(fd: c_int, to: *mut u64) -> c_int, -1; |next| {
        if read(fd, to.cast(), 8) == 8 { 0 } else { -1 }
    }

    fn recv(fd: c_int, to: Bytes, length: usize, flags: c_int) -> isize, -1; |next| {
        match young::enter(fd, Use::Receive) {
            Served::Ours(held) => receive(&held, fd, to, length, flags),
            Served::Kernel(flight) => flight.received(flags, next(fd, to, length, flags)),
        }
    }

    fn __recv_chk(fd: c_int, to: Bytes, length: usize, room: usize, flags: c_int) -> isize, -1; |next| {
        match young::enter(fd, Use::Receive) {
            Served::Ours(held) if length <= room => receive(&held, fd, to, length, flags),
            Served::Ours(_) => next(fd, to, length, room, flags),
            Served::Kernel(flight) => flight.received(flags, next(fd, to, length, room, flags)),
        }
    }

    fn recvfrom(
        fd: c_int, to: Bytes, length: usize, flags: c_int, from: Bytes, size: *mut libc::socklen_t
    ) -> isize, -1; |next| {
        match young::enter(fd, Use::Receive) {
            Served::Ours(held) => {
                let got = receive(&held, fd, to, length, flags);
                if got >= 0 && !from.is_null() {
                    no_sender(size);
                }
                got
            }
            Served::Kernel(flight) => {
                flight.received(flags, next(fd, to, length, flags, from, size))
            }
        }
    }

    fn __recvfrom_chk(
        fd: c_int, to: Bytes, length: usize, room: usize, flags: c_int, from: Bytes,
        size: *mut libc::socklen_t
    ) -> isize, -1; |next| {
        match young::enter(fd, Use::Receive) {
            Served::Ours(held) if length <= room => {
                let got = receive(&held, fd, to, length, flags);
                if got >= 0 && !from.is_null() {
                    no_sender(size);
                }
                got
            }
            Served::Ours(_) => next(fd, to, length, room, flags, from, size),
            Served::Kernel(flight) => {
                flight.received(flags, next(fd, to, length, room, flags, from, size))
            }
        }
    }

    fn recvmsg(fd: c_int, message: *mut Message, flags: c_int) -> isize, -1; |next| {
        match young::enter(fd, Use::Receive) {
            Served::Ours(held) => receive_message(&held, fd, message, flags),
            Served::Kernel(flight) => {
                let got = flight.received(flags, next(fd, message, flags));
                if got >= 0 {
                    passed(message);
                }
                got
            }
        }
    }

    fn recvmmsg(
        fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int, limit: *mut libc::timespec
    ) -> c_int, -1; |next| {
        let held = match young::enter(fd, Use::Receive) {
            Served::Ours(held) => held,
            Served::Kernel(flight) => {
                let done = next(fd, messages, count, flags, limit);
                for at in 0..done.max(0) as usize {
                    flight.received(flags, (*messages.wrapping_add(at)).msg_len as isize);
                }
                return done;
            }
        };
        let begin = sys::now();
        let limit = limit.as_mut();
        let most = limit.as_ref().map(|time| nanoseconds(time));
        let (mut done, mut flags) = (0, flags);
        while done < count.min(1024) {
            let one = messages.wrapping_add(done as usize);
            let got = receive_message(&held, fd, &raw mut (*one).msg_hdr, flags & !libc::MSG_WAITFORONE);
            if got < 0 {
                break;
            }
            (*one).msg_len = got as c_uint;
            done += 1;
            if flags & libc::MSG_WAITFORONE != 0 {
                flags |= libc::MSG_DONTWAIT;
            }
            // The time is looked at behind each message (recvmmsg(2), BUGS).
            let over = most.is_some_and(|most| sys::now() - begin >= most);
            if over || (*one).msg_hdr.msg_flags & libc::MSG_OOB != 0 {
                break;
            }
        }
        if let (Some(time), Some(most)) = (limit, most) {
            let left = most.saturating_sub(sys::now() - begin);
            (time.tv_sec, time.tv_nsec) = ((left / 1_000_000_000) as i64, (left % 1_000_000_000) as i64);
        }
        if done > 0 { done as c_int } else { -1 }
    }

    fn write(fd: c_int, from: *const c_void, length: usize) -> isize, -1; |next| {
        match young::enter(fd, Use::Send(length)) {
            Served::Ours(held) => put(&held, fd, from, length, 0),
            Served::Kernel(flight) => flight.sent(next(fd, from, length)),
        }
    }

    fn __write(fd: c_int, from: *const c_void, length: usize) -> isize, -1; |next| {
        write(fd, from, length)
    }

    fn writev(fd: c_int, at: *const Vector, count: c_int) -> isize, -1; |next| {
        let vectors = vectors(at, count.max(0) as usize);
        let length = vectors.map_or(0, stream::total);
        match (young::enter(fd, Use::Send(length)), vectors) {
            (Served::Ours(held), Some(vectors)) if count >= 0 => {
                write_from(&held, fd, vectors, 0)
            }
            (Served::Ours(_), _) => next(fd, at, count),
            (Served::Kernel(flight), _) => flight.sent(next(fd, at, count)),
        }
    }

    fn pwritev2(fd: c_int, at: *const Vector, count: c_int, to: i64, how: c_int) -> isize, -1; |next| {
        let vectors = entries(at, count);
        let length = vectors.map_or(0, stream::total);
        match young::enter(fd, Use::Send(length)) {
            Served::Ours(held) => match (without_place(to, how), vectors) {
                (Ok(flags), Some(vectors)) => write_from(&held, fd, vectors, flags),
                (Err(error), _) => sys::fail(error),
                (_, None) => sys::fail(libc::EINVAL),
            },
            Served::Kernel(flight) => flight.sent(next(fd, at, count, to, how)),
        }
    }

    fn pwritev64v2(fd: c_int, at: *const Vector, count: c_int, to: i64, how: c_int) -> isize, -1; |next| {
        pwritev2(fd, at, count, to, how)
    }

    fn eventfd_write(fd: c_int, value: u64) -> c_int, -1; |next| {
        if write(fd, (&raw const value).cast(), 8) == 8 { 0 } else { -1 }
    }

    fn __send(fd: c_int, from: *const c_void, length: usize, flags: c_int) -> isize, -1; |next| {
        send(fd, from, length, flags)
    }

    fn send(fd: c_int, from: *const c_void, length: usize, flags: c_int) -> isize, -1; |next| {
        match young::enter(fd, Use::Send(length)) {
            Served::Ours(held) => put(&held, fd, from, length, flags),
            Served::Kernel(flight) => flight.sent(next(fd, from, length, flags)),
        }
    }

    fn sendto(
        fd: c_int, from: *const c_void, length: usize, flags: c_int, to: *const c_void,
        size: libc::socklen_t
    ) -> isize, -1; |next| {
        match young::enter(fd, Use::Send(length)) {
            Served::Ours(held) => put(&held, fd, from, length, flags),
            Served::Kernel(flight) => flight.sent(next(fd, from, length, flags, to, size)),
        }
    }

    fn sendmsg(fd: c_int, message: *const Message, flags: c_int) -> isize, -1; |next| {
        match young::enter(fd, Use::Send(length(message))) {
            Served::Ours(held) => send_message(&held, fd, message, flags),
            Served::Kernel(flight) => {
                passes(message);
                flight.sent(next(fd, message, flags))
            }
        }
    }

    fn sendmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int, -1; |next| {
        let first = if count > 0 { length(&raw const (*messages).msg_hdr) } else { 0 };
        let held = match young::enter(fd, Use::Send(first)) {
            Served::Ours(held) => held,
            Served::Kernel(flight) => {
                for at in 0..count.min(1024) as usize {
                    passes(&raw const (*messages.wrapping_add(at)).msg_hdr);
                }
                let done = next(fd, messages, count, flags);
                for at in 0..done.max(0) as usize {
                    flight.sent((*messages.wrapping_add(at)).msg_len as isize);
                }
                return done;
            }
        };
        let mut done = 0;
        while done < count {
            let one = messages.wrapping_add(done as usize);
            let sent = send_message(&held, fd, &raw const (*one).msg_hdr, flags);
            if sent < 0 {
                return if done > 0 { done as c_int } else { -1 };
            }
            (*one).msg_len = sent as c_uint;
            done += 1;
        }
        done as c_int
    }
}

/// A time that a call was given.
fn nanoseconds(time: &libc::timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

/// The bytes of a message.
unsafe fn length(message: *const Message) -> usize {
    // SAFETY: the caller's message, or null.
    let Some(message) = (unsafe { message.as_ref() }) else { return 0 };
    // SAFETY: the message's vectors.
    unsafe { vectors(message.msg_iov, message.msg_iovlen) }.map_or(0, stream::total)
}

/// Descriptors that came with a message are new ones.
unsafe fn passed(message: *const Message) {
    // SAFETY: the kernel has filled the caller's message.
    unsafe { each_descriptor(message, table::set_unknown) }
}

/// Connections that are passed to another process while they are young stay with TCP: the two would
/// count apart.
unsafe fn passes(message: *const Message) {
    // SAFETY: the caller's message, or null.
    unsafe {
        if message.as_ref().is_some_and(|message| message.msg_controllen > 0) {
            each_descriptor(message, |fd| {
                table::stays(fd, Why::Passed);
                epoll::leaves(fd);
            });
        }
    }
}

/// Each descriptor in the control data of a message.
unsafe fn each_descriptor(message: *const Message, act: fn(c_int)) {
    // SAFETY: the message is whole.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(message);
        while let Some(head) = at.as_ref() {
            if head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS {
                let length = head.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let fds = libc::CMSG_DATA(at).cast::<c_int>();
                for one in 0..length / size_of::<c_int>() {
                    act(fds.wrapping_add(one).read_unaligned());
                }
            }
            at = libc::CMSG_NXTHDR(message, at);
        }
    }
}
