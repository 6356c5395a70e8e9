//! Waiting: sets of sockets for the background thread, a few sockets for a thread that waits for itself,
//! and a doorbell to wake either (`doorbell.rs`).
//!
//! Every wait is one `WSAPoll` over the sockets that are armed at that moment and over the waiting thread's
//! doorbell. Whatever changes a set (arming, an alarm) rings the doorbells of the threads that wait for it,
//! and they begin anew. So a wait costs time in the number of armed sockets, unlike that of Linux.
//!
//! Invariant: no socket is closed while a thread polls it, because its number may be another socket's at
//! once (and Wine 8's server ends). A poll keeps its sockets alive, and taking an armed socket out of a set
//! wakes the threads that poll it.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::os::windows::io::AsRawSocket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use socket2::Socket;
use transom_wire::Time;
use windows_sys::Win32::Networking::WinSock::{
    POLLRDNORM, POLLWRNORM, SOCKET, SOCKET_ERROR, WSAPOLLFD, WSAPoll,
};

use super::doorbell::{Doorbell, own_bell};
use super::fd::{AsFd, FdKind};
use super::{Fd, now, perturb};

/// An alarm so near is waited for by looking again and again: the system's timers are a thousand times
/// as coarse as an owed acknowledgement is patient.
const NEAR: Duration = Duration::from_micros(100);
/// A thread that was woken to let a socket go does so by then, unless the machine is overloaded; then the
/// socket is closed a little later.
const LONGEST_REMOVAL: Duration = Duration::from_millis(100);
const NEVER: u64 = u64::MAX;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// ---- sets ------------------------------------------------------------------------------------

/// When a socket of a set is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interest {
    Disarmed,
    /// Until it fires: readable, writable.
    Once(bool, bool),
    /// Whenever it is readable.
    Always,
}

impl Interest {
    fn events(self) -> Option<i16> {
        match self {
            Interest::Disarmed => None,
            Interest::Once(read, write) => Some(events(read, write)),
            Interest::Always => Some(POLLRDNORM),
        }
    }
}

fn events(read: bool, write: bool) -> i16 {
    (if read { POLLRDNORM } else { 0 }) | (if write { POLLWRNORM } else { 0 })
}

#[derive(Debug)]
struct Member {
    socket: Weak<Socket>,
    key: u64,
    interest: Interest,
}

#[derive(Debug, Default)]
struct Members {
    sockets: BTreeMap<SOCKET, Member>,
    sets: Vec<(Arc<Set>, u64)>,
    alarms: Vec<(Arc<AlarmClock>, u64)>,
    /// The socket that fired last: the next look begins behind it, so that none is overlooked for long.
    last: SOCKET,
}

/// The state of an [`Epoll`].
#[derive(Debug, Default)]
pub(super) struct Set {
    members: Mutex<Members>,
    /// The threads that wait now.
    waiting: Mutex<Vec<Doorbell>>,
    /// The sets that this one is a member of.
    parents: Mutex<Vec<Weak<Set>>>,
}

impl Set {
    /// Have every thread that waits for this set look anew.
    fn changed(&self) {
        for bell in lock(&self.waiting).iter() {
            bell.ring();
        }
        let parents = lock(&self.parents).clone();
        for parent in parents.iter().filter_map(Weak::upgrade) {
            parent.changed();
        }
    }

    /// Add what is armed here to what is looked at. Returns when the first alarm goes off.
    fn gather(&self, into: &mut Polled) -> u64 {
        let members = lock(&self.members);
        for member in members.sockets.values() {
            if let (Some(events), Some(socket)) =
                (member.interest.events(), member.socket.upgrade())
            {
                into.add(socket, events);
            }
        }
        let own = members.alarms.iter().map(|(alarm, _)| alarm.when.load(Ordering::Acquire));
        let first = own.min().unwrap_or(NEVER);
        members.sets.iter().map(|(set, _)| set.gather(into)).min().unwrap_or(NEVER).min(first)
    }

    /// Whether something of this set has fired.
    fn is_ready(&self, fired: &BTreeMap<SOCKET, i16>) -> bool {
        let members = lock(&self.members);
        let armed = |(socket, member): (&SOCKET, &Member)| {
            member.interest != Interest::Disarmed && fired.contains_key(socket)
        };
        members.sockets.iter().any(armed)
            || members.alarms.iter().any(|(alarm, _)| alarm.is_off())
            || members.sets.iter().any(|(set, _)| set.is_ready(fired))
    }

