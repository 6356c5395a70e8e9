//! The access rules (WSD 10, A-1 to A-30), one test each, named after it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod common;
use common::mapping::*;
use common::*;
use transom_winsock_direct::abi::mem;
use transom_winsock_direct::descriptor::Descriptor;
use transom_winsock_direct::extension::Offers;
use transom_winsock_direct::{Direction, Error, Handle, Options, Range};

const READ: Direction = Direction::Read;
const WRITE: Direction = Direction::Write;

transom_testing::over_both_paths!(path_holds());

#[test]
fn a01_every_buffer_must_be_registered() {
    let two = Two::new();
    let (pages, handle) = scratch(&two.a, two.s, 1);
    let stranger = Pages::of(2);
    let part = stranger.range(0, 8);
    assert_eq!(two.a.send(two.s, part).err(), Some(Error::WSAEFAULT));
    assert_eq!(two.a.receive(two.s, part).err(), Some(Error::WSAEFAULT));
    let target = two.b.expose(two.t, &Pages::of(0), mem::READWRITE);
    for direction in [READ, WRITE] {
        let by = |handle| two.a.rdma(two.s, direction, (part, handle), (&target, 0)).err();
        assert_eq!(by(Handle(0x77)), Some(Error::WSAEFAULT));
        assert_eq!(by(handle), Some(Error::WSAEFAULT), "a handle of other memory");
    }
    assert!(two.a.send(two.s, pages.range(0, 8)).is_ok());
    two.end();
}

#[test]
fn a02_a_registration_needs_a_connected_socket() {
    let two = Two::new();
    let pages = Pages::new(1);
    let fresh = two.a.socket();
    let closed = two.a.socket();
    two.a.close(closed);
    for (process, socket, error) in [
        (&two.a, fresh, Error::WSAENOTCONN),
        (&two.b, two.listener, Error::WSAENOTCONN),
        (&two.a, closed, Error::WSAENOTSOCK),
        (&two.a, 1, Error::WSAENOTSOCK),
    ] {
        assert_eq!(process.try_register(socket, &pages, mem::READ), Err(error));
        assert_eq!(process.try_expose(socket, &pages, mem::READ), Err(error));
    }
    // WSD W4: a failed socket says how it failed, from the first call on that finds it out.
    two.a.close(two.s);
    if two.b.try_register(two.t, &pages, mem::WRITE).is_ok() {
        let told = two.b.receive(two.t, pages.range(0, 8));
        let error = told.map_or_else(Some, |op| two.b.ended(&op).0);
        assert_eq!(error, Some(Error::WSAECONNRESET));
    }
    let failed = two.b.try_register(two.t, &pages, mem::READ);
    assert_eq!(failed, Err(Error::WSAECONNRESET));
    two.end();
}

#[test]
fn a03_local_memory_is_never_open_to_a_peer() {
    let two = Two::new();
    let (own, handle) = scratch(&two.a, two.s, 1);
    let secret = Pages::of(9);
    two.b.register(two.t, &secret, mem::READWRITE);
    // A genuine descriptor, bent to where the other memory really lies.
    let exposed = Pages::of(0);
    let genuine = Descriptor::decode(&two.b.expose(two.t, &exposed, mem::READWRITE)).unwrap();
    let forged = Descriptor { base: secret.address(), ..genuine }.encode();
    let (error, _) = two.rdma(two.s, READ, (own.range(0, 8), handle), (&forged, 0));
    assert_eq!(error, Some(Error::WSAECONNABORTED));
    assert!(own.is_all(1));
    two.end();
}

const OTHER_PROCESS: &str = "TRANSOM_A04_PEER";

/// WSD A-4. The other process's half is `a04_the_other_process`.
#[test]
fn a04_a_handle_means_nothing_in_another_process() {
    let b = Process::new();
    let listener = b.listener(1);
    let at = b.provider.local_address(listener).unwrap();
    let mut other = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["a04_the_other_process", "--exact", "--nocapture"])
        .env(OTHER_PROCESS, at.to_string())
        .spawn()
        .unwrap();
    let socket = b.accept(listener).unwrap();
    let (pages, _) = scratch(&b, socket, 1);
    // The other process has few registrations, so this value is none of its own handles.
    let handles = [(); 100].map(|()| b.register(socket, &pages, mem::READWRITE));
    let handle = handles[99];
    let target = b.expose(socket, &pages, mem::READWRITE);
    let mut letter = [0; 32];
    letter[..8].copy_from_slice(&(handle.0 as u64).to_ne_bytes());
    letter[8..16].copy_from_slice(&pages.address().to_ne_bytes());
    letter[16..].copy_from_slice(&target);
    let text = Pages::new(1);
    text.fill(|i| letter.get(i).copied().unwrap_or(0));
    b.register(socket, &text, mem::READ);
    let sent = b.send(socket, text.range(0, 32)).unwrap();
    assert_eq!(b.ended(&sent), (None, 32));
    assert!(other.wait().unwrap().success(), "see what the other process has printed");
    assert!(pages.is_all(1));
    b.provider.cleanup();
}

