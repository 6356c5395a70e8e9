//! What the parts of one adapter share, and its background thread.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use transom_memory::{Memory, QueuePairId};
use transom_wire::Time;

use super::admission::UnansweredConnects;
use super::guess_limiter::TokenGuessLimiter;
use super::link::Link;
use super::listener::Listener;
use super::options::Options;
use super::path::Places;
use super::qp::Qp;
use super::query_budget::KernelQueryBudget;
use super::ready_set::ReadySet;
use super::removal::Removal;
use super::tcp::{ALONE, AMONG_OTHERS};
use super::timers::Timers;
use super::workers::Workers;
use crate::sys::{self, AddressWatch, Alarm, Doorbell, Epoll};
use crate::{DenialLog, DenialRecord, Denials};

/// Records of refusals that an adapter keeps.
const DENIALS: usize = 1024;
const BELL: u64 = 0;
const ALARM: u64 = 1;
pub(super) const READY_SET: u64 = 2;
pub(super) const ADDRESS: u64 = 3;
const UNACCEPTED: u64 = 4;
const FIRST: u64 = 5;

/// Unaccepted links that are ready have so long in each round: accepted ones do not wait for
/// all that come and go.
const UNACCEPTED_TIME: Duration = Duration::from_micros(10);

/// A link is alone when no other was ready in so many rounds: one that alternates with it may just be away.
const ROUNDS_ALONE: u32 = 64;

/// Something that epoll and timers know by a key.
#[derive(Clone, Debug)]
enum Thing {
    Link(Arc<Link>),
    Listener(Arc<Listener>),
}

pub(crate) struct Shared {
    /// Connects that nobody has answered.
    pub(super) unanswered: UnansweredConnects,
    /// Links that share memory.
    pub(crate) sharing: Places,
    pub(crate) guess_limiter: TokenGuessLimiter,
    pub(crate) query_budget: KernelQueryBudget,
    pub(crate) options: Options,
    pub(crate) memory: Memory,
    pub(crate) workers: Workers,
    /// Links, the descriptors of `quiet`, and `unaccepted` as one descriptor among them.
    pub(crate) epoll: Epoll,
    /// Ports, and links that nobody has accepted yet.
    pub(crate) unaccepted: Epoll,
    /// Key of the only link that was ready in the last round, 0 if there were several.
    last: AtomicU64,
    /// In how many rounds before it was the only one, too.
    alone: AtomicU32,
    /// What the background thread waits for while others look at the links.
    quiet: Epoll,
    pub(super) ready_set: ReadySet,
    denials: Mutex<DenialLog>,
    bell: Doorbell,
    alarm: Alarm,
    timers: Mutex<Timers>,
    things: RwLock<HashMap<u64, Thing>>,
    queue_pairs: Mutex<HashMap<u32, Weak<Qp>>>,
    next_key: AtomicU64,
    stopping: AtomicBool,
    pub(super) removal: Removal,
    /// Its address has gone.
    pub(super) removed: AtomicBool,
    /// The process that opened it.
    generation: u64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Denials for Shared {
    fn record(&self, record: DenialRecord) -> u64 {
        self.denials().record(record)
    }

    fn explain(&self, _id: u64) -> Option<String> {
        None
    }
}

impl Shared {
    /// Everything, and a background thread that runs until [`Shared::stop`].
    /// `watch`: tells when the address goes.
    pub(crate) fn start(
        options: Options,
        memory: Memory,
        watch: Option<AddressWatch>,
    ) -> std::io::Result<Arc<Shared>> {
        let shared = Arc::new(Shared {
            ready_set: ReadySet::new(options.lease),
            guess_limiter: TokenGuessLimiter::new(options.guesses),
            query_budget: KernelQueryBudget::new(sys::now()),
            options,
            workers: Workers::new(&memory),
            memory,
            epoll: Epoll::new()?,
            unaccepted: Epoll::new()?,
            last: AtomicU64::new(0),
            alone: AtomicU32::new(0),
            quiet: Epoll::new()?,
            denials: Mutex::new(DenialLog::new(DENIALS)),
            unanswered: UnansweredConnects::default(),
            sharing: Places::default(),
            bell: Doorbell::new()?,
            alarm: Alarm::new()?,
            timers: Mutex::default(),
            things: RwLock::default(),
            queue_pairs: Mutex::default(),
            next_key: AtomicU64::new(FIRST),
            stopping: AtomicBool::new(false),
            removal: Removal::new(watch),
            removed: AtomicBool::new(false),
            generation: sys::fork_generation(),
        });
        for set in [&shared.epoll, &shared.quiet] {
            set.add_always(&shared.bell, BELL)?;
            set.add_always(&shared.alarm, ALARM)?;
            if let Some(watch) = shared.removal.watch() {
                set.add_always(watch.fd(), ADDRESS)?;
            }
        }
        shared.epoll.add_always(shared.unaccepted.fd(), UNACCEPTED)?;
        let background = shared.clone();
        sys::spawn_quiet("transom", move || background.run())
            .map_err(|e| std::io::Error::new(e.kind(), format!("no thread could be had: {e}")))?;
        Ok(shared)
    }

