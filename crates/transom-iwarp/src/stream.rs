//! One MPA stream.

use transom_wire::{
    Begin, Decoded, Event, Facts, Frame, Message, MessageId, ReadLimits, Refusal, SetupError, Time,
    Trailer, Violation, Wire,
};

use crate::Config;

/// One iWARP connection as a [`Wire`].
#[derive(Debug)]
pub struct Stream {
    _config: Config,
}

impl Stream {
    /// A stream before its first byte.
    #[must_use]
    pub fn new(config: Config, now: Time) -> Stream {
        let _ = now;
        Stream { _config: config }
    }
}

#[allow(clippy::todo)]
impl Wire for Stream {
    fn connect(&mut self, _: Time, _: ReadLimits, _: &[u8]) -> Result<(), SetupError> {
        todo!()
    }
    fn accept(&mut self, _: Time, _: ReadLimits, _: &[u8]) -> Result<(), SetupError> {
        todo!()
    }
    fn reject(&mut self, _: Time, _: &[u8]) -> Result<(), SetupError> {
        todo!()
    }
    fn confirm(&mut self, _: Time) -> Result<(), SetupError> {
        todo!()
    }
    fn decode<'b>(&mut self, _: Time, _: &'b [u8]) -> Result<Decoded<'b>, Violation> {
        todo!()
    }
    fn executed(&mut self, _: Time) {
        todo!()
    }
    fn refuse(&mut self, _: Time, _: &Refusal<'_>) {
        todo!()
    }
    fn receives_posted(&mut self, _: Time, _: u64, _: bool) {
        todo!()
    }
    fn begin(&mut self, _: Time, _: MessageId, _: &Message) -> Begin {
        todo!()
    }
    fn next_frame(&mut self, _: Time) -> Option<Frame> {
        todo!()
    }
    fn seal(&mut self, _: &Frame, _: &mut Vec<u8>, _: usize) {
        todo!()
    }
    fn trailer(&mut self, _: &Frame) -> Option<Trailer> {
        todo!()
    }
    fn abandon(&mut self, _: Time, _: &Frame, _: &Refusal<'_>) {
        todo!()
    }
    fn has_output(&self) -> bool {
        todo!()
    }
    fn poll_event(&mut self) -> Option<Event<'static>> {
        todo!()
    }
    fn idle_pass(&mut self, _: Time) {
        todo!()
    }
    fn flush(&mut self, _: Time) {
        todo!()
    }
    fn deadline(&self) -> Option<Time> {
        todo!()
    }
    fn on_deadline(&mut self, _: Time) -> Result<(), Violation> {
        todo!()
    }
    fn link_closed(&mut self, _: Time) -> Result<(), Violation> {
        todo!()
    }
    fn set_segment_size(&mut self, _: u32) {
        todo!()
    }
    fn facts(&self) -> Option<Facts> {
        todo!()
    }
}
