//! Requests, completions, numbers and rights of queue pairs.

use super::*;

/// Verbs V82: the places that a completion queue has to have are those of the queue pairs that there are.
#[test]
fn v82_a_queue_pair_that_is_gone_needs_no_place_in_its_completion_queues() {
    let end = End::new(&verbs());
    let [requests, receives] = [1, 2].map(|_| end.adapter.completion_queue(4).unwrap());
    let options = QueuePairOptions::default();
    let make = || end.adapter.queue_pair(end.domain, &requests, &receives, None, &options).unwrap();
    let bound = || (requests.bound(), receives.bound());
    assert_eq!(bound(), (0, 0));
    let first = make();
    let one = bound();
    assert!(one.0 > 0 && one.1 > 0);
    let second = make();
    assert_eq!(bound(), (2 * one.0, 2 * one.1));
    drop(first);
    assert_eq!(bound(), one);
    drop(second);
    assert_eq!(bound(), (0, 0));
}

/// Verbs V94: the sender's own limit, whatever its wire's.
#[test]
fn v94_a_send_without_a_receive_fails_after_the_queue_pairs_limit() {
    let (mut active, mut passive) = ends();
    connect(&mut active, &mut passive);
    send(&active, 1);
    assert!(nothing(&active), "for ever");
    active.qp.set_limits(Limits { receive: SOON, ..Limits::default() }).unwrap();
    assert_eq!(outcomes(&active, 1), [(1, Status::ReceiverNotReady)]);
    assert_eq!(active.qp.state(), QueuePairState::Error);
    parted(&passive.connector);
    assert_eq!(passive.qp.state(), QueuePairState::Idle, "nothing has happened to it");
}

/// Verbs V94: a receive that is posted is one, also while it has not come to the link.
#[test]
fn v94_a_receive_in_front_of_its_link_counts() {
    let cases =
        [(Path::Process, true), (Path::Process, false), (Path::Tcp, true), (Path::Tcp, false)];
    for (path, quick) in cases.repeat(5) {
        let options = Options { path, lease: PATIENCE, ..verbs() };
        let (mut active, mut passive) = (End::new(&options), End::new(&options));
        connect(&mut active, &mut passive);
        let limits = Limits { receive: Some(PATIENCE), one_try: true, ..Limits::default() };
        active.qp.set_limits(limits).unwrap();
        let link = passive.qp.0.qp.link().unwrap();
        assert!(link.serve(sys::now()), "it will be armed with the next round");
        passive.qp.post_receive(9, &[]).unwrap();
        // From here on nobody else looks at the link.
        link.poll(sys::now(), 1);
        send(&active, 1);
        let mut outcome = [Completion::default()];
        until("the Send has no outcome", || {
            // By the quick steps, or by a pass, because what is due is looked at.
            let due = Time(if quick { u64::MAX } else { 0 });
            let _ = link.lock.control(|state| state.housekeeping_at = due);
            link.poll(sys::now(), 1);
            active.cq.poll(&mut outcome) == 1
        });
        assert_eq!((outcome[0].request_context, outcome[0].status), (1, OK), "{path:?} {quick}");
    }
}

/// Verbs V94: so is one of a shared queue, which is taken when the peer asks. The sender looks all the time, so that it
/// would see a word that says otherwise in between.
#[test]
fn v94_a_receive_of_a_shared_queue_counts() {
    for path in [Path::Process, Path::Tcp] {
        let options = Options { path, ..verbs() };
        let (mut active, passive) = (End::new(&options), End::new(&options));
        let srq = passive.adapter.shared_receive_queue_in(passive.domain, 8, 1).unwrap();
        let (cq, domain, own) = (&passive.cq, passive.domain, QueuePairOptions::default());
        let qp = passive.adapter.queue_pair(domain, cq, cq, Some(&srq), &own).unwrap();
        let mut passive = End { qp, ..passive };
        connect(&mut active, &mut passive);
        let limits = Limits { receive: Some(PATIENCE), one_try: true, ..Limits::default() };
        active.qp.set_limits(limits).unwrap();
        for context in 0..2_000 {
            srq.post_receive(context, &[]).unwrap();
            send(&active, context);
            let mut outcome = [Completion::default()];
            until("the Send has no outcome", || active.cq.poll(&mut outcome) == 1);
            assert_eq!((outcome[0].request_context, outcome[0].status), (context, OK), "{path:?}");
            assert_eq!(passive.next().request_context, context);
        }
    }
}

