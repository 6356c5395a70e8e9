//! A connection of a socket: its queue pair, its memory, and the protocol between both sides.
//!
//! Bytes are copied into a ring, written from there into memory that the peer has granted, and a Send
//! of one word behind them says so. The peer copies them out, and grants the memory again.

use std::sync::Arc;

use transom_engine::{Completion, Data, Flags, Operation, QueuePairKind, Request, Sge};

use super::buffer::{Buffer, Span};
use super::stream::{Grant, Incoming, Outgoing, Piece, TARGETS, Violation};
use super::wire::{self, Introduction, MAPPING, Mapping, TARGET, Target, WORD, Word};
use crate::abi::{access, ibv_qp_cap};
use crate::completion::Queue;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::memory::{Domain, Region};
use crate::queue_pair::{Destination, Parts, QueuePair, post_error};

/// Requests and receives that words other than of data may need beside these.
const SPARE: u32 = 8;
/// Completions that are taken at a time.
const BATCH: usize = 16;

/// The choices of a program before the connection begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Requests and messages under way.
    pub(crate) requests: u32,
    pub(crate) messages: u32,
    /// Bytes of the two rings.
    pub(crate) send: u32,
    pub(crate) receive: u32,
    pub(crate) inline: u32,
    /// Mappings of the peer's that there is room for.
    pub(crate) mappings: u16,
}

impl Default for Sizes {
    fn default() -> Sizes {
        let memory = 1 << 17;
        Sizes {
            requests: 384,
            messages: 384,
            send: memory,
            receive: memory,
            inline: 64,
            mappings: 0,
        }
    }
}

impl Sizes {
    /// The nearest choices that the protocol can work with.
    fn usable(self) -> Sizes {
        let depth = |asked: u32| asked.clamp(16, 8192);
        let ring = |asked: u32| asked.clamp(4096, 1 << 28).next_multiple_of(64);
        Sizes {
            requests: depth(self.requests),
            messages: depth(self.messages),
            send: ring(self.send),
            receive: ring(self.receive),
            ..self
        }
    }
}

/// The peer's own description.
#[derive(Clone, Copy, Debug)]
struct Peer {
    big_endian: bool,
    /// The peer's array of targets, and the place that is written next.
    targets: Target,
    place: u32,
    /// Places for mappings behind it.
    mappings: u16,
}

/// A mapping of this side's program.
#[derive(Debug)]
struct Mapped {
    region: Arc<Region>,
    mapping: Mapping,
    /// The place in the peer's array, once the peer was told.
    place: Option<u16>,
    /// The peer is not told.
    local: bool,
}

#[derive(Debug)]
pub(crate) struct Link {
    domain: Arc<Domain>,
    pub(crate) queue: Arc<Queue>,
    /// Completions that the queue holds.
    depth: u32,
    pub(crate) pair: Arc<QueuePair>,
    send: Buffer,
    receive: Buffer,
    /// A place for the word of each receive.
    words: Buffer,
    /// Where the peer writes its targets and its mappings.
    targets: Buffer,
    places: u16,
    out: Outgoing,
    incoming: Incoming,
    credits: u16,
    peer: Option<Peer>,
    mapped: Vec<Mapped>,
    /// Words other than of data that are under way.
    words_under_way: u32,
    /// The directions that the peer has not ended.
    pub(crate) peer_sends: bool,
    pub(crate) peer_takes: bool,
    /// A request or receive has failed, or the peer broke the protocol.
    pub(crate) failed: Option<Errno>,
}

/// The subject of a completion: the upper half of a request's context.
mod about {
    pub(super) const RECEIVE: u64 = 0;
    pub(super) const BYTES: u64 = 1 << 32;
    pub(super) const WORD: u64 = 2 << 32;
}

fn request(context: u64, operation: Operation, silent: bool) -> Request {
    let flags = if silent { Flags::SILENT_SUCCESS } else { Flags::NONE };
    Request { context, operation, flags }
}

