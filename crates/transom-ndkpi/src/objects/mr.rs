//! Memory regions (NDK 11.1, 11.2).

use std::sync::{Arc, Mutex};

use transom_memory::Token;

use super::Pd;
use crate::chain::{ChainError, Piece, translate};
use crate::deliver::{Call, Done, Pending, lock, returned};
use crate::flags::region_rights;
use crate::life::Life;
use crate::{Status, below};

/// A memory region.
#[derive(Debug)]
pub struct Mr {
    pub(crate) life: Arc<Life>,
    pub(crate) pd: Arc<Pd>,
    fast: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Created,
    /// Between the call and the end of its completion, in either direction.
    Changing,
    Registered(Token),
}

impl Mr {
    pub(crate) fn new(pd: &Arc<Pd>, fast: bool) -> Arc<Mr> {
        let life = Life::new(&pd.adapter.deliverer, &[&pd.life]);
        Arc::new(Mr { life, pd: Arc::clone(pd), fast, state: Mutex::new(State::Created) })
    }

    /// `NdkRegisterMr`. The chain is read before the call returns and never afterwards (MR-9).
    ///
    /// # Safety
    /// Until the region is deregistered or closed: the pages are the caller's, are not used for
    /// anything else, and with a right to write no Rust reference to them exists that bytes
    /// appearing in them would contradict. They may be unmapped.
    #[allow(unsafe_code, reason = "hands the caller's promise on")]
    pub unsafe fn register(
        self: &Arc<Self>,
        chain: impl IntoIterator<Item = Result<Piece, ChainError>>,
        length: u64,
        flags: u32,
        done: Done<()>,
    ) -> Status {
        let _call = Call::enter();
        if self.fast {
            return Status::INVALID_DEVICE_REQUEST; // MR-1
        }
        let adapter = &self.pd.adapter;
        let rights = match region_rights(flags, adapter.options.read_sink_needed) {
            Ok(rights) => rights,
            Err(status) => return status,
        };
        let layout = match translate(chain, length) {
            Ok(layout) => layout,
            Err(error) => return error.status(),
        };
        {
            let mut state = lock(&self.state);
            if !matches!(*state, State::Created) {
                return Status::INVALID_DEVICE_STATE; // MR-18
            }
            *state = State::Changing;
        }
        let outcome = adapter.admit_registration().and_then(|()| {
            // SAFETY: this function's contract.
            let made = unsafe { below::register(&adapter.raw, self.pd.raw, rights, &layout) };
            if made.is_err() {
                adapter.registration_gone();
            }
            made
        });
        let status = match outcome {
            Ok(region) => {
                *lock(&self.state) = State::Registered(region);
                Status::SUCCESS
            }
            Err(status) => {
                *lock(&self.state) = State::Created;
                if status != Status::INSUFFICIENT_RESOURCES {
                    return status; // what is wrong with the arguments is said inline (NDK A-16)
                }
                status
            }
        };
        self.finish(status, done)
    }

    /// `NdkDeregisterMr`.
    pub fn deregister(self: &Arc<Self>, done: Done<()>) -> Status {
        let _call = Call::enter();
        if self.fast {
            return Status::INVALID_DEVICE_REQUEST; // DR-1
        }
        {
            let mut state = lock(&self.state);
            let State::Registered(region) = *state else {
                return Status::INVALID_DEVICE_STATE; // DR-4
            };
            if let Err(status) = below::deregister(&self.pd.adapter.raw, region) {
                return status; // DR-3
            }
            *state = State::Created;
        }
        self.pd.adapter.registration_gone();
        self.finish(Status::SUCCESS, done)
    }

    fn finish(self: &Arc<Self>, status: Status, done: Done<()>) -> Status {
        let pending = Pending::new(&self.pd.adapter.deliverer, self.life.busy(), done);
        pending.resolve(status, ());
        returned(pending.settle())
    }

    /// The token; local and remote alike. 0, which names nothing, while there is none (MR-17).
    #[must_use]
    pub fn token(&self) -> u32 {
        self.region().map_or(0, |region| region.0)
    }

    pub(crate) fn region(&self) -> Option<Token> {
        match *lock(&self.state) {
            State::Registered(region) => Some(region),
            _ => None,
        }
    }

    pub(crate) fn is_fast(&self) -> bool {
        self.fast
    }

    /// `NdkCloseMr`: a registration ends with its object (LT-15).
    pub fn close(self: &Arc<Self>, done: impl FnOnce() + Send + 'static) -> Status {
        let _call = Call::enter();
        let mr = Arc::clone(self);
        let end = move || {
            let state = std::mem::replace(&mut *lock(&mr.state), State::Changing);
            if let State::Registered(region) = state {
                below::close_region(&mr.pd.adapter.raw, region);
                mr.pd.adapter.registration_gone();
            }
        };
        self.life.close(Box::new(end), Box::new(done))
    }
}
