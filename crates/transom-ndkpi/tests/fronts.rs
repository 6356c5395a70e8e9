//! One act, what each front answers: the same bytes registered through v2, NDKPI and Winsock Direct
//! at once. The table that this generates is `FRONTS.md`; the test compares.
//!
//! v2 is the engine's v2 dialect under its raw handles, with v2's names for its answers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod common;
#[path = "../../transom-winsock-direct/tests/common/mod.rs"]
mod wsd;

use std::fmt::Write as _;
use std::sync::mpsc::channel;

use common::{Pages, Side, deregister, mw, pair, register, token, window_token};
use transom_engine::raw::{self, ReadLimits, Sink};
use transom_engine::{
    Completion, CompletionFlags, CompletionKind, Data, Flags, Operation, Request, Sge,
    Status as Engine, dialect,
};
use transom_memory::{QueuePairId, Rights, Segment, Token};
use transom_ndkpi::flags::{mr as flag, op};
use transom_ndkpi::{Mode, Status};
use transom_winsock_direct::abi::mem;
use transom_winsock_direct::{Direction, Error, Range};

// ---- the three owners of the same memory, each with a peer ----

/// One end of a v2 connection.
struct V2 {
    adapter: raw::Adapter,
    domain: raw::Domain,
    queue: raw::CompletionQueue,
    qp: raw::QueuePair,
    _connector: raw::Connector,
}

fn nd(status: Engine) -> &'static str {
    match status {
        Engine::Success => "ND_SUCCESS",
        Engine::LocalAccess | Engine::RemoteAccess => "ND_ACCESS_VIOLATION",
        Engine::DeviceBusy => "ND_DEVICE_BUSY",
        Engine::Canceled => "ND_CANCELED",
        _ => "another error",
    }
}

impl V2 {
    fn pair() -> (V2, V2) {
        let open = || {
            let options = raw::Options { dialect: &dialect::ND2, ..raw::Options::default() };
            raw::Adapter::open([127, 0, 0, 1].into(), options).unwrap()
        };
        let half = |adapter: raw::Adapter| {
            let domain = adapter.domain().unwrap();
            let queue = adapter.completion_queue(64).unwrap();
            let options = raw::QueuePairOptions::default();
            let qp = adapter.queue_pair(domain, &queue, &queue, None, &options).unwrap();
            let connector = adapter.connector().unwrap();
            V2 { adapter, domain, queue, qp, _connector: connector }
        };
        let (client, owner) = (half(open()), half(open()));
        let listener = owner.adapter.listener(([127, 0, 0, 1], 0).into()).unwrap();
        listener.listen(0).unwrap();
        let (told, heard) = channel();
        let sink = || {
            let told = told.clone();
            Sink::call(move |status| told.send(status).unwrap())
        };
        let limits = ReadLimits { inbound: 8, outbound: 8 };
        listener.get_request(&owner._connector, sink()).unwrap();
        client._connector.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let (ended, connected) = channel();
        let connect = Sink::call(move |status| ended.send(status).unwrap());
        let at = listener.address().unwrap();
        client._connector.connect(&client.qp, at, limits, &[], connect).unwrap();
        assert_eq!(heard.recv().unwrap(), Engine::Success);
        owner._connector.accept(&owner.qp, limits, &[], sink()).unwrap();
        assert_eq!(connected.recv().unwrap(), Engine::Success);
        client._connector.complete_connect().unwrap();
        assert_eq!(heard.recv().unwrap(), Engine::Success);
        (client, owner)
    }
    fn register(&self, pages: &Pages, rights: Rights) -> u32 {
        let host = pages.sge(0, 0, 0).address;
        let segments = [Segment { host, length: pages.len() as u64 }];
        unsafe { self.adapter.register(self.domain, host, &segments, rights) }.unwrap().0
    }
    fn one(&self) -> Engine {
        let mut one = [Completion {
            request_context: 0,
            queue_pair_context: 0,
            queue_pair: QueuePairId(0),
            kind: CompletionKind::Other,
            status: Engine::Success,
            length: 0,
            value: 0,
            flags: CompletionFlags(0),
            denial: 0,
        }];
        while self.queue.poll(&mut one) == 0 {
            assert!(self.queue.wait(Some(std::time::Duration::from_secs(20))).unwrap());
        }
        one[0].status
    }
    fn act(&self, operation: Operation, sges: &[Sge]) -> Engine {
        let request = Request { context: 1, operation, flags: Flags::NONE };
        self.qp.post(&request, Data::Sges(sges)).unwrap();
        self.one()
    }
}

