//! The two rings of a link as one of its sides uses them: records out of a buffer into slots and back,
//! acknowledgements beside them, sleep, and who is to be woken. Where the memory comes from, and how
//! the other side is woken, is the link's business ([`Area`]).

use transom_wire::Time;

use crate::lending::{Lent, Reads};
use crate::record::{self, HEADER, Header, RecordKind, Words};
use crate::ring::{
    Body, Consumer, DATA, Found, INLINE, Producer, Record, RingViolation, SLOTS, SMALL, Shared,
    Side, Taken, Traffic,
};

/// The memory that two sides share, as one of them sees it. The other one may change any of it at any
/// time. Sides are numbered: 0 is the active one.
pub trait Area {
    /// Slots and words.
    fn shared(&self) -> &Shared;

    /// The address of a place in a side's data area: what
    /// [`Bytes::Shared`](transom_wire::Bytes::Shared) says.
    fn address(&self, side: usize, offset: usize) -> u64;

    /// Copy bytes of ours into a side's data area.
    fn fill_bytes(&self, side: usize, offset: usize, bytes: &[u8]);

    /// Copy bytes out of a side's data area.
    fn read_bytes(&self, side: usize, offset: usize, into: &mut [u8]);

    /// The address of so many bytes of a region that the other side has lent. `None`: the region was
    /// dropped, and is no longer mapped.
    ///
    /// # Errors
    /// [`RingViolation::Region`]: the other side has lent no such region, or they lie outside of it.
    fn lent(&self, lent: Lent, length: usize) -> Result<Option<u64>, RingViolation> {
        let _ = (lent, length);
        Err(RingViolation::Region)
    }

    /// Have the processor fetch a line of the shared memory that is going to be written, if it can: a
    /// hint.
    #[inline]
    fn fetch_to_write(&self, line: usize) {
        let _ = line;
    }

    /// A place where a test lets this side end.
    #[inline]
    fn point(&self, name: &'static str) {
        let _ = name;
    }
}

/// The next record of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There is none.
    None,
    /// A record that was read.
    Record,
    /// A record that is left for [`Duplex::read`].
    Left,
}

/// A side's ends of both rings.
#[derive(Debug)]
pub struct Duplex<A> {
    area: A,
    /// Our side's index; the other's is `1 - mine`.
    mine: usize,
    producer: Producer,
    consumer: Consumer,
    /// The other side's word beside its records, as far as the wire knows it.
    seen: u64,
    /// Something was written that the other side may sleep through.
    written: bool,
    reads: Reads,
    /// There was no room: how much the other side had read then, and when that was.
    stuck: Option<(u64, Time)>,
}

impl<A: Area> Duplex<A> {
    /// Fresh ones. `mine`: 0 for the active side, 1 for the passive one.
    #[must_use]
    pub fn new(area: A, mine: usize) -> Duplex<A> {
        Duplex::sized(area, mine, SLOTS, DATA)
    }

    /// As [`Duplex::new`], of so many slots (a power of two) and bytes of data area (twice the largest payload
    /// at least), as both sides know: no more than there are.
    #[must_use]
    pub fn sized(area: A, mine: usize, slots: usize, data: usize) -> Duplex<A> {
        let (slots, data) = (slots.min(SLOTS), data.min(DATA));
        Duplex {
            area,
            mine: mine.min(1),
            producer: Producer::new(slots, data),
            consumer: Consumer::new(slots, data),
            seen: 0,
            written: false,
            reads: Reads::default(),
            stuck: None,
        }
    }

    /// The memory.
    #[must_use]
    pub fn area(&self) -> &A {
        &self.area
    }

    /// The memory, to change what else belongs to it.
    pub fn area_mut(&mut self) -> &mut A {
        &mut self.area
    }

    /// Our side's index.
    #[must_use]
    pub fn mine(&self) -> usize {
        self.mine
    }

    /// The end that writes.
    #[must_use]
    pub fn producer(&self) -> &Producer {
        &self.producer
    }

    #[inline]
    fn side(&self, index: usize) -> &Side {
        let [active, passive] = &self.area.shared().sides;
        if index == 0 { active } else { passive }
    }

    #[inline]
    fn ours(&self) -> &Side {
        self.side(self.mine)
    }

    #[inline]
    fn theirs(&self) -> &Side {
        self.side(1 - self.mine)
    }

