//! Recorded iWARP sessions of other implementations: a reader of pcap files, a TCP
//! reassembler, and a splitter into start-up frames and FPDUs. It knows only as much of the protocol
//! as the splitting needs, so that it cannot share a mistake with what it tests.
//!
//! ```
//! for session in transom_testing::captures::siw()? {
//!     for unit in session.units() {
//!         let _ = (unit.from_client, unit.start_up, &unit.bytes);
//!     }
//! }
//! # Ok::<(), transom_testing::captures::Unreadable>(())
//! ```

mod pcap;
mod tcp;

use std::path::Path;

/// A TCP connection of a capture.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// File it comes from, and its number in there: `siw-rping-64/0`.
    pub name: String,
    /// Bytes in the order in which they were seen, each once.
    pub turns: Vec<Turn>,
    /// The client's maximum segment size on the wire, options taken off.
    pub segment: u32,
    /// The sides that ended the connection, in order (FIN) or in haste (RST), as they followed.
    pub ends: Vec<End>,
}

/// Some bytes of one direction.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The client is the side that opened the connection.
    pub from_client: bool,
    /// Never empty.
    pub bytes: Vec<u8>,
}

/// The end of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The direction, as of [`Turn::from_client`].
    pub from_client: bool,
    /// RST instead of FIN.
    pub reset: bool,
}

/// A start-up frame or an FPDU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The unit's direction.
    pub from_client: bool,
    /// An MPA Request or Reply.
    pub start_up: bool,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// A capture that cannot be read; the sentence says why.
#[derive(Clone, Debug)]
pub struct Unreadable(pub String);

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

/// Where the captures of siw are.
pub const SIW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../transom-iwarp/tests/captures");

/// All sessions of siw, in the order of their names.
pub fn siw() -> Result<Vec<Session>, Unreadable> {
    directory(Path::new(SIW))
}

/// All sessions of a directory's `.pcap` files, in the order of their names.
pub fn directory(path: &Path) -> Result<Vec<Session>, Unreadable> {
    let failed = |error: std::io::Error| Unreadable(format!("{}: {error}", path.display()));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if file.extension().is_some_and(|extension| extension == "pcap") {
            files.push(file);
        }
    }
    files.sort();
    let mut sessions = Vec::new();
    for file in files {
        let bytes = std::fs::read(&file).map_err(failed)?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        sessions.extend(parse(&name, &bytes)?);
    }
    Ok(sessions)
}

/// The sessions in the bytes of a pcap file. `name` goes into their names.
pub fn parse(name: &str, bytes: &[u8]) -> Result<Vec<Session>, Unreadable> {
    let packets = pcap::packets(bytes).map_err(|why| Unreadable(format!("{name}: {why}")))?;
    let mut sessions =
        tcp::sessions(&packets).map_err(|why| Unreadable(format!("{name}: {why}")))?;
    for (number, session) in sessions.iter_mut().enumerate() {
        session.name = format!("{name}/{number}");
    }
    Ok(sessions)
}

impl Session {
    /// Everything one side sent.
    #[must_use]
    pub fn bytes(&self, from_client: bool) -> Vec<u8> {
        let turns = self.turns.iter().filter(|turn| turn.from_client == from_client);
        turns.flat_map(|turn| turn.bytes.iter().copied()).collect()
    }

    /// Start-up frames and FPDUs in the order in which they became complete. Bytes of an unfinished
    /// one at the end are left out.
    #[must_use]
    pub fn units(&self) -> Vec<Unit> {
        let mut units = Vec::new();
        let mut kept = [Vec::new(), Vec::new()];
        let mut started = [false, false];
        for turn in &self.turns {
            let side = usize::from(turn.from_client);
            kept[side].extend_from_slice(&turn.bytes);
            while let Some(size) = unit_size(&kept[side], !started[side]) {
                let rest = kept[side].split_off(size);
                let bytes = std::mem::replace(&mut kept[side], rest);
                let start_up = !std::mem::replace(&mut started[side], true);
                units.push(Unit { from_client: turn.from_client, start_up, bytes });
            }
        }
        units
    }
}

/// Bytes of the whole unit at the front of `bytes`.
fn unit_size(bytes: &[u8], start_up: bool) -> Option<usize> {
    let at = if start_up { 18 } else { 0 };
    let field = bytes.get(at..at + 2)?;
    let length = usize::from(u16::from_be_bytes([field[0], field[1]]));
    let size = if start_up { 20 + length } else { (2 + length).next_multiple_of(4) + 4 };
    (size <= bytes.len()).then_some(size)
}
