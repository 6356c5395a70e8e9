//! Completion ports: queues of packets that threads draw from.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::lock;

/// A packet. `overlapped` is an address and never followed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// The file's key, or what the poster said.
    pub(crate) key: usize,
    /// The request.
    pub(crate) overlapped: usize,
    /// The packet's NTSTATUS: negative = the packet dequeues as failed I/O (ND2 2.3 rule 5).
    pub(crate) status: i32,
    /// Bytes moved.
    pub(crate) bytes: u32,
}

/// A completion port. The number of threads it was made for is not enforced: as many run as there
/// are packets. A packet that finds threads waiting is given to the one that began to wait last, as
/// on Windows: no other that comes along can take it.
#[derive(Debug, Default)]
pub(crate) struct Port {
    state: Mutex<PortState>,
}

#[derive(Debug, Default)]
struct PortState {
    /// Empty while a thread waits.
    packets: VecDeque<Packet>,
    waiters: Vec<Arc<Waiter>>,
    closed: bool,
}

/// A thread that waits. The thread's lock comes after the port's.
#[derive(Debug, Default)]
struct Waiter {
    given: Mutex<Option<Result<Packet, Nothing>>>,
    woken: Condvar,
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
        let Some(waiter) = state.waiters.pop() else {
            return state.packets.push_back(packet);
        };
        *lock(&waiter.given) = Some(Ok(packet));
        drop(state);
        waiter.woken.notify_one();
    }

    /// Fill `out` with as many packets as there are; waits for the first one.
    pub(crate) fn take(
        &self,
        out: &mut Vec<Packet>,
        room: usize,
        limit: Option<Duration>,
    ) -> Result<(), Nothing> {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let waiter = {
            let mut state = lock(&self.state);
            if !state.packets.is_empty() {
                let count = room.min(state.packets.len());
                out.extend(state.packets.drain(..count));
                return Ok(());
            }
            if state.closed {
                return Err(Nothing::Closed);
            }
            if limit == Some(Duration::ZERO) {
                return Err(Nothing::TimedOut);
            }
            let waiter = Arc::new(Waiter::default());
            state.waiters.push(waiter.clone());
            waiter
        };
        out.push(self.wait(&waiter, until)?);
        Ok(())
    }

    fn wait(&self, waiter: &Arc<Waiter>, until: Option<Instant>) -> Result<Packet, Nothing> {
        let mut given = lock(&waiter.given);
        loop {
            if let Some(given) = given.take() {
                return given;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                drop(given);
                return self.leave(waiter);
            }
            given = match left {
                Some(left) => match waiter.woken.wait_timeout(given, left) {
                    Ok((guard, _)) => guard,
                    Err(poisoned) => poisoned.into_inner().0,
                },
                None => match waiter.woken.wait(given) {
                    Ok(guard) => guard,
                    Err(poisoned) => poisoned.into_inner(),
                },
            };
        }
    }

    /// The time is up, unless a packet comes at the last moment.
    fn leave(&self, waiter: &Arc<Waiter>) -> Result<Packet, Nothing> {
        let mut state = lock(&self.state);
        if let Some(at) = state.waiters.iter().position(|one| Arc::ptr_eq(one, waiter)) {
            state.waiters.remove(at);
            return Err(Nothing::TimedOut);
        }
        lock(&waiter.given).take().unwrap_or(Err(Nothing::Closed))
    }

    /// The handle was closed: no thread waits any longer.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        for waiter in state.waiters.drain(..) {
            *lock(&waiter.given) = Some(Err(Nothing::Closed));
            waiter.woken.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(overlapped: usize) -> Packet {
        Packet { key: 7, overlapped, status: 0, bytes: 0 }
    }

    fn take(port: &Port, limit: Option<Duration>) -> Result<usize, Nothing> {
        let mut out = Vec::new();
        port.take(&mut out, 1, limit)?;
        Ok(out[0].overlapped)
    }

    fn await_waiters(port: &Port, count: usize) {
        while lock(&port.state).waiters.len() != count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_packet_goes_to_the_thread_that_began_to_wait_last_and_to_no_latecomer() {
        let port = Port::default();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| take(&port, None));
            await_waiters(&port, 1);
            let last = scope.spawn(|| take(&port, None));
            await_waiters(&port, 2);
            port.post(packet(1));
            port.post(packet(2));
            assert_eq!(take(&port, Some(Duration::ZERO)), Err(Nothing::TimedOut));
            assert_eq!((last.join().unwrap(), first.join().unwrap()), (Ok(1), Ok(2)));
        });
        port.post(packet(3));
        port.post(packet(4));
        assert_eq!((take(&port, None), take(&port, None)), (Ok(3), Ok(4)), "in order");
    }

    /// GetQueuedCompletionStatusEx: as many as there are, and no more than there is room for.
    #[test]
    fn packets_are_taken_in_order_as_many_as_there_is_room_for() {
        let port = Port::default();
        (1..=4).for_each(|number| port.post(packet(number)));
        let taken = |room| {
            let mut out = Vec::new();
            port.take(&mut out, room, Some(Duration::ZERO)).unwrap();
            out.iter().map(|packet| packet.overlapped).collect::<Vec<_>>()
        };
        assert_eq!((taken(3), taken(3)), (vec![1, 2, 3], vec![4]));
    }

    #[test]
    fn a_wait_ends_with_its_time_or_with_the_port() {
        let port = Port::default();
        assert_eq!(take(&port, Some(Duration::from_millis(1))), Err(Nothing::TimedOut));
        assert_eq!(lock(&port.state).waiters.len(), 0, "it does not wait any more");
        std::thread::scope(|scope| {
            let one = scope.spawn(|| take(&port, None));
            await_waiters(&port, 1);
            port.close();
            assert_eq!(one.join().unwrap(), Err(Nothing::Closed));
        });
        assert_eq!(take(&port, None), Err(Nothing::Closed));
    }
}
