//! Calls that wait for a set: which sockets are looked at, and when the thread sleeps.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::slots::{IDLE, Slots};
use super::{Kernel, SEVERAL, Set};
use crate::cancel;
use crate::ready;
use crate::sys::{self, Errno};

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
        set.is_used_here();
        if !set.waited.load(Ordering::Relaxed) {
            set.waited.store(true, Ordering::Relaxed);
        }
        if set.inside.fetch_add(1, Ordering::SeqCst) > 0 {
            set.rings_for_each();
        }
        Inside(set)
    }
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.nested.load(Ordering::SeqCst) {
            self.0.rouse();
        }
        let less = |count: u32| Some(count.saturating_sub(1));
        let _ = self.0.inside.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        if self.0.kept.load(Ordering::SeqCst) >= 0 {
            self.0.left();
        }
    }
}

/// The outcome of a look at a set.
enum Look {
    /// This many events.
    Found(usize),
    /// Nothing; whether there are hot sockets.
    Nothing { hot: bool },
    /// The kernel is to be asked first.
    OfKernel,
    /// This thread has the entries already, and is in a handler of a signal.
    Interrupted,
}

impl Set {
    /// The set lies in another one, in which a thread may sleep that this call has taken a doorbell from.
    #[cold]
    fn rouse(&'static self) {
        if let Some(mut inner) = self.lock() {
            inner.rouse(self);
        }
    }

    /// The number of a sleep that the doorbell of any hot socket ends.
    pub(super) fn sleep(&self) -> u64 {
        if self.waiters.has(SEVERAL) { 0 } else { next_sleep() }
    }

    /// `epoll_pwait`. The program need not have memory for its events. The mask is a kernel's signal mask, or null.
    #[inline]
    pub(crate) fn wait(
        &'static self,
        epoll: c_int,
        room: (*mut libc::epoll_event, usize),
        limit: Option<u64>,
        mask: *const c_void,
    ) -> Result<usize, Errno> {
        let _inside = Inside::new(self);
        // Most calls of a busy program end here.
        match self.look(epoll, room, true)? {
            Look::Found(count) => Ok(count),
            nothing => self.wait_on(nothing, epoll, room, (limit, mask)),
        }
    }

    /// A look at the hot sockets. `first`: the call has not looked before.
    #[inline(always)]
    fn look(
        &'static self,
        epoll: c_int,
        room: (*mut libc::epoll_event, usize),
        first: bool,
    ) -> Result<Look, Errno> {
        let Some(mut inner) = self.lock_here() else { return Ok(Look::Interrupted) };
        inner.turn = inner.turn.wrapping_add(1);
        let hot = !inner.hot.is_empty();
        // The kernel comes first in some calls: as many busy sockets as there is room for would hide
        // timers, listeners and idle connections. So it does where it has a part of an event.
        let in_turn = hot && inner.turn % TURNS == 0 && inner.has_ready();
        if in_turn || first && inner.is_between() {
            return Ok(Look::OfKernel);
        }
        let count = inner.collect(epoll, room, 0)?;
        Ok(if count > 0 { Look::Found(self.found(&inner, count)) } else { Look::Nothing { hot } })
    }

    /// Behind a look that has found nothing.
    #[inline(never)]
    fn wait_on(
        &'static self,
        look: Look,
        mut epoll: c_int,
        (events, most): (*mut libc::epoll_event, usize),
        (limit, mask): (Option<u64>, *const c_void),
    ) -> Result<usize, Errno> {
        let ask = |epoll: c_int, limit: Option<u64>| {
            // SAFETY: the kernel writes no more events than there is room for, as the program says.
            let ask = || unsafe { sys::epoll_wait(epoll, events, most as c_int, limit, mask) };
            if limit == Some(0) { ask() } else { cancel::asleep(ask) }
        };
        let (over, mut deadline) = (limit == Some(0), None);
        let mut known = Some(look);
        loop {
            let look = match known.take() {
                Some(look) => look,
                None => self.look(epoll, (events, most), false)?,
            };
            let asked = match look {
                Look::Found(count) => return Ok(count),
                Look::Interrupted => return ask(epoll, limit),
                Look::OfKernel => ask(epoll, Some(0)),
                Look::Nothing { .. } if over => {
                    let asked = ask(epoll, Some(0));
                    if asked == Ok(0) {
                        // The rings had nothing a moment ago.
                        return Ok(0);
                    }
                    asked
                }
                Look::Nothing { hot } => {
                    let now = sys::now();
                    if let (None, Some(limit)) = (deadline, limit) {
                        deadline = Some(now.saturating_add(limit));
                    }
                    if deadline.is_some_and(|deadline| now >= deadline) {
                        return Ok(0);
                    }
                    let ready = hot && self.spin.look(deadline, || self.is_ready());
                    let left = || deadline.map(|deadline| deadline.saturating_sub(sys::now()));
                    let sleep = |most| ask(epoll, ready::shorter(left(), most));
                    match if ready { None } else { self.asleep(sleep) } {
                        Some(slept) => slept,
                        None => continue,
                    }
                }
            };
            // Another thread may have closed it: the number may be that of another set.
            if let Some(known) = self.descriptor_for(epoll) {
                epoll = known;
            }
            let Some(mut inner) = self.lock() else { return asked };
            // A single doorbell serves all hot sockets.
            let asked_for = asked.unwrap_or_default();
            let count = if asked_for > 0 {
                // SAFETY: the kernel has just written so many.
                let events = unsafe { std::slice::from_raw_parts_mut(events, asked_for) };
                inner.translate(epoll, events)
            } else {
                0
            };
            let count = inner.collect(epoll, (events, most), count)?;
            if count > 0 {
                return Ok(self.found(&inner, count));
            }
            drop(inner);
            asked?;
            if over {
                return Ok(0);
            }
            if self.descriptor_for(epoll).is_none() {
                return Err(libc::EBADF);
            }
        }
    }

    /// A call ends with events: other threads that sleep in the set rely on doorbells of those that are hot.
    #[inline]
    fn found(&self, inner: &Slots, count: usize) -> usize {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            inner.arm_hot(0);
        }
        count
    }

    /// Sleep in the kernel by `sleep`, which gets how long that may last at most. `None`: a hot socket is ready.
    fn asleep<T>(&'static self, sleep: impl FnOnce(Option<u64>) -> T) -> Option<T> {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        ASLEEP.fetch_add(1, Ordering::SeqCst);
        let slept = self.goes_cold().map(sleep);
        ASLEEP.fetch_sub(1, Ordering::SeqCst);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        slept
    }

    /// Arm every hot socket, and leave those to the kernel that have had nothing for some turns. The sleep
    /// may last so many nanoseconds at most. `None`: one of them is ready.
    fn goes_cold(&'static self) -> Option<Option<u64>> {
        let Some(mut inner) = self.lock() else { return Some(None) };
        if inner.hot.is_empty() {
            return Some(None);
        }
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
            let without = inner.without_doorbell(*at);
            most = ready::shorter(most, without);
            let slot = &mut inner.slots[*at as usize];
            // A doorbell of one of these stands for all of them.
            let rung_for = sleep != 0 && slot.idle < IDLE && slot.kernel == Kernel::Doorbells;
            slot.hot = without.is_some() || rung_for;
            slot.hot
        });
        inner.hot = hot;
        Some(most)
    }
}
