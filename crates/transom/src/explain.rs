//! From the engine's words to sentences.

use std::net::IpAddr;

use transom_engine::raw::{self, Silence};
use transom_engine::{Completion, DenialCause, EndReason, Status};
use transom_memory::Denial;
use transom_wire::Blame;

use crate::endpoint::Endpoint;
use crate::{Error, ErrorKind};

/// Why a connection is over.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    kind: ErrorKind,
    blame: Blame,
    why: String,
    denial: Option<Denial>,
    explanation: Option<String>,
    /// The remedy, unless a denial or the peer's explanation says so.
    right: Option<&'static str>,
}

impl Ended {
    /// This end as the reason why something else was not done.
    pub(crate) fn because(&self, asked: impl Into<String>) -> Error {
        let error = Error::new(self.kind, self.blame, asked, self.why.clone())
            .with_denial(self.denial)
            .with_explanation(self.explanation.clone());
        match self.right {
            Some(right) => error.accepted(right),
            None => error,
        }
    }
}

/// The remedy for a connection that has ended.
pub(crate) const CONNECT_AGAIN: &str = "a new connection";

/// A call that failed inline.
pub(crate) fn call(asked: &str, error: &raw::Error) -> Error {
    let kind = match error.status {
        Status::ConnectionInvalid | Status::ConnectionDisconnected | Status::InvalidState => {
            ErrorKind::NotConnected
        }
        Status::Canceled | Status::ConnectionAborted => ErrorKind::Canceled,
        Status::ConnectionRefused => ErrorKind::Rejected,
        Status::IoTimeout => ErrorKind::TimedOut,
        Status::NoMoreEntries
        | Status::DataOverrun
        | Status::BufferOverflow
        | Status::InvalidBufferSize
        | Status::TooManyAddresses => ErrorKind::TooMuch,
        Status::DeviceBusy => ErrorKind::Busy,
        Status::NetworkUnreachable | Status::HostUnreachable | Status::BadNetworkName => {
            ErrorKind::Unreachable
        }
        Status::SharingViolation => ErrorKind::AddressInUse,
        Status::LocalAccess | Status::InvalidParameter(_) | Status::InvalidAddress => {
            ErrorKind::Invalid
        }
        Status::DeviceRemoved => ErrorKind::AddressGone,
        Status::Forked => ErrorKind::Forked,
        _ => ErrorKind::System,
    };
    // The raw layer begins with what it was asked, in its own words.
    let why = error.detail.split_once(": ").map_or(&*error.detail, |(_, why)| why);
    let said = Error::new(kind, error.blame, asked, why);
    match right(error.status) {
        Some(right) if !why.contains("; ") => said.accepted(right),
        _ => said,
    }
}

/// The remedy for a call that failed so, where the engine's words do not name one.
fn right(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::SharingViolation => "another port; 0 is any that is free",
        Status::InvalidAddress => {
            "an address of this machine (`transom adapters`), and a port that this user may have"
        }
        Status::NetworkUnreachable | Status::HostUnreachable => {
            "an address that this machine has a route to (`ip route`)"
        }
        Status::TooManyAddresses => "fewer connections at a time, or the same again in a minute",
        Status::InsufficientResources => {
            "the same again when some is free, or a higher `ulimit -n`"
        }
        Status::Canceled | Status::ConnectionAborted | Status::IoTimeout => CONNECT_AGAIN,
        _ => return None,
    })
}

/// A completion that says that its request has failed.
pub(crate) fn completion(endpoint: &Endpoint, completion: &Completion, asked: &str) -> Error {
    ended(endpoint, completion).because(asked)
}

/// A call that came too late, if there is a reason for that.
pub(crate) fn gone(endpoint: &Endpoint, asked: &str, error: &raw::Error) -> Error {
    match plainly(endpoint) {
        Some((blame, why)) => {
            Error::new(ErrorKind::NotConnected, blame, asked, why).accepted(CONNECT_AGAIN)
        }
        None => call(asked, error),
    }
}

/// The sentence about an end without any refusal.
fn plainly(endpoint: &Endpoint) -> Option<(Blame, String)> {
    let silence = || endpoint.adapter.silence().as_secs();
    Some(match endpoint.connector.ended()? {
        EndReason::PeerDisconnected => {
            (Blame::Peer, "the peer has disconnected, or its process has ended".to_owned())
        }
        EndReason::TimedOut => {
            let (blame, more) = whose(endpoint.connector.silence());
            (blame, format!("no answer from the peer or its host for {} s{more}", silence()))
        }
        EndReason::Disconnected | EndReason::Flushed => {
            (Blame::Caller, "this side has disconnected".to_owned())
        }
        EndReason::Link(Status::DeviceRemoved) => {
            (Blame::System, gone_address(endpoint.adapter.address()))
        }
        _ => return None,
    })
}

fn gone_address(address: IpAddr) -> String {
    format!("{address} is no longer an address of this machine")
}

/// A connection or listener has ended because its address is no longer there.
pub(crate) fn address_gone(asked: impl Into<String>, address: IpAddr) -> Error {
    Error::new(ErrorKind::AddressGone, Blame::System, asked, gone_address(address))
        .accepted("an adapter at an address that this machine has")
}

