//! The list of open regions and windows.

use crate::common::*;
use transom_memory::*;

const READ: Rights = Rights::REMOTE_READ;

fn listed(memory: &Memory, now: Nanoseconds) -> Vec<Listed> {
    memory.inventory(now).flatten().collect()
}

fn find(all: &[Listed], token: Token) -> Option<Listed> {
    all.iter().copied().find(|one| one.named.token == token)
}

/// Every open region or window is listed with all that a check compares, and no closed one is.
#[test]
fn regions_and_windows_are_listed_while_they_are_open() {
    let memory = memory();
    assert!(listed(&memory, NOW).is_empty());
    let region = region(&memory, ALL);
    let spec = window_spec(region, READ);
    let window = memory.reserve(&spec, NOW).unwrap();
    let reserved = find(&listed(&memory, NOW + 5), window).unwrap();
    assert_eq!((reserved.named.state, reserved.age), (NamedState::Reserved, Some(5)));
    assert!(memory.activate(window));
    memory.posted(region, NOW).unwrap();

    let all = listed(&memory, NOW + 70);
    assert_eq!(all.len(), 2);
    let one = find(&all, window).unwrap();
    let named = Named {
        token: window,
        region,
        window: true,
        name: None,
        state: NamedState::Live,
        age: Some(70),
        base: spec.base,
        length: spec.length,
        rights: READ,
        scope: spec.scope,
    };
    assert_eq!(one, Listed { named, age: Some(70), uses: None, windows: 0, posted: 0 });
    let one = find(&all, region).unwrap();
    assert_eq!((one.named.window, one.named.rights, one.named.base), (false, ALL, BASE));
    assert_eq!((one.age, one.windows, one.posted), (None, 1, 1));

    memory.close(window, None, NOW + 80).unwrap();
    let all = listed(&memory, NOW + 90);
    assert_eq!((all.len(), find(&all, window)), (1, None));
    assert_eq!(find(&all, region).unwrap().windows, 0);
    memory.retired(region);
    memory.deregister(region, Unless::default(), NOW + 95).unwrap();
    assert!(listed(&memory, NOW + 99).is_empty());
}

/// Each token stands in the list once, however many chunks the table has.
#[test]
fn a_table_of_several_chunks_is_listed_whole() {
    let memory = memory();
    let mut tokens: Vec<Token> = (0..9000).map(|_| region(&memory, ALL)).collect();
    let batches: Vec<Vec<Listed>> = memory.inventory(NOW).collect();
    assert!(batches.len() > 2 && batches.iter().all(|batch| batch.len() <= 4096));
    let mut found: Vec<Token> = batches.iter().flatten().map(|one| one.named.token).collect();
    tokens.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, tokens);
}

fn counting() -> Memory {
    Memory::new([3; 32], Config { count_uses: true, ..Config::default() })
}

/// Every copy counts, on either way of checking; what was refused or only probed does not.
#[test]
fn copies_are_counted_with_what_they_touched() {
    let memory = counting();
    let region = region(&memory, ALL);
    memory.made(region, 0, NOW);
    let window = window(&memory, region, READ | Rights::REMOTE_WRITE);
    let (at, end) = (BASE + 0x1000, BASE + 0x3000);
    let mut lane = memory.lane();
    let ask = |purpose, address, length| access(purpose, window, address, length);
    let fresh = find(&listed(&memory, NOW + 1), window).unwrap();
    assert_eq!(fresh.uses, Some(Uses::default()));

    memory.probe(&mut lane, &ask(Purpose::RemoteRead, at, 8), NOW).unwrap();
    memory.check(&mut lane, &ask(Purpose::RemoteRead, at, 0), NOW).map(drop).unwrap();
    memory.check(&mut lane, &ask(Purpose::RemoteRead, at - 1, 8), NOW).map(drop).unwrap_err();
    assert_eq!(find(&listed(&memory, NOW), window).unwrap().uses, Some(Uses::default()));

    memory.check(&mut lane, &ask(Purpose::RemoteRead, at + 16, 8), NOW + 10).map(drop).unwrap();
    let once = find(&listed(&memory, NOW + 15), window).unwrap().uses.unwrap();
    let touched = Some((at + 16, 8));
    let last_address = Some(at + 16);
    let expected = Uses { copies: 1, bytes: 8, last: Some(5), last_address, touched, rights: READ };
    assert_eq!(once, expected);
    let mut pass = memory.pass(&mut lane);
    pass.check(&ask(Purpose::RemoteWrite, end - 4, 4), NOW + 20).map(drop).unwrap();
    pass.check(&ask(Purpose::RemoteWrite, at + 8, 4), NOW + 20).map(drop).unwrap();
    drop(pass);
    let all = listed(&memory, NOW + 50);
    let uses = find(&all, window).unwrap().uses.unwrap();
    let (touched, rights) = (Some((at + 8, end - at - 8)), READ | Rights::REMOTE_WRITE);
    let last_address = Some(at + 8);
    let expected = Uses { copies: 3, bytes: 16, last: Some(30), last_address, touched, rights };
    assert_eq!(uses, expected);
    // The region's own token was not used, and its age is known.
    let own = find(&all, region).unwrap();
    assert_eq!((own.uses, own.age), (Some(Uses::default()), Some(50)));
}

