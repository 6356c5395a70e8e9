//! `transom ps` and `transom show`: the processes listed, their answers, and the users that get
//! one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::{Ran, Runtime, Server, ran, run};
use rustix::process::{Pid, Signal, Uid, WaitOptions, kill_process, waitpid};
use serde_json::Value;
use transom::{Adapter, Grant, QueuePair, Rights};

/// Bytes that the memory of these tests holds, and no answer may.
const SECRET: &str = "the bytes of the region";

/// The processes that `ps --json` lists.
fn listed(ran: &Ran) -> Vec<u64> {
    let json = ran.json();
    let all = json["processes"].as_array().expect("a list");
    all.iter().map(|one| one["pid"].as_u64().unwrap()).collect()
}

/// An adapter of this process that answers inspections.
fn adapter() -> Adapter {
    Adapter::options().inspect(true).open([127, 0, 0, 1].into()).unwrap()
}

/// A connection between two adapters.
fn connected(owner: &Adapter, peer: &Adapter) -> (QueuePair, QueuePair) {
    let mut listener = owner.listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let connecting = peer.connect(listener.address()).receives(4, 4096);
    std::thread::scope(|both| {
        let peer = both.spawn(|| connecting.wait().unwrap());
        let owner = listener.next().wait().unwrap().receives(4, 4096).accept().wait().unwrap();
        (owner, peer.join().unwrap())
    })
}

/// Records of one kind.
fn of_kind<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["kind"] == kind).collect()
}

