//! Finds the rules that a text cites: `ND2 5.4, W1, W13, R18`, `NDK FR-7 to FR-10`, `iW 1.2 rule 4`,
//! `design rules 1 and 2`.

use std::collections::{BTreeMap, BTreeSet};

/// The interfaces whose rules are cited by number, as `docs/rules` names them.
const INTERFACES: &[&str] = &["ND1", "ND2", "NDK", "Verbs", "WSD", "iW"];

/// Between the items of a list.
const SEPARATORS: &[&str] = &[", and ", ", ", "; ", " and ", " or ", " to ", " "];

/// The rules that `text` cites, by the headings they must have.
pub(crate) fn citations(text: &str) -> Vec<String> {
    let text = joined(text);
    let mut found = Vec::new();
    let mut rest = text.as_str();
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let alone = !before.is_alphanumeric() && !"_:.".contains(before);
        let length = match interface(rest).filter(|_| alone) {
            Some(name) => name.len() + list(name, &rest[name.len()..], &mut found),
            None if alone => design_rules(rest, &mut found),
            None => 0,
        };
        let length = length.max(first.len_utf8());
        before = rest[..length].chars().next_back().unwrap_or(' ');
        rest = &rest[length..];
    }
    found
}

/// The items that the comments of `text` cite without the interface. Looks for the items with a
/// hyphen that some interface has; others are too like ordinary words.
pub(crate) fn bare_citations(text: &str, rules: &BTreeSet<&str>) -> BTreeSet<String> {
    let comments: String = text
        .lines()
        .map(|line| match line.split_once("//") {
            Some((_, comment)) => format!("{comment}\n"),
            None => "\n".to_owned(),
        })
        .collect();
    let cited = citations(&comments);
    let known = |c: char| !c.is_ascii_alphanumeric() && c != '-';
    let words = comments.split(known).filter(|word| word.contains('-') && item(word).is_some());
    let is_rule =
        |word: &&str| INTERFACES.iter().any(|name| rules.contains(&*format!("{name} {word}")));
    let mut written = BTreeMap::<&str, usize>::new();
    for word in words.filter(is_rule) {
        *written.entry(word).or_default() += 1;
    }
    let times =
        |word: &str| cited.iter().filter(|rule| rule.ends_with(&format!(" {word}"))).count();
    let bare = written.into_iter().filter(|(word, written)| *written > times(word));
    bare.map(|(word, _)| word.to_owned()).collect()
}

/// The text with each line of a comment behind the one before: a citation may be broken between lines.
fn joined(text: &str) -> String {
    let marks: &[char] = &['/', '!', '*', '#', ' ', '\t'];
    let lines = text.lines().map(|line| line.trim_start_matches(marks).trim_end());
    lines.collect::<Vec<_>>().join(" ")
}

fn interface(text: &str) -> Option<&'static str> {
    INTERFACES.iter().copied().find(|name| {
        text.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(' ') && item(&rest[1..]).is_some())
    })
}

/// `text` begins behind the name of an interface: adds the rules of its list, and returns its length.
fn list(interface: &str, text: &str, found: &mut Vec<String>) -> usize {
    let mut taken = 0;
    let mut last = "";
    while let Some((separator, next)) = separated(&text[taken..], last.is_empty()) {
        taken += separator.len() + next.len();
        if separator == " to " {
            between(last, next).for_each(|item| found.push(format!("{interface} {item}")));
        }
        let of_section = format!("{interface} {next} rule ");
        match numbers_of_rules(&text[taken..], &of_section, found) {
            0 => found.push(format!("{interface} {next}")),
            length => taken += length,
        }
        last = next;
    }
    taken
}

/// The next item of a list. Only the first one stands behind a mere space.
fn separated(text: &str, first: bool) -> Option<(&'static str, &str)> {
    SEPARATORS.iter().filter(|separator| first == (**separator == " ")).find_map(|separator| {
        let rest = text.strip_prefix(separator)?;
        Some((*separator, item(rest)?))
    })
}

/// The letters and number, or the section, that `text` begins with.
fn item(text: &str) -> Option<&str> {
    let known = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let end = text.find(|c| !known(c)).unwrap_or(text.len());
    let item = text.get(..end)?.trim_end_matches('.');
    let letters = item.trim_start_matches(|c: char| c.is_ascii_uppercase());
    let number = letters.strip_prefix('-').filter(|_| letters != item).unwrap_or(letters);
    let parts_are_numbers =
        number.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    let named = INTERFACES.contains(&item);
    (item.len() - letters.len() <= 3 && parts_are_numbers && !named).then_some(item)
}

