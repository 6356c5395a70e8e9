//! Every rule of ND2 4, and what ND2 8 settles, has its tests or a reason.

use transom_core::QueuePairState;
use transom_core::tables::{ConnectorCall, ListenerCall, OUTCOMES_ND2};
use transom_rules::{hold, numbered};

#[test]
fn every_rule_has_its_tests_or_a_reason() {
    let mut settled = numbered("C", 49).split_off(16);
    settled.retain(|name| !["C36", "C37", "C39", "C40"].contains(&name.as_str())); // memory: ND2 5.8
    let sections = [
        ("posting", QueuePairState::ALL.map(|state| format!("{state:?}")).to_vec()),
        ("ordering", numbered("", 8)),
        ("notify", numbered("N", 11)),
        ("outcomes", OUTCOMES_ND2.map(|outcome| format!("{:?}", outcome.situation)).to_vec()),
        ("connector", ConnectorCall::ALL.map(|call| format!("{call:?}")).to_vec()),
        ("listener", ListenerCall::ALL.map(|call| format!("{call:?}")).to_vec()),
        ("cancel", numbered("", 4)),
        ("limits", numbered("", 9)),
        ("end", numbered("", 5)),
        ("settled", settled),
    ];
    hold(env!("CARGO_MANIFEST_DIR"), &sections);
}
