//! The records. A later version may add kinds and fields; a reader passes over those it does not
//! know. A field that goes or changes its meaning raises [`VERSION`].

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The version of the records, which stands in the first one.
pub const VERSION: u32 = 1;

/// A line of an answer. [`Process`] comes first and [`End`] last; an adapter comes before what
/// belongs to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// The process.
    Process(Process),
    /// An adapter.
    Adapter(Box<Adapter>),
    /// A connection, or an attempt at one.
    Connection(Box<Connection>),
    /// A region.
    Region(Region),
    /// A window.
    Window(Window),
    /// A region or a window that was closed.
    Closed(Closed),
    /// A refusal.
    Refusal(Box<Refusal>),
    /// The answer is complete.
    End(End),
    /// A kind of a later version.
    #[serde(other)]
    Unknown,
}

/// An address or a token: `0x` and hexadecimal digits in JSON, whose numbers lose digits above 2^53.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hex(pub u64);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hex, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.strip_prefix("0x").and_then(|text| u64::from_str_radix(text, 16).ok());
        digits.map(Hex).ok_or_else(|| serde::de::Error::custom(format!("no hexadecimal: {text}")))
    }
}

/// The process that answers, in short.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// [`VERSION`].
    pub version: u32,
    /// The process id.
    pub pid: u32,
    /// The program, as the system names it.
    pub program: String,
    /// The version of Transom in it.
    pub transom: String,
    /// Adapters that answer.
    pub adapters: u64,
    /// Connections of the adapters.
    pub connections: u64,
    /// Regions registered.
    pub regions: u64,
    /// Windows that are reserved or bound.
    pub windows: u64,
    /// Refusals so far.
    pub refusals: u64,
}

/// An adapter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Adapter {
    /// The adapter's number in the process.
    pub adapter: u64,
    /// The name that the program gave it; empty if it gave none.
    #[serde(default)]
    pub name: String,
    /// The local address.
    pub address: String,
    /// The interface whose rules it follows: `ND2`, `NDK`, `verbs`, ...
    pub dialect: String,
    /// The path that the options ask for: `auto`, `process` or `tcp`.
    pub path: String,
    /// The adapter asks for a checksum over every frame.
    pub checksum: bool,
    /// The adapter offers Transom's extension.
    pub extension: bool,
    /// A peer's host that acknowledges nothing for so long is given up, in milliseconds.
    pub silence_ms: u64,
    /// A peer's program that owes an answer for so long is given up, in milliseconds.
    pub answer_ms: u64,
    /// Counts of events so far.
    pub counters: Counters,
}

/// Counts of events on an adapter, and of its objects now. [`METRICS`](crate::METRICS) has their
/// units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Refusals of any kind, by this side or by a peer.
    pub refusals: u64,
    /// Refusals among these whose records made room for later ones.
    pub refusals_forgotten: u64,
    /// Refusals of peers for a token that was never theirs.
    pub guesses: u64,
    /// Connections that were not let in because of such guesses.
    pub slowed: u64,
    /// Connects of peers that were refused because too many were half-way through start-up, in all or from
    /// one address.
    #[serde(default)]
    pub refused_half_open: u64,
    /// Because as many requests waited for the program as its backlog takes.
    #[serde(default)]
    pub refused_backlog: u64,
    /// Because the listener was closed before a program took the request.
    #[serde(default)]
    pub refused_closed: u64,
    /// Because the system had no descriptor or no memory.
    #[serde(default)]
    pub refused_resources: u64,
    /// Because the peer did not finish start-up in time, or its bytes were none of start-up.
    #[serde(default)]
    pub refused_unfinished: u64,
    /// Because the program rejected or dropped the request.
    #[serde(default)]
    pub refused_by_program: u64,
    /// Refusals whose peer learned less, because asking the kernel for its user would have cost too
    /// much.
    pub unasked: u64,
    /// Connections now.
    pub connections: u64,
    /// Connections among these that share memory with a process of this host, or are about to.
    pub shared_connections: u64,
    /// Shared regions now: memory that the program has made for peers' processes of its user to map.
    #[serde(default)]
    pub shared_regions: u64,
    /// Bytes of these.
    #[serde(default)]
    pub shared_bytes: u64,
    /// How many times a peer's process has one of these mapped now.
    #[serde(default)]
    pub lent_regions: u64,
    /// Regions now.
    pub regions: u64,
    /// Bytes that they cover.
    pub region_bytes: u64,
    /// Windows now, reserved or bound.
    pub windows: u64,
    /// Bytes that they cover.
    pub window_bytes: u64,
    /// Bytes that connections hold because of their peers.
    pub held_bytes: u64,
    /// Bytes that the table of tokens occupies.
    pub table_bytes: u64,
}

/// A queue: how much of it is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Requests that take a place.
    pub taken: u64,
    /// Places.
    pub depth: u64,
}

