//! The C entries' reading and storing: lengths, errors, flags, and what goes to the upcalls.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use transom_winsock_direct::abi::*;
use transom_winsock_direct::extension::{EXTENSIONS, Extension};
use transom_winsock_direct::tables::*;
use transom_winsock_direct::{Error, WSPStartupEx};

const LIMIT: Duration = Duration::from_secs(120);

/// The arguments of the upcalls.
#[derive(Default)]
struct Told {
    handles: usize,
    no_more_handles: bool,
    completed: Vec<(usize, u32, u32)>,
    set: Vec<usize>,
}

static TOLD: Mutex<Told> =
    Mutex::new(Told { handles: 0, no_more_handles: false, completed: Vec::new(), set: Vec::new() });
static CHANGED: Condvar = Condvar::new();

fn told<T>(f: impl FnOnce(&mut Told) -> T) -> T {
    let found = f(&mut TOLD.lock().unwrap());
    CHANGED.notify_all();
    found
}

fn until<T>(what: &str, f: impl Fn(&Told) -> Option<T>) -> T {
    let mut told = TOLD.lock().unwrap();
    loop {
        if let Some(found) = f(&told) {
            return found;
        }
        let (next, late) = CHANGED.wait_timeout(told, LIMIT).unwrap();
        assert!(!late.timed_out(), "waited for {what}");
        told = next;
    }
}

unsafe extern "C" fn create(_: u32, _: usize, errno: *mut i32) -> usize {
    told(|told| {
        if told.no_more_handles {
            unsafe { errno.write(Error::WSAEMFILE.0) };
            return INVALID_SOCKET;
        }
        told.handles += 1;
        told.handles
    })
}
unsafe extern "C" fn close(_: usize, _: *mut i32) -> i32 {
    0
}
unsafe extern "C" fn set(event: *mut c_void, _: *mut i32) -> i32 {
    told(|told| told.set.push(event.addr()));
    1
}
unsafe extern "C" fn reset(_: *mut c_void, _: *mut i32) -> i32 {
    1
}
unsafe extern "C" fn complete(_: usize, o: *mut Overlapped, e: u32, n: u32, _: *mut i32) -> i32 {
    told(|told| told.completed.push((o.addr(), e, n)));
    0
}

/// The provider of this process, for one test at a time.
struct Started {
    table: ProcTable,
    _turn: MutexGuard<'static, ()>,
}

fn start() -> Started {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let upcalls = UpcallTableEx {
        close_socket_handle: Some(close),
        create_socket_handle: Some(create),
        reset_event: Some(reset),
        set_event: Some(set),
        complete_overlapped_request: Some(complete),
        ..UpcallTableEx::NONE
    };
    let mut table = std::mem::MaybeUninit::<ProcTable>::uninit();
    let done = unsafe { WSPStartupEx(0x0202, null_mut(), null(), &upcalls, table.as_mut_ptr()) };
    assert_eq!(done, 0);
    Started { table: unsafe { table.assume_init() }, _turn: turn }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = unsafe { self.table.cleanup.unwrap()(&mut 0) };
    }
}

fn address(port: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&2_u16.to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&[127, 0, 0, 1]);
    bytes
}

/// 0, or the error that was stored.
fn judged(returned: i32, errno: i32) -> Result<(), Error> {
    match returned {
        0 => Ok(()),
        SOCKET_ERROR => Err(Error(errno)),
        other => panic!("{other} is neither 0 nor SOCKET_ERROR"),
    }
}