fn all(local_write: bool) -> Rights {
    let rights = Rights::LOCAL_READ | Rights::BIND;
    if local_write { rights | Rights::LOCAL_WRITE } else { rights }
}

/// The remote acts: what the owner registers for, what the peer does, where, and whether the owner
/// has closed it before.
struct Remote {
    what: &'static str,
    readable: bool,
    writable: bool,
    writes: bool,
    past: u64,
    closed: bool,
    /// Over a connection that the registration does not name. In v2 and NDKPI a region names none;
    /// in Winsock Direct it is a second one between the same processes.
    elsewhere: bool,
}

const REMOTE: &[Remote] = &[
    remote("a peer reads memory open for reading", true, false, false),
    remote("a peer writes memory open for reading", true, false, true),
    remote("a peer reads memory open for writing", false, true, false),
    remote("a peer writes memory open for writing", false, true, true),
    Remote { past: 1, ..remote("a peer reads one byte past the end", true, false, false) },
    Remote { closed: true, ..remote("a peer reads what was deregistered", true, false, false) },
    Remote {
        elsewhere: true,
        ..remote(
            "a peer reads over a connection that the registration does not name",
            true,
            false,
            false,
        )
    },
];

const fn remote(what: &'static str, readable: bool, writable: bool, writes: bool) -> Remote {
    Remote { what, readable, writable, writes, past: 0, closed: false, elsewhere: false }
}

const LENGTH: u32 = 64;

fn v2_remote(pages: &Pages, act: &Remote) -> String {
    let (client, owner) = V2::pair();
    let mut rights = all(act.writable);
    if act.readable {
        rights = rights | Rights::REMOTE_READ;
    }
    if act.writable {
        rights = rights | Rights::REMOTE_WRITE;
    }
    let token = owner.register(pages, rights);
    if act.closed {
        owner.adapter.deregister(Token(token), false).unwrap();
    }
    let own = Pages::new(1);
    let local = client.register(&own, all(true));
    let sge = Sge { token: local, address: own.sge(0, 0, 0).address, length: LENGTH };
    let end = pages.sge(0, 0, 0).address + pages.len() as u64;
    let address = end - u64::from(LENGTH) + act.past;
    let operation = match act.writes {
        true => Operation::Write { token, address },
        false => Operation::Read { token, address },
    };
    nd(client.act(operation, &[sge])).to_owned()
}

fn ndk_remote(pages: &Pages, act: &Remote) -> String {
    let (client, owner) = pair(Mode::Natural);
    let mut flags = 0;
    if act.readable {
        flags |= flag::ALLOW_REMOTE_READ;
    }
    if act.writable {
        flags |= flag::ALLOW_REMOTE_WRITE;
    }
    let (mr, remote) = owner.mr(pages, flags);
    if act.closed {
        assert_eq!(deregister(mr).1, Status::SUCCESS);
    }
    let own = Pages::new(1);
    let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
    let end = pages.sge(0, 0, 0).address + pages.len() as u64;
    let address = end - u64::from(LENGTH) + act.past;
    let sge = own.sge(local, 0, LENGTH);
    match act.writes {
        true => client.write(1, &[sge], address, remote),
        false => client.read(1, &[sge], address, remote),
    };
    let status = client.one().1;
    client.end(&[own_mr]);
    owner.end(&[mr]);
    name(status)
}

fn name(status: Status) -> String {
    format!("STATUS_{status:?}")
}

fn wsd_name(error: Option<Error>) -> String {
    error.map_or_else(|| "0".to_owned(), |error| format!("{error:?}"))
}

fn range(pages: &Pages, offset: u64, length: u32) -> Range {
    Range { address: pages.sge(0, 0, 0).address + offset, length }
}

