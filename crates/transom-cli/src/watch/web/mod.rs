//! `transom watch --web`: the memory map. Regions true to scale, windows on them in colours by right,
//! accesses, and refusals at the places that they asked for, as a page for a browser.
//!
//! `history` is what the processes have said over time, `page` the document that draws it, `http` the
//! server, which gives it to nobody who does not know a random path.

mod history;
mod http;
mod page;

use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::TURN;
use crate::command::exit::{Exit, Failure, Outcome, system};
use transom_inspect::{AskError, Found, Record};

use history::{Answers, History};
use http::Site;

/// From the beginning of a look at the processes to that of the next one.
const INTERVAL: Duration = Duration::from_millis(250);
/// Answers take at most one part in so many of the time: a process with many windows has work with them.
const SHARE: u32 = 5;
/// The time for the answers of all processes in a look, and between two looks at all. The map is no later than that,
/// whatever one of them does.
const ROUND: Duration = Duration::from_secs(10);
/// A process that has used its turn up without an answer has the next one after so long.
const ASIDE: Duration = Duration::from_secs(60);

/// Serve the map of one process, or of all, until the program is ended.
pub(super) fn serve(only: Option<u32>, port: u16) -> Outcome {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .map_err(system(&format!("listening on port {port} of 127.0.0.1")))?;
    let address = listener.local_addr().map_err(system("the listening socket"))?;
    let secret = random()?;
    let (history, begin) = (Mutex::new(History::new(unix_milliseconds())), Instant::now());
    let mut turns = Turns::default();
    let history = Arc::new(history);
    let site = Site::new(&secret, history.clone());
    // The first page has something to show then.
    let mut pause = look_at(&history, &mut turns, only, begin);
    thread::Builder::new()
        .spawn(move || http::serve(&listener, &site))
        .map_err(system("starting a thread"))?;
    // Not opened in a browser from here: the arguments of a process are open to other users.
    println!("the memory map: http://{address}/{secret}/");
    println!("Whoever has this address may look at it; Ctrl-C ends it.");
    loop {
        thread::sleep(pause);
        pause = look_at(&history, &mut turns, only, begin);
    }
}

/// Write the map into a new file, after watching for some time.
pub(super) fn export(only: Option<u32>, file: &Path, watch: Duration) -> Outcome {
    let history = Mutex::new(History::new(unix_milliseconds()));
    let (begin, mut turns) = (Instant::now(), Turns::default());
    loop {
        let pause = look_at(&history, &mut turns, only, begin);
        if begin.elapsed() >= watch {
            break;
        }
        thread::sleep(pause);
    }
    let history = http::locked(&history);
    if history.is_empty() {
        return Err(Failure::new(Exit::NoConnection, "no process of this user answers")
            .try_this("start one with TRANSOM_INSPECT=1, or with transom run --inspect"));
    }
    let document = page::exported(&history, &random()?);
    // Tokens are in it: nobody else may read it, and nothing is written over.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .and_then(|mut to| to.write_all(document.as_bytes()))
        .map_err(system(&format!("writing {}", file.display())))
        .map_err(|failure| failure.try_this("the name of a file that does not exist yet"))?;
    println!("written: {}", file.display());
    Ok(())
}

/// Look at the processes once; how long to wait until the next time.
fn look_at(
    history: &Mutex<History>,
    turns: &mut Turns,
    only: Option<u32>,
    begin: Instant,
) -> Duration {
    let before = Instant::now();
    let (answers, answering) = match only {
        Some(pid) => {
            let answer = transom_inspect::ask(pid).map(|answer| answer.records);
            (vec![(pid, answer)], before.elapsed())
        }
        None => {
            let (answers, answering) = turns.look();
            (answers, answering.min(ROUND / SHARE))
        }
    };
    let took = before.elapsed();
    http::locked(history).apply(begin.elapsed(), answers);
    INTERVAL.saturating_sub(took).max(answering * SHARE)
}

