//! The baselines of the same-host path. All of them are on this page.
//!
//! Latency: two threads, each on a processor of its own, write to one cache line in turns. Bandwidth:
//! one thread copies a block with `memcpy`. Message rate: one thread hands cache lines to another.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::bench::{Seat, sit};

/// A cache line and its neighbour, which is fetched along.
#[repr(align(128))]
struct Line(AtomicU64);

/// Half round trips in nanoseconds, one per batch of [`BATCH`].
pub(crate) fn bounce(time: Duration) -> Vec<f64> {
    const BATCH: u64 = 1000;
    const OVER: u64 = u64::MAX;
    let line = Line(AtomicU64::new(0));
    let mut samples = Vec::new();
    std::thread::scope(|both| {
        both.spawn(|| {
            let _ = sit(Seat::Peer);
            let mut turn = 0;
            loop {
                // Odd numbers are for this side.
                turn += 2;
                while line.0.load(Ordering::Acquire) != turn - 1 {
                    if line.0.load(Ordering::Relaxed) == OVER {
                        return;
                    }
                }
                line.0.store(turn, Ordering::Release);
            }
        });
        let mut turn = 0;
        let mut batch = || {
            let begin = Instant::now();
            for _ in 0..BATCH {
                line.0.store(turn + 1, Ordering::Release);
                turn += 2;
                while line.0.load(Ordering::Acquire) != turn {}
            }
            begin.elapsed().as_nanos() as f64 / (2 * BATCH) as f64
        };
        // The first one waits for the other thread to start, and its processor to wake.
        batch();
        let begin = Instant::now();
        while begin.elapsed() < time || samples.is_empty() {
            samples.push(batch());
        }
        line.0.store(OVER, Ordering::Release);
    });
    samples
}

/// Bytes per second of copies of `size` bytes, one after the other between the same two blocks.
pub(crate) fn memcpy(size: usize, time: Duration) -> f64 {
    let (from, mut to) = (vec![1_u8; size], vec![0_u8; size]);
    let (begin, mut bytes) = (Instant::now(), 0.0);
    while begin.elapsed() < time || bytes == 0.0 {
        black_box(&mut to).copy_from_slice(black_box(&from));
        bytes += size as f64;
    }
    bytes / begin.elapsed().as_secs_f64()
}

/// Bytes per second of copies of `size` bytes out of a block that a thread on another processor has
/// written just before; only the copies count.
pub(crate) fn memcpy_moved(size: usize, time: Duration) -> f64 {
    const WRITE: u64 = 1;
    const WRITTEN: u64 = 2;
    const OVER: u64 = 3;
    let turn = Line(AtomicU64::new(WRITE));
    // The lock is never waited for: `turn` says whose it is.
    let block = Mutex::new(vec![0_u8; size]);
    let locked = || block.lock().unwrap_or_else(PoisonError::into_inner);
    let mut to = vec![0_u8; size];
    std::thread::scope(|both| {
        both.spawn(|| {
            let _ = sit(Seat::Peer);
            let mut value = 0_u8;
            loop {
                match turn.0.load(Ordering::Acquire) {
                    WRITE => {
                        value = value.wrapping_add(1);
                        locked().fill(value);
                        turn.0.store(WRITTEN, Ordering::Release);
                    }
                    OVER => return,
                    _ => std::hint::spin_loop(),
                }
            }
        });
        let (begin, mut spent, mut bytes) = (Instant::now(), Duration::ZERO, 0.0);
        while begin.elapsed() < time || bytes == 0.0 {
            while turn.0.load(Ordering::Acquire) != WRITTEN {
                std::hint::spin_loop();
            }
            let (from, copy) = (locked(), Instant::now());
            black_box(&mut to).copy_from_slice(black_box(&from));
            spent += copy.elapsed();
            bytes += size as f64;
            drop(from);
            turn.0.store(WRITE, Ordering::Release);
        }
        // The other thread answers its last turn before it may end.
        while turn.0.load(Ordering::Acquire) != WRITTEN {
            std::hint::spin_loop();
        }
        turn.0.store(OVER, Ordering::Release);
        bytes / spent.as_secs_f64()
    })
}

/// A message of the bare ring: a cache line, whose first word says in which lap it was written.
#[repr(align(64))]
#[derive(Default)]
struct Slot([AtomicU64; 2]);

/// Messages of eight bytes per second from one thread to another, through a ring of cache lines; the
/// receiver says of every 16th that it has come, and 64 are under way at the most.
pub(crate) fn ring(time: Duration) -> f64 {
    const SLOTS: u64 = 256;
    const GROUP: u64 = 16;
    const AHEAD: u64 = 64;
    const OVER: u64 = u64::MAX;
    let slots: Vec<Slot> = (0..SLOTS).map(|_| Slot::default()).collect();
    let come = Line(AtomicU64::new(0));
    let slot = |number: u64| slots.get((number % SLOTS) as usize);
    std::thread::scope(|both| {
        both.spawn(|| {
            let _ = sit(Seat::Peer);
            let (mut number, mut sum) = (0, 0_u64);
            while let Some(Slot([lap, value])) = slot(number) {
                while lap.load(Ordering::Acquire) != number / SLOTS + 1 {
                    if lap.load(Ordering::Relaxed) == OVER {
                        black_box(sum);
                        return;
                    }
                }
                sum = sum.wrapping_add(value.load(Ordering::Relaxed));
                number += 1;
                if number % GROUP == 0 {
                    come.0.store(number, Ordering::Release);
                }
            }
        });
        let (begin, mut number) = (Instant::now(), 0);
        while number == 0 || begin.elapsed() < time {
            for _ in 0..GROUP {
                if let Some(Slot([lap, value])) = slot(number) {
                    value.store(number, Ordering::Relaxed);
                    lap.store(number / SLOTS + 1, Ordering::Release);
                }
                number += 1;
            }
            while number - come.0.load(Ordering::Acquire) > AHEAD - GROUP {}
        }
        while come.0.load(Ordering::Acquire) != number {}
        let seconds = begin.elapsed().as_secs_f64();
        if let Some(Slot([lap, _])) = slot(number) {
            lap.store(OVER, Ordering::Release);
        }
        number as f64 / seconds
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_come_to_an_end() {
        assert!(bounce(Duration::ZERO).iter().all(|ns| *ns > 0.0));
        assert!(memcpy(4096, Duration::from_millis(1)) > 0.0);
        assert!(memcpy_moved(4096, Duration::from_millis(1)) > 0.0);
        assert!(ring(Duration::from_millis(1)) > 0.0);
    }
}
