//! Room for datagrams in the buffers of receivers on this host. The system drops a datagram whose
//! receiver's buffer is full, and its sender is not informed; so the sender looks before.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use crate::sys::ReceiveBuffer;

/// Receivers that are remembered. With more of them, all are forgotten, and looked at again.
const MOST: usize = 1024;
/// The part of a buffer's free room that a sender takes for one look: as many senders as that never
/// overfill a buffer.
const SENDERS: usize = 4;
/// Bytes that are sent before the next look at an address where no socket was seen.
const UNSEEN: usize = 64 * 1024;
/// Bytes of the system's own structures for a datagram, beside its bytes and headers.
const HEADERS: usize = 512;
const STRUCTURE: usize = 256;

/// The receivers' buffers, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct ReceiverRoom(Mutex<HashMap<SocketAddr, Room>>);

#[derive(Debug, Default)]
struct Room {
    /// Bytes of memory that may still be filled without another look.
    left: usize,
    /// A datagram has waited in vain: those that follow do not wait until there is room again.
    stalled: bool,
}

/// Bytes of memory that the system needs for a datagram: it rounds up to powers of two.
fn memory_for(length: usize) -> usize {
    (length + HEADERS).next_power_of_two() + STRUCTURE
}

impl ReceiverRoom {
    /// Whether a datagram of `length` bytes may be sent. `look` asks for the receiver's buffer.
    pub(crate) fn take(
        &self,
        to: SocketAddr,
        length: usize,
        look: impl FnOnce() -> Option<ReceiveBuffer>,
    ) -> bool {
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if rooms.len() >= MOST && !rooms.contains_key(&to) {
            rooms.clear();
        }
        let room = rooms.entry(to).or_default();
        let needed = memory_for(length);
        if room.left < needed {
            let (free, empty) = match look() {
                Some(ReceiveBuffer { held, size }) => (size.saturating_sub(held), held == 0),
                None => (UNSEEN * SENDERS, true),
            };
            room.left = free / SENDERS;
            if room.left < needed && !empty {
                return room.stalled;
            }
            room.stalled = false;
        }
        room.left = room.left.saturating_sub(needed);
        true
    }

    /// A datagram has waited in vain for room at `to`.
    pub(crate) fn stall(&self, to: SocketAddr) {
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.entry(to).or_default().stalled = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn buffer(held: usize, size: usize) -> impl Fn() -> Option<ReceiveBuffer> {
        move || Some(ReceiveBuffer { held, size })
    }

    fn not_asked() -> Option<ReceiveBuffer> {
        panic!("there is room yet")
    }

    /// Bytes of memory for a datagram of 4096 bytes.
    const ONE: usize = 8192 + STRUCTURE;

    #[test]
    fn a_look_is_good_for_a_quarter_of_the_free_room() {
        let rooms = ReceiverRoom::default();
        let look = buffer(ONE, ONE + 4 * (2 * ONE));
        assert!(rooms.take(at(1), 4096, look));
        assert!(rooms.take(at(1), 4096, not_asked));
        assert!(!rooms.take(at(1), 4096, buffer(ONE, ONE + 4 * ONE - 1)), "one byte too few");
        assert!(rooms.take(at(1), 4096, buffer(ONE, ONE + 4 * ONE)));
        assert!(rooms.take(at(2), 4096, buffer(0, 16 * ONE)), "another receiver is looked at");
        assert!(!rooms.take(at(1), 4096, buffer(2 * ONE, ONE)), "more than full");
    }

    #[test]
    fn an_empty_buffer_takes_a_datagram_however_small_it_is() {
        let rooms = ReceiverRoom::default();
        assert!(rooms.take(at(1), 4096, buffer(0, 2048)));
        assert!(!rooms.take(at(1), 4096, buffer(1, 2048)));
    }

    #[test]
    fn no_datagram_waits_for_a_receiver_that_has_stalled() {
        let rooms = ReceiverRoom::default();
        let full = buffer(16 * ONE, 16 * ONE);
        assert!(!rooms.take(at(1), 4096, &full));
        rooms.stall(at(1));
        assert!(rooms.take(at(1), 4096, &full), "and is lost");
        assert!(!rooms.take(at(2), 4096, &full));
        assert!(rooms.take(at(1), 4096, buffer(0, 4 * ONE)), "it has gone on");
        assert!(!rooms.take(at(1), 4096, &full), "so the next one waits again");
    }

    #[test]
    fn where_no_socket_is_seen_each_64_kib_look_again() {
        let rooms = ReceiverRoom::default();
        assert!(rooms.take(at(1), 4096, || None));
        for _ in 1..UNSEEN / ONE {
            assert!(rooms.take(at(1), 4096, not_asked));
        }
        assert!(!rooms.take(at(1), 4096, buffer(ONE, ONE)));
    }

    #[test]
    fn a_sender_to_many_receivers_remembers_a_limited_number() {
        let rooms = ReceiverRoom::default();
        for port in 1..=MOST as u16 {
            assert!(rooms.take(at(port), 4096, buffer(0, 8 * ONE)));
        }
        assert!(rooms.take(at(1), 4096, not_asked));
        assert!(rooms.take(at(MOST as u16 + 1), 4096, buffer(0, 8 * ONE)));
        assert_eq!(rooms.0.lock().unwrap().len(), 1);
    }
}
