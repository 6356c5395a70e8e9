//! The text of a refusal: ten mistakes, and decoys that look like one and are not.

use crate::common::*;
use transom_memory::*;

const READ: Rights = Rights::REMOTE_READ;
/// First byte of the window that `window` binds.
const AT: u64 = BASE + 0x1000;

fn denied(memory: &Memory, access: &Access) -> Denial {
    *memory.probe(&mut memory.lane(), access, NOW).unwrap_err()
}

/// The record of an access through a window with `READ`, changed by `change`.
fn mistake(change: impl FnOnce(&mut Access)) -> Denial {
    let memory = memory();
    let region = region(&memory, ALL);
    let mut ask = access(Purpose::RemoteRead, window(&memory, region, READ), AT, 0x100);
    assert_eq!(rule(&memory, &ask), None);
    change(&mut ask);
    denied(&memory, &ask)
}

/// Every account says what the rule demands, the token, the range asked for, and advises; its last
/// words name the rule.
fn says(denial: &Denial, words: &[&str]) {
    let text = format!("{denial:#}");
    let token = format!("{:#010x}", denial.access.token.0);
    let rule = denial.rule.named();
    let refused = format!("was refused: {}. ", rule.sentence());
    let common = [&token, &*refused, "Likeliest mistake: "];
    for word in common.iter().chain(words) {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
    let ends = text.ends_with(&format!(". (`transom explain {}`)", rule.name()));
    assert!(ends && !text.contains("  "), "{text}");
}

// ---- ten mistakes ----------------------------------------------------------------------------

#[test]
fn mistake_1_token_bytes_swapped() {
    let denial = mistake(|ask| ask.token = Token(ask.token.0.swap_bytes()));
    assert_eq!((denial.rule, denial.likely), (Rule::LiveToken, Mistake::TokenBytesSwapped));
    let meant = denial.meant.unwrap();
    assert_eq!((meant.base, meant.length, meant.rights), (AT, 0x2000, READ));
    assert_eq!(denial.named, None);
    let right = format!("{:#010x} names a window", meant.token.0);
    says(&denial, &["It names nothing.", &right, "REMOTE_READ", "do not swap them."]);
}

/// Two mistakes at once: the second one would be made as soon as the first is mended.
#[test]
fn mistake_1_token_bytes_swapped_and_closed_since() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = window(&memory, region, READ);
    memory.close(token, Some(QP), NOW - 3_200_000).unwrap();
    let swapped = Token(token.0.swap_bytes());
    let denial = denied(&memory, &access(Purpose::RemoteRead, swapped, AT, 0x100));
    assert_eq!((denial.rule, denial.likely), (Rule::LiveToken, Mistake::TokenBytesSwapped));
    let dead = NamedState::Dead { reason: CloseReason::Invalidated, ago: 3_200_000 };
    assert_eq!(denial.meant.map(|meant| (meant.token, meant.state)), Some((token, dead)));
    assert!(!denial.is_guess(), "the token was the asker's own");
    let right = format!("in the wrong order, and the token is closed: {:#010x}", token.0);
    let words =
        [&right, "invalidated by its owner", "3.2 ms before", "Ask its owner for a new one"];
    says(&denial, &words);
    for word in words {
        assert!(denial.summary().to_string().contains(word), "{}", denial.summary());
    }
}

#[test]
fn mistake_1_token_bytes_swapped_before_the_bind() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = memory.reserve(&window_spec(region, READ), NOW).unwrap();
    let swapped = Token(token.0.swap_bytes());
    let denial = denied(&memory, &access(Purpose::RemoteRead, swapped, AT, 0x100));
    assert_eq!(denial.likely, Mistake::TokenBytesSwapped);
    says(&denial, &["in the wrong order: ", "its Bind has not executed yet"]);
}

