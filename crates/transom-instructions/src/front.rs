//! Two sides of a connection as the verbs library makes them: queue pairs of the raw layer, whose requests
//! complete into completion queues.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use transom_engine::raw::{
    Adapter, CompletionQueue, Connector, Options, Path, QueuePair, QueuePairOptions, Sink,
};
use transom_engine::{Completion, Data, Flags, Operation, Request, Sge, Status, dialect};
use transom_memory::{Rights, Segment, Token};
use transom_wire::ReadLimits;

use crate::subjects::Outcome;

/// Where the bytes of a Write are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// In registered memory.
    Region,
    /// In the call.
    Inline,
}

/// An end of the connection, with a word that the other end writes.
pub(crate) struct Side {
    adapter: Adapter,
    completions: CompletionQueue,
    queue: QueuePair,
    connector: Connector,
    word: &'static AtomicU64,
    token: Token,
    /// Requests whose completions have not been retrieved.
    outstanding: usize,
}

/// A sink, and where its status comes.
fn signal() -> (Sink, mpsc::Receiver<Status>) {
    let (tell, told) = mpsc::channel();
    (Sink::call(move |status| _ = tell.send(status)), told)
}

fn success(told: &mpsc::Receiver<Status>) -> Outcome {
    match told.recv()? {
        Status::Success => Ok(()),
        status => Err(format!("the connection was not made: {status:?}").into()),
    }
}

impl Side {
    fn new() -> Outcome<Side> {
        let options =
            Options { dialect: &dialect::VERBS, path: Path::Process, ..Options::default() };
        let adapter = Adapter::open(IpAddr::V4(Ipv4Addr::LOCALHOST), options)?;
        let domain = adapter.domain()?;
        let completions = adapter.completion_queue(64)?;
        let made = QueuePairOptions::default();
        let queue = adapter.queue_pair(domain, &completions, &completions, None, &made)?;
        let connector = adapter.connector()?;
        let word: &'static AtomicU64 = Box::leak(Box::default());
        let base = std::ptr::from_ref(word).expose_provenance() as u64;
        let rights = Rights::LOCAL_READ | Rights::LOCAL_WRITE | Rights::REMOTE_WRITE;
        let segments = [Segment { host: base, length: 8 }];
        // SAFETY: the word is never freed, and is only read and written as an atomic.
        let token = unsafe { adapter.register(domain, base, &segments, rights) }?;
        Ok(Side { adapter, completions, queue, connector, word, token, outstanding: 0 })
    }

    fn address(&self) -> u64 {
        std::ptr::from_ref(self.word).addr() as u64
    }
}

/// Two adapters of this process and a connection between them.
pub(crate) fn connect() -> Outcome<[Side; 2]> {
    const LIMITS: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };
    let (near, far) = (Side::new()?, Side::new()?);
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = far.adapter.listener(any)?;
    listener.listen(0)?;
    let (sink, requested) = signal();
    listener.get_request(&far.connector, sink)?;
    near.connector.bind(any)?;
    let (sink, connected) = signal();
    near.connector.connect(&near.queue, listener.address()?, LIMITS, b"", sink)?;
    success(&requested)?;
    let (sink, accepted) = signal();
    far.connector.accept(&far.queue, LIMITS, b"", sink)?;
    success(&connected)?;
    near.connector.complete_connect()?;
    success(&accepted)?;
    Ok([near, far])
}

/// A Write from one side that the other side has seen, and the completion of that one's Write before.
pub(crate) fn half(from: &mut Side, to: &mut Side, source: Source, turn: u64) -> Outcome {
    let operation = Operation::Write { token: to.token.0, address: to.address() };
    let request = Request { context: turn, operation, flags: Flags::NONE };
    match source {
        Source::Region => {
            // The peer's last value is there, and has been seen.
            from.word.store(turn, Ordering::Release);
            let entry = Sge { token: from.token.0, address: from.address(), length: 8 };
            from.queue.post(&request, Data::Sges(&[entry]))?;
        }
        Source::Inline => from.queue.post(&request, Data::Inline(&turn.to_ne_bytes()))?,
    }
    from.outstanding += 1;
    let mut found = [Completion::BLANK];
    loop {
        let count = to.completions.poll(&mut found);
        for completion in found.iter().take(count) {
            if completion.status != Status::Success {
                return Err(format!("a Write ended with {:?}", completion.status).into());
            }
            to.outstanding -= 1;
        }
        if to.word.load(Ordering::Acquire) == turn && to.outstanding == 0 {
            return Ok(());
        }
    }
}
