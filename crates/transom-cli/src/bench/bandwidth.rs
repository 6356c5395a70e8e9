//! `bench write-bandwidth` and `read-bandwidth`: several requests at a time.
//!
//! With `--wait watch` the other side makes no call meanwhile: its adapter's own thread serves it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use transom::Posted;

use crate::bench::args::{Plan, Wait};
use crate::bench::report::{Baseline, Report};
use crate::bench::session::start;
use crate::bench::side::{Job, Side};
use crate::bench::{PAIRS, baseline, line, same_host, stats};
use crate::command::exit::{Outcome, system};
use crate::command::{Way, progress};

/// Requests under way.
const AHEAD: usize = 16;

pub(crate) fn run(plan: &Plan, write: bool) -> Outcome {
    let (mut side, _peer) = start(plan)?;
    let (mut ours, mut looks) = (Vec::with_capacity(PAIRS), Vec::new());
    let mut variants: Vec<Baseline> = Vec::new();
    // Between processes of one host: the copy that no road can do without.
    let copies = side.queue.info().path == Way::Process.name();
    if plan.baseline && copies {
        variants.push(Baseline::new("memcpy in one thread"));
        variants.push(Baseline::new("memcpy of lines that another processor has just written"));
    } else if plan.baseline {
        for call in baseline::CALLS {
            for (spin, how) in [(true, "spinning"), (false, "blocking")] {
                let name = format!("raw, {how}, calls of {} KiB", call >> 10);
                variants.push(Baseline::new(name));
                // Warm up: the first second of a connection is not like the others.
                stream(&mut side, call, spin, plan.slice / 2)?;
            }
        }
    }
    transfer(&mut side, write, plan.wait, plan.slice / 2)?;
    for _ in progress::steps(PAIRS, "pairs") {
        let before = copies.then(line::look);
        ours.push(side.measured(|side| transfer(side, write, plan.wait, plan.slice))?);
        looks.extend(before.map(|before| [before, line::look()]));
        if let ([near, moved], true) = (&mut variants[..], copies) {
            near.values.push(same_host::memcpy(plan.size, plan.slice));
            moved.values.push(same_host::memcpy_moved(plan.size, plan.slice));
            continue;
        }
        let kinds = baseline::CALLS.iter().flat_map(|call| [(*call, true), (*call, false)]);
        for (variant, (call, spin)) in variants.iter_mut().zip(kinds) {
            variant.values.push(stream(&mut side, call, spin, plan.slice)?);
        }
    }
    let bench = if write { "write-bandwidth" } else { "read-bandwidth" };
    let p99 = stats::quantile(&mut ours.clone(), 0.01);
    let mut report = Report::new(bench, "bytes/s", &ours, p99, side.about(plan));
    let streams = variants.iter().take(if copies { 1 } else { variants.len() });
    let fastest = streams.max_by(|a, b| a.median().total_cmp(&b.median()));
    if let Some(fastest) = fastest {
        report.compare(&ours, fastest);
    }
    report.sort(&ours, fastest, &looks);
    // Bytes that move from one processor to another cannot be copied faster than that.
    if let ([_, moved], true) = (&variants[..], copies) {
        report.also(&ours, moved);
    }
    report.print(plan.json);
    side.send_job(Job::Quit, 0, false)
}

fn stream(side: &mut Side, call: usize, spin: bool, time: Duration) -> Outcome<f64> {
    side.send_job(Job::RawSink, call, spin)?;
    baseline::source(&mut side.raw, call, spin, time).map_err(system("the plain socket"))
}

/// Bytes per second. The clock stops when the other side has said of the last one that it is there.
fn transfer(side: &mut Side, write: bool, wait: Wait, time: Duration) -> Outcome<f64> {
    let (spin, helped) = (wait.is_busy(), wait != Wait::Watch);
    if helped {
        side.send_job(Job::Passive, 0, spin)?;
    }
    let (mut under_way, mut bytes) = (VecDeque::with_capacity(AHEAD), 0.0);
    let begin = Instant::now();
    while begin.elapsed() < time || under_way.is_empty() {
        if under_way.len() == AHEAD {
            under_way.pop_front().map_or(Ok(()), |oldest| finish(side, oldest, spin))?;
        }
        let local = side.near();
        under_way.push_back(if write {
            side.queue.write(side.theirs, local)?
        } else {
            side.queue.read(side.theirs, local)?
        });
        bytes += side.theirs.len() as f64;
    }
    for posted in under_way {
        finish(side, posted, spin)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    if helped {
        side.queue.send([])?.wait()?;
    }
    Ok(bytes / seconds)
}

pub(crate) fn finish(side: &Side, posted: Posted<()>, spin: bool) -> Outcome {
    if spin {
        while !posted.is_done() {
            side.queue.poll();
        }
    }
    Ok(posted.wait()?)
}
