//! Calls that read and write.

use std::ffi::{c_int, c_uint, c_void};
use std::ops::Deref;

use super::{answer, calls};
use crate::epoll;
use crate::said::Why;
use crate::stream::{self, Receive};
use crate::sys::{self, Errno};
use crate::table::{self, Entry, Held};
use crate::user;
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
fn read_into(held: &Held, fd: c_int, vectors: &[Vector], flags: c_int) -> Result<usize, Errno> {
    if stream::total(vectors) == 0 {
        return Ok(0);
    }
    stream::receive(held, fd, Receive { vectors, flags, message: None })
}

/// Send what several pieces have: nothing is sent of nothing, whatever has become of the connection.
fn write_from(held: &Held, fd: c_int, vectors: &[Vector], flags: c_int) -> Result<usize, Errno> {
    if stream::total(vectors) == 0 {
        return Ok(0);
    }
    stream::send(held, fd, vectors, flags, None)
}

fn put(held: &Held, fd: c_int, at: *const c_void, length: usize, flags: c_int) -> isize {
    answer(stream::send(held, fd, &one(at.cast_mut(), length), flags, None))
}

/// Vectors that a call was given, copied from the program's memory.
struct Vectors {
    few: [Vector; FEW],
    many: Vec<Vector>,
    count: usize,
}

const FEW: usize = 8;
/// UIO_MAXIOV of the kernel's.
const MOST_VECTORS: usize = 1024;

impl Deref for Vectors {
    type Target = [Vector];

    #[inline]
    fn deref(&self) -> &[Vector] {
        self.few.get(..self.count).unwrap_or(&self.many)
    }
}

/// The vectors of a call. `EINVAL`: more than the kernel takes.
fn vectors(at: *const Vector, count: usize) -> Result<Vectors, Errno> {
    const NONE: Vector = Vector { iov_base: std::ptr::null_mut(), iov_len: 0 };
    if count > MOST_VECTORS {
        return Err(libc::EINVAL);
    }
    let mut all = Vectors { few: [NONE; FEW], many: Vec::new(), count };
    let to = if count > FEW {
        all.many.resize(count, NONE);
        all.many.as_mut_ptr()
    } else {
        all.few.as_mut_ptr()
    };
    let length = count * size_of::<Vector>();
    // SAFETY: there is room for so many vectors.
    let copied = unsafe { user::copy(at.cast(), to.cast(), length) };
    if copied == length { Ok(all) } else { Err(libc::EFAULT) }
}

/// As [`vectors`], with the count of a call.
fn entries(at: *const Vector, count: c_int) -> Result<Vectors, Errno> {
    usize::try_from(count).map_err(|_| libc::EINVAL).and_then(|count| vectors(at, count))
}

/// A call that sends so many bytes, asked for where the descriptor is a connection that is not switched.
fn sends(fd: c_int, bytes: impl FnOnce() -> Option<usize>) -> Use {
    let asks = matches!(table::entry(fd), Entry::Socket(socket) if !socket.is_attached());
    Use::Send(if asks { bytes().unwrap_or_default() } else { 0 })
}

/// The flags of a message that `preadv2` or `pwritev2` means. A stream has no places (preadv2(2)). The kernel looks at
/// flags where there is something to move.
fn without_place(place: i64, how: c_int, bytes: usize) -> Result<c_int, Errno> {
    /// Those that the kernel takes for a socket: RWF_HIPRI, RWF_DSYNC, RWF_SYNC, RWF_NOWAIT, RWF_APPEND, RWF_NOAPPEND,
    /// RWF_NOSIGNAL.
    const KNOWN: c_int = 0x13F;
    const RWF_NOWAIT: c_int = 8;
    const RWF_NOSIGNAL: c_int = 0x100;
    let flag = |of: c_int, means: c_int| if how & of != 0 { means } else { 0 };
    match place {
        -1 if how & !KNOWN != 0 && bytes > 0 => Err(libc::EOPNOTSUPP),
        -1 => Ok(flag(RWF_NOWAIT, libc::MSG_DONTWAIT) | flag(RWF_NOSIGNAL, libc::MSG_NOSIGNAL)),
        0.. => Err(libc::ESPIPE),
        _ => Err(libc::EINVAL),
    }
}

