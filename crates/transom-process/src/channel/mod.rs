//! A connection over records: a [`Wire`] between two processes. The state is here, with the calls
//! that only touch the surface; start-up and the two directions have a file each.

mod inbound;
mod outbound;
mod setup;

use transom_wire::{
    Around, Begin, Config, Decoded, Event, Facts, Frame, Framing, Glance, Handshake,
    HandshakePhase, Message, MessageId, Operation, ReadLimits, Receiving, Refusal, RefusalClass,
    Release, Role, Sending, SetupError, StartUp, Time, Trailer, Verdicts, Violation,
};

use crate::flow_control::{FlowControl, Patience};
use crate::record::{HEADER, LARGEST_PAYLOAD};
use inbound::Inbound;
use outbound::Outbound;

/// Bytes executed that are acknowledged without company: a quarter of what a ring holds.
const ACK_BYTES: u64 = 2 * LARGEST_PAYLOAD as u64;

/// Events that wait for `poll_event`.
#[derive(Debug, Default)]
struct Pending {
    done: Option<MessageId>,
    resume: bool,
    credit_wanted: bool,
}

/// A connection between two processes as a [`Wire`](transom_wire::Wire): records in, events out; messages in, records
/// out.
#[derive(Debug)]
pub struct Channel {
    handshake: Handshake,
    /// The read limits agreed on; before the Reply those of the Request, seen from here.
    limits: ReadLimits,
    /// The peer takes immediate data and atomics.
    extended: bool,
    /// The words of this side's front and of the peer's, where they have any.
    front_word: Option<u32>,
    peer_front_word: Option<u32>,
    /// The last call of `decode` left the beginning of a record over.
    cut: bool,
    inbound: Inbound,
    outbound: Outbound,
    flow_control: FlowControl,
    pending: Pending,
}

impl Channel {
    /// A channel before its first record. A passive side's timeout begins to run.
    #[must_use]
    pub fn new(config: Config, now: Time) -> Channel {
        Channel {
            handshake: Handshake::new(config, now),
            limits: ReadLimits::default(),
            extended: false,
            front_word: None,
            peer_front_word: None,
            cut: false,
            inbound: Inbound::default(),
            outbound: Outbound::default(),
            flow_control: FlowControl::default(),
            pending: Pending::default(),
        }
    }

    fn patience(&self) -> Patience {
        let config = self.handshake.config();
        Patience { delay: config.ack_delay, records: config.ack_limit, bytes: ACK_BYTES }
    }

    /// A record that is no Write or Send by itself.
    #[inline(never)]
    fn decode_other<'b>(&mut self, now: Time, bytes: &'b [u8]) -> Result<Decoded<'b>, Violation> {
        if self.handshake.phase() == HandshakePhase::Closing {
            return Ok(self.with_news(Decoded::of(bytes.len(), None)));
        }
        let decoded = self.on_record(now, bytes)?;
        self.cut = decoded.consumed == 0 && !bytes.is_empty();
        Ok(self.with_news(decoded))
    }

    /// The acknowledgement that the next record carries.
    fn ack_word(&mut self) -> u64 {
        self.flow_control.word(self.inbound.executed())
    }
}

impl StartUp for Channel {
    fn connect(&mut self, now: Time, limits: ReadLimits, bytes: &[u8]) -> Result<(), SetupError> {
        self.send_request(now, limits, bytes)
    }

    fn set_front_word(&mut self, word: u32) {
        self.front_word = Some(word);
    }

    fn peer_front_word(&self) -> Option<u32> {
        self.peer_front_word
    }

    fn accept(&mut self, now: Time, limits: ReadLimits, bytes: &[u8]) -> Result<(), SetupError> {
        self.send_reply(now, limits, bytes)
    }

    fn reject(&mut self, _now: Time, bytes: &[u8]) -> Result<(), SetupError> {
        self.send_reject(bytes)
    }

    fn confirm(&mut self, _now: Time) -> Result<(), SetupError> {
        self.send_ready()
    }

    fn set_segment_size(&mut self, _bytes: u32) {}

    fn facts(&self) -> Option<Facts> {
        self.handshake.is_agreed().then_some(Facts {
            wire: crate::WIRE,
            checksum: false,
            markers: false,
            extension: true,
            verdicts: Verdicts::Acknowledged,
            limits: self.limits,
            largest_frame: HEADER + LARGEST_PAYLOAD,
            largest_payload: LARGEST_PAYLOAD,
        })
    }

    fn framing(&self) -> Framing {
        Framing::Records
    }

    fn deadline(&self) -> Option<Time> {
        if !self.handshake.is_open() {
            return self.handshake.deadline();
        }
        self.flow_control.deadline(&self.patience())
    }

