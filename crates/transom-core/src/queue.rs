//! The queue of requests and of receives: slots, and one arena for their lists.
//!
//! Requests leave in the order in which they came, so their scatter/gather entries and inline bytes
//! live in rings that grow to the program's working set and then never allocate again. An idle queue
//! holds nothing.

use std::collections::VecDeque;

use transom_memory::Segment;
use transom_wire::{Immediate, Message};

use crate::{Data, Flags, Operation, Sge, Status};

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing was done yet.
    Waiting,
    /// Some of its frames may have left.
    Running,
    /// All of its frames have left; the outcome is not known.
    Sent,
    /// The outcome is known: see [`Slot::status`].
    Done,
}

/// The wire's name for the sink of a Read of ours. The peer only echoes it.
const SINK: u32 = 1;

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) context: u64,
    pub(crate) operation: Operation,
    pub(crate) flags: Flags,
    pub(crate) progress: Progress,
    pub(crate) inline: bool,
    /// Not success as soon as it has failed.
    pub(crate) status: Status,
    /// Entries of its list.
    entries: u32,
    /// Bytes in all.
    pub(crate) length: u64,
    /// Number of its message, once it has one.
    pub(crate) message: u64,
    pub(crate) denial: u64,
    /// Number of the peer's shared receive queue that it is for, if its kind of queue pair has such.
    pub(crate) target: u32,
    /// The first entry of its list: most have no more.
    one: Sge,
    /// Where the rest of its list (or its inline bytes) begins, counted since the ring was made.
    start: u64,
}

impl Slot {
    /// Whether it has several entries.
    pub(crate) fn is_list(&self) -> bool {
        self.entries > 1
    }

    /// The request's scatter/gather entry, if the request has exactly one and is not inline.
    pub(crate) fn only(&self) -> Option<Sge> {
        (!self.inline && self.entries == 1).then_some(self.one)
    }

    /// The message that it makes, if it makes one.
    #[inline(always)]
    pub(crate) fn message(&self) -> Option<Message> {
        let length = u32::try_from(self.length).ok()?;
        let solicited = self.flags.contains(Flags::SOLICIT);
        let verdict = !self.flags.contains(Flags::SILENT_SUCCESS);
        let send =
            |invalidate, immediate| Message::Send { length, solicited, invalidate, immediate };
        Some(match self.operation {
            Operation::Write { token, address } => {
                Message::Write { token, address, length, verdict, immediate: None }
            }
            Operation::WriteWithImmediate { token, address, immediate: value } => {
                let immediate = Some(Immediate { value, solicited });
                Message::Write { token, address, length, verdict, immediate }
            }
            Operation::Send => send(None, None),
            Operation::SendWithImmediate { immediate } => send(None, Some(immediate)),
            Operation::SendWithInvalidate { token } => send(Some(token), None),
            Operation::Read { token, address } => {
                Message::Read { token, address, length, sink_token: SINK, sink_address: 0 }
            }
            Operation::Atomic { token, address, change: operation } => {
                Message::Atomic { token, address, operation }
            }
            Operation::Bind { .. }
            | Operation::BindStanding { .. }
            | Operation::Invalidate { .. }
            | Operation::FastRegister { .. }
            | Operation::Unsupported { .. }
            | Operation::Receive => return None,
        })
    }
}

/// A run of one scatter/gather entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) token: u32,
    pub(crate) address: u64,
    pub(crate) length: u64,
}

/// A piece of memory, kept as list entries: of 4 GiB at most.
fn entries_of(piece: Segment) -> impl Iterator<Item = Sge> {
    let (mut host, mut left) = (piece.host, piece.length);
    std::iter::from_fn(move || {
        let length = u32::try_from(left).unwrap_or(u32::MAX);
        let entry = Sge { token: 0, address: host, length };
        host = host.wrapping_add(u64::from(length));
        left -= u64::from(length);
        (length > 0).then_some(entry)
    })
}

