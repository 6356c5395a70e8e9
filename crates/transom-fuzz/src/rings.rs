//! The other process writes what it likes into the shared memory, while a victim reads it as the
//! engine does: it ends in a refusal or an ended connection, never outside of the data area.
//!
//! Input: one byte of options, then steps: what to do, and its bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use transom_process::record::{self, HEADER, Header, Kind};
use transom_process::ring::{
    Body, Consumer, DATA, Found, INLINE, Lie, Producer, SLOTS, Shared, Side, Slot,
};
use transom_process::{Channel, Config};
use transom_wire::{Frame, ReadLimits, Role, Time, Wire};

use crate::Input;
use crate::stream::{ACTIVE, Engine, REFUSE, Rules};

/// What the wire of records promises: the rest is its engine's.
pub(crate) const RECORDS: Rules = Rules {
    ranges: false,
    padded: false,
    last_words: |frame: &Frame| {
        // What begins with a header; other frames go on with text.
        let header = record::to_words(frame.header()).and_then(Header::from_words);
        header.is_some_and(|header| header.kind == Kind::Refuse)
    },
};

struct Victim {
    engine: Engine<Channel>,
    shared: Box<Shared>,
    producer: Producer,
    consumer: Consumer,
    /// What the engine has to say and the ring has no room for.
    waiting: Vec<u8>,
    seen: u64,
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
fn fresh() -> Box<Shared> {
    // SAFETY: `Shared` is atomic integers; zeros are the value of each.
    unsafe { Box::new(std::mem::MaybeUninit::<Shared>::zeroed().assume_init()) }
}

/// Plays one input.
pub fn rings(input: &[u8]) {
    let mut input = Input(input);
    let Some(options) = input.byte() else { return };
    let role = if options & ACTIVE != 0 { Role::Active } else { Role::Passive };
    let config = Config { beside: options & 2 != 0, ..Config::new(role) };
    let mut victim = Victim {
        engine: Engine::new(Channel::new(config, Time(0)), RECORDS, options),
        shared: fresh(),
        producer: Producer::new(SLOTS, DATA),
        consumer: Consumer::new(SLOTS, DATA),
        waiting: Vec::new(),
        seen: 0,
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
                let header = Header {
                    flags: input.byte().unwrap_or(0),
                    detail: input.byte().unwrap_or(0).into(),
                    ack: u64::from(input.byte().unwrap_or(0)) | 8 << 32,
                    address: input.byte().unwrap_or(0).into(),
                    token: input.byte().unwrap_or(0).into(),
                    length: u32::from(input.byte().unwrap_or(0)) << (step >> 4),
                    ..Header::new(Kind::from_number(step % 13).unwrap_or(Kind::Send))
                };
                let length = header.payload().min(record::LARGEST_PAYLOAD);
                let body =
                    if length > INLINE { Body::Placed(length) } else { Body::Inline([7; 4]) };
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
            // The word beside the records.
            6 => victim
                .theirs()
                .acknowledge(input.word() & if step & 16 != 0 { u64::MAX } else { 0xFF_0000_00FF }),
            _ => victim.sleep(),
        }
        victim.look();
        victim.speak();
    }
    victim.engine.end();
}

/// Sides of the shared memory.
const OURS: usize = 0;
const THEIRS: usize = 1;

impl Victim {
    fn ours(&self) -> &Side {
        &self.shared.sides[OURS]
    }

    fn theirs(&self) -> &Side {
        &self.shared.sides[THEIRS]
    }

    /// Nothing to do: it says so, and somebody wakes it, or it looks by itself.
    fn sleep(&mut self) {
        self.engine.pass(Duration::from_micros(10));
        self.ours().fall_asleep();
        if self.consumer.has_next(self.theirs().slots()) || !self.ours().must_ring() {
            self.ours().wake_up();
        }
        assert!(!self.ours().is_asleep());
    }

    /// As the engine takes records out of its ring.
    fn look(&mut self) {
        let mut staging = Vec::new();
        while !self.over {
            staging.clear();
            match self.take(&mut staging) {
                Ok(0) => return,
                Ok(_) => {
                    let used = self.engine.hear(&staging);
                    assert!(used == staging.len(), "a record is whole");
                }
                Err(_) => {
                    self.over = true; // the engine ends the connection
                    self.engine.dead = true;
                }
            }
        }
    }

    fn take(&mut self, into: &mut Vec<u8>) -> Result<usize, Lie> {
        while let Some(record) = self.consumer.take(self.shared.sides[THEIRS].slots()) {
            let record = record?;
            self.taken += 1;
            self.producer.consumed((record.header.ack & 0xFFFF_FFFF) as u32)?;
            let (mut header, length) = (record.header, record.header.payload());
            assert!(header.kind != Kind::Ack && length <= header.kind.largest_payload());
            header.flags &= !record::ELSEWHERE;
            match record.body {
                Found::Inline(words) => {
                    into.extend_from_slice(&record::to_bytes(header.words()));
                    into.extend_from_slice(&record::to_bytes(words)[..length]);
                }
                Found::At(offset) => {
                    assert!(offset + length <= DATA, "{length} bytes at {offset}");
                    if header.kind.carries_data() {
                        header.flags |= record::ELSEWHERE;
                        into.extend_from_slice(&record::to_bytes(header.words()));
                        into.extend_from_slice(&(offset as u64).to_ne_bytes());
                    } else {
                        into.extend_from_slice(&record::to_bytes(header.words()));
                        into.resize(into.len() + length, 0x41);
                    }
                }
            }
        }
        let word = self.theirs().acknowledged();
        if into.is_empty() && word != self.seen {
            self.seen = word;
            self.producer.consumed((word & 0xFFFF_FFFF) as u32)?;
            let header = Header { ack: word, ..Header::new(Kind::Ack) };
            into.extend_from_slice(&record::to_bytes(header.words()));
        }
        Ok(into.len())
    }

    /// As the engine writes records into its ring.
    fn speak(&mut self) {
        if let Some(word) = self.engine.wire.acknowledgement(self.engine.now) {
            self.ours().acknowledge(word);
        }
        self.engine.speak();
        self.waiting.append(&mut self.engine.out);
        let mut used = 0;
        while let Some(words) = record::to_words(&self.waiting[used..]) {
            let length = Header::from_words(words).unwrap().payload();
            if !self.producer.has_room(length) {
                break;
            }
            let body = if length > INLINE {
                let place = self.producer.place(length).unwrap();
                assert!(place + length <= DATA, "{length} bytes at {place}");
                Body::Placed(length)
            } else {
                Body::Inline([0; 4])
            };
            assert!(self.producer.publish(self.shared.sides[OURS].slots(), words, body));
            used += HEADER + length;
        }
        self.waiting.drain(..used);
    }
}
