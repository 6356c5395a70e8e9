//! The device list, contexts, what the device says of itself, asynchronous events.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock, RwLock};

use transom_engine::raw;

use crate::abi::*;
use crate::context::{AsyncEvent, Context};
use crate::device;
use crate::entry::shell::{self, ContextShell};
use crate::entry::{self, minus_one, number, pointer, quiet, stubs};
use crate::environment;
use crate::errno::{Errno, Result};
use crate::explain;
use crate::gid::{self, Table};
use crate::kind::kind;
use crate::{sysfs, usage};

/// A device. Vendor libraries look behind the structure whether a device is theirs (Verbs V19).
#[repr(C)]
struct Device {
    head: ibv_device,
    behind: [u8; 256],
}

/// The address of a device; it is never freed.
struct Address(*mut ibv_device);

// SAFETY: what it points to is written once, before the address is handed out.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

/// All devices, in the order of the list.
fn devices() -> &'static [Address] {
    static DEVICES: OnceLock<Vec<Address>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let sysfs = environment::variable("TRANSOM_SYSFS").unwrap_or_else(|| "/sys".into());
        let make = |(number, name): (usize, &str)| {
            let uverbs = format!("uverbs{number}");
            let device = Device {
                head: ibv_device {
                    ops: [std::ptr::null(); 2],
                    node_type: kind().node_type.0,
                    transport_type: kind().transport,
                    name: device::chars(name),
                    dev_name: device::chars(&uverbs),
                    dev_path: device::chars(&format!("{sysfs}/class/infiniband_verbs/{uverbs}")),
                    ibdev_path: device::chars(&format!("{sysfs}/class/infiniband/{name}")),
                },
                behind: [0; 256],
            };
            Address(Box::into_raw(Box::new(device)).cast())
        };
        let names = environment::devices().iter().map(|device| &*device.name);
        names.enumerate().map(make).collect()
    })
}

/// The number of a device of the list.
fn number_of(device: *mut ibv_device) -> Result<usize> {
    devices().iter().position(|one| one.0 == device).ok_or(Errno::EINVAL)
}

/// The GID tables of the latest device list.
static GIDS: RwLock<Vec<Table>> = RwLock::new(Vec::new());

/// The tables, read anew if `fresh`, or if they have never been read. In a forked child the lock may be that
/// of a thread which is not there: it is not waited for, and not held for the reading (Verbs V146).
fn gids(fresh: bool) -> Vec<Table> {
    if !fresh
        && let Ok(gids) = GIDS.try_read()
        && !gids.iter().all(Table::is_empty)
    {
        return gids.clone();
    }
    let found = gid::tables();
    if let Ok(mut gids) = GIDS.try_write() {
        gids.clone_from(&found);
    }
    found
}

/// The table of the device of a number.
fn table(number: usize) -> Table {
    gids(false).into_iter().nth(number).unwrap_or_default()
}

/// Write the devices below the directory that stands for `/sys`.
fn show(sysfs: &str, found: &[Table]) -> std::io::Result<()> {
    let mut devices = environment::devices().iter().zip(found).enumerate();
    devices.try_for_each(|(number, (device, table))| {
        sysfs::write(sysfs.as_ref(), number, &device.name, table)
    })
}

/// Whether these devices were written there last.
fn is_shown(sysfs: &str, found: &[Table]) -> bool {
    let mut devices = environment::devices().iter().zip(found).enumerate();
    devices.all(|(number, (device, table))| {
        sysfs::is_written(sysfs.as_ref(), number, &device.name, table)
    })
}

/// Run by the loader. A program may look for the device in `/sys` before any process has asked a library for
/// it: Valkey's test of its RDMA module is a script that lists the folder first. What an earlier program has left
/// there may show addresses that the machine no longer has.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    quiet(|| {
        let Some(sysfs) = environment::variable("TRANSOM_SYSFS") else { return Ok(()) };
        let found = gid::tables();
        if !is_shown(&sysfs, &found) {
            // Most programs never look, so nothing is said before one asks for the list: a shell as another
            // user may not write there.
            let _ = show(&sysfs, &found);
        }
        Ok(())
    });
}

