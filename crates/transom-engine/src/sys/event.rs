//! Waiting: epoll for the background thread, poll for a thread that waits for itself, and a
//! doorbell to wake either.

use super::{Fd, perturb};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::fd::AsFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::time::Duration;
use transom_wire::Time;

/// A set of descriptors to wait for, each of which fires once and then sleeps until it is armed
/// again.
#[derive(Debug)]
pub struct Epoll(Fd);

const NO_EVENT: epoll::Event =
    epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };

fn interest(read: bool, write: bool) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::ONESHOT;
    if read {
        flags |= epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
    }
    if write {
        flags |= epoll::EventFlags::OUT;
    }
    flags
}

impl Epoll {
    /// An empty set.
    pub fn new() -> io::Result<Epoll> {
        Ok(Epoll(Fd::make(|| epoll::create(epoll::CreateFlags::CLOEXEC))?))
    }

    /// Add a descriptor under `key`, disarmed.
    pub fn add(&self, fd: impl AsFd, key: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(key);
        Ok(epoll::add(&self.0, fd, data, epoll::EventFlags::ONESHOT)?)
    }

    /// Add a descriptor under `key` that fires whenever it is readable, and need not be armed.
    pub fn add_always(&self, fd: impl AsFd, key: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(key);
        Ok(epoll::add(&self.0, fd, data, epoll::EventFlags::IN)?)
    }

    /// Arm for one event. An event that is already there fires at once.
    pub fn arm(&self, fd: impl AsFd, key: u64, read: bool, write: bool) -> io::Result<()> {
        perturb();
        let data = epoll::EventData::new_u64(key);
        Ok(epoll::modify(&self.0, fd, data, interest(read, write))?)
    }

    /// Forget a descriptor. Harmless if it is unknown.
    pub fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.0, fd);
    }

    /// The keys of what is ready now; how many.
    pub fn look(&self, into: &mut [u64]) -> usize {
        let mut events = [NO_EVENT; 64];
        let room = into.len().min(events.len());
        let events = events.get_mut(..room).unwrap_or_default();
        let count =
            epoll::wait(&self.0, &mut *events, Some(&timespec(Duration::ZERO))).unwrap_or(0);
        for (key, event) in into.iter_mut().zip(events.iter().take(count)) {
            *key = event.data.u64();
        }
        count
    }

    /// The set itself: readable while something in it is ready.
    pub fn fd(&self) -> &Fd {
        &self.0
    }

    /// Wait until something is ready or the time has passed (rounded up to milliseconds), and
    /// append the keys. A signal ends the wait early with nothing.
    pub fn wait(&self, into: &mut Vec<u64>, limit: Option<Duration>) -> io::Result<()> {
        let limit = limit.map(|d| {
            let millis = d.as_nanos().div_ceil(1_000_000).min(86_400_000);
            timespec(Duration::from_millis(u64::try_from(millis).unwrap_or(86_400_000)))
        });
        let mut events = [NO_EVENT; 64];
        match epoll::wait(&self.0, &mut events[..], limit.as_ref()) {
            Ok(n) => {
                into.extend(events.iter().take(n).map(|e| e.data.u64()));
                Ok(())
            }
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

/// Makes a waiting thread wake at a moment (a timerfd). Setting it wakes no thread.
#[derive(Debug)]
pub struct Alarm(Fd);

impl Alarm {
    /// An alarm that is not set.
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Alarm(Fd::make(|| timerfd_create(TimerfdClockId::Monotonic, flags))?))
    }

    /// Go off at `when`, and not at any moment set before.
    pub fn set(&self, when: Time) {
        let moment = timespec(Duration::from_nanos(when.0.max(1)));
        let spec = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: moment };
        perturb();
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec);
    }

    /// Stop going off.
    pub fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
        perturb();
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn timespec(d: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(d.subsec_nanos()),
    }
}

/// Wakes a thread that waits (an eventfd).
#[derive(Debug)]
pub struct Doorbell(Fd);

impl Doorbell {
    /// A silent one.
    pub fn new() -> io::Result<Doorbell> {
        Ok(Doorbell(Fd::make(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))?))
    }

    /// Whether it is this process's own: a forked child has no use for its parent's.
    pub fn is_ours(&self) -> bool {
        self.0.is_ours()
    }

    /// Ring. Never blocks; ringing twice is ringing once.
    pub fn ring(&self) {
        perturb();
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Whether it was rung since it was last silenced; silences it.
    pub fn silence(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Wait until one of `fds` is readable (or writable where asked, or broken) or the time has
/// passed. A signal ends the wait early.
pub fn poll_any(fds: &[(&Fd, bool)], bell: &Doorbell, limit: Option<Duration>) -> io::Result<()> {
    let mut set: Vec<PollFd<'_>> = Vec::with_capacity(fds.len() + 1);
    set.push(PollFd::new(bell, PollFlags::IN));
    for (fd, write) in fds {
        let flags = if *write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        set.push(PollFd::new(*fd, flags));
    }
    perturb();
    match poll(&mut set, limit.map(timespec).as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
