//! The promises that a program relies on, over both paths of this machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod atomics;
mod batches;
mod connections;
mod memory;
mod messages;
mod waiting;
mod windows;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use transom::{Adapter, Grant, QueuePair, Region, Rights, Window};

pub(crate) fn here() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Two ends of a connection, each with its adapter.
pub(crate) struct Pair {
    pub(crate) owner_adapter: Adapter,
    pub(crate) owner: QueuePair,
    pub(crate) peer_adapter: Adapter,
    pub(crate) peer: QueuePair,
}

impl Pair {
    pub(crate) fn new() -> Pair {
        let adapter = || Adapter::open(here().ip()).unwrap();
        Pair::of(adapter(), adapter(), (16, 4096))
    }

    pub(crate) fn of(
        owner_adapter: Adapter,
        peer_adapter: Adapter,
        (count, size): (u32, u32),
    ) -> Pair {
        let mut listener = owner_adapter.listen(here()).unwrap();
        let connecting = peer_adapter.connect(listener.address()).receives(count, size);
        let (owner, peer) = std::thread::scope(|both| {
            let peer = both.spawn(|| connecting.wait());
            let owner = listener.next().wait().unwrap().receives(count, size).accept().wait();
            (owner.unwrap(), peer.join().unwrap().unwrap())
        });
        Pair { owner_adapter, owner, peer_adapter, peer }
    }

    /// A window on `region`, and what the peer knows of it.
    pub(crate) fn lend(&self, region: &Region<Vec<u8>>, rights: Rights) -> (Window, Grant) {
        let window = self.owner.bind(region, .., rights).unwrap();
        self.owner.send(window.grant().to_bytes()).unwrap().wait().unwrap();
        let grant = Grant::from_bytes(&self.peer.recv().wait().unwrap()).unwrap();
        (window, grant)
    }
}

/// An executor of one future, to show that any will do.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker: Waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}

pub(crate) fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

transom_testing::over_both_paths!({
    let pair = Pair::new();
    transom_testing::paths::hold();
    let (owner, peer) = (pair.owner.info(), pair.peer.info());
    assert_eq!([owner.path, peer.path], [transom_testing::paths::of_this_run(); 2]);
});

/// Until something is so that another thread brings about.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::yield_now();
    }
}
