//! The measuring side's two connections to a peer that has just been started: the one to be measured, and a
//! plain one beside it.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use transom::{Adapter, Options};

use crate::bench::args::Plan;
use crate::bench::side::Side;
use crate::bench::{Seat, baseline, os, refusal, sit};
use crate::command::exit::{Exit, Failure, Outcome, system};
use crate::command::pairing::Key;
use crate::command::{OnOff, Way};

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
    let Some((raw, to, key)) = said(&line) else {
        return Err(Failure::new(Exit::System, "the peer's process ended early"));
    };
    let failed = || system("connecting the plain socket");
    let raw = TcpStream::connect(raw).map_err(failed())?;
    let port = raw.local_addr().map_err(failed())?.port();
    channel.write_all(&port.to_be_bytes()).map_err(system("writing to the peer"))?;
    baseline::prepare(&raw, congestion).map_err(system("preparing the plain socket"))?;
    let adapter = options(plan.crc, plan.path, congestion).open(to.ip())?;
    let probe = adapter.connect(to).private_data(&key).wait()?;
    let refused = refusal::see(&adapter, &probe, &mut channel)?;
    let queue = adapter.connect(to).private_data(&key).reads(16).wait()?;
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
    (side.cpu, side.peer_pid, side.refused, side.key) = (cpu, peer.0.id(), refused, key);
    side.shared = if plan.shared { Some(adapter.shared(plan.size)?) } else { None };
    Ok((side, peer))
}

/// The peer's first line: where its plain port is, where its adapter listens, and the key.
fn said(line: &str) -> Option<(SocketAddr, SocketAddr, Key)> {
    let mut words = line.split_whitespace();
    let (raw, to) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let key = u128::from_str_radix(words.next()?, 16).ok()?;
    Some((raw, to, key.to_be_bytes()))
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