/// The other process of WSD A-4: has a handle and an address that mean something to its peer.
/// Without the peer's address it does nothing.
#[test]
fn a04_the_other_process() {
    let Ok(at) = std::env::var(OTHER_PROCESS) else { return };
    let a = Process::new();
    let socket = a.socket();
    a.provider.connect(socket, at.parse().unwrap()).unwrap();
    let (own, own_handle) = scratch(&a, socket, 2);
    let received = a.receive(socket, own.range(0, 32)).unwrap();
    assert_eq!(a.ended(&received), (None, 32));
    let letter = own.bytes();
    let word = |at: usize| u64::from_ne_bytes(letter[at..at + 8].try_into().unwrap());
    let (handle, theirs) = (Handle(word(0) as usize), Range { address: word(8), length: 8 });
    let target = &letter[16..32];
    for direction in [READ, WRITE] {
        for part in [(own.range(0, 8), handle), (theirs, handle), (theirs, own_handle)] {
            let by = a.rdma(socket, direction, part, (target, 0)).err();
            assert_eq!(by, Some(Error::WSAEFAULT), "{direction:?} {part:?}");
        }
    }
    assert_eq!(a.send(socket, theirs).err(), Some(Error::WSAEFAULT));
    assert_eq!(a.receive(socket, theirs).err(), Some(Error::WSAEFAULT));
    assert_eq!(a.provider.deregister_memory(socket, handle), Err(Error::WSAEINVAL));
    // Memory that the peer has shown, on the other hand, is there.
    let op = a.rdma(socket, READ, (own.range(0, 8), own_handle), (target, 0)).unwrap();
    assert_eq!(a.ended(&op), (None, 8));
    a.provider.cleanup();
}

#[test]
fn a05_a_handle_belongs_to_its_socket() {
    let two = Two::new();
    let (other, _) = two.another();
    let (pages, handle) = scratch(&two.a, two.s, 1);
    assert_eq!(two.a.send(other, pages.range(0, 8)).err(), Some(Error::WSAEFAULT));
    assert_eq!(two.a.receive(other, pages.range(0, 8)).err(), Some(Error::WSAEFAULT));
    let target = two.b.expose(two.t, &pages, mem::READWRITE);
    let by = two.a.rdma(other, WRITE, (pages.range(0, 8), handle), (&target, 0)).err();
    assert_eq!(by, Some(Error::WSAEFAULT));
    // With a registration of its own the other socket may.
    two.a.register(other, &pages, mem::READ);
    assert!(two.a.send(other, pages.range(0, 8)).is_ok());
    two.end();
}

#[test]
fn a06_one_handle_serves_all_four_roles() {
    let two = Two::new();
    let (own, handle) = scratch(&two.a, two.s, 1);
    let (theirs, _) = scratch(&two.b, two.t, 2);
    let exposed = Pages::of(3);
    let target = two.b.expose(two.t, &exposed, mem::READWRITE);
    let received = two.b.receive(two.t, theirs.range(0, 16)).unwrap();
    let sent = two.a.send(two.s, own.range(0, 16)).unwrap();
    assert_eq!(two.a.ended(&sent), (None, 16));
    assert_eq!(two.b.ended(&received), (None, 16));
    let read = two.rdma(two.s, READ, (own.range(16, 16), handle), (&target, 0));
    assert_eq!(read, (None, 16));
    let written = two.rdma(two.s, WRITE, (own.range(0, 16), handle), (&target, 64));
    assert_eq!(written, (None, 16));
    let received = two.a.receive(two.s, own.range(32, 16)).unwrap();
    two.b.send(two.t, theirs.range(64, 16)).unwrap();
    assert_eq!(two.a.ended(&received), (None, 16));
    assert_eq!(own.bytes()[..48], [[1; 16], [3; 16], [2; 16]].concat());
    assert_eq!(exposed.bytes()[64..80], [1; 16]);
    two.end();
}

#[test]
fn a07_a_descriptor_is_for_one_connection_only() {
    let two = Two::new();
    let exposed = Pages::of(5);
    let target = two.b.expose(two.t, &exposed, mem::READWRITE);
    // Another connection of the same process, and a third process.
    let (other, _) = two.another();
    let third = Process::new();
    let (s3, _) = connect(&third, &two.b, two.listener);
    for (process, socket) in [(&two.a, other), (&third, s3)] {
        let (own, handle) = scratch(process, socket, 1);
        for direction in [READ, WRITE] {
            let Ok(op) = process.rdma(socket, direction, (own.range(0, 8), handle), (&target, 0))
            else {
                continue; // the connection has failed by the first attempt
            };
            assert!(process.ended(&op).0.is_some());
        }
        assert!(own.is_all(1));
    }
    assert!(exposed.is_all(5));
    // The socket's own connection did not notice.
    let (own, handle) = scratch(&two.a, two.s, 1);
    let read = two.rdma(two.s, READ, (own.range(0, 8), handle), (&target, 0));
    assert_eq!(read, (None, 8));
    third.provider.cleanup();
    two.end();
}

