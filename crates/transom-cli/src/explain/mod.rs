//! `transom explain`: the pages of the rules by which something is refused, and the statuses of the
//! interfaces.

mod statuses;

use clap::Args as ClapArgs;
use transom_memory::rules;

use crate::command::exit::{Exit, Failure, Outcome};

/// Every page, in the order of the table of rules. `docs/explain.md` is the same file.
const PAGES: &str = include_str!("rules.md");

/// Arguments of `explain`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// The name of a rule, as a refusal has it (live_token, range, ...), or a status of any interface, by
    /// name or number (IBV_WC_REM_ACCESS_ERR, EINVAL, c0000005) [default: list the rules]
    #[arg(allow_negative_numbers = true)]
    name: Option<String>,
    /// List the names of rules, each with what its rule demands
    #[arg(long, conflicts_with_all = ["name", "all"])]
    list: bool,
    /// Print every page
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.all {
        print!("{PAGES}");
        return Ok(());
    }
    let Some(name) = args.name.as_ref().filter(|_| !args.list) else {
        let width = rules::ALL.iter().map(|rule| rule.name().len()).max().unwrap_or(0);
        for rule in rules::ALL {
            println!("{:width$}  {}", rule.name(), rule.sentence());
        }
        return Ok(());
    };
    match (page(name), statuses::explained(name)) {
        (Some(page), _) => println!("{name}\n\n{}", page.trim()),
        (None, Some(status)) => print!("{status}"),
        (None, None) => return Err(unknown(name)),
    }
    Ok(())
}

/// The page of a rule, without its heading.
fn page(name: &str) -> Option<&'static str> {
    pages().find_map(|(heading, text)| (heading == name).then_some(text))
}

/// Each page, with its heading.
fn pages() -> impl Iterator<Item = (&'static str, &'static str)> {
    PAGES.split("\n## ").skip(1).filter_map(|page| page.split_once('\n'))
}

fn unknown(name: &str) -> Failure {
    let failure = Failure::new(Exit::Usage, format!("no rule and no status is named {name}"));
    let word = name.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let near = rules::ALL.iter().map(|rule| rule.name()).find(|rule| {
        !word.is_empty()
            && (rule.contains(&word) || rule.split('_').any(|part| word.contains(part)))
    });
    let near = near.or_else(|| {
        let long = word.len() > 3;
        statuses::names().find(|status| long && status.to_lowercase().contains(&word))
    });
    failure.try_this(match near {
        Some(near) => format!("transom explain {near}; transom explain lists the rules"),
        None => "transom explain, which lists the rules".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document that a citation names.
    fn in_words(citation: &str) -> &'static str {
        match citation.split(' ').next() {
            Some("ND2") => "the NetworkDirect SPI, version 2",
            Some("NDK") => "NDKPI, the kernel interface of Windows",
            Some("WSD") => "Winsock Direct",
            Some("Verbs") => "Linux verbs",
            Some("design") => "Transom itself",
            _ => panic!("no words for {citation}"),
        }
    }

    /// Each rule of the table has a page, in the table's words, that says why the rule is there, shows a
    /// mistake with the line that makes it and the line that mends it, and names the source.
    #[test]
    fn each_rule_has_a_whole_page() {
        let headings: Vec<&str> = pages().map(|(heading, _)| heading).collect();
        assert_eq!(headings, rules::ALL.iter().map(|rule| rule.name()).collect::<Vec<_>>());
        for ((name, text), rule) in pages().zip(rules::ALL) {
            let text = text.trim();
            let begin = format!("{}.\n\n", rule.sentence());
            assert!(text.to_lowercase().starts_with(&begin.to_lowercase()), "{name}: {begin}");
            let sources: Vec<&str> = rule.citation().split("; ").map(in_words).collect();
            let source = format!("\n\nSource: {}", sources.join("; "));
            assert!(text.ends_with(&source), "{name}: {source}");
            for part in ["\n\nWhy: ", "\n\nMistake: ", "\n```diff\n", "Others report: "] {
                assert!(text.contains(part), "{name} has no {part:?}");
            }
            // Each line that makes a mistake is followed by the one that mends it.
            let code = text.lines().filter(|line| line.starts_with(['-', '+']));
            let marks: String = code.filter_map(|line| line.chars().next()).collect();
            assert_eq!(marks, "-+".repeat(marks.len() / 2), "{name}");
        }
    }

    /// The rules of an access are broken in every language.
    #[test]
    fn accesses_have_mistakes_in_each_language() {
        for rule in
            ["live_token", "scope", "connected", "right", "no_wrap", "range", "present_pages"]
        {
            let text = page(rule).unwrap();
            for language in ["Rust", "NetworkDirect", "verbs"] {
                let line =
                    text.lines().any(|line| line.starts_with(" //") && line.contains(language));
                assert!(line, "{rule} has no mistake in {language}");
            }
        }
    }

    #[test]
    fn the_documentation_has_the_same_text() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explain.md");
        assert!(std::fs::read_to_string(path).unwrap() == PAGES, "docs/explain.md is another text");
    }
}
