//! How long the background thread keeps looking at links that it has served, before it sleeps.
//!
//! To wake a thread takes several microseconds, and a peer that asks for one thing after the other is back
//! sooner. So the thread looks on for a *window*, whose length follows what pays, as that of halt polling does
//! (Linux, Documentation/virt/kvm/halt-polling.rst): sleep shorter than the longest window would have been
//! spared by a longer one, and makes it twice as long; longer sleep makes it half as long, down to none.
//! A thread whose processor another one wants looks on no more, and not again for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use transom_wire::Time;

use super::shared::{FIRST, Shared};
use super::source::{Looked, Source};
use crate::sys;

/// How long an adapter's thread keeps looking at links that it has served, before it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// Not at all.
    Off,
    /// For up to 50 microseconds, as far as that pays and no other thread wants the processor.
    #[default]
    Auto,
    /// Always for so long. A thread that wants the processor gets it in between.
    For(Duration),
}

/// The longest window of [`Spin::Auto`].
const LONGEST: Duration = Duration::from_micros(50);
/// The shortest window that there is.
const SHORTEST: Duration = Duration::from_micros(8);
/// A thread that was kept away from its processor for so long shares it.
const AWAY: Duration = Duration::from_micros(20);
/// For how long it does not look on then: twice as long each time, up to the longest.
const PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(128);

/// The window of one thread.
#[derive(Debug)]
pub(crate) struct SpinWindow {
    spin: Spin,
    processors: usize,
    length: Duration,
    pause: Duration,
    paused_until: Time,
}

impl SpinWindow {
    /// `processors`: how many there are for this process. With one, no peer can ask while this thread looks.
    pub(crate) fn new(spin: Spin, processors: usize) -> SpinWindow {
        let spin = if processors < 2 && spin == Spin::Auto { Spin::Off } else { spin };
        let length = match spin {
            Spin::Off | Spin::Auto => Duration::ZERO,
            Spin::For(length) => length,
        };
        SpinWindow { spin, processors, length, pause: PAUSE, paused_until: Time(0) }
    }

    /// How many threads of this process may look on at a time: one processor is left to the program.
    fn most(&self) -> usize {
        if self.spin == Spin::Auto { self.processors.saturating_sub(1) } else { usize::MAX }
    }

    /// For how long to look on from `now`.
    pub(crate) fn length(&self, now: Time) -> Duration {
        if now < self.paused_until { Duration::ZERO } else { self.length }
    }

    /// A link has ended the thread's sleep, which began behind a window.
    pub(crate) fn slept(&mut self, sleep: Duration) {
        if self.spin != Spin::Auto {
            return;
        }
        self.length = if sleep <= LONGEST {
            (self.length * 2).clamp(SHORTEST, LONGEST)
        } else {
            Some(self.length / 2).filter(|half| *half >= SHORTEST).unwrap_or_default()
        };
    }

    /// The time between two looks that found nothing, or between two sides of a yield. `true`: another thread
    /// had the processor meanwhile, and this one sleeps.
    pub(crate) fn was_away(&mut self, away: Duration, now: Time) -> bool {
        if self.spin != Spin::Auto || away < AWAY {
            return false;
        }
        self.paused_until = now.after(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }

    /// A window has ended, and the thread had its processor to itself.
    pub(crate) fn ended(&mut self) {
        self.pause = PAUSE;
    }
}

/// Links that the thread looks at by itself. The others wake it, as far as it sees them.
const HOT: usize = 8;
/// How often it sees what else is ready, and whether another thread wants its processor.
const CHECK: Duration = Duration::from_micros(4);

/// A link, and when something was found there.
type Hot = (Arc<dyn Source>, Time);

impl Shared {
    /// Look on at the links among `keys`, which were served just now, until nothing has come for a window.
    pub(crate) fn look_on(&self, window: &mut SpinWindow, keys: &[u64]) {
        let mut last = sys::now();
        let length = window.length(last);
        let mut hot: Vec<Hot> = Vec::new();
        if length.is_zero() || !self.add_hot(&mut hot, keys, last) {
            return;
        }
        let Some(_place) = Place::take(&LOOKING, window.most()) else {
            return hot.iter().for_each(|(source, _)| source.rest());
        };
        let mut check = last;
        while !hot.is_empty() && !self.stopping.load(Ordering::Relaxed) {
            let now = sys::now();
            if window.was_away(now.since(last), now) {
                break;
            }
            last = now;
            if now >= check {
                std::thread::yield_now();
                last = sys::now();
                if window.was_away(last.since(now), last) || !self.serve_others(&mut hot) {
                    break;
                }
                last = sys::now();
                check = last.after(CHECK);
            }
            hot.retain_mut(|(source, found)| match source.look_on(now) {
                Looked::NotHere => false,
                Looked::InVain if now.since(*found) >= length => {
                    window.ended();
                    source.rest();
                    false
                }
                Looked::InVain => true,
                looked => {
                    last = sys::now(); // its work took time that no other thread had
                    if looked == Looked::Found {
                        *found = last;
                    }
                    true
                }
            });
            std::hint::spin_loop();
        }
        for (source, _) in hot {
            source.rest();
        }
    }

