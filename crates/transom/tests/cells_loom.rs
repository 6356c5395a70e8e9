//! Every interleaving of threads that post, ask for a result or give it up, and the engine that
//! settles it (`src/cells.rs`): the shipped file on loom's types. Loom reports a reference that is
//! never dropped.
//!
//! Seen to fail with a success that does not look for a waker (the first), with a cell that is
//! given up by a store (the second) or taken by one (the third), and with a count that comes before
//! its result (the last).
#![allow(missing_docs, dead_code, unreachable_pub, unsafe_code, clippy::unwrap_used)]

#[path = "../src/cells.rs"]
mod cells;
#[path = "../../transom-engine/tests/on_loom/mod.rs"]
mod on_loom;

use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, Wake};

use cells::Cells;
use loom::sync::Arc;
use loom::thread;
use on_loom::{bounded, sync};

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: StdArc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

type Kept = StdArc<u32>;

fn cells(limit: usize) -> Arc<Cells<u32, u8>> {
    Arc::new(Cells::new(limit))
}

/// A future that is polled while its request succeeds, or fails, is woken or has the result.
#[test]
fn a_waker_is_woken_or_the_result_is_there() {
    for fails in [false, true] {
        bounded(3, move || {
            let (cells, kept) = (cells(1), Kept::new(1));
            let key = cells.insert(Some(kept.clone())).unwrap();
            let (other, wake) = (cells.clone(), StdArc::new(Count::default()));
            let engine = thread::spawn(move || {
                let settled = if fails { other.fail(key, 7) } else { other.succeed(key) };
                let settled = settled.unwrap();
                assert_eq!(settled.keep.as_deref(), Some(&1));
                settled.waker.into_iter().for_each(std::task::Waker::wake);
            });
            let (result, _) = cells.claim(key, Some(&wake.clone().into()));
            engine.join().unwrap();
            let woken = wake.0.load(Ordering::Relaxed);
            assert_eq!(woken == 1, result.is_pending());
            let wanted = if fails { Err(7) } else { Ok(()) };
            let result = if result.is_pending() { cells.claim(key, None).0 } else { result };
            assert_eq!(result, Poll::Ready(Some(wanted)));
            assert_eq!(StdArc::strong_count(&kept), 1);
        });
    }
}

/// A `Posted` that is dropped while its request succeeds is counted once, and its cell is free
/// again.
#[test]
fn one_that_is_given_up_is_counted_once() {
    bounded(3, || {
        let (cells, kept) = (cells(1), Kept::new(1));
        let key = cells.insert(Some(kept.clone())).unwrap();
        let other = cells.clone();
        let engine = thread::spawn(move || other.succeed(key).unwrap().unclaimed);
        let (done, _) = cells.abandon(key);
        assert!(engine.join().unwrap() != done, "by one of the two");
        assert_eq!(StdArc::strong_count(&kept), 1);
        assert!(cells.insert(None).is_ok());
    });
}

/// Two that post while the engine settles never have one cell, and each keeps its own.
#[test]
fn a_cell_belongs_to_one_request_at_a_time() {
    bounded(3, || {
        let cells = cells(2);
        let first = cells.insert(Some(Kept::new(1))).unwrap();
        assert!(!cells.abandon(first).0);
        let (engine, poster) = (cells.clone(), cells.clone());
        let engine = thread::spawn(move || {
            assert_eq!(engine.succeed(first).unwrap().keep.as_deref(), Some(&1));
        });
        let poster = thread::spawn(move || poster.insert(Some(Kept::new(2))).ok());
        let third = cells.insert(Some(Kept::new(3))).ok();
        engine.join().unwrap();
        let second = poster.join().unwrap();
        for (key, keeps) in [(second, 2), (third, 3)] {
            let Some(key) = key else { continue };
            assert_eq!(cells.succeed(key).unwrap().keep.as_deref(), Some(&keeps));
        }
        assert!(second != third && (second.is_some() || third.is_some()));
    });
}

/// A thread that waits for what another one settles sees that it was, behind the count.
#[test]
fn a_thread_that_sees_the_count_sees_the_result() {
    bounded(3, || {
        let cells = cells(1);
        let key = cells.insert(None).unwrap();
        let other = cells.clone();
        let engine = thread::spawn(move || drop(other.succeed(key)));
        while cells.count() == 0 {
            thread::yield_now();
        }
        assert!(cells.is_done(key));
        engine.join().unwrap();
    });
}
