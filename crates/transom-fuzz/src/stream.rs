//! A peer that says anything at all to a [`Stream`], and a minimal engine that holds a wire to its
//! promises.
//!
//! Input: one byte of options, one byte for the size of the pieces, the peer's bytes.

use std::time::Duration;

use transom_iwarp::{Config, Stream};
use transom_wire::{
    Atomic, Begin, Event, Frame, Message, MessageId, Operation, Payload, ReadLimits, Receiving,
    Refusal, RefusalClass, Release, Role, SetupError, StartUp, Time, Violation, Wire,
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
/// This side fails in the end.
pub const FAIL: u8 = 64;
/// A word of this side's front is told, and the peer's is asked for.
pub const WORD: u8 = 128;

const LIMITS: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };

/// The little that an engine does around a wire.
#[derive(Debug)]
pub(crate) struct Engine<W> {
    pub(crate) wire: W,
    pub(crate) now: Time,
    options: u8,
    /// The promises of this wire besides those of every wire.
    rules: Rules,
    events: u32,
    /// Those of them that the peer has asked for.
    pub(crate) delivered: u32,
    /// Reads of the peer that wait for an answer.
    asked: i64,
    /// Bytes written and not taken away.
    pub(crate) out: Vec<u8>,
    next: u64,
    under_way: bool,
    /// Terminates and Closes seen.
    ends: u32,
    pub(crate) dead: bool,
    /// Why, if the peer broke a rule.
    pub(crate) violation: Option<Violation>,
    /// Messages may flow.
    pub(crate) open: bool,
    /// Headers of the frames that have left since it was emptied.
    pub(crate) left: Vec<Vec<u8>>,
    /// Private data to answer with.
    pub(crate) private: Vec<u8>,
}

/// The promises of a wire besides those of every wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Frames are multiples of four.
    pub(crate) padded: bool,
    /// Frames that nothing may follow.
    pub(crate) last_words: fn(&Frame) -> bool,
}

/// iWARP's.
pub(crate) const STREAM: Rules =
    Rules { padded: true, last_words: |frame| frame.sealed && frame.header[3] & 0x0F == 7 };

/// The most bytes that are kept of a frame that has not come whole.
const KEPT: usize = 65_568;

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
    let mut engine = Engine::new(Stream::new(config, Time(0)), STREAM, options);
    engine.wire.set_segment_size(1448);
    if role == Role::Active {
        engine.wire.connect(engine.now, LIMITS, b"").unwrap();
    }
    engine.wire.receives_posted(engine.now, 8, options & REFUSE != 0);
    engine.speak();
    engine.play(bytes, piece * 7);
    engine.end();
}

impl<W: Wire> Engine<W> {
    pub(crate) fn new(wire: W, rules: Rules, options: u8) -> Engine<W> {
        Engine {
            wire,
            now: Time(0),
            options,
            rules,
            events: 0,
            delivered: 0,
            asked: 0,
            out: Vec::new(),
            next: 0,
            under_way: false,
            ends: 0,
            dead: false,
            violation: None,
            open: false,
            left: Vec::new(),
            private: Vec::new(),
        }
    }

    /// Bytes of the peer, in pieces.
    pub(crate) fn play(&mut self, bytes: &[u8], piece: usize) {
        let mut kept: Vec<u8> = Vec::new();
        for part in bytes.chunks(piece) {
            kept.extend_from_slice(part);
            let used = self.hear(&kept);
            kept.drain(..used);
            assert!(kept.len() <= KEPT || self.dead, "{} bytes kept", kept.len());
            self.speak();
            self.out.clear();
            self.pass(Duration::from_micros(5));
        }
    }

