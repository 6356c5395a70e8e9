//! The install recipe, and what is found through it: by pkg-config as the README says, and by
//! CMake.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn must(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let words = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {}\n{words}", done.status);
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn is_there(tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").output().is_ok_and(|o| o.status.success());
    if !there {
        eprintln!("{tool} is not installed: what needs it was not tried");
    }
    there
}

/// The program's output when it has worked.
const SAYS: [&str; 3] = ["server: ping 3", "client: pong 3", "client: refused: "];

#[test]
fn what_is_installed_is_found_by_pkg_config_and_by_cmake() {
    let here = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let here = here.join(format!("installed-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&here);
    let prefix = here.join("prefix");
    std::fs::create_dir_all(&here).unwrap();
    must(
        Command::new(root().join("packaging/install-nd"))
            .arg(&prefix)
            .env("TRANSOM_LIBRARY", support::library_dir().join("libtransom_nd.so")),
    );
    let example = root().join("examples/nd");
    if is_there("pkg-config") {
        // The README's line, as it is written there.
        let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
        let line = "g++ -std=c++17 examples/nd/ping.cpp $(pkg-config --cflags --libs transom-nd) && ./a.out";
        assert!(readme.contains(line), "the README says something else");
        let copy = here.join("examples/nd");
        std::fs::create_dir_all(&copy).unwrap();
        std::fs::copy(example.join("ping.cpp"), copy.join("ping.cpp")).unwrap();
        let said = must(
            Command::new("sh")
                .args(["-c", line])
                .current_dir(&here)
                .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")),
        );
        assert!(SAYS.iter().all(|words| said.contains(words)), "{said}");
    }
    if is_there("cmake") {
        let build = here.join("build");
        let mut given = std::ffi::OsString::from("-DCMAKE_PREFIX_PATH=");
        given.push(&prefix);
        must(Command::new("cmake").arg("-S").arg(&example).arg("-B").arg(&build).arg(given));
        must(Command::new("cmake").arg("--build").arg(&build));
        let said = must(&mut Command::new(build.join("ping")));
        assert!(SAYS.iter().all(|words| said.contains(words)), "{said}");
    }
    std::fs::remove_dir_all(&here).unwrap();
}
