//! `docs/statuses.md` has what the fronts' tables of statuses have, and every call of a front.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A source without its comments.
fn source(file: &str) -> String {
    let text = fs::read_to_string(root().join("crates").join(file)).unwrap();
    text.lines().fold(String::new(), |text, line| text + line.split("//").next().unwrap() + "\n")
}

/// The item of `file` that begins with `start`, up to its closing brace at the same depth.
fn item(file: &str, start: &str) -> String {
    let text = source(file);
    let text = &text[text.find(start).unwrap()..];
    let line = text.lines().next().unwrap();
    assert!(line.ends_with('{'), "{line}");
    text.split_inclusive("\n}\n").next().unwrap().to_owned()
}

/// The words of `text`: letters, digits and underscores.
fn words(text: &str) -> impl DoubleEndedIterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn is_constant(word: &str) -> bool {
    word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// The value of the first arm of a `match` that takes `status` whatever else is asked; of the last arm
/// if none does.
fn value(table: &str, status: &str) -> Option<String> {
    let arms: Vec<&str> = table.split("=>").collect();
    let mut last = None;
    for (pattern, result) in arms.iter().zip(arms.get(1..).unwrap_or_default()) {
        // The pattern begins behind the value of the arm before.
        let pattern = pattern.rsplit(['{', '}', ';']).next().unwrap();
        let result = words(result).find(|word| is_constant(word) || *word == "None");
        let special = ["CompletionKind", " if "].iter().any(|word| pattern.contains(word));
        last = result.map(str::to_owned);
        if !special && words(pattern).any(|word| word == status) {
            return last;
        }
    }
    last
}

/// The variants of the engine's status, in their order.
fn statuses() -> Vec<String> {
    let item = item("transom-core/src/status.rs", "pub enum Status {");
    let lines = item.lines().skip(1).map(str::trim);
    let names = lines.filter(|line| line.starts_with(char::is_uppercase));
    names.map(|line| words(line).next().unwrap().to_owned()).collect()
}

/// The table as it should be.
fn table() -> String {
    let nd2 = item("transom-networkdirect/src/table.rs", "pub(crate) fn nd2(");
    let nd1 = item("transom-networkdirect/src/table.rs", "pub(crate) fn nd1(");
    let (nd1, _) = nd1.split_once("other =>").unwrap();
    let ndkpi = item("transom-ndkpi/src/table.rs", "impl From<Engine> for Status {");
    let wsd = "transom-winsock-direct/src/status.rs";
    let calls = item(wsd, "impl From<raw::Error> for Error {");
    let operations = item(wsd, "pub(crate) fn completion_error(");
    let errno = item("transom-verbs/src/errno.rs", "impl From<Status> for Errno {");
    let completion = item("transom-verbs/src/status.rs", "pub(crate) fn of(");
    let mut table = String::from(
        "| engine | NetworkDirect 2 | NetworkDirect 1 | NDKPI | Winsock Direct, call | Winsock Direct, operation | verbs, call | verbs, completion |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for status in statuses() {
        let two = value(&nd2, &status).unwrap();
        let differs = words(nd1).any(|word| word == status);
        let one = if differs { value(nd1, &status).unwrap() } else { two.clone() };
        let of = |table: &str| value(table, &status).unwrap().replace("None", "0");
        // A call that succeeds does not come to a table of errors.
        let call = |table: &str| if status == "Success" { "0".to_owned() } else { of(table) };
        let rest = [of(&ndkpi), call(&calls), of(&operations), call(&errno), of(&completion)];
        writeln!(table, "| {status} | {two} | {one} | {} |", rest.join(" | ")).unwrap();
    }
    table
}

/// The text of a section of the page.
fn section(heading: &str) -> String {
    let page = fs::read_to_string(root().join("docs/statuses.md")).unwrap();
    let (_, rest) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    rest.split("\n## ").next().unwrap().to_owned()
}

#[test]
fn the_page_has_the_tables_of_all_fronts() {
    let (expected, page) = (table(), section("From the engine to each front"));
    assert!(page.contains(&expected), "the table of docs/statuses.md is to be:\n{expected}");
}

/// The rows of the numbers that stand in the sources: `NAME = NUMBER` or `NAME: u32 = NUMBER`.
fn numbers(interface: &str, prefix: &str, text: &str) -> BTreeSet<String> {
    let lines = text.lines().map(|line| line.trim().trim_start_matches("pub const "));
    let pairs = lines.filter_map(|line| line.split_once(" = "));
    let rows = pairs.filter_map(|(name, value)| {
        let name = name.trim_end_matches(": u32");
        let value = value.split([',', ';']).next()?.trim_end_matches("u32").replace('_', "");
        let is_number = value.starts_with(|c: char| c.is_ascii_digit());
        (is_constant(name) && is_number)
            .then(|| format!("| {interface} | `{value}` | `{prefix}{name}` |"))
    });
    rows.collect()
}

#[test]
fn the_page_has_the_numbers_of_all_statuses() {
    let networkdirect = source("transom-networkdirect/src/status.rs");
    let ndkpi = source("transom-ndkpi/src/status.rs");
    let winsock_direct = source("transom-winsock-direct/src/error.rs");
    let verbs = source("transom-verbs/src/abi/numbers.rs");
    let (_, verbs) = verbs.split_once("pub mod status {").unwrap();
    let verbs = verbs.split_once('}').unwrap().0;
    let page = section("Numbers");
    let rows: BTreeSet<String> = page.lines().map(str::to_owned).collect();
    for (interface, prefix, text) in [
        ("NetworkDirect", "", networkdirect.as_str()),
        ("NDKPI", "STATUS_", &ndkpi),
        ("Winsock Direct", "", &winsock_direct),
        ("Verbs, completions", "IBV_WC_", verbs),
    ] {
        let expected = numbers(interface, prefix, text);
        let head = format!("| {interface} |");
        let found: BTreeSet<String> =
            rows.iter().filter(|row| row.starts_with(&head)).cloned().collect();
        assert!(expected.len() > 10, "{interface}: {expected:?}");
        assert_eq!(found, expected, "left: docs/statuses.md; right: {interface}");
    }
}

/// `query_address_list` as `QueryAddressList`.
fn camel(name: &str) -> String {
    let mut parts = name.split('_').map(|part| part.split_at(1));
    parts.by_ref().map(|(first, rest)| first.to_uppercase() + rest).collect()
}

/// The names of `all` that the section has not, whatever the case of their letters.
fn missing(heading: &str, all: &BTreeSet<String>) -> Vec<String> {
    let page = section(heading).to_lowercase();
    let named: BTreeSet<&str> = words(&page).collect();
    all.iter().filter(|name| !named.contains(&*name.to_lowercase())).cloned().collect()
}

/// The methods of the classes in a folder of the NetworkDirect front.
fn methods(folder: &str) -> BTreeSet<String> {
    let folder = root().join("crates/transom-networkdirect/src").join(folder);
    let mut methods = BTreeSet::new();
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let Some((_, class)) = text.split_once("class!(") else { continue };
        let lines = class.split("\n}").next().unwrap().lines().map(str::trim);
        let names = lines.filter_map(|line| line.strip_prefix("fn ")?.split('(').next());
        methods.extend(names.filter(|name| !["released", "tear_off"].contains(name)).map(camel));
    }
    methods
}

