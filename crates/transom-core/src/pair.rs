//! A queue pair as both of its halves have it: parameters, state, limits and rights, the places of its queues, and the one
//! rule by which requests and receives enter them, whichever half takes them: the state, the request itself, a place in
//! the queue. A [`Chain`](crate::Chain) applies it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use transom_memory::Rights;

use crate::chain::ReceiveChain;
use crate::occupancy::Occupancy;
use crate::queue::RequestQueue;
use crate::tables::{Posting, QueuePairState};
use crate::{
    Data, Effects, Flags, Limits, Operation, QueuePairConfig, Request, Settle, Sge, Status,
};

/// Pieces of memory in one fast registration: 256 MiB of pages that lie apart.
const MOST_PIECES: usize = 1 << 16;

/// A queue pair. The half that has a connection writes its state under the lock of the link; without a connection the
/// front half does. Whoever reads it has been told of a change by a completion, an event or a call that has returned.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) config: QueuePairConfig,
    state: AtomicU8,
    /// Where requests are not reliable: one has failed by itself, and those behind it are cancelled
    /// (Verbs V70).
    sends_failed: AtomicBool,
    /// The operations that the peer may use at all.
    access: AtomicU16,
    limits: AtomicLimits,
    /// Takes requests that succeed, in place of a completion queue.
    settle: Option<Arc<dyn Settle>>,
    pub(crate) requests: Occupancy,
    pub(crate) receives: Occupancy,
}

/// [`Limits`] that a program changes at any time.
#[derive(Debug)]
struct AtomicLimits {
    connection: AtomicU64,
    reconnection: AtomicU64,
    receive: AtomicU64,
    one_try: AtomicBool,
    refuses_reads: AtomicBool,
}

/// In place of nanoseconds: for ever.
const FOR_EVER: u64 = u64::MAX;

/// How a request leaves its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leaving {
    /// Without a completion.
    Silent,
    /// To be [settled](Pair::settle).
    Settled,
    /// With a completion that has this place.
    Completes(u32),
}

/// Sum of a list, or why it is refused inline (ND2 2.9).
#[inline]
pub(crate) fn admit(list: &[Sge], max_sge: usize, largest: u64) -> Result<u64, Status> {
    if list.len() > max_sge {
        return Err(Status::DataOverrun);
    }
    let length = match list {
        [only] => u64::from(only.length), // as most are
        list => list.iter().map(|sge| u64::from(sge.length)).sum(),
    };
    if length > largest { Err(Status::BufferOverflow) } else { Ok(length) }
}

fn gate(row: &[Posting; 6], state: QueuePairState) -> Result<(), Status> {
    match row[state as usize] {
        Posting::Accept | Posting::Cancel => Ok(()),
        Posting::Refuse(status) => Err(status),
    }
}

impl Pair {
    pub(crate) fn new(config: QueuePairConfig, settle: Option<Arc<dyn Settle>>) -> Pair {
        Pair {
            config,
            state: AtomicU8::new(QueuePairState::Idle as u8),
            sends_failed: AtomicBool::new(false),
            access: AtomicU16::new(Rights::REMOTE.0),
            limits: AtomicLimits {
                connection: AtomicU64::new(FOR_EVER),
                reconnection: AtomicU64::new(FOR_EVER),
                receive: AtomicU64::new(FOR_EVER),
                one_try: AtomicBool::new(false),
                refuses_reads: AtomicBool::new(false),
            },
            settle,
            requests: Occupancy::new(config.initiator_depth),
            receives: Occupancy::new(config.receive_depth),
        }
    }

    #[inline]
    pub(crate) fn state(&self) -> QueuePairState {
        let state = usize::from(self.state.load(Ordering::Relaxed));
        QueuePairState::ALL.get(state).copied().unwrap_or_default()
    }

