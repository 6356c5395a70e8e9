//! The end of tokens. When a function of this file returns, whatever it returns, nothing is under
//! way through the token it was asked to close, and nothing will begin.

use std::sync::MutexGuard;

use crate::entry::{Entry, EntryState, Head, ScopeKind, connection_word};
use crate::hazard::Held;
use crate::judge::admits;
use crate::ledger::{Control, Owner};
use crate::sync::pause;
use crate::token::Place;
use crate::{
    Access, Actor, CloseReason, ConnectionId, Counts, Denial, DeregisterError, DomainId, Memory,
    Nanoseconds, Purpose, QueuePairId, Rights, Rule, Scope, Segment, Token, Unless, range,
};

/// Tokens closed under one hold of the control mutex.
const BATCH: usize = 1024;

impl Memory {
    /// A reservation whose Bind was flushed: the token never lives.
    pub fn abandon(&self, window: Token, now: Nanoseconds) {
        let mut control = self.lock();
        let place = Place::of(window);
        let Some(entry) = self.table.entry(place) else { return };
        // No guard to wait for: no access was ever permitted.
        if entry.head().is_window() && entry.give_up(window, now) {
            self.unlist(&mut control, place, entry);
            self.recycle(&mut control, place, entry);
        }
    }

    /// Remove a registration, and with it the windows that `unless` tolerates. When it returns, no
    /// copy is under way and none will begin (ND2 R18); except after `Busy`, which changes nothing.
    ///
    /// # Errors
    /// [`DeregisterError::NotLive`] if `region` names no live region, and [`DeregisterError::Busy`]
    /// if `unless` says so: then nothing has changed.
    pub fn deregister(
        &self,
        region: Token,
        unless: Unless,
        now: Nanoseconds,
    ) -> Result<(), DeregisterError> {
        let mut control = self.lock();
        let place = Place::of(region);
        let Some((entry, _)) = self.named(region, |head| !head.is_window()) else {
            return Err(self.too_late(control, region, now));
        };
        let ledger = control.ledger(place);
        let (windows, posted) = (ledger.windows, ledger.posted);
        let busy = unless.windows && windows > 0 || unless.posted && posted > 0;
        if busy {
            return Err(DeregisterError::Busy(self.count(&mut control, place, region)));
        }
        if windows == 0 {
            self.close_alone(control, place, entry, CloseReason::Deregistered, now);
            return Ok(());
        }
        let mut closed = Vec::new();
        while let Some(window) = control.first_window(place) {
            let Some(entry) = self.table.entry(window) else { break };
            entry.kill(CloseReason::Deregistered, now);
            self.unlist(&mut control, window, entry);
            closed.push((window, entry));
        }
        entry.kill(CloseReason::Deregistered, now);
        self.unlist(&mut control, place, entry);
        closed.push((place, entry));
        self.settle(control, &closed);
        Ok(())
    }

    /// Change the rights of a live region; its token stays. When it returns, no copy is under way that the
    /// new rights do not permit, and none will begin (Verbs V44).
    ///
    /// # Errors
    /// [`DeregisterError::NotLive`] if `region` names no live region, [`DeregisterError::Busy`] for one
    /// with windows, whose rights were judged by those of the region: then nothing has changed.
    pub fn set_rights(
        &self,
        region: Token,
        rights: Rights,
        now: Nanoseconds,
    ) -> Result<(), DeregisterError> {
        let mut control = self.lock();
        let live = |head: Head| !head.is_window() && head.state() == EntryState::Live;
        let Some((entry, ..)) = self.named(region, live) else {
            return Err(self.too_late(control, region, now));
        };
        let counts = self.count(&mut control, Place::of(region), region);
        if counts.windows > 0 {
            return Err(DeregisterError::Busy(counts));
        }
        entry.set_rights(rights);
        drop(self.outlast(control, |token| token == region));
        Ok(())
    }

    /// Counts of what depends on a region; `None` if it is not live.
    #[must_use]
    pub fn counts(&self, region: Token) -> Option<Counts> {
        let mut control = self.lock();
        self.named(region, |head| !head.is_window())?;
        Some(self.count(&mut control, Place::of(region), region))
    }

    /// Passes that hold a guard at this moment. [`Counts::guards`] does not count them: what they
    /// copy may belong to any region, and a close of any waits for them.
    #[must_use]
    pub fn passes(&self) -> usize {
        self.lock().hazards.holding(|_| false).len()
    }

