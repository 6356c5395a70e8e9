//! No Winsock catalogue: a system other than Windows.

use std::convert::Infallible;
use std::path::Path;

use crate::command::exit::{Exit, Failure, Outcome};

use super::catalogue::{Catalogue, Entry, Id, Refused};

/// The catalogue that this system does not have.
pub(super) struct System(Infallible);

pub(super) fn open() -> Outcome<System> {
    let sentence = "only Windows has a Winsock catalogue, where providers are installed";
    Err(Failure::new(Exit::Usage, sentence)
        .try_this("link programs of this system with libtransom_nd.so (docs/networkdirect.md)"))
}

pub(super) fn check_library(_file: &Path) -> Result<(), String> {
    Err("this system is not Windows".to_owned())
}

impl Catalogue for System {
    fn is_administrator(&self) -> bool {
        match self.0 {}
    }

    fn entries(&self) -> Result<Vec<Entry>, Refused> {
        match self.0 {}
    }

    fn library(&self, _provider: Id) -> Result<String, Refused> {
        match self.0 {}
    }

    fn install(&mut self, _: Id, _library: &str, _entries: &[Entry]) -> Result<(), Refused> {
        match self.0 {}
    }

    fn remove(&mut self, _provider: Id) -> Result<(), Refused> {
        match self.0 {}
    }
}
