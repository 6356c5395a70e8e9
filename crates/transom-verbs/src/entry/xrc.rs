//! XRC domains, and the receive sides of their queue pairs that are opened once more.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use transom_engine::QueuePairKind;

use crate::abi::*;
use crate::entry::queue_pair;
use crate::entry::shell::{self, OfXrcDomain};
use crate::entry::{number, pointer};
use crate::errno::Errno;
use crate::explain;
use crate::kind::kind;
use crate::xrc::XrcDomain;

/// Members of [`ibv_xrcd_init_attr`]: both are asked for.
const FILE: u32 = 1;
const FLAGS: u32 = 2;

/// Members of [`ibv_qp_open_attr`].
const NUMBER: u32 = 1;
const DOMAIN: u32 = 2;
const CONTEXT: u32 = 4;
const TYPE: u32 = 8;

pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    pointer(|| {
        // SAFETY: a context and a structure of the program's.
        let (own, attr) = unsafe { (shell::context(context)?, attr.as_ref()) };
        let attr = attr.ok_or(Errno::EINVAL)?;
        if attr.comp_mask & !(FILE | FLAGS) != 0 || !kind().has("XRC") {
            return Err(Errno::EOPNOTSUPP);
        }
        if attr.comp_mask != FILE | FLAGS || attr.fd < -1 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: a descriptor of the program's, which stays open during the call; what is none is refused.
        let file = (attr.fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(attr.fd) });
        let has = |flag| attr.oflags & flag != 0;
        let body = XrcDomain::open(own, file, (has(libc::O_CREAT), has(libc::O_EXCL)))?;
        Ok(shell::give::<OfXrcDomain>(ibv_xrcd { context }, body))
    })
}

pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    number(|| {
        // SAFETY: a domain of the program's, which it does not use afterwards.
        unsafe {
            shell::look::<OfXrcDomain>(xrcd)?.body.close()?;
            shell::take::<OfXrcDomain>(xrcd);
        }
        Ok(())
    })
}

/// Another structure for a queue pair that receives for a domain. It ends when the last one is destroyed.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    pointer(|| {
        // SAFETY: a context, a structure and a domain of the program's.
        let (own, attr) = unsafe { (shell::context(context)?, attr.as_ref()) };
        let attr = attr.ok_or(Errno::EINVAL)?;
        if attr.comp_mask & !(NUMBER | DOMAIN | CONTEXT | TYPE) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let needed = NUMBER | DOMAIN | TYPE;
        if attr.comp_mask & needed != needed || attr.qp_type != qpt::XRC_RECV {
            return Err(Errno::EINVAL);
        }
        // SAFETY: as above.
        let domain = &unsafe { shell::look::<OfXrcDomain>(attr.xrcd) }?.body;
        let Some(queue_pair) = own.queue_pair(attr.qp_num) else {
            explain::line(
                "ibv_open_qp: no queue pair of this context has this number; those of another process \
                 cannot be opened",
            );
            return Err(Errno::EOPNOTSUPP);
        };
        let ours = queue_pair.xrc.as_ref().is_some_and(|of| Arc::ptr_eq(of, domain));
        if queue_pair.kind() != QueuePairKind::XrcReceive || !ours {
            return Err(Errno::EINVAL);
        }
        let own_context = attr.comp_mask & CONTEXT != 0;
        let qp_context = if own_context { attr.qp_context } else { std::ptr::null_mut() };
        Ok(queue_pair::open(context, &queue_pair, qp_context).cast())
    })
}
