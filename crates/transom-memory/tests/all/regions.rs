//! Regions: ND2 5.1, and what the other generations ask of them.

use crate::common::*;
use transom_memory::*;

const BUSY: Unless = Unless { windows: true, posted: false };
const ANYWAY: Unless = Unless { windows: false, posted: false };

fn registration(segments: &[Segment]) -> Registration<'_> {
    let scope = Scope::Domain(DOMAIN);
    Registration { scope, rights: ALL, base: BASE, segments }
}

/// ND2 R1, R3: a token means nothing before Register and after Deregister, and each registration
/// makes its own.
#[test]
fn r1_r3_each_registration_has_a_token_of_its_own() {
    let memory = memory();
    let first = region(&memory, ALL);
    memory.deregister(first, BUSY, NOW).unwrap();
    let second = region(&memory, ALL);
    assert_ne!(first, second);
    assert_eq!(rule(&memory, &access(Purpose::LocalSource, first, BASE, 1)), Some(Rule::LiveToken));
    assert_eq!(rule(&memory, &access(Purpose::LocalSource, second, BASE, 1)), None);
    let never = Token(first.0 ^ 0xfff0_0000);
    assert_eq!(rule(&memory, &access(Purpose::LocalSource, never, BASE, 1)), Some(Rule::LiveToken));
}

/// ND2 R2: the same buffer many times, with different rights, each judged and ended alone (WSD
///
#[test]
fn r2_one_buffer_in_many_regions() {
    let memory = memory();
    let reads = region(&memory, Rights::LOCAL_READ);
    let writes = region(&memory, Rights::LOCAL_WRITE);
    let many: Vec<Token> = (0..10_000).map(|_| region(&memory, ALL)).collect();
    let source = |token| rule(&memory, &access(Purpose::LocalSource, token, BASE, 8));
    let sink = |token| rule(&memory, &access(Purpose::ReceiveBuffer, token, BASE, 8));
    assert_eq!((source(reads), sink(reads)), (None, Some(Rule::Right)));
    assert_eq!((source(writes), sink(writes)), (Some(Rule::Right), None));
    memory.deregister(reads, BUSY, NOW).unwrap();
    assert_eq!((source(reads), sink(writes)), (Some(Rule::LiveToken), None));
    assert!(many.iter().all(|token| source(*token).is_none()));
}

/// ND2 R6: every queue pair of the adapter may use it locally; ND2 R7: and so may every connected
/// peer of it, if remote rights were given.
#[test]
fn r6_r7_a_region_serves_every_queue_pair_of_its_domain_and_no_other() {
    let memory = memory();
    let token = region(&memory, ALL);
    for purpose in [Purpose::LocalSource, Purpose::ReceiveBuffer, Purpose::RemoteRead] {
        for queue_pair in [QP, OTHER_QP] {
            let actor = actor(queue_pair);
            let ask = Access { actor, ..access(purpose, token, BASE, SIZE) };
            assert_eq!(rule(&memory, &ask), None);
            let actor = Actor { domain: DomainId(2), ..actor };
            assert_eq!(rule(&memory, &Access { actor, ..ask }), Some(Rule::Scope));
        }
    }
}

/// ND2 R8: the limit is inclusive, and the error names it.
#[test]
fn r8_larger_than_the_limit_is_refused() {
    let config = Config { largest_region: SIZE, ..Config::default() };
    let memory = Memory::new([1; 32], config);
    let of = |length| memory.register(&registration(&[Segment { host: HOST, length }]));
    assert!(of(SIZE).is_ok());
    assert_eq!(of(SIZE + 1), Err(RegisterError::TooLarge { limit: SIZE }));
}

/// ND2 R9: empty, then size, then wrap.
#[test]
fn r9_empty_and_wrapping_registrations_are_refused() {
    let memory = memory();
    assert_eq!(memory.register(&registration(&[])), Err(RegisterError::Empty));
    let text = RegisterError::TooLarge { limit: 4096 }.to_string();
    assert!(text.contains("limit of 4096 bytes"), "{text}");
    assert!(RegisterError::Empty.to_string().contains("at least one byte"));
    let empty = [Segment { host: HOST, length: 0 }];
    assert_eq!(memory.register(&registration(&empty)), Err(RegisterError::Empty));
    let at = |base, host, length| {
        let segments = [Segment { host, length }];
        memory.register(&Registration { base, ..registration(&segments) })
    };
    assert_eq!(at(u64::MAX, HOST, 2), Err(RegisterError::Wraps));
    assert_eq!(at(BASE, u64::MAX, 2), Err(RegisterError::Wraps));
    assert!(at(u64::MAX, u64::MAX, 1).is_ok());
}

