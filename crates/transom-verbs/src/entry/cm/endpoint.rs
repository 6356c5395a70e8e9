//! Queue pairs of ids, and the calls that make everything at once.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use crate::abi::*;
use crate::entry::cm::address;
use crate::entry::cm::events::next_event;
use crate::entry::cm::ids::{
    IdShell, checked, look, queue_pair, rdma_bind_addr, rdma_create_id, rdma_destroy_id,
    rdma_migrate_id, rdma_resolve_addr, rdma_resolve_route,
};
use crate::entry::completion::{
    ibv_create_comp_channel, ibv_create_cq, ibv_destroy_comp_channel, ibv_destroy_cq,
};
use crate::entry::minus_one;
use crate::entry::queue_pair::{create_ex, create_qp_ex, ibv_destroy_qp, ibv_modify_qp};
use crate::entry::receive::{create_srq_ex, ibv_create_srq, ibv_destroy_srq};
use crate::entry::shell::{self, OfDomain};
use crate::entry::xrc::open_xrcd;
use crate::errno::{Errno, Result};
use crate::process::PerProcess;

/// A channel and a queue for `depth` completions.
///
/// # Safety
/// A context.
unsafe fn queue(id: *mut rdma_cm_id, depth: u32) -> Result<(*mut ibv_comp_channel, *mut ibv_cq)> {
    // SAFETY: this function's contract.
    unsafe {
        let depth = c_int::try_from(depth.max(1)).map_err(|_| Errno::EINVAL)?;
        let channel = checked_pointer(ibv_create_comp_channel((*id).verbs))?;
        let cq = checked_pointer(ibv_create_cq((*id).verbs, depth, id.cast(), channel, 0));
        let cq = cq.inspect_err(|_| {
            ibv_destroy_comp_channel(channel);
        })?;
        Ok((channel, cq))
    }
}

/// # Safety
/// An id with queues that [`queue`] has made, or none.
unsafe fn destroy_queues(shell: &IdShell) {
    let [send, receive] = &shell.own_queues;
    let head = shell.head();
    // SAFETY: this function's contract.
    unsafe {
        if send.swap(false, Ordering::Relaxed) {
            ibv_destroy_cq((&raw mut (*head).send_cq).replace(std::ptr::null_mut()));
            let channel = (&raw mut (*head).send_cq_channel).replace(std::ptr::null_mut());
            ibv_destroy_comp_channel(channel);
        }
        if receive.swap(false, Ordering::Relaxed) {
            ibv_destroy_cq((&raw mut (*head).recv_cq).replace(std::ptr::null_mut()));
            let channel = (&raw mut (*head).recv_cq_channel).replace(std::ptr::null_mut());
            ibv_destroy_comp_channel(channel);
        }
    }
}

/// # Safety
/// An id of the program's, and attributes with its objects.
unsafe fn create_qp(id: *mut rdma_cm_id, attr: &mut ibv_qp_init_attr_ex) -> Result {
    // SAFETY: this function's contract.
    unsafe {
        let shell = look(id)?;
        if (*shell.head()).verbs.is_null() || !(*shell.head()).qp.is_null() {
            return Err(Errno::EINVAL);
        }
        if attr.comp_mask & init::PD == 0 || attr.pd.is_null() {
            attr.comp_mask |= init::PD;
            attr.pd = (*shell.head()).pd;
        }
        if attr.qp_type == qpt::XRC_RECV {
            if attr.comp_mask & init::XRCD == 0 || attr.xrcd.is_null() {
                attr.comp_mask |= init::XRCD;
                attr.xrcd = domain_of((*shell.head()).verbs)?;
            }
            let qp = checked_pointer(create_qp_ex((*shell.head()).verbs, attr))?;
            ((*shell.head()).qp, (*shell.head()).qp_type) = (initialised(shell, qp)?, attr.qp_type);
            return Ok(());
        }
        if shell::look::<OfDomain>(attr.pd)?.context() != (*shell.head()).verbs {
            return Err(Errno::EINVAL);
        }
        if attr.send_cq.is_null() {
            let (channel, cq) = queue(id, attr.cap.max_send_wr)?;
            ((*shell.head()).send_cq_channel, (*shell.head()).send_cq) = (channel, cq);
            shell.own_queues[0].store(true, Ordering::Relaxed);
            attr.send_cq = cq;
        }
        if attr.srq.is_null() {
            attr.srq = (*shell.head()).srq;
        }
        if attr.recv_cq.is_null() {
            let made = queue(id, attr.cap.max_recv_wr);
            let (channel, cq) = made.inspect_err(|_| destroy_queues(shell))?;
            ((*shell.head()).recv_cq_channel, (*shell.head()).recv_cq) = (channel, cq);
            shell.own_queues[1].store(true, Ordering::Relaxed);
            attr.recv_cq = cq;
        }
        let made = create_ex(attr).and_then(|qp| initialised(shell, qp));
        (*shell.head()).qp = made.inspect_err(|_| destroy_queues(shell))?;
        (*shell.head()).pd = attr.pd;
    }
    Ok(())
}