impl Link {
    pub(crate) fn new(context: &Arc<Context>, sizes: Sizes) -> Result<Link> {
        let sizes = sizes.usable();
        let domain = Domain::new(context)?;
        // A piece takes two requests.
        let (sends, receives) = (2 * sizes.requests + SPARE, sizes.messages + SPARE);
        let (queue, _) = Queue::new(context, sends + receives, None, None)?;
        let queue = Arc::new(queue);
        let parts = Parts {
            domain: domain.clone(),
            send: queue.clone(),
            receive: queue.clone(),
            shared: None,
            xrc: None,
            signal_all: false,
            kind: QueuePairKind::Rc,
        };
        let asked = ibv_qp_cap {
            max_send_wr: sends,
            max_recv_wr: receives,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: sizes.inline.clamp(MAPPING as u32, crate::limits::INLINE),
        };
        let pair = QueuePair::new(parts, asked)?;
        let (own, peers) = (access::LOCAL_WRITE, access::LOCAL_WRITE | access::REMOTE_WRITE);
        let places = TARGETS as usize * TARGET + usize::from(sizes.mappings) * MAPPING;
        let credits = u16::try_from(sizes.messages).unwrap_or(u16::MAX);
        Ok(Link {
            send: Buffer::new(&domain, sizes.send as usize, own)?,
            receive: Buffer::new(&domain, sizes.receive as usize, peers)?,
            words: Buffer::new(&domain, receives as usize * WORD, own)?,
            targets: Buffer::new(&domain, places, peers)?,
            domain,
            queue,
            depth: sends + receives,
            pair,
            places: sizes.mappings,
            out: Outgoing::new(sizes.send, sizes.requests),
            incoming: Incoming::new(sizes.receive, credits),
            credits,
            peer: None,
            mapped: Vec::new(),
            words_under_way: 0,
            peer_sends: true,
            peer_takes: true,
            failed: None,
        })
    }

    /// This side's own description.
    pub(crate) fn introduction(&self) -> Introduction {
        let target = |buffer: &Buffer, length| Target {
            address: buffer.address(),
            key: buffer.key(),
            length,
        };
        Introduction {
            big_endian: cfg!(target_endian = "big"),
            credits: self.credits,
            mappings: self.places,
            targets: target(&self.targets, TARGETS),
            buffer: target(&self.receive, self.receive.size() / 2),
        }
    }

    /// Post every receive. The queue pair is in INIT.
    pub(crate) fn prepare(&self) -> Result {
        self.post_receives(0..self.words.size() / WORD as u32)
    }

    fn post_receives(&self, places: std::ops::Range<u32>) -> Result {
        self.pair.post_receives(places.len(), |chain| {
            for place in places.clone() {
                let list = [self.words.entry(place * WORD as u32, WORD as u32)];
                chain.post(about::RECEIVE | u64::from(place), &list).map_err(post_error)?;
            }
            Ok(())
        })
    }

    /// The peer has introduced itself.
    pub(crate) fn begin(&mut self, of: Introduction) {
        let Introduction { big_endian, credits, mappings, targets, buffer } = of;
        self.out.begin(credits, buffer);
        self.peer = Some(Peer { big_endian, targets, place: 1, mappings });
    }

    // ---- what the program asks ------------------------------------------------------------------

    pub(crate) fn available(&self) -> usize {
        self.incoming.available()
    }

    /// Copy bytes that have come, and grant their place again unless `peek`.
    pub(crate) fn take(&mut self, into: Span, peek: bool) -> usize {
        let mut done = 0;
        while done < into.len() {
            let (at, run) = self.incoming.run(if peek { done } else { 0 });
            let count = run.min(u32::try_from(into.len() - done).unwrap_or(u32::MAX));
            if count == 0 {
                break;
            }
            self.receive.copy_to(at, into.behind(done), count);
            if !peek {
                self.incoming.read(count);
            }
            done += count as usize;
        }
        self.grant();
        done
    }

    /// Whether bytes may leave now.
    pub(crate) fn can_send(&mut self) -> bool {
        self.look_for_target();
        self.out.is_open()
    }

    fn look_for_target(&mut self) {
        let Some(place) = self.out.needs_target() else { return };
        let at = place * TARGET as u32;
        let target = Target::published(|behind, into| self.targets.read(at + behind, into));
        if let Some(target) = target {
            // Before anything is sent there: what the peer writes afterwards is the one behind it.
            self.targets.write(at, &[0; TARGET]);
            self.out.take_target(target);
        }
    }

    /// Send as much as may leave now; how much.
    pub(crate) fn give(&mut self, from: Span) -> Result<usize> {
        self.tell_mappings()?;
        let mut done = 0;
        while done < from.len() && self.can_send() {
            let rest = from.behind(done);
            let Some(piece) = self.out.piece(rest.len()) else { break };
            self.send.fill(piece.at, rest, piece.length);
            let word = Word::Data(piece.length).to_bytes();
            let list = [self.send.entry(piece.at, piece.length)];
            let write = self.write_of(piece, &list, true);
            let context = about::BYTES | u64::from(piece.length);
            let send =
                (request(context, Operation::Send, false), Data::Inline(&word), Destination::Peer);
            self.pair.post_all([write, send].into_iter())?;
            self.out.posted(piece, true);
            done += piece.length as usize;
        }
        Ok(done)
    }

