//! The judgement: pure, and the only one.

use crate::entry::{Facts, Head, ScopeKind, State, connection_word};
use crate::range::{Fit, fit};
use crate::{Access, Actor, Rule};

/// Judge an access against what its token names. The rules are tried in the order of [`Rule`].
#[inline]
pub(crate) fn judge(head: Head, facts: &Facts, access: &Access) -> Result<(), Rule> {
    let disclosed = planted!("read after close") && access.purpose == crate::Purpose::RemoteRead;
    let live = head.state() == State::Live || disclosed && head.state() == State::Dead;
    let same = head.token() == access.token || planted!("key ignored");
    if !same || !live {
        return Err(Rule::LiveToken);
    }
    admits(head, facts, &access.actor, access.purpose.is_remote())?;
    let unasked = match access.purpose {
        crate::Purpose::RemoteRead => planted!("rights of a read"),
        crate::Purpose::RemoteWrite => planted!("rights of a write"),
        _ => false,
    };
    if !head.rights().intersects(access.purpose.rights()) && !unasked {
        return Err(Rule::Right);
    }
    let length = facts.length + u64::from(planted!("off by one"));
    match fit(facts.base, length, access.address, access.length) {
        Fit::Inside => Ok(()),
        Fit::Wraps => Err(Rule::Wrap),
        Fit::Outside => Err(Rule::Bounds),
    }
}

/// Whether a token is for this actor, and a connection is there if one is needed.
#[inline]
pub(crate) fn admits(head: Head, facts: &Facts, actor: &Actor, remote: bool) -> Result<(), Rule> {
    if facts.domain != actor.domain && !planted!("another domain") {
        return Err(Rule::Scope);
    }
    match (head.scope_kind(), actor.connection) {
        (ScopeKind::Domain, _) => {}
        (ScopeKind::QueuePair, _) => {
            let any = planted!("window of another queue pair");
            if facts.who != u64::from(actor.queue_pair.0) && !any {
                return Err(Rule::Scope);
            }
        }
        (ScopeKind::Connection, None) => return Err(Rule::Connected),
        (ScopeKind::Connection, Some(connection)) => {
            let epoch = if planted!("epoch ignored") { u64::from(u32::MAX) } else { u64::MAX };
            let any = planted!("connection scope ignored");
            if (facts.who ^ connection_word(connection)) & epoch != 0 && !any {
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
