//! The C entries: pointers become values here. Each entry catches a panic.
#![allow(non_snake_case, reason = "exported name")]

use std::ffi::{c_char, c_void};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use crate::BUFFERS_LIMIT;
use crate::abi::{
    CF_REJECT, FD_CONNECT, FD_CONNECT_BIT, Guid, INVALID_SOCKET, NetworkEvents, Overlapped,
    ProtocolInfo, SIO_ADDRESS_LIST_QUERY, SIO_GET_EXTENSION_FUNCTION_POINTER, SOCKET_ERROR,
    SocketAddress, SocketAddressList, WsaBuf, WsaBufEx, WspData,
};
use crate::data::{Direction, Range};
use crate::descriptor::LENGTH;
use crate::error::{Error, Result};
use crate::extension::{Extension, find};
use crate::memory::Handle;
use crate::overlapped::Operation;
use crate::provider::{Options, Provider, lock};
use crate::switch::Switch;
use crate::tables::{Condition, ProcTable, Routine, UpcallTableEx};

/// The provider of this process, and how often it was started (WSD 2.1).
static PROVIDER: Mutex<Option<(Arc<Provider>, u32)>> = Mutex::new(None);

fn provider() -> Result<Arc<Provider>> {
    let provider = lock(&PROVIDER);
    provider.as_ref().map(|(provider, _)| Arc::clone(provider)).ok_or(Error::WSAENETDOWN)
}

/// Run an entry: its value, or `failure` with the error stored.
///
/// # Safety
/// `errno` is NULL or may be written.
unsafe fn entry<T>(errno: *mut i32, failure: T, f: impl FnOnce() -> Result<T>) -> T {
    let result = catch_unwind(AssertUnwindSafe(f)).unwrap_or(Err(Error::WSAENETDOWN));
    result.unwrap_or_else(|error| {
        if !errno.is_null() {
            // SAFETY: this function's contract.
            unsafe { errno.write(error.0) };
        }
        failure
    })
}

/// The switch's table as a [`Switch`].
struct Table {
    table: UpcallTableEx,
    catalog_entry: u32,
}

fn event(event: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(event)
}

impl Switch for Table {
    fn create_socket_handle(&self, context: usize) -> Result<usize> {
        let create = self.table.create_socket_handle.ok_or(Error::WSAENETDOWN)?;
        let mut errno = 0;
        // SAFETY: the switch's function.
        let handle = unsafe { create(self.catalog_entry, context, &mut errno) };
        if handle == INVALID_SOCKET { Err(Error(errno)) } else { Ok(handle) }
    }
    fn close_socket_handle(&self, handle: usize) {
        if let Some(close) = self.table.close_socket_handle {
            // SAFETY: the switch's function with the switch's handle.
            unsafe { close(handle, &mut 0) };
        }
    }
    fn complete(&self, handle: usize, overlapped: usize, error: i32, bytes: u32) {
        if let Some(complete) = self.table.complete_overlapped_request {
            let overlapped = std::ptr::with_exposed_provenance_mut(overlapped);
            // SAFETY: the switch's function with the switch's handle and structure.
            unsafe { complete(handle, overlapped, error as u32, bytes, &mut 0) };
        }
    }
    fn set_event(&self, which: usize) {
        if let Some(set) = self.table.set_event {
            // SAFETY: the switch's function with the switch's event.
            unsafe { set(event(which), &mut 0) };
        }
    }
    fn reset_event(&self, which: usize) {
        if let Some(reset) = self.table.reset_event {
            // SAFETY: the switch's function with the switch's event.
            unsafe { reset(event(which), &mut 0) };
        }
    }
}

