//! Which paths lead elsewhere, and where.

use std::ffi::{CStr, c_char};

/// Bytes of the longest path, its zero among them.
pub(crate) const LONGEST: usize = libc::PATH_MAX as usize;

const SYSFS: &[u8] = b"/sys";
const CLASS: &[u8] = b"/sys/class/infiniband";
const CHARACTER_DEVICE: &[u8] = b"/dev/infiniband/uverbs";
const NOWHERE: &[u8] = b"/dev/null";

/// Write what `path` leads to into `room`, with `sysfs` in the place of `/sys`. `false`: the path stays
/// what it is. Nothing above the directory can be named this way.
pub(crate) fn rewrite(path: &[u8], sysfs: &[u8], room: &mut [u8; LONGEST]) -> bool {
    if let Some(number) = path.strip_prefix(CHARACTER_DEVICE) {
        return is_number(number) && put(room, NOWHERE, b"");
    }
    let Some(rest) = path.strip_prefix(CLASS) else { return false };
    let whole = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
    let ours = matches!(whole, b"" | b"_verbs");
    let climbs = rest.split(|byte| *byte == b'/').any(|part| part == b"..");
    let below = path.get(SYSFS.len()..).unwrap_or_default();
    ours && !climbs && put(room, sysfs, below)
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

fn put(room: &mut [u8; LONGEST], first: &[u8], second: &[u8]) -> bool {
    let (end, all) = (first.len() + second.len(), first.iter().chain(second));
    let Some((last, place)) = room.get_mut(..=end).and_then(<[u8]>::split_last_mut) else {
        return false;
    };
    place.iter_mut().zip(all).for_each(|(to, byte)| *to = *byte);
    *last = 0;
    true
}

/// The path to go on with: `path`, or what it leads to, in `room`.
///
/// # Safety
/// Null, or a C string.
pub(crate) unsafe fn instead(path: *const c_char, room: &mut [u8; LONGEST]) -> *const c_char {
    if path.is_null() {
        return path;
    }
    // SAFETY: this function's contract.
    let text = unsafe { CStr::from_ptr(path) }.to_bytes();
    let ours = text.starts_with(CLASS) || text.starts_with(CHARACTER_DEVICE);
    if !ours || !transom_environment::is_believed() {
        return path;
    }
    // SAFETY: the name is a C string; the value is only read, before this function returns.
    let sysfs = unsafe { libc::getenv(c"TRANSOM_SYSFS".as_ptr()) };
    if sysfs.is_null() {
        return path;
    }
    // SAFETY: a value of the environment is a C string.
    let sysfs = unsafe { CStr::from_ptr(sysfs) }.to_bytes();
    if rewrite(text, sysfs, room) { room.as_ptr().cast() } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads(path: &str) -> Option<String> {
        let mut room = [b'x'; LONGEST];
        rewrite(path.as_bytes(), b"/run/sys", &mut room)
            .then(|| CStr::from_bytes_until_nul(&room).unwrap().to_str().unwrap().to_owned())
    }

    #[test]
    fn v106_the_devices_paths_lead_into_the_directory() {
        for (path, to) in [
            ("/sys/class/infiniband", "/run/sys/class/infiniband"),
            ("/sys/class/infiniband/", "/run/sys/class/infiniband/"),
            (
                "/sys/class/infiniband/transom0/ports/1",
                "/run/sys/class/infiniband/transom0/ports/1",
            ),
            ("/sys/class/infiniband_verbs/uverbs0", "/run/sys/class/infiniband_verbs/uverbs0"),
            ("/dev/infiniband/uverbs0", "/dev/null"),
            ("/dev/infiniband/uverbs12", "/dev/null"),
        ] {
            assert_eq!(leads(path).as_deref(), Some(to));
        }
    }

    #[test]
    fn v106_other_paths_are_left_alone() {
        for path in [
            "",
            "/sys/class",
            "/sys/class/infiniband_mad/umad0",
            "/sys/class/infinibander",
            "/sys/class/net/lo",
            "sys/class/infiniband",
            "/dev/infiniband",
            "/dev/infiniband/uverbs",
            "/dev/infiniband/uverbs0/..",
            "/dev/infiniband/rdma_cm",
        ] {
            assert_eq!(leads(path), None, "{path}");
        }
    }

    #[test]
    fn v106_no_path_climbs_out_of_the_directory() {
        for path in [
            "/sys/class/infiniband/..",
            "/sys/class/infiniband/../../etc",
            "/sys/class/infiniband/a/../b",
        ] {
            assert_eq!(leads(path), None, "{path}");
        }
        assert!(leads("/sys/class/infiniband/..a/b..").is_some());
    }

    #[test]
    fn v106_a_path_that_becomes_too_long_stays() {
        let long = |length: usize| format!("/sys/class/infiniband/{}", "a".repeat(length));
        // "/run/sys" is four bytes longer than "/sys".
        let fits = LONGEST - 1 - 4 - long(0).len();
        assert!(leads(&long(fits)).is_some());
        assert_eq!(leads(&long(fits + 1)), None);
    }
}
