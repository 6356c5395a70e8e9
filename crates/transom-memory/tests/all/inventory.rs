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
        state: NamedState::Live,
        base: spec.base,
        length: spec.length,
        rights: READ,
        scope: spec.scope,
    };
    assert_eq!(one, Listed { named, age: Some(70), windows: 0, posted: 0 });
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
