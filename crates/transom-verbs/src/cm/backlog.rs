//! The Requests that wait at a listener as events, and whether its listener is asked for another one.

use transom_engine::raw;

/// Of one listener. While it is not full, exactly one thread asks for the next Request, or waits for it.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// How many wait at most.
    pub(super) most: usize,
    waiting: raw::DescriptorShare,
    is_full: bool,
}

impl Backlog {
    /// A place for a Request, until what this returns is dropped; `None`: there is none.
    pub(super) fn take(&self) -> Option<raw::HeldDescriptor> {
        self.waiting.has_room(self.most).then(|| self.waiting.take())
    }

    /// A Request has come: whether another one is asked for now. If not, [`Backlog::goes_on`] says when.
    pub(super) fn takes_another(&mut self) -> bool {
        self.is_full = !self.waiting.has_room(self.most);
        !self.is_full
    }

    /// A place was freed: whether the next Request is asked for. Not if the place has been taken again since: then the
    /// next one that is freed counts.
    pub(super) fn goes_on(&mut self) -> bool {
        let goes_on = self.is_full && self.waiting.has_room(self.most);
        self.is_full &= !goes_on;
        goes_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v131_a_full_backlog_goes_on_once_for_a_place_that_is_free() {
        let mut backlog = Backlog { most: 2, ..Backlog::default() };
        let first = backlog.take().unwrap();
        assert!(backlog.takes_another());
        // A place that is freed while a Request is asked for anyway.
        drop(first);
        assert!(!backlog.goes_on());
        let [first, second] = [backlog.take().unwrap(), backlog.take().unwrap()];
        assert!(backlog.take().is_none() && !backlog.takes_another());
        drop(first);
        assert!(backlog.goes_on());
        // Asked for, and not come yet.
        drop(second);
        assert!(!backlog.goes_on());
    }

    #[test]
    fn v131_a_thread_that_is_late_to_say_so_asks_for_none_beyond_the_backlog() {
        let mut backlog = Backlog { most: 2, ..Backlog::default() };
        let (first, _second) = (backlog.take().unwrap(), backlog.take().unwrap());
        // A thread frees a place, and another one takes it before the first one says so.
        drop(first);
        assert!(backlog.takes_another());
        let third = backlog.take().unwrap();
        assert!(!backlog.takes_another());
        assert!(!backlog.goes_on());
        drop(third);
        assert!(backlog.goes_on());
    }
}
