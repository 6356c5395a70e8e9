//! Bytes between links and connections; time.

use std::time::Duration;

use transom_core::{Effects, EndReason, LinkEnd, LinkWish};
use transom_wire::Buffer;

use super::Call;
use crate::network::{Outlet, Straight};
use crate::watch::{EndId, outlives};

use crate::world::World;

/// The time in which every end would have been served.
const LEAP: Duration = Duration::from_secs(1);

impl World {
    /// Let an end write, and the link take what it takes.
    pub(crate) fn transmit(&mut self, id: EndId, limit: usize) {
        if self.end_mut(id).is_some_and(|end| end.rings.is_some()) {
            if self.write_records(id, limit) {
                self.cancel_behind_the_end(id);
                self.hang_up(id);
            }
            return;
        }
        let straight = match self.rng.below(8) {
            0 => Straight::No,
            1 | 2 => Straight::Torn,
            _ => Straight::Yes,
        };
        let tears = self.profile.vanishing && self.rng.once_in(6);
        let straight = if tears { Straight::Torn } else { straight };
        let over = self.call(id, true, |call, cx| {
            let Call { connection, out, arena, watcher, .. } = call;
            let mut buffer = Buffer::new(limit);
            buffer.bytes = std::mem::take(out);
            let mut outlet = Outlet { out: buffer, arena, straight, tears, watcher };
            connection.transmit(cx, &mut outlet);
            *out = outlet.out.bytes;
        });
        if over.is_none() {
            return;
        }
        self.cancel_behind_the_end(id);
        self.flush_out(id);
    }

    /// Requests posted behind the end have been canceled by now.
    fn cancel_behind_the_end(&mut self, id: EndId) {
        let mut watch = self.watcher.see();
        let over = watch.ends.get(&id).and_then(|stream| {
            let kept = stream.keeps && stream.ended == Some(EndReason::PeerDisconnected);
            stream.pair.filter(|_| stream.ended.is_some() && !kept)
        });
        if let Some(key) = over.filter(|key| watch.pairs.get(key).is_some_and(|p| p.over)) {
            watch.flushed(key);
        }
    }

    /// An end that has said everything hangs up.
    fn hang_up(&mut self, id: EndId) {
        let Some(link) = self.links.get_mut(id.0) else { return };
        let Some(end) = link.ends[id.1].as_mut() else { return };
        let finish = end.out.is_empty() && end.connection.link_wish() == LinkWish::Finish;
        if finish && !end.shut {
            end.shut = true;
            link.ways[1 - id.1].closed = true;
        }
    }

    /// The link takes some of what waits.
    pub(crate) fn flush_out(&mut self, id: EndId) {
        let delay = self.profile.delay(&mut self.rng);
        let partial = self.profile.partial && self.rng.once_in(3);
        let Some(link) = self.links.get_mut(id.0) else { return };
        let room = link.window.saturating_sub(link.ways[1 - id.1].bytes);
        let peer_gone = link.ends[1 - id.1].is_none();
        let Some(end) = link.ends[id.1].as_mut() else { return };
        let mut count = end.out.len().min(room);
        if partial && count > 1 {
            count = 1 + self.rng.index(count - 1);
            self.watcher.see().counters.hit("partial write");
        }
        let bytes: Vec<u8> = end.out.drain(..count).collect();
        if !peer_gone {
            link.ways[1 - id.1].push(self.now.after(delay), bytes);
        }
        self.hang_up(id);
    }

