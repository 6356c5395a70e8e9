//! The engine's statuses as each front's values: one table per front (ND2 3.5, 3.6; ND1 4).

use transom_engine::Status;

use crate::status::*;

/// Version 2.
pub(crate) fn nd2(status: Status) -> i32 {
    match status {
        Status::Success => ND_SUCCESS,
        Status::Canceled => ND_CANCELED,
        Status::LocalAccess | Status::RemoteAccess => ND_ACCESS_VIOLATION, // ND2 C12
        Status::RemoteError | Status::PeerInvalidRequest => ND_REMOTE_ERROR,
        Status::IoTimeout | Status::ReceiverNotReady | Status::RetryExceeded => ND_IO_TIMEOUT,
        Status::ReceiveTooSmall | Status::BufferOverflow | Status::QueueOverrun => {
            ND_BUFFER_OVERFLOW // ND2 C22, C27
        }
        Status::PeerReceiveTooSmall => STATUS_DATA_ERROR, // ND2 C22
        Status::InvalidRequest => ND_INVALID_DEVICE_REQUEST, // C10
        Status::InternalError => ND_INTERNAL_ERROR,
        Status::ConnectionInvalid => ND_CONNECTION_INVALID,
        Status::ConnectionActive => ND_CONNECTION_ACTIVE,
        Status::ConnectionRefused => ND_CONNECTION_REFUSED,
        Status::ConnectionAborted => ND_CONNECTION_ABORTED,
        Status::ConnectionDisconnected => STATUS_CONNECTION_DISCONNECTED, // ND2 C33
        Status::InvalidState => ND_INVALID_DEVICE_STATE,
        Status::InvalidBufferSize => ND_INVALID_BUFFER_SIZE,
        Status::AddressAssociated => STATUS_ADDRESS_ALREADY_ASSOCIATED, // ND2 C30
        Status::AddressNotAssociated => STATUS_ADDRESS_NOT_ASSOCIATED,
        Status::NoMoreEntries => ND_NO_MORE_ENTRIES,
        Status::DataOverrun => ND_DATA_OVERRUN,
        Status::InvalidParameter(0) => ND_INVALID_PARAMETER,
        Status::InvalidParameter(n) => ND_INVALID_PARAMETER_1 + i32::from(n.min(10)) - 1,
        Status::NotSupported => ND_NOT_SUPPORTED,
        Status::DeviceBusy => ND_DEVICE_BUSY,
        Status::DeviceRemoved | Status::Forked => ND_DEVICE_REMOVED,
        Status::InsufficientResources => ND_INSUFFICIENT_RESOURCES,
        Status::NetworkUnreachable => ND_NETWORK_UNREACHABLE,
        Status::HostUnreachable => ND_HOST_UNREACHABLE,
        Status::BadNetworkName => STATUS_BAD_NETWORK_NAME, // ND2 C41
        Status::InvalidAddress => ND_INVALID_ADDRESS,
        Status::SharingViolation => ND_SHARING_VIOLATION,
        Status::TooManyAddresses => ND_TOO_MANY_ADDRESSES,
    }
}

/// Version 1, where it differs (ND1 4.2 to 4.4, 13).
pub(crate) fn nd1(status: Status) -> i32 {
    match status {
        Status::RemoteAccess | Status::PeerReceiveTooSmall => ND_REMOTE_ERROR,
        Status::IoTimeout => ND_TIMEOUT,
        Status::InvalidBufferSize => ND_BUFFER_OVERFLOW,
        // ND1 13, row 29: one code for all that is wrong with a local port.
        Status::SharingViolation | Status::TooManyAddresses => ND_ADDRESS_ALREADY_EXISTS,
        Status::BadNetworkName => ND_INVALID_ADDRESS,
        // A disconnect that this side began has been indicated as much as one of the peer.
        Status::ConnectionDisconnected => ND_SUCCESS,
        other => nd2(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nd1_t31_a_timeout_is_0x102_to_version_1_and_0xc00000b5_to_version_2() {
        assert_eq!(nd1(Status::IoTimeout), 0x102);
        assert_eq!(nd2(Status::IoTimeout), 0xC000_00B5_u32 as i32);
    }

    #[test]
    fn the_number_of_an_invalid_parameter_is_in_its_code() {
        assert_eq!(nd2(Status::InvalidParameter(1)), ND_INVALID_PARAMETER_1);
        assert_eq!(nd2(Status::InvalidParameter(6)), ND_INVALID_PARAMETER_6);
        assert_eq!(nd2(Status::InvalidParameter(10)), ND_INVALID_PARAMETER_10);
    }
}
