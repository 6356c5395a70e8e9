//! The end of a stream: faults and refusals become Terminates, the peer's Terminate becomes events.

use transom_wire::{
    Blame, Event, Frame, HandshakePhase, MessageId, Operation, Payload, PeerError, Refusal,
    RefusalClass, Violation, explanation_of,
};

use super::Stream;
use super::blame::Named;
use super::frames::control;
use super::inbound::{Answer, Asked, Offending};
use crate::TerminateForm;
use crate::ddp::{Segment, Target};
use crate::extension::{EXPLANATION, Refused, TEXT};
use crate::faults::{self, Fault};
use crate::rdmap::{self, READ_QUEUE, ReadRequest, TERMINATE_QUEUE};
use crate::terminate::{About, Terminate};

/// The Terminate still to be sent, one per stream and direction (RFC 5040 7.1). Acknowledgements of
/// what the peer did right before, and to a Transom the reason, go first.
#[derive(Debug)]
pub(super) struct LastWords {
    refusal: Option<Refusing>,
    fault: Fault,
    about: Offending,
}

/// A refusal on its way out.
#[derive(Debug)]
struct Refusing {
    operation: Operation,
    class: RefusalClass,
    number: u32,
    text: String,
    sent: usize,
}

/// A refusal of the peer that has come in, until its Terminate does.
#[derive(Debug)]
pub(super) struct Blamed {
    id: Option<MessageId>,
    operation: Operation,
    class: RefusalClass,
    text: Vec<u8>,
}

/// Cuts a text to what fits, at a character's boundary.
fn fitting(text: &str) -> String {
    let mut end = text.len().min(EXPLANATION);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or("").to_owned()
}

impl Stream {
    /// Whether a fault may still be answered with a Terminate.
    fn can_terminate(&self) -> bool {
        matches!(
            self.handshake.phase(),
            HandshakePhase::WaitReply
                | HandshakePhase::Accepted
                | HandshakePhase::WaitReady
                | HandshakePhase::Open
        )
    }

    /// Nothing more is sent or received, but for what is queued.
    pub(super) fn end(&mut self) {
        self.handshake.end();
        self.held = None;
    }

    /// The stream is dead and the protocol has no word for it (any more).
    pub(super) fn silent(&mut self, blame: Blame, rule: &'static str, detail: String) -> Violation {
        self.end();
        self.start_up = (Vec::new(), 0);
        Violation { blame, rule, detail }
    }

    /// The peer broke a rule: the stream is dead, a Terminate says why.
    pub(super) fn fault(&mut self, fault: Fault, detail: String) -> Violation {
        let about = self.inbound.last;
        self.terminate(fault, about, None);
        let row = fault.row();
        let blame = match fault {
            Fault::Crc => Blame::Wire,
            _ => Blame::Peer,
        };
        Violation { blame, rule: row.rule, detail: format!("{}: {detail}", row.name) }
    }

    fn terminate(&mut self, fault: Fault, about: Offending, refusal: Option<Refusing>) {
        if self.can_terminate() {
            let refusal = refusal.filter(|_| self.agreed.extension);
            self.last_words = Some(Box::new(LastWords { refusal, fault, about }));
        }
        self.end();
    }

    /// The engine refuses what the last event asked for.
    pub(super) fn refuse_last(&mut self, refusal: &Refusal<'_>) {
        let number = self.inbound.blamed;
        let about = self.inbound.last;
        if self.inbound.answered {
            // Our sink is gone: to the peer, a segment that may not be placed (iW H21).
            let fault = Fault::of(Operation::Write, refusal.class);
            self.terminate(fault, about, None);
            return;
        }
        self.refuse_with(refusal, number, about);
    }

    fn refuse_with(&mut self, refusal: &Refusal<'_>, number: u32, about: Offending) {
        let refusing = Refusing {
            operation: refusal.operation,
            class: refusal.class,
            number,
            text: fitting(refusal.explanation.unwrap_or("")),
            sent: 0,
        };
        let fault = Fault::of(refusal.operation, refusal.class);
        self.terminate(fault, about, Some(refusing));
    }

    /// Nothing the peer did, and no message to name.
    pub(super) fn fail_here(&mut self) {
        self.terminate(Fault::Local, Offending::default(), None);
    }

