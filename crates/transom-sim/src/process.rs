//! A process: an adapter with everything a program makes on it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use transom_core::{
    Caps, Completion, CompletionQueue, Connector, DenialLog, DenialRecord, Denials, Dialect,
    Finished, Listener, Operation, QueuePair, QueuePairKind, RequestQueue, SharedReceiveQueue,
    SharedReceives,
};
use transom_iwarp::Config;
use transom_memory::{DomainId, Lane, Memory, QueuePairId, Rights, Scope, Token};

use crate::arena::Arena;
use crate::watch::Watcher;

/// Refusals, behind a lock as a driver keeps them, and shown to the watcher.
#[derive(Debug)]
pub struct Records {
    log: Mutex<DenialLog>,
    watcher: Watcher,
}

impl Denials for Records {
    fn record(&self, record: DenialRecord) -> u64 {
        self.watcher.see().denied(&record);
        self.log.lock().unwrap_or_else(PoisonError::into_inner).record(record)
    }

    fn explain(&self, id: u64) -> Option<String> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.get(id).map(|record| record.cause.for_peer())
    }
}

/// A shared receive queue, behind a lock as a driver keeps it, and shown to the watcher.
#[derive(Debug)]
pub struct Pool {
    process: usize,
    number: usize,
    watcher: Watcher,
    /// Where messages name it: its number, and the protection domain in which they are judged.
    pub name: Option<(u32, DomainId)>,
    /// The queue, and what has fired.
    pub queue: Mutex<(SharedReceiveQueue, Vec<Finished>)>,
}

impl SharedReceives for Pool {
    fn take(&self, queue_pair: QueuePairId, into: &mut RequestQueue) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let (queue, fired) = &mut *queue;
        let got = queue.take(queue_pair, into, fired);
        self.watcher.see().taken(self.process, self.number, queue_pair, got);
        got
    }

    fn give_back(&self, unused: &mut RequestQueue) {
        self.watcher.see().given_back(self.process, self.number, unused.len());
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).0.give_back(unused);
    }
}

/// The shared receive queues of a process, of which messages name one.
#[derive(Debug)]
pub struct Targets<'a> {
    /// All of them.
    pub pools: &'a [Pool],
    /// The one that was named last, on the queue pair of this call.
    pub aimed: Arc<Mutex<Option<usize>>>,
}

impl Targets<'_> {
    fn aimed(&self) -> Option<&Pool> {
        let aimed = *self.aimed.lock().unwrap_or_else(PoisonError::into_inner);
        aimed.and_then(|number| self.pools.get(number))
    }
}

impl SharedReceives for Targets<'_> {
    fn aim(&self, number: u32) -> Option<DomainId> {
        let named = |pool: &Pool| pool.name.is_some_and(|(name, _)| name == number);
        let at = self.pools.iter().position(named)?;
        *self.aimed.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
        self.pools.get(at)?.name.map(|(_, domain)| domain)
    }

    fn take(&self, queue_pair: QueuePairId, into: &mut RequestQueue) -> bool {
        self.aimed().is_some_and(|pool| pool.take(queue_pair, into))
    }

    fn give_back(&self, unused: &mut RequestQueue) {
        if let Some(pool) = self.aimed() {
            pool.give_back(unused);
        }
    }
}

/// A completion queue, and what must be in it.
#[derive(Debug)]
pub struct Cq {
    /// The queue.
    pub queue: CompletionQueue,
    /// Entries that must be in the queue.
    pub mirror: VecDeque<Completion>,
    /// The program lets it fill up.
    pub neglected: bool,
    /// Shared receive queues whose receives complete here, by their place in the process.
    pub pools: HashMap<usize, u32>,
}

/// A queue pair with its connector.
#[derive(Debug)]
pub struct Pair {
    /// Number of the queue pair.
    pub number: u32,
    /// Kind.
    pub kind: QueuePairKind,
    /// Where messages name a shared receive queue: the last one that was named.
    pub aimed: Arc<Mutex<Option<usize>>>,
    /// Protection domain.
    pub domain: DomainId,
    /// The front half.
    pub front: QueuePair,
    /// The connector.
    pub connector: Connector,
    /// The completion queues, for requests and for receives.
    pub cqs: [usize; 2],
    /// The queue pair's numbers in its completion queues.
    pub members: [u32; 2],
    /// The shared receive queue.
    pub pool: Option<usize>,
    /// The link and the side, while there is one.
    pub end: Option<(usize, usize)>,
    /// The program has tried to connect it before.
    pub tried: bool,
    /// The program has let go of it.
    pub released: bool,
    /// The program does not post receives on it for now.
    pub lazy: bool,
    /// The Write of so many bytes that its program has posted last.
    pub signal: Option<(Operation, u64)>,
}

