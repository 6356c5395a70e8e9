//! A switch for tests, and short ways to use a provider as one.
#![allow(dead_code, unreachable_pub, unsafe_code, clippy::undocumented_unsafe_blocks)]

#[cfg(not(windows))]
pub mod mapping;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use transom_engine::raw;
pub use transom_testing::Pages;
use transom_winsock_direct::abi::{CF_ACCEPT, FD_ACCEPT, FD_CONNECT, Overlapped, mem};
use transom_winsock_direct::{
    Direction, Error, Handle, Operation, Options, Provider, Range, Result, Switch,
};

pub const PAGE: usize = 4096;
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Default)]
pub struct Record {
    /// By overlapped: how often, error, bytes.
    pub completed: HashMap<usize, (u32, i32, u32)>,
    pub closed: Vec<usize>,
    /// How often each event was set and reset.
    pub set: HashMap<usize, u32>,
    pub reset: HashMap<usize, u32>,
    /// In the order of the upcalls.
    pub log: Vec<String>,
}

/// Remembers every upcall.
#[derive(Default)]
pub struct Recorder {
    pub record: Mutex<Record>,
    changed: Condvar,
    next: AtomicUsize,
    /// Runs inside each completion upcall.
    pub on_complete: Mutex<Option<Box<dyn Fn(usize) + Send>>>,
}

impl Recorder {
    pub fn wait<T>(&self, what: &str, mut f: impl FnMut(&mut Record) -> Option<T>) -> T {
        let mut record = self.record.lock().unwrap();
        loop {
            if let Some(found) = f(&mut record) {
                return found;
            }
            let (next, timeout) = self.changed.wait_timeout(record, LIMIT).unwrap();
            assert!(!timeout.timed_out(), "waited for {what}");
            record = next;
        }
    }
    fn note(&self, f: impl FnOnce(&mut Record)) {
        f(&mut self.record.lock().unwrap());
        self.changed.notify_all();
    }
}

impl Switch for Recorder {
    fn create_socket_handle(&self, _context: usize) -> Result<usize> {
        Ok(0x1000 + self.next.fetch_add(1, Ordering::Relaxed))
    }
    fn close_socket_handle(&self, handle: usize) {
        self.note(|record| {
            record.closed.push(handle);
            record.log.push(format!("close {handle:#x}"));
        });
    }
    fn complete(&self, handle: usize, overlapped: usize, error: i32, bytes: u32) {
        if let Some(f) = &*self.on_complete.lock().unwrap() {
            f(overlapped);
        }
        self.note(|record| {
            let entry = record.completed.entry(overlapped).or_default();
            *entry = (entry.0 + 1, error, bytes);
            record.log.push(format!("complete {handle:#x}"));
        });
    }
    fn set_event(&self, event: usize) {
        self.note(|record| *record.set.entry(event).or_default() += 1);
    }
    fn reset_event(&self, event: usize) {
        self.note(|record| *record.reset.entry(event).or_default() += 1);
    }
}

/// A process: a provider with its switch.
pub struct Process {
    pub provider: Arc<Provider>,
    pub switch: Arc<Recorder>,
}

impl Process {
    pub fn new() -> Process {
        Process::with(Options::default())
    }
    pub fn with(options: Options) -> Process {
        let switch = Arc::new(Recorder::default());
        let provider = Provider::start(switch.clone(), options).unwrap();
        Process { provider, switch }
    }
    pub fn socket(&self) -> usize {
        self.provider.open_socket((2, 1, 6), 0, 1).unwrap()
    }
    /// A listening socket whose event is its own number.
    pub fn listener(&self, backlog: usize) -> usize {
        let socket = self.socket();
        self.provider.bind(socket, "127.0.0.1:0".parse().unwrap()).unwrap();
        self.provider.event_select(socket, socket, FD_ACCEPT).unwrap();
        self.provider.listen(socket, backlog).unwrap();
        socket
    }
    pub fn accept(&self, listener: usize) -> Result<usize> {
        self.accept_if(listener, |_| CF_ACCEPT)
    }
    pub fn accept_if(&self, listener: usize, f: impl Fn(ThreadId) -> i32) -> Result<usize> {
        loop {
            self.await_request(listener);
            self.switch.note(|record| {
                // Consumed before the call: the next event is that of the next request.
                record.set.remove(&listener);
            });
            let condition = |_, _| f(std::thread::current().id());
            match self.provider.accept(listener, condition) {
                // The request of this event was taken with that of an earlier one.
                Err(Error::WSAEWOULDBLOCK) => {}
                accepted => return accepted.map(|(socket, _)| socket),
            }
        }
    }
    pub fn await_request(&self, listener: usize) {
        self.switch.wait("a request", |record| record.set.get(&listener).copied());
    }
    pub fn register(&self, socket: usize, pages: &Pages, flags: u32) -> Handle {
        self.try_register(socket, pages, flags).unwrap()
    }
    pub fn try_register(&self, socket: usize, pages: &Pages, flags: u32) -> Result<Handle> {
        unsafe { self.provider.register_memory(socket, pages.address(), pages.length(), flags) }
    }
    pub fn try_register_range(&self, socket: usize, range: Range, flags: u32) -> Result<Handle> {
        unsafe { self.provider.register_memory(socket, range.address, range.length, flags) }
    }
    pub fn try_expose_range(&self, socket: usize, range: Range, flags: u32) -> Result<[u8; 16]> {
        unsafe { self.provider.register_rdma_memory(socket, range.address, range.length, flags) }
    }
    pub fn expose(&self, socket: usize, pages: &Pages, flags: u32) -> [u8; 16] {
        self.try_expose(socket, pages, flags).unwrap()
    }
    pub fn try_expose(&self, socket: usize, pages: &Pages, flags: u32) -> Result<[u8; 16]> {
        unsafe {
            self.provider.register_rdma_memory(socket, pages.address(), pages.length(), flags)
        }
    }

