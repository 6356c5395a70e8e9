//! Many links that feed one completion queue.

use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use super::harness::*;
use crate::driver::Link;
use crate::raw::{CompletionQueue, Options, QueuePairOptions, Trace};
use crate::trace::What;
use crate::{Completion, CompletionKind, Operation, Status};

const LINKS: usize = 32;

/// Peers, each with a connection to a side whose receives all complete in one queue.
struct ManyLinks {
    peers: Vec<End>,
    ends: Vec<End>,
    cq: CompletionQueue,
    inbox: Buffer,
    outbox: Buffer,
    /// Which threads of the one side have executed messages.
    threads: Arc<Mutex<Vec<ThreadId>>>,
}

impl ManyLinks {
    fn new(lease: Duration) -> ManyLinks {
        let threads: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
        let seen = threads.clone();
        let trace = Trace(Arc::new(move |event: &crate::trace::TraceEvent| {
            if let What::Executed { .. } = event.what {
                seen.lock().unwrap().push(thread::current().id());
            }
        }));
        let options = Options { lease, trace: Some(trace), ..Options::from_env() };
        let (one, other) = (End::new(&options), End::new(&Options::from_env()));
        let cq = one.adapter.completion_queue(2 * LINKS).unwrap();
        let (mut peers, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..LINKS {
            let mut end = End::in_domain(&one.adapter, one.domain);
            end.cq = cq.clone();
            let options = QueuePairOptions::default();
            end.qp = one.adapter.queue_pair(one.domain, &cq, &cq, None, &options).unwrap();
            let peer = End::in_domain(&other.adapter, other.domain);
            join(&peer, &end);
            peers.push(peer);
            ends.push(end);
        }
        ManyLinks { inbox: one.buffer(64), outbox: other.buffer(64), peers, ends, cq, threads }
    }

    /// Every peer sends; the threads that took it in while `take` was called for completions.
    fn round(&self, mut take: impl FnMut(&mut [Completion]) -> usize) -> Vec<ThreadId> {
        for end in &self.ends {
            end.qp.post_receive(7, &[self.inbox.all()]).unwrap();
        }
        self.threads.lock().unwrap().clear();
        for peer in &self.peers {
            peer.post(Operation::Send, &[self.outbox.all()]);
        }
        let mut some = [Completion::default(); 16];
        let (mut received, mut sent) = (0, 0);
        while received < LINKS || sent < LINKS {
            let count = if received < LINKS { take(&mut some) } else { self.cq.poll(&mut some) };
            assert!(some[..count].iter().all(|c| c.status == Status::Success));
            received += count;
            sent += self.peers.iter().map(|peer| peer.cq.poll(&mut some[..1])).sum::<usize>();
        }
        self.threads.lock().unwrap().clone()
    }

    /// Sooner or later all messages of a round are taken in by this thread: it keeps the background
    /// thread away, which may be at work when it begins.
    fn serves_itself(&self, mut take: impl FnMut(&mut [Completion]) -> usize) {
        let begin = Instant::now();
        while self.round(&mut take) != [thread::current().id(); LINKS] {
            assert!(begin.elapsed() < PATIENCE, "somebody else moves the bytes");
        }
    }
}

#[test]
fn a_thread_that_polls_serves_many_links() {
    let links = ManyLinks::new(Duration::from_secs(3600));
    links.serves_itself(|some| links.cq.poll(some));
}

#[test]
fn a_thread_that_blocks_serves_many_links() {
    let links = ManyLinks::new(Duration::from_secs(3600));
    links.serves_itself(|some| {
        assert!(links.cq.wait(Some(PATIENCE)).unwrap());
        links.cq.poll(some)
    });
}

/// A thread that has polled and does not come back: the end of its lease does what it has left.
#[test]
fn the_background_takes_over_from_a_thread_that_stops_polling() {
    let links = ManyLinks::new(Options::from_env().lease);
    links.round(|some| links.cq.poll(some));
    for (end, peer) in links.ends.iter().zip(&links.peers) {
        for context in 0..3 {
            end.qp.post_receive(context, &[links.inbox.all()]).unwrap();
        }
        peer.post(Operation::Send, &[links.outbox.all()]);
        let mut one = [Completion::default()];
        while links.cq.poll(&mut one) == 0 {}
        // Acknowledged, and read again, without another poll.
        peer.expect(CompletionKind::Send);
        peer.post(Operation::Send, &[links.outbox.all()]);
        peer.expect(CompletionKind::Send);
        while links.cq.poll(&mut one) == 0 {}
    }
}

/// A program that polls, and ends its adapter before it has polled again: what it has served is not kept.
#[test]
fn an_adapter_that_ends_in_the_middle_of_a_lease_leaves_nothing() {
    let options = Options { lease: Duration::from_secs(3600), ..Options::from_env() };
    let (active, passive) = (End::new(&Options::from_env()), End::new(&options));
    join(&active, &passive);
    let (from, to) = (active.buffer(8), passive.buffer(8));
    for _ in 0..10 {
        passive.qp.post_receive(7, &[to.all()]).unwrap();
    }
    // The first times the background thread may still be at it.
    for round in 0..10 {
        active.post(Operation::Send, &[from.all()]);
        let mut one = [Completion::default()];
        while passive.cq.take(&mut one) == 0 {
            passive.adapter.progress();
        }
        if round < 9 {
            while active.cq.poll(&mut one) == 0 {
                passive.adapter.progress();
            }
        }
    }
    let shared = Arc::downgrade(&passive.adapter.0.shared);
    drop(passive);
    until("all of it is gone", || shared.strong_count() == 0);
}

/// A connector that lives on keeps nothing of a connection that has ended, neither socket nor rings.
#[test]
fn a_connection_that_has_ended_is_given_back_while_its_connector_lives() {
    let (active, passive) = (End::new(&Options::from_env()), End::new(&Options::from_env()));
    join(&active, &passive);
    let ends = [&active, &passive];
    let links = ends.map(|end| Link::all(&end.adapter.0.shared));
    let links = links.map(|links| links.iter().map(Arc::downgrade).collect::<Vec<_>>());
    assert_eq!(links.each_ref().map(Vec::len), [1, 1]);
    let calls = ends.map(|end| {
        let (sink, told) = signal();
        let _ = end.connector.disconnect(sink);
        told
    });
    assert_eq!(calls[0].wait(), Status::Success);
    until("both are gone", || links.iter().flatten().all(|link| link.strong_count() == 0));
    drop((active, passive));
}

/// A program that connects hundreds of times at once has an answer to each: none is refused but by the
/// program that listens.
#[test]
fn connects_that_are_begun_at_once_are_all_answered() {
    const CONNECTS: usize = 600;
    let (passive, active) = (End::new(&Options::from_env()), End::new(&Options::from_env()));
    let listener = listening(&passive);
    let at = listener.address().unwrap();
    let ends: Vec<_> = (0..CONNECTS).map(|_| End::on(&active.adapter)).collect();
    let told: Vec<_> = ends
        .iter()
        .map(|end| {
            let (sink, told) = signal();
            end.connector.bind(loopback()).unwrap();
            end.connector.connect(&end.qp, at, LIMITS, b"", sink).unwrap();
            told
        })
        .collect();
    let turned_away = thread::spawn({
        let passive = passive.adapter.clone();
        move || {
            for _ in 0..CONNECTS {
                let (sink, requested) = signal();
                let connector = passive.connector().unwrap();
                listener.get_request(&connector, sink).unwrap();
                assert_eq!(requested.wait(), Status::Success);
                connector.reject(b"seen").unwrap();
            }
            listener.turned_away()
        }
    });
    let mut unseen = 0;
    for (end, told) in ends.iter().zip(told) {
        assert_eq!(told.wait(), Status::ConnectionRefused);
        unseen += usize::from(end.connector.private_data().ok().as_deref() != Some(b"seen"));
    }
    assert_eq!((unseen, turned_away.join().unwrap()), (0, 0));
}
