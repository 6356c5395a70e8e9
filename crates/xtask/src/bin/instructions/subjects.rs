//! The subjects that are counted: each warms up, then marks stretches of a known number of
//! operations.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;

use transom::{Adapter, Grant, Path, Posted, QueuePair, Region, Rights, Window};
use transom_memory::{
    Access, Actor, Config, DomainId, Memory, Purpose, QueuePairId, Registration, Rights as Bits,
    Scope, Segment, Token,
};

use crate::stepper::mark;
use crate::verbs::{self, Kind};

/// The result of what is counted.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Rounds before anything is counted: buffers, leases and predictions are in their steady state.
const WARM: usize = 2_000;
/// Writes of a batch.
const BATCH: usize = 16;
/// Stretches that are counted of each subject.
const STRETCHES: usize = 6;

/// An operation whose cost has a budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    /// The name in the table of budgets and on the command line.
    pub(crate) name: &'static str,
    /// The operation in plain words.
    pub(crate) about: &'static str,
    /// The value of `TRANSOM_PATH`.
    pub(crate) path: &'static str,
    /// Operations between two marks.
    pub(crate) operations: u64,
    work: Work,
}

/// The work between two marks.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Writes of so many bytes to and fro; or with both adapters answering inspections.
    Write(usize),
    Inspected,
    /// Messages to and fro.
    Send,
    Read,
    FetchAdd,
    /// Writes, or Sends, of a batch.
    Writes,
    Sends,
    /// Requests of a C program; a chain of its Sends.
    Verbs(Kind),
    VerbsChain,
    Bind,
    Register,
    Check,
}

impl Subject {
    const fn new(
        (name, path): (&'static str, &'static str),
        operations: u64,
        work: Work,
        about: &'static str,
    ) -> Subject {
        Subject { name, about, path, operations, work }
    }

    /// Carries the operation out, with marks. Returns when all stretches have been executed.
    pub(crate) fn run(&self) -> Outcome {
        let operations = self.operations;
        let path = if self.path == TCP { Path::Tcp } else { Path::Process };
        match self.work {
            Work::Write(size) => half_rounds((path, false), size, operations),
            Work::Inspected => half_rounds((path, true), 8, operations),
            Work::Send => messages(path, operations),
            Work::Read => fetches(path, operations, |end, theirs| {
                end.queue.read(theirs.range(..8), end.local.slice(..8))
            }),
            Work::FetchAdd => fetches(path, operations, |end, theirs| {
                end.queue.fetch_add(theirs.range(..8), 1, end.local.slice(..8))
            }),
            Work::Writes => batches(path, operations),
            Work::Sends => batches_of_sends(path, operations),
            Work::Verbs(kind) => verbs_rounds(kind, operations),
            Work::VerbsChain => verbs_chains(operations),
            Work::Bind => bind(operations),
            Work::Register => register(operations),
            Work::Check => check(operations),
        }
    }
}

const PROCESS: &str = "process";
const TCP: &str = "tcp";
/// Operations of two batches.
const BATCHES: u64 = 2 * BATCH as u64;

