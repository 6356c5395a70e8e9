//! Defects that the simulator's tests switch on one at a time, to see that they are found.
//!
//! `planted!("name")` is `false`, and gone, in everything that ships; with the feature `planted`, which
//! only tests ask for, it is whether this thread has selected that defect. None is, unless a test does.

/// Whether this thread has selected the defect of that name: `false` without the feature `planted`.
#[cfg(not(feature = "planted"))]
macro_rules! planted {
    ($name:literal) => {
        false
    };
}

/// Whether this thread has selected the defect of that name.
#[cfg(feature = "planted")]
macro_rules! planted {
    ($name:literal) => {
        $crate::planted::is($name)
    };
}

#[cfg(feature = "planted")]
thread_local! {
    static SELECTED: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") };
}

/// Select a defect for this thread; `""` for none.
#[cfg(feature = "planted")]
pub fn select(name: &'static str) {
    SELECTED.with(|selected| selected.set(name));
}

/// For the macro.
#[cfg(feature = "planted")]
#[must_use]
pub fn is(name: &str) -> bool {
    SELECTED.with(|selected| selected.get() == name)
}
