//! Ids: making and destroying, addresses, options.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::abi::*;
use crate::cm::{Devices, Id};
use crate::context::Context;
use crate::entry::cm::address;
use crate::entry::cm::events::{ChannelShell, acknowledge, next_event};
use crate::entry::shell::{self, OfQueuePair};
use crate::entry::{device, memory, minus_one};
use crate::errno::{Errno, Result};
use crate::process::PerProcess;
use crate::queue_pair::QueuePair;
use crate::{environment, gid};

/// An id as programs hold it. Its threads may use it in several calls at once, so no call has it for itself.
#[repr(C)]
pub(crate) struct IdShell {
    head: UnsafeCell<rdma_cm_id>,
    pub(crate) id: Arc<Id>,
    /// Calls wait for their events; the channel is the id's own.
    pub(crate) synchronous: AtomicBool,
    path: UnsafeCell<ibv_sa_path_rec>,
    /// The attributes that `rdma_create_ep` has kept for the ids of requests.
    pub(crate) kept: Mutex<Option<(*mut ibv_pd, ibv_qp_init_attr)>>,
    /// Queues that `rdma_create_qp` has made.
    pub(crate) own_queues: [AtomicBool; 2],
}

impl IdShell {
    /// The program's structure, whose members are read and written one by one, as in C.
    pub(crate) fn head(&self) -> *mut rdma_cm_id {
        self.head.get()
    }

    pub(crate) fn is_synchronous(&self) -> bool {
        self.synchronous.load(Ordering::Relaxed)
    }
}

/// The one context of this library on a device, with its protection domain (Verbs V39).
pub(crate) struct Own {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
}

// SAFETY: two pointers to objects that every thread may use.
unsafe impl Send for Own {}
// SAFETY: as above.
unsafe impl Sync for Own {}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: what `own` has opened for nobody else.
        unsafe {
            if !self.pd.is_null() {
                memory::ibv_dealloc_pd(self.pd);
            }
            device::ibv_close_device(self.context);
        }
    }
}

impl Own {
    /// Opens the device of a number.
    fn open(number: usize) -> Result<Own> {
        let context = device::open(number)?;
        // SAFETY: a context that was just opened.
        let pd = unsafe { memory::ibv_alloc_pd(context) };
        let own = Own { context, pd };
        if pd.is_null() { Err(Errno::ENOMEM) } else { Ok(own) }
    }

    fn body(&self) -> Result<Arc<Context>> {
        // SAFETY: it is never closed while this is there.
        Ok(unsafe { shell::context(self.context) }?.clone())
    }
}

/// The contexts of this library, one for each device.
pub(crate) struct Owned {
    pub(crate) all: Vec<Own>,
    pub(crate) devices: Arc<Devices>,
}

/// The contexts, opened when they are asked for first.
pub(crate) fn own() -> Result<&'static Owned> {
    static OWN: PerProcess<Owned> = PerProcess::new();
    OWN.get(|_| {
        let count = environment::devices().len();
        let all = (0..count).map(Own::open).collect::<Result<Vec<_>>>()?;
        let mut bodies = all.iter().map(Own::body);
        let first = bodies.next().ok_or(Errno::ENODEV)??;
        let others = bodies.collect::<Result<Vec<_>>>()?;
        Ok(Owned { all, devices: Devices::new(first, others) })
    })
}

/// The shell of an id.
///
/// # Safety
/// Null, or an id of the program's.
pub(crate) unsafe fn look<'a>(id: *mut rdma_cm_id) -> Result<&'a IdShell> {
    // SAFETY: this function's contract.
    unsafe { id.cast::<IdShell>().as_ref() }.ok_or(Errno::EINVAL)
}

/// A structure of the program's for an id.
pub(crate) fn give(
    id: Arc<Id>,
    channel: *mut rdma_event_channel,
    user_context: *mut c_void,
    space: u32,
    synchronous: bool,
) -> *mut rdma_cm_id {
    let (empty, _) = address::write(std::net::SocketAddr::from(([0, 0, 0, 0], 0)));
    let mut route = rdma_route {
        src_addr: empty,
        dst_addr: empty,
        sgid: [0; 2],
        dgid: [0; 2],
        pkey: 0,
        path_rec: std::ptr::null_mut(),
        num_paths: 0,
    };
    route.src_addr.ss_family = 0;
    route.dst_addr.ss_family = 0;
    let head = rdma_cm_id {
        verbs: std::ptr::null_mut(),
        channel,
        context: user_context,
        qp: std::ptr::null_mut(),
        route,
        ps: space,
        port_num: 0,
        event: std::ptr::null_mut(),
        send_cq_channel: std::ptr::null_mut(),
        send_cq: std::ptr::null_mut(),
        recv_cq_channel: std::ptr::null_mut(),
        recv_cq: std::ptr::null_mut(),
        srq: std::ptr::null_mut(),
        pd: std::ptr::null_mut(),
        qp_type: if space == ps::UDP { qpt::UD } else { qpt::RC },
    };
    let shell = IdShell {
        head: UnsafeCell::new(head),
        id: id.clone(),
        synchronous: AtomicBool::new(synchronous),
        path: UnsafeCell::default(),
        kept: Mutex::new(None),
        own_queues: [const { AtomicBool::new(false) }; 2],
    };
    let given: *mut rdma_cm_id = Box::into_raw(Box::new(shell)).cast();
    id.address.store(given.expose_provenance(), Ordering::Release);
    given
}

