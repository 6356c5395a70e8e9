//! An end of the pair, and how the two ends agree on what comes next.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::AtomicU8;
use std::time::{Duration, Instant};

use transom::{Adapter, Grant, QueuePair, Region, Rights, SharedMemory, Slice, Window};

use crate::bench::args::Plan;
use crate::bench::os::{Channel, cpu_time};
use crate::bench::report::About;
use crate::command::exit::{Outcome, system};
use crate::command::pairing::Key;

/// The peer's next task: one header on the channel, so that the plain one carries nothing
/// but baselines (congestion control remembers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Send back what arrives on the plain socket.
    RawPong,
    /// Send back what arrives on the channel.
    LocalPong,
    /// Swallow what arrives on the plain socket.
    RawSink,
    /// Count messages on the plain socket, and say so now and then.
    RawCount,
    /// Answer Writes with Writes.
    Pong,
    /// Answer each Write, watching memory only.
    WatchingPong,
    /// Answer messages with messages.
    SendPong,
    /// Receive messages until the last one.
    Receive,
    /// Be written to or read from.
    Passive,
    /// Say how much processor time was used so far.
    Cpu,
    /// Accept this many connections.
    Gather,
    /// Answer messages on the connections gathered first.
    AnswerFirst,
    /// Answer messages on the connections gathered second.
    AnswerSecond,
    /// Go.
    Quit,
}

const JOBS: [Job; 14] = [
    Job::RawPong,
    Job::LocalPong,
    Job::RawSink,
    Job::RawCount,
    Job::Pong,
    Job::WatchingPong,
    Job::SendPong,
    Job::Receive,
    Job::Passive,
    Job::Cpu,
    Job::Gather,
    Job::AnswerFirst,
    Job::AnswerSecond,
    Job::Quit,
];

/// An end of the pair: plain sockets, a queue pair, and a buffer that the other side may use.
pub(crate) struct Side {
    pub(crate) adapter: Adapter,
    pub(crate) raw: TcpStream,
    pub(crate) channel: Channel,
    pub(crate) queue: QueuePair,
    pub(crate) memory: Region<Vec<u8>>,
    /// Where the bytes to be written come from, and those read go to.
    pub(crate) local: Region<Vec<u8>>,
    /// This side's buffer, if the peer's process may map it.
    pub(crate) shared: Option<Region<SharedMemory>>,
    _open: Window,
    /// The other side's buffer.
    pub(crate) theirs: Grant,
    /// The processor this process has to itself.
    pub(crate) cpu: Option<usize>,
    /// The other process.
    pub(crate) peer_pid: u32,
    /// By which connections of the measuring side are known.
    pub(crate) key: Key,
    /// How an access to a revoked window was refused.
    pub(crate) refused: String,
    spent: Spent,
}

/// The cost of our measurements, baselines apart.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    wall: Duration,
    ours: Duration,
    theirs: Duration,
}

impl Side {
    /// Lend memory to the other side, and learn what it lends.
    pub(crate) fn meet(
        (raw, channel): (TcpStream, Channel),
        adapter: &Adapter,
        queue: QueuePair,
        size: usize,
    ) -> Outcome<Side> {
        let memory = adapter.register(vec![0; size])?;
        let local = adapter.register(vec![0; size])?;
        let open = queue.bind(&memory, .., Rights::READ | Rights::WRITE | Rights::ATOMIC)?;
        let told = queue.send(open.grant().to_bytes())?;
        let theirs = Grant::from_bytes(&queue.recv().wait()?)?;
        told.wait()?;
        Ok(Side {
            adapter: adapter.clone(),
            raw,
            channel,
            queue,
            memory,
            local,
            shared: None,
            _open: open,
            theirs,
            cpu: None,
            peer_pid: 0,
            key: Key::default(),
            refused: String::new(),
            spent: Spent::default(),
        })
    }

    /// The memory on this side of a transfer.
    pub(crate) fn near(&self) -> Slice {
        self.shared.as_ref().map_or_else(|| self.local.slice(..), |shared| shared.slice(..))
    }

    /// A byte of it, to set.
    pub(crate) fn near_byte(&self, at: u64) -> transom::Result<&AtomicU8> {
        match &self.shared {
            Some(shared) => shared.atomic_u8(at),
            None => self.local.atomic_u8(at),
        }
    }

    /// Send the peer its next job.
    pub(crate) fn send_job(&mut self, job: Job, size: usize, spin: bool) -> Outcome {
        let code = JOBS.iter().position(|it| *it == job).unwrap_or(0) as u8;
        let [a, b, c, d] = u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes();
        self.channel
            .write_all(&[code, u8::from(spin), a, b, c, d])
            .map_err(system("writing to the peer"))
    }

    pub(crate) fn receive_job(&mut self) -> Outcome<(Job, usize, bool)> {
        let mut header = [0; 6];
        self.channel.read_exact(&mut header).map_err(system("reading from the measuring side"))?;
        let [code, spin, a, b, c, d] = header;
        let job = JOBS.get(usize::from(code)).copied().unwrap_or(Job::Quit);
        Ok((job, u32::from_be_bytes([a, b, c, d]) as usize, spin != 0))
    }

    /// Eight bytes from the peer.
    pub(crate) fn receive_number(&mut self) -> Outcome<u64> {
        let mut number = [0; 8];
        self.channel.read_exact(&mut number).map_err(system("listening to the peer"))?;
        Ok(u64::from_be_bytes(number))
    }

    pub(crate) fn send_number(&mut self, number: u64) -> Outcome {
        self.channel.write_all(&number.to_be_bytes()).map_err(system("telling the measuring side"))
    }

    /// Answer [`Job::Cpu`].
    pub(crate) fn send_cpu_time(&mut self) -> Outcome {
        self.send_number(u64::try_from(cpu_time().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Do a piece of ours, and note what it costs both processes.
    pub(crate) fn measured<R>(&mut self, work: impl FnOnce(&mut Side) -> Outcome<R>) -> Outcome<R> {
        let before = self.clocks()?;
        let result = work(self)?;
        let after = self.clocks()?;
        self.spent.wall += after.0.saturating_duration_since(before.0);
        self.spent.ours += after.1.saturating_sub(before.1);
        self.spent.theirs += after.2.saturating_sub(before.2);
        Ok(result)
    }

    fn clocks(&mut self) -> Outcome<(Instant, Duration, Duration)> {
        self.send_job(Job::Cpu, 0, false)?;
        let theirs = Duration::from_nanos(self.receive_number()?);
        Ok((Instant::now(), cpu_time(), theirs))
    }

    /// The circumstances in a report.
    pub(crate) fn about(&self, plan: &Plan) -> About {
        let info = self.queue.info();
        About {
            path: info.path,
            path_reason: info.path_reason,
            size: plan.size,
            wait: plan.wait.name(),
            crc: if info.crc { "on" } else { "off" },
            largest_frame: info.largest_frame,
            congestion: plan.congestion.clone(),
            pinned: self.cpu.is_some(),
            pid: std::process::id(),
            peer_pid: self.peer_pid,
            refused: self.refused.clone(),
            seconds: self.spent.wall.as_secs_f64(),
            cpu_seconds: self.spent.ours.as_secs_f64(),
            peer_cpu_seconds: self.spent.theirs.as_secs_f64(),
        }
    }
}
