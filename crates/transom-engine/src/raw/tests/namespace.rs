//! A machine of a test's own: a thread in a network namespace that goes with the threads in it.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

pub(super) const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 203, 8, 1));
pub(super) const PEERS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 203, 9, 1));

#[cfg_attr(windows, allow(dead_code, reason = "what would have these interfaces is refused"))]
pub(super) fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(|e| format!("ip: {e}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("ip {arguments}: {complaint}")) }
}

#[cfg(windows)]
fn set_up() -> Result<(), String> {
    Err("this system has no network namespaces".to_owned())
}

#[cfg(not(windows))]
fn set_up() -> Result<(), String> {
    // SAFETY: other threads keep the namespace that they have, and nothing else is taken apart.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(format!("a network namespace: {}", std::io::Error::last_os_error()));
    }
    ip("link set lo up")?;
    ip("link add ours type veth peer name peers")?;
    ip("link set ours up")?;
    ip("link set peers up")?;
    ip("addr add 10.203.8.1/24 dev ours")?;
    ip("addr add 10.203.9.1/24 dev peers")
}

/// On a machine with [`OURS`] and [`PEERS`], on an interface each, or not at all.
pub(super) fn with_addresses(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| match set_up() {
            Ok(()) => test(),
            Err(why) => {
                let mut err = std::io::stderr();
                let _ = writeln!(err, "\nSKIPPED: it takes root and iproute2: {why}");
            }
        });
        thread.join().unwrap();
    });
}
