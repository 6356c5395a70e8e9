//! An act, and each front's answer: the same bytes registered through v2, NDKPI and Winsock Direct
//! at once, each used as its programs use it. The table that this generates is `FRONTS.md`; the
//! test compares.

use std::fmt::Write as _;

use crate::common::{
    self, Describe as _, Pages, Ptr, another, close_all, deregister, mw, pair, register, token,
    window_token,
};
use crate::wsd::Describe as _;
use crate::{nd2, wsd};
use transom_ndkpi::flags::{mr as flag, op};
use transom_ndkpi::{Mode, Status};
use transom_winsock_direct::abi::mem;
use transom_winsock_direct::{Direction, Error, Range};

const LENGTH: u32 = 64;

fn nd(status: i32) -> String {
    nd2::name(status)
}
fn ndk(status: Status) -> String {
    format!("STATUS_{status:?}")
}
fn wsd(error: Option<Error>) -> String {
    error.map_or_else(|| "0".to_owned(), |error| format!("{error:?}"))
}
fn nd_sge(pages: &Pages, token: u32, length: u32) -> nd2::Sge {
    nd2::Sge { buffer: pages.address() as usize, length, token }
}
fn range(pages: &Pages, length: u32) -> Range {
    Range { address: pages.address(), length }
}

// ---- what a peer does ----

/// The owner's flags, the peer's act, its place, and the events before.
#[derive(Clone, Copy)]
struct Remote {
    what: &'static str,
    readable: bool,
    writable: bool,
    writes: bool,
    /// Bytes by which the last one lies past the end.
    past: u64,
    before: Before,
}

#[derive(Clone, Copy, PartialEq)]
enum Before {
    Nothing,
    /// The owner has deregistered.
    Deregistered,
    /// The peer acts over a connection that the registration does not name. In v2 and NDKPI a
    /// region names none; in Winsock Direct it is a second one between the same processes.
    Elsewhere,
    /// The connection that it was registered on is over; the peer has made another.
    Reconnected,
    /// The owner has another registration of the same bytes, with every right.
    AnotherRegistration,
}

const fn remote(what: &'static str, readable: bool, writable: bool, writes: bool) -> Remote {
    Remote { what, readable, writable, writes, past: 0, before: Before::Nothing }
}
const fn read_after(what: &'static str, before: Before) -> Remote {
    Remote { before, ..remote(what, true, false, false) }
}

const REMOTE: &[Remote] = &[
    remote("a peer reads memory open for reading", true, false, false),
    remote("a peer writes memory open for reading", true, false, true),
    remote("a peer reads memory open for writing", false, true, false),
    remote("a peer writes memory open for writing", false, true, true),
    Remote { past: 1, ..remote("a peer reads one byte past the end", true, false, false) },
    Remote { past: 1, ..remote("a peer writes one byte past the end", false, true, true) },
    read_after("a peer reads what was deregistered", Before::Deregistered),
    Remote {
        before: Before::AnotherRegistration,
        ..remote("a peer writes memory that another registration opens", true, false, true)
    },
    read_after(
        "a peer reads over a connection that the registration does not name",
        Before::Elsewhere,
    ),
    read_after("a peer reads after a reconnect", Before::Reconnected),
];

fn v2_remote(pages: &Pages, act: Remote) -> String {
    let (mut client, owner) = nd2::Side::pair();
    let pick = |on: bool, flags| if on { flags } else { 0 };
    let flags =
        pick(act.readable, nd2::flag::REMOTE_READ) | pick(act.writable, nd2::flag::REMOTE_WRITE);
    let region = owner.register(pages, flags);
    let mut others = (vec![], vec![]);
    match act.before {
        Before::Deregistered => assert_eq!(region.deregister(), 0),
        Before::AnotherRegistration => {
            let every = nd2::flag::REMOTE_READ | nd2::flag::REMOTE_WRITE;
            others.0.push(owner.register(pages, every));
        }
        Before::Elsewhere | Before::Reconnected => {
            if act.before == Before::Reconnected {
                client.disconnect();
            }
            let (second, peer) = nd2::Side::another(&client, &owner);
            others.1.extend([std::mem::replace(&mut client, second), peer]);
        }
        Before::Nothing => {}
    }
    let own = Pages::new(1);
    let sink = client.register(&own, nd2::flag::LOCAL_WRITE);
    let address = pages.address() + pages.len() as u64 - u64::from(LENGTH) + act.past;
    let sge = nd_sge(&own, sink.local(), LENGTH);
    let status = client.transfer(act.writes, sge, address, region.remote());
    drop((region, others, sink, client, owner));
    nd(status)
}

