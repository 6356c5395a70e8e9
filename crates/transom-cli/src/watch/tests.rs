//! The screen, drawn into memory.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use transom_inspect::{Connection, Hex, Process, Queue, Record, Refusal, Region, Uses, Window};

use super::state::{Input, Pane, Part, Sample, WatchState};
use super::view;

const SIZES: [(u16, u16); 2] = [(80, 24), (200, 50)];

/// The lines of the screen.
fn screen(state: &WatchState, (width, height): (u16, u16)) -> Vec<String> {
    let buffer = buffer(state, (width, height));
    let cell = |x, y| buffer.cell((x, y)).unwrap().symbol().to_owned();
    (0..height).map(|y| (0..width).map(|x| cell(x, y)).collect()).collect()
}

fn buffer(state: &WatchState, (width, height): (u16, u16)) -> ratatui::buffer::Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, state)).unwrap();
    terminal.backend().buffer().clone()
}

/// A line that has all of `words` in this order.
#[track_caller]
fn has(lines: &[String], words: &[&str]) {
    let in_order = |line: &&String| {
        let mut rest = line.as_str();
        words.iter().all(|word| match rest.split_once(word) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    };
    assert!(lines.iter().any(|line| in_order(&line)), "{words:?} not in\n{}", lines.join("\n"));
}

#[track_caller]
fn has_not(lines: &[String], word: &str) {
    assert!(!lines.iter().any(|line| line.contains(word)), "{word:?} in\n{}", lines.join("\n"));
}

fn process(pid: u32, program: &str, refusals: u64) -> (u32, Result<Process, String>) {
    let program = program.to_owned();
    (pid, Ok(Process { pid, program, connections: 1, refusals, ..Process::default() }))
}

fn connection(number: u32) -> Record {
    Record::Connection(Box::new(Connection {
        adapter: 1,
        number,
        state: "open".to_owned(),
        local: "127.0.0.1:7000".to_owned(),
        peer: format!("127.0.0.1:{}", 40_000 + number),
        path: "tcp".to_owned(),
        path_reason: "the adapter was told to".to_owned(),
        queue_pair: Some(77),
        requests: Some(Queue { taken: 3, depth: 16 }),
        receives: None,
        peer_waits_for_receive: true,
        ..Connection::default()
    }))
}

fn region() -> Record {
    Record::Region(Region {
        adapter: 1,
        token: Hex(0xaaaa_0001),
        address: Hex(0x7000_0000_0000),
        length: 65_536,
        rights: "LOCAL_READ | LOCAL_WRITE | BIND".to_owned(),
        scope: "every queue pair of domain 1".to_owned(),
        state: "live".to_owned(),
        windows: 1,
        ..Region::default()
    })
}

fn window(number: u64) -> Record {
    Record::Window(Window {
        adapter: 1,
        token: Hex(0xbbbb_0000 + number),
        region: Hex(0xaaaa_0001),
        address: Hex(0x7000_0000_0000 + number * 4096),
        length: 4096,
        rights: "REMOTE_READ | REMOTE_WRITE".to_owned(),
        scope: "queue pair 77 of domain 1".to_owned(),
        state: "live".to_owned(),
        age_ns: 3_000_000_000,
        ..Window::default()
    })
}

fn refusal(id: u64, ago_s: u64) -> Record {
    Record::Refusal(Box::new(Refusal {
        adapter: 1,
        id,
        ago_ns: ago_s * 1_000_000_000,
        refused: "peer".to_owned(),
        rule: Some("range".to_owned()),
        operation: Some("Write by the peer".to_owned()),
        token: Some(Hex(0xbbbb_0001)),
        address: Some(Hex(0x7000_0000_2000)),
        length: Some(512),
        explanation: "The first half of a long explanation, which goes on for more columns than \
                      a narrow screen has, and then on, and ends with its last word: zebra."
            .to_owned(),
        ..Refusal::default()
    }))
}

fn sample(
    seconds: u64,
    processes: Vec<(u32, Result<Process, String>)>,
    records: Vec<Record>,
) -> Sample {
    let records = processes.first().map(|(pid, _)| (*pid, records));
    Sample { at: Duration::from_secs(seconds), processes, records }
}

/// The processes are known before the records of the first one are asked for.
fn watched(records: Vec<Record>) -> WatchState {
    let mut state = WatchState::new(None, true);
    state.apply(sample(0, vec![process(4711, "mistake", 0)], Vec::new()));
    state.apply(sample(1, vec![process(4711, "mistake", 0)], records));
    state
}

fn keys(state: &mut WatchState, inputs: &[Input]) {
    for input in inputs {
        assert!(state.input(*input), "{input:?} leaves");
    }
}

#[test]
fn no_process_is_said_with_the_way_to_start_one() {
    for size in SIZES {
        let mut state = WatchState::new(None, true);
        has(&screen(&state, size), &["asking"]);
        state.apply(Sample::default());
        let lines = screen(&state, size);
        has(&lines, &["No process of this user answers"]);
        has(&lines, &["TRANSOM_INSPECT=1"]);
        has(&lines, &["q quit"]);
    }
}

#[test]
fn the_lists_have_what_the_process_says() {
    let state = watched(vec![connection(5), region(), window(1), refusal(9, 2)]);
    for size in SIZES {
        let lines = screen(&state, size);
        has(&lines, &["4711", "mistake", "yes"]);
        has(&lines, &["5", "127.0.0.1:40005", "tcp", "open", "3/16", "shared", "receive"]);
        has(&lines, &["region", "0xaaaa0001", "0x700000000000", "65536"]);
        has(&lines, &["window", "0xbbbb0001", "0x700000001000", "4096", "3 s"]);
        has(&lines, &["9", "2 s", "peer", "range", "Write 512 B at 0x700000002000", "0xbbbb0001"]);
        has(&lines, &["Tab list", "Enter open", "s sort", "Space hold", "q quit"]);
    }
    let narrow = screen(&state, SIZES[0]);
    has(&narrow, &["region", "local+bind", "domain 1"]);
    has(&narrow, &["window", "read+write", "QP 77"]);
    let wide = screen(&state, SIZES[1]);
    has(&wide, &["127.0.0.1:7000", "127.0.0.1:40005", "tcp", "the adapter was told to"]);
    has(&wide, &["window", "0x700000001000", "0x700000002000", "REMOTE_READ | REMOTE_WRITE"]);
    has(&wide, &["window", "queue pair 77 of domain 1"]);
    has(&wide, &["range", "Write 512 B", "The first half"]);
}

/// The copies through each token, and how many they are for each second between two samples.
#[test]
fn uses_and_their_rates_are_shown() {
    let used = |number, copies| match window(number) {
        Record::Window(one) => {
            let uses = Uses { copies, ..Uses::default() };
            Record::Window(Window { uses, ..one })
        }
        other => other,
    };
    let mut state = watched(vec![used(1, 30), used(2, 7)]);
    for size in SIZES {
        has(&screen(&state, size), &["0xbbbb0001", "3 s", "30"]);
    }
    let later = |seconds, copies| {
        let records = vec![used(1, copies), used(2, 7)];
        sample(seconds, vec![process(4711, "mistake", 0)], records)
    };
    state.apply(later(3, 50));
    has(&screen(&state, SIZES[0]), &["0xbbbb0001", "3 s", "10/s"]);
    has(&screen(&state, SIZES[1]), &["0xbbbb0001", "3 s", "50", "10/s"]);
    has(&screen(&state, SIZES[1]), &["0xbbbb0002", "3 s", "7", "0/s"]);
    // By the most used of late: the last order of the list.
    state.pane = Pane::Memory;
    keys(&mut state, &[Input::Sort; 5]);
    assert_eq!(state.order(Pane::Memory).0, "uses of late");
    let token = |state: &WatchState, row: usize| match &state.memory[row] {
        Part::Window(one) => one.token,
        Part::Region(one) => one.token,
    };
    assert_eq!((token(&state, 0), token(&state, 1)), (Hex(0xbbbb_0001), Hex(0xbbbb_0002)));
    keys(&mut state, &[Input::Reverse]);
    assert_eq!(token(&state, 0), Hex(0xbbbb_0002));
    // Another memory of the same token begins anew.
    state.apply(later(5, 4));
    has(&screen(&state, SIZES[1]), &["0xbbbb0001", "3 s", "4", "0/s"]);
}

#[test]
fn lists_without_rows_say_so() {
    for size in SIZES {
        let lines = screen(&watched(Vec::new()), size);
        for words in ["no connection", "no memory is registered", "nothing was refused"] {
            has(&lines, &[words]);
        }
    }
}

#[test]
fn a_process_that_ends_stays_with_its_last_answer() {
    let mut state = watched(vec![window(1), refusal(1, 0)]);
    state.apply(Sample { at: Duration::from_secs(8), ..Sample::default() });
    state.apply(Sample { at: Duration::from_secs(11), ..Sample::default() });
    for size in SIZES {
        let lines = screen(&state, size);
        has(&lines, &["process 4711", "ended 3 s ago"]);
        has(&lines, &["4711", "mistake", "has ended"]);
        has(&lines, &["window", "0xbbbb0001"]);
        has(&lines, &["1", "10 s", "range"]);
    }
    // The number of a process that ended may be another process's later.
    state.apply(sample(12, vec![process(4711, "other", 0)], Vec::new()));
    let lines = screen(&state, SIZES[0]);
    has(&lines, &["4711", "other", "yes"]);
    has_not(&lines, "0xbbbb0001");
    has_not(&lines, "range");
}

#[test]
fn a_process_that_does_not_answer_is_said_to_be_silent() {
    let mut state = watched(vec![window(1)]);
    let silent = (4711, Err("it has said nothing for 2 s".to_owned()));
    state.apply(Sample { processes: vec![silent], ..Sample::default() });
    for size in SIZES {
        let lines = screen(&state, size);
        has(&lines, &["process 4711", "said nothing"]);
        has(&lines, &["4711", "mistake", "no"]);
    }
}

#[test]
fn more_rows_than_fit_are_counted_and_reached() {
    let windows = |range: std::ops::Range<u64>| range.map(window).collect::<Vec<Record>>();
    for size in SIZES {
        let mut state = watched(windows(0..100));
        keys(&mut state, &[Input::NextPane, Input::NextPane]);
        assert_eq!(state.pane, Pane::Memory);
        let lines = screen(&state, size);
        has(&lines, &["regions and windows 1-", "of 100"]);
        has(&lines, &["0xbbbb0000"]);
        has_not(&lines, "0xbbbb0063");
        keys(&mut state, &[Input::Last]);
        let lines = screen(&state, size);
        has(&lines, &["-100 of 100"]);
        has(&lines, &["0xbbbb0063"]);
        has_not(&lines, "0xbbbb0000");
        keys(&mut state, &[Input::First]);
        has(&screen(&state, size), &["0xbbbb0000"]);
    }
    // A row keeps its cursor while others come before it and go.
    let mut state = watched(windows(10..20));
    keys(&mut state, &[Input::NextPane, Input::NextPane, Input::Move(4)]);
    state.apply(sample(2, vec![process(4711, "mistake", 0)], windows(0..20)));
    assert_eq!(state.cursor(Pane::Memory), 14);
    state.apply(sample(3, vec![process(4711, "mistake", 0)], windows(0..5)));
    assert_eq!(state.cursor(Pane::Memory), 4, "it has gone: the nearest row that there is");
    state.apply(sample(4, vec![process(4711, "mistake", 0)], Vec::new()));
    assert_eq!(state.cursor(Pane::Memory), 0);
}

#[test]
fn long_and_strange_names_stay_in_their_columns() {
    let names = ["x".repeat(5000), "漢".repeat(300), format!("\u{1b}[31m\n{}", "y".repeat(300))];
    for (size, name) in SIZES.into_iter().flat_map(|size| names.iter().map(move |n| (size, n))) {
        let mut state = WatchState::new(None, true);
        state.apply(sample(0, vec![process(4711, name, 0)], Vec::new()));
        state.apply(sample(1, vec![process(4711, name, 0)], vec![connection(5)]));
        let lines = screen(&state, size);
        has(&lines, &["4711", "…", "1", "yes"]);
        assert!(!lines.iter().any(|line| line.contains('\u{1b}')), "a terminal would obey it");
    }
}

#[test]
fn no_colour_where_none_is_wanted() {
    for (size, colour) in SIZES.into_iter().flat_map(|size| [(size, false), (size, true)]) {
        let mut state = watched(vec![connection(5), region(), window(1), refusal(9, 2)]);
        state.colour = colour;
        for open in [false, true] {
            let buffer = buffer(&state, size);
            let plain =
                |cell: &ratatui::buffer::Cell| [cell.fg, cell.bg] == [Color::Reset, Color::Reset];
            assert_eq!(buffer.content.iter().all(plain), !colour, "open: {open}");
            keys(&mut state, &[Input::PreviousPane, Input::Open]);
        }
    }
}

#[test]
fn a_held_screen_does_not_change() {
    let mut state = watched(vec![refusal(1, 0)]);
    keys(&mut state, &[Input::Hold]);
    let before = screen(&state, SIZES[0]);
    has(&before, &["HELD"]);
    has(&before, &["Space go on"]);
    let later = || sample(9, vec![process(4711, "mistake", 2)], vec![refusal(1, 8), refusal(2, 0)]);
    state.apply(later());
    assert_eq!(screen(&state, SIZES[0]), before);
    keys(&mut state, &[Input::Hold]);
    state.apply(later());
    has(&screen(&state, SIZES[0]), &["refusals 2"]);
}

#[test]
fn refusals_arrive_and_open() {
    for size in SIZES {
        let mut state = watched(vec![refusal(1, 0)]);
        let process = || vec![process(4711, "mistake", 4)];
        state.apply(sample(3, process(), vec![refusal(1, 2), refusal(2, 0)]));
        let lines = screen(&state, size);
        has(&lines, &["refusals 4 (2/s)"]);
        let row = |id: &str| {
            let id = format!("{id:>6} ");
            lines.iter().position(|line| line.starts_with(&id)).expect("a row")
        };
        assert!(row("2") < row("1"), "the latest is first");
        keys(&mut state, &[Input::PreviousPane, Input::Move(1), Input::Open]);
        assert_eq!(state.pane, Pane::Refusals);
        let lines = screen(&state, size);
        has(&lines, &["refusal 1"]);
        has(&lines, &["the peer was refused, range"]);
        has(&lines, &["zebra."]);
        keys(&mut state, &[Input::Back]);
        if size == SIZES[0] {
            has_not(&screen(&state, size), "zebra.");
        }
        // Refusals that the process has forgotten since are still there.
        state.apply(sample(4, process(), vec![refusal(2, 1)]));
        assert_eq!(state.rows(Pane::Refusals), 2);
        assert!(!state.input(Input::Quit));
    }
}

#[test]
fn lists_are_sorted_by_any_column_and_backwards() {
    let all = || vec![process(1, "zoo", 5), process(2, "ant", 0), process(3, "bee", 9)];
    let mut state = WatchState::new(None, true);
    state.apply(sample(0, all(), Vec::new()));
    let order = |state: &WatchState| -> Vec<u32> {
        state.processes.iter().map(|seen| seen.process.pid).collect()
    };
    assert_eq!(order(&state), [1, 2, 3]);
    keys(&mut state, &[Input::Sort]);
    assert_eq!(order(&state), [2, 3, 1]);
    has(&screen(&state, SIZES[0]), &["processes 3, by program"]);
    keys(&mut state, &[Input::Sort, Input::Sort, Input::Sort]);
    assert_eq!(order(&state), [3, 1, 2], "the most refusals first");
    keys(&mut state, &[Input::Reverse]);
    assert_eq!(order(&state), [2, 1, 3]);
    has(&screen(&state, SIZES[0]), &["by refusals, reversed"]);
    assert_eq!(state.shown, Some(1), "the lists below are still those of the same process");
    keys(&mut state, &[Input::Last]);
    assert_eq!(state.shown, Some(3));
}

#[test]
fn one_process_alone_has_no_list_of_processes() {
    let mut state = WatchState::new(Some(4711), false);
    state.apply(sample(1, vec![process(4711, "mistake", 1)], vec![refusal(1, 0)]));
    for size in SIZES {
        let lines = screen(&state, size);
        has(&lines, &["process 4711 (mistake)"]);
        has_not(&lines, "processes");
        has(&lines, &["1", "range", "Write 512 B"]);
    }
}

/// Whatever the terminal's size, there is a screen.
#[test]
fn small_screens_are_drawn() {
    let mut state = watched(vec![connection(5), region(), window(1), refusal(9, 2)]);
    for open in [false, true] {
        for (width, height) in (1..40)
            .step_by(3)
            .flat_map(|width| (1..14).step_by(2).map(move |height| (width, height)))
        {
            assert_eq!(screen(&state, (width, height)).len(), usize::from(height), "{open}");
        }
        keys(&mut state, &[Input::PreviousPane, Input::Open]);
    }
}