#[test]
fn a08_a_descriptor_does_not_survive_a_reconnect() {
    let two = Two::new();
    let exposed = Pages::of(5);
    let target = two.b.expose(two.t, &exposed, mem::READWRITE);
    two.a.close(two.s);
    let (again, _) = two.another();
    let (own, handle) = scratch(&two.a, again, 1);
    let (error, _) = two.rdma(again, READ, (own.range(0, 8), handle), (&target, 0));
    assert_eq!(error, Some(Error::WSAECONNABORTED));
    assert!(own.is_all(1));
    two.end();
}

#[test]
fn a09_descriptors_are_for_peers_and_handles_for_this_side() {
    let two = Two::new();
    let pages = Pages::of(1);
    let mine = two.a.expose(two.s, &pages, mem::READWRITE);
    assert_eq!(two.a.send(two.s, pages.range(0, 8)).err(), Some(Error::WSAEFAULT));
    assert_eq!(two.a.receive(two.s, pages.range(0, 8)).err(), Some(Error::WSAEFAULT));
    let token = Descriptor::decode(&mine).unwrap().token as usize;
    let target = two.b.expose(two.t, &Pages::of(0), mem::READWRITE);
    let local = two.a.rdma(two.s, WRITE, (pages.range(0, 8), Handle(token)), (&target, 0));
    assert_eq!(local.err(), Some(Error::WSAEFAULT), "a token is no handle");
    let (own, handle) = scratch(&two.a, two.s, 2);
    let as_target = handle.0.to_ne_bytes();
    let remote = two.a.rdma(two.s, WRITE, (own.range(0, 8), handle), (&as_target, 0));
    assert_eq!(remote.err(), Some(Error::WSAEINVAL), "a handle is no descriptor");
    two.end();
}

#[test]
fn a10_access_ends_with_the_registration() {
    for direction in [READ, WRITE] {
        let two = Two::new();
        let (own, handle) = scratch(&two.a, two.s, 1);
        let exposed = Pages::of(5);
        let target = two.b.expose(two.t, &exposed, mem::READWRITE);
        assert_eq!(two.rdma(two.s, READ, (own.range(0, 8), handle), (&target, 0)).0, None);
        two.b.provider.deregister_rdma_memory(two.t, &target).unwrap();
        // Memory registered again is another registration (WSD 9.2, 9.4).
        let again = two.b.expose(two.t, &exposed, mem::READWRITE);
        assert_ne!(again, target);
        let (error, _) = two.rdma(two.s, direction, (own.range(64, 8), handle), (&target, 0));
        assert_eq!(error, Some(Error::WSAECONNABORTED));
        assert!(exposed.is_all(5));
        assert_eq!(own.bytes()[64..72], [1; 8]);
        two.end();
    }
}

#[test]
fn a11_access_ends_with_the_connection() {
    let two = Two::new();
    let (own, handle) = scratch(&two.a, two.s, 1);
    let exposed = Pages::of(5);
    let target = two.b.expose(two.t, &exposed, mem::READWRITE);
    two.b.close(two.t);
    if let Ok(op) = two.a.rdma(two.s, WRITE, (own.range(0, 8), handle), (&target, 0)) {
        assert!(two.a.ended(&op).0.is_some());
    }
    assert!(exposed.is_all(5));
    // Also at the side that did not close, before its switch has closed or deregistered anything.
    let (s, t) = two.another();
    let (theirs, _) = scratch(&two.b, t, 2);
    let shown = Pages::of(6);
    two.b.expose(t, &shown, mem::READWRITE);
    let receive = two.b.receive(t, theirs.range(0, 8)).unwrap();
    two.a.close(s);
    assert_eq!(two.b.ended(&receive).0, Some(Error::WSAECONNRESET));
    for pages in [&theirs, &shown] {
        let gone = two.b.provider.memory_goes_away(pages.address(), 4096);
        assert_eq!(gone, Err(Error::WSAEINVAL), "nothing of it is open to anybody");
    }
    // Nor through any later connection, though it was never deregistered.
    let (again, _) = two.another();
    let (own, handle) = scratch(&two.a, again, 1);
    assert!(two.rdma(again, WRITE, (own.range(0, 8), handle), (&target, 0)).0.is_some());
    assert!(exposed.is_all(5));
    two.end();
}

