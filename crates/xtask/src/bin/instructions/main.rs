//! Counts the instructions of one operation of the hot path, exactly, by single steps, and compares
//! them with a committed budget. Instruction counts do not depend on the load of the machine, so this
//! is the one test of speed that can fail a build.
//!
//! `benches/instructions` runs it: every subject of the table of budgets, or those that are named.

// The shared library is loaded, not linked: its crate would change the code of the other subjects.
#[allow(
    dead_code,
    unreachable_pub,
    unsafe_code,
    reason = "the verbs library's own table of structures"
)]
#[path = "../../../../transom-verbs/src/abi/mod.rs"]
mod abi;
mod decode;
#[expect(unsafe_code, reason = "ptrace, and the marks that it stops at")]
mod stepper;
mod subjects;
#[expect(unsafe_code, reason = "the verbs library is called as a C program does")]
mod verbs;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Parser;
use serde::{Deserialize, Serialize};

use crate::stepper::Count;
use crate::subjects::{SUBJECTS, Subject};

/// How often a subject is started before it is said to exceed its budget, or not to be countable: its
/// connection may end because the machine is busy, and its buffers may lie worse than usual.
const TRIES: usize = 3;

/// `--write` leaves a margin of one instruction in so many, because copies of the C library differ
/// between machines.
const MARGIN: u64 = 50;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Count the instructions of operations of the hot path and hold them to a budget
#[derive(Debug, Parser)]
struct Args {
    /// The table of budgets
    #[arg(long)]
    budget: PathBuf,
    /// Write the counts of this run into the table of budgets
    #[arg(long)]
    write: bool,
    /// Only these subjects
    names: Vec<String>,
    /// Be the subject: used by the stepper itself
    #[arg(long, hide = true)]
    subject: Option<String>,
}

/// A line of the table of budgets: most instructions of one operation, rounded up.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Budget {
    /// Instructions; a system call counts as one.
    instructions: u64,
    /// Instructions that lock a cache line, and full fences.
    locked: u64,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("instructions: {why}");
            ExitCode::from(2)
        }
    }
}

fn named(name: &str) -> Outcome<&'static Subject> {
    let known = SUBJECTS.iter().map(|subject| subject.name).collect::<Vec<_>>().join(", ");
    let found = SUBJECTS.iter().find(|subject| subject.name == name);
    Ok(found.ok_or_else(|| format!("{name} is no subject; these are: {known}"))?)
}

/// True if every subject keeps its budget.
fn run(args: &Args) -> Outcome<bool> {
    if let Some(name) = &args.subject {
        return named(name)?.run().map(|()| true);
    }
    let subjects = match args.names.as_slice() {
        [] => SUBJECTS.iter().collect(),
        names => names.iter().map(|name| named(name)).collect::<Outcome<Vec<_>>>()?,
    };
    let text = std::fs::read_to_string(&args.budget)
        .map_err(|why| format!("{}: {why}", args.budget.display()))?;
    let mut budgets: BTreeMap<String, Budget> = toml::from_str(&text)?;
    println!(
        "{:<24} {:>12} {:>8} {:>8} {:>18}",
        "one", "instructions", "locked", "calls", "budget"
    );
    let mut kept = true;
    for subject in subjects {
        let known = budgets.get(subject.name).copied();
        let count = count(args, subject, known)?;
        let measured = Budget { instructions: count.instructions, locked: count.locked };
        if args.write {
            let instructions = measured.instructions + measured.instructions.div_ceil(MARGIN);
            budgets.insert(subject.name.to_owned(), Budget { instructions, ..measured });
        }
        let budget = budgets.get(subject.name).copied();
        let verdict = match budget {
            None => "no budget".to_owned(),
            Some(most) if count.instructions > most.instructions || count.locked > most.locked => {
                format!("{} / {}  EXCEEDED", most.instructions, most.locked)
            }
            Some(most) => format!("{} / {}", most.instructions, most.locked),
        };
        kept &= budget.is_some() && !verdict.ends_with("EXCEEDED");
        println!(
            "{:<24} {:>12} {:>8} {:>8} {:>18}   {}",
            subject.name, count.instructions, count.locked, count.calls, verdict, subject.about
        );
    }
    if args.write {
        std::fs::write(&args.budget, header(&text) + &toml::to_string(&budgets)?)?;
    }
    Ok(kept)
}

/// The comment at the top of the table of budgets, which outlives `--write`.
fn header(text: &str) -> String {
    text.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

/// The shortest stretch of a subject, as a count of one operation, rounded up: what the path itself
/// costs. Longer ones include work that is not the operation's, such as a lease that was renewed.
fn count(args: &Args, subject: &Subject, budget: Option<Budget>) -> Outcome<Count> {
    let (mut stretches, mut fault) = (Vec::new(), None);
    for _ in 0..TRIES {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--budget").arg(&args.budget).args(["--subject", subject.name]);
        command.env("TRANSOM_PATH", subject.path).env("TRANSOM_ADDRESSES", "127.0.0.1");
        match stepper::run(&mut command) {
            Ok(counted) => stretches.extend(counted),
            Err(why) => fault = Some(why),
        }
        let within = |count: &Count| {
            let operations = subject.operations;
            budget.is_none_or(|most| {
                count.instructions <= most.instructions * operations
                    && count.locked <= most.locked * operations
            })
        };
        if stretches.iter().any(within) {
            break;
        }
    }
    if let (true, Some(why)) = (stretches.is_empty(), fault) {
        return Err(format!("{} cannot be counted: {why}", subject.name).into());
    }
    let least = stretches.iter().min_by_key(|stretch| stretch.instructions);
    let least = least.ok_or_else(|| format!("{}: no stretch was counted", subject.name))?;
    Ok(Count {
        instructions: least.instructions.div_ceil(subject.operations),
        locked: least.locked.div_ceil(subject.operations),
        calls: least.calls.div_ceil(subject.operations),
    })
}
