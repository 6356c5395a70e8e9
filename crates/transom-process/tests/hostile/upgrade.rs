//! Offers of memory at the upgrade socket, before the TCP connection names one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use transom_process::upgrade::{
    MemoryFacts, NONCE, Nonce, Offerer, PeerUser, PendingOffers, UpgradeOffer,
};

use super::*;

const SIZE: u64 = 4096;
const RIGHT: MemoryFacts =
    MemoryFacts { keeps_its_size: true, is_ordinary: true, size: SIZE, held: 0 };

/// A descriptor: what its memory is like, and how often that was looked at.
#[derive(Clone)]
struct Handle(MemoryFacts, Rc<Cell<u32>>);

type Said = Option<(Vec<u8>, Option<Handle>)>;

/// A process at the other end of a Unix socket.
struct Guest {
    who: PeerUser,
    said: Rc<RefCell<Said>>,
    number: u32,
}

impl Offerer for Guest {
    type Handle = Handle;
    type Memory = ();

    fn who(&self) -> PeerUser {
        self.who
    }

    fn receive(&self, into: &mut [u8]) -> Option<(usize, Option<Handle>)> {
        let (bytes, handle) = self.said.borrow_mut().take()?;
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        Some((count, handle))
    }

    fn adopt(Handle(facts, looked): Handle) -> Option<()> {
        looked.set(looked.get() + 1);
        facts.check(SIZE).ok()
    }
}

struct Host {
    pending: PendingOffers<Guest>,
    now: Time,
    guests: u32,
    looked: Rc<Cell<u32>>,
}

impl Host {
    fn new(others: bool) -> Host {
        Host { pending: PendingOffers::new(others), now: Time(1), guests: 0, looked: Rc::default() }
    }

    /// A process comes, and says something now, or later.
    fn comes(&mut self, who: PeerUser, said: Said) -> Rc<RefCell<Said>> {
        let (said, number) = (Rc::new(RefCell::new(said)), self.guests);
        self.pending.add(Guest { who, said: said.clone(), number }, self.now);
        self.guests += 1;
        said
    }

    fn memory(&self, facts: MemoryFacts) -> Option<Handle> {
        Some(Handle(facts, self.looked.clone()))
    }

    /// The offerer whose memory is claimed under a nonce.
    fn claim(&mut self, nonce: u8) -> Option<u32> {
        self.pending.claim(&self::nonce(nonce)).map(|((), guest)| guest.number)
    }
}

fn nonce(number: u8) -> Nonce {
    [number; NONCE]
}

fn offer(number: u8, others: bool) -> Vec<u8> {
    UpgradeOffer { nonce: nonce(number), others }.to_bytes()
}

#[test]
fn memory_is_claimed_once_under_its_own_nonce() {
    let mut host = Host::new(false);
    for number in 0..3 {
        let memory = host.memory(RIGHT);
        host.comes(PeerUser::SameUser, Some((offer(number, false), memory)));
    }
    assert_eq!((host.claim(9), host.pending.len()), (None, 3), "nobody's nonce");
    assert_eq!((host.claim(1), host.pending.len()), (Some(1), 2));
    assert_eq!((host.claim(1), host.pending.len()), (None, 2));
    assert_eq!((host.claim(0), host.claim(2), host.pending.is_empty()), (Some(0), Some(2), true));
    assert_eq!(host.looked.get(), 3, "each is mapped once");
}

/// Every byte of the nonce counts.
#[test]
fn a_nonce_is_compared_whole() {
    let mut host = Host::new(false);
    let memory = host.memory(RIGHT);
    host.comes(PeerUser::SameUser, Some((offer(5, false), memory)));
    for at in 0..NONCE {
        let mut wrong = nonce(5);
        wrong[at] ^= 1;
        assert!(host.pending.claim(&wrong).is_none(), "byte {at}");
    }
    assert_eq!(host.claim(5), Some(0));
}

