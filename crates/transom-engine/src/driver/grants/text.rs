//! The ledger, for people.

use std::collections::HashMap;
use std::fmt::Write;
use std::net::SocketAddr;

use transom_memory::{Finding, Review, Reviewed, Scope};

use super::sites::Sites;

/// The lines that a process prints when it exits.
pub(super) fn report(
    review: &Review,
    sites: &Sites,
    peers: &HashMap<u32, SocketAddr>,
    backtrace: bool,
) -> String {
    let findings = review.findings();
    let count = findings.iter().map(|one| one.count).sum::<u64>() + review.left_out;
    let grants = counted(review.grants, "grant");
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = match count {
        0 => writeln!(text, "transom: ledger: {grants}, and nothing to report"),
        _ => writeln!(text, "transom: ledger: {grants}, {}", counted(count, "finding")),
    };
    for one in &findings {
        let _ = writeln!(text, "  {}", sentence(one, peers));
        let trace = sites.trace(one.origin).unwrap_or_default();
        let shown = if backtrace { trace.len() } else { 1 };
        for (at, frame) in trace.iter().take(shown).enumerate() {
            let head = if at == 0 { "granted by" } else { "called by " };
            let _ = writeln!(text, "    {head} {frame}");
        }
    }
    if review.left_out > 0 {
        let _ = writeln!(
            text,
            "  {}, of too many kinds to name",
            counted(review.left_out, "more finding")
        );
    }
    text
}

/// A number of things.
fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

fn sentence(one: &Reviewed, peers: &HashMap<u32, SocketAddr>) -> String {
    let named = &one.named;
    let what = if named.window { "window" } else { "region" };
    let what = named.name.map_or(what.to_owned(), |name| format!("{what} {name}"));
    let grant = format!(
        "{what} of {} bytes at {:#x} with {}, open to {}",
        named.length, named.base, named.rights, named.scope
    );
    let mut text = match one.finding {
        Finding::NeverUsed => format!("never used: {grant}"),
        Finding::NeverRevoked => format!("never revoked: {grant}"),
        Finding::Broader { touched } => {
            format!("broader than its use: {grant}; peers have touched {touched} bytes")
        }
        Finding::UnusedRights(rights) => {
            format!("right never used: {grant}; {rights} was not used")
        }
        Finding::UsedAfterRevoked => format!("used after it was revoked: {grant}"),
        Finding::WholeDomain => format!("open to a whole domain: {grant}"),
        Finding::OutlivedConnection => format!("still open when its connection ended: {grant}"),
    };
    if let Scope::QueuePair(_, number) = named.scope
        && let Some(peer) = peers.get(&number.0)
    {
        let _ = write!(text, " (peer {peer})");
    }
    match one.count {
        1 => {}
        2 => text.push_str("; and 1 more like it"),
        count => {
            let _ = write!(text, "; and {} more like it", count - 1);
        }
    }
    text
}
