//! Queue pairs that outlive their connections (verbs 6), over real links.

mod connections;
mod itself;
mod requests;
mod reset;
mod shared;
mod xrc;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use transom_memory::{QueuePairId, Rights};
use transom_wire::Time;

use super::harness::*;
use super::namespace::{OURS, PEERS, with_addresses};
use crate::dialect::VERBS;
use crate::driver::Source;
use crate::raw::{Adapter, Connector, EventSink, Listener, Options, Path, QueuePairOptions};
use crate::tables::ConnectorState;
use crate::{
    Completion, CompletionKind, Data, EndReason, Flags, Limits, Operation, QueuePairEvent,
    QueuePairState, Request, Status, sys,
};

fn verbs() -> Options {
    Options { dialect: &VERBS, ..Options::from_env() }
}

/// Two ends without a connection.
fn ends() -> (End, End) {
    (End::new(&verbs()), End::new(&verbs()))
}

/// Connect two queue pairs, again.
fn connect(active: &mut End, passive: &mut End) {
    active.connector = active.adapter.connector().unwrap();
    passive.connector = passive.adapter.connector().unwrap();
    join(active, passive);
}

fn listener(end: &End) -> Listener {
    let listener = end.adapter.listener(loopback()).unwrap();
    listener.listen(0).unwrap();
    listener
}

fn send(end: &End, context: u64) {
    let request = Request { context, operation: Operation::Send, flags: Flags::NONE };
    end.qp.post(&request, Data::Sges(&[])).unwrap();
}

fn outcomes(end: &End, count: usize) -> Vec<(u64, Status)> {
    (0..count).map(|_| end.next()).map(|c| (c.request_context, c.status)).collect()
}

fn nothing(end: &End) -> bool {
    end.cq.poll(&mut [Completion::default()]) == 0
}

/// Wait until a connector's peer has gone.
fn parted(connector: &Connector) {
    let (sink, gone) = signal();
    connector.notify_disconnect(sink).unwrap();
    assert_eq!(gone.wait(), Status::Success);
    assert_eq!(connector.state(), ConnectorState::PeerGone);
}

const OK: Status = Status::Success;
const CANCELED: Status = Status::Canceled;
const SOON: Option<Duration> = Some(Duration::from_millis(20));

/// The next event of a queue pair from the channel `told`, without first messages.
fn event(told: &mpsc::Receiver<(QueuePairId, QueuePairEvent)>) -> (QueuePairId, QueuePairEvent) {
    loop {
        let event = told.recv_timeout(PATIENCE).expect("no event");
        if event.1 != QueuePairEvent::FirstMessage {
            return event;
        }
    }
}
