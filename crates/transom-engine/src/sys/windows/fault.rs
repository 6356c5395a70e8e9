//! The vectored exception handler: acts on faults of our copy and atomic routines only, and leaves every
//! other one to the handlers behind it.

use std::sync::Once;

use windows_sys::Win32::Foundation::{
    EXCEPTION_ACCESS_VIOLATION, EXCEPTION_IN_PAGE_ERROR, STATUS_GUARD_PAGE_VIOLATION,
};
use windows_sys::Win32::System::Diagnostics::Debug::{
    AddVectoredExceptionHandler, EXCEPTION_CONTINUE_EXECUTION, EXCEPTION_CONTINUE_SEARCH,
    EXCEPTION_POINTERS,
};

static INSTALL: Once = Once::new();

/// Install the handler if that has not happened yet. One load when it has.
#[inline]
pub(super) fn install() {
    if !INSTALL.is_completed() {
        recheck();
    }
}

/// Install the handler, ahead of those that are there. One that a program puts ahead of it later sees
/// our faults first, and has to pass on what it does not know.
#[cold]
pub fn recheck() {
    INSTALL.call_once(|| {
        // SAFETY: the handler is a function of this module, which is never unloaded while it is
        // registered.
        unsafe { AddVectoredExceptionHandler(1, Some(handler)) };
    });
}

unsafe extern "system" fn handler(about: *mut EXCEPTION_POINTERS) -> i32 {
    // SAFETY: the system passes a record and the context of the thread, writable until we return.
    let (code, context) =
        unsafe { ((*(*about).ExceptionRecord).ExceptionCode, (*about).ContextRecord) };
    // A guard page that a copy has touched is no memory of the program's data.
    let faults = [EXCEPTION_ACCESS_VIOLATION, EXCEPTION_IN_PAGE_ERROR, STATUS_GUARD_PAGE_VIOLATION];
    if faults.contains(&code) && redirect(context) {
        EXCEPTION_CONTINUE_EXECUTION
    } else {
        EXCEPTION_CONTINUE_SEARCH
    }
}

#[cfg(target_arch = "x86_64")]
fn redirect(context: *mut windows_sys::Win32::System::Diagnostics::Debug::CONTEXT) -> bool {
    // SAFETY: the context that the system has passed to the handler.
    let at = unsafe { &mut (*context).Rip };
    let fault = *at as usize;
    let resume = super::copy::machine::resume(fault);
    match resume.or_else(|| super::atomic::machine::resume(fault)) {
        Some(to) => {
            *at = to as u64;
            true
        }
        None => false,
    }
}
