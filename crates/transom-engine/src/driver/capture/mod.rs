//! Captures: everything that a process sends and takes, as a file that Wireshark reads.
//!
//! A process has one capture for each path that its adapters name, until it ends. The thread that
//! makes a pass over a link encodes the frames into memory ([`tap`]); a thread of its own writes
//! them, because a disk may take as long as it likes. Without a capture no link has a tracer, and
//! nothing here runs.

pub(crate) mod tap;

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use transom_packets::{About, Batch, Recorder, Settings, Writer};

use crate::driver::config::capture::CaptureOptions;
use crate::sys::{self, AtExit, CaptureFiles};

/// How long the end of a process, or of an adapter, waits for what is not written yet.
const PATIENCE: Duration = Duration::from_secs(2);

/// A capture of a process's connections.
#[derive(Debug)]
pub(crate) struct Capture {
    options: CaptureOptions,
    state: Mutex<CaptureState>,
    /// Something waits to be written.
    work: Condvar,
    /// Nothing does.
    done: Condvar,
}

#[derive(Debug)]
struct CaptureState {
    recorder: Recorder,
    /// The thread has taken a batch, and is writing it.
    writing: bool,
    /// Packets that are in no file, and why.
    lost: u64,
    reason: Option<String>,
    /// The process ends.
    finished: bool,
}

/// The captures of one process.
struct Captures {
    /// The process: see [`sys::fork_generation`].
    generation: u64,
    all: Vec<Arc<Capture>>,
}

/// As those of inspections: a lock that another thread held at the moment of a fork stays locked in
/// the child, which uses the next one.
static SLOTS: [Mutex<Option<Captures>>; 64] = [const { Mutex::new(None) }; 64];

fn lock_slot(generation: u64) -> MutexGuard<'static, Option<Captures>> {
    let slot = &SLOTS[generation as usize % SLOTS.len()];
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Have this process captured.
///
/// # Errors
/// Why that is impossible, as a sentence.
pub(crate) fn begin(options: &CaptureOptions) -> Result<Arc<Capture>, String> {
    let generation = sys::fork_generation();
    let mut slot = lock_slot(generation);
    if slot.as_ref().is_none_or(|captures| captures.generation != generation) {
        sys::add_exit_hook(AtExit::Captures, finish_all)?;
        *slot = Some(Captures { generation, all: Vec::new() });
    }
    let Some(captures) = slot.as_mut() else { return Err(String::new()) };
    if let Some(capture) = captures.all.iter().find(|capture| capture.options.file == options.file)
    {
        if capture.options != *options {
            let file = options.file.display();
            return Err(format!("this process captures to {file} with other settings already"));
        }
        return Ok(capture.clone());
    }
    let capture = Capture::start(options)?;
    captures.all.push(capture.clone());
    Ok(capture)
}

/// The process exits, with whatever status.
fn finish_all(_status: i32) -> Option<i32> {
    let generation = sys::fork_generation();
    let all = match &*lock_slot(generation) {
        Some(captures) if captures.generation == generation => captures.all.clone(),
        _ => return None,
    };
    for capture in all {
        capture.finish();
    }
    None
}

/// The moment, as nanoseconds since 1970.
#[allow(
    clippy::disallowed_methods,
    reason = "packets show the time of day; nothing is decided by it"
)]
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl Capture {
    fn start(options: &CaptureOptions) -> Result<Arc<Capture>, String> {
        let ring = options.ring.map(|ring| ring.files);
        let failed = |error: std::io::Error| format!("{}: {error}", options.file.display());
        let files = CaptureFiles::begin_at(&options.file, ring).map_err(failed)?;
        if files.base() != options.file {
            let (asked, taken) = (options.file.display(), files.base().display());
            let process = std::process::id();
            transom_os::say!("transom: {asked} is taken, process {process} captures to {taken}");
        }
        let settings =
            Settings { payload: options.payload, file: options.ring.map(|ring| ring.size) };
        let about = About {
            program: sys::program(),
            process: std::process::id(),
            host: sys::host_name(),
            version: env!("CARGO_PKG_VERSION"),
        };
        let recorder = Recorder::new(settings, about);
        let state =
            CaptureState { recorder, writing: false, lost: 0, reason: None, finished: false };
        let (work, done) = (Condvar::new(), Condvar::new());
        let capture =
            Arc::new(Capture { options: options.clone(), state: Mutex::new(state), work, done });
        let thread = capture.clone();
        sys::spawn_quiet("transom-capture", move || thread.write(Writer::new(files)))
            .map_err(|error| format!("no thread could be had: {error}"))?;
        Ok(capture)
    }

    fn lock(&self) -> MutexGuard<'_, CaptureState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Record something at this moment.
    pub(crate) fn record<R>(&self, work: impl FnOnce(&mut Recorder, u64) -> R) -> R {
        let mut state = self.lock();
        let before = state.recorder.is_written();
        let result = work(&mut state.recorder, now());
        if before && !state.recorder.is_written() {
            self.work.notify_one();
        }
        result
    }

    /// The thread that writes.
    fn write(&self, mut writer: Writer<CaptureFiles>) {
        let mut batch = Batch::default();
        loop {
            let mut state = self.lock();
            state.writing = false;
            if state.recorder.is_written() {
                self.done.notify_all();
            }
            while state.recorder.is_written() {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.writing = true;
            state.recorder.take(&mut batch);
            drop(state);
            let lost = writer.write(&batch);
            if lost > 0 {
                let mut state = self.lock();
                state.recorder.lost(lost);
                let first = state.lost == 0;
                state.lost = writer.lost();
                let reason = writer.reason().map(ToString::to_string).unwrap_or_default();
                if first {
                    let file = self.options.file.display();
                    transom_os::say!("transom: the capture {file} is not complete: {reason}");
                }
                state.reason = Some(reason);
            }
        }
    }

    /// Wait until everything that was recorded is in the file, as far as the disk lets it.
    pub(crate) fn flush(&self) {
        let state = self.lock();
        let waits = |state: &mut CaptureState| state.writing || !state.recorder.is_written();
        drop(self.done.wait_timeout_while(state, PATIENCE, waits));
    }

    /// The process ends: say how much is missing.
    fn finish(&self) {
        self.flush();
        let mut state = self.lock();
        if std::mem::replace(&mut state.finished, true) {
            return;
        }
        let lost = state.lost;
        state.recorder.finish(now(), lost);
        let (packets, missing) = (state.recorder.totals().packets, state.recorder.totals().missing);
        let reason = state.reason.take();
        drop(state);
        self.work.notify_one();
        self.flush();
        let file: PathBuf = self.options.file.clone();
        if missing > 0 {
            transom_os::say!(
                "transom: capture {}: {missing} of {packets} packets are missing: they came faster \
                 than they could be written",
                file.display()
            );
        }
        if let Some(reason) = reason {
            transom_os::say!(
                "transom: capture {}: {lost} of {packets} packets are missing: {reason}",
                file.display()
            );
        }
    }
}
