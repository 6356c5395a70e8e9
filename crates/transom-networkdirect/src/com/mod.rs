//! COM by hand: an object is a pointer to a table of methods, a count, and a Rust value (ND2 1.6).
//!
//! The value is shared: queue pairs keep completion queues alive, and so on, without taking part in
//! the count that programs see (ND2 1.3 rule 4). All `unsafe` of the interfaces is here and in
//! [`ptr`].

mod object;
mod ptr;

pub(crate) use object::{Alive, AnyPtr, Class, Member, Object, This, live_objects, members};
pub(crate) use ptr::{InPtr, OutPtr, copy_from_program};

/// The result of a method whose body panicked: no panic crosses into C++.
pub(crate) trait OnPanic {
    /// The value.
    fn on_panic() -> Self;
}

impl OnPanic for i32 {
    fn on_panic() -> i32 {
        crate::status::ND_INTERNAL_ERROR
    }
}
impl OnPanic for u32 {
    fn on_panic() -> u32 {
        0
    }
}
impl OnPanic for usize {
    fn on_panic() -> usize {
        0
    }
}
impl OnPanic for () {
    fn on_panic() {}
}
impl OnPanic for crate::os::Handle {
    fn on_panic() -> crate::os::Handle {
        crate::os::Handle::NULL
    }
}

/// Run the body of an entry point.
pub(crate) fn guard<R: OnPanic>(body: impl FnOnce() -> R) -> R {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or_else(|_| R::on_panic())
}

/// Turns what methods return inside into what they return outside.
pub(crate) trait Answer<R> {
    /// The C value.
    fn answer(self) -> R;
}

impl Answer<i32> for crate::status::Outcome {
    fn answer(self) -> i32 {
        self.unwrap_or_else(|status| status)
    }
}
impl<R> Answer<R> for R {
    fn answer(self) -> R {
        self
    }
}

/// The table of methods of a class, in slot order: the three of IUnknown, then those listed. Each
/// calls the inherent method of the same name on the class's value. Behind the list there is room
/// for the optional members of [`Class`].
macro_rules! class {
    (
        $class:ty, [$($iid:expr),*],
        { $(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty;)* }
        $($hooks:tt)*
    ) => {
        impl $crate::com::Class for $class {
            $($hooks)*

            fn identity() -> usize {
                // Not a constant, so that it has an address, and one that nothing else has.
                static MARK: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);
                (&raw const MARK).addr()
            }

            const SLOTS: &'static [&'static str] = &[$(stringify!($name)),*];
            const IIDS: &'static [$crate::guid::Guid] = &[$($iid),*];
            const METHODS: &'static [$crate::com::Method] = {
                $(
                    extern "system" fn $name(
                        this: $crate::com::This<$class>, $($arg: $type),*
                    ) -> $ret {
                        $crate::com::guard(|| {
                            // Held for the call: its completion may be dequeued, and the object
                            // released for the last time, by another thread before it returns.
                            let value = std::sync::Arc::clone(this.value());
                            $crate::com::Answer::answer(<$class>::$name(&value $(, $arg)*))
                        })
                    }
                )*
                const TABLE: &[$crate::com::Method] = &[
                    $crate::com::Method::query_interface::<$class>(),
                    $crate::com::Method::add_ref::<$class>(),
                    $crate::com::Method::release::<$class>(),
                    $($crate::com::Method::of($name as extern "system" fn(
                        $crate::com::This<$class> $(, $type)*
                    ) -> $ret as *const ())),*
                ];
                TABLE
            };
        }
    };
}
pub(crate) use class;
pub(crate) use object::Method;
