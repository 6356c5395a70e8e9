//! The part behind a queue pair: its completion queue, the requests under way, the messages that
//! have arrived, and who waits for which.
//!
//! The engine settles what has succeeded in its cell (`cells.rs`). Messages and failures come
//! through the completion queue: *draining* moves them to the threads and tasks that wait for them.
//! All may drain: a program that polls, a thread that blocks, the engine's notification. A single
//! thread does it at a time (`turns.rs`). User code (wakers, drops of buffers) runs with no lock
//! held.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use transom_engine::{
    Completion, CompletionKind, Data, Flags, Later, NotifyKind, Operation, Request, Settle, Sge,
    Status, raw,
};
use transom_memory::Token;

use crate::cells::{Cells, Key, Settled};
use crate::explain::{self, Ended};
use crate::posted::{RequestSummary, guarded};
use crate::region::Registered;
use crate::turns::Turns;
use crate::{Adapter, ConnectionInfo, Error, ErrorKind, Message, Region, Result, Rights, Slice};

/// Requests under way, with the memory that each keeps alive until it has completed.
#[derive(Debug)]
pub(crate) struct Requests {
    cells: Cells<Registered, Completion>,
    /// Results that were never asked for, of the whole adapter.
    unclaimed: Arc<AtomicU64>,
}

impl Requests {
    /// The last reference to a buffer, and the waker, of a request that has completed: for when no
    /// lock is held.
    #[inline]
    fn parts(&self, settled: Settled<Registered>) -> (Option<Registered>, Option<Waker>) {
        if settled.unclaimed {
            self.unclaimed.fetch_add(1, Relaxed);
        }
        (settled.keep.and_then(Arc::into_inner), settled.waker)
    }
}

impl Settle for Requests {
    fn settle(&self, context: u64, later: &mut Vec<Later>) {
        let Some(settled) = self.cells.succeed(Key::from_context(context)) else { return };
        let (last, waker) = self.parts(settled);
        if let Some(last) = last {
            push(later, move || drop(last));
        }
        if let Some(waker) = waker {
            push(later, move || waker.wake());
        }
    }
}

#[cold]
fn push(later: &mut Vec<Later>, work: impl FnOnce() + Send + 'static) {
    later.push(Box::new(work));
}

/// Context of receives: their number, with this bit.
const RECEIVE: u64 = 1 << 63;
/// Context of requests whose result is not wanted.
const NOBODY: u64 = u64::MAX;
/// Most bytes of all receives of a connection.
const LARGEST_INBOX: u64 = 1 << 30;
/// Completions fetched at a time: few, because most polls find none.
const BATCH: usize = 4;
const EMPTY: Completion = Completion { request_context: NOBODY, ..Completion::BLANK };

pub(crate) struct Endpoint {
    pub(crate) adapter: Adapter,
    pub(crate) raw: raw::QueuePair,
    pub(crate) queue: raw::CompletionQueue,
    pub(crate) connector: raw::Connector,
    inbox: Mutex<Inbox>,
    /// Why nothing more will arrive.
    ended: OnceLock<Ended>,
    turns: Turns,
    /// Requests that had succeeded when [`Endpoint::poll`] last said so.
    reported: AtomicU64,
    /// A notification is outstanding.
    armed: AtomicBool,
    requests: Hold,
    this: Weak<Endpoint>,
}

/// The local side of a request.
pub(crate) enum Local<'a> {
    /// Registered memory.
    Slice(Slice),
    /// Bytes to be copied.
    Bytes(&'a [u8]),
}

/// Neighbours in a batch whose memory lies in the same region: it is kept until the last of them
/// has completed.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) region: Arc<Registered>,
    /// Requests up to its last one.
    pub(crate) end: usize,
    /// The request's cell, from the post on.
    pub(crate) key: Option<Key>,
}

/// Messages that wait in their receives, and who waits for the next one.
struct Inbox {
    /// Posted receives lie here, one after the other.
    buffers: Region<Vec<u8>>,
    size: u32,
    /// Arrived, in order: which receive, how many bytes.
    arrived: VecDeque<(u32, u32)>,
    wakers: Vec<Waker>,
    closed: bool,
}

