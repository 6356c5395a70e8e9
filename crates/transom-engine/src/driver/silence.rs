//! What is known of a peer that was given up because it did not answer: whether it is its program that is
//! silent, or its host.

use std::time::Duration;

use super::link::{Link, State};
use crate::EndReason;

/// Where a silence comes from, as far as this side can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Its host has acknowledged everything: its program does not answer.
    Unanswered,
    /// Its host answers, and has no room for what waits here: its program does not read.
    Untaken,
    /// Its host has acknowledged nothing for so long.
    Unheard(Duration),
}

impl Silence {
    /// Its last acknowledgement came so long ago, and bytes wait for one, or not. Probes of a host that
    /// answers come at intervals of up to half of `limit`.
    fn of(heard: Duration, waits: bool, limit: Duration) -> Silence {
        match waits {
            _ if heard >= limit * 3 / 4 => Silence::Unheard(heard),
            false => Silence::Unanswered,
            true => Silence::Untaken,
        }
    }
}

impl Link {
    /// If it has just ended by a silence, find out whose: while the socket still is as it was.
    pub(super) fn note_silence(&self, state: &State) {
        if !state.connection.ended().is_some_and(|end| end.reason == EndReason::TimedOut)
            || state.connecting
            || self.silence.get().is_some()
        {
            return;
        }
        let progress = if self.is_over_rings() {
            // Its process lives, or the link would have ended otherwise.
            Some((Duration::ZERO, false))
        } else {
            self.stream.progress()
        };
        if let Some((heard, unacknowledged)) = progress {
            let waits = unacknowledged || state.is_pending();
            let options = &self.shared.options;
            // Either may have ended it. What was heard longer ago than the shorter says nothing of now.
            let limit = options.silence.min(options.dialect.silence);
            let _ = self.silence.set(Silence::of(heard, waits, limit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_acknowledges_is_not_the_silent_one() {
        let [limit, lately] = [10, 2].map(Duration::from_secs);
        assert_eq!(Silence::of(lately, false, limit), Silence::Unanswered);
        assert_eq!(Silence::of(lately, true, limit), Silence::Untaken);
        assert_eq!(Silence::of(limit, true, limit), Silence::Unheard(limit));
        assert_eq!(Silence::of(limit, false, limit), Silence::Unheard(limit));
    }
}
