//! What two processes say to each other before they share memory, and who is believed; without a system
//! call. `transom-engine` has the sockets and the mappings (its `driver/handover.rs` tells the whole story).
//!
//! The active side hands memory over at the *door* beside the peer's port: a [`Greeting`] with a nonce,
//! and a descriptor. Then it says the nonce on the TCP connection ([`question`]). The passive side keeps
//! who has come to its door in a [`Room`], and [claims](Room::claim) what was handed over under that nonce.
//! Everybody of this host can knock at a door and say what he likes, so all that is believed is what
//! the kernel says: who it is ([`Who`]), and what the memory is like ([`MemoryFacts`]).

use std::time::Duration;

use transom_wire::Time;

/// Says which hand-over a TCP connection is about.
pub type Nonce = [u8; NONCE];
/// Bytes of a [`Nonce`].
pub const NONCE: usize = 16;

/// What an active side says first on its TCP connection: this, then the nonce. MPA begins otherwise.
const ASK: [u8; 16] = *b"Transom process1";
/// Bytes of a question.
pub const QUESTION: usize = ASK.len() + NONCE;
/// An answer: this, and what it is.
const ANSWER: [u8; 15] = *b"Transom process";
/// What is said at the door: this, the nonce, and whether other users are welcome.
const HELLO: [u8; 8] = *b"TRANSOM1";

/// What an active side says first on its TCP connection, once it has handed over.
#[must_use]
pub fn question(nonce: &Nonce) -> Vec<u8> {
    [ASK, *nonce].concat()
}

/// What the first bytes of a TCP connection are.
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

/// What the passive side says to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Start-up goes on in the rings.
    Yes,
    /// It goes on over TCP.
    No,
    /// It goes on over TCP, because this side shares memory over as many connections as it may.
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

    /// Reads one. What nobody understands is a no.
    #[must_use]
    pub fn read(bytes: &[u8; Answer::LENGTH]) -> Answer {
        let known = [Answer::Yes, Answer::Full].into_iter();
        known.into_iter().find(|answer| answer.to_bytes() == *bytes).unwrap_or(Answer::No)
    }
}

/// What is said at the door, beside the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// What the TCP connection will say.
    pub nonce: Nonce,
    /// Whoever says this shares memory with processes of other users, too.
    pub others: bool,
}

impl Greeting {
    /// Bytes of a greeting.
    pub const LENGTH: usize = HELLO.len() + NONCE + 1;

    /// As it is sent.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        [&HELLO[..], &self.nonce, &[u8::from(self.others)]].concat()
    }

    /// Reads one.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Greeting> {
        let (nonce, others) = bytes.strip_prefix(&HELLO)?.split_first_chunk()?;
        let others = match others {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        Some(Greeting { nonce: *nonce, others })
    }
}

/// Whose process is at the other end of a Unix socket, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The kernel does not say.
    Unknown,
    /// Our own user's.
    SameUser,
    /// Another user's.
    OtherUser,
}

impl Who {
    /// Whether it may be shared memory with.
    #[must_use]
    pub fn is_welcome(self, both_ask: bool) -> bool {
        match self {
            Who::Unknown => false,
            Who::SameUser => true,
            Who::OtherUser => both_ask,
        }
    }
}

/// What memory is like that somebody has handed over, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFacts {
    /// It cannot shrink, and nobody can change that. (A mapping of what shrinks is a trap.)
    pub keeps_its_size: bool,
    /// It is made of ordinary pages. (Huge ones may run out when they are touched, which is a signal.)
    pub is_ordinary: bool,
    /// Its size.
    pub size: u64,
}

impl MemoryFacts {
    /// Whether it can hurt nobody who maps `size` bytes of it; else why not.
    pub fn check(self, size: u64) -> Result<(), &'static str> {
        if !self.keeps_its_size {
            Err("the shared memory is not sealed")
        } else if !self.is_ordinary {
            Err("the shared memory is not made of ordinary pages")
        } else if self.size != size {
            Err("the shared memory has another size")
        } else {
            Ok(())
        }
    }
}

/// Somebody at the door.
pub trait Visitor {
    /// A descriptor.
    type Handle;
    /// A mapping.
    type Memory;

    /// Whose process it is.
    fn who(&self) -> Who;