/// The only exported function (WSD 2.1).
///
/// # Safety
/// The pointers are NULL or point to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn WSPStartupEx(
    version: u16,
    data: *mut WspData,
    info: *const ProtocolInfo,
    upcalls: *const UpcallTableEx,
    table: *mut ProcTable,
) -> i32 {
    let started = catch_unwind(AssertUnwindSafe(|| {
        if version.to_le_bytes() != [2, 2] {
            return Err(Error::WSAVERNOTSUPPORTED);
        }
        if upcalls.is_null() || table.is_null() {
            return Err(Error::WSAEFAULT);
        }
        let mut running = lock(&PROVIDER);
        match running.as_mut() {
            Some((_, count)) => *count += 1,
            None => {
                // SAFETY: this function's contract; both are copied.
                let (upcalls, info) = unsafe { (upcalls.read(), info.as_ref()) };
                let catalog_entry = info.map_or(0, |info| info.catalog_entry_id);
                let switch = Arc::new(Table { table: upcalls, catalog_entry });
                let provider = Provider::start(switch, Options::default())?;
                *running = Some((provider, 1));
            }
        }
        let mut description = [0; 256];
        let text = "Transom: RDMA in software".encode_utf16();
        description.iter_mut().zip(text).for_each(|(to, from)| *to = from);
        // SAFETY: this function's contract.
        unsafe {
            table.write(TABLE);
            if !data.is_null() {
                data.write(WspData { version, high_version: version, description });
            }
        }
        Ok(())
    }));
    started.unwrap_or(Err(Error::WSASYSNOTREADY)).err().map_or(0, |error| error.0)
}

const NONE: *const c_void = std::ptr::null();

const TABLE: ProcTable = ProcTable {
    accept: Some(accept),
    address_to_string: NONE,
    async_select: NONE,
    bind: Some(bind),
    cancel_blocking_call: NONE,
    cleanup: Some(cleanup),
    close_socket: Some(close_socket),
    connect: Some(connect),
    duplicate_socket: Some(duplicate_socket),
    enum_network_events: Some(enum_network_events),
    event_select: Some(event_select),
    get_overlapped_result: Some(get_overlapped_result),
    get_peer_name: NONE,
    get_sock_name: NONE,
    get_sock_opt: Some(get_sock_opt),
    get_qos_by_name: Some(get_qos_by_name),
    ioctl: Some(ioctl),
    join_leaf: NONE,
    listen: Some(listen),
    recv: Some(recv),
    recv_disconnect: NONE,
    recv_from: NONE,
    select: NONE,
    send: Some(send),
    send_disconnect: NONE,
    send_to: NONE,
    set_sock_opt: Some(set_sock_opt),
    shutdown: NONE,
    socket: Some(socket),
    string_to_address: NONE,
};

/// # Safety
/// `address` is NULL or has `length` readable bytes.
unsafe fn read_address(address: *const c_void, length: i32) -> Result<SocketAddr> {
    if address.is_null() {
        return Err(Error::WSAEFAULT);
    }
    let length = usize::try_from(length).unwrap_or(0).min(128);
    // SAFETY: this function's contract.
    let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), length) };
    let parse = || {
        let (family, rest) = bytes.split_first_chunk::<2>()?;
        let (port, rest) = rest.split_first_chunk::<2>()?;
        let port = u16::from_be_bytes(*port);
        match u16::from_ne_bytes(*family) {
            2 => {
                let (ip, _) = rest.split_first_chunk::<4>()?;
                Some(SocketAddrV4::new(Ipv4Addr::from(*ip), port).into())
            }
            10 | 23 => {
                let (ip, rest) = rest.get(4..)?.split_first_chunk::<16>()?;
                let scope = u32::from_ne_bytes(*rest.first_chunk::<4>()?);
                Some(SocketAddrV6::new(Ipv6Addr::from(*ip), port, 0, scope).into())
            }
            _ => None,
        }
    };
    parse().ok_or(Error::WSAEFAULT)
}

fn address_bytes(address: SocketAddr) -> ([u8; 28], usize) {
    let mut bytes = [0; 28];
    let port = address.port().to_be_bytes();
    let (parts, length): (Vec<u8>, usize) = match address {
        SocketAddr::V4(v4) => {
            let head = 2_u16.to_ne_bytes().into_iter().chain(port);
            (head.chain(v4.ip().octets()).collect(), 16)
        }
        SocketAddr::V6(v6) => {
            let head = 10_u16.to_ne_bytes().into_iter().chain(port).chain([0; 4]);
            let scope = v6.scope_id().to_ne_bytes();
            (head.chain(v6.ip().octets()).chain(scope).collect(), 28)
        }
    };
    bytes.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
    (bytes, length)
}

