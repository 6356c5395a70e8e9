//! Records between a link's rings and its connection: the counterpart of `traffic`.
//!
//! A side that looks by itself is not told of anything; one that sleeps has said so in the shared
//! memory, and whoever writes for it rings its socket, once. Before a thread sleeps it says so and
//! looks again ([`Rings::fall_asleep`]), so nothing is written unseen in between.

use std::time::Duration;

use transom_core::LinkEnd;
use transom_memory::Segment;
use transom_process::record::{self, HEADER, Header, Kind};
use transom_process::ring::{
    Body, Consumer, DATA, Found, INLINE, Lie, Producer, Record, SLOTS, Side,
};
use transom_wire::{SMALL_HEADER, Time};

use super::link::{Link, State};
use super::traffic::QUOTA;
use super::workers::fit;
use crate::sys::{Host, Local, Region, kill_point};
use crate::{Connection, Cx, Direct, Output};

/// Small records taken before it is asked whether to acknowledge.
const SOME: u32 = 8;
/// How often a thread that never sleeps asks whether the other side has ended.
const LOOK: Duration = Duration::from_millis(10);
/// A data area that was in use is given back after so long without payload.
const TIDY: Duration = Duration::from_secs(1);
/// What is noticed so much after its time says nothing about the other side: this process, or its
/// machine, was stopped.
const STOOD_STILL: Duration = Duration::from_secs(1);
/// Times that a pass looks again before it leaves the rest to the next one.
const AGAIN: u32 = 4;

/// Two rings of a link, under its latch.
#[derive(Debug)]
pub(crate) struct Rings {
    region: Region,
    /// Our side's index; the other's is `1 - mine`.
    mine: usize,
    producer: Producer,
    consumer: Consumer,
    /// The other side's word beside its records, as far as the wire knows it.
    seen: u64,
    /// Something was written that the other side may sleep through.
    written: bool,
    /// When to ask again whether the other side has ended, and whether it has.
    look: Time,
    over: bool,
    /// How much had gone through our data area when it was last asked about and given back; since when.
    used: u64,
    tidied: u64,
    since: Time,
    /// There was no room: how much the other side had read then, and when that was.
    stuck: Option<(u64, Time)>,
}

impl Rings {
    /// Fresh ones. `mine`: 0 for the active side, 1 for the passive one.
    pub(super) fn new(region: Region, mine: usize) -> Rings {
        Rings {
            region,
            mine: mine.min(1),
            producer: Producer::new(SLOTS, DATA),
            consumer: Consumer::new(SLOTS, DATA),
            seen: 0,
            written: false,
            look: Time(0),
            over: false,
            used: 0,
            tidied: 0,
            since: Time(0),
            stuck: None,
        }
    }

    /// Where it lies, for a test that writes to it.
    #[cfg(test)]
    pub(super) fn memory(&self) -> (usize, usize) {
        self.region.whole()
    }

    fn side(&self, index: usize) -> &Side {
        let [active, passive] = &self.region.shared().sides;
        if index == 0 { active } else { passive }
    }

    fn ours(&self) -> &Side {
        self.side(self.mine)
    }

    fn theirs(&self) -> &Side {
        self.side(1 - self.mine)
    }

