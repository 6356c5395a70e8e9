//! The state of the terminal view: the samples so far, and where its user is.

use std::collections::BTreeMap;
use std::time::Duration;

use transom_inspect::{Connection, Process, Record, Refusal, Region, Uses, Window};

/// The answers of a single look at the processes of this user.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// When, counted from the beginning of the watch.
    pub(crate) at: Duration,
    /// Each process that has a socket: what it is, or why it has not answered.
    pub(crate) processes: Vec<(u32, Result<Process, String>)>,
    /// All records of one of them.
    pub(crate) records: Option<(u32, Vec<Record>)>,
}

/// A list on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pane {
    Processes,
    Connections,
    Memory,
    Refusals,
}

/// In the order in which they stand on the screen.
pub(crate) const PANES: [Pane; 4] =
    [Pane::Processes, Pane::Connections, Pane::Memory, Pane::Refusals];

impl Pane {
    fn index(self) -> usize {
        self as usize
    }

    /// The orders that a list can have; the first one is its order at the beginning.
    pub(crate) fn orders(self) -> &'static [&'static str] {
        match self {
            Pane::Processes => &["pid", "program", "connections", "windows", "refusals"],
            Pane::Connections => &["number", "peer", "path", "state", "requests"],
            Pane::Memory => &["address", "bytes", "age", "rights", "scope", "uses of late"],
            Pane::Refusals => &["latest", "rule", "address", "bytes"],
        }
    }
}

/// A request that a key makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Quit,
    Back,
    Open,
    Hold,
    Sort,
    Reverse,
    NextPane,
    PreviousPane,
    /// Rows down, or up if negative.
    Move(i64),
    First,
    Last,
}

/// How a process answers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answers {
    Yes,
    /// The process has a socket, and does not answer.
    No(String),
    /// The socket has gone.
    Ended(Duration),
}

/// A process of the list.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) process: Process,
    pub(crate) answers: Answers,
    /// Refusals for each second, of late.
    pub(crate) refusals_per_second: f64,
    /// When they were counted last, and how many they were.
    counted: (Duration, u64),
}

/// A region or a window.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Region(Region),
    Window(Window),
}

impl Part {
    fn key(&self) -> Key {
        match self {
            Part::Region(one) => (one.adapter, one.token.0),
            Part::Window(one) => (one.adapter, one.token.0),
        }
    }

    /// The copies through its token.
    pub(crate) fn uses(&self) -> &Uses {
        match self {
            Part::Region(one) => &one.uses,
            Part::Window(one) => &one.uses,
        }
    }
}

/// The copies through a token: when they were counted last, how many they were, and how many for each
/// second of late.
#[derive(Clone, Copy, Debug)]
struct Used {
    at: Duration,
    copies: u64,
    per_second: f64,
}

/// A row's name, which stays the same while others come and go.
type Key = (u64, u64);

/// Where the user is in a list.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    index: usize,
    /// The row; `None` at the top, which then stays the top.
    key: Option<Key>,
    order: usize,
    reversed: bool,
}

/// A refusal, and when it happened: counted from the beginning of the watch, negative before it.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) record: Refusal,
    pub(crate) at_ns: i128,
}

/// Seconds over which a rate is taken, at least.
const SHORTEST: f64 = 0.5;
/// Refusals of one process that are kept; its latest ones.
const REFUSALS: usize = 1000;

/// Everything that a frame shows.
#[derive(Debug)]
pub(crate) struct WatchState {
    /// The only process that is watched, if the user has named one.
    only: Option<u32>,
    pub(crate) colour: bool,
    pub(crate) held: bool,
    pub(crate) now: Duration,
    pub(crate) sampled: bool,
    pub(crate) processes: Vec<Seen>,
    /// The process of the lists below the first one, and when it said what they show.
    pub(crate) shown: Option<u32>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) memory: Vec<Part>,
    used: BTreeMap<Key, Used>,
    refused: BTreeMap<Key, Refused>,
    pub(crate) refusals: Vec<Refused>,
    pub(crate) pane: Pane,
    cursors: [Cursor; PANES.len()],
    /// The text of a row that is open, with its title, and the first line of it on the screen.
    pub(crate) open: Option<(String, Record)>,
    pub(crate) scroll: u16,
}

impl WatchState {
    pub(crate) fn new(only: Option<u32>, colour: bool) -> WatchState {
        WatchState {
            only,
            colour,
            held: false,
            now: Duration::ZERO,
            sampled: false,
            processes: Vec::new(),
            shown: only,
            connections: Vec::new(),
            memory: Vec::new(),
            used: BTreeMap::new(),
            refused: BTreeMap::new(),
            refusals: Vec::new(),
            pane: if only.is_some() { Pane::Refusals } else { Pane::Processes },
            cursors: Default::default(),
            open: None,
            scroll: 0,
        }
    }

