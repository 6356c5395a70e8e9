//! Objects, their counts, and recognising our own.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{OutPtr, guard};
use crate::guid::{Guid, IID_IUnknown};
use crate::status::{E_NOINTERFACE, E_POINTER, ND_SUCCESS};

/// A slot of a table of methods.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method(*const ());

// SAFETY: it points to code.
unsafe impl Sync for Method {}
// SAFETY: as above.
unsafe impl Send for Method {}

impl Method {
    pub(crate) const fn of(code: *const ()) -> Method {
        Method(code)
    }

    pub(crate) const fn query_interface<T: Class>() -> Method {
        Method(query_interface::<T> as extern "system" fn(_, _, _) -> _ as *const ())
    }

    pub(crate) const fn add_ref<T: Class>() -> Method {
        Method(add_ref::<T> as extern "system" fn(_) -> _ as *const ())
    }

    pub(crate) const fn release<T: Class>() -> Method {
        Method(release::<T> as extern "system" fn(_) -> _ as *const ())
    }
}

/// The facts about an interface's implementation.
pub(crate) trait Class: Send + Sync + Sized + 'static {
    /// Identifiers it answers to besides IUnknown's. All with the same pointer.
    const IIDS: &'static [Guid];
    /// The methods in slot order.
    const METHODS: &'static [Method];
    /// A number that no other class of this process has: the address of a variable of its own.
    fn identity() -> usize;
    /// The methods' names from slot 3 on.
    const SLOTS: &'static [&'static str];

    /// The program has released its last reference.
    fn released(this: &Arc<Self>) {
        let _ = this;
    }

    /// An interface with another table of methods, asked for by `iid`.
    fn tear_off(this: &Arc<Self>, iid: Guid) -> Option<NonNull<c_void>> {
        let _ = (this, iid);
        None
    }
}

/// An object in memory, as C++ sees it.
#[repr(C)]
pub(crate) struct Object<T: Class> {
    methods: *const Method,
    count: AtomicU32,
    value: Arc<T>,
}

/// `this` of a method.
#[repr(transparent)]
pub(crate) struct This<T: Class>(NonNull<Object<T>>);

impl<T: Class> Clone for This<T> {
    fn clone(&self) -> This<T> {
        *self
    }
}
impl<T: Class> Copy for This<T> {}

impl<T: Class> This<T> {
    fn object<'a>(self) -> &'a Object<T> {
        // SAFETY: `this` of a method of ours is an object of ours, which lives while the caller
        // holds the reference through which it calls.
        unsafe { self.0.as_ref() }
    }

    /// The value behind it.
    pub(crate) fn value<'a>(self) -> &'a Arc<T> {
        &self.object().value
    }
}

impl<T: Class> Object<T> {
    /// A new object with one reference, as a method table pointer for C++.
    pub(crate) fn create(value: Arc<T>) -> NonNull<c_void> {
        let object =
            Box::new(Object { methods: T::METHODS.as_ptr(), count: AtomicU32::new(1), value });
        // Not `Box::leak` and a reference: the count is what keeps it.
        NonNull::from(Box::leak(object)).cast()
    }

    /// A new object for a caller who asked for `iid`.
    pub(crate) fn give(value: Arc<T>, iid: Guid, out: OutPtr<usize>) -> Result<i32, i32> {
        if out.is_null() {
            T::released(&value);
            return Err(E_POINTER);
        }
        if iid != IID_IUnknown && !T::IIDS.contains(&iid) {
            T::released(&value);
            out.put(0);
            return Err(E_NOINTERFACE);
        }
        out.put(Object::create(value).as_ptr() as usize);
        Ok(ND_SUCCESS)
    }
}

/// Identifies a class of this copy of the library, and nothing else.
fn private_iid<T: Class>() -> Guid {
    Guid(0x5452_414E, 0x534F, 0x4D21, (T::identity() as u64).to_ne_bytes())
}

extern "system" fn query_interface<T: Class>(
    this: This<T>,
    iid: super::InPtr<Guid>,
    out: OutPtr<usize>,
) -> i32 {
    guard(|| {
        if out.is_null() {
            return E_POINTER;
        }
        let Some(iid) = iid.get() else {
            out.put(0);
            return E_POINTER;
        };
        if iid == IID_IUnknown || T::IIDS.contains(&iid) || iid == private_iid::<T>() {
            add_ref(this);
            out.put(this.0.as_ptr() as usize);
            return ND_SUCCESS;
        }
        match T::tear_off(this.value(), iid) {
            Some(other) => {
                out.put(other.as_ptr() as usize);
                ND_SUCCESS
            }
            None => {
                out.put(0);
                E_NOINTERFACE
            }
        }
    })
}