#[test]
fn each_method_of_networkdirect_is_on_the_page() {
    for (folder, heading) in
        [("v2", "NetworkDirect 2, call by call"), ("v1", "NetworkDirect 1, call by call")]
    {
        let methods = methods(folder);
        assert!(methods.len() > 25, "{methods:?}");
        assert_eq!(missing(heading, &methods), [""; 0], "{folder}");
    }
}

#[test]
fn each_entry_of_ndkpi_is_on_the_page() {
    let text = source("transom-ndkpi/src/dispatch.rs");
    let tables = text.split("table! {").skip(1);
    let lines = tables.flat_map(|table| table.split("\n}}").next().unwrap().lines());
    let entries = lines.filter_map(|line| line.strip_prefix("    ")?.split_once(": "));
    let named = entries.filter(|(name, _)| words(name).eq([*name]));
    let mut entries: BTreeSet<String> = named.map(|(name, _)| name.to_owned()).collect();
    assert!(entries.len() > 40, "{entries:?}");
    // The page says `NdkClose*` and `NdkQueryExtension` of every object.
    entries.retain(|name| name != "close");
    let page = section("NDKPI, call by call");
    let lacks: Vec<_> = entries
        .iter()
        .filter(|name| !page.contains(&format!("`{name}`")))
        .filter(|name| !page.contains(&format!("Ndk{}`", camel(name))))
        .collect();
    assert_eq!(lacks, [""; 0]);
}

#[test]
fn each_function_of_winsock_direct_is_on_the_page() {
    let table =
        item("transom-winsock-direct/src/ffi/mod.rs", "const TABLE: ProcTable = ProcTable {");
    let entries = table.lines().filter_map(|line| line.trim().split_once(": Some("));
    let mut functions: BTreeSet<String> =
        entries.map(|(name, _)| format!("WSP{}", camel(name))).collect();
    let extensions = item("transom-winsock-direct/src/ffi/ioctl.rs", "fn function(");
    let variants = extensions.lines().filter_map(|line| line.trim().strip_prefix("Extension::"));
    functions.extend(variants.map(|line| format!("WSP{}", words(line).next().unwrap())));
    assert!(functions.len() > 20, "{functions:?}");
    assert_eq!(missing("Winsock Direct, call by call", &functions), [""; 0]);
}

/// Of names that only refuse, the page has the kind; those of texts do not fail.
#[test]
fn each_call_of_verbs_is_on_the_page() {
    let exports = fs::read_to_string(root().join("crates/transom-verbs/exports.txt")).unwrap();
    let mut calls = BTreeSet::new();
    for line in exports.lines().filter(|line| !line.starts_with(['#', '*'])) {
        let parts: Vec<&str> = line.split(' ').collect();
        let [_, name, function] = parts[..] else { continue };
        let is_plain = ["stubs::", "text::"].iter().any(|module| function.starts_with(module));
        if !is_plain && !name.ends_with("_str") {
            calls.insert(name.to_owned());
        }
    }
    assert!(calls.len() > 80, "{calls:?}");
    assert_eq!(missing("Verbs, call by call", &calls), [""; 0]);
}
