//! The program's buffers: what a call was given, and copies between it and the rings.

use transom_switch::session::Stretches;

use crate::sys::Errno;
use crate::user;

pub(crate) type Vector = libc::iovec;

/// Copy `stretches` of a side's rings to or from what the vectors name, behind their first `skip` bytes; how many
/// were copied. Fewer than there are: the program has no memory there.
///
/// # Safety
/// `rings` has every byte of the stretches.
#[inline]
pub(super) unsafe fn copy(
    rings: *mut u8,
    stretches: Stretches,
    vectors: &[Vector],
    skip: usize,
    out: bool,
) -> usize {
    // Most calls have one buffer, and most bytes lie in one stretch.
    if let ([vector], 0) = (vectors, stretches.second.1) {
        let (at, length) = stretches.first;
        let (inside, buffer) = (rings.wrapping_add(at), vector.iov_base.cast::<u8>());
        let (buffer, room) = (buffer.wrapping_add(skip), vector.iov_len.saturating_sub(skip));
        // SAFETY: the rings have `length` bytes there. The other side may write them at the same time, and garbles
        // its own bytes only. The program's memory need not be there.
        return unsafe { move_bytes(inside, buffer, length.min(room), out) };
    }
    // SAFETY: the caller's.
    unsafe { copy_pieces(rings, stretches, vectors, skip, out) }
}

/// # Safety
/// There are `count` bytes of the rings at `inside`.
#[inline]
unsafe fn move_bytes(inside: *mut u8, buffer: *mut u8, count: usize, out: bool) -> usize {
    // SAFETY: the caller's.
    unsafe {
        if out {
            user::copy(inside, buffer, count)
        } else {
            user::copy_to_share(buffer, inside, count)
        }
    }
}

/// As [`copy`], between any number of stretches and buffers.
///
/// # Safety
/// As of `copy`.
#[inline(never)]
unsafe fn copy_pieces(
    rings: *mut u8,
    stretches: Stretches,
    vectors: &[Vector],
    mut skip: usize,
    out: bool,
) -> usize {
    let mut pieces = [stretches.first, stretches.second].into_iter();
    let (mut at, mut left) = pieces.next().unwrap_or_default();
    let mut done = 0;
    for vector in vectors {
        if skip >= vector.iov_len {
            skip -= vector.iov_len;
            continue;
        }
        let mut buffer = vector.iov_base.cast::<u8>().wrapping_add(skip);
        let mut room = vector.iov_len - skip;
        skip = 0;
        while room > 0 {
            if left == 0 {
                match pieces.next() {
                    Some((next, length)) if length > 0 => (at, left) = (next, length),
                    _ => return done,
                }
            }
            let count = room.min(left);
            let inside = rings.wrapping_add(at);
            // SAFETY: the rings have `count` bytes there. The other side may write them at the same time, and
            // garbles its own bytes only. The program's memory need not be there.
            let copied = unsafe { move_bytes(inside, buffer, count, out) };
            done += copied;
            if copied < count {
                return done;
            }
            buffer = buffer.wrapping_add(count);
            (at, left, room) = (at + count, left - count, room - count);
        }
    }
    done
}

/// Bytes that one call moves at most: MAX_RW_COUNT of the kernel's.
const MOST: usize = 0x7FFF_F000;

/// The bytes of what a call was given, as far as it moves them.
pub(crate) fn total(vectors: &[Vector]) -> usize {
    vectors.iter().fold(0, |sum: usize, vector| sum.saturating_add(vector.iov_len)).min(MOST)
}

/// As [`total`], of vectors that the kernel would take: no length is negative (readv(2)), and none leads out of the
/// program's half of the addresses.
pub(super) fn checked(vectors: &[Vector]) -> Result<usize, Errno> {
    const END: usize = 0x7FFF_FFFF_F000;
    let (mut sum, mut inside) = (0_usize, true);
    for vector in vectors {
        if vector.iov_len > isize::MAX as usize {
            return Err(libc::EINVAL);
        }
        inside &= vector.iov_base.addr().saturating_add(vector.iov_len) <= END;
        sum = sum.saturating_add(vector.iov_len);
    }
    if inside { Ok(sum.min(MOST)) } else { Err(libc::EFAULT) }
}

/// The vectors behind their first `skip` bytes, and no more than `most` bytes.
pub(super) fn cut(vectors: &[Vector], mut skip: usize, mut most: usize) -> Vec<Vector> {
    let mut kept = Vec::with_capacity(vectors.len());
    for vector in vectors {
        let passed = skip.min(vector.iov_len);
        skip -= passed;
        let length = (vector.iov_len - passed).min(most);
        if length > 0 {
            let iov_base = vector.iov_base.cast::<u8>().wrapping_add(passed).cast();
            kept.push(Vector { iov_base, iov_len: length });
            most -= length;
        }
    }
    kept
}
