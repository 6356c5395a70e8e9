//! Windows: ND2 5.2, 5.3, 5.4, 5.6.

use crate::common::*;
use transom_memory::*;

const BUSY: Unless = Unless { windows: true, posted: false };
const READ: Rights = Rights::REMOTE_READ;
/// First byte of the window that `window` binds.
const AT: u64 = BASE + 0x1000;

fn read(token: Token) -> Access {
    access(Purpose::RemoteRead, token, AT, 16)
}

/// ND2 W1, W2: nothing before Bind, and exactly what Bind said after it.
#[test]
fn w1_w2_bind_fixes_range_rights_region_and_queue_pair() {
    let memory = memory();
    let region = region(&memory, ALL);
    let spec = window_spec(region, READ);
    let token = memory.reserve(&spec, NOW).unwrap();
    assert_eq!(rule(&memory, &read(token)), Some(Rule::LiveToken));
    assert!(memory.activate(token));
    let mut lane = memory.lane();
    let grant = memory.check(&mut lane, &read(token), NOW).unwrap();
    assert_eq!((grant.region(), grant.offset(), grant.length()), (region, 0x1000, 16));
    let segment = Segment { host: HOST + 0x1000, length: 16 };
    assert_eq!(grant.segments().collect::<Vec<_>>(), [segment]);
    drop(grant);
    let denial = judge(&memory, &access(Purpose::RemoteWrite, token, AT, 1)).unwrap_err();
    let named = Named {
        token,
        region,
        window: true,
        name: None,
        state: NamedState::Live,
        age: Some(0),
        base: spec.base,
        length: spec.length,
        rights: spec.rights,
        scope: spec.scope,
    };
    assert_eq!(denial.named, Some(named));
}

/// ND2 W3, W18: one queue pair's; refused to every other, also of the same domain and peer.
#[test]
fn w3_w18_a_window_serves_its_own_queue_pair_only() {
    let memory = memory();
    let region = region(&memory, ALL);
    let tokens = [QP, OTHER_QP].map(|queue_pair| {
        let scope = Scope::QueuePair(DOMAIN, queue_pair);
        let spec = WindowSpec { scope, ..window_spec(region, READ) };
        let token = memory.reserve(&spec, NOW).unwrap();
        assert!(memory.activate(token));
        token
    });
    for (owner, token) in [QP, OTHER_QP].into_iter().zip(tokens) {
        for asker in [QP, OTHER_QP, QueuePairId(9)] {
            let ask = Access { actor: actor(asker), ..read(token) };
            let expected = if asker == owner { None } else { Some(Rule::Scope) };
            assert_eq!(rule(&memory, &ask), expected);
        }
    }
    // Any number of windows on one queue pair.
    let many: Vec<Token> = (0..100).map(|_| window(&memory, region, READ)).collect();
    assert!(many.iter().all(|token| rule(&memory, &read(*token)).is_none()));
}

/// Type-1 windows: open to a whole domain, and not to another.
#[test]
fn w18_a_window_of_a_domain_serves_all_its_queue_pairs() {
    let memory = memory();
    let region = region(&memory, ALL);
    let spec = WindowSpec { scope: Scope::Domain(DOMAIN), ..window_spec(region, READ) };
    let token = memory.reserve(&spec, NOW).unwrap();
    assert!(memory.activate(token));
    for queue_pair in [QP, OTHER_QP] {
        let ask = Access { actor: actor(queue_pair), ..read(token) };
        assert_eq!(rule(&memory, &ask), None);
    }
    let actor = Actor { domain: DomainId(2), ..actor(QP) };
    assert_eq!(rule(&memory, &Access { actor, ..read(token) }), Some(Rule::Scope));
    // The window outlives queue pairs, and any of them may close it.
    memory.close_queue_pair(QP, NOW);
    assert_eq!(rule(&memory, &read(token)), None);
    memory.close(token, Some(OTHER_QP), NOW).unwrap();
}

/// ND2 W4: overlapping windows with different rights are judged alone.
#[test]
fn w4_windows_are_independent() {
    let memory = memory();
    let region = region(&memory, ALL);
    let reads = window(&memory, region, READ);
    let writes = window(&memory, region, Rights::REMOTE_WRITE);
    let write = |token| access(Purpose::RemoteWrite, token, AT, 16);
    assert_eq!(rule(&memory, &read(reads)), None);
    assert_eq!(rule(&memory, &write(reads)), Some(Rule::Right));
    assert_eq!(rule(&memory, &read(writes)), Some(Rule::Right));
    assert_eq!(rule(&memory, &write(writes)), None);
    memory.close(reads, Some(QP), NOW).unwrap();
    assert_eq!(rule(&memory, &write(writes)), None);
    assert_eq!(memory.counts(region).unwrap().windows, 1);
}