/// Show the addresses that an id has, and the device once it is on one.
///
/// # Safety
/// The program's structure of the id is there.
pub(crate) unsafe fn show(shell: &IdShell) -> Result {
    let (local, peer) = {
        let inner = shell.id.lock();
        (inner.local, inner.peer)
    };
    let device = match local {
        Some(local) if !local.ip().is_unspecified() => own()?.all.get(shell.id.device()),
        _ => None,
    };
    let head = shell.head();
    // SAFETY: this function's contract.
    unsafe {
        if let Some(local) = local {
            (*head).route.src_addr = address::write(local).0;
            (*head).route.sgid = gid_words(gid::bytes_of(local.ip()));
        }
        if let Some(peer) = peer {
            (*head).route.dst_addr = address::write(peer).0;
            (*head).route.dgid = gid_words(gid::bytes_of(peer.ip()));
        }
        if let Some(Own { context, pd }) = device {
            (*head).verbs = *context;
            (*head).pd = *pd;
            (*head).port_num = 1;
            (*head).route.pkey = 0xFFFF;
        }
    }
    Ok(())
}

/// The route to the peer (Verbs V115).
///
/// # Safety
/// As [`show`].
pub(crate) unsafe fn show_route(shell: &IdShell) {
    let (head, path) = (shell.head(), shell.path.get());
    // SAFETY: this function's contract.
    let (dgid, sgid) = unsafe { ((*head).route.dgid, (*head).route.sgid) };
    let found = ibv_sa_path_rec {
        dgid,
        sgid,
        traffic_class: shell.id.lock().traffic_class,
        hop_limit: 64,
        reversible: 1,
        numb_path: 1,
        pkey: 0xFFFF,
        mtu_selector: 2,
        mtu: 5,
        rate_selector: 2,
        rate: 16,
        packet_life_time_selector: 2,
        packet_life_time: 14,
        ..ibv_sa_path_rec::default()
    };
    // SAFETY: as above; the path is the id's.
    unsafe {
        path.write(found);
        (*head).route.path_rec = path;
        (*head).route.num_paths = 1;
    }
}

/// The queue pair that the program's structure names.
///
/// # Safety
/// A queue pair of the program's, or null.
pub(crate) unsafe fn queue_pair(qp: *mut ibv_qp) -> Result<Option<Arc<QueuePair>>> {
    if qp.is_null() {
        return Ok(None);
    }
    // SAFETY: this function's contract.
    Ok(Some(unsafe { shell::look::<OfQueuePair>(qp.cast()) }?.body.queue_pair.clone()))
}

/// A synchronous id waits for the event of its call.
///
/// # Safety
/// An id of the program's.
pub(crate) unsafe fn finish(shell: &IdShell) -> Result {
    if !shell.is_synchronous() {
        return Ok(());
    }
    // SAFETY: the id's own channel and event.
    unsafe {
        if !(*shell.head()).event.is_null() {
            acknowledge((&raw mut (*shell.head()).event).replace(std::ptr::null_mut()))?;
        }
        let event = next_event((*shell.head()).channel)?;
        (*shell.head()).event = event;
        match ((*event).event, (*event).status) {
            (cm_event::REJECTED, _) => Err(Errno::ECONNREFUSED),
            (_, 0) => Ok(()),
            (_, status) => Err(Errno(status.abs())),
        }
    }
}

// ---- making and destroying -----------------------------------------------------------------------

