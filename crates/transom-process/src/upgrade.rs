//! The upgrade of a TCP connection to shared memory: what two processes say to each other, and what each
//! believes; without a system call. `transom-engine` has the sockets and the mappings (its
//! `driver/link/upgrade.rs` has the whole sequence).
//!
//! The active side offers to share memory at the *upgrade socket* beside the peer's port: an [`UpgradeOffer`]
//! with a nonce. Then it says the nonce on the TCP connection ([`question`]). The passive side keeps offers as
//! [`PendingOffers`], [claims](PendingOffers::claim) the one made under that nonce, and hands memory over to its
//! offerer. Every process of this host can offer and answer anything, so all that is believed is what the kernel
//! says: whose process it is ([`PeerUser`]), and what the memory is like ([`MemoryFacts`]).
//!
//! Descriptors go to a side that knows already whose process sends them. So no side has to let those of another
//! user through, which may take as long to close as their sender likes.

use std::time::Duration;

use transom_wire::Time;

use crate::lending::LARGEST;

/// Names the offer that a TCP connection is about.
pub type Nonce = [u8; NONCE];
/// Bytes of a [`Nonce`].
pub const NONCE: usize = 16;

/// The first bytes of an active side on its TCP connection; the nonce follows. MPA begins
/// otherwise.
const ASK: [u8; 16] = *b"Transom process1";
/// Bytes of a question.
pub const QUESTION: usize = ASK.len() + NONCE;
/// An answer: this, and what it is.
const ANSWER: [u8; 15] = *b"Transom process";
/// An offer: this, the nonce, and whether other users may share. The figure is that of the layout and of who hands
/// over: a side with another one sees no offer, and takes TCP.
const MAGIC: [u8; 8] = *b"TRANSOM6";

/// The first bytes of an active side on its TCP connection, once it has made its offer.
#[must_use]
pub fn question(nonce: &Nonce) -> Vec<u8> {
    [ASK, *nonce].concat()
}

/// The meaning of the first bytes of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Too few to tell.
    Unfinished,
    /// Start-up, which goes on over TCP: none of them is for us.
    StartUp,
    /// A question: the first [`QUESTION`] of them.
    Question(Nonce),
}

impl Opening {
    /// Reads the first bytes of a TCP connection.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Opening {
        let Some((ask, rest)) = bytes.split_first_chunk::<{ ASK.len() }>() else {
            return if ASK.starts_with(bytes) { Opening::Unfinished } else { Opening::StartUp };
        };
        match rest.first_chunk() {
            _ if *ask != ASK => Opening::StartUp,
            Some(nonce) => Opening::Question(*nonce),
            None => Opening::Unfinished,
        }
    }
}

/// The passive side's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Start-up goes on in the rings: memory has been handed over.
    Yes,
    /// Start-up goes on over TCP.
    No,
    /// Start-up goes on over TCP, because this side shares memory over as many connections as it
    /// may.
    Full,
}

impl Answer {
    /// Bytes of an answer.
    pub const LENGTH: usize = ANSWER.len() + 1;

    /// As it is sent.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Answer::LENGTH] {
        let mut bytes = [0; Answer::LENGTH];
        let (head, last) = bytes.split_at_mut(ANSWER.len());
        head.copy_from_slice(&ANSWER);
        last.fill(match self {
            Answer::Yes => b'+',
            Answer::No => b'-',
            Answer::Full => b'#',
        });
        bytes
    }

    /// Decode an answer. An unknown one is a no.
    #[must_use]
    pub fn read(bytes: &[u8; Answer::LENGTH]) -> Answer {
        let known = [Answer::Yes, Answer::Full].into_iter();
        known.into_iter().find(|answer| answer.to_bytes() == *bytes).unwrap_or(Answer::No)
    }
}

/// An offer to share memory, as the active side makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpgradeOffer {
    /// The nonce that the TCP connection will name.
    pub nonce: Nonce,
    /// The offerer shares memory with processes of other users, too.
    pub others: bool,
}

impl UpgradeOffer {
    /// Bytes of an offer.
    pub const LENGTH: usize = MAGIC.len() + NONCE + 1;