/// ND2 W5: one domain for region, window and queue pair.
#[test]
fn w5_windows_stay_in_their_domain() {
    let memory = memory();
    let region = region(&memory, ALL);
    let spec = window_spec(region, READ);
    let elsewhere = Scope::QueuePair(DomainId(2), QP);
    for spec in [
        WindowSpec { domain: DomainId(2), ..spec },
        WindowSpec { scope: elsewhere, ..spec },
        WindowSpec { domain: DomainId(2), scope: elsewhere, ..spec },
    ] {
        assert_eq!(memory.reserve(&spec, NOW), Err(BindError::Domain));
    }
    assert_eq!(memory.counts(region), Some(Counts::default()));
}

/// WSD A-7: a window is open to no actor that its region keeps out.
#[test]
fn w5_a_window_is_no_wider_than_its_region() {
    let memory = memory();
    let mine = Scope::Connection(DOMAIN, connection(QP));
    let region = region_of(&memory, mine, ALL);
    let spec = |scope| WindowSpec { scope, ..window_spec(region, READ) };
    let later = Scope::Connection(DOMAIN, ConnectionId { epoch: 2, ..connection(QP) });
    for scope in [Scope::Domain(DOMAIN), Scope::QueuePair(DOMAIN, QP), later] {
        assert_eq!(memory.reserve(&spec(scope), NOW), Err(BindError::Scope));
    }
    let token = memory.reserve(&spec(mine), NOW).unwrap();
    assert!(memory.activate(token));
    assert_eq!(rule(&memory, &read(token)), None);
    // Both end with the connection.
    memory.close_connection(connection(QP), NOW);
    assert_eq!(rule(&memory, &read(token)), Some(Rule::LiveToken));
    assert_eq!(memory.counts(region), None);
}

/// ND2 W6: inside the region, to the byte.
#[test]
fn w6_the_window_lies_inside_the_region() {
    let memory = memory();
    let region = region(&memory, ALL);
    let bind = |base, length| {
        memory.reserve(&WindowSpec { base, length, ..window_spec(region, READ) }, NOW)
    };
    assert!(bind(BASE, SIZE).is_ok());
    assert!(bind(BASE + SIZE - 1, 1).is_ok());
    for (base, length, likely) in [
        (BASE - 1, 2, Mistake::BeforeTheBeginning { bytes: 1 }),
        (BASE, SIZE + 1, Mistake::PastTheEnd { bytes: 1 }),
        (BASE + SIZE, 1, Mistake::PastTheEnd { bytes: 1 }),
        (0, SIZE, Mistake::OffsetInsteadOfAddress),
        (BASE, u64::MAX, Mistake::WrapsAround),
    ] {
        match bind(base, length) {
            Err(BindError::Bounds(denial)) => assert_eq!(denial.likely, likely),
            other => panic!("{base:#x}: {other:?}"),
        }
    }
}

