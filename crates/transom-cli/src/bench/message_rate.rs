//! `bench message-rate`: small Writes, 64 under way, of which one in 16 reports its completion.
//! `bench send-rate`: the same of Sends, each of which fills a receive.
//!
//! A [`Batch`](transom::Batch) of 16 reports once. Over TCP the baseline sends the same bytes with
//! one system call each, and gets an answer to every 16th, so that as many are under way. Between
//! processes of one host it hands them from thread to thread in a bare ring of cache lines
//! ([`same_host::ring`]), without any check.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::bench::args::Plan;
use crate::bench::bandwidth::finish;
use crate::bench::baseline;
use crate::bench::report::{Baseline, Report};
use crate::bench::session::start;
use crate::bench::side::{Job, Side};
use crate::bench::{PAIRS, latency, line, same_host, stats};
use crate::command::exit::{Outcome, system};
use crate::command::{Way, progress};

/// A completion for this many requests.
const GROUP: usize = 16;
/// Groups under way.
const AHEAD: usize = 4;
/// The bytes of a message: another one follows, or this group was the last.
const MORE: u8 = 0;
const LAST: u8 = 1;

pub(crate) fn run(plan: &Plan, sends: bool) -> Outcome {
    let (mut side, _peer) = start(plan)?;
    let spin = plan.wait.is_busy();
    let same_host = side.queue.info().path == Way::Process.name();
    let mut variants = match (plan.baseline, same_host) {
        (false, _) => Vec::new(),
        (true, true) => vec![Baseline::new("a bare ring of cache lines between two threads")],
        (true, false) => ["spinning", "blocking"]
            .map(|how| Baseline::new(format!("raw, {how}, one system call each")))
            .into(),
    };
    let (mut ours, mut looks) = (Vec::with_capacity(PAIRS), Vec::new());
    for warm in progress::steps(PAIRS + 1, "pairs").map(|slice| slice == 0) {
        let time = if warm { plan.slice / 2 } else { plan.slice };
        let before = same_host.then(line::look);
        let rate = side.measured(|side| rate(side, sends, spin, time))?;
        if !warm {
            ours.push(rate);
            looks.extend(before.map(|before| [before, line::look()]));
        }
        for (variant, spin) in variants.iter_mut().zip([true, false]) {
            let rate =
                if same_host { same_host::ring(time) } else { raw(&mut side, plan, spin, time)? };
            if !warm {
                variant.values.push(rate);
            }
        }
    }
    let p99 = stats::quantile(&mut ours.clone(), 0.01);
    let name = if sends { "send-rate" } else { "message-rate" };
    let mut report = Report::new(name, "messages/s", &ours, p99, side.about(plan));
    let fastest = variants.iter().max_by(|a, b| a.median().total_cmp(&b.median()));
    if let Some(fastest) = fastest {
        report.compare(&ours, fastest);
    }
    report.sort(&ours, fastest, &looks);
    report.print(plan.json);
    side.send_job(Job::Quit, 0, false)
}

/// Writes, or Sends, per second. The clock stops when the last of them has been placed.
fn rate(side: &mut Side, sends: bool, spin: bool, time: Duration) -> Outcome<f64> {
    side.send_job(if sends { Job::Receive } else { Job::Passive }, 0, spin)?;
    let (mut under_way, mut messages) = (VecDeque::with_capacity(AHEAD), 0_u64);
    let (from, mut batch) = (side.local.slice(..), side.queue.batch());
    let begin = Instant::now();
    while begin.elapsed() < time || messages == 0 {
        if under_way.len() == AHEAD {
            under_way.pop_front().map_or(Ok(()), |oldest| finish(side, oldest, spin))?;
        }
        for _ in 0..GROUP {
            if sends {
                batch.send(&from)?;
            } else {
                batch.write(side.theirs, &from)?;
            }
        }
        under_way.push_back(batch.post()?);
        messages += GROUP as u64;
    }
    for posted in under_way {
        finish(side, posted, spin)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let last: &[u8] = if sends { &[latency::LAST] } else { &[] };
    side.queue.send(last)?.wait()?;
    Ok(messages as f64 / seconds)
}

fn raw(side: &mut Side, plan: &Plan, spin: bool, time: Duration) -> Outcome<f64> {
    side.send_job(Job::RawCount, plan.size, spin)?;
    source(&mut side.raw, plan.size, spin, time).map_err(system("the plain socket"))
}

/// Messages per second over a bare socket, one call each. A byte comes back for every group.
fn source(s: &mut TcpStream, size: usize, spin: bool, time: Duration) -> Result<f64> {
    s.set_nonblocking(spin)?;
    let (mut under_way, mut sent, begin) = (0, 0_u64, Instant::now());
    let mut over = false;
    while !over || under_way > 0 {
        if over || under_way == AHEAD {
            under_way -= some(s, &mut [0; AHEAD])?.min(under_way);
            continue;
        }
        over = begin.elapsed() >= time;
        let message = vec![if over { LAST } else { MORE }; size];
        for _ in 0..GROUP {
            baseline::send(s, &message)?;
        }
        under_way += 1;
        sent += GROUP as u64;
    }
    s.set_nonblocking(false)?;
    Ok(sent as f64 / begin.elapsed().as_secs_f64())
}

/// The other side of [`source`]: takes as much as there is.
pub(crate) fn count(s: &mut TcpStream, size: usize, spin: bool) -> Result<()> {
    s.set_nonblocking(spin)?;
    let group = GROUP * size;
    let (mut room, mut bytes, mut groups) = (vec![0; 64 << 10], 0, 0);
    loop {
        let count = some(s, &mut room)?;
        bytes += count;
        let more = bytes / group - groups;
        if more > 0 {
            groups += more;
            s.write_all(&[0; AHEAD][..more.min(AHEAD)])?;
        }
        let last = room.get(count.saturating_sub(1)) == Some(&LAST);
        if last && bytes == groups * group {
            return s.set_nonblocking(false);
        }
    }
}

/// At least one byte.
fn some(s: &mut TcpStream, room: &mut [u8]) -> Result<usize> {
    loop {
        match s.read(room) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_of_the_baseline_agree_when_it_is_over() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let other = std::thread::spawn(move || {
            let (mut s, _) = listener.accept().unwrap();
            for (size, spin) in [(8, false), (100, true), (1, false)] {
                count(&mut s, size, spin).unwrap();
            }
        });
        let mut s = TcpStream::connect(to).unwrap();
        for (size, time) in [(8, 2), (100, 1), (1, 0)] {
            let rate = source(&mut s, size, false, Duration::from_millis(time)).unwrap();
            assert!(rate > 0.0);
        }
        other.join().unwrap();
    }
}
