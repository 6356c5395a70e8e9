//! Reports of an epoll set about a switched socket: by level, by edge, once.
//!
//! The kernel's epoll reports what happens to a TCP socket. Of a switched one it sees doorbells only, so
//! the set's answers are made here, from what the rings hold.

/// There is something to read.
pub const IN: u32 = 0x001;
/// There is an urgent byte.
pub const PRI: u32 = 0x002;
/// There is room to write.
pub const OUT: u32 = 0x004;
/// The connection has failed.
pub const ERR: u32 = 0x008;
/// Both directions have ended.
pub const HUP: u32 = 0x010;
/// As `IN`, for ordinary bytes.
pub const RDNORM: u32 = 0x040;
/// As `OUT`, for ordinary bytes.
pub const WRNORM: u32 = 0x100;
/// The peer sends no more.
pub const RDHUP: u32 = 0x2000;
/// Report once, until the interest is renewed.
pub const ONESHOT: u32 = 1 << 30;
/// Report changes only.
pub const EDGE: u32 = 1 << 31;

/// Events that bytes which come may be.
const ARRIVES: u32 = IN | PRI | RDNORM | 0x080;

/// The state of a socket at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Which of the events hold.
    pub events: u32,
    /// A number that changes whenever something new can be read.
    pub input: u64,
    /// A number that changes whenever a direction ends, or this end asks for that.
    pub ends: u64,
    /// A number that changes whenever a send has found no room.
    pub output: u64,
}

/// An entry of an epoll set.
#[derive(Clone, Debug)]
pub struct Interest {
    wanted: u32,
    seen_input: Option<u64>,
    seen_ends: Option<u64>,
    seen_output: Option<u64>,
    spent: bool,
}

impl Interest {
    /// An entry with the events that `epoll_ctl` was given.
    #[must_use]
    pub fn new(wanted: u32) -> Interest {
        Interest { wanted, seen_input: None, seen_ends: None, seen_output: None, spent: false }
    }

