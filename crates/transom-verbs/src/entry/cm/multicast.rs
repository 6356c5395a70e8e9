//! Multicast groups of ids.

use std::ffi::{c_int, c_void};
use std::net::IpAddr;

use crate::abi::*;
use crate::cm::Joined;
use crate::datagram::group;
use crate::entry::cm::address;
use crate::entry::cm::ids::{finish, look, queue_pair};
use crate::entry::minus_one;
use crate::errno::{Errno, Result};
use crate::gid;

const JOIN_ADDRESS: u32 = 1;
const JOIN_FLAGS: u32 = 2;
const FULL_MEMBER: u32 = 0;
const SEND_ONLY: u32 = 1;

/// The group that a socket address names.
///
/// # Safety
/// Null, or a socket address of the program's.
unsafe fn group_at(address: *mut libc::sockaddr) -> Result<IpAddr> {
    // SAFETY: this function's contract.
    let named = unsafe { address::read(address) }?.ok_or(Errno::EINVAL)?;
    group::of(gid::bytes_of(named.ip())).ok_or(Errno::EINVAL)
}

/// # Safety
/// An id and an address of the program's.
unsafe fn join(
    id: *mut rdma_cm_id,
    address: *mut libc::sockaddr,
    user_context: *mut c_void,
    attaches: bool,
) -> Result<c_int> {
    // SAFETY: this function's contract.
    let (shell, group) = unsafe { (look(id)?, group_at(address)?) };
    let user_context = user_context.expose_provenance();
    shell.id.join_group(Joined { group, attaches, user_context })?;
    // SAFETY: as above.
    unsafe { finish(shell) }?;
    Ok(0)
}

pub(crate) unsafe extern "C" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    address: *mut libc::sockaddr,
    user_context: *mut c_void,
) -> c_int {
    // SAFETY: an id and an address of the program's.
    minus_one(|| unsafe { join(id, address, user_context, true) })
}

pub(crate) unsafe extern "C" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    user_context: *mut c_void,
) -> c_int {
    minus_one(|| {
        // SAFETY: a structure of the program's.
        let attr = unsafe { attr.as_ref() }.ok_or(Errno::EINVAL)?;
        let whole = attr.comp_mask == JOIN_ADDRESS | JOIN_FLAGS;
        if !whole || !matches!(attr.join_flags, FULL_MEMBER | SEND_ONLY) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: an id and an address of the program's.
        unsafe { join(id, attr.addr, user_context, attr.join_flags == FULL_MEMBER) }
    })
}

pub(crate) unsafe extern "C" fn rdma_leave_multicast(
    id: *mut rdma_cm_id,
    address: *mut libc::sockaddr,
) -> c_int {
    minus_one(|| {
        // SAFETY: an id with its queue pair, and an address, of the program's.
        unsafe {
            let (shell, group) = (look(id)?, group_at(address)?);
            shell.id.leave_group(group)?;
            if let Some(queue_pair) = queue_pair((*shell.head()).qp)? {
                // Not attached: it has joined in order to send, or its event was never fetched.
                let _ = queue_pair.detach(group);
            }
        }
        Ok(0)
    })
}
