//! `NDK_ADAPTER_DISPATCH`, and the two functions in the place of the miniport's.
#![allow(non_snake_case, reason = "exported names")]

use std::ffi::{CStr, c_char, c_void};
use std::mem::offset_of;
use std::net::SocketAddr;
use std::sync::Arc;

use super::handle::{HandleKind, free, new};
use super::{Context, created, on, query_extension, request_done, with_or};
use crate::deliver::Mode;
use crate::dispatch::{
    AdapterDispatch, ConnectEvent, CqNotification, CreateCompletion, RequestCompletion,
};
use crate::mdl::{Chain, Mdl};
use crate::objects::{Adapter, Give, Options};
use crate::types::{
    AdapterInfo, GroupAffinity, LogicalAddressMapping, Object, ObjectType, Version,
};
use crate::{Status, objects};

static TABLE: AdapterDispatch = AdapterDispatch {
    query_extension,
    query_adapter_info,
    create_cq,
    create_pd,
    create_shared_endpoint,
    create_connector,
    create_listener,
    build_lam,
    release_lam,
};

impl HandleKind for Adapter {
    const TYPE: ObjectType = ObjectType::Adapter;
    fn table() -> *const c_void {
        (&raw const TABLE).cast()
    }
}

/// `NDK_OPEN_OPTIONS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OpenOptions {
    /// `NDK_COMPLETE_*`.
    pub completion_mode: u32,
    /// See [`Options`].
    pub read_sink_needed: u8,
    /// See [`Options`]; 0: no limit.
    pub max_registrations: u32,
}

/// Open the adapter of a local address.
///
/// # Safety
/// The pointers are NULL or point to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn NdkOpenAdapter(
    version: Version,
    address: *const c_void,
    address_length: u32,
    options: *const OpenOptions,
    out: *mut *mut Object,
) -> i32 {
    let run = |address: SocketAddr| {
        // SAFETY: this function's contract.
        let (Some(out), options) = (unsafe { (out.as_mut(), options.as_ref()) }) else {
            return Status::INVALID_PARAMETER;
        };
        *out = std::ptr::null_mut();
        let mut chosen = Options::default();
        if let Some(options) = options {
            let mode = Mode::ALL.into_iter().find(|mode| *mode as u32 == options.completion_mode);
            let Some(mode) = mode else { return Status::INVALID_PARAMETER };
            let most = options.max_registrations;
            chosen = Options {
                mode,
                read_sink_needed: options.read_sink_needed != 0,
                max_registrations: (most != 0).then_some(u64::from(most)),
            };
        }
        match Adapter::open(version, address, chosen) {
            Ok(adapter) => {
                *out = new(adapter.version, adapter);
                Status::SUCCESS
            }
            Err(status) => status,
        }
    };
    // SAFETY: this function's contract.
    unsafe { on((address, address_length), run) }
}

/// Close an adapter: waits until all its objects are closed and every callback has returned.
///
/// # Safety
/// `adapter` came from [`NdkOpenAdapter`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn NdkCloseAdapter(adapter: *mut Object) {
    let run = |inner: Arc<Adapter>| {
        inner.close();
        // SAFETY: the consumer has given it up.
        unsafe { free::<Adapter>(adapter) };
    };
    // SAFETY: this function's contract.
    unsafe { with_or((), adapter, run) };
}

/// The record of a refusal, as a sentence.
///
/// # Safety
/// `adapter` is a live adapter; `text` is NULL or has `capacity` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn NdkExplain(
    adapter: *mut Object,
    code: u32,
    text: *mut c_char,
    capacity: usize,
) -> usize {
    let run = |adapter: Arc<Adapter>| {
        let Some(sentence) = adapter.explain(code) else { return 0 };
        if !text.is_null() && capacity > 0 {
            let length = sentence.len().min(capacity - 1);
            // SAFETY: `length + 1` bytes fit.
            unsafe {
                std::ptr::copy_nonoverlapping(sentence.as_ptr().cast(), text, length);
                text.add(length).write(0);
            }
        }
        sentence.len()
    };
    // SAFETY: this function's contract.
    unsafe { with_or(0, adapter, run) }
}

