//! `bench check`: what it costs to judge one access, guard included.
//!
//! Baseline: one unguarded load of a 64-byte entry, in the same order. Three ways of asking, each as
//! the engine does: an access whose token depends on the answer before it (latency); the frames of
//! one receive buffer, each under its own guard, the lines of the next ones fetched ahead; a gather
//! list, judged under one guard, its lines fetched first. It measures the layers below the public
//! API, through what they export.

use std::hint::black_box;
use std::time::Instant;

use transom_engine::raw::fetch_ahead;
use transom_memory::{
    Access, Actor, Config, Denial, DomainId, Grant, Memory, Purpose, QueuePairId, Registration,
    Rights, Scope, Segment, Token, Unless,
};

use serde::Serialize;

use crate::bench::args::{self, CheckArgs, Order};
use crate::bench::{PAIRS, stats};
use crate::command::exit::{Exit, Failure, Outcome};
use crate::command::{print_json, progress};

/// A result; nanoseconds per check.
#[derive(Debug, Serialize)]
struct Report {
    bench: &'static str,
    path: Option<&'static str>,
    size: usize,
    order: Order,
    /// How many checks share a guard.
    checks_per_guard: usize,
    tokens: usize,
    wait: Option<&'static str>,
    crc: Option<&'static str>,
    unit: &'static str,
    median: f64,
    quartiles: [f64; 2],
    p99: f64,
    baseline_median: f64,
    baseline: &'static str,
    ratio: f64,
    ratio_quartiles: [f64; 2],
    pairs: usize,
    largest_frame: Option<usize>,
    pid: u32,
    /// How a token was refused that had been closed, before anything was timed.
    refused: String,
}

#[derive(Debug, Serialize)]
struct Both {
    bench: &'static str,
    orders: Vec<Report>,
}

pub(crate) fn run(args: &CheckArgs) -> Outcome {
    if !(1..=8 << 20).contains(&args.tokens) {
        return Err(Failure::new(Exit::Usage, format!("--tokens {}: out of range", args.tokens))
            .try_this("--tokens 1000, --tokens 1000000"));
    }
    let slice = args::slice(args.seconds)?;
    let bench = Bench::new(args.tokens)?;
    let refused = bench.closed_is_refused()?;
    let mut orders = Vec::new();
    for order in [Order::Dependent, Order::Overlapped, Order::Batched] {
        if args.order != Order::All && args.order != order {
            continue;
        }
        // How many fit into a slice, both sides together.
        let (trial, begin) = (100_000, Instant::now());
        bench.run(order, 0, trial)?;
        let per_second = trial as f64 / begin.elapsed().as_secs_f64();
        let checks = (per_second * slice.as_secs_f64()) as usize;
        orders.push(report(args, order, bench.run(order, PAIRS, checks.max(1000))?, &refused));
    }
    if !args.json {
        for report in &orders {
            report.print();
        }
    } else if orders.len() == 1 {
        orders.iter().for_each(print_json);
    } else {
        print_json(&Both { bench: "check", orders });
    }
    Ok(())
}

fn report(args: &CheckArgs, order: Order, checked: Checked, refused: &str) -> Report {
    let ratio = checked.ratio();
    let mut ours = checked.ours;
    Report {
        bench: "check",
        path: None,
        size: 64,
        order,
        checks_per_guard: if order == Order::Batched { LIST } else { 1 },
        tokens: args.tokens,
        wait: None,
        crc: None,
        unit: "ns",
        median: stats::median(&mut ours),
        quartiles: [0.25, 0.75].map(|q| stats::quantile(&mut ours, q)),
        p99: stats::quantile(&mut ours, 0.99),
        baseline_median: stats::median(&mut checked.baseline.clone()),
        baseline: "one unguarded load of a 64-byte entry, same order",
        ratio: ratio.median,
        ratio_quartiles: ratio.quartiles,
        pairs: ours.len(),
        largest_frame: None,
        pid: std::process::id(),
        refused: refused.to_owned(),
    }
}

impl Report {
    fn print(&self) {
        let order = match self.order {
            Order::Dependent => "each waits for the one before",
            Order::Overlapped => "overlapped, the next ones fetched ahead",
            Order::Batched | Order::All => "overlapped, in lists",
        };
        println!("check  {} live tokens, random, {order}", self.tokens);
        let guard = match self.checks_per_guard {
            1 => "guard included".to_owned(),
            many => format!("a guard for each {many} included"),
        };
        println!("  transom    {:.1} ns, {guard}", self.median);
        println!("  baseline   {:.1} ns   {}", self.baseline_median, self.baseline);
        let [low, high] = self.ratio_quartiles;
        println!(
            "  ratio      {:.2}   quartiles {low:.2} to {high:.2}, {} pairs",
            self.ratio, self.pairs
        );
    }
}

