//! Where the sockets of one user lie: nowhere on this system yet.

use std::path::{Path, PathBuf};

/// How a socket's name ends.
pub const SOCKET: &str = ".sock";

/// A folder of sockets. There is none on this system.
#[derive(Debug)]
pub enum Folder {}

/// Why there is no such folder.
#[derive(Debug)]
pub struct FolderError(());

impl std::fmt::Display for FolderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("processes answer inspections on Linux only")
    }
}

impl std::error::Error for FolderError {}

impl Folder {
    /// Refused.
    ///
    /// # Errors
    /// Always.
    pub fn of_user() -> Result<Folder, FolderError> {
        Err(FolderError(()))
    }

    /// None.
    #[must_use]
    pub fn existing() -> Vec<Folder> {
        Vec::new()
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        match *self {}
    }

    pub(crate) fn sockets(&self) -> Vec<(u32, PathBuf)> {
        match *self {}
    }
}