/// ND2 R10: running out is an error of its own, and passes.
#[test]
fn r10_running_out_of_tokens_is_said_and_passes() {
    let config = Config { most_tokens: 4096, ..Config::default() };
    let memory = Memory::new([1; 32], config);
    let one = [Segment { host: HOST, length: 8 }];
    let mut tokens = Vec::new();
    let error = loop {
        match memory.register(&registration(&one)) {
            Ok(token) => tokens.push(token),
            Err(error) => break error,
        }
        assert!(tokens.len() <= 4096);
    };
    assert_eq!(error, RegisterError::Exhausted);
    assert!(tokens.len() >= 2048);
    let spec = WindowSpec { length: 8, base: BASE, ..window_spec(tokens[0], Rights::REMOTE_READ) };
    assert_eq!(memory.reserve(&spec, NOW), Err(BindError::Exhausted));
    assert_eq!(memory.reserve_region(Scope::Domain(DOMAIN)), Err(RegisterError::Exhausted));
    memory.deregister(tokens[7], BUSY, NOW).unwrap();
    assert!(memory.register(&registration(&one)).is_ok());
}

/// ND2 R16, 5.6: busy from the moment Bind returns until the close is done; nothing is changed.
#[test]
fn r16_a_region_with_windows_is_busy() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = memory.reserve(&window_spec(region, Rights::NONE), NOW).unwrap();
    let busy = Err(DeregisterError::Busy(Counts { windows: 1, posted: 0, guards: 0 }));
    assert_eq!(memory.deregister(region, BUSY, NOW), busy);
    assert!(memory.activate(token), "nothing changed");
    assert_eq!(memory.deregister(region, BUSY, NOW), busy);
    assert_eq!(rule(&memory, &access(Purpose::LocalSource, region, BASE, 8)), None);
    memory.close(token, Some(QP), NOW).unwrap();
    memory.deregister(region, BUSY, NOW).unwrap();
}

/// ND2 R17: requests that were posted do not hold a region, unless the front counts them (WSD
///
#[test]
fn r17_posted_requests_hold_a_region_only_if_the_front_says_so() {
    let memory = memory();
    let busy = Unless { posted: true, ..ANYWAY };
    let token = region(&memory, ALL);
    memory.posted(token, NOW).unwrap();
    memory.posted(token, NOW).unwrap();
    assert_eq!(memory.counts(token), Some(Counts { windows: 0, posted: 2, guards: 0 }));
    memory.retired(token);
    let counts = Counts { posted: 1, ..Counts::default() };
    assert_eq!(memory.deregister(token, busy, NOW), Err(DeregisterError::Busy(counts)));
    assert_eq!(rule(&memory, &access(Purpose::LocalSource, token, BASE, 8)), None, "intact");
    memory.retired(token);
    memory.deregister(token, busy, NOW).unwrap();
    // Without the front's wish it goes, and later accesses fail.
    let token = region(&memory, ALL);
    memory.posted(token, NOW).unwrap();
    memory.deregister(token, BUSY, NOW).unwrap();
    let late = access(Purpose::ReceiveBuffer, token, BASE, 8);
    assert_eq!(rule(&memory, &late), Some(Rule::LiveToken));
    assert!(matches!(memory.posted(token, NOW), Err(DeregisterError::NotLive(_))));
    // A slot that is used again starts at nothing.
    memory.retired(token);
    for _ in 0..8192 {
        let token = region(&memory, ALL);
        assert_eq!(memory.counts(token), Some(Counts::default()));
        memory.deregister(token, busy, NOW).unwrap();
    }
}

