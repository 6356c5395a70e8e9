//! The front half of a queue pair: what a posting thread touches.
//!
//! A plain value: the driver puts it behind a small lock that is never held while bytes move. A
//! connection's own half is the [`Execution`]; [`QueuePair::exchange`] carries posts one way and
//! freed places the other.

use transom_memory::{DomainId, Memory, QueuePairId};
use transom_wire::Time;

use crate::dialect::Places;
use crate::exec::Execution;
use crate::queue::RequestQueue;
use crate::tables::{Posting, QueuePairState};
use crate::{
    Completion, CompletionFlags, Data, Dialect, Effects, Flags, Operation, Request, Sge, Side,
    Status,
};

/// Kind of a queue pair. Only [`QueuePairKind::Rc`] is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QueuePairKind {
    /// Reliable, connected.
    #[default]
    Rc,
    /// Unreliable, connected.
    Uc,
    /// Datagrams.
    Ud,
}

/// What a queue pair is made with.
#[derive(Clone, Copy, Debug)]
pub struct QueuePairConfig {
    /// Its number: random, 24 bits, unique in its adapter while it lives.
    pub number: QueuePairId,
    /// Its protection domain.
    pub domain: DomainId,
    /// Comes back in every completion.
    pub context: u64,
    /// Kind.
    pub kind: QueuePairKind,
    /// The rules it follows.
    pub dialect: &'static Dialect,
    /// Requests outstanding at a time.
    pub initiator_depth: u32,
    /// Receives outstanding at a time; 0 with a shared queue.
    pub receive_depth: u32,
    /// Entries of a request's list.
    pub initiator_sge: u32,
    /// Entries of a receive's list.
    pub receive_sge: u32,
    /// Bytes of an inline request.
    pub inline_size: u32,
    /// Bytes of a transfer.
    pub largest_transfer: u64,
    /// Receives come from a shared queue.
    pub shared: bool,
}

/// The front half.
#[derive(Debug)]
pub struct QueuePair {
    config: QueuePairConfig,
    state: QueuePairState,
    attached: bool,
    /// Its connection is gone, and its requests wait for the program to disconnect.
    kept: bool,
    posted: RequestQueue,
    receives: RequestQueue,
    /// Requests that take up a place.
    outstanding: u32,
    outstanding_receives: u32,
}

/// Pieces of memory in one fast registration: 256 MiB of pages that lie apart.
const MOST_PIECES: usize = 1 << 16;

/// Sum of a list, or why it is refused inline (ND2 2.9).
pub(crate) fn admit(list: &[Sge], max_sge: usize, largest: u64) -> Result<u64, Status> {
    if list.len() > max_sge {
        return Err(Status::DataOverrun);
    }
    let length = list.iter().map(|sge| u64::from(sge.length)).sum();
    if length > largest { Err(Status::BufferOverflow) } else { Ok(length) }
}

impl QueuePair {
    /// A queue pair, idle.
    #[must_use]
    pub fn new(config: QueuePairConfig) -> QueuePair {
        QueuePair {
            config,
            state: QueuePairState::Idle,
            attached: false,
            kept: false,
            posted: RequestQueue::default(),
            receives: RequestQueue::default(),
            outstanding: 0,
            outstanding_receives: 0,
        }
    }

    /// What it was made with.
    #[must_use]
    pub fn config(&self) -> &QueuePairConfig {
        &self.config
    }

    /// Its state.
    #[must_use]
    pub fn state(&self) -> QueuePairState {
        self.state
    }

    /// Whether a connection has its other half.
    #[must_use]
    pub fn attached(&self) -> bool {
        self.attached
    }

    /// Post a request. An error changes nothing. Afterwards the driver runs the connection; without
    /// one it calls [`QueuePair::complete_ended`].
    pub fn post(&mut self, request: &Request, data: Data<'_>) -> Result<(), Status> {
        self.gate(self.config.dialect.posting.initiator)?;
        let length = self.judge(request, data)?;
        if self.outstanding >= self.config.initiator_depth {
            return Err(Status::NoMoreEntries);
        }
        self.outstanding += 1;
        self.posted.push(request.context, request.operation, request.flags, data, length);
        Ok(())
    }

