//! The adapter: where everything begins.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use transom_engine::raw::{self, CaptureOptions, Explain, GuessLimit, Path};
use transom_engine::{Completion, DenialCause, Settle};
use transom_memory::Token;

use crate::names::Names;
use crate::region::Registered;
use crate::{Buffer, Connect, Error, ErrorKind, Listener, Region, Result, explain};

/// An RDMA adapter in software, at one local address. Clones are the same adapter; it ends with the
/// last handle that belongs to it.
#[derive(Clone, Debug)]
pub struct Adapter {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    raw: raw::Adapter,
    domain: raw::Domain,
    address: IpAddr,
    depth: usize,
    unclaimed: Arc<AtomicU64>,
    pub(crate) names: Names,
}

/// How an adapter is to be opened. Start from [`Adapter::options`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    below: raw::Options,
    depth: usize,
    path_source: String,
}

impl Options {
    /// Give the adapter a name, as `transom ps` shows it.
    pub fn named(mut self, name: &str) -> Options {
        self.below.name = Some(name.to_owned());
        self
    }

    /// Ask for a checksum (CRC32c) over every frame. On by default. A peer that asks for it gets it
    /// either way.
    pub fn crc(mut self, on: bool) -> Options {
        self.below.checksum = on;
        self
    }

    /// Offer Transom's extension of iWARP (acknowledgements, announced Writes, receive credits). On
    /// by default; off, this side behaves as a plain iWARP peer.
    pub fn extension(mut self, on: bool) -> Options {
        self.below.extension = on;
        self
    }

    /// The peers that may learn why an access was refused.
    pub fn explain(mut self, to: Explain) -> Options {
        self.below.explain = to;
        self
    }

    /// How many requests a queue pair holds (default 128).
    pub fn depth(mut self, requests: usize) -> Options {
        self.depth = requests;
        self
    }

    /// Pin the congestion control of its TCP connections, e.g. `cubic` (default: the system's).
    /// Ignored if the system does not have it.
    pub fn congestion(mut self, name: &str) -> Options {
        self.below.congestion = Some(name.to_owned());
        self
    }

    /// The way bytes take. By default what the environment variable `TRANSOM_PATH` says (`tcp`,
    /// `auto` or `process`), and [`Path::Auto`] if it says nothing.
    pub fn path(mut self, path: Path) -> Options {
        self.below.path = path;
        self.path_source = "asked for".to_owned();
        self
    }

    /// Share memory with processes of other users, too, if they say the same. Off by default.
    pub fn other_users(mut self, welcome: bool) -> Options {
        self.below.other_users = welcome;
        self
    }

    /// Over how many connections memory is shared at a time; the next ones take TCP. By default
    /// 512, and at most an eighth of the descriptors, and of the address space, that the process may have
    /// (`ulimit -n`, `-v`): each takes one descriptor more than TCP does, and up to 1.1 MiB while bulk data moves.
    pub fn shared_links(mut self, most: usize) -> Options {
        self.below.shared_links = most;
        self
    }

    /// Let peers' processes of this user map what [`Adapter::shared`] makes, and map theirs. On by default; off,
    /// such memory is memory like any other.
    pub fn shared_regions(mut self, on: bool) -> Options {
        self.below.shared_regions = on;
        self
    }

    /// How peers are slowed down that name tokens which never were theirs; `None`: not at all. By
    /// default what the environment variable `TRANSOM_GUESSES` says (`off`, or how many are free),
    /// and [`GuessLimit::USUAL`] if it says nothing.
    pub fn guesses(mut self, limit: Option<GuessLimit>) -> Options {
        self.below.guesses = limit;
        self
    }

    /// Answer `transom ps` and `transom show` of the same user: what is registered, which peers may
    /// touch it, and what was refused, never a byte of memory. Costs a socket in the user's runtime
    /// directory and a thread of the process. By default the environment variable `TRANSOM_INSPECT`
    /// decides; without it, off.
    pub fn inspect(mut self, on: bool) -> Options {
        self.below.inspect = on;
        self
    }

    /// Capture everything that the adapter's connections send and take, over TCP or over shared memory,
    /// as a pcapng file that Wireshark reads. The file holds what programs say to each other: only its
    /// user may read it. By default what the environment variable `TRANSOM_CAPTURE` says, and nothing if
    /// it says nothing.
    pub fn capture(mut self, to: Option<CaptureOptions>) -> Options {
        self.below.capture = to;
        self
    }

    /// The path that an adapter with these options would take, and why: what can be said before
    /// there is a peer. [`ConnectionInfo`](crate::ConnectionInfo) has the path of a connection.
    #[must_use]
    pub fn outlook(&self) -> (Path, String) {
        let (path, why) = self.below.outlook();
        (path, format!("{why} ({})", self.path_source))
    }

