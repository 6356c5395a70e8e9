//! Everything that is open, for people who look at a running process. Decides nothing.

use crate::entry::State;
use crate::token::{CHUNK, DIRECTORY, Place};
use crate::{Memory, Named, Nanoseconds, Uses};

/// A region or a window that is open: reserved or live.
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
            Some(self.chunk(position, now))
        })
    }

    /// The open entries of a chunk, which must exist.
    fn chunk(&self, position: usize, now: Nanoseconds) -> Vec<Listed> {
        let mut control = self.lock();
        let mut open = Vec::new();
        for slot in 0..CHUNK {
            let place = Place::new(position, slot);
            let Some(entry) = self.table.entry(place) else { continue };
            let head = entry.head();
            if !matches!(head.state(), State::Reserved | State::Live) {
                continue;
            }
            let named = self.name(&control, head, &entry.facts(), now);
            let counted = self.counters.as_ref().and_then(|counters| counters.uses(place, now));
            let (age, uses) = counted.unzip();
            let age = age.or_else(|| named.window.then(|| now.saturating_sub(entry.since())));
            let ledger = control.ledger(place);
            let (windows, posted) = (ledger.windows, ledger.posted);
            open.push(Listed { named, age, uses, windows, posted });
        }
        open
    }
}
