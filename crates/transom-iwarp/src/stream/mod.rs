//! An MPA stream: a [`Wire`] over TCP. The state is here, with the calls that only touch
//! the surface; start-up, the two directions and the end of a stream have a file each.

mod acks;
mod blame;
mod failure;
mod frames;
mod inbound;
mod messages;
mod outbound;
mod setup;

use transom_wire::{
    Around, Begin, Blame, Decoded, Event, Facts, Frame, Framing, Glance, Handshake, HandshakePhase,
    Message, MessageId, Operation, ReadLimits, Receiving, Refusal, Release, Role, Sending,
    SetupError, StartUp, Time, Trailer, Verdicts, Violation,
};

use crate::fpdu::{self, Markers};
use crate::{Config, Ready, Revision};
use acks::Acks;
use failure::{Blamed, LastWords};
use inbound::Inbound;
use outbound::Outbound;
use setup::{RequestTerms, Words};

/// An iWARP connection as a [`Wire`](transom_wire::Wire): bytes in, events out; messages in, frames out.
#[derive(Debug)]
pub struct Stream {
    config: Config,
    handshake: Handshake,
    agreed: Agreed,
    /// Passive side: what the Request asked for.
    asked: RequestTerms,
    /// A start-up frame on its way out, and how much of it has gone.
    start_up: (Vec<u8>, usize),
    /// There are none on most streams.
    words: Option<Box<Words>>,
    /// No frame before this moment, or one of the peer's (iW L1, iW 1.2 rule 4).
    held: Option<Time>,
    /// Active side: when a peer that has said nothing is to be woken up (iW L1).
    nudge: Nudge,
    /// Bytes of the peer have been seen at all.
    heard: bool,
    /// The last call of `decode` left the beginning of a frame over.
    cut: bool,
    /// An active side may try again with revision 1.
    retry_older: bool,
    /// The largest segment of the link, 0 if unknown.
    segment: u32,
    /// The longest ULPDU to send; follows from `segment` and what was agreed.
    ulpdu: usize,
    markers: Option<Markers>,
    inbound: Inbound,
    outbound: Outbound,
    acks: Acks,
    pending: Pending,
    last_words: Option<Box<LastWords>>,
    /// The message that the peer refused, until its Terminate comes.
    blamed: Option<Box<Blamed>>,
    /// A frame of the peer has been taken as a message.
    acquainted: bool,
}

/// The agreement of the two start-up frames.
#[derive(Clone, Debug)]
struct Agreed {
    revision: Revision,
    checksum: bool,
    extension: bool,
    /// The program's read limits.
    limits: ReadLimits,
    /// Reads the peer may have under way, as start-up allowed.
    ird: u32,
    /// Reads we may have under way, those for verdicts included.
    ord: u32,
    verdicts: Verdicts,
    /// Active: the frame to begin with.
    ready: Option<Ready>,
}

/// The Writes of no bytes to a plain peer that has never said anything.
#[derive(Debug, Default)]
struct Nudge {
    /// How many have been due so far.
    count: u32,
    /// The time of the next one.
    at: Option<Time>,
    /// A nudge is to go out.
    due: bool,
}

/// How many there are at most.
const NUDGES: u32 = 5;

/// Events that wait for `poll_event`.
#[derive(Debug, Default)]
struct Pending {
    /// Both sides of the connection are this stream, and start-up is over.
    accepted: bool,
    established: bool,
    done: Option<MessageId>,
    resume: bool,
    credit_wanted: bool,
    failed: Option<Event<'static>>,
}

impl Pending {
    /// Whether there are events besides that of messages that were executed.
    fn any(&self) -> bool {
        let events = [self.accepted, self.established, self.resume, self.credit_wanted];
        events.contains(&true) || self.failed.is_some()
    }
}

impl Stream {
    /// A stream before its first byte. A passive side's handshake timeout begins to run.
    #[must_use]
    pub fn new(config: Config, now: Time) -> Stream {
        let mut stream = Stream {
            handshake: Handshake::new(config.common, now),
            agreed: Agreed {
                revision: config.revision,
                checksum: false,
                extension: false,
                limits: ReadLimits::default(),
                ird: 0,
                ord: 0,
                verdicts: Verdicts::SentOnly,
                ready: None,
            },
            asked: RequestTerms::default(),
            start_up: (Vec::new(), 0),
            words: None,
            held: None,
            nudge: Nudge::default(),
            heard: false,
            cut: false,
            retry_older: false,
            segment: 0,
            ulpdu: 0,
            markers: None,
            inbound: Inbound::default(),
            outbound: Outbound::default(),
            acks: Acks::default(),
            pending: Pending::default(),
            last_words: None,
            blamed: None,
            acquainted: false,
            config,
        };
        stream.measure();
        stream
    }