    /// As it is sent.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        [&MAGIC[..], &self.nonce, &[u8::from(self.others)]].concat()
    }

    /// Reads one.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<UpgradeOffer> {
        let (nonce, others) = bytes.strip_prefix(&MAGIC)?.split_first_chunk()?;
        let others = match others {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        Some(UpgradeOffer { nonce: *nonce, others })
    }
}

/// The user of the process at the other end of a Unix socket, as the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerUser {
    /// The kernel does not say.
    Unknown,
    /// Our own user's.
    SameUser,
    /// Another user's.
    OtherUser,
}

impl PeerUser {
    /// Whether memory may be shared with this user. `both_ask`: both sides share with other users.
    #[must_use]
    pub fn may_share(self, both_ask: bool) -> bool {
        match self {
            PeerUser::Unknown => false,
            PeerUser::SameUser => true,
            PeerUser::OtherUser => both_ask,
        }
    }

    /// Whether shared regions may be mapped by this user's process, and this user's by this one, no matter who
    /// else shares the rings.
    #[must_use]
    pub fn may_lend(self) -> bool {
        self == PeerUser::SameUser
    }
}

/// The properties of memory that was handed over, as the kernel reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFacts {
    /// The memory can neither shrink nor grow, and no process can change that. (A mapping that shrinks faults;
    /// memory that grows may have pages beyond its end.)
    pub keeps_its_size: bool,
    /// The memory is made of ordinary pages. (Huge ones may run out when touched, which is a
    /// signal.)
    pub is_ordinary: bool,
    /// The memory's size in bytes.
    pub size: u64,
    /// Bytes of the pages that the memory has by now. The system makes the others when a process touches them.
    pub held: u64,
}

impl MemoryFacts {
    /// Whether a mapping of `size` bytes of it is harmless; else why not.
    ///
    /// # Errors
    /// The reason why a mapping could fault or shrink, as a sentence.
    pub fn check(self, size: u64) -> Result<(), &'static str> {
        self.check_any_size()?;
        if self.size == size { Ok(()) } else { Err("the shared memory has another size") }
    }

    /// The bytes of a region that is lent, behind `front` bytes of the sides' own, if a mapping of all of it
    /// is harmless; else why not.
    ///
    /// # Errors
    /// The reason why a mapping could fault or shrink, or is too large, as a sentence.
    pub fn check_region(self, front: u64) -> Result<u64, &'static str> {
        self.check_any_size()?;
        if self.held < self.size {
            return Err("the shared region has not all of its pages");
        }
        match self.size.checked_sub(front) {
            Some(length) if (1..=LARGEST).contains(&length) => Ok(length),
            _ => Err("the shared region has no bytes, or too many"),
        }
    }

    fn check_any_size(self) -> Result<(), &'static str> {
        if !self.keeps_its_size {
            Err("the shared memory is not sealed")
        } else if !self.is_ordinary {
            Err("the shared memory is not made of ordinary pages")
        } else {
            Ok(())
        }
    }
}

/// A process that has connected to the upgrade socket.
pub trait Offerer {
    /// The user of that process.
    fn who(&self) -> PeerUser;

    /// How many bytes it says (as many as fit). `None`: nothing yet. If it has gone, it says nothing: no bytes.
    fn receive(&self, into: &mut [u8]) -> Option<usize>;
}

#[derive(Debug)]
struct PendingOffer<V> {
    offerer: V,
    offered: Option<Nonce>,
    since: Time,
}

/// Offers whose TCP connection has not named them yet. Each holds a descriptor of ours, so they are few, and none
/// stays long. A connection whose offer has gone takes TCP.
#[derive(Debug)]
pub struct PendingOffers<V> {
    others: bool,
    places: usize,
    waiting: Vec<PendingOffer<V>>,
}

impl<V: Offerer> PendingOffers<V> {
    /// How many may wait at most.
    pub const PLACES: usize = 256;
    /// For how long.
    pub const PATIENCE: Duration = Duration::from_secs(5);

    /// No offers. `others`: processes of other users may share, if they say the same.
    #[must_use]
    pub fn new(others: bool) -> PendingOffers<V> {
        PendingOffers { others, places: Self::PLACES, waiting: Vec::new() }
    }

    /// From now on so many may wait, and [`PLACES`](Self::PLACES) at most.
    pub fn limit(&mut self, places: usize) {
        self.places = places.clamp(1, Self::PLACES);
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether one more may wait without another that makes room for it.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.waiting.len() < self.places
    }

