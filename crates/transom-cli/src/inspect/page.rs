//! A process's answer, for people.

use std::fmt::Write;
use std::time::Duration;

use transom_inspect::{
    Adapter, Answer, Closed, Connection, Counters, Process, Queue, Record, Refusal, Region,
    TimeOut, Uses, Window,
};

use crate::command::show;

/// Lines for refusals are wrapped at this width, behind their indentation.
const WIDTH: usize = 92;
/// Closed regions and windows of an adapter that `transom show` prints, the latest.
const CLOSED: usize = 10;

/// The table of `transom ps`.
pub(crate) fn processes(all: &[Process]) -> String {
    let mut text = String::new();
    line(
        &mut text,
        &format!(
            "{:>8}  {:>8}  {:>11}  {:>7}  {:>7}  {:>8}  program",
            "pid", "adapters", "connections", "regions", "windows", "refusals"
        ),
    );
    for one in all {
        let Process { pid, adapters, connections, regions, windows, refusals, program, .. } = one;
        line(
            &mut text,
            &format!(
                "{pid:>8}  {adapters:>8}  {connections:>11}  {regions:>7}  {windows:>7}  \
                 {refusals:>8}  {program}"
            ),
        );
    }
    text
}

/// The page of `transom show`.
pub(crate) fn process(answer: &Answer) -> String {
    let mut text = String::new();
    let mut before = "";
    let mut closed_left = 0;
    for (at, record) in answer.records.iter().enumerate() {
        if matches!(record, Record::Closed(_)) {
            if closed_left == 0 {
                let rest = answer.records.iter().skip(at);
                closed_left = rest.take_while(|one| matches!(one, Record::Closed(_))).count();
            }
            closed_left -= 1;
            if closed_left >= CLOSED {
                continue;
            }
        }
        let (heading, lines) = match record {
            Record::Process(_) | Record::Adapter(_) => ("", self::record(record, WIDTH)),
            Record::Connection(_) => ("  connections", self::record(record, WIDTH)),
            Record::Region(_) | Record::Window(_) => {
                ("  regions and windows", self::record(record, WIDTH))
            }
            Record::Closed(_) => {
                ("  closed regions and windows, the latest last", self::record(record, WIDTH))
            }
            Record::Refusal(_) => ("  refusals, the latest last", self::record(record, WIDTH)),
            Record::End(_) | Record::Unknown => continue,
        };
        if heading.is_empty() || heading != before {
            if !text.is_empty() {
                text.push('\n');
            }
            if !heading.is_empty() {
                line(&mut text, heading);
            }
        }
        before = heading;
        text.push_str(&lines);
    }
    text
}

/// The text of a record. Explanations are wrapped at `width`.
pub(crate) fn record(record: &Record, width: usize) -> String {
    match record {
        Record::Process(process) => about(process),
        Record::Adapter(one) => adapter(one),
        Record::Connection(one) => connection(one),
        Record::Region(one) => region(one),
        Record::Window(one) => window(one),
        Record::Closed(one) => closed(one),
        Record::Refusal(one) => refusal(one, width),
        Record::End(_) | Record::Unknown => String::new(),
    }
}

fn line(text: &mut String, words: &str) {
    text.push_str(words.trim_end());
    text.push('\n');
}

fn about(process: &Process) -> String {
    let Process { pid, program, transom, .. } = process;
    format!("process {pid} ({program}), Transom {transom}\n")
}