impl Started {
    fn socket(&self) -> Result<usize, Error> {
        let mut errno = 0;
        let s = unsafe { self.table.socket.unwrap()(2, 1, 6, null(), 0, 1, &mut errno) };
        if s == INVALID_SOCKET { Err(Error(errno)) } else { Ok(s) }
    }
    fn function(&self, wanted: Extension, room: u32) -> Result<usize, Error> {
        let (guid, _) = EXTENSIONS.into_iter().find(|(_, e)| *e == wanted).unwrap();
        let (mut found, mut bytes, mut errno) = (0_usize, 0, 0);
        let (input, out) = ((&raw const guid).cast(), (&raw mut found).cast());
        let (code, none, e) = (SIO_GET_EXTENSION_FUNCTION_POINTER, null_mut(), &raw mut errno);
        let ioctl = self.table.ioctl.unwrap();
        let done = unsafe {
            ioctl(0, code, input, 16, out, room, &mut bytes, null_mut(), null(), none, e)
        };
        judged(done, errno).map(|()| found)
    }
    /// A connection: the connecting end, the accepting end.
    fn pair(&self, name_room: i32) -> (usize, usize) {
        let held = transom_testing::ports::Held::new().unwrap();
        let at = address(held.address().port());
        let (listener, client) = (self.socket().unwrap(), self.socket().unwrap());
        let event = listener as *mut c_void;
        let t = &self.table;
        unsafe {
            assert_eq!(t.bind.unwrap()(listener, at.as_ptr().cast(), 16, &mut 0), 0);
            assert_eq!(t.event_select.unwrap()(listener, event, FD_ACCEPT, &mut 0), 0);
            assert_eq!(t.listen.unwrap()(listener, 1, &mut 0), 0);
        }
        let table = self.table;
        std::thread::scope(|scope| {
            let connecting = scope.spawn(move || unsafe {
                let (name, none) = (at.as_ptr().cast(), null::<c_void>());
                let c = table.connect.unwrap();
                c(client, name, 16, null(), null_mut(), none, none, &mut 0)
            });
            until("a request", |told| told.set.contains(&listener).then_some(()));
            let (mut name, accept) = ([0xee_u8; 32], t.accept.unwrap());
            let accept = |mut length, name: &mut [u8; 32]| {
                let (at, mut errno) = (name.as_mut_ptr().cast(), 0);
                let s = unsafe { accept(listener, at, &mut length, None, 0, &mut errno) };
                (s, length, errno)
            };
            // Too little room: nothing is stored, and the request waits on.
            for room in [8, 15] {
                let refused = accept(room, &mut name);
                assert_eq!((refused.0, Error(refused.2)), (INVALID_SOCKET, Error::WSAEFAULT));
                assert_eq!(name, [0xee; 32], "{room}");
            }
            let (s, length, _) = accept(name_room, &mut name);
            assert_ne!(s, INVALID_SOCKET);
            assert_eq!(length, 16, "of the peer's address");
            assert!(name[16..].iter().all(|byte| *byte == 0xee), "no byte beyond the address");
            assert_eq!(name[..2], 2_u16.to_ne_bytes());
            assert_eq!(connecting.join().unwrap(), 0);
            (client, s)
        })
    }
    fn register(&self, s: usize, bytes: &mut [u8]) -> *mut c_void {
        let f = self.function(Extension::RegisterMemory, 8).unwrap();
        let register: RegisterMemory = unsafe { std::mem::transmute(f) };
        let (at, length) = (bytes.as_mut_ptr().cast(), bytes.len() as u32);
        let handle = unsafe { register(s, at, length, mem::READWRITE, &mut 0) };
        assert!(!handle.is_null());
        handle
    }
}

/// A structure that was used for something else before.
fn overlapped() -> *mut Overlapped {
    let event = null_mut();
    let used = Overlapped { internal: 7, internal_high: 7, offset: 7, offset_high: 7, event };
    Box::into_raw(Box::new(used))
}

