//! The shipped wire, with the watcher looking over its shoulder.

use transom_wire::{
    Around, Begin, Decoded, Event, Facts, Frame, Framing, Glance, Message, MessageId, Operation,
    ReadLimits, Receiving, Refusal, Release, Sending, SetupError, StartUp, Time, Trailer,
    Violation, Wire,
};

use crate::watch::Watcher;

/// A wire that is watched. It changes nothing.
pub struct Spy {
    wire: Box<dyn Wire>,
    watcher: Watcher,
}

impl std::fmt::Debug for Spy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spy").finish_non_exhaustive()
    }
}

impl Spy {
    /// Watch `wire`.
    #[must_use]
    pub fn new(wire: Box<dyn Wire>, watcher: Watcher) -> Spy {
        Spy { wire, watcher }
    }
}

impl StartUp for Spy {
    fn connect(&mut self, now: Time, limits: ReadLimits, private: &[u8]) -> Result<(), SetupError> {
        self.wire.connect(now, limits, private)
    }

    fn accept(&mut self, now: Time, limits: ReadLimits, private: &[u8]) -> Result<(), SetupError> {
        self.wire.accept(now, limits, private)
    }

    fn reject(&mut self, now: Time, private: &[u8]) -> Result<(), SetupError> {
        self.wire.reject(now, private)
    }

    fn confirm(&mut self, now: Time) -> Result<(), SetupError> {
        self.wire.confirm(now)
    }

    fn retry_older(&self) -> bool {
        self.wire.retry_older()
    }

    fn set_segment_size(&mut self, bytes: u32) {
        self.wire.set_segment_size(bytes);
    }

    fn facts(&self) -> Option<Facts> {
        let facts = self.wire.facts();
        if let Some(facts) = &facts {
            self.watcher.see().agreed(facts.extension, facts.limits.outbound);
        }
        facts
    }

    fn deadline(&self) -> Option<Time> {
        self.wire.deadline()
    }

    fn on_deadline(&mut self, now: Time) -> Result<(), Violation> {
        self.wire.on_deadline(now)
    }

    fn set_front_word(&mut self, word: u32) {
        self.wire.set_front_word(word);
    }

    fn peer_front_word(&self) -> Option<u32> {
        self.wire.peer_front_word()
    }

    fn framing(&self) -> Framing {
        self.wire.framing()
    }
}

impl Receiving for Spy {
    fn decode<'b>(&mut self, now: Time, bytes: &'b [u8]) -> Result<Decoded<'b>, Violation> {
        let decoded = self.wire.decode(now, bytes);
        if let Ok(Decoded { event, done, .. }) = &decoded {
            if let Some(event) = event {
                self.watcher.see().decoded(event);
                self.watcher.see().count_kind(event, self.wire.framing());
            }
            if let Some(through) = done {
                self.watcher.see().vouched(*through);
            }
        }
        decoded
    }

    fn glance(&self, bytes: &[u8]) -> Option<Glance> {
        self.wire.glance(bytes)
    }

    fn poll_event(&mut self) -> Option<Event<'static>> {
        let event = self.wire.poll_event();
        if let Some(Event::Done { through }) = &event {
            self.watcher.see().vouched(*through);
        }
        event
    }

    fn executed(&mut self, now: Time) {
        self.watcher.see().executed();
        self.wire.executed(now);
    }

    fn answer(&mut self, now: Time, old: u64) {
        self.watcher.see().answered(old);
        self.wire.answer(now, old);
    }

    fn decline(&mut self, operation: Operation) -> Option<MessageId> {
        self.wire.decline(operation)
    }

    fn owes_answers(&self) -> bool {
        let owes = self.wire.owes_answers();
        self.watcher.see().owes(owes);
        owes
    }

    fn refuse(&mut self, now: Time, refusal: Option<&Refusal<'_>>) {
        self.wire.refuse(now, refusal);
    }

    fn is_using(&self, token: u32) -> bool {
        self.wire.is_using(token)
    }

    fn receives_posted(&mut self, now: Time, total: u64, shared: bool) {
        self.wire.receives_posted(now, total, shared);
    }

    fn lacks_receive(&self) -> bool {
        self.wire.lacks_receive()
    }

    fn link_closed(&mut self, now: Time, delivered: bool) -> Result<(), Violation> {
        self.wire.link_closed(now, delivered)
    }
}

impl Sending for Spy {
    fn begin(&mut self, now: Time, id: MessageId, message: &Message) -> Begin {
        let begin = self.wire.begin(now, id, message);
        if begin == Begin::Started {
            self.watcher.see().begun(id, message);
        } else if let Begin::Wait(transom_wire::Waiting::ReadSlot) = begin {
            self.watcher.see().counters.hit("waited for a read slot");
        }
        begin
    }

    fn aim(&mut self, number: u32) -> bool {
        let aimed = self.wire.aim(number);
        if aimed {
            self.watcher.see().aimed(number);
        }
        aimed
    }

    fn around(&mut self, now: Time, message: &Message) -> Option<Around> {
        self.wire.around(now, message)
    }

    fn begin_whole(&mut self, now: Time, id: MessageId, message: &Message, frame: &mut [u8]) {
        self.watcher.see().begun_whole(id, message);
        let front = self.wire.around(now, message).map_or(0, |around| around.front);
        let payload = frame.get(front..front + message.payload() as usize);
        // A payload that is shared with the peer is not here.
        if let Some(payload) = payload.filter(|payload| !payload.is_empty()) {
            self.watcher.see().carried(payload);
        }
        if self.wire.framing() == Framing::Fpdus {
            self.watcher.see().counters.hit("whole message in a stream");
        }
        self.wire.begin_whole(now, id, message, frame);
    }

    fn next_frame(&mut self, now: Time) -> Option<Frame> {
        let frame = self.wire.next_frame(now);
        if let Some(frame) = &frame {
            self.watcher.see().next_frame(frame);
        }
        frame
    }

    fn seal(&mut self, frame: &Frame, bytes: &mut [u8]) {
        let from = usize::from(frame.header_length);
        // A payload that is shared with the peer is not here.
        if let Some(payload) = bytes.get(from..from + frame.length as usize) {
            self.watcher.see().sealed(frame, payload);
        }
        self.wire.seal(frame, bytes);
    }

    fn trailer(&mut self, frame: &Frame) -> Option<Trailer> {
        self.wire.trailer(frame)
    }

    fn abandon(&mut self, now: Time, frame: &Frame, refusal: &Refusal<'_>) {
        self.watcher.see().abandoned();
        self.wire.abandon(now, frame, refusal);
    }

    fn has_output(&self) -> bool {
        self.wire.has_output()
    }

    fn credit(&self) -> Option<u32> {
        self.wire.credit()
    }

    fn acknowledgement(&mut self, now: Time) -> Option<u64> {
        self.wire.acknowledgement(now)
    }

    fn release(&mut self, why: Release) {
        self.wire.release(why);
    }
}
