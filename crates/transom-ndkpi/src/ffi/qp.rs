//! `NDK_QP_DISPATCH`.

use std::ffi::c_void;
use std::sync::Arc;

use transom_engine::{Data, Sge as EngineSge};

use super::handle::HandleKind;
use super::{Found, close, on, query_extension, with_or};
use crate::Status;
use crate::dispatch::{CloseCompletion, QpDispatch};
use crate::flags::op;
use crate::objects::{Mr, Mw, Qp};
use crate::types::{Object, ObjectHeader, ObjectType, Sge};

static TABLE: QpDispatch = QpDispatch {
    close: close_qp,
    query_extension,
    flush,
    send,
    receive,
    bind,
    fast_register,
    invalidate,
    read,
    write,
    send_and_invalidate,
};

impl HandleKind for Qp {
    const TYPE: ObjectType = ObjectType::Qp;
    fn table() -> *const c_void {
        (&raw const TABLE).cast()
    }
}

/// Lists up to this long are translated without an allocation.
const SHORT: usize = 32;

/// Hand the consumer's list to `f` in the engine's shape.
pub(super) fn translated(list: &[Sge], f: impl FnOnce(&[EngineSge]) -> Status) -> Status {
    let convert =
        |sge: &Sge| EngineSge { token: sge.token, address: sge.address, length: sge.length };
    let mut short = [EngineSge::default(); SHORT];
    match short.get_mut(..list.len()) {
        Some(short) => {
            short.iter_mut().zip(list).for_each(|(to, from)| *to = convert(from));
            f(short)
        }
        None => f(&list.iter().map(convert).collect::<Vec<_>>()),
    }
}

/// Hand the data of a request to `f`: a list, or with `INLINE` the bytes themselves, whose tokens
/// are not looked at (NDK WR-9).
///
/// # Safety
/// With `INLINE` every entry's bytes can be read.
unsafe fn with_data(
    list: &[Sge],
    flags: u32,
    limit: u32,
    f: impl FnOnce(&Data<'_>) -> Status,
) -> Status {
    if flags & op::INLINE == 0 {
        return translated(list, |sges| f(&Data::Sges(sges)));
    }
    let total: u64 = list.iter().map(|sge| u64::from(sge.length)).sum();
    if total > u64::from(limit) {
        return Status::INVALID_BUFFER_SIZE;
    }
    let mut bytes = Vec::with_capacity(total as usize);
    for sge in list {
        let from = std::ptr::with_exposed_provenance::<u8>(sge.address as usize);
        if sge.length > 0 {
            // SAFETY: the consumer says that these bytes can be read now (NDK WR-9).
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(from, sge.length as usize)
            });
        }
    }
    f(&Data::Inline(&bytes))
}

/// A queue pair and a list.
type Posting<'a> = (Arc<Qp>, &'a [Sge]);

unsafe extern "C" fn close_qp(
    object: *mut ObjectHeader,
    completion: CloseCompletion,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the consumer's pointer, given up with this call.
    unsafe { close::<Qp>(object, (completion, context), |qp, done| qp.close(done)) }
}

unsafe extern "C" fn flush(qp: *mut Object) {
    // SAFETY: the consumer's pointer.
    unsafe { with_or((), qp, |qp: Arc<Qp>| qp.flush()) };
}

pub(super) fn number(context: *mut c_void) -> u64 {
    context.expose_provenance() as u64
}

/// Send, with or without a token to invalidate.
///
/// # Safety
/// The consumer's pointers, as the interface has them.
unsafe fn post_send(
    qp: *mut Object,
    context: *mut c_void,
    list: (*const Sge, u32),
    flags: u32,
    invalidate: Option<u32>,
) -> i32 {
    // SAFETY: this function's contract.
    unsafe {
        on((qp, list), |(qp, list): Posting<'_>| {
            let post = |data: &Data<'_>| qp.send(number(context), data, flags, invalidate);
            with_data(list, flags, qp.inline_limit(), post)
        })
    }
}

unsafe extern "C" fn send(
    qp: *mut Object,
    context: *mut c_void,
    list: *const Sge,
    count: u32,
    flags: u32,
) -> i32 {
    // SAFETY: the consumer's pointers.
    unsafe { post_send(qp, context, (list, count), flags, None) }
}

