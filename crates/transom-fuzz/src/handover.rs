//! Other processes of this host at the door where memory is handed over, and on the TCP connection that
//! names it: any user, any bytes, any descriptor, at any time. Only memory that can hurt nobody, of
//! somebody who is welcome, is ever mapped, and it is given to the connection that knows its nonce;
//! nobody who is welcome and says the right thing in time is turned away.
//!
//! Input: one byte of options, then steps.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use transom_process::handover::{
    Answer, Greeting, MemoryFacts, NONCE, Opening, QUESTION, Room, Visitor, Who, question,
};
use transom_wire::Time;

use crate::Input;

/// Options: other users are welcome, if both sides say so.
pub(crate) const OTHERS: u8 = 1;
/// Size that memory must have.
const SIZE: u64 = 0x11_0000;

/// What somebody says, and the memory that comes with it.
type Message = (Vec<u8>, Option<Handle>);

/// Somebody at the door.
struct Guest {
    number: usize,
    who: Who,
    says: Rc<RefCell<Option<Message>>>,
    /// How many are let in: each has a descriptor of ours.
    here: Rc<Cell<usize>>,
}

/// A descriptor that was handed over, as the kernel describes it.
#[derive(Clone)]
struct Handle {
    facts: MemoryFacts,
    number: usize,
    /// What the model says about mapping it.
    may_be_mapped: bool,
}

/// A mapping: of the descriptor of which guest.
struct Mapping(usize);

impl Drop for Guest {
    fn drop(&mut self) {
        self.here.set(self.here.get() - 1);
    }
}

impl Visitor for Guest {
    type Handle = Handle;
    type Memory = Mapping;

    fn who(&self) -> Who {
        self.who
    }

    fn receive(&self, into: &mut [u8]) -> Option<(usize, Option<Handle>)> {
        let (bytes, handle) = self.says.borrow_mut().take()?;
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        Some((count, handle))
    }

    fn adopt(handle: Handle) -> Option<Mapping> {
        assert!(handle.may_be_mapped, "looked at the memory of one who is not welcome");
        handle.facts.check(SIZE).ok().map(|()| Mapping(handle.number))
    }
}

/// What the model knows of somebody who has been let in.
struct Known {
    number: usize,
    who: Who,
    since: Time,
    says: Rc<RefCell<Option<Message>>>,
    /// It has said something.
    said: bool,
    /// Under which nonce its memory can be had, once it has said the right thing.
    nonce: Option<[u8; NONCE]>,
}

struct Door {
    others: bool,
    room: Room<Guest>,
    now: Time,
    here: Rc<Cell<usize>>,
    knocks: usize,
    /// Who should be in the room.
    known: VecDeque<Known>,
}

/// Plays one input.
pub fn handover(input: &[u8]) {
    let mut input = Input(input);
    let Some(options) = input.byte() else { return };
    let others = options & OTHERS != 0;
    let mut door = Door {
        others,
        room: Room::new(others),
        now: Time(1),
        here: Rc::default(),
        knocks: 0,
        known: VecDeque::new(),
    };
    while let Some(step) = input.byte() {
        let more = step >> 3;
        match step % 8 {
            0 => door.knock(more),
            1 => door.say(more, &mut input),
            2 => {
                door.knock(more & 3);
                door.say(0, &mut input);
            }
            3 => door.pass(Duration::from_millis(u64::from(more) * 200)),
            4 | 5 => door.claim(input.byte().unwrap_or(0)),
            6 => opening(&mut input, usize::from(more)),
            _ => answer(&mut input),
        }
        assert_eq!(door.room.len(), door.known.len());
        assert_eq!(door.here.get(), door.known.len(), "nothing of who has gone stays");
        assert!(door.known.len() <= Room::<Guest>::PLACES);
    }
    drop(door.room);
    assert_eq!(door.here.get(), 0);
}

/// A few nonces, so that some are met twice.
fn nonce(which: u8) -> [u8; NONCE] {
    let mut nonce = [b'n'; NONCE];
    nonce[NONCE - 1] = which % 8;
    nonce
}

