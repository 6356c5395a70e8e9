//! Why a call failed.

use std::borrow::Cow;

use transom_wire::Blame;

use crate::Status;
use crate::driver::status_of;
use crate::sys::IoError;

/// A call that failed: a status that a front maps to its own code, whose fault it was, and a
/// sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// For fronts.
    pub status: Status,
    /// The party at fault.
    pub blame: Blame,
    /// The request, and what would have been accepted.
    pub detail: Cow<'static, str>,
}

/// The result of a `raw` call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn caller(status: Status, detail: impl Into<Cow<'static, str>>) -> Error {
        Error { status, blame: Blame::Caller, detail: detail.into() }
    }

    pub(crate) fn system(status: Status, detail: impl Into<Cow<'static, str>>) -> Error {
        Error { status, blame: Blame::System, detail: detail.into() }
    }

    /// A call that needs another state; the table's answer.
    pub(crate) fn state(status: Status, call: &'static str) -> Error {
        let why = match status {
            Status::ConnectionInvalid => {
                "its connection is not up yet, or has ended; `transom show` prints the state"
            }
            Status::ConnectionActive => {
                "it is connecting or connected already; disconnect it first, or take another"
            }
            Status::ConnectionAborted => "the peer was gone already",
            Status::ConnectionDisconnected => {
                "this side has disconnected; take another connector for another connection"
            }
            Status::AddressAssociated => {
                "it has an address already, and keeps it; take another one"
            }
            Status::AddressNotAssociated => "it has no address yet; bind it first",
            Status::InvalidBufferSize => {
                "the private data is longer than the wire carries; the adapter's limits say how long it may be"
            }
            _ => "the object is in another state",
        };
        let blame = if status == Status::ConnectionAborted { Blame::Peer } else { Blame::Caller };
        Error { status, blame, detail: format!("{call}: {why}").into() }
    }

    /// A post that was refused inline.
    pub(crate) fn post(status: Status, what: &'static str) -> Error {
        let why = match status {
            Status::ConnectionInvalid => {
                "the queue pair is not connected (`transom explain connected_queue_pair`)"
            }
            Status::NoMoreEntries => {
                "as many as the queue holds are outstanding; retrieve completions first, or make \
                 it deeper (`transom explain queue_room`)"
            }
            Status::DataOverrun => {
                "its list has more entries than the queue pair was made for (`transom explain list_length`)"
            }
            Status::BufferOverflow => {
                "it has more bytes than a transfer, or an inline one, may have (`transom explain transfer_size`)"
            }
            Status::NotSupported => {
                "this side does not carry the operation out, or the peer's version does not take it"
            }
            _ => "the operation and its data do not fit each other",
        };
        Error::caller(status, format!("{what}: {why}"))
    }

    /// A failure of the link.
    pub(crate) fn link(e: IoError, what: &str) -> Error {
        let blame = match e {
            IoError::Refused | IoError::Reset => Blame::Peer,
            IoError::TimedOut | IoError::Unreachable | IoError::NoRoute => Blame::Wire,
            IoError::InUse | IoError::NotLocal => Blame::Caller,
            _ => Blame::System,
        };
        Error { status: status_of(e), blame, detail: format!("{what}: {e}").into() }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Error {}