/// ND2 W7, 5.5 (b): see `matrix.rs` for every combination. The denial says what was missing.
#[test]
fn w7_write_access_needs_local_write() {
    let memory = memory();
    let region = region(&memory, Rights::LOCAL_READ | Rights::BIND);
    for rights in [Rights::REMOTE_WRITE, Rights::REMOTE_ATOMIC] {
        match memory.reserve(&window_spec(region, rights), NOW) {
            Err(BindError::Right(denial)) => {
                assert_eq!((denial.rule, denial.wanted), (Rule::Right, Rights::LOCAL_WRITE));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(memory.counts(region), Some(Counts::default()));
}

/// A front may register memory to which nothing can be bound; and a window grants nothing local.
#[test]
fn w7_bind_needs_the_right_to_bind_and_grants_remote_rights_only() {
    let memory = memory();
    let without = region(&memory, Rights(ALL.0 & !Rights::BIND.0));
    match memory.reserve(&window_spec(without, READ), NOW) {
        Err(BindError::Right(denial)) => assert_eq!(denial.wanted, Rights::BIND),
        other => panic!("{other:?}"),
    }
    let region = region(&memory, ALL);
    for rights in [Rights::LOCAL_READ, READ | Rights::LOCAL_WRITE, Rights::BIND, Rights::READ_SINK]
    {
        let answer = memory.reserve(&window_spec(region, rights), NOW);
        assert_eq!(answer, Err(BindError::LocalRights));
    }
}

/// ND2 W8: no rights at all is a window, and makes the region busy.
#[test]
fn w8_a_window_without_rights() {
    let memory = memory();
    let region = region(&memory, Rights::LOCAL_READ | Rights::BIND);
    let token = window(&memory, region, Rights::NONE);
    for purpose in [Purpose::RemoteRead, Purpose::RemoteWrite, Purpose::RemoteAtomic] {
        assert_eq!(rule(&memory, &access(purpose, token, AT, 1)), Some(Rule::Right));
    }
    assert!(matches!(memory.deregister(region, BUSY, NOW), Err(DeregisterError::Busy(_))));
}

/// ND2 W9: a window in a connection's or queue pair's scope is of no use without the connection.
#[test]
fn w9_no_access_through_a_window_while_not_connected() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = window(&memory, region, READ);
    let actor = Actor { connection: None, ..actor(QP) };
    assert_eq!(rule(&memory, &Access { actor, ..read(token) }), Some(Rule::Connected));
}

/// ND2 W10, ND1 MW-1: the token is final when Bind returns, access begins when it executes.
#[test]
fn w10_the_token_is_known_before_access_begins() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = memory.reserve(&window_spec(region, READ), NOW).unwrap();
    assert_eq!(judge(&memory, &read(token)).unwrap_err().likely, Mistake::NotYetBound);
    assert_eq!(memory.counts(region).unwrap().windows, 1);
    assert!(memory.activate(token));
    assert!(!memory.activate(token), "once");
    assert_eq!(rule(&memory, &read(token)), None);
}

/// ND2 W11: a bound window cannot be bound again: its token names a window, not a region, and each
/// Bind makes a token of its own (ND2 5.4).
#[test]
fn w11_every_bind_makes_a_new_token() {
    let memory = memory();
    let region = region(&memory, ALL);
    let first = window(&memory, region, READ);
    match memory.reserve(&window_spec(first, READ), NOW) {
        Err(BindError::Region(denial)) => assert_eq!(denial.likely, Mistake::WrongKind),
        other => panic!("{other:?}"),
    }
    let mut seen = std::collections::HashSet::from([first, region]);
    for _ in 0..5_000 {
        let token = window(&memory, region, READ);
        assert!(seen.insert(token));
        memory.close(token, Some(QP), NOW).unwrap();
    }
}

/// Binding to what is not a live region.
#[test]
fn w2_bind_needs_a_live_region() {
    let memory = memory();
    let gone = region(&memory, ALL);
    memory.deregister(gone, BUSY, NOW).unwrap();
    let standing = memory.reserve_region(Scope::Domain(DOMAIN)).unwrap();
    for (token, likely) in [
        (gone, Mistake::Stale),
        (standing, Mistake::NotYetBound),
        (Token(0), Mistake::NeverIssued),
        (Token(gone.0 ^ 0x8000_0000), Mistake::NeverIssued),
    ] {
        match memory.reserve(&window_spec(token, READ), NOW) {
            Err(BindError::Region(denial)) => assert_eq!(denial.likely, likely),
            other => panic!("{other:?}"),
        }
    }
}

/// ND2 W12, W13: closed, and every later reference refused; the next Bind may be to anything.
#[test]
fn w12_w13_invalidate_ends_access_and_may_be_repeated() {
    let memory = memory();
    let regions = [region(&memory, ALL), region(&memory, ALL)];
    let mut old = Vec::new();
    for turn in 0..200 {
        let queue_pair = [QP, OTHER_QP][turn % 2];
        let scope = Scope::QueuePair(DOMAIN, queue_pair);
        let spec = WindowSpec { scope, ..window_spec(regions[turn / 2 % 2], READ) };
        let token = memory.reserve(&spec, NOW).unwrap();
        assert!(memory.activate(token));
        let ask = Access { actor: actor(queue_pair), ..read(token) };
        assert_eq!(rule(&memory, &ask), None);
        memory.close(token, Some(queue_pair), NOW).unwrap();
        old.push(ask);
        assert!(old.iter().all(|ask| rule(&memory, ask) == Some(Rule::LiveToken)));
    }
    for region in regions {
        memory.deregister(region, BUSY, NOW).unwrap();
    }
}

/// ND2 W14: Invalidate waits for the access that is touching memory, on whatever lane; others are
/// refused at once.
#[test]
fn w14_invalidate_waits_for_the_access_under_way() {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    let memory = memory();
    let region = region(&memory, ALL);
    for pass in [false, true] {
        let token = window(&memory, region, READ);
        let over = AtomicBool::new(false);
        let calling = AtomicU32::new(0);
        let mut lane = memory.lane();
        let mut of_pass;
        let (grant, guard);
        if pass {
            of_pass = memory.pass(&mut lane);
            assert!(of_pass.check(&read(token), NOW).is_ok());
            (grant, guard) = (None, Some(of_pass));
        } else {
            (grant, guard) = (Some(memory.check(&mut lane, &read(token), NOW).unwrap()), None);
        }
        std::thread::scope(|scope| {
            let closer = scope.spawn(|| {
                memory.close(token, Some(QP), NOW).unwrap();
                assert!(over.load(Ordering::SeqCst), "closed under a copy");
            });
            until("the window is dead", || judge(&memory, &read(token)).is_err());
            // A second close of the same window is refused, yet does not return before either.
            let second = scope.spawn(|| {
                calling.fetch_add(1, Ordering::SeqCst);
                assert!(memory.close(token, Some(QP), NOW).is_err());
                assert!(over.load(Ordering::SeqCst), "a late close overtook a copy");
            });
            // The peer's does not, and is no error (design: race of Invalidate and revocation).
            let third = scope.spawn(|| {
                calling.fetch_add(1, Ordering::SeqCst);
                memory.close_for_peer(token, &actor(QP), NOW).unwrap();
                assert!(over.load(Ordering::SeqCst), "a peer's close overtook a copy");
            });
            // ND2 5.6: Invalidate not completed: still busy.
            let busy = memory.deregister(region, BUSY, NOW);
            assert!(matches!(busy, Err(DeregisterError::Busy(Counts { windows: 1, .. }))));
            until("both have called", || calling.load(Ordering::SeqCst) == 2);
            // Time enough to return, for those that would.
            (0..200).for_each(|_| std::thread::yield_now());
            assert!(![&closer, &second, &third].iter().any(|closer| closer.is_finished()));
            over.store(true, Ordering::SeqCst);
            drop(grant);
            drop(guard);
            closer.join().unwrap();
            second.join().unwrap();
            third.join().unwrap();
        });
        assert_eq!(memory.counts(region), Some(Counts::default()));
    }
}

/// A deregistration that takes the windows along waits for one that another thread is closing.
#[test]
fn r18_deregister_waits_for_windows_that_others_are_closing() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let memory = memory();
    let region = region(&memory, ALL);
    let token = window(&memory, region, READ);
    let over = AtomicBool::new(false);
    let mut lane = memory.lane();
    let grant = memory.check(&mut lane, &read(token), NOW).unwrap();
    std::thread::scope(|scope| {
        let closer = scope.spawn(|| memory.close(token, Some(QP), NOW));
        until("the window is dead", || judge(&memory, &read(token)).is_err());
        let owner = scope.spawn(|| {
            memory.deregister(region, Unless::default(), NOW).unwrap();
            assert!(over.load(Ordering::SeqCst), "the window's copy was under way");
        });
        until("the region is dead", || memory.counts(region).is_none());
        over.store(true, Ordering::SeqCst);
        drop(grant);
        closer.join().unwrap().unwrap();
        owner.join().unwrap();
    });
}

