//! Latency and bandwidth of Writes over loopback, next to raw TCP in the same run. Two processes.
//!
//! `cargo run --release -p transom-engine --example measure -- [cubic|bbr] [pairs]`

#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::io::{BufRead, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use transom_engine::raw::{
    Adapter, CompletionQueue, Options, QueuePair, QueuePairOptions, Sink, Window,
};
use transom_engine::sys::{self, Stream};
use transom_engine::{Completion, Data, Flags, Operation, Request, Sge, Status};
use transom_memory::{Rights, Segment, Token};
use transom_wire::ReadLimits;

const BIG: usize = 1 << 20;
const DEEP: u64 = 16;
const LIMITS: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };

fn socket_options(cc: &str) -> sys::Options {
    sys::Options { silence: Duration::from_secs(10), congestion: Some(cc.into()) }
}

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// One side of a connection.
struct Side {
    _adapter: Adapter,
    _connector: transom_engine::raw::Connector,
    cq: CompletionQueue,
    qp: QueuePair,
    memory: &'static [AtomicU64],
    region: Token,
    /// The peer's token and address.
    peer: (u32, u64),
}

fn signal() -> (Sink, mpsc::Receiver<Status>) {
    let (tell, told) = mpsc::channel();
    (Sink::call(move |s| _ = tell.send(s)), told)
}

impl Side {
    fn new(cc: &str, crc: bool, peer: Option<SocketAddr>, hello: impl FnOnce(SocketAddr)) -> Side {
        let options = Options { checksum: crc, congestion: Some(cc.into()), ..Options::default() };
        let adapter = Adapter::open(Ipv4Addr::LOCALHOST.into(), options).unwrap();
        let domain = adapter.domain().unwrap();
        let cq = adapter.completion_queue(256).unwrap();
        let qp = adapter.queue_pair(domain, &cq, &cq, None, &QueuePairOptions::default()).unwrap();
        let memory: &'static [AtomicU64] =
            (0..BIG / 8 + 16).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
        let host = memory.as_ptr() as u64;
        let length = size_of_val(memory) as u64;
        let rights = Rights::LOCAL_READ | Rights::LOCAL_WRITE | Rights::BIND;
        // SAFETY: leaked atomics: nobody else's, never freed.
        let region =
            unsafe { adapter.register(domain, host, &[Segment { host, length }], rights).unwrap() };
        let connector = adapter.connector().unwrap();
        let inbox = Sge { token: region.0, address: host + BIG as u64, length: 16 };
        qp.post_receive(1, &[inbox]).unwrap();
        match peer {
            Some(peer) => {
                connector.bind(loopback()).unwrap();
                let (sink, told) = signal();
                connector.connect(&qp, peer, LIMITS, &[], sink).unwrap();
                assert_eq!(told.recv().unwrap(), Status::Success);
                connector.complete_connect().unwrap();
            }
            None => {
                let listener = adapter.listener(loopback()).unwrap();
                listener.listen(0).unwrap();
                hello(listener.address().unwrap());
                let (sink, told) = signal();
                listener.get_request(&connector, sink).unwrap();
                assert_eq!(told.recv().unwrap(), Status::Success);
                let (sink, told) = signal();
                connector.accept(&qp, LIMITS, &[], sink).unwrap();
                assert_eq!(told.recv().unwrap(), Status::Success);
            }
        }
        let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
        let window = Window { region, base: host, length: BIG as u64, rights };
        let window = adapter.reserve_window(&window, &qp).unwrap();
        let mut side =
            Side { _adapter: adapter, _connector: connector, cq, qp, memory, region, peer: (0, 0) };
        side.post(Operation::Bind { window }, Data::Sges(&[]));
        let mut card = [0; 16];
        card[..4].copy_from_slice(&window.0.to_ne_bytes());
        card[8..].copy_from_slice(&host.to_ne_bytes());
        side.post(Operation::Send, Data::Inline(&card));
        side.complete(3);
        let at = BIG / 8;
        side.peer =
            (memory[at].load(Ordering::Acquire) as u32, memory[at + 1].load(Ordering::Acquire));
        side
    }

