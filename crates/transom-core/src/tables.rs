//! The tables of ND2 4.1 and 4.7.3 as data. The state machines look their answers up here; the tests
//! drive every cell over a `transom_testing::Pair` and compare what happens.

use crate::Status::{self, *};

// ---- 4.1: what may be posted ------------------------------------------------------------------

/// State of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QueuePairState {
    /// Never connected, or a Connect has failed; where a queue pair outlives its connections, between
    /// two of them ([`PeerGone::Await`](crate::dialect::PeerGone)).
    #[default]
    Idle,
    /// Active side, until CompleteConnect has succeeded.
    Connecting,
    /// Passive side, until the connection is established or the first message was delivered.
    Accepting,
    /// Usable.
    Connected,
    /// A request failed, the peer disconnected or failed, or the program flushed.
    Error,
    /// This side has disconnected.
    Disconnected,
}

impl QueuePairState {
    /// All of them, in the order of the table's columns.
    pub const ALL: [QueuePairState; 6] = [
        QueuePairState::Idle,
        QueuePairState::Connecting,
        QueuePairState::Accepting,
        QueuePairState::Connected,
        QueuePairState::Error,
        QueuePairState::Disconnected,
    ];
}

/// The fate of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posting {
    /// Queued.
    Accept,
    /// Refused inline.
    Refuse(Status),
    /// Accepted; completes canceled at once (ND2 C44).
    Cancel,
}

/// Posts that are permitted in each state, in the order of [`QueuePairState::ALL`].
#[derive(Debug)]
pub struct PostingTable {
    /// Receives.
    pub receive: [Posting; 6],
    /// Send, Read, Write, Bind, Invalidate.
    pub initiator: [Posting; 6],
}

const INVALID: Posting = Posting::Refuse(ConnectionInvalid);

/// ND2 4.1.
pub static POSTING_ND2: PostingTable = PostingTable {
    //          Idle             Connecting       Accepting        Connected        Error            Disconnected
    receive: [
        Posting::Accept,
        Posting::Accept,
        Posting::Accept,
        Posting::Accept,
        Posting::Cancel,
        Posting::Cancel,
    ],
    initiator: [INVALID, INVALID, INVALID, Posting::Accept, Posting::Cancel, Posting::Cancel],
};

/// ND1 11.3: as [`POSTING_ND2`], but nothing may be posted once this side has disconnected.
pub static POSTING_ND1: PostingTable = PostingTable {
    receive: [
        Posting::Accept,
        Posting::Accept,
        Posting::Accept,
        Posting::Accept,
        Posting::Cancel,
        INVALID,
    ],
    initiator: [INVALID, INVALID, INVALID, Posting::Accept, Posting::Cancel, INVALID],
};

/// As [`POSTING_ND2`], but only receives may be posted behind a flush (NDK 7.4).
pub static POSTING_INVALID_AFTER_FLUSH: PostingTable = PostingTable {
    receive: POSTING_ND2.receive,
    initiator: [INVALID, INVALID, INVALID, Posting::Accept, INVALID, INVALID],
};

/// Verbs: a queue pair outlives its connections, so what is posted without one waits for it (Verbs V77).
/// Which of its own states permits which post is the front's to know.
pub static POSTING_VERBS: PostingTable =
    PostingTable { receive: POSTING_ND2.receive, initiator: POSTING_ND2.receive };

/// Winsock Direct: an accepted socket is usable before its peer has taken the last step, so that no
/// peer holds up an accept (WSD L-5). What is sent meanwhile waits.
pub static POSTING_WSD: PostingTable = PostingTable {
    receive: POSTING_ND2.receive,
    initiator: [
        INVALID,
        INVALID,
        Posting::Accept,
        Posting::Accept,
        Posting::Cancel,
        Posting::Cancel,
    ],
};

// ---- 4.7.3: every call in every state ---------------------------------------------------------

/// State of a connector (ND2 4.7.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConnectorState {
    /// Created.
    #[default]
    Idle,
    /// Has an address; also after a Connect that failed.
    Bound,
    /// Handed to a listener, no request yet.
    Queued,
    /// Has a request of a peer.
    Requested,
    /// Accept waits for the active side.
    Accepting,
    /// Connect waits for the passive side.
    Connecting,
    /// Connect has succeeded.
    Replied,
    /// Established.
    Connected,
    /// Disconnect waits for the peer.
    Disconnecting,
    /// The peer has disconnected, or the connection is lost.
    PeerGone,
    /// Terminal.
    Disconnected,
}

