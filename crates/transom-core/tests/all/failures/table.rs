//! The table of ND2 4.5: what each side sees when something goes wrong. The state machines do not read
//! it; `outcomes` brings every row about and compares.

use transom_core::Status::{self, *};
use transom_core::dialect::Dialect;

/// A situation of ND2 4.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Situation {
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
pub(super) struct Outcome {
    /// The situation.
    pub(super) situation: Situation,
    /// Completion of the request concerned at its initiator; `None` = it makes none (yet).
    pub(super) initiator: Option<Status>,
    /// The status towards a peer without the extension, where a Send completes when it is sent.
    pub(super) plain: Option<Status>,
    /// Completion of a receive that is posted at the peer; `None` = it stays posted.
    pub(super) receive: Option<Status>,
    /// Both queue pairs end, and NotifyDisconnect fires at the peer.
    pub(super) fatal: bool,
}

/// Every situation, in the order of the enumeration.
type OutcomeTable = [Outcome; 11];

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
static OUTCOMES_ND2: OutcomeTable = [
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
static OUTCOMES_KEPT: OutcomeTable = with(&OUTCOMES_ND2, &[
    row(Situation::LocalList,          Some(LocalAccess),         Some(LocalAccess),    None,                  true),
    row(Situation::PeerDisconnects,    None,                      None,                 CAN,                   true),
    row(Situation::MalformedRequest,   Some(InvalidRequest),      Some(InvalidRequest), None,                  true),
]);

/// Verbs V92. A failure that is this side's own costs its peer the connection and no more (Verbs V79).
#[rustfmt::skip]
static OUTCOMES_VERBS: OutcomeTable = with(&OUTCOMES_ND2, &[
    row(Situation::LocalList,          Some(LocalAccess),         Some(LocalAccess),    None,                  true),
    row(Situation::NoReceive,          Some(ReceiverNotReady),    SENT,                 None,                  true),
    row(Situation::PeerLost,           Some(RetryExceeded),       Some(RetryExceeded),  None,                  true),
    row(Situation::PeerDisconnects,    None,                      None,                 CAN,                   true),
    row(Situation::MalformedRequest,   Some(InvalidRequest),      Some(InvalidRequest), None,                  true),
    row(Situation::OwnOverrun,         None,                      None,                 None,                  true),
]);

/// The rows of a dialect, in the order of [`Situation`].
pub(super) fn rows(dialect: &Dialect) -> &'static OutcomeTable {
    match dialect.name {
        "ND1" | "NDK" => &OUTCOMES_KEPT,
        "verbs" => &OUTCOMES_VERBS,
        _ => &OUTCOMES_ND2,
    }
}

/// The status of a request whose peer is lost.
pub(super) fn peer_lost(dialect: &Dialect) -> Status {
    let row = rows(dialect)[Situation::PeerLost as usize];
    row.initiator.expect("a request that is owed an answer completes")
}
