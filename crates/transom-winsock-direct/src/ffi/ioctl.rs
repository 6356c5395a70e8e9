//! `WSPIoctl`: the extension functions and the addresses (WSD 2.4, 13), and codes of Transom's own: what
//! is offered, what a refusal was, and the names of registrations.

use std::ffi::{CStr, c_void};

use super::{address, call, data, memory};
use crate::abi::{
    Guid, Overlapped, RegistrationName, SIO_ADDRESS_LIST_QUERY, SIO_GET_EXTENSION_FUNCTION_POINTER,
    SIO_TRANSOM_EXPLAIN, SIO_TRANSOM_NAME, SIO_TRANSOM_OFFER,
};
use crate::descriptor::Descriptor;
use crate::error::{Error, Result};
use crate::extension::{Extension, Offers, find};
use crate::memory::{Handle, Registration};
use crate::provider::Provider;
use crate::tables::Routine;

fn function(extension: Extension) -> *const c_void {
    match extension {
        Extension::RegisterMemory => memory::register_memory as *const c_void,
        Extension::DeregisterMemory => memory::deregister_memory as *const c_void,
        Extension::RegisterRdmaMemory => memory::register_rdma_memory as *const c_void,
        Extension::DeregisterRdmaMemory => memory::deregister_rdma_memory as *const c_void,
        Extension::RdmaWrite => data::rdma_write as *const c_void,
        Extension::RdmaRead => data::rdma_read as *const c_void,
        Extension::MemoryRegistrationCacheCallback => memory::cache_callback as *const c_void,
    }
}

/// Only an explanation is of a socket: the rest may be asked without one (WSD 2.4).
pub(super) unsafe extern "C" fn ioctl(
    s: usize,
    code: u32,
    input: *const c_void,
    input_length: u32,
    out: *mut c_void,
    out_length: u32,
    returned: *mut u32,
    _overlapped: *mut Overlapped,
    _routine: Routine,
    _thread: *mut c_void,
    errno: *mut i32,
) -> i32 {
    // SAFETY: the switch's pointers, with as many bytes as it says.
    unsafe {
        call(errno, |provider| {
            let returned = returned.as_mut().ok_or(Error::WSAEFAULT)?;
            match code {
                SIO_GET_EXTENSION_FUNCTION_POINTER => {
                    if input.is_null() || (input_length as usize) < size_of::<Guid>() {
                        return Err(Error::WSAEFAULT);
                    }
                    let guid = input.cast::<Guid>().read_unaligned();
                    let found = find(&guid, provider.offers())?;
                    if out.is_null() || (out_length as usize) < size_of::<usize>() {
                        return Err(Error::WSAEFAULT);
                    }
                    out.cast::<*const c_void>().write_unaligned(function(found));
                    *returned = size_of::<usize>() as u32;
                    Ok(())
                }
                SIO_ADDRESS_LIST_QUERY => {
                    let all = provider.addresses();
                    let (needed, written) =
                        address::put_list(&all, out.cast(), out_length as usize);
                    *returned = u32::try_from(needed).unwrap_or(u32::MAX);
                    if written { Ok(()) } else { Err(Error::WSAEFAULT) }
                }
                SIO_TRANSOM_OFFER => {
                    if input.is_null() || (input_length as usize) < size_of::<u32>() {
                        return Err(Error::WSAEFAULT);
                    }
                    let offers = Offers::from_bits(input.cast::<u32>().read_unaligned())?;
                    provider.offer(offers);
                    *returned = 0;
                    Ok(())
                }
                SIO_TRANSOM_EXPLAIN => {
                    let text = provider.explain(s)?.unwrap_or_default();
                    let needed = text.len() + 1; // with its NUL
                    *returned = u32::try_from(needed).unwrap_or(u32::MAX);
                    if out.is_null() || (out_length as usize) < needed {
                        return Err(Error::WSAEFAULT);
                    }
                    std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast(), text.len());
                    out.cast::<u8>().add(text.len()).write(0);
                    Ok(())
                }
                SIO_TRANSOM_NAME => {
                    if input.is_null() || (input_length as usize) < size_of::<RegistrationName>() {
                        return Err(Error::WSAEFAULT);
                    }
                    let asked = input.cast::<RegistrationName>().read_unaligned();
                    *returned = 0;
                    name(provider, s, &asked)
                }
                _ => Err(Error::WSAEOPNOTSUPP),
            }
        })
    }
}

fn name(provider: &Provider, s: usize, asked: &RegistrationName) -> Result<()> {
    let name = CStr::from_bytes_until_nul(&asked.name).map_err(|_| Error::WSAEINVAL)?;
    let registration = match asked.handle {
        0 => Registration::Remote(Descriptor::decode(&asked.descriptor)?),
        handle => Registration::Local(Handle(handle)),
    };
    provider.name(s, registration, &name.to_string_lossy())
}
