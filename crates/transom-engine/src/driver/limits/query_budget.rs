//! A budget for queries to the kernel that unaccepted peers can cause, and whose price they can
//! raise: where the kernel does not answer about one socket, its table of all sockets must be read.
//! Such queries get a small part of a thread's time; when that is used up, the peer counts as
//! unknown.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use transom_wire::Time;

use crate::sys;

/// Time on a processor that may be spent at once, after a while in which nothing was asked.
const SAVED: Duration = Duration::from_millis(100);
/// Queries get one part in this many of the thread's time.
const PART: u32 = 50;

#[derive(Debug)]
struct Budget {
    left: Duration,
    /// The time spent beyond the budget.
    debt: Duration,
    since: Time,
    unasked: u64,
}

/// The budget, and what is left of it.
#[derive(Debug)]
pub(crate) struct KernelQueryBudget(Mutex<Budget>);

impl KernelQueryBudget {
    pub(crate) fn new(now: Time) -> KernelQueryBudget {
        let none = Duration::ZERO;
        KernelQueryBudget(Mutex::new(Budget { left: SAVED, debt: none, since: now, unasked: 0 }))
    }

    /// Ask, unless too much was spent on questions of late.
    pub(crate) fn ask<R>(&self, question: impl FnOnce() -> R) -> Option<R> {
        self.ask_at(sys::now(), sys::thread_time, question)
    }

    fn ask_at<R>(
        &self,
        now: Time,
        spent: impl Fn() -> Duration,
        question: impl FnOnce() -> R,
    ) -> Option<R> {
        // Held meanwhile: threads that ask at the same time share one budget.
        let mut budget = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        budget.earn(now);
        if !budget.debt.is_zero() {
            budget.unasked += 1;
            return None;
        }
        let before = spent();
        let answer = question();
        budget.spend(spent().saturating_sub(before));
        Some(answer)
    }

    /// Questions that were not asked.
    pub(crate) fn unasked(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).unasked
    }
}

impl Budget {
    fn earn(&mut self, now: Time) {
        let earned = now.since(self.since) / PART;
        self.since = self.since.max(now);
        let over = earned.saturating_sub(self.debt);
        self.debt = self.debt.saturating_sub(earned);
        self.left = (self.left + over).min(SAVED);
    }

    fn spend(&mut self, time: Duration) {
        self.debt += time.saturating_sub(self.left);
        self.left = self.left.saturating_sub(time);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Questions that cost `price` each, asked every `pause`: how many of `times` were asked.
    fn asked(
        query_budget: &KernelQueryBudget,
        begin: Time,
        (times, pause, price): (u32, u64, u64),
    ) -> u32 {
        let clock = Cell::new(Duration::ZERO);
        (0..times).fold(0, |asked, n| {
            let now = begin.after(Duration::from_millis(pause * u64::from(n)));
            let ask = || clock.set(clock.get() + Duration::from_millis(price));
            asked + u32::from(query_budget.ask_at(now, || clock.get(), ask).is_some())
        })
    }

    #[test]
    fn questions_that_cost_much_take_a_small_part_of_the_time() {
        let begin = Time(0).after(Duration::from_secs(1));
        let query_budget = KernelQueryBudget::new(begin);
        // Ten seconds, in which there would be 10,000 questions of 20 ms: 200 ms, and what was saved.
        let many = asked(&query_budget, begin, (10_000, 1, 20));
        assert!((10..=17).contains(&many), "{many} questions of 20 ms in 10 s");
        assert_eq!(query_budget.unasked(), u64::from(10_000 - many));
    }

    #[test]
    fn questions_that_cost_little_are_all_asked() {
        let begin = Time(0).after(Duration::from_secs(1));
        let query_budget = KernelQueryBudget::new(begin);
        assert_eq!(asked(&query_budget, begin, (100, 0, 1)), 100, "a hundred at once");
        let later = begin.after(Duration::from_secs(60));
        assert_eq!(asked(&query_budget, later, (1000, 50, 1)), 1000, "one in fifty, for ever");
    }
}