fn ndk_remote(pages: &Pages, act: Remote) -> String {
    let (client, owner) = pair(Mode::Natural);
    let pick = |on: bool, flags| if on { flags } else { 0 };
    let flags =
        pick(act.readable, flag::ALLOW_REMOTE_READ) | pick(act.writable, flag::ALLOW_REMOTE_WRITE);
    let (mr, remote) = owner.mr(pages, flags);
    let mut regions = vec![mr];
    let mut second = None;
    match act.before {
        Before::Deregistered => assert_eq!(deregister(mr).1, Status::SUCCESS),
        Before::AnotherRegistration => {
            let every = flag::ALLOW_REMOTE_READ | flag::ALLOW_REMOTE_WRITE;
            regions.push(owner.mr(pages, every).0);
        }
        Before::Elsewhere | Before::Reconnected => {
            if act.before == Before::Reconnected {
                assert_eq!(client.disconnect(), Status::SUCCESS);
            }
            second = Some(another(&client, &owner));
        }
        Before::Nothing => {}
    }
    let own = Pages::new(1);
    let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
    let address = pages.address() + pages.len() as u64 - u64::from(LENGTH) + act.past;
    let sge = own.sge(local, 0, LENGTH);
    let actor = second.as_ref().map_or(&client, |(client, _)| client);
    match act.writes {
        true => actor.write(1, &[sge], address, remote),
        false => actor.read(1, &[sge], address, remote),
    };
    let status = actor.one().1;
    let closing = second.map(|(one, other)| [one.close(), other.close()]);
    client.end(&[own_mr]);
    owner.end(&regions);
    closing.iter().flatten().flatten().for_each(|cell| cell.get());
    ndk(status)
}

fn wsd_remote(pages: &Pages, act: Remote) -> String {
    let two = wsd::Two::new();
    let pick = |on: bool, flags| if on { flags } else { 0 };
    let flags = pick(act.readable, mem::READ) | pick(act.writable, mem::WRITE);
    let whole = range(pages, pages.length());
    let provider = &two.b.provider;
    let expose = |flags| unsafe {
        provider.register_rdma_memory(two.t, whole.address, whole.length, flags).unwrap()
    };
    let target = expose(flags);
    let mut socket = two.s;
    match act.before {
        Before::Deregistered => provider.deregister_rdma_memory(two.t, &target).unwrap(),
        Before::AnotherRegistration => drop(expose(mem::READWRITE)),
        Before::Elsewhere => socket = two.another().0,
        Before::Reconnected => {
            two.a.close(two.s);
            socket = two.another().0;
        }
        Before::Nothing => {}
    }
    let (own, handle) = wsd::scratch(&two.a, socket, 0);
    let offset = pages.len() as u32 - LENGTH + act.past as u32;
    let direction = if act.writes { Direction::Write } else { Direction::Read };
    let part = (own.range(0, LENGTH), handle);
    let (error, _) = two.rdma(socket, direction, part, (&target, offset));
    two.end();
    wsd(error)
}

// ---- what the owner does ----

