//! The promises that a program relies on, over TCP on this machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use transom::{
    Adapter, Blame, Buffer, Error, ErrorKind, Grant, MappedFile, Mistake, Path, QueuePair, Region,
    Result, Rights, Rule, Window,
};

fn here() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Two ends of a connection, each with its adapter.
struct Pair {
    owner_adapter: Adapter,
    owner: QueuePair,
    peer_adapter: Adapter,
    peer: QueuePair,
}

impl Pair {
    fn new() -> Pair {
        let adapter = || Adapter::open(here().ip()).unwrap();
        Pair::of(adapter(), adapter(), (16, 4096))
    }

    fn of(owner_adapter: Adapter, peer_adapter: Adapter, (count, size): (u32, u32)) -> Pair {
        let mut listener = owner_adapter.listen(here()).unwrap();
        let connecting = peer_adapter.connect(listener.address()).receives(count, size);
        let (owner, peer) = std::thread::scope(|both| {
            let peer = both.spawn(|| connecting.wait());
            let owner = listener.next().wait().unwrap().receives(count, size).accept().wait();
            (owner.unwrap(), peer.join().unwrap().unwrap())
        });
        Pair { owner_adapter, owner, peer_adapter, peer }
    }

    /// A window on `region`, and what the peer knows of it.
    fn lend(&self, region: &Region<Vec<u8>>, rights: Rights) -> (Window, Grant) {
        let window = self.owner.bind(region, .., rights).unwrap();
        self.owner.send(window.grant().to_bytes()).unwrap().wait().unwrap();
        let grant = Grant::from_bytes(&self.peer.recv().wait().unwrap()).unwrap();
        (window, grant)
    }
}

/// An executor of one future, to show that any will do.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker: Waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

transom_rules::over_both_paths!({
    let pair = Pair::new();
    transom_rules::paths::hold();
    let (owner, peer) = (pair.owner.info(), pair.peer.info());
    assert_eq!([owner.path, peer.path], [transom_rules::paths::of_this_run(); 2]);
});

/// Until something is so that another thread brings about.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn the_sketch_of_the_front_page() {
    async fn owner(adapter: Adapter, mut listener: transom::Listener) -> Result<()> {
        let this = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api.rs");
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
    assert!(fetched == include_bytes!("api.rs"));
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert_eq!(refused.blame(), Blame::Peer);
    // The same user on the same host gets the reason.
    assert!(refused.explanation().is_some_and(|text| text.contains("invalidated")), "{refused}");
    assert!(refused.to_string().starts_with("read of 8 bytes"), "{refused}");
}

#[test]
fn writes_arrive_and_the_last_byte_says_so() {
    let pair = Pair::new();
    let memory = pair.owner_adapter.register(vec![0; 100_000]).unwrap();
    let (_window, grant) = pair.lend(&memory, Rights::WRITE);
    let mut sent = bytes(100_000);
    sent[99_999] = 0xaa;
    let source = pair.peer_adapter.register(sent.clone()).unwrap();
    let posted = pair.peer.write(grant, source.slice(..)).unwrap();
    // The owner does nothing but watch: the adapter's own thread moves the bytes.
    let bell = memory.atomic_u8(99_999).unwrap();
    until("it never arrived", || bell.load(Ordering::Acquire) == 0xaa);
    let mut seen = vec![0; 100_000];
    memory.copy_out(0, &mut seen).unwrap();
    assert!(seen == sent, "all of it is there when its last byte is");
    posted.wait().unwrap();
}

