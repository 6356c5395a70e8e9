//! Time: how long queue pairs wait, and one thread for what is to happen later.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use transom_engine::{Limits, QueuePairKind, raw};

use crate::abi::ibv_qp_attr;
use crate::process::PerProcess;

/// A queue pair that repeats a Send fewer than seven times waits so long for a receive. The longest
/// wait that its attributes can ask for, 6 × 655.36 ms, is shorter. A receiver whose program had no
/// processor has still posted nothing within that: its Sends would fail for time (Verbs V94).
const RECEIVE: Duration = Duration::from_secs(5);

/// Requests of a queue pair whose stream has ended fail after this at the latest, also where the first
/// stream may be waited for without limit (Verbs V79).
const LONGEST_RECONNECTION: Duration = Duration::from_secs(5);

/// A queue pair of type UC loses what waits for a stream, or for a receive, for longer (Verbs V96).
const UNRELIABLE: Limits = Limits {
    connection: Some(Duration::from_secs(1)),
    reconnection: Some(Duration::from_secs(1)),
    receive: Some(Duration::from_millis(100)),
    one_try: false,
    refuses_reads: true,
};

/// How long a queue pair with these attributes waits: for its stream, behind the end of one, for a
/// receive of its peer; and whether it serves Reads.
pub(crate) fn limits(kind: QueuePairKind, attr: &ibv_qp_attr) -> Limits {
    if kind == QueuePairKind::Uc {
        return UNRELIABLE;
    }
    let stream = (attr.timeout != 0).then(|| {
        let tick =
            Duration::from_nanos(4096) * 2_u32.saturating_pow(u32::from(attr.timeout.min(31)));
        let least = tick * (u32::from(attr.retry_cnt) + 1);
        // Adapters take one to four times as long. That much is made use of while it is short, because a
        // stream is made by threads, which wait for a processor.
        least.max((least * 4).min(LONGEST_RECONNECTION)).max(Duration::from_secs(1))
    });
    let receive = (attr.rnr_retry < 7).then_some(RECEIVE);
    let reconnection = Some(stream.map_or(LONGEST_RECONNECTION, |t| t.min(LONGEST_RECONNECTION)));
    let refuses_reads = attr.max_dest_rd_atomic == 0;
    let one_try = attr.rnr_retry == 0;
    Limits { connection: stream, reconnection, receive, one_try, refuses_reads }
}

type Job = Box<dyn FnOnce() + Send>;

struct Timer {
    due: Instant,
    number: u64,
    job: Job,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Timer) -> bool {
        (self.due, self.number) == (other.due, other.number)
    }
}
impl Eq for Timer {}
impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Timer) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timer {
    fn cmp(&self, other: &Timer) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

#[derive(Default)]
struct Schedule {
    heap: BinaryHeap<Reverse<Timer>>,
    last: u64,
}

#[derive(Default)]
struct Clock {
    /// The thread of the clock has been started.
    served: OnceLock<()>,
    schedule: Mutex<Schedule>,
    changed: Condvar,
}

impl Clock {
    fn lock(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut schedule = self.lock();
        loop {
            let now = Instant::now();
            let wait = schedule.heap.peek().map(|next| next.0.due.saturating_duration_since(now));
            match wait {
                Some(Duration::ZERO) => {
                    if let Some(Reverse(timer)) = schedule.heap.pop() {
                        drop(schedule);
                        (timer.job)();
                        schedule = self.lock();
                    }
                }
                Some(wait) => {
                    let waited = self.changed.wait_timeout(schedule, wait);
                    schedule = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => {
                    let waited = self.changed.wait(schedule);
                    schedule = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// Each process has its own: a forked child has no thread of its parent's.
static CLOCK: PerProcess<Clock> = PerProcess::new();

fn clock() -> &'static Clock {
    let clock = CLOCK.get_or_default();
    clock.served.get_or_init(|| {
        if let Err(error) = raw::spawn_quiet("transom-verbs", move || clock.serve()) {
            transom_os::say!("transom: start a thread for timers: {error}");
        }
    });
    clock
}

/// Have `job` done by the thread for timers, no sooner than after `delay`.
pub(crate) fn after(delay: Duration, job: impl FnOnce() + Send + 'static) {
    let clock = clock();
    let mut schedule = clock.lock();
    schedule.last += 1;
    let number = schedule.last;
    let due = Instant::now() + delay;
    schedule.heap.push(Reverse(Timer { due, number, job: Box::new(job) }));
    clock.changed.notify_one();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v77_v79_v94_how_long_requests_wait() {
        let attr = ibv_qp_attr {
            timeout: 20,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            ..ibv_qp_attr::default()
        };
        let all = limits(QueuePairKind::Rc, &attr);
        assert_eq!(all.connection, Some(Duration::from_nanos(4096 * (1 << 20) * 8)));
        assert_eq!((all.reconnection, all.receive), (Some(LONGEST_RECONNECTION), None));
        let usual = ibv_qp_attr { timeout: 14, ..attr };
        let least = Duration::from_nanos(4096 * (1 << 14) * 8);
        assert_eq!(limits(QueuePairKind::Rc, &usual).connection, Some(least * 4));
        let short = ibv_qp_attr { timeout: 1, rnr_retry: 6, min_rnr_timer: 0, ..attr };
        let all = limits(QueuePairKind::Rc, &short);
        assert_eq!(all.connection, Some(Duration::from_secs(1)));
        assert_eq!((all.receive, all.one_try), (Some(RECEIVE), false));
        let never = ibv_qp_attr { timeout: 0, rnr_retry: 0, min_rnr_timer: 1, ..attr };
        let never = limits(QueuePairKind::Rc, &never);
        assert_eq!((never.connection, never.reconnection), (None, Some(LONGEST_RECONNECTION)));
        assert_eq!((never.receive, never.one_try), (Some(Duration::from_secs(5)), true));
    }

    #[test]
    fn jobs_run_in_the_order_of_their_times() {
        // Where this thread was away for so long, their times may have another order.
        loop {
            let (send, got) = std::sync::mpsc::channel();
            let begun = Instant::now();
            for (delay, name) in [(20, 'c'), (0, 'a'), (10, 'b')] {
                let send = send.clone();
                after(Duration::from_millis(delay), move || send.send(name).unwrap());
            }
            let is_in_time = begun.elapsed() < Duration::from_millis(10);
            let order: String = got.iter().take(3).collect();
            if is_in_time {
                return assert_eq!(order, "abc");
            }
        }
    }
}
