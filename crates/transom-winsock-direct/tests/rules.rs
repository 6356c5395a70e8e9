//! Every rule has its tests or a reason, and the front judges nothing.

use transom_rules::{hold, judges_nothing, numbered};

#[test]
fn every_rule_has_its_tests_or_a_reason() {
    let families = [
        ("A", 30),
        ("W", 27),
        ("S", 7),
        ("C", 9),
        ("L", 9),
        ("N", 4),
        ("M", 8),
        ("O", 11),
        ("X", 11),
        ("D", 10),
    ];
    let sections = families.map(|(family, last)| (family, numbered("", last)));
    hold(env!("CARGO_MANIFEST_DIR"), &sections);
}

#[test]
fn the_sources_judge_no_bound_right_or_token() {
    judges_nothing(env!("CARGO_MANIFEST_DIR"));
}
