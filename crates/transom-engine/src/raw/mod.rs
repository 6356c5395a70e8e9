//! The handle layer: what fronts stand on, the safe Rust API and the C ones alike.
//!
//! Handles are cheap, `Send + Sync`, and belong to one [`Adapter`]; requests carry 64-bit contexts;
//! a [`Sink`] is called with no lock held and may call anything. Calls follow the dialect that the
//! adapter was opened with, and answer as its tables say (ND2 4.7.3). Dropping the last handle of a
//! queue pair or connector disconnects; nothing here ever blocks on a peer, except
//! [`CompletionQueue::wait`].

mod adapter;
mod chain;
mod connector;
mod datagram_port;
mod error;
#[cfg(not(windows))]
mod local_name;
#[cfg(not(windows))]
mod local_socket;
mod memory;
mod port_map;
mod queue_pair;
mod queues;
mod reserved_port;
mod shared_memory;
pub mod socket_address;
#[cfg(test)]
#[allow(unsafe_code)]
mod tests;
mod xrc;

pub use adapter::{Adapter, Counters};
pub use chain::{Chain, ReceiveChain};
pub use connector::{ConnectionInfo, Connector, Listener};
pub use datagram_port::DatagramPort;
pub use error::{Error, Result};
#[cfg(not(windows))]
pub use local_name::{LocalName, NamesOf, PortOfNames};
#[cfg(not(windows))]
pub use local_socket::{LocalPlace, LocalSocket};
pub use memory::{Domain, Reservation, Window, WindowError};
pub use port_map::{MappedPort, PortQuestion};
pub use queue_pair::{FastRegistration, QueuePair, QueuePairOptions};
pub use queues::{CompletionQueue, SharedReceiveQueue};
pub use reserved_port::ReservedPort;
pub use shared_memory::SharedMemory;
pub use xrc::XrcDomain;

pub use crate::driver::{
    CaptureOptions, CaptureRing, DescriptorShare, Environment, EventSink, Explain, GrantLedger,
    GuessLimit, HalfOpen, HeldDescriptor, LEDGER_STATUS, Options, Path, PathReason, Resets,
    Silence, Sink, Spin, Trace, Traffic,
};
pub use crate::sys::{
    ATOMICS, Fault, Interface, IpFields, Message, PageError, check_pages, copy_in, copy_out,
    fetch_ahead, interfaces, now, random_seed, spawn_quiet,
};
pub use transom_wire::{Atomic, Facts, ReadLimits, Time};
