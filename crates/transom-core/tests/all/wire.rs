//! The engine over a wire that behaves differently from iWARP, or lies.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::support::{Host, Pair, PairConfig, Seen};
use transom_core::{
    Connection, ConnectionConfig, ConnectionEvent, Dialect, EndReason, Flags, Operation,
    QueuePairState, Status, dialect,
};
use transom_memory::ConnectionId;
use transom_wire::{
    Around, Begin, Buffer, Bytes, Decoded, Event, Facts, Frame, Framing, Glance, Immediate,
    Message, MessageId, Operation as WireOperation, Payload, PeerError, ReadLimits, Receiving,
    Refusal, RefusalClass, Release, Role, Sending, SetupError, StartUp, Time, Trailer, Verdicts,
    Violation,
};

/// A wire with set answers: `polled` is known before the event of the one byte that comes in.
#[derive(Default)]
struct Script {
    polled: Arc<Mutex<VecDeque<Event<'static>>>>,
    decoded: Option<Event<'static>>,
    frames: VecDeque<Frame>,
    /// An answer is owed that never leaves.
    owes: bool,
}

const LIMITS: ReadLimits = ReadLimits { inbound: 1, outbound: 1 };

impl StartUp for Script {
    fn connect(&mut self, _: Time, _: ReadLimits, _: &[u8]) -> Result<(), SetupError> {
        Ok(())
    }

    fn accept(&mut self, _: Time, _: ReadLimits, _: &[u8]) -> Result<(), SetupError> {
        Ok(())
    }

    fn reject(&mut self, _: Time, _: &[u8]) -> Result<(), SetupError> {
        Ok(())
    }

    fn confirm(&mut self, _: Time) -> Result<(), SetupError> {
        Ok(())
    }

    fn set_segment_size(&mut self, _: u32) {}

    fn facts(&self) -> Option<Facts> {
        Some(Facts {
            wire: "script",
            checksum: false,
            markers: false,
            extension: true,
            verdicts: Verdicts::Acknowledged,
            limits: LIMITS,
            largest_frame: 1,
            largest_payload: 1,
        })
    }

    fn deadline(&self) -> Option<Time> {
        None
    }

    fn on_deadline(&mut self, _: Time) -> Result<(), Violation> {
        Ok(())
    }

    fn set_front_word(&mut self, _: u32) {}

    fn peer_front_word(&self) -> Option<u32> {
        None
    }

    fn retry_older(&self) -> bool {
        false
    }

    fn framing(&self) -> Framing {
        Framing::Fpdus
    }
}

impl Receiving for Script {
    fn decode<'b>(&mut self, _: Time, bytes: &'b [u8]) -> Result<Decoded<'b>, Violation> {
        match bytes {
            [] => Ok(Decoded::NOTHING),
            _ => {
                let news = !self.polled.lock().unwrap().is_empty();
                Ok(Decoded { news, ..Decoded::of(1, self.decoded.take()) })
            }
        }
    }

    fn poll_event(&mut self) -> Option<Event<'static>> {
        self.polled.lock().unwrap().pop_front()
    }

    fn executed(&mut self, _: Time) {}

    fn answer(&mut self, _: Time, _: u64) {}

    fn decline(&mut self, _: WireOperation) -> Option<MessageId> {
        None
    }

    fn owes_answers(&self) -> bool {
        self.owes
    }

    fn refuse(&mut self, _: Time, _: Option<&Refusal<'_>>) {}

    fn is_using(&self, _: u32) -> bool {
        false
    }

    fn receives_posted(&mut self, _: Time, _: u64, _: bool) {}

    fn lacks_receive(&self) -> bool {
        false
    }

    fn link_closed(&mut self, _: Time, _: bool) -> Result<(), Violation> {
        Ok(())
    }

    fn glance(&self, _: &[u8]) -> Option<Glance> {
        None
    }
}

impl Sending for Script {
    fn begin(&mut self, _: Time, _: MessageId, _: &Message) -> Begin {
        Begin::Started
    }

    fn around(&mut self, _: Time, _: &Message) -> Option<Around> {
        None
    }

    fn begin_whole(&mut self, _: Time, _: MessageId, _: &Message, _: &mut [u8]) {}

    fn next_frame(&mut self, _: Time) -> Option<Frame> {
        self.frames.pop_front() // without one, the message is under way for ever
    }

