//! The other process writes what it likes into the shared memory, while a victim reads it as the
//! engine does: it ends in a refusal or an ended connection, never outside of the data area. What may
//! not come by the rules of the records is never delivered, and nothing else is refused.
//!
//! Input: one byte of options, then steps: what to do, and its bytes.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use transom_process::duplex::Next;
use transom_process::lending::Lent;
use transom_process::record::{self, HEADER, Header, RecordKind};
use transom_process::ring::{
    Body, Consumer, DATA, Found, INLINE, Producer, RingViolation, SLOTS, SMALL, Shared, Side, Slot,
};
use transom_process::{Area, Channel, Duplex, NoRegions, RingCarrier};
use transom_wire::{
    Around, Carrier, Config, Frame, ReadLimits, Receiving, Role, Sending, StartUp, Time,
};

use crate::Input;
use crate::records::Model;
use crate::stream::{ACTIVE, Engine, REFUSE, Rules};

/// The promises of the wire of records: the rest is its engine's.
pub(crate) const RECORDS: Rules = Rules {
    padded: false,
    last_words: |frame: &Frame| {
        // Some frames begin with a header; others go on with text.
        let header = record::to_words(frame.header()).and_then(Header::from_words);
        header.is_some_and(|header| header.kind == RecordKind::Refuse)
    },
};

/// The shared memory, without data areas: an access outside of one is found.
struct Memory(Rc<Shared>);

impl Area for Memory {
    fn shared(&self) -> &Shared {
        &self.0
    }

    fn address(&self, side: usize, offset: usize) -> u64 {
        assert!(side < 2 && offset < DATA, "an address at {offset}");
        offset as u64
    }

    fn fill_bytes(&self, side: usize, offset: usize, bytes: &[u8]) {
        assert!(side < 2 && offset + bytes.len() <= DATA, "{} bytes at {offset}", bytes.len());
    }

    fn read_bytes(&self, side: usize, offset: usize, into: &mut [u8]) {
        assert!(side < 2 && offset + into.len() <= DATA, "{} bytes at {offset}", into.len());
        into.fill(0x41);
    }

    /// The peer has lent one region, which lies where a data area could.
    fn lent(&self, lent: Lent, length: usize) -> Result<Option<u64>, RingViolation> {
        let end = lent.offset.checked_add(length as u64);
        let inside = end.is_some_and(|end| end <= DATA as u64);
        if lent.number == REGION && inside {
            Ok(Some(lent.offset))
        } else {
            Err(RingViolation::Region)
        }
    }
}

/// The number of the region that the peer has lent.
const REGION: u32 = 1;

struct Victim {
    engine: Engine<Channel>,
    model: Model,
    shared: Rc<Shared>,
    duplex: Duplex<Memory>,
    /// Takes the same records on the long way.
    shadow: Consumer,
    /// Bytes of the engine for which the ring has no room, and how many were written.
    waiting: Vec<u8>,
    written: usize,
    /// Room for a record.
    staging: Vec<u8>,
    /// Records read.
    taken: u32,
    over: bool,
}

/// The words of a slot: the other process does not ask the types of this one.
#[allow(unsafe_code)]
fn words(slot: &Slot) -> &[AtomicU64; 8] {
    const { assert!(size_of::<Slot>() == 64) };
    // SAFETY: a `Slot` is `repr(C)` and nothing but eight such words.
    unsafe { &*std::ptr::from_ref(slot).cast::<[AtomicU64; 8]>() }
}

/// As the kernel hands out fresh memory.
#[allow(unsafe_code)]
fn fresh() -> Rc<Shared> {
    // SAFETY: `Shared` is atomic integers; zeros are the value of each.
    unsafe { Rc::new(std::mem::MaybeUninit::<Shared>::zeroed().assume_init()) }
}

