//! Calls that wait for one of several descriptors.

use std::ffi::{c_int, c_void};

use super::{answer_int, calls, raw};
use crate::epoll;
use crate::ready;
use crate::sys::{self, Errno};
use crate::table::{self, Entry};
use crate::user;

type Mask = *const c_void;
type Time = *const libc::timespec;
type Entries = *mut libc::pollfd;
type Events = *mut libc::epoll_event;
type Fds = *mut libc::fd_set;

fn of_milliseconds(limit: c_int) -> Option<u64> {
    u64::try_from(limit).ok().map(|limit| limit * 1_000_000)
}

/// The time and the mask of a call: `EINVAL` or `EFAULT`, as the kernel says it.
unsafe fn limits(time: Time, mask: Mask) -> Result<(Option<u64>, Signals), Errno> {
    // SAFETY: the caller's arguments.
    unsafe { Ok((of_time(time)?, of_mask(mask)?)) }
}

unsafe fn of_time(time: Time) -> Result<Option<u64>, Errno> {
    // SAFETY: plain words.
    let Some(time) = (unsafe { user::fetch_optional(time) })? else { return Ok(None) };
    if time.tv_sec < 0 || !(0..1_000_000_000).contains(&time.tv_nsec) {
        return Err(libc::EINVAL);
    }
    Ok(Some((time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)))
}

/// Signals that a call lets through while it waits, as the kernel has them.
type Signals = Option<u64>;

unsafe fn of_mask(mask: Mask) -> Result<Signals, Errno> {
    // SAFETY: a plain word.
    unsafe { user::fetch_optional(mask.cast::<u64>()) }
}

fn place(signals: &Signals) -> Mask {
    signals.as_ref().map_or(std::ptr::null(), |signals| std::ptr::from_ref(signals).cast())
}

/// Copies of a few entries lie on the stack.
const FEW: usize = 8;

unsafe fn poll_ours(
    fds: Entries,
    count: libc::nfds_t,
    limit: Option<u64>,
    signals: Signals,
) -> Option<c_int> {
    const NONE: libc::pollfd = libc::pollfd { fd: -1, events: 0, revents: 0 };
    if count == 0 || count > 1 << 20 {
        return None;
    }
    let count = count as usize;
    let (mut few, mut many) = ([NONE; FEW], Vec::new());
    let entries = if count <= FEW {
        few.get_mut(..count)?
    } else {
        many.resize(count, NONE);
        many.as_mut_slice()
    };
    // SAFETY: plain words, and as much room. The kernel answers where the program has no memory.
    if !unsafe { user::fetch_into(fds, entries.as_mut_ptr(), count) } {
        return None;
    }
    let done = ready::poll(entries, limit, place(&signals))?;
    for (at, entry) in entries.iter().enumerate() {
        // SAFETY: the address of a part of what was read above, which nothing refers to.
        let place = unsafe { &raw mut (*fds.wrapping_add(at)).revents };
        if !user::put(place, entry.revents) {
            return Some(sys::fail(libc::EFAULT) as c_int);
        }
    }
    Some(answer_int(done))
}

unsafe fn epoll_ours(
    set: c_int,
    events: Events,
    most: c_int,
    limit: Option<u64>,
    mask: Mask,
) -> Option<c_int> {
    let Entry::Set(ours) = table::entry(set) else { return None };
    let most = usize::try_from(most).ok().filter(|most| (1..=MOST_EVENTS).contains(most))?;
    // SAFETY: the mask is the caller's.
    let signals = unsafe { of_mask(mask) }.ok()?;
    Some(answer_int(ours.wait(set, (events, most), limit, place(&signals))))
}

/// EP_MAX_EVENTS of the kernel's.
const MOST_EVENTS: usize = i32::MAX as usize / size_of::<libc::epoll_event>();

const WORD: usize = 64;

/// The descriptors of up to three sets of `select`, below a count: those of the program, and copies.
struct Sets {
    at: [*mut u64; 3],
    words: [Vec<u64>; 3],
}

impl Sets {
    /// `None`: the program has no memory at one of them.
    fn fetch(at: [*mut u64; 3], count: usize) -> Option<Sets> {
        let mut words = [const { Vec::new() }; 3];
        for (at, words) in at.into_iter().zip(&mut words).filter(|(at, _)| !at.is_null()) {
            words.resize(count.div_ceil(WORD), 0);
            // SAFETY: plain words, and as much room.
            if !unsafe { user::fetch_into(at, words.as_mut_ptr(), words.len()) } {
                return None;
            }
        }
        Some(Sets { at, words })
    }