    /// Post several requests, in order: all of them, or, after an error, none.
    pub fn post_list<'a>(
        &mut self,
        list: impl Iterator<Item = (Request, Data<'a>)> + Clone,
    ) -> Result<(), Status> {
        self.gate(self.config.dialect.posting.initiator)?;
        // Once to know that all may be posted, and once to post them: the list is walked twice, and what
        // was found the first time has no place that costs no allocation.
        let mut count = 0_u32;
        for (request, data) in list.clone() {
            self.judge(&request, data)?;
            count = count.saturating_add(1);
        }
        if count > self.config.initiator_depth.saturating_sub(self.outstanding) {
            return Err(Status::NoMoreEntries);
        }
        self.outstanding += count;
        for (request, data) in list {
            let length = self.judge(&request, data)?;
            self.posted.push(request.context, request.operation, request.flags, data, length);
        }
        Ok(())
    }

    /// Whether a request may be posted at all; its length.
    fn judge(&self, request: &Request, data: Data<'_>) -> Result<u64, Status> {
        let length = match data {
            Data::Sges(list) => {
                admit(list, self.config.initiator_sge as usize, self.config.largest_transfer)?
            }
            Data::Inline(bytes) if bytes.len() <= self.config.inline_size as usize => {
                bytes.len() as u64
            }
            Data::Inline(_) => return Err(Status::BufferOverflow),
            Data::Memory(pieces) if pieces.len() > MOST_PIECES => return Err(Status::DataOverrun),
            Data::Memory(_) => 0,
        };
        match request.operation {
            Operation::Send
            | Operation::SendWithInvalidate { .. }
            | Operation::Write { .. }
            | Operation::Read { .. }
            | Operation::Bind { .. }
            | Operation::Invalidate { .. }
            | Operation::FastRegister { .. } => {}
            _ => return Err(Status::NotSupported),
        }
        let registers = matches!(request.operation, Operation::FastRegister { .. });
        if registers != matches!(data, Data::Memory(_)) {
            return Err(Status::InvalidRequest);
        }
        if length > 0
            && (!request.operation.has_data()
                || matches!((request.operation, data), (Operation::Read { .. }, Data::Inline(_))))
        {
            return Err(Status::InvalidRequest);
        }
        Ok(length)
    }

    /// Post a receive. An error changes nothing.
    pub fn post_receive(&mut self, context: u64, list: &[Sge]) -> Result<(), Status> {
        if self.config.shared {
            return Err(Status::InvalidRequest);
        }
        self.gate(self.config.dialect.posting.receive)?;
        let length = admit(list, self.config.receive_sge as usize, self.config.largest_transfer)?;
        if self.outstanding_receives >= self.config.receive_depth {
            return Err(Status::NoMoreEntries);
        }
        self.outstanding_receives += 1;
        self.receives.push(context, Operation::Receive, Flags::NONE, Data::Sges(list), length);
        Ok(())
    }

    fn gate(&self, row: [Posting; 6]) -> Result<(), Status> {
        match row[self.state as usize] {
            Posting::Accept | Posting::Cancel => Ok(()),
            Posting::Refuse(status) => Err(status),
        }
    }

    /// Give the other half to a connection that is being made (`Connecting` or `Accepting`).
    pub fn attach(&mut self, state: QueuePairState) -> Result<Execution, Status> {
        if self.attached {
            return Err(Status::ConnectionActive);
        }
        match self.state {
            QueuePairState::Idle => {}
            // Not to be used again after a disconnect or a flush (ND2 2.9).
            _ => return Err(Status::InvalidState),
        }
        self.attached = true;
        self.state = state;
        Ok(Execution::new(&self.config, state))
    }

