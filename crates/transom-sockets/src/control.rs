//! Messages beside the bytes of a `recvmsg`: how many bytes are left (TCP_INQ), and when the last ones came
//! (SO_TIMESTAMP, SO_TIMESTAMPNS).

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use transom_switch::session::Session;

use super::sys;
use super::table::Socket;

/// Bits of what the program wants to know.
const UNREAD: u32 = 1;
const TIME: u32 = 2;
const TIME_IN_NANOSECONDS: u32 = 4;

const TCP_CM_INQ: c_int = libc::TCP_INQ;

/// Ask the kernel what the program wants to know.
pub(crate) fn take_wishes(fd: c_int, session: &Session<'_>) {
    let options = [
        (libc::IPPROTO_TCP, libc::TCP_INQ, UNREAD),
        (libc::SOL_SOCKET, libc::SO_TIMESTAMP, TIME),
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, TIME_IN_NANOSECONDS),
    ];
    let wishes = options.into_iter().filter(|(level, name, _)| {
        sys::option::<c_int>(fd, *level, *name).is_ok_and(|value| value != 0)
    });
    let bits = wishes.fold(0, |sum, (_, _, bit)| sum | bit);
    session.end().messages.store(bits, Ordering::Relaxed);
}

/// Put the messages into the room of a `recvmsg` that has taken `got` bytes from the ring. `room`: the bytes that
/// the program has for them.
///
/// # Safety
/// There are so many bytes where the message says.
pub(crate) unsafe fn put(
    (held, fd): (&Socket, c_int),
    session: &Session<'_>,
    message: &mut libc::msghdr,
    (room, got): (usize, usize),
) {
    let wishes = session.end().messages.load(Ordering::Relaxed);
    message.msg_controllen = 0;
    if wishes == 0 {
        return;
    }
    let room = if message.msg_control.is_null() { 0 } else { room };
    let now = sys::time_of_day();
    if wishes & TIME != 0 && got > 0 {
        let micro = libc::timeval { tv_sec: now.tv_sec, tv_usec: now.tv_nsec / 1000 };
        // SAFETY: the caller's.
        unsafe { put_one(message, room, (libc::SOL_SOCKET, libc::SO_TIMESTAMP), micro) };
    }
    if wishes & TIME_IN_NANOSECONDS != 0 && got > 0 {
        // SAFETY: the caller's.
        unsafe { put_one(message, room, (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS), now) };
    }
    if wishes & UNREAD != 0 {
        let left = session.arrived().map_or(0, |incoming| {
            // The end counts as a byte, so that the program comes back for it.
            let ended = incoming.all == 0 && (incoming.finished || held.look_at_tcp(fd));
            incoming.all + u64::from(ended)
        });
        // SAFETY: the caller's.
        unsafe { put_one(message, room, (libc::IPPROTO_TCP, TCP_CM_INQ), left as c_int) };
    }
}

/// Adds a message behind those that are there (cmsg(3)).
///
/// # Safety
/// As of [`put`].
unsafe fn put_one<T>(message: &mut libc::msghdr, room: usize, kind: (c_int, c_int), value: T) {
    let head = size_of::<libc::cmsghdr>();
    let left = room - message.msg_controllen;
    if left < head {
        message.msg_flags |= libc::MSG_CTRUNC;
        return;
    }
    let wanted = head + size_of::<T>();
    if left < wanted {
        message.msg_flags |= libc::MSG_CTRUNC;
    }
    let length = wanted.min(left);
    // SAFETY: the room has `length` bytes more, and the head fits.
    unsafe {
        let at = message.msg_control.wrapping_byte_add(message.msg_controllen);
        let mut one: libc::cmsghdr = std::mem::zeroed();
        (one.cmsg_len, one.cmsg_level, one.cmsg_type) = (length, kind.0, kind.1);
        at.cast::<libc::cmsghdr>().write_unaligned(one);
        let data: *const u8 = (&raw const value).cast();
        std::ptr::copy_nonoverlapping(data, at.wrapping_byte_add(head).cast(), length - head);
    }
    message.msg_controllen += length.next_multiple_of(size_of::<usize>()).min(left);
}
