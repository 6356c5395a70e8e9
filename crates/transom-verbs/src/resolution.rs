//! Resolution of services: how an id of port space UDP finds the queue pair number behind a port of the
//! peer's (Verbs V135). A question and its answer are one UDP datagram each; the side that asks repeats
//! its question, and the side that answers remembers its answers for as long.
//!
//! Anybody can ask in any name. So a question is as long as the longest answer, an answer is sent without a
//! wait, and the questions that are known have shares: of a socket, a network, all.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use transom_engine::raw::{self, IpFields};

use crate::abi::{cm_event, ibv_ah_attr};
use crate::cm::{DatagramPort, Event, Id, REJECT_DATA, REJECTED_BY_PROGRAM, State, padded};
use crate::errno::{Errno, Result};
use crate::timers;

/// Bytes of private data that a question and an answer may bring, and that programs find.
pub(crate) const QUESTION_DATA: usize = 180;
pub(crate) const ANSWER_DATA: usize = 136;
/// The key of queue pairs of port space UDP.
pub(crate) const KEY: u32 = 0x0123_4567;
/// When a question is repeated, and when it is given up.
const REPETITION: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a question that the program has is known.
const MEMORY: Duration = Duration::from_secs(10);
/// Questions that a listener knows at a time: of one socket, of one address (of one /64 network of IPv6),
/// and in all. As many Requests wait for a program at most with Linux (ucma.c, `max_backlog`).
const OF_SOCKET: usize = 16;
const OF_NETWORK: usize = 256;
const OF_ALL: usize = 1024;

const MAGIC: [u8; 4] = *b"TVSR";
const VERSION: u8 = 2;
const QUESTION: u8 = 1;
const ANSWER: u8 = 2;
/// Bytes before the private data of either.
const QUESTION_HEADER: usize = 20;
const ANSWER_HEADER: usize = 28;
/// Bytes of every question. No answer has more, because the source of a question may be another's; nor has
/// one on InfiniBand, where both have 256 (Architecture Specification 13.4).
const QUESTION_SIZE: usize = QUESTION_HEADER + QUESTION_DATA;
const _: () = assert!(ANSWER_HEADER + REJECT_DATA <= QUESTION_SIZE);

type Nonce = [u8; 8];

/// The answer to a question: where datagrams go, or that there is no such service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    status: u32,
    number: u32,
    key: u32,
}

fn head(kind: u8, length: usize, nonce: Nonce) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend([VERSION, kind]);
    bytes.extend((length as u16).to_be_bytes());
    bytes.extend(nonce);
    bytes
}

fn encode_question(nonce: Nonce, private: &[u8]) -> Vec<u8> {
    let mut bytes = head(QUESTION, private.len(), nonce);
    bytes.extend([0; 4]); // the number of the queue pair that asks: none
    bytes.extend(private);
    bytes.resize(QUESTION_SIZE, 0);
    bytes
}

fn encode_answer(nonce: Nonce, answer: Answer, private: &[u8]) -> Vec<u8> {
    let mut bytes = head(ANSWER, private.len(), nonce);
    for word in [answer.status, answer.number, answer.key] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend(private);
    bytes
}

/// The random bytes of a message of this kind, what is behind the head, and the length that it says its
/// private data has.
fn decode(bytes: &[u8], kind: u8, header: usize) -> Option<(Nonce, &[u8], usize, &[u8])> {
    let (head, private) = bytes.split_at_checked(header)?;
    let (head, rest) = head.split_first_chunk::<16>()?;
    let [m0, m1, m2, m3, version, its_kind, l0, l1, nonce @ ..] = *head;
    let length = usize::from(u16::from_be_bytes([l0, l1]));
    let fits = [m0, m1, m2, m3] == MAGIC && version == VERSION && its_kind == kind;
    fits.then_some((nonce, rest, length, private))
}

