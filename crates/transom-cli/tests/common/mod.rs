//! Running the command.
#![allow(dead_code, unreachable_pub, reason = "each test file uses some of it")]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

pub fn transom() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    command.stdin(Stdio::null());
    command
}

/// How a run ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub fn run(args: &[&str]) -> Ran {
    ran(transom().args(args))
}

pub fn ran(command: &mut Command) -> Ran {
    let output = command.output().expect("the command runs");
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

impl Ran {
    pub fn json(&self) -> serde_json::Value {
        let mut lines = self.out.lines();
        let object = lines.next().unwrap_or_else(|| panic!("no output: {self:?}"));
        assert_eq!(lines.next(), None, "one object and nothing else");
        serde_json::from_str(object).unwrap_or_else(|error| panic!("{error}: {object}"))
    }

    /// The command failed with this code, in one sentence that names all of `words`, and with a
    /// remedy.
    #[track_caller]
    pub fn failed(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.err.starts_with("transom: "), "{self:?}");
        assert!(self.err.contains("\n    try: "), "no remedy: {self:?}");
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in {self:?}");
        }
        assert!(!self.err.contains("panicked"), "{self:?}");
    }
}

/// A server in the background: ends when dropped.
pub struct Server {
    pub child: Child,
    pub out: BufReader<ChildStdout>,
    pub first_line: String,
}

impl Server {
    pub fn start(args: &[&str]) -> Server {
        Server::of(transom().args(args))
    }

    pub fn of(command: &mut Command) -> Server {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        let mut first_line = String::new();
        out.read_line(&mut first_line).expect("it says that it is ready");
        Server { child, out, first_line }
    }

    /// The last word of its first line.
    pub fn address(&self) -> String {
        self.first_line.split_whitespace().last().expect("an address").to_owned()
    }

    pub fn port(&self) -> u16 {
        self.address().rsplit_once(':').expect("a port").1.parse().expect("a port")
    }

    /// Wait for its end: exit code, the rest of its output, its errors.
    pub fn finish(mut self) -> Ran {
        let mut out = String::new();
        self.out.read_to_string(&mut out).expect("UTF-8");
        let mut err = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut err).expect("UTF-8");
        }
        let status = self.child.wait().expect("it ends");
        Ran { code: status.code().unwrap_or(-1), out, err }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory of one test, which is removed with it: the runtime directory of its processes.
pub struct Runtime(pub PathBuf);

impl Runtime {
    pub fn new(test: &str) -> Runtime {
        let path = std::env::temp_dir().join(format!("transom-{test}-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Runtime(path)
    }

    pub fn command(&self) -> Command {
        let mut command = transom();
        command
            .env("XDG_RUNTIME_DIR", &self.0)
            .env("TMPDIR", &self.0)
            .env_remove("TRANSOM_INSPECT");
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        ran(self.command().args(args))
    }

    /// A server of `rping` that answers inspections.
    pub fn server(&self, args: &[&str]) -> Server {
        let mut command = self.command();
        command.env("TRANSOM_INSPECT", "1").args(["rping", "-s", "-a", "127.0.0.1", "-p", "0"]);
        Server::of(command.args(args))
    }

    /// The sockets that answer.
    pub fn sockets(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.0.join("transom")) else { return Vec::new() };
        let sockets = entries.flatten().filter(|one| one.file_type().unwrap().is_socket());
        sockets.map(|one| one.path()).collect()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