#[test]
fn mistake_2_stale_since_an_invalidation() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = window(&memory, region, READ);
    memory.close(token, Some(QP), NOW - 3_200_000).unwrap();
    let denial = denied(&memory, &access(Purpose::RemoteRead, token, AT, 0x100));
    assert_eq!((denial.rule, denial.likely), (Rule::LiveToken, Mistake::Stale));
    let dead = NamedState::Dead { reason: CloseReason::Invalidated, ago: 3_200_000 };
    assert_eq!(denial.named.unwrap().state, dead);
    let range = format!("256 bytes at [{AT:#x}, {:#x})", AT + 0x100);
    let covered = format!("8192 bytes at [{AT:#x}, {:#x})", AT + 0x2000);
    let last = format!("It last named a window of region {:#010x}", region.0);
    says(
        &denial,
        &[
            &range,
            &covered,
            &last,
            "granting REMOTE_READ to queue pair 7 of domain 1",
            "invalidated by its owner 3.2 ms before",
            "used after it was closed",
        ],
    );
}

#[test]
fn mistake_3_stale_since_a_deregistration() {
    let memory = memory();
    let token = region(&memory, ALL);
    memory.deregister(token, Unless::default(), NOW - 700_000_000).unwrap();
    let denial = denied(&memory, &access(Purpose::ReceiveBuffer, token, BASE, 1));
    assert_eq!((denial.rule, denial.likely), (Rule::LiveToken, Mistake::Stale));
    says(&denial, &["receive buffer", "a region of 65536 bytes", "closed by the deregistration"]);
}

#[test]
fn mistake_4_another_queue_pair() {
    let denial = mistake(|ask| ask.actor = actor(OTHER_QP));
    assert_eq!((denial.rule, denial.likely), (Rule::Scope, Mistake::AnotherQueuePair));
    let live = "It names a window of region";
    let asked = "on queue pair 8 of domain 1";
    says(&denial, &[live, asked, "to queue pair 7 of domain 1", "bind one for this peer"]);
}

#[test]
fn mistake_5_another_domain() {
    let denial = mistake(|ask| ask.actor.domain = DomainId(2));
    assert_eq!((denial.rule, denial.likely), (Rule::Scope, Mistake::AnotherDomain));
    says(
        &denial,
        &[
            "on queue pair 7 of domain 2",
            "to queue pair 7 of domain 1",
            "another protection domain",
        ],
    );
}

#[test]
fn mistake_6_bytes_past_the_end() {
    for (over, said, length) in [(1, "1 byte past", 0x2001), (41, "41 bytes past", 0x2000 + 41)] {
        let denial = mistake(|ask| ask.length = length);
        assert_eq!(denial.rule, Rule::Bounds);
        assert_eq!(denial.likely, Mistake::PastTheEnd { bytes: over });
        let covered = format!("covers 8192 bytes at [{AT:#x}, {:#x})", AT + 0x2000);
        says(&denial, &[said, &covered]);
    }
    let denial = mistake(|ask| ask.address = AT + 0x2000);
    assert_eq!(denial.likely, Mistake::PastTheEnd { bytes: 0x100 });
    let denial = mistake(|ask| ask.address = AT - 0x10);
    assert_eq!(denial.likely, Mistake::BeforeTheBeginning { bytes: 0x10 });
    says(&denial, &["16 bytes before the beginning"]);
}

#[test]
fn mistake_7_missing_right() {
    let denial = mistake(|ask| ask.purpose = Purpose::RemoteWrite);
    assert_eq!((denial.rule, denial.likely), (Rule::Right, Mistake::MissingRight));
    let wanted = "Wanted: REMOTE_WRITE; granted: REMOTE_READ.";
    says(&denial, &[wanted, "the window was bound without REMOTE_WRITE."]);
    // A window's token in a local list.
    let denial = mistake(|ask| ask.purpose = Purpose::LocalSource);
    assert_eq!(denial.likely, Mistake::MissingRight);
    says(&denial, &["Wanted: LOCAL_READ", "local requests use the region's own token"]);
    // A region's token given to a peer, and a sink that cannot be written.
    let memory = memory();
    let token = region(&memory, Rights::LOCAL_READ);
    let denial = denied(&memory, &access(Purpose::RemoteRead, token, BASE, 1));
    says(&denial, &["Bind a window", "IBV_ACCESS_REMOTE_", "granted: LOCAL_READ."]);
    let denial = denied(&memory, &access(Purpose::ReadSink, token, BASE, 1));
    says(&denial, &["Wanted: LOCAL_WRITE | READ_SINK", "registered without"]);
}