    fn write_of<'a>(
        &self,
        piece: Piece,
        list: &'a [Sge],
        silent: bool,
    ) -> crate::queue_pair::Post<'a> {
        let operation = Operation::Write { token: piece.key, address: piece.to };
        let context = about::BYTES | u64::from(piece.length);
        (request(context, operation, silent), Data::Sges(list), Destination::Peer)
    }

    /// A word that is not of data.
    pub(crate) fn say(&mut self, word: Word) -> Result {
        let bytes = word.to_bytes();
        let send = request(about::WORD, Operation::Send, false);
        self.pair.post_send(&send, Data::Inline(&bytes), &Destination::Peer)?;
        self.words_under_way += 1;
        Ok(())
    }

    /// Grant the peer what is due. What cannot be posted now is due still.
    pub(crate) fn grant(&mut self) {
        let Some(peer) = self.peer.filter(|_| self.peer_sends && self.failed.is_none()) else {
            return;
        };
        while let Some(grant) = self.incoming.grant() {
            if self.words_under_way >= SPARE / 2 || self.post_grant(peer.big_endian, grant).is_err()
            {
                return;
            }
            self.incoming.granted(grant);
        }
    }

    fn post_grant(&mut self, big_endian: bool, grant: Grant) -> Result {
        let word = Word::Credits(grant.count);
        let (Some((at, length)), Some(peer)) = (grant.target, &mut self.peer) else {
            return self.say(word);
        };
        let address = self.receive.address() + u64::from(at);
        let target = Target { address, key: self.receive.key(), length }.to_bytes(big_endian);
        let operation = Operation::Write {
            token: peer.targets.key,
            address: peer.targets.address.wrapping_add(u64::from(peer.place) * TARGET as u64),
        };
        let write =
            (request(about::WORD, operation, true), Data::Inline(&target), Destination::Peer);
        let bytes = word.to_bytes();
        let send =
            (request(about::WORD, Operation::Send, false), Data::Inline(&bytes), Destination::Peer);
        self.pair.post_all([write, send].into_iter())?;
        self.words_under_way += 1;
        peer.place = (peer.place + 1) % peer.targets.length;
        Ok(())
    }

    // ---- mapped memory --------------------------------------------------------------------------

    /// Memory of the program's under an offset; the peer learns of it with the next bytes, unless it is
    /// `local`.
    pub(crate) fn map(&mut self, region: Arc<Region>, offset: u64, local: bool) -> Result {
        let room = self.peer.map_or(0, |peer| usize::from(peer.mappings));
        if !local && self.mapped.iter().filter(|mapped| !mapped.local).count() >= room {
            return Err(Errno::ENOMEM);
        }
        let length = u32::try_from(region.length).map_err(|_| Errno::EINVAL)?;
        let target = Target { address: region.base, key: region.token.0, length };
        let mapping = Mapping { offset, target };
        self.mapped.push(Mapped { region, mapping, place: None, local });
        Ok(())
    }

    /// `EINVAL`: no such memory is mapped.
    pub(crate) fn unmap(&mut self, address: u64, length: u64) -> Result {
        let of = |mapped: &Mapped| (mapped.region.host, mapped.region.length) == (address, length);
        let at = self.mapped.iter().position(of).ok_or(Errno::EINVAL)?;
        let mapped = self.mapped.get(at).ok_or(Errno::EINVAL)?;
        mapped.region.deregister()?;
        self.mapped.remove(at);
        Ok(())
    }

    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Tell the peer of mappings that it does not know, as far as it takes messages.
    fn tell_mappings(&mut self) -> Result {
        let Some(peer) = self.peer else { return Ok(()) };
        for at in 0..self.mapped.len() {
            let Some(mapped) = self.mapped.get(at) else { break };
            if mapped.local || mapped.place.is_some() || !self.out.has_credit() {
                continue;
            }
            let free = |place: &u16| !self.mapped.iter().any(|m| m.place == Some(*place));
            let Some(place) = (0..peer.mappings).find(free) else { break };
            let behind = u64::from(peer.targets.length) * TARGET as u64;
            let address =
                peer.targets.address.wrapping_add(behind + u64::from(place) * MAPPING as u64);
            let operation = Operation::Write { token: peer.targets.key, address };
            let bytes = mapped.mapping.to_bytes(peer.big_endian);
            let word = Word::Mapping(place.into()).to_bytes();
            let write =
                (request(about::BYTES, operation, true), Data::Inline(&bytes), Destination::Peer);
            let send = (
                request(about::BYTES, Operation::Send, false),
                Data::Inline(&word),
                Destination::Peer,
            );
            self.pair.post_all([write, send].into_iter())?;
            self.out.posted_mapping();
            if let Some(mapped) = self.mapped.get_mut(at) {
                mapped.place = Some(place);
            }
        }
        Ok(())
    }

    /// The mapping of the peer's that has an offset.
    fn mapping_at(&self, offset: u64) -> Option<Mapping> {
        (0..self.places).find_map(|place| {
            let at = TARGETS * TARGET as u32 + u32::from(place) * MAPPING as u32;
            let mut bytes = [0; MAPPING];
            self.targets.read(at, &mut bytes);
            let mapping = Mapping::from_bytes(&bytes);
            let inside = offset.checked_sub(mapping.offset)?;
            (inside < u64::from(mapping.target.length)).then_some(mapping)
        })
    }

    /// Write into what the peer has mapped, as much as may leave now; how much. `None`: the peer has
    /// mapped nothing at that offset.
    pub(crate) fn write_mapped(&mut self, from: Span, offset: u64) -> Result<Option<usize>> {
        self.tell_mappings()?;
        let mut done = 0;
        while done < from.len() {
            let at = offset.wrapping_add(done as u64);
            let Some(mapping) = self.mapping_at(at) else {
                return Ok((done > 0).then_some(done));
            };
            let inside = at - mapping.offset;
            let room = usize::try_from(u64::from(mapping.target.length) - inside).unwrap_or(0);
            let rest = from.behind(done);
            let to = mapping.target.address.wrapping_add(inside);
            let Some(piece) = self.out.direct(rest.len().min(room), to, mapping.target.key) else {
                break;
            };
            self.send.fill(piece.at, rest, piece.length);
            let list = [self.send.entry(piece.at, piece.length)];
            let write = self.write_of(piece, &list, false);
            self.pair.post_all(std::iter::once(write))?;
            self.out.posted(piece, false);
            done += piece.length as usize;
        }
        Ok(Some(done))
    }

    // ---- progress -------------------------------------------------------------------------------

    /// Whether everything that was sent has arrived.
    pub(crate) fn is_idle(&self) -> bool {
        self.out.is_idle() && self.words_under_way == 0
    }

    /// Take what has completed, at most as much as the queue holds; whether there was anything.
    pub(crate) fn progress(&mut self) -> bool {
        let (queue, most) = (self.queue.clone(), self.depth);
        let taken = in_batches(
            most,
            |batch| queue.engine.poll(batch),
            |completion| {
                if let Err(error) = self.completed(completion) {
                    self.failed.get_or_insert(error);
                }
            },
        );
        if taken > 0 {
            self.grant();
        }
        taken > 0
    }

    fn completed(&mut self, completion: &Completion) -> Result {
        let (kind, value) =
            (completion.request_context & !u64::from(u32::MAX), completion.request_context as u32);
        match kind {
            about::BYTES => self.out.completed(value),
            about::WORD => self.words_under_way = self.words_under_way.saturating_sub(1),
            _ if completion.status.is_success() => return self.received(value, completion.length),
            _ => {}
        }
        if completion.status.is_success() { Ok(()) } else { Err(Errno::ECONNRESET) }
    }

    fn received(&mut self, place: u32, length: u32) -> Result {
        let mut bytes = [0; WORD];
        self.words.read(place * WORD as u32, &mut bytes);
        self.post_receives(place..place + 1)?;
        let word = wire::Word::from_bytes(bytes).filter(|_| length == WORD as u32);
        match word.ok_or(Errno::EPROTO)? {
            Word::Data(length) => {
                self.incoming.arrived(length).map_err(|Violation| Errno::EPROTO)?;
            }
            Word::Credits(count) => self.out.grant(count),
            Word::Mapping(_) => self.incoming.arrived_mapping(),
            Word::Disconnect => (self.peer_sends, self.peer_takes) = (false, false),
            Word::Shutdown => self.peer_sends = false,
            Word::Keepalive => {}
        }
        Ok(())
    }
}