/// A new queue pair of the id's, in the state in which its program gets it.
///
/// # Safety
/// A queue pair.
unsafe fn initialised(shell: &IdShell, qp: *mut ibv_qp) -> Result<*mut ibv_qp> {
    // A queue pair of datagrams waits for no connection.
    let last = if shell.id.is_datagrams() { qps::RTS } else { qps::INIT };
    for state in qps::INIT..=last {
        let (mut found, mask) = shell.id.attributes(state)?;
        // SAFETY: this function's contract.
        checked(unsafe { ibv_modify_qp(qp, &raw mut found, mask as c_int) })?;
    }
    Ok(qp)
}

/// The object that a call has made, or its error.
fn checked_pointer<T>(made: *mut T) -> Result<*mut T> {
    if made.is_null() { Err(std::io::Error::last_os_error().into()) } else { Ok(made) }
}

/// The XRC domain of the ids of a context. It stays open: queues and queue pairs of any id may belong to it.
///
/// # Safety
/// A context.
unsafe fn domain_of(context: *mut ibv_context) -> Result<*mut ibv_xrcd> {
    static OPEN: PerProcess<Mutex<Vec<(usize, usize)>>> = PerProcess::new();
    let mut open = OPEN.get_or_default().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, domain)) = open.iter().find(|(of, _)| *of == context.addr()) {
        return Ok(std::ptr::with_exposed_provenance_mut(*domain));
    }
    let mut attr = ibv_xrcd_init_attr { comp_mask: 3, fd: -1, oflags: libc::O_CREAT };
    // SAFETY: this function's contract.
    let made = checked_pointer(unsafe { open_xrcd(context, &raw mut attr) })?;
    open.push((context.addr(), made.expose_provenance()));
    Ok(made)
}

/// Attributes with everything that the shorter structure does not have left out.
fn longer(plain: &ibv_qp_init_attr, pd: *mut ibv_pd) -> ibv_qp_init_attr_ex {
    ibv_qp_init_attr_ex {
        qp_context: plain.qp_context,
        send_cq: plain.send_cq,
        recv_cq: plain.recv_cq,
        srq: plain.srq,
        cap: plain.cap,
        qp_type: plain.qp_type,
        sq_sig_all: plain.sq_sig_all,
        comp_mask: init::PD,
        pd,
        xrcd: std::ptr::null_mut(),
        create_flags: 0,
        max_tso_header: 0,
        rwq_ind_tbl: std::ptr::null_mut(),
        rx_hash_conf: [0; 3],
        source_qpn: 0,
        send_ops_flags: 0,
    }
}