    /// Take the keys of what has fired, as many as there is room for.
    fn take(&self, fired: &BTreeMap<SOCKET, i16>, room: usize, into: &mut Vec<u64>) {
        let mut members = lock(&self.members);
        let end = into.len() + room;
        let off = members.alarms.iter().filter(|(alarm, _)| alarm.is_off()).map(|(_, key)| *key);
        into.extend(off);
        let sets = members.sets.iter().filter(|(set, _)| set.is_ready(fired));
        into.extend(sets.map(|(_, key)| *key));
        let behind = (Bound::Excluded(members.last), Bound::Unbounded);
        let order: Vec<SOCKET> =
            fired.range(behind).chain(fired.range(..=members.last)).map(|(s, _)| *s).collect();
        for socket in order {
            if into.len() >= end {
                break;
            }
            // Another thread may have taken it meanwhile.
            if let Some(member) = members.sockets.get_mut(&socket) {
                match member.interest {
                    Interest::Disarmed => continue,
                    Interest::Once(..) => member.interest = Interest::Disarmed,
                    Interest::Always => {}
                }
                into.push(member.key);
                members.last = socket;
            }
        }
        into.truncate(end);
    }
}

/// A set of sockets to wait for, each of which fires once and then sleeps until it is armed again.
#[derive(Debug)]
pub struct Epoll(Fd);

impl Epoll {
    /// An empty set.
    pub fn new() -> io::Result<Epoll> {
        Ok(Epoll(Fd(FdKind::Set(Arc::default()))))
    }

    fn set(&self) -> io::Result<&Arc<Set>> {
        match &self.0.0 {
            FdKind::Set(set) => Ok(set),
            FdKind::Socket(_) | FdKind::Alarm(_) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn put(&self, fd: &Fd, key: u64, interest: Interest) -> io::Result<()> {
        let set = self.set()?;
        match &fd.0 {
            FdKind::Socket(socket) => {
                let member = Member { socket: Arc::downgrade(socket), key, interest };
                lock(&set.members).sockets.insert(number(socket), member);
            }
            FdKind::Set(inner) => {
                lock(&inner.parents).push(Arc::downgrade(set));
                lock(&set.members).sets.push((inner.clone(), key));
            }
            FdKind::Alarm(alarm) => {
                lock(&alarm.sets).push(Arc::downgrade(set));
                lock(&set.members).alarms.push((alarm.clone(), key));
            }
        }
        if interest != Interest::Disarmed {
            set.changed();
        }
        Ok(())
    }

    /// Add a socket under `key`, disarmed.
    pub fn add(&self, fd: impl AsFd, key: u64) -> io::Result<()> {
        self.put(fd.as_fd(), key, Interest::Disarmed)
    }

    /// Add something under `key` that fires whenever it is readable, and need not be armed.
    pub fn add_always(&self, fd: impl AsFd, key: u64) -> io::Result<()> {
        self.put(fd.as_fd(), key, Interest::Always)
    }

    /// Arm for one event. An event that is already there fires at once.
    pub fn arm(&self, fd: impl AsFd, key: u64, read: bool, write: bool) -> io::Result<()> {
        perturb();
        let FdKind::Socket(socket) = &fd.as_fd().0 else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let set = self.set()?;
        match lock(&set.members).sockets.get_mut(&number(socket)) {
            Some(member) => (member.key, member.interest) = (key, Interest::Once(read, write)),
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        set.changed();
        Ok(())
    }

    /// Forget a socket. Harmless if it is unknown.
    pub fn remove(&self, fd: impl AsFd) {
        let (FdKind::Socket(socket), Ok(set)) = (&fd.as_fd().0, self.set()) else { return };
        let member = lock(&set.members).sockets.remove(&number(socket));
        if member.is_none() {
            return;
        }
        // Threads that poll it end that at once, holding no lock of the driver's. Its owner may close it
        // afterwards, and then it is closed.
        let end = now().after(LONGEST_REMOVAL);
        set.changed();
        while Arc::strong_count(socket) > 1 && now() < end {
            std::thread::yield_now();
        }
    }

    /// The keys of what is ready now; how many.
    pub fn look(&self, into: &mut [u64]) -> usize {
        let Ok(set) = self.set() else { return 0 };
        let mut polled = Polled::default();
        set.gather(&mut polled);
        let fired = polled.poll(0);
        let mut keys = Vec::new();
        set.take(&fired, into.len(), &mut keys);
        for (place, key) in into.iter_mut().zip(&keys) {
            *place = *key;
        }
        keys.len()
    }

    /// The set itself: readable while something in it is ready.
    pub fn fd(&self) -> &Fd {
        &self.0
    }

    /// Wait until something is ready or the time has passed (rounded up to milliseconds), and append the
    /// keys. A change of the set ends the wait early with nothing.
    pub fn wait(&self, into: &mut Vec<u64>, limit: Option<Duration>) -> io::Result<()> {
        let set = self.set()?;
        let bell = own_bell()?;
        let fired = wait(&[set], Polled::default(), &bell, limit)?;
        bell.silence();
        set.take(&fired, 64, into);
        Ok(())
    }
}

fn number(socket: &Socket) -> SOCKET {
    socket.as_raw_socket() as SOCKET
}

// ---- waiting ---------------------------------------------------------------------------------

/// Sockets to look at, which are kept alive.
#[derive(Default)]
struct Polled {
    fds: Vec<WSAPOLLFD>,
    sockets: Vec<Arc<Socket>>,
}

impl Polled {
    fn add(&mut self, socket: Arc<Socket>, events: i16) {
        self.fds.push(WSAPOLLFD { fd: number(&socket), events, revents: 0 });
        self.sockets.push(socket);
    }

    /// The events of the sockets, by their numbers.
    fn poll(&mut self, millis: i32) -> BTreeMap<SOCKET, i16> {
        if self.fds.is_empty() {
            return BTreeMap::new();
        }
        let count = u32::try_from(self.fds.len()).unwrap_or(u32::MAX);
        // SAFETY: as many structures as are said, written during the call.
        let ready = unsafe { WSAPoll(self.fds.as_mut_ptr(), count, millis) };
        if ready == SOCKET_ERROR || ready == 0 {
            return BTreeMap::new();
        }
        let fired = self.fds.iter().filter(|fd| fd.revents != 0);
        fired.map(|fd| (fd.fd, fd.revents)).collect()
    }
}

/// Wait for sets, sockets and a bell.
fn wait(
    sets: &[&Arc<Set>],
    mut polled: Polled,
    bell: &Doorbell,
    limit: Option<Duration>,
) -> io::Result<BTreeMap<SOCKET, i16>> {
    let end = limit.map_or(NEVER, |limit| now().after(limit).0);
    let _here = Here::at(sets, bell);
    // Gathered only now: a change from here on rings the bell.
    polled.add(bell.socket()?.clone(), POLLRDNORM);
    let alarm = sets.iter().map(|set| set.gather(&mut polled)).min().unwrap_or(NEVER);
    let until = end.min(alarm);
    perturb();
    loop {
        let left = Duration::from_nanos(until.saturating_sub(now().0));
        let millis = if until == NEVER {
            -1
        } else if left <= NEAR {
            0
        } else {
            i32::try_from(left.as_nanos().div_ceil(1_000_000).min(86_400_000)).unwrap_or(i32::MAX)
        };
        let fired = polled.poll(millis);
        if !fired.is_empty() || now().0 >= until {
            return Ok(fired);
        }
        std::thread::yield_now();
    }
}

/// This thread among those that wait for some sets, and for those inside of them.
struct Here<'a> {
    sets: &'a [&'a Arc<Set>],
    bell: &'a Doorbell,
}

impl<'a> Here<'a> {
    fn at(sets: &'a [&'a Arc<Set>], bell: &'a Doorbell) -> Here<'a> {
        for set in sets {
            lock(&set.waiting).push(bell.clone());
        }
        Here { sets, bell }
    }
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        for set in self.sets {
            let mut waiting = lock(&set.waiting);
            if let Some(at) = waiting.iter().position(|bell| bell.is(self.bell)) {
                waiting.swap_remove(at);
            }
        }
    }
}