    /// Let an end read at most so many bytes, or the records that they might be.
    pub(crate) fn deliver(&mut self, id: EndId, most: usize) {
        if self.end_mut(id).is_some_and(|end| end.rings.is_some()) {
            let some = if most < 1000 { 1 + most / 100 } else { most / 100 };
            return self.read_records(id, some);
        }
        let now = self.now;
        let Some(link) = self.links.get_mut(id.0) else { return };
        let way = &mut link.ways[id.1];
        let Some(end) = link.ends[id.1].as_mut() else {
            way.clear();
            return;
        };
        if way.stalled && self.rng.once_in(10) {
            way.stalled = false;
        }
        if way.stalled || !end.connection.wants_read() {
            return;
        }
        let fresh = way.take(now, most);
        let ends = way.bytes == 0 && way.closed && !way.told && !way.lost;
        let read_paused = std::mem::take(&mut end.read_paused);
        if !fresh.is_empty() || read_paused {
            let mut held = std::mem::take(&mut end.held);
            held.extend_from_slice(&fresh);
            let received = self.call(id, false, |call, cx| {
                let Call { connection, .. } = call;
                let received = connection.receive(cx, &held);
                (received.consumed, received.read_paused)
            });
            let Some((consumed, read_paused)) = received else { return };
            if let Some(end) = self.end_mut(id) {
                held.drain(..consumed.min(held.len()));
                end.held = held;
                end.read_paused = read_paused;
            }
        } else if ends {
            way.told = true;
            let how = self.how_it_ended(id);
            self.call(id, false, |call, cx| call.connection.link_closed(cx, how));
        } else {
            self.call(id, false, |call, _| call.connection.idle_pass());
        }
    }

    /// The peer's direction is closed: in order, with everything of this side taken, or otherwise.
    fn how_it_ended(&mut self, id: EndId) -> LinkEnd {
        let Some(link) = self.links.get(id.0) else { return LinkEnd::Closed };
        let other = 1 - id.1;
        let in_order = link.ends[other].as_ref().is_some_and(|end| end.shut);
        let written = link.ends[id.1].as_ref().is_some_and(|end| end.out.is_empty());
        let taken = written && link.ways[other].bytes == 0;
        let mut watch = self.watcher.see();
        if in_order && taken && watch.finished(id) { LinkEnd::Finished } else { LinkEnd::Closed }
    }

    /// No end does anything for long: a program that was stopped, a machine that stood still. The
    /// pass in which a connection ends has written all bytes due by then, as far as there was room.
    fn leap(&mut self) {
        for id in self.ends() {
            let over = |world: &mut World| {
                let end = world.end_mut(id).filter(|end| end.connection.ended().is_some())?;
                Some(!end.out.is_empty() || end.connection.wants_write())
            };
            if over(self) == Some(true) {
                self.transmit(id, usize::MAX);
            }
            if over(self) == Some(true)
                && let Some(stream) = self.watcher.see().ends.get_mut(&id)
            {
                stream.stood_still = true;
            }
        }
    }

    /// Fail what has waited for a connection for too long.
    fn connections_due(&mut self) {
        for place in 0..self.places.len() {
            let process = self.places[place];
            if !outlives(self.processes[process].dialect) {
                continue;
            }
            for index in 0..self.processes[process].pairs.len() {
                let pair = &mut self.processes[process].pairs[index];
                if pair.front.is_attached() || pair.released {
                    continue;
                }
                let key = (process, pair.number);
                let due = pair.front.connection_due(self.now);
                if !self.watcher.see().waits(key, &pair.front, due)
                    || self.profile.late && self.rng.once_in(3)
                {
                    continue;
                }
                let mut effects = Effects::default();
                self.bare(process, index, &mut effects, |pair, cx| {
                    pair.front.on_deadline(cx.memory, cx.now, cx.effects);
                });
                self.watcher.see().gave_up(key);
                self.watcher.see().effects(None, Some(key), &effects.list);
                self.settled(process, index, effects.list);
                self.end_overrun();
            }
        }
    }

    /// Let time pass, and see to what is due.
    pub(crate) fn pass_time(&mut self, by: Duration) {
        if by >= LEAP && !self.watcher.see().healed {
            self.leap();
        }
        self.now = self.now.after(by);
        self.watcher.see().now = self.now;
        self.connections_due();
        for id in self.ends() {
            let now = self.now;
            let due = self
                .end_mut(id)
                .and_then(|end| end.connection.deadline())
                .is_some_and(|deadline| deadline <= now);
            if due && !(self.profile.late && self.rng.once_in(3)) {
                self.call(id, false, |call, cx| call.connection.on_deadline(cx));
                self.transmit(id, 1 << 16);
            } else if due {
                self.hit("late timer");
            }
        }
    }
}
