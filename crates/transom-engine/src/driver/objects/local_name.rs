//! Names in a network namespace, held by a process of this host that tells who asks a port.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use transom_wire::Time;

use crate::Status;
use crate::driver::schedule::shared::Shared;
use crate::driver::schedule::source::Source;
use crate::sys::{self, IoError, Local, LocalListener};

/// Questions that are answered before other sources have their turn.
const MOST_ANSWERED: usize = 64;
/// A holder that says nothing for so long is stopped.
const PATIENCE: Duration = Duration::from_secs(2);

/// A name that this process holds.
#[derive(Debug)]
pub(crate) struct LocalName {
    key: u64,
    /// `None` once it is closed: the name is free when [`LocalName::close`] returns.
    socket: Mutex<Option<LocalListener>>,
    shared: Arc<Shared>,
    port: u16,
}

impl LocalName {
    /// Hold `name`. `InUse`: another socket of the namespace does.
    pub(crate) fn hold(
        shared: &Arc<Shared>,
        name: &str,
        port: u16,
    ) -> Result<Arc<LocalName>, IoError> {
        let socket = Mutex::new(Some(LocalListener::open(name)?));
        let key = shared.new_key();
        let held = Arc::new(LocalName { key, socket, shared: shared.clone(), port });
        let begun = held.register();
        begun.map_err(|_| IoError::Exhausted).inspect_err(|_| held.close())?;
        Ok(held)
    }

    fn lock(&self) -> MutexGuard<'_, Option<LocalListener>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(self: &Arc<LocalName>) -> std::io::Result<()> {
        let socket = self.lock();
        let Some(socket) = &*socket else { return Ok(()) };
        self.shared.add(self.key, socket.fd(), self.clone(), true)?;
        self.shared.unaccepted.arm(socket.fd(), self.key, true, false)
    }

    pub(crate) fn close(&self) {
        if let Some(socket) = self.lock().take() {
            self.shared.unaccepted.remove(socket.fd());
        }
        self.shared.remove(self.key);
    }

    /// Whether a process holds `name`.
    pub(crate) fn is_held(name: &str) -> bool {
        // A process that has not answered many questions yet refuses further ones, and holds the name.
        !matches!(Local::connect(name), Err(IoError::Refused))
    }

    /// The port that the holder of `name` tells. `None`: no process of this user or of root holds it.
    pub(crate) fn ask(name: &str) -> Result<Option<u16>, IoError> {
        let holder = match Local::connect(name) {
            Ok(holder) => holder,
            Err(IoError::Refused) => return Ok(None),
            Err(e) => return Err(e),
        };
        if !holder.user().is_some_and(|user| user == 0 || sys::is_our_user(user)) {
            return Ok(None);
        }
        let mut port = [0; 2];
        match holder.receive_within(&mut port, PATIENCE)? {
            2 => Ok(Some(u16::from_be_bytes(port))),
            _ => Ok(None), // its holder has just let it go
        }
    }
}

impl Source for LocalName {
    fn ready(self: Arc<Self>, _now: Time) {
        let socket = self.lock();
        let Some(socket) = &*socket else { return };
        for _ in 0..MOST_ANSWERED {
            let Ok(asker) = socket.accept() else { break };
            let _ = asker.send(&self.port.to_be_bytes()); // fits, or there is no asker any more
        }
        let _ = self.shared.unaccepted.arm(socket.fd(), self.key, true, false);
    }

    fn due(self: Arc<Self>, _now: Time) {}

    fn serve(&self, _now: Time) -> bool {
        false // among the unaccepted ones, which no thread of the program asks
    }

    fn finish_served(&self) {}

    fn stop_accepting(self: Arc<Self>, _status: Status) {
        self.close();
    }

    fn end(&self, _status: Status) {}
}
