//! `ws2san.h` has the layout of the original, in C and in C++: `layout.c` says so to the compiler.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]

use std::process::Command;

#[test]
fn w02_the_header_has_the_layout_of_the_original() {
    transom_testing::compilers::accept_layout(env!("CARGO_MANIFEST_DIR"));
}

/// The library that Cargo has built beside this test.
fn library() -> std::path::PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    [deps, deps.parent().unwrap()]
        .iter()
        .map(|folder| folder.join("libtransom_winsock_direct.a"))
        .find(|path| path.exists())
        .expect("libtransom_winsock_direct.a beside the test")
}

/// WSD 2.4, L-3, O-1: a switch in C chooses what is offered, and asks why it was refused.
#[test]
fn w01_a_switch_in_c_chooses_offers_and_reads_refusals() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("switch-{}", std::process::id()));
    let compiled = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()))
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"])
        .arg(here.join("include"))
        .arg(here.join("tests/switch.c"))
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-o"])
        .arg(&program)
        .status()
        .unwrap();
    assert!(compiled.success());
    let held = transom_testing::ports::Held::new().unwrap();
    let ran = Command::new(&program).arg(held.address().port().to_string()).output().unwrap();
    let (text, errors) =
        (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{text}{errors}");
    let asker = text.lines().find_map(|line| line.strip_prefix("asker: ")).unwrap();
    let owner = text.lines().find_map(|line| line.strip_prefix("owner: ")).unwrap();
    // The owner's record names the rule; what the peer may know is the same on one user's host.
    for said in [asker, owner] {
        assert!(said.contains("transom explain right"), "{said}");
    }
    std::fs::remove_file(&program).unwrap();
}
