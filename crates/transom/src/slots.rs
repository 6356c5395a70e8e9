//! Requests under way: where a completion finds whoever waits for it.
//!
//! A context is a slot number and a generation, never a pointer, so that nothing the engine hands
//! back can be dereferenced by mistake. There are as many slots as requests were ever under way at
//! the same time: a queue that has been used so deep before does not allocate.

use std::task::{Poll, Waker};

/// Requests under way. `K` is what the request keeps alive, `R` its result.
#[derive(Debug)]
pub(crate) struct Slots<K, R> {
    slots: Vec<Slot<K, R>>,
    free: Vec<u32>,
    limit: usize,
    /// Results that nobody was waiting for any more.
    unclaimed: u64,
}

#[derive(Debug)]
struct Slot<K, R> {
    generation: u32,
    state: State<K, R>,
}

#[derive(Debug)]
enum State<K, R> {
    Free,
    Pending { keep: K, waiter: Waiter },
    Done(R),
}

#[derive(Debug)]
enum Waiter {
    /// Nobody has asked yet.
    Nobody,
    /// A future was polled.
    Task(Waker),
    /// The `Posted` was dropped. That is not cancelling: the request goes on.
    Gone,
    /// A request of a batch, whose result is that of its last one.
    Batch,
}

/// Names a request under way. As a `u64` it is the engine's request context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    pub(crate) fn to_context(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_context(context: u64) -> Key {
        Key { index: context as u32, generation: (context >> 32) as u32 }
    }
}

/// What must be done once the lock is gone: wake user code, drop user data.
#[derive(Debug)]
#[must_use]
pub(crate) struct Settled<K, R> {
    pub(crate) waker: Option<Waker>,
    /// What the request kept alive.
    pub(crate) keep: K,
    /// The result, if nobody will ever claim it.
    pub(crate) unclaimed: Option<R>,
}

impl<K, R> Slots<K, R> {
    /// Room for `limit` requests.
    pub(crate) fn new(limit: usize) -> Slots<K, R> {
        Slots { slots: Vec::new(), free: Vec::new(), limit, unclaimed: 0 }
    }

