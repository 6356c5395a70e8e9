//! The answer, when it is yes.

use std::sync::Arc;

use crate::Token;
use crate::hazard::{Cell, Hazard};
use crate::segments::{List, Segments};

/// The most bytes of one [`Grant`], so that a close waits for one short copy at most.
pub const LARGEST_GRANT: u64 = 64 * 1024;

/// A place where one thread at a time announces what it is touching, so that a close can wait for
/// it. Each driver thread owns one.
///
/// A [`Grant`] that is leaked (`mem::forget`) stays announced, and a close of its token waits, until
/// the lane's next check, [`Lane::rest`], or the lane's end: safe, but late.
#[derive(Debug)]
pub struct Lane {
    /// Which table it belongs to.
    pub(crate) table: u64,
    pub(crate) hazard: Hazard,
    /// The segment list used last: needs no lock to be used again.
    pub(crate) list: Option<(u64, Arc<List>)>,
}

impl Lane {
    /// Nothing is under way on this lane, whatever was leaked; and keep nothing that is not needed.
    /// For a thread that is about to block.
    pub fn rest(&mut self) {
        self.hazard.cell().clear();
        self.list = None;
    }
}

/// Permission for one non-blocking copy of at most [`LARGEST_GRANT`] bytes. While it lives, a close
/// of the token waits; so it is never held while waiting for bytes, a lock or user code.
#[derive(Debug)]
#[must_use = "the permission ends when the grant is dropped"]
pub struct Grant<'lane> {
    pub(crate) cell: &'lane Cell,
    pub(crate) list: Option<&'lane List>,
    pub(crate) host: u64,
    pub(crate) region: Token,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl Grant<'_> {
    /// The region that holds the bytes: its token. `Token(0)` if there are no bytes.
    #[must_use]
    #[inline]
    pub fn region(&self) -> Token {
        self.region
    }

    /// Offset of the first byte in the region.
    #[must_use]
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes: as many as were asked for.
    #[must_use]
    #[inline]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Where the bytes really lie, in order.
    #[inline]
    pub fn segments(&self) -> Segments<'_> {
        match self.list {
            None => Segments::one(self.host, self.length),
            Some(list) => list.cut(self.offset, self.length),
        }
    }
}

impl Drop for Grant<'_> {
    #[inline]
    fn drop(&mut self) {
        self.cell.clear();
    }
}
