//! WSD A-18 and 5.7 with a peer that stops in the middle of a transfer: an adapter with a trace
//! that holds up its side of the connection.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod common;
use common::mapping::*;
use common::*;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use transom_engine::raw::{
    Adapter, CompletionQueue, Connector, Domain, Options, QueuePair, QueuePairOptions, ReadLimits,
    Sink, Trace,
};
use transom_engine::trace::{TraceEvent, What};
use transom_engine::{Completion, Data, Flags, Operation, Request, Sge, Status, dialect};
use transom_memory::{Rights, Segment};
use transom_winsock_direct::abi::mem;
use transom_winsock_direct::descriptor::Descriptor;
use transom_winsock_direct::{Direction, Error, Range};
use transom_wire::Operation as Kind;

const LIMIT: Duration = Duration::from_secs(120);
/// 64 MiB: more than sockets and rings hold, so no transfer of it ends without its reader.
const PAGES: usize = 16 << 10;

/// Where the peer stops, once that is wanted, until it may go on.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
struct GateState {
    shut: bool,
    held: bool,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.held = state.shut;
        self.changed.notify_all();
        let late = self.changed.wait_timeout_while(state, LIMIT, |state| state.shut).unwrap().1;
        assert!(!late.timed_out(), "the test never went on");
    }
    fn shut(&self) {
        *self.state.lock().unwrap() = GateState { shut: true, held: false };
    }
    fn until_held(&self) {
        let state = self.state.lock().unwrap();
        let late = self.changed.wait_timeout_while(state, LIMIT, |state| !state.held).unwrap().1;
        assert!(!late.timed_out(), "the peer never came this far");
    }
    fn open(&self) {
        self.state.lock().unwrap().shut = false;
        self.changed.notify_all();
    }
}

/// A peer that is no provider.
struct Peer {
    gate: Arc<Gate>,
    adapter: Adapter,
    domain: Domain,
    queue: CompletionQueue,
    queue_pair: QueuePair,
    connector: Connector,
}

fn sink() -> (Sink, Receiver<Status>) {
    let (sender, receiver): (Sender<Status>, _) = channel();
    (Sink::call(move |status| _ = sender.send(status)), receiver)
}

impl Peer {
    /// Stops at the events that `stops` names, while its gate is shut.
    fn new(stops: impl Fn(What) -> bool + Send + Sync + 'static) -> Peer {
        let gate = Arc::new(Gate::default());
        let at = gate.clone();
        let trace = Trace(Arc::new(move |event: &TraceEvent| {
            if stops(event.what) {
                at.pass();
            }
        }));
        let options = Options { dialect: &dialect::WSD, trace: Some(trace), ..Options::from_env() };
        let adapter = Adapter::open(Ipv4Addr::LOCALHOST.into(), options).unwrap();
        let (domain, queue) = (adapter.domain().unwrap(), adapter.completion_queue(64).unwrap());
        let options = QueuePairOptions::default();
        let queue_pair = adapter.queue_pair(domain, &queue, &queue, None, &options).unwrap();
        let connector = adapter.connector().unwrap();
        Peer { gate, adapter, domain, queue, queue_pair, connector }
    }
    /// A connection with a provider: its socket.
    fn connect(&self, to: &Process) -> usize {
        let listener = to.listener(1);
        let (sink, connected) = sink();
        let from = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let at = to.provider.local_address(listener).unwrap();
        let limits = ReadLimits { inbound: 4, outbound: 4 };
        self.connector.bind(from).unwrap();
        let at = find(&self.adapter, at);
        self.connector.connect(&self.queue_pair, at, limits, &hello(), sink).unwrap();
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| to.accept(listener).unwrap());
            assert_eq!(connected.recv_timeout(LIMIT), Ok(Status::Success));
            self.connector.complete_connect().unwrap();
            accepted.join().unwrap()
        })
    }
    /// Read or write all of its own pages.
    fn transfer(&self, direction: Direction, own: &Mapping, descriptor: &[u8]) {
        let (base, length) = (own.address(), own.size());
        let segments = [Segment { host: base, length }];
        let rights = Rights::LOCAL_READ | Rights::LOCAL_WRITE | Rights::READ_SINK;
        let local = unsafe { self.adapter.register(self.domain, base, &segments, rights) }.unwrap();
        let Descriptor { token, base: address } = Descriptor::decode(descriptor).unwrap();
        let operation = match direction {
            Direction::Read => Operation::Read { token, address },
            Direction::Write => Operation::Write { token, address },
        };
        let request = Request { context: 1, operation, flags: Flags::NONE };
        let list = [Sge { token: local.0, address: base, length: own.range().length }];
        self.queue_pair.post(&request, Data::Sges(&list)).unwrap();
    }
    fn ended(&self) -> Status {
        let mut one = [Completion::default()];
        while self.queue.poll(&mut one) == 0 {
            assert!(self.queue.wait(Some(LIMIT)).unwrap(), "no completion came");
        }
        one[0].status
    }
}