    /// How much was written, and how much was read.
    #[must_use]
    pub fn traffic(&self) -> [Traffic; 2] {
        [self.producer.traffic(), self.consumer.traffic()]
    }

    // ---- reading --------------------------------------------------------------------------------

    /// Whether there is something to read.
    #[must_use]
    #[inline]
    pub fn has_news(&self) -> bool {
        let theirs = self.theirs();
        self.consumer.has_next(theirs.slots()) || theirs.acknowledged() != self.seen
    }

    /// The next record, if there is one. It acknowledges ours, as far as their places are concerned.
    /// After a violation the rings are of no further use.
    #[inline]
    pub fn read(&mut self) -> Option<Result<Record, RingViolation>> {
        // Not `self.theirs()`: the consumer is another part of `self`.
        let side = self.area.shared().sides.get(1 - self.mine)?;
        let record = match self.consumer.take(side.slots())? {
            Ok(record) => record,
            Err(violation) => return Some(Err(violation)),
        };
        self.area.point("a record was read");
        if !self.names_what_was_lent(&record) {
            return Some(Err(RingViolation::Region));
        }
        Some(self.acknowledged(record.header.ack).map(|()| record))
    }

    /// Whether a record is right about regions; and keep in mind what it says of Reads.
    #[inline]
    fn names_what_was_lent(&mut self, record: &Record) -> bool {
        if matches!(record.body, Found::Lent(_) | Found::Placed) {
            self.consumer.count_elsewhere(record.header.payload());
        }
        let Record { header, body } = *record;
        let is_lent = |lent, length| self.area.lent(lent, length).is_ok();
        match (header.kind, body) {
            (_, Found::Lent(lent)) => is_lent(lent, header.payload()),
            (RecordKind::Read, Found::Sink(lent)) => {
                let fits = is_lent(lent, header.length as usize);
                self.reads.on_read(Some(lent));
                fits
            }
            (RecordKind::Read, _) => {
                self.reads.on_read(None);
                true
            }
            (RecordKind::Answer, _) => {
                self.reads.on_answer(body == Found::Placed, header.has(record::LAST))
            }
            _ => true,
        }
    }

    /// The next record, if its header says enough about it: where the caller wants it, and as the wire does
    /// ([`Duplex::copy`]). `elsewhere` grows by the bytes of its payload that are not in the record.
    ///
    /// # Errors
    /// The other side has broken a rule of the ring: [`RingViolation`].
    #[inline(always)]
    pub fn read_small(
        &mut self,
        record: &mut [u8; SMALL],
        elsewhere: &mut usize,
    ) -> Result<Next, RingViolation> {
        let Some(side) = self.area.shared().sides.get(1 - self.mine) else { return Ok(Next::None) };
        match self.consumer.take_small(side.slots(), record) {
            Taken::Nothing => return Ok(Next::None),
            Taken::Left => return Ok(Next::Left),
            Taken::Inline => {}
            Taken::At(offset, length) => {
                record::set_elsewhere(record, self.area.address(1 - self.mine, offset));
                *elsewhere += length;
            }
        }
        self.area.point("a record was read");
        let Some(words) = record::to_words(record) else { return Ok(Next::None) };
        if record::is_of_reads(words[0])
            && let Some(header) = Header::from_words(words)
            && !self.names_what_was_lent(&Record { header, body: Found::Inline([0; INLINE / 8]) })
        {
            return Err(RingViolation::Region);
        }
        self.acknowledged(words[1]).map(|()| Next::Record)
    }

    /// The acknowledgement that stands beside the other side's records, as a header for the wire.
    ///
    /// # Errors
    /// The other side has acknowledged records that were not written.
    #[inline]
    pub fn news_beside(&mut self) -> Result<Option<Header>, RingViolation> {
        let word = self.theirs().acknowledged();
        // A record that was written before the word comes before it.
        if word == self.seen || self.consumer.has_next(self.theirs().slots()) {
            return Ok(None);
        }
        self.seen = word;
        self.acknowledged(word)?;
        Ok(Some(Header { ack: word, ..Header::new(RecordKind::Ack) }))
    }

    #[inline]
    fn acknowledged(&mut self, word: u64) -> Result<(), RingViolation> {
        let read = (word & 0xFFFF_FFFF) as u32;
        self.producer.consumed(read).map(|_| ())
    }