/// A message's own error for too many vectors.
fn of_message(error: Errno) -> Errno {
    if error == libc::EINVAL { libc::EMSGSIZE } else { error }
}

fn receive_message(held: &Held, fd: c_int, message: *mut Message, flags: c_int) -> isize {
    // SAFETY: plain words.
    let Some(mut own) = (unsafe { user::fetch(message) }) else { return sys::fail(libc::EFAULT) };
    if !own.msg_name.is_null() && own.msg_namelen.cast_signed() < 0 {
        return sys::fail(libc::EINVAL);
    }
    let got = vectors(own.msg_iov, own.msg_iovlen).map_err(of_message).and_then(|vectors| {
        let what = Receive { vectors: &vectors, flags, message: Some(&mut own) };
        stream::receive(held, fd, what)
    });
    if got.is_ok() && !user::put(message, own) {
        return sys::fail(libc::EFAULT);
    }
    answer(got)
}

fn send_message(held: &Held, fd: c_int, message: *const Message, flags: c_int) -> isize {
    // SAFETY: plain words.
    let Some(own) = (unsafe { user::fetch(message) }) else { return sys::fail(libc::EFAULT) };
    let vectors = is_right_beside_bytes(fd, &own)
        .and_then(|()| vectors(own.msg_iov, own.msg_iovlen).map_err(of_message));
    answer(vectors.and_then(|vectors| stream::send(held, fd, &vectors, flags, Some(&own))))
}

/// Name and control data of a message are for the kernel to judge: a message with no bytes has them judged.
fn is_right_beside_bytes(fd: c_int, message: &Message) -> Result<(), Errno> {
    if message.msg_name.is_null() && message.msg_controllen == 0 {
        return Ok(());
    }
    let own = Message { msg_iov: std::ptr::null_mut(), msg_iovlen: 0, ..*message };
    // SAFETY: the kernel copies what the message refers to.
    match unsafe { sys::send_message(fd, &raw const own, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) }
    {
        Err(error @ (libc::EINVAL | libc::EFAULT | libc::ENOBUFS)) => Err(error),
        _ => Ok(()),
    }
}

/// The address of a `sendto`, as [`is_right_beside_bytes`].
fn is_right_address(fd: c_int, to: *const c_void, size: libc::socklen_t) -> Result<(), Errno> {
    const LONGEST: libc::socklen_t = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    if to.is_null() {
        return Ok(());
    }
    if size > LONGEST {
        return Err(libc::EINVAL);
    }
    // SAFETY: zeros are a message without parts.
    let mut message: Message = unsafe { std::mem::zeroed() };
    (message.msg_name, message.msg_namelen) = (to.cast_mut(), size);
    is_right_beside_bytes(fd, &message)
}

/// A connected TCP socket names no sender.
fn no_sender(length: *mut libc::socklen_t) -> Result<(), Errno> {
    // SAFETY: a plain word.
    let given = unsafe { user::fetch(length) }.ok_or(libc::EFAULT)?;
    if given.cast_signed() < 0 {
        return Err(libc::EINVAL);
    }
    user::put(length, 0).then_some(()).ok_or(libc::EFAULT)
}

/// As [`receive`], of `recvfrom`.
fn receive_from(
    held: &Held,
    fd: c_int,
    (at, length, flags): (Bytes, usize, c_int),
    (from, size): (Bytes, *mut libc::socklen_t),
) -> isize {
    let got = receive(held, fd, at, length, flags);
    match if got >= 0 && !from.is_null() { no_sender(size) } else { Ok(()) } {
        Ok(()) => got,
        Err(error) => sys::fail(error),
    }
}

