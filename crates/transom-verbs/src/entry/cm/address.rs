//! Socket addresses, and the names of hosts.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use crate::abi::{ps, qpt, rdma_addrinfo, rdma_cm_id};
use crate::entry::minus_one;
use crate::errno::{Errno, Result};
use crate::sys::set_errno;

/// An address of the program's; null is none.
///
/// # Safety
/// Null, or a socket address as long as its family says.
pub(crate) unsafe fn read(address: *const libc::sockaddr) -> Result<Option<SocketAddr>> {
    if address.is_null() {
        return Ok(None);
    }
    // SAFETY: this function's contract.
    let family = unsafe { (*address).sa_family };
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: as above.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Ok(Some(SocketAddr::new(ip, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let (ip, port) = (v6.sin6_addr.s6_addr.into(), u16::from_be(v6.sin6_port));
            Ok(Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into()))
        }
        0 => Ok(None),
        _ => Err(Errno::EINVAL),
    }
}

/// An address as C has it; how long it is.
pub(crate) fn write(address: SocketAddr) -> (libc::sockaddr_storage, usize) {
    // SAFETY: zeros are a value of it.
    let mut storage: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
    let to = &raw mut storage;
    let length = match address {
        SocketAddr::V4(v4) => {
            let c = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage has room for every kind of address.
            unsafe { to.cast::<libc::sockaddr_in>().write(c) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let c = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { to.cast::<libc::sockaddr_in6>().write(c) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, length)
}

/// In network order, as the structure has it.
unsafe fn port(address: *const libc::sockaddr_storage) -> u16 {
    // SAFETY: an address in the structure of an id.
    let address = unsafe { read(address.cast()) };
    address.ok().flatten().map_or(0, |address| address.port().to_be())
}

pub(crate) unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: an id of the program's, or null.
    if id.is_null() { 0 } else { unsafe { port(&raw const (*id).route.src_addr) } }
}

pub(crate) unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: an id of the program's, or null.
    if id.is_null() { 0 } else { unsafe { port(&raw const (*id).route.dst_addr) } }
}

// ---- rdma_getaddrinfo ----------------------------------------------------------------------------

const PASSIVE: c_int = 1;
const NUMERICHOST: c_int = 2;
const SA: c_int = 16;

/// An address on the heap, as a list of address information has it.
fn kept(address: Option<SocketAddr>) -> (*mut libc::sockaddr, u32) {
    match address {
        None => (std::ptr::null_mut(), 0),
        Some(address) => {
            let (storage, length) = write(address);
            (Box::into_raw(Box::new(storage)).cast(), length as u32)
        }
    }
}

/// The result of a look-up by name.
#[derive(Clone, Copy)]
struct Found {
    address: SocketAddr,
    /// SOCK_STREAM or SOCK_DGRAM, and its protocol, where the hints have left that open.
    socket: c_int,
    protocol: c_int,
}

/// A single result. The error for a name that is not found is that of `getaddrinfo` (Verbs V33,
/// V117).
pub(crate) unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    result: *mut *mut rdma_addrinfo,
) -> c_int {
    let mut unresolved = 0;
    let done = minus_one(|| {
        // Nothing asked has no answer (librdmacm, addrinfo.c).
        let nothing = node.is_null() && service.is_null() && hints.is_null();
        if result.is_null() || nothing {
            return Err(Errno::EINVAL);
        }
        // SAFETY: a structure of the program's, or null.
        let asked = unsafe { hints.as_ref() };
        if asked.is_some_and(|asked| asked.ai_flags & SA != 0) {
            return Err(Errno::EOPNOTSUPP);
        }
        let found = if node.is_null() && service.is_null() {
            None
        } else {
            // SAFETY: strings of the program's, or null.
            match unsafe { lookup(node, service, asked) } {
                Ok(found) => Some(found),
                Err(error) => {
                    unresolved = error;
                    return Ok(0);
                }
            }
        };
        // SAFETY: addresses in the program's structure, or null.
        let info = unsafe { information(asked, found) }?;
        // SAFETY: the caller's pointer.
        unsafe { result.write(Box::into_raw(Box::new(info))) };
        Ok(0)
    });
    if unresolved != 0 {
        set_errno(libc::EINVAL);
        return unresolved;
    }
    done
}

