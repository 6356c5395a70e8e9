//! Memory windows.

use std::ffi::{c_int, c_uint};

use transom_engine::{Data, Operation, Request};

use crate::abi::*;
use crate::entry::shell::{self, OfDomain, OfQueuePair, OfRegion, OfWindow};
use crate::entry::{number, pointer};
use crate::errno::{Errno, Result};
use crate::queue_pair::Destination;
use crate::window::{Part, Window};

const TYPE_1: c_uint = 1;
const TYPE_2: c_uint = 2;

pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: c_uint) -> *mut ibv_mw {
    pointer(|| {
        // SAFETY: a domain of the program's.
        let domain = unsafe { shell::look::<OfDomain>(pd) }?;
        let wide = match kind {
            TYPE_1 => true,
            TYPE_2 => false,
            _ => return Err(Errno::EINVAL),
        };
        let body = Window::new(&domain.body, wide)?;
        let context = domain.context();
        let (rkey, handle) = (body.first_key(), body.handle);
        Ok(shell::give::<OfWindow>(ibv_mw { context, pd, rkey, handle, kind }, body))
    })
}

pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    number(|| {
        // SAFETY: a window of the program's, which it does not use afterwards.
        unsafe {
            shell::look::<OfWindow>(mw)?;
            shell::take::<OfWindow>(mw);
        }
        Ok(())
    })
}

/// The request that binds a window so, and its key. `wide`: of which type the window has to be.
///
/// # Safety
/// A window of the program's, or null, and what it is to be bound to.
unsafe fn bind(
    mw: *mut ibv_mw,
    wide: bool,
    key: Option<u32>,
    info: &ibv_mw_bind_info,
) -> Result<(Operation, u32)> {
    // SAFETY: this function's contract.
    let (window, region) = unsafe {
        let region = if info.mr.is_null() {
            None
        } else {
            Some(shell::region(shell::look::<OfRegion>(info.mr)?))
        };
        (&shell::look::<OfWindow>(mw)?.body, region)
    };
    let closes = wide && info.length == 0;
    if window.wide != wide || region.is_none() && !closes {
        return Err(Errno::EINVAL);
    }
    let part = Part {
        region: region.as_deref(),
        address: info.addr,
        length: info.length,
        access: info.mw_access_flags,
    };
    window.bind(key.unwrap_or_else(|| window.draw_key()), &part)
}

/// Bind by a request of a queue (type 2).
///
/// # Safety
/// As [`bind`].
pub(crate) unsafe fn bind_in_queue(
    mw: *mut ibv_mw,
    key: u32,
    info: &ibv_mw_bind_info,
) -> Result<(Operation, u32)> {
    // SAFETY: this function's contract.
    unsafe { bind(mw, false, Some(key), info) }
}

pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    asked: *mut ibv_mw_bind,
) -> c_int {
    number(|| {
        // SAFETY: a queue pair, a window and a structure of the program's.
        unsafe {
            let asked = asked.as_ref().ok_or(Errno::EINVAL)?;
            let pair = &shell::look::<OfQueuePair>(qp.cast())?.body.queue_pair;
            pair.sends()?;
            let (operation, key) = bind(mw, true, None, &asked.bind_info)?;
            let flags = pair.flags(asked.send_flags);
            let request = Request { context: asked.wr_id, operation, flags };
            pair.post_send(&request, Data::Sges(&[]), &Destination::Peer)?;
            (*mw).rkey = key;
        }
        Ok(())
    })
}
