//! How connections come about.

#[cfg(feature = "stream")]
use std::future::Future;
use std::future::IntoFuture;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use transom_engine::{Status, raw};
use transom_wire::ReadLimits;

use crate::endpoint::Endpoint;
use crate::posted::Cell;
use crate::{Adapter, Error, ErrorKind, Pending, QueuePair, Result, explain};

/// Waits for peers.
#[derive(Debug)]
pub struct Listener {
    adapter: Adapter,
    raw: raw::Listener,
    address: SocketAddr,
    /// The request for the next peer, once it was asked for: it outlives a future that is dropped.
    next: Option<Arc<Cell<Incoming>>>,
}

impl Listener {
    pub(crate) fn open(adapter: &Adapter, at: SocketAddr) -> Result<Listener> {
        let asked = || format!("listening at {at}");
        let raw = adapter.raw().listener(at).map_err(|error| explain::call(&asked(), &error))?;
        raw.listen(0).map_err(|error| explain::call(&asked(), &error))?;
        let address = raw.address().map_err(|error| explain::call(&asked(), &error))?;
        Ok(Listener { adapter: adapter.clone(), raw, address, next: None })
    }

    /// Where it listens; tells the port if any free one was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that were turned away because too many were half-way through start-up, in all or
    /// from one address.
    #[must_use]
    pub fn turned_away(&self) -> u64 {
        self.raw.turned_away()
    }

    /// The next peer that asks to connect. A peer that comes before this call is not lost, and neither
    /// is one that comes for a future that was dropped: the next call has it. So this may stand in a
    /// `select!`.
    ///
    /// # Errors
    /// [`ErrorKind::NotConnected`] if the listener is closed first, [`ErrorKind::AddressGone`],
    /// [`ErrorKind::Forked`], [`ErrorKind::System`].
    #[expect(clippy::should_implement_trait, reason = "as tokio's and futures' streams call it")]
    pub fn next(&mut self) -> Pending<Incoming> {
        let cell = match self.next.take().filter(|cell| !cell.is_spent()) {
            Some(cell) => cell,
            None => self.ask(),
        };
        let pending = Pending::of(&cell);
        self.next = Some(cell);
        pending
    }

    fn ask(&self) -> Arc<Cell<Incoming>> {
        let cell: Arc<Cell<Incoming>> = Arc::default();
        let asked = format!("waiting for a peer at {}", self.address);
        let connector = match self.adapter.raw().connector() {
            Ok(connector) => connector,
            Err(error) => {
                cell.put(Err(explain::call(&asked, &error)));
                return cell;
            }
        };
        let (theirs, adapter, arrived) = (cell.clone(), self.adapter.clone(), connector.clone());
        let sink = raw::Sink::call(move |status| {
            theirs.put(match status {
                Status::Success => {
                    Ok(Incoming { adapter, connector: Some(arrived), terms: Terms::default() })
                }
                Status::DeviceRemoved => Err(explain::address_gone(asked, adapter.address())),
                _ => Err(Error::caller(ErrorKind::NotConnected, asked, "the listener was closed")
                    .accepted("a listener that is kept until its last peer is there")),
            });
        });
        if let Err(error) = self.raw.get_request(&connector, sink) {
            cell.put(Err(explain::call("waiting for a peer", &error)));
        }
        cell
    }
}

/// Peers that ask to connect, one after the other; the stream has no end.
#[cfg(feature = "stream")]
impl futures_core::Stream for Listener {
    type Item = Result<Incoming>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Incoming>>> {
        std::pin::Pin::new(&mut self.next()).poll(context).map(Some)
    }
}

/// Options of both sides of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    reads: u32,
    receives: u32,
    receive_size: u32,
    private: Vec<u8>,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { reads: 16, receives: 16, receive_size: 4096, private: Vec::new() }
    }
}

/// A connection to be made: await it, or [`wait`](Connect::wait) for it.
///
/// A future that is dropped gives the connection up: a peer that has accepted meanwhile is disconnected.
/// In a `select!` keep the future, by reference, across turns, or its connection starts anew.
#[derive(Debug)]
#[must_use = "nothing happens before it is awaited or waited for"]
pub struct Connect {
    adapter: Adapter,
    to: SocketAddr,
    terms: Terms,
}

