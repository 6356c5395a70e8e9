//! Bytes between a link's socket and its connection, and the choice between socket and rings.

use super::carrier::{Carrier, Stage, Tcp};
use super::notifications::Notifications;
use super::outlet::Outlet;
use super::quick::has_unseen_receive;
use super::{Link, LinkDenials, LinkPhase, LinkState};
use crate::driver::config::options::status_of;
use crate::driver::schedule::workers::{Worker, fit};
use transom_wire::Time;

use crate::sys::{IoError, Stream};
use crate::{Attention, Connection, Cx, LinkEnd};

/// The cost of a received frame beside its bytes, as bytes that could have been moved in that time:
/// a peer that sends a byte per frame gets no more of the adapter's thread than others.
pub(crate) const FRAME: usize = 1024;
/// The least that is asked for at a time.
const SMALLEST_READ_SIZE: usize = 2 * 1024;

/// Receives, of 16 KiB each, for what a socket still holds when it cannot be written any more. A peer that
/// goes on sending is not listened to for longer.
const FINAL_READS: usize = 1024;

/// The most bytes that are received without a pass: a few small Writes and acknowledgements.
const FEW: usize = 2 * 1024;

/// How many times a ring is looked at in the time of one look at a socket.
const PEEKS: u32 = 256;

/// The outcome of a receive that was done ahead, if one was.
pub(crate) type First = Option<Result<usize, IoError>>;

impl Link {
    /// Finish the TCP connect, if it is answered; returns whether it is made. A failure is reported to the connection.
    pub(crate) fn finish_connect(&self, state: &mut LinkState, cx: &mut Cx<'_>) -> bool {
        match self.stream.connected() {
            Ok(()) => {
                self.offer_upgrade(state);
                if !self.read_answer(state, cx) {
                    return false;
                }
                state.phase = LinkPhase::Open;
                learn_segment_size(&self.stream, &mut state.connection);
                true
            }
            Err(IoError::NotNow) => false,
            Err(e) => {
                state.connection.link_closed(cx, link_end(e));
                false
            }
        }
    }

    /// Look at the rings, if there are any, for something to read. `true`: there is nothing.
    pub(crate) fn finds_no_record(&self, state: &mut LinkState, now: Time, tries: u32) -> bool {
        let (Some(rings), Some(bell)) = (state.carrier.rings_mut(), self.bell.get()) else {
            return false;
        };
        !rings.glance(bell, now, tries.saturating_mul(PEEKS))
    }

    /// The first receive of a pass that may end with it, into the staging buffer. Not for rings.
    pub(crate) fn glance(&self, state: &mut LinkState, worker: &mut Worker, tries: u32) -> First {
        let tcp = state.carrier.socket()?;
        let room = worker.staging().get_mut(state.partial.len()..)?;
        let read_size = room.len().min(tcp.read_size);
        let room = room.get_mut(..read_size)?;
        let mut found = Err(IoError::NotNow);
        for _ in 0..tries {
            found = self.stream.receive(room);
            if found != Err(IoError::NotNow) {
                break;
            }
        }
        Some(found)
    }

    /// Take what a first receive has brought, if that is little and nothing about the link asks for a pass.
    /// `false`: a pass must follow, with what `first` says then.
    pub(super) fn receive_few(
        &self,
        state: &mut LinkState,
        worker: &mut Worker,
        now: Time,
        first: &mut First,
        notifications: &mut Notifications,
    ) -> bool {
        let Some(Ok(count @ 1..=FEW)) = *first else { return false };
        let Some(_) = self.quiet(state, now) else { return false };
        // Less was there than was asked for: the socket is empty.
        *first = Some(Err(IoError::NotNow));
        let LinkState { connection, partial, effects, carrier, out, written, qp, .. } = &mut *state;
        let (lane, staging) = worker.tools(&self.shared.memory);
        let denials = LinkDenials(self);
        let mut cx = self.quick_cx(now, lane, effects, &denials);
        let mut bytes = staging.get(..count).unwrap_or_default();
        connection.receive_frames(&mut cx, &mut bytes);
        if !bytes.is_empty() {
            partial.extend_from_slice(bytes);
            connection.attention().set(Attention::PARTIAL);
        }
        if has_unseen_receive(connection, qp) {
            let _ = self.is_done(state, notifications);
            return false;
        }
        if connection.wants_write()
            && let Some(tcp) = carrier.socket()
        {
            let mut outlet = Outlet::new(self, (out, written), tcp, self.shared.pass_budget());
            connection.transmit(&mut cx, &mut outlet);
            outlet.write();
        }
        self.is_done(state, notifications)
    }

