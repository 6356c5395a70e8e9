//! Identity: the addresses of this machine, and the user behind a loopback connection.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::windows::ffi::OsStringExt;
use std::sync::OnceLock;

use windows_sys::Win32::Foundation::{ERROR_BUFFER_OVERFLOW, ERROR_NO_DATA, NO_ERROR};
use windows_sys::Win32::NetworkManagement::IpHelper::{
    GAA_FLAG_SKIP_ANYCAST, GAA_FLAG_SKIP_DNS_SERVER, GAA_FLAG_SKIP_MULTICAST, GetAdaptersAddresses,
    IF_TYPE_SOFTWARE_LOOPBACK, IP_ADAPTER_ADDRESSES_LH,
};
use windows_sys::Win32::NetworkManagement::Ndis::IfOperStatusUp;
use windows_sys::Win32::Networking::WinSock::{
    AF_INET, AF_INET6, AF_UNSPEC, SOCKADDR, SOCKADDR_IN, SOCKADDR_IN6,
};

use super::Interface;
use super::diag::{own_user, user_of_peer};

/// Every IP address of this machine.
///
/// # Errors
/// The error of the system.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let flags = GAA_FLAG_SKIP_ANYCAST | GAA_FLAG_SKIP_MULTICAST | GAA_FLAG_SKIP_DNS_SERVER;
    let mut size = 16 * 1024_u32;
    // The list may grow between two calls. Words, so that it is aligned.
    for _ in 0..8 {
        let mut room = vec![0_u64; size as usize / 8 + 1];
        let list = room.as_mut_ptr().cast::<IP_ADAPTER_ADDRESSES_LH>();
        // SAFETY: writes at most as many bytes as `size` says, which `room` has.
        let result = unsafe {
            GetAdaptersAddresses(AF_UNSPEC.into(), flags, std::ptr::null(), list, &raw mut size)
        };
        match result {
            // SAFETY: the system has filled in a list, which lies in `room`.
            NO_ERROR => return Ok(unsafe { all(list) }),
            ERROR_NO_DATA => return Ok(Vec::new()),
            ERROR_BUFFER_OVERFLOW => {}
            code => return Err(io::Error::from_raw_os_error(code as i32)),
        }
    }
    Err(io::ErrorKind::OutOfMemory.into())
}

/// # Safety
/// `at` is null or a list of the system's.
unsafe fn all(mut at: *const IP_ADAPTER_ADDRESSES_LH) -> Vec<Interface> {
    let mut found = Vec::new();
    // SAFETY: each entry is alive, and points to the next one and to its addresses, or to nothing.
    unsafe {
        while let Some(adapter) = at.as_ref() {
            let name = text(adapter.FriendlyName);
            let mut unicast = adapter.FirstUnicastAddress.cast_const();
            while let Some(one) = unicast.as_ref() {
                if let Some(address) = ip_of(one.Address.lpSockaddr) {
                    found.push(Interface {
                        name: name.clone(),
                        address,
                        loopback: adapter.IfType == IF_TYPE_SOFTWARE_LOOPBACK
                            || address.is_loopback(),
                        up: adapter.OperStatus == IfOperStatusUp,
                    });
                }
                unicast = one.Next;
            }
            at = adapter.Next;
        }
    }
    found
}

/// # Safety
/// `text` is null or ends with a zero.
unsafe fn text(text: *const u16) -> String {
    if text.is_null() {
        return String::new();
    }
    let mut length = 0;
    // SAFETY: every place up to the zero may be read.
    let units = unsafe {
        while *text.add(length) != 0 {
            length += 1;
        }
        std::slice::from_raw_parts(text, length)
    };
    OsString::from_wide(units).to_string_lossy().into_owned()
}

/// # Safety
/// `address` is null or points to a socket address of the family that it names.
unsafe fn ip_of(address: *const SOCKADDR) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, hence a socket address, and a structure of the family that it names.
    unsafe {
        match (*address).sa_family {
            AF_INET => {
                let v4 = address.cast::<SOCKADDR_IN>().read_unaligned();
                Some(IpAddr::V4(Ipv4Addr::from(v4.sin_addr.S_un.S_addr.to_ne_bytes())))
            }
            AF_INET6 => {
                let v6 = address.cast::<SOCKADDR_IN6>().read_unaligned();
                Some(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.u.Byte)))
            }
            _ => None,
        }
    }
}

/// This process's user, as a number that means something in this process only.
pub(crate) fn user() -> u32 {
    static OWN: OnceLock<u32> = OnceLock::new();
    *OWN.get_or_init(|| own_user().unwrap_or(u32::MAX))
}

/// Whether a user, as the system has named it to us, is ours.
pub(crate) fn is_our_user(uid: u32) -> bool {
    uid == user() && uid != u32::MAX
}

/// Whether the other end of a connection from `local` to `peer` is a socket of this machine that
/// belongs to our user. `false` when that cannot be known.
#[must_use]
pub fn peer_is_same_user(local: SocketAddr, peer: SocketAddr) -> bool {
    user_of_peer(local, peer).is_some_and(is_our_user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_number_is_ours() {
        assert!(is_our_user(user()));
        assert!(!is_our_user(user().wrapping_add(1)) && !is_our_user(u32::MAX));
    }
}
