//! Limits on start-up. Peers half-way through it are limited per adapter and per address (iW 14),
//! because each handshake holds memory and a timer before the peer is known. On this host all users have the same
//! addresses, as many of 127/8 as they like, and those of each network that the host is in: once a part of an
//! address's share is taken, the kernel is asked where each further connection from there comes from, and whose it
//! is, and each user of this host has a share. Those of our own user take
//! no place that others could take, and all others of this host together leave half to other hosts. A process
//! that has proven to be our own user's has a place among those. Where all places are taken, one who holds fewer of
//! them than another takes that one's oldest: peers with many addresses keep nobody out, as long as start-up takes
//! less time than they need to connect as often as there are places. Connects of
//! this side that have no answer yet are limited, too: beyond a number each further one is slowed down.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::descriptors::{DescriptorShare, HeldDescriptor, part};
use crate::sys::{self, PeerPlace};

/// Limits of all listeners of an adapter together. The usual ones are 1,024 and 256; a quarter of the descriptors that this
/// process may have is the largest, and less where its peers hold many in other ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfOpen {
    /// From everywhere together; as many of our own user's besides, and as many that have proven to be our
    /// user's processes.
    pub total: usize,
    /// From one address (from one /64 network of IPv6), or of one user of this host.
    pub per_address: usize,
}

impl Default for HalfOpen {
    fn default() -> HalfOpen {
        HalfOpen { total: part(4).min(1024), per_address: part(4).min(256) }
    }
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Origin {
    /// Another host, or a network of IPv6.
    Network(IpAddr),
    /// This host; nobody has asked whose it is.
    Here,
    /// Another user of this host.
    User(u32),
    /// Our own user, at an address of this host.
    OurUser(IpAddr),
    /// Processes of our own user's, as a hand-over has proven.
    Proven,
}

impl Origin {
    fn is_others_here(self) -> bool {
        matches!(self, Origin::Here | Origin::User(_))
    }

    fn is_ours(self) -> bool {
        matches!(self, Origin::OurUser(_))
    }

    fn is_others(self) -> bool {
        !matches!(self, Origin::OurUser(_) | Origin::Proven)
    }
}

#[derive(Debug, Default)]
struct Counts {
    /// All but our own user's.
    others: DescriptorShare,
    /// Those of this host among them.
    here: usize,
    /// Our own user's, and those of its processes that are proven.
    ours: DescriptorShare,
    proven: DescriptorShare,
    /// The keys of the links: a link that came later has a larger one.
    from: HashMap<Origin, BTreeMap<u64, HeldDescriptor>>,
}

/// Counts the half-open connections of an adapter.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    limits: HalfOpen,
    counts: Arc<Mutex<Counts>>,
}

/// The place of one half-open connection. Dropped when start-up is over, either way.
#[derive(Debug)]
pub(crate) struct Ticket {
    link: u64,
    from: Origin,
    admission: Admission,
}

/// A connection that was let in, and the link that has lost its place to it.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) ticket: Ticket,
    pub(crate) displaced: Option<u64>,
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

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Let the connection of this link in, or not. `here`: it is from this host, certainly. `place`: asks where it
    /// is from.
    pub(crate) fn admit(
        &self,
        link: u64,
        address: IpAddr,
        here: bool,
        place: impl FnOnce() -> PeerPlace,
    ) -> Option<Admitted> {
        let from = self.origin(address, here, place);
        let mut counts = self.lock();
        let places = counts.full(from, self.limits.total);
        let displaced = places.and_then(|places| counts.displace(from, places));
        let is_refused =
            counts.of(from) >= self.limits.per_address || (places.is_some() && displaced.is_none());
        if is_refused {
            return None;
        }
        counts.add(from, link);
        let ticket = Ticket { link, from, admission: self.clone() };
        Some(Admitted { ticket, displaced })
    }

    fn origin(&self, address: IpAddr, here: bool, place: impl FnOnce() -> PeerPlace) -> Origin {
        let network = Origin::Network(network_of(address));
        let unasked = if here { Origin::Here } else { network };
        if self.lock().of(unasked) < self.limits.per_address / 4 {
            return unasked;
        }
        match place() {
            PeerPlace::Elsewhere => network,
            PeerPlace::Here => Origin::Here,
            PeerPlace::HereOf(user) if sys::is_our_user(user) => {
                Origin::OurUser(network_of(address))
            }
            PeerPlace::HereOf(user) => Origin::User(user),
        }
    }
}

impl Counts {
    fn of(&self, from: Origin) -> usize {
        self.from.get(&from).map_or(0, BTreeMap::len)
    }

    /// Whether a connection from there needs a place of a kind of which all are taken: the holders of that kind.
    fn full(&self, from: Origin, total: usize) -> Option<fn(Origin) -> bool> {
        match from {
            Origin::OurUser(_) | Origin::Proven => {
                (!self.ours.has_room(total)).then_some(Origin::is_ours as fn(Origin) -> bool)
            }
            Origin::Here | Origin::User(_) if self.here >= self.others.most(total).div_ceil(2) => {
                Some(Origin::is_others_here)
            }
            Origin::Here | Origin::User(_) | Origin::Network(_) => {
                (!self.others.has_room(total)).then_some(Origin::is_others)
            }
        }
    }