    fn seal(&mut self, _: &Frame, _: &mut [u8]) {}

    fn trailer(&mut self, _: &Frame) -> Option<Trailer> {
        None
    }

    fn abandon(&mut self, _: Time, _: &Frame, _: &Refusal<'_>) {}

    fn has_output(&self) -> bool {
        false
    }

    fn aim(&mut self, _: u32) -> bool {
        false
    }

    fn credit(&self) -> Option<u32> {
        None
    }

    fn acknowledgement(&mut self, _: Time) -> Option<u64> {
        None
    }

    fn release(&mut self, _: Release) {}
}

const SEND: Event<'static> = Event::Send {
    offset: 0,
    payload: Bytes::Own(&[]),
    last: true,
    solicited: false,
    invalidate: None,
    immediate: None,
};

/// The only frame of a message without bytes.
fn frame(id: u64) -> Frame {
    Frame {
        back: 0,
        header: [0; transom_wire::MAX_HEADER],
        header_length: 1,
        payload: Payload::Message { id: MessageId(id), offset: 0 },
        length: 0,
        sealed: false,
        last: true,
    }
}

/// A connected active host on a script that has begun one Write and not finished its frames.
fn host(script: Script) -> Host {
    host_of(&dialect::ND2, script)
}

fn host_of(dialect: &'static Dialect, script: Script) -> Host {
    let [mut host, _] = Pair::new(PairConfig::new(dialect)).hosts;
    let id = ConnectionId { number: 1, epoch: 1 };
    let config = ConnectionConfig { id, role: Role::Active, dialect, explain: false };
    host.connection = Some(Connection::new(config, Box::new(script), Time(0)));
    let execution = host.queue_pair.attach(QueuePairState::Connecting).unwrap();
    host.with(Time(0), |_, link, _, cx| {
        let link = link.unwrap();
        link.connect(cx, Some(execution), LIMITS, &[]).unwrap();
        link.confirm(cx).unwrap();
    });
    host.post_receive(20, &[]).unwrap();
    host.post(1, Operation::Write { token: 0, address: 0 }, Flags::NONE, &[]).unwrap();
    host
}

/// A wire is chosen before messages flow.
#[test]
fn a_wire_is_not_changed_after_start_up() {
    let mut pair = Pair::connected(&dialect::ND2);
    let host = &mut pair.hosts[0];
    let changed = host.with(Time(1), |_, link, _, cx| {
        link.unwrap().change_wire(cx, Box::new(Script::default()), None)
    });
    assert_eq!(changed, Err(Status::InvalidState));
    host.post_receive(20, &[]).unwrap();
    pair.post(1, 1, Operation::Send, Flags::NONE, &[]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[0].outcomes(), [(20, Status::Success)], "the first wire goes on");
}

/// A peer that sends a Write with immediate data without leave: its bytes are placed, and the receive
/// completes when there is one.
#[test]
fn v87_a_placed_write_waits_for_its_receive() {
    let write = |value| Event::Write {
        token: 0,
        address: 0,
        payload: Bytes::Own(&[]),
        last: true,
        immediate: Some(Immediate { value, solicited: false }),
    };
    let polled = Arc::new(Mutex::new(VecDeque::from([write(5), write(6)])));
    let mut host = host_of(&dialect::VERBS, Script { polled, ..Script::default() });
    let received = |host: &mut Host| -> Vec<_> {
        host.completions().iter().map(|c| (c.request_context, c.value)).collect()
    };
    host.receive(Time(1), &[0]);
    assert_eq!(received(&mut host), [(20, 5)]);
    assert!(!host.connection.as_ref().unwrap().wants_read(), "nothing overtakes it");
    host.post_receive(21, &[]).unwrap();
    host.transmit(Time(2), &mut Buffer::new(1000));
    assert_eq!(received(&mut host), [(21, 6)]);
    assert!(host.connection.as_ref().unwrap().wants_read());
}

