//! The table of everything registered with one adapter: checks, and the making of tokens.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::entry::{Entry, EntryState, Facts, Head};
use crate::grant::{LARGEST_GRANT, Lane, Pass};
use crate::hazard::EVERYTHING;
use crate::judge::judge;
use crate::ledger::{Control, Owner};
use crate::range::{Fit, fit, wraps};
use crate::segments::{Layout, Lists};
use crate::table::Table;
use crate::token::{CHUNK, DIRECTORY, Issuer, Place};
use crate::uses::Counters;
use crate::{
    Access, BindError, Config, Denial, Grant, Name, Nanoseconds, Purpose, RegisterError,
    Registration, Review, Rights, Rule, Scope, Segment, Token, WindowSpec,
};

/// The table of everything registered with one adapter.
///
/// Checks run on [`Lane`]s and never wait for each other, nor for other calls. Whatever makes and
/// closes tokens is serialised by a mutex that is never held while waiting for a copy.
#[derive(Debug)]
pub struct Memory {
    /// Tells its lanes from those of other tables.
    id: u64,
    config: Config,
    pub(crate) table: Table,
    pub(crate) lists: Lists,
    pub(crate) counters: Option<Counters>,
    control: Mutex<Control>,
}

impl Memory {
    /// An empty table. `seed` must be unpredictable: tokens are drawn from it.
    #[must_use]
    pub fn new(seed: [u8; 32], config: Config) -> Memory {
        static TABLES: AtomicU64 = AtomicU64::new(0);
        let chunks = config.most_tokens.div_ceil(CHUNK).clamp(1, DIRECTORY - 1);
        let mut control = Control::new(Issuer::new(seed, chunks));
        control.review = config.review_grants.then(Review::default);
        Memory {
            id: TABLES.fetch_add(1, Ordering::Relaxed),
            config,
            table: Table::new(),
            lists: Lists::default(),
            counters: (config.count_uses || config.review_grants).then(Counters::new),
            control: Mutex::new(control),
        }
    }

    /// A lane for one driver thread.
    #[must_use]
    pub fn lane(&self) -> Lane {
        Lane { table: self.id, hazard: self.lock().hazards.join(), list: None }
    }

