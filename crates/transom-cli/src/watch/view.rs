//! From a [`WatchState`] to a screen. Nothing here asks, waits or remembers.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Margin, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Clear, Paragraph, Row, Table, TableState};
use transom_inspect::{Connection, Queue, Record};

use super::state::{Answers, Pane, Part, Refused, Seen, WatchState};
use crate::command::show;
use crate::inspect::page;

/// From this width on there is place for whole ranges and all rights.
const WIDE: u16 = 140;
/// A refusal is new for so long.
const NEW_NS: i128 = 5_000_000_000;

/// The colours, or none.
struct Theme {
    colour: bool,
}

impl Theme {
    fn with(&self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn dim(&self) -> Style {
        if self.colour { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }

    fn title(&self, chosen: bool) -> Style {
        if chosen { self.with(Color::Cyan).add_modifier(Modifier::BOLD) } else { self.dim() }
    }

    fn head(&self) -> Style {
        self.dim().add_modifier(Modifier::BOLD)
    }

    fn bad(&self) -> Style {
        self.with(Color::Red).add_modifier(Modifier::BOLD)
    }
}

/// Draw everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &WatchState) {
    let theme = Theme { colour: state.colour };
    let all = frame.area();
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(all);
    frame.render_widget(heading(state, &theme, top.width), top);
    frame.render_widget(help(state, &theme), bottom);
    if state.processes.is_empty() {
        empty(frame, state, middle);
    } else {
        let panes = state.panes();
        for (pane, area) in
            panes.iter().zip(heights(state, middle.height)).scan(middle.y, |y, (pane, height)| {
                let area = Rect { y: *y, height, ..middle };
                *y += height;
                Some((pane, area))
            })
        {
            list(frame, state, &theme, *pane, area);
        }
    }
    if let Some((title, record)) = &state.open {
        opened(frame, state, &theme, title, record, middle);
    }
}

/// The height of each list: what its rows need if that fits, and otherwise the same for all, with more
/// for the one where the user is.
fn heights(state: &WatchState, height: u16) -> Vec<u16> {
    /// Title, head and a row.
    const LEAST: u16 = 3;
    let panes = state.panes();
    let need = |pane: &Pane| (state.rows(*pane).max(1) as u64 + 2).min(u64::from(height)) as u16;
    let mut heights: Vec<u16> = panes.iter().map(|_| LEAST).collect();
    let mut left = height.saturating_sub(LEAST * panes.len() as u16);
    // A row at a time: the list of the user has two where the others have one.
    while left > 0 {
        let before = left;
        for (pane, height) in panes.iter().zip(&mut heights) {
            for _ in 0..if *pane == state.pane { 2 } else { 1 } {
                if left > 0 && *height < need(pane) {
                    *height += 1;
                    left -= 1;
                }
            }
        }
        if before == left {
            break;
        }
    }
    // The last list gets the rows that no other needs: refusals arrive there.
    if let Some(last) = heights.last_mut() {
        *last += left;
    }
    heights
}

fn heading(state: &WatchState, theme: &Theme, width: u16) -> Line<'static> {
    let mut spans = vec![Span::styled("transom watch", theme.title(true))];
    if let Some(seen) = state.process() {
        let process = &seen.process;
        let name = cut(&process.program, usize::from(width / 3));
        spans.push(Span::raw(format!("  process {} ({name})", process.pid)));
        match &seen.answers {
            Answers::Yes => spans.push(Span::raw(format!(
                "  refusals {} ({})",
                process.refusals,
                per_second(seen.refusals_per_second)
            ))),
            Answers::No(why) => spans.push(Span::styled(format!("  {why}"), theme.bad())),
            Answers::Ended(at) => {
                let ago = age(state.now.saturating_sub(*at));
                spans.push(Span::styled(format!("  ended {ago} ago"), theme.bad()));
            }
        }
    } else if state.sampled {
        let number = state.processes.len();
        spans.push(Span::raw(format!("  {number} processes")));
    }
    if state.held {
        let held = theme.with(Color::Yellow).add_modifier(Modifier::BOLD | Modifier::REVERSED);
        spans.push(Span::raw("  "));
        spans.push(Span::styled(" HELD ", held));
    }
    Line::from(spans)
}