// ---- the list ------------------------------------------------------------------------------------

/// The devices, as pointers behind which there is a null pointer.
pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    pointer(|| {
        let found = gids(true);
        usage::reached(usage::Stage::Listed);
        if let Some(sysfs) = environment::variable("TRANSOM_SYSFS") {
            // A file may be missing that another program has removed, so the first list of a process looks at each.
            static LOOKED: AtomicBool = AtomicBool::new(false);
            if !LOOKED.swap(true, Ordering::Relaxed) || !is_shown(&sysfs, &found) {
                // Programs that look there do without.
                if let Err(error) = show(&sysfs, &found) {
                    static SAID: Once = Once::new();
                    SAID.call_once(|| {
                        explain::line(&format!("TRANSOM_SYSFS: {error}; not written"))
                    });
                }
            }
        }
        if !count.is_null() {
            // SAFETY: the caller's number.
            unsafe { count.write(devices().len() as c_int) };
        }
        Ok(list_of(devices().iter().map(|device| device.0)))
    })
}

pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    if !list.is_null() {
        // SAFETY: what `ibv_get_device_list` has returned, and is not used afterwards.
        unsafe { free_list(list, devices().len()) };
    }
}

/// A list for the program, with a null pointer behind it.
pub(crate) fn list_of<T>(pointers: impl Iterator<Item = *mut T>) -> *mut *mut T {
    let list: Box<[*mut T]> = pointers.chain([std::ptr::null_mut()]).collect();
    Box::into_raw(list).cast()
}

/// Free a list of `count` pointers.
///
/// # Safety
/// `list` is of [`list_of`], was not freed, and is not used afterwards.
pub(crate) unsafe fn free_list<T>(list: *mut *mut T, count: usize) {
    // SAFETY: this function's contract; the null pointer is one more.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, count + 1)) });
}

pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    if device.is_null() {
        return std::ptr::null();
    }
    // SAFETY: a device of the list.
    unsafe { (&raw const (*device).name).cast() }
}

pub(crate) extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    entry::caught(|| Ok(table(number_of(device)?).node_guid())).unwrap_or(0)
}

pub(crate) extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    -1
}

// ---- contexts ------------------------------------------------------------------------------------

pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    pointer(|| open(number_of(device)?))
}

/// A new context of the device of a number.
pub(crate) fn open(number: usize) -> Result<*mut ibv_context> {
    usage::reached(usage::Stage::Opened);
    Ok(give(Context::open(number, table(number))?, None))
}

/// A structure that stands for a context, for the program.
fn give(body: Arc<Context>, imported: Option<OwnedFd>) -> *mut ibv_context {
    let cmd_fd = imported.as_ref().map_or(body.cmd_fd(), AsRawFd::as_raw_fd);
    let head = head(&body, cmd_fd);
    let shell = Box::into_raw(Box::new(ContextShell { front: front(), head, body, imported }));
    // SAFETY: freshly allocated.
    unsafe { &raw mut (*shell).head }
}

/// Another structure for an opened device of this process, which `descriptor`, a copy of its `cmd_fd`,
/// names. The descriptor is closed with the structure; a refusal leaves it to the program.
pub(crate) unsafe extern "C" fn ibv_import_device(descriptor: c_int) -> *mut ibv_context {
    pointer(|| {
        if descriptor < 0 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: not -1, and looked at within this call only; a number that is not open is refused.
        let body = Context::import(unsafe { BorrowedFd::borrow_raw(descriptor) })?;
        // SAFETY: the program's descriptor, which it gives to us with this call.
        Ok(give(body, Some(unsafe { OwnedFd::from_raw_fd(descriptor) })))
    })
}