/// ND2 W16: an unbound window cannot be invalidated, and the record says what it was.
#[test]
fn w16_invalidate_of_an_unbound_window() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = window(&memory, region, READ);
    memory.close(token, Some(QP), NOW).unwrap();
    for (token, likely) in [(token, Mistake::Stale), (Token(0), Mistake::NeverIssued)] {
        match memory.close(token, Some(QP), NOW) {
            Err(DeregisterError::NotLive(denial)) => assert_eq!(denial.likely, likely),
            other => panic!("{other:?}"),
        }
    }
}

/// ND2 W19: on the queue pair to which it is bound, if the front insists.
#[test]
fn w19_invalidate_on_another_queue_pair_is_refused() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = window(&memory, region, READ);
    match memory.close(token, Some(OTHER_QP), NOW) {
        Err(DeregisterError::NotYours(denial)) => {
            assert_eq!((denial.rule, denial.likely), (Rule::Scope, Mistake::AnotherQueuePair));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(rule(&memory, &read(token)), None);
    memory.close(token, None, NOW).unwrap();
}

/// ND2 W20, 5.6: the end of a queue pair ends its windows, reserved ones too, and no others; the
/// region can be deregistered then.
#[test]
fn w20_the_end_of_a_queue_pair_ends_its_windows() {
    let memory = memory();
    let region = region(&memory, ALL);
    // More than are closed under one hold of the mutex.
    let mine: Vec<Token> = (0..2500).map(|_| window(&memory, region, READ)).collect();
    let reserved = memory.reserve(&window_spec(region, READ), NOW).unwrap();
    let scope = Scope::QueuePair(DOMAIN, OTHER_QP);
    let spec = WindowSpec { scope, ..window_spec(region, READ) };
    let other = memory.reserve(&spec, NOW).unwrap();
    assert!(memory.activate(other));
    memory.close_queue_pair(QP, NOW);
    for token in mine.into_iter().chain([reserved]) {
        let denial = judge(&memory, &read(token)).unwrap_err();
        let state = NamedState::Dead { reason: CloseReason::Disconnected, ago: 0 };
        assert_eq!(denial.named.unwrap().state, state);
        assert!(!memory.activate(token));
    }
    let ask = Access { actor: actor(OTHER_QP), ..read(other) };
    assert_eq!(rule(&memory, &ask), None);
    assert_eq!(memory.counts(region).unwrap().windows, 1);
    memory.close_queue_pair(OTHER_QP, NOW);
    memory.close_queue_pair(OTHER_QP, NOW);
    memory.deregister(region, BUSY, NOW).unwrap();
}

/// ND2 R18, W20: whatever order windows came and went in, none is forgotten at the end.
#[test]
fn w20_no_window_is_forgotten_whatever_was_closed_before() {
    for first in 0..5 {
        for second in 0..5 {
            for end in [true, false] {
                let memory = memory();
                let region = region(&memory, ALL);
                let tokens: Vec<Token> = (0..5).map(|_| window(&memory, region, READ)).collect();
                memory.close(tokens[first], None, NOW).unwrap();
                let again = memory.close(tokens[second], None, NOW);
                assert_eq!(again.is_ok(), first != second);
                let late = window(&memory, region, READ);
                if end {
                    memory.deregister(region, Unless::default(), NOW).unwrap();
                } else {
                    memory.close_queue_pair(QP, NOW);
                    memory.deregister(region, BUSY, NOW).unwrap();
                }
                for token in tokens.into_iter().chain([late]) {
                    assert_eq!(rule(&memory, &read(token)), Some(Rule::LiveToken));
                }
            }
        }
    }
}

/// ND2 W21: a window that goes away is closed like any other, also while it is only reserved, and
/// its Bind then never executes.
#[test]
fn w21_a_reserved_window_can_be_closed() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = memory.reserve(&window_spec(region, READ), NOW).unwrap();
    memory.close(token, None, NOW).unwrap();
    assert!(!memory.activate(token));
    memory.deregister(region, BUSY, NOW).unwrap();
}

