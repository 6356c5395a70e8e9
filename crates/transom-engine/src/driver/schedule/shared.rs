//! The state that the parts of one adapter share, and its background thread.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use transom_memory::{Memory, QueuePairId};
use transom_wire::Time;

use super::ready_set::ReadySet;
use super::regions::SharedRegions;
use super::removal::Removal;
use super::source::{ReceiveWaiter, Source};
use super::spin::SpinWindow;
use super::timers::Timers;
use super::traffic::TrafficCount;
use super::workers::Workers;
use crate::driver::capture::Capture;
use crate::driver::config::options::Options;
use crate::driver::config::path::Places;
use crate::driver::limits::admission::{Admission, UnansweredConnects};
use crate::driver::limits::guess_limiter::TokenGuessLimiter;
use crate::driver::limits::query_budget::KernelQueryBudget;
use crate::driver::limits::refused_connects::RefusedConnects;
use crate::sys::{self, AddressWatch, Alarm, Epoll, Fd, ReleaseKeeper};
use crate::{DenialCause, DenialLog, DenialRecord, Denials, Status};

/// Records of refusals that an adapter keeps.
const DENIALS: usize = 1024;
const ALARM: u64 = 1;
const READY_SET: u64 = 2;
const ADDRESS: u64 = 3;
const UNACCEPTED: u64 = 4;
/// The key of the first link or listener.
pub(super) const FIRST: u64 = 5;

/// Unaccepted links that are ready have so long in each round: accepted ones do not wait for
/// all that come and go.
const UNACCEPTED_TIME: Duration = Duration::from_micros(10);

/// A link is alone when no other was ready in so many rounds: one that alternates with it may just be away.
const ROUNDS_ALONE: u32 = 64;

/// Bytes that one pass may receive, and may send, if no other link is ready.
const ALONE: usize = 1024 * 1024;
/// Bytes of a pass while others wait: no more than a busy peer has ready at any moment, or peers that
/// always have more would get more.
const AMONG_OTHERS: usize = 128 * 1024;

pub(crate) struct Shared {
    /// Connects without an answer.
    pub(crate) unanswered: UnansweredConnects,
    /// Peers half-way through start-up, at all listeners.
    pub(crate) admission: Admission,
    /// Links that share memory.
    pub(crate) sharing: Places,
    pub(crate) regions: SharedRegions,
    pub(crate) refused_connects: RefusedConnects,
    pub(crate) guess_limiter: TokenGuessLimiter,
    pub(crate) query_budget: KernelQueryBudget,
    pub(crate) options: Options,
    pub(crate) capture: Option<Arc<Capture>>,
    pub(crate) memory: Memory,
    pub(crate) workers: Workers,
    pub(crate) traffic: TrafficCount,
    /// Links, the descriptors of `quiet`, and `unaccepted` as one descriptor among them.
    pub(crate) epoll: Epoll,
    /// Listening sockets, and links that are not accepted yet.
    pub(crate) unaccepted: Epoll,
    /// Key of the only link that was ready in the last round, 0 if there were several.
    last: AtomicU64,
    /// In how many rounds before it was the only one, too.
    alone: AtomicU32,
    /// The set that the background thread waits for while other threads look at the links.
    quiet: Epoll,
    pub(crate) ready_set: ReadySet,
    denials: Mutex<DenialLog>,
    alarm: Alarm,
    timers: Mutex<Timers>,
    sources: RwLock<HashMap<u64, Arc<dyn Source>>>,
    queue_pairs: Mutex<HashMap<u32, Weak<dyn ReceiveWaiter>>>,
    next_key: AtomicU64,
    pub(super) stopping: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    pub(crate) removal: Removal,
    /// A thread of its own releases what peers of this host have made.
    _releases: Option<ReleaseKeeper>,
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

/// Refused calls that a process prints at most.
const MOST_PRINTED: u32 = 20;

impl Shared {
    /// Keep the record of a call that is refused at once, and print it if that is wanted.
    #[cold]
    pub(crate) fn refuse_call(&self, queue_pair: Option<QueuePairId>, cause: DenialCause) {
        static PRINTED: AtomicU32 = AtomicU32::new(0);
        if self.options.explain_calls {
            match PRINTED.fetch_add(1, Ordering::Relaxed) {
                0..MOST_PRINTED => transom_os::say!("transom: {cause}"),
                MOST_PRINTED => {
                    transom_os::say!("transom: further refused calls are counted (transom show)")
                }
                _ => {}
            }
        }
        let (time, peer, request) = (sys::now(), None, None);
        self.denials().record(DenialRecord { time, peer, queue_pair, request, cause });
    }

    /// This process has no descriptor for what a peer hands over, or for one more connection.
    #[cold]
    pub(crate) fn say_starved(&self) {
        static SAID: AtomicBool = AtomicBool::new(false);
        if self.options.explain_calls && !SAID.swap(true, Ordering::Relaxed) {
            transom_os::say!(
                "transom: this process has no descriptor left (`ulimit -n`): connections, and memory of peers, \
                 wait until it has"
            );
        }
    }

