//! Moves a file from one process to another as a Windows Sockets switch moves a large send: control
//! messages through two small registered regions, the rest by RDMA (WSD 8).
//!
//!     cargo run --release -p transom-winsock-direct --example move_file -- FILE [--no-rdma-read]
//!
//! The receiver, a second process, fetches with WSPRdmaRead; with `--no-rdma-read` it offers its
//! buffer instead and the sender fills it with WSPRdmaWrite. `move_file serve FILE` starts no second
//! process and prints where it waits for one: `move_file receive ADDRESS:PORT`, on another system too.
#![allow(unsafe_code, dead_code, clippy::expect_used)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;

use transom_winsock_direct::abi::{CF_ACCEPT, Overlapped, SO_RDMA_THRESHOLD_SIZE, SOL_SOCKET, mem};
use transom_winsock_direct::extension::Offers;
use transom_winsock_direct::{
    Direction, Error, Handle, Operation, Options, Provider, Range, Result, SIZE_LIMIT, Switch,
};

/// Control messages under way in each direction, and the bytes of each.
const MESSAGES: usize = 4;
const MESSAGE: usize = 8192;
/// The content of the message of a transfer by RDMA.
const FIRST: usize = 1024;
/// The bytes of one RDMA operation (SO_MAX_RDMA_SIZE permits more; several in a row show the
/// splitting).
const PIECE: usize = 1 << 20;

/// The switch's side of the interface. Everything here is polled, so no upcall matters.
pub(crate) struct Quiet;

impl Switch for Quiet {
    fn create_socket_handle(&self, context: usize) -> Result<usize> {
        Ok(context)
    }
    fn close_socket_handle(&self, _handle: usize) {}
    fn complete(&self, _handle: usize, _overlapped: usize, _error: i32, _bytes: u32) {}
    fn set_event(&self, _event: usize) {}
    fn reset_event(&self, _event: usize) {}
}

/// Memory that the adapter and the peer may touch, so never behind a reference of Rust's.
pub(crate) struct Memory {
    at: *mut u8,
    layout: Layout,
}

impl Memory {
    pub(crate) fn new(length: usize) -> Memory {
        let layout = Layout::from_size_align(length.max(1), 4096).expect("a length that fits");
        // SAFETY: the layout is not empty.
        Memory { at: unsafe { alloc_zeroed(layout) }, layout }
    }
    pub(crate) fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.layout.size());
        // SAFETY: inside the allocation.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(offset), bytes.len()) };
    }
    pub(crate) fn get(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.layout.size());
        // SAFETY: inside the allocation; copied out, not borrowed.
        unsafe { std::slice::from_raw_parts(self.at.add(offset), length) }.to_vec()
    }
    pub(crate) fn range(&self, offset: usize, length: usize) -> Range {
        let address = self.at.expose_provenance() as u64 + offset as u64;
        Range { address, length: u32::try_from(length).expect("32 bits") }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.at, self.layout) };
    }
}

/// A polled operation.
struct Polled(Box<Overlapped>);

impl Polled {
    fn begin(f: impl FnOnce(Operation) -> Result<()>) -> Result<Polled> {
        let event = std::ptr::without_provenance_mut(1);
        let overlapped =
            Overlapped { internal: 0, internal_high: 0, offset: 0, offset_high: 0, event };
        let mut polled = Polled(Box::new(overlapped));
        f(polled.operation())?;
        Ok(polled)
    }
    fn operation(&mut self) -> Operation {
        // SAFETY: boxed, and kept until the operation has completed.
        unsafe { Operation::new(&raw mut *self.0) }.expect("not NULL")
    }
    fn end(mut self, provider: &Provider, socket: usize) -> Result<u32> {
        let outcome = provider.overlapped_result(socket, self.operation(), true)?;
        outcome.error.map_or(Ok(outcome.bytes), Err)
    }
}

/// A connected socket with its two regions (seed 004): one for sending, one for receiving.
pub(crate) struct Session {
    provider: Arc<Provider>,
    pub(crate) socket: usize,
    sending: Memory,
    receiving: Memory,
    handles: [Handle; 2],
    receives: std::collections::VecDeque<(usize, Polled)>,
    peer_reads: bool,
    /// Why a receive could not be posted again.
    gone: Option<Error>,
}