    /// Whether this is a forked child: nothing here may be touched then, its locks included.
    pub(crate) fn is_foreign(&self) -> bool {
        self.generation != sys::fork_generation()
    }

    pub(crate) fn denials(&self) -> MutexGuard<'_, DenialLog> {
        self.denials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- links, ports, queue pairs ----------------------------------------------------------

    pub(crate) fn new_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    /// Register a link: among the unaccepted ones, or not.
    pub(crate) fn add_link(&self, link: &Arc<Link>, unaccepted: bool) -> std::io::Result<()> {
        let set = if unaccepted { &self.unaccepted } else { &self.epoll };
        set.add(link.fd(), link.key)?;
        self.add(link.key, Thing::Link(link.clone()));
        Ok(())
    }

    pub(crate) fn add_listener(&self, listener: &Arc<Listener>) -> std::io::Result<()> {
        self.unaccepted.add(listener.fd(), listener.key)?;
        self.add(listener.key, Thing::Listener(listener.clone()));
        self.unaccepted.arm(listener.fd(), listener.key, true, false)
    }

    fn add(&self, key: u64, thing: Thing) {
        self.things.write().unwrap_or_else(PoisonError::into_inner).insert(key, thing);
    }

    /// Forget a link or a port.
    pub(crate) fn remove(&self, key: u64) {
        self.timers().forget(key);
        // Dropped with the lock released: it may be the last reference.
        let _thing = self.things.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    fn thing(&self, key: u64) -> Option<Thing> {
        self.things.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    pub(crate) fn link(&self, key: u64) -> Option<Arc<Link>> {
        match self.thing(key) {
            Some(Thing::Link(link)) => Some(link),
            _ => None,
        }
    }

    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        let things = self.things.read().unwrap_or_else(PoisonError::into_inner);
        let link = |thing: &Thing| match thing {
            Thing::Link(link) => Some(link.clone()),
            Thing::Listener(_) => None,
        };
        things.values().filter_map(link).collect()
    }

    pub(super) fn listeners(&self) -> Vec<Arc<Listener>> {
        let things = self.things.read().unwrap_or_else(PoisonError::into_inner);
        let listener = |thing: &Thing| match thing {
            Thing::Listener(listener) => Some(listener.clone()),
            Thing::Link(_) => None,
        };
        things.values().filter_map(listener).collect()
    }

    /// A number for a queue pair: random, 24 bits, nobody else's.
    pub(crate) fn add_queue_pair(
        &self,
        make: impl FnOnce(QueuePairId) -> Arc<Qp>,
    ) -> std::io::Result<Arc<Qp>> {
        let mut all = self.queue_pairs.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= 1 << 22 {
            return Err(rustix::io::Errno::NOBUFS.into());
        }
        loop {
            let seed = sys::random_seed()?;
            let number = u32::from_ne_bytes([seed[0], seed[1], seed[2], 0]);
            // 0 and 1 name special queue pairs elsewhere.
            if number > 1 && !all.contains_key(&number) {
                let qp = make(QueuePairId(number));
                all.insert(number, Arc::downgrade(&qp));
                return Ok(qp);
            }
        }
    }

    pub(crate) fn remove_queue_pair(&self, number: QueuePairId) {
        self.queue_pairs.lock().unwrap_or_else(PoisonError::into_inner).remove(&number.0);
    }

    pub(crate) fn queue_pair(&self, number: QueuePairId) -> Option<Arc<Qp>> {
        let all = self.queue_pairs.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&number.0).and_then(Weak::upgrade)
    }