/// A message into memory registered so: what the receiver gets, and what the sender gets.
fn messages(pages: &Pages, writable: bool, room: u32) -> [[String; 2]; 3] {
    let own = Pages::new(1);
    let (client, owner) = nd2::Side::pair();
    let region = owner.register(pages, if writable { nd2::flag::LOCAL_WRITE } else { 0 });
    let from = client.register(&own, 0);
    assert_eq!(owner.receive(nd_sge(pages, region.local(), room)), 0);
    assert_eq!(client.send(nd_sge(&own, from.local(), LENGTH)), 0);
    let v2 = [nd(owner.one()), nd(client.one())];
    drop((region, from, client, owner));

    let (client, owner) = pair(Mode::Natural);
    let (mr, local) = owner.mr(pages, if writable { flag::ALLOW_LOCAL_WRITE } else { 0 });
    let (own_mr, from) = client.mr(&own, 0);
    assert_eq!(owner.receive(1, &[pages.sge(local, 0, room)]), Status::SUCCESS);
    assert_eq!(client.send(1, &[own.sge(from, 0, LENGTH)], 0), Status::SUCCESS);
    let ndkpi = [ndk(owner.one().1), ndk(client.one().1)];
    client.end(&[own_mr]);
    owner.end(&[mr]);

    let two = wsd::Two::new();
    let whole = range(pages, room);
    let flags = if writable { mem::READWRITE } else { mem::READ };
    unsafe { two.b.provider.register_memory(two.t, whole.address, room, flags).unwrap() };
    let answers = match two.b.receive(two.t, whole) {
        Err(error) => [format!("{error:?} (the call)"), "nothing is sent".to_owned()],
        Ok(received) => {
            let (source, _) = wsd::scratch(&two.a, two.s, 0);
            let sent = two.a.send(two.s, source.range(0, LENGTH)).unwrap();
            [wsd(two.b.ended(&received).0), wsd(two.a.ended(&sent).0)]
        }
    };
    two.end();
    [v2, ndkpi, answers]
}

fn side(answers: &[[String; 2]; 3], which: usize) -> [String; 3] {
    [0, 1, 2].map(|front| answers[front][which].clone())
}

/// A message out of memory that was not registered.
fn send_unregistered(pages: &Pages) -> [String; 3] {
    let (client, owner) = nd2::Side::pair();
    assert_eq!(client.send(nd_sge(pages, 0x1234_5678, LENGTH)), 0);
    let v2 = nd(client.one());
    drop((client, owner));

    let (client, owner) = pair(Mode::Natural);
    assert_eq!(client.send(1, &[pages.sge(0x1234_5678, 0, LENGTH)], 0), Status::SUCCESS);
    let ndkpi = ndk(client.one().1);
    client.end(&[]);
    owner.end(&[]);

    let two = wsd::Two::new();
    let answer = two.a.send(two.s, range(pages, LENGTH)).err();
    two.end();
    [v2, ndkpi, format!("{} (the call)", wsd(answer))]
}

fn deregister_with_a_receive_posted(pages: &Pages) -> [String; 3] {
    let (client, owner) = nd2::Side::pair();
    let region = owner.register(pages, nd2::flag::LOCAL_WRITE);
    assert_eq!(owner.receive(nd_sge(pages, region.local(), LENGTH)), 0);
    let v2 = nd(region.deregister());
    drop((region, client, owner));

    let (client, owner) = pair(Mode::Natural);
    let (mr, local) = owner.mr(pages, flag::ALLOW_LOCAL_WRITE);
    owner.receive(1, &[pages.sge(local, 0, LENGTH)]);
    let ndkpi = ndk(deregister(mr).1);
    client.end(&[]);
    owner.end(&[mr]);

    let two = wsd::Two::new();
    let whole = range(pages, LENGTH);
    let handle = unsafe {
        two.a.provider.register_memory(two.s, whole.address, LENGTH, mem::WRITE).unwrap()
    };
    two.a.receive(two.s, whole).unwrap();
    let answer = wsd(two.a.provider.deregister_memory(two.s, handle).err());
    two.end();
    [v2, ndkpi, answer]
}

