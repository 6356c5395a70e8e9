//! `transom watch`, in a terminal.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Ran, Runtime, Server, ran};
use rustix::process::{Pid, Signal, kill_process};
use transom::{Adapter, Grant};

/// A terminal of tmux, which shows `transom watch`. Ends when dropped.
struct Screen<'a> {
    folder: &'a Runtime,
    socket: PathBuf,
}

impl<'a> Screen<'a> {
    fn start(folder: &'a Runtime, args: &str, size: (u16, u16)) -> Screen<'a> {
        let program = env!("CARGO_BIN_EXE_transom");
        // The shell stays, so that what is on the screen afterwards can be seen.
        Screen::of(folder, &format!("{program} watch {args}; echo status $?; exec cat"), size)
    }

    fn of(folder: &'a Runtime, command: &str, (width, height): (u16, u16)) -> Screen<'a> {
        let screen = Screen { folder, socket: folder.0.join(format!("tmux-{width}")) };
        let (width, height) = (width.to_string(), height.to_string());
        let ran = screen.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &width,
            "-y",
            &height,
            command,
        ]);
        assert_eq!(ran.code, 0, "{ran:?}");
        screen
    }

    fn tmux(&self, args: &[&str]) -> Ran {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(&self.socket).args(args);
        command.env("XDG_RUNTIME_DIR", &self.folder.0).env("TMPDIR", &self.folder.0);
        ran(command.env_remove("TMUX").env("TERM", "xterm-256color"))
    }

    fn keys(&self, keys: &[&str]) {
        let ran = self.tmux(&[&["send-keys"], keys].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
    }

    /// Wait until all of `words` are on the screen.
    #[track_caller]
    fn shows(&self, words: &[&str]) -> String {
        let begin = Instant::now();
        loop {
            let screen = self.tmux(&["capture-pane", "-p"]).out;
            if words.iter().all(|word| screen.contains(word)) {
                return screen;
            }
            let waited = begin.elapsed();
            assert!(waited < Duration::from_secs(120), "{words:?} are not all in\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// A connection to `server` that asks for a token which was never issued, and is refused.
fn refused_by(server: &Server) {
    let to = SocketAddr::from(([127, 0, 0, 1], server.port()));
    let adapter = Adapter::route_to(to).unwrap();
    let peer = adapter.connect(to).receives(4, 64).wait().unwrap();
    let bytes = adapter.register(vec![0; 8]).unwrap();
    let guess = Grant::from_parts(0x1234_5678, 4096, 8, transom::Rights::WRITE);
    peer.write(guess, bytes.slice(..)).unwrap().wait().expect_err("no such token");
}

#[test]
fn a_terminal_shows_processes_and_their_refusals_as_they_happen() {
    if Command::new("tmux").arg("-V").output().is_err() {
        eprintln!("the terminal is SKIPPED: tmux is not installed");
        return;
    }
    let folder = Runtime::new("watch-tmux");
    for size in [(80, 24), (200, 50)] {
        let screen = Screen::start(&folder, "", size);
        screen.shows(&["No process of this user answers", "TRANSOM_INSPECT=1", "q quit"]);
        let server = folder.server(&["-P"]);
        let pid = server.child.id().to_string();
        screen.shows(&[&pid, "transom", "nothing was refused", "regions and windows"]);
        refused_by(&server);
        screen.shows(&[&pid, "live_token", "Write 8 B at 0x1000 via 0x12345678"]);
        screen.keys(&["BTab", "Enter"]);
        screen.shows(&["refusal 1", "the peer was refused, live_token", "Enter close"]);
        screen.keys(&["Escape"]);
        // A key that follows at once would be read together with it.
        screen.shows(&["Tab list"]);
        screen.keys(&["Space"]);
        screen.shows(&["HELD", "Space go on"]);
        screen.keys(&["Space"]);
        screen.shows(&["Space hold"]);
        drop(server);
        screen.shows(&["has ended", "live_token"]);
        screen.keys(&["q"]);
        let after = screen.shows(&["status 0"]);
        assert!(!after.contains("live_token"), "the screen is as it was before: {after}");
    }
}

/// Whatever ends it, its user has the terminal back as it was, and the shell hears what ended it.
#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    if Command::new("tmux").arg("-V").output().is_err() {
        eprintln!("the terminal is SKIPPED: tmux is not installed");
        return;
    }
    for signal in [Signal::TERM, Signal::HUP, Signal::QUIT] {
        let folder = Runtime::new(&format!("watch-signal-{}", signal.as_raw()));
        let file = folder.0.join("pid");
        let program = env!("CARGO_BIN_EXE_transom");
        let start = format!("sh -c 'echo $$ > {}; exec {program} watch'", file.display());
        let shell = format!("{start}; echo status $?; stty -a; exec cat");
        let screen = Screen::of(&folder, &shell, (80, 24));
        screen.shows(&["No process of this user answers"]);
        let pid: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        let status = format!("status {}", 128 + signal.as_raw());
        let after = screen.shows(&[&status, " icanon ", " echo "]);
        assert!(!after.contains("No process of this user"), "{after}");
    }
}

/// Whether a process is there, and no mere entry that its parent has not looked at.
fn lives(pid: i32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = state.rsplit(") ").next().unwrap_or_default();
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

/// The terminal's window is closed: with the signal that the system sends, and without it, where another process of the
/// session keeps the terminal's signals.
#[test]
fn a_terminal_that_goes_ends_the_watch() {
    if Command::new("tmux").arg("-V").output().is_err() {
        eprintln!("the terminal is SKIPPED: tmux is not installed");
        return;
    }
    for session in ["exec", "setsid -w"] {
        let folder = Runtime::new(&format!("watch-gone-{}", session.len()));
        let file = folder.0.join("pid");
        let program = env!("CARGO_BIN_EXE_transom");
        let start = format!("{session} sh -c 'echo $$ > {}; exec {program} watch'", file.display());
        let screen = Screen::of(&folder, &start, (80, 24));
        screen.shows(&["No process of this user answers"]);
        let pid: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        assert!(lives(pid));
        drop(screen);
        let begin = Instant::now();
        while lives(pid) {
            assert!(begin.elapsed() < Duration::from_secs(120), "{session}: it goes on");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn what_is_no_terminal_is_said() {
    let folder = Runtime::new("watch-plain");
    ran(folder.command().arg("watch")).failed(2, &["no terminal", "transom show"]);
    ran(folder.command().args(["watch", "1"])).failed(3, &["process 1"]);
    let mut closed = Command::new("sh");
    closed.args(["-c", "exec \"$0\" watch <&-", env!("CARGO_BIN_EXE_transom")]);
    ran(&mut closed).failed(2, &["no terminal"]);
}
