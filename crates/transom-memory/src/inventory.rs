//! Everything that is open, or was until lately, for people who look at a running process. Decides nothing.

use crate::entry::{Entry, EntryState};
use crate::token::{CHUNK, DIRECTORY, Place};
use crate::{Memory, Named, NamedState, Nanoseconds, Uses};

/// A region or a window: reserved, live, or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The bytes, the rights, and who holds them.
    pub named: Named,
    /// How long ago it was made. A table that does not count uses knows that of windows only.
    pub age: Option<Nanoseconds>,
    /// The copies through its token, if the table counts them.
    pub uses: Option<Uses>,
    /// Windows bound to a region.
    pub windows: u32,
    /// Requests posted that name a region, if the front counts them.
    pub posted: u32,
}

impl Memory {
    /// Every region and window that is open, in no order, in batches of at most 4096. The control
    /// mutex is held while one batch is made, never between two: what is opened or closed meanwhile
    /// may be in the list or not, and each entry is consistent in itself.
    pub fn inventory(&self, now: Nanoseconds) -> impl Iterator<Item = Vec<Listed>> {
        (0..DIRECTORY).filter_map(move |position| {
            self.table.entry(Place::new(position, 0))?;
            let open = |_: &Entry, state| matches!(state, EntryState::Reserved | EntryState::Live);
            Some(self.chunk(position, now, open))
        })
    }

    /// The regions and windows that were closed last, at most `most` of them, the latest last. A slot
    /// that is used again forgets what it named, so that some may be missing. Locks as
    /// [`Memory::inventory`] does.
    #[must_use]
    pub fn lately_closed(&self, most: usize, now: Nanoseconds) -> Vec<Listed> {
        let mut closed: Vec<Listed> = Vec::new();
        for position in (0..DIRECTORY).filter(|at| self.table.entry(Place::new(*at, 0)).is_some()) {
            let oldest = closed.first().filter(|_| closed.len() == most).map(closed_for);
            let newer = |entry: &Entry| {
                oldest.is_none_or(|oldest| now.saturating_sub(entry.since()) < oldest)
            };
            let dead = |entry: &Entry, state| state == EntryState::Dead && newer(entry);
            closed.extend(self.chunk(position, now, dead));
            closed.sort_by_key(|one| std::cmp::Reverse(closed_for(one)));
            closed.drain(..closed.len().saturating_sub(most));
        }
        closed
    }

    /// The entries of a chunk, which must exist, that are in a state.
    fn chunk(
        &self,
        position: usize,
        now: Nanoseconds,
        wanted: impl Fn(&Entry, EntryState) -> bool,
    ) -> Vec<Listed> {
        let mut control = self.lock();
        let mut listed = Vec::new();
        for slot in 0..CHUNK {
            let place = Place::new(position, slot);
            let Some(entry) = self.table.entry(place) else { continue };
            let head = entry.head();
            if !wanted(entry, head.state()) {
                continue;
            }
            let named = self.name(&control, head, &entry.facts(), now);
            let counted = self.counters.as_ref().and_then(|counters| counters.uses(place, now));
            let (age, uses) = counted.unzip();
            let age = age.or(named.age);
            let ledger = control.ledger(place);
            let (windows, posted) = (ledger.windows, ledger.posted);
            listed.push(Listed { named, age, uses, windows, posted });
        }
        listed
    }
}

/// How long ago it was closed.
fn closed_for(one: &Listed) -> Nanoseconds {
    match one.named.state {
        NamedState::Dead { ago, .. } => ago,
        NamedState::Reserved | NamedState::Live => 0,
    }
}
