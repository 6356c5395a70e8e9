//! The application's memory, as the core sees it.

use transom_memory::Segment;
use transom_wire::Atomic;

use super::atomic::atomic;
use super::copy::{copy_across, copy_in, copy_out, copy_out_raw, copy_to_share};
use super::{Borrowed, Bytes, IoError, Stream};
use crate::{Fault, HostMemory};

/// Registered memory of this process. Crate-private on purpose: the core reaches it under a grant
/// of `transom-memory` only, so every address lies in a live registration, whose caller has
/// promised (`unsafe`) what [`copy_in`] and [`copy_out`] ask.
#[derive(Debug)]
pub(crate) struct Host;

impl HostMemory for Host {
    fn append(&self, from: u64, length: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
        #[cfg(test)]
        hook::run(from, length);
        out.reserve(length);
        let room = out.spare_capacity_mut();
        let Some(room) = room.get_mut(..length) else { return Err(Fault) };
        // SAFETY: see `Host`.
        unsafe { copy_out_raw(from, room.as_mut_ptr().cast(), length) }.map_err(|_| Fault)?;
        // SAFETY: `length` bytes behind the old end were filled in just now.
        unsafe { out.set_len(out.len() + length) };
        Ok(())
    }

    #[inline(always)]
    fn read(&self, from: u64, into: &mut [u8]) -> Result<(), Fault> {
        #[cfg(test)]
        hook::run(from, into.len());
        // SAFETY: see `Host`.
        unsafe { copy_out(from, into) }.map_err(|_| Fault)
    }

    #[inline(always)]
    fn write(&self, to: u64, bytes: &[u8]) -> Result<(), Fault> {
        #[cfg(test)]
        hook::run(to, bytes.len());
        // SAFETY: see `Host`.
        unsafe { copy_in(to, bytes) }.map_err(|_| Fault)
    }

    fn copy(&self, from: u64, to: u64, length: usize) -> Result<(), Fault> {
        #[cfg(test)]
        hook::run(to, length);
        // SAFETY: for the destination see `Host`; the source is a place in a mapping of the link's,
        // which lives as long as the link makes passes.
        unsafe { copy_across(from, to, length) }.map_err(|_| Fault)
    }

    #[inline]
    fn share(&self, from: u64, to: u64, length: usize) -> Result<(), Fault> {
        #[cfg(test)]
        hook::run(from, length);
        let to = std::ptr::with_exposed_provenance_mut(to as usize);
        // SAFETY: for the source see `Host`; the destination is a place in a mapping of the link's, which
        // `transom-process` has reserved there, and to which no reference exists.
        unsafe { copy_to_share(from, to, length) }.map_err(|_| Fault)
    }

    fn atomic(&self, word: u64, operation: Atomic) -> Result<u64, Fault> {
        #[cfg(test)]
        hook::run(word, 8);
        if !word.is_multiple_of(8) {
            return Err(Fault);
        }
        // SAFETY: see `Host`; aligned.
        unsafe { atomic(word, operation) }.map_err(|_| Fault)
    }

    fn fetch_ahead(&self, line: usize) {
        fetch_ahead(line);
    }
}

/// Have the processor fetch a line of memory, if it has an instruction for that. Any address will
/// do: nothing is read that a program could see, and nothing faults.
#[inline]
pub fn fetch_ahead(line: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction is a hint, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(line)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Fetch a line that is going to be written: it is taken from whichever processor has it.
#[inline]
#[cfg_attr(windows, allow(dead_code, reason = "only rings ask for it"))]
pub(super) fn fetch_to_write(line: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction is a hint, whatever the address; processors without it do nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// Registered pages are at least this large.
const PAGE: u64 = 4096;
/// Runs of one call: what waits, the header, the trailer, and the segments of a grant.
const RUNS: usize = 12;

impl Host {
    /// Send `[before, header, payload, trailer]` with more to follow; how many bytes were taken.
    /// [`IoError::Fault`] if pages of the payload are gone: nothing was sent then, unless they
    /// vanish during this very call, which ends it with a smaller number.
    pub(crate) fn send(
        &self,
        stream: &Stream,
        [before, header, trailer]: [&[u8]; 3],
        payload: &[Segment],
    ) -> Result<usize, IoError> {
        if payload.len() + 3 > RUNS {
            return Err(IoError::NotNow);
        }
        let mut runs = [Bytes::of(&[]); RUNS];
        let mut count = 0;
        let mut add = |run| {
            if let Some(place) = runs.get_mut(count) {
                *place = run;
                count += 1;
            }
        };
        add(Bytes::of(before));
        add(Bytes::of(header));
        for segment in payload {
            let length = usize::try_from(segment.length).map_err(|_| IoError::Fault)?;
            #[cfg(test)]
            hook::run(segment.host, length);
            // Half a frame cannot be taken back, so every page is touched first.
            let mut at = segment.host;
            while at < segment.host.saturating_add(segment.length) {
                // SAFETY: see `Host`.
                unsafe { copy_out(at, &mut [0]) }.map_err(|_| IoError::Fault)?;
                at = (at | (PAGE - 1)).saturating_add(1);
            }
            add(Bytes::host(segment.host, length));
        }
        add(Bytes::of(trailer));
        // SAFETY: three live slices, and memory for which see `Host`.
        unsafe { stream.send_many(runs.get(..count).unwrap_or_default()) }
    }
}

impl Host {
    /// Copy out of a region that a peer has lent, as [`HostMemory::copy`]; the last bytes only if the region
    /// was still lent when they were read.
    pub(crate) fn copy_lent(
        &self,
        region: &Borrowed,
        from: u64,
        to: u64,
        length: usize,
    ) -> Result<(), Fault> {
        #[cfg(test)]
        hook::run(to, length);
        // SAFETY: see `Host`.
        unsafe { region.copy_to(from, to, length) }
    }

    /// Copy the payload of an answer to a region that a peer has lent, in increasing order.
    pub(crate) fn fill_lent(
        &self,
        region: &Borrowed,
        offset: u64,
        payload: &[Segment],
    ) -> Result<(), Fault> {
        #[cfg(test)]
        for segment in payload {
            hook::run(segment.host, usize::try_from(segment.length).unwrap_or(usize::MAX));
        }
        // SAFETY: see `Host`.
        unsafe { region.fill(offset, payload) }
    }
}

/// Between check and copy: a test makes pages vanish here.
#[cfg(test)]
pub(crate) mod hook {
    use std::ops::Range;
    use std::sync::{Mutex, PoisonError};

    type Action = Box<dyn FnOnce() + Send>;
    static HOOKS: Mutex<Vec<(Range<u64>, Action)>> = Mutex::new(Vec::new());

    /// Do `action` when the next copy touches `range`.
    pub(crate) fn before_copy(range: Range<u64>, action: impl FnOnce() + Send + 'static) {
        let mut hooks = HOOKS.lock().unwrap_or_else(PoisonError::into_inner);
        hooks.push((range, Box::new(action)));
    }

    pub(super) fn run(at: u64, length: usize) {
        let end = at.saturating_add(length as u64);
        let next = || {
            let mut hooks = HOOKS.lock().unwrap_or_else(PoisonError::into_inner);
            let found = hooks.iter().position(|(r, _)| r.start < end && at < r.end)?;
            Some(hooks.swap_remove(found).1)
        };
        // The lock is free meanwhile: an action may copy, too.
        while let Some(action) = next() {
            action();
        }
    }
}