/// A Write that comes as one frame when the only receive has been used.
#[test]
fn v87_a_write_of_one_frame_waits_for_its_receive() {
    let immediate = Some(Immediate { value: 5, solicited: false });
    let payload = Bytes::Own(&[]);
    let write = Event::Write { token: 0, address: 0, payload, last: true, immediate };
    let polled = Arc::new(Mutex::new(VecDeque::from([SEND])));
    let script = Script { polled, decoded: Some(write), ..Script::default() };
    let mut host = host_of(&dialect::VERBS, script);
    host.receive(Time(1), &[0]);
    assert_eq!(host.outcomes(), [(20, Status::Success)], "of the Send");
    assert!(!host.connection.as_ref().unwrap().wants_read(), "the Write waits");
    host.post_receive(21, &[]).unwrap();
    host.transmit(Time(2), &mut Buffer::new(1000));
    let received: Vec<_> =
        host.completions().iter().map(|c| (c.request_context, c.value)).collect();
    assert_eq!(received, [(21, 5)]);
}

/// A peer (or a wire) that acknowledges what has not left is not believed, not even later.
#[test]
fn a_request_that_has_not_left_completely_cannot_succeed() {
    let done = Event::Done { through: MessageId(7) };
    let frames = VecDeque::from([frame(0)]);
    let mut host = host(Script { decoded: Some(done), frames, ..Script::default() });
    let mut out = Buffer::new(1000);
    host.transmit(Time(1), &mut out);
    host.post(2, Operation::Write { token: 0, address: 0 }, Flags::NONE, &[]).unwrap();
    host.transmit(Time(1), &mut out); // begun, and no frame comes
    host.receive(Time(2), &[0]);
    assert_eq!(host.outcomes(), [(1, Status::Success)]);
    host.receive(Time(3), &[0]);
    assert_eq!(host.outcomes(), []);
}

/// An acknowledgement comes before the frames of its message leave.
#[test]
fn an_acknowledgement_ahead_of_its_message_is_forgotten() {
    let done = Event::Done { through: MessageId(7) };
    let frames = VecDeque::from([frame(0)]);
    let mut host = host(Script { decoded: Some(done), frames, ..Script::default() });
    host.receive(Time(1), &[0]);
    host.transmit(Time(2), &mut Buffer::new(1000));
    host.receive(Time(3), &[0]);
    assert_eq!(host.outcomes(), []);
}

/// ND2 4.5: a peer fails the message that it names. One that names an operation only, as foreign ones may,
/// means the oldest of that kind; without either, the oldest of all.
#[test]
fn a_peer_blames_the_message_or_the_oldest_of_the_kind_that_it_names() {
    use transom_wire::Operation as Kind;
    let (token, address) = (0, 0);
    let (write, read) = (Operation::Write { token, address }, Operation::Read { token, address });
    let close = Operation::SendWithInvalidate { token };
    let behind = [(2, read), (3, write), (4, Operation::Send), (5, close), (6, write), (7, read)];
    let access = Some(RefusalClass::Bounds);
    for (id, operation, class, blamed, status) in [
        (None, Some(Kind::Read), access, 2, Status::RemoteAccess),
        (None, Some(Kind::Write), access, 3, Status::RemoteAccess),
        (None, Some(Kind::Send), Some(RefusalClass::TooLong), 4, Status::PeerReceiveTooSmall),
        (None, Some(Kind::Invalidate), access, 5, Status::RemoteAccess),
        (Some(MessageId(5)), Some(Kind::Write), access, 6, Status::RemoteAccess),
        (Some(MessageId(6)), Some(Kind::Read), access, 7, Status::RemoteAccess),
        (None, None, None, 1, Status::RemoteError),
    ] {
        let polled: Arc<Mutex<VecDeque<_>>> = Arc::default();
        let error = PeerError { class, operation, code: String::new(), explanation: None };
        let mut host = host(Script {
            polled: Arc::clone(&polled),
            decoded: Some(Event::PeerFailed { id, error }),
            frames: (0..7).map(frame).collect(),
            owes: false,
        });
        for (context, operation) in behind {
            host.post(context, operation, Flags::NONE, &[]).unwrap();
        }
        host.transmit(Time(1), &mut Buffer::new(1000));
        // In order that the oldest is never of the kind in question, the first Write is over, or is
        // not.
        let is_over = blamed > 2;
        if is_over {
            polled.lock().unwrap().push_back(Event::Done { through: MessageId(0) });
        }
        host.receive(Time(2), &[0]);
        let expected = [1, 2, 3, 4, 5, 6, 7].map(|context| match context {
            1 if is_over => (1, Status::Success),
            _ if context == blamed => (context, status),
            // Executed in order: what is in front of the one that is named, but for data to be read.
            3..=6 if id.is_some() && context < blamed => (context, Status::Success),
            _ => (context, Status::Canceled),
        });
        assert_eq!(host.outcomes().get(..7), Some(&expected[..]), "{id:?} {operation:?}");
    }
}

