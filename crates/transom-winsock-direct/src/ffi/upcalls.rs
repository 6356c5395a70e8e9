//! The switch's table of upcalls as a [`Switch`].

use std::ffi::c_void;

use crate::abi::INVALID_SOCKET;
use crate::error::{Error, Result};
use crate::switch::Switch;
use crate::tables::UpcallTableEx;

/// The upcalls that the switch handed over at start.
pub(super) struct Table {
    pub(super) table: UpcallTableEx,
    pub(super) catalog_entry: u32,
}

fn event(event: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(event)
}

impl Switch for Table {
    fn create_socket_handle(&self, context: usize) -> Result<usize> {
        let create = self.table.create_socket_handle.ok_or(Error::WSAENETDOWN)?;
        let mut errno = 0;
        // SAFETY: the switch's function.
        let handle = unsafe { create(self.catalog_entry, context, &mut errno) };
        if handle == INVALID_SOCKET { Err(Error(errno)) } else { Ok(handle) }
    }
    fn close_socket_handle(&self, handle: usize) {
        if let Some(close) = self.table.close_socket_handle {
            // SAFETY: the switch's function with the switch's handle.
            unsafe { close(handle, &mut 0) };
        }
    }
    fn complete(&self, handle: usize, overlapped: usize, error: i32, bytes: u32) {
        if let Some(complete) = self.table.complete_overlapped_request {
            let overlapped = std::ptr::with_exposed_provenance_mut(overlapped);
            // SAFETY: the switch's function with the switch's handle and structure.
            unsafe { complete(handle, overlapped, error as u32, bytes, &mut 0) };
        }
    }
    fn set_event(&self, which: usize) {
        if let Some(set) = self.table.set_event {
            // SAFETY: the switch's function with the switch's event.
            unsafe { set(event(which), &mut 0) };
        }
    }
    fn reset_event(&self, which: usize) {
        if let Some(reset) = self.table.reset_event {
            // SAFETY: the switch's function with the switch's event.
            unsafe { reset(event(which), &mut 0) };
        }
    }
}
