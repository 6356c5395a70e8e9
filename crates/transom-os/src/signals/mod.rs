//! Signals that a library brings about in a program of others, which must not see them: faults of copies of memory
//! that may vanish, and those of writes that the system refuses.

#[cfg(unix)]
mod faults;
#[cfg(unix)]
mod writes;

use std::fmt::{Arguments, Write as _};
use std::io::Write as _;

#[cfg(unix)]
pub use faults::{Held, Resume, is_installed, prepare, recheck};
#[cfg(unix)]
pub use writes::without_signals;

/// Without signals of this kind.
#[cfg(not(unix))]
pub fn without_signals<T>(write: impl FnOnce() -> T) -> T {
    write()
}

/// A line on standard error, as `eprintln!` has it; lost where it cannot be written, without a panic or a signal.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => { $crate::signals::write_line(::core::format_args!($($words)*)) };
}

/// Write a line to standard error: [`say!`].
pub fn write_line(words: Arguments<'_>) {
    let mut line = String::new();
    if writeln!(line, "{words}").is_ok() {
        let _ = without_signals(|| std::io::stderr().write_all(line.as_bytes()));
    }
}