impl ConnectorState {
    /// All of them, in the order of the table's columns.
    pub const ALL: [ConnectorState; 11] = [
        ConnectorState::Idle,
        ConnectorState::Bound,
        ConnectorState::Queued,
        ConnectorState::Requested,
        ConnectorState::Accepting,
        ConnectorState::Connecting,
        ConnectorState::Replied,
        ConnectorState::Connected,
        ConnectorState::Disconnecting,
        ConnectorState::PeerGone,
        ConnectorState::Disconnected,
    ];
}

/// A call on a connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ConnectorCall {
    Bind,
    Connect,
    CompleteConnect,
    Accept,
    Reject,
    GetReadLimits,
    GetPrivateData,
    GetLocalAddress,
    GetPeerAddress,
    NotifyDisconnect,
    Disconnect,
    /// As the argument of a listener's GetConnectionRequest.
    TakeRequest,
    /// A queue pair takes over a connection that was made without one.
    Join,
}

impl ConnectorCall {
    /// All of them, in the order of the table's rows.
    pub const ALL: [ConnectorCall; 13] = [
        ConnectorCall::Bind,
        ConnectorCall::Connect,
        ConnectorCall::CompleteConnect,
        ConnectorCall::Accept,
        ConnectorCall::Reject,
        ConnectorCall::GetReadLimits,
        ConnectorCall::GetPrivateData,
        ConnectorCall::GetLocalAddress,
        ConnectorCall::GetPeerAddress,
        ConnectorCall::NotifyDisconnect,
        ConnectorCall::Disconnect,
        ConnectorCall::TakeRequest,
        ConnectorCall::Join,
    ];
}

/// The answer to a call in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Proceeds.
    Ok,
    /// Fails and changes nothing.
    Fail(Status),
    /// Proceeds if a Reject carried data; else fails.
    IfRejected(Status),
    /// Proceeds if a Reject came, with data or without; else fails.
    IfRefused(Status),
    /// Proceeds if the connection was made without a queue pair, and none has joined it; else fails.
    IfAlone(Status),
    /// Fails with the first if the connector has ever tried to connect, with the second otherwise.
    IfTried(Status, Status),
    /// Fails with the first if the peer left first, with the second otherwise.
    IfPeerLeft(Status, Status),
}

/// Every call in every state: `[call][state]`.
pub type ConnectorTable = [[Cell; 11]; 13];

const OK: Cell = Cell::Ok;
const INV: Cell = Cell::Fail(ConnectionInvalid);
const ACT: Cell = Cell::Fail(ConnectionActive);
const ABT: Cell = Cell::Fail(ConnectionAborted);
const STA: Cell = Cell::Fail(InvalidState);
const AAS: Cell = Cell::Fail(AddressAssociated);
const NAS: Cell = Cell::Fail(AddressNotAssociated);
const DIS: Cell = Cell::Fail(ConnectionDisconnected);
/// "INV, ok if a Reject carried data".
const REJ: Cell = Cell::IfRejected(ConnectionInvalid);
/// "ok after a Reject, else INV" (ND1 10).
const REF: Cell = Cell::IfRefused(ConnectionInvalid);
/// "ABT (INV if never connecting)".
const NEV: Cell = Cell::IfTried(ConnectionAborted, ConnectionInvalid);
/// "ok without a queue pair, else ACT" (Verbs V129).
const ALO: Cell = Cell::IfAlone(ConnectionActive);
/// "INV; ABT if the peer left first".
const PLF: Cell = Cell::IfPeerLeft(ConnectionAborted, ConnectionInvalid);

/// ND2 4.7.3.
#[rustfmt::skip]
pub static CONNECTOR_ND2: ConnectorTable = [
    //                Idle Bound Queued Reqd Accng Conng Repld Cond Discg PGone Disc
    /* Bind */       [OK,  AAS,  AAS,  AAS,  AAS,  AAS,  AAS,  AAS,  AAS,  AAS,  AAS],
    /* Connect */    [NAS, OK,   STA,  ACT,  ACT,  ACT,  ACT,  ACT,  ACT,  ACT,  STA],
    /* Complete */   [INV, INV,  INV,  INV,  INV,  INV,  OK,   INV,  INV,  INV,  NEV],
    /* Accept */     [INV, INV,  INV,  OK,   ACT,  ACT,  ACT,  ACT,  ACT,  ACT,  ABT],
    /* Reject */     [STA, STA,  STA,  OK,   STA,  STA,  OK,   STA,  STA,  STA,  PLF],
    /* ReadLimits */ [INV, INV,  INV,  OK,   OK,   INV,  OK,   OK,   INV,  INV,  INV],
    /* Private */    [INV, REJ,  INV,  OK,   OK,   INV,  OK,   OK,   INV,  INV,  REJ],
    /* Local */      [INV, OK,   INV,  OK,   OK,   OK,   OK,   OK,   OK,   OK,   OK ],
    /* Peer */       [INV, INV,  INV,  OK,   OK,   OK,   OK,   OK,   OK,   OK,   OK ],
    /* Notify */     [INV, INV,  INV,  INV,  INV,  INV,  INV,  OK,   DIS,  OK,   DIS],
    /* Disconnect */ [INV, INV,  INV,  INV,  INV,  INV,  INV,  OK,   STA,  OK,   INV],
    /* Take */       [OK,  ACT,  ACT,  ACT,  ACT,  ACT,  ACT,  ACT,  ACT,  ACT,  ACT],
    /* Join */       [INV, INV,  INV,  INV,  ALO,  INV,  ALO,  ALO,  INV,  INV,  INV],
];