/// ND2 5.5 (c).
/// Two peers and the owner's own program add to one word; a lock is taken once.
#[test]
fn v95_atomics_of_peers_and_of_the_owner_see_one_order() {
    const TURNS: u64 = 500;
    let owner = Adapter::open(here().ip()).unwrap();
    let memory = owner.register(vec![0; 64]).unwrap();
    let at = (0..8).find(|at| memory.atomic_u64(*at).is_ok()).unwrap();
    let pair = || Pair::of(owner.clone(), Adapter::open(here().ip()).unwrap(), (4, 64));
    let pairs = [pair(), pair()];
    let lend = |pair: &Pair| {
        let window = pair.owner.bind(&memory, at..at + 16, Rights::ATOMIC).unwrap();
        pair.owner.send(window.grant().to_bytes()).unwrap().wait().unwrap();
        (window, Grant::from_bytes(&pair.peer.recv().wait().unwrap()).unwrap())
    };
    let lent = pairs.each_ref().map(lend);
    let mut seen: Vec<u64> = std::thread::scope(|all| {
        let peers = pairs.iter().zip(&lent).map(|(pair, (_, grant))| {
            all.spawn(move || {
                let old = pair.peer_adapter.register(vec![0; 16]).unwrap();
                let mine = (0..8).find(|at| old.atomic_u64(*at).is_ok()).unwrap();
                let add = || {
                    let sink = old.slice(mine..mine + 8);
                    pair.peer.fetch_add(grant.range(..8), 1, sink).unwrap().wait().unwrap();
                    old.atomic_u64(mine).unwrap().load(Ordering::Acquire)
                };
                (0..TURNS).map(|_| add()).collect::<Vec<u64>>()
            })
        });
        let peers: Vec<_> = peers.collect();
        let word = memory.atomic_u64(at).unwrap();
        let own: Vec<u64> = (0..TURNS).map(|_| word.fetch_add(1, Ordering::AcqRel)).collect();
        let theirs = peers.into_iter().flat_map(|peer| peer.join().unwrap());
        own.into_iter().chain(theirs).collect()
    });
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..3 * TURNS), "each value was seen once");
    assert_eq!(memory.atomic_u64(at).unwrap().load(Ordering::Acquire), 3 * TURNS);
    let taken: Vec<u64> = (1..)
        .zip(pairs.iter().zip(&lent))
        .map(|(name, (pair, (_, grant)))| {
            let old = pair.peer_adapter.register(vec![7; 8]).unwrap();
            let lock = grant.range(8..16);
            pair.peer.compare_swap(lock, 0, name, old.slice(..)).unwrap().wait().unwrap();
            let mut bytes = [0; 8];
            old.copy_out(0, &mut bytes).unwrap();
            u64::from_ne_bytes(bytes)
        })
        .collect();
    assert_eq!(taken, [0, 1], "the first finds it free, the second finds the first");
}

/// An atomic that the peer may not do, or on no word, changes nothing and is explained.
#[test]
fn v95_an_atomic_that_is_refused_changes_nothing() {
    for (rights, range, rule) in [
        (Rights::READ | Rights::WRITE, 0..8, Rule::Right),
        (Rights::ATOMIC, 4..12, Rule::Aligned),
        (Rights::ATOMIC, 60..68, Rule::Bounds),
    ] {
        let pair = Pair::new();
        let memory = pair.owner_adapter.register(vec![5; 80]).unwrap();
        let at = (0..8).find(|at| memory.atomic_u64(*at).is_ok()).unwrap();
        let window = pair.owner.bind(&memory, at..at + 64, rights).unwrap();
        pair.owner.send(window.grant().to_bytes()).unwrap().wait().unwrap();
        let grant = Grant::from_bytes(&pair.peer.recv().wait().unwrap()).unwrap();
        let old = pair.peer_adapter.register(vec![7; 8]).unwrap();
        for wrong in [grant.range(..7), grant.range(..9)] {
            let kind = pair.peer.fetch_add(wrong, 1, old.slice(..)).unwrap_err().kind();
            assert_eq!(kind, ErrorKind::Invalid, "not posted");
        }
        let short = pair.peer.fetch_add(grant.range(..8), 1, old.slice(..7));
        assert_eq!(short.unwrap_err().kind(), ErrorKind::Invalid);
        let refused = pair.peer.fetch_add(grant.range(range), 1, old.slice(..)).unwrap();
        let error = refused.wait().unwrap_err();
        assert!(error.to_string().contains("atomic operation"), "{error}");
        let kind = if rule == Rule::Aligned { ErrorKind::Invalid } else { ErrorKind::Refused };
        assert_eq!(error.kind(), kind, "{error}");
        let ended = pair.owner.recv().wait().unwrap_err();
        assert_eq!(ended.denial().map(|denial| denial.rule), Some(rule));
        let mut bytes = [0; 80];
        memory.copy_out(0, &mut bytes).unwrap();
        assert_eq!(bytes, [5; 80]);
    }
}

