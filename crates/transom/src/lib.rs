//! An RDMA adapter in software: register memory, open a window on it, let one peer read or write
//! it, and take it back. No special hardware, no kernel module, no root, nothing pinned.
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
//! # How it behaves
//!
//! * **Posts are eager.** [`QueuePair::send`], [`read`](QueuePair::read),
//!   [`write`](QueuePair::write) and [`bind`](QueuePair::bind) hand the request over when they are
//!   called, so that the order of calls is the order of execution. What they return is the
//!   *result*: a [`Posted`], to be awaited on any executor or [`wait`](Posted::wait)ed for.
//! * **Dropping a [`Posted`] is not cancelling.** The request goes on, its memory stays alive until
//!   it has completed; an error still ends the connection. The only cancel is
//!   [`QueuePair::disconnect`].
//! * **Memory is opened by windows only.** A registration gives no peer any access. A [`Window`]
//!   opens a range of it to one peer, for reading, writing or both, until it is revoked.
//! * **Nothing rests on `Drop`.** Forgetting a handle leaks it: the memory stays valid and the
//!   window open until the [`Adapter`] ends.
//! * **Every refusal is explained**, to the owner in full ([`Error::denial`]), to the peer as far as
//!   the owner says ([`Error::explanation`], [`Explain`]).
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
//! | a post nobody waits for | `#[must_use]`: `compile_fail` test of [`Posted`] |
//! | a waker that calls back in | wakers run with no lock held: test `a_waker_may_call_back` |
//! | a context that is a pointer | contexts are slot numbers with generations: test `a_stale_context_names_nobody` |
//! | a window used after it was revoked | [`Window::revoke`] consumes it: `compile_fail` test of [`Window`] |
//! | pages that vanish (a file cut short) | copies are fault-tolerant: test `a_file_cut_short_is_an_error` |
//! | the adapter's address is removed | what waits ends, and names it: [`ErrorKind::AddressGone`] |
//! | `fork` | handles belong to the process that made them: [`ErrorKind::Forked`] |

#![deny(unsafe_code)]

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
mod mapped;
mod names;
mod posted;
mod queue_pair;
#[expect(unsafe_code, reason = "registers, copies, hands out atomics")]
mod region;
mod rights;
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
pub use transom_engine::raw::{Explain, GuessLimit, Path};
pub use transom_memory::{Denial, Mistake, Named, NamedState, Rule, Token};
pub use transom_wire::{Blame, Verdicts};
pub use window::Window;

/// What cells and turns are built of; their model tests put loom's in their place.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
    pub(crate) use std::sync::{Mutex, MutexGuard};
}
