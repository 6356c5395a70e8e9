//! Six classic mistakes beside honest work, for the memory map (docs/debugging.md). An owner lends parts
//! of a log and of an index to workers. Two of them keep to what they were lent; six others each do one
//! thing wrong, and are refused.
//!
//! `cargo run --release -p transom --example mistakes` waits for Enter at its end; meanwhile
//! `transom watch --web` shows what happened where.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use transom::{Adapter, Grant, QueuePair, Region, Result, Rights, Window};

const LOG: usize = 64 * 1024;
const INDEX: usize = 16 * 1024;
/// Bytes of a record in the log.
const RECORD: u64 = 512;

/// The owner, the workers that go on, and all that they hold.
pub(crate) struct Work {
    stop: Arc<AtomicBool>,
    honest: Vec<JoinHandle<Result<()>>>,
    _lent: Vec<(QueuePair, Window)>,
    _other: QueuePair,
    _regions: [Region<Vec<u8>>; 2],
    _owner: Adapter,
}

/// The owner's objects, and the workers' own adapter.
struct Stage {
    owner: Adapter,
    workers: Adapter,
    at: SocketAddr,
    listener: transom::Listener,
}

impl Stage {
    /// A connection: the owner's end, and a worker's.
    fn connect(&mut self) -> Result<(QueuePair, QueuePair)> {
        let connecting = self.workers.connect(self.at).reads(4).receives(4, 64);
        let worker = std::thread::spawn(move || connecting.wait());
        let owner = self.listener.next().wait()?.reads(4).receives(4, 64).accept().wait()?;
        let worker = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((owner, worker))
    }
}

/// Open a window for a worker, and tell it.
fn lend(
    (owner, worker): (&QueuePair, &QueuePair),
    (region, range): (&Region<Vec<u8>>, Range<u64>),
    rights: Rights,
    name: &str,
) -> Result<(Window, Grant)> {
    let window = owner.bind(region, range, rights)?.named(name);
    owner.send(window.grant().to_bytes())?.wait()?;
    let grant = Grant::from_bytes(&worker.recv().wait()?)?;
    Ok((window, grant))
}

/// A worker that does something with its part again and again, and keeps to it.
fn work(
    stop: &Arc<AtomicBool>,
    worker: QueuePair,
    own: Region<Vec<u8>>,
    (part, write): (Grant, bool),
) -> JoinHandle<Result<()>> {
    let stop = stop.clone();
    std::thread::spawn(move || {
        let mut at = 0;
        while !stop.load(Ordering::Relaxed) {
            let range = part.range(at..at + RECORD);
            if write {
                worker.write(range, own.slice(..))?.wait()?;
            } else {
                worker.read(range, own.slice(..))?.wait()?;
            }
            at = (at + RECORD) % part.len();
            std::thread::sleep(Duration::from_millis(60));
        }
        Ok(())
    })
}

/// Make the six mistakes, each on a connection of its own: a refusal costs the connection. The adapter
/// of the owner answers inspections; that of the workers does not, so that each refusal is shown once.
pub(crate) fn begin(host: std::net::IpAddr) -> Result<Work> {
    let owner = Adapter::options().named("owner").inspect(true).open(host)?;
    let workers = Adapter::options().named("workers").inspect(false).open(host)?;
    let log = owner.register(vec![0; LOG])?.named("log");
    let index = owner.register(vec![0; INDEX])?.named("index");
    let listener = owner.listen((host, 0).into())?;
    let mut stage = Stage { owner, workers, at: listener.address(), listener };
    let stop = Arc::new(AtomicBool::new(false));
    let (mut honest, mut held) = (Vec::new(), Vec::new());
    let lent = [
        (&log, 0..0x2000, Rights::WRITE, "writer", true),
        (&log, 0x2800..0x6000, Rights::READ | Rights::WRITE, "sorter", false),
        (&index, 0..0x3000, Rights::READ, "reader", false),
    ];
    for (region, range, rights, name, write) in lent {
        let (own, worker) = stage.connect()?;
        let (window, part) = lend((&own, &worker), (region, range), rights, name)?;
        let bytes = stage.workers.register(vec![b'.'; RECORD as usize])?;
        honest.push(work(&stop, worker, bytes, (part, write)));
        held.push((own, window));
    }

    let scratch = stage.workers.register(vec![0; 4096])?;
    let bytes = |grant: &Grant| scratch.slice(..grant.len());
    // Each is refused; the owner's record says why.
    let read =
        |worker: &QueuePair, at: Grant| worker.read(at, bytes(&at)).map(|it| drop(it.wait()));
    let write =
        |worker: &QueuePair, at: Grant| worker.write(at, bytes(&at)).map(|it| drop(it.wait()));

    // 1. The four bytes of the token in the other order.
    let (own, worker) = stage.connect()?;
    let (_window, part) = lend((&own, &worker), (&index, 0x800..0x1000), Rights::READ, "lookup")?;
    let asked = part.range(0x100..0x200);
    let swapped = part.token().swap_bytes();
    read(&worker, Grant::from_parts(swapped, asked.address(), asked.len(), asked.rights()))?;

    // 2. A window that its owner has closed.
    let (own, worker) = stage.connect()?;
    let (window, part) = lend((&own, &worker), (&log, 0x7000..0x8000), Rights::READ, "snapshot")?;
    read(&worker, part.range(..RECORD))?;
    window.revoke().wait()?;
    read(&worker, part.range(0x400..0x400 + RECORD))?;

    // 3. 41 bytes past the end.
    let (own, worker) = stage.connect()?;
    let (_window, part) = lend((&own, &worker), (&log, 0x9000..0xb000), Rights::WRITE, "appender")?;
    let end = part.len();
    write(&worker, part.range(end - RECORD..end + 41))?;

    // 4. A Write through a window for reading.
    let (own, worker) = stage.connect()?;
    let (_window, part) = lend((&own, &worker), (&log, 0xc000..0xd000), Rights::READ, "auditor")?;
    write(&worker, part.range(0x600..0x600 + RECORD))?;

    // 5. An offset where an address belongs.
    let (own, worker) = stage.connect()?;
    let (_window, part) = lend((&own, &worker), (&log, 0xe000..0xf000), Rights::WRITE, "indexer")?;
    write(&worker, Grant::from_parts(part.token(), 0x200, 64, part.rights()))?;

    // 6. The token of a window that was opened to another connection.
    let (other_own, other) = stage.connect()?;
    let (own, worker) = stage.connect()?;
    let (window, part) =
        lend((&other_own, &other), (&index, 0x3400..0x3c00), Rights::READ, "cache")?;
    read(&worker, part.range(..256))?;
    held.push((other_own, window));
    drop(own);

    let (_regions, _owner) = ([log, index], stage.owner);
    Ok(Work { stop, honest, _lent: held, _other: other, _regions, _owner })
}

impl Drop for Work {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for worker in self.honest.drain(..) {
            let _ = worker.join();
        }
    }
}

#[allow(dead_code, reason = "a test of the command takes the rest as a module")]
fn main() -> Result<()> {
    let work = begin([127, 0, 0, 1].into())?;
    println!("process {}: Enter ends it", std::process::id());
    let _ = std::io::stdin().read_line(&mut String::new());
    drop(work);
    Ok(())
}
