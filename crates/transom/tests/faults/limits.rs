//! Out of descriptors, memory, threads: an error to the one who asked, and everything goes on when
//! there is room again.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use rustix::thread::{Uid, set_thread_uid};
use transom::{Adapter, Blame, ErrorKind, MappedFile};

use super::common::{PATHS, Place, Process, is_root, part, share, until};

fn through(path: &str) -> Command {
    let mut command = share();
    command.env("TRANSOM_PATH", path);
    command
}

/// A command through the path, with a limit.
fn limited(path: &str, resource: i32, limit: u64) -> Command {
    let mut command = through(path);
    let prepare = move || {
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        // SAFETY: allowed in a forked child, and changes nothing but its own limit.
        unsafe { libc::setrlimit(resource as _, &raw const limit) };
        Ok(())
    };
    // SAFETY: what runs in the child allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
    command
}

/// Let a process that runs have so many descriptors more than it has, from now on.
fn allow(process: &Process, more: u64) {
    let taken: std::collections::BTreeSet<u64> =
        fs::read_dir(format!("/proc/{}/fd", process.pid()))
            .unwrap()
            .map(|fd| fd.unwrap().file_name().to_str().unwrap().parse().unwrap())
            .collect();
    // The limit is of their numbers, and the lowest free ones are given out first.
    let mut free = (0..).filter(|number| !taken.contains(number));
    let current = free.nth(more as usize);
    let pid = Pid::from_raw(process.pid() as i32);
    let maximum = getrlimit(Resource::Nofile).maximum; // inherited
    prlimit(pid, Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

/// Whether it is the loader that had too few: not ours to answer for.
fn never_ran(err: &str) -> bool {
    err.contains("shared libraries") || err.contains("fatal runtime error")
}

/// From too few to enough: opening, connecting and the hand-over of memory, each at the limit. An
/// error says that it is this machine, not the peer, and what it lacks; the hand-over falls back on
/// TCP.
#[test]
fn a_receiver_short_of_descriptors_says_so_or_does_with_less() {
    for path in PATHS {
        let place = Place::new(&format!("few-descriptors-{path}"));
        let (file, bytes) = place.filled("file", 100_000);
        let out = place.file("copy");
        let (_server, at) = Process::serve(&mut through(path), &file, "127.0.0.1:0");
        let mut failed = 0;
        for limit in 3.. {
            let (status, _, err) =
                Process::fetch(&mut limited(path, libc::RLIMIT_NOFILE as i32, limit), at, &out)
                    .end();
            if status.success() {
                break;
            }
            if never_ran(&err) {
                continue;
            }
            failed += 1;
            let known = ["descriptor", "Too many open files"];
            assert!(known.iter().any(|words| err.contains(words)), "{path}, {limit}: {err}");
            assert!(err.starts_with("share: ") && status.code() == Some(1), "{status}: {err}");
            assert!(limit < 64, "{path}: still not enough");
        }
        assert_eq!(fs::read(&out).unwrap(), bytes, "{path}");
        assert!(failed >= 3, "{path}: every place was reached");
    }
}

/// A server that starts is short of descriptors.
#[test]
fn a_server_short_of_descriptors_says_so() {
    let place = Place::new("few-descriptors-server");
    let (file, _) = place.filled("file", 4096);
    let mut failed = 0;
    for limit in 3..64 {
        let mut command = limited("process", libc::RLIMIT_NOFILE as i32, limit);
        let mut server = Process::start(command.arg("serve").arg(&file).arg("127.0.0.1:0"));
        if server.try_line(|line| line.starts_with("serving")).is_some() {
            assert!(failed >= 3, "every place was reached");
            return;
        }
        let (status, _, err) = server.end();
        if !never_ran(&err) {
            failed += 1;
            let known = ["descriptor", "Too many open files"];
            assert!(known.iter().any(|words| err.contains(words)), "{limit}: {err}");
            assert!(err.starts_with("share: ") && status.code() == Some(1), "{status}: {err}");
        }
    }
    panic!("still not enough");
}

/// A connection whose server lacks a descriptor for the move to shared memory stays on TCP and
/// serves all the same. With two descriptors the move never succeeds, with six it always does.
#[test]
fn a_hand_over_that_finds_no_descriptor_is_done_without() {
    let place = Place::new("few-descriptors-hand-over");
    let (file, bytes) = place.filled("file", 100_000);
    let out = place.file("copy");
    let (mut server, at) = Process::serve(&mut through("process"), &file, "127.0.0.1:0");
    let before = server.holds();
    // Up to two of a guest, and one for the thread that waits for it.
    for more in 2..=6 {
        until("the last guest has gone", || (server.holds() == before).then_some(()));
        allow(&server, more);
        let said = Process::fetch(&mut through("process"), at, &out).succeeds();
        assert_eq!(fs::read(&out).unwrap(), bytes, "{more}");
        server.line(|line| line.contains("lent and taken back"));
        let path = said.lines().find_map(|line| line.split_once("on offer, path ")).unwrap().1;
        match more {
            2 => assert_eq!(path, "tcp", "{said}"),
            6 => assert_eq!(path, "process", "{said}"),
            _ => assert!(["tcp", "process"].contains(&path), "{said}"),
        }
    }
}

/// Nanoseconds on a processor, and how often it went to sleep: of the thread that accepts, once it
/// has given itself its name.
fn background(server: &Process) -> (u64, u64) {
    let read = |path: std::path::PathBuf| fs::read_to_string(path).unwrap_or_default();
    let task = until("an adapter's thread", || {
        let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
        let mut tasks = tasks.map(|task| task.unwrap().path());
        tasks.find(|task| read(task.join("comm")).trim() == "transom")
    });
    let cpu = read(task.join("schedstat")).split(' ').next().unwrap().parse().unwrap();
    let status = read(task.join("status"));
    let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    (cpu, sleeps.unwrap().trim().parse().unwrap())
}

/// A listener that cannot accept waits with the peers who ask, does not spin, and serves them all
/// as soon as there are descriptors again.
#[test]
fn a_listener_out_of_descriptors_neither_spins_nor_loses_a_peer() {
    let place = Place::new("no-descriptor-to-accept");
    let (file, bytes) = place.filled("file", 4096);
    let (server, at) = Process::serve(&mut through("tcp"), &file, "127.0.0.1:0");
    allow(&server, 0);
    let guests: Vec<_> = (0..3)
        .map(|i| {
            let out = place.file(&format!("copy{i}"));
            (Process::fetch(&mut through("tcp"), at, &out), out)
        })
        .collect();
    let (_, idle) = background(&server);
    let tried = until("it tries", || Some(background(&server)).filter(|now| now.1 > idle + 5));
    let begun = Instant::now();
    let later = until("and again", || Some(background(&server)).filter(|now| now.1 > tried.1 + 20));
    let (spent, passed) = (u128::from(later.0 - tried.0), begun.elapsed().as_nanos());
    assert!(spent < passed / 2, "20 attempts took {spent} of {passed} ns: it spins");
    allow(&server, 256);
    for (guest, out) in guests {
        guest.succeeds();
        assert_eq!(fs::read(out).unwrap(), bytes);
    }
}

/// A grant is a peer's word: more than there is memory for is refused in a sentence. The server,
/// which has less than the file, says so too.
#[test]
fn a_file_larger_than_the_memory_there_is() {
    let place = Place::new("little-memory");
    let file = place.file("file");
    let length = 128 << 20;
    fs::File::create(&file).unwrap().set_len(length).unwrap();
    let (_server, at) = Process::serve(&mut through("tcp"), &file, "127.0.0.1:0");
    let little = |path| limited(path, libc::RLIMIT_AS as i32, length * 3 / 4);
    for path in PATHS {
        let why = Process::fetch(&mut little(path), at, &place.file("copy")).fails();
        assert!(why.contains(&format!("no memory for the {length} bytes")), "{path}: {why}");
    }
    let why = Process::start(little("tcp").arg("serve").arg(&file).arg("127.0.0.1:0")).fails();
    assert!(why.contains("file: ") && why.contains("memory"), "{why}");
}

/// This very test, in a process of its own. `false`: that is where we are.
fn elsewhere(name: &str) -> bool {
    let started = std::env::var_os("TRANSOM_FAULTS_PART").is_some();
    if !started {
        Process::start(&mut part(&format!("limits::{name}"), "alone")).succeeds();
    }
    !started
}

/// A thread that was just made takes memory for itself before it does anything. Once it has refused
/// a connection it has that.
fn has_its_thread(adapter: &Adapter) {
    let listener = adapter.listen(([127, 0, 0, 1], 0).into()).unwrap();
    let mut stranger = TcpStream::connect(listener.address()).unwrap();
    stranger.write_all(&[0xFF; 64]).unwrap();
    // The end of it, or a reset.
    let _ = stranger.read_to_end(&mut Vec::new());
}

/// Registering costs nothing of the region's size: it succeeds where no page more could be had.
/// Memory that the system does not map is its error.
#[test]
fn a_large_region_is_registered_at_the_limit_of_memory() {
    if elsewhere("a_large_region_is_registered_at_the_limit_of_memory") {
        return;
    }
    let place = Place::new("register-at-the-limit");
    let sparse = |name: &str, length| {
        fs::File::create(place.file(name)).unwrap().set_len(length).unwrap();
        place.file(name)
    };
    let adapter = Adapter::open([127, 0, 0, 1].into()).unwrap();
    drop(adapter.register(vec![0; 64]).unwrap()); // the table's first pages
    has_its_thread(&adapter);
    let mapped = MappedFile::open(sparse("large", 8 << 30)).unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let size: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    let limit = Some((size << 10) + (1 << 20));
    setrlimit(Resource::As, Rlimit { current: limit, maximum: getrlimit(Resource::As).maximum })
        .unwrap();
    let region = adapter.register(mapped).unwrap();
    let error = MappedFile::open(sparse("larger", 8 << 30)).unwrap_err();
    assert_eq!((error.kind(), error.blame()), (ErrorKind::System, Blame::System));
    assert!(error.to_string().contains("larger"), "{error}");
    region.deregister().wait().unwrap();
}

/// An adapter needs a thread. Without one there is an error and nothing else: no descriptor is
/// lost.
#[test]
fn an_adapter_without_a_thread_is_an_error_and_costs_nothing() {
    if elsewhere("an_adapter_without_a_thread_is_an_error_and_costs_nothing") {
        return;
    }
    // SAFETY: asks about a number.
    let is_open = |fd: &i32| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0;
    let open = || (0..1024).filter(is_open).count();
    let local = [127, 0, 0, 1].into();
    let before = open();
    drop(Adapter::open(local).unwrap());
    // The adapter's thread closes them, and may not have begun yet.
    until("its descriptors are closed", || (open() == before).then_some(()));
    if is_root() {
        // Root has no such limit. Of this thread only, which is the one that asks.
        set_thread_uid(Uid::from_raw(54_321)).unwrap();
    }
    let maximum = getrlimit(Resource::Nproc).maximum;
    setrlimit(Resource::Nproc, Rlimit { current: Some(0), maximum }).unwrap();
    for _ in 0..20 {
        let error = Adapter::open(local).unwrap_err();
        assert_eq!((error.kind(), error.blame()), (ErrorKind::System, Blame::System), "{error}");
        assert!(error.to_string().contains("no thread could be had"), "{error}");
    }
    assert_eq!(open(), before);
    setrlimit(Resource::Nproc, Rlimit { current: maximum, maximum }).unwrap();
    Adapter::open(local).unwrap();
}
