//! `dprintf` and its kin. The C library writes their text by a call of its own, so the text is made here.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};

use super::calls;
use crate::table;

/// A `va_list`, which is passed by its address.
type List = *mut c_void;

unsafe extern "C" {
    fn vasprintf(to: *mut *mut c_char, format: *const c_char, list: List) -> c_int;
    fn __vasprintf_chk(
        to: *mut *mut c_char,
        flag: c_int,
        format: *const c_char,
        list: List,
    ) -> c_int;
    fn backtrace_symbols(calls: *const *mut c_void, count: c_int) -> *mut *mut c_char;
}

/// Write bytes to a connection, as the C library does: until all are written or a write fails.
///
/// # Safety
/// There are `length` bytes.
unsafe fn put_all(fd: c_int, text: *const c_char, length: usize) -> bool {
    let mut done = 0;
    while done < length {
        let rest = text.wrapping_add(done).cast();
        // SAFETY: the caller's.
        match usize::try_from(unsafe { super::io::write(fd, rest, length - done) }) {
            Ok(written) => done += written,
            Err(_) => return false,
        }
    }
    true
}

/// Write a text to a connection.
///
/// # Safety
/// The text has `length` bytes, and is `malloc`'s.
unsafe fn put(fd: c_int, text: *mut c_char, length: c_int) -> c_int {
    // SAFETY: the text has so many bytes.
    let done = unsafe { put_all(fd, text, usize::try_from(length).unwrap_or_default()) };
    let error = std::io::Error::last_os_error().raw_os_error();
    // SAFETY: the caller's, and used no more.
    unsafe { libc::free(text.cast()) };
    if done {
        return length;
    }
    crate::sys::fail(error.unwrap_or(libc::EIO)) as c_int
}

calls! {
    fn vdprintf(fd: c_int, format: *const c_char, list: List) -> c_int, -1; |next| {
        if table::hold_any(fd).is_none() {
            return next(fd, format, list);
        }
        let mut text = std::ptr::null_mut();
        match vasprintf(&raw mut text, format, list) {
            -1 => -1,
            length => put(fd, text, length),
        }
    }

    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, list: List) -> c_int, -1; |next| {
        if table::hold_any(fd).is_none() {
            return next(fd, flag, format, list);
        }
        let mut text = std::ptr::null_mut();
        match __vasprintf_chk(&raw mut text, flag, format, list) {
            -1 => -1,
            length => put(fd, text, length),
        }
    }
}

calls! {
    fn backtrace_symbols_fd(calls: *const *mut c_void, count: c_int, fd: c_int) -> (), Default::default(); |next| {
        if table::hold_any(fd).is_none() {
            return next(calls, count, fd);
        }
        let lines = backtrace_symbols(calls, count);
        for at in 0..usize::try_from(count).unwrap_or_default() {
            if lines.is_null() {
                break;
            }
            let line = *lines.wrapping_add(at);
            put_all(fd, line, libc::strlen(line));
            put_all(fd, c"\n".as_ptr(), 1);
        }
        libc::free(lines.cast());
    }

    fn __backtrace_symbols_fd(calls: *const *mut c_void, count: c_int, fd: c_int) -> (), Default::default(); |next| {
        backtrace_symbols_fd(calls, count, fd);
    }
}

/// Define a call whose arguments vary behind `$fixed` bytes of registers: the list of them goes to
/// the call that takes a list, in the register behind the others.
macro_rules! listing {
    ($($name:ident: $call:ident, $fixed:literal, $register:literal);*) => {
        $(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() -> c_int {
                // A list is 24 bytes, and the registers' place behind it has 176 (System V ABI, 3.5.7).
                naked_asm!(
                    "sub rsp, 216",
                    "mov [rsp + 32], rdi", "mov [rsp + 40], rsi", "mov [rsp + 48], rdx",
                    "mov [rsp + 56], rcx", "mov [rsp + 64], r8", "mov [rsp + 72], r9",
                    "test al, al",
                    "jz 2f",
                    "movaps [rsp + 80], xmm0", "movaps [rsp + 96], xmm1",
                    "movaps [rsp + 112], xmm2", "movaps [rsp + 128], xmm3",
                    "movaps [rsp + 144], xmm4", "movaps [rsp + 160], xmm5",
                    "movaps [rsp + 176], xmm6", "movaps [rsp + 192], xmm7",
                    "2:",
                    concat!("mov dword ptr [rsp], ", $fixed),
                    "mov dword ptr [rsp + 4], 48",
                    "lea rax, [rsp + 224]",
                    "mov [rsp + 8], rax",
                    "lea rax, [rsp + 32]",
                    "mov [rsp + 16], rax",
                    concat!("mov ", $register, ", rsp"),
                    "call {call}",
                    "add rsp, 216",
                    "ret",
                    call = sym $call,
                )
            }
        )*
    };
}

listing! {
    dprintf: vdprintf, 16, "rdx";
    __dprintf_chk: __vdprintf_chk, 24, "rcx"
}
