//! Each call of the library, from a program in C that has it preloaded (Verbs V106).
#![allow(clippy::unwrap_used, clippy::print_stderr)] // tests

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

// The library is built with this test because the test names it.
use transom_paths as _;

fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join("libtransom_paths.so")
}

#[test]
fn v106_each_call_finds_the_device_and_leaves_other_files_alone() {
    let here = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("calls-{}", std::process::id()));
    let _ = fs::remove_dir_all(&here);
    let device = here.join("devices/pci5452:00/5452:00:00.0/infiniband/transom0");
    fs::create_dir_all(&device).unwrap();
    fs::create_dir_all(here.join("class/infiniband")).unwrap();
    let link = std::os::unix::fs::symlink::<&str, PathBuf>;
    let to = "../../devices/pci5452:00/5452:00:00.0/infiniband/transom0";
    link(to, here.join("class/infiniband/transom0")).unwrap();
    link("../../../5452:00:00.0", device.join("device")).unwrap();
    fs::write(device.join("node_type"), "1: CA\n").unwrap();
    link("node_type", device.join("link")).unwrap();
    let here = here.canonicalize().unwrap();
    let program = here.join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calls.c");
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Werror", "-Wno-nonnull", "-g", "-o"])
        .args([&program, &source])
        .output();
    let compiled = match compiled {
        Ok(compiled) => compiled,
        Err(error) => return eprintln!("SKIPPED: cc: {error}"),
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let done = Command::new(&program)
        .arg(&here)
        .env("LD_PRELOAD", library())
        .env("TRANSOM_SYSFS", &here)
        .output()
        .unwrap();
    let said = [done.stdout, done.stderr].concat();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&said));
    fs::remove_dir_all(here).unwrap();
}
