//! Overlapped files, and how their requests end.
//!
//! A program binds the file to its own completion port, so the system has to end each request on that
//! file. Without a driver: the file is the reading end of a pipe whose writing end nobody else has. A
//! request stays with the engine until its end is known. Then it becomes a read of one byte, which is
//! either satisfied by a byte or canceled: the system writes the OVERLAPPED, signals the event and
//! queues the packet, as it does for a driver. A read that exists for this moment only has two reasons.
//! The reads of a pipe are satisfied in their order, but requests end in any; and the system cancels
//! the reads of a thread that exits.
//!
//! The system's status of a failure is always `ND_CANCELED`, so the request's own is kept in `Offset`,
//! which means nothing to a pipe.

use std::hash::{BuildHasher, RandomState};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use windows_sys::Wdk::Foundation::{NtQueryObject, ObjectBasicInformation};
use windows_sys::Wdk::Storage::FileSystem::NtReadFile;
use windows_sys::Win32::Foundation::{
    CompareObjectHandles, DuplicateHandle, ERROR_IO_PENDING, GENERIC_WRITE, GetLastError, HANDLE,
    INVALID_HANDLE_VALUE, STATUS_PENDING, STATUS_SUCCESS,
};
use windows_sys::Win32::Storage::FileSystem::{
    CreateFileW, FILE_FLAG_FIRST_PIPE_INSTANCE, FILE_FLAG_OVERLAPPED, OPEN_EXISTING,
    PIPE_ACCESS_INBOUND, SYNCHRONIZE, SetFileCompletionNotificationModes, WriteFile,
};
use windows_sys::Win32::System::IO::{CancelIoEx, GetOverlappedResult, OVERLAPPED};
use windows_sys::Win32::System::Pipes::{
    CreateNamedPipeW, PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_BYTE,
};
use windows_sys::Win32::System::Threading::{
    EVENT_MODIFY_STATE, GetCurrentProcess, ResetEvent, SetEvent, WaitForSingleObject,
};
use windows_sys::Win32::System::WindowsProgramming::{
    FILE_SKIP_COMPLETION_PORT_ON_SUCCESS, FILE_SKIP_SET_EVENT_ON_HANDLE,
};

use super::overlapped::{Overlapped, Request, conclude};
use super::{Handle, lock};
use crate::status::ND_PENDING;

/// An overlapped file.
#[derive(Debug)]
pub(crate) struct File {
    /// The number of the program's handle.
    given: Handle,
    reading: OwnedHandle,
    writing: OwnedHandle,
    /// Requests end one at a time, so that the byte is for the read of the one that ends.
    turn: Mutex<()>,
}

/// The files that handles may name: a program may close its handle at any time, and says so to nobody.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) all: Vec<Arc<File>>,
    /// With so many entries a search begins for those that nothing names any more.
    sweep_at: usize,
}

const SWEEP_AT: usize = 16;
pub(super) static FILES: Mutex<Files> = Mutex::new(Files { all: Vec::new(), sweep_at: SWEEP_AT });

/// The file that a handle names. A handle that the program has duplicated is as good as the one that
/// it was given; one that it has closed is none, even if its number is in use again.
pub(super) fn find(handle: Handle) -> Option<Arc<File>> {
    let files = lock(&FILES);
    let given = files.all.iter().find(|file| file.given == handle && file.is(handle));
    given.or_else(|| files.all.iter().find(|file| file.is(handle))).cloned()
}

impl Files {
    fn add(&mut self, file: Arc<File>) {
        if self.all.len() >= self.sweep_at {
            self.all.retain(|file| Arc::strong_count(file) > 1 || file.is_named());
            self.sweep_at = SWEEP_AT.max(2 * self.all.len());
        }
        self.all.push(file);
    }
}

