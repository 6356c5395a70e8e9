//! The provider's ports, which are another space than TCP's: a socket of it stands beside the
//! application's own TCP socket of the same address and port (WSD S-1, S-4, L-1).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod common;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use common::*;
use transom_winsock_direct::Error;
use transom_winsock_direct::abi::*;

transom_testing::over_both_paths!(path_holds());

/// A TCP server that no provider's connection may reach.
fn tcp_server() -> (TcpListener, SocketAddr) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let at = server.local_addr().unwrap();
    (server, at)
}

fn saw_nothing(server: &TcpListener) {
    assert_eq!(server.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

fn listen_at(process: &Process, address: SocketAddr) -> usize {
    let socket = process.socket();
    process.provider.bind(socket, address).unwrap();
    process.provider.event_select(socket, socket, FD_ACCEPT).unwrap();
    process.provider.listen(socket, 8).unwrap();
    socket
}

/// WSD L-1, S-4: both listen, each is connected to, and neither sees the other's connections.
#[test]
fn l01_a_listener_stands_beside_the_tcp_listener_of_its_port() {
    let (a, b) = (Process::new(), Process::new());
    let (tcp, at) = tcp_server();
    let listener = listen_at(&b, at);
    assert_eq!(b.provider.local_address(listener), Ok(at));
    // The connecting side has a TCP socket of its own, too, whose port it takes.
    let own = transom_testing::ports::Held::new().unwrap();
    let socket = a.socket();
    a.provider.bind(socket, own.address()).unwrap();
    let (accepted, peer) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            b.await_request(listener);
            b.provider.accept(listener, |_, _| CF_ACCEPT).unwrap()
        });
        a.provider.connect(socket, at).unwrap();
        accepting.join().unwrap()
    });
    assert_eq!(peer, own.address());
    assert_eq!(a.provider.local_address(socket), Ok(own.address()));
    assert_eq!(b.provider.local_address(accepted), Ok(at));
    saw_nothing(&tcp);
    let mut plain = TcpStream::connect(at).unwrap();
    plain.write_all(b"plain").unwrap();
    let mut served = loop {
        match tcp.accept() {
            Ok((served, _)) => break served,
            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
        }
    };
    served.set_nonblocking(false).unwrap();
    let mut bytes = [0; 5];
    served.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"plain");
    let nobody = b.provider.accept(listener, |_, _| CF_ACCEPT).err();
    assert_eq!(nobody, Some(Error::WSAEWOULDBLOCK));
    a.provider.cleanup();
    b.provider.cleanup();
}

/// WSD C-4, C-5: a plain TCP server sees no connection and no byte, and TCP is left to be tried.
#[test]
fn c05_a_plain_tcp_server_is_left_alone() {
    let a = Process::new();
    let (tcp, at) = tcp_server();
    assert_eq!(a.provider.connect(a.socket(), at), Err(Error::WSAETIMEDOUT));
    saw_nothing(&tcp);
    a.provider.cleanup();
}

/// WSD S-4: the port is free again when the listener has been closed, and taken until then.
#[test]
fn s04_a_port_is_taken_until_its_listener_is_closed() {
    let b = Process::new();
    let (_tcp, at) = tcp_server();
    for _ in 0..20 {
        let listener = listen_at(&b, at);
        let second = b.socket();
        b.provider.bind(second, at).unwrap();
        assert_eq!(b.provider.listen(second, 1), Err(Error::WSAEADDRINUSE));
        b.close(listener);
        assert_eq!(b.provider.listen(second, 1), Ok(()));
        b.close(second);
    }
    b.provider.cleanup();
}

/// WSD S-4: the wildcard address takes what is sent to any address.
#[test]
fn s04_a_wildcard_listener_is_found_at_each_address() {
    let (a, b) = (Process::new(), Process::new());
    let listener = listen_at(&b, "0.0.0.0:0".parse().unwrap());
    let port = b.provider.local_address(listener).unwrap().port();
    for host in [[127, 0, 0, 1], [127, 0, 0, 2]] {
        let socket = a.socket();
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| b.accept(listener).unwrap());
            a.provider.connect(socket, (host, port).into()).unwrap();
            let accepted = accepting.join().unwrap();
            assert_eq!(b.provider.local_address(accepted), Ok((host, port).into()));
        });
    }
    a.provider.cleanup();
    b.provider.cleanup();
}