/// Memory in several segments is counted once for each copy, also while its list is fetched.
#[test]
fn copies_of_several_segments_are_counted_once() {
    let memory = counting();
    let segments = [Segment { host: 0x1000, length: 8 }, Segment { host: 0x9000, length: 8 }];
    let scope = Scope::Domain(DOMAIN);
    let registration = Registration { scope, rights: ALL, base: BASE, segments: &segments };
    let token = memory.register(&registration).unwrap();
    let mut lane = memory.lane();
    for _ in 0..3 {
        let ask = access(Purpose::LocalSource, token, BASE, 16);
        memory.check(&mut lane, &ask, NOW).map(drop).unwrap();
    }
    let uses = find(&listed(&memory, NOW), token).unwrap().uses.unwrap();
    assert_eq!((uses.copies, uses.bytes, uses.rights), (3, 48, Rights::LOCAL_READ));
}

/// The counts of a token are not those of another that had its slot before.
#[test]
fn a_slot_that_is_used_again_begins_at_zero() {
    let memory =
        Memory::new([3; 32], Config { count_uses: true, most_tokens: 1, ..Config::default() });
    let mut lane = memory.lane();
    for _ in 0..5000 {
        let token = region(&memory, ALL);
        let all = listed(&memory, NOW);
        assert_eq!((all.len(), all[0].uses), (1, Some(Uses::default())));
        let ask = access(Purpose::LocalSource, token, BASE, 16);
        memory.check(&mut lane, &ask, NOW).map(drop).unwrap();
        memory.deregister(token, Unless::default(), NOW).unwrap();
    }
}

/// Threads that use one token at the same time lose no count.
#[test]
fn threads_lose_no_count() {
    let memory = counting();
    let token = region(&memory, Rights::LOCAL_READ);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let memory = &memory;
            scope.spawn(move || {
                let mut lane = memory.lane();
                for at in 0..1000 {
                    let address = BASE + thread * 0x1000 + at;
                    let ask = access(Purpose::LocalSource, token, address, 1);
                    memory.check(&mut lane, &ask, NOW).map(drop).unwrap();
                }
            });
        }
    });
    let uses = find(&listed(&memory, NOW), token).unwrap().uses.unwrap();
    assert_eq!((uses.copies, uses.bytes), (4000, 4000));
    assert_eq!(uses.touched, Some((BASE, 3 * 0x1000 + 1000)));
}

/// A lane that has left is followed by another one, whose copies are counted as its own were.
#[test]
fn lanes_that_follow_each_other_lose_no_count() {
    let memory = counting();
    let token = region(&memory, Rights::LOCAL_READ);
    let ask = access(Purpose::LocalSource, token, BASE, 16);
    let mut stays = memory.lane();
    for round in 1..=5 {
        let mut lane = memory.lane();
        memory.check(&mut lane, &ask, NOW).map(drop).unwrap();
        memory.check(&mut stays, &ask, NOW).map(drop).unwrap();
        let uses = find(&listed(&memory, NOW), token).unwrap().uses.unwrap();
        assert_eq!((uses.copies, uses.bytes), (2 * round, 32 * round));
    }
}

/// The tokens closed last are listed as they were, with when and by what; open ones are not.
#[test]
fn what_was_closed_lately_is_listed() {
    let memory = counting();
    let region = region(&memory, ALL);
    memory.made(region, 0, NOW);
    assert_eq!(memory.lately_closed(100, NOW), []);
    let mut lane = memory.lane();
    let windows: Vec<Token> = (0..5)
        .map(|i| {
            let window = window(&memory, region, READ);
            memory.made(window, 0, NOW + i);
            window
        })
        .collect();
    let at = BASE + 0x1000;
    let ask = access(Purpose::RemoteRead, windows[1], at, 8);
    memory.check(&mut lane, &ask, NOW + 9).map(drop).unwrap();
    for (i, window) in windows.iter().enumerate() {
        memory.close(*window, None, NOW + 10 * (i as u64 + 1)).unwrap();
    }
    let closed = memory.lately_closed(100, NOW + 100);
    let tokens = |all: &[Listed]| all.iter().map(|one| one.named.token).collect::<Vec<_>>();
    assert_eq!(tokens(&closed), windows, "the latest last");
    let second = &closed[1];
    let reason = CloseReason::Invalidated;
    assert_eq!(second.named.state, NamedState::Dead { reason, ago: 80 });
    assert_eq!((second.named.base, second.named.region), (at, region));
    assert_eq!((second.age, second.uses.unwrap().copies), (Some(99), 1));
    assert_eq!(tokens(&memory.lately_closed(2, NOW + 100)), windows[3..]);
    assert_eq!(memory.lately_closed(0, NOW + 100), []);
    memory.deregister(region, Unless::default(), NOW + 200).unwrap();
    assert_eq!(tokens(&memory.lately_closed(1, NOW + 300)), [region]);
}

/// Of several chunks those that were closed last, wherever they lie.
#[test]
fn the_latest_of_several_chunks_are_listed() {
    let memory = counting();
    let tokens: Vec<Token> = (0..9000).map(|_| region(&memory, ALL)).collect();
    for (i, token) in tokens.iter().enumerate() {
        memory.deregister(*token, Unless::default(), NOW + i as u64).unwrap();
    }
    let closed = memory.lately_closed(100, NOW + 9000);
    let found: Vec<Token> = closed.iter().map(|one| one.named.token).collect();
    assert_eq!(found, tokens[8900..]);
}