    fn post(&self, operation: Operation, data: Data<'_>) {
        let request = Request { context: 0, operation, flags: Flags::NONE };
        self.qp.post(&request, data).unwrap();
    }

    fn write(&self, length: usize) {
        let address = self.memory.as_ptr() as u64;
        let sge = Sge { token: self.region.0, address, length: length as u32 };
        let (token, address) = self.peer;
        self.post(Operation::Write { token, address }, Data::Sges(&[sge]));
    }

    fn poll(&self) -> u64 {
        let mut some = [Completion::default(); 16];
        let n = self.cq.poll(&mut some);
        for c in &some[..n] {
            assert_eq!(c.status, Status::Success, "{:?}", self._adapter.denial(c.denial));
        }
        n as u64
    }

    fn complete(&self, mut count: u64) {
        while count > 0 {
            count -= self.poll().min(count);
        }
    }

    /// Half a round trip of an 8-byte Write, in nanoseconds. `first`: this side begins.
    fn ping(&self, rounds: u64, first: bool, base: u64) -> f64 {
        let begin = Instant::now();
        let mut done = 0;
        for i in 1..=rounds {
            let lap = base + i;
            if first {
                self.memory[0].store(2 * lap, Ordering::Release);
                self.write(8);
            }
            // The peer's answer overwrites what we sent.
            let want = if first { 2 * lap + 1 } else { 2 * lap };
            while self.memory[0].load(Ordering::Acquire) != want {
                done += self.poll();
            }
            if !first {
                self.memory[0].store(2 * lap + 1, Ordering::Release);
                self.write(8);
            }
        }
        let time = begin.elapsed();
        self.complete(rounds.saturating_sub(done));
        time.as_nanos() as f64 / rounds as f64 / 2.0
    }

    /// Bytes per second of 1 MiB Writes, `DEEP` of them outstanding.
    fn stream(&self, count: u64) -> f64 {
        let begin = Instant::now();
        let (mut posted, mut done) = (0, 0);
        while done < count {
            while posted < count && posted - done < DEEP {
                self.write(BIG);
                posted += 1;
            }
            done += self.poll();
        }
        (count * BIG as u64) as f64 / begin.elapsed().as_secs_f64()
    }
}

/// Raw TCP, spinning.
fn raw_ping(s: &Stream, rounds: u64, first: bool) -> f64 {
    let mut word = [0u8; 8];
    let begin = Instant::now();
    for _ in 0..rounds {
        if first {
            s.send(&word).unwrap();
        }
        let mut got = 0;
        while got < 8 {
            got += s.receive(&mut word[got..]).unwrap_or(0);
        }
        if !first {
            s.send(&word).unwrap();
        }
    }
    begin.elapsed().as_nanos() as f64 / rounds as f64 / 2.0
}

fn raw_send(s: &Stream, count: u64, buffer: &[u8]) -> f64 {
    let begin = Instant::now();
    for _ in 0..count {
        let mut at = 0;
        while at < buffer.len() {
            at += s.send(&buffer[at..]).unwrap_or(0);
        }
    }
    let mut ack = [0; 1];
    while s.receive(&mut ack).unwrap_or(0) == 0 {}
    (count * buffer.len() as u64) as f64 / begin.elapsed().as_secs_f64()
}

fn raw_receive(s: &Stream, count: u64, buffer: &mut [u8]) {
    let mut left = count * buffer.len() as u64;
    while left > 0 {
        left -= s.receive(buffer).unwrap_or(0) as u64;
    }
    s.send(&[1]).unwrap();
}

const ROUNDS: u64 = 5_000;
const STREAM: u64 = 300;

