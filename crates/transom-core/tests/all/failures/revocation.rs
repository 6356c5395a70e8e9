//! Windows that close, and pages that vanish, under traffic.

use super::*;

crate::support::again_over_process![
    a_window_closes_under_a_write_that_is_stalled_in_the_middle_of_a_frame,
    vanished_pages_fail_the_request_that_needs_them,
    nd2_w20_windows_close_with_the_connection,
    the_token_of_a_flushed_bind_never_lives
];

/// ND2 W13, R18; iW G12, F10: a peer stalls in the middle of a frame; closing does not wait for it.
#[test]
fn a_window_closes_under_a_write_that_is_stalled_in_the_middle_of_a_frame() {
    each(|mut pair, dialect| {
        let [a, p] = &mut pair.hosts;
        let source = a.register(vec![1; 200_000], Rights::NONE);
        let buffer = p.register(vec![0; 200_000], Rights::LOCAL_WRITE);
        let request = Request { context: 9, operation: Operation::Receive, flags: Flags::NONE };
        let window = p.bind(&buffer, 0, 200_000, Rights::REMOTE_WRITE, request).unwrap();
        pair.pump();
        pair.stall(PASSIVE, true);
        pair.hosts[ACTIVE].post(1, write(&window, 0), Flags::NONE, &[source.all()]).unwrap();
        pair.pump();
        pair.deliver(PASSIVE, 100_000);
        let p = &mut pair.hosts[PASSIVE];
        p.memory.close(window.token, None, 0).unwrap();
        let unless = Unless { windows: true, posted: true };
        p.memory.deregister(buffer.token, unless, 0).unwrap();
        let before = p.arena.read(buffer.address, 200_000).unwrap();
        assert!(before.contains(&0), "{}", dialect.name);
        pair.stall(PASSIVE, false);
        pair.pump();
        let [a, p] = &mut pair.hosts;
        assert_eq!(a.outcomes(), [(1, Status::RemoteAccess)], "{}", dialect.name);
        assert_eq!(p.arena.read(buffer.address, 200_000).unwrap(), before);
    });
}

/// Design rule 8: the check passes, the pages are gone; both processes live.
#[test]
fn vanished_pages_fail_the_request_that_needs_them() {
    type Case = fn(&mut Pair, [&Buffer; 2]);
    let cases: [(&str, Case, Option<Status>, Option<Status>); 5] = [
        (
            "Send source",
            |pair, [own, _]| {
                pair.hosts[ACTIVE].post(1, Operation::Send, Flags::NONE, &[own.all()]).unwrap();
            },
            Some(Status::LocalAccess),
            Some(Status::Canceled),
        ),
        (
            "Write source",
            |pair, [own, theirs]| {
                pair.hosts[ACTIVE].post(1, write(theirs, 0), Flags::NONE, &[own.all()]).unwrap();
            },
            Some(Status::LocalAccess),
            Some(Status::Canceled),
        ),
        (
            "Read sink",
            |pair, [own, theirs]| {
                pair.hosts[ACTIVE].post(1, read(theirs, 0), Flags::NONE, &[own.all()]).unwrap();
            },
            Some(Status::LocalAccess),
            Some(Status::Canceled),
        ),
        (
            "window of the peer, read",
            |pair, [own, theirs]| {
                let bytes = vec![0; own.length as usize];
                pair.hosts[ACTIVE].arena.insert(own.address, bytes);
                pair.hosts[PASSIVE].arena.vanish(theirs.address);
                pair.hosts[ACTIVE].post(1, read(theirs, 0), Flags::NONE, &[own.all()]).unwrap();
            },
            Some(Status::RemoteError),
            Some(Status::Canceled),
        ),
        (
            "window of the peer, written",
            |pair, [own, theirs]| {
                let bytes = vec![0; own.length as usize];
                pair.hosts[ACTIVE].arena.insert(own.address, bytes);
                pair.hosts[PASSIVE].arena.vanish(theirs.address);
                pair.hosts[ACTIVE].post(1, write(theirs, 0), Flags::NONE, &[own.all()]).unwrap();
            },
            Some(Status::RemoteError),
            Some(Status::Canceled),
        ),
    ];
    for (name, case, initiator, receive) in cases {
        let mut pair = connected(&dialect::ND2, Wires::transom());
        let [a, p] = &mut pair.hosts;
        let own = a.register(vec![0; 5000], Rights::LOCAL_WRITE);
        let theirs = p.register(vec![0; 5000], WRITABLE | Rights::REMOTE_READ);
        p.post_receive(20, &[theirs.all()]).unwrap();
        a.arena.vanish(own.address);
        pair.pump();
        case(&mut pair, [&own, &theirs]);
        pair.pump();
        let outcomes = pair.hosts[ACTIVE].outcomes();
        assert_eq!(outcomes.first().map(|o| o.1), initiator, "{name}");
        assert_eq!(pair.hosts[PASSIVE].outcomes().first().map(|o| o.1), receive, "{name}");
        let vanished = pair.hosts.iter().any(|host| {
            let log = host.denials.0.lock().unwrap();
            log.iter().any(|(_, r)| matches!(r.cause, DenialCause::Vanished { .. }))
        });
        assert!(vanished, "{name}");
    }
}