    /// A slot for a request about to be posted. `None`: all are taken, by requests under way or by
    /// results that were not fetched yet; `keep` comes back.
    pub(crate) fn insert(&mut self, keep: K) -> Result<Key, K> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < self.limit => {
                self.slots.push(Slot { generation: 1, state: State::Free });
                (self.slots.len() - 1) as u32
            }
            None => return Err(keep),
        };
        let Some(slot) = self.slots.get_mut(index as usize) else { return Err(keep) };
        slot.state = State::Pending { keep, waiter: Waiter::Nobody };
        Ok(Key { index, generation: slot.generation })
    }

    /// The same, for a request of a batch that is not its last: nobody will ask for its result.
    pub(crate) fn insert_quietly(&mut self, keep: K) -> Result<Key, K> {
        let key = self.insert(keep)?;
        if let Some(Slot { state: State::Pending { waiter, .. }, .. }) = self.slot(key) {
            *waiter = Waiter::Batch;
        }
        Ok(key)
    }

    fn slot(&mut self, key: Key) -> Option<&mut Slot<K, R>> {
        self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)
    }

    fn release(&mut self, key: Key) {
        if let Some(slot) = self.slots.get_mut(key.index as usize) {
            slot.state = State::Free;
            // 31 bits: the topmost bit of a context is somebody else's.
            slot.generation = (slot.generation % 0x7fff_ffff) + 1;
            self.free.push(key.index);
        }
    }

    /// The post failed inline: there will be no completion.
    pub(crate) fn remove(&mut self, key: Key) -> Option<K> {
        let slot = self.slot(key)?;
        let state = std::mem::replace(&mut slot.state, State::Free);
        self.release(key);
        match state {
            State::Pending { keep, .. } => Some(keep),
            _ => None,
        }
    }

    /// A completion has arrived. `None` if no such request is under way.
    pub(crate) fn settle(&mut self, key: Key, result: R) -> Option<Settled<K, R>> {
        let slot = self.slot(key)?;
        match std::mem::replace(&mut slot.state, State::Free) {
            State::Pending { keep, waiter: Waiter::Gone } => {
                self.release(key);
                self.unclaimed += 1;
                Some(Settled { waker: None, keep, unclaimed: Some(result) })
            }
            State::Pending { keep, waiter: Waiter::Batch } => {
                self.release(key);
                Some(Settled { waker: None, keep, unclaimed: None })
            }
            State::Pending { keep, waiter } => {
                slot.state = State::Done(result);
                let waker = match waiter {
                    Waiter::Task(waker) => Some(waker),
                    _ => None,
                };
                Some(Settled { waker, keep, unclaimed: None })
            }
            // Completed twice: the engine does not do that; keep what is there.
            other => {
                slot.state = other;
                None
            }
        }
    }

    /// Whether the result is there.
    pub(crate) fn is_done(&mut self, key: Key) -> bool {
        matches!(self.slot(key), Some(Slot { state: State::Done(_), .. }))
    }

    /// Fetch the result, or leave a waker. A waker that was replaced is dropped by the caller.
    pub(crate) fn claim(
        &mut self,
        key: Key,
        waker: Option<&Waker>,
    ) -> (Poll<Option<R>>, Option<Waker>) {
        let Some(slot) = self.slot(key) else { return (Poll::Ready(None), None) };
        match &mut slot.state {
            State::Pending { waiter, .. } => {
                let Some(waker) = waker else { return (Poll::Pending, None) };
                let old = match waiter {
                    Waiter::Task(old) if old.will_wake(waker) => None,
                    _ => match std::mem::replace(waiter, Waiter::Task(waker.clone())) {
                        Waiter::Task(old) => Some(old),
                        _ => None,
                    },
                };
                (Poll::Pending, old)
            }
            State::Done(_) => {
                let state = std::mem::replace(&mut slot.state, State::Free);
                self.release(key);
                match state {
                    State::Done(result) => (Poll::Ready(Some(result)), None),
                    _ => (Poll::Ready(None), None),
                }
            }
            State::Free => (Poll::Ready(None), None),
        }
    }

    /// Nobody will ask for the result any more. Returns a result that was there already.
    pub(crate) fn abandon(&mut self, key: Key) -> (Option<R>, Option<Waker>) {
        let Some(slot) = self.slot(key) else { return (None, None) };
        match &mut slot.state {
            State::Pending { waiter, .. } => match std::mem::replace(waiter, Waiter::Gone) {
                Waiter::Task(waker) => (None, Some(waker)),
                _ => (None, None),
            },
            State::Done(_) => {
                let (result, _) = self.claim(key, None);
                self.unclaimed += 1;
                match result {
                    Poll::Ready(result) => (result, None),
                    Poll::Pending => (None, None),
                }
            }
            State::Free => (None, None),
        }
    }

    #[cfg(test)]
    fn pending(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot.state, State::Pending { .. })).count()
    }

    #[cfg(test)]
    fn unclaimed(&self) -> u64 {
        self.unclaimed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    struct Count(AtomicU32);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_result_finds_the_one_who_asked_last() {
        let mut slots: Slots<&str, u8> = Slots::new(1);
        let key = slots.insert("buffer").unwrap();
        let (first, second) =
            (Arc::new(Count(AtomicU32::new(0))), Arc::new(Count(AtomicU32::new(0))));
        assert!(slots.claim(key, Some(&first.clone().into())).0.is_pending());
        assert!(slots.claim(key, Some(&second.clone().into())).0.is_pending());
        let settled = slots.settle(key, 9).unwrap();
        assert_eq!(settled.keep, "buffer", "the buffer is released at completion, not before");
        settled.waker.unwrap().wake();
        assert_eq!((first.0.load(Ordering::Relaxed), second.0.load(Ordering::Relaxed)), (0, 1));
        assert_eq!(slots.claim(key, None).0, Poll::Ready(Some(9)));
    }

    #[test]
    fn dropping_is_not_cancelling() {
        let mut slots: Slots<&str, u8> = Slots::new(1);
        let key = slots.insert("buffer").unwrap();
        slots.abandon(key);
        assert_eq!(slots.pending(), 1, "the request goes on");
        assert!(slots.insert("other").is_err(), "and so its slot is taken");
        let settled = slots.settle(key, 3).unwrap();
        assert_eq!((settled.keep, settled.unclaimed), ("buffer", Some(3)));
        assert_eq!(slots.unclaimed(), 1, "counted");
        assert!(slots.insert("other").is_ok());
    }

    #[test]
    fn what_a_batch_keeps_alive_goes_when_it_has_completed_and_nobody_has_to_ask() {
        let mut slots: Slots<&str, u8> = Slots::new(1);
        let key = slots.insert_quietly("buffer").unwrap();
        assert!(slots.insert("other").is_err());
        let settled = slots.settle(key, 0).unwrap();
        assert_eq!((settled.keep, settled.unclaimed), ("buffer", None));
        assert_eq!(slots.unclaimed(), 0, "its result is the batch's");
        assert!(slots.insert("other").is_ok());
    }

    #[test]
    fn a_stale_context_names_nobody() {
        let mut slots: Slots<(), u8> = Slots::new(1);
        let old = slots.insert(()).unwrap();
        slots.remove(old);
        let new = slots.insert(()).unwrap();
        assert_ne!(old.to_context(), new.to_context());
        assert!(slots.settle(Key::from_context(old.to_context()), 1).is_none());
        assert!(slots.settle(Key::from_context(u64::MAX), 1).is_none());
        assert!(slots.settle(new, 1).is_some());
        assert!(slots.settle(new, 2).is_none(), "once only");
        assert_eq!(slots.claim(new, None).0, Poll::Ready(Some(1)));
    }
}