    /// The events that `epoll_ctl` was given.
    #[must_use]
    pub fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Whether the entry was reported once, and was to be reported once.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.spent
    }

    /// The kernel has reported the entry.
    pub fn was_reported(&mut self) {
        self.spent = self.wanted & ONESHOT != 0;
    }

    /// The events to report now; 0: none.
    #[must_use]
    pub fn report(&mut self, ready: &Ready) -> u32 {
        let events = ready.events & (self.wanted | ERR | HUP);
        if events != 0 && self.wanted & EDGE != 0 {
            // As the kernel's: bytes that come concern those who wait for input, an end concerns everyone, also
            // if the bytes were read meanwhile.
            let arrived = self.wanted & ARRIVES != 0 && self.seen_input != Some(ready.input);
            let ended = self.seen_ends != Some(ready.ends);
            let room = events & (OUT | WRNORM) != 0 && self.seen_output != Some(ready.output);
            if !(arrived || ended || room) {
                return 0;
            }
        }
        self.report_anyway(ready)
    }

    /// As [`Interest::report`], where the kernel says that something has changed.
    #[must_use]
    pub fn report_anyway(&mut self, ready: &Ready) -> u32 {
        let events = ready.events & (self.wanted | ERR | HUP);
        if events == 0 || self.spent {
            return 0;
        }
        (self.seen_input, self.seen_ends) = (Some(ready.input), Some(ready.ends));
        // Room that is not there now is still a change when it is.
        if events & (OUT | WRNORM) != 0 {
            self.seen_output = Some(ready.output);
        }
        self.was_reported();
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(events: u32, input: u64, output: u64) -> Ready {
        Ready { events, input, output, ends: 0 }
    }

    #[test]
    fn a_level_is_reported_as_long_as_it_holds() {
        let mut entry = Interest::new(IN);
        assert_eq!(entry.report(&ready(OUT, 0, 0)), 0);
        for _ in 0..3 {
            assert_eq!(entry.report(&ready(IN | OUT, 5, 0)), IN);
            entry.was_reported();
            assert!(!entry.is_spent());
        }
        assert_eq!(entry.report(&ready(OUT, 5, 0)), 0);
        assert_eq!(entry.report(&ready(HUP, 5, 0)), HUP, "reported without being asked for");
    }

    #[test]
    fn an_edge_is_reported_once_for_each_change() {
        let mut entry = Interest::new(IN | OUT | EDGE);
        assert_eq!(entry.report(&ready(OUT, 0, 0)), OUT);
        assert_eq!(entry.report(&ready(OUT, 0, 0)), 0);
        assert_eq!(entry.report(&ready(IN | OUT, 5, 0)), IN | OUT);
        assert_eq!(entry.report(&ready(IN | OUT, 5, 0)), 0, "not read, and nothing new");
        assert_eq!(entry.report(&ready(IN | OUT, 6, 0)), IN | OUT);
    }

    #[test]
    fn an_edge_concerns_those_who_wait_for_it() {
        let mut entry = Interest::new(OUT | EDGE);
        assert_eq!(entry.report(&ready(OUT, 0, 0)), OUT);
        assert_eq!(entry.report(&ready(IN | OUT, 8, 0)), 0, "bytes, which it does not wait for");
        let ended = |ends| Ready { ends, ..ready(IN | OUT | HUP, 8, 0) };
        assert_eq!(entry.report(&ended(1)), OUT | HUP, "an end");
        assert_eq!(entry.report(&ended(1)), 0);
        assert_eq!(entry.report(&ended(2)), OUT | HUP, "this end has asked for one");
        let mut entry = Interest::new(IN | OUT | EDGE);
        assert_eq!(entry.report(&ready(OUT, 0, 0)), OUT);
        assert_eq!(entry.report(&ready(OUT, 8, 0)), OUT, "bytes that were read meanwhile");
        assert_eq!(entry.report(&ready(OUT, 8, 0)), 0);
    }

    #[test]
    fn what_the_kernel_has_seen_is_reported_and_known_from_then_on() {
        let mut entry = Interest::new(IN | OUT | EDGE);
        assert_eq!(entry.report_anyway(&ready(IN | OUT, 0, 0)), IN | OUT);
        assert_eq!(entry.report(&ready(IN | OUT, 0, 0)), 0);
        assert_eq!(entry.report_anyway(&ready(IN | OUT, 0, 0)), IN | OUT, "seen once more");
        assert_eq!(entry.report(&ready(OUT, 0, 1)), OUT);
        let mut once = Interest::new(IN | EDGE | ONESHOT);
        assert_eq!(once.report_anyway(&ready(IN, 0, 0)), IN);
        assert_eq!(once.report_anyway(&ready(IN, 0, 0)), 0);
    }

    /// A send has found no room; bytes come in meanwhile; then there is room.
    #[test]
    fn room_is_reported_by_edge_though_input_was_reported_while_there_was_none() {
        let mut entry = Interest::new(IN | OUT | EDGE);
        assert_eq!(entry.report(&ready(OUT, 0, 0)), OUT);
        assert_eq!(entry.report(&ready(IN, 7, 1)), IN);
        assert_eq!(entry.report(&ready(OUT, 7, 1)), OUT);
        assert_eq!(entry.report(&ready(OUT, 7, 1)), 0);
    }

    #[test]
    fn what_is_reported_once_waits_for_a_new_entry() {
        for flags in [ONESHOT, ONESHOT | EDGE] {
            let mut entry = Interest::new(IN | flags);
            assert_eq!(entry.report(&ready(IN, 1, 0)), IN);
            assert!(entry.is_spent());
            assert_eq!(entry.report(&ready(IN | ERR, 2, 0)), 0);
            let mut other = Interest::new(IN | flags);
            other.was_reported();
            assert!(other.is_spent(), "the kernel has reported it");
            assert_eq!(Interest::new(entry.wanted()).report(&ready(IN, 2, 0)), IN);
        }
    }
}