/// ND2 W20, C15: windows die with their queue pair, before anything completes. Of a queue pair that
/// outlives its connections they last until it fails or begins anew (Verbs V67, V68).
#[test]
fn nd2_w20_windows_close_with_the_connection() {
    each(|mut pair, dialect| {
        let p = &mut pair.hosts[PASSIVE];
        let buffer = p.register(vec![0; 64], Rights::LOCAL_WRITE);
        let request = Request { context: 9, operation: Operation::Receive, flags: Flags::NONE };
        p.bind(&buffer, 0, 64, Rights::REMOTE_WRITE, request).unwrap();
        pair.pump();
        let unless = Unless { windows: true, posted: true };
        let p = &mut pair.hosts[PASSIVE];
        assert!(p.memory.deregister(buffer.token, unless, 0).is_err(), "busy (ND2 R16)");
        pair.disconnect(ACTIVE, 50).unwrap();
        pair.advance(QUIET);
        if dialect.peer_gone == PeerGone::Await {
            let p = &mut pair.hosts[PASSIVE];
            assert!(p.memory.deregister(buffer.token, unless, 0).is_err(), "it has not ended");
            pair.flush(PASSIVE);
        }
        let p = &mut pair.hosts[PASSIVE];
        assert_eq!(p.memory.deregister(buffer.token, unless, 0), Ok(()), "{}", dialect.name);
    });
}

/// Design rule 6: a Bind that was flushed leaves nothing that lives.
#[test]
fn the_token_of_a_flushed_bind_never_lives() {
    let mut pair = connected(&dialect::ND2, Wires::transom());
    pair.hosts[PASSIVE].post(1, Operation::Send, Flags::NONE, &[]).unwrap(); // waits for credit
    pair.pump();
    let p = &mut pair.hosts[PASSIVE];
    let buffer = p.register(vec![0; 64], Rights::LOCAL_WRITE);
    let request = Request { context: 2, operation: Operation::Receive, flags: Flags::NONE };
    let window = p.bind(&buffer, 0, 64, Rights::REMOTE_WRITE, request).unwrap();
    pair.pump();
    pair.flush(PASSIVE);
    let p = &mut pair.hosts[PASSIVE];
    assert_eq!(p.outcomes(), [(1, Status::Canceled), (2, Status::Canceled)]);
    assert!(!p.memory.activate(window.token));
    assert_eq!(
        p.memory.deregister(buffer.token, Unless { windows: true, posted: true }, 0),
        Ok(())
    );
}
