//! `NDK_PD_DISPATCH`.

use std::ffi::c_void;
use std::sync::Arc;

use super::handle::{HandleKind, get};
use super::{Context, close, created, on, query_extension, with_or};
use crate::dispatch::{CloseCompletion, CreateCompletion, PdDispatch, SrqNotification};
use crate::objects::{Cq, Pd, QpLimits, Srq};
use crate::types::{GroupAffinity, Object, ObjectHeader, ObjectType};
use crate::{Status, objects};

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

impl HandleKind for Pd {
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
    pd: *mut Object,
    depth: u32,
    sge: u32,
    threshold: u32,
    notification: SrqNotification,
    notification_context: *mut c_void,
    _affinity: *const GroupAffinity,
    completion: CreateCompletion,
    context: *mut c_void,
    out: *mut *mut Object,
) -> i32 {
    let theirs = Context::new(notification_context);
    let notification = notification.map(|callback| -> objects::SrqNotification {
        Box::new(move |status| {
            // SAFETY: the consumer's function with the consumer's context.
            unsafe { callback(theirs.pointer(), status.0) };
        })
    });
    let run = |pd: Arc<Pd>| {
        let make = || pd.create_srq(depth, sge, threshold, notification);
        // SAFETY: the consumer's pointer.
        unsafe { created(&*pd, (completion, context), out, make) }
    };
    // SAFETY: the consumer's pointers.
    unsafe { on(pd, run) }
}

unsafe extern "C" fn create_qp_with_srq(
    pd: *mut Object,
    receive_cq: *mut Object,
    initiator_cq: *mut Object,
    srq: *mut Object,
    qp_context: *mut c_void,
    initiator_depth: u32,
    initiator_sge: u32,
    inline: u32,
    completion: CreateCompletion,
    context: *mut c_void,
    out: *mut *mut Object,
) -> i32 {
    let limits =
        QpLimits { receive_depth: 0, initiator_depth, receive_sge: 0, initiator_sge, inline };
    let qp_context = qp_context.expose_provenance() as u64;
    // SAFETY: the consumer's pointer.
    let Some(srq) = (unsafe { get::<Srq>(srq) }) else { return Status::INVALID_PARAMETER.0 };
    let run = |(pd, receive, initiator): (Arc<Pd>, Arc<Cq>, Arc<Cq>)| {
        let make = || pd.create_qp_with_srq(&receive, &initiator, &srq, qp_context, limits);
        // SAFETY: the consumer's pointer.
        unsafe { created(&*pd, (completion, context), out, make) }
    };
    // SAFETY: the consumer's pointers.
    unsafe { on((pd, receive_cq, initiator_cq), run) }
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
