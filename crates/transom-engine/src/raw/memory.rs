//! Memory: domains, regions, windows.
//!
//! Registering is the only way to make memory of this process a source or a target, and it is
//! `unsafe`; no safe call reaches the memory table. What takes memory away again is safe.

use std::sync::atomic::Ordering;

use transom_memory::{
    Access, Actor, BindError, ConnectionId, Counts, Denial, DeregisterError, DomainId, Name,
    NamedState, Purpose, QueuePairId, RegisterError, Registration, Rights, Scope, Segment, Token,
    Unless, WindowSpec,
};

use super::adapter::Owner;
use super::{Adapter, Error, QueuePair, Result};
use crate::driver::{Shared, observe_close};
use crate::sys;
use crate::{Data, DenialCause, Flags, Operation, Request, Sge, Status};

/// A protection domain: memory that was registered in one is of no use in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Domain(pub DomainId);

/// The part of a region that a window opens to the peer, and for what.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The region.
    pub region: Token,
    /// First byte, in the region's addresses.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// Remote rights.
    pub rights: Rights,
}

/// The token of a window whose Bind has yet to be posted: a part of the region is taken, and no
/// peer can use the token. Dropping a reservation gives it up, for a Bind that could not be posted.
#[derive(Debug)]
#[must_use = "a reservation that is dropped is given up"]
pub struct Reservation<'a> {
    owner: &'a Owner,
    token: Token,
    posted: bool,
}

/// Why a window was not reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowError {
    /// The adapter is gone, or the queue pair takes no Bind now.
    Unusable(Error),
    /// The memory table has refused.
    Refused(BindError),
}

impl Reservation<'_> {
    /// The token that the Bind request names.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// The Bind was posted: the window begins when it executes.
    pub fn posted(mut self) -> Token {
        self.posted = true;
        self.token
    }
}

impl Reservation<'_> {
    #[cold]
    fn give_up(&self) {
        if let Ok(shared) = self.owner.here() {
            shared.memory.abandon(self.token, sys::now().0);
        }
    }
}

impl Drop for Reservation<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.posted {
            self.give_up();
        }
    }
}

impl From<WindowError> for Error {
    fn from(error: WindowError) -> Error {
        let reason = match error {
            WindowError::Unusable(error) => return error,
            WindowError::Refused(reason) => reason,
        };
        let detail = format!("bind: {reason}");
        match reason {
            BindError::Exhausted => Error::system(Status::InsufficientResources, detail),
            BindError::Empty => Error::caller(Status::InvalidParameter(2), detail),
            _ => Error::caller(Status::LocalAccess, detail),
        }
    }
}

/// Whether the pages are there, and can be written if the rights write.
fn check_segments(shared: &Shared, segments: &[Segment], rights: Rights) -> Result<()> {
    let write = rights.intersects(Rights::LOCAL_WRITE | Rights::REMOTE_WRITE | Rights::READ_SINK);
    let ranges = segments.iter().map(|segment| (segment.host, segment.length));
    sys::check_ranges(ranges, write).map_err(|e| {
        let detail = format!("register: {e}");
        shared.refuse_call(None, DenialCause::Call(detail.clone()));
        Error::caller(Status::LocalAccess, detail)
    })
}

