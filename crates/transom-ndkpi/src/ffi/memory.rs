//! `NDK_MR_DISPATCH`, `NDK_MW_DISPATCH`.

use std::ffi::c_void;
use std::sync::Arc;

use super::handle::HandleKind;
use super::{close, on, query_extension, request_done, with_or};
use crate::dispatch::{CloseCompletion, MrDispatch, MwDispatch, RequestCompletion};
use crate::mdl::{Chain, Mdl};
use crate::objects::{Mr, Mw};
use crate::types::{Object, ObjectHeader, ObjectType};

static MR_TABLE: MrDispatch = MrDispatch {
    close: close_mr,
    query_extension,
    register,
    deregister,
    initialize_fast_register,
    get_remote_token: get_token,
    get_local_token: get_token,
};

static MW_TABLE: MwDispatch =
    MwDispatch { close: close_mw, query_extension, get_remote_token: get_window_token };

impl HandleKind for Mr {
    const TYPE: ObjectType = ObjectType::Mr;
    fn table() -> *const c_void {
        (&raw const MR_TABLE).cast()
    }
}

impl HandleKind for Mw {
    const TYPE: ObjectType = ObjectType::Mw;
    fn table() -> *const c_void {
        (&raw const MW_TABLE).cast()
    }
}

unsafe extern "C" fn close_mr(
    object: *mut ObjectHeader,
    completion: CloseCompletion,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the consumer's pointer, given up with this call.
    unsafe { close::<Mr>(object, (completion, context), |mr, done| mr.close(done)) }
}

unsafe extern "C" fn close_mw(
    object: *mut ObjectHeader,
    completion: CloseCompletion,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the consumer's pointer, given up with this call.
    unsafe { close::<Mw>(object, (completion, context), |mw, done| mw.close(done)) }
}

unsafe extern "C" fn register(
    mr: *mut Object,
    mdl: *mut Mdl,
    length: usize,
    flags: u32,
    completion: RequestCompletion,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the consumer's pointers. The consumer leaves the chain alone until the request
    // completes (NDK MR-9), and it is read inside this call only; it has pinned the pages, and
    // keeps them until the registration ends.
    unsafe {
        on(mr, |mr: Arc<Mr>| {
            let done = request_done(completion, context);
            mr.register(Chain::new(mdl), length as u64, flags, done)
        })
    }
}

unsafe extern "C" fn deregister(
    mr: *mut Object,
    completion: RequestCompletion,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the consumer's pointer.
    unsafe { on(mr, |mr: Arc<Mr>| mr.deregister(request_done(completion, context))) }
}

unsafe extern "C" fn initialize_fast_register(
    mr: *mut Object,
    pages: u32,
    remote: u8,
    completion: RequestCompletion,
    context: *mut c_void,
) -> i32 {
    let run =
        |mr: Arc<Mr>| mr.initialize_fast(pages, remote != 0, request_done(completion, context));
    // SAFETY: the consumer's pointer.
    unsafe { on(mr, run) }
}

unsafe extern "C" fn get_token(mr: *mut Object) -> u32 {
    // SAFETY: the consumer's pointer.
    unsafe { with_or(0, mr, |mr: Arc<Mr>| mr.token()) }
}

unsafe extern "C" fn get_window_token(mw: *mut Object) -> u32 {
    // SAFETY: the consumer's pointer.
    unsafe { with_or(0, mw, |mw: Arc<Mw>| mw.token()) }
}
