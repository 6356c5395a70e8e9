//! A line of the table: the words that a check reads.
//!
//! Everything is written by the control path (one thread at a time, under the table's mutex),
//! except that [`Entry::activate`] and [`Entry::give_up`] decide a race by compare-and-swap.
//! Readers have announced the token before ([`crate::hazard`]), so what they read after seeing it
//! live stays put until they are done.

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::{CloseReason, ConnectionId, DomainId, QueuePairId, Rights, Scope, Token};

/// Token, rights, state, kind of scope and of thing in one word, so that one comparison of one load
/// decides whether all of them belong together.
///
/// `token:32 | state:3 many:1 counted:1 -:2 standing:1 window:1 scope:3 reason:4 rights:16`. A live
/// head has no bit of state: so the difference from the token that was asked for is below [`UNUSED`]
/// exactly if the head is that token's, and live. The other answers to a check are a bit or two each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head(pub(crate) u64);

/// The life of a token (ND2 5.6, W10; "two steps": ND1 MW-1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EntryState {
    /// The slot was never used.
    Unused,
    /// Bind was called and has not executed; or a standing token without memory, or not bound.
    Reserved,
    /// Usable.
    Live,
    /// Closed. The rest of the entry says what it named, until the slot is used again.
    Dead,
}

const RIGHTS: u64 = 0xffff;
const REASON_SHIFT: u32 = 16;
const REASON: u64 = 0b1111 << REASON_SHIFT;
/// Exactly one of these three bits is set.
const OF_CONNECTION: u64 = 1 << 20;
const OF_QUEUE_PAIR: u64 = 1 << 21;
const OF_DOMAIN: u64 = 1 << 22;
const WINDOW: u64 = 1 << 23;
const STANDING: u64 = 1 << 24;
const COUNTED: u64 = 1 << 27;
const MANY: u64 = 1 << 28;
/// At most one of these three bits is set; none is while the token is live.
const UNUSED: u64 = 1 << 29;
const RESERVED: u64 = 1 << 30;
const DEAD: u64 = 1 << 31;
const STATE: u64 = UNUSED | RESERVED | DEAD;
const TOKEN_SHIFT: u32 = 32;

/// Which of the three scopes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ScopeKind {
    Domain,
    QueuePair,
    Connection,
}

impl ScopeKind {
    pub(crate) fn of(scope: &Scope) -> ScopeKind {
        match scope {
            Scope::Domain(_) => ScopeKind::Domain,
            Scope::QueuePair(..) => ScopeKind::QueuePair,
            Scope::Connection(..) => ScopeKind::Connection,
        }
    }
}

impl Head {
    pub(crate) fn new(token: Token, rights: Rights, scope: &Scope, window: bool) -> Head {
        let kind = match ScopeKind::of(scope) {
            ScopeKind::Domain => OF_DOMAIN,
            ScopeKind::QueuePair => OF_QUEUE_PAIR,
            ScopeKind::Connection => OF_CONNECTION,
        };
        let window = if window { WINDOW } else { 0 };
        Head(u64::from(token.0) << TOKEN_SHIFT | u64::from(rights.0) | kind | window)
    }

    pub(crate) fn in_state(self, state: EntryState) -> Head {
        let bits = match state {
            EntryState::Unused => UNUSED,
            EntryState::Reserved => RESERVED,
            EntryState::Live => 0,
            EntryState::Dead => DEAD,
        };
        Head(self.0 & !STATE | bits)
    }

    pub(crate) fn dead(self, reason: CloseReason) -> Head {
        let bits = reason.code() << REASON_SHIFT;
        Head(self.0 & !REASON | bits).in_state(EntryState::Dead)
    }

    pub(crate) fn with_rights(self, rights: Rights) -> Head {
        Head(self.0 & !RIGHTS | u64::from(rights.0))
    }

    pub(crate) fn with_many(self, many: bool) -> Head {
        if many { Head(self.0 | MANY) } else { Head(self.0 & !MANY) }
    }

    pub(crate) fn with_counted(self, counted: bool) -> Head {
        if counted { Head(self.0 | COUNTED) } else { self }
    }

