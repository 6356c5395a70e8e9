//! Peers that are no Transom: their bytes are made here, one frame at a time.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::{AddressFamily, SocketType, connect, socket};

use super::harness::*;
use crate::raw::Options;
use crate::{CompletionKind, Operation, Status};

/// A peer's end of a connection.
struct Plain(TcpStream);

impl Plain {
    fn take(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// The other side's start-up frame.
    fn start_up(&mut self) {
        let frame = self.take(20);
        self.take(usize::from(u16::from_be_bytes([frame[18], frame[19]])));
    }

    /// The next frame: the two control bytes of its segment, and its size.
    fn frame(&mut self) -> ([u8; 2], usize) {
        let length = self.take(2);
        let size =
            (2 + usize::from(u16::from_be_bytes([length[0], length[1]]))).next_multiple_of(4) + 4;
        let ulpdu = self.take(size - 2);
        ([ulpdu[0], ulpdu[1]], size)
    }

    /// The sizes of the frames of a Send.
    fn send(&mut self) -> Vec<usize> {
        let mut sizes = Vec::new();
        loop {
            let (control, size) = self.frame();
            match control {
                [0x01, 0x43] => sizes.push(size),
                [0x41, 0x43] => {
                    sizes.push(size);
                    return sizes;
                }
                [0xC1, 0x40] => {} // ready to receive
                other => panic!("{other:02x?}"),
            }
        }
    }
}

/// The largest segment that goes to `socket`, options of TCP included.
fn limit_segments(socket: &impl AsFd, size: libc::c_int) {
    // SAFETY: hands in an integer and its size.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MAXSEG,
            (&raw const size).cast(),
            4,
        )
    };
    assert_eq!(done, 0);
}

const SEGMENT: libc::c_int = 1000;

/// `end` listens, and has accepted a peer that asks for no ready-to-receive frame and waits, as
/// Linux's siw does.
fn accepted(end: &End) -> Plain {
    let listener = listening(end);
    let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    limit_segments(&stream, SEGMENT);
    connect(&stream, &listener.address().unwrap()).unwrap();
    let mut peer = Plain(TcpStream::from(stream));
    let (sink, requested) = signal();
    listener.get_request(&end.connector, sink).unwrap();
    peer.0.write_all(b"MPA ID Req Frame\x10\x02\0\x04\0\x04\0\x04").unwrap();
    assert_eq!(requested.wait(), Status::Success);
    let (sink, established) = signal();
    end.connector.accept(&end.qp, LIMITS, b"", sink).unwrap();
    assert_eq!(established.wait(), Status::Success);
    peer.start_up();
    peer
}

/// `end` has connected to such a peer.
fn connected(end: &End) -> Plain {
    let listener = TcpListener::bind(loopback()).unwrap();
    limit_segments(&listener, SEGMENT);
    end.connector.bind(loopback()).unwrap();
    let (sink, connected) = signal();
    let at = listener.local_addr().unwrap();
    end.connector.connect(&end.qp, at, LIMITS, b"", sink).unwrap();
    let mut peer = Plain(listener.accept().unwrap().0);
    peer.start_up();
    peer.0.write_all(b"MPA ID Rep Frame\x10\x02\0\x04\0\x04\0\x04").unwrap();
    assert_eq!(connected.wait(), Status::Success);
    end.connector.complete_connect().unwrap();
    peer
}

/// iW 3.2: hardware takes no frame that is longer than a segment. And iW 1.2 rule 4: a client that
/// waits for its server gets the first word.
#[test]
fn frames_to_a_plain_peer_fit_its_segments_in_either_role() {
    for connect in [accepted, connected] {
        let end = End::new(&Options { extension: false, ..Options::from_env() });
        let mut peer = connect(&end);
        let from = end.buffer(30_000);
        end.post(Operation::Send, &[from.all()]);
        let sizes = peer.send();
        let largest = *sizes.iter().max().unwrap();
        assert!(largest <= SEGMENT as usize && largest > SEGMENT as usize / 2, "{sizes:?}");
        end.expect(CompletionKind::Send);
    }
}