/// The copies counted for a region are those through its own token and its windows'.
#[test]
fn copies_under_way_are_counted_for_their_region() {
    let memory = memory();
    let (token, other) = (region(&memory, ALL), region(&memory, ALL));
    let (mut lane, mut second) = (memory.lane(), memory.lane());
    let read = |token| access(Purpose::LocalSource, token, BASE, 8);
    let elsewhere = memory.check(&mut second, &read(other), NOW).unwrap();
    assert_eq!(memory.counts(token), Some(Counts::default()), "another region's copy");
    let copy = memory.check(&mut lane, &read(token), NOW).unwrap();
    assert_eq!(memory.counts(token), Some(Counts { guards: 1, ..Counts::default() }));
    drop(copy);
    assert_eq!(memory.counts(token), Some(Counts::default()));
    drop(elsewhere);
}

/// A copy under way is waited for, and no reason to be busy.
#[test]
fn r16_a_copy_under_way_is_not_busy() {
    let memory = memory();
    let token = region(&memory, ALL);
    std::thread::scope(|scope| {
        let mut lane = memory.lane();
        let copy = memory.check(&mut lane, &access(Purpose::LocalSource, token, BASE, 8), NOW);
        let closer = scope.spawn(|| memory.deregister(token, BUSY, NOW));
        until("the region is closed", || memory.counts(token).is_none());
        drop(copy);
        assert_eq!(closer.join().unwrap(), Ok(()));
    });
}

/// ND2 R18: nothing works afterwards, for any actor, by the region's token or its windows'.
#[test]
fn r18_after_deregister_nothing_reaches_the_memory() {
    let memory = memory();
    let region = region(&memory, ALL);
    let windows: Vec<Token> =
        (0..3).map(|_| window(&memory, region, Rights::REMOTE_READ)).collect();
    let reserved = memory.reserve(&window_spec(region, Rights::REMOTE_READ), NOW).unwrap();
    memory.deregister(region, ANYWAY, NOW).unwrap();
    for token in windows.into_iter().chain([region, reserved]) {
        let read = access(Purpose::RemoteRead, token, BASE + 0x1000, 8);
        let denial = judge(&memory, &read).unwrap_err();
        assert_eq!(denial.rule, Rule::LiveToken);
        let reason = denial.named.unwrap().state;
        assert_eq!(reason, NamedState::Dead { reason: CloseReason::Deregistered, ago: 0 });
        assert!(!memory.activate(token));
    }
}

/// ND2 R18: a copy under way is waited for.
#[test]
fn r18_deregister_waits_for_the_copy_under_way() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let memory = memory();
    let region = region(&memory, ALL);
    let token = window(&memory, region, Rights::REMOTE_READ);
    for token in [token, region] {
        let mut lane = memory.lane();
        let read = access(Purpose::RemoteRead, token, BASE + 0x1000, 8);
        let grant = memory.check(&mut lane, &read, NOW).unwrap();
        assert_eq!(memory.counts(region).unwrap().guards, 1);
        drop(grant);
        assert_eq!(memory.counts(region).unwrap().guards, 0);
    }
    let mut lane = memory.lane();
    let read = access(Purpose::RemoteRead, token, BASE + 0x1000, 8);
    let grant = memory.check(&mut lane, &read, NOW).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let closer = scope.spawn(|| {
            memory.deregister(region, ANYWAY, NOW).unwrap();
            assert!(over.load(Ordering::SeqCst), "the copy was still under way");
        });
        // Dead at once for all others, long before the wait is over.
        until("the region is dead", || memory.counts(region).is_none());
        assert_eq!(rule(&memory, &read), Some(Rule::LiveToken));
        over.store(true, Ordering::SeqCst);
        drop(grant);
        closer.join().unwrap();
    });
}

/// ND2 R19: harmless, and said.
#[test]
fn r19_deregister_of_what_is_not_registered() {
    let memory = memory();
    let region = region(&memory, ALL);
    let window = window(&memory, region, Rights::REMOTE_READ);
    memory.close(window, None, NOW).unwrap();
    memory.deregister(region, BUSY, NOW).unwrap();
    for token in [region, window, Token(0), Token(u32::MAX), Token(region.0 ^ 1)] {
        assert!(matches!(memory.deregister(token, ANYWAY, NOW), Err(DeregisterError::NotLive(_))));
        assert_eq!(memory.counts(token), None);
    }
}

