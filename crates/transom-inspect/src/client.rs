//! Asking processes.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::printable::{plain_json, plain_strings};
use crate::socket::{Stream, connect};
use crate::{Folder, Process, Record, VERSION};

/// A process that says nothing for so long does not answer: it may be stopped.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest line that is read.
const LONGEST_LINE: u64 = 1 << 20;
/// Bytes read of an answer: some half a million regions and windows in a minute.
const WHOLE: Limits = Limits { bytes: 256 << 20, time: Duration::from_secs(60) };
/// Records of an answer. Those of other kinds are counted, and not kept.
const MOST_RECORDS: usize = 600_000;
/// Bytes read of an answer of which the first record is wanted.
const FIRST: Limits = Limits { bytes: LONGEST_LINE, time: Duration::from_secs(10) };
/// Sockets that are asked for their first records at the same time.
const ASKED_AT_ONCE: usize = 128;
/// Sockets of one process that are asked before those of all others have been.
const SHARE: usize = 8;

/// How much is read of an answer, and for how long of all answers together. A process may say what it likes, for
/// as long as it likes, through as many sockets.
#[derive(Clone, Copy, Debug)]
struct Limits {
    bytes: u64,
    time: Duration,
}

/// A process with a socket.
#[derive(Debug)]
pub struct Found {
    /// The process id.
    pub pid: u32,
    /// The records of its answer.
    pub process: Result<Process, AskError>,
}

/// The answer of a process.
#[derive(Debug)]
pub struct Answer {
    /// The first record.
    pub process: Process,
    /// Every record, the first and the last included.
    pub records: Vec<Record>,
    /// The records as they came: one JSON object on each line.
    pub text: String,
}

/// Why a process has not answered.
#[derive(Debug)]
#[non_exhaustive]
pub enum AskError {
    /// No process of this number has a socket.
    NotThere,
    /// The process has a socket, and says nothing: it may be stopped.
    Silent,
    /// The process ended before it had said everything.
    CutShort,
    /// The answer is longer than is read.
    TooLong,
    /// The process says something again and again, and comes to no end.
    Endless,
    /// The records have another version.
    Version(u32),
    /// A line of the answer is no record.
    Garbled(String),
    /// The process was not asked: too many others were silent.
    NotAsked,
    /// The system failed.
    System(io::Error),
}

impl std::fmt::Display for AskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AskError::NotThere => f.write_str("no process of this number answers"),
            AskError::Silent => write!(f, "it has said nothing for {} s", PATIENCE.as_secs()),
            AskError::CutShort => f.write_str("it ended before it had said everything"),
            AskError::TooLong => {
                let most = WHOLE.bytes >> 20;
                write!(f, "its answer is longer than {most} MiB, or {MOST_RECORDS} records")
            }
            AskError::Endless => f.write_str("it has not come to the end of its answer in time"),
            AskError::Version(version) => write!(
                f,
                "its records have version {version}, and this program knows version {VERSION}"
            ),
            AskError::Garbled(why) => write!(f, "what it says cannot be read: {why}"),
            AskError::NotAsked => f.write_str(
                "it was not asked, because so many others are silent; transom show asks it",
            ),
            AskError::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AskError {}

impl From<io::Error> for AskError {
    fn from(error: io::Error) -> AskError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AskError::Silent,
            io::ErrorKind::ConnectionReset => AskError::CutShort,
            _ if error.get_ref().is_some_and(|inner| inner.is::<OutOfTime>()) => AskError::Endless,
            _ => AskError::System(error),
        }
    }
}

/// Every process of this user that answers or might, by number. Sockets of processes that have ended
/// are removed.
#[must_use]
pub fn processes() -> Vec<Found> {
    let mut all: Vec<Found> = Vec::new();
    let answers = first_records(sockets(|_| true).into());
    let proven: Vec<u32> =
        answers.iter().filter(|one| one.is_proven()).map(|one| one.pid).collect();
    for First { pid, holder, process } in answers {
        // The socket was open, and the last adapter behind it ended at this moment.
        if matches!(process, Err(AskError::CutShort)) {
            continue;
        }
        // Any process of this user can leave a socket in the name of another.
        let foreign = holder.is_some_and(|holder| holder != pid);
        let pid = match &process {
            Ok(_) if foreign && proven.contains(&pid) => continue,
            Err(AskError::Silent) => holder.unwrap_or(pid),
            _ => pid,
        };
        match all.iter_mut().find(|found| found.pid == pid) {
            Some(Found { process: Ok(before), .. }) if process.is_ok() => {
                before.add(&process.unwrap_or_default());
            }
            Some(found) if found.process.is_err() => found.process = process,
            Some(_) => {}
            None => all.push(Found { pid, process }),
        }
    }
    all.sort_by_key(|found| found.pid);
    all
}

/// The first record that came through a socket.
#[derive(Debug)]
struct First {
    /// The process whose number the socket has in its name.
    pid: u32,
    /// The process that has made it, as the kernel says, if it does.
    holder: Option<u32>,
    process: Result<Process, AskError>,
}

