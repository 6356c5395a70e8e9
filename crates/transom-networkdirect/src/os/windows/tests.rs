//! Requests on the system's own files, events and completion ports.

use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use windows_sys::Win32::Foundation::{
    CloseHandle, ERROR_OPERATION_ABORTED, GetLastError, INVALID_HANDLE_VALUE, WAIT_OBJECT_0,
    WAIT_TIMEOUT,
};
use windows_sys::Win32::Storage::FileSystem::ReadFile;
use windows_sys::Win32::System::IO::{
    CancelIoEx, CreateIoCompletionPort, GetQueuedCompletionStatus, OVERLAPPED,
};
use windows_sys::Win32::System::Threading::{CreateEventW, SetEvent, WaitForSingleObject};

use super::file::File;
use super::overlapped::{Finisher, Overlapped, OverlappedPtr, Started, result_of};
use super::{Handle, lock};
use crate::status::*;

struct Bench {
    file: Arc<File>,
    handle: Handle,
    port: OwnedHandle,
}

impl Bench {
    fn new() -> Bench {
        let (file, handle) = File::open().unwrap();
        // SAFETY: the handle is open.
        let port = unsafe {
            let port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, null_mut(), 0, 0);
            assert!(!port.is_null());
            assert_eq!(CreateIoCompletionPort(handle.raw(), port, 7, 0), port);
            OwnedHandle::from_raw_handle(port)
        };
        Bench { file, handle, port }
    }

    /// The next packet: whether it tells of success, which request, and the error if not.
    fn packet(&self) -> Option<(bool, usize, u32)> {
        let (mut bytes, mut key, mut which) = (0, 0, null_mut());
        let port = self.port.as_raw_handle();
        // SAFETY: the port is open, and the numbers are written to variables.
        unsafe {
            let done = GetQueuedCompletionStatus(port, &mut bytes, &mut key, &mut which, 0) != 0;
            let error = if done { 0 } else { GetLastError() };
            (!which.is_null()).then(|| {
                assert_eq!(key, 7);
                (done, which.addr(), error)
            })
        }
    }

    fn begin(&self, o: &Overlapped) -> (Started, Finisher) {
        self.file.begin(OverlappedPtr::to(o)).unwrap()
    }

    fn ends(&self, o: &Overlapped, status: i32) {
        let (started, finisher) = self.begin(o);
        assert_eq!(started.answer(Ok(())), ND_PENDING);
        assert_eq!(o.internal.load(Ordering::Relaxed), ND_PENDING as usize);
        assert_eq!(result_of(OverlappedPtr::to(o), false, |_| {}), Some(ND_PENDING));
        assert_eq!(self.packet(), None);
        finisher.finish(status);
        assert_eq!(result_of(OverlappedPtr::to(o), false, |_| {}), Some(status));
    }
}

fn overlapped(event: usize) -> Overlapped {
    // SAFETY: all members are integers.
    let o: Overlapped = unsafe { std::mem::zeroed() };
    o.event.store(event, Ordering::Relaxed);
    o
}

fn event(set: bool) -> OwnedHandle {
    // SAFETY: the handle is open, and belongs to the test alone.
    unsafe { OwnedHandle::from_raw_handle(CreateEventW(null(), 0, i32::from(set), null())) }
}

fn number(event: &OwnedHandle) -> usize {
    event.as_raw_handle().addr()
}

fn wait(event: &OwnedHandle) -> u32 {
    // SAFETY: the handle is open.
    unsafe { WaitForSingleObject(event.as_raw_handle(), 0) }
}

fn at(o: &Overlapped) -> usize {
    std::ptr::from_ref(o).addr()
}