/// ND2 5.6, ND1 MW-5: a Bind that is flushed leaves nothing, and its token never lives.
#[test]
fn s5_6_a_flushed_bind_leaves_nothing() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = memory.reserve(&window_spec(region, READ), NOW).unwrap();
    memory.abandon(token, NOW);
    assert!(!memory.activate(token));
    let denial = judge(&memory, &read(token)).unwrap_err();
    let state = NamedState::Dead { reason: CloseReason::NeverBound, ago: 0 };
    assert_eq!(denial.named.unwrap().state, state);
    assert_eq!(memory.counts(region), Some(Counts::default()));
    // A live window cannot be abandoned, nor anything that is no window, nor one twice.
    let live = window(&memory, region, READ);
    let standing = memory.reserve_region(Scope::Domain(DOMAIN)).unwrap();
    for token in [live, token, standing, region, Token(0)] {
        memory.abandon(token, NOW);
    }
    assert_eq!(rule(&memory, &read(live)), None);
    assert_eq!(memory.counts(region).unwrap().windows, 1);
    assert!(memory.counts(standing).is_some());
}

/// ND2 5.6, the table: every order of Bind, Invalidate, Disconnect and Deregister.
#[test]
fn s5_6_deregister_against_bind_and_its_ends() {
    for end in 0..3 {
        let memory = memory();
        let region = region(&memory, ALL);
        let token = memory.reserve(&window_spec(region, READ), NOW).unwrap();
        let busy = || matches!(memory.deregister(region, BUSY, NOW), Err(DeregisterError::Busy(_)));
        assert!(busy(), "posted, not executed");
        assert!(memory.activate(token));
        assert!(busy(), "executed");
        match end {
            0 => memory.close(token, Some(QP), NOW).unwrap(),
            1 => memory.close_queue_pair(QP, NOW),
            _ => memory.close_for_peer(token, &actor(QP), NOW).unwrap(),
        }
        memory.deregister(region, BUSY, NOW).unwrap();
    }
}

