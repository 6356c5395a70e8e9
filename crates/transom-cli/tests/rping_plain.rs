//! `transom rping` against a peer that has never heard of Transom: what the Linux kernel's siw and
//! rping say to each other (as captured), spoken over a plain socket, in both roles.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use common::Server;

const SEND: u8 = 0x43;
const WRITE: u8 = 0x40;
const READ_REQUEST: u8 = 0x41;
const READ_RESPONSE: u8 = 0x42;
/// What the peer calls its buffers.
const SOURCE: (u32, u64) = (0x9b14_f300, 0x55d5_4367_6b90);
const SINK: (u32, u64) = (0xd5c4_8900, 0x55d5_4367_2ec0);
const SIZE: u32 = 64;

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 }
        })
    })
}

/// The 64 bytes of a round, as rping 's client makes them.
fn text(round: u8) -> Vec<u8> {
    let mut text = format!("rdma-ping-{round}: ").into_bytes();
    text.extend((0..).map(|at| b'A' + (round + at) % 58).take(SIZE as usize - text.len()));
    text[SIZE as usize - 1] = 0;
    text
}

/// One end of an iWARP stream, as simple as it gets.
struct Plain {
    stream: TcpStream,
    crc: bool,
    sent: u32,
    received: u32,
    reads: u32,
    /// Reads of no bytes that were answered.
    verdicts: u32,
}

impl Plain {
    fn new(stream: TcpStream) -> Plain {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Plain { stream, crc: false, sent: 0, received: 0, reads: 0, verdicts: 0 }
    }

    /// A start-up frame: key, flags, revision 2, IRD 1, ORD 1.
    fn start_up(&mut self, key: &[u8; 16], flags: u8, extra: [u8; 4]) {
        let frame = [&key[..], &[flags, 2, 0, 4], &extra].concat();
        self.stream.write_all(&frame).unwrap();
    }

    /// The peer's: flags, and the enhanced word.
    fn started(&mut self, key: &[u8; 16]) -> (u8, [u8; 4]) {
        let mut frame = [0; 24];
        self.stream.read_exact(&mut frame).unwrap();
        assert_eq!(&frame[..16], key);
        assert_eq!(frame[17..20], [2, 0, 4], "revision 2, and no private data but the word");
        assert_ne!(frame[16] & 0x10, 0, "enhanced");
        (frame[16], frame[20..].try_into().unwrap())
    }

    fn frame(&mut self, ulpdu: &[u8]) {
        let mut fpdu = u16::try_from(ulpdu.len()).unwrap().to_be_bytes().to_vec();
        fpdu.extend_from_slice(ulpdu);
        fpdu.resize(fpdu.len().next_multiple_of(4), 0);
        let crc = if self.crc { crc32c(&fpdu) } else { 0 };
        fpdu.extend_from_slice(&crc.to_le_bytes());
        self.stream.write_all(&fpdu).unwrap();
    }

    /// The next frame that says something, its checksum verified. A Read of no bytes, by which the
    /// other side asks whether its Write was good, is answered.
    fn next(&mut self) -> Vec<u8> {
        let mut fpdu = vec![0; 2];
        self.stream.read_exact(&mut fpdu).unwrap();
        let length = usize::from(u16::from_be_bytes([fpdu[0], fpdu[1]]));
        fpdu.resize((2 + length).next_multiple_of(4) + 4, 0);
        self.stream.read_exact(&mut fpdu[2..]).unwrap();
        let (covered, crc) = fpdu.split_at(fpdu.len() - 4);
        let expected = if self.crc { crc32c(covered) } else { 0 };
        assert_eq!(crc, expected.to_le_bytes(), "CRC");
        let ulpdu = fpdu[2..2 + length].to_vec();
        assert_ne!(ulpdu[1], 0x46, "a Terminate: {ulpdu:02x?}");
        let empty_write = ulpdu[1] == WRITE && ulpdu.len() == 14;
        let empty_read = ulpdu[1] == READ_REQUEST && ulpdu[30..34] == [0; 4];
        if empty_read {
            self.verdicts += 1;
            let sink = (
                u32::from_be_bytes(number(&ulpdu[18..])),
                u64::from_be_bytes(number(&ulpdu[22..])),
            );
            self.tagged(READ_RESPONSE, sink, &[]);
        }
        if empty_write || empty_read { self.next() } else { ulpdu }
    }

    fn untagged(&mut self, opcode: u8, queue: u32, number: u32, payload: &[u8]) {
        let header =
            [&[0x41, opcode, 0, 0, 0, 0][..], &queue.to_be_bytes(), &number.to_be_bytes(), &[0; 4]];
        self.frame(&[&header.concat()[..], payload].concat());
    }

    fn tagged(&mut self, opcode: u8, (token, address): (u32, u64), payload: &[u8]) {
        let header = [&[0xc1, opcode][..], &token.to_be_bytes(), &address.to_be_bytes()].concat();
        self.frame(&[&header[..], payload].concat());
    }

    fn send(&mut self, payload: &[u8]) {
        self.sent += 1;
        self.untagged(SEND, 0, self.sent, payload);
    }

    fn announce(&mut self, (token, address): (u32, u64)) {
        let descriptor = [&address.to_be_bytes()[..], &token.to_be_bytes(), &SIZE.to_be_bytes()];
        self.send(&descriptor.concat());
    }