/// A window is not deregistered (NDK DR-1 the other way round).
#[test]
fn r19_deregister_of_a_window_is_refused() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = window(&memory, region, Rights::REMOTE_READ);
    match memory.deregister(token, ANYWAY, NOW) {
        Err(DeregisterError::NotLive(denial)) => assert_eq!(denial.likely, Mistake::WrongKind),
        other => panic!("{other:?}"),
    }
    assert_eq!(memory.counts(token), None);
    assert!(matches!(memory.posted(token, NOW), Err(DeregisterError::NotLive(_))));
    assert_eq!(rule(&memory, &access(Purpose::RemoteRead, token, BASE + 0x1000, 8)), None);
}

/// ND2 R22, NDK MR-6: addresses start at the base, which need not be where the bytes lie.
#[test]
fn r22_addresses_count_from_the_registered_base() {
    let memory = memory();
    let token = region(&memory, ALL);
    let mut lane = memory.lane();
    let read = access(Purpose::LocalSource, token, BASE + 5, 11);
    let grant = memory.check(&mut lane, &read, NOW).unwrap();
    assert_eq!((grant.region(), grant.offset(), grant.length()), (token, 5, 11));
    let segment = Segment { host: HOST + 5, length: 11 };
    assert_eq!(grant.segments().collect::<Vec<_>>(), [segment]);
    drop(grant);
    assert_eq!(rule(&memory, &access(Purpose::LocalSource, token, 5, 11)), Some(Rule::Bounds));
}

/// ND2 R23: remote access as long as the connection exists; local requests do not need one, because
/// datagram queue pairs have none.
#[test]
fn r23_remote_access_needs_a_connection() {
    let memory = memory();
    let token = region(&memory, ALL);
    let alone = Actor { connection: None, ..actor(QP) };
    for purpose in [Purpose::RemoteRead, Purpose::RemoteWrite, Purpose::RemoteAtomic] {
        let ask = Access { actor: alone, ..access(purpose, token, BASE, 8) };
        assert_eq!(rule(&memory, &ask), Some(Rule::Connected));
        assert_eq!(rule(&memory, &access(purpose, token, BASE, 8)), None);
    }
    for purpose in [Purpose::LocalSource, Purpose::ReceiveBuffer, Purpose::ReadSink] {
        let ask = Access { actor: alone, ..access(purpose, token, BASE, 8) };
        assert_eq!(rule(&memory, &ask), None);
    }
}

/// WSD: a region of one connection serves no other, not even its successor's,
/// for local use either; and it ends with the connection.
#[test]
fn wsd_a7_a8_a_region_of_a_connection() {
    let memory = memory();
    let mine = connection(QP);
    let token = region_of(&memory, Scope::Connection(DOMAIN, mine), ALL);
    for purpose in [Purpose::LocalSource, Purpose::RemoteWrite] {
        let ask = access(purpose, token, BASE, 8);
        let by = |connection| {
            let actor = Actor { connection, ..ask.actor };
            rule(&memory, &Access { actor, ..ask })
        };
        assert_eq!(by(Some(mine)), None);
        assert_eq!(by(Some(ConnectionId { epoch: 2, ..mine })), Some(Rule::Scope));
        assert_eq!(by(Some(ConnectionId { number: 1, ..mine })), Some(Rule::Scope));
        assert_eq!(by(None), Some(Rule::Connected));
    }
    let other = region_of(&memory, Scope::Connection(DOMAIN, connection(OTHER_QP)), ALL);
    memory.close_connection(mine, NOW);
    let denial = judge(&memory, &access(Purpose::RemoteRead, token, BASE, 8)).unwrap_err();
    let dead = NamedState::Dead { reason: CloseReason::Disconnected, ago: 0 };
    assert_eq!(denial.named.unwrap().state, dead);
    assert_eq!(memory.counts(token), None);
    assert!(memory.counts(other).is_some());
}

/// WSD: read-only cannot be written, write-only cannot be read, from either side.
#[test]
fn wsd_a12_a13_directions() {
    let memory = memory();
    let read_only = region(&memory, Rights::LOCAL_READ | Rights::REMOTE_READ);
    let write_only = region(&memory, Rights::LOCAL_WRITE | Rights::REMOTE_WRITE);
    let reads = [Purpose::LocalSource, Purpose::RemoteRead];
    let writes = [Purpose::ReceiveBuffer, Purpose::ReadSink, Purpose::RemoteWrite];
    for (token, allowed, refused) in
        [(read_only, &reads[..], &writes[..]), (write_only, &writes[..], &reads[..])]
    {
        for purpose in allowed {
            assert_eq!(rule(&memory, &access(*purpose, token, BASE, SIZE)), None);
        }
        for purpose in refused {
            assert_eq!(rule(&memory, &access(*purpose, token, BASE, 1)), Some(Rule::Right));
        }
    }
}

