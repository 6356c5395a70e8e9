//! SMB Direct, the example in C: two processes of it, and one of it beside a peer that is wrong.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::LazyLock;

use crate::programs::Program;
use transom_testing::Random;

/// Longer than anything here takes, however busy the machine is.
const PATIENT: &[&str] = &["--answer", "60000", "--negotiate", "60000"];

static EXAMPLE: LazyLock<Program> = LazyLock::new(|| {
    Program::compile(&[
        "examples/smbd/main.c",
        "examples/smbd/smbd.c",
        "examples/smbd/memory.c",
        "examples/smbd/wire.c",
    ])
});
static HOSTILE: LazyLock<Program> = LazyLock::new(|| Program::compile(&["tests/c/smbd_hostile.c"]));

/// A program that prints its port, and runs until its input ends.
struct Server {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    port: String,
}

impl Server {
    fn start(program: &Program, arguments: &[&str]) -> Server {
        let mut command = program.command();
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let input = process.stdin.take();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut port = String::new();
        output.read_line(&mut port).unwrap();
        let port = port.trim().to_owned();
        port.parse::<u16>().unwrap();
        Server { process, input, output, port }
    }

    fn example(options: &[&str]) -> Server {
        Server::start(&EXAMPLE, &[&["serve"], PATIENT, options, &["127.0.0.1", "0"]].concat())
    }

    /// The server's lines about so many clients, in the order of their coming, and in the end nothing else.
    fn end(mut self, clients: usize) -> Vec<String> {
        let mut lines: Vec<String> = (0..clients)
            .map(|_| {
                let mut line = String::new();
                self.output.read_line(&mut line).unwrap();
                line.trim_end().to_owned()
            })
            .collect();
        let number = |line: &String| {
            let number = line.strip_prefix("client ").unwrap().split(':').next();
            number.unwrap().parse::<usize>().unwrap()
        };
        lines.sort_by_key(number);
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
        assert!(self.process.wait().unwrap().success());
        lines
    }
}

/// Copy so many bytes there and back; what the client says.
fn copy(server: &str, options: &[&str], bytes: usize) -> (bool, String) {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let unique = format!("{}-{server}-{bytes}", std::process::id());
    let [file, back] = ["file", "back"].map(|name| folder.join(format!("smbd-{name}-{unique}")));
    let mut random = Random(bytes as u64 + 1);
    let content: Vec<u8> = (0..bytes).map(|_| random.below(256) as u8).collect();
    std::fs::write(&file, &content).unwrap();
    let _ = std::fs::remove_file(&back);
    let mut command = EXAMPLE.command();
    command.arg("copy").args(PATIENT).args(options).args(["127.0.0.1", server]);
    let output = command.arg(&file).arg(&back).output().unwrap();
    if output.status.success() {
        assert!(std::fs::read(&back).unwrap() == content, "other bytes came back");
        std::fs::remove_file(&back).unwrap();
    }
    std::fs::remove_file(&file).unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.success(), said.trim_end().to_owned())
}

/// The sides have different limits, down to one credit and the smallest Sends: all bytes arrive, by RDMA
/// in both directions and as messages of many fragments.
#[test]
fn two_processes_copy_under_any_limits() {
    let small = ["--send-size", "128", "--receive-size", "128", "--credits", "5"];
    let example = [
        "--credits",
        "10",
        "--send-size",
        "1024",
        "--receive-size",
        "1024",
        "--fragmented",
        "131072",
    ];
    let sides: [&[&str]; 5] = [&[], &["--credits", "1"], &["--credits", "2"], &small, &example];
    let mut largest = Vec::new();
    for server in sides {
        let running = Server::example(server);
        for client in sides {
            let (copied, said) = copy(&running.port, client, 3011);
            assert!(copied, "server {server:?}, client {client:?}: {said}");
        }
        // More than one part, and a message of as many bytes as were negotiated.
        let (copied, said) = copy(&running.port, &[], 2_500_000);
        assert!(copied, "{said}");
        assert!(said.starts_with("copied 2500000 bytes there and back in 3 parts, 2 of them"));
        let message = said.split("largest message ").nth(1).unwrap();
        largest.push(message.split(' ').next().unwrap().parse::<u32>().unwrap());
        assert!(running.end(6).iter().all(|line| line.ends_with(": goodbye")));
    }
    let [whole, smaller] = [1 << 20, 131_072].map(|fragmented: u32| fragmented - 40);
    assert_eq!(largest, [whole, whole, whole, whole, smaller]);
}

