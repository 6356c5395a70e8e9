//! Protection domains and memory regions.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::fs::fstat;
use transom_engine::{Sge, raw};
use transom_memory::{Purpose, Rights, Scope, Segment, Token};

use crate::abi::access;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::sys::Mapping;
use crate::{explain, limits, sys};

/// A protection domain.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) context: Arc<Context>,
    pub(crate) domain: raw::Domain,
    handle: Handle,
    /// Objects that belong to it.
    users: Users,
    /// The domain whose memory its objects reach, if it is a parent domain.
    of: Option<Arc<Domain>>,
    thread: Option<Arc<ThreadDomain>>,
}

/// A thread domain: the program's promise that one thread at a time uses the objects of a parent
/// domain. Their locks cost what they cost without.
#[derive(Debug)]
pub(crate) struct ThreadDomain {
    pub(crate) context: Arc<Context>,
    /// Parent domains that name it.
    pub(crate) users: Users,
}

/// The number by which a program imports an object, until the object has ended.
#[derive(Debug)]
pub(crate) struct Handle {
    number: u32,
    ended: AtomicBool,
}

impl Handle {
    fn new(context: &Context) -> Handle {
        Handle { number: context.handle(), ended: AtomicBool::new(false) }
    }

    /// 0, which no object has, once the object has ended: every structure that stands for it is stale.
    fn get(&self) -> u32 {
        if self.ended.load(Ordering::Acquire) { 0 } else { self.number }
    }

    /// `false`: it had ended.
    fn end(&self) -> bool {
        !self.ended.swap(true, Ordering::AcqRel)
    }
}

/// The number of objects that depend on one: as long as there are any, it is busy (Verbs V35).
#[derive(Debug, Default)]
pub(crate) struct Users(AtomicU32);

impl Users {
    pub(crate) fn join(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// `EBUSY` if there are any.
    pub(crate) fn none(&self) -> Result {
        if self.0.load(Ordering::Relaxed) == 0 { Ok(()) } else { Err(Errno::EBUSY) }
    }
}

impl Domain {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Arc<Domain>> {
        context.counters.domains.take()?;
        let domain = context.adapter.domain().inspect_err(|_| {
            context.counters.domains.give_back();
        })?;
        Ok(Domain::known(context, domain, None, None))
    }

    /// A parent domain: objects that belong to it reach what objects of `of` reach, and both are busy
    /// as long as it is there.
    pub(crate) fn parent(
        context: &Arc<Context>,
        of: &Arc<Domain>,
        thread: Option<&Arc<ThreadDomain>>,
    ) -> Result<Arc<Domain>> {
        let foreign = |its: &Arc<Context>| !Arc::ptr_eq(its, context);
        if foreign(&of.context) || thread.is_some_and(|thread| foreign(&thread.context)) {
            return Err(Errno::EINVAL);
        }
        context.counters.domains.take()?;
        of.join();
        if let Some(thread) = thread {
            thread.users.join();
        }
        Ok(Domain::known(context, of.domain, Some(of.clone()), thread.cloned()))
    }

    fn known(
        context: &Arc<Context>,
        domain: raw::Domain,
        of: Option<Arc<Domain>>,
        thread: Option<Arc<ThreadDomain>>,
    ) -> Arc<Domain> {
        let (context, handle, users) = (context.clone(), Handle::new(context), Users::default());
        let domain = Arc::new(Domain { context, domain, handle, users, of, thread });
        domain.context.domains.add(domain.handle.number, &domain);
        domain
    }

    pub(crate) fn is_parent(&self) -> bool {
        self.of.is_some()
    }

    pub(crate) fn handle(&self) -> u32 {
        self.handle.get()
    }

    pub(crate) fn join(&self) {
        self.users.join();
    }

    pub(crate) fn leave(&self) {
        self.users.leave();
    }

