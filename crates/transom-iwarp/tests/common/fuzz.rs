//! What the fuzz target and the fixed iterations of the ordinary tests do with their input: play a
//! peer to a [`Stream`] under a minimal engine, and hold the stream to its promises.
//!
//! Input: one byte of options, one byte for the size of the pieces, the peer's bytes.
#![allow(dead_code, unreachable_pub)]
#![allow(clippy::unwrap_used)] // as in any test

use std::time::Duration;

use transom_iwarp::{Config, Stream};
use transom_wire::{
    Begin, Event, Message, MessageId, Operation, Payload, ReadLimits, Refusal, RefusalClass, Role,
    Time, Wire,
};

/// We are the active side.
pub const ACTIVE: u8 = 1;
/// Offer or accept the extension.
pub const EXTENSION: u8 = 2;
/// Ask for checksums. Off, mutated input gets further.
pub const CHECKSUM: u8 = 4;
/// Refuse what the peer asks for, sooner or later.
pub const REFUSE: u8 = 8;
/// Ask for a ready-to-receive frame.
pub const PEER_TO_PEER: u8 = 16;
/// Send nothing of our own.
pub const SILENT: u8 = 32;

const LIMITS: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };

struct Engine {
    stream: Stream,
    now: Time,
    options: u8,
    events: u32,
    /// Reads of the peer that wait for an answer.
    asked: i64,
    out: Vec<u8>,
    next: u64,
    under_way: bool,
    terminates: u32,
    dead: bool,
}

/// Plays one input. Panics if the stream breaks a promise.
pub fn stream(input: &[u8]) {
    let [options, piece, bytes @ ..] = input else { return };
    let (options, piece) = (*options, usize::from(*piece).max(1));
    let role = if options & ACTIVE != 0 { Role::Active } else { Role::Passive };
    let config = Config {
        extension: options & EXTENSION != 0,
        checksum: options & CHECKSUM != 0,
        peer_to_peer: options & PEER_TO_PEER != 0,
        hold: Duration::ZERO,
        ..Config::new(role)
    };
    let mut engine = Engine {
        stream: Stream::new(config, Time(0)),
        now: Time(0),
        options,
        events: 0,
        asked: 0,
        out: Vec::new(),
        next: 0,
        under_way: false,
        terminates: 0,
        dead: false,
    };
    engine.stream.set_segment_size(1448);
    if role == Role::Active {
        engine.stream.connect(engine.now, LIMITS, b"").unwrap();
    }
    engine.stream.receives_posted(engine.now, 8, options & REFUSE != 0);
    engine.speak();
    let mut kept: Vec<u8> = Vec::new();
    for part in bytes.chunks(piece * 7) {
        kept.extend_from_slice(part);
        let used = engine.hear(&kept);
        kept.drain(..used);
        assert!(kept.len() <= 65_544 || engine.dead, "{} bytes kept", kept.len());
        engine.speak();
        engine.now = engine.now.after(Duration::from_micros(5));
        engine.stream.idle_pass(engine.now);
        if !engine.dead && engine.stream.on_deadline(engine.now).is_err() {
            engine.dead = true;
        }
    }
    engine.stream.flush(engine.now);
    engine.speak();
    let _ = engine.stream.link_closed(engine.now);
    while engine.stream.poll_event().is_some() {}
    engine.speak();
    assert!(engine.terminates <= 1, "{} Terminates", engine.terminates);
    assert!(!engine.stream.has_output(), "output on an ended stream");
    assert!(engine.stream.deadline().is_none(), "a timer on an ended stream");
}