    fn has(&self, set: usize, fd: usize) -> bool {
        self.words[set].get(fd / WORD).is_some_and(|word| word >> (fd % WORD) & 1 == 1)
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

    /// Give the program what was found; how much that is.
    fn fill(&mut self, entries: &[libc::pollfd]) -> Result<usize, Errno> {
        let masks = [
            libc::POLLIN | libc::POLLHUP | libc::POLLERR | libc::POLLRDHUP,
            libc::POLLOUT | libc::POLLERR,
            libc::POLLPRI,
        ];
        let mut count = 0;
        let asked = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
        for (set, words) in self.words.iter_mut().enumerate() {
            words.fill(0);
            for entry in entries {
                if entry.revents & masks[set] != 0 && entry.events & asked[set] != 0 {
                    let fd = entry.fd as usize;
                    if let Some(word) = words.get_mut(fd / WORD) {
                        *word |= 1 << (fd % WORD);
                    }
                    count += 1;
                }
            }
            for (at, word) in words.iter().enumerate() {
                if !user::put(self.at[set].wrapping_add(at), *word) {
                    return Err(libc::EFAULT);
                }
            }
        }
        Ok(count)
    }
}

/// Whether one of the descriptors may be ours: others cost `select` nothing but this.
fn may_be_ours(entries: &[libc::pollfd]) -> bool {
    entries.iter().any(|entry| {
        matches!(table::entry(entry.fd), Entry::Unknown | Entry::Socket(_) | Entry::Set(_))
    })
}

/// How many bits of its sets a call of `select` concerns, that was told `count`. Programs pass `getdtablesize()` with
/// sets of the C library's size: the kernel looks at no more bits than the process has places for descriptors.
fn looked_at(count: usize) -> usize {
    const SET: usize = 8 * size_of::<libc::fd_set>();
    if count <= SET { count } else { count.min(sys::places_for_descriptors().unwrap_or(SET)) }
}

fn select_ours(
    count: c_int,
    sets: [Fds; 3],
    limit: Option<u64>,
    signals: Signals,
) -> Option<c_int> {
    let count = looked_at(usize::try_from(count).ok()?);
    let mut sets = Sets::fetch(sets.map(<*mut libc::fd_set>::cast), count)?;
    let mut entries = sets.entries(count);
    if !may_be_ours(&entries) {
        return None;
    }
    let done = ready::poll(&mut entries, limit, place(&signals))?;
    if entries.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
        return Some(sys::fail(libc::EBADF) as c_int);
    }
    Some(answer_int(done.and_then(|_| sets.fill(&entries))))
}

/// The mask of the system call `pselect6`: where it is, and how long.
#[repr(C)]
#[derive(Clone, Copy)]
struct Pack {
    at: Mask,
    length: usize,
}

/// `pselect6`, which has a pack for its mask. `None`: the kernel says what is wrong with it.
pub(super) unsafe fn pselect6(
    count: c_int,
    [reads, writes, others]: [Fds; 3],
    time: Time,
    pack: usize,
) -> Option<c_int> {
    // SAFETY: plain words, and the caller's call.
    unsafe {
        let pack = user::fetch_optional(pack as *const Pack).ok()?;
        let mask = pack.map_or(std::ptr::null(), |pack| pack.at);
        if pack.is_some_and(|pack| !raw::is_mask(pack.at as usize, pack.length)) {
            return None;
        }
        Some(pselect(count, reads, writes, others, time, mask))
    }
}

