//! A connection: a wire, and the half of a queue pair that works on it.
//!
//! The driver calls, under the link's lock: [`Connection::receive`] while bytes come in,
//! [`Connection::transmit`] while the link takes bytes, [`Connection::on_deadline`] when
//! [`Connection::deadline`] has passed, [`Connection::link_closed`] once everything before the end
//! was received. Before a pass it calls [`QueuePair::carry`](crate::QueuePair::carry), and
//! afterwards, with the lock dropped, it carries out the [`Effects`](crate::Effects).

mod ending;
mod frames;
mod inbound;
mod outbound;
mod timers;
mod whole;

use std::collections::VecDeque;
use std::time::Duration;

use transom_memory::{ConnectionId, DomainId, QueuePairId};
use transom_wire::{Blame, Facts, ReadLimits, Release, Role, SetupError, Time, Violation, Wire};

use crate::attention::{Attention, Quiet};
use crate::trace::{FrameTrace, TraceEvent, Tracer, What};
use crate::{
    ConnectionEvent, Cx, DenialCause, Dialect, End, EndReason, Execution, QueuePairEvent, Status,
};
use ending::Refused;
use inbound::Intake;

/// How long an ended connection may take to write what the protocol still has to say, and to read
/// what the peer had under way.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// How long a peer that is no Transom has been quiet before this side closes a connection that it ends
/// in order, and how long that takes at most. An orderly close is the only word that such a peer gets
/// (iW 9.9), and siw aborts what it has posted when that comes, though it has been executed.
const QUIET: Duration = Duration::from_millis(50);
const QUIET_WITHIN: Duration = Duration::from_millis(250);

/// The parameters of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionConfig {
    /// The connection's number and epoch.
    pub id: ConnectionId,
    /// The side that speaks first.
    pub role: Role,
    /// The rules it follows.
    pub dialect: &'static Dialect,
    /// Tell the peer all about a refusal (design rule 4: the owner decides).
    pub explain: bool,
}

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionPhase {
    /// Start-up.
    Setup,
    /// Messages flow.
    Open,
    /// A message of the peer's is refused as soon as the answers to those before it have gone. Nothing
    /// begins, and nothing behind that message counts.
    Refusing,
    /// Over: what the wire still has to say is written, what comes in is thrown away.
    Closing,
    /// Over, and everything that may be written has been.
    Drained,
    /// The link is gone.
    Closed,
}

/// For how long the next request may wait for a receive of the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceiveWait {
    /// No time: no request waits, or it may as long as it takes.
    None,
    /// Until this moment: the limit is the wire's.
    Until(Time),
    /// As long as its queue pair says, from this moment on.
    Since(Time),
}

/// The result of [`Connection::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes used up. The rest is to be kept and given again, with more behind it.
    pub consumed: usize,
    /// How many frames that were, about: of what moves no bytes, the work.
    pub frames: usize,
    /// Do not read on: a message waits for a receive. As soon as [`Connection::wants_read`] says so
    /// (a transmit or a deadline has found one), give what was kept again, even if nothing new came.
    pub read_paused: bool,
}

/// A connection at one moment, for people who look at a running process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionOverview {
    /// The connection's number and epoch.
    pub id: ConnectionId,
    /// `starting`, `open`, `ending` or `over`.
    pub state: &'static str,
    /// The queue pair that it serves.
    pub queue_pair: Option<QueuePairId>,
    /// Reads of ours that wait for their bytes.
    pub reads: u32,
    /// How many Sends the peer lets begin now; `None`: this wire, or this peer, has no credits.
    pub credit: Option<u32>,
    /// The oldest request waits until the wire lets it begin.
    pub waits_for_peer: bool,
    /// A message of the peer's waits for a receive.
    pub peer_waits_for_receive: bool,
    /// The time-outs that run, each with its end; [`TIME_OUTS`] has what they are.
    pub time_outs: [Option<Time>; TIME_OUTS.len()],
}

/// The event that a connection waits for when a time-out runs: the order of
/// [`ConnectionOverview::time_outs`].
pub const TIME_OUTS: [&str; 6] = [
    "the wire: start-up, the first word of a peer that has promised none, or an acknowledgement that is owed",
    "an answer of the peer",
    "a receive of this program for a message of the peer",
    "a receive of the peer for a Send of this program",
    "the peer to close its end",
    "the peer to take the answers in front of what is refused",
];

