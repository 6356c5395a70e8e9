//! Things a thread can wait for: events, semaphores, mutexes, threads.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::lock;

/// The kind of the object, and its state.
#[derive(Debug)]
pub(crate) enum WaitKind {
    /// Stays signalled until it is reset.
    ManualEvent(bool),
    /// Lets one waiter through.
    AutoEvent(bool),
    /// Lets as many through as it counts.
    Semaphore {
        /// Left.
        count: u32,
        /// At most.
        maximum: u32,
    },
    /// Belongs to one thread at a time.
    Mutex(Option<(ThreadId, u32)>),
    /// A thread, and its exit code once it has ended.
    Thread(Option<u32>),
}

/// An object, with the threads that wait for it.
#[derive(Debug)]
pub(crate) struct Waitable {
    state: Mutex<WaitState>,
}

#[derive(Debug)]
struct WaitState {
    kind: WaitKind,
    waiters: Vec<Arc<Waiter>>,
}

#[derive(Debug, Default)]
struct Waiter {
    woken: Mutex<bool>,
    wake: Condvar,
}

thread_local! {
    static WAITER: RefCell<Arc<Waiter>> = RefCell::default();
}

impl WaitState {
    fn ready(&self) -> bool {
        match self.kind {
            WaitKind::ManualEvent(set) | WaitKind::AutoEvent(set) => set,
            WaitKind::Semaphore { count, .. } => count > 0,
            WaitKind::Mutex(owner) => owner.is_none_or(|(id, _)| id == std::thread::current().id()),
            WaitKind::Thread(code) => code.is_some(),
        }
    }

    /// Take what a satisfied wait takes.
    fn take(&mut self) {
        match &mut self.kind {
            WaitKind::AutoEvent(set) => *set = false,
            WaitKind::Semaphore { count, .. } => *count = count.saturating_sub(1),
            WaitKind::Mutex(owner) => {
                let me = std::thread::current().id();
                let depth = owner.map_or(0, |(_, depth)| depth);
                *owner = Some((me, depth + 1));
            }
            WaitKind::ManualEvent(_) | WaitKind::Thread(_) => {}
        }
    }

    fn wake(&mut self) {
        for waiter in self.waiters.drain(..) {
            *lock(&waiter.woken) = true;
            waiter.wake.notify_one();
        }
    }
}

impl Waitable {
    pub(crate) fn new(kind: WaitKind) -> Arc<Waitable> {
        Arc::new(Waitable { state: Mutex::new(WaitState { kind, waiters: Vec::new() }) })
    }

    /// Signal an event; `false` if it is none.
    pub(crate) fn set(&self) -> bool {
        let mut state = lock(&self.state);
        match &mut state.kind {
            WaitKind::ManualEvent(set) | WaitKind::AutoEvent(set) => *set = true,
            _ => return false,
        }
        state.wake();
        true
    }

    /// Reset an event; `false` if it is none.
    pub(crate) fn reset(&self) -> bool {
        match &mut lock(&self.state).kind {
            WaitKind::ManualEvent(set) | WaitKind::AutoEvent(set) => *set = false,
            _ => return false,
        }
        true
    }

    /// Whether it is an event.
    pub(crate) fn is_event(&self) -> bool {
        matches!(lock(&self.state).kind, WaitKind::ManualEvent(_) | WaitKind::AutoEvent(_))
    }

    /// A wait that found what it waited for by other means uses up the signal as if it had waited
    /// for the event.
    pub(crate) fn consume(&self) {
        let mut state = lock(&self.state);
        if state.ready() {
            state.take();
        }
    }

    /// Add to a semaphore; what it counted before, or `None` if that would be too much.
    pub(crate) fn release(&self, add: u32) -> Option<u32> {
        let mut state = lock(&self.state);
        let WaitKind::Semaphore { count, maximum } = &mut state.kind else { return None };
        let before = *count;
        *count = before.checked_add(add).filter(|sum| sum <= maximum && add > 0)?;
        state.wake();
        Some(before)
    }

    /// Give a mutex back; `false` if this thread does not own it.
    pub(crate) fn unlock(&self) -> bool {
        let mut state = lock(&self.state);
        let WaitKind::Mutex(owner) = &mut state.kind else { return false };
        match owner {
            Some((id, depth)) if *id == std::thread::current().id() => {
                *depth -= 1;
                if *depth == 0 {
                    *owner = None;
                    state.wake();
                }
                true
            }
            _ => false,
        }
    }

    /// A thread has ended.
    pub(crate) fn exited(&self, code: u32) {
        let mut state = lock(&self.state);
        state.kind = WaitKind::Thread(Some(code));
        state.wake();
    }

    /// The exit code of a thread: `None` if this is none, `Some(None)` while it runs.
    pub(crate) fn exit_code(&self) -> Option<Option<u32>> {
        match lock(&self.state).kind {
            WaitKind::Thread(code) => Some(code),
            _ => None,
        }
    }
}