impl Inbox {
    /// Where the bytes of a receive lie.
    fn room(&self, index: u32) -> Sge {
        let buffers = &self.buffers.shared;
        let address = buffers.base + u64::from(index) * u64::from(self.size);
        Sge { token: buffers.token.0, address, length: self.size }
    }
}

/// The endpoint's hold on its requests. The engine may keep them for longer, but no code of the
/// program's. Dropped behind the queue pair: then no request is under way.
struct Hold(Arc<Requests>);

impl std::ops::Deref for Hold {
    type Target = Cells<Registered, Completion>;
    fn deref(&self) -> &Self::Target {
        &self.0.cells
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        drop(self.0.cells.let_all_go());
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Endpoint")
    }
}

/// A lock that a panic in user code cannot have poisoned, because none runs under it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Endpoint {
    /// A queue pair with `count` receives of `size` bytes, all of them posted.
    pub(crate) fn new(
        adapter: &Adapter,
        connector: raw::Connector,
        count: u32,
        size: u32,
    ) -> Result<Arc<Endpoint>> {
        let (count, size) = (count.max(1), size.max(1));
        let depth = adapter.depth();
        if u64::from(count) * u64::from(size) > LARGEST_INBOX {
            return Err(Error::caller(
                ErrorKind::TooMuch,
                format!("keeping {count} receives of {size} bytes"),
                "that is a lot of memory for one connection",
            )
            .accepted(format!("up to {LARGEST_INBOX} bytes in all; windows for what is larger")));
        }
        let (cells, unclaimed) = (Cells::new(depth), adapter.unclaimed());
        let requests = Arc::new(Requests { cells, unclaimed });
        let (queue, raw) = adapter
            .raw_queue_pair(count, requests.clone())
            .map_err(|error| explain::call("making a queue pair", &error))?;
        let buffers = adapter.register(vec![0; count as usize * size as usize])?;
        let inbox = Inbox {
            buffers,
            size,
            arrived: VecDeque::with_capacity(count as usize),
            wakers: Vec::new(),
            closed: false,
        };
        let endpoint = Arc::new_cyclic(|this| Endpoint {
            adapter: adapter.clone(),
            raw,
            queue,
            connector,
            inbox: Mutex::new(inbox),
            ended: OnceLock::new(),
            turns: Turns::new(),
            reported: AtomicU64::new(0),
            armed: AtomicBool::new(false),
            requests: Hold(requests.clone()),
            this: this.clone(),
        });
        for index in 0..count {
            let room = lock(&endpoint.inbox).room(index);
            endpoint.post_receive(index, room)?;
        }
        Ok(endpoint)
    }

    fn post_receive(&self, index: u32, room: Sge) -> Result<()> {
        self.raw
            .post_receive(RECEIVE | u64::from(index), &[room])
            .map_err(|error| explain::call("posting a receive", &error))
    }

    /// Post a request. The result will be found under the key.
    pub(crate) fn post(
        &self,
        operation: Operation,
        local: Local<'_>,
        asked: RequestSummary,
    ) -> Result<Key> {
        self.still(asked)?;
        let (sges, bytes, keep) = match local {
            Local::Bytes(bytes) => ([Sge::default()], Some(bytes), None),
            Local::Slice(slice) => {
                self.adapter.owns(&slice.region, &asked)?;
                let sge = slice.entry(slice.len, asked)?;
                ([sge], None, Some(slice.region))
            }
        };
        let cells = &self.requests;
        let Ok(key) = cells.insert(keep).or_else(|keep| {
            // Some may have failed.
            self.hand_out();
            cells.insert(keep)
        }) else {
            return Err(self.full(asked.to_string()));
        };
        let request = Request { context: key.to_context(), operation, flags: Flags::NONE };
        let data = bytes.map_or(Data::Sges(&sges), Data::Inline);
        // The cell keeps the memory until the request has completed.
        match self.raw.post(&request, data) {
            Ok(()) => Ok(key),
            Err(error) => {
                drop(self.requests.remove(key));
                Err(self.not_posted(asked.to_string(), &error))
            }
        }
    }

    /// Post the requests of a batch, all or none. The result of the last one will be found under
    /// the key; it has completed when all have.
    pub(crate) fn post_batch(
        &self,
        requests: &[(Operation, Sge)],
        runs: &mut [Run],
        asked: RequestSummary,
    ) -> Result<Key> {
        self.still(asked)?;
        let full = self.keep_all(runs).is_err() && {
            self.hand_out(); // some may have failed
            self.keep_all(runs).is_err()
        };
        let last = runs.last().and_then(|run| run.key);
        let Some(last) = last.filter(|_| !full) else { return Err(self.full(asked.to_string())) };
        let posted = self.raw.post_chain(requests.len(), |chain| {
            let mut at = runs.iter();
            let mut run = at.next();
            chain.post_all(requests.iter().enumerate().map(|(index, (operation, sge))| {
                // The last request of a run completes, and lets its memory go.
                let ends = run.filter(|run| run.end == index + 1).and_then(|run| run.key);
                if ends.is_some() {
                    run = at.next();
                }
                let (context, flags) = match ends {
                    Some(key) => (key.to_context(), Flags::NONE),
                    None => (NOBODY, Flags::SILENT_SUCCESS),
                };
                let request = Request { context, operation: *operation, flags };
                (request, Data::Sges(std::slice::from_ref(sge)))
            }))
        });
        posted.flatten().map(|()| last).map_err(|error| {
            self.let_all_go(runs);
            self.not_posted(asked.to_string(), &error)
        })
    }

    /// A cell for the last request of each run. `Err`: there are too few, and none is taken.
    fn keep_all(&self, runs: &mut [Run]) -> Result<(), ()> {
        let last = runs.len().saturating_sub(1);
        for (index, run) in runs.iter_mut().enumerate() {
            let keep = Some(run.region.clone());
            let cells = &self.requests;
            let inserted =
                if index == last { cells.insert(keep) } else { cells.insert_quietly(keep) };
            let Ok(key) = inserted else {
                self.let_all_go(runs);
                return Err(());
            };
            run.key = Some(key);
        }
        Ok(())
    }

    /// The batch was not posted. (It holds its regions itself: none is dropped here.)
    fn let_all_go(&self, runs: &mut [Run]) {
        for key in runs.iter_mut().filter_map(|run| run.key.take()) {
            let _ = self.requests.remove(key);
        }
    }

    /// Post a request whose success is not reported; its failure ends the connection.
    pub(crate) fn post_silent(&self, operation: Operation, asked: RequestSummary) -> Result<()> {
        let request = Request { context: NOBODY, operation, flags: Flags::SILENT_SUCCESS };
        self.raw
            .post(&request, Data::Sges(&[]))
            .map_err(|error| self.not_posted(asked.to_string(), &error))
    }

    fn full(&self, asked: String) -> Error {
        let depth = self.adapter.depth();
        Error::caller(ErrorKind::TooMuch, asked, format!("{depth} requests are under way"))
            .accepted("the same once one of them has completed, or a larger Options::depth")
    }

    fn not_posted(&self, asked: String, error: &raw::Error) -> Error {
        self.drain();
        match (error.status, self.ended.get()) {
            (Status::NoMoreEntries, _) => self.full(asked),
            (_, Some(why)) => why.because(asked),
            _ => explain::call(&asked, error),
        }
    }

    /// Move what has completed to the threads and tasks that wait for it, looking on the link if
    /// there is nothing. Whether there was anything.
    pub(crate) fn drain(&self) -> bool {
        if self.queue.is_empty() {
            self.raw.progress();
        }
        self.hand_out()
    }

    /// Hand out what was found before; if there is nothing, look on the link. Whether something has
    /// completed.
    ///
    /// Completions that this finds in the queue are handed out when a caller asks for it, or by the
    /// next call: a program that watches memory sees the bytes that came with it first.
    pub(crate) fn poll(&self) -> bool {
        let any = !self.queue.is_empty();
        if any {
            self.hand_out();
        } else {
            self.raw.progress();
        }
        let succeeded = self.requests.count();
        let more = self.reported.load(Relaxed) != succeeded;
        if more {
            self.reported.store(succeeded, Relaxed);
        }
        any || more || !self.queue.is_empty()
    }

    /// Move what has completed to the threads and tasks that wait for it. Makes no progress, and
    /// takes no lock if there is nothing.
    fn hand_out(&self) -> bool {
        let mut any = false;
        while !self.queue.is_empty() {
            let Some(one) = self.turns.take() else { break };
            let mut batch = [EMPTY; BATCH];
            let count = self.queue.take(&mut batch);
            any |= count > 0;
            self.deliver(one, batch.get(..count).unwrap_or_default());
        }
        any
    }

    /// Settle a batch; then, with no lock held, wake and drop what belongs to the user.
    #[inline(never)]
    fn deliver(&self, one: MutexGuard<'_, ()>, batch: &[Completion]) {
        let mut settled = [const { None }; BATCH];
        let mut wakers = Vec::new();
        for (completion, settled) in batch.iter().zip(&mut settled) {
            *settled = self.settle(completion, &mut wakers);
        }
        self.turns.finish(one);
        self.queue.wake(); // a full barrier, whichever thread sleeps
        for one in settled.into_iter().flatten() {
            let (last, waker) = self.requests.0.parts(one);
            guarded(|| drop(last));
            wakers.extend(waker);
        }
        for waker in wakers {
            guarded(|| waker.wake());
        }
    }

    /// Settles a completion, and returns the work to be done afterwards.
    fn settle(
        &self,
        completion: &Completion,
        wakers: &mut Vec<Waker>,
    ) -> Option<Settled<Registered>> {
        if !completion.status.is_success() {
            self.note_end(completion);
        }
        if completion.request_context == NOBODY {
            return None;
        }
        if completion.kind == CompletionKind::Receive {
            let mut inbox = lock(&self.inbox);
            if completion.status.is_success() {
                let index = (completion.request_context & !RECEIVE) as u32;
                inbox.arrived.push_back((index, completion.length));
            } else {
                inbox.closed = true;
            }
            wakers.append(&mut inbox.wakers);
            return None;
        }
        self.requests.fail(Key::from_context(completion.request_context), *completion)
    }

    /// That nothing is known of an end of the connection: behind it nothing is posted.
    fn still(&self, asked: RequestSummary) -> Result<()> {
        match self.ended.get() {
            None => Ok(()),
            Some(why) => Err(why.because(asked.to_string())),
        }
    }

    /// Keep the first reason for which the connection ended.
    fn note_end(&self, completion: &Completion) {
        if self.ended.get().is_none() {
            let why = explain::ended(self, completion);
            let _ = self.ended.set(why);
        }
    }

    /// Why the connection has ended.
    pub(crate) fn ended(&self) -> Option<&Ended> {
        self.ended.get()
    }

    /// The result of a request, or a place in the queue of the threads that wait for it.
    pub(crate) fn claim(
        &self,
        key: Key,
        waker: Option<&Waker>,
    ) -> Poll<Option<Result<(), Completion>>> {
        let (result, old) = self.requests.claim(key, waker);
        drop(old);
        result
    }

    /// Why a request has failed.
    pub(crate) fn failed(&self, done: &Completion, asked: &str) -> Error {
        explain::completion(self, done, asked)
    }

    pub(crate) fn is_done(&self, key: Key) -> bool {
        self.hand_out();
        self.requests.is_done(key)
    }

    /// This result will not be asked for.
    #[inline]
    pub(crate) fn abandon(&self, key: Key) {
        let (done, waker) = self.requests.abandon(key);
        if done {
            self.requests.0.unclaimed.fetch_add(1, Relaxed);
        }
        drop(waker);
    }

    /// The next message: copied out of its receive, which is then posted again. `Pending` leaves
    /// the waker.
    pub(crate) fn take_message(&self, waker: Option<&Waker>) -> Poll<Result<Message>> {
        self.hand_out();
        let mut inbox = lock(&self.inbox);
        let Some((index, length)) = inbox.arrived.pop_front() else {
            if inbox.closed {
                drop(inbox);
                return Poll::Ready(Err(self.why_ended("receiving a message")));
            }
            if let Some(waker) = waker
                && !inbox.wakers.iter().any(|other| other.will_wake(waker))
            {
                inbox.wakers.push(waker.clone());
            }
            return Poll::Pending;
        };
        let mut bytes = vec![0; length.min(inbox.size) as usize];
        let at = u64::from(index) * u64::from(inbox.size);
        let copied = inbox.buffers.copy_out(at, &mut bytes);
        let room = inbox.room(index);
        drop(inbox);
        // If the connection has ended meanwhile there is nothing to be posted, and the next call
        // says so.
        let _ = self.post_receive(index, room);
        Poll::Ready(copied.map(|()| Message(bytes)))
    }

    /// Why a request on an ended connection fails.
    pub(crate) fn why_ended(&self, asked: &str) -> Error {
        match self.ended.get() {
            Some(why) => why.because(asked),
            None => Error::caller(ErrorKind::NotConnected, asked, "the connection has ended")
                .accepted(explain::CONNECT_AGAIN),
        }
    }

    /// Block until `ready` has something, or the time is over: `None`. Makes progress itself.
    pub(crate) fn block<T>(
        &self,
        asked: &dyn std::fmt::Display,
        timeout: Option<Duration>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>> {
        // Beyond what a clock can tell is for ever.
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            // A result that is there already costs no look at the link.
            if let Some(it) = ready() {
                return Ok(Some(it));
            }
            let seen = (self.turns.count(), self.requests.count());
            self.drain();
            if let Some(it) = ready() {
                return Ok(Some(it));
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            // Another thread may deliver what this one waits for.
            let delivered = || (self.turns.count(), self.requests.count()) != seen;
            self.queue
                .wait_until(left, &delivered)
                .map_err(|error| explain::call(&asked.to_string(), &error))?;
        }
    }

    /// For futures, which may not be polled for a while: ask for a notification of the next
    /// completion, and take what has completed meanwhile. The link is left alone: a thread that
    /// polls it keeps the adapter's own thread away from it for as long as a lease is.
    pub(crate) fn await_more(&self) {
        self.arm();
        self.hand_out();
    }

    /// Ask for a notification of the next completion.
    fn arm(&self) {
        if self.armed.swap(true, SeqCst) {
            return;
        }
        let this = self.this.clone();
        let sink = raw::Sink::call(move |status| {
            // When the adapter's address goes, what that ends completes still.
            let alive = matches!(status, Status::Success | Status::DeviceRemoved);
            if let (true, Some(this)) = (alive, this.upgrade()) {
                this.armed.store(false, SeqCst);
                this.drain();
                this.arm();
            }
        });
        let _ = self.queue.notify(NotifyKind::Any, sink);
    }

    /// Open a window for the peer. Returns the window's token.
    pub(crate) fn bind(&self, slice: &Slice, rights: Rights) -> Result<u32> {
        let asked = RequestSummary::Bind(slice.len, rights);
        self.still(asked)?;
        self.adapter.owns(&slice.region, &asked)?;
        let window = raw::Window {
            region: slice.region.token,
            base: slice.address(),
            length: slice.len,
            rights: rights.memory(),
        };
        let reserved = self
            .raw
            .reserve_window(&window)
            .map_err(|error| explain::call(&asked.to_string(), &error.into()))?;
        self.post_silent(Operation::Bind { window: reserved.token() }, asked)?;
        Ok(reserved.posted().0)
    }

    /// Close a window, now. A window that has ended with its connection is closed already.
    pub(crate) fn revoke(&self, token: u32) {
        let _ = self.adapter.raw().revoke(Token(token));
    }

    /// The agreement of both sides.
    pub(crate) fn info(&self, asked: &str) -> Result<ConnectionInfo> {
        // The connection may have ended meanwhile.
        let info = self.connector.info().map_err(|error| explain::gone(self, asked, &error))?;
        Ok(ConnectionInfo {
            local: info.local,
            peer: info.peer,
            path: info.path,
            path_reason: info.path_reason.text(),
            wire: info.facts.wire,
            crc: info.facts.checksum,
            extension: info.facts.extension,
            verdicts: info.facts.verdicts,
            reads: info.facts.limits.outbound,
            largest_frame: info.facts.largest_frame,
            private_data: self.connector.private_data().unwrap_or_default(),
        })
    }

    /// End the connection.
    pub(crate) fn disconnect(&self) -> Result<()> {
        let done = self.connector.disconnect(raw::Sink::call(|_| ()));
        self.drain();
        match done {
            Ok(()) => Ok(()),
            Err(error) if error.status == Status::ConnectionInvalid => Ok(()),
            Err(error) => Err(explain::call("disconnecting", &error)),
        }
    }
}
