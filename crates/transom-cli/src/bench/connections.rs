//! `bench connections`: a few active connections among many idle ones, next to the few alone.
//!
//! On each active connection a message of eight bytes goes back and forth. Both processes run a future
//! per connection on one thread, which spins on [`Adapter::poll`] or sleeps while the adapter's own
//! thread moves the bytes.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use transom::{Adapter, QueuePair};

use crate::bench::args::{ConnectionsArgs, PeerArgs, Plan};
use crate::bench::os::room_for_descriptors;
use crate::bench::report::{Baseline, Report};
use crate::bench::session::{options, start};
use crate::bench::side::{Job, Side};
use crate::bench::tasks::Tasks;
use crate::bench::{PAIRS, stats};
use crate::command::exit::{Exit, Failure, Outcome, system};
use crate::command::{OnOff, Way};
use crate::command::{pairing, progress};

/// Receives of each end: their number and size.
const RECEIVES: (u32, u32) = (2, 64);
const MESSAGE: [u8; 8] = *b"message.";
/// The message after the last.
const STOP: [u8; 4] = *b"stop";
/// Descriptors that are not connections.
const OTHERS: usize = 100;

pub(crate) fn run(args: &ConnectionsArgs) -> Outcome {
    let plan = args.common.checked(MESSAGE.len(), MESSAGE.len())?;
    let (connections, active) = (args.connections, args.active);
    if !(1..=connections).contains(&active) {
        let what = format!("--active {active} of --connections {connections}: nothing to compare");
        return Err(Failure::new(Exit::Usage, what).try_this("--connections 10000 --active 100"));
    }
    room_for(connections + active, plan.path)?;
    let (mut side, _peer) = start(&plan)?;
    let many = gather(&mut side, &plan, connections)?;
    let alone = gather(&mut side, &plan, active)?;
    let spin = plan.wait.is_busy();
    let name = format!("{active} connections, all of them active");
    let (mut ours, mut baseline) = (Vec::with_capacity(PAIRS), Baseline::new(name));
    many.rate(&mut side, Job::AnswerFirst, active, spin, plan.slice / 2)?;
    alone.rate(&mut side, Job::AnswerSecond, active, spin, plan.slice / 2)?;
    for _ in progress::steps(PAIRS, "pairs") {
        let among = |side: &mut Side| many.rate(side, Job::AnswerFirst, active, spin, plan.slice);
        ours.push(side.measured(among)?);
        let rate = alone.rate(&mut side, Job::AnswerSecond, active, spin, plan.slice)?;
        baseline.values.push(rate);
    }
    let p99 = stats::quantile(&mut ours.clone(), 0.01);
    let mut report = Report::new("connections", "messages/s", &ours, p99, side.about(&plan));
    report.compare(&ours, &baseline);
    report.print(plan.json);
    side.send_job(Job::Quit, 0, false)
}

/// Have room for so many connections in this process, and, because it inherits the limit, the peer's.
fn room_for(connections: usize, path: Way) -> Outcome {
    // A socket each; with shared memory also the Unix socket beside it, and its file in passing.
    let each = if path == Way::Tcp { 1 } else { 2 };
    let needed = (connections * each + OTHERS) as u64;
    let failed = system("raising the limit of descriptors");
    let Some(most) = room_for_descriptors(needed).map_err(failed)? else { return Ok(()) };
    let what = format!(
        "{connections} connections need {needed} descriptors in each process, and the hard limit is {most}"
    );
    Err(Failure::new(Exit::System, what)
        .try_this(format!("ulimit -Hn {needed}, as root; or fewer with --connections")))
}

/// Connections of one adapter.
struct Crowd {
    adapter: Adapter,
    queues: Vec<QueuePair>,
}

/// Connect so many times to the peer.
fn gather(side: &mut Side, plan: &Plan, count: usize) -> Outcome<Crowd> {
    side.send_job(Job::Gather, count, false)?;
    let port = u16::try_from(side.receive_number()?).unwrap_or(0);
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let adapter = options(plan.crc, plan.path, &plan.congestion).open(to.ip())?;
    let (receives, size) = RECEIVES;
    let key = side.key;
    let connect = |_| Ok(adapter.connect(to).private_data(&key).receives(receives, size).wait()?);
    let queues = (0..count).map(connect).collect::<Outcome<Vec<_>>>()?;
    side.receive_number()?; // the peer has accepted all of them
    Ok(Crowd { adapter, queues })
}

impl Crowd {
    /// Messages per second, both ways together.
    fn rate(
        &self,
        side: &mut Side,
        job: Job,
        active: usize,
        spin: bool,
        time: Duration,
    ) -> Outcome<f64> {
        side.send_job(job, 0, spin)?;
        let mut tasks = Tasks::new();
        let begin = Instant::now();
        let rounds = Rc::new(Cell::new(0_u64));
        for queue in self.queues.iter().take(active) {
            let rounds = rounds.clone();
            tasks.add(async move {
                loop {
                    drop(queue.send(MESSAGE)?);
                    queue.recv().await?;
                    rounds.set(rounds.get() + 1);
                    if begin.elapsed() >= time {
                        return Ok(());
                    }
                }
            });
        }
        tasks.run(spin.then_some(&self.adapter), || false)?;
        let seconds = begin.elapsed().as_secs_f64();
        if let Some(first) = self.queues.first() {
            drop(first.send(STOP)?);
            first.recv().wait()?;
        }
        Ok(2.0 * rounds.get() as f64 / seconds)
    }
}

/// The peer's side: what it has accepted so far, and who answers.
pub(crate) struct Gathered {
    crc: OnOff,
    path: Way,
    congestion: String,
    gathered: Vec<Answering>,
}

struct Answering {
    adapter: Adapter,
    tasks: Tasks<'static>,
    stopped: Rc<Cell<bool>>,
}

impl Gathered {
    pub(crate) fn new(args: &PeerArgs) -> Gathered {
        let PeerArgs { crc, path, ref congestion, .. } = *args;
        Gathered { crc, path, congestion: congestion.clone(), gathered: Vec::new() }
    }

    /// Accept so many connections, and have each answer what it receives.
    pub(crate) fn gather(&mut self, side: &mut Side, count: usize) -> Outcome {
        let here = Ipv4Addr::LOCALHOST;
        let adapter = options(self.crc, self.path, &self.congestion).open(here.into())?;
        let mut listener = adapter.listen((here, 0).into())?;
        side.send_number(listener.address().port().into())?;
        let (mut tasks, stopped) = (Tasks::new(), Rc::new(Cell::new(false)));
        let (receives, size) = RECEIVES;
        for _ in 0..count {
            let incoming = pairing::next(&mut listener, &side.key)?;
            let queue = incoming.receives(receives, size).accept().wait()?;
            tasks.add(answer(queue, stopped.clone()));
        }
        self.gathered.push(Answering { adapter, tasks, stopped });
        side.send_number(count as u64)
    }

    /// Answer on the connections of one gathering until the other side ends it.
    pub(crate) fn answer(&mut self, which: usize, spin: bool) -> Outcome {
        let Some(Answering { adapter, tasks, stopped }) = self.gathered.get_mut(which) else {
            return Ok(());
        };
        tasks.run(spin.then_some(&*adapter), || stopped.replace(false))
    }
}

async fn answer(queue: QueuePair, stopped: Rc<Cell<bool>>) -> Outcome {
    loop {
        let message = queue.recv().await?;
        drop(queue.send(&*message)?);
        if *message == STOP {
            stopped.set(true);
        }
    }
}