#[test]
fn mistake_8_offset_instead_of_address() {
    for offset in [0, 0x20, 0x1f00] {
        let denial = mistake(|ask| ask.address = offset);
        assert_eq!((denial.rule, denial.likely), (Rule::Bounds, Mistake::OffsetInsteadOfAddress));
        says(
            &denial,
            &[&format!("has the address {:#x}", AT + offset), "no zero-based addressing"],
        );
    }
}

/// Memory that begins lower than it is long: what is below it may be an address or an offset, except
/// where no address of a program is.
#[test]
fn mistake_8_offset_into_memory_that_lies_low() {
    let memory = memory();
    let (scope, base, length) = (Scope::QueuePair(DOMAIN, QP), 0x1aa_0000, 0x200_0000);
    let segments = [Segment { host: 0x5000, length }];
    let token = memory.register(&Registration { scope, rights: ALL, base, segments: &segments });
    let token = token.unwrap();
    for (address, likely) in [
        (0, Mistake::OffsetInsteadOfAddress),
        (0xfff, Mistake::OffsetInsteadOfAddress),
        (0x1000, Mistake::Unknown),
    ] {
        let denial = denied(&memory, &access(Purpose::RemoteRead, token, address, 0x100));
        assert_eq!((denial.rule, denial.likely), (Rule::Bounds, likely), "{address:#x}");
    }
}

#[test]
fn mistake_9_never_issued() {
    let denial = mistake(|ask| ask.token = Token(ask.token.0 ^ 0x5550_0000));
    assert_eq!((denial.rule, denial.likely), (Rule::LiveToken, Mistake::NeverIssued));
    assert_eq!((denial.named, denial.meant), (None, None));
    says(
        &denial,
        &[
            "It names nothing.",
            &format!("no token of the value {} was ever issued", denial.access.token),
        ],
    );
    // The token of a window before its first Bind.
    let denial = mistake(|ask| ask.token = Token(0));
    assert_eq!(denial.likely, Mistake::NeverIssued);
    says(&denial, &["the token is 0", "before its first Bind"]);
    // A neighbour in the very slot, with a key that was never its own: an STag with another key.
    let denial = mistake(|ask| ask.token = Token(ask.token.0 ^ 1));
    assert_eq!(denial.likely, Mistake::NeverIssued);
}

#[test]
fn mistake_10_used_before_its_bind() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = memory.reserve(&window_spec(region, READ), NOW).unwrap();
    let denial = denied(&memory, &access(Purpose::RemoteRead, token, AT, 0x100));
    assert_eq!((denial.rule, denial.likely), (Rule::LiveToken, Mistake::NotYetBound));
    says(&denial, &["its Bind has not executed yet", "wait for the Bind's completion"]);
}

/// A region is used that waits for its memory.
#[test]
fn mistake_10_used_before_its_fast_registration() {
    let memory = memory();
    let token = memory.reserve_region(Scope::Domain(DOMAIN)).unwrap();
    let denial = denied(&memory, &access(Purpose::LocalSource, token, AT, 0x100));
    assert_eq!((denial.rule, denial.likely), (Rule::LiveToken, Mistake::NotYetBound));
    says(&denial, &["it waits for its memory", "Fast-register first"]);
}

#[test]
fn mistake_11_address_bytes_swapped() {
    let denial = mistake(|ask| ask.address = ask.address.swap_bytes());
    assert_eq!((denial.rule, denial.likely), (Rule::Bounds, Mistake::AddressBytesSwapped));
    says(&denial, &[&format!("{AT:#x} lies inside")]);
}

#[test]
fn mistake_12_a_length_that_wraps() {
    let denial = mistake(|ask| ask.length = u64::MAX - 3);
    assert_eq!((denial.rule, denial.likely), (Rule::Wrap, Mistake::WrapsAround));
    let left = (1_u128 << 64) - u128::from(AT);
    says(&denial, &[&format!("only {left} bytes left")]);
}