    /// Derives the longest ULPDU (iW 3.1, 3.2). A plain peer gets frames that fit a segment and the
    /// RFC's limit; between Transoms a frame fills a whole number of segments.
    fn measure(&mut self) {
        let wanted = usize::try_from(self.config.largest_frame).unwrap_or(fpdu::LARGEST);
        let segment = usize::try_from(self.segment).unwrap_or(0);
        let frame = match (self.agreed.extension, segment) {
            (true, 0) => wanted,
            (true, segment) if segment < wanted => wanted / segment * segment,
            (true, _) => wanted,
            (false, 0) => wanted.min(fpdu::size(fpdu::RFC_ULPDU)),
            (false, segment) => wanted.min(fpdu::size(fpdu::RFC_ULPDU)).min(segment),
        };
        let markers = if self.markers.is_some() { 4 * frame.div_ceil(512) } else { 0 };
        let overhead = fpdu::LENGTH + fpdu::CRC + frame % 4 + markers;
        self.ulpdu = frame.saturating_sub(overhead).clamp(128, 65_535);
    }

    /// Active side: send no frame to a plain peer for a moment, unless it speaks first. siw's
    /// acceptor misses a frame that comes right behind its Reply, and one that shares a segment
    /// with the ready-to-receive frame; only further bytes wake it up (iW L1).
    fn hold(&mut self, now: Time) {
        if !self.agreed.extension && !self.config.hold.is_zero() {
            self.held = Some(now.after(self.config.hold));
        }
    }

    /// Passive side, nothing says that the peer is ready: leave it the first word for a while (iW 1.2
    /// rule 4).
    fn fence(&mut self, now: Time) {
        if !self.config.fence.is_zero() {
            self.held = Some(now.after(self.config.fence));
        }
    }

    /// A decoded frame, and with it the acknowledgements that have become known.
    #[inline]
    fn with_news<'b>(&mut self, decoded: Decoded<'b>) -> Decoded<'b> {
        Decoded { done: self.pending.done.take(), news: self.pending.any(), ..decoded }
    }

    /// Whether frames other than start-up and a Terminate may leave; time may have released them.
    fn may_send(&mut self, now: Time) -> bool {
        if self.held.is_some_and(|until| now >= until) {
            self.held = None;
        }
        self.handshake.is_open() && self.held.is_none()
    }

    /// A frame has gone out to a plain peer. If that is an acceptor that has said nothing yet, it may
    /// be siw, and have missed all of them (iW L1).
    fn expect_sign_of_life(&mut self, now: Time) {
        let silent = !self.acquainted && self.nudge.count == 0 && !self.config.nudge.is_zero();
        if silent && self.config.common.role == Role::Active {
            self.nudge.at.get_or_insert(now.after(self.config.nudge));
        }
    }

    /// The peer is still silent: it gets a Write of no bytes, and the next one after twice the time.
    fn wake_up(&mut self, now: Time) {
        let nudge = &mut self.nudge;
        nudge.due = true;
        nudge.count += 1;
        let pause = self.config.nudge.saturating_mul(1 << nudge.count);
        nudge.at = (nudge.count < NUDGES).then(|| now.after(pause));
    }
}

impl StartUp for Stream {
    fn connect(&mut self, now: Time, limits: ReadLimits, bytes: &[u8]) -> Result<(), SetupError> {
        self.send_request(now, limits, bytes)
    }

    fn accept(&mut self, now: Time, limits: ReadLimits, bytes: &[u8]) -> Result<(), SetupError> {
        self.send_reply(now, limits, bytes)
    }

    fn reject(&mut self, _now: Time, bytes: &[u8]) -> Result<(), SetupError> {
        self.send_reject(bytes)
    }

    fn confirm(&mut self, now: Time) -> Result<(), SetupError> {
        self.handshake.confirm()?;
        self.outbound.ready = self.agreed.ready;
        self.start_acks();
        let _ = self.may_send(now);
        self.pending.resume = true;
        Ok(())
    }