    /// Look at those of `keys` that are links, too. Whether there are any.
    fn add_hot(&self, hot: &mut Vec<Hot>, keys: &[u64], now: Time) -> bool {
        for key in keys.iter().filter(|key| **key >= FIRST) {
            if hot.len() < HOT
                && let Some(source) = self.source(*key)
                && !hot.iter().any(|(other, _)| Arc::ptr_eq(other, &source))
                && source.stay_awake()
            {
                hot.push((source, now));
            }
        }
        !hot.is_empty()
    }

    /// Serve what else is ready. `false`: there is something for the thread's own loop.
    fn serve_others(&self, hot: &mut Vec<Hot>) -> bool {
        let mut ready = [0; HOT];
        let count = self.epoll.look(&mut ready);
        let ready = ready.get(..count).unwrap_or_default();
        if ready.is_empty() {
            return true;
        }
        self.are_ready(ready.iter().copied());
        let now = sys::now();
        for key in ready.iter().filter(|key| **key >= FIRST) {
            self.ready(*key, now);
        }
        self.add_hot(hot, ready, now);
        ready.iter().all(|key| *key >= FIRST)
    }
}

/// A place among the threads of this process that look on at a time.
struct Place<'a>(&'a AtomicUsize);

/// Threads that look on.
static LOOKING: AtomicUsize = AtomicUsize::new(0);

impl<'a> Place<'a> {
    /// A place among `most`, if one is free.
    fn take(looking: &'a AtomicUsize, most: usize) -> Option<Place<'a>> {
        let more = |looking| (looking < most).then_some(looking + 1);
        let taken = looking.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Place(looking))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000_000);

    fn micros(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    fn after(sleeps: &[u64]) -> Duration {
        let mut window = SpinWindow::new(Spin::Auto, 2);
        for sleep in sleeps {
            window.slept(micros(*sleep));
        }
        window.length(NOW)
    }

    #[test]
    fn short_sleep_makes_the_window_longer_up_to_the_longest() {
        assert_eq!(after(&[]), Duration::ZERO);
        assert_eq!(after(&[10]), micros(8));
        assert_eq!(after(&[10, 50]), micros(16));
        assert_eq!(after(&[10; 3]), micros(32));
        assert_eq!(after(&[10; 4]), LONGEST);
        assert_eq!(after(&[10; 9]), LONGEST);
    }

    #[test]
    fn long_sleep_makes_it_shorter_down_to_none() {
        assert_eq!(after(&[51]), Duration::ZERO);
        assert_eq!(after(&[10, 10, 51]), micros(8));
        assert_eq!(after(&[10, 10, 51, 1_000_000]), Duration::ZERO);
        assert_eq!(after(&[10, 10, 10, 10, 51]), micros(25));
    }

    #[test]
    fn a_thread_that_was_away_pauses_for_longer_each_time() {
        let mut window = SpinWindow::new(Spin::Auto, 2);
        window.slept(micros(10));
        window.slept(micros(10));
        assert!(!window.was_away(AWAY - Duration::from_nanos(1), NOW));
        assert_eq!(window.length(NOW), micros(16));
        let mut now = NOW;
        for pause in [1, 2, 4, 8, 16, 32, 64, 128, 128] {
            assert!(window.was_away(AWAY, now));
            let end = now.after(Duration::from_millis(pause));
            assert_eq!(window.length(Time(end.0 - 1)), Duration::ZERO, "{pause}");
            assert_eq!(window.length(end), micros(16), "{pause}");
            now = end;
        }
        window.ended();
        assert!(window.was_away(AWAY, now));
        assert_eq!(window.length(now.after(PAUSE)), micros(16));
    }

    #[test]
    fn a_length_of_ones_own_is_kept_whoever_wants_the_processor() {
        let mut window = SpinWindow::new(Spin::For(micros(30)), 2);
        assert!(!window.was_away(AWAY, NOW));
        assert_eq!(window.length(NOW), micros(30));
    }

    #[test]
    fn as_many_threads_look_on_as_leave_the_program_a_processor() {
        let most = |spin, processors| SpinWindow::new(spin, processors).most();
        assert_eq!((most(Spin::Auto, 2), most(Spin::Auto, 8)), (1, 7));
        assert_eq!(most(Spin::For(micros(1)), 2), usize::MAX);
        let looking = AtomicUsize::new(0);
        let places = [0, 1].map(|_| Place::take(&looking, 2).unwrap());
        assert!(Place::take(&looking, 2).is_none());
        drop(places);
        assert!(Place::take(&looking, 1).is_some(), "a place is given back");
    }

    #[test]
    fn one_processor_and_off_have_no_window_and_a_length_of_ones_own_stays() {
        for (spin, processors, length) in [
            (Spin::Off, 8, Duration::ZERO),
            (Spin::Auto, 1, Duration::ZERO),
            (Spin::For(micros(7)), 1, micros(7)),
            (Spin::For(micros(7)), 2, micros(7)),
        ] {
            let mut window = SpinWindow::new(spin, processors);
            window.slept(micros(1));
            assert_eq!(window.length(NOW), length, "{spin:?}");
            window.slept(micros(1_000_000));
            assert_eq!(window.length(NOW), length, "{spin:?}");
        }
    }
}