impl File {
    /// A new one with a handle, which is for waiting and for completion ports only: a byte that the
    /// program read would be missing.
    pub(crate) fn open() -> Option<(Arc<File>, Handle)> {
        let (reading, writing) = pipe()?;
        let modes = FILE_SKIP_COMPLETION_PORT_ON_SUCCESS | FILE_SKIP_SET_EVENT_ON_HANDLE;
        // SAFETY: the handle is open. Without these modes (ND2 2.3 rule 2) nothing is different here,
        // because each read begins pending.
        unsafe { SetFileCompletionNotificationModes(reading.as_raw_handle(), modes as u8) };
        let given = Handle(duplicate(reading.as_raw_handle(), SYNCHRONIZE)?.addr());
        let file = Arc::new(File { given, reading, writing, turn: Mutex::new(()) });
        lock(&FILES).add(file.clone());
        Some((file, given))
    }

    /// Whether a handle names this file.
    fn is(&self, handle: Handle) -> bool {
        // SAFETY: asks about two numbers, whatever they name.
        unsafe { CompareObjectHandles(handle.raw(), self.reading.as_raw_handle()) != 0 }
    }

    /// Whether there is a handle besides ours. `true` if the system does not say.
    fn is_named(&self) -> bool {
        let mut basics = Basics::default();
        // SAFETY: the handle is open; `basics` has room for as many bytes as are named.
        let status = unsafe {
            NtQueryObject(
                self.reading.as_raw_handle(),
                ObjectBasicInformation,
                (&raw mut basics).cast(),
                size_of::<Basics>() as u32,
                null_mut(),
            )
        };
        status != STATUS_SUCCESS || basics.handles > 1
    }

    /// Ends a request.
    pub(super) fn end(&self, request: &Request, status: i32) {
        conclude(request.overlapped, || self.let_go(request, status));
    }

    fn let_go(&self, request: &Request, status: i32) {
        static BYTE: AtomicU8 = AtomicU8::new(0);
        let _turn = lock(&self.turn);
        request.overlapped.with(|o| o.offset.store(status as u32 as usize, Ordering::Release));
        let overlapped: *mut OVERLAPPED =
            std::ptr::with_exposed_provenance_mut(request.overlapped.address());
        let event = request.event.as_ref().map_or(null_mut(), |event| event.0.as_raw_handle());
        let context = if request.packet { overlapped.cast_const().cast() } else { null() };
        // SAFETY: the handles are open. The request's OVERLAPPED, which begins with an
        // IO_STATUS_BLOCK, is valid until its end (ND2 2.3 rule 12), which is below. The byte is a
        // static atomic, as the system's writes to it demand.
        let begun = unsafe {
            NtReadFile(
                self.reading.as_raw_handle(),
                event,
                None,
                context,
                overlapped.cast(),
                BYTE.as_ptr().cast(),
                1,
                null(),
                null(),
            )
        };
        match begun {
            STATUS_PENDING => {
                if status < 0 || !self.write() {
                    // SAFETY: as above. A request that the program has canceled by the system's own
                    // call meanwhile is only compared by its address.
                    unsafe { CancelIoEx(self.reading.as_raw_handle(), overlapped) };
                }
            }
            STATUS_SUCCESS => {}
            // The system has no memory for a read. Without it there is no packet.
            _ => {
                request.overlapped.with(|o| set_status(o, status));
                if !event.is_null() {
                    // SAFETY: the handle is open.
                    unsafe { SetEvent(event) };
                }
            }
        }
    }

    /// Writes the byte for the read that is pending; `false` if the system refuses.
    pub(super) fn write(&self) -> bool {
        let (writing, mut overlapped) = (self.writing.as_raw_handle(), OVERLAPPED::default());
        // SAFETY: the handle is open, the byte is static, and `overlapped` is in use until the write is
        // over, which the calls below see to.
        unsafe {
            if WriteFile(writing, [0].as_ptr(), 1, null_mut(), &raw mut overlapped) != 0 {
                return true;
            }
            if GetLastError() != ERROR_IO_PENDING {
                return false;
            }
            // The pipe holds nothing, so no read took the byte: the program has canceled it by the
            // system's own call. A byte that stayed would be taken by the next read too early.
            let mut bytes = 0;
            CancelIoEx(writing, &raw const overlapped);
            GetOverlappedResult(writing, &raw const overlapped, &raw mut bytes, 1);
        }
        true
    }
}

