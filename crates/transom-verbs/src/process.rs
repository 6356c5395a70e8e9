//! Values that each process has of its own, a forked child, too.

use std::convert::Infallible;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that a process makes when it needs it first, and that is never freed. Finding it takes no lock:
/// a forked child could have inherited that of a thread which it does not have (Verbs V146).
#[derive(Debug)]
pub(crate) struct PerProcess<T>(AtomicPtr<Made<T>>);

#[derive(Debug)]
struct Made<T> {
    process: u32,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The value of this process, as `make` makes it, which is told whether a parent has had one. Of two
    /// that are made at once, one is dropped.
    pub(crate) fn get<E>(
        &'static self,
        make: impl FnOnce(bool) -> Result<T, E>,
    ) -> Result<&'static T, E> {
        let process = std::process::id();
        let before = self.0.load(Ordering::Acquire);
        // SAFETY: null, or stored below and never freed.
        match unsafe { before.as_ref() } {
            Some(made) if made.process == process => return Ok(&made.value),
            _ => {}
        }
        let value = make(!before.is_null())?;
        let made = Box::into_raw(Box::new(Made { process, value }));
        let stored = self.0.compare_exchange(before, made, Ordering::AcqRel, Ordering::Acquire);
        // SAFETY: what is stored is never freed, and what was not stored is nobody else's.
        unsafe {
            match stored {
                Ok(_) => Ok(&(*made).value),
                Err(other) => {
                    drop(Box::from_raw(made));
                    Ok(&(*other).value)
                }
            }
        }
    }

    /// The value, which begins empty.
    pub(crate) fn get_or_default(&'static self) -> &'static T
    where
        T: Default,
    {
        let Ok(value) = self.get(|_| Ok::<T, Infallible>(T::default()));
        value
    }
}
