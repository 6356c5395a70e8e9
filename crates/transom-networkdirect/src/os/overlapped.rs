//! OVERLAPPED requests (ND2 2.3).
//!
//! A request is *begun* on a file, and *finished* once, by the thread that makes it happen. Nothing
//! above this module and `file` writes to an OVERLAPPED or knows of ports.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::file::{Event, File, set_pending, set_status, status};
use super::{Handle, lock};
use crate::status::{ND_CANCELED, ND_INVALID_HANDLE, ND_INVALID_PARAMETER, ND_PENDING};

/// The structure, as programs lay it out.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Overlapped {
    /// Status; `ND_PENDING` while the request is under way.
    pub(crate) internal: AtomicUsize,
    /// Without meaning to clients.
    pub(crate) internal_high: AtomicUsize,
    /// A position in files that have some.
    pub(crate) offset: AtomicUsize,
    /// The event, its lowest bit meaning "no packet".
    pub(crate) event: AtomicUsize,
}

/// An OVERLAPPED* as a C caller passes it.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverlappedPtr(Option<NonNull<Overlapped>>);

impl OverlappedPtr {
    #[cfg(test)]
    pub(crate) fn to(overlapped: &Overlapped) -> OverlappedPtr {
        OverlappedPtr(Some(NonNull::from(overlapped)))
    }

    /// The address of the OVERLAPPED.
    pub(crate) fn address(self) -> usize {
        self.0.map_or(0, |p| p.as_ptr() as usize)
    }

    /// Look at one that was begun; `None` if the pointer is null.
    pub(super) fn with<R>(self, f: impl FnOnce(&Overlapped) -> R) -> Option<R> {
        // SAFETY: a caller's OVERLAPPED* is null or valid until its request has completed (ND2 2.3
        // rule 12); all members are atomics, so that no concurrent access is a data race of ours.
        // The structure is touched only while its request is begun or being asked for.
        self.0.map(|p| f(unsafe { p.as_ref() }))
    }
}

impl File {
    /// Begin a request. From here on either [`Started::answer`] takes it back with a failure, or
    /// its [`Finisher`] delivers it.
    pub(crate) fn begin(
        self: &Arc<File>,
        overlapped: OverlappedPtr,
    ) -> Result<(Started, Finisher), i32> {
        let given =
            overlapped.with(|o| o.event.load(Ordering::Relaxed)).ok_or(ND_INVALID_PARAMETER)?;
        let event = match given & !1 {
            0 => None,
            raw => Some(Event::reset(Handle(raw)).ok_or(ND_INVALID_HANDLE)?),
        };
        let another = overlapped.with(|o| {
            o.internal_high.store(0, Ordering::Relaxed);
            set_pending(o)
        });
        let shared = Arc::new(Shared {
            file: self.clone(),
            request: Request { overlapped, event, packet: given & 1 == 0 },
            state: AtomicU8::new(STARTING),
        });
        Ok((Started { shared: shared.clone(), another: another == Some(true) }, Finisher(shared)))
    }
}

const STARTING: u8 = 0;
const ARMED: u8 = 1;
/// The finisher is gone without a word, before the call had returned.
const DROPPED: u8 = 2;
const OVER: u8 = 3;

/// The facts of a request that its end needs.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) overlapped: OverlappedPtr,
    pub(super) event: Option<Event>,
    /// Whether the file's completion port gets a packet.
    pub(super) packet: bool,
}

#[derive(Debug)]
struct Shared {
    file: Arc<File>,
    request: Request,
    state: AtomicU8,
}

// SAFETY: the pointer is followed only by `OverlappedPtr::with`, through atomics, from any thread,
// and by the system while the request is under way.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn deliver(&self, status: i32) {
        self.file.end(&self.request, status);
    }
}

/// The caller's half of a begun request.
#[derive(Debug)]
#[must_use = "the call has to answer"]
pub(crate) struct Started {
    shared: Arc<Shared>,
    /// Whether another request is under way on the same OVERLAPPED.
    another: bool,
}

