//! How a close waits for the copies under way, and for nothing else.
//!
//! A reader *announces* the token it is about to use in a cell of its own, a full fence, then reads
//! the entry's head. A closer makes the head dead, a full fence, then looks at every cell. Hence
//! one of them sees the other: the reader finds the token dead, or the closer finds it announced
//! and waits until the cell changes. Cells are a thread's own cache line: no reader ever waits for
//! another.

use crate::Token;
use crate::sync::{Arc, AtomicBool, AtomicU64, Ordering, fence, pause};

/// Announced in place of a token: whatever the lane finds live.
pub(crate) const EVERYTHING: Token = Token(0);

/// The announcement of a lane: the token in the high half, a sequence number in the low, 0 for
/// nothing. On two lines of its own, because processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct Cell {
    announced: AtomicU64,
    taken: AtomicBool,
    /// Counted from 1.
    number: u64,
}

impl Cell {
    /// The copy is over. Release: it happened before whatever the closer does next.
    #[inline]
    pub(crate) fn clear(&self) {
        self.announced.store(0, Ordering::Release);
    }
}

/// The right to announce in one cell.
#[derive(Debug)]
pub(crate) struct Hazard {
    cell: Arc<Cell>,
    /// Odd, so that no announcement is 0.
    pub(crate) sequence: u32,
}

/// The token of an announcement.
fn token_of(value: u64) -> Token {
    Token((value >> 32) as u32)
}

impl Hazard {
    /// From here on, until the cell changes, a close of `token` waits; or the token was closed
    /// before, which the caller sees at the entry's head, read after this.
    ///
    /// The sequence number lets a closer tell a guard from the next one on the same token, which it
    /// need not wait for; so that no lane can delay it by asking again and again.
    #[inline]
    pub(crate) fn announce(&mut self, token: Token) {
        self.sequence = self.sequence.wrapping_add(2);
        let value = u64::from(token.0) << 32 | u64::from(self.sequence);
        // Release: a closer that sees this knows that the copy before is over.
        self.cell.announced.store(value, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn cell(&self) -> &Cell {
        &self.cell
    }

    /// A number that no other lane of the table has, never 0. A later lane may have it.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.cell.number
    }
}

impl Drop for Hazard {
    fn drop(&mut self) {
        self.cell.clear();
        self.cell.taken.store(false, Ordering::Release);
    }
}

/// Every cell of one table.
#[derive(Debug, Default)]
pub(crate) struct Hazards {
    cells: Vec<Arc<Cell>>,
}

impl Hazards {
    /// A cell for one more lane: one that a former lane has left, or a new one.
    pub(crate) fn join(&mut self) -> Hazard {
        for cell in &self.cells {
            if !cell.taken.swap(true, Ordering::AcqRel) {
                return Hazard { cell: Arc::clone(cell), sequence: 1 };
            }
        }
        let cell = Arc::new(Cell {
            announced: AtomicU64::new(0),
            taken: AtomicBool::new(true),
            number: self.cells.len() as u64 + 1,
        });
        self.cells.push(Arc::clone(&cell));
        Hazard { cell, sequence: 1 }
    }

    /// The guards on tokens that `is_closing` names, after these were made dead, and those on
    /// everything. Does not wait.
    pub(crate) fn holding(&self, is_closing: impl Fn(Token) -> bool) -> Vec<Held> {
        fence(Ordering::SeqCst);
        let held = |cell: &Arc<Cell>| {
            let value = cell.announced.load(Ordering::Acquire);
            let token = token_of(value);
            let waited_for = value != 0 && (token == EVERYTHING || is_closing(token));
            waited_for.then(|| Held { cell: Arc::clone(cell), value })
        };
        self.cells.iter().filter_map(held).collect()
    }

    /// How many lanes have announced a token that `belongs` names.
    pub(crate) fn count(&self, belongs: impl Fn(Token) -> bool) -> usize {
        fence(Ordering::SeqCst);
        let values = self.cells.iter().map(|cell| cell.announced.load(Ordering::Acquire));
        values.filter(|value| belongs(token_of(*value))).count()
    }

    /// Memory it occupies, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        // A shared cell lies behind its counts, on lines of its own like them.
        let cell = align_of::<Cell>() + size_of::<Cell>();
        self.cells.capacity() * size_of::<Arc<Cell>>() + self.cells.len() * cell
    }
}

/// A guard that was seen, and may be gone by now.
#[derive(Debug)]
pub(crate) struct Held {
    cell: Arc<Cell>,
    value: u64,
}

impl Held {
    /// Returns when the guard is gone: after one copy at most.
    pub(crate) fn wait(&self) {
        let mut round = 0;
        while !self.is_over() {
            pause(round);
            round = round.saturating_add(1);
        }
    }

    /// Whether the guard is gone. Acquire: then so is everything that was done under it.
    pub(crate) fn is_over(&self) -> bool {
        self.cell.announced.load(Ordering::Acquire) != self.value
    }
}