/// NDK MR-2, MR-7: several segments are one range of addresses; a grant names the pieces, also
/// through a window, and the second use of a lane needs no lock any more (nor does it forget that
/// another list is another list).
#[test]
fn ndk_mr2_memory_in_several_segments() {
    let memory = memory();
    let chain =
        |host: u64| [0_u64, 1, 2, 3].map(|i| Segment { host: host + i * 0x8000, length: 0x1000 });
    let (first, second) = (chain(0x10_0000), chain(0x90_0000));
    let tokens = [&first, &second].map(|chain| memory.register(&registration(chain)).unwrap());
    let spec = WindowSpec { base: BASE + 0x800, ..window_spec(tokens[0], Rights::REMOTE_READ) };
    let window = memory.reserve(&spec, NOW).unwrap();
    assert!(memory.activate(window));
    let mut lane = memory.lane();
    for _ in 0..2 {
        for (token, chain) in tokens.iter().zip([&first, &second]) {
            let ask = access(Purpose::LocalSource, *token, BASE + 0xff0, 0x1020);
            let grant = memory.check(&mut lane, &ask, NOW).unwrap();
            let pieces = [
                Segment { host: chain[0].host + 0xff0, length: 0x10 },
                Segment { host: chain[1].host, length: 0x1000 },
                Segment { host: chain[2].host, length: 0x10 },
            ];
            assert_eq!(grant.segments().collect::<Vec<_>>(), pieces);
            assert_eq!((grant.region(), grant.offset()), (*token, 0xff0));
        }
        let ask = access(Purpose::RemoteRead, window, BASE + 0xff0, 0x20);
        let mut pass = memory.pass(&mut lane);
        let grant = pass.check(&ask, NOW).unwrap();
        let pieces = [
            Segment { host: first[0].host + 0xff0, length: 0x10 },
            Segment { host: first[1].host, length: 0x10 },
        ];
        assert_eq!(grant.segments().collect::<Vec<_>>(), pieces);
        assert_eq!((grant.region(), grant.offset()), (tokens[0], 0xff0));
    }
    let beyond = access(Purpose::LocalSource, tokens[0], BASE + 0x3fff, 2);
    assert_eq!(judge(&memory, &beyond).unwrap_err().likely, Mistake::PastTheEnd { bytes: 1 });
    memory.deregister(tokens[0], ANYWAY, NOW).unwrap();
    let ask = access(Purpose::LocalSource, tokens[0], BASE, 8);
    assert!(memory.check(&mut lane, &ask, NOW).is_err(), "though the lane knows the list");
    lane.rest();
    let ask = access(Purpose::LocalSource, tokens[1], BASE, 8);
    assert!(memory.check(&mut lane, &ask, NOW).is_ok());
}

