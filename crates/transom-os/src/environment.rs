//! The environment variables of this process, if its caller may steer it by them.
//!
//! The caller of a set-uid program, of a set-gid program and of a program with file capabilities has fewer
//! rights than the program, and chooses its environment. [`is_believed`] is the one place that decides;
//! a test of the workspace fails where another file of a crate that ships reads a variable by itself.

use std::ffi::OsString;
use std::path::PathBuf;

/// Whether the environment may be believed: not in a process that has gained rights when it was executed.
///
/// The kernel's own word of that moment (`AT_SECURE`, `getauxval(3)`) decides, as for the C library's
/// `secure_getenv(3)`. User numbers say less: they know nothing of capabilities, and a privileged program
/// may make them equal. The word does not change while the program runs, and threads, forks and changes of
/// the user leave it alone. Safe in signal handlers; allocates nothing.
#[cfg(not(windows))]
#[must_use]
pub fn is_believed() -> bool {
    // SAFETY: reads a word that the kernel has left for the process.
    unsafe { libc::getauxval(libc::AT_SECURE) == 0 }
}

/// Whether the environment may be believed: no program file gives rights here.
#[cfg(windows)]
#[must_use]
pub fn is_believed() -> bool {
    true
}

/// The value of a variable: `None` if it is not set or empty, and in a process whose environment is not
/// believed. Shells make no difference between a variable that is empty and one that is not set.
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    let value = if is_believed() { std::env::var_os(name) } else { None };
    value.filter(|value| !value.is_empty())
}

/// The names that [`is_device_name`] takes, in words.
pub const DEVICE_NAMES: &str =
    "1 to 63 ASCII letters, digits, '_', '-' and '.', of which the first is a letter or a digit";

/// Whether a text can name a verbs device: the name becomes a step of paths below `/sys`, and has to fit
/// `IBV_SYSFS_NAME_MAX` of `<infiniband/verbs.h>` with its zero.
#[must_use]
pub fn is_device_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    name.len() <= 63
        && name.bytes().all(plain)
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

/// The directory for temporary files: `TMPDIR`, or `/tmp`.
#[cfg(not(windows))]
#[must_use]
pub fn temporary() -> PathBuf {
    variable("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from)
}

/// The directory for temporary files, as the system has it.
#[cfg(windows)]
#[must_use]
pub fn temporary() -> PathBuf {
    std::env::temp_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_name_is_one_step_of_a_path() {
        for name in ["transom0", "mlx5_0", "a", "rocep1s0f0", "7", "a-b.c", &"x".repeat(63)] {
            assert!(is_device_name(name), "{name}");
        }
        for name in ["", ".", "..", ".a", "-a", "a/b", "a b", "a\n", "é", &"x".repeat(64)] {
            assert!(!is_device_name(name), "{name}");
        }
    }
}