    /// Whether there is something to read, or the other side is known to have ended.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        let theirs = self.theirs();
        self.consumer.has_next(theirs.slots()) || theirs.acknowledged() != self.seen || self.over
    }

    /// A thread looks by itself at `now`: `true` if there is something to read. Before it leaves it
    /// to others to look, it looks a few times.
    pub(super) fn glance(&mut self, bell: &Local, now: Time, tries: u32) -> bool {
        // Whether we have said that we sleep makes no difference: at worst we are rung for once. To take
        // it back here could be to take it back from the background thread, which relies on it.
        if now >= self.look {
            self.ask(bell, now);
        }
        // No pause in between: it would last as long as the whole journey of a small record.
        (0..tries).any(|_| self.has_news())
    }

    /// Ask the socket whether the other side has ended, and forget that it rang.
    fn ask(&mut self, bell: &Local, now: Time) {
        self.look = now.after(LOOK);
        self.over = self.over || !bell.silence();
    }

    /// The link comes to rest: give pages of our data area back, when no payload has gone through it
    /// for a while. `Some`: when to ask again.
    pub(super) fn tidy(&mut self, now: Time) -> Option<Time> {
        let used = self.producer.placed();
        if used == self.tidied {
            return None;
        }
        if used != self.used || !self.producer.all_read() {
            (self.used, self.since) = (used, now);
        }
        let when = self.since.after(TIDY);
        if now < when {
            return Some(when);
        }
        self.tidied = used;
        self.region.give_back(self.mine);
        None
    }

    /// Since when there is no room for what is to be written, and nothing of what was written is read.
    fn stuck_since(&mut self, waiting: bool, now: Time) -> Option<Time> {
        let read = self.producer.all_consumed();
        if !waiting || self.producer.has_room(record::LARGEST_PAYLOAD) {
            self.stuck = None;
        } else if self.stuck.is_none_or(|(then, _)| then != read) {
            self.stuck = Some((read, now));
        }
        self.stuck.map(|(_, since)| since)
    }

    fn wake_up(&self) {
        self.ours().wake_up();
    }

    /// Say that we sleep. `false`: there is something to do first.
    fn fall_asleep(&self) -> bool {
        self.ours().fall_asleep();
        kill_point("asleep, before looking again");
        !self.has_news()
    }

    /// The next record, if there is one. It acknowledges ours, as far as their places are concerned.
    #[inline]
    fn next(&mut self) -> Option<Result<Record, Lie>> {
        // Not `self.theirs()`: the consumer is another part of `self`.
        let side = self.region.shared().sides.get(1 - self.mine)?;
        let record = match self.consumer.take(side.slots())? {
            Ok(record) => record,
            Err(lie) => return Some(Err(lie)),
        };
        kill_point("a record was read");
        match self.producer.consumed((record.header.ack & 0xFFFF_FFFF) as u32) {
            Ok(_) => Some(Ok(record)),
            Err(lie) => Some(Err(lie)),
        }
    }

    /// What the other side has acknowledged beside its records, as a header for the wire.
    fn news_beside(&mut self) -> Result<Option<Header>, Lie> {
        let word = self.theirs().acknowledged();
        // A record that was written before the word comes before it.
        if word == self.seen || self.consumer.has_next(self.theirs().slots()) {
            return Ok(None);
        }
        self.seen = word;
        self.producer.consumed((word & 0xFFFF_FFFF) as u32)?;
        Ok(Some(Header { ack: word, ..Header::new(Kind::Ack) }))
    }

    /// A record as the wire wants it, in memory of our own: payload behind the header, or where it
    /// lies. How many bytes.
    fn copy(&self, header: &Header, body: Found, into: &mut [u8]) -> usize {
        let length = header.payload();
        let mut header = *header;
        header.flags &= !record::ELSEWHERE;
        let mut used = 0;
        let offset = match body {
            Found::Inline(words) => {
                push(into, &mut used, &record::to_bytes(header.words()));
                push(into, &mut used, record::to_bytes(words).get(..length).unwrap_or_default());
                return used;
            }
            Found::At(offset) => offset,
        };
        let theirs = 1 - self.mine;
        if header.kind.carries_data() {
            header.flags |= record::ELSEWHERE;
            push(into, &mut used, &record::to_bytes(header.words()));
            push(into, &mut used, &self.region.address(theirs, offset).to_ne_bytes());
            return used;
        }
        push(into, &mut used, &record::to_bytes(header.words()));
        if let Some(room) = into.get_mut(used..used + length) {
            self.region.read_bytes(theirs, offset, room);
            used += length;
        }
        used
    }

    fn publish(&mut self, words: record::Words, body: Body) -> bool {
        let Some(side) = self.region.shared().sides.get(self.mine) else { return false };
        let done = self.producer.publish(side.slots(), words, body);
        self.written |= done;
        done
    }

    /// Move frames out of the buffer into slots. `false`: some are left.
    fn write(&mut self, out: &mut Vec<u8>, written: &mut usize) -> bool {
        while let Some(rest) = out.get(*written..).filter(|rest| !rest.is_empty()) {
            let frame = record::to_words(rest)
                .and_then(|words| Some((words, Header::from_words(words)?.payload())));
            let Some((words, length)) = frame else { return false };
            let Some(payload) = rest.get(HEADER..HEADER + length) else { return false };
            if !self.producer.has_room(length) {
                return false;
            }
            let body = if length <= INLINE {
                Body::Inline(inline(payload))
            } else {
                let Some(offset) = self.producer.place(length) else { return false };
                self.region.fill_bytes(self.mine, offset, payload);
                kill_point("payload written, its record not");
                Body::Placed(length)
            };
            if !self.publish(words, body) {
                return false;
            }
            kill_point("a record written, nobody woken");
            *written += HEADER + length;
        }
        out.clear();
        *written = 0;
        true
    }

    /// A frame whose payload lies in application memory, without a copy of ours in between.
    fn write_direct(&mut self, header: &[u8], payload: &[Segment]) -> Direct {
        let Some(words) = record::to_words(header) else { return Direct::Copy };
        let length = Header::from_words(words).map_or(0, |header| header.payload());
        let total: u64 = payload.iter().map(|segment| segment.length).sum();
        if total != length as u64 || !self.producer.has_room(length) {
            return Direct::Copy;
        }
        if length <= INLINE {
            let mut bytes = [0; INLINE];
            if Host.gather(payload, &mut bytes).is_err() {
                return Direct::Fault;
            }
            let body = Body::Inline(record::to_words(&bytes).unwrap_or_default());
            let done = self.publish(words, body);
            kill_point("a record written, nobody woken");
            return if done { Direct::Taken } else { Direct::Copy };
        }
        let Some(offset) = self.producer.place(length) else { return Direct::Copy };
        if Host.fill(&self.region, self.mine, offset, payload).is_err() {
            return Direct::Fault;
        }
        kill_point("payload written, its record not");
        if self.publish(words, Body::Placed(length)) { Direct::Taken } else { Direct::Copy }
    }

    /// Acknowledge beside the records, if it is time, and wake the other side if it sleeps.
    fn settle(&mut self, connection: &mut Connection, bell: &Local, now: Time) {
        if let Some(word) = connection.wire().acknowledgement(now) {
            self.ours().acknowledge(word);
            self.written = true;
            kill_point("acknowledged, nobody woken");
        }
        if std::mem::take(&mut self.written) && self.theirs().must_ring() {
            kill_point("about to wake");
            bell.ring();
        }
    }
}