/// NDK FR-5, FR-13, INV-5: the token is there before the memory, never changes, and is dead in
/// between; registering twice is refused (NDK FR-14), and so is closing what is closed.
#[test]
fn ndk_fr13_a_constant_token_lives_and_dies_again_and_again() {
    let memory = memory();
    let scope = Scope::Domain(DOMAIN);
    let token = memory.reserve_region(scope).unwrap();
    let read = access(Purpose::LocalSource, token, BASE, 8);
    for turn in 0..5_u64 {
        let denial = judge(&memory, &read).unwrap_err();
        assert_eq!((denial.rule, denial.likely), (Rule::LiveToken, Mistake::NotYetBound));
        assert!(matches!(memory.close(token, None, NOW), Err(DeregisterError::NotLive(_))));
        let one = [Segment { host: HOST + turn, length: 16 }];
        let two = [Segment { host: HOST, length: 8 }, Segment { host: turn, length: 8 }];
        let segments = if turn % 2 == 0 { &one[..] } else { &two[..] };
        memory.fast_register(token, &registration(segments)).unwrap();
        let again = memory.fast_register(token, &registration(segments));
        assert_eq!(again, Err(RegisterError::NotReserved));
        let mut lane = memory.lane();
        let grant = memory.check(&mut lane, &read, NOW).unwrap();
        assert_eq!(grant.segments().next().unwrap().host, segments[0].host);
        drop(grant);
        // NDK MW-5, DR-3: a window holds its memory.
        let spec = WindowSpec { base: BASE, length: 16, ..window_spec(token, Rights::REMOTE_READ) };
        let window = memory.reserve(&spec, NOW).unwrap();
        assert!(matches!(memory.close(token, None, NOW), Err(DeregisterError::Busy(_))));
        memory.close(window, None, NOW).unwrap();
        // NDK INV-6, INV-9: its owner or a peer may end it.
        if turn < 3 {
            memory.close(token, None, NOW).unwrap();
        } else {
            memory.close_for_peer(token, &actor(OTHER_QP), NOW).unwrap();
        }
    }
    let wrong = Registration { scope: Scope::Domain(DomainId(9)), ..registration(&[]) };
    let one = [Segment { host: HOST, length: 16 }];
    let wrong = Registration { segments: &one, ..wrong };
    assert_eq!(memory.fast_register(token, &wrong), Err(RegisterError::NotReserved));
    memory.deregister(token, BUSY, NOW).unwrap();
    let gone = memory.fast_register(token, &registration(&one));
    assert_eq!(gone, Err(RegisterError::NotReserved));
    assert_eq!(judge(&memory, &read).unwrap_err().likely, Mistake::Stale);
    // Nor can an ordinary region, a window or a guess be given memory.
    let ordinary = region(&memory, ALL);
    let reserved = memory.reserve(&window_spec(ordinary, Rights::NONE), NOW).unwrap();
    for token in [ordinary, reserved, Token(3)] {
        let answer = memory.fast_register(token, &registration(&one));
        assert_eq!(answer, Err(RegisterError::NotReserved));
    }
}

/// NDK INV-9: a peer cannot end a registration.
#[test]
fn ndk_inv9_an_ordinary_region_is_not_invalidated() {
    let memory = memory();
    let token = region(&memory, ALL);
    match memory.close(token, None, NOW) {
        Err(DeregisterError::NotLive(denial)) => assert_eq!(denial.likely, Mistake::WrongKind),
        other => panic!("{other:?}"),
    }
    match memory.close_for_peer(token, &actor(QP), NOW) {
        Err(DeregisterError::NotYours(denial)) => assert_eq!(denial.likely, Mistake::WrongKind),
        other => panic!("{other:?}"),
    }
    assert_eq!(rule(&memory, &access(Purpose::LocalSource, token, BASE, 8)), None);
}

/// A lane that was made for another table becomes one of this table: its guards are seen.
#[test]
fn a_lane_follows_the_table_it_is_used_with() {
    let (here, there) = (memory(), memory());
    let token = region(&here, ALL);
    let mut lane = there.lane();
    let read = access(Purpose::LocalSource, token, BASE, 8);
    let grant = here.check(&mut lane, &read, NOW).unwrap();
    assert_eq!(here.counts(token).unwrap().guards, 1);
    drop(grant);
    let mut lane = there.lane();
    let mut pass = here.pass(&mut lane);
    assert!(pass.check(&read, NOW).is_ok());
}

/// At most 128 bytes per registration, everything included.
#[test]
fn a_registration_costs_at_most_128_bytes() {
    let memory = memory();
    let empty = memory.footprint();
    for _ in 0..100_000 {
        region(&memory, ALL);
    }
    let each = (memory.footprint() - empty) / 100_000;
    assert!(each >= 64, "the footprint counts the entries");
    assert!(each <= 128, "{each} bytes");
}