fn head(body: &Context, cmd_fd: c_int) -> ibv_context {
    ibv_context {
        device: devices().get(body.device).map_or(std::ptr::null_mut(), |device| device.0),
        ops: ibv_context_ops {
            compat_query_device: ibv_query_device as Op,
            compat_query_port: ibv_query_port as Op,
            compat_1: [std::ptr::null(); 5],
            alloc_mw: entry::window::alloc_mw as Op,
            bind_mw: entry::window::bind_mw as Op,
            dealloc_mw: entry::window::dealloc_mw as Op,
            compat_2: std::ptr::null(),
            poll_cq: entry::completion::poll_cq as Op,
            req_notify_cq: entry::completion::req_notify_cq as Op,
            compat_3: [std::ptr::null(); 7],
            post_srq_recv: entry::post::post_srq_recv as Op,
            compat_4: [std::ptr::null(); 4],
            post_send: entry::post::post_send as Op,
            post_recv: entry::post::post_recv as Op,
            compat_5: [std::ptr::null(); 5],
        },
        cmd_fd,
        async_fd: body.events.fd(),
        num_comp_vectors: 1,
        mutex: shell::MUTEX,
        abi_compat: std::ptr::without_provenance_mut(usize::MAX),
    }
}

/// No pointer that the header's inline functions call is null (Verbs V9).
fn front() -> verbs_context {
    let refuses = stubs::refuses as Op;
    let refuses_pointer = stubs::refuses_pointer as Op;
    verbs_context {
        free_buf: stubs::nothing as Op,
        alloc_buf: refuses_pointer,
        dm_export_dmabuf_fd: stubs::refuses_minus_one as Op,
        reg_mr_ex: refuses_pointer,
        dealloc_dmah: refuses,
        alloc_dmah: refuses_pointer,
        query_port: query_port as Op,
        advise_mr: entry::memory::advise_mr as Op,
        alloc_null_mr: refuses_pointer,
        read_counters: refuses,
        attach_counters_point_flow: refuses,
        create_counters: refuses_pointer,
        destroy_counters: refuses,
        reg_dm_mr: refuses_pointer,
        alloc_dm: refuses_pointer,
        free_dm: refuses,
        modify_flow_action_esp: refuses,
        destroy_flow_action: refuses,
        create_flow_action_esp: refuses_pointer,
        modify_qp_rate_limit: refuses,
        alloc_parent_domain: entry::memory::alloc_parent_domain as Op,
        dealloc_td: entry::memory::dealloc_td as Op,
        alloc_td: entry::memory::alloc_td as Op,
        modify_cq: entry::completion::modify_cq as Op,
        post_srq_ops: refuses,
        destroy_rwq_ind_table: refuses,
        create_rwq_ind_table: refuses_pointer,
        destroy_wq: refuses,
        modify_wq: refuses,
        create_wq: refuses_pointer,
        query_rt_values: query_rt_values as Op,
        create_cq_ex: entry::completion_ex::create_cq_ex as Op,
        private: std::ptr::null(),
        query_device_ex: query_device_ex as Op,
        destroy_flow: refuses,
        placeholder_2: std::ptr::null(),
        create_flow: refuses_pointer,
        placeholder_1: std::ptr::null(),
        open_qp: entry::xrc::open_qp as Op,
        create_qp_ex: entry::queue_pair::create_qp_ex as Op,
        get_srq_num: entry::receive::get_srq_num as Op,
        create_srq_ex: entry::receive::create_srq_ex as Op,
        open_xrcd: entry::xrc::open_xrcd as Op,
        close_xrcd: entry::xrc::close_xrcd as Op,
        placeholder_0: std::ptr::null(),
        sz: CONTEXT_SIZE,
    }
}

pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    number(|| {
        // SAFETY: a context of the program's, which it does not use afterwards.
        unsafe { shell::context(context) }?.close();
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(shell::shell_of(context)) });
        Ok(())
    })
}

// ---- attributes ----------------------------------------------------------------------------------

pub(crate) unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    number(|| {
        // SAFETY: a context and a structure of the program's.
        unsafe { *out(attr)? = device::attributes(&shell::context(context)?.gids) };
        Ok(())
    })
}

/// An argument to be written: `EINVAL` for null.
///
/// # Safety
/// Null, or room for a `T` of the program's. The old contents may be read.
unsafe fn out<'a, T>(to: *mut T) -> Result<&'a mut T> {
    // SAFETY: this function's contract.
    unsafe { to.as_mut() }.ok_or(Errno::EINVAL)
}

unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    _input: *const c_void,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    number(|| {
        // SAFETY: a context of the program's.
        let all = device::attributes_ex(&unsafe { shell::context(context) }?.gids);
        // SAFETY: room for `size` bytes.
        unsafe { cut(attr, &all, size) }
    })
}

/// Verbs V174. The clock's count stands in `tv_nsec`, as mlx5 puts it; a value that there is not leaves the mask.
unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    const RAW_CLOCK: u32 = 1;
    number(|| {
        // SAFETY: a context and a structure of the program's.
        let values = unsafe {
            shell::context(context)?;
            out(values)?
        };
        values.comp_mask &= RAW_CLOCK;
        if values.comp_mask != 0 {
            let nanoseconds = i64::try_from(raw::now().0).unwrap_or(i64::MAX);
            values.raw_clock = [0, nanoseconds];
        }
        Ok(())
    })
}

/// Write a structure into room of another size: cut, or followed by zeros.
///
/// # Safety
/// `to` is null or has room for `size` bytes.
unsafe fn cut<T>(to: *mut T, from: &T, size: usize) -> Result {
    if to.is_null() {
        return Err(Errno::EINVAL);
    }
    let known = size.min(size_of::<T>());
    // SAFETY: this function's contract; `known` bytes are in both.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(from).cast::<u8>(), to.cast(), known);
        to.cast::<u8>().add(known).write_bytes(0, size - known);
    }
    Ok(())
}

/// The exported function fills the 48 bytes of the old structure.
pub(crate) unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: as for `query_port`, with room for what the old structure has.
    unsafe { query_port(context, port, attr, 48) }
}

unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    number(|| {
        // SAFETY: a context of the program's.
        let context = unsafe { shell::context(context) }?;
        if port != 1 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: room for `size` bytes.
        unsafe { cut(attr, &device::port(&context.gids), size) }
    })
}

