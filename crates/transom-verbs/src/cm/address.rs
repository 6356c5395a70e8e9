//! Addresses and ports of ids, and the way to a peer.

use std::net::SocketAddr;
use std::sync::Arc;

use transom_engine::raw;

use super::port::{self, Port, Space, Wish};
use super::{Claim, DatagramPort, Id, Inner, State};
use crate::abi::{cm_event, event};
use crate::errno::{Errno, Result};
use crate::resolution::{self, Datagrams};
use crate::{explain, gid};

impl Id {
    /// Take an address and a port (0: any) of this host.
    pub(crate) fn bind(self: &Arc<Id>, address: SocketAddr) -> Result {
        let mut inner = self.lock();
        if inner.state != State::Idle {
            return Err(explain::invalid(|| "rdma_bind_addr: the id has an address".to_owned()));
        }
        let claim = inner.claim;
        self.take_port(&mut inner, address, claim).map_err(|error| match error {
            Errno::EADDRINUSE => explain::refused(error, || {
                format!("rdma_bind_addr: another id of this host has port {} there", address.port())
            }),
            Errno::EACCES => explain::refused(error, || {
                format!("rdma_bind_addr: port {} takes CAP_NET_BIND_SERVICE", address.port())
            }),
            Errno::EADDRNOTAVAIL if port::is_here(self.context(), address.ip()) => {
                explain::refused(error, || {
                    format!(
                        "rdma_bind_addr: another id of this host has port {} at every address, or at one of those \
                         that are asked for",
                        address.port()
                    )
                })
            }
            Errno::EADDRNOTAVAIL => explain::refused(error, || {
                format!("rdma_bind_addr: {} is no address of this host", address.ip())
            }),
            error => error,
        })?;
        inner.state = State::Bound;
        Ok(())
    }

    pub(super) fn take_port(
        self: &Arc<Id>,
        inner: &mut Inner,
        mut address: SocketAddr,
        claim: Claim,
    ) -> Result {
        if gid::needs_interface(address) {
            return Err(explain::invalid(|| {
                format!("{address} is local to a link: its sin6_scope_id has to say which")
            }));
        }
        self.choose_device(address.ip());
        let one_family = port::takes_one_family(address, inner.one_family);
        let number = if let Some(part) = &mut inner.datagrams {
            let wish = Wish { space: Space::Udp, address, one_family, claim };
            let port = DatagramPort::take(self.context(), wish, resolution::sink(self))?;
            let number = port.port.address()?.port();
            part.give(port);
            number
        } else {
            let wish = Wish { space: Space::Tcp, address, one_family, claim };
            let port = Port::take(self.context(), wish)?;
            let number = port.number();
            inner.port = Some(port);
            number
        };
        address.set_port(number);
        inner.local = Some(address);
        Ok(())
    }

    /// RDMA_OPTION_ID_REUSEADDR.
    pub(crate) fn share_port(&self, shared: bool) -> Result {
        let mut inner = self.lock();
        if inner.state == State::Listening && shared || inner.state != State::Idle && !shared {
            return Err(Errno::EINVAL);
        }
        inner.claim = if shared { Claim::Shared } else { Claim::Alone };
        Ok(())
    }

    /// RDMA_OPTION_ID_AFONLY.
    pub(crate) fn take_one_family(&self, one: bool) -> Result {
        let mut inner = self.lock();
        if !matches!(inner.state, State::Idle | State::Bound) {
            return Err(Errno::EINVAL);
        }
        inner.one_family = one;
        Ok(())
    }

    /// RDMA_OPTION_ID_ACK_TIMEOUT, of reliable connections.
    pub(crate) fn set_ack_timeout(&self, timeout: u8) -> Result {
        let mut inner = self.lock();
        if inner.datagrams.is_some() {
            return Err(Errno::EINVAL);
        }
        inner.ack_timeout = timeout.min(31);
        Ok(())
    }

    /// Choose the way to a peer: ADDR_RESOLVED or ADDR_ERROR. `show` writes what was found where the program sees
    /// it, before another thread can fetch the event.
    pub(crate) fn resolve_address(
        self: &Arc<Id>,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        show: impl FnOnce(),
    ) -> Result {
        let mut inner = self.lock();
        if !matches!(inner.state, State::Idle | State::Bound) {
            return Err(Errno::EINVAL);
        }
        // The address that the id has, also the wildcard, is of the peer's family (Verbs V114).
        if inner.local.or(source).is_some_and(|own| own.is_ipv4() != peer.is_ipv4()) {
            return Err(Errno::EINVAL);
        }
        let bound = inner.local.filter(|local| !local.ip().is_unspecified());
        let chosen = match source.filter(|s| !s.ip().is_unspecified()).or(bound) {
            Some(source) => Ok(source),
            // An address that is local to a link is reached from the same link.
            None => {
                raw::Adapter::route_to(peer).map(|ip| gid::socket_address(ip, 0, gid::scope(peer)))
            }
        };
        let taken = chosen.map_err(Errno::from).and_then(|chosen| {
            let bound = inner.datagrams.as_ref().is_some_and(Datagrams::is_bound);
            if inner.port.is_none() && !bound {
                // A port of the system's choice is of no interest to others.
                let claim = if chosen.port() == 0 { Claim::Nothing } else { inner.claim };
                return self.take_port(&mut inner, chosen, claim);
            }
            let mut local = chosen;
            local.set_port(inner.local.map_or(0, |local| local.port()));
            inner.local = Some(local);
            Ok(())
        });
        match taken {
            Ok(()) => {
                inner.peer = Some(peer);
                inner.state = State::AddressResolved;
                drop(inner);
                show();
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

    /// The program says that its queue pair has heard from the peer, maybe before the id knows.
    pub(crate) fn notify(&self, what: u32) -> Result {
        match self.lock().state {
            _ if what != event::COMM_EST => Err(Errno::EINVAL),
            State::Accepting => Ok(()),
            State::Established => Err(Errno::EISCONN),
            _ => Err(Errno::EINVAL),
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