impl Connect {
    pub(crate) fn new(adapter: &Adapter, to: SocketAddr) -> Connect {
        Connect { adapter: adapter.clone(), to, terms: Terms::default() }
    }

    /// Reads that may be under way at a time, each way (default 16). The peer has a say.
    pub fn reads(mut self, reads: u32) -> Connect {
        self.terms.reads = reads;
        self
    }

    /// Keep `count` receives of `size` bytes posted (default 16 of 4096, at least one): how many
    /// messages the peer may be ahead, and the longest message it may send.
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
    ///
    /// # Errors
    /// [`ErrorKind::Rejected`] if no program listens there or the peer's program rejects,
    /// [`ErrorKind::Unreachable`] without a route, [`ErrorKind::TimedOut`] without an answer,
    /// [`ErrorKind::NotConnected`] if the peer goes meanwhile, [`ErrorKind::TooMuch`] for too much
    /// private data or without a local port, [`ErrorKind::Protocol`], [`ErrorKind::System`],
    /// [`ErrorKind::AddressGone`], [`ErrorKind::Forked`].
    pub fn wait(self) -> Result<QueuePair> {
        self.into_future().wait()
    }

    fn begin(self, cell: &Arc<Cell<QueuePair>>) -> Result<()> {
        let Connect { adapter, to, terms } = self;
        let asked = format!("connecting to {to}");
        let failed = |error: raw::Error| explain::call(&asked, &error);
        let connector = adapter.raw().connector().map_err(failed)?;
        connector.bind(SocketAddr::new(adapter.address(), 0)).map_err(failed)?;
        let endpoint =
            Endpoint::new(&adapter, connector.clone(), terms.receives, terms.receive_size)?;
        let (theirs, peer, raw) = (cell.clone(), endpoint.clone(), connector.clone());
        let (sentence, from) = (asked.clone(), adapter.address());
        let sink = raw::Sink::call(move |status| {
            if !status.is_success() {
                return theirs.put(Err(not_connected(&sentence, from, status)));
            }
            theirs.put(match raw.complete_connect() {
                Ok(()) => established(peer, &sentence),
                // The peer has accepted, and then it was gone.
                Err(error) if error.status == Status::ConnectionAborted => {
                    Err(backed_out(&sentence))
                }
                Err(error) => Err(explain::call(&sentence, &error)),
            });
        });
        connector
            .connect(&endpoint.raw, to, terms.limits(), &terms.private, sink)
            .map_err(|error| explain::call(&asked, &error))
    }
}

impl IntoFuture for Connect {
    type Output = Result<QueuePair>;
    type IntoFuture = Pending<QueuePair>;

    fn into_future(self) -> Pending<QueuePair> {
        let (pending, cell) = Pending::new();
        if let Err(error) = self.begin(&cell) {
            cell.put(Err(error));
        }
        pending
    }
}

impl Terms {
    fn limits(&self) -> ReadLimits {
        ReadLimits { inbound: self.reads, outbound: self.reads }
    }
}

fn established(endpoint: Arc<Endpoint>, asked: &str) -> Result<QueuePair> {
    let info = endpoint.info(asked)?;
    Ok(QueuePair::new(endpoint, info))
}

const BACKED_OUT: &str = "the peer backed out: it has disconnected, or its process has ended";

fn backed_out(asked: &str) -> Error {
    Error::peer(ErrorKind::NotConnected, asked, BACKED_OUT).accepted(explain::CONNECT_AGAIN)
}

/// Why a peer that has asked is not connected; `at`: this side's address.
fn not_accepted(asked: &str, at: IpAddr, status: Status) -> Error {
    match status {
        Status::ConnectionRefused | Status::ConnectionAborted => backed_out(asked),
        Status::IoTimeout => {
            let why = "the peer did not complete the connection in time";
            Error::peer(ErrorKind::TimedOut, asked, why).accepted("the next peer that asks")
        }
        status => not_connected(asked, at, status),
    }
}