#[test]
fn rule_1_and_8_a_success_is_pending_and_delivers_one_packet() {
    let (bench, o) = (Bench::new(), overlapped(0));
    let (started, finisher) = bench.begin(&o);
    finisher.finish(ND_SUCCESS); // before the call returns
    assert_eq!(started.answer(Ok(())), ND_PENDING);
    assert_eq!(bench.packet(), Some((true, at(&o), 0)));
    assert_eq!(bench.packet(), None);
    assert_eq!(result_of(OverlappedPtr::to(&o), false, |_| {}), Some(ND_SUCCESS));
}

#[test]
fn rule_1_an_inline_failure_delivers_nothing() {
    let (bench, o) = (Bench::new(), overlapped(0));
    let (started, finisher) = bench.begin(&o);
    drop(finisher);
    assert_eq!(started.answer(Err(ND_DEVICE_BUSY)), ND_DEVICE_BUSY);
    assert_eq!(bench.packet(), None);
    assert_eq!(result_of(OverlappedPtr::to(&o), false, |_| {}), Some(ND_DEVICE_BUSY));
}

#[test]
fn rule_5_a_failed_request_dequeues_as_a_failed_packet() {
    let (bench, o) = (Bench::new(), overlapped(0));
    for status in [ND_CONNECTION_REFUSED, ND_CANCELED, ND_BUFFER_OVERFLOW] {
        bench.ends(&o, status);
        assert_eq!(o.internal.load(Ordering::Relaxed) as i32, ND_CANCELED, "the system's status");
        assert_eq!(bench.packet(), Some((false, at(&o), ERROR_OPERATION_ABORTED)));
    }
    for status in [ND_TIMEOUT, ND_SUCCESS] {
        bench.ends(&o, status);
        assert_eq!(o.internal.load(Ordering::Relaxed) as i32, ND_SUCCESS, "the system's status");
        assert_eq!(bench.packet(), Some((true, at(&o), 0)));
    }
}

#[test]
fn rule_4_bit_0_of_the_event_suppresses_the_packet_and_signals_the_event() {
    let (bench, event) = (Bench::new(), event(true));
    for (status, bit) in [(ND_SUCCESS, 1), (ND_CANCELED, 1), (ND_SUCCESS, 0), (ND_CANCELED, 0)] {
        let o = overlapped(number(&event) | bit);
        let (started, finisher) = bench.begin(&o);
        assert_eq!(wait(&event), WAIT_TIMEOUT, "beginning a request resets its event");
        finisher.finish(status);
        assert_eq!(started.answer(Ok(())), ND_PENDING);
        assert_eq!(bench.packet().is_some(), bit == 0);
        assert_eq!((wait(&event), wait(&event)), (WAIT_OBJECT_0, WAIT_TIMEOUT));
    }
}

#[test]
fn rule_6_waiting_ends_with_the_request_and_uses_up_the_event() {
    let (bench, event) = (Bench::new(), event(false));
    for status in [ND_CANCELED, ND_SUCCESS] {
        let o = overlapped(number(&event));
        let (started, finisher) = bench.begin(&o);
        assert_eq!(started.answer(Ok(())), ND_PENDING);
        // SAFETY: the handle is open. A stale signal does not end the wait.
        unsafe { SetEvent(event.as_raw_handle()) };
        let (begun, waits) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let o = &o;
            let waiter = scope.spawn(move || {
                result_of(OverlappedPtr::to(o), true, |pending| {
                    assert!(pending());
                    begun.send(()).unwrap();
                })
            });
            waits.recv().unwrap();
            finisher.finish(status);
            assert_eq!(waiter.join().unwrap(), Some(status));
        });
        assert_eq!(wait(&event), WAIT_TIMEOUT);
    }
}