unsafe extern "C" fn send_and_invalidate(
    qp: *mut Object,
    context: *mut c_void,
    list: *const Sge,
    count: u32,
    flags: u32,
    token: u32,
) -> i32 {
    // SAFETY: the consumer's pointers.
    unsafe { post_send(qp, context, (list, count), flags, Some(token)) }
}

unsafe extern "C" fn receive(
    qp: *mut Object,
    context: *mut c_void,
    list: *const Sge,
    count: u32,
) -> i32 {
    let run = |(qp, list): Posting<'_>| translated(list, |sges| qp.receive(number(context), sges));
    // SAFETY: the consumer's pointers.
    unsafe { on((qp, (list, count)), run) }
}

unsafe extern "C" fn read(
    qp: *mut Object,
    context: *mut c_void,
    list: *const Sge,
    count: u32,
    address: u64,
    token: u32,
    flags: u32,
) -> i32 {
    let run = |(qp, list): Posting<'_>| {
        translated(list, |sges| qp.read(number(context), sges, address, token, flags))
    };
    // SAFETY: the consumer's pointers.
    unsafe { on((qp, (list, count)), run) }
}

unsafe extern "C" fn write(
    qp: *mut Object,
    context: *mut c_void,
    list: *const Sge,
    count: u32,
    address: u64,
    token: u32,
    flags: u32,
) -> i32 {
    // SAFETY: the consumer's pointers.
    unsafe {
        on((qp, (list, count)), |(qp, list): Posting<'_>| {
            let post = |data: &Data<'_>| qp.write(number(context), data, address, token, flags);
            with_data(list, flags, qp.inline_limit(), post)
        })
    }
}

unsafe extern "C" fn bind(
    qp: *mut Object,
    context: *mut c_void,
    mr: *mut Object,
    mw: *mut Object,
    address: *mut c_void,
    length: usize,
    flags: u32,
) -> i32 {
    let run = |(qp, mr, mw): (Arc<Qp>, Arc<Mr>, Arc<Mw>)| {
        // The address is an index (NDK MW-3).
        qp.bind(number(context), &mr, &mw, address.addr() as u64, length as u64, flags)
    };
    // SAFETY: the consumer's pointers.
    unsafe { on((qp, mr, mw), run) }
}

/// The object that NdkInvalidate ends: the header says which (NDK INV-1).
enum Ends {
    Window(Arc<Mw>),
    Fast(Arc<Mr>),
}

impl Found for Ends {
    type From = *mut ObjectHeader;

    unsafe fn find(header: *mut ObjectHeader) -> Option<Ends> {
        let object = header.cast::<Object>();
        // SAFETY: this function's contract.
        let (window, region) = unsafe { (Found::find(object), Found::find(object)) };
        window.map(Ends::Window).or(region.map(Ends::Fast))
    }
}

unsafe extern "C" fn invalidate(
    qp: *mut Object,
    context: *mut c_void,
    object: *mut ObjectHeader,
    flags: u32,
) -> i32 {
    let run = |(qp, ends): (Arc<Qp>, Ends)| match ends {
        Ends::Window(mw) => qp.invalidate(number(context), &mw, flags),
        Ends::Fast(mr) => qp.invalidate_fast(number(context), &mr, flags),
    };
    // SAFETY: the consumer's pointers.
    unsafe { on((qp, object), run) }
}

unsafe extern "C" fn fast_register(
    qp: *mut Object,
    context: *mut c_void,
    mr: *mut Object,
    count: u32,
    array: *const i64,
    fbo: u32,
    length: usize,
    base: *mut c_void,
    flags: u32,
) -> i32 {
    let run = |(qp, mr, pages): (Arc<Qp>, Arc<Mr>, &[i64])| {
        let pages: Vec<u64> = pages.iter().map(|page| *page as u64).collect();
        let place = (u64::from(fbo), length as u64, base.addr() as u64);
        // SAFETY: the consumer has pinned the pages and keeps them until the registration ends.
        unsafe { qp.fast_register(number(context), &mr, &pages, place, flags) }
    };
    // SAFETY: the consumer's pointers.
    unsafe { on((qp, mr, (array, count)), run) }
}
