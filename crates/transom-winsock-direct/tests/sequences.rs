//! Random sequences of calls through the tables, as a switch in C makes them: valid ones, and NULL,
//! lengths and flags out of nowhere, handles of other sockets, sockets that were closed. Whatever
//! is called when: nothing crashes, an error is one that the interface knows, an operation that has
//! begun ends exactly once (with an upcall, or to be polled, as it asked for), and nothing is left
//! at the end.
//!
//! `TRANSOM_SEED=s TRANSOM_SEQUENCES=n`: n sequences from seed s on; TRANSOM_TRACE prints what was
//! answered. A failure names its seed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use std::collections::{BTreeSet, HashMap};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use transom_testing::Random;
use transom_winsock_direct::abi::*;
use transom_winsock_direct::extension::{EXTENSIONS, Extension};
use transom_winsock_direct::tables::*;
use transom_winsock_direct::{BUFFERS_LIMIT, Error, WSPStartupEx};

const SEQUENCES: u64 = 300;
const STEPS: usize = 120;
const LIMIT: Duration = Duration::from_secs(120);
const PENDING: usize = 0x103;

// ---- the switch -----------------------------------------------------------------------------------

/// The news from the upcalls.
#[derive(Default)]
struct Told {
    next: usize,
    /// Handles that were made and not given back.
    handles: BTreeSet<usize>,
    /// How many upcalls each operation's end has made.
    ended: HashMap<usize, u32>,
    wrong: Vec<String>,
}

static TOLD: Mutex<Option<Told>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

fn told<T>(f: impl FnOnce(&mut Told) -> T) -> T {
    let found = f(TOLD.lock().unwrap().get_or_insert_default());
    CHANGED.notify_all();
    found
}

fn wait(what: &str, seed: u64, mut so: impl FnMut(&Told) -> bool) {
    let mut guard: MutexGuard<'_, Option<Told>> = TOLD.lock().unwrap();
    while !so(guard.get_or_insert_default()) {
        let (next, timeout) = CHANGED.wait_timeout(guard, LIMIT).unwrap();
        assert!(!timeout.timed_out(), "seed {seed}: {what}");
        guard = next;
    }
}

unsafe extern "C" fn create(_: u32, _: usize, _: *mut i32) -> usize {
    told(|told| {
        told.next += 1;
        told.handles.insert(told.next);
        told.next
    })
}

unsafe extern "C" fn close(handle: usize, _: *mut i32) -> i32 {
    told(|told| {
        if !told.handles.remove(&handle) {
            told.wrong.push(format!("handle {handle} was given back and is not there"));
        }
    });
    0
}

unsafe extern "C" fn event(_: *mut c_void, _: *mut i32) -> i32 {
    1
}

unsafe extern "C" fn complete(
    _: usize,
    overlapped: *mut Overlapped,
    _: u32,
    _: u32,
    _: *mut i32,
) -> i32 {
    told(|told| *told.ended.entry(overlapped.expose_provenance()).or_default() += 1);
    0
}

unsafe extern "C" fn condition(
    _: *mut WsaBuf,
    _: *mut WsaBuf,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut WsaBuf,
    _: *mut WsaBuf,
    _: *mut u32,
    answer: usize,
) -> i32 {
    answer as i32
}

struct Provider {
    table: ProcTable,
    register: RegisterMemory,
    deregister: DeregisterMemory,
    expose: RegisterRdmaMemory,
    conceal: DeregisterRdmaMemory,
    write: Rdma,
    read: Rdma,
    goes_away: CacheCallback,
}