#[test]
fn mistake_13_not_connected() {
    let denial = mistake(|ask| ask.actor.connection = None);
    assert_eq!((denial.rule, denial.likely), (Rule::Connected, Mistake::NotConnected));
    says(&denial, &["not connected", "as long as the connection"]);
}

#[test]
fn mistake_14_an_earlier_connection() {
    let memory = memory();
    let old = ConnectionId { epoch: 0, ..connection(QP) };
    let token = region_of(&memory, Scope::Connection(DOMAIN, old), ALL);
    let denial = denied(&memory, &access(Purpose::RemoteRead, token, BASE, 1));
    assert_eq!((denial.rule, denial.likely), (Rule::Scope, Mistake::AnotherConnection));
    says(&denial, &["(epoch 0)", "(epoch 1)", "tokens of its own"]);
}

// ---- decoys ----------------------------------------------------------------------------------

/// The swapped token is live, but another queue pair's: chance, not an explanation, and not part of
/// the text.
#[test]
fn decoy_1_swapped_bytes_that_name_another_queue_pairs_token() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = window(&memory, region, READ);
    let swapped = Token(token.0.swap_bytes());
    let theirs = Access { actor: actor(OTHER_QP), ..access(Purpose::RemoteRead, swapped, AT, 1) };
    let denial = denied(&memory, &theirs);
    assert_eq!((denial.likely, denial.meant), (Mistake::NeverIssued, None));
}

/// Swapped bytes name a dead token that was another queue pair's.
#[test]
fn decoy_2_swapped_bytes_that_name_another_queue_pairs_dead_token() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = window(&memory, region, READ);
    memory.close(token, None, NOW).unwrap();
    let swapped = Token(token.0.swap_bytes());
    let theirs = Access { actor: actor(OTHER_QP), ..access(Purpose::RemoteRead, swapped, AT, 1) };
    let denial = denied(&memory, &theirs);
    assert_eq!((denial.likely, denial.meant), (Mistake::NeverIssued, None));
}

/// Below the base, and small enough to be an offset, but right next to it: it may be either.
#[test]
fn decoy_3_a_low_address_near_a_low_base_is_no_offset() {
    let memory = memory();
    let segments = [Segment { host: HOST, length: 0x4000 }];
    let scope = Scope::Domain(DOMAIN);
    let low = Registration { scope, rights: ALL, base: 0x1000, segments: &segments };
    let token = memory.register(&low).unwrap();
    let denial = denied(&memory, &access(Purpose::LocalSource, token, 0x800, 0x10));
    assert_eq!((denial.rule, denial.likely), (Rule::Bounds, Mistake::Unknown));
    // Reaching into the memory, it is simply too early.
    let denial = denied(&memory, &access(Purpose::LocalSource, token, 0xff8, 0x10));
    assert_eq!(denial.likely, Mistake::BeforeTheBeginning { bytes: 8 });
    // Exactly as far below as the memory is long: still near.
    let spec = Registration { base: 0x4000, ..low };
    let token = memory.register(&spec).unwrap();
    let denial = denied(&memory, &access(Purpose::LocalSource, token, 0, 0x10));
    assert_eq!(denial.likely, Mistake::Unknown);
    let denial = denied(&memory, &access(Purpose::LocalSource, token, 0x3ff0, 0x10));
    assert_eq!(denial.likely, Mistake::Unknown);
}

/// Far behind the end: the address of something else, not an overrun. And a small number that is
/// too long to be an offset.
#[test]
fn decoy_4_an_address_of_something_else_is_not_past_the_end() {
    let denial = mistake(|ask| ask.address = AT + 0x10_0000);
    assert_eq!((denial.rule, denial.likely), (Rule::Bounds, Mistake::Unknown));
    says(&denial, &["unknown; the address lies elsewhere", "covers 8192 bytes"]);
    let denial = mistake(|ask| ask.address = AT + 0x2001);
    assert_eq!(denial.likely, Mistake::Unknown);
    let denial = mistake(|ask| (ask.address, ask.length) = (0, 0x2001));
    assert_eq!(denial.likely, Mistake::Unknown);
}

