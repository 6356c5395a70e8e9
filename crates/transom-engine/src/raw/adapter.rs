//! The adapter: what every handle belongs to.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use transom_memory::{Config, Memory};

use super::{Error, Options, Result};
use crate::driver::{
    Link, Shared, Traffic, begin_capture, begin_inspection, begin_ledger, end_inspection,
    end_ledger, open_metrics,
};
use crate::sys::{self, AddressWatch};
use crate::{DenialRecord, Status};

/// An RDMA adapter at one local address. Clones are the same adapter; it ends with the last handle
/// of any kind that belongs to it, and its connections with it.
#[derive(Clone, Debug)]
pub struct Adapter(pub(super) Arc<Owner>);

/// The parts that every handle shares. Dropping the last handle closes the adapter.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) shared: Arc<Shared>,
    address: IpAddr,
    pub(super) domains: AtomicU32,
}

/// Counts of what happened on an adapter so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Refusals of any kind, by this side or by a peer.
    pub denials: u64,
    /// Records among these that made room for later ones.
    pub denials_dropped: u64,
    /// Links there are now.
    pub links: usize,
    /// Links among these that share memory with a process of this host, or are about to
    /// ([`Options::shared_links`]).
    pub shared_links: usize,
    /// Shared regions there are now ([`Adapter::shared_memory`]).
    pub shared_regions: usize,
    /// How many times a peer's process has one of them mapped now.
    pub lent_regions: usize,
    /// Refusals of peers for a token that was never theirs.
    pub guesses: u64,
    /// Connections that were not let in because of such guesses (see [`GuessLimit`](super::GuessLimit)).
    pub slowed: u64,
    /// Refusals whose peer learned less than it might have, because asking the kernel for its user
    /// would have cost too much.
    pub unasked: u64,
}

impl Owner {
    /// Every call begins here: a forked child has handles, and no adapter.
    pub(super) fn here(&self) -> Result<&Arc<Shared>> {
        if self.shared.is_foreign() {
            return Err(Error::caller(
                Status::Forked,
                "this process was forked from the one that opened the adapter; open one of its own",
            ));
        }
        Ok(&self.shared)
    }

    /// The adapter for calls that begin something: refused, too, once its address has gone.
    pub(super) fn present(&self) -> Result<&Arc<Shared>> {
        let shared = self.here()?;
        if shared.is_removed() { Err(self.removed()) } else { Ok(shared) }
    }

    /// The address has gone.
    pub(super) fn removed(&self) -> Error {
        let why = "is no longer an address of this machine; open an adapter at one that is";
        Error::system(Status::DeviceRemoved, format!("{} {why}", self.address))
    }

    /// A call that its object's state does not permit: perhaps because the address went meanwhile.
    pub(super) fn state(&self, status: Status, call: &'static str) -> Error {
        if self.shared.is_removed() { self.removed() } else { Error::state(status, call) }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // A forked child must not end its parent's connections.
        if !self.shared.is_foreign() {
            end_ledger(&self.shared);
            for link in Link::all(&self.shared) {
                link.cut();
            }
            end_inspection(&self.shared);
            self.shared.stop();
            if let Some(capture) = &self.shared.capture {
                capture.flush();
            }
        }
    }
}