    // ---- time -------------------------------------------------------------------------------

    fn timers(&self) -> MutexGuard<'_, Timers> {
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Have the background thread look at `key` at `when`, if it does not do so earlier anyway.
    pub(crate) fn note(&self, key: u64, when: Time) {
        let mut timers = self.timers();
        if timers.note(key, when) {
            self.alarm.set(when);
        }
    }

    // ---- the background thread --------------------------------------------------------------

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.bell.ring();
        self.dismiss_ready_set();
    }

    fn run(&self) {
        let mut ready = Vec::new();
        let mut due = Vec::new();
        while !self.stopping.load(Ordering::Acquire) {
            ready.clear();
            let set = if self.ready_set_has_poller() { &self.quiet } else { &self.epoll };
            if set.wait(&mut ready, None).is_err() {
                return; // somebody has closed our descriptor; every link is dead to us
            }
            if ready.contains(&BELL) {
                self.bell.silence();
            }
            if ready.contains(&ALARM) {
                self.alarm.silence();
                let mut timers = self.timers();
                timers.due(sys::now(), &mut due);
                if let Some(next) = timers.next() {
                    self.alarm.set(next);
                }
            }
            if ready.contains(&ADDRESS) {
                self.addresses_changed();
            }
            self.are_ready(ready.iter().chain(&due).copied());
            for key in due.drain(..) {
                match key {
                    READY_SET => self.ready_set_is_due(),
                    ADDRESS => self.check_address(),
                    _ => {}
                }
                match self.thing(key) {
                    Some(Thing::Link(link)) => link.due(sys::now()),
                    Some(Thing::Listener(listener)) => listener.accept(),
                    None => {}
                }
            }
            for key in ready.iter().filter(|key| **key >= UNACCEPTED) {
                self.ready(*key, sys::now());
            }
        }
    }

    /// These are ready, and will be served one after the other.
    pub(super) fn are_ready(&self, keys: impl Iterator<Item = u64>) {
        let mut keys = keys.filter(|key| *key >= UNACCEPTED);
        let Some(first) = keys.next() else { return };
        let only = if keys.all(|key| key == first) { first } else { 0 };
        let before = self.last.swap(only, Ordering::Relaxed);
        let alone = if only != 0 && only == before {
            self.alone.load(Ordering::Relaxed).saturating_add(1)
        } else {
            0
        };
        self.alone.store(alone, Ordering::Relaxed);
    }

    /// What one pass over a link may cost, in bytes.
    pub(super) fn pass_budget(&self) -> usize {
        if self.alone.load(Ordering::Relaxed) < ROUNDS_ALONE { AMONG_OTHERS } else { ALONE }
    }

    /// Serve some of the unaccepted links that are ready. The others are still ready in the next round.
    fn unaccepted_are_ready(&self, now: Time) {
        let end = now.after(UNACCEPTED_TIME);
        let mut key = [0];
        while self.unaccepted.look(&mut key) > 0 {
            self.ready(key[0], now);
            if sys::now() >= end {
                break;
            }
        }
    }

    /// A link or a listener is ready, or unaccepted links are.
    pub(super) fn ready(&self, key: u64, now: Time) {
        if key == UNACCEPTED {
            return self.unaccepted_are_ready(now);
        }
        match self.thing(key) {
            Some(Thing::Link(link)) => link.ready(now),
            Some(Thing::Listener(listener)) => listener.accept(),
            None => {}
        }
    }
}
