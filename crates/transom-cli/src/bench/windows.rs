//! Questions of the measurements to the system: processors, clocks, a channel between the two processes.

use std::io::{ErrorKind, Result};
pub(crate) use std::net::TcpStream as Channel;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::FILETIME;
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, GetProcessAffinityMask, GetProcessTimes, SetProcessAffinityMask,
};

use crate::bench::Seat;

/// Names to the peer's process where it is to connect.
const VARIABLE: &str = "TRANSOM_BENCH_CHANNEL";
/// The peer's process has so long to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// Start the peer's process, and connect to it: it connects to a port of ours.
pub(crate) fn start(mut command: Command) -> Result<(Child, Channel)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut child = command.env(VARIABLE, listener.local_addr()?.to_string()).spawn()?;
    listener.set_nonblocking(true)?;
    let begin = Instant::now();
    loop {
        match listener.accept() {
            Ok((channel, _)) => {
                channel.set_nonblocking(false)?;
                channel.set_nodelay(true)?;
                return Ok((child, channel));
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        if child.try_wait()?.is_some() || begin.elapsed() > PATIENCE {
            let _ = child.kill();
            return Err(ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The peer's end of the channel.
pub(crate) fn to_measuring_side() -> Result<Channel> {
    let at = transom_os::environment::variable(VARIABLE).and_then(|at| at.into_string().ok());
    let channel = Channel::connect(at.ok_or(ErrorKind::NotFound)?)?;
    channel.set_nodelay(true)?;
    Ok(channel)
}

/// The congestion control that both sides of a ratio use: the system's, because a socket has no choice.
pub(crate) fn congestion() -> String {
    "system".to_owned()
}

/// Nothing: see [`congestion`].
#[allow(clippy::unnecessary_wraps, reason = "another system may refuse")]
pub(crate) fn pin_congestion(_stream: &Channel, _name: &str) -> Result<()> {
    Ok(())
}

/// Give this process a processor of its own: two that spin on one would measure the scheduler. The
/// number of the processor, or `None` where there are fewer than two.
pub(crate) fn sit(seat: Seat) -> Option<usize> {
    // Asked once: afterwards this process has the one only.
    static ALLOWED: OnceLock<usize> = OnceLock::new();
    let allowed = *ALLOWED.get_or_init(|| {
        let (mut ours, mut all) = (0, 0);
        // SAFETY: writes two numbers; the handle stands for this process.
        unsafe { GetProcessAffinityMask(GetCurrentProcess(), &raw mut ours, &raw mut all) };
        ours
    });
    let mut processors = (0..usize::BITS).filter(|number| allowed & 1 << number != 0);
    let (first, second) = (processors.next()?, processors.next()?);
    let mine = if seat == Seat::Measuring { first } else { second };
    // SAFETY: the handle stands for this process.
    let done = unsafe { SetProcessAffinityMask(GetCurrentProcess(), 1 << mine) };
    (done != 0).then_some(mine as usize)
}

/// Processor time of this process, in all threads.
pub(crate) fn cpu_time() -> Duration {
    let mut times = [FILETIME::default(); 4];
    let [created, ended, kernel, user] = &mut times;
    // SAFETY: the handle stands for this process; each place is for one number.
    unsafe { GetProcessTimes(GetCurrentProcess(), created, ended, kernel, user) };
    let hundreds =
        |time: FILETIME| u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
    Duration::from_nanos(hundreds(times[2]).saturating_add(hundreds(times[3])).saturating_mul(100))
}

/// Have room for so many sockets: their number is not limited.
#[allow(clippy::unnecessary_wraps, reason = "another system may refuse")]
pub(crate) fn room_for_descriptors(_needed: u64) -> Result<Option<u64>> {
    Ok(None)
}
