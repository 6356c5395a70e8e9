//! Why an access was refused, and what was probably meant. Runs under the control mutex, after the
//! refusal: it decides nothing.

use crate::entry::{EntryState, Facts, Head, ScopeKind};
use crate::judge::admits;
use crate::ledger::Control;
use crate::range::{Fit, fit};
use crate::token::Place;
use crate::{
    Access, Denial, Memory, Mistake, Named, NamedState, Nanoseconds, Purpose, Rule, Token,
};

impl Memory {
    /// The record of a refusal. `seen`: what the judgement was about.
    #[cold]
    pub(crate) fn explain(
        &self,
        control: &mut Control,
        access: &Access,
        rule: Rule,
        seen: Option<(Head, Facts)>,
        now: Nanoseconds,
    ) -> Box<Denial> {
        let mut denial = Denial {
            access: *access,
            rule,
            wanted: access.purpose.rights(),
            named: None,
            meant: None,
            likely: Mistake::Unknown,
        };
        // An entry that was seen live was guarded; any other may have been rewritten since: look
        // again.
        let seen = seen.filter(|_| rule != Rule::LiveToken).or_else(|| self.read(access.token));
        match seen.filter(|(head, _)| head.token() == access.token) {
            Some((head, facts)) => {
                let named = self.name(control, head, &facts, now);
                denial.named = Some(named);
                denial.likely = match rule {
                    Rule::LiveToken => dead_or_wrong(&named, access),
                    Rule::Scope => wrong_actor(head, &facts, access),
                    Rule::Connected => Mistake::NotConnected,
                    Rule::Right => Mistake::MissingRight,
                    Rule::Wrap | Rule::Bounds => wrong_range(&facts, access),
                    Rule::Aligned => Mistake::Misaligned { bytes: access.address % 8 },
                };
            }
            None => {
                denial.meant = self.swapped(control, access, now);
                denial.likely = if denial.meant.is_some() {
                    Mistake::TokenBytesSwapped
                } else if self.was_issued(control, access.token) {
                    Mistake::Stale
                } else {
                    Mistake::NeverIssued
                };
            }
        }
        Box::new(denial)
    }

    /// The entry in a token's slot, under the mutex.
    pub(crate) fn read(&self, token: Token) -> Option<(Head, Facts)> {
        let entry = self.table.entry(Place::of(token))?;
        Some((entry.head(), entry.facts())).filter(|(head, _)| head.state() != EntryState::Unused)
    }

    /// An entry in the terms of a record.
    pub(crate) fn name(
        &self,
        control: &Control,
        head: Head,
        facts: &Facts,
        now: Nanoseconds,
    ) -> Named {
        let since = || self.table.entry(Place::of(head.token())).map_or(now, |e| e.since());
        let ago = || now.saturating_sub(since());
        // A standing window that covers memory was bound, and rests since it was closed.
        let rested = head.is_window() && head.is_standing() && facts.length > 0;
        let rests = rested && head.state() == EntryState::Reserved;
        let state = match head.state() {
            _ if rests => NamedState::Dead { reason: head.reason(), ago: ago() },
            EntryState::Unused | EntryState::Reserved => NamedState::Reserved,
            EntryState::Live => NamedState::Live,
            EntryState::Dead => NamedState::Dead { reason: head.reason(), ago: ago() },
        };
        let dead = matches!(state, NamedState::Dead { .. });
        Named {
            token: head.token(),
            region: facts.region,
            window: head.is_window(),
            name: control.name(head.token()),
            state,
            // Of a token that is closed, the entry has the time of the close.
            age: (head.is_window() && !dead).then(ago),
            base: facts.base,
            length: facts.length,
            rights: head.rights(),
            scope: facts.scope(head.scope_kind()),
        }
    }

    /// The object that the token names, or named last, with its bytes in the other order, if that
    /// is or was open to this actor: a token that happens to be another actor's is no explanation.
    fn swapped(&self, control: &Control, access: &Access, now: Nanoseconds) -> Option<Named> {
        let swapped = Token(access.token.0.swap_bytes());
        let (head, facts) = self.read(swapped)?;
        let entry = self.table.entry(Place::of(swapped))?;
        let fits = head.token() == swapped && admits(head, entry, &access.actor, false).is_ok();
        fits.then(|| self.name(control, head, &facts, now))
    }

