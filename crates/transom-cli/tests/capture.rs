//! Captures as a user asks for them: of a program, of several processes, of one that is killed, and
//! with no room for them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::print_stderr, reason = "says what is skipped")]

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{ran, run, transom};

/// A folder of this test's own, empty.
fn folder(name: &str) -> PathBuf {
    let here = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let here = here.join(format!("capture-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&here).unwrap();
    here
}

/// How many packets there are, all of which can be read to the end. `None`: there is no tshark.
fn packets(file: &Path) -> Option<usize> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "fields", "-e", "frame.number", "-r"]).arg(file);
    let done = match command.output() {
        Ok(done) => done,
        Err(error) => {
            eprintln!("SKIPPED: tshark: {error}");
            return None;
        }
    };
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(String::from_utf8(done.stdout).unwrap().lines().count())
}

fn captures(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|it| it.extension().is_some_and(|e| e == "pcapng")).collect();
    files.sort();
    files
}

/// Another process holds a lease on a file that looks like a capture, which an open would wait for (fcntl(2)).
#[test]
fn a_file_that_another_process_holds_is_not_waited_for() {
    let folder = folder("lease");
    let file = folder.join("x.pcapng");
    std::fs::write(&file, [0x0A, 0x0D, 0x0D, 0x0A, 0, 0, 0, 0]).unwrap();
    let code = "import fcntl, os, signal, sys\n\
                signal.signal(signal.SIGIO, signal.SIG_IGN)\n\
                fd = os.open(sys.argv[1], os.O_WRONLY)\n\
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
                print('held', flush=True)\n\
                sys.stdin.read()";
    let mut holder = Command::new("python3");
    holder.args(["-c", code]).arg(&file).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut holder) = holder.spawn() else {
        return eprintln!("SKIPPED: python3 is not installed");
    };
    let mut held = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut held).unwrap();
    assert_eq!(held, "held\n");
    let words = ["run", "--quiet", "--capture", file.to_str().unwrap(), "--", "true"];
    run(&words).failed(2, &["exists, and is no capture"]);
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert_eq!(run(&words).code, 0, "nobody holds it any more");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn each_process_of_a_program_has_a_file_that_only_its_user_may_read() {
    let folder = folder("two");
    let file = folder.join("x.pcapng");
    let done = ran(transom().arg("quickstart").env("TRANSOM_CAPTURE", &file));
    assert_eq!(done.code, 0, "{done:?}");
    let files = captures(&folder);
    assert_eq!(files.len(), 2, "the owner's and the reader's: {files:?}");
    assert!(files.contains(&file) && done.err.contains("x.pcapng is taken"), "{done:?}");
    for file in files {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        let Some(packets) = packets(&file) else { return };
        assert!(packets > 100, "{packets}");
    }
}

#[test]
fn a_killed_process_leaves_a_file_that_can_be_read() {
    let file = folder("killed").join("x.pcapng");
    let mut server = transom()
        .args(["rping", "-s", "-P", "-a", "127.0.0.1", "-p", "0"])
        .env("TRANSOM_CAPTURE", &file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let to = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:"));
    let to = to.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned();
    let client = run(&["rping", "-c", &to, "-C", "50", "-S", "4000"]);
    assert_eq!(client.code, 0, "{client:?}");
    // Only the file itself shows its content.
    let end = Instant::now() + Duration::from_secs(60);
    while file.metadata().unwrap().len() < 20_000 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.kill().unwrap();
    server.wait().unwrap();
    let Some(packets) = packets(&file) else { return };
    assert!(packets > 50, "{packets}");
}

/// While a process captures, another one that is started with the same name leaves its file alone. Once
/// the process has ended, the file is an old capture.
#[test]
fn a_capture_is_not_replaced_while_it_is_written() {
    let folder = folder("live");
    for ring in [&[][..], &["--capture-size", "1M"]] {
        let file = folder.join(format!("x{}.pcapng", ring.len()));
        let start = |command: &str, args: &[&str]| {
            let mut run = transom();
            run.args(["run", "--quiet", "--capture"]).arg(&file).args(ring);
            run.args(["--", env!("CARGO_BIN_EXE_transom"), command]).args(args);
            run
        };
        let mut server = start("rping", &["-s", "-P", "-a", "127.0.0.1", "-p", "0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let to = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:"));
        let to = to.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned();
        let before = captures(&folder);
        let client = ran(&mut start("rping", &["-c", &to, "-C", "2"]));
        assert_eq!(client.code, 0, "{client:?}");
        assert!(client.err.contains("is taken"), "{}", client.err);
        let after = captures(&folder);
        assert_eq!(after.len(), before.len() + 1, "{after:?}");
        assert!(before.iter().all(|one| after.contains(one)), "{before:?}, {after:?}");
        server.kill().unwrap();
        server.wait().unwrap();
        let done = ran(&mut start("explain", &["range"]));
        assert_eq!(done.code, 0, "{done:?}");
        assert_eq!(captures(&folder).len(), after.len() - 1, "the one that has ended is gone");
    }
}

#[test]
fn without_room_the_program_goes_on_and_the_loss_is_reported() {
    let file = folder("full").join("x.pcapng");
    let script = "ulimit -f 40; exec \"$0\" quickstart";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_transom")]).env("TRANSOM_CAPTURE", &file);
    command.env("TRANSOM_PATH", "tcp"); // memory that is shared counts as a file
    let done = ran(command.stdin(Stdio::null()));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.err.contains("packets are missing: File too large"), "{}", done.err);
    assert!(file.metadata().unwrap().len() <= 40 * 1024);
    let Some(packets) = packets(&file) else { return };
    assert!(packets > 10, "{packets}");
}

