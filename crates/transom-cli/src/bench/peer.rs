//! The peer's process, and how the two agree on what comes next.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use transom::{Adapter, Grant, QueuePair, Region, Rights, Window};

use super::{Path, PeerArgs, Plan, Seat, baseline, congestion, latency, sit};
use crate::exit::{Exit, Failure, Outcome, system};
use crate::watchdog;

/// What the peer is to do next: one header on the plain socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Send back what arrives on the plain socket.
    RawPong,
    /// Swallow what arrives on the plain socket.
    RawSink,
    /// Answer Writes with Writes.
    Pong,
    /// Be written to or read from.
    Passive,
    /// Go.
    Quit,
}

const JOBS: [Job; 5] = [Job::RawPong, Job::RawSink, Job::Pong, Job::Passive, Job::Quit];

/// One end of the pair: a plain socket, a queue pair, and a buffer that the other side may use.
pub(super) struct Side {
    pub(super) raw: TcpStream,
    pub(super) queue: QueuePair,
    pub(super) memory: Region<Vec<u8>>,
    /// Where the bytes to be written come from, and those read go to.
    pub(super) local: Region<Vec<u8>>,
    _open: Window,
    /// The other side's buffer.
    pub(super) theirs: Grant,
    /// The processor this process has to itself.
    pub(super) cpu: Option<usize>,
}

impl Side {
    /// Lend memory to the other side, and learn what it lends.
    fn meet(raw: TcpStream, adapter: &Adapter, queue: QueuePair, size: usize) -> Outcome<Side> {
        let memory = adapter.register(vec![0; size])?;
        let local = adapter.register(vec![0; size])?;
        let open = queue.bind(&memory, .., Rights::READ | Rights::WRITE)?;
        let told = queue.send(open.grant().to_bytes())?;
        let theirs = Grant::from_bytes(&queue.recv().wait()?)?;
        told.wait()?;
        Ok(Side { raw, queue, memory, local, _open: open, theirs, cpu: None })
    }

    /// Tell the peer what comes next.
    pub(super) fn tell(&mut self, job: Job, size: usize, spin: bool) -> Outcome {
        let code = JOBS.iter().position(|it| *it == job).unwrap_or(0) as u8;
        let [a, b, c, d] = u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes();
        self.raw.write_all(&[code, u8::from(spin), a, b, c, d]).map_err(system("telling the peer"))
    }

    fn hear(&mut self) -> Outcome<(Job, usize, bool)> {
        let mut header = [0; 6];
        self.raw.read_exact(&mut header).map_err(system("listening to the measuring side"))?;
        let [code, spin, a, b, c, d] = header;
        let job = JOBS.get(usize::from(code)).copied().unwrap_or(Job::Quit);
        Ok((job, u32::from_be_bytes([a, b, c, d]) as usize, spin != 0))
    }
}

/// The measuring side: start the peer, meet it.
pub(super) fn start(plan: &Plan) -> Outcome<(Side, Peer)> {
    let congestion = congestion();
    let program = std::env::current_exe().map_err(system("looking for this program"))?;
    let mut child = Command::new(program)
        .args(["bench-peer", "--size", &plan.size.to_string(), "--crc", plan.crc.name()])
        .args(["--congestion", &congestion, "--path", plan.path.name()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(system("starting the peer's process"))?;
    let cpu = sit(Seat::Measuring);
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(system("listening to the peer"))?;
    }
    let peer = Peer(child);
    let mut addresses = line.split_whitespace().map(str::parse::<SocketAddr>);
    let (Some(Ok(raw)), Some(Ok(to))) = (addresses.next(), addresses.next()) else {
        return Err(Failure::new(Exit::System, "the peer's process ended early"));
    };
    let raw = TcpStream::connect(raw).map_err(system("connecting the plain socket"))?;
    baseline::prepare(&raw, &congestion).map_err(system("preparing the plain socket"))?;
    let options = Adapter::options().crc(plan.crc.is_on()).congestion(&congestion);
    let options = options.path(plan.path.option());
    let adapter = options.open(to.ip())?;
    let queue = adapter.connect(to).reads(16).wait()?;
    if plan.path == Path::Process && queue.info().path != Path::Process.name() {
        let why = "--path process: the two processes could not agree on it";
        return Err(Failure::new(Exit::System, why).try_this("--path tcp"));
    }
    Ok((Side { cpu, ..Side::meet(raw, &adapter, queue, plan.size)? }, peer))
}

/// The other process; ends with this one.
pub(super) struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The peer's process.
pub(crate) fn run(args: &PeerArgs) -> Outcome {
    let _ = sit(Seat::Peer);
    watchdog::end_with_parent();
    let here = Ipv4Addr::LOCALHOST;
    let plain = TcpListener::bind((here, 0)).map_err(system("opening a plain port"))?;
    let options = Adapter::options().crc(args.crc.is_on()).congestion(&args.congestion);
    let options = options.path(args.path.option());
    let adapter = options.open(here.into())?;
    let mut listener = adapter.listen((here, 0).into())?;
    let at = plain.local_addr().map_err(system("opening a plain port"))?;
    println!("{at} {}", listener.address());
    std::io::stdout().flush().map_err(system("telling where"))?;
    let (raw, _) = plain.accept().map_err(system("waiting for the plain socket"))?;
    baseline::prepare(&raw, &args.congestion).map_err(system("preparing the plain socket"))?;
    let queue = listener.next().wait()?.reads(16).accept().wait()?;
    let mut side = Side::meet(raw, &adapter, queue, args.size)?;
    loop {
        let (job, size, spin) = side.hear()?;
        let raw = |done: std::io::Result<()>| done.map_err(system("the plain socket"));
        match job {
            Job::RawPong => raw(baseline::pong(&mut side.raw, size, spin))?,
            Job::RawSink => raw(baseline::sink(&mut side.raw, size, spin))?,
            Job::Pong => latency::pong(&mut side, spin)?,
            Job::Passive => passive(&side, spin)?,
            Job::Quit => return Ok(()),
        }
    }
}

/// Help moving bytes, or leave it to the adapter, until the other side sends a message.
fn passive(side: &Side, spin: bool) -> Outcome {
    if spin {
        while side.queue.try_recv()?.is_none() {
            side.queue.poll();
        }
    } else {
        side.queue.recv().wait()?;
    }
    Ok(())
}
