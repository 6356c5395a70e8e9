//! Every rule of ND2 5 has its tests or a reason.

use transom_rules::{hold, numbered};

fn named(rules: &[&str]) -> Vec<String> {
    rules.iter().map(|rule| (*rule).to_owned()).collect()
}

#[test]
fn every_rule_has_its_tests_or_a_reason() {
    let register = ["0x0", "0x1", "0x2", "0x3", "0x5", "0x7", "0x8", "0x9", "0x80000000"];
    let sections = [
        ("R", numbered("", 24)),
        ("W", numbered("", 21)),
        (
            "ranges",
            named(&["arithmetic", "zero length", "empty Bind", "whole request", "used part"]),
        ),
        (
            "tokens",
            named(&[
                "local token",
                "remote token",
                "address",
                "relation",
                "new value per Bind",
                "region token without remote rights",
                "v1 descriptor",
            ]),
        ),
        ("register", named(&register)),
        ("bind", named(&["without 0x1", "with 0x1"])),
        ("access", named(&["none", "READ", "WRITE", "READ + WRITE", "programs"])),
        (
            "interplay",
            named(&[
                "Bind, Deregister",
                "Bind, Invalidate, Deregister",
                "Bind posted, Deregister",
                "Invalidate posted, Deregister",
                "Bind, Disconnect, Deregister",
                "Bind, Release region, Release window",
                "Bind flushed",
                "Deregister during an access",
            ]),
        ),
    ];
    hold(env!("CARGO_MANIFEST_DIR"), &sections);
}