unsafe extern "C" fn accept(
    s: usize,
    address: *mut c_void,
    length: *mut i32,
    condition: Condition,
    data: usize,
    errno: *mut i32,
) -> usize {
    let ask = |peer: SocketAddr| {
        let Some(condition) = condition else { return crate::abi::CF_ACCEPT };
        let (mut bytes, length) = address_bytes(peer);
        let mut caller =
            WsaBuf { len: u32::try_from(length).unwrap_or(0), buf: bytes.as_mut_ptr().cast() };
        let none = std::ptr::null_mut();
        // SAFETY: the switch's function; the caller's address lives through the call.
        let answer = catch_unwind(AssertUnwindSafe(|| unsafe {
            condition(
                &mut caller,
                std::ptr::null_mut(),
                none,
                none,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                data,
            )
        }));
        answer.unwrap_or(CF_REJECT)
    };
    let run = || {
        let (socket, peer) = provider()?.accept(s, ask)?;
        let (bytes, needed) = address_bytes(peer);
        // SAFETY: the switch's pointers, as the interface has them.
        if let Some(length) = unsafe { length.as_mut() }
            && !address.is_null()
        {
            let room = usize::try_from(*length).unwrap_or(0).min(needed);
            // SAFETY: both sides have so many bytes.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast(), room) };
            *length = i32::try_from(needed).unwrap_or(0);
        }
        Ok(socket)
    };
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, INVALID_SOCKET, run) }
}

unsafe extern "C" fn bind(s: usize, name: *const c_void, length: i32, errno: *mut i32) -> i32 {
    // SAFETY: the switch's pointers.
    let run = || provider()?.bind(s, unsafe { read_address(name, length) }?).map(|()| 0);
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, SOCKET_ERROR, run) }
}

unsafe extern "C" fn cleanup(errno: *mut i32) -> i32 {
    let run = || {
        let mut running = lock(&PROVIDER);
        let Some((_, count)) = running.as_mut() else { return Err(Error::WSAENETDOWN) };
        *count -= 1;
        let last = if *count == 0 { running.take() } else { None };
        drop(running);
        if let Some((provider, _)) = last {
            provider.cleanup();
        }
        Ok(0)
    };
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, SOCKET_ERROR, run) }
}

unsafe extern "C" fn close_socket(s: usize, errno: *mut i32) -> i32 {
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, SOCKET_ERROR, || provider()?.close_socket(s).map(|()| 0)) }
}

unsafe extern "C" fn connect(
    s: usize,
    name: *const c_void,
    length: i32,
    caller: *const WsaBuf,
    callee: *mut WsaBuf,
    _sqos: *const c_void,
    _gqos: *const c_void,
    errno: *mut i32,
) -> i32 {
    let run = || {
        if !caller.is_null() || !callee.is_null() {
            return Err(Error::WSAEINVAL); // C-8
        }
        // SAFETY: the switch's pointers.
        provider()?.connect(s, unsafe { read_address(name, length) }?).map(|()| 0)
    };
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, SOCKET_ERROR, run) }
}

unsafe extern "C" fn duplicate_socket(
    s: usize,
    _process: u32,
    info: *mut ProtocolInfo,
    errno: *mut i32,
) -> i32 {
    let run = || {
        // SAFETY: the switch's pointer.
        let info = unsafe { info.as_mut() }.ok_or(Error::WSAEINVAL)?;
        info.provider_reserved = provider()?.duplicate(s)?;
        Ok(0)
    };
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, SOCKET_ERROR, run) }
}

unsafe extern "C" fn enum_network_events(
    s: usize,
    event: *mut c_void,
    events: *mut NetworkEvents,
    errno: *mut i32,
) -> i32 {
    let run = || {
        // SAFETY: the switch's pointer.
        let events = unsafe { events.as_mut() }.ok_or(Error::WSAEFAULT)?;
        let (happened, error) = provider()?.network_events(s, event.expose_provenance())?;
        *events = NetworkEvents { events: happened, errors: [0; 10] };
        if happened & FD_CONNECT != 0
            && let (Some(slot), Some(error)) = (events.errors.get_mut(FD_CONNECT_BIT), error)
        {
            *slot = error.0;
        }
        Ok(0)
    };
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, SOCKET_ERROR, run) }
}

unsafe extern "C" fn event_select(s: usize, event: *mut c_void, mask: i32, errno: *mut i32) -> i32 {
    let run = || provider()?.event_select(s, event.expose_provenance(), mask).map(|()| 0);
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, SOCKET_ERROR, run) }
}

