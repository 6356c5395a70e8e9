//! A typed stream of events out of the engine: tracing, counters, replay and later
//! captures hang on it. Off costs one branch.

use transom_memory::QueuePairId;
use transom_wire::{Framing, MessageId, Operation, Time};

use crate::{CompletionKind, EndReason, Status};

/// An event. Self-contained; the schema is this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// When, in the driver's time.
    pub time: Time,
    /// Number of the connection.
    pub connection: u32,
    /// Queue pair, once there is one.
    pub queue_pair: Option<QueuePairId>,
    /// The thing that happened.
    pub what: What,
}

/// The thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A message of ours began.
    Begun {
        /// The message's number.
        id: MessageId,
        /// The message's kind.
        operation: Operation,
        /// Bytes of its payload.
        length: u32,
    },
    /// A frame of ours was handed to the link.
    FrameOut {
        /// Header bytes.
        header: u8,
        /// Payload bytes.
        payload: u32,
    },
    /// Bytes of the peer were placed.
    Placed {
        /// By which operation.
        operation: Operation,
        /// First byte: by its address, or, of the answer to a Read of ours, by its offset in it.
        address: u64,
        /// Bytes.
        length: u32,
    },
    /// A message of the peer was executed.
    Executed {
        /// The kind.
        operation: Operation,
    },
    /// Our messages up to and including this one have succeeded.
    Acknowledged {
        /// The youngest of them.
        through: MessageId,
    },
    /// A completion was made.
    Completed {
        /// The kind of the request or receive.
        kind: CompletionKind,
        /// How it has ended.
        status: Status,
        /// Bytes.
        length: u32,
    },
    /// Something was refused.
    Denied {
        /// The record's id.
        denial: u64,
    },
    /// The connection is established.
    Established,
    /// The connection has ended.
    Ended {
        /// Why it has ended.
        reason: EndReason,
    },
}

/// A frame as it travels, for a tracer that [wants frames](Tracer::wants_frames).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTrace<'a> {
    /// The kind of frames that the connection has.
    pub framing: Framing,
    /// The peer has sent it.
    pub inbound: bool,
    /// The frame's bytes: of the peer's all, of ours perhaps only a piece. The payload of a record
    /// may [lie elsewhere](transom_wire::Bytes::Shared).
    pub bytes: &'a [u8],
}

/// Receives the stream.
pub trait Tracer {
    /// An event.
    fn event(&mut self, event: &TraceEvent);

    /// Whether the tracer wants every message. If not, whole messages take their own way (`connection/whole.rs`),
    /// which reports nothing; everything else is reported as ever.
    fn wants_messages(&self) -> bool {
        true
    }

    /// Whether it is to see every frame. If so, none is sent straight from the application's memory.
    fn wants_frames(&self) -> bool {
        false
    }

    /// A frame is about to leave, or has come and is about to be judged.
    fn frame(&mut self, frame: &FrameTrace<'_>) {
        let _ = frame;
    }

    /// Refusals since the last frame of the peer's are refusals of that frame. What is
    /// refused from now on is not.
    fn frame_judged(&mut self) {}
}

impl<F: FnMut(&TraceEvent)> Tracer for F {
    fn event(&mut self, event: &TraceEvent) {
        self(event);
    }
}
