//! The calls behind `transom_win32.h`.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use super::handle::{Handle, Object};
use super::overlapped::{OverlappedPtr, result_of};
use super::port::{Nothing, Packet, Port};
use super::thread;
use super::wait::{self, WaitKind, Waitable};
use crate::com::{InPtr, OutPtr, guard};
use crate::status::*;

const ERROR_INVALID_HANDLE: u32 = 6;
const ERROR_NOT_ENOUGH_MEMORY: u32 = 8;
const ERROR_GEN_FAILURE: u32 = 31;
const ERROR_INVALID_PARAMETER: u32 = 87;
const ERROR_TOO_MANY_POSTS: u32 = 298;
const ERROR_NOT_OWNER: u32 = 288;
const ERROR_ABANDONED_WAIT_0: u32 = 735;
const ERROR_OPERATION_ABORTED: u32 = 995;
const ERROR_IO_INCOMPLETE: u32 = 996;
const WAIT_TIMEOUT: u32 = 258;
const WAIT_FAILED: u32 = 0xFFFF_FFFF;
const MAXIMUM_WAIT_OBJECTS: u32 = 64;

/// The Win32 error of a failed request's status; what GetLastError says behind a failed packet.
fn win32_error(status: i32) -> u32 {
    match status {
        ND_CANCELED => ERROR_OPERATION_ABORTED,
        ND_ACCESS_VIOLATION => 998,
        ND_INVALID_HANDLE => ERROR_INVALID_HANDLE,
        ND_INVALID_PARAMETER => ERROR_INVALID_PARAMETER,
        ND_NO_MEMORY => ERROR_NOT_ENOUGH_MEMORY,
        ND_INSUFFICIENT_RESOURCES => 1450,
        ND_NOT_SUPPORTED => 50,
        ND_CONNECTION_REFUSED => 1225,
        ND_CONNECTION_INVALID => 1229,
        ND_CONNECTION_ACTIVE => 1230,
        ND_NETWORK_UNREACHABLE => 1231,
        ND_HOST_UNREACHABLE => 1232,
        ND_CONNECTION_ABORTED => 1236,
        ND_IO_TIMEOUT => 1117,
        ND_DEVICE_REMOVED => 1617,
        _ => ERROR_GEN_FAILURE,
    }
}

fn fail(error: u32) -> i32 {
    thread::set_last_error(error);
    0
}

fn ok(done: bool, error: u32) -> i32 {
    if done { 1 } else { fail(error) }
}

fn open(object: Object) -> Handle {
    Handle::open(object).unwrap_or_else(|| {
        thread::set_last_error(ERROR_NOT_ENOUGH_MEMORY);
        Handle::NULL
    })
}

fn limit(milliseconds: u32) -> Option<Duration> {
    (milliseconds != u32::MAX).then(|| Duration::from_millis(u64::from(milliseconds)))
}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_get_last_error() -> u32 {
    thread::last_error()
}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_set_last_error(error: u32) {
    thread::set_last_error(error);
}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_close_handle(handle: Handle) -> i32 {
    guard(|| ok(handle.close(), ERROR_INVALID_HANDLE))
}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_create_event(manual: i32, initial: i32) -> Handle {
    guard(|| {
        let kind = if manual != 0 { WaitKind::ManualEvent } else { WaitKind::AutoEvent };
        open(Object::Waitable(Waitable::new(kind(initial != 0))))
    })
}