/// WSD 5.3: the exact size is enough; WSD O-4: an upcall carries the error, or the bytes; flags
/// reach Recv.
#[test]
fn o04_completions_and_flags_through_the_entries() {
    let provider = start();
    let (a, b) = provider.pair(28);
    let mut memory = vec![7_u8; 8192].leak().chunks_mut(4096);
    let (ours, theirs) = (memory.next().unwrap(), memory.next().unwrap());
    provider.register(a, ours);
    provider.register(b, theirs);
    let expose: RegisterRdmaMemory = unsafe {
        std::mem::transmute(provider.function(Extension::RegisterRdmaMemory, 8).unwrap())
    };
    let (mut descriptor, mut length) = ([0_u8; 16], 16);
    let (at, out) = (theirs.as_mut_ptr().cast(), descriptor.as_mut_ptr().cast());
    assert_eq!(unsafe { expose(b, at, 4096, 3, out, &mut length, &mut 0) }, 0);
    let t = &provider.table;
    let mut buffer = WsaBuf { len: 64, buf: theirs.as_mut_ptr().cast() };
    let mut receive = |flags: u32| {
        let (o, mut flags, mut errno) = (overlapped(), flags, 0);
        let (recv, none) = (t.recv.unwrap(), null_mut());
        let f = &raw mut flags;
        let done = unsafe { recv(b, &mut buffer, 1, null_mut(), f, o, null(), none, &mut errno) };
        (judged(done, errno), o)
    };
    assert_eq!(receive(1).0, Err(Error::WSAEINVAL));
    let (first, got) = receive(0);
    let (second, longer) = receive(0);
    assert_eq!([first, second], [Err(Error::WSA_IO_PENDING); 2]);
    let mut message = WsaBuf { len: 9, buf: ours.as_mut_ptr().cast() };
    let send = t.send.unwrap();
    let sent = overlapped();
    unsafe { send(a, &mut message, 1, null_mut(), 0, sent, null(), null_mut(), &mut 0) };
    let ended = |o: *mut Overlapped| {
        until("a completion", |told| {
            told.completed.iter().find(|(at, ..)| *at == o.addr()).copied()
        })
    };
    assert_eq!((ended(sent).1, ended(sent).2), (0, 9));
    assert_eq!((ended(got).1, ended(got).2), (0, 9));
    let (result, mut bytes, mut flags) = (t.get_overlapped_result.unwrap(), 7, 7);
    let asked = unsafe { result(b, got, &mut bytes, 0, &mut flags, &mut 0) };
    assert_eq!((asked, bytes, flags), (1, 9, 0), "TRUE, and nothing of what was there before");
    // As many buffers as there may be, and one more.
    let (third, lost) = receive(0);
    assert_eq!(third, Err(Error::WSA_IO_PENDING));
    for count in [9, 8] {
        let mut parts = vec![WsaBuf { len: 2, ..message }; count];
        let (at, o, count) = (parts.as_mut_ptr(), overlapped(), count as u32);
        let mut errno = 0;
        let done = unsafe { send(a, at, count, null_mut(), 0, o, null(), null_mut(), &mut errno) };
        if count == 9 {
            assert_eq!(judged(done, errno), Err(Error::WSAEINVAL));
        } else {
            assert_eq!(judged(done, errno), Err(Error::WSA_IO_PENDING));
            assert_eq!((ended(o).1, ended(o).2), (0, 16));
            assert_eq!((ended(longer).1, ended(longer).2), (0, 16));
        }
    }
    assert_eq!(unsafe { t.close_socket.unwrap()(b, &mut 0) }, 0);
    assert_eq!((Error(ended(lost).1 as i32), ended(lost).2), (Error::WSA_OPERATION_ABORTED, 0));
}