#[test]
fn a_window_allows_what_it_says_and_nothing_else() {
    for (rights, write) in [(Rights::READ, true), (Rights::WRITE, false), (Rights::NONE, false)] {
        let pair = Pair::new();
        let memory = pair.owner_adapter.register(vec![1; 64]).unwrap();
        let (_window, grant) = pair.lend(&memory, rights);
        let local = pair.peer_adapter.register(vec![2; 64]).unwrap();
        let posted = if write {
            pair.peer.write(grant, local.slice(..))
        } else {
            pair.peer.read(grant, local.slice(..))
        };
        let refused = posted.unwrap().wait().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Refused, "{rights}: {refused}");
        // The owner has the whole record.
        let ended = pair.owner.recv().wait().unwrap_err();
        let denial = ended.denial().unwrap_or_else(|| panic!("no record in {ended:?}"));
        assert_eq!(denial.rule, transom::Rule::Right, "{ended}");
        assert_eq!(denial.likely, transom::Mistake::MissingRight);
        assert_eq!(pair.owner_adapter.counters().refused, 1);
        let (mut ours, mut theirs) = ([0; 64], [0; 64]);
        memory.copy_out(0, &mut ours).unwrap();
        local.copy_out(0, &mut theirs).unwrap();
        assert_eq!((ours, theirs), ([1; 64], [2; 64]), "not a byte has moved");
    }
}

/// Design rule 3: the whole extent of a Write is known to its owner before the first byte moves,
/// however many frames it is. With a byte too many none is written.
#[test]
fn of_a_long_write_that_sticks_out_no_byte_moves() {
    const LENGTH: u64 = 1_000_000;
    let pair = Pair::new();
    let memory = pair.owner_adapter.register(vec![0; LENGTH as usize]).unwrap();
    let window = pair.owner.bind(&memory, ..LENGTH - 1, Rights::WRITE).unwrap();
    pair.owner.send(window.grant().to_bytes()).unwrap().wait().unwrap();
    let grant = Grant::from_bytes(&pair.peer.recv().wait().unwrap()).unwrap();
    let source = pair.peer_adapter.register(vec![7; LENGTH as usize]).unwrap();
    let refused = pair.peer.write(grant, source.slice(..)).unwrap().wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    let ended = pair.owner.recv().wait().unwrap_err();
    assert_eq!(ended.denial().unwrap().rule, transom::Rule::Bounds, "{ended}");
    window.revoke().wait().unwrap();
    let bytes = memory.deregister().wait().unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0), "a byte has moved");
}

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

/// ND2 4.2: a message is delivered when everything posted before it has been placed.
#[test]
fn what_was_written_is_there_when_a_message_behind_it_is() {
    let pair = Pair::new();
    let memory = pair.owner_adapter.register(vec![0; 300_000]).unwrap();
    let (window, grant) = pair.lend(&memory, Rights::WRITE);
    let source = pair.peer_adapter.register(bytes(300_000)).unwrap();
    let written = pair.peer.write(grant, source.slice(..)).unwrap();
    let told = pair.peer.send(b"done").unwrap();
    assert_eq!(&*pair.owner.recv().wait().unwrap(), b"done");
    window.revoke().wait().unwrap();
    assert!(memory.deregister().wait().unwrap() == bytes(300_000));
    written.wait().unwrap();
    told.wait().unwrap();
}

#[test]
fn messages_wait_in_order_and_a_dropped_recv_loses_none() {
    let adapter = || Adapter::open(here().ip()).unwrap();
    let pair = Pair::of(adapter(), adapter(), (4, 16));
    std::thread::scope(|both| {
        // More than there are receives: the sender waits for credit, the receiver for nothing.
        let sender =
            both.spawn(|| (0..64_u8).try_for_each(|number| pair.peer.send([number])?.wait()));
        for number in 0..64 {
            let polled = pin!(pair.owner.recv()).poll(&mut Context::from_waker(Waker::noop()));
            let message = match polled {
                Poll::Ready(message) => message,
                Poll::Pending => pair.owner.recv().wait(),
            };
            assert_eq!(*message.unwrap(), [number]);
        }
        sender.join().unwrap().unwrap();
    });
}

#[test]
fn a_waker_may_call_back() {
    /// Does with the queue pair, from within `wake`, what a program might.
    struct Meddler {
        queue: Arc<QueuePair>,
        woken: AtomicBool,
    }
    impl Wake for Meddler {
        fn wake(self: Arc<Self>) {
            self.queue.poll();
            drop(self.queue.send(b"from a waker"));
            drop(self.queue.try_recv());
            self.woken.store(true, Ordering::Release);
        }
    }
    let Pair { owner, peer, owner_adapter, peer_adapter } = Pair::new();
    let peer = Arc::new(peer);
    let meddler = Arc::new(Meddler { queue: peer.clone(), woken: AtomicBool::new(false) });
    let waker: Waker = meddler.clone().into();
    let mut first = pin!(peer.recv());
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    owner.send(b"one").unwrap().wait().unwrap();
    assert_eq!(&*owner.recv().wait().unwrap(), b"from a waker");
    until("it never returned", || meddler.woken.load(Ordering::Acquire));
    drop((owner_adapter, peer_adapter));
}

