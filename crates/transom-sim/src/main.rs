//! `transom-sim`: runs seeds, one, some, or for hours.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::ProgressBar;
use transom_sim::{Counters, OTHERS, SCENARIOS};

/// A network of adapters in one thread, from one seed, watched by a model of what they may do.
#[derive(Debug, Parser)]
struct Options {
    /// Run this seed, and nothing else. Hexadecimal with 0x.
    #[arg(long, value_parser = number)]
    seed: Option<u64>,
    /// Print every event of the engine and every step of the world.
    #[arg(long)]
    trace: bool,
    /// The first seed of many.
    #[arg(long, value_parser = number, default_value = "1")]
    from: u64,
    /// How many seeds.
    #[arg(long, default_value = "1000")]
    count: u64,
    /// Go on for so many hours instead.
    #[arg(long)]
    hours: Option<f64>,
    /// Go on after a failure.
    #[arg(long)]
    keep_going: bool,
}

fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| format!("{text:?} is not a seed: {error}"))
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(seed) = options.seed {
        let outcome = transom_sim::run(seed, options.trace);
        return match outcome.failure {
            Some(failure) => {
                println!("seed {seed:#x} fails: {failure}");
                ExitCode::FAILURE
            }
            None => {
                println!("seed {seed:#x} passes");
                ExitCode::SUCCESS
            }
        };
    }
    let start = Instant::now();
    let limit = options.hours.map(|hours| Duration::from_secs_f64(hours * 3600.0));
    let mut counters = Counters::default();
    let mut failures = 0;
    let mut seed = options.from;
    // Seeds, or seconds where time is the limit. Silent where standard error is no terminal.
    let bar = ProgressBar::new(limit.map_or(options.count, |limit| limit.as_secs()));
    loop {
        let seeds = seed - options.from;
        bar.set_position(limit.map_or(seeds, |_| start.elapsed().as_secs()));
        let done = match limit {
            Some(limit) => start.elapsed() >= limit,
            None => seeds >= options.count,
        };
        if done || failures > 0 && !options.keep_going {
            break;
        }
        let outcome = transom_sim::run(seed, false);
        if let Some(failure) = outcome.failure {
            failures += 1;
            let replay = transom_sim::replay(seed);
            bar.suspend(|| println!("seed {seed:#x} fails: {failure}\n  {replay}"));
        }
        counters.add(&outcome.counters);
        seed += 1;
    }
    bar.finish_and_clear();
    for name in OTHERS.iter().chain(SCENARIOS) {
        println!("{:>14} {name}", counters.get(name));
    }
    println!("{} seeds in {:.0?}, {failures} failures", seed - options.from, start.elapsed());
    for name in counters.missing() {
        println!("not reached: {name}");
    }
    if failures > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