/// OBJECT_BASIC_INFORMATION.
#[repr(C)]
#[derive(Default)]
struct Basics {
    attributes: u32,
    access: u32,
    handles: u32,
    rest: [u32; 11],
}

/// A pipe that holds nothing: its reading and its writing end. The names are this process's own.
fn pipe() -> Option<(OwnedHandle, OwnedHandle)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let (process, salt) = (std::process::id(), RandomState::new().hash_one(number));
    let name = format!(r"\\.\pipe\transom-nd-{process}-{number}-{salt:016x}");
    let name: Vec<u16> = name.encode_utf16().chain([0]).collect();
    let access = PIPE_ACCESS_INBOUND | FILE_FLAG_OVERLAPPED | FILE_FLAG_FIRST_PIPE_INSTANCE;
    let mode = PIPE_TYPE_BYTE | PIPE_REJECT_REMOTE_CLIENTS;
    // SAFETY: the name ends with a zero; the default of what is null is the system's.
    let reading =
        owned(unsafe { CreateNamedPipeW(name.as_ptr(), access, mode, 1, 0, 0, 0, null()) })?;
    // SAFETY: as above.
    let writing = owned(unsafe {
        CreateFileW(
            name.as_ptr(),
            GENERIC_WRITE,
            0,
            null(),
            OPEN_EXISTING,
            FILE_FLAG_OVERLAPPED,
            null_mut(),
        )
    })?;
    Some((reading, writing))
}

/// A handle that was just made.
fn owned(handle: HANDLE) -> Option<OwnedHandle> {
    // SAFETY: a handle that a call has returned is open, and nobody else's.
    (handle != INVALID_HANDLE_VALUE).then(|| unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// Another handle of the same thing, for as much as `access` says.
fn duplicate(handle: HANDLE, access: u32) -> Option<HANDLE> {
    let mut other = null_mut();
    // SAFETY: the handle may be any number; the new one is written to `other`.
    let done = unsafe {
        let here = GetCurrentProcess();
        DuplicateHandle(here, handle, here, &raw mut other, access, 0, 0)
    };
    (done != 0).then_some(other)
}

/// The event of a request. Of our own handle, so that the program may close its one meanwhile.
#[derive(Debug)]
pub(super) struct Event(OwnedHandle);

impl Event {
    /// The event of a handle, reset for a request that begins; `None` if there is none.
    pub(super) fn reset(handle: Handle) -> Option<Event> {
        let event = owned(duplicate(handle.raw(), EVENT_MODIFY_STATE)?)?;
        // SAFETY: the handle is open; a thing that is no event is refused.
        (unsafe { ResetEvent(event.as_raw_handle()) } != 0).then_some(Event(event))
    }

    /// Uses up the signal of a handle, as if its event had been waited for.
    pub(super) fn consume(handle: Handle) {
        if handle != Handle::NULL {
            // SAFETY: a handle that cannot be waited for is refused.
            unsafe { WaitForSingleObject(handle.raw(), 0) };
        }
    }
}

/// The status of a request that has begun: not the system's, which knows of no failure but one.
pub(super) fn status(overlapped: &Overlapped) -> i32 {
    overlapped.offset.load(Ordering::Acquire) as u32 as i32
}

/// Writes that status, and the system's.
pub(super) fn set_status(overlapped: &Overlapped, status: i32) {
    overlapped.internal.store(status as u32 as usize, Ordering::Release);
    overlapped.offset.store(status as u32 as usize, Ordering::Release);
}

/// Marks a request as under way; `true` if one was under way already.
pub(super) fn set_pending(overlapped: &Overlapped) -> bool {
    let pending = ND_PENDING as usize;
    let before = [&overlapped.internal, &overlapped.offset]
        .map(|place| place.swap(pending, Ordering::AcqRel));
    before == [pending; 2]
}