/// Give the region or window of a token a name, for messages and for `transom show`.
///
/// # Safety
/// `adapter` is a live adapter; `name` is NULL or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn NdkName(adapter: *mut Object, token: u32, name: *const c_char) -> i32 {
    let run = |adapter: Arc<Adapter>| {
        if name.is_null() {
            return Status::INVALID_PARAMETER;
        }
        // SAFETY: this function's contract.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        adapter.name(token, &name).err().unwrap_or(Status::SUCCESS)
    };
    // SAFETY: this function's contract.
    unsafe { with_or(Status::INVALID_PARAMETER, adapter, run) }.0
}

unsafe extern "C" fn query_adapter_info(
    adapter: *mut Object,
    info: *mut AdapterInfo,
    size: *mut u32,
) -> i32 {
    let run = |adapter: Arc<Adapter>| {
        // SAFETY: the consumer's pointer.
        let Some(size) = (unsafe { size.as_mut() }) else { return Status::INVALID_PARAMETER };
        let needed = size_of::<AdapterInfo>() as u32;
        let capacity = std::mem::replace(size, needed);
        if info.is_null() || capacity < needed {
            return Status::BUFFER_TOO_SMALL;
        }
        // SAFETY: there is room for it.
        unsafe { info.write(adapter.info()) };
        Status::SUCCESS
    };
    // SAFETY: the consumer's pointers.
    unsafe { on(adapter, run) }
}

unsafe extern "C" fn create_cq(
    adapter: *mut Object,
    depth: u32,
    notification: CqNotification,
    notification_context: *mut c_void,
    _affinity: *const GroupAffinity,
    completion: CreateCompletion,
    context: *mut c_void,
    out: *mut *mut Object,
) -> i32 {
    let theirs = Context::new(notification_context);
    let notification = notification.map(|callback| -> objects::CqNotification {
        Box::new(move |status| {
            // SAFETY: the consumer's function with the consumer's context.
            unsafe { callback(theirs.pointer(), status.0) };
        })
    });
    let run = |adapter: Arc<Adapter>| {
        let make = || adapter.create_cq(depth, notification);
        // SAFETY: the consumer's pointer.
        unsafe { created(&*adapter, (completion, context), out, make) }
    };
    // SAFETY: the consumer's pointers.
    unsafe { on(adapter, run) }
}

unsafe extern "C" fn create_pd(
    adapter: *mut Object,
    completion: CreateCompletion,
    context: *mut c_void,
    out: *mut *mut Object,
) -> i32 {
    // SAFETY: the consumer's pointers.
    unsafe {
        on(adapter, |adapter: Arc<Adapter>| {
            created(&*adapter, (completion, context), out, || adapter.create_pd())
        })
    }
}

unsafe extern "C" fn create_connector(
    adapter: *mut Object,
    completion: CreateCompletion,
    context: *mut c_void,
    out: *mut *mut Object,
) -> i32 {
    // SAFETY: the consumer's pointers.
    unsafe {
        on(adapter, |adapter: Arc<Adapter>| {
            created(&*adapter, (completion, context), out, || adapter.create_connector())
        })
    }
}

unsafe extern "C" fn create_listener(
    adapter: *mut Object,
    event: ConnectEvent,
    event_context: *mut c_void,
    completion: CreateCompletion,
    context: *mut c_void,
    out: *mut *mut Object,
) -> i32 {
    let run = |adapter: Arc<Adapter>| {
        let Some(event) = event else { return Status::INVALID_PARAMETER };
        let (theirs, version) = (Context::new(event_context), adapter.version);
        let event: objects::ConnectEvent = Box::new(move |connector: Arc<_>| {
            // SAFETY: the consumer's function; the new handle is the consumer's to close.
            unsafe { event(theirs.pointer(), new(version, connector)) };
        });
        let make = || adapter.create_listener(event);
        // SAFETY: the consumer's pointer.
        unsafe { created(&*adapter, (completion, context), out, make) }
    };
    // SAFETY: the consumer's pointers.
    unsafe { on(adapter, run) }
}