/// Control messages: a kind, then its fields.
const HELLO: u8 = 1;
const SRC_AVAIL: u8 = 2;
const SINK_AVAIL: u8 = 3;
const RD_DONE: u8 = 4;
const WR_DONE: u8 = 5;

impl Session {
    /// Register the two regions, post the receives, and agree with the other side.
    pub(crate) fn start(provider: &Arc<Provider>, socket: usize, reads: bool) -> Result<Session> {
        let (sending, receiving) =
            (Memory::new(MESSAGES * MESSAGE), Memory::new(MESSAGES * MESSAGE));
        let register = |memory: &Memory, flags| {
            let Range { address, length } = memory.range(0, MESSAGES * MESSAGE);
            // SAFETY: the session keeps the memory and touches it through pointers only.
            unsafe { provider.register_memory(socket, address, length, flags) }
        };
        let handles = [register(&sending, mem::READ)?, register(&receiving, mem::WRITE)?];
        let mut session = Session {
            provider: Arc::clone(provider),
            socket,
            sending,
            receiving,
            handles,
            receives: std::collections::VecDeque::new(),
            peer_reads: false,
            gone: None,
        };
        for slot in 0..MESSAGES {
            session.post(slot)?;
        }
        session.say(&[HELLO, u8::from(reads)])?;
        let hello = session.hear()?;
        session.peer_reads = hello == [HELLO, 1];
        Ok(session)
    }

    fn post(&mut self, slot: usize) -> Result<()> {
        let range = self.receiving.range(slot * MESSAGE, MESSAGE);
        let receive = Polled::begin(|op| self.provider.receive(self.socket, &[range], 0, op))?;
        self.receives.push_back((slot, receive));
        Ok(())
    }

    /// The sending and the receiving region.
    pub(crate) fn regions(&self) -> (Range, Range) {
        (self.sending.range(0, MESSAGE), self.receiving.range(0, MESSAGE))
    }

    pub(crate) fn say(&mut self, message: &[u8]) -> Result<()> {
        self.sending.put(0, message);
        let range = self.sending.range(0, message.len());
        let send = Polled::begin(|op| self.provider.send(self.socket, &[range], 0, op))?;
        send.end(&self.provider, self.socket).map(drop)
    }

    pub(crate) fn hear(&mut self) -> Result<Vec<u8>> {
        let gone = self.gone.unwrap_or(Error::WSAENOBUFS);
        let (slot, receive) = self.receives.pop_front().ok_or(gone)?;
        let bytes = receive.end(&self.provider, self.socket)? as usize;
        let message = self.receiving.get(slot * MESSAGE, bytes);
        // A peer that has said its last word may be gone; its word counts.
        self.gone = self.post(slot).err();
        Ok(message)
    }

    fn rdma(
        &self,
        direction: Direction,
        memory: &Memory,
        handle: Handle,
        target: &[u8],
        length: usize,
    ) -> Result<()> {
        for offset in (0..length).step_by(PIECE) {
            let part = [(memory.range(offset, PIECE.min(length - offset)), handle)];
            let target = (target, u32::try_from(offset).map_err(|_| Error::WSAEMSGSIZE)?);
            let (provider, socket) = (&self.provider, self.socket);
            Polled::begin(|op| provider.rdma(socket, direction, &part, target, 0, op))?
                .end(provider, socket)?;
        }
        Ok(())
    }

