//! The application's memory, as the core sees it.

use super::copy::{copy_in, copy_out_raw};
use crate::{Fault, HostMemory};

/// Registered memory of this process. Crate-private on purpose: the core reaches it under a grant
/// of `transom-memory` only, so every address lies in a live registration, about which whoever
/// registered it has promised (`unsafe`) what [`copy_in`] and [`copy_out`](super::copy_out) ask.
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

    fn write(&self, to: u64, bytes: &[u8]) -> Result<(), Fault> {
        #[cfg(test)]
        hook::run(to, bytes.len());
        // SAFETY: see `Host`.
        unsafe { copy_in(to, bytes) }.map_err(|_| Fault)
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
        let mut hooks = HOOKS.lock().unwrap_or_else(PoisonError::into_inner);
        let end = at.saturating_add(length as u64);
        while let Some(i) = hooks.iter().position(|(r, _)| r.start < end && at < r.end) {
            (hooks.swap_remove(i).1)();
        }
    }
}