impl Engine {
    fn hear(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let decoded = match self.stream.decode(self.now, &bytes[at..]) {
                Ok(decoded) => decoded,
                Err(_) => {
                    assert!(!self.dead, "a second violation");
                    self.dead = true;
                    continue;
                }
            };
            assert!(decoded.consumed <= bytes.len() - at);
            if decoded.consumed == 0 {
                assert!(decoded.event.is_none());
                return at;
            }
            at += decoded.consumed;
            if let Some(event) = decoded.event {
                assert!(!self.dead, "an event on a dead stream: {event:?}");
                self.take(event);
            }
            while let Some(event) = self.stream.poll_event() {
                self.take(event);
            }
        }
    }

    fn take(&mut self, event: Event<'_>) {
        self.events += 1;
        let refused = self.options & REFUSE != 0 && self.events % 7 == 0;
        match event {
            Event::ConnectRequest { private, .. } => {
                assert!(private.len() <= 512);
                if refused {
                    self.stream.reject(self.now, b"no").unwrap();
                } else {
                    self.stream.accept(self.now, LIMITS, b"").unwrap();
                }
            }
            Event::Accepted { limits, .. } => {
                assert!(limits.outbound <= 4 && limits.inbound <= 4);
                self.stream.confirm(self.now).unwrap();
            }
            Event::Write { address, payload, last, .. } => {
                assert!(
                    payload.is_empty() || address.checked_add(payload.len() as u64 - 1).is_some()
                );
                self.outcome(refused, Operation::Write, last);
            }
            Event::Send { offset, payload, last, .. } => {
                assert!(u64::from(offset) + payload.len() as u64 <= u64::from(u32::MAX));
                self.outcome(refused, Operation::Send, last);
            }
            Event::ReadRequest { address, length, .. } => {
                assert!(length > 0 && address.checked_add(u64::from(length) - 1).is_some());
                self.asked += 1;
                assert!(self.asked <= 4, "{} reads at a time", self.asked);
                self.outcome(refused, Operation::Read, false);
            }
            Event::WriteAnnounced { .. } => self.outcome(refused, Operation::Write, false),
            Event::CreditWanted => self.stream.receives_posted(self.now, 9, true),
            Event::ReadData { payload, last, .. } => assert!(last || !payload.is_empty()),
            Event::PeerFailed { error, .. } => {
                self.dead = true;
                let text = error.explanation.unwrap_or_default();
                assert!(text.len() <= 3 * 512 && !text.chars().any(char::is_control));
            }
            Event::Done { through } => assert!(through.0 < self.next),
            Event::Rejected { .. } | Event::Established | Event::Resume => {}
        }
    }

    fn outcome(&mut self, refused: bool, operation: Operation, last: bool) {
        if refused {
            let class = RefusalClass::Bounds;
            let refusal = Refusal { operation, class, explanation: Some("because") };
            self.stream.refuse(self.now, &refusal);
            self.dead = true;
        } else if last {
            self.stream.executed(self.now);
        }
    }

    /// Writes what there is, up to a point: an answer may be 4 GiB long.
    fn speak(&mut self) {
        for _ in 0..24 {
            self.begin();
            let Some(frame) = self.stream.next_frame(self.now) else { return };
            self.out.clear();
            self.out.extend_from_slice(frame.header());
            assert!(frame.length <= 65_535);
            self.out.resize(self.out.len() + frame.length as usize, 0xA5);
            self.stream.seal(&frame, &mut self.out, 0);
            assert!(!frame.sealed || self.out.len() % 4 == 0);
            if frame.sealed && frame.header[3] & 0x0F == 7 {
                self.terminates += 1;
            } else {
                assert!(self.terminates == 0, "a frame behind a Terminate");
            }
            match frame.payload {
                Payload::Memory { .. } if frame.last => self.asked -= 1,
                Payload::Message { .. } if frame.last => self.under_way = false,
                _ => {}
            }
        }
    }

    fn begin(&mut self) {
        if self.options & SILENT != 0 || self.under_way || self.next >= 12 || self.dead {
            return;
        }
        let message = match self.next % 3 {
            0 => Message::Send { length: 33, solicited: false, invalidate: None },
            1 => Message::Read { token: 1, address: 0, length: 64, sink_token: 1, sink_address: 0 },
            _ => Message::Write { token: 1, address: 0, length: 3000, verdict: true },
        };
        if self.stream.begin(self.now, MessageId(self.next), &message) == Begin::Started {
            self.next += 1;
            self.under_way = true;
        }
    }
}