/// A connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// The adapter's number.
    pub adapter: u64,
    /// The connection's number, which scopes and refusals name.
    pub number: u32,
    /// The connection's epoch, likewise.
    pub epoch: u32,
    /// `starting`, `open`, `ending` or `over`.
    pub state: String,
    /// No program has accepted it yet.
    pub unaccepted: bool,
    /// This end; empty if the system does not say.
    pub local: String,
    /// The other end.
    pub peer: String,
    /// `tcp` or `process`.
    pub path: String,
    /// Why it is that path, as a sentence.
    pub path_reason: String,
    /// The queue pair that it serves, once there is one.
    pub queue_pair: Option<u32>,
    /// The queue pair's requests.
    pub requests: Option<Queue>,
    /// The queue pair's receives; none if it takes them from a shared queue.
    pub receives: Option<Queue>,
    /// Reads of ours that wait for their bytes.
    pub reads: u64,
    /// How many Sends the peer lets begin now, as the receives that it has posted; none of a peer that
    /// grants no credits.
    #[serde(default)]
    pub credit: Option<u64>,
    /// The oldest request waits until the wire lets it begin: for credit, or for a Read to end.
    pub waits_for_peer: bool,
    /// A message of the peer's waits for a receive of this program.
    pub peer_waits_for_receive: bool,
    /// Bytes of a frame whose rest has not come.
    pub unread_bytes: u64,
    /// Bytes that the peer has not taken.
    pub unsent_bytes: u64,
    /// Shared regions of this process that the peer's process has mapped: it may look at all of each until
    /// the region is dropped.
    #[serde(default)]
    pub lent_regions: u64,
    /// Bytes of these.
    #[serde(default)]
    pub lent_bytes: u64,
    /// Shared regions of the peer's process that this one has mapped.
    #[serde(default)]
    pub borrowed_regions: u64,
    /// Bytes of these.
    #[serde(default)]
    pub borrowed_bytes: u64,
    /// Until the next of its time-outs, in milliseconds, if that is known without a look.
    pub deadline_ms: Option<u64>,
    /// The time-outs that run.
    #[serde(default)]
    pub time_outs: Vec<TimeOut>,
}

/// A time-out that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeOut {
    /// The event that would end it, in words.
    pub waits_for: String,
    /// Until it ends, in milliseconds; 0 if it is over and will be seen to at once.
    pub in_ms: u64,
}

/// The copies through a token so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uses {
    /// Copies, each of at most 64 KiB.
    pub copies: u64,
    /// Bytes of them all.
    pub bytes: u64,
    /// Since the last one, in nanoseconds; none if there was none.
    pub last_ns: Option<u64>,
    /// The first address of the last one.
    #[serde(default)]
    pub last_address: Option<Hex>,
    /// The lowest address touched.
    pub touched: Option<Hex>,
    /// Bytes from there to the end of the highest one.
    pub touched_length: Option<u64>,
    /// The rights of which they made use; empty if there was none.
    pub rights: String,
}

/// A region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// The adapter's number.
    pub adapter: u64,
    /// The token.
    pub token: Hex,
    /// The name that the program gave it; empty if it gave none.
    #[serde(default)]
    pub name: String,
    /// First byte, as programs and peers name it.
    pub address: Hex,
    /// Bytes.
    pub length: u64,
    /// The rights granted.
    pub rights: String,
    /// To whom.
    pub scope: String,
    /// The number of the connection that may use it, if the scope is one.
    #[serde(default)]
    pub connection: Option<u32>,
    /// `live`, or `reserved`: it waits for its memory.
    pub state: String,
    /// Windows bound to it.
    pub windows: u64,
    /// Since it was registered, in nanoseconds.
    #[serde(default)]
    pub age_ns: u64,
    /// Copies through its own token; those through windows are theirs.
    #[serde(default)]
    pub uses: Uses,
}

/// A window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// The adapter's number.
    pub adapter: u64,
    /// The token.
    pub token: Hex,
    /// The name that the program gave it; empty if it gave none.
    #[serde(default)]
    pub name: String,
    /// The token of its region.
    pub region: Hex,
    /// First byte.
    pub address: Hex,
    /// Bytes.
    pub length: u64,
    /// The rights granted.
    pub rights: String,
    /// To whom.
    pub scope: String,
    /// The queue pair whose peer may use it, if the scope is one.
    #[serde(default)]
    pub queue_pair: Option<u32>,
    /// The number of the connection that may use it, if the scope is one.
    #[serde(default)]
    pub connection: Option<u32>,
    /// `live`, or `reserved`: its Bind has not executed.
    pub state: String,
    /// Since it was reserved, in nanoseconds.
    pub age_ns: u64,
    /// Copies through its token.
    #[serde(default)]
    pub uses: Uses,
}

/// A region or a window that was closed: one of the last 100 of its adapter. A slot of the table that
/// is used again forgets what was closed there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Closed {
    /// The adapter's number.
    pub adapter: u64,
    /// The kind of the object.
    #[serde(flatten)]
    pub named: Named,
    /// From its registration or reservation to its end, in nanoseconds.
    pub age_ns: u64,
    /// Since its end, in nanoseconds.
    pub closed_ns: u64,
    /// Copies through its token.
    pub uses: Uses,
}

