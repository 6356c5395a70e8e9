//! Protection domains and memory regions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use transom_engine::raw;
use transom_memory::{Rights, Segment, Token};

use crate::abi::access;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::limits;

/// A protection domain.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) context: Arc<Context>,
    pub(crate) domain: raw::Domain,
    pub(crate) handle: u32,
    /// Objects that belong to it.
    users: Users,
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
    pub(crate) fn new(context: &Arc<Context>) -> Result<Domain> {
        context.counters.domains.take()?;
        let domain = context.adapter.domain().inspect_err(|_| {
            context.counters.domains.give_back();
        })?;
        let (context, users) = (context.clone(), Users::default());
        Ok(Domain { handle: context.handle(), context, domain, users })
    }

    pub(crate) fn join(&self) {
        self.users.join();
    }

    pub(crate) fn leave(&self) {
        self.users.leave();
    }

    /// Whether it can be deallocated.
    pub(crate) fn unused(&self) -> Result {
        self.users.none()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        self.context.counters.domains.give_back();
    }
}

/// A memory region.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) domain: Arc<Domain>,
    pub(crate) handle: u32,
    pub(crate) token: Token,
    /// As it was asked for.
    pub(crate) access: u32,
    /// The address of the first byte, as requests name it.
    pub(crate) base: u64,
    /// No bytes: the key grants nothing, and the engine knows nothing of it (Verbs V41).
    empty: bool,
}

/// The rights that access flags ask for.
pub(crate) fn rights(flags: u32) -> Result<Rights> {
    const KNOWN: u32 = access::LOCAL_WRITE
        | access::REMOTE_WRITE
        | access::REMOTE_READ
        | access::REMOTE_ATOMIC
        | access::MW_BIND
        | access::ZERO_BASED
        | access::HUGETLB
        | access::OPTIONAL_RANGE;
    if flags & !KNOWN != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let writes = flags & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0;
    if writes && flags & access::LOCAL_WRITE == 0 {
        return Err(Errno::EINVAL);
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
    ) -> Result<Region> {
        let rights = rights(flags)?;
        let wraps = host.checked_add(length).is_none() || iova.checked_add(length).is_none();
        if wraps || length > limits::REGION {
            return Err(Errno::EINVAL);
        }
        let context = &domain.context;
        context.counters.regions.take()?;
        let empty = length == 0;
        let registered = if empty {
            Ok(Token(0))
        } else {
            let segments = [Segment { host, length }];
            // SAFETY: this function's contract.
            unsafe { context.adapter.register(domain.domain, iova, &segments, rights) }
        };
        let token = registered.map_err(|error| {
            context.counters.regions.give_back();
            Errno::from(error)
        })?;
        if !empty {
            context.add_region(token.0);
        }
        domain.join();
        let (handle, domain) = (context.handle(), domain.clone());
        Ok(Region { domain, handle, token, access: flags, base: iova, empty })
    }

    /// Give it other rights, under its key (Verbs V44).
    ///
    /// # Safety
    /// As [`Region::new`], with the same memory.
    #[allow(unsafe_code, reason = "hands the program's promise on")]
    pub(crate) unsafe fn set_access(&mut self, host: u64, length: u64, flags: u32) -> Result {
        let rights = rights(flags)?;
        if !self.empty {
            let segments = [Segment { host, length }];
            // SAFETY: this function's contract.
            unsafe { self.domain.context.adapter.set_rights(self.token, &segments, rights) }?;
        }
        self.access = flags;
        Ok(())
    }

    /// `EBUSY` while a window is bound. When this has returned, no byte moves through it. In a forked
    /// child there is nothing to end (Verbs V146).
    pub(crate) fn deregister(&self) -> Result {
        if self.empty || self.domain.context.adapter.is_forked() {
            return Ok(());
        }
        self.domain.context.adapter.deregister(self.token)?;
        self.domain.context.remove_region(self.token.0);
        Ok(())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.domain.context.counters.regions.give_back();
        self.domain.leave();
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
        for refused in [0x40, 0x100, 0x200, 0x400, 0x4000_0000] {
            assert_eq!(rights(refused | 1), Err(Errno::EOPNOTSUPP));
        }
    }
}
