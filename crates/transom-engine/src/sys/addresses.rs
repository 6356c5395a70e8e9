//! Whether an address is still one of this machine's: the kernel says when one is removed.

use std::net::IpAddr;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use super::{Fd, interfaces};
use transom_os::answers::{is_or_includes, removed};

/// `RTMGRP_IPV4_IFADDR` and `RTMGRP_IPV6_IFADDR`. An interface that is removed loses its addresses
/// first. One that is down keeps those of IPv4: that is an outage, which TCP sits out.
const GROUPS: u32 = 0x10 | 0x100;
/// Room for one message of the kernel's, which are about 100 bytes long.
const MESSAGE: usize = 4096;
/// Messages read in one go: the links of the adapter have their turn before the next ones.
const AT_ONCE: usize = 64;

/// Watches an address of this machine.
#[derive(Debug)]
pub(crate) struct AddressWatch {
    socket: Fd,
    address: IpAddr,
}

impl AddressWatch {
    /// Watch `address`. `None` if no interface has it, so that none can lose it (the unspecified
    /// address, or one that a route alone makes local), or if the system does not tell.
    pub(crate) fn open(address: IpAddr) -> Option<AddressWatch> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let route = None; // NETLINK_ROUTE
        let socket = || socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, route);
        let socket = Fd::make(socket).ok()?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS)).ok()?;
        let watch = AddressWatch { socket, address };
        // Asked last: a removal after this question is noticed by the watch.
        watch.is_gone().is_ok_and(|gone| !gone).then_some(watch)
    }

    pub(crate) fn fd(&self) -> &Fd {
        &self.socket
    }

    /// Take in what the kernel has said. `true`: the address may be gone.
    pub(crate) fn read_messages(&self) -> bool {
        let mut bytes = [0; MESSAGE];
        let mut doubt = false;
        for _ in 0..AT_ONCE {
            match recv(&self.socket, &mut bytes[..], RecvFlags::TRUNC) {
                Ok((read, length)) => {
                    let news = bytes.get(..read).unwrap_or_default();
                    doubt |= length > read
                        || removed(news).any(|gone| is_or_includes(gone, self.address));
                }
                Err(Errno::INTR) => {}
                // The kernel had more to say than the socket could hold.
                Err(Errno::NOBUFS) => doubt = true,
                Err(_) => break,
            }
        }
        doubt
    }

    /// Whether no interface has the address any more. The list of interfaces says so as soon as the
    /// kernel has announced a removal; its table of routes, which decides what can be bound, lags.
    pub(crate) fn is_gone(&self) -> std::io::Result<bool> {
        Ok(!interfaces()?.iter().any(|one| is_or_includes(one.address, self.address)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn what_no_interface_has_is_not_watched() {
        for address in [
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77)),
        ] {
            assert!(AddressWatch::open(address).is_none(), "{address}");
        }
    }

    #[test]
    fn an_address_that_stays_is_never_gone() {
        for last in [1, 9] {
            let address = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
            let Some(watch) = AddressWatch::open(address) else {
                eprintln!("not shown: this system does not tell (no rtnetlink)");
                return;
            };
            assert!(!watch.read_messages(), "nothing was said");
            assert!(!watch.is_gone().unwrap());
        }
    }
}