fn adapter(one: &Adapter) -> String {
    let on = |on| if on { "on" } else { "off" };
    let counters = &one.counters;
    let mut text = String::new();
    let name = quoted(&one.name);
    line(&mut text, &format!("adapter {}{name} at {} ({})", one.adapter, one.address, one.dialect));
    line(
        &mut text,
        &format!(
            "  path {}, checksum {}, extension {}; a silent host is given up after {}, a silent \
             program after {}",
            one.path,
            on(one.checksum),
            on(one.extension),
            show::time(Duration::from_millis(one.silence_ms)),
            show::time(Duration::from_millis(one.answer_ms)),
        ),
    );
    line(
        &mut text,
        &format!(
            "  refusals {} (forgotten {}, guesses {}); connections {} (sharing memory {})",
            counters.refusals,
            counters.refusals_forgotten,
            counters.guesses,
            counters.connections,
            counters.shared_connections
        ),
    );
    line(&mut text, &refused_connects(counters));
    line(
        &mut text,
        &format!(
            "  regions {} ({}), windows {} ({}); held for peers: {}",
            counters.regions,
            show::bytes(counters.region_bytes),
            counters.windows,
            show::bytes(counters.window_bytes),
            show::bytes(counters.held_bytes)
        ),
    );
    text
}

/// How many connects of peers were refused, and for which reasons.
fn refused_connects(counters: &Counters) -> String {
    let reasons = [
        (counters.refused_half_open, "too many were half-way through start-up"),
        (counters.refused_backlog, "the backlog was full"),
        (counters.refused_closed, "the listener was closed"),
        (counters.refused_resources, "no descriptor or no memory"),
        (counters.refused_unfinished, "start-up not finished in time, or none"),
        (counters.refused_by_program, "by the program"),
        (counters.slowed, "guesses"),
    ];
    let all = reasons.iter().fold(0_u64, |all, (count, _)| all.saturating_add(*count));
    let given = reasons.iter().filter(|(count, _)| *count > 0);
    let given: Vec<String> = given.map(|(count, why)| format!("{count}: {why}")).collect();
    let why = if given.is_empty() { String::new() } else { format!(" ({})", given.join("; ")) };
    format!("  connects of peers refused {all}{why}")
}

fn connection(one: &Connection) -> String {
    let mut text = String::new();
    let unaccepted = if one.unaccepted { ", not accepted" } else { "" };
    line(
        &mut text,
        &format!(
            "    {} (epoch {}): {} to {}, {}{unaccepted}",
            one.number, one.epoch, one.local, one.peer, one.state
        ),
    );
    line(&mut text, &format!("      path {}: {}", one.path, one.path_reason));
    if let Some(number) = one.queue_pair {
        let fill = |queue: Option<Queue>| match queue {
            Some(Queue { taken, depth }) => format!("{taken} of {depth}"),
            None => "from a shared queue".to_owned(),
        };
        let credit =
            one.credit.map_or_else(String::new, |sends| format!(", credit for {sends} Sends"));
        let waits = match (one.waits_for_peer, one.peer_waits_for_receive) {
            (true, _) => "; a request waits for the peer",
            (_, true) => "; a message of the peer's waits for a receive",
            _ => "",
        };
        line(
            &mut text,
            &format!(
                "      queue pair {number}: requests {}, receives {}, Reads under way {}{credit}{waits}",
                fill(one.requests),
                fill(one.receives),
                one.reads
            ),
        );
    }
    if one.unread_bytes > 0 || one.unsent_bytes > 0 {
        let (unread, unsent) = (show::bytes(one.unread_bytes), show::bytes(one.unsent_bytes));
        line(
            &mut text,
            &format!(
                "      {unread} of a frame that is not complete, {unsent} not taken by the peer"
            ),
        );
    }
    let maps = [
        ("the peer's process may look at", one.lent_regions, one.lent_bytes),
        ("this process may look at the peer's", one.borrowed_regions, one.borrowed_bytes),
    ];
    for (what, regions, bytes) in maps.into_iter().filter(|(_, regions, _)| *regions > 0) {
        let bytes = show::bytes(bytes);
        line(&mut text, &format!("      {what} {regions} shared regions ({bytes}), all of each"));
    }
    for TimeOut { waits_for, in_ms } in &one.time_outs {
        let end = show::time(Duration::from_millis(*in_ms));
        line(&mut text, &format!("      waits for {waits_for}: {end} left"));
    }
    text
}

fn region(one: &Region) -> String {
    let name = quoted(&one.name);
    let Region { token, address, length, rights, scope, state, windows, age_ns, .. } = one;
    let age = show::time(Duration::from_nanos(*age_ns));
    format!(
        "    region {token}{name}: {length} bytes at {address}, {rights}, for {scope}, {state}, {age} \
         old, windows: {windows}\n{}",
        uses(&one.uses)
    )
}