/// Plays one input.
pub fn rings(input: &[u8]) {
    let mut input = Input(input);
    let Some(options) = input.byte() else { return };
    let role = if options & ACTIVE != 0 { Role::Active } else { Role::Passive };
    let shared = fresh();
    let mut victim = Victim {
        engine: Engine::new(Channel::new(Config::new(role), Time(0)), RECORDS, options),
        model: Model::default(),
        duplex: Duplex::new(Memory(shared.clone()), usize::from(role == Role::Passive)),
        shadow: Consumer::new(SLOTS, DATA),
        shared,
        waiting: Vec::new(),
        written: 0,
        staging: vec![0; HEADER + record::LARGEST_PAYLOAD],
        taken: 0,
        over: false,
    };
    if role == Role::Active {
        let limits = ReadLimits { inbound: 4, outbound: 4 };
        victim.engine.wire.connect(Time(0), limits, b"").unwrap();
    }
    victim.engine.wire.receives_posted(Time(0), 8, options & REFUSE != 0);
    victim.speak();
    // The attacker's honest half: it knows where the next record goes.
    let mut liar = Producer::new(SLOTS, DATA);
    while let Some(step) = input.byte() {
        match step % 8 {
            // A record in its place; its words are the input's.
            0..=3 => {
                let (flags, detail) = (input.byte().unwrap_or(0), input.byte().unwrap_or(0));
                let kind = RecordKind::from_number(step % 16).unwrap_or(RecordKind::Send);
                let header = Header {
                    flags,
                    // Small Writes have none.
                    detail: match kind {
                        RecordKind::Atomic => (detail % 4).into(),
                        _ if detail & 4 == 0 => 0,
                        _ => detail.into(),
                    },
                    ack: u64::from(input.byte().unwrap_or(0)) | 8 << 32,
                    address: input.byte().unwrap_or(0).into(),
                    token: input.byte().unwrap_or(0).into(),
                    length: u32::from(input.byte().unwrap_or(0)) << (step >> 4),
                    ..Header::new(kind)
                };
                let length = header.payload().min(record::LARGEST_PAYLOAD);
                let word = if detail & 8 == 0 { 7 } else { 7 << 32 };
                let body = if header.front() + length > SMALL {
                    Body::Placed(length, word)
                } else {
                    Body::Inline([word, 7, 7, 7])
                };
                liar.publish(victim.theirs().slots(), header.words(), body);
                let _ = liar.consumed(victim.taken);
            }
            // Raw words in its place.
            4 => {
                let noise = [(); 4].map(|()| input.word());
                liar.publish(victim.theirs().slots(), noise, Body::Inline(noise));
            }
            // Any word of any slot, the victim's own included.
            5 => {
                let (at, which) = (input.byte().unwrap_or(0), input.byte().unwrap_or(0));
                let side = if which & 8 != 0 { victim.ours() } else { victim.theirs() };
                words(&side.slots()[usize::from(at)])[usize::from(which % 8)]
                    .store(input.word(), Ordering::Relaxed);
            }
            // The word beside the records; perhaps there will be a record, too, when the victim looks.
            6 => {
                let word = input.word() & if step & 16 != 0 { u64::MAX } else { 0xFF_0000_00FF };
                victim.theirs().acknowledge(word);
                if step & 32 != 0 {
                    continue;
                }
            }
            _ if step & 128 != 0 => victim.write_directly(step >> 3),
            _ => victim.sleep(),
        }
        victim.look();
        victim.speak();
    }
    victim.engine.end();
}

impl Victim {
    fn ours(&self) -> &Side {
        &self.shared.sides[self.duplex.mine()]
    }

    fn theirs(&self) -> &Side {
        &self.shared.sides[1 - self.duplex.mine()]
    }

    /// Nothing to do: this side sets the mark of a sleeper, and is woken, or looks by itself.
    fn sleep(&mut self) {
        self.engine.pass(Duration::from_micros(10));
        if !self.duplex.fall_asleep() || !self.ours().must_ring() {
            self.duplex.wake_up();
        }
        assert!(!self.ours().must_ring());
    }

    /// As a connection writes a message of one record, if nothing waits in the buffer: a few bytes, or more,
    /// or some that are gone.
    fn write_directly(&mut self, what: u8) {
        let length = [0, 8, INLINE, 100, record::LARGEST_PAYLOAD][usize::from(what % 5)];
        let header = Header { length: length as u32, ..Header::new(RecordKind::Write) };
        if self.over || !self.duplex.has_room(&self.waiting) || !self.waiting.is_empty() {
            return;
        }
        let (free, placed) = (self.duplex.producer().free_slots(), self.duplex.producer().placed());
        let gone = what & 8 != 0;
        let mut written = 0;
        let buffer = (&mut self.waiting, &mut written);
        let mut out = RingCarrier::new(&mut self.duplex, NoRegions, buffer, usize::MAX);
        assert!(out.takes(length));
        let around = Around { front: record::HEADER, back: 0 };
        let _ = out.reserve(around, length);
        out.put(&[0x5A; record::LARGEST_PAYLOAD][..length]);
        if gone {
            out.release();
        } else {
            let bytes = record::to_bytes(header.words());
            out.frame()[..record::HEADER].copy_from_slice(&bytes);
            out.commit();
        }
        let producer = self.duplex.producer();
        assert_eq!(
            producer.free_slots(),
            free - usize::from(!gone),
            "of what failed nothing is told"
        );
        assert!(producer.placed() >= placed && producer.slots() == SLOTS);
        assert!(self.waiting.is_empty());
    }