/// ND2 4.2 rule 5, for wires that report verdicts by `poll_event`: what was known before a message comes
/// before its receive.
#[test]
fn what_a_wire_knows_comes_before_what_it_decodes() {
    let shared = Arc::new(Mutex::new(VecDeque::new()));
    let script = Script {
        polled: Arc::clone(&shared),
        decoded: Some(SEND),
        frames: VecDeque::from([frame(0)]),
        owes: false,
    };
    let mut host = host(script);
    host.transmit(Time(1), &mut Buffer::new(1000));
    assert_eq!(host.outcomes(), []);
    shared.lock().unwrap().push_back(Event::Done { through: MessageId(0) });
    host.receive(Time(2), &[0]);
    assert_eq!(host.outcomes(), [(1, Status::Success), (20, Status::Success)]);
}

/// Verbs V67: a refusal waits for the answers in front of it, for as long as a peer may be silent.
#[test]
fn v67_a_peer_that_takes_no_answers_is_refused_at_last() {
    let write = Event::Write {
        token: 1,
        address: 0,
        payload: Bytes::Own(&[0; 8]),
        last: true,
        immediate: None,
    };
    let mut host = host(Script { decoded: Some(write), owes: true, ..Script::default() });
    let mut out = Buffer::new(1000);
    let ended = |host: &Host| host.connection.as_ref().unwrap().ended();
    host.receive(Time(5), &[0]);
    host.transmit(Time(6), &mut out);
    let received = host.receive(Time(7), &[1, 2, 3]);
    assert_eq!((received.consumed, received.read_paused), (3, false), "read, and thrown away");
    let due = Time(5).after(dialect::ND2.silence);
    assert_eq!(host.connection.as_ref().unwrap().deadline(), Some(due));
    let pass =
        |host: &mut Host, now| host.with(now, |_, link, _, cx| link.unwrap().on_deadline(cx));
    pass(&mut host, Time(due.0 - 1));
    assert_eq!((ended(&host), host.outcomes()), (None, vec![]));
    pass(&mut host, due);
    assert_eq!(ended(&host).map(|end| end.reason), Some(EndReason::Refused));
    let canceled = [1, 20].map(|context| (context, Status::Canceled));
    assert_eq!(host.outcomes(), canceled);
}

/// A driver bounds what a peer can take of its thread by frames, not by bytes: it must count each,
/// also those without a message.
#[test]
fn every_frame_counts() {
    let mut host = host(Script::default());
    let received = host.receive(Time(1), &[0, 0, 0]);
    assert_eq!((received.consumed, received.frames), (3, 3));
}

/// ND2 4.7.2 "or first data": a passive side whose wire reports no `Established` is established by
/// the first message.
#[test]
fn the_first_message_establishes_on_any_wire() {
    let [mut host, _] = Pair::new(PairConfig::new(&dialect::ND2)).hosts;
    let id = ConnectionId { number: 1, epoch: 1 };
    let config =
        ConnectionConfig { id, role: Role::Passive, dialect: &dialect::ND2, explain: false };
    let asks = Event::ConnectRequest { limits: LIMITS, private: &[] };
    let polled = Arc::new(Mutex::new(VecDeque::from([asks])));
    let script = Script { polled, decoded: Some(SEND), ..Script::default() };
    host.connection = Some(Connection::new(config, Box::new(script), Time(0)));
    host.listener.bind().unwrap();
    host.listener.listen(0).unwrap();
    host.listener.take_request(&mut host.connector, 0, 1).unwrap();
    host.receive(Time(1), &[]);
    host.post_receive(20, &[]).unwrap();
    host.with(Time(2), |connector, link, queue_pair, cx| {
        connector.accept(cx, link, queue_pair, 2, LIMITS, &[]).unwrap();
    });
    assert_eq!(host.queue_pair.state(), QueuePairState::Accepting);
    host.seen.clear();
    host.receive(Time(3), &[0]);
    assert_eq!(host.queue_pair.state(), QueuePairState::Connected);
    let [Seen::Event(ConnectionEvent::Established), Seen::Finished(accept), Seen::Completion(..)] =
        &host.seen[..]
    else {
        panic!("{:?}", host.seen);
    };
    assert_eq!((accept.waiter, accept.status), (2, Status::Success));
}