/// An answer: where a name was looked up, the address that it has, and everything else as the hints
/// say, also where they say nothing (librdmacm, addrinfo.c).
///
/// # Safety
/// Addresses of the program's in the structure, or null.
unsafe fn information(
    asked: Option<&rdma_addrinfo>,
    found: Option<Found>,
) -> Result<rdma_addrinfo> {
    let hint = |of: fn(&rdma_addrinfo) -> c_int| asked.map_or(0, of);
    let (flags, passive) = (hint(|a| a.ai_flags), hint(|a| a.ai_flags & PASSIVE));
    let (mut source, mut peer) = match asked {
        // SAFETY: this function's contract.
        Some(asked) => unsafe { (read(asked.ai_src_addr)?, read(asked.ai_dst_addr)?) },
        None => (None, None),
    };
    let (mut kind, mut space) = (hint(|a| a.ai_qp_type), hint(|a| a.ai_port_space));
    if let Some(found) = found {
        if passive != 0 {
            (source, peer) = (Some(found.address), None);
        } else {
            peer = Some(found.address);
        }
        let datagram = found.socket == libc::SOCK_DGRAM;
        if kind == 0 {
            kind = (if datagram { qpt::UD } else { qpt::RC }).cast_signed();
        }
        // Ids have no port space of InfiniBand's: what asks for it gets those of IP.
        if space == 0 || space == ps::IB.cast_signed() {
            let udp = found.protocol == libc::IPPROTO_UDP;
            space = (if udp { ps::UDP } else { ps::TCP }).cast_signed();
        }
    }
    let (src, src_len) = kept(source);
    let (dst, dst_len) = kept(peer);
    Ok(rdma_addrinfo {
        ai_flags: if found.is_some() { passive } else { flags },
        ai_family: found.map_or(hint(|a| a.ai_family), |found| match found.address {
            SocketAddr::V4(_) => libc::AF_INET,
            SocketAddr::V6(_) => libc::AF_INET6,
        }),
        ai_qp_type: kind,
        ai_port_space: space,
        ai_src_len: src_len,
        ai_dst_len: dst_len,
        ai_src_addr: src,
        ai_dst_addr: dst,
        ai_src_canonname: std::ptr::null_mut(),
        ai_dst_canonname: std::ptr::null_mut(),
        ai_route_len: 0,
        ai_route: std::ptr::null_mut::<c_void>(),
        ai_connect_len: 0,
        ai_connect: std::ptr::null_mut::<c_void>(),
        ai_next: std::ptr::null_mut(),
    })
}

/// The kind of socket that stands for a queue pair, and the protocol for a port space; 0: any.
fn socket_of(kind: u32, space: u32) -> (c_int, c_int) {
    let socket = match kind {
        qpt::RC | qpt::UC | qpt::XRC_SEND | qpt::XRC_RECV => libc::SOCK_STREAM,
        qpt::UD => libc::SOCK_DGRAM,
        _ => 0,
    };
    let protocol = match (space, socket) {
        (ps::TCP, _) | (ps::IB, libc::SOCK_STREAM) => libc::IPPROTO_TCP,
        (ps::UDP | ps::IPOIB, _) | (ps::IB, libc::SOCK_DGRAM) => libc::IPPROTO_UDP,
        _ => 0,
    };
    (socket, protocol)
}

/// The first address of a name.
///
/// # Safety
/// Two strings, or null.
unsafe fn lookup(
    node: *const c_char,
    service: *const c_char,
    asked: Option<&rdma_addrinfo>,
) -> std::result::Result<Found, c_int> {
    // SAFETY: zeros are a value of it.
    let mut hints: libc::addrinfo = unsafe { MaybeUninit::zeroed().assume_init() };
    if let Some(asked) = asked {
        if asked.ai_flags & PASSIVE != 0 {
            hints.ai_flags |= libc::AI_PASSIVE;
        }
        if asked.ai_flags & NUMERICHOST != 0 {
            hints.ai_flags |= libc::AI_NUMERICHOST;
        }
        hints.ai_family = asked.ai_family;
        let (kind, space) = (asked.ai_qp_type.cast_unsigned(), asked.ai_port_space.cast_unsigned());
        (hints.ai_socktype, hints.ai_protocol) = socket_of(kind, space);
    }
    let mut list = std::ptr::null_mut();
    // SAFETY: this function's contract; the list is freed below.
    let error = unsafe { libc::getaddrinfo(node, service, &raw const hints, &raw mut list) };
    if error != 0 {
        return Err(error);
    }
    // SAFETY: a list of at least one entry, whose address is of its family.
    let (address, socket, protocol) =
        unsafe { (read((*list).ai_addr), (*list).ai_socktype, (*list).ai_protocol) };
    // SAFETY: what `getaddrinfo` has returned.
    unsafe { libc::freeaddrinfo(list) };
    let address = address.ok().flatten().ok_or(libc::EAI_FAMILY)?;
    Ok(Found { address, socket, protocol })
}

pub(crate) unsafe extern "C" fn rdma_freeaddrinfo(mut info: *mut rdma_addrinfo) {
    while !info.is_null() {
        // SAFETY: what `rdma_getaddrinfo` has returned, and is not used afterwards.
        unsafe {
            let gone = Box::from_raw(info);
            for address in [gone.ai_src_addr, gone.ai_dst_addr] {
                if !address.is_null() {
                    drop(Box::from_raw(address.cast::<libc::sockaddr_storage>()));
                }
            }
            info = gone.ai_next;
        }
    }
}