impl Provider {
    fn start() -> Provider {
        let upcalls = UpcallTableEx {
            close_socket_handle: Some(close),
            create_socket_handle: Some(create),
            reset_event: Some(event),
            set_event: Some(event),
            complete_overlapped_request: Some(complete),
            ..UpcallTableEx::NONE
        };
        let mut table = std::mem::MaybeUninit::<ProcTable>::uninit();
        let at = table.as_mut_ptr();
        unsafe {
            assert_eq!(
                Error(WSPStartupEx(0x0202, null_mut(), null(), null(), at)),
                Error::WSAEFAULT
            );
            let out = null_mut();
            assert_eq!(
                Error(WSPStartupEx(0x0202, null_mut(), null(), &upcalls, out)),
                Error::WSAEFAULT
            );
            assert_eq!(WSPStartupEx(0x0202, null_mut(), null(), &upcalls, at), 0);
            let table = table.assume_init();
            let function = |wanted| {
                let (guid, _) = EXTENSIONS.into_iter().find(|(_, e)| *e == wanted).unwrap();
                let (mut found, mut bytes) = (0_usize, 0);
                let (code, input) = (SIO_GET_EXTENSION_FUNCTION_POINTER, (&raw const guid).cast());
                let out = (&raw mut found).cast();
                let ioctl = table.ioctl.unwrap();
                let (b, n) = (&mut bytes, null_mut());
                assert_eq!(
                    ioctl(7, code, input, 16, out, 8, b, null_mut(), null(), n, null_mut()),
                    0
                );
                found
            };
            Provider {
                table,
                register: std::mem::transmute::<usize, RegisterMemory>(function(
                    Extension::RegisterMemory,
                )),
                deregister: std::mem::transmute::<usize, DeregisterMemory>(function(
                    Extension::DeregisterMemory,
                )),
                expose: std::mem::transmute::<usize, RegisterRdmaMemory>(function(
                    Extension::RegisterRdmaMemory,
                )),
                conceal: std::mem::transmute::<usize, DeregisterRdmaMemory>(function(
                    Extension::DeregisterRdmaMemory,
                )),
                write: std::mem::transmute::<usize, Rdma>(function(Extension::RdmaWrite)),
                read: std::mem::transmute::<usize, Rdma>(function(Extension::RdmaRead)),
                goes_away: std::mem::transmute::<usize, CacheCallback>(function(
                    Extension::MemoryRegistrationCacheCallback,
                )),
            }
        }
    }
}

// ---- one sequence ---------------------------------------------------------------------------------

/// A number that is mostly small and sometimes anything.
fn some_length(random: &mut Random, usual: usize) -> u32 {
    if random.one_in(24) {
        (random.next() >> random.below(64)) as u32
    } else {
        random.below(usual) as u32
    }
}

const ARENA: usize = 1 << 16;

/// Page-aligned memory that stays: registrations may name it at any time.
fn arena() -> *mut u8 {
    let layout = std::alloc::Layout::from_size_align(ARENA, 4096).unwrap();
    let at = unsafe { std::alloc::alloc_zeroed(layout) };
    at.expose_provenance();
    at
}

struct Sequence<'a> {
    seed: u64,
    random: Random,
    provider: &'a Provider,
    arena: *mut u8,
    /// Open sockets, and those that were closed.
    sockets: Vec<usize>,
    closed: Vec<usize>,
    /// Two that had a connection to begin with.
    pair: Vec<usize>,
    ports: Vec<u16>,
    handles: Vec<*mut c_void>,
    descriptors: Vec<[u8; 16]>,
    /// Operations that have begun: where, and whether they end with an upcall.
    begun: Vec<(*mut Overlapped, bool)>,
    trace: Vec<String>,
}

fn address(port: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&2_u16.to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&[127, 0, 0, 1]);
    bytes
}

