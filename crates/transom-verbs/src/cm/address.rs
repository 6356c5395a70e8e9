//! Addresses and ports of ids, and the way to a peer.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use transom_engine::raw;

use super::{Id, Inner, State};
use crate::abi::cm_event;
use crate::errno::{Errno, Result};
use crate::resolution::{self, Datagrams};

impl Id {
    /// Take an address and a port (0: any) of this host.
    pub(crate) fn bind(self: &Arc<Id>, address: SocketAddr) -> Result {
        let mut inner = self.lock();
        if inner.state != State::Idle {
            return Err(Errno::EINVAL);
        }
        self.take_port(&mut inner, address)?;
        inner.state = State::Bound;
        Ok(())
    }

    pub(super) fn take_port(self: &Arc<Id>, inner: &mut Inner, address: SocketAddr) -> Result {
        let adapter = &self.context.adapter;
        let any = address.ip().is_unspecified();
        let both = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port());
        if let Some(part) = &mut inner.datagrams {
            let first = if any && !inner.one_family { both } else { address };
            let taken = resolution::take_port(self, part, first)
                .or_else(|_| resolution::take_port(self, part, address))?;
            inner.local = Some(SocketAddr::new(address.ip(), taken.port()));
            return Ok(());
        }
        let listener = if any && !inner.one_family {
            adapter.listener(both).or_else(|_| adapter.listener(address))?
        } else if inner.one_family {
            adapter.listener_of_one_family(address)?
        } else {
            adapter.listener(address)?
        };
        let port = listener.address()?.port();
        inner.port = Some(Arc::new(listener));
        inner.local = Some(SocketAddr::new(address.ip(), port));
        Ok(())
    }

    /// Choose the way to a peer: ADDR_RESOLVED or ADDR_ERROR.
    pub(crate) fn resolve_address(
        self: &Arc<Id>,
        source: Option<SocketAddr>,
        peer: SocketAddr,
    ) -> Result {
        let mut inner = self.lock();
        if !matches!(inner.state, State::Idle | State::Bound) {
            return Err(Errno::EINVAL);
        }
        let bound = inner.local.filter(|local| !local.ip().is_unspecified());
        let chosen = match source.filter(|s| !s.ip().is_unspecified()).or(bound) {
            Some(source) => Ok(source),
            None => raw::Adapter::route_to(peer).map(|ip| SocketAddr::new(ip, 0)),
        };
        let taken = chosen.map_err(Errno::from).and_then(|chosen| {
            let bound = inner.datagrams.as_ref().is_some_and(Datagrams::is_bound);
            if inner.port.is_none() && !bound {
                return self.take_port(&mut inner, chosen);
            }
            let port = inner.local.map_or(0, |local| local.port());
            inner.local = Some(SocketAddr::new(chosen.ip(), port));
            Ok(())
        });
        match taken {
            Ok(()) => {
                inner.peer = Some(peer);
                inner.state = State::AddressResolved;
                drop(inner);
                self.raise(cm_event::ADDR_RESOLVED, 0, Vec::new());
                Ok(())
            }
            // The addresses that the caller named.
            Err(error) if source.is_some() => Err(error),
            Err(error) => {
                drop(inner);
                self.raise(cm_event::ADDR_ERROR, -error.0, Vec::new());
                Ok(())
            }
        }
    }

    pub(crate) fn resolve_route(self: &Arc<Id>) -> Result {
        let mut inner = self.lock();
        if inner.state != State::AddressResolved {
            return Err(Errno::EINVAL);
        }
        inner.state = State::RouteResolved;
        drop(inner);
        self.raise(cm_event::ROUTE_RESOLVED, 0, Vec::new());
        Ok(())
    }
}
