//! Overlapped files, and how their requests end.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use super::Handle;
use super::handle::Object;
use super::overlapped::{Overlapped, Request, conclude};
use super::port::{Packet, Port};
use super::wait::Waitable;
use crate::status::ND_PENDING;

/// An overlapped file. A file may be bound to one completion port, once.
#[derive(Debug, Default)]
pub(crate) struct File {
    port: OnceLock<(Arc<Port>, usize)>,
}

impl File {
    /// A new one with a handle.
    pub(crate) fn open() -> Option<(Arc<File>, Handle)> {
        let file = Arc::new(File::default());
        let handle = Handle::open(Object::File(file.clone()))?;
        Some((file, handle))
    }

    /// Deliver its packets to `port` from now on; `false` if it is bound already.
    pub(crate) fn bind(&self, port: Arc<Port>, key: usize) -> bool {
        self.port.set((port, key)).is_ok()
    }

    /// Ends a request. Rule 4, in this order: status, event, packet. The OVERLAPPED may be gone once
    /// the status is written, so what is needed of it was read when the request began.
    pub(super) fn end(&self, request: &Request, status: i32) {
        // A port that is bound once the end is known has no part in this request.
        let port = self.port.get();
        conclude(request.overlapped, || {
            request.overlapped.with(|o| set_status(o, status));
            if let Some(event) = &request.event {
                event.0.set();
            }
        });
        if let (true, Some((port, key))) = (request.packet, port) {
            let overlapped = request.overlapped.address();
            port.post(Packet { key: *key, overlapped, status, bytes: 0 });
        }
    }
}

/// The event of a request.
#[derive(Debug)]
pub(super) struct Event(Arc<Waitable>);

impl Event {
    /// The event of a handle, reset for a request that begins; `None` if there is none.
    pub(super) fn reset(handle: Handle) -> Option<Event> {
        let event = handle.waitable().filter(|w| w.is_event())?;
        event.reset();
        Some(Event(event))
    }

    /// Uses up the signal of a handle, as if its event had been waited for.
    pub(super) fn consume(handle: Handle) {
        if let Some(event) = handle.waitable() {
            event.consume();
        }
    }
}

/// The status of a request that has begun.
pub(super) fn status(overlapped: &Overlapped) -> i32 {
    overlapped.internal.load(Ordering::Acquire) as u32 as i32
}

/// Writes that status.
pub(super) fn set_status(overlapped: &Overlapped, status: i32) {
    overlapped.internal.store(status as u32 as usize, Ordering::Release);
}

/// Marks a request as under way; `true` if one was under way already.
pub(super) fn set_pending(overlapped: &Overlapped) -> bool {
    let pending = ND_PENDING as usize;
    overlapped.internal.swap(pending, Ordering::AcqRel) == pending
}