#[test]
fn a_process_is_listed_and_shown_with_its_window_and_its_refusal() {
    let (owner_adapter, peer_adapter) = (adapter(), adapter());
    let (owner, peer) = connected(&owner_adapter, &peer_adapter);
    let mut memory = vec![0; 8192];
    memory[..SECRET.len()].copy_from_slice(SECRET.as_bytes());
    let region = owner_adapter.register(memory).unwrap();
    let region = region.named("secrets");
    let lent = owner.bind(&region, 4096..4096 + 512, Rights::READ).unwrap().named("worker-3");
    let own = peer_adapter.register(vec![7; 512]).unwrap();
    owner.send(lent.grant().to_bytes()).unwrap().wait().unwrap();
    let from = Grant::from_bytes(&peer.recv().wait().unwrap()).unwrap();
    peer.read(from.range(128..256), own.slice(..)).unwrap().wait().unwrap();
    // A refusal ends its connection, and closes the windows of it: this one is another's.
    let (strict, bold) = connected(&owner_adapter, &peer_adapter);
    let tried = strict.bind(&region, ..64, Rights::READ).unwrap();
    strict.send(tried.grant().to_bytes()).unwrap().wait().unwrap();
    let to = Grant::from_bytes(&bold.recv().wait().unwrap()).unwrap();
    bold.write(to, own.slice(..8)).unwrap().wait().expect_err("it grants no write");

    let me = std::process::id();
    let process = run(&["ps", "--json"]).json();
    let all = process["processes"].as_array().unwrap();
    let process = all.iter().find(|one| one["pid"] == me).expect("this process is listed");
    assert_eq!((&process["version"], &process["adapters"]), (&1.into(), &2.into()));
    assert_eq!(process["windows"], 1, "{process}");
    assert!(process["regions"].as_u64().unwrap() >= 2, "{process}");
    assert!(run(&["ps"]).out.contains(&me.to_string()));

    let shown = run(&["show", &me.to_string(), "--json"]);
    assert_eq!((shown.code, shown.err.as_str()), (0, ""));
    let records: Vec<Value> =
        shown.out.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!((&records[0]["kind"], &records[0]["pid"]), (&"process".into(), &me.into()));
    assert_eq!(of_kind(&records, "adapter").len(), 2);
    let windows = of_kind(&records, "window");
    let [window] = windows[..] else { panic!("one window: {windows:?}") };
    assert_eq!((&window["length"], &window["state"]), (&512.into(), &"live".into()));
    assert_eq!(window["rights"], "REMOTE_READ");
    let age = window["age_ns"].as_u64().unwrap();
    let uses = &window["uses"];
    assert_eq!((&uses["copies"], &uses["bytes"]), (&1.into(), &128.into()), "{uses}");
    assert!(uses["last_ns"].as_u64().unwrap() <= age, "{uses}");
    let touched = format!("{:#010x}", from.address() + 128);
    assert_eq!((&uses["touched"], &uses["touched_length"]), (&touched.into(), &128.into()));
    assert_eq!((&uses["rights"], &window["name"]), (&"REMOTE_READ".into(), &"worker-3".into()));
    let regions = of_kind(&records, "region");
    let region_of = |token: &Value| regions.iter().find(|one| one["token"] == *token).unwrap();
    let lender = region_of(&window["region"]);
    assert_eq!(lender["name"], "secrets");
    assert_eq!(lender["uses"]["copies"], 0, "no request has named the region itself: {lender}");
    assert!(lender["age_ns"].as_u64().unwrap() >= age, "the region is older than its window");
    let scope = window["scope"].as_str().unwrap();
    let connections = of_kind(&records, "connection");
    let connection = connections
        .iter()
        .find(|one| scope.contains(&format!("queue pair {} of", one["queue_pair"])))
        .expect("the connection that the window serves");
    assert_eq!(connection["adapter"], window["adapter"]);
    assert!(connection["requests"]["depth"].as_u64().unwrap() > 0, "{connection}");
    // The peer posts four receives, and again the one that the grant has used.
    assert!((3..=4).contains(&connection["credit"].as_u64().unwrap()), "{connection}");
    assert!(connection["path_reason"].as_str().unwrap().len() > 10);
    assert!(connection["time_outs"].is_array(), "{connection}");
    let refusals = of_kind(&records, "refusal");
    let refusal = refusals.iter().find(|one| one["refused"] == "peer").expect("the owner's record");
    let (token, address) = (format!("{:#010x}", to.token()), format!("{:#010x}", to.address()));
    assert_eq!((&refusal["rule"], &refusal["length"]), (&"right".into(), &8.into()));
    assert_eq!((&refusal["token"], &refusal["address"]), (&token.into(), &address.into()));
    assert!(refusal["explanation"].as_str().unwrap().contains("REMOTE_WRITE"), "{refusal}");
    let end = records.last().unwrap();
    assert_eq!((&end["kind"], &end["records"]), (&"end".into(), &(records.len() - 1).into()));

    let people = run(&["show", &me.to_string()]);
    let token = window["token"].as_str().unwrap();
    for words in [
        "512 bytes",
        token,
        "REMOTE_READ",
        "the peer was refused, right",
        "queue pair",
        "1 copies of",
        "\"worker-3\"",
    ] {
        assert!(people.out.contains(words), "{words:?} is not in\n{}", people.out);
    }
    let closed = format!("    window {:#010x} of region ", to.token());
    let closed = people.out.lines().find(|line| line.starts_with(&closed)).expect(&people.out);
    assert!(closed.contains(": 64 bytes at ") && closed.contains(", open for "), "{closed}");
    let metrics = run(&["show", &me.to_string(), "--metrics"]).out;
    let number = &window["adapter"];
    let sample =
        format!("transom_refusals_total{{adapter=\"{number}\",address=\"127.0.0.1\"}} 1\n");
    assert!(metrics.contains(&sample) && metrics.ends_with("# EOF\n"), "{metrics}");

    for text in [shown.out, people.out, metrics] {
        assert!(!text.contains(SECRET), "a byte of the memory was told");
    }

    // With the last adapter the socket goes.
    drop((owner, peer, strict, bold, region, own, lent, tried));
    drop((owner_adapter, peer_adapter));
    assert!(!listed(&run(&["ps", "--json"])).contains(&u64::from(me)));
}

#[test]
fn a_process_that_was_not_asked_to_does_not_answer() {
    let runtime = Runtime::new("quiet");
    let mut command = runtime.command();
    let server = Server::of(command.args(["rping", "-s", "-a", "127.0.0.1", "-p", "0"]));
    assert!(listed(&runtime.run(&["ps", "--json"])).is_empty());
    let pid = server.child.id().to_string();
    runtime.run(&["show", &pid]).failed(3, &[&pid, "TRANSOM_INSPECT=1"]);
    assert_eq!(runtime.run(&["show", "--json", "--metrics", &pid]).code, 2);
}