fn with_waitable(handle: Handle, f: impl FnOnce(&Waitable) -> bool) -> i32 {
    ok(handle.waitable().is_some_and(|w| f(&w)), ERROR_INVALID_HANDLE)
}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_set_event(event: Handle) -> i32 {
    guard(|| with_waitable(event, Waitable::set))
}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_reset_event(event: Handle) -> i32 {
    guard(|| with_waitable(event, Waitable::reset))
}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_create_semaphore(initial: i32, maximum: i32) -> Handle {
    guard(|| match (u32::try_from(initial), u32::try_from(maximum)) {
        (Ok(count), Ok(maximum)) if maximum > 0 && count <= maximum => {
            open(Object::Waitable(Waitable::new(WaitKind::Semaphore { count, maximum })))
        }
        _ => {
            thread::set_last_error(ERROR_INVALID_PARAMETER);
            Handle::NULL
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_release_semaphore(
    handle: Handle,
    count: i32,
    previous: OutPtr<i32>,
) -> i32 {
    guard(|| {
        let Some(semaphore) = handle.waitable() else { return fail(ERROR_INVALID_HANDLE) };
        let before = u32::try_from(count).ok().and_then(|count| semaphore.release(count));
        if let Some(before) = before {
            previous.put(before as i32);
        }
        ok(before.is_some(), ERROR_TOO_MANY_POSTS)
    })
}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_create_mutex(owned: i32) -> Handle {
    guard(|| {
        let owner = (owned != 0).then(|| (std::thread::current().id(), 1));
        open(Object::Waitable(Waitable::new(WaitKind::Mutex(owner))))
    })
}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_release_mutex(mutex: Handle) -> i32 {
    guard(|| ok(mutex.waitable().is_some_and(|w| w.unlock()), ERROR_NOT_OWNER))
}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_wait(
    count: u32,
    handles: InPtr<Handle>,
    all: i32,
    milliseconds: u32,
) -> u32 {
    guard(|| {
        let handles = handles.many(count as usize);
        let objects: Option<Vec<Arc<Waitable>>> =
            handles.map(|handles| handles.iter().filter_map(|h| h.waitable()).collect());
        match objects {
            _ if count == 0 || count > MAXIMUM_WAIT_OBJECTS => {
                thread::set_last_error(ERROR_INVALID_PARAMETER);
                WAIT_FAILED
            }
            Some(objects) if objects.len() == count as usize => {
                match wait::wait(&objects, all != 0, limit(milliseconds)) {
                    Some(index) => index as u32,
                    None => WAIT_TIMEOUT,
                }
            }
            _ => {
                thread::set_last_error(ERROR_INVALID_HANDLE);
                WAIT_FAILED
            }
        }
    })
}

/// A thread's argument, which is only passed on.
struct Argument(*mut c_void);
// SAFETY: it is handed to the program's own function in the new thread, and not followed by us.
unsafe impl Send for Argument {}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_create_thread(
    start: Option<extern "C" fn(*mut c_void) -> u32>,
    argument: *mut c_void,
    stack: usize,
    id: OutPtr<u32>,
) -> Handle {
    guard(|| {
        let Some(start) = start else {
            thread::set_last_error(ERROR_INVALID_PARAMETER);
            return Handle::NULL;
        };
        let argument = Argument(argument);
        let run = move || {
            let whole = argument;
            start(whole.0)
        };
        match thread::spawn(stack, run) {
            Ok((done, number)) => {
                id.put(number);
                open(Object::Waitable(done))
            }
            Err(_) => {
                thread::set_last_error(ERROR_NOT_ENOUGH_MEMORY);
                Handle::NULL
            }
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_get_exit_code_thread(handle: Handle, code: OutPtr<u32>) -> i32 {
    guard(|| match handle.waitable().and_then(|w| w.exit_code()) {
        Some(exit) => {
            code.put(exit.unwrap_or(0x103));
            1
        }
        None => fail(ERROR_INVALID_HANDLE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_current_thread_id() -> u32 {
    thread::current()
}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_create_completion_port(
    file: Handle,
    port: Handle,
    key: usize,
    _threads: u32,
) -> Handle {
    const INVALID_HANDLE_VALUE: Handle = Handle(usize::MAX);
    guard(|| {
        let bad = |error| {
            thread::set_last_error(error);
            Handle::NULL
        };
        let file = match file {
            INVALID_HANDLE_VALUE => None,
            handle => match handle.file() {
                Some(file) => Some(file),
                None => return bad(ERROR_INVALID_HANDLE),
            },
        };
        let (target, handle) = match port {
            Handle::NULL => {
                let target = Arc::new(Port::default());
                match Handle::open(Object::Port(target.clone())) {
                    Some(handle) => (target, handle),
                    None => return bad(ERROR_NOT_ENOUGH_MEMORY),
                }
            }
            handle => match handle.port() {
                Some(target) => (target, handle),
                None => return bad(ERROR_INVALID_HANDLE),
            },
        };
        if file.is_some_and(|file| !file.bind(target, key)) {
            if port == Handle::NULL {
                handle.close();
            }
            return bad(ERROR_INVALID_PARAMETER); // bound already
        }
        handle
    })
}

fn take(port: Handle, room: usize, milliseconds: u32) -> Result<Vec<Packet>, u32> {
    let port = port.port().ok_or(ERROR_INVALID_HANDLE)?;
    let mut packets = Vec::with_capacity(room.min(64));
    match port.take(&mut packets, room, limit(milliseconds)) {
        Ok(()) => Ok(packets),
        Err(Nothing::TimedOut) => Err(WAIT_TIMEOUT),
        Err(Nothing::Closed) => Err(ERROR_ABANDONED_WAIT_0),
    }
}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_get_queued_completion_status(
    port: Handle,
    bytes: OutPtr<u32>,
    key: OutPtr<usize>,
    overlapped: OutPtr<usize>,
    milliseconds: u32,
) -> i32 {
    guard(|| match take(port, 1, milliseconds).map(|packets| packets.first().copied()) {
        Ok(Some(packet)) => {
            bytes.put(packet.bytes);
            key.put(packet.key);
            overlapped.put(packet.overlapped);
            ok(packet.status >= 0, win32_error(packet.status))
        }
        Ok(None) => fail(ERROR_GEN_FAILURE),
        Err(error) => {
            overlapped.put(0);
            fail(error)
        }
    })
}

/// OVERLAPPED_ENTRY.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    key: usize,
    overlapped: usize,
    internal: usize,
    bytes: u32,
}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_get_queued_completion_status_ex(
    port: Handle,
    entries: OutPtr<Entry>,
    count: u32,
    removed: OutPtr<u32>,
    milliseconds: u32,
) -> i32 {
    guard(|| {
        if count == 0 || entries.is_null() {
            return fail(ERROR_INVALID_PARAMETER);
        }
        match take(port, count as usize, milliseconds) {
            Ok(packets) => {
                for (index, packet) in packets.iter().enumerate() {
                    entries.put_at(
                        index,
                        Entry {
                            key: packet.key,
                            overlapped: packet.overlapped,
                            internal: packet.status as u32 as usize,
                            bytes: packet.bytes,
                        },
                    );
                }
                removed.put(packets.len() as u32);
                1
            }
            Err(error) => {
                removed.put(0);
                fail(error)
            }
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn transom_win32_post_queued_completion_status(
    port: Handle,
    bytes: u32,
    key: usize,
    overlapped: usize,
) -> i32 {
    guard(|| match port.port() {
        Some(port) => {
            port.post(Packet { key, overlapped, status: 0, bytes });
            1
        }
        None => fail(ERROR_INVALID_HANDLE),
    })
}

/// The Win32 call of that name, which NetworkDirect programs may use to learn that a request is
/// over.
#[unsafe(no_mangle)]
extern "C" fn transom_win32_get_overlapped_result(
    _file: Handle,
    overlapped: OverlappedPtr,
    bytes: OutPtr<u32>,
    wait: i32,
) -> i32 {
    guard(|| {
        bytes.put(0);
        match result_of(overlapped, wait != 0, |_| {}) {
            Some(ND_PENDING) => fail(ERROR_IO_INCOMPLETE),
            Some(status) => ok(status >= 0, win32_error(status)),
            None => fail(ERROR_INVALID_PARAMETER),
        }
    })
}

/// Both modes are on from the start (ND2 2.3 rule 2); a success is never inline here, so that they
/// change nothing.
#[unsafe(no_mangle)]
extern "C" fn transom_win32_set_file_completion_notification_modes(
    file: Handle,
    _flags: u8,
) -> i32 {
    guard(|| ok(file.file().is_some(), ERROR_INVALID_HANDLE))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::super::file::File;
    use super::super::overlapped::Overlapped;
    use super::*;

    fn overlapped(event: Handle) -> Overlapped {
        // SAFETY: all members are integers.
        let o: Overlapped = unsafe { std::mem::zeroed() };
        o.event.store(event.0, Ordering::Relaxed);
        o
    }

    struct Bench {
        file: Arc<File>,
        port: Handle,
    }

    impl Bench {
        fn new() -> Bench {
            let (file, handle) = File::open().unwrap();
            let port = transom_win32_create_completion_port(handle, Handle::NULL, 7, 0);
            assert_ne!(port, Handle::NULL);
            Bench { file, port }
        }

        fn packet(&self) -> Option<(i32, usize, usize)> {
            let (mut bytes, mut key, mut which) = (0, 0, 0);
            let done = transom_win32_get_queued_completion_status(
                self.port,
                OutPtr::to(&mut bytes),
                OutPtr::to(&mut key),
                OutPtr::to(&mut which),
                0,
            );
            (which != 0).then_some((done, which, key))
        }
    }

    #[test]
    fn rule_1_and_8_a_success_is_pending_and_delivers_one_packet() {
        let bench = Bench::new();
        let o = overlapped(Handle::NULL);
        let (started, finisher) = bench.file.begin(OverlappedPtr::to(&o)).unwrap();
        finisher.finish(ND_SUCCESS); // before the call returns
        assert_eq!(started.answer(Ok(())), ND_PENDING);
        assert_eq!(bench.packet(), Some((1, &raw const o as usize, 7)));
        assert_eq!(bench.packet(), None);
        assert_eq!(result_of(OverlappedPtr::to(&o), false, |_| {}), Some(ND_SUCCESS));
    }

    #[test]
    fn rule_1_an_inline_failure_delivers_nothing() {
        let bench = Bench::new();
        let o = overlapped(Handle::NULL);
        let (started, finisher) = bench.file.begin(OverlappedPtr::to(&o)).unwrap();
        drop(finisher);
        assert_eq!(started.answer(Err(ND_DEVICE_BUSY)), ND_DEVICE_BUSY);
        assert_eq!(bench.packet(), None);
        assert_eq!(result_of(OverlappedPtr::to(&o), false, |_| {}), Some(ND_DEVICE_BUSY));
    }

    #[test]
    fn rule_5_a_failed_request_dequeues_as_a_failed_packet() {
        let bench = Bench::new();
        let o = overlapped(Handle::NULL);
        let (started, finisher) = bench.file.begin(OverlappedPtr::to(&o)).unwrap();
        assert_eq!(started.answer(Ok(())), ND_PENDING);
        assert_eq!(result_of(OverlappedPtr::to(&o), false, |_| {}), Some(ND_PENDING));
        finisher.finish(ND_CONNECTION_REFUSED);
        assert_eq!(bench.packet(), Some((0, &raw const o as usize, 7)));
        assert_eq!(transom_win32_get_last_error(), 1225);
    }

    #[test]
    fn rule_4_bit_0_of_the_event_suppresses_the_packet_and_signals_the_event() {
        let bench = Bench::new();
        let event = transom_win32_create_event(0, 1);
        let o = overlapped(Handle(event.0 | 1));
        let (started, finisher) = bench.file.begin(OverlappedPtr::to(&o)).unwrap();
        let reset = transom_win32_wait(1, InPtr::to(&event), 0, 0);
        assert_eq!(reset, WAIT_TIMEOUT, "beginning a request resets its event");
        finisher.finish(ND_SUCCESS);
        assert_eq!(started.answer(Ok(())), ND_PENDING);
        assert_eq!(bench.packet(), None);
        assert_eq!(transom_win32_wait(1, InPtr::to(&event), 0, 0), 0);
        assert_eq!(transom_win32_wait(1, InPtr::to(&event), 0, 0), WAIT_TIMEOUT);
        assert_eq!(transom_win32_close_handle(event), 1);
    }

    #[test]
    fn rule_6_waiting_ends_with_the_request_and_uses_up_the_event() {
        let bench = Bench::new();
        let event = transom_win32_create_event(0, 0);
        let o = overlapped(event);
        let (started, finisher) = bench.file.begin(OverlappedPtr::to(&o)).unwrap();
        assert_eq!(started.answer(Ok(())), ND_PENDING);
        transom_win32_set_event(event); // a stale signal does not end the wait
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
            finisher.finish(ND_CANCELED);
            assert_eq!(waiter.join().unwrap(), Some(ND_CANCELED));
        });
        assert_eq!(transom_win32_wait(1, InPtr::to(&event), 0, 0), WAIT_TIMEOUT);
        assert_eq!(transom_win32_close_handle(event), 1);
    }

    #[test]
    fn a_request_whose_maker_vanishes_is_canceled() {
        let bench = Bench::new();
        let o = overlapped(Handle::NULL);
        let (started, finisher) = bench.file.begin(OverlappedPtr::to(&o)).unwrap();
        assert_eq!(started.answer(Ok(())), ND_PENDING);
        drop(finisher);
        assert_eq!(bench.packet(), Some((0, &raw const o as usize, 7)));
        let (started, finisher) = bench.file.begin(OverlappedPtr::to(&o)).unwrap();
        drop(finisher); // dropped before the call has answered
        assert_eq!(bench.packet(), None);
        assert_eq!(started.answer(Ok(())), ND_PENDING);
        assert_eq!(bench.packet(), Some((0, &raw const o as usize, 7)));
    }

    #[test]
    fn a_foreign_event_is_refused_and_a_file_has_one_port() {
        let bench = Bench::new();
        let o = overlapped(Handle(0x1000));
        assert_eq!(bench.file.begin(OverlappedPtr::to(&o)).err(), Some(ND_INVALID_HANDLE));
        let (_, handle) = File::open().unwrap();
        assert_eq!(transom_win32_create_completion_port(handle, bench.port, 1, 0), bench.port);
        assert_eq!(transom_win32_create_completion_port(handle, bench.port, 1, 0), Handle::NULL);
        assert_eq!(transom_win32_get_last_error(), ERROR_INVALID_PARAMETER);
    }

    #[test]
    fn waiting_for_all_takes_all_at_once_or_none() {
        let events = [transom_win32_create_event(0, 1), transom_win32_create_event(0, 0)];
        assert_eq!(transom_win32_wait(2, InPtr::to(&events[0]), 1, 0), WAIT_TIMEOUT);
        assert_eq!(transom_win32_wait(2, InPtr::to(&events[0]), 0, 0), 0, "the first is left set");
        transom_win32_set_event(events[0]);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| transom_win32_wait(2, InPtr::to(&events[0]), 1, u32::MAX));
            transom_win32_set_event(events[1]);
            assert_eq!(waiter.join().unwrap(), 0);
        });
        assert_eq!(transom_win32_wait(2, InPtr::to(&events[0]), 0, 0), WAIT_TIMEOUT);
    }

    #[test]
    fn closing_a_port_ends_the_wait_on_it() {
        let port = transom_win32_create_completion_port(Handle(usize::MAX), Handle::NULL, 0, 0);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| take(port, 1, u32::MAX));
            while port.close() {}
            let end = waiter.join().unwrap();
            assert!(end == Err(ERROR_ABANDONED_WAIT_0) || end == Err(ERROR_INVALID_HANDLE));
        });
    }

    #[test]
    fn a_thread_is_signalled_with_its_exit_code_at_its_end() {
        extern "C" fn answer(argument: *mut c_void) -> u32 {
            argument as usize as u32 + 1
        }
        let (mut id, mut code) = (0, 0);
        let thread = transom_win32_create_thread(
            Some(answer),
            std::ptr::without_provenance_mut(41),
            0,
            OutPtr::to(&mut id),
        );
        assert_ne!(id, 0);
        assert_eq!(transom_win32_wait(1, InPtr::to(&thread), 0, u32::MAX), 0);
        assert_eq!(transom_win32_get_exit_code_thread(thread, OutPtr::to(&mut code)), 1);
        assert_eq!(code, 42);
    }

    #[test]
    fn a_call_that_fails_says_why() {
        let error_of = |failed: bool| {
            assert!(failed);
            let error = transom_win32_get_last_error();
            transom_win32_set_last_error(0);
            error
        };
        for (initial, maximum) in [(2, 1), (0, 0), (-1, 1), (0, -1)] {
            let made = transom_win32_create_semaphore(initial, maximum);
            assert_eq!(error_of(made == Handle::NULL), ERROR_INVALID_PARAMETER, "{initial}");
        }
        let made = transom_win32_create_thread(None, std::ptr::null_mut(), 0, OutPtr::at(0));
        assert_eq!(error_of(made == Handle::NULL), ERROR_INVALID_PARAMETER);
        let event = open(Object::Waitable(Waitable::new(WaitKind::AutoEvent(true))));
        let events = [event; MAXIMUM_WAIT_OBJECTS as usize + 1];
        let wait = |count| transom_win32_wait(count, InPtr::to(&events[0]), 0, 0);
        assert_eq!(wait(MAXIMUM_WAIT_OBJECTS), 0);
        for count in [0, MAXIMUM_WAIT_OBJECTS + 1] {
            assert_eq!(error_of(wait(count) == WAIT_FAILED), ERROR_INVALID_PARAMETER, "{count}");
        }
        assert_eq!(transom_win32_close_handle(event), 1);
        assert_eq!(error_of(wait(1) == WAIT_FAILED), ERROR_INVALID_HANDLE);
        assert_eq!(error_of(transom_win32_close_handle(event) == 0), ERROR_INVALID_HANDLE);
    }

    #[test]
    fn several_packets_are_counted() {
        let bench = Bench::new();
        for number in 1..=3 {
            let sent = (10 * number, number as usize, 100 * number as usize);
            let done =
                transom_win32_post_queued_completion_status(bench.port, sent.0, sent.1, sent.2);
            assert_eq!(done, 1);
        }
        let take = |count| {
            let none = Entry { key: 0, overlapped: 0, internal: 7, bytes: 0 };
            let (mut entries, mut removed) = ([none; 2], 77);
            let done = transom_win32_get_queued_completion_status_ex(
                bench.port,
                OutPtr::to(&mut entries[0]),
                count,
                OutPtr::to(&mut removed),
                0,
            );
            let fields = entries.map(|one| (one.bytes, one.key, one.overlapped, one.internal));
            (done, removed, fields)
        };
        let none = (0, 0, 0, 7);
        assert_eq!(take(2), (1, 2, [(10, 1, 100, 0), (20, 2, 200, 0)]));
        assert_eq!(take(2), (1, 1, [(30, 3, 300, 0), none]));
        assert_eq!(take(2), (0, 0, [none; 2]));
        assert_eq!(transom_win32_get_last_error(), WAIT_TIMEOUT);
        assert_eq!(take(0), (0, 77, [none; 2]));
        assert_eq!(transom_win32_get_last_error(), ERROR_INVALID_PARAMETER);
    }
}
