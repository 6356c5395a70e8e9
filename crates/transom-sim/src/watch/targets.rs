//! Messages that name the shared receive queue they are for (Verbs V155): that is the queue that receives
//! them, and its protection domain the one in which they are judged.

use transom_core::QueuePairKind;

use super::inbound::{Piece, What};
use super::{EndId, Stream, Watch};

impl Watch {
    /// The wire was told for whom the next messages are.
    pub fn aimed(&mut self, number: u32) {
        self.with(|_, _, stream| stream.aimed = Some(number));
    }

    /// Whether this end receives for several queues, which messages name.
    pub(super) fn has_targets(&self, stream: &Stream) -> bool {
        let pair = stream.pair.and_then(|key| self.pairs.get(&key));
        pair.is_some_and(|pair| pair.kind == QueuePairKind::XrcReceive)
    }

    /// A message of the peer's comes. `false`: it names no queue that is there, and is to be refused.
    pub(super) fn find_target(&mut self, end: EndId, stream: &mut Stream, message: usize) -> bool {
        if !self.has_targets(stream) {
            return true;
        }
        let target = self.peer(end).and_then(|p| p.messages.get(message)).map(|m| m.target);
        let found = target.and_then(|name| self.targets.get(&(stream.process, name)).copied());
        let Some((pool, domain)) = found else {
            self.counters.hit("named no queue");
            let (what, bytes) = (What::Ask(false), Vec::new());
            stream.inbox.push_back(Piece { what, message, bytes, placed: 0, last: false });
            return false;
        };
        if stream.actor.domain != domain {
            self.counters.hit("named a queue of another domain");
        }
        stream.actor.domain = domain;
        if let Some(pair) = stream.pair.and_then(|key| self.pairs.get_mut(&key)) {
            pair.shared = Some(pool);
        }
        true
    }

    /// The bytes of a message that waits for a receive are kept out of the ring.
    pub fn kept(&mut self, bytes: &[u8]) {
        self.with(|watch, _, stream| {
            let piece = stream.inbox.front();
            let sent =
                |piece: &Piece| matches!(piece.what, What::Send { .. }) && piece.bytes == bytes;
            if !piece.is_some_and(sent) {
                watch.fail("other bytes are kept than those of a Send that waits");
            }
            watch.counters.hit("kept out of a ring");
        });
    }

    /// Whether a message of the peer's is to be refused because it names no queue.
    pub(super) fn names_nothing(&self, end: EndId, stream: &Stream, message: usize) -> bool {
        let target = self.peer(end).and_then(|p| p.messages.get(message)).map(|m| m.target);
        let known = target.is_some_and(|name| self.targets.contains_key(&(stream.process, name)));
        self.has_targets(stream) && !known
    }
}
