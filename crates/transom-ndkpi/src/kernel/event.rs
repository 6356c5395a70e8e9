//! `KEVENT`: an event that threads wait for.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Status;

/// `STATUS_TIMEOUT`: a success to `NT_SUCCESS`.
pub const TIMEOUT: Status = Status(0x102);

/// Units of 100 ns between 1601, where the system time begins, and 1970.
const TO_UNIX_EPOCH: i64 = 116_444_736_000_000_000;
const UNITS_PER_SECOND: i64 = 10_000_000;

/// `EVENT_TYPE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Stays signaled, for every thread, until it is cleared.
    Notification = 0,
    /// The end of one wait clears it.
    Synchronization = 1,
}

/// `KEVENT`. The consumer has room for it (`ndkkernel.h`), and it stays where it is while threads use
/// it. There is nothing to give back.
#[derive(Debug)]
pub struct KEvent {
    kind: EventType,
    signaled: Mutex<bool>,
    changed: Condvar,
}

/// The room that `ndkkernel.h` reserves.
const ROOM: usize = 32;
const _: () = assert!(size_of::<KEvent>() <= ROOM && align_of::<KEvent>() <= 8);

impl KEvent {
    fn with<T>(&self, act: impl FnOnce(&mut bool) -> T) -> T {
        act(&mut self.signaled.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, signaled: bool) -> bool {
        // Under the lock, so that a waiter whose event is on its stack returns behind the notice.
        self.with(|state| {
            if signaled {
                self.changed.notify_all();
            }
            std::mem::replace(state, signaled)
        })
    }

    /// Take the signal, if it is there.
    fn take(&self, signaled: &mut bool) -> bool {
        let taken = *signaled;
        *signaled &= self.kind == EventType::Notification;
        taken
    }

    /// `None`: wait for ever.
    fn wait(&self, limit: Option<Duration>) -> Status {
        // Beyond what a clock can tell is for ever.
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut signaled = self.signaled.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.take(&mut signaled) {
            signaled = match end {
                None => self.changed.wait(signaled).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return TIMEOUT;
                    }
                    let waited = self.changed.wait_timeout(signaled, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        Status::SUCCESS
    }
}

/// 100-ns units since 1601.
#[allow(clippy::disallowed_methods, reason = "consumers wait until a time of the system's clock")]
fn system_time() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos() / 100).map_or(i64::MAX, |now| now.saturating_add(TO_UNIX_EPOCH))
}

fn units(count: u64) -> Duration {
    let per_second = UNITS_PER_SECOND as u64;
    Duration::new(count / per_second, (count % per_second * 100) as u32)
}

/// A time-out as the interface has it: below 0 it is an interval, otherwise a system time, which may
/// be past.
fn interval(timeout: i64, now: i64) -> Duration {
    if timeout < 0 {
        return units(timeout.unsigned_abs());
    }
    units(u64::try_from(timeout.saturating_sub(now)).unwrap_or(0))
}

/// Set an event up: `kind` is 0 (notification) or 1 (synchronization).
///
/// # Safety
/// `event` has room for a `KEVENT`, which no thread uses as one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn KeInitializeEvent(event: *mut KEvent, kind: u32, signaled: u8) {
    let kind = match kind {
        0 => EventType::Notification,
        _ => EventType::Synchronization,
    };
    let (signaled, changed) = (Mutex::new(signaled != 0), Condvar::new());
    // SAFETY: this function's contract.
    unsafe { event.write(KEvent { kind, signaled, changed }) };
}

/// Signal an event. Returns whether it was signaled before. `increment` and `wait` have no meaning
/// here.
///
/// # Safety
/// `event` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn KeSetEvent(event: &KEvent, _increment: i32, _wait: u8) -> i32 {
    event.set(true).into()
}

/// Clear an event. Returns whether it was signaled.
///
/// # Safety
/// `event` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn KeResetEvent(event: &KEvent) -> i32 {
    event.set(false).into()
}

/// Clear an event.
///
/// # Safety
/// `event` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn KeClearEvent(event: &KEvent) {
    event.set(false);
}

/// Whether an event is signaled.
///
/// # Safety
/// `event` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn KeReadStateEvent(event: &KEvent) -> i32 {
    event.with(|signaled| *signaled).into()
}

/// Wait for an event: without a limit (`timeout` null), for so many units of 100 ns (below 0), or
/// until a system time. 0 asks and does not wait. Returns `SUCCESS` or [`TIMEOUT`]. Reason, mode and
/// alertability have no meaning here.
///
/// # Safety
/// `event` was set up; `timeout` is null or may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn KeWaitForSingleObject(
    event: &KEvent,
    _reason: u32,
    _mode: i8,
    _alertable: u8,
    timeout: *const i64,
) -> i32 {
    // SAFETY: this function's contract.
    let timeout = unsafe { timeout.as_ref() };
    event.wait(timeout.map(|timeout| interval(*timeout, system_time()))).0
}

/// The system time: units of 100 ns since 1601.
///
/// # Safety
/// `time` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn KeQuerySystemTime(time: *mut i64) {
    // SAFETY: this function's contract.
    unsafe { time.write(system_time()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_out_is_an_interval_or_a_system_time() {
        let now = 1_000_000_000;
        for (timeout, nanoseconds) in [
            (0, 0),
            (-1, 100),
            (-25_000_001, 2_500_000_100),
            (now, 0),
            (now - 1, 0),
            (now + 1, 100),
            (now + 30_000_000, 3_000_000_000),
        ] {
            assert_eq!(interval(timeout, now), Duration::from_nanos(nanoseconds), "{timeout}");
        }
        assert_eq!(interval(i64::MIN, now), Duration::new(922_337_203_685, 477_580_800));
    }

    #[test]
    #[allow(clippy::disallowed_methods)]
    fn the_system_time_begins_in_1601() {
        // 134,774 days of 86,400 s lie between.
        assert_eq!(TO_UNIX_EPOCH, 134_774 * 86_400 * UNITS_PER_SECOND);
        let unix = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        let (before, now, after) = (unix(), system_time(), unix());
        let seconds = (now - TO_UNIX_EPOCH) / UNITS_PER_SECOND;
        assert!((before..=after).contains(&seconds));
    }
}
