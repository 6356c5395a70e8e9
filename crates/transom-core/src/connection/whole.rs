//! Writes and Sends of one frame: judged, copied and on their way in one go, where longer messages, and those
//! of other kinds, begin and then leave frame by frame (`outbound.rs`).
//!
//! Those of a few bytes go by way of the stack, and such as follow each other share a guard
//! ([`Memory::pass`](transom_memory::Memory::pass)). Its fence waits until what was stored before has
//! reached its cache line, which the other processor has: longer than all the rest of such a message takes.
//! A longer one is copied once, under a guard of its own, from where its bytes lie to where the link has them.

use transom_memory::{Pass, Purpose};
use transom_wire::{Message, MessageId, Time};

use super::{Connection, Quiet, ReceiveWait};
use crate::copy::{AccessError, Accessor, LARGEST_COPY};
use crate::output::{Direct, Output};
use crate::queue::{Progress, Slot};
use crate::{Cx, Execution, Flags, HostMemory, Operation, Sge, Status};

/// The most bytes of such a message that are copied by way of the stack, under a guard that others share.
pub const SMALL: usize = 32;
/// The most bytes of such a message, whatever the link takes: those of one guard.
pub const WHOLE: usize = LARGEST_COPY;
/// The most inline data of such a message.
pub const LARGEST_INLINE: usize = 512;

/// The circumstances of a judgement: a guard, the program's memory, the moment.
type Under<'a, 'lane> = (&'a mut Pass<'lane>, &'a dyn HostMemory, Time);

/// The fate of the next request.
enum Next {
    Gone,
    /// The next request is one of these, and longer than [`SMALL`].
    Larger,
    /// The next request is none of these, or there is none.
    No,
    /// The request's own memory was refused; the request's context.
    Refused(u64, AccessError),
}

impl Connection {
    /// Start what can go this way, until something cannot.
    pub(super) fn start_run<O>(&mut self, _: Quiet, cx: &mut Cx<'_>, out: &mut O)
    where
        O: Output + ?Sized,
    {
        let mut any = false;
        let owed = self.execution.as_ref().is_some_and(Execution::owes);
        let refused = loop {
            let memory = cx.memory;
            let mut pass = memory.pass(&mut *cx.lane);
            let end = loop {
                match self.small((&mut pass, cx.host, cx.now), out) {
                    Next::Gone => any = true,
                    end => break end,
                }
                if self.execution.as_ref().is_none_or(Execution::is_all_begun) {
                    break Next::No;
                }
            };
            drop(pass);
            let end = if let Next::Larger = end { self.larger(cx, out) } else { end };
            match end {
                Next::Gone => any = true,
                Next::Larger | Next::No => break None,
                Next::Refused(context, error) => break Some((context, error)),
            }
        };
        if any {
            // The request that waited has left, so its limit no longer runs.
            self.receive_wait = ReceiveWait::None;
        }
        if any && !owed {
            self.owing = cx.now;
        }
        if let Some((context, error)) = refused {
            let cause = error.cause(false);
            self.fail_next(cx, Status::LocalAccess, Some((context, cause)));
        }
    }

    /// The next request, if it is one of these.
    fn small<O>(&mut self, (pass, host, now): Under<'_, '_>, out: &mut O) -> Next
    where
        O: Output + ?Sized,
    {
        let Some(execution) = self.execution.as_mut() else { return Next::No };
        let Some((slot, id, message)) = next_message(execution) else { return Next::No };
        let length = slot.length as usize; // of a message, which has fewer than 2^32
        let lacks_receive = message.needs_receive() && self.wire.credit() == Some(0);
        if lacks_receive || !out.takes(length) {
            return Next::No;
        }
        let mut room = [0; SMALL];
        let Some(bytes) = room.get_mut(..length) else { return Next::Larger };
        if length == 0 {
            // No bytes: no entry of the list is looked at (ND2 5.3).
        } else if let Some(from) = slot.only() {
            let accessor =
                Accessor { actor: execution.actor(self.config.id), purpose: Purpose::LocalSource };
            if let Err(error) = accessor.read((pass, host, now), from.token, from.address, bytes) {
                return Next::Refused(slot.context, error);
            }
        } else if !slot.inline || !execution.requests.copy_inline(slot, bytes) {
            return Next::No;
        }
        if !out.whole((&mut *self.wire, now), id, &message, bytes) {
            return Next::No;
        }
        gone(execution, id)
    }

    /// The next request, of more bytes than [`SMALL`]: copied from where they lie to where the link has
    /// them, under a guard of its own.
    #[cold]
    #[inline(never)]
    fn larger<O>(&mut self, cx: &mut Cx<'_>, out: &mut O) -> Next
    where
        O: Output + ?Sized,
    {
        let Some(execution) = self.execution.as_mut() else { return Next::No };
        let Some((slot, id, message)) = next_message(execution) else { return Next::No };
        let now = cx.now;
        if !self.wire.is_free(now) {
            return Next::No;
        }
        let taken = if let Some(Sge { token, address, .. }) = slot.only() {
            let accessor =
                Accessor { actor: execution.actor(self.config.id), purpose: Purpose::LocalSource };
            let length = slot.length;
            let wire = &mut *self.wire;
            let lent = accessor.lend(cx, token, address, length, |segments| {
                out.lend_whole((wire, now), id, &message, segments)
            });
            match lent {
                Ok(Some(Direct::Fault)) => {
                    let vanished = AccessError::Vanished { token, address, length };
                    return Next::Refused(slot.context, vanished);
                }
                Ok(done) => done == Some(Direct::Taken),
                Err(error) => return Next::Refused(slot.context, error),
            }
        } else {
            let mut room = [0; LARGEST_INLINE];
            room.get_mut(..slot.length as usize).is_some_and(|bytes| {
                slot.inline
                    && execution.requests.copy_inline(slot, bytes)
                    && out.whole((&mut *self.wire, now), id, &message, bytes)
            })
        };
        if taken { gone(execution, id) } else { Next::No }
    }
}

/// The next request and its message, if nothing holds it up and it is a Write or a Send, without immediate
/// data.
#[inline(always)]
fn next_message(execution: &Execution) -> Option<(&Slot, MessageId, Message)> {
    let slot = execution.startable()?;
    if slot.flags.contains(Flags::READ_FENCE) && execution.reads > 0 {
        return None;
    }
    let length = u32::try_from(slot.length).ok()?;
    let solicited = slot.flags.contains(Flags::SOLICIT);
    let send = |invalidate| Message::Send { length, solicited, invalidate, immediate: None };
    let message = match slot.operation {
        Operation::Write { token, address } if length > 0 => {
            let verdict = !slot.flags.contains(Flags::SILENT_SUCCESS);
            Message::Write { token, address, length, verdict, immediate: None }
        }
        Operation::Send => send(None),
        Operation::SendWithInvalidate { token } => send(Some(token)),
        _ => return None,
    };
    Some((slot, MessageId(execution.next_message), message))
}

/// The next request is on its way.
#[inline(always)]
fn gone(execution: &mut Execution, id: MessageId) -> Next {
    if let Some(slot) = execution.requests.get_mut(execution.next) {
        (slot.message, slot.progress) = (id.0, Progress::Sent);
    }
    execution.next_message += 1;
    execution.next += 1;
    Next::Gone
}
