//! Fairness in the background thread: a peer that sends little waits for a bounded part of what the
//! others have sent, however many come and go.
//!
//! The thread is stopped in the middle of its work until everything has arrived in the sockets, so that
//! what it does next depends on no clock.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use transom_memory::Rights;

use super::harness::*;
use crate::raw::{Adapter, Listener, Options, Path, Trace};
use crate::trace::What;
use crate::{CompletionKind, Operation, Status};

/// A gate in the background thread, which stops there when it places bytes.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    stopped: bool,
    /// The lengths of what was placed since the gate was closed.
    placed: Vec<u32>,
    /// Called before each byte of an honest peer is placed.
    ask: Option<Box<dyn FnMut() + Send>>,
}

/// Bytes of a Write of the honest peer: no attacker here writes as many.
const HONEST: usize = 64;

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn pass(&self, what: What) {
        let What::Placed { length, .. } = what else { return };
        let mut state = self.state();
        state.placed.push(length);
        if length as usize == HONEST
            && let Some(mut ask) = state.ask.take()
        {
            ask();
        }
        state.stopped = state.closed;
        self.changed.notify_all();
        let _open = self.changed.wait_timeout_while(state, PATIENCE, |state| state.closed);
    }

    fn until(&self, so: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waits = |state: &mut State| !so(state);
        let (state, late) = self.changed.wait_timeout_while(self.state(), PATIENCE, waits).unwrap();
        assert!(!late.timed_out(), "the background thread never came by: {:?}", state.placed);
        state
    }

    /// Close it, and have the thread run into it.
    fn close(&self, push: impl FnOnce()) {
        self.state().closed = true;
        push();
        self.until(|state| state.stopped).placed.clear();
    }

    /// Open it. How much was placed before the honest peer's Write.
    fn open(&self) -> usize {
        self.state().closed = false;
        self.changed.notify_all();
        let mine = |state: &State| state.placed.iter().position(|n| *n as usize == HONEST);
        mine(&self.until(|state| mine(state).is_some())).unwrap()
    }
}

/// An owner with a gate, an honest peer, and two who forge.
struct Scene {
    gate: Arc<Gate>,
    owner: Adapter,
    listening: SocketAddr,
    stopper: Forger,
    forger: Forger,
    honest: End,
    /// The bytes of the honest peer, and their destination.
    source: Buffer,
    to: Operation,
    _kept: ([End; 3], Listener),
}

impl Scene {
    fn new() -> Scene {
        let gate = Arc::new(Gate::default());
        let trace = Trace(Arc::new({
            let gate = gate.clone();
            move |event: &crate::trace::TraceEvent| gate.pass(event.what)
        }));
        let options =
            Options { trace: Some(trace), path: Path::Tcp, checksum: false, ..Options::from_env() };
        let first = End::new(&options);
        let (second, third) = (End::on(&first.adapter), End::on(&first.adapter));
        let listener = first.adapter.listener(loopback()).unwrap();
        listener.listen(0).unwrap();
        let stopper = Forger::join(&first, &listener);
        let forger = Forger::join(&second, &listener);
        let honest = End::new(&Options { path: Path::Tcp, ..Options::from_env() });
        join_at(&honest, &third, &listener);
        let theirs = third.buffer(HONEST);
        let window = third.window(&theirs, Rights::REMOTE_WRITE);
        let to = Operation::Write { token: window.0, address: theirs.address() };
        let source = honest.buffer(HONEST);
        let owner = first.adapter.clone();
        let listening = listener.address().unwrap();
        let _kept = ([first, second, third], listener);
        Scene { gate, owner, listening, stopper, forger, honest, source, to, _kept }
    }

    /// Stop the background thread, in a pass over a link that no other thread uses.
    fn stop(&mut self) {
        self.gate.close(|| self.stopper.stream.write_all(&self.stopper.tiny()).unwrap());
    }

    /// The honest peer writes, and its bytes wait in the owner's socket.
    fn honest_writes(&self) {
        let peer = self.honest.connector.local().unwrap();
        self.honest.post(self.to, &[self.source.all()]);
        let begin = Instant::now();
        while waiting_from(peer) == 0 {
            assert!(begin.elapsed() < PATIENCE, "the Write never arrived");
            std::thread::yield_now();
        }
    }
}