fn help(state: &WatchState, theme: &Theme) -> Line<'static> {
    let keys: &[(&str, &str)] = if state.open.is_some() {
        &[("up/down", "scroll"), ("Enter", "close"), ("q", "quit")]
    } else {
        &[
            ("Tab", "list"),
            ("up/down", "row"),
            ("Enter", "open"),
            ("s", "sort"),
            ("r", "reverse"),
            ("Space", if state.held { "go on" } else { "hold" }),
            ("q", "quit"),
        ]
    };
    let mut spans = Vec::new();
    for (key, what) in keys {
        spans.push(Span::styled(
            (*key).to_owned(),
            theme.with(Color::Cyan).add_modifier(Modifier::BOLD),
        ));
        spans.push(Span::raw(format!(" {what}   ")));
    }
    Line::from(spans)
}

fn empty(frame: &mut Frame<'_>, state: &WatchState, area: Rect) {
    let words = if state.sampled {
        "No process of this user answers.\n\nStart one with TRANSOM_INSPECT=1, or with transom run \
         --inspect.\nEach one appears here as soon as it has opened an adapter."
    } else {
        "asking ..."
    };
    let lines = words.lines().count() as u16;
    let top = area.height.saturating_sub(lines) / 2;
    let area = Rect { y: area.y + top, height: area.height - top, ..area };
    frame.render_widget(Paragraph::new(words).alignment(Alignment::Center), area);
}

/// The columns of a list: head, width, numbers to the right. One without a width takes the rest.
type Columns = &'static [(&'static str, u16, bool)];

fn columns(pane: Pane, wide: bool) -> Columns {
    match (pane, wide) {
        (Pane::Processes, _) => &[
            ("pid", 8, true),
            ("program", 0, false),
            ("connections", 11, true),
            ("regions", 7, true),
            ("windows", 7, true),
            ("refusals", 8, true),
            ("rate", 7, true),
            ("answers", 9, false),
        ],
        (Pane::Connections, false) => &[
            ("number", 8, true),
            ("peer", 0, false),
            ("path", 7, false),
            ("state", 8, false),
            ("requests", 9, true),
            ("receives", 9, true),
            ("waits for", 9, false),
        ],
        (Pane::Connections, true) => &[
            ("number", 8, true),
            ("local", 24, false),
            ("peer", 24, false),
            ("path", 7, false),
            ("why that path", 0, false),
            ("state", 8, false),
            ("requests", 9, true),
            ("receives", 9, true),
            ("waits for", 9, false),
        ],
        (Pane::Memory, false) => &[
            ("what", 6, false),
            ("token", 10, false),
            ("address", 14, false),
            ("bytes", 7, true),
            ("rights", 10, false),
            ("age", 6, true),
            ("uses", 6, true),
            ("for", 0, false),
        ],
        (Pane::Memory, true) => &[
            ("what", 6, false),
            ("token", 10, false),
            ("first byte", 18, false),
            ("end", 18, false),
            ("bytes", 12, true),
            ("rights", 40, false),
            ("age", 7, true),
            ("uses", 10, true),
            ("of late", 7, true),
            ("state", 8, false),
            ("for", 0, false),
        ],
        (Pane::Refusals, false) => &[
            ("number", 6, true),
            ("ago", 6, true),
            ("refused", 8, false),
            ("rule", 10, false),
            ("asked", 0, false),
        ],
        (Pane::Refusals, true) => &[
            ("number", 6, true),
            ("ago", 7, true),
            ("refused", 8, false),
            ("rule", 10, false),
            ("asked", 62, false),
            ("explanation", 0, false),
        ],
    }
}

