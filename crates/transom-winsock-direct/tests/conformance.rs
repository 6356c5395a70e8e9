//! The extension functions (WSD 2.4), and the rules of the switch (WSD 8, A-21, A-24, A-25) on the
//! example's small switch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod common;
#[path = "../examples/move_file.rs"]
mod move_file;
use common::*;
use transom_winsock_direct::abi::*;
use transom_winsock_direct::extension::{EXTENSIONS, Extension, Offers, find};
use transom_winsock_direct::{Direction, Error, Operation, Options, Provider};

transom_testing::over_both_paths!(path_holds());

/// The seven identifiers as their references print them.
const PRINTED: [&str; 7] = [
    "C0B422F5-F58C-11D1-AD6C-00C04FA34A2D",
    "C0B422F6-F58C-11D1-AD6C-00C04FA34A2D",
    "C0B422F7-F58C-11D1-AD6C-00C04FA34A2D",
    "C0B422F8-F58C-11D1-AD6C-00C04FA34A2D",
    "C0B422F9-F58C-11D1-AD6C-00C04FA34A2D",
    "C0B422FA-F58C-11D1-AD6C-00C04FA34A2D",
    "E5DA4AF8-D824-48CD-A799-6337A98ED2AF",
];

fn printed(guid: &Guid) -> String {
    let tail: String = guid.data4.iter().map(|byte| format!("{byte:02X}")).collect();
    let (middle, end) = tail.split_at(4);
    format!("{:08X}-{:04X}-{:04X}-{middle}-{end}", guid.data1, guid.data2, guid.data3)
}

/// WSD W1: each identifier names its function; the two optional functions may be absent.
#[test]
fn w01_extensions_by_guid() {
    use Extension::*;
    let functions = [
        RegisterMemory,
        DeregisterMemory,
        RegisterRdmaMemory,
        DeregisterRdmaMemory,
        RdmaWrite,
        RdmaRead,
        MemoryRegistrationCacheCallback,
    ];
    let known = EXTENSIONS.map(|(guid, extension)| (printed(&guid), extension));
    assert_eq!(known, std::array::from_fn(|i| (PRINTED[i].to_owned(), functions[i])));
    for (guid, extension) in EXTENSIONS {
        assert_eq!(find(&guid, Offers::default()), Ok(extension));
        let optional =
            matches!(extension, Extension::RdmaRead | Extension::MemoryRegistrationCacheCallback);
        let found = find(&guid, Offers { rdma_read: false, cache_callback: false });
        assert_eq!(found.err(), optional.then_some(Error::WSAEOPNOTSUPP));
    }
    let unknown = Guid { data1: 1, ..EXTENSIONS[0].0 };
    assert_eq!(find(&unknown, Offers::default()), Err(Error::WSAEINVAL));
}

/// WSD W15: what exceeds the threshold goes by RDMA; what equals it goes in a message.
#[test]
fn w15_the_threshold_is_the_last_size_of_a_message() {
    for reads in [true, false] {
        for (beyond, by_rdma) in [(0, false), (1, true)] {
            let file = vec![7; transom_winsock_direct::RDMA_THRESHOLD as usize + beyond];
            let moved = session(reads, &file, |receiver, session| {
                let bytes = session.receive_all(reads).unwrap();
                assert!(bytes == file);
                session.report(&bytes).unwrap();
                receiver.moved(session.socket).unwrap().1
            });
            let (fetched, written) = moved;
            assert_eq!([fetched > 0, written > 0], [by_rdma && reads, by_rdma && !reads]);
        }
    }
}

/// WSD W16, W17: a file by read rendezvous and by write rendezvous; at least 90 % of its bytes by
/// RDMA (asserted in `serve`).
#[test]
fn w17_files_move_by_read_and_by_write() {
    for reads in [true, false] {
        let file: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 253) as u8).collect();
        session(reads, &file, |receiver, session| {
            let bytes = session.receive_all(reads).unwrap();
            assert!(bytes == file);
            let registered = receiver.registered(session.socket);
            assert_eq!(registered, Ok((2, 0)), "gone with the transfer");
            let (_, rdma) = receiver.moved(session.socket).unwrap();
            assert_eq!(rdma, if reads { file.len() - 1024 } else { 0 });
            session.report(&bytes).unwrap();
        });
    }
}