#[test]
fn a_process_that_dies_leaves_nothing_behind_that_matters() {
    let runtime = Runtime::new("dies");
    let (mut dies, lives) = (runtime.server(&[]), runtime.server(&[]));
    let mut both = [dies.child.id(), lives.child.id()].map(u64::from);
    both.sort_unstable();
    assert_eq!(listed(&runtime.run(&["ps", "--json"])), both);
    dies.child.kill().unwrap();
    dies.child.wait().unwrap();
    assert_eq!(runtime.sockets().len(), 2, "it had no time to take its own away");
    let ran = runtime.run(&["ps", "--json"]);
    assert_eq!((ran.code, listed(&ran)), (0, vec![u64::from(lives.child.id())]));
    assert_eq!(runtime.sockets().len(), 1, "the command does");
    runtime.run(&["show", &dies.child.id().to_string()]).failed(3, &["no process"]);
}

#[test]
fn a_process_that_is_stopped_is_said_to_be_silent() {
    let runtime = Runtime::new("stopped");
    let (stopped, lives) = (runtime.server(&[]), runtime.server(&[]));
    let pid = stopped.child.id();
    let signal = |signal| kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
    signal(Signal::STOP);
    // The signal is sent, and its threads may still run: the system says when all have stopped.
    let child = Pid::from_raw(pid.cast_signed());
    let (_, status) =
        waitpid(child, WaitOptions::UNTRACED).unwrap().expect("a change of the child");
    assert!(status.stopped(), "{status:?}");
    let ran = runtime.run(&["ps", "--json"]);
    assert_eq!(listed(&ran), [u64::from(lives.child.id())]);
    assert_eq!(ran.json()["silent"][0]["pid"], pid);
    runtime.run(&["show", &pid.to_string()]).failed(3, &["said nothing"]);
    signal(Signal::CONT);
    assert_eq!(listed(&runtime.run(&["ps", "--json"])).len(), 2);
}

/// The folder of sockets of a runtime directory.
fn folder_of(runtime: &Runtime) -> PathBuf {
    let folder = runtime.0.join("transom");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    folder
}

/// A process chooses every text of its answer, and reaches neither the terminal of who reads it nor the lines of
/// its metrics.
#[test]
fn texts_of_a_process_are_no_commands_to_a_terminal() {
    let runtime = Runtime::new("texts");
    let folder = folder_of(&runtime);
    let evil = "x\u{1b}]0;title\u{7}\u{1b}[2J\r\ny\u{9b}31m\u{202e}\"} 9\nforged{a=\"\u{7f}\t";
    let process = serde_json::json!({
        "kind": "process", "version": 1, "pid": std::process::id(), "program": evil, "transom": evil,
        "adapters": 1, "connections": 0, "regions": 1, "windows": 0, "refusals": 1,
    });
    let mut counters = serde_json::Map::new();
    for name in [
        "refusals",
        "refusals_forgotten",
        "guesses",
        "slowed",
        "unasked",
        "connections",
        "shared_connections",
        "regions",
        "region_bytes",
        "windows",
        "window_bytes",
        "held_bytes",
        "table_bytes",
    ] {
        counters.insert(name.to_owned(), 1.into());
    }
    let adapter = serde_json::json!({
        "kind": "adapter", "adapter": 1, "name": evil, "address": evil, "dialect": evil, "path": evil,
        "checksum": true, "extension": true, "silence_ms": 1, "answer_ms": 1, "counters": counters,
    });
    let region = serde_json::json!({
        "kind": "region", "adapter": 1, "token": "0x10", "address": "0x10", "name": evil,
        "length": 1, "rights": evil, "scope": evil, "state": evil, "windows": 2,
    });
    let unknown = serde_json::json!({ "kind": "galaxy", evil: [evil] });
    let end = serde_json::json!({ "kind": "end", "records": 4 });
    // JSON has escapes for some of these characters only: others come as they are.
    let answer = format!("{process}\r\n{adapter}\n {region}\n{unknown}\n{end}\n");
    assert!(answer.contains('\u{9b}') && answer.contains('\u{7f}'));
    let me = std::process::id().to_string();
    let asked: [&[&str]; 5] = [
        &["ps"],
        &["ps", "--json"],
        &["show", &me],
        &["show", &me, "--json"],
        &["show", &me, "--metrics"],
    ];
    let engine = pretend(&folder, "one", answer, asked.len());
    for words in asked {
        let ran = runtime.run(words);
        assert_eq!(ran.code, 0, "{ran:?}");
        let is_command = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!ran.out.contains(is_command), "{words:?}: {:?}", ran.out);
        assert!(!ran.out.lines().any(|line| line.starts_with("forged")), "{words:?}: {}", ran.out);
        match words.last() {
            Some(&"--metrics") => {
                let samples = ran.out.lines().filter(|line| !line.starts_with('#'));
                for sample in samples {
                    let (name, value) = sample.split_once("{adapter=\"1\",address=\"").unwrap();
                    assert!(name.starts_with("transom_"), "{sample}");
                    assert!(value.ends_with("\"} 1") || value.ends_with("\"} 0"), "{sample}");
                }
            }
            Some(&"--json") => {
                for line in ran.out.lines() {
                    let record: Value = serde_json::from_str(line).unwrap();
                    let came = record["kind"] != "process" || record["program"] == evil;
                    assert!(came || record["kind"].is_null(), "the text is what it was: {line}");
                }
            }
            _ => assert!(ran.out.contains(r"\u001b]0;title"), "it is seen: {}", ran.out),
        }
    }
    engine.join().unwrap();
}

