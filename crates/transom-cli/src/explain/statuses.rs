//! Statuses of the interfaces, by name or by number: what leads to each, by `docs/statuses.md`.

use std::fmt::Write;

use transom_memory::rules;

use super::pages;

/// `docs/statuses.md` is the same file.
pub(super) const PAGE: &str = include_str!("statuses.md");

/// For more reasons than these a status says nothing about any.
const SPECIFIC: usize = 6;

/// A status of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status {
    interface: &'static str,
    number: &'static str,
    name: &'static str,
}

/// The part of the page below a heading.
fn section(heading: &str) -> &'static str {
    let parts = PAGE.split("\n## ").skip(1).filter_map(|part| part.split_once('\n'));
    parts.filter(|(title, _)| *title == heading).map(|(_, text)| text).next().unwrap_or_default()
}

/// The cells of each row of the tables in a text.
fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    lines.map(|line| line.split(" | ").collect())
}

/// The words in code quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn all() -> impl Iterator<Item = Status> {
    rows(section("Numbers")).filter_map(|cells| match cells[..] {
        [interface, number, name] if name.starts_with('`') => {
            Some(Status { interface, number: quoted(number).next()?, name: quoted(name).next()? })
        }
        _ => None,
    })
}

/// A number as programs print it: decimal, or hexadecimal with or without `0x`; statuses of Windows have
/// eight such digits, and are negative in decimal.
fn number(text: &str) -> Option<i64> {
    let hexadecimal = |digits: &str| i64::from_str_radix(digits, 16).ok();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => hexadecimal(digits),
        None if text.len() == 8 && text.starts_with(['c', 'C', '8']) => hexadecimal(text),
        None => text.parse().ok(),
    }
}

impl Status {
    /// Whether a user's word means this status.
    fn is(&self, word: &str) -> bool {
        if let Some(asked) = number(word) {
            let own = number(self.number).unwrap_or(i64::MIN);
            return asked == own || own > i64::from(i32::MAX) && asked == own - (1 << 32);
        }
        let word = word.trim_start_matches("ibv_wc_status::").to_uppercase();
        self.name == word || self.short() == word
    }