    fn on_deadline(&mut self, now: Time) -> Result<(), Violation> {
        if let Some(detail) = self.handshake.overdue(now) {
            return Err(self.silent(detail.into()));
        }
        if self.flow_control.deadline(&self.patience()).is_some_and(|at| now >= at) {
            self.flow_control.pacer().flush();
        }
        Ok(())
    }

    fn retry_older(&self) -> bool {
        false
    }
}

impl Receiving for Channel {
    fn decode<'b>(&mut self, now: Time, bytes: &'b [u8]) -> Result<Decoded<'b>, Violation> {
        if let Some(decoded) = self.on_whole_write(bytes) {
            return Ok(decoded);
        }
        if let Some(decoded) = self.on_whole_send(bytes) {
            return Ok(decoded);
        }
        self.decode_other(now, bytes)
    }

    fn poll_event(&mut self) -> Option<Event<'static>> {
        let pending = &mut self.pending;
        if let Some(through) = pending.done.take() {
            return Some(Event::Done { through });
        }
        if std::mem::take(&mut pending.credit_wanted) {
            return Some(Event::CreditWanted);
        }
        std::mem::take(&mut pending.resume).then_some(Event::Resume)
    }

    fn executed(&mut self, now: Time) {
        if let Some(bytes) = self.inbound.release() {
            self.flow_control.executed(now, bytes);
        }
    }

    fn answer(&mut self, _now: Time, old: u64) {
        self.inbound.answer(old);
    }

    fn decline(&mut self, operation: Operation) -> Option<MessageId> {
        if operation.is_answered() {
            self.inbound.answers.pop_back();
        }
        let itself = self.handshake.config().role == Role::Itself;
        if itself { self.outbound.named(self.inbound.last) } else { None }
    }

    fn owes_answers(&self) -> bool {
        !self.inbound.answers.is_empty()
    }

    fn refuse(&mut self, _now: Time, refusal: Option<&Refusal<'_>>) {
        match refusal {
            Some(refusal) => self.send_refusal(refusal),
            None => self.send_end(None, RefusalClass::Internal, u64::MAX, None),
        }
    }

    fn is_using(&self, token: u32) -> bool {
        self.inbound.is_using(token)
    }

    fn receives_posted(&mut self, now: Time, total: u64, shared: bool) {
        self.flow_control.pacer().receives_posted(now, total, shared);
    }

    fn lacks_receive(&self) -> bool {
        self.flow_control.has_none()
    }

    fn link_closed(&mut self, _now: Time, _delivered: bool) -> Result<(), Violation> {
        self.end_of_link()
    }

    /// A record lies in its slot by itself: there is nothing to fetch behind it.
    fn glance(&self, _bytes: &[u8]) -> Option<Glance> {
        None
    }
}

impl Sending for Channel {
    fn begin(&mut self, _now: Time, id: MessageId, message: &Message) -> Begin {
        self.begin_message(id, message)
    }

    fn aim(&mut self, number: u32) -> bool {
        self.aim_at(number);
        true
    }

    #[inline]
    fn around(&mut self, _: Time, message: &Message) -> Option<Around> {
        self.around_message(message)
    }

    fn begin_whole(&mut self, _: Time, id: MessageId, message: &Message, frame: &mut [u8]) {
        self.begin_whole_message(id, message, frame);
    }

    fn next_frame(&mut self, _now: Time) -> Option<Frame> {
        self.choose_frame()
    }

    fn seal(&mut self, _frame: &Frame, _bytes: &mut [u8]) {}

    fn trailer(&mut self, _frame: &Frame) -> Option<Trailer> {
        Some(Trailer { bytes: [0; 8], length: 0 })
    }

    fn abandon(&mut self, _now: Time, frame: &Frame, refusal: &Refusal<'_>) {
        self.abandon_frame(frame, refusal);
    }

    fn has_output(&self) -> bool {
        self.outbound.has_words()
            || self.handshake.is_open()
                && (self.outbound.current.is_some() || !self.inbound.answers.is_empty())
    }

    fn credit(&self) -> Option<u32> {
        Some(self.flow_control.credit())
    }

    fn acknowledgement(&mut self, now: Time) -> Option<u64> {
        let due = self.handshake.is_open()
            && self.flow_control.is_due(now, self.inbound.executed(), &self.patience());
        due.then(|| self.ack_word())
    }

    fn release(&mut self, why: Release) {
        match why {
            Release::IdlePass => self.flow_control.pacer().on_idle_pass(),
            Release::Now => self.flow_control.pacer().flush(),
        }
    }
}
