//! Which paths lead elsewhere, and where.

use std::ffi::{CStr, c_char};

/// Bytes of the longest path, its zero among them.
pub(crate) const LONGEST: usize = libc::PATH_MAX as usize;

const SYSFS: &[u8] = b"/sys";
const CLASS: &[u8] = b"/sys/class/infiniband";
/// The bus of the PCI device that the device is shown below.
const BUS: &[u8] = b"/sys/devices/pci5452:00";
/// The last part of [`BUS`].
const BUS_NAME: &[u8] = b"pci5452:00";
const CHARACTER_DEVICE: &[u8] = b"/dev/infiniband/uverbs";
const NOWHERE: &[u8] = b"/dev/null";

/// Write what `path` leads to into `room`, with `sysfs` in the place of `/sys`. `false`: the path stays
/// what it is. Nothing but what lies below the device and its classes can be named this way; a path that climbs
/// out of there goes on in the system's own tree, as it would behind the kernel's own entry.
pub(crate) fn rewrite(path: &[u8], sysfs: &[u8], room: &mut [u8; LONGEST]) -> bool {
    if let Some(number) = path.strip_prefix(CHARACTER_DEVICE) {
        return is_number(number) && put(room, NOWHERE, b"");
    }
    let below = path.strip_prefix(SYSFS).unwrap_or_default();
    is_looked_at(path)
        && match end(below) {
            End::Inside => put(room, sysfs, below),
            // Without a way up on it the path stays what it is.
            End::Outside(folder, rest) => {
                folder.len() + rest.len() != path.len() && put(room, folder, rest)
            }
        }
}

/// Whether a path may be one of the directory's.
fn is_looked_at(path: &[u8]) -> bool {
    path.starts_with(CLASS) || path.starts_with(BUS)
}

/// A place in the directory, as far as links and `..` decide where a path ends. `class/infiniband/NAME`
/// and its like are links to `devices/BUS/FOLDER/infiniband/NAME`, and `device` there is one to `FOLDER`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Top,
    Class,
    /// `class/infiniband` or `class/infiniband_verbs`.
    List,
    Devices,
    Bus,
    /// The folder of the PCI device, and how far below it.
    Folder(u16),
    /// Below the folder: `infiniband` or `infiniband_verbs`, and the device there.
    Family,
    Device,
    /// Somewhere below the device, how far.
    Below(u16),
}

impl Place {
    /// The place one step below; `None`: the system's own, below [`Place::own`].
    fn enter(self, name: &[u8]) -> Option<Place> {
        let family = matches!(name, b"infiniband" | b"infiniband_verbs");
        Some(match self {
            Place::Top if name == b"class" => Place::Class,
            Place::Top if name == b"devices" => Place::Devices,
            Place::Class if family => Place::List,
            Place::List | Place::Family => Place::Device,
            Place::Devices if name == BUS_NAME => Place::Bus,
            Place::Bus => Place::Folder(0),
            Place::Folder(0) if family => Place::Family,
            Place::Folder(depth) => Place::Folder(depth.saturating_add(1)),
            Place::Device if name == b"device" => Place::Folder(0),
            Place::Device => Place::Below(1),
            Place::Below(depth) => Place::Below(depth.saturating_add(1)),
            Place::Top | Place::Class | Place::Devices => return None,
        })
    }

    /// The place one step above; `None`: above `/sys`.
    fn leave(self) -> Option<Place> {
        Some(match self {
            Place::Top => return None,
            Place::Class | Place::Devices => Place::Top,
            Place::List => Place::Class,
            Place::Bus => Place::Devices,
            Place::Folder(0) => Place::Bus,
            Place::Folder(depth) => Place::Folder(depth - 1),
            Place::Family => Place::Folder(0),
            Place::Device => Place::Family,
            Place::Below(1) => Place::Device,
            Place::Below(depth) => Place::Below(depth - 1),
        })
    }

    /// The folder of the system's own that this place is.
    fn own(self) -> Option<&'static [u8]> {
        match self {
            Place::Top => Some(SYSFS),
            Place::Class => Some(b"/sys/class"),
            Place::Devices => Some(b"/sys/devices"),
            _ => None,
        }
    }
}

/// The end of a path below `/sys`.
enum End<'a> {
    /// The device, a class of it, or its PCI folder.
    Inside,
    /// In the system's own tree: the folder in which the path leaves the directory, and the rest from there.
    Outside(&'static [u8], &'a [u8]),
}

/// Where a path below `/sys` ends.
fn end(path: &[u8]) -> End<'_> {
    let (mut place, mut rest) = (Place::Top, path);
    while let Some((_slash, behind)) = rest.split_first() {
        let length = behind.iter().position(|byte| *byte == b'/').unwrap_or(behind.len());
        let (name, after) = behind.split_at_checked(length).unwrap_or((behind, b""));
        let next = match name {
            b"" | b"." => Some(place),
            b".." => place.leave(),
            name => place.enter(name),
        };
        let Some(next) = next else { return End::Outside(place.own().unwrap_or(SYSFS), rest) };
        (place, rest) = (next, after);
    }
    place.own().map_or(End::Inside, |folder| End::Outside(folder, b""))
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

/// Beginnings of all paths that lead elsewhere.
const BEGINNINGS: [&[u8]; 2] = [b"/sys/", b"/dev/"];
/// No page of this architecture is smaller.
const PAGE: usize = 4096;

