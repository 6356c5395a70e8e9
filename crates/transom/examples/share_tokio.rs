//! `share` with tokio: the futures of this crate run on any executor.
//!
//! ```text
//! share_tokio [FILE]      serve and fetch the file in one process (default: this very file)
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use transom::{Adapter, Grant, Incoming, Listener, MappedFile, Region, Rights};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Guests that fetch at the same time.
const GUESTS: usize = 4;

#[tokio::main]
async fn main() -> Outcome {
    let file = std::env::args().nth(1).map_or_else(|| PathBuf::from(file!()), PathBuf::from);
    let file = if file.exists() { file } else { std::env::current_exe()? };
    let adapter = Adapter::open("127.0.0.1".parse()?)?;
    let listener = adapter.listen("127.0.0.1:0".parse()?)?;
    let at = listener.address();
    println!("serving {} at {at}", file.display());

    let owner = tokio::spawn(serve(adapter, listener, file));
    let guests: Vec<_> = (0..GUESTS).map(|_| tokio::spawn(fetch(at))).collect();
    for guest in guests {
        println!("fetched {} bytes, SHA-256 verified", guest.await??.len());
    }
    owner.await?
}

/// Owner: one task per guest, one window each.
async fn serve(adapter: Adapter, mut listener: Listener, path: PathBuf) -> Outcome {
    let file = std::sync::Arc::new(adapter.register(MappedFile::open(&path)?)?);
    let digest = digest_of(&path).await?;
    let mut tasks = Vec::new();
    for _ in 0..GUESTS {
        let incoming = listener.next().await?;
        tasks.push(tokio::spawn(lend(incoming, file.clone(), digest)));
    }
    for task in tasks {
        task.await??;
    }
    let file = std::sync::Arc::into_inner(file).ok_or("somebody still has the region")?;
    file.deregister().await?;
    Ok(())
}

async fn lend(
    incoming: Incoming,
    file: std::sync::Arc<Region<MappedFile>>,
    digest: [u8; 32],
) -> Outcome {
    let peer = incoming.receives(4, 64).accept().await?;
    let window = peer.bind(&file, .., Rights::READ)?;
    let offer = [&window.grant().to_bytes()[..], &digest[..]].concat();
    peer.send(offer)?.await?;
    peer.recv().await?;
    window.revoke().await?;
    peer.send(b"taken back")?.await?;
    Ok(())
}

async fn fetch(from: SocketAddr) -> Outcome<Vec<u8>> {
    let adapter = Adapter::route_to(from)?;
    let owner = adapter.connect(from).reads(16).receives(4, 64).await?;
    let offer = owner.recv().await?;
    let (grant, digest) = offer.split_at_checked(Grant::ENCODED_LEN).ok_or("a short offer")?;
    let grant = Grant::from_bytes(grant)?;
    let sink = adapter.register(vec![0; usize::try_from(grant.len())?])?;
    let half = grant.len() / 2;
    let head = owner.read(grant.range(..half), sink.slice(..half))?;
    let tail = owner.read(grant.range(half..), sink.slice(half..))?;
    head.await?;
    tail.await?;
    owner.send(b"thank you")?.await?;
    owner.recv().await?;
    let bytes = sink.deregister().await?;
    if Sha256::digest(&bytes)[..] != digest[..] {
        return Err("what arrived is not what was offered".into());
    }
    Ok(bytes)
}

async fn digest_of(path: &Path) -> Outcome<[u8; 32]> {
    let path = path.to_owned();
    Ok(tokio::task::spawn_blocking(move || {
        std::fs::read(path).map(|bytes| Sha256::digest(bytes).into())
    })
    .await??)
}