impl Adapter {
    /// A new protection domain.
    ///
    /// # Errors
    /// `DeviceRemoved`; `InsufficientResources` after 4,294,967,295 domains.
    pub fn domain(&self) -> Result<Domain> {
        self.0.present()?;
        // A number that came back would open the first one's memory.
        let next = |last: u32| last.checked_add(1);
        match self.0.domains.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(last) => Ok(Domain(DomainId(last + 1))),
            Err(_) => Err(Error::system(
                Status::InsufficientResources,
                "make a protection domain: 4,294,967,295 were made already; open another adapter",
            )),
        }
    }

    // ---- regions -----------------------------------------------------------------------------

    /// Register memory in a domain: `segments`, in order, as one region that begins at address
    /// `base`. Holes, and read-only pages with `LOCAL_WRITE` or `REMOTE_WRITE`, are refused
    /// (ND2 R9). The token serves local and remote use alike.
    ///
    /// # Safety
    /// Until [`Adapter::deregister`] has returned success, or the last handle of this adapter was
    /// dropped: the memory belongs to the caller, is not used for anything else (freed, given to
    /// another allocation), no Rust reference to it exists that others could contradict, and with
    /// a right to write, peers' bytes may appear in it at any time. It may be unmapped.
    ///
    /// # Errors
    /// `LocalAccess` for pages that are not there or not writable; otherwise as
    /// [`Adapter::register_in`].
    ///
    /// # Examples
    /// The promise takes an `unsafe` block:
    ///
    /// ```
    /// use transom_engine::raw::{Adapter, Options};
    /// use transom_memory::{Rights, Segment};
    ///
    /// let adapter = Adapter::open("127.0.0.1".parse()?, Options::from_env())?;
    /// let domain = adapter.domain()?;
    /// let bytes: &'static [u8] = Vec::from([7; 64]).leak();
    /// let segments = [Segment { host: bytes.as_ptr().addr() as u64, length: 64 }];
    /// // SAFETY: the bytes are never freed, and without a right to write no peer changes them.
    /// let region = unsafe { adapter.register(domain, 0, &segments, Rights::REMOTE_READ) }?;
    /// adapter.deregister(region)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// No safe code registers, whichever way it tries:
    ///
    /// ```compile_fail,E0133
    /// # use transom_engine::raw::{Adapter, Domain};
    /// # fn f(adapter: &Adapter, domain: Domain, segments: &[transom_memory::Segment]) {
    /// let region = adapter.register(domain, 0, segments, transom_memory::Rights::REMOTE_READ);
    /// # }
    /// ```
    ///
    /// ```compile_fail,E0133
    /// # use transom_engine::raw::Adapter;
    /// # fn f(adapter: &Adapter, scope: transom_memory::Scope, all: &[transom_memory::Segment]) {
    /// let region = adapter.register_in(scope, 0, all, transom_memory::Rights::REMOTE_READ);
    /// # }
    /// ```
    ///
    /// ```compile_fail,E0599
    /// # fn f(adapter: &transom_engine::raw::Adapter) {
    /// let table = adapter.memory(); // the memory table has no way out
    /// # }
    /// ```
    ///
    /// ```compile_fail,E0603
    /// use transom_engine::sys::copy_in; // nor has the module that copies
    /// ```
    #[allow(unsafe_code)] // the promise is the caller's; nothing here relies on it
    pub unsafe fn register(
        &self,
        domain: Domain,
        base: u64,
        segments: &[Segment],
        rights: Rights,
    ) -> Result<Token> {
        check_segments(self.0.present()?, segments, rights)?;
        // SAFETY: this function's contract.
        unsafe { self.register_in(Scope::Domain(domain.0), base, segments, rights) }
    }

    /// Register memory in any scope, and without a look at its pages: one that is missing, or
    /// read-only where it should be written, fails the request that touches it.
    /// ([`check_pages`](super::check_pages) is the look that [`Adapter::register`] takes.)
    ///
    /// # Safety
    /// As [`Adapter::register`]; a region of a connection ends with it, too.
    ///
    /// # Errors
    /// `InvalidParameter(1)` if base and length, or a segment, wrap around the address space;
    /// `InvalidParameter(2)` for no bytes, or more than
    /// [`largest_region`](super::Options::largest_region); `InsufficientResources`; `DeviceRemoved`.
    #[allow(unsafe_code)] // the promise is the caller's; nothing here relies on it
    pub unsafe fn register_in(
        &self,
        scope: Scope,
        base: u64,
        segments: &[Segment],
        rights: Rights,
    ) -> Result<Token> {
        let shared = self.0.present()?;
        sys::recheck_fault_handler();
        let registration = Registration { scope, rights, base, segments };
        let token = shared.memory.register(&registration).map_err(|e| {
            let detail = format!("register: {e}");
            shared.refuse_call(None, DenialCause::Call(detail.clone()));
            match e {
                RegisterError::Exhausted => Error::system(Status::InsufficientResources, detail),
                RegisterError::Wraps => Error::caller(Status::InvalidParameter(1), detail),
                _ => Error::caller(Status::InvalidParameter(2), detail),
            }
        })?;
        shared.made(token, || None);
        Ok(token)
    }

    /// Change the rights of a region, under its token. When this returns, nothing is read or written
    /// through it any more that the new rights do not permit (Verbs V44).
    ///
    /// # Safety
    /// As [`Adapter::register`] with these rights.
    ///
    /// # Errors
    /// `DeviceBusy` while windows are bound; `LocalAccess` if the memory is not there, or read-only where
    /// the rights write; `InvalidParameter(0)` if the token is not that of a registration; `Forked`. A
    /// refused call changes nothing.
    #[allow(unsafe_code)] // the promise is the caller's; nothing here relies on it
    pub unsafe fn set_rights(
        &self,
        region: Token,
        segments: &[Segment],
        rights: Rights,
    ) -> Result<()> {
        let shared = self.0.here()?;
        check_segments(shared, segments, rights)?;
        let now = sys::recently().0;
        shared.memory.set_rights(region, rights, now).map_err(deregister_error)
    }

    /// Where the bytes of an entry lie in this process, if the memory table permits this use of it to the program itself,
    /// for queue pairs of a domain. Nothing is held by a yes: a request is judged again.
    ///
    /// # Errors
    /// `LocalAccess` if it does not, or if the bytes lie in several pieces; `Forked`.
    pub fn locate(&self, domain: Domain, purpose: Purpose, entry: &Sge) -> Result<u64> {
        let shared = self.0.here()?;
        let actor = Actor { domain: domain.0, queue_pair: QueuePairId(0), connection: None };
        let (token, address) = (Token(entry.token), entry.address);
        let access = Access { actor, purpose, token, address, length: u64::from(entry.length) };
        let mut lane = shared.memory.lane();
        shared.memory.probe(&mut lane, &access, sys::now().0).map_err(|denial| {
            let error = refused(&denial);
            shared.refuse_call(None, DenialCause::Own(denial));
            error
        })?;
        let host = shared.memory.host_of(&mut lane, &access);
        host.ok_or_else(|| Error::caller(Status::LocalAccess, "the memory lies in several pieces"))
    }

    /// Give a region or a window a name, for messages and for `transom show`: the first
    /// [`LONGEST_NAME`](transom_memory::LONGEST_NAME) bytes of it. `false`, and nothing happens, if
    /// the token names nothing that is open here.
    pub fn set_name(&self, token: Token, name: &str) -> bool {
        self.0.here().is_ok_and(|shared| shared.memory.set_name(token, Name::new(name)))
    }

    /// A token for memory that is not known yet: see [`QueuePair::fast_register`]. The token stays
    /// the same until [`Adapter::deregister`] ends it (NDK FR-13).
    ///
    /// # Errors
    /// `InsufficientResources`; `DeviceRemoved`.
    pub fn reserve_region(&self, domain: Domain) -> Result<Token> {
        let shared = self.0.present()?;
        let token = shared.memory.reserve_region(Scope::Domain(domain.0)).map_err(|e| {
            Error::system(Status::InsufficientResources, format!("reserve a region: {e}"))
        })?;
        shared.made(token, || None);
        Ok(token)
    }

    /// Remove a registration. When this returns success, nothing is read or written through it any
    /// more, whatever peers do.
    ///
    /// # Errors
    /// `DeviceBusy` while windows are bound (ND2 R16); `InvalidParameter(0)` if the token is not
    /// that of a registration; `Forked`. A refused call changes nothing.
    pub fn deregister(&self, region: Token) -> Result<()> {
        self.deregister_unless(region, Unless { windows: true, ..Unless::default() })
    }

    /// [`Adapter::deregister`] for fronts with other rules: `DeviceBusy` by what `unless` names.
    /// Windows that it tolerates are closed with the region.
    ///
    /// # Errors
    /// As [`Adapter::deregister`].
    pub fn deregister_unless(&self, region: Token, unless: Unless) -> Result<()> {
        let shared = self.0.here()?;
        let close = || shared.memory.deregister(region, unless, sys::recently().0);
        observe_close(region, close).map_err(deregister_error)
    }

    /// End a registration and every window on it. One that has ended already stays so.
    pub fn close_region(&self, region: Token) {
        let _ = self.deregister_unless(region, Unless::default());
    }

    /// End every registration and window of a connection.
    pub fn close_connection(&self, connection: ConnectionId) {
        if let Ok(shared) = self.0.here() {
            shared.memory.close_connection(connection, sys::now().0);
        }
    }

    /// Count a request that names the region: while any is counted, a deregistration that asks
    /// (`Unless::posted`) is refused. [`Adapter::release`] takes it back.
    ///
    /// # Errors
    /// `ConnectionInvalid` if the registration has ended with its connection; `LocalAccess` if the
    /// token is not that of a registration, for any other reason; `Forked`.
    pub fn hold(&self, region: Token) -> Result<()> {
        let shared = self.0.here()?;
        shared.memory.posted(region, sys::now().0).map_err(|e| match e {
            DeregisterError::NotLive(denial) => refused(&denial),
            other => Error::caller(Status::LocalAccess, other.to_string()),
        })
    }

    /// The request of one [`Adapter::hold`] has completed.
    pub fn release(&self, region: Token) {
        if let Ok(shared) = self.0.here() {
            shared.memory.retired(region);
        }
    }

    /// The reason why a region is busy; `None` if it is not registered.
    #[must_use]
    pub fn counts(&self, region: Token) -> Option<Counts> {
        self.0.here().ok()?.memory.counts(region)
    }

    /// Whether a region has a byte in `[address, address + length)` of this process.
    #[must_use]
    pub fn touches(&self, region: Token, address: u64, length: u64) -> bool {
        self.0.here().is_ok_and(|shared| shared.memory.touches(region, address, length))
    }

    // ---- windows -----------------------------------------------------------------------------

    /// A window that stands: [`Operation::BindStanding`] binds it, under its index and a key of the
    /// caller's ([`Memory::with_key`](transom_memory::Memory::with_key)), as often as wanted.
    ///
    /// # Errors
    /// `InsufficientResources`; `DeviceRemoved`.
    pub fn reserve_standing(&self, domain: Domain) -> Result<Token> {
        let shared = self.0.present()?;
        shared.memory.reserve_standing(domain.0).map_err(|e| {
            Error::system(Status::InsufficientResources, format!("reserve a window: {e}"))
        })
    }

    /// Close a window that stands, if it is bound, and give its index back. When this returns, nothing
    /// is read or written through it any more.
    pub fn release_standing(&self, domain: Domain, window: Token) {
        if let Ok(shared) = self.0.here() {
            shared.memory.release_standing(window, domain.0, sys::now().0);
        }
    }

    /// Whether a window's token is reserved or live.
    #[must_use]
    pub fn is_open(&self, window: Token) -> bool {
        self.0.here().is_ok_and(|shared| shared.memory.is_open(window))
    }

    /// Close a window now, out of queue order. When it returns, nothing is read or written through
    /// it any more, and it waited for one copy at most, whatever the peer does.
    ///
    /// # Errors
    /// `InvalidParameter(0)` if the token is not that of an open window; `Forked`.
    pub fn revoke(&self, window: Token) -> Result<()> {
        let shared = self.0.here()?;
        let close = || shared.memory.close(window, None, sys::recently().0);
        observe_close(window, close).map_err(deregister_error)
    }
}

