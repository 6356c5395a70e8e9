//! `NDK_SRQ_DISPATCH`.

use std::ffi::c_void;
use std::sync::Arc;

use super::handle::HandleKind;
use super::qp::{number, translated};
use super::{close, on, query_extension, request_done};
use crate::dispatch::{CloseCompletion, RequestCompletion, SrqDispatch};
use crate::objects::Srq;
use crate::types::{Object, ObjectHeader, ObjectType, Sge};

static TABLE: SrqDispatch = SrqDispatch { close: close_srq, query_extension, modify, receive };

impl HandleKind for Srq {
    const TYPE: ObjectType = ObjectType::Srq;
    fn table() -> *const c_void {
        (&raw const TABLE).cast()
    }
}

unsafe extern "C" fn close_srq(
    object: *mut ObjectHeader,
    completion: CloseCompletion,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the consumer's pointer, given up with this call.
    unsafe { close::<Srq>(object, (completion, context), |srq, done| srq.close(done)) }
}

unsafe extern "C" fn modify(
    srq: *mut Object,
    depth: u32,
    threshold: u32,
    completion: RequestCompletion,
    context: *mut c_void,
) -> i32 {
    let run = |srq: Arc<Srq>| srq.modify(depth, threshold, request_done(completion, context));
    // SAFETY: the consumer's pointer.
    unsafe { on(srq, run) }
}

unsafe extern "C" fn receive(
    srq: *mut Object,
    context: *mut c_void,
    list: *const Sge,
    count: u32,
) -> i32 {
    let run = |(srq, list): (Arc<Srq>, &[Sge])| {
        translated(list, |sges| srq.receive(number(context), sges))
    };
    // SAFETY: the consumer's pointers.
    unsafe { on((srq, (list, count)), run) }
}
