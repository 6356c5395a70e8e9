//! The ledger of grants: each kind of finding, and grants that are as they should be.

use crate::common::*;
use transom_memory::*;

const READ: Rights = Rights::REMOTE_READ;
/// First byte of the window that `window` binds, and its bytes.
const AT: u64 = BASE + 0x1000;
const SIZE_OF_WINDOW: u64 = 0x2000;

fn reviewing() -> Memory {
    Memory::new([5; 32], Config { review_grants: true, ..Config::default() })
}

/// A region without remote rights, with a window of it.
fn granted(memory: &Memory, rights: Rights) -> (Token, Token) {
    let local = Rights::LOCAL_READ | Rights::LOCAL_WRITE | Rights::BIND;
    let region = region(memory, local);
    (region, window(memory, region, rights))
}

fn touch(memory: &Memory, purpose: Purpose, token: Token, address: u64, length: u64) {
    let ask = access(purpose, token, address, length);
    memory.check(&mut memory.lane(), &ask, NOW).map(drop).unwrap();
}

fn findings(memory: &Memory) -> Vec<Finding> {
    memory.review(NOW).findings().iter().map(|one| one.finding).collect()
}

#[test]
fn a_grant_that_is_used_and_revoked_is_no_finding() {
    let memory = reviewing();
    let (region, window) = granted(&memory, READ | Rights::REMOTE_WRITE);
    touch(&memory, Purpose::RemoteRead, window, AT, SIZE_OF_WINDOW / 2);
    touch(&memory, Purpose::RemoteWrite, window, AT, 1);
    memory.close(window, Some(QP), NOW).unwrap();
    memory.deregister(region, Unless::default(), NOW).unwrap();
    assert_eq!(findings(&memory), []);
    assert_eq!(memory.review(NOW).grants, 1, "the region grants no peer anything");
}

#[test]
fn a_grant_that_no_peer_has_used() {
    let memory = reviewing();
    let (region, window) = granted(&memory, READ);
    touch(&memory, Purpose::LocalSource, region, AT, 8);
    memory.made(window, 7, NOW);
    memory.close(window, Some(QP), NOW).unwrap();
    let all = memory.review(NOW).findings();
    let [one] = all[..] else { panic!("{all:?}") };
    assert_eq!((one.finding, one.origin, one.count), (Finding::NeverUsed, 7, 1));
    assert_eq!((one.named.token, one.named.base, one.named.rights), (window, AT, READ));
}

/// A window counts as open until it is closed.
#[test]
fn a_grant_that_is_never_revoked() {
    let memory = reviewing();
    let (region, window) = granted(&memory, READ);
    touch(&memory, Purpose::RemoteRead, window, AT, SIZE_OF_WINDOW);
    assert_eq!(findings(&memory), [Finding::NeverRevoked]);
    assert_eq!(findings(&memory), [Finding::NeverRevoked], "asking changes nothing");
    memory.deregister(region, Unless::default(), NOW).unwrap();
    assert_eq!(findings(&memory), [], "with its region");
    let reserved = memory.reserve(&window_spec(self::region(&memory, ALL), READ), NOW).unwrap();
    memory.abandon(reserved, NOW);
    let kinds = findings(&memory);
    assert!(!kinds.is_empty() && memory.review(NOW).grants == 2, "{kinds:?}");
}

/// Half of the bytes is enough; one byte less is not.
#[test]
fn a_grant_that_is_broader_than_its_use() {
    for (touched, found) in [(SIZE_OF_WINDOW / 2, false), (SIZE_OF_WINDOW / 2 - 1, true)] {
        let memory = reviewing();
        let (_, window) = granted(&memory, READ);
        touch(&memory, Purpose::RemoteRead, window, AT + 16, touched);
        memory.close(window, Some(QP), NOW).unwrap();
        let broader = [Finding::Broader { touched }];
        assert_eq!(findings(&memory), if found { &broader[..] } else { &[] }, "{touched}");
    }
}

#[test]
fn a_right_that_is_never_used() {
    let memory = reviewing();
    let (_, window) = granted(&memory, READ | Rights::REMOTE_WRITE);
    touch(&memory, Purpose::RemoteRead, window, AT, SIZE_OF_WINDOW);
    memory.close(window, Some(QP), NOW).unwrap();
    assert_eq!(findings(&memory), [Finding::UnusedRights(Rights::REMOTE_WRITE)]);
}

