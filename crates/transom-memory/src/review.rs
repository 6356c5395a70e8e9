//! The ledger of grants: which grants of a table were not as they should be. Decides nothing.
//!
//! A grant is a token with a remote right. Each is looked at when it ends, under the control mutex,
//! and those that are open still when a caller asks for the list.

use std::collections::HashMap;
use std::mem::Discriminant;

use crate::entry::Entry;
use crate::ledger::Control;
use crate::token::Place;
use crate::{
    CloseReason, Denial, Memory, Mistake, Named, NamedState, Nanoseconds, Rights, Scope, Token,
    Uses,
};

/// Kinds of findings, times places in the program where grants are made, that are kept apart.
const MOST: usize = 1024;

/// Something about a grant that its program may not have meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// No peer has touched a byte through it.
    NeverUsed,
    /// The program has not closed it by the end.
    NeverRevoked,
    /// Peers have touched less than half of its bytes.
    Broader {
        /// Bytes from the first one touched to the last one.
        touched: u64,
    },
    /// The grant was used, and never for these rights.
    UnusedRights(Rights),
    /// A peer has asked for bytes after it had been closed.
    UsedAfterRevoked,
    /// The grant was open to every queue pair of a domain.
    WholeDomain,
    /// The grant was still open when its connection ended.
    OutlivedConnection,
}

/// A finding, with the first grant that it was true of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reviewed {
    /// The finding.
    pub finding: Finding,
    /// The grant.
    pub named: Named,
    /// The grant's origin: see [`Memory::made`].
    pub origin: u32,
    /// How many grants of this origin it was true of.
    pub count: u64,
}

/// Findings of the grants of a table.
#[derive(Clone, Debug, Default)]
pub struct Review {
    groups: HashMap<(u32, bool, Discriminant<Finding>), Reviewed>,
    /// Grants looked at.
    pub grants: u64,
    /// Findings that no place was left for.
    pub left_out: u64,
}

impl Review {
    /// The findings, those of the same origin behind each other.
    #[must_use]
    pub fn findings(&self) -> Vec<Reviewed> {
        let mut all: Vec<Reviewed> = self.groups.values().copied().collect();
        all.sort_by_key(|one| (one.origin, one.named.token));
        all
    }

    fn add(&mut self, finding: Finding, named: Named, origin: u32) {
        let key = (origin, named.window, std::mem::discriminant(&finding));
        let full = self.groups.len() >= MOST;
        match self.groups.get_mut(&key) {
            Some(group) => group.count += 1,
            None if full => self.left_out += 1,
            None => {
                self.groups.insert(key, Reviewed { finding, named, origin, count: 1 });
            }
        }
    }

    /// Look at a grant that has ended, or is open still at the end.
    fn look(&mut self, named: Named, uses: &Uses, origin: u32) {
        let remote = named.rights & Rights::REMOTE;
        if remote == Rights::NONE {
            return;
        }
        self.grants += 1;
        let mut found = |finding| self.add(finding, named, origin);
        let used = uses.rights & Rights::REMOTE;
        let unused = Rights(remote.0 & !used.0);
        let (_, touched) = uses.touched.unwrap_or_default();
        if used == Rights::NONE {
            found(Finding::NeverUsed);
        } else if unused != Rights::NONE {
            found(Finding::UnusedRights(unused));
        }
        if used != Rights::NONE && touched < named.length.div_ceil(2) {
            found(Finding::Broader { touched });
        }
        if matches!(named.scope, Scope::Domain(_)) {
            found(Finding::WholeDomain);
        }
        match named.state {
            NamedState::Dead { reason: CloseReason::Disconnected, .. } => {
                found(Finding::OutlivedConnection);
            }
            NamedState::Dead { .. } => {}
            NamedState::Reserved | NamedState::Live => found(Finding::NeverRevoked),
        }
    }

    /// The findings of another table, too.
    pub fn merge(&mut self, other: &Review) {
        self.grants += other.grants;
        self.left_out += other.left_out;
        for (key, more) in &other.groups {
            let full = self.groups.len() >= MOST;
            match self.groups.get_mut(key) {
                Some(group) => group.count += more.count,
                None if full => self.left_out += more.count,
                None => {
                    self.groups.insert(*key, *more);
                }
            }
        }
    }
}

impl Memory {
    /// The findings so far, and those of grants that are open still, as if this were the end. Empty
    /// for a table that does not review ([`Config::review_grants`](crate::Config::review_grants)).
    #[must_use]
    pub fn review(&self, now: Nanoseconds) -> Review {
        let Some(mut review) = self.lock().review.clone() else { return Review::default() };
        for one in self.inventory(now).flatten() {
            let place = Place::of(one.named.token);
            let origin = self.counters.as_ref().map_or(0, |counters| counters.origin(place));
            // A window whose Bind has not executed, or a region without its memory, grants nothing.
            if one.named.state == NamedState::Live {
                review.look(one.named, &one.uses.unwrap_or_default(), origin);
            }
        }
        review
    }

    /// A grant has ended: its entry is dead, and nothing is under way through it.
    pub(crate) fn review_end(&self, control: &mut Control, place: Place, entry: &Entry) {
        let (Some(_), Some(counters)) = (&control.review, &self.counters) else { return };
        let (head, facts) = (entry.head(), entry.facts());
        if counters.take_review(place) && head.reason() != CloseReason::NeverBound {
            let named = self.name(control, head, &facts, entry.since());
            let uses = counters.uses(place, entry.since()).map(|(_, uses)| uses);
            if let Some(review) = &mut control.review {
                review.look(named, &uses.unwrap_or_default(), counters.origin(place));
            }
        }
    }

    /// A peer was refused.
    pub(crate) fn review_refusal(&self, control: &mut Control, denial: &Denial) {
        let Some(review) = &mut control.review else { return };
        let stale = denial.likely == Mistake::Stale && denial.access.purpose.is_remote();
        let granted = |named: &Named| named.rights & Rights::REMOTE != Rights::NONE;
        if let Some(named) = denial.named.filter(|named| stale && granted(named)) {
            let origin = self.origin(denial.access.token);
            review.add(Finding::UsedAfterRevoked, named, origin);
        }
    }

    fn origin(&self, token: Token) -> u32 {
        self.counters.as_ref().map_or(0, |counters| counters.origin(Place::of(token)))
    }
}
