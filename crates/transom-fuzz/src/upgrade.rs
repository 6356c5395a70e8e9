//! Other processes of this host at the upgrade socket where they offer to share memory, and on the TCP
//! connection that names an offer: any user, any bytes, at any time. Only a user that may share is ever
//! believed, and the connection that knows its nonce gets it; no well-formed offer of such a user is turned
//! away in time.
//!
//! Input: one byte of options, then steps.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use transom_process::upgrade::{
    Answer, NONCE, Offerer, Opening, PeerUser, PendingOffers, QUESTION, UpgradeOffer, question,
};
use transom_wire::Time;

use crate::Input;

/// Options: other users are welcome, if both sides say so.
pub(crate) const OTHERS: u8 = 1;
/// A process at the upgrade socket.
struct Guest {
    number: usize,
    who: PeerUser,
    says: Rc<RefCell<Option<Vec<u8>>>>,
    /// How many are let in: each has a descriptor of ours.
    here: Rc<Cell<usize>>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.here.set(self.here.get() - 1);
    }
}

impl Offerer for Guest {
    fn who(&self) -> PeerUser {
        self.who
    }

    fn receive(&self, into: &mut [u8]) -> Option<usize> {
        let bytes = self.says.borrow_mut().take()?;
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        Some(count)
    }
}

/// A guest who has been let in, as the model knows it.
struct Known {
    number: usize,
    who: PeerUser,
    since: Time,
    says: Rc<RefCell<Option<Vec<u8>>>>,
    /// The guest has said something.
    said: bool,
    /// Under which nonce it can be claimed, once it has said the right thing.
    nonce: Option<[u8; NONCE]>,
}

struct Model {
    others: bool,
    pending: PendingOffers<Guest>,
    now: Time,
    here: Rc<Cell<usize>>,
    offers: usize,
    /// The offers that should be pending.
    known: VecDeque<Known>,
}

/// Plays one input.
pub fn upgrade(input: &[u8]) {
    let mut input = Input(input);
    let Some(options) = input.byte() else { return };
    let others = options & OTHERS != 0;
    let mut model = Model {
        others,
        pending: PendingOffers::new(others),
        now: Time(1),
        here: Rc::default(),
        offers: 0,
        known: VecDeque::new(),
    };
    while let Some(step) = input.byte() {
        let more = step >> 3;
        match step % 8 {
            0 => model.offer(more),
            1 => model.say(more, &mut input),
            2 => {
                model.offer(more & 3);
                model.say(0, &mut input);
            }
            3 => model.pass(Duration::from_millis(u64::from(more) * 200)),
            4 | 5 => model.claim(input.byte().unwrap_or(0)),
            6 => opening(&mut input, usize::from(more)),
            _ => answer(&mut input),
        }
        assert_eq!(model.pending.len(), model.known.len());
        assert_eq!(model.here.get(), model.known.len(), "nothing of who has gone stays");
        assert!(model.known.len() <= PendingOffers::<Guest>::PLACES);
    }
    drop(model.pending);
    assert_eq!(model.here.get(), 0);
}

/// A few nonces, so that some are met twice.
fn nonce(which: u8) -> [u8; NONCE] {
    let mut nonce = [b'n'; NONCE];
    nonce[NONCE - 1] = which % 8;
    nonce
}

impl Model {
    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.pending.tidy(self.now);
        let now = self.now;
        self.known.retain(|known| now < known.since.after(Duration::from_secs(5)));
    }

    fn offer(&mut self, who: u8) {
        let who = [PeerUser::SameUser, PeerUser::OtherUser, PeerUser::Unknown, PeerUser::SameUser]
            [usize::from(who % 4)];
        let says = Rc::default();
        self.here.set(self.here.get() + 1);
        let number = self.offers;
        self.offers += 1;
        let here = self.here.clone();
        self.pending.add(Guest { number, who, says: Rc::clone(&says), here }, self.now);
        if who == PeerUser::SameUser || (who == PeerUser::OtherUser && self.others) {
            if self.known.len() == 256 {
                self.known.pop_front();
            }
            let since = self.now;
            self.known.push_back(Known { number, who, since, says, said: false, nonce: None });
        }
    }

    /// A guest among the last few says something.
    fn say(&mut self, back: u8, input: &mut Input<'_>) {
        let [form, which] = [(); 2].map(|()| input.byte().unwrap_or(0));
        let mut bytes = [&b"TRANSOM6"[..], &nonce(which), &[form >> 7]].concat();
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
        let right = bytes.len() >= 25
            && bytes[..8] == *b"TRANSOM6"
            && (bytes[24] == 1 || bytes[24] == 0)
            && (known.who == PeerUser::SameUser || bytes[24] == 1);
        if right {
            known.nonce = bytes[8..24].try_into().ok();
        }
        *known.says.borrow_mut() = Some(bytes);
    }

    fn claim(&mut self, which: u8) {
        let claimed = self.pending.claim(&nonce(which));
        // An offerer that has said the wrong thing is dropped.
        self.known.retain(|known| !known.said || known.nonce.is_some());
        let is_it = |known: &Known| known.nonce == Some(nonce(which));
        match self.known.iter().position(is_it) {
            None => assert!(claimed.is_none(), "of nobody who was to be believed"),
            Some(at) => {
                let known = self.known.remove(at).unwrap();
                assert_eq!(claimed.unwrap().number, known.number);
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
    if let Some(offer) = UpgradeOffer::parse(&bytes) {
        panic!("an answer is no offer: {offer:?}");
    }
}