    /// The payload of a frame that was handed out could not be supplied.
    pub(super) fn abandon_frame(&mut self, frame: &Frame, refusal: &Refusal<'_>) {
        let Payload::Memory { slot, token, address } = frame.payload else {
            // A message of ours: nothing the peer did.
            return self.fail_here();
        };
        // The Read Request comes back with the progress made (iW 7.1).
        let sink = frame.header.get(2..).and_then(Segment::parse).map(|segment| segment.target);
        let (sink_stag, sink_offset) = match sink {
            Some(Target::Tagged { stag, offset }) => (stag, offset),
            _ => (0, 0),
        };
        let rest = match self.inbound.answers.front() {
            Some(Answer { number, asked: Asked::Read(request), sent }) if *number == slot.0 => {
                request.size - sent
            }
            _ => 0,
        };
        let size = frame.length + rest;
        let request = ReadRequest {
            sink_stag,
            sink_offset,
            size,
            source_stag: token,
            source_offset: address,
        };
        let target = Target::Untagged { ulp: 0, queue: READ_QUEUE, number: slot.0, offset: 0 };
        let header = rdmap::segment(rdmap::Opcode::ReadRequest, true, target).header();
        let about = Offending::of(header.as_ref(), &request.to_bytes(), 46);
        self.refuse_with(refusal, slot.0, about);
    }

    /// The next frame of a dead stream: acknowledgements, refusal, Terminate.
    pub(super) fn last_word(&mut self) -> Option<Frame> {
        if self.agreed.extension && self.acks.is_owed() {
            return Some(control(&self.acks.take().header(), &[]));
        }
        let words = self.last_words.as_mut()?;
        if let Some(refusing) = &mut words.refusal {
            let text = refusing.text.as_bytes().get(refusing.sent..).unwrap_or(&[]);
            let piece = text.get(..TEXT).unwrap_or(text);
            let frame = Refused {
                operation: refusing.operation,
                class: refusing.class,
                number: refusing.number,
                offset: u32::try_from(refusing.sent).unwrap_or(0),
                text: piece,
                last: piece.len() == text.len(),
            };
            let said = control(&frame.header(), piece);
            refusing.sent += piece.len();
            if frame.last {
                words.refusal = None;
            }
            return Some(said);
        }
        let words = self.last_words.take()?;
        Some(terminate_frame(words.fault, &words.about, self.config.terminate))
    }

    // ---- the peer's Terminate -----------------------------------------------------------------

    /// A refusal precedes its Terminate. Only the text of several frames must fit together.
    pub(super) fn on_refusal(&mut self, refused: &Refused<'_>) -> Result<(), (Fault, String)> {
        let id = self.named(refused.operation, refused.number);
        let blamed = self.blamed.get_or_insert_with(|| {
            let (operation, class) = (refused.operation, refused.class);
            Box::new(Blamed { id, operation, class, text: Vec::new() })
        });
        let fits = u32::try_from(blamed.text.len()) == Ok(refused.offset)
            && blamed.text.len() + refused.text.len() <= EXPLANATION
            && (blamed.operation, blamed.class) == (refused.operation, refused.class);
        if !fits {
            return Err((Fault::Extension, "a refusal whose parts do not fit together".into()));
        }
        blamed.text.extend_from_slice(refused.text);
        Ok(())
    }