/// An entry of the baseline: a cache line, as the table's own are.
#[repr(align(64))]
struct Line(u64);

/// Results in nanoseconds per check.
struct Checked {
    ours: Vec<f64>,
    baseline: Vec<f64>,
}

impl Checked {
    fn ratio(&self) -> stats::Ratio {
        stats::pairwise(&self.ours, &self.baseline)
    }
}

/// A table of `live` tokens, and the order in which they are asked for.
struct Bench {
    memory: Memory,
    actor: Actor,
    lines: Vec<Line>,
    /// Token and line, shuffled: read in sequence, by both sides.
    order: Vec<(Token, u32)>,
}

const BASE: u64 = 0x7000_0000_0000;
const LENGTH: u64 = 4096;
/// Checks whose lines are fetched ahead: small Writes in as many bytes as the engine glances at.
const AHEAD: usize = 16;
/// Entries of a gather list.
const LIST: usize = 32;

impl Bench {
    fn new(live: usize) -> Outcome<Bench> {
        let mut random = Random::new();
        let memory = Memory::new(random.seed(), Config::default());
        let domain = DomainId(1);
        let mut order = Vec::with_capacity(live);
        for index in 0..live {
            let token = memory.register(&registration(domain)).map_err(|why| {
                Failure::new(Exit::System, format!("registering {live} regions: {why:?}"))
            })?;
            order.push((token, u32::try_from(index).unwrap_or(u32::MAX)));
        }
        random.shuffle(&mut order);
        let lines = (0..live).map(|index| Line(index as u64 | 1)).collect();
        let actor = Actor { domain, queue_pair: QueuePairId(7), connection: None };
        Ok(Bench { memory, actor, lines, order })
    }

    /// The path that is measured must be the one that protects: one more token is used, closed, and
    /// refused.
    fn closed_is_refused(&self) -> Outcome<String> {
        let token = self.memory.register(&registration(self.actor.domain)).map_err(|why| {
            Failure::new(Exit::System, format!("registering one more region: {why:?}"))
        })?;
        let mut lane = self.memory.lane();
        host(self.memory.check(&mut lane, &self.access(token), 0))?;
        let unless = Unless { windows: true, posted: false };
        self.memory
            .deregister(token, unless, 0)
            .map_err(|why| Failure::new(Exit::CheckFailed, format!("closing a region: {why}")))?;
        match self.memory.check(&mut lane, &self.access(token), 0) {
            Err(denial) => Ok(denial.to_string()),
            Ok(_) => Err(Failure::new(Exit::CheckFailed, "a closed token was not refused")),
        }
    }

    /// `pairs` pairs of measurements of `checks` checks each.
    fn run(&self, order: Order, pairs: usize, checks: usize) -> Outcome<Checked> {
        let mut result = Checked { ours: Vec::new(), baseline: Vec::new() };
        // A zero that the compiler does not know: it makes the next access wait for the last one.
        let mask = black_box(0_u64);
        let mut start = 0;
        // The first pair warms up and does not count.
        for pair in progress::steps(pairs + 1, "pairs") {
            let (baseline, ours) = match order {
                Order::Dependent => {
                    (self.loads(start, checks, mask), self.checks(start, checks, mask)?)
                }
                Order::Overlapped => {
                    (self.loads_overlapped(start, checks), self.checks_overlapped(start, checks)?)
                }
                Order::Batched | Order::All => {
                    (self.loads_overlapped(start, checks), self.checks_batched(start, checks)?)
                }
            };
            start = (start + checks) % self.order.len();
            if pair > 0 {
                result.baseline.push(baseline);
                result.ours.push(ours);
            }
        }
        Ok(result)
    }

    fn at(&self, position: usize) -> (Token, u32) {
        self.order.get(position).copied().unwrap_or((Token(0), 0))
    }

    fn line(&self, index: u32) -> u64 {
        self.lines.get(index as usize).map_or(0, |line| line.0)
    }

    fn loads(&self, start: usize, checks: usize, mask: u64) -> f64 {
        let (mut position, mut last, begin) = (start, 0, Instant::now());
        for _ in 0..checks {
            last = self.line(self.at(position + (last & mask) as usize).1);
            position = self.next(position);
        }
        black_box(last);
        begin.elapsed().as_nanos() as f64 / checks as f64
    }

