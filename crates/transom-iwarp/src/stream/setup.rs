//! Start-up (RFC 5044 7.1, RFC 6581 9): two frames, and what follows from them.

use transom_wire::{
    Blame, Decoded, Event, HandshakePhase, ReadLimits, Role, SetupError, Time, Verdicts, Violation,
};

use super::Stream;
use crate::faults::Fault;
use crate::fpdu::Markers;
use crate::mpa::{self, Enhanced, FrameKind, Malformed, StartUp, UNLIMITED};
use crate::{Ready, Revision};

/// The wishes of a Request, as far as the Reply depends on it.
#[derive(Debug, Default)]
pub(super) struct RequestTerms {
    revision: u8,
    flags: u8,
    enhanced: Option<Enhanced>,
}

impl RequestTerms {
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The words of both fronts, which only Transoms tell each other. A Request is written before it is known what the
/// peer is, so that the passive side asks.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) own: Option<u32>,
    pub(super) peers: Option<u32>,
    exchange: Exchange,
}

impl Words {
    /// The peer's word in front of its private data, and what is the program's; `None`: there is none.
    fn take<'b>(&mut self, private: &'b [u8]) -> Option<&'b [u8]> {
        let (word, rest) = private.split_first_chunk()?;
        self.peers = Some(u32::from_be_bytes(*word));
        Some(rest)
    }
}

/// How far the question is.
#[derive(Debug, Default, PartialEq, Eq)]
enum Exchange {
    /// None is expected.
    #[default]
    None,
    /// Active side: the Request with the word, for a peer that asks.
    Answer(Vec<u8>),
    /// Passive side: the Request has come, and its sender was asked.
    Asked,
}

/// Bytes of private data that a start-up frame carries.
fn room(enhanced: bool, word: bool) -> usize {
    mpa::MAX_PRIVATE - if enhanced { 4 } else { 0 } - if word { WORD } else { 0 }
}

/// Bytes of a word in front of private data.
const WORD: usize = 4;

fn with_word(word: u32, private: &[u8]) -> Vec<u8> {
    [&word.to_be_bytes(), private].concat()
}

/// A read limit as it travels.
fn wire_limit(reads: u32) -> u16 {
    u16::try_from(reads).unwrap_or(UNLIMITED).min(UNLIMITED - 1)
}

impl Stream {
    /// Whether the Request counts one read more than its program wants: for verdicts by a peer that
    /// turns out to be a plain one. An offer of the extension always does.
    fn hides_a_slot(&self) -> bool {
        self.config.verdict_reads || self.config.extension
    }

    fn queue_start_up(&mut self, frame: &StartUp<'_>) {
        self.start_up = (frame.to_vec(), 0);
    }

    // ---- active side --------------------------------------------------------------------------

    pub(super) fn send_request(
        &mut self,
        now: Time,
        limits: ReadLimits,
        private: &[u8],
    ) -> Result<(), SetupError> {
        let two = self.config.revision == Revision::Two;
        let word = self.own_word().filter(|_| self.config.extension);
        self.handshake.request(now, private, room(two, word.is_some()))?;
        let limits = self.handshake.capped(limits);
        if self.config.common.role == Role::Itself {
            self.agree_with_itself(limits);
            return Ok(());
        }
        let least = self.config.least_reads;
        let hidden = u32::from(two && self.hides_a_slot());
        // A Read as ready-to-receive frame takes a slot too.
        let least_ord = least.max(u32::from(self.config.peer_to_peer));
        self.agreed.limits = limits;
        self.agreed.ird = limits.inbound.max(least);
        self.agreed.ord = if two {
            limits.outbound.saturating_add(hidden).max(least_ord)
        } else {
            limits.outbound
        };
        let flags = if self.config.checksum { mpa::CHECKSUM } else { 0 }
            | if two { mpa::ENHANCED } else { 0 }
            | if self.config.extension { mpa::OFFER } else { 0 }
            | if word.is_some() { mpa::ANSWERS } else { 0 }
            | if self.config.extension && limits.inbound == 0 { mpa::NO_READS } else { 0 };
        let enhanced = two.then(|| Enhanced {
            peer_to_peer: self.config.peer_to_peer,
            send: false,
            write: self.config.peer_to_peer,
            read: self.config.peer_to_peer,
            ird: wire_limit(self.agreed.ird),
            ord: wire_limit(self.agreed.ord),
        });
        let revision = if two { 2 } else { 1 };
        let request = StartUp { kind: FrameKind::Request, flags, revision, enhanced, private };
        if let Some(word) = word {
            let answer = StartUp { private: &with_word(word, private), ..request };
            self.words.get_or_insert_default().exchange = Exchange::Answer(answer.to_vec());
        }
        self.queue_start_up(&request);
        Ok(())
    }

