//! Shared receive queues.

use super::*;

/// V60: a queue pair with a shared receive queue says when it takes no more receives, with a connection
/// or without; what waits in the queue stays.
#[test]
fn v60_a_queue_pair_in_error_has_taken_its_last_shared_receive() {
    for connected in [true, false] {
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let sink = move |number, event, _| tell.lock().unwrap().send((number, event)).unwrap();
        let mut active = End::new(&verbs());
        let passive = End::new(&Options { events: Some(EventSink(Arc::new(sink))), ..verbs() });
        let srq = passive.adapter.shared_receive_queue(8, 1).unwrap();
        let make = || {
            let options = QueuePairOptions::default();
            let (cq, domain) = (&passive.cq, passive.domain);
            passive.adapter.queue_pair(domain, cq, cq, Some(&srq), &options).unwrap()
        };
        let (first, second) = (make(), make());
        for context in [20, 21] {
            srq.post_receive(context, &[]).unwrap();
        }
        let mut passive = End { qp: first, ..passive };
        if connected {
            connect(&mut active, &mut passive);
            send(&active, 1);
            assert_eq!(outcomes(&active, 1), [(1, OK)]);
            assert_eq!(outcomes(&passive, 1), [(20, OK)]);
        }
        let number = passive.qp.config().number;
        passive.qp.flush().unwrap();
        assert_eq!(event(&told), (number, QueuePairEvent::LastReceive));
        assert!(nothing(&passive), "what waits in the queue is not flushed");
        passive.qp.flush().unwrap();
        assert!(told.try_recv().is_err(), "once");
        let left = if connected { 21 } else { 20 };
        let mut other = End { qp: second, ..passive };
        let mut active = End::on(&active.adapter);
        connect(&mut active, &mut other);
        send(&active, 2);
        assert_eq!(outcomes(&other, 1), [(left, OK)]);
    }
}

/// V58: receives of a shared queue are judged in the queue's domain, not the queue pair's.
#[test]
fn v58_shared_receives_are_judged_in_the_domain_of_their_queue() {
    for own in [true, false] {
        let (active, passive) = ends();
        let srqs = passive.adapter.domain().unwrap();
        let domain = if own { passive.domain } else { srqs };
        let srq = passive.adapter.shared_receive_queue_in(srqs, 8, 1).unwrap();
        let options = QueuePairOptions::default();
        let (cq, pair) = (&passive.cq, passive.domain);
        let qp = passive.adapter.queue_pair(pair, cq, cq, Some(&srq), &options).unwrap();
        let (mut active, mut passive) = (active, End { qp, ..passive });
        connect(&mut active, &mut passive);
        let buffer = End::in_domain(&passive.adapter, domain).buffer(8);
        srq.post_receive(20, &[buffer.all()]).unwrap();
        let source = active.buffer(8);
        source.fill(|_| 7);
        active.post(Operation::Send, &[source.all()]);
        let expected = if own { (Status::RemoteError, Status::LocalAccess) } else { (OK, OK) };
        assert_eq!((active.next().status, passive.next().status), expected);
        assert_eq!(buffer.bytes(), [if own { 0 } else { 7 }; 8]);
    }
}

/// V59: the limit of a shared queue is reported once, and again when it is set anew.
#[test]
fn v59_a_shared_queue_reports_its_limit_once() {
    let (mut active, passive) = ends();
    let srq = passive.adapter.shared_receive_queue_in(passive.domain, 8, 1).unwrap();
    let options = QueuePairOptions::default();
    let (cq, domain) = (&passive.cq, passive.domain);
    let qp = passive.adapter.queue_pair(domain, cq, cq, Some(&srq), &options).unwrap();
    let mut passive = End { qp, ..passive };
    connect(&mut active, &mut passive);
    for context in 20..24 {
        srq.post_receive(context, &[]).unwrap();
    }
    let (sink, low) = signal();
    srq.modify(0, 3).unwrap();
    srq.notify(sink).unwrap();
    send(&active, 1);
    assert_eq!(outcomes(&passive, 1), [(20, OK)]);
    assert_eq!(low.told(), None, "three are left");
    send(&active, 2);
    assert_eq!(low.wait(), OK);
    let (sink, lower) = signal();
    srq.modify(0, 1).unwrap();
    srq.notify(sink).unwrap();
    send(&active, 3);
    assert_eq!(outcomes(&active, 3).len(), 3);
    assert_eq!(lower.told(), None);
    send(&active, 4);
    assert_eq!(lower.wait(), OK);
}