fn wsd_remote(pages: &Pages, act: &Remote) -> String {
    let two = wsd::Two::new();
    let mut flags = 0;
    if act.readable {
        flags |= mem::READ;
    }
    if act.writable {
        flags |= mem::WRITE;
    }
    let whole = range(pages, 0, pages.len() as u32);
    let provider = &two.b.provider;
    let target = unsafe {
        provider.register_rdma_memory(two.t, whole.address, whole.length, flags).unwrap()
    };
    if act.closed {
        provider.deregister_rdma_memory(two.t, &target).unwrap();
    }
    let socket = if act.elsewhere { two.another().0 } else { two.s };
    let (own, handle) = wsd::scratch(&two.a, socket, 0);
    let offset = pages.len() as u32 - LENGTH + act.past as u32;
    let direction = if act.writes { Direction::Write } else { Direction::Read };
    let part = (own.range(0, LENGTH), handle);
    let (error, _) = two.rdma(socket, direction, part, (&target, offset));
    two.end();
    wsd_name(error)
}

// ---- local acts ----

fn receive_without_write(pages: &Pages) -> [String; 3] {
    let (client, owner) = V2::pair();
    let local = owner.register(pages, all(false));
    let sge = Sge { token: local, address: pages.sge(0, 0, 0).address, length: LENGTH };
    owner.qp.post_receive(1, &[sge]).unwrap();
    let request = Request { context: 1, operation: Operation::Send, flags: Flags::NONE };
    client.qp.post(&request, Data::Inline(&[1; 8])).unwrap();
    let v2 = nd(owner.one()).to_owned();

    let (client, owner) = pair(Mode::Natural);
    let (mr, local) = owner.mr(pages, flag::ALLOW_LOCAL_READ);
    let own = Pages::new(1);
    let (own_mr, own_token) = client.mr(&own, 0);
    owner.receive(1, &[pages.sge(local, 0, LENGTH)]);
    client.send(1, &[own.sge(own_token, 0, 8)], 0);
    let ndk = name(owner.one().1);
    client.end(&[own_mr]);
    owner.end(&[mr]);

    let two = wsd::Two::new();
    let whole = range(pages, 0, LENGTH);
    unsafe {
        two.a.provider.register_memory(two.s, whole.address, LENGTH, mem::READ).unwrap();
    }
    let wsd = wsd_name(two.a.receive(two.s, whole).err());
    two.end();
    [v2, ndk, format!("{wsd} (the call)")]
}

fn deregister_with_a_receive_posted(pages: &Pages) -> [String; 3] {
    let (_client, owner) = V2::pair();
    let local = owner.register(pages, all(true));
    let sge = Sge { token: local, address: pages.sge(0, 0, 0).address, length: LENGTH };
    owner.qp.post_receive(1, &[sge]).unwrap();
    let v2 = owner
        .adapter
        .deregister(Token(local), false)
        .map_or_else(|e| e.status, |()| Engine::Success);

    let (client, owner) = pair(Mode::Natural);
    let (mr, local) = owner.mr(pages, flag::ALLOW_LOCAL_WRITE);
    owner.receive(1, &[pages.sge(local, 0, LENGTH)]);
    let ndk = name(deregister(mr).1);
    client.end(&[]);
    owner.end(&[mr]);

    let two = wsd::Two::new();
    let whole = range(pages, 0, LENGTH);
    let handle = unsafe {
        two.a.provider.register_memory(two.s, whole.address, LENGTH, mem::WRITE).unwrap()
    };
    two.a.receive(two.s, whole).unwrap();
    let wsd = wsd_name(two.a.provider.deregister_memory(two.s, handle).err());
    two.end();
    [nd(v2).to_owned(), ndk, wsd]
}

fn deregister_with_a_window_bound(pages: &Pages) -> [String; 3] {
    let (_client, owner) = V2::pair();
    let region = Token(owner.register(pages, all(true)));
    let base = pages.sge(0, 0, 0).address;
    let window = raw::Window { region, base, length: 8, rights: Rights::REMOTE_READ };
    owner.adapter.reserve_window(&window, &owner.qp).unwrap();
    let v2 = owner.adapter.deregister(region, false).unwrap_err().status;

    let (client, owner) = pair(Mode::Natural);
    let (mr, _) = owner.mr(pages, flag::ALLOW_LOCAL_WRITE);
    let window = mw(owner.pd);
    assert_eq!(owner.bind(mr, window, base, 8, op::ALLOW_REMOTE_READ), Status::SUCCESS);
    let ndk = name(deregister(mr).1);
    assert_ne!(window_token(window), token(mr));
    client.end(&[]);
    owner.end(&[window, mr]);
    [nd(v2).to_owned(), ndk, "no windows".to_owned()]
}