/// The reads of a pipe end in their order, and those of a thread that exits are canceled.
#[test]
fn requests_end_in_any_order_and_outlive_the_thread_that_began_them() {
    let bench = Bench::new();
    let all = [(); 4].map(|()| overlapped(0));
    let begun = std::thread::scope(|scope| {
        let begin = || all.each_ref().map(|o| bench.begin(o));
        scope.spawn(begin).join().unwrap()
    });
    let [first, second, third, fourth] = begun.map(|(started, finisher)| {
        assert_eq!(started.answer(Ok(())), ND_PENDING);
        finisher
    });
    assert_eq!(bench.packet(), None);
    third.finish(ND_SUCCESS);
    first.finish(ND_CONNECTION_REFUSED);
    fourth.finish(ND_CANCELED);
    second.finish(ND_SUCCESS);
    let aborted = ERROR_OPERATION_ABORTED;
    for (index, done, error) in
        [(2, true, 0), (0, false, aborted), (3, false, aborted), (1, true, 0)]
    {
        assert_eq!(bench.packet(), Some((done, at(&all[index]), error)), "{index}");
    }
    assert_eq!(bench.packet(), None);
}

#[test]
fn many_threads_end_requests_of_one_file_and_each_has_its_own_end() {
    let bench = Bench::new();
    let all: Vec<_> = (0..400).map(|_| overlapped(0)).collect();
    let wanted =
        |index: usize| if index.is_multiple_of(3) { ND_CONNECTION_REFUSED } else { ND_SUCCESS };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (all, bench) = (&all, &bench);
            scope.spawn(move || {
                for index in (thread..all.len()).step_by(4) {
                    let (started, finisher) = bench.begin(&all[index]);
                    assert_eq!(started.answer(Ok(())), ND_PENDING);
                    finisher.finish(wanted(index));
                }
            });
        }
    });
    let mut packets = vec![None; all.len()];
    while let Some((done, which, _)) = bench.packet() {
        let index = (which - at(&all[0])) / size_of::<Overlapped>();
        assert_eq!(packets[index].replace(done), None, "two packets for {index}");
    }
    for (index, (o, packet)) in all.iter().zip(packets).enumerate() {
        assert_eq!(packet, Some(wanted(index) == ND_SUCCESS), "{index}");
        assert_eq!(result_of(OverlappedPtr::to(o), false, |_| {}), Some(wanted(index)), "{index}");
    }
}

/// The system knows of no request before it ends, and none is left when it has.
#[test]
fn the_system_s_own_cancel_finds_nothing() {
    let (bench, o) = (Bench::new(), overlapped(0));
    let all: *const OVERLAPPED = null();
    let cancel = || {
        for which in [std::ptr::from_ref(&o).cast(), all] {
            // SAFETY: the handle is open; the OVERLAPPED is only compared.
            unsafe { CancelIoEx(bench.handle.raw(), which) };
        }
    };
    cancel();
    let (started, finisher) = bench.begin(&o);
    assert_eq!(started.answer(Ok(())), ND_PENDING);
    cancel();
    assert_eq!(bench.packet(), None);
    finisher.finish(ND_SUCCESS);
    cancel();
    assert_eq!(bench.packet(), Some((true, at(&o), 0)));
    bench.ends(&o, ND_SUCCESS);
    assert_eq!(bench.packet(), Some((true, at(&o), 0)));
}

/// The program has canceled the read by the system's own call.
#[test]
fn a_byte_that_no_read_takes_does_not_end_the_next_request_too_early() {
    let (bench, o) = (Bench::new(), overlapped(0));
    assert!(bench.file.write());
    for status in [ND_CANCELED, ND_SUCCESS] {
        bench.ends(&o, status);
        assert_eq!(bench.packet().map(|(done, ..)| done), Some(status == ND_SUCCESS));
    }
}

/// A program cannot take the byte that ends a request.
#[test]
fn the_program_s_handle_cannot_be_read() {
    let bench = Bench::new();
    let (mut byte, mut o) = (0_u8, OVERLAPPED::default());
    // SAFETY: the handle is open, and the call refused.
    let done = unsafe { ReadFile(bench.handle.raw(), &mut byte, 1, null_mut(), &mut o) };
    assert_eq!(done, 0);
    let o = overlapped(0);
    bench.ends(&o, ND_SUCCESS);
    assert_eq!(bench.packet(), Some((true, at(&o), 0)));
}