/// WSD are one matrix (WSD W8): for each set of flags, the sides that can read and
/// those that can write.
fn remote_matrix(flags: u32, direction: Direction) -> bool {
    let two = Two::new();
    let (own, handle) = scratch(&two.a, two.s, 1);
    let exposed = Pages::of(5);
    let target = two.b.expose(two.t, &exposed, flags);
    let (error, _) = two.rdma(two.s, direction, (own.range(0, 8), handle), (&target, 0));
    let moved = match direction {
        READ => own.bytes()[..8] == [5; 8],
        WRITE => exposed.bytes()[..8] == [1; 8],
    };
    assert_eq!(error.is_none(), moved, "nothing moves that fails");
    two.end();
    moved
}

/// Whether it can be sent, received into, the source of a write, the target of a read.
fn local_matrix(flags: u32) -> [bool; 4] {
    let two = Two::new();
    let own = Pages::of(1);
    let handle = two.a.register(two.s, &own, flags);
    let target = two.b.expose(two.t, &Pages::of(0), mem::READWRITE);
    let part = own.range(0, 8);
    let judged = |result: Result<Op, Error>| match result {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error, Error::WSAEFAULT);
            false
        }
    };
    let found = [
        judged(two.a.send(two.s, part)),
        judged(two.a.receive(two.s, part)),
        judged(two.a.rdma(two.s, WRITE, (part, handle), (&target, 0))),
        judged(two.a.rdma(two.s, READ, (part, handle), (&target, 0))),
    ];
    two.end();
    found
}

#[test]
fn a12_read_only_memory_is_not_written() {
    assert!(!remote_matrix(mem::READ, WRITE));
    assert!(remote_matrix(mem::WRITE, WRITE));
    assert!(remote_matrix(mem::READWRITE, WRITE));
    assert_eq!(local_matrix(mem::READ), [true, false, true, false]);
    assert_eq!(local_matrix(mem::READWRITE), [true; 4]);
}

#[test]
fn a13_write_only_memory_is_not_read() {
    assert!(!remote_matrix(mem::WRITE, READ));
    assert!(remote_matrix(mem::READ, READ));
    assert!(remote_matrix(mem::READWRITE, READ));
    assert_eq!(local_matrix(mem::WRITE), [false, true, false, true]);
}

#[test]
fn a14_exactly_the_registered_bytes_are_exposed() {
    for (offset, length, inside) in [
        (0, 100, true),
        (99, 1, true),
        (0, 101, false),
        (100, 1, false),
        (1, 100, false),
        (u32::MAX, 1, false),
        (u32::MAX, 100, false),
    ] {
        let two = Two::new();
        let (own, handle) = scratch(&two.a, two.s, 1);
        let exposed = Pages::of(5);
        // 100 bytes in the middle of a page: the rest of the page is not exposed.
        let target = unsafe {
            two.b.provider.register_rdma_memory(two.t, exposed.address() + 50, 100, mem::WRITE)
        };
        let part = (own.range(0, length), handle);
        let (error, _) = two.rdma(two.s, WRITE, part, (&target.unwrap(), offset));
        assert_eq!(error.is_none(), inside, "offset {offset} length {length}");
        let bytes = exposed.bytes();
        assert!(bytes[..50].iter().chain(&bytes[150..]).all(|&byte| byte == 5));
        assert_eq!(bytes.contains(&1), inside);
        two.end();
    }
    // A base at the end of the address space: the sum wraps, and names nothing.
    let two = Two::new();
    let (own, handle) = scratch(&two.a, two.s, 1);
    let exposed = Pages::of(5);
    let genuine = two.b.expose(two.t, &exposed, mem::WRITE);
    let genuine = Descriptor::decode(&genuine).unwrap();
    let wrapping = Descriptor { base: u64::MAX - 3, ..genuine }.encode();
    assert!(two.rdma(two.s, WRITE, (own.range(0, 8), handle), (&wrapping, 0)).0.is_some());
    assert!(exposed.is_all(5));
    two.end();
}

#[test]
fn a15_descriptors_hold_no_pointer_or_handle_of_the_process() {
    let two = Two::new();
    let pages = Pages::of(5);
    let local = two.b.register(two.t, &pages, mem::READ);
    let first = two.b.expose(two.t, &pages, mem::READ);
    let second = two.b.expose(two.t, &pages, mem::READ);
    let (one, other) = (Descriptor::decode(&first).unwrap(), Descriptor::decode(&second).unwrap());
    assert_ne!(one.base, other.base, "made up anew each time");
    for descriptor in [one, other] {
        assert_ne!(descriptor.base, pages.address());
        assert_ne!(descriptor.base, local.0 as u64);
        // Not the address with something added, either: nothing is mapped there.
        assert!(transom_engine::raw::check_pages(descriptor.base, 1, false).is_err());
    }
    two.end();
}

#[test]
fn a16_guessed_tokens_of_another_connection_fail() {
    let two = Two::new();
    let exposed = Pages::of(5);
    let genuine = Descriptor::decode(&two.b.expose(two.t, &exposed, mem::READWRITE)).unwrap();
    for near in [genuine.token ^ 1, genuine.token ^ 0x8000_0000, genuine.token.swap_bytes(), 1] {
        let (socket, _) = two.another();
        let (own, handle) = scratch(&two.a, socket, 1);
        let guess = Descriptor { token: near, ..genuine }.encode();
        assert!(two.rdma(socket, READ, (own.range(0, 8), handle), (&guess, 0)).0.is_some());
        assert!(own.is_all(1));
    }
    two.end();
}