calls! {
    #[waits]
    fn read(fd: c_int, to: Bytes, length: usize) -> isize, -1; |next| {
        match young::enter(fd, Use::Receive) {
            Served::Ours(held) => answer(read_into(&held, fd, &one(to, length), 0)),
            Served::Kernel(flight) => flight.received(0, next(fd, to, length)),
        }
    }

    #[waits]
    fn __read(fd: c_int, to: Bytes, length: usize) -> isize, -1; |next| {
        read(fd, to, length)
    }

    #[waits]
    fn __read_chk(fd: c_int, to: Bytes, length: usize, room: usize) -> isize, -1; |next| {
        match young::enter(fd, Use::Receive) {
            Served::Ours(held) if length <= room => answer(read_into(&held, fd, &one(to, length), 0)),
            Served::Ours(_) => next(fd, to, length, room),
            Served::Kernel(flight) => flight.received(0, next(fd, to, length, room)),
        }
    }

    #[waits]
    fn readv(fd: c_int, at: *const Vector, count: c_int) -> isize, -1; |next| {
        match young::enter(fd, Use::Receive) {
            Served::Ours(held) => {
                answer(entries(at, count).and_then(|vectors| read_into(&held, fd, &vectors, 0)))
            }
            Served::Kernel(flight) => flight.received(0, next(fd, at, count)),
        }
    }

    #[waits]
    fn preadv2(fd: c_int, at: *const Vector, count: c_int, from: i64, how: c_int) -> isize, -1; |next| {
        match young::enter(fd, Use::Receive) {
            Served::Ours(held) => answer(entries(at, count).and_then(|vectors| {
                let flags = without_place(from, how, stream::total(&vectors))?;
                read_into(&held, fd, &vectors, flags)
            })),
            Served::Kernel(flight) => flight.received(0, next(fd, at, count, from, how)),
        }
    }

    #[waits]
    fn preadv64v2(fd: c_int, at: *const Vector, count: c_int, from: i64, how: c_int) -> isize, -1; |next| {
        preadv2(fd, at, count, from, how)
    }

    fn eventfd_read(fd: c_int, to: *mut u64) -> c_int, -1; |next| {
        if read(fd, to.cast(), 8) == 8 { 0 } else { -1 }
    }

    #[waits]
    fn recv(fd: c_int, to: Bytes, length: usize, flags: c_int) -> isize, -1; |next| {
        match young::enter(fd, Use::Receive) {
            Served::Ours(held) => receive(&held, fd, to, length, flags),
            Served::Kernel(flight) => flight.received(flags, next(fd, to, length, flags)),
        }
    }

    #[waits]
    fn __recv_chk(fd: c_int, to: Bytes, length: usize, room: usize, flags: c_int) -> isize, -1; |next| {
        match young::enter(fd, Use::Receive) {
            Served::Ours(held) if length <= room => receive(&held, fd, to, length, flags),
            Served::Ours(_) => next(fd, to, length, room, flags),
            Served::Kernel(flight) => flight.received(flags, next(fd, to, length, room, flags)),
        }
    }

    #[waits]
    fn recvfrom(
        fd: c_int, to: Bytes, length: usize, flags: c_int, from: Bytes, size: *mut libc::socklen_t
    ) -> isize, -1; |next| {
        match young::enter(fd, Use::Receive) {
            Served::Ours(held) => receive_from(&held, fd, (to, length, flags), (from, size)),
            Served::Kernel(flight) => {
                flight.received(flags, next(fd, to, length, flags, from, size))
            }
        }
    }

    #[waits]
    fn __recvfrom_chk(
        fd: c_int, to: Bytes, length: usize, room: usize, flags: c_int, from: Bytes,
        size: *mut libc::socklen_t
    ) -> isize, -1; |next| {
        match young::enter(fd, Use::Receive) {
            Served::Ours(held) if length <= room => {
                receive_from(&held, fd, (to, length, flags), (from, size))
            }
            Served::Ours(_) => next(fd, to, length, room, flags, from, size),
            Served::Kernel(flight) => {
                flight.received(flags, next(fd, to, length, room, flags, from, size))
            }
        }
    }

    #[waits]
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

    #[waits]
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
        // SAFETY: plain words.
        let most = match user::fetch_optional(limit) {
            Ok(time) => time.map(nanoseconds).transpose(),
            Err(error) => Err(error),
        };
        let most = match most {
            Ok(most) => most,
            Err(error) => return sys::fail(error) as c_int,
        };
        // An error that the connection has is told first, whatever there is to read.
        if flags & libc::MSG_ERRQUEUE == 0
            && let Some(error) = stream::error_before(&held, fd)
        {
            return sys::fail(error) as c_int;
        }
        if count == 0 {
            return 0;
        }
        let (mut done, mut flags) = (0, flags);
        while done < count.min(1024) {
            let one = messages.wrapping_add(done as usize);
            let got = receive_message(&held, fd, &raw mut (*one).msg_hdr, flags & !libc::MSG_WAITFORONE);
            if got < 0 {
                break;
            }
            if !user::put(&raw mut (*one).msg_len, got as c_uint) {
                sys::fail(libc::EFAULT);
                break;
            }
            done += 1;
            if flags & libc::MSG_WAITFORONE != 0 {
                flags |= libc::MSG_DONTWAIT;
            }
            // The time is looked at behind each message (recvmmsg(2), BUGS).
            let over = most.is_some_and(|most| sys::now() - begin >= most);
            let told = user::fetch(&raw const (*one).msg_hdr.msg_flags).unwrap_or_default();
            if over || told & libc::MSG_OOB != 0 {
                break;
            }
        }
        if let Some(most) = most {
            let left = most.saturating_sub(sys::now() - begin);
            let (tv_sec, tv_nsec) = ((left / 1_000_000_000) as i64, (left % 1_000_000_000) as i64);
            user::put(limit, libc::timespec { tv_sec, tv_nsec });
        }
        if done > 0 { done as c_int } else { -1 }
    }

    #[waits]
    fn write(fd: c_int, from: *const c_void, length: usize) -> isize, -1; |next| {
        match young::enter(fd, Use::Send(length)) {
            Served::Ours(held) => put(&held, fd, from, length, 0),
            Served::Kernel(flight) => flight.sent(next(fd, from, length)),
        }
    }

    #[waits]
    fn __write(fd: c_int, from: *const c_void, length: usize) -> isize, -1; |next| {
        write(fd, from, length)
    }

    #[waits]
    fn writev(fd: c_int, at: *const Vector, count: c_int) -> isize, -1; |next| {
        let bytes = || entries(at, count).ok().map(|vectors| stream::total(&vectors));
        match young::enter(fd, sends(fd, bytes)) {
            Served::Ours(held) => answer(
                entries(at, count).and_then(|vectors| write_from(&held, fd, &vectors, 0))
            ),
            Served::Kernel(flight) => flight.sent(next(fd, at, count)),
        }
    }

    #[waits]
    fn pwritev2(fd: c_int, at: *const Vector, count: c_int, to: i64, how: c_int) -> isize, -1; |next| {
        let bytes = || entries(at, count).ok().map(|vectors| stream::total(&vectors));
        match young::enter(fd, sends(fd, bytes)) {
            Served::Ours(held) => answer(entries(at, count).and_then(|vectors| {
                let flags = without_place(to, how, stream::total(&vectors))?;
                write_from(&held, fd, &vectors, flags)
            })),
            Served::Kernel(flight) => flight.sent(next(fd, at, count, to, how)),
        }
    }

    #[waits]
    fn pwritev64v2(fd: c_int, at: *const Vector, count: c_int, to: i64, how: c_int) -> isize, -1; |next| {
        pwritev2(fd, at, count, to, how)
    }

    fn eventfd_write(fd: c_int, value: u64) -> c_int, -1; |next| {
        if write(fd, (&raw const value).cast(), 8) == 8 { 0 } else { -1 }
    }

    #[waits]
    fn __send(fd: c_int, from: *const c_void, length: usize, flags: c_int) -> isize, -1; |next| {
        send(fd, from, length, flags)
    }

    #[waits]
    fn send(fd: c_int, from: *const c_void, length: usize, flags: c_int) -> isize, -1; |next| {
        match young::enter(fd, Use::Send(length)) {
            Served::Ours(held) => put(&held, fd, from, length, flags),
            Served::Kernel(flight) => flight.sent(next(fd, from, length, flags)),
        }
    }

    #[waits]
    fn sendto(
        fd: c_int, from: *const c_void, length: usize, flags: c_int, to: *const c_void,
        size: libc::socklen_t
    ) -> isize, -1; |next| {
        match young::enter(fd, Use::Send(length)) {
            Served::Ours(held) => match is_right_address(fd, to, size) {
                Ok(()) => put(&held, fd, from, length, flags),
                Err(error) => sys::fail(error),
            },
            Served::Kernel(flight) => flight.sent(next(fd, from, length, flags, to, size)),
        }
    }

    #[waits]
    fn sendmsg(fd: c_int, message: *const Message, flags: c_int) -> isize, -1; |next| {
        match young::enter(fd, sends(fd, || length(message))) {
            Served::Ours(held) => send_message(&held, fd, message, flags),
            Served::Kernel(flight) => {
                passes(message);
                flight.sent(next(fd, message, flags))
            }
        }
    }

    #[waits]
    fn sendmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int, -1; |next| {
        let first = || (count > 0).then(|| length(&raw const (*messages).msg_hdr)).flatten();
        let held = match young::enter(fd, sends(fd, first)) {
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
        while done < count.min(1024) {
            let one = messages.wrapping_add(done as usize);
            let sent = send_message(&held, fd, &raw const (*one).msg_hdr, flags);
            if sent < 0 {
                return if done > 0 { done as c_int } else { -1 };
            }
            if !user::put(&raw mut (*one).msg_len, sent as c_uint) {
                sys::fail(libc::EFAULT);
                return if done > 0 { done as c_int } else { -1 };
            }
            done += 1;
            // The next message would not be behind the rest of this one.
            if length(&raw const (*one).msg_hdr).is_none_or(|all| (sent as usize) < all) {
                break;
            }
        }
        done as c_int
    }
}

