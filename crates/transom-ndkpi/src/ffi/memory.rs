//! `NDK_MR_DISPATCH`, `NDK_MW_DISPATCH`.

use std::ffi::c_void;

use super::handle::{Kind, get};
use super::{close, entry, entry_or, query_extension, request_done};
use crate::Status;
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

impl Kind for Mr {
    const TYPE: ObjectType = ObjectType::Mr;
    fn table() -> *const c_void {
        (&raw const MR_TABLE).cast()
    }
}

impl Kind for Mw {
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
    entry(|| {
        // SAFETY: the consumer's pointer.
        let Some(mr) = (unsafe { get::<Mr>(mr) }) else { return Status::INVALID_PARAMETER };
        // SAFETY: the consumer leaves the chain alone until the request completes (MR-9); it is
        // read inside this call only.
        let chain = unsafe { Chain::new(mdl) };
        let done = request_done(completion, context);
        // SAFETY: the consumer has pinned the pages and keeps them until the registration ends.
        unsafe { mr.register(chain, length as u64, flags, done) }
    })
}

unsafe extern "C" fn deregister(
    mr: *mut Object,
    completion: RequestCompletion,
    context: *mut c_void,
) -> i32 {
    entry(|| {
        // SAFETY: the consumer's pointer.
        let Some(mr) = (unsafe { get::<Mr>(mr) }) else { return Status::INVALID_PARAMETER };
        mr.deregister(request_done(completion, context))
    })
}

unsafe extern "C" fn initialize_fast_register(
    _mr: *mut Object,
    _pages: u32,
    _remote: u8,
    _completion: RequestCompletion,
    _context: *mut c_void,
) -> i32 {
    Status::NOT_SUPPORTED.0
}

unsafe extern "C" fn get_token(mr: *mut Object) -> u32 {
    // SAFETY: the consumer's pointer.
    entry_or(0, || unsafe { get::<Mr>(mr) }.map_or(0, |mr| mr.token()))
}

unsafe extern "C" fn get_window_token(mw: *mut Object) -> u32 {
    // SAFETY: the consumer's pointer.
    entry_or(0, || unsafe { get::<Mw>(mw) }.map_or(0, |mw| mw.token()))
}