/// Behind a section: ` rule 5`, ` rules 5, 6 and 7`.
fn numbers_of_rules(text: &str, prefix: &str, found: &mut Vec<String>) -> usize {
    let Some(rest) = text.strip_prefix(" rule ").or_else(|| text.strip_prefix(" rules ")) else {
        return 0;
    };
    let length = numbers(rest, prefix, found);
    if length == 0 { 0 } else { text.len() - rest.len() + length }
}

/// `design rule 5` and the like.
fn design_rules(text: &str, found: &mut Vec<String>) -> usize {
    let Some(rest) = text.strip_prefix("design rule").or_else(|| text.strip_prefix("Design rule"))
    else {
        return 0;
    };
    let Some(list) = rest.strip_prefix("s ").or_else(|| rest.strip_prefix(' ')) else { return 0 };
    let length = numbers(list, "design rule ", found);
    if length == 0 { 0 } else { text.len() - list.len() + length }
}

/// A list of plain numbers, each behind `prefix`.
fn numbers(text: &str, prefix: &str, found: &mut Vec<String>) -> usize {
    let plain = |text: &str| !text.contains(|c: char| !c.is_ascii_digit());
    let (mut taken, mut last) = (0, "");
    loop {
        let next = if last.is_empty() {
            item(text).map(|next| ("", next))
        } else {
            separated(&text[taken..], false)
        };
        let Some((separator, next)) = next.filter(|(_, next)| plain(next)) else { return taken };
        taken += separator.len() + next.len();
        if separator == " to " {
            between(last, next).for_each(|item| found.push(format!("{prefix}{item}")));
        }
        found.push(format!("{prefix}{next}"));
        last = next;
    }
}

/// The items between two that differ in their last number only.
fn between(first: &str, last: &str) -> impl Iterator<Item = String> {
    let split = |item: &str| {
        let digits = item.len() - item.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (head, number) = item.split_at(item.len() - digits);
        (head.to_owned(), number.parse::<u32>().unwrap_or_default())
    };
    let ((head, from), (other, to)) = (split(first), split(last));
    let numbers = if head == other { from + 1..to } else { 0..0 };
    numbers.map(move |number| format!("{head}{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written apart, lest this file cite what is no rule.
    fn of(interface: &str, list: &str) -> Vec<String> {
        let all = citations(&format!("Text ({interface}{list}); more."));
        all.into_iter().map(|rule| rule.replace(interface, "X")).collect()
    }

    #[test]
    fn items_of_a_list_are_rules_of_the_interface_before_it() {
        assert_eq!(of("ND2", " 5.4, W1, W13 and R18"), ["X 5.4", "X W1", "X W13", "X R18"]);
        assert_eq!(of("WSD", " A-5; A-7"), ["X A-5", "X A-7"]);
        assert_eq!(of("ND2", " 2.10."), ["X 2.10"]);
        assert_eq!(of("NDK", concat!(" 1, ND1", " 2")), ["X 1", concat!("ND1", " 2")]);
    }

    #[test]
    fn ranges_have_what_lies_between() {
        assert_eq!(of("NDK", " FR-7 to FR-9"), ["X FR-7", "X FR-8", "X FR-9"]);
        assert_eq!(of("ND2", " 4.2 to 4.4, 13"), ["X 4.2", "X 4.3", "X 4.4", "X 13"]);
    }

    #[test]
    fn rules_of_a_section_are_rules() {
        assert_eq!(of("ND2", " 4.2 rules 5 and 6, 4.9"), ["X 4.2 rule 5", "X 4.2 rule 6", "X 4.9"]);
    }

    #[test]
    fn a_line_may_end_inside_a_citation() {
        assert_eq!(of("iW", "\n    /// 1.2 rule\n    /// 4"), ["X 1.2 rule 4"]);
    }

    #[test]
    fn design_rules_are_rules() {
        assert_eq!(
            citations(concat!("(design", " rules 1, 5)")),
            [concat!("design", " rule 1"), concat!("design", " rule 5")]
        );
    }

    #[test]
    fn an_item_without_its_interface_is_noticed() {
        let rules = BTreeSet::from([concat!("WSD", " A-18"), concat!("WSD", " A-7")]);
        let bare = |text: &str| bare_citations(text, &rules).into_iter().collect::<Vec<_>>();
        let both = concat!("/", "/ Once (WSD", " A-7, A-18), and A-18 again; UTF-8.");
        assert_eq!(bare(both), ["A-18"]);
        assert_eq!(bare(concat!("let a = A-18; /", "/ of A-7")), ["A-7"]);
    }

    #[test]
    fn other_text_cites_nothing() {
        for text in ["dialect::ND2 5", "ND2 programs", "ND2", "MYND2 5.4", "the ND2, 5 times"] {
            assert_eq!(citations(text), [""; 0], "{text}");
        }
    }
}
