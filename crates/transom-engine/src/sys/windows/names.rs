//! Names that processes of one host hold: not built for this system.

use super::IoError;
use super::socket::UNSUPPORTED;

/// A process that holds a name.
#[derive(Debug)]
pub(crate) struct NameHolder {
    pub(crate) name: usize,
    pub(crate) user: u32,
    pub(crate) number: u16,
}

/// Holders of names.
#[derive(Debug)]
pub(crate) struct NameHolders {
    pub(crate) found: Vec<NameHolder>,
    pub(crate) whole: bool,
}

/// A name that this process holds. There is none on this system.
#[derive(Debug)]
pub(crate) enum Name {}

impl Name {
    /// Refused.
    pub(crate) fn hold(
        _name: &str,
        _number: u16,
        _counts: impl Fn(u32) -> bool,
    ) -> Result<Name, IoError> {
        Err(UNSUPPORTED)
    }
}

/// Refused.
pub(crate) fn holders(_names: &[&str]) -> Result<NameHolders, IoError> {
    Err(UNSUPPORTED)
}
