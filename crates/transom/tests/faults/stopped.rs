//! Processes that are stopped (SIGSTOP) and go on, before and after their peer has lost patience.

use std::fs;
use std::io::BufRead;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use transom::{Adapter, Grant, Rights};

use super::common::{PATHS, Place, Process, part, share, until};

/// The time that the engine waits for a silent peer (`Dialect::silence`), and a little more.
const LONGER: Duration = Duration::from_millis(11_500);
/// Bytes that the buffers of a connection hold: more, and the owner would give up a reader that
/// takes nothing.
const LENGTH: u64 = 32 << 10;

fn stop(process: &Process) {
    process.signal(Signal::STOP);
    until("it stops", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with(['T', 'Z']).then_some(())
    });
}

fn local() -> std::net::IpAddr {
    [127, 0, 0, 1].into()
}

/// A process that lends a megabyte to every reader, and reports how that ended.
fn owner() -> ! {
    let adapter = Adapter::open(local()).unwrap();
    let region = adapter.register(vec![7; LENGTH as usize]).unwrap();
    let mut listener = adapter.listen((local(), 0).into()).unwrap();
    println!("owner at {}", listener.address());
    loop {
        let peer = listener.next().wait().unwrap().accept().wait().unwrap();
        let window = peer.bind(&region, .., Rights::READ).unwrap();
        peer.send(window.grant().to_bytes()).unwrap().wait().unwrap();
        thread::spawn(move || {
            let _window = window;
            println!("guest: {}", peer.recv().wait().unwrap_err());
        });
    }
}

/// A process that reads it on a signal of the test.
fn reader(from: SocketAddr) -> ! {
    let adapter = Adapter::open(local()).unwrap();
    let owner = adapter.connect(from).wait().unwrap();
    let grant = Grant::from_bytes(&owner.recv().wait().unwrap()).unwrap();
    let sink = adapter.register(vec![0; LENGTH as usize]).unwrap();
    println!("reader is ready");
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    let read = owner.read(grant.range(..), sink.slice(..)).unwrap();
    println!("reader has asked");
    match read.wait() {
        Ok(()) => {
            println!("reader: {:?}", sink.deregister().wait().unwrap() == [7; LENGTH as usize])
        }
        Err(error) => println!("reader: {:?} {:?} {error}", error.kind(), error.blame()),
    }
    std::process::exit(0);
}

fn start_owner(path: &str, test: &str) -> (Process, SocketAddr) {
    let mut owner = Process::start(part(test, "owner").env("TRANSOM_PATH", path));
    let line = owner.line(|line| line.contains("owner at"));
    let at = line.rsplit(' ').next().unwrap().parse().unwrap();
    (owner, at)
}

fn start_reader(path: &str, test: &str, at: SocketAddr) -> Process {
    let which = format!("reader {at}");
    let mut reader = Process::start(part(test, &which).env("TRANSOM_PATH", path));
    reader.line(|line| line.contains("reader is ready"));
    reader
}

/// Plays its part if this process was started for one.
fn play() {
    match std::env::var("TRANSOM_FAULTS_PART").as_deref() {
        Ok("owner") => owner(),
        Ok(reads) => reader(reads.strip_prefix("reader ").unwrap().parse().unwrap()),
        Err(_) => {}
    }
}

fn on_each_path(test: fn(&'static str)) {
    let threads = PATHS.map(|path| thread::spawn(move || test(path)));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// ND2 4.5: a peer that owes an answer and is silent for too long is lost, and the message says how
/// long and whom one waited for. When it goes on it sees the end, and serves the next one.
#[test]
fn a_peer_that_is_stopped_for_longer_than_the_time_out_is_given_up() {
    const TEST: &str = "stopped::a_peer_that_is_stopped_for_longer_than_the_time_out_is_given_up";
    play();
    on_each_path(|path| {
        let (mut owner, at) = start_owner(path, TEST);
        let mut reader = start_reader(path, TEST, at);
        stop(&owner);
        reader.tell("read");
        let line = reader.line(|line| line.contains("reader: "));
        assert!(line.contains("TimedOut") && line.contains("for 10 s"), "{path}: {line}");
        // Not its host: that has taken what there was to take.
        assert!(
            line.contains("Peer") && line.contains("program does not answer"),
            "{path}: {line}"
        );
        owner.signal(Signal::CONT);
        let line = owner.line(|line| line.contains("guest: "));
        assert!(line.contains("process has ended"), "{path}: {line}");
        let mut next = start_reader(path, TEST, at);
        next.tell("read");
        next.line(|line| line.contains("reader: true"));
    });
}

/// The other way round: a process that was stopped itself finds the answer waiting, or waits for
/// it, and does not take its own silence for its peer's.
#[test]
fn a_process_that_was_stopped_for_longer_than_the_time_out_goes_on() {
    const TEST: &str = "stopped::a_process_that_was_stopped_for_longer_than_the_time_out_goes_on";
    play();
    on_each_path(|path| {
        // An owner answers meanwhile; the other one is stopped for as long as its reader is.
        let mut pairs = [(); 2].map(|()| {
            let (owner, at) = start_owner(path, TEST);
            let mut reader = start_reader(path, TEST, at);
            stop(&owner);
            reader.tell("read");
            reader.line(|line| line.contains("reader has asked"));
            stop(&reader);
            (owner, reader)
        });
        pairs[0].0.signal(Signal::CONT);
        thread::sleep(LONGER); // the time-out itself is what this waits for
        for (owner, reader) in &mut pairs {
            reader.signal(Signal::CONT);
            owner.signal(Signal::CONT);
            let line = reader.line(|line| line.contains("reader: "));
            assert_eq!(line, "reader: true", "{path}");
        }
    });
}

/// At any moment of a transfer, either side: it goes on, and others are served meanwhile.
#[test]
fn a_transfer_goes_on_after_a_stop_of_either_side() {
    for path in PATHS {
        let place = Place::new(&format!("stop-{path}"));
        let (file, bytes) = place.filled("file", 2 << 20);
        let through = || {
            let mut command = share();
            command.env("TRANSOM_PATH", path);
            command
        };
        let (server, at) = Process::serve(&mut through(), &file, "127.0.0.1:0");
        for round in 0..6_u64 {
            let out = place.file("copy");
            let receiver = Process::fetch(&mut through(), at, &out);
            thread::sleep(Duration::from_millis(7 * round)); // somewhere
            if round % 2 == 0 {
                stop(&receiver);
                Process::fetch(&mut through(), at, &place.file("other")).succeeds();
                receiver.signal(Signal::CONT);
            } else {
                stop(&server);
                thread::sleep(Duration::from_millis(100));
                server.signal(Signal::CONT);
            }
            receiver.succeeds();
            assert_eq!(fs::read(&out).unwrap(), bytes, "{path}, {round}");
            fs::remove_file(out).unwrap();
        }
    }
}