    /// How many bytes it says (as many as fit), and what comes with them. `None`: nothing yet. If it
    /// has gone, it says nothing: no bytes.
    fn receive(&self, into: &mut [u8]) -> Option<(usize, Option<Self::Handle>)>;

    /// Map what it has handed over, if that [can hurt nobody](MemoryFacts::check).
    fn adopt(handle: Self::Handle) -> Option<Self::Memory>;
}

#[derive(Debug)]
struct Knock<V, M> {
    visitor: V,
    brought: Option<(Nonce, M)>,
    since: Time,
}

/// Those who have come to a door and whose TCP connection has not named them yet. Each has a descriptor
/// of ours, or a mapping, so they are few, and none stays long. Whoever comes too late takes TCP.
#[derive(Debug)]
pub struct Room<V: Visitor> {
    others: bool,
    waiting: Vec<Knock<V, V::Memory>>,
}

impl<V: Visitor> Room<V> {
    /// How many may wait.
    pub const PLACES: usize = 256;
    /// For how long.
    pub const PATIENCE: Duration = Duration::from_secs(5);

    /// An empty one. `others`: processes of other users are welcome, if they say the same.
    #[must_use]
    pub fn new(others: bool) -> Room<V> {
        Room { others, waiting: Vec::new() }
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Those who have waited too long go.
    pub fn tidy(&mut self, now: Time) {
        self.waiting.retain(|knock| now < knock.since.after(Self::PATIENCE));
    }

    /// Somebody has knocked. Who is not welcome takes nobody's place.
    pub fn let_in(&mut self, visitor: V, now: Time) {
        if !visitor.who().is_welcome(self.others) {
            return;
        }
        if self.waiting.len() >= Self::PLACES {
            self.waiting.remove(0);
        }
        self.waiting.push(Knock { visitor, brought: None, since: now });
    }

    /// What was handed over under this nonce, and by whom.
    pub fn claim(&mut self, nonce: &Nonce) -> Option<(V::Memory, V)> {
        // Whoever this nonce is of has handed over before it asked. Others may still be about to.
        let others = self.others;
        self.waiting.retain_mut(|knock| {
            if knock.brought.is_none() {
                let mut bytes = [0; Greeting::LENGTH];
                let Some((count, handle)) = knock.visitor.receive(&mut bytes) else { return true };
                let said = bytes.get(..count).unwrap_or_default();
                knock.brought = judge::<V>(knock.visitor.who(), others, said, handle);
            }
            knock.brought.is_some()
        });
        let is_it = |knock: &Knock<V, V::Memory>| {
            knock.brought.as_ref().is_some_and(|(known, _)| known == nonce)
        };
        let at = self.waiting.iter().position(is_it)?;
        let Knock { visitor, brought, .. } = self.waiting.remove(at);
        Some((brought?.1, visitor))
    }
}

/// What somebody hands over. Nothing is mapped for who is not welcome or says something else.
fn judge<V: Visitor>(
    who: Who,
    others: bool,
    said: &[u8],
    handle: Option<V::Handle>,
) -> Option<(Nonce, V::Memory)> {
    let greeting = Greeting::parse(said)?;
    if !who.is_welcome(others && greeting.others) {
        return None;
    }
    Some((greeting.nonce, V::adopt(handle?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_told_from_start_up_as_soon_as_it_can_be() {
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
            let greeting = Greeting { nonce: [7; NONCE], others };
            let bytes = greeting.to_bytes();
            assert_eq!(bytes.len(), Greeting::LENGTH);
            assert_eq!(Greeting::parse(&bytes), Some(greeting));
            for length in 0..bytes.len() {
                assert_eq!(Greeting::parse(&bytes[..length]), None);
            }
            assert_eq!(Greeting::parse(&[&bytes[..], &[0]].concat()), None);
        }
    }

    #[test]
    fn who_is_welcome() {
        for both_ask in [false, true] {
            assert!(Who::SameUser.is_welcome(both_ask) && !Who::Unknown.is_welcome(both_ask));
            assert_eq!(Who::OtherUser.is_welcome(both_ask), both_ask);
        }
    }

    #[test]
    fn memory_must_be_right_in_every_respect() {
        let right = MemoryFacts { keeps_its_size: true, is_ordinary: true, size: 4096 };
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
