//! The C entries: pointers become values here. Each entry catches a panic.
#![allow(non_snake_case, reason = "exported name")]

mod address;
mod data;
mod ioctl;
mod memory;
mod sockets;
mod upcalls;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use crate::abi::{ProtocolInfo, SOCKET_ERROR, WspData};
use crate::error::{Error, Result};
use crate::provider::{Options, Provider, lock};
use crate::tables::{NONE, ProcTable, UpcallTableEx};

/// The provider of this process, and how often it was started (WSD 2.1).
static PROVIDER: Mutex<Option<(Arc<Provider>, u32)>> = Mutex::new(None);

fn provider() -> Result<Arc<Provider>> {
    let provider = lock(&PROVIDER);
    provider.as_ref().map(|(provider, _)| Arc::clone(provider)).ok_or(Error::WSAENETDOWN)
}

/// Run an entry on the provider: its value, or `failure` with the error stored.
///
/// # Safety
/// `errno` is NULL or may be written.
unsafe fn entry<T>(errno: *mut i32, failure: T, f: impl FnOnce(&Arc<Provider>) -> Result<T>) -> T {
    let run = || provider().and_then(|provider| f(&provider));
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(Error::WSAENETDOWN));
    result.unwrap_or_else(|error| {
        if !errno.is_null() {
            // SAFETY: this function's contract.
            unsafe { errno.write(error.0) };
        }
        failure
    })
}

/// As [`entry`], for those that return 0 or `SOCKET_ERROR`.
///
/// # Safety
/// As [`entry`].
unsafe fn call(errno: *mut i32, f: impl FnOnce(&Arc<Provider>) -> Result<()>) -> i32 {
    // SAFETY: this function's contract.
    unsafe { entry(errno, SOCKET_ERROR, |provider| f(provider).map(|()| 0)) }
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
                let switch = Arc::new(upcalls::Table { table: upcalls, catalog_entry });
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

/// The last one ends everything (WSD X-11).
unsafe extern "C" fn cleanup(errno: *mut i32) -> i32 {
    let run = |_: &Arc<Provider>| {
        let mut running = lock(&PROVIDER);
        let Some((_, count)) = running.as_mut() else { return Err(Error::WSAENETDOWN) };
        *count -= 1;
        let last = if *count == 0 { running.take() } else { None };
        drop(running);
        if let Some((provider, _)) = last {
            provider.cleanup();
        }
        Ok(())
    };
    // SAFETY: the switch's pointer.
    unsafe { call(errno, run) }
}

const TABLE: ProcTable = ProcTable {
    accept: Some(sockets::accept),
    address_to_string: NONE,
    async_select: NONE,
    bind: Some(sockets::bind),
    cancel_blocking_call: NONE,
    cleanup: Some(cleanup),
    close_socket: Some(sockets::close_socket),
    connect: Some(sockets::connect),
    duplicate_socket: Some(sockets::duplicate_socket),
    enum_network_events: Some(sockets::enum_network_events),
    event_select: Some(sockets::event_select),
    get_overlapped_result: Some(data::get_overlapped_result),
    get_peer_name: NONE,
    get_sock_name: NONE,
    get_sock_opt: Some(sockets::get_sock_opt),
    get_qos_by_name: Some(sockets::get_qos_by_name),
    ioctl: Some(ioctl::ioctl),
    join_leaf: NONE,
    listen: Some(sockets::listen),
    recv: Some(data::recv),
    recv_disconnect: NONE,
    recv_from: NONE,
    select: NONE,
    send: Some(data::send),
    send_disconnect: NONE,
    send_to: NONE,
    set_sock_opt: Some(sockets::set_sock_opt),
    shutdown: NONE,
    socket: Some(sockets::socket),
    string_to_address: NONE,
};
