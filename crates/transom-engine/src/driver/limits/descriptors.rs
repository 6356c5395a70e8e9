//! Shares of the descriptors that this process may have. A connection takes one before any program has taken it, so
//! that peers who are not known yet, or not wanted, could hold all of them, and the program opened no file then.
//!
//! Each place that keeps such connections has a share: a listener for requests, an adapter for those that are half-way
//! through start-up, an upgrade socket for offers, a queue of a front. All shares together get at most five eighths of
//! the descriptors that everything else leaves. Of these, a share may hold half of what the other shares leave, so that
//! some are left for the share that grows last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use transom_wire::Time;

use crate::sys;

/// The number that all shares hold, behind the fork generation of the process that counts.
static HELD: AtomicU64 = AtomicU64::new(0);

fn generation() -> u32 {
    sys::fork_generation() as u32
}

/// The number that all shares of this process hold. Those of a parent are none of a child's: it has none of their descriptors.
fn held(word: u64) -> u32 {
    if (word >> 32) as u32 == generation() { word as u32 } else { 0 }
}

fn word(held: u32) -> u64 {
    u64::from(generation()) << 32 | u64::from(held)
}

/// A part, of so many equal ones, of the descriptors that this process may have.
pub(crate) fn part(of: usize) -> usize {
    sys::descriptor_limit().map_or(usize::MAX, |all| (all / of).max(1))
}

/// How many one share may hold of so many descriptors, where others hold so many, and so many are in use besides.
fn most_of(all: usize, others: usize, besides: usize) -> usize {
    let left = (all.saturating_sub(besides) / 8 * 5).saturating_sub(others);
    left.div_ceil(2).min(all / 4)
}

/// How many descriptors are in use that no share holds: the program's, and ours. 0 where the kernel does not say. The
/// kernel is asked once in a while, because any peer can have this be asked.
fn besides() -> usize {
    const OFTEN: Duration = Duration::from_millis(5);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static BESIDES: AtomicUsize = AtomicUsize::new(0);
    let (now, next) = (sys::recently(), NEXT.load(Ordering::Relaxed));
    let mine =
        || NEXT.compare_exchange(next, now.after(OFTEN).0, Ordering::Relaxed, Ordering::Relaxed);
    if now >= Time(next) && mine().is_ok() {
        let held = held(HELD.load(Ordering::Relaxed)) as usize;
        let used = sys::descriptors_in_use().unwrap_or(0);
        BESIDES.store(used.saturating_sub(held), Ordering::Relaxed);
    }
    BESIDES.load(Ordering::Relaxed)
}

/// The descriptors of one place. Clones are the same share.
#[derive(Clone, Debug, Default)]
pub struct DescriptorShare(Arc<AtomicUsize>);

/// A descriptor of a share, until this is dropped.
#[derive(Debug)]
pub struct HeldDescriptor {
    share: DescriptorShare,
    generation: u32,
}

impl DescriptorShare {
    /// How many it holds.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// How many it may hold now: `most`, a quarter of all descriptors, or half of what others leave, whichever is least,
    /// and one in any case.
    #[must_use]
    pub fn most(&self, most: usize) -> usize {
        let Some(all) = sys::descriptor_limit() else { return most };
        let others = (held(HELD.load(Ordering::Relaxed)) as usize).saturating_sub(self.count());
        most_of(all, others, besides()).min(most).max(1)
    }

    /// Whether it may hold one more, where it is to have `most` at most.
    #[must_use]
    pub fn has_room(&self, most: usize) -> bool {
        self.count() < self.most(most)
    }

    /// Hold one more.
    #[must_use]
    pub fn take(&self) -> HeldDescriptor {
        self.0.fetch_add(1, Ordering::Relaxed);
        let more = |all| Some(word(held(all).saturating_add(1)));
        let _ = HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        HeldDescriptor { share: self.clone(), generation: generation() }
    }
}

impl Drop for HeldDescriptor {
    fn drop(&mut self) {
        self.share.0.fetch_sub(1, Ordering::Relaxed);
        if self.generation == generation() {
            let fewer = |all| Some(word(held(all).saturating_sub(1)));
            let _ = HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_leave_something_to_each_other_and_to_the_program() {
        const ALL: usize = 1024;
        let mut held = [0; 9];
        let fill = |held: &mut [usize; 9], at: usize| {
            let others = held.iter().sum::<usize>() - held[at];
            held[at] = held[at].max(most_of(ALL, others, 0));
        };
        fill(&mut held, 0);
        assert_eq!(held[0], ALL / 4, "one alone has a quarter");
        (1..9).for_each(|at| fill(&mut held, at));
        // Half of what the others have left, each of them.
        assert_eq!(held, [256, 192, 96, 48, 24, 12, 6, 3, 2]);
        // The first one gets no more before it holds less than others do, who take what it leaves.
        held[0] = 16;
        fill(&mut held, 0);
        assert_eq!(held[0], 129);
        for _ in 0..100 {
            (0..9).for_each(|at| held[at] = held[at].saturating_sub(1));
            (0..9).for_each(|at| fill(&mut held, at));
            assert!(held.iter().sum::<usize>() <= ALL / 8 * 5);
        }
        assert!(held.iter().all(|one| *one > 50), "as places come back, all have some: {held:?}");
    }

    #[test]
    fn shares_are_parts_of_what_is_free() {
        for (besides, together) in
            [(0, 640), (100, 575), (512, 320), (1_000, 15), (1_024, 0), (2_000, 0)]
        {
            let mut held = [0; 20];
            for _ in 0..10 {
                for at in 0..held.len() {
                    let others = held.iter().sum::<usize>() - held[at];
                    held[at] = held[at].max(most_of(1024, others, besides));
                }
            }
            assert_eq!(held.iter().sum::<usize>(), together, "beside {besides}");
        }
    }

    #[test]
    fn what_is_dropped_is_held_no_more_and_a_child_begins_with_nothing() {
        let share = DescriptorShare::default();
        let one = share.take();
        let two = share.clone().take();
        assert_eq!(share.count(), 2);
        assert!(held(HELD.load(Ordering::Relaxed)) >= 2);
        drop(one);
        assert_eq!(share.count(), 1);
        drop(two);
        assert_eq!((share.count(), share.most(0)), (0, 1), "one in any case");
        assert_eq!(held(word(7)), 7);
        assert_eq!(held(word(7) + (1 << 32)), 0, "of another process");
    }
}
