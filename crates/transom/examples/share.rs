//! Serve a file through windows, fetch it, verify it.
//!
//! ```text
//! share serve FILE [ADDR:PORT]     lend the file to everyone who asks, one window each
//! share fetch ADDR:PORT [OUT]      fetch it, verify it, write it to OUT: whole or not at all
//! share [FILE]                     both, in one process (default: this very file)
//! ```
//!
//! Either side may be killed at any moment: the other one says so, and the next transfer works.

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use sha2::{Digest, Sha256};
use transom::{Adapter, ErrorKind, Grant, Incoming, Listener, MappedFile, Region, Rights};

#[path = "share/save.rs"]
mod save;

/// For so long the owner stays until its guest has left.
const PATIENCE: Duration = Duration::from_secs(10);

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("share: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["serve", file, rest @ ..] => {
            let at = rest.first().unwrap_or(&"127.0.0.1:7175").parse()?;
            let shop = Shop::open(at, Path::new(file))?;
            println!("serving {file} at {}", shop.listener.address());
            shop.serve(usize::MAX)
        }
        ["fetch", from, rest @ ..] => {
            let bytes = fetch(from.parse()?)?;
            println!("fetched {} bytes, SHA-256 verified", bytes.len());
            match rest.first() {
                Some(out) => save::whole(Path::new(out), &bytes).map_err(|error| {
                    format!("writing {out}: {error}; it is as it was before").into()
                }),
                None => Ok(()),
            }
        }
        [] | [_] => {
            let file = args.first().map_or_else(|| PathBuf::from(file!()), PathBuf::from);
            let file = if file.exists() { file } else { std::env::current_exe()? };
            let shop = Shop::open("127.0.0.1:0".parse()?, &file)?;
            let at = shop.listener.address();
            println!("serving {} at {at}", file.display());
            let server = std::thread::spawn(move || shop.serve(1));
            let bytes = fetch(at)?;
            println!("fetched {} bytes, SHA-256 verified", bytes.len());
            server.join().map_err(|_| "the server has panicked")?
        }
        _ => {
            Err("share serve FILE [ADDR:PORT] | share fetch ADDR:PORT [OUT] | share [FILE]".into())
        }
    }
}

/// The owner's side: a file, registered once, and a listener.
struct Shop {
    file: Region<MappedFile>,
    digest: [u8; 32],
    listener: Listener,
}

impl Shop {
    fn open(at: SocketAddr, path: &Path) -> Outcome<Shop> {
        let adapter = Adapter::open(at.ip())?;
        let bytes = std::fs::read(path).map_err(|e| format!("reading {}: {e}", path.display()))?;
        let digest = Sha256::digest(bytes).into();
        let file = adapter.register(MappedFile::open(path)?)?;
        let listener = adapter.listen(at)?;
        Ok(Shop { file, digest, listener })
    }

    /// Serve so many guests, each in a thread of its own, then take the file back.
    fn serve(mut self, guests: usize) -> Outcome {
        let (file, digest) = (&self.file, &self.digest);
        thread::scope(|scope| {
            for _ in 0..guests {
                let guest = self.listener.next().wait()?;
                let who = guest.peer();
                println!("{who} asks");
                // A failure is that guest's problem alone.
                let serve = move || match lend(guest, file, digest) {
                    Ok(thanks) => println!("{who}: lent and taken back: {}", thanks.escape_debug()),
                    Err(error) => println!("{who}: {error}"),
                };
                if let Err(error) = thread::Builder::new().spawn_scoped(scope, serve) {
                    println!("{who}: turned away, this machine has no thread to spare: {error}");
                }
            }
            Outcome::Ok(())
        })?;
        self.file.deregister().wait()?; // the MappedFile again, no peer in it
        Ok(())
    }
}

/// A window for this guest alone, until it says that it is done.
fn lend(guest: Incoming, file: &Region<MappedFile>, digest: &[u8; 32]) -> Outcome<String> {
    let peer = guest.receives(4, 64).accept().wait()?;
    let window = peer.bind(file, .., Rights::READ)?;
    let offer = [&window.grant().to_bytes()[..], &digest[..]].concat();
    peer.send(offer)?.wait()?; // ordered behind the bind
    let thanks = peer.recv().wait()?;
    window.revoke().wait()?; // from here no byte can leave
    peer.send(b"taken back")?.wait()?;
    let _ = peer.recv().wait_timeout(PATIENCE); // the guest tries once more, is refused, and leaves
    Ok(String::from_utf8_lossy(&thanks).into_owned())
}

/// The peer's side.
fn fetch(from: SocketAddr) -> Outcome<Vec<u8>> {
    let adapter = Adapter::route_to(from)?;
    let owner = adapter.connect(from).reads(16).receives(4, 64).wait()?;
    let offer = owner.recv().wait()?;
    let (grant, digest) = offer.split_at_checked(Grant::ENCODED_LEN).ok_or("a short offer")?;
    let grant = Grant::from_bytes(grant)?;

    let info = owner.info();
    println!("{}: {} bytes are on offer, path {}", info.local, grant.len(), info.path);

    // No other program can touch the sink: it has no window. A shared region (`Adapter::shared`) would
    // save a copy, but its peer could still change the bytes behind the digest that vouches for them.
    let mut room = Vec::new();
    let len = usize::try_from(grant.len())?;
    room.try_reserve_exact(len).map_err(|_| format!("no memory for the {len} bytes on offer"))?;
    room.resize(len, 0);
    let sink = adapter.register(room)?;
    let half = grant.len() / 2;
    let head = owner.read(grant.range(..half), sink.slice(..half))?; // posted when called,
    let tail = owner.read(grant.range(half..), sink.slice(half..))?; // in order
    head.wait()?;
    tail.wait()?;

    owner.send(b"thank you")?.wait()?;
    owner.recv().wait()?;
    match owner.read(grant.range(..8), sink.slice(..8)).and_then(|posted| posted.wait()) {
        Ok(()) => return Err("a closed window let something through".into()),
        Err(error) if error.kind() == ErrorKind::Refused => println!("  as it must be: {error}"),
        Err(error) => return Err(error.into()), // the owner has gone: nothing was refused
    }

    let bytes = sink.deregister().wait()?; // the same Vec, no copy
    if Sha256::digest(&bytes)[..] != digest[..] {
        return Err("what arrived is not what was offered".into());
    }
    Ok(bytes)
}
