//! `transom rping` against a plain iWARP peer: the bytes of the Linux kernel's siw and of rping (as
//! captured), over a plain socket, in both roles.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use common::Server;
use rustix::net;

const SEND: u8 = 0x43;
const WRITE: u8 = 0x40;
const READ_REQUEST: u8 = 0x41;
const READ_RESPONSE: u8 = 0x42;
const TERMINATE: u8 = 0x47;
/// The peer's names of its buffers.
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

/// An end of an iWARP stream, as simple as it gets.
struct Plain {
    stream: TcpStream,
    crc: bool,
    sent: u32,
    received: u32,
    reads: u32,
    /// Reads of no bytes that have come.
    verdicts: u32,
    /// Whether these are answered.
    answers: bool,
}

impl Plain {
    fn new(stream: TcpStream) -> Plain {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Plain { stream, crc: false, sent: 0, received: 0, reads: 0, verdicts: 0, answers: true }
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
        self.verdicts += u32::from(empty_read);
        if empty_read && self.answers {
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

    fn tagged(&mut self, opcode: u8, place: (u32, u64), payload: &[u8]) {
        self.segment(0xc1, opcode, place, payload);
    }

    /// `control`: tagged; the last of its message, or not.
    fn segment(&mut self, control: u8, opcode: u8, place: (u32, u64), payload: &[u8]) {
        let (token, address) = place;
        let header =
            [&[control, opcode][..], &token.to_be_bytes(), &address.to_be_bytes()].concat();
        self.frame(&[&header[..], payload].concat());
    }

    fn send(&mut self, payload: &[u8]) {
        self.sent += 1;
        self.untagged(SEND, 0, self.sent, payload);
    }

    fn announce(&mut self, place: (u32, u64)) {
        self.announce_of(place, SIZE);
    }

    fn announce_of(&mut self, (token, address): (u32, u64), size: u32) {
        let descriptor = [&address.to_be_bytes()[..], &token.to_be_bytes(), &size.to_be_bytes()];
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

/// The header of the server's Write.
fn write_header() -> [u8; 14] {
    let [t0, t1, t2, t3] = SINK.0.to_be_bytes();
    let [a0, a1, a2, a3, a4, a5, a6, a7] = SINK.1.to_be_bytes();
    [0xc1, WRITE, t0, t1, t2, t3, a0, a1, a2, a3, a4, a5, a6, a7]
}

fn number<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes[..N].try_into().unwrap()
}

/// `transom rping -s`. No test that is to succeed waits for time to pass.
fn serve(crc: &str, switches: &[&str]) -> Server {
    let args = ["rping", "-s", "-a", "127.0.0.1", "-p", "0", "--crc", crc];
    Server::start(&[&args[..], switches].concat())
}

/// An rping client on siw, connected.
fn client_of(server: &Server, crc: &str) -> Plain {
    client_on(TcpStream::connect(server.address()).unwrap(), crc)
}

fn client_on(stream: TcpStream, crc: &str) -> Plain {
    let mut plain = Plain::new(stream);
    plain.start_up(b"MPA ID Req Frame", 0x10, [0, 1, 0, 1]);
    let (flags, _) = plain.started(b"MPA ID Rep Frame");
    assert_eq!(flags & 0x27, 0, "no rejection, no markers, nothing of Transom's");
    plain.crc = flags & 0x40 != 0;
    assert_eq!(plain.crc, crc == "on");
    plain
}

impl Plain {
    /// The client's half of a round up to the server's Write, and that.
    fn round_up_to_the_write(&mut self, round: u8) {
        self.announce(SOURCE);
        let read = self.next();
        self.reads += 1;
        assert_eq!(read[..2], [0x41, READ_REQUEST]);
        let place = self.reads + self.verdicts;
        assert_eq!(read[6..14], [&[0, 0, 0, 1][..], &place.to_be_bytes()].concat());
        let sink =
            (u32::from_be_bytes(number(&read[18..])), u64::from_be_bytes(number(&read[22..])));
        assert_eq!(read[30..34], SIZE.to_be_bytes());
        assert_eq!(read[34..38], SOURCE.0.to_be_bytes());
        assert_eq!(read[38..46], SOURCE.1.to_be_bytes());
        self.tagged(READ_RESPONSE, sink, &text(round));
        self.receive();
        self.announce(SINK);
        let written = self.next();
        assert_eq!(written[..14], write_header());
        assert_eq!(written[14..], text(round));
    }

    /// A Terminate that calls the server's Write out of bounds (1/1/01), with its header.
    fn refuse_the_write(&mut self) {
        let length = u16::try_from(14 + SIZE).unwrap().to_be_bytes();
        let payload = [&[0x11, 0x01, 0xc0, 0][..], &length, &write_header()].concat();
        self.untagged(TERMINATE, 2, 1, &payload);
    }

    /// Wait for bytes, and leave them unread: closing is a reset then.
    fn reset(self) {
        self.stream.peek(&mut [0]).unwrap();
    }
}

/// An rping client on siw, two rounds.
fn client(crc: &str) {
    let server = serve(crc, &["-v", "--timeout", "60"]);
    let mut plain = client_of(&server, crc);
    for round in 0..2 {
        plain.round_up_to_the_write(round);
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

/// The acts of strict siw at the end of a session: the client has the last go-ahead and closes, in
/// order, before the Read of no bytes behind the Write is answered. It has seen success, and so has
/// the server.
#[test]
fn a_kernel_client_that_closes_without_answering_the_zero_length_read() {
    for crc in ["on", "off"] {
        let server = serve(crc, &["-v", "--timeout", "60"]);
        let mut plain = client_of(&server, crc);
        plain.round_up_to_the_write(0);
        plain.receive();
        plain.answers = false;
        plain.round_up_to_the_write(1);
        plain.receive();
        assert_eq!(plain.verdicts, 2, "it was asked");
        drop(plain);
        let server = server.finish();
        assert_eq!(server.code, 0, "crc {crc}: {server:?}");
        assert_eq!(server.out.lines().count(), 2, "{server:?}");
    }
}

/// A client that goes without its go-ahead has not closed in order: the Write's outcome is unknown.
#[test]
fn a_kernel_client_that_resets_behind_a_write_is_a_failure() {
    let server = serve("off", &["--timeout", "60"]);
    let mut plain = client_of(&server, "off");
    plain.answers = false;
    plain.round_up_to_the_write(0);
    plain.reset();
    let server = server.finish();
    assert_eq!(server.code, 3, "{server:?}");
    assert!(server.err.starts_with("transom: write "), "{server:?}");
}

/// Nor has one that closes its direction while its TCP has no room for the rest of the Write.
#[test]
fn a_kernel_client_that_closes_with_a_write_on_its_way_is_a_failure() {
    const LARGE: u32 = 65_536;
    let server = serve("off", &["--timeout", "60"]);
    // Less room than the Write takes.
    let socket = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None).unwrap();
    net::sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
    let to: SocketAddr = server.address().parse().unwrap();
    net::connect(&socket, &to).unwrap();
    let mut plain = client_on(socket.into(), "off");
    plain.announce_of(SOURCE, LARGE);
    let read = plain.next();
    let token = u32::from_be_bytes(number(&read[18..]));
    let address = u64::from_be_bytes(number(&read[22..]));
    let half = vec![0; LARGE as usize / 2];
    plain.segment(0x81, READ_RESPONSE, (token, address), &half);
    plain.segment(0xc1, READ_RESPONSE, (token, address + u64::from(LARGE / 2)), &half);
    plain.receive();
    plain.announce_of(SINK, LARGE);
    plain.stream.peek(&mut [0]).unwrap();
    plain.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let server = server.finish();
    assert_eq!(server.code, 3, "{server:?}");
    assert!(server.err.contains("write of 65536 bytes"), "{server:?}");
}

/// A Terminate about the Write is never a success, whatever TCP has taken and however orderly the close.
#[test]
fn a_kernel_client_that_refuses_a_write_is_a_failure() {
    let server = serve("off", &["--timeout", "60"]);
    let mut plain = client_of(&server, "off");
    plain.answers = false;
    plain.round_up_to_the_write(0);
    plain.receive();
    plain.refuse_the_write();
    drop(plain);
    let server = server.finish();
    assert_eq!(server.code, 4, "{server:?}");
    assert!(server.err.contains("1/1/01"), "{server:?}");
}

/// Nothing waits for ever: the sentence says who was silent, and what is owed.
#[test]
fn a_client_that_falls_silent() {
    // How far it gets, and what it owes then.
    type Part = fn(&mut Plain);
    let parts: [(Part, &str); 4] = [
        (|_| {}, "the descriptor of its source in round 0"),
        (|plain| plain.announce(SOURCE), "the answer to a Read of its source in round 0"),
        (
            |plain| {
                plain.answers = false;
                plain.round_up_to_the_write(0);
            },
            "the outcome of a Write to its sink in round 0",
        ),
        (
            |plain| {
                plain.round_up_to_the_write(0);
                plain.receive();
            },
            "the descriptor of its source in round 1",
        ),
    ];
    for (part, owed) in parts {
        let server = serve("off", &["--timeout", "1"]);
        let mut plain = client_of(&server, "off");
        part(&mut plain);
        let at = plain.stream.local_addr().unwrap();
        let silent = format!("the client at {at} has been silent for 1 s; it owes {owed}");
        server.finish().failed(3, &[&silent, "--timeout"]);
    }
}

/// A server falls silent before the Reply, and behind the first Send, as siw does when it misses one.
#[test]
fn a_server_that_falls_silent() {
    for replies in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap().to_string();
        let peer = std::thread::spawn(move || {
            let mut plain = Plain::new(listener.accept().unwrap().0);
            if replies {
                let (flags, word) = plain.started(b"MPA ID Req Frame");
                plain.crc = flags & 0x40 != 0;
                let peer_to_peer = word[0] & 0x80;
                plain.start_up(b"MPA ID Rep Frame", flags, [peer_to_peer, 1, peer_to_peer, 1]);
                plain.descriptor();
            }
            plain.stream.read_to_end(&mut Vec::new()).unwrap();
        });
        let ran = common::run(&["rping", "-c", &to, "-C", "2", "--timeout", "1"]);
        let owed = if replies { "a go-ahead after its Read in round 0" } else { "an answer" };
        let silent = format!("the server at {to} has been silent for 1 s; it owes {owed}");
        ran.failed(3, &[&silent, "--timeout"]);
        peer.join().unwrap();
    }
}

#[test]
fn a_timeout_is_at_least_a_second() {
    let ran = common::run(&["rping", "-c", "127.0.0.1", "--timeout", "0"]);
    assert_eq!(ran.code, 2, "{ran:?}");
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
        // The client disconnects: the end of the stream, and no Terminate before it.
        let mut rest = Vec::new();
        plain.stream.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty(), "{rest:02x?}");
    });
    let ran = common::run(&["rping", "-c", &to, "-C", "2", "-v", "-V"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.out.lines().count(), 2);
    peer.join().unwrap();
}

/// A client that Sends something else than 16 bytes gets an error, in a sentence.
#[test]
fn a_client_that_speaks_another_protocol() {
    let server = serve("off", &[]);
    let mut plain = client_of(&server, "off");
    plain.send(b"hello");
    server.finish().failed(4, &["5 bytes", "rping"]);
}