    /// Go on to another state.
    pub(crate) fn enter(&self, state: QueuePairState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// Whether a request has failed by itself where requests are not reliable, so that those behind it are
    /// cancelled (Verbs V70).
    #[inline]
    pub(crate) fn sends_failed(&self) -> bool {
        self.sends_failed.load(Ordering::Relaxed)
    }

    pub(crate) fn set_sends_failed(&self, failed: bool) {
        self.sends_failed.store(failed, Ordering::Relaxed);
    }

    /// The operations that the peer may use at all.
    #[inline]
    pub(crate) fn access(&self) -> Rights {
        Rights(self.access.load(Ordering::Relaxed))
    }

    pub(crate) fn set_access(&self, access: Rights) {
        self.access.store(access.0, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn limits(&self) -> Limits {
        let time = |limit: &AtomicU64| match limit.load(Ordering::Relaxed) {
            FOR_EVER => None,
            nanoseconds => Some(Duration::from_nanos(nanoseconds)),
        };
        Limits {
            connection: time(&self.limits.connection),
            reconnection: time(&self.limits.reconnection),
            receive: time(&self.limits.receive),
            one_try: self.limits.one_try.load(Ordering::Relaxed),
            refuses_reads: self.limits.refuses_reads.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        let set = |limit: &AtomicU64, time: Option<Duration>| {
            let nanoseconds = time.and_then(|time| u64::try_from(time.as_nanos()).ok());
            limit.store(nanoseconds.unwrap_or(FOR_EVER), Ordering::Relaxed);
        };
        set(&self.limits.connection, limits.connection);
        set(&self.limits.reconnection, limits.reconnection);
        set(&self.limits.receive, limits.receive);
        self.limits.one_try.store(limits.one_try, Ordering::Relaxed);
        self.limits.refuses_reads.store(limits.refuses_reads, Ordering::Relaxed);
    }

    /// Settle a request that has succeeded.
    #[inline]
    pub(crate) fn settle(&self, context: u64, effects: &mut Effects) {
        if let Some(settle) = &self.settle {
            settle.settle(context, &mut effects.later);
            effects.settled = true;
        }
    }

    /// Whether no request behind one that ends with this status succeeds, executed or not (Verbs V67).
    pub(crate) fn fails_what_follows(&self, status: Status) -> bool {
        self.config.dialect.flushes_acknowledged && !status.is_success()
    }

    /// The oldest request leaves its queue with this status: whether a completion follows, and its
    /// [`place`](crate::Completion::place). Settled requests have none.
    #[inline]
    pub(crate) fn leave(&self, flags: Flags, status: Status) -> Leaving {
        let silent = flags.contains(Flags::SILENT_SUCCESS) && status.is_success();
        let settled = self.settle.is_some() && status.is_success();
        if settled || silent && !self.config.dialect.silent_keeps_its_place {
            self.requests.free();
            return if silent { Leaving::Silent } else { Leaving::Settled };
        }
        let place = self.requests.complete();
        if silent { Leaving::Silent } else { Leaving::Completes(place) }
    }

    /// Whether requests may be posted now.
    #[inline]
    pub(crate) fn takes_requests(&self) -> Result<(), Status> {
        gate(&self.config.dialect.posting.initiator, self.state())
    }

    /// Receives for `queue`, of which `expected` are expected.
    #[inline]
    pub(crate) fn receive_chain<'a>(
        &'a self,
        queue: &'a mut RequestQueue,
        expected: usize,
    ) -> ReceiveChain<'a> {
        let open = if self.config.shared {
            Err(Status::InvalidRequest)
        } else {
            gate(&self.config.dialect.posting.receive, self.state())
        };
        let most = (self.config.receive_sge as usize, self.config.largest_transfer);
        ReceiveChain::new(open, queue, most, &self.receives, expected)
    }

    /// Put one request behind those in `queue`: a [`Chain`](crate::Chain) of one, which reserves nothing and so
    /// costs less. An error changes nothing.
    #[inline]
    pub(crate) fn post(
        &self,
        queue: &mut RequestQueue,
        request: &Request,
        data: Data<'_>,
    ) -> Result<(), Status> {
        self.takes_requests()?;
        let length = self.judge(request, data)?;
        if self.requests.take_some(1) == 0 {
            return Err(Status::NoMoreEntries);
        }
        queue.push(request.context, request.operation, request.flags, data, length);
        Ok(())
    }

    /// Whether a request that takes no place, because it is over at once, may be posted.
    #[inline]
    pub(crate) fn probe(&self, request: &Request, data: Data<'_>) -> Result<(), Status> {
        self.takes_requests()?;
        self.judge(request, data)?;
        if self.requests.has_room() { Ok(()) } else { Err(Status::NoMoreEntries) }
    }

    /// Whether a request may be posted at all; its length.
    #[inline]
    pub(crate) fn judge(&self, request: &Request, data: Data<'_>) -> Result<u64, Status> {
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
            | Operation::SendWithImmediate { .. }
            | Operation::Write { .. }
            | Operation::WriteWithImmediate { .. }
            | Operation::Read { .. }
            | Operation::Bind { .. }
            | Operation::BindStanding { .. }
            | Operation::Invalidate { .. }
            | Operation::FastRegister { .. } => {}
            Operation::Atomic { .. } if length == 8 => {}
            Operation::Atomic { .. } => return Err(Status::InvalidRequest),
            Operation::Unsupported { status } if !status.is_success() => {}
            Operation::Unsupported { .. } | Operation::Receive => {
                return Err(Status::NotSupported);
            }
        }
        let registers = matches!(request.operation, Operation::FastRegister { .. });
        if registers != matches!(data, Data::Memory(_)) {
            return Err(Status::InvalidRequest);
        }
        if length > 0
            && (!request.operation.has_data()
                || request.operation.fetches() && matches!(data, Data::Inline(_)))
        {
            return Err(Status::InvalidRequest);
        }
        Ok(length)
    }
}