    pub(crate) fn with_standing(self) -> Head {
        Head(self.0 | STANDING)
    }

    #[inline]
    pub(crate) fn token(self) -> Token {
        Token((self.0 >> TOKEN_SHIFT) as u32)
    }

    /// The head is this token's, and live.
    #[inline]
    pub(crate) fn is_live(self, token: Token) -> bool {
        self.0 ^ u64::from(token.0) << TOKEN_SHIFT < UNUSED
    }

    /// A check has nothing to do but to judge: the bytes lie in one segment, and uses are not
    /// counted.
    #[inline]
    pub(crate) fn is_plain(self) -> bool {
        self.0 & (MANY | COUNTED) == 0
    }

    #[inline]
    pub(crate) fn state(self) -> EntryState {
        if self.0 & STATE == 0 {
            EntryState::Live
        } else if self.0 & DEAD != 0 {
            EntryState::Dead
        } else if self.0 & RESERVED != 0 {
            EntryState::Reserved
        } else {
            EntryState::Unused
        }
    }

    #[inline]
    pub(crate) fn rights(self) -> Rights {
        Rights(self.0 as u16)
    }

    #[inline]
    pub(crate) fn scope_kind(self) -> ScopeKind {
        if self.0 & OF_DOMAIN != 0 {
            ScopeKind::Domain
        } else if self.0 & OF_QUEUE_PAIR != 0 {
            ScopeKind::QueuePair
        } else {
            ScopeKind::Connection
        }
    }

    #[inline]
    pub(crate) fn is_window(self) -> bool {
        self.0 & WINDOW != 0
    }

    /// The bytes lie in more than one segment.
    #[inline]
    pub(crate) fn is_many(self) -> bool {
        self.0 & MANY != 0
    }

    /// The token outlives its memory (fast registration, NDK FR-13).
    pub(crate) fn is_standing(self) -> bool {
        self.0 & STANDING != 0
    }

    pub(crate) fn reason(self) -> CloseReason {
        CloseReason::from_code((self.0 & REASON) >> REASON_SHIFT)
    }
}

/// The object that a token names: the entry without its head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    /// First byte, as programs and peers name it.
    pub(crate) base: u64,
    /// Bytes.
    pub(crate) length: u64,
    /// Host address of the first byte; of many segments, the number of their list.
    pub(crate) host: u64,
    /// Queue pair or connection, as a word; 0 for a domain.
    pub(crate) who: u64,
    /// The domain it belongs to.
    pub(crate) domain: DomainId,
    /// The region: its own token, or a window's region's.
    pub(crate) region: Token,
    /// Offset of the first byte in the region.
    pub(crate) offset: u64,
}

impl Facts {
    pub(crate) fn scope(&self, kind: ScopeKind) -> Scope {
        scope_of(kind, self.domain, self.who)
    }

    /// The word that `who` holds for a scope.
    pub(crate) fn who(scope: &Scope) -> u64 {
        match *scope {
            Scope::Domain(_) => 0,
            Scope::QueuePair(_, queue_pair) => u64::from(queue_pair.0),
            Scope::Connection(_, connection) => connection_word(connection),
        }
    }
}

fn scope_of(kind: ScopeKind, domain: DomainId, who: u64) -> Scope {
    match kind {
        ScopeKind::Domain => Scope::Domain(domain),
        ScopeKind::QueuePair => Scope::QueuePair(domain, QueuePairId(who as u32)),
        ScopeKind::Connection => Scope::Connection(domain, connection_of(who)),
    }
}

/// A connection as one word.
#[inline]
pub(crate) fn connection_word(connection: ConnectionId) -> u64 {
    u64::from(connection.number) | u64::from(connection.epoch) << 32
}

fn connection_of(word: u64) -> ConnectionId {
    ConnectionId { number: word as u32, epoch: (word >> 32) as u32 }
}

/// An entry on a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Entry {
    head: AtomicU64,
    base: AtomicU64,
    length: AtomicU64,
    host: AtomicU64,
    who: AtomicU64,
    domain: AtomicU32,
    region: AtomicU32,
    offset: AtomicU64,
    /// When a window was reserved, while it is open; when a token was closed, from then on. Read under
    /// the table's mutex only.
    since: AtomicU64,
}

