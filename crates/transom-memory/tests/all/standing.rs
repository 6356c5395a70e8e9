//! Windows that stand: bound, closed and bound again under keys of their owner's (Verbs V47).

use crate::common::*;
use transom_memory::*;

const BUSY: Unless = Unless { windows: true, posted: false };
const RW: Rights = Rights(Rights::REMOTE_READ.0 | Rights::REMOTE_WRITE.0);

/// A standing window, bound under a key.
fn bound(memory: &Memory, index: Token, key: u8, region: Token) -> Token {
    let token = Memory::with_key(index, key);
    memory.bind_standing(token, &window_spec(region, RW), false, NOW).unwrap();
    token
}

fn read(token: Token) -> Access {
    access(Purpose::RemoteRead, token, BASE + 0x1000, 16)
}

#[test]
fn v47_the_index_stays_and_the_key_is_the_owners() {
    let memory = memory();
    let region = region(&memory, ALL);
    let one = memory.reserve_standing(DOMAIN).unwrap();
    let two = memory.reserve_standing(DOMAIN).unwrap();
    assert_ne!(one.0 >> 8, two.0 >> 8);
    let unbound = judge(&memory, &read(one)).unwrap_err();
    assert_eq!((unbound.rule, unbound.likely), (Rule::LiveToken, Mistake::NotYetBound));
    let other = bound(&memory, two, 5, region);
    let mut before = one;
    for key in [5, 6, 6, 255, 0] {
        let token = bound(&memory, one, key, region);
        assert_eq!(token.0, one.0 & !0xff | u32::from(key));
        assert_eq!(rule(&memory, &read(token)), None);
        assert_eq!(rule(&memory, &read(other)), None, "two windows may have one key");
        if before != token {
            let stale = judge(&memory, &read(before)).unwrap_err();
            assert_eq!((stale.rule, stale.likely), (Rule::LiveToken, Mistake::Stale));
        }
        memory.close(token, Some(QP), NOW).unwrap();
        let closed = judge(&memory, &read(token)).unwrap_err();
        assert_eq!((closed.rule, closed.likely), (Rule::LiveToken, Mistake::Stale));
        let state = closed.named.unwrap().state;
        let reason = CloseReason::Invalidated;
        assert_eq!(state, NamedState::Dead { reason, ago: 0 });
        before = token;
    }
    memory.release_standing(one, DOMAIN, NOW);
    memory.release_standing(two, DOMAIN, NOW);
    assert_eq!(rule(&memory, &read(other)), Some(Rule::LiveToken), "closed with its window");
    memory.deregister(region, BUSY, NOW).unwrap();
}

/// A refused Bind changes nothing: what was bound stays bound, and the region is no busier.
#[test]
fn v48_what_is_bound_or_foreign_is_not_bound() {
    let memory = memory();
    let region = region(&memory, ALL);
    let index = memory.reserve_standing(DOMAIN).unwrap();
    let spec = window_spec(region, RW);
    let token = bound(&memory, index, 1, region);
    let elsewhere = WindowSpec { scope: Scope::QueuePair(DOMAIN, OTHER_QP), ..spec };
    for (key, spec) in [(1, spec), (2, spec), (2, elsewhere)] {
        let again = memory.bind_standing(Memory::with_key(index, key), &spec, false, NOW);
        assert_eq!(again, Err(BindError::Standing));
    }
    assert_eq!(rule(&memory, &read(token)), None);
    assert_eq!(memory.counts(region).unwrap().windows, 1);
    memory.close(token, Some(QP), NOW).unwrap();

    let foreign = memory.reserve_standing(DomainId(9)).unwrap();
    let ordinary = window(&memory, region, RW);
    let standing_region = memory.reserve_region(Scope::Domain(DOMAIN)).unwrap();
    for token in [foreign, ordinary, standing_region, region, Token(0)] {
        let refused = memory.bind_standing(token, &spec, false, NOW);
        assert_eq!(refused, Err(BindError::Standing), "{token:x?}");
    }
    assert!(!memory.activate(index), "no Bind of another kind opens it");
    memory.abandon(index, NOW);
    let empty = WindowSpec { length: 0, ..spec };
    let outside = WindowSpec { length: SIZE, ..spec };
    let local = WindowSpec { rights: Rights::LOCAL_READ, ..spec };
    for wrong in [empty, outside, local] {
        assert!(memory.bind_standing(index, &wrong, false, NOW).is_err(), "{wrong:?}");
    }
    assert_eq!(memory.counts(region).unwrap().windows, 1, "the ordinary one");
    bound(&memory, index, 3, region);
}