#[test]
fn a17_each_registration_ends_by_itself() {
    let two = Two::new();
    let (other, other_peer) = two.another();
    let pages = Pages::of(5);
    let read = two.b.expose(two.t, &pages, mem::READ);
    let both = two.b.expose(other_peer, &pages, mem::READWRITE);
    two.b.provider.deregister_rdma_memory(two.t, &read).unwrap();
    let (own, handle) = scratch(&two.a, other, 1);
    assert_eq!(two.rdma(other, READ, (own.range(0, 8), handle), (&both, 0)).0, None);
    assert_eq!(two.rdma(other, WRITE, (own.range(8, 8), handle), (&both, 0)).0, None);
    let (own, handle) = scratch(&two.a, two.s, 1);
    assert!(two.rdma(two.s, READ, (own.range(0, 8), handle), (&read, 0)).0.is_some());
    // Local ones: two registrations, two ends.
    let (pages, first) = scratch(&two.b, other_peer, 1);
    let second = two.b.register(other_peer, &pages, mem::READ);
    two.b.provider.deregister_memory(other_peer, first).unwrap();
    assert!(two.b.send(other_peer, pages.range(0, 8)).is_ok());
    let gone = two.b.receive(other_peer, pages.range(0, 8)).err();
    assert_eq!(gone, Some(Error::WSAEFAULT), "only reading is left");
    assert_ne!(first, second);
    two.end();
}

#[test]
fn a18_memory_in_use_cannot_be_deregistered() {
    let two = Two::new();
    let (pages, handle) = scratch(&two.a, two.s, 1);
    let (theirs, _) = scratch(&two.b, two.t, 2);
    let receives = [0, 16].map(|at| two.a.receive(two.s, pages.range(at, 16)).unwrap());
    for (index, receive) in receives.iter().enumerate() {
        let busy = two.a.provider.deregister_memory(two.s, handle);
        assert_eq!(busy, Err(Error::WSAEINVAL), "receive {index} is under way");
        two.b.send(two.t, theirs.range(0, 16)).unwrap();
        assert_eq!(two.a.ended(receive), (None, 16), "and intact");
    }
    assert_eq!(two.a.provider.deregister_memory(two.s, handle), Ok(()));
    two.end();
}

#[test]
fn a19_unknown_registrations_cannot_be_deregistered() {
    let two = Two::new();
    let (pages, handle) = scratch(&two.a, two.s, 1);
    let descriptor = two.a.expose(two.s, &pages, mem::READ);
    let local = |handle| two.a.provider.deregister_memory(two.s, handle);
    let remote = |bytes: &[u8]| two.a.provider.deregister_rdma_memory(two.s, bytes);
    assert_eq!((local(handle), local(handle)), (Ok(()), Err(Error::WSAEINVAL)));
    assert_eq!(local(Handle(0)), Err(Error::WSAEINVAL));
    assert_eq!(remote(&descriptor[..15]), Err(Error::WSAEINVAL));
    assert_eq!(remote(&[7; 16]), Err(Error::WSAEINVAL));
    assert_eq!((remote(&descriptor), remote(&descriptor)), (Ok(()), Err(Error::WSAEINVAL)));
    two.end();
}

#[test]
fn a20_only_the_socket_of_the_registration_deregisters() {
    let two = Two::new();
    let (other, _) = two.another();
    let (pages, handle) = scratch(&two.a, two.s, 1);
    let descriptor = two.a.expose(two.s, &pages, mem::READ);
    let provider = &two.a.provider;
    assert_eq!(provider.deregister_memory(other, handle), Err(Error::WSAEINVAL));
    assert_eq!(provider.deregister_rdma_memory(other, &descriptor), Err(Error::WSAEINVAL));
    assert_eq!(provider.deregister_memory(two.s, handle), Ok(()));
    assert_eq!(provider.deregister_rdma_memory(two.s, &descriptor), Ok(()));
    two.end();
}

#[test]
fn a22_close_releases_what_is_left() {
    let two = Two::new();
    let (pages, _) = scratch(&two.a, two.s, 1);
    two.a.expose(two.s, &pages, mem::READ);
    let receive = two.a.receive(two.s, pages.range(0, 16)).unwrap();
    assert_eq!(two.a.provider.registered(two.s), Ok((1, 1)));
    two.a.close(two.s);
    assert_eq!(two.a.ended(&receive).0, Some(Error::WSA_OPERATION_ABORTED));
    assert_eq!(two.a.provider.registered(two.s), Err(Error::WSAENOTSOCK));
    // The memory is the program's again: nothing of the provider knows it any more.
    let gone = two.a.provider.memory_goes_away(pages.address(), u64::from(pages.length()));
    assert_eq!(gone, Err(Error::WSAEINVAL));
    two.end();
}