impl Sequence<'_> {
    /// A call and its answer: 0, or an error that the interface knows. `WSAENETDOWN` would be a
    /// panic that was caught, or a provider that is down.
    fn said(&mut self, what: &str, s: usize, ok: bool, errno: i32) -> Result<(), Error> {
        let outcome = if ok { Ok(()) } else { Err(Error(errno)) };
        self.trace.push(format!("{what}({s:#x}) {outcome:?}"));
        if let Err(error) = outcome {
            let known = error.name().is_some() && error != Error::WSAENETDOWN;
            assert!(known, "seed {}: {what} says {error}: {:#?}", self.seed, self.trace);
        }
        // WSD D-3, X-6: a number that was closed names nothing any more.
        if self.closed.contains(&s) {
            let gone = outcome == Err(Error::WSAENOTSOCK);
            let sooner = [Error::WSAEFAULT, Error::WSAEINVAL, Error::WSA_INVALID_HANDLE];
            let judged = outcome.err().is_some_and(|error| sooner.contains(&error));
            assert!(gone || judged, "seed {}: closed, {what} {outcome:?}", self.seed);
        }
        outcome
    }

    fn socket(&mut self) -> usize {
        match self.random.below(20) {
            0 if !self.closed.is_empty() => self.closed[self.random.below(self.closed.len())],
            1 => self.random.next() as usize,
            _ if self.sockets.is_empty() => 0x5a0,
            2..=14 if !self.pair.is_empty() => self.pair[self.random.below(2)],
            _ => self.sockets[self.random.below(self.sockets.len())],
        }
    }

    fn make(&mut self) {
        let r = &mut self.random;
        let (family, kind, protocol) = if r.one_in(12) {
            (r.below(30) as i32, r.below(5) as i32, r.below(20) as i32)
        } else {
            (2, 1, [0, 6][r.below(2)])
        };
        let flags = if r.one_in(12) { r.next() as u32 } else { 1 };
        let mut errno = 0;
        let socket = self.provider.table.socket.unwrap();
        let s = unsafe { socket(family, kind, protocol, null(), 0, flags, &mut errno) };
        if self.said("socket", s, s != INVALID_SOCKET, errno).is_ok() {
            self.sockets.push(s);
            // Every connect says later how it ended, as this thread is also the one that accepts.
            let select = self.provider.table.event_select.unwrap();
            let mask = FD_CONNECT | FD_ACCEPT;
            assert_eq!(unsafe { select(s, null_mut(), mask, &mut errno) }, 0);
        }
    }

    fn set_up(&mut self) {
        let (s, mut errno) = (self.socket(), 0);
        let t = &self.provider.table;
        let r = &mut self.random;
        let port = if r.one_in(4) || self.ports.is_empty() {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            free.local_addr().unwrap().port()
        } else {
            self.ports[r.below(self.ports.len())]
        };
        let mut name = address(port);
        if r.one_in(16) {
            name[r.below(2)] ^= 1 << r.below(8);
        }
        let at: *const c_void = if r.one_in(16) { null() } else { name.as_ptr().cast() };
        // Never more than there is.
        let length = if r.one_in(12) { r.below(18) as i32 - 2 } else { 16 };
        let length = length.min(16);
        let e = &mut errno;
        match r.below(8) {
            0 | 1 => {
                let done = unsafe { t.bind.unwrap()(s, at, length, e) } == 0;
                if self.said("bind", s, done, errno).is_ok() {
                    self.ports.push(port);
                }
            }
            2 => {
                let backlog = [0, 1, 4, -1, i32::MAX, i32::MIN][r.below(6)];
                let done = unsafe { t.listen.unwrap()(s, backlog, e) } == 0;
                let _ = self.said("listen", s, done, errno);
            }
            3..=5 => {
                let data = WsaBuf { len: 1, buf: name.as_ptr().cast_mut().cast() };
                let caller = if r.one_in(20) { &raw const data } else { null() };
                let connect = t.connect.unwrap();
                let none = null();
                let done =
                    unsafe { connect(s, at, length, caller, null_mut(), none, none, e) } == 0;
                let _ = self.said("connect", s, done, errno);
            }
            _ => {
                let (mut peer, mut room) = ([0_u8; 28], [28, 16, 3, -5][r.below(4)]);
                let answer = [CF_ACCEPT, CF_ACCEPT, CF_ACCEPT, CF_REJECT, CF_DEFER, 77];
                let answer = answer[r.below(6)] as usize;
                let ask: Condition = if r.one_in(3) { None } else { Some(condition) };
                let (at, room): (*mut c_void, *mut i32) = match r.below(8) {
                    0 => (null_mut(), null_mut()),
                    1 => (null_mut(), &mut room),
                    2 => (peer.as_mut_ptr().cast(), null_mut()),
                    _ => (peer.as_mut_ptr().cast(), &mut room),
                };
                let made = unsafe { t.accept.unwrap()(s, at, room, ask, answer, e) };
                if self.said("accept", s, made != INVALID_SOCKET, errno).is_ok() {
                    self.sockets.push(made);
                }
            }
        }
    }

    fn memory(&mut self) {
        let (s, mut errno) = (self.socket(), 0);
        let r = &mut self.random;
        // Ranges of the arena, and ranges that are not mapped.
        let (offset, mut length) = (r.below(ARENA), some_length(r, ARENA));
        if offset / 512 * 512 + length as usize > ARENA {
            // Memory behind it is not the switch's to register, but so much is not mapped.
            length |= 1 << 31;
        }
        let from: *mut c_void = match r.below(24) {
            0 => null_mut(),
            1 => std::ptr::without_provenance_mut(r.next() as usize),
            _ => self.arena.wrapping_add(offset / 512 * 512).cast(),
        };
        let flags = if r.one_in(16) { r.next() as u32 } else { r.below(4) as u32 };
        let e = if r.one_in(40) { null_mut() } else { &raw mut errno };
        match r.below(8) {
            // NULL for the error: then only that it fails is known.
            0..=2 => {
                let handle =
                    unsafe { (self.provider.register)(s, from, length, flags, &mut errno) };
                if self.said("register", s, !handle.is_null(), errno).is_ok() {
                    self.handles.push(handle);
                }
            }
            3 | 4 => {
                let (mut room, mut out) = ([16, 64, 15, 0][r.below(4)], [0_u8; 64]);
                let to = if r.one_in(12) { null_mut() } else { out.as_mut_ptr().cast() };
                let size = if r.one_in(20) { null_mut() } else { &raw mut room };
                let expose = self.provider.expose;
                let done = unsafe { expose(s, from, length, flags, to, size, &mut errno) } == 0;
                if self.said("expose", s, done, errno).is_ok() {
                    assert_eq!(room, 16);
                    self.descriptors.push(out[..16].try_into().unwrap());
                }
            }
            5 => {
                let handle = self.handle();
                let done = unsafe { (self.provider.deregister)(s, handle, e) } == 0;
                if !e.is_null() {
                    let _ = self.said("deregister", s, done, errno);
                }
            }
            6 => {
                let (mut descriptor, length) = self.descriptor();
                let at = descriptor.as_mut_ptr().cast();
                let done = unsafe { (self.provider.conceal)(s, at, length, &mut errno) } == 0;
                let _ = self.said("conceal", s, done, errno);
            }
            _ => {
                let size = some_length(&mut self.random, 9000) as usize;
                let done = unsafe { (self.provider.goes_away)(from, size, &mut errno) } == 0;
                let _ = self.said("memory goes away", 0, done, errno);
            }
        }
    }

    fn handle(&mut self) -> *mut c_void {
        let r = &mut self.random;
        match r.below(16) {
            0 => null_mut(),
            1 => std::ptr::without_provenance_mut(r.next() as usize),
            _ if self.handles.is_empty() => null_mut(),
            _ => self.handles[r.below(self.handles.len())],
        }
    }

    /// A descriptor that was handed out, spoilt at times; never claimed to be longer than it is.
    fn descriptor(&mut self) -> ([u8; 16], u32) {
        let r = &mut self.random;
        let mut bytes = [0; 16];
        if !self.descriptors.is_empty() {
            bytes = self.descriptors[r.below(self.descriptors.len())];
        }
        if r.one_in(8) {
            bytes[r.below(16)] ^= 1 << r.below(8);
        }
        (bytes, if r.one_in(16) { r.below(16) as u32 } else { 16 })
    }

    fn transfer(&mut self) {
        let (s, mut errno) = (self.socket(), 0);
        let r = &mut self.random;
        let count = if r.one_in(16) { r.below(12) } else { 1 + r.below(3) };
        let (mut plain, mut with) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let at = self.random.below(ARENA / 512) * 512;
            let len = some_length(&mut self.random, 3000);
            let buf = self.arena.wrapping_add(at).cast();
            plain.push(WsaBuf { len, buf });
            // The pair's own come first.
            let own = self.pair.iter().position(|of| *of == s).filter(|_| !self.random.one_in(4));
            let own = own.and_then(|at| self.handles.get(at)).copied();
            with.push(WsaBufEx { len, buf, handle: own.unwrap_or_else(|| self.handle()) });
        }
        // More than there are is said only where it is too many to be looked at.
        let r = &mut self.random;
        let count =
            if r.one_in(32) { BUFFERS_LIMIT as u32 + 1 + r.below(99) as u32 } else { count as u32 };
        let polled = r.one_in(3);
        let event = std::ptr::without_provenance_mut(usize::from(polled));
        let fresh = Overlapped { internal: 0, internal_high: 0, offset: 0, offset_high: 0, event };
        let overlapped = Box::into_raw(Box::new(fresh)); // stays: it may be looked at late
        overlapped.expose_provenance();
        let o = if r.one_in(24) { null_mut() } else { overlapped };
        let routine = if r.one_in(32) { overlapped.cast_const().cast() } else { null() };
        let mut flags = if r.one_in(16) { r.next() as u32 } else { 0 };
        let (mut moved, none, e) = (0, null_mut(), &raw mut errno);
        let moved = if r.one_in(8) { null_mut() } else { &raw mut moved };
        let (which, nothing) = (r.below(6), r.one_in(32));
        let offset = some_length(r, 6000);
        let b = if nothing { null_mut() } else { plain.as_mut_ptr() };
        let x = if nothing { null_mut() } else { with.as_mut_ptr() };
        let t = &self.provider.table;
        let (what, returned) = match which {
            0 | 1 => {
                let send = t.send.unwrap();
                ("send", unsafe { send(s, b, count, moved, flags, o, routine, none, e) })
            }
            2 | 3 => {
                let recv = t.recv.unwrap();
                let f = if nothing { null_mut() } else { &raw mut flags };
                ("recv", unsafe { recv(s, b, count, moved, f, o, routine, none, e) })
            }
            _ => {
                let (mut descriptor, length) = self.descriptor();
                let d = descriptor.as_mut_ptr().cast();
                let (name, call) =
                    [("read", self.provider.read), ("write", self.provider.write)][which % 2];
                let returned = unsafe {
                    call(s, x, count, d, length, offset, moved, flags, o, routine, none, e)
                };
                (name, returned)
            }
        };
        // WSD O-2: it never ends inside the call.
        assert_eq!(returned, SOCKET_ERROR, "seed {}: {what}", self.seed);
        if self.said(what, s, false, errno) == Err(Error::WSA_IO_PENDING) {
            assert!(!o.is_null() && routine.is_null() && !nothing);
            self.begun.push((overlapped, !polled));
        }
    }

    fn ask(&mut self) {
        let (s, mut errno) = (self.socket(), 0);
        let t = &self.provider.table;
        let r = &mut self.random;
        let mut four = [0_u8; 8];
        match r.below(8) {
            0..=2 if !self.begun.is_empty() => {
                let (o, _) = self.begun[r.below(self.begun.len())];
                let (mut bytes, mut flags) = (0, 0);
                let b = if r.one_in(6) { null_mut() } else { &raw mut bytes };
                let f = if r.one_in(6) { null_mut() } else { &raw mut flags };
                let result = t.get_overlapped_result.unwrap();
                let done = unsafe { result(s, o, b, 0, f, &mut errno) } != 0;
                let _ = self.said("result", s, done, errno);
            }
            3 => {
                let mut events = NetworkEvents::default();
                let at = if r.one_in(6) { null_mut() } else { &raw mut events };
                let of = t.enum_network_events.unwrap();
                let done = unsafe { of(s, null_mut(), at, &mut errno) } == 0;
                let _ = self.said("events", s, done, errno);
            }
            4 => {
                let names = [SO_DEBUG, SO_MAX_MSG_SIZE, SO_RDMA_THRESHOLD_SIZE, 4242];
                let (level, name) = ([SOL_SOCKET, 6][r.below(2)], names[r.below(4)]);
                let mut length = [4, 8, 3, 0, -4][r.below(5)];
                let at = if r.one_in(8) { null_mut() } else { four.as_mut_ptr().cast() };
                let size = if r.one_in(8) { null_mut() } else { &raw mut length };
                let done = unsafe { t.get_sock_opt.unwrap()(s, level, name, at, size, &mut errno) };
                let _ = self.said("option", s, done == 0, errno);
                let done =
                    unsafe { t.set_sock_opt.unwrap()(s, level, name, null(), 0, &mut errno) };
                let _ = self.said("set option", s, done == 0, errno);
            }
            5 => {
                let codes = [SIO_GET_EXTENSION_FUNCTION_POINTER, SIO_ADDRESS_LIST_QUERY, 7];
                let (code, mut guid) = (codes[r.below(3)], [0_u8; 16]);
                guid.fill(r.next() as u8);
                let input: *const c_void = if r.one_in(4) { null() } else { guid.as_ptr().cast() };
                let (mut out, mut bytes) = ([0_u8; 4096], 0);
                let room = r.below(out.len()) as u32;
                let to = if r.one_in(6) { null_mut() } else { out.as_mut_ptr().cast() };
                let b = if r.one_in(6) { null_mut() } else { &raw mut bytes };
                let size = r.below(17) as u32;
                let (o, n, e) = (null_mut(), null_mut(), &mut errno);
                let ioctl = t.ioctl.unwrap();
                let done =
                    unsafe { ioctl(s, code, input, size, to, room, b, o, null(), n, e) } == 0;
                let _ = self.said("ioctl", 0, done, errno);
            }
            6 if r.one_in(16) => {
                let mut info = std::mem::MaybeUninit::<ProtocolInfo>::zeroed();
                let to = if r.one_in(3) { null_mut() } else { info.as_mut_ptr() };
                let duplicate = t.duplicate_socket.unwrap();
                let done = unsafe { duplicate(s, r.next() as u32, to, &mut errno) } == 0;
                let _ = self.said("duplicate", s, done, errno);
            }
            _ => {
                // Masks without FD_CONNECT would make a connect wait for this thread.
                let mask = FD_CONNECT | if r.one_in(4) { r.next() as i32 } else { FD_ACCEPT };
                let event = std::ptr::without_provenance_mut(r.below(2));
                let done = unsafe { t.event_select.unwrap()(s, event, mask, &mut errno) } == 0;
                let _ = self.said("select", s, done, errno);
            }
        }
    }

    fn close(&mut self, s: usize) {
        let mut errno = 0;
        let done = unsafe { self.provider.table.close_socket.unwrap()(s, &mut errno) } == 0;
        let known = self.sockets.contains(&s);
        assert_eq!(done, known, "seed {}", self.seed);
        let _ = self.said("close", if known { 0 } else { s }, done, errno);
        if known {
            self.sockets.retain(|other| *other != s);
            self.closed.push(s);
        }
    }

    /// Two sockets with a connection, memory on both: where most sequences begin.
    fn connect(&mut self) {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (at, mut errno) = (address(free.port()), 0);
        let before = self.sockets.len();
        self.make();
        self.make();
        let [listener, client] = self.sockets[before..] else { return };
        let (t, name, none) = (&self.provider.table, at.as_ptr().cast(), null());
        unsafe {
            if t.bind.unwrap()(listener, name, 16, &mut errno) != 0
                || t.listen.unwrap()(listener, 4, &mut errno) != 0
            {
                return;
            }
            self.ports.push(free.port());
            let e = &raw mut errno;
            let _ = t.connect.unwrap()(client, name, 16, null(), null_mut(), none, none, e);
            let begin = std::time::Instant::now();
            while begin.elapsed() < LIMIT {
                let accept = t.accept.unwrap();
                let made = accept(listener, null_mut(), null_mut(), None, 0, &mut errno);
                if made != INVALID_SOCKET {
                    self.sockets.push(made);
                    self.pair = vec![client, made];
                    break;
                }
                assert_eq!(Error(errno), Error::WSAEWOULDBLOCK, "seed {}", self.seed);
                std::thread::yield_now();
            }
        }
        // All of it, for both, before the connecting end knows: then it is tried again.
        for s in self.pair.clone() {
            let (from, length) = (self.arena.cast(), ARENA as u32);
            let begin = std::time::Instant::now();
            loop {
                let mut errno = 0;
                let handle = unsafe { (self.provider.register)(s, from, length, 3, &mut errno) };
                if !handle.is_null() {
                    self.handles.push(handle);
                    break;
                }
                assert_eq!(Error(errno), Error::WSAENOTCONN, "seed {}", self.seed);
                assert!(begin.elapsed() < LIMIT, "seed {}: never connected", self.seed);
                std::thread::yield_now();
            }
        }
    }

    fn run(&mut self) {
        if !self.random.one_in(4) {
            self.connect();
        }
        for _ in 0..STEPS {
            match self.random.below(16) {
                0 => self.make(),
                1 | 2 => self.set_up(),
                3..=6 => self.memory(),
                7..=11 => self.transfer(),
                12..=14 => self.ask(),
                _ if self.random.one_in(3) => {
                    let other = self.random.next() as usize;
                    let s = if self.random.one_in(3) { self.socket() } else { other };
                    self.close(s);
                }
                _ => {}
            }
        }
        while let Some(s) = self.sockets.last().copied() {
            self.close(s);
        }
        let (seed, begun) = (self.seed, &self.begun);
        // WSD X-4, O-4, A-23: each operation begun makes one upcall, or is found by polling;
        // handles come back.
        wait("operations that never ended, or handles that were kept", seed, |told| {
            let at = |o: &*mut Overlapped| told.ended.get(&o.addr()).copied().unwrap_or(0);
            let ended = begun.iter().all(|(o, is_told)| !is_told || at(o) > 0);
            ended && told.handles.is_empty()
        });
        for (o, is_told) in begun {
            let times = told(|told| told.ended.remove(&o.addr()).unwrap_or(0));
            assert_eq!(times, u32::from(*is_told), "seed {seed}: O-3, O-4");
            let internal = unsafe { std::ptr::read_volatile(&raw const (**o).internal) };
            assert_ne!(internal, PENDING, "seed {seed}: an operation is still under way");
        }
        told(|told| {
            assert!(told.wrong.is_empty(), "seed {seed}: {:?}", told.wrong);
            assert!(told.ended.is_empty(), "seed {seed}: told, and never begun");
        });
    }
}