fn serve(cc: &str, pairs: u64) {
    let listener = sys::Listener::bind(loopback()).unwrap();
    listener.listen(1).unwrap();
    println!("{}", listener.address().unwrap());
    let say = |a: SocketAddr| println!("{a}");
    let on = Side::new(cc, true, None, say);
    let off = Side::new(cc, false, None, say);
    let raw = loop {
        if let Ok((s, _)) = listener.accept(&socket_options(cc)) {
            break s;
        }
    };
    let mut buffer = vec![0; BIG];
    let mut line = String::new();
    for i in 0..pairs {
        raw_ping(&raw, ROUNDS, false);
        off.ping(ROUNDS, false, i * ROUNDS);
        raw_ping(&raw, ROUNDS, false);
        on.ping(ROUNDS, false, i * ROUNDS);
        raw_receive(&raw, STREAM, &mut buffer);
        wait_for(&raw, &off);
        raw_receive(&raw, STREAM, &mut buffer);
        wait_for(&raw, &on);
    }
    let _ = std::io::stdin().read_line(&mut line);
}

/// Poll until the other side says so.
fn wait_for(raw: &Stream, side: &Side) {
    let mut one = [0];
    let mut turns = 0u64;
    loop {
        side.poll();
        turns += 1;
        if turns.is_multiple_of(64) && raw.receive(&mut one).unwrap_or(0) == 1 {
            return;
        }
    }
}

fn quartiles(mut v: Vec<f64>) -> String {
    v.sort_by(f64::total_cmp);
    let at = |q: f64| v[((v.len() - 1) as f64 * q).round() as usize];
    format!("{:.3} [{:.3} {:.3}]", at(0.5), at(0.25), at(0.75))
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let cc = args.get(1).map_or("cubic", String::as_str).to_owned();
    let pairs: u64 = args.get(2).and_then(|n| n.parse().ok()).unwrap_or(9);
    if args.get(3).is_some() {
        return serve(&cc, pairs);
    }
    let mut child = Command::new(&args[0])
        .args([&cc, &pairs.to_string(), "serve"])
        .stdout(Stdio::piped())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> SocketAddr { lines.next().unwrap().unwrap().parse().unwrap() };
    let raw_at = next();
    let at = next();
    let on = Side::new(&cc, true, Some(at), |_| ());
    let at = next();
    let off = Side::new(&cc, false, Some(at), |_| ());
    let raw = Stream::connect(None, raw_at, &socket_options(&cc)).unwrap();
    while raw.connected().is_err() {}
    let buffer = vec![1; BIG];
    let (mut lat, mut lat_crc, mut bw, mut bw_crc) = (vec![], vec![], vec![], vec![]);
    let (mut base, mut base_crc, mut gb) = (vec![], vec![], vec![]);
    let begin = Instant::now();
    for _ in 0..100_000 {
        off.poll();
    }
    println!("an empty poll: {:.0} ns", begin.elapsed().as_nanos() as f64 / 1e5);
    let mut word = [0; 8];
    let begin = Instant::now();
    for _ in 0..100_000 {
        let _ = raw.receive(&mut word);
    }
    println!("an empty receive: {:.0} ns", begin.elapsed().as_nanos() as f64 / 1e5);
    for i in 0..pairs {
        let r = raw_ping(&raw, ROUNDS, true);
        lat.push(off.ping(ROUNDS, true, i * ROUNDS) / r);
        base.push(r);
        let r = raw_ping(&raw, ROUNDS, true);
        base_crc.push(r);
        lat_crc.push(on.ping(ROUNDS, true, i * ROUNDS) / r);
        let r = raw_send(&raw, STREAM, &buffer);
        bw.push(off.stream(STREAM) / r);
        raw.send(&[1]).unwrap();
        gb.push(r / 1e9);
        let r = raw_send(&raw, STREAM, &buffer);
        bw_crc.push(on.stream(STREAM) / r);
        raw.send(&[1]).unwrap();
    }
    let (a, b) = (quartiles(base), quartiles(base_crc));
    println!("{cc}: raw 8 B {a} and {b} ns, raw stream {} GB/s", quartiles(gb));
    println!("8 B write latency / raw:  crc off {}  crc on {}", quartiles(lat), quartiles(lat_crc));
    println!("1 MiB bandwidth / raw:    crc off {}  crc on {}", quartiles(bw), quartiles(bw_crc));
    let _ = child.stdin.take().map(|mut s| s.write_all(b"\n"));
    child.wait().unwrap();
}