unsafe extern "C" fn get_overlapped_result(
    s: usize,
    overlapped: *mut Overlapped,
    bytes: *mut u32,
    wait: i32,
    flags: *mut u32,
    errno: *mut i32,
) -> i32 {
    let run = || {
        // SAFETY: the switch's structure, of an operation that it began.
        let operation = unsafe { Operation::new(overlapped) }.ok_or(Error::WSA_INVALID_HANDLE)?;
        let outcome = provider()?.overlapped_result(s, operation, wait != 0)?;
        // SAFETY: the switch's pointers.
        let (bytes, flags) = unsafe { (bytes.as_mut(), flags.as_mut()) };
        if let Some(bytes) = bytes {
            *bytes = outcome.bytes;
        }
        if let Some(flags) = flags {
            *flags = outcome.flags;
        }
        outcome.error.map_or(Ok(1), Err)
    };
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, 0, run) }
}

unsafe extern "C" fn get_sock_opt(
    s: usize,
    level: i32,
    name: i32,
    value: *mut c_char,
    length: *mut i32,
    errno: *mut i32,
) -> i32 {
    let run = || {
        let found = provider()?.option(s, level, name)?;
        // SAFETY: the switch's pointer.
        let length = unsafe { length.as_mut() }.ok_or(Error::WSAEFAULT)?;
        if value.is_null() || *length < 4 {
            return Err(Error::WSAEFAULT);
        }
        *length = 4;
        // SAFETY: there is room for four bytes.
        unsafe { value.cast::<[u8; 4]>().write(found.to_ne_bytes()) };
        Ok(0)
    };
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, SOCKET_ERROR, run) }
}

unsafe extern "C" fn set_sock_opt(
    s: usize,
    level: i32,
    name: i32,
    _value: *const c_char,
    _length: i32,
    errno: *mut i32,
) -> i32 {
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, SOCKET_ERROR, || provider()?.set_option(s, level, name).map(|()| 0)) }
}

unsafe extern "C" fn get_qos_by_name(
    _s: usize,
    _name: *mut WsaBuf,
    _qos: *mut c_void,
    errno: *mut i32,
) -> i32 {
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, 0, || Err(Error::WSAEOPNOTSUPP)) }
}

unsafe extern "C" fn listen(s: usize, backlog: i32, errno: *mut i32) -> i32 {
    let backlog = usize::try_from(backlog).unwrap_or(usize::MAX);
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, SOCKET_ERROR, || provider()?.listen(s, backlog).map(|()| 0)) }
}

unsafe extern "C" fn socket(
    family: i32,
    kind: i32,
    protocol: i32,
    info: *const ProtocolInfo,
    _group: u32,
    flags: u32,
    errno: *mut i32,
) -> usize {
    let run = || {
        // SAFETY: the switch's pointer.
        let duplicated = unsafe { info.as_ref() }.is_some_and(|info| info.provider_reserved != 0);
        provider()?.open_socket((family, kind, protocol), duplicated, flags)
    };
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, INVALID_SOCKET, run) }
}

/// The answer of a call whose operation has begun: O-2.
fn pending(begun: Result<()>) -> Result<i32> {
    begun.and(Err(Error::WSA_IO_PENDING))
}

/// # Safety
/// `buffers` is NULL or has `count` entries; `overlapped` as [`Operation::new`] demands.
unsafe fn message(
    buffers: *const WsaBuf,
    count: u32,
    overlapped: *mut Overlapped,
    routine: Routine,
) -> Result<(Vec<Range>, Operation)> {
    // SAFETY: this function's contract.
    let operation = unsafe { Operation::new(overlapped) }.ok_or(Error::WSAEINVAL)?; // O-1
    if !routine.is_null() || buffers.is_null() || count as usize > BUFFERS_LIMIT {
        return Err(Error::WSAEINVAL);
    }
    // SAFETY: this function's contract.
    let buffers = unsafe { std::slice::from_raw_parts(buffers, count as usize) };
    let range = |b: &WsaBuf| Range { address: b.buf.expose_provenance() as u64, length: b.len };
    Ok((buffers.iter().map(range).collect(), operation))
}

unsafe extern "C" fn send(
    s: usize,
    buffers: *mut WsaBuf,
    count: u32,
    _sent: *mut u32,
    flags: u32,
    overlapped: *mut Overlapped,
    routine: Routine,
    _thread: *mut c_void,
    errno: *mut i32,
) -> i32 {
    let run = || {
        // SAFETY: the switch's pointers.
        let (ranges, operation) = unsafe { message(buffers, count, overlapped, routine) }?;
        pending(provider()?.send(s, &ranges, flags, operation))
    };
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, SOCKET_ERROR, run) }
}