#[test]
fn v49_a_zero_based_window_counts_from_zero() {
    let memory = memory();
    let region = region(&memory, ALL);
    let index = memory.reserve_standing(DOMAIN).unwrap();
    let spec = window_spec(region, RW);
    memory.bind_standing(index, &spec, true, NOW).unwrap();
    let at = |address, length| access(Purpose::RemoteRead, index, address, length);
    let mut lane = memory.lane();
    let grant = memory.check(&mut lane, &at(8, spec.length - 8), NOW).unwrap();
    let first = grant.segments().next().unwrap();
    assert_eq!(first.host, HOST + 0x1000 + 8);
    drop(grant);
    assert_eq!(rule(&memory, &at(0, spec.length + 1)), Some(Rule::Bounds));
    assert_eq!(rule(&memory, &at(spec.base, 8)), Some(Rule::Bounds));
}

/// V50: who may close what, on which queue pair.
#[test]
fn v50_closed_by_the_queue_pair_that_it_is_open_to() {
    let memory = memory();
    let region = region(&memory, ALL);
    let narrow = memory.reserve_standing(DOMAIN).unwrap();
    let wide = memory.reserve_standing(DOMAIN).unwrap();
    let spec = window_spec(region, RW);
    memory.bind_standing(narrow, &spec, false, NOW).unwrap();
    let all = WindowSpec { scope: Scope::Domain(DOMAIN), ..spec };
    memory.bind_standing(wide, &all, false, NOW).unwrap();

    let not_yours = |token, pair| {
        let own = memory.close(token, Some(pair), NOW);
        assert!(matches!(own, Err(DeregisterError::NotYours(_))), "{own:?}");
        let peer = memory.close_for_peer(token, &actor(pair), NOW);
        assert!(matches!(peer, Err(DeregisterError::NotYours(_))), "{peer:?}");
        assert_eq!(rule(&memory, &read(token)), None);
    };
    not_yours(narrow, OTHER_QP);
    not_yours(wide, QP);
    assert!(!memory.was_closed(narrow, QP), "it is bound");
    memory.close_for_peer(narrow, &actor(QP), NOW).unwrap();
    assert_eq!(rule(&memory, &read(narrow)), Some(Rule::LiveToken));
    assert!(memory.close(narrow, Some(QP), NOW).is_err());
    assert!(memory.close_for_peer(narrow, &actor(QP), NOW).is_err());
    assert!(memory.was_closed(narrow, QP) && !memory.was_closed(narrow, OTHER_QP));
    assert!(!memory.was_closed(Memory::with_key(narrow, narrow.0 as u8 ^ 1), QP));
    for other in [wide, region, Token(0)] {
        assert!(!memory.was_closed(other, QP), "{other:x?}");
    }
    memory.release_standing(wide, DOMAIN, NOW);
    assert_eq!(rule(&memory, &read(wide)), Some(Rule::LiveToken));
}

/// A queue pair, or a region, that ends closes the window; the window is its owner's still.
#[test]
fn v47_a_window_outlives_its_queue_pair_and_its_region() {
    let memory = memory();
    let (one, two) = (region(&memory, ALL), region(&memory, ALL));
    let index = memory.reserve_standing(DOMAIN).unwrap();
    let token = bound(&memory, index, 1, one);
    let busy = memory.deregister(one, BUSY, NOW);
    assert!(matches!(busy, Err(DeregisterError::Busy(_))), "{busy:?}");
    memory.close_queue_pair(QP, NOW);
    assert_eq!(rule(&memory, &read(token)), Some(Rule::LiveToken));
    assert_eq!(memory.counts(one).unwrap().windows, 0);
    let token = bound(&memory, index, 2, one);
    memory.deregister(one, Unless::default(), NOW).unwrap();
    assert_eq!(rule(&memory, &read(token)), Some(Rule::LiveToken));
    let token = bound(&memory, index, 3, two);
    assert_eq!(rule(&memory, &read(token)), None);
    memory.close(token, Some(QP), NOW).unwrap();
    memory.deregister(two, BUSY, NOW).unwrap();
}

