//! Calls that wait for one of several descriptors.

use std::ffi::{c_int, c_void};

use super::{answer_int, calls};
use crate::epoll;
use crate::ready;
use crate::sys;
use crate::table::{self, Entry};

type Mask = *const c_void;
type Time = *const libc::timespec;
type Entries = *mut libc::pollfd;
type Events = *mut libc::epoll_event;
type Fds = *mut libc::fd_set;

fn of_milliseconds(limit: c_int) -> Option<u64> {
    u64::try_from(limit).ok().map(|limit| limit * 1_000_000)
}

/// `Err`: the time is none.
unsafe fn of_time(time: Time) -> Result<Option<u64>, ()> {
    // SAFETY: the caller's, or null.
    let Some(time) = (unsafe { time.as_ref() }) else { return Ok(None) };
    if time.tv_sec < 0 || !(0..1_000_000_000).contains(&time.tv_nsec) {
        return Err(());
    }
    Ok(Some((time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)))
}

unsafe fn poll_ours(
    fds: Entries,
    count: libc::nfds_t,
    limit: Option<u64>,
    mask: Mask,
) -> Option<c_int> {
    if fds.is_null() || count == 0 || count > 1 << 20 {
        return None;
    }
    // SAFETY: the caller has so many entries.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    ready::poll(fds, limit, mask).map(answer_int)
}

unsafe fn epoll_ours(
    set: c_int,
    events: Events,
    most: c_int,
    limit: Option<u64>,
    mask: Mask,
) -> Option<c_int> {
    let Entry::Set(ours) = table::entry(set) else { return None };
    if most <= 0 || events.is_null() {
        return None;
    }
    // SAFETY: the caller has room for so many events, and the mask is the caller's.
    let done = unsafe {
        let events = std::slice::from_raw_parts_mut(events, most as usize);
        ours.wait(set, events, limit, mask)
    };
    Some(answer_int(done))
}

const WORD: usize = 64;

/// The descriptors of up to three sets of `select`, below `count`.
struct Sets {
    at: [*mut u64; 3],
    words: usize,
}

impl Sets {
    fn has(&self, set: usize, fd: usize) -> bool {
        // SAFETY: the caller has sets of so many words, or null.
        !self.at[set].is_null()
            && unsafe { *self.at[set].wrapping_add(fd / WORD) } >> (fd % WORD) & 1 == 1
    }

    fn entries(&self, count: usize) -> Vec<libc::pollfd> {
        let events = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
        let of = |fd: usize| {
            let wanted = (0..3).filter(|set| self.has(*set, fd)).map(|set| events[set]);
            let events = wanted.fold(0, |all, one| all | one);
            (events != 0).then_some(libc::pollfd { fd: fd as c_int, events, revents: 0 })
        };
        (0..count).filter_map(of).collect()
    }

    fn fill(&self, entries: &[libc::pollfd]) -> usize {
        let masks = [
            libc::POLLIN | libc::POLLHUP | libc::POLLERR | libc::POLLRDHUP,
            libc::POLLOUT | libc::POLLERR,
            libc::POLLPRI,
        ];
        let mut count = 0;
        let asked = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
        for set in 0..3 {
            if self.at[set].is_null() {
                continue;
            }
            for word in 0..self.words {
                // SAFETY: as of `has`.
                unsafe { *self.at[set].wrapping_add(word) = 0 };
            }
            for entry in entries {
                if entry.revents & masks[set] != 0 && entry.events & asked[set] != 0 {
                    let fd = entry.fd as usize;
                    // SAFETY: as of `has`.
                    unsafe { *self.at[set].wrapping_add(fd / WORD) |= 1 << (fd % WORD) };
                    count += 1;
                }
            }
        }
        count
    }
}

/// Whether one of the descriptors may be ours: others cost `select` nothing but this.
fn may_be_ours(entries: &[libc::pollfd]) -> bool {
    entries.iter().any(|entry| {
        matches!(table::entry(entry.fd), Entry::Unknown | Entry::Socket(_) | Entry::Set(_))
    })
}

fn select_ours(count: c_int, sets: [Fds; 3], limit: Option<u64>, mask: Mask) -> Option<c_int> {
    let count = usize::try_from(count).ok().filter(|count| *count <= 65_536)?;
    let sets = Sets { at: sets.map(<*mut libc::fd_set>::cast), words: count.div_ceil(WORD) };
    let mut entries = sets.entries(count);
    if !may_be_ours(&entries) {
        return None;
    }
    let done = ready::poll(&mut entries, limit, mask)?;
    if entries.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
        return Some(sys::fail(libc::EBADF) as c_int);
    }
    Some(answer_int(done.map(|_| sets.fill(&entries))))
}

