//! Writes of a few bytes: judged, copied and on their way in one go, where the ordinary way
//! (`outbound.rs`) starts a message, asks the wire for its frames, and copies each of them. They are
//! received in one go, too, where the ordinary way (`inbound.rs`) decodes any frame into an event.
//!
//! Writes that follow each other share a guard ([`Memory::pass`](transom_memory::Memory::pass)). Its
//! fence waits until what was stored before has reached its cache line, which the other processor has:
//! longer than all the rest of such a Write takes.

use transom_memory::{Pass, Purpose};
use transom_wire::{Message, MessageId, Operation as WireOperation, Placing, Role, Time};

use super::{Connection, Phase};
use crate::copy::{AccessError, Accessor};
use crate::output::Output;
use crate::queue::Progress;
use crate::trace::Tracer;
use crate::{Cx, Execution, Flags, HostMemory, Operation, Status};

/// The most bytes of such a Write, whatever the link takes.
pub const SMALL: usize = 32;

/// Frames that have come, for [`Connection::receive_run`]. They are read where they are: to move one that
/// has just been stored in other pieces is to wait for the stores.
pub trait Frames {
    /// Bytes that begin with the next frame. `None`: there is none, for now.
    fn next(&mut self) -> Option<&[u8]>;

    /// The caller has taken `bytes` bytes of what [`next`](Frames::next) returned.
    fn taken(&mut self, bytes: usize);
}

/// A stretch of a stream.
impl Frames for &[u8] {
    fn next(&mut self) -> Option<&[u8]> {
        (!self.is_empty()).then_some(*self)
    }

    fn taken(&mut self, bytes: usize) {
        *self = self.get(bytes..).unwrap_or_default();
    }
}

