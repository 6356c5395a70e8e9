//! Address handles. Datagrams come later: handles are made and read, and no queue pair takes one yet.

use std::ffi::c_int;
use std::sync::Arc;

use crate::abi::*;
use crate::context::Context;
use crate::entry::shell::{self, OfAddress, OfDomain};
use crate::entry::{number, pointer};
use crate::errno::{Errno, Result};
use crate::memory::Domain;

/// An address handle.
#[derive(Debug)]
pub(crate) struct Address {
    domain: Arc<Domain>,
    pub(crate) handle: u32,
}

impl Drop for Address {
    fn drop(&mut self) {
        self.domain.context.counters.address_handles.give_back();
        self.domain.leave();
    }
}

fn check(context: &Context, attr: &ibv_ah_attr) -> Result {
    let known = context.address(usize::from(attr.grh.sgid_index)).is_some();
    if attr.is_global != 0 && attr.port_num == 1 && known { Ok(()) } else { Err(Errno::EINVAL) }
}

pub(crate) unsafe extern "C" fn ibv_create_ah(
    pd: *mut ibv_pd,
    attr: *mut ibv_ah_attr,
) -> *mut ibv_ah {
    pointer(|| {
        // SAFETY: a domain and a structure of the program's.
        let (domain, attr) =
            unsafe { (shell::look::<OfDomain>(pd)?, attr.as_ref().ok_or(Errno::EINVAL)?) };
        let context = &domain.body.context;
        check(context, attr)?;
        context.counters.address_handles.take()?;
        domain.body.join();
        let body = Address { domain: domain.body.clone(), handle: context.handle() };
        let head = ibv_ah { context: domain.head.context, pd, handle: body.handle };
        Ok(shell::give::<OfAddress>(head, body))
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    number(|| {
        // SAFETY: a handle of the program's, which it does not use afterwards.
        unsafe {
            shell::look::<OfAddress>(ah)?;
            shell::take::<OfAddress>(ah);
        }
        Ok(())
    })
}

/// There are no datagrams, so no completion has an address.
pub(crate) extern "C" fn ibv_create_ah_from_wc(
    _pd: *mut ibv_pd,
    _wc: *mut ibv_wc,
    _grh: *mut u8,
    _port: u8,
) -> *mut ibv_ah {
    pointer(|| Err(Errno::EOPNOTSUPP))
}

/// The same.
pub(crate) extern "C" fn ibv_init_ah_from_wc(
    _context: *mut ibv_context,
    _port: u8,
    _wc: *mut ibv_wc,
    _grh: *mut u8,
    _attr: *mut ibv_ah_attr,
) -> c_int {
    number(|| Err(Errno::EOPNOTSUPP))
}
