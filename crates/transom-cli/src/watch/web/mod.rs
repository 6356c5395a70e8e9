//! `transom watch --web`: the memory map. Regions true to scale, windows on them in colours by right,
//! accesses, and refusals at the places that they asked for, as a page for a browser.
//!
//! `history` is what the processes have said over time, `page` the document that draws it, `http` the
//! server, which gives it to nobody who does not know a random path.

mod history;
mod http;
mod page;

use std::fs::OpenOptions;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::exit::{Exit, Failure, Outcome, system};
use transom_inspect::Found;

use history::{Answers, History};
use http::Site;

/// From the beginning of a look at the processes to that of the next one.
const INTERVAL: Duration = Duration::from_millis(250);
/// A look takes at most one part in so many of the time: a process with many windows has work with it.
const SHARE: u32 = 5;

/// Serve the map of one process, or of all, until the program is ended.
pub(super) fn serve(only: Option<u32>, port: u16) -> Outcome {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .map_err(system(&format!("listening on port {port} of 127.0.0.1")))?;
    let address = listener.local_addr().map_err(system("the listening socket"))?;
    let secret = random()?;
    let (history, begin) = (Mutex::new(History::new(unix_milliseconds())), Instant::now());
    let history = Arc::new(history);
    let site = Site::new(&secret, history.clone());
    // The first page has something to show then.
    let mut pause = look_at(&history, only, begin);
    thread::Builder::new()
        .spawn(move || http::serve(&listener, &site))
        .map_err(system("starting a thread"))?;
    // Not opened in a browser from here: the arguments of a process are open to other users.
    println!("the memory map: http://{address}/{secret}/");
    println!("Whoever has this address may look at it; Ctrl-C ends it.");
    loop {
        thread::sleep(pause);
        pause = look_at(&history, only, begin);
    }
}

/// Write the map into a new file, after watching for some time.
pub(super) fn export(only: Option<u32>, file: &Path, watch: Duration) -> Outcome {
    let history = Mutex::new(History::new(unix_milliseconds()));
    let begin = Instant::now();
    loop {
        let pause = look_at(&history, only, begin);
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
fn look_at(history: &Mutex<History>, only: Option<u32>, begin: Instant) -> Duration {
    let before = Instant::now();
    let answers = look(only);
    let took = before.elapsed();
    http::locked(history).apply(begin.elapsed(), answers);
    INTERVAL.max(took * SHARE) - took
}

/// Ask one process, or all of them.
fn look(only: Option<u32>) -> Answers {
    let pids = match only {
        Some(pid) => vec![Ok(pid)],
        None => {
            let found = transom_inspect::processes().into_iter();
            found.map(|Found { pid, process }| process.map(|_| pid).map_err(|e| (pid, e))).collect()
        }
    };
    let ask = |pid| (pid, transom_inspect::ask(pid).map(|answer| answer.records));
    pids.into_iter().map(|one| one.map_or_else(|(pid, why)| (pid, Err(why)), ask)).collect()
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