impl First {
    /// The process in the socket's name has answered.
    fn is_proven(&self) -> bool {
        self.process.is_ok() && self.holder == Some(self.pid)
    }
}

/// A socket that is to be asked.
#[derive(Debug)]
struct Socket {
    pid: u32,
    path: PathBuf,
    /// Others come first.
    put_off: bool,
}

/// Sockets that are to be asked, and what came of those that were.
#[derive(Debug)]
struct Asking {
    rest: VecDeque<Socket>,
    answers: Vec<First>,
    /// How many sockets of each process are being asked, or were silent.
    silent: HashMap<u32, usize>,
}

/// The first record of each answer. Many are asked at a time, so that those that are silent cost their time
/// together, and few of one process, so that it takes no other's turn.
fn first_records(rest: VecDeque<Socket>) -> Vec<First> {
    let until = Instant::now() + FIRST.time;
    let count = rest.len();
    let asking = Mutex::new(Asking { rest, answers: Vec::new(), silent: HashMap::new() });
    let work = || {
        loop {
            let next = locked(&asking).rest.pop_front();
            let Some(socket) = next else { break };
            if let Some(first) = ask_first(&asking, socket, until) {
                locked(&asking).answers.push(first);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..ASKED_AT_ONCE.min(count) {
            // Fewer where the system has no more threads.
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    asking.into_inner().unwrap_or_else(PoisonError::into_inner).answers
}

fn locked(asking: &Mutex<Asking>) -> MutexGuard<'_, Asking> {
    asking.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The outcome of one socket. `None`: nobody is there, or its turn comes later.
fn ask_first(asking: &Mutex<Asking>, socket: Socket, until: Instant) -> Option<First> {
    let pid = socket.pid;
    if Instant::now() >= until {
        return Some(First { pid, holder: None, process: Err(AskError::NotAsked) });
    }
    let (stream, holder) = match open(&socket.path)? {
        Ok(open) => open,
        Err(error) => return Some(First { pid, holder: None, process: Err(error) }),
    };
    if let Some(holder) = holder {
        let mut asking = locked(asking);
        let silent = asking.silent.entry(holder).or_default();
        if *silent >= SHARE && !socket.put_off {
            asking.rest.push_back(Socket { put_off: true, ..socket });
            return None;
        }
        *silent += 1;
    }
    let process = Lines::of(stream, FIRST.bytes, until).process();
    if let Some(holder) = holder.filter(|_| !matches!(process, Err(AskError::Silent)))
        && let Some(silent) = locked(asking).silent.get_mut(&holder)
    {
        *silent -= 1;
    }
    Some(First { pid, holder, process })
}

/// Everything that one process says.
///
/// # Errors
/// See [`AskError`].
pub fn ask(pid: u32) -> Result<Answer, AskError> {
    let mut answers = Vec::new();
    let until = Instant::now() + WHOLE.time;
    let (mut proven, mut others) = (Vec::new(), Vec::new());
    for socket in sockets(|number| number == pid) {
        match open(&socket.path) {
            None => {}
            Some(Ok((stream, Some(holder)))) if holder == pid => proven.push(Ok(stream)),
            Some(opened) if others.len() < ASKED_AT_ONCE => {
                others.push(opened.map(|(stream, _)| stream));
            }
            Some(_) => {}
        }
    }
    // Any process of this user can leave a socket in the name of another.
    for stream in if proven.is_empty() { others } else { proven } {
        match stream.and_then(|stream| answer(stream, WHOLE.bytes, until)) {
            Ok(answer) => answers.push(answer),
            // The last adapter behind this socket ended at this moment.
            Err(AskError::CutShort) if !answers.is_empty() => {}
            Err(error) => return Err(error),
        }
    }
    let mut answers = answers.into_iter();
    let mut all = answers.next().ok_or(AskError::NotThere)?;
    answers.for_each(|more| all.add(more));
    Ok(all)
}

/// The answer that comes through one socket.
fn answer(stream: Stream, most: u64, until: Instant) -> Result<Answer, AskError> {
    let mut lines = Lines::of(stream, most, until);
    let process = lines.process()?;
    let mut records = vec![Record::Process(process.clone())];
    for _ in 0..MOST_RECORDS {
        let record = lines.next()?.ok_or(AskError::CutShort)?;
        let ended = matches!(record, Record::End(_));
        if record != Record::Unknown {
            records.push(record);
        }
        if ended {
            return Ok(Answer { process, records, text: lines.text });
        }
    }
    Err(AskError::TooLong)
}

impl Answer {
    /// The answer of another engine of the same process: a program that links one, and uses a
    /// library with one of its own. Adapters are numbered on.
    fn add(&mut self, more: Answer) {
        self.process.add(&more.process);
        let numbers = self.records.iter_mut().filter_map(|record| record.adapter_mut().copied());
        let last = numbers.max().unwrap_or_default();
        self.records.retain(|record| !matches!(record, Record::End(_)));
        let others = more
            .records
            .into_iter()
            .filter(|record| !matches!(record, Record::Process(_) | Record::End(_)));
        self.records.extend(others.map(|mut record| {
            if let Some(adapter) = record.adapter_mut() {
                *adapter += last;
            }
            record
        }));
        if let Some(first) = self.records.first_mut() {
            *first = Record::Process(self.process.clone());
        }
        let records = self.records.len() as u64;
        self.records.push(Record::End(crate::End { records }));
        self.text = self.records.iter().map(Record::line).collect();
    }
}

/// The sockets of such processes, by the number in their names.
fn sockets(wanted: impl Fn(u32) -> bool) -> Vec<Socket> {
    let all = Folder::existing().into_iter().flat_map(|folder| folder.sockets());
    let socket = |(pid, path)| Socket { pid, path, put_off: false };
    all.filter(|(pid, _)| wanted(*pid)).map(socket).collect()
}

/// A connection to a socket, and the process that has made it. `None`: nobody listens there, or another user
/// does. A socket without a listener is removed: a name is never used twice, so no later process has it.
#[allow(clippy::type_complexity, reason = "a result of an option of a pair")]
fn open(path: &Path) -> Option<Result<(Stream, Option<u32>), AskError>> {
    match connect(path, PATIENCE) {
        Ok(stream) => stream.map(Ok),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let _ = std::fs::remove_file(path);
            None
        }
        // Removed since the folder was read.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(error.into())),
    }
}

/// A connection with a last moment.
struct Timed {
    stream: Stream,
    until: Instant,
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if Instant::now() >= self.until {
            return Err(io::Error::other(OutOfTime));
        }
        self.stream.read(into)
    }
}

/// The last moment of a [`Timed`] has passed.
#[derive(Debug)]
struct OutOfTime;

impl std::fmt::Display for OutOfTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        AskError::Endless.fmt(f)
    }
}

