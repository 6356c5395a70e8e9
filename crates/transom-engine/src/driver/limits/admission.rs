//! Limits on start-up. Peers half-way through it are limited per listener and per address (iW 14),
//! because each handshake holds memory and a timer before the peer is known. Connects of this side
//! that have no answer yet are limited, too: beyond a number each further one is slowed down.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Limits of one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfOpen {
    /// From everywhere together.
    pub total: usize,
    /// From one address (from one /64 network of IPv6).
    pub per_address: usize,
}

impl Default for HalfOpen {
    fn default() -> HalfOpen {
        HalfOpen { total: 1024, per_address: 256 }
    }
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    from: HashMap<IpAddr, usize>,
    turned_away: u64,
}

/// Counts the half-open connections of one listener.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    limits: HalfOpen,
    counts: Arc<Mutex<Counts>>,
}

/// The place of one half-open connection. Dropped when start-up is over, either way.
#[derive(Debug)]
pub(crate) struct Ticket {
    from: IpAddr,
    counts: Arc<Mutex<Counts>>,
}

/// The host, or the /64 network of IPv6, that an address stands for.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

impl Admission {
    pub(crate) fn new(limits: HalfOpen) -> Admission {
        Admission { limits, counts: Arc::default() }
    }

    /// Let a connection in, or not.
    pub(crate) fn admit(&self, address: IpAddr) -> Option<Ticket> {
        let from = network_of(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let here = counts.from.get(&from).copied().unwrap_or(0);
        if counts.total >= self.limits.total || here >= self.limits.per_address {
            counts.turned_away += 1;
            return None;
        }
        counts.total += 1;
        counts.from.insert(from, here + 1);
        Some(Ticket { from, counts: self.counts.clone() })
    }

    /// Connections that were turned away so far.
    pub(crate) fn turned_away(&self) -> u64 {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).turned_away
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.total = counts.total.saturating_sub(1);
        match counts.from.get_mut(&self.from) {
            Some(n) if *n > 1 => *n -= 1,
            _ => {
                counts.from.remove(&self.from);
            }
        }
    }
}

/// The place that a link holds until its peer is known.
#[derive(Debug)]
pub(crate) enum Starting {
    /// The peer has connected, and has not been accepted.
    Incoming(#[expect(dead_code, reason = "held, not read")] Ticket),
    /// This end has asked, and there is no answer.
    Asking(#[expect(dead_code, reason = "held, not read")] ConnectTicket),
}

/// Counts connects that the peer has not answered.
#[derive(Debug, Default)]
pub(crate) struct UnansweredConnects(Arc<AtomicUsize>);

/// Counts a connect as unanswered until this is dropped, which the answer does.
#[derive(Debug)]
pub(crate) struct ConnectTicket(Arc<AtomicUsize>);

impl UnansweredConnects {
    /// Unanswered connects before the next one is slowed down.
    const FREE: usize = 512;

    /// Count one more connect, until the ticket is dropped.
    pub(crate) fn one(&self) -> ConnectTicket {
        self.0.fetch_add(1, Ordering::Relaxed);
        ConnectTicket(self.0.clone())
    }

    /// How long a thread that asks once more lets others run first. A program that connects without a
    /// pause gets ahead of any peer; what the peer's host cannot queue it drops, and asking again
    /// after a second is TCP's answer to that.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let times = self.0.load(Ordering::Relaxed) / Self::FREE;
        let micros = 100 * times.saturating_mul(times).min(200) as u64;
        (times > 0).then(|| Duration::from_micros(micros))
    }
}

impl Drop for ConnectTicket {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_all_places_and_places_come_back() {
        let admission = Admission::new(HalfOpen { total: 3, per_address: 2 });
        let [a, b, c] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]].map(IpAddr::from);
        let first = admission.admit(a).unwrap();
        let _second = admission.admit(a).unwrap();
        assert!(admission.admit(a).is_none(), "two from one address");
        let _third = admission.admit(b).unwrap();
        assert!(admission.admit(c).is_none(), "three in all");
        drop(first);
        assert!(admission.admit(c).is_some());
        assert_eq!(admission.turned_away(), 2);
    }

    #[test]
    fn an_ipv6_peer_counts_by_its_network() {
        let admission = Admission::new(HalfOpen { total: 9, per_address: 1 });
        let one: IpAddr = "2001:db8::1".parse().unwrap();
        let neighbour: IpAddr = "2001:db8::2".parse().unwrap();
        let _ticket = admission.admit(one).unwrap();
        assert!(admission.admit(neighbour).is_none());
        assert!(admission.admit("2001:db8:0:1::1".parse().unwrap()).is_some());
    }

    #[test]
    fn hundreds_of_unanswered_connects_slow_the_next_one_down_and_answers_end_that() {
        let unanswered = UnansweredConnects::default();
        let mut all: Vec<_> = (1..UnansweredConnects::FREE).map(|_| unanswered.one()).collect();
        assert_eq!(unanswered.pause(), None);
        all.push(unanswered.one());
        let first = unanswered.pause().unwrap();
        all.extend((0..UnansweredConnects::FREE).map(|_| unanswered.one()));
        assert!(unanswered.pause().unwrap() > first);
        all.extend((0..100_000).map(|_| unanswered.one()));
        assert!(unanswered.pause().unwrap() <= Duration::from_millis(20), "bounded");
        all.clear();
        assert_eq!(unanswered.pause(), None);
    }
}
