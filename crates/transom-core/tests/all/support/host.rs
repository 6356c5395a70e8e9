//! A machine: an adapter with one queue pair, one connector, one completion queue.

use std::sync::{Mutex, PoisonError};

use transom_memory::{
    Config, DomainId, Lane, Memory, QueuePairId, Registration, Rights, Scope, Segment, Token,
    WindowSpec,
};
use transom_wire::{ReadLimits, Time};

use super::Arena;
use transom_core::{
    Caps, Completion, CompletionQueue, Connection, ConnectionEvent, Connector, Cx, Data, DenialLog,
    DenialRecord, Denials, Dialect, Effect, Effects, Finished, Flags, Listener, Operation,
    QueuePair, QueuePairConfig, QueuePairKind, Received, Request, RequestQueue, Sge,
    SharedReceiveQueue, SharedReceives, Side, Status,
};

/// The parameters of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostConfig {
    /// The rules its objects follow.
    pub(crate) dialect: &'static Dialect,
    /// Kind of its queue pair.
    pub(crate) kind: QueuePairKind,
    /// Depth of its completion queue.
    pub(crate) cq_depth: usize,
    /// Depth of both queues of its queue pair.
    pub(crate) depth: u32,
    /// Entries of a list.
    pub(crate) sge: u32,
    /// Receives come from a shared queue.
    pub(crate) shared: bool,
    /// The domain in which they are judged.
    pub(crate) receive_domain: DomainId,
    /// The adapter's capabilities.
    pub(crate) caps: Caps,
    /// Tell the peer all about refusals.
    pub(crate) explain: bool,
}

impl HostConfig {
    /// Roomy queues of a dialect.
    #[must_use]
    pub(crate) fn new(dialect: &'static Dialect) -> HostConfig {
        HostConfig {
            dialect,
            kind: QueuePairKind::Rc,
            cq_depth: 64,
            depth: 64,
            sge: 8,
            shared: false,
            receive_domain: DOMAIN,
            caps: Caps {
                reads: ReadLimits { inbound: 16, outbound: 16 },
                caller_data: 500,
                callee_data: 500,
            },
            explain: false,
        }
    }
}

/// Registered memory of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffer {
    /// The region's token.
    pub(crate) token: Token,
    /// Address of the first byte.
    pub(crate) address: u64,
    /// Length in bytes.
    pub(crate) length: u64,
}

impl Buffer {
    /// A list of one entry: `length` bytes from `offset` on.
    #[must_use]
    pub(crate) fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { token: self.token.0, address: self.address + offset, length }
    }

    /// A list of one entry: all of it.
    #[must_use]
    pub(crate) fn all(&self) -> Sge {
        self.sge(0, u32::try_from(self.length).unwrap_or(u32::MAX))
    }
}

/// An event that a program would have seen; they are kept in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// An entry was added to the completion queue.
    Completion(Side, Completion),
    /// A notification of the completion queue fired.
    Fired(Finished),
    /// A call ended.
    Finished(Finished),
    /// The connection reported this.
    Event(ConnectionEvent),
}

/// Denials behind a lock, as a driver keeps them.
#[derive(Debug)]
pub(crate) struct Kept(pub Mutex<DenialLog>);

impl Denials for Kept {
    fn record(&self, record: DenialRecord) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).record(record)
    }

    fn explain(&self, id: u64) -> Option<String> {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.get(id).map(|record| record.cause.to_string())
    }
}

/// A shared receive queue behind a lock, as a driver keeps it.
#[derive(Debug)]
pub(crate) struct Shared(pub Mutex<(SharedReceiveQueue, Vec<Finished>)>);

impl SharedReceives for Shared {
    fn take(&self, queue_pair: QueuePairId, into: &mut RequestQueue) -> bool {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (queue, fired) = &mut *queue;
        queue.take(queue_pair, into, fired)
    }

    fn aim(&self, number: u32) -> Option<DomainId> {
        (number == TARGET).then_some(DOMAIN)
    }

    fn give_back(&self, unused: &mut RequestQueue) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.give_back(unused);
    }
}

/// A machine. Everything is public: tests look.
#[derive(Debug)]
pub(crate) struct Host {
    /// The parameters of the host.
    pub(crate) config: HostConfig,
    /// Tokens, regions and windows.
    pub(crate) memory: Memory,
    lane: Lane,
    /// The bytes of the regions.
    pub(crate) arena: Arena,
    next_address: u64,
    /// Records of refusals.
    pub(crate) denials: Kept,
    /// The shared receive queue.
    pub(crate) shared: Shared,
    /// The queue pair.
    pub(crate) queue_pair: QueuePair,
    /// The connector.
    pub(crate) connector: Connector,
    /// The listener.
    pub(crate) listener: Listener,
    /// The connection, while there is one.
    pub(crate) connection: Option<Connection>,
    /// The completion queue, for requests and receives alike.
    pub(crate) cq: CompletionQueue,
    /// The queue pair's two queues there.
    members: [u32; 2],
    effects: Effects,
    /// Everything that the program would have seen.
    pub(crate) seen: Vec<Seen>,
    /// The event stream, if it is on.
    pub(crate) trace: Option<Vec<transom_core::trace::TraceEvent>>,
    /// Whether what it reports is looked at (a benchmark does not).
    pub(crate) quiet: bool,
}

