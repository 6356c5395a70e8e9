//! When which link wants to be looked at.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use transom_wire::Time;

/// A moment per key, the earliest first. An entry that was superseded stays in the heap until
/// its time comes; there are never more than two heap entries per live key plus what is due.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Time, u64)>>,
    current: HashMap<u64, Time>,
}

impl Timers {
    /// Look at `key` at `when`, if that is earlier than what is noted. `true`: it has become the
    /// earliest of all, so a sleeping thread must be woken.
    pub(crate) fn note(&mut self, key: u64, when: Time) -> bool {
        if self.current.get(&key).is_some_and(|noted| *noted <= when) {
            return false;
        }
        let first = self.next().is_none_or(|next| when < next);
        self.current.insert(key, when);
        self.heap.push(Reverse((when, key)));
        self.tidy();
        first
    }

    /// Forget a key.
    pub(crate) fn forget(&mut self, key: u64) {
        self.current.remove(&key);
        self.tidy();
    }

    /// The keys that are due; each is forgotten.
    pub(crate) fn due(&mut self, now: Time, into: &mut Vec<u64>) {
        while let Some(Reverse((when, key))) = self.heap.peek().copied() {
            if when > now {
                break;
            }
            self.heap.pop();
            if self.current.get(&key) == Some(&when) {
                self.current.remove(&key);
                into.push(key);
            }
        }
    }

    /// When to look next.
    pub(crate) fn next(&mut self) -> Option<Time> {
        loop {
            let Reverse((when, key)) = *self.heap.peek()?;
            if self.current.get(&key) == Some(&when) {
                return Some(when);
            }
            self.heap.pop();
        }
    }

    /// Keys that move their moment back and forth must not fill the heap.
    fn tidy(&mut self) {
        if self.heap.len() > 2 * self.current.len() + 64 {
            self.heap = self.current.iter().map(|(key, when)| Reverse((*when, *key))).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(t: &mut Timers, now: u64) -> Vec<u64> {
        let mut keys = Vec::new();
        t.due(Time(now), &mut keys);
        keys
    }

    #[test]
    fn the_earliest_moment_of_a_key_counts_and_fires_once() {
        let mut t = Timers::default();
        assert!(t.note(1, Time(100)));
        assert!(!t.note(2, Time(200)));
        assert!(t.note(2, Time(50)), "earlier than all others");
        assert!(!t.note(2, Time(300)), "it is looked at before that anyway");
        assert_eq!(t.next(), Some(Time(50)));
        assert_eq!(due(&mut t, 99), [2]);
        assert_eq!(due(&mut t, 100), [1]);
        assert_eq!(due(&mut t, 1000), [0; 0]);
        assert_eq!(t.next(), None);
    }

    #[test]
    fn a_forgotten_key_does_not_fire() {
        let mut t = Timers::default();
        t.note(1, Time(10));
        t.forget(1);
        assert_eq!(t.next(), None);
        assert_eq!(due(&mut t, 10), [0; 0]);
    }

    #[test]
    fn superseded_moments_do_not_pile_up() {
        let mut t = Timers::default();
        for i in (0..100_000).rev() {
            t.note(7, Time(1000 + i));
        }
        assert!(t.heap.len() < 200);
        assert_eq!(t.next(), Some(Time(1000)));
    }
}
