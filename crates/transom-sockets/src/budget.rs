//! A bound for the memory of bytes that nobody has read, beside the 272 KiB that each connection may have.
//!
//! TCP bounds its buffers for all connections together (`tcp_mem` of tcp(7)), and what it takes of a control group's
//! memory ends no process of it. Pages of the large rings could, so that a process with many peers that do not read gets
//! no more of them than this.

use std::ffi::CString;
use std::sync::atomic::{AtomicU64, Ordering};

use transom_switch::layout::{LARGE, RINGS};

use super::sys;
use super::table;

/// Bytes that large rings of this process have, or had when they were counted last; when that was.
static TAKEN: AtomicU64 = AtomicU64::new(0);
static COUNTED: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds between two counts.
const APART: u64 = 10_000_000;

/// The largest part of the memory, and the part of that which the largest ring gets: others shall have theirs still.
const PART: u64 = 8;
const PART_OF_LARGEST: u64 = 4;

/// Whether so many bytes more may go into this ring.
pub(crate) fn allows(ring: usize, bytes: usize) -> bool {
    if ring < LARGE {
        return true;
    }
    let all = memory() / PART;
    let most = if ring + 1 == RINGS { all / PART_OF_LARGEST } else { all };
    let fits = |taken: u64| taken.saturating_add(bytes as u64) <= most;
    if !fits(TAKEN.load(Ordering::Relaxed)) {
        let (now, last) = (sys::now(), COUNTED.load(Ordering::Relaxed));
        // Another thread may have counted since.
        if last != 0 && now.saturating_sub(last) < APART {
            return false;
        }
        COUNTED.store(now, Ordering::Relaxed);
        TAKEN.store(count(), Ordering::Relaxed);
        if !fits(TAKEN.load(Ordering::Relaxed)) {
            return false;
        }
    }
    TAKEN.fetch_add(bytes as u64, Ordering::Relaxed);
    true
}

/// Bytes that large rings of this process have now.
fn count() -> u64 {
    let mut all = 0;
    table::each_attached(|held| all += held.session().map_or(0, |session| session.occupied()));
    all
}

/// The memory that this process may use: the machine's, or what its control groups leave it (cgroups(7)).
fn memory() -> u64 {
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    if KNOWN.load(Ordering::Relaxed) == 0 {
        KNOWN.store(sys::memory().min(of_groups()), Ordering::Relaxed);
    }
    KNOWN.load(Ordering::Relaxed)
}

fn of_groups() -> u64 {
    let mut room = [0; 4096];
    let groups = read("/proc/self/cgroup", &mut room);
    let lines = std::str::from_utf8(groups).unwrap_or_default().lines();
    let limits = lines.filter_map(|line| {
        let (_, line) = line.split_once(':')?;
        let (controllers, path) = line.split_once(':')?;
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // Each group has no more than those around it.
        let paths = path.match_indices('/').map(|(at, _)| &path[..at]).chain([path]);
        paths.filter_map(|path| number(&format!("{root}{path}/{file}"))).min()
    });
    limits.min().unwrap_or(u64::MAX)
}

/// The number in a file. `None`: there is no such file, or no number in it.
fn number(path: &str) -> Option<u64> {
    let mut room = [0; 64];
    std::str::from_utf8(read(path, &mut room)).ok()?.trim().parse().ok()
}

/// The beginning of a file.
fn read<'a>(path: &str, room: &'a mut [u8]) -> &'a [u8] {
    let opened = CString::new(path)
        .ok()
        .and_then(|path| sys::open(&path, libc::O_RDONLY | libc::O_CLOEXEC, 0).ok());
    let Some(file) = opened else { return &[] };
    let length = sys::read(file, room).unwrap_or_default();
    sys::close(file);
    room.get(..length).unwrap_or_default()
}
