//! Messages when a few of many connections are active, next to the few alone.
//!
//! `cargo run --release -p transom-engine --example crowd -- [connections] [active] [rounds]`

#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use transom_engine::raw::{
    Adapter, CompletionQueue, Connector, Domain, Listener, Options, QueuePair, QueuePairOptions,
    ReadLimits, Sink,
};
use transom_engine::sys;
use transom_engine::{Completion, CompletionKind, Data, Flags, Operation, Request, Sge, Status};
use transom_memory::{Rights, Segment};

const LIMITS: ReadLimits = ReadLimits { inbound: 1, outbound: 1 };

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn signal() -> (Sink, mpsc::Receiver<Status>) {
    let (tell, told) = mpsc::channel();
    (Sink::call(move |s| _ = tell.send(s)), told)
}

/// Queue pairs of one adapter whose completions all arrive in one queue. Contexts are indexes.
struct Side {
    adapter: Adapter,
    domain: Domain,
    cq: CompletionQueue,
    inbox: Sge,
    pairs: Vec<QueuePair>,
    connectors: Vec<Connector>,
}

impl Side {
    fn new() -> Side {
        let adapter = Adapter::open(Ipv4Addr::LOCALHOST.into(), Options::default()).unwrap();
        let domain = adapter.domain().unwrap();
        let cq = adapter.completion_queue(1 << 16).unwrap();
        let memory: &'static mut [u8] = vec![0; 64].leak();
        let (host, length) = (memory.as_ptr() as u64, 64);
        let rights = Rights::LOCAL_READ | Rights::LOCAL_WRITE;
        // SAFETY: leaked, and never used for anything else.
        let region =
            unsafe { adapter.register(domain, host, &[Segment { host, length }], rights).unwrap() };
        let inbox = Sge { token: region.0, address: host, length: 64 };
        Side { adapter, domain, cq, inbox, pairs: Vec::new(), connectors: Vec::new() }
    }

    fn add(&mut self) {
        let options = QueuePairOptions { context: self.pairs.len() as u64, ..Default::default() };
        let Side { adapter, domain, cq, .. } = self;
        let pair = adapter.queue_pair(*domain, cq, cq, None, &options).unwrap();
        for _ in 0..2 {
            pair.post_receive(0, &[self.inbox]).unwrap();
        }
        self.pairs.push(pair);
        self.connectors.push(self.adapter.connector().unwrap());
    }

    fn send(&self, index: u64) {
        let flags = Flags::SILENT_SUCCESS;
        let request = Request { context: 0, operation: Operation::Send, flags };
        self.pairs[index as usize].post(&request, Data::Inline(b"8 bytes.")).unwrap();
    }

    /// Answer every message; how many there were.
    fn turn(&self) -> u64 {
        let mut some = [Completion::default(); 64];
        let count = self.cq.poll(&mut some);
        let mut messages = 0;
        for completion in &some[..count] {
            assert_eq!(completion.status, Status::Success);
            if completion.kind == CompletionKind::Receive {
                messages += 1;
                let index = completion.queue_pair_context;
                self.pairs[index as usize].post_receive(0, &[self.inbox]).unwrap();
                self.send(index);
            }
        }
        messages
    }
}

fn join(one: &mut Side, other: &mut Side, listener: &Listener) {
    one.add();
    other.add();
    let (passive, active) = (one.connectors.last().unwrap(), other.connectors.last().unwrap());
    let (sink, requested) = signal();
    listener.get_request(passive, sink).unwrap();
    active.bind(loopback()).unwrap();
    let (sink, connected) = signal();
    let at = listener.address().unwrap();
    active.connect(other.pairs.last().unwrap(), at, LIMITS, &[], sink).unwrap();
    assert_eq!(requested.recv().unwrap(), Status::Success);
    let (sink, accepted) = signal();
    passive.accept(one.pairs.last().unwrap(), LIMITS, &[], sink).unwrap();
    assert_eq!(connected.recv().unwrap(), Status::Success);
    active.complete_connect().unwrap();
    assert_eq!(accepted.recv().unwrap(), Status::Success);
}

/// A set of connections, the first of them active from now on.
fn crowd(connections: usize) -> (Side, Side) {
    let (mut one, mut other) = (Side::new(), Side::new());
    let listener = one.adapter.listener(loopback()).unwrap();
    listener.listen(0).unwrap();
    for _ in 0..connections {
        join(&mut one, &mut other, &listener);
    }
    (one, other)
}

/// Round trips per second of processor time. One thread plays both sides, so that neither waits and
/// other programs of the machine do not count.
fn rate((one, other): &(Side, Side), time: Duration) -> f64 {
    let (begin, before, mut messages) = (Instant::now(), sys::cpu_time(), 0);
    while begin.elapsed() < time {
        messages += one.turn();
        other.turn();
    }
    messages as f64 / (sys::cpu_time() - before).as_secs_f64()
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<usize>().expect("a number"));
    let connections = arguments.next().unwrap_or(1000);
    let active = arguments.next().unwrap_or(100);
    let rounds = arguments.next().unwrap_or(7);
    let crowds = [active, connections].map(|count| {
        let crowd = crowd(count);
        for index in 0..active as u64 {
            crowd.1.send(index);
        }
        crowd
    });
    let mut ratios: Vec<f64> = (0..rounds)
        .map(|_| {
            let [alone, among] = [0, 1].map(|i| rate(&crowds[i], Duration::from_millis(500)));
            println!("{active} alone {alone:.0}/s, among {connections} {among:.0}/s");
            among / alone
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.2}", ratios[rounds / 2]);
}
