//! A peer that is no Transom and says whatever bytes it likes, and the owner that it talks to.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use transom::{Adapter, Grant, Listener, Options, QueuePair, Region, Rights, Window};

/// The time that a test waits for what must happen. Never reached by one that passes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const WRITE: u8 = 0x40;
pub(crate) const READ_REQUEST: u8 = 0x41;
pub(crate) const SEND: u8 = 0x43;
pub(crate) const SEND_INVALIDATE: u8 = 0x44;
pub(crate) const TERMINATE: u8 = 0x47;
/// The name that a forged peer gives the place where it wants to read to.
const SINK: [u8; 12] = [0x51; 12];

/// Until something is so that another thread brings about.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// The side that has memory to lose. The side's adapter asks for no checksum, which a forged peer
/// would only compute to please it.
pub(crate) struct Owner {
    pub(crate) adapter: Adapter,
    pub(crate) listener: Listener,
}

impl Owner {
    pub(crate) fn new() -> Owner {
        Owner::with(|options| options)
    }

    pub(crate) fn with(change: impl FnOnce(Options) -> Options) -> Owner {
        let options = change(Adapter::options().crc(false).path(transom::Path::Tcp));
        let adapter = options.open([127, 0, 0, 1].into()).unwrap();
        let listener = adapter.listen(([127, 0, 0, 1], 0).into()).unwrap();
        Owner { adapter, listener }
    }

    /// Let a forged peer in.
    pub(crate) fn admit(&mut self) -> (QueuePair, Forged) {
        let mut peer = Forged::ask(self.listener.address());
        let incoming = self.listener.next().wait().unwrap();
        let accepting = incoming.receives(16, 4096).accept();
        peer.answered();
        peer.send(b"hello");
        let ours = accepting.wait().unwrap();
        assert_eq!(ours.recv().wait().unwrap().as_ref(), b"hello");
        (ours, peer)
    }

    /// Let an honest peer in, from an address of its own.
    pub(crate) fn welcome(&mut self, from: [u8; 4]) -> Honest {
        let adapter = Adapter::open(from.into()).unwrap();
        let connecting = adapter.connect(self.listener.address());
        let (ours, theirs) = std::thread::scope(|both| {
            let theirs = both.spawn(|| connecting.wait());
            let ours = self.listener.next().wait().unwrap().accept().wait();
            (ours.unwrap(), theirs.join().unwrap().unwrap())
        });
        let memory = self.adapter.register(vec![0; 4096]).unwrap();
        let window = ours.bind(&memory, .., Rights::READ | Rights::WRITE).unwrap();
        ours.send(b"bound").unwrap().wait().unwrap();
        theirs.recv().wait().unwrap();
        Honest { ours, theirs, adapter, memory, window, rounds: 0 }
    }

    /// Memory full of sevens, and a window on all but its first and last 64 bytes.
    pub(crate) fn lend(&self, to: &QueuePair) -> (Region<Vec<u8>>, Window) {
        let memory = self.adapter.register(vec![7; 4096]).unwrap();
        let window = to.bind(&memory, 64..4032, Rights::READ | Rights::WRITE).unwrap();
        // Bound when something behind it has left.
        to.send(b"bound").unwrap().wait().unwrap();
        (memory, window)
    }
}

/// Nothing has changed in it.
pub(crate) fn untouched(memory: &Region<Vec<u8>>) {
    let mut bytes = vec![0; memory.len() as usize];
    memory.copy_out(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 7), "memory was written");
}

/// An honest peer of the same owner: whatever the others do, it is served.
pub(crate) struct Honest {
    pub(crate) ours: QueuePair,
    pub(crate) theirs: QueuePair,
    adapter: Adapter,
    memory: Region<Vec<u8>>,
    window: Window,
    rounds: u8,
}

impl Honest {
    /// Write, read it back, and send a message each way.
    pub(crate) fn is_served(&mut self) {
        self.rounds += 1;
        let source = self.adapter.register(vec![self.rounds; 4096]).unwrap();
        let sink = self.adapter.register(vec![0; 4096]).unwrap();
        self.theirs.write(self.window.grant(), source.slice(..)).unwrap().wait().unwrap();
        self.theirs.read(self.window.grant(), sink.slice(..)).unwrap().wait().unwrap();
        let mut bytes = vec![0; 4096];
        sink.copy_out(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == self.rounds));
        self.memory.copy_out(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == self.rounds));
        self.theirs.send(b"ping").unwrap().wait().unwrap();
        assert_eq!(self.ours.recv().wait().unwrap().as_ref(), b"ping");
    }
}

/// The most that a link keeps of what its peer does not take.
const BUFFER: usize = 512 * 1024;
/// More than the largest frame.
const FRAME: usize = 64 * 1024;

