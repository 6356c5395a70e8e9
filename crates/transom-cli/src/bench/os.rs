//! Questions of the measurements to the system: processors, clocks, a channel between the two processes.

use std::io::Result;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
pub(crate) use std::os::unix::net::UnixStream as Channel;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::net::sockopt;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::bench::Seat;

/// Start the peer's process, and connect to it. Its standard output is the other end.
pub(crate) fn start(mut command: Command) -> Result<(Child, Channel)> {
    let (ours, theirs) = Channel::pair()?;
    // The command, dropped here, has our copy of the peer's end.
    Ok((command.stdout(OwnedFd::from(theirs)).spawn()?, ours))
}

/// The peer's end of the channel.
pub(crate) fn to_measuring_side() -> Result<Channel> {
    Ok(Channel::from(std::io::stdout().as_fd().try_clone_to_owned()?))
}

/// The congestion control that both sides of a ratio use: this machine's default, pinned.
pub(crate) fn congestion() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")
        .map_or_else(|_| "cubic".to_owned(), |name| name.trim().to_owned())
}

/// Pin the congestion control of a connection.
pub(crate) fn pin_congestion(stream: &TcpStream, name: &str) -> Result<()> {
    Ok(sockopt::set_tcp_congestion(stream, name)?)
}

/// Give this process a processor of its own, before it starts threads: two that spin on one would
/// measure the scheduler. The number of the processor, or `None` where there are fewer than two.
pub(crate) fn sit(seat: Seat) -> Option<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    // Asked once: afterwards this process has the one only.
    static ALLOWED: OnceLock<Option<(usize, usize)>> = OnceLock::new();
    let (first, second) = (*ALLOWED.get_or_init(|| {
        let allowed = sched_getaffinity(None).ok()?;
        let mut processors = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        Some((processors.next()?, processors.next()?))
    }))?;
    let mine = if seat == Seat::Measuring { first } else { second };
    let mut set = CpuSet::new();
    set.set(mine);
    sched_setaffinity(None, &set).ok().map(|()| mine)
}

/// Processor time of this process, in all threads.
pub(crate) fn cpu_time() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(spent.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(spent.tv_nsec).unwrap_or(0))
}

/// Have room for so many descriptors in this process, and in those that it starts. The hard limit is
/// returned where that is lower.
pub(crate) fn room_for_descriptors(needed: u64) -> Result<Option<u64>> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|most| most >= needed) {
        return Ok(None);
    }
    if let Some(most) = limit.maximum.filter(|most| *most < needed) {
        return Ok(Some(most));
    }
    limit.current = Some(needed);
    setrlimit(Resource::Nofile, limit)?;
    Ok(None)
}