/// Every subject, in the order in which they are shown.
#[rustfmt::skip]
pub(crate) const SUBJECTS: &[Subject] = &[
    // Half a round trip of Writes through the safe interface.
    Subject::new(("half-round-process", PROCESS), 4, Work::Write(8),
        "half a round trip of 8-byte Writes over shared memory"),
    Subject::new(("half-round-process-64", PROCESS), 4, Work::Write(64),
        "the same of 64 bytes, which do not fit a slot of the rings"),
    Subject::new(("half-round-process-4k", PROCESS), 4, Work::Write(4096),
        "the same of 4 KiB, with two copies of them"),
    Subject::new(("half-round-inspected", PROCESS), 4, Work::Inspected,
        "the same, with both adapters answering inspections: their tokens count copies"),
    Subject::new(("half-round-tcp", TCP), 4, Work::Write(8),
        "half a round trip of 8-byte Writes over TCP, checksums off"),
    Subject::new(("half-round-tcp-1k", TCP), 4, Work::Write(1024),
        "the same of 1 KiB"),
    // Other operations through the safe interface.
    Subject::new(("send-process", PROCESS), 4, Work::Send,
        "half a round trip of 8-byte messages over shared memory"),
    Subject::new(("send-tcp", TCP), 4, Work::Send,
        "the same over TCP"),
    Subject::new(("read-process", PROCESS), 4, Work::Read,
        "a Read of 8 bytes over shared memory, there and back"),
    Subject::new(("read-tcp", TCP), 4, Work::Read,
        "the same over TCP"),
    Subject::new(("atomic-process", PROCESS), 4, Work::FetchAdd,
        "a fetch-and-add over shared memory, there and back"),
    Subject::new(("atomic-tcp", TCP), 4, Work::FetchAdd,
        "the same over TCP"),
    Subject::new(("batch-process", PROCESS), BATCHES, Work::Writes,
        "a Write of a batch of 16 over shared memory: posted, placed, waited for"),
    Subject::new(("batch-tcp", TCP), BATCHES, Work::Writes,
        "the same over TCP"),
    Subject::new(("batch-send-process", PROCESS), BATCHES, Work::Sends,
        "a Send of a batch of 16 over shared memory: posted, received, waited for"),
    Subject::new(("batch-send-tcp", TCP), BATCHES, Work::Sends,
        "the same over TCP"),
    // The verbs library: ibv_post_send, ibv_post_recv, ibv_poll_cq.
    Subject::new(("verbs-write-process", PROCESS), 4, Work::Verbs(Kind::Write),
        "half a round trip of 8-byte Writes of a verbs program over shared memory"),
    Subject::new(("verbs-write-tcp", TCP), 4, Work::Verbs(Kind::Write),
        "the same over TCP"),
    Subject::new(("verbs-inline-process", PROCESS), 4, Work::Verbs(Kind::WriteInline),
        "half a round trip of Writes with inline data over shared memory"),
    Subject::new(("verbs-inline-tcp", TCP), 4, Work::Verbs(Kind::WriteInline),
        "the same over TCP"),
    Subject::new(("verbs-immediate-process", PROCESS), 4, Work::Verbs(Kind::WriteWithImmediate),
        "half a round trip of Writes with immediate data, their receives posted again, over shared memory"),
    Subject::new(("verbs-immediate-tcp", TCP), 4, Work::Verbs(Kind::WriteWithImmediate),
        "the same over TCP"),
    Subject::new(("verbs-send-process", PROCESS), 4, Work::Verbs(Kind::Send),
        "half a round trip of 8-byte Sends, their receives posted again, over shared memory"),
    Subject::new(("verbs-send-tcp", TCP), 4, Work::Verbs(Kind::Send),
        "the same over TCP"),
    Subject::new(("verbs-read-process", PROCESS), 4, Work::Verbs(Kind::Read),
        "a Read of 8 bytes over shared memory, there and back"),
    Subject::new(("verbs-read-tcp", TCP), 4, Work::Verbs(Kind::Read),
        "the same over TCP"),
    Subject::new(("verbs-atomic-process", PROCESS), 4, Work::Verbs(Kind::FetchAdd),
        "a fetch-and-add over shared memory, there and back"),
    Subject::new(("verbs-atomic-tcp", TCP), 4, Work::Verbs(Kind::FetchAdd),
        "the same over TCP"),
    Subject::new(("verbs-chain-process", PROCESS), BATCHES, Work::VerbsChain,
        "a Send of a chain of 16 over shared memory: posted, received, its receive posted again"),
    Subject::new(("verbs-chain-tcp", TCP), BATCHES, Work::VerbsChain,
        "the same over TCP"),
    // Every 16th pair of `bind` makes a block of random numbers, and most stretches have none of these.
    Subject::new(("bind", PROCESS), 4, Work::Bind,
        "a window opened to a peer and revoked"),
    Subject::new(("register", PROCESS), 8, Work::Register,
        "4 KiB registered and deregistered"),
    Subject::new(("check", PROCESS), 100, Work::Check,
        "one access judged under a guard of its own, among 1,000 tokens"),
];

/// [`STRETCHES`] stretches of `work`, which is done twice in each: between the first two marks, and
/// between the second and the third one, where it counts.
fn counted(mut work: impl FnMut() -> Outcome) -> Outcome {
    for _ in 0..STRETCHES {
        mark();
        let before = work();
        mark();
        let done = work();
        mark();
        before.and(done)?;
    }
    Ok(())
}

/// A side of a connection.
struct End {
    queue: QueuePair,
    memory: Region<Vec<u8>>,
    local: Region<Vec<u8>>,
    window: Window,
    theirs: Option<Grant>,
    /// The offset of the last byte.
    last: u64,
}

impl End {
    fn new(adapter: &Adapter, queue: QueuePair, size: usize) -> Outcome<End> {
        let memory = adapter.register(vec![0; size])?;
        let local = adapter.register(vec![0; size])?;
        let window = queue.bind(&memory, .., Rights::READ | Rights::WRITE | Rights::ATOMIC)?;
        Ok(End { queue, memory, local, window, theirs: None, last: size as u64 - 1 })
    }
}