fn decode_question(bytes: &[u8]) -> Option<(Nonce, &[u8])> {
    let (nonce, _, length, private) = decode(bytes, QUESTION, QUESTION_HEADER)?;
    let private = private.get(..length).filter(|_| bytes.len() == QUESTION_SIZE)?;
    Some((nonce, private))
}

fn decode_answer(bytes: &[u8]) -> Option<(Nonce, Answer, &[u8])> {
    let (nonce, words, length, private) = decode(bytes, ANSWER, ANSWER_HEADER)?;
    if private.len() != length || length > REJECT_DATA {
        return None;
    }
    let mut words = words.chunks_exact(4).filter_map(|word| word.try_into().ok());
    let mut next = || words.next().map(u32::from_be_bytes);
    let answer = Answer { status: next()?, number: next()? & 0xff_ffff, key: next()? };
    Some((nonce, answer, private))
}

// ---- the side that answers -----------------------------------------------------------------------

/// Questions that a listener has had of late.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<Vec<Asked>>);

#[derive(Debug)]
struct Asked {
    peer: SocketAddr,
    nonce: Nonce,
    since: Instant,
    stage: Stage,
}

/// How far a question has come.
#[derive(Debug)]
enum Stage {
    /// The program has not fetched the event.
    Waiting,
    Fetched,
    Answered(Vec<u8>),
}

/// A question, and what is to be done with it.
enum Next {
    New,
    Repeat(Vec<u8>),
    Nothing,
}

/// The host, or the /64 network of IPv6, that an address stands for.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

impl Known {
    fn lock(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A question that waits for the program stays. Behind the others a new one finds room: the oldest of
    /// its socket, of its network or of all is forgotten, whichever has its share.
    fn asked(&self, peer: SocketAddr, nonce: Nonce, now: Instant) -> Next {
        let mut all = self.lock();
        all.retain(|asked| matches!(asked.stage, Stage::Waiting) || now - asked.since < MEMORY);
        match all.iter().find(|asked| (asked.peer, asked.nonce) == (peer, nonce)) {
            Some(Asked { stage: Stage::Answered(answer), .. }) => {
                return Next::Repeat(answer.clone());
            }
            Some(_) => return Next::Nothing,
            None => {}
        }
        let network = network_of(peer.ip());
        for most in [OF_SOCKET, OF_NETWORK, OF_ALL] {
            let is_of = |asked: &Asked| match most {
                OF_SOCKET => asked.peer == peer,
                OF_NETWORK => network_of(asked.peer.ip()) == network,
                _ => true,
            };
            if all.iter().filter(|asked| is_of(asked)).count() < most {
                continue;
            }
            let over = |asked: &Asked| is_of(asked) && !matches!(asked.stage, Stage::Waiting);
            let Some(oldest) = all.iter().position(over) else { return Next::Nothing };
            all.remove(oldest);
        }
        all.push(Asked { peer, nonce, since: now, stage: Stage::Waiting });
        Next::New
    }

    fn set(&self, (peer, nonce): (SocketAddr, Nonce), stage: Stage) {
        let mut all = self.lock();
        let mut of = all.iter_mut().filter(|asked| (asked.peer, asked.nonce) == (peer, nonce));
        if let Some(asked) = of.next() {
            (asked.since, asked.stage) = (Instant::now(), stage);
        }
    }
}

/// A question that a program has to answer. Dropping it rejects.
#[derive(Debug)]
pub(crate) struct Question {
    port: Arc<raw::DatagramPort>,
    known: Weak<Known>,
    peer: SocketAddr,
    local: IpAddr,
    nonce: Nonce,
    answered: bool,
}

impl Question {
    fn answer(&mut self, answer: Answer, private: &[u8]) {
        let bytes = encode_answer(self.nonce, answer, private);
        self.answered = true;
        if let Some(known) = self.known.upgrade() {
            known.set((self.peer, self.nonce), Stage::Answered(bytes.clone()));
        }
        // A lost one is asked for again.
        let _ = self.port.send_now(self.local, self.peer, IpFields::default(), &bytes);
    }

