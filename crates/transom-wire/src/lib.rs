//! The vocabulary between an RDMA engine and any wire.
//!
//! A *wire* turns bytes (or packets, or ring entries) into RDMA messages and back. The wire owns
//! what is peculiar to it: start-up frames, segmentation, sequence numbers, credits,
//! acknowledgements, retry. The *engine* owns what every wire shares: ordering, fences,
//! completions, flush, and the question to `transom-memory` whether a byte may move. This crate
//! holds the words they use with each other, and what our own wires share: the steps of the
//! [`Handshake`], and when [`Acknowledgements`] leave. It judges no access.
//!
//! A wire has no socket, clock, thread or randomness: bytes, [`Time`] and limits are arguments, and
//! everything it wants done comes back as an [`Event`] or a [`Frame`].

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod acknowledge;
mod bytes;
mod carrier;
mod event;
mod frame;
mod handshake;
mod listed;
mod message;
mod refusal;
mod setup;
mod time;

pub use acknowledge::{Acknowledgements, CreditNews, Grant};
pub use bytes::Bytes;
pub use carrier::{Around, Buffer, Carrier, Direct, Room};
pub use event::{Decoded, Event, Glance, ReadSlot, Verdicts};
pub use frame::{Frame, Frames, Framing, MAX_HEADER, Payload, Trailer};
pub use handshake::{Config, Handshake, HandshakePhase};
pub use message::{Atomic, Begin, Immediate, Message, MessageId, Operation, Waiting};
pub use refusal::{Blame, PeerError, Refusal, RefusalClass, Violation, explanation_of, is_plain};
pub use setup::{Facts, ReadLimits, Role, SetupError};
pub use time::Time;

/// A connection's protocol engine: start-up, then messages in both directions.
///
/// The engine drives it in this order on every pass: [`decode`](Receiving::decode) while bytes are left,
/// [`poll_event`](Receiving::poll_event) until it is dry, [`begin`](Sending::begin) for requests that may
/// start, [`next_frame`](Sending::next_frame) while the link has room.
pub trait Wire: StartUp + Receiving + Sending + Send {}

impl<T: StartUp + Receiving + Sending + Send> Wire for T {}

/// Start-up, what was agreed, and time.
pub trait StartUp {
    /// Active side: queue the connection request. `limits` are what this side offers.
    ///
    /// # Errors
    /// [`SetupError::Order`] in another state or on a passive side, [`SetupError::PrivateData`] if
    /// `private` is longer than the wire carries: then nothing has changed.
    fn connect(&mut self, now: Time, limits: ReadLimits, private: &[u8]) -> Result<(), SetupError>;

    /// A word of this side's front, which comes to the peer's with the connection request or the acceptance if
    /// both are Transoms. Called before [`connect`](StartUp::connect) or [`accept`](StartUp::accept).
    fn set_front_word(&mut self, word: u32);

    /// The word of the peer's front, once its request or acceptance has come; `None`: none came with that.
    fn peer_front_word(&self) -> Option<u32>;

    /// Passive side, after [`Event::ConnectRequest`]: queue the acceptance.
    ///
    /// # Errors
    /// [`SetupError::Order`] if there is no request to answer, [`SetupError::PrivateData`] if
    /// `private` is longer than the wire carries: then nothing has changed.
    fn accept(&mut self, now: Time, limits: ReadLimits, private: &[u8]) -> Result<(), SetupError>;

    /// Passive side, after [`Event::ConnectRequest`]: queue the rejection. The engine closes the
    /// link once every frame has been written.
    ///
    /// # Errors
    /// As [`accept`](StartUp::accept).
    fn reject(&mut self, now: Time, private: &[u8]) -> Result<(), SetupError>;

    /// Active side, after [`Event::Accepted`]: the program has completed the connection; queue the
    /// ready-to-receive frame if one was agreed.
    ///
    /// # Errors
    /// [`SetupError::Order`] if no acceptance has arrived, or on a passive side.
    fn confirm(&mut self, now: Time) -> Result<(), SetupError>;

    /// After [`link_closed`](Receiving::link_closed) on an active side: the peer ended the link without
    /// a word, as one that does not know the newest form of start-up does. Connect again, once,
    /// with an older form of this wire.
    fn retry_older(&self) -> bool;

    /// The largest payload that one link segment holds (the TCP maximum segment size), when known.
    fn set_segment_size(&mut self, bytes: u32);

    /// The agreement with the peer; `None` until start-up is over.
    fn facts(&self) -> Option<Facts>;

    /// The kind of the wire's frames, for callers that only watch them.
    fn framing(&self) -> Framing;

    /// When [`on_deadline`](StartUp::on_deadline) wants to be called next.
    fn deadline(&self) -> Option<Time>;

    /// Time has passed. `Err` as in [`decode`](Receiving::decode).
    ///
    /// # Errors
    /// The [`Violation`] that has killed the stream, e.g. a start-up that took too long.
    fn on_deadline(&mut self, now: Time) -> Result<(), Violation>;
}

