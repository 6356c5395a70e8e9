//! Reads by RDMA what `serve_pages.c` lends, and compares.
//!
//!     fetch_pages 127.0.0.1:PORT

use std::error::Error;
use std::net::SocketAddr;

use transom::{Adapter, Grant, Rights};

/// Fetch the pages: how many bytes, once their digest was found right.
pub(crate) fn fetch(from: SocketAddr) -> Result<usize, Box<dyn Error + Send + Sync>> {
    let adapter = Adapter::route_to(from)?;
    let owner = adapter.connect(from).reads(16).receives(4, 64).wait()?;
    let offer = owner.recv().wait()?;
    let word = |index: usize| -> Result<u64, &str> {
        let bytes = offer.get(index * 8..).and_then(|rest| rest.first_chunk::<8>());
        bytes.map(|bytes| u64::from_le_bytes(*bytes)).ok_or("a short offer")
    };
    let (address, length, token, digest) = (word(0)?, word(1)?, word(2)?, word(3)?);
    let grant = Grant::from_parts(u32::try_from(token)?, address, length, Rights::READ);
    let sink = adapter.register(vec![0; usize::try_from(length)?])?;
    for at in (0..length).step_by(1 << 20) {
        let to = length.min(at + (1 << 20));
        owner.read(grant.range(at..to), sink.slice(at..to))?.wait()?;
    }
    owner.send(b"")?.wait()?;
    let bytes = sink.deregister().wait()?;
    let found = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    if found != digest {
        return Err(format!("digest {found:016x}, but the owner says {digest:016x}").into());
    }
    println!("{length} bytes read by RDMA, digest {digest:016x} verified");
    Ok(bytes.len())
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let from = std::env::args().nth(1).ok_or("fetch_pages ADDRESS:PORT")?;
    fetch(from.parse()?).map(drop)
}
