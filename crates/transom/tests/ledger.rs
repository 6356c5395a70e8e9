//! The ledger of grants: what a process prints when it exits, and its exit status. Each program is this
//! test itself, started again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::net::SocketAddr;
use std::process::{Command, Output};

use transom::{Adapter, Grant, QueuePair, Region, Rights, Window};

/// Says which program this process is.
const PROGRAM: &str = "TRANSOM_TEST_PROGRAM";

/// Two connected sides in one process, a region of the owner's, and one of the peer's.
struct Sides {
    owner: QueuePair,
    peer: QueuePair,
    lent: Region<Vec<u8>>,
    own: Region<Vec<u8>>,
}

impl Sides {
    fn new() -> Sides {
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let adapters = [(); 2].map(|()| Adapter::open(here.ip()).unwrap());
        let mut listener = adapters[0].listen(here).unwrap();
        let connecting = adapters[1].connect(listener.address()).receives(4, 4096);
        let (owner, peer) = std::thread::scope(|both| {
            let peer = both.spawn(|| connecting.wait().unwrap());
            let owner = listener.next().wait().unwrap().receives(4, 4096).accept().wait().unwrap();
            (owner, peer.join().unwrap())
        });
        let lent = adapters[0].register(vec![0; 8192]).unwrap();
        let own = adapters[1].register(vec![0; 8192]).unwrap();
        Sides { owner, peer, lent, own }
    }

    /// A window for the peer, and the grant as the peer got it.
    fn lend(&self, rights: Rights) -> (Window, Grant) {
        let window = self.owner.bind(&self.lent, .., rights).unwrap();
        self.owner.send(window.grant().to_bytes()).unwrap().wait().unwrap();
        let grant = Grant::from_bytes(&self.peer.recv().wait().unwrap()).unwrap();
        (window, grant)
    }

    fn read(&self, from: Grant) -> transom::Result<()> {
        self.peer.read(from, self.own.slice(..)).unwrap().wait()
    }
}

fn act(program: &str) {
    let sides = Sides::new();
    match program {
        "clean" => {
            let (window, grant) = sides.lend(Rights::READ);
            sides.read(grant).unwrap();
            window.revoke().wait().unwrap();
        }
        "never used" => sides.lend(Rights::READ).0.revoke().wait().unwrap(),
        "never revoked" => {
            let (window, grant) = sides.lend(Rights::READ);
            sides.read(grant).unwrap();
            // The program ends here, whatever it has open.
            std::mem::forget((window, sides));
            return;
        }
        "broader than its use" => {
            let (window, grant) = sides.lend(Rights::READ);
            sides.read(grant.range(4096..4160)).unwrap();
            window.revoke().wait().unwrap();
        }
        "right never used" => {
            let (window, grant) = sides.lend(Rights::READ | Rights::WRITE);
            sides.read(grant).unwrap();
            window.revoke().wait().unwrap();
        }
        "used after it was revoked" => {
            let (window, grant) = sides.lend(Rights::READ);
            sides.read(grant).unwrap();
            window.revoke().wait().unwrap();
            sides.read(grant).unwrap_err();
        }
        "still open when its connection ended" => {
            let (window, grant) = sides.lend(Rights::READ);
            sides.read(grant).unwrap();
            let Sides { owner, peer, .. } = sides;
            drop(peer);
            // The owner gets the end of the connection.
            owner.recv().wait().unwrap_err();
            drop(window);
            return;
        }
        other => panic!("no program {other}"),
    }
    drop(sides);
}

/// A program, if this process was started as one.
#[test]
fn program() {
    if let Ok(program) = std::env::var(PROGRAM) {
        act(&program);
    }
}

fn run(program: &str, ledger: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "program", "--nocapture"]);
    command.env(PROGRAM, program).env("TRANSOM_LEDGER", ledger).output().unwrap()
}

fn said(ran: &Output) -> String {
    String::from_utf8_lossy(&ran.stderr).into_owned()
}

const KINDS: [&str; 6] = [
    "never used",
    "never revoked",
    "broader than its use",
    "right never used",
    "used after it was revoked",
    "still open when its connection ended",
];

/// Each kind is found alone, with the grant, its holder and the line that made it; and it is an exit
/// status where the ledger is strict.
#[test]
fn each_kind_of_finding_is_printed_with_the_line_that_made_the_grant() {
    for kind in KINDS {
        let ran = run(kind, "strict");
        let text = said(&ran);
        assert_eq!(ran.status.code(), Some(97), "{kind}: {text}");
        let lines: Vec<&str> = text.lines().skip_while(|line| !line.contains("ledger")).collect();
        assert_eq!(lines.first(), Some(&"transom: ledger: 1 grant, 1 finding"), "{kind}: {text}");
        assert_eq!(lines.len(), 3, "{kind}: {text}");
        assert!(lines[1].starts_with(&format!("  {kind}: window of 8192 bytes at 0x")), "{text}");
        assert!(
            lines[1].contains("REMOTE_READ") && lines[1].contains("(peer 127.0.0.1:"),
            "{text}"
        );
        let place = lines[2].strip_prefix("    granted by ").expect("the line");
        assert!(place.contains("lend (") && place.contains("ledger.rs:"), "{text}");
    }
}

#[test]
fn a_clean_program_has_nothing_to_report() {
    let ran = run("clean", "strict");
    let text = said(&ran);
    assert_eq!(ran.status.code(), Some(0), "{text}");
    assert!(text.ends_with("transom: ledger: 1 grant, and nothing to report\n"), "{text}");
}

/// Findings are words, unless the ledger is strict; and without one nothing is printed.
#[test]
fn the_exit_status_is_the_program_s_unless_the_ledger_is_strict() {
    let ran = run("never used", "1");
    assert_eq!(ran.status.code(), Some(0));
    assert!(said(&ran).contains("never used"));
    let ran = run("never used", "0");
    assert_eq!((ran.status.code(), said(&ran).as_str()), (Some(0), ""));
    // A status of the program's own stays.
    let ran = run("no such program", "strict");
    assert_eq!(ran.status.code(), Some(101), "{}", said(&ran));
}

#[test]
fn a_backtrace_is_printed_if_it_is_asked_for() {
    let text = said(&run("never used", "backtrace"));
    assert!(text.contains("granted by ") && !text.contains("/rustc/"), "{text}");
    assert!(text.contains("called by  ledger::program ("), "{text}");
}
