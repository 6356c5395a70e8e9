//! Connections: how they come about, and how they end.

use std::net::SocketAddr;

use transom::{Adapter, Blame, Error, ErrorKind, Grant, MappedFile, Result, Rights};

use crate::{Pair, block_on, bytes, here};

#[test]
fn the_sketch_of_the_front_page() {
    async fn owner(adapter: Adapter, mut listener: transom::Listener) -> Result<()> {
        let this = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api/connections.rs");
        let file = adapter.register(MappedFile::open(this)?)?;
        let peer = listener.next().await?.receives(16, 4096).accept().await?;
        let window = peer.bind(&file, .., Rights::READ)?;
        peer.send(window.grant().to_bytes())?.await?;
        peer.recv().await?;
        window.revoke().await?;
        peer.send(b"revoked")?.await?;
        file.deregister().await?;
        // The peer is to find out for itself.
        let _ = peer.recv().await;
        Ok(())
    }
    async fn peer(to: SocketAddr) -> Result<(Vec<u8>, Error)> {
        let adapter = Adapter::route_to(to)?;
        let owner = adapter.connect(to).reads(16).receives(16, 4096).await?;
        let grant = Grant::from_bytes(&owner.recv().await?)?;
        let sink = adapter.register(vec![0; grant.len() as usize])?;
        let mid = grant.len() / 2;
        let head = owner.read(grant.range(..mid), sink.slice(..mid))?;
        let tail = owner.read(grant.range(mid..), sink.slice(mid..))?;
        head.await?;
        tail.await?;
        owner.send(b"I have it")?.await?;
        owner.recv().await?;
        let refused = owner.read(grant.range(..8), sink.slice(..8))?.await.unwrap_err();
        Ok((sink.deregister().await?, refused))
    }
    let adapter = Adapter::open(here().ip()).unwrap();
    let listener = adapter.listen(here()).unwrap();
    let to = listener.address();
    let lending = std::thread::spawn(move || block_on(owner(adapter, listener)));
    let (fetched, refused) = block_on(peer(to)).unwrap();
    lending.join().unwrap().unwrap();
    assert!(fetched == include_bytes!("connections.rs"));
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert_eq!(refused.blame(), Blame::Peer);
    // A peer of this user on this host gets the reason.
    assert!(refused.explanation().is_some_and(|text| text.contains("invalidated")), "{refused}");
    assert!(refused.to_string().starts_with("read of 8 bytes"), "{refused}");
}

#[test]
fn private_data_and_rejection() {
    let adapter = Adapter::open(here().ip()).unwrap();
    let mut listener = adapter.listen(here()).unwrap();
    let to = listener.address();
    let connecting = std::thread::spawn(move || {
        let adapter = Adapter::route_to(to).unwrap();
        adapter.connect(to).private_data(b"let me in").wait().map(drop)
    });
    let incoming = listener.next().wait().unwrap();
    assert_eq!(incoming.private_data(), b"let me in");
    assert_eq!(incoming.peer().ip(), here().ip());
    incoming.reject(b"no").unwrap();
    assert_eq!(connecting.join().unwrap().unwrap_err().kind(), ErrorKind::Rejected);
}

#[test]
fn a_port_without_a_listener_refuses() {
    let held = transom_testing::ports::Held::new().unwrap();
    let port = held.address();
    let error = Adapter::route_to(port).unwrap().connect(port).wait().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Rejected | ErrorKind::Unreachable), "{error:?}");
    assert!(error.to_string().contains(&port.to_string()), "{error}");
}

#[test]
fn without_the_extension_everything_still_works() {
    let plain = Adapter::options().extension(false).open(here().ip()).unwrap();
    let pair = Pair::of(Adapter::open(here().ip()).unwrap(), plain, (16, 4096));
    let Pair { owner_adapter, owner, peer_adapter, peer } = &pair;
    assert!(!peer.info().extension && !owner.info().extension);
    // The active side speaks first, as it must with plain peers.
    peer.send(b"hello").unwrap().wait().unwrap();
    owner.recv().wait().unwrap();
    let memory = owner_adapter.register(vec![0; 10_000]).unwrap();
    let (window, grant) = pair.lend(&memory, Rights::READ | Rights::WRITE);
    let source = peer_adapter.register(bytes(10_000)).unwrap();
    let sink = peer_adapter.register(vec![0; 10_000]).unwrap();
    peer.write(grant, source.slice(..)).unwrap().wait().unwrap();
    peer.read(grant, sink.slice(..)).unwrap().wait().unwrap();
    assert!(sink.deregister().wait().unwrap() == bytes(10_000));
    window.revoke().wait().unwrap();
    let again = peer.read(grant.range(..8), source.slice(..8)).unwrap().wait().unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Refused, "{again}");
    assert_eq!(again.explanation(), None, "a plain peer cannot be told more");
}

/// Once this side knows that its connection has ended, a call posts nothing and says why, whoever ended it.
#[test]
fn behind_an_end_that_is_known_nothing_is_posted() {
    for ours in [true, false] {
        let pair = Pair::new();
        let region = pair.owner_adapter.register(vec![0_u8; 64]).unwrap();
        let memory = pair.peer_adapter.register(vec![0_u8; 64]).unwrap();
        let (_window, grant) = pair.lend(&region, Rights::READ | Rights::WRITE);
        if ours {
            pair.peer.disconnect().unwrap()
        } else {
            pair.owner.disconnect().unwrap()
        }
        pair.peer.recv().wait().unwrap_err();
        let ended = pair.peer.ended().unwrap().kind();
        assert!([ErrorKind::Canceled, ErrorKind::NotConnected].contains(&ended), "{ended:?}");
        let mut batch = pair.peer.batch();
        batch.write(grant, &memory.slice(..)).unwrap();
        let refused = [
            pair.peer.send(b"behind").err(),
            pair.peer.send_from(memory.slice(..)).err(),
            pair.peer.read(grant, memory.slice(..)).err(),
            pair.peer.write(grant, memory.slice(..)).err(),
            pair.peer.fetch_add(grant.range(..8), 1, memory.slice(..)).err(),
            pair.peer.bind(&memory, .., Rights::READ).err(),
            batch.post().err(),
        ];
        for (at, error) in refused.into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("call {at} was posted, ours: {ours}"));
            assert_eq!(error.kind(), ended, "{error}");
        }
        drop(memory.deregister().wait().expect("no request holds it"));
    }
}

/// Clones are one end: the last one that is dropped disconnects.
#[test]
fn the_last_clone_of_a_queue_pair_disconnects() {
    let Pair { owner, peer, .. } = Pair::new();
    let clone = peer.clone();
    let sends = std::thread::spawn(move || clone.send(b"from a clone").unwrap().wait().unwrap());
    assert_eq!(&owner.recv().wait().unwrap()[..], b"from a clone");
    sends.join().unwrap();
    peer.send(b"the first is there").unwrap().wait().unwrap();
    assert_eq!(&owner.recv().wait().unwrap()[..], b"the first is there");
    drop(peer);
    owner.recv().wait().unwrap_err();
}
