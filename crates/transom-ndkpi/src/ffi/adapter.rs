//! `NDK_ADAPTER_DISPATCH`, and the two functions in the place of the miniport's.
#![allow(non_snake_case, reason = "exported names")]

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use super::handle::{Kind, free, get, new};
use super::{Context, address, created, entry, entry_or, query_extension};
use crate::deliver::Mode;
use crate::dispatch::{
    AdapterDispatch, ConnectEvent, CqNotification, CreateCompletion, RequestCompletion,
};
use crate::mdl::Mdl;
use crate::objects::{Adapter, Options};
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

impl Kind for Adapter {
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
    entry(|| {
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
        // SAFETY: this function's contract.
        let opened = unsafe { address::read(address, address_length) }
            .and_then(|address| Adapter::open(version, address, chosen));
        match opened {
            Ok(adapter) => {
                *out = new(adapter.version, adapter);
                Status::SUCCESS
            }
            Err(status) => status,
        }
    })
}

/// Close an adapter: waits until all its objects are closed and every callback has returned.
///
/// # Safety
/// `adapter` came from [`NdkOpenAdapter`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn NdkCloseAdapter(adapter: *mut Object) {
    entry_or((), || {
        // SAFETY: this function's contract.
        if let Some(inner) = unsafe { get::<Adapter>(adapter) } {
            inner.close();
            // SAFETY: the consumer has given it up.
            unsafe { free::<Adapter>(adapter) };
        }
    });
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
    entry_or(0, || {
        // SAFETY: this function's contract.
        let adapter = unsafe { get::<Adapter>(adapter) };
        let Some(sentence) = adapter.and_then(|adapter| adapter.explain(code)) else { return 0 };
        if !text.is_null() && capacity > 0 {
            let length = sentence.len().min(capacity - 1);
            // SAFETY: `length + 1` bytes fit.
            unsafe {
                std::ptr::copy_nonoverlapping(sentence.as_ptr().cast(), text, length);
                text.add(length).write(0);
            }
        }
        sentence.len()
    })
}

unsafe extern "C" fn query_adapter_info(
    adapter: *mut Object,
    info: *mut AdapterInfo,
    size: *mut u32,
) -> i32 {
    entry(|| {
        // SAFETY: the consumer's pointers, as the interface has them.
        let (Some(adapter), Some(size)) = (unsafe { (get::<Adapter>(adapter), size.as_mut()) })
        else {
            return Status::INVALID_PARAMETER;
        };
        let needed = size_of::<AdapterInfo>() as u32;
        let capacity = std::mem::replace(size, needed);
        if info.is_null() || capacity < needed {
            return Status::BUFFER_TOO_SMALL;
        }
        // SAFETY: there is room for it.
        unsafe { info.write(adapter.info()) };
        Status::SUCCESS
    })
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
    entry(|| {
        // SAFETY: the consumer's pointer.
        let Some(adapter) = (unsafe { get::<Adapter>(adapter) }) else {
            return Status::INVALID_PARAMETER;
        };
        let theirs = Context::new(notification_context);
        let notification = notification.map(|callback| -> objects::CqNotification {
            Box::new(move |status| {
                // SAFETY: the consumer's function with the consumer's context.
                unsafe { callback(theirs.pointer(), status.0) };
            })
        });
        let make = || adapter.create_cq(depth, notification);
        let (deliverer, life) = (&adapter.deliverer, &adapter.life);
        // SAFETY: the consumer's pointer.
        unsafe { created(deliverer, life, adapter.version, (completion, context), out, make) }
    })
}

unsafe extern "C" fn create_pd(
    adapter: *mut Object,
    completion: CreateCompletion,
    context: *mut c_void,
    out: *mut *mut Object,
) -> i32 {
    entry(|| {
        // SAFETY: the consumer's pointer.
        let Some(adapter) = (unsafe { get::<Adapter>(adapter) }) else {
            return Status::INVALID_PARAMETER;
        };
        let make = || adapter.create_pd();
        let (deliverer, life) = (&adapter.deliverer, &adapter.life);
        // SAFETY: the consumer's pointer.
        unsafe { created(deliverer, life, adapter.version, (completion, context), out, make) }
    })
}

unsafe extern "C" fn create_connector(
    adapter: *mut Object,
    completion: CreateCompletion,
    context: *mut c_void,
    out: *mut *mut Object,
) -> i32 {
    entry(|| {
        // SAFETY: the consumer's pointer.
        let Some(adapter) = (unsafe { get::<Adapter>(adapter) }) else {
            return Status::INVALID_PARAMETER;
        };
        let make = || adapter.create_connector();
        let (deliverer, life) = (&adapter.deliverer, &adapter.life);
        // SAFETY: the consumer's pointer.
        unsafe { created(deliverer, life, adapter.version, (completion, context), out, make) }
    })
}

unsafe extern "C" fn create_listener(
    adapter: *mut Object,
    event: ConnectEvent,
    event_context: *mut c_void,
    completion: CreateCompletion,
    context: *mut c_void,
    out: *mut *mut Object,
) -> i32 {
    entry(|| {
        // SAFETY: the consumer's pointer.
        let Some(adapter) = (unsafe { get::<Adapter>(adapter) }) else {
            return Status::INVALID_PARAMETER;
        };
        let Some(event) = event else { return Status::INVALID_PARAMETER };
        let (theirs, version) = (Context::new(event_context), adapter.version);
        let event: objects::ConnectEvent = Box::new(move |connector: Arc<_>| {
            // SAFETY: the consumer's function; the new handle is the consumer's to close.
            unsafe { event(theirs.pointer(), new(version, connector)) };
        });
        let make = || adapter.create_listener(event);
        let (deliverer, life) = (&adapter.deliverer, &adapter.life);
        // SAFETY: the consumer's pointer.
        unsafe { created(deliverer, life, version, (completion, context), out, make) }
    })
}

unsafe extern "C" fn create_shared_endpoint(
    _adapter: *mut Object,
    _address: *const c_void,
    _length: u32,
    _completion: CreateCompletion,
    _context: *mut c_void,
    _out: *mut *mut Object,
) -> i32 {
    Status::NOT_SUPPORTED.0
}

unsafe extern "C" fn build_lam(
    _adapter: *mut Object,
    _mdl: *mut Mdl,
    _length: usize,
    _completion: RequestCompletion,
    _context: *mut c_void,
    _lam: *mut LogicalAddressMapping,
    _size: *mut u32,
    _fbo: *mut u32,
) -> i32 {
    Status::NOT_SUPPORTED.0
}

unsafe extern "C" fn release_lam(_adapter: *mut Object, _lam: *mut LogicalAddressMapping) {}
