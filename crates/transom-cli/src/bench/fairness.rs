//! `bench fairness`: what an honest peer keeps when its neighbour is an attacker.
//!
//! Three processes: an owner of memory, this one, which writes into it and measures, and a neighbour. In
//! turns the neighbour is honest and does the same as this one, or attacks. The ratio of both figures,
//! turn by turn, is what is promised: an attacker takes no more from others than an honest peer would.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args as ClapArgs, ValueEnum};
use serde::Serialize;
use transom::{Adapter, Grant, Incoming, Path, QueuePair, Region, Rights};

use crate::bench::attackers::{Attack, LENT, attack};
use crate::bench::stats;
use crate::bench::tasks::Tasks;
use crate::command::exit::{Exit, Failure, Outcome, system};
use crate::command::{print_json, progress, show, watchdog};

/// Writes under way at a time.
const AHEAD: usize = 4;
/// Turns of each kind.
const TURNS: usize = 9;

/// Options of `fairness`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Args {
    /// The attack [default: all of them]
    #[arg(long, value_enum)]
    attack: Option<Attack>,
    /// Bytes per Write of an honest peer
    #[arg(long, default_value_t = 65536)]
    size: usize,
    /// Seconds for each attack, half of them beside an honest neighbour
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Print one JSON object for each attack
    #[arg(long)]
    json: bool,
    /// Role of this process in another one's measurement
    #[arg(long, value_enum, hide = true)]
    role: Option<Role>,
    /// Where the owner is
    #[arg(long, hide = true)]
    owner: Option<SocketAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    Owner,
    Neighbour,
}

#[derive(Debug, Serialize)]
struct Report {
    bench: &'static str,
    attack: String,
    size: usize,
    /// Bytes per second beside an honest neighbour, and beside the attacker: medians.
    beside_honest: f64,
    beside_attacker: f64,
    ratio: f64,
    ratio_quartiles: [f64; 2],
    turns: usize,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if !(1..=LENT).contains(&args.size) {
        let sentence = format!("--size {}: nothing to measure", args.size);
        return Err(Failure::new(Exit::Usage, sentence).try_this("--size 1 to --size 1048576"));
    }
    match (args.role, args.owner) {
        (None, _) => measure(args),
        (Some(Role::Owner), _) => own(),
        (Some(Role::Neighbour), Some(owner)) => neighbour(owner, args.size),
        (Some(Role::Neighbour), None) => Err(Failure::new(Exit::Usage, "--owner is missing")),
    }
}

// ---- the owner -------------------------------------------------------------------------------

/// Lend memory to each peer that connects, until the standard input ends.
fn own() -> Outcome {
    watchdog::end_with_parent();
    // Without a checksum unless the peer asks for one: attackers do not compute any.
    let adapter = Adapter::options().crc(false).path(Path::Tcp).open(Ipv4Addr::LOCALHOST.into())?;
    let mut listener = adapter.listen((Ipv4Addr::LOCALHOST, 0).into())?;
    println!("{}", listener.address());
    std::io::stdout().flush().map_err(system("telling where"))?;
    let memory = Rc::new(adapter.register(vec![0; LENT])?);
    // A single thread for all: with a thread each, the peer that connects most often would get the
    // most.
    let mut tasks = Tasks::new();
    let guests = tasks.spawner();
    tasks.add(async move {
        loop {
            let incoming = listener.next().await?;
            let memory = memory.clone();
            guests.add(async move {
                // Whatever goes wrong with one peer is that peer's affair.
                let _ = lend(incoming, &memory).await;
                Ok(())
            });
        }
    });
    tasks.run(None, || false)
}

/// Until the peer is gone.
async fn lend(peer: Incoming, memory: &Region<Vec<u8>>) -> Outcome {
    let queue = peer.receives(64, 64).accept().await?;
    let window = queue.bind(memory, .., Rights::READ | Rights::WRITE)?;
    queue.send(window.grant().to_bytes())?.await?;
    loop {
        queue.recv().await?;
    }
}

// ---- an honest peer ----------------------------------------------------------------------------

struct Honest {
    queue: QueuePair,
    theirs: Grant,
    local: Region<Vec<u8>>,
    _adapter: Adapter,
}

impl Honest {
    fn connect(owner: SocketAddr, size: usize) -> Outcome<Honest> {
        let adapter = Adapter::options().path(Path::Tcp).open(Ipv4Addr::LOCALHOST.into())?;
        let queue = adapter.connect(owner).wait()?;
        let theirs = Grant::from_bytes(&queue.recv().wait()?)?;
        let local = adapter.register(vec![1; size])?;
        Ok(Honest { queue, theirs, local, _adapter: adapter })
    }