    /// A record as the wire wants it, in memory of our own: payload behind the header, or where it
    /// lies. How many bytes.
    #[inline]
    pub fn copy(&self, header: &Header, body: Found, into: &mut [u8]) -> usize {
        let length = header.payload();
        let mut header = *header;
        header.flags &= !(record::ELSEWHERE | record::LENT);
        let (mut used, mut word) = (0, 0);
        let theirs = 1 - self.mine;
        let (address, offset) = match body {
            Found::Inline(words) => {
                let behind = header.front() - HEADER + length;
                push(into, &mut used, &record::to_bytes(header.words()));
                push(into, &mut used, record::to_bytes(words).get(..behind).unwrap_or_default());
                return used;
            }
            Found::At(offset, own) => {
                word = own;
                (self.area.address(theirs, offset), offset)
            }
            Found::Sink(_) | Found::Placed => {
                let placed = body == Found::Placed;
                header.flags |= if placed { record::LENT } else { 0 };
                push(into, &mut used, &record::to_bytes(header.words()));
                return used;
            }
            // The bytes of a region that is no longer mapped have no address, and are not asked for.
            Found::Lent(lent) => (self.area.lent(lent, length).ok().flatten().unwrap_or(0), 0),
        };
        if header.kind.carries_data() {
            header.flags |= record::ELSEWHERE;
            push(into, &mut used, &record::to_bytes(header.words()));
            push(
                into,
                &mut used,
                word.to_ne_bytes().get(..header.front() - HEADER).unwrap_or_default(),
            );
            push(into, &mut used, &address.to_ne_bytes());
            return used;
        }
        push(into, &mut used, &record::to_bytes(header.words()));
        if let Some(room) = into.get_mut(used..used + length) {
            self.area.read_bytes(theirs, offset, room);
            used += length;
        }
        used
    }

    // ---- writing --------------------------------------------------------------------------------

    #[inline(always)]
    fn publish(&mut self, words: Words, body: Body) -> bool {
        let Some(side) = self.area.shared().sides.get(self.mine) else { return false };
        let done = self.producer.publish(side.slots(), words, body);
        self.written |= done;
        self.area.point("a record written, nobody woken");
        done
    }

    /// Publish a record of any kind.
    fn publish_any(&mut self, words: Words, body: Body) -> bool {
        let done = self.publish(words, body);
        if let Some(header) = Header::from_words(words).filter(|_| done) {
            if header.has(record::LENT) {
                self.producer.count_elsewhere(header.payload()); // none, of a Read
            }
            match header.kind {
                RecordKind::Read => self.reads.asked(header.has(record::LENT)),
                RecordKind::Answer => {
                    self.reads.answered(u64::from(header.length), header.has(record::LAST));
                }
                _ => {}
            }
        }
        done
    }

    /// Move frames out of the buffer into slots. `false`: there is no room for all of them. What is left
    /// otherwise is the beginning of a frame, of which the rest is still to come.
    #[inline]
    pub fn write(&mut self, out: &mut Vec<u8>, written: &mut usize) -> bool {
        while let Some(rest) = out.get(*written..).filter(|rest| !rest.is_empty()) {
            let Some((words, front, length)) = first(rest) else { return true };
            let end = front + length;
            let (Some(behind), Some(payload)) = (rest.get(HEADER..end), rest.get(front..end))
            else {
                return true;
            };
            let body = if end <= SMALL {
                Body::Inline(inline(behind))
            } else if self.producer.has_room(length)
                && let Some(offset) = self.producer.place(length)
            {
                self.area.fill_bytes(self.mine, offset, payload);
                self.area.point("payload written, its record not");
                Body::Placed(length, word_behind(behind))
            } else {
                return false;
            };
            if !self.publish_any(words, body) {
                return false;
            }
            *written += end;
        }
        out.clear();
        *written = 0;
        true
    }

    /// The place of a payload of `length` bytes that does not fit a slot: its offset in our data area, if a
    /// record with it can be written.
    #[must_use]
    #[inline]
    pub fn place(&self, length: usize) -> Option<usize> {
        if self.producer.free_slots() == 0 { None } else { self.producer.place(length) }
    }

    /// The address of an offset in our data area.
    #[must_use]
    #[inline]
    pub fn address(&self, offset: usize) -> u64 {
        self.area.address(self.mine, offset)
    }

