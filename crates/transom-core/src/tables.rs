//! The tables of ND2 4.1, 4.5, 4.7.3 and 4.8 as data. The state machines look their answers up here;
//! the tests drive every cell over a `transom_testing::Pair` and compare what happens.

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

// ---- 4.5: what goes wrong, and what each side sees --------------------------------------------

/// A situation of ND2 4.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Situation {
    /// A list names memory outside its region, a dead or unknown token, or a sink without the right.
    LocalList,
    /// The peer's token is unknown, dead, another's, lacks the right, or the range is outside.
    RemoteGrant,
    /// A Send is longer than the peer's receive.
    ReceiveTooSmall,
    /// A Send meets no receive of a plain queue.
    NoReceive,
    /// A Send meets an empty shared queue.
    EmptySharedQueue,
    /// The peer's host is lost.
    PeerLost,
    /// The peer disconnects, or releases what it connected with.
    PeerDisconnects,
    /// The peer's completion queue runs over, or it fails otherwise.
    PeerFails,
    /// Invalidate of a window that is not bound.
    MalformedRequest,
    /// The receive's own memory is bad when a message arrives.
    BadReceive,
    /// A completion queue of this side runs over.
    OwnOverrun,
}

/// The view of both sides on a situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The situation.
    pub situation: Situation,
    /// Completion of the request concerned at its initiator; `None` = it makes none (yet).
    pub initiator: Option<Status>,
    /// The same towards a peer without the extension, where a Send completes when it is sent.
    pub plain: Option<Status>,
    /// Completion of a receive that is posted at the peer; `None` = it stays posted.
    pub receive: Option<Status>,
    /// Both queue pairs end, and NotifyDisconnect fires at the peer.
    pub fatal: bool,
}

/// Every situation, in the order of the enumeration.
pub type OutcomeTable = [Outcome; 11];

const fn row(
    situation: Situation,
    initiator: Option<Status>,
    plain: Option<Status>,
    receive: Option<Status>,
    fatal: bool,
) -> Outcome {
    Outcome { situation, initiator, plain, receive, fatal }
}

const CAN: Option<Status> = Some(Canceled);
const SENT: Option<Status> = Some(Success);

/// ND2 4.5, in the engine's words: fronts map `LocalAccess` and `RemoteAccess` to their codes.
#[rustfmt::skip]
pub static OUTCOMES_ND2: OutcomeTable = [
    //                                 initiator                  towards a plain peer  receive                fatal
    row(Situation::LocalList,          Some(LocalAccess),         Some(LocalAccess),    CAN,                   true),
    row(Situation::RemoteGrant,        Some(RemoteAccess),        Some(RemoteAccess),   CAN,                   true),
    row(Situation::ReceiveTooSmall,    Some(PeerReceiveTooSmall), SENT,                 Some(ReceiveTooSmall), true),
    row(Situation::NoReceive,          Some(IoTimeout),           SENT,                 None,                  true),
    row(Situation::EmptySharedQueue,   None,                      SENT,                 None,                  false),
    row(Situation::PeerLost,           Some(IoTimeout),           Some(IoTimeout),      None,                  true),
    row(Situation::PeerDisconnects,    CAN,                       CAN,                  CAN,                   true),
    row(Situation::PeerFails,          Some(RemoteError),         Some(RemoteError),    CAN,                   true),
    row(Situation::MalformedRequest,   Some(InvalidRequest),      Some(InvalidRequest), CAN,                   true),
    row(Situation::BadReceive,         Some(RemoteError),         SENT,                 Some(LocalAccess),     true),
    row(Situation::OwnOverrun,         None,                      None,                 CAN,                   true),
];

const fn with(table: &OutcomeTable, changes: &[Outcome]) -> OutcomeTable {
    let mut table = *table;
    let mut at = 0;
    while at < changes.len() {
        table[changes[at].situation as usize] = changes[at];
        at += 1;
    }
    table
}

/// As [`OUTCOMES_ND2`], but what is posted stays posted when the peer ends the connection in order,
/// until the program disconnects (ND1 T28, NDK DC-5).
#[rustfmt::skip]
pub static OUTCOMES_KEPT: OutcomeTable = with(&OUTCOMES_ND2, &[
    row(Situation::LocalList,          Some(LocalAccess),         Some(LocalAccess),    None,                  true),
    row(Situation::PeerDisconnects,    None,                      None,                 CAN,                   true),
    row(Situation::MalformedRequest,   Some(InvalidRequest),      Some(InvalidRequest), None,                  true),
]);

/// Verbs V92. A failure that is this side's own costs its peer the connection and no more (Verbs V79).
#[rustfmt::skip]
pub static OUTCOMES_VERBS: OutcomeTable = with(&OUTCOMES_ND2, &[
    row(Situation::LocalList,          Some(LocalAccess),         Some(LocalAccess),    None,                  true),
    row(Situation::NoReceive,          Some(ReceiverNotReady),    SENT,                 None,                  true),
    row(Situation::PeerLost,           Some(RetryExceeded),       Some(RetryExceeded),  None,                  true),
    row(Situation::PeerDisconnects,    None,                      None,                 CAN,                   true),
    row(Situation::MalformedRequest,   SENT,                      SENT,                 None,                  false),
    row(Situation::OwnOverrun,         None,                      None,                 None,                  true),
]);

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

// ---- 4.8: read limits -------------------------------------------------------------------------

/// A row of ND2 4.8: the limits that both sides ask for, those of their adapters, and the
/// agreement.
#[derive(Clone, Copy, Debug)]
pub struct LimitsRow {
    /// (inbound, outbound) asked for on Connect, and the active adapter's limits.
    pub connect: ((u32, u32), (u32, u32)),
    /// (inbound, outbound) asked for on Accept, and the passive adapter's limits.
    pub accept: ((u32, u32), (u32, u32)),
    /// The answer of the passive side's GetReadLimits before Accept.
    pub offered: (u32, u32),
    /// The limits of the active side.
    pub active: (u32, u32),
    /// The limits of the passive side.
    pub passive: (u32, u32),
}

/// Rows that cover each sentence of ND2 4.8.
#[rustfmt::skip]
pub static LIMITS: [LimitsRow; 6] = [
    // All is granted.
    LimitsRow { connect: ((4, 2), (16, 16)), accept: ((2, 4), (16, 16)), offered: (2, 4), active: (4, 2), passive: (2, 4) },
    // Above the active adapter: clamped silently.
    LimitsRow { connect: ((99, 99), (8, 6)), accept: ((99, 99), (32, 32)), offered: (6, 8), active: (8, 6), passive: (6, 8) },
    // Above the passive adapter: clamped silently.
    LimitsRow { connect: ((16, 16), (16, 16)), accept: ((16, 16), (3, 5)), offered: (3, 5), active: (5, 3), passive: (3, 5) },
    // The accepting side asks for less: the active side sees it mirrored.
    LimitsRow { connect: ((16, 16), (16, 16)), accept: ((1, 2), (16, 16)), offered: (16, 16), active: (2, 1), passive: (1, 2) },
    // The peer offered 0: outbound is clamped to 0 (ND2 C35).
    LimitsRow { connect: ((0, 4), (16, 16)), accept: ((4, 4), (16, 16)), offered: (4, 0), active: (0, 4), passive: (4, 0) },
    // 0 on both sides is legal.
    LimitsRow { connect: ((0, 0), (16, 16)), accept: ((0, 0), (16, 16)), offered: (0, 0), active: (0, 0), passive: (0, 0) },
];