/// The example's small switch: `act` receives what another thread serves. The result of `act`, and the
/// bytes that the serving side moved by RDMA.
fn session<T>(
    reads: bool,
    file: &[u8],
    act: impl FnOnce(&Provider, &mut move_file::Session) -> T,
) -> (T, usize) {
    let (sender, receiver) =
        (move_file::provider(reads).unwrap(), move_file::provider(reads).unwrap());
    let (listener, at) = move_file::listen(&sender).unwrap();
    let moved = std::thread::scope(|scope| {
        let serving = scope.spawn(|| move_file::serve(&sender, listener, file, reads).unwrap());
        let socket = receiver.open_socket((2, 1, 6), 0, 1).unwrap();
        receiver.connect(socket, at).unwrap();
        let mut session = move_file::Session::start(&receiver, socket, reads).unwrap();
        let result = act(&receiver, &mut session);
        (result, serving.join().unwrap())
    });
    sender.cleanup();
    receiver.cleanup();
    moved
}

/// WSD A-24: two regions per socket, and for small messages nothing else: no RDMA registration.
#[test]
fn a24_small_messages_need_two_regions_and_no_rdma() {
    session(true, &[5; 1000], |receiver, session| {
        assert_eq!(receiver.registered(session.socket), Ok((2, 0)));
        let bytes = session.receive_all(true).unwrap();
        assert_eq!(bytes, [5; 1000]);
        assert_eq!(receiver.registered(session.socket), Ok((2, 0)));
        assert_eq!(receiver.moved(session.socket).unwrap().1, 0);
        session.report(&bytes).unwrap();
    });
}

/// WSD A-25: the sending region is for sending only, the receiving region for receiving only.
#[test]
fn a25_each_region_serves_one_direction() {
    session(true, &[5; 1000], |receiver, session| {
        let (sending, receiving) = session.regions();
        let no = Some(Error::WSAEFAULT);
        let try_it = |f: &dyn Fn(Operation) -> Result<(), Error>| Op::begin(true, f).err();
        assert_eq!(try_it(&|op| receiver.receive(session.socket, &[sending], 0, op)), no);
        assert_eq!(try_it(&|op| receiver.send(session.socket, &[receiving], 0, op)), no);
        let bytes = session.receive_all(true).unwrap();
        session.report(&bytes).unwrap();
    });
}

/// WSD A-21: what no transfer uses can be deregistered before the socket is closed.
#[test]
fn a21_unused_memory_is_deregistered_before_the_close() {
    let two = Two::new();
    let (sending, receiving) = (Pages::new(1), Pages::new(1));
    let one = two.a.register(two.s, &sending, mem::READ);
    let other = two.a.register(two.s, &receiving, mem::WRITE);
    let receive = two.a.receive(two.s, receiving.range(0, 64)).unwrap();
    assert_eq!(two.a.provider.deregister_memory(two.s, one), Ok(()));
    assert_eq!(two.a.provider.deregister_memory(two.s, other), Err(Error::WSAEINVAL));
    two.a.close(two.s);
    assert_eq!(two.a.ended(&receive).0, Some(Error::WSA_OPERATION_ABORTED));
    two.end();
}

/// WSD W8 with RDMA Read withheld: the function says so.
#[test]
fn w01_without_rdma_read_the_function_is_absent() {
    let offers = Offers { rdma_read: false, cache_callback: true };
    let two = Two::with(Options { offers });
    let (own, handle) = scratch(&two.a, two.s, 1);
    let target = two.b.expose(two.t, &Pages::of(0), mem::READWRITE);
    let read = two.a.rdma(two.s, Direction::Read, (own.range(0, 8), handle), (&target, 0));
    assert_eq!(read.err(), Some(Error::WSAEOPNOTSUPP));
    two.end();
}
