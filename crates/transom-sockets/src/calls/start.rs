//! Calls that start other programs. A program that inherits a young connection counts apart from this
//! one, so that the connection stays with TCP.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::AtomicPtr;

use super::calls;
use crate::said;
use crate::started::{What, starts};
use crate::user;

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

    // Of glibc 2.39 and later.
    fn pidfd_spawn(
        pidfd: *mut c_int, path: Text, actions: *const c_void, attributes: *const c_void, words: Words,
        variables: Words
    ) -> c_int, libc::ENOSYS; |next| {
        let _kept = starts(What::Path(path), variables, true);
        next(pidfd, path, actions, attributes, words, variables)
    }

    fn pidfd_spawnp(
        pidfd: *mut c_int, file: Text, actions: *const c_void, attributes: *const c_void, words: Words,
        variables: Words
    ) -> c_int, libc::ENOSYS; |next| {
        let _kept = starts(What::Name(file), variables, true);
        next(pidfd, file, actions, attributes, words, variables)
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
    ($($name:ident: $prepare:ident by $what:ident, $variables:ident),*) => {
        $(
            extern "C" fn $prepare(file: Text, frame: *const usize) -> *mut c_void {
                static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
                const NAME: &str = concat!(stringify!($name), "\0");
                std::mem::forget(starts(What::$what(file), $variables(frame), false));
                super::next(&NEXT, CStr::from_bytes_with_nul(NAME.as_bytes()).unwrap_or_default())
            }

            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() -> c_int {
                // Seven words on the stack behind the return address align it for the call.
                naked_asm!(
                    "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                    "mov rsi, rsp",
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

/// This process's variables.
fn inherited(_: *const usize) -> Words {
    INHERITED
}

/// The variables of a call that has them behind its words and a null. `frame`: the registers as [`varying`] has put
/// them on the stack, the last one first, and behind the return address the words that no register has.
fn behind_words(frame: *const usize) -> Words {
    /// Words in registers, of which the first one is the sixth of the frame.
    const REGISTERS: usize = 5;
    const RETURN: usize = 7;
    let word = |at: usize| {
        let place = if at < REGISTERS { REGISTERS - at } else { RETURN + 1 + at - REGISTERS };
        // SAFETY: plain words.
        unsafe { user::fetch(frame.wrapping_add(place)) }
    };
    let Some(end) = (0..).find(|at| matches!(word(*at), None | Some(0))) else { return INHERITED };
    word(end + 1).map_or(INHERITED, |variables| variables as Words)
}

varying! {
    execl: before_execl by Path, inherited,
    execlp: before_execlp by Name, inherited,
    execle: before_execle by Path, behind_words
}