#[test]
fn a23_memory_is_released_before_the_abort_is_signalled() {
    let two = Two::new();
    let (pages, _) = scratch(&two.a, two.s, 1);
    let (provider, range) = (two.a.provider.clone(), (pages.address(), pages.length()));
    // Inside the upcall nothing of the provider's may still know the memory.
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let note = seen.clone();
    *two.a.switch.on_complete.lock().unwrap() = Some(Box::new(move |_| {
        note.lock().unwrap().push(provider.memory_goes_away(range.0, u64::from(range.1)));
    }));
    let first = two.a.receive(two.s, pages.range(0, 16)).unwrap();
    let second = two.a.receive(two.s, pages.range(16, 16)).unwrap();
    two.a.close(two.s);
    for op in [first, second] {
        assert_eq!(two.a.ended(&op).0, Some(Error::WSA_OPERATION_ABORTED));
    }
    assert_eq!(*seen.lock().unwrap(), [Err(Error::WSAEINVAL); 2]);
    two.end();
}

/// Register a range for both uses: both succeed, or both fail alike and leave nothing.
fn both(two: &Two, range: Range, flags: u32) -> Option<Error> {
    let (locals, remotes) = two.b.provider.registered(two.t).unwrap();
    let local = two.b.try_register_range(two.t, range, flags);
    let remote = two.b.try_expose_range(two.t, range, flags);
    assert_eq!(local.err(), remote.err());
    let more = usize::from(local.is_ok());
    assert_eq!(two.b.provider.registered(two.t), Ok((locals + more, remotes + more)));
    local.err()
}

#[test]
fn a26_buffers_must_lie_in_memory_of_the_process() {
    let two = Two::new();
    let fault = Some(Error::WSAEFAULT);
    let part = |address, length| both(&two, Range { address, length }, mem::READ);
    for (address, length) in
        [(0, 4096), (0x0000_6b6b_0000_0000, 8), (0xffff_8000_0000_0000, 8), (u64::MAX, 2)]
    {
        assert_eq!(part(address, length), fault, "{address:#x}");
    }
    let pages = Mapping::of(4, 1);
    let (at, size) = (pages.address(), PAGE as u64);
    assert_eq!(part(at, 0), Some(Error::WSAEINVAL), "no bytes");
    assert_eq!(part(0, 0), fault, "NULL");
    assert_eq!(part(at, 3 * 4096), None);
    // Memory that was registered before, and deregistered, is looked at like everything else.
    let handle = two.b.try_register_range(two.t, pages.range(), mem::READ).unwrap();
    let target = two.b.try_expose_range(two.t, pages.range(), mem::READ).unwrap();
    two.b.provider.deregister_memory(two.t, handle).unwrap();
    two.b.provider.deregister_rdma_memory(two.t, &target).unwrap();
    pages.unmap(3, 1);
    assert_eq!(both(&two, pages.range(), mem::READ), fault, "the last page is unmapped");
    assert_eq!(part(at, 3 * 4096 + 1), fault, "one byte of it");
    assert_eq!(part(at, 3 * 4096), None, "up to it");
    pages.protect(1, MprotectFlags::empty());
    assert_eq!(part(at, 3 * 4096), fault, "a page in the middle cannot be read");
    assert_eq!(part(at, 4096), None);
    assert_eq!(part(at + 2 * size, 4096), None);
    two.end();
}

#[test]
fn a27_read_only_pages_cannot_be_registered_for_writing() {
    let two = Two::new();
    let pages = Mapping::of(2, 3);
    let each = || [mem::READ, mem::WRITE, mem::READWRITE].map(|f| both(&two, pages.range(), f));
    assert_eq!(each(), [None; 3]);
    // Deregistering them all makes no difference, nor does one page that can be written.
    two.b.close(two.t);
    let two = Two::new();
    pages.protect(1, MprotectFlags::READ);
    let fault = Some(Error::WSAEFAULT);
    let each = [mem::READ, mem::WRITE, mem::READWRITE].map(|f| both(&two, pages.range(), f));
    assert_eq!(each, [None, fault, fault]);
    two.end();
}