    fn retry_older(&self) -> bool {
        self.retry_older
    }

    fn set_segment_size(&mut self, bytes: u32) {
        self.segment = bytes;
        self.measure();
    }

    fn facts(&self) -> Option<Facts> {
        self.handshake.is_agreed().then(|| Facts {
            wire: match self.agreed.revision {
                Revision::One => "iWARP over TCP (MPA revision 1)",
                Revision::Two => "iWARP over TCP (MPA revision 2)",
            },
            checksum: self.agreed.checksum,
            markers: self.markers.is_some(),
            extension: self.agreed.extension,
            verdicts: self.agreed.verdicts,
            limits: self.agreed.limits,
            largest_frame: fpdu::LARGEST,
            largest_payload: self.ulpdu - crate::ddp::TAGGED,
        })
    }

    fn deadline(&self) -> Option<Time> {
        match self.held {
            _ if !self.handshake.is_open() => self.handshake.deadline(),
            // A plain peer has no acknowledgements, and a Transom needs no nudge.
            None => self.nudge.at.or(self.acks.deadline(self.config.common.ack_delay)),
            held => held,
        }
    }

    fn on_deadline(&mut self, now: Time) -> Result<(), Violation> {
        if let Some(detail) = self.handshake.overdue(now) {
            return Err(self.silent(Blame::Peer, "RFC 5044 7.1.2", detail.into()));
        }
        if self.handshake.is_open() && self.held.is_some_and(|until| now >= until) {
            self.held = None;
            self.pending.resume = true;
        }
        if self.handshake.is_open() && self.nudge.at.is_some_and(|at| now >= at) {
            self.wake_up(now);
        }
        if self.acks.deadline(self.config.common.ack_delay).is_some_and(|at| now >= at) {
            self.acks.pacer().flush();
        }
        Ok(())
    }

    fn set_front_word(&mut self, word: u32) {
        self.words.get_or_insert_default().own = Some(word);
    }

    fn peer_front_word(&self) -> Option<u32> {
        self.words.as_ref()?.peers
    }

    fn framing(&self) -> Framing {
        Framing::Fpdus
    }
}

impl Receiving for Stream {
    fn decode<'b>(&mut self, now: Time, bytes: &'b [u8]) -> Result<Decoded<'b>, Violation> {
        if let Some(decoded) = self.on_predicted(bytes) {
            return Ok(decoded);
        }
        self.heard |= !bytes.is_empty();
        let decoded = match self.handshake.phase() {
            HandshakePhase::WaitReply => self.on_reply(now, bytes),
            HandshakePhase::WaitRequest => self.on_request(bytes),
            HandshakePhase::Idle | HandshakePhase::Pending if bytes.is_empty() => {
                Ok(Decoded::NOTHING)
            }
            HandshakePhase::Idle | HandshakePhase::Pending => Err(self.early(bytes)),
            HandshakePhase::Accepted | HandshakePhase::WaitReady | HandshakePhase::Open => {
                self.on_frame(bytes)
            }
            HandshakePhase::Closing => Ok(Decoded::of(bytes.len(), None)),
        };
        self.cut = matches!(decoded, Ok(Decoded { consumed: 0, .. })) && !bytes.is_empty();
        decoded.map(|decoded| self.with_news(decoded))
    }

    fn glance(&self, bytes: &[u8]) -> Option<Glance> {
        self.guess_frame(bytes)
    }

    fn poll_event(&mut self) -> Option<Event<'static>> {
        let pending = &mut self.pending;
        if std::mem::take(&mut pending.accepted) {
            let limits = self.agreed.limits;
            return Some(Event::Accepted { limits, private: &[] });
        }
        if std::mem::take(&mut pending.established) {
            return Some(Event::Established);
        }
        if let Some(through) = pending.done.take() {
            return Some(Event::Done { through });
        }
        if std::mem::take(&mut pending.credit_wanted) {
            return Some(Event::CreditWanted);
        }
        if std::mem::take(&mut pending.resume) {
            return Some(Event::Resume);
        }
        pending.failed.take()
    }

    fn executed(&mut self, now: Time) {
        if self.inbound.unexecuted > 0 {
            self.inbound.unexecuted -= 1;
            if self.agreed.extension {
                self.acks.executed(now);
            }
        }
    }

    fn answer(&mut self, _now: Time, old: u64) {
        self.inbound.answer(old);
    }

    fn decline(&mut self, operation: Operation) -> Option<MessageId> {
        let number = self.inbound.blamed;
        if operation.is_answered() {
            self.inbound.answers.pop_back();
        }
        let itself = self.config.common.role == Role::Itself;
        if itself { self.named(operation, number) } else { None }
    }

    fn owes_answers(&self) -> bool {
        !self.inbound.answers.is_empty()
    }

    fn refuse(&mut self, _now: Time, refusal: Option<&Refusal<'_>>) {
        match refusal {
            Some(refusal) => self.refuse_last(refusal),
            None => self.fail_here(),
        }
    }

    fn is_using(&self, token: u32) -> bool {
        self.inbound.is_using(token)
    }

    fn receives_posted(&mut self, now: Time, total: u64, shared: bool) {
        self.acks.pacer().receives_posted(now, total, shared);
    }

    fn lacks_receive(&self) -> bool {
        self.acks.has_none()
    }

    fn link_closed(&mut self, _now: Time, delivered: bool) -> Result<(), Violation> {
        self.end_of_link(delivered)
    }
}

