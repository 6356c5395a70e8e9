//! A listener as a stream of peers.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::future::{IntoFuture, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;

use futures_core::Stream;
use transom::Adapter;

#[tokio::test]
async fn a_listener_is_a_stream_of_peers() {
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    let adapter = Adapter::open(at.ip()).unwrap();
    let mut listener = adapter.listen(at).unwrap();
    let to = listener.address();
    for _ in 0..2 {
        let connecting = tokio::spawn(adapter.connect(to).into_future());
        let incoming = poll_fn(|context| Pin::new(&mut listener).poll_next(context)).await;
        let accepted = incoming.unwrap().unwrap().accept().await.unwrap();
        let connected = connecting.await.unwrap().unwrap();
        connected.send(b"hello").unwrap().await.unwrap();
        assert_eq!(&accepted.recv().await.unwrap()[..], b"hello");
    }
}
