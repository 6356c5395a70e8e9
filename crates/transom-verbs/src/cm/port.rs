//! Ports of rdma_cm's port spaces TCP and UDP (Verbs V112). Those of space TCP are not TCP's: a program may listen
//! at one number with both. A port of space UDP is the UDP port of its number.
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

/// The ports of one are nothing to the other.
#[derive(Clone, Copy, Debug)]
pub(super) enum Space {
    Tcp,
    Udp,
}

/// How a port may be shared with other ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// No other id gets it.
    Alone,
    /// Ids that share it as well get it, until one of them listens (RDMA_OPTION_ID_REUSEADDR).
    Shared,
    /// The system has chosen it for an id that connects: it is of no interest to them.
    Nothing,
}

/// How an id takes a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) space: Space,
    /// Port 0: any.
    pub(super) address: SocketAddr,
    /// Every address of IPv6 does not stand for every one of IPv4, too.
    pub(super) one_family: bool,
    pub(super) claim: Claim,
}

/// The port of an id.
#[derive(Debug)]
pub(super) struct Port {
    wish: Wish,
    pub(super) listener: Arc<raw::Listener>,
    names: Vec<raw::LocalName>,
}

/// The name of a port that is one id's.
fn held(space: Space, address: SocketAddr) -> String {
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    match space {
        Space::Tcp => format!("transom/rdma_cm/{address}"),
        Space::Udp => format!("transom/rdma_cm/udp/{address}"),
    }
}

/// The name of a port that ids share.
fn shared(space: Space, address: SocketAddr) -> String {
    format!("{}/shared", held(space, address))
}

/// The name of a port at one address of IPv6, whose id is not of that family only.
fn both(space: Space, address: SocketAddr) -> String {
    format!("{}/both", held(space, address))
}

/// The name that tells where a port's listener is.
fn told(address: SocketAddr) -> String {
    format!("{}/at", held(Space::Tcp, address))
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

    /// Addresses of others that overlap with it: of its family, and of the other one, where an id has to
    /// be of both to have it.
    fn others(self) -> [Vec<SocketAddr>; 2] {
        let (ip, port) = (self.address.ip(), self.address.port());
        let ips: Vec<_> = if ip.is_unspecified() {
            raw::interfaces().unwrap_or_default().into_iter().map(|i| i.address).collect()
        } else {
            ALL.to_vec()
        };
        let (own, foreign): (Vec<_>, Vec<_>) =
            ips.into_iter().partition(|one| !self.one_family || of_one_family(*one, ip));
        [own, foreign].map(|ips| ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
    }

    /// Names of ids that this one's address overlaps with, at other addresses.
    fn rivals(self, of: impl Fn(Space, SocketAddr) -> String) -> Vec<String> {
        let [own, foreign] = self.others();
        let of_both = foreign.into_iter().map(|address| both(self.space, address));
        own.into_iter().map(|address| of(self.space, address)).chain(of_both).collect()
    }

    fn is_held(self, names: &[String]) -> bool {
        raw::Adapter::is_a_name_held(names, self.whose())
    }

    /// The error where another id has one of this one's own addresses.
    fn taken(self) -> Errno {
        if self.address.ip().is_unspecified() { Errno::EADDRNOTAVAIL } else { Errno::EADDRINUSE }
    }

    fn whose(self) -> NamesOf {
        if takes_rights(self.address.port()) { NamesOf::OursAndRoot } else { NamesOf::Everyone }
    }

    /// The names that say who has the port. `EADDRINUSE` if another id has the address, `EADDRNOTAVAIL` if one of
    /// the two has every address (Linux, `cma_check_port`).
    fn hold(self, adapter: &raw::Adapter) -> Result<Vec<raw::LocalName>> {
        let (port, whose) = (self.address.port(), self.whose());
        let own = self.own();
        let mut names = Vec::new();
        match self.claim {
            Claim::Nothing => return Ok(names),
            Claim::Alone => {
                for address in &own {
                    let name = adapter.hold_name(&held(self.space, *address), port, whose);
                    names.push(name.map_err(|error| match Errno::from(error) {
                        Errno::EADDRINUSE => self.taken(),
                        error => error,
                    })?);
                }
                let sharers = own.iter().map(|address| shared(self.space, *address));
                if self.is_held(&sharers.collect::<Vec<_>>()) {
                    return Err(self.taken());
                }
                if self.is_held(&[self.rivals(held), self.rivals(shared)].concat()) {
                    return Err(Errno::EADDRNOTAVAIL);
                }
            }
            Claim::Shared => {
                let holders = own.iter().map(|address| held(self.space, *address));
                if self.is_held(&holders.collect::<Vec<_>>()) {
                    return Err(self.taken());
                }
                if self.is_held(&self.rivals(held)) {
                    return Err(Errno::EADDRNOTAVAIL);
                }
            }
        }
        // Where the kernel does not say whose names are, no two ids can hold one of these.
        let hold = |name: String| adapter.hold_name(&name, port, NamesOf::Nobody).ok();
        if self.claim == Claim::Shared {
            names.extend(own.iter().filter_map(|address| hold(shared(self.space, *address))));
        }
        if !self.one_family && !self.address.ip().is_unspecified() {
            names.extend(hold(both(self.space, self.address)));
        }
        Ok(names)
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
        let mut names = if named { wish.hold(adapter)? } else { Vec::new() };
        let listener = match wish.open(adapter) {
            Err(error) if named && error.status == Status::SharingViolation => {
                let mut port = Port { wish, listener: Arc::new(anywhere(adapter, wish)?), names };
                if wish.claim == Claim::Alone {
                    port.tell(adapter)?;
                }
                return Ok(port);
            }
            opened => opened.map_err(|error| why_not(context, wish.address, error.into()))?,
        };
        if !named {
            wish.address.set_port(listener.address()?.port());
            // The system gives no number twice, but for one whose TCP port another socket had.
            names = wish.hold(adapter).unwrap_or_default();
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

    /// Take requests. A port that may be shared is this id's alone from now on, and has no other (Linux,
    /// `rdma_listen`). A TCP socket may have begun to listen at the number since.
    pub(super) fn listen(&mut self, adapter: &raw::Adapter, backlog: usize) -> Result {
        if self.wish.claim == Claim::Shared {
            self.names.clear();
            let alone = Wish { claim: Claim::Alone, ..self.wish };
            self.names = alone.hold(adapter).inspect_err(|_| {
                self.names = self.wish.hold(adapter).unwrap_or_default();
            })?;
            self.wish = alone;
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

/// The UDP port of an id, and its names.
#[derive(Debug)]
pub(crate) struct DatagramPort {
    pub(crate) port: Arc<raw::DatagramPort>,
    #[allow(dead_code, reason = "held, not used")]
    names: Vec<raw::LocalName>,
}

impl DatagramPort {
    pub(super) fn take(
        context: &Context,
        mut wish: Wish,
        sink: impl Fn(&[u8], &raw::Message) + Send + Sync + 'static,
    ) -> Result<DatagramPort> {
        let (adapter, address) = (&context.adapter, wish.address);
        let named = address.port() != 0;
        let mut names = if named { wish.hold(adapter)? } else { Vec::new() };
        let port = if wish.one_family {
            adapter.datagram_port_of_one_family(address, sink)
        } else {
            adapter.datagram_port(address, sink)
        };
        let port = port.map_err(|error| why_not(context, address, error.into()))?;
        if !named {
            wish.address.set_port(port.address()?.port());
            names = wish.hold(adapter).unwrap_or_default();
        }
        Ok(DatagramPort { port: Arc::new(port), names })
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
