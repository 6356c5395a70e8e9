//! Waiting for the other side, for a limited time.

use std::future::{Future, IntoFuture};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::command::exit::{Exit, Failure, Outcome};

/// The other side of a session, and how long it may keep this side waiting.
pub(super) struct Peer {
    /// The peer's role: "server" or "client".
    pub(super) role: &'static str,
    pub(super) address: SocketAddr,
    pub(super) limit: Duration,
}

impl Peer {
    /// Wait for what the peer owes: `owed` says what that is.
    pub(super) fn wait<T>(
        &self,
        owed: &str,
        what: impl IntoFuture<Output = transom::Result<T>>,
    ) -> Outcome<transom::Result<T>> {
        block_on(what.into_future(), self.limit).ok_or_else(|| {
            let Peer { role, address, limit } = self;
            let sentence = format!(
                "the {role} at {address} has been silent for {} s; it owes {owed}",
                limit.as_secs()
            );
            Failure::new(Exit::NoConnection, sentence).try_this(format!(
                "see what the {role} does; --timeout SECONDS waits longer for it"
            ))
        })
    }
}

/// Poll a future on this thread until it is ready. `None`: the time is over.
fn block_on<F: Future>(future: F, limit: Duration) -> Option<F::Output> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let end = Instant::now() + limit;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_result_or_with_a_sentence_about_the_peer() {
        let peer = Peer {
            role: "server",
            address: SocketAddr::from(([10, 0, 0, 1], 7174)),
            limit: Duration::from_millis(1),
        };
        let ready = peer.wait("a word", std::future::ready(Ok(7))).unwrap();
        assert_eq!(ready.unwrap(), 7);
        let never = std::future::pending::<transom::Result<()>>();
        let failure = peer.wait("a word", never).unwrap_err();
        assert_eq!(failure.exit, Exit::NoConnection);
        assert!(failure.sentence.contains("the server at 10.0.0.1:7174 has been silent"));
        assert!(failure.sentence.contains("it owes a word"));
    }

    #[test]
    fn a_wait_notices_what_another_thread_does() {
        let (sender, receiver) = std::sync::mpsc::channel::<Waker>();
        let waking = thread::spawn(move || receiver.recv().unwrap().wake());
        let mut asked = false;
        let second_time = std::future::poll_fn(|context| {
            if std::mem::replace(&mut asked, true) {
                return Poll::Ready(());
            }
            sender.send(context.waker().clone()).unwrap();
            Poll::Pending
        });
        assert_eq!(block_on(second_time, Duration::from_secs(3600)), Some(()));
        waking.join().unwrap();
    }
}