/// The messages of the peer, and what this side makes of them.
pub trait Receiving {
    /// Look at the next bytes of the stream. Nothing reaches an [`Event`] before its checksum (when
    /// one was agreed) and its header fields were verified. On `Err` the stream is dead: the wire
    /// has queued what the protocol lets it say, the engine sends that, then closes the link.
    ///
    /// The engine calls it again with `bytes[consumed..]` until `consumed == 0`, and then keeps the
    /// rest (never more than [`Facts::largest_frame`] bytes) until more arrive.
    ///
    /// # Errors
    /// The [`Violation`] that has killed the stream.
    fn decode<'b>(&mut self, now: Time, bytes: &'b [u8]) -> Result<Decoded<'b>, Violation>;

    /// The apparent first frame of `bytes`. Nothing of it was verified: it serves to fetch
    /// ahead what [`decode`](Receiving::decode) will need, and decides nothing.
    fn glance(&self, _bytes: &[u8]) -> Option<Glance>;

    /// Events that did not come from bytes: verdicts that became known, credit that arrived.
    fn poll_event(&mut self) -> Option<Event<'static>>;

    /// The engine has placed and delivered everything of the last inbound message up to and
    /// including the piece that carried `last`. Counts towards the acknowledgement owed.
    fn executed(&mut self, now: Time);

    /// The engine has carried out the atomic of the last event ([`Event::Atomic`]), whose word held
    /// `old` before. Queues the answer, behind those to the Reads and atomics before it.
    fn answer(&mut self, now: Time, old: u64);

    /// The engine is going to [refuse](Receiving::refuse) the inbound message whose event was returned last: if it
    /// is a Read or an atomic, it gets no answer. Where the stream leads back to this side, the number that
    /// the message has here.
    fn decline(&mut self, operation: Operation) -> Option<MessageId>;

    /// Whether Reads and atomics of the peer have come whose answers have not left completely.
    fn owes_answers(&self) -> bool;

    /// The engine refuses the inbound message whose event was returned last; `None`: this side cannot go on, and no
    /// message of the peer is to blame. Queues the error the protocol has for it; the stream is dead
    /// afterwards, as after a [`Violation`]. Answers that are still owed do not leave.
    fn refuse(&mut self, now: Time, refusal: Option<&Refusal<'_>>);

    /// Whether a message of the peer's that names `token` has begun and not ended: a Write of which
    /// frames are missing, or a Read whose answer has not left completely.
    fn is_using(&self, token: u32) -> bool;

    /// The total number of receives this side has posted so far for this connection. A wire with
    /// receive credits tells the peer. `shared`: the receives come from a shared queue, so they are
    /// granted one at a time when the peer asks ([`Event::CreditWanted`]).
    fn receives_posted(&mut self, now: Time, total: u64, shared: bool);

    /// Whether the peer is about to hear, or has heard, that there is no receive for the Send that it holds
    /// back: [`receives_posted`](Receiving::receives_posted) may still come first.
    fn lacks_receive(&self) -> bool;

    /// The link has ended (end of stream or reset) as the wire sees it. `delivered`: the peer ended
    /// it in order, and its system had taken every byte that was written. `Err` when it ended in
    /// the middle of a frame or of start-up.
    ///
    /// # Errors
    /// The [`Violation`], if the link ended in the middle of a frame, a message or start-up.
    fn link_closed(&mut self, now: Time, delivered: bool) -> Result<(), Violation>;
}

/// The messages of this side, its answers and its acknowledgements.
pub trait Sending {
    /// Start a message of ours. Ids are consecutive. At most one message is under way at a time:
    /// the engine calls `begin` again only after the frame with `last` of the one before.
    fn begin(&mut self, now: Time, id: MessageId, message: &Message) -> Begin;

    /// The messages that begin from now on are for the peer's shared receive queue of this number
    /// (Verbs V155). `false`: the peer knows no such numbers, and nothing has changed.
    fn aim(&mut self, number: u32) -> bool;

    /// Whether a message may begin now and leave as one frame, with nothing but an acknowledgement before it:
    /// the bytes around its payload. Nothing has happened.
    fn around(&mut self, now: Time, message: &Message) -> Option<Around>;

    /// Start a message that [`around`](Sending::around) was just asked about. `frame` has the bytes around its
    /// payload, to be filled in, and the payload between them, unless the link puts that elsewhere.
    fn begin_whole(&mut self, now: Time, id: MessageId, message: &Message, frame: &mut [u8]);

    /// The next frame to write, control frames and answers to reads included; `None` when there is
    /// nothing to say now. The engine fills in the payload, then calls [`seal`](Sending::seal).
    fn next_frame(&mut self, now: Time) -> Option<Frame>;

    /// Complete a frame in place: `bytes` are its header, its payload, and as many bytes as the frame has
    /// [behind](Frame::back) that, for padding and checksum, and for markers where the peer asked for them.
    fn seal(&mut self, frame: &Frame, bytes: &mut [u8]);

    /// The bytes that follow the payload, when they do not depend on it (no checksum, no markers):
    /// lets the engine hand header, application memory and trailer to the link without a copy. If
    /// it returns `Some`, the frame counts as sealed.
    fn trailer(&mut self, frame: &Frame) -> Option<Trailer>;

    /// The payload of `frame`, which [`next_frame`](Sending::next_frame) returned last, could not be
    /// supplied (its memory is gone or no longer open). A frame already begun must not be sent; the
    /// stream is dead afterwards, as after [`refuse`](Receiving::refuse).
    fn abandon(&mut self, now: Time, frame: &Frame, refusal: &Refusal<'_>);

    /// Whether frames of its own may leave (an answer, an error, start-up). A wire that still waits
    /// for another to ride on does not count until its time has come: see
    /// [`deadline`](StartUp::deadline) and [`release`](Sending::release).
    fn has_output(&self) -> bool;

    /// How many Sends may begin now by what the peer has granted; `None`: the wire has no credits.
    fn credit(&self) -> Option<u32>;

    /// The acknowledgement of this side by now, as one word, if the peer is to learn it now and the
    /// link has a place for it beside the frames. The acknowledgement counts as sent. Wires over
    /// links without such a place acknowledge in frames.
    fn acknowledgement(&mut self, now: Time) -> Option<u64>;

    /// Owed acknowledgements may go.
    fn release(&mut self, why: Release);
}

/// The reason why owed acknowledgements may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// A pass found nothing to do. Two such passes release what is owed.
    IdlePass,
    /// A thread is about to block, or the connection ends: all go now.
    Now,
}
