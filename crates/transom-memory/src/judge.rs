//! The judgement: pure, and the only one.

use crate::entry::{Facts, Head, ScopeKind, State, connection_word};
use crate::range::{Fit, fit};
use crate::{Access, Actor, Rule};

/// Judge an access against what its token names. The rules are tried in the order of [`Rule`].
#[inline]
pub(crate) fn judge(head: Head, facts: &Facts, access: &Access) -> Result<(), Rule> {
    if head.token() != access.token || head.state() != State::Live {
        return Err(Rule::LiveToken);
    }
    admits(head, facts, &access.actor, access.purpose.is_remote())?;
    if !head.rights().intersects(access.purpose.rights()) {
        return Err(Rule::Right);
    }
    match fit(facts.base, facts.length, access.address, access.length) {
        Fit::Inside => Ok(()),
        Fit::Wraps => Err(Rule::Wrap),
        Fit::Outside => Err(Rule::Bounds),
    }
}

/// Whether a token is for this actor, and a connection is there if one is needed.
#[inline]
pub(crate) fn admits(head: Head, facts: &Facts, actor: &Actor, remote: bool) -> Result<(), Rule> {
    if facts.domain != actor.domain {
        return Err(Rule::Scope);
    }
    match (head.scope_kind(), actor.connection) {
        (ScopeKind::Domain, _) => {}
        (ScopeKind::QueuePair, _) => {
            if facts.who != u64::from(actor.queue_pair.0) {
                return Err(Rule::Scope);
            }
        }
        (ScopeKind::Connection, None) => return Err(Rule::Connected),
        (ScopeKind::Connection, Some(connection)) => {
            if facts.who != connection_word(connection) {
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
