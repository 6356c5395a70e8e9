//! Which message of ours the peer means.

use transom_wire::{MessageId, Operation};

use super::Stream;
use super::outbound::{Asker, What};
use crate::TerminateForm;
use crate::ddp::{Segment, Target};
use crate::rdmap::{self, Opcode, READ_QUEUE, SEND_QUEUE};
use crate::terminate::About;

/// The subject of a Terminate.
#[derive(Debug, Default)]
pub(super) struct Named {
    pub(super) id: Option<MessageId>,
    /// The oldest that it may be: one that was thought to be done, perhaps.
    pub(super) first: Option<MessageId>,
    pub(super) operation: Option<Operation>,
    /// How many messages of ours fit what it says.
    pub(super) of: usize,
}

/// A segment of a Write, as a Terminate echoes it.
#[derive(Clone, Copy)]
struct Echo {
    stag: u32,
    offset: u64,
    last: bool,
    length: Option<u64>,
}

impl Echo {
    /// Whether a segment of this Write may look like it. `exactly`: by its end, too.
    fn is_of(&self, what: What, exactly: bool) -> bool {
        let What::Write { token, address, length } = what else { return false };
        let at = self.offset.wrapping_sub(address);
        let length = u64::from(length);
        if token != self.stag || at >= length.max(1) {
            return false;
        }
        match self.length.filter(|_| exactly) {
            Some(of) => at + of <= length && self.last == (at + of == length),
            None => true,
        }
    }
}

impl Stream {
    /// The message of ours that a refusal names.
    pub(super) fn named(&self, operation: Operation, number: u32) -> Option<MessageId> {
        if operation.is_answered() {
            return self.read_numbered(number);
        }
        // Counted from 1, modulo 2^32, and never settled before.
        let first = (self.outbound.settled & 0xFFFF_FFFF) as u32;
        let ahead = number.wrapping_sub(1).wrapping_sub(first);
        let index = self.outbound.settled + u64::from(ahead);
        match self.outbound.at(index) {
            Some(sent) => Some(sent.id),
            // Refused before its last frame has gone.
            None if index == self.outbound.gone() => self.outbound.current_id(),
            None => None,
        }
    }

    fn read_numbered(&self, number: u32) -> Option<MessageId> {
        let read = self.outbound.reads.iter().find(|read| read.number == number)?;
        match read.asker {
            Asker::Program(id) => Some(id),
            _ => None,
        }
    }

    /// The message of ours that the header in a Terminate belongs to.
    pub(super) fn blamed_by(&self, about: &About<'_>, form: TerminateForm) -> Named {
        let Some(segment) = Segment::parse(about.header) else { return Named::default() };
        let (id, operation) = match segment.target {
            Target::Untagged { queue: READ_QUEUE, number, .. } => {
                let atomic = rdmap::opcode(segment.control) == Some(Opcode::AtomicRequest);
                let operation = if atomic { Operation::Atomic } else { Operation::Read };
                (self.read_numbered(number), operation)
            }
            Target::Untagged { queue: SEND_QUEUE, number: blamed, .. } => {
                let is = |what: What| matches!(what, What::Send { number } if number == blamed);
                let sent = self.outbound.sent.iter().rev().find(|sent| is(sent.what));
                let id = sent.map(|sent| sent.id);
                (id.or_else(|| self.outbound.current_send(blamed)), Operation::Send)
            }
            Target::Tagged { stag, offset }
                if rdmap::opcode(segment.control) == Some(Opcode::Write) =>
            {
                // The RFC's length counts the header, siw's does not.
                let header = match form {
                    TerminateForm::Rfc => about.header.len() as u64,
                    TerminateForm::Siw => 0,
                };
                let length = u64::from(about.length).checked_sub(header);
                let length = length.filter(|_| about.length_valid);
                let echo = Echo { stag, offset, last: segment.last, length };
                let exactly = self.suspects(echo, true);
                return if exactly.of > 0 { exactly } else { self.suspects(echo, false) };
            }
            // An answer of ours, or what we never send.
            Target::Tagged { .. } | Target::Untagged { .. } => return Named::default(),
        };
        Named { id, first: id, operation: Some(operation), of: usize::from(id.is_some()) }
    }

    /// The Writes that a refusal may be about: their number, and the one to blame. That is the
    /// oldest that waits for a verdict, because nothing better is known of the younger ones; or
    /// else the youngest, which was thought to be done.
    fn suspects(&self, echo: Echo, exactly: bool) -> Named {
        let out = &self.outbound;
        let executed = if self.agreed.extension { out.settled } else { out.vouched };
        let sent = (executed.max(out.base)..out.gone())
            .filter_map(|index| out.at(index).map(|sent| (index, sent)))
            .filter(|(_, sent)| echo.is_of(sent.what, exactly))
            .map(|(index, sent)| (index, sent.id));
        let current = out.current_write().filter(|(_, what)| echo.is_of(*what, exactly));
        let (mut first, mut done, mut waiting, mut of) = (None, None, None, 0);
        for (index, id) in sent.chain(current.map(|(id, _)| (u64::MAX, id))) {
            of += 1;
            first = first.or(Some(id));
            if index < out.settled {
                done = Some(id);
            } else {
                waiting = waiting.or(Some(id));
            }
        }
        Named { id: waiting.or(done), first, operation: Some(Operation::Write), of }
    }
}