/// A segment list goes with its memory, however it ends.
#[test]
fn ndk_mr9_segment_lists_are_given_back() {
    let memory = memory();
    let pieces: Vec<Segment> =
        (0..1000).map(|i| Segment { host: HOST + i * 0x2000, length: 0x1000 }).collect();
    let standing = memory.reserve_region(Scope::Domain(DOMAIN)).unwrap();
    let mine = Scope::Connection(DOMAIN, connection(QP));
    let mut after = Vec::new();
    for end in [0, 0, 1, 2, 3, 4] {
        let with = Registration { scope: mine, ..registration(&pieces) };
        if end < 2 {
            let token = memory.register(&registration(&pieces)).unwrap();
            assert!(memory.footprint() > after.first().copied().unwrap_or(0));
            memory.deregister(token, Unless::default(), NOW).unwrap();
        } else if end == 2 {
            memory.register(&with).unwrap();
            memory.close_connection(connection(QP), NOW);
        } else {
            memory.fast_register(standing, &registration(&pieces)).unwrap();
            assert!(memory.footprint() > after[0]);
            if end == 3 {
                memory.close(standing, None, NOW).unwrap();
            } else {
                memory.deregister(standing, Unless::default(), NOW).unwrap();
            }
        }
        after.push(memory.footprint());
    }
    assert!(after.iter().all(|bytes| bytes - after[0] < 1000), "{after:?}");
}

/// Verbs V44: the token stays, and each access is judged by the rights of its moment.
#[test]
fn v44_the_rights_of_a_region_change_under_its_token() {
    let memory = memory();
    let region = region(&memory, Rights::LOCAL_READ | Rights::REMOTE_READ);
    let of = |purpose| rule(&memory, &access(purpose, region, BASE, 8));
    assert_eq!((of(Purpose::RemoteRead), of(Purpose::RemoteWrite)), (None, Some(Rule::Right)));
    memory.set_rights(region, Rights::REMOTE_WRITE, NOW).unwrap();
    assert_eq!((of(Purpose::RemoteRead), of(Purpose::RemoteWrite)), (Some(Rule::Right), None));
    assert_eq!(of(Purpose::LocalSource), Some(Rule::Right));
    let beyond = access(Purpose::RemoteWrite, region, BASE + SIZE, 8);
    assert_eq!(rule(&memory, &beyond), Some(Rule::Bounds), "the memory stays what it was");
    memory.deregister(region, BUSY, NOW).unwrap();
    assert_eq!(of(Purpose::RemoteWrite), Some(Rule::LiveToken));
}

/// Verbs V44: a refused change changes nothing.
#[test]
fn v44_rights_of_what_is_busy_or_no_region_do_not_change() {
    let memory = memory();
    let region = region(&memory, ALL);
    let window = window(&memory, region, Rights::REMOTE_READ);
    let busy = memory.set_rights(region, Rights::NONE, NOW);
    assert!(matches!(busy, Err(DeregisterError::Busy(Counts { windows: 1, .. }))));
    let read = |token| rule(&memory, &access(Purpose::RemoteRead, token, BASE + 0x1000, 8));
    assert_eq!((read(region), read(window)), (None, None));
    for token in [window, Token(0), Token(region.0 ^ 1)] {
        let refused = memory.set_rights(token, Rights::NONE, NOW);
        assert!(matches!(refused, Err(DeregisterError::NotLive(_))));
    }
    assert_eq!(read(window), None);
    memory.close(window, None, NOW).unwrap();
    memory.set_rights(region, Rights::NONE, NOW).unwrap();
    memory.deregister(region, BUSY, NOW).unwrap();
    let gone = memory.set_rights(region, ALL, NOW);
    assert!(matches!(gone, Err(DeregisterError::NotLive(_))));
    let standing = memory.reserve_region(Scope::Domain(DOMAIN)).unwrap();
    let empty = memory.set_rights(standing, ALL, NOW);
    assert!(matches!(empty, Err(DeregisterError::NotLive(_))), "it has no memory yet");
}

/// Verbs V44: a copy that the old rights permitted is over when the change returns.
#[test]
fn v44_a_change_of_rights_waits_for_the_copy_under_way() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let memory = memory();
    let region = region(&memory, ALL);
    let read = access(Purpose::RemoteRead, region, BASE, 8);
    let mut lane = memory.lane();
    let copy = memory.check(&mut lane, &read, NOW).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changer = scope.spawn(|| {
            memory.set_rights(region, Rights::NONE, NOW).unwrap();
            assert!(over.load(Ordering::SeqCst), "the copy was still under way");
        });
        until("the rights have changed", || rule(&memory, &read) == Some(Rule::Right));
        over.store(true, Ordering::SeqCst);
        drop(copy);
        changer.join().unwrap();
    });
}
