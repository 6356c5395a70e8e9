//! Calls that wait for a set: which sockets are looked at, and when the thread sleeps.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Set;
use super::slots::{IDLE, Kernel};
use crate::ready;
use crate::sys::{self, Errno};
use crate::table::Socket;

/// Every so many calls that find a hot socket ready ask the kernel, too.
const TURNS: u32 = 8;

/// Threads of this process that sleep in a set.
static ASLEEP: AtomicU32 = AtomicU32::new(0);
/// The number of the latest sleep of a set of this process; 0: none yet.
static SLEEP: AtomicU64 = AtomicU64::new(0);

/// The number of a sleep, which no other one of any process has.
fn next_sleep() -> u64 {
    if SLEEP.load(Ordering::Relaxed) == 0 {
        // The lower part is counted up; the upper one is the process's, and never 0.
        let first = sys::random() | 1 << 63;
        let first = first & !u64::from(u32::MAX);
        let _ = SLEEP.compare_exchange(0, first, Ordering::Relaxed, Ordering::Relaxed);
    }
    SLEEP.fetch_add(1, Ordering::Relaxed) + 1
}

/// Threads of this process that sleep in a set.
pub(crate) fn asleep() -> u32 {
    ASLEEP.load(Ordering::SeqCst)
}

/// In the child of a fork, no thread sleeps, and numbers of sleeps are its own.
pub(super) fn after_fork() {
    ASLEEP.store(0, Ordering::SeqCst);
    SLEEP.store(0, Ordering::SeqCst);
}

/// A thread in a call that waits for a set.
struct Inside(&'static Set);

impl Inside {
    fn new(set: &'static Set) -> Inside {
        if set.inside.fetch_add(1, Ordering::SeqCst) > 0 {
            set.rings_for_each();
        }
        Inside(set)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.0.nested.load(Ordering::SeqCst)
            && let Some(mut inner) = self.0.inner.lock()
        {
            inner.rouse(self.0);
        }
        let less = |count: u32| Some(count.saturating_sub(1));
        let _ = self.0.inside.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }
}

impl Set {
    /// The number of a sleep that the doorbell of any hot socket ends.
    pub(super) fn sleep(&self) -> u64 {
        if self.shared.load(Ordering::SeqCst) { 0 } else { next_sleep() }
    }

    /// `epoll_pwait`.
    ///
    /// # Safety
    /// The mask is a kernel's signal mask, or null.
    pub(crate) unsafe fn wait(
        &'static self,
        epoll: c_int,
        events: &mut [libc::epoll_event],
        limit: Option<u64>,
        mask: *const c_void,
    ) -> Result<usize, Errno> {
        let ask = |events: &mut [libc::epoll_event], limit: Option<u64>| {
            // SAFETY: the slice has room for as many events as it says; the mask is the caller's.
            unsafe {
                let most = events.len() as c_int;
                sys::epoll_wait(epoll, events.as_mut_ptr(), most, limit, mask)
            }
        };
        let deadline = match limit {
            Some(limit) if limit > 0 => Some(sys::now().saturating_add(limit)),
            other => other,
        };
        let _inside = Inside::new(self);
        loop {
            let Some(mut inner) = self.inner.lock() else { return ask(events, limit) };
            inner.turn = inner.turn.wrapping_add(1);
            let mut count = inner.collect(epoll, events);
            // A call that may wait asks the kernel below, where it waits.
            let asks = count == 0 && limit == Some(0);
            if asks || count > 0 && inner.turn % TURNS == 0 && count < events.len() {
                drop(inner);
                let more = match ask(&mut events[count..], Some(0)) {
                    Err(_) if count > 0 => 0,
                    more => more?,
                };
                let Some(again) = self.inner.lock() else { return Ok(count) };
                inner = again;
                count = inner.merge(epoll, events, count, more);
            }
            if count > 0 {
                if self.sleepers.load(Ordering::SeqCst) > 0 {
                    inner.arm_hot(0);
                }
                return Ok(count);
            }
            drop(inner);
            let now = sys::now();
            if deadline.is_some_and(|deadline| deadline == 0 || now >= deadline) {
                return Ok(0);
            }
            let found = || self.is_ready();
            if self.has_hot() && self.spin.look(deadline, found) {
                continue;
            }
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            ASLEEP.fetch_add(1, Ordering::SeqCst);
            let slept = self.goes_cold().map(|most| {
                let left = deadline.map(|deadline| deadline.saturating_sub(sys::now()));
                ask(
                    events,
                    left.map_or(most, |left| Some(most.map_or(left, |most| left.min(most)))),
                )
            });
            ASLEEP.fetch_sub(1, Ordering::SeqCst);
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            let Some(slept) = slept else { continue };
            let more = slept?;
            if more > 0 {
                let Some(mut inner) = self.inner.lock() else { return Ok(more) };
                // The same doorbell serves all hot sockets.
                let mut count = inner.merge(epoll, events, 0, more);
                count += inner.collect(epoll, &mut events[count..]);
                if count > 0 {
                    if self.sleepers.load(Ordering::SeqCst) > 0 {
                        inner.arm_hot(0);
                    }
                    return Ok(count);
                }
            }
        }
    }

    fn has_hot(&self) -> bool {
        self.inner.lock().is_some_and(|inner| !inner.hot.is_empty())
    }

    /// Arm every hot socket, and leave those to the kernel that have had nothing for some turns. The sleep
    /// may last so many nanoseconds at most. `None`: one of them is ready.
    fn goes_cold(&self) -> Option<Option<u64>> {
        let Some(mut inner) = self.inner.lock() else { return Some(None) };
        let sleep = self.sleep();
        let mut hot = std::mem::take(&mut inner.hot);
        for at in &hot {
            let busy = inner.slots[*at as usize].idle < IDLE;
            inner.arm(*at, if busy { sleep } else { 0 });
        }
        if hot.iter().any(|at| inner.is_ready(*at)) {
            inner.hot = hot;
            return None;
        }
        let mut most = None;
        hot.retain(|at| {
            let slot = &mut inner.slots[*at as usize];
            let session = slot.socket.and_then(Socket::session);
            let wanted = slot.interest.wanted();
            let without = session.is_some_and(|one| ready::waits_without_doorbell(&one, wanted));
            if without {
                most = Some(ready::SHORT);
            }
            // A doorbell of one of these stands for all of them.
            let rung_for = sleep != 0 && slot.idle < IDLE && slot.kernel == Kernel::Doorbells;
            slot.hot = !slot.removed && (without || rung_for);
            slot.hot
        });
        inner.hot = hot;
        Some(most)
    }
}
