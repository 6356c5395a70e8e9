//! A peer that knows only the oldest form of start-up, MPA revision 1 (RFC 5044 7.1): it hangs up
//! on anything newer, and is no Transom.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use transom::{Adapter, ErrorKind};

const REQUEST: &[u8; 16] = b"MPA ID Req Frame";
const REPLY: &[u8; 16] = b"MPA ID Rep Frame";

/// Flags, revision and private data of a Request.
fn request(stream: &mut TcpStream) -> (u8, u8, Vec<u8>) {
    let mut header = [0; 20];
    stream.read_exact(&mut header).unwrap();
    assert_eq!(&header[..16], REQUEST);
    let mut private = vec![0; usize::from(u16::from_be_bytes([header[18], header[19]]))];
    stream.read_exact(&mut private).unwrap();
    (header[16], header[17], private)
}

/// An FPDU, whole.
fn frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let rest = (usize::from(u16::from_be_bytes(length)) + 2).next_multiple_of(4) - 2 + 4;
    let mut bytes = vec![0; rest];
    stream.read_exact(&mut bytes).unwrap();
    [&length[..], &bytes].concat()
}

/// Adapter options that need no checksum, which the little peer cannot compute.
fn adapter(at: SocketAddr) -> Adapter {
    Adapter::options().crc(false).open(at.ip()).unwrap()
}

/// iW 2.4: closed behind a Request of revision 2 and before any byte of a Reply means once more,
/// with revision 1. The program notices nothing.
#[test]
fn a_peer_of_mpa_revision_1_is_asked_again_in_revision_1() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        let (_, revision, _) = request(&mut first);
        assert_eq!(revision, 2);
        drop(first);
        let (mut stream, _) = listener.accept().unwrap();
        let (flags, revision, private) = request(&mut stream);
        // Neither markers nor a checksum nor enhanced set-up; the private data is the program's.
        assert_eq!((flags & 0b1111_0000, revision, &private[..]), (0, 1, &b"hello"[..]));
        let mut reply = REPLY.to_vec();
        reply.extend([0, 1, 0, 7]);
        reply.extend(b"welcome");
        stream.write_all(&reply).unwrap();
        // A Send comes back as it came: it is the first each way.
        let send = frame(&mut stream);
        stream.write_all(&send).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        rest
    });
    let adapter = adapter(at);
    let connection = adapter.connect(at).private_data(b"hello").wait().unwrap();
    assert_eq!(connection.info().private_data, b"welcome");
    connection.send(b"echo").unwrap().wait().unwrap();
    assert_eq!(connection.recv().wait().unwrap().as_ref(), b"echo");
    drop(connection);
    assert_eq!(peer.join().unwrap(), b"", "nothing but iWARP was said");
}

/// Once: a peer that hangs up on both forms has refused.
#[test]
fn a_peer_that_answers_neither_form_is_not_asked_a_third_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let revisions = [0; 2].map(|_| request(&mut listener.accept().unwrap().0).1);
        // Whatever else comes is in the backlog by the time the program has its answer.
        (revisions, listener)
    });
    let error = adapter(at).connect(at).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected);
    let (revisions, listener) = peer.join().unwrap();
    assert_eq!(revisions, [2, 1]);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
}
