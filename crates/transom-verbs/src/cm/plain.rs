//! Peers that are no Transom: what a program should know about one (Verbs V97).

use std::sync::atomic::{AtomicBool, Ordering};

use transom_engine::EndReason;

use super::Id;
use crate::explain;
use crate::kind::kind;

/// A connection has been established: note whether its peer is a Transom. The device may look like RoCE
/// while the peer is an adapter of iWARP. Programs that go by the transport do different things on the two:
/// perftest writes its credits into the peer's memory on iWARP alone.
pub(super) fn compare_kinds(id: &Id) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let Some(connector) = id.lock().connector.clone().filter(|_| explain::wanted()) else { return };
    let Ok(info) = connector.info() else { return };
    if info.facts.extension {
        return;
    }
    id.lock().plain = true;
    if kind().infiniband && !SAID.swap(true, Ordering::Relaxed) {
        explain::line(&format!(
            "the peer at {} is an adapter of iWARP, and this program's device looks like RoCE v2. Programs \
             that behave differently on the two, as perftest does, need `transom run --as iwarp`",
            info.peer
        ));
    }
}

/// The connection has ended. If this side has refused something, only this side can say so: a Transom
/// explains it to its own program, another adapter does not know.
pub(super) fn explain_refusal(id: &Id) {
    let (connector, peer) = {
        let inner = id.lock();
        (inner.connector.clone().filter(|_| inner.plain), inner.peer)
    };
    let Some((connector, peer)) = connector.zip(peer) else { return };
    let ours = matches!(connector.ended(), Some(EndReason::Refused | EndReason::Violation));
    if let Some(record) = connector.refusal().filter(|_| ours) {
        explain::line(&format!(
            "the connection with {peer} has ended, because a request of the peer was refused: {}",
            record.cause
        ));
    }
}

/// The peer's host refuses TCP connections to the port.
pub(super) fn explain_silence(id: &Id) {
    if let Some(peer) = id.lock().peer {
        explain::line(&format!(
            "nobody listens at TCP port {} of {}: no program does, or its adapter speaks RoCE, which \
             Transom and other adapters of iWARP do not",
            peer.port(),
            peer.ip()
        ));
    }
}