unsafe extern "C" fn create_shared_endpoint(
    adapter: *mut Object,
    address: *const c_void,
    length: u32,
    completion: CreateCompletion,
    context: *mut c_void,
    out: *mut *mut Object,
) -> i32 {
    let run = |(adapter, address): (Arc<Adapter>, SocketAddr)| {
        let make = || adapter.create_shared_endpoint(address);
        // SAFETY: the consumer's pointer.
        unsafe { created(&*adapter, (completion, context), out, make) }
    };
    // SAFETY: the consumer's pointers.
    unsafe { on((adapter, (address, length)), run) }
}

/// Where a mapping of `pages` pages is handed out, if there is room for it (NDK LAM-2, LAM-3).
///
/// # Safety
/// `lam` is NULL or has `*size` writable bytes; `size` and `fbo` are NULL or may be written.
unsafe fn room_for(
    lam: *mut LogicalAddressMapping,
    size: *mut u32,
    fbo: *mut u32,
    pages: usize,
) -> Result<Give, Status> {
    const ARRAY: usize = offset_of!(LogicalAddressMapping, adapter_page_array);
    // SAFETY: this function's contract.
    let (Some(size), false) = (unsafe { size.as_mut() }, fbo.is_null()) else {
        return Err(Status::INVALID_PARAMETER);
    };
    let needed = ARRAY + pages * size_of::<i64>();
    let needed = u32::try_from(needed).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
    let capacity = std::mem::replace(size, needed);
    if lam.is_null() || capacity < needed {
        return Err(Status::BUFFER_TOO_SMALL);
    }
    let (lam, fbo) = (Context::new(lam.cast()), Context::new(fbo.cast()));
    Ok(Box::new(move |mapping| {
        let (lam, fbo) = (lam.pointer().cast::<LogicalAddressMapping>(), fbo.pointer());
        // SAFETY: this function's contract, during the call; there is room for every page.
        unsafe {
            fbo.cast::<u32>().write(mapping.offset);
            (&raw mut (*lam).adapter_context)
                .write(std::ptr::without_provenance_mut(mapping.number as usize));
            (&raw mut (*lam).adapter_page_count).write(pages as u32);
            let array = lam.cast::<u8>().add(ARRAY).cast::<i64>();
            for (index, page) in mapping.pages.iter().enumerate().take(pages) {
                array.add(index).write(*page as i64);
            }
        }
    }))
}

unsafe extern "C" fn build_lam(
    adapter: *mut Object,
    mdl: *mut Mdl,
    length: usize,
    completion: RequestCompletion,
    context: *mut c_void,
    lam: *mut LogicalAddressMapping,
    size: *mut u32,
    fbo: *mut u32,
) -> i32 {
    // SAFETY: the consumer's pointers. The chain is read inside this call only; the consumer has
    // pinned the pages, and keeps them until it releases the mapping (NDK LAM-8).
    unsafe {
        on(adapter, |adapter: Arc<Adapter>| {
            let done = completion.is_some().then(|| request_done(completion, context));
            let give = |pages| room_for(lam, size, fbo, pages);
            adapter.build_lam(Chain::new(mdl), length as u64, give, done)
        })
    }
}

unsafe extern "C" fn release_lam(adapter: *mut Object, lam: *mut LogicalAddressMapping) {
    // SAFETY: the consumer's pointers.
    unsafe {
        with_or((), adapter, |adapter: Arc<Adapter>| {
            if let Some(lam) = lam.as_ref() {
                adapter.release_lam(lam.adapter_context.addr() as u64);
            }
        });
    }
}