/// The token was this one's, in another queue pair's window, before the slot changed hands: what it
/// names now is not held against who held it before.
#[test]
fn decoy_5_a_stale_token_of_a_reused_slot_names_nothing_new() {
    let memory = memory();
    let region = region(&memory, ALL);
    let stale = window(&memory, region, READ);
    memory.close(stale, None, NOW).unwrap();
    let mut binds = (0..1_000_000).map(|_| {
        let token = window(&memory, region, READ);
        memory.close(token, None, NOW).unwrap();
        token
    });
    let live = binds.find(|token| token.0 >> 8 == stale.0 >> 8).unwrap();
    assert_ne!(live, stale);
    let denial = denied(&memory, &access(Purpose::RemoteRead, stale, AT, 1));
    assert_eq!((denial.likely, denial.named), (Mistake::Stale, None));
    says(&denial, &["its slot is in use again"]);
}

/// Right missing and range wrong: the first broken rule counts, and the advice is about it.
#[test]
fn decoy_6_two_mistakes_are_named_in_order() {
    let denial = mistake(|ask| {
        ask.purpose = Purpose::RemoteWrite;
        ask.address = 0;
    });
    assert_eq!((denial.rule, denial.likely), (Rule::Right, Mistake::MissingRight));
    let denial = mistake(|ask| {
        ask.actor = actor(OTHER_QP);
        ask.actor.connection = None;
        ask.purpose = Purpose::RemoteWrite;
    });
    assert_eq!(denial.rule, Rule::Scope);
}

// ---- the rest --------------------------------------------------------------------------------

/// Design rule 4: the peer learns the class of rule and its own request, and nothing else.
#[test]
fn the_peer_learns_the_class_and_its_own_request_only() {
    let denial = mistake(|ask| ask.actor = actor(OTHER_QP));
    let short = denial.for_peer();
    let Access { purpose, token, address, length, .. } = denial.access;
    assert_eq!(short, Refused { rule: Rule::Scope, purpose, token, address, length });
    let text = short.to_string();
    assert!(text.contains("256 bytes at") && text.contains("must be this queue pair's"), "{text}");
    for secret in ["queue pair 7", "8192", "REMOTE_READ", "region", "domain 1"] {
        assert!(!text.contains(secret), "{secret:?} is in: {text}");
    }
}

/// The account for a reader who knows what was asked: rule, end of the token, advice.
#[test]
fn a_summary_leaves_out_the_request_and_the_owner() {
    let memory = memory();
    let token = region(&memory, ALL);
    memory.deregister(token, Unless::default(), NOW - 2_000).unwrap();
    let denial = denied(&memory, &access(Purpose::LocalSource, token, BASE, 1));
    let text = denial.summary().to_string();
    for words in [
        "the token must be live",
        "; it was closed by the deregistration of its region 2.0 us before; ",
        "likeliest mistake: the token was used after it was closed",
    ] {
        assert!(text.contains(words), "{words:?} is not in: {text}");
    }
    for asked in ["local source", "domain 1", "LOCAL_READ"] {
        assert!(!text.contains(asked), "{asked:?} is in: {text}");
    }
    let text = mistake(|ask| ask.length = 0x2001).summary().to_string();
    assert!(text.contains("covers; likeliest mistake: 1 byte past the end"), "{text}");
    assert!(text.ends_with(". (`transom explain range`)"), "{text}");
}

/// An unknown cause is not guessed at.
#[test]
fn unknown_is_said_to_be_unknown() {
    let denial = mistake(|ask| ask.purpose = Purpose::RemoteWrite);
    let denial = Denial { likely: Mistake::Unknown, ..denial };
    says(&denial, &["Likeliest mistake: unknown."]);
}