    /// Everything, and a background thread that runs until [`Shared::stop`].
    /// `watch`: tells when the address goes.
    pub(crate) fn start(
        options: Options,
        memory: Memory,
        watch: Option<AddressWatch>,
        capture: Option<Arc<Capture>>,
    ) -> std::io::Result<Arc<Shared>> {
        let no_thread = |e: std::io::Error| {
            std::io::Error::new(e.kind(), format!("no thread could be had: {e}"))
        };
        let releases = options.tcp_only().is_none().then(ReleaseKeeper::new);
        let shared = Arc::new(Shared {
            _releases: releases.transpose().map_err(no_thread)?,
            ready_set: ReadySet::new(options.lease),
            refused_connects: RefusedConnects::default(),
            guess_limiter: TokenGuessLimiter::new(options.guesses),
            query_budget: KernelQueryBudget::new(sys::now()),
            admission: Admission::new(options.half_open),
            options,
            capture,
            workers: Workers::new(),
            traffic: TrafficCount::default(),
            memory,
            epoll: Epoll::new()?,
            unaccepted: Epoll::new()?,
            last: AtomicU64::new(0),
            alone: AtomicU32::new(0),
            quiet: Epoll::new()?,
            denials: Mutex::new(DenialLog::new(DENIALS)),
            unanswered: UnansweredConnects::default(),
            sharing: Places::default(),
            regions: SharedRegions::default(),
            alarm: Alarm::new()?,
            timers: Mutex::default(),
            sources: RwLock::default(),
            queue_pairs: Mutex::default(),
            next_key: AtomicU64::new(FIRST),
            stopping: AtomicBool::new(false),
            thread: Mutex::default(),
            removal: Removal::new(watch),
            generation: sys::fork_generation(),
        });
        for set in [&shared.epoll, &shared.quiet] {
            set.add_always(&shared.alarm, ALARM)?;
            if let Some(watch) = shared.removal.watch() {
                set.add_always(watch.fd(), ADDRESS)?;
            }
        }
        shared.epoll.add_always(shared.unaccepted.fd(), UNACCEPTED)?;
        let background = shared.clone();
        let thread = sys::spawn_quiet("transom", move || background.run()).map_err(no_thread)?;
        *shared.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(shared)
    }

    /// Whether this is a forked child: nothing here may be touched then, its locks included.
    pub(crate) fn is_foreign(&self) -> bool {
        self.generation != sys::fork_generation()
    }

    pub(crate) fn denials(&self) -> MutexGuard<'_, DenialLog> {
        self.denials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- sources and queue pairs ------------------------------------------------------------

    pub(crate) fn new_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    /// Register a source by its descriptor: among the unaccepted ones, or not.
    pub(crate) fn add(
        &self,
        key: u64,
        fd: &Fd,
        source: Arc<dyn Source>,
        unaccepted: bool,
    ) -> std::io::Result<()> {
        let set = if unaccepted { &self.unaccepted } else { &self.epoll };
        set.add(fd, key)?;
        self.sources.write().unwrap_or_else(PoisonError::into_inner).insert(key, source);
        Ok(())
    }

    /// Register a source that has no descriptor, for the timers.
    pub(crate) fn add_timer(&self, key: u64, source: Arc<dyn Source>) {
        self.sources.write().unwrap_or_else(PoisonError::into_inner).insert(key, source);
    }

