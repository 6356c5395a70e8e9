//! IND2MemoryRegion (ND2 2.8, 5.1).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use transom_engine::Status;
use transom_memory::{Rights, Token};

use super::{Adapter, overlapped_result};
use crate::abi::*;
use crate::call;
use crate::com::{Alive, InPtr, class};
use crate::guid::{IID_IND2MemoryRegion, IID_IND2Overlapped};
use crate::limits;
use crate::os::{File, OverlappedPtr, lock};
use crate::posting::remote_token;
use crate::status::*;
use crate::table::nd2;

/// A memory region: one buffer at a time.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) adapter: Arc<Adapter>,
    file: Arc<File>,
    /// The token, for getters that cannot fail and do not wait.
    token: AtomicU32,
    pub(crate) registered: Mutex<Option<Token>>,
    _alive: Alive,
}

class!(Region, [IID_IND2MemoryRegion, IID_IND2Overlapped], {
    fn cancel_overlapped_requests() -> i32;
    fn get_overlapped_result(overlapped: OverlappedPtr, wait: i32) -> i32;
    fn register(buffer: InPtr<u8>, length: usize, flags: u32, overlapped: OverlappedPtr) -> i32;
    fn deregister(overlapped: OverlappedPtr) -> i32;
    fn get_local_token() -> u32;
    fn get_remote_token() -> u32;
}
    /// ND2 R20: the last Release deregisters, with the windows that are still bound.
    fn released(this: &Arc<Region>) {
        if let Some(region) = lock(&this.registered).take() {
            this.adapter.nic.raw.close_region(region);
        }
    }
);

/// Rights of ND2 R11 to R15.
fn rights(flags: u32) -> Result<Rights, i32> {
    const KNOWN: u32 =
        MR_LOCAL_WRITE | MR_REMOTE_READ | MR_REMOTE_WRITE_BIT | MR_READ_SINK | MR_DO_NOT_SECURE_VM;
    if flags & !KNOWN != 0 {
        return Err(ND_INVALID_PARAMETER_3);
    }
    let pick = |bit: u32, right: Rights| if flags & bit != 0 { right } else { Rights::NONE };
    // Remote write includes local write, however it was asked for (ND2 R15, C37).
    Ok(Rights::LOCAL_READ
        | Rights::BIND
        | pick(MR_LOCAL_WRITE | MR_REMOTE_WRITE_BIT, Rights::LOCAL_WRITE)
        | pick(MR_REMOTE_READ, Rights::REMOTE_READ)
        | pick(MR_REMOTE_WRITE_BIT, Rights::REMOTE_WRITE)
        | pick(MR_READ_SINK, Rights::READ_SINK))
}

/// The order of ND2 R9. The engine finds out what the pages permit.
fn check(buffer: usize, length: usize) -> Result<(), i32> {
    if buffer == 0 {
        return Err(ND_INVALID_PARAMETER);
    }
    if length == 0 {
        return Err(ND_INVALID_BUFFER_SIZE);
    }
    if length as u64 > limits::REGION {
        return Err(ND_INVALID_PARAMETER);
    }
    buffer.checked_add(length).map(drop).ok_or(ND_ACCESS_VIOLATION)
}

/// The engine numbers the parameters of its own call.
fn register_status(status: Status) -> i32 {
    match status {
        Status::InvalidParameter(1) => ND_ACCESS_VIOLATION, // wraps
        Status::InvalidParameter(_) => ND_INVALID_PARAMETER,
        other => nd2(other),
    }
}

impl Region {
    pub(crate) fn new(adapter: &Arc<Adapter>, file: Arc<File>) -> Arc<Region> {
        Arc::new(Region {
            adapter: adapter.clone(),
            file,
            token: AtomicU32::new(0),
            registered: Mutex::new(None),
            _alive: Alive::new(),
        })
    }

    fn cancel_overlapped_requests(self: &Arc<Self>) -> Outcome {
        Ok(ND_SUCCESS) // ND2 R21: nothing is ever under way
    }

    fn get_overlapped_result(self: &Arc<Self>, overlapped: OverlappedPtr, wait: i32) -> Outcome {
        overlapped_result(overlapped, wait)
    }

    fn register(
        self: &Arc<Self>,
        buffer: InPtr<u8>,
        length: usize,
        flags: u32,
        overlapped: OverlappedPtr,
    ) -> Outcome {
        check(buffer.address(), length)?;
        let rights = rights(flags)?;
        let mut registered = lock(&self.registered);
        if registered.is_some() {
            return Err(ND_INVALID_DEVICE_STATE); // ND2 R1
        }
        call::at_once(&self.file, overlapped, || {
            let (base, length) = (buffer.address() as u64, length as u64);
            let made = self.adapter.nic.register(base, length, rights);
            let region = made.map_err(register_status)?;
            self.token.store(region.0, Ordering::Release);
            *registered = Some(region);
            drop(registered);
            Ok(())
        })
    }

    fn deregister(self: &Arc<Self>, overlapped: OverlappedPtr) -> Outcome {
        let mut registered = lock(&self.registered);
        let region = registered.ok_or(ND_INVALID_DEVICE_STATE)?; // ND2 R19
        call::at_once(&self.file, overlapped, || {
            // Busy is answered inline (ND2 R16, C5).
            self.adapter.nic.raw.deregister(region).map_err(|e| nd2(e.status))?;
            *registered = None;
            drop(registered);
            // No access is under way any more (ND2 R18). The packet follows at once, so that
            // nothing is written to the OVERLAPPED later (1.3 rule 11).
            Ok(())
        })
    }

    fn get_local_token(self: &Arc<Self>) -> u32 {
        self.token.load(Ordering::Acquire)
    }

    fn get_remote_token(self: &Arc<Self>) -> u32 {
        remote_token(self.token.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nd2_r9_null_comes_before_size_and_size_before_the_range() {
        assert_eq!(check(0, 0), Err(ND_INVALID_PARAMETER));
        assert_eq!(check(0, 5), Err(ND_INVALID_PARAMETER));
        assert_eq!(check(64, 0), Err(ND_INVALID_BUFFER_SIZE));
        assert_eq!(check(64, limits::REGION as usize), Ok(()), "R8: the limit itself");
        assert_eq!(check(64, limits::REGION as usize + 1), Err(ND_INVALID_PARAMETER));
        assert_eq!(check(64, usize::MAX), Err(ND_INVALID_PARAMETER));
        assert_eq!(check(usize::MAX - 9, 100), Err(ND_ACCESS_VIOLATION));
        assert_eq!(check(64, 1), Ok(()));
    }

    #[test]
    fn easy_29_remote_write_is_bit_4_alone_and_brings_local_write() {
        let local_only = rights(MR_LOCAL_WRITE).unwrap();
        assert_eq!(local_only.0 & Rights::REMOTE_WRITE.0, 0, "C37");
        let remote = rights(MR_REMOTE_WRITE_BIT).unwrap();
        let both = Rights::REMOTE_WRITE | Rights::LOCAL_WRITE;
        assert_eq!(remote.0 & both.0, both.0, "R15");
        assert_eq!(remote.0 & Rights::REMOTE_READ.0, 0);
        assert_eq!(rights(0x10), Err(ND_INVALID_PARAMETER_3));
        assert!(rights(MR_DO_NOT_SECURE_VM).is_ok());
    }
}
