//! The rights of a window's peer.

use std::fmt;
use std::ops::BitOr;

/// The rights of a window's peer. Combine with `|`.
///
/// ```
/// use transom::Rights;
/// assert!((Rights::READ | Rights::WRITE).contains(Rights::READ));
/// assert!(!Rights::READ.contains(Rights::WRITE)); // a read-only window never allows a write
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// Nothing. A window without rights is legal (ND2 W8): it keeps its region busy and refuses
    /// everyone.
    pub const NONE: Rights = Rights(0);
    /// The peer may read.
    pub const READ: Rights = Rights(1);
    /// The peer may write. The region's memory must be writable (ND2 W7).
    pub const WRITE: Rights = Rights(2);
    /// The peer may change words by atomics. The region's memory must be writable.
    pub const ATOMIC: Rights = Rights(4);

    /// Whether every right of `other` is here.
    #[must_use]
    pub const fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }

    /// In the engine's words.
    pub(crate) fn memory(self) -> transom_memory::Rights {
        let mut rights = transom_memory::Rights::NONE;
        if self.contains(Rights::READ) {
            rights = rights | transom_memory::Rights::REMOTE_READ;
        }
        if self.contains(Rights::WRITE) {
            rights = rights | transom_memory::Rights::REMOTE_WRITE;
        }
        if self.contains(Rights::ATOMIC) {
            rights = rights | transom_memory::Rights::REMOTE_ATOMIC;
        }
        rights
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u8) -> Option<Rights> {
        if bits <= 7 { Some(Rights(bits)) } else { None }
    }
}

impl BitOr for Rights {
    type Output = Rights;
    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "no access",
            1 => "read-only",
            2 => "write-only",
            3 => "read and write",
            4 => "atomics only",
            5 => "read and atomics",
            6 => "write and atomics",
            _ => "read, write and atomics",
        })
    }
}
