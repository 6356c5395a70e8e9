//! How far a process has used the library, for the line that `transom run` promises about its end.
//!
//! `TRANSOM_RUN` names the process that was started, what it asked for, and a file. Each process that it
//! leads to appends a letter to the file at each stage; the library for path names reads it at the end.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::status;
use crate::context::Context;
use crate::process::PerProcess;
use crate::{environment, explain, port};

/// The use that a process has made of the library, as the letter in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Listed = b'l' as isize,
    Opened = b'o' as isize,
    /// Has made a queue pair.
    Used = b'q' as isize,
}

/// Counts of one process.
#[derive(Debug, Default)]
struct Totals {
    made: AtomicU64,
    connected: AtomicU64,
    failed: AtomicU64,
    /// Of queue pairs that have ended.
    bytes: AtomicU64,
    stages: AtomicU64,
}

static TOTALS: PerProcess<Totals> = PerProcess::new();

/// `TRANSOM_RUN`: whether a line is wanted, and the file.
fn run() -> Option<(bool, PathBuf)> {
    let text = environment::variable("TRANSOM_RUN")?;
    let mut words = text.splitn(3, ':').skip(1);
    let (wishes, file) = (words.next()?, words.next()?);
    Some((wishes.contains('n'), file.into()))
}

/// The process has come to a stage. The first time, others learn of it.
pub(crate) fn reached(stage: Stage) {
    let bit = 1 << (stage as u8 - b'a');
    if TOTALS.get_or_default().stages.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
        return;
    }
    if let Some((_, file)) = run() {
        // No wait for a pipe in its place.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let options = OpenOptions::new().append(true).custom_flags(flags).open(&file);
        let Ok(mut to) = options else { return };
        if transom_os::signals::without_signals(|| to.write_all(&[stage as u8])).is_err() {
            // A limit of file sizes. Without the file nothing is said at the end, which is better than a wrong word.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// A queue pair was made.
pub(crate) fn made() {
    TOTALS.get_or_default().made.fetch_add(1, Ordering::Relaxed);
    reached(Stage::Used);
}

/// A connection was established.
pub(crate) fn connected(context: &Arc<Context>) {
    port::watch(context);
    TOTALS.get_or_default().connected.fetch_add(1, Ordering::Relaxed);
}

/// A request has failed: by itself, not because of another one.
pub(crate) fn failed(status: u32) {
    if status != status::WR_FLUSH_ERR {
        TOTALS.get_or_default().failed.fetch_add(1, Ordering::Relaxed);
    }
}

/// A queue pair has ended, whose requests named so many bytes.
pub(crate) fn ended(bytes: u64) {
    TOTALS.get_or_default().bytes.fetch_add(bytes, Ordering::Relaxed);
}

/// The line about this process, if it has made a queue pair.
pub(crate) fn report(contexts: &[Arc<Context>]) {
    let totals = TOTALS.get_or_default();
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    if count(&totals.made) == 0 || !run().is_some_and(|(wanted, _)| wanted) {
        return;
    }
    let bytes = count(&totals.bytes) + contexts.iter().map(|context| context.bytes()).sum::<u64>();
    let failed = match count(&totals.failed) {
        0 => "no request failed".to_owned(),
        1 => "1 request failed".to_owned(),
        many => format!("{many} requests failed"),
    };
    transom_os::say!(
        "transom: {}: queue pairs: {}, connections: {}, bytes of its requests: {bytes}, {failed}",
        explain::who(),
        count(&totals.made),
        count(&totals.connected),
    );
}