/// The values that a Write of a few bytes wakes and drops when it completes may take every lock
/// that there is: even end the connection.
#[test]
fn a_write_that_completes_lets_its_buffer_and_its_waker_call_back() {
    /// Ends the connection when it is woken, or dropped with what it is part of.
    struct Ending(Arc<QueuePair>, Arc<AtomicU32>);
    impl Ending {
        fn end(&self) {
            self.0.disconnect().unwrap();
            self.1.fetch_add(1, Ordering::Release);
        }
    }
    impl Wake for Ending {
        fn wake(self: Arc<Self>) {
            self.end();
        }
    }
    impl Drop for Dropped {
        fn drop(&mut self) {
            if let Some(ending) = self.1.take() {
                ending.end();
            }
        }
    }
    struct Dropped(Vec<u8>, Option<Ending>);
    // SAFETY: as for the Vec that it holds.
    unsafe impl Buffer for Dropped {
        type Parts = (<Vec<u8> as Buffer>::Parts, Option<Ending>);
        const WRITABLE: bool = true;
        fn take_apart(mut self) -> Self::Parts {
            (std::mem::take(&mut self.0).take_apart(), self.1.take())
        }
        fn memory(parts: &Self::Parts) -> (*mut u8, usize) {
            <Vec<u8> as Buffer>::memory(&parts.0)
        }
        unsafe fn put_together(parts: Self::Parts) -> Dropped {
            // SAFETY: the caller's promise, passed on.
            Dropped(unsafe { Buffer::put_together(parts.0) }, parts.1)
        }
    }
    for wakes in [false, true] {
        let pair = Pair::new();
        let memory = pair.owner_adapter.register(vec![0; 8]).unwrap();
        let (_window, grant) = pair.lend(&memory, Rights::WRITE);
        let peer = Arc::new(pair.peer);
        let ended = Arc::new(AtomicU32::new(0));
        let ending = || Ending(peer.clone(), ended.clone());
        let buffer = Dropped(bytes(8), (!wakes).then(ending));
        let region = pair.peer_adapter.register(buffer).unwrap();
        if wakes {
            let waker: Waker = Arc::new(ending()).into();
            // A request that has completed before it was asked for wakes no task. A request that completes
            // while the waker is being left is ready and wakes the task, too.
            while ended.load(Ordering::Acquire) == 0 {
                let mut write = peer.write(grant, region.slice(..)).unwrap();
                let result = Pin::new(&mut write).poll(&mut Context::from_waker(&waker));
                if result.is_pending() {
                    until("nobody called back", || ended.load(Ordering::Acquire) > 0);
                }
            }
        } else {
            let slice = region.slice(..);
            drop(region);
            drop(peer.write(grant, slice).unwrap());
        }
        until("nobody called back", || ended.load(Ordering::Acquire) > 0);
    }
}

/// A task that panics when it is woken takes no other with it: neither those woken after it, nor
/// the thread that brought the news, nor what comes later.
#[test]
fn a_waker_that_panics_leaves_others_alone() {
    struct Waking(AtomicU32, bool);
    impl Wake for Waking {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::AcqRel);
            assert!(!self.1, "a waker that panics, on purpose");
        }
    }
    let pair = Pair::new();
    let wakers = [true, false, true, false].map(|bad| Arc::new(Waking(AtomicU32::new(0), bad)));
    // Two rounds, because the first panic must not have stopped the news.
    for wakers in wakers.chunks(2) {
        let mut waiting: Vec<_> = wakers.iter().map(|_| Box::pin(pair.peer.recv())).collect();
        for (future, waker) in waiting.iter_mut().zip(wakers) {
            let waker = Waker::from(waker.clone());
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        pair.owner.send(b"news").unwrap().wait().unwrap();
        for waker in wakers {
            until("everybody is woken", || waker.0.load(Ordering::Acquire) == 1);
        }
        drop(waiting);
        assert_eq!(&pair.peer.recv().wait().unwrap()[..], b"news");
    }
}