    /// A Send of 16 bytes.
    fn receive(&mut self) -> [u8; 16] {
        let ulpdu = self.next();
        self.received += 1;
        assert_eq!(ulpdu[..6], [0x41, SEND, 0, 0, 0, 0]);
        assert_eq!(ulpdu[6..10], [0; 4], "queue 0");
        assert_eq!(ulpdu[10..14], self.received.to_be_bytes(), "one after the other");
        ulpdu[18..].try_into().expect("16 bytes")
    }

    /// A buffer descriptor.
    fn descriptor(&mut self) -> (u32, u64) {
        let [address @ .., k0, k1, k2, k3, s0, s1, s2, s3] = self.receive();
        assert_eq!(u32::from_be_bytes([s0, s1, s2, s3]), SIZE);
        (u32::from_be_bytes([k0, k1, k2, k3]), u64::from_be_bytes(address))
    }
}

fn number<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes[..N].try_into().unwrap()
}

/// An rping client on siw, two rounds.
fn client(crc: &str) {
    let server = Server::start(&["rping", "-s", "-a", "127.0.0.1", "-p", "0", "--crc", crc, "-v"]);
    let mut plain = Plain::new(TcpStream::connect(server.address()).unwrap());
    plain.start_up(b"MPA ID Req Frame", 0x10, [0, 1, 0, 1]);
    let (flags, _) = plain.started(b"MPA ID Rep Frame");
    assert_eq!(flags & 0x27, 0, "no rejection, no markers, nothing of Transom's");
    plain.crc = flags & 0x40 != 0;
    assert_eq!(plain.crc, crc == "on");
    for round in 0..2 {
        plain.announce(SOURCE);
        let read = plain.next();
        plain.reads += 1;
        assert_eq!(read[..2], [0x41, READ_REQUEST]);
        let place = plain.reads + plain.verdicts;
        assert_eq!(read[6..14], [&[0, 0, 0, 1][..], &place.to_be_bytes()].concat());
        let sink =
            (u32::from_be_bytes(number(&read[18..])), u64::from_be_bytes(number(&read[22..])));
        assert_eq!(read[30..34], SIZE.to_be_bytes());
        assert_eq!(read[34..38], SOURCE.0.to_be_bytes());
        assert_eq!(read[38..46], SOURCE.1.to_be_bytes());
        plain.tagged(READ_RESPONSE, sink, &text(round));
        plain.receive();
        plain.announce(SINK);
        let written = plain.next();
        assert_eq!(written[..2], [0xc1, WRITE]);
        assert_eq!(written[2..6], SINK.0.to_be_bytes());
        assert_eq!(written[6..14], SINK.1.to_be_bytes());
        assert_eq!(written[14..], text(round));
        plain.receive();
    }
    drop(plain);
    let server = server.finish();
    assert_eq!(server.code, 0, "{server:?}");
    assert_eq!(server.out.lines().count(), 2, "{server:?}");
}

#[test]
fn a_kernel_client_without_checksums() {
    client("off");
}

#[test]
fn a_kernel_client_that_accepts_checksums() {
    client("on");
}

/// An rping server on siw, two rounds. It mirrors flags that it does not know (iW 9.3): that is no
/// agreement to anything.
#[test]
fn a_kernel_server_that_mirrors_what_it_does_not_know() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let peer = std::thread::spawn(move || {
        let mut plain = Plain::new(listener.accept().unwrap().0);
        let (flags, word) = plain.started(b"MPA ID Req Frame");
        plain.crc = flags & 0x40 != 0;
        // If it wants to speak first (A), a zero-length Write will do (C).
        let peer_to_peer = word[0] & 0x80;
        plain.start_up(b"MPA ID Rep Frame", flags, [peer_to_peer, 1, peer_to_peer, 1]);
        for round in 0..2 {
            let source = plain.descriptor();
            plain.reads += 1;
            let request = [
                &SINK.0.to_be_bytes()[..],
                &SINK.1.to_be_bytes(),
                &SIZE.to_be_bytes(),
                &source.0.to_be_bytes(),
                &source.1.to_be_bytes(),
            ];
            let number = plain.reads;
            plain.untagged(READ_REQUEST, 1, number, &request.concat());
            let answer = plain.next();
            assert_eq!(answer[..2], [0xc1, READ_RESPONSE]);
            assert_eq!(answer[2..6], SINK.0.to_be_bytes());
            assert_eq!(answer[6..14], SINK.1.to_be_bytes());
            assert_eq!(answer[14..], text(round));
            plain.send(&[0; 16]);
            let sink = plain.descriptor();
            plain.tagged(WRITE, sink, &answer[14..]);
            plain.send(&[0; 16]);
        }
        // It disconnects: the end of the stream, and no Terminate before it.
        let mut rest = Vec::new();
        plain.stream.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty(), "{rest:02x?}");
    });
    let ran = common::run(&["rping", "-c", &to, "-C", "2", "-v", "-V"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.out.lines().count(), 2);
    peer.join().unwrap();
}

/// A client that Sends something else than 16 bytes is told off, in a sentence.
#[test]
fn a_client_that_speaks_another_protocol() {
    let server = Server::start(&["rping", "-s", "-a", "127.0.0.1", "-p", "0", "--crc", "off"]);
    let mut plain = Plain::new(TcpStream::connect(server.address()).unwrap());
    plain.start_up(b"MPA ID Req Frame", 0x10, [0, 1, 0, 1]);
    plain.started(b"MPA ID Rep Frame");
    plain.send(b"hello");
    server.finish().failed(4, &["5 bytes", "rping"]);
}
