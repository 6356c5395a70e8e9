//! The history of a watch: regions, windows, accesses and refusals with their times, from samples
//! of the processes' records. The page draws this, and nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use serde::Serialize;
use transom_inspect::{AskError, Closed, Hex, Named, Record, Refusal, Region, Uses, Window};

/// Regions and windows that are kept. The oldest of those that are closed make room.
const MOST_OBJECTS: usize = 10_000;
/// Refusals that are kept: the latest.
const MOST_REFUSALS: usize = 2_000;
/// Accesses that are kept: the latest.
const MOST_ACCESSES: usize = 20_000;
/// Processes that have ended, of which all is kept: the latest.
const MOST_ENDED: usize = 100;
/// Adapters of each process that are kept.
const MOST_ADAPTERS: usize = 100;
/// Queue pairs and connections whose peer is remembered.
const MOST_PEERS: usize = 10_000;

/// Milliseconds since the watch began; negative before it.
type Moment = f64;

/// A moment that has its place among others.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ordered(Moment);

impl Eq for Ordered {}

impl Ord for Ordered {
    fn cmp(&self, other: &Ordered) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Ordered) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// A process.
#[derive(Clone, Debug, Serialize)]
struct Seen {
    /// Counted from 0: a process id may be used again. No number is used twice.
    process: usize,
    pid: u32,
    program: String,
    transom: String,
    adapters: Vec<Adapter>,
    connections: u64,
    /// Refusals that it has counted.
    refusals: u64,
    /// Why it does not answer; empty if it does.
    silent: String,
    ended_ms: Option<Moment>,
}

/// An adapter, as far as it has a place on the page.
#[derive(Clone, Debug, Serialize)]
struct Adapter {
    adapter: u64,
    name: String,
    address: String,
    dialect: String,
}

/// A region or a window, open or closed.
#[derive(Clone, Debug, Serialize)]
struct Object {
    id: u64,
    process: usize,
    adapter: u64,
    #[serde(flatten)]
    named: Named,
    /// The peer that may use it, if a connection of its was seen.
    peer: String,
    opened_ms: Moment,
    closed_ms: Option<Moment>,
    uses: Uses,
    /// The last sample in which it was open.
    #[serde(skip)]
    seen: u64,
    #[serde(skip)]
    changed: u64,
}

/// Copies through a token between two samples.
#[derive(Clone, Debug, Serialize)]
struct Access {
    object: u64,
    /// The last of them.
    at_ms: Moment,
    copies: u64,
    bytes: u64,
    /// The first byte of the last one.
    address: Hex,
    /// Bytes of each, on an average.
    length: u64,
    #[serde(skip)]
    changed: u64,
}

/// A refusal.
#[derive(Clone, Debug, Serialize)]
struct Refused {
    process: usize,
    at_ms: Moment,
    #[serde(flatten)]
    refusal: Refusal,
    #[serde(skip)]
    changed: u64,
}

/// Counts of entries that the limits of this page have left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct LeftOut {
    /// Regions and windows that were closed, and made room for others.
    pub(super) objects: u64,
    /// Regions and windows that are open, and for which there is no room.
    pub(super) open: u64,
    pub(super) refusals: u64,
    pub(super) accesses: u64,
    /// Processes that have ended, with all that was seen of them.
    pub(super) processes: u64,
}

/// The part of a history that is newer than a sample, as the page takes it.
#[derive(Debug, Serialize)]
struct Update<'a> {
    /// The number of the last sample, for the next question.
    sample: u64,
    /// The time of the last sample.
    at_ms: Moment,
    /// When the watch began, by the clock of the day: milliseconds since 1970.
    began_unix_ms: u64,
    transom: &'static str,
    processes: Vec<&'a Seen>,
    objects: Vec<&'a Object>,
    accesses: Vec<&'a Access>,
    refusals: Vec<&'a Refused>,
    left_out: LeftOut,
}

/// A token of an adapter of a process, and the bytes that it names: a token may outlive its memory.
type Key = (usize, u64, Hex, Hex, u64);

/// A refusal of an adapter of a process.
type RefusalKey = (usize, u64, u64);