impl Door {
    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.room.tidy(self.now);
        let now = self.now;
        self.known.retain(|known| now < known.since.after(Duration::from_secs(5)));
    }

    fn knock(&mut self, who: u8) {
        let who =
            [Who::SameUser, Who::OtherUser, Who::Unknown, Who::SameUser][usize::from(who % 4)];
        let says = Rc::default();
        self.here.set(self.here.get() + 1);
        let number = self.knocks;
        self.knocks += 1;
        let here = self.here.clone();
        self.room.let_in(Guest { number, who, says: Rc::clone(&says), here }, self.now);
        if who == Who::SameUser || (who == Who::OtherUser && self.others) {
            if self.known.len() == 256 {
                self.known.pop_front();
            }
            let since = self.now;
            self.known.push_back(Known { number, who, since, says, said: false, nonce: None });
        }
    }

    /// One of the last few says something.
    fn say(&mut self, back: u8, input: &mut Input<'_>) {
        let [form, which, memory] = [(); 3].map(|()| input.byte().unwrap_or(0));
        let mut bytes = [&b"TRANSOM1"[..], &nonce(which), &[form >> 7]].concat();
        match form % 8 {
            0 => bytes.truncate(usize::from(input.byte().unwrap_or(0)) % 26),
            1 => bytes[usize::from(which) % 25] ^= input.byte().unwrap_or(1),
            2 => bytes.push(1),
            3 => bytes = (0..which % 40).map_while(|_| input.byte()).collect(),
            _ => {}
        }
        let Some(at) = self.known.len().checked_sub(1 + usize::from(back)) else { return };
        let known = &mut self.known[at];
        if known.said {
            return;
        }
        known.said = true;
        let wrong = if memory & 8 == 0 { 0 } else { memory & 7 };
        let facts = MemoryFacts {
            keeps_its_size: wrong & 1 == 0,
            is_ordinary: wrong & 2 == 0,
            size: if wrong & 4 == 0 { SIZE } else { SIZE - 4096 },
        };
        let right = bytes.len() >= 25
            && bytes[..8] == *b"TRANSOM1"
            && (bytes[24] == 1 || bytes[24] == 0)
            && (known.who == Who::SameUser || bytes[24] == 1);
        let handle = Handle { facts, number: known.number, may_be_mapped: right };
        if right && memory & 16 == 0 && wrong == 0 {
            known.nonce = bytes[8..24].try_into().ok();
        }
        *known.says.borrow_mut() = Some((bytes, (memory & 16 == 0).then_some(handle)));
    }

    fn claim(&mut self, which: u8) {
        let claimed = self.room.claim(&nonce(which));
        // Whoever has said the wrong thing goes.
        self.known.retain(|known| !known.said || known.nonce.is_some());
        let is_it = |known: &Known| known.nonce == Some(nonce(which));
        match self.known.iter().position(is_it) {
            None => assert!(claimed.is_none(), "of nobody who was to be believed"),
            Some(at) => {
                let known = self.known.remove(at).unwrap();
                let (Mapping(of), guest) = claimed.unwrap();
                assert_eq!((of, guest.number), (known.number, known.number));
            }
        }
    }
}

/// The first bytes of a TCP connection, as they come.
fn opening(input: &mut Input<'_>, more: usize) {
    let mut bytes = question(&nonce(input.byte().unwrap_or(0)));
    for _ in 0..more % 4 {
        let at = usize::from(input.byte().unwrap_or(0)) % bytes.len();
        bytes[at] = input.byte().unwrap_or(0);
    }
    bytes.extend(&input.0[..input.0.len().min(more)]);
    let all = Opening::read(&bytes);
    match all {
        Opening::Question(nonce) => assert_eq!(question(&nonce), bytes[..QUESTION]),
        Opening::StartUp => assert_ne!(bytes[..16], *b"Transom process1"),
        Opening::Unfinished => panic!("{} bytes are enough", bytes.len()),
    }
    // However it is cut: the same, or not yet; and never again another.
    let mut decided = false;
    for cut in 0..=bytes.len() {
        let now = Opening::read(&bytes[..cut]);
        assert!(now == all || now == Opening::Unfinished && !decided, "cut at {cut}");
        decided |= now == all;
    }
}

fn answer(input: &mut Input<'_>) {
    let known = [Answer::Yes, Answer::No, Answer::Full];
    let mut bytes = known[usize::from(input.byte().unwrap_or(0)) % 3].to_bytes();
    let at = usize::from(input.byte().unwrap_or(0)) % (2 * Answer::LENGTH);
    if let Some(place) = bytes.get_mut(at) {
        *place = input.byte().unwrap_or(0);
    }
    let read = Answer::read(&bytes);
    assert!(
        read == Answer::No || read.to_bytes() == bytes,
        "one encoding of what has a consequence"
    );
    if let Some(greeting) = Greeting::parse(&bytes) {
        panic!("an answer is no greeting: {greeting:?}");
    }
}
