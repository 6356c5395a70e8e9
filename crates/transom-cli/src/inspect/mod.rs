//! `transom ps` and `transom show`: look at running processes.

pub(crate) mod page;
mod sockets;

use clap::Args as ClapArgs;
use serde::Serialize;
use transom_inspect::{AskError, Found, Process};

use crate::command::exit::{Exit, Failure, Outcome};
use crate::command::print_json;

/// Arguments of `ps`.
#[derive(Debug, ClapArgs)]
pub(crate) struct PsArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Arguments of `show`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ShowArgs {
    /// The number of the process: `transom ps` lists them [default: the only one that answers]
    pid: Option<u32>,
    /// Print the records as they come, one JSON object on each line
    #[arg(long)]
    json: bool,
    /// Print counters as OpenMetrics text
    #[arg(long, conflicts_with = "json")]
    metrics: bool,
}

#[derive(Serialize)]
struct Listed {
    processes: Vec<Process>,
    /// Those with a socket that have not answered.
    silent: Vec<Silent>,
    /// Those with connections under the switch of `run --sockets`.
    sockets: Vec<sockets::Sockets>,
}

#[derive(Serialize)]
struct Silent {
    pid: u32,
    why: String,
}

/// `transom ps`.
pub(crate) fn ps(args: &PsArgs) -> Outcome {
    let (mut processes, mut silent) = (Vec::new(), Vec::new());
    for Found { pid, process } in transom_inspect::processes() {
        match process {
            Ok(process) => processes.push(process),
            Err(error) => silent.push(Silent { pid, why: error.to_string() }),
        }
    }
    let all = Listed { processes, silent, sockets: sockets::processes() };
    if args.json {
        print_json(&all);
    } else if all.processes.is_empty() && all.silent.is_empty() && all.sockets.is_empty() {
        println!(
            "no process of this user answers; start one with TRANSOM_INSPECT=1, or with transom run --inspect"
        );
    } else {
        if !all.processes.is_empty() {
            print!("{}", page::processes(&all.processes));
        }
        for Silent { pid, why } in &all.silent {
            println!("{pid:>8}  {why}");
        }
        if !all.sockets.is_empty() {
            print!("{}", sockets::table(&all.sockets));
        }
    }
    Ok(())
}

/// `transom show`.
pub(crate) fn show(args: &ShowArgs) -> Outcome {
    let pid = args.pid.map_or_else(only_one, Ok)?;
    let answer = transom_inspect::ask(pid).map_err(|error| not_answered(pid, &error))?;
    if args.json {
        print!("{}", answer.text);
    } else if args.metrics {
        print!("{}", transom_inspect::metrics(&answer.records));
    } else {
        print!("{}", page::process(&answer));
    }
    Ok(())
}

/// The process that answers, if it is the only one.
fn only_one() -> Outcome<u32> {
    let found = transom_inspect::processes();
    match &found[..] {
        [one] => Ok(one.pid),
        [] => Err(Failure::new(Exit::NoConnection, "no process of this user answers")
            .try_this("start one with TRANSOM_INSPECT=1, or with transom run --inspect")),
        _ => {
            let pids: Vec<String> = found.iter().map(|one| one.pid.to_string()).collect();
            let sentence = format!("several processes answer: {}", pids.join(", "));
            Err(Failure::new(Exit::Usage, sentence).try_this("transom show PID"))
        }
    }
}

pub(crate) fn not_answered(pid: u32, error: &AskError) -> Failure {
    let exit = match error {
        AskError::System(_) => Exit::System,
        _ => Exit::NoConnection,
    };
    let failure = Failure::new(exit, format!("process {pid}: {error}"));
    match error {
        AskError::NotThere => failure.try_this(
            "transom ps; a process answers its own user, if it was started with TRANSOM_INSPECT=1",
        ),
        AskError::Silent => failure.try_this(format!("ps -o stat= -p {pid}: T is stopped")),
        _ => failure.try_this("transom ps"),
    }
}
