//! Event channels and events.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::abi::*;
use crate::channel::Channel;
use crate::cm::{self, Event, Id, State};
use crate::entry::cm::ids::{give, look, queue_pair, show};
use crate::entry::queue_pair::show_state;
use crate::entry::{fetched, minus_one, pointer};
use crate::errno::{Errno, Result};
use crate::kind::kind;
use crate::process::PerProcess;
use crate::{explain, text};

/// An event channel as programs hold it.
#[repr(C)]
pub(crate) struct ChannelShell {
    head: rdma_event_channel,
    pub(crate) events: Arc<Channel<Event>>,
}

/// The addresses of channels that this process has made.
#[derive(Debug)]
struct Alive {
    addresses: Mutex<BTreeSet<usize>>,
    /// A forked child: its parent may have made others.
    inherits: bool,
}

fn alive() -> Result<&'static Alive> {
    static ALIVE: PerProcess<Alive> = PerProcess::new();
    ALIVE.get(|inherits| Ok(Alive { addresses: Mutex::default(), inherits }))
}

impl Alive {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChannelShell {
    pub(crate) fn give() -> Result<*mut rdma_event_channel> {
        let events = Arc::new(Channel::new()?);
        let head = rdma_event_channel { fd: events.fd() };
        let shell = Box::into_raw(Box::new(ChannelShell { head, events }));
        let given: *mut rdma_event_channel = shell.cast();
        alive()?.lock().insert(given.addr());
        Ok(given)
    }

    /// The events of a channel. `None`: it has been destroyed. `EIO` in a forked child: that, or it is the
    /// parent's.
    ///
    /// # Safety
    /// Null, or a channel of the program's, now or once.
    unsafe fn events(channel: *mut rdma_event_channel) -> Result<Option<Arc<Channel<Event>>>> {
        let made = alive()?;
        let alive = made.lock();
        if !channel.is_null() && !alive.contains(&channel.addr()) {
            return if made.inherits { Err(Errno::EIO) } else { Ok(None) };
        }
        // SAFETY: null or alive, and its end waits for the lock.
        Ok(Some(unsafe { ChannelShell::look(channel) }?.events.clone()))
    }

    /// # Safety
    /// Null, or a channel of the program's.
    pub(crate) unsafe fn look<'a>(channel: *mut rdma_event_channel) -> Result<&'a ChannelShell> {
        // SAFETY: this function's contract.
        unsafe { channel.cast::<ChannelShell>().as_ref() }.ok_or(Errno::EINVAL)
    }

    /// # Safety
    /// A channel of the program's, which is not used afterwards.
    pub(crate) unsafe fn take(channel: *mut rdma_event_channel) {
        if let Ok(alive) = alive() {
            alive.lock().remove(&channel.addr());
        }
        // SAFETY: this function's contract.
        drop(unsafe { Box::from_raw(channel.cast::<ChannelShell>()) });
    }
}

/// An event as programs hold it.
#[repr(C)]
struct EventShell {
    head: rdma_cm_event,
    private: Vec<u8>,
    /// The id whose end waits for the acknowledgement.
    owner: Arc<Id>,
}

pub(crate) extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer(ChannelShell::give)
}

pub(crate) unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    if !channel.is_null() {
        // SAFETY: a channel of the program's, which it does not use afterwards.
        unsafe { ChannelShell::take(channel) };
    }
}

pub(crate) unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    let events = pointer(|| {
        if event.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: a channel of the program's.
        let found = unsafe { ChannelShell::events(channel) }?;
        Ok(Arc::into_raw(found.unwrap_or_else(|| wait_for_the_end())).cast_mut())
    });
    if events.is_null() {
        return -1;
    }
    // SAFETY: counted above, and by a thread that is canceled for ever.
    let fd = unsafe { (*events).fd() };
    // SAFETY: as above; a channel and a pointer of the program's.
    let done = fetched(fd, || unsafe {
        let Some(found) = (*events).counted(count) else { return Ok(false) };
        event.write(taken(found, channel)?);
        Ok(true)
    });
    // SAFETY: as above.
    drop(unsafe { Arc::from_raw(events) });
    done
}

fn count(event: &Event) {
    event.owner().events.handed_out();
}

/// Events behind which the queue pair is in another state than before (Verbs V124).
const MOVING: [u32; 2] = [cm_event::CONNECT_ERROR, cm_event::REJECTED];

/// Fetch an event of an id's own channel.
///
/// # Safety
/// A channel of the program's.
pub(crate) unsafe fn next_event(channel: *mut rdma_event_channel) -> Result<*mut rdma_cm_event> {
    // SAFETY: this function's contract.
    let found = unsafe { ChannelShell::events(channel) }?;
    let events = found.unwrap_or_else(|| wait_for_the_end());
    // SAFETY: as above.
    unsafe { taken(events.fetch(count)?, channel) }
}

