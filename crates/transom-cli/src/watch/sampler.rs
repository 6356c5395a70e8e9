//! The thread that asks: a process that does not answer keeps it waiting, and not the screen.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use transom_inspect::AskError;

use super::TURN;
use super::state::Sample;

/// Between two samples.
const INTERVAL: Duration = Duration::from_secs(1);

/// Takes samples until it is dropped.
pub(super) struct Sampler {
    wants: Sender<Option<u32>>,
    wanted: Cell<Option<u32>>,
    samples: Receiver<Sample>,
}

impl Sampler {
    /// Sample all processes, or `only` one.
    ///
    /// # Errors
    /// The error of the system, which has no thread.
    pub(super) fn start(only: Option<u32>) -> std::io::Result<Sampler> {
        let (wants, wanted) = channel();
        let (to, samples) = channel();
        thread::Builder::new().spawn(move || {
            let begin = Instant::now();
            let mut records_of = only;
            loop {
                if to.send(sample(begin, only, records_of)).is_err() {
                    return;
                }
                match wanted.recv_timeout(INTERVAL) {
                    Ok(pid) => records_of = pid,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        })?;
        Ok(Sampler { wants, wanted: Cell::new(only), samples })
    }

    /// The samples that were taken since the last call.
    pub(super) fn samples(&self) -> impl Iterator<Item = Sample> {
        self.samples.try_iter()
    }

    /// Samples have all records of this process from now on. The next one is taken at once if it is
    /// another process than before.
    pub(super) fn want(&self, pid: Option<u32>) {
        if self.wanted.replace(pid) != pid {
            // A thread that has ended takes no samples either way.
            let _ = self.wants.send(pid);
        }
    }
}

fn sample(begin: Instant, only: Option<u32>, records_of: Option<u32>) -> Sample {
    let ask = |pid| match only {
        Some(_) => transom_inspect::ask(pid),
        None => transom_inspect::ask_for(pid, TURN),
    };
    let answer = records_of.map(|pid| (pid, ask(pid)));
    let processes = match (only, &answer) {
        (Some(pid), Some((_, Ok(answer)))) => vec![(pid, Ok(answer.process.clone()))],
        // Ended before, or while it answered: the list says so by its absence.
        (Some(_), Some((_, Err(AskError::NotThere | AskError::CutShort)))) => Vec::new(),
        (Some(pid), Some((_, Err(error)))) => vec![(pid, Err(error.to_string()))],
        _ => {
            let found = transom_inspect::processes().into_iter();
            found.map(|one| (one.pid, one.process.map_err(|error| error.to_string()))).collect()
        }
    };
    let records = answer.and_then(|(pid, answer)| Some((pid, answer.ok()?.records)));
    Sample { at: begin.elapsed(), processes, records }
}

#[cfg(test)]
#[cfg(not(windows))]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// The first sample of which `wanted` makes something.
    fn await_sample<T>(sampler: &Sampler, wanted: impl Fn(&Sample) -> Option<T>) -> T {
        loop {
            let sample = sampler.samples.recv().expect("the thread takes samples");
            if let Some(found) = wanted(&sample) {
                return found;
            }
        }
    }

    /// A process that says nothing, a socket that nobody has any more, and a process that ends.
    #[test]
    fn samples_come_whoever_is_silent_or_gone() {
        let adapter = || transom::Adapter::options().inspect(true).open([127, 0, 0, 1].into());
        let own = adapter().unwrap();
        let me = std::process::id();
        let folder = transom_inspect::Folder::of_user().unwrap();
        let [silent, gone] = [1, 2].map(|number| {
            let path = folder.path().join(format!("{}-{me}.sock", u32::MAX - number));
            (UnixListener::bind(&path).unwrap(), path)
        });
        drop(gone.0);
        let sampler = Sampler::start(None).unwrap();
        let is_there = |sample: &Sample| {
            sample.processes.iter().any(|(pid, process)| *pid == me && process.is_ok())
        };
        await_sample(&sampler, |sample| is_there(sample).then_some(()));
        assert!(!gone.1.exists(), "a socket without a listener is taken away");
        sampler.want(Some(me));
        let records = await_sample(&sampler, |sample| sample.records.clone());
        assert!(records.0 == me && records.1.len() > 2, "{records:?}");
        let only = Sampler::start(Some(me)).unwrap();
        await_sample(&only, |sample| is_there(sample).then_some(()));
        drop(own);
        await_sample(&only, |sample| sample.processes.is_empty().then_some(()));
        std::fs::remove_file(silent.1).unwrap();
    }
}