/// Slots come back: far more windows than a table has slots, and a second release does nothing.
#[test]
fn v51_a_window_that_is_released_gives_its_slot_back() {
    let config = Config { most_tokens: 4096, ..Config::default() };
    let memory = Memory::new([3; 32], config);
    let region = region(&memory, ALL);
    for turn in 0..6000_u32 {
        let index = memory.reserve_standing(DOMAIN).unwrap();
        if turn % 2 == 0 {
            bound(&memory, index, turn as u8, region);
        }
        memory.release_standing(index, DOMAIN, NOW);
        memory.release_standing(index, DOMAIN, NOW);
        let gone = memory.bind_standing(index, &window_spec(region, RW), false, NOW);
        assert_eq!(gone, Err(BindError::Standing));
    }
    let mut all = Vec::new();
    while let Ok(index) = memory.reserve_standing(DOMAIN) {
        all.push(index);
    }
    assert_eq!(all.len(), 2047, "half of a chunk waits between uses, and the region has one");
    memory.deregister(region, BUSY, NOW).unwrap();
}

/// A release waits for the copy under way, and a Bind cannot come in between.
#[test]
fn v51_a_close_waits_for_the_copy_under_way() {
    let memory = memory();
    let region = region(&memory, ALL);
    let index = memory.reserve_standing(DOMAIN).unwrap();
    let token = bound(&memory, index, 1, region);
    let mut lane = memory.lane();
    let grant = memory.check(&mut lane, &read(token), NOW).unwrap();
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| memory.close(token, Some(QP), NOW).unwrap());
        until("it is dead", || !memory.is_open(token));
        let early = memory.bind_standing(index, &window_spec(region, RW), false, NOW);
        assert_eq!(early, Err(BindError::Standing));
        assert!(!closing.is_finished());
        drop(grant);
    });
    bound(&memory, index, 2, region);
}

/// A window of type 1 is bound again without a close of its own; what cannot be bound leaves it alone.
#[test]
fn v48_a_check_binds_nothing_and_an_unbound_window_stands() {
    let memory = memory();
    let region = region(&memory, ALL);
    let index = memory.reserve_standing(DOMAIN).unwrap();
    let spec = WindowSpec { scope: Scope::Domain(DOMAIN), ..window_spec(region, RW) };
    assert!(memory.unbind_standing(index, DOMAIN, NOW), "it is free already");
    memory.bind_standing(index, &spec, false, NOW).unwrap();
    assert_eq!(memory.check_bind(&WindowSpec { length: 0, ..spec }, NOW), Err(BindError::Empty));
    memory.check_bind(&spec, NOW).unwrap();
    assert_eq!(rule(&memory, &read(index)), None);
    assert_eq!(memory.counts(region).unwrap().windows, 1);
    for (token, domain) in [(index, DomainId(9)), (region, DOMAIN), (Token(0), DOMAIN)] {
        assert!(!memory.unbind_standing(token, domain, NOW), "{token:x?}");
        assert!(!memory.release_standing(token, domain, NOW), "{token:x?}");
    }
    assert_eq!(rule(&memory, &read(index)), None);
    let other = Memory::with_key(index, index.0 as u8 ^ 1);
    assert!(memory.unbind_standing(other, DOMAIN, NOW), "the key does not matter");
    assert_eq!(rule(&memory, &read(index)), Some(Rule::LiveToken));
    memory.bind_standing(other, &spec, false, NOW).unwrap();
    assert_eq!(rule(&memory, &read(other)), None);
    assert!(memory.release_standing(index, DOMAIN, NOW));
    assert!(!memory.release_standing(index, DOMAIN, NOW));
    memory.deregister(region, BUSY, NOW).unwrap();
}
