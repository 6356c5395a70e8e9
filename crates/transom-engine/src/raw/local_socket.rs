//! Places where processes of one host meet. What others put into these sockets keeps no thread waiting but the one for
//! releases.

use std::time::Duration;

use super::{Error, Result};
use crate::sys;

/// A place with a name in the network namespace. Processes of every user may come.
#[derive(Debug)]
pub struct LocalPlace(sys::LocalListener);

/// A connection between two processes of this host.
#[derive(Debug)]
pub struct LocalSocket(sys::Local);

impl LocalPlace {
    /// Have the place of this name.
    ///
    /// # Errors
    /// `SharingViolation` if another process has it; `InsufficientResources`.
    pub fn open(name: &str) -> Result<LocalPlace> {
        sys::LocalListener::open(name)
            .map(LocalPlace)
            .map_err(|e| Error::link(e, &format!("have the place {name}")))
    }

    /// Wait for a process. `None` once the place is closed.
    #[must_use]
    pub fn next(&self) -> Option<LocalSocket> {
        self.0.wait().map(LocalSocket)
    }

    /// Threads that wait return, and no process comes any more.
    pub fn close(&self) {
        self.0.shut();
    }
}

impl LocalSocket {
    /// Go to the place of this name. Waits for others who do, for `limit` at most.
    ///
    /// # Errors
    /// `ConnectionRefused` if there is no such place; `IoTimeout`; `InsufficientResources`.
    pub fn connect(name: &str, limit: Duration) -> Result<LocalSocket> {
        const PAUSE: Duration = Duration::from_millis(1);
        let end = sys::now().after(limit);
        loop {
            match sys::Local::connect(name) {
                Ok(local) => return Ok(LocalSocket(local)),
                Err(sys::IoError::NotNow) if sys::now() < end => sys::pause(PAUSE),
                Err(e) => return Err(Error::link(e, &format!("go to the place {name}"))),
            }
        }
    }

    /// The process at the other end, if it is this user's, as the kernel noted when it connected or began to
    /// listen.
    #[must_use]
    pub fn process_of_this_user(&self) -> Option<u32> {
        self.0.user().filter(|user| sys::is_our_user(*user))?;
        self.0.process()
    }

    /// Send a few bytes, for which a fresh socket has room. An end that has gone is not noticed here.
    pub fn send(&self, bytes: &[u8]) {
        let _ = self.0.send(bytes);
    }

    /// Receive what comes within `limit`; none: for ever. 0: nothing will.
    ///
    /// # Errors
    /// `IoTimeout`, or the error of the system.
    pub fn receive(&self, bytes: &mut [u8], limit: Option<Duration>) -> Result<usize> {
        self.0.receive_within(bytes, limit).map_err(|e| Error::link(e, "receive of a process"))
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        self.0.close();
    }
}
