//! Handles: the system's own. Of those that programs pass, only files have to be recognized.

use std::sync::Arc;

use windows_sys::Win32::Foundation::CloseHandle;

use super::file::{self, File};

/// A handle as C sees it.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) usize);

impl Handle {
    /// No handle; what failing calls return.
    pub(crate) const NULL: Handle = Handle(0);

    /// The file it names, if that is one of ours and the handle is open.
    pub(crate) fn file(self) -> Option<Arc<File>> {
        file::find(self)
    }

    /// Close it, if it names a file of ours; `false` if it does not: the program may have closed it,
    /// and its number may name something of the program's by now.
    pub(crate) fn close(self) -> bool {
        // SAFETY: the handle names one of our files, and is closed by its owner.
        self.file().is_some() && unsafe { CloseHandle(self.raw()) } != 0
    }

    /// As the system's calls take it.
    pub(super) fn raw(self) -> windows_sys::Win32::Foundation::HANDLE {
        std::ptr::without_provenance_mut(self.0)
    }
}