/// A time that a call was given. `EINVAL`: none.
fn nanoseconds(time: libc::timespec) -> Result<u64, Errno> {
    const SECOND: u64 = 1_000_000_000;
    match (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(rest @ ..SECOND)) => {
            Ok(seconds.saturating_mul(SECOND).saturating_add(rest))
        }
        _ => Err(libc::EINVAL),
    }
}

/// The bytes of a message.
fn length(message: *const Message) -> Option<usize> {
    // SAFETY: plain words.
    let own = unsafe { user::fetch(message) }?;
    vectors(own.msg_iov, own.msg_iovlen).ok().map(|vectors| stream::total(&vectors))
}

/// Descriptors that came with a message are new ones.
unsafe fn passed(message: *const Message) {
    // SAFETY: the kernel has filled the caller's message.
    unsafe { each_descriptor(message, table::set_unknown) }
}

/// Connections that are passed to another process while they are young stay with TCP: the two would
/// count apart.
fn passes(message: *const Message) {
    /// More control data than the kernel takes by far.
    const MOST: usize = 64 << 10;
    // A process that has no connection passes none on.
    if !user::is_prepared() {
        return;
    }
    // SAFETY: plain words.
    let Some(mut own) = (unsafe { user::fetch(message) }) else { return };
    if own.msg_controllen == 0 || own.msg_controllen > MOST {
        return;
    }
    let mut control = vec![0_u64; own.msg_controllen.div_ceil(8)];
    let (from, to) = (own.msg_control.cast(), control.as_mut_ptr().cast());
    // SAFETY: there is room for so many bytes.
    own.msg_controllen = unsafe { user::copy(from, to, own.msg_controllen) };
    own.msg_control = control.as_mut_ptr().cast();
    // SAFETY: a message with control data of this call's own.
    unsafe {
        each_descriptor(&raw const own, |fd| {
            table::stays(fd, Why::Passed);
            epoll::leaves(fd);
        });
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
