//! Names by which processes of one host find a port.

use std::sync::Arc;

use super::adapter::Owner;
use super::{Adapter, Error, Result};
use crate::driver;

/// A name that this process holds in its network namespace. Dropping it gives the name back.
#[derive(Debug)]
pub struct LocalName {
    owner: Arc<Owner>,
    name: Arc<driver::LocalName>,
}

impl Adapter {
    /// Hold `name`, and tell `port` to processes that ask for it.
    ///
    /// # Errors
    /// `SharingViolation` if the name is held; `InsufficientResources`; of an adapter that is gone,
    /// `DeviceRemoved` or `Forked`.
    pub fn hold_name(&self, name: &str, port: u16) -> Result<LocalName> {
        let name = driver::LocalName::hold(self.0.present()?, name, port)
            .map_err(|e| Error::link(e, &format!("hold the name {name}")))?;
        Ok(LocalName { owner: self.0.clone(), name })
    }

    /// Whether a process of this network namespace holds `name`.
    #[must_use]
    pub fn is_name_held(name: &str) -> bool {
        driver::LocalName::is_held(name)
    }

    /// The port that the holder of `name` tells. `None`: no process of this user, and none of root's,
    /// holds it. Waits for a holder that is stopped, two seconds at most.
    ///
    /// # Errors
    /// `IoTimeout` if the holder says nothing.
    pub fn ask_name(name: &str) -> Result<Option<u16>> {
        driver::LocalName::ask(name).map_err(|e| Error::link(e, &format!("ask for {name}")))
    }
}

impl Drop for LocalName {
    fn drop(&mut self) {
        if self.owner.here().is_ok() {
            self.name.close();
        }
    }
}
