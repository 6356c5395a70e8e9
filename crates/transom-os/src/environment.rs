//! The environment variables of this process, if its caller may steer it by them.
//!
//! The caller of a set-uid program, of a set-gid program and of a program with file capabilities has fewer
//! rights than the program, and chooses its environment. [`is_believed`] is the one place that decides;
//! a test of the workspace fails where another file of a crate that ships reads a variable by itself.

use std::ffi::OsString;
use std::net::IpAddr;
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

/// A verbs device that a program is to see.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeviceName {
    /// A name that [`is_device_name`] takes.
    pub name: String,
    /// The addresses that the device has; none: all that no other device of the list has.
    pub addresses: Vec<IpAddr>,
}

/// The most devices of a list.
pub const MOST_DEVICES: usize = 16;

/// The devices of a list like `mlx5_0,mlx5_1:192.0.2.3+2001:db8::1`: names, separated by commas, each with its
/// addresses, if it is to have others than the rest.
///
/// # Errors
/// A sentence that says what is wrong, and what would be accepted.
pub fn devices(list: &str) -> Result<Vec<DeviceName>, String> {
    let mut all: Vec<DeviceName> = Vec::new();
    for word in list.split(',').map(str::trim) {
        let (name, addresses) = word.split_once(':').map_or((word, None), |(n, a)| (n, Some(a)));
        if !is_device_name(name) {
            return Err(format!("{name:?} is no name of a device: {DEVICE_NAMES}"));
        }
        if all.iter().any(|other| other.name == name) {
            return Err(format!("two devices are named {name}"));
        }
        let mut found = Vec::new();
        for address in addresses.into_iter().flat_map(|list| list.split('+')) {
            let parsed = address.trim().parse();
            found.push(parsed.map_err(|_| {
                format!("{address:?}, of device {name}, is no IP address like 192.0.2.3 (several: joined by +)")
            })?);
        }
        all.push(DeviceName { name: name.to_owned(), addresses: found });
    }
    if all.len() > MOST_DEVICES {
        return Err(format!("{} devices, and {MOST_DEVICES} are the most", all.len()));
    }
    Ok(all)
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
    fn a_list_of_devices_has_names_and_addresses() {
        let of = |name: &str, addresses: &[&str]| DeviceName {
            name: name.to_owned(),
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        };
        assert_eq!(devices("a"), Ok(vec![of("a", &[])]));
        assert_eq!(
            devices("mlx5_0, mlx5_1:192.0.2.3+2001:db8::1"),
            Ok(vec![of("mlx5_0", &[]), of("mlx5_1", &["192.0.2.3", "2001:db8::1"])])
        );
        let names =
            |count: usize| (0..count).map(|i| format!("d{i}")).collect::<Vec<_>>().join(",");
        assert_eq!(devices(&names(16)).map(|all| all.len()), Ok(16));
        for (list, why) in [
            ("", "no name of a device"),
            ("a,", "no name of a device"),
            ("a,b/c", "\"b/c\" is no name"),
            ("a,a:192.0.2.3", "two devices are named a"),
            ("a:", "\"\", of device a, is no IP address"),
            ("a:192.0.2.300", "\"192.0.2.300\", of device a"),
            (&names(17), "17 devices, and 16 are the most"),
        ] {
            let error = devices(list).unwrap_err();
            assert!(error.contains(why), "{list}: {error}");
        }
    }

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
