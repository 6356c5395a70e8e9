//! An opening in registered memory.

use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::region::Registered;
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
    endpoint: Arc<Endpoint>,
    /// The memory lives as long as the window: forgetting a window can only leak.
    region: Arc<Registered>,
}

impl Window {
    pub(crate) fn new(endpoint: &Arc<Endpoint>, region: Arc<Registered>, grant: Grant) -> Window {
        Window { grant, endpoint: Arc::clone(endpoint), region }
    }

    /// Give it a name, for messages about refusals and for `transom show`: a name of what is lent,
    /// or of the borrower. The first 31 bytes of the name are kept.
    #[must_use]
    pub fn named(self, name: &str) -> Window {
        self.region.adapter.raw().set_name(transom_memory::Token(self.grant.token()), name);
        self
    }

    /// The facts by which the peer uses it. The grant names nothing before the bind has executed
    /// and nothing after the revocation.
    #[must_use]
    pub fn grant(&self) -> Grant {
        self.grant
    }

    /// Close it, now: when this returns, no byte moves through it any more, whatever the peer does.
    /// An access under way is refused with its next piece.
    ///
    /// The result is there at once; it is a [`Posted`] so that it reads like every other request.
    /// A window that had ended with its connection is closed already, which is no error.
    pub fn revoke(self) -> Posted<()> {
        drop(self);
        Posted::ready(Ok(()))
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.endpoint.revoke(self.grant.token());
    }
}