calls! {
    #[waits]
    fn poll(fds: Entries, count: libc::nfds_t, limit: c_int) -> c_int, -1; |next| {
        match poll_ours(fds, count, of_milliseconds(limit), None) {
            Some(done) => done,
            None => next(fds, count, limit),
        }
    }

    #[waits]
    fn __poll(fds: Entries, count: libc::nfds_t, limit: c_int) -> c_int, -1; |next| {
        poll(fds, count, limit)
    }

    #[waits]
    fn __poll_chk(fds: Entries, count: libc::nfds_t, limit: c_int, room: usize) -> c_int, -1; |next| {
        let fits = count as usize <= room / size_of::<libc::pollfd>();
        let ours = if fits { poll_ours(fds, count, of_milliseconds(limit), None) } else { None };
        match ours {
            Some(done) => done,
            None => next(fds, count, limit, room),
        }
    }

    #[waits]
    fn ppoll(fds: Entries, count: libc::nfds_t, time: Time, mask: Mask) -> c_int, -1; |next| {
        let ours = match limits(time, mask) {
            Ok((limit, signals)) => poll_ours(fds, count, limit, signals),
            Err(error) => Some(sys::fail(error) as c_int),
        };
        match ours {
            Some(done) => done,
            None => next(fds, count, time, mask),
        }
    }

    #[waits]
    fn __ppoll_chk(fds: Entries, count: libc::nfds_t, time: Time, mask: Mask, room: usize) -> c_int, -1; |next| {
        let fits = count as usize <= room / size_of::<libc::pollfd>();
        let ours = match limits(time, mask) {
            Ok((limit, signals)) if fits => poll_ours(fds, count, limit, signals),
            Ok(_) => None,
            Err(error) => Some(sys::fail(error) as c_int),
        };
        match ours {
            Some(done) => done,
            None => next(fds, count, time, mask, room),
        }
    }

    #[waits]
    fn select(count: c_int, reads: Fds, writes: Fds, others: Fds, time: *mut libc::timeval) -> c_int, -1; |next| {
        let limit = match user::fetch_optional(time) {
            Err(error) => return sys::fail(error) as c_int,
            Ok(None) => Some(None),
            Ok(Some(time)) if time.tv_sec >= 0 && time.tv_usec >= 0 => {
                let micro = (time.tv_sec as u64).saturating_mul(1_000_000).saturating_add(time.tv_usec as u64);
                Some(Some(micro.saturating_mul(1000)))
            }
            _ => None,
        };
        let begin = sys::now();
        let ours = limit.and_then(|limit| select_ours(count, [reads, writes, others], limit, None));
        let Some(done) = ours else { return next(count, reads, writes, others, time) };
        if let Some(Some(limit)) = limit {
            // As Linux does: what is left.
            let left = limit.saturating_sub(sys::now() - begin);
            let tv_sec = (left / 1_000_000_000) as libc::time_t;
            let tv_usec = (left % 1_000_000_000 / 1000) as libc::suseconds_t;
            user::put(time, libc::timeval { tv_sec, tv_usec });
        }
        done
    }

    #[waits]
    fn __select(count: c_int, reads: Fds, writes: Fds, others: Fds, time: *mut libc::timeval) -> c_int, -1; |next| {
        select(count, reads, writes, others, time)
    }

    #[waits]
    fn pselect(count: c_int, reads: Fds, writes: Fds, others: Fds, time: Time, mask: Mask) -> c_int, -1; |next| {
        let ours = match limits(time, mask) {
            Ok((limit, signals)) => select_ours(count, [reads, writes, others], limit, signals),
            Err(error) => Some(sys::fail(error) as c_int),
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
        let given = if what == libc::EPOLL_CTL_DEL { None } else { user::fetch(event) };
        // Of a wrong address the kernel says so.
        let ours = if given.is_some() || what == libc::EPOLL_CTL_DEL {
            epoll::control(set, what, fd, given)
        } else {
            None
        };
        match ours {
            Some(done) => answer_int(done),
            None => next(set, what, fd, event),
        }
    }

    #[waits]
    fn epoll_wait(set: c_int, events: Events, most: c_int, limit: c_int) -> c_int, -1; |next| {
        match epoll_ours(set, events, most, of_milliseconds(limit), std::ptr::null()) {
            Some(done) => done,
            None => next(set, events, most, limit),
        }
    }

    #[waits]
    fn epoll_pwait(set: c_int, events: Events, most: c_int, limit: c_int, mask: Mask) -> c_int, -1; |next| {
        match epoll_ours(set, events, most, of_milliseconds(limit), mask) {
            Some(done) => done,
            None => next(set, events, most, limit, mask),
        }
    }

    #[waits]
    fn epoll_pwait2(set: c_int, events: Events, most: c_int, time: Time, mask: Mask) -> c_int, -1; |next| {
        let ours = match of_time(time) {
            Ok(limit) => epoll_ours(set, events, most, limit, mask),
            Err(error) => Some(sys::fail(error) as c_int),
        };
        match ours {
            Some(done) => done,
            None => next(set, events, most, time, mask),
        }
    }
}
