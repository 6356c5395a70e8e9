//! Names by which processes of one host find a port.

use super::{Adapter, Error, Result};
use crate::sys;

/// A name that this process holds in its network namespace. Dropping it gives the name back.
#[derive(Debug)]
pub struct LocalName(#[allow(dead_code, reason = "held, not used")] sys::Name);

/// The users whose names count: any user may take any name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamesOf {
    /// Every user's.
    Everyone,
    /// This user's, and root's.
    OursAndRoot,
}

impl NamesOf {
    fn counts(self, user: u32) -> bool {
        self == NamesOf::Everyone || user == 0 || sys::is_our_user(user)
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
    ///
    /// # Errors
    /// None is known, and there are more sockets than are looked at.
    #[allow(clippy::result_unit_err, reason = "there is no more to say")]
    pub fn port_of_names(names: &[String]) -> std::result::Result<Option<u16>, ()> {
        let sys::NameHolders { found, whole } = holders(names);
        let trusted = found.iter().filter(|one| NamesOf::OursAndRoot.counts(one.user));
        let first = trusted.min_by_key(|one| (one.name, !sys::is_our_user(one.user)));
        first.map(|one| Some(one.number)).or(whole.then_some(None)).ok_or(())
    }
}

fn holders(names: &[String]) -> sys::NameHolders {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    sys::holders(&names).unwrap_or(sys::NameHolders { found: Vec::new(), whole: true })
}
