//! `NDK_QP_DISPATCH`.

use std::ffi::c_void;

use transom_engine::{Data, Sge as EngineSge};

use super::handle::{Kind, get};
use super::{close, entry, entry_or, query_extension};
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

impl Kind for Qp {
    const TYPE: ObjectType = ObjectType::Qp;
    fn table() -> *const c_void {
        (&raw const TABLE).cast()
    }
}

/// Lists up to this long are translated without an allocation.
const SHORT: usize = 32;

/// Hand the consumer's list to `f` in the engine's shape; it is read during this call only (WR-5).
///
/// # Safety
/// `list` is NULL or has `count` entries.
unsafe fn with_list(
    list: *const Sge,
    count: u32,
    f: impl FnOnce(&[Sge], &[EngineSge]) -> Status,
) -> Status {
    let theirs: &[Sge] = match (list.is_null(), count) {
        (_, 0) => &[],
        (true, _) => return Status::INVALID_PARAMETER,
        // SAFETY: this function's contract.
        (false, _) => unsafe { std::slice::from_raw_parts(list, count as usize) },
    };
    let convert =
        |sge: &Sge| EngineSge { token: sge.token, address: sge.address, length: sge.length };
    let mut short = [EngineSge::default(); SHORT];
    match short.get_mut(..theirs.len()) {
        Some(short) => {
            short.iter_mut().zip(theirs).for_each(|(to, from)| *to = convert(from));
            f(theirs, short)
        }
        None => f(theirs, &theirs.iter().map(convert).collect::<Vec<_>>()),
    }
}

/// Hand the data of a request to `f`: a list, or with `INLINE` the bytes themselves, whose tokens
/// are not looked at (WR-9).
///
/// # Safety
/// As [`with_list`]; with `INLINE` every entry's bytes can be read.
unsafe fn with_data(
    list: *const Sge,
    count: u32,
    flags: u32,
    limit: u64,
    f: impl FnOnce(&Data<'_>) -> Status,
) -> Status {
    let with = |theirs: &[Sge], sges: &[EngineSge]| {
        if flags & op::INLINE == 0 {
            return f(&Data::Sges(sges));
        }
        let total: u64 = theirs.iter().map(|sge| u64::from(sge.length)).sum();
        if total > limit {
            return Status::INVALID_BUFFER_SIZE;
        }
        let mut bytes = Vec::with_capacity(total as usize);
        for sge in theirs {
            let from = std::ptr::with_exposed_provenance::<u8>(sge.address as usize);
            if sge.length > 0 {
                // SAFETY: the consumer says that these bytes can be read now (WR-9).
                bytes.extend_from_slice(unsafe {
                    std::slice::from_raw_parts(from, sge.length as usize)
                });
            }
        }
        f(&Data::Inline(&bytes))
    };
    // SAFETY: this function's contract.
    unsafe { with_list(list, count, with) }
}

unsafe extern "C" fn close_qp(
    object: *mut ObjectHeader,
    completion: CloseCompletion,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the consumer's pointer, given up with this call.
    unsafe { close::<Qp>(object, (completion, context), |qp, done| qp.close(done)) }
}

unsafe extern "C" fn flush(qp: *mut Object) {
    entry_or((), || {
        // SAFETY: the consumer's pointer.
        if let Some(qp) = unsafe { get::<Qp>(qp) } {
            qp.flush();
        }
    });
}

fn number(context: *mut c_void) -> u64 {
    context.expose_provenance() as u64
}

/// Send, with or without a token to invalidate.
///
/// # Safety
/// The consumer's pointers, as the interface has them.
unsafe fn post_send(
    qp: *mut Object,
    context: *mut c_void,
    (list, count): (*const Sge, u32),
    flags: u32,
    invalidate: Option<u32>,
) -> i32 {
    entry(|| {
        // SAFETY: this function's contract.
        let Some(qp) = (unsafe { get::<Qp>(qp) }) else { return Status::INVALID_PARAMETER };
        let limit = u64::from(qp.inline_limit());
        let post = |data: &Data<'_>| qp.send(number(context), data, flags, invalidate);
        // SAFETY: this function's contract.
        unsafe { with_data(list, count, flags, limit, post) }
    })
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
    entry(|| {
        // SAFETY: the consumer's pointer.
        let Some(qp) = (unsafe { get::<Qp>(qp) }) else { return Status::INVALID_PARAMETER };
        // SAFETY: the consumer's list.
        unsafe { with_list(list, count, |_, sges| qp.receive(number(context), sges)) }
    })
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
    entry(|| {
        // SAFETY: the consumer's pointer.
        let Some(qp) = (unsafe { get::<Qp>(qp) }) else { return Status::INVALID_PARAMETER };
        let post =
            |_: &[Sge], sges: &[EngineSge]| qp.read(number(context), sges, address, token, flags);
        // SAFETY: the consumer's list.
        unsafe { with_list(list, count, post) }
    })
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
    entry(|| {
        // SAFETY: the consumer's pointer.
        let Some(qp) = (unsafe { get::<Qp>(qp) }) else { return Status::INVALID_PARAMETER };
        let limit = u64::from(qp.inline_limit());
        let post = |data: &Data<'_>| qp.write(number(context), data, address, token, flags);
        // SAFETY: the consumer's list.
        unsafe { with_data(list, count, flags, limit, post) }
    })
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
    entry(|| {
        // SAFETY: the consumer's pointers.
        let objects = unsafe { (get::<Qp>(qp), get::<Mr>(mr), get::<Mw>(mw)) };
        let (Some(qp), Some(mr), Some(mw)) = objects else { return Status::INVALID_PARAMETER };
        // The address is an index (MW-3).
        qp.bind(number(context), &mr, &mw, address.addr() as u64, length as u64, flags)
    })
}

unsafe extern "C" fn invalidate(
    qp: *mut Object,
    context: *mut c_void,
    object: *mut ObjectHeader,
    flags: u32,
) -> i32 {
    entry(|| {
        let object = object.cast::<Object>();
        // SAFETY: the consumer's pointers.
        let (Some(qp), mw, mr) = (unsafe { (get::<Qp>(qp), get::<Mw>(object), get::<Mr>(object)) })
        else {
            return Status::INVALID_PARAMETER;
        };
        match (mw, mr) {
            (Some(mw), _) => qp.invalidate(number(context), &mw, flags),
            // INV-1: never a normal region; fast registration is not built.
            (None, Some(_)) => Status::INVALID_DEVICE_REQUEST,
            (None, None) => Status::INVALID_PARAMETER,
        }
    })
}

unsafe extern "C" fn fast_register(
    _qp: *mut Object,
    _context: *mut c_void,
    _mr: *mut Object,
    _pages: u32,
    _array: *const i64,
    _fbo: u32,
    _length: usize,
    _base: *mut c_void,
    _flags: u32,
) -> i32 {
    Status::NOT_SUPPORTED.0
}