/// How a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEnd {
    /// The peer closed it in order, and its system had taken every byte that was written.
    Finished,
    /// The peer closed it with bytes of this side still on their way, or by a reset.
    Closed,
    /// The network gave up on it.
    TimedOut,
    /// The connection could not be made, or failed otherwise.
    Failed(Status),
}

/// The driver's next step with the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkWish {
    /// Keep it.
    Keep,
    /// Write what is queued, shut down the writing side, read to the end, close.
    Finish,
    /// Close it now.
    Close,
}

/// A connection.
pub struct Connection {
    config: ConnectionConfig,
    wire: Box<dyn Wire>,
    phase: ConnectionPhase,
    attention: Attention,
    execution: Option<Execution>,
    /// The word of this side's front for the peer's ([`set_front_word`](transom_wire::StartUp::set_front_word)).
    front_word: Option<u32>,
    facts: Option<Facts>,
    ended: Option<End>,
    /// The message that is refused as soon as nothing is owed before it.
    refused: Option<Refused>,
    intake: Intake,
    /// Messages that needed a receive, taken or dropped, where they are not reliable; and since when
    /// they have found none.
    taken: u64,
    none_since: Option<Time>,
    /// The peer's shared receive queues: the number that its messages name from here on.
    target: Option<u32>,
    /// In whose domains the Reads that are being answered are judged, where each may have its own.
    reading: VecDeque<DomainId>,
    /// Bytes that the Write under way has placed.
    written: u32,
    receive_wait: ReceiveWait,
    /// Receives the wire knows of.
    told_receives: Option<u64>,
    /// Last sign of life.
    heard: Time,
    /// Since when the peer owes something.
    owing: Time,
    close_by: Option<Time>,
    /// Since when a plain peer is given time to finish.
    lingers: Option<Time>,
    /// The connection has ended, and its queue pair goes on without it.
    outlived: bool,
    /// A first message of the peer's has come.
    message_seen: bool,
    /// Other asynchronous events of the queue pair that the program has not got yet.
    events: [Option<QueuePairEvent>; 2],
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("config", &self.config)
            .field("phase", &self.phase)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl From<SetupError> for Status {
    fn from(error: SetupError) -> Status {
        match error {
            SetupError::Order => Status::InvalidState,
            SetupError::PrivateData { .. } => Status::InvalidBufferSize,
        }
    }
}

impl Connection {
    /// A connection over `wire`, before its first byte.
    #[must_use]
    pub fn new(config: ConnectionConfig, wire: Box<dyn Wire>, now: Time) -> Connection {
        Connection {
            config,
            wire,
            phase: ConnectionPhase::Setup,
            attention: Attention::NEW,
            execution: None,
            front_word: None,
            facts: None,
            ended: None,
            refused: None,
            intake: Intake::Reading,
            taken: 0,
            none_since: None,
            target: None,
            reading: VecDeque::new(),
            written: 0,
            receive_wait: ReceiveWait::None,
            told_receives: None,
            heard: now,
            owing: now,
            close_by: None,
            lingers: None,
            outlived: false,
            message_seen: false,
            events: [None; 2],
        }
    }

    /// The connection's number and epoch.
    #[must_use]
    pub fn id(&self) -> ConnectionId {
        self.config.id
    }

    /// The connection as it is now.
    #[must_use]
    pub fn overview(&self) -> ConnectionOverview {
        let execution = self.execution.as_ref();
        ConnectionOverview {
            id: self.id(),
            state: match self.phase {
                ConnectionPhase::Setup => "starting",
                ConnectionPhase::Open => "open",
                ConnectionPhase::Refusing | ConnectionPhase::Closing | ConnectionPhase::Drained => {
                    "ending"
                }
                ConnectionPhase::Closed => "over",
            },
            queue_pair: execution.map(|execution| execution.number),
            reads: execution.map_or(0, |execution| execution.reads),
            credit: self.wire.credit(),
            waits_for_peer: self.attention.has(Attention::REQUEST_WAITS),
            time_outs: self.time_outs(),
            peer_waits_for_receive: self.is_paused(),
        }
    }

    /// The parameters agreed with the peer, once there are any.
    #[must_use]
    pub fn facts(&self) -> Option<&Facts> {
        self.facts.as_ref()
    }

    /// How it ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<End> {
        self.ended
    }

