//! Names by which processes of one host find a port.

use super::{Adapter, Error, Result};
use crate::sys;

/// A name that this process holds in its network namespace. Dropping it gives the name back.
#[derive(Debug)]
pub struct LocalName(#[allow(dead_code, reason = "held, not used")] sys::Name);

/// The answer to [`Adapter::port_of_names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortOfNames {
    /// A holder tells this port.
    Port(u16),
    /// No process that counts holds one of the names.
    NotHeld,
    /// None is known to hold one, and there are more sockets than are looked at.
    Unknown,
}

/// The users whose names count: any user may take any name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamesOf {
    /// Every user's.
    Everyone,
    /// This user's, and root's.
    OursAndRoot,
    /// No one's: the name may have any number of holders.
    Nobody,
}

impl NamesOf {
    fn counts(self, user: u32) -> bool {
        match self {
            NamesOf::Everyone => true,
            NamesOf::OursAndRoot => user == 0 || sys::is_our_user(user),
            NamesOf::Nobody => false,
        }
    }
}

impl Adapter {
    /// Hold `name`, and tell `port` to processes that look for it.
    ///
    /// # Errors
    /// `SharingViolation` if the name is held by a process that counts; `InsufficientResources`; of an adapter
    /// that is gone, `DeviceRemoved` or `Forked`.
    pub fn hold_name(&self, name: &str, port: u16, whose: NamesOf) -> Result<LocalName> {
        self.0.present()?;
        sys::Name::hold(name, port, |user| whose.counts(user))
            .map(LocalName)
            .map_err(|e| Error::link(e, &format!("hold the name {name}")))
    }

    /// Whether a process of this network namespace that counts holds one of these names. Where the kernel does not
    /// say whose names are (before Linux 5.3, or without `unix_diag`), or there are more sockets than are
    /// looked at: none that is known.
    #[must_use]
    pub fn is_a_name_held(names: &[String], whose: NamesOf) -> bool {
        holders(names).found.iter().any(|one| whose.counts(one.user))
    }

    /// The port that the holder of the first of these names tells that has one of this user's or root's.
    #[must_use]
    pub fn port_of_names(names: &[String]) -> PortOfNames {
        let sys::NameHolders { found, whole } = holders(names);
        let trusted = found.iter().filter(|one| NamesOf::OursAndRoot.counts(one.user));
        match trusted.min_by_key(|one| (one.name, !sys::is_our_user(one.user))) {
            Some(first) => PortOfNames::Port(first.number),
            None if whole => PortOfNames::NotHeld,
            None => PortOfNames::Unknown,
        }
    }
}

fn holders(names: &[String]) -> sys::NameHolders {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    sys::holders(&names).unwrap_or(sys::NameHolders { found: Vec::new(), whole: true })
}
