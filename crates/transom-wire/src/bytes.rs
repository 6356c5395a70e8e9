//! Where the payload of an inbound message lies.

/// Bytes of an inbound message, to be copied to their destination once, under a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes<'b> {
    /// In memory of this side: they do not change any more.
    Own(&'b [u8]),
    /// In memory that the peer shares: it may change them at any time, so nothing may be decided by
    /// them. The address means something to the link and to the engine's host memory only; it stays
    /// valid until the message was executed.
    Shared {
        /// The first byte.
        address: u64,
        /// How many.
        length: u32,
    },
    /// Where they belong already: the peer has copied them there itself, into memory of this side that was
    /// lent to it. What is to be checked is checked as for all others.
    Placed {
        /// How many.
        length: u32,
    },
}

impl<'b> Bytes<'b> {
    /// How many.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Bytes::Own(bytes) => bytes.len(),
            Bytes::Shared { length, .. } | Bytes::Placed { length } => *length as usize,
        }
    }

    /// None at all.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `count` (at most all), and the rest.
    #[must_use]
    #[inline]
    pub fn split_at(self, count: usize) -> (Bytes<'b>, Bytes<'b>) {
        let count = count.min(self.len());
        match self {
            Bytes::Own(bytes) => {
                let (first, rest) = bytes.split_at(count);
                (Bytes::Own(first), Bytes::Own(rest))
            }
            Bytes::Shared { address, length } => {
                let first = count as u32; // at most `length`
                let at = address.wrapping_add(u64::from(first));
                let rest = Bytes::Shared { address: at, length: length - first };
                (Bytes::Shared { address, length: first }, rest)
            }
            Bytes::Placed { length } => {
                let first = count as u32; // at most `length`
                (Bytes::Placed { length: first }, Bytes::Placed { length: length - first })
            }
        }
    }

    /// Those in memory of this side.
    #[must_use]
    #[inline]
    pub fn own(&self) -> Option<&'b [u8]> {
        match self {
            Bytes::Own(bytes) => Some(bytes),
            Bytes::Shared { .. } | Bytes::Placed { .. } => None,
        }
    }
}

impl<'b> From<&'b [u8]> for Bytes<'b> {
    fn from(bytes: &'b [u8]) -> Bytes<'b> {
        Bytes::Own(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn a_split_loses_nothing_and_never_panics() {
        let placed = Bytes::Placed { length: 5 };
        for bytes in [Bytes::Own(b"hello"), Bytes::Shared { address: 100, length: 5 }, placed] {
            for at in [0, 2, 5, 9] {
                let (first, rest) = bytes.split_at(at);
                assert_eq!((first.len(), rest.len()), (at.min(5), 5 - at.min(5)));
            }
        }
        let (_, rest) = Bytes::Shared { address: 100, length: 5 }.split_at(2);
        assert_eq!(rest, Bytes::Shared { address: 102, length: 3 });
        assert_eq!(Bytes::Own(b"hello").split_at(2).1.own(), Some(&b"llo"[..]));
    }
}