    /// As the engine takes records out of its ring.
    fn look(&mut self) {
        let mut staging = std::mem::take(&mut self.staging);
        while !self.over {
            match self.take(&mut staging) {
                Ok(0) => break,
                Ok(used) => self.hear(&staging[..used]),
                Err(violation) => {
                    assert!(!violation.text().is_empty());
                    self.over = true; // the engine ends the connection
                    self.engine.dead = true;
                }
            }
        }
        self.staging = staging;
    }

    /// As the engine gives a record to its wire. What the model says must not come is not delivered.
    fn hear(&mut self, bytes: &[u8]) {
        let header = record::to_words(bytes).and_then(Header::from_words).unwrap();
        let judged = self.engine.open && !self.engine.dead && header.kind != RecordKind::Ack;
        let reads = self.engine.wire.facts().map_or(0, |facts| facts.limits.inbound);
        let delivered = self.engine.delivered;
        assert!(self.engine.hear(bytes) == bytes.len(), "a record is whole");
        let violation = &self.engine.violation;
        assert!(
            !judged || violation.is_none() || self.engine.delivered == delivered,
            "{violation:?}"
        );
        if judged && violation.as_ref().is_none_or(|v| v.rule != "acknowledgements") {
            let word = bytes.get(HEADER..).and_then(<[u8]>::first_chunk);
            let word = word.map_or(0, |word| u64::from_ne_bytes(*word));
            let allowed = self.model.allows(&header, word, reads);
            assert_eq!(allowed, violation.is_none(), "{header:?} {violation:?} {:?}", self.model);
        }
    }

    fn take(&mut self, into: &mut [u8]) -> Result<usize, RingViolation> {
        let mut small = [0; SMALL];
        let shared = self.shared.clone();
        let slots = shared.sides[1 - self.duplex.mine()].slots();
        if self.shadow.has_next(slots) {
            assert_eq!(self.duplex.news_beside(), Ok(None), "a word has overtaken a record");
        }
        let same = self.shadow.take(slots);
        let mut elsewhere = 0;
        let whole = self.duplex.read_small(&mut small, &mut elsewhere)? == Next::Record;
        let next = if whole { same } else { self.duplex.read() };
        if let Some(record) = next {
            let record = record?;
            assert_eq!(same, Some(Ok(record)), "on either way");
            self.taken += 1;
            let length = record.header.payload();
            assert!(record.header.kind != RecordKind::Ack);
            assert!(length <= record.header.kind.largest_payload());
            let used = self.duplex.copy(&record.header, record.body, into);
            if whole {
                assert_eq!(elsewhere, if record.header.fits_slot() { 0 } else { length });
                // The lap stands in front.
                assert_eq!(small[4..used], into[4..used], "on either way");
            }
            let there = match record.body {
                Found::At(..) => record.header.kind.carries_data(),
                Found::Lent(Lent { number, offset }) => {
                    assert!(number == REGION && offset + length as u64 <= DATA as u64);
                    true
                }
                Found::Sink(Lent { number, offset }) => {
                    let length = u64::from(record.header.length);
                    assert!(number == REGION && offset + length <= DATA as u64);
                    false
                }
                Found::Placed => panic!("no sink was lent"),
                Found::Inline(_) => false,
            };
            assert_eq!(used, record.header.front() + if there { size_of::<u64>() } else { length });
            let copied = record::to_words(into).and_then(Header::from_words).unwrap();
            assert_eq!(copied.has(record::ELSEWHERE), there, "who says where the payload lies");
            return Ok(used);
        }
        let header = self.duplex.news_beside()?;
        Ok(header.map_or(0, |h| self.duplex.copy(&h, Found::Inline([0; INLINE / 8]), into)))
    }

    /// As the engine writes records into its ring.
    fn speak(&mut self) {
        let word = self.engine.wire.acknowledgement(self.engine.now);
        let _ = self.duplex.acknowledge(word);
        if let Some(word) = word {
            assert!(word as u32 <= self.taken, "what has not come is acknowledged");
            self.model.say(word);
        }
        self.engine.speak();
        for frame in std::mem::take(&mut self.engine.left) {
            let header = record::to_words(&frame).and_then(Header::from_words).unwrap();
            assert!(header.ack as u32 <= self.taken, "what has not come is acknowledged");
            self.model.leave(&header);
        }
        self.waiting.append(&mut self.engine.out);
        if self.duplex.write(&mut self.waiting, &mut self.written) {
            assert!(self.waiting.len() < HEADER, "all of what is whole");
        } else {
            assert!(self.written <= self.waiting.len());
            self.waiting.drain(..std::mem::take(&mut self.written));
        }
        let waiting = !self.waiting.is_empty();
        if self.engine.dead {
            self.duplex.forget_stuck();
        }
        let since = self.duplex.stuck_since(waiting, self.engine.now);
        assert!(since.is_none_or(|since| waiting && since <= self.engine.now));
    }
}