/// Registered memory, as its program knows it.
#[derive(Clone, Debug)]
pub struct Region {
    /// The region's token.
    pub token: Token,
    /// The queue pairs that may use it.
    pub scope: Scope,
    /// First byte.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// Rights granted.
    pub rights: Rights,
    /// The token stays (fast registration).
    pub standing: bool,
    /// The program thinks that it is there.
    pub live: bool,
}

/// A window, as its program knows it.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The window's token.
    pub token: Token,
    /// Index of its queue pair.
    pub pair: usize,
    /// The program thinks that it is there.
    pub live: bool,
}

/// A process.
#[derive(Debug)]
pub struct Process {
    /// The process's number; a process that is restarted gets another.
    pub index: usize,
    /// The process has not died.
    pub alive: bool,
    /// The rules its objects follow.
    pub dialect: &'static Dialect,
    /// Configuration of the wire.
    pub wire: Config,
    /// The adapter's capabilities.
    pub caps: Caps,
    /// Tell peers all about refusals.
    pub explain: bool,
    /// The table.
    pub memory: Arc<Memory>,
    /// The lane of the one thread.
    pub lane: Lane,
    /// The bytes of the buffers.
    pub arena: Arena,
    /// Records of refusals.
    pub denials: Records,
    /// Shared receive queues.
    pub pools: Vec<Pool>,
    /// Completion queues.
    pub cqs: Vec<Cq>,
    /// Queue pairs.
    pub pairs: Vec<Pair>,
    /// The listener.
    pub listener: Listener,
    /// Registered memory.
    pub regions: Vec<Region>,
    /// Memory windows.
    pub windows: Vec<Window>,
    /// The next buffer's address.
    pub next_address: u64,
    /// The next request's context; unique in the process.
    pub next_context: u64,
    /// Asynchronous calls that have not ended.
    pub waiting: Vec<u64>,
}

impl Process {
    /// A process with nothing in it.
    #[must_use]
    pub fn new(
        index: usize,
        dialect: &'static Dialect,
        wire: Config,
        caps: Caps,
        explain: bool,
        memory: Memory,
        watcher: &Watcher,
    ) -> Process {
        let memory = Arc::new(memory);
        {
            let mut watch = watcher.see();
            watch.books.push(crate::model::Books::default());
            watch.shadows.push(std::collections::BTreeMap::new());
        }
        Process {
            index,
            alive: true,
            dialect,
            wire,
            caps,
            explain,
            lane: memory.lane(),
            arena: Arena::new(index, Arc::clone(&memory), watcher.clone()),
            memory,
            denials: Records { log: Mutex::new(DenialLog::new(64)), watcher: watcher.clone() },
            pools: Vec::new(),
            cqs: Vec::new(),
            pairs: Vec::new(),
            listener: Listener::new(dialect),
            regions: Vec::new(),
            windows: Vec::new(),
            next_address: 0x1_0000 + index as u64 * 0x1000_0000,
            next_context: 1,
            waiting: Vec::new(),
        }
    }

    /// A shared receive queue.
    pub fn add_pool(
        &mut self,
        depth: usize,
        sges: usize,
        name: Option<(u32, DomainId)>,
        watcher: &Watcher,
    ) {
        let number = self.pools.len();
        if let Some((name, domain)) = name {
            watcher.see().targets.insert((self.index, name), (number, domain));
        }
        watcher.see().pools.insert((self.index, number), VecDeque::new());
        let queue = SharedReceiveQueue::new(depth, sges, 1 << 20);
        self.pools.push(Pool {
            process: self.index,
            number,
            name,
            watcher: watcher.clone(),
            queue: Mutex::new((queue, Vec::new())),
        });
    }

    /// A context that was not used before.
    pub fn context(&mut self) -> u64 {
        self.next_context += 1;
        self.next_context
    }

    /// A name for an asynchronous call, which must end once.
    pub fn waiter(&mut self) -> u64 {
        let waiter = self.context();
        self.waiting.push(waiter);
        waiter
    }
}

impl Process {
    /// A completion queue.
    pub fn add_cq(&mut self, depth: usize, neglected: bool) {
        let mut queue = CompletionQueue::new(depth, self.dialect.completion_queues);
        queue.set_overrun(self.dialect.overrun);
        self.cqs.push(Cq { queue, mirror: VecDeque::new(), neglected, pools: HashMap::new() });
    }
}