#[test]
fn a28_memory_that_goes_away_takes_its_registrations_along() {
    let fault = Some(Error::WSAEFAULT);
    // The part of the two pages that goes away: one byte is enough.
    for (page, at, length) in [(0, 0, 8192), (0, 0, 1), (0, 4095, 1), (1, 4096, 4096), (1, 8191, 9)]
    {
        for direction in [READ, WRITE] {
            let two = Two::new();
            let (own, handle) = scratch(&two.a, two.s, 1);
            let pages = Mapping::of(2, 2);
            let goes = || two.b.provider.memory_goes_away(pages.address() + at, length);
            assert_eq!(goes(), Err(Error::WSAEINVAL), "never registered");
            let local = two.b.try_register_range(two.t, pages.range(), mem::READWRITE).unwrap();
            let target = two.b.try_expose_range(two.t, pages.range(), mem::READWRITE).unwrap();
            assert_eq!(goes(), Ok(()));
            assert_eq!(goes(), Err(Error::WSAEINVAL), "nothing of it is left");
            // Now it may go; and a later allocation lies where it was.
            let count = if length > 4096 { 2 } else { 1 };
            pages.unmap(page, count);
            assert_eq!(both(&two, pages.range(), mem::READWRITE), fault);
            pages.map_again(page, count, 3);
            let before = pages.bytes();
            // Neither side reaches it by what was registered.
            assert_eq!(two.b.send(two.t, pages.range()).err(), fault);
            let (error, _) = two.rdma(two.s, direction, (own.range(0, 64), handle), (&target, 0));
            assert_eq!(error, Some(Error::WSAECONNABORTED));
            assert!(own.is_all(1) && pages.bytes() == before);
            // The dead registrations are given back without complaint.
            assert_eq!(two.b.provider.deregister_memory(two.t, local), Ok(()));
            assert_eq!(two.b.provider.deregister_rdma_memory(two.t, &target), Ok(()));
            two.end();
        }
    }
}

/// WSD, 9.4: revoked, unmapped, deregistered: nothing remembers the buffer that was
/// there.
#[test]
fn a28_memory_that_is_gone_cannot_be_registered_again() {
    for goes_away in [true, false] {
        let two = Two::new();
        let (own, handle) = scratch(&two.a, two.s, 1);
        let pages = Mapping::of(2, 2);
        let (range, flags) = (pages.range(), mem::READWRITE);
        let local = two.b.try_register_range(two.t, range, flags).unwrap();
        let target = two.b.try_expose_range(two.t, range, flags).unwrap();
        let gone = || two.b.provider.memory_goes_away(pages.address(), pages.size());
        if goes_away {
            assert_eq!(gone(), Ok(()));
        }
        pages.unmap(0, 2);
        assert_eq!(two.b.provider.deregister_memory(two.t, local), Ok(()));
        assert_eq!(two.b.provider.deregister_rdma_memory(two.t, &target), Ok(()));
        assert_eq!(gone(), Err(Error::WSAEINVAL), "nothing of it is registered, or cached");
        assert_eq!(both(&two, range, flags), Some(Error::WSAEFAULT));
        assert_eq!(two.b.provider.registered(two.t), Ok((0, 0)));
        // A later allocation at that address is another buffer, and is shown to no peer by itself.
        pages.map_again(0, 2, 9);
        let again = two.b.try_expose_range(two.t, range, flags).unwrap();
        assert_eq!(two.rdma(two.s, READ, (own.range(0, 8), handle), (&again, 0)), (None, 8));
        let (error, _) = two.rdma(two.s, READ, (own.range(64, 8), handle), (&target, 0));
        assert_eq!(error, Some(Error::WSAECONNABORTED));
        assert_eq!(own.bytes()[..8], [9; 8]);
        assert_eq!(own.bytes()[64..72], [1; 8]);
        two.end();
    }
}

/// WSD 5.5: memory that vanishes under a registration without a word is not touched, either.
#[test]
fn a28_memory_that_vanishes_fails_the_transfer() {
    for direction in [READ, WRITE] {
        let two = Two::new();
        let (own, handle) = scratch(&two.a, two.s, 1);
        let pages = Mapping::of(2, 2);
        let target = two.b.try_expose_range(two.t, pages.range(), mem::READWRITE).unwrap();
        pages.unmap(0, 2);
        let (error, _) = two.rdma(two.s, direction, (own.range(0, 64), handle), (&target, 0));
        assert_eq!(error, Some(Error::WSAECONNABORTED));
        assert!(own.is_all(1));
        two.end();
    }
}

/// Memory of this side vanishes: the operation fails, by its memory's fault.
#[test]
fn a28_an_operation_whose_own_memory_vanished_fails() {
    let two = Two::new();
    let (theirs, _) = scratch(&two.b, two.t, 1);
    two.b.receive(two.t, theirs.range(0, 4096)).unwrap();
    let pages = Mapping::of(1, 2);
    two.a.try_register_range(two.s, pages.range(), mem::READ).unwrap();
    pages.unmap(0, 1);
    let sent = two.a.send(two.s, pages.range()).unwrap();
    assert_eq!(two.a.ended(&sent), (Some(Error::WSAEFAULT), 0));
    let later = two.a.send(two.s, pages.range()).err();
    assert_eq!(later, Some(Error::WSAECONNABORTED), "and the connection with it");
    two.end();
}