#[test]
fn a_request_whose_maker_vanishes_is_canceled() {
    let (bench, o) = (Bench::new(), overlapped(0));
    let (started, finisher) = bench.begin(&o);
    assert_eq!(started.answer(Ok(())), ND_PENDING);
    drop(finisher);
    assert_eq!(bench.packet(), Some((false, at(&o), ERROR_OPERATION_ABORTED)));
    let (started, finisher) = bench.begin(&o);
    drop(finisher); // before the call has answered
    assert_eq!(bench.packet(), None);
    assert_eq!(started.answer(Ok(())), ND_PENDING);
    assert_eq!(bench.packet(), Some((false, at(&o), ERROR_OPERATION_ABORTED)));
}

#[test]
fn what_is_no_event_is_refused_and_a_closed_one_is_signaled_all_the_same() {
    let bench = Bench::new();
    for wrong in [0x1234, bench.handle.0, usize::MAX - 1, bench.port.as_raw_handle().addr()] {
        let o = overlapped(wrong);
        assert_eq!(bench.file.begin(OverlappedPtr::to(&o)).err(), Some(ND_INVALID_HANDLE));
        assert_eq!(o.internal.load(Ordering::Relaxed), 0, "nothing has begun");
    }
    let signaled = event(false);
    let other = signaled.try_clone().unwrap();
    let o = overlapped(number(&signaled));
    let (started, finisher) = bench.begin(&o);
    assert_eq!(started.answer(Ok(())), ND_PENDING);
    drop(signaled);
    finisher.finish(ND_SUCCESS);
    assert_eq!(wait(&other), WAIT_OBJECT_0);
    assert_eq!(bench.packet(), Some((true, at(&o), 0)));
}

#[test]
fn a_file_outlives_its_handle_and_a_closed_handle_names_none() {
    let bench = Bench::new();
    assert!(bench.handle.file().is_some_and(|file| Arc::ptr_eq(&file, &bench.file)));
    // SAFETY: the handle is open. Another one of the same file, as a program may make.
    let twin = unsafe { std::os::windows::io::BorrowedHandle::borrow_raw(bench.handle.raw()) };
    let twin = twin.try_clone_to_owned().unwrap();
    let named = Handle(number(&twin));
    assert!(named.file().is_some_and(|file| Arc::ptr_eq(&file, &bench.file)));
    for wrong in [Handle::NULL, Handle(usize::MAX), Handle(bench.port.as_raw_handle().addr())] {
        assert!(wrong.file().is_none() && !wrong.close());
    }
    drop(twin);
    assert!(bench.handle.close());
    // The number may name something of another test by now.
    assert!(!bench.handle.file().is_some_and(|file| Arc::ptr_eq(&file, &bench.file)));
    let o = overlapped(0);
    bench.ends(&o, ND_SUCCESS);
    assert_eq!(bench.packet(), Some((true, at(&o), 0)));
}

/// The end of a port is the program's affair.
#[test]
fn a_request_ends_although_its_port_is_closed() {
    let bench = Bench::new();
    let (event, Bench { file, port, .. }) = (event(false), bench);
    drop(port);
    for status in [ND_SUCCESS, ND_CANCELED] {
        let o = overlapped(number(&event));
        let (started, finisher) = file.begin(OverlappedPtr::to(&o)).unwrap();
        assert_eq!(started.answer(Ok(())), ND_PENDING);
        finisher.finish(status);
        assert_eq!(result_of(OverlappedPtr::to(&o), true, |_| {}), Some(status));
    }
}

/// A program closes its handles and says so to nobody.
#[test]
fn files_that_nothing_names_are_forgotten() {
    let count = || lock(&super::file::FILES).all.len();
    for _ in 0..1000 {
        let (_, handle) = File::open().unwrap();
        // SAFETY: the handle is open, and of this test.
        unsafe { CloseHandle(handle.raw()) };
    }
    assert!(count() < 500, "{} files are left", count());
}