    /// Have the pages of memory there before it is used, as far as its key permits that use; `pages`: also touch them.
    /// `EFAULT` if it does not, or if there is no memory (ibv_advise_mr(3)).
    pub(crate) fn prefetch(&self, of: &Sge, write: bool, pages: bool) -> Result {
        let purpose = if write { Purpose::ReceiveBuffer } else { Purpose::LocalSource };
        let found = self.context.adapter.locate(self.domain, purpose, of);
        let host = found.map_err(|error| {
            explain::refused(Errno::EFAULT, || format!("ibv_advise_mr: {error}"))
        })?;
        if !pages || of.length == 0 {
            return Ok(());
        }
        let length = u64::from(of.length);
        let come = match sys::prefetch(host, length, write) {
            Ok(()) => true,
            // The kernel has no such advice, or the pages may not be read or written.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                raw::check_pages(host, length, write).is_ok()
            }
            Err(_) => false,
        };
        if !come {
            return Err(explain::refused(Errno::EFAULT, || {
                format!("ibv_advise_mr: no such memory at {host:#x} for all of {length} bytes")
            }));
        }
        Ok(())
    }

    /// Deallocate the domain: `EBUSY` while objects belong to it.
    pub(crate) fn end(&self) -> Result {
        self.users.none()?;
        self.ended();
        Ok(())
    }

    fn ended(&self) {
        if !self.handle.end() {
            return;
        }
        self.context.forget(&self.context.domains, self.handle.number);
        self.context.counters.domains.give_back();
        if let Some(of) = &self.of {
            of.leave();
        }
        if let Some(thread) = &self.thread {
            thread.users.leave();
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        self.ended();
    }
}

/// A memory region.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) domain: Arc<Domain>,
    handle: Handle,
    pub(crate) token: Token,
    /// As it was asked for last.
    access: AtomicU32,
    /// The address of the first byte in this process.
    pub(crate) host: u64,
    /// The address of the first byte, as requests name it.
    pub(crate) base: u64,
    /// In bytes. With none, the key grants nothing, and the engine knows nothing of it (Verbs V41).
    pub(crate) length: u64,
    /// Pages that this library has mapped for it (Verbs V171).
    _mapping: Option<Mapping>,
}

/// The rights that access flags ask for.
pub(crate) fn rights(flags: u32) -> Result<Rights> {
    const KNOWN: u32 = access::LOCAL_WRITE
        | access::REMOTE_WRITE
        | access::REMOTE_READ
        | access::REMOTE_ATOMIC
        | access::MW_BIND
        | access::ZERO_BASED
        | access::ON_DEMAND
        | access::HUGETLB
        | access::OPTIONAL_RANGE;
    if flags & !KNOWN != 0 {
        return Err(explain::refused(Errno::EOPNOTSUPP, || {
            format!("ibv_reg_mr: this device has no access flags {:#x}", flags & !KNOWN)
        }));
    }
    let writes = flags & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0;
    if writes && flags & access::LOCAL_WRITE == 0 {
        return Err(explain::invalid(|| {
            "ibv_reg_mr: IBV_ACCESS_REMOTE_WRITE and IBV_ACCESS_REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE, too"
                .to_owned()
        }));
    }
    Ok(Rights::LOCAL_READ
        | remote_rights(flags)
        | pick(flags, access::LOCAL_WRITE, Rights::LOCAL_WRITE)
        | pick(flags, access::MW_BIND, Rights::BIND))
}

/// The remote rights among the flags: also what a queue pair itself may allow (Verbs V93).
pub(crate) fn remote_rights(flags: u32) -> Rights {
    pick(flags, access::REMOTE_WRITE, Rights::REMOTE_WRITE)
        | pick(flags, access::REMOTE_READ, Rights::REMOTE_READ)
        | pick(flags, access::REMOTE_ATOMIC, Rights::REMOTE_ATOMIC)
}

fn pick(flags: u32, bit: u32, right: Rights) -> Rights {
    if flags & bit == 0 { Rights::NONE } else { right }
}