fn push(into: &mut [u8], used: &mut usize, bytes: &[u8]) {
    if let Some(room) = into.get_mut(*used..*used + bytes.len()) {
        room.copy_from_slice(bytes);
        *used += bytes.len();
    }
}

fn inline(payload: &[u8]) -> [u64; INLINE / 8] {
    let mut bytes = [0; INLINE];
    if let Some(room) = bytes.get_mut(..payload.len()) {
        room.copy_from_slice(payload);
    }
    record::to_words(&bytes).unwrap_or_default()
}

impl Link {
    /// Take records until there are none, the quota is used up or a control call waits. `false`: there
    /// was nothing.
    pub(super) fn receive_records(
        &self,
        state: &mut State,
        cx: &mut Cx<'_>,
        staging: &mut Vec<u8>,
        asks: bool,
    ) -> bool {
        fit(staging);
        let mut any = false;
        if let (Some(rings), Some(bell)) = (&mut state.rings, self.bell.get())
            && asks
        {
            rings.ask(bell, cx.now);
        }
        if state.paused && state.connection.wants_read() {
            any = true;
            self.chew_partial(state, cx);
        }
        let (mut taken, mut unsettled) = (0, 0);
        loop {
            state.paused = !state.connection.wants_read();
            if state.paused || taken >= QUOTA || self.latch.is_wanted() && any {
                break;
            }
            let Some(rings) = &mut state.rings else { break };
            let used = match rings.next() {
                Some(Ok(Record { header, body })) => {
                    any = true;
                    taken += HEADER + header.payload();
                    let small = match body {
                        Found::Inline(words) => {
                            let (header, payload) = (header.words(), record::to_bytes(words));
                            let header = record::to_bytes(header);
                            state.connection.receive_small(cx, &header, &payload)
                        }
                        // Its place is wanted back soon.
                        Found::At(_) => {
                            unsettled = SOME;
                            false
                        }
                    };
                    if small { 0 } else { rings.copy(&header, body, staging) }
                }
                Some(Err(lie)) => {
                    state.connection.broken(cx, lie_told(lie));
                    return true;
                }
                None => match rings.news_beside() {
                    Ok(Some(header)) => {
                        any = true;
                        rings.copy(&header, Found::Inline([0; INLINE / 8]), staging)
                    }
                    Ok(None) if rings.over => {
                        state.connection.link_closed(cx, LinkEnd::Closed);
                        return true;
                    }
                    Ok(None) => break,
                    Err(lie) => {
                        state.connection.broken(cx, lie_told(lie));
                        return true;
                    }
                },
            };
            if used > 0 {
                let bytes = staging.get(..used).unwrap_or_default();
                let consumed = state.connection.receive(cx, bytes).consumed.min(used);
                state.partial.extend_from_slice(bytes.get(consumed..).unwrap_or_default());
            }
            unsettled += 1;
            if unsettled >= SOME {
                unsettled = 0;
                self.settle_up(state, cx.now);
            }
        }
        if any {
            self.settle_up(state, cx.now);
        }
        any
    }

    /// Acknowledge and wake, as far as it is time.
    pub(super) fn settle_up(&self, state: &mut State, now: Time) {
        if let (Some(rings), Some(bell)) = (&mut state.rings, self.bell.get()) {
            rings.settle(&mut state.connection, bell, now);
        }
    }

