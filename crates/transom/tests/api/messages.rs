//! Messages: their order, and a wait that ends early.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use transom::{Adapter, ErrorKind, Rights};

use crate::{Pair, bytes, here};

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
