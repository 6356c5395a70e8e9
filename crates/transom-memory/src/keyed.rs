//! Windows that stand: what the program allocates has a slot, and is bound, closed and bound again
//! under keys of its own choice (type-2 windows of verbs: Verbs V47).
//!
//! A standing window is `Reserved` while it is not bound, and `Dead` for as long as its close waits
//! for a copy: so no Bind rewrites an entry that a check still reads.

use crate::entry::{Entry, EntryState, Facts, Head};
use crate::ledger::Control;
use crate::sync::pause;
use crate::token::Place;
use crate::{
    BindError, CloseReason, DomainId, Memory, Nanoseconds, QueuePairId, RegisterError, Rights,
    Scope, Token, WindowSpec,
};

/// The bits of a token that the owner of a standing window chooses.
const KEY: u32 = 0xff;

impl Memory {
    /// A window without memory: a random index, and a first key that grants nothing. It is bound by
    /// [`Memory::bind_standing`], and ends with [`Memory::release_standing`].
    ///
    /// # Errors
    /// [`RegisterError::Exhausted`] if no token is free.
    pub fn reserve_standing(&self, domain: DomainId) -> Result<Token, RegisterError> {
        let mut control = self.lock();
        let (place, token) = self.draw(&mut control).ok_or(RegisterError::Exhausted)?;
        let scope = Scope::Domain(domain);
        let head = Head::new(token, Rights::NONE, &scope, true).with_standing();
        let who = Facts::who(&scope);
        let facts = Facts { base: 0, length: 0, host: 0, who, domain, region: token, offset: 0 };
        if let Some(entry) = self.table.entry(place) {
            let head = head.with_counted(self.counters.is_some());
            entry.publish(head.in_state(EntryState::Reserved), &facts);
        }
        Ok(token)
    }

    /// Bind a standing window: access begins under `key`, the index of its first token with another
    /// key or the same. `zero_based`: the first byte has the address 0, not that in the region.
    ///
    /// # Errors
    /// [`BindError`], in this order: `Standing` if `key` has the index of no standing window of this
    /// domain, or of one that is bound; then as [`Memory::reserve`]. The window is as before then.
    pub fn bind_standing(
        &self,
        key: Token,
        window: &WindowSpec,
        zero_based: bool,
        now: Nanoseconds,
    ) -> Result<(), BindError> {
        let mut control = self.lock();
        let place = Place::of(key);
        let free = self.table.entry(place).filter(|entry| {
            let head = entry.head();
            let unbound = head.state() == EntryState::Reserved && head.is_standing();
            head.is_window() && unbound && entry.domain() == window.domain
        });
        if free.is_none() {
            return Err(BindError::Standing);
        }
        let (head, mut facts) = self.may_bind(&mut control, window, now)?;
        if zero_based {
            facts.base = 0;
        }
        let new = Head::new(key, window.rights, &window.scope, true)
            .with_standing()
            .with_many(head.is_many())
            .with_counted(self.counters.is_some());
        if let Some(counters) = &self.counters {
            counters.begin_again(place);
            counters.made(place, 0, now);
        }
        self.open_window(&mut control, place, new.in_state(EntryState::Live), &facts, now);
        Ok(())
    }

    /// Whether a window could be bound so: the judgement of [`Memory::bind_standing`] but for the window's
    /// own state.
    ///
    /// # Errors
    /// [`BindError`], as [`Memory::reserve`].
    pub fn check_bind(&self, window: &WindowSpec, now: Nanoseconds) -> Result<(), BindError> {
        self.may_bind(&mut self.lock(), window, now).map(drop)
    }

    /// Close a standing window, if it is bound. When this returns, no copy is under way through it.
    /// `token`: its index with any key. `false`: it names no standing window of this domain, and nothing
    /// has happened.
    pub fn unbind_standing(&self, token: Token, domain: DomainId, now: Nanoseconds) -> bool {
        self.free_standing(token, domain, now, |_, _| ())
    }

    /// Close a standing window, if it is bound, and give its slot back; otherwise as
    /// [`Memory::unbind_standing`].
    pub fn release_standing(&self, token: Token, domain: DomainId, now: Nanoseconds) -> bool {
        self.free_standing(token, domain, now, |control, entry| {
            entry.retire(now);
            control.issuer.put_back(Place::of(token));
        })
    }

    /// Call `then` under the lock once a standing window is not bound.
    fn free_standing(
        &self,
        token: Token,
        domain: DomainId,
        now: Nanoseconds,
        then: impl FnOnce(&mut Control, &Entry),
    ) -> bool {
        let place = Place::of(token);
        let Some(entry) = self.table.entry(place) else { return false };
        let mut round = 0;
        loop {
            let mut control = self.lock();
            let head = entry.head();
            if !head.is_window() || !head.is_standing() || entry.domain() != domain {
                return false;
            }
            match head.state() {
                EntryState::Reserved => {
                    then(&mut control, entry);
                    return true;
                }
                EntryState::Live => {
                    self.close_alone(control, place, entry, CloseReason::Invalidated, now);
                }
                // Another thread's close waits for a copy.
                EntryState::Dead | EntryState::Unused => {
                    drop(control);
                    pause(round);
                    round = round.saturating_add(1);
                }
            }
        }
    }

    /// Whether `token` is the latest key of a standing window that was bound to this queue pair, and
    /// is closed.
    #[must_use]
    pub fn was_closed(&self, token: Token, queue_pair: QueuePairId) -> bool {
        let _control = self.lock();
        self.read(token).is_some_and(|(head, facts)| {
            let closed = matches!(head.state(), EntryState::Reserved | EntryState::Dead);
            let scope = facts.scope(head.scope_kind());
            let own = matches!(scope, Scope::QueuePair(_, bound) if bound == queue_pair);
            head.token() == token && head.is_window() && head.is_standing() && closed && own
        })
    }

    /// The token of a standing window's index with a key.
    #[must_use]
    pub fn with_key(index: Token, key: u8) -> Token {
        Token(index.0 & !KEY | u32::from(key))
    }
}