    /// The program has fetched the event.
    fn fetched(&self) {
        if let Some(known) = self.known.upgrade() {
            known.set((self.peer, self.nonce), Stage::Fetched);
        }
    }

    /// Datagrams go to the queue pair `number`.
    pub(crate) fn accept(mut self, number: u32, private: &[u8]) {
        self.answer(Answer { status: 0, number, key: KEY }, private);
    }

    pub(crate) fn reject(mut self, private: &[u8]) {
        let status = REJECTED_BY_PROGRAM.unsigned_abs();
        self.answer(Answer { status, number: 0, key: 0 }, private);
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if !self.answered {
            let status = REJECTED_BY_PROGRAM.unsigned_abs();
            self.answer(Answer { status, number: 0, key: 0 }, &[]);
        }
    }
}

// ---- ids -----------------------------------------------------------------------------------------

/// The part of an id that is of port space UDP.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    /// The id's port.
    port: Option<DatagramPort>,
    known: Arc<Known>,
    /// The question that the program has to answer.
    question: Option<Question>,
    /// The random bytes of its own question.
    nonce: Option<Nonce>,
}

impl Datagrams {
    pub(crate) fn asked(question: Question) -> Datagrams {
        Datagrams { question: Some(question), ..Datagrams::default() }
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.port.is_some()
    }

    pub(crate) fn give(&mut self, port: DatagramPort) {
        self.port = Some(port);
    }

    pub(crate) fn take_question(&mut self) -> Option<Question> {
        self.question.take()
    }

    /// The program has fetched the event of the question.
    pub(crate) fn question_is_fetched(&self) {
        if let Some(question) = &self.question {
            question.fetched();
        }
    }
}

/// The attributes of the address handle and the queue pair that an answer brings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    pub(crate) attr: ibv_ah_attr,
    pub(crate) number: u32,
    pub(crate) key: u32,
}

/// Where the messages to an id's port go.
pub(crate) fn sink(id: &Arc<Id>) -> impl Fn(&[u8], &raw::Message) + Send + Sync + use<> {
    let to = Arc::downgrade(id);
    move |bytes: &[u8], message: &raw::Message| {
        if let Some(id) = to.upgrade() {
            arrived(&id, bytes, message.from, message.to);
        }
    }
}

fn arrived(id: &Arc<Id>, bytes: &[u8], from: SocketAddr, local: IpAddr) {
    if let Some((nonce, private)) = decode_question(bytes) {
        asked(id, nonce, private, from, local);
    } else if let Some((nonce, answer, private)) = decode_answer(bytes) {
        answered(id, nonce, answer, private, from);
    }
}

/// A peer asks a listening id.
fn asked(id: &Arc<Id>, nonce: Nonce, private: &[u8], from: SocketAddr, local: IpAddr) {
    let (port, known) = {
        let inner = id.lock();
        match (&inner.datagrams, inner.state) {
            (Some(Datagrams { port: Some(port), known, .. }), State::Listening) => {
                (port.port.clone(), known.clone())
            }
            _ => return,
        }
    };
    match known.asked(from, nonce, Instant::now()) {
        Next::Nothing => {}
        Next::Repeat(answer) => {
            let _ = port.send_now(local, from, IpFields::default(), &answer);
        }
        Next::New => {
            let known = Arc::downgrade(&known);
            let question = Question { port, known, peer: from, local, nonce, answered: false };
            id.requested_service(question, (local, from), padded(private.to_vec(), QUESTION_DATA));
        }
    }
}

/// An id asks its peer for the service; ESTABLISHED, REJECTED or UNREACHABLE follows.
pub(crate) fn ask(id: &Arc<Id>, private: &[u8]) -> Result {
    let seed = raw::random_seed().map_err(|_| Errno::EIO)?;
    let nonce: Nonce = seed.first_chunk().copied().ok_or(Errno::EIO)?;
    if let Some(part) = &mut id.lock().datagrams {
        part.nonce = Some(nonce);
    }
    repeat(id, nonce, encode_question(nonce, private).into(), Instant::now());
    Ok(())
}