    /// Open an adapter at a local address.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if no interface has this address,
    /// [`System`](crate::ErrorKind::System) if descriptors, memory or threads are lacking.
    pub fn open(self, address: IpAddr) -> Result<Adapter> {
        let asked = || format!("opening an adapter at {address}");
        let raw = raw::Adapter::open(address, self.below)
            .map_err(|error| explain::call(&asked(), &error))?;
        let domain = raw.domain().map_err(|error| explain::call(&asked(), &error))?;
        let (unclaimed, names) = (Arc::default(), Names::default());
        let shared = Shared { raw, domain, address, depth: self.depth, unclaimed, names };
        Ok(Adapter { shared: Arc::new(shared) })
    }

    /// Open an adapter at the local address from which `peer` is reached.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if no route leads there; otherwise
    /// as [`open`](Options::open).
    pub fn route_to(self, peer: SocketAddr) -> Result<Adapter> {
        let asked = || format!("looking for the way to {peer}");
        let local =
            raw::Adapter::route_to(peer).map_err(|error| explain::call(&asked(), &error))?;
        self.open(local)
    }
}

/// Counts of the events of an adapter so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Results that arrived after their [`Posted`](crate::Posted) was dropped.
    pub unclaimed: u64,
    /// Refusals recorded here: of accesses of peers by this side, and of our own.
    pub refused: u64,
    /// Refusals among these of peers, for a token that never was theirs.
    pub guesses: u64,
    /// Connections that were not let in because of such guesses (see [`Options::guesses`]).
    pub slowed: u64,
    /// Refusals whose peer learned less than it might have: only a small part of the time is spent
    /// on asking the kernel for a peer's user.
    pub unasked: u64,
    /// Connections that share memory with a process of this host now.
    pub shared_links: usize,
    /// Regions of [`Adapter::shared`] now.
    pub shared_regions: usize,
    /// How many times a peer's process has one of them mapped now, and may look at all of it.
    pub lent_regions: usize,
}

/// An address at which an adapter can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterInfo {
    /// Name of the network interface.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
    /// The address reaches this machine only.
    pub loopback: bool,
}

