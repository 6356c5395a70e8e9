//! Programs that a test makes and starts.

use std::path::Path;
use std::process::Command;

/// Copy the program `from` to `to`, rights and all, by `cp`. Where a process copies it itself, a fork of another
/// test's thread may hold the copy open for writing until its exec, and the kernel refuses to start what is
/// open for writing: execve(2), ETXTBSY.
///
/// # Panics
/// If `cp` cannot be started, or fails.
#[allow(clippy::expect_used, reason = "for tests")]
pub fn copied(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("--").args([from, to]).status().expect("cp(1)");
    assert!(done.success(), "cp {} {}: {done}", from.display(), to.display());
}

#[cfg(test)]
mod tests {
    use super::copied;
    use std::path::Path;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// With a copy by this process some of these starts are refused.
    #[test]
    fn a_copied_program_starts_while_other_threads_start_programs() {
        let copy = std::env::temp_dir().join(format!("transom-copied-{}", std::process::id()));
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        let _ = Command::new("true").current_dir("/").status();
                    }
                });
            }
            let refused = (0..300)
                .filter(|_| {
                    let _ = std::fs::remove_file(&copy);
                    copied(Path::new("/bin/true"), &copy);
                    Command::new(&copy).status().is_err()
                })
                .count();
            ended.store(true, Ordering::Relaxed);
            assert_eq!(refused, 0);
        });
        std::fs::remove_file(&copy).unwrap();
    }
}
