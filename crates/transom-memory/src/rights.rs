//! Rights, as bits.

/// A set of rights. Combine with `|`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(pub u16);

impl Rights {
    /// No right at all (a window may have none: ND2 W8).
    pub const NONE: Rights = Rights(0);
    /// The adapter may read it for its owner (source of Send and Write). A bit of its own, because
    /// Winsock Direct memory may be write-only (WSD A-13).
    pub const LOCAL_READ: Rights = Rights(1);
    /// The adapter may write it for its owner (Receive, Read sink).
    pub const LOCAL_WRITE: Rights = Rights(1 << 1);
    /// Peers may read it.
    pub const REMOTE_READ: Rights = Rights(1 << 2);
    /// Peers may write it.
    pub const REMOTE_WRITE: Rights = Rights(1 << 3);
    /// Peers may do atomics on it.
    pub const REMOTE_ATOMIC: Rights = Rights(1 << 4);
    /// Windows may be bound to it.
    pub const BIND: Rights = Rights(1 << 5);
    /// May be the sink of a local Read even without `LOCAL_WRITE` (ND2 5.5, C13).
    pub const READ_SINK: Rights = Rights(1 << 6);

    /// Everything a peer can be granted.
    pub const REMOTE: Rights = Rights(0b1_1100);

    /// The rights of both.
    #[must_use]
    pub const fn or(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }

    /// Whether any right of `other` is here.
    #[must_use]
    #[inline]
    pub const fn intersects(self, other: Rights) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether every right of `other` is here.
    #[must_use]
    #[inline]
    pub const fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitAnd for Rights {
    type Output = Rights;
    fn bitand(self, other: Rights) -> Rights {
        Rights(self.0 & other.0)
    }
}

impl std::ops::BitOr for Rights {
    type Output = Rights;
    fn bitor(self, other: Rights) -> Rights {
        self.or(other)
    }
}

impl std::fmt::Display for Rights {
    /// The names, joined by ` | `.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = [
            (Rights::LOCAL_READ, "LOCAL_READ"),
            (Rights::LOCAL_WRITE, "LOCAL_WRITE"),
            (Rights::REMOTE_READ, "REMOTE_READ"),
            (Rights::REMOTE_WRITE, "REMOTE_WRITE"),
            (Rights::REMOTE_ATOMIC, "REMOTE_ATOMIC"),
            (Rights::BIND, "BIND"),
            (Rights::READ_SINK, "READ_SINK"),
        ];
        let mut before = "";
        for (_, name) in names.iter().filter(|(right, _)| self.contains(*right)) {
            write!(f, "{before}{name}")?;
            before = " | ";
        }
        if before.is_empty() { f.write_str("no rights") } else { Ok(()) }
    }
}
