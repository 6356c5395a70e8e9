//! Names of registered memory, where it has one: for messages about pages that are gone.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The named regions of an adapter, by address.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<Vec<(Range<u64>, String)>>);

impl Names {
    fn all(&self) -> MutexGuard<'_, Vec<(Range<u64>, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, range: Range<u64>, name: String) {
        self.all().push((range, name));
    }

    pub(crate) fn remove(&self, range: &Range<u64>) {
        let mut all = self.all();
        if let Some(at) = all.iter().position(|(known, _)| known == range) {
            all.swap_remove(at);
        }
    }

    /// These bytes, as part of what they belong to.
    pub(crate) fn describe(&self, address: u64, length: u64) -> Option<String> {
        let all = self.all();
        let (range, name) = all.iter().find(|(range, _)| range.contains(&address))?;
        let offset = address - range.start;
        Some(format!("bytes {offset}..{} of {name}", offset.saturating_add(length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_called_by_the_file_they_belong_to_as_long_as_it_is_registered() {
        let names = Names::default();
        names.add(4096..8192, "one".to_owned());
        names.add(8192..9000, "two".to_owned());
        assert_eq!(names.describe(8192, 8).as_deref(), Some("bytes 0..8 of two"));
        assert_eq!(names.describe(8191, 1).as_deref(), Some("bytes 4095..4096 of one"));
        names.remove(&(4096..8192));
        assert_eq!(names.describe(5000, 1), None);
    }
}