    /// Receive until the socket is dry, the quota is used up or a control call waits. `false`:
    /// there was nothing. `first`: what [`Link::glance`] has received.
    pub(super) fn receive_stream(
        &self,
        state: &mut LinkState,
        cx: &mut Cx<'_>,
        staging: &mut Vec<u8>,
        mut first: First,
    ) -> bool {
        fit(staging);
        let mut any = false;
        if state.connection.has_attention(Attention::UNREAD) && state.connection.wants_read() {
            any = true;
            self.process_partial(state, cx);
        }
        let budget = self.shared.pass_budget();
        let mut taken = 0;
        // Bytes at the front of the staging buffer that wait for the rest of their frame.
        let mut kept = 0;
        loop {
            let pauses = !state.connection.wants_read();
            if pauses || taken >= budget || self.lock.is_wanted() && any {
                break;
            }
            let have = kept + state.partial.len();
            let Some(tcp) = state.carrier.socket() else { return any };
            let read_size = staging.len().saturating_sub(have).min(tcp.read_size);
            let Some(room) =
                staging.get_mut(have..have + read_size).filter(|room| !room.is_empty())
            else {
                break;
            };
            let asked = read_size;
            let received = first.take().unwrap_or_else(|| self.stream.receive(room));
            let count = match received {
                Ok(0) => {
                    state.connection.link_closed(cx, self.how_it_ended(state));
                    return true;
                }
                Ok(count) => count,
                Err(IoError::NotNow) => break,
                Err(e) => {
                    state.connection.link_closed(cx, lost(e));
                    return true;
                }
            };
            any = true;
            let frames = if count < state.partial.len() {
                // Little by little: moving what is there each time would cost its square.
                let fresh = staging.get(have..have + count).unwrap_or_default();
                state.partial.extend_from_slice(fresh);
                self.process_partial(state, cx)
            } else {
                if let Some(front) = staging.get_mut(..state.partial.len()) {
                    front.copy_from_slice(&state.partial);
                    state.partial.clear();
                }
                let total = have + count;
                let bytes = staging.get(..total).unwrap_or_default();
                let (consumed, frames) = self.hand_on(state, cx, bytes);
                staging.copy_within(consumed..total, 0);
                kept = total - consumed;
                frames
            };
            let cost = count + frames * FRAME;
            taken += cost;
            // As much of the same as the budget has room for.
            let Some(tcp) = state.carrier.socket() else {
                return true; // the stream has said all that it will
            };
            tcp.read_size = (count * budget / cost).max(SMALLEST_READ_SIZE);
            if count < asked {
                break; // the socket is empty; epoll reports later bytes
            }
        }
        if kept > 0 {
            state.partial.extend_from_slice(staging.get(..kept).unwrap_or_default());
        }
        any
    }

    /// The peer has closed its direction. Asked of the kernel, because nothing else knows what the
    /// peer's TCP has acknowledged, or whether a reset followed.
    fn how_it_ended(&self, state: &LinkState) -> LinkEnd {
        let taken = || self.stream.progress().is_some_and(|progress| !progress.waits);
        let finished = state.out.bytes.is_empty() && taken();
        if finished { LinkEnd::Finished } else { LinkEnd::Closed }
    }

    /// Bytes of the stream, to whom they are for; how many were used, and how many frames they were.
    fn hand_on(&self, state: &mut LinkState, cx: &mut Cx<'_>, bytes: &[u8]) -> (usize, usize) {
        let mut before = 0;
        if matches!(state.carrier, Carrier::Upgrading(Stage::Opening, _)) {
            match self.answer_opening(state, cx, bytes) {
                None => return (0, 0),
                Some(_) if state.carrier.is_shared_memory() => return (bytes.len(), 0),
                Some(count) => before = count,
            }
        }
        let rest = bytes.get(before..).unwrap_or_default();
        let received = state.connection.receive(cx, rest);
        ((before + received.consumed).min(bytes.len()), received.frames)
    }

    /// Handle the bytes left over from earlier reads; returns how many frames were used.
    pub(crate) fn process_partial(&self, state: &mut LinkState, cx: &mut Cx<'_>) -> usize {
        let partial = std::mem::take(&mut state.partial);
        let (consumed, frames) = self.hand_on(state, cx, &partial);
        state.partial = partial;
        state.partial.drain(..consumed);
        frames
    }

