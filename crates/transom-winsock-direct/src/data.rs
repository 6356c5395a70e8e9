//! Messages, RDMA, and the completion of both (WSD 5.6, 6, 7).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use transom_engine::{Completion, CompletionKind, Sge};
use transom_memory::Purpose;

use crate::below::{self, Connected, Region};
use crate::descriptor::Descriptor;
use crate::error::{Error, Result};
use crate::memory::Handle;
use crate::overlapped::{Operation, Outcome};
use crate::provider::lock;
use crate::socket::{First, Phase, Posted, Socket, State};
use crate::{BUFFERS_LIMIT, RDMA_LIMIT, SIZE_LIMIT};

/// A run of bytes of the switch's.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
}

/// The switch's first receive, waiting for the first message.
pub(crate) struct Receive {
    operation: Operation,
    sges: Vec<Sge>,
    regions: Vec<Region>,
}

/// Which way an RDMA operation moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the peer's memory.
    Read,
    /// To the peer's memory.
    Write,
}

/// The context of the private receive; the switch's begin at 1.
pub(crate) const PRIVATE: u64 = 0;

/// The bytes of several buffers, if they are not too many.
fn total(lengths: impl Iterator<Item = u32>, limit: u32) -> Result<u32> {
    let sum = lengths.map(u64::from).sum::<u64>();
    u32::try_from(sum).ok().filter(|sum| *sum <= limit).ok_or(Error::WSAEMSGSIZE)
}

/// Hold every region, or none.
fn hold(regions: &[Region]) -> Result<()> {
    for (held, region) in regions.iter().enumerate() {
        region.hold().inspect_err(|_| regions.iter().take(held).for_each(Region::release))?;
    }
    Ok(())
}

/// Spread a message over a receive's buffers, piece by piece.
fn place(channel: &Connected, receive: &Receive, message: &[u8]) -> Result<()> {
    const PIECE: usize = 32 * 1024;
    let mut rest = message;
    for (sge, region) in receive.sges.iter().zip(&receive.regions) {
        let (mine, others) = rest.split_at(rest.len().min(sge.length as usize));
        for (index, piece) in mine.chunks(PIECE).enumerate() {
            region.place(channel, sge.address + (index * PIECE) as u64, piece)?;
        }
        rest = others;
    }
    if rest.is_empty() { Ok(()) } else { Err(Error::WSAEMSGSIZE) }
}

impl Socket {
    /// The local side of a message: each buffer's registration, found by its range (M-2).
    fn by_ranges(
        state: &mut State,
        channel: &Connected,
        purpose: Purpose,
        buffers: &[Range],
    ) -> Result<(Vec<Sge>, Vec<Region>)> {
        if buffers.is_empty() || buffers.len() > BUFFERS_LIMIT {
            return Err(Error::WSAEINVAL);
        }
        let mut sges = Vec::with_capacity(buffers.len());
        let mut regions = Vec::with_capacity(buffers.len());
        for &Range { address, length } in buffers {
            let region = state.registrations.by_range(channel, purpose, address, length)?;
            sges.push(Sge { token: region.token.0, address, length });
            regions.push(region);
        }
        Ok((sges, regions))
    }

    /// Enter an operation in the books, post it, and take it out again if that fails. While it is in
    /// the books, its registrations cannot be removed.
    fn post(
        state: &mut State,
        operation: Operation,
        flags: u32,
        regions: Vec<Region>,
        post: impl FnOnce(u64) -> Result<()>,
    ) -> Result<()> {
        hold(&regions)?;
        state.next_request += 1;
        let request = state.next_request;
        operation.begin(flags);
        state.posted.insert(request, Posted { operation, regions });
        post(request).inspect_err(|_| {
            if let Some(posted) = state.posted.remove(&request) {
                posted.regions.iter().for_each(Region::release);
            }
            operation.retract();
        })
    }

    /// `WSPSend`: one message (M-1). `WSA_IO_PENDING` is success.
    pub(crate) fn send(
        self: &Arc<Self>,
        buffers: &[Range],
        flags: u32,
        operation: Operation,
    ) -> Result<()> {
        let mut state = lock(&self.state);
        let channel = Socket::channel(&state)?;
        if flags != 0 {
            return Err(Error::WSAEINVAL); // M-3
        }
        let purpose = Purpose::LocalSource;
        let (sges, regions) = Socket::by_ranges(&mut state, &channel, purpose, buffers)?;
        total(buffers.iter().map(|range| range.length), SIZE_LIMIT)?;
        Socket::post(&mut state, operation, flags, regions, |request| {
            below::post_send(&channel, request, &sges)
        })
    }

