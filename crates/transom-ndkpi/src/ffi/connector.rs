//! `NDK_CONNECTOR_DISPATCH`.

use std::ffi::c_void;
use std::net::SocketAddr;
use std::sync::Arc;

use transom_engine::raw::ReadLimits;

use super::handle::HandleKind;
use super::{Context, address, close, on, query_extension, request_done};
use crate::dispatch::{
    CloseCompletion, ConnectorDispatch, DisconnectEvent, DisconnectEventEx, RequestCompletion,
};
use crate::objects::{Connector, Qp, SharedEndpoint};
use crate::types::{Object, ObjectHeader, ObjectType};
use crate::{Status, objects};

static TABLE: ConnectorDispatch = ConnectorDispatch {
    close: close_connector,
    query_extension,
    connect,
    connect_with_shared_endpoint,
    complete_connect,
    accept,
    reject,
    get_connection_data,
    get_local_address,
    get_peer_address,
    disconnect,
    complete_connect_ex,
    accept_ex,
};

impl HandleKind for Connector {
    const TYPE: ObjectType = ObjectType::Connector;
    fn table() -> *const c_void {
        (&raw const TABLE).cast()
    }
}

/// The arguments of `NdkConnect`.
type Connecting<'a> = (Arc<Connector>, Arc<Qp>, ((SocketAddr, SocketAddr), &'a [u8]));

/// The arguments of `NdkConnectWithSharedEndpoint`.
type ConnectingShared<'a> = ((Arc<Connector>, Arc<Qp>, Arc<SharedEndpoint>), SocketAddr, &'a [u8]);

fn event(callback: DisconnectEvent, context: *mut c_void) -> Option<objects::DisconnectEvent> {
    let context = Context::new(context);
    callback.map(|callback| -> objects::DisconnectEvent {
        // SAFETY: the consumer's function with the consumer's context.
        Box::new(move |_| unsafe { callback(context.pointer()) })
    })
}

fn event_ex(callback: DisconnectEventEx, context: *mut c_void) -> Option<objects::DisconnectEvent> {
    let context = Context::new(context);
    callback.map(|callback| -> objects::DisconnectEvent {
        // SAFETY: the consumer's function with the consumer's context.
        Box::new(move |reason| unsafe { callback(context.pointer(), reason) })
    })
}

unsafe extern "C" fn close_connector(
    object: *mut ObjectHeader,
    completion: CloseCompletion,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the consumer's pointer, given up with this call.
    unsafe { close::<Connector>(object, (completion, context), |c, done| c.close(done)) }
}

unsafe extern "C" fn connect(
    connector: *mut Object,
    qp: *mut Object,
    from: *const c_void,
    from_length: u32,
    to: *const c_void,
    to_length: u32,
    inbound: u32,
    outbound: u32,
    data: *const c_void,
    data_length: u32,
    completion: RequestCompletion,
    context: *mut c_void,
) -> i32 {
    let data = (data.cast::<u8>(), data_length);
    let run = |(connector, qp, ((from, to), private)): Connecting<'_>| {
        let done = request_done(completion, context);
        connector.connect(&qp, from, to, ReadLimits { inbound, outbound }, private, done)
    };
    // SAFETY: the consumer's pointers.
    unsafe { on((connector, qp, (((from, from_length), (to, to_length)), data)), run) }
}

unsafe extern "C" fn connect_with_shared_endpoint(
    connector: *mut Object,
    qp: *mut Object,
    endpoint: *mut Object,
    to: *const c_void,
    to_length: u32,
    inbound: u32,
    outbound: u32,
    data: *const c_void,
    data_length: u32,
    completion: RequestCompletion,
    context: *mut c_void,
) -> i32 {
    let data = (data.cast::<u8>(), data_length);
    let run = |((connector, qp, endpoint), to, private): ConnectingShared<'_>| {
        let (done, limits) = (request_done(completion, context), ReadLimits { inbound, outbound });
        connector.connect_with_shared_endpoint(&qp, &endpoint, to, limits, private, done)
    };
    // SAFETY: the consumer's pointers.
    unsafe { on(((connector, qp, endpoint), (to, to_length), data), run) }
}

unsafe extern "C" fn complete_connect(
    connector: *mut Object,
    callback: DisconnectEvent,
    event_context: *mut c_void,
    completion: RequestCompletion,
    context: *mut c_void,
) -> i32 {
    let run = |connector: Arc<Connector>| {
        let done = request_done(completion, context);
        connector.complete_connect(event(callback, event_context), done)
    };
    // SAFETY: the consumer's pointer.
    unsafe { on(connector, run) }
}