    // ---- operations that end with an upcall ----
    pub fn send(&self, socket: usize, range: Range) -> Result<Op> {
        Op::begin(false, |op| self.provider.send(socket, &[range], 0, op))
    }
    pub fn receive(&self, socket: usize, range: Range) -> Result<Op> {
        Op::begin(false, |op| self.provider.receive(socket, &[range], 0, op))
    }
    pub fn rdma(
        &self,
        socket: usize,
        direction: Direction,
        part: (Range, Handle),
        target: (&[u8], u32),
    ) -> Result<Op> {
        Op::begin(false, |op| self.provider.rdma(socket, direction, &[part], target, 0, op))
    }
    /// How an operation ended: exactly one upcall.
    pub fn ended(&self, op: &Op) -> (Option<Error>, u32) {
        let at = op.address();
        let (times, error, bytes) =
            self.switch.wait("a completion", |record| record.completed.get(&at).copied());
        assert_eq!(times, 1, "O-4: exactly once");
        ((error != 0).then_some(Error(error)), bytes)
    }
    pub fn close(&self, socket: usize) {
        self.provider.close_socket(socket).unwrap();
    }
}

/// An operation under way. The structure stays for ever, as a test may look at it late.
pub struct Op {
    pub overlapped: *mut Overlapped,
}

impl Op {
    pub fn begin(polled: bool, f: impl FnOnce(Operation) -> Result<()>) -> Result<Op> {
        let event = std::ptr::without_provenance_mut(usize::from(polled));
        let overlapped = Box::into_raw(Box::new(Overlapped {
            internal: 0,
            internal_high: 0,
            offset: 0,
            offset_high: 0,
            event,
        }));
        let op = Op { overlapped };
        f(op.operation()).map(|()| op)
    }
    pub fn operation(&self) -> Operation {
        unsafe { Operation::new(self.overlapped) }.unwrap()
    }
    pub fn address(&self) -> usize {
        self.overlapped.expose_provenance()
    }
}

/// Pages as the interface describes them.
pub trait Describe {
    fn length(&self) -> u32;
    fn range(&self, offset: u64, length: u32) -> Range;
}

impl Describe for Pages {
    fn length(&self) -> u32 {
        self.len() as u32
    }
    fn range(&self, offset: u64, length: u32) -> Range {
        Range { address: self.address() + offset, length }
    }
}

/// Connect a new socket of `from` to `listener` of `to`: (the connecting, the accepting end).
pub fn connect(from: &Process, to: &Process, listener: usize) -> (usize, usize) {
    let peer = to.provider.local_address(listener).unwrap();
    let client = from.socket();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| to.accept(listener).unwrap());
        from.provider.connect(client, peer).unwrap();
        (client, accepting.join().unwrap())
    })
}

/// The greeting of a peer that is no provider: with no port, and nothing that goes on elsewhere.
pub fn hello() -> [u8; 44] {
    let mut bytes = [0; 44];
    bytes[..5].copy_from_slice(b"TWSD\x01");
    bytes
}

/// Where the listener is that stands for a provider's port.
pub fn find(adapter: &raw::Adapter, port: SocketAddr) -> SocketAddr {
    let (found, find) = std::sync::mpsc::channel();
    let _question = adapter.find_port(port, move |at| found.send(at).unwrap()).unwrap();
    find.recv_timeout(LIMIT).unwrap().unwrap()
}

/// Two processes with one connection.
pub struct Two {
    pub a: Process,
    pub s: usize,
    pub b: Process,
    pub t: usize,
    pub listener: usize,
}

impl Two {
    pub fn new() -> Two {
        Two::with(Options::default())
    }
    pub fn with(options: Options) -> Two {
        let (a, b) = (Process::with(options), Process::with(options));
        let listener = b.listener(8);
        let (s, t) = connect(&a, &b, listener);
        Two { a, s, b, t, listener }
    }
    /// Another connection between the same processes.
    pub fn another(&self) -> (usize, usize) {
        connect(&self.a, &self.b, self.listener)
    }
    /// An RDMA operation of `a` on memory of `b`, to its end.
    pub fn rdma(
        &self,
        socket: usize,
        direction: Direction,
        part: (Range, Handle),
        target: (&[u8], u32),
    ) -> (Option<Error>, u32) {
        let op = self.a.rdma(socket, direction, part, target).unwrap();
        self.a.ended(&op)
    }
    pub fn end(self) {
        self.a.provider.cleanup();
        self.b.provider.cleanup();
    }
}

/// A connection takes the path that this run is about.
pub fn path_holds() {
    let two = Two::new();
    transom_testing::paths::hold();
    two.end();
}

/// All of `a`'s memory for local use, registered on `socket`.
pub fn scratch(process: &Process, socket: usize, byte: u8) -> (Pages, Handle) {
    let pages = Pages::of(byte);
    let handle = process.register(socket, &pages, mem::READWRITE);
    (pages, handle)
}

pub const CONNECT: i32 = FD_CONNECT;