    /// `WSPRecv`.
    pub(crate) fn receive(
        self: &Arc<Self>,
        buffers: &[Range],
        flags: u32,
        operation: Operation,
    ) -> Result<()> {
        let mut state = lock(&self.state);
        let channel = Socket::channel(&state)?;
        if flags != 0 {
            return Err(Error::WSAEINVAL);
        }
        let purpose = Purpose::ReceiveBuffer;
        let (sges, regions) = Socket::by_ranges(&mut state, &channel, purpose, buffers)?;
        if let First::Waiting { receive: receive @ None, .. } = &mut state.first {
            hold(&regions)?;
            operation.begin(flags);
            *receive = Some(Receive { operation, sges, regions });
            return Ok(());
        }
        if let First::Held(message) = &mut state.first {
            hold(&regions)?;
            operation.begin(flags);
            let message = std::mem::take(message);
            state.first = First::Done;
            let receive = Receive { operation, sges, regions };
            self.hand_over(&mut state, &channel, receive, &message);
            return Ok(());
        }
        Socket::post(&mut state, operation, flags, regions, |request| {
            below::post_receive(&channel, request, &sges)
        })
    }

    /// `WSPRdmaRead`, `WSPRdmaWrite`. The target is judged by its owner, not here.
    pub(crate) fn rdma(
        self: &Arc<Self>,
        direction: Direction,
        buffers: &[(Range, Handle)],
        (descriptor, offset): (&[u8], u32),
        flags: u32,
        operation: Operation,
    ) -> Result<()> {
        let mut state = lock(&self.state);
        let channel = Socket::channel(&state)?;
        if flags != 0 || buffers.is_empty() || buffers.len() > BUFFERS_LIMIT {
            return Err(Error::WSAEINVAL);
        }
        let target = Descriptor::decode(descriptor)?;
        let purpose = match direction {
            Direction::Read => Purpose::ReadSink,
            Direction::Write => Purpose::LocalSource,
        };
        let mut sges = Vec::with_capacity(buffers.len());
        let mut regions = Vec::with_capacity(buffers.len());
        for &(Range { address, length }, handle) in buffers {
            let found =
                state.registrations.by_handle(&channel, handle, purpose, address, length)?;
            sges.push(Sge { token: found.token.0, address, length });
            regions.push(found);
        }
        total(buffers.iter().map(|(range, _)| range.length), RDMA_LIMIT)?;
        // A sum that wraps names no byte of the registration; its owner says so.
        let address = target.base.wrapping_add(u64::from(offset));
        let token = target.token;
        Socket::post(&mut state, operation, flags, regions, |request| {
            below::post_rdma(&channel, direction, request, &sges, (token, address))
        })
    }

    /// `WSPGetOverlappedResult`; asking drives progress (O-7).
    pub(crate) fn overlapped_result(
        self: &Arc<Self>,
        operation: Operation,
        wait: bool,
    ) -> Result<Outcome> {
        loop {
            if let Some(outcome) = operation.outcome() {
                return Ok(outcome);
            }
            let channel = lock(&self.state).channel.clone();
            let Some(channel) = channel else { return Err(Error::WSA_IO_INCOMPLETE) };
            self.drain(&channel);
            match operation.outcome() {
                Some(outcome) => return Ok(outcome),
                None if !wait => return Err(Error::WSA_IO_INCOMPLETE),
                None => {
                    let _ = channel.queue.wait(Some(Duration::from_millis(10)));
                }
            }
        }
    }

    /// Take what has completed off the queue, and ask to be told of the next.
    pub(crate) fn drain(self: &Arc<Self>, channel: &Arc<Connected>) {
        let order = lock(&self.draining);
        let mut batch = [below::NO_COMPLETION; 16];
        loop {
            let found = channel.queue.poll(&mut batch);
            if found == 0 {
                break;
            }
            let mut state = lock(&self.state);
            for completion in batch.iter().take(found) {
                self.completed(&mut state, channel, completion);
            }
        }
        drop(order);
    }

    /// Have [`Socket::drain`] run whenever something completes.
    pub(crate) fn watch(self: &Arc<Self>, channel: &Arc<Connected>) {
        let (socket, weak) = (Arc::downgrade(self), Arc::downgrade(channel));
        // The engine may tell us inside a call of ours that holds a lock; so the work is done on the
        // upcall thread.
        below::notify(&channel.queue, move |alive| {
            let Some(provider) = socket.upgrade().and_then(|socket| socket.provider().ok()) else {
                return;
            };
            provider.upcalls.queue(move || {
                let (Some(socket), Some(channel)) = (socket.upgrade(), weak.upgrade()) else {
                    return;
                };
                if alive {
                    socket.watch(&channel);
                }
                socket.drain(&channel);
            });
        });
    }

    fn completed(
        self: &Arc<Self>,
        state: &mut State,
        channel: &Arc<Connected>,
        completion: &Completion,
    ) {
        let error = self.error_of(state, completion);
        if completion.request_context == PRIVATE {
            self.first_message(state, channel, completion.length, error);
            return;
        }
        let Some(posted) = state.posted.remove(&completion.request_context) else { return };
        let bytes = if error.is_none() { completion.length } else { 0 };
        let counter = match completion.kind {
            CompletionKind::Send | CompletionKind::Receive => &self.message_bytes,
            _ => &self.rdma_bytes,
        };
        counter.fetch_add(bytes as usize, Ordering::Relaxed);
        self.signal(state, posted.operation, &posted.regions, error, bytes);
    }

