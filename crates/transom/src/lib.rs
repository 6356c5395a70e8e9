//! An RDMA adapter in software: register memory, open a window on it, let one peer read or write
//! it, and take it back. No special hardware, no kernel module, no root, nothing pinned.
//!
//! # Five nouns
//!
//! | noun | what it is |
//! |---|---|
//! | [`Adapter`] | an RDMA adapter at one local address; owns memory, listeners and connections |
//! | [`Region`] | a buffer handed over by [`Adapter::register`]; no peer can touch it |
//! | [`Window`] | a range of a region, open to one peer with some [`Rights`] until it is revoked |
//! | [`Grant`] | what that peer needs to know of a window: address, length, token |
//! | [`QueuePair`] | one end of a connection; posts Sends, Reads, Writes and Binds, in order |
//!
//! ```text
//!  owner                                         peer
//!  Adapter                                       Adapter
//!   └ Region  [................................]   └ Region  [..................]
//!       └ Window     [========]  READ                              ^
//!                        │                                         │
//!                        │ Grant, by a Send ──────────────────>    │
//!                        └───────────── bytes, by a Read ──────────┘
//!  QueuePair ══════════ iWARP over TCP, or shared memory ══════ QueuePair
//! ```
//!
//! # A file, lent to one peer
//!
//! ```no_run
//! use transom::{Adapter, Grant, MappedFile, Result, Rights};
//!
//! /// Owner: lend one file to one peer, then take it back.
//! async fn owner(at: std::net::SocketAddr, path: &std::path::Path) -> Result<()> {
//!     let adapter = Adapter::open(at.ip())?;
//!     let file = adapter.register(MappedFile::open(path)?)?;     // the region owns it
//!     let mut listener = adapter.listen(at)?;
//!     let peer = listener.next().await?.receives(16, 4096).accept().await?;
//!     let window = peer.bind(&file, .., Rights::READ)?;          // posted now; this peer only
//!     peer.send(window.grant().to_bytes())?.await?;              // ordered behind the bind
//!     peer.recv().await?;                                        // "I have it"
//!     window.revoke().await?;                                    // from here no byte can leave
//!     file.deregister().await?;                                  // the MappedFile again
//!     Ok(())
//! }
//!
//! /// Peer: fetch it.
//! async fn peer(to: std::net::SocketAddr) -> Result<Vec<u8>> {
//!     let adapter = Adapter::route_to(to)?;
//!     let owner = adapter.connect(to).reads(16).receives(16, 4096).await?;
//!     let grant = Grant::from_bytes(&owner.recv().await?)?;
//!     let sink = adapter.register(vec![0; grant.len() as usize])?; // no peer can touch it
//!     let mid = grant.len() / 2;
//!     let head = owner.read(grant.range(..mid), sink.slice(..mid))?; // posted when called,
//!     let tail = owner.read(grant.range(mid..), sink.slice(mid..))?; // in order
//!     (head.await?, tail.await?);
//!     owner.send(b"I have it")?.await?;
//!     sink.deregister().await                                    // the same Vec, no copy
//! }
//! ```
//!
//! # A refusal, explained
//!
//! Every call has a blocking form. A refused access ends its connection, and says why: the owner
//! has the whole record, a peer of the same user gets its text.
//!
//! ```
//! use transom::{Adapter, ErrorKind, Grant, Rights};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let adapter = Adapter::open("127.0.0.1".parse()?)?;
//! let mut listener = adapter.listen("127.0.0.1:0".parse()?)?;
//! let connecting = adapter.connect(listener.address()).receives(1, 64);
//! let peer = std::thread::spawn(move || connecting.wait());
//! let owner = listener.next().wait()?.accept().wait()?;
//! let peer = peer.join().expect("no panic")?;
//!
//! let lent = adapter.register(vec![7_u8; 4096])?;
//! let window = owner.bind(&lent, ..64, Rights::WRITE)?;
//! owner.send(window.grant().to_bytes())?.wait()?;
//! let grant = Grant::from_bytes(&peer.recv().wait()?)?;
//! window.revoke().wait()?;
//!
//! let source = adapter.register(vec![1_u8; 8])?;
//! let refused = peer.write(grant.range(..8), source.slice(..))?.wait().unwrap_err();
//! assert_eq!(refused.kind(), ErrorKind::Refused);
//! let why = refused.explanation().expect("a peer of the same user gets the reason");
//! assert!(why.contains("invalidated by its owner"), "{why}");
//! # Ok(())
//! # }
//! ```
//!
//! # A peer that spins on its memory
//!
//! The last bytes of a Write are placed last: a program that sees them sees the rest.
//!
//! ```
//! # use transom::{Adapter, Grant, Rights};
//! # use std::sync::atomic::Ordering;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let adapter = Adapter::open("127.0.0.1".parse()?)?;
//! # let mut listener = adapter.listen("127.0.0.1:0".parse()?)?;
//! # let connecting = adapter.connect(listener.address()).receives(1, 64);
//! # let peer = std::thread::spawn(move || connecting.wait());
//! # let owner = listener.next().wait()?.accept().wait()?;
//! # let peer = peer.join().expect("no panic")?;
//! let flags = adapter.register(vec![0_u8; 8])?;
//! let window = owner.bind(&flags, .., Rights::WRITE)?;
//! # owner.send(window.grant().to_bytes())?.wait()?;
//! # let grant = Grant::from_bytes(&peer.recv().wait()?)?;
//! let source = adapter.register(vec![1_u8; 8])?;
//! let written = peer.write(grant, source.slice(..))?;
//! while flags.atomic_u64(0)?.load(Ordering::Acquire) == 0 {
//!     owner.poll();
//! }
//! written.wait()?;
//! # Ok(())
//! # }
//! ```
//!
//! # How it behaves
//!
//! * **Posts are eager.** [`QueuePair::send`], [`read`](QueuePair::read),
//!   [`write`](QueuePair::write), [`fetch_add`](QueuePair::fetch_add) and [`bind`](QueuePair::bind) hand the request over when they are
//!   called, so that the order of calls is the order of execution. Their return value is the
//!   *result*: a [`Posted`], to be awaited on any executor or [`wait`](Posted::wait)ed for.
//! * **Dropping a [`Posted`] is not cancelling.** The request goes on, its memory stays alive until
//!   it has completed; an error still ends the connection. The only cancel is
//!   [`QueuePair::disconnect`].
//! * **Memory is opened by windows only.** A registration gives no peer any access. A [`Window`]
//!   opens a range of it to one peer, for reading, writing, atomics, until it is revoked.
//! * **Nothing rests on `Drop`.** Forgetting a handle leaks it: the memory stays valid and the
//!   window open until the [`Adapter`] ends.
//! * **Every refusal is explained**, to the owner in full ([`Error::denial`]), to the peer as far
//!   as the owner says ([`Error::explanation`], [`Explain`]).
//!
//! # Soundness
//!
//! Peers write to registered memory at any moment; so no reference to it is ever given out, only
//! copies ([`Region::copy_out`], [`Region::copy_in`]) and atomics ([`Region::atomic_u8`],
//! [`Region::atomic_u64`]). Buffers are taken apart while they are registered ([`Buffer`]).
//!
//! | trap | held by |
//! |---|---|
//! | a borrowed or inline buffer | `compile_fail` tests of [`Buffer`] |
//! | use of a buffer while it is registered | `compile_fail` test of [`Buffer`] |
//! | a `&[u8]` into shared memory | there is no such method: `compile_fail` test of [`Region`] |
//! | an atomic that outlives its region | `compile_fail` test of [`Region`] |
//! | `mem::forget` of a [`Region`] or [`Window`] | leaks, and no more: test `forgetting_leaks_and_no_more` |
//! | dropping a [`Posted`] | the engine's side keeps the memory: test `dropping_is_not_cancelling` |
//! | a post without a waiter | `#[must_use]`: `compile_fail` test of [`Posted`] |
//! | a waker that calls back in | wakers run with no lock held: test `a_waker_may_call_back` |
//! | a context that is a pointer | contexts are slot numbers with generations: test `a_stale_context_names_no_request` |
//! | a window used after it was revoked | [`Window::revoke`] consumes it: `compile_fail` test of [`Window`] |
//! | pages that vanish (a file cut short) | copies are fault-tolerant: test `a_file_cut_short_is_an_error` |
//! | the adapter's address is removed | what waits ends, and names it: [`ErrorKind::AddressGone`] |
//! | `fork` | handles belong to the process that made them: [`ErrorKind::Forked`] |
//!
//! # Where to go on
//!
//! [`Adapter::options`] lists the options, [`ConnectionInfo`] the facts of a connection,
//! [`Batch`] is requests with one result, [`MappedFile`] files as memory, [`Adapter::shared`] memory whose
//! bytes cross to a process of this host once. The crate's folder
//! `examples` has whole programs.