/// While an honest peer is served a few times, so that the other one has had its turns: what is
/// held for it is one buffer, and not what it has asked for. The honest peer's link is counted, too:
/// in the middle of a message it holds a frame.
pub(crate) fn holds_one_buffer(owner: &Owner, honest: &mut Honest) {
    for _ in 0..20 {
        honest.is_served();
        let held = owner.adapter.held();
        assert!(held <= BUFFER + FRAME, "{held} bytes");
    }
}

/// A forger: one end of an iWARP stream without checksums.
pub(crate) struct Forged {
    pub(crate) stream: TcpStream,
    sends: u32,
    reads: u32,
}

/// The other side has closed the connection, by an end of the stream or a reset, without a word.
pub(crate) fn is_hung_up(stream: &mut TcpStream) {
    match stream.read(&mut [0; 64]) {
        Ok(0) => {}
        Err(e) if [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&e.kind()) => {}
        other => panic!("not closed: {other:?}"),
    }
}

/// An FPDU around a ULPDU.
pub(crate) fn frame(ulpdu: &[u8]) -> Vec<u8> {
    let mut fpdu = u16::try_from(ulpdu.len()).unwrap().to_be_bytes().to_vec();
    fpdu.extend_from_slice(ulpdu);
    fpdu.resize(fpdu.len().next_multiple_of(4) + 4, 0);
    fpdu
}

impl Forged {
    /// Ask for a connection: revision 2, without markers, checksums, or private data; four reads
    /// each way.
    pub(crate) fn ask(at: SocketAddr) -> Forged {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(b"MPA ID Req Frame\x10\x02\x00\x04\x00\x04\x00\x04").unwrap();
        Forged { stream, sends: 0, reads: 0 }
    }

    /// Read the answer.
    pub(crate) fn answered(&mut self) {
        let mut reply = [0; 24];
        self.stream.read_exact(&mut reply).unwrap();
        assert_eq!((&reply[..16], reply[16] & 0x20), (&b"MPA ID Rep Frame"[..], 0));
    }

    /// Say something; the other side may have closed already.
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    fn untagged(&mut self, opcode: u8, token: u32, queue: u32, number: u32, payload: &[u8]) {
        let header = [
            &[0x41, opcode][..],
            &token.to_be_bytes(),
            &queue.to_be_bytes(),
            &number.to_be_bytes(),
            &[0; 4],
            payload,
        ];
        self.say(&frame(&header.concat()));
    }

    pub(crate) fn send(&mut self, payload: &[u8]) {
        self.sends += 1;
        self.untagged(SEND, 0, 0, self.sends, payload);
    }

    pub(crate) fn send_invalidate(&mut self, token: u32) {
        self.sends += 1;
        self.untagged(SEND_INVALIDATE, token, 0, self.sends, b"");
    }

    pub(crate) fn write(&mut self, token: u32, address: u64, payload: &[u8]) {
        let header = [&[0xc1, WRITE][..], &token.to_be_bytes(), &address.to_be_bytes(), payload];
        self.say(&frame(&header.concat()));
    }

    pub(crate) fn read(&mut self, token: u32, address: u64, length: u32) {
        self.reads += 1;
        let request =
            [&SINK[..], &length.to_be_bytes(), &token.to_be_bytes(), &address.to_be_bytes()];
        self.untagged(READ_REQUEST, 0, 1, self.reads, &request.concat());
    }

    /// The next frame; `None`: the other side has closed.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 2];
        if let Err(e) = self.stream.read_exact(&mut length) {
            let waits = [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&e.kind());
            assert!(!waits, "neither sent anything nor closed");
            return None;
        }
        let size = usize::from(u16::from_be_bytes(length));
        let mut rest = vec![0; (2 + size).next_multiple_of(4) + 4 - 2];
        self.stream.read_exact(&mut rest).ok()?;
        rest.truncate(size);
        Some(rest)
    }

    /// The other side ends the connection: after a Terminate, or with nothing but silence. No
    /// answer to a read comes before that.
    pub(crate) fn is_thrown_out(&mut self) {
        while let Some(ulpdu) = self.next() {
            let answer = ulpdu[0] & 0x80 != 0;
            assert!(!answer, "it was answered: {ulpdu:02x?}");
        }
    }

    /// The bytes of an answer to one small read.
    pub(crate) fn answer(&mut self) -> Vec<u8> {
        loop {
            let ulpdu = self.next().expect("an answer");
            assert_ne!(ulpdu[1], TERMINATE, "{ulpdu:02x?}");
            if ulpdu[0] & 0x80 != 0 {
                return ulpdu[14..].to_vec();
            }
        }
    }
}

/// The facts that a forger needs of a grant.
pub(crate) fn parts(grant: Grant) -> (u32, u64) {
    (grant.token(), grant.address())
}