impl Started {
    /// The value for the call to return: `ND_PENDING` for a success, whether or not it is finished
    /// by now (ND2 2.3 rule 8), or the failure, with nothing delivered (rule 1). A refused call
    /// writes its failure, for a program that asks all the same. The OVERLAPPED of a request that
    /// is under way stays as it is, because a program that took that request for ended would free
    /// its memory.
    pub(crate) fn answer(self, result: Result<(), i32>) -> i32 {
        match result {
            Ok(()) => {
                let armed = self.shared.state.compare_exchange(
                    STARTING,
                    ARMED,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                );
                if armed == Err(DROPPED) {
                    self.shared.deliver(ND_CANCELED);
                }
                ND_PENDING
            }
            Err(status) => {
                self.shared.state.store(OVER, Ordering::Release);
                let overlapped = self.shared.request.overlapped;
                if !self.another {
                    conclude(overlapped, || {
                        overlapped.with(|o| set_status(o, status));
                    });
                }
                status
            }
        }
    }
}

/// The other half: delivers the completion, once. Dropped without a word, it delivers
/// `ND_CANCELED`, because a thread that waits must not wait for ever.
#[derive(Debug)]
pub(crate) struct Finisher(Arc<Shared>);

impl Finisher {
    /// The request is over.
    pub(crate) fn finish(self, status: i32) {
        if self.0.state.swap(OVER, Ordering::AcqRel) != OVER {
            self.0.deliver(status);
        }
    }
}

impl Drop for Finisher {
    fn drop(&mut self) {
        let state = &self.0.state;
        if state.compare_exchange(STARTING, DROPPED, Ordering::AcqRel, Ordering::Acquire)
            == Err(ARMED)
        {
            state.store(OVER, Ordering::Release);
            self.0.deliver(ND_CANCELED);
        }
    }
}

/// Threads that wait in GetOverlappedResult, by the address they wait for. The lock also keeps the
/// status and the signal together: a thread that has seen the status can use the event for the next
/// request without a late signal of this one.
#[derive(Debug, Default)]
struct Bucket {
    waiting: Mutex<usize>,
    changed: Condvar,
}

fn bucket(overlapped: OverlappedPtr) -> &'static Bucket {
    static BUCKETS: [Bucket; 64] =
        [const { Bucket { waiting: Mutex::new(0), changed: Condvar::new() } }; 64];
    &BUCKETS[(overlapped.address() >> 5) % 64]
}

/// End a request: `write` writes its status and sets its event. Then threads that wait for it go on.
pub(super) fn conclude(overlapped: OverlappedPtr, write: impl FnOnce()) {
    let bucket = bucket(overlapped);
    let waiting = lock(&bucket.waiting);
    write();
    if *waiting > 0 {
        bucket.changed.notify_all();
    }
}

/// The status of a request by its OVERLAPPED alone, whatever object it was begun on (ND2 2.3 rule
/// 7). With `wait`, once it is over; `help` is called first when it is not, and may move the work
/// on while what it is given says that the request is under way.
pub(crate) fn result_of(
    overlapped: OverlappedPtr,
    wait: bool,
    help: impl FnOnce(&dyn Fn() -> bool),
) -> Option<i32> {
    let now = || overlapped.with(status);
    let bucket = bucket(overlapped);
    let mut found = now()?;
    if found != ND_PENDING {
        drop(lock(&bucket.waiting)); // the signal is behind us
        return Some(found);
    }
    if !wait {
        return Some(ND_PENDING);
    }
    let event = overlapped.with(|o| o.event.load(Ordering::Relaxed)).map(|raw| Handle(raw & !1));
    help(&|| now() == Some(ND_PENDING));
    let mut waiting = lock(&bucket.waiting);
    *waiting += 1;
    loop {
        found = now()?;
        if found != ND_PENDING {
            break;
        }
        waiting = match bucket.changed.wait(waiting) {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        };
    }
    *waiting -= 1;
    drop(waiting);
    if let Some(event) = event {
        Event::consume(event); // as if the event itself had been waited for
    }
    Some(found)
}