    /// Have the connection say what it has to say, and write it.
    pub(super) fn send_stream(&self, state: &mut LinkState, cx: &mut Cx<'_>) {
        // Each segment sent wakes its receiver, and on this host does a part of its work.
        let budget = self.shared.pass_budget() / 2;
        let mut sent = 0;
        let mut flowing = self.write_out(state, cx, &mut sent);
        // Also when the socket is full: requests that need no socket are executed here.
        loop {
            let before = sent;
            let LinkState { connection, carrier, out, written, .. } = state;
            let Some(Tcp { corked, .. }) = carrier.socket() else { return };
            let stop = sent >= budget || self.lock.is_wanted() && sent > 0;
            let mut outlet =
                Outlet { link: self, out, written, corked, budget, sent, flowing, stop };
            connection.transmit(cx, &mut outlet);
            (sent, flowing) = (outlet.sent, outlet.flowing);
            flowing = flowing && self.write_out(state, cx, &mut sent);
            let over = stop || sent >= budget || self.lock.is_wanted();
            if state.end_send(over, flowing, sent > before) {
                break;
            }
        }
        if state.carrier.socket().is_some_and(|tcp| std::mem::take(&mut tcp.corked)) {
            self.stream.push();
        }
    }

    /// Write the buffer. `false`: the socket is full or broken.
    fn write_out(&self, state: &mut LinkState, cx: &mut Cx<'_>, sent: &mut usize) -> bool {
        while let Some(rest) = state.out.bytes.get(state.written..).filter(|r| !r.is_empty()) {
            match self.stream.send(rest) {
                Ok(count) => {
                    state.written += count;
                    *sent += count;
                    if let Some(tcp) = state.carrier.socket() {
                        tcp.corked = false;
                    }
                }
                Err(IoError::NotNow) => return false,
                Err(e) => {
                    // Bytes that the peer sent before its end are still to be read, and name the
                    // reason.
                    state.out.bytes.clear();
                    state.written = 0;
                    self.read_to_the_end(state, cx, e);
                    return false;
                }
            }
        }
        state.out.bytes.clear();
        state.written = 0;
        true
    }

    fn read_to_the_end(&self, state: &mut LinkState, cx: &mut Cx<'_>, why: IoError) {
        let mut bytes = std::mem::take(&mut state.partial);
        let mut room = [0; 16 * 1024];
        for _ in 0..FINAL_READS {
            match self.stream.receive(&mut room) {
                Ok(0) | Err(_) => break,
                Ok(count) => bytes.extend_from_slice(room.get(..count).unwrap_or_default()),
            }
            let consumed = state.connection.receive(cx, &bytes).consumed.min(bytes.len());
            bytes.drain(..consumed);
            if !state.connection.wants_read() {
                break;
            }
        }
        state.connection.link_closed(cx, lost(why));
    }
}

impl LinkState {
    /// Whether a pass is done with sending; [`Attention::MORE`] says afterwards whether the next one is to go on. `over`:
    /// the budget is, or a control call waits; `moved`: it has sent something since it was last asked.
    pub(crate) fn end_send(&mut self, over: bool, flowing: bool, moved: bool) -> bool {
        let wants = self.connection.wants_write();
        let done = over || !flowing || !moved || !wants;
        if done {
            // Not asked for more than the budget allows: the next pass goes on.
            self.connection.attention().put(Attention::MORE, !flowing || over && wants);
        }
        done
    }
}

/// Have the wire know how much a segment of a TCP connection holds, once that is made.
pub(super) fn learn_segment_size(stream: &Stream, connection: &mut Connection) {
    if let Some(size) = stream.segment_size() {
        connection.wire().set_segment_size(size);
    }
}

/// How a link ends whose socket says `e`. A route that is gone is silence, too: by then nothing has
/// come through for as long as `Options::silence` says.
fn lost(e: IoError) -> LinkEnd {
    match e {
        IoError::Unreachable | IoError::NoRoute => LinkEnd::TimedOut,
        e => link_end(e),
    }
}

fn link_end(e: IoError) -> LinkEnd {
    match e {
        IoError::Reset => LinkEnd::Closed,
        IoError::TimedOut => LinkEnd::TimedOut,
        e => LinkEnd::Failed(status_of(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ND2 4.5: by the time a socket says so, nothing has come through for as long as a silence may last.
    #[test]
    fn an_end_by_silence_is_a_time_out() {
        assert_eq!(lost(IoError::TimedOut), LinkEnd::TimedOut);
        assert_eq!(lost(IoError::Unreachable), LinkEnd::TimedOut, "nobody found on the last hop");
        assert_eq!(lost(IoError::Reset), LinkEnd::Closed);
    }
}