    /// Take a place for one more from there: the oldest of those who hold the most, if these hold more. So it has a
    /// place within its share: nobody holds more than that.
    fn displace(&mut self, from: Origin, places: fn(Origin) -> bool) -> Option<u64> {
        let held = self.from.iter().filter(|(origin, _)| places(**origin));
        let oldest = held.filter_map(|(origin, links)| {
            Some((*origin, links.len(), *links.first_key_value()?.0))
        });
        let (whose, most, link) = oldest.max_by_key(|(_, held, link)| (*held, !link))?;
        (self.of(from) < most).then(|| {
            self.remove(whose, link);
            link
        })
    }

    fn add(&mut self, from: Origin, link: u64) {
        self.here += usize::from(from.is_others_here());
        let share = match from {
            Origin::OurUser(_) => &self.ours,
            Origin::Proven => &self.proven,
            Origin::Network(_) | Origin::Here | Origin::User(_) => &self.others,
        };
        self.from.entry(from).or_default().insert(link, share.take());
    }

    /// Whether the link had its place still.
    fn remove(&mut self, from: Origin, link: u64) -> bool {
        let Some(links) = self.from.get_mut(&from) else { return false };
        if links.remove(&link).is_none() {
            return false;
        }
        if links.is_empty() {
            self.from.remove(&from);
        }
        self.here = self.here.saturating_sub(usize::from(from.is_others_here()));
        true
    }
}

impl Ticket {
    /// The peer has proven to be a process of our own user's: it takes a place of those, if one is left.
    pub(crate) fn prove(&mut self) {
        let mut counts = self.admission.lock();
        if counts.proven.has_room(self.admission.limits.total)
            && counts.remove(self.from, self.link)
        {
            self.from = Origin::Proven;
            counts.add(self.from, self.link);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.admission.lock().remove(self.from, self.link);
    }
}

/// The place that a link holds until its peer is known.
#[derive(Debug)]
pub(crate) enum Starting {
    /// The peer has connected, and has not been accepted.
    Incoming(Ticket),
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

    /// A peer at an address that is not certainly one of this host.
    fn admitted(admission: &Admission, address: IpAddr, place: PeerPlace) -> Option<Ticket> {
        static LINKS: AtomicUsize = AtomicUsize::new(0);
        let link = LINKS.fetch_add(1, Ordering::Relaxed) as u64;
        let admitted = admission.admit(link, address, address.is_loopback(), || place);
        admitted.map(|admitted| admitted.ticket)
    }

    /// How many of them have their places still.
    fn held(tickets: &[Ticket]) -> usize {
        let holds = |ticket: &&Ticket| {
            let counts = ticket.admission.lock();
            counts.from.get(&ticket.from).is_some_and(|links| links.contains_key(&ticket.link))
        };
        tickets.iter().filter(holds).count()
    }

    #[test]
    fn users_of_this_host_have_shares_of_their_own() {
        let admission = Admission::new(HalfOpen { total: 32, per_address: 8 });
        let all = |from: std::ops::RangeInclusive<u8>, user| -> Vec<Ticket> {
            let addresses = from.map(|last| IpAddr::from([127, 0, 0, last]));
            let place = PeerPlace::HereOf(user);
            addresses.filter_map(|address| admitted(&admission, address, place)).collect()
        };
        let own = sys::user();
        let [one, two, three] = [1, 2, 3].map(|more| own + more);
        // The first two are not asked for; whatever the address, a user has a share.
        let first = all(1..=100, one);
        assert_eq!(first.len(), 2 + 8);
        // Others of this host get no more than half of all places together, each as many as the others, and our own
        // user is not kept out.
        let second = all(1..=100, two);
        assert_eq!((held(&first), held(&second)), (2 + 7, 7));
        let third = all(1..=100, three);
        assert_eq!((held(&first), held(&second), held(&third)), (2 + 4, 5, 5));
        let ours = all(1..=32, own);
        assert_eq!(held(&ours), 32, "one for each address");
        // Other hosts have the rest.
        let elsewhere = PeerPlace::Elsewhere;
        let remote = |last: u8| admitted(&admission, [10, 0, 0, last].into(), elsewhere);
        let others: Vec<_> = (1..=16).filter_map(remote).collect();
        assert_eq!((held(&first), held(&second), held(&third)), (2 + 4, 5, 5));
        assert_eq!(held(&others), 16);
        drop(ours);
        let at_one = |place| admitted(&admission, [127, 0, 0, 1].into(), place);
        let own = PeerPlace::HereOf(own);
        assert_eq!((0..100).filter_map(|_| at_one(own)).collect::<Vec<_>>().len(), 8);
        drop((first, second, third, others));
        assert_eq!(admission.lock().from.len(), 0);
        // Nobody can be asked about a peer that has left: it counts as it is.
        let unknown: Vec<_> = (0..100).filter_map(|_| at_one(PeerPlace::Here)).collect();
        assert_eq!(unknown.len(), 8);
    }

