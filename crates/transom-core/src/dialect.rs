//! How the generations differ: one value each, fixed when an object is made.

use std::time::Duration;

use transom_memory::Purpose;

use crate::tables::{self, ConnectorTable, ListenerTable, PostingTable};
use crate::{Capacity, Status};

/// The fate of the requests of a queue pair whose peer has disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerGone {
    /// Flushed at once (ND2 C19).
    Flush,
    /// Left until the program disconnects (ND1 T28, NDK DC-5).
    Keep,
    /// Left, with everything that was posted, for the connection that follows. What waits for one, or
    /// had begun on the one before, fails after a limit of the queue pair's ([`Limits`](crate::Limits);
    /// Verbs V77, V79).
    Await,
}

/// The fate of the entries of a completion queue that runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overrun {
    /// Nothing more is reported (ND2 C27).
    Clear,
    /// Entries that were queued can be retrieved; later ones are lost (Verbs V54).
    Keep,
}

/// The answer to a request that names a dead window: an Invalidate, or a peer's Send with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadWindow {
    /// The request fails, and with it the connection (ND2 C10).
    Fatal,
    /// The request succeeds (iW 8.4).
    Ignored,
    /// An Invalidate succeeds if it names the latest key of a window that stands, and that its queue pair
    /// had bound. Everything else fails (Verbs V50).
    Standing,
}

/// A generation of the interface.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// For traces and tests.
    pub name: &'static str,
    /// See [`PeerGone`].
    pub peer_gone: PeerGone,
    /// The status of Accept when the active side backs out behind our reply.
    pub backed_out: Status,
    /// The status of a pending NotifyDisconnect when this side disconnects (ND2 C33).
    pub notify_on_disconnect: Status,
    /// Disconnect finishes at once, rather than when the peer has disconnected too (ND2 4.9).
    pub disconnect_at_once: bool,
    /// A request that succeeds in silence takes up its place until a completion behind it is retrieved, as on
    /// adapters in hardware (Verbs V82). Elsewhere the place is free at once (ND1 EP-8, NDK WR-16).
    pub silent_keeps_its_place: bool,
    /// How deep completion queues are.
    pub completion_queues: Capacity,
    /// See [`Overrun`].
    pub overrun: Overrun,
    /// See [`DeadWindow`].
    pub dead_window: DeadWindow,
    /// Requests behind the one that fails are flushed, also those that the peer has acknowledged
    /// (Verbs V67). Elsewhere these have succeeded (ND2 4.9).
    pub flushes_acknowledged: bool,
    /// A message of the peer may bring immediate data; where its programs know no such thing, it is
    /// refused.
    pub immediate: bool,
    /// Which memory may be the sink of a Read.
    pub sink: Purpose,
    /// A receive that comes too late: how long a Send of a plain peer may wait for one here. Between
    /// Transoms the sender holds the Send and has the same limit. `None` = for ever. Shared queues
    /// always wait for ever (ND2 C42).
    pub receive_wait: Option<Duration>,
    /// How long a peer that owes something may say nothing at all before it counts as lost
    /// (ND2 4.5; README).
    pub silence: Duration,
    /// The status of a request whose peer is lost (ND2 4.5).
    pub peer_lost: Status,
    /// The status of a Send that met no receive within [`receive_wait`](Dialect::receive_wait).
    pub no_receive: Status,
    /// Posts that are permitted in each state (ND2 4.1).
    pub posting: &'static PostingTable,
    /// Every connector call in every state (ND2 4.7.3).
    pub connector: &'static ConnectorTable,
    /// Every listener call in every state.
    pub listener: &'static ListenerTable,
}

/// NetworkDirect SPI version 2.
pub const ND2: Dialect = Dialect {
    name: "ND2",
    peer_gone: PeerGone::Flush,
    backed_out: Status::ConnectionRefused,
    notify_on_disconnect: Status::ConnectionDisconnected,
    disconnect_at_once: true,
    silent_keeps_its_place: false,
    completion_queues: Capacity::Elastic,
    overrun: Overrun::Clear,
    dead_window: DeadWindow::Fatal,
    flushes_acknowledged: false,
    immediate: false,
    sink: Purpose::ReadSink,
    receive_wait: Some(Duration::from_secs(1)),
    silence: Duration::from_secs(10),
    peer_lost: Status::IoTimeout,
    no_receive: Status::IoTimeout,
    posting: &tables::POSTING_ND2,
    connector: &tables::CONNECTOR_ND2,
    listener: &tables::LISTENER_ND2,
};

/// NetworkDirect SPI version 1.
pub const ND1: Dialect = Dialect {
    name: "ND1",
    peer_gone: PeerGone::Keep,
    backed_out: Status::ConnectionAborted,
    completion_queues: Capacity::Exact,
    posting: &tables::POSTING_ND1,
    connector: &tables::CONNECTOR_ND1,
    ..ND2
};

/// NDKPI: Disconnect waits for the peer (NDK DC-1).
pub const NDK: Dialect = Dialect {
    name: "NDK",
    peer_gone: PeerGone::Keep,
    backed_out: Status::ConnectionAborted,
    disconnect_at_once: false,
    completion_queues: Capacity::Exact,
    posting: &tables::POSTING_INVALID_AFTER_FLUSH,
    connector: &tables::CONNECTOR_NDK,
    ..ND2
};

/// NDKPI on an adapter whose sinks must be marked (NDK MR-15).
pub const NDK_MARKED_SINKS: Dialect =
    Dialect { name: "NDK, marked sinks", sink: Purpose::MarkedReadSink, ..NDK };

/// Winsock Direct: an accept does not wait for its peer (WSD L-5), receives are waited for without
/// limit (WSD N-2), Disconnect waits for the peer.
pub const WSD: Dialect = Dialect {
    name: "WSD",
    disconnect_at_once: false,
    completion_queues: Capacity::Exact,
    receive_wait: None,
    posting: &tables::POSTING_WSD,
    ..ND2
};

/// Linux verbs. A queue pair outlives its connections: posts wait for one, a peer that leaves flushes
/// nothing (Verbs V79), and the queue pair's own limits say for how long a request may wait (Verbs V77, V94).
/// Its windows stand, and closing one that is closed is no error (Verbs V50).
pub const VERBS: Dialect = Dialect {
    name: "verbs",
    peer_gone: PeerGone::Await,
    completion_queues: Capacity::Exact,
    overrun: Overrun::Keep,
    dead_window: DeadWindow::Standing,
    flushes_acknowledged: true,
    silent_keeps_its_place: true,
    immediate: true,
    receive_wait: None,
    posting: &tables::POSTING_VERBS,
    peer_lost: Status::RetryExceeded,
    no_receive: Status::ReceiverNotReady,
    ..ND2
};

/// Every dialect, for tests that iterate them.
pub const ALL: [&Dialect; 5] = [&ND2, &ND1, &NDK, &WSD, &VERBS];
