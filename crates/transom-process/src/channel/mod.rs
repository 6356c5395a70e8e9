//! A connection over records: a [`Wire`] between two processes. The state is here, with the calls
//! that only touch the surface; start-up and the two directions have a file each.

mod inbound;
mod outbound;
mod setup;

use std::time::Duration;

use transom_wire::{
    Begin, Decoded, Event, Facts, Frame, Framing, Message, MessageId, Placing, ReadLimits, Refusal,
    RefusalClass, Role, SMALL_HEADER, SetupError, Time, Trailer, Verdicts, Violation, Wire,
};

use crate::ledger::{Ledger, Patience};
use crate::record::{HEADER, LARGEST_PAYLOAD};
use inbound::Inbound;
use outbound::Outbound;

/// The configuration of one side of a channel. The limits are those of start-up over TCP, so that a
/// program cannot tell which path it has.
#[derive(Clone, Debug)]
pub struct Config {
    /// The role at start-up: the active side speaks first.
    pub role: Role,
    /// The most private data to send, in bytes (RFC 6581: what fits beside the enhanced word).
    pub private_limit: usize,
    /// The most reads at a time, whatever is asked for.
    pub read_caps: ReadLimits,
    /// The link has a place for acknowledgements beside the records
    /// ([`Wire::acknowledgement`]); if not, they are records of their own.
    pub beside: bool,
    /// Passive side: how long the Request may take, from the constructor.
    pub handshake_timeout: Duration,
    /// Active side: how long the other program may take to answer the Request.
    pub reply_timeout: Duration,
    /// Passive side: how long the other program may take to complete the connection.
    pub confirm_timeout: Option<Duration>,
    /// How long a Send may wait for a plain receive queue at the peer.
    pub receive_wait: Duration,
    /// How long an owed acknowledgement waits for a record to ride on.
    pub ack_delay: Duration,
    /// Owed records that are not kept waiting.
    pub ack_limit: u32,
}

impl Config {
    /// The usual.
    #[must_use]
    pub fn new(role: Role) -> Config {
        Config {
            role,
            private_limit: 508,
            read_caps: ReadLimits { inbound: 128, outbound: 128 },
            beside: false,
            handshake_timeout: Duration::from_secs(5),
            reply_timeout: Duration::from_secs(60),
            confirm_timeout: Some(Duration::from_secs(60)),
            receive_wait: Duration::from_secs(1),
            ack_delay: Duration::from_micros(20),
            ack_limit: 16,
        }
    }
}

/// Bytes executed that are acknowledged without company: a quarter of what a ring holds.
const ACK_BYTES: u64 = 2 * LARGEST_PAYLOAD as u64;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Active: `connect` has not been called.
    Idle,
    /// Active: the Request is out.
    WaitReply,
    /// Active: accepted; `confirm` has not been called.
    Accepted,
    /// Passive: nothing has come.
    WaitRequest,
    /// Passive: the Request is here, the program thinks.
    Pending,
    /// Passive: accepted; the active side has not completed.
    WaitReady,
    /// Messages flow.
    Open,
    /// Ended: the rest is sent, what arrives is thrown away.
    Closing,
}

/// Events that wait for `poll_event`.
#[derive(Debug, Default)]
struct Pending {
    done: Option<MessageId>,
    resume: bool,
    credit_wanted: bool,
}

/// A connection between two processes as a [`Wire`]: records in, events out; messages in, records
/// out.
#[derive(Debug)]
pub struct Channel {
    config: Config,
    phase: Phase,
    /// Both start-up records have been seen or said.
    known: bool,
    limits: ReadLimits,
    /// Passive side: what the Request offers, seen from here.
    offered: ReadLimits,
    timeout: Option<Time>,
    /// The last call of `decode` left the beginning of a record over.
    cut: bool,
    inbound: Inbound,
    outbound: Outbound,
    ledger: Ledger,
    pending: Pending,
}

const NOTHING: Decoded<'static> = Decoded { consumed: 0, event: None };

impl Channel {
    /// A channel before its first record. A passive side's timeout begins to run.
    #[must_use]
    pub fn new(config: Config, now: Time) -> Channel {
        let active = config.role == Role::Active;
        Channel {
            phase: if active { Phase::Idle } else { Phase::WaitRequest },
            known: false,
            limits: ReadLimits::default(),
            offered: ReadLimits::default(),
            timeout: (!active).then(|| now.after(config.handshake_timeout)),
            cut: false,
            inbound: Inbound::default(),
            outbound: Outbound::default(),
            ledger: Ledger::default(),
            pending: Pending::default(),
            config,
        }
    }