impl std::error::Error for OutOfTime {}

/// An answer, as it comes.
struct Lines {
    from: BufReader<Timed>,
    text: String,
    most: u64,
}

impl Lines {
    fn of(stream: Stream, most: u64, until: Instant) -> Lines {
        let from = BufReader::new(Timed { stream, until });
        Lines { from, text: String::new(), most }
    }

    /// The first record.
    fn process(&mut self) -> Result<Process, AskError> {
        match self.next()? {
            Some(Record::Process(process)) if process.version == VERSION => Ok(process),
            Some(Record::Process(process)) => Err(AskError::Version(process.version)),
            Some(_) => Err(AskError::Garbled("the first record is of another kind".to_owned())),
            None => Err(AskError::CutShort),
        }
    }

    /// The next record; `None` at the end of the connection.
    fn next(&mut self) -> Result<Option<Record>, AskError> {
        let begin = self.text.len();
        if begin as u64 >= self.most {
            return Err(AskError::TooLong);
        }
        let read = self.from.by_ref().take(LONGEST_LINE).read_line(&mut self.text)?;
        let line = self.text.split_off(begin);
        if read == 0 {
            return Ok(None);
        }
        if !line.ends_with('\n') {
            return Err(AskError::CutShort);
        }
        // People and terminals read it: nothing in it is a command to them.
        self.text.push_str(&plain_json(&line));
        Record::of_line(&plain_strings(&line))
            .map(Some)
            .map_err(|error| AskError::Garbled(error.to_string()))
    }
}

#[cfg(test)]
#[cfg(not(windows))]
mod tests {
    use super::*;
    use std::io::Write;

    /// The answer of a process that says one line and then another again and again.
    fn endless(limits: Limits, line: &str) -> AskError {
        let (ours, mut theirs) = Stream::pair().unwrap();
        let first = Record::Process(Process { version: VERSION, ..Process::default() }).line();
        let line = line.to_owned();
        let says = std::thread::spawn(move || {
            let mut text = first;
            while theirs.write_all(text.as_bytes()).is_ok() {
                text.clone_from(&line);
            }
        });
        let why = answer(ours, limits.bytes, Instant::now() + limits.time).unwrap_err();
        says.join().unwrap();
        why
    }

    #[test]
    fn an_answer_without_an_end_is_given_up() {
        let record = Record::Unknown.line();
        let forever = Duration::from_secs(1 << 20);
        let long = endless(Limits { bytes: 1 << 16, time: forever }, &record);
        assert!(matches!(long, AskError::TooLong), "{long}");
        let many = endless(Limits { bytes: u64::MAX, time: forever }, &record.repeat(1000));
        assert!(matches!(many, AskError::TooLong), "{many}");
        let line = endless(Limits { bytes: u64::MAX, time: forever }, "x");
        assert!(matches!(line, AskError::CutShort), "a line without an end: {line}");
        let slow = endless(Limits { bytes: u64::MAX, time: Duration::ZERO }, &record);
        assert!(matches!(slow, AskError::Endless), "{slow}");
    }
}