    /// Send bytes: the first of them in the message, the rest by RDMA (WSD 8.3, 8.4).
    pub(crate) fn send_all(&mut self, bytes: &[u8]) -> Result<()> {
        // A file beyond the threshold goes by RDMA; one that equals it goes in the message.
        let name = SO_RDMA_THRESHOLD_SIZE;
        let threshold = self.provider.option(self.socket, SOL_SOCKET, name)? as usize;
        let inline = if bytes.len() > threshold { FIRST } else { bytes.len() };
        let (first, rest) = bytes.split_at(inline);
        let memory = Memory::new(rest.len());
        memory.put(0, rest);
        let Range { address, length } = memory.range(0, rest.len());
        let mut message = vec![SRC_AVAIL];
        message.extend((bytes.len() as u64).to_le_bytes());
        message.extend((inline as u32).to_le_bytes());
        let (provider, socket) = (Arc::clone(&self.provider), self.socket);
        if rest.is_empty() {
            message.extend([0; 16]);
            message.extend(first);
            return self.say(&message);
        }
        if self.peer_reads {
            // SAFETY: kept until it is deregistered, and touched through pointers only.
            let descriptor =
                unsafe { provider.register_rdma_memory(socket, address, length, mem::READ) }?;
            message.extend(descriptor);
            message.extend(first);
            self.say(&message)?;
            self.expect(RD_DONE)?;
            return provider.deregister_rdma_memory(socket, &descriptor);
        }
        message.extend([0; 16]);
        message.extend(first);
        self.say(&message)?;
        let target = self.expect(SINK_AVAIL)?;
        // SAFETY: as above.
        let handle = unsafe { provider.register_memory(socket, address, length, mem::READ) }?;
        self.rdma(Direction::Write, &memory, handle, &target, rest.len())?;
        self.say(&[WR_DONE])?;
        provider.deregister_memory(socket, handle)
    }

    /// Receive what [`Session::send_all`] sends. `reads`: fetch it, rather than have it written.
    pub(crate) fn receive_all(&mut self, reads: bool) -> Result<Vec<u8>> {
        let message = self.expect(SRC_AVAIL)?;
        let bad = Error::WSAECONNABORTED;
        let (total, rest) = message.split_first_chunk::<8>().ok_or(bad)?;
        let (inline, rest) = rest.split_first_chunk::<4>().ok_or(bad)?;
        let (source, first) = rest.split_first_chunk::<16>().ok_or(bad)?;
        let total = usize::try_from(u64::from_le_bytes(*total)).map_err(|_| bad)?;
        if first.len() != u32::from_le_bytes(*inline) as usize || first.len() > total {
            return Err(bad);
        }
        let mut bytes = first.to_vec();
        let missing = total - first.len();
        if missing == 0 {
            return Ok(bytes);
        }
        let memory = Memory::new(missing);
        let Range { address, length } = memory.range(0, missing);
        let (provider, socket) = (Arc::clone(&self.provider), self.socket);
        if reads {
            // SAFETY: kept until it is deregistered, and touched through pointers only.
            let handle = unsafe { provider.register_memory(socket, address, length, mem::WRITE) }?;
            self.rdma(Direction::Read, &memory, handle, source, missing)?;
            self.say(&[RD_DONE])?; // cannot overtake the reads
            provider.deregister_memory(socket, handle)?;
        } else {
            // SAFETY: as above.
            let sink =
                unsafe { provider.register_rdma_memory(socket, address, length, mem::WRITE) }?;
            self.say(&[&[SINK_AVAIL], &sink[..]].concat())?;
            self.expect(WR_DONE)?; // cannot overtake the writes
            provider.deregister_rdma_memory(socket, &sink)?;
        }
        bytes.extend(memory.get(0, missing));
        Ok(bytes)
    }

    /// Tell the sender what arrived, and how many bytes this side's own RDMA operations moved.
    pub(crate) fn report(&mut self, bytes: &[u8]) -> Result<()> {
        let (_, fetched) = self.provider.moved(self.socket)?;
        self.say(&[digest(bytes).to_le_bytes(), (fetched as u64).to_le_bytes()].concat())
    }

    fn expect(&mut self, kind: u8) -> Result<Vec<u8>> {
        let message = self.hear()?;
        match message.split_first() {
            Some((first, rest)) if *first == kind => Ok(rest.to_vec()),
            _ => Err(Error::WSAECONNABORTED),
        }
    }

    /// Before a socket is closed the switch deregisters what no transfer uses (WSD A-21): the
    /// sending region. The receives of the other one are under way; the provider releases it.
    pub(crate) fn close(self) -> Result<()> {
        let [sending, _] = self.handles;
        self.provider.deregister_memory(self.socket, sending)?;
        self.provider.close_socket(self.socket)
    }
}

impl Drop for Session {
    /// Nothing of the provider's may be under way when the regions and the receives go.
    fn drop(&mut self) {
        let _ = self.provider.close_socket(self.socket);
    }
}

pub(crate) fn provider(reads: bool) -> Result<Arc<Provider>> {
    let offers = Offers { rdma_read: reads, ..Offers::default() };
    Provider::start(Arc::new(Quiet), Options { offers })
}

