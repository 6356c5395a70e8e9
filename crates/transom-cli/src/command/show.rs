//! Numbers for people.

use std::time::Duration;

/// `4.1 MB`, `512 B`.
pub(crate) fn bytes(count: u64) -> String {
    scaled(count as f64, &["B", "kB", "MB", "GB", "TB"])
}

/// `2.2 GB/s`.
pub(crate) fn rate(per_second: f64) -> String {
    format!("{}/s", scaled(per_second, &["B", "kB", "MB", "GB", "TB"]))
}

/// `1.9 ms`, `25 s`.
pub(crate) fn time(duration: Duration) -> String {
    scaled(duration.as_nanos() as f64, &["ns", "us", "ms", "s"])
}

/// Three significant digits at most, and a unit.
fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut units = units.iter().peekable();
    let mut unit = units.next().copied().unwrap_or_default();
    while value >= 999.5 {
        let Some(next) = units.next() else { break };
        (value, unit) = (value / 1000.0, next);
    }
    let digits = if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") };
    format!("{} {unit}", digits.strip_suffix(".0").unwrap_or(&digits))
}

/// `3f2a91c0…`: enough of a digest to compare by eye.
pub(crate) fn digest(digest: &str) -> String {
    match digest.get(..16) {
        Some(head) => format!("{head}…"),
        None => digest.to_owned(),
    }
}

/// Break a text into lines of at most `width` characters, at spaces.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1000), "1 kB");
        assert_eq!(bytes(4_123_456), "4.1 MB");
        assert_eq!(bytes(999_700), "1 MB");
        assert_eq!(rate(12_345_678_901.0), "12 GB/s");
        assert_eq!(time(Duration::from_micros(25)), "25 us");
        assert_eq!(time(Duration::from_secs(2)), "2 s");
    }

    #[test]
    fn lines_break_at_spaces() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("unbreakable", 3), ["unbreakable"]);
        assert!(wrap("  ", 3).is_empty());
    }
}