/// Verbs V54: a queue that runs over loses what comes then, not what is in it, and its queue pairs end.
#[test]
fn v54_a_completion_queue_that_runs_over_keeps_what_is_in_it() {
    let (active, passive) = ends();
    let cq = active.adapter.completion_queue(2).unwrap();
    let options = QueuePairOptions::default();
    let make = || active.adapter.queue_pair(active.domain, &cq, &cq, None, &options).unwrap();
    let mut end = End { cq: cq.clone(), qp: make(), ..active };
    let mut passive = passive;
    connect(&mut end, &mut passive);
    let (sink, failed) = signal();
    cq.notify(crate::NotifyKind::Errors, sink).unwrap();
    for context in 20..23 {
        passive.qp.post_receive(context, &[]).unwrap();
    }
    for context in 1..4 {
        send(&end, context);
    }
    assert_eq!(failed.wait(), Status::QueueOverrun);
    let mut kept = [Completion::default(); 3];
    assert_eq!(cq.take(&mut kept), 2);
    assert_eq!(kept.map(|c| c.request_context)[..2], [1, 2]);
    until("the queue pair did not end", || end.qp.state() == QueuePairState::Error);
    passive.expect(CompletionKind::Receive);
}

/// Verbs V37: a queue pair that is destroyed takes its completions with it, and those of others stay.
#[test]
fn v37_completions_of_a_queue_pair_leave_with_it() {
    let (mut active, mut passive) = ends();
    connect(&mut active, &mut passive);
    let options = QueuePairOptions::default();
    let other =
        active.adapter.queue_pair(active.domain, &active.cq, &active.cq, None, &options).unwrap();
    other.post_receive(40, &[]).unwrap();
    active.qp.post_receive(30, &[]).unwrap();
    other.flush().unwrap();
    active.qp.flush().unwrap();
    active.qp.reset().unwrap();
    drop(active.qp);
    let mut left = [Completion::default(); 3];
    assert_eq!(active.cq.take(&mut left), 1);
    assert_eq!(left[0].request_context, 40);
}

/// V73: a number of the program's, of 24 bits, that no other queue pair has.
#[test]
fn v73_a_queue_pair_has_the_number_that_was_asked_for() {
    let (end, _) = ends();
    let make = |number| {
        let options =
            QueuePairOptions { number: Some(QueuePairId(number)), ..QueuePairOptions::default() };
        end.adapter.queue_pair(end.domain, &end.cq, &end.cq, None, &options)
    };
    let first = make(0x12_3456).unwrap();
    assert_eq!(first.config().number, QueuePairId(0x12_3456));
    assert_eq!(make(0x12_3456).unwrap_err().status, Status::SharingViolation);
    for bad in [0, 1, 1 << 24, u32::MAX] {
        assert_eq!(make(bad).unwrap_err().status, Status::InvalidParameter(0), "{bad:#x}");
    }
    for good in [2, (1 << 24) - 1] {
        assert_eq!(make(good).unwrap().config().number, QueuePairId(good));
    }
    drop(first);
    make(0x12_3456).unwrap();
}

/// V104: over rings, the first message of a few bytes goes no short way past this.
#[test]
fn v104_the_first_message_is_reported_when_it_comes() {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let sink = move |number, event, _| tell.lock().unwrap().send((number, event)).unwrap();
    let mut active = End::new(&verbs());
    let mut passive = End::new(&Options { events: Some(EventSink(Arc::new(sink))), ..verbs() });
    for _ in 0..2 {
        connect(&mut active, &mut passive);
        let target = Buffer::new(&passive, 64, Rights(ALL.0 | Rights::REMOTE.0));
        let source = active.buffer(8);
        let write = Operation::Write { token: target.token.0, address: target.address() };
        for _ in 0..3 {
            active.post(write, &[source.sge(0, 8)]);
            active.expect(CompletionKind::Write);
        }
        let number = passive.qp.config().number;
        let first = told.recv_timeout(PATIENCE).expect("no event");
        assert_eq!(first, (number, QueuePairEvent::FirstMessage));
        assert!(told.try_recv().is_err(), "once for each connection");
        active.qp.reset().unwrap();
        passive.qp.reset().unwrap();
    }
}

/// V104: the sink of an event may run behind a reset, and can tell.
#[test]
fn v104_an_event_from_before_a_reset_is_known_as_such() {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let sink = move |_, _, resets| tell.lock().unwrap().send(resets).unwrap();
    let mut active = End::new(&verbs());
    let mut passive = End::new(&Options { events: Some(EventSink(Arc::new(sink))), ..verbs() });
    let mut before = None;
    for _ in 0..2 {
        connect(&mut active, &mut passive);
        passive.qp.post_receive(1, &[]).unwrap();
        send(&active, 2);
        let resets = told.recv_timeout(PATIENCE).expect("no event");
        assert_eq!(passive.qp.unless_reset(resets, || 7), Some(7));
        assert_eq!(before.and_then(|before| passive.qp.unless_reset(before, || 7)), None);
        active.qp.reset().unwrap();
        passive.qp.reset().unwrap();
        assert_eq!(passive.qp.unless_reset(resets, || 7), None);
        before = Some(resets);
    }
}