impl Entry {
    pub(crate) fn new() -> Entry {
        Entry {
            head: AtomicU64::new(UNUSED),
            base: AtomicU64::new(0),
            length: AtomicU64::new(0),
            host: AtomicU64::new(0),
            who: AtomicU64::new(0),
            domain: AtomicU32::new(0),
            region: AtomicU32::new(0),
            offset: AtomicU64::new(0),
            since: AtomicU64::new(0),
        }
    }

    /// The head. Acquire: what was published with it is seen by every reader that sees the head.
    #[inline]
    pub(crate) fn head(&self) -> Head {
        Head(self.head.load(Ordering::Acquire))
    }

    /// [`Facts::base`].
    #[inline]
    pub(crate) fn base(&self) -> u64 {
        self.base.load(Ordering::Relaxed)
    }

    /// [`Facts::length`].
    #[inline]
    pub(crate) fn length(&self) -> u64 {
        self.length.load(Ordering::Relaxed)
    }

    /// [`Facts::host`].
    #[inline]
    pub(crate) fn host(&self) -> u64 {
        self.host.load(Ordering::Relaxed)
    }

    /// [`Facts::who`].
    #[inline]
    pub(crate) fn who(&self) -> u64 {
        self.who.load(Ordering::Relaxed)
    }

    /// [`Facts::domain`].
    #[inline]
    pub(crate) fn domain(&self) -> DomainId {
        DomainId(self.domain.load(Ordering::Relaxed))
    }

    /// [`Facts::region`].
    #[inline]
    pub(crate) fn region(&self) -> Token {
        Token(self.region.load(Ordering::Relaxed))
    }

    /// [`Facts::offset`].
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// Everything but the head.
    pub(crate) fn facts(&self) -> Facts {
        Facts {
            base: self.base(),
            length: self.length(),
            host: self.host(),
            who: self.who(),
            domain: self.domain(),
            region: self.region(),
            offset: self.offset(),
        }
    }

    /// To whom the token is open. `head`: this entry's.
    pub(crate) fn scope(&self, head: Head) -> Scope {
        scope_of(head.scope_kind(), self.domain(), self.who())
    }

    /// Fill the slot. No reader may be left that saw what it named before as live.
    pub(crate) fn publish(&self, head: Head, facts: &Facts) {
        self.base.store(facts.base, Ordering::Relaxed);
        self.length.store(facts.length, Ordering::Relaxed);
        self.host.store(facts.host, Ordering::Relaxed);
        self.who.store(facts.who, Ordering::Relaxed);
        self.domain.store(facts.domain.0, Ordering::Relaxed);
        self.region.store(facts.region.0, Ordering::Relaxed);
        self.offset.store(facts.offset, Ordering::Relaxed);
        self.head.store(head.0, Ordering::Release);
    }

    /// Give a live region other rights, for accesses that are judged from now on. Readers that have seen
    /// the old ones may still be at it.
    pub(crate) fn set_rights(&self, rights: Rights) {
        self.head.store(self.head().with_rights(rights).0, Ordering::SeqCst);
    }

    /// Reserved becomes live. `false` if it is not reserved (any more).
    pub(crate) fn activate(&self, token: Token) -> bool {
        self.move_on(token, |head| head.in_state(EntryState::Live))
    }

    /// Reserved becomes dead. `false` if it is not reserved (any more): then it may be in use.
    pub(crate) fn give_up(&self, token: Token, now: u64) -> bool {
        self.since.store(now, Ordering::Relaxed);
        self.move_on(token, |head| head.dead(CloseReason::NeverBound))
    }

