//! The structures that programs hold: C's members in front, ours behind.

use std::cell::UnsafeCell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::abi::*;
use crate::completion::{CompletionChannel, Queue};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::memory::{Domain, Region, ThreadDomain};
use crate::receive::SharedQueue;
use crate::window::Window;
use crate::xrc::XrcDomain;

/// A structure of C's with what it stands for. A program's threads use it in several calls at once, and
/// read its members meanwhile, so no call has it for itself.
#[repr(C)]
pub(crate) struct Shell<H, B> {
    head: UnsafeCell<H>,
    pub(crate) body: B,
}

impl<H, B> Shell<H, B> {
    /// The program's structure. Members that never change are read as in C, others by [`word`].
    pub(crate) fn head(&self) -> *mut H {
        self.head.get()
    }

    pub(crate) fn into_parts(self) -> (H, B) {
        (self.head.into_inner(), self.body)
    }
}

impl<B> Shell<ibv_pd, B> {
    /// The device that the program's protection domain is of.
    pub(crate) fn context(&self) -> *mut ibv_context {
        // SAFETY: the structure is there as long as its shell; the member never changes.
        unsafe { (*self.head()).context }
    }
}

/// A number in a program's structure that several threads may change at once.
///
/// # Safety
/// A member of the structure of an object that is alive.
pub(crate) unsafe fn word<'a>(member: *mut u32) -> &'a AtomicU32 {
    // SAFETY: this function's contract: aligned, and changed by no call but through this.
    unsafe { AtomicU32::from_ptr(member) }
}

/// A kind of object: how its structure and ours belong together.
pub(crate) trait ShellKind {
    type Head;
    type Body;
    /// The handle in the program's structure, and the one that was given.
    fn handles(shell: &Shell<Self::Head, Self::Body>) -> (u32, u32);
}

macro_rules! kinds {
    ($($kind:ident: $head:ty, $body:ty, |$s:ident| $handle:expr;)*) => {
        $(
            pub(crate) enum $kind {}
            impl ShellKind for $kind {
                type Head = $head;
                type Body = $body;
                #[allow(unused_unsafe, reason = "some kinds have no handle")]
                fn handles($s: &Shell<$head, $body>) -> (u32, u32) {
                    // SAFETY: the structure is there as long as its shell.
                    unsafe { $handle }
                }
            }
        )*
    };
}

kinds! {
    OfDomain: ibv_pd, Arc<Domain>, |s| ((*s.head()).handle, s.body.handle());
    OfThread: ibv_td, Arc<ThreadDomain>, |_s| (0, 0);
    OfXrcDomain: ibv_xrcd, Arc<XrcDomain>, |_s| (0, 0);
    OfRegion: ibv_mr, Mutex<Arc<Region>>, |s| ((*s.head()).handle, region(s).handle());
    OfWindow: ibv_mw, Window, |s| ((*s.head()).handle, s.body.handle);
    OfChannel: ibv_comp_channel, Arc<CompletionChannel>, |_s| (0, 0);
    OfQueue: ibv_cq_ex, Arc<Queue>, |s| ((*s.head()).base.handle, s.body.handle);
    OfSharedQueue: ibv_srq, Arc<SharedQueue>, |s| ((*s.head()).handle, s.body.handle);
    OfAddress: ibv_ah, crate::entry::address::Address, |s| ((*s.head()).handle, s.body.handle);
    OfQueuePair: ibv_qp_ex, crate::entry::queue_pair::Body, |s| ((*s.head()).qp_base.handle, s.body.handle);
}

/// Hand a new object to the program.
pub(crate) fn give<K: ShellKind>(head: K::Head, body: K::Body) -> *mut K::Head {
    let head = UnsafeCell::new(head);
    Box::into_raw(Box::new(Shell::<K::Head, K::Body> { head, body })).cast()
}

/// The object behind a pointer of the program's: `EINVAL` for null, `ENOENT` if its handle is not the
/// one it was given (Verbs V34).
///
/// # Safety
/// Null, or a pointer that [`give`] has returned for this kind and [`take`] has not taken.
pub(crate) unsafe fn look<'a, K: ShellKind>(
    pointer: *mut K::Head,
) -> Result<&'a Shell<K::Head, K::Body>> {
    // SAFETY: this function's contract.
    let shell = unsafe { pointer.cast::<Shell<K::Head, K::Body>>().as_ref() };
    let shell = shell.ok_or(Errno::EINVAL)?;
    let (named, given) = K::handles(shell);
    if named == given { Ok(shell) } else { Err(Errno::ENOENT) }
}

/// The shell of a pointer, without a look at the handle, for the data path.
///
/// # Safety
/// As [`look`], and not null.
#[inline]
pub(crate) unsafe fn trust<'a, K: ShellKind>(pointer: *mut K::Head) -> &'a Shell<K::Head, K::Body> {
    // SAFETY: this function's contract.
    unsafe { &*pointer.cast::<Shell<K::Head, K::Body>>() }
}

/// The region that a structure stands for, which `ibv_rereg_mr` replaces.
pub(crate) fn region(shell: &Shell<ibv_mr, Mutex<Arc<Region>>>) -> Arc<Region> {
    shell.body.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The object ends.
///
/// # Safety
/// As [`look`], and not null; the pointer is not used afterwards.
pub(crate) unsafe fn take<K: ShellKind>(pointer: *mut K::Head) -> Box<Shell<K::Head, K::Body>> {
    // SAFETY: this function's contract.
    unsafe { Box::from_raw(pointer.cast()) }
}

// ---- contexts ------------------------------------------------------------------------------------

/// An opened device as programs see it.
#[repr(C)]
pub(crate) struct ContextShell {
    pub(crate) front: verbs_context,
    pub(crate) head: ibv_context,
    pub(crate) body: Arc<Context>,
    /// The descriptor that the program has imported it by, which is ours to close.
    pub(crate) imported: Option<OwnedFd>,
}

/// The context behind a pointer.
///
/// # Safety
/// Null, or the `head` of a [`ContextShell`] that is alive.
pub(crate) unsafe fn context<'a>(pointer: *mut ibv_context) -> Result<&'a Arc<Context>> {
    if pointer.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: this function's contract.
    Ok(unsafe { &(*shell_of(pointer)).body })
}

/// The beginning of the shell of a context.
pub(crate) fn shell_of(pointer: *mut ibv_context) -> *mut ContextShell {
    pointer.wrapping_byte_sub(std::mem::offset_of!(ContextShell, head)).cast()
}

/// Where the program's structure of an object is.
pub(crate) fn address_of<T>(address: &std::sync::atomic::AtomicUsize) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address.load(Ordering::Acquire))
}

/// Mutexes and conditions of the structures, as glibc initialises them by default.
pub(crate) const MUTEX: libc::pthread_mutex_t = libc::PTHREAD_MUTEX_INITIALIZER;
pub(crate) const CONDITION: libc::pthread_cond_t = libc::PTHREAD_COND_INITIALIZER;
