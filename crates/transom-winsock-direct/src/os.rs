//! The way of a socket's record from one process of this user to another (WSD 12): an abstract Unix
//! socket that is named after the token.

use std::io::{Error as IoError, Read, Result as Io};
use std::time::Duration;

use transom_engine::raw::{LocalPlace, LocalSocket};

use crate::error::{Error, Result};

/// Where the taker comes.
#[derive(Debug)]
pub(crate) struct Place(LocalPlace);

/// An end between giver and taker, and how long a read waits.
#[derive(Debug)]
pub(crate) struct Stream(LocalSocket, Option<Duration>);

/// This system gives sockets to other processes.
pub(crate) fn check() -> Result<()> {
    Ok(())
}

impl Place {
    /// The place of a token; `None` where another socket of this system has it.
    pub(crate) fn new(token: u32) -> Option<Place> {
        LocalPlace::open(&name(token)).ok().map(Place)
    }

    /// The next process that comes; `None` once the place is closed.
    pub(crate) fn accept(&self) -> Option<Stream> {
        self.0.next().map(|socket| Stream(socket, None))
    }

    /// The thread that accepts returns, and no process comes any more.
    pub(crate) fn close(&self) {
        self.0.close();
    }
}

impl Stream {
    /// The place of a token, as the taker finds it. A read waits for so long at most.
    pub(crate) fn to(token: u32, patience: Duration) -> Result<Stream> {
        let socket = LocalSocket::connect(&name(token), patience).map_err(|_| Error::WSAEINVAL)?;
        Ok(Stream(socket, Some(patience)))
    }

    /// Say a few bytes, for which a fresh socket has room. An end that has gone is noticed elsewhere.
    pub(crate) fn say(&self, bytes: &[u8]) {
        self.0.send(bytes);
    }

    /// Whether the other end is a process of this user, and this one if any is asked for.
    pub(crate) fn is_process(&self, process: Option<u32>) -> bool {
        let other = self.0.process_of_this_user();
        other.is_some_and(|other| process.is_none_or(|process| process == other))
    }
}

impl Read for &Stream {
    fn read(&mut self, room: &mut [u8]) -> Io<usize> {
        self.0.receive(room, self.1).map_err(IoError::other)
    }
}

fn name(token: u32) -> String {
    format!("transom/duplicate/{token:08x}")
}