/// A name, to follow a number.
fn quoted(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" \"{name}\"") }
}

fn uses(uses: &Uses) -> String {
    let Some(last) = uses.last_ns else { return "      not used yet\n".to_owned() };
    let (last, bytes) = (show::time(Duration::from_nanos(last)), show::bytes(uses.bytes));
    let Uses { copies, rights, touched_length, .. } = uses;
    // Of what peers may use, their own copies alone are placed.
    let place = match (uses.touched, touched_length) {
        (Some(address), Some(span)) => format!("inside {span} bytes at {address}"),
        _ => "none of them by a peer".to_owned(),
    };
    format!(
        "      {copies} copies of {bytes} in all, the last one {last} ago, {place}, for {rights}\n"
    )
}

fn window(one: &Window) -> String {
    let name = quoted(&one.name);
    let Window { token, region, address, length, rights, scope, state, age_ns, .. } = one;
    let age = show::time(Duration::from_nanos(*age_ns));
    format!(
        "    window {token}{name} of region {region}: {length} bytes at {address}, {rights}, for {scope}, \
         {state}, {age} old\n{}",
        uses(&one.uses)
    )
}

fn closed(one: &Closed) -> String {
    let named = &one.named;
    let name = quoted(&named.name);
    let region =
        if named.what == "window" { format!(" of region {}", named.region) } else { String::new() };
    let time = |ns| show::time(Duration::from_nanos(ns));
    format!(
        "    {} {}{name}{region}: {} bytes at {}, {}, for {}, {} {} ago, open for {}\n{}",
        named.what,
        named.token,
        named.length,
        named.address,
        named.rights,
        named.scope,
        named.closed_by,
        time(one.closed_ns),
        time(one.age_ns),
        uses(&one.uses)
    )
}

fn refusal(one: &Refusal, width: usize) -> String {
    let ago = show::time(Duration::from_nanos(one.ago_ns));
    let refused = match one.refused.as_str() {
        "peer" => "the peer was refused",
        "program" => "this program was refused by its own adapter",
        "by_peer" => "this program was refused by the peer",
        "protocol" => "the peer broke the protocol",
        other => other, // of a later version of this library
    };
    let mut text = String::new();
    let rule = one.rule.as_ref().map(|rule| format!(", {rule}")).unwrap_or_default();
    line(&mut text, &format!("    {}, {ago} ago: {refused}{rule}", one.id));
    for words in show::wrap(&one.explanation, width) {
        let _ = writeln!(text, "      {words}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_inspect::{End, Hex, Named};

    fn window(token: u64, closed_by: &str) -> Record {
        let what = "window".to_owned();
        let named =
            Named { what, token: Hex(token), closed_by: closed_by.to_owned(), ..Named::default() };
        let times = Closed { age_ns: 2_000_000_000, closed_ns: 70_000, ..Closed::default() };
        Record::Closed(Closed { named, ..times })
    }

    #[test]
    fn the_latest_closed_windows_of_each_adapter_are_shown() {
        let mut records: Vec<Record> = (1..=11).map(|token| window(token, "closed")).collect();
        records.push(Record::Adapter(Box::default()));
        records.push(window(0x20, "invalidated by its owner"));
        records.push(Record::End(End { records: 13 }));
        let (process, text) = Default::default();
        let text = super::process(&Answer { process, records, text });
        let heading = "  closed regions and windows, the latest last\n";
        assert_eq!(text.matches(heading).count(), 2, "{text}");
        assert!(!text.contains("window 0x00000001 "), "ten of the first adapter: {text}");
        for token in (2..=11).chain([0x20]) {
            assert!(text.contains(&format!("    window {token:#010x} of region ")), "{text}");
        }
        let last = "invalidated by its owner 70 us ago, open for 2 s\n      not used yet\n";
        assert!(text.contains(last), "{text}");
    }
}