/// Everything that was seen so far.
#[derive(Debug)]
pub(super) struct History {
    began_unix_ms: u64,
    sample: u64,
    at: Moment,
    processes: BTreeMap<usize, Seen>,
    next_process: usize,
    objects: BTreeMap<u64, Object>,
    /// Those that are closed, by when. A process may open and close as many as it likes, and none of them is looked
    /// for among all.
    closed: BTreeSet<(Ordered, u64)>,
    /// The newest object of each.
    ids: BTreeMap<Key, u64>,
    next: u64,
    accesses: VecDeque<Access>,
    refusals: BTreeMap<RefusalKey, Refused>,
    /// Refusals, by when they happened.
    refused: BTreeSet<(Ordered, RefusalKey)>,
    /// Of queue pairs, and of connections.
    peers: [Peers; 2],
    left_out: LeftOut,
}

/// The answers of a look at the processes.
pub(super) type Answers = Vec<(u32, Result<Vec<Record>, AskError>)>;

impl History {
    pub(super) fn new(began_unix_ms: u64) -> History {
        History {
            began_unix_ms,
            sample: 0,
            at: 0.0,
            processes: BTreeMap::new(),
            next_process: 0,
            objects: BTreeMap::new(),
            closed: BTreeSet::new(),
            ids: BTreeMap::new(),
            next: 0,
            accesses: VecDeque::new(),
            refusals: BTreeMap::new(),
            refused: BTreeSet::new(),
            peers: Default::default(),
            left_out: LeftOut::default(),
        }
    }

    /// Take in what the processes said at a moment after the beginning of the watch. A process that is
    /// not among them has ended.
    pub(super) fn apply(&mut self, at: Duration, answers: Answers) {
        self.sample += 1;
        self.at = milliseconds(at);
        let mut there = Vec::new();
        for (pid, answer) in answers {
            let mut live = self.processes.values().filter(|one| one.ended_ms.is_none());
            let known = live.find(|one| one.pid == pid).map(|one| one.process);
            match answer {
                Ok(records) => {
                    let process = known.unwrap_or_else(|| self.begin(pid));
                    there.push(process);
                    self.take(process, records);
                }
                Err(AskError::NotThere | AskError::CutShort) => {}
                Err(why) => {
                    let process = known.unwrap_or_else(|| self.begin(pid));
                    there.push(process);
                    if let Some(seen) = self.processes.get_mut(&process) {
                        seen.silent = why.to_string();
                    }
                }
            }
        }
        let ended: Vec<usize> = self
            .processes
            .values()
            .filter(|one| one.ended_ms.is_none() && !there.contains(&one.process))
            .map(|one| one.process)
            .collect();
        for process in ended {
            if let Some(seen) = self.processes.get_mut(&process) {
                seen.ended_ms = Some(self.at);
            }
            self.close_others(process, "closed by the end of the process");
        }
        self.forget_ended();
    }

    /// Forget the processes that ended first, beyond those that are kept.
    fn forget_ended(&mut self) {
        let ended = self.processes.values().filter(|one| one.ended_ms.is_some());
        let mut ended: Vec<(Moment, usize)> =
            ended.map(|one| (one.ended_ms.unwrap_or_default(), one.process)).collect();
        ended.sort_by(|a, b| a.0.total_cmp(&b.0));
        ended.truncate(ended.len().saturating_sub(MOST_ENDED));
        if ended.is_empty() {
            return;
        }
        self.left_out.processes += ended.len() as u64;
        for (_, process) in ended {
            self.processes.remove(&process);
        }
        let kept = &self.processes;
        self.objects.retain(|_, one| kept.contains_key(&one.process));
        let objects = &self.objects;
        self.closed.retain(|(_, id)| objects.contains_key(id));
        self.ids.retain(|key, _| kept.contains_key(&key.0));
        self.refusals.retain(|key, _| kept.contains_key(&key.0));
        self.refused.retain(|(_, key)| kept.contains_key(&key.0));
        self.peers.iter_mut().for_each(|peers| peers.0.retain(|key, _| kept.contains_key(&key.0)));
        self.accesses.retain(|one| objects.contains_key(&one.object));
    }

