//! The end of the process, and the callers of a function.

use std::ffi::{c_int, c_void};
use std::sync::{Once, OnceLock};

/// Looks at the status with which the process exits; the one to exit with instead, if there is one.
type ExitHook = fn(i32) -> Option<i32>;

/// Functions that are called at exit, in this order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AtExit {
    /// The ledger of grants.
    GrantLedger,
    /// Captures.
    Captures,
}

static HOOKS: [OnceLock<ExitHook>; 2] = [const { OnceLock::new() }; 2];

unsafe extern "C" {
    /// As `atexit`, with the status; of the GNU C library, in one list with it.
    #[link_name = "on_exit"]
    fn register_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

extern "C" fn hook(status: c_int, _: *mut c_void) {
    let looked = std::panic::catch_unwind(|| {
        HOOKS.iter().filter_map(OnceLock::get).fold(None, |before, hook| hook(status).or(before))
    });
    if let Ok(Some(status)) = looked {
        // SAFETY: the C library lets a function of the list call this: those left in the list run,
        // buffers are written, and this status takes the place of the one before.
        unsafe { libc::exit(status) };
    }
}

/// Have a function called when the process exits, behind those that are registered later. Of each part
/// only the first one is, once.
///
/// # Errors
/// Why the system cannot do this; none here.
#[allow(clippy::unnecessary_wraps, reason = "another system has no such calls")]
pub(crate) fn add_exit_hook(part: AtExit, function: ExitHook) -> Result<(), &'static str> {
    static REGISTER: Once = Once::new();
    let _ = HOOKS[part as usize].set(function);
    REGISTER.call_once(|| {
        // SAFETY: the function is never unloaded: libraries of Transom are linked with `-z nodelete`.
        // The argument is not used.
        unsafe { register_exit(hook, std::ptr::null_mut()) };
    });
    Ok(())
}

/// Return addresses of the calling functions, the nearest first.
pub(crate) fn call_frames() -> Vec<usize> {
    const MOST: usize = 32;
    let mut frames = [std::ptr::null_mut::<c_void>(); MOST];
    // SAFETY: the array has as many places as are said.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), MOST as c_int) };
    frames.iter().take(usize::try_from(count).unwrap_or(0)).map(|frame| frame.addr()).collect()
}
