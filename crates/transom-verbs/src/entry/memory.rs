//! Protection domains and memory regions.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use transom_engine::Sge;
use transom_memory::Token;

use crate::abi::*;
use crate::entry::shell::{self, OfDomain, OfRegion, OfThread};
use crate::entry::{number, pointer, quiet};
use crate::errno::{Errno, Result};
use crate::memory::{Domain, Region, ThreadDomain, Users};

pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    pointer(|| {
        // SAFETY: a context of the program's.
        let body = Domain::new(unsafe { shell::context(context) }?)?;
        Ok(shell::give::<OfDomain>(ibv_pd { context, handle: body.handle() }, body))
    })
}

pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    number(|| {
        // SAFETY: a domain of the program's, which it does not use afterwards.
        unsafe {
            let shell = shell::look::<OfDomain>(pd)?;
            // The program sees the structure, and may have put another context into it.
            if !Arc::ptr_eq(shell::context(shell.context())?, &shell.body.context) {
                return Err(Errno::ENOENT);
            }
            shell.body.end()?;
            shell::take::<OfDomain>(pd);
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    pointer(|| {
        // SAFETY: a context and a structure of the program's.
        let (of, attr) = unsafe { (shell::context(context)?, attr.as_ref()) };
        if attr.ok_or(Errno::EINVAL)?.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        let body = Arc::new(ThreadDomain { context: of.clone(), users: Users::default() });
        Ok(shell::give::<OfThread>(ibv_td { context }, body))
    })
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    number(|| {
        // SAFETY: a thread domain of the program's, which it does not use afterwards.
        unsafe {
            shell::look::<OfThread>(td)?.body.users.none()?;
            shell::take::<OfThread>(td);
        }
        Ok(())
    })
}

/// A parent domain may come with these: functions that allocate, and a context for them.
const ALLOCATORS: u32 = 1;
const PD_CONTEXT: u32 = 2;
/// The program allows buffers in memory that its machine does not protect (confidential computing): a device that
/// needs none, as this one, ignores that, as mlx5 does.
const UNPROTECTED: u32 = 4;

/// A domain of objects with the program's functions for their memory. They are not called: no object of
/// this device has a buffer that a program could place.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    pointer(|| {
        // SAFETY: a context, a structure and objects of the program's.
        let (own, attr) = unsafe { (shell::context(context)?, attr.as_ref()) };
        let attr = attr.ok_or(Errno::EINVAL)?;
        let lacks = attr.alloc.is_null() || attr.free.is_null();
        if attr.comp_mask & !(ALLOCATORS | PD_CONTEXT | UNPROTECTED) != 0
            || (attr.comp_mask & ALLOCATORS != 0 && lacks)
        {
            return Err(Errno::EINVAL);
        }
        // SAFETY: as above.
        let of = &unsafe { shell::look::<OfDomain>(attr.pd) }?.body;
        let thread = match attr.td.is_null() {
            true => None,
            // SAFETY: as above.
            false => Some(&unsafe { shell::look::<OfThread>(attr.td) }?.body),
        };
        let body = Domain::parent(own, of, thread)?;
        Ok(shell::give::<OfDomain>(ibv_pd { context, handle: body.handle() }, body))
    })
}

/// # Safety
/// The program's domain and memory, as for `ibv_reg_mr`.
unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> Result<*mut ibv_mr> {
    // SAFETY: this function's contract.
    let domain = unsafe { shell::look::<OfDomain>(pd) }?;
    let host = addr.expose_provenance() as u64;
    // SAFETY: the memory is the program's, which leaves it in place until it deregisters: that is the
    // contract of `ibv_reg_mr`. If not, its pages may vanish, which the engine's copies survive.
    let body = unsafe { Region::new(&domain.body, host, length as u64, iova, access) }?;
    let head = ibv_mr {
        context: domain.context(),
        pd,
        addr,
        length,
        handle: body.handle(),
        lkey: body.token.0,
        rkey: body.token.0,
    };
    Ok(shell::give::<OfRegion>(head, Mutex::new(body)))
}