    fn begin(&mut self, pid: u32) -> usize {
        let process = self.next_process;
        self.next_process += 1;
        let seen = Seen {
            process,
            pid,
            program: String::new(),
            transom: String::new(),
            adapters: Vec::new(),
            connections: 0,
            refusals: 0,
            silent: String::new(),
            ended_ms: None,
        };
        self.processes.insert(process, seen);
        process
    }

    fn take(&mut self, process: usize, records: Vec<Record>) {
        let Some(seen) = self.processes.get_mut(&process) else { return };
        seen.adapters.clear();
        seen.silent.clear();
        self.left_out.open = 0;
        let mut adapters = Vec::new();
        for record in records {
            match record {
                Record::Process(one) => {
                    let Some(seen) = self.processes.get_mut(&process) else { return };
                    (seen.program, seen.transom) = (one.program, one.transom);
                    (seen.connections, seen.refusals) = (one.connections, one.refusals);
                }
                Record::Adapter(_) if adapters.len() >= MOST_ADAPTERS => {}
                Record::Adapter(one) => adapters.push(Adapter {
                    adapter: one.adapter,
                    name: one.name,
                    address: one.address,
                    dialect: one.dialect,
                }),
                Record::Connection(one) => {
                    let of = |number| (process, one.adapter, number);
                    if let Some(number) = one.queue_pair {
                        self.peers[0].remember(of(number), &one.peer);
                    }
                    self.peers[1].remember(of(one.number), &one.peer);
                }
                Record::Region(one) => {
                    let (age, uses) = (one.age_ns, one.uses.clone());
                    self.open((process, one.adapter), of_region(one), age, uses);
                }
                Record::Window(one) => {
                    let (age, uses) = (one.age_ns, one.uses.clone());
                    self.open((process, one.adapter), of_window(one), age, uses);
                }
                Record::Closed(one) => self.closed(process, one),
                Record::Refusal(one) => self.refused(process, *one),
                Record::End(_) | Record::Unknown => {}
            }
        }
        if let Some(seen) = self.processes.get_mut(&process) {
            seen.adapters = adapters;
        }
        self.close_others(process, "closed between two looks");
        let (peers, sample) = (&self.peers, self.sample);
        for object in self.objects.values_mut().filter(|one| one.process == process) {
            let of = |number| (process, object.adapter, number);
            let peer = match (object.named.queue_pair, object.named.connection) {
                (Some(number), _) => peers[0].0.get(&of(number)),
                (_, Some(number)) => peers[1].0.get(&of(number)),
                _ => None,
            };
            if let Some(peer) = peer.filter(|peer| object.peer.is_empty() && !peer.is_empty()) {
                (object.peer, object.changed) = (peer.clone(), sample);
            }
        }
    }

    /// A region or a window is open.
    fn open(&mut self, (process, adapter): (usize, u64), named: Named, age_ns: u64, uses: Uses) {
        let key = (process, adapter, named.token, named.address, named.length);
        let known = self.ids.get(&key).copied();
        let known = known.filter(|id| self.objects[id].closed_ms.is_none());
        let opened_ms = self.at - nanoseconds(age_ns);
        let Some(id) = known.or_else(|| self.insert(key, &named, opened_ms)) else {
            self.left_out.open += 1;
            return;
        };
        self.used(id, uses);
        let sample = self.sample;
        if let Some(object) = self.objects.get_mut(&id) {
            if object.named != named {
                (object.named, object.changed) = (named, sample);
            }
            object.seen = sample;
        }
    }

    /// A region or a window was closed: since the last sample, if it is not known as closed.
    fn closed(&mut self, process: usize, one: Closed) {
        let Closed { adapter, named, age_ns, closed_ns, uses } = one;
        let key = (process, adapter, named.token, named.address, named.length);
        let closed_ms = self.at - nanoseconds(closed_ns);
        let known = self.ids.get(&key).copied();
        let known = known.or_else(|| self.insert(key, &named, closed_ms - nanoseconds(age_ns)));
        let Some(id) = known.filter(|id| self.objects[id].closed_ms.is_none()) else { return };
        self.used(id, uses);
        let sample = self.sample;
        if let Some(object) = self.objects.get_mut(&id) {
            (object.named, object.closed_ms, object.changed) = (named, Some(closed_ms), sample);
            self.closed.insert((Ordered(closed_ms), id));
        }
    }