/// A region or a window, as a token names it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Named {
    /// `region` or `window`.
    pub what: String,
    /// The token.
    pub token: Hex,
    /// The name that the program gave it; empty if it gave none.
    pub name: String,
    /// The token of its region; of a region, its own.
    pub region: Hex,
    /// First byte.
    pub address: Hex,
    /// Bytes.
    pub length: u64,
    /// The rights granted.
    pub rights: String,
    /// To whom.
    pub scope: String,
    /// The queue pair whose peer may use it, if the scope is one.
    #[serde(default)]
    pub queue_pair: Option<u32>,
    /// The number of the connection that may use it, if the scope is one.
    #[serde(default)]
    pub connection: Option<u32>,
    /// `live`, `reserved` or `closed`.
    pub state: String,
    /// By what it was closed, in words; empty if it is not.
    pub closed_by: String,
    /// In a refusal: how long before it the close was, in nanoseconds.
    #[serde(default)]
    pub closed_before_ns: Option<u64>,
}

/// A refusal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// The adapter's number.
    pub adapter: u64,
    /// The refusal's number in the adapter, counted from 1; completions name it.
    pub id: u64,
    /// How long ago, in nanoseconds.
    pub ago_ns: u64,
    /// The side that was refused, and the one that refused: `peer` (by this process), `program` (this
    /// one, by its own adapter), `by_peer` (this one, by the peer), `protocol` (the peer's bytes broke
    /// a rule).
    pub refused: String,
    /// The other end of the connection; empty if there was none.
    #[serde(default)]
    pub peer: String,
    /// The queue pair, if there was one.
    pub queue_pair: Option<u32>,
    /// The rule, by the name that `transom explain` knows.
    pub rule: Option<String>,
    /// The access that was asked for.
    pub operation: Option<String>,
    /// The token that was named.
    pub token: Option<Hex>,
    /// The first byte that was named.
    pub address: Option<Hex>,
    /// Bytes.
    pub length: Option<u64>,
    /// The rights of which one was needed.
    #[serde(default)]
    pub wanted: Option<String>,
    /// The likeliest mistake, in a word: `stale`, `past_the_end`, ...
    #[serde(default)]
    pub likely: Option<String>,
    /// The likely mistake in a sentence or two, and what would have been right.
    #[serde(default)]
    pub advice: Option<String>,
    /// The object of the token, or the one that it named last.
    #[serde(default)]
    pub named: Option<Named>,
    /// The object that was probably meant, if that is another one.
    #[serde(default)]
    pub meant: Option<Named>,
    /// All that its owner may know, in sentences.
    pub explanation: String,
}

/// The last record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Records before this one.
    pub records: u64,
}

impl Process {
    /// Count the adapters of another engine of the same process, too.
    pub(crate) fn add(&mut self, other: &Process) {
        let sums = [
            (&mut self.adapters, other.adapters),
            (&mut self.connections, other.connections),
            (&mut self.regions, other.regions),
            (&mut self.windows, other.windows),
            (&mut self.refusals, other.refusals),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
    }
}

impl Record {
    /// The number of the adapter that it belongs to.
    pub(crate) fn adapter_mut(&mut self) -> Option<&mut u64> {
        match self {
            Record::Adapter(one) => Some(&mut one.adapter),
            Record::Connection(one) => Some(&mut one.adapter),
            Record::Region(one) => Some(&mut one.adapter),
            Record::Window(one) => Some(&mut one.adapter),
            Record::Closed(one) => Some(&mut one.adapter),
            Record::Refusal(one) => Some(&mut one.adapter),
            Record::Process(_) | Record::End(_) | Record::Unknown => None,
        }
    }

    /// The record as a line, with its end.
    #[must_use]
    pub fn line(&self) -> String {
        // Strings, numbers and options of them: there is nothing that cannot be written.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }

    /// The record of a line.
    ///
    /// # Errors
    /// If it is no record.
    pub fn of_line(line: &str) -> Result<Record, serde_json::Error> {
        serde_json::from_str(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_its_kind_and_comes_back() {
        let window = Window { token: Hex(0x1234_5678), address: Hex(1 << 60), ..Window::default() };
        let record = Record::Window(window);
        let line = record.line();
        assert!(line.contains(r#""kind":"window""#) && line.contains(r#""0x12345678""#), "{line}");
        assert!(line.contains(r#""0x1000000000000000""#), "no digit is lost: {line}");
        assert_eq!(Record::of_line(&line).unwrap(), record);
    }

    /// A reader of today reads what a process of tomorrow says.
    #[test]
    fn unknown_kinds_and_fields_are_passed_over() {
        let line = r#"{"kind":"galaxy","stars":4}"#;
        assert_eq!(Record::of_line(line).unwrap(), Record::Unknown);
        let line = r#"{"kind":"end","records":3,"checksum":7}"#;
        assert_eq!(Record::of_line(line).unwrap(), Record::End(End { records: 3 }));
        assert!(Record::of_line("{}").is_err() && Record::of_line(r#"{"kind":"end"}"#).is_err());
    }
}