/// Why there is no connection; `from`: this side's address.
fn not_connected(asked: &str, from: IpAddr, status: Status) -> Error {
    let (kind, why) = match status {
        Status::DeviceRemoved => return explain::address_gone(asked, from),
        Status::ConnectionRefused => {
            const WHY: &str = "nobody listens there (an adapter that speaks RoCE does not), its program \
                               said no, or it has ended";
            (ErrorKind::Rejected, WHY)
        }
        Status::IoTimeout => (ErrorKind::TimedOut, "nobody answers"),
        Status::NetworkUnreachable => (ErrorKind::Unreachable, "there is no route to that network"),
        Status::HostUnreachable => (ErrorKind::Unreachable, "there is no route to that host"),
        Status::Canceled => (ErrorKind::Canceled, "it was given up"),
        Status::ConnectionAborted => (ErrorKind::NotConnected, BACKED_OUT),
        Status::TooManyAddresses => (ErrorKind::TooMuch, "no local port is left"),
        Status::InsufficientResources => {
            let why =
                "this machine, or the limit of this process, has no descriptor or memory left";
            return Error::system(asked, why)
                .accepted("the same again when some are free, or a higher `ulimit -n`");
        }
        _ => (ErrorKind::Protocol, "the start-up failed"),
    };
    let error = Error::peer(kind, asked, why);
    error.accepted(match kind {
        ErrorKind::Rejected | ErrorKind::TimedOut => "an address and port where a program listens",
        ErrorKind::Unreachable => "an address that this machine has a route to (`ip route`)",
        ErrorKind::TooMuch => "fewer connections at a time, or the same again in a minute",
        _ => explain::CONNECT_AGAIN,
    })
}

/// A peer that asks to connect. Dropping it rejects.
#[derive(Debug)]
#[must_use = "accept or reject it"]
pub struct Incoming {
    adapter: Adapter,
    connector: Option<raw::Connector>,
    terms: Terms,
}

impl Incoming {
    /// Address of the peer that asks.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        let peer = self.connector.as_ref().and_then(|connector| connector.peer().ok());
        peer.unwrap_or(nobody)
    }

    /// Private data that its program sent along.
    #[must_use]
    pub fn private_data(&self) -> Vec<u8> {
        self.connector.as_ref().and_then(|it| it.private_data().ok()).unwrap_or_default()
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
    ///
    /// # Errors
    /// [`ErrorKind::NotConnected`] if the peer backs out, [`ErrorKind::TimedOut`] if it does not
    /// complete the connection, [`ErrorKind::TooMuch`] for too much private data,
    /// [`ErrorKind::System`], [`ErrorKind::AddressGone`], [`ErrorKind::Forked`].
    pub fn accept(mut self) -> Pending<QueuePair> {
        let (pending, cell) = Pending::new();
        if let Err(error) = self.begin(&cell) {
            cell.put(Err(error));
        }
        pending
    }

    fn begin(&mut self, cell: &Arc<Cell<QueuePair>>) -> Result<()> {
        let asked = format!("accepting {}", self.peer());
        let terms = &self.terms;
        let Some(connector) = self.connector.take() else {
            return Err(Error::caller(ErrorKind::Invalid, asked, "it was answered already")
                .accepted("one call of accept or reject for each peer"));
        };
        let endpoint =
            Endpoint::new(&self.adapter, connector.clone(), terms.receives, terms.receive_size)?;
        let (theirs, peer, sentence) = (cell.clone(), endpoint.clone(), asked.clone());
        let at = self.adapter.address();
        let sink = raw::Sink::call(move |status| {
            theirs.put(if status.is_success() {
                established(peer, &sentence)
            } else {
                Err(not_accepted(&sentence, at, status))
            });
        });
        connector.accept(&endpoint.raw, terms.limits(), &terms.private, sink).map_err(|error| {
            match error.status {
                Status::ConnectionAborted => not_accepted(&asked, at, error.status),
                _ => explain::call(&asked, &error),
            }
        })
    }

    /// Reject; the bytes go to the peer's program.
    ///
    /// # Errors
    /// [`ErrorKind::TooMuch`] if `bytes` are more than the wire carries, [`ErrorKind::Canceled`] if
    /// the peer has gone, [`ErrorKind::AddressGone`], [`ErrorKind::Forked`].
    pub fn reject(mut self, bytes: &[u8]) -> Result<()> {
        match self.connector.take() {
            Some(connector) => {
                connector.reject(bytes).map_err(|error| explain::call("rejecting a peer", &error))
            }
            None => Ok(()),
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(connector) = self.connector.take() {
            // The peer may be gone already, which is as good.
            let _ = connector.reject(&[]);
        }
    }
}