transom_testing::over_both_paths!(path_holds());

/// In the middle of a transfer of the peer's nothing that it uses can be deregistered, everything
/// else can, and the transfer is not disturbed; after it, it can.
fn cannot_be_deregistered_during(
    direction: Direction,
    exposed: &Mapping,
    stops: impl Fn(What) -> bool + Send + Sync + 'static,
) {
    let (peer, b) = (Peer::new(stops), Process::new());
    let socket = peer.connect(&b);
    let own = Mapping::of(PAGES, 7);
    let expose = || b.try_expose_range(socket, exposed.range(), mem::READWRITE).unwrap();
    // A range of memory three times, and other memory.
    let (target, again) = (expose(), expose());
    let local = b.try_register_range(socket, exposed.range(), mem::READ).unwrap();
    let other = b.expose(socket, &Pages::of(0), mem::READWRITE);
    peer.gate.shut();
    std::thread::scope(|scope| {
        // The thread that posts may be the one that is held.
        scope.spawn(|| peer.transfer(direction, &own, &target));
        peer.gate.until_held();
        let end = |descriptor: &[u8]| b.provider.deregister_rdma_memory(socket, descriptor);
        let refused = [end(&target), end(&target)];
        let registered = b.provider.registered(socket);
        let unused = [end(&again), end(&other), b.provider.deregister_memory(socket, local)];
        peer.gate.open();
        assert_eq!(refused, [Err(Error::WSAEINVAL); 2]);
        assert_eq!(registered, Ok((1, 3)), "nothing has changed");
        assert_eq!(unused, [Ok(()); 3], "the transfer does not use these");
    });
    assert_eq!(peer.ended(), Status::Success, "the transfer was not disturbed");
    assert!(own.bytes() == exposed.bytes());
    assert_eq!(b.provider.deregister_rdma_memory(socket, &target), Ok(()));
    assert_eq!(b.provider.registered(socket), Ok((0, 0)));
    b.provider.cleanup();
}

/// The peer has placed the first bytes of what it reads.
#[test]
fn a18_memory_that_the_peer_reads_cannot_be_deregistered() {
    cannot_be_deregistered_during(Direction::Read, &Mapping::of(PAGES, 8), |what| {
        matches!(what, What::Placed { operation: Kind::Read, .. })
    });
}

/// The first bytes of what the peer writes have been placed, and not the last.
#[test]
fn a18_memory_that_the_peer_writes_cannot_be_deregistered() {
    let exposed = Arc::new(Mapping::of(PAGES, 8));
    let seen = exposed.clone();
    cannot_be_deregistered_during(Direction::Write, &exposed, move |what| {
        matches!(what, What::FrameOut { payload, .. } if payload > 0) && seen.byte(0) != 8
    });
}

/// WSD 5.6: a message behind an RdmaRead may tell the peer that the data have been fetched. The
/// peer, held up with the first piece of its answer until the message is posted, gets it behind the
/// last.
#[test]
fn w10_a_message_behind_a_read_waits_for_all_of_its_data() {
    let log = Arc::new(Mutex::new((0, None)));
    let seen = log.clone();
    let peer = Peer::new(move |what| {
        let mut seen = seen.lock().unwrap();
        match what {
            What::FrameOut { payload, .. } => seen.0 += u64::from(payload),
            What::Executed { operation: Kind::Send } => seen.1 = Some(seen.0),
            _ => {}
        }
        matches!(what, What::FrameOut { payload, .. } if payload > 0)
    });
    let b = Process::new();
    let socket = peer.connect(&b);
    let (theirs, own, text) = (Mapping::of(PAGES, 7), Mapping::of(PAGES, 8), Mapping::of(1, 9));
    let segments = [Segment { host: theirs.address(), length: theirs.size() }];
    let rights = Rights::LOCAL_WRITE | Rights::REMOTE_READ;
    let base = theirs.address();
    let token = unsafe { peer.adapter.register(peer.domain, base, &segments, rights) }.unwrap();
    let inbox = [Sge { token: token.0, address: base, length: 64 }];
    peer.queue_pair.post_receive(1, &inbox).unwrap();
    let handle = b.try_register_range(socket, own.range(), mem::WRITE).unwrap();
    b.try_register_range(socket, text.range(), mem::READ).unwrap();
    let target = Descriptor { token: token.0, base }.encode();
    peer.gate.shut();
    let read = b.rdma(socket, Direction::Read, (own.range(), handle), (&target, 0)).unwrap();
    peer.gate.until_held();
    let part = Range { address: text.address(), length: 8 };
    let sent = b.send(socket, part).unwrap();
    peer.gate.open();
    assert_eq!(b.ended(&read), (None, own.range().length));
    assert_eq!(b.ended(&sent), (None, 8));
    assert_eq!(peer.ended(), Status::Success);
    assert_eq!(log.lock().unwrap().1, Some(own.size()), "bytes that had left before");
    b.provider.cleanup();
}