fn list(frame: &mut Frame<'_>, state: &WatchState, theme: &Theme, pane: Pane, area: Rect) {
    let wide = area.width >= WIDE;
    let columns = columns(pane, wide);
    let rows = state.rows(pane);
    // Title and head.
    let visible = usize::from(area.height.saturating_sub(2));
    let chosen = state.pane == pane;
    let cursor = state.cursor(pane);
    let first = cursor.saturating_sub(visible.saturating_sub(1)).min(rows.saturating_sub(visible));
    let last = (first + visible).min(rows);
    let block = Block::new()
        .borders(Borders::TOP)
        .border_style(theme.title(chosen))
        .title(Span::styled(format!(" {} ", title(state, pane, first, last)), theme.title(chosen)));
    if rows == 0 {
        let words = format!("  {}", nothing(state, pane));
        frame.render_widget(Paragraph::new(words).style(theme.dim()).block(block), area);
        return;
    }
    let widths = columns.iter().map(|(_, width, _)| match width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(*width),
    });
    let widths: Vec<Constraint> = widths.collect();
    let places = Layout::horizontal(widths.iter().copied()).spacing(1).split(area);
    let aligned = |texts: Vec<String>| {
        let cells = texts.into_iter().zip(columns).zip(places.iter());
        cells.map(|((text, (_, _, right)), place)| {
            let width = usize::from(place.width);
            let text = cut(&text, width);
            Cell::new(if *right { format!("{text:>width$}") } else { text })
        })
    };
    let head = aligned(columns.iter().map(|(name, _, _)| (*name).to_owned()).collect());
    let shown = (first..last).filter_map(|row| {
        let (texts, style) = match pane {
            Pane::Processes => of_process(state.processes.get(row)?, theme),
            Pane::Connections => of_connection(state.connections.get(row)?, wide, theme),
            Pane::Memory => {
                let part = state.memory.get(row)?;
                of_memory(part, state.uses_per_second(part), wide, theme)
            }
            Pane::Refusals => of_refusal(state, state.refusals.get(row)?, wide, theme),
        };
        Some(Row::new(aligned(texts).collect::<Vec<Cell<'_>>>()).style(style))
    });
    let marked = if chosen { Modifier::REVERSED } else { Modifier::empty() };
    let table = Table::new(shown.collect::<Vec<Row<'_>>>(), widths)
        .header(Row::new(head.collect::<Vec<Cell<'_>>>()).style(theme.head()))
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(marked))
        .block(block);
    let mut at = TableState::default().with_selected(cursor.saturating_sub(first));
    frame.render_stateful_widget(table, area, &mut at);
}

fn title(state: &WatchState, pane: Pane, first: usize, last: usize) -> String {
    let rows = state.rows(pane);
    let name = match pane {
        Pane::Processes => "processes",
        Pane::Connections => "connections",
        Pane::Memory => "regions and windows",
        Pane::Refusals => "refusals",
    };
    let number = match rows {
        0 => String::new(),
        _ if first == 0 && last == rows => format!(" {rows}"),
        _ => format!(" {}-{last} of {rows}", first + 1),
    };
    let (order, reversed) = state.order(pane);
    match rows {
        0 => name.to_owned(),
        _ => format!("{name}{number}, by {order}{}", if reversed { ", reversed" } else { "" }),
    }
}

fn nothing(state: &WatchState, pane: Pane) -> &'static str {
    match (pane, state.process().map(|seen| &seen.answers)) {
        (_, Some(Answers::No(_))) => "the process does not answer",
        (Pane::Processes, _) => "none",
        (Pane::Connections, _) => "no connection",
        (Pane::Memory, _) => "no memory is registered",
        (Pane::Refusals, _) => "nothing was refused",
    }
}

fn of_process(seen: &Seen, theme: &Theme) -> (Vec<String>, Style) {
    let process = &seen.process;
    let (answers, style) = match &seen.answers {
        Answers::Yes if seen.refusals_per_second > 0.0 => ("yes", theme.bad()),
        Answers::Yes => ("yes", Style::new()),
        Answers::No(_) => ("no", theme.with(Color::Yellow)),
        Answers::Ended(_) => ("has ended", theme.dim()),
    };
    let cells = vec![
        process.pid.to_string(),
        process.program.clone(),
        process.connections.to_string(),
        process.regions.to_string(),
        process.windows.to_string(),
        process.refusals.to_string(),
        per_second(seen.refusals_per_second),
        answers.to_owned(),
    ];
    (cells, style)
}

fn of_connection(one: &Connection, wide: bool, theme: &Theme) -> (Vec<String>, Style) {
    let fill = |queue: Option<Queue>, none: &str| match queue {
        Some(Queue { taken, depth }) => format!("{taken}/{depth}"),
        None => none.to_owned(),
    };
    let (waits, style) = match (one.waits_for_peer, one.peer_waits_for_receive) {
        _ if one.unaccepted => ("accept", theme.with(Color::Yellow)),
        (true, _) => ("peer", theme.with(Color::Yellow)),
        (_, true) => ("receive", theme.with(Color::Yellow)),
        _ => ("", Style::new()),
    };
    let shared = if one.queue_pair.is_some() { "shared" } else { "" };
    let mut cells = vec![one.number.to_string()];
    if wide {
        cells.extend([one.local.clone(), one.peer.clone(), one.path.clone()]);
        cells.push(one.path_reason.clone());
    } else {
        cells.extend([one.peer.clone(), one.path.clone()]);
    }
    cells.extend([
        one.state.clone(),
        fill(one.requests, ""),
        fill(one.receives, shared),
        waits.to_owned(),
    ]);
    (cells, style)
}

fn of_memory(part: &Part, of_late: f64, wide: bool, theme: &Theme) -> (Vec<String>, Style) {
    let (what, token, address, length, rights, scope, state, old, style) = match part {
        Part::Region(one) => {
            let (rights, scope, state) = (&one.rights, &one.scope, &one.state);
            let style = Style::new();
            ("region", one.token, one.address.0, one.length, rights, scope, state, None, style)
        }
        Part::Window(one) => {
            let (rights, scope, state) = (&one.rights, &one.scope, &one.state);
            let old = Some(Duration::from_nanos(one.age_ns));
            let style = theme.with(colour_of(rights));
            ("window", one.token, one.address.0, one.length, rights, scope, state, old, style)
        }
    };
    let old = old.map(age).unwrap_or_default();
    let token = token.to_string();
    let cells = if wide {
        let end = u128::from(address) + u128::from(length);
        vec![
            what.to_owned(),
            token,
            format!("{address:#x}"),
            format!("{end:#x}"),
            length.to_string(),
            rights.clone(),
            old,
            part.uses().copies.to_string(),
            per_second(of_late),
            state.clone(),
            scope.clone(),
        ]
    } else {
        let reserved = if state == "reserved" { "reserved, " } else { "" };
        vec![
            what.to_owned(),
            token,
            format!("{address:#x}"),
            if length < 1_000_000 { length.to_string() } else { show::bytes(length) },
            short_rights(rights),
            old,
            if of_late > 0.0 { per_second(of_late) } else { part.uses().copies.to_string() },
            format!("{reserved}{}", short_scope(scope)),
        ]
    };
    (cells, style)
}

/// As on the memory map: blue for reading, amber for writing, green for both.
fn colour_of(rights: &str) -> Color {
    match (rights.contains("REMOTE_READ"), rights.contains("REMOTE_WRITE")) {
        (true, true) => Color::Green,
        (true, false) => Color::Blue,
        (false, true) => Color::Yellow,
        (false, false) => Color::Reset,
    }
}

/// The rights of peers by their names, the owner's as one.
fn short_rights(rights: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for right in rights.split(" | ") {
        let name = match right {
            "LOCAL_READ" | "LOCAL_WRITE" | "READ_SINK" => "local",
            "REMOTE_READ" => "read",
            "REMOTE_WRITE" => "write",
            "REMOTE_ATOMIC" => "atomic",
            "BIND" => "bind",
            other => other,
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join("+")
}

/// A scope without its domain, but for one that is a whole domain.
fn short_scope(scope: &str) -> String {
    let whole = scope.strip_prefix("every queue pair of ");
    let short = whole.unwrap_or(scope.split(" of domain").next().unwrap_or(scope));
    short.replace("queue pair", "QP")
}

fn of_refusal(
    state: &WatchState,
    refused: &Refused,
    wide: bool,
    theme: &Theme,
) -> (Vec<String>, Style) {
    let one = &refused.record;
    let ago = state.now.as_nanos().cast_signed() - refused.at_ns;
    let style = if ago < NEW_NS { theme.bad() } else { theme.with(Color::Red) };
    let ago = Duration::from_nanos(u64::try_from(ago).unwrap_or_default());
    let who = match one.refused.as_str() {
        "by_peer" => "by peer",
        other => other,
    };
    let mut cells = vec![
        one.id.to_string(),
        age(ago),
        who.to_owned(),
        one.rule.clone().unwrap_or_default(),
        asked(one),
    ];
    if wide {
        cells.push(one.explanation.clone());
    }
    (cells, style)
}

/// The access that was asked for, in a few words; the explanation if the record has no range.
fn asked(one: &transom_inspect::Refusal) -> String {
    match (&one.operation, one.length, one.address, one.token) {
        (Some(operation), Some(length), Some(address), Some(token)) => {
            let operation = operation.trim_end_matches(" by the peer");
            format!("{operation} {length} B at {:#x} via {token}", address.0)
        }
        _ => one.explanation.clone(),
    }
}

fn opened(
    frame: &mut Frame<'_>,
    state: &WatchState,
    theme: &Theme,
    title: &str,
    record: &Record,
    area: Rect,
) {
    let width = area.width.saturating_sub(4).min(110);
    // A border and a column of padding on each side.
    let inner = usize::from(width.saturating_sub(4));
    let text = page::record(record, inner);
    let lines: Vec<String> = text.lines().flat_map(|line| show::wrap(line.trim(), inner)).collect();
    let height = (lines.len() as u64 + 2).min(u64::from(area.height)) as u16;
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let hidden = (lines.len() as u64).saturating_sub(u64::from(height.saturating_sub(2)));
    let scroll = state.scroll.min(u16::try_from(hidden).unwrap_or(u16::MAX));
    let more = if hidden > u64::from(scroll) { " more below " } else { "" };
    let block = Block::bordered()
        .border_style(theme.title(true))
        .title(Span::styled(format!(" {title} "), theme.title(true)))
        .title_bottom(Line::from(more).right_aligned());
    frame.render_widget(Clear, place);
    frame.render_widget(block, place);
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    let inside = place.inner(Margin { horizontal: 2, vertical: 1 });
    frame.render_widget(Paragraph::new(lines).scroll((scroll, 0)), inside);
}

/// `3.2/s`.
fn per_second(rate: f64) -> String {
    match rate {
        rate if rate < 9.95 => {
            let digits = format!("{rate:.1}");
            format!("{}/s", digits.strip_suffix(".0").unwrap_or(&digits))
        }
        rate => format!("{rate:.0}/s"),
    }
}

/// `12 ms`, `45 s`, `12 min`, `3 h`.
fn age(time: Duration) -> String {
    match time.as_secs() {
        0..100 => show::time(time),
        seconds @ 100..6000 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

/// At most `width` columns; what is left out leaves a mark. Control characters, which a program may
/// have in its name, do not reach the terminal.
fn cut(text: &str, width: usize) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    if Span::raw(text.as_str()).width() <= width {
        return text;
    }
    let mut short = String::new();
    for c in text.chars() {
        let longer = format!("{short}{c}…");
        if Span::raw(longer).width() > width {
            break;
        }
        short.push(c);
    }
    if width > 0 {
        short.push('…');
    }
    short
}
