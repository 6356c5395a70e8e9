//! `NDK_CQ_DISPATCH`.

use std::ffi::c_void;
use std::sync::Arc;

use transom_engine::{Completion, CompletionFlags, CompletionKind};

use super::handle::HandleKind;
use super::{close, on, query_extension, request_done, with_or};
use crate::Status;
use crate::dispatch::{CloseCompletion, CqDispatch, RequestCompletion};
use crate::flags::operation;
use crate::objects::Cq;
use crate::types::{NdkResult, NdkResultEx, Object, ObjectHeader, ObjectType};

static TABLE: CqDispatch = CqDispatch {
    close: close_cq,
    query_extension,
    resize,
    arm,
    get_results,
    control_interrupt_moderation,
    get_results_ex,
};

impl HandleKind for Cq {
    const TYPE: ObjectType = ObjectType::Cq;
    fn table() -> *const c_void {
        (&raw const TABLE).cast()
    }
}

unsafe extern "C" fn close_cq(
    object: *mut ObjectHeader,
    completion: CloseCompletion,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the consumer's pointer, given up with this call.
    unsafe { close::<Cq>(object, (completion, context), |cq, done| cq.close(done)) }
}

unsafe extern "C" fn arm(cq: *mut Object, kind: u32) {
    // SAFETY: the consumer's pointer.
    unsafe { with_or((), cq, |cq: Arc<Cq>| cq.arm(kind)) };
}

/// Retrieve entries in pieces and write each one out.
///
/// # Safety
/// `results` has room for `count` entries.
unsafe fn results<T>(
    cq: *mut Object,
    results: *mut T,
    count: u32,
    convert: impl Fn(&Completion) -> T,
) -> u32 {
    let run = |cq: Arc<Cq>| {
        if results.is_null() {
            return 0;
        }
        let mut piece = [Completion::BLANK; 16];
        let mut written = 0;
        while written < count as usize {
            let room = (count as usize - written).min(piece.len());
            let found = cq.results(piece.get_mut(..room).unwrap_or_default());
            for completion in piece.iter().take(found) {
                // SAFETY: fewer than `count` were written so far.
                unsafe { results.add(written).write(convert(completion)) };
                written += 1;
            }
            if found < room {
                break;
            }
        }
        u32::try_from(written).unwrap_or(count)
    };
    // SAFETY: the consumer's pointer.
    unsafe { with_or(0, cq, run) }
}

fn pointer(context: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(context as usize)
}

fn plain(completion: &Completion) -> NdkResult {
    NdkResult {
        status: Status::from(completion.status).0,
        bytes_transferred: received(completion),
        qp_context: pointer(completion.queue_pair_context),
        request_context: pointer(completion.request_context),
    }
}

/// NDK WR-14: only receives have a length.
fn received(completion: &Completion) -> u32 {
    match completion.kind {
        CompletionKind::Receive | CompletionKind::ReceiveWrite => completion.length,
        _ => 0,
    }
}

fn extended(completion: &Completion) -> NdkResultEx {
    let invalidated = completion.flags.contains(CompletionFlags::INVALIDATED);
    let operation = match completion.kind {
        CompletionKind::Receive if invalidated => operation::RECEIVE_AND_INVALIDATE,
        CompletionKind::Receive | CompletionKind::ReceiveWrite => operation::RECEIVE,
        CompletionKind::Send => operation::SEND,
        CompletionKind::Write => operation::WRITE,
        CompletionKind::Read => operation::READ,
        CompletionKind::Bind => operation::BIND,
        CompletionKind::Invalidate => operation::INVALIDATE,
        // No request of this interface is an atomic.
        CompletionKind::FastRegister
        | CompletionKind::CompareSwap
        | CompletionKind::FetchAdd
        | CompletionKind::Other => operation::FAST_REGISTER,
    };
    NdkResultEx {
        status: Status::from(completion.status).0,
        bytes_transferred: received(completion),
        qp_context: pointer(completion.queue_pair_context),
        request_context: pointer(completion.request_context),
        operation,
        provider_error_code: completion.denial as u32, // 0 for what has not failed
        type_specific: if invalidated { completion.value as usize } else { 0 },
    }
}

unsafe extern "C" fn get_results(cq: *mut Object, out: *mut NdkResult, count: u32) -> u32 {
    // SAFETY: the consumer's array.
    unsafe { results(cq, out, count, plain) }
}

unsafe extern "C" fn get_results_ex(cq: *mut Object, out: *mut NdkResultEx, count: u32) -> u32 {
    // SAFETY: the consumer's array.
    unsafe { results(cq, out, count, extended) }
}

unsafe extern "C" fn resize(
    cq: *mut Object,
    depth: u32,
    completion: RequestCompletion,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the consumer's pointer.
    unsafe { on(cq, |cq: Arc<Cq>| cq.resize(depth, request_done(completion, context))) }
}

unsafe extern "C" fn control_interrupt_moderation(
    cq: *mut Object,
    interval: u32,
    count: u32,
) -> i32 {
    // SAFETY: the consumer's pointer.
    unsafe { on(cq, |cq: Arc<Cq>| cq.moderate(interval, count)) }
}
