//! Sockets and connections: the entries of WSD 4, 8.7, 11 to 13.

use std::ffi::{c_char, c_void};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use transom_engine::raw::socket_address;

use super::{address, call, entry};
use crate::abi::{
    CF_ACCEPT, CF_REJECT, FD_CONNECT, FD_CONNECT_BIT, INVALID_SOCKET, NetworkEvents, ProtocolInfo,
    WsaBuf,
};
use crate::error::Error;
use crate::tables::Condition;

/// The switch's condition function as a question about a peer and the address that it has asked for,
/// and its answer (WSD L-4).
fn ask(condition: Condition, data: usize, peer: SocketAddr, local: SocketAddr) -> i32 {
    let Some(condition) = condition else { return CF_ACCEPT };
    let (mut peer, mut local) = (socket_address::encode(peer), socket_address::encode(local));
    let [mut caller, mut callee] = [&mut peer, &mut local].map(|bytes| {
        let len = u32::try_from(bytes.len()).unwrap_or(0);
        WsaBuf { len, buf: bytes.as_mut_ptr().cast() }
    });
    let none = std::ptr::null_mut();
    // SAFETY: the switch's function; both addresses live through the call.
    let answer = catch_unwind(AssertUnwindSafe(|| unsafe {
        condition(
            &mut caller,
            std::ptr::null_mut(),
            none,
            none,
            &mut callee,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            data,
        )
    }));
    answer.unwrap_or(CF_REJECT)
}

pub(super) unsafe extern "C" fn accept(
    s: usize,
    name: *mut c_void,
    length: *mut i32,
    condition: Condition,
    data: usize,
    errno: *mut i32,
) -> usize {
    // SAFETY: the switch's pointers, as the interface has them.
    unsafe {
        entry(errno, INVALID_SOCKET, |provider| {
            // Too little room is said before a request is taken: it would be lost (WSD L-3).
            if let Some(length) = length.as_ref()
                && !name.is_null()
                && let Ok(local) = provider.local_address(s)
                && usize::try_from(*length).unwrap_or(0) < socket_address::encode(local).len()
            {
                return Err(Error::WSAEFAULT);
            }
            let (socket, peer) =
                provider.accept(s, |peer, local| ask(condition, data, peer, local))?;
            let bytes = socket_address::encode(peer);
            if let Some(length) = length.as_mut()
                && !name.is_null()
            {
                let room = usize::try_from(*length).unwrap_or(0).min(bytes.len());
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), name.cast(), room);
                *length = i32::try_from(bytes.len()).unwrap_or(0);
            }
            Ok(socket)
        })
    }
}

pub(super) unsafe extern "C" fn bind(
    s: usize,
    name: *const c_void,
    length: i32,
    errno: *mut i32,
) -> i32 {
    // SAFETY: the switch's pointers.
    unsafe { call(errno, |provider| provider.bind(s, address::read(name, length)?)) }
}

pub(super) unsafe extern "C" fn close_socket(s: usize, errno: *mut i32) -> i32 {
    // SAFETY: the switch's pointer.
    unsafe { call(errno, |provider| provider.close_socket(s)) }
}

pub(super) unsafe extern "C" fn connect(
    s: usize,
    name: *const c_void,
    length: i32,
    caller: *const WsaBuf,
    callee: *mut WsaBuf,
    _sqos: *const c_void,
    _gqos: *const c_void,
    errno: *mut i32,
) -> i32 {
    // SAFETY: the switch's pointers.
    unsafe {
        call(errno, |provider| {
            if !caller.is_null() || !callee.is_null() {
                return Err(Error::WSAEINVAL); // WSD C-8
            }
            provider.connect(s, address::read(name, length)?)
        })
    }
}

pub(super) unsafe extern "C" fn duplicate_socket(
    s: usize,
    process: u32,
    info: *mut ProtocolInfo,
    errno: *mut i32,
) -> i32 {
    // SAFETY: the switch's pointers.
    unsafe {
        call(errno, |provider| {
            let info = info.as_mut().ok_or(Error::WSAEINVAL)?;
            info.provider_reserved = provider.duplicate(s, process)?;
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn enum_network_events(
    s: usize,
    event: *mut c_void,
    events: *mut NetworkEvents,
    errno: *mut i32,
) -> i32 {
    // SAFETY: the switch's pointers.
    unsafe {
        call(errno, |provider| {
            let events = events.as_mut().ok_or(Error::WSAEFAULT)?;
            let (happened, error) = provider.network_events(s, event.expose_provenance())?;
            *events = NetworkEvents { events: happened, errors: [0; 10] };
            if happened & FD_CONNECT != 0
                && let (Some(slot), Some(error)) = (events.errors.get_mut(FD_CONNECT_BIT), error)
            {
                *slot = error.0;
            }
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn event_select(
    s: usize,
    event: *mut c_void,
    mask: i32,
    errno: *mut i32,
) -> i32 {
    // SAFETY: the switch's pointer.
    unsafe { call(errno, |provider| provider.event_select(s, event.expose_provenance(), mask)) }
}

pub(super) unsafe extern "C" fn get_sock_opt(
    s: usize,
    level: i32,
    name: i32,
    value: *mut c_char,
    length: *mut i32,
    errno: *mut i32,
) -> i32 {
    // SAFETY: the switch's pointers.
    unsafe {
        call(errno, |provider| {
            let found = provider.option(s, level, name)?;
            let length = length.as_mut().ok_or(Error::WSAEFAULT)?;
            if value.is_null() || *length < 4 {
                return Err(Error::WSAEFAULT);
            }
            *length = 4;
            value.cast::<[u8; 4]>().write(found.to_ne_bytes());
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn set_sock_opt(
    s: usize,
    level: i32,
    name: i32,
    _value: *const c_char,
    _length: i32,
    errno: *mut i32,
) -> i32 {
    // SAFETY: the switch's pointer.
    unsafe { call(errno, |provider| provider.set_option(s, level, name)) }
}

pub(super) unsafe extern "C" fn get_qos_by_name(
    _s: usize,
    _name: *mut WsaBuf,
    _qos: *mut c_void,
    errno: *mut i32,
) -> i32 {
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, 0, |_| Err(Error::WSAEOPNOTSUPP)) }
}

pub(super) unsafe extern "C" fn listen(s: usize, backlog: i32, errno: *mut i32) -> i32 {
    let backlog = usize::try_from(backlog).unwrap_or(usize::MAX);
    // SAFETY: the switch's pointer.
    unsafe { call(errno, |provider| provider.listen(s, backlog)) }
}

pub(super) unsafe extern "C" fn socket(
    family: i32,
    kind: i32,
    protocol: i32,
    info: *const ProtocolInfo,
    _group: u32,
    flags: u32,
    errno: *mut i32,
) -> usize {
    // SAFETY: the switch's pointers.
    unsafe {
        entry(errno, INVALID_SOCKET, |provider| {
            let token = info.as_ref().map_or(0, |info| info.provider_reserved);
            provider.open_socket((family, kind, protocol), token, flags)
        })
    }
}