/// Other users are welcome if both sides say so; whom the kernel does not name is not.
#[test]
fn only_memory_of_an_accepted_user_is_examined() {
    for host_asks in [false, true] {
        for guest_asks in [false, true] {
            for who in [PeerUser::Unknown, PeerUser::SameUser, PeerUser::OtherUser] {
                let welcome = match who {
                    PeerUser::Unknown => false,
                    PeerUser::SameUser => true,
                    PeerUser::OtherUser => host_asks && guest_asks,
                };
                let mut host = Host::new(host_asks);
                let memory = host.memory(RIGHT);
                host.comes(who, Some((offer(5, guest_asks), memory)));
                let waits = who == PeerUser::SameUser || who == PeerUser::OtherUser && host_asks;
                assert_eq!(host.pending.len(), usize::from(waits), "takes no place: {who:?}");
                assert_eq!(host.claim(5).is_some(), welcome, "{who:?}");
                assert_eq!(host.looked.get(), u32::from(welcome));
                assert!(host.pending.is_empty(), "it has gone");
            }
        }
    }
}

/// An offer without a greeting, without memory, or with harmful memory is dropped. An offerer that
/// has sent nothing yet stays.
#[test]
fn what_is_said_is_all_right_or_the_visit_ends() {
    let whole = offer(5, false);
    let longer = [&whole[..], b"x"].concat();
    let mut strange = whole.clone();
    *strange.last_mut().unwrap() = 2;
    let mut other = whole.clone();
    other[0] ^= 1;
    let shrinks = MemoryFacts { keeps_its_size: false, ..RIGHT };
    let huge = MemoryFacts { is_ordinary: false, ..RIGHT };
    let short = MemoryFacts { size: SIZE - 1, ..RIGHT };
    let long = MemoryFacts { size: SIZE + 1, ..RIGHT };
    for (bytes, facts, looked) in [
        (&whole[..whole.len() - 1], Some(RIGHT), 0),
        (&[], Some(RIGHT), 0),
        (&strange, Some(RIGHT), 0),
        (&other, Some(RIGHT), 0),
        (&whole, None, 0),
        (&whole, Some(shrinks), 1),
        (&whole, Some(huge), 1),
        (&whole, Some(short), 1),
        (&whole, Some(long), 1),
    ] {
        let mut host = Host::new(false);
        let silent = host.comes(PeerUser::SameUser, None);
        let memory = facts.and_then(|facts| host.memory(facts));
        host.comes(PeerUser::SameUser, Some((bytes.to_vec(), memory)));
        assert_eq!((host.claim(5), host.looked.get()), (None, looked), "{bytes:?} {facts:?}");
        assert_eq!(host.pending.len(), 1, "the other one waits");
        let memory = host.memory(RIGHT);
        *silent.borrow_mut() = Some((whole.clone(), memory));
        assert_eq!(host.claim(5), Some(0));
    }
    // More than a greeting is cut where a greeting ends.
    let mut host = Host::new(false);
    let memory = host.memory(RIGHT);
    host.comes(PeerUser::SameUser, Some((longer, memory)));
    assert_eq!(host.claim(5), Some(0));
}

/// Among too many the oldest goes: none takes the places of all others for long.
#[test]
fn places_are_few() {
    let places = PendingOffers::<Guest>::PLACES as u32;
    let mut host = Host::new(false);
    for number in 0..places {
        let nonce = if number == 0 { 5 } else { 6 };
        let memory = host.memory(RIGHT);
        host.comes(PeerUser::SameUser, Some((offer(nonce, false), memory)));
    }
    assert_eq!(host.pending.len(), places as usize);
    // An offerer of another user takes no place.
    host.comes(PeerUser::OtherUser, None);
    host.comes(PeerUser::Unknown, None);
    assert_eq!(host.pending.len(), places as usize);
    assert_eq!(host.claim(5), Some(0), "all of them were there");
    for _ in 0..2 {
        host.comes(PeerUser::SameUser, None);
    }
    assert_eq!(host.pending.len(), places as usize);
    assert_eq!(host.claim(6), Some(2), "the oldest has gone, and no other");
}

#[test]
fn no_offer_waits_for_long() {
    let patience = PendingOffers::<Guest>::PATIENCE;
    let mut host = Host::new(false);
    host.comes(PeerUser::SameUser, None);
    let came = host.now;
    host.now = came.after(Duration::from_secs(1));
    host.comes(PeerUser::SameUser, None);
    let gone = came.after(patience);
    host.pending.tidy(Time(gone.0 - 1));
    assert_eq!(host.pending.len(), 2);
    host.pending.tidy(gone);
    assert_eq!(host.pending.len(), 1);
    host.pending.tidy(gone.after(Duration::from_secs(1)));
    assert!(host.pending.is_empty());
}