    /// Whether a token is open: reserved or live. For fronts whose objects outlive their tokens (a
    /// window that its peer may have invalidated).
    #[must_use]
    pub fn is_open(&self, token: Token) -> bool {
        let _control = self.lock();
        self.named(token, |head| head.state() != EntryState::Dead).is_some()
    }

    /// Whether a live region has a byte in `[host, host + length)` of this process. For fronts that
    /// are called when memory goes away (WSD 5.5, A-28).
    #[must_use]
    pub fn touches(&self, region: Token, host: u64, length: u64) -> bool {
        let control = self.lock();
        let named =
            self.named(region, |head| !head.is_window() && head.state() == EntryState::Live);
        let Some((entry, head)) = named else { return false };
        let facts = entry.facts();
        let segments = if head.is_many() {
            self.lists.get(facts.host).map(|list| list.segments().collect()).unwrap_or_default()
        } else {
            vec![Segment { host: facts.host, length: facts.length }]
        };
        drop(control);
        let touches = |own: &Segment| range::touch(own.host, own.length, host, length);
        segments.iter().any(touches)
    }

    /// A request that names the region was posted. For fronts whose deregistration is refused
    /// meanwhile (WSD A-18); others need not count.
    ///
    /// # Errors
    /// [`DeregisterError::NotLive`] if `region` names no live region: then nothing was counted.
    pub fn posted(&self, region: Token, now: Nanoseconds) -> Result<(), DeregisterError> {
        let mut control = self.lock();
        if self.named(region, |head| !head.is_window()).is_none() {
            return Err(self.too_late(control, region, now));
        }
        let ledger = control.ledger(Place::of(region));
        ledger.posted = ledger.posted.saturating_add(1);
        Ok(())
    }

    /// A request that was counted has completed.
    pub fn retired(&self, region: Token) {
        let mut control = self.lock();
        if self.named(region, |head| !head.is_window()).is_some() {
            let ledger = control.ledger(Place::of(region));
            ledger.posted = ledger.posted.saturating_sub(1);
        }
    }

    /// Close a window, or take the memory from a reserved region, on behalf of its owner. When it
    /// returns, no copy is under way through it and none will begin. `queue_pair`: the one on which
    /// the owner invalidates, if the front insists that it be the right one (ND2 W19).
    ///
    /// # Errors
    /// [`DeregisterError::NotLive`] if `window` names no open window or standing region,
    /// [`DeregisterError::NotYours`] if it is bound to another queue pair than `queue_pair`,
    /// [`DeregisterError::Busy`] for a region with windows: then nothing has changed.
    pub fn close(
        &self,
        window: Token,
        queue_pair: Option<QueuePairId>,
        now: Nanoseconds,
    ) -> Result<(), DeregisterError> {
        let mut control = self.lock();
        let open = |head: Head| match head.is_standing() {
            true => head.state() == EntryState::Live,
            false => head.is_window(),
        };
        let Some((entry, head)) = self.named(window, open) else {
            return Err(self.too_late(control, window, now));
        };
        let scope = entry.scope(head);
        let another = |asked: &QueuePairId| match scope {
            Scope::QueuePair(_, bound) => *asked != bound,
            // A window of the whole domain is closed by its owner, on no queue pair (Verbs V50).
            Scope::Domain(_) => head.is_window() && head.is_standing(),
            Scope::Connection(..) => false,
        };
        if let Some(asked) = queue_pair.filter(another) {
            let domain = scope.domain();
            let actor = Actor { domain, queue_pair: asked, connection: None };
            let access = close_access(window, actor);
            let seen = Some((head, entry.facts()));
            let denial = self.explain(&mut control, &access, Rule::Scope, seen, now);
            return Err(DeregisterError::NotYours(denial));
        }
        self.close_one(control, Place::of(window), entry, head, CloseReason::Invalidated, now)
    }

    /// Close a window on behalf of a peer (Send with Invalidate): windows and reserved regions open
    /// to this very actor only (NDK INV-9). Closing one that the same actor's close had already
    /// reached is not an error.
    ///
    /// # Errors
    /// [`DeregisterError::NotYours`] if the token is not open to `actor`, or may be closed by its
    /// owner alone, [`DeregisterError::Busy`] for a region with windows: then nothing has changed.
    pub fn close_for_peer(
        &self,
        window: Token,
        actor: &Actor,
        now: Nanoseconds,
    ) -> Result<(), DeregisterError> {
        let mut control = self.lock();
        let place = Place::of(window);
        let access = close_access(window, *actor);
        let named = self.table.entry(place).map(|entry| (entry, entry.head()));
        let Some((entry, head)) = named.filter(|(_, head)| head.token() == window) else {
            return Err(self.too_late_for(control, &access, now));
        };
        let seen = Some((head, entry.facts()));
        if let Err(rule) = admits(head, entry, actor, true) {
            let denial = self.explain(&mut control, &access, rule, seen, now);
            return Err(DeregisterError::NotYours(denial));
        }
        match head.state() {
            EntryState::Live if closable(head) => {
                let reason = CloseReason::InvalidatedByPeer;
                self.close_one(control, place, entry, head, reason, now)
            }
            EntryState::Dead if closable(head) && closed_by_name(head) => {
                drop(self.outlast(control, |token| token == window));
                Ok(())
            }
            _ => Err(self.too_late_for(control, &access, now)),
        }
    }