    /// Forget a source.
    pub(crate) fn remove(&self, key: u64) {
        self.timers().forget(key);
        // Dropped with the lock released: it may be the last reference.
        let _source = self.sources.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    pub(crate) fn source(&self, key: u64) -> Option<Arc<dyn Source>> {
        self.sources.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    pub(crate) fn sources(&self) -> Vec<Arc<dyn Source>> {
        self.sources.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// A number for a queue pair: the one that was asked for, or a random one, of 24 bits, of no other.
    pub(crate) fn add_queue_pair<Q: ReceiveWaiter + 'static>(
        &self,
        asked: Option<QueuePairId>,
        make: impl FnOnce(QueuePairId) -> Arc<Q>,
    ) -> Result<Arc<Q>, Status> {
        // 0 and 1 name special queue pairs elsewhere.
        if asked.is_some_and(|number| number.0 <= 1 || number.0 >= 1 << 24) {
            return Err(Status::InvalidParameter(0));
        }
        let mut all = self.queue_pairs.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= 1 << 22 {
            return Err(Status::InsufficientResources);
        }
        let number = loop {
            let number = match asked {
                Some(number) => number.0,
                None => {
                    let seed = sys::random_seed().map_err(|_| Status::InsufficientResources)?;
                    u32::from_ne_bytes([seed[0], seed[1], seed[2], 0])
                }
            };
            match all.contains_key(&number) {
                false if number > 1 => break number,
                true if asked.is_some() => return Err(Status::SharingViolation),
                _ => {}
            }
        };
        let qp = make(QueuePairId(number));
        let waiter: Arc<dyn ReceiveWaiter> = qp.clone();
        all.insert(number, Arc::downgrade(&waiter));
        Ok(qp)
    }

    pub(crate) fn remove_queue_pair(&self, number: QueuePairId) {
        self.queue_pairs.lock().unwrap_or_else(PoisonError::into_inner).remove(&number.0);
    }

    /// Receives were posted to a shared queue on which this queue pair waited.
    pub(crate) fn receives_posted(&self, number: QueuePairId) {
        let waiter = {
            let all = self.queue_pairs.lock().unwrap_or_else(PoisonError::into_inner);
            all.get(&number.0).and_then(Weak::upgrade)
        };
        if let Some(waiter) = waiter {
            waiter.receives_posted();
        }
    }

    // ---- time -------------------------------------------------------------------------------

    fn timers(&self) -> MutexGuard<'_, Timers> {
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Have the background thread look at `key` at `when`, if it does not do so earlier anyway.
    pub(crate) fn note(&self, key: u64, when: Time) {
        let mut timers = self.timers();
        if timers.note(key, when) && !self.stopping.load(Ordering::Acquire) {
            self.alarm.set(when);
        }
    }

    /// Sets the alarm for the end of a lease of the ready set.
    pub(crate) fn ready_set_alarm(&self) -> impl FnOnce(Time) {
        |when| self.note(READY_SET, when)
    }

    // ---- the adapter's address --------------------------------------------------------------

    /// Whether the address has gone. From then on, what begins while this says `false` is ended by
    /// [`Removal::check`], which sets this before it looks for what is there.
    pub(crate) fn is_removed(&self) -> bool {
        self.removal.is_over()
    }

    /// End everything if the address has gone.
    pub(crate) fn check_address(&self) {
        if let Some(again) = self.removal.check(|| self.sources()) {
            self.note(ADDRESS, sys::now().after(again));
        }
    }

    // ---- the background thread --------------------------------------------------------------

    /// Have the background thread end. The alarm wakes it: setting one fails on any other file,
    /// which may have the number if the program has closed ours (Verbs V149).
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let timers = self.timers();
        self.alarm.set(sys::now());
        drop(timers);
        self.ready_set.dismiss();
    }

    /// Stop, and wait until the background thread has ended, unless it is the one that calls. A thread
    /// whose descriptors the program has closed cannot be woken (Verbs V149), so the wait has an end.
    pub(crate) fn join(&self) {
        const MOST: Duration = Duration::from_millis(500);
        const PAUSE: Duration = Duration::from_micros(200);
        self.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let own = std::thread::current().id();
        let Some(thread) = thread.filter(|thread| thread.thread().id() != own) else { return };
        let end = sys::now().after(MOST);
        while !thread.is_finished() {
            if sys::now() >= end {
                return;
            }
            sys::pause(PAUSE);
        }
        let _ = thread.join();
    }

    fn run(&self) {
        let mut ready = Vec::new();
        let mut due = Vec::new();
        let mut window = SpinWindow::new(self.options.spin, sys::processors());
        while !self.stopping.load(Ordering::Acquire) {
            ready.clear();
            let polled = self.ready_set.has_poller(self.ready_set_alarm());
            let set = if polled { &self.quiet } else { &self.epoll };
            let asleep = sys::now();
            if set.wait(&mut ready, None).is_err() {
                return; // other code has closed our descriptor: no link can be served
            }
            if ready.iter().any(|key| *key >= FIRST) {
                window.slept(sys::now().since(asleep));
            }
            if ready.contains(&ALARM) {
                self.alarm.silence();
                let mut timers = self.timers();
                timers.due(sys::now(), &mut due);
                if let Some(next) = timers.next() {
                    self.alarm.set(next);
                }
            }
            if ready.contains(&ADDRESS) && self.removal.has_news() {
                self.check_address();
            }
            self.are_ready(ready.iter().chain(&due).copied());
            // Before limits are judged: what a peer has sent meets them, however late this thread has its turn.
            for key in ready.iter().filter(|key| **key >= UNACCEPTED) {
                self.ready(*key, sys::now());
            }
            for key in due.drain(..) {
                match key {
                    READY_SET => self.ready_set.is_due(),
                    ADDRESS => self.check_address(),
                    _ => {}
                }
                if let Some(source) = self.source(key) {
                    source.due(sys::now());
                }
            }
            self.look_on(&mut window, &ready);
        }
    }

    /// These are ready, and will be served one after the other.
    pub(crate) fn are_ready(&self, keys: impl Iterator<Item = u64>) {
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

    /// The cost that one pass over a link may have, in bytes.
    pub(crate) fn pass_budget(&self) -> usize {
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
    pub(crate) fn ready(&self, key: u64, now: Time) {
        if key == UNACCEPTED {
            return self.unaccepted_are_ready(now);
        }
        if let Some(source) = self.source(key) {
            source.ready(now);
        }
    }
}