    /// A pass with nothing to do, and time.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.wire.release(Release::IdlePass);
        if !self.dead && self.wire.on_deadline(self.now).is_err() {
            self.dead = true;
        }
        // A frame due now stays due until it is written: see `speak`.
        let _ = self.wire.deadline();
    }

    /// The link ends.
    pub(crate) fn end(&mut self) {
        if self.options & FAIL != 0 && !self.dead {
            self.wire.refuse(self.now, None);
            self.dead = true;
        }
        self.wire.release(Release::Now);
        self.speak();
        let _ = self.wire.link_closed(self.now, true);
        while self.wire.poll_event().is_some() {}
        self.speak();
        assert!(self.ends <= 1, "{} ends of the stream", self.ends);
        assert!(!self.wire.has_output(), "output on an ended stream");
        assert!(self.wire.deadline().is_none(), "a timer on an ended stream");
    }

    pub(crate) fn hear(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let _ = self.wire.glance(&bytes[at..]); // only a guess, but of any bytes
            let decoded = match self.wire.decode(self.now, &bytes[at..]) {
                Ok(decoded) => decoded,
                Err(violation) => {
                    assert!(!self.dead, "a second violation");
                    self.violation = Some(violation);
                    self.dead = true;
                    continue;
                }
            };
            assert!(decoded.consumed <= bytes.len() - at);
            if let Some(through) = decoded.done {
                self.take(Event::Done { through });
            }
            let mut any = false;
            while let Some(event) = self.wire.poll_event() {
                self.take(event);
                any = true;
            }
            assert_eq!(decoded.news, any, "news are announced");
            if decoded.consumed == 0 {
                assert!(decoded.event.is_none());
                return at;
            }
            at += decoded.consumed;
            if let Some(event) = decoded.event {
                assert!(!self.dead, "an event on a dead stream: {event:?}");
                self.take(event);
            }
            while let Some(event) = self.wire.poll_event() {
                self.take(event);
            }
        }
    }

    pub(crate) fn take(&mut self, event: Event<'_>) {
        self.events += 1;
        let own = matches!(event, Event::Done { .. } | Event::Resume | Event::CreditWanted);
        self.delivered += u32::from(!own);
        let refused = self.options & REFUSE != 0 && self.events.is_multiple_of(7);
        match event {
            Event::ConnectRequest { private, .. } => {
                assert!(private.len() <= 512);
                if refused {
                    let short = self.private.get(..500).unwrap_or(&self.private);
                    self.wire.reject(self.now, short).unwrap();
                } else {
                    self.accept();
                }
            }
            Event::Accepted { limits, .. } => {
                assert!(limits.outbound <= 4 && limits.inbound <= 4);
                self.wire.confirm(self.now).unwrap();
                self.open = true;
            }
            Event::Write { last, .. } => self.outcome(refused, Operation::Write, last),
            Event::Send { offset, payload, last, .. } => {
                assert!(u64::from(offset) + payload.len() as u64 <= u64::from(u32::MAX));
                self.outcome(refused, Operation::Send, last);
            }
            Event::ReadRequest { length, .. } => {
                assert!(length > 0);
                self.asked += 1;
                assert!(self.asked <= 4, "{} reads at a time", self.asked);
                self.outcome(refused, Operation::Read, false);
            }
            Event::Atomic { address, .. } => {
                if refused {
                    self.outcome(true, Operation::Atomic, false);
                } else {
                    self.wire.answer(self.now, !address);
                }
            }
            Event::AtomicAnswer { id, .. } => assert!(id.0 < self.next),
            Event::WriteAnnounced { .. } => self.outcome(refused, Operation::Write, false),
            Event::CreditWanted => self.wire.receives_posted(self.now, 9, true),
            Event::ReadData { payload, last, .. } => assert!(last || !payload.is_empty()),
            Event::PeerFailed { error, .. } => {
                self.dead = true;
                let text = error.explanation.unwrap_or_default();
                assert!(text.len() <= 3 * 512 && !text.chars().any(char::is_control));
            }
            Event::Done { through } => assert!(through.0 < self.next),
            Event::Established => self.open = true,
            Event::Rejected { .. } | Event::Resume | Event::Target { .. } => {}
        }
    }

    /// With too much private data first, perhaps: that changes nothing.
    fn accept(&mut self) {
        let (now, limits) = (self.now, LIMITS);
        match self.wire.accept(now, limits, &self.private) {
            Ok(()) => {}
            Err(SetupError::PrivateData { limit }) => {
                assert!(self.private.len() > limit);
                self.wire.accept(now, limits, &[]).unwrap();
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    fn outcome(&mut self, refused: bool, operation: Operation, last: bool) {
        if refused {
            let class = RefusalClass::Bounds;
            let refusal = Refusal { operation, class, explanation: Some("because") };
            self.wire.refuse(self.now, Some(&refusal));
            self.dead = true;
        } else if last {
            self.wire.executed(self.now);
        }
    }

    /// Writes what there is, up to a point: an answer may be 4 GiB long.
    pub(crate) fn speak(&mut self) {
        for _ in 0..24 {
            self.begin();
            let Some(frame) = self.wire.next_frame(self.now) else { return };
            let start = self.out.len();
            self.left.push(frame.header().to_vec());
            self.out.extend_from_slice(frame.header());
            assert!(frame.length <= 65_536);
            self.out.resize(self.out.len() + frame.length as usize, 0xA5);
            self.out.resize(self.out.len() + usize::from(frame.back), 0);
            self.wire.seal(&frame, &mut self.out[start..]);
            let length = self.out.len() - start;
            assert!(!frame.sealed || !self.rules.padded || length.is_multiple_of(4));
            if (self.rules.last_words)(&frame) {
                self.ends += 1;
            } else {
                assert!(self.ends == 0, "a frame behind the end");
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
        let message = match self.next % 4 {
            0 => Message::Send { length: 33, solicited: false, invalidate: None, immediate: None },
            1 => Message::Read { token: 1, address: 0, length: 64, sink_token: 1, sink_address: 0 },
            2 => Message::Atomic { token: 1, address: 8, operation: Atomic::FetchAdd { add: 1 } },
            _ => Message::Write {
                token: 1,
                address: 0,
                length: 3000,
                verdict: true,
                immediate: None,
            },
        };
        let mut begun = self.wire.begin(self.now, MessageId(self.next), &message);
        if begun == Begin::Unknown {
            let (token, address, length) = (1, 0, 64);
            let read = Message::Read { token, address, length, sink_token: 1, sink_address: 0 };
            begun = self.wire.begin(self.now, MessageId(self.next), &read);
        }
        if begun == Begin::Started {
            self.next += 1;
            self.under_way = true;
        }
    }
}
