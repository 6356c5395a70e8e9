//! Every rule of version 1 has its tests or a reason, and the front judges nothing.

use transom_rules::{hold, judges_nothing, numbered};

#[test]
fn every_rule_has_its_tests_or_a_reason() {
    let families = [
        ("T", 33),
        ("OV", 10),
        ("REG", 8),
        ("DER", 4),
        ("EP", 11),
        ("RX", 5),
        ("INV", 7),
        ("RW", 9),
        ("CQ", 6),
        ("NT", 7),
        ("C", 9),
        ("D", 9),
    ];
    let mut sections: Vec<_> =
        families.map(|(family, last)| (family, numbered("", last))).into_iter().collect();
    let windows = (1..=6).chain(10..=20).map(|rule| rule.to_string());
    sections.push(("MW", windows.collect()));
    hold(env!("CARGO_MANIFEST_DIR"), &sections);
}

#[test]
fn the_sources_judge_no_bound_right_or_token() {
    judges_nothing(env!("CARGO_MANIFEST_DIR"));
}
