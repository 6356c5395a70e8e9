//! Queue pairs: creation, attributes, states.

use std::ffi::{c_int, c_uint, c_void};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use transom_engine::QueuePairKind;

use crate::abi::*;
use crate::cm;
use crate::datagram::group;
use crate::device;
use crate::entry::shell::{self, OfDomain, OfQueue, OfQueuePair, OfSharedQueue, OfXrcDomain};
use crate::entry::work::{self, Builder};
use crate::entry::{number, pointer};
use crate::errno::{Errno, Result};
use crate::gid;
use crate::kind::kind;
use crate::queue_pair::{DATAGRAM_OPS, Parts, QueuePair, UNRELIABLE_OPS, reliable_ops};

/// The object behind the program's structure.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) queue_pair: Arc<QueuePair>,
    pub(crate) handle: u32,
    /// Made with operations for the `wr_*` calls.
    extended: bool,
    /// The requests that those calls have built; under the lock that `wr_start` takes.
    pub(crate) builder: std::cell::UnsafeCell<Builder>,
}

/// # Safety
/// The program's objects, as in `attr`.
pub(crate) unsafe fn create(
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
    send_ops: u64,
) -> Result<*mut ibv_qp_ex> {
    let (kind, most) = match attr.qp_type {
        qpt::RC => (QueuePairKind::Rc, reliable_ops()),
        qpt::UC if kind().has("unreliable queue pairs") => (QueuePairKind::Uc, UNRELIABLE_OPS),
        qpt::UD if kind().has("datagrams") => (QueuePairKind::Ud, DATAGRAM_OPS),
        qpt::XRC_SEND if kind().has("XRC") => (QueuePairKind::XrcSend, reliable_ops()),
        qpt::XRC_RECV if kind().has("XRC") => return Err(Errno::EINVAL), // made with its XRC domain
        _ => return Err(Errno::EOPNOTSUPP),
    };
    if kind == QueuePairKind::XrcSend {
        // The send side receives nothing: queues that the program names for that are not looked at.
        (attr.recv_cq, attr.srq) = (attr.send_cq, std::ptr::null_mut());
    }
    // SAFETY: this function's contract.
    let (domain, send, receive, shared) = unsafe {
        let shared =
            if attr.srq.is_null() { None } else { Some(shell::look::<OfSharedQueue>(attr.srq)?) };
        (
            shell::look::<OfDomain>(pd)?,
            shell::look::<OfQueue>(attr.send_cq.cast())?.body.clone(),
            shell::look::<OfQueue>(attr.recv_cq.cast())?.body.clone(),
            shared.map(|shared| shared.body.clone()),
        )
    };
    if send_ops & !most != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let signal_all = attr.sq_sig_all != 0;
    let domain_body = domain.body.clone();
    let parts = Parts { domain: domain_body, send, receive, shared, xrc: None, signal_all, kind };
    let queue_pair = QueuePair::new(parts, attr.cap)?;
    attr.cap = queue_pair.caps;
    let base = base(domain.context(), pd, attr, &queue_pair);
    Ok(give(base, &queue_pair, send_ops))
}

/// The receive side of a queue pair of an XRC domain: of the arguments, domain and context count.
///
/// # Safety
/// The program's XRC domain.
unsafe fn create_receive_side(
    context: *mut ibv_context,
    attr: &mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp_ex> {
    // SAFETY: this function's contract.
    let xrc = unsafe { shell::look::<OfXrcDomain>(attr.xrcd) }?.body.clone();
    let parts = Parts {
        domain: xrc.domain.clone(),
        send: xrc.queue.clone(),
        receive: xrc.queue.clone(),
        shared: None,
        xrc: Some(xrc),
        signal_all: false,
        kind: QueuePairKind::XrcReceive,
    };
    let queue_pair = QueuePair::new(parts, ibv_qp_cap::default())?;
    attr.cap = queue_pair.caps;
    Ok(open(context, &queue_pair, attr.qp_context))
}

/// A structure, or another one, for the receive side of a queue pair of an XRC domain.
pub(crate) fn open(
    context: *mut ibv_context,
    queue_pair: &Arc<QueuePair>,
    qp_context: *mut c_void,
) -> *mut ibv_qp_ex {
    let none = std::ptr::null_mut();
    let attr = ibv_qp_init_attr {
        qp_context,
        send_cq: none,
        recv_cq: none,
        srq: std::ptr::null_mut(),
        cap: ibv_qp_cap::default(),
        qp_type: qpt::XRC_RECV,
        sq_sig_all: 0,
    };
    give(base(context, std::ptr::null_mut(), &attr, queue_pair), queue_pair, 0)
}

fn base(
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    attr: &ibv_qp_init_attr,
    queue_pair: &QueuePair,
) -> ibv_qp {
    ibv_qp {
        context,
        qp_context: attr.qp_context,
        pd,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        handle: queue_pair.handle,
        qp_num: queue_pair.number,
        state: queue_pair.state(),
        qp_type: attr.qp_type,
        mutex: shell::MUTEX,
        cond: shell::CONDITION,
        events_completed: 0,
    }
}

fn give(base: ibv_qp, queue_pair: &Arc<QueuePair>, send_ops: u64) -> *mut ibv_qp_ex {
    let body = Body {
        queue_pair: queue_pair.clone(),
        handle: queue_pair.handle,
        extended: send_ops != 0,
        builder: std::cell::UnsafeCell::new(Builder::default()),
    };
    let given = shell::give::<OfQueuePair>(work::head(base, send_ops), body);
    queue_pair.opened(given.expose_provenance());
    given
}

pub(crate) unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: the caller's structure and objects.
    pointer(|| unsafe {
        let attr = attr.as_mut().ok_or(Errno::EINVAL)?;
        Ok(create(pd, attr, 0)?.cast())
    })
}

pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller's structure and objects.
    pointer(|| unsafe {
        let attr = attr.as_mut().ok_or(Errno::EINVAL)?;
        if attr.qp_type != qpt::XRC_RECV {
            return create_ex(attr);
        }
        if attr.comp_mask & !(init::PD | init::XRCD) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if attr.comp_mask & init::XRCD == 0 {
            return Err(Errno::EINVAL);
        }
        Ok(create_receive_side(context, attr)?.cast())
    })
}

/// # Safety
/// The program's objects, as in `attr`.
pub(crate) unsafe fn create_ex(attr: &mut ibv_qp_init_attr_ex) -> Result<*mut ibv_qp> {
    let other = attr.comp_mask & !(init::PD | init::CREATE_FLAGS | init::SEND_OPS) != 0;
    let flags = attr.comp_mask & init::CREATE_FLAGS != 0 && attr.create_flags != 0;
    let send_ops = if attr.comp_mask & init::SEND_OPS == 0 { 0 } else { attr.send_ops_flags };
    if other || flags {
        return Err(Errno::EOPNOTSUPP);
    }
    if attr.comp_mask & init::PD == 0 {
        return Err(Errno::EINVAL);
    }
    let mut plain = ibv_qp_init_attr {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
    };
    // SAFETY: this function's contract.
    let made = unsafe { create(attr.pd, &mut plain, send_ops) }?;
    attr.cap = plain.cap;
    Ok(made.cast())
}

/// Null unless it was made with operations for the `wr_*` calls.
pub(crate) unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: a queue pair of the program's.
    pointer(|| unsafe {
        let extended = shell::look::<OfQueuePair>(qp.cast())?.body.extended;
        if extended { Ok(qp.cast()) } else { Err(Errno::EOPNOTSUPP) }
    })
}

