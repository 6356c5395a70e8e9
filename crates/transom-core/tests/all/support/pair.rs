//! Two hosts and the link between them.

use std::cell::Cell;
use std::time::Duration;

use transom_iwarp::{Config, Stream};
use transom_memory::ConnectionId;
use transom_process::record::{self, Header, RecordKind};
use transom_wire::{Buffer as OutBuffer, ReadLimits, Role, Time, Wire};

use super::host::{Host, HostConfig};
use transom_core::{
    Connection, ConnectionConfig, Dialect, Flags, LinkEnd, LinkWish, Operation, Sge, Status,
};

/// Index of the host that connects.
pub(crate) const ACTIVE: usize = 0;
/// Index of the host that listens.
pub(crate) const PASSIVE: usize = 1;

/// Which implementation of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// iWARP.
    Tcp,
    /// Records between processes.
    Process,
}

thread_local! {
    static IN_USE: Cell<Path> = const { Cell::new(Path::Tcp) };
}

impl Path {
    /// Run a test over this wire: [`Wires::transom`] means it until the test is over.
    pub(crate) fn over(self, test: impl FnOnce()) {
        let before = IN_USE.replace(self);
        test();
        IN_USE.set(before);
    }
}

/// Run each of the named tests again, over the wire between processes.
macro_rules! again_over_process {
    ($($test:ident),* $(,)?) => {
        mod over_process {
            $(#[test] fn $test() { $crate::support::Path::Process.over(super::$test); })*
        }
    };
}
pub(crate) use again_over_process;

/// The wire that each of the two sides speaks.
#[derive(Clone, Debug)]
pub(crate) struct Wires {
    /// Over which wire. `Process` takes what is common from the two below.
    pub(crate) path: Path,
    /// The active side.
    pub(crate) active: Config,
    /// The passive side.
    pub(crate) passive: Config,
}

impl Wires {
    /// Two Transoms, over the wire that the test is run over ([`Path::over`]).
    #[must_use]
    pub(crate) fn transom() -> Wires {
        let (active, passive) = (Config::new(Role::Active), Config::new(Role::Passive));
        Wires { path: IN_USE.get(), active, passive }
    }

    fn make(&self, config: &Config, now: Time) -> Box<dyn Wire> {
        match self.path {
            Path::Tcp => Box::new(Stream::new(config.clone(), now)),
            Path::Process => Box::new(transom_process::Channel::new(config.common, now)),
        }
    }

    /// Two sides of which neither knows the extension.
    #[must_use]
    pub(crate) fn plain() -> Wires {
        let mut wires = Wires { path: Path::Tcp, ..Wires::transom() };
        (wires.active.extension, wires.passive.extension) = (false, false);
        wires
    }
}

/// The parameters of a pair.
#[derive(Clone, Debug)]
pub(crate) struct PairConfig {
    /// The two hosts.
    pub(crate) hosts: [HostConfig; 2],
    /// The wires they speak.
    pub(crate) wires: Wires,
    /// Bytes delivered at a time, each way.
    pub(crate) chunk: usize,
    /// Bytes that may be under way, each way.
    pub(crate) window: usize,
}

impl PairConfig {
    /// Two alike, of a dialect.
    #[must_use]
    pub(crate) fn new(dialect: &'static Dialect) -> PairConfig {
        PairConfig {
            hosts: [HostConfig::new(dialect); 2],
            wires: Wires::transom(),
            chunk: usize::MAX,
            window: 1 << 20,
        }
    }
}

/// A direction of the link.
#[derive(Debug, Default)]
struct Way {
    /// On their way.
    flight: Vec<u8>,
    /// Delivered and not consumed.
    held: Vec<u8>,
    /// The sender has closed, or the link is cut: nothing comes behind `flight`.
    closed: bool,
    /// The receiver has paused reading: what is held is to be given again.
    read_paused: bool,
    /// Nothing is delivered.
    stalled: bool,
    /// The receiver has seen the end.
    ended: bool,
}

/// Two hosts, a link, a clock.
#[derive(Debug)]
pub(crate) struct Pair {
    /// [`ACTIVE`] and [`PASSIVE`].
    pub(crate) hosts: [Host; 2],
    /// The clock.
    pub(crate) now: Time,
    /// Which hosts connect or accept without their queue pair.
    pub(crate) alone: [bool; 2],
    config: PairConfig,
    out: [OutBuffer; 2],
    /// Towards each host.
    ways: [Way; 2],
    epoch: u32,
}

impl Pair {
    /// Two idle hosts.
    #[must_use]
    pub(crate) fn new(config: PairConfig) -> Pair {
        let [active, passive] = config.hosts;
        let limit = config.window;
        Pair {
            hosts: [Host::new(active, 0xA), Host::new(passive, 0xB)],
            now: Time(1_000_000_000),
            alone: [false; 2],
            out: [0, 1].map(|_| OutBuffer::new(limit)),
            ways: [Way::default(), Way::default()],
            epoch: 0,
            config,
        }
    }

    /// Two connected Transoms of a dialect.
    #[must_use]
    pub(crate) fn connected(dialect: &'static Dialect) -> Pair {
        Pair::connected_with(PairConfig::new(dialect))
    }

    /// Two connected hosts.
    #[must_use]
    pub(crate) fn connected_with(config: PairConfig) -> Pair {
        let mut pair = Pair::new(config);
        pair.establish();
        pair
    }

    /// Bind, listen, connect, accept, complete.
    pub(crate) fn establish(&mut self) {
        let reads = self.config.hosts[ACTIVE].caps.reads;
        self.listen();
        let _ = self.take_request(1);
        let _ = self.connect(2, reads, &[]);
        let _ = self.accept(3, reads, &[]);
        let _ = self.complete();
        self.pump();
    }

    /// Passive side: an address, and ready for requests.
    pub(crate) fn listen(&mut self) {
        let _ = self.hosts[PASSIVE].listener.bind();
        let _ = self.hosts[PASSIVE].listener.listen(0);
    }

    /// Passive side: GetConnectionRequest.
    pub(crate) fn take_request(&mut self, waiter: u64) -> Result<(), Status> {
        let host = &mut self.hosts[PASSIVE];
        let incoming = host.listener.take_request(&mut host.connector, 0, waiter)?;
        if let Some(incoming) = incoming {
            let now = self.now;
            host.with(now, |connector, _, _, cx| connector.request(incoming.offer, cx.effects));
        }
        Ok(())
    }

    /// Active side: Connect, over a new link. Runs until nothing moves.
    pub(crate) fn connect(
        &mut self,
        waiter: u64,
        limits: ReadLimits,
        private: &[u8],
    ) -> Result<(), Status> {
        let (now, dialects) = (self.now, [ACTIVE, PASSIVE].map(|i| self.hosts[i].config));
        let host = &mut self.hosts[ACTIVE];
        let _ = host.connector.bind();
        let queue_pair = (!self.alone[ACTIVE]).then_some(&mut host.queue_pair);
        let (execution, limits) =
            host.connector.connect(queue_pair, waiter, limits, private.len())?;
        self.epoch += 1;
        self.ways = [Way::default(), Way::default()];
        for (host, wire) in [ACTIVE, PASSIVE]
            .into_iter()
            .zip([self.config.wires.active.clone(), self.config.wires.passive.clone()])
        {
            self.out[host].bytes.clear();
            let config = ConnectionConfig {
                id: ConnectionId { number: 1, epoch: self.epoch },
                role: if host == ACTIVE { Role::Active } else { Role::Passive },
                dialect: dialects[host].dialect,
                explain: dialects[host].explain,
            };
            let wire = self.config.wires.make(&wire, now);
            self.hosts[host].connection = Some(Connection::new(config, wire, now));
        }
        let result = self.hosts[ACTIVE].with(now, |_, connection, _, cx| match connection {
            Some(connection) => connection.connect(cx, execution, limits, private),
            None => Err(Status::InternalError),
        });
        self.pump();
        result
    }

    /// Passive side: Accept.
    pub(crate) fn accept(
        &mut self,
        waiter: u64,
        limits: ReadLimits,
        private: &[u8],
    ) -> Result<(), Status> {
        let (now, alone) = (self.now, self.alone[PASSIVE]);
        let result = self.hosts[PASSIVE].with(now, |connector, connection, queue_pair, cx| {
            let queue_pair = (!alone).then_some(queue_pair);
            connector.accept(cx, connection, queue_pair, waiter, limits, private)
        });
        self.pump();
        result
    }

    /// The queue pair takes over the connection.
    pub(crate) fn join(&mut self, host: usize) -> Result<(), Status> {
        let now = self.now;
        let result = self.hosts[host].with(now, |connector, connection, queue_pair, cx| {
            connector.join(cx, connection, queue_pair)
        });
        self.deliver(host, 0);
        self.pump();
        result
    }

    /// Active side: CompleteConnect.
    pub(crate) fn complete(&mut self) -> Result<(), Status> {
        let now = self.now;
        let result = self.hosts[ACTIVE]
            .with(now, |connector, connection, _, cx| connector.complete_connect(cx, connection));
        self.pump();
        result
    }

    /// Reject.
    pub(crate) fn reject(&mut self, host: usize, private: &[u8]) -> Result<(), Status> {
        let now = self.now;
        let result = self.hosts[host]
            .with(now, |connector, connection, _, cx| connector.reject(cx, connection, private));
        self.pump();
        result
    }

    /// NotifyDisconnect.
    pub(crate) fn notify_disconnect(&mut self, host: usize, waiter: u64) -> Result<(), Status> {
        let now = self.now;
        self.hosts[host]
            .with(now, |connector, _, _, cx| connector.notify_disconnect(waiter, cx.effects))
    }

    /// Disconnect. Does not run on: the notice is on its way.
    pub(crate) fn disconnect(&mut self, host: usize, waiter: u64) -> Result<(), Status> {
        let now = self.now;
        let result = self.hosts[host]
            .with(now, |connector, connection, _, cx| connector.disconnect(cx, connection, waiter));
        self.write(host);
        result
    }

    /// Flush the queue pair.
    pub(crate) fn flush(&mut self, host: usize) {
        let now = self.now;
        self.hosts[host].with(now, |_, connection, queue_pair, cx| match connection {
            Some(connection) if queue_pair.is_attached() => connection.flush(cx),
            _ => queue_pair.flush(cx.memory, cx.now, cx.effects),
        });
    }

    /// Reset the queue pair, as a driver does it: the connection first, then what is posted, then what
    /// has completed and was not retrieved.
    pub(crate) fn reset(&mut self, host: usize) -> Result<(), Status> {
        let (now, host) = (self.now, &mut self.hosts[host]);
        host.with(now, |_, connection, _, cx| {
            if let Some(connection) = connection {
                connection.reset(cx);
            }
        });
        let result = host.with(now, |_, _, queue_pair, cx| queue_pair.reset(cx.memory, cx.now));
        host.cq.purge(host.queue_pair.config().number);
        host.queue_pair.clear_places();
        result
    }

    /// Cancel what the connector has outstanding.
    pub(crate) fn cancel(&mut self, host: usize) {
        let now = self.now;
        self.hosts[host].with(now, |connector, connection, _, cx| connector.cancel(cx, connection));
    }

    /// Last release of the connector.
    pub(crate) fn release(&mut self, host: usize) {
        let now = self.now;
        self.hosts[host]
            .with(now, |connector, connection, _, cx| connector.release(cx, connection));
        self.write(host);
    }

    /// Post a request and let it be written.
    pub(crate) fn post(
        &mut self,
        host: usize,
        context: u64,
        operation: Operation,
        flags: Flags,
        list: &[Sge],
    ) -> Result<(), Status> {
        self.hosts[host].post(context, operation, flags, list)
    }

    // ---- the link -----------------------------------------------------------------------------

    /// Bytes on their way to a host.
    #[must_use]
    pub(crate) fn in_flight(&self, to: usize) -> usize {
        self.ways[to].flight.len()
    }

    /// Bytes that have reached a host, which has not taken them.
    pub(crate) fn unread(&self, to: usize) -> usize {
        self.ways[to].held.len()
    }

    /// Take the bytes on their way to a host, which they do not reach.
    pub(crate) fn take_flight(&mut self, to: usize) -> Vec<u8> {
        self.ways[to].flight.drain(..).collect()
    }

    /// Put bytes of an attacker's behind what is on its way to a host.
    pub(crate) fn inject(&mut self, to: usize, bytes: &[u8]) {
        self.ways[to].flight.extend_from_slice(bytes);
    }

    /// Deliver nothing to a host any more, or go on.
    pub(crate) fn stall(&mut self, to: usize, stalled: bool) {
        self.ways[to].stalled = stalled;
    }

    /// Deliver so many bytes at a time.
    pub(crate) fn set_chunk(&mut self, chunk: usize) {
        self.config.chunk = chunk;
    }

    /// Deliver exactly so many of the bytes on their way to a host.
    pub(crate) fn deliver(&mut self, to: usize, count: usize) {
        let way = &mut self.ways[to];
        let count = count.min(way.flight.len());
        way.held.extend(way.flight.drain(..count));
        let (now, host) = (self.now, &mut self.hosts[to]);
        let held = std::mem::take(&mut self.ways[to].held);
        let received = host.receive(now, &held);
        self.ways[to].held = held.get(received.consumed..).unwrap_or_default().to_vec();
        self.ways[to].read_paused = received.read_paused;
    }

    /// The process of a host is gone: what it wrote arrives, then the end.
    pub(crate) fn kill(&mut self, host: usize) {
        self.ways[1 - host].closed = true;
        self.hosts[host].connection = None;
    }

    /// The network has given up on the link, as TCP_USER_TIMEOUT makes it; `host` gets the error.
    pub(crate) fn time_out(&mut self, host: usize) {
        let now = self.now;
        self.hosts[host].with(now, |_, connection, _, cx| {
            if let Some(connection) = connection {
                connection.link_closed(cx, LinkEnd::TimedOut);
            }
        });
    }

    fn write(&mut self, host: usize) -> bool {
        let now = self.now;
        self.hosts[host].transmit(now, &mut self.out[host]);
        let mut written = std::mem::take(&mut self.out[host].bytes);
        let connection = self.hosts[host].connection.as_mut();
        if let Some(ack) = connection.and_then(|one| one.wire().acknowledgement(now)) {
            // A ring has a place for this word; here a record of its own carries it.
            let header = Header { ack, ..Header::new(RecordKind::Ack) };
            written.extend_from_slice(&record::to_bytes(header.words()));
        }
        let way = &mut self.ways[1 - host];
        if !way.closed {
            way.flight.extend_from_slice(&written);
        }
        let wish =
            self.hosts[host].connection.as_ref().map_or(LinkWish::Close, Connection::link_wish);
        let closes = wish != LinkWish::Keep && !way.closed;
        way.closed |= wish != LinkWish::Keep;
        closes || !written.is_empty()
    }

    fn read(&mut self, host: usize) -> bool {
        let way = &mut self.ways[host];
        if way.stalled {
            return false;
        }
        let reads = self.hosts[host].connection.as_ref().is_some_and(Connection::wants_read);
        if (!way.flight.is_empty() || way.read_paused) && reads {
            self.deliver(host, self.config.chunk);
            return true;
        }
        if way.flight.is_empty() && way.closed && !way.ended {
            way.ended = true;
            let now = self.now;
            let taken = self.ways[1 - host].flight.is_empty();
            let how = if taken { LinkEnd::Finished } else { LinkEnd::Closed };
            self.hosts[host].with(now, |_, connection, _, cx| {
                if let Some(connection) = connection {
                    connection.link_closed(cx, how);
                }
            });
            // The connection's own reports about the end come first.
            self.hosts[host].with(now, |connector, _, _, cx| connector.link_gone(cx.effects));
            return true;
        }
        false
    }

    /// Each host writes once and reads once. `false`: nothing has moved.
    pub(crate) fn step(&mut self) -> bool {
        let mut moved = false;
        for host in [ACTIVE, PASSIVE] {
            moved |= self.write(host);
            moved |= self.read(host);
        }
        moved
    }

    /// Run until nothing moves, without time passing.
    pub(crate) fn pump(&mut self) {
        loop {
            if !self.step() {
                // Two passes without work let owed acknowledgements go.
                for host in &mut self.hosts {
                    if let Some(connection) = &mut host.connection {
                        connection.before_blocking();
                    }
                }
                if ![ACTIVE, PASSIVE].into_iter().any(|host| self.write(host)) {
                    return;
                }
            }
        }
    }

    /// Let time pass, deadline by deadline, and run.
    pub(crate) fn advance(&mut self, by: Duration) {
        let end = self.now.after(by);
        loop {
            self.pump();
            let next = self
                .hosts
                .iter()
                .filter_map(|host| host.connection.as_ref()?.deadline())
                .min()
                .filter(|next| *next <= end);
            let Some(next) = next else { break };
            // A deadline that does not move would hold the clock.
            self.now = next.max(Time(self.now.0 + 1));
            let now = self.now;
            for host in &mut self.hosts {
                if host.connection.as_ref().is_some_and(|c| c.deadline().is_some_and(|d| d <= now))
                {
                    host.with(now, |_, connection, _, cx| {
                        if let Some(connection) = connection {
                            connection.on_deadline(cx);
                        }
                    });
                }
            }
        }
        self.now = end;
        self.pump();
    }
}
