//! The extended interface of completion queues.

use std::ffi::{c_int, c_uint};
use std::sync::PoisonError;
use std::time::SystemTime;

use transom_engine::raw::{Time, now};

use crate::abi::*;
use crate::entry::completion::{Wanted, create};
use crate::entry::shell::{self, OfDomain, OfQueue};
use crate::entry::{caught, number, pointer, stubs};
use crate::errno::{Errno, Result};

/// The time of a completion, by the device's clock and by the wall's.
const TIMES: u64 = 1 << 7 | 1 << 11;
/// Members of a completion that can be asked for: all but what VLANs, flows and tag matching have.
const WC_FLAGS: u64 = 0x7F | TIMES;
/// SINGLE_THREADED, which needs nothing, and IGNORE_OVERRUN.
const FLAGS: u32 = 1 | IGNORE_OVERRUN;
const IGNORE_OVERRUN: u32 = 2;
/// The masks that say that there are flags, and a parent domain.
const HAS_FLAGS: u32 = 1;
const HAS_PARENT: u32 = 2;

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    pointer(|| {
        // SAFETY: the caller's structure.
        let attr = unsafe { attr.as_ref() }.ok_or(Errno::EINVAL)?;
        if attr.wc_flags & !WC_FLAGS != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let flags = if attr.comp_mask & HAS_FLAGS == 0 { 0 } else { attr.flags };
        if attr.comp_mask & !(HAS_FLAGS | HAS_PARENT) != 0 || flags & !FLAGS != 0 {
            return Err(Errno::EINVAL);
        }
        let parent = match attr.comp_mask & HAS_PARENT {
            0 => None,
            // SAFETY: a domain of the program's.
            _ => Some(unsafe { shell::look::<OfDomain>(attr.parent_domain) }?.body.clone()),
        };
        let (depth, vector) = (i64::from(attr.cqe), i64::from(attr.comp_vector));
        let times = attr.wc_flags & TIMES != 0;
        let wanted = Wanted { times, no_overrun: flags & IGNORE_OVERRUN != 0 };
        // SAFETY: the caller's objects.
        unsafe { create(context, depth, attr.cq_context, attr.channel, vector, parent, wanted) }
    })
}

/// Every queue has these functions.
pub(crate) fn head(base: ibv_cq) -> ibv_cq_ex {
    let zero = stubs::succeeds as Op;
    ibv_cq_ex {
        base,
        comp_mask: 0,
        status: 0,
        wr_id: 0,
        start_poll: start_poll as Op,
        next_poll: next_poll as Op,
        end_poll: end_poll as Op,
        read_opcode: read_opcode as Op,
        read_vendor_err: read_vendor_err as Op,
        read_byte_len: read_byte_len as Op,
        read_imm_data: read_imm_data as Op,
        read_qp_num: read_qp_num as Op,
        read_src_qp: read_src_qp as Op,
        read_wc_flags: read_wc_flags as Op,
        read_slid: zero,
        read_sl: read_sl as Op,
        read_dlid_path_bits: zero,
        read_completion_ts: read_completion_ts as Op,
        read_cvlan: zero,
        read_flow_tag: zero,
        read_tm_info: stubs::nothing as Op,
        read_completion_wallclock_ns: read_completion_wallclock_ns as Op,
    }
}

/// The next completion becomes the current one; `ENOENT` if there is none.
///
/// # Safety
/// A queue of the program's, locked by this thread.
unsafe fn advance(cq: *mut ibv_cq_ex) -> Result {
    // SAFETY: this function's contract.
    let queue = &unsafe { shell::trust::<OfQueue>(cq) }.body;
    let mut found = None;
    queue.poll(|_, entry, at| found = Some((entry, at)), 1)?;
    let (entry, at) = found.ok_or(Errno::ENOENT)?;
    *queue.current.lock().unwrap_or_else(PoisonError::into_inner) = (entry, at);
    // SAFETY: two members that only the thread that polls reads and writes.
    unsafe {
        (&raw mut (*cq).status).write(entry.status as c_int);
        (&raw mut (*cq).wr_id).write(entry.wr_id);
    }
    Ok(())
}

/// # Safety
/// A queue of the program's.
unsafe fn lock(cq: *mut ibv_cq_ex) {
    // SAFETY: the mutex of a queue, initialised when it was made.
    unsafe { libc::pthread_mutex_lock(&raw mut (*cq).base.mutex) };
}

/// # Safety
/// As [`lock`], by the thread that has locked it.
unsafe fn unlock(cq: *mut ibv_cq_ex) {
    // SAFETY: as above.
    unsafe { libc::pthread_mutex_unlock(&raw mut (*cq).base.mutex) };
}

/// Successful, it leaves the queue locked until `end_poll`.
unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut u32) -> c_int {
    number(|| {
        // SAFETY: a queue and an argument of the program's, whose first member is its mask.
        unsafe {
            if attr.is_null() || attr.read() != 0 {
                return Err(Errno::EINVAL);
            }
            lock(cq);
            let found = caught(|| advance(cq));
            if found.is_err() {
                unlock(cq);
            }
            found
        }
    })
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: a queue that `start_poll` has locked.
    number(|| unsafe { advance(cq) })
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: a queue that `start_poll` has locked.
    unsafe { unlock(cq) };
}

/// The current completion, and when it came.
///
/// # Safety
/// A queue of the program's.
unsafe fn current(cq: *mut ibv_cq_ex) -> (ibv_wc, Time) {
    // SAFETY: this function's contract.
    let queue = &unsafe { shell::trust::<OfQueue>(cq) }.body;
    *queue.current.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Verbs V174.
unsafe extern "C" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: a queue of the program's.
    unsafe { current(cq) }.1.0
}

/// Verbs V174: as long before the present time of day as the completion lies back by the device's clock.
#[allow(clippy::disallowed_methods, reason = "the program asks for the time of day")]
unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: a queue of the program's.
    let at = unsafe { current(cq) }.1;
    // In this order: a thread that loses its processor in between makes the time later, and never earlier than the
    // completion was.
    let ago = now().since(at);
    let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let then = today.saturating_sub(ago);
    u64::try_from(then.as_nanos()).unwrap_or(u64::MAX)
}

macro_rules! readers {
    ($($name:ident: $type:ty = $member:ident;)*) => {
        $(unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: a queue of the program's.
            unsafe { current(cq) }.0.$member
        })*
    };
}

readers! {
    read_opcode: c_uint = opcode;
    read_vendor_err: u32 = vendor_err;
    read_byte_len: u32 = byte_len;
    read_imm_data: u32 = imm_data;
    read_qp_num: u32 = qp_num;
    read_src_qp: u32 = src_qp;
    read_sl: u8 = sl;
    read_wc_flags: c_uint = wc_flags;
}
