//! Requests that are posted together.

use transom::{ErrorKind, Rights};

use crate::{Pair, bytes};

/// A single result for all of them (design rule 10), whatever regions they come from.
#[test]
fn a_batch_is_done_when_every_request_of_it_is() {
    let pair = Pair::new();
    let memory = pair.owner_adapter.register(vec![0; 256]).unwrap();
    let (window, grant) = pair.lend(&memory, Rights::READ | Rights::WRITE);
    let mut batch = pair.peer.batch();
    for _ in 0..3 {
        // The regions' handles go before the batch has completed: it keeps the memory.
        let even = pair.peer_adapter.register(bytes(256)).unwrap();
        let odd = pair.peer_adapter.register(bytes(256)).unwrap();
        for at in (0..256).step_by(16) {
            let from = if at % 32 == 0 { even.slice(at..at + 16) } else { odd.slice(at..at + 16) };
            batch.write(grant.range(at..at + 16), &from).unwrap();
        }
        assert_eq!(batch.len(), 16);
        batch.post().unwrap().wait().unwrap();
        assert!(batch.is_empty());
        let mut seen = [0; 256];
        memory.copy_out(0, &mut seen).unwrap();
        assert!(seen[..] == bytes(256));
        memory.copy_in(0, &[0; 256]).unwrap();
    }
    memory.copy_in(0, &bytes(256)).unwrap();
    let sink = pair.peer_adapter.register(vec![0; 256]).unwrap();
    batch.read(grant.range(..128), &sink.slice(..128)).unwrap();
    batch.read(grant.range(128..), &sink.slice(128..)).unwrap();
    drop(batch.post().unwrap().wait());
    window.revoke().wait().unwrap();
    assert!(sink.deregister().wait().unwrap() == bytes(256));
    assert_eq!(pair.peer_adapter.counters().unclaimed, 0, "all results were asked for");
}

#[test]
fn a_batch_that_does_not_fit_is_posted_not_at_all_and_one_that_is_refused_says_why() {
    let pair = Pair::new();
    let memory = pair.owner_adapter.register(vec![0; 8]).unwrap();
    let (_window, grant) = pair.lend(&memory, Rights::WRITE);
    let source = pair.peer_adapter.register(bytes(16)).unwrap();
    let mut batch = pair.peer.batch();
    while batch.len() < 1 << 16 {
        batch.write(grant, &source.slice(..8)).unwrap();
    }
    assert_eq!(batch.post().unwrap_err().kind(), ErrorKind::TooMuch);
    assert_eq!(batch.len(), 1 << 16, "they are still in it");
    let mut batch = pair.peer.batch();
    batch.write(grant, &source.slice(..8)).unwrap();
    batch.write(grant, &source.slice(..)).unwrap();
    batch.write(grant, &source.slice(..8)).unwrap();
    let refused = batch.post().unwrap().wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    assert!(refused.to_string().starts_with("batch of 3 requests"), "{refused}");
    let late = pair.owner.recv().wait().unwrap_err();
    assert!(late.denial().is_some(), "the owner knows: {late:?}");
}
