//! The C entries: pointers become objects here, and nowhere else. Each entry catches a panic.

mod adapter;
mod address;
mod connector;
mod cq;
mod handle;
mod listener;
mod memory;
mod pd;
mod qp;
mod shared_endpoint;
mod srq;

pub use adapter::{NdkCloseAdapter, NdkExplain, NdkName, NdkOpenAdapter, OpenOptions};

use std::ffi::c_void;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::Status;
use crate::deliver::{Call, Done, Pending};
use crate::dispatch::{CloseCompletion, CreateCompletion, RequestCompletion};
use crate::life::Life;
use crate::objects::{Adapter, Pd};
use crate::types::{ExtensionInterface, Guid, Object, ObjectHeader, Version};
use handle::{HandleKind, free, new};

/// The checks that a function's arguments must pass to be looked at any further. NULL and objects
/// of another kind are recognised here, and only here.
pub(super) trait Found: Sized {
    /// As the consumer passes it.
    type From;

    /// # Safety
    /// The pointers are NULL or what the interface says.
    unsafe fn find(from: Self::From) -> Option<Self>;
}

impl<T: HandleKind> Found for Arc<T> {
    type From = *mut Object;

    unsafe fn find(object: *mut Object) -> Option<Arc<T>> {
        // SAFETY: this function's contract.
        unsafe { handle::get(object) }
    }
}

impl<A: Found, B: Found> Found for (A, B) {
    type From = (A::From, B::From);

    unsafe fn find((a, b): Self::From) -> Option<(A, B)> {
        // SAFETY: this function's contract.
        unsafe { Some((A::find(a)?, B::find(b)?)) }
    }
}

impl<A: Found, B: Found, C: Found> Found for (A, B, C) {
    type From = (A::From, B::From, C::From);

    unsafe fn find((a, b, c): Self::From) -> Option<(A, B, C)> {
        // SAFETY: this function's contract.
        unsafe { Some((A::find(a)?, B::find(b)?, C::find(c)?)) }
    }
}

impl Found for SocketAddr {
    type From = (*const c_void, u32);

    unsafe fn find((address, length): Self::From) -> Option<SocketAddr> {
        // SAFETY: this function's contract.
        unsafe { address::read(address, length) }
    }
}

/// An array of the consumer's; NULL goes with no elements only.
impl<T> Found for &[T] {
    type From = (*const T, u32);

    unsafe fn find((first, count): Self::From) -> Option<Self> {
        match (first.is_null(), count) {
            (_, 0) => Some(&[]),
            (true, _) => None,
            // SAFETY: this function's contract; the elements stay during the call (NDK WR-5).
            (false, _) => Some(unsafe { std::slice::from_raw_parts(first, count as usize) }),
        }
    }
}

