//! Multicast groups that ids have joined.

use std::net::IpAddr;
use std::sync::Arc;

use super::{Event, Id};
use crate::abi::cm_event;
use crate::datagram::group;
use crate::errno::{Errno, Result};
use crate::resolution::{self, Service};

/// A multicast group that an id has joined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    pub(crate) group: IpAddr,
    /// The id's queue pair is to be attached to it.
    pub(crate) attaches: bool,
    /// The program's pointer.
    pub(crate) user_context: usize,
}

impl Id {
    /// Join a multicast group. The event brings what an address handle is made of; with it the id's queue
    /// pair is attached (Verbs V136).
    pub(crate) fn join_group(self: &Arc<Id>, joined: Joined) -> Result {
        let local = {
            let mut inner = self.lock();
            let local = inner.local.filter(|_| inner.datagrams.is_some()).ok_or(Errno::EINVAL)?;
            if !inner.groups.insert(joined.group) {
                return Err(Errno::EADDRINUSE);
            }
            local
        };
        let attr = self.address_attributes(local.ip(), joined.group);
        let service = Service { attr, number: group::NUMBER, key: resolution::KEY };
        let event = self.event(cm_event::MULTICAST_JOIN);
        self.push(Event { service: Some(service), joined: Some(joined), ..event });
        Ok(())
    }

    /// Leave a group: `EADDRNOTAVAIL` if the id has not joined it. An event that waits goes.
    pub(crate) fn leave_group(self: &Arc<Id>, group: IpAddr) -> Result {
        let channel = {
            let mut inner = self.lock();
            if !inner.groups.remove(&group) {
                return Err(Errno::EADDRNOTAVAIL);
            }
            inner.channel.clone()
        };
        let about = |event: &Event| {
            Arc::ptr_eq(&event.id, self) && event.joined.is_some_and(|joined| joined.group == group)
        };
        drop(channel.take_back(about));
        Ok(())
    }
}
