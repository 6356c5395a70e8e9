//! The peer's process.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use crate::bench::args::{PeerArgs, Wait};
use crate::bench::connections::Gathered;
use crate::bench::session::options;
use crate::bench::side::{Job, Side};
use crate::bench::{Seat, baseline, latency, message_rate, os, refusal, sit};
use crate::command::exit::{Outcome, system};
use crate::command::{pairing, watchdog};

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
    let key = pairing::key()?;
    let word = u128::from_be_bytes(key);
    writeln!(channel, "{at} {} {word:x}", listener.address()).map_err(system("telling where"))?;
    // Every user of this host may connect here: the measuring side says from which port it has done so.
    let mut port = [0; 2];
    channel.read_exact(&mut port).map_err(system("reading from the measuring side"))?;
    let raw = accept_from(&plain, u16::from_be_bytes(port));
    let raw = raw.map_err(system("waiting for the plain socket"))?;
    drop(plain);
    baseline::prepare(&raw, &args.congestion).map_err(system("preparing the plain socket"))?;
    let probe = pairing::next(&mut listener, &key)?.accept().wait()?;
    refusal::show(&adapter, &probe, &mut channel, args.leave_window_open)?;
    let queue = pairing::next(&mut listener, &key)?.reads(16).accept().wait()?;
    let mut side = Side::meet((raw, channel), &adapter, queue, args.size)?;
    side.key = key;
    side.shared = if args.shared { Some(adapter.shared(args.size)?) } else { None };
    work(side, args)
}

/// The connection from a port of this host. Others are closed.
fn accept_from(plain: &TcpListener, port: u16) -> std::io::Result<TcpStream> {
    loop {
        let (stream, from) = plain.accept()?;
        if from.port() == port {
            return Ok(stream);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_first_is_not_taken_for_the_measuring_side() {
        let plain = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let connect = || TcpStream::connect(plain.local_addr().unwrap()).unwrap();
        let (mut other, mut own) = (connect(), connect());
        let mut accepted = accept_from(&plain, own.local_addr().unwrap().port()).unwrap();
        assert_eq!(accepted.peer_addr().unwrap(), own.local_addr().unwrap());
        accepted.write_all(b"x").unwrap();
        own.read_exact(&mut [0]).unwrap();
        assert_eq!(other.read(&mut [0]).unwrap(), 0, "it is closed");
    }
}