/// ND1 11.3. Its dashes are "another state"; `Queued` is not among its columns, and `Bound` is its
/// "refused": a front calls Bind for its program, as part of Connect. A local Disconnect counts as one
/// that was indicated.
#[rustfmt::skip]
pub static CONNECTOR_ND1: ConnectorTable = [
    //                Idle Bound Queued Reqd Accng Conng Repld Cond Discg PGone Disc
    /* Bind */       [OK,  OK,   AAS,  AAS,  AAS,  AAS,  AAS,  AAS,  AAS,  AAS,  AAS],
    /* Connect */    [NAS, OK,   STA,  STA,  STA,  ACT,  STA,  ACT,  STA,  ACT,  STA],
    /* Complete */   [INV, INV,  INV,  INV,  INV,  INV,  OK,   INV,  INV,  INV,  NEV],
    /* Accept */     [INV, STA,  STA,  OK,   STA,  STA,  STA,  ACT,  STA,  STA,  ABT],
    /* Reject */     [INV, STA,  STA,  OK,   STA,  INV,  OK,   INV,  STA,  STA,  PLF],
    /* ReadLimits */ [INV, INV,  INV,  OK,   OK,   INV,  OK,   OK,   STA,  OK,   OK ],
    /* Private */    [INV, REF,  INV,  OK,   OK,   INV,  OK,   OK,   STA,  OK,   OK ],
    /* Local */      [INV, OK,   INV,  OK,   OK,   OK,   OK,   OK,   OK,   OK,   OK ],
    /* Peer */       [INV, INV,  INV,  OK,   OK,   OK,   OK,   OK,   OK,   OK,   OK ],
    /* Notify */     [INV, INV,  INV,  INV,  INV,  INV,  INV,  OK,   OK,   OK,   OK ],
    /* Disconnect */ [INV, INV,  INV,  INV,  INV,  INV,  INV,  OK,   INV,  OK,   INV],
    /* Take */       [OK,  ACT,  ACT,  ACT,  ACT,  ACT,  ACT,  ACT,  ACT,  ACT,  ACT],
    /* Join */       [INV, INV,  INV,  INV,  ALO,  INV,  ALO,  ALO,  INV,  INV,  INV],
];

/// NDKPI has no Bind: an address comes with each Connect, also with one that follows a Connect that
/// failed, and is asked for once there is a connection (NDK 6.7, CN-11).
pub static CONNECTOR_NDK: ConnectorTable = {
    let mut table = CONNECTOR_ND2;
    table[ConnectorCall::Bind as usize][ConnectorState::Bound as usize] = OK;
    table[ConnectorCall::GetLocalAddress as usize][ConnectorState::Bound as usize] = INV;
    table
};

/// State of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ListenerState {
    /// Created.
    #[default]
    Idle,
    /// Has an address.
    Bound,
    /// Takes requests.
    Listening,
}

impl ListenerState {
    /// All of them, in the order of the table's columns.
    pub const ALL: [ListenerState; 3] =
        [ListenerState::Idle, ListenerState::Bound, ListenerState::Listening];
}

/// A call on a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ListenerCall {
    Bind,
    Listen,
    GetLocalAddress,
    GetConnectionRequest,
}

impl ListenerCall {
    /// All of them, in the order of the table's rows.
    pub const ALL: [ListenerCall; 4] = [
        ListenerCall::Bind,
        ListenerCall::Listen,
        ListenerCall::GetLocalAddress,
        ListenerCall::GetConnectionRequest,
    ];
}

/// Every call in every state: `[call][state]`.
pub type ListenerTable = [[Cell; 3]; 4];

/// ND2 4.7.3, second table.
#[rustfmt::skip]
pub static LISTENER_ND2: ListenerTable = [
    //                Idle Bound Listening
    /* Bind */       [OK,  AAS,  AAS],
    /* Listen */     [STA, OK,   STA],
    /* Local */      [STA, OK,   OK ],
    /* Request */    [STA, STA,  OK ],
];
