//! The end of the process, and the callers of a function: neither is asked of this system yet.

/// Why nothing can be done at the exit of a process.
pub(super) const NO_HOOKS: &str =
    "under Windows Transom is not called when a process exits; this works on Linux";

/// Looks at the status with which the process exits; the one to exit with instead, if there is one.
type ExitHook = fn(i32) -> Option<i32>;

/// Functions that are called at exit where a system can do so.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AtExit {
    /// The ledger of grants.
    GrantLedger,
    /// Captures.
    Captures,
}

/// Refused: a program may end by `ExitProcess`, of which a library learns too late to write anything.
///
/// # Errors
/// Always, with the reason.
pub(crate) fn add_exit_hook(_part: AtExit, _function: ExitHook) -> Result<(), &'static str> {
    Err(NO_HOOKS)
}

/// Return addresses of the calling functions: none, because only a ledger asks for them.
pub(crate) fn call_frames() -> Vec<usize> {
    Vec::new()
}
