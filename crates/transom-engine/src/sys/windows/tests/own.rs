//! Tests of what only this system has: exceptions and their codes.

use super::tests::put;
use super::vanishing::{PAGE, Pages};
use super::*;
use std::net::{IpAddr, SocketAddr};

/// By the system's table of sockets with their processes. Wine 8 names no process whose
/// socket has carried nothing.
pub(super) fn ways_to_know_a_peer() -> Vec<fn(SocketAddr, SocketAddr) -> bool> {
    if is_wine() {
        eprintln!("not shown: Wine 8 names no process whose socket has carried nothing");
        return Vec::new();
    }
    vec![peer_is_same_user]
}

/// Addresses of this machine at each of which a socket without an address answers as that address. Wine 8
/// sends from the address that Linux chooses, and Windows names no destination of messages of its own.
pub(super) const ADDRESSES: [&str; 1] = ["127.0.0.1"];

/// A sender chooses no fields of a header.
pub(super) const FIELDS: [IpFields; 2] = [IpFields { traffic_class: 0, hop_limit: 0 }; 2];

/// Whether the destination of a message to `address` is named as it should be: not at all is right.
pub(super) fn is_named(destination: IpAddr, address: IpAddr) -> bool {
    destination == address || destination.is_unspecified()
}

/// Whether this is Wine, whose own library has a function that no other has.
pub(super) fn is_wine() -> bool {
    use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleA, GetProcAddress};
    // SAFETY: names that end with a zero; the library is part of every process.
    unsafe {
        let library = GetModuleHandleA(c"ntdll.dll".as_ptr().cast());
        GetProcAddress(library, c"wine_get_version".as_ptr().cast()).is_some()
    }
}

/// A program that dereferences a wild pointer still dies of it.
#[test]
fn a_crash_of_the_program_is_still_a_crash() {
    if std::env::var_os("TRANSOM_TEST_CHILD").is_none() {
        let name = "sys::own_tests::a_crash_of_the_program_is_still_a_crash";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", name]).env("TRANSOM_TEST_CHILD", "1");
        let status = child.output().unwrap().status;
        // An exception's code: that of the violation, or under Wine that of its missing debugger.
        let code = status.code().map(i32::cast_unsigned);
        assert!(code.is_some_and(|code| code >> 28 == 0xc), "{status}");
        return;
    }
    assert!(put(0, &[1]).is_err());
    // SAFETY: deliberately not: address 16 is never mapped, and the process dies here.
    unsafe { std::ptr::without_provenance_mut::<u8>(16).write_volatile(1) };
}

/// ND2 R9.
#[test]
fn ranges_without_the_needed_memory_are_refused() {
    let pages = Pages::new();
    let (at, second) = (pages.at(0), pages.at(PAGE));
    assert_eq!(check_pages(at, 2 * PAGE as u64, true), Ok(()));
    pages.protect_second(true);
    assert_eq!(check_pages(at, 2 * PAGE as u64, false), Ok(()));
    assert_eq!(check_pages(at, PAGE as u64, true), Ok(()));
    assert_eq!(check_pages(at, PAGE as u64 + 1, true), Err(PageError::ReadOnly { at: second }));
    pages.protect_second(false);
    assert_eq!(check_pages(second, 1, false), Err(PageError::NoAccess { at: second }));
    pages.unmap_second();
    assert_eq!(check_pages(at, PAGE as u64 + 1, false), Err(PageError::Hole { at: second }));
    assert_eq!(check_pages(u64::MAX - 10, 100, false), Err(PageError::Hole { at: u64::MAX - 10 }));
}