unsafe extern "C" fn complete_connect_ex(
    connector: *mut Object,
    callback: DisconnectEventEx,
    event_context: *mut c_void,
    completion: RequestCompletion,
    context: *mut c_void,
) -> i32 {
    let run = |connector: Arc<Connector>| {
        let done = request_done(completion, context);
        connector.complete_connect(event_ex(callback, event_context), done)
    };
    // SAFETY: the consumer's pointer.
    unsafe { on(connector, run) }
}

/// Both forms of accept.
///
/// # Safety
/// The consumer's pointers.
unsafe fn accept_with(
    (connector, qp): (*mut Object, *mut Object),
    limits: ReadLimits,
    (data, data_length): (*const c_void, u32),
    event: Option<objects::DisconnectEvent>,
    completion: RequestCompletion,
    context: *mut c_void,
) -> i32 {
    let run = |(connector, qp, private): (Arc<Connector>, Arc<Qp>, &[u8])| {
        connector.accept(&qp, limits, private, event, request_done(completion, context))
    };
    // SAFETY: this function's contract.
    unsafe { on((connector, qp, (data.cast(), data_length)), run) }
}

unsafe extern "C" fn accept(
    connector: *mut Object,
    qp: *mut Object,
    inbound: u32,
    outbound: u32,
    data: *const c_void,
    data_length: u32,
    callback: DisconnectEvent,
    event_context: *mut c_void,
    completion: RequestCompletion,
    context: *mut c_void,
) -> i32 {
    let event = event(callback, event_context);
    let (limits, data) = (ReadLimits { inbound, outbound }, (data, data_length));
    // SAFETY: the consumer's pointers.
    unsafe { accept_with((connector, qp), limits, data, event, completion, context) }
}

unsafe extern "C" fn accept_ex(
    connector: *mut Object,
    qp: *mut Object,
    inbound: u32,
    outbound: u32,
    data: *const c_void,
    data_length: u32,
    callback: DisconnectEventEx,
    event_context: *mut c_void,
    completion: RequestCompletion,
    context: *mut c_void,
) -> i32 {
    let event = event_ex(callback, event_context);
    let (limits, data) = (ReadLimits { inbound, outbound }, (data, data_length));
    // SAFETY: the consumer's pointers.
    unsafe { accept_with((connector, qp), limits, data, event, completion, context) }
}

unsafe extern "C" fn reject(connector: *mut Object, data: *const c_void, length: u32) -> i32 {
    let run = |(connector, private): (Arc<Connector>, &[u8])| connector.reject(private);
    // SAFETY: the consumer's pointers.
    unsafe { on((connector, (data.cast(), length)), run) }
}

unsafe extern "C" fn get_connection_data(
    connector: *mut Object,
    inbound: *mut u32,
    outbound: *mut u32,
    data: *mut c_void,
    length: *mut u32,
) -> i32 {
    let run = |connector: Arc<Connector>| {
        // SAFETY: the consumer's pointers.
        let (inbound, outbound, length) =
            unsafe { (inbound.as_mut(), outbound.as_mut(), length.as_mut()) };
        let Some(length) = length else { return Status::INVALID_PARAMETER };
        if data.is_null() && *length > 0 {
            return Status::INVALID_PARAMETER;
        }
        let found = match connector.connection_data() {
            Ok(found) => found,
            Err(status) => return status,
        };
        if let Some(inbound) = inbound {
            *inbound = found.inbound;
        }
        if let Some(outbound) = outbound {
            *outbound = found.outbound;
        }
        let required = found.private.len();
        let capacity = std::mem::replace(length, required as u32) as usize;
        if data.is_null() {
            return Status::SUCCESS; // the question for the size (NDK 9.4)
        }
        let copied = capacity.min(required);
        // SAFETY: both sides have so many bytes.
        unsafe { std::ptr::copy_nonoverlapping(found.private.as_ptr(), data.cast(), copied) };
        if capacity < required { Status::BUFFER_TOO_SMALL } else { Status::SUCCESS }
    };
    // SAFETY: the consumer's pointers.
    unsafe { on(connector, run) }
}

unsafe extern "C" fn get_local_address(
    connector: *mut Object,
    out: *mut c_void,
    length: *mut u32,
) -> i32 {
    // SAFETY: the consumer's pointers.
    unsafe {
        on(connector, |connector: Arc<Connector>| {
            address::write(connector.local_address(), out, length)
        })
    }
}

unsafe extern "C" fn get_peer_address(
    connector: *mut Object,
    out: *mut c_void,
    length: *mut u32,
) -> i32 {
    // SAFETY: the consumer's pointers.
    unsafe {
        on(connector, |connector: Arc<Connector>| {
            address::write(connector.peer_address(), out, length)
        })
    }
}

unsafe extern "C" fn disconnect(
    connector: *mut Object,
    completion: RequestCompletion,
    context: *mut c_void,
) -> i32 {
    let run = |connector: Arc<Connector>| connector.disconnect(request_done(completion, context));
    // SAFETY: the consumer's pointer.
    unsafe { on(connector, run) }
}