fn register_without_a_connection(pages: &Pages) -> [String; 3] {
    let options = raw::Options { dialect: &dialect::ND2, ..raw::Options::default() };
    let adapter = raw::Adapter::open([127, 0, 0, 1].into(), options).unwrap();
    let host = pages.sge(0, 0, 0).address;
    let segments = [Segment { host, length: 8 }];
    let made = unsafe { adapter.register(adapter.domain().unwrap(), host, &segments, all(false)) };
    let v2 = made.map_or_else(|e| e.status, |_| Engine::Success);

    let adapter = common::open(Mode::Natural);
    let pd = common::pd(adapter);
    let mr = common::mr(pd);
    let ndk = name(register(mr, pages.mdl().0, 8, 0).1);
    common::close_all(&[mr, pd]);
    common::close_adapter(adapter);

    let process = wsd::Process::new();
    let socket = process.socket();
    let made = unsafe { process.provider.register_memory(socket, host, 8, mem::READ) };
    process.provider.cleanup();
    [nd(v2).to_owned(), ndk, wsd_name(made.err())]
}

/// The same bytes through two fronts at once: each keeps to its own rules.
fn through_two_fronts_at_once(pages: &Pages) {
    let (client, owner) = pair(Mode::Natural);
    let two = wsd::Two::new();
    let (mr, remote) = owner.mr(pages, flag::ALLOW_REMOTE_WRITE);
    let whole = range(pages, 0, pages.len() as u32);
    let target = unsafe {
        let provider = &two.b.provider;
        provider.register_rdma_memory(two.t, whole.address, whole.length, mem::READ).unwrap()
    };
    let own = Pages::new(1);
    own.fill(|_| 0x42);
    let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
    assert_eq!(client.write(1, &[own.sge(local, 0, 8)], whole.address, remote), Status::SUCCESS);
    assert_eq!(client.one().1, Status::SUCCESS, "NDKPI's peer may write");
    let (read, handle) = wsd::scratch(&two.a, two.s, 0);
    let part = (read.range(0, 8), handle);
    assert_eq!(two.rdma(two.s, Direction::Read, part, (&target, 0)).0, None);
    assert_eq!(read.bytes()[..8], [0x42; 8], "and Winsock Direct's sees it");
    // One registration ends; the other does not notice.
    assert_eq!(deregister(mr).1, Status::SUCCESS);
    assert_eq!(two.rdma(two.s, Direction::Read, part, (&target, 8)).0, None);
    // NDKPI's token means nothing to Winsock Direct's owner, nor a write.
    let refused = two.rdma(two.s, Direction::Write, part, (&target, 0)).0;
    assert_eq!(refused, Some(Error::WSAECONNABORTED));
    assert_eq!(pages.bytes()[..8], [0x42; 8]);
    two.end();
    let done: [Side; 2] = [client, owner];
    let extra = [vec![own_mr], vec![mr]];
    done.into_iter().zip(extra).for_each(|(side, extra)| side.end(&extra));
}

#[test]
fn one_act_what_each_front_answers() {
    let pages = Pages::new(2);
    let mut text = String::from(
        "# One act, three answers\n\n\
         The same bytes, registered through NetworkDirect v2, NDKPI and Winsock Direct. Each row was\n\
         observed by `cargo test -p transom-ndkpi --test fronts`, which also compares this file.\n\
         Answers to a peer's act are what the peer's program is told.\n\n\
         | act | v2 | NDKPI | Winsock Direct |\n|---|---|---|---|\n",
    );
    let mut row = |what: &str, [v2, ndk, wsd]: [String; 3]| {
        writeln!(text, "| {what} | {v2} | {ndk} | {wsd} |").unwrap();
    };
    for act in REMOTE {
        row(act.what, [v2_remote(&pages, act), ndk_remote(&pages, act), wsd_remote(&pages, act)]);
    }
    row("a receive into memory not registered for writing", receive_without_write(&pages));
    row("deregister with a receive posted", deregister_with_a_receive_posted(&pages));
    row("deregister with a window bound", deregister_with_a_window_bound(&pages));
    row("register without a connection", register_without_a_connection(&pages));
    through_two_fronts_at_once(&pages);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/FRONTS.md");
    if std::env::var_os("UPDATE_FRONTS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(path).unwrap_or_default(),
        text,
        "UPDATE_FRONTS=1 writes it"
    );
}
