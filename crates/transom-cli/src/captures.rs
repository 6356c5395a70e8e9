//! `transom captures`: looks at captures, by means of tshark.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args as ClapArgs, Subcommand};
use serde::Serialize;

use crate::command::exit::{Exit, Failure, Outcome, system};
use crate::command::print_json;

/// Commands about captures.
#[derive(Debug, Subcommand)]
pub(crate) enum Captures {
    /// Say whether Wireshark's tshark dissects each packet to its end, with checksums that are right
    Verify(Args),
}

/// Arguments of `captures verify`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Captures (TRANSOM_CAPTURE, `transom run --capture`)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Verified {
    captures: Vec<Verdict>,
}

/// The answer of tshark to a capture.
#[derive(Serialize)]
struct Verdict {
    file: PathBuf,
    sound: bool,
    /// Frames of iWARP.
    frames: usize,
    /// Of these, how many have another checksum than they should.
    wrong_checksums: usize,
    /// Packets that are malformed, cut short, lost, repeated, or no iWARP.
    bad: Vec<String>,
}

/// Lines about bad packets that are printed of each capture.
const MOST_LINES: usize = 20;

pub(crate) fn run(command: &Captures) -> Outcome {
    let Captures::Verify(args) = command;
    let captures = args.files.iter().map(|file| verify(file)).collect::<Outcome<Vec<_>>>()?;
    for one in captures.iter().filter(|_| !args.json) {
        let file = transom_inspect::printable(&one.file.to_string_lossy());
        let (frames, wrong) = (one.frames, one.wrong_checksums);
        if one.sound {
            println!("{file}: sound, {frames} frames");
            continue;
        }
        let bad = one.bad.len();
        println!("{file}: NOT sound: {frames} frames, {wrong} wrong checksums, {bad} bad packets");
        one.bad.iter().take(MOST_LINES).for_each(|line| println!("  {line}"));
    }
    let wrong: Vec<String> = captures
        .iter()
        .filter(|one| !one.sound)
        .map(|one| one.file.display().to_string())
        .collect();
    if args.json {
        print_json(&Verified { captures });
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Exit::CheckFailed, format!("not sound: {}", wrong.join(", ")))
        .try_this("open it in Wireshark, at the packets above"))
}

fn verify(file: &Path) -> Outcome<Verdict> {
    std::fs::File::open(file)
        .map_err(system(&format!("reading {}", file.display())))
        .map_err(|failure| failure.try_this("the path of a capture"))?;
    let mut bad = Vec::new();
    let filter = "_ws.malformed || _ws.short || _ws.expert.severity >= 0x600000 || \
                  tcp.analysis.flags || tcp.checksum.status != 1 || tcp.len > 0 && !iwarp_mpa";
    tshark(file, &["-Y", filter], |line| bad.push(line))?;
    let mut frames = 0;
    tshark(file, &["-Y", "iwarp_rdma"], |_| frames += 1)?;
    let mut wrong_checksums = 0;
    let is_wrong = |line: &str| line.contains("Bad CRC32");
    tshark(file, &["-V"], |line| wrong_checksums += usize::from(is_wrong(&line)))?;
    let sound = bad.is_empty() && wrong_checksums == 0 && frames > 0;
    Ok(Verdict { file: file.to_owned(), sound, frames, wrong_checksums, bad })
}

/// Give `line` each line that tshark prints of a capture.
fn tshark(file: &Path, args: &[&str], mut line: impl FnMut(String)) -> Outcome {
    // A program's payload may look like that of another protocol; ports may be another protocol's.
    let usual = [
        "-n",
        "-o",
        "tcp.try_heuristic_first:TRUE",
        "--disable-protocol",
        "rpcordma",
        "--disable-protocol",
        "smb_direct",
        "-o",
        "tcp.check_checksum:TRUE",
        "-o",
        "ip.check_checksum:TRUE",
    ];
    let mut tshark = Command::new("tshark")
        .args(usual)
        .args(args)
        .arg("-r")
        .arg(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| system("starting tshark")(error).try_this("apt-get install tshark"))?;
    // Both are read, so that neither fills up.
    let errors = tshark
        .stderr
        .take()
        .map(|from| std::thread::spawn(move || std::io::read_to_string(from).unwrap_or_default()));
    if let Some(out) = tshark.stdout.take() {
        for bytes in BufReader::new(out).split(b'\n') {
            let bytes = bytes.map_err(system("listening to tshark"))?;
            line(transom_inspect::printable(String::from_utf8_lossy(&bytes).trim()));
        }
    }
    let status = tshark.wait().map_err(system("waiting for tshark"))?;
    if status.success() {
        return Ok(());
    }
    let errors = errors.and_then(|thread| thread.join().ok()).unwrap_or_default();
    // Other warnings of tshark come before.
    let why = transom_inspect::printable(errors.lines().last().unwrap_or("no reason").trim());
    Err(Failure::new(Exit::System, format!("tshark cannot read {}: {why}", file.display()))
        .try_this("a capture that Transom has written, which ends in .pcapng"))
}