    /// Close every token of a queue pair: it was disconnected, failed, or is gone (ND2 W20).
    pub fn close_queue_pair(&self, queue_pair: QueuePairId, now: Nanoseconds) {
        self.close_owner(ScopeKind::QueuePair, u64::from(queue_pair.0), now);
    }

    /// Close every token of a connection, regions included (WSD ).
    pub fn close_connection(&self, connection: ConnectionId, now: Nanoseconds) {
        self.close_owner(ScopeKind::Connection, connection_word(connection), now);
    }

    fn close_owner(&self, kind: ScopeKind, who: u64, now: Nanoseconds) {
        let Some(owner) = Owner::new(kind, who) else { return };
        loop {
            let mut control = self.lock();
            let mut closed = Vec::new();
            // Youngest first: windows before their regions, also across batches. A region's windows
            // are in this list too, because no actor outside its scope can have one.
            while let Some(place) = control.youngest(owner) {
                let Some(entry) = self.table.entry(place) else { break };
                entry.kill(CloseReason::Disconnected, now);
                self.unlist(&mut control, place, entry);
                closed.push((place, entry));
                if closed.len() == BATCH {
                    break;
                }
            }
            let more = closed.len() == BATCH;
            self.settle(control, &closed);
            if !more {
                return;
            }
        }
    }

    /// Close what was found open.
    #[inline(always)]
    fn close_one(
        &self,
        mut control: MutexGuard<'_, Control>,
        place: Place,
        entry: &Entry,
        head: Head,
        reason: CloseReason,
        now: Nanoseconds,
    ) -> Result<(), DeregisterError> {
        if head.is_window() {
            self.close_alone(control, place, entry, reason, now);
            return Ok(());
        }
        // A standing token: its memory goes, its slot stays. While windows are bound to that
        // memory, it cannot go.
        let counts = self.count(&mut control, place, head.token());
        if counts.windows > 0 {
            return Err(DeregisterError::Busy(counts));
        }
        entry.suspend(reason, now);
        let mut control = self.outlast(control, |token| token == head.token());
        // Unless a deregistration took the slot meanwhile.
        if entry.head() == head.dead(reason) {
            self.review_end(&mut control, place, entry);
            self.drop_list(entry);
            entry.rest();
        }
        drop(control);
        Ok(())
    }

    /// Close a window that is open, or a region without windows.
    pub(crate) fn close_alone(
        &self,
        mut control: MutexGuard<'_, Control>,
        place: Place,
        entry: &Entry,
        reason: CloseReason,
        now: Nanoseconds,
    ) {
        entry.kill(reason, now);
        self.unlist(&mut control, place, entry);
        let control = self.outlast(control, |token| place == Place::of(token));
        drop(self.free(control, place, entry));
    }

    /// Take a token that was just made dead out of every list.
    fn unlist(&self, control: &mut Control, place: Place, entry: &Entry) {
        let head = entry.head();
        let region = head.is_window().then(|| Place::of(entry.region()));
        control.leave(place, Owner::new(head.scope_kind(), entry.who()), region);
    }

