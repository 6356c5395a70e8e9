//! Shared receive queues.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::abi::*;
use crate::entry::shell::{self, OfDomain, OfSharedQueue};
use crate::entry::{number, pointer};
use crate::errno::{Errno, Result};
use crate::receive::SharedQueue;

/// # Safety
/// The program's domain.
unsafe fn create(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    asked: &mut ibv_srq_attr,
) -> Result<*mut ibv_srq> {
    // SAFETY: this function's contract.
    let domain = unsafe { shell::look::<OfDomain>(pd) }?;
    let queue = Arc::new(SharedQueue::new(&domain.body, asked)?);
    let head = ibv_srq {
        context: domain.head.context,
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
            create(pd, attr.srq_context, &mut attr.attr)
        }
    })
}

/// Basic queues only.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    const TYPE: u32 = 1;
    const PD: u32 = 2;
    pointer(|| {
        // SAFETY: the caller's structure and domain.
        unsafe {
            let attr = attr.as_mut().ok_or(Errno::EINVAL)?;
            let basic = attr.comp_mask & TYPE == 0 || attr.srq_type == 0;
            if attr.comp_mask & !(TYPE | PD) != 0 || !basic {
                return Err(Errno::EOPNOTSUPP);
            }
            if attr.comp_mask & PD == 0 {
                return Err(Errno::EINVAL);
            }
            create(attr.pd, attr.srq_context, &mut attr.attr)
        }
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
