//! Every rule has its tests or a reason, and the front judges nothing.

use transom_rules::{hold, judges_nothing, numbered};

#[test]
fn every_rule_has_its_tests_or_a_reason() {
    let families = [
        ("OB", 5),
        ("LT", 18),
        ("WR", 16),
        ("DF", 5),
        ("CQ", 15),
        ("CN", 12),
        ("DC", 8),
        ("SRQ", 8),
        ("MR", 20),
        ("DR", 5),
        ("LAM", 12),
        ("PT", 6),
        ("FR", 17),
        ("MW", 12),
        ("INV", 11),
    ];
    let sections = families.map(|(family, last)| (family, numbered("", last)));
    hold(env!("CARGO_MANIFEST_DIR"), &sections);
}

#[test]
fn the_sources_judge_no_bound_right_or_token() {
    judges_nothing(env!("CARGO_MANIFEST_DIR"));
}