impl QueuePair {
    /// Make a window's token, for this queue pair's peer only. Post its Bind next; until that
    /// executes the token names nothing, and the region is busy (ND2 W10, 5.6).
    ///
    /// # Errors
    /// The memory table's reason, for fronts that have a code for each. As an [`Error`]:
    /// `InvalidParameter(2)` for no bytes, `InsufficientResources`, and `LocalAccess` for the rest.
    pub fn reserve_window(
        &self,
        window: &Window,
    ) -> std::result::Result<Reservation<'_>, WindowError> {
        let owner = &*self.0.owner;
        let shared = owner.here().map_err(WindowError::Unusable)?;
        let config = self.config();
        let spec = WindowSpec {
            region: window.region,
            domain: config.domain,
            scope: Scope::QueuePair(config.domain, config.number),
            base: window.base,
            length: window.length,
            rights: window.rights,
        };
        let token = shared.memory.reserve(&spec, sys::recently().0);
        let token = token.map_err(|reason| {
            let cause = match &reason {
                BindError::Region(denial)
                | BindError::Right(denial)
                | BindError::Bounds(denial) => DenialCause::Own(denial.clone()),
                _ => DenialCause::Call(format!("bind: {reason}")),
            };
            shared.refuse_call(Some(config.number), cause);
            WindowError::Refused(reason)
        })?;
        shared.made(token, || Some((config.number, self.0.qp.link()?.peer)));
        Ok(Reservation { owner, token, posted: false })
    }

    /// Reserve a window and post its Bind; its token, which begins when the Bind executes.
    ///
    /// # Errors
    /// As [`QueuePair::reserve_window`] and [`QueuePair::post`]. A refused call reserves nothing.
    pub fn post_bind(
        &self,
        context: u64,
        flags: Flags,
        window: &Window,
    ) -> std::result::Result<Token, WindowError> {
        let reserved = self.reserve_window(window)?;
        let operation = Operation::Bind { window: reserved.token() };
        let request = Request { context, operation, flags };
        self.post(&request, Data::Sges(&[])).map_err(WindowError::Unusable)?;
        Ok(reserved.posted())
    }
}

fn deregister_error(e: DeregisterError) -> Error {
    let status = match e {
        DeregisterError::NotLive(_) => Status::InvalidParameter(0),
        DeregisterError::Busy(_) => Status::DeviceBusy,
        DeregisterError::NotYours(_) => Status::LocalAccess,
    };
    Error::caller(status, e.to_string())
}

/// A use that the memory table refuses to the program itself. Memory that went with its connection
/// is not the program's mistake: the connection's end may not have been reported yet.
pub(super) fn refused(denial: &Denial) -> Error {
    let disconnected = |state: &NamedState| {
        matches!(state, NamedState::Dead { reason: transom_memory::CloseReason::Disconnected, .. })
    };
    let gone = denial.named.as_ref().is_some_and(|named| disconnected(&named.state));
    let status = if gone { Status::ConnectionInvalid } else { Status::LocalAccess };
    Error::caller(status, denial.to_string())
}