/// Requests in order.
#[derive(Debug, Default)]
pub struct RequestQueue {
    slots: VecDeque<Slot>,
    /// Sequence number of the first slot.
    first: u64,
    sges: VecDeque<Sge>,
    first_sge: u64,
    bytes: VecDeque<u8>,
    first_byte: u64,
}

impl RequestQueue {
    /// Requests in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Sequence number of the oldest slot.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Sequence number behind the youngest slot.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    pub(crate) fn get(&self, sequence: u64) -> Option<&Slot> {
        self.slots.get(usize::try_from(sequence.checked_sub(self.first)?).ok()?)
    }

    pub(crate) fn get_mut(&mut self, sequence: u64) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(sequence.checked_sub(self.first)?).ok()?)
    }

    pub(crate) fn front(&self) -> Option<&Slot> {
        self.slots.front()
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut Slot> {
        self.slots.front_mut()
    }

    pub(crate) fn back_mut(&mut self) -> Option<&mut Slot> {
        self.slots.back_mut()
    }

    /// Remove the requests from sequence number `end` on, and their lists.
    pub(crate) fn truncate(&mut self, end: u64) {
        while self.end() > end
            && let Some(slot) = self.slots.pop_back()
        {
            if slot.inline {
                self.bytes.truncate(self.bytes.len().saturating_sub(slot.length as usize));
            } else {
                let behind_first = slot.entries.saturating_sub(1) as usize;
                self.sges.truncate(self.sges.len().saturating_sub(behind_first));
            }
        }
    }

    /// Add a request. `length` is the sum of the list, which the caller has computed anyway.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        context: u64,
        operation: Operation,
        flags: Flags,
        data: Data<'_>,
        length: u64,
    ) {
        let mut one = Sge::default();
        let (inline, entries, start) = match data {
            Data::Sges([only]) => {
                one = *only;
                (false, 1, 0)
            }
            Data::Sges(list) => {
                let start = self.first_sge + self.sges.len() as u64;
                if let [first, rest @ ..] = list {
                    one = *first;
                    self.sges.extend(rest);
                }
                (false, list.len(), start)
            }
            Data::Inline(bytes) => {
                let start = self.first_byte + self.bytes.len() as u64;
                self.bytes.extend(bytes);
                (true, 0, start)
            }
            Data::Memory(pieces) => {
                let (before, mut all) =
                    (self.sges.len(), pieces.iter().copied().flat_map(entries_of));
                let first = all.next();
                self.sges.extend(all);
                one = first.unwrap_or_default();
                let entries = usize::from(first.is_some()) + self.sges.len() - before;
                (false, entries, self.first_sge + before as u64)
            }
        };
        self.slots.push_back(Slot {
            context,
            operation,
            flags,
            progress: Progress::Waiting,
            inline,
            status: Status::Success,
            entries: entries as u32,
            length,
            message: u64::MAX,
            denial: 0,
            target: 0,
            one,
            start,
        });
    }

    /// Remove the oldest request and its list.
    pub(crate) fn pop(&mut self) -> Option<Slot> {
        let slot = *self.slots.front()?;
        self.remove();
        Some(slot)
    }

    /// Remove the oldest request, which the caller has looked at.
    #[inline]
    pub(crate) fn remove(&mut self) {
        let Some(slot) = self.slots.front() else { return };
        if slot.inline {
            let bytes = (slot.length as usize).min(self.bytes.len());
            self.bytes.drain(..bytes);
            self.first_byte += bytes as u64;
        } else {
            for _ in 1..slot.entries {
                self.first_sge += u64::from(self.sges.pop_front().is_some());
            }
        }
        self.slots.pop_front();
        self.first += 1;
    }

    /// Move everything of `other` behind what is here.
    pub(crate) fn append(&mut self, other: &mut RequestQueue) {
        if other.slots.is_empty() {
            return;
        }
        if self.slots.is_empty() {
            // The usual case costs three swaps; sequence numbers go on from ours.
            let end = self.first + other.slots.len() as u64;
            std::mem::swap(self, other);
            let theirs = self.first + self.slots.len() as u64;
            self.first = end - self.slots.len() as u64;
            other.first = theirs;
            return;
        }
        while other.move_first(self) {}
    }

    /// Move the oldest request to the end of `to`. `false` if there is none.
    pub(crate) fn move_first(&mut self, to: &mut RequestQueue) -> bool {
        let Some(mut slot) = self.slots.pop_front() else { return false };
        self.first += 1;
        if slot.inline {
            let count = (slot.length as usize).min(self.bytes.len());
            slot.start = to.first_byte + to.bytes.len() as u64;
            to.bytes.extend(self.bytes.drain(..count));
            self.first_byte += count as u64;
        } else {
            let count = (slot.entries.saturating_sub(1) as usize).min(self.sges.len());
            slot.start = to.first_sge + to.sges.len() as u64;
            to.sges.extend(self.sges.drain(..count));
            self.first_sge += count as u64;
        }
        to.slots.push_back(slot);
        true
    }

    /// The list of a request.
    pub(crate) fn list(&self, slot: &Slot) -> impl Iterator<Item = Sge> + '_ {
        let start = slot.start.saturating_sub(self.first_sge) as usize;
        let count = if slot.inline { 0 } else { slot.entries as usize };
        let rest = self.sges.iter().skip(start).copied();
        std::iter::once(slot.one).chain(rest).take(count)
    }

    /// The memory of a fast registration.
    pub(crate) fn memory(&self, slot: &Slot) -> Vec<Segment> {
        let of = |sge: Sge| Segment { host: sge.address, length: u64::from(sge.length) };
        self.list(slot).map(of).collect()
    }

    /// The longest run of one entry that begins `offset` bytes into the message.
    pub(crate) fn piece(&self, slot: &Slot, offset: u64) -> Option<Piece> {
        let mut before = 0;
        for sge in self.list(slot) {
            let inside = offset - before;
            if inside < u64::from(sge.length) {
                return Some(Piece {
                    token: sge.token,
                    address: sge.address.wrapping_add(inside),
                    length: u64::from(sge.length) - inside,
                });
            }
            before += u64::from(sge.length);
        }
        None
    }

    /// `length` inline bytes from `offset` on, in two pieces; `None` if it has not that many.
    pub(crate) fn inline(&self, slot: &Slot, offset: u64, length: u64) -> Option<(&[u8], &[u8])> {
        let start = (slot.start.saturating_sub(self.first_byte) + offset) as usize;
        let end = start.checked_add(length as usize).filter(|end| *end <= self.bytes.len())?;
        let (left, right) = self.bytes.as_slices();
        let split = left.len();
        let left = left.get(start.min(split)..end.min(split))?;
        let right = right.get(start.saturating_sub(split)..end.saturating_sub(split))?;
        Some((left, right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In both pieces of the ring of bytes, and across their border.
    #[test]
    fn inline_bytes_are_copied_wherever_they_lie_in_the_ring() {
        let mut queue = RequestQueue::default();
        let post = |queue: &mut RequestQueue, bytes: &[u8]| {
            let length = bytes.len() as u64;
            queue.push(0, Operation::Send, Flags::NONE, Data::Inline(bytes), length);
        };
        post(&mut queue, &[0; 5]);
        let mut pieces = [0; 3];
        for round in 0..100_u8 {
            let bytes: [u8; 7] = std::array::from_fn(|at| round + at as u8);
            post(&mut queue, &bytes);
            queue.remove();
            let slot = *queue.front().unwrap();
            let (left, right) = queue.inline(&slot, 0, 7).unwrap();
            assert_eq!([left, right].concat(), bytes);
            pieces[usize::from(!left.is_empty()) + 2 * usize::from(!right.is_empty()) - 1] += 1;
            assert_eq!(queue.inline(&slot, 0, 8), None, "it has seven");
        }
        assert!(pieces[0] > 0 && pieces[2] > 0, "not all places were met: {pieces:?}");
    }
}
