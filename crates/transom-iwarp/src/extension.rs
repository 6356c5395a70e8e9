//! Transom's extension: frames of the experimental opcode (RFC 6580) on queues of its own. They
//! exist only where both start-up frames agreed to them.
//!
//! | queue | frame | header fields | payload |
//! |---|---|---|---|
//! | 4 | acknowledgement | ULP = flags, MSN = Sends and Writes executed, MO = receives granted | none |
//! | 5 | announcement | ULP = token, MSN = 0, MO = total length of the Write that follows | address |
//! | 6 | refusal | ULP = operation and class, MSN = message, MO = offset of the text | text |
//! | 7 | immediate data of the Send or Write that follows | ULP = the four bytes, MSN = 0, MO = flags | none |
//! | 8 | target of the messages that follow | ULP = number of the shared receive queue, MSN = 0, MO = 0 | none |
//!
//! Atomics travel as RFC 7306 has them, and only here: its Request is counted with Read Requests and
//! answered in order with them. A side says with its acknowledgements, of which the first leaves as soon
//! as messages may flow, that it takes immediate data and atomics (flag 4); one that does not is of an
//! earlier version, and is sent neither. A target holds until the next one; only queue pairs that have named
//! their type to each other before, or their program, send it.
//!
//! All counts are cumulative since start-up and wrap at 2^32, so none of these frames is ever
//! repeated or missed. A refusal counts like an acknowledgement: Sends and Writes from 1; a Read by
//! its message number on the read queue.

use transom_wire::{Immediate, Operation, RefusalClass};

use crate::ddp::{Header, Target};
use crate::rdmap::{Opcode, segment};

/// Queue of acknowledgements.
pub const ACK_QUEUE: u32 = 4;
/// Queue of announcements.
pub const ANNOUNCE_QUEUE: u32 = 5;
/// Queue of refusals.
pub const REFUSAL_QUEUE: u32 = 6;
/// Queue of immediate data.
pub const IMMEDIATE_QUEUE: u32 = 7;
/// Queue of targets.
pub const TARGET_QUEUE: u32 = 8;
/// The most text a refusal carries, in bytes.
pub const EXPLANATION: usize = 512;
/// Text in one frame of a refusal.
pub const TEXT: usize = 56;

const SHARED: u32 = 1;
const WANTED: u32 = 2;
const EXTENDED: u32 = 4;
const NONE: u32 = 8;
const SOLICITED: u32 = 1;

/// An extension frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra<'b> {
    /// The count of executed messages, and the credit to send more.
    Ack(Ack),
    /// The next Write has more than one segment.
    Announce(Announce),
    /// Why the Terminate that follows is sent.
    Refusal(Refused<'b>),
    /// The next Send or Write has immediate data. A Send says itself whether it is solicited.
    Immediate(Immediate),
    /// The messages that follow are for the shared receive queue of this number.
    Target(u32),
}

/// See [`Extra::Ack`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Sends and Writes of the peer that have been executed.
    pub executed: u32,
    /// Sends of the peer for which there is, or was, a receive.
    pub credits: u32,
    /// Receives come from a shared queue: they are granted when asked for.
    pub shared: bool,
    /// The sender holds back a Send for want of credit.
    pub wanted: bool,
    /// The sender takes immediate data and atomics.
    pub extended: bool,
    /// The sender has no receive for the Send that its peer holds back.
    pub none: bool,
}

/// See [`Extra::Announce`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announce {
    /// Token the Write names.
    pub token: u32,
    /// First byte.
    pub address: u64,
    /// All of its bytes.
    pub length: u32,
}

/// See [`Extra::Refusal`]. A text longer than one frame comes in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<'b> {
    /// The request.
    pub operation: Operation,
    /// Why not.
    pub class: RefusalClass,
    /// Which message: its number among Sends and Writes, or among Reads.
    pub number: u32,
    /// Where `text` belongs in the explanation.
    pub offset: u32,
    /// Part of what the owner lets the peer know.
    pub text: &'b [u8],
    /// The refusal is complete.
    pub last: bool,
}

fn code<T: PartialEq>(all: &[T], one: &T) -> u32 {
    let at = all.iter().position(|each| each == one);
    at.and_then(|at| u32::try_from(at).ok()).unwrap_or(0xFF)
}

fn header(queue: u32, last: bool, ulp: u32, number: u32, offset: u32) -> Header {
    segment(Opcode::Experimental, last, Target::Untagged { ulp, queue, number, offset }).header()
}

