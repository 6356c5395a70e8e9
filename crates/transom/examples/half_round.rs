//! The processor's cost of half a round trip of 8-byte Writes: two adapters, one thread.
//!
//! With one thread nothing waits and nothing contends, so every poll finds its bytes, the figure is
//! steady, and a profiler that counts instructions sees the path alone:
//!
//! ```text
//! cargo run --release -p transom --example half_round
//! valgrind --tool=callgrind --toggle-collect='half_round::rounds' target/release/examples/half_round 2000
//! ```
//!
//! The bare sockets beside it make the same calls to the kernel; the difference is ours.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Instant;

use transom::{Adapter, Grant, QueuePair, Region, Rights, Window};

/// Repetitions of each measurement; the medians are shown.
const REPEAT: usize = 21;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args().nth(1).map_or(Ok(20_000), |word| word.parse())?;
    let mut ends = connect(true)?;
    let mut sockets = plain()?;
    rounds(&mut ends, 100)?;
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..REPEAT.min(count) {
        let begin = Instant::now();
        rounds(&mut ends, count)?;
        ours.push(begin.elapsed().as_nanos() as f64 / (2 * count) as f64);
        let begin = Instant::now();
        bare(&mut sockets, count)?;
        raw.push(begin.elapsed().as_nanos() as f64 / (2 * count) as f64);
        if count < 20_000 {
            break; // under a profiler
        }
    }
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (ours, raw) = (median(&mut ours), median(&mut raw));
    println!("half a round: {ours:.0} ns, bare sockets {raw:.0} ns, ours {:.0} ns", ours - raw);
    Ok(())
}

struct End {
    queue: QueuePair,
    memory: Region<Vec<u8>>,
    local: Region<Vec<u8>>,
    window: Window,
    theirs: Option<Grant>,
}

impl End {
    fn new(adapter: &Adapter, queue: QueuePair) -> transom::Result<End> {
        let memory = adapter.register(vec![0; 8])?;
        let local = adapter.register(vec![0; 8])?;
        let window = queue.bind(&memory, .., Rights::READ | Rights::WRITE)?;
        Ok(End { queue, memory, local, window, theirs: None })
    }
}

fn connect(crc: bool) -> transom::Result<[End; 2]> {
    let here = Ipv4Addr::LOCALHOST;
    let near = Adapter::options().crc(crc).open(here.into())?;
    let far = Adapter::options().crc(crc).open(here.into())?;
    let mut listener = far.listen(SocketAddr::from((here, 0)))?;
    let to = listener.address();
    let (one, other) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| near.connect(to).wait());
        let other = listener.next().wait().and_then(|incoming| incoming.accept().wait());
        (asking.join(), other)
    });
    let one = one.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let (mut one, mut other) = (End::new(&near, one)?, End::new(&far, other?)?);
    one.theirs = Some(other.window.grant());
    other.theirs = Some(one.window.grant());
    Ok([one, other])
}

/// The given number of round trips.
#[inline(never)]
fn rounds(ends: &mut [End; 2], count: usize) -> transom::Result<()> {
    for round in 0..count {
        let turn = (round % 255 + 1) as u8;
        half(&ends[0], &ends[1], turn)?;
        half(&ends[1], &ends[0], turn)?;
    }
    Ok(())
}

fn half(from: &End, to: &End, turn: u8) -> transom::Result<()> {
    from.local.atomic_u8(7)?.store(turn, Ordering::Release);
    if let Some(theirs) = from.theirs {
        drop(from.queue.write(theirs, from.local.slice(..))?);
    }
    let bell = to.memory.atomic_u8(7)?;
    loop {
        to.queue.poll();
        if bell.load(Ordering::Acquire) == turn {
            return Ok(());
        }
    }
}

fn plain() -> std::io::Result<[TcpStream; 2]> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    for stream in [&one, &other] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    Ok([one, other])
}

/// The same over bare sockets: as many bytes as a Write with its acknowledgement has on the wire.
#[inline(never)]
fn bare(sockets: &mut [TcpStream; 2], count: usize) -> std::io::Result<()> {
    let [one, other] = sockets;
    let mut bytes = [0; 52];
    for _ in 0..count {
        one.write_all(&bytes)?;
        other.read_exact(&mut bytes)?;
        other.write_all(&bytes)?;
        one.read_exact(&mut bytes)?;
    }
    Ok(())
}
