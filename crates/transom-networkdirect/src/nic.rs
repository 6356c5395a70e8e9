//! The engine's adapter with its one protection domain, as both versions use it.

use std::net::IpAddr;

use transom_engine::{Caps, Dialect, Status, raw};
use transom_memory::{Rights, Segment, Token};

use crate::limits;

/// An adapter. NetworkDirect hides one domain in it (ND2 1.4).
#[derive(Debug)]
pub(crate) struct Nic {
    pub(crate) raw: raw::Adapter,
    domain: raw::Domain,
}

/// A status of the engine, for the table of the version that asks.
type Result<T> = std::result::Result<T, Status>;

pub(crate) fn status<T>(result: raw::Result<T>) -> Result<T> {
    result.map_err(|e| e.status)
}

impl Nic {
    /// Open the adapter of a local address.
    pub(crate) fn open(address: IpAddr, dialect: &'static Dialect) -> Result<Nic> {
        let options = raw::Options {
            dialect,
            largest_region: limits::REGION,
            largest_transfer: u64::from(limits::TRANSFER),
            explain_calls: raw::Environment::read().explain,
            ..raw::Options::from_env()
        };
        let raw = status(raw::Adapter::open(address, options))?;
        let domain = status(raw.domain())?;
        Ok(Nic { raw, domain })
    }

    /// Whether the device is there: its address is one of this machine's, and this is no process
    /// that was forked from the one that opened it.
    pub(crate) fn present(&self) -> Result<()> {
        status(self.raw.present())
    }

    /// The adapter's limits.
    pub(crate) fn caps(&self) -> Caps {
        self.raw.options().caps()
    }

    /// Register a buffer of the program.
    pub(crate) fn register(&self, base: u64, length: u64, rights: Rights) -> Result<Token> {
        let segment = Segment { host: base, length };
        // SAFETY: the buffer belongs to the C program that names it. That it leaves it in place
        // until it has deregistered is the interface's contract (ND2 1.3 rule 7); if not, its pages
        // may vanish, which the engine's copies survive, and no Rust reference ever points there.
        status(unsafe { self.raw.register(self.domain, base, &[segment], rights) })
    }

    /// A queue pair. Every one is granted the adapter's list lengths (ND2 C23).
    pub(crate) fn queue_pair(
        &self,
        initiator: &raw::CompletionQueue,
        receive: &raw::CompletionQueue,
        shared: Option<&raw::SharedReceiveQueue>,
        context: usize,
        depths: [u32; 2],
        inline_size: u32,
    ) -> Result<raw::QueuePair> {
        let [initiator_depth, receive_depth] = depths;
        let options = raw::QueuePairOptions {
            context: context as u64,
            initiator_depth,
            receive_depth,
            initiator_sge: limits::SGE,
            receive_sge: limits::SGE,
            inline_size,
            ..raw::QueuePairOptions::default()
        };
        status(self.raw.queue_pair(self.domain, initiator, receive, shared, &options))
    }
}