pub(crate) unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    user_context: *mut c_void,
    space: c_uint,
) -> c_int {
    minus_one(|| {
        if id.is_null() {
            return Err(Errno::EINVAL);
        }
        match space {
            ps::TCP | ps::UDP => {}
            _ => return Err(Errno::EPROTONOSUPPORT),
        }
        let devices = &own()?.devices;
        let synchronous = channel.is_null();
        let channel = if synchronous { ChannelShell::give()? } else { channel };
        // SAFETY: a channel of the program's, or the one above.
        let events = unsafe { ChannelShell::look(channel) }?.events.clone();
        let made = Id::new(devices, 0, &events, space == ps::UDP);
        let given = give(made, channel, user_context, space, synchronous);
        // SAFETY: the caller's pointer.
        unsafe { id.write(given) };
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    minus_one(|| {
        // SAFETY: an id of the program's, which it does not use afterwards.
        unsafe {
            let shell = look(id)?;
            if !(*shell.head()).event.is_null() && shell.is_synchronous() {
                acknowledge((&raw mut (*shell.head()).event).replace(std::ptr::null_mut()))?;
            }
            shell.id.destroy();
            let shell = Box::from_raw(id.cast::<IdShell>());
            if shell.is_synchronous() {
                ChannelShell::take((*shell.head()).channel);
            }
        }
        Ok(0)
    })
}

/// With null the id gets a channel of its own, and becomes synchronous.
pub(crate) unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    minus_one(|| {
        // SAFETY: an id and a channel of the program's.
        unsafe {
            let shell = look(id)?;
            let synchronous = channel.is_null();
            let channel = if synchronous { ChannelShell::give()? } else { channel };
            if shell.is_synchronous() && !(*shell.head()).event.is_null() {
                acknowledge((&raw mut (*shell.head()).event).replace(std::ptr::null_mut()))?;
            }
            let events = ChannelShell::look(channel)?.events.clone();
            shell.id.migrate(&events);
            let before = (&raw mut (*shell.head()).channel).replace(channel);
            if shell.synchronous.swap(synchronous, Ordering::Relaxed) {
                ChannelShell::take(before);
            }
        }
        Ok(0)
    })
}

// ---- addresses -----------------------------------------------------------------------------------

pub(crate) unsafe extern "C" fn rdma_bind_addr(
    id: *mut rdma_cm_id,
    address: *mut libc::sockaddr,
) -> c_int {
    minus_one(|| {
        // SAFETY: an id and an address of the program's.
        unsafe {
            let shell = look(id)?;
            let address = address::read(address)?.ok_or(Errno::EINVAL)?;
            shell.id.bind(address)?;
            show(shell)?;
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    source: *mut libc::sockaddr,
    peer: *mut libc::sockaddr,
    _milliseconds: c_int,
) -> c_int {
    minus_one(|| {
        // SAFETY: an id and two addresses of the program's.
        unsafe {
            let shell = look(id)?;
            let peer = address::read(peer)?.ok_or(Errno::EINVAL)?;
            let source = address::read(source)?;
            let mut shown = Ok(());
            shell.id.resolve_address(source, peer, || shown = show(shell))?;
            shown?;
            finish(shell)?;
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rdma_resolve_route(
    id: *mut rdma_cm_id,
    _milliseconds: c_int,
) -> c_int {
    minus_one(|| {
        // SAFETY: an id of the program's.
        unsafe {
            let shell = look(id)?;
            show_route(shell);
            shell.id.resolve_route()?;
            finish(shell)?;
        }
        Ok(0)
    })
}

const LEVEL_ID: c_int = 0;
const LEVEL_IB: c_int = 1;
/// Bytes of `struct ibv_path_data`.
const PATH_DATA: usize = 72;

pub(crate) unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: usize,
) -> c_int {
    const TOS: c_int = 0;
    const REUSE: c_int = 1;
    const ONE_FAMILY: c_int = 2;
    const ACK_TIMEOUT: c_int = 3;
    const PATH: c_int = 1;
    minus_one(|| {
        // SAFETY: an id of the program's, and a value of `length` bytes.
        unsafe {
            let shell = look(id)?;
            let is = |wanted| {
                if length == wanted && !value.is_null() { Ok(()) } else { Err(Errno::EINVAL) }
            };
            let byte = || is(1).map(|()| value.cast::<u8>().read());
            let number = || is(size_of::<c_int>()).map(|()| value.cast::<c_int>().read_unaligned());
            match (level, name) {
                (LEVEL_ID, TOS) => shell.id.lock().traffic_class = byte()?,
                (LEVEL_ID, REUSE) => shell.id.share_port(number()? != 0)?,
                (LEVEL_ID, ONE_FAMILY) => shell.id.take_one_family(number()? != 0)?,
                (LEVEL_ID, ACK_TIMEOUT) => shell.id.set_ack_timeout(byte()?)?,
                (LEVEL_IB, PATH) => {
                    if length == 0 || !length.is_multiple_of(PATH_DATA) || value.is_null() {
                        return Err(Errno::EINVAL);
                    }
                    show_route(shell);
                    shell.id.resolve_route()?;
                    finish(shell)?;
                }
                _ => return Err(Errno::ENOSYS),
            }
        }
        Ok(0)
    })
}

// ---- devices -------------------------------------------------------------------------------------

pub(crate) unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    crate::entry::pointer(|| {
        let all = &own()?.all;
        // SAFETY: the caller's number, or null.
        if let Some(count) = unsafe { count.as_mut() } {
            *count = all.len() as c_int;
        }
        Ok(device::list_of(all.iter().map(|own| own.context)))
    })
}

pub(crate) unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    if !list.is_null() {
        // SAFETY: what `rdma_get_devices` has returned, and is not used afterwards.
        unsafe { device::free_list(list, environment::devices().len()) };
    }
}

/// A call that returns a number, for the modules beside this one.
pub(crate) fn checked(result: c_int) -> Result {
    if result == 0 { Ok(()) } else { Err(Errno(result.abs())) }
}
