//! Messages, RDMA, and the question how an operation stands: the entries of WSD 5.6, 6, 7.

use std::ffi::c_void;

use super::memory::descriptor;
use super::{call, entry};
use crate::BUFFERS_LIMIT;
use crate::abi::{Overlapped, WsaBuf, WsaBufEx};
use crate::data::{Direction, Range};
use crate::error::{Error, Result};
use crate::memory::Handle;
use crate::overlapped::Operation;
use crate::tables::Routine;

/// The answer of a call whose operation has begun (WSD O-2).
fn pending(begun: Result<()>) -> Result<()> {
    begun.and(Err(Error::WSA_IO_PENDING))
}

/// The arguments of every data transfer: buffers, an overlapped, and no routine (WSD O-1).
///
/// # Safety
/// `buffers` is NULL or has `count` entries; `overlapped` as [`Operation::new`] demands.
unsafe fn transfer<B: Copy, T>(
    buffers: *const B,
    count: u32,
    overlapped: *mut Overlapped,
    routine: Routine,
    convert: impl Fn(&B) -> T,
) -> Result<(Vec<T>, Operation)> {
    // SAFETY: this function's contract.
    let operation = unsafe { Operation::new(overlapped) }.ok_or(Error::WSAEINVAL)?;
    if !routine.is_null() || count as usize > BUFFERS_LIMIT {
        return Err(Error::WSAEINVAL);
    }
    if buffers.is_null() {
        return Err(Error::WSAEFAULT);
    }
    // SAFETY: this function's contract.
    let buffers = unsafe { std::slice::from_raw_parts(buffers, count as usize) };
    Ok((buffers.iter().map(convert).collect(), operation))
}

fn range(buffer: &WsaBuf) -> Range {
    Range { address: buffer.buf.expose_provenance() as u64, length: buffer.len }
}

fn part(buffer: &WsaBufEx) -> (Range, Handle) {
    let address = buffer.buf.expose_provenance() as u64;
    (Range { address, length: buffer.len }, Handle(buffer.handle.addr()))
}

pub(super) unsafe extern "C" fn send(
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
    // SAFETY: the switch's pointers.
    unsafe {
        call(errno, |provider| {
            let (ranges, operation) = transfer(buffers, count, overlapped, routine, range)?;
            pending(provider.send(s, &ranges, flags, operation))
        })
    }
}

pub(super) unsafe extern "C" fn recv(
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
    // SAFETY: the switch's pointers.
    unsafe {
        call(errno, |provider| {
            let (ranges, operation) = transfer(buffers, count, overlapped, routine, range)?;
            let flags = flags.as_ref().copied().unwrap_or(0);
            pending(provider.receive(s, &ranges, flags, operation))
        })
    }
}

macro_rules! rdma {
    ($name:ident, $direction:expr) => {
        pub(super) unsafe extern "C" fn $name(
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
            // SAFETY: the switch's pointers.
            unsafe {
                call(errno, |provider| {
                    let (parts, operation) = transfer(buffers, count, overlapped, routine, part)?;
                    let target = (descriptor(target, target_length), offset);
                    pending(provider.rdma(s, $direction, &parts, target, flags, operation))
                })
            }
        }
    };
}

rdma!(rdma_read, Direction::Read);
rdma!(rdma_write, Direction::Write);

pub(super) unsafe extern "C" fn get_overlapped_result(
    s: usize,
    overlapped: *mut Overlapped,
    bytes: *mut u32,
    wait: i32,
    flags: *mut u32,
    errno: *mut i32,
) -> i32 {
    // SAFETY: the switch's pointers; the structure is of an operation that it began.
    unsafe {
        entry(errno, 0, |provider| {
            let operation = Operation::new(overlapped).ok_or(Error::WSA_INVALID_HANDLE)?;
            let outcome = provider.overlapped_result(s, operation, wait != 0)?;
            if let Some(bytes) = bytes.as_mut() {
                *bytes = outcome.bytes;
            }
            if let Some(flags) = flags.as_mut() {
                *flags = outcome.flags;
            }
            outcome.error.map_or(Ok(1), Err)
        })
    }
}
