//! Memory regions (NDK 11.1, 11.2, 11.5).

use std::sync::{Arc, Mutex};

use transom_memory::{ChainError, Chained, PAGE, Piece, Rights, Segment, Token, chained};

use super::Pd;
use crate::Status;
use crate::deliver::{Call, Done, Pending, lock, returned};
use crate::flags::region_rights;
use crate::life::Life;
use crate::table::{deregister_error, register_error};

/// Pages of a fast registration at most; more are `IMPLEMENTATION_LIMIT` (NDK FR-2).
const MOST_PAGES: u32 = 1 << 18;

/// Segments that a registration is made of inside the call. A longer one is made on another thread:
/// a call at DISPATCH level may not wait for as many answers of the kernel as there are mappings.
const AT_ONCE: usize = 64;

/// A memory region: for `NdkRegisterMr` or for `NdkFastRegister`, never both (NDK MR-1).
#[derive(Debug)]
pub struct Mr {
    pub(crate) life: Arc<Life>,
    pub(crate) pd: Arc<Pd>,
    fast: bool,
    state: Mutex<RegionState>,
}

#[derive(Debug)]
enum RegionState {
    Created,
    /// Between the call and the end of its completion, in either direction.
    Changing,
    Registered(Token),
    Fast(Fast),
}

/// The values that a region was initialised with. The token stays until the object is closed (NDK
/// FR-13).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fast {
    pub(crate) region: Token,
    /// Pages of a registration at most (NDK FR-7).
    pub(crate) pages: u32,
    /// Remote rights may be asked for (NDK FR-3).
    pub(crate) remote: bool,
}

impl Mr {
    pub(crate) fn new(pd: &Arc<Pd>, fast: bool) -> Arc<Mr> {
        let life = Life::new(&pd.adapter.deliverer, &[&pd.life]);
        Arc::new(Mr { life, pd: Arc::clone(pd), fast, state: Mutex::new(RegionState::Created) })
    }

