//! The look of the tour.

use std::time::Duration;

use transom::ConnectionInfo;

use super::mistakes::Wrong;
use crate::command::show;

/// The text of the tour on the screen; silent for `--json`.
pub(super) struct Screen {
    loud: bool,
}

/// Width of the text.
const WIDTH: usize = 88;

impl Screen {
    pub(super) fn new(loud: bool) -> Screen {
        Screen { loud }
    }

    fn line(&self, text: &str) {
        if self.loud {
            println!("{}", text.trim_end());
        }
    }

    fn fact(&self, name: &str, text: &str) {
        self.line(&format!("  {name:<11}{text}"));
    }

    pub(super) fn opening(&self, file: &str, bytes: u64, digest: &str, owner: u32) {
        self.line(
            "Transom: one process opens a window on its memory, another one reads through it.",
        );
        self.line("");
        self.fact("file", &format!("{file}  {}", show::bytes(bytes)));
        self.fact("digest", &format!("SHA-256 {}", show::digest(digest)));
        self.fact(
            "processes",
            &format!("owner {owner} lends the file, reader {} fetches it", std::process::id()),
        );
    }

    pub(super) fn path(&self, info: &ConnectionInfo) {
        let done =
            if info.extension { "acknowledged by the other side" } else { "complete when sent" };
        let how = match (info.path, info.crc) {
            ("tcp", true) => "CRC on, ",
            ("tcp", false) => "CRC off, ",
            _ => "", // nothing is carried that could be damaged
        };
        self.fact("path", &format!("{}: {}, {how}{done}", info.path, info.wire));
        self.wrapped("             ", info.path_reason);
        self.fact("needed", "no root, no kernel module, no pinned memory");
        self.line("");
    }

    pub(super) fn step(&self, number: usize, title: &str) {
        self.line(&format!("{number}  {title}"));
    }

    pub(super) fn moved(&self, bytes: u64, rate: f64, ok: bool) {
        let ok = if ok { "SHA-256 verified" } else { "SHA-256 DIFFERS" };
        self.line(&format!("     {}  at {}  {ok}", show::bytes(bytes), show::rate(rate)));
    }

    pub(super) fn closed(&self, took: Duration) {
        self.line(&format!(
            "     closed in {}; the reader asks for 8 bytes more",
            show::time(took)
        ));
    }

    /// The answer when the reader asks again.
    pub(super) fn refused(&self, explanation: &str) {
        self.wrapped("     refused: ", explanation);
    }

    /// Messages of others, and ours.
    pub(super) fn mistake(&self, wrong: Wrong, others: &[&str], explanation: &str) {
        self.line(&format!("   {}", wrong.title()));
        self.line(&format!("     others   {}", others.join(" (verbs), ") + " (NetworkDirect)"));
        self.wrapped("     Transom  ", explanation);
    }

    /// A text behind a head, its further lines under its first.
    fn wrapped(&self, head: &str, text: &str) {
        let indent = head.chars().count();
        for (at, line) in show::wrap(text, WIDTH - indent).iter().enumerate() {
            let margin = if at == 0 { head } else { "" };
            self.line(&format!("{margin:indent$}{line}"));
        }
    }

    pub(super) fn farewell(&self) {
        self.line("");
        self.line("Everything went as it must. Next:");
        self.fact("Rust", "cargo run --release -p transom --example share");
        self.fact(
            "C++",
            "packaging/install-nd DIR, then docs/networkdirect.md: NetworkDirect programs on Linux",
        );
        self.fact("Linux", "transom rping -s -v      then on a machine with siw or an iWARP card:");
        self.fact("", "rping -c -a THIS_HOST -v -C 10");
    }
}