pub(crate) unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    number(|| {
        // SAFETY: a queue pair and a structure of the program's.
        let (shell, attr) = unsafe {
            (shell::look::<OfQueuePair>(qp.cast())?, attr.as_ref().ok_or(Errno::EINVAL)?)
        };
        let queue_pair = &shell.body.queue_pair;
        let (mut attr, mask) = (*attr, mask as u32);
        if mask & mask::DEST_QPN != 0 {
            let peer = gid::address_of(gid_bytes(attr.ah_attr.grh.dgid));
            let known = cm::standing_for(attr.dest_qp_num, peer, queue_pair);
            attr.dest_qp_num = known.unwrap_or(attr.dest_qp_num);
        }
        let state = queue_pair.modify(&attr, mask)?;
        // SAFETY: a member of the program's queue pair.
        unsafe { shell::word(&raw mut (*shell.head()).qp_base.state) }.store(state, Relaxed);
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    number(|| {
        // SAFETY: a queue pair and two structures of the program's.
        let (shell, attr) = unsafe {
            (shell::look::<OfQueuePair>(qp.cast())?, attr.as_mut().ok_or(Errno::EINVAL)?)
        };
        let pair = &shell.body.queue_pair;
        *attr = pair.query();
        attr.dest_qp_num = cm::shown(attr.dest_qp_num);
        // SAFETY: members of the program's queue pair, of which one changes; null, or a structure.
        unsafe {
            let base = &raw mut (*shell.head()).qp_base;
            shell::word(&raw mut (*base).state).store(attr.qp_state, Relaxed);
            if let Some(init) = init.as_mut() {
                *init = ibv_qp_init_attr {
                    qp_context: (*base).qp_context,
                    send_cq: (*base).send_cq,
                    recv_cq: (*base).recv_cq,
                    srq: (*base).srq,
                    cap: pair.caps,
                    qp_type: (*base).qp_type,
                    sq_sig_all: c_int::from(pair.signal_all),
                };
            }
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    number(|| {
        // SAFETY: a queue pair of the program's, which it does not use afterwards.
        unsafe {
            let queue_pair = &shell::look::<OfQueuePair>(qp.cast())?.body.queue_pair;
            queue_pair.unattached()?;
            if !queue_pair.closed(qp.expose_provenance()) {
                queue_pair.destroy();
            }
            shell::take::<OfQueuePair>(qp.cast());
        }
        Ok(())
    })
}

/// Write the state of a queue pair where the program reads it.
pub(crate) fn show_state(queue_pair: &QueuePair) {
    let state = queue_pair.state();
    for address in &*queue_pair.shells() {
        let qp: *mut ibv_qp = std::ptr::with_exposed_provenance_mut(*address);
        // SAFETY: a structure in the list, which is locked, is there: `ibv_destroy_qp` takes it out first.
        unsafe { shell::word(&raw mut (*qp).state) }.store(state, Relaxed);
    }
}

/// Attach a queue pair to a multicast group, or detach it. The LID is ignored.
///
/// # Safety
/// A queue pair and a GID of the program's.
unsafe fn with_group(
    qp: *mut ibv_qp,
    gid: *const [u64; 2],
    work: impl FnOnce(&Arc<QueuePair>, IpAddr) -> Result,
) -> c_int {
    number(|| {
        // SAFETY: this function's contract.
        let (shell, gid) = unsafe { (shell::look::<OfQueuePair>(qp.cast())?, gid.as_ref()) };
        let group = group::of(gid_bytes(*gid.ok_or(Errno::EINVAL)?)).ok_or(Errno::EINVAL)?;
        work(&shell.body.queue_pair, group)
    })
}

pub(crate) unsafe extern "C" fn ibv_attach_mcast(
    qp: *mut ibv_qp,
    gid: *const [u64; 2],
    _lid: u16,
) -> c_int {
    // SAFETY: a queue pair and a GID of the program's.
    unsafe { with_group(qp, gid, |queue_pair, group| queue_pair.attach(group)) }
}

pub(crate) unsafe extern "C" fn ibv_detach_mcast(
    qp: *mut ibv_qp,
    gid: *const [u64; 2],
    _lid: u16,
) -> c_int {
    // SAFETY: as above.
    unsafe { with_group(qp, gid, |queue_pair, group| queue_pair.detach(group)) }
}

/// The bytes of a message become visible in order: the whole of it, and each 128 of it.
pub(crate) extern "C" fn ibv_query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _opcode: c_uint,
    flags: u32,
) -> c_int {
    const RETURN_CAPS: u32 = 1;
    const WHOLE_MESSAGE: c_int = 1;
    const ALIGNED_128_BYTES: c_int = 2;
    if flags & RETURN_CAPS == 0 { 1 } else { WHOLE_MESSAGE | ALIGNED_128_BYTES }
}

/// Enhancements of a connection: this device's vendor, and none (Verbs V170).
pub(crate) unsafe extern "C" fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    number(|| {
        // SAFETY: a queue pair and a structure of the program's.
        unsafe {
            shell::look::<OfQueuePair>(qp.cast())?;
            *ece.as_mut().ok_or(Errno::EINVAL)? =
                ibv_ece { vendor_id: device::VENDOR, options: 0, comp_mask: 0 };
        }
        Ok(())
    })
}

/// Of the peer's enhancements none is accepted; those of another vendor are refused.
pub(crate) unsafe extern "C" fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    number(|| {
        // SAFETY: a queue pair and a structure of the program's.
        let ece = unsafe {
            shell::look::<OfQueuePair>(qp.cast())?;
            ece.as_mut().ok_or(Errno::EINVAL)?
        };
        match *ece {
            ibv_ece { vendor_id: 0, .. } => return Err(Errno::EOPNOTSUPP),
            ibv_ece { vendor_id: device::VENDOR, comp_mask: 0, .. } => ece.options = 0,
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    })
}
