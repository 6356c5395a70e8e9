//! How two processes of one host meet: not built for this system yet. Every call is refused before there
//! is a connection, so that links stay on TCP ([`PathReason::System`](crate::raw::PathReason)).

use std::path::Path;

use super::socket::UNSUPPORTED;
use super::{Fd, IoError};

type Result<T> = std::result::Result<T, IoError>;

/// A socket that accepts. There is none on this system.
#[derive(Debug)]
pub(crate) enum LocalListener {}

impl LocalListener {
    /// Refused.
    pub(crate) fn open(_name: &str) -> Result<LocalListener> {
        Err(UNSUPPORTED)
    }

    /// Refused.
    pub(crate) fn open_at(_path: &Path) -> Result<LocalListener> {
        Err(UNSUPPORTED)
    }

    pub(crate) fn fd(&self) -> &Fd {
        match *self {}
    }

    pub(crate) fn accept(&self) -> Result<Local> {
        match *self {}
    }
}

/// The content of a connection that rings.
#[derive(Debug)]
pub(crate) struct Rung {
    pub(crate) ended: bool,
    pub(crate) fd: Option<Fd>,
    pub(crate) starved: bool,
}

/// A connection. There is none on this system.
#[derive(Debug)]
pub(crate) enum Local {}

impl Local {
    /// Refused.
    pub(crate) fn connect(_name: &str) -> Result<Local> {
        Err(UNSUPPORTED)
    }

    pub(crate) fn user(&self) -> Option<u32> {
        match *self {}
    }

    pub(crate) fn take_descriptors(&self) {
        match *self {}
    }

    pub(crate) fn refuse_descriptors(&self) {
        match *self {}
    }

    pub(crate) fn hand_over(&self, _bytes: &[u8], _fd: &Fd) -> Result<()> {
        match *self {}
    }

    pub(crate) fn reserve_place(&self) -> Result<Fd> {
        match *self {}
    }

    pub(crate) fn receive_at(&self, _reserved: Fd) -> Result<Fd> {
        match *self {}
    }

    pub(crate) fn receive_handover(&self, _bytes: &mut [u8]) -> Result<(usize, Option<Fd>)> {
        match *self {}
    }

    pub(crate) fn send(&self, _bytes: &[u8]) -> Result<usize> {
        match *self {}
    }

    pub(crate) fn ring(&self) {
        match *self {}
    }

    pub(crate) fn silence(&self) -> Rung {
        match *self {}
    }

    pub(crate) fn finish(&self) {
        match *self {}
    }

    pub(crate) fn shut(&self) {
        match *self {}
    }

    pub(crate) fn close(&mut self) {
        match *self {}
    }

    pub(crate) fn fd(&self) -> &Fd {
        match *self {}
    }
}
