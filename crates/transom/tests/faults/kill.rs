//! kill -9 of either side at any moment of a transfer: nothing half done under the final name, the
//! survivor says so, nothing is left over, the next transfer works.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use super::common::{PATHS, Place, Process, share, until};

/// Rounds of the ordinary tests on each path; `scripts/kill-share` asks for more.
const ROUNDS: u64 = 10;
const LENGTH: usize = 2 << 20;

fn asked(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn rounds() -> u64 {
    asked("TRANSOM_FAULTS_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().expect("a number"))
}

/// Numbers that look random; the seed is printed, so that a run can be had again as far as chance
/// of the machine allows.
struct Dice(u64);

impl Dice {
    fn new(path: &str) -> Dice {
        let seed = asked("TRANSOM_FAULTS_SEED")
            .map_or_else(|| u64::from(std::process::id()), |seed| seed.parse().expect("a number"));
        eprintln!("{path}: {} rounds, TRANSOM_FAULTS_SEED={seed}", rounds());
        Dice(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % limit.max(1)
    }

    /// Let a random part of so much time pass.
    fn pause(&mut self, all: Duration) {
        let micros = u64::try_from(all.as_micros()).unwrap();
        std::thread::sleep(Duration::from_micros(self.below(micros)));
    }
}

/// The file is there whole, or not at all.
fn is_whole(out: &Path, bytes: &[u8]) -> bool {
    match fs::read(out) {
        Ok(found) => {
            assert!(found == bytes, "half a file: {} of {} bytes", found.len(), bytes.len());
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
            false
        }
    }
}

/// How long it takes, as far as one knows: a machine may be busy for a while.
fn usual(before: Duration, now: Duration) -> Duration {
    now.min((before * 7 + now) / 8)
}

/// Fetch it undisturbed: how long that took, and how the server knows this guest.
fn fetched(path: &str, at: SocketAddr, out: &Path, bytes: &[u8]) -> (Duration, String) {
    let begun = Instant::now();
    let said = Process::fetch(share().env("TRANSOM_PATH", path), at, out).succeeds();
    let took = begun.elapsed();
    let by = if path == "tcp" { "path tcp" } else { "path process" };
    let offer = said.lines().find(|line| line.contains("on offer") && line.ends_with(by));
    let who = offer.and_then(|line| line.split_once(": ")).expect("an offer, by this path").0;
    assert!(is_whole(out, bytes));
    (took, who.to_owned())
}

/// The server reports every guest that it has accepted, and how it ended; up to this one, which was
/// served.
fn every_guest_is_accounted_for(server: &mut Process, guests: &mut usize, last: &str) {
    let last = format!("{last}: lent and taken back");
    let (mut open, mut seen) = (BTreeSet::new(), false);
    while !seen || !open.is_empty() {
        let line = server.line(|line| !line.starts_with("serving"));
        if let Some(who) = line.strip_suffix(" asks") {
            *guests += 1;
            assert!(open.insert(who.to_owned()), "twice: {line}");
            continue;
        }
        let who = line.split_once(": ").expect("who").0;
        assert!(open.remove(who), "whoever that is: {line}");
        seen |= line.starts_with(&last);
        let known = ["lent and taken back", "process has ended"];
        assert!(known.iter().any(|words| line.contains(words)), "whose fault was that? {line}");
    }
}

/// The receiver is killed: the server says so and serves the next one; what the dead one left in
/// the directory is recognizable, and removed by the next run.
fn receivers(path: &str) {
    let place = Place::new(&format!("kill-receiver-{path}"));
    let (file, bytes) = place.filled("file", LENGTH);
    let (mut server, at) = Process::serve(share().env("TRANSOM_PATH", path), &file, "127.0.0.1:0");
    let out = place.file("copy");
    let (mut took, who) = fetched(path, at, &out, &bytes);
    let mut guests = 0;
    every_guest_is_accounted_for(&mut server, &mut guests, &who);
    let before = until("the server is idle", || Some(server.holds()).filter(|h| h.shared == 0));
    let mut dice = Dice::new(path);
    let (mut whole, mut left) = (0, 0);
    for round in 0..rounds() {
        fs::remove_file(&out).unwrap();
        let mut victim = Process::fetch(share().env("TRANSOM_PATH", path), at, &out);
        if dice.below(3) == 0 {
            victim.line(|line| line.contains("SHA-256 verified")); // now it writes
            dice.pause(Duration::from_millis(5));
        } else {
            dice.pause(took);
        }
        victim.kill();
        whole += u32::from(is_whole(&out, &bytes));
        let part = format!(".copy.{}.part", victim.pid());
        let names = place.names();
        let known = |name: &String| *name == part || ["copy", "file"].contains(&name.as_str());
        assert!(names.iter().all(known), "round {round}: what is that? {names:?}");
        left += u32::from(names.contains(&part));

        let (now, who) = fetched(path, at, &out, &bytes);
        took = usual(took, now);
        assert_eq!(place.names(), ["copy", "file"], "round {round}");
        every_guest_is_accounted_for(&mut server, &mut guests, &who);
    }
    until(&format!("nothing is left of {guests} guests but {before:?}"), || {
        (server.holds() == before).then_some(())
    });
    eprintln!("{path}: {guests} guests; {whole} victims had the file already, {left} left a part");
}

/// A port that is free, and that the system gives to no process that asks for any: it is used
/// again.
fn somewhere(dice: &mut Dice) -> String {
    let mut ports = (0..1000).map(|_| format!("127.0.0.1:{}", 18_000 + dice.below(12_000)));
    ports.find(|at| std::net::TcpListener::bind(at).is_ok()).expect("a free port")
}

/// The server is killed: the receiver ends by itself with a file, or without one and with a reason;
/// and a new server at the same port serves it.
fn servers(path: &str) {
    let place = Place::new(&format!("kill-server-{path}"));
    let (file, bytes) = place.filled("file", LENGTH);
    let mut dice = Dice::new(path);
    let out = place.file("copy");
    let (mut server, at) =
        Process::serve(share().env("TRANSOM_PATH", path), &file, &somewhere(&mut dice));
    let mut took = fetched(path, at, &out, &bytes).0;
    let mut slowest = Duration::ZERO;
    let mut reasons = BTreeMap::<String, u32>::new();
    for round in 0..rounds() {
        fs::remove_file(&out).unwrap();
        let survivor = Process::fetch(share().env("TRANSOM_PATH", path), at, &out);
        dice.pause(took);
        server.kill();
        let killed = Instant::now();
        let (status, said, why) = survivor.end();
        slowest = slowest.max(killed.elapsed());
        assert_eq!(is_whole(&out, &bytes), status.success(), "round {round}: {said}\n{why}");
        if !status.success() {
            let known = ["process has ended", "nobody listens there", "backed out"];
            let reason = known.iter().find(|words| why.contains(**words));
            let reason =
                reason.unwrap_or_else(|| panic!("round {round}: whose fault was that? {why}"));
            assert!(why.starts_with("share: ") && status.code() == Some(1), "{status}: {why}");
            *reasons.entry((*reason).to_owned()).or_default() += 1;
        }
        let socket = format!("@transom/process/{at}");
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        assert!(
            !sockets.lines().any(|line| line.ends_with(&socket)),
            "round {round}: {socket} is left"
        );
        // The port is free as soon as its process is gone.
        let again = Process::serve(share().env("TRANSOM_PATH", path), &file, &at.to_string());
        server = again.0;
        took = usual(took, fetched(path, at, &out, &bytes).0);
        assert_eq!(place.names(), ["copy", "file"], "round {round}");
    }
    eprintln!("{path}: {reasons:?}; the slowest survivor ended {slowest:?} after the kill");
}

fn each_path(test: fn(&str)) {
    let only = asked("TRANSOM_FAULTS_PATH");
    match &only {
        Some(path) => test(path),
        None => PATHS.into_iter().for_each(test),
    }
}

#[test]
fn a_killed_receiver_leaves_nothing_half_done_and_its_server_serves_on() {
    each_path(receivers);
}

#[test]
fn a_killed_server_is_reported_and_its_successor_serves() {
    each_path(servers);
}
