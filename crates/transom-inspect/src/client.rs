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
/// Bytes read of a process's answer, through however many sockets it comes: some half a million regions and windows in
/// a minute.
const WHOLE: Limits = Limits { bytes: 256 << 20, records: 600_000, time: Duration::from_secs(60) };
/// Bytes read of an answer of which the first record is wanted.
const FIRST: Limits = Limits { bytes: LONGEST_LINE, records: 1, time: Duration::from_secs(10) };
/// Sockets that are asked for their first records at the same time.
const ASKED_AT_ONCE: usize = 128;
/// Sockets of one process that are asked before those of all others have been.
const SHARE: usize = 8;

/// How much is read of an answer, and for how long of all answers together. A process may say what it likes, for
/// as long as it likes, through as many sockets.
#[derive(Clone, Copy, Debug)]
struct Limits {
    bytes: u64,
    /// Those of kinds that are not known are counted, and not kept.
    records: usize,
    time: Duration,
}

impl Limits {
    /// All of them, to be used up from now on.
    fn begin(self) -> Room {
        Room { bytes: self.bytes, records: self.records, until: Instant::now() + self.time }
    }
}

/// The rest of the limits.
#[derive(Clone, Copy, Debug)]
struct Room {
    bytes: u64,
    records: usize,
    until: Instant,
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
                let Limits { bytes, records, .. } = WHOLE;
                write!(f, "its answer is longer than {} MiB, or {records} records", bytes >> 20)
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
            _ if is_time_out(&error) => AskError::Silent,
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
            if transom_os::threads::builder().spawn_scoped(scope, work).is_err() {
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
    let mut room = Room { until, ..FIRST.begin() };
    let process = Lines::of(stream, &mut room).process(pid);
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
    ask_within(pid, WHOLE)
}

/// As [`ask`], for so long at most: where others wait for their turn.
///
/// # Errors
/// See [`AskError`].
pub fn ask_for(pid: u32, time: Duration) -> Result<Answer, AskError> {
    ask_within(pid, Limits { time, ..WHOLE })
}

fn ask_within(pid: u32, limits: Limits) -> Result<Answer, AskError> {
    let mut room = limits.begin();
    let (mut proven, mut others) = (Vec::new(), Vec::new());
    for socket in sockets(|number| number == pid) {
        let Some(opened) = open(&socket.path) else { continue };
        let own = matches!(&opened, Ok((_, Some(holder))) if *holder == pid);
        let list = if own { &mut proven } else { &mut others };
        if list.len() < ASKED_AT_ONCE {
            list.push(opened.map(|(stream, _)| stream));
        }
    }
    let mut all: Option<Answer> = None;
    let mut several = false;
    // Any process of this user can leave a socket in the name of another.
    for stream in if proven.is_empty() { others } else { proven } {
        match (stream.and_then(|stream| answer(stream, pid, &mut room)), &mut all) {
            (Ok(answer), None) => all = Some(answer),
            (Ok(answer), Some(all)) => {
                all.add(answer);
                several = true;
            }
            // The last adapter behind this socket ended at this moment.
            (Err(AskError::CutShort), Some(_)) => {}
            (Err(error), _) => return Err(error),
        }
    }
    let mut all = all.ok_or(AskError::NotThere)?;
    if several {
        all.end();
    }
    Ok(all)
}

/// The answer that comes through one socket.
fn answer(stream: Stream, pid: u32, room: &mut Room) -> Result<Answer, AskError> {
    let mut lines = Lines::of(stream, room);
    let process = lines.process(pid)?;
    let mut records = vec![Record::Process(process.clone())];
    loop {
        let record = lines.next()?.ok_or(AskError::CutShort)?;
        let ended = matches!(record, Record::End(_));
        if record != Record::Unknown {
            records.push(record);
        }
        if ended {
            return Ok(Answer { process, records, text: lines.text });
        }
    }
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
                *adapter = adapter.saturating_add(last);
            }
            record
        }));
    }

    /// Nothing is added any more: the first and the last record, and the text, are those of all.
    fn end(&mut self) {
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
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::other(OutOfTime));
        }
        if left >= PATIENCE {
            return self.stream.read(into);
        }
        self.stream.set_read_timeout(Some(left))?;
        match self.stream.read(into) {
            // For less than its patience: it may say something yet, to who has the time.
            Err(error) if is_time_out(&error) => Err(io::Error::other(OutOfTime)),
            read => read,
        }
    }
}

fn is_time_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
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
struct Lines<'a> {
    from: BufReader<Timed>,
    text: String,
    room: &'a mut Room,
}

