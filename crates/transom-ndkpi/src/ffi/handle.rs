//! The memory that the consumer's pointers point to.

use std::ffi::c_void;
use std::sync::Arc;

use crate::types::{Object, ObjectHeader, ObjectType, Version};

/// The visible part in front, then ours. Only the header and `dispatch` are the consumer's; the
/// table is found by type, never through `dispatch` (NDK OB-2).
#[repr(C)]
struct Handle<T> {
    object: Object,
    inner: Arc<T>,
}

/// An object with a handle.
pub(super) trait HandleKind: Send + Sync + 'static {
    const TYPE: ObjectType;
    fn table() -> *const c_void;
}

/// A handle for an object (NDK OB-1).
pub(super) fn new<T: HandleKind>(version: Version, inner: Arc<T>) -> *mut Object {
    let header = ObjectHeader {
        version,
        object_type: T::TYPE as u32,
        ndk_reserved: [std::ptr::null_mut(); 4],
    };
    let object = Object { header, dispatch: T::table() };
    Box::into_raw(Box::new(Handle { object, inner })).cast()
}

/// The object behind a pointer. `None` for NULL and for an object of another type.
///
/// # Safety
/// `object` is NULL or a live handle.
pub(super) unsafe fn get<T: HandleKind>(object: *mut Object) -> Option<Arc<T>> {
    // SAFETY: this function's contract; every handle begins with a header.
    let header = unsafe { object.cast::<ObjectHeader>().as_ref() }?;
    if header.object_type != T::TYPE as u32 {
        return None;
    }
    // SAFETY: the type says which handle it is. The reference is cloned, so that a callback that
    // closes the object inside the call does not pull it away.
    Some(Arc::clone(unsafe { &(*object.cast::<Handle<T>>()).inner }))
}

/// Give the handle back. The object lives on as long as something of ours needs it.
///
/// # Safety
/// `object` is a live handle of this type, and is not used again.
pub(super) unsafe fn free<T: HandleKind>(object: *mut Object) {
    // SAFETY: this function's contract; made by `Box::into_raw` in `new`.
    drop(unsafe { Box::from_raw(object.cast::<Handle<T>>()) });
}