impl Region {
    /// Register memory of the program.
    ///
    /// # Safety
    /// The memory belongs to the program, which leaves it in place until the region has been
    /// deregistered (it may be unmapped); no Rust reference points there.
    #[allow(unsafe_code, reason = "hands the program's promise on")]
    pub(crate) unsafe fn new(
        domain: &Arc<Domain>,
        host: u64,
        length: u64,
        iova: u64,
        flags: u32,
    ) -> Result<Arc<Region>> {
        // SAFETY: this function's contract.
        unsafe { Region::made(domain, (host, length), iova, flags, None) }
    }

    /// Register pages of a descriptor: of a dma-buf, or of other memory that can be mapped (Verbs V171).
    #[allow(unsafe_code, reason = "the mapping is the region's own")]
    pub(crate) fn of_descriptor(
        domain: &Arc<Domain>,
        fd: BorrowedFd<'_>,
        (offset, length): (u64, u64),
        iova: u64,
        flags: u32,
    ) -> Result<Arc<Region>> {
        let about = fstat(fd).map_err(|_| Errno::EOPNOTSUPP)?;
        if length == 0 || !(offset ^ iova).is_multiple_of(Mapping::PAGE) {
            return Err(explain::invalid(|| {
                format!(
                    "ibv_reg_dmabuf_mr: {length} bytes at {offset:#x} as {iova:#x}: there have to be bytes, and both addresses have to lie at the same place of their page"
                )
            }));
        }
        rights(flags)?;
        if flags & access::ON_DEMAND != 0 {
            return Err(explain::invalid(|| {
                "ibv_reg_dmabuf_mr: IBV_ACCESS_ON_DEMAND is not for a descriptor".to_owned()
            }));
        }
        let writes = flags & access::LOCAL_WRITE != 0;
        let mapping = Mapping::of(fd, offset, length, writes).map_err(|error| {
            let memory = error.raw_os_error() == Some(libc::ENOMEM);
            let number = if memory { Errno::ENOMEM } else { Errno::EOPNOTSUPP };
            explain::refused(number, || {
                format!("ibv_reg_dmabuf_mr: the descriptor cannot be mapped: {error}")
            })
        })?;
        let size = u64::try_from(about.st_size).unwrap_or(0);
        if offset.checked_add(length).is_none_or(|end| end > size) {
            return Err(explain::invalid(|| {
                format!(
                    "ibv_reg_dmabuf_mr: {length} bytes at {offset:#x}, and the descriptor has {size} bytes"
                )
            }));
        }
        let host = mapping.address() + offset % Mapping::PAGE;
        // SAFETY: the pages are the mapping's, which lives as long as the region; no reference points there.
        unsafe { Region::made(domain, (host, length), iova, flags, Some(mapping)) }
    }

