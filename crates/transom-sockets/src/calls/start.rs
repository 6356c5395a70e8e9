//! Calls that start other programs. A program that inherits a young connection counts apart from this
//! one, so that the connection stays with TCP.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::AtomicPtr;

use super::calls;
use crate::said;
use crate::started::{What, starts};

type Text = *const c_char;
type Words = *const *const c_char;

const INHERITED: Words = std::ptr::null();

calls! {
    fn execve(path: Text, words: Words, variables: Words) -> c_int, -1; |next| {
        let _kept = starts(What::Path(path), variables, false);
        next(path, words, variables)
    }

    fn execv(path: Text, words: Words) -> c_int, -1; |next| {
        let _kept = starts(What::Path(path), INHERITED, false);
        next(path, words)
    }

    fn execvp(file: Text, words: Words) -> c_int, -1; |next| {
        let _kept = starts(What::Name(file), INHERITED, false);
        next(file, words)
    }

    fn execvpe(file: Text, words: Words, variables: Words) -> c_int, -1; |next| {
        let _kept = starts(What::Name(file), variables, false);
        next(file, words, variables)
    }

    fn fexecve(fd: c_int, words: Words, variables: Words) -> c_int, -1; |next| {
        let _kept = starts(What::Descriptor(fd), variables, false);
        next(fd, words, variables)
    }

    fn execveat(fd: c_int, path: Text, words: Words, variables: Words, flags: c_int) -> c_int, -1; |next| {
        let what = if flags & libc::AT_EMPTY_PATH != 0 { What::Descriptor(fd) } else { What::Path(path) };
        let _kept = starts(what, variables, false);
        next(fd, path, words, variables, flags)
    }

    fn posix_spawn(
        pid: *mut c_int, path: Text, actions: *const c_void, attributes: *const c_void, words: Words,
        variables: Words
    ) -> c_int, libc::ENOSYS; |next| {
        let _kept = starts(What::Path(path), variables, true);
        next(pid, path, actions, attributes, words, variables)
    }

    fn posix_spawnp(
        pid: *mut c_int, file: Text, actions: *const c_void, attributes: *const c_void, words: Words,
        variables: Words
    ) -> c_int, libc::ENOSYS; |next| {
        let _kept = starts(What::Name(file), variables, true);
        next(pid, file, actions, attributes, words, variables)
    }

    fn _exit(status: c_int) -> (), Default::default(); |next| {
        said::at_exit();
        next(status);
    }

    fn _Exit(status: c_int) -> (), Default::default(); |next| {
        said::at_exit();
        next(status);
    }

    fn system(command: Text) -> c_int, -1; |next| {
        let _kept = (!command.is_null()).then(|| starts(What::Other, INHERITED, true));
        next(command)
    }

    fn popen(command: Text, mode: Text) -> *mut libc::FILE, std::ptr::null_mut(); |next| {
        let _kept = starts(What::Other, INHERITED, true);
        next(command, mode)
    }

    fn _IO_popen(command: Text, mode: Text) -> *mut libc::FILE, std::ptr::null_mut(); |next| {
        let _kept = starts(What::Other, INHERITED, true);
        next(command, mode)
    }
}

/// Define calls with a varying number of arguments. What goes on to the next definition is the call's
/// own frame: registers and stack are as the program left them.
macro_rules! varying {
    ($($name:ident: $prepare:ident by $what:ident),*) => {
        $(
            extern "C" fn $prepare(file: Text) -> *mut c_void {
                static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
                const NAME: &str = concat!(stringify!($name), "\0");
                // The variables of `execle` lie behind its words: they are taken for this process's.
                std::mem::forget(starts(What::$what(file), INHERITED, false));
                super::next(&NEXT, CStr::from_bytes_with_nul(NAME.as_bytes()).unwrap_or_default())
            }

            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() -> c_int {
                // Seven words on the stack behind the return address align it for the call.
                naked_asm!(
                    "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                    "call {prepare}",
                    "mov r11, rax",
                    "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                    "test r11, r11",
                    "jz 2f",
                    "jmp r11",
                    "2: mov eax, -1",
                    "ret",
                    prepare = sym $prepare,
                )
            }
        )*
    };
}

varying! {
    execl: before_execl by Path,
    execlp: before_execlp by Name,
    execle: before_execle by Path
}