    /// Copy bytes of ours to an offset in our data area.
    pub fn fill(&self, offset: usize, bytes: &[u8]) {
        self.area.fill_bytes(self.mine, offset, bytes);
    }

    /// Write a record: a header and the payload that lies in its slot; or a header alone, whose payload of
    /// `placed` bytes is [in its place](Duplex::place). `false`: there is no room, and nothing was written.
    #[inline(always)]
    pub fn write_record(&mut self, record: &[u8; SMALL], placed: usize) -> bool {
        let Some((header, payload)) = record.split_first_chunk() else { return false };
        let words = record::words_of(header);
        if record::is_of_reads(words[0]) || placed > 0 {
            return self.write_other(words, payload, placed);
        }
        self.publish(words, Body::Inline(record::to_words(payload).unwrap_or_default()))
    }

    #[inline(never)]
    fn write_other(&mut self, words: Words, payload: &[u8], placed: usize) -> bool {
        let body = if placed > 0 {
            self.area.point("payload written, its record not");
            Body::Placed(placed, word_behind(payload))
        } else {
            Body::Inline(record::to_words(payload).unwrap_or_default())
        };
        self.publish_any(words, body)
    }

    /// Whether a frame's payload may stay in a shared region, from which the other side copies it to its target:
    /// that of a Write or a Send.
    #[must_use]
    #[inline]
    pub fn may_lend(header: &[u8]) -> bool {
        lendable(header).is_some()
    }

    /// Write a frame whose payload stays in a region that the other side has mapped. `false`: there is no
    /// room, or the frame is none of those whose target is the other side's to copy to.
    #[inline]
    pub fn write_lent(&mut self, header: &[u8], lent: Lent) -> bool {
        let Some(mut header) = lendable(header) else { return false };
        header.flags |= record::LENT;
        self.publish_any(header.words(), Body::Inline(lent.words()))
    }

    /// Write a Read whose answer the other side may copy to a region that it has mapped. As
    /// [`Duplex::write_lent`].
    #[inline]
    pub fn write_read(&mut self, header: &[u8], sink: Lent) -> bool {
        self.write_naming(header, RecordKind::Read, sink.words())
    }

    /// Whether the answer to the oldest Read of the other side's may be copied to a region that it has lent.
    #[must_use]
    #[inline]
    pub fn has_sink(&self) -> bool {
        self.reads.sink().is_some()
    }

    /// Where the payload of an answer may be copied instead of into the ring.
    #[must_use]
    #[inline]
    pub fn sink(&self, header: &[u8]) -> Option<Lent> {
        let header = record::to_words(header).and_then(Header::from_words);
        header.filter(|header| header.kind == RecordKind::Answer).and_then(|_| self.reads.sink())
    }

    /// Write an answer whose payload was copied to its sink. As [`Duplex::write_lent`].
    #[inline]
    pub fn write_placed(&mut self, header: &[u8]) -> bool {
        self.reads.sink().is_some() && self.write_naming(header, RecordKind::Answer, [0; 4])
    }

    fn write_naming(&mut self, header: &[u8], kind: RecordKind, words: [u64; 4]) -> bool {
        let header = record::to_words(header).and_then(Header::from_words);
        let Some(mut header) = header.filter(|header| header.kind == kind) else { return false };
        header.flags |= record::LENT;
        self.publish_any(header.words(), Body::Inline(words))
    }

    /// Several records are going to be written: have the slot of the one that comes so much later
    /// fetched before it is stored to. The other side, which has taken all before, looks at the next
    /// one only.
    #[inline]
    pub fn fetch_ahead(&self, records: u64) {
        if let Some(slot) = self.producer.slot_ahead(self.ours().slots(), records) {
            self.area.fetch_to_write(std::ptr::from_ref(slot).addr());
        }
    }

    /// Whether there is room for another frame of any size, behind what waits in a buffer. For the rest
    /// of one that has begun there is.
    #[must_use]
    #[inline]
    pub fn has_room(&self, waiting: &[u8]) -> bool {
        // Slots for what waits in the buffer are taken too; headers alone are the most of them.
        self.producer.free_slots() > waiting.len().div_ceil(HEADER)
            && self.producer.has_room(record::LARGEST_PAYLOAD)
            || !waiting.is_empty() && is_cut(waiting)
    }