/// Times are shown in the unit that fits.
#[test]
fn how_long_ago_is_readable() {
    for (ago, text) in [
        (0, "0 ns before"),
        (999, "999 ns before"),
        (1_000, "1.0 us before"),
        (999_999, "999.9 us before"),
        (1_000_000, "1.0 ms before"),
        (999_999_999, "999.9 ms before"),
        (1_000_000_000, "1.0 s before"),
        (90_500_000_000, "90.5 s before"),
    ] {
        let memory = memory();
        let token = region(&memory, ALL);
        memory.deregister(token, Unless::default(), 5).unwrap();
        let ask = access(Purpose::LocalSource, token, BASE, 1);
        let denial = memory.check(&mut memory.lane(), &ask, 5 + ago).unwrap_err();
        says(&denial, &[text]);
    }
}

/// The end of the address space is shown as a number that 64 bits cannot hold.
#[test]
fn the_last_byte_of_the_address_space_is_shown_right() {
    let denial = mistake(|ask| (ask.address, ask.length) = (u64::MAX, 1));
    says(&denial, &["1 byte at [0xffffffffffffffff, 0x10000000000000000)"]);
}

/// Errors of the control calls are sentences too.
#[test]
fn errors_of_control_calls_are_sentences() {
    let memory = memory();
    let region = region(&memory, Rights::LOCAL_READ | Rights::BIND);
    let spec = window_spec(region, READ);
    let token = window(&memory, region, READ);
    let texts = [
        memory
            .reserve(&WindowSpec { rights: Rights::REMOTE_WRITE, ..spec }, NOW)
            .unwrap_err()
            .to_string(),
        memory.reserve(&WindowSpec { length: SIZE, ..spec }, NOW).unwrap_err().to_string(),
        memory.reserve(&WindowSpec { region: token, ..spec }, NOW).unwrap_err().to_string(),
        memory
            .deregister(region, Unless { windows: true, ..Unless::default() }, NOW)
            .unwrap_err()
            .to_string(),
        memory.close(token, Some(OTHER_QP), NOW).unwrap_err().to_string(),
        memory.close(region, None, NOW).unwrap_err().to_string(),
    ];
    let words = [
        "registered without LOCAL_WRITE, which this Bind needs. (`transom explain right`)",
        "a bind of 65536 bytes at offset 4096 of a region of 65536 bytes was refused",
        "a window's token where a region's belongs",
        "complete first (`transom explain unused_region`)",
        "a close of a window of 8192 bytes that was bound 2.0 ms before was refused",
        "Windows are invalidated, regions deregistered",
    ];
    for (text, words) in texts.iter().zip(words) {
        assert!(text.contains(words), "{words:?} is not in: {text}");
    }
}

#[test]
fn rights_are_named() {
    let all =
        "LOCAL_READ | LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE | REMOTE_ATOMIC | BIND | READ_SINK";
    assert_eq!(ALL.to_string(), all);
    assert_eq!(Rights::NONE.to_string(), "no rights");
    assert_eq!((Rights::BIND | Rights::LOCAL_READ).to_string(), "LOCAL_READ | BIND");
    assert_eq!(ALL | Rights::BIND, ALL);
}

// ---- guesses -----------------------------------------------------------------------------------

/// An offender is known by a token that never was its own; every other mistake is forgiven.
#[test]
fn a_guess_is_a_token_that_never_was_the_asker_s() {
    let memory = memory();
    let region = region(&memory, ALL);
    let own = window(&memory, region, READ);
    let foreign = {
        let spec =
            WindowSpec { scope: Scope::QueuePair(DOMAIN, OTHER_QP), ..window_spec(region, READ) };
        let token = memory.reserve(&spec, NOW).unwrap();
        assert!(memory.activate(token));
        token
    };
    let guess =
        |token: Token| denied(&memory, &access(Purpose::RemoteRead, token, AT, 0x100)).is_guess();
    assert!(guess(foreign), "another queue pair's");
    let unknown = (1..).map(Token).find(|token| ![own, foreign, region].contains(token));
    assert!(guess(unknown.unwrap()), "nobody's");
    assert!(!guess(Token(own.0.swap_bytes())), "its own, with its bytes in the other order");
    let outside = access(Purpose::RemoteRead, own, AT + 0x2000, 1);
    assert!(!denied(&memory, &outside).is_guess(), "wrong bounds");
    let right = access(Purpose::RemoteWrite, own, AT, 1);
    assert!(!denied(&memory, &right).is_guess(), "no right");
    for token in [own, foreign] {
        memory.close(token, None, NOW).unwrap();
    }
    assert!(!guess(own), "its own, closed while the request was under way");
    assert!(guess(foreign), "another's, closed");
}