    /// What a completion is called here (5.6), and what it says about the connection.
    fn error_of(&self, state: &mut State, completion: &Completion) -> Option<Error> {
        let (error, ends) = below::completion_error(completion)?;
        let error = match (&state.phase, error) {
            (Phase::Closed, _) => Error::WSA_OPERATION_ABORTED,
            // 12.1 step 6: receives under way complete with success and no bytes.
            (Phase::Suspended, _) if completion.kind == CompletionKind::Receive => return None,
            (Phase::Failed(why), Error::WSA_OPERATION_ABORTED) => *why,
            // Flushed without an error of ours before it: the peer went away.
            (_, Error::WSA_OPERATION_ABORTED) => Error::WSAECONNRESET,
            _ => error,
        };
        let lasting = if ends { error } else { Error::WSAECONNABORTED };
        self.fail(state, lasting);
        Some(error)
    }

    /// The private receive has ended (N-2).
    fn first_message(
        self: &Arc<Self>,
        state: &mut State,
        channel: &Arc<Connected>,
        length: u32,
        error: Option<Error>,
    ) {
        let First::Waiting { buffer, region, receive } = std::mem::take(&mut state.first) else {
            return;
        };
        // The adapter lets go of the buffer before anybody reads it.
        region.close();
        state.first = First::Done;
        let suspended = matches!(state.phase, Phase::Suspended);
        match (error, receive) {
            (None, Some(receive)) if suspended => self.signal_receive(state, &receive, None, 0),
            (None, Some(receive)) => {
                self.hand_over(state, channel, receive, &buffer.message(length));
            }
            (None, None) => state.first = First::Held(buffer.message(length)),
            (Some(error), Some(receive)) => self.signal_receive(state, &receive, Some(error), 0),
            (Some(_), None) => {}
        }
    }

    /// One private buffer into one of the switch's (N-2).
    fn hand_over(
        self: &Arc<Self>,
        state: &mut State,
        channel: &Arc<Connected>,
        receive: Receive,
        message: &[u8],
    ) {
        let placed = place(channel, &receive, message);
        match placed {
            Ok(()) => {
                self.message_bytes.fetch_add(message.len(), Ordering::Relaxed);
                let bytes = u32::try_from(message.len()).unwrap_or(u32::MAX);
                self.signal_receive(state, &receive, None, bytes);
            }
            Err(error) => {
                // M-5: a message that its receive cannot hold ends the connection.
                self.fail(state, Error::WSAECONNABORTED);
                self.signal_receive(state, &receive, Some(error), 0);
                let channel = Arc::clone(channel);
                if let Ok(provider) = self.provider() {
                    provider.upcalls.queue(move || {
                        channel.end();
                    });
                }
            }
        }
    }

    fn signal_receive(
        self: &Arc<Self>,
        state: &State,
        receive: &Receive,
        error: Option<Error>,
        bytes: u32,
    ) {
        self.signal(state, receive.operation, &receive.regions, error, bytes);
    }

    /// An operation is over: its memory is let go first (A-23, O-9), then the switch is told, by
    /// upcall unless it polls (O-3, O-4).
    fn signal(
        self: &Arc<Self>,
        state: &State,
        operation: Operation,
        regions: &[Region],
        error: Option<Error>,
        bytes: u32,
    ) {
        let polled = operation.is_polled();
        let suspended = matches!(state.phase, Phase::Suspended);
        let bytes = if suspended { 0 } else { bytes };
        regions.iter().for_each(Region::release);
        operation.finish(error, bytes);
        self.changed.notify_all();
        if polled {
            return;
        }
        if let Ok(provider) = self.provider() {
            let (switch, handle) = (Arc::clone(&provider.switch), self.handle);
            let code = error.map_or(0, |error| error.0);
            provider.upcalls.queue(move || {
                switch.complete(handle, operation.address(), code, bytes);
            });
        }
    }

    /// What the adapter will not complete any more: a receive that waited for the first message, or
    /// everything if the queue itself failed.
    pub(crate) fn abort_rest(self: &Arc<Self>, error: Error) {
        let mut state = lock(&self.state);
        let error = match state.phase {
            Phase::Suspended => None,
            _ => Some(error),
        };
        if let First::Waiting { receive, .. } = &mut state.first
            && let Some(receive) = receive.take()
        {
            self.signal_receive(&state, &receive, error, 0);
        }
        let rest: Vec<_> = state.posted.drain().map(|(_, posted)| posted).collect();
        for posted in rest {
            self.signal(&state, posted.operation, &posted.regions, error, 0);
        }
    }
}
