//! The judgement: pure, and the only one.

use crate::entry::{Entry, Head, ScopeKind, connection_word};
use crate::range::{Fit, fit};
use crate::{Access, Actor, Purpose, Rights, Rule};

/// Judge an access against what its token names: `head` was loaded from `entry` before. The rules are
/// tried in the order of [`Rule`], and of the entry only the words are read that they need. If it
/// may proceed: how far behind the first byte of what the token names it begins.
#[inline(always)]
pub(crate) fn judge(head: Head, entry: &Entry, access: &Access) -> Result<u64, Rule> {
    if !head.is_live(access.token) {
        return Err(Rule::LiveToken);
    }
    admits(head, entry, &access.actor, access.purpose.is_remote())?;
    if !head.rights().intersects(access.purpose.rights()) {
        return Err(Rule::Right);
    }
    match fit(entry.base(), entry.length(), access.address, access.length) {
        Fit::Inside(offset) => Ok(offset),
        Fit::Wraps => Err(Rule::Wrap),
        Fit::Outside => Err(Rule::Bounds),
    }
}

/// Whether a queue pair with these access flags admits an access of its peer's, before any token is
/// looked at. An access of no bytes needs no flag.
#[inline]
#[must_use]
pub fn queue_pair_admits(flags: Rights, purpose: Purpose, length: u64) -> bool {
    length == 0 || flags.intersects(purpose.rights())
}

/// Whether a token is for this actor, and a connection is there if one is needed.
#[inline(always)]
pub(crate) fn admits(head: Head, entry: &Entry, actor: &Actor, remote: bool) -> Result<(), Rule> {
    if entry.domain() != actor.domain {
        return Err(Rule::Scope);
    }
    match (head.scope_kind(), actor.connection) {
        (ScopeKind::Domain, _) => {}
        (ScopeKind::QueuePair, _) => {
            if entry.who() != u64::from(actor.queue_pair.0) {
                return Err(Rule::Scope);
            }
        }
        (ScopeKind::Connection, None) => return Err(Rule::Connected),
        (ScopeKind::Connection, Some(connection)) => {
            if entry.who() != connection_word(connection) {
                return Err(Rule::Scope);
            }
        }
    }
    // A local access needs no connection of a token that is not tied to one: datagram queue pairs
    // have none.
    if remote && actor.connection.is_none() {
        return Err(Rule::Connected);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_admits_what_its_flags_name_and_accesses_of_no_bytes() {
        let remote = [
            (Purpose::RemoteRead, Rights::REMOTE_READ),
            (Purpose::RemoteWrite, Rights::REMOTE_WRITE),
            (Purpose::RemoteAtomic, Rights::REMOTE_ATOMIC),
        ];
        for (purpose, needed) in remote {
            for (_, flag) in remote {
                assert_eq!(queue_pair_admits(flag, purpose, 1), flag == needed, "{purpose:?}");
            }
            assert!(!queue_pair_admits(Rights::NONE, purpose, 1), "{purpose:?}");
            assert!(queue_pair_admits(Rights::NONE, purpose, 0), "{purpose:?}");
        }
    }
}