    /// The queue pair's half, for [`QueuePair::carry`](crate::QueuePair::carry).
    pub fn execution(&mut self) -> Option<&mut Execution> {
        self.execution.as_mut()
    }

    /// The wire, for what only it and the driver know (segment size, older start-up forms).
    pub fn wire(&mut self) -> &mut dyn Wire {
        &mut *self.wire
    }

    /// Have a word of this side's front come to the peer's with the request or the acceptance, if both are
    /// Transoms. Before either.
    pub fn set_front_word(&mut self, word: u32) {
        self.front_word = Some(word);
        self.wire.set_front_word(word);
    }

    /// The word of the peer's front, once its request or acceptance has come; `None`: none came with that.
    #[must_use]
    pub fn peer_front_word(&self) -> Option<u32> {
        self.wire.peer_front_word()
    }

    /// Active side, once the link exists: ask the peer.
    ///
    /// # Errors
    /// The wire's error about limits or private data.
    pub fn connect(
        &mut self,
        cx: &mut Cx<'_>,
        execution: Option<Execution>,
        limits: ReadLimits,
        private: &[u8],
    ) -> Result<(), Status> {
        self.set_execution(execution);
        self.announce(cx);
        Ok(self.wire.connect(cx.now, limits, private)?)
    }

    /// Use another wire instead, which is possible until the peer has said something on the first one.
    /// `request`: what an active side has asked for.
    ///
    /// # Errors
    /// `InvalidState` after start-up; the new wire's error about limits or private data.
    pub fn change_wire(
        &mut self,
        cx: &mut Cx<'_>,
        wire: Box<dyn Wire>,
        request: Option<(ReadLimits, &[u8])>,
    ) -> Result<(), Status> {
        if self.phase != ConnectionPhase::Setup || self.ended.is_some() {
            return Err(Status::InvalidState);
        }
        self.wire = wire;
        if let Some(word) = self.front_word {
            self.wire.set_front_word(word);
        }
        self.told_receives = None;
        self.announce(cx);
        match request {
            Some((limits, private)) => Ok(self.wire.connect(cx.now, limits, private)?),
            None => Ok(()),
        }
    }

    /// The peer broke a rule of the link itself: nothing further of it can be believed.
    pub fn broken(&mut self, cx: &mut Cx<'_>, detail: &str) {
        let violation = Violation { blame: Blame::Peer, rule: "rings", detail: detail.to_owned() };
        if self.ended.is_none() {
            let denial = self.record(cx, None, DenialCause::Violation(violation));
            self.end(cx, EndReason::Violation, denial);
        }
        self.enter(ConnectionPhase::Closed);
    }

    /// Passive side: accept the request.
    pub(crate) fn accept(
        &mut self,
        cx: &mut Cx<'_>,
        execution: Option<Execution>,
        limits: ReadLimits,
        private: &[u8],
    ) -> Result<(), Status> {
        self.set_execution(execution);
        self.announce(cx);
        Ok(self.wire.accept(cx.now, limits, private)?)
    }

    /// A queue pair takes over a connection that was made without one.
    pub(crate) fn join(&mut self, cx: &mut Cx<'_>, mut execution: Execution) {
        if self.phase == ConnectionPhase::Open {
            execution.open();
        }
        self.set_execution(Some(execution));
        if let Intake::Held = self.intake {
            self.intake = Intake::Reading;
        }
        self.announce(cx);
    }

    /// Whether messages may flow, and there is no queue pair yet that they could be for. Nothing of the
    /// peer's is taken meanwhile, but its end.
    #[must_use]
    pub fn awaits_queue_pair(&self) -> bool {
        self.phase == ConnectionPhase::Open && self.execution.is_none()
    }

    /// The half that came with an Accept that failed.
    pub fn take_execution(&mut self) -> Option<Execution> {
        let execution = self.execution.take();
        self.attention.set(Attention::CLOSED);
        execution
    }

    /// Passive side: reject the request. The link ends once the answer has been written.
    ///
    /// # Errors
    /// `ConnectionAborted` if the connection has ended; the wire's error about private data.
    pub fn reject(&mut self, cx: &mut Cx<'_>, private: &[u8]) -> Result<(), Status> {
        if self.ended.is_some() {
            return Err(Status::ConnectionAborted);
        }
        self.wire.reject(cx.now, private)?;
        self.close(cx.now);
        Ok(())
    }