    fn patience(&self) -> Patience {
        Patience { delay: self.config.ack_delay, records: self.config.ack_limit, bytes: ACK_BYTES }
    }

    /// Nothing more is sent or received, but for what is queued.
    fn end(&mut self) {
        self.phase = Phase::Closing;
        self.timeout = None;
    }

    /// The acknowledgement that the next record carries.
    fn ack_word(&mut self) -> u64 {
        self.ledger.word(self.inbound.executed())
    }
}

impl Wire for Channel {
    fn connect(&mut self, now: Time, limits: ReadLimits, bytes: &[u8]) -> Result<(), SetupError> {
        self.send_request(now, limits, bytes)
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

    fn decode<'b>(&mut self, now: Time, bytes: &'b [u8]) -> Result<Decoded<'b>, Violation> {
        if self.phase == Phase::Closing {
            return Ok(Decoded { consumed: bytes.len(), event: None });
        }
        let decoded = self.on_record(now, bytes);
        self.cut = matches!(decoded, Ok(Decoded { consumed: 0, .. })) && !bytes.is_empty();
        decoded
    }

    fn on_whole(&mut self, header: &[u8; SMALL_HEADER]) -> Option<Placing> {
        self.on_whole_write(header)
    }

    fn executed(&mut self, now: Time) {
        if let Some(bytes) = self.inbound.release() {
            self.ledger.executed(now, bytes);
        }
    }

    fn refuse(&mut self, _now: Time, refusal: &Refusal<'_>) {
        self.send_refusal(refusal);
    }

    fn fail(&mut self, _now: Time) {
        self.send_end(None, RefusalClass::Internal, u64::MAX, None);
    }

    fn receives_posted(&mut self, now: Time, total: u64, shared: bool) {
        self.ledger.pacer().receives_posted(now, total, shared);
    }

    fn begin(&mut self, _now: Time, id: MessageId, message: &Message) -> Begin {
        self.begin_message(id, message)
    }

    fn next_frame(&mut self, now: Time) -> Option<Frame> {
        self.choose_frame(now)
    }

    fn whole(&mut self, _: Time, id: MessageId, message: &Message) -> Option<[u8; SMALL_HEADER]> {
        self.whole_write(id, message)
    }

    fn seal(&mut self, _frame: &Frame, _out: &mut Vec<u8>, _start: usize) {}

    fn trailer(&mut self, _frame: &Frame) -> Option<Trailer> {
        Some(Trailer { bytes: [0; 8], length: 0 })
    }

    fn abandon(&mut self, _now: Time, frame: &Frame, refusal: &Refusal<'_>) {
        self.abandon_frame(frame, refusal);
    }

    fn is_using(&self, token: u32) -> bool {
        self.inbound.is_using(token)
    }

    fn has_output(&self) -> bool {
        self.outbound.has_words()
            || self.phase == Phase::Open
                && (self.outbound.current.is_some()
                    || !self.inbound.answers.is_empty()
                    || !self.config.beside
                        && self.ledger.is_ripe(self.inbound.executed(), &self.patience()))
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

    fn idle_pass(&mut self, _now: Time) {
        self.ledger.pacer().on_idle_pass();
    }

    fn flush(&mut self, _now: Time) {
        self.ledger.pacer().flush();
    }

    fn acknowledgement(&mut self, now: Time) -> Option<u64> {
        let due = self.config.beside
            && self.phase == Phase::Open
            && self.ledger.is_due(now, self.inbound.executed(), &self.patience());
        due.then(|| self.ack_word())
    }

    fn deadline(&self) -> Option<Time> {
        let owed = self.ledger.deadline(&self.patience()).filter(|_| self.phase == Phase::Open);
        [self.timeout, owed].into_iter().flatten().min()
    }

    fn on_deadline(&mut self, now: Time) -> Result<(), Violation> {
        if self.timeout.is_some_and(|at| now >= at) {
            return Err(self.timed_out());
        }
        if self.ledger.deadline(&self.patience()).is_some_and(|at| now >= at) {
            self.ledger.pacer().flush();
        }
        Ok(())
    }

    fn link_closed(&mut self, _now: Time, _delivered: bool) -> Result<(), Violation> {
        self.end_of_link()
    }

    fn set_segment_size(&mut self, _bytes: u32) {}

    fn credit(&self) -> Option<u32> {
        Some(self.ledger.credit())
    }

    fn framing(&self) -> Framing {
        Framing::Records
    }

    fn facts(&self) -> Option<Facts> {
        self.known.then_some(Facts {
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
}
