//! Offers to share memory at the upgrade socket, before the TCP connection names one.

use std::cell::RefCell;
use std::rc::Rc;

use transom_process::upgrade::{NONCE, Nonce, Offerer, PeerUser, PendingOffers, UpgradeOffer};

use super::*;

type Said = Option<Vec<u8>>;

/// A process at the other end of a Unix socket.
struct Guest {
    who: PeerUser,
    said: Rc<RefCell<Said>>,
    number: u32,
}

impl Offerer for Guest {
    fn who(&self) -> PeerUser {
        self.who
    }

    fn receive(&self, into: &mut [u8]) -> Option<usize> {
        let bytes = self.said.borrow_mut().take()?;
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        Some(count)
    }
}

struct Host {
    pending: PendingOffers<Guest>,
    now: Time,
    guests: u32,
}

impl Host {
    fn new(others: bool) -> Host {
        Host { pending: PendingOffers::new(others), now: Time(1), guests: 0 }
    }

    /// A process comes, and says something now, or later.
    fn comes(&mut self, who: PeerUser, said: Said) -> Rc<RefCell<Said>> {
        let (said, number) = (Rc::new(RefCell::new(said)), self.guests);
        self.pending.add(Guest { who, said: said.clone(), number }, self.now);
        self.guests += 1;
        said
    }

    /// The offerer that is claimed under a nonce.
    fn claim(&mut self, nonce: u8) -> Option<u32> {
        self.pending.claim(&self::nonce(nonce)).map(|guest| guest.number)
    }
}

fn nonce(number: u8) -> Nonce {
    [number; NONCE]
}

fn offer(number: u8, others: bool) -> Vec<u8> {
    UpgradeOffer { nonce: nonce(number), others }.to_bytes()
}

#[test]
fn an_offerer_is_claimed_once_under_its_own_nonce() {
    let mut host = Host::new(false);
    for number in 0..3 {
        host.comes(PeerUser::SameUser, Some(offer(number, false)));
    }
    assert_eq!((host.claim(9), host.pending.len()), (None, 3), "nobody's nonce");
    assert_eq!((host.claim(1), host.pending.len()), (Some(1), 2));
    assert_eq!((host.claim(1), host.pending.len()), (None, 2));
    assert_eq!((host.claim(0), host.claim(2), host.pending.is_empty()), (Some(0), Some(2), true));
}

/// Every byte of the nonce counts.
#[test]
fn a_nonce_is_compared_whole() {
    let mut host = Host::new(false);
    host.comes(PeerUser::SameUser, Some(offer(5, false)));
    for at in 0..NONCE {
        let mut wrong = nonce(5);
        wrong[at] ^= 1;
        assert!(host.pending.claim(&wrong).is_none(), "byte {at}");
    }
    assert_eq!(host.claim(5), Some(0));
}

/// Other users are welcome if both sides say so; whom the kernel does not name is not.
#[test]
fn only_an_accepted_user_is_claimed() {
    for host_asks in [false, true] {
        for guest_asks in [false, true] {
            for who in [PeerUser::Unknown, PeerUser::SameUser, PeerUser::OtherUser] {
                let welcome = match who {
                    PeerUser::Unknown => false,
                    PeerUser::SameUser => true,
                    PeerUser::OtherUser => host_asks && guest_asks,
                };
                let mut host = Host::new(host_asks);
                host.comes(who, Some(offer(5, guest_asks)));
                let waits = who == PeerUser::SameUser || who == PeerUser::OtherUser && host_asks;
                assert_eq!(host.pending.len(), usize::from(waits), "takes no place: {who:?}");
                assert_eq!(host.claim(5).is_some(), welcome, "{who:?}");
                assert!(host.pending.is_empty(), "it has gone");
            }
        }
    }
}

/// An offer that is none is dropped. An offerer that has sent nothing yet stays.
#[test]
fn what_is_said_is_all_right_or_the_visit_ends() {
    let whole = offer(5, false);
    let longer = [&whole[..], b"x"].concat();
    let mut strange = whole.clone();
    *strange.last_mut().unwrap() = 2;
    let mut other = whole.clone();
    other[0] ^= 1;
    for bytes in [&whole[..whole.len() - 1], &[], &strange, &other] {
        let mut host = Host::new(false);
        let silent = host.comes(PeerUser::SameUser, None);
        host.comes(PeerUser::SameUser, Some(bytes.to_vec()));
        assert_eq!(host.claim(5), None, "{bytes:?}");
        assert_eq!(host.pending.len(), 1, "the other one waits");
        *silent.borrow_mut() = Some(whole.clone());
        assert_eq!(host.claim(5), Some(0));
    }
    // More than a greeting is cut where a greeting ends.
    let mut host = Host::new(false);
    host.comes(PeerUser::SameUser, Some(longer));
    assert_eq!(host.claim(5), Some(0));
}

/// Among too many the oldest goes: none takes the places of all others for long.
#[test]
fn places_are_few() {
    let places = PendingOffers::<Guest>::PLACES as u32;
    let mut host = Host::new(false);
    for number in 0..places {
        let nonce = if number == 0 { 5 } else { 6 };
        host.comes(PeerUser::SameUser, Some(offer(nonce, false)));
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
