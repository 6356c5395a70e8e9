//! A network that fails: two network namespaces with a pair of interfaces between them, one of
//! which goes down and comes back.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;
use std::{fs, io};

use super::common::{Place, Process, is_root, share, skipped, until};

const SERVER: &str = "10.203.7.1";
const LENGTH: usize = 4 << 20;

/// Two hosts with a cable in between.
struct Cable {
    here: String,
    there: String,
}

/// The server's, or the receiver's.
#[derive(Clone, Copy, Debug)]
enum End {
    Here,
    There,
}

fn run(program: &str, arguments: &str) -> io::Result<()> {
    let output = Command::new(program).args(arguments.split(' ')).output()?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(format!("{program} {arguments}: {why}")))
}

fn ip(arguments: &str) -> io::Result<()> {
    run("ip", arguments)
}

/// The system's record of the interface of a namespace.
fn interface(namespace: &str, what: &str) -> String {
    let file = format!("/sys/class/net/veth0/{what}");
    let output = Command::new("ip").args(["netns", "exec", namespace, "cat", &file]).output();
    String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
}

impl Cable {
    fn new(name: &str) -> io::Result<Cable> {
        let id = std::process::id();
        let cable = Cable { here: format!("tf-{name}-{id}-a"), there: format!("tf-{name}-{id}-b") };
        let Cable { here, there } = &cable;
        for namespace in [here, there] {
            ip(&format!("netns add {namespace}"))?;
            ip(&format!("-n {namespace} link set lo up"))?;
        }
        ip(&format!("link add veth0 netns {here} type veth peer name veth0 netns {there}"))?;
        for (namespace, address) in [(here, SERVER), (there, "10.203.7.2")] {
            ip(&format!("-n {namespace} addr add {address}/24 dev veth0"))?;
            ip(&format!("-n {namespace} link set veth0 up"))?;
        }
        // Half a minute for the file: no reader is done before the test has pulled the cable.
        let slow = "-n NS qdisc add dev veth0 root tbf rate 1mbit burst 64kb latency 400ms";
        run("tc", &slow.replace("NS", here))?;
        cable.is_in();
        Ok(cable)
    }

    /// Pull the cable out at this end, or put it in again.
    fn set(&self, end: End, state: &str) {
        let namespace = match end {
            End::Here => &self.here,
            End::There => &self.there,
        };
        ip(&format!("-n {namespace} link set veth0 {state}")).unwrap();
    }

    /// No longer slow.
    fn hurry(&self) {
        run("tc", &format!("-n {} qdisc del dev veth0 root", self.here)).unwrap();
    }

    /// Wait until so many bytes have left the server's host.
    fn carries_more_than(&self, bytes: usize) {
        until("the file is on its way", || {
            let sent = interface(&self.here, "statistics/tx_bytes");
            (sent.parse::<usize>().unwrap() > bytes).then_some(())
        });
    }

    /// Wait until both hosts have seen that the cable is in: a busy kernel takes seconds, and what
    /// is sent before is lost without a word.
    fn is_in(&self) {
        for namespace in [&self.here, &self.there] {
            until("the interface is up", || {
                (interface(namespace, "operstate") == "up").then_some(())
            });
        }
    }

    /// A host that was not found while the cable was out is looked for anew at once.
    fn forget_neighbours(&self) {
        for namespace in [&self.here, &self.there] {
            ip(&format!("-n {namespace} neigh flush dev veth0")).unwrap();
        }
    }

    fn within(namespace: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(share().get_program());
        command
    }

    fn serve(&self, file: &Path) -> (Process, SocketAddr) {
        Process::serve(&mut Cable::within(&self.here), file, &format!("{SERVER}:0"))
    }

    fn fetch(&self, at: SocketAddr, out: &Path) -> Process {
        Process::fetch(&mut Cable::within(&self.there), at, out)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for namespace in [&self.here, &self.there] {
            let _ = ip(&format!("netns del {namespace}"));
        }
    }
}

/// With a cable, or not at all.
fn with_cable(name: &str, test: impl FnOnce(&Cable)) {
    if !is_root() {
        return skipped("network namespaces need root");
    }
    match Cable::new(name) {
        Ok(cable) => test(&cable),
        Err(why) => skipped(&format!("no network namespaces here (package iproute2?): {why}")),
    }
}

