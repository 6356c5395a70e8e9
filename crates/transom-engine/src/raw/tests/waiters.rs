//! Threads that wait while what they wait for changes under them.

use std::sync::mpsc;

use super::harness::*;
use crate::raw::{Adapter, Options, Path, QueuePairOptions, SharedReceiveQueue, Sink};
use crate::{Completion, CompletionKind, Data, Flags, NotifyKind, Operation, Request, Status};

/// Keep an adapter's background thread busy until the result is dropped.
pub(super) fn occupied(adapter: &Adapter) -> (mpsc::Sender<()>, [End; 2]) {
    let (end, peer) = (End::on(adapter), End::new(&Options::from_env()));
    join(&peer, &end);
    let (from, to) = (peer.buffer(8), end.buffer(8));
    let (busy, is_busy) = mpsc::channel();
    let (free, is_free) = mpsc::channel::<()>();
    let sink = Sink::call(move |_| {
        busy.send(()).unwrap();
        let _ = is_free.recv();
    });
    end.cq.notify(NotifyKind::Any, sink).unwrap();
    end.qp.post_receive(1, &[to.all()]).unwrap();
    peer.post(Operation::Send, &[from.all()]);
    is_busy.recv_timeout(PATIENCE).unwrap();
    (free, [end, peer])
}

/// A thread that posts may read the answer that moves a connection to shared memory. The descriptor
/// that was armed is not read any more: another thread must look, and a sleeper look again.
#[test]
#[cfg_attr(windows, ignore = "memory is not shared on this system")]
fn a_post_that_reads_the_answer_leaves_a_thread_responsible() {
    let options = Options { path: Path::Process, ..Options::from_env() };
    let (active, passive) = (End::new(&options), End::new(&options));
    let listener = listening(&passive);
    let (sink, requested) = signal();
    listener.get_request(&passive.connector, sink).unwrap();
    let (free, _kept) = occupied(&active.adapter);
    let (sink, connected) = signal();
    active.connector.bind(loopback()).unwrap();
    // Nothing is answered while this thread still connects.
    let (answer, _kept) = occupied(&passive.adapter);
    let at = listener.address().unwrap();
    active.connector.connect(&active.qp, at, LIMITS, b"", sink).unwrap();
    let link = active.qp.0.qp.link().unwrap();
    drop(answer);
    until("the answer has come", || {
        link.posted();
        link.is_over_rings()
    });
    assert!(link.noted() <= crate::sys::now(), "nobody looks at the rings");
    drop(free);
    assert_eq!(requested.wait(), Status::Success);
    let (sink, _accepted) = signal();
    passive.connector.accept(&passive.qp, LIMITS, b"", sink).unwrap();
    assert_eq!(connected.wait(), Status::Success);
}

/// A post reads the answer while another thread waits for the descriptor that the connection had before.
#[test]
#[cfg_attr(windows, ignore = "memory is not shared on this system")]
fn a_post_that_reads_the_answer_wakes_waiters_for_the_other_descriptor() {
    let options = Options { path: Path::Process, ..Options::from_env() };
    let (active, passive) = (End::new(&options), End::new(&options));
    let listener = listening(&passive);
    let (_free, _kept) = occupied(&active.adapter);
    let (sink, _connected) = signal();
    active.connector.bind(loopback()).unwrap();
    // Nothing is answered while this thread gets ready to wait.
    let (free, _kept) = occupied(&passive.adapter);
    let at = listener.address().unwrap();
    active.connector.connect(&active.qp, at, LIMITS, b"", sink).unwrap();
    let link = active.qp.0.qp.link().unwrap();
    let bell = active.cq.cq.sleeper();
    let _waiting = link.wait_here();
    assert!(!link.is_over_rings() && !bell.silence());
    drop(free);
    until("the answer has come", || {
        link.posted();
        link.is_over_rings()
    });
    assert!(bell.silence(), "it sleeps on");
}

/// Have an end take its receives from a shared queue.
fn share_receives(end: &mut End) -> SharedReceiveQueue {
    let (adapter, options) = (&end.adapter, QueuePairOptions::default());
    let srq = adapter.shared_receive_queue(16, 4).unwrap();
    end.qp = adapter.queue_pair(end.domain, &end.cq, &end.cq, Some(&srq), &options).unwrap();
    srq
}