unsafe extern "C" fn recv(
    s: usize,
    buffers: *mut WsaBuf,
    count: u32,
    _received: *mut u32,
    flags: *mut u32,
    overlapped: *mut Overlapped,
    routine: Routine,
    _thread: *mut c_void,
    errno: *mut i32,
) -> i32 {
    let run = || {
        // SAFETY: the switch's pointers.
        let (ranges, operation) = unsafe { message(buffers, count, overlapped, routine) }?;
        // SAFETY: the switch's pointer.
        let flags = unsafe { flags.as_ref() }.copied().unwrap_or(0);
        pending(provider()?.receive(s, &ranges, flags, operation))
    };
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, SOCKET_ERROR, run) }
}

/// The bytes of a descriptor.
///
/// # Safety
/// `descriptor` is NULL or has `length` readable bytes, which stay during the call.
unsafe fn descriptor<'a>(descriptor: *const c_void, length: u32) -> Result<&'a [u8]> {
    if descriptor.is_null() || length as usize != LENGTH {
        return Err(Error::WSAEINVAL);
    }
    // SAFETY: this function's contract.
    Ok(unsafe { std::slice::from_raw_parts(descriptor.cast(), LENGTH) })
}

macro_rules! rdma {
    ($name:ident, $direction:expr) => {
        unsafe extern "C" fn $name(
            s: usize,
            buffers: *mut WsaBufEx,
            count: u32,
            target: *mut c_void,
            target_length: u32,
            offset: u32,
            _moved: *mut u32,
            flags: u32,
            overlapped: *mut Overlapped,
            routine: Routine,
            _thread: *mut c_void,
            errno: *mut i32,
        ) -> i32 {
            let run = || {
                // SAFETY: the switch's structure, which stays until the operation has completed.
                let operation = unsafe { Operation::new(overlapped) }.ok_or(Error::WSAEINVAL)?;
                if !routine.is_null() || buffers.is_null() || count as usize > BUFFERS_LIMIT {
                    return Err(Error::WSAEINVAL);
                }
                // SAFETY: the switch's array and descriptor.
                let (buffers, target) = unsafe {
                    let buffers = std::slice::from_raw_parts(buffers, count as usize);
                    (buffers, descriptor(target, target_length)?)
                };
                let part = |b: &WsaBufEx| {
                    let range = Range { address: b.buf.expose_provenance() as u64, length: b.len };
                    (range, Handle(b.handle.addr()))
                };
                let buffers: Vec<_> = buffers.iter().map(part).collect();
                let begun =
                    provider()?.rdma(s, $direction, &buffers, (target, offset), flags, operation);
                pending(begun)
            };
            // SAFETY: the switch's pointer.
            unsafe { entry(errno, SOCKET_ERROR, run) }
        }
    };
}

rdma!(rdma_read, Direction::Read);
rdma!(rdma_write, Direction::Write);

unsafe extern "C" fn register_memory(
    s: usize,
    buffer: *mut c_void,
    length: u32,
    flags: u32,
    errno: *mut i32,
) -> *mut c_void {
    let run = || {
        let address = buffer.expose_provenance() as u64;
        // SAFETY: the switch keeps the memory until it deregisters it.
        let handle = unsafe { provider()?.register_memory(s, address, length, flags) }?;
        Ok(std::ptr::without_provenance_mut(handle.0))
    };
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, std::ptr::null_mut(), run) }
}

unsafe extern "C" fn deregister_memory(s: usize, handle: *mut c_void, errno: *mut i32) -> i32 {
    let run = || provider()?.deregister_memory(s, Handle(handle.addr())).map(|()| 0);
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, SOCKET_ERROR, run) }
}

unsafe extern "C" fn register_rdma_memory(
    s: usize,
    buffer: *mut c_void,
    length: u32,
    flags: u32,
    out: *mut c_void,
    out_length: *mut u32,
    errno: *mut i32,
) -> i32 {
    let run = || {
        // SAFETY: the switch's pointer.
        let out_length = unsafe { out_length.as_mut() }.ok_or(Error::WSAEFAULT)?;
        // The question for the size comes before any look at the buffer (5.3).
        let room = std::mem::replace(out_length, LENGTH as u32);
        if out.is_null() || (room as usize) < LENGTH {
            return Err(Error::WSAEFAULT);
        }
        let address = buffer.expose_provenance() as u64;
        // SAFETY: the switch keeps the memory until it deregisters it.
        let made = unsafe { provider()?.register_rdma_memory(s, address, length, flags) }?;
        // SAFETY: there is room for it.
        unsafe { out.cast::<[u8; LENGTH]>().write(made) };
        Ok(0)
    };
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, SOCKET_ERROR, run) }
}

