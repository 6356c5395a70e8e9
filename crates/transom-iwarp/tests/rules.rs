//! Every numbered rule of iW has its tests or a reason.

use transom_rules::{hold, numbered};

#[test]
fn every_rule_has_its_tests_or_a_reason() {
    let mut traps = numbered("", 15);
    traps.push("2b".into());
    let hostile = [("S", 18), ("F", 10), ("H", 21), ("G", 13), ("Q", 8)]
        .map(|(prefix, last)| numbered(prefix, last))
        .concat();
    let sections = [
        ("start-up", numbered("", 11)),
        ("traps", traps),
        ("hostile", hostile),
        ("observed", numbered("L", 6)),
    ];
    hold(env!("CARGO_MANIFEST_DIR"), &sections);
}
