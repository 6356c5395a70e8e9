//! Bytes between a link's socket and its connection.

use super::link::{Link, State};
use super::workers::{Worker, fit};
use crate::sys::IoError;
use crate::{Cx, LinkEnd};

/// Bytes received, and bytes sent, in one pass before other links have their turn.
const QUOTA: usize = 1024 * 1024;

/// The outcome of a receive that was done ahead, if one was.
pub(super) type First = Option<Result<usize, IoError>>;

impl Link {
    /// Whether the TCP connection has come about. If it never will, the connection hears of it.
    pub(super) fn connected(&self, state: &mut State, cx: &mut Cx<'_>) -> bool {
        match self.stream.connected() {
            Ok(()) => {
                state.connecting = false;
                self.learn_segment_size(state);
                true
            }
            Err(IoError::NotNow) => false,
            Err(e) => {
                state.connection.link_closed(cx, link_end(e));
                false
            }
        }
    }

    pub(super) fn learn_segment_size(&self, state: &mut State) {
        if let Some(size) = self.stream.segment_size() {
            state.connection.wire().set_segment_size(size);
        }
    }

    /// The first receive of a pass that may end with it, into the staging buffer.
    pub(super) fn glance(&self, state: &State, worker: &mut Worker) -> First {
        let staging = worker.staging();
        Some(self.stream.receive(staging.get_mut(state.partial.len()..)?))
    }

    /// Receive until the socket is dry, the quota is used up or a control call waits. `false`:
    /// there was nothing. `first`: what [`Link::glance`] has received.
    pub(super) fn receive(
        &self,
        state: &mut State,
        cx: &mut Cx<'_>,
        staging: &mut Vec<u8>,
        mut first: First,
    ) -> bool {
        fit(staging);
        let mut any = false;
        if state.paused && state.connection.wants_read() {
            any = true;
            self.chew_partial(state, cx);
        }
        let mut taken = 0;
        // Bytes at the front of the staging buffer that wait for the rest of their frame.
        let mut kept = 0;
        loop {
            state.paused = !state.connection.wants_read();
            if state.paused || taken >= QUOTA || self.latch.is_wanted() && any {
                break;
            }
            let have = kept + state.partial.len();
            let Some(room) = staging.get_mut(have..).filter(|room| !room.is_empty()) else { break };
            let asked = room.len();
            let received = first.take().unwrap_or_else(|| self.stream.receive(room));
            let count = match received {
                Ok(0) => {
                    state.connection.link_closed(cx, LinkEnd::Closed);
                    return true;
                }
                Ok(count) => count,
                Err(IoError::NotNow) => break,
                Err(e) => {
                    state.connection.link_closed(cx, link_end(e));
                    return true;
                }
            };
            any = true;
            taken += count;
            if count < state.partial.len() {
                // Little by little: moving what is there each time would cost its square.
                let fresh = staging.get(have..have + count).unwrap_or_default();
                state.partial.extend_from_slice(fresh);
                self.chew_partial(state, cx);
            } else {
                if let Some(front) = staging.get_mut(..state.partial.len()) {
                    front.copy_from_slice(&state.partial);
                    state.partial.clear();
                }
                let total = have + count;
                let bytes = staging.get(..total).unwrap_or_default();
                let consumed = state.connection.receive(cx, bytes).consumed.min(total);
                staging.copy_within(consumed..total, 0);
                kept = total - consumed;
            }
            if count < asked {
                break; // dry; whoever looks next would be told
            }
        }
        if kept > 0 {
            state.partial.extend_from_slice(staging.get(..kept).unwrap_or_default());
        }
        any
    }

    fn chew_partial(&self, state: &mut State, cx: &mut Cx<'_>) {
        let partial = std::mem::take(&mut state.partial);
        let consumed = state.connection.receive(cx, &partial).consumed.min(partial.len());
        state.partial = partial;
        state.partial.drain(..consumed);
    }

    /// Have the connection say what it has to say, and write it.
    pub(super) fn send(&self, state: &mut State, cx: &mut Cx<'_>) {
        let mut sent = 0;
        state.more = false;
        loop {
            let flowing = self.write_out(state, cx, &mut sent);
            // Also when the socket is full: requests that need no socket are executed here.
            state.connection.transmit(cx, &mut state.out);
            if state.out.bytes.is_empty() || !flowing {
                return;
            }
            if sent >= QUOTA || self.latch.is_wanted() && sent > 0 {
                state.more = true;
                return;
            }
        }
    }

    /// Write the buffer. `false`: the socket is full or broken.
    fn write_out(&self, state: &mut State, cx: &mut Cx<'_>, sent: &mut usize) -> bool {
        while let Some(rest) = state.out.bytes.get(state.written..).filter(|r| !r.is_empty()) {
            match self.stream.send(rest) {
                Ok(count) => {
                    state.written += count;
                    *sent += count;
                }
                Err(IoError::NotNow) => return false,
                Err(_) => {
                    // What the peer said before its end is still to be read, and tells more.
                    state.out.bytes.clear();
                    state.written = 0;
                    self.read_to_the_end(state, cx);
                    return false;
                }
            }
        }
        state.out.bytes.clear();
        state.written = 0;
        true
    }

    fn read_to_the_end(&self, state: &mut State, cx: &mut Cx<'_>) {
        let mut bytes = std::mem::take(&mut state.partial);
        let mut room = [0; 16 * 1024];
        loop {
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
        state.connection.link_closed(cx, LinkEnd::Closed);
    }
}

fn link_end(e: IoError) -> LinkEnd {
    match e {
        IoError::Reset => LinkEnd::Closed,
        IoError::TimedOut => LinkEnd::TimedOut,
        e => LinkEnd::Failed(super::options::status_of(e)),
    }
}
