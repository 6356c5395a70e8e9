//! Address handles: where datagrams go.

use std::ffi::c_int;
use std::net::IpAddr;
use std::sync::Arc;

use transom_engine::Destination;
use transom_engine::raw::IpFields;

use crate::abi::*;
use crate::context::Context;
use crate::datagram::{self, To, group, packet};
use crate::entry::shell::{self, OfAddress, OfDomain};
use crate::entry::{number, pointer};
use crate::errno::{Errno, Result};
use crate::gid::{self, Gid};
use crate::kind::kind;
use crate::memory::Domain;

/// An address handle.
#[derive(Debug)]
pub(crate) struct Address {
    domain: Arc<Domain>,
    pub(crate) handle: u32,
    own: IpAddr,
    /// The index of the interface that has it.
    interface: u32,
    peer: IpAddr,
    fields: IpFields,
}

impl Drop for Address {
    fn drop(&mut self) {
        self.domain.context.counters.address_handles.give_back();
        self.domain.leave();
    }
}

/// The entry and the address that attributes name (Verbs V142).
fn ends<'a>(context: &'a Context, attr: &ibv_ah_attr) -> Result<(&'a Gid, IpAddr)> {
    let own = context.gids.get(usize::from(attr.grh.sgid_index)).ok_or(Errno::EINVAL)?;
    if attr.is_global == 0 || attr.port_num != 1 {
        return Err(Errno::EINVAL);
    }
    let named = gid_bytes(attr.grh.dgid);
    Ok((own, group::of(named).unwrap_or_else(|| gid::address_of(named))))
}

/// The destination of a request.
///
/// # Safety
/// Null, or an address handle of the program's.
pub(crate) unsafe fn destination(ah: *mut ibv_ah, queue_pair: u32, key: u32) -> Result<To> {
    if ah.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: this function's contract.
    let Address { domain, own, interface, peer, fields, .. } =
        &unsafe { shell::trust::<OfAddress>(ah) }.body;
    let (own, interface, peer, fields) = (*own, *interface, *peer, *fields);
    let queue_pair = queue_pair & 0xff_ffff;
    let at = datagram::Address { own, interface, peer, fields, queue_pair };
    Ok(Destination { domain: domain.domain.0, key, at })
}

/// # Safety
/// A domain of the program's.
unsafe fn create(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah> {
    // SAFETY: this function's contract.
    let domain = unsafe { shell::look::<OfDomain>(pd)? };
    let context = &domain.body.context;
    let (own, peer) = ends(context, attr)?;
    context.counters.address_handles.take()?;
    domain.body.join();
    let ibv_global_route { traffic_class, hop_limit, .. } = attr.grh;
    let fields = IpFields { traffic_class, hop_limit };
    let body = Address {
        domain: domain.body.clone(),
        handle: context.handle(),
        own: own.address,
        interface: own.interface,
        peer,
        fields,
    };
    let head = ibv_ah { context: domain.context(), pd, handle: body.handle };
    Ok(shell::give::<OfAddress>(head, body))
}

pub(crate) unsafe extern "C" fn ibv_create_ah(
    pd: *mut ibv_pd,
    attr: *mut ibv_ah_attr,
) -> *mut ibv_ah {
    // SAFETY: a domain and a structure of the program's.
    pointer(|| unsafe {
        if !kind().has("address handles") {
            return Err(Errno::EOPNOTSUPP);
        }
        create(pd, attr.as_ref().ok_or(Errno::EINVAL)?)
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    number(|| {
        // SAFETY: a handle of the program's, which it does not use afterwards.
        unsafe {
            shell::look::<OfAddress>(ah)?;
            shell::take::<OfAddress>(ah);
        }
        Ok(())
    })
}

/// The attributes that lead back to the sender of a datagram, whose receive begins at `grh`.
///
/// # Safety
/// A completion, and 40 bytes, of the program's.
unsafe fn back(context: &Context, port: u8, wc: *mut ibv_wc, grh: *mut u8) -> Result<ibv_ah_attr> {
    // SAFETY: this function's contract.
    let wc = unsafe { wc.as_ref() }.ok_or(Errno::EINVAL)?;
    let datagram = wc.wc_flags & wc::GRH != 0;
    if !datagram || grh.is_null() || port != 1 {
        return Err(Errno::EINVAL);
    }
    // SAFETY: as above.
    let (source, destination) = packet::ends(unsafe { &*grh.cast() });
    let index = context.index_of(destination).and_then(|index| u8::try_from(index).ok());
    Ok(ibv_ah_attr {
        grh: ibv_global_route {
            dgid: gid_words(gid::bytes_of(source)),
            sgid_index: index.ok_or(Errno::EINVAL)?,
            hop_limit: 0xff,
            ..ibv_global_route::default()
        },
        sl: wc.sl,
        is_global: 1,
        port_num: port,
        ..ibv_ah_attr::default()
    })
}

pub(crate) unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut u8,
    port: u8,
) -> *mut ibv_ah {
    // SAFETY: objects, a completion and a receive of the program's.
    pointer(|| unsafe {
        let domain = shell::look::<OfDomain>(pd)?;
        create(pd, &back(&domain.body.context, port, wc, grh)?)
    })
}

pub(crate) unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut u8,
    attr: *mut ibv_ah_attr,
) -> c_int {
    number(|| {
        // SAFETY: a context, a completion, a receive and a structure of the program's.
        unsafe {
            let attr = attr.as_mut().ok_or(Errno::EINVAL)?;
            *attr = back(shell::context(context)?, port, wc, grh)?;
        }
        Ok(())
    })
}