    /// Objects that were open, and are not any more.
    fn close_others(&mut self, process: usize, why: &str) {
        let (sample, at) = (self.sample, self.at);
        let open = self.objects.values_mut().filter(|one| one.closed_ms.is_none());
        for object in open.filter(|one| one.process == process && one.seen != sample) {
            (object.closed_ms, object.changed) = (Some(at), sample);
            object.named.state = "closed".to_owned();
            object.named.closed_by = why.to_owned();
            self.closed.insert((Ordered(at), object.id));
        }
    }

    fn insert(&mut self, key: Key, named: &Named, opened_ms: Moment) -> Option<u64> {
        if self.objects.len() >= MOST_OBJECTS {
            let (_, oldest) = self.closed.pop_first()?;
            let oldest = self.objects.remove(&oldest)?;
            let Named { token, address, length, .. } = oldest.named;
            let of = (oldest.process, oldest.adapter, token, address, length);
            if self.ids.get(&of) == Some(&oldest.id) {
                self.ids.remove(&of);
            }
            self.left_out.objects += 1;
        }
        let id = self.next;
        self.next += 1;
        let object = Object {
            id,
            process: key.0,
            adapter: key.1,
            named: named.clone(),
            peer: String::new(),
            opened_ms,
            closed_ms: None,
            uses: Uses::default(),
            seen: 0,
            changed: self.sample,
        };
        self.objects.insert(id, object);
        self.ids.insert(key, id);
        Some(id)
    }

    /// The uses of an object as they are now: what they are more than before is an access.
    fn used(&mut self, id: u64, uses: Uses) {
        let (sample, at) = (self.sample, self.at);
        let Some(object) = self.objects.get_mut(&id) else { return };
        let copies = uses.copies.saturating_sub(object.uses.copies);
        let bytes = uses.bytes.saturating_sub(object.uses.bytes);
        if copies > 0 {
            self.accesses.push_back(Access {
                object: id,
                at_ms: at - nanoseconds(uses.last_ns.unwrap_or_default()),
                copies,
                bytes,
                address: uses.last_address.or(uses.touched).unwrap_or(object.named.address),
                length: bytes / copies,
                changed: sample,
            });
            (object.uses, object.changed) = (uses, sample);
        }
        if self.accesses.len() > MOST_ACCESSES {
            self.accesses.pop_front();
            self.left_out.accesses += 1;
        }
    }

    fn refused(&mut self, process: usize, refusal: Refusal) {
        let key = (process, refusal.adapter, refusal.id);
        if self.refusals.contains_key(&key) {
            return;
        }
        if let Some(number) = refusal.queue_pair.filter(|_| !refusal.peer.is_empty()) {
            self.peers[0].remember((process, refusal.adapter, number), &refusal.peer);
        }
        let at_ms = self.at - nanoseconds(refusal.ago_ns);
        self.refused.insert((Ordered(at_ms), key));
        self.refusals.insert(key, Refused { process, at_ms, refusal, changed: self.sample });
        if self.refusals.len() > MOST_REFUSALS
            && let Some((_, oldest)) = self.refused.pop_first()
        {
            self.refusals.remove(&oldest);
            self.left_out.refusals += 1;
        }
    }

    /// Whether no process has answered so far.
    pub(super) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// A name for an exported page, of letters, digits and hyphens.
    pub(super) fn file_name(&self) -> String {
        let mut all = self.processes.values();
        match (all.next(), all.next()) {
            (Some(one), None) => format!("transom-map-{}.html", one.pid),
            _ => "transom-map.html".to_owned(),
        }
    }

    /// Everything that is newer than a sample, as JSON; 0: everything.
    pub(super) fn since(&self, sample: u64) -> String {
        let update = Update {
            sample: self.sample,
            at_ms: self.at,
            began_unix_ms: self.began_unix_ms,
            transom: env!("CARGO_PKG_VERSION"),
            processes: self.processes.values().collect(),
            objects: self.objects.values().filter(|one| one.changed > sample).collect(),
            accesses: self.accesses.iter().filter(|one| one.changed > sample).collect(),
            refusals: self.refusals.values().filter(|one| one.changed > sample).collect(),
            left_out: self.left_out,
        };
        // Strings, numbers and options of them: there is nothing that cannot be written.
        serde_json::to_string(&update).unwrap_or_default()
    }
}

