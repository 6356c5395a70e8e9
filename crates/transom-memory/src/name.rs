//! Names that programs give to regions and windows, for messages.

/// The most bytes of a [`Name`].
pub const LONGEST_NAME: usize = 31;

/// A name of a region or a window, cut to [`LONGEST_NAME`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Name {
    bytes: [u8; LONGEST_NAME],
    length: u8,
}

impl Name {
    /// The first bytes of `text` that are whole characters. Control characters become spaces.
    #[must_use]
    pub fn new(text: &str) -> Name {
        let mut name = Name::default();
        for character in text.chars() {
            let character = if character.is_control() { ' ' } else { character };
            let begin = usize::from(name.length);
            let end = begin + character.len_utf8();
            let Some(place) = name.bytes.get_mut(begin..end) else { break };
            character.encode_utf8(place);
            name.length = end as u8;
        }
        name
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.length)).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.as_str(), f)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_between_characters() {
        for (text, kept) in [
            ("", ""),
            ("log", "log"),
            ("a\tb\u{1b}[31m", "a b [31m"),
            (&"x".repeat(31), &"x".repeat(31)),
            (&"x".repeat(32), &"x".repeat(31)),
            (&format!("{}é", "x".repeat(30)), &"x".repeat(30)),
            (&format!("{}é", "x".repeat(29)), &format!("{}é", "x".repeat(29))),
        ] {
            assert_eq!(Name::new(text).as_str(), kept, "{text:?}");
        }
        assert_eq!(Name::new("log").to_string(), "\"log\"");
    }
}
