//! The adapter: memory, and what hangs on it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use transom_memory::{
    BindError, Config, DeregisterError, DomainId, Memory, RegisterError, Registration, Rights,
    Scope, Segment, Token, Unless, WindowSpec,
};

use super::{Error, Options, QueuePair, Result};
use crate::driver::Shared;
use crate::sys;
use crate::{DenialRecord, Status};

/// An RDMA adapter at one local address. Clones are the same adapter; it ends with the last handle
/// of any kind that belongs to it, and its connections with it.
#[derive(Clone, Debug)]
pub struct Adapter(pub(super) Arc<Owner>);

/// What every handle holds. When the last one goes, so does the adapter.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) shared: Arc<Shared>,
    address: IpAddr,
    pub(super) domains: AtomicU32,
}

/// A protection domain: what was registered in one is of no use in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Domain(pub DomainId);

/// What a window is to be. Its token exists when [`Adapter::reserve_window`] returns; access begins
/// when the Bind request executes that is then posted (ND2 W10).
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The region.
    pub region: Token,
    /// First byte, in the region's addresses.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// Remote rights.
    pub rights: Rights,
}

/// What happened on an adapter so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Refusals of any kind, by this side or by a peer.
    pub denials: u64,
    /// Of these, how many records made room for later ones.
    pub denials_dropped: u64,
    /// Links there are now.
    pub links: usize,
    /// Of these, how many share memory with a process of this host, or are about to
    /// ([`Options::shared_links`]).
    pub shared_links: usize,
    /// Refusals of peers for a token that was never theirs.
    pub guesses: u64,
    /// Connections that were not let in because of such guesses (see [`GuessLimit`](super::GuessLimit)).
    pub slowed: u64,
    /// Refusals whose peer was told less than it might have been, because asking whose process it is
    /// would have cost too much.
    pub unasked: u64,
}

impl Owner {
    /// Every call begins here: a forked child has handles, and no adapter.
    pub(super) fn here(&self) -> Result<&Arc<Shared>> {
        if self.shared.is_foreign() {
            return Err(Error::caller(
                Status::DeviceRemoved,
                "this process was forked from the one that opened the adapter; open one of its own",
            ));
        }
        Ok(&self.shared)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // A forked child must not end its parent's connections.
        if !self.shared.is_foreign() {
            for link in self.shared.links() {
                link.cut();
            }
            self.shared.stop();
        }
    }
}