    /// Wait for the guards on tokens that are dead and in no list, then free their slots: windows
    /// stand before their regions.
    fn settle<'a>(&'a self, control: MutexGuard<'a, Control>, closed: &[(Place, &Entry)]) {
        let closing = |token| closed.iter().any(|(place, _)| *place == Place::of(token));
        let mut control = self.outlast(control, closing);
        for (place, entry) in closed {
            control = self.free(control, *place, entry);
        }
    }

    /// Nothing is under way through a token that is dead and in no list: free its slot.
    fn free<'a>(
        &'a self,
        mut control: MutexGuard<'a, Control>,
        place: Place,
        entry: &Entry,
    ) -> MutexGuard<'a, Control> {
        let mut round = 0;
        // Another thread may still be waiting for a copy through a window of the region.
        while !entry.head().is_window() && control.ledger(place).windows > 0 {
            drop(control);
            pause(round);
            round = round.saturating_add(1);
            control = self.lock();
        }
        self.recycle(&mut control, place, entry);
        control
    }

    /// A dead token's slot waits for its next use; a standing window keeps it.
    #[inline(always)]
    fn recycle(&self, control: &mut Control, place: Place, entry: &Entry) {
        self.review_end(control, place, entry);
        let head = entry.head();
        if head.is_window() {
            control.window_gone(Place::of(entry.region()));
            if head.is_standing() {
                entry.rest();
                return;
            }
        } else {
            control.ledger(place).posted = 0;
            self.drop_list(entry);
        }
        control.issuer.put_back(place);
    }

    /// The region's segment list, if it has one, goes with its memory.
    fn drop_list(&self, entry: &Entry) {
        if entry.head().is_many() {
            self.lists.remove(entry.host());
        }
    }

    /// Wait until nothing is under way through tokens that are dead, without holding the mutex
    /// meanwhile.
    fn outlast<'a>(
        &'a self,
        control: MutexGuard<'a, Control>,
        is_closing: impl Fn(Token) -> bool,
    ) -> MutexGuard<'a, Control> {
        let held = control.hazards.holding(is_closing);
        if held.is_empty() {
            return control;
        }
        drop(control);
        held.iter().for_each(Held::wait);
        self.lock()
    }

    /// The object that a token names, if it is open (or reserved, or standing) and of the kind
    /// wanted.
    fn named(&self, token: Token, kind: impl Fn(Head) -> bool) -> Option<(&Entry, Head)> {
        let entry = self.table.entry(Place::of(token))?;
        let head = entry.head();
        let open = match head.state() {
            EntryState::Reserved | EntryState::Live => true,
            EntryState::Dead => head.is_standing(),
            EntryState::Unused => false,
        };
        (head.token() == token && open && kind(head)).then_some((entry, head))
    }

    fn count(&self, control: &mut Control, place: Place, region: Token) -> Counts {
        let belongs = |token: Token| {
            self.table
                .entry(Place::of(token))
                .is_some_and(|entry| entry.head().token() == token && entry.region() == region)
        };
        let guards = control.hazards.count(belongs) as u32;
        let ledger = control.ledger(place);
        Counts { windows: ledger.windows, posted: ledger.posted, guards }
    }

    /// The owner named something that cannot be closed, or was closed before: another thread's
    /// close may still be waiting for a copy, so wait for it too.
    fn too_late(
        &self,
        control: MutexGuard<'_, Control>,
        token: Token,
        now: Nanoseconds,
    ) -> DeregisterError {
        let entry = self.table.entry(Place::of(token));
        let scope = entry.map(|entry| entry.scope(entry.head()));
        let actor = scope.unwrap_or(Scope::Domain(DomainId(0))).actor();
        let denial = self.closed(control, &close_access(token, actor), now);
        DeregisterError::NotLive(denial)
    }

    fn too_late_for(
        &self,
        control: MutexGuard<'_, Control>,
        access: &Access,
        now: Nanoseconds,
    ) -> DeregisterError {
        DeregisterError::NotYours(self.closed(control, access, now))
    }

    fn closed(
        &self,
        mut control: MutexGuard<'_, Control>,
        access: &Access,
        now: Nanoseconds,
    ) -> Box<Denial> {
        let denial = self.explain(&mut control, access, Rule::LiveToken, None, now);
        if let Some(named) = denial.named
            && matches!(named.state, crate::NamedState::Dead { .. })
        {
            drop(self.outlast(control, |token| token == access.token));
        }
        denial
    }
}

/// The objects that Invalidate may end (NDK DR-1, INV-1): windows and standing tokens, never a
/// registration.
///
/// A standing window that is open to its whole domain is of type 1, which its owner alone closes
/// (Verbs V50).
fn closable(head: Head) -> bool {
    if head.is_window() && head.is_standing() {
        head.scope_kind() != ScopeKind::Domain
    } else {
        head.is_window() || head.is_standing()
    }
}

/// Closed by a call that named it, rather than by the end of something else.
fn closed_by_name(head: Head) -> bool {
    matches!(head.reason(), CloseReason::Invalidated | CloseReason::InvalidatedByPeer)
}

fn close_access(token: Token, actor: Actor) -> Access {
    Access { actor, purpose: Purpose::Close, token, address: 0, length: 0 }
}
