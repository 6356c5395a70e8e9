//! The cause of a silence: whether a peer that was given up for not answering has a silent program
//! or a silent host.

use std::time::Duration;

use super::{Link, LinkPhase, LinkState};
use crate::EndReason;
use crate::sys::Progress;

/// Where a silence comes from, as far as this side can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The peer's host has acknowledged everything: its program does not answer.
    Unanswered,
    /// As `Unanswered`, but the host's last word is so long ago that the network may have failed since:
    /// this side has sent nothing that would have found out.
    Undecided(Duration),
    /// The peer's host answers, and has no room for what waits here: its program does not read.
    Untaken,
    /// The peer's host has acknowledged nothing for so long.
    Unheard(Duration),
}

impl Silence {
    /// `waits`: there is something that the peer has not taken. A host that acknowledges is asked ever
    /// more seldom, so a long time since its last word means nothing by itself: the host is silent if
    /// something was sent to it meanwhile, and it has not answered that.
    pub(crate) fn of(progress: Progress, waits: bool, limit: Duration) -> Silence {
        match waits {
            _ if progress.unanswered && progress.heard >= limit * 3 / 4 => {
                Silence::Unheard(progress.heard)
            }
            false if progress.heard >= limit * 3 / 4 => Silence::Undecided(progress.heard),
            false => Silence::Unanswered,
            true => Silence::Untaken,
        }
    }
}

impl Link {
    /// If it has just ended by a silence, find out whose: while the socket still is as it was.
    pub(crate) fn note_silence(&self, state: &LinkState) {
        if !state.connection.ended().is_some_and(|end| end.reason == EndReason::TimedOut)
            || state.phase == LinkPhase::Connecting
            || self.silence.get().is_some()
        {
            return;
        }
        let progress = if self.is_over_rings() {
            // The peer's process lives, or the link would have ended otherwise.
            Some(Progress::default())
        } else {
            self.stream.progress()
        };
        if let Some(progress) = progress {
            let waits = progress.waits || state.is_pending();
            let options = &self.shared.options;
            // Either limit may have ended it. An acknowledgement older than the shorter one proves
            // nothing now.
            let limit = options.silence.min(options.dialect.silence);
            let _ = self.silence.set(Silence::of(progress, waits, limit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn of(heard: Duration, unanswered: bool, waits: bool) -> Silence {
        Silence::of(Progress { heard, unanswered, waits }, waits, LIMIT)
    }

    #[test]
    fn a_host_that_acknowledges_is_not_the_silent_one() {
        let lately = Duration::from_secs(2);
        for unanswered in [false, true] {
            assert_eq!(of(lately, unanswered, false), Silence::Unanswered);
            assert_eq!(of(lately, unanswered, true), Silence::Untaken);
        }
        assert_eq!(of(LIMIT, true, true), Silence::Unheard(LIMIT));
        assert_eq!(of(LIMIT, true, false), Silence::Unheard(LIMIT));
    }

    /// On a slow line, or a busy machine, the kernel asks once in the whole time.
    #[test]
    fn a_host_that_was_not_asked_for_long_is_not_the_silent_one() {
        assert_eq!(of(LIMIT, false, true), Silence::Untaken);
        assert_eq!(of(LIMIT, false, false), Silence::Undecided(LIMIT));
    }
}
