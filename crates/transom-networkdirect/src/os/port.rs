//! Completion ports: queues of packets that threads draw from.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use super::lock;

/// One packet. `overlapped` is an address and never followed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// The file's key, or what the poster said.
    pub(crate) key: usize,
    /// The request.
    pub(crate) overlapped: usize,
    /// Its NTSTATUS: negative = the packet dequeues as failed I/O (ND2 2.3 rule 5).
    pub(crate) status: i32,
    /// Bytes moved.
    pub(crate) bytes: u32,
}

/// A completion port. The number of threads it was made for is not enforced: as many run as there
/// are packets.
#[derive(Debug, Default)]
pub(crate) struct Port {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct State {
    packets: VecDeque<Packet>,
    waiting: usize,
    closed: bool,
}

/// Why there is no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nothing {
    /// The time is up.
    TimedOut,
    /// The port was closed while this thread waited.
    Closed,
}

impl Port {
    /// Add a packet.
    pub(crate) fn post(&self, packet: Packet) {
        let mut state = lock(&self.state);
        state.packets.push_back(packet);
        if state.waiting > 0 {
            drop(state);
            self.arrived.notify_one();
        }
    }

    /// Fill `out` with as many packets as there are; waits for the first one.
    pub(crate) fn take(
        &self,
        out: &mut Vec<Packet>,
        room: usize,
        limit: Option<Duration>,
    ) -> Result<(), Nothing> {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut state = lock(&self.state);
        loop {
            if !state.packets.is_empty() {
                let count = room.min(state.packets.len());
                out.extend(state.packets.drain(..count));
                return Ok(());
            }
            if state.closed {
                return Err(Nothing::Closed);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if limit == Some(Duration::ZERO) || left == Some(Duration::ZERO) {
                return Err(Nothing::TimedOut);
            }
            state.waiting += 1;
            state = match left {
                Some(left) => match self.arrived.wait_timeout(state, left) {
                    Ok((guard, _)) => guard,
                    Err(poisoned) => poisoned.into_inner().0,
                },
                None => match self.arrived.wait(state) {
                    Ok(guard) => guard,
                    Err(poisoned) => poisoned.into_inner(),
                },
            };
            state.waiting -= 1;
        }
    }

    /// Its handle was closed: nobody waits any longer.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.arrived.notify_all();
    }
}
