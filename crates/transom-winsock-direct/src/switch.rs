//! Upcalls to the switch, and the thread that makes them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};

use crate::error::Result;

/// The switch's upcalls (WSD 2.2), by the switch's own handles.
pub trait Switch: Send + Sync {
    /// `WPUCreateSocketHandle`.
    ///
    /// # Errors
    /// The switch's error.
    fn create_socket_handle(&self, context: usize) -> Result<usize>;
    /// `WPUCloseSocketHandle`: the last upcall for a socket.
    fn close_socket_handle(&self, handle: usize);
    /// `WPUCompleteOverlappedRequest`.
    fn complete(&self, handle: usize, overlapped: usize, error: i32, bytes: u32);
    /// `WPUSetEvent`.
    fn set_event(&self, event: usize);
    /// `WPUResetEvent`.
    fn reset_event(&self, event: usize);
}

/// Runs upcalls one after the other, in the order in which they became due, with no lock held and
/// never inside a call of the switch.
#[derive(Clone, Debug)]
pub(crate) struct Upcalls(Sender<Box<dyn FnOnce() + Send>>);

impl Upcalls {
    pub(crate) fn start() -> std::io::Result<Upcalls> {
        let (sender, jobs) = channel::<Box<dyn FnOnce() + Send>>();
        std::thread::Builder::new().name("transom-wsd".into()).spawn(move || {
            // Ends with the provider, the last holder of a sender.
            for job in jobs {
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
        })?;
        Ok(Upcalls(sender))
    }

    pub(crate) fn queue(&self, job: impl FnOnce() + Send + 'static) {
        let _ = self.0.send(Box::new(job));
    }
}