/// The address that the first byte has for peers (Verbs V40).
fn base(addr: *mut c_void, iova: u64, access: u32) -> u64 {
    let zero_based = access & access::ZERO_BASED != 0 && iova == addr.addr() as u64;
    if zero_based { 0 } else { iova }
}

/// Transom's own: give the region or window of a key a name, for messages and for `transom show`.
pub(crate) unsafe extern "C" fn transom_name(
    context: *mut ibv_context,
    key: u32,
    name: *const c_char,
) -> c_int {
    number(|| {
        // SAFETY: a context of the program's.
        let context = unsafe { shell::context(context) }?;
        if name.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: a text of the program's, with its final zero byte.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        context.adapter.set_name(Token(key), &name).then_some(()).ok_or(Errno::EINVAL)
    })
}

pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the same contract.
    unsafe { ibv_reg_mr_iova2(pd, addr, length, addr.addr() as u64, access as c_uint) }
}

pub(crate) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the same contract.
    unsafe { ibv_reg_mr_iova2(pd, addr, length, iova, access as c_uint) }
}

pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the contract of `ibv_reg_mr`.
    pointer(|| unsafe { register(pd, addr, length, base(addr, iova, access), access) })
}

/// Memory of a descriptor. The structure has its offset where others have an address.
pub(crate) unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    pointer(|| {
        // A program that asks whether there is such a call names no descriptor.
        if fd < 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        // SAFETY: a domain and a descriptor of the program's, which stays open during the call.
        let (domain, fd) = unsafe { (shell::look::<OfDomain>(pd)?, BorrowedFd::borrow_raw(fd)) };
        let place = (offset, length as u64);
        let body = Region::of_descriptor(&domain.body, fd, place, iova, access as c_uint)?;
        let head = ibv_mr {
            context: domain.context(),
            pd,
            addr: std::ptr::without_provenance_mut(offset as usize),
            length,
            handle: body.handle(),
            lkey: body.token.0,
            rkey: body.token.0,
        };
        Ok(shell::give::<OfRegion>(head, Mutex::new(body)))
    })
}

pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    number(|| {
        // SAFETY: a region of the program's, which it does not use afterwards.
        unsafe {
            shell::region(shell::look::<OfRegion>(mr)?).deregister()?;
            shell::take::<OfRegion>(mr);
        }
        Ok(())
    })
}

/// Another structure for a protection domain of the same device (Verbs V154).
pub(crate) unsafe extern "C" fn ibv_import_pd(
    context: *mut ibv_context,
    handle: u32,
) -> *mut ibv_pd {
    pointer(|| {
        // SAFETY: a context of the program's.
        let known = &unsafe { shell::context(context) }?.domains;
        let body = known.get(handle).ok_or(Errno::ENOENT)?;
        Ok(shell::give::<OfDomain>(ibv_pd { context, handle }, body))
    })
}

/// Another structure for a region of the domain. Its address is null: the program knows it.
pub(crate) unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    pointer(|| {
        // SAFETY: a domain of the program's.
        let domain = unsafe { shell::look::<OfDomain>(pd) }?;
        let found = domain.body.context.regions.get(handle);
        let body = found.filter(|region| Arc::ptr_eq(&region.domain, &domain.body));
        let body = body.ok_or(Errno::ENOENT)?;
        let head = ibv_mr {
            context: domain.context(),
            pd,
            addr: std::ptr::null_mut(),
            length: body.length as usize,
            handle,
            lkey: body.token.0,
            rkey: body.token.0,
        };
        Ok(shell::give::<OfRegion>(head, Mutex::new(body)))
    })
}

/// The structure ends; the domain does not.
pub(crate) unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    if !pd.is_null() {
        quiet(|| {
            // SAFETY: a structure of the program's, which it does not use afterwards.
            drop(unsafe { shell::take::<OfDomain>(pd) });
            Ok(())
        });
    }
}

/// The structure ends; the region does not.
pub(crate) unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    if !mr.is_null() {
        quiet(|| {
            // SAFETY: a structure of the program's, which it does not use afterwards.
            drop(unsafe { shell::take::<OfRegion>(mr) });
            Ok(())
        });
    }
}