/// WSD W23, 9.3: memory that was registered with more rights before is registered with those that are
/// asked for, and with no others.
#[test]
fn w23_rights_are_narrowed_when_memory_is_registered_again() {
    for direction in [READ, WRITE] {
        let two = Two::new();
        let (own, handle) = scratch(&two.a, two.s, 1);
        let pages = Pages::of(5);
        let local = two.b.register(two.t, &pages, mem::READWRITE);
        let target = two.b.expose(two.t, &pages, mem::READWRITE);
        two.b.provider.deregister_memory(two.t, local).unwrap();
        two.b.provider.deregister_rdma_memory(two.t, &target).unwrap();
        let flags = if direction == READ { mem::WRITE } else { mem::READ };
        two.b.register(two.t, &pages, flags);
        let target = two.b.expose(two.t, &pages, flags);
        let part = pages.range(0, 8);
        let refused = match direction {
            READ => two.b.send(two.t, part),
            WRITE => two.b.receive(two.t, part),
        };
        assert_eq!(refused.err(), Some(Error::WSAEFAULT));
        let (error, _) = two.rdma(two.s, direction, (own.range(0, 8), handle), (&target, 0));
        assert_eq!(error, Some(Error::WSAECONNABORTED));
        assert!(own.is_all(1) && pages.is_all(5));
        two.end();
    }
}

/// WSD W23, 2.4: a provider that does not offer the callback does not have it.
#[test]
fn w23_without_the_callback_nothing_is_revoked() {
    let offers = Offers { cache_callback: false, ..Offers::default() };
    let two = Two::with(Options { offers });
    let (own, handle) = scratch(&two.a, two.s, 1);
    let exposed = Pages::of(5);
    let target = two.b.expose(two.t, &exposed, mem::READ);
    let goes = |offered: Error| {
        let gone = two.b.provider.memory_goes_away(exposed.address(), 4096);
        assert_eq!(gone, Err(offered));
    };
    goes(Error::WSAEOPNOTSUPP);
    assert_eq!(two.rdma(two.s, READ, (own.range(0, 8), handle), (&target, 0)), (None, 8));
    two.b.provider.deregister_rdma_memory(two.t, &target).unwrap();
    goes(Error::WSAEOPNOTSUPP);
    two.end();
}

#[test]
fn a29_duplication_ends_every_registration_of_the_process() {
    let two = Two::new();
    let (pages, handle) = scratch(&two.b, two.t, 5);
    let target = two.b.expose(two.t, &pages, mem::READWRITE);
    let (own, own_handle) = scratch(&two.a, two.s, 1);
    let receives = [0, 16].map(|at| two.b.receive(two.t, pages.range(at, 16)).unwrap());
    two.b.provider.duplicate(two.t, 1).unwrap();
    for receive in &receives {
        assert_eq!(two.b.ended(receive), (None, 0), "12.1: success, no bytes");
    }
    assert_eq!(two.b.provider.registered(two.t), Ok((0, 0)));
    assert_eq!(two.b.provider.deregister_memory(two.t, handle), Err(Error::WSAEINVAL));
    assert!(two.b.send(two.t, pages.range(0, 8)).is_err());
    if let Ok(op) = two.a.rdma(two.s, READ, (own.range(0, 8), own_handle), (&target, 0)) {
        assert!(two.a.ended(&op).0.is_some());
    }
    assert!(own.is_all(1));
    two.end();
}

#[test]
fn a30_a_closed_descriptor_is_no_socket() {
    let two = Two::new();
    let (pages, handle) = scratch(&two.a, two.s, 1);
    let descriptor = two.a.expose(two.s, &pages, mem::READ);
    two.a.close(two.s);
    let gone = Some(Error::WSAENOTSOCK);
    let provider = &two.a.provider;
    assert_eq!(
        provider.deregister_rdma_memory(two.s, &descriptor).err(),
        gone,
        "late, and harmless"
    );
    assert_eq!(provider.deregister_memory(two.s, handle).err(), gone);
    assert_eq!(two.a.send(two.s, pages.range(0, 8)).err(), gone);
    assert_eq!(two.a.receive(two.s, pages.range(0, 8)).err(), gone);
    let part = (pages.range(0, 8), handle);
    assert_eq!(two.a.rdma(two.s, READ, part, (&descriptor, 0)).err(), gone);
    assert_eq!(provider.close_socket(two.s).err(), gone);
    assert_eq!(provider.listen(two.s, 1).err(), gone);
    two.end();
}

/// WSD W3: flags are exactly 1, 2 or 3.
#[test]
fn w03_flags_are_one_two_or_three() {
    let two = Two::with(Options::default());
    let pages = Pages::new(1);
    for flags in [0, 1, 2, 3, 4, 7, u32::MAX] {
        let expected = (!matches!(flags, 1..=3)).then_some(Error::WSAEINVAL);
        assert_eq!(two.a.try_register(two.s, &pages, flags).err(), expected);
        assert_eq!(two.a.try_expose(two.s, &pages, flags).err(), expected);
    }
    two.end();
}