    /// The process whose records the next sample should have.
    pub(crate) fn wanted(&self) -> Option<u32> {
        self.shown
    }

    /// The lists that are on the screen.
    pub(crate) fn panes(&self) -> &'static [Pane] {
        if self.only.is_some() { &PANES[1..] } else { &PANES }
    }

    /// The process that the lists below the first one show.
    pub(crate) fn process(&self) -> Option<&Seen> {
        self.processes.iter().find(|one| Some(one.process.pid) == self.shown)
    }

    /// Rows of a list.
    pub(crate) fn rows(&self, pane: Pane) -> usize {
        match pane {
            Pane::Processes => self.processes.len(),
            Pane::Connections => self.connections.len(),
            Pane::Memory => self.memory.len(),
            Pane::Refusals => self.refusals.len(),
        }
    }

    /// The row at which the user is.
    pub(crate) fn cursor(&self, pane: Pane) -> usize {
        self.cursors[pane.index()].index
    }

    /// By what a list is sorted, and whether the other way round.
    pub(crate) fn order(&self, pane: Pane) -> (&'static str, bool) {
        let cursor = &self.cursors[pane.index()];
        (pane.orders().get(cursor.order).copied().unwrap_or_default(), cursor.reversed)
    }

    /// Take a sample in, unless the screen is held.
    pub(crate) fn apply(&mut self, sample: Sample) {
        if self.held {
            return;
        }
        self.now = sample.at;
        self.sampled = true;
        self.apply_processes(sample.processes);
        if let Some((pid, records)) = sample.records
            && Some(pid) == self.shown
        {
            self.apply_records(records);
        }
        self.arrange();
    }

    fn apply_processes(&mut self, found: Vec<(u32, Result<Process, String>)>) {
        let now = self.now;
        // The number of a process that has ended is another's now.
        let anew = |seen: &Seen| {
            let answers = found.iter().any(|(pid, it)| *pid == seen.process.pid && it.is_ok());
            matches!(seen.answers, Answers::Ended(_)) && answers
        };
        if self.process().is_some_and(anew) {
            self.clear_lists();
        }
        self.processes.retain(|seen| !anew(seen));
        for seen in &mut self.processes {
            let here = found.iter().any(|(pid, _)| *pid == seen.process.pid);
            if !here && !matches!(seen.answers, Answers::Ended(_)) {
                seen.answers = Answers::Ended(now);
                seen.refusals_per_second = 0.0;
            }
        }
        for (pid, answer) in found {
            let known = self.processes.iter_mut().find(|seen| seen.process.pid == pid);
            match (known, answer) {
                (Some(seen), Ok(process)) => {
                    let (at, before) = seen.counted;
                    let seconds = now.saturating_sub(at).as_secs_f64();
                    // Two samples may lie close together: a rate of a moment says nothing.
                    if seconds >= SHORTEST {
                        let more = process.refusals.saturating_sub(before);
                        seen.refusals_per_second = more as f64 / seconds;
                        seen.counted = (now, process.refusals);
                    }
                    (seen.process, seen.answers) = (process, Answers::Yes);
                }
                (Some(seen), Err(why)) => seen.answers = Answers::No(why),
                (None, answer) => {
                    let answers = match &answer {
                        Ok(_) => Answers::Yes,
                        Err(why) => Answers::No(why.clone()),
                    };
                    let process = answer.unwrap_or_else(|_| Process { pid, ..Process::default() });
                    let counted = (now, process.refusals);
                    let seen = Seen { process, answers, refusals_per_second: 0.0, counted };
                    self.processes.push(seen);
                }
            }
        }
    }

    fn apply_records(&mut self, records: Vec<Record>) {
        self.connections.clear();
        self.memory.clear();
        let now = self.now.as_nanos().cast_signed();
        for record in records {
            match record {
                Record::Connection(one) => self.connections.push(*one),
                Record::Region(one) => self.memory.push(Part::Region(one)),
                Record::Window(one) => self.memory.push(Part::Window(one)),
                Record::Refusal(one) => {
                    let at_ns = now - i128::from(one.ago_ns);
                    let refused = Refused { record: *one, at_ns };
                    let key = (refused.record.adapter, refused.record.id);
                    // The moment is kept from the first time: two clocks drift apart.
                    self.refused.entry(key).or_insert(refused);
                }
                Record::Process(_)
                | Record::Adapter(_)
                | Record::Closed(_)
                | Record::End(_)
                | Record::Unknown => {}
            }
        }
        let used = self.memory.iter().map(|part| (part.key(), self.used_of_late(part)));
        self.used = used.collect();
        while self.refused.len() > REFUSALS {
            let oldest = self.refused.iter().min_by_key(|(_, one)| one.at_ns);
            let Some((&key, _)) = oldest else { break };
            self.refused.remove(&key);
        }
    }

    fn used_of_late(&self, part: &Part) -> Used {
        let (now, copies) = (self.now, part.uses().copies);
        // A token that has fewer copies than before has new memory.
        let before = self.used.get(&part.key()).filter(|before| before.copies <= copies);
        let Some(before) = before else { return Used { at: now, copies, per_second: 0.0 } };
        let seconds = now.saturating_sub(before.at).as_secs_f64();
        if seconds < SHORTEST {
            return *before;
        }
        Used { at: now, copies, per_second: (copies - before.copies) as f64 / seconds }
    }

    /// Copies through the token of a region or a window, for each second of late.
    pub(crate) fn uses_per_second(&self, part: &Part) -> f64 {
        self.used.get(&part.key()).map_or(0.0, |used| used.per_second)
    }

    /// Sort every list, and find the rows again at which the user was.
    fn arrange(&mut self) {
        let order = |pane| self.order(pane);
        let (processes, connections) = (order(Pane::Processes), order(Pane::Connections));
        let (memory, refusals) = (order(Pane::Memory), order(Pane::Refusals));
        sort(&mut self.processes, processes.1, |one| {
            let Process { pid, program, connections, windows, refusals, .. } = &one.process;
            let (text, number) = match processes.0 {
                "program" => (program.clone(), 0),
                "connections" => (String::new(), most_first(*connections)),
                "windows" => (String::new(), most_first(*windows)),
                "refusals" => (String::new(), most_first(*refusals)),
                _ => (String::new(), 0),
            };
            (text, number, *pid)
        });
        sort(&mut self.connections, connections.1, |one| {
            let (text, number) = match connections.0 {
                "peer" => (one.peer.clone(), 0),
                "path" => (one.path.clone(), 0),
                "state" => (one.state.clone(), 0),
                "requests" => (String::new(), most_first(one.requests.unwrap_or_default().taken)),
                _ => (String::new(), 0),
            };
            (text, number, (one.adapter, one.number, one.epoch))
        });
        let used = &self.used;
        sort(&mut self.memory, memory.1, |one| {
            let (window, address, length, age, rights, scope, token) = match one {
                Part::Region(one) => {
                    (false, one.address.0, one.length, u64::MAX, &one.rights, &one.scope, one.token)
                }
                Part::Window(one) => (
                    true,
                    one.address.0,
                    one.length,
                    one.age_ns,
                    &one.rights,
                    &one.scope,
                    one.token,
                ),
            };
            let (text, number) = match memory.0 {
                "bytes" => (String::new(), most_first(length)),
                "age" => (String::new(), age),
                "rights" => (rights.clone(), 0),
                "scope" => (scope.clone(), 0),
                "uses of late" => {
                    let of_late = used.get(&one.key()).map_or(0.0, |used| used.per_second);
                    (String::new(), most_first((of_late * 1000.0) as u64))
                }
                _ => (String::new(), 0),
            };
            (text, number, (address, window, token))
        });
        self.refusals = self.refused.values().cloned().collect();
        sort(&mut self.refusals, refusals.1, |one| {
            let record = &one.record;
            let (text, number) = match refusals.0 {
                "rule" => (record.rule.clone().unwrap_or_default(), 0),
                "address" => (String::new(), record.address.unwrap_or_default().0),
                "bytes" => (String::new(), most_first(record.length.unwrap_or_default())),
                _ => (String::new(), 0),
            };
            (text, number, (-one.at_ns, most_first(record.id)))
        });
        for pane in PANES {
            self.follow(pane);
        }
        if self.only.is_none() {
            self.show_chosen();
        }
    }

    fn key(&self, pane: Pane, row: usize) -> Option<Key> {
        match pane {
            Pane::Processes => self.processes.get(row).map(|one| (u64::from(one.process.pid), 0)),
            Pane::Connections => self
                .connections
                .get(row)
                .map(|one| (one.adapter, u64::from(one.number) << 32 | u64::from(one.epoch))),
            Pane::Memory => self.memory.get(row).map(Part::key),
            Pane::Refusals => self.refusals.get(row).map(|one| (one.record.adapter, one.record.id)),
        }
    }

    /// Move a cursor to where its row is now; to the row in its place if it has gone.
    fn follow(&mut self, pane: Pane) {
        let Cursor { index, key, .. } = self.cursors[pane.index()];
        let rows = self.rows(pane);
        let found = match key {
            Some(_) => (0..rows).find(|row| self.key(pane, *row) == key),
            None => Some(0),
        };
        self.put_cursor(pane, found.unwrap_or(index));
    }

    fn put_cursor(&mut self, pane: Pane, row: usize) {
        let index = row.min(self.rows(pane).saturating_sub(1));
        // The first process is a choice like any other: its lists do not change hands.
        let anchored = index > 0 || pane == Pane::Processes;
        let key = if anchored { self.key(pane, index) } else { None };
        let cursor = &mut self.cursors[pane.index()];
        (cursor.index, cursor.key) = (index, key);
    }

    /// The lists below the first one are those of the process at its cursor.
    fn show_chosen(&mut self) {
        let chosen = self.key(Pane::Processes, self.cursor(Pane::Processes));
        let pid = chosen.map(|(pid, _)| pid as u32);
        if pid != self.shown {
            self.shown = pid;
            // There is nothing of this process to hold.
            self.held = false;
            self.clear_lists();
        }
    }

    fn clear_lists(&mut self) {
        self.connections.clear();
        self.memory.clear();
        self.used.clear();
        self.refused.clear();
        self.refusals.clear();
        for pane in [Pane::Connections, Pane::Memory, Pane::Refusals] {
            self.put_cursor(pane, 0);
        }
    }

    /// Do what a key asks for. `false`: the user wants to leave.
    pub(crate) fn input(&mut self, input: Input) -> bool {
        if self.open.is_some() {
            match input {
                Input::Quit => return false,
                Input::Back | Input::Open => self.open = None,
                Input::Move(rows) => {
                    let lines = rows.clamp(-1000, 1000) as i16;
                    self.scroll = self.scroll.saturating_add_signed(lines);
                }
                Input::First => self.scroll = 0,
                Input::Last => self.scroll = u16::MAX,
                Input::Hold => self.held = !self.held,
                Input::Sort | Input::Reverse | Input::NextPane | Input::PreviousPane => {}
            }
            return true;
        }
        let pane = self.pane;
        let cursor = &mut self.cursors[pane.index()];
        match input {
            Input::Quit => return false,
            Input::Back => {}
            Input::Hold => self.held = !self.held,
            Input::Open => self.open_row(),
            Input::Sort => {
                (cursor.order, cursor.reversed) = ((cursor.order + 1) % pane.orders().len(), false);
                self.arrange();
            }
            Input::Reverse => {
                cursor.reversed = !cursor.reversed;
                self.arrange();
            }
            Input::NextPane | Input::PreviousPane => {
                let panes = self.panes();
                let at = panes.iter().position(|one| *one == pane).unwrap_or_default();
                let step = if input == Input::NextPane { 1 } else { panes.len() - 1 };
                self.pane = panes[(at + step) % panes.len()];
            }
            Input::Move(rows) => {
                let row = (cursor.index as i64).saturating_add(rows).max(0) as usize;
                self.move_to(pane, row);
            }
            Input::First => self.move_to(pane, 0),
            Input::Last => self.move_to(pane, usize::MAX),
        }
        true
    }

    fn move_to(&mut self, pane: Pane, row: usize) {
        self.put_cursor(pane, row);
        if pane == Pane::Processes && self.only.is_none() {
            self.show_chosen();
        }
    }

    fn open_row(&mut self) {
        let row = self.cursor(self.pane);
        self.scroll = 0;
        self.open = match self.pane {
            Pane::Processes => self
                .processes
                .get(row)
                .map(|one| ("process".to_owned(), Record::Process(one.process.clone()))),
            Pane::Connections => self
                .connections
                .get(row)
                .map(|one| ("connection".to_owned(), Record::Connection(Box::new(one.clone())))),
            Pane::Memory => self.memory.get(row).map(|one| match one {
                Part::Region(one) => ("region".to_owned(), Record::Region(one.clone())),
                Part::Window(one) => ("window".to_owned(), Record::Window(one.clone())),
            }),
            Pane::Refusals => self.refusals.get(row).map(|one| {
                let title = format!("refusal {}", one.record.id);
                (title, Record::Refusal(Box::new(one.record.clone())))
            }),
        };
    }
}

/// For columns where people look for the largest.
fn most_first(number: u64) -> u64 {
    u64::MAX - number
}

fn sort<T, K: Ord>(rows: &mut [T], reversed: bool, key: impl Fn(&T) -> K) {
    rows.sort_by_cached_key(key);
    if reversed {
        rows.reverse();
    }
}
