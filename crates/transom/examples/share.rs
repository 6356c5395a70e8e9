//! Serve a file through windows, fetch it, verify it.
//!
//! ```text
//! share serve FILE [ADDR:PORT]     lend the file to everyone who asks, one window each
//! share fetch ADDR:PORT [OUT]      fetch it, verify it, write it to OUT
//! share [FILE]                     both, in one process (default: this very file)
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use transom::{Adapter, Grant, Listener, MappedFile, QueuePair, Region, Rights};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome {
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
            Ok(rest.first().map_or(Ok(()), |out| std::fs::write(out, &bytes))?)
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

/// The owner's side: a file, registered once, and a door.
struct Shop {
    file: Region<MappedFile>,
    digest: [u8; 32],
    listener: Listener,
}

impl Shop {
    fn open(at: SocketAddr, path: &Path) -> Outcome<Shop> {
        let adapter = Adapter::open(at.ip())?;
        let digest = Sha256::digest(std::fs::read(path)?).into();
        let file = adapter.register(MappedFile::open(path)?)?;
        let listener = adapter.listen(at)?;
        Ok(Shop { file, digest, listener })
    }

    /// Serve so many guests, then take the file back.
    fn serve(mut self, guests: usize) -> Outcome {
        for _ in 0..guests {
            let peer = self.listener.next().wait()?;
            println!("{} asks", peer.peer());
            if let Err(error) = self.lend(&peer.receives(4, 64).accept().wait()?) {
                println!("  {error}"); // that guest's problem, nobody else's
            }
        }
        self.file.deregister().wait()?; // the MappedFile again, no peer in it
        Ok(())
    }

    /// A window for this peer alone, until it says that it is done.
    fn lend(&self, peer: &QueuePair) -> Outcome {
        let window = peer.bind(&self.file, .., Rights::READ)?;
        let offer = [&window.grant().to_bytes()[..], &self.digest[..]].concat();
        peer.send(offer)?.wait()?; // ordered behind the bind
        let thanks = peer.recv().wait()?;
        window.revoke().wait()?; // from here no byte can leave
        println!("  lent and taken back: {}", String::from_utf8_lossy(&thanks));
        peer.send(b"taken back")?.wait()?;
        Ok(())
    }
}

/// The peer's side.
fn fetch(from: SocketAddr) -> Outcome<Vec<u8>> {
    let adapter = Adapter::route_to(from)?;
    let owner = adapter.connect(from).reads(16).receives(4, 64).wait()?;
    let offer = owner.recv().wait()?;
    let (grant, digest) = offer.split_at_checked(Grant::ENCODED_LEN).ok_or("a short offer")?;
    let grant = Grant::from_bytes(grant)?;

    // Nobody but this program can touch the sink: it has no window.
    let sink = adapter.register(vec![0; usize::try_from(grant.len())?])?;
    let half = grant.len() / 2;
    let head = owner.read(grant.range(..half), sink.slice(..half))?; // posted when called,
    let tail = owner.read(grant.range(half..), sink.slice(half..))?; // in order
    head.wait()?;
    tail.wait()?;

    owner.send(b"thank you")?.wait()?;
    owner.recv().wait()?;
    match owner.read(grant.range(..8), sink.slice(..8))?.wait() {
        Ok(()) => return Err("a closed window let something through".into()),
        Err(refused) => println!("  as it must be: {refused}"),
    }

    let bytes = sink.deregister().wait()?; // the same Vec, no copy
    if Sha256::digest(&bytes)[..] != digest[..] {
        return Err("what arrived is not what was offered".into());
    }
    Ok(bytes)
}
