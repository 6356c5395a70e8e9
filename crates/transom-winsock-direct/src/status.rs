//! The engine's answers in this front's values: the one table of it.

use transom_engine::{Completion, Status, raw};

use crate::error::{Error, Result};

/// The failure of a call.
impl From<raw::Error> for Error {
    fn from(error: raw::Error) -> Error {
        match error.status {
            Status::LocalAccess => Error::WSAEFAULT,
            Status::ConnectionRefused => Error::WSAECONNREFUSED,
            Status::HostUnreachable | Status::NetworkUnreachable | Status::BadNetworkName => {
                Error::WSAEHOSTUNREACH
            }
            Status::InvalidAddress => Error::WSAEADDRNOTAVAIL,
            Status::SharingViolation => Error::WSAEADDRINUSE,
            Status::IoTimeout => Error::WSAETIMEDOUT,
            Status::ConnectionAborted => Error::WSAECONNABORTED,
            Status::ConnectionInvalid => Error::WSAENOTCONN,
            Status::DeviceRemoved | Status::Forked => Error::WSAENETDOWN,
            Status::NoMoreEntries | Status::InsufficientResources | Status::TooManyAddresses => {
                Error::WSAENOBUFS
            }
            Status::BufferOverflow => Error::WSAEMSGSIZE,
            _ => Error::WSAEINVAL,
        }
    }
}

/// The error of a connect's failure (WSD C-5): a definitive error only with its guarantee.
/// `answered`: the peer's program has said no. A port without a provider's listener may have a TCP
/// server, so that is never definitive.
pub(crate) fn connect_error(status: Status, answered: bool) -> Error {
    match status {
        Status::ConnectionRefused if answered => Error::WSAECONNREFUSED,
        Status::Canceled => Error::WSA_OPERATION_ABORTED,
        Status::HostUnreachable | Status::NetworkUnreachable => Error::WSAEHOSTUNREACH,
        Status::SharingViolation => Error::WSAEADDRINUSE,
        Status::InvalidAddress => Error::WSAEADDRNOTAVAIL,
        _ => Error::WSAETIMEDOUT,
    }
}

/// How a completion failed, and whether this error stays the connection's: `None` is success.
pub(crate) fn completion_error(completion: &Completion) -> Option<(Error, bool)> {
    Some(match completion.status {
        Status::Success => return None,
        Status::Canceled => (Error::WSA_OPERATION_ABORTED, true),
        Status::LocalAccess => (Error::WSAEFAULT, false),
        Status::ReceiveTooSmall => (Error::WSAEMSGSIZE, false),
        _ => (Error::WSAECONNABORTED, true),
    })
}

/// The error of a refusal of the memory table. A registration that died with its connection is not
/// the switch's mistake, though the socket has not learned of it yet (WSD X-10).
pub(crate) fn memory_error(e: raw::Error) -> Error {
    match e.status {
        Status::ConnectionInvalid => Error::WSAECONNRESET,
        Status::DeviceRemoved | Status::Forked => e.into(),
        _ => Error::WSAEFAULT,
    }
}

/// The error of a refused registration.
pub(crate) fn register_error(e: raw::Error) -> Error {
    match e.status {
        Status::InvalidParameter(1) => Error::WSAEFAULT, // the address wraps around
        _ => e.into(),
    }
}

/// The error of a deregistration. A region that died with its connection or its memory counts as
/// deregistered.
pub(crate) fn deregistered(result: raw::Result<()>) -> Result<()> {
    match result {
        Err(e) if e.status == Status::InvalidParameter(0) => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WSD W13, C-5: three errors keep the switch from trying TCP, so each needs its guarantee.
    #[test]
    fn w13_a_definitive_error_has_its_guarantee() {
        let definitive = [Error::WSAECONNRESET, Error::WSAECONNREFUSED, Error::WSAEHOSTUNREACH];
        let judged = |status, answered| {
            let error = connect_error(status, answered);
            definitive.contains(&error).then_some(error)
        };
        for (status, unanswered, answered) in [
            (Status::ConnectionRefused, None, Some(Error::WSAECONNREFUSED)),
            (Status::HostUnreachable, Some(Error::WSAEHOSTUNREACH), Some(Error::WSAEHOSTUNREACH)),
            (
                Status::NetworkUnreachable,
                Some(Error::WSAEHOSTUNREACH),
                Some(Error::WSAEHOSTUNREACH),
            ),
            (Status::ConnectionAborted, None, None),
            (Status::ConnectionInvalid, None, None),
            (Status::IoTimeout, None, None),
            (Status::InvalidAddress, None, None),
            (Status::SharingViolation, None, None),
            (Status::InsufficientResources, None, None),
            (Status::DeviceRemoved, None, None),
            (Status::Canceled, None, None),
        ] {
            assert_eq!((judged(status, false), judged(status, true)), (unanswered, answered));
        }
    }

    /// WSD W17: a registration that finds no place is a lack of resources, and no bad address.
    #[test]
    fn w17_a_registration_without_a_place_is_a_lack_of_resources() {
        let error = |status| {
            let (blame, detail) = (transom_wire::Blame::System, "".into());
            register_error(raw::Error { status, blame, detail })
        };
        assert_eq!(error(Status::InsufficientResources), Error::WSAENOBUFS);
        assert_eq!(error(Status::InvalidParameter(1)), Error::WSAEFAULT);
        assert_eq!(error(Status::InvalidParameter(2)), Error::WSAEINVAL);
    }
}