/// 100 Gb/s, in units of 100 Mb/s.
pub(crate) unsafe extern "C" fn ibv_query_port_speed(
    context: *mut ibv_context,
    port: u32,
    speed: *mut u64,
) -> c_int {
    number(|| {
        // SAFETY: a context and a number of the program's.
        unsafe {
            shell::context(context)?;
            if port != 1 {
                return Err(Errno::EINVAL);
            }
            *out(speed)? = 1000;
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut [u64; 2],
) -> c_int {
    minus_one(|| {
        // SAFETY: a context and a GID of the program's.
        unsafe {
            let gids = &shell::context(context)?.gids;
            let index = checked(gids, u32::from(port), i64::from(index))?;
            *out(gid)? = device::gid_entry(gids, index).map_or([0; 2], |entry| entry.gid);
        }
        Ok(0)
    })
}

/// An index inside the table of the one port.
fn checked(gids: &Table, port: u32, index: i64) -> Result<usize> {
    let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
    let inside = port == 1 && index < gids.length();
    if inside { Ok(index) } else { Err(Errno::EINVAL) }
}

pub(crate) unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    number(|| {
        // SAFETY: a context of the program's.
        let gids = &unsafe { shell::context(context) }?.gids;
        let index = checked(gids, port, i64::from(index))?;
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        let found = device::gid_entry(gids, index).ok_or(Errno::ENODATA)?;
        // SAFETY: room for `size` bytes.
        unsafe { cut(entry, &found, size) }
    })
}

/// How many entries there are; a negative number of an error.
pub(crate) unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    most: usize,
    flags: u32,
    size: usize,
) -> isize {
    let listed = entry::caught(|| {
        // SAFETY: a context of the program's.
        let gids = &unsafe { shell::context(context) }?.gids;
        let count = gids.iter().count();
        if flags != 0 || most < count || size == 0 {
            return Err(Errno::EINVAL);
        }
        for (at, (index, _)) in gids.iter().enumerate() {
            let found = device::gid_entry(gids, index).ok_or(Errno::ENODATA)?;
            // SAFETY: an array of `most` entries of `size` bytes.
            unsafe { cut(entries.wrapping_byte_add(at * size), &found, size) }?;
        }
        isize::try_from(count).map_err(|_| Errno::EINVAL)
    });
    listed.unwrap_or_else(|error| {
        crate::sys::set_errno(error.0);
        -(error.0 as isize)
    })
}

/// The private call: 1 is RoCE v2.
pub(crate) unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: c_uint,
    type_: *mut c_int,
) -> c_int {
    minus_one(|| {
        // SAFETY: a context and a number of the program's.
        unsafe {
            let gids = &shell::context(context)?.gids;
            let index = checked(gids, u32::from(port), i64::from(index))?;
            let found = device::gid_entry(gids, index);
            *out(type_)? = c_int::from(found.is_some_and(|entry| entry.gid_type == gid::ROCE_V2.0));
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    minus_one(|| {
        // SAFETY: a context and a number of the program's.
        unsafe {
            shell::context(context)?;
            if port != 1 || index != 0 {
                return Err(Errno::EINVAL);
            }
            *out(pkey)? = 0xFFFF;
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn ibv_get_pkey_index(
    context: *mut ibv_context,
    port: u8,
    pkey: u16,
) -> c_int {
    minus_one(|| {
        // SAFETY: a context of the program's.
        unsafe { shell::context(context) }?;
        if port == 1 && pkey == 0xFFFF { Ok(0) } else { Err(Errno::EINVAL) }
    })
}

/// Zeros: nothing here has a hardware address.
pub(crate) unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    _context: *mut ibv_context,
    _attr: *mut ibv_ah_attr,
    hardware: *mut [u8; 6],
    vlan: *mut u16,
) -> c_int {
    // SAFETY: null, or room of the program's.
    unsafe {
        if let Some(hardware) = hardware.as_mut() {
            *hardware = [0; 6];
        }
        if let Some(vlan) = vlan.as_mut() {
            *vlan = 0xFFFF;
        }
    }
    0
}

// ---- asynchronous events -------------------------------------------------------------------------

pub(crate) unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let fd = minus_one(|| {
        // SAFETY: a context and a structure of the program's.
        unsafe {
            out(event)?;
            Ok(shell::context(context)?.events.fd())
        }
    });
    if fd < 0 {
        return fd;
    }
    entry::fetched(fd, || {
        // SAFETY: as above.
        let (context, event) = unsafe { (shell::context(context)?, out(event)?) };
        let counted = context.events.counted(|event| event.acknowledged().handed_out());
        let (address, kind) = match counted {
            None => return Ok(false),
            Some(AsyncEvent::QueuePair(object, kind)) => (shell::address_of(&object.address), kind),
            Some(AsyncEvent::Completions(object, kind)) => {
                (shell::address_of(&object.address), kind)
            }
            Some(AsyncEvent::SharedReceives(object, kind)) => {
                (shell::address_of(&object.address), kind)
            }
        };
        *event = ibv_async_event { element: address, event_type: kind };
        Ok(true)
    })
}

pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    quiet(|| {
        // SAFETY: a member of an object that is there.
        let counted = |number| unsafe { shell::word(number) }.fetch_add(1, Ordering::Relaxed);
        // SAFETY: an event that `ibv_get_async_event` has filled, whose object is there until it is
        // acknowledged.
        unsafe {
            let ibv_async_event { element, event_type } = *out(event)?;
            // Kept beyond the count: a thread that destroys the object may go on at it.
            let object = match event_type {
                event::CQ_ERR => {
                    let queue = shell::look::<shell::OfQueue>(element.cast())?;
                    counted(&raw mut (*queue.head()).base.async_events_completed);
                    AsyncEvent::Completions(queue.body.clone(), event_type)
                }
                event::SRQ_LIMIT_REACHED => {
                    let queue = shell::look::<shell::OfSharedQueue>(element.cast())?;
                    counted(&raw mut (*queue.head()).events_completed);
                    AsyncEvent::SharedReceives(queue.body.clone(), event_type)
                }
                _ => {
                    let pair = shell::look::<shell::OfQueuePair>(element.cast())?;
                    counted(&raw mut (*pair.head()).qp_base.events_completed);
                    AsyncEvent::QueuePair(pair.body.queue_pair.clone(), event_type)
                }
            };
            object.acknowledged().acknowledge(1);
        }
        Ok(())
    });
}