    fn loads_overlapped(&self, start: usize, checks: usize) -> f64 {
        let (mut position, mut sum, begin) = (start, 0_u64, Instant::now());
        for _ in 0..checks {
            sum = sum.wrapping_add(self.line(self.at(position).1));
            position = self.next(position);
        }
        black_box(sum);
        begin.elapsed().as_nanos() as f64 / checks as f64
    }

    fn checks(&self, start: usize, checks: usize, mask: u64) -> Outcome<f64> {
        let mut lane = self.memory.lane();
        let (mut position, mut last, begin) = (start, 0, Instant::now());
        for _ in 0..checks {
            let access = self.access(self.at(position + (last & mask) as usize).0);
            last = host(self.memory.check(&mut lane, &access, 0))?;
            position = self.next(position);
        }
        black_box(last);
        Ok(begin.elapsed().as_nanos() as f64 / checks as f64)
    }

    /// As a connection asks that has many small frames in its buffer.
    fn checks_overlapped(&self, start: usize, checks: usize) -> Outcome<f64> {
        let mut lane = self.memory.lane();
        let (mut position, mut sum, begin) = (start, 0_u64, Instant::now());
        for _ in 0..checks {
            self.fetch(self.at(position + AHEAD).0);
            let access = self.access(self.at(position).0);
            sum = sum.wrapping_add(host(self.memory.check(&mut lane, &access, 0))?);
            position = self.next(position);
        }
        black_box(sum);
        Ok(begin.elapsed().as_nanos() as f64 / checks as f64)
    }

    /// As a queue pair asks about a gather list.
    fn checks_batched(&self, start: usize, checks: usize) -> Outcome<f64> {
        let mut lane = self.memory.lane();
        let (mut position, mut sum, begin) = (start, 0_u64, Instant::now());
        let mut left = checks;
        while left > 0 {
            let count = left.min(LIST).min(self.order.len() - position);
            let list = self.order.get(position..position + count).unwrap_or_default();
            list.iter().for_each(|(token, _)| self.fetch(*token));
            let mut pass = self.memory.pass(&mut lane);
            for (token, _) in list {
                sum = sum.wrapping_add(host(pass.check(&self.access(*token), 0))?);
            }
            position = self.next(position + count - 1);
            left -= count;
        }
        black_box(sum);
        Ok(begin.elapsed().as_nanos() as f64 / checks as f64)
    }

    #[inline(always)]
    fn fetch(&self, token: Token) {
        if let Some(line) = self.memory.line(token) {
            fetch_ahead(line);
        }
    }

    #[inline(always)]
    fn access(&self, token: Token) -> Access {
        let (actor, purpose) = (self.actor, Purpose::LocalSource);
        Access { actor, purpose, token, address: BASE + 64, length: 64 }
    }

    fn next(&self, position: usize) -> usize {
        if position + 1 < self.order.len() { position + 1 } else { 0 }
    }
}

fn registration(domain: DomainId) -> Registration<'static> {
    const SEGMENTS: &[Segment] = &[Segment { host: BASE, length: LENGTH }];
    Registration {
        scope: Scope::Domain(domain),
        rights: Rights::LOCAL_READ | Rights::REMOTE_READ,
        base: BASE,
        segments: SEGMENTS,
    }
}

/// The answer of a check: the answer is looked at, so that it must have come, and its guard
/// dropped.
#[inline(always)]
fn host(answer: Result<Grant<'_>, Box<Denial>>) -> Outcome<u64> {
    match answer {
        Ok(grant) => Ok(grant.offset()),
        Err(denial) => Err(refused(&denial)),
    }
}

#[cold]
fn refused(denial: &Denial) -> Failure {
    Failure::new(Exit::CheckFailed, format!("a live token was refused: {denial}"))
}

/// A small generator (xorshift), seeded by the hash keys of this process: the order of questions
/// needs to be shuffled, not secret.
struct Random(u64);

impl Random {
    fn new() -> Random {
        use std::hash::{BuildHasher, RandomState};
        Random(RandomState::new().hash_one(0) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        for part in seed.chunks_mut(8) {
            part.copy_from_slice(&self.next().to_ne_bytes());
        }
        seed
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = (self.next() % (last as u64 + 1)) as usize;
            items.swap(last, other);
        }
    }
}
