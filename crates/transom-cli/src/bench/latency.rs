//! `bench write-latency` and `send-latency`: half a round trip of two messages. `read-latency` and
//! `atomic-latency`: there and back of one request.
//!
//! Writes, spinning: each side Writes and then watches the last byte of its own memory, which the other
//! side's Write changes, while it polls its completion queue (or does not: `--wait watch`).
//! Blocking: a thread cannot sleep on a byte of memory, so an empty Send follows each Write and
//! each side sleeps until it receives one.
//!
//! Of Reads and atomics the other side is the target. It polls, or sleeps, or makes no call: `--wait watch`.
//!
//! A look at the clock takes as long as a cache line's way: spinning, a sample is up to [`BATCH`] round trips.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::bench::args::{Plan, Wait};
use crate::bench::bandwidth::finish;
use crate::bench::report::{Baseline, Report};
use crate::bench::session::start;
use crate::bench::side::{Job, Side};
use crate::bench::{PAIRS, baseline, line, same_host, stats};
use crate::command::exit::{Exit, Failure, Outcome, system};
use crate::command::{Way, progress};

/// In the last byte of a message: this was the last one.
pub(crate) const LAST: u8 = 0xff;
/// Most round trips between two looks at the clock where both sides spin.
const BATCH: usize = 64;

/// The messages that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    Write,
    Send,
    Read,
    FetchAdd,
}

impl Exchange {
    fn name(self) -> &'static str {
        match self {
            Exchange::Write => "write-latency",
            Exchange::Send => "send-latency",
            Exchange::Read => "read-latency",
            Exchange::FetchAdd => "atomic-latency",
        }
    }

    /// Whether the target has no part in it, so that the way there and back is one request.
    fn fetches(self) -> bool {
        matches!(self, Exchange::Read | Exchange::FetchAdd)
    }
}

pub(crate) fn run(plan: &Plan, exchange: Exchange) -> Outcome {
    if exchange == Exchange::FetchAdd && plan.size != 8 {
        let why = format!("--size {}: an atomic changes eight bytes", plan.size);
        return Err(Failure::new(Exit::Usage, why).try_this("--size 8"));
    }
    let (mut side, _peer) = start(plan)?;
    let base = Base::of(&side, plan.wait.is_busy());
    let mut theirs = Baseline::new(base.name(exchange));
    let (mut all, mut ours, mut looks) = (Vec::new(), Vec::new(), Vec::new());
    let same_host = base != Base::Tcp;
    if plan.baseline {
        base.ping(&mut side, plan, plan.slice / 2)?;
    }
    ping(&mut side, exchange, plan.wait, plan.slice / 2)?;
    for _ in progress::steps(PAIRS, "pairs") {
        let before = same_host.then(line::look);
        let mut samples = side.measured(|side| ping(side, exchange, plan.wait, plan.slice))?;
        looks.extend(before.map(|before| [before, line::look()]));
        ours.push(stats::median(&mut samples));
        all.append(&mut samples);
        if plan.baseline {
            let half = stats::median(&mut base.ping(&mut side, plan, plan.slice)?);
            theirs.values.push(if exchange.fetches() { 2.0 * half } else { half });
        }
    }
    let p99 = stats::quantile(&mut all, 0.99);
    let mut report = Report::new(exchange.name(), "ns", &ours, p99, side.about(plan));
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

    fn name(self, exchange: Exchange) -> String {
        let name = match self {
            Base::Line => "two threads that write one cache line in turns",
            Base::Unix => "Unix socket, blocking",
            Base::Tcp => "raw socket, waiting in the same way",
        };
        if exchange.fetches() { format!("{name}, there and back") } else { name.to_owned() }
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

/// Half round trips, or the ways there and back, in nanoseconds.
fn ping(side: &mut Side, exchange: Exchange, wait: Wait, time: Duration) -> Outcome<Vec<f64>> {
    let spin = wait.is_busy();
    let job = match exchange {
        Exchange::Write if wait == Wait::Watch => Job::WatchingPong,
        Exchange::Write => Job::Pong,
        Exchange::Send => Job::SendPong,
        Exchange::Read | Exchange::FetchAdd => Job::Passive,
    };
    // The target of a Read sleeps if it is to make no call.
    side.send_job(job, 0, if exchange.fetches() { wait == Wait::Spin } else { spin })?;
    let most = if spin { BATCH } else { 1 };
    let halves = if exchange.fetches() { 1 } else { 2 };
    let (mut samples, mut turn, begin) = (Vec::new(), 0_u8, Instant::now());
    let mut batch = 1;
    while begin.elapsed() < time || samples.is_empty() {
        let sent = Instant::now();
        for _ in 0..batch {
            turn = (turn + 1) % LAST;
            match exchange {
                Exchange::Write => round(side, turn, wait)?,
                Exchange::Send => {
                    send(side, turn)?;
                    receive(side, spin)?;
                }
                Exchange::Read => finish(side, side.queue.read(side.theirs, side.near())?, spin)?,
                Exchange::FetchAdd => {
                    finish(side, side.queue.fetch_add(side.theirs, 1, side.near())?, spin)?;
                }
            }
        }
        samples.push(sent.elapsed().as_nanos() as f64 / (halves * batch) as f64);
        // Grows, so that a short slice on a loaded machine ends in time.
        batch = most.min(2 * batch);
    }
    match exchange {
        Exchange::Write => {
            round(side, LAST, wait)?;
            // The next run begins with a silent bell. No other thread writes to it until then.
            quiet(side)?;
        }
        Exchange::Send => {
            send(side, LAST)?;
            receive(side, spin)?;
        }
        Exchange::Read | Exchange::FetchAdd => side.queue.send([])?.wait()?,
    }
    Ok(samples)
}

/// A round trip of Writes.
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

/// Send a message whose last byte is `turn`.
fn send(side: &Side, turn: u8) -> Outcome {
    side.near_byte(side.local.len() - 1)?.store(turn, Ordering::Release);
    drop(side.queue.send_from(side.near())?);
    Ok(())
}

/// The last byte of the next message.
fn receive(side: &Side, spin: bool) -> Outcome<u8> {
    let message = loop {
        if !spin {
            break side.queue.recv().wait()?;
        }
        if let Some(message) = side.queue.try_recv()? {
            break message;
        }
        side.queue.poll();
    };
    Ok(message.last().copied().unwrap_or(LAST))
}

/// The other side of [`Exchange::Send`].
pub(crate) fn send_pong(side: &Side, spin: bool) -> Outcome {
    loop {
        let turn = receive(side, spin)?;
        send(side, turn)?;
        if turn == LAST {
            return Ok(());
        }
    }
}

/// Receive messages until the last one.
pub(crate) fn receive_all(side: &Side, spin: bool) -> Outcome {
    while receive(side, spin)? != LAST {}
    Ok(())
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
