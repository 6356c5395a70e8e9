//! `NDK_PD_DISPATCH`.

use std::ffi::c_void;
use std::sync::Arc;

use super::handle::Kind;
use super::{close, created, on, query_extension, with_or};
use crate::Status;
use crate::dispatch::{CloseCompletion, CreateCompletion, PdDispatch, SrqNotification};
use crate::objects::{Cq, Pd, QpLimits};
use crate::types::{GroupAffinity, Object, ObjectHeader, ObjectType};

static TABLE: PdDispatch = PdDispatch {
    close: close_pd,
    query_extension,
    create_mr,
    create_mw,
    create_srq,
    create_qp,
    create_qp_with_srq,
    get_privileged_memory_region_token,
};

impl Kind for Pd {
    const TYPE: ObjectType = ObjectType::Pd;
    fn table() -> *const c_void {
        (&raw const TABLE).cast()
    }
}

unsafe extern "C" fn close_pd(
    object: *mut ObjectHeader,
    completion: CloseCompletion,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the consumer's pointer, given up with this call.
    unsafe { close::<Pd>(object, (completion, context), |pd, done| pd.close(done)) }
}

unsafe extern "C" fn create_mr(
    pd: *mut Object,
    fast_register: u8,
    completion: CreateCompletion,
    context: *mut c_void,
    out: *mut *mut Object,
) -> i32 {
    // SAFETY: the consumer's pointers.
    unsafe {
        on(pd, |pd: Arc<Pd>| {
            created(&*pd, (completion, context), out, || Ok(pd.create_mr(fast_register != 0)))
        })
    }
}

unsafe extern "C" fn create_mw(
    pd: *mut Object,
    completion: CreateCompletion,
    context: *mut c_void,
    out: *mut *mut Object,
) -> i32 {
    // SAFETY: the consumer's pointers.
    unsafe {
        on(pd, |pd: Arc<Pd>| created(&*pd, (completion, context), out, || Ok(pd.create_mw())))
    }
}

unsafe extern "C" fn create_qp(
    pd: *mut Object,
    receive_cq: *mut Object,
    initiator_cq: *mut Object,
    qp_context: *mut c_void,
    receive_depth: u32,
    initiator_depth: u32,
    receive_sge: u32,
    initiator_sge: u32,
    inline: u32,
    completion: CreateCompletion,
    context: *mut c_void,
    out: *mut *mut Object,
) -> i32 {
    let limits = QpLimits { receive_depth, initiator_depth, receive_sge, initiator_sge, inline };
    let qp_context = qp_context.expose_provenance() as u64;
    let run = |(pd, receive, initiator): (Arc<Pd>, Arc<Cq>, Arc<Cq>)| {
        let make = || pd.create_qp(&receive, &initiator, qp_context, limits);
        // SAFETY: the consumer's pointer.
        unsafe { created(&*pd, (completion, context), out, make) }
    };
    // SAFETY: the consumer's pointers.
    unsafe { on((pd, receive_cq, initiator_cq), run) }
}

unsafe extern "C" fn create_srq(
    _pd: *mut Object,
    _depth: u32,
    _sge: u32,
    _threshold: u32,
    _notification: SrqNotification,
    _notification_context: *mut c_void,
    _affinity: *const GroupAffinity,
    _completion: CreateCompletion,
    _context: *mut c_void,
    _out: *mut *mut Object,
) -> i32 {
    Status::NOT_SUPPORTED.0
}

unsafe extern "C" fn create_qp_with_srq(
    _pd: *mut Object,
    _receive_cq: *mut Object,
    _initiator_cq: *mut Object,
    _srq: *mut Object,
    _qp_context: *mut c_void,
    _initiator_depth: u32,
    _initiator_sge: u32,
    _inline: u32,
    _completion: CreateCompletion,
    _context: *mut c_void,
    _out: *mut *mut Object,
) -> i32 {
    Status::NOT_SUPPORTED.0
}

/// The call cannot fail; without a token to be had it yields 0, which names nothing.
unsafe extern "C" fn get_privileged_memory_region_token(pd: *mut Object, token: *mut u32) {
    // SAFETY: the consumer's pointers.
    unsafe {
        with_or((), pd, |pd: Arc<Pd>| {
            if let Some(token) = token.as_mut() {
                *token = pd.privileged_token().unwrap_or(0);
            }
        });
    }
}
