//! An opening in registered memory.

use crate::{Grant, Posted};

/// A range of a [`Region`](crate::Region), opened to one peer.
///
/// Dropping it revokes it at once; forgetting it leaves it open until its connection ends.
///
/// ```compile_fail,E0382
/// # fn f(window: transom::Window) {
/// let done = window.revoke();
/// window.grant();                                      // borrow of moved value: `window`
/// # }
/// ```
#[derive(Debug)]
pub struct Window {
    grant: Grant,
}

impl Window {
    /// What the peer must know to use it. It names nothing before the bind has executed and nothing
    /// after the revocation.
    #[must_use]
    pub fn grant(&self) -> Grant {
        self.grant
    }

    /// Close it, now: when this returns, no byte moves through it any more, whatever the peer does.
    /// An access under way is refused with its next piece.
    ///
    /// The result is there at once; it is a [`Posted`] so that it reads like every other request.
    pub fn revoke(self) -> Posted<()> {
        todo!()
    }
}
