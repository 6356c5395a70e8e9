//! Texts of other processes, on their way to a terminal.

use transom_wire::is_plain;

/// Bytes of each text of a record that are kept. Transom's own are shorter; a process may say what it likes.
pub(crate) const LONGEST_TEXT: usize = 2048;

/// A text in which characters that are not shown as they are stand as `\u{1b}`.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) { shown.push(c) } else { shown.extend(c.escape_unicode()) }
    }
    shown
}

/// A line of JSON, with escapes for characters that a terminal does not show as they are.
pub(crate) fn plain_json(line: &str) -> String {
    rewritten(line, "\\")
}

/// A line of JSON whose strings have the text of such an escape, `\u001b`, in place of each such character.
pub(crate) fn plain_strings(line: &str) -> String {
    rewritten(line, "\\\\")
}

/// `escape` begins the escapes of characters that are not plain. Long strings are cut.
fn rewritten(line: &str, escape: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut chars = line.chars();
    // Where the string of this place begins, and whether it was cut.
    let mut string: Option<(usize, bool)> = None;
    while let Some(c) = chars.next() {
        let before = text.len();
        match c {
            '"' => {
                text.push('"');
                string = if string.is_none() { Some((text.len(), false)) } else { None };
                continue;
            }
            '\\' => match chars.next() {
                Some('u') => {
                    let digits: String =
                        chars.by_ref().take(4).filter(char::is_ascii_hexdigit).collect();
                    let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                    // Half of a pair is plain: no such character lies beyond 0xffff.
                    text.push_str(if code.is_none_or(is_plain) { "\\" } else { escape });
                    text.push('u');
                    text.push_str(&digits);
                }
                Some(kind) => {
                    let is_command = matches!(kind, 'b' | 'f' | 'n' | 'r' | 't');
                    text.push_str(if is_command { escape } else { "\\" });
                    // Anything else than ASCII makes it no JSON.
                    text.push(if is_plain(kind) { kind } else { '?' });
                }
                None => text.push('\\'),
            },
            // Between values: JSON has no such character in a string.
            '\t' | '\r' => text.push(' '),
            '\n' => text.push('\n'),
            c if is_plain(c) => text.push(c),
            c => text.push_str(&format!("{escape}u{:04x}", u32::from(c))),
        }
        if let Some((begin, cut)) = &mut string
            && (*cut || text.len() - *begin > LONGEST_TEXT)
        {
            text.truncate(before);
            if !*cut {
                text.push('\u{2026}');
            }
            *cut = true;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left_and_json_stays_what_it_was() {
        let name = "a\u{1b}[2J\u{9b}31m\u{7f}\u{202e}\r\n\t\"\\ \\u001b \u{fc}\u{1f600}";
        assert_eq!(
            printable(name),
            "a\\u{1b}[2J\\u{9b}31m\\u{7f}\\u{202e}\\u{d}\\u{a}\\u{9}\"\\ \\u001b \u{fc}\u{1f600}"
        );
        let value = serde_json::json!({ name: [name, 1] });
        let spelled = format!(r#"{{ "x":"{}","y":"\ud83d\ude00\u00fc\u0085" }}"#, '\u{9b}');
        for line in [value.to_string(), spelled] {
            let json = plain_json(&line);
            assert!(json.chars().all(is_plain), "{json:?}");
            let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            assert_eq!(parse(&json), parse(&line));
            let shown = parse(&plain_strings(&line));
            let mut strings = vec![&shown];
            while let Some(one) = strings.pop() {
                strings.extend(one.as_object().into_iter().flat_map(|all| all.values()));
                strings.extend(one.as_array().into_iter().flatten());
                let text = one.as_str().unwrap_or_default();
                assert!(text.chars().all(is_plain), "{text:?}");
            }
        }
    }

    #[test]
    fn what_is_no_json_is_plain_too() {
        for line in ["\\u\u{1b}[2J", "\\\u{1b}", "\"\u{1b}", "\\", "\\u12"] {
            assert!(plain_json(line).chars().all(is_plain), "{line:?}");
        }
    }
}