impl Adapter {
    /// An adapter at a local address, with the default [`Options`]. Needs no privileges, no kernel
    /// module and no pinned memory.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(address: IpAddr) -> Result<Adapter> {
        Adapter::options().open(address)
    }

    /// An adapter at the local address from which `peer` is reached.
    ///
    /// # Errors
    /// As [`Options::route_to`].
    pub fn route_to(peer: SocketAddr) -> Result<Adapter> {
        Adapter::options().route_to(peer)
    }

    /// The defaults, except where the environment asks for something else: `TRANSOM_PATH`,
    /// `TRANSOM_GUESSES` and `TRANSOM_INSPECT`, see [`Options::path`], [`Options::guesses`] and
    /// [`Options::inspect`].
    pub fn options() -> Options {
        let path_source = raw::Environment::read().path_source;
        Options { below: raw::Options::from_env(), depth: 128, path_source }
    }

    /// The addresses at which an adapter can be opened on this machine.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if the kernel does not tell its interfaces.
    pub fn list() -> Result<Vec<AdapterInfo>> {
        let all = raw::interfaces().map_err(|e| Error::system("listing the interfaces", e))?;
        Ok(all
            .into_iter()
            .filter(|one| one.up)
            .map(|one| AdapterInfo {
                interface: one.name,
                address: one.address,
                loopback: one.loopback,
            })
            .collect())
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.shared.address
    }

    /// Hand a buffer over. No peer can touch it before a window is opened on it
    /// ([`QueuePair::bind`](crate::QueuePair::bind)).
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for an empty buffer, for more bytes than a
    /// registration may have, and for pages that cannot be accessed;
    /// [`System`](crate::ErrorKind::System) if no token is free;
    /// [`AddressGone`](crate::ErrorKind::AddressGone), [`Forked`](crate::ErrorKind::Forked). The
    /// buffer is dropped then.
    pub fn register<B: Buffer>(&self, buffer: B) -> Result<Region<B>> {
        Region::new(self, buffer)
    }

    /// Wait for peers at a local address. Port 0: any free port.
    ///
    /// # Errors
    /// [`ErrorKind::AddressInUse`](crate::ErrorKind::AddressInUse),
    /// [`Invalid`](crate::ErrorKind::Invalid) for an address that is not the adapter's,
    /// [`TooMuch`](crate::ErrorKind::TooMuch) if no port is free,
    /// [`System`](crate::ErrorKind::System), [`AddressGone`](crate::ErrorKind::AddressGone),
    /// [`Forked`](crate::ErrorKind::Forked).
    pub fn listen(&self, at: SocketAddr) -> Result<Listener> {
        Listener::open(self, at)
    }

    /// Connect to a peer. Nothing happens before the result is awaited or
    /// [`wait`](Connect::wait)ed for.
    pub fn connect(&self, to: SocketAddr) -> Connect {
        Connect::new(self, to)
    }

    /// Make progress on every connection that has something to do, without blocking. For programs
    /// with many connections that would rather spin than sleep: it finds the few that are ready
    /// among any number of idle ones, and wakes the futures that wait for what it finds. While it
    /// is called all the time, the adapter's own thread stays away.
    pub fn poll(&self) {
        self.raw().progress();
    }

    /// Counts of the events so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let below = self.shared.raw.counters();
        Counters {
            unclaimed: self.shared.unclaimed.load(Ordering::Relaxed),
            refused: below.denials,
            guesses: below.guesses,
            slowed: below.slowed,
            unasked: below.unasked,
            shared_links: below.shared_links,
            shared_regions: below.shared_regions,
            lent_regions: below.lent_regions,
        }
    }

    /// The counters of this adapter and of its objects now, as OpenMetrics text with its end. The
    /// metrics are those of `transom show --metrics`; docs/debugging.md has name, type and unit of
    /// each.
    ///
    /// ```
    /// let adapter = transom::Adapter::open("127.0.0.1".parse()?)?;
    /// assert!(adapter.open_metrics().contains("# TYPE transom_refusals counter\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn open_metrics(&self) -> String {
        self.shared.raw.open_metrics()
    }

    /// Bytes of memory that connections hold because of their peers: beginnings of frames whose
    /// rest has not come, and what a peer does not take. Bounded for each, whatever it does.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.raw.held()
    }

    pub(crate) fn raw(&self) -> &raw::Adapter {
        &self.shared.raw
    }

    pub(crate) fn domain(&self) -> raw::Domain {
        self.shared.domain
    }

    pub(crate) fn deregister(&self, region: Token) -> raw::Result<()> {
        self.raw().deregister(region)
    }

    pub(crate) fn windows(&self, region: Token) -> u32 {
        self.raw().counts(region).map_or(0, |counts| counts.windows)
    }

    /// Whether this is a forked child, which has a copy of the handles and no adapter.
    pub(crate) fn is_foreign(&self) -> bool {
        self.raw().present().is_err()
    }

    /// A queue pair, and the queue where everything of it completes but the requests that succeed.
    pub(crate) fn raw_queue_pair(
        &self,
        receives: u32,
        requests: Arc<dyn Settle>,
    ) -> raw::Result<(raw::CompletionQueue, raw::QueuePair)> {
        let depth = self.shared.depth;
        // Twice the cells: a Bind has none, and must not wait for one.
        let options = raw::QueuePairOptions {
            initiator_depth: u32::try_from(2 * depth).unwrap_or(u32::MAX),
            receive_depth: receives,
            initiator_sge: 1,
            receive_sge: 1,
            inline_size: crate::QueuePair::SEND_LIMIT as u32,
            ..raw::QueuePairOptions::default()
        };
        let queue = self.raw().completion_queue(2 * depth + receives as usize)?;
        let domain = self.shared.domain;
        let pair = self.raw().settling_queue_pair(domain, &queue, requests, &options)?;
        Ok((queue, pair))
    }

    /// That a region is of this adapter: another one's token names nothing here, or something else.
    #[inline]
    pub(crate) fn owns(&self, region: &Registered, asked: &dyn std::fmt::Display) -> Result<()> {
        let own = Arc::ptr_eq(&self.shared, &region.adapter.shared);
        if own { Ok(()) } else { Err(Adapter::owned_by_another(asked)) }
    }

    #[cold]
    fn owned_by_another(asked: &dyn std::fmt::Display) -> Error {
        let why = "the memory is registered with another adapter";
        Error::caller(ErrorKind::Invalid, asked.to_string(), why).accepted(
            "memory registered with the adapter of the connection (`transom explain same_domain`)",
        )
    }

    /// Why a request has failed, or, failing that, why its connection has ended.
    pub(crate) fn cause(&self, completion: &Completion) -> Option<DenialCause> {
        let own = (completion.denial != 0).then(|| self.raw().denial(completion.denial)).flatten();
        let last = || {
            let mut all = self.raw().denials(|record| {
                record.queue_pair == Some(completion.queue_pair) && !record.is_of_call()
            });
            all.pop().map(|(_, record)| record)
        };
        own.or_else(last).map(|record| record.cause)
    }

    /// How long a peer may be silent that owes an answer.
    pub(crate) fn silence(&self) -> std::time::Duration {
        self.raw().options().dialect.silence
    }

    pub(crate) fn depth(&self) -> usize {
        self.shared.depth
    }

    /// The counter of results that were never asked for.
    pub(crate) fn unclaimed(&self) -> Arc<AtomicU64> {
        self.shared.unclaimed.clone()
    }
}
