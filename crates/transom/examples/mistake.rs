//! A program with a mistake, for the walk of docs/debugging.md: a worker writes records into a window on
//! its owner's log, and does not begin anew when the window is full.
//!
//! `TRANSOM_INSPECT=1 cargo run --release -p transom --example mistake` waits for Enter at its end, so
//! that `transom ps` and `transom show` can look into it. With `--features tracing` the events of its
//! connections are printed, too.

use std::net::SocketAddr;

use transom::{Adapter, Grant, Result, Rights};

const LOG: usize = 64 * 1024;
/// The part of the log that is this worker's.
const PART: std::ops::Range<u64> = 4096..8192;
const RECORD: u64 = 512;

fn worker(to: SocketAddr) -> Result<()> {
    let adapter = Adapter::route_to(to)?;
    let owner = adapter.connect(to).receives(4, 64).wait()?;
    let part = Grant::from_bytes(&owner.recv().wait()?)?;
    let record = adapter.register(vec![b'.'; RECORD as usize])?;
    for number in 0..10 {
        let at = number * RECORD; // the mistake: it should be `number * RECORD % part.len()`
        owner.write(part.range(at..at + RECORD), record.slice(..))?.wait()?;
    }
    Ok(())
}

fn main() -> Result<()> {
    #[cfg(feature = "tracing")]
    tracing_subscriber::fmt().init();
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let adapter = Adapter::open(here.ip())?;
    let log = adapter.register(vec![0; LOG])?.named("log");
    let mut listener = adapter.listen(here)?;
    let to = listener.address();
    let worker = std::thread::spawn(move || worker(to));
    let peer = listener.next().wait()?.receives(4, 64).accept().wait()?;
    let window = peer.bind(&log, PART, Rights::WRITE)?.named("part of the worker");
    peer.send(window.grant().to_bytes())?.wait()?;
    if let Ok(Err(error)) = worker.join() {
        println!("the worker has failed: {:?}", error.kind());
    }
    println!("process {}: Enter ends it", std::process::id());
    let _ = std::io::stdin().read_line(&mut String::new());
    Ok(())
}
