//! Many clients, one window each, revoked one by one.
//!
//! The owner keeps one cell of 8 bytes per client in a single buffer. Each client gets a window on
//! its own cell, and counts up in it by RDMA Write. The owner watches the cells, takes the windows
//! away one by one, and finds that a revoked client can change nothing any more while the others
//! count on.
//!
//! ```text
//! counter [CLIENTS]       (default 8)
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use transom::{Adapter, Error as TransomError, ErrorKind, Grant, QueuePair, Rights, Window};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Bytes of a cell.
const CELL: u64 = 8;

fn main() -> Outcome {
    let clients: u64 = std::env::args().nth(1).map_or(Ok(8), |count| count.parse())?;
    let adapter = Adapter::open("127.0.0.1".parse()?)?;
    let cells = adapter.register(vec![0; usize::try_from(clients * CELL)?])?;
    let mut listener = adapter.listen("127.0.0.1:0".parse()?)?;
    let at = listener.address();
    let threads: Vec<_> = (0..clients).map(|_| std::thread::spawn(move || count(at))).collect();

    // A window each: 8 bytes of the buffer, for writing, for this client alone.
    let mut open: Vec<(u64, QueuePair, Window)> = Vec::new();
    for client in 0..clients {
        let peer = listener.next().wait()?.accept().wait()?;
        let window = peer.bind(&cells, client * CELL..(client + 1) * CELL, Rights::WRITE)?;
        peer.send(window.grant().to_bytes())?.wait()?;
        open.push((client, peer, window));
    }
    let cell = |client: u64| -> Result<u64, TransomError> {
        Ok(cells.atomic_u64(client * CELL)?.load(Ordering::Acquire))
    };

    while let Some((client, peer, window)) = open.pop() {
        wait_until(|| Ok(cell(client)? > 0))?; // everyone gets to count
        window.revoke().wait()?;
        let last = cell(client)?;
        // The others still count ...
        for (other, ..) in &open {
            let before = cell(*other)?;
            wait_until(|| Ok(cell(*other)? > before))?;
        }
        // ... and this one does not, however hard it tries.
        if cell(client)? != last {
            return Err(format!("client {client} wrote after its window was closed").into());
        }
        println!("client {client} counted to {last}; window closed, {} still count", open.len());
        drop(peer);
    }
    for thread in threads {
        thread.join().map_err(|_| "a client has panicked")??;
    }
    cells.deregister().wait()?; // every window is closed: the Vec again
    Ok(())
}

/// A client: counts up in its cell until it is refused.
fn count(owner: SocketAddr) -> Outcome {
    let adapter = Adapter::route_to(owner)?;
    let owner = adapter.connect(owner).wait()?;
    let grant = Grant::from_bytes(&owner.recv().wait()?)?;
    let mine = adapter.register(vec![0; CELL as usize])?;
    for value in 1_u64.. {
        mine.copy_in(0, &value.to_ne_bytes())?;
        match owner.write(grant, mine.slice(..)).and_then(|posted| posted.wait()) {
            Ok(()) => {}
            // This is how it is meant to end: refused, or disconnected right after.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Refused | ErrorKind::Canceled | ErrorKind::NotConnected
                ) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Watch, for ten seconds at most.
fn wait_until(mut so: impl FnMut() -> Result<bool, TransomError>) -> Outcome {
    let begin = Instant::now();
    while !so()? {
        if begin.elapsed() > Duration::from_secs(10) {
            return Err("somebody does not count".into());
        }
        std::thread::yield_now();
    }
    Ok(())
}
