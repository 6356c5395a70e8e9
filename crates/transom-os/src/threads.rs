//! Threads of a library, in a process whose caller may have chosen the environment.

use std::thread::Builder;

/// Bytes of a thread's stack: as many as the standard library takes by itself.
const STACK: usize = 2 << 20;

/// A thread to be started. The standard library asks the environment (RUST_MIN_STACK) for the stack of a thread whose
/// size is not said, and a program with rights that its caller lacks takes nothing from there: too small a stack
/// would end it, and too large a one would leave it without threads.
pub fn builder() -> Builder {
    Builder::new().stack_size(STACK)
}
