//! The peer's process.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};

use crate::bench::args::{PeerArgs, Wait};
use crate::bench::connections::Gathered;
use crate::bench::session::options;
use crate::bench::side::{Job, Side};
use crate::bench::{Seat, baseline, latency, message_rate, os, refusal, sit};
use crate::command::exit::{Outcome, system};
use crate::command::watchdog;

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
            Job::SendPong => latency::send_pong(&side, spin)?,
            Job::Receive => latency::receive_all(&side, spin)?,
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
