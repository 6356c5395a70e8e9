//! Queue pairs that receive over the queues of an XRC domain.

use std::thread;

use super::*;
use crate::QueuePairKind;
use crate::raw::XrcDomain;

/// Two ends, of which the passive one receives over a queue of an XRC domain, and the number of that queue.
fn ends_of_xrc() -> (End, End, XrcDomain, u32) {
    let (active, passive) = ends();
    let options = QueuePairOptions { kind: QueuePairKind::XrcSend, ..QueuePairOptions::default() };
    let (cq, domain) = (&active.cq, active.domain);
    let qp = active.adapter.queue_pair(domain, cq, cq, None, &options).unwrap();
    let active = End { qp, ..active };
    let xrc = passive.adapter.xrc_domain().unwrap();
    let srq = passive.adapter.shared_receive_queue_in(passive.domain, 8, 1).unwrap();
    let number = xrc.add(&srq, &passive.cq).unwrap();
    for context in [20, 21] {
        srq.post_receive(context, &[]).unwrap();
    }
    let qp = passive.adapter.xrc_receive_side(&xrc, &QueuePairOptions::default()).unwrap();
    (active, End { qp, ..passive }, xrc, number)
}

fn send_to(end: &End, number: u32, context: u64) {
    let request = Request { context, operation: Operation::Send, flags: Flags::NONE };
    end.qp
        .post_chain(1, |chain| chain.post_to(number, &request, Data::Sges(&[])))
        .unwrap()
        .unwrap();
}

/// V155: a thread that sleeps for completions of a queue of the domain is told of what comes over a
/// connection that was made since.
#[test]
fn v155_a_thread_that_waits_at_a_queue_of_the_domain_wakes() {
    let (mut active, mut passive, _xrc, number) = ends_of_xrc();
    let cq = passive.cq.clone();
    let (woken, is_woken) = mpsc::channel();
    thread::spawn(move || woken.send(cq.wait(None)).unwrap());
    connect(&mut active, &mut passive);
    send_to(&active, number, 1);
    assert_eq!(outcomes(&active, 1), [(1, OK)]);
    assert!(is_woken.recv_timeout(PATIENCE).unwrap().unwrap());
    assert_eq!(outcomes(&passive, 1), [(20, OK)]);
    send_to(&active, number, 2);
    assert_eq!(outcomes(&active, 1), [(2, OK)]);
    assert_eq!(outcomes(&passive, 1), [(21, OK)]);
}

/// V155: the queues of the domain let a connection go that has ended, while they and their completion queues stay.
#[test]
fn v155_no_queue_of_the_domain_keeps_a_connection_that_has_ended() {
    let (mut active, mut passive, _xrc, number) = ends_of_xrc();
    connect(&mut active, &mut passive);
    send_to(&active, number, 1);
    assert_eq!(outcomes(&active, 1), [(1, OK)]);
    assert_eq!(outcomes(&passive, 1), [(20, OK)]);
    let link = Arc::downgrade(&passive.qp.0.qp.link().unwrap());
    let End { qp, connector, cq, .. } = passive;
    active.connector.disconnect(crate::raw::Sink::call(|_| ())).unwrap();
    parted(&connector);
    drop((qp, connector));
    until("the connection is let go", || link.upgrade().is_none());
    assert_eq!(cq.poll(&mut [Completion::default()]), 0);
}
