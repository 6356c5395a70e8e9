//! Ports of port space TCP (Verbs V112). They are not TCP's: a program may listen at one number with both.
//!
//! A port of an id is a name in the network namespace, so that no other id gets it, and the TCP port of
//! the same number where that is free: peers on other hosts, iWARP adapters among them, find the listener
//! there. Where a TCP socket has the number, the listener has another one, which a second name tells to
//! processes of this host. Any user may take a name, as any user may take a port of TCP or of rdma_cm in the
//! kernel; those below `ip_unprivileged_port_start` are root's, and so are their names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use transom_engine::raw::NamesOf;
use transom_engine::{Status, raw};

use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::explain;

/// Every address of IPv6, and of IPv4.
const ALL: [IpAddr; 2] = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];

/// How an id takes a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// Port 0: any.
    pub(super) address: SocketAddr,
    /// Every address of IPv6 does not stand for every one of IPv4, too.
    pub(super) one_family: bool,
    /// Until it listens, other ids may have it, too, or it is of no interest to them.
    pub(super) shared: bool,
}

/// The port of an id.
#[derive(Debug)]
pub(super) struct Port {
    wish: Wish,
    pub(super) listener: Arc<raw::Listener>,
    names: Vec<raw::LocalName>,
}

fn held(address: SocketAddr) -> String {
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    format!("transom/rdma_cm/{address}")
}

fn told(address: SocketAddr) -> String {
    format!("{}/at", held(address))
}

/// Whether a bind of this port takes a right (Linux, `cma_use_port`, `inet_port_requires_bind_service`).
pub(super) fn takes_rights(port: u16) -> bool {
    let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let first = first.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1024);
    (1..first).contains(&port)
}

/// Whether an id at this address takes its family only: `of_id`, as its program has it (Linux,
/// `rdma_bind_addr_dst`).
pub(super) fn takes_one_family(address: SocketAddr, of_id: bool) -> bool {
    let by_default = || std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only");
    of_id || address.is_ipv4() || by_default().is_ok_and(|text| text.trim() != "0")
}

/// Why a port of this host was not opened: the system tells an address that it does not have and a right that is
/// missing by one status.
pub(super) fn why_not(context: &Context, address: SocketAddr, error: Errno) -> Errno {
    let lacks_right = takes_rights(address.port()) && is_here(context, address.ip());
    if error == Errno::EADDRNOTAVAIL && lacks_right { Errno::EACCES } else { error }
}

/// Whether an address is one of this host's.
pub(super) fn is_here(context: &Context, ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || context.index_of(ip).is_some()
}

fn of_one_family(one: IpAddr, other: IpAddr) -> bool {
    one.is_ipv4() == other.is_ipv4()
}

impl Wish {
    /// Addresses whose names stand for it.
    fn own(self) -> Vec<SocketAddr> {
        let (ip, port) = (self.address.ip(), self.address.port());
        let all = ALL.into_iter().filter(|all| !self.one_family || of_one_family(*all, ip));
        let ips = if ip.is_unspecified() { all.collect() } else { vec![ip] };
        ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
    }

    /// Addresses of others that overlap with it.
    fn others(self) -> Vec<SocketAddr> {
        let (ip, port) = (self.address.ip(), self.address.port());
        let ips: Vec<_> = if ip.is_unspecified() {
            let all = raw::interfaces().unwrap_or_default().into_iter().map(|i| i.address);
            all.filter(|one| !self.one_family || of_one_family(*one, ip)).collect()
        } else {
            ALL.into_iter().filter(|all| of_one_family(*all, ip)).collect()
        };
        ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
    }

    fn whose(self) -> NamesOf {
        if takes_rights(self.address.port()) { NamesOf::OursAndRoot } else { NamesOf::Everyone }
    }

    /// The names. `EADDRINUSE` if another id has the address, `EADDRNOTAVAIL` if one of the two has every address
    /// (Linux, `cma_check_port`).
    fn claim(self, adapter: &raw::Adapter) -> Result<Vec<raw::LocalName>> {
        let (port, whose) = (self.address.port(), self.whose());
        let mut names = Vec::new();
        for own in self.own() {
            let name = adapter.hold_name(&held(own), port, whose).map_err(Errno::from);
            names.push(name.map_err(|error| match error {
                Errno::EADDRINUSE if own.ip().is_unspecified() => Errno::EADDRNOTAVAIL,
                error => error,
            })?);
        }
        let others: Vec<_> = self.others().into_iter().map(held).collect();
        let taken = raw::Adapter::is_a_name_held(&others, whose);
        if taken { Err(Errno::EADDRNOTAVAIL) } else { Ok(names) }
    }