    /// As the tables of calls have it.
    fn short(&self) -> &'static str {
        let prefixes: &[&str] = match self.interface {
            "NetworkDirect" => &["ND_"],
            "NDKPI" => &["STATUS_"],
            "Verbs, completions" => &["IBV_WC_"],
            _ => &[],
        };
        prefixes.iter().find_map(|prefix| self.name.strip_prefix(prefix)).unwrap_or(self.name)
    }

    /// The columns of the table of the engine's statuses, and the tables of calls.
    fn fronts(&self) -> (&'static [usize], &'static [&'static str]) {
        match self.interface {
            "NetworkDirect" => (&[1, 2], &["NetworkDirect 2", "NetworkDirect 1"]),
            "NDKPI" => (&[3], &["NDKPI"]),
            "Winsock Direct" => (&[4, 5], &["Winsock Direct"]),
            "Verbs, errno" => (&[6], &["Verbs"]),
            _ => (&[7], &[]),
        }
    }

    /// The engine's statuses that are told so.
    fn engine(&self) -> Vec<Vec<&'static str>> {
        let (columns, _) = self.fronts();
        let is =
            |cell: Option<&&str>| cell.is_some_and(|cell| [self.name, self.short()].contains(cell));
        let rows = rows(section("From the engine to each front"));
        rows.filter(|cells| columns.iter().any(|column| is(cells.get(*column)))).collect()
    }

    /// The rules that lead to it: those whose pages name it, or what verbs and NetworkDirect say for the same
    /// reason.
    fn rules(&self) -> Vec<&'static str> {
        let named = |names: &[String]| -> Vec<&'static str> {
            let reported = |text: &'static str| text.split_once("Others report: ").map(|it| it.1);
            let has = |text: &'static str| {
                let paragraph = reported(text).and_then(|text| text.split("\n\n").next());
                quoted(paragraph.unwrap_or_default()).any(|word| names.iter().any(|it| it == word))
            };
            pages().filter(|(_, text)| has(text)).map(|(name, _)| name).collect()
        };
        let own = named(&[self.name.to_owned()]);
        let engine = self.engine();
        // A status for everything leads nowhere.
        if !own.is_empty() || engine.len() > SPECIFIC {
            return own;
        }
        let same = engine.iter().flat_map(|cells| {
            let end = cells.last().filter(|end| !["SUCCESS", "GENERAL_ERR"].contains(*end));
            let networkdirect = cells.get(1).map(|name| (*name).to_owned());
            end.map(|end| format!("IBV_WC_{end}")).into_iter().chain(networkdirect)
        });
        named(&same.filter(|name| name != "ND_SUCCESS").collect::<Vec<_>>())
    }

    /// The calls that say so, each with when.
    fn calls(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        for interface in self.fronts().1 {
            for cells in rows(section(&format!("{interface}, call by call"))) {
                match cells[..] {
                    [kind, status, when] if self.is_among(status) => {
                        found.push((*interface, format!("{kind}: {}", when.replace('`', ""))));
                    }
                    [call, statuses] => {
                        let when = statuses.split("; ").find(|part| self.is_among(part));
                        let call = call.replace('`', "");
                        let when = when.map(|when| when.replace('`', ""));
                        found.extend(when.map(|when| (*interface, format!("{call}: {when}"))));
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// Whether words in code quotes name it; `_3` behind `INVALID_PARAMETER_2` is another of its kind.
    fn is_among(&self, text: &str) -> bool {
        let mut stem = "";
        quoted(text).any(|word| {
            if let Some(digits) = word.strip_prefix('_') {
                return self.short().strip_prefix(stem) == Some(digits);
            }
            stem = word.trim_end_matches(|c: char| c.is_ascii_digit());
            word == self.short() || word == self.name
        })
    }

    fn page(&self) -> String {
        let Status { interface, number, name } = self;
        let mut text = format!("{name}, {number}: {interface}\n");
        // Writing to a string cannot fail.
        let engine: Vec<&str> =
            self.engine().iter().filter_map(|cells| cells.first().copied()).collect();
        if engine.len() > SPECIFIC {
            let reasons = engine.len();
            let _ = writeln!(
                text,
                "\nOne word for {reasons} reasons; the record of the refusal has the rule."
            );
        } else if !engine.is_empty() {
            let _ = writeln!(text, "\nWhat the engine calls {}.", engine.join(", "));
        }
        let rules = self.rules();
        if !rules.is_empty() {
            let _ = writeln!(text, "\nRules that lead to it (transom explain NAME):\n");
            let width = rules.iter().map(|name| name.len()).max().unwrap_or_default();
            for rule in rules::ALL.iter().filter(|rule| rules.contains(&rule.name())) {
                let _ = writeln!(text, "  {:width$}  {}", rule.name(), rule.sentence());
            }
        }
        let mut last = "";
        for (interface, call) in self.calls() {
            if interface != last {
                let _ = writeln!(text, "\n{interface}:\n");
                last = interface;
            }
            let _ = writeln!(text, "  {call}");
        }
        if text.lines().count() == 1 {
            text.push_str("\nThe header has it; no call returns it here.\n");
        }
        text
    }
}

/// Describe a status, by its name or number; `None` if no interface has it.
pub(super) fn explained(word: &str) -> Option<String> {
    let found: Vec<String> = all().filter(|one| one.is(word)).map(|one| one.page()).collect();
    (!found.is_empty()).then(|| found.join("\n"))
}

/// The names of all statuses, for advice about one that is none.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    all().map(|one| one.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_the_same_statuses() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/statuses.md");
        let same = std::fs::read_to_string(path).unwrap() == PAGE;
        assert!(same, "cp docs/statuses.md crates/transom-cli/src/explain/statuses.md");
    }

    #[test]
    fn a_status_is_known_by_each_of_its_names_and_numbers() {
        for (words, name) in [
            (
                &[
                    "ND_ACCESS_VIOLATION",
                    "access_violation",
                    "c0000005",
                    "0xC0000005",
                    "-1073741819",
                ][..],
                "ND_ACCESS_VIOLATION, ",
            ),
            (&["IBV_WC_REM_ACCESS_ERR", "REM_ACCESS_ERR", "10"], "IBV_WC_REM_ACCESS_ERR, 10: "),
            (&["WSAEFAULT", "10014"], "WSAEFAULT, 10014: "),
            (&["ENOMEM", "12"], "ENOMEM, 12: "),
            (
                &["STATUS_INVALID_PARAMETER", "c000000d"],
                "STATUS_INVALID_PARAMETER, 0xC000000D: NDKPI",
            ),
        ] {
            for word in words {
                let text = explained(word).unwrap_or_default();
                assert!(text.contains(name), "{word}: {text}");
            }
        }
        for word in ["", "_", "c00000", "ND_NOTHING", "123456"] {
            assert_eq!(explained(word), None, "{word}");
        }
    }

    /// Every status and errno of the tables is known, and one by which an access is refused leads to rules.
    #[test]
    fn each_status_of_each_interface_is_explained() {
        let interfaces = [
            "NetworkDirect",
            "NetworkDirect",
            "NDKPI",
            "Winsock Direct",
            "Winsock Direct",
            "Verbs, errno",
            "Verbs, completions",
        ];
        let known: Vec<Status> = all().collect();
        assert!(known.len() > 120, "{}", known.len());
        let mut rows: Vec<_> = rows(section("From the engine to each front")).collect();
        rows.retain(|cells| cells.len() == 8 && !["engine", "---"].contains(&cells[0]));
        assert!(rows.len() > 30, "{}", rows.len());
        for cells in rows {
            for (cell, interface) in
                cells[1..].iter().zip(interfaces).filter(|(cell, _)| **cell != "0")
            {
                let found = known.iter().find(|one| {
                    one.interface == interface && [one.name, one.short()].contains(cell)
                });
                let found = found.unwrap_or_else(|| panic!("{cell} of {interface} has no number"));
                let refuses = ["LocalAccess", "RemoteAccess", "NoMoreEntries", "ReceiveTooSmall"];
                let specific = found.engine().len() <= SPECIFIC;
                if refuses.contains(&cells[0]) && specific {
                    assert_ne!(found.rules(), [""; 0], "{cell} of {interface}");
                }
            }
        }
        for one in known {
            assert!(explained(one.name).is_some_and(|text| text.contains("\n\n")), "{one:?}");
        }
    }
}
