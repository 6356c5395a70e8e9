//! Where the libraries are, as the tests of this crate find them.
#![allow(dead_code, reason = "not every test needs all")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of what cargo has built for these tests.
pub(crate) fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

/// A directory with `libibverbs.so.1` and `librdmacm.so.1`, made of what cargo has built.
pub(crate) fn libraries() -> PathBuf {
    let here = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{}", std::process::id()));
    std::fs::create_dir_all(&here).unwrap();
    for (name, file) in [
        ("libibverbs.so.1", "libtransom_verbs.so"),
        ("libibverbs.so", "libtransom_verbs.so"),
        ("librdmacm.so.1", "libtransom_rdmacm.so"),
    ] {
        // Tests of one process make the links at the same time.
        match std::os::unix::fs::symlink(built().join(file), here.join(name)) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => panic!("{name}: {e}"),
            _ => {}
        }
    }
    here
}

/// Compile a C program of `tests/c`, or of a text, with the distribution's headers. `None`, said as
/// SKIPPED, if these are not installed.
pub(crate) fn compile(source: &Path, name: &str) -> Option<PathBuf> {
    compile_with(source, name, &[])
}

/// Compile a program with more words for the compiler.
pub(crate) fn compile_with(source: &Path, name: &str, words: &[&str]) -> Option<PathBuf> {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        eprintln!("SKIPPED: <infiniband/verbs.h> is not installed");
        return None;
    }
    let program =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let library = libraries();
    let done = Command::new("cc")
        .args(words)
        .args(["-std=gnu11", "-Wall", "-Werror", "-g", "-I"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/include"))
        .arg("-o")
        .arg(&program)
        .arg(source)
        .arg(library.join("libibverbs.so.1"))
        .args(["-Wl,--allow-shlib-undefined", "-lpthread"])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(program)
}
