//! `NDK_SHARED_ENDPOINT_DISPATCH`.

use std::ffi::c_void;
use std::sync::Arc;

use super::handle::HandleKind;
use super::{address, close, on, query_extension};
use crate::dispatch::{CloseCompletion, SharedEndpointDispatch};
use crate::objects::SharedEndpoint;
use crate::types::{Object, ObjectHeader, ObjectType};

static TABLE: SharedEndpointDispatch =
    SharedEndpointDispatch { close: close_endpoint, query_extension, get_local_address };

impl HandleKind for SharedEndpoint {
    const TYPE: ObjectType = ObjectType::SharedEndpoint;
    fn table() -> *const c_void {
        (&raw const TABLE).cast()
    }
}

unsafe extern "C" fn close_endpoint(
    object: *mut ObjectHeader,
    completion: CloseCompletion,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the consumer's pointer, given up with this call.
    unsafe { close::<SharedEndpoint>(object, (completion, context), |e, done| e.close(done)) }
}

unsafe extern "C" fn get_local_address(
    endpoint: *mut Object,
    out: *mut c_void,
    length: *mut u32,
) -> i32 {
    // SAFETY: the consumer's pointers.
    unsafe {
        on(endpoint, |endpoint: Arc<SharedEndpoint>| {
            address::write(endpoint.local_address(), out, length)
        })
    }
}
