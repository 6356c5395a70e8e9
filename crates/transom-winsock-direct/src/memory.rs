//! Registrations of one socket (WSD 5.1 to 5.5, 10).
//!
//! Each registration has a token of its own, valid for this connection only, so reference counts,
//! scopes and rights need no rule here: the memory table has them.

use std::collections::HashMap;

use transom_memory::{Purpose, Rights, Token};

use crate::abi::mem;
use crate::connection::Connection;
use crate::descriptor::Descriptor;
use crate::error::{Error, Result};
use crate::region::Region;

/// A handle that `WSPRegisterMemory` returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub usize);

/// A registration, as the switch names it.
#[derive(Clone, Copy, Debug)]
pub enum Registration {
    /// By the handle that `WSPRegisterMemory` returned.
    Local(Handle),
    /// By the descriptor that `WSPRegisterRdmaMemory` returned.
    Remote(Descriptor),
}

/// A buffer, and what it is registered for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) flags: u32,
}

/// The registrations of one connection.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    local: HashMap<Handle, (Region, Key)>,
    /// The order in which ranges are looked up: the one found last comes first.
    order: Vec<Handle>,
    remote: HashMap<Descriptor, Region>,
}

/// Which of the two functions registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    Local,
    Remote,
}

impl MemoryKind {
    /// Flags are exactly 1, 2 or 3 (WSD 5.1). Memory for the peer is not for local requests, and
    /// the other way round (WSD ).
    pub(crate) fn rights(self, flags: u32) -> Result<Rights> {
        let (read, write) = match self {
            MemoryKind::Local => (Rights::LOCAL_READ, Rights::LOCAL_WRITE),
            MemoryKind::Remote => (Rights::REMOTE_READ, Rights::REMOTE_WRITE),
        };
        match flags {
            mem::READ => Ok(read),
            mem::WRITE => Ok(write),
            mem::READWRITE => Ok(read | write),
            _ => Err(Error::WSAEINVAL),
        }
    }
}

#[allow(unsafe_code, reason = "hands the switch's promise on")]
impl Registrations {
    /// # Safety
    /// As [`Region::of_connection`].
    pub(crate) unsafe fn register_local(
        &mut self,
        connection: &Connection,
        handle: Handle,
        key: Key,
    ) -> Result<()> {
        let rights = MemoryKind::Local.rights(key.flags)?;
        // SAFETY: this function's contract.
        let region = unsafe { Region::of_connection(connection, rights, key.address, key) }?;
        self.local.insert(handle, (region, key));
        self.order.push(handle);
        Ok(())
    }

    /// `base` is the made-up address of the first byte (WSD A-15).
    ///
    /// # Safety
    /// As [`Region::of_connection`].
    pub(crate) unsafe fn register_remote(
        &mut self,
        connection: &Connection,
        base: u64,
        key: Key,
    ) -> Result<Descriptor> {
        let rights = MemoryKind::Remote.rights(key.flags)?;
        // SAFETY: this function's contract.
        let region = unsafe { Region::of_connection(connection, rights, base, key) }?;
        let descriptor = Descriptor { token: region.token.0, base };
        self.remote.insert(descriptor, region);
        Ok(descriptor)
    }

    /// Another connection takes the place of this one: what is registered for local use is
    /// registered there, under the same handles; what the peer was shown ends (WSD 12.1 step 3). A
    /// buffer whose pages have gone keeps its handle, and is good for nothing but its
    /// deregistration.
    pub(crate) fn move_to(&mut self, connection: &Connection) {
        self.remote.drain().for_each(|(_, region)| region.close());
        for (region, key) in self.local.values_mut() {
            region.close();
            let Ok(rights) = MemoryKind::Local.rights(key.flags) else { continue };
            // SAFETY: the promise that was made for the handle holds until it is deregistered.
            let moved = unsafe { Region::of_connection(connection, rights, key.address, *key) };
            if let Ok(moved) = moved {
                *region = moved;
            }
        }
    }
}

impl Registrations {
    /// WSAEINVAL: not a registration of this socket (WSD ), or a request uses it (WSD
    ///
    pub(crate) fn deregister_local(&mut self, handle: Handle) -> Result<()> {
        self.local.get(&handle).ok_or(Error::WSAEINVAL)?.0.deregister()?;
        self.local.remove(&handle);
        self.order.retain(|other| *other != handle);
        Ok(())
    }

    /// WSAEINVAL: not a registration of this socket, or a transfer of the peer's uses it (WSD
    ///
    pub(crate) fn deregister_remote(
        &mut self,
        connection: &Connection,
        descriptor: Descriptor,
    ) -> Result<()> {
        self.remote.get(&descriptor).ok_or(Error::WSAEINVAL)?.withdraw(connection)?;
        self.remote.remove(&descriptor);
        Ok(())
    }