/// A cable that is out for a second or two is TCP's business: only the clock shows it.
#[test]
fn a_short_outage_is_sat_out() {
    with_cable("short", |cable| {
        let place = Place::new("short-outage");
        let (file, bytes) = place.filled("file", LENGTH);
        let out = place.file("copy");
        let (mut server, at) = cable.serve(&file);
        let mut receiver = cable.fetch(at, &out);
        receiver.line(|line| line.contains("are on offer"));
        cable.set(End::Here, "down");
        thread::sleep(Duration::from_millis(1500)); // the outage
        cable.set(End::Here, "up");
        cable.hurry();
        receiver.succeeds();
        assert_eq!(fs::read(&out).unwrap(), bytes);
        server.line(|line| line.contains("lent and taken back"));
    });
}

/// A cable that stays out, at either end: both sides say that there is no answer, and for how long
/// they have waited (ND2 4.5). The server's host has sent bytes that are not acknowledged. The
/// receiver's may have nothing under way: then it cannot tell the network from the program. Nothing
/// half done is left, and the next connection works when the cable is back.
#[test]
fn a_long_outage_is_a_time_out_on_both_sides() {
    let ends = [("long-a", End::Here), ("long-b", End::There)];
    let threads = ends.map(|(name, end)| {
        thread::spawn(move || with_cable(name, |cable| long_outage(cable, name, end)))
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn long_outage(cable: &Cable, name: &str, end: End) {
    let place = Place::new(name);
    let (file, bytes) = place.filled("file", LENGTH);
    let out = place.file("copy");
    let (mut server, at) = cable.serve(&file);
    let before = server.holds();
    let mut receiver = cable.fetch(at, &out);
    receiver.line(|line| line.contains("are on offer"));
    cable.carries_more_than(LENGTH / 32);
    cable.set(end, "down");
    let why = receiver.fails();
    let line = server.line(|line| line.contains(": ") && !line.starts_with("serving"));
    let unheard = "its host has acknowledged nothing for ";
    for said in [&why, &line] {
        assert!(said.contains("no answer from the peer or its host for 10 s"), "{end:?}: {said}");
    }
    assert!(line.contains(unheard), "{end:?}: {line}");
    let undecided = why.contains("or the network has failed since");
    assert!(why.contains(unheard) || undecided, "{end:?}: {why}");
    assert!(!out.exists());
    until("nothing is left of it", || (server.holds() == before).then_some(()));
    cable.set(end, "up");
    cable.is_in();
    cable.hurry();
    cable.forget_neighbours();
    cable.fetch(at, &out).succeeds();
    assert_eq!(fs::read(&out).unwrap(), bytes);
}

/// The server's address is taken away: that is no outage. The connection, and the server that waits
/// for the next guest, end at once and name it.
#[test]
fn an_address_that_goes_ends_what_hangs_on_it_and_is_named() {
    with_cable("address", |cable| {
        let place = Place::new("address-gone");
        let (file, _) = place.filled("file", LENGTH);
        let (mut server, at) = cable.serve(&file);
        let mut receiver = cable.fetch(at, &place.file("copy"));
        receiver.line(|line| line.contains("are on offer"));
        ip(&format!("-n {} addr del {SERVER}/24 dev veth0", cable.here)).unwrap();
        let why = "10.203.7.1 is no longer an address of this machine";
        let line = server.line(|line| line.contains(": ") && !line.starts_with("serving"));
        assert!(line.contains(why), "{line}");
        let complaint = server.fails();
        assert!(complaint.contains(&format!("waiting for a peer at {at}: {why}")), "{complaint}");
    });
}

/// /proc/sys/net: a range of one local port. The second connection has none, and the message says
/// so; it is free again as soon as the first one is over.
#[test]
fn the_last_local_port_is_taken_and_given_back() {
    with_cable("port", |cable| {
        let set = ["sysctl", "-q", "-w", "net.ipv4.ip_local_port_range=40000 40000"];
        let mut command = Command::new("ip");
        let command = command.args(["netns", "exec", &cable.there]).args(set);
        if !command.status().is_ok_and(|status| status.success()) {
            return skipped("no right to limit the local ports");
        }
        let place = Place::new("one-port");
        let (file, bytes) = place.filled("file", LENGTH);
        let (_server, at) = cable.serve(&file);
        let out = place.file("copy");
        let mut first = cable.fetch(at, &out);
        first.line(|line| line.contains("are on offer"));
        let why = cable.fetch(at, &place.file("other")).fails();
        assert!(why.contains("no local port is left"), "{why}");
        cable.hurry();
        first.succeeds();
        assert_eq!(fs::read(&out).unwrap(), bytes);
    });
}