fn deregister_twice(pages: &Pages) -> [String; 3] {
    let owner = nd2::Side::new();
    let region = owner.register(pages, 0);
    assert_eq!(region.deregister(), 0);
    let v2 = nd(region.deregister());
    drop((region, owner));

    let adapter = common::open(Mode::Natural);
    let pd = common::pd(adapter);
    let mr = common::mr(pd);
    assert_eq!(register(mr, pages.mdl().0, 8, 0).1, Status::SUCCESS);
    assert_eq!(deregister(mr).1, Status::SUCCESS);
    let ndkpi = ndk(deregister(mr).1);
    close_all(&[mr, pd]);
    common::close_adapter(adapter);

    let two = wsd::Two::new();
    let provider = &two.a.provider;
    let whole = range(pages, LENGTH);
    let handle =
        unsafe { provider.register_memory(two.s, whole.address, LENGTH, mem::READ).unwrap() };
    provider.deregister_memory(two.s, handle).unwrap();
    let answer = wsd(provider.deregister_memory(two.s, handle).err());
    two.end();
    [v2, ndkpi, answer]
}

/// With a window: deregister the region, read through it, read after its end.
fn windows(pages: &Pages) -> [[String; 3]; 4] {
    let base = pages.address();
    let own = Pages::new(1);
    let none = || "no windows".to_owned();
    let (client, owner) = nd2::Side::pair();
    let (region, sink) = (owner.register(pages, 0), client.register(&own, nd2::flag::LOCAL_WRITE));
    let (bound, remote) = owner.bind(&region, base, LENGTH as usize);
    assert_eq!(bound, 0);
    let sge = nd_sge(&own, sink.local(), LENGTH);
    let v2 = [
        nd(region.deregister()),
        nd(client.transfer(false, sge, base, remote)),
        nd(owner.invalidate()),
        nd(client.transfer(false, sge, base, remote)),
    ];
    drop((region, sink, client, owner));

    let (client, owner) = pair(Mode::Natural);
    let (mr, _) = owner.mr(pages, flag::ALLOW_LOCAL_READ);
    let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
    let window = mw(owner.pd);
    assert_eq!(owner.bind(mr, window, base, 64, op::ALLOW_REMOTE_READ), Status::SUCCESS);
    assert_eq!(owner.one().1, Status::SUCCESS);
    let (remote, sge) = (window_token(window), own.sge(local, 0, LENGTH));
    assert_ne!(remote, token(mr));
    let read = || {
        assert_eq!(client.read(1, &[sge], base, remote), Status::SUCCESS);
        ndk(client.one().1)
    };
    let (busy, first) = (ndk(deregister(mr).1), read());
    assert_eq!(owner.invalidate(window), Status::SUCCESS);
    let ndkpi = [busy, first, ndk(owner.one().1), read()];
    client.end(&[own_mr]);
    owner.end(&[window, mr]);
    [0, 1, 2, 3].map(|row| [v2[row].clone(), ndkpi[row].clone(), none()])
}

fn register_without_a_connection(pages: &Pages) -> [String; 3] {
    let owner = nd2::Side::new();
    let region = owner.try_register(pages, 0);
    let v2 = nd(region.as_ref().err().copied().unwrap_or(0));
    drop((region, owner));

    let adapter = common::open(Mode::Natural);
    let pd = common::pd(adapter);
    let mr = common::mr(pd);
    let ndkpi = ndk(register(mr, pages.mdl().0, 8, 0).1);
    close_all(&[mr, pd]);
    common::close_adapter(adapter);

    let process = wsd::Process::new();
    let socket = process.socket();
    let whole = range(pages, 8);
    let made = unsafe { process.provider.register_memory(socket, whole.address, 8, mem::READ) };
    process.provider.cleanup();
    [v2, ndkpi, wsd(made.err())]
}

// ---- the same bytes through three fronts at once ----

