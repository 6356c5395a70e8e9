//! Wakers and threads that wait.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use transom::{Buffer, QueuePair, Rights};

use crate::{Pair, bytes, until};

#[test]
fn a_waker_may_call_back() {
    /// Does with the queue pair, from within `wake`, what a program might.
    struct Meddler {
        queue: Arc<QueuePair>,
        woken: AtomicBool,
    }
    impl Wake for Meddler {
        fn wake(self: Arc<Self>) {
            self.queue.poll();
            drop(self.queue.send(b"from a waker"));
            drop(self.queue.try_recv());
            self.woken.store(true, Ordering::Release);
        }
    }
    let Pair { owner, peer, owner_adapter, peer_adapter } = Pair::new();
    let peer = Arc::new(peer);
    let meddler = Arc::new(Meddler { queue: peer.clone(), woken: AtomicBool::new(false) });
    let waker: Waker = meddler.clone().into();
    let mut first = pin!(peer.recv());
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    owner.send(b"one").unwrap().wait().unwrap();
    assert_eq!(&*owner.recv().wait().unwrap(), b"from a waker");
    until("it never returned", || meddler.woken.load(Ordering::Acquire));
    drop((owner_adapter, peer_adapter));
}

/// The values that a Write of a few bytes wakes and drops when it completes may take every lock
/// that there is: even end the connection.
#[test]
fn a_write_that_completes_lets_its_buffer_and_its_waker_call_back() {
    /// Ends the connection when it is woken, or dropped with what it is part of.
    struct Ending(Arc<QueuePair>, Arc<AtomicU32>);
    impl Ending {
        fn end(&self) {
            self.0.disconnect().unwrap();
            self.1.fetch_add(1, Ordering::Release);
        }
    }
    impl Wake for Ending {
        fn wake(self: Arc<Self>) {
            self.end();
        }
    }
    impl Drop for Dropped {
        fn drop(&mut self) {
            if let Some(ending) = self.1.take() {
                ending.end();
            }
        }
    }
    struct Dropped(Vec<u8>, Option<Ending>);
    // SAFETY: as for the Vec that it holds.
    unsafe impl Buffer for Dropped {
        type Parts = (<Vec<u8> as Buffer>::Parts, Option<Ending>);
        const WRITABLE: bool = true;
        fn take_apart(mut self) -> Self::Parts {
            (std::mem::take(&mut self.0).take_apart(), self.1.take())
        }
        fn memory(parts: &Self::Parts) -> (*mut u8, usize) {
            <Vec<u8> as Buffer>::memory(&parts.0)
        }
        unsafe fn put_together(parts: Self::Parts) -> Dropped {
            // SAFETY: the caller's promise, passed on.
            Dropped(unsafe { Buffer::put_together(parts.0) }, parts.1)
        }
    }
    for wakes in [false, true] {
        let pair = Pair::new();
        let memory = pair.owner_adapter.register(vec![0; 8]).unwrap();
        let (_window, grant) = pair.lend(&memory, Rights::WRITE);
        let peer = Arc::new(pair.peer);
        let ended = Arc::new(AtomicU32::new(0));
        let ending = || Ending(peer.clone(), ended.clone());
        let buffer = Dropped(bytes(8), (!wakes).then(ending));
        let region = pair.peer_adapter.register(buffer).unwrap();
        if wakes {
            let waker: Waker = Arc::new(ending()).into();
            // A request that has completed before it was asked for wakes no task. A request that completes
            // while the waker is being left is ready and wakes the task, too.
            while ended.load(Ordering::Acquire) == 0 {
                let mut write = peer.write(grant, region.slice(..)).unwrap();
                let result = Pin::new(&mut write).poll(&mut Context::from_waker(&waker));
                if result.is_pending() {
                    until("nobody called back", || ended.load(Ordering::Acquire) > 0);
                }
            }
        } else {
            let slice = region.slice(..);
            drop(region);
            drop(peer.write(grant, slice).unwrap());
        }
        until("nobody called back", || ended.load(Ordering::Acquire) > 0);
    }
}

/// A task that panics when it is woken takes no other with it: neither those woken after it, nor
/// the thread that brought the news, nor what comes later.
#[test]
fn a_waker_that_panics_leaves_others_alone() {
    struct Waking(AtomicU32, bool);
    impl Wake for Waking {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::AcqRel);
            assert!(!self.1, "a waker that panics, on purpose");
        }
    }
    let pair = Pair::new();
    let wakers = [true, false, true, false].map(|bad| Arc::new(Waking(AtomicU32::new(0), bad)));
    // Two rounds, because the first panic must not have stopped the news.
    for wakers in wakers.chunks(2) {
        let mut waiting: Vec<_> = wakers.iter().map(|_| Box::pin(pair.peer.recv())).collect();
        for (future, waker) in waiting.iter_mut().zip(wakers) {
            let waker = Waker::from(waker.clone());
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        pair.owner.send(b"news").unwrap().wait().unwrap();
        for waker in wakers {
            until("everybody is woken", || waker.0.load(Ordering::Acquire) == 1);
        }
        drop(waiting);
        assert_eq!(&pair.peer.recv().wait().unwrap()[..], b"news");
    }
}

#[test]
fn several_threads_wait_on_one_queue_pair() {
    const PART: usize = 1 << 16;
    let pair = Pair::new();
    let memory = pair.owner_adapter.register(bytes(4 * PART)).unwrap();
    let (_window, grant) = pair.lend(&memory, Rights::READ);
    std::thread::scope(|all| {
        for part in bytes(4 * PART).chunks(PART).enumerate() {
            let pair = &pair;
            let (at, expected) = (part.0 * PART, part.1.to_vec());
            all.spawn(move || {
                let from = grant.range(at as u64..(at + PART) as u64);
                for _ in 0..50 {
                    let sink = pair.peer_adapter.register(vec![0; PART]).unwrap();
                    pair.peer.read(from, sink.slice(..)).unwrap().wait().unwrap();
                    assert!(sink.deregister().wait().unwrap() == expected);
                }
            });
        }
    });
}

/// The thread that blocks is woken when the one that polls has fetched what it waits for.
#[test]
fn one_thread_blocks_while_another_polls() {
    let pair = Pair::new();
    let memory = pair.owner_adapter.register(bytes(64)).unwrap();
    let (_window, grant) = pair.lend(&memory, Rights::READ);
    let sink = pair.peer_adapter.register(vec![0; 64]).unwrap();
    let done = AtomicU32::new(0);
    std::thread::scope(|both| {
        both.spawn(|| {
            for _ in 0..2000 {
                pair.peer.read(grant, sink.slice(..)).unwrap().wait().unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut last = (0, Instant::now());
        while last.0 < 2000 {
            pair.peer.poll();
            let now = done.load(Ordering::Relaxed);
            if now != last.0 {
                last = (now, Instant::now());
            } else if last.1.elapsed() > Duration::from_secs(60) {
                // A thread that sleeps for ever cannot be joined.
                eprintln!("read {now} is never told that it has completed");
                std::process::exit(101);
            }
        }
    });
}