    /// Drop the offers that have waited too long.
    pub fn tidy(&mut self, now: Time) {
        self.waiting.retain(|offer| now < offer.since.after(Self::PATIENCE));
    }

    /// A process has connected. One whose user may not share takes no place.
    pub fn add(&mut self, offerer: V, now: Time) {
        if !offerer.who().may_share(self.others) {
            return;
        }
        while !self.has_room() {
            self.waiting.remove(0);
        }
        self.waiting.push(PendingOffer { offerer, offered: None, since: now });
    }

    /// The process that has offered to share memory under this nonce, and may.
    pub fn claim(&mut self, nonce: &Nonce) -> Option<V> {
        // The process of this nonce made its offer before it asked. Others may still be about to.
        let others = self.others;
        self.waiting.retain_mut(|offer| {
            if offer.offered.is_none() {
                let mut bytes = [0; UpgradeOffer::LENGTH];
                let Some(count) = offer.offerer.receive(&mut bytes) else { return true };
                let said = bytes.get(..count).unwrap_or_default();
                offer.offered = accept_offer(offer.offerer.who(), others, said);
            }
            offer.offered.is_some()
        });
        let at = self.waiting.iter().position(|offer| offer.offered.as_ref() == Some(nonce))?;
        Some(self.waiting.remove(at).offerer)
    }
}

/// Judge one offer: its nonce, unless its user may not share or its bytes are malformed.
fn accept_offer(who: PeerUser, others: bool, said: &[u8]) -> Option<Nonce> {
    let offer = UpgradeOffer::parse(said)?;
    who.may_share(others && offer.others).then_some(offer.nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_differs_from_start_up_as_early_as_possible() {
        let asked = question(b"0123456789abcdef");
        for length in 0..QUESTION {
            assert_eq!(Opening::read(&asked[..length]), Opening::Unfinished, "{length}");
        }
        let more = [&asked[..], b"MPA"].concat();
        for bytes in [&asked, &more] {
            assert_eq!(Opening::read(bytes), Opening::Question(*b"0123456789abcdef"));
        }
        for other in [&b"M"[..], b"MPA ID Req Frame", b"Transom process2", b"Trbnsom"] {
            assert_eq!(Opening::read(other), Opening::StartUp);
        }
    }

    #[test]
    fn what_is_no_clear_yes_is_a_no() {
        for answer in [Answer::Yes, Answer::No, Answer::Full] {
            assert_eq!(Answer::read(&answer.to_bytes()), answer);
            for at in 0..Answer::LENGTH {
                let mut bytes = answer.to_bytes();
                bytes[at] ^= 0x40;
                assert_eq!(Answer::read(&bytes), Answer::No);
            }
        }
    }

    #[test]
    fn a_greeting_is_read_whole_or_not_at_all() {
        for others in [false, true] {
            let offer = UpgradeOffer { nonce: [7; NONCE], others };
            let bytes = offer.to_bytes();
            assert_eq!(bytes.len(), UpgradeOffer::LENGTH);
            assert_eq!(UpgradeOffer::parse(&bytes), Some(offer));
            for length in 0..bytes.len() {
                assert_eq!(UpgradeOffer::parse(&bytes[..length]), None);
            }
            assert_eq!(UpgradeOffer::parse(&[&bytes[..], &[0]].concat()), None);
        }
    }

    #[test]
    fn users_that_may_share_memory() {
        for both_ask in [false, true] {
            assert!(
                PeerUser::SameUser.may_share(both_ask) && !PeerUser::Unknown.may_share(both_ask)
            );
            assert_eq!(PeerUser::OtherUser.may_share(both_ask), both_ask);
        }
    }

    #[test]
    fn memory_must_be_right_in_every_respect() {
        // The pages of rings come as they are used.
        let right = MemoryFacts { keeps_its_size: true, is_ordinary: true, size: 4096, held: 0 };
        assert_eq!(right.check(4096), Ok(()));
        for wrong in [
            MemoryFacts { keeps_its_size: false, ..right },
            MemoryFacts { is_ordinary: false, ..right },
            MemoryFacts { size: 4095, ..right },
            MemoryFacts { size: 4097, ..right },
        ] {
            assert!(wrong.check(4096).is_err());
        }
    }
}