/// The cause of a silence, as the end of a sentence about it.
fn whose(silence: Option<Silence>) -> (Blame, String) {
    match silence {
        Some(Silence::Unanswered) => {
            (Blame::Peer, ": its host has received everything, its program does not answer".into())
        }
        Some(Silence::Undecided(time)) => (
            Blame::Peer,
            format!(
                ": its host had received everything {:.1} s ago; its program does not answer, or the \
                 network has failed since",
                time.as_secs_f64()
            ),
        ),
        Some(Silence::Untaken) => {
            (Blame::Peer, ": its host answers, but its program reads nothing".into())
        }
        Some(Silence::Unheard(time)) => (
            Blame::Wire,
            format!(": its host has acknowledged nothing for {:.1} s", time.as_secs_f64()),
        ),
        None => (Blame::Wire, String::new()),
    }
}

/// Memory as it has to be while it is registered.
pub(crate) const LASTING_MEMORY: &str =
    "memory that stays mapped, and files that keep their length, while they are registered";

/// The remedy for a request that completed so.
fn right_request(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::RemoteAccess => {
            "bytes of a grant that is open, for what it grants; the owner has the record \
             (`transom show`)"
        }
        Status::Canceled | Status::IoTimeout | Status::RemoteError => CONNECT_AGAIN,
        Status::PeerReceiveTooSmall => {
            "a message that fits the peer's receives: `receives(count, size)` on its side"
        }
        Status::ReceiveTooSmall => {
            "receives for the peer's longest message: `receives(count, size)` on this side"
        }
        Status::PeerInvalidRequest | Status::NotSupported => {
            "an operation that the peer's interface has"
        }
        _ => return None,
    })
}

/// The words of a failed completion about its connection.
pub(crate) fn ended(endpoint: &Endpoint, completion: &Completion) -> Ended {
    let cause = endpoint.adapter.cause(completion);
    let (kind, blame, why) = match completion.status {
        Status::RemoteAccess => {
            (ErrorKind::Refused, Blame::Peer, "refused by the owner of the memory")
        }
        Status::LocalAccess => (
            ErrorKind::Invalid,
            Blame::Caller,
            "its own data is in memory that is not registered for this use",
        ),
        Status::Canceled => (ErrorKind::Canceled, Blame::Peer, "the connection has ended"),
        Status::IoTimeout => (ErrorKind::TimedOut, Blame::Peer, "the peer did not answer in time"),
        Status::PeerReceiveTooSmall => {
            (ErrorKind::TooMuch, Blame::Caller, "it is longer than the peer's receives")
        }
        Status::ReceiveTooSmall => {
            (ErrorKind::TooMuch, Blame::Peer, "the peer's message is longer than our receives")
        }
        Status::RemoteError => (ErrorKind::Protocol, Blame::Peer, "the peer ended the connection"),
        Status::InvalidRequest => {
            (ErrorKind::Invalid, Blame::Caller, "its operation and its data do not fit each other")
        }
        Status::PeerInvalidRequest => {
            (ErrorKind::Invalid, Blame::Caller, "the peer takes no such request")
        }
        Status::NotSupported => {
            (ErrorKind::Invalid, Blame::Caller, "the peer has no such operation")
        }
        _ => (ErrorKind::System, Blame::System, "this side failed"),
    };
    let right = right_request(completion.status);
    let why = why.to_owned();
    let mut ended = Ended { kind, blame, why, denial: None, explanation: None, right };
    match cause {
        Some(DenialCause::Own(denial)) => {
            ended.why = denial.to_string();
            ended.denial = Some(*denial);
            ended.right = None;
        }
        Some(DenialCause::Peer(denial)) => {
            ended.kind = ErrorKind::Refused;
            ended.blame = Blame::Peer;
            ended.why = format!("the connection ended when the peer was refused: {denial}");
            ended.denial = Some(*denial);
            ended.right = None;
        }
        Some(DenialCause::ByPeer(error)) => {
            if completion.status == Status::Canceled {
                ended.why = format!("the connection has ended: {}", error.code);
            } else if error.explanation.is_none() {
                ended.why = format!("{} ({})", ended.why, error.code);
            } else {
                ended.right = None;
            }
            ended.explanation = error.explanation;
        }
        Some(DenialCause::Violation(violation)) => {
            ended.kind = ErrorKind::Protocol;
            ended.blame = violation.blame;
            ended.why = format!("the connection has ended: {violation}");
        }
        Some(ref cause @ DenialCause::Vanished { address, length, .. }) => {
            ended.kind = ErrorKind::MemoryGone;
            ended.blame = Blame::System;
            ended.why = match endpoint.adapter.shared.names.describe(address, length) {
                Some(bytes) => format!("{bytes} are gone: the file was cut short"),
                None => cause.to_string(),
            };
            ended.right = Some(LASTING_MEMORY);
        }
        Some(
            cause @ (DenialCause::QueuePair(_)
            | DenialCause::Register(_)
            | DenialCause::Bind(_)
            | DenialCause::Call(_)
            | DenialCause::Other(_)),
        ) => ended.why = cause.to_string(),
        None if matches!(completion.status, Status::Canceled | Status::IoTimeout) => {
            if let Some((blame, why)) = plainly(endpoint) {
                ended.blame = blame;
                ended.why = match completion.status {
                    Status::Canceled => format!("{}: {why}", ended.why),
                    _ => why,
                };
            }
        }
        None => {}
    }
    ended
}
