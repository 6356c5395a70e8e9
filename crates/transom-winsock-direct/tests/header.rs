//! `ws2san.h` has the layout of the original, in C and in C++: `layout.c` says so to the compiler.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]

use std::process::Command;

#[test]
fn w02_the_header_has_the_layout_of_the_original() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for (variable, compiler, language) in
        [("CC", "cc", ["-xc", "-std=c11"]), ("CXX", "c++", ["-xc++", "-std=c++17"])]
    {
        let compiler = std::env::var(variable).unwrap_or_else(|_| compiler.into());
        let held = Command::new(compiler)
            .args(language)
            .args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
            .arg(here.join("include"))
            .arg(here.join("tests/layout.c"))
            .status()
            .unwrap();
        assert!(held.success());
    }
}
