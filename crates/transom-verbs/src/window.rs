//! Memory windows (Verbs V47 to V51).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use transom_engine::Operation;
use transom_memory::{Memory, Token};

use crate::abi::access;
use crate::errno::{Errno, Result};
use crate::memory::{Domain, Region, remote_rights};

/// A memory window. The engine has its index, under which each Bind opens a key.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) domain: Arc<Domain>,
    pub(crate) handle: u32,
    /// Of type 1: open to every queue pair of the domain, and bound by `ibv_bind_mw`.
    pub(crate) wide: bool,
    index: Token,
    /// The key's low byte in the next Bind of a window of type 1.
    next: AtomicU32,
}

/// The part of a region that a Bind opens, as the program asks for it.
pub(crate) struct Part<'a> {
    /// None closes a window of type 1, with a length of 0.
    pub(crate) region: Option<&'a Region>,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) access: u32,
}

impl Window {
    pub(crate) fn new(domain: &Arc<Domain>, wide: bool) -> Result<Window> {
        let context = &domain.context;
        context.counters.windows.take()?;
        let index = context.adapter.reserve_standing(domain.domain).inspect_err(|_| {
            context.counters.windows.give_back();
        })?;
        domain.join();
        let (handle, next) = (context.handle(), AtomicU32::new(index.0.wrapping_add(1)));
        Ok(Window { domain: domain.clone(), handle, wide, index, next })
    }

    /// The key before the first Bind, which grants nothing.
    pub(crate) fn first_key(&self) -> u32 {
        self.index.0
    }

    /// A key that the next Bind of a window of type 1 has, unlike the one before.
    pub(crate) fn draw_key(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The request that binds it under the low byte of `key`, and the whole key.
    ///
    /// # Errors
    /// `EINVAL` for rights that no window has, and for a region of another device.
    pub(crate) fn bind(&self, key: u32, part: &Part<'_>) -> Result<(Operation, u32)> {
        // LOCAL_WRITE says nothing of a window, and programs pass it with the remote rights.
        const KNOWN: u32 = access::LOCAL_WRITE
            | access::REMOTE_WRITE
            | access::REMOTE_READ
            | access::REMOTE_ATOMIC
            | access::ZERO_BASED;
        let context = &self.domain.context;
        let foreign = |region: &Region| !Arc::ptr_eq(&region.domain.context, context);
        if part.access & !KNOWN != 0 || part.region.is_some_and(foreign) {
            return Err(Errno::EINVAL);
        }
        let [.., low] = key.to_be_bytes();
        let key = Memory::with_key(self.index, low);
        let operation = Operation::BindStanding {
            key,
            region: part.region.map_or(Token(0), |region| region.token),
            base: part.address,
            length: part.length,
            rights: remote_rights(part.access),
            zero_based: part.access & access::ZERO_BASED != 0,
            wide: self.wide,
        };
        Ok((operation, key.0))
    }
}

impl Drop for Window {
    /// Closes it first, if it is bound (Verbs V51).
    fn drop(&mut self) {
        let context = &self.domain.context;
        context.adapter.release_standing(self.domain.domain, self.index);
        context.counters.windows.give_back();
        self.domain.leave();
    }
}
