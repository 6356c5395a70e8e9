//! The subjects that are counted: each warms up, then marks stretches of a known number of
//! operations.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;

use transom::{Adapter, Grant, Path, QueuePair, Region, Rights, Window};
use transom_memory::{
    Access, Actor, Config, DomainId, Memory, Purpose, QueuePairId, Registration, Rights as Bits,
    Scope, Segment, Token,
};

use crate::front::{self, Source};
use crate::stepper::mark;

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
    /// Operations between two marks.
    pub(crate) operations: u64,
    run: fn(u64) -> Outcome,
}

impl Subject {
    /// Carries the operation out, with marks. Returns when all stretches have been executed.
    pub(crate) fn run(&self) -> Outcome {
        (self.run)(self.operations)
    }
}

/// Every subject, in the order in which they are shown.
pub(crate) const SUBJECTS: &[Subject] = &[
    Subject {
        name: "half-round-process",
        about: "half a round trip of 8-byte Writes over shared memory",
        operations: 4,
        run: |operations| half_rounds((Path::Process, false), 8, operations),
    },
    Subject {
        name: "half-round-process-64",
        about: "the same of 64 bytes, which do not fit a slot of the rings",
        operations: 4,
        run: |operations| half_rounds((Path::Process, false), 64, operations),
    },
    Subject {
        name: "half-round-process-4k",
        about: "the same of 4 KiB, with two copies of them",
        operations: 4,
        run: |operations| half_rounds((Path::Process, false), 4096, operations),
    },
    Subject {
        name: "half-round-inspected",
        about: "the same, with both adapters answering inspections: their tokens count copies",
        operations: 4,
        run: |operations| half_rounds((Path::Process, true), 8, operations),
    },
    Subject {
        name: "half-round-tcp",
        about: "half a round trip of 8-byte Writes over TCP, checksums off",
        operations: 4,
        run: |operations| half_rounds((Path::Tcp, false), 8, operations),
    },
    Subject {
        name: "half-round-tcp-1k",
        about: "the same of 1 KiB",
        operations: 4,
        run: |operations| half_rounds((Path::Tcp, false), 1024, operations),
    },
    Subject {
        name: "half-round-front",
        about: "the same through queue pairs and completion queues of the verbs library",
        operations: 4,
        run: |operations| front_half_rounds(Source::Region, operations),
    },
    Subject {
        name: "half-round-front-inline",
        about: "the same, with inline data",
        operations: 4,
        run: |operations| front_half_rounds(Source::Inline, operations),
    },
    Subject {
        name: "batch-process",
        about: "a Write of a batch of 16 over shared memory: posted, placed, waited for",
        operations: 2 * BATCH as u64,
        run: batches,
    },
    Subject {
        name: "bind",
        about: "a window opened to a peer and revoked",
        // Every 16th pair makes a block of random numbers, and most stretches have none of these.
        operations: 4,
        run: bind,
    },
    Subject {
        name: "register",
        about: "4 KiB registered and deregistered",
        operations: 8,
        run: register,
    },
    Subject {
        name: "check",
        about: "one access judged under a guard of its own, among 1,000 tokens",
        operations: 100,
        run: check,
    },
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
        let window = queue.bind(&memory, .., Rights::READ | Rights::WRITE)?;
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

fn front_half_rounds(source: Source, operations: u64) -> Outcome {
    let [mut one, mut other] = front::connect()?;
    let mut turn = 0;
    let mut round = || -> Outcome {
        turn += 1;
        front::half(&mut one, &mut other, source, turn)?;
        turn += 1;
        front::half(&mut other, &mut one, source, turn)
    };
    for _ in 0..WARM {
        round()?;
    }
    counted(|| (0..operations / 2).try_for_each(|_| round()))
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
fn batches(operations: u64) -> Outcome {
    let (_adapters, [one, other]) = connect((Path::Process, false), 8)?;
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
