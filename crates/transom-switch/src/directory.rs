//! The file in which the active sides of connections say which segment is whose: entries of a fixed size, of
//! which zeros are free ones.

/// Bytes of an entry.
pub const ENTRY: usize = 16;

/// A connection's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The kernel's number of the active side's TCP socket.
    pub cookie: u64,
    /// The number of the segment; none: the entry is free.
    pub id: Option<u32>,
    /// The other side has taken it: the connection is switched. Before, it is offered.
    pub claimed: bool,
}

impl Entry {
    /// As it stands in the file.
    #[must_use]
    pub fn bytes(&self) -> [u8; ENTRY] {
        let number = self.id.map_or(0, |id| id.wrapping_add(1));
        let mut bytes = [0; ENTRY];
        bytes[..8].copy_from_slice(&self.cookie.to_ne_bytes());
        bytes[8..12].copy_from_slice(&number.to_ne_bytes());
        bytes[12..].copy_from_slice(&u32::from(self.claimed).to_ne_bytes());
        bytes
    }
}

/// The entries of a file, or of a part that begins with one.
pub fn entries(bytes: &[u8]) -> impl Iterator<Item = Entry> {
    bytes.chunks_exact(ENTRY).map(|entry| {
        let word = |at: usize| entry[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
        let cookie = entry[..8].try_into().map_or(0, u64::from_ne_bytes);
        Entry { cookie, id: word(8).checked_sub(1), claimed: word(12) != 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_they_were_written() {
        let all = [
            Entry { cookie: 7, id: Some(0), claimed: false },
            Entry { cookie: u64::MAX, id: Some(u32::MAX - 1), claimed: true },
            Entry { cookie: 0, id: None, claimed: false },
        ];
        let mut bytes = all.map(|entry| entry.bytes()).concat();
        bytes.push(1);
        assert_eq!(entries(&bytes).collect::<Vec<_>>(), all, "and half an entry is none");
        assert_eq!(entries(&[0; ENTRY]).next(), Some(all[2]), "zeros are free");
    }
}
