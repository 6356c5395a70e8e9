//! A port space beside TCP's, for services that stand beside a TCP service of the same port.
//!
//! A service at port *n* of this space holds UDP port *n*, and answers there which TCP port its
//! listener has. The TCP port is one of the system's choice, so nothing of this space is in the way
//! of a TCP service, and no connection of this space reaches a server that has not answered for it.
//! Where no service has the port, the peer's host says so at once (ICMP).
//!
//! A question is as long as its answer, and only its own socket's peer can answer it: nothing is
//! gained by asking in another's name.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use transom_wire::Time;

use crate::Status;
use crate::driver::config::options::status_of;
use crate::driver::schedule::shared::Shared;
use crate::driver::schedule::source::Source;
use crate::sys::{self, Datagrams, IoError};

/// The first bytes of a question and of its answer; the last is the version.
const QUESTION: [u8; 8] = *b"TSMport\x01";
const ANSWER: [u8; 8] = *b"TSMhere\x01";
/// Bytes of either: what it is, a random number of the asker's, the TCP port of an answer, zeros.
const LENGTH: usize = 24;
/// Messages that a socket takes before other sources have their turn: a peer that floods it delays
/// nothing else.
const MOST_TAKEN: usize = 64;
/// Pause before the second question, and the longest; each is twice as long as the one before.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// A host that says nothing, not even that no socket has the port, is given up after so long.
const LIMIT: Duration = Duration::from_secs(5);

type Nonce = [u8; 8];

fn question(nonce: Nonce) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..8].copy_from_slice(&QUESTION);
    bytes[8..16].copy_from_slice(&nonce);
    bytes
}

/// The answer to a question that is one.
fn answer(bytes: &[u8], port: u16) -> Option<[u8; LENGTH]> {
    let mut bytes: [u8; LENGTH] = bytes.try_into().ok()?;
    if bytes[..8] != QUESTION {
        return None;
    }
    bytes[..8].copy_from_slice(&ANSWER);
    bytes[16..18].copy_from_slice(&port.to_be_bytes());
    bytes[18..].fill(0);
    Some(bytes)
}

/// The port in the answer to the question with this number.
fn answered(bytes: &[u8], nonce: Nonce) -> Option<u16> {
    let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
    let port = u16::from_be_bytes([bytes[16], bytes[17]]);
    (bytes[..8] == ANSWER && bytes[8..16] == nonce && port != 0).then_some(port)
}

/// A port of this space that a service has.
#[derive(Debug)]
pub(crate) struct MappedPort {
    key: u64,
    /// `None` once it is closed: the port is free when [`MappedPort::close`] returns.
    socket: Mutex<Option<Datagrams>>,
    shared: Arc<Shared>,
    /// The TCP port of its listener.
    port: u16,
}

impl MappedPort {
    /// Take the port of `address` (0: any), for a listener at the TCP port `port`.
    pub(crate) fn bind(
        shared: &Arc<Shared>,
        address: SocketAddr,
        port: u16,
    ) -> Result<Arc<MappedPort>, IoError> {
        let socket = Mutex::new(Some(Datagrams::bind(address, false)?));
        let key = shared.new_key();
        let mapped = Arc::new(MappedPort { key, socket, shared: shared.clone(), port });
        let begun = register(shared, key, &mapped.lock(), mapped.clone());
        begun.inspect_err(|_| mapped.close())?;
        Ok(mapped)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Datagrams>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn address(&self) -> Result<SocketAddr, IoError> {
        self.lock().as_ref().map_or(Err(IoError::NotLocal), Datagrams::address)
    }

    pub(crate) fn close(&self) {
        if let Some(socket) = self.lock().take() {
            self.shared.unaccepted.remove(socket.fd());
        }
        self.shared.remove(self.key);
    }
}

/// Have the background thread look at a socket.
pub(super) fn register(
    shared: &Shared,
    key: u64,
    socket: &Option<Datagrams>,
    source: Arc<dyn Source>,
) -> Result<(), IoError> {
    let Some(socket) = socket else { return Ok(()) };
    let begun = shared.add(key, socket.fd(), source, true);
    let begun = begun.and_then(|()| shared.unaccepted.arm(socket.fd(), key, true, false));
    begun.map_err(|_| IoError::Exhausted)
}

impl Source for MappedPort {
    fn ready(self: Arc<Self>, _now: Time) {
        let socket = self.lock();
        let Some(socket) = &*socket else { return };
        for _ in 0..MOST_TAKEN {
            let served = socket.serve(&mut [0; LENGTH], |bytes| answer(bytes, self.port));
            if served == Err(IoError::NotNow) {
                break;
            }
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

/// The call that takes the answer: the TCP port, or why there is none.
pub(crate) type Found = Box<dyn FnOnce(Result<u16, Status>) + Send>;

/// The question for a port, until it is answered.
pub(crate) struct PortQuestion {
    key: u64,
    shared: Arc<Shared>,
    nonce: Nonce,
    inner: Mutex<Asking>,
}

struct Asking {
    /// `None` once the question has its answer.
    socket: Option<Datagrams>,
    found: Option<Found>,
    pause: Duration,
    until: Time,
}

impl std::fmt::Debug for PortQuestion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PortQuestion").field("key", &self.key).finish_non_exhaustive()
    }
}

impl PortQuestion {
    /// Ask `peer`. `found` is called once, with no lock held: with `ConnectionRefused` if no socket
    /// has the port, `IoTimeout` if nothing is heard, `Canceled` when the question is dropped.
    pub(crate) fn ask(
        shared: &Arc<Shared>,
        peer: SocketAddr,
        found: Found,
    ) -> Result<Arc<PortQuestion>, IoError> {
        let socket = Some(Datagrams::connect(peer)?);
        let seed = sys::random_seed().map_err(|_| IoError::Exhausted)?;
        let nonce = *seed.first_chunk().ok_or(IoError::Exhausted)?;
        let now = sys::now();
        let until = now.after(LIMIT);
        let inner = Mutex::new(Asking { socket, found: Some(found), pause: PAUSES.0, until });
        let key = shared.new_key();
        let asked = Arc::new(PortQuestion { key, shared: shared.clone(), nonce, inner });
        // The answer may come, and be read, before this returns.
        let begun = register(shared, key, &asked.lock().socket, asked.clone());
        if let Err(e) = begun {
            shared.remove(key);
            return Err(e);
        }
        asked.send(now);
        Ok(asked)
    }