    /// # Safety
    /// As [`Region::new`], for memory that is not of the mapping.
    #[allow(unsafe_code, reason = "hands the program's promise on")]
    unsafe fn made(
        domain: &Arc<Domain>,
        (host, length): (u64, u64),
        iova: u64,
        flags: u32,
        mapping: Option<Mapping>,
    ) -> Result<Arc<Region>> {
        let rights = rights(flags)?;
        let on_demand = flags & access::ON_DEMAND != 0;
        if on_demand && host == 0 && length == u64::MAX {
            return Err(explain::invalid(|| {
                "ibv_reg_mr: all of the address space at once (IBV_ODP_SUPPORT_IMPLICIT) is not to be had here, because \
                 the tables that say who may touch what lie in it; IBV_ACCESS_ON_DEMAND is there for memory with a \
                 beginning and an end"
                    .to_owned()
            }));
        }
        let wraps = host.checked_add(length).is_none() || iova.checked_add(length).is_none();
        if wraps || length > limits::REGION {
            return Err(explain::invalid(|| {
                format!("ibv_reg_mr: {length} bytes at {host:#x} are more than memory has")
            }));
        }
        if length == 0 && host.is_multiple_of(Mapping::PAGE) {
            return Err(explain::invalid(|| {
                format!(
                    "ibv_reg_mr: no bytes at {host:#x}, the beginning of a page, lie in no page"
                )
            }));
        }
        let context = &domain.context;
        context.counters.regions.take()?;
        let segments = [Segment { host, length }];
        let registered = if length == 0 {
            Ok(Token(0))
        } else if on_demand {
            // Each access finds out by itself which pages are there (Verbs V45).
            let scope = Scope::Domain(domain.domain.0);
            // SAFETY: this function's contract.
            unsafe { context.adapter.register_in(scope, iova, &segments, rights) }
        } else {
            // SAFETY: this function's contract.
            unsafe { context.adapter.register(domain.domain, iova, &segments, rights) }
        };
        let token = registered.map_err(|error| {
            context.counters.regions.give_back();
            explain::refused(Errno::from(error.status), || {
                format!("ibv_reg_mr of {length} bytes at {host:#x}: {error}")
            })
        })?;
        domain.join();
        let (handle, domain, access) =
            (Handle::new(context), domain.clone(), AtomicU32::new(flags));
        let region = Arc::new(Region {
            domain,
            handle,
            token,
            access,
            host,
            base: iova,
            length,
            _mapping: mapping,
        });
        context.regions.add(region.handle.number, &region);
        Ok(region)
    }

    pub(crate) fn handle(&self) -> u32 {
        self.handle.get()
    }

    pub(crate) fn access(&self) -> u32 {
        self.access.load(Ordering::Relaxed)
    }

    /// Give it other rights, under its key (Verbs V44).
    ///
    /// # Safety
    /// As [`Region::new`].
    #[allow(unsafe_code, reason = "hands the program's promise on")]
    pub(crate) unsafe fn set_access(&self, flags: u32) -> Result {
        let rights = rights(flags)?;
        if self.length > 0 {
            let all = [Segment { host: self.host, length: self.length }];
            // Pages are looked at now, or by each access.
            let looked_at = if flags & access::ON_DEMAND == 0 { &all[..] } else { &[] };
            // SAFETY: this function's contract.
            unsafe { self.domain.context.adapter.set_rights(self.token, looked_at, rights) }?;
        }
        self.access.store(flags, Ordering::Relaxed);
        Ok(())
    }

    /// `EBUSY` while a window is bound. When this has returned, no byte moves through it. In a forked
    /// child there is nothing to end (Verbs V146).
    pub(crate) fn deregister(&self) -> Result {
        let adapter = &self.domain.context.adapter;
        if self.length > 0 && !adapter.is_forked() {
            adapter.deregister(self.token)?;
        }
        self.ended();
        Ok(())
    }

    fn ended(&self) {
        if self.handle.end() {
            let context = &self.domain.context;
            context.forget(&context.regions, self.handle.number);
            context.counters.regions.give_back();
            self.domain.leave();
        }
    }

    /// The device is closed: no byte moves through the region afterwards, whatever is bound to it.
    pub(crate) fn close(&self) {
        if self.length > 0 {
            self.domain.context.adapter.close_region(self.token);
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.ended();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v40_what_access_flags_ask_for() {
        assert_eq!(rights(0), Ok(Rights::LOCAL_READ));
        assert_eq!(rights(1), Ok(Rights::LOCAL_READ | Rights::LOCAL_WRITE));
        assert_eq!(rights(4), Ok(Rights::LOCAL_READ | Rights::REMOTE_READ));
        assert_eq!(rights(0x10_0000 | 0x80), Ok(Rights::LOCAL_READ));
        for writes in [2, 8, 10] {
            assert_eq!(rights(writes), Err(Errno::EINVAL));
            assert!(rights(writes | 1).is_ok());
        }
        assert_eq!(rights(0x40), rights(0));
        for refused in [0x100, 0x200, 0x400, 0x4000_0000] {
            assert_eq!(rights(refused | 1), Err(Errno::EOPNOTSUPP));
        }
    }
}
