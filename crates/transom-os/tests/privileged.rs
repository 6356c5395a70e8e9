//! Programs with rights that their caller lacks read no variable. The test's own file is copied, given
//! rights, and executed by another user.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // tests

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{XattrFlags, setxattr};
use transom_testing::programs::copied;

/// A user that has no rights.
const NOBODY: u32 = 65_534;
/// Set for the copies, which read it by a way of their own.
const CHILD: &str = "TRANSOM_TEST_CHILD";
const ASKED: &str = "TRANSOM_TEST_ASKED";

/// A folder that every user may enter.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("transom-{name}-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    folder
}

/// `security.capability` of version 2: CAP_NET_BIND_SERVICE, permitted and effective.
fn capabilities() -> [u8; 20] {
    let words: [u32; 5] = [0x0200_0001, 1 << 10, 0, 0, 0];
    let mut bytes = [0; 20];
    for (to, word) in bytes.chunks_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The value that `variable` reads in a copy of this test that another user executes, and whether the copy has more
/// rights than its caller.
fn read_by(program: &Path) -> (bool, String) {
    let done = Command::new(program)
        .args(["--exact", "the_environment_of_a_privileged_program_is_not_believed"])
        .arg("--nocapture")
        .env_clear()
        .env(CHILD, "1")
        .env(ASKED, "by the caller")
        .env("TMPDIR", "/of/the/caller")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    let line =
        |head: &str| said.lines().find_map(|line| line.split_once(head)).unwrap().1.to_owned();
    (line("privileged: ") == "true", line("read: "))
}

fn child() {
    // A privileged program that makes its user numbers equal, as those do that start others.
    if rustix::process::geteuid().is_root() {
        // SAFETY: no pointers.
        let done = unsafe { libc::setresuid(0, 0, 0) };
        assert_eq!(done, 0);
    }
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
    let has = u64::from_str_radix(effective.trim(), 16).unwrap() != 0;
    println!("privileged: {has}");
    let temporary = transom_os::environment::temporary();
    println!("read: {:?} {temporary:?}", transom_os::environment::variable(ASKED));
}

#[test]
fn the_environment_of_a_privileged_program_is_not_believed() {
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can give a program rights");
    }
    let folder = folder("privileged");
    let copy = |name: &str, mode: u32| {
        let file = folder.join(name);
        copied(&std::env::current_exe().unwrap(), &file);
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        file
    };
    let believed = (false, r#"Some("by the caller") "/of/the/caller""#.to_owned());
    assert_eq!(read_by(&copy("plain", 0o755)), believed, "a program without rights");
    let set = read_by(&copy("set-uid", 0o4755));
    let capable = copy("capable", 0o755);
    let given = setxattr(&capable, "security.capability", &capabilities(), XattrFlags::empty());
    let capable = given.map(|()| read_by(&capable));
    fs::remove_dir_all(&folder).unwrap();
    for (kind, (has, read)) in [("set-uid", Some(set)), ("file capabilities", capable.ok())]
        .into_iter()
        .filter_map(|(kind, found)| Some((kind, found?)))
    {
        if has {
            assert_eq!(read, r#"None "/tmp""#, "{kind}");
        } else {
            eprintln!("SKIPPED: {kind}: the file system gives no rights");
        }
    }
}
