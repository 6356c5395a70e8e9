//! How connections come about.

use std::future::IntoFuture;
use std::net::SocketAddr;

use crate::{Pending, QueuePair, Result};

/// Waits for peers.
#[derive(Debug)]
pub struct Listener {}

impl Listener {
    /// Where it listens; tells the port if any free one was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        todo!()
    }

    /// The next peer that asks to connect.
    pub fn next(&mut self) -> Pending<Incoming> {
        todo!()
    }
}

/// What both sides of a connection may ask for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) reads: u32,
    pub(crate) receives: u32,
    pub(crate) receive_size: u32,
    pub(crate) private: Vec<u8>,
}

/// A connection to be made: await it, or [`wait`](Connect::wait) for it.
#[derive(Debug)]
#[must_use = "nothing happens before it is awaited or waited for"]
pub struct Connect {
    terms: Terms,
}

impl Connect {
    /// Reads that may be under way at a time, each way (default 16). The peer has a say.
    pub fn reads(mut self, reads: u32) -> Connect {
        self.terms.reads = reads;
        self
    }

    /// Keep `count` receives of `size` bytes posted (default 16 of 4096): how many messages the peer
    /// may be ahead, and the longest message it may send.
    pub fn receives(mut self, count: u32, size: u32) -> Connect {
        self.terms.receives = count;
        self.terms.receive_size = size;
        self
    }

    /// Bytes for the peer's program, before it accepts.
    pub fn private_data(mut self, bytes: &[u8]) -> Connect {
        self.terms.private = bytes.to_vec();
        self
    }

    /// Block until there is a connection, or none.
    pub fn wait(self) -> Result<QueuePair> {
        self.into_future().wait()
    }
}

impl IntoFuture for Connect {
    type Output = Result<QueuePair>;
    type IntoFuture = Pending<QueuePair>;

    fn into_future(self) -> Pending<QueuePair> {
        todo!()
    }
}

/// A peer that asks to connect. Dropping it rejects.
#[derive(Debug)]
#[must_use = "accept or reject it"]
pub struct Incoming {
    terms: Terms,
}

impl Incoming {
    /// Who asks.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        todo!()
    }

    /// What its program sent along.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        todo!()
    }

    /// As [`Connect::reads`].
    pub fn reads(mut self, reads: u32) -> Incoming {
        self.terms.reads = reads;
        self
    }

    /// As [`Connect::receives`].
    pub fn receives(mut self, count: u32, size: u32) -> Incoming {
        self.terms.receives = count;
        self.terms.receive_size = size;
        self
    }

    /// As [`Connect::private_data`], with the acceptance.
    pub fn reply(mut self, bytes: &[u8]) -> Incoming {
        self.terms.private = bytes.to_vec();
        self
    }

    /// Accept: done when the peer has completed the connection.
    pub fn accept(self) -> Pending<QueuePair> {
        todo!()
    }

    /// Reject; the bytes go to the peer's program.
    pub fn reject(self, bytes: &[u8]) -> Result<()> {
        let _ = bytes;
        todo!()
    }
}