/// WSD L-3, 8.7, 13: what the entries store where the switch points, and how much of it.
#[test]
fn the_entries_store_no_more_than_there_is_room_for() {
    let provider = start();
    let t = &provider.table;
    let (_, accepted) = provider.pair(16);
    assert_eq!(provider.function(Extension::RdmaWrite, 7), Err(Error::WSAEFAULT));
    // An option has four bytes.
    let (name, get) = (SO_RDMA_THRESHOLD_SIZE, t.get_sock_opt.unwrap());
    for (room, right) in [(3, false), (4, true), (8, true), (-1, false)] {
        let (mut value, mut length, mut errno) = ([0xee_u8; 8], room, 0);
        let at = value.as_mut_ptr().cast();
        let done = unsafe { get(accepted, SOL_SOCKET, name, at, &mut length, &mut errno) };
        let expected = if right { Ok(()) } else { Err(Error::WSAEFAULT) };
        assert_eq!(judged(done, errno), expected, "{room}");
        assert_eq!(value[..4] == 4096_u32.to_ne_bytes(), right);
        assert_eq!((value[4..] == [0xee; 4], length), (true, if right { 4 } else { room }));
    }
    // The list of addresses: how much it takes, and then all of it.
    let (ioctl, code, none) = (t.ioctl.unwrap(), SIO_ADDRESS_LIST_QUERY, null_mut());
    let list = |out: &mut [u64]| {
        let (mut bytes, mut errno) = (0, 0);
        let (room, to) = (size_of_val(out) as u32, out.as_mut_ptr().cast());
        let (b, e) = (&raw mut bytes, &raw mut errno);
        let done = unsafe { ioctl(0, code, null(), 0, to, room, b, null_mut(), null(), none, e) };
        (judged(done, errno), bytes)
    };
    let (refused, needed) = list(&mut []);
    assert_eq!(refused, Err(Error::WSAEFAULT));
    let mut out = vec![0_u64; needed as usize / 8];
    assert_eq!(list(&mut out), (if needed % 8 == 0 { Ok(()) } else { refused }, needed));
    out.push(0);
    assert_eq!(list(&mut out), (Ok(()), needed));
    let head: *const SocketAddressList = out.as_ptr().cast();
    let own = address(0);
    let found = unsafe {
        let first = (&raw const (*head).first).cast::<SocketAddress>();
        let count = usize::try_from((*head).count).unwrap();
        (0..count).map(|i| first.add(i).read()).any(|one| {
            one.length == 16 && std::slice::from_raw_parts(one.address.cast::<u8>(), 16) == own
        })
    };
    assert!(found, "127.0.0.1 is among them");
    // WSD D-1, D-2: the token of a duplication, which makes a socket once.
    let mut info = std::mem::MaybeUninit::<ProtocolInfo>::zeroed();
    let duplicate = t.duplicate_socket.unwrap();
    let process = std::process::id();
    assert_eq!(unsafe { duplicate(accepted, process, info.as_mut_ptr(), &mut 0) }, 0);
    let info = unsafe { info.assume_init() };
    assert_ne!(info.provider_reserved, 0);
    let mut errno = 0;
    let mut take = || unsafe { t.socket.unwrap()(2, 1, 6, &info, 0, 1, &mut errno) };
    let taken = take();
    assert!(taken != INVALID_SOCKET && taken != accepted, "D-2");
    assert_eq!((take(), Error(errno)), (INVALID_SOCKET, Error::WSAEINVAL));
}

/// WSD C-3: the error of a connect that ends later; WSD S-3: no handle, no socket.
#[test]
fn c03_errors_that_come_from_elsewhere() {
    let provider = start();
    let t = &provider.table;
    let held = transom_testing::ports::Held::new().unwrap();
    let at = address(held.address().port());
    let s = provider.socket().unwrap();
    let event = std::ptr::without_provenance_mut(s);
    assert_eq!(unsafe { t.event_select.unwrap()(s, event, FD_CONNECT, &mut 0) }, 0);
    let (connect, mut errno) = (t.connect.unwrap(), 0);
    let (name, none) = (at.as_ptr().cast(), null::<c_void>());
    let done = unsafe { connect(s, name, 16, null(), null_mut(), none, none, &mut errno) };
    if judged(done, errno) == Err(Error::WSAEWOULDBLOCK) {
        until("the connect's end", |told| told.set.contains(&s).then_some(()));
        let mut events = NetworkEvents::default();
        let of = t.enum_network_events.unwrap();
        assert_eq!(unsafe { of(s, null_mut(), &mut events, &mut errno) }, 0);
        assert_eq!(events.events, FD_CONNECT);
        let error = Error(events.errors[FD_CONNECT_BIT]);
        assert_eq!(error, Error::WSAETIMEDOUT);
        assert_eq!(events.errors.iter().filter(|error| **error != 0).count(), 1);
    } else {
        assert_eq!(judged(done, errno), Err(Error::WSAETIMEDOUT));
    }
    told(|told| told.no_more_handles = true);
    assert_eq!(provider.socket(), Err(Error::WSAEMFILE));
    told(|told| told.no_more_handles = false);
    assert!(provider.socket().is_ok());
}
