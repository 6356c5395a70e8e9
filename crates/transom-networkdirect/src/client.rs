//! The calls a NetworkDirect program starts with (ND2 6.3). On Windows they find providers in
//! Winsock's catalogue; here there is one, this library.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Mutex;

use transom_engine::raw::socket_address;

use crate::com::{InPtr, Object, OutPtr, guard};
use crate::guid::{Guid, IID_INDAdapter};
use crate::os::{lock, stay_loaded};
use crate::status::*;
use crate::{list, marshal, v1, v2};

/// How many NdStartup are in force.
static STARTED: Mutex<usize> = Mutex::new(0);

const EXCLUDE_V1: u32 = 0x2;
const EXCLUDE_V2: u32 = 0x4;

fn ready() -> Result<(), i32> {
    if *lock(&STARTED) > 0 { Ok(()) } else { Err(ND_DEVICE_NOT_READY) }
}

fn answer(result: Outcome) -> i32 {
    result.unwrap_or_else(|status| status)
}

#[unsafe(no_mangle)]
extern "system" fn NdStartup() -> i32 {
    guard(|| {
        stay_loaded();
        *lock(&STARTED) += 1;
        ND_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdCleanup() -> i32 {
    guard(|| {
        let mut started = lock(&STARTED);
        if *started == 0 {
            return ND_DEVICE_NOT_READY;
        }
        *started -= 1;
        ND_SUCCESS
    })
}

/// There is nothing to unload.
#[unsafe(no_mangle)]
extern "system" fn NdFlushProviders() {}

#[unsafe(no_mangle)]
extern "system" fn NdQueryAddressList(flags: u32, out: OutPtr<u8>, length: OutPtr<usize>) -> i32 {
    guard(|| answer(query_address_list(flags, out, length)))
}

fn query_address_list(flags: u32, out: OutPtr<u8>, length: OutPtr<usize>) -> Outcome {
    ready()?;
    if length.is_null() {
        return Err(ND_INVALID_PARAMETER_3);
    }
    // Every address is served by both versions: it is listed for each that is not excluded.
    let mut addresses = Vec::new();
    for excluded in [EXCLUDE_V2, EXCLUDE_V1] {
        if flags & excluded == 0 {
            addresses.extend(list::local());
        }
    }
    if addresses.is_empty() {
        length.put(0);
        return Ok(ND_SUCCESS);
    }
    list::put(&addresses, out, length)
}

#[unsafe(no_mangle)]
extern "system" fn NdCheckAddress(address: InPtr<u8>, length: usize) -> i32 {
    guard(|| answer(check_address(address, length).map(|_| ND_SUCCESS)))
}

fn check_address(address: InPtr<u8>, length: usize) -> Result<IpAddr, i32> {
    ready()?;
    if length < socket_address::V4_LENGTH {
        return Err(ND_INVALID_PARAMETER_2);
    }
    let given = address.many(length.min(socket_address::V6_LENGTH)).ok_or(ND_INVALID_ADDRESS)?;
    let mut whole = [0; socket_address::V6_LENGTH];
    whole.iter_mut().zip(given).for_each(|(to, from)| *to = *from);
    let address = socket_address::decode(&whole).ok_or(ND_INVALID_ADDRESS)?.ip();
    if length < socket_address::length(address) {
        return Err(ND_INVALID_PARAMETER_2);
    }
    if list::is_local(address) { Ok(address) } else { Err(ND_INVALID_ADDRESS) }
}

#[unsafe(no_mangle)]
extern "system" fn NdResolveAddress(
    remote: InPtr<u8>,
    remote_length: usize,
    local: OutPtr<u8>,
    local_length: OutPtr<usize>,
) -> i32 {
    guard(|| answer(resolve_address(remote, remote_length, local, local_length)))
}

fn resolve_address(
    remote: InPtr<u8>,
    remote_length: usize,
    local: OutPtr<u8>,
    local_length: OutPtr<usize>,
) -> Outcome {
    ready()?;
    let remote = remote.socket_address(remote_length).ok_or(ND_INVALID_ADDRESS)?;
    let source = source_address(remote.ip())?;
    if !list::is_local(source) {
        return Err(ND_INVALID_ADDRESS);
    }
    marshal::put_address(SocketAddr::new(source, 0), local, local_length)
}

/// The address that the routes choose towards `remote`. A datagram socket is asked and sends
/// nothing.
fn source_address(remote: IpAddr) -> Result<IpAddr, i32> {
    if remote.is_unspecified() {
        return Err(ND_INVALID_ADDRESS);
    }
    if list::is_local(remote) {
        return Ok(remote);
    }
    let any: SocketAddr =
        if remote.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let found = UdpSocket::bind(any).and_then(|socket| {
        socket.connect((remote, 9))?;
        socket.local_addr()
    });
    match found {
        Ok(address) => Ok(address.ip()),
        Err(e) => Err(match e.kind() {
            // The latter: no address of this family to come from.
            ErrorKind::NetworkUnreachable | ErrorKind::AddrNotAvailable => ND_NETWORK_UNREACHABLE,
            ErrorKind::HostUnreachable => ND_HOST_UNREACHABLE,
            _ => ND_UNSUCCESSFUL,
        }),
    }
}

#[unsafe(no_mangle)]
extern "system" fn NdOpenAdapter(
    iid: InPtr<Guid>,
    address: InPtr<u8>,
    length: usize,
    out: OutPtr<usize>,
) -> i32 {
    guard(|| answer(open_adapter(iid, address, length, out.emptied())))
}

fn open_adapter(
    iid: InPtr<Guid>,
    address: InPtr<u8>,
    length: usize,
    out: OutPtr<usize>,
) -> Outcome {
    let iid = iid.get().ok_or(ND_INVALID_PARAMETER_1)?;
    let address = check_address(address, length)?;
    if iid == IID_INDAdapter {
        return Object::give(v1::Adapter::open(address)?, iid, out);
    }
    Object::give(v2::Adapter::open(address)?, iid, out)
}

#[unsafe(no_mangle)]
extern "system" fn NdOpenV1Adapter(address: InPtr<u8>, length: usize, out: OutPtr<usize>) -> i32 {
    guard(|| {
        let out = out.emptied();
        answer(
            check_address(address, length)
                .and_then(|address| Object::give(v1::Adapter::open(address)?, IID_INDAdapter, out)),
        )
    })
}