/// Each of these processes says nothing until another one was answered: they are asked at the same time.
#[test]
fn a_silent_process_keeps_no_other_from_the_list() {
    let runtime = Runtime::new("silent");
    let folder = folder_of(&runtime);
    let mut before: Option<std::sync::mpsc::Receiver<()>> = None;
    let mut all = Vec::new();
    for pid in [3, 1, 4, 2] {
        let listener = UnixListener::bind(folder.join(format!("{pid}-one.sock"))).unwrap();
        let (answered, next) = std::sync::mpsc::channel();
        let waits = before.replace(next);
        all.push(std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            if let Some(waits) = waits {
                waits.recv().unwrap();
            }
            let process = serde_json::json!({
                "kind": "process", "version": 1, "pid": pid, "program": "p", "transom": "0.1.0",
                "adapters": 1, "connections": 0, "regions": 1, "windows": 2, "refusals": 3,
            });
            stream.write_all(format!("{process}\n").as_bytes()).unwrap();
            // The client has it, and closes.
            let _ = stream.read(&mut [0]);
            let _ = answered.send(());
        }));
    }
    assert_eq!(listed(&runtime.run(&["ps", "--json"])), [1, 2, 3, 4]);
    all.into_iter().for_each(|one| one.join().unwrap());
}

/// A process of the same user leaves more silent sockets than can be asked, in the names of others: those are
/// listed and shown all the same, and the silent process is named.
#[test]
fn many_silent_sockets_of_a_process_hide_no_other() {
    const MANY: u32 = 700;
    let runtime = Runtime::new("crowd");
    let lives = runtime.server(&[]);
    let pid = lives.child.id();
    let folder = runtime.0.join("transom");
    let all: Vec<_> = (0..MANY)
        .map(|number| {
            let name = if number < 10 { pid } else { u32::MAX - number };
            UnixListener::bind(folder.join(format!("{name}-{number}.sock"))).unwrap()
        })
        .collect();
    let ran = runtime.run(&["ps", "--json"]);
    assert_eq!(listed(&ran), [u64::from(pid)]);
    let json = ran.json();
    let silent = json["silent"].as_array().unwrap();
    let me = silent.iter().find(|one| one["pid"] == std::process::id()).expect("it is named");
    assert!(me["why"].as_str().unwrap().contains("said nothing"), "{me}");
    let shown = runtime.run(&["show", &pid.to_string(), "--json"]);
    assert_eq!((shown.code, shown.err.as_str()), (0, ""));
    drop(all);
}