/// ND2 5.6: Bind, release of the region, release of the window.
#[test]
fn s5_6_release_of_the_region_before_the_window() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = window(&memory, region, READ);
    memory.deregister(region, Unless::default(), NOW).unwrap();
    assert!(matches!(memory.close(token, None, NOW), Err(DeregisterError::NotLive(_))));
    // The window went with its region: to give it up again is no error, and takes nothing else.
    let other_region = self::region(&memory, ALL);
    let other = window(&memory, other_region, READ);
    memory.abandon(token, NOW);
    memory.close_queue_pair(OTHER_QP, NOW);
    assert_eq!(rule(&memory, &read(token)), Some(Rule::LiveToken));
    assert_eq!((memory.is_open(token), memory.counts(region)), (false, None));
    assert_eq!(rule(&memory, &read(other)), None);
    memory.close_queue_pair(QP, NOW);
    assert_eq!(rule(&memory, &read(other)), Some(Rule::LiveToken));
    assert_eq!(memory.counts(other_region).unwrap().windows, 0);
    memory.deregister(other_region, BUSY, NOW).unwrap();
}

/// ND2 5.3: to the byte, at both ends, through a window.
#[test]
fn s5_3_bounds_are_exact() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = window(&memory, region, READ);
    let at = |address, length| rule(&memory, &access(Purpose::RemoteRead, token, address, length));
    let end = AT + 0x2000;
    assert_eq!(at(AT, 0x2000), None);
    assert_eq!(at(AT, 1), None);
    assert_eq!(at(end - 1, 1), None);
    assert_eq!(at(AT - 1, 1), Some(Rule::Bounds));
    assert_eq!(at(AT - 1, 2), Some(Rule::Bounds));
    assert_eq!(at(AT, 0x2001), Some(Rule::Bounds));
    assert_eq!(at(end, 1), Some(Rule::Bounds));
    // Inside the region, but not inside the window (design rule 2).
    assert_eq!(at(BASE, 16), Some(Rule::Bounds));
}

/// ND2 5.3: whole requests: an extent is judged as one, whatever its length, and may wrap.
#[test]
fn s5_3_whole_extents_are_judged_ahead() {
    let memory = memory();
    let base = 0x1000_0000_0000;
    let segments = [Segment { host: HOST, length: 1 << 32 }];
    let scope = Scope::Domain(DOMAIN);
    let registration = Registration { scope, rights: ALL, base, segments: &segments };
    let region = memory.register(&registration).unwrap();
    let mut lane = memory.lane();
    let mut probe = |length| {
        let ask = access(Purpose::RemoteWrite, region, base + 1, length);
        memory.probe(&mut lane, &ask, NOW).err().map(|denial| denial.rule)
    };
    assert_eq!(probe((1 << 32) - 1), None);
    assert_eq!(probe(1 << 32), Some(Rule::Bounds));
    assert_eq!(probe(u64::MAX), Some(Rule::Wrap));
    // No guard is left behind.
    assert_eq!(memory.counts(region).unwrap().guards, 0);
}

/// ND2 5.3: no bytes need no token, no right, no bounds and no connection.
#[test]
fn s5_3_zero_length_needs_nothing() {
    let memory = memory();
    let mut lane = memory.lane();
    for token in [Token(0), Token(77), Token(u32::MAX)] {
        let nobody = Actor { connection: None, ..actor(QP) };
        for purpose in [Purpose::RemoteRead, Purpose::RemoteWrite, Purpose::LocalSource] {
            let ask = Access { actor: nobody, ..access(purpose, token, u64::MAX, 0) };
            let grant = memory.check(&mut lane, &ask, NOW).unwrap();
            assert_eq!((grant.segments().count(), grant.length()), (0, 0));
            assert_eq!((grant.region(), grant.offset()), (Token(0), 0));
            drop(grant);
            assert!(memory.probe(&mut lane, &ask, NOW).is_ok());
            assert!(memory.pass(&mut lane).check(&ask, NOW).is_ok());
        }
    }
}

