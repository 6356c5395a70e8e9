//! Identity: the addresses of this machine, and the user behind a loopback connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Interface;
use super::diag::{is_answered, user_of_peer};
#[cfg(test)]
use transom_os::answers::maps_every_user;
use transom_os::answers::{end, owner_in};
pub(crate) use transom_os::users::{is_ours as is_our_user, own as user};

/// Every IP address of this machine.
///
/// # Errors
/// The error of the system.
pub fn interfaces() -> std::io::Result<Vec<Interface>> {
    let mut head: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: on success `head` is a list that we free below.
    if unsafe { libc::getifaddrs(&raw mut head) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut at = head;
    while !at.is_null() {
        // SAFETY: an entry of the list, alive until it is freed.
        let entry = unsafe { &*at };
        // SAFETY: the entry's address is null or a socket address of its own family.
        if let Some(address) = unsafe { ip_of(entry.ifa_addr) } {
            // SAFETY: every entry has a name, a C string.
            let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
            found.push(Interface {
                name: name.to_string_lossy().into_owned(),
                address,
                loopback: entry.ifa_flags & libc::IFF_LOOPBACK as u32 != 0,
                up: entry.ifa_flags & libc::IFF_UP as u32 != 0,
            });
        }
        at = entry.ifa_next;
    }
    // SAFETY: the list from above, freed once.
    unsafe { libc::freeifaddrs(head) };
    Ok(found)
}

/// # Safety
/// `address` is null or points to a socket address of the family that it names.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, hence a socket address.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: AF_INET says that it is this structure.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr))))
        }
        libc::AF_INET6 => {
            // SAFETY: AF_INET6 says that it is this structure.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

/// Whether the other end of a connection from `local` to `peer` is a socket of this machine that
/// belongs to our user. `false` when that cannot be known.
///
/// The kernel is asked about that one socket. Only where it cannot be asked is its table of all
/// sockets read: that takes the longer the more there are, which peers can raise.
#[must_use]
pub fn peer_is_same_user(local: SocketAddr, peer: SocketAddr) -> bool {
    let ours = peer.ip().to_canonical();
    if !(ours.is_loopback() || ours == local.ip().to_canonical()) {
        return false;
    }
    if let Some(user) = user_of_peer(local, peer) {
        return is_our_user(user);
    }
    if is_answered(local, peer) {
        return false;
    }
    is_in_the_table(local, peer)
}

/// Whether a connection is our user's, by the table of all sockets.
pub(super) fn is_in_the_table(local: SocketAddr, peer: SocketAddr) -> bool {
    // An IPv4 peer may use an IPv6 socket: its line is then in the other file, mapped.
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|file| {
        std::fs::read_to_string(file)
            .is_ok_and(|text| owner_in(&text, end(peer), end(local)).is_some_and(is_our_user))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_unmapped_users_proves_nothing_unless_all_are_mapped() {
        assert!(is_our_user(user()) && !is_our_user(user() + 1));
        assert!(maps_every_user("         0          0 4294967295\n"));
        for map in ["", "0 1000 1\n", "0 0 65534\n", "0 100000 65536\n65536 0 1\n"] {
            assert!(!maps_every_user(map), "{map:?}");
        }
    }
}
