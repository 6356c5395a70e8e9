//! Processes to be treated badly, and what is known of them from outside.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long to wait for what happens within a second: machines can be busy.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Both ways that bytes take.
pub(crate) const PATHS: [&str; 2] = ["tcp", "process"];

/// The example, built by `cargo test` beside the directory of this test.
pub(crate) fn share() -> Command {
    let mut path = std::env::current_exe().expect("this test");
    path.pop();
    path.pop();
    path.push("examples/share");
    assert!(path.exists(), "build it first: cargo build -p transom --example share");
    Command::new(path)
}

/// Wait until something is so that no event tells of: what other processes have open.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < LONG, "{what}: not within {LONG:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A directory of its own, removed at the end.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("transom-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file that differs in every 8 bytes.
    pub(crate) fn filled(&self, name: &str, length: usize) -> (PathBuf, Vec<u8>) {
        let words = (0_u64..).flat_map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
        let bytes: Vec<u8> = words.take(length).collect();
        let path = self.file(name);
        fs::write(&path, &bytes).unwrap();
        (path, bytes)
    }

    /// Every name in it.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut all: Vec<_> = fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        all.sort();
        all
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process whose lines are read as they come. Killed when dropped.
pub(crate) struct Process {
    child: Child,
    out: Receiver<String>,
    err: Option<thread::JoinHandle<String>>,
    said: Vec<String>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Process {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let (lines, out) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = lines.send(line);
            }
        });
        let mut stderr = child.stderr.take().unwrap();
        let err = thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        Process { child, out, err: Some(err), said: Vec::new() }
    }

    /// `share serve`, when it listens; and where.
    pub(crate) fn serve(command: &mut Command, file: &Path, at: &str) -> (Process, SocketAddr) {
        let mut server = Process::start(command.arg("serve").arg(file).arg(at));
        let line = server.line(|line| line.starts_with("serving"));
        let at = line.rsplit(' ').next().and_then(|at| at.parse().ok());
        (server, at.unwrap_or_else(|| panic!("no address: {line}")))
    }

    /// `share fetch`, begun.
    pub(crate) fn fetch(command: &mut Command, from: SocketAddr, out: &Path) -> Process {
        Process::start(command.arg("fetch").arg(from.to_string()).arg(out))
    }

    /// A line to its standard input.
    pub(crate) fn tell(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        let _ = kill_process(pid, signal); // it may have ended by itself
    }

    /// Kill it, and wait until it is gone.
    pub(crate) fn kill(&mut self) -> ExitStatus {
        self.signal(Signal::KILL);
        self.child.wait().unwrap()
    }

    /// The next line like this.
    pub(crate) fn line(&mut self, is_it: impl Fn(&str) -> bool) -> String {
        self.try_line(is_it).unwrap_or_else(|| {
            let complaint = self.complaint();
            panic!("it ended instead; {:#?}, {complaint}", self.said)
        })
    }

    /// The next line that is meant; `None` if the process ended instead.
    pub(crate) fn try_line(&mut self, is_it: impl Fn(&str) -> bool) -> Option<String> {
        let begun = Instant::now();
        loop {
            let left = LONG.saturating_sub(begun.elapsed());
            match self.out.recv_timeout(left) {
                Ok(line) => {
                    self.said.push(line.clone());
                    if is_it(&line) {
                        return Some(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("waited in vain; so far: {:#?}", self.said)
                }
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// How it ended by itself, everything it said, and what it complained of.
    pub(crate) fn end(mut self) -> (ExitStatus, String, String) {
        let status = until("the process ends", || self.child.try_wait().unwrap());
        while let Ok(line) = self.out.recv() {
            self.said.push(line);
        }
        (status, self.said.join("\n"), self.complaint())
    }

    /// The process ends well.
    pub(crate) fn succeeds(self) -> String {
        let (status, out, err) = self.end();
        assert!(status.success(), "{status}: {out}\n{err}");
        out
    }

    /// The process fails by itself; the text is its complaint.
    pub(crate) fn fails(self) -> String {
        let (status, out, err) = self.end();
        assert_eq!(status.code(), Some(1), "{status}: {out}\n{err}");
        assert!(err.starts_with("share: ") && !err.contains("panic"), "{err}");
        err
    }

    fn complaint(&mut self) -> String {
        self.err.take().map_or_else(String::new, |reader| reader.join().unwrap())
    }

    /// The resources it holds: descriptors, and how many of them or of its mappings are shared
    /// memory.
    pub(crate) fn holds(&self) -> Holds {
        let proc = format!("/proc/{}", self.pid());
        let fds = fs::read_dir(format!("{proc}/fd")).unwrap();
        let fds: Vec<_> = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()).collect();
        let maps = fs::read_to_string(format!("{proc}/maps")).unwrap();
        let is_shared = |name: &str| name.contains("memfd:transom");
        let threads = fs::read_dir(format!("{proc}/task")).unwrap().count();
        Holds {
            descriptors: fds.len() as u64,
            shared: fds.iter().filter(|fd| is_shared(&fd.to_string_lossy())).count()
                + maps.lines().filter(|line| is_shared(line)).count(),
            threads,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The resources that a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holds {
    pub(crate) descriptors: u64,
    pub(crate) shared: usize,
    pub(crate) threads: usize,
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A test that cannot be run here says so, also where the output of tests that pass is not shown.
pub(crate) fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {why}");
}

/// This program once more, running one test, which plays a part there (`TRANSOM_FAULTS_PART`).
pub(crate) fn part(test: &str, which: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env("TRANSOM_FAULTS_PART", which);
    command
}
