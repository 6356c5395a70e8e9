//! Writes of a few bytes, for links with a place for small frames: judged, copied and on their way in
//! one go, where the ordinary way (`outbound.rs`) starts a message, asks the wire for its frames, and
//! copies each of them.

use transom_memory::Purpose;
use transom_wire::{Message, MessageId, Operation as WireOperation, Placing, SMALL_HEADER};

use super::{Connection, Phase};
use crate::copy::By;
use crate::output::Output;
use crate::queue::Progress;
use crate::trace::Tracer;
use crate::{Cx, Flags, Operation, Status};

/// The most bytes of such a Write, whatever the link takes.
const SMALL: usize = 64;

/// Somebody wants to hear of every message.
fn is_told(cx: &Cx<'_>) -> bool {
    cx.trace.as_deref().is_some_and(Tracer::wants_messages)
}

impl Connection {
    /// A whole small Write of the peer: its header, and payload behind it, perhaps with more that does
    /// not count. `false`: it is none, nothing has happened, and it is to be given to
    /// [`receive`](Connection::receive).
    pub fn receive_small(
        &mut self,
        cx: &mut Cx<'_>,
        header: &[u8; SMALL_HEADER],
        payload: &[u8],
    ) -> bool {
        if self.phase != Phase::Open || self.parked.is_some() || is_told(cx) {
            return false;
        }
        let Some(Placing { token, address, length, news }) = self.wire.take_whole(header) else {
            return false;
        };
        self.heard = cx.now;
        self.blocked = false;
        // What came with it about our own requests comes first (ND2 4.2 rule 5).
        if news {
            self.poll(cx);
            if self.ended.is_some() && !planted!("small: behind the end") {
                return true;
            }
        }
        let bytes = payload.get(..length).unwrap_or_default();
        if planted!("small: acknowledged before placed") {
            self.wire.executed(cx.now);
        }
        match self.remote(Purpose::RemoteWrite, |by| by.put(cx, token, address, bytes)) {
            Ok(()) if planted!("small: acknowledged before placed") => {}
            Ok(()) => self.wire.executed(cx.now),
            Err(_) if planted!("small: goes on after a denial") => {}
            Err(bad) => self.refuse(cx, WireOperation::Write, bad),
        }
        true
    }

    /// Start what can go this way, until something cannot. `true`: something has gone.
    pub(super) fn start_small(&mut self, cx: &mut Cx<'_>, out: &mut dyn Output) -> bool {
        // Events of the stream are told by the ordinary way.
        if self.blocked || is_told(cx) || !self.is_open() {
            return false;
        }
        let mut any = false;
        while self.small(cx, out).is_some() {
            any = true;
        }
        any
    }

    /// The next request, if it is one of these. `None`: it is not, or there is none.
    fn small(&mut self, cx: &mut Cx<'_>, out: &mut dyn Output) -> Option<()> {
        let execution = self.execution.as_mut()?;
        let slot = execution.startable()?;
        let Operation::Write { token, address } = slot.operation else { return None };
        let (length, context) = (slot.length, slot.context);
        let fenced = slot.flags.contains(Flags::READ_FENCE) && execution.reads > 0;
        let verdict = !slot.flags.contains(Flags::SILENT_SUCCESS);
        if fenced && !planted!("small: fence ignored") || length == 0 {
            return None;
        }
        let mut room = [0; SMALL];
        let bytes = usize::try_from(length).ok().filter(|length| *length <= out.small_room());
        let bytes = bytes.and_then(|length| room.get_mut(..length))?;
        let from = execution.requests.only(slot)?;
        let by = By { actor: execution.actor(self.config.id), purpose: Purpose::LocalSource };
        if let Err(bad) = by.read(cx, from.token, from.address, bytes) {
            let cause = bad.cause(false);
            self.fail_next(cx, Status::LocalAccess, Some((context, cause)));
            return None;
        }
        let id = MessageId(execution.next_message);
        let length = length as u32; // a few
        let message = Message::Write { token, address, length, verdict };
        let header = self.wire.whole(cx.now, id, &message)?;
        out.small(&header, bytes);
        if !execution.owes() {
            self.owing = cx.now;
        }
        if let Some(slot) = execution.requests.get_mut(execution.next) {
            slot.message = id.0;
        }
        execution.next_message += 1;
        let done = planted!("small: done when it is sent");
        execution.advance(if done { Progress::Done } else { Progress::Sent });
        Some(())
    }
}
