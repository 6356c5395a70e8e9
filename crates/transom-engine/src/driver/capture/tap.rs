//! Events of a pass over a link, for a program that traces and for a capture.

use transom_core::HostMemory;
use transom_packets::EndId;
use transom_process::record::{self, ELSEWHERE, HEADER, Header};
use transom_wire::Framing;

use super::Capture;
use crate::driver::config::options::Trace;
use crate::driver::link::Link;
use crate::sys::Host;
use crate::trace::{FrameTrace, TraceEvent, Tracer, What};
use crate::{EndReason, Status};

/// The tracer of one pass: every frame of it is shown. An acknowledgement that stands beside the records of rings
/// (`Rings::acknowledge`) is no frame, and may leave without a pass.
pub(crate) struct Tap<'a> {
    link: &'a Link,
    program: Option<&'a Trace>,
    capture: Option<&'a Capture>,
    /// The link's end in the capture, once it has sent or taken a frame.
    pub(crate) end: Option<EndId>,
}

impl<'a> Tap<'a> {
    /// Whether the passes over a link have a tracer: then each request takes the way that tells of it.
    #[inline]
    pub(crate) fn is_wanted(link: &Link) -> bool {
        link.shared.options.trace.is_some() || link.shared.capture.is_some()
    }

    /// `None`: no capture is open, and no program traces.
    #[inline]
    pub(crate) fn of(link: &'a Link, end: Option<EndId>) -> Option<Tap<'a>> {
        if !Tap::is_wanted(link) {
            return None;
        }
        let (program, capture) =
            (link.shared.options.trace.as_ref(), link.shared.capture.as_deref());
        Some(Tap { link, program, capture, end })
    }
}

impl Tracer for Tap<'_> {
    fn event(&mut self, event: &TraceEvent) {
        if let Some(program) = self.program {
            (program.0)(event);
        }
        let (Some(capture), Some(end)) = (self.capture, self.end) else { return };
        match event.what {
            What::Denied { denial } => {
                let cause =
                    self.link.shared.denials().get(denial).map(|it| format!("{:#}", it.cause));
                let text = cause.unwrap_or_else(|| "refused".to_owned());
                capture.record(|recorder, _| recorder.note(end, text));
            }
            What::Ended { reason } if is_peers(reason) => {
                capture.record(|recorder, now| recorder.peer_finished(end, now));
            }
            _ => {}
        }
    }

    fn wants_frames(&self) -> bool {
        self.capture.is_some()
    }

    fn frame(&mut self, frame: &FrameTrace<'_>) {
        let Some(capture) = self.capture else { return };
        let FrameTrace { framing, inbound, bytes } = *frame;
        let fetched = if framing == Framing::Records && inbound { fetch(bytes) } else { None };
        let bytes = fetched.as_deref().unwrap_or(bytes);
        let link = self.link;
        // A socket that cannot say its address any more has nothing to tell either.
        let local = if self.end.is_none() { link.local().ok() } else { None };
        capture.record(|recorder, now| {
            let end = match (self.end, local) {
                (Some(end), _) => end,
                (None, Some(local)) => *self.end.insert(recorder.open(local, link.peer)),
                (None, None) => return,
            };
            recorder.frame(end, !inbound, framing, now, bytes);
        });
    }

    fn frame_judged(&mut self) {
        if let (Some(capture), Some(end)) = (self.capture, self.end) {
            capture.record(|recorder, _| recorder.release(end));
        }
    }
}

/// The peer ended the connection, as far as a packet shows it.
fn is_peers(reason: EndReason) -> bool {
    matches!(
        reason,
        EndReason::PeerDisconnected
            | EndReason::Unanswered
            | EndReason::Link(Status::ConnectionAborted)
    )
}

/// A record whose payload lies in shared memory, with the payload behind it. The peer may change
/// it at any time: what the program gets is another copy.
fn fetch(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut header = Header::from_words(record::to_words(bytes)?)?;
    if !header.has(ELSEWHERE) || !header.kind.carries_data() {
        return None;
    }
    let (before, place) = bytes.split_at_checked(header.front())?;
    let address = u64::from_ne_bytes(*place.first_chunk()?);
    header.flags &= !ELSEWHERE;
    let length = header.payload().min(record::LARGEST_PAYLOAD);
    let mut whole = record::to_bytes(header.words()).to_vec();
    whole.extend_from_slice(before.get(HEADER..).unwrap_or_default());
    if Host.append(address, length, &mut whole).is_err() {
        whole.resize(header.front() + length, 0);
    }
    Some(whole)
}