    /// Have the connection say what it has to say, and write it.
    pub(super) fn send_records(&self, state: &mut State, cx: &mut Cx<'_>) {
        let mut sent = 0;
        loop {
            let State { connection, out, written, rings, .. } = state;
            let Some(rings) = rings else { return };
            let flowing = rings.write(&mut out.bytes, written);
            let before = sent;
            let stop = sent >= QUOTA || self.latch.is_wanted() && sent > 0;
            let waiting = out.bytes.len();
            let mut outlet = Records { rings, out: &mut out.bytes, written, sent, stop, flowing };
            connection.transmit(cx, &mut outlet);
            sent = outlet.sent + out.bytes.len().saturating_sub(waiting);
            let flowing = rings.write(&mut out.bytes, written);
            state.more = !flowing;
            if !flowing || sent == before || !state.connection.wants_write() {
                break;
            }
            // Let the other side begin while we go on.
            self.settle_up(state, cx.now);
            if sent >= QUOTA || self.latch.is_wanted() {
                state.more = state.connection.wants_write();
                break;
            }
        }
        self.settle_up(state, cx.now);
        self.mind_silence(state, cx);
    }

    /// A side that reads nothing for too long, while we have more for it than fits, is given up, as TCP
    /// does it (TCP_USER_TIMEOUT). A connection that has nothing to write waits as long as it takes.
    fn mind_silence(&self, state: &mut State, cx: &mut Cx<'_>) {
        let waiting = !state.out.bytes.is_empty() || state.connection.wants_write();
        let Some(rings) = &mut state.rings else { return };
        let Some(since) = rings.stuck_since(waiting, cx.now) else { return };
        let end = since.after(self.shared.options.silence);
        if cx.now < end {
            return self.note(end);
        }
        if cx.now > end.after(STOOD_STILL) {
            rings.stuck = None; // it was us who stood still, and maybe both
            return self.note(cx.now.after(STOOD_STILL));
        }
        state.connection.link_closed(cx, LinkEnd::TimedOut);
    }

    /// The end of a pass behind which a thread sleeps: say so, unless there is more to do. `work`
    /// makes another pass.
    pub(super) fn before_sleep(&self, state: &mut State, mut work: impl FnMut(&mut State)) {
        for _ in 0..AGAIN {
            let Some(rings) = &mut state.rings else { return };
            if rings.fall_asleep() || !state.connection.wants_read() {
                return self.set_unread(false);
            }
            rings.wake_up();
            work(state);
        }
        self.set_unread(state.rings.is_some());
    }
}

fn lie_told(lie: Lie) -> &'static str {
    match lie {
        Lie::Acknowledged => "the peer has acknowledged records that were never written",
        Lie::Record => "a slot of the peer's ring holds no record that belongs into one",
    }
}

/// A ring's writing end for one call of [`Connection::transmit`](crate::Connection::transmit).
struct Records<'a> {
    rings: &'a mut Rings,
    out: &'a mut Vec<u8>,
    written: &'a mut usize,
    sent: usize,
    stop: bool,
    flowing: bool,
}

impl Output for Records<'_> {
    fn room(&self) -> usize {
        // Slots for what waits in the buffer are taken too; headers alone are the most of them.
        let waiting = self.out.len().saturating_sub(*self.written).div_ceil(HEADER);
        let free = self.rings.producer.free_slots() > waiting;
        let fits = self.rings.producer.has_room(record::LARGEST_PAYLOAD);
        if self.stop || !self.flowing || self.sent >= QUOTA || !free || !fits {
            0
        } else {
            QUOTA - self.sent
        }
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }

    fn wants_direct(&self, _length: usize) -> bool {
        true
    }

    fn small_room(&self) -> usize {
        let free = !self.stop && self.flowing && self.sent < QUOTA;
        // What waits in the buffer goes first.
        if free && self.out.is_empty() && self.rings.producer.has_room(0) { INLINE } else { 0 }
    }

    fn small(&mut self, header: &[u8; SMALL_HEADER], payload: &[u8]) {
        if let Some(words) = record::to_words(header) {
            self.rings.publish(words, Body::Inline(inline(payload)));
            kill_point("a record written, nobody woken");
            self.sent += HEADER + payload.len();
        }
    }

    fn direct(&mut self, header: &[u8], payload: &[Segment], _trailer: &[u8]) -> Direct {
        // What came before goes first.
        if !self.rings.write(self.out, self.written) {
            self.flowing = false;
            return Direct::Copy;
        }
        let done = self.rings.write_direct(header, payload);
        if done == Direct::Taken {
            self.sent += HEADER + payload.iter().map(|s| s.length as usize).sum::<usize>();
        }
        done
    }
}
