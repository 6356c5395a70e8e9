//! The peer's process: how it is started, and what it does.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use transom::{Adapter, Options};

use crate::args::{PeerArgs, Plan, Wait};
use crate::connections::Gathered;
use crate::side::{Job, Side};
use crate::{Seat, baseline, latency, message_rate, os, refusal, sit};
use transom_command::exit::{Exit, Failure, Outcome, system};
use transom_command::watchdog;
use transom_command::{OnOff, Way};

/// The measuring side: start the peer, see that a revoked window is closed, meet.
pub(crate) fn start(plan: &Plan) -> Outcome<(Side, Peer)> {
    let congestion = &plan.congestion;
    let program = std::env::current_exe().map_err(system("looking for this program"))?;
    let mut command = Command::new(program);
    command
        .args(["bench-peer", "--size", &plan.size.to_string(), "--crc", plan.crc.name()])
        .args(["--congestion", congestion, "--path", plan.path.name()])
        .stdin(Stdio::piped());
    if plan.leave_window_open {
        command.arg("--leave-window-open");
    }
    if plan.shared {
        command.arg("--shared");
    }
    // The peer says there where it is; later the channel is a baseline.
    let (child, mut channel) = os::start(command).map_err(system("starting the peer's process"))?;
    let peer = Peer(child);
    let cpu = sit(Seat::Measuring);
    let mut line = String::new();
    BufReader::new(&channel).read_line(&mut line).map_err(system("listening to the peer"))?;
    let mut addresses = line.split_whitespace().map(str::parse::<SocketAddr>);
    let (Some(Ok(raw)), Some(Ok(to))) = (addresses.next(), addresses.next()) else {
        return Err(Failure::new(Exit::System, "the peer's process ended early"));
    };
    let raw = TcpStream::connect(raw).map_err(system("connecting the plain socket"))?;
    baseline::prepare(&raw, congestion).map_err(system("preparing the plain socket"))?;
    let adapter = options(plan.crc, plan.path, congestion).open(to.ip())?;
    let probe = adapter.connect(to).wait()?;
    let refused = refusal::see(&adapter, &probe, &mut channel)?;
    let queue = adapter.connect(to).reads(16).wait()?;
    let info = queue.info();
    if plan.path == Way::Process && info.path != Way::Process.name() {
        let (path, reason) = (info.path, info.path_reason);
        let why = format!("--path process: the two processes took {path}: {reason}");
        return Err(Failure::new(Exit::System, why).try_this("--path tcp"));
    }
    if probe.info().path != queue.info().path {
        let why = "a window was revoked on another path than the one to be measured";
        return Err(Failure::new(Exit::CheckFailed, why).try_this("--path tcp"));
    }
    let mut side = Side::meet((raw, channel), &adapter, queue, plan.size)?;
    (side.cpu, side.peer_pid, side.refused) = (cpu, peer.0.id(), refused);
    side.shared = if plan.shared { Some(adapter.shared(plan.size)?) } else { None };
    Ok((side, peer))
}

/// How both adapters are opened.
pub(crate) fn options(crc: OnOff, path: Way, congestion: &str) -> Options {
    let options = Adapter::options().crc(crc.is_on()).path(path.path()).congestion(congestion);
    // Where that path is what is measured, all connections are to have it.
    if path == Way::Process { options.shared_links(usize::MAX) } else { options }
}

/// The other process; ends with this one.
pub(crate) struct Peer(Child);

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
    let adapter = options(args.crc, args.path, &args.congestion).open(here.into())?;
    let mut listener = adapter.listen((here, 0).into())?;
    let at = plain.local_addr().map_err(system("opening a plain port"))?;
    let mut channel = os::to_measuring_side().map_err(system("sharing the channel"))?;
    writeln!(channel, "{at} {}", listener.address()).map_err(system("telling where"))?;
    let (raw, _) = plain.accept().map_err(system("waiting for the plain socket"))?;
    baseline::prepare(&raw, &args.congestion).map_err(system("preparing the plain socket"))?;
    let probe = listener.next().wait()?.accept().wait()?;
    refusal::show(&adapter, &probe, &mut channel, args.leave_window_open)?;
    let queue = listener.next().wait()?.reads(16).accept().wait()?;
    let mut side = Side::meet((raw, channel), &adapter, queue, args.size)?;
    side.shared = if args.shared { Some(adapter.shared(args.size)?) } else { None };
    work(side, args)
}

/// Do what the other side says.
fn work(mut side: Side, args: &PeerArgs) -> Outcome {
    let mut gathered = Gathered::new(args);
    loop {
        let (job, size, spin) = side.receive_job()?;
        let raw = |done: std::io::Result<()>| done.map_err(system("the plain socket"));
        match job {
            Job::RawPong => raw(baseline::pong(&mut side.raw, size, spin))?,
            Job::LocalPong => raw(baseline::pong(&mut side.channel, size, spin))?,
            Job::RawSink => raw(baseline::sink(&mut side.raw, size, spin))?,
            Job::RawCount => raw(message_rate::count(&mut side.raw, size, spin))?,
            Job::Pong if spin => latency::pong(&mut side, Wait::Spin)?,
            Job::Pong => latency::pong(&mut side, Wait::Block)?,
            Job::WatchingPong => latency::pong(&mut side, Wait::Watch)?,
            Job::Passive => passive(&side, spin)?,
            Job::Cpu => side.send_cpu_time()?,
            Job::Gather => gathered.gather(&mut side, size)?,
            Job::AnswerFirst => gathered.answer(0, spin)?,
            Job::AnswerSecond => gathered.answer(1, spin)?,
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