unsafe extern "C" fn deregister_rdma_memory(
    s: usize,
    bytes: *mut c_void,
    length: u32,
    errno: *mut i32,
) -> i32 {
    let run = || {
        let provider = provider()?;
        provider.option(s, crate::abi::SOL_SOCKET, crate::abi::SO_DEBUG)?; // a socket at all
        // SAFETY: the switch's bytes.
        provider.deregister_rdma_memory(s, unsafe { descriptor(bytes, length) }?).map(|()| 0)
    };
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, SOCKET_ERROR, run) }
}

unsafe extern "C" fn cache_callback(address: *mut c_void, size: usize, errno: *mut i32) -> i32 {
    let run = || {
        provider()?.memory_goes_away(address.addr() as u64, size as u64)?;
        Ok(0)
    };
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, SOCKET_ERROR, run) }
}

fn function(extension: Extension) -> *const c_void {
    match extension {
        Extension::RegisterMemory => register_memory as *const c_void,
        Extension::DeregisterMemory => deregister_memory as *const c_void,
        Extension::RegisterRdmaMemory => register_rdma_memory as *const c_void,
        Extension::DeregisterRdmaMemory => deregister_rdma_memory as *const c_void,
        Extension::RdmaWrite => rdma_write as *const c_void,
        Extension::RdmaRead => rdma_read as *const c_void,
        Extension::MemoryRegistrationCacheCallback => cache_callback as *const c_void,
    }
}

/// The list and, behind it, the addresses that it points to.
fn address_list(addresses: &[SocketAddr], at: *mut u8, room: usize) -> (usize, bool) {
    let head = size_of::<SocketAddressList>() - size_of::<SocketAddress>();
    let entries = addresses.len() * size_of::<SocketAddress>();
    let needed = head + entries + addresses.len() * 28;
    if at.is_null() || room < needed {
        return (needed, false);
    }
    // SAFETY: `room` bytes are there, and every write below lies within `needed`. Nothing is
    // assumed about alignment.
    unsafe {
        at.cast::<i32>().write_unaligned(i32::try_from(addresses.len()).unwrap_or(0));
        for (index, address) in addresses.iter().enumerate() {
            let (bytes, length) = address_bytes(*address);
            let place = at.add(head + entries + index * 28);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
            let entry = SocketAddress { address: place.cast(), length: length as i32 };
            at.add(head).cast::<SocketAddress>().add(index).write_unaligned(entry);
        }
    }
    (needed, true)
}

unsafe extern "C" fn ioctl(
    _s: usize,
    code: u32,
    input: *const c_void,
    input_length: u32,
    out: *mut c_void,
    out_length: u32,
    returned: *mut u32,
    _overlapped: *mut Overlapped,
    _routine: Routine,
    _thread: *mut c_void,
    errno: *mut i32,
) -> i32 {
    let run = || {
        let provider = provider()?;
        // SAFETY: the switch's pointer.
        let returned = unsafe { returned.as_mut() }.ok_or(Error::WSAEFAULT)?;
        match code {
            SIO_GET_EXTENSION_FUNCTION_POINTER => {
                if input.is_null() || (input_length as usize) < size_of::<Guid>() {
                    return Err(Error::WSAEFAULT);
                }
                // SAFETY: the switch's bytes.
                let guid = unsafe { input.cast::<Guid>().read_unaligned() };
                let found = find(&guid, provider.options.offers)?;
                if out.is_null() || (out_length as usize) < size_of::<usize>() {
                    return Err(Error::WSAEFAULT);
                }
                // SAFETY: there is room for a pointer.
                unsafe { out.cast::<*const c_void>().write_unaligned(function(found)) };
                *returned = size_of::<usize>() as u32;
                Ok(0)
            }
            SIO_ADDRESS_LIST_QUERY => {
                let addresses = provider.addresses();
                let (needed, written) = address_list(&addresses, out.cast(), out_length as usize);
                *returned = u32::try_from(needed).unwrap_or(u32::MAX);
                if written { Ok(0) } else { Err(Error::WSAEFAULT) }
            }
            _ => Err(Error::WSAEOPNOTSUPP),
        }
    };
    // SAFETY: the switch's pointer.
    unsafe { entry(errno, SOCKET_ERROR, run) }
}
