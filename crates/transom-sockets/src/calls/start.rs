//! Calls that start other programs. A program that inherits a young connection counts apart from this
//! one, so that the connection stays with TCP.

use std::ffi::{c_char, c_int, c_void};

use super::calls;
use crate::young;

type Text = *const c_char;
type Words = *const *const c_char;

calls! {
    fn execve(path: Text, words: Words, variables: Words) -> c_int, -1; |next| {
        young::all_stay();
        next(path, words, variables)
    }

    fn execv(path: Text, words: Words) -> c_int, -1; |next| {
        young::all_stay();
        next(path, words)
    }

    fn execvp(file: Text, words: Words) -> c_int, -1; |next| {
        young::all_stay();
        next(file, words)
    }

    fn execvpe(file: Text, words: Words, variables: Words) -> c_int, -1; |next| {
        young::all_stay();
        next(file, words, variables)
    }

    fn fexecve(fd: c_int, words: Words, variables: Words) -> c_int, -1; |next| {
        young::all_stay();
        next(fd, words, variables)
    }

    fn posix_spawn(
        pid: *mut c_int, path: Text, actions: *const c_void, attributes: *const c_void, words: Words,
        variables: Words
    ) -> c_int, libc::ENOSYS; |next| {
        young::all_stay();
        next(pid, path, actions, attributes, words, variables)
    }

    fn posix_spawnp(
        pid: *mut c_int, file: Text, actions: *const c_void, attributes: *const c_void, words: Words,
        variables: Words
    ) -> c_int, libc::ENOSYS; |next| {
        young::all_stay();
        next(pid, file, actions, attributes, words, variables)
    }

    fn system(command: Text) -> c_int, -1; |next| {
        if !command.is_null() {
            young::all_stay();
        }
        next(command)
    }

    fn popen(command: Text, mode: Text) -> *mut libc::FILE, std::ptr::null_mut(); |next| {
        young::all_stay();
        next(command, mode)
    }
}