/// ND2 C42: a Send of a plain peer stays in the socket while a shared queue has no receive for it,
/// for as long as it takes. A thread that waits for completions sleeps meanwhile, and reads again
/// afterwards.
#[test]
fn a_waiter_does_not_spin_while_a_message_waits_for_a_receive() {
    let plain = Options { extension: false, path: Path::Tcp, ..Options::from_env() };
    let (active, mut passive) = (End::new(&plain), End::new(&plain));
    let srq = share_receives(&mut passive);
    join(&active, &passive);
    let (from, to) = (active.buffer(8), passive.buffer(8));
    let link = passive.qp.0.qp.link().unwrap();
    let bell = passive.cq.cq.sleeper();
    let waiting = link.wait_here();
    assert!(waiting.interest().is_some());
    bell.silence();
    active.post(Operation::Send, &[from.all()]);
    until("the Send has come", || link.wait_here().interest().is_none());
    // Done by the thread that has the link just then; otherwise unread bytes would keep waking it.
    until("it is told not to listen", || bell.silence() && waiting.interest().is_none());
    srq.post_receive(1, &[to.all()]).unwrap();
    until("it is told to listen again", || bell.silence() && waiting.interest().is_some());
    drop(waiting);
    passive.expect(CompletionKind::Receive);
    active.expect(CompletionKind::Send);
}

/// ND2 C42: what has come behind a Send that waits for a receive was read with it, so that no socket tells of it. The
/// thread that posts the receives goes on with it, in a program that only waits to be notified, too.
#[test]
fn what_has_come_behind_a_send_that_waited_goes_on_though_nothing_new_comes() {
    let plain = Options { extension: false, path: Path::Tcp, ..Options::from_env() };
    for shared in [false, true] {
        let (active, mut passive) = (End::new(&plain), End::new(&plain));
        let srq = shared.then(|| share_receives(&mut passive));
        join(&active, &passive);
        let (from, to) = (active.buffer(8), passive.buffer(8));
        let request = Request { context: 1, operation: Operation::Send, flags: Flags::NONE };
        let list = [from.all()];
        let both = [(request, Data::Sges(&list)); 2];
        active.qp.post_chain(2, |chain| chain.post_all(both)).unwrap().unwrap();
        let link = passive.qp.0.qp.link().unwrap();
        let waits = || link.overview().connection.peer_waits_for_receive;
        until("the background thread has read the Sends", waits);
        for context in [1, 2] {
            let list = [to.all()];
            match &srq {
                Some(srq) => srq.post_receive(context, &list),
                None => passive.qp.post_receive(context, &list),
            }
            .unwrap();
        }
        let mut taken = 0;
        until("both receives complete", || {
            taken += passive.cq.take(&mut [Completion::default(); 2]);
            taken == 2
        });
    }
}

/// A thread that waits for completions uses no processor until there is one.
#[test]
#[cfg(not(windows))]
fn a_thread_that_waits_sleeps() {
    for path in [Path::Auto, Path::Tcp] {
        let (active, passive) = pair_with(&Options { path, ..Options::from_env() });
        let buffer = passive.buffer(8);
        passive.qp.post_receive(1, &[buffer.all()]).unwrap();
        std::thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let cq = &passive.cq;
            let waits = scope.spawn(move || {
                tell.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
                cq.wait(Some(PATIENCE))
            });
            let thread = std::path::Path::new("/proc").join(told.recv_timeout(PATIENCE).unwrap());
            // Nanoseconds on a processor, and the rest of the line, which changes with it.
            let used = || std::fs::read_to_string(thread.join("schedstat")).unwrap();
            let sleeps = || {
                let stat = std::fs::read_to_string(thread.join("stat")).unwrap();
                stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
            };
            until("the thread sleeps", || {
                let before = used();
                (0..20).all(|_| sleeps()) && used() == before
            });
            active.post(Operation::Send, &[active.buffer(8).all()]);
            assert_eq!(waits.join().unwrap(), Ok(true));
        });
    }
}