    /// Both ends are this stream, so each knows what the other one wants.
    fn agree_with_itself(&mut self, limits: ReadLimits) {
        let reads = limits.inbound.min(limits.outbound);
        let agreed = &mut self.agreed;
        agreed.limits = ReadLimits { inbound: reads, outbound: reads };
        (agreed.ird, agreed.ord, agreed.extension) = (reads, reads, true);
        self.settle_verdicts(true);
        self.measure();
        self.handshake.on_reply();
        self.pending.accepted = true;
    }

    pub(super) fn on_reply<'b>(
        &mut self,
        now: Time,
        bytes: &'b [u8],
    ) -> Result<Decoded<'b>, Violation> {
        if bytes.starts_with(&mpa::QUESTION)
            && let Some(words) = &mut self.words
            && let Exchange::Answer(answer) = std::mem::take(&mut words.exchange)
        {
            self.start_up = (answer, 0);
            return Ok(Decoded::of(mpa::QUESTION.len(), None));
        }
        let (reply, consumed) = match StartUp::parse(bytes, FrameKind::Reply) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return Ok(Decoded::NOTHING),
            Err(_) if self.is_question_begun(bytes) => return Ok(Decoded::NOTHING),
            Err(malformed) => return Err(self.malformed(malformed)),
        };
        let mut private = reply.private;
        if reply.has(mpa::REJECT) {
            self.end();
            return Ok(Decoded::of(consumed, Some(Event::Rejected { private })));
        }
        let two = self.config.revision == Revision::Two;
        if reply.revision != if two { 2 } else { 1 } || reply.enhanced.is_some() != two {
            let detail = format!(
                "the peer answered start-up in revision {}{}; expected the revision of the request",
                reply.revision,
                if reply.enhanced.is_some() { "" } else { " without read limits" },
            );
            return Err(self.silent(Blame::Peer, "RFC 6581 10", detail));
        }
        let agreed = &mut self.agreed;
        agreed.checksum = self.config.checksum || reply.has(mpa::CHECKSUM);
        // A Reply with the offer's bit comes from a peer that mirrors what it does not know.
        agreed.extension =
            self.config.extension && reply.has(mpa::ACCEPT) && !reply.has(mpa::OFFER);
        if let Some(words) = &mut self.words {
            words.exchange = Exchange::None;
            if agreed.extension && reply.has(mpa::TELLS) {
                let Some(rest) = words.take(private) else {
                    return Err(self.malformed(Malformed::ShortWord));
                };
                private = rest;
            }
        }
        self.markers = reply.has(mpa::MARKERS).then(Markers::default);
        let fault = reply.enhanced.and_then(|word| self.agree_as_initiator(word));
        self.settle_verdicts(two);
        self.measure();
        self.hold(now);
        if let Some((fault, detail)) = fault {
            return Err(self.fault(fault, detail));
        }
        self.handshake.on_reply();
        let limits = self.agreed.limits;
        Ok(Decoded::of(consumed, Some(Event::Accepted { limits, private })))
    }

    /// The first bytes of a question that may still come.
    fn is_question_begun(&self, bytes: &[u8]) -> bool {
        let words = self.words.as_deref();
        let answers = words.is_some_and(|words| matches!(words.exchange, Exchange::Answer(_)));
        answers && mpa::QUESTION.starts_with(bytes)
    }

    /// RFC 6581 9.1, 9.2, seen from the initiator.
    fn agree_as_initiator(&mut self, word: Enhanced) -> Option<(Fault, String)> {
        let agreed = &mut self.agreed;
        if word.ird != UNLIMITED {
            agreed.ord = agreed.ord.min(u32::from(word.ird));
        }
        if word.ord != UNLIMITED {
            let needed = u32::from(word.ord);
            if needed > agreed.ird {
                let have = agreed.ird;
                let detail =
                    format!("the peer wants {needed} reads at a time of this side's {have}");
                return Some((Fault::StartReads, detail));
            }
            agreed.limits.inbound = agreed.limits.inbound.min(needed);
        }
        if self.config.peer_to_peer && word.peer_to_peer {
            agreed.ready = match word {
                Enhanced { write: true, .. } => Some(Ready::Write),
                Enhanced { read: true, .. } => Some(Ready::Read),
                _ => {
                    let detail =
                        "the peer's reply names no ready-to-receive frame that was offered";
                    return Some((Fault::StartReady, detail.into()));
                }
            };
        }
        None
    }

    /// Decides what vouches for Writes, and what is left of the outbound reads for the user:
    /// verdicts of a plain peer have a slot above the user's limit where the peer serves one more,
    /// and otherwise wait for a free one of the user's.
    fn settle_verdicts(&mut self, enhanced: bool) {
        let config = &self.config;
        let agreed = &mut self.agreed;
        let wanted = agreed.limits.outbound;
        if agreed.extension {
            agreed.verdicts = Verdicts::Acknowledged;
            agreed.ord = agreed.ord.min(wanted);
        } else if enhanced && config.verdict_reads {
            agreed.verdicts =
                if agreed.ord > 0 { Verdicts::ProbedByRead } else { Verdicts::SentOnly };
        }
        agreed.limits.outbound = agreed.limits.outbound.min(agreed.ord);
    }

    // ---- passive side -------------------------------------------------------------------------

    pub(super) fn on_request<'b>(&mut self, bytes: &'b [u8]) -> Result<Decoded<'b>, Violation> {
        let (request, consumed) = match StartUp::parse(bytes, FrameKind::Request) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return Ok(Decoded::NOTHING),
            Err(malformed) => return Err(self.malformed(malformed)),
        };
        let mut private = request.private;
        self.asked = RequestTerms {
            revision: request.revision,
            flags: request.flags,
            enhanced: request.enhanced,
        };
        if self.config.asks_front_word && self.takes_word() {
            let words = self.words.get_or_insert_default();
            if words.exchange != Exchange::Asked {
                words.exchange = Exchange::Asked;
                self.start_up = (mpa::QUESTION.to_vec(), 0);
                return Ok(Decoded::of(consumed, None));
            }
            let Some(rest) = words.take(private) else {
                return Err(self.malformed(Malformed::ShortWord));
            };
            private = rest;
        }
        self.handshake.on_request();
        let limits = self.offered();
        Ok(Decoded::of(consumed, Some(Event::ConnectRequest { limits, private })))
    }

    fn takes_extension(&self) -> bool {
        self.config.extension && self.asked.has(mpa::OFFER)
    }

    fn own_word(&self) -> Option<u32> {
        self.words.as_ref()?.own
    }

    /// The sender of the Request asks for a word of this side's front, and has one of its own.
    fn takes_word(&self) -> bool {
        self.takes_extension() && self.asked.has(mpa::ANSWERS)
    }

    /// The offer of the Request, seen from here, without hidden slots of either side.
    fn offered(&self) -> ReadLimits {
        let Some(word) = self.asked.enhanced else { return self.config.common.read_caps };
        let of = |limit: u16| if limit == UNLIMITED { u32::MAX } else { u32::from(limit) };
        let (mut inbound, mut outbound) = (of(word.ord), of(word.ird));
        if self.takes_extension() {
            inbound = inbound.saturating_sub(1);
            if self.asked.has(mpa::NO_READS) {
                outbound = 0;
            }
        }
        self.handshake.capped(ReadLimits { inbound, outbound })
    }

    pub(super) fn send_reply(
        &mut self,
        now: Time,
        limits: ReadLimits,
        private: &[u8],
    ) -> Result<(), SetupError> {
        let word = self.own_word().filter(|_| self.takes_word());
        self.handshake.reply(now, private, room(self.asked.enhanced.is_some(), word.is_some()))?;
        let limits = self.handshake.capped(limits);
        self.agreed.revision = if self.asked.revision >= 2 { Revision::Two } else { Revision::One };
        self.agreed.checksum = self.config.checksum || self.asked.has(mpa::CHECKSUM);
        self.agreed.extension = self.takes_extension();
        self.agreed.limits = limits.within(self.offered());
        self.agreed.ird = self.agreed.limits.inbound;
        self.agreed.ord = self.agreed.limits.outbound;
        let enhanced = self.asked.enhanced.map(|word| self.agree_as_responder(word, limits));
        self.settle_verdicts(enhanced.is_some());
        self.markers = self.asked.has(mpa::MARKERS).then(Markers::default);
        self.measure();
        let flags = if self.agreed.checksum { mpa::CHECKSUM } else { 0 }
            | if enhanced.is_some() { mpa::ENHANCED } else { 0 }
            | if self.agreed.extension { mpa::ACCEPT } else { 0 }
            | if word.is_some() { mpa::TELLS } else { 0 };
        let revision = self.asked.revision;
        let told = word.map(|word| with_word(word, private));
        let private = told.as_deref().unwrap_or(private);
        self.queue_start_up(&StartUp {
            kind: FrameKind::Reply,
            flags,
            revision,
            enhanced,
            private,
        });
        let speaks_first = enhanced.is_some_and(|word| word.peer_to_peer) || self.agreed.extension;
        if !speaks_first {
            // Nothing else will say that the peer is there (iW 2.4).
            self.handshake.open();
            self.fence(now);
            self.pending.established = true;
        }
        Ok(())
    }

    /// RFC 6581 9.1, 9.2, seen from the responder: the enhanced word of the Reply.
    fn agree_as_responder(&mut self, word: Enhanced, limits: ReadLimits) -> Enhanced {
        let mut reply = Enhanced { peer_to_peer: word.peer_to_peer, ..Enhanced::default() };
        if word.peer_to_peer {
            match (word.read, word.write, self.config.preferred_ready) {
                (true, true, Ready::Write) | (false, true, _) => reply.write = true,
                (true, ..) => reply.read = true,
                // iW S12: name what we support; the initiator will end it.
                (false, false, _) => (reply.read, reply.write) = (true, true),
            }
        }
        let agreed = &mut self.agreed;
        let least = self.config.least_reads;
        let ready_read = u32::from(reply.read);
        if self.config.verdict_reads && !agreed.extension && word.ird != UNLIMITED {
            agreed.ord = limits.outbound.saturating_add(1).min(u32::from(word.ird));
        } else if word.ird == UNLIMITED {
            agreed.ord = limits.outbound.saturating_add(u32::from(self.config.verdict_reads));
        }
        if !agreed.extension {
            agreed.ird = agreed.ird.max(least).max(ready_read);
        }
        reply.ird = if word.ord == UNLIMITED { UNLIMITED } else { wire_limit(agreed.ird) };
        reply.ord = if word.ird == UNLIMITED { UNLIMITED } else { wire_limit(agreed.ord) };
        reply
    }

    pub(super) fn send_reject(&mut self, private: &[u8]) -> Result<(), SetupError> {
        let enhanced = self.asked.enhanced;
        self.handshake.reject(private, room(enhanced.is_some(), false))?;
        let checksum = self.config.checksum || self.asked.has(mpa::CHECKSUM);
        let flags = mpa::REJECT
            | if checksum { mpa::CHECKSUM } else { 0 }
            | if enhanced.is_some() { mpa::ENHANCED } else { 0 };
        let revision = self.asked.revision;
        self.queue_start_up(&StartUp {
            kind: FrameKind::Reply,
            flags,
            revision,
            enhanced,
            private,
        });
        Ok(())
    }

    // ---- what can go wrong --------------------------------------------------------------------

    fn malformed(&mut self, malformed: Malformed) -> Violation {
        let (rule, detail) = match malformed {
            Malformed::OtherKey => (
                "RFC 5044 7.1.2",
                "the peer plays the same part in start-up as this side; one has to listen".into(),
            ),
            Malformed::Key => (
                "RFC 5044 7.1.1",
                "the peer does not speak MPA; expected the key of a start-up frame".into(),
            ),
            Malformed::Revision(found) => (
                "RFC 5044 7.1.1",
                format!("MPA revision {found} in start-up; this side speaks 1 and 2"),
            ),
            Malformed::PrivateLength(found) => (
                "RFC 5044 7.1.1",
                format!("{found} bytes of private data in start-up; at most 512"),
            ),
            Malformed::ShortEnhanced => {
                ("RFC 6581 9", "enhanced start-up without the 4 bytes of its read limits".into())
            }
            Malformed::ShortWord => {
                ("RFC 5044 7.1.1", "a start-up frame without the word that it promises".into())
            }
        };
        self.silent(Blame::Peer, rule, detail)
    }

    /// Bytes where none may be.
    pub(super) fn early(&mut self, bytes: &[u8]) -> Violation {
        let detail = format!("{} bytes before the peer was answered", bytes.len());
        self.silent(Blame::Peer, "RFC 5044 7.1.2", detail)
    }

    /// The link is gone. `delivered`: in order, with every byte of this side taken.
    pub(super) fn end_of_link(&mut self, delivered: bool) -> Result<(), Violation> {
        let detail = match self.handshake.cut_short() {
            Some(_) if self.handshake.phase() == HandshakePhase::WaitReply && !self.heard => {
                self.retry_older = self.config.revision == Revision::Two;
                "the peer ended the link instead of answering the connection request"
            }
            Some(start_up) => start_up,
            None if !self.handshake.is_open() => return self.last_farewell(),
            None if self.cut => "the link ended in the middle of a frame",
            None if self.inbound.is_unfinished() => "the link ended in the middle of a message",
            None => {
                if delivered {
                    self.settle_delivered();
                }
                self.end();
                return self.last_farewell();
            }
        };
        Err(self.silent(Blame::Peer, "RFC 5044 8 (1)", detail.into()))
    }
}
