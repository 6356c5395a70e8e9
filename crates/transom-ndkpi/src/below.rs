//! The engine as this front uses it, and its answers in this front's words.

use std::net::{IpAddr, SocketAddr};

use transom_engine::raw::{self, Sink, WindowError};
use transom_engine::{
    Completion, Data, Flags, NotifyKind, Operation, Request, Sge, Status as Engine, dialect,
};
use transom_memory::{BindError, Rights, Scope, Segment, Token};

use crate::Status;
use crate::objects::QpLimits;
use crate::types::{AdapterInfo, Version};

/// Private data with Connect, Accept and Reject.
const PRIVATE: u32 = 508;
const SGES: u32 = 32;
const INLINE: u32 = 4096;
const DEPTH: u32 = 16_384;
const TRANSFER: u32 = 1 << 30;
const REGION: u64 = 1 << 46;

/// What the engine's answer is called here (NDK 6, 7.3).
pub(crate) fn status(engine: Engine) -> Status {
    match engine {
        Engine::Success => Status::SUCCESS,
        Engine::Canceled => Status::CANCELLED,
        Engine::LocalAccess => Status::ACCESS_VIOLATION,
        Engine::RemoteAccess | Engine::RemoteError | Engine::PeerReceiveTooSmall => {
            Status::REMOTE_RESOURCES
        }
        Engine::IoTimeout => Status::IO_TIMEOUT,
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

#[allow(clippy::needless_pass_by_value, reason = "used with map_err")]
fn failed(error: raw::Error) -> Status {
    status(error.status)
}

// ---- adapter ----

pub(crate) fn open(address: IpAddr, read_sink_needed: bool) -> Result<raw::Adapter, Status> {
    let options = raw::Options {
        dialect: if read_sink_needed { &dialect::NDK_MARKED_SINKS } else { &dialect::NDK },
        largest_region: REGION,
        largest_transfer: u64::from(TRANSFER),
        ..raw::Options::default()
    };
    raw::Adapter::open(address, options).map_err(failed)
}

pub(crate) fn info(adapter: &raw::Adapter) -> AdapterInfo {
    let reads = adapter.options().reads;
    AdapterInfo {
        version: Version::default(),
        vendor_id: 0,
        device_id: 0,
        max_registration_size: REGION as usize,
        max_window_size: REGION as usize,
        frmr_page_count: 512,
        max_initiator_request_sge: SGES,
        max_receive_request_sge: SGES,
        max_read_request_sge: SGES,
        max_transfer_length: TRANSFER,
        max_inline_data_size: INLINE,
        max_inbound_read_limit: reads.inbound,
        max_outbound_read_limit: reads.outbound,
        max_receive_queue_depth: DEPTH,
        max_initiator_queue_depth: DEPTH,
        max_srq_depth: 0,
        max_cq_depth: 1 << 20,
        large_request_threshold: 4096,
        max_caller_data: PRIVATE,
        max_callee_data: PRIVATE,
        adapter_flags: 0,
        rdma_technology: 1, // iWARP
    }
}

/// The record of a refusal, as a sentence.
pub(crate) fn explain(adapter: &raw::Adapter, code: u32) -> Option<String> {
    adapter.denial(u64::from(code)).map(|record| record.cause.to_string())
}

// ---- memory ----

/// Rights, the address of byte 0, and where the bytes lie.
pub(crate) type About<'a> = (Rights, u64, &'a [Segment]);

/// # Safety
/// As [`raw::Adapter::register`] demands of its caller.
#[allow(unsafe_code, reason = "hands the caller's promise on")]
pub(crate) unsafe fn register(
    adapter: &raw::Adapter,
    domain: raw::Domain,
    (rights, base, segments): About<'_>,
) -> Result<Token, Status> {
    // SAFETY: this function's contract.
    let made = unsafe { adapter.register(domain, base, segments, rights) };
    made.map_err(|error| match error.status {
        // Pages that are not there, or not writable: pinning them was the consumer's duty (MR-9).
        Engine::LocalAccess => Status::INVALID_PARAMETER,
        status => self::status(status),
    })
}

/// A region for a logical address mapping: this side's own, never a peer's (PT-1, PT-2). The pages
/// are not looked at; pinning them was the consumer's duty.
///
/// # Safety
/// As [`raw::Adapter::register_in`] demands of its caller.
#[allow(unsafe_code, reason = "hands the caller's promise on")]
pub(crate) unsafe fn map(
    adapter: &raw::Adapter,
    domain: raw::Domain,
    base: u64,
    segments: &[Segment],
) -> Result<Token, Status> {
    let rights = Rights::LOCAL_READ | Rights::LOCAL_WRITE;
    // SAFETY: this function's contract.
    let made = unsafe { adapter.register_in(Scope::Domain(domain.0), base, segments, rights) };
    made.map_err(|_| Status::INSUFFICIENT_RESOURCES)
}

/// Whether a fast registration is valid.
pub(crate) fn has_memory(adapter: &raw::Adapter, region: Token) -> bool {
    adapter.touches(region, 0, u64::MAX)
}

/// # Safety
/// As [`raw::QueuePair::fast_register`] demands of its caller.
#[allow(unsafe_code, reason = "hands the caller's promise on")]
pub(crate) unsafe fn fast_register(
    queue_pair: &raw::QueuePair,
    (context, flags): (u64, Flags),
    region: Token,
    (rights, base, segments): About<'_>,
) -> Result<(), Status> {
    let registration = raw::FastRegistration { base, rights, segments };
    // SAFETY: this function's contract.
    unsafe { queue_pair.fast_register(context, flags, region, &registration) }.map_err(failed)
}

/// DR-3: windows keep a region from being deregistered.
pub(crate) fn deregister(adapter: &raw::Adapter, region: Token) -> Result<(), Status> {
    adapter.deregister(region).map_err(|error| match error.status {
        Engine::InvalidParameter(_) => Status::INVALID_DEVICE_STATE,
        status => self::status(status),
    })
}

/// Both halves of Bind: the token, and the request that lets it live (MW-2, MW-5, MW-6).
pub(crate) fn bind(
    queue_pair: &raw::QueuePair,
    (context, flags): (u64, Flags),
    region: Token,
    (base, length): (u64, u64),
    rights: Rights,
) -> Result<Token, Status> {
    let window = raw::Window { region, base, length, rights };
    queue_pair.post_bind(context, flags, &window).map_err(|error| match error {
        WindowError::Unusable(error) => failed(error),
        WindowError::Refused(BindError::Right(_)) => Status::ACCESS_VIOLATION,
        WindowError::Refused(BindError::Exhausted) => Status::INSUFFICIENT_RESOURCES,
        WindowError::Refused(_) => Status::INVALID_PARAMETER,
    })
}

/// The second half alone, for a window that is bound: it fails when its turn comes (MW-9).
pub(crate) fn bind_again(
    queue_pair: &raw::QueuePair,
    (context, flags): (u64, Flags),
    window: Token,
) -> Result<(), Status> {
    let request = Request { context, operation: Operation::Bind { window }, flags };
    queue_pair.post(&request, Data::Sges(&[])).map_err(failed)
}

pub(crate) fn invalidate(
    queue_pair: &raw::QueuePair,
    context: u64,
    flags: Flags,
    window: Token,
) -> Result<(), Status> {
    let request = Request { context, operation: Operation::Invalidate { window }, flags };
    queue_pair.post(&request, Data::Sges(&[])).map_err(failed)
}

// ---- queues ----

pub(crate) fn completion_queue(
    adapter: &raw::Adapter,
    depth: u32,
) -> Result<raw::CompletionQueue, Status> {
    adapter.completion_queue(depth as usize).map_err(failed)
}

pub(crate) fn notify(
    queue: &raw::CompletionQueue,
    kind: NotifyKind,
    told: impl FnOnce(Status) + Send + 'static,
) {
    // A forked child is told nothing: it has no adapter.
    let _ = queue.notify(kind, Sink::call(move |engine| told(status(engine))));
}

pub(crate) fn queue_pair(
    adapter: &raw::Adapter,
    domain: raw::Domain,
    receive: &raw::CompletionQueue,
    initiator: &raw::CompletionQueue,
    context: u64,
    limits: QpLimits,
) -> Result<raw::QueuePair, Status> {
    let options = raw::QueuePairOptions {
        context,
        initiator_depth: limits.initiator_depth,
        receive_depth: limits.receive_depth,
        initiator_sge: limits.initiator_sge,
        receive_sge: limits.receive_sge,
        inline_size: limits.inline,
    };
    adapter.queue_pair(domain, initiator, receive, None, &options).map_err(failed)
}

pub(crate) fn post(
    queue_pair: &raw::QueuePair,
    request: &Request,
    data: Data<'_>,
) -> Result<(), Status> {
    queue_pair.post(request, data).map_err(failed)
}

pub(crate) fn post_receive(
    queue_pair: &raw::QueuePair,
    context: u64,
    sges: &[Sge],
) -> Result<(), Status> {
    queue_pair.post_receive(context, sges).map_err(failed)
}

pub(crate) fn completion_status(completion: &Completion) -> Status {
    status(completion.status)
}

// ---- connections ----

pub(crate) fn told(sink: Box<dyn FnOnce(Status) + Send>) -> Sink {
    Sink::call(move |engine| sink(status(engine)))
}

/// Where the next Connect comes from. A connector that cannot connect in its state keeps its address,
/// and Connect says why it cannot.
pub(crate) fn bind_connector(connector: &raw::Connector, from: SocketAddr) -> Result<(), Status> {
    match connector.bind(from) {
        Err(error) if error.status == Engine::AddressAssociated => Ok(()),
        other => other.map_err(failed),
    }
}

/// Whether the end of a NotifyDisconnect means that the peer has gone (DC-3), rather than that this
/// side has (DC-4).
pub(crate) fn is_peers_doing(status: Status) -> bool {
    !matches!(status, Status::CANCELLED | Status::CONNECTION_DISCONNECTED)
}

pub(crate) fn engine<T>(result: raw::Result<T>) -> Result<T, Status> {
    result.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The engine's words for what NDK 7.3 and 6.7 have codes for, and these codes.
    #[test]
    fn every_outcome_has_the_code_of_the_interface() {
        for (engine, code) in [
            // 7.3: ends of requests.
            (Engine::Success, 0),
            (Engine::Canceled, 0xC000_0120),
            (Engine::LocalAccess, 0xC000_0005),
            (Engine::DataOverrun, 0xC000_003C),
            (Engine::ReceiveTooSmall, 0x8000_0005),
            (Engine::PeerReceiveTooSmall, 0xC000_013D),
            (Engine::RemoteAccess, 0xC000_013D),
            (Engine::RemoteError, 0xC000_013D),
            (Engine::InvalidRequest, 0xC000_0010),
            (Engine::IoTimeout, 0xC000_00B5),
            (Engine::InternalError, 0xC000_00E5),
            // 6.5: what a post returns.
            (Engine::ConnectionInvalid, 0xC000_023A),
            (Engine::NoMoreEntries, 0x8000_001A),
            (Engine::BufferOverflow, 0x8000_0005),
            (Engine::InvalidBufferSize, 0xC000_0206),
            (Engine::InvalidParameter(3), 0xC000_000D),
            // 6.7: how a connection fails.
            (Engine::InsufficientResources, 0xC000_009A),
            (Engine::NetworkUnreachable, 0xC000_023C),
            (Engine::HostUnreachable, 0xC000_023D),
            (Engine::BadNetworkName, 0xC000_023D),
            (Engine::ConnectionRefused, 0xC000_0236),
            (Engine::SharingViolation, 0xC000_0043),
            (Engine::InvalidAddress, 0xC000_0141),
            (Engine::TooManyAddresses, 0xC000_0209),
            (Engine::AddressAssociated, 0xC000_020A),
            (Engine::ConnectionAborted, 0xC000_0241),
            (Engine::ConnectionDisconnected, 0xC000_020C),
            // 9.2, CN-9; 11; and what every call may say.
            (Engine::ConnectionActive, 0xC000_023B),
            (Engine::InvalidState, 0xC000_0184),
            (Engine::DeviceBusy, 0x8000_0011),
            (Engine::NotSupported, 0xC000_00BB),
            (Engine::DeviceRemoved, 0xC000_02B6),
            // CQ-7: what an overrun is told as.
            (Engine::QueueOverrun, 0x8000_0005_u32),
        ] {
            assert_eq!(status(engine), Status(code as i32), "{engine:?}");
        }
    }
}
