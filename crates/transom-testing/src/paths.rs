//! A suite over the other path: a crate's tests run over shared memory, because that is what two
//! adapters of one process choose, and this runs them once more over TCP.

use std::io::{self, Read};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const VARIABLE: &str = "TRANSOM_PATH";

/// How long a suite may take: each ends within a minute on an idle machine.
const LIMIT: Duration = Duration::from_secs(900);

/// The path that connections between two adapters of this process have in this run.
#[must_use]
pub fn of_this_run() -> &'static str {
    match std::env::var(VARIABLE).as_deref() {
        Ok("tcp") => "tcp",
        _ => "process",
    }
}

/// Whether this process shares memory with a peer, which may be itself.
#[must_use]
pub fn memory_is_shared() -> bool {
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains("memfd:transom"))
}

/// Runs the calling test binary once more over TCP: the tests whose names contain one of `filters`
/// (all, if there are none), but for those that contain one of `skip`. Does nothing in a run whose
/// path is already set.
///
/// # Panics
/// If one of them fails, or none was run.
pub fn again_over_tcp(filters: &[&str], skip: &[&str]) {
    if std::env::var_os(VARIABLE).is_some() {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap_or_default());
    command.args(filters);
    for name in skip.iter().chain(&["over_tcp"]) {
        command.args(["--skip", name]);
    }
    command.env(VARIABLE, "tcp");
    let (good, text) = match run(command) {
        Ok((success, text)) => (success && text.contains(" ... ok\n"), text),
        Err(error) => (false, error.to_string()),
    };
    assert!(
        good,
        "over TCP the suite fails, does not end within {LIMIT:?}, or none of it was run:\n{text}"
    );
}

/// Whether `command` succeeds within [`LIMIT`], and what it prints. A command that does not end is
/// killed, so that the tests which it has passed, and the one which it has not, are seen.
fn run(mut command: Command) -> io::Result<(bool, String)> {
    let (mut output, input) = io::pipe()?;
    let mut child = command.stdout(input.try_clone()?).stderr(input).spawn()?;
    drop(command); // The output ends when nobody has the other end.
    let (sender, printed) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = output.read_to_end(&mut bytes);
        sender.send(read.map(|_| String::from_utf8_lossy(&bytes).into_owned()))
    });
    let text = match printed.recv_timeout(LIMIT) {
        Ok(text) => text,
        Err(_) => {
            child.kill()?;
            printed.recv().unwrap_or_else(|error| Err(io::Error::other(error)))
        }
    };
    Ok((child.wait()?.success(), text?))
}

/// To be called while a connection between two adapters of this process is there: it takes the path that
/// this run is about.
///
/// # Panics
/// If it does not.
pub fn hold() {
    assert_eq!(memory_is_shared(), of_this_run() == "process", "the other path is used");
}

/// A suite over both paths: its tests once more over TCP, or those whose names contain one of `$only`,
/// and one that makes a connection by `$connect`, which calls [`hold`](crate::paths::hold) meanwhile.
#[macro_export]
macro_rules! over_both_paths {
    ($connect:expr) => {
        $crate::over_both_paths!($connect,);
    };
    ($connect:expr, $($only:expr),*) => {
        #[test]
        fn the_same_tests_pass_over_tcp() {
            let only: &[&str] = &[$($only, "the_path_is_the_one",)*];
            $crate::paths::again_over_tcp(only, &[]);
        }

        #[test]
        fn the_path_is_the_one_that_this_run_is_about() {
            $connect;
        }
    };
}
