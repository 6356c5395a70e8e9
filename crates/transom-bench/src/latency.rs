//! `bench write-latency`: half a round trip of two Writes.
//!
//! Spinning: each side Writes and then watches the last byte of its own memory, which the other
//! side's Write changes, while it polls its completion queue (or does not: `--wait watch`).
//! Blocking: a thread cannot sleep on a byte of memory, so an empty Send follows each Write and
//! each side sleeps until it receives one.
//!
//! A look at the clock takes as long as a cache line's way: spinning, a sample is up to [`BATCH`] round trips.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::args::{Plan, Wait};
use crate::report::{Baseline, Report};
use crate::session::start;
use crate::side::{Job, Side};
use crate::{PAIRS, baseline, line, same_host, stats};
use transom_command::exit::{Exit, Failure, Outcome, system};
use transom_command::{Way, progress};

/// In the last byte of a message: this was the last one.
const LAST: u8 = 0xff;
/// Most round trips between two looks at the clock where both sides spin.
const BATCH: usize = 64;

pub(crate) fn run(plan: &Plan) -> Outcome {
    let (mut side, _peer) = start(plan)?;
    let base = Base::of(&side, plan.wait.is_busy());
    let mut theirs = Baseline::new(base.name());
    let (mut all, mut ours, mut looks) = (Vec::new(), Vec::new(), Vec::new());
    let same_host = base != Base::Tcp;
    if plan.baseline {
        base.ping(&mut side, plan, plan.slice / 2)?;
    }
    ping(&mut side, plan.wait, plan.slice / 2)?;
    for _ in progress::steps(PAIRS, "pairs") {
        let before = same_host.then(line::look);
        let mut samples = side.measured(|side| ping(side, plan.wait, plan.slice))?;
        looks.extend(before.map(|before| [before, line::look()]));
        ours.push(stats::median(&mut samples));
        all.append(&mut samples);
        if plan.baseline {
            theirs.values.push(stats::median(&mut base.ping(&mut side, plan, plan.slice)?));
        }
    }
    let p99 = stats::quantile(&mut all, 0.99);
    let mut report = Report::new("write-latency", "ns", &ours, p99, side.about(plan));
    if plan.baseline {
        report.compare(&ours, &theirs);
    }
    report.sort(&ours, plan.baseline.then_some(&theirs), &looks);
    report.print(plan.json);
    side.send_job(Job::Quit, 0, false)
}

/// The baseline of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    /// Between processes of one host that spin, what no road can beat ([`same_host::bounce`]).
    Line,
    /// Between processes of one host that sleep, what wakes them.
    Unix,
    Tcp,
}

impl Base {
    fn of(side: &Side, spin: bool) -> Base {
        match (side.queue.info().path == Way::Process.name(), spin) {
            (true, true) => Base::Line,
            (true, false) => Base::Unix,
            (false, _) => Base::Tcp,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Base::Line => "two threads that write one cache line in turns",
            Base::Unix => "Unix socket, blocking",
            Base::Tcp => "raw socket, waiting in the same way",
        }
    }

    /// Half round trips in nanoseconds.
    fn ping(self, side: &mut Side, plan: &Plan, time: Duration) -> Outcome<Vec<f64>> {
        let spin = plan.wait.is_busy();
        let batch = if spin { BATCH } else { 1 };
        match self {
            Base::Line => Ok(same_host::bounce(time)),
            Base::Unix => {
                side.send_job(Job::LocalPong, plan.size, spin)?;
                baseline::ping(&mut side.channel, plan.size, spin, batch, time)
                    .map_err(system("the Unix socket"))
            }
            Base::Tcp => {
                side.send_job(Job::RawPong, plan.size, spin)?;
                baseline::ping(&mut side.raw, plan.size, spin, batch, time)
                    .map_err(system("the plain socket"))
            }
        }
    }
}

/// Half round trips in nanoseconds.
fn ping(side: &mut Side, wait: Wait, time: Duration) -> Outcome<Vec<f64>> {
    let job = if wait == Wait::Watch { Job::WatchingPong } else { Job::Pong };
    side.send_job(job, 0, wait.is_busy())?;
    let most = if wait.is_busy() { BATCH } else { 1 };
    let (mut samples, mut turn, begin) = (Vec::new(), 0_u8, Instant::now());
    let mut batch = 1;
    while begin.elapsed() < time || samples.is_empty() {
        let sent = Instant::now();
        for _ in 0..batch {
            turn = (turn + 1) % LAST;
            round(side, turn, wait)?;
        }
        samples.push(sent.elapsed().as_nanos() as f64 / (2 * batch) as f64);
        // Grows, so that a short slice on a loaded machine ends in time.
        batch = most.min(2 * batch);
    }
    round(side, LAST, wait)?;
    // The next run begins with a silent bell. No other thread writes to it until then.
    quiet(side).map(|()| samples)
}

/// A round trip.
fn round(side: &Side, turn: u8, wait: Wait) -> Outcome {
    put(side, turn, wait)?;
    match take(side, turn, wait)? {
        answer if answer == turn => Ok(()),
        answer => {
            let what = format!("round {turn} was answered with {answer}");
            Err(Failure::new(Exit::CheckFailed, what))
        }
    }
}

/// The other side of [`ping`].
pub(crate) fn pong(side: &mut Side, wait: Wait) -> Outcome {
    let mut turn = 0;
    loop {
        turn = (turn + 1) % LAST;
        let seen = take(side, turn, wait)?;
        if seen == LAST {
            quiet(side)?;
        }
        put(side, seen, wait)?;
        if seen == LAST {
            return Ok(());
        }
    }
}

fn quiet(side: &Side) -> Outcome {
    bell(side)?.store(0, Ordering::Release);
    Ok(())
}

fn bell(side: &Side) -> Outcome<&AtomicU8> {
    Ok(side.memory.atomic_u8(side.memory.len().saturating_sub(1))?)
}

/// Write all of our buffer, with `turn` in its last byte, over all of theirs.
fn put(side: &Side, turn: u8, wait: Wait) -> Outcome {
    let last = side.local.len().saturating_sub(1);
    side.near_byte(last)?.store(turn, Ordering::Release);
    // The acknowledgements come with the answer and are not waited for. If something is refused,
    // the connection ends, and that is noticed.
    drop(side.queue.write(side.theirs, side.near())?);
    if !wait.is_busy() {
        drop(side.queue.send([])?);
    }
    Ok(())
}

/// The byte that the other side wrote, when it is `turn` or the last one.
fn take(side: &Side, turn: u8, wait: Wait) -> Outcome<u8> {
    let bell = bell(side)?;
    if !wait.is_busy() {
        side.queue.recv().wait()?;
        return Ok(bell.load(Ordering::Acquire));
    }
    // Watching means watching: only now and then a look whether it is all over.
    let glances = if wait == Wait::Watch { 10_000 } else { 1 };
    loop {
        for _ in 0..glances {
            let seen = bell.load(Ordering::Acquire);
            if seen == turn || seen == LAST {
                return Ok(seen);
            }
        }
        if wait == Wait::Spin {
            side.queue.poll();
        } else {
            side.queue.try_recv()?;
        }
        if let Some(why) = side.queue.ended() {
            return Err(why.into());
        }
    }
}