extern "system" fn add_ref<T: Class>(this: This<T>) -> u32 {
    this.object().count.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

extern "system" fn release<T: Class>(this: This<T>) -> u32 {
    let left = this.object().count.fetch_sub(1, Ordering::AcqRel).wrapping_sub(1);
    if left == 0 {
        guard(|| {
            T::released(this.value());
            // SAFETY: made by `create`; the count says that no reference is left, so that nothing
            // else will touch it.
            drop(unsafe { Box::from_raw(this.0.as_ptr()) });
        });
    }
    left
}

/// An `IUnknown*` argument: ours, a foreign object, or null.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnyPtr(Option<NonNull<Unknown>>);

#[repr(C)]
#[derive(Debug)]
struct Unknown {
    methods: *const UnknownMethods,
}

#[repr(C)]
struct UnknownMethods {
    query_interface:
        extern "system" fn(NonNull<Unknown>, *const Guid, *mut Option<NonNull<c_void>>) -> i32,
    add_ref: extern "system" fn(NonNull<Unknown>) -> u32,
    release: extern "system" fn(NonNull<Unknown>) -> u32,
}

impl AnyPtr {
    /// Whether it is null.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_none()
    }

    /// The value, if it is an object of class `T` of this library. Asked by QueryInterface, so that
    /// foreign objects are refused and not misread (ND2 1.6).
    pub(crate) fn value<T: Class>(self) -> Option<Arc<T>> {
        let unknown = self.0?;
        let iid = private_iid::<T>();
        let mut out = None;
        // SAFETY: an `IUnknown*` argument is null or a COM object (ND2 1.6), whose first word
        // points to a table that starts with IUnknown's methods.
        let methods = unsafe { &*unknown.as_ref().methods };
        if (methods.query_interface)(unknown, &iid, &mut out) != ND_SUCCESS {
            return None;
        }
        let this = This::<T>(out?.cast());
        let value = this.value().clone();
        release(this);
        Some(value)
    }
}

/// An object of an adapter's.
pub(crate) trait Member: Class {
    /// The class of the adapter.
    type Adapter;

    /// The adapter.
    fn adapter(&self) -> &Arc<Self::Adapter>;
}

impl AnyPtr {
    /// The value, if it is an object of class `T` that belongs to `adapter` (ND2 1.6).
    pub(crate) fn of<T: Member>(
        self,
        adapter: &Arc<T::Adapter>,
        invalid: i32,
    ) -> Result<Arc<T>, i32> {
        self.value::<T>().filter(|value| Arc::ptr_eq(value.adapter(), adapter)).ok_or(invalid)
    }
}

/// Classes whose values have a field `adapter`.
macro_rules! members {
    ($adapter:ty: $($class:ty),*) => {
        $(impl $crate::com::Member for $class {
            type Adapter = $adapter;

            fn adapter(&self) -> &std::sync::Arc<$adapter> {
                &self.adapter
            }
        })*
    };
}
pub(crate) use members;

static LIVE: AtomicU64 = AtomicU64::new(0);

/// Objects of this library in this process.
pub(crate) fn live_objects() -> u64 {
    LIVE.load(Ordering::Acquire)
}

/// Counts the value it is part of.
#[derive(Debug)]
pub(crate) struct Alive(());

impl Alive {
    pub(crate) fn new() -> Alive {
        LIVE.fetch_add(1, Ordering::AcqRel);
        Alive(())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::class;
    use super::*;

    struct Mortal(Arc<AtomicBool>);

    class!(Mortal, [], {
        fn release_within(this: AnyPtr) -> i32;
    });

    impl Mortal {
        fn release_within(self: &Arc<Self>, this: AnyPtr) -> i32 {
            let dropped = self.0.clone();
            let object = This::<Mortal>(this.0.unwrap().cast());
            assert_eq!(release(object), 0);
            i32::from(dropped.load(Ordering::Acquire))
        }
    }

    impl Drop for Mortal {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }

    /// As by a thread that has dequeued the call's completion already.
    #[test]
    fn an_object_that_is_released_during_a_call_lives_until_the_call_returns() {
        let dropped = Arc::new(AtomicBool::new(false));
        let object = Object::create(Arc::new(Mortal(dropped.clone())));
        let call = Mortal::METHODS[3].0;
        // SAFETY: slot 3 of the table above, with its signature.
        let call: extern "system" fn(This<Mortal>, AnyPtr) -> i32 =
            unsafe { std::mem::transmute(call) };
        assert_eq!(call(This(object.cast()), AnyPtr(Some(object.cast()))), 0);
        assert!(dropped.load(Ordering::Acquire));
    }
}
