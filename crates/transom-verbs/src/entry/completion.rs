//! Completion queues and completion channels.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering::{self, Relaxed};

use crate::abi::*;
use crate::completion::{CompletionChannel, Queue};
use crate::entry::shell::{self, OfChannel, OfQueue};
use crate::entry::{caught, fetched, minus_one, number, pointer, quiet};
use crate::errno::{Errno, Result};
use crate::memory::Domain;

pub(crate) unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    pointer(|| {
        // SAFETY: a context of the program's.
        let body = Arc::new(CompletionChannel::new(unsafe { shell::context(context) }?)?);
        let head = ibv_comp_channel { context, fd: body.events.fd(), refcnt: 0 };
        Ok(shell::give::<OfChannel>(head, body))
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    number(|| {
        // SAFETY: a channel of the program's, which it does not use afterwards.
        unsafe {
            shell::look::<OfChannel>(channel)?.body.users.none()?;
            shell::take::<OfChannel>(channel);
        }
        Ok(())
    })
}

/// Wishes that only the extended interface has.
#[derive(Default)]
pub(crate) struct Wanted {
    /// Each completion has its time.
    pub(crate) times: bool,
    /// No overrun takes the queue down.
    pub(crate) no_overrun: bool,
}

/// # Safety
/// The program's context and channel.
pub(crate) unsafe fn create(
    context: *mut ibv_context,
    depth: i64,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: i64,
    parent: Option<Arc<Domain>>,
    wanted: Wanted,
) -> Result<*mut ibv_cq_ex> {
    // SAFETY: this function's contract.
    let (body, with) = unsafe {
        let with = if channel.is_null() { None } else { Some(shell::look::<OfChannel>(channel)?) };
        (shell::context(context)?, with)
    };
    if vector != 0 {
        return Err(Errno::EINVAL);
    }
    let depth = u32::try_from(depth).map_err(|_| Errno::EINVAL)?;
    let (mut queue, granted) =
        Queue::new(body, depth, with.as_ref().map(|with| with.body.clone()), parent)?;
    if let Some(with) = with {
        // SAFETY: a member of the program's channel.
        unsafe { shell::word((&raw mut (*with.head()).refcnt).cast()) }.fetch_add(1, Relaxed);
    }
    let head = super::completion_ex::head(ibv_cq {
        context,
        channel,
        cq_context,
        handle: queue.handle,
        cqe: c_int::try_from(granted).map_err(|_| Errno::EINVAL)?,
        mutex: shell::MUTEX,
        cond: shell::CONDITION,
        comp_events_completed: 0,
        async_events_completed: 0,
    });
    if wanted.times {
        queue.engine.keep_times();
    }
    if wanted.no_overrun {
        queue.ignore_overruns()?;
    }
    let queue = Arc::new(queue);
    queue.watch()?;
    let given = shell::give::<OfQueue>(head, queue.clone());
    queue.address.store(given.expose_provenance(), Ordering::Release);
    Ok(given)
}

pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    // SAFETY: the caller's objects.
    pointer(|| unsafe {
        let (depth, vector) = (cqe.into(), vector.into());
        Ok(create(context, depth, cq_context, channel, vector, None, Wanted::default())?.cast())
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    number(|| {
        // SAFETY: a queue of the program's, which it does not use afterwards.
        unsafe {
            let shell = shell::look::<OfQueue>(cq.cast())?;
            shell.body.destroy()?;
            let channel = (*shell.head()).base.channel;
            if !channel.is_null() {
                shell::word((&raw mut (*channel).refcnt).cast()).fetch_sub(1, Relaxed);
            }
            shell::take::<OfQueue>(cq.cast());
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    number(|| {
        // SAFETY: a queue of the program's.
        let shell = unsafe { shell::look::<OfQueue>(cq.cast()) }?;
        let depth = u32::try_from(cqe).map_err(|_| Errno::EINVAL)?;
        let granted = shell.body.resize(depth)?;
        // SAFETY: a member of the program's queue.
        unsafe { shell::word((&raw mut (*shell.head()).base.cqe).cast()) }.store(granted, Relaxed);
        Ok(())
    })
}

/// Verbs V176. The statuses for masks are those of the kernel's `ib_uverbs_ex_modify_cq`.
pub(super) unsafe extern "C" fn modify_cq(
    cq: *mut ibv_cq,
    attr: *const ibv_modify_cq_attr,
) -> c_int {
    const MODERATE: u32 = 1;
    number(|| {
        // SAFETY: a queue and a structure of the program's.
        let (queue, attr) =
            unsafe { (shell::look::<OfQueue>(cq.cast())?, attr.as_ref().ok_or(Errno::EINVAL)?) };
        let [count, period] = attr.moderate;
        match attr.attr_mask {
            0 => Err(Errno::EINVAL),
            MODERATE => queue.body.moderate(count, period),
            _ => Err(Errno::EOPNOTSUPP),
        }
    })
}

pub(crate) unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    let fd = minus_one(|| {
        if cq.is_null() || cq_context.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: a channel of the program's.
        Ok(unsafe { shell::look::<OfChannel>(channel) }?.body.events.fd())
    });
    if fd < 0 {
        return fd;
    }
    // SAFETY: a channel and two pointers of the program's. The queue of an event that is counted is there,
    // because its end waits for the acknowledgement.
    fetched(fd, || unsafe {
        let events = &shell::trust::<OfChannel>(channel).body.events;
        let Some(queue) = events.counted(|queue| queue.completion_events.handed_out()) else {
            return Ok(false);
        };
        let found: *mut ibv_cq = shell::address_of(&queue.address);
        cq.write(found);
        cq_context.write((*found).cq_context);
        Ok(true)
    })
}

pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, events: c_uint) {
    quiet(|| {
        // SAFETY: a queue of the program's.
        let shell = unsafe { shell::look::<OfQueue>(cq.cast()) }?;
        // SAFETY: a member of the program's queue.
        unsafe { shell::word(&raw mut (*shell.head()).base.comp_events_completed) }
            .fetch_add(events, Relaxed);
        // Kept beyond the count: a thread that destroys the queue may go on at it.
        let queue = shell.body.clone();
        queue.completion_events.acknowledge(events);
        Ok(())
    });
}

// ---- operations of a context ---------------------------------------------------------------------

pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, wc: *mut ibv_wc) -> c_int {
    let polled = caught(|| {
        // SAFETY: a queue of the program's.
        let queue = &unsafe { shell::trust::<OfQueue>(cq.cast()) }.body;
        let most = usize::try_from(most).map_err(|_| Errno::EINVAL)?;
        // SAFETY: an array of `most` entries at any address, of which `index` is one.
        queue.poll(|index, entry, _| unsafe { wc.add(index).write_unaligned(entry) }, most)
    });
    polled.map_or(-1, |count| count as c_int)
}

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited: c_int) -> c_int {
    number(|| {
        // SAFETY: a queue of the program's.
        unsafe { shell::look::<OfQueue>(cq.cast()) }?.body.request_notification(solicited != 0)
    })
}
