//! The ports of a context: the upper part of its queue pairs' numbers (Verbs V73).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use transom_engine::raw;

use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::{datagram, environment, requests, timers};

/// How long a port without queue pairs stays open.
const IDLE_PORT: Duration = Duration::from_secs(1);
/// Ports that are opened for one number, until the UDP port of one is free, too.
const PORT_TRIES: usize = 8;
/// Numbers below stand for connections of rdma_cm (Verbs V128).
pub(crate) const FIRST_PORT: u16 = 1024;

/// The ports of a context, and which numbers are taken.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    open: Mutex<Vec<Port>>,
}

#[derive(Debug)]
struct Port {
    number: u16,
    taken: [bool; 256],
    _listener: Arc<raw::Listener>,
    /// The UDP port of the same number, once a queue pair of datagrams has asked for it.
    datagrams: Option<Arc<raw::DatagramPort>>,
}

impl Port {
    /// An index that is free, drawn at random.
    fn draw(&mut self) -> Option<u8> {
        let seed = raw::random_seed().ok()?;
        let start = seed.first().copied().unwrap_or(0);
        let last = self.number == u16::MAX; // 0xFFFFFF means multicast
        let free = |i: &u8| *i != 0 && !(last && *i == 255) && !self.taken[usize::from(*i)];
        let index = (0..=255).map(|offset: u8| start.wrapping_add(offset)).find(free)?;
        self.taken[usize::from(index)] = true;
        Some(index)
    }
}

/// A queue pair number, and where datagrams to it arrive, if it is one of those.
#[derive(Debug)]
pub(crate) struct Number {
    pub(crate) number: u32,
    pub(crate) datagrams: Option<Arc<raw::DatagramPort>>,
}

impl Port {
    /// A number, with datagrams or without. `None`: all are taken, or another program has the UDP port.
    fn take(&mut self, context: &Arc<Context>, datagrams: bool) -> Option<Number> {
        if datagrams && self.datagrams.is_none() {
            self.datagrams = open_datagrams(context, self.number);
            self.datagrams.as_ref()?;
        }
        let number = u32::from(self.number) << 8 | u32::from(self.draw()?);
        Some(Number { number, datagrams: self.datagrams.clone().filter(|_| datagrams) })
    }
}

/// The UDP port of a number, for both families where there are both.
fn open_datagrams(context: &Arc<Context>, port: u16) -> Option<Arc<raw::DatagramPort>> {
    let both = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    let mut opened = both.into_iter().map(|ip| datagram::open(context, SocketAddr::new(ip, port)));
    opened.find_map(std::result::Result::ok).map(Arc::new)
}

impl Ports {
    fn lock(&self) -> MutexGuard<'_, Vec<Port>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A queue pair number; for a queue pair of datagrams, with the UDP port of the same number.
    pub(crate) fn take(&self, context: &Arc<Context>, datagrams: bool) -> Result<Number> {
        let mut open = self.lock();
        if let Some(number) = open.iter_mut().find_map(|port| port.take(context, datagrams)) {
            return Ok(number);
        }
        // The UDP port of a new one may be another program's: that one stays for connections.
        for _ in 0..PORT_TRIES {
            let (port, listener) = listen(context, &open)?;
            let taken = [false; 256];
            let mut port = Port { number: port, taken, _listener: listener, datagrams: None };
            let number = port.take(context, datagrams);
            open.push(port);
            if let Some(number) = number {
                return Ok(number);
            }
        }
        Err(Errno::ENOMEM)
    }

    pub(crate) fn give_back(self: &Ports, number: u32) {
        let [_, high, low, index] = number.to_be_bytes();
        let port = u16::from_be_bytes([high, low]);
        for open in self.lock().iter_mut().filter(|open| open.number == port) {
            open.taken[usize::from(index)] = false;
        }
    }

    /// Close the ports that no queue pair has.
    pub(crate) fn close_idle(&self) {
        let mut open = self.lock();
        let all = std::mem::take(&mut *open);
        let (idle, busy): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|port| !port.taken.contains(&true));
        *open = busy;
        drop(open);
        drop(idle);
    }

    pub(crate) fn close(&self) {
        let all = std::mem::take(&mut *self.lock());
        drop(all);
    }
}

/// A listener on a port that the system, or `TRANSOM_PORTS`, chooses: for both families where there
/// are both.
fn listen(context: &Arc<Context>, open: &[Port]) -> Result<(u16, Arc<raw::Listener>)> {
    let (low, high) = environment::ports().unwrap_or((0, 0));
    let mut last = Errno::EADDRINUSE;
    for port in low..=high {
        if open.iter().any(|open| open.number == port) {
            continue;
        }
        for address in [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)] {
            match listen_at(context, SocketAddr::new(address, port)) {
                Ok(found) if found.0 >= FIRST_PORT => return Ok(found),
                Ok(_) => {}
                Err(error) => last = error,
            }
        }
    }
    Err(last)
}

fn listen_at(context: &Arc<Context>, address: SocketAddr) -> Result<(u16, Arc<raw::Listener>)> {
    let listener = Arc::new(context.adapter.listener(address)?);
    listener.listen(0)?;
    let port = listener.address()?.port();
    requests::serve(&Arc::downgrade(context), &listener)?;
    Ok((port, listener))
}

/// A queue pair number has been given back: its port closes after a while, if no queue pair takes a
/// number again.
pub(crate) fn close_idle_later(context: &Arc<Context>) {
    let later = Arc::downgrade(context);
    timers::after(IDLE_PORT, move || {
        if let Some(context) = later.upgrade() {
            context.ports.close_idle();
        }
    });
}