    /// Active side: complete the connection that the peer has accepted.
    ///
    /// # Errors
    /// `ConnectionAborted` if the connection has ended; the wire's error.
    pub fn confirm(&mut self, cx: &mut Cx<'_>) -> Result<(), Status> {
        if self.ended.is_some() {
            return Err(Status::ConnectionAborted);
        }
        self.wire.confirm(cx.now)?;
        self.open(cx);
        Ok(())
    }

    /// The queue pair's half of a Connect that came to nothing, or of a connection that the queue pair
    /// outlives, for [`QueuePair::detach`](crate::QueuePair::detach): the queue pair is as it was
    /// before, and may be connected again. Ask after every pass that reported
    /// [`ConnectionEvent::Rejected`] or [`ConnectionEvent::Ended`], and after calls that end a
    /// connection.
    pub fn take_unused(&mut self) -> Option<Execution> {
        if self.ended.is_some() && (self.unused() || self.outlived) {
            self.take_execution()
        } else {
            None
        }
    }

    /// Whether to take asynchronous events of the queue pair now: it has some that the program has not got.
    #[must_use]
    #[inline]
    pub fn has_events(&self) -> bool {
        self.attention.has(Attention::EVENT) || self.ended.is_some()
    }

    /// Takes the queue pair's asynchronous events.
    pub fn take_events(&mut self) -> impl Iterator<Item = QueuePairEvent> + use<> {
        let first = self.attention.has(Attention::EVENT).then_some(QueuePairEvent::FirstMessage);
        self.attention.clear(Attention::EVENT);
        first.into_iter().chain(std::mem::take(&mut self.events).into_iter().flatten())
    }

    /// Whether it has ended, and its queue pair goes on without it.
    #[must_use]
    pub fn is_outlived(&self) -> bool {
        self.outlived
    }

    /// Send again what is posted from now on, behind a request that has failed by itself; what was posted before is
    /// cancelled (Verbs V70). `false`: its queue pair is not here.
    pub fn resume_sends(&mut self, cx: &mut Cx<'_>) -> bool {
        self.start_all(cx);
        let execution = self.execution.as_ref();
        execution.map(|execution| execution.pair.set_sends_failed(false)).is_some()
    }

    /// Whether its queue pair promises nothing about messages (Verbs V96).
    fn is_unreliable(&self) -> bool {
        self.execution.as_ref().is_some_and(|execution| execution.is_unreliable())
    }

    /// Whether messages have flowed, or could have.
    fn has_opened(&self) -> bool {
        self.facts.is_some()
    }

    fn unused(&self) -> bool {
        !self.has_opened() && self.config.role != Role::Passive
    }

    /// Messages flow from now on.
    fn open(&mut self, cx: &mut Cx<'_>) {
        if self.phase != ConnectionPhase::Setup {
            return;
        }
        self.enter(ConnectionPhase::Open);
        self.facts = self.wire.facts();
        debug_assert!(self.has_opened(), "a wire that is open knows what was agreed");
        self.attention.put(Attention::PLAIN, !self.has_extension());
        self.heard = cx.now;
        if let Some(execution) = &mut self.execution {
            execution.open();
        }
        self.trace(cx, What::Established);
        if self.config.role == Role::Passive {
            cx.effects.event(ConnectionEvent::Established);
        }
    }

