//! A registration, as the engine has it.

use transom_engine::{Sge, raw};
use transom_memory::{Purpose, Rights, Scope, Segment, Token, Unless};

use crate::abi::mem;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::memory::Key;
use crate::status::{deregistered, memory_error, register_error};

/// A registration: its token, in its adapter's table.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    adapter: raw::Adapter,
    pub(crate) token: Token,
}

#[allow(unsafe_code, reason = "hands the switch's promise on")]
impl Region {
    /// A region that belongs to this connection and dies with it (WSD ). There must be
    /// memory behind all of it, at each registration: pages come and go (WSD ).
    ///
    /// # Safety
    /// As [`raw::Adapter::register_in`], until it is deregistered or closed.
    pub(crate) unsafe fn of_connection(
        connected: &Connection,
        rights: Rights,
        base: u64,
        key: Key,
    ) -> Result<Region> {
        let connection = connected.id().ok_or(Error::WSAENOTCONN)?;
        let write = key.flags & mem::WRITE != 0;
        let (host, length) = (key.address, u64::from(key.length));
        raw::check_pages(host, length, write).map_err(|_| Error::WSAEFAULT)?;
        let adapter = &connected.adapter;
        let scope = Scope::Connection(connected.domain.0, connection);
        let segments = [Segment { host, length }];
        // SAFETY: this function's contract.
        let token = unsafe { adapter.register_in(scope, base, &segments, rights) };
        Ok(Region { adapter: adapter.clone(), token: token.map_err(register_error)? })
    }
}

impl Region {
    /// Whether the memory table permits this use of the region to this connection's own program.
    pub(crate) fn permits(
        &self,
        connected: &Connection,
        purpose: Purpose,
        address: u64,
        length: u32,
    ) -> Result<()> {
        let entry = Sge { token: self.token.0, address, length };
        let judged = connected.queue_pair.probe(connected.id(), purpose, &entry);
        judged.map_err(memory_error)
    }

    /// Whether the region has a byte in this range of the process.
    pub(crate) fn touches(&self, address: u64, length: u64) -> bool {
        self.adapter.touches(self.token, address, length)
    }

    /// A request that uses the region is about to be posted: no deregistration succeeds until
    /// [`Region::release`] (WSD A-18).
    pub(crate) fn hold(&self) -> Result<()> {
        self.adapter.hold(self.token).map_err(memory_error)
    }

    pub(crate) fn release(&self) {
        self.adapter.release(self.token);
    }

    /// WSAEINVAL while requests that use it are posted (WSD 5.7).
    pub(crate) fn deregister(&self) -> Result<()> {
        let unless = Unless { windows: true, posted: true };
        deregistered(self.adapter.deregister_unless(self.token, unless))
    }

    /// WSAEINVAL while a transfer of the peer's uses it, from its first byte to its last (WSD 5.7).
    pub(crate) fn withdraw(&self, connected: &Connection) -> Result<()> {
        deregistered(connected.queue_pair.deregister_unused(self.token))
    }

    /// End the registration, whatever uses it.
    pub(crate) fn close(&self) {
        self.adapter.close_region(self.token);
    }
}

/// A made-up address for a registration that peers may name: far from every real one's value, and
/// far from the end of the address space.
pub(crate) fn made_up_base() -> Result<u64> {
    let seed = raw::random_seed().map_err(|_| Error::WSAENOBUFS)?;
    let word = seed.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    Ok((word & 0x3fff_ffff_ffff_f000) | 0x1000_0000_0000_0000)
}