/// Peers, by process, adapter, and the number of their queue pair or connection.
#[derive(Debug, Default)]
struct Peers(HashMap<(usize, u64, u32), String>);

impl Peers {
    fn remember(&mut self, of: (usize, u64, u32), peer: &str) {
        if self.0.len() < MOST_PEERS || self.0.contains_key(&of) {
            self.0.insert(of, peer.to_owned());
        }
    }
}

fn milliseconds(time: Duration) -> Moment {
    time.as_secs_f64() * 1e3
}

fn nanoseconds(time: u64) -> Moment {
    time as f64 / 1e6
}

fn of_region(one: Region) -> Named {
    let Region { token, name, address, length, rights, scope, state, connection, .. } = one;
    Named {
        what: "region".to_owned(),
        token,
        name,
        region: token,
        address,
        length,
        rights,
        scope,
        connection,
        state,
        ..Named::default()
    }
}

fn of_window(one: Window) -> Named {
    let Window { token, name, region, address, length, rights, scope, state, .. } = one;
    let Window { queue_pair, connection, .. } = one;
    Named {
        what: "window".to_owned(),
        token,
        name,
        region,
        address,
        length,
        rights,
        scope,
        queue_pair,
        connection,
        state,
        ..Named::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use transom_inspect::{Connection, Process};

    const SECOND: u64 = 1_000_000_000;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn window(token: u64, copies: u64) -> Record {
        let last = (copies > 0).then_some(Hex(0x1010));
        let uses = Uses {
            copies,
            bytes: copies * 8,
            last_ns: last.map(|_| SECOND / 2),
            last_address: last,
            ..Uses::default()
        };
        Record::Window(Window {
            adapter: 1,
            token: Hex(token),
            address: Hex(0x1000),
            length: 64,
            queue_pair: Some(7),
            state: "live".to_owned(),
            age_ns: 2 * SECOND,
            uses,
            ..Window::default()
        })
    }

    fn closed(token: u64, ago: u64) -> Record {
        let named = Named {
            what: "window".to_owned(),
            token: Hex(token),
            address: Hex(0x1000),
            length: 64,
            state: "closed".to_owned(),
            closed_by: "invalidated by its owner".to_owned(),
            ..Named::default()
        };
        let uses = Uses { copies: 3, bytes: 24, last_ns: Some(ago), ..Uses::default() };
        Record::Closed(Closed { adapter: 1, named, age_ns: SECOND, closed_ns: ago, uses })
    }

    fn refusal(id: u64, ago_ns: u64) -> Record {
        Record::Refusal(Box::new(Refusal { adapter: 1, id, ago_ns, ..Refusal::default() }))
    }

    fn update(history: &History, since: u64) -> Value {
        serde_json::from_str(&history.since(since)).unwrap()
    }

    fn lists(update: &Value) -> [usize; 3] {
        ["objects", "accesses", "refusals"].map(|kind| update[kind].as_array().unwrap().len())
    }

    fn answer(records: Vec<Record>) -> Answers {
        let process = Process { pid: 12, program: "it".to_owned(), ..Process::default() };
        vec![(12, Ok([vec![Record::Process(process)], records].concat()))]
    }

    /// A change of a token's counters is an access; without a change nothing is sent again.
    #[test]
    fn a_page_gets_what_is_new() {
        let mut history = History::new(0);
        assert!(history.is_empty());
        history.apply(seconds(10), answer(vec![window(1, 0), window(2, 5)]));
        let first = update(&history, 0);
        assert_eq!(lists(&first), [2, 1, 0]);
        assert_eq!(first["objects"][0]["opened_ms"], 8000.0);
        assert_eq!(
            (&first["processes"][0]["pid"], &first["at_ms"]),
            (&12.into(), &10_000.0.into())
        );
        let access = &first["accesses"][0];
        assert_eq!((&access["copies"], &access["bytes"]), (&5.into(), &40.into()));
        assert_eq!((&access["length"], &access["at_ms"]), (&8.into(), &9500.0.into()));
        let sample = first["sample"].as_u64().unwrap();
        history.apply(seconds(11), answer(vec![window(1, 0), window(2, 5)]));
        assert_eq!(lists(&update(&history, sample)), [0, 0, 0]);
        history.apply(seconds(12), answer(vec![window(1, 2), window(2, 5), refusal(1, SECOND)]));
        let news = update(&history, sample);
        assert_eq!(lists(&news), [1, 1, 1]);
        assert_eq!(news["accesses"][0]["object"], first["objects"][0]["id"]);
        assert_eq!(news["refusals"][0]["at_ms"], 11_000.0);
        assert_eq!(lists(&update(&history, 0)), [2, 2, 1], "and everything if it asks for that");
        // The moment of a refusal stays what it was.
        history.apply(seconds(13), answer(vec![refusal(1, SECOND)]));
        assert_eq!(update(&history, 0)["refusals"][0]["at_ms"], 11_000.0);
    }

    #[test]
    fn windows_are_closed_when_and_by_what_the_process_says() {
        let mut history = History::new(0);
        history.apply(seconds(10), answer(vec![window(1, 1), window(2, 0), window(3, 0)]));
        history
            .apply(seconds(20), answer(vec![window(3, 0), closed(1, SECOND), closed(9, SECOND)]));
        let all = update(&history, 0);
        let state = |i: usize| {
            let object = &all["objects"][i];
            (object["token"].as_str().unwrap(), object["closed_ms"].as_f64(), &object["closed_by"])
        };
        assert_eq!(state(0), ("0x00000001", Some(19_000.0), &"invalidated by its owner".into()));
        assert_eq!(state(1), ("0x00000002", Some(20_000.0), &"closed between two looks".into()));
        assert_eq!(state(2), ("0x00000003", None, &"".into()));
        // Never seen open: opened and closed between two looks.
        assert_eq!(state(3).1, Some(19_000.0));
        assert_eq!(all["objects"][3]["opened_ms"], 18_000.0);
        // The last copies came after the look that saw the window open.
        assert_eq!(all["accesses"][1]["copies"], 2);
        // A close that is reported again is the same close.
        let sample = all["sample"].as_u64().unwrap();
        history.apply(seconds(30), answer(vec![window(3, 0), closed(1, 11 * SECOND)]));
        assert_eq!(lists(&update(&history, sample)), [0, 0, 0]);
    }

    /// A token opened anew over its old memory (fast registration) is another object.
    #[test]
    fn a_token_that_is_opened_again_is_another_object() {
        let mut history = History::new(0);
        history.apply(seconds(10), answer(vec![window(1, 4)]));
        history.apply(seconds(20), answer(vec![]));
        history.apply(seconds(30), answer(vec![window(1, 1)]));
        let all = update(&history, 0);
        assert_eq!(lists(&all), [2, 2, 0]);
        assert_eq!(all["objects"][0]["closed_ms"], 20_000.0);
        assert_eq!(all["objects"][1]["closed_ms"], Value::Null);
        assert_eq!(all["accesses"][1]["copies"], 1);
    }

    #[test]
    fn the_grantee_is_named_by_its_peer_once_that_was_seen() {
        let mut history = History::new(0);
        let connection = Connection {
            adapter: 1,
            queue_pair: Some(7),
            peer: "127.0.0.1:999".to_owned(),
            ..Connection::default()
        };
        history.apply(seconds(1), answer(vec![window(1, 0)]));
        assert_eq!(update(&history, 0)["objects"][0]["peer"], "");
        let connection = Record::Connection(Box::new(connection));
        history.apply(seconds(2), answer(vec![connection, window(1, 0)]));
        history.apply(seconds(3), answer(vec![window(1, 0)]));
        assert_eq!(update(&history, 1)["objects"][0]["peer"], "127.0.0.1:999");
    }

    /// The history keeps a bounded number of processes that have ended.
    #[test]
    fn of_processes_that_have_ended_the_latest_are_kept() {
        let mut history = History::new(0);
        let one = |pid: u32| {
            let process = Process { pid, program: "it".to_owned(), ..Process::default() };
            let connection = Record::Connection(Box::new(Connection {
                adapter: 1,
                queue_pair: Some(7),
                peer: "127.0.0.1:999".to_owned(),
                ..Connection::default()
            }));
            let records = vec![connection, window(1, 2), refusal(1, SECOND)];
            (pid, Ok([vec![Record::Process(process)], records].concat()))
        };
        let lives = || vec![one(1)];
        for pid in 2..=MOST_ENDED as u32 + 1 {
            history.apply(seconds(pid.into()), vec![one(1), one(pid)]);
        }
        history.apply(seconds(1000), lives());
        let count = MOST_ENDED + 1;
        let all = update(&history, 0);
        assert_eq!(
            all["processes"].as_array().unwrap().len(),
            count,
            "all, and the one that lives"
        );
        assert_eq!((lists(&all), history.left_out.processes), ([count; 3], 0));
        history.apply(seconds(1001), vec![one(1), one(5000)]);
        history.apply(seconds(1002), lives());
        let all = update(&history, 0);
        let pids: Vec<u64> = all["processes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["pid"].as_u64().unwrap())
            .collect();
        assert_eq!(pids.len(), count);
        assert!(
            pids.contains(&1) && !pids.contains(&2) && pids.contains(&3) && pids.contains(&5000)
        );
        assert_eq!((lists(&all), &all["left_out"]["processes"]), ([count; 3], &1.into()));
        assert_eq!((history.ids.len(), history.peers[0].0.len()), (count, count));
    }

    #[test]
    fn processes_end_and_their_numbers_are_used_again() {
        let mut history = History::new(0);
        history.apply(seconds(1), answer(vec![window(1, 0)]));
        history.apply(seconds(2), vec![(12, Err(AskError::Silent))]);
        let silent = update(&history, 0);
        assert!(silent["processes"][0]["silent"].as_str().unwrap().contains("2 s"), "{silent}");
        assert_eq!(silent["objects"][0]["closed_ms"], Value::Null, "it may go on");
        for gone in [vec![], vec![(12, Err(AskError::NotThere))]] {
            history.apply(seconds(3), gone);
            let all = update(&history, 0);
            assert_eq!(all["processes"][0]["ended_ms"], 3000.0);
            assert_eq!(all["objects"][0]["closed_ms"], 3000.0);
        }
        history.apply(seconds(4), answer(vec![window(1, 0)]));
        let all = update(&history, 0);
        assert_eq!(all["processes"].as_array().unwrap().len(), 2);
        assert_eq!(all["objects"][1]["process"], 1);
    }

    /// However much happens, the page takes bounded room, and says what it has left out.
    #[test]
    fn room_is_bounded() {
        let mut history = History::new(0);
        let most = MOST_OBJECTS as u64;
        history.apply(seconds(1), answer((0..most + 2).map(|token| window(token, 0)).collect()));
        let left = |open| LeftOut { open, ..LeftOut::default() };
        assert_eq!((history.objects.len(), history.left_out), (MOST_OBJECTS, left(2)));
        history.apply(seconds(2), answer(vec![]));
        history.apply(seconds(3), answer(vec![window(most, 0)]));
        assert_eq!((history.objects.len(), history.left_out.objects), (MOST_OBJECTS, 1));
        assert_eq!(history.left_out.open, 0);
        let most = MOST_REFUSALS as u64;
        let all = (1..=most + 1).map(|id| refusal(id, most + 1 - id)).collect();
        history.apply(seconds(4), answer(all));
        assert_eq!((history.refusals.len(), history.left_out.refusals), (MOST_REFUSALS, 1));
        assert!(!history.refusals.contains_key(&(0, 1, 1)), "the oldest has made room");
        let mut history = History::new(0);
        let each = 200;
        for copies in 1..=MOST_ACCESSES as u64 / each {
            history.apply(seconds(5), answer((0..each).map(|it| window(it, copies)).collect()));
        }
        assert_eq!((history.accesses.len(), history.left_out.accesses), (MOST_ACCESSES, 0));
        history.apply(seconds(6), answer(vec![window(1, MOST_ACCESSES as u64)]));
        assert_eq!((history.accesses.len(), history.left_out.accesses), (MOST_ACCESSES, 1));
    }
}
