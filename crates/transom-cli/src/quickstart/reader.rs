//! The reader: fetches, writes back, and then does everything wrong.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use transom::{Adapter, ErrorKind, Grant, Posted, QueuePair, Region, SharedMemory, Slice};

use super::digest;
use super::mistakes::{self, Wrong};
use super::report::Screen;
use super::talk::{Answer, Ready, Record, Request, hear, parse, say};
use crate::command::exit::{Exit, Failure, Outcome, system};
use crate::command::progress::Progress;
use crate::path::PathArg;

/// The findings of the tour: the JSON object.
#[derive(Debug, Serialize)]
pub(super) struct Tour {
    file: String,
    bytes: u64,
    path: &'static str,
    path_reason: &'static str,
    wire: &'static str,
    crc: bool,
    extension: bool,
    digest: String,
    digest_ok: bool,
    write_digest_ok: bool,
    read_bytes_per_second: f64,
    write_bytes_per_second: f64,
    revoke_nanoseconds: u64,
    revoked_read: Refused,
    mistakes: Vec<Mistaken>,
}

#[derive(Debug, Serialize)]
struct Refused {
    status: &'static str,
    rule: String,
    likely: String,
    /// The text that the reader got.
    explanation: String,
    /// The owner's record.
    record: String,
}

#[derive(Debug, Serialize)]
struct Mistaken {
    name: &'static str,
    others: [&'static str; 2],
    rule: String,
    likely: String,
    explanation: String,
    record: String,
    expected: bool,
}

impl Tour {
    /// The things that were not as they must be.
    pub(super) fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if !self.digest_ok {
            wrong.push("what was read differs from the file".to_owned());
        }
        if !self.write_digest_ok {
            wrong.push("what was written differs from the file".to_owned());
        }
        if !self.revoked_read.is_explained() || self.revoked_read.likely != "stale" {
            wrong.push(format!("a read after the revocation: {}", self.revoked_read.status));
        }
        for mistake in &self.mistakes {
            if !mistake.expected {
                wrong.push(format!(
                    "{}: found rule {} and likely mistake {}",
                    mistake.name, mistake.rule, mistake.likely
                ));
            }
        }
        wrong
    }
}

/// A piece of a file per request, and so many requests at a time.
const PIECE: u64 = 1 << 20;
const AHEAD: usize = 8;
/// Throughput is taken over at least this long.
const LONG_ENOUGH: Duration = Duration::from_millis(200);

pub(super) fn tour(file: &Path, path: PathArg, screen: &mut Screen) -> Outcome<Tour> {
    let (mut owner, ready) = Owner::start(file, path)?;
    let (bytes, size) = (ready.bytes, usize::try_from(ready.bytes).unwrap_or(0));
    screen.opening(&file.display().to_string(), bytes, &ready.digest, owner.child.id());
    let adapter = path.apply(Adapter::options()).route_to(ready.address)?;
    let connect = || {
        let connect = adapter.connect(ready.address).private_data(&ready.key);
        connect.reads(16).receives(4, 1024).wait()
    };

    let peer = connect()?;
    let info = peer.info();
    screen.path(info);

    screen.step(1, "Read the file through a read-only window");
    let lent = opened(&peer, &Request::Lend)?;
    // Of this process's own making, for the owner to copy to and to look at: its bytes cross once.
    let local = adapter.shared(size)?;
    let read = repeat("reading", bytes, |range| {
        peer.read(lent.range(range.0..range.1), slice(&local, range))
    })?;
    let mut fetched = vec![0; size];
    local.copy_out(0, &mut fetched)?;
    let digest_ok = digest(&fetched) == ready.digest;
    screen.moved(bytes, read, digest_ok);

    screen.step(2, "Write it back through a write-only window");
    let offered = opened(&peer, &Request::Offer)?;
    let written = repeat("writing", bytes, |range| {
        peer.write(offered.range(range.0..range.1), slice(&local, range))
    })?;
    say(&peer, &Request::Digest)?;
    let write_digest_ok = match hear(&peer)? {
        Answer::Digest(found) => found == ready.digest,
        other => return Err(odd(&other)),
    };
    screen.moved(bytes, written, write_digest_ok);

    screen.step(3, "The owner closes the window");
    say(&peer, &Request::Revoke)?;
    let revoke_nanoseconds = match hear(&peer)? {
        Answer::Closed { nanoseconds } => nanoseconds,
        other => return Err(odd(&other)),
    };
    screen.closed(Duration::from_nanos(revoke_nanoseconds));
    // Room for what must not arrive, and something to write that must not be taken.
    let scratch = adapter.register(vec![0; 256])?;
    let told = refusal(peer.read(lent.range(..8), scratch.slice(..8)));
    let revoked_read = owner.refused(told)?;
    screen.refused(&revoked_read.explanation);

    screen.step(4, "Six classic mistakes, and who says what");
    let mut mistakes = Vec::new();
    for wrong in mistakes::ALL {
        let mistake = make(wrong, &connect, &scratch, &mut owner)?;
        screen.mistake(wrong, &mistake.others, &mistake.explanation);
        mistakes.push(mistake);
    }
    Ok(Tour {
        file: file.display().to_string(),
        bytes,
        path: info.path,
        path_reason: info.path_reason,
        wire: info.wire,
        crc: info.crc,
        extension: info.extension,
        digest: ready.digest,
        digest_ok,
        write_digest_ok,
        read_bytes_per_second: read,
        write_bytes_per_second: written,
        revoke_nanoseconds,
        revoked_read,
        mistakes,
    })
}