/// Wait until one of `fds` is readable (or writable where asked, or broken) or the time has passed. A
/// change of a set ends the wait early.
pub fn poll_any(fds: &[(&Fd, bool)], bell: &Doorbell, limit: Option<Duration>) -> io::Result<()> {
    let (mut sets, mut polled) = (Vec::new(), Polled::default());
    for (fd, write) in fds {
        match &fd.0 {
            FdKind::Set(set) => sets.push(set),
            FdKind::Socket(socket) => polled.add(socket.clone(), events(true, *write)),
            FdKind::Alarm(_) => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
    wait(&sets, polled, bell, limit).map(drop)
}

// ---- alarms ----------------------------------------------------------------------------------

/// The state of an [`Alarm`].
#[derive(Debug)]
pub(super) struct AlarmClock {
    /// The moment of [`Time`]; `NEVER`: not set.
    when: AtomicU64,
    sets: Mutex<Vec<Weak<Set>>>,
}

impl AlarmClock {
    fn is_off(&self) -> bool {
        self.when.load(Ordering::Acquire) <= now().0
    }
}

/// Makes a waiting thread wake at a moment.
#[derive(Debug)]
pub struct Alarm(Fd);

impl Alarm {
    /// An alarm that is not set.
    pub fn new() -> io::Result<Alarm> {
        let clock = AlarmClock { when: AtomicU64::new(NEVER), sets: Mutex::default() };
        Ok(Alarm(Fd(FdKind::Alarm(Arc::new(clock)))))
    }

    fn clock(&self) -> Option<&AlarmClock> {
        match &self.0.0 {
            FdKind::Alarm(clock) => Some(clock),
            FdKind::Socket(_) | FdKind::Set(_) => None,
        }
    }

    /// Go off at `when`, and not at any moment set before.
    pub fn set(&self, when: Time) {
        perturb();
        let Some(clock) = self.clock() else { return };
        let before = clock.when.swap(when.0, Ordering::AcqRel);
        // Threads that wait have counted on a moment no later than the one before.
        if when.0 < before {
            let sets = lock(&clock.sets).clone();
            for set in sets.iter().filter_map(Weak::upgrade) {
                set.changed();
            }
        }
    }

    /// Stop going off.
    pub fn silence(&self) {
        if let Some(clock) = self.clock() {
            let past = |when: u64| (when <= now().0).then_some(NEVER);
            let _ = clock.when.fetch_update(Ordering::AcqRel, Ordering::Relaxed, past);
        }
        perturb();
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> &Fd {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads wait for one set: the one that is woken may leave, and the other has to see the news.
    #[test]
    fn a_change_wakes_every_thread_that_waits_for_the_set() {
        let (set, news) = (Epoll::new().unwrap(), Doorbell::new().unwrap());
        set.add(&news, 7).unwrap();
        let bells = [(); 2].map(|()| Doorbell::new().unwrap());
        std::thread::scope(|scope| {
            let waiting = bells.each_ref().map(|bell| {
                let set = &set;
                scope.spawn(move || poll_any(&[(set.fd(), false)], bell, None).unwrap())
            });
            while lock(&set.set().unwrap().waiting).len() < 2 {
                std::thread::yield_now();
            }
            set.arm(&news, 7, true, false).unwrap();
            for thread in waiting {
                thread.join().unwrap();
            }
        });
        assert!(bells.iter().all(Doorbell::silence));
    }

    #[test]
    fn an_alarm_ends_a_wait_and_an_earlier_one_ends_it_sooner() {
        let (set, alarm) = (Epoll::new().unwrap(), Alarm::new().unwrap());
        set.add_always(&alarm, 3).unwrap();
        alarm.set(now().after(Duration::from_secs(3600)));
        let mut keys = Vec::new();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                while keys.is_empty() {
                    set.wait(&mut keys, None).unwrap();
                }
            });
            while lock(&set.set().unwrap().waiting).is_empty() {
                std::thread::yield_now();
            }
            alarm.set(now().after(Duration::from_millis(2)));
            waiting.join().unwrap();
        });
        assert_eq!(keys, [3]);
        assert_eq!(set.look(&mut [0; 2]), 1, "until it is silenced");
        alarm.silence();
        assert_eq!(set.look(&mut [0; 2]), 0);
        alarm.set(now().after(Duration::from_secs(3600)));
        alarm.silence();
        assert_ne!(
            alarm.clock().unwrap().when.load(Ordering::Relaxed),
            NEVER,
            "it has not gone off"
        );
    }

    /// Of many that are ready each has its turn, however few are asked for at a time.
    #[test]
    fn a_socket_that_is_armed_again_lets_others_go_first() {
        let set = Epoll::new().unwrap();
        let bells = [(); 3].map(|()| Doorbell::new().unwrap());
        for (key, bell) in bells.iter().enumerate() {
            set.add(bell, key as u64).unwrap();
            set.arm(bell, key as u64, true, false).unwrap();
            bell.ring();
        }
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..3 {
            let mut key = [0];
            while set.look(&mut key) == 0 {}
            seen.insert(key[0]);
            set.arm(&bells[key[0] as usize], key[0], true, false).unwrap();
        }
        assert_eq!(seen.len(), 3);
    }

    /// A set inside of another one is ready while something in it is, and keeps it.
    #[test]
    fn a_set_inside_of_a_set_is_ready_with_what_is_in_it() {
        let (outer, inner) = (Epoll::new().unwrap(), Epoll::new().unwrap());
        outer.add_always(inner.fd(), 4).unwrap();
        let news = Doorbell::new().unwrap();
        inner.add(&news, 9).unwrap();
        news.ring();
        assert_eq!(outer.look(&mut [0; 4]), 0, "not armed");
        inner.arm(&news, 9, true, false).unwrap();
        let mut keys = Vec::new();
        outer.wait(&mut keys, None).unwrap();
        outer.wait(&mut keys, None).unwrap();
        assert_eq!(keys, [4, 4]);
        let mut key = [0];
        assert_eq!((inner.look(&mut key), key), (1, [9]));
        assert_eq!(outer.look(&mut key), 0);
    }
}