/// Two adapters of this process and a connection between them, with `size` bytes of memory on each side.
fn connect((path, inspect): (Path, bool), size: usize) -> Outcome<([Adapter; 2], [End; 2])> {
    let wanted = if path == Path::Tcp { "tcp" } else { "process" };
    let here = Ipv4Addr::LOCALHOST;
    let options = || Adapter::options().crc(false).path(path).inspect(inspect);
    let near = options().open(here.into())?;
    let far = options().open(here.into())?;
    let mut listener = far.listen(SocketAddr::from((here, 0)))?;
    let to = listener.address();
    let (one, other) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| near.connect(to).wait());
        let other = listener.next().wait().and_then(|incoming| incoming.accept().wait());
        (asking.join(), other)
    });
    let one = one.map_err(|_| "the connecting thread has panicked")??;
    let (mut one, mut other) = (End::new(&near, one, size)?, End::new(&far, other?, size)?);
    let taken = one.queue.info().path;
    if taken != wanted {
        return Err(format!("the connection took the path {taken}, not {wanted}").into());
    }
    one.theirs = Some(other.window.grant());
    other.theirs = Some(one.window.grant());
    Ok(([near, far], [one, other]))
}

fn half_rounds(how: (Path, bool), size: usize, operations: u64) -> Outcome {
    let (_adapters, [one, other]) = connect(how, size)?;
    let mut turn = 0_u8;
    let mut round = || -> Outcome {
        turn = turn.wrapping_add(1);
        half(&one, &other, turn)?;
        half(&other, &one, turn)
    };
    for _ in 0..WARM {
        round()?;
    }
    counted(|| (0..operations / 2).try_for_each(|_| round()))
}

/// Messages to and fro, each received before the next one is sent.
fn messages(path: Path, operations: u64) -> Outcome {
    let (_adapters, [one, other]) = connect((path, false), 8)?;
    let mut turn = 0_u64;
    let half = |from: &End, to: &End, turn: u64| -> Outcome {
        drop(from.queue.send(turn.to_ne_bytes())?);
        receive(to)
    };
    let mut round = || -> Outcome {
        turn += 1;
        half(&one, &other, turn)?;
        half(&other, &one, turn)
    };
    for _ in 0..WARM {
        round()?;
    }
    counted(|| (0..operations / 2).try_for_each(|_| round()))
}

/// Poll until a message has come.
fn receive(to: &End) -> Outcome {
    while to.queue.try_recv()?.is_none() {
        to.queue.poll();
    }
    Ok(())
}

/// Requests of one end that bring something from the other end, which polls.
fn fetches(
    path: Path,
    operations: u64,
    post: impl Fn(&End, Grant) -> transom::Result<Posted<()>>,
) -> Outcome {
    let (_adapters, [one, other]) = connect((path, false), 8)?;
    let theirs = other.window.grant();
    let round = || -> Outcome {
        let posted = post(&one, theirs)?;
        while !posted.is_done() {
            other.queue.poll();
            one.queue.poll();
        }
        Ok(posted.wait()?)
    };
    for _ in 0..WARM {
        round()?;
    }
    counted(|| (0..operations).try_for_each(|_| round()))
}

fn verbs_rounds(kind: Kind, operations: u64) -> Outcome {
    let [mut one, mut other] = verbs::connect()?;
    let mut turn = 1;
    let mut round = || -> Outcome {
        turn += 1;
        verbs::round(&mut one, &mut other, kind, turn)?;
        turn += 1;
        verbs::round(&mut other, &mut one, kind, turn)
    };
    for _ in 0..WARM {
        round()?;
    }
    counted(|| (0..operations / 2).try_for_each(|_| round()))
}

fn verbs_chains(operations: u64) -> Outcome {
    let [mut one, mut other] = verbs::connect()?;
    let mut turn = 1;
    let mut round = || -> Outcome {
        turn += 1;
        verbs::chain(&mut one, &mut other, turn)?;
        verbs::chain(&mut other, &mut one, turn)
    };
    for _ in 0..WARM {
        round()?;
    }
    counted(|| (0..operations as usize / (2 * verbs::CHAIN)).try_for_each(|_| round()))
}

/// A Write from one end that the other end has seen.
fn half(from: &End, to: &End, turn: u8) -> Outcome {
    from.local.atomic_u8(from.last)?.store(turn, Ordering::Release);
    if let Some(theirs) = from.theirs {
        drop(from.queue.write(theirs, from.local.slice(..))?);
    }
    see(to, turn)
}