    /// The peer ends the stream. Nothing is answered, whatever it looks like (RFC 5040 5.4).
    pub(super) fn on_terminate<'b>(&mut self, segment: &Segment<'b>) -> Option<Event<'b>> {
        let start_up = self.config.common.role == transom_wire::Role::Passive && !self.acquainted;
        self.end();
        let place = Target::Untagged { ulp: 0, queue: TERMINATE_QUEUE, number: 1, offset: 0 };
        let right = match (segment.target, place) {
            (
                Target::Untagged { queue, number, offset, .. },
                Target::Untagged { queue: q, number: n, offset: o, .. },
            ) => (queue, number, offset) == (q, n, o) && segment.last,
            _ => false,
        };
        let said = Terminate::parse(segment.payload, start_up).filter(|_| right);
        let blamed = self.blamed.take();
        let Some((terminate, form)) = said else {
            return Some(failed(blamed, None, None, None, "a malformed Terminate".into()));
        };
        let (layer, kind, code) = terminate.code;
        let row = faults::received(terminate.code);
        let name = row.map_or("unregistered code", |row| row.name);
        let order = if form == TerminateForm::Siw { " (siw's bit order)" } else { "" };
        // About an answer of ours: the peer's own sink is gone, and none of our requests is to
        // blame.
        let answer = terminate.about.as_ref().is_some_and(is_answer);
        let Named { id, first, operation: about, of } = match terminate.about.filter(|_| !answer) {
            Some(about) => self.blamed_by(&about, form),
            None => Named::default(),
        };
        let doubt = match of {
            0 | 1 => String::new(),
            of => format!("; it names no message, only a place to which {of} of ours went"),
        };
        let words = format!("Terminate {layer}/{kind}/{code:02x}: {name}{order}{doubt}");
        let known = row.and_then(|row| row.refusal).filter(|_| !answer);
        // The table names an operation, the header says which it was.
        let operation = match known {
            Some((Operation::Invalidate, _)) => Some(Operation::Invalidate),
            _ => about.or(known.map(|(operation, _)| operation)),
        };
        let done = first.filter(|_| !self.agreed.extension).and_then(|id| self.settle_before(id));
        // In doubt nothing is said about those in between: the engine blames the oldest that is
        // left.
        let id = id.filter(|id| first == Some(*id));
        let class = known
            .map(|(_, class)| class)
            .or((answer || layer == 0 && kind == 0).then_some(RefusalClass::Internal));
        // Messages before the refused one have succeeded, and are reported in front of it.
        self.pending.done = done.or(self.pending.done);
        Some(failed(blamed, id, operation, class, words))
    }

    /// Messages are executed in order: those before the first that a plain peer may mean were
    /// right.
    fn settle_before(&mut self, id: MessageId) -> Option<MessageId> {
        let out = &mut self.outbound;
        let ahead = out.sent.iter().take_while(|sent| sent.id < id).count();
        out.vouch(out.base + ahead as u64);
        self.settle_below(id)
    }

    /// After the link: a refusal whose Terminate never came counts all the same.
    pub(super) fn last_farewell(&mut self) -> Result<(), Violation> {
        self.last_words = None;
        if let Some(blamed) = self.blamed.take() {
            let event = failed(Some(blamed), None, None, None, "refused; no Terminate came".into());
            self.pending.failed = Some(event);
        }
        Ok(())
    }
}

/// Whether a Terminate is about the answer to a read or an atomic.
fn is_answer(about: &About<'_>) -> bool {
    let opcode = Segment::parse(about.header).and_then(|segment| rdmap::opcode(segment.control));
    matches!(opcode, Some(rdmap::Opcode::ReadResponse | rdmap::Opcode::AtomicResponse))
}

fn failed(
    blamed: Option<Box<Blamed>>,
    id: Option<MessageId>,
    operation: Option<Operation>,
    class: Option<RefusalClass>,
    code: String,
) -> Event<'static> {
    match blamed {
        Some(blamed) => {
            let explanation = explanation_of(&blamed.text);
            let (operation, class) = (Some(blamed.operation), Some(blamed.class));
            let error = PeerError { class, operation, code, explanation };
            Event::PeerFailed { id: blamed.id, error }
        }
        None => {
            let error = PeerError { class, operation, code, explanation: None };
            Event::PeerFailed { id, error }
        }
    }
}

/// A Terminate as a frame. Errors of the layers below DDP and local ones name no segment (iW 7.2).
fn terminate_frame(fault: Fault, about: &Offending, form: TerminateForm) -> Frame {
    let code = fault.row().code;
    let (header, request) = about.parts();
    let named = !header.is_empty() && code.0 != 2 && (code.0, code.1) != (0, 0);
    // RFC 5040 fig. 10: the Read Request's own header only for RDMAP's protection errors.
    let request = if (code.0, code.1) == (0, 1) { request } else { &[] };
    let length = match form {
        TerminateForm::Rfc => about.length,
        TerminateForm::Siw => {
            let headers = header.len() + about.parts().1.len();
            about.length.saturating_sub(u16::try_from(headers).unwrap_or(u16::MAX))
        }
    };
    let about = named.then_some(About { length, length_valid: true, header, request });
    let (bytes, used) = Terminate { code, about }.to_bytes(form);
    let target = Target::Untagged { ulp: 0, queue: TERMINATE_QUEUE, number: 1, offset: 0 };
    let header = rdmap::segment(rdmap::Opcode::Terminate, true, target).header();
    control(&header, bytes.get(..used).unwrap_or(&bytes))
}
