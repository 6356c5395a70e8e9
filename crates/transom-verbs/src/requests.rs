//! Requests of peers at a listener, handed to its owner one by one.

use std::sync::{Arc, Weak};
use std::time::Duration;

use transom_engine::{Status, raw};

use crate::errno::{Errno, Result};
use crate::timers;

/// The pause before the next attempt, when the system had no room for another Request.
const PAUSE: Duration = Duration::from_millis(250);

/// The owner of a listener.
pub(crate) trait Passive: Send + Sync + 'static {
    /// The adapter of the listener.
    fn adapter(&self) -> &raw::Adapter;

    /// A Request has come. No lock is held. `false`: no other one comes until the owner calls [`go_on`].
    fn requested(self: &Arc<Self>, connector: raw::Connector) -> bool;
}

/// Hands over each Request at `listener`, until the listener or its owner is gone.
///
/// # Errors
/// Refusals of the engine at the first try. Later ones that a pause may remedy are tried again,
/// because a listener that asks no more is a port at which connections wait for nothing.
pub(crate) fn serve<O: Passive>(owner: &Weak<O>, listener: &Arc<raw::Listener>) -> Result {
    let Some(alive) = owner.upgrade() else { return Ok(()) };
    let connector = alive.adapter().connector()?;
    let again = (owner.clone(), Arc::downgrade(listener), connector.clone());
    let sink = raw::Sink::call(move |status| {
        let (owner, listener, connector) = again;
        if let (Status::Success, Some(alive), Some(_)) =
            (status, owner.upgrade(), listener.upgrade())
            && alive.requested(connector)
        {
            go_on(owner, listener);
        }
    });
    Ok(listener.get_request(&connector, sink)?)
}

/// Hands over further Requests.
pub(crate) fn go_on<O: Passive>(owner: Weak<O>, listener: Weak<raw::Listener>) {
    let Some(alive) = listener.upgrade() else { return };
    if serve(&owner, &alive) == Err(Errno::ENOMEM) {
        timers::after(PAUSE, move || go_on(owner, listener));
    }
}
