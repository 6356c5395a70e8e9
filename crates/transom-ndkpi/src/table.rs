//! The engine's answers in this front's values: the one table of it (NDK 6, 7.3).

use transom_engine::Status as Engine;
use transom_engine::raw::{self, Sink, WindowError};
use transom_memory::BindError;

use crate::Status;

impl From<Engine> for Status {
    fn from(engine: Engine) -> Status {
        match engine {
            Engine::Success => Status::SUCCESS,
            Engine::Canceled => Status::CANCELLED,
            Engine::LocalAccess => Status::ACCESS_VIOLATION,
            Engine::RemoteAccess
            | Engine::RemoteError
            | Engine::PeerReceiveTooSmall
            | Engine::PeerInvalidRequest => Status::REMOTE_RESOURCES,
            Engine::IoTimeout | Engine::ReceiverNotReady | Engine::RetryExceeded => {
                Status::IO_TIMEOUT
            }
            Engine::ReceiveTooSmall => Status::BUFFER_OVERFLOW,
            Engine::InvalidRequest => Status::INVALID_DEVICE_REQUEST,
            Engine::ConnectionInvalid => Status::CONNECTION_INVALID,
            Engine::ConnectionActive => Status::CONNECTION_ACTIVE,
            Engine::ConnectionRefused => Status::CONNECTION_REFUSED,
            Engine::ConnectionAborted => Status::CONNECTION_ABORTED,
            Engine::ConnectionDisconnected => Status::CONNECTION_DISCONNECTED,
            Engine::InvalidState => Status::INVALID_DEVICE_STATE,
            Engine::InvalidBufferSize => Status::INVALID_BUFFER_SIZE,
            Engine::AddressAssociated => Status::ADDRESS_ALREADY_EXISTS,
            Engine::NoMoreEntries => Status::NO_MORE_ENTRIES,
            Engine::DataOverrun => Status::DATA_OVERRUN,
            Engine::BufferOverflow | Engine::QueueOverrun => Status::BUFFER_OVERFLOW,
            Engine::InvalidParameter(_) => Status::INVALID_PARAMETER,
            Engine::NotSupported => Status::NOT_SUPPORTED,
            Engine::DeviceBusy => Status::DEVICE_BUSY,
            Engine::DeviceRemoved | Engine::Forked => Status::DEVICE_REMOVED,
            Engine::InsufficientResources => Status::INSUFFICIENT_RESOURCES,
            Engine::NetworkUnreachable => Status::NETWORK_UNREACHABLE,
            Engine::HostUnreachable | Engine::BadNetworkName => Status::HOST_UNREACHABLE,
            Engine::InvalidAddress | Engine::AddressNotAssociated => Status::INVALID_ADDRESS,
            Engine::SharingViolation => Status::SHARING_VIOLATION,
            Engine::TooManyAddresses => Status::TOO_MANY_ADDRESSES,
            _ => Status::INTERNAL_ERROR,
        }
    }
}

impl From<raw::Error> for Status {
    fn from(error: raw::Error) -> Status {
        error.status.into()
    }
}

/// A refused registration. Pages that are not there, or not writable: pinning them was the
/// consumer's duty (NDK MR-9).
#[allow(clippy::needless_pass_by_value, reason = "used with map_err")]
pub(crate) fn register_error(error: raw::Error) -> Status {
    match error.status {
        Engine::LocalAccess => Status::INVALID_PARAMETER,
        status => status.into(),
    }
}

/// A refused deregistration: windows are `DEVICE_BUSY` (NDK DR-3).
#[allow(clippy::needless_pass_by_value, reason = "used with map_err")]
pub(crate) fn deregister_error(error: raw::Error) -> Status {
    match error.status {
        Engine::InvalidParameter(_) => Status::INVALID_DEVICE_STATE,
        status => status.into(),
    }
}

/// A refused Bind.
#[allow(clippy::needless_pass_by_value, reason = "used with map_err")]
pub(crate) fn bind_error(error: WindowError) -> Status {
    match error {
        WindowError::Unusable(error) => error.into(),
        WindowError::Refused(BindError::Right(_)) => Status::ACCESS_VIOLATION,
        WindowError::Refused(BindError::Exhausted) => Status::INSUFFICIENT_RESOURCES,
        WindowError::Refused(_) => Status::INVALID_PARAMETER,
    }
}

/// A sink that gives the engine's status in this front's values.
pub(crate) fn sink(call: impl FnOnce(Status) + Send + 'static) -> Sink {
    Sink::call(move |status| call(status.into()))
}

/// Whether the end of a NotifyDisconnect means that the peer has gone (NDK DC-3), rather than that
/// this side has (NDK DC-4).
pub(crate) fn is_peers_doing(status: Status) -> bool {
    !matches!(status, Status::CANCELLED | Status::CONNECTION_DISCONNECTED)
}
