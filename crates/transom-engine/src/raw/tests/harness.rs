//! Two adapters on loopback, and shorthand for what every test does.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use transom_memory::{Rights, Segment, Token};
use transom_wire::ReadLimits;

use super::super::*;
use crate::{Completion, CompletionKind, Data, Flags, Operation, Request, Sge, Status};

/// The longest wait for what must happen. Never reached by a test that passes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const LIMITS: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };
pub(crate) const ALL: Rights =
    Rights(Rights::LOCAL_READ.0 | Rights::LOCAL_WRITE.0 | Rights::BIND.0);

/// The status that a sink will get.
pub(crate) struct Signal(mpsc::Receiver<Status>);

pub(crate) fn signal() -> (Sink, Signal) {
    let (tell, told) = mpsc::channel();
    (Sink::call(move |status| _ = tell.send(status)), Signal(told))
}

impl Signal {
    pub(crate) fn wait(&self) -> Status {
        self.0.recv_timeout(PATIENCE).expect("the sink was never told")
    }

    /// The status, if the sink has got one.
    pub(crate) fn told(&self) -> Option<Status> {
        self.0.try_recv().ok()
    }
}

/// A side, with all its objects.
pub(crate) struct End {
    pub(crate) adapter: Adapter,
    pub(crate) domain: Domain,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair,
    pub(crate) connector: Connector,
}

impl End {
    pub(crate) fn new(options: &Options) -> End {
        let adapter = Adapter::open(IpAddr::V4(Ipv4Addr::LOCALHOST), options.clone()).unwrap();
        End::on(&adapter)
    }

    /// A further connection of an adapter.
    pub(crate) fn on(adapter: &Adapter) -> End {
        End::in_domain(adapter, adapter.domain().unwrap())
    }

    pub(crate) fn in_domain(adapter: &Adapter, domain: Domain) -> End {
        let cq = adapter.completion_queue(64).unwrap();
        let qp = adapter.queue_pair(domain, &cq, &cq, None, &QueuePairOptions::default()).unwrap();
        let connector = adapter.connector().unwrap();
        End { adapter: adapter.clone(), domain, cq, qp, connector }
    }

    /// The next completion.
    pub(crate) fn next(&self) -> Completion {
        let mut one = [Completion::default()];
        let begin = Instant::now();
        loop {
            if self.cq.poll(&mut one) == 1 {
                return one[0];
            }
            let left = PATIENCE.saturating_sub(begin.elapsed());
            assert!(self.cq.wait(Some(left)).unwrap() && !left.is_zero(), "no completion came");
        }
    }

    /// The next completion, which must be a success of this kind.
    pub(crate) fn expect(&self, kind: CompletionKind) -> Completion {
        let c = self.next();
        let why = self.adapter.denial(c.denial).map(|d| d.cause.to_string());
        assert_eq!((c.kind, c.status), (kind, Status::Success), "{why:?}");
        c
    }

    /// The next completion, which must be a success of one of these kinds.
    pub(crate) fn expect_any(&self, kinds: &[CompletionKind]) -> Completion {
        let c = self.next();
        assert!(kinds.contains(&c.kind) && c.status == Status::Success, "{c:?}");
        c
    }

    pub(crate) fn post(&self, operation: Operation, list: &[Sge]) {
        self.post_with(operation, list, Flags::NONE);
    }

    pub(crate) fn post_with(&self, operation: Operation, list: &[Sge], flags: Flags) {
        let request = Request { context: 1, operation, flags };
        self.qp.post(&request, Data::Sges(list)).unwrap();
    }

    /// Open a window on a buffer, and wait until it is.
    pub(crate) fn window(&self, buffer: &Buffer, rights: Rights) -> Token {
        let window = self.reserve(buffer, rights);
        self.post(Operation::Bind { window }, &[]);
        self.expect(CompletionKind::Bind);
        window
    }

    pub(crate) fn reserve(&self, buffer: &Buffer, rights: Rights) -> Token {
        let window = Window {
            region: buffer.token,
            base: buffer.address(),
            length: buffer.length as u64,
            rights,
        };
        self.qp.reserve_window(&window).unwrap().posted()
    }

    pub(crate) fn buffer(&self, length: usize) -> Buffer {
        Buffer::new(self, length, ALL)
    }
}

/// Registered memory, leaked so that no test can free what a peer still writes.
pub(crate) struct Buffer {
    pub(crate) base: *mut u8,
    pub(crate) length: usize,
    pub(crate) token: Token,
}

// SAFETY: plain shared memory, touched through volatile copies only.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub(crate) fn new(end: &End, length: usize, rights: Rights) -> Buffer {
        let memory: &'static mut [u64] = vec![0; length.div_ceil(8)].leak();
        Buffer::at(end, memory.as_mut_ptr().cast(), length, rights)
    }

    pub(crate) fn at(end: &End, base: *mut u8, length: usize, rights: Rights) -> Buffer {
        let segments = [Segment { host: base as u64, length: length as u64 }];
        // SAFETY: leaked, or a mapping of the test's that it never uses for anything else.
        let token = unsafe { end.adapter.register(end.domain, base as u64, &segments, rights) };
        Buffer { base, length, token: token.unwrap() }
    }

    pub(crate) fn address(&self) -> u64 {
        self.base as u64
    }

    pub(crate) fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge {
            token: self.token.0,
            address: self.address() + offset as u64,
            length: u32::try_from(length).unwrap(),
        }
    }

    pub(crate) fn all(&self) -> Sge {
        self.sge(0, self.length)
    }

    pub(crate) fn fill(&self, byte: impl Fn(usize) -> u8) {
        let bytes: Vec<u8> = (0..self.length).map(byte).collect();
        // SAFETY: our own mapping.
        unsafe { crate::sys::copy_in(self.address(), &bytes) }.unwrap();
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        // SAFETY: our own mapping.
        unsafe { crate::sys::copy_out(self.address(), &mut bytes) }.unwrap();
        bytes
    }
}

/// Two connected ends: active, passive.
pub(crate) fn pair() -> (End, End) {
    pair_with(&Options::from_env())
}

pub(crate) fn pair_with(options: &Options) -> (End, End) {
    let (active, passive) = (End::new(options), End::new(options));
    join(&active, &passive);
    (active, passive)
}

pub(crate) fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Connect two ends.
pub(crate) fn join(active: &End, passive: &End) {
    let listener = passive.adapter.listener(loopback()).unwrap();
    listener.listen(0).unwrap();
    join_at(active, passive, &listener);
}

pub(crate) fn join_at(active: &End, passive: &End, listener: &Listener) {
    let (sink, requested) = signal();
    listener.get_request(&passive.connector, sink).unwrap();
    active.connector.bind(loopback()).unwrap();
    let (sink, connected) = signal();
    let at = listener.address().unwrap();
    active.connector.connect(&active.qp, at, LIMITS, b"hello", sink).unwrap();
    assert_eq!(requested.wait(), Status::Success);
    assert_eq!(passive.connector.private_data().unwrap(), b"hello");
    let (sink, accepted) = signal();
    passive.connector.accept(&passive.qp, LIMITS, b"welcome", sink).unwrap();
    assert_eq!(connected.wait(), Status::Success);
    assert_eq!(active.connector.private_data().unwrap(), b"welcome");
    active.connector.complete_connect().unwrap();
    assert_eq!(accepted.wait(), Status::Success);
}

pub(super) fn listening(end: &End) -> Listener {
    let listener = end.adapter.listener(loopback()).unwrap();
    listener.listen(0).unwrap();
    listener
}

pub(super) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}