/// The order in which processes are asked, and those that have no turn for now.
#[derive(Debug, Default)]
struct Turns {
    /// Processes that answered the last time: they come first.
    answered: HashSet<u32>,
    /// Processes that did not answer in their time, and when they are asked again.
    aside: HashMap<u32, Instant>,
}

impl Turns {
    /// Ask all processes; and how long the answers took.
    fn look(&mut self) -> (Answers, Duration) {
        let ask = |pid| transom_inspect::ask_for(pid, TURN).map(|answer| answer.records);
        self.round(transom_inspect::processes(), ask)
    }

    /// Ask these processes, one after the other. Each of them may be slow on purpose.
    fn round(
        &mut self,
        mut found: Vec<Found>,
        mut ask: impl FnMut(u32) -> Result<Vec<Record>, AskError>,
    ) -> (Answers, Duration) {
        let begin = Instant::now();
        self.aside.retain(|_, until| *until > begin);
        found.sort_by_key(|one| (!self.answered.contains(&one.pid), one.pid));
        let (mut answers, mut answering) = (Answers::new(), Duration::ZERO);
        self.answered.clear();
        for Found { pid, process } in found {
            let before = Instant::now();
            let answer = match process {
                Err(why) => Err(why),
                Ok(_) if self.aside.contains_key(&pid) => Err(AskError::Endless),
                Ok(_) if before.duration_since(begin) >= ROUND => Err(AskError::NotAsked),
                Ok(_) => ask(pid),
            };
            match &answer {
                Ok(_) => {
                    self.answered.insert(pid);
                    answering += before.elapsed();
                }
                Err(AskError::Endless | AskError::TooLong | AskError::Silent) => {
                    self.aside.entry(pid).or_insert(Instant::now() + ASIDE);
                }
                Err(_) => {}
            }
            answers.push((pid, answer));
        }
        (answers, answering)
    }
}

/// 128 unpredictable bits, in hexadecimal digits.
fn random() -> Outcome<String> {
    let mut bytes = [0; 16];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| system("random bytes")(error.into()))?;
    if filled < bytes.len() {
        return Err(Failure::new(
            Exit::System,
            "the system gave fewer random bytes than asked for",
        ));
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The clock of the day, to be shown.
#[allow(clippy::disallowed_methods, reason = "people compare it with their logs")]
fn unix_milliseconds() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that answers slowly keeps the map from others for its turn, once in a while.
    #[test]
    fn a_process_that_comes_to_no_end_is_put_aside() {
        let found = |pids: &[u32]| -> Vec<Found> {
            let one =
                |pid: &u32| Found { pid: *pid, process: Ok(transom_inspect::Process::default()) };
            pids.iter().map(one).collect()
        };
        let slow = 2;
        let mut turns = Turns::default();
        for (there, expected) in [
            (&[1, 2, 3][..], &[1, 2, 3][..]),
            (&[1, 2, 3], &[1, 3]),
            // A process that has answered comes before one that might not.
            (&[0, 1, 2, 3], &[1, 3, 0]),
            (&[0, 2], &[0]),
        ] {
            let mut asked = Vec::new();
            let (answers, _) = turns.round(found(there), |pid| {
                asked.push(pid);
                if pid == slow { Err(AskError::Endless) } else { Ok(Vec::new()) }
            });
            assert_eq!(asked, expected);
            assert_eq!(answers.len(), there.len());
            for (pid, answer) in answers {
                let is_slow = matches!(answer, Err(AskError::Endless));
                assert_eq!((is_slow, answer.is_ok()), (pid == slow, pid != slow), "{pid}");
            }
        }
        // The time for which it is put aside is over.
        turns.aside.insert(slow, Instant::now());
        let mut asked = 0;
        turns.round(found(&[slow]), |_| {
            asked += 1;
            Ok(Vec::new())
        });
        assert_eq!((asked, turns.answered.contains(&slow)), (1, true));
    }
}