#[test]
fn clients_are_served_at_the_same_time() {
    let running = Server::example(&[]);
    let port = running.port.clone();
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let port = port.clone();
            std::thread::spawn(move || copy(&port, &[], 300_000 + number))
        })
        .collect();
    for thread in threads {
        let (copied, said) = thread.join().unwrap();
        assert!(copied, "{said}");
    }
    assert!(running.end(4).iter().all(|line| line.ends_with(": goodbye")));
}

/// Each frame that is wrong ends its connection, for the reason that is told, and no other: an honest
/// client is served before and after.
#[test]
fn a_server_ends_connections_with_frames_that_are_wrong() {
    let running = Server::example(&["--idle", "200"]);
    assert!(copy(&running.port, &[], 10_000).0);
    let output = HOSTILE.command().args(["attack", &running.port]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(copy(&running.port, &[], 10_001).0);
    let foretold = String::from_utf8(output.stdout).unwrap();
    // The server has counted the honest client, too.
    let reason = |line: &str| line.split_once(": ").unwrap().1.to_owned();
    let foretold: Vec<_> = foretold.lines().map(reason).collect();
    assert!(foretold.len() > 35, "{foretold:?}");
    let said: Vec<_> = running.end(foretold.len() + 2).iter().map(|line| reason(line)).collect();
    assert_eq!(said[1..=foretold.len()], foretold);
    assert_eq!((&*said[0], said.last().unwrap().as_str()), ("goodbye", "goodbye"));
}

/// A server waits for no peer without an end.
#[test]
fn a_server_ends_connections_that_are_silent() {
    for (how, options, clients) in [
        ("silent", ["--negotiate", "100", "--idle", "60000"], 1),
        ("mute", ["--idle", "50", "--answer", "50"], 2),
    ] {
        let running = Server::example(&options);
        let output = HOSTILE.command().args([how, &running.port]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let foretold = String::from_utf8(output.stdout).unwrap();
        assert_eq!(running.end(clients).join("\n"), foretold.trim_end());
    }
}

#[test]
fn a_client_ends_connections_with_answers_that_are_wrong() {
    for (case, why) in [
        "a negotiate response of fewer than 32 bytes",
        "a negotiate response that refuses",
        "a negotiate response for another version",
        "a negotiate response that requests no credits",
        "a negotiate response that grants no credits",
        "a negotiate response with receives below 128 bytes",
        "a negotiate response with messages below 128 KiB",
        "a negotiate response with Sends larger than our receives",
        "a data transfer that requests no credits",
    ]
    .into_iter()
    .enumerate()
    {
        let server = Server::start(&HOSTILE, &["serve", &case.to_string()]);
        assert_eq!(copy(&server.port, &[], 100 + case), (false, format!("ended: {why}")));
        server.end(0);
    }
}

/// Values that MS-SMBD does not allow are refused before anything is connected.
#[test]
fn options_have_the_limits_of_the_protocol() {
    let running = Server::example(&[]);
    for (option, few, many) in [
        ("--credits", "0", "256"),
        ("--send-size", "127", "8193"),
        ("--receive-size", "127", "8193"),
        ("--fragmented", "131071", "131071"),
    ] {
        for value in [few, many] {
            let (copied, said) = copy(&running.port, &[option, value], 10);
            assert_eq!((copied, &*said), (false, "ended: an option that MS-SMBD does not allow"));
        }
    }
    let (copied, said) = copy(&running.port, &["--from", "127.0.0.2"], 10);
    assert!(copied, "{said}");
    assert_eq!(running.end(1), ["client 1: goodbye"]);
}