impl Adapter {
    /// Open an adapter at a local address. Needs no privileges, kernel module or pinned memory.
    pub fn open(address: IpAddr, options: Options) -> Result<Adapter> {
        let failed = |what: &'static str| {
            move |e: std::io::Error| {
                Error::system(Status::InsufficientResources, format!("{what}: {e}"))
            }
        };
        // The one question that only the system can answer: is this address ours?
        sys::check_local(address)
            .map_err(|e| Error::link(e, &format!("open an adapter at {address}")))?;
        let seed = sys::random_seed().map_err(failed("draw a random seed"))?;
        let memory = Memory::new(
            seed,
            Config { largest_region: options.largest_region, ..Config::default() },
        );
        let shared = Shared::start(options, memory).map_err(failed("start an adapter"))?;
        Ok(Adapter(Arc::new(Owner { shared, address, domains: AtomicU32::new(0) })))
    }

    /// The local address from which `peer` is reached.
    pub fn route_to(peer: SocketAddr) -> Result<IpAddr> {
        sys::route_to(peer)
            .map(|local| local.ip())
            .map_err(|e| Error::link(e, &format!("find the way to {peer}")))
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.0.address
    }

    /// Its options.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0.shared.options
    }

    /// A new protection domain.
    pub fn domain(&self) -> Result<Domain> {
        self.0.here()?;
        // A number that came back would open the first one's memory.
        let next = |last: u32| last.checked_add(1);
        match self.0.domains.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(last) => Ok(Domain(DomainId(last + 1))),
            Err(_) => Err(Error::system(
                Status::InsufficientResources,
                "make a protection domain: 4,294,967,295 were made already; open another adapter",
            )),
        }
    }

    // ---- memory ----------------------------------------------------------------------------------

    /// Register memory: `segments`, in order, as one region that begins at address `base`. Holes,
    /// and read-only pages with `LOCAL_WRITE` or `REMOTE_WRITE`, are refused (ND2 R9). The token
    /// serves local and remote use alike.
    ///
    /// # Safety
    /// Until [`Adapter::deregister`] has returned success, or the last handle of this adapter was
    /// dropped: the memory belongs to the caller, is not used for anything else (freed, given to
    /// another allocation), no Rust reference to it exists that others could contradict, and with
    /// a right to write, peers' bytes may appear in it at any time. It may be unmapped.
    #[allow(unsafe_code)] // the promise is the caller's; nothing here relies on it
    pub unsafe fn register(
        &self,
        domain: Domain,
        base: u64,
        segments: &[Segment],
        rights: Rights,
    ) -> Result<Token> {
        let shared = self.0.here()?;
        let write = rights.contains(Rights::LOCAL_WRITE)
            || rights.contains(Rights::REMOTE_WRITE)
            || rights.contains(Rights::READ_SINK);
        let ranges = segments.iter().map(|segment| (segment.host, segment.length));
        sys::check_ranges(ranges, write)
            .map_err(|e| Error::caller(Status::LocalAccess, format!("register: {e}")))?;
        sys::recheck_fault_handler();
        let scope = Scope::Domain(domain.0);
        let registration = Registration { scope, rights, base, segments };
        shared.memory.register(&registration).map_err(|e| {
            let detail = format!("register: {e}");
            match e {
                RegisterError::Exhausted => Error::system(Status::InsufficientResources, detail),
                RegisterError::Wraps => Error::caller(Status::InvalidParameter(1), detail),
                _ => Error::caller(Status::InvalidParameter(2), detail),
            }
        })
    }

    /// A token for memory that is not known yet: see [`QueuePair::fast_register`]. It stays the same
    /// until [`Adapter::deregister`] ends it (NDK FR-13).
    pub fn reserve_region(&self, domain: Domain) -> Result<Token> {
        let shared = self.0.here()?;
        shared.memory.reserve_region(Scope::Domain(domain.0)).map_err(|e| {
            Error::system(Status::InsufficientResources, format!("reserve a region: {e}"))
        })
    }

    /// Remove a registration. When it returns success, nothing is read or written through it any
    /// more, whatever peers do. Refused while windows are bound (ND2 R16) or, with `posted`, while
    /// requests counted by the front are outstanding.
    pub fn deregister(&self, region: Token, posted: bool) -> Result<()> {
        let shared = self.0.here()?;
        let unless = Unless { windows: true, posted, guards: false };
        shared.memory.deregister(region, unless, sys::recently().0).map_err(deregister_error)
    }

    /// What keeps a region busy; `None` if it is not registered.
    #[must_use]
    pub fn counts(&self, region: Token) -> Option<transom_memory::Counts> {
        self.0.here().ok()?.memory.counts(region)
    }

    /// The memory table, for what only a front decides.
    pub fn memory(&self) -> Result<&Memory> {
        Ok(&self.0.here()?.memory)
    }

    /// Make a window's token, for `queue_pair`'s peer only. Post its Bind next; until that executes
    /// the token names nothing, and the region is busy (ND2 W10, 5.6).
    pub fn reserve_window(&self, window: &Window, queue_pair: &QueuePair) -> Result<Token> {
        self.try_reserve_window(window, queue_pair)?.map_err(|e| {
            let detail = format!("bind: {e}");
            match e {
                BindError::Exhausted => Error::system(Status::InsufficientResources, detail),
                BindError::Empty => Error::caller(Status::InvalidParameter(2), detail),
                _ => Error::caller(Status::LocalAccess, detail),
            }
        })
    }

    /// As [`reserve_window`](Adapter::reserve_window), with the reason as the memory table gives it:
    /// for fronts that have a code for each.
    pub fn try_reserve_window(
        &self,
        window: &Window,
        queue_pair: &QueuePair,
    ) -> Result<std::result::Result<Token, BindError>> {
        let shared = self.0.here()?;
        let config = queue_pair.config();
        let spec = WindowSpec {
            region: window.region,
            domain: config.domain,
            scope: Scope::QueuePair(config.domain, config.number),
            base: window.base,
            length: window.length,
            rights: window.rights,
        };
        Ok(shared.memory.reserve(&spec, sys::recently().0))
    }

    /// Undo a reservation whose Bind could not be posted.
    pub fn abandon_window(&self, window: Token) {
        if let Ok(shared) = self.0.here() {
            shared.memory.abandon(window, sys::now().0);
        }
    }

    /// Close a window now, out of queue order. When it returns, nothing is read or written through
    /// it any more, and it waited for one copy at most, whatever the peer does.
    pub fn revoke(&self, window: Token) -> Result<()> {
        let shared = self.0.here()?;
        shared.memory.close(window, None, sys::recently().0).map_err(deregister_error)
    }

    // ---- progress ----------------------------------------------------------------------------------

    /// Serve the links that are ready, without blocking; idle ones cost nothing. Until a lease is over
    /// the background thread leaves the links to those who call this.
    pub fn progress(&self) {
        if let Ok(shared) = self.0.here() {
            shared.serve();
        }
    }

    // ---- records -----------------------------------------------------------------------------------

    /// The record of a refusal, by the id in a completion or an end; `None` if it made room.
    #[must_use]
    pub fn denial(&self, id: u64) -> Option<DenialRecord> {
        self.0.here().ok()?.denials().get(id).cloned()
    }

    /// Every record that is kept and satisfies `keep`, oldest first, with its id.
    pub fn denials(&self, keep: impl Fn(&DenialRecord) -> bool) -> Vec<(u64, DenialRecord)> {
        let Ok(shared) = self.0.here() else { return Vec::new() };
        let log = shared.denials();
        log.iter().filter(|(_, r)| keep(r)).map(|(id, r)| (id, r.clone())).collect()
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let Ok(shared) = self.0.here() else { return Counters::default() };
        let log = shared.denials();
        let (denials, denials_dropped) = (log.total(), log.dropped());
        drop(log);
        let (links, shared_links) = (shared.links().len(), shared.sharing.taken());
        let (guesses, slowed) = shared.guessers.counts();
        let unasked = shared.inquiries.unasked();
        Counters { denials, denials_dropped, links, shared_links, guesses, slowed, unasked }
    }

    /// Bytes of memory that connections hold because of their peers: beginnings of frames whose rest has
    /// not come, and what a peer does not take. Asks one connection after the other, and may wait for a
    /// pass on each.
    #[must_use]
    pub fn held(&self) -> usize {
        let Ok(shared) = self.0.here() else { return 0 };
        shared.links().iter().map(|link| link.held()).sum()
    }
}

fn deregister_error(e: DeregisterError) -> Error {
    let status = match e {
        DeregisterError::NotLive(_) => Status::InvalidParameter(0),
        DeregisterError::Busy(_) => Status::DeviceBusy,
        DeregisterError::NotYours(_) => Status::LocalAccess,
    };
    Error::caller(status, e.to_string())
}
