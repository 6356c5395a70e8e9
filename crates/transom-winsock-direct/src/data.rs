//! Messages, RDMA, and the completion of both (WSD 5.6, 6, 7).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use transom_engine::raw::Sink;
use transom_engine::{
    Completion, CompletionKind, Flags, NotifyKind, Operation as Engine, Sge, Status,
};
use transom_memory::Purpose;

use crate::BUFFERS_LIMIT;
use crate::connection::Connection;
use crate::descriptor::Descriptor;
use crate::error::{Error, Result};
use crate::memory::Handle;
use crate::overlapped::{Operation, Outcome};
use crate::provider::lock;
use crate::region::Region;
use crate::socket::{Posted, Socket, SocketPhase, SocketState};
use crate::status::completion_error;

/// A run of bytes of the switch's.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
}

/// Which way an RDMA operation moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the peer's memory.
    Read,
    /// To the peer's memory.
    Write,
}

impl Socket {
    /// The local side of a message: each buffer's registration, found by its range (WSD M-2).
    pub(crate) fn by_ranges(
        state: &mut SocketState,
        channel: &Connection,
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

    /// The first call that finds the connection gone fails the socket.
    fn fail_on_reset<T>(&self, state: &mut SocketState, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            if *error == Error::WSAECONNRESET {
                self.fail(state, *error);
            }
        })
    }

    /// Enter an operation in the books, post it, and take it out again if that fails. While it is
    /// in the books, its registrations cannot be removed (WSD A-18).
    fn post(
        &self,
        state: &mut SocketState,
        (operation, flags): (Operation, u32),
        (regions, receive): (Vec<Region>, Option<Vec<Range>>),
        post: impl FnOnce(u64) -> Result<()>,
    ) -> Result<()> {
        // The registrations may have died with the connection since they were found, all of them
        // then.
        let held = regions.iter().try_for_each(Region::hold);
        self.fail_on_reset(state, held)?;
        state.next_request += 1;
        let request = state.next_request;
        operation.begin(flags);
        state.posted.insert(request, Posted { operation, receive, regions });
        post(request).inspect_err(|_| {
            if let Some(posted) = state.posted.remove(&request) {
                posted.regions.iter().for_each(Region::release);
            }
            operation.retract();
        })
    }

    /// `WSPSend`: one message (WSD M-1). `WSA_IO_PENDING` is success.
    pub(crate) fn send(
        self: &Arc<Self>,
        buffers: &[Range],
        flags: u32,
        operation: Operation,
    ) -> Result<()> {
        let mut state = lock(&self.state);
        let channel = Socket::channel(&state)?;
        if flags != 0 {
            return Err(Error::WSAEINVAL); // WSD M-3
        }
        let purpose = Purpose::LocalSource;
        let found = Socket::by_ranges(&mut state, &channel, purpose, buffers);
        let (sges, regions) = self.fail_on_reset(&mut state, found)?;
        self.post(&mut state, (operation, flags), (regions, None), |request| {
            // Behind every RdmaRead: the message may say that the data has been fetched (WSD 5.6).
            channel.post(request, Engine::Send, Flags::READ_FENCE, &sges)
        })
    }

    /// `WSPRecv`. A message that comes before its receive waits at its sender, however long (WSD
    /// N-2, N-3: this adapter has flow control, so nothing is kept here).
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
        let found = Socket::by_ranges(&mut state, &channel, purpose, buffers);
        let (sges, regions) = self.fail_on_reset(&mut state, found)?;
        let own = (regions, Some(buffers.to_vec()));
        self.post(&mut state, (operation, flags), own, |request| {
            Ok(channel.queue_pair.post_receive(request, &sges)?)
        })
    }

    /// The receives under way, in order, on another connection (WSD D-5). Those that cannot be posted
    /// there, because their buffers have gone, are returned.
    pub(crate) fn post_again(&self, state: &mut SocketState, channel: &Connection) -> Vec<Posted> {
        let mut waiting: Vec<_> = std::mem::take(&mut state.posted).into_iter().collect();
        waiting.sort_by_key(|(request, _)| *request);
        let mut failed = Vec::new();
        for (request, mut posted) in waiting {
            posted.regions.drain(..).for_each(|region| region.release());
            let buffers = posted.receive.as_deref().unwrap_or_default();
            let found = Socket::by_ranges(state, channel, Purpose::ReceiveBuffer, buffers);
            let again = found.and_then(|(sges, regions)| {
                regions.iter().try_for_each(Region::hold)?;
                posted.regions = regions;
                Ok(channel.queue_pair.post_receive(request, &sges)?)
            });
            if again.is_ok() {
                state.posted.insert(request, posted);
            } else {
                failed.push(posted);
            }
        }
        failed
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
            let found = state.registrations.by_handle(&channel, handle, purpose, address, length);
            let found = self.fail_on_reset(&mut state, found)?;
            sges.push(Sge { token: found.token.0, address, length });
            regions.push(found);
        }
        // A sum that wraps names no byte of the registration; its owner says so.
        let address = target.base.wrapping_add(u64::from(offset));
        let token = target.token;
        let request = match direction {
            Direction::Read => Engine::Read { token, address },
            Direction::Write => Engine::Write { token, address },
        };
        self.post(&mut state, (operation, flags), (regions, None), |context| {
            channel.post(context, request, Flags::NONE, &sges)
        })
    }

    /// `WSPGetOverlappedResult`; asking drives progress (WSD O-7).
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

    /// Take what has completed off the queue, and ask for a notification of the next.
    pub(crate) fn drain(self: &Arc<Self>, channel: &Arc<Connection>) {
        let order = lock(&self.draining);
        let mut batch = [Completion::BLANK; 16];
        loop {
            let found = channel.queue.poll(&mut batch);
            if found == 0 {
                break;
            }
            let mut state = lock(&self.state);
            for completion in batch.iter().take(found) {
                self.completed(&mut state, completion);
            }
        }
        drop(order);
    }

    /// Have [`Socket::drain`] run whenever something completes.
    pub(crate) fn watch(self: &Arc<Self>, channel: &Arc<Connection>) {
        let (socket, weak) = (Arc::downgrade(self), Arc::downgrade(channel));
        // The engine may tell us inside a call of ours that holds a lock; so the work is done on
        // the upcall thread.
        let sink = Sink::call(move |status| {
            // When the adapter's address goes, what that ends completes still.
            let alive = matches!(status, Status::Success | Status::DeviceRemoved);
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
        // A forked child gets no notification: it has no adapter.
        let _ = channel.queue.notify(NotifyKind::Any, sink);
    }

    fn completed(self: &Arc<Self>, state: &mut SocketState, completion: &Completion) {
        let request = completion.request_context;
        let Some(posted) = state.posted.get(&request) else { return };
        let flushed = completion.status == Status::Canceled && posted.receive.is_some();
        if flushed && state.successor.is_some() {
            return; // posted again on the connection that takes this one's place (WSD D-5)
        }
        let error = self.error_of(state, completion);
        if completion.denial != 0 {
            state.denial = completion.denial;
        }
        let Some(posted) = state.posted.remove(&request) else { return };
        let bytes = completion.length; // none of what failed
        let counter = match completion.kind {
            CompletionKind::Send | CompletionKind::Receive => &self.message_bytes,
            _ => &self.rdma_bytes,
        };
        counter.fetch_add(bytes as usize, Ordering::Relaxed);
        self.signal(&posted, error, bytes);
    }

    /// The status of a completion here (WSD 5.6), and what it says about the connection (WSD
    ///
    fn error_of(&self, state: &mut SocketState, completion: &Completion) -> Option<Error> {
        let (error, ends) = completion_error(completion)?;
        let error = match (&state.phase, error) {
            (SocketPhase::Closed | SocketPhase::Suspended, _) => Error::WSA_OPERATION_ABORTED,
            (SocketPhase::Failed(why), Error::WSA_OPERATION_ABORTED) => *why,
            // Flushed without an error of ours before it: the peer went away (WSD X-2).
            (_, Error::WSA_OPERATION_ABORTED) => Error::WSAECONNRESET,
            _ => error,
        };
        let lasting = if ends { error } else { Error::WSAECONNABORTED };
        self.fail(state, lasting);
        Some(error)
    }

    /// An operation is over: its memory is let go first (WSD A-23, O-9), then the switch is told,
    /// by upcall unless it polls (WSD O-3, O-4).
    pub(crate) fn signal(self: &Arc<Self>, posted: &Posted, error: Option<Error>, bytes: u32) {
        let operation = posted.operation;
        let polled = operation.is_polled();
        posted.regions.iter().for_each(Region::release);
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

    /// Ends the operations that the adapter will not complete any more, because the queue itself
    /// failed.
    pub(crate) fn abort_rest(self: &Arc<Self>, error: Error) {
        let rest = std::mem::take(&mut lock(&self.state).posted);
        for posted in rest.into_values() {
            self.signal(&posted, Some(error), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{Overlapped, mem};
    use crate::memory::Key;
    use crate::provider::{Options, Provider, open};
    use crate::switch::Switch;
    use transom_memory::Rights;

    struct Nobody;

    impl Switch for Nobody {
        fn create_socket_handle(&self, _: usize) -> Result<usize> {
            Ok(1)
        }
        fn close_socket_handle(&self, _: usize) {}
        fn complete(&self, _: usize, _: usize, _: i32, _: u32) {}
        fn set_event(&self, _: usize) {}
        fn reset_event(&self, _: usize) {}
    }

    /// WSD X-10: the registrations of a request were found, and died with the connection before it
    /// was posted.
    #[test]
    #[allow(unsafe_code)]
    fn x10_a_connection_lost_between_finding_and_posting_fails_the_socket() {
        let provider = Provider::start(Arc::new(Nobody), Options::default()).unwrap();
        let socket = Socket::new(&provider).unwrap();
        let adapter = open([127, 0, 0, 1].into()).unwrap();
        let connected = Connection::lone(&adapter).unwrap();
        let page = Box::new([0u8; 64]);
        let address = page.as_ptr().expose_provenance() as u64;
        let key = Key { address, length: 64, flags: mem::READ };
        let rights = Rights::LOCAL_READ;
        // SAFETY: the page outlives the registration, and nothing writes to it.
        let found = unsafe { Region::of_connection(&connected, rights, address, key) };
        let mut state = lock(&socket.state);
        state.phase = SocketPhase::Connected;
        connected.lose();
        let regions = vec![found.unwrap()];
        let event = std::ptr::null_mut();
        let mut overlapped =
            Overlapped { internal: 0, internal_high: 0, offset: 0, offset_high: 0, event };
        // SAFETY: the structure outlives the socket's state, and only the operation writes it.
        let operation = unsafe { Operation::new(&raw mut overlapped) }.unwrap();
        let posted = socket.post(&mut state, (operation, 0), (regions, None), |_| Ok(()));
        assert_eq!(posted, Err(Error::WSAECONNRESET));
        assert!(
            matches!(state.phase, SocketPhase::Failed(Error::WSAECONNRESET)),
            "{:?}",
            state.phase
        );
    }

    fn connected(secret: u8) -> (Arc<Provider>, Arc<Socket>, Arc<Connection>) {
        let provider = Provider::start(Arc::new(Nobody), Options::default()).unwrap();
        let socket = Socket::new(&provider).unwrap();
        let adapter = open([127, 0, 0, 1].into()).unwrap();
        let mut own = provider.hello(&adapter, 0, None).unwrap();
        own.secret = [secret; 16];
        let connector = adapter.connector().unwrap();
        let connected = Connection::new(&adapter, connector, own).unwrap();
        let mut state = lock(&socket.state);
        state.phase = SocketPhase::Connected;
        state.channel = Some(Arc::clone(&connected));
        drop(state);
        (provider, socket, connected)
    }

    /// WSD D-5: a receive whose memory has gone cannot go on with another connection, and its caller
    /// gets to know.
    #[test]
    #[allow(unsafe_code)]
    fn d05_a_receive_without_memory_is_not_posted_again() {
        let (_provider, socket, connected) = connected(1);
        let event = std::ptr::null_mut();
        let mut overlapped =
            Overlapped { internal: 0, internal_high: 0, offset: 0, offset_high: 0, event };
        // SAFETY: the structure outlives the socket's state, and only the operation writes it.
        let operation = unsafe { Operation::new(&raw mut overlapped) }.unwrap();
        let gone = Some(vec![Range { address: 4096, length: 8 }]);
        let mut state = lock(&socket.state);
        state.posted.insert(7, Posted { operation, receive: gone, regions: Vec::new() });
        let failed = socket.post_again(&mut state, &connected);
        assert_eq!(failed.iter().map(|posted| posted.operation).collect::<Vec<_>>(), [operation]);
        assert!(state.posted.is_empty());
    }

    /// WSD X-5: a connection that was gone before its end could be watched has ended all the same.
    #[test]
    fn x05_a_connection_that_is_gone_already_fails_the_socket() {
        let (_provider, socket, connected) = connected(2);
        socket.watch_end(&connected);
        let state = lock(&socket.state);
        assert!(
            matches!(state.phase, SocketPhase::Failed(Error::WSAECONNRESET)),
            "{:?}",
            state.phase
        );
    }

    /// WSD D-4: a connection that has ended here cannot be taken over by another process.
    #[test]
    fn d04_a_closed_connection_has_no_name() {
        let (provider, socket, connected) = connected(3);
        provider.remember(&connected, &socket);
        assert!(provider.named(&[3; 16]).is_some());
        let parts = lock(&socket.state).retire(SocketPhase::Closed);
        socket.close(parts);
        assert!(provider.named(&[3; 16]).is_none());
    }
}
