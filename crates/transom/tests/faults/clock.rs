//! Clocks. The engine knows one, which only goes forward, and what it says stays in the process.
//!
//! That no shipped crate asks for the time of day is clippy's to see (`disallowed-methods` in the
//! workspace's `clippy.toml`); jumps of the one clock there is are played in virtual time in
//! `transom-core/tests/all/failures/silence.rs`.

use std::fs;
use std::process::Command;

use super::common::{PATHS, Place, Process, is_root, share, skipped};

/// Two processes whose clocks are ten days apart, as those of two containers may be (time
/// namespaces): no moment of one means anything to the other, on either path.
#[test]
fn clocks_that_are_days_apart_make_no_difference() {
    let ahead = ["--time", "--monotonic", "864000", "--boottime", "864000"];
    let works = |mut it: Command| it.args(ahead).arg("true").status().is_ok_and(|it| it.success());
    if !is_root() || !works(Command::new("unshare")) {
        return skipped("no right to a time namespace");
    }
    for path in PATHS {
        let place = Place::new(&format!("clocks-{path}"));
        let (file, bytes) = place.filled("file", 1 << 20);
        let elsewhere = || {
            let mut command = Command::new("unshare");
            command.args(ahead).arg(share().get_program()).env("TRANSOM_PATH", path);
            command
        };
        let here = || {
            let mut command = share();
            command.env("TRANSOM_PATH", path);
            command
        };
        for (mut server, mut receiver) in [(elsewhere(), here()), (here(), elsewhere())] {
            let out = place.file("copy");
            let (_server, at) = Process::serve(&mut server, &file, "127.0.0.1:0");
            Process::fetch(&mut receiver, at, &out).succeeds();
            assert_eq!(fs::read(&out).unwrap(), bytes, "{path}");
            fs::remove_file(&out).unwrap();
        }
    }
}