/// A mistake, on a connection of its own: a refusal costs the connection.
fn make(
    wrong: Wrong,
    connect: &impl Fn() -> transom::Result<QueuePair>,
    memory: &Region<Vec<u8>>,
    owner: &mut Owner,
) -> Outcome<Mistaken> {
    let peer = connect()?;
    // Kept until the mistake is made: its window must still be open then.
    let other = if wrong == Wrong::AnotherConnection { Some(connect()?) } else { None };
    let lent = opened(other.as_ref().unwrap_or(&peer), &Request::Lend)?;
    if wrong == Wrong::StaleToken {
        say(&peer, &Request::Revoke)?;
        let _: Answer = hear(&peer)?;
    }
    let ask = wrong.ask(lent);
    let told = match wrong {
        Wrong::MissingRight => refusal(peer.write(ask, memory.slice(..ask.len()))),
        _ => refusal(peer.read(ask, memory.slice(..ask.len()))),
    };
    let refused = owner.refused(told)?;
    let found = (refused.rule.as_str(), refused.likely.as_str());
    let expected = wrong.expected() == found && refused.is_explained();
    Ok(Mistaken {
        name: wrong.name(),
        others: ["REM_ACCESS_ERR", "ND_ACCESS_VIOLATION"],
        rule: refused.rule,
        likely: refused.likely,
        explanation: refused.explanation,
        record: refused.record,
        expected,
    })
}

impl Refused {
    /// The reader is the same user on the same host, so it gets the owner's explanation.
    fn is_explained(&self) -> bool {
        self.status == "refused" && !self.explanation.is_empty()
    }
}

/// Status and explanation of an access that must not succeed.
fn refusal(posted: transom::Result<Posted<()>>) -> (&'static str, String) {
    match posted.and_then(Posted::wait) {
        Ok(()) => ("success", String::from("nobody objected")),
        Err(error) if error.kind() == ErrorKind::Refused => {
            ("refused", error.explanation().unwrap_or_default().to_owned())
        }
        Err(error) => ("failed", error.to_string()),
    }
}

fn opened(peer: &QueuePair, request: &Request) -> Outcome<Grant> {
    say(peer, request)?;
    match hear(peer)? {
        Answer::Open(lent) => Ok(lent.grant()),
        other => Err(odd(&other)),
    }
}

fn odd(answer: &Answer) -> Failure {
    Failure::new(Exit::Peer, format!("the owner answered something else: {answer:?}"))
}

fn slice(region: &Region<SharedMemory>, range: (u64, u64)) -> Slice {
    region.slice(range.0..range.1)
}

/// Move `bytes` piece by piece, several at a time, again and again until it was long enough. Bytes
/// per second.
fn repeat(
    name: &'static str,
    bytes: u64,
    mut post: impl FnMut((u64, u64)) -> transom::Result<Posted<()>>,
) -> Outcome<f64> {
    let progress = Progress::of_bytes(bytes, name);
    let (begin, mut rounds) = (Instant::now(), 0.0);
    while rounds == 0.0 || begin.elapsed() < LONG_ENOUGH {
        let mut under_way = std::collections::VecDeque::with_capacity(AHEAD);
        let mut at = 0;
        while at < bytes {
            if under_way.len() == AHEAD {
                under_way.pop_front().map_or(Ok(()), Posted::wait)?;
            }
            let end = bytes.min(at + PIECE);
            under_way.push_back(post((at, end))?);
            progress.advance(if rounds == 0.0 { end - at } else { 0 });
            at = end;
        }
        under_way.into_iter().try_for_each(Posted::wait)?;
        rounds += 1.0;
    }
    Ok(bytes as f64 * rounds / begin.elapsed().as_secs_f64())
}

/// The other process. Ends with this one.
struct Owner {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    _ends_with_us: Option<ChildStdin>,
}

impl Owner {
    fn start(file: &Path, path: PathArg) -> Outcome<(Owner, Ready)> {
        let program = std::env::current_exe().map_err(system("looking for this program"))?;
        let mut child = Command::new(program)
            .arg("quickstart-owner")
            .arg(file)
            .args(path.words())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(system("starting the owner's process"))?;
        let stdin = child.stdin.take();
        let Some(stdout) = child.stdout.take() else {
            return Err(Failure::new(Exit::System, "the owner's process has no output"));
        };
        let lines = BufReader::new(stdout).lines();
        let mut owner = Owner { child, lines, _ends_with_us: stdin };
        let ready = parse(owner.line()?.as_bytes())?;
        Ok((owner, ready))
    }

    fn line(&mut self) -> Outcome<String> {
        match self.lines.next() {
            Some(Ok(line)) => Ok(line),
            Some(Err(error)) => Err(system("listening to the owner's process")(error)),
            // The process has said why on standard error, which is ours.
            None => {
                let status = self.child.wait().ok().and_then(|status| status.code());
                let exit =
                    if status == Some(Exit::Usage as i32) { Exit::Usage } else { Exit::System };
                Err(Failure::new(exit, "the owner's process ended early")
                    .try_this("a file that can be read, of at least one byte"))
            }
        }
    }

    /// The text that the reader got, and the owner's record about it.
    fn refused(&mut self, told: (&'static str, String)) -> Outcome<Refused> {
        let (status, explanation) = told;
        if status != "refused" {
            let none = || String::from("none");
            let (rule, likely, record) = (none(), none(), none());
            return Ok(Refused { status, rule, likely, explanation, record });
        }
        let Record { rule, likely, text } = parse(self.line()?.as_bytes())?;
        Ok(Refused { status, rule, likely, explanation, record: text })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