/// Poll until the last byte has come.
fn see(to: &End, turn: u8) -> Outcome {
    let last = to.memory.atomic_u8(to.last)?;
    loop {
        to.queue.poll();
        if last.load(Ordering::Acquire) == turn {
            return Ok(());
        }
        // Single steps are slow: on a busy machine a peer may pass for silent.
        if let Some(why) = to.queue.ended() {
            return Err(why.into());
        }
    }
}

/// Batches of 8-byte Writes, each of which the other end sees before the next one is posted.
fn batches(path: Path, operations: u64) -> Outcome {
    let (_adapters, [one, other]) = connect((path, false), 8)?;
    let (theirs, from) = (other.window.grant(), one.local.slice(..));
    let (mut batch, mut turn) = (one.queue.batch(), 0_u8);
    let mut round = || -> Outcome {
        turn = turn.wrapping_add(1);
        one.local.atomic_u8(7)?.store(turn, Ordering::Release);
        for _ in 0..BATCH {
            batch.write(theirs, &from)?;
        }
        let posted = batch.post()?;
        see(&other, turn)?;
        while !posted.is_done() {
            one.queue.poll();
        }
        Ok(posted.wait()?)
    };
    for _ in 0..WARM {
        round()?;
    }
    counted(|| (0..operations as usize / BATCH).try_for_each(|_| round()))
}

/// Batches of 8-byte Sends to and fro, each received before the next one is posted.
fn batches_of_sends(path: Path, operations: u64) -> Outcome {
    let (_adapters, [one, other]) = connect((path, false), 8)?;
    let half = |from: &End, to: &End| -> Outcome {
        let (slice, mut batch) = (from.local.slice(..), from.queue.batch());
        for _ in 0..BATCH {
            batch.send(&slice)?;
        }
        drop(batch.post()?);
        (0..BATCH).try_for_each(|_| receive(to))
    };
    let round = || half(&one, &other).and_then(|()| half(&other, &one));
    for _ in 0..WARM {
        round()?;
    }
    counted(|| (0..operations as usize / (2 * BATCH)).try_for_each(|_| round()))
}

fn bind(operations: u64) -> Outcome {
    let (_adapters, [one, _other]) = connect((Path::Process, false), 8)?;
    let pair = || -> Outcome {
        let window = one.queue.bind(&one.local, .., Rights::READ | Rights::WRITE)?;
        Ok(window.revoke().wait()?)
    };
    for _ in 0..WARM {
        pair()?;
    }
    counted(|| (0..operations).try_for_each(|_| pair()))
}

fn register(operations: u64) -> Outcome {
    let adapter = Adapter::open(Ipv4Addr::LOCALHOST.into())?;
    let mut kept = Some(vec![0_u8; 4096]);
    let mut pair = || -> Outcome {
        let region = adapter.register(kept.take().unwrap_or_default())?;
        kept = Some(region.deregister().wait()?);
        Ok(())
    };
    for _ in 0..WARM {
        pair()?;
    }
    counted(|| (0..operations).try_for_each(|_| pair()))
}

fn check(operations: u64) -> Outcome {
    const BASE: u64 = 0x7000_0000_0000;
    const DOMAIN: DomainId = DomainId(1);
    const ACTOR: Actor = Actor { domain: DOMAIN, queue_pair: QueuePairId(7), connection: None };
    let memory = Memory::new([7; 32], Config::default());
    let registration = Registration {
        scope: Scope::Domain(DOMAIN),
        rights: Bits::LOCAL_READ | Bits::REMOTE_READ,
        base: BASE,
        segments: &[Segment { host: BASE, length: 4096 }],
    };
    let mut tokens = Vec::<Token>::new();
    for _ in 0..1_000 {
        tokens.push(memory.register(&registration).map_err(|why| format!("{why:?}"))?);
    }
    tokens.truncate(operations as usize);
    let mut lane = memory.lane();
    let mut sum = 0;
    let mut all = || -> Outcome {
        for token in &tokens {
            let (actor, purpose) = (ACTOR, Purpose::LocalSource);
            let access = Access { actor, purpose, token: *token, address: BASE + 64, length: 64 };
            let grant = memory.check(&mut lane, &access, 0).map_err(|denial| denial.to_string())?;
            sum += grant.offset();
        }
        Ok(())
    };
    all()?;
    counted(all)?;
    std::hint::black_box(sum);
    Ok(())
}
