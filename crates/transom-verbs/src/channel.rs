//! A list of events behind a descriptor: completion channels, asynchronous events, connection events.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, ReadWriteFlags, preadv2, read, write};

use crate::errno::Result;

/// An eventfd in semaphore mode with one count for each event, so that it is readable exactly while an
/// event can be fetched, and a program may poll it, make it non-blocking, or block in the fetch.
#[derive(Debug)]
pub(crate) struct Channel<T> {
    /// Of the process that made it.
    process: u32,
    fd: OwnedFd,
    queue: Mutex<VecDeque<T>>,
}

impl<T> Channel<T> {
    pub(crate) fn new() -> Result<Channel<T>> {
        let fd = eventfd(0, EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC)?;
        Ok(Channel { process: std::process::id(), fd, queue: Mutex::default() })
    }

    /// The descriptor that programs watch.
    pub(crate) fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// The descriptor to wait for.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Add an event. If the program has closed the descriptor, the event stays in the list.
    pub(crate) fn push(&self, event: T) {
        self.add(self.lock(), event);
    }

    /// Add an event of an object that any thread may raise, unless the object's end has begun.
    pub(crate) fn push_of(&self, object: &Acknowledged, event: T) {
        let queue = self.lock();
        if !object.is_ending() {
            self.add(queue, event);
        }
    }

    fn add(&self, mut queue: MutexGuard<'_, VecDeque<T>>, event: T) {
        queue.push_back(event);
        let _ = write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Fetch an event: blocks, unless the program has made the descriptor non-blocking. `count` counts it
    /// as handed out, before the end of its object can find that it is not in the list any more.
    ///
    /// # Errors
    /// Those of the read: `EAGAIN`, `EINTR`.
    pub(crate) fn fetch(&self, count: impl Fn(&T)) -> Result<T> {
        loop {
            read(&self.fd, &mut [0; 8])?;
            if let Some(event) = self.counted(&count) {
                return Ok(event);
            }
        }
    }

    /// The rest of a fetch, behind a read that took a count. `None`: the event was taken back in between.
    pub(crate) fn counted(&self, count: impl Fn(&T)) -> Option<T> {
        let mut queue = self.lock();
        queue.pop_front().inspect(count)
    }

    /// Fetch an event if there is one. For channels whose descriptor no program reads.
    pub(crate) fn try_fetch(&self) -> Option<T> {
        let mut queue = self.lock();
        let event = queue.pop_front()?;
        // An event and its count are added under the lock.
        let _ = read(&self.fd, &mut [0; 8]);
        Some(event)
    }

    /// Take back the events that were not fetched and that `of` names; they are the result. A forked child
    /// takes none of its parent's: the count of the descriptor is the parent's, too (Verbs V146).
    pub(crate) fn take_back(&self, of: impl Fn(&T) -> bool) -> Vec<T> {
        if self.process != std::process::id() {
            return Vec::new();
        }
        let mut queue = self.lock();
        let (taken, kept): (Vec<T>, Vec<T>) = queue.drain(..).partition(of);
        queue.extend(kept);
        for _ in &taken {
            let mut count = [0; 8];
            let mut into = [std::io::IoSliceMut::new(&mut count)];
            // Never blocks. Where a count is not there, its reader finds no event, and reads again.
            while preadv2(&self.fd, &mut into, u64::MAX, ReadWriteFlags::NOWAIT) == Err(Errno::INTR)
            {
            }
        }
        taken
    }
}

/// How many events of an object were handed out, and how many of these acknowledged: destroying the
/// object waits until both are equal.
#[derive(Debug)]
pub(crate) struct Acknowledged {
    /// Of the process whose object it is.
    process: u32,
    counts: Mutex<(u64, u64)>,
    ending: AtomicBool,
    changed: std::sync::Condvar,
}

impl Default for Acknowledged {
    fn default() -> Acknowledged {
        Acknowledged {
            process: std::process::id(),
            counts: Mutex::default(),
            ending: AtomicBool::default(),
            changed: std::sync::Condvar::new(),
        }
    }
}

impl Acknowledged {
    pub(crate) fn handed_out(&self) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).0 += 1;
    }

    pub(crate) fn acknowledge(&self, events: u32) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).1 += u64::from(events);
        self.changed.notify_all();
    }

    /// The object's end has begun: before its events are taken back, so that none comes behind.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Release);
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// Block until every event that was handed out is acknowledged. A forked child has none of the threads
    /// that would do so.
    pub(crate) fn wait(&self) {
        if self.process != std::process::id() {
            return;
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        while counts.1 < counts.0 {
            counts = self.changed.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn readable<T>(channel: &Channel<T>) -> bool {
        let mut fds = [PollFd::new(&channel.fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn v99_a_channel_is_readable_exactly_while_it_has_an_event() {
        let channel = Channel::new().unwrap();
        assert!(!readable(&channel));
        channel.push(1);
        channel.push(2);
        assert!(readable(&channel));
        assert_eq!(channel.fetch(|_| ()).unwrap(), 1);
        assert!(readable(&channel));
        assert_eq!(channel.fetch(|_| ()).unwrap(), 2);
        assert!(!readable(&channel));
    }

    #[test]
    fn v137_an_event_that_is_fetched_without_waiting_takes_its_count() {
        let channel = Channel::new().unwrap();
        assert_eq!(channel.try_fetch(), None);
        channel.push(1);
        assert_eq!((channel.try_fetch(), channel.try_fetch()), (Some(1), None));
        assert!(!readable(&channel));
    }

    #[test]
    fn v36_a_notification_that_began_before_the_end_raises_nothing_behind_it() {
        let (channel, object) = (Channel::new().unwrap(), Acknowledged::default());
        channel.push_of(&object, 1);
        object.end();
        assert_eq!(channel.take_back(|_| true), [1]);
        channel.push_of(&object, 2);
        assert!(!readable(&channel));
        assert_eq!(channel.try_fetch(), None);
    }

    #[test]
    fn v36_an_event_is_counted_before_the_end_can_miss_it() {
        let channel = Channel::new().unwrap();
        channel.push(1);
        let counted = |_: &i32| assert!(channel.queue.try_lock().is_err());
        assert_eq!(channel.fetch(counted).unwrap(), 1);
    }

    #[test]
    fn v36_events_that_are_taken_back_are_not_readable() {
        let channel = Channel::new().unwrap();
        for event in [1, 2, 3] {
            channel.push(event);
        }
        assert_eq!(channel.take_back(|event| *event != 2), [1, 3]);
        assert_eq!(channel.fetch(|_| ()).unwrap(), 2);
        assert!(!readable(&channel));
    }
}