    /// Bytes per second.
    fn write(&self, mut more: impl FnMut() -> bool) -> Outcome<f64> {
        let (mut under_way, mut bytes) = (VecDeque::with_capacity(AHEAD), 0.0);
        let begin = Instant::now();
        // At least one, however little time its thread had.
        while more() || bytes == 0.0 {
            if under_way.len() == AHEAD
                && let Some(oldest) = under_way.pop_front()
            {
                let oldest: transom::Posted<()> = oldest;
                oldest.wait()?;
            }
            let to = self.theirs.range(..self.local.len());
            under_way.push_back(self.queue.write(to, self.local.slice(..))?);
            bytes += self.local.len() as f64;
        }
        for posted in under_way {
            posted.wait()?;
        }
        Ok(bytes / begin.elapsed().as_secs_f64())
    }
}

// ---- the neighbour -----------------------------------------------------------------------------

/// The commands of the standard input, a word per line: `honest`, the name of an attack, or `rest`.
fn neighbour(owner: SocketAddr, size: usize) -> Outcome {
    let honest = Honest::connect(owner, size)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut busy = None;
        for line in std::io::stdin().lock().lines() {
            let line = line.map_err(system("reading from the measuring side"))?;
            stop.store(true, Ordering::Relaxed);
            if let Some(thread) = busy.take() {
                let thread: std::thread::ScopedJoinHandle<'_, ()> = thread;
                let _ = thread.join();
            }
            stop.store(false, Ordering::Relaxed);
            let (honest, stop) = (&honest, &stop);
            // A thread, whichever it is.
            if line == "honest" {
                busy = Some(scope.spawn(move || {
                    let _ = honest.write(|| !stop.load(Ordering::Relaxed));
                }));
            } else if let Ok(kind) = Attack::from_str(&line, false) {
                busy = Some(scope.spawn(move || attack(kind, owner, stop)));
            }
            println!("{line}");
            std::io::stdout().flush().map_err(system("answering the measuring side"))?;
        }
        stop.store(true, Ordering::Relaxed);
        Ok(())
    })
}

// ---- measuring -----------------------------------------------------------------------------------

/// A child, and the lines that it says.
struct Other {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn start(role: &[&str]) -> Outcome<Other> {
        let program = std::env::current_exe().map_err(system("looking for this program"))?;
        let mut child = Command::new(program)
            .args(["bench", "fairness"])
            .args(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(system("starting another process"))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => {
                Ok(Other { child, input, output: BufReader::new(output) })
            }
            _ => Err(Failure::new(Exit::System, "the other process has no pipes")),
        }
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        let doing = "listening to another process";
        if self.output.read_line(&mut line).map_err(system(doing))? == 0 {
            return Err(Failure::new(Exit::System, "another process ended early"));
        }
        Ok(line.trim().to_owned())
    }

    /// Be something else from now on.
    fn become_a(&mut self, word: &str) -> Outcome {
        writeln!(self.input, "{word}").map_err(system("telling the neighbour"))?;
        self.line().map(drop)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn measure(args: &Args) -> Outcome {
    let seconds = args.seconds.clamp(0.01, 3600.0);
    let slice = Duration::from_secs_f64(seconds / (2 * TURNS) as f64);
    let mut owner = Other::start(&["--role", "owner"])?;
    let at = owner.line()?;
    let at: SocketAddr =
        at.parse().map_err(|_| Failure::new(Exit::System, "the owner's process ended early"))?;
    let (to, size) = (at.to_string(), args.size.to_string());
    let mut other =
        Other::start(&["--role", "neighbour", "--owner", to.as_str(), "--size", size.as_str()])?;
    let honest = Honest::connect(at, args.size)?;
    other.become_a("honest")?;
    turn(&honest, slice)?;
    let attacks = Attack::value_variants();
    for kind in attacks.iter().filter(|kind| args.attack.is_none_or(|only| only == **kind)) {
        let name = kind.to_possible_value().map_or(String::new(), |v| v.get_name().to_owned());
        let (mut friends, mut foes) = (Vec::new(), Vec::new());
        for _ in progress::steps(TURNS, "turns") {
            for (neighbour, figures) in [("honest", &mut friends), (name.as_str(), &mut foes)] {
                other.become_a("rest")?;
                other.become_a(neighbour)?;
                // The first moments are the neighbour's beginning.
                turn(&honest, slice / 8)?;
                figures.push(turn(&honest, slice)?);
            }
        }
        other.become_a("rest")?;
        let ratio = stats::pairwise(&foes, &friends);
        let report = Report {
            bench: "fairness",
            attack: name,
            size: args.size,
            beside_honest: stats::median(&mut friends),
            beside_attacker: stats::median(&mut foes),
            ratio: ratio.median,
            ratio_quartiles: ratio.quartiles,
            turns: TURNS,
        };
        report.print(args.json);
    }
    Ok(())
}

fn turn(honest: &Honest, time: Duration) -> Outcome<f64> {
    let begin = Instant::now();
    honest.write(|| begin.elapsed() < time)
}

impl Report {
    fn print(&self, json: bool) {
        if json {
            return print_json(self);
        }
        let [low, high] = self.ratio_quartiles;
        println!(
            "{:<16} {:>10} beside it, {:>10} beside an honest peer: {:.2}   quartiles {low:.2} to {high:.2}",
            self.attack,
            show::rate(self.beside_attacker),
            show::rate(self.beside_honest),
            self.ratio,
        );
    }
}