/// Bytes from that address that wait to be read, as the kernel counts them.
fn waiting_from(peer: SocketAddr) -> u64 {
    let port = format!(":{:04X}", peer.port());
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let line = sockets.lines().find_map(|line| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        (words[2].ends_with(&port) && words[3] == "01").then(|| words[4].to_owned())
    });
    let queues = line.expect("its connection is in the table");
    u64::from_str_radix(queues.split_once(':').unwrap().1, 16).unwrap()
}

/// An end of a stream without checksums.
struct Forger {
    stream: TcpStream,
    target: (u32, u64),
}

impl Forger {
    fn join(owner: &End, listener: &Listener) -> Forger {
        let (sink, requested) = signal();
        listener.get_request(&owner.connector, sink).unwrap();
        let mut stream = TcpStream::connect(listener.address().unwrap()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(b"MPA ID Req Frame\x10\x02\x00\x04\x00\x04\x00\x04").unwrap();
        assert_eq!(requested.wait(), Status::Success);
        let (sink, accepted) = signal();
        owner.connector.accept(&owner.qp, LIMITS, b"", sink).unwrap();
        stream.read_exact(&mut [0; 24]).unwrap();
        owner.qp.post_receive(0, &[]).unwrap();
        let ready = [&[0x41, 0x43][..], &[0; 8], &[0, 0, 0, 1], &[0; 4]].concat();
        stream.write_all(&framed(&ready)).unwrap();
        assert_eq!(accepted.wait(), Status::Success);
        owner.expect(CompletionKind::Receive);
        let memory = owner.buffer(64);
        let window = owner.window(&memory, Rights::REMOTE_WRITE);
        Forger { stream, target: (window.0, memory.address()) }
    }

    /// A Write of one byte.
    fn tiny(&self) -> Vec<u8> {
        let (token, address) = self.target;
        framed(&[&[0xc1, 0x40][..], &token.to_be_bytes(), &address.to_be_bytes(), &[9]].concat())
    }
}

fn framed(ulpdu: &[u8]) -> Vec<u8> {
    let mut fpdu = u16::try_from(ulpdu.len()).unwrap().to_be_bytes().to_vec();
    fpdu.extend_from_slice(ulpdu);
    fpdu.resize(fpdu.len().next_multiple_of(4) + 4, 0);
    fpdu
}

/// Design rule 12: the time of the background thread is shared out by work, not by bytes: a Write waits for a
/// few hundred frames of a peer that has sent thousands.
#[test]
fn one_byte_frames_get_no_larger_share_than_others() {
    const FLOOD: usize = 4000;
    let mut scene = Scene::new();
    let tiny = scene.forger.tiny();
    scene.stop();
    // As much as the sockets take.
    scene.forger.stream.set_nonblocking(true).unwrap();
    let sent = scene.forger.stream.write(&tiny.repeat(FLOOD)).unwrap() / tiny.len();
    scene.honest_writes();
    let before = scene.gate.open();
    assert!(before < sent / 4, "{before} frames of {sent} went before one Write");
}

/// iW 14: new connections that arrive at once are accepted a few at a time, between the passes of links
/// that are established.
#[test]
fn established_links_do_not_wait_for_many_new_connections() {
    const NEW: usize = 120;
    let mut scene = Scene::new();
    let before = scene.owner.counters().links;
    scene.stop();
    let new: Vec<_> = (0..NEW).map(|_| TcpStream::connect(scene.listening).unwrap()).collect();
    scene.honest_writes();
    let (owner, (tell, links)) = (scene.owner.clone(), std::sync::mpsc::channel());
    scene.gate.state().ask = Some(Box::new(move || tell.send(owner.counters().links).unwrap()));
    scene.gate.open();
    let let_in = links.recv_timeout(PATIENCE).unwrap() - before;
    assert!(let_in < NEW / 2, "{let_in} new connections of {NEW} went before one Write");
    // All the same their bytes are read.
    let begin = Instant::now();
    while scene.owner.counters().links < before + NEW {
        assert!(begin.elapsed() < PATIENCE, "connections are left outside");
        std::thread::yield_now();
    }
    drop(new);
}