impl<'a> Lines<'a> {
    fn of(stream: Stream, room: &'a mut Room) -> Lines<'a> {
        let from = BufReader::new(Timed { stream, until: room.until });
        Lines { from, text: String::new(), room }
    }

    /// The first record, of the process that the socket is to be of.
    fn process(&mut self, pid: u32) -> Result<Process, AskError> {
        match self.next()? {
            Some(Record::Process(process)) if process.version != VERSION => {
                Err(AskError::Version(process.version))
            }
            Some(Record::Process(process)) if process.pid != pid => {
                Err(AskError::Garbled(format!("it says that it is process {}", process.pid)))
            }
            Some(Record::Process(process)) => Ok(process),
            Some(_) => Err(AskError::Garbled("the first record is of another kind".to_owned())),
            None => Err(AskError::CutShort),
        }
    }

    /// The next record; `None` at the end of the connection.
    fn next(&mut self) -> Result<Option<Record>, AskError> {
        let begin = self.text.len();
        let left = self.room.records.checked_sub(1);
        let (Some(left), 1..) = (left, self.room.bytes) else { return Err(AskError::TooLong) };
        let read = self.from.by_ref().take(LONGEST_LINE).read_line(&mut self.text)?;
        self.room.records = left;
        self.room.bytes = self.room.bytes.saturating_sub(read as u64);
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
    use crate::Window;
    use crate::printable::LONGEST_TEXT;
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
        let why = answer(ours, 0, &mut limits.begin()).unwrap_err();
        says.join().unwrap();
        why
    }

    const FOREVER: Duration = Duration::from_secs(1 << 20);

    #[test]
    fn an_answer_without_an_end_is_given_up() {
        let record = Record::Unknown.line();
        let all = Limits { bytes: u64::MAX, records: usize::MAX, time: FOREVER };
        let long = endless(Limits { bytes: 1 << 16, ..all }, &record);
        assert!(matches!(long, AskError::TooLong), "{long}");
        let many = endless(Limits { records: 600_000, ..all }, &record.repeat(1000));
        assert!(matches!(many, AskError::TooLong), "{many}");
        let line = endless(all, "x");
        assert!(matches!(line, AskError::CutShort), "a line without an end: {line}");
        let slow = endless(Limits { time: Duration::ZERO, ..all }, &record);
        assert!(matches!(slow, AskError::Endless), "{slow}");
    }

    /// An answer of one window, as a process of this number says it.
    fn said(pid: u32, name: &str) -> Stream {
        let (ours, mut theirs) = Stream::pair().unwrap();
        theirs.write_all(text_of(pid, name).as_bytes()).unwrap();
        ours
    }

    fn text_of(pid: u32, name: &str) -> String {
        let process = Process { version: VERSION, pid, adapters: 1, ..Process::default() };
        let window = Window { adapter: u64::MAX, name: name.to_owned(), ..Window::default() };
        let records = [
            Record::Process(process),
            Record::Window(window),
            Record::End(crate::End { records: 2 }),
        ];
        records.iter().map(Record::line).collect()
    }

    /// However many sockets a process has, its answers have one limit.
    #[test]
    fn the_answers_of_a_process_are_bounded_together() {
        let limits = Limits { bytes: u64::MAX, records: 3 * 3, time: FOREVER };
        let mut room = limits.begin();
        let mut all = answer(said(7, ""), 7, &mut room).unwrap();
        for _ in 1..3 {
            all.add(answer(said(7, ""), 7, &mut room).unwrap());
        }
        let why = answer(said(7, ""), 7, &mut room).unwrap_err();
        assert!(matches!(why, AskError::TooLong), "{why}");
        all.end();
        assert_eq!((all.process.adapters, all.records.len()), (3, 1 + 3 + 1));
        assert_eq!(all.text.lines().count(), all.records.len());
    }

    #[test]
    fn the_bytes_of_all_answers_of_a_process_are_bounded_together() {
        let one = text_of(7, "").len() as u64;
        for answers in 1..3 {
            let mut room = Limits { bytes: answers * one, records: 9, time: FOREVER }.begin();
            for number in 1..=answers {
                answer(said(7, ""), 7, &mut room).unwrap_or_else(|why| panic!("{number}: {why}"));
            }
            assert!(matches!(answer(said(7, ""), 7, &mut room), Err(AskError::TooLong)));
        }
    }

    /// A process answers for itself alone: whoever asks for it sees its number.
    #[test]
    fn an_answer_in_the_name_of_another_process_is_none() {
        let limits = Limits { bytes: u64::MAX, records: 9, time: FOREVER };
        let why = answer(said(8, ""), 7, &mut limits.begin()).unwrap_err();
        assert_eq!(why.to_string(), "what it says cannot be read: it says that it is process 8");
    }

    #[test]
    fn long_texts_are_cut() {
        let limits = Limits { bytes: u64::MAX, records: 9, time: FOREVER };
        let answer = answer(said(7, &"x".repeat(1 << 16)), 7, &mut limits.begin()).unwrap();
        let Record::Window(window) = &answer.records[1] else { panic!("{:?}", answer.records) };
        assert_eq!(window.name, "x".repeat(LONGEST_TEXT) + "\u{2026}");
        assert!(answer.text.contains(&window.name));
    }
}