/// The answer of an engine that is none, at a socket of its own.
fn pretend(
    folder: &Path,
    engine: &str,
    answer: String,
    times: usize,
) -> std::thread::JoinHandle<()> {
    let path = folder.join(format!("{}-{engine}.sock", std::process::id()));
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for _ in 0..times {
            listener.accept().unwrap().0.write_all(answer.as_bytes()).unwrap();
        }
    })
}

/// A program that links an engine, and uses a library that has another one, is one process.
#[test]
fn two_engines_of_one_process_are_listed_once() {
    let runtime = Runtime::new("engines");
    let folder = folder_of(&runtime);
    let me = std::process::id();
    let engines = ["one", "two"].map(|engine| {
        let process = serde_json::json!({
            "kind": "process", "version": 1, "pid": me, "program": "both", "transom": "0.1.0",
            "adapters": 1, "connections": 0, "regions": 1, "windows": 2, "refusals": 3,
        });
        let region = serde_json::json!({
            "kind": "region", "adapter": 1, "token": "0x00000010", "address": "0x00000010",
            "length": 1, "rights": "LOCAL_READ", "scope": "all", "state": "live", "windows": 2,
        });
        let answer = format!("{process}\n{region}\n{}\n", r#"{"kind":"end","records":2}"#);
        pretend(&folder, engine, answer, 2)
    });
    let all = runtime.run(&["ps", "--json"]).json();
    let [process] = &all["processes"].as_array().unwrap()[..] else { panic!("{all}") };
    assert_eq!((&process["pid"], &process["adapters"]), (&me.into(), &2.into()));
    assert_eq!((&process["windows"], &process["refusals"]), (&4.into(), &6.into()));
    let shown = runtime.run(&["show", &me.to_string(), "--json"]).out;
    let records: Vec<Value> =
        shown.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(records[0], {
        let mut first = process.clone();
        first["kind"] = "process".into();
        first
    });
    let numbers: Vec<_> =
        of_kind(&records, "region").iter().map(|one| one["adapter"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2], "adapters are numbered on");
    assert_eq!(records[3]["records"], 3);
    assert_eq!(records.len(), 4);
    for engine in engines {
        engine.join().unwrap();
    }
}

/// Everything that a process sends to a client that connects to `socket` as `user`.
fn told(socket: &Path, user: Option<u32>) -> String {
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| {
            if let Some(user) = user {
                let user = Uid::from_raw(user);
                // Of this thread alone.
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            }
            let mut text = String::new();
            let mut stream = UnixStream::connect(socket).unwrap();
            // Nothing, or the reset of a connection that was not wanted.
            let _ = stream.read_to_string(&mut text);
            text
        });
        asks.join().unwrap()
    })
}

/// The process's folder keeps other users away; and if that were open, the process would still tell
/// them nothing.
#[test]
fn another_user_gets_no_record() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("another_user_gets_no_record is SKIPPED: only root can play two users");
        return;
    }
    let runtime = Runtime::new("users");
    let _server = runtime.server(&[]);
    let sockets = runtime.sockets();
    let [socket] = &sockets[..] else { panic!("one socket: {sockets:?}") };
    let folder = socket.parent().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder), 0o700);
    for (path, mode) in [(&*runtime.0, 0o711), (folder, 0o711), (socket, 0o777)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    assert!(told(socket, None).contains(r#""kind":"end""#), "the same user is told everything");
    assert_eq!(told(socket, Some(54_321)), "");
}

/// A folder that others may enter is not used: the program gets the reason.
#[test]
fn a_folder_that_is_open_to_others_is_refused() {
    let runtime = Runtime::new("open");
    let folder = runtime.0.join("transom");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = runtime.command();
    command.env("TRANSOM_INSPECT", "1").stdin(Stdio::null());
    let ran = ran(command.args(["rping", "-s", "-a", "127.0.0.1", "-p", "0"]));
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.err.contains("mode 755") && ran.err.contains("TRANSOM_INSPECT"), "{ran:?}");
}
