//! Peers that come faster than the consumer can see to them.

use std::ffi::c_void;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::*;
use transom_ndkpi::Mode;
use transom_ndkpi::dispatch::*;

/// Callbacks that have begun, and the word with which the first may go on.
#[derive(Default)]
struct Slow {
    called: AtomicUsize,
    go_on: Cell<()>,
}

unsafe extern "C" fn waits(context: *mut c_void, connector: Ptr) {
    let slow = unsafe { &*context.cast::<Slow>() };
    if slow.called.fetch_add(1, Ordering::Relaxed) == 0 {
        slow.go_on.get();
    }
    close(connector);
}

/// Peers come faster than a consumer's callback returns: so many wait for it, and others are rejected at once.
#[test]
fn requests_that_wait_for_the_consumer_have_an_end() {
    // A request whose callback is running, and those that wait.
    const MOST: usize = 1 + 1024;
    const BEYOND: usize = 4;
    // Both ends of each are this process's.
    let (needed, before) = (2 * (MOST + BEYOND) as u64 + 200, getrlimit(Resource::Nofile));
    if before.maximum.is_some_and(|most| most < needed) {
        eprintln!("SKIPPED: {needed} descriptors are more than this user may have");
        return;
    }
    if before.current.is_some_and(|now| now < needed) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(needed), ..before }).unwrap();
    }
    let server = half(options(Mode::Natural));
    let slow = Box::new(Slow::default());
    let t = table::<AdapterDispatch>(server.adapter);
    let context = (&raw const *slow).cast_mut().cast();
    let listener = create(|cb, ctx, out| unsafe {
        (t.create_listener)(server.adapter, Some(waits), context, cb, ctx, out)
    });
    let (listener, port) = listen(listener.unwrap());
    let ask = |_| {
        let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        peer.write_all(b"MPA ID Req Frame\x40\x01\0\0").unwrap();
        peer.set_nonblocking(true).unwrap();
        peer
    };
    let peers: Vec<TcpStream> = (0..MOST + BEYOND).map(ask).collect();
    let answered = || peers.iter().filter(|peer| peer.peek(&mut [0]).is_ok()).count();
    while answered() < BEYOND {
        std::thread::yield_now();
    }
    assert_eq!((answered(), slow.called.load(Ordering::Relaxed)), (BEYOND, 1));
    slow.go_on.set(());
    // The consumer closes the connectors of the others.
    for mut peer in peers {
        let mut answer = [0; 20];
        peer.set_nonblocking(false).unwrap();
        peer.read_exact(&mut answer).unwrap();
        assert!(answer.starts_with(b"MPA ID Rep Frame") && answer[16] & 0x20 != 0, "{answer:?}");
    }
    close(listener);
    assert_eq!(slow.called.load(Ordering::Relaxed), MOST);
    close_all(&[server.qp, server.cq, server.pd]);
    close_adapter(server.adapter);
}