impl Adapter {
    /// Open an adapter at a local address. Needs no privileges, kernel module or pinned memory.
    ///
    /// # Errors
    /// `InvalidAddress` if this machine does not have the address; `InsufficientResources` if
    /// descriptors, memory or threads ran out.
    pub fn open(address: IpAddr, options: Options) -> Result<Adapter> {
        let failed = |what: &'static str| {
            move |e: std::io::Error| {
                Error::system(Status::InsufficientResources, format!("{what}: {e}"))
            }
        };
        // Before the question, so that no removal goes unheard.
        let watch = AddressWatch::open(address);
        // The one question that only the system can answer: is this address ours?
        sys::check_local(address)
            .map_err(|e| Error::link(e, &format!("open an adapter at {address}")))?;
        let seed = sys::random_seed().map_err(failed("draw a random seed"))?;
        let memory = Memory::new(
            seed,
            Config {
                largest_region: options.largest_region,
                count_uses: options.inspect,
                review_grants: options.ledger.is_some(),
                ..Config::default()
            },
        );
        let inspect = options.inspect;
        let capture = options.capture.as_ref().map(begin_capture).transpose().map_err(|why| {
            let asked = "it cannot be captured, as TRANSOM_CAPTURE or its options ask";
            let detail = format!("open an adapter at {address}: {asked}: {why}");
            Error::system(Status::InsufficientResources, detail)
        })?;
        let shared =
            Shared::start(options, memory, watch, capture).map_err(failed("start an adapter"))?;
        begin_ledger(&shared).map_err(|why| {
            shared.stop();
            let asked = "its grants cannot be looked at, as TRANSOM_LEDGER or its options ask";
            let detail = format!("open an adapter at {address}: {asked}: {why}");
            Error::system(Status::InsufficientResources, detail)
        })?;
        if inspect {
            begin_inspection(&shared, address).map_err(|why| {
                shared.stop();
                let asked = "it cannot answer inspections, as TRANSOM_INSPECT or its options ask";
                let detail = format!("open an adapter at {address}: {asked}: {why}");
                Error::system(Status::InsufficientResources, detail)
            })?;
        }
        Ok(Adapter(Arc::new(Owner { shared, address, domains: AtomicU32::new(0) })))
    }

    /// The local address from which `peer` is reached.
    ///
    /// # Errors
    /// `NetworkUnreachable` or `HostUnreachable` without a route.
    pub fn route_to(peer: SocketAddr) -> Result<IpAddr> {
        sys::route_to(peer)
            .map(|local| local.ip())
            .map_err(|e| Error::link(e, &format!("find the way to {peer}")))
    }

    /// The address that the adapter was opened on.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.0.address
    }

    /// Whether it notices when its address goes. Not where no interface has the address (0.0.0.0, or
    /// one that a route alone makes local), or where the system has no rtnetlink.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.0.shared.removal.watch().is_some()
    }

    /// Whether this process was forked from the one that opened the adapter, so that nothing works here.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.0.shared.is_foreign()
    }

    /// The options that the adapter was opened with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0.shared.options
    }

    /// Whether the adapter can be used.
    ///
    /// # Errors
    /// `DeviceRemoved` when its address has gone from this machine: its connections and listeners
    /// have ended, what is posted is canceled, and only what cleans up works. An address that comes
    /// back needs another adapter. `Forked` in a child of the process that opened the adapter.
    pub fn present(&self) -> Result<()> {
        self.0.present().map(drop)
    }

    // ---- progress ----------------------------------------------------------------------------------

    /// Serve the links that are ready, without blocking; idle ones cost nothing. Until a lease is
    /// over the background thread leaves the links to the threads that call this.
    pub fn progress(&self) {
        if let Ok(shared) = self.0.here() {
            shared.serve();
        }
    }

    /// End every connection in order, for a program that is about to exit: acknowledgements that are owed
    /// leave, and what peers had under way is read, so that none of them takes what has arrived for
    /// lost. Listeners close; nothing completes. Blocks until the peers have closed, or the time is up:
    /// whether they have (Verbs V80).
    ///
    /// # Errors
    /// `Forked`.
    pub fn finish(&self, at_most: Duration) -> Result<bool> {
        /// Between two looks at what is left.
        const PAUSE: Duration = Duration::from_micros(200);
        let shared = self.0.here()?;
        let end = sys::now().after(at_most);
        for source in shared.sources() {
            source.stop_accepting(Status::Canceled);
        }
        for link in Link::all(shared) {
            link.finish();
        }
        loop {
            let left = Link::all(shared);
            if left.is_empty() || sys::now() >= end {
                return Ok(left.is_empty());
            }
            left.iter().for_each(|link| link.attend());
            sys::pause(PAUSE);
        }
    }

    /// Stop the adapter's thread, and wait for its end, at most half a second. Nothing progresses
    /// afterwards but what a program polls. A thread that ends gives memory and its stack back: see [`spawn_quiet`](super::spawn_quiet).
    /// The caller holds no lock that a callback takes.
    ///
    /// # Errors
    /// `Forked`.
    pub fn stop(&self) -> Result<()> {
        self.0.here()?.join();
        Ok(())
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

    /// Counts of what happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let Ok(shared) = self.0.here() else { return Counters::default() };
        let log = shared.denials();
        let (denials, denials_dropped) = (log.total(), log.dropped());
        drop(log);
        let (links, shared_links) = (Link::all(shared).len(), shared.sharing.taken());
        let (guesses, slowed) = shared.guess_limiter.counts();
        let unasked = shared.query_budget.unasked();
        let (shared_regions, _, lent_regions) = shared.regions.counts();
        Counters {
            denials,
            denials_dropped,
            links,
            shared_links,
            shared_regions,
            lent_regions,
            guesses,
            slowed,
            unasked,
        }
    }

    /// Counts of what happened so far, and of its objects now, as OpenMetrics text with its end: the
    /// metrics that `transom show --metrics` prints, under `adapter="0"`. Empty in a forked child.
    #[must_use]
    pub fn open_metrics(&self) -> String {
        self.0.here().map(|shared| open_metrics(shared, self.0.address)).unwrap_or_default()
    }

    /// Traffic over its connections so far: sent, and received. Asks one connection after the other, and may wait
    /// for a pass on each. Nothing in a forked child.
    #[must_use]
    pub fn traffic(&self) -> [Traffic; 2] {
        let Ok(shared) = self.0.here() else { return [Traffic::default(); 2] };
        Link::all(shared).iter().for_each(|link| link.count_traffic());
        shared.traffic.get()
    }

    /// Bytes of memory that connections hold because of their peers: beginnings of frames whose rest has
    /// not come, and what a peer does not take. Asks one connection after the other, and may wait for a
    /// pass on each.
    #[must_use]
    pub fn held(&self) -> usize {
        let Ok(shared) = self.0.here() else { return 0 };
        Link::all(shared).iter().map(|link| link.held()).sum()
    }
}
