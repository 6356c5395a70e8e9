//! `bench bind` and `bench register`: the cost of opening and closing on this side, without a peer.
//! The companion figure, interleaved like a baseline, is the part that the layers above cannot go
//! below: the token table for a window, the question to the kernel for a region.

use std::time::{Duration, Instant};

use transom::Rights;
use transom_engine::raw;
use transom_memory::{
    Config, DomainId, Memory, QueuePairId, Registration, Scope, Segment, WindowSpec,
};

use crate::bench::args::Plan;
use crate::bench::report::{Baseline, Report};
use crate::bench::session::start;
use crate::bench::side::{Job, Side};
use crate::bench::{PAIRS, stats};
use crate::command::exit::{Exit, Failure, Outcome};
use crate::command::progress;

/// Pairs of calls between two looks at the clock.
const BATCH: u32 = 64;

/// Nanoseconds for each of what `work` does [`BATCH`] times, until `time` is over.
fn each(time: Duration, mut work: impl FnMut() -> Outcome) -> Outcome<f64> {
    let (begin, mut count) = (Instant::now(), 0_u32);
    loop {
        for _ in 0..BATCH {
            work()?;
        }
        count += BATCH;
        let spent = begin.elapsed();
        if spent >= time {
            return Ok(spent.as_nanos() as f64 / f64::from(count));
        }
    }
}

/// Slices of ours and of the companion in turns; the first of each warms up.
fn compare(
    plan: &Plan,
    bench: &'static str,
    companion: &str,
    mut side: Side,
    mut ours: impl FnMut(&mut Side) -> Outcome<f64>,
    mut theirs: impl FnMut() -> Outcome<f64>,
) -> Outcome {
    let (mut values, mut baseline) = (Vec::with_capacity(PAIRS), Baseline::new(companion));
    ours(&mut side)?;
    theirs()?;
    for _ in progress::steps(PAIRS, "pairs") {
        values.push(side.measured(&mut ours)?);
        baseline.values.push(theirs()?);
    }
    let p99 = stats::quantile(&mut values.clone(), 0.99);
    let mut report = Report::new(bench, "ns", &values, p99, side.about(plan));
    report.compare(&values, &baseline);
    report.print(plan.json);
    side.send_job(Job::Quit, 0, false)
}

/// A window opened to the peer and closed. Its Bind goes through the send queue and has executed when
/// the window is closed; closing is finished when the call returns.
pub(crate) fn bind(plan: &Plan) -> Outcome {
    let (side, _peer) = start(plan)?;
    let ours = |side: &mut Side| {
        each(plan.slice, || {
            let window = side.queue.bind(&side.local, .., Rights::READ | Rights::WRITE)?;
            Ok(window.revoke().wait()?)
        })
    };
    let table = Table::new()?;
    compare(plan, "bind", "the token table alone", side, ours, || each(plan.slice, || table.pair()))
}

/// A token table with one region, as the engine asks it.
struct Table(Memory, WindowSpec);

impl Table {
    fn new() -> Outcome<Table> {
        use transom_memory::Rights;
        let (domain, base, length) = (DomainId(1), 0x7000_0000_0000, 4096);
        let memory = Memory::new([7; 32], Config::default());
        let registration = Registration {
            scope: Scope::Domain(domain),
            rights: Rights::LOCAL_READ | Rights::LOCAL_WRITE | Rights::BIND,
            base,
            segments: &[Segment { host: base, length }],
        };
        let region = memory
            .register(&registration)
            .map_err(|why| Failure::new(Exit::System, format!("registering a region: {why}")))?;
        let scope = Scope::QueuePair(domain, QueuePairId(7));
        let rights = Rights::REMOTE_READ | Rights::REMOTE_WRITE;
        Ok(Table(memory, WindowSpec { region, domain, scope, base, length, rights }))
    }

    fn pair(&self) -> Outcome {
        let Table(memory, spec) = self;
        let token = memory
            .reserve(spec, 0)
            .map_err(|why| Failure::new(Exit::CheckFailed, format!("binding: {why}")))?;
        if !memory.activate(token) {
            return Err(Failure::new(Exit::CheckFailed, "a window did not begin"));
        }
        memory
            .close(token, None, 0)
            .map_err(|why| Failure::new(Exit::CheckFailed, format!("closing: {why}")))
    }
}

/// Memory registered and deregistered. Its pages need not be there; that they may be read and written
/// is asked each time (ND2 R9).
pub(crate) fn register(plan: &Plan) -> Outcome {
    // The buffers of the connection are not what is measured.
    let (side, _peer) = start(&Plan { size: 8, ..plan.clone() })?;
    deregistered_is_refused(&side)?;
    let mut kept = Some(vec![0_u8; plan.size]);
    let (start, length) =
        kept.as_ref().map_or((0, 0), |memory| (memory.as_ptr().addr() as u64, memory.len() as u64));
    let ours = |side: &mut Side| {
        each(plan.slice, || {
            let region = side.adapter.register(kept.take().unwrap_or_default())?;
            kept = Some(region.deregister().wait()?);
            Ok(())
        })
    };
    let ask = || {
        each(plan.slice, || {
            raw::check_pages(start, length, true)
                .map_err(|why| Failure::new(Exit::System, format!("asking for the pages: {why}")))
        })
    };
    compare(plan, "register", "the question to the kernel alone", side, ours, ask)
}

/// As for windows: memory that is not registered any more is not sent from (ND2 R17).
fn deregistered_is_refused(side: &Side) -> Outcome {
    let queue = &side.queue;
    let region = side.adapter.register(vec![0; 8])?;
    let slice = region.slice(..);
    region.deregister().wait()?;
    match queue.write(side.theirs, slice).and_then(|posted| posted.wait()) {
        Err(why) if why.denial().is_some() => Ok(()),
        other => Err(Failure::new(
            Exit::CheckFailed,
            format!("a Write from deregistered memory was not refused: {other:?}"),
        )),
    }
}