impl Sending for Stream {
    fn begin(&mut self, now: Time, id: MessageId, message: &Message) -> Begin {
        self.begin_message(now, id, message)
    }

    fn aim(&mut self, number: u32) -> bool {
        self.aim_at(number)
    }

    fn around(&mut self, now: Time, message: &Message) -> Option<Around> {
        self.around_message(now, message)
    }

    fn begin_whole(&mut self, _: Time, id: MessageId, message: &Message, frame: &mut [u8]) {
        self.begin_whole_message(id, message, frame);
    }

    fn next_frame(&mut self, now: Time) -> Option<Frame> {
        let mut frame = self.choose_frame(now)?;
        if frame.sealed {
            let filled = usize::from(frame.header_length) + frame.length as usize;
            let behind = match &self.markers {
                Some(markers) => markers.behind(filled),
                None => fpdu::behind(filled - fpdu::LENGTH),
            };
            frame.back = u16::try_from(behind).unwrap_or(u16::MAX);
        }
        Some(frame)
    }

    fn seal(&mut self, frame: &Frame, bytes: &mut [u8]) {
        if !frame.sealed {
            return;
        }
        let filled = bytes.len().saturating_sub(usize::from(frame.back));
        match &mut self.markers {
            Some(markers) => markers.seal(bytes, filled, self.agreed.checksum),
            None => {
                bytes.get_mut(filled..).unwrap_or_default().fill(0);
                fpdu::close(bytes, self.agreed.checksum);
            }
        }
    }

    fn trailer(&mut self, frame: &Frame) -> Option<Trailer> {
        if !frame.sealed {
            return Some(Trailer { bytes: [0; 8], length: 0 });
        }
        if self.agreed.checksum || self.markers.is_some() {
            return None;
        }
        // Padding and an unused checksum field, all zeros.
        let padding = (4 - (u32::from(frame.header_length) + frame.length) % 4) % 4;
        let length = u8::try_from(padding).unwrap_or(0) + 4;
        Some(Trailer { bytes: [0; 8], length })
    }

    fn abandon(&mut self, _now: Time, frame: &Frame, refusal: &Refusal<'_>) {
        self.abandon_frame(frame, refusal);
    }

    fn has_output(&self) -> bool {
        self.start_up.1 < self.start_up.0.len()
            || self.last_words.is_some()
            || (self.handshake.is_open()
                && (self.outbound.is_busy()
                    || self.nudge.due
                    || self.wants_probe()
                    || !self.inbound.answers.is_empty()
                    || self.acks.is_ripe(self.config.common.ack_limit)))
    }

    fn credit(&self) -> Option<u32> {
        self.agreed.extension.then(|| self.acks.credit())
    }

    /// Acknowledgements of a stream leave in frames.
    fn acknowledgement(&mut self, _now: Time) -> Option<u64> {
        None
    }

    fn release(&mut self, why: Release) {
        match why {
            Release::IdlePass => self.acks.pacer().on_idle_pass(),
            Release::Now => self.acks.pacer().flush(),
        }
    }
}