/// V93, V104: a queue pair that lets its peer do nothing refuses what the token grants, small or
/// not, and its program is notified with no lock held.
#[test]
fn v93_v104_an_access_beyond_the_queue_pairs_rights_is_refused_and_reported() {
    for (length, late) in [(8, false), (8, true), (5000, false), (5000, true)] {
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let sink = move |number, event, _| tell.lock().unwrap().send((number, event)).unwrap();
        let mut active = End::new(&verbs());
        let mut passive = End::new(&Options { events: Some(EventSink(Arc::new(sink))), ..verbs() });
        if !late {
            passive.qp.set_access(Rights::REMOTE_READ).unwrap();
        }
        connect(&mut active, &mut passive);
        let target = Buffer::new(&passive, 5000, Rights(ALL.0 | Rights::REMOTE.0));
        let source = active.buffer(5000);
        source.fill(|_| 7);
        let from = target.address();
        active.post(Operation::Read { token: target.token.0, address: from }, &[source.sge(0, 8)]);
        active.expect(CompletionKind::Read);
        if late {
            passive.qp.set_access(Rights::NONE).unwrap();
        }
        let write = Operation::Write { token: target.token.0, address: target.address() };
        active.post(write, &[source.sge(8, length.min(4992))]);
        let failed = active.next();
        assert_eq!(failed.status, Status::PeerInvalidRequest);
        assert_eq!(target.bytes(), [0; 5000]);
        let number = passive.qp.config().number;
        assert_eq!(event(&told), (number, QueuePairEvent::RequestError));
        assert_eq!(passive.qp.state(), QueuePairState::Error);
        passive.qp.reset().unwrap();
    }
}

/// V81: what comes before the first bad request is posted, and nothing behind it; the longest lists and
/// the longest inline data that the front offers.
#[test]
fn v81_a_list_is_posted_up_to_the_first_bad_request() {
    let (active, mut passive) = ends();
    let options = QueuePairOptions {
        initiator_depth: 4,
        initiator_sge: 32,
        receive_sge: 32,
        inline_size: 4096,
        ..QueuePairOptions::default()
    };
    let (cq, domain) = (&active.cq, active.domain);
    let qp = active.adapter.queue_pair(domain, cq, cq, None, &options).unwrap();
    let mut active = End { qp, ..active };
    let source = active.buffer(64);
    let many: Vec<_> = (0..33).map(|at| source.sge(at, 1)).collect();
    let long = [5; 4097];
    let request = |context| Request { context, operation: Operation::Send, flags: Flags::NONE };
    let refused = |list: &[(u64, Data<'_>)]| {
        let mut posted = 0;
        let result = active.qp.post_chain(list.len(), |chain| {
            list.iter().try_for_each(|(context, data)| {
                chain.post(&request(*context), *data).inspect(|()| posted += 1)
            })
        });
        (posted, result.unwrap().map_err(|error| error.status))
    };
    let good = Data::Sges(&many[..32]);
    assert_eq!(
        refused(&[(1, good), (9, Data::Sges(&many)), (9, good)]),
        (1, Err(Status::DataOverrun))
    );
    let inline = Data::Inline(&long);
    assert_eq!(refused(&[(9, inline)]), (0, Err(Status::BufferOverflow)));
    assert_eq!(refused(&[(2, Data::Inline(&long[..4096]))]), (1, Ok(())));
    assert_eq!(refused(&[(9, Data::Memory(&[]))]), (0, Err(Status::InvalidRequest)));
    let full = (2, Err(Status::NoMoreEntries));
    assert_eq!(refused(&[(3, good), (4, good), (9, good), (9, good)]), full);
    let inbox = passive.buffer(4096);
    let parts: Vec<_> = (0..32).map(|at| inbox.sge(at * 128, 128)).collect();
    for context in 20..24 {
        let list = if context == 21 { &[] } else { &parts[..1] };
        passive.qp.post_receive(context, list).unwrap();
    }
    connect(&mut active, &mut passive);
    assert_eq!(outcomes(&active, 1), [(1, OK)]);
    // The second one, of 4,096 bytes, meets a receive of none.
    assert_eq!(outcomes(&active, 3)[0], (2, Status::PeerReceiveTooSmall));
    assert!(nothing(&active), "and none that was refused");
}

/// V81: an operation that this side does not support is accepted, and fails in its turn.
#[test]
fn v81_an_operation_that_there_is_not_fails_in_its_turn() {
    let (mut active, mut passive) = ends();
    let status = Status::NotSupported;
    send(&active, 1);
    active.post(Operation::Unsupported { status }, &[]);
    send(&active, 3);
    let success = Operation::Unsupported { status: OK };
    let request = Request { context: 9, operation: success, flags: Flags::NONE };
    assert!(active.qp.post(&request, Data::Sges(&[])).is_err());
    passive.qp.post_receive(20, &[]).unwrap();
    passive.qp.post_receive(21, &[]).unwrap();
    connect(&mut active, &mut passive);
    let expected = [(1, OK), (1, status), (3, CANCELED)];
    assert_eq!(outcomes(&active, 3), expected);
    assert_eq!(active.qp.state(), QueuePairState::Error);
    assert_eq!(outcomes(&passive, 1), [(20, OK)]);
    parted(&passive.connector);
    assert!(nothing(&passive), "it has done nothing");
}