/// Take completions until there are none, or `most` were taken: a peer may send words as fast as they are
/// taken, and no call waits for its end. How many.
fn in_batches(
    most: u32,
    mut poll: impl FnMut(&mut [Completion]) -> usize,
    mut each: impl FnMut(&Completion),
) -> u32 {
    let mut batch = [Completion::BLANK; BATCH];
    let mut taken = 0;
    while taken < most {
        let found = poll(&mut batch);
        batch.iter().take(found).for_each(&mut each);
        taken += found as u32;
        if found < BATCH {
            break;
        }
    }
    taken
}

impl Drop for Link {
    fn drop(&mut self) {
        self.pair.destroy();
        let _ = self.queue.destroy();
        for mapped in &self.mapped {
            let _ = mapped.region.deregister();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The peer's words come as fast as they are taken.
    #[test]
    fn v137_a_flood_of_words_keeps_no_call_from_returning() {
        let mut seen = 0;
        assert_eq!(in_batches(100, |batch| batch.len(), |_| seen += 1), 112);
        assert_eq!(seen, 112, "whole batches");
        let mut left = 20;
        let some = |batch: &mut [Completion]| {
            let found = left.min(batch.len());
            left -= found;
            found
        };
        assert_eq!(in_batches(100, some, |_| {}), 20);
    }
}