/// The advice of `ibv_advise_mr`: to have pages there, to have them there for writing, or only what needs no page.
const PREFETCH: c_int = 0;
const PREFETCH_WRITE: c_int = 1;
const PREFETCH_NO_FAULT: c_int = 2;
/// To be done when the call returns, as all is here.
const FLUSH: u32 = 1;

/// Have pages of regions there before requests reach them.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: c_int,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    number(|| {
        // SAFETY: a domain of the program's.
        let domain = &unsafe { shell::look::<OfDomain>(pd) }?.body;
        if !matches!(advice, PREFETCH | PREFETCH_WRITE | PREFETCH_NO_FAULT) {
            return Err(Errno::EOPNOTSUPP);
        }
        if flags & !FLUSH != 0 || count == 0 || list.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the program's list, of so many entries.
        for entry in unsafe { std::slice::from_raw_parts(list, count as usize) } {
            let of = Sge { token: entry.lkey, address: entry.addr, length: entry.length };
            domain.prefetch(&of, advice == PREFETCH_WRITE, advice != PREFETCH_NO_FAULT)?;
        }
        Ok(())
    })
}

const TRANSLATION: c_int = 1;
const PD: c_int = 2;
const ACCESS: c_int = 4;

/// Answers of `ibv_rereg_mr`: arguments that no registration could have; and a change that was refused.
const ERR_INPUT: c_int = -1;
const ERR_CMD: c_int = -4;

/// A new registration, and the end of the old one, which stays valid if the new one fails (Verbs V44).
pub(crate) unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let mut refusal = ERR_INPUT;
    let done = number(|| {
        // SAFETY: a region and a domain of the program's.
        let shell = unsafe { shell::look::<OfRegion>(mr) }?;
        let incomplete = flags & !(TRANSLATION | PD | ACCESS) != 0
            || flags == 0
            || (flags & TRANSLATION != 0 && (addr.is_null() || length == 0))
            || (flags & PD != 0 && pd.is_null())
            || (flags & ACCESS == 0 && access != 0);
        if incomplete {
            return Err(Errno::EINVAL);
        }
        // Another thread that replaces the region waits.
        let mut body = shell.body.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = body.domain.context.adapter.counts(body.token);
        if counts.is_some_and(|counts| counts.windows > 0) {
            return Err(Errno::EBUSY);
        }
        // SAFETY: the structure is there; its members change under the lock.
        let pd = if flags & PD == 0 { unsafe { (*shell.head()).pd } } else { pd };
        // SAFETY: as above.
        let domain = &unsafe { shell::look::<OfDomain>(pd) }?.body;
        if !Arc::ptr_eq(&domain.context, &body.domain.context) {
            return Err(Errno::EINVAL);
        }
        refusal = ERR_CMD;
        let zero_based = |access: u32| access & access::ZERO_BASED;
        let moves = zero_based(access as u32) != zero_based(body.access());
        if flags == ACCESS && !moves {
            // SAFETY: the contract of `ibv_reg_mr`: the program's memory stays in place.
            return unsafe { body.set_access(access as u32) };
        }
        let access = if flags & ACCESS == 0 { body.access() } else { access as u32 };
        let (addr, length, iova) = match flags & TRANSLATION {
            0 => {
                let host = std::ptr::with_exposed_provenance_mut(body.host as usize);
                (host, body.length as usize, body.base)
            }
            _ => (addr, length, base(addr, addr.addr() as u64, access)),
        };
        // SAFETY: the contract of `ibv_reg_mr`.
        let new = unsafe { register(pd, addr, length, iova, access) }?;
        // SAFETY: made above, and not handed out.
        let (head, new) = unsafe { shell::take::<OfRegion>(new) }.into_parts();
        let new = new.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = body.deregister() {
            new.deregister()?;
            return Err(error);
        }
        *body = new;
        // SAFETY: the structure is there; its members change under the lock.
        unsafe { shell.head().write(head) };
        Ok(())
    });
    if done == 0 { 0 } else { refusal }
}
