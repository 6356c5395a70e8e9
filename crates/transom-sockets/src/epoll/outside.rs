//! Epoll sets that this library has not seen being made, and what the kernel says of an entry.
//!
//! The kernel prints the entries of a set in `/proc/self/fdinfo`: `tfd:` the descriptor, `events:` those that
//! it waits for, in hexadecimal (`proc_pid_fdinfo(5)`).

use std::ffi::{CString, c_int};

use transom_switch::interest;

use crate::sys;
use crate::table::{self, Entry};

/// Events that the kernel keeps of an entry which it has reported once.
const KEPT: u32 =
    interest::ONESHOT | interest::EDGE | libc::EPOLLWAKEUP as u32 | libc::EPOLLEXCLUSIVE as u32;

/// Call `act` with the events of each entry of the set `epoll` that has this descriptor.
fn each_entry(epoll: c_int, fd: c_int, mut act: impl FnMut(u32)) {
    let Ok(name) = CString::new(format!("/proc/self/fdinfo/{epoll}")) else { return };
    let Ok(text) = sys::read_whole(&name) else { return };
    for line in String::from_utf8_lossy(&text).lines() {
        let mut words = line.split_ascii_whitespace();
        if words.next() == Some("tfd:")
            && words.next().and_then(|word| word.parse().ok()) == Some(fd)
            && words.next() == Some("events:")
            && let Some(events) = words.next().and_then(|word| u32::from_str_radix(word, 16).ok())
        {
            act(events);
        }
    }
}

/// Whether the kernel has reported each entry of this descriptor that was to be reported once.
pub(super) fn is_spent(epoll: c_int, fd: c_int) -> bool {
    let (mut any, mut armed) = (false, false);
    each_entry(epoll, fd, |events| {
        any = true;
        armed |= events & !KEPT != 0;
    });
    any && !armed
}

/// Whether a set has this descriptor that was made past this library.
pub(super) fn has(fd: c_int) -> bool {
    let mut found = false;
    sys::each_name(c"/proc/self/fd", |name| {
        let Some(set) = name.to_str().ok().and_then(|name| name.parse().ok()) else { return };
        if matches!(table::entry(set), Entry::Unknown | Entry::Plain)
            && let Ok(path) = CString::new(format!("/proc/self/fd/{set}"))
            && sys::link(&path, &mut [0; 64]) == Some(b"anon_inode:[eventpoll]")
        {
            each_entry(set, fd, |_| found = true);
        }
    });
    found
}