/// The number of the shared receive queue of a host in an XRC domain.
pub(crate) const TARGET: u32 = 7;

/// The protection domain of every host.
pub(crate) const DOMAIN: DomainId = DomainId(1);

impl Host {
    /// A host with the `number` that distinguishes it from the other.
    #[must_use]
    pub(crate) fn new(config: HostConfig, number: u32) -> Host {
        let dialect = config.dialect;
        let largest_transfer = 1 << 30;
        let queue_pair = QueuePair::new(QueuePairConfig {
            number: QueuePairId(number),
            domain: DOMAIN,
            context: 0xC0 + u64::from(number),
            kind: config.kind,
            dialect,
            initiator_depth: config.depth,
            receive_depth: config.depth,
            initiator_sge: config.sge,
            receive_sge: config.sge,
            inline_size: 256,
            largest_transfer,
            shared: config.shared,
            receive_domain: config.receive_domain,
        });
        let mut cq = CompletionQueue::new(config.cq_depth, dialect.completion_queues);
        cq.set_overrun(dialect.overrun);
        let depth = config.depth as usize;
        let (requests, receives) = queue_pair.places();
        let queue = SharedReceiveQueue::new(depth, config.sge as usize, largest_transfer);
        let receives = if config.shared { queue.places() } else { receives };
        let members = [cq.bind(requests, depth), cq.bind(receives, depth)];
        let memory = Memory::new(
            [number as u8; 32],
            Config { largest_region: 1 << 40, most_tokens: 1 << 16, ..Config::default() },
        );
        let lane = memory.lane();
        Host {
            config,
            lane,
            memory,
            arena: Arena::default(),
            next_address: 0x10_0000 * u64::from(number),
            denials: Kept(Mutex::new(DenialLog::new(64))),
            shared: Shared(Mutex::new((queue, Vec::new()))),
            queue_pair,
            members,
            connector: Connector::new(dialect, config.caps),
            listener: Listener::new(dialect),
            connection: None,
            cq,
            effects: Effects::default(),
            seen: Vec::new(),
            trace: None,
            quiet: false,
        }
    }

    /// Another queue pair in place of the one that there is.
    pub(crate) fn set_queue_pair(&mut self, queue_pair: QueuePair) {
        let (requests, receives) = queue_pair.places();
        self.members.into_iter().for_each(|member| self.cq.unbind(member));
        let depth = self.config.depth as usize;
        let shared = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let receives = if self.config.shared { shared.0.places() } else { receives };
        self.members = [self.cq.bind(requests, depth), self.cq.bind(receives, depth)];
        drop(shared);
        self.queue_pair = queue_pair;
    }