    /// Take the other half back: of a Connect that failed, the queue pair is as it was before it; of
    /// a connection that is over, it stays in error.
    pub fn detach(&mut self, mut execution: Execution) {
        self.exchange(&mut execution);
        self.attached = false;
        self.kept = execution.kept;
        if matches!(self.state, QueuePairState::Connecting | QueuePairState::Accepting) {
            self.state = QueuePairState::Idle;
        }
        self.posted = std::mem::take(&mut execution.requests);
        self.receives = std::mem::take(&mut execution.receives);
    }

    /// Places are free again that [`Execution::take_freed`] has counted.
    pub fn free(&mut self, requests: u32, receives: u32) {
        self.outstanding = self.outstanding.saturating_sub(requests);
        self.outstanding_receives = self.outstanding_receives.saturating_sub(receives);
    }

    /// Carry new posts to the other half, and its freed places and state back. Call it under the
    /// link's lock, before a pass and after it, before completions are queued. `true`: something new
    /// came over.
    pub fn exchange(&mut self, execution: &mut Execution) -> bool {
        let (requests, receives) = execution.take_freed();
        self.free(requests, receives);
        self.state = execution.state;
        execution.told = execution.state;
        let news = !self.posted.is_empty() || !self.receives.is_empty();
        execution.receives_posted += self.receives.len() as u64;
        execution.requests.append(&mut self.posted);
        execution.receives.append(&mut self.receives);
        news
    }

    /// Without a connection: complete what was posted behind a flush (ND2 4.1, last rows). Does
    /// nothing in other states.
    /// Binds among it never execute: their tokens never live (ND1 MW-5).
    pub fn complete_ended(&mut self, memory: &Memory, now: Time, effects: &mut Effects) {
        if self.attached
            || self.kept
            || !matches!(self.state, QueuePairState::Error | QueuePairState::Disconnected)
        {
            return;
        }
        let receives = std::iter::from_fn(|| self.receives.pop()).map(|s| (Side::Receive, s));
        for (side, slot) in
            receives.chain(std::iter::from_fn(|| self.posted.pop()).map(|s| (Side::Initiator, s)))
        {
            if let Operation::Bind { window } = slot.operation {
                memory.abandon(window, now.0);
            }
            let completion = Completion {
                request_context: slot.context,
                queue_pair_context: self.config.context,
                queue_pair: self.config.number,
                kind: slot.operation.kind(),
                status: Status::Canceled,
                length: 0,
                value: 0,
                flags: CompletionFlags::default(),
                denial: 0,
            };
            effects.complete(side, completion);
        }
        if self.config.dialect.places == Places::UntilCompleted {
            self.outstanding = 0;
            self.outstanding_receives = 0;
        }
    }

    /// The program has retrieved a completion: where the dialect says so, its place is free only now.
    pub fn retrieved(&mut self, receive: bool) {
        if self.config.dialect.places == Places::UntilRetrieved {
            let place =
                if receive { &mut self.outstanding_receives } else { &mut self.outstanding };
            *place = place.saturating_sub(1);
        }
    }

    /// Flush without a connection (ND2 4.9). With one, see [`Connection::flush`](crate::Connection::flush).
    pub fn flush(&mut self, memory: &Memory, now: Time, effects: &mut Effects) {
        if !self.attached {
            if self.state == QueuePairState::Idle {
                self.state = QueuePairState::Error;
            }
            self.kept = false;
            self.complete_ended(memory, now, effects);
        }
    }

    /// This side disconnects what has no connection any more.
    pub fn disconnected(&mut self, memory: &Memory, now: Time, effects: &mut Effects) {
        if !self.attached && self.state == QueuePairState::Error {
            self.state = QueuePairState::Disconnected;
            self.kept = false;
            self.complete_ended(memory, now, effects);
        }
    }

    /// Requests and receives that take up places: posted and not completed, or as the dialect says.
    #[must_use]
    pub fn outstanding(&self) -> (u32, u32) {
        (self.outstanding, self.outstanding_receives)
    }
}