#[test]
fn run_asks_the_program_for_a_capture_and_makes_room_for_it() {
    let folder = folder("run");
    let shown = "echo $TRANSOM_CAPTURE $TRANSOM_CAPTURE_PAYLOAD $TRANSOM_CAPTURE_SIZE $TRANSOM_CAPTURE_FILES";
    let go = |words: &[&str]| {
        let mut command = transom();
        command.args(["run", "--quiet"]).args(words).args(["--", "sh", "-c", shown]);
        for name in ["", "_PAYLOAD", "_SIZE", "_FILES"] {
            command.env_remove(format!("TRANSOM_CAPTURE{name}"));
        }
        ran(command.current_dir(&folder))
    };
    let all = [
        "--capture",
        "x.pcapng",
        "--capture-payload",
        "all",
        "--capture-size",
        "1M",
        "--capture-files",
        "3",
    ];
    let expected = format!("{} all 1M 3\n", folder.join("x.pcapng").display());
    assert_eq!(go(&all).out, expected);
    assert_eq!(go(&[]).out, "\n");
    for wrong in [
        &["--capture-payload", "5"][..],
        &["--capture", "x", "--capture-payload", "five"],
        &["--capture", "x", "--capture-size", "1T"],
        &["--capture", "x", "--capture-files", "0"],
    ] {
        assert_eq!(go(wrong).code, 2, "{wrong:?}");
    }
    // A file that is no capture stays.
    let (file, old) = (folder.join("x.pcapng"), folder.join("x.7.pcapng"));
    std::fs::write(&file, "a text").unwrap();
    go(&all).failed(2, &["x.pcapng exists, and is no capture"]);
    assert_eq!(std::fs::read(&file).unwrap(), b"a text");
    for path in [&file, &old] {
        std::fs::write(path, [0x0A, 0x0D, 0x0D, 0x0A, 0, 0]).unwrap();
    }
    assert_eq!(go(&["--capture", "x.pcapng"]).code, 0);
    assert!(!file.exists() && !old.exists(), "captures of earlier runs");
}

/// A capture of a tour is sound over either path; one with a bit that has changed is not, and says where.
#[test]
fn captures_are_verified() {
    let folder = folder("verify");
    let lacking = ran(transom()
        .args(["captures", "verify"])
        .arg(env!("CARGO_BIN_EXE_transom"))
        .env("PATH", &folder));
    lacking.failed(5, &["tshark"]);
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no tshark");
        return;
    }
    let verify = |file: &Path| ran(transom().args(["captures", "verify"]).arg(file));
    for path in ["tcp", "process"] {
        let file = folder.join(format!("{path}.pcapng"));
        // The file that travels: the manifest, so that the captures are small.
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let done = ran(transom()
            .args(["quickstart", "--path", path, manifest])
            .env("TRANSOM_CAPTURE", &file));
        assert_eq!(done.code, 0, "{done:?}");
        let done = verify(&file);
        assert_eq!(done.code, 0, "{done:?}");
        assert!(done.out.contains(": sound, "), "{done:?}");
    }
    let (good, bad) = (folder.join("tcp.pcapng"), folder.join("bad.pcapng"));
    let mut bytes = std::fs::read(&good).unwrap();
    // The mark of MPA's request is in the first packet with payload.
    let at = bytes.windows(16).position(|it| it == b"MPA ID Req Frame").expect("the start-up");
    bytes[at] ^= 1;
    std::fs::write(&bad, bytes).unwrap();
    let done = verify(&bad);
    done.failed(1, &["bad.pcapng"]);
    assert!(done.out.contains("NOT sound"), "{done:?}");
    let both = ran(transom().args(["captures", "verify", "--json"]).arg(&good).arg(&bad));
    let verdicts = both.json();
    assert_eq!((both.code, &verdicts["captures"][0]["sound"]), (1, &true.into()));
    assert_eq!(verdicts["captures"][1]["sound"], false);
    ran(transom().args(["captures", "verify", "no-such-file"])).failed(5, &["no-such-file"]);
    let text = folder.join("text");
    std::fs::write(&text, "no capture").unwrap();
    verify(&text).failed(5, &["text"]);
}