    /// Do `then` with everything a call into the core needs, and carry out its effects.
    pub(crate) fn with<T>(
        &mut self,
        now: Time,
        then: impl FnOnce(&mut Connector, Option<&mut Connection>, &mut QueuePair, &mut Cx<'_>) -> T,
    ) -> T {
        self.carry();
        let mut trace = self
            .trace
            .as_mut()
            .map(|list| move |event: &transom_core::trace::TraceEvent| list.push(*event));
        let mut cx = Cx {
            now,
            memory: &self.memory,
            lane: &mut self.lane,
            host: &self.arena,
            denials: &self.denials,
            shared: self.config.shared.then_some(&self.shared as &dyn SharedReceives),
            effects: &mut self.effects,
            trace: trace.as_mut().map(|trace| trace as &mut dyn transom_core::trace::Tracer),
        };
        let result =
            then(&mut self.connector, self.connection.as_mut(), &mut self.queue_pair, &mut cx);
        self.carry_out();
        result
    }

    fn carry(&mut self) {
        if let Some(execution) = self.connection.as_mut().and_then(Connection::execution) {
            self.queue_pair.carry(execution);
        }
    }

    fn carry_out(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        let mut fired = Vec::new();
        let mut list = effects.list.drain(..).peekable();
        while let Some(effect) = list.next() {
            match effect {
                Effect::Complete(side, completion) => {
                    let explained = || self.denials.explain(completion.denial).is_some();
                    let failed = !completion.status.is_success();
                    let right = completion.denial == 0 || failed && explained();
                    assert!(right, "no record, or none is due: {completion:?}");
                    let member = self.members[usize::from(side != Side::Initiator)];
                    let stamped = Completion { member, ..completion };
                    if self.cq.push(stamped).is_ok() && !self.quiet {
                        self.seen.push(Seen::Completion(side, completion));
                    }
                    if matches!(list.peek(), Some(Effect::Complete(..))) {
                        continue;
                    }
                    self.cq.fire(&mut fired);
                    self.seen.extend(fired.drain(..).map(Seen::Fired));
                }
                Effect::Finished(finished) => self.seen.push(Seen::Finished(finished)),
                Effect::Event(event) => {
                    let mut more = Effects::default();
                    match &event {
                        ConnectionEvent::Requested { limits, private } => {
                            let offer =
                                transom_core::Offer { limits: *limits, private: private.clone() };
                            let incoming = transom_core::Incoming { link: 0, offer };
                            if let Some((_, incoming)) = self.listener.arrived(incoming) {
                                self.connector.request(incoming.offer, &mut more);
                            }
                        }
                        event => self.connector.on_event(event, &mut more),
                    }
                    self.seen.push(Seen::Event(event));
                    for effect in more.list {
                        if let Effect::Finished(finished) = effect {
                            self.seen.push(Seen::Finished(finished));
                        }
                    }
                }
            }
        }
        drop(list);
        self.effects = effects;
        if let Some(execution) = self.connection.as_mut().and_then(Connection::take_unused) {
            self.queue_pair.detach(execution);
        }
    }

    /// Bytes have come in.
    pub(crate) fn receive(&mut self, now: Time, bytes: &[u8]) -> Received {
        self.with(now, |_, connection, _, cx| match connection {
            Some(connection) => connection.receive(cx, bytes),
            None => Received { consumed: bytes.len(), frames: 0, read_paused: false },
        })
    }

    /// Let it write.
    pub(crate) fn transmit(&mut self, now: Time, out: &mut impl transom_wire::Carrier) {
        self.with(now, |_, connection, _, cx| {
            if let Some(connection) = connection {
                connection.transmit(cx, out);
            }
        });
    }

    /// Memory of `bytes`, registered.
    pub(crate) fn register(&mut self, bytes: Vec<u8>, rights: Rights) -> Buffer {
        let (address, length) = (self.next_address, bytes.len() as u64);
        self.next_address += (length + 0x1FFF) & !0xFFF;
        self.register_at(address, bytes, rights).unwrap_or(Buffer {
            token: Token(0),
            address,
            length,
        })
    }

    /// Memory of `bytes` at an address of the caller's, registered: for replays.
    pub(crate) fn register_at(
        &mut self,
        address: u64,
        bytes: Vec<u8>,
        rights: Rights,
    ) -> Option<Buffer> {
        let length = bytes.len() as u64;
        self.arena.insert(address, bytes);
        let token = self
            .memory
            .register(&Registration {
                scope: Scope::Domain(DOMAIN),
                rights: rights | Rights::LOCAL_READ | Rights::BIND,
                base: address,
                segments: &[Segment { host: address, length }],
            })
            .ok()?;
        Some(Buffer { token, address, length })
    }

    /// A window on a part of a buffer, its Bind posted.
    pub(crate) fn bind(
        &mut self,
        buffer: &Buffer,
        offset: u64,
        length: u64,
        rights: Rights,
        request: Request,
    ) -> Result<Buffer, Status> {
        let token = self
            .memory
            .reserve(
                &WindowSpec {
                    region: buffer.token,
                    domain: DOMAIN,
                    scope: Scope::QueuePair(DOMAIN, self.queue_pair.config().number),
                    base: buffer.address + offset,
                    length,
                    rights,
                },
                0,
            )
            .map_err(|_| Status::LocalAccess)?;
        let request = Request { operation: Operation::Bind { window: token }, ..request };
        if let Err(status) = self.queue_pair.post(&request, Data::Sges(&[])) {
            self.memory.abandon(token, 0);
            return Err(status);
        }
        Ok(Buffer { token, address: buffer.address + offset, length })
    }

    /// Post a request.
    pub(crate) fn post(
        &mut self,
        context: u64,
        operation: Operation,
        flags: Flags,
        list: &[Sge],
    ) -> Result<(), Status> {
        let request = Request { context, operation, flags };
        let result = self.queue_pair.post(&request, Data::Sges(list));
        self.settle();
        result
    }

    /// Post a receive, to the shared queue if there is one.
    pub(crate) fn post_receive(&mut self, context: u64, list: &[Sge]) -> Result<(), Status> {
        if self.config.shared {
            let mut queue = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
            return queue.0.post(context, list, &mut Vec::new());
        }
        let result = self.queue_pair.post_receive(context, list);
        self.settle();
        result
    }

    fn settle(&mut self) {
        if !self.queue_pair.is_attached() {
            self.with(Time(0), |_, _, queue_pair, cx| {
                queue_pair.execute_unconnected(cx);
                queue_pair.complete_ended(cx.memory, cx.now, cx.effects);
            });
        }
        self.carry_out();
    }

    /// Everything in the completion queue.
    pub(crate) fn completions(&mut self) -> Vec<Completion> {
        let all: Vec<_> = std::iter::from_fn(|| self.cq.pop()).collect();
        all
    }

    /// (context, status) of everything in the completion queue.
    pub(crate) fn outcomes(&mut self) -> Vec<(u64, Status)> {
        self.completions().iter().map(|c| (c.request_context, c.status)).collect()
    }

    /// How the call of `waiter` ended, if it has.
    #[must_use]
    pub(crate) fn finished(&self, waiter: u64) -> Option<Status> {
        self.seen.iter().find_map(|seen| match seen {
            Seen::Finished(finished) if finished.waiter == waiter => Some(finished.status),
            _ => None,
        })
    }
}
