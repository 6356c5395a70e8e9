//! A progress bar for what takes long. Silent where standard error is no terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar appears when its task has taken this long.
const LONG: Duration = Duration::from_secs(1);

/// How far a task has come.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    begin: Instant,
}

impl Progress {
    /// A task of `total` steps, named as its line on the screen names it.
    pub(crate) fn of_steps(total: u64, name: &'static str) -> Progress {
        Progress::new(total, name, "{msg:>14} [{bar:40}] {pos}/{len}, {eta} left")
    }

    /// A task of `total` bytes.
    pub(crate) fn of_bytes(total: u64, name: &'static str) -> Progress {
        let template = "{msg:>14} [{bar:40}] {bytes}/{total_bytes}, {eta} left";
        Progress::new(total, name, template)
    }

    fn new(total: u64, name: &'static str, template: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(name);
        Progress { bar, begin: Instant::now() }
    }

    /// This many steps, or bytes, more are done.
    pub(crate) fn advance(&self, by: u64) {
        if self.bar.is_hidden() && self.begin.elapsed() >= LONG {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(by);
    }
}

impl Drop for Progress {
    /// Takes the bar away, so that results stand alone.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The numbers from 0 to `total`, with a bar that follows them.
pub(crate) fn steps(total: usize, name: &'static str) -> impl Iterator<Item = usize> {
    let progress = Progress::of_steps(total as u64, name);
    (0..total).inspect(move |&step| progress.advance(u64::from(step > 0)))
}

#[cfg(test)]
mod tests {
    use super::{LONG, Progress, steps};
    use std::time::Instant;

    #[test]
    fn each_step_is_counted_and_nothing_is_drawn_without_a_terminal() {
        assert_eq!(steps(3, "pairs").collect::<Vec<_>>(), [0, 1, 2]);
        let progress = Progress::of_bytes(10, "reading");
        progress.advance(4);
        assert_eq!(progress.bar.position(), 4);
        assert!(progress.bar.is_hidden());
    }

    #[test]
    fn a_bar_waits_until_its_task_has_taken_long() {
        let mut progress = Progress::of_steps(2, "pairs");
        let Some(begin) = Instant::now().checked_sub(LONG) else {
            return;
        };
        progress.begin = begin;
        progress.advance(1);
        // Standard error of the tests is rarely a terminal; then the bar stays hidden for ever.
        assert_eq!(progress.bar.is_hidden(), !std::io::IsTerminal::is_terminal(&std::io::stderr()));
    }
}
