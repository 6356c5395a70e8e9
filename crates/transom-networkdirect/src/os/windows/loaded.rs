//! How long the library stays in the process.

use std::sync::Once;

use windows_sys::Win32::System::LibraryLoader::{
    GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_PIN, GetModuleHandleExW,
};

/// Keeps the library in the process until the end, however often it is freed: programs unload providers
/// without asking whether objects are alive (ND2 1.3 rule 10), and an adapter's thread ends behind
/// the last Release.
pub(crate) fn stay_loaded() {
    static ONCE: Once = Once::new();
    static MARK: u8 = 0;
    ONCE.call_once(|| {
        let flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN;
        let mut module = std::ptr::null_mut();
        // SAFETY: with the first flag the second argument is any address within a module, here of a
        // variable of this one; the handle is written to `module`. A failure leaves the library as
        // loaded as it was.
        unsafe { GetModuleHandleExW(flags, (&raw const MARK).cast(), &raw mut module) };
    });
}
