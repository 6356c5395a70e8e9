//! How much has gone over the links of an adapter, those that have ended among them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Traffic in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Segments of TCP, or records of rings in shared memory.
    pub packets: u64,
    /// Bytes of them: of TCP its payload, of each record 64 and the payload that does not fit these.
    pub bytes: u64,
}

/// Traffic of an adapter in both directions: sent, and received. Counts only grow.
#[derive(Debug, Default)]
pub(crate) struct TrafficCount([[AtomicU64; 2]; 2]);

impl TrafficCount {
    /// A link has come from `before` to `now`.
    pub(crate) fn add(&self, before: [Traffic; 2], now: [Traffic; 2]) {
        for ([packets, bytes], (before, now)) in self.0.iter().zip(before.into_iter().zip(now)) {
            // The system counts segments with 32 bits.
            let more = (now.packets as u32).wrapping_sub(before.packets as u32);
            packets.fetch_add(u64::from(more), Ordering::Relaxed);
            bytes.fetch_add(now.bytes.saturating_sub(before.bytes), Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> [Traffic; 2] {
        let get = |[packets, bytes]: &[AtomicU64; 2]| Traffic {
            packets: packets.load(Ordering::Relaxed),
            bytes: bytes.load(Ordering::Relaxed),
        };
        let [sent, received] = &self.0;
        [get(sent), get(received)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_on_where_those_of_the_system_begin_again() {
        let count = TrafficCount::default();
        let of = |packets, bytes| Traffic { packets, bytes };
        let begin = of(u64::from(u32::MAX), 10);
        count.add([Traffic::default(), begin], [of(3, 100), of(1, 30)]);
        assert_eq!(count.get(), [of(3, 100), of(2, 20)]);
    }
}