impl Ack {
    /// Reads the header's fields: the frame has no payload.
    #[must_use]
    pub fn parse(ulp: u32, number: u32, offset: u32) -> Ack {
        Ack {
            executed: number,
            credits: offset,
            shared: ulp & SHARED != 0,
            wanted: ulp & WANTED != 0,
            extended: ulp & EXTENDED != 0,
            none: ulp & NONE != 0,
        }
    }

    /// The whole frame: it has no payload.
    #[must_use]
    pub fn header(&self) -> Header {
        let flags = [
            (self.shared, SHARED),
            (self.wanted, WANTED),
            (self.extended, EXTENDED),
            (self.none, NONE),
        ];
        let ulp = flags.iter().map(|(set, flag)| if *set { *flag } else { 0 }).sum();
        header(ACK_QUEUE, true, ulp, self.executed, self.credits)
    }
}

impl Announce {
    /// The header; the address follows.
    #[must_use]
    pub fn header(&self) -> Header {
        header(ANNOUNCE_QUEUE, true, self.token, 0, self.length)
    }
}

/// The whole frame of immediate data: it has no payload.
#[must_use]
pub fn immediate_header(immediate: &Immediate) -> Header {
    let flags = if immediate.solicited { SOLICITED } else { 0 };
    header(IMMEDIATE_QUEUE, true, immediate.value, 0, flags)
}

/// The whole frame of a target: it has no payload.
#[must_use]
pub fn target_header(number: u32) -> Header {
    header(TARGET_QUEUE, true, number, 0, 0)
}

impl Refused<'_> {
    /// The header; the text follows.
    #[must_use]
    pub fn header(&self) -> Header {
        let ulp =
            u32::from(self.operation.number()) << 24 | code(&RefusalClass::ALL, &self.class) << 16;
        header(REFUSAL_QUEUE, self.last, ulp, self.number, self.offset)
    }
}

/// Why a frame of the experimental opcode is none of the extension's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The extension has no such queue.
    Queue,
    /// The queue takes no such frame.
    Malformed,
}

impl<'b> Extra<'b> {
    /// Reads a frame of the experimental opcode.
    ///
    /// # Errors
    /// Why it is none of the extension's.
    pub fn parse(target: Target, last: bool, payload: &'b [u8]) -> Result<Extra<'b>, Unread> {
        let Target::Untagged { ulp, queue, number, offset } = target else {
            return Err(Unread::Malformed);
        };
        match queue {
            ACK_QUEUE if last && payload.is_empty() => {
                Ok(Extra::Ack(Ack::parse(ulp, number, offset)))
            }
            ANNOUNCE_QUEUE if last => {
                let address =
                    u64::from_be_bytes(payload.try_into().map_err(|_| Unread::Malformed)?);
                Ok(Extra::Announce(Announce { token: ulp, address, length: offset }))
            }
            REFUSAL_QUEUE if payload.len() <= EXPLANATION => {
                let [operation, class, ..] = ulp.to_be_bytes();
                let operation = Operation::from_number(operation).ok_or(Unread::Malformed)?;
                let class = *RefusalClass::ALL.get(usize::from(class)).ok_or(Unread::Malformed)?;
                Ok(Extra::Refusal(Refused {
                    operation,
                    class,
                    number,
                    offset,
                    text: payload,
                    last,
                }))
            }
            IMMEDIATE_QUEUE if last && payload.is_empty() => {
                Ok(Extra::Immediate(Immediate { value: ulp, solicited: offset & SOLICITED != 0 }))
            }
            TARGET_QUEUE if last && payload.is_empty() => Ok(Extra::Target(ulp)),
            ACK_QUEUE | ANNOUNCE_QUEUE | REFUSAL_QUEUE | IMMEDIATE_QUEUE | TARGET_QUEUE => {
                Err(Unread::Malformed)
            }
            _ => Err(Unread::Queue),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_as_much_text_as_it_may() {
        let target = Target::Untagged { ulp: 0, queue: REFUSAL_QUEUE, number: 1, offset: 0 };
        let text = [b'a'; EXPLANATION + 1];
        let longest = Extra::parse(target, true, &text[..EXPLANATION]);
        assert!(
            matches!(longest, Ok(Extra::Refusal(refused)) if refused.text.len() == EXPLANATION)
        );
        assert_eq!(Extra::parse(target, true, &text).err(), Some(Unread::Malformed));
    }
}