/// A fetched event. That of an active side's acceptance moves the queue pair first.
///
/// # Safety
/// A channel of the program's.
unsafe fn taken(mut event: Event, channel: *mut rdma_event_channel) -> Result<*mut rdma_cm_event> {
    let owner = event.owner().clone();
    let active = event.kind == cm_event::ESTABLISHED && event.id.lock().state == State::Responded;
    if active && let Err(error) = event.id.take_up() {
        event.kind = cm_event::CONNECT_ERROR;
        event.status = -error.0;
    }
    if event.kind == cm_event::DISCONNECTED {
        event.id.end_is_fetched();
    }
    if event.kind == cm_event::CONNECT_REQUEST
        && let Some(part) = &event.id.lock().datagrams
    {
        part.question_is_fetched();
    }
    let listener = event.listener.as_ref().map(|l| cm::address_of(l));
    let listener: *mut rdma_cm_id = std::ptr::with_exposed_provenance_mut(listener.unwrap_or(0));
    let id: *mut rdma_cm_id = if event.kind == cm_event::CONNECT_REQUEST {
        // SAFETY: the listening id is there: its end waits until the event is acknowledged.
        let (user_context, space) = unsafe { ((*listener).context, (*listener).ps) };
        let id = give(event.id.clone(), channel, user_context, space, false);
        // SAFETY: just made.
        unsafe { look(id).and_then(|shell| show(shell)) }
            .inspect_err(|_| owner.events.acknowledge(1))?;
        id
    } else {
        std::ptr::with_exposed_provenance_mut(cm::address_of(&event.id))
    };
    if let Some(joined) = event.joined.filter(|joined| joined.attaches) {
        // SAFETY: the id's structure, with its queue pair if there is one.
        if let Err(error) = unsafe { attach((*id).qp, joined.group) } {
            let _ = event.id.leave_group(joined.group);
            event.kind = cm_event::MULTICAST_ERROR;
            event.status = -error.0;
        }
    }
    // Not by the id's pointer, which `ibv_destroy_qp` leaves there: rping 44 destroys in another thread.
    if (active || MOVING.contains(&event.kind))
        && let Some(joined) = event.id.joined()
    {
        show_state(&joined);
    }
    // Only a request and its answer bring parameters (`cma_ib_handler` of Linux); iWARP repeats them.
    let answers =
        active || matches!(event.kind, cm_event::CONNECT_REQUEST | cm_event::CONNECT_RESPONSE);
    let parameters = answers || !kind().infiniband;
    Ok(as_program_sees(id, listener, event, owner, parameters))
}

/// A thread asks a channel that another one has just destroyed. It waits as if it had asked before: a
/// program whose main thread destroys its channel and returns (rping 44) would end with the thread's
/// error instead of its own status.
fn wait_for_the_end() -> ! {
    explain::line("a thread waits for events of a channel that the program has destroyed");
    loop {
        std::thread::park();
    }
}

/// # Safety
/// Null, or a queue pair of the program's.
unsafe fn attach(qp: *mut ibv_qp, group: IpAddr) -> Result {
    // SAFETY: this function's contract.
    unsafe { queue_pair(qp) }?.map_or(Ok(()), |queue_pair| queue_pair.attach(group))
}

fn as_program_sees(
    id: *mut rdma_cm_id,
    listen_id: *mut rdma_cm_id,
    event: Event,
    owner: Arc<Id>,
    parameters: bool,
) -> *mut rdma_cm_event {
    let datagrams = event.id.is_datagrams();
    let Event {
        kind,
        status,
        private,
        responder_resources,
        initiator_depth,
        retries,
        number,
        joined,
        ..
    } = event;
    let private_data = match joined {
        // The pointer itself is what the program gave.
        Some(joined) => std::ptr::with_exposed_provenance(joined.user_context),
        None if private.is_empty() => std::ptr::null(),
        None => private.as_ptr().cast(),
    };
    let private_data_len = u8::try_from(private.len()).unwrap_or(u8::MAX);
    let (retry_count, rnr_retry_count, qp_num) =
        if parameters { (retries.retry, retries.rnr, number) } else { (0, 0, 0) };
    let conn = rdma_conn_param {
        private_data,
        private_data_len,
        responder_resources: if parameters { responder_resources } else { 0 },
        initiator_depth: if parameters { initiator_depth } else { 0 },
        flow_control: 0,
        retry_count,
        rnr_retry_count,
        srq: 0,
        qp_num,
    };
    let service = event.service;
    let ud = rdma_ud_param {
        private_data,
        private_data_len,
        ah_attr: service.map_or_else(ibv_ah_attr::default, |service| service.attr),
        qp_num: service.map_or(0, |service| service.number),
        qkey: service.map_or(0, |service| service.key),
    };
    // The longer parameters first, so that every byte of the union has a value.
    let mut param = rdma_event_param { ud };
    if !datagrams {
        param.conn = conn;
    }
    let head = rdma_cm_event { id, listen_id, event: kind, status, param };
    Box::into_raw(Box::new(EventShell { head, private, owner })).cast()
}

pub(crate) unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    minus_one(|| {
        // SAFETY: an event of the program's, which it does not use afterwards.
        unsafe { acknowledge(event) }?;
        Ok(0)
    })
}

/// # Safety
/// An event of the program's, or null; it is not used afterwards.
pub(crate) unsafe fn acknowledge(event: *mut rdma_cm_event) -> Result {
    if event.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: this function's contract.
    let shell = unsafe { Box::from_raw(event.cast::<EventShell>()) };
    shell.owner.events.acknowledge(1);
    Ok(())
}

pub(crate) extern "C" fn rdma_event_str(event: c_int) -> *const c_char {
    text::pick(&text::CM_EVENTS, i64::from(event), c"UNKNOWN EVENT").as_ptr()
}