/// ND2 5.3: Bind of no bytes.
#[test]
fn s5_3_bind_of_no_bytes_is_refused() {
    let memory = memory();
    let region = region(&memory, ALL);
    let spec = WindowSpec { length: 0, ..window_spec(region, READ) };
    assert_eq!(memory.reserve(&spec, NOW), Err(BindError::Empty));
}

/// ND2 5.4: a token is compared whole: no neighbour of it works.
#[test]
fn s5_4_tokens_are_compared_whole() {
    let memory = memory();
    let token = region(&memory, ALL);
    for bit in 0..32 {
        let ask = access(Purpose::LocalSource, Token(token.0 ^ 1 << bit), BASE, 8);
        assert_eq!(rule(&memory, &ask), Some(Rule::LiveToken));
    }
}

/// ND2 5.4: never 0, in any registration or Bind.
#[test]
fn s5_4_no_token_is_zero() {
    let memory = memory();
    for _ in 0..20_000 {
        assert_ne!(region(&memory, ALL), Token(0));
    }
}

/// ND2 5.4: a stale token never lives again, however many follow it (within the stated distance).
#[test]
fn s5_4_a_stale_token_never_lives_again() {
    let memory = memory();
    let region = region(&memory, ALL);
    let stale: Vec<Token> = (0..200).map(|_| window(&memory, region, READ)).collect();
    memory.close_queue_pair(QP, NOW);
    let mut lane = memory.lane();
    for _ in 0..50 {
        for _ in 0..500 {
            let token = window(&memory, region, READ);
            assert!(!stale.contains(&token));
            memory.close(token, None, NOW).unwrap();
        }
        for token in &stale {
            let denial = memory.check(&mut lane, &read(*token), NOW).unwrap_err();
            // Once the slot is used again, the record is gone, but not the knowledge.
            assert_eq!((denial.rule, denial.likely), (Rule::LiveToken, Mistake::Stale));
        }
    }
}

/// ND2 5.4: the region's token exists without remote rights; a peer that uses it is refused.
#[test]
fn s5_4_a_region_without_remote_rights_refuses_peers() {
    let memory = memory();
    let token = region(&memory, Rights::LOCAL_READ | Rights::LOCAL_WRITE | Rights::BIND);
    for purpose in [Purpose::RemoteRead, Purpose::RemoteWrite, Purpose::RemoteAtomic] {
        assert_eq!(rule(&memory, &access(purpose, token, BASE, 8)), Some(Rule::Right));
    }
}

/// ND2 5.7, NDK INV-6 to INV-9: a peer closes windows open to it, and nothing else.
#[test]
fn s5_7_a_peer_closes_its_own_windows_only() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = window(&memory, region, READ);
    let refused = |token, actor: &Actor, likely| match memory.close_for_peer(token, actor, NOW) {
        Err(DeregisterError::NotYours(denial)) => assert_eq!(denial.likely, likely),
        other => panic!("{other:?}"),
    };
    refused(token, &actor(OTHER_QP), Mistake::AnotherQueuePair);
    refused(token, &Actor { domain: DomainId(2), ..actor(QP) }, Mistake::AnotherDomain);
    refused(token, &Actor { connection: None, ..actor(QP) }, Mistake::NotConnected);
    refused(Token(token.0 ^ 0x4000_0000), &actor(QP), Mistake::NeverIssued);
    let reserved = memory.reserve(&window_spec(region, READ), NOW).unwrap();
    refused(reserved, &actor(QP), Mistake::NotYetBound);
    assert_eq!(rule(&memory, &read(token)), None);
    memory.close_for_peer(token, &actor(QP), NOW).unwrap();
    let denial = judge(&memory, &read(token)).unwrap_err();
    let state = NamedState::Dead { reason: CloseReason::InvalidatedByPeer, ago: 0 };
    assert_eq!(denial.named.unwrap().state, state);
    // Twice, or after the owner: not an error for the same actor.
    memory.close_for_peer(token, &actor(QP), NOW).unwrap();
    refused(token, &actor(OTHER_QP), Mistake::AnotherQueuePair);
    let token = window(&memory, region, READ);
    memory.close(token, None, NOW).unwrap();
    memory.close_for_peer(token, &actor(QP), NOW).unwrap();
    // But not what ended for another reason.
    memory.abandon(reserved, NOW);
    refused(reserved, &actor(QP), Mistake::Stale);
}