#[test]
fn several_threads_wait_on_one_queue_pair() {
    const PART: usize = 1 << 16;
    let pair = Pair::new();
    let memory = pair.owner_adapter.register(bytes(4 * PART)).unwrap();
    let (_window, grant) = pair.lend(&memory, Rights::READ);
    std::thread::scope(|all| {
        for part in bytes(4 * PART).chunks(PART).enumerate() {
            let pair = &pair;
            let (at, expected) = (part.0 * PART, part.1.to_vec());
            all.spawn(move || {
                let from = grant.range(at as u64..(at + PART) as u64);
                for _ in 0..50 {
                    let sink = pair.peer_adapter.register(vec![0; PART]).unwrap();
                    pair.peer.read(from, sink.slice(..)).unwrap().wait().unwrap();
                    assert!(sink.deregister().wait().unwrap() == expected);
                }
            });
        }
    });
}

/// The thread that blocks is woken when the one that polls has fetched what it waits for.
#[test]
fn one_thread_blocks_while_another_polls() {
    let pair = Pair::new();
    let memory = pair.owner_adapter.register(bytes(64)).unwrap();
    let (_window, grant) = pair.lend(&memory, Rights::READ);
    let sink = pair.peer_adapter.register(vec![0; 64]).unwrap();
    let done = AtomicU32::new(0);
    std::thread::scope(|both| {
        both.spawn(|| {
            for _ in 0..2000 {
                pair.peer.read(grant, sink.slice(..)).unwrap().wait().unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut last = (0, Instant::now());
        while last.0 < 2000 {
            pair.peer.poll();
            let now = done.load(Ordering::Relaxed);
            if now != last.0 {
                last = (now, Instant::now());
            } else if last.1.elapsed() > Duration::from_secs(60) {
                // A thread that sleeps for ever cannot be joined.
                eprintln!("read {now} is never told that it has completed");
                std::process::exit(101);
            }
        }
    });
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

#[test]
fn what_makes_no_sense_is_refused_before_it_is_posted() {
    let pair = Pair::new();
    let adapter = &pair.peer_adapter;
    let region = adapter.register(vec![0; 64]).unwrap();
    assert_eq!(adapter.register(Vec::new()).unwrap_err().kind(), ErrorKind::Invalid);
    let grant = Grant::from_parts(1, 2, 65, Rights::READ);
    let short = pair.peer.read(grant, region.slice(..)).unwrap_err();
    assert!(short.to_string().contains("64 bytes"), "{short}");
    let long = pair.peer.send(vec![0; QueuePair::SEND_LIMIT + 1]).unwrap_err();
    assert_eq!(long.kind(), ErrorKind::TooMuch);
    assert!(long.to_string().contains("send_from"), "{long}");
    assert!(region.copy_out(60, &mut [0; 8]).is_err());
    assert!(region.copy_in(u64::MAX, &[0; 8]).is_err());
    assert!(region.atomic_u8(64).is_err());
    let aligned = (0..8).filter(|at| region.atomic_u64(*at).is_ok()).count();
    assert_eq!(aligned, 1, "one offset in eight");
    // A region of another adapter, and a window outside the region.
    let foreign = pair.owner_adapter.register(vec![0; 64]).unwrap();
    for wrong in [
        pair.peer.bind(&foreign, .., Rights::READ).unwrap_err(),
        pair.peer.bind(&region, ..65, Rights::READ).unwrap_err(),
        pair.peer.send_from(foreign.slice(..)).unwrap_err(),
    ] {
        assert_eq!(wrong.blame(), Blame::Caller, "{wrong}");
    }
    // The connection is none the worse for it.
    pair.peer.send(b"still here").unwrap().wait().unwrap();
    assert_eq!(&*pair.owner.recv().wait().unwrap(), b"still here");
}

/// ND2 W7.
#[test]
fn a_window_for_writing_on_read_only_memory_is_refused() {
    let pair = Pair::new();
    let file = MappedFile::open(std::env::current_exe().unwrap()).unwrap();
    let file = pair.owner_adapter.register(file).unwrap();
    let refused = pair.owner.bind(&file, ..64, Rights::WRITE).unwrap_err();
    assert_eq!(refused.blame(), Blame::Caller, "{refused}");
    assert_eq!(file.copy_in(0, &[0]).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(file.atomic_u8(0).is_err());
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
    let held = transom_rules::ports::Held::new().unwrap();
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

/// A range that wraps around the address space is explained to both sides, over every path.
#[test]
fn a_range_that_wraps_around_is_explained_over_every_path() {
    for path in [Path::Tcp, Path::Process] {
        for (write, length) in [(true, 16), (true, 200_000), (false, 16)] {
            let open = || Adapter::options().path(path).open(here().ip()).unwrap();
            let pair = Pair::of(open(), open(), (16, 4096));
            let memory = pair.owner_adapter.register(vec![0; 64]).unwrap();
            let (_window, grant) = pair.lend(&memory, Rights::READ | Rights::WRITE);
            let wraps = Grant::from_parts(grant.token(), u64::MAX - 7, length, grant.rights());
            let local = pair.peer_adapter.register(vec![0; length as usize]).unwrap();
            let slice = local.slice(..);
            let post =
                if write { pair.peer.write(wraps, slice) } else { pair.peer.read(wraps, slice) };
            let refused = post.unwrap().wait().unwrap_err();
            let name = format!("{}, {length} bytes, write: {write}", pair.owner.info().path);
            assert_eq!(refused.kind(), ErrorKind::Refused, "{name}: {refused}");
            let told = refused.explanation().unwrap_or_default();
            assert!(told.contains("only 8 bytes left"), "{name}: {refused}");
            let ended = pair.owner.recv().wait().unwrap_err();
            let denial = ended.denial().map(|denial| (denial.rule, denial.likely));
            assert_eq!(denial, Some((Rule::Wrap, Mistake::WrapsAround)), "{name}: {ended}");
        }
    }
}

/// The owner decides who learns more than the class of rule.
#[test]
fn the_owner_decides_which_peers_learn_why() {
    for (explain, told) in [(transom::Explain::Nobody, false), (transom::Explain::Everyone, true)] {
        let owner = Adapter::options().explain(explain).open(here().ip()).unwrap();
        let pair = Pair::of(owner, Adapter::open(here().ip()).unwrap(), (16, 4096));
        let sink = pair.peer_adapter.register(vec![0; 8]).unwrap();
        let guess = Grant::from_parts(0x1234_5678, 0x1000, 8, Rights::READ);
        let refused = pair.peer.read(guess, sink.slice(..)).unwrap().wait().unwrap_err();
        assert_eq!(refused.explanation().is_some(), told, "{explain:?}: {refused}");
        let ended = pair.owner.recv().wait().unwrap_err();
        assert!(ended.denial().is_some(), "the owner always knows: {ended}");
    }
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

/// A call that is refused at once is no reason why its connection ends later.
#[test]
fn a_refused_bind_ends_no_connection_and_explains_no_end() {
    let pair = Pair::new();
    let region = pair.owner_adapter.register(vec![0_u8; 64].into_boxed_slice()).unwrap();
    let before = pair.owner_adapter.counters().refused;
    let refused = pair.owner.bind(&region, ..0, Rights::READ).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert_eq!(pair.owner_adapter.counters().refused, before + 1, "it is counted");
    pair.peer.send(b"goes on").unwrap().wait().unwrap();
    assert_eq!(&pair.owner.recv().wait().unwrap()[..], b"goes on");
    pair.peer.disconnect().unwrap();
    let ended = pair.owner.recv().wait().unwrap_err();
    assert!(!ended.to_string().contains("bind"), "{ended}");
    assert!(ended.denial().is_none(), "{ended}");
}

/// A wait with a limit gives up nothing: the message and the result come to the next wait.
#[test]
fn a_wait_that_ends_early_loses_nothing() {
    let moment = Duration::from_millis(1);
    let pair = Pair::new();
    assert!(pair.peer.recv().wait_timeout(moment).unwrap().is_none());
    pair.owner.send(b"late").unwrap().wait().unwrap();
    assert_eq!(&pair.peer.recv().wait_timeout(Duration::MAX).unwrap().unwrap()[..], b"late");
    let mut listener = pair.owner_adapter.listen(here()).unwrap();
    assert!(listener.next().wait_timeout(moment).is_none());
    let connecting = std::thread::spawn({
        let (adapter, to) = (pair.peer_adapter.clone(), listener.address());
        move || adapter.connect(to).wait()
    });
    let incoming = listener.next().wait_timeout(Duration::MAX).unwrap().unwrap();
    let accepted = incoming.accept().wait().unwrap();
    let connected = connecting.join().unwrap().unwrap();
    let mut posted = connected.send(b"now").unwrap();
    let sent = std::iter::repeat_with(|| posted.wait_timeout(moment)).flatten().next();
    sent.unwrap().unwrap();
    assert_eq!(&accepted.recv().wait().unwrap()[..], b"now");
    assert_eq!(posted.wait_timeout(moment).unwrap().unwrap_err().kind(), ErrorKind::Invalid);
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
