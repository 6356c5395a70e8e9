//! The socket, and the thread that answers on it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use transom_inspect::{Folder, Record, SOCKET};
use transom_wire::Time;

use super::{Inspected, report};
use crate::sys::{self, Doorbell, IoError, Local, LocalListener};

/// A client that has not taken the whole answer by then goes without the rest: others wait
/// meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause when the system is out of descriptors: the next attempt would fail, too.
const RETRY: Duration = Duration::from_millis(20);

/// The state of the thread.
#[derive(Debug)]
pub(super) struct Server {
    listener: LocalListener,
    path: PathBuf,
    bell: Doorbell,
    stopping: AtomicBool,
    adapters: Mutex<Vec<Inspected>>,
}

/// Why an answer was not finished.
struct Unfinished;

impl Server {
    /// A socket in the user's folder, and a thread that answers there until [`Server::stop`].
    pub(super) fn start() -> Result<Arc<Server>, String> {
        let folder = Folder::of_user().map_err(|error| error.to_string())?;
        let seed = sys::random_seed().map_err(|error| error.to_string())?;
        let nonce = u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i: usize| seed[i]));
        let path = folder.path().join(format!("{}-{nonce:016x}{SOCKET}", std::process::id()));
        let bell = Doorbell::new().map_err(|error| error.to_string())?;
        let listener = LocalListener::open_at(&path)
            .map_err(|error| format!("no socket at {}: {error}", path.display()))?;
        let (stopping, adapters) = (AtomicBool::new(false), Mutex::default());
        let server = Arc::new(Server { listener, path, bell, stopping, adapters });
        let thread = server.clone();
        sys::spawn_quiet("transom-inspect", move || thread.run()).map_err(|error| {
            server.stop();
            format!("no thread could be had: {error}")
        })?;
        Ok(server)
    }

    pub(super) fn adapters(&self) -> MutexGuard<'_, Vec<Inspected>> {
        self.adapters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The socket's name is gone when this returns; the thread ends soon.
    pub(super) fn stop(&self) {
        let _ = std::fs::remove_file(&self.path);
        self.stopping.store(true, Ordering::Release);
        self.bell.ring();
    }

    fn run(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            match self.listener.accept() {
                Ok(mut local) => {
                    // A client that is refused, or leaves early, needs no answer.
                    let _ = self.answer(&local);
                    local.close();
                }
                Err(IoError::NotNow) => {
                    let waits = sys::poll_any(&[(self.listener.fd(), false)], &self.bell, None);
                    if waits.is_err() {
                        return; // the descriptor was closed under us
                    }
                }
                Err(IoError::Exhausted) => sys::pause(RETRY),
                Err(_) if !self.listener.fd().is_ours() => return,
                Err(_) => sys::pause(RETRY),
            }
        }
    }

    /// Say everything to a process of the same user. Nothing is read, so nothing can be asked amiss.
    fn answer(&self, local: &Local) -> Result<(), Unfinished> {
        if !local.user().is_some_and(sys::is_our_user) {
            return Ok(());
        }
        let adapters = self.adapters().clone();
        let until = sys::now().after(PATIENCE);
        report::tell(&adapters, |record: &Record| self.send(local, record.line().as_bytes(), until))
    }

    fn send(&self, local: &Local, mut bytes: &[u8], until: Time) -> Result<(), Unfinished> {
        while !bytes.is_empty() {
            match local.send(bytes) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(IoError::NotNow) => {
                    let left = until.0.saturating_sub(sys::now().0);
                    if left == 0 || self.stopping.load(Ordering::Acquire) {
                        return Err(Unfinished);
                    }
                    let wait = Some(Duration::from_nanos(left));
                    sys::poll_any(&[(local.fd(), true)], &self.bell, wait)
                        .map_err(|_| Unfinished)?;
                }
                Err(_) => return Err(Unfinished),
            }
        }
        Ok(())
    }
}