fn repeat(id: &Arc<Id>, nonce: Nonce, question: Arc<[u8]>, since: Instant) {
    let (port, local, peer) = {
        let inner = id.lock();
        let part = inner.datagrams.as_ref().filter(|part| part.nonce == Some(nonce));
        let port = part.and_then(|part| part.port.as_ref()).map(|port| port.port.clone());
        let (Some(port), Some(local), Some(peer)) = (port, inner.local, inner.peer) else { return };
        if inner.state != State::Connecting {
            return;
        }
        (port, local.ip(), peer)
    };
    if since.elapsed() >= PATIENCE {
        id.lock().state = State::Disconnected;
        return id.raise(cm_event::UNREACHABLE, -Errno::ETIMEDOUT.0, Vec::new());
    }
    let _ = port.send_now(local, peer, IpFields::default(), &question); // repeated anyway
    let later = Arc::downgrade(id);
    timers::after(REPETITION, move || {
        if let Some(id) = later.upgrade() {
            repeat(&id, nonce, question, since);
        }
    });
}

/// An answer has come, maybe not from the peer that was asked.
fn answered(id: &Arc<Id>, nonce: Nonce, answer: Answer, private: &[u8], from: SocketAddr) {
    let (own, peer) = {
        let mut inner = id.lock();
        let mine = inner.datagrams.as_ref().is_some_and(|part| part.nonce == Some(nonce));
        if !mine || inner.state != State::Connecting || inner.peer != Some(from) {
            return;
        }
        let accepted = answer.status == 0;
        inner.state = if accepted { State::Established } else { State::Disconnected };
        (inner.local, from)
    };
    if answer.status != 0 {
        let status = i32::try_from(answer.status).unwrap_or(REJECTED_BY_PROGRAM);
        return id.raise(cm_event::REJECTED, status, padded(private.to_vec(), REJECT_DATA));
    }
    let Some(own) = own else { return };
    let service = Service {
        attr: id.address_attributes(own.ip(), peer.ip()),
        number: answer.number,
        key: answer.key,
    };
    let private = padded(private.to_vec(), ANSWER_DATA);
    id.push(Event { private, service: Some(service), ..id.event(cm_event::ESTABLISHED) });
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: Nonce = [1, 2, 3, 4, 5, 6, 7, 8];

    #[test]
    fn v135_a_question_byte_for_byte_and_back() {
        let bytes = encode_question(NONCE, b"ab");
        let expected = b"TVSR\x02\x01\x00\x02\x01\x02\x03\x04\x05\x06\x07\x08\x00\x00\x00\x00ab";
        assert_eq!(bytes, [&expected[..], &[0; 178]].concat());
        assert_eq!(decode_question(&bytes), Some((NONCE, &b"ab"[..])));
    }

    #[test]
    fn v135_an_answer_byte_for_byte_and_back() {
        let answer = Answer { status: 28, number: 0x12_3456, key: 0x0123_4567 };
        let bytes = encode_answer(NONCE, answer, b"ab");
        let expected = b"TVSR\x02\x02\x00\x02\x01\x02\x03\x04\x05\x06\x07\x08\
            \x00\x00\x00\x1c\x00\x12\x34\x56\x01\x23\x45\x67ab";
        assert_eq!(bytes, expected);
        assert_eq!(decode_answer(&bytes), Some((NONCE, answer, &b"ab"[..])));
    }

    #[test]
    fn v135_other_bytes_are_neither() {
        let good = encode_question(NONCE, b"ab");
        for length in 0..good.len() {
            assert_eq!(decode_question(&good[..length]), None, "{length} bytes");
        }
        for at in [0, 4, 5, 6] {
            let mut bytes = good.clone();
            bytes[at] ^= 3;
            assert_eq!(decode_question(&bytes), None, "byte {at}");
        }
        assert_eq!(decode_answer(&good), None);
        assert_eq!(decode_question(&[&good[..], &[0]].concat()), None, "a byte more");
        let mut bytes = encode_question(NONCE, &[0; QUESTION_DATA]);
        assert!(decode_question(&bytes).is_some());
        bytes[7] += 1;
        assert_eq!(decode_question(&bytes), None, "more private data than there is");
        let answer = encode_answer(NONCE, Answer { status: 0, number: 1, key: 1 }, b"ab");
        assert!(decode_answer(&answer).is_some());
        assert_eq!(decode_answer(&answer[..answer.len() - 1]), None);
    }

    #[test]
    fn v135_a_repeated_question_gets_the_same_answer_once_there_is_one() {
        let known = Known::default();
        let peer: SocketAddr = "192.0.2.1:7".parse().unwrap();
        let now = Instant::now();
        let asked = |now| known.asked(peer, NONCE, now);
        assert!(matches!(asked(now), Next::New));
        assert!(matches!(asked(now), Next::Nothing), "the program has it");
        known.set((peer, NONCE), Stage::Fetched);
        assert!(matches!(asked(now), Next::Nothing), "the program has it still");
        known.set((peer, NONCE), Stage::Answered(b"answer".to_vec()));
        assert!(matches!(asked(now), Next::Repeat(answer) if answer == b"answer"));
        let other = known.asked("192.0.2.1:8".parse().unwrap(), NONCE, now);
        assert!(matches!(other, Next::New), "another peer");
        assert!(matches!(asked(Instant::now() + MEMORY), Next::New), "forgotten");
    }

    /// A question beyond the share is refused if all of the share waits for the program. Otherwise it takes
    /// the place of the oldest that does not.
    #[test]
    fn v135_a_socket_a_network_and_all_have_their_shares() {
        let of_socket = |_: usize| "192.0.2.1:7".parse().unwrap();
        let of_network = |i: usize| format!("192.0.2.1:{}", 8 + i).parse().unwrap();
        let of_ipv6 = |i: usize| format!("[2001:db8::{i:x}]:7").parse().unwrap();
        let of_all = |i: usize| format!("198.51.{}.{}:7", i / 200, i % 200).parse().unwrap();
        type Peer<'a> = &'a dyn Fn(usize) -> SocketAddr;
        let cases: [(usize, Peer<'_>); 4] = [
            (OF_SOCKET, &of_socket),
            (OF_NETWORK, &of_network),
            (OF_NETWORK, &of_ipv6),
            (OF_ALL, &of_all),
        ];
        for (most, peer) in cases {
            let (known, now) = (Known::default(), Instant::now());
            let nonce = |i: usize| Nonce::from((i as u64).to_be_bytes());
            let is_new = |i| matches!(known.asked(peer(i), nonce(i), now), Next::New);
            assert!((0..most).all(is_new), "{most}");
            assert!(!is_new(most), "{most}: all of them wait for the program");
            let other = "203.0.113.1:7".parse().unwrap();
            let elsewhere = matches!(known.asked(other, NONCE, now), Next::New);
            assert_eq!(elsewhere, most < OF_ALL, "{most}");
            known.set((peer(1), nonce(1)), Stage::Fetched);
            known.set((peer(2), nonce(2)), Stage::Answered(b"answer".to_vec()));
            assert!(is_new(most), "in place of the one that was fetched");
            assert!(matches!(known.asked(peer(2), nonce(2), now), Next::Repeat(_)));
            assert!(is_new(1), "in place of the one that was answered");
            assert!(!is_new(2));
        }
    }

    #[test]
    fn v135_a_question_that_is_never_answered_is_forgotten_once_the_program_has_it() {
        let (known, peer) = (Known::default(), "192.0.2.1:7".parse().unwrap());
        let asked = |now| known.asked(peer, NONCE, now);
        let later = Instant::now() + 2 * MEMORY;
        assert!(matches!(asked(Instant::now()), Next::New));
        assert!(matches!(asked(later), Next::Nothing), "the program has not fetched it");
        known.set((peer, NONCE), Stage::Fetched);
        assert!(matches!(asked(later), Next::New));
    }
}
