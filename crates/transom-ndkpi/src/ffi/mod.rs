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

pub use adapter::{NdkCloseAdapter, NdkExplain, NdkOpenAdapter, OpenOptions};

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::Status;
use crate::deliver::{Call, Deliverer, Done, Pending};
use crate::dispatch::{CloseCompletion, CreateCompletion, RequestCompletion};
use crate::life::Life;
use crate::types::{ExtensionInterface, Guid, Object, ObjectHeader, Version};
use handle::{Kind, free, new};

/// Run an entry; a panic of ours ends here, as `INTERNAL_ERROR`.
fn entry(f: impl FnOnce() -> Status) -> i32 {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(Status::INTERNAL_ERROR).0
}

/// The same for entries that return something else.
fn entry_or<T>(otherwise: T, f: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(otherwise)
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

/// End of every create function (LT-1, LT-2).
///
/// # Safety
/// `out` is NULL or may be written.
unsafe fn created<T: Kind>(
    deliverer: &Deliverer,
    parent: &Arc<Life>,
    version: Version,
    (completion, context): (CreateCompletion, *mut c_void),
    out: *mut *mut Object,
    make: impl FnOnce() -> Result<Arc<T>, Status>,
) -> Status {
    let _call = Call::enter();
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
    let pending = Pending::new(deliverer, parent.busy(), done);
    pending.resolve(status, Context::new(object.cast()));
    match pending.settle() {
        Ok((status, object)) => {
            give(object.pointer().cast());
            status
        }
        // The object arrives through the callback, and `out` is not touched (LT-1).
        Err(_) => Status::PENDING,
    }
}

/// Every `NdkClose*`: never fails (LT-3). The memory of the handle goes with the last callback.
///
/// # Safety
/// `header` came from a create function of this type, or a connect event, and is not used again.
unsafe fn close<T: Kind>(
    header: *mut ObjectHeader,
    (completion, context): (CloseCompletion, *mut c_void),
    close: impl FnOnce(&Arc<T>, Box<dyn FnOnce() + Send>) -> Status,
) -> i32 {
    entry(|| {
        let object = header.cast::<Object>();
        // SAFETY: this function's contract.
        let Some(inner) = (unsafe { handle::get::<T>(object) }) else { return Status::SUCCESS };
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
        status
    })
}

/// `NdkQueryExtension` of every object: there is none (OB-5).
unsafe extern "C" fn query_extension(
    _object: *mut ObjectHeader,
    _id: *const Guid,
    _version: Version,
    _interface: *mut ExtensionInterface,
) -> i32 {
    Status::NOT_SUPPORTED.0
}
