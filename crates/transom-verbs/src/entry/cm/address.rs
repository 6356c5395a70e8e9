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
const FAMILY: c_int = 8;
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
        let flags = asked.map_or(0, |asked| asked.ai_flags);
        if flags & SA != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let datagram = asked.is_some_and(|asked| {
            asked.ai_qp_type == qpt::UD as c_int || asked.ai_port_space == ps::UDP as c_int
        });
        let (mut source, mut peer) = match asked {
            // SAFETY: addresses in the program's structure, or null.
            Some(asked) => unsafe { (read(asked.ai_src_addr)?, read(asked.ai_dst_addr)?) },
            None => (None, None),
        };
        if !node.is_null() || !service.is_null() {
            // SAFETY: strings of the program's, or null.
            let found = unsafe { lookup(node, service, flags, asked, datagram) };
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    unresolved = error;
                    return Ok(0);
                }
            };
            if flags & PASSIVE != 0 { source = Some(found) } else { peer = Some(found) }
        }
        let family = peer.or(source).map_or(0, |address| match address {
            SocketAddr::V4(_) => libc::AF_INET,
            SocketAddr::V6(_) => libc::AF_INET6,
        });
        let (src, src_len) = kept(source);
        let (dst, dst_len) = kept(peer);
        let space = if datagram { ps::UDP } else { ps::TCP };
        let asked = asked.map_or(0, |asked| asked.ai_qp_type.cast_unsigned());
        let kind = match asked {
            _ if datagram => qpt::UD,
            qpt::XRC_SEND | qpt::XRC_RECV => asked,
            _ => qpt::RC,
        };
        let info = rdma_addrinfo {
            ai_flags: flags,
            ai_family: family,
            ai_qp_type: kind as c_int,
            ai_port_space: space as c_int,
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
        };
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

/// The first address of a name.
///
/// # Safety
/// Two strings, or null.
unsafe fn lookup(
    node: *const c_char,
    service: *const c_char,
    flags: c_int,
    asked: Option<&rdma_addrinfo>,
    datagram: bool,
) -> std::result::Result<SocketAddr, c_int> {
    // SAFETY: zeros are a value of it.
    let mut hints: libc::addrinfo = unsafe { MaybeUninit::zeroed().assume_init() };
    hints.ai_flags = if flags & PASSIVE == 0 { 0 } else { libc::AI_PASSIVE };
    if flags & NUMERICHOST != 0 {
        hints.ai_flags |= libc::AI_NUMERICHOST;
    }
    let family = asked.map_or(0, |asked| asked.ai_family);
    hints.ai_family = if flags & FAMILY != 0 || family != 0 { family } else { libc::AF_UNSPEC };
    hints.ai_socktype = if datagram { libc::SOCK_DGRAM } else { libc::SOCK_STREAM };
    let mut list = std::ptr::null_mut();
    // SAFETY: this function's contract; the list is freed below.
    let error = unsafe { libc::getaddrinfo(node, service, &raw const hints, &raw mut list) };
    if error != 0 {
        return Err(error);
    }
    // SAFETY: a list of at least one entry, whose address is of its family.
    let found = unsafe { read((*list).ai_addr) };
    // SAFETY: what `getaddrinfo` has returned.
    unsafe { libc::freeaddrinfo(list) };
    found.ok().flatten().ok_or(libc::EAI_FAMILY)
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
