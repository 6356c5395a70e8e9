//! Shared receive queues.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::abi::*;
use crate::completion::Queue;
use crate::entry::shell::{self, OfDomain, OfQueue, OfSharedQueue, OfXrcDomain};
use crate::entry::{number, pointer};
use crate::errno::{Errno, Result};
use crate::receive::SharedQueue;
use crate::xrc::XrcDomain;

/// # Safety
/// The program's domain.
unsafe fn create(
    pd: *mut ibv_pd,
    xrc: Option<(&Arc<XrcDomain>, &Arc<Queue>)>,
    srq_context: *mut c_void,
    asked: &mut ibv_srq_attr,
) -> Result<*mut ibv_srq> {
    // SAFETY: this function's contract.
    let domain = unsafe { shell::look::<OfDomain>(pd) }?;
    let queue = Arc::new(SharedQueue::new(&domain.body, xrc, asked)?);
    let head = ibv_srq {
        context: domain.context(),
        srq_context,
        pd,
        handle: queue.handle,
        mutex: shell::MUTEX,
        cond: shell::CONDITION,
        events_completed: 0,
    };
    let given = shell::give::<OfSharedQueue>(head, queue.clone());
    queue.address.store(given.expose_provenance(), Ordering::Release);
    Ok(given)
}

pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    pointer(|| {
        // SAFETY: the caller's structure and domain.
        unsafe {
            let attr = attr.as_mut().ok_or(Errno::EINVAL)?;
            create(pd, None, attr.srq_context, &mut attr.attr)
        }
    })
}

/// Basic queues, and those of an XRC domain.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    const TYPE: u32 = 1;
    const PD: u32 = 2;
    const XRCD: u32 = 4;
    const CQ: u32 = 8;
    const XRC: u32 = 1;
    pointer(|| {
        // SAFETY: the caller's structure and objects.
        unsafe {
            let attr = attr.as_mut().ok_or(Errno::EINVAL)?;
            let kind = if attr.comp_mask & TYPE == 0 { 0 } else { attr.srq_type };
            let known = if kind == XRC { TYPE | PD | XRCD | CQ } else { TYPE | PD };
            if attr.comp_mask & !known != 0 || kind > XRC {
                return Err(Errno::EOPNOTSUPP);
            }
            if attr.comp_mask | TYPE != known {
                return Err(Errno::EINVAL);
            }
            if kind != XRC {
                return create(attr.pd, None, attr.srq_context, &mut attr.attr);
            }
            let domain = &shell::look::<OfXrcDomain>(attr.xrcd)?.body;
            let queue = &shell::look::<OfQueue>(attr.cq.cast())?.body;
            create(attr.pd, Some((domain, queue)), attr.srq_context, &mut attr.attr)
        }
    })
}

/// The number by which a peer's messages find it: `EINVAL` for a queue of no XRC domain.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, to: *mut u32) -> c_int {
    number(|| {
        // SAFETY: a queue of the program's, and room for a number.
        unsafe {
            let numbered = shell::look::<OfSharedQueue>(srq)?.body.xrc.as_ref();
            *to.as_mut().ok_or(Errno::EINVAL)? = numbered.ok_or(Errno::EINVAL)?.number;
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    number(|| {
        // SAFETY: a queue of the program's, which it does not use afterwards.
        unsafe {
            shell::look::<OfSharedQueue>(srq)?.body.destroy()?;
            shell::take::<OfSharedQueue>(srq);
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_uint,
) -> c_int {
    number(|| {
        // SAFETY: a queue and a structure of the program's.
        unsafe {
            let attr = attr.as_ref().ok_or(Errno::EINVAL)?;
            shell::look::<OfSharedQueue>(srq)?.body.modify(attr, mask)
        }
    })
}

pub(crate) unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    number(|| {
        // SAFETY: a queue and a structure of the program's.
        unsafe {
            let queue = shell::look::<OfSharedQueue>(srq)?;
            *attr.as_mut().ok_or(Errno::EINVAL)? = queue.body.query();
        }
        Ok(())
    })
}