#[test]
fn a_grant_that_is_used_after_it_was_revoked() {
    let memory = reviewing();
    let (_, window) = granted(&memory, READ);
    touch(&memory, Purpose::RemoteRead, window, AT, SIZE_OF_WINDOW);
    memory.close(window, Some(QP), NOW).unwrap();
    let late = access(Purpose::RemoteRead, window, AT, 8);
    memory.probe(&mut memory.lane(), &late, NOW).unwrap_err();
    assert_eq!(findings(&memory), [Finding::UsedAfterRevoked]);
    // A refusal for another reason is none.
    let never = access(Purpose::RemoteRead, Token(window.0 ^ 1), AT, 8);
    memory.probe(&mut memory.lane(), &never, NOW).unwrap_err();
    assert_eq!(findings(&memory).len(), 1);
}

/// The program's own accesses do not count as use by a peer.
#[test]
fn a_region_that_is_open_to_a_whole_domain() {
    let memory = reviewing();
    let region = region(&memory, Rights::LOCAL_READ | READ);
    touch(&memory, Purpose::LocalSource, region, BASE, SIZE);
    touch(&memory, Purpose::RemoteRead, region, BASE, 64);
    memory.deregister(region, Unless::default(), NOW).unwrap();
    let mut kinds = findings(&memory);
    kinds.sort_by_key(|kind| format!("{kind:?}"));
    assert_eq!(kinds, [Finding::Broader { touched: 64 }, Finding::WholeDomain]);
}

#[test]
fn a_grant_that_outlives_its_connection() {
    let memory = reviewing();
    let (_, window) = granted(&memory, READ);
    touch(&memory, Purpose::RemoteRead, window, AT, SIZE_OF_WINDOW);
    memory.close_queue_pair(QP, NOW);
    assert_eq!(findings(&memory), [Finding::OutlivedConnection]);
}

/// A token that outlives its memory is a grant for each memory that it had.
#[test]
fn a_fast_registration_is_reviewed_for_each_memory() {
    let memory = reviewing();
    let scope = Scope::Domain(DOMAIN);
    let token = memory.reserve_region(scope).unwrap();
    memory.made(token, 9, NOW);
    let segments = [Segment { host: 0x1000, length: 64 }];
    let rights = Rights::LOCAL_READ | READ;
    let registration = Registration { scope, rights, base: BASE, segments: &segments };
    for _ in 0..2 {
        memory.fast_register(token, &registration).unwrap();
        memory.close(token, None, NOW).unwrap();
    }
    memory.deregister(token, Unless::default(), NOW).unwrap();
    let review = memory.review(NOW);
    assert_eq!(review.grants, 2);
    for one in review.findings() {
        assert_eq!((one.count, one.origin), (2, 9), "{one:?}");
    }
    assert_eq!(review.findings().len(), 2, "never used, and open to a whole domain");
}

/// Findings of one origin are one line; of too many, they are counted.
#[test]
fn findings_are_grouped_by_origin_and_bounded() {
    let memory = reviewing();
    let region = region(&memory, Rights::LOCAL_READ | Rights::BIND);
    for origin in 0..1030 {
        for _ in 0..2 {
            let window = window(&memory, region, READ);
            memory.made(window, origin, NOW);
            memory.close(window, Some(QP), NOW).unwrap();
        }
    }
    let review = memory.review(NOW);
    let all = review.findings();
    assert_eq!((all.len(), review.left_out, review.grants), (1024, 12, 2060));
    assert!(all.iter().all(|one| one.count == 2));
    let mut twice = review.clone();
    twice.merge(&review);
    assert_eq!((twice.findings().len(), twice.left_out, twice.grants), (1024, 24, 4120));
    assert!(twice.findings().iter().all(|one| one.count == 4));
}

#[test]
fn a_table_that_was_not_asked_to_reviews_nothing() {
    let memory = memory();
    let _open = granted(&memory, READ);
    let review = memory.review(NOW);
    assert_eq!((review.findings().len(), review.grants), (0, 0));
}