pub(crate) fn listen(provider: &Arc<Provider>) -> Result<(usize, SocketAddr)> {
    let listener = provider.open_socket((2, 1, 6), 0, 1)?;
    provider.bind(listener, SocketAddr::from(([127, 0, 0, 1], 0)))?;
    provider.listen(listener, 4)?;
    Ok((listener, provider.local_address(listener)?))
}

pub(crate) fn accept(provider: &Provider, listener: usize) -> Result<usize> {
    loop {
        match provider.accept(listener, |_, _| CF_ACCEPT) {
            Err(Error::WSAEWOULDBLOCK) => std::thread::yield_now(),
            other => return other.map(|(socket, _)| socket),
        }
    }
}

/// A check that two processes can compare (FNV-1a; nothing secret about it).
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The receiving process.
fn receive(peer: SocketAddr, reads: bool) -> Result<()> {
    let provider = provider(reads)?;
    let socket = provider.open_socket((2, 1, 6), 0, 1)?;
    provider.connect(socket, peer)?;
    let mut session = Session::start(&provider, socket, reads)?;
    let bytes = session.receive_all(reads)?;
    session.report(&bytes)?;
    session.close()?;
    provider.cleanup();
    Ok(())
}

/// Move bytes to the process at the other end, and add up both sides' counters: the bytes that this
/// side has moved by RDMA.
pub(crate) fn serve(
    provider: &Arc<Provider>,
    listener: usize,
    bytes: &[u8],
    reads: bool,
) -> Result<usize> {
    let socket = accept(provider, listener)?;
    let mut session = Session::start(provider, socket, reads)?;
    session.send_all(bytes)?;
    let theirs = session.hear()?;
    let (their_digest, fetched) = theirs.split_first_chunk::<8>().ok_or(Error::WSAECONNABORTED)?;
    let fetched = fetched.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (messages, written) = provider.moved(socket)?;
    let rdma = written + fetched as usize;
    let part = 100.0 * rdma as f64 / (rdma + messages).max(1) as f64;
    let way = if reads { "WSPRdmaRead" } else { "WSPRdmaWrite" };
    println!(
        "{} bytes moved: {rdma} by {way}, {messages} in messages: {part:.2} % by RDMA",
        bytes.len()
    );
    if *their_digest != digest(bytes).to_le_bytes() || (bytes.len() > 100_000 && part < 90.0) {
        return Err(Error::WSAECONNABORTED);
    }
    println!("digest {:016x} verified by the receiving process", digest(bytes));
    session.close().map(|()| written)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let reads = !args.iter().any(|arg| arg == "--no-rdma-read");
    let result = match args.first().map(String::as_str) {
        Some("receive") => match args.get(1).and_then(|peer| peer.parse().ok()) {
            Some(peer) => receive(peer, reads).map_err(|error| error.to_string()),
            None => Err("receive ADDRESS:PORT".to_owned()),
        },
        Some("serve") => send(args.get(1).map(String::as_str), reads, false),
        file => send(file.filter(|file| !file.starts_with("--")), reads, true),
    };
    assert!(SIZE_LIMIT as usize >= MESSAGE);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("move_file: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Send a file (none: this program) to a second process, which is started here or by the user.
fn send(file: Option<&str>, reads: bool, start: bool) -> std::result::Result<(), String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let path = file.map_or_else(|| own.clone(), Into::into);
    let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let provider = provider(reads).map_err(|e| e.to_string())?;
    let (listener, at) = listen(&provider).map_err(|e| e.to_string())?;
    let mut command = Command::new(own);
    command.arg("receive").arg(at.to_string());
    if !reads {
        command.arg("--no-rdma-read");
    }
    let mut child = if start {
        Some(command.spawn().map_err(|e| e.to_string())?)
    } else {
        println!("waits for: move_file receive {at}");
        None
    };
    let served = serve(&provider, listener, &bytes, reads).map_err(|e| e.to_string());
    let status = child.as_mut().map(Child::wait).transpose().map_err(|e| e.to_string())?;
    provider.cleanup();
    served?;
    match status {
        Some(status) if !status.success() => Err(format!("the receiver: {status}")),
        _ => Ok(()),
    }
}