    /// The registration that a handle names, if the memory table permits this use of it: else
    /// WSAEFAULT (WSD 5.6).
    pub(crate) fn by_handle(
        &self,
        connected: &Connection,
        handle: Handle,
        purpose: Purpose,
        address: u64,
        length: u32,
    ) -> Result<Region> {
        let (region, _) = self.local.get(&handle).ok_or(Error::WSAEFAULT)?;
        region.permits(connected, purpose, address, length)?;
        Ok(region.clone())
    }

    /// The registration by which the memory table permits this use of a range (WSD M-2). Each
    /// candidate is put to the table; the range is not looked at here. If one of them has died with
    /// the connection, that is the reason, whatever the others lack (WSD X-10).
    pub(crate) fn by_range(
        &mut self,
        connected: &Connection,
        purpose: Purpose,
        address: u64,
        length: u32,
    ) -> Result<Region> {
        let mut why = Error::WSAEFAULT;
        let found = self.order.iter().rposition(|handle| {
            let Some((region, _)) = self.local.get(handle) else { return false };
            let judged = region.permits(connected, purpose, address, length);
            let judged = judged.inspect_err(|error| {
                if why != Error::WSAECONNRESET {
                    why = *error;
                }
            });
            judged.is_ok()
        });
        let found = found.ok_or(why)?;
        let handle = self.order.remove(found);
        self.order.push(handle);
        self.local.get(&handle).map(|(region, _)| region.clone()).ok_or(Error::WSAEFAULT)
    }

    /// The token of a local registration, or of one for the peer.
    pub(crate) fn token(&self, named: Registration) -> Option<Token> {
        match named {
            Registration::Local(handle) => self.local.get(&handle).map(|(region, _)| region.token),
            Registration::Remote(descriptor) => {
                self.remote.get(&descriptor).map(|region| region.token)
            }
        }
    }

    /// Memory goes away under live registrations: they become unusable (WSD 5.5). How many.
    pub(crate) fn revoke_touched(&mut self, address: u64, length: u64) -> usize {
        let all = self.local.values().map(|(region, _)| region).chain(self.remote.values());
        let touched = all.filter(|region| region.touches(address, length));
        touched.map(Region::close).count()
    }

    /// Everything ends: the socket is closed, or handed to another process (WSD ).
    pub(crate) fn end(&mut self) {
        self.local.drain().for_each(|(_, (region, _))| region.close());
        self.remote.drain().for_each(|(_, region)| region.close());
        self.order.clear();
    }

    /// Registrations alive, of either kind.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.local.len(), self.remote.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WSD X-10: of two registrations one went before the connection did. Neither order of looking
    /// for them makes the lost connection a mistake of the switch's.
    #[test]
    #[allow(unsafe_code)]
    fn x10_a_lost_connection_is_the_reason_whatever_else_is_wrong() {
        let adapter = crate::provider::open([127, 0, 0, 1].into()).unwrap();
        let page = Box::new([0u8; 64]);
        let key =
            Key { address: page.as_ptr().expose_provenance() as u64, length: 64, flags: mem::READ };
        let (local, receive) = (Purpose::LocalSource, Purpose::ReceiveBuffer);
        for gone in [0, 1] {
            let connected = Connection::lone(&adapter).unwrap();
            let mut all = Registrations::default();
            for handle in [Handle(0), Handle(1)] {
                // SAFETY: the page outlives the adapter, and no reference to it exists.
                unsafe { all.register_local(&connected, handle, key) }.unwrap();
            }
            all.local[&Handle(gone)].0.close();
            let mut ask = |purpose| {
                all.by_range(&connected, purpose, key.address, 64).map(|region| region.token)
            };
            assert_eq!(ask(receive), Err(Error::WSAEFAULT), "its pages were registered to be read");
            connected.lose();
            assert_eq!(ask(local), Err(Error::WSAECONNRESET));
        }
    }

    /// WSD 5.5, A-23: when a socket's registrations have ended nothing is open through them,
    /// although its connection has not ended yet.
    #[test]
    #[allow(unsafe_code)]
    fn a23_registrations_end_before_their_connection() {
        let adapter = crate::provider::open([127, 0, 0, 1].into()).unwrap();
        let page = Box::new([0u8; 64]);
        let key =
            Key { address: page.as_ptr().expose_provenance() as u64, length: 64, flags: mem::READ };
        let connected = Connection::lone(&adapter).unwrap();
        let mut all = Registrations::default();
        // SAFETY: the page outlives the adapter, and no reference to it exists.
        unsafe { all.register_local(&connected, Handle(0), key) }.unwrap();
        // SAFETY: as above.
        unsafe { all.register_remote(&connected, 0x1000, key) }.unwrap();
        let local = all.local.values().map(|(region, _)| region);
        let regions: Vec<_> = local.chain(all.remote.values()).cloned().collect();
        assert!(regions.iter().all(|region| region.touches(key.address, 64)));
        all.end();
        assert!(!regions.iter().any(|region| region.touches(key.address, 64)));
        assert_eq!((regions.len(), all.count()), (2, (0, 0)));
    }
}