    /// Whether there is something to transmit.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        match self.phase {
            ConnectionPhase::Drained | ConnectionPhase::Closed => false,
            ConnectionPhase::Setup | ConnectionPhase::Refusing | ConnectionPhase::Closing => {
                self.wire.has_output()
            }
            ConnectionPhase::Open => {
                self.wire.has_output()
                    || self.execution.as_ref().is_some_and(|execution| {
                        execution.under_way.is_some()
                            || (execution.pair.sends_failed() && !execution.requests.is_empty())
                            || (self.seeks_receive() && self.ended.is_none())
                            || (!self.attention.has(Attention::REQUEST_WAITS)
                                && execution.startable().is_some())
                    })
            }
        }
    }

    /// Whether the peer is about to hear that there is no receive for a Send of its: posts that wait may be
    /// carried over before.
    #[must_use]
    pub fn lacks_receive(&self) -> bool {
        self.wire.lacks_receive()
    }

    /// Whether the peer has asked for a receive of the shared queue, in which the next
    /// [`transmit`](Connection::transmit) looks for one.
    #[must_use]
    pub fn seeks_receive(&self) -> bool {
        self.attention.has(Attention::CREDIT_ASKED)
    }

    /// The word with everything that is unusual; a driver sets and clears its own bits.
    pub fn attention(&mut self) -> &mut Attention {
        &mut self.attention
    }

    /// Whether one of these states is on.
    #[must_use]
    #[inline]
    pub fn has_attention(&self, bits: u32) -> bool {
        self.attention.has(bits)
    }

    /// Whether nothing is unusual: nothing has begun, waits, or is owed, but requests that have gone out and
    /// their outcome, so that a message needs no more than [`transmit`](Connection::transmit) and
    /// [`receive_frames`](Connection::receive_frames).
    #[must_use]
    #[inline]
    pub fn is_quiet(&self) -> Option<Quiet> {
        let quiet = self.attention.quiet()?;
        let gone = self.execution.as_ref()?.is_all_gone();
        (gone && self.knows_receives()).then_some(quiet)
    }

    /// Whether the wire knows of every receive.
    #[inline]
    fn knows_receives(&self) -> bool {
        let execution = self.execution.as_ref();
        execution.is_some_and(|execution| self.told_receives == Some(execution.receives_posted))
    }

    /// Whether nothing is unusual about the connection's own steps, and no tracer wants to see each of them.
    #[inline]
    fn quiet(&self, cx: &Cx<'_>) -> Option<Quiet> {
        let quiet = self.attention.of_steps()?;
        let traced = cx.trace.as_deref().is_some_and(Tracer::wants_messages);
        (!traced).then_some(quiet)
    }

    /// Go on to another phase.
    fn enter(&mut self, phase: ConnectionPhase) {
        self.phase = phase;
        let flows = phase == ConnectionPhase::Open && self.execution.is_some();
        self.attention.put(Attention::CLOSED, !flows);
    }

    /// A queue pair's half comes.
    fn set_execution(&mut self, execution: Option<Execution>) {
        self.execution = execution;
        let unusual = self.execution.as_ref().is_some_and(|execution| execution.kind.is_unusual());
        self.attention.put(Attention::KIND, unusual || self.config.role == Role::Itself);
        self.enter(self.phase);
    }

    /// Whether the peer is a Transom that acknowledges messages: the quick steps are for no
    /// other.
    pub(super) fn has_extension(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.extension)
    }

    /// Whether to read from the link: not while a message waits for a receive, or for a queue pair.
    #[must_use]
    pub fn wants_read(&self) -> bool {
        match self.intake {
            Intake::Reading | Intake::Dropping => true,
            Intake::Paused(_) => false,
            Intake::Held => !self.awaits_queue_pair(),
        }
    }

    /// The driver's next step with the link once its buffer is empty.
    #[must_use]
    pub fn link_wish(&self) -> LinkWish {
        match self.phase {
            ConnectionPhase::Setup | ConnectionPhase::Open | ConnectionPhase::Refusing => {
                LinkWish::Keep
            }
            ConnectionPhase::Closing | ConnectionPhase::Drained
                if self.wants_write() || self.lingers.is_some() =>
            {
                LinkWish::Keep
            }
            ConnectionPhase::Closing | ConnectionPhase::Drained => LinkWish::Finish,
            ConnectionPhase::Closed => LinkWish::Close,
        }
    }

    /// A pass found nothing to do.
    pub fn idle_pass(&mut self) {
        self.wire.release(Release::IdlePass);
    }

    /// A thread is about to block: let owed acknowledgements go. Call
    /// [`transmit`](Connection::transmit) afterwards.
    pub fn before_blocking(&mut self) {
        self.wire.release(Release::Now);
    }

    fn trace(&self, cx: &mut Cx<'_>, what: What) {
        if let Some(tracer) = cx.trace.as_deref_mut() {
            let queue_pair = self.execution.as_ref().map(|execution| execution.number);
            let connection = self.config.id.number;
            tracer.event(&TraceEvent { time: cx.now, connection, queue_pair, what });
        }
    }

    /// Show a frame of the peer's before it is judged.
    fn show(&self, cx: &mut Cx<'_>, bytes: &[u8]) {
        if let Some(tracer) = cx.trace.as_deref_mut().filter(|tracer| tracer.wants_frames()) {
            tracer.frame(&FrameTrace { framing: self.wire.framing(), inbound: true, bytes });
        }
    }
}
