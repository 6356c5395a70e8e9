//! Wireshark's view of a capture, for tests of what writes one.

use std::path::Path;
use std::process::Command;

/// These fields of each packet that `filter` lets pass, as `tshark` dissects them, checksums checked.
/// `None`: there is no `tshark`, which standard error says.
///
/// # Panics
/// If `tshark` cannot read the file.
#[must_use]
pub fn tshark(file: &Path, filter: &str, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-o", "tcp.try_heuristic_first:TRUE"]);
    command.args(["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]);
    // Bytes of a program may look like any protocol.
    command.args(["--disable-protocol", "smb_direct", "--disable-protocol", "rpcordma"]);
    command.args(["-T", "fields", "-E", "separator=|", "-Y", filter]);
    for field in fields {
        command.args(["-e", field]);
    }
    let done = match command.arg("-r").arg(file).output() {
        Ok(done) => done,
        Err(error) => {
            eprintln!("SKIPPED: tshark: {error}");
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {errors}", file.display());
    let text = String::from_utf8_lossy(&done.stdout);
    Some(text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect())
}
