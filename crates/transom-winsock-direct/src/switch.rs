//! Upcalls to the switch, and the thread that makes them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::thread::ThreadId;

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
pub(crate) struct Upcalls {
    jobs: Sender<Job>,
    thread: ThreadId,
}

enum Job {
    Call(Box<dyn FnOnce() + Send>),
    /// The last one; what waits for it sees its sender go.
    End(Sender<()>),
}

impl Upcalls {
    pub(crate) fn start() -> std::io::Result<Upcalls> {
        let (jobs, queue) = channel();
        let thread =
            transom_os::threads::builder().name("transom-wsd".into()).spawn(move || {
                // Ends with the provider, the last holder of a sender, or with its cleanup.
                for job in queue {
                    match job {
                        Job::Call(job) => drop(catch_unwind(AssertUnwindSafe(job))),
                        Job::End(waits) => return drop(waits),
                    }
                }
            })?;
        Ok(Upcalls { jobs, thread: thread.thread().id() })
    }

    pub(crate) fn queue(&self, job: impl FnOnce() + Send + 'static) {
        let _ = self.jobs.send(Job::Call(Box::new(job)));
    }

    /// No upcall begins behind what is queued now, and none is under way when this returns, unless an upcall
    /// asks for it: behind the last cleanup the switch may be gone.
    pub(crate) fn end(&self) {
        let (here, gone) = channel();
        let _ = self.jobs.send(Job::End(here));
        if std::thread::current().id() != self.thread {
            let _ = gone.recv();
        }
    }
}