pub(crate) unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    minus_one(|| {
        // SAFETY: an id and attributes of the program's.
        unsafe {
            let attr = attr.as_mut().ok_or(Errno::EINVAL)?;
            let mut full = longer(attr, pd);
            create_qp(id, &mut full)?;
            attr.cap = full.cap;
            attr.send_cq = full.send_cq;
            attr.recv_cq = full.recv_cq;
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    minus_one(|| {
        // SAFETY: an id and attributes of the program's.
        unsafe {
            let attr = attr.as_mut().ok_or(Errno::EINVAL)?;
            // Queues that were made for a call that fails are gone: a second call has not asked for them.
            let asked = *attr;
            create_qp(id, attr).inspect_err(|_| *attr = asked)?;
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    crate::entry::quiet(|| {
        // SAFETY: an id of the program's.
        unsafe {
            let shell = look(id)?;
            let qp = (&raw mut (*shell.head()).qp).replace(std::ptr::null_mut());
            if let Some(queue_pair) = queue_pair(qp)? {
                // The caller hears of no refusal, and has left or forgotten its groups.
                queue_pair.detach_all();
                ibv_destroy_qp(qp);
            }
            // A shared receive queue of an XRC domain completes in one of them.
            if (*shell.head()).srq.is_null() {
                destroy_queues(shell);
            }
        }
        Ok(())
    });
}

// ---- shared receive queues -----------------------------------------------------------------------

/// Members of [`ibv_srq_init_attr_ex`], and the type of a queue of an XRC domain.
const TYPE: u32 = 1;
const PD: u32 = 2;
const XRCD: u32 = 4;
const CQ: u32 = 8;
const XRC: u32 = 1;

pub(crate) unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    minus_one(|| {
        // SAFETY: an id and attributes of the program's.
        unsafe {
            let shell = look(id)?;
            if (*shell.head()).verbs.is_null() || !(*shell.head()).srq.is_null() {
                return Err(Errno::EINVAL);
            }
            let pd = if pd.is_null() { (*shell.head()).pd } else { pd };
            if (*shell.head()).qp_type == qpt::XRC_RECV {
                let plain = attr.as_mut().ok_or(Errno::EINVAL)?;
                let mut full = ibv_srq_init_attr_ex {
                    srq_context: plain.srq_context,
                    attr: plain.attr,
                    comp_mask: TYPE | PD,
                    srq_type: XRC,
                    pd,
                    xrcd: std::ptr::null_mut(),
                    cq: std::ptr::null_mut(),
                    tm_cap: [0; 2],
                };
                last(rdma_create_srq_ex(id, &raw mut full))?;
                plain.attr = full.attr;
                return Ok(0);
            }
            let srq = ibv_create_srq(pd, attr);
            if srq.is_null() {
                return Err(std::io::Error::last_os_error().into());
            }
            (*shell.head()).srq = srq;
            (*shell.head()).pd = pd;
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    minus_one(|| {
        // SAFETY: an id and attributes of the program's.
        unsafe {
            let attr = attr.as_mut().ok_or(Errno::EINVAL)?;
            let shell = look(id)?;
            if (*shell.head()).verbs.is_null() || !(*shell.head()).srq.is_null() {
                return Err(Errno::EINVAL);
            }
            if attr.comp_mask & PD == 0 || attr.pd.is_null() {
                attr.comp_mask |= PD;
                attr.pd = (*shell.head()).pd;
            }
            let numbered = attr.comp_mask & TYPE != 0 && attr.srq_type == XRC;
            if numbered && (attr.comp_mask & XRCD == 0 || attr.xrcd.is_null()) {
                attr.comp_mask |= XRCD;
                attr.xrcd = domain_of((*shell.head()).verbs)?;
            }
            if numbered && (attr.comp_mask & CQ == 0 || attr.cq.is_null()) {
                if (*shell.head()).recv_cq.is_null() {
                    let (channel, cq) = queue(id, attr.attr.max_wr)?;
                    ((*shell.head()).recv_cq_channel, (*shell.head()).recv_cq) = (channel, cq);
                    shell.own_queues[1].store(true, Ordering::Relaxed);
                }
                attr.comp_mask |= CQ;
                attr.cq = (*shell.head()).recv_cq;
            }
            (*shell.head()).srq = checked_pointer(create_srq_ex((*shell.head()).verbs, attr))?;
            (*shell.head()).pd = attr.pd;
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    crate::entry::quiet(|| {
        // SAFETY: an id of the program's.
        unsafe {
            let shell = look(id)?;
            let srq = (&raw mut (*shell.head()).srq).replace(std::ptr::null_mut());
            if !srq.is_null() {
                ibv_destroy_srq(srq);
                if (*shell.head()).qp.is_null() {
                    destroy_queues(shell);
                }
            }
        }
        Ok(())
    });
}

// ---- endpoints -----------------------------------------------------------------------------------

const PASSIVE: c_int = 1;

/// The error of a call that returned -1.
fn last(done: c_int) -> Result {
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
}

pub(crate) unsafe extern "C" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    info: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    minus_one(|| {
        // SAFETY: a pointer, an address information and attributes of the program's.
        unsafe {
            let (to, info) =
                (id.as_mut().ok_or(Errno::EINVAL)?, info.as_ref().ok_or(Errno::EINVAL)?);
            let mut made = std::ptr::null_mut();
            let null = std::ptr::null_mut::<c_void>();
            last(rdma_create_id(
                std::ptr::null_mut(),
                &raw mut made,
                null,
                info.ai_port_space.cast_unsigned(),
            ))?;
            let done = endpoint(made, info, pd, attr);
            if let Err(error) = done {
                rdma_destroy_id(made);
                return Err(error);
            }
            *to = made;
        }
        Ok(0)
    })
}

/// # Safety
/// As [`rdma_create_ep`], with a new id.
unsafe fn endpoint(
    id: *mut rdma_cm_id,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result {
    // SAFETY: this function's contract.
    unsafe {
        if info.ai_flags & PASSIVE != 0 {
            address::read(info.ai_src_addr)?.ok_or(Errno::EINVAL)?;
            last(rdma_bind_addr(id, info.ai_src_addr))?;
            if let Some(attr) = attr.as_ref() {
                let qp_type = info.ai_qp_type.cast_unsigned();
                let kept = Some((pd, ibv_qp_init_attr { qp_type, ..*attr }));
                *look(id)?.kept.lock().unwrap_or_else(PoisonError::into_inner) = kept;
            }
            return Ok(());
        }
        last(rdma_resolve_addr(id, info.ai_src_addr, info.ai_dst_addr, 2000))?;
        last(rdma_resolve_route(id, 2000))?;
        if let Some(attr) = attr.as_mut() {
            attr.qp_type = info.ai_qp_type.cast_unsigned();
            last(rdma_create_qp(id, pd, attr))?;
        }
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    if id.is_null() {
        return;
    }
    // SAFETY: an id of the program's, which it does not use afterwards.
    unsafe {
        rdma_destroy_qp(id);
        rdma_destroy_srq(id);
        rdma_destroy_id(id);
    }
}

/// Wait for a Request, as a synchronous id with a queue pair of the kept attributes (Verbs V132).
pub(crate) unsafe extern "C" fn rdma_get_request(
    listener: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    minus_one(|| {
        // SAFETY: an id and a pointer of the program's.
        unsafe {
            let to = id.as_mut().ok_or(Errno::EINVAL)?;
            let shell = look(listener)?;
            if !shell.is_synchronous() {
                return Err(Errno::EINVAL);
            }
            let event = next_event((*shell.head()).channel)?;
            if (*event).event != cm_event::CONNECT_REQUEST {
                super::events::acknowledge(event)?;
                return Err(Errno::EINVAL);
            }
            let made = (*event).id;
            last(rdma_migrate_id(made, std::ptr::null_mut()))?;
            (*made).event = event;
            let kept = *shell.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((pd, mut attr)) = kept
                && let Err(error) = last(rdma_create_qp(made, pd, &raw mut attr))
            {
                rdma_destroy_id(made);
                return Err(error);
            }
            *to = made;
        }
        Ok(0)
    })
}