/// The event stands first, in the program's words; then the rule, then the likeliest mistake.
#[test]
fn the_short_account_names_the_object_and_the_offset() {
    let memory = memory();
    let region = region(&memory, ALL);
    let token = window(&memory, region, READ);
    let ask = access(Purpose::RemoteRead, token, AT + 0x1f00, 0x200);
    let text = denied(&memory, &ask).to_string();
    let begin = "a read of 512 bytes by the peer at offset 7936 of a window of 8192 bytes that was bound \
                 2.0 ms before was refused: the range must lie inside what the token covers. Likeliest mistake: 256 bytes past";
    assert!(text.starts_with(begin) && text.ends_with(" (`transom explain range`)"), "{text}");
    assert!(text.len() < 300 && !text.contains('\n'), "three lines at most: {text}");

    memory.set_name(token, Name::new("log"));
    let text = denied(&memory, &ask).to_string();
    assert!(
        text.contains("at offset 7936 of window \"log\" that was bound 2.0 ms before was refused"),
        "{text}"
    );
    let far = access(Purpose::RemoteRead, token, 0x40, 8);
    let text = denied(&memory, &far).to_string();
    assert!(
        text.contains("at address 0x40, which should be in window \"log\" that was bound 2.0 ms before, was refused"),
        "{text}"
    );
    memory.close(token, Some(QP), NOW - 70_500).unwrap();
    let text = denied(&memory, &ask).to_string();
    let dead = "of window \"log\" that was invalidated by its owner 70.5 us before was refused";
    assert!(text.contains(dead), "{text}");
    let text = mistake(|ask| ask.token = Token(1)).to_string();
    assert!(text.starts_with("a read of 256 bytes by the peer through token 0x00000001, which"));
}

/// Each purpose has words of its own.
#[test]
fn the_short_account_has_words_for_each_purpose() {
    let mut begins = std::collections::BTreeSet::new();
    for purpose in [
        Purpose::RemoteRead,
        Purpose::RemoteWrite,
        Purpose::RemoteAtomic,
        Purpose::LocalSource,
        Purpose::ReceiveBuffer,
        Purpose::ReadSink,
        Purpose::Bind,
        Purpose::Close,
    ] {
        let denial = mistake(|ask| ask.address = 0x40);
        let access = Access { purpose, ..denial.access };
        let text = Denial { access, ..denial }.to_string();
        begins.insert(text.split(" at ").next().unwrap_or_default().to_owned());
    }
    assert_eq!(begins.len(), 8, "{begins:?}");
}

/// A name is that of a token: it goes with the slot, and the full record has it, too.
#[test]
fn a_name_belongs_to_one_token() {
    let memory = Memory::new([9; 32], Config { most_tokens: 1, ..Config::default() });
    let token = region(&memory, Rights::LOCAL_READ);
    memory.set_name(Token(token.0 ^ 1), Name::new("another"));
    memory.set_name(token, Name::new("log"));
    let record = |token| {
        let ask = access(Purpose::LocalSource, token, BASE, SIZE + 1);
        format!("{:#}", denied(&memory, &ask))
    };
    assert!(record(token).contains("It names region \"log\" of 65536 bytes"), "{}", record(token));
    memory.deregister(token, Unless::default(), NOW).unwrap();
    memory.set_name(token, Name::new("too late"));
    assert!(record(token).contains("It last named region \"log\""), "{}", record(token));
    for _ in 0..5000 {
        let next = region(&memory, Rights::LOCAL_READ);
        assert!(!record(next).contains('"'), "{}", record(next));
        memory.deregister(next, Unless::default(), NOW).unwrap();
    }
}
