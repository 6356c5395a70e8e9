//! The `wr_*` calls: requests are built one after the other, and posted together.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use transom_engine::raw::Atomic;
use transom_engine::{Data, Operation, Request, Sge};

use crate::abi::*;
use crate::entry::queue_pair::Body;
use crate::entry::shell::{self, OfQueuePair, Shell};
use crate::entry::window::bind_in_queue;
use crate::entry::{address, number};
use crate::errno::{Errno, Result};
use crate::queue_pair::{Destination, Post, atomic, limit_length, operation};

/// Requests between `wr_start` and `wr_complete`. Its memory is kept for the next ones.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    requests: Vec<Built>,
    entries: Vec<Sge>,
    bytes: Vec<u8>,
    /// Windows that requests bind, and their keys from `wr_complete` on.
    bound: Vec<(*mut ibv_mw, u32)>,
    /// The first error of a call in between.
    failed: Option<Errno>,
}

/// A request, and which part of the builder's memory is its data.
#[derive(Clone, Debug)]
struct Built {
    request: Request,
    entries: Range<usize>,
    bytes: Option<Range<usize>>,
    to: Destination,
}

impl Builder {
    fn clear(&mut self) {
        self.requests.clear();
        self.entries.clear();
        self.bytes.clear();
        self.bound.clear();
        self.failed = None;
    }

    fn data(&self, built: &Built) -> Data<'_> {
        match &built.bytes {
            Some(range) => Data::Inline(self.bytes.get(range.clone()).unwrap_or_default()),
            None => Data::Sges(self.entries.get(built.entries.clone()).unwrap_or_default()),
        }
    }

    /// A list that its request cannot have makes it fail in its turn.
    fn judge_lengths(&mut self, longest: u32) {
        let Builder { requests, entries, .. } = self;
        for built in requests.iter_mut().filter(|built| built.bytes.is_none()) {
            let list = entries.get(built.entries.clone()).unwrap_or_default();
            let length = list.iter().map(|entry| u64::from(entry.length)).sum();
            limit_length(&mut built.request.operation, length, longest);
            if !built.request.operation.has_data() {
                built.entries = 0..0;
            }
        }
    }

    /// Bytes that the requests name.
    fn length(&self) -> u64 {
        let listed: u64 = self.entries.iter().map(|entry| u64::from(entry.length)).sum();
        listed + self.bytes.len() as u64
    }

    fn list(&self) -> impl Iterator<Item = Post<'_>> + Clone {
        self.requests.iter().map(|built| (built.request, self.data(built), built.to))
    }
}

/// The structure of a queue pair with the calls that were asked for; others stay null.
pub(crate) fn head(base: ibv_qp, asked: u64) -> ibv_qp_ex {
    let on = |op: u64, function: Op| if asked & op == 0 { std::ptr::null() } else { function };
    let any = |function: Op| if asked == 0 { std::ptr::null() } else { function };
    let wr_set_ud_addr =
        if base.qp_type == qpt::UD { any(wr_set_ud_addr as Op) } else { std::ptr::null() };
    let wr_set_xrc_srqn =
        if base.qp_type == qpt::XRC_SEND { any(wr_set_xrc_srqn as Op) } else { std::ptr::null() };
    ibv_qp_ex {
        qp_base: base,
        comp_mask: 0,
        wr_id: 0,
        wr_flags: 0,
        wr_atomic_cmp_swp: on(ops::CMP_SWP, wr_atomic_cmp_swp as Op),
        wr_atomic_fetch_add: on(ops::FETCH_ADD, wr_atomic_fetch_add as Op),
        wr_bind_mw: on(ops::BIND_MW, wr_bind_mw as Op),
        wr_local_inv: on(ops::LOCAL_INV, wr_local_inv as Op),
        wr_rdma_read: on(ops::READ, wr_rdma_read as Op),
        wr_rdma_write: on(ops::WRITE, wr_rdma_write as Op),
        wr_rdma_write_imm: on(ops::WRITE_IMM, wr_rdma_write_imm as Op),
        wr_send: on(ops::SEND, wr_send as Op),
        wr_send_imm: on(ops::SEND_IMM, wr_send_imm as Op),
        wr_send_inv: on(ops::SEND_INV, wr_send_inv as Op),
        wr_send_tso: std::ptr::null(),
        wr_set_ud_addr,
        wr_set_xrc_srqn,
        wr_set_inline_data: any(wr_set_inline_data as Op),
        wr_set_inline_data_list: any(wr_set_inline_data_list as Op),
        wr_set_sge: any(wr_set_sge as Op),
        wr_set_sge_list: any(wr_set_sge_list as Op),
        wr_start: any(wr_start as Op),
        wr_complete: any(wr_complete as Op),
        wr_abort: any(wr_abort as Op),
        wr_atomic_write: std::ptr::null(),
        wr_flush: std::ptr::null(),
    }
}