    /// Whether there is room for a frame with so many bytes of payload: none behind `waiting` bytes of a
    /// buffer, which go first.
    #[must_use]
    #[inline]
    pub fn takes(&self, length: usize, waiting: usize) -> bool {
        waiting == 0 && length <= record::LARGEST_PAYLOAD && self.producer.has_room(length)
    }

    /// As [`Producer::close_area`](crate::ring::Producer::close_area).
    pub fn close_area(&mut self) -> usize {
        self.producer.close_area()
    }

    /// As [`Producer::open_area`](crate::ring::Producer::open_area).
    pub fn open_area(&mut self, size: usize) {
        self.producer.open_area(size);
    }

    /// Since when there is no room for what is to be written, and nothing of what was written is read.
    pub fn stuck_since(&mut self, waiting: bool, now: Time) -> Option<Time> {
        let read = self.producer.all_consumed();
        if !waiting || self.producer.has_room(record::LARGEST_PAYLOAD) {
            self.stuck = None;
        } else if self.stuck.is_none_or(|(then, _)| then != read) {
            self.stuck = Some((read, now));
        }
        self.stuck.map(|(_, since)| since)
    }

    /// The other side gets its whole time again.
    pub fn forget_stuck(&mut self) {
        self.stuck = None;
    }

    // ---- regions --------------------------------------------------------------------------------

    /// Say how many regions of this side's the other one was handed.
    pub fn hand_over(&self, count: u32) {
        self.area.point("a region handed over, not said");
        self.ours().hand_over(count);
    }

    /// How many regions the other side says it has handed over.
    #[must_use]
    #[inline]
    pub fn handed_over(&self) -> u64 {
        self.theirs().handed_over()
    }

    /// Answer for a region of the other side's.
    pub fn judge(&self, verdict: u64) {
        self.area.point("a region mapped, not answered");
        self.ours().judge(verdict);
    }

    /// The other side's last verdict on a region of ours.
    #[must_use]
    pub fn verdict(&self) -> u64 {
        self.theirs().verdict()
    }

    // ---- sleep ----------------------------------------------------------------------------------

    /// Acknowledge beside the records, if there is a word for it. `true`: the other side has slept
    /// through something, and the caller is to wake it.
    #[must_use]
    #[inline]
    pub fn acknowledge(&mut self, word: Option<u64>) -> bool {
        if let Some(word) = word {
            self.ours().acknowledge(word);
            self.written = true;
            self.area.point("acknowledged, nobody woken");
        }
        let ring = std::mem::take(&mut self.written) && self.theirs().must_ring();
        if ring {
            self.area.point("about to wake");
        }
        ring
    }

    /// Say that we look by ourselves.
    pub fn wake_up(&self) {
        self.ours().wake_up();
    }

    /// Say that we sleep. `false`: there is something to do first.
    #[must_use]
    pub fn fall_asleep(&self) -> bool {
        self.ours().fall_asleep();
        self.area.point("asleep, before looking again");
        !self.has_news()
    }
}

impl RingViolation {
    /// The violation of the other side, in words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            RingViolation::Acknowledged => {
                "the peer has acknowledged records that were never written"
            }
            RingViolation::Record => {
                "a slot of the peer's ring holds no record that belongs into one"
            }
            RingViolation::Region => {
                "the peer names bytes of a region that it has not lent, or that lie outside of it"
            }
        }
    }
}

/// The header of a frame whose target is the other side's, and which has no word behind its header.
#[inline]
fn lendable(header: &[u8]) -> Option<Header> {
    let header = record::to_words(header).and_then(Header::from_words);
    let fits = |header: &Header| matches!(header.kind, RecordKind::Write | RecordKind::Send);
    header.filter(|header| fits(header) && header.front() == HEADER)
}

/// The first frame's header, how many bytes are in front of its payload, and how many that has.
#[inline]
fn first(frames: &[u8]) -> Option<(Words, usize, usize)> {
    let words = record::to_words(frames)?;
    let header = Header::from_words(words)?;
    Some((words, header.front(), header.payload()))
}

/// The first word behind a header.
fn word_behind(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
}

/// The first frame is not there as a whole: those that are longer than a header has room for come in
/// pieces.
fn is_cut(frames: &[u8]) -> bool {
    first(frames).is_none_or(|(_, front, length)| frames.len() < front + length)
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
    record::words_of(&bytes)
}