/// A path of the program's, if it may lead elsewhere. A wrong address is the kernel's to refuse (`EFAULT`), so each
/// page is looked at before it is read.
///
/// # Safety
/// A C string, or an address from which the program cannot read one.
unsafe fn text<'a>(path: *const c_char) -> Option<&'a [u8]> {
    let (path, mut length) = (path.cast::<u8>(), 0);
    loop {
        let at = path.wrapping_add(length);
        if (length == 0 || at.addr().is_multiple_of(PAGE)) && !is_readable(at) {
            return None;
        }
        // SAFETY: a page that can be read, in front of the end of the string.
        let byte = unsafe { at.read() };
        let differs = |begin: &&[u8]| begin.get(length).is_some_and(|other| byte != *other);
        if BEGINNINGS.iter().all(differs) {
            return None;
        }
        if byte == 0 {
            // SAFETY: so many bytes have just been read.
            return Some(unsafe { std::slice::from_raw_parts(path, length) });
        }
        length += 1;
    }
}

/// Whether a byte can be read: the kernel brings its page (madvise(2), since Linux 5.14). Where it has no answer to
/// that, it takes a set of signals from there before it looks at what to do with it, which is nothing here
/// (rt_sigprocmask(2)); valgrind finds bytes of such a set that the program has not written, so that comes second.
fn is_readable(at: *const u8) -> bool {
    const NOTHING: i32 = -1;
    const SET: usize = 8;
    let down_to = |size: usize| at.map_addr(|address| address & !(size - 1));
    // Without a set there is nothing to take.
    if down_to(SET).is_null() {
        return false;
    }
    // SAFETY: the kernel reads, and changes no byte; the location is this thread's own.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let page = down_to(PAGE).cast_mut().cast();
        let readable = libc::madvise(page, PAGE, libc::MADV_POPULATE_READ) == 0 || {
            let none = std::ptr::null_mut::<u8>();
            let done = libc::syscall(libc::SYS_rt_sigprocmask, NOTHING, down_to(SET), none, SET);
            done == 0 || *errno != libc::EFAULT
        };
        *errno = before;
        readable
    }
}

/// The path to go on with: `path`, or what it leads to, in `room`.
///
/// # Safety
/// A C string, or an address from which the program cannot read one.
pub(crate) unsafe fn instead(path: *const c_char, room: &mut [u8; LONGEST]) -> *const c_char {
    // SAFETY: this function's contract.
    let Some(text) = (unsafe { text(path) }) else { return path };
    if !(is_looked_at(text) || text.starts_with(CHARACTER_DEVICE)) {
        return path;
    }
    // SAFETY: the value is only read, before this function returns.
    match unsafe { variable(c"TRANSOM_SYSFS") } {
        Some(sysfs) if rewrite(text, sysfs.to_bytes(), room) => room.as_ptr().cast(),
        _ => path,
    }
}

/// The value of a variable, in a process whose environment may be believed.
///
/// # Safety
/// The program does not change the variable while the value is used.
pub(crate) unsafe fn variable<'a>(name: &CStr) -> Option<&'a CStr> {
    if !transom_os::environment::is_believed() {
        return None;
    }
    // SAFETY: the name is a C string.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: a value of the environment is a C string; this function's contract.
    if value.is_null() { None } else { Some(unsafe { CStr::from_ptr(value) }) }
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
            // A program that resolves links by itself.
            ("/sys/devices/pci5452:00", "/run/sys/devices/pci5452:00"),
            (
                "/sys/devices/pci5452:00/5452:00:00.0/numa_node",
                "/run/sys/devices/pci5452:00/5452:00:00.0/numa_node",
            ),
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
            "/sys/devices/pci0000:00/0000:00:01.0/vendor",
            "/sys/devices/pci5452:001",
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
    fn v106_ways_up_from_the_device_stay_in_the_directory() {
        for below in [
            "infiniband/transom0/..",
            "infiniband/transom0/../..",
            "infiniband/transom0/../../numa_node",
            "infiniband/transom0/ports/1/../../../..",
            "infiniband/transom0/device/..a",
            "infiniband/transom0/device/net/../infiniband_verbs/uverbs0/device",
            "infiniband_verbs/uverbs0/./device/../5452:00:00.0",
            "infiniband/../infiniband_verbs",
            // As a program puts them together that has read a link.
            "infiniband/../../devices/pci5452:00/5452:00:00.0/infiniband/transom0",
        ] {
            let path = format!("/sys/class/{below}");
            assert_eq!(leads(&path), Some(format!("/run/sys/class/{below}")), "{path}");
        }
    }

    #[test]
    fn v106_a_path_that_climbs_out_goes_on_in_the_systems_own_tree() {
        for (path, to) in [
            ("/sys/class/infiniband/..", "/sys/class"),
            ("/sys/class/infiniband/../", "/sys/class"),
            ("/sys/class/infiniband/../../etc", "/sys/etc"),
            ("/sys/class/infiniband/../net/lo", "/sys/class/net/lo"),
            ("/sys/class/infiniband/../net/../infiniband", "/sys/class/net/../infiniband"),
            ("/sys/class/infiniband/../../../etc/passwd", "/sys/../etc/passwd"),
            ("/sys/class/infiniband/transom0/../../../..", "/sys/devices"),
            ("/sys/class/infiniband/transom0/device/../../..", "/sys"),
            ("/sys/devices/pci5452:00/..", "/sys/devices"),
            ("/sys/class/infiniband/transom0/../../../../../..", "/sys/.."),
            (
                "/sys/class/infiniband/transom0/../../../../../../sys/class/infiniband/transom0",
                "/sys/../sys/class/infiniband/transom0",
            ),
            ("/sys/class/infiniband/../../devices/../../../a", "/sys/../../a"),
            ("/sys/class/infiniband/../../devices/pci0000:00", "/sys/devices/pci0000:00"),
        ] {
            assert_eq!(leads(path).as_deref(), Some(to), "{path}");
        }
        let inside = "/run/sys/class/infiniband/..a/b..";
        assert_eq!(leads("/sys/class/infiniband/..a/b..").as_deref(), Some(inside));
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