    /// The errors of [`Wish::claim`], for an id that shares its port: no name is taken.
    fn is_free(self) -> Result {
        let is_held = |of: Vec<SocketAddr>| {
            let names: Vec<_> = of.into_iter().map(held).collect();
            raw::Adapter::is_a_name_held(&names, self.whose())
        };
        match (is_held(self.own()), is_held(self.others())) {
            (true, _) if !self.address.ip().is_unspecified() => Err(Errno::EADDRINUSE),
            (false, false) => Ok(()),
            _ => Err(Errno::EADDRNOTAVAIL),
        }
    }

    /// A listener at its address; `::` where both families are wanted.
    fn open(self, adapter: &raw::Adapter) -> raw::Result<raw::Listener> {
        let any = self.address.ip().is_unspecified();
        if any && !self.one_family {
            let both = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), self.address.port());
            let of_both = adapter.listener(both);
            // Without IPv6. A port that is taken is taken for both.
            return match of_both {
                Err(error) if error.status != Status::SharingViolation => {
                    adapter.listener(self.address)
                }
                of_both => of_both,
            };
        }
        if self.one_family {
            adapter.listener_of_one_family(self.address)
        } else {
            adapter.listener(self.address)
        }
    }
}

impl Port {
    pub(super) fn take(context: &Context, mut wish: Wish) -> Result<Port> {
        let adapter = &context.adapter;
        let named = wish.address.port() != 0;
        let mut names = match (named, wish.shared) {
            (true, false) => wish.claim(adapter)?,
            (true, true) => wish.is_free().map(|()| Vec::new())?,
            (false, _) => Vec::new(),
        };
        let listener = match wish.open(adapter) {
            Err(error) if named && error.status == Status::SharingViolation => {
                let mut port = Port { wish, listener: Arc::new(anywhere(adapter, wish)?), names };
                if !wish.shared {
                    port.tell(adapter)?;
                }
                return Ok(port);
            }
            opened => opened.map_err(|error| why_not(context, wish.address, error.into()))?,
        };
        if !named {
            wish.address.set_port(listener.address()?.port());
            if !wish.shared {
                // The system gives no number twice, but for one whose TCP port another socket had.
                names = wish.claim(adapter).unwrap_or_default();
            }
        }
        Ok(Port { wish, listener: Arc::new(listener), names })
    }

    /// The number, as the program knows it.
    pub(super) fn number(&self) -> u16 {
        self.wish.address.port()
    }

    /// The TCP port that it has.
    pub(super) fn of_tcp(&self) -> Result<u16> {
        Ok(self.listener.address()?.port())
    }

    /// Take requests. A port that was shared is this id's alone from now on (Linux, `cma_bind_listen`). A TCP
    /// socket may have begun to listen at the number since.
    pub(super) fn listen(&mut self, adapter: &raw::Adapter, backlog: usize) -> Result {
        if std::mem::take(&mut self.wish.shared) {
            self.names = self.wish.claim(adapter).inspect_err(|_| self.wish.shared = true)?;
            if self.of_tcp()? != self.number() {
                self.tell(adapter)?;
            }
        }
        match self.listener.listen(backlog) {
            Err(error) if error.status == Status::SharingViolation => {
                self.listener = Arc::new(anywhere(adapter, self.wish)?);
                self.tell(adapter)?;
                Ok(self.listener.listen(backlog)?)
            }
            done => Ok(done?),
        }
    }

    /// Tell processes of this host where the listener is, and people that others do not find it.
    fn tell(&mut self, adapter: &raw::Adapter) -> Result {
        let port = self.of_tcp()?;
        for own in self.wish.own() {
            self.names.push(adapter.hold_name(&told(own), port, NamesOf::OursAndRoot)?);
        }
        explain::line(&format!(
            "rdma_cm's port {} is a TCP socket's, too: programs on this host, of this user or if this is \
             root's, find its listener (TCP port {port}), those on other hosts do not",
            self.number()
        ));
        Ok(())
    }
}

fn anywhere(adapter: &raw::Adapter, wish: Wish) -> Result<raw::Listener> {
    let mut address = wish.address;
    address.set_port(0);
    Ok(Wish { address, ..wish }.open(adapter)?)
}

/// Where the listener of a port of a peer's is.
pub(super) fn find(context: &Context, mut peer: SocketAddr) -> SocketAddr {
    let ip = peer.ip();
    if is_here(context, ip) {
        let all = ALL.into_iter().filter(|all| of_one_family(*all, ip));
        let names = std::iter::once(ip).chain(all).map(|ip| told(SocketAddr::new(ip, peer.port())));
        match raw::Adapter::port_of_names(&names.collect::<Vec<_>>()) {
            raw::PortOfNames::Port(port) => peer.set_port(port),
            raw::PortOfNames::NotHeld => {}
            raw::PortOfNames::Unknown => explain::line(&format!(
                "this host has more Unix sockets than are looked at for a name: rdma_cm's port {} is taken \
                 to be the TCP port of that number",
                peer.port()
            )),
        }
    }
    peer
}