/// A purpose that is no access is never granted.
#[test]
fn w8_nothing_is_accessed_in_order_to_close() {
    let memory = memory();
    let region = region(&memory, ALL);
    assert_eq!(rule(&memory, &access(Purpose::Close, region, BASE, 8)), Some(Rule::Right));
}

/// For fronts whose objects outlive their tokens: open from the reservation until it is closed.
#[test]
fn a_token_is_open_from_its_reservation_to_its_close() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = memory.reserve(&window_spec(region, READ), NOW).unwrap();
    assert!(memory.is_open(token) && memory.is_open(region));
    assert!(memory.activate(token) && memory.is_open(token));
    memory.close(token, Some(QP), NOW).unwrap();
    assert!(!memory.is_open(token) && memory.is_open(region));
    memory.deregister(region, BUSY, NOW).unwrap();
    assert!(!memory.is_open(region) && !memory.is_open(Token(0)));
    let standing = memory.reserve_region(Scope::Domain(DOMAIN)).unwrap();
    assert!(memory.is_open(standing));
}

/// Verbs V95: through a window and through a region of several pieces, an atomic has a word only where
/// one instruction can change it.
#[test]
fn v95_an_atomic_names_an_aligned_word() {
    let memory = memory();
    let token = window(&memory, region(&memory, ALL), Rights::REMOTE_ATOMIC);
    let word_of = |token, address, length| {
        let access = access(Purpose::RemoteAtomic, token, address, length);
        memory.check(&mut memory.lane(), &access, NOW).unwrap().word()
    };
    assert_eq!(word_of(token, AT, 8), Some(HOST + (AT - BASE)));
    for off in 1..8 {
        assert_eq!(word_of(token, AT + off, 8), None, "{off}");
        let denial = memory.misaligned(&access(Purpose::RemoteAtomic, token, AT + off, 8), NOW);
        assert_eq!(denial.rule, Rule::Aligned);
        assert_eq!(denial.likely, Mistake::Misaligned { bytes: off });
        assert_eq!(denial.named.map(|named| named.token), Some(token));
        let bytes = if off == 1 { "byte" } else { "bytes" };
        assert!(denial.to_string().contains(&format!("{off} {bytes} behind a multiple of 8")));
        assert!(!denial.is_guess());
    }
    assert_eq!(word_of(token, AT, 7), None);
    assert_eq!(word_of(token, AT, 16), None);
    // Named at an address that its memory does not agree with, and the other way round.
    let of = |base, host| {
        let segments = [Segment { host, length: 16 }];
        let scope = Scope::Domain(DOMAIN);
        let registration = Registration { scope, rights: ALL, base, segments: &segments };
        memory.register(&registration).unwrap()
    };
    assert_eq!(word_of(of(BASE + 4, HOST), BASE + 4, 8), None);
    assert_eq!(word_of(of(BASE, HOST + 4), BASE, 8), None);
    assert_eq!(word_of(of(BASE, HOST), BASE, 8), Some(HOST));
    // Pieces of 12 and 20 bytes: the second word lies in both; the third is in the second piece, at
    // a place that is no multiple of 8.
    let segments = [Segment { host: HOST, length: 12 }, Segment { host: 2 * HOST, length: 20 }];
    let scope = Scope::Domain(DOMAIN);
    let registration = Registration { scope, rights: ALL, base: BASE, segments: &segments };
    let pieces = memory.register(&registration).unwrap();
    assert_eq!(word_of(pieces, BASE, 8), Some(HOST));
    assert_eq!(word_of(pieces, BASE + 8, 8), None);
    assert_eq!(word_of(pieces, BASE + 16, 8), None);
    let denial = memory.misaligned(&access(Purpose::RemoteAtomic, pieces, BASE + 16, 8), NOW);
    assert_eq!(denial.likely, Mistake::Misaligned { bytes: 0 });
    assert!(denial.to_string().contains("its memory does not agree"));
}