/// The descriptors that this process has open, but for its map of memory, which is kept for the
/// next question.
fn descriptors() -> Vec<String> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let names = all.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| !name.ends_with("/maps")).collect()
}

#[test]
fn no_sequence_of_calls_crashes_loses_an_operation_or_leaves_anything() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = (number("TRANSOM_SEED").unwrap_or(1), number("TRANSOM_SEQUENCES"));
    let before = descriptors();
    // A thread that has waited keeps a doorbell to itself as long as it lives.
    let seeds = first..first + count.unwrap_or(SEQUENCES);
    std::thread::spawn(move || sequences(seeds)).join().unwrap();
    // The adapter's thread ends behind the call.
    let begin = std::time::Instant::now();
    while descriptors().len() > before.len() {
        assert!(begin.elapsed() < LIMIT, "{:?}, before {before:?}", descriptors());
        std::thread::yield_now();
    }
}

fn sequences(seeds: std::ops::Range<u64>) {
    let provider = Provider::start();
    let arena = arena();
    let mut begun = 0;
    for seed in seeds {
        let mut sequence = Sequence {
            seed,
            random: Random(seed),
            provider: &provider,
            arena,
            sockets: Vec::new(),
            closed: Vec::new(),
            pair: Vec::new(),
            ports: Vec::new(),
            handles: Vec::new(),
            descriptors: Vec::new(),
            begun: Vec::new(),
            trace: Vec::new(),
        };
        sequence.run();
        if std::env::var_os("TRANSOM_TRACE").is_some() {
            println!("{:#?}", sequence.trace);
        }
        begun += sequence.begun.len();
    }
    assert!(begun > 0, "no operation has begun at all");
    let mut errno = 0;
    assert_eq!(unsafe { provider.table.cleanup.unwrap()(&mut errno) }, 0);
    assert_eq!(unsafe { provider.table.cleanup.unwrap()(&mut errno) }, SOCKET_ERROR);
}
