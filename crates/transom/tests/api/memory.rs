//! Memory that is registered, and what becomes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use transom::{Adapter, Buffer, ErrorKind, Grant, MappedFile, Region, Rights};

use crate::{Pair, bytes, here, until};

/// ND2 R16.
#[test]
fn deregistering_with_a_window_bound_is_busy_and_hands_the_region_back() {
    let pair = Pair::new();
    let memory = pair.owner_adapter.register(bytes(64)).unwrap();
    let window = pair.owner.bind(&memory, .., Rights::READ).unwrap();
    let busy = memory.deregister().wait().unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    assert!(busy.to_string().contains("1 window"), "{busy}");
    let memory: Region<Vec<u8>> = busy.recover().expect("the region");
    window.revoke().wait().unwrap();
    assert_eq!(memory.deregister().wait().unwrap(), bytes(64));
}

#[test]
fn a_vec_comes_back_without_a_copy() {
    let adapter = Adapter::open(here().ip()).unwrap();
    let vec = bytes(5000);
    let at = vec.as_ptr();
    let back = adapter.register(vec).unwrap().deregister().wait().unwrap();
    assert_eq!(back.as_ptr(), at);
    assert_eq!(back, bytes(5000));
}

/// Leaking is safe: the memory stays, the window stays, and the end of the connection closes it.
#[test]
fn forgetting_leaks_and_no_more() {
    let pair = Pair::new();
    let memory = pair.owner_adapter.register(bytes(64)).unwrap();
    let (window, grant) = pair.lend(&memory, Rights::READ);
    std::mem::forget(window);
    std::mem::forget(memory);
    let sink = pair.peer_adapter.register(vec![0; 64]).unwrap();
    pair.peer.read(grant, sink.slice(..)).unwrap().wait().unwrap();
    assert_eq!(sink.deregister().wait().unwrap(), bytes(64), "still lent, still there");
    pair.owner.disconnect().unwrap();
    let sink = pair.peer_adapter.register(vec![0; 64]).unwrap();
    let late = pair.peer.read(grant, sink.slice(..)).and_then(|posted| posted.wait());
    assert!(late.is_err(), "closed with its connection");
}

/// A dropped region goes when the last window on it has gone; nothing of the kind may crash.
#[test]
fn handles_may_be_dropped_in_any_order() {
    let pair = Pair::new();
    let memory = pair.owner_adapter.register(bytes(64)).unwrap();
    let (window, grant) = pair.lend(&memory, Rights::READ);
    drop(memory);
    let sink = pair.peer_adapter.register(vec![0; 64]).unwrap();
    pair.peer.read(grant, sink.slice(..)).unwrap().wait().unwrap();
    let Pair { owner_adapter, owner, peer_adapter, peer } = pair;
    drop(owner_adapter);
    drop(peer_adapter);
    drop(owner);
    drop(window);
    let late = peer.read(grant, sink.slice(..)).and_then(|posted| posted.wait());
    assert!(late.is_err(), "its owner has gone");
    drop(peer);
    drop(sink);
}

#[test]
fn dropping_is_not_cancelling() {
    let pair = Pair::new();
    let memory = pair.owner_adapter.register(vec![0; 1 << 20]).unwrap();
    let (window, grant) = pair.lend(&memory, Rights::WRITE);
    {
        let source = pair.peer_adapter.register(bytes(1 << 20)).unwrap();
        drop(pair.peer.write(grant, source.slice(..)).unwrap());
        // The region's handle goes too: the request keeps the buffer alive.
    }
    pair.peer.send(b"behind it").unwrap().wait().unwrap();
    pair.owner.recv().wait().unwrap();
    window.revoke().wait().unwrap();
    assert!(memory.deregister().wait().unwrap() == bytes(1 << 20), "all of it was written");
    assert_eq!(pair.peer_adapter.counters().unclaimed, 1, "and nobody asked how it went");
}

/// No SIGBUS, no crash: an error on the side that asked, a record on the side that owns.
#[test]
fn a_file_cut_short_is_an_error() {
    let path = std::env::temp_dir().join(format!("transom-cut-{}", std::process::id()));
    std::fs::write(&path, bytes(64 << 10)).unwrap();
    let pair = Pair::new();
    let file = pair.owner_adapter.register(MappedFile::open(&path).unwrap()).unwrap();
    let window = pair.owner.bind(&file, .., Rights::READ).unwrap();
    pair.owner.send(window.grant().to_bytes()).unwrap().wait().unwrap();
    let grant = Grant::from_bytes(&pair.peer.recv().wait().unwrap()).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    std::fs::remove_file(&path).unwrap();
    let gone = file.copy_out(8192, &mut [0; 16]).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::MemoryGone, "{gone}");
    let sink = pair.peer_adapter.register(vec![0; 64 << 10]).unwrap();
    let read = pair.peer.read(grant, sink.slice(..)).unwrap().wait();
    assert!(read.is_err(), "there is nothing to be read");
    let ended = pair.owner.recv().wait().unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::MemoryGone, "{ended}");
}

/// ND2 R18, R20: whatever path leads out, the buffer is dropped after its deregistration, and once.
#[test]
fn a_buffer_goes_after_its_registration_and_once() {
    /// Says when it was put together again.
    struct Watched(Vec<u8>, Arc<AtomicU32>);
    // SAFETY: as for the Vec that it holds.
    unsafe impl Buffer for Watched {
        type Parts = (<Vec<u8> as Buffer>::Parts, Arc<AtomicU32>);
        const WRITABLE: bool = true;
        fn take_apart(self) -> Self::Parts {
            (self.0.take_apart(), self.1)
        }
        fn memory(parts: &Self::Parts) -> (*mut u8, usize) {
            <Vec<u8> as Buffer>::memory(&parts.0)
        }
        unsafe fn put_together(parts: Self::Parts) -> Watched {
            parts.1.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the caller's promise, passed on.
            Watched(unsafe { Buffer::put_together(parts.0) }, parts.1)
        }
    }
    let pair = Pair::new();
    let back = Arc::new(AtomicU32::new(0));
    let register = || pair.owner_adapter.register(Watched(bytes(64), back.clone())).unwrap();
    drop(register());
    assert_eq!(back.load(Ordering::Relaxed), 1, "dropped");
    drop(register().deregister().wait().unwrap());
    assert_eq!(back.load(Ordering::Relaxed), 2, "deregistered");
    let region = register();
    let window = pair.owner.bind(&region, .., Rights::READ).unwrap();
    let slice = region.slice(..);
    drop(region);
    assert_eq!(back.load(Ordering::Relaxed), 2, "a window is open on it");
    drop(window);
    assert_eq!(back.load(Ordering::Relaxed), 2, "a slice refers to it");
    let sent = pair.owner.send_from(slice).unwrap();
    assert_eq!(pair.peer.recv().wait().unwrap().into_vec(), bytes(64));
    sent.wait().unwrap();
    until("the request has completed", || back.load(Ordering::Relaxed) == 3);
}