/// Take the first that is ready, or all at once; its index.
fn try_take(objects: &[Arc<Waitable>], all: bool) -> Option<usize> {
    if !all {
        return objects.iter().position(|object| {
            let mut state = lock(&object.state);
            let ready = state.ready();
            if ready {
                state.take();
            }
            ready
        });
    }
    // All locks at once, always in the same order.
    let mut order: Vec<&Arc<Waitable>> = objects.iter().collect();
    order.sort_by_key(|object| Arc::as_ptr(object));
    order.dedup_by(|a, b| Arc::ptr_eq(a, b));
    let mut states: Vec<_> = order.iter().map(|object| lock(&object.state)).collect();
    if !states.iter().all(|state| state.ready()) {
        return None;
    }
    for state in &mut states {
        state.take();
    }
    Some(0)
}

/// Wait until one of `objects` is ready (or all of them are). The index of the one that was taken;
/// `None` when `limit` has passed (`None` = never).
pub(crate) fn wait(objects: &[Arc<Waitable>], all: bool, limit: Option<Duration>) -> Option<usize> {
    if let Some(index) = try_take(objects, all) {
        return Some(index);
    }
    if limit == Some(Duration::ZERO) {
        return None;
    }
    let until = limit.and_then(|limit| Instant::now().checked_add(limit));
    let me = WAITER.with(|waiter| waiter.borrow().clone());
    let result = loop {
        *lock(&me.woken) = false;
        for object in objects {
            let mut state = lock(&object.state);
            if !state.waiters.iter().any(|waiter| Arc::ptr_eq(waiter, &me)) {
                state.waiters.push(me.clone());
            }
        }
        if let Some(index) = try_take(objects, all) {
            break Some(index);
        }
        let mut woken = lock(&me.woken);
        while !*woken {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            woken = match left {
                Some(Duration::ZERO) => break,
                Some(left) => match me.wake.wait_timeout(woken, left) {
                    Ok((guard, _)) => guard,
                    Err(poisoned) => poisoned.into_inner().0,
                },
                None => match me.wake.wait(woken) {
                    Ok(guard) => guard,
                    Err(poisoned) => poisoned.into_inner(),
                },
            };
        }
        if !*woken {
            break None;
        }
    };
    for object in objects {
        lock(&object.state).waiters.retain(|waiter| !Arc::ptr_eq(waiter, &me));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Option<Duration> = Some(Duration::ZERO);

    fn take(object: &Arc<Waitable>) -> bool {
        wait(std::slice::from_ref(object), false, NOW).is_some()
    }

    fn another_thread_takes(object: &Arc<Waitable>) -> bool {
        std::thread::scope(|scope| scope.spawn(|| take(object)).join().unwrap())
    }

    /// ReleaseSemaphore: up to the maximum, or not at all.
    #[test]
    fn a_semaphore_counts_up_to_its_maximum() {
        let semaphore = Waitable::new(WaitKind::Semaphore { count: 0, maximum: 3 });
        assert_eq!(semaphore.release(2), Some(0));
        assert_eq!(semaphore.release(2), None, "one too many");
        assert_eq!(semaphore.release(0), None, "nothing at all");
        assert_eq!(semaphore.release(1), Some(2));
        assert_eq!(semaphore.release(1), None, "it is full");
        assert_eq!([(); 4].map(|()| take(&semaphore)), [true, true, true, false]);
    }

    /// ReleaseMutex: as often as it was taken, by the thread that has taken it.
    #[test]
    fn a_mutex_is_free_when_it_was_released_as_often_as_taken() {
        let mutex = Waitable::new(WaitKind::Mutex(None));
        assert!(take(&mutex) && take(&mutex));
        std::thread::scope(|scope| assert!(!scope.spawn(|| mutex.unlock()).join().unwrap()));
        assert!(mutex.unlock() && !another_thread_takes(&mutex), "taken twice, released once");
        assert!(mutex.unlock() && another_thread_takes(&mutex));
        assert!(!mutex.unlock(), "the other thread has it");
    }

    /// WaitForMultipleObjects: any takes the first that is ready and leaves the others; all takes
    /// all or none.
    #[test]
    fn a_wait_takes_what_it_waited_for_and_nothing_else() {
        let [one, two] = [false, true].map(|set| Waitable::new(WaitKind::AutoEvent(set)));
        let both = [one.clone(), two.clone()];
        assert_eq!(wait(&both, true, NOW), None);
        assert_eq!(wait(&both, false, NOW), Some(1), "the one that all would have taken is left");
        one.set();
        two.set();
        assert_eq!(wait(&both, false, NOW), Some(0));
        assert!(take(&two) && !take(&two));
        one.set();
        two.set();
        assert_eq!(wait(&both, true, NOW), Some(0));
        assert!(!take(&one) && !take(&two));
        let manual = Waitable::new(WaitKind::ManualEvent(true));
        assert!(take(&manual) && take(&manual), "set until it is reset");
        assert!(manual.reset() && !take(&manual));
    }
}