    /// A host has several addresses, and other hosts are in the networks of these.
    #[test]
    fn users_at_other_addresses_of_this_host_take_no_place_of_their_networks() {
        let admission = Admission::new(HalfOpen { total: 64, per_address: 8 });
        let from = |last: u16, place| {
            let address = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]);
            admitted(&admission, address, place)
        };
        let other = PeerPlace::HereOf(sys::user() + 1);
        let all: Vec<_> = (0..100).filter_map(|last| from(last, other)).collect();
        assert_eq!(all.len(), 2 + 8, "two before anybody asks");
        let gone: Vec<_> = (0..100).filter_map(|last| from(last, PeerPlace::Here)).collect();
        assert_eq!(gone.len(), 8, "nor by leaving at once");
        let neighbours: Vec<_> =
            (0..100).filter_map(|last| from(last, PeerPlace::Elsewhere)).collect();
        assert_eq!(neighbours.len(), 6);
    }

    #[test]
    fn processes_that_are_proven_have_places_of_their_own_and_no_more() {
        let admission = Admission::new(HalfOpen { total: 6, per_address: 2 });
        let own = PeerPlace::HereOf(sys::user());
        let one = || admitted(&admission, [127, 0, 0, 1].into(), own);
        let mut proven = Vec::new();
        while let Some(mut ticket) = one() {
            ticket.prove();
            proven.push(ticket);
            assert!(proven.len() < 100);
        }
        assert_eq!(proven.len(), 6 + 2, "behind those places each takes the place that it had");
        let remote = admitted(&admission, [10, 0, 0, 1].into(), PeerPlace::Elsewhere);
        assert!(remote.is_some());
        drop((proven, remote));
        let counts = admission.lock();
        assert_eq!((counts.others.count(), counts.ours.count(), counts.from.len()), (0, 0, 0));
    }

    #[test]
    fn one_address_cannot_take_all_places_and_places_come_back() {
        let admission = Admission::new(HalfOpen { total: 3, per_address: 2 });
        let [a, b, c] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]].map(IpAddr::from);
        let first = admitted(&admission, a, PeerPlace::Elsewhere).unwrap();
        let _second = admitted(&admission, a, PeerPlace::Elsewhere).unwrap();
        assert!(admitted(&admission, a, PeerPlace::Elsewhere).is_none(), "two from one address");
        drop(first);
        let _third = admitted(&admission, b, PeerPlace::Elsewhere).unwrap();
        let fourth = admitted(&admission, b, PeerPlace::Elsewhere).unwrap();
        assert!(admitted(&admission, b, PeerPlace::Elsewhere).is_none(), "two from the other");
        drop(fourth);
        assert!(admitted(&admission, c, PeerPlace::Elsewhere).is_some());
    }

    /// Peers that hold fewer places than another have one: with a few addresses nobody keeps others out, and with very
    /// many only for as long as it takes to fill all places anew.
    #[test]
    fn a_place_is_taken_from_those_who_hold_the_most() {
        let admission = Admission::new(HalfOpen { total: 8, per_address: 4 });
        let from = |last: u8| {
            admitted(&admission, [10, 0, 0, last].into(), PeerPlace::Elsewhere).into_iter()
        };
        let two: Vec<_> = (0..20).flat_map(|i| from(1 + i % 2)).collect();
        assert_eq!((two.len(), held(&two)), (8, 8));
        let guest: Vec<_> = from(3).collect();
        assert_eq!((held(&guest), held(&two)), (1, 7));
        assert_eq!(held(&two[..1]), 0, "the oldest");
        // The first two come again and again, and from more addresses.
        let more: Vec<_> = (0..20).flat_map(|i| from(1 + i % 2)).collect();
        let many: Vec<_> = (10..15).flat_map(from).collect();
        assert_eq!((held(&guest), held(&many), held(&two) + held(&more)), (1, 5, 2));
        let last: Vec<_> = from(20).collect();
        assert_eq!((held(&guest), held(&last)), (0, 1), "the oldest of those that are alike");
        drop((two, guest, more, many, last));
        let counts = admission.lock();
        assert_eq!((counts.others.count(), counts.from.len()), (0, 0));
    }

    #[test]
    fn an_ipv6_peer_counts_by_its_network() {
        let admission = Admission::new(HalfOpen { total: 9, per_address: 1 });
        let one: IpAddr = "2001:db8::1".parse().unwrap();
        let neighbour: IpAddr = "2001:db8::2".parse().unwrap();
        let _ticket = admitted(&admission, one, PeerPlace::Elsewhere).unwrap();
        assert!(admitted(&admission, neighbour, PeerPlace::Elsewhere).is_none());
        assert!(
            admitted(&admission, "2001:db8:0:1::1".parse().unwrap(), PeerPlace::Elsewhere)
                .is_some()
        );
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