#![deny(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

/// The program in the repository's README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod adapter;
mod batch;
#[expect(unsafe_code, reason = "takes buffers apart")]
mod buffer;
#[expect(unsafe_code, reason = "a reference count lies in an atomic pointer")]
mod cells;
#[cfg(test)]
mod cells_tests;
mod connect;
mod endpoint;
mod error;
mod explain;
mod grant;
#[expect(unsafe_code, reason = "maps files")]
#[cfg_attr(windows, path = "windows/map.rs")]
mod map;
#[expect(unsafe_code, reason = "lends mapped files")]
mod mapped;
mod names;
mod posted;
mod queue_pair;
#[expect(unsafe_code, reason = "registers, copies, hands out atomics")]
mod region;
mod rights;
#[expect(unsafe_code, reason = "hands memory of the engine to registrations")]
mod shared_memory;
mod turns;
mod window;

pub use adapter::{Adapter, AdapterInfo, Counters, Options};
pub use batch::Batch;
pub use buffer::{Buffer, VecParts};
pub use connect::{Connect, Incoming, Listener};
pub use error::{Error, ErrorKind, Result};
pub use grant::Grant;
pub use mapped::{Map, MappedFile};
pub use posted::{Message, Pending, Posted};
pub use queue_pair::{ConnectionInfo, QueuePair, Recv};
pub use region::{Region, Slice};
pub use rights::Rights;
pub use transom_engine::raw::{
    CaptureOptions, CaptureRing, Explain, GuessLimit, Path, SharedMemory,
};
pub use transom_memory::{Denial, Mistake, Named, NamedRule, NamedState, Rule, Token, rules};
pub use transom_wire::{Blame, Verdicts};
pub use window::Window;

/// Primitives of cells and turns; their model tests put loom's in their place.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
    pub(crate) use std::sync::{Mutex, MutexGuard};
}