/// Each keeps to its own rules; one registration ends, and the others do not notice.
#[test]
fn one_region_through_all_fronts_at_once_obeys_each() {
    let pages = Pages::new(2);
    let base = pages.address();
    let own = Pages::new(1);
    own.fill(|_| 0x42);
    // v2's peer may read, NDKPI's may write, Winsock Direct's may read.
    let (v2_client, v2_owner) = nd2::Side::pair();
    let v2_region = v2_owner.register(&pages, nd2::flag::REMOTE_READ);
    let v2_sink = v2_client.register(&own, nd2::flag::LOCAL_WRITE);
    let v2_sge = nd_sge(&own, v2_sink.local(), 8);
    let (client, owner) = pair(Mode::Natural);
    let (mr, remote) = owner.mr(&pages, flag::ALLOW_REMOTE_WRITE);
    let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
    let two = wsd::Two::new();
    let target = unsafe {
        let (provider, length) = (&two.b.provider, pages.len() as u32);
        provider.register_rdma_memory(two.t, base, length, mem::READ).unwrap()
    };
    let (read, handle) = wsd::scratch(&two.a, two.s, 0);
    let part = (read.range(0, 8), handle);

    assert_eq!(client.write(1, &[own.sge(local, 0, 8)], base, remote), Status::SUCCESS);
    assert_eq!(client.one().1, Status::SUCCESS, "NDKPI's peer may write");
    assert_eq!(two.rdma(two.s, Direction::Read, part, (&target, 0)).0, None);
    assert_eq!(read.bytes()[..8], [0x42; 8], "Winsock Direct's sees it");
    own.fill(|_| 0);
    assert_eq!(v2_client.transfer(false, v2_sge, base, v2_region.remote()), 0);
    assert_eq!(own.bytes()[..8], [0x42; 8], "and v2's");

    // A registration ends; the others do not notice.
    assert_eq!(deregister(mr).1, Status::SUCCESS);
    assert_eq!(v2_client.transfer(false, v2_sge, base, v2_region.remote()), 0);
    assert_eq!(two.rdma(two.s, Direction::Read, part, (&target, 8)).0, None);
    // Nor does what one front permits help a peer of another.
    own.fill(|_| 0x99);
    assert_eq!(
        nd(v2_client.transfer(true, v2_sge, base, v2_region.remote())),
        "ND_ACCESS_VIOLATION"
    );
    let refused = two.rdma(two.s, Direction::Write, part, (&target, 0)).0;
    assert_eq!(refused, Some(Error::WSAECONNABORTED));
    assert_eq!(pages.bytes()[..8], [0x42; 8]);

    two.end();
    let regions: [Vec<Ptr>; 2] = [vec![own_mr], vec![mr]];
    [client, owner].into_iter().zip(regions).for_each(|(side, regions)| side.end(&regions));
    drop((v2_region, v2_sink, v2_client, v2_owner));
}

#[test]
fn one_act_what_each_front_answers() {
    let pages = Pages::new(2);
    let mut text = String::from(
        "# One act, three answers\n\n\
         The same bytes, registered through NetworkDirect v2 (its COM interface), NDKPI (its dispatch\n\
         tables) and Winsock Direct (its functions). Each row was observed by `cargo test -p\n\
         transom-ndkpi --test all fronts`, which also compares this file with what it sees.\n\
         Answers to a peer's act are the statuses that the peer's program gets.\n\n\
         | act | v2 | NDKPI | Winsock Direct |\n|---|---|---|---|\n",
    );
    let mut row = |what: &str, [v2, ndkpi, wsd]: [String; 3]| {
        writeln!(text, "| {what} | {v2} | {ndkpi} | {wsd} |").unwrap();
    };
    for &act in REMOTE {
        row(act.what, [v2_remote(&pages, act), ndk_remote(&pages, act), wsd_remote(&pages, act)]);
    }
    let no_right = messages(&pages, false, LENGTH);
    row("a receive into memory not registered for writing", side(&no_right, 0));
    row("- and the message that meets it, at its sender's", side(&no_right, 1));
    let too_long = messages(&pages, true, LENGTH - 1);
    row("a receive that is shorter than its message", side(&too_long, 0));
    row("- and the message that meets it, at its sender's", side(&too_long, 1));
    row("a message out of memory that is not registered", send_unregistered(&pages));
    let [busy, through, invalidated, after] = windows(&pages);
    row("deregister with a window bound", busy);
    row("a peer reads through the window", through);
    row("invalidate the window", invalidated);
    row("a peer reads through it afterwards", after);
    row("deregister with a receive posted", deregister_with_a_receive_posted(&pages));
    row("deregister twice", deregister_twice(&pages));
    row("register without a connection", register_without_a_connection(&pages));
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
