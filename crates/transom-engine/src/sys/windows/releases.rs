//! The thread that releases what other processes can make slow to release: nothing of this system's yet.

/// Has the thread run. There is none.
#[derive(Debug)]
pub(crate) struct ReleaseKeeper;

impl ReleaseKeeper {
    /// Nothing to start.
    ///
    /// # Errors
    /// None.
    pub(crate) fn new() -> std::io::Result<ReleaseKeeper> {
        Ok(ReleaseKeeper)
    }
}

/// Pages on their way back to the system. There are none.
#[derive(Debug)]
pub(crate) enum GivingBack {}

impl GivingBack {
    pub(crate) fn stop(&self) -> bool {
        match *self {}
    }
}

/// Nothing waits.
pub(crate) fn is_behind() -> bool {
    false
}