    fn lock(&self) -> MutexGuard<'_, Asking> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, now: Time) {
        let mut inner = self.lock();
        let Some(socket) = &inner.socket else { return };
        let sent = socket.send(&question(self.nonce));
        let pause = inner.pause;
        inner.pause = (pause * 2).min(PAUSES.1);
        drop(inner);
        match sent {
            Ok(()) | Err(IoError::NotNow) => self.shared.note(self.key, now.after(pause)),
            Err(e) => self.finish(Err(status_of(e))),
        }
    }

    fn finish(&self, result: Result<u16, Status>) {
        let found = {
            let mut inner = self.lock();
            if let Some(socket) = inner.socket.take() {
                self.shared.unaccepted.remove(socket.fd());
            }
            inner.found.take()
        };
        self.shared.remove(self.key);
        if let Some(found) = found {
            found(result);
        }
    }

    /// Nothing waits for the answer any more.
    pub(crate) fn cancel(&self) {
        self.finish(Err(Status::Canceled));
    }

    /// The answer that has come: the port, a failure, or nothing that counts.
    fn heard(&self) -> Option<Result<u16, Status>> {
        let inner = self.lock();
        let socket = inner.socket.as_ref()?;
        let mut room = [0; LENGTH];
        for _ in 0..MOST_TAKEN {
            match socket.receive(&mut room) {
                Ok(LENGTH) => {
                    if let Some(port) = answered(&room, self.nonce) {
                        return Some(Ok(port));
                    }
                }
                Ok(_) => {}
                Err(IoError::NotNow) => break,
                Err(e) => return Some(Err(status_of(e))),
            }
        }
        let _ = self.shared.unaccepted.arm(socket.fd(), self.key, true, false);
        None
    }
}

impl Source for PortQuestion {
    fn ready(self: Arc<Self>, _now: Time) {
        if let Some(result) = self.heard() {
            self.finish(result);
        }
    }

    fn due(self: Arc<Self>, now: Time) {
        if now >= self.lock().until {
            return self.finish(Err(Status::IoTimeout));
        }
        self.send(now);
    }

    fn serve(&self, _now: Time) -> bool {
        false
    }

    fn finish_served(&self) {}

    fn stop_accepting(self: Arc<Self>, status: Status) {
        self.finish(Err(status));
    }

    fn end(&self, _status: Status) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_and_its_answer_byte_for_byte() {
        let asked = question(*b"12345678");
        assert_eq!(&asked, b"TSMport\x0112345678\0\0\0\0\0\0\0\0");
        let said = answer(&asked, 0x1234).unwrap();
        assert_eq!(&said, b"TSMhere\x0112345678\x12\x34\0\0\0\0\0\0");
        assert_eq!(answered(&said, *b"12345678"), Some(0x1234));
    }

    #[test]
    fn other_bytes_are_no_question_and_no_answer() {
        let asked = question([7; 8]);
        assert_eq!(answer(&asked[..23], 1), None);
        assert_eq!(answer(&[&asked[..], &[0]].concat(), 1), None);
        let said = answer(&asked, 1).unwrap();
        assert_eq!(answer(&said, 1), None, "an answer is no question");
        assert_eq!(answered(&said, [8; 8]), None, "to another question");
        assert_eq!(answered(&asked, [7; 8]), None, "a question is no answer");
        assert_eq!(answered(&said[..23], [7; 8]), None);
        assert_eq!(answered(&answer(&asked, 0).unwrap(), [7; 8]), None, "no port");
        let mut later = asked;
        later[7] = 2;
        assert_eq!(answer(&later, 1), None, "another version");
    }
}
