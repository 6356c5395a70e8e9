//! `NDK_LISTENER_DISPATCH`.

use std::ffi::c_void;
use std::net::SocketAddr;
use std::sync::Arc;

use super::handle::HandleKind;
use super::{address, close, on, query_extension, request_done, with_or};
use crate::dispatch::{CloseCompletion, ListenerDispatch, RequestCompletion};
use crate::objects::Listener;
use crate::types::{Object, ObjectHeader, ObjectType};

static TABLE: ListenerDispatch = ListenerDispatch {
    close: close_listener,
    query_extension,
    listen,
    get_local_address,
    control_connect_events,
};

impl HandleKind for Listener {
    const TYPE: ObjectType = ObjectType::Listener;
    fn table() -> *const c_void {
        (&raw const TABLE).cast()
    }
}

unsafe extern "C" fn close_listener(
    object: *mut ObjectHeader,
    completion: CloseCompletion,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the consumer's pointer, given up with this call.
    unsafe {
        close::<Listener>(object, (completion, context), |listener, done| listener.close(done))
    }
}

unsafe extern "C" fn listen(
    listener: *mut Object,
    at: *const c_void,
    length: u32,
    completion: RequestCompletion,
    context: *mut c_void,
) -> i32 {
    let run = |(listener, at): (Arc<Listener>, SocketAddr)| {
        listener.listen(at, request_done(completion, context))
    };
    // SAFETY: the consumer's pointers.
    unsafe { on((listener, (at, length)), run) }
}

unsafe extern "C" fn get_local_address(
    listener: *mut Object,
    out: *mut c_void,
    length: *mut u32,
) -> i32 {
    // SAFETY: the consumer's pointers.
    unsafe {
        on(listener, |listener: Arc<Listener>| {
            address::write(listener.local_address(), out, length)
        })
    }
}

unsafe extern "C" fn control_connect_events(listener: *mut Object, pause: u8) {
    let run = |listener: Arc<Listener>| listener.control_connect_events(pause != 0);
    // SAFETY: the consumer's pointer.
    unsafe { with_or((), listener, run) };
}