    fn move_on(&self, token: Token, to: impl Fn(Head) -> Head) -> bool {
        let head = self.head();
        head.token() == token
            && head.state() == EntryState::Reserved
            && !head.is_standing()
            && self
                .head
                .compare_exchange(head.0, to(head).0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Make it dead. Readers that announced the token before may still be at it: the caller
    /// waits for them ([`crate::hazard::Hazards::holding`]) before the slot or the memory is
    /// reused.
    ///
    /// A standing window stays: its owner binds it again, or gives its slot back
    /// ([`Entry::retire`]).
    pub(crate) fn kill(&self, reason: CloseReason, now: u64) {
        let standing = |head: Head| if head.is_window() { STANDING } else { 0 };
        self.die(now, |head| Head(head.dead(reason).0 & (!STANDING | standing(head))));
    }

    /// A standing window that is not bound gives its slot back.
    pub(crate) fn retire(&self, now: u64) {
        self.die(now, |head| Head(head.dead(CloseReason::Invalidated).0 & !STANDING));
    }

    /// As [`Entry::kill`], but a standing token keeps its slot: [`Entry::rest`] follows.
    pub(crate) fn suspend(&self, reason: CloseReason, now: u64) {
        self.die(now, |head| head.dead(reason));
    }

    fn die(&self, now: u64, dead: impl Fn(Head) -> Head) {
        self.since.store(now, Ordering::Relaxed);
        let mut head = self.head();
        if head.state() == EntryState::Live {
            // Activations race for reserved heads only: the control path alone changes a live one.
            self.head.store(dead(head).0, Ordering::Release);
            return;
        }
        // An activation may come in between: the loop makes the death win.
        loop {
            match self.head.compare_exchange(
                head.0,
                dead(head).0,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return,
                Err(newer) => head = Head(newer),
            }
        }
    }

    /// A standing token waits for its next memory, or its next Bind.
    pub(crate) fn rest(&self) {
        let resting = self.head().with_many(false).in_state(EntryState::Reserved);
        self.head.store(resting.0, Ordering::Release);
    }

    /// Note when a window was reserved, before [`Entry::publish`].
    pub(crate) fn begin(&self, now: u64) {
        self.since.store(now, Ordering::Relaxed);
    }

    /// When a window was reserved, or a token closed.
    pub(crate) fn since(&self) -> u64 {
        self.since.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_keeps_exactly_what_is_stored() {
        let scope = Scope::QueuePair(DomainId(1), QueuePairId(2));
        let head = Head::new(Token(0xf0e1_d2c3), Rights(0xa5a5), &scope, true);
        assert_eq!((head.token(), head.rights()), (Token(0xf0e1_d2c3), Rights(0xa5a5)));
        assert_eq!(head.scope_kind(), ScopeKind::QueuePair);
        assert!(head.is_window() && !head.is_many() && !head.is_standing());
        for state in [EntryState::Reserved, EntryState::Live, EntryState::Dead, EntryState::Unused]
        {
            let other = head.in_state(state);
            assert_eq!(other.state(), state);
            assert_eq!(other.in_state(EntryState::Live), head);
            // Whatever else the head says, and for no other token.
            for other in [other, other.with_many(true).with_counted(true).with_standing()] {
                assert_eq!(other.is_live(head.token()), state == EntryState::Live);
                for bit in 0..u32::BITS {
                    assert!(!other.is_live(Token(head.token().0 ^ 1 << bit)));
                }
            }
        }
        assert_eq!(Head(UNUSED).state(), EntryState::Unused);
        assert!(head.is_plain() && !head.with_many(true).is_plain());
        assert!(!head.with_counted(true).is_plain() && head.with_counted(false) == head);
        let counted = |head: Head| head.with_counted(true);
        for flag in [Head::with_standing, |head: Head| head.with_many(true), counted] {
            assert_ne!(flag(head), head);
            assert_eq!(flag(flag(head)), flag(head));
        }
        assert!(head.with_many(true).is_many() && head.with_standing().is_standing());
        assert_eq!(head.with_many(true).with_many(false), head);
        assert_eq!(head.with_rights(Rights(0x5a5a)).rights(), Rights(0x5a5a));
        assert_eq!(head.with_rights(Rights(0x5a5a)).with_rights(Rights(0xa5a5)), head);
        let dead = head.in_state(EntryState::Live).dead(CloseReason::NeverBound);
        assert_eq!((dead.state(), dead.reason()), (EntryState::Dead, CloseReason::NeverBound));
        assert_eq!(dead.dead(CloseReason::Invalidated).reason(), CloseReason::Invalidated);
        assert_eq!((dead.token(), dead.rights()), (head.token(), head.rights()));
    }
}