    /// Judge an access and permit one copy of it: at most [`LARGEST_GRANT`] bytes, for a longer one
    /// piece by piece. Takes no lock and allocates nothing, unless it refuses or the memory lies in
    /// several segments (then a lock is taken before the guard, never under it).
    ///
    /// A lane of another table becomes one of this table.
    ///
    /// # Errors
    /// The [`Denial`] of the first rule that the access breaks; nothing is permitted then.
    #[inline(always)]
    pub fn check<'lane>(
        &'lane self,
        lane: &'lane mut Lane,
        access: &Access,
        now: Nanoseconds,
    ) -> Result<Grant<'lane>, Box<Denial>> {
        debug_assert!(access.length <= LARGEST_GRANT, "a grant covers one short copy");
        self.look(lane, access, now, false)
    }

    /// Where the entry of a token lies in this process: for a caller that knows which tokens come
    /// next and can have the processor fetch their lines meanwhile. The hint says nothing about the
    /// token.
    #[must_use]
    #[inline]
    pub fn line(&self, token: Token) -> Option<usize> {
        self.table.entry(Place::of(token)).map(|entry| std::ptr::from_ref(entry).addr())
    }

    /// Check several accesses in a row, a gather list or a burst of small messages, under one
    /// guard.
    #[must_use]
    pub fn pass<'lane>(&'lane self, lane: &'lane mut Lane) -> Pass<'lane> {
        if lane.table != self.id {
            self.adopt(lane);
        }
        Pass::new(self, lane)
    }

    #[inline(always)]
    pub(crate) fn judge_in_pass<'lane>(
        &'lane self,
        lane: &'lane mut Lane,
        access: &Access,
        now: Nanoseconds,
    ) -> Result<Grant<'lane>, Box<Denial>> {
        self.look(lane, access, now, true)
    }

    /// Judge an access without permitting a copy: for extents announced or posted ahead, of any
    /// length.
    ///
    /// A yes needs no guard, because nothing moves on the strength of it: while the token lives its
    /// facts stand still, and one that is closed at this moment is found dead by the check of the
    /// first copy. A no is said under a guard, so that its record fits together.
    ///
    /// # Errors
    /// The [`Denial`] of the first rule that the access breaks.
    pub fn probe(
        &self,
        lane: &mut Lane,
        access: &Access,
        now: Nanoseconds,
    ) -> Result<(), Box<Denial>> {
        let entry = self.table.entry(Place::of(access.token));
        if entry.is_some_and(|entry| judge(entry.head(), entry, access).is_ok()) {
            return Ok(());
        }
        self.look(lane, access, now, false).map(drop)
    }

    /// Where the first byte of an extent lies, of any length, if it may be accessed as a whole and lies in
    /// one piece. A hint, as of [`Memory::probe`]: nothing may move on the strength of it, but what the
    /// owner of the memory has permitted otherwise.
    #[must_use]
    pub fn host_of(&self, lane: &mut Lane, access: &Access) -> Option<u64> {
        if lane.table != self.id {
            self.adopt(lane);
        }
        let entry = self.table.entry(Place::of(access.token))?;
        lane.hazard.announce(access.token);
        let head = entry.head();
        let skip = judge(head, entry, access).ok().filter(|_| !head.is_many());
        let host = skip.map(|skip| entry.host().wrapping_add(skip));
        lane.hazard.cell().clear();
        host
    }

    /// `pass`: the lane has announced everything already, and keeps doing so.
    ///
    /// The unusual ways are calls with a copy of the access, and find the entry again: so the usual
    /// way, inlined, keeps both in registers.
    #[inline(always)]
    fn look<'lane>(
        &'lane self,
        lane: &'lane mut Lane,
        access: &Access,
        now: Nanoseconds,
        pass: bool,
    ) -> Result<Grant<'lane>, Box<Denial>> {
        if !pass && lane.table != self.id {
            self.adopt(lane);
        }
        if access.length == 0 {
            return Ok(nothing(lane, pass));
        }
        let Some(entry) = self.table.entry(Place::of(access.token)) else {
            return Err(self.refuse(lane, &{ *access }, None, now));
        };
        if !pass {
            lane.hazard.announce(access.token);
        }
        let head = entry.head();
        let Ok(mut skip) = judge(head, entry, access) else {
            return Err(self.refuse(lane, &{ *access }, Some(head), now));
        };
        let mut list = None;
        if !head.is_plain() {
            if head.is_many() {
                skip = self.look_closer(lane, entry, &{ *access }, now, pass)?;
                list = lane.list.as_ref().map(|(_, list)| &**list);
            } else {
                self.count_use(lane.hazard.number(), &{ *access }, head, now);
            }
        }
        let cell = (!pass).then(|| lane.hazard.cell());
        let (host, length) = (entry.host().wrapping_add(skip), access.length);
        Ok(Grant { cell, list, entry: Some(entry), host, skip, length })
    }

    /// The rest of [`Memory::look`] for memory in several segments: their list is fetched, under a
    /// lock, while nothing is announced; then everything is judged again. Afterwards the lane has the
    /// list of what was judged, or none if that has none.
    #[cold]
    #[inline(never)]
    fn look_closer(
        &self,
        lane: &mut Lane,
        entry: &Entry,
        access: &Access,
        now: Nanoseconds,
        pass: bool,
    ) -> Result<u64, Box<Denial>> {
        loop {
            let head = entry.head();
            let Ok(skip) = judge(head, entry, access) else {
                return Err(self.refuse(lane, access, Some(head), now));
            };
            let list = entry.host();
            let known = lane.list.as_ref().is_some_and(|(number, _)| *number == list);
            if known || !head.is_many() {
                if self.counters.is_some() {
                    self.count_use(lane.hazard.number(), access, head, now);
                }
                if !head.is_many() {
                    lane.list = None;
                }
                return Ok(skip);
            }
            lane.hazard.cell().clear();
            lane.list = self.lists.get(list).map(|found| (list, found));
            lane.hazard.announce(if pass { EVERYTHING } else { access.token });
        }
    }

    /// A copy was permitted, on the lane of this number.
    #[cold]
    #[inline(never)]
    fn count_use(&self, lane: u64, access: &Access, head: Head, now: Nanoseconds) {
        let counters = self.counters.as_ref();
        if let Some(counter) = counters.and_then(|it| it.counter(Place::of(access.token))) {
            counter.count(lane, access, head.rights(), now);
        }
    }

    #[cold]
    fn adopt(&self, lane: &mut Lane) {
        *lane = self.lane();
    }

    /// The record of an access that the judge has refused. `seen`: the head that it saw, under a
    /// guard that ends here. Of a live token the guard keeps the facts as they were, so the judge,
    /// asked again, names the same rule; of any other the head alone has decided.
    #[cold]
    #[inline(never)]
    fn refuse(
        &self,
        lane: &mut Lane,
        access: &Access,
        seen: Option<Head>,
        now: Nanoseconds,
    ) -> Box<Denial> {
        let entry = self.table.entry(Place::of(access.token));
        let seen = seen.zip(entry);
        let judged = seen.map(|(head, entry)| judge(head, entry, access));
        let rule = judged.and_then(Result::err).unwrap_or(Rule::LiveToken);
        let seen = seen.map(|(head, entry)| (head, entry.facts()));
        lane.hazard.cell().clear();
        let mut control = self.lock();
        let denial = self.explain(&mut control, access, rule, seen, now);
        self.review_refusal(&mut control, &denial);
        denial
    }

    /// The record of an atomic whose access was permitted, and whose [word](Grant::word) is not one: for
    /// a caller that has given the grant back, since a lock is taken.
    #[must_use]
    #[cold]
    pub fn misaligned(&self, access: &Access, now: Nanoseconds) -> Box<Denial> {
        let seen = self.table.entry(Place::of(access.token));
        let seen = seen.map(|entry| (entry.head(), entry.facts()));
        let mut control = self.lock();
        self.explain(&mut control, access, Rule::Aligned, seen, now)
    }

    /// Register. The token serves for local and remote use alike.
    ///
    /// A table that counts uses learns the region's age by [`Memory::made`].
    ///
    /// # Errors
    /// [`RegisterError`]: `Empty`, `TooLarge`, `Wraps`, or `Exhausted` if no token is free.
    pub fn register(&self, registration: &Registration<'_>) -> Result<Token, RegisterError> {
        let (layout, length) = self.measure(registration)?;
        let mut control = self.lock();
        let (place, token) = self.draw(&mut control).ok_or(RegisterError::Exhausted)?;
        let head = Head::new(token, registration.rights, &registration.scope, false);
        self.fill(place, head, registration, layout, length);
        control.enter(place, Owner::of(&registration.scope), None);
        Ok(token)
    }

    /// A region or a window was made at this moment. Noted by a table that counts uses; the others
    /// keep no time of regions. `origin`: a number of the caller's for the place in the program; 0
    /// if that is not known.
    pub fn made(&self, token: Token, origin: u32, now: Nanoseconds) {
        if let Some(counters) = &self.counters {
            let _control = self.lock();
            if self.read(token).is_some_and(|(head, _)| head.token() == token) {
                counters.made(Place::of(token), origin, now);
            }
        }
    }

    /// Give a region or a window a name, for messages. It stays until the token's slot is used
    /// again: a message about a token that was closed has it, too. `false`, and nothing happens, if
    /// `token` names nothing that is open.
    pub fn set_name(&self, token: Token, name: Name) -> bool {
        let mut control = self.lock();
        let is_open = |head: Head| matches!(head.state(), EntryState::Reserved | EntryState::Live);
        let found =
            self.read(token).is_some_and(|(head, _)| head.token() == token && is_open(head));
        if found {
            control.names.insert(Place::of(token), (token, name));
        }
        found
    }

    /// A token for memory that is not known yet, and that it will outlive: `BIND`, register, close,
    /// register something else, as often as wanted, under a token that never changes (fast
    /// registration, NDK FR-5, FR-13). Deregistering ends it.
    ///
    /// # Errors
    /// [`RegisterError::Exhausted`] if no token is free.
    pub fn reserve_region(&self, scope: Scope) -> Result<Token, RegisterError> {
        let mut control = self.lock();
        let (place, token) = self.draw(&mut control).ok_or(RegisterError::Exhausted)?;
        let head = Head::new(token, Rights::NONE, &scope, false).with_standing();
        let facts = Facts {
            base: 0,
            length: 0,
            host: 0,
            who: Facts::who(&scope),
            domain: scope.domain(),
            region: token,
            offset: 0,
        };
        if let Some(entry) = self.table.entry(place) {
            let head = head.with_counted(self.counters.is_some());
            entry.publish(head.in_state(EntryState::Reserved), &facts);
        }
        control.enter(place, Owner::of(&scope), None);
        Ok(token)
    }

    /// Give a reserved region its memory: access begins. The scope must be the one it was reserved
    /// with.
    ///
    /// # Errors
    /// [`RegisterError`]: `Empty`, `TooLarge`, `Wraps`, or `NotReserved` if `region` is not
    /// reserved in this scope or has its memory already. The region is as before then.
    pub fn fast_register(
        &self,
        region: Token,
        registration: &Registration<'_>,
    ) -> Result<(), RegisterError> {
        let (layout, length) = self.measure(registration)?;
        let _control = self.lock();
        let place = Place::of(region);
        let entry = self.table.entry(place).ok_or(RegisterError::NotReserved)?;
        let head = entry.head();
        let reserved = head.state() == EntryState::Reserved && head.is_standing();
        let same_scope = entry.facts().scope(head.scope_kind()) == registration.scope;
        if head.token() != region || !reserved || !same_scope {
            return Err(RegisterError::NotReserved);
        }
        let head = Head::new(region, registration.rights, &registration.scope, false);
        if let Some(counters) = &self.counters {
            counters.begin_again(place);
        }
        self.fill(place, head.with_standing(), registration, layout, length);
        Ok(())
    }

    /// Whether a registration makes sense, where its bytes lie, and how many they are.
    fn measure(&self, registration: &Registration<'_>) -> Result<(Layout, u64), RegisterError> {
        let layout = Layout::of(registration.segments)?;
        let length = layout.length();
        if length > self.config.largest_region {
            return Err(RegisterError::TooLarge { limit: self.config.largest_region });
        }
        if wraps(registration.base, length) {
            return Err(RegisterError::Wraps);
        }
        Ok((layout, length))
    }

    /// Fill in a region, and make it live.
    fn fill(
        &self,
        place: Place,
        head: Head,
        registration: &Registration<'_>,
        layout: Layout,
        length: u64,
    ) {
        let (host, many) = match layout {
            Layout::One(Segment { host, .. }) => (host, false),
            Layout::Many(list, _) => (self.lists.add(list), true),
        };
        let facts = Facts {
            base: registration.base,
            length,
            host,
            who: Facts::who(&registration.scope),
            domain: registration.scope.domain(),
            region: head.token(),
            offset: 0,
        };
        if let Some(entry) = self.table.entry(place) {
            let head = head.with_many(many).with_counted(self.counters.is_some());
            entry.publish(head.in_state(EntryState::Live), &facts);
        }
    }

    /// First half of Bind: the token exists and the region is busy; no access is permitted yet.
    ///
    /// # Errors
    /// [`BindError`], in this order: `Empty`, `LocalRights`, `Region`, `Domain`, `Scope`, `Right`,
    /// `Bounds`, `Exhausted`. The region is no busier then.
    pub fn reserve(&self, window: &WindowSpec, now: Nanoseconds) -> Result<Token, BindError> {
        let mut control = self.lock();
        let (head, facts) = self.may_bind(&mut control, window, now)?;
        let (place, token) = self.draw(&mut control).ok_or(BindError::Exhausted)?;
        let new = Head::new(token, window.rights, &window.scope, true)
            .with_many(head.is_many())
            .with_counted(self.counters.is_some());
        if let Some(counters) = &self.counters {
            counters.made(place, 0, now);
        }
        self.open_window(&mut control, place, new.in_state(EntryState::Reserved), &facts, now);
        Ok(token)
    }

    /// Whether a window can be bound: the head of its region, and what is to be written of it.
    #[inline(always)]
    pub(crate) fn may_bind(
        &self,
        control: &mut Control,
        window: &WindowSpec,
        now: Nanoseconds,
    ) -> Result<(Head, Facts), BindError> {
        if window.length == 0 {
            return Err(BindError::Empty);
        }
        if !Rights::REMOTE.contains(window.rights) {
            return Err(BindError::LocalRights);
        }
        let named = self.table.entry(Place::of(window.region)).map(|entry| (entry, entry.head()));
        let region = |(_, head): &(&Entry, Head)| head.is_live(window.region) && !head.is_window();
        let Some((entry, head)) = named.filter(region) else {
            let seen = named.map(|(entry, head)| (head, entry.facts()));
            let denial = self.explain(control, &window.access(), Rule::LiveToken, seen, now);
            return Err(BindError::Region(denial));
        };
        if entry.domain() != window.domain || window.scope.domain() != window.domain {
            return Err(BindError::Domain);
        }
        if !entry.scope(head).covers(&window.scope) {
            return Err(BindError::Scope);
        }
        let mut deny = |rule, wanted| {
            let seen = Some((head, entry.facts()));
            let mut denial = self.explain(control, &window.access(), rule, seen, now);
            denial.wanted = wanted;
            denial
        };
        if !head.rights().contains(Rights::BIND) {
            return Err(BindError::Right(deny(Rule::Right, Rights::BIND)));
        }
        let writes = window.rights.intersects(Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC);
        if writes && !head.rights().contains(Rights::LOCAL_WRITE) {
            return Err(BindError::Right(deny(Rule::Right, Rights::LOCAL_WRITE)));
        }
        let skip = match fit(entry.base(), entry.length(), window.base, window.length) {
            Fit::Inside(skip) => skip,
            Fit::Wraps => return Err(BindError::Bounds(deny(Rule::Wrap, Rights::BIND))),
            Fit::Outside => return Err(BindError::Bounds(deny(Rule::Bounds, Rights::BIND))),
        };
        let facts = Facts {
            base: window.base,
            length: window.length,
            // A list's number stays what it is; the offset finds the bytes in it.
            host: if head.is_many() { entry.host() } else { entry.host() + skip },
            who: Facts::who(&window.scope),
            domain: window.domain,
            region: window.region,
            offset: skip,
        };
        Ok((head, facts))
    }

    /// Write the entry of a new window, and join the lists that it belongs to.
    pub(crate) fn open_window(
        &self,
        control: &mut Control,
        place: Place,
        head: Head,
        facts: &Facts,
        now: Nanoseconds,
    ) {
        if let Some(entry) = self.table.entry(place) {
            entry.begin(now);
            entry.publish(head, facts);
        }
        let owner = Owner::new(head.scope_kind(), facts.who);
        control.enter(place, owner, Some(Place::of(facts.region)));
    }

    /// Second half of Bind: access begins. `false` if the reservation is gone.
    #[must_use]
    pub fn activate(&self, window: Token) -> bool {
        self.table.entry(Place::of(window)).is_some_and(|entry| entry.activate(window))
    }

    /// Memory that the table occupies, in bytes, everything included.
    #[must_use]
    pub fn footprint(&self) -> usize {
        let control = self.lock();
        size_of::<Memory>()
            + Table::bytes(control.issuer.slots())
            + control.bytes()
            + self.lists.bytes()
            + self.counters.as_ref().map_or(0, |_| Counters::bytes(control.issuer.slots()))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Make a chunk of slots at a position of the directory.
    #[cold]
    #[inline(never)]
    fn grow(&self, control: &mut Control, position: usize) {
        if self.table.add_chunk(position) {
            control.add_chunk(position);
            if let Some(counters) = &self.counters {
                counters.add_chunk(position);
            }
        }
    }

    /// A new token and its place.
    pub(crate) fn draw(&self, control: &mut Control) -> Option<(Place, Token)> {
        if let Some(position) = control.issuer.wants_chunk() {
            self.grow(control, position);
        }
        let place = control.issuer.take()?;
        let token = Issuer::issue(place, &mut control.ledger(place).cycle);
        if let Some(counters) = &self.counters {
            counters.begin(place);
        }
        if !control.names.is_empty() {
            control.names.remove(&place);
        }
        Some((place, token))
    }
}

/// The permission to touch no byte.
fn nothing(lane: &mut Lane, pass: bool) -> Grant<'_> {
    if !pass {
        lane.hazard.cell().clear();
    }
    Grant { cell: None, list: None, entry: None, host: 0, skip: 0, length: 0 }
}

impl WindowSpec {
    /// The Bind, as an access to its region, for records.
    fn access(&self) -> Access {
        let mut actor = self.scope.actor();
        actor.domain = self.domain;
        let (address, length) = (self.base, self.length);
        Access { actor, purpose: Purpose::Bind, token: self.region, address, length }
    }
}
