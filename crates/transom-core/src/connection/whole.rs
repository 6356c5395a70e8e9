//! Messages of one frame: judged, copied and on their way in one go, where longer ones begin and then leave
//! frame by frame (`outbound.rs`).
//!
//! Messages that follow each other share a guard ([`Memory::pass`](transom_memory::Memory::pass)), because its
//! fence waits for earlier stores to reach cache lines that the other processor holds. That takes longer than
//! the rest of a small message.

use transom_memory::{Pass, Purpose};
use transom_wire::{Around, Carrier, Message, MessageId, Time};

use super::{Connection, Quiet, ReceiveWait};
use crate::copy::{AccessError, Accessor};
use crate::queue::{Piece, Progress, Slot};
use crate::{Cx, Execution, Flags, HostMemory, Operation, Sge, Status};

/// The circumstances of a copy: the program's memory, and the moment.
type Under<'a> = (&'a dyn HostMemory, Time);

/// The fate of the next request.
enum Next {
    Gone,
    /// There is none, or it cannot go in one frame now.
    No,
    /// The request's own memory was refused; the request's context.
    Refused(u64, AccessError),
}

impl Connection {
    /// Start requests that go in one frame each, up to the first that cannot.
    pub(super) fn start_run<C: Carrier>(&mut self, _: Quiet, cx: &mut Cx<'_>, out: &mut C) {
        let owed = self.execution.as_ref().is_some_and(Execution::owes);
        let mut any = false;
        let mut pass = cx.memory.pass(&mut *cx.lane);
        let end = loop {
            match self.whole(&mut pass, (cx.host, cx.now), out) {
                Next::Gone => any = true,
                end => break end,
            }
            if self.execution.as_ref().is_none_or(Execution::is_all_begun) {
                break Next::No;
            }
        };
        drop(pass);
        if any {
            // The request that waited has left, so its limit no longer runs.
            self.receive_wait = ReceiveWait::None;
        }
        if any && !owed {
            self.owing = cx.now;
        }
        if let Next::Refused(context, error) = end {
            let cause = error.cause(false);
            self.fail_next(cx, Status::LocalAccess, Some((context, cause)));
        }
    }

    /// Start the next request, if it can go in one frame now.
    #[inline(always)]
    fn whole<C: Carrier>(&mut self, pass: &mut Pass<'_>, under: Under<'_>, out: &mut C) -> Next {
        let Some(slot) = self.execution.as_ref().and_then(Execution::startable) else {
            return Next::No;
        };
        // As most are: its parts stay in registers.
        if let (Operation::Write { token, address }, 1..=0xFFFF_FFFF) =
            (slot.operation, slot.length)
        {
            let (length, immediate) = (slot.length as u32, None);
            let verdict = !slot.flags.contains(Flags::SILENT_SUCCESS);
            let message = Message::Write { token, address, length, verdict, immediate };
            return self.begin_whole(pass, under, &message, out);
        }
        self.whole_other(pass, under, out)
    }

    /// Start the next request, which is no plain Write, if it can go in one frame now.
    #[inline(never)]
    fn whole_other<C: Carrier>(
        &mut self,
        pass: &mut Pass<'_>,
        under: Under<'_>,
        out: &mut C,
    ) -> Next {
        let next = self.execution.as_ref().and_then(Execution::next_request);
        match next.and_then(Slot::message) {
            Some(message) => self.begin_whole(pass, under, &message, out),
            None => Next::No,
        }
    }

    /// Begin the next request, which makes this message, if nothing holds it up: its bytes are copied to their
    /// place before, so that nothing has begun whose bytes are not there.
    #[inline(always)]
    fn begin_whole<C: Carrier>(
        &mut self,
        pass: &mut Pass<'_>,
        (host, now): Under<'_>,
        message: &Message,
        out: &mut C,
    ) -> Next {
        let Some(execution) = self.execution.as_mut() else { return Next::No };
        let Some(slot) = execution.next_request() else { return Next::No };
        let fetches = !message.is_counted();
        let length = message.payload() as usize;
        let lends = if fetches { out.wants_sink(slot.length) } else { out.wants_lend(length) };
        let fenced = slot.flags.contains(Flags::READ_FENCE) && execution.reads > 0;
        if fenced || !out.takes(length) || lends && !slot.inline {
            return Next::No;
        }
        let Some(around) = self.wire.around(now, message) else { return Next::No };
        let purpose = if fetches { self.config.dialect.sink } else { Purpose::LocalSource };
        let accessor = Accessor { actor: execution.actor(self.config.id), purpose };
        let supplied = if length == 0 {
            let _ = out.reserve(around, length);
            if fetches { judge(execution, slot, accessor, (pass, now)) } else { Ok(()) }
        } else if let Some(Sge { token, address, length }) = slot.only() {
            let mut room = out.reserve(around, length as usize);
            let piece = Piece { token, address, length: u64::from(length) };
            accessor.read((pass, host, now), piece, &mut room)
        } else if slot.inline {
            put_inline(execution, slot, around, out)
        } else {
            gather(execution, slot, (accessor, around), (pass, host, now), out)
        };
        if let Err(error) = supplied {
            out.release();
            return Next::Refused(slot.context, error);
        }
        let id = MessageId(execution.next_message);
        self.wire.begin_whole(now, id, message, out.frame());
        out.commit();
        if let Some(slot) = execution.requests.get_mut(execution.next) {
            (slot.message, slot.progress) = (id.0, Progress::Sent);
        }
        execution.reads += u32::from(fetches);
        execution.next_message += 1;
        execution.next += 1;
        Next::Gone
    }
}

/// Judge the entries of a request's list. Entries of no bytes are skipped (ND2 5.3).
fn judge(
    execution: &Execution,
    slot: &Slot,
    accessor: Accessor,
    (pass, now): (&mut Pass<'_>, Time),
) -> Result<(), AccessError> {
    let mut entries = execution.requests.list(slot).filter(|sge| sge.length > 0);
    entries.try_for_each(|Sge { token, address, length }| {
        accessor.judge((&mut *pass, now), token, address, u64::from(length))
    })
}

/// Copy inline data.
#[inline(never)]
fn put_inline<C: Carrier>(
    execution: &Execution,
    slot: &Slot,
    around: Around,
    out: &mut C,
) -> Result<(), AccessError> {
    let _ = out.reserve(around, slot.length as usize); // that of a message
    let (first, second) =
        execution.requests.inline(slot, 0, slot.length).ok_or(AccessError::Missing)?;
    out.put(first);
    if !second.is_empty() {
        out.put(second);
    }
    Ok(())
}

/// Copy the payload of a request that lies in several pieces.
#[inline(never)]
fn gather<C: Carrier>(
    execution: &Execution,
    slot: &Slot,
    (accessor, around): (Accessor, Around),
    (pass, host, now): (&mut Pass<'_>, &dyn HostMemory, Time),
    out: &mut C,
) -> Result<(), AccessError> {
    let queue = &execution.requests;
    let length = slot.length as usize; // that of a message
    // A bad entry moves no byte of the others.
    let judged = judge(execution, slot, accessor, (&mut *pass, now));
    let mut room = out.reserve(around, length);
    judged?;
    let mut entries = queue.list(slot).filter(|sge| sge.length > 0);
    entries.try_for_each(|Sge { token, address, length }| {
        let piece = Piece { token, address, length: u64::from(length) };
        accessor.read((&mut *pass, host, now), piece, &mut room)
    })
}