/// # Safety
/// A queue pair of the program's.
#[inline]
unsafe fn body<'a>(qp: *mut ibv_qp_ex) -> &'a Shell<ibv_qp_ex, Body> {
    // SAFETY: this function's contract.
    unsafe { shell::trust::<OfQueuePair>(qp) }
}

/// # Safety
/// A queue pair that this thread has locked with `wr_start`.
#[inline]
#[allow(clippy::mut_from_ref, reason = "the lock of `wr_start` makes it the only one")]
unsafe fn builder<'a>(qp: *mut ibv_qp_ex) -> &'a mut Builder {
    // SAFETY: this function's contract.
    unsafe { &mut *body(qp).body.builder.get() }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: a queue pair of the program's; the mutex was initialised with it.
    unsafe {
        libc::pthread_mutex_lock(&raw mut (*qp).qp_base.mutex);
        builder(qp).clear();
    }
}

/// # Safety
/// A queue pair that this thread has locked.
unsafe fn unlock(qp: *mut ibv_qp_ex) {
    // SAFETY: this function's contract.
    unsafe { libc::pthread_mutex_unlock(&raw mut (*qp).qp_base.mutex) };
}

/// Post all requests or none (Verbs V91).
unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let done = number(|| {
        // SAFETY: a queue pair that `wr_start` has locked.
        let (pair, builder) = unsafe { (&body(qp).body.queue_pair, builder(qp)) };
        if let Some(error) = builder.failed {
            return Err(error);
        }
        pair.sends()?;
        builder.judge_lengths(pair.longest());
        pair.post_all(builder.list())?;
        pair.count(builder.length());
        for (window, key) in builder.bound.drain(..) {
            // SAFETY: windows of the program's, which it keeps until their requests are posted.
            unsafe { (*window).rkey = key };
        }
        Ok(())
    });
    // SAFETY: as above.
    unsafe { unlock(qp) };
    done
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: a queue pair that `wr_start` has locked.
    unsafe { unlock(qp) };
}

/// # Safety
/// A queue pair that this thread has locked.
unsafe fn add(qp: *mut ibv_qp_ex, operation: Operation) {
    // SAFETY: this function's contract.
    unsafe {
        let flags = body(qp).body.queue_pair.flags((*qp).wr_flags);
        let request = Request { context: (*qp).wr_id, operation, flags };
        let builder = builder(qp);
        let at = builder.entries.len();
        builder.requests.push(Built {
            request,
            entries: at..at,
            bytes: None,
            to: Destination::Peer,
        });
    }
}

unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    // SAFETY: a queue pair that `wr_start` has locked.
    unsafe { add(qp, Operation::Send) };
}

unsafe extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: a queue pair that `wr_start` has locked.
    unsafe { add(qp, Operation::SendWithInvalidate { token: rkey }) };
}

unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, address: u64) {
    // SAFETY: a queue pair that `wr_start` has locked.
    unsafe { add(qp, Operation::Write { token: rkey, address }) };
}

/// As [`add`], with the words of a request of the other interface.
///
/// # Safety
/// A queue pair that this thread has locked.
unsafe fn add_opcode(qp: *mut ibv_qp_ex, opcode: u32, address: u64, rkey: u32, value: u32) {
    if let Ok(operation) = operation(opcode, address, rkey, value) {
        // SAFETY: this function's contract.
        unsafe { add(qp, operation) };
    }
}

unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, immediate: u32) {
    // SAFETY: a queue pair that `wr_start` has locked.
    unsafe { add_opcode(qp, wr::SEND_WITH_IMM, 0, 0, immediate) };
}

unsafe extern "C" fn wr_rdma_write_imm(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    address: u64,
    immediate: u32,
) {
    // SAFETY: a queue pair that `wr_start` has locked.
    unsafe { add_opcode(qp, wr::RDMA_WRITE_WITH_IMM, address, rkey, immediate) };
}

unsafe extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, address: u64) {
    // SAFETY: a queue pair that `wr_start` has locked.
    unsafe { add(qp, Operation::Read { token: rkey, address }) };
}

unsafe extern "C" fn wr_atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    address: u64,
    compare: u64,
    swap: u64,
) {
    // SAFETY: a queue pair that `wr_start` has locked.
    unsafe { add(qp, atomic(address, rkey, Atomic::CompareSwap { compare, swap })) };
}

unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, address: u64, add_: u64) {
    // SAFETY: a queue pair that `wr_start` has locked.
    unsafe { add(qp, atomic(address, rkey, Atomic::FetchAdd { add: add_ })) };
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    key: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: a queue pair that `wr_start` has locked; a window and a structure of the program's.
    unsafe {
        let bound = info.as_ref().ok_or(Errno::EINVAL);
        match bound.and_then(|info| bind_in_queue(mw, key, info)) {
            Ok((operation, key)) => {
                add(qp, operation);
                builder(qp).bound.push((mw, key));
            }
            Err(error) => {
                builder(qp).failed.get_or_insert(error);
            }
        }
    }
}

unsafe extern "C" fn wr_local_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: a queue pair that `wr_start` has locked.
    unsafe { add_opcode(qp, wr::LOCAL_INV, 0, 0, rkey) };
}

/// Give the request built last its data; what fails is said by `wr_complete`.
///
/// # Safety
/// A queue pair that this thread has locked.
unsafe fn set(qp: *mut ibv_qp_ex, work: impl FnOnce(&mut Builder, &Body) -> Result) {
    // SAFETY: this function's contract.
    let (body, builder) = unsafe { (&body(qp).body, builder(qp)) };
    if builder.requests.is_empty() {
        builder.failed.get_or_insert(Errno::EINVAL);
    } else if let Err(error) = work(builder, body) {
        builder.failed.get_or_insert(error);
    }
}

unsafe extern "C" fn wr_set_ud_addr(
    qp: *mut ibv_qp_ex,
    ah: *mut ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
) {
    // SAFETY: a queue pair that `wr_start` has locked, and an address handle of the program's.
    unsafe {
        set(qp, |builder, _| {
            let to = address::destination(ah, remote_qpn, remote_qkey)?;
            if let Some(last) = builder.requests.last_mut() {
                last.to = Destination::Datagram(to);
            }
            Ok(())
        });
    }
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, remote_srqn: u32) {
    // SAFETY: a queue pair that `wr_start` has locked.
    unsafe {
        set(qp, |builder, _| {
            if let Some(last) = builder.requests.last_mut() {
                last.to = Destination::Target(remote_srqn);
            }
            Ok(())
        });
    }
}

fn set_entries(builder: &mut Builder, body: &Body, list: &[ibv_sge]) -> Result {
    if list.len() > body.queue_pair.caps.max_send_sge as usize {
        return Err(Errno::EINVAL);
    }
    let from = builder.entries.len();
    builder.entries.extend(list.iter().map(|e| Sge {
        token: e.lkey,
        address: e.addr,
        length: e.length,
    }));
    let to = builder.entries.len();
    if let Some(last) = builder.requests.last_mut() {
        last.entries = from..to;
    }
    Ok(())
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let entry = ibv_sge { addr, length, lkey };
    // SAFETY: a queue pair that `wr_start` has locked.
    unsafe { set(qp, |builder, body| set_entries(builder, body, &[entry])) };
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: a queue pair that `wr_start` has locked, and a list of the program's.
    unsafe {
        set(qp, |builder, body| {
            let list = if count == 0 { &[] } else { std::slice::from_raw_parts(list, count) };
            set_entries(builder, body, list)
        });
    }
}

/// # Safety
/// Buffers of the program's.
unsafe fn set_inline(builder: &mut Builder, body: &Body, buffers: &[ibv_data_buf]) -> Result {
    let from = builder.bytes.len();
    let most = body.queue_pair.caps.max_inline_data as usize;
    for buffer in buffers {
        let end = (builder.bytes.len() - from).checked_add(buffer.length);
        if end.is_none_or(|end| end > most) {
            return Err(Errno::EINVAL);
        }
        if buffer.length > 0 {
            // SAFETY: this function's contract.
            let bytes = unsafe { std::slice::from_raw_parts(buffer.addr.cast(), buffer.length) };
            builder.bytes.extend_from_slice(bytes);
        }
    }
    let to = builder.bytes.len();
    if let Some(last) = builder.requests.last_mut() {
        if last.request.operation.fetches() {
            return Err(Errno::EINVAL);
        }
        last.bytes = Some(from..to);
    }
    Ok(())
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let buffer = ibv_data_buf { addr, length };
    // SAFETY: a queue pair that `wr_start` has locked, and a buffer of the program's.
    unsafe { set(qp, |builder, body| set_inline(builder, body, &[buffer])) };
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: a queue pair that `wr_start` has locked, and buffers of the program's.
    unsafe {
        set(qp, |builder, body| {
            let list = if count == 0 { &[] } else { std::slice::from_raw_parts(list, count) };
            set_inline(builder, body, list)
        });
    }
}