/// Run an entry on its arguments: what is no such object, address or array is
/// `INVALID_PARAMETER`, and a panic of ours ends here, as `INTERNAL_ERROR`.
///
/// # Safety
/// The pointers are NULL or what the interface says.
unsafe fn on<A: Found>(from: A::From, f: impl FnOnce(A) -> Status) -> i32 {
    let run = || {
        // SAFETY: this function's contract.
        unsafe { A::find(from) }.map_or(Status::INVALID_PARAMETER, f)
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(Status::INTERNAL_ERROR).0
}

/// Run an entry that returns something else than a status, or nothing.
///
/// # Safety
/// As [`on`].
unsafe fn with_or<A: Found, T: Copy>(otherwise: T, from: A::From, f: impl FnOnce(A) -> T) -> T {
    let run = || {
        // SAFETY: this function's contract.
        unsafe { A::find(from) }.map_or(otherwise, f)
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(otherwise)
}

/// A pointer of the consumer's that is only ever handed back to it.
#[derive(Clone, Copy)]
struct Context(usize);

impl Context {
    fn new(pointer: *mut c_void) -> Context {
        Context(pointer.expose_provenance())
    }
    fn pointer(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

/// A request's callback as the C side gave it.
fn request_done(callback: RequestCompletion, context: *mut c_void) -> Done<()> {
    let context = Context::new(context);
    Box::new(move |status, ()| {
        if let Some(callback) = callback {
            // SAFETY: the consumer's function with the consumer's context.
            unsafe { callback(context.pointer(), status.0) };
        }
    })
}

/// Objects that others are created from.
trait Parent: HandleKind {
    fn adapter(&self) -> &Adapter;
    fn life(&self) -> &Arc<Life>;
}

impl Parent for Adapter {
    fn adapter(&self) -> &Adapter {
        self
    }
    fn life(&self) -> &Arc<Life> {
        &self.life
    }
}

impl Parent for Pd {
    fn adapter(&self) -> &Adapter {
        &self.adapter
    }
    fn life(&self) -> &Arc<Life> {
        &self.life
    }
}

/// End of every create function (NDK LT-1, LT-2).
///
/// # Safety
/// `out` is NULL or may be written.
unsafe fn created<T: HandleKind>(
    parent: &impl Parent,
    (completion, context): (CreateCompletion, *mut c_void),
    out: *mut *mut Object,
    make: impl FnOnce() -> Result<Arc<T>, Status>,
) -> Status {
    let _call = Call::enter();
    let (deliverer, version) = (&parent.adapter().deliverer, parent.adapter().version);
    let give = |object: *mut Object| {
        if !out.is_null() {
            // SAFETY: this function's contract.
            unsafe { out.write(object) };
        }
    };
    let (status, object) = match make() {
        Ok(inner) => (Status::SUCCESS, new(version, inner)),
        Err(Status::INSUFFICIENT_RESOURCES) => {
            (Status::INSUFFICIENT_RESOURCES, std::ptr::null_mut())
        }
        Err(status) => {
            give(std::ptr::null_mut());
            return status;
        }
    };
    let context = Context::new(context);
    let done: Done<Context> = Box::new(move |status, object| {
        if let Some(completion) = completion {
            // SAFETY: the consumer's function; the object is new, or NULL after a failure.
            unsafe { completion(context.pointer(), status.0, object.pointer().cast()) };
        }
    });
    let pending = Pending::new(deliverer, parent.life().busy(), done);
    pending.resolve(status, Context::new(object.cast()));
    match pending.settle() {
        Ok((status, object)) => {
            give(object.pointer().cast());
            status
        }
        // The object arrives through the callback, and `out` is not touched (NDK LT-1).
        Err(_) => Status::PENDING,
    }
}

/// Every `NdkClose*`: never fails (NDK LT-3). The memory of the handle goes with the last callback.
///
/// # Safety
/// `header` came from a create function of this type, or a connect event, and is not used again.
unsafe fn close<T: HandleKind>(
    header: *mut ObjectHeader,
    (completion, context): (CloseCompletion, *mut c_void),
    close: impl FnOnce(&Arc<T>, Box<dyn FnOnce() + Send>) -> Status,
) -> i32 {
    let object = header.cast::<Object>();
    let run = |inner: Arc<T>| {
        let (context, address) = (Context::new(context), Context::new(object.cast()));
        let done = Box::new(move || {
            // SAFETY: the consumer has given it up.
            unsafe { free::<T>(address.pointer().cast()) };
            if let Some(completion) = completion {
                // SAFETY: the consumer's function with the consumer's context.
                unsafe { completion(context.pointer()) };
            }
        });
        let status = close(&inner, done);
        if status == Status::SUCCESS {
            // SAFETY: as above; `done` was not and will not be called.
            unsafe { free::<T>(object) };
        }
        status.0
    };
    // SAFETY: this function's contract. A pointer to nothing is closed already.
    unsafe { with_or(Status::SUCCESS.0, object, run) }
}

/// `NdkQueryExtension` of every object: there is none (NDK OB-5).
unsafe extern "C" fn query_extension(
    _object: *mut ObjectHeader,
    _id: *const Guid,
    _version: Version,
    _interface: *mut ExtensionInterface,
) -> i32 {
    Status::NOT_SUPPORTED.0
}