/// The circumstances of a judgement: a guard, the program's memory, the moment.
type Under<'a, 'lane> = (&'a mut Pass<'lane>, &'a dyn HostMemory, Time);

/// The fate of the next request.
enum Small {
    Gone,
    /// The next request is none of these, or there is none.
    No,
    /// The request's own memory was refused; the request's context.
    Refused(u64, AccessError),
}

/// Whether a tracer wants every message.
fn wants_messages(cx: &Cx<'_>) -> bool {
    cx.trace.as_deref().is_some_and(Tracer::wants_messages)
}

impl Connection {
    /// Take small Writes of the peer, and acknowledgements that come as frames, for as long as there are
    /// `frames`. `false`: the next one is neither, nothing has happened to it, and it is to be given to
    /// [`receive`](Connection::receive).
    pub fn receive_run<F: Frames + ?Sized>(&mut self, cx: &mut Cx<'_>, frames: &mut F) -> bool {
        // A message to itself is executed by the ordinary way.
        let unusual = self.paused.is_some() || self.config.role == Role::Itself;
        if self.phase != Phase::Open || unusual || wants_messages(cx) {
            return frames.next().is_none();
        }
        let memory = cx.memory;
        let mut pass = memory.pass(&mut *cx.lane);
        while let Some(bytes) = frames.next() {
            let Some(placing) = self.wire.on_whole(bytes) else { return false };
            let Placing { consumed, token, address, payload, done, news } = placing;
            self.heard = cx.now;
            self.blocked = false;
            // News of our own requests that came with the frame comes first (ND2 4.2 rule 5).
            if news || done.is_some() {
                drop(pass);
                if let Some(through) = done {
                    self.done(cx, through);
                }
                if news {
                    self.poll(cx);
                }
                if self.ended.is_some() {
                    frames.taken(consumed);
                    return true;
                }
                pass = memory.pass(&mut *cx.lane);
            }
            if payload.is_empty() {
                frames.taken(consumed);
                continue;
            }
            self.message_unreported |= !std::mem::replace(&mut self.message_seen, true);
            let under = (&mut pass, cx.host, cx.now);
            let placed = self.remote(Purpose::RemoteWrite, payload.len() as u64, |accessor| {
                accessor.put(under, token, address, payload)
            });
            frames.taken(consumed);
            match placed {
                Ok(()) => self.wire.executed(cx.now),
                Err(error) => {
                    drop(pass);
                    self.refuse(cx, WireOperation::Write, error);
                    self.drop_rest(cx, WireOperation::Write, true, false);
                    return true;
                }
            }
        }
        true
    }

    /// The same in a pass, over whatever connection: messages that name a shared receive queue do not go
    /// this way. One that [is quiet](Connection::is_quiet) has none.
    pub fn receive_run_in_pass(&mut self, cx: &mut Cx<'_>, frames: &mut dyn Frames) -> bool {
        if self.is_xrc() { frames.next().is_none() } else { self.receive_run(cx, frames) }
    }

    /// Start what can go this way of a connection that [is quiet](Connection::is_quiet). `false`: something
    /// is left, for [`transmit`](Connection::transmit).
    pub fn transmit_small<O>(&mut self, cx: &mut Cx<'_>, out: &mut O) -> bool
    where
        O: Output + ?Sized,
    {
        self.start_run(cx, out);
        self.execution.as_ref().is_some_and(Execution::is_all_gone)
    }

    /// Start what can go this way, until something cannot. `true`: something has gone.
    pub(super) fn start_small(&mut self, cx: &mut Cx<'_>, out: &mut dyn Output) -> bool {
        // Events of the stream are reported by the ordinary way.
        let usual =
            !self.blocked && self.has_extension() && !self.is_unreliable() && !wants_messages(cx);
        usual && self.is_open() && self.start_run(cx, out)
    }

    /// The same, where nothing about the connection is in the way.
    fn start_run<O>(&mut self, cx: &mut Cx<'_>, out: &mut O) -> bool
    where
        O: Output + ?Sized,
    {
        let mut any = false;
        let owed = self.execution.as_ref().is_some_and(Execution::owes);
        let memory = cx.memory;
        let mut pass = memory.pass(&mut *cx.lane);
        let refused = loop {
            match self.small((&mut pass, cx.host, cx.now), out) {
                Small::Gone => any = true,
                Small::No => break None,
                Small::Refused(context, error) => break Some((context, error)),
            }
            if self.execution.as_ref().is_none_or(Execution::is_all_begun) {
                break None;
            }
        };
        drop(pass);
        if any && !owed {
            self.owing = cx.now;
        }
        if let Some((context, error)) = refused {
            let cause = error.cause(false);
            self.fail_next(cx, Status::LocalAccess, Some((context, cause)));
        }
        any
    }

    /// The next request, if it is one of these.
    fn small<O>(&mut self, (pass, host, now): Under<'_, '_>, out: &mut O) -> Small
    where
        O: Output + ?Sized,
    {
        let Some(execution) = self.execution.as_mut() else { return Small::No };
        let Some(slot) = execution.startable() else { return Small::No };
        let fenced = slot.flags.contains(Flags::READ_FENCE) && execution.reads > 0;
        let Operation::Write { token, address } = slot.operation else { return Small::No };
        let (length, context) = (slot.length, slot.context);
        let verdict = !slot.flags.contains(Flags::SILENT_SUCCESS);
        if fenced || length == 0 {
            return Small::No;
        }
        let mut room = [0; SMALL];
        let fitting = usize::try_from(length).ok().filter(|length| *length <= out.small_room());
        let Some(bytes) = fitting.and_then(|length| room.get_mut(..length)) else {
            return Small::No;
        };
        if let Some(from) = slot.only() {
            let accessor =
                Accessor { actor: execution.actor(self.config.id), purpose: Purpose::LocalSource };
            if let Err(error) = accessor.read((pass, host, now), from.token, from.address, bytes) {
                return Small::Refused(context, error);
            }
        } else if !slot.inline || !execution.requests.copy_inline(slot, bytes) {
            return Small::No;
        }
        let id = MessageId(execution.next_message);
        let length = length as u32; // a few
        let message = Message::Write { token, address, length, verdict, immediate: None };
        if !out.small((&mut *self.wire, now), id, &message, bytes) {
            return Small::No;
        }
        if let Some(slot) = execution.requests.get_mut(execution.next) {
            (slot.message, slot.progress) = (id.0, Progress::Sent);
        }
        execution.next_message += 1;
        execution.next += 1;
        Small::Gone
    }
}