    /// Whether a token was handed out before its slot was used again.
    fn was_issued(&self, control: &mut Control, token: Token) -> bool {
        let place = Place::of(token);
        let Some(entry) = self.table.entry(place) else { return false };
        if entry.head().is_window() && entry.head().is_standing() {
            return true; // under keys of its owner's
        }
        let cycle = control.ledger(place).cycle;
        control.issuer.has_issued(token, &cycle)
    }
}

/// The token is not live, or is the wrong thing to bind to or to close.
fn dead_or_wrong(named: &Named, access: &Access) -> Mistake {
    match named.state {
        NamedState::Dead { .. } => Mistake::Stale,
        NamedState::Live if matches!(access.purpose, Purpose::Bind | Purpose::Close) => {
            Mistake::WrongKind
        }
        // Live now: its Bind executed between the refusal and this record of it.
        NamedState::Reserved | NamedState::Live => Mistake::NotYetBound,
    }
}

fn wrong_actor(head: Head, facts: &Facts, access: &Access) -> Mistake {
    if facts.domain != access.actor.domain {
        return Mistake::AnotherDomain;
    }
    match head.scope_kind() {
        ScopeKind::Domain => Mistake::Unknown,
        ScopeKind::QueuePair => Mistake::AnotherQueuePair,
        ScopeKind::Connection => Mistake::AnotherConnection,
    }
}

/// No system puts memory of programs into the first page, or below 64 KiB unless it is asked to.
const FIRST_PAGE: u64 = 0x1000;
const LOWEST: u64 = 0x1_0000;

fn wrong_range(facts: &Facts, access: &Access) -> Mistake {
    let (base, size) = (facts.base, facts.length);
    let (address, length) = (access.address, access.length);
    let inside = |address| matches!(fit(base, size, address, length), Fit::Inside(_));
    if inside(address.swap_bytes()) {
        return Mistake::AddressBytesSwapped;
    }
    let Some(before) = base.checked_sub(address).filter(|bytes| *bytes > 0) else {
        // The range begins at the beginning or behind it.
        let offset = address - base;
        return if crate::range::wraps(address, length) {
            Mistake::WrapsAround
        } else if offset <= size {
            Mistake::PastTheEnd { bytes: length.saturating_sub(size - offset) }
        } else {
            Mistake::Unknown
        };
    };
    if before < length {
        // The range begins too early, and reaches into the memory.
        return Mistake::BeforeTheBeginning { bytes: before };
    }
    // Far below, where an offset would be. Near below it may be either, unless the base is an address of
    // the system's: these begin at 64 KiB, and Windows gives lower ones than a large region is long.
    let offset = matches!(fit(0, size, address, length), Fit::Inside(_));
    if offset && (before > size || base >= LOWEST && address < FIRST_PAGE) {
        Mistake::OffsetInsteadOfAddress
    } else {
        Mistake::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, DomainId, QueuePairId, Registration, Rights, Scope, Segment, Unless};

    /// Between a refusal and its record the entry may change. A judgement under a guard is
    /// explained by what was judged; a dead token, which no guard protects, by what lies there now.
    #[test]
    fn a_record_is_about_what_was_judged() {
        let memory = Memory::new([7; 32], Config::default());
        let scope = Scope::Domain(DomainId(1));
        let segments = [Segment { host: 0x5000, length: 64 }];
        let rights = Rights::LOCAL_READ | Rights::REMOTE_READ;
        let registration = Registration { scope, rights, base: 0x1000, segments: &segments };
        let token = memory.register(&registration).unwrap();
        let judged = memory.read(token);
        let mut actor = scope.actor();
        actor.queue_pair = QueuePairId(3);
        let purpose = Purpose::RemoteRead;
        let access = Access { actor, purpose, token, address: 0x1000, length: 65 };
        let state = |rule, seen| {
            let denial = memory.explain(&mut memory.lock(), &access, rule, seen, 0);
            (denial.named.unwrap().state, denial.likely)
        };
        // The Bind executed just after it was found reserved.
        let now_live = state(Rule::LiveToken, judged);
        assert_eq!(now_live, (NamedState::Live, Mistake::NotYetBound));
        memory.deregister(token, Unless::default(), 0).unwrap();
        let past_the_end = Mistake::PastTheEnd { bytes: 1 };
        assert_eq!(state(Rule::Bounds, judged), (NamedState::Live, past_the_end));
        let dead = NamedState::Dead { reason: crate::CloseReason::Deregistered, ago: 0 };
        assert_eq!(state(Rule::LiveToken, judged), (dead, Mistake::Stale));
    }
}
