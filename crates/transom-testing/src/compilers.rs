//! Headers, as compilers of C and C++ see them.

use std::path::Path;
use std::process::Command;

/// Have `tests/layout.c` of the crate at `manifest` compiled, as C and as C++, with the crate's headers and
/// without a warning. `CC` and `CXX` name other compilers than `cc` and `c++`.
///
/// # Panics
/// If a compiler cannot be started, or refuses.
#[allow(clippy::panic, reason = "for tests")]
pub fn accept_layout(manifest: &str) {
    let here = Path::new(manifest);
    for (variable, compiler, language) in
        [("CC", "cc", ["-xc", "-std=c11"]), ("CXX", "c++", ["-xc++", "-std=c++17"])]
    {
        let compiler = std::env::var(variable).unwrap_or_else(|_| compiler.into());
        let accepted = Command::new(&compiler)
            .args(language)
            .args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
            .arg(here.join("include"))
            .arg(here.join("tests/layout.c"))
            .status();
        match accepted {
            Ok(status) => assert!(status.success(), "{compiler}: {status}"),
            Err(error) => panic!("{compiler}: {error}"),
        }
    }
}
