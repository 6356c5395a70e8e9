//! Design rule 8: pages that vanish between the check and the copy. The process lives, and the
//! completion says so.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};
use transom_memory::Rights;

use super::harness::*;
use crate::raw::Options;
use crate::sys::host::hook::before_copy;
use crate::{Completion, CompletionKind, Operation, Status};

const LENGTH: usize = 64 * 1024;
/// Lengths of Writes: by way of the stack, by way of the link's own memory, straight from where they lie.
const WRITTEN: [usize; 4] = [8, 64, 1024, LENGTH];

#[derive(Clone, Copy, Debug)]
enum Way {
    Unmap,
    Protect,
    Truncate,
}

const WAYS: [Way; 3] = [Way::Unmap, Way::Protect, Way::Truncate];

/// A registered mapping of a file whose pages go away when a copy is about to touch them.
fn doomed(end: &End, way: Way) -> Buffer {
    let file = memfd_create("doomed", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, LENGTH as u64).unwrap();
    let rw = ProtFlags::READ | ProtFlags::WRITE;
    // Where the system puts nothing by itself: no other thread's memory may come to lie there
    // between the unmapping and the copy.
    static NEXT: AtomicUsize = AtomicUsize::new(0x20_0000_0000);
    let at = NEXT.fetch_add(2 * LENGTH, Ordering::Relaxed) as *mut std::ffi::c_void;
    let flags = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE;
    // SAFETY: a fresh mapping that replaces none.
    let base = unsafe { mmap(at, LENGTH, rw, flags, &file, 0).unwrap().cast::<u8>() };
    let buffer = Buffer::at(end, base, LENGTH, ALL);
    let at = base as usize;
    before_copy(at as u64..(at + LENGTH) as u64, move || {
        let base = at as *mut std::ffi::c_void;
        match way {
            // SAFETY: the test's own mapping, to which no reference exists.
            Way::Unmap => unsafe {
                munmap(base, LENGTH).unwrap();
            },
            // SAFETY: as above.
            Way::Protect => unsafe {
                mprotect(base, LENGTH, MprotectFlags::empty()).unwrap();
            },
            Way::Truncate => ftruncate(&file, 0).unwrap(),
        }
    });
    buffer
}

/// Without checksums, sources are not copied before they are sent.
fn unchecked() -> impl Iterator<Item = (Way, bool)> {
    WAYS.into_iter().map(|way| (way, false))
}

fn outcome(end: &End) -> (CompletionKind, Status) {
    let Completion { kind, status, .. } = end.next();
    (kind, status)
}

#[test]
fn under_a_receive() {
    for way in WAYS {
        let (active, passive) = pair();
        let (from, to) = (active.buffer(LENGTH), doomed(&passive, way));
        passive.qp.post_receive(1, &[to.all()]).unwrap();
        active.post(Operation::Send, &[from.all()]);
        assert_eq!(outcome(&passive), (CompletionKind::Receive, Status::LocalAccess), "{way:?}");
        assert_eq!(outcome(&active), (CompletionKind::Send, Status::RemoteError), "{way:?}");
    }
}

#[test]
fn under_the_source_of_a_read() {
    for (way, checksum) in WAYS.into_iter().map(|way| (way, true)).chain(unchecked()) {
        let (active, passive) = pair_with(&Options { checksum, ..Options::from_env() });
        let (to, from) = (active.buffer(LENGTH), doomed(&passive, way));
        let window = passive.window(&from, Rights::REMOTE_READ);
        active.post(Operation::Read { token: window.0, address: from.address() }, &[to.all()]);
        assert_eq!(outcome(&active), (CompletionKind::Read, Status::RemoteError), "{way:?}");
    }
}

#[test]
fn under_the_source_of_a_write() {
    for (way, checksum) in WAYS.into_iter().map(|way| (way, true)).chain(unchecked()) {
        for length in WRITTEN {
            let (active, passive) = pair_with(&Options { checksum, ..Options::from_env() });
            let (from, to) = (doomed(&active, way), passive.buffer(LENGTH));
            let window = passive.window(&to, Rights::REMOTE_WRITE);
            let operation = Operation::Write { token: window.0, address: to.address() };
            active.post(operation, &[from.sge(0, length)]);
            let expected = (CompletionKind::Write, Status::LocalAccess);
            assert_eq!(outcome(&active), expected, "{way:?} {length}");
            assert_eq!(to.bytes(), [0; LENGTH], "nothing of it is written");
        }
    }
}

#[test]
fn under_the_sink_of_a_read() {
    for way in WAYS {
        let (active, passive) = pair();
        let (to, from) = (doomed(&active, way), passive.buffer(LENGTH));
        let window = passive.window(&from, Rights::REMOTE_READ);
        active.post(Operation::Read { token: window.0, address: from.address() }, &[to.all()]);
        assert_eq!(outcome(&active), (CompletionKind::Read, Status::LocalAccess), "{way:?}");
    }
}

#[test]
fn under_a_window_that_is_written_to() {
    for (way, length) in WAYS.into_iter().flat_map(|way| WRITTEN.map(|length| (way, length))) {
        let (active, passive) = pair();
        let (from, to) = (active.buffer(LENGTH), doomed(&passive, way));
        let window = passive.window(&to, Rights::REMOTE_WRITE);
        let operation = Operation::Write { token: window.0, address: to.address() };
        active.post(operation, &[from.sge(0, length)]);
        assert_eq!(outcome(&active), (CompletionKind::Write, Status::RemoteError), "{way:?}");
        let kept = passive.adapter.denials(|_| true);
        assert_eq!(kept.len(), 1, "{way:?}: the owner knows what happened: {kept:?}");
    }
}