calls! {
    fn poll(fds: Entries, count: libc::nfds_t, limit: c_int) -> c_int, -1; |next| {
        match poll_ours(fds, count, of_milliseconds(limit), std::ptr::null()) {
            Some(done) => done,
            None => next(fds, count, limit),
        }
    }

    fn __poll(fds: Entries, count: libc::nfds_t, limit: c_int) -> c_int, -1; |next| {
        poll(fds, count, limit)
    }

    fn __poll_chk(fds: Entries, count: libc::nfds_t, limit: c_int, room: usize) -> c_int, -1; |next| {
        let fits = count as usize <= room / size_of::<libc::pollfd>();
        let ours = if fits { poll_ours(fds, count, of_milliseconds(limit), std::ptr::null()) } else { None };
        match ours {
            Some(done) => done,
            None => next(fds, count, limit, room),
        }
    }

    fn ppoll(fds: Entries, count: libc::nfds_t, time: Time, mask: Mask) -> c_int, -1; |next| {
        let ours = match of_time(time) {
            Ok(limit) => poll_ours(fds, count, limit, mask),
            Err(()) => None,
        };
        match ours {
            Some(done) => done,
            None => next(fds, count, time, mask),
        }
    }

    fn __ppoll_chk(fds: Entries, count: libc::nfds_t, time: Time, mask: Mask, room: usize) -> c_int, -1; |next| {
        let fits = count as usize <= room / size_of::<libc::pollfd>();
        let ours = match of_time(time) {
            Ok(limit) if fits => poll_ours(fds, count, limit, mask),
            _ => None,
        };
        match ours {
            Some(done) => done,
            None => next(fds, count, time, mask, room),
        }
    }

    fn select(count: c_int, reads: Fds, writes: Fds, others: Fds, time: *mut libc::timeval) -> c_int, -1; |next| {
        let limit = match time.as_ref() {
            None => Some(None),
            Some(time) if time.tv_sec >= 0 && time.tv_usec >= 0 => {
                let micro = (time.tv_sec as u64).saturating_mul(1_000_000).saturating_add(time.tv_usec as u64);
                Some(Some(micro.saturating_mul(1000)))
            }
            Some(_) => None,
        };
        let begin = sys::now();
        let ours = limit.and_then(|limit| select_ours(count, [reads, writes, others], limit, std::ptr::null()));
        let Some(done) = ours else { return next(count, reads, writes, others, time) };
        if let (Some(time), Some(Some(limit))) = (time.as_mut(), limit) {
            // As Linux does: what is left.
            let left = limit.saturating_sub(sys::now() - begin);
            time.tv_sec = (left / 1_000_000_000) as libc::time_t;
            time.tv_usec = (left % 1_000_000_000 / 1000) as libc::suseconds_t;
        }
        done
    }

    fn __select(count: c_int, reads: Fds, writes: Fds, others: Fds, time: *mut libc::timeval) -> c_int, -1; |next| {
        select(count, reads, writes, others, time)
    }

    fn pselect(count: c_int, reads: Fds, writes: Fds, others: Fds, time: Time, mask: Mask) -> c_int, -1; |next| {
        let ours = match of_time(time) {
            Ok(limit) => select_ours(count, [reads, writes, others], limit, mask),
            Err(()) => None,
        };
        match ours {
            Some(done) => done,
            None => next(count, reads, writes, others, time, mask),
        }
    }

    fn epoll_create(size: c_int) -> c_int, -1; |next| {
        let fd = next(size);
        if fd >= 0 && table::may_change() {
            epoll::made(fd);
        }
        fd
    }

    fn epoll_create1(flags: c_int) -> c_int, -1; |next| {
        let fd = next(flags);
        if fd >= 0 && table::may_change() {
            epoll::made(fd);
        }
        fd
    }

    fn epoll_ctl(set: c_int, what: c_int, fd: c_int, event: Events) -> c_int, -1; |next| {
        let given = event.as_ref().copied();
        match epoll::control(set, what, fd, given) {
            Some(done) => answer_int(done),
            None => next(set, what, fd, event),
        }
    }

    fn epoll_wait(set: c_int, events: Events, most: c_int, limit: c_int) -> c_int, -1; |next| {
        match epoll_ours(set, events, most, of_milliseconds(limit), std::ptr::null()) {
            Some(done) => done,
            None => next(set, events, most, limit),
        }
    }

    fn epoll_pwait(set: c_int, events: Events, most: c_int, limit: c_int, mask: Mask) -> c_int, -1; |next| {
        match epoll_ours(set, events, most, of_milliseconds(limit), mask) {
            Some(done) => done,
            None => next(set, events, most, limit, mask),
        }
    }

    fn epoll_pwait2(set: c_int, events: Events, most: c_int, time: Time, mask: Mask) -> c_int, -1; |next| {
        let ours = match of_time(time) {
            Ok(limit) => epoll_ours(set, events, most, limit, mask),
            Err(()) => None,
        };
        match ours {
            Some(done) => done,
            None => next(set, events, most, time, mask),
        }
    }
}