    /// `NdkRegisterMr`. The chain is read before the call returns and never afterwards (NDK MR-9).
    ///
    /// # Safety
    /// Until the region is deregistered or closed: the pages are the caller's, are not used for
    /// anything else, and with a right to write no Rust reference to them exists that bytes
    /// appearing in them would contradict. The addresses may be unmapped.
    ///
    /// # Errors
    /// `INVALID_DEVICE_REQUEST` for a region for fast registration, `INVALID_PARAMETER` for flags,
    /// a chain, a length or pages that cannot be, `INVALID_DEVICE_STATE` for a region that is
    /// registered, `INSUFFICIENT_RESOURCES`, `DEVICE_REMOVED`. A long list is `PENDING`, and its
    /// end comes by the callback. The region is as before a failure.
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
            return Status::INVALID_DEVICE_REQUEST; // NDK MR-1
        }
        let adapter = &self.pd.adapter;
        let rights = match region_rights(flags, adapter.options.read_sink_needed) {
            Ok(rights) => rights,
            Err(status) => return status,
        };
        let Ok(found) = chained(chain, length) else {
            return Status::INVALID_PARAMETER; // NDK MR-2 to MR-4, MR-8, MR-10
        };
        {
            let mut state = lock(&self.state);
            if !matches!(*state, RegionState::Created) {
                return Status::INVALID_DEVICE_STATE; // NDK MR-18
            }
            *state = RegionState::Changing;
        }
        let at_once = found.segments.len() <= AT_ONCE;
        let mr = Arc::clone(self);
        let work = move || {
            // SAFETY: this function's contract.
            unsafe { mr.carry_out(rights, &found) }
        };
        if at_once {
            let status = work();
            // A fault of the arguments is reported inline (NDK A-16).
            return match status {
                Status::SUCCESS | Status::INSUFFICIENT_RESOURCES => self.finish(status, done),
                status => status,
            };
        }
        let pending = Pending::new(&adapter.deliverer, self.life.busy(), done);
        let outcome = Arc::clone(&pending);
        pending.settle_after(Box::new(move || outcome.resolve(work(), ())));
        Status::PENDING
    }

    /// Register what [`Mr::register`] has read.
    ///
    /// # Safety
    /// As [`Mr::register`].
    #[allow(unsafe_code, reason = "hands the caller's promise on")]
    unsafe fn carry_out(&self, rights: Rights, found: &Chained) -> Status {
        let adapter = &self.pd.adapter;
        let made = adapter.admit_registration().and_then(|()| {
            let (raw, segments) = (&adapter.raw, &found.segments[..]);
            // SAFETY: this function's contract.
            let made = unsafe { raw.register(self.pd.raw, found.base, segments, rights) };
            made.map_err(register_error).inspect_err(|_| adapter.registration_gone())
        });
        let (state, status) = match made {
            Ok(region) => (RegionState::Registered(region), Status::SUCCESS),
            Err(status) => (RegionState::Created, status),
        };
        *lock(&self.state) = state;
        status
    }

    /// `NdkDeregisterMr`.
    ///
    /// # Errors
    /// `INVALID_DEVICE_REQUEST` for a region for fast registration, `INVALID_DEVICE_STATE` for one
    /// that is not registered, `DEVICE_BUSY` while a window is bound: nothing has changed then.
    pub fn deregister(self: &Arc<Self>, done: Done<()>) -> Status {
        let _call = Call::enter();
        if self.fast {
            return Status::INVALID_DEVICE_REQUEST; // NDK DR-1
        }
        {
            let mut state = lock(&self.state);
            let RegionState::Registered(region) = *state else {
                return Status::INVALID_DEVICE_STATE; // NDK DR-4
            };
            if let Err(error) = self.pd.adapter.raw.deregister(region) {
                return deregister_error(error);
            }
            *state = RegionState::Created;
        }
        self.pd.adapter.registration_gone();
        self.finish(Status::SUCCESS, done)
    }

    /// `NdkInitializeFastRegisterMr`. Again: other limits, as long as no registration is valid
    /// (NDK FR-4).
    ///
    /// # Errors
    /// `INVALID_DEVICE_REQUEST` for a region of the other kind, `INVALID_PARAMETER` for no pages,
    /// `IMPLEMENTATION_LIMIT` for too many, `INVALID_DEVICE_STATE` while a registration is valid,
    /// `INSUFFICIENT_RESOURCES`.
    pub fn initialize_fast(self: &Arc<Self>, pages: u32, remote: bool, done: Done<()>) -> Status {
        let _call = Call::enter();
        if !self.fast {
            return Status::INVALID_DEVICE_REQUEST; // NDK FR-1
        }
        if pages == 0 {
            return Status::INVALID_PARAMETER;
        }
        if pages > MOST_PAGES {
            return Status::IMPLEMENTATION_LIMIT; // NDK FR-2
        }
        let mut state = lock(&self.state);
        let adapter = &self.pd.adapter.raw;
        let region = match *state {
            RegionState::Created => adapter.reserve_region(self.pd.raw).map_err(Status::from),
            RegionState::Fast(fast) if !adapter.touches(fast.region, 0, u64::MAX) => {
                Ok(fast.region)
            }
            _ => return Status::INVALID_DEVICE_STATE,
        };
        let status = match region {
            Ok(region) => {
                *state = RegionState::Fast(Fast { region, pages, remote });
                Status::SUCCESS
            }
            Err(status) => status,
        };
        drop(state);
        self.finish(status, done)
    }

    /// The values it was initialised with, for a fast registration or its end.
    pub(crate) fn fast(&self) -> Result<Fast, Status> {
        if !self.fast {
            return Err(Status::INVALID_DEVICE_REQUEST); // NDK INV-1, FR-1
        }
        match *lock(&self.state) {
            RegionState::Fast(fast) => Ok(fast),
            _ => Err(Status::INVALID_DEVICE_STATE),
        }
    }

    fn finish(self: &Arc<Self>, status: Status, done: Done<()>) -> Status {
        let pending = Pending::new(&self.pd.adapter.deliverer, self.life.busy(), done);
        pending.resolve(status, ());
        returned(pending.settle())
    }

    /// The token; local and remote alike. 0, which names nothing, while there is none (NDK MR-17).
    #[must_use]
    pub fn token(&self) -> u32 {
        match *lock(&self.state) {
            RegionState::Registered(region) | RegionState::Fast(Fast { region, .. }) => region.0,
            RegionState::Created | RegionState::Changing => 0,
        }
    }

    /// The region that windows can be bound to.
    pub(crate) fn region(&self) -> Result<Token, Status> {
        if self.fast {
            return Err(Status::INVALID_PARAMETER);
        }
        match *lock(&self.state) {
            RegionState::Registered(region) => Ok(region),
            _ => Err(Status::INVALID_DEVICE_STATE),
        }
    }

    /// `NdkCloseMr`: a registration ends with its object (NDK LT-15).
    pub fn close(self: &Arc<Self>, done: impl FnOnce() + Send + 'static) -> Status {
        let _call = Call::enter();
        let mr = Arc::clone(self);
        let end = move || {
            let state = std::mem::replace(&mut *lock(&mr.state), RegionState::Changing);
            let adapter = &mr.pd.adapter;
            match state {
                RegionState::Registered(region) => {
                    adapter.raw.close_region(region);
                    adapter.registration_gone();
                }
                RegionState::Fast(fast) => adapter.raw.close_region(fast.region),
                RegionState::Created | RegionState::Changing => {}
            }
        };
        self.life.close(Box::new(end), Box::new(done))
    }
}

/// The pages of a run of segments: no two segments share one.
pub(crate) fn pages_of(segments: &[Segment]) -> Vec<u64> {
    let of = |s: &Segment| {
        let (first, skip) = (s.host - s.host % PAGE, s.host % PAGE);
        let count = skip.saturating_add(s.length).div_ceil(PAGE);
        (0..count).map(move |index| first.wrapping_add(index * PAGE))
    };
    segments.iter().flat_map(of).collect()
}
