//! Requests under way, one call after the other; `tests/cells_loom.rs` has what happens at the same
//! time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, Wake};

use crate::cells::{Cells, Key};

struct Count(AtomicU32);
impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn buffer(name: &str) -> Option<Arc<String>> {
    Some(Arc::new(name.to_owned()))
}

#[test]
fn a_result_reaches_the_waker_set_last() {
    let cells: Cells<String, u8> = Cells::new(1);
    let key = cells.insert(buffer("buffer")).unwrap();
    let (first, second) = (Arc::new(Count(AtomicU32::new(0))), Arc::new(Count(AtomicU32::new(0))));
    assert!(cells.claim(key, Some(&first.clone().into())).0.is_pending());
    let (pending, old) = cells.claim(key, Some(&second.clone().into()));
    assert!(pending.is_pending());
    assert!(old.is_some(), "the first one's is dropped where no lock is held");
    let settled = cells.succeed(key).unwrap();
    assert_eq!(settled.keep, buffer("buffer"), "released at completion, not before");
    settled.waker.unwrap().wake();
    assert_eq!((first.0.load(Ordering::Relaxed), second.0.load(Ordering::Relaxed)), (0, 1));
    assert!(cells.is_done(key));
    assert_eq!(cells.claim(key, None).0, Poll::Ready(Some(Ok(()))));
    assert_eq!(cells.claim(key, None).0, Poll::Ready(None), "once only");
}

#[test]
fn a_failure_reaches_the_thread_that_asks() {
    let cells: Cells<String, u8> = Cells::new(1);
    let key = cells.insert(buffer("buffer")).unwrap();
    let wake = Arc::new(Count(AtomicU32::new(0)));
    assert!(cells.claim(key, Some(&wake.clone().into())).0.is_pending());
    let settled = cells.fail(key, 9).unwrap();
    assert_eq!(settled.keep, buffer("buffer"));
    assert!(settled.waker.is_some());
    assert!(cells.is_done(key));
    assert_eq!(cells.count(), 0, "that counts successes");
    assert_eq!(cells.claim(key, Some(&wake.into())).0, Poll::Ready(Some(Err(9))));
    let key = cells.insert(None).unwrap();
    assert!(cells.fail(key, 8).is_some());
    assert!(cells.insert(None).is_err(), "it was not fetched");
    assert!(cells.abandon(key).0, "it was there");
    let key = cells.insert(None).unwrap();
    assert!(cells.succeed(key).is_some());
    assert_eq!(cells.claim(key, None).0, Poll::Ready(Some(Ok(()))), "the 8 has gone");
}

#[test]
fn dropping_is_not_cancelling() {
    let cells: Cells<String, u8> = Cells::new(1);
    let key = cells.insert(buffer("buffer")).unwrap();
    assert!(!cells.abandon(key).0);
    assert_eq!(cells.pending(), 1, "the request goes on");
    assert!(cells.insert(buffer("other")).is_err(), "and so its cell is taken");
    let settled = cells.succeed(key).unwrap();
    assert_eq!(settled.keep, buffer("buffer"));
    assert!(settled.unclaimed, "counted");
    assert!(cells.insert(buffer("other")).is_ok());
}

#[test]
fn one_that_waits_and_goes_takes_its_waker_with_it() {
    let cells: Cells<String, u8> = Cells::new(1);
    let key = cells.insert(None).unwrap();
    let wake = Arc::new(Count(AtomicU32::new(0)));
    assert!(cells.claim(key, Some(&wake.into())).0.is_pending());
    let (done, waker) = cells.abandon(key);
    assert!(!done && waker.is_some());
    let settled = cells.succeed(key).unwrap();
    assert!(settled.waker.is_none() && settled.unclaimed);
}

#[test]
fn what_a_batch_keeps_alive_goes_when_it_has_completed_unasked() {
    let cells: Cells<String, u8> = Cells::new(1);
    let key = cells.insert_quietly(buffer("buffer")).unwrap();
    assert!(cells.insert(buffer("other")).is_err());
    let settled = cells.succeed(key).unwrap();
    assert_eq!(settled.keep, buffer("buffer"));
    assert!(!settled.unclaimed, "its result is the batch's");
    assert!(cells.insert(buffer("other")).is_ok());
}

#[test]
fn a_stale_context_names_no_request() {
    let cells: Cells<(), u8> = Cells::new(1);
    let old = cells.insert(None).unwrap();
    cells.remove(old);
    let new = cells.insert(None);
    // A request that keeps nothing is removed all the same.
    let new = new.unwrap();
    assert_ne!(old.to_context(), new.to_context());
    assert!(cells.succeed(Key::from_context(old.to_context())).is_none());
    assert!(cells.succeed(Key::from_context(u64::MAX)).is_none());
    assert!(cells.fail(Key::from_context(old.to_context()), 1).is_none());
    assert!(cells.succeed(new).is_some());
    assert!(cells.succeed(new).is_none(), "once only");
    assert!(cells.fail(new, 2).is_none());
    assert_eq!(cells.claim(new, None).0, Poll::Ready(Some(Ok(()))));
}

#[test]
fn what_requests_keep_goes_with_the_connection() {
    let cells: Cells<String, u8> = Cells::new(3);
    let keys = ["a", "b", "c"].map(|name| cells.insert(buffer(name)).unwrap());
    assert!(cells.succeed(keys[1]).is_some());
    assert!(!cells.abandon(keys[2]).0);
    assert_eq!(cells.let_all_go().iter().map(|one| one.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    assert!(cells.succeed(keys[0]).is_none());
}
