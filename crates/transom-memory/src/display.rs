//! Denials as sentences.

use std::fmt::{Display, Formatter, Result};

use crate::{
    Access, Actor, CloseReason, Denial, Mistake, Named, NamedState, Nanoseconds, Purpose, Refused,
    Rule, Scope, Token,
};

impl Display for Token {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{:#010x}", self.0)
    }
}

impl Display for Scope {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Scope::Domain(domain) => write!(f, "every queue pair of domain {}", domain.0),
            Scope::QueuePair(domain, queue_pair) => {
                write!(f, "queue pair {} of domain {}", queue_pair.0, domain.0)
            }
            Scope::Connection(domain, connection) => write!(
                f,
                "connection {} (epoch {}) of domain {}",
                connection.number, connection.epoch, domain.0
            ),
        }
    }
}

impl Display for Actor {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "queue pair {} of domain {}, ", self.queue_pair.0, self.domain.0)?;
        match self.connection {
            Some(connection) => {
                write!(f, "connection {} (epoch {})", connection.number, connection.epoch)
            }
            None => f.write_str("not connected"),
        }
    }
}

impl Display for Purpose {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Purpose::LocalSource => "local source",
            Purpose::ReceiveBuffer => "receive buffer",
            Purpose::ReadSink | Purpose::MarkedReadSink => "sink of a local Read",
            Purpose::RemoteRead => "Read by the peer",
            Purpose::RemoteWrite => "Write by the peer",
            Purpose::RemoteAtomic => "atomic operation by the peer",
            Purpose::Bind => "Bind",
            Purpose::Close => "close",
        })
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let rule = self.named();
        write!(f, "{} {rule}", rule.sentence())
    }
}

/// A number of bytes.
struct Bytes(u128);

impl Display for Bytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{} byte{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// `[first, end)`; the end may be 2^64.
struct Range(u64, u64);

impl Display for Range {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let end = u128::from(self.0) + u128::from(self.1);
        write!(f, "{} at [{:#x}, {end:#x})", Bytes(self.1.into()), self.0)
    }
}

/// A time that a reader can grasp.
struct Ago(Nanoseconds);

impl Display for Ago {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let (unit, name) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        write!(f, "{}.{} {name}", self.0 / unit, self.0 % unit * 10 / unit)
    }
}

impl Display for CloseReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            CloseReason::Invalidated => "invalidated by its owner",
            CloseReason::InvalidatedByPeer => "invalidated by its peer",
            CloseReason::Deregistered => "closed by the deregistration of its region",
            CloseReason::Disconnected => "closed by the end of its connection",
            CloseReason::NeverBound => "given up: its Bind never executed",
        })
    }
}

impl Display for Named {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match (self.window, self.name) {
            (true, None) => write!(f, "a window of region {} over ", self.region)?,
            (true, Some(name)) => write!(f, "window {name} of region {} over ", self.region)?,
            (false, None) => f.write_str("a region of ")?,
            (false, Some(name)) => write!(f, "region {name} of ")?,
        }
        let (range, rights, scope) = (Range(self.base, self.length), self.rights, self.scope);
        write!(f, "{range}, granting {rights} to {scope}")?;
        match self.state {
            NamedState::Live => match self.age {
                Some(age) => write!(f, "; it was bound {} before", Ago(age)),
                None => Ok(()),
            },
            NamedState::Reserved if self.window => f.write_str("; its Bind has not executed yet"),
            NamedState::Reserved => f.write_str("; it waits for its memory"),
            NamedState::Dead { reason, ago } => write!(f, "; it was {reason} {} before", Ago(ago)),
        }
    }
}

impl Display for Access {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Access { purpose, token, address, length, actor } = self;
        match purpose {
            Purpose::Close => write!(f, "{purpose} of token {token} for {actor}"),
            Purpose::Bind => {
                write!(f, "{purpose} of {} to token {token}", Range(*address, *length))
            }
            _ => write!(
                f,
                "{purpose}, {} through token {token}, on {actor},",
                Range(*address, *length)
            ),
        }
    }
}

impl Display for Refused {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Refused { rule, purpose, token, address, length } = self;
        write!(f, "{purpose}, {} through token {token}: {rule}", Range(*address, *length))
    }
}

impl Display for Denial {
    /// Writes what happened, and the likeliest mistake; `{:#}`: the full record.
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if f.alternate() { self.record(f) } else { self.account(f) }
    }
}

/// A region or a window, as its program knows it.
struct Object<'a>(&'a Named);

impl Display for Object<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Object(named) = self;
        let what = if named.window { "window" } else { "region" };
        match named.name {
            Some(name) => write!(f, "{what} {name}")?,
            None => write!(f, "a {what} of {}", Bytes(named.length.into()))?,
        }
        match named.state {
            NamedState::Live => match named.age {
                Some(age) => write!(f, " that was bound {} before", Ago(age)),
                None => Ok(()),
            },
            NamedState::Reserved if named.window => f.write_str(" whose Bind has not executed"),
            NamedState::Reserved => f.write_str(" that has no memory yet"),
            NamedState::Dead { reason, ago } => write!(f, " that was {reason} {} before", Ago(ago)),
        }
    }
}

impl Denial {
    /// In a few words: what happened to what, the rule, the likeliest mistake.
    fn account(&self, f: &mut Formatter<'_>) -> Result {
        let Access { purpose, token, address, length, .. } = self.access;
        let bytes = Bytes(length.into());
        match purpose {
            Purpose::RemoteRead => write!(f, "a read of {bytes} by the peer")?,
            Purpose::RemoteWrite => write!(f, "a write of {bytes} by the peer")?,
            Purpose::RemoteAtomic => write!(f, "an atomic operation of the peer")?,
            Purpose::LocalSource => write!(f, "a request that takes {bytes}")?,
            Purpose::ReceiveBuffer => write!(f, "a receive into {bytes}")?,
            Purpose::ReadSink | Purpose::MarkedReadSink => {
                write!(f, "a Read into {bytes}")?;
            }
            Purpose::Bind => write!(f, "a bind of {bytes}")?,
            Purpose::Close => f.write_str("a close")?,
        }
        match &self.named {
            Some(named) => {
                // An offset says more than an address, if it is one.
                let offset = address.checked_sub(named.base);
                let object = Object(named);
                match offset.filter(|offset| *offset <= named.length) {
                    _ if purpose == Purpose::Close => write!(f, " of {object}")?,
                    Some(offset) => write!(f, " at offset {offset} of {object}")?,
                    None => write!(f, " at address {address:#x}, which should be in {object},")?,
                }
            }
            None => write!(f, " through token {token}, which names nothing,")?,
        }
        let rule = self.rule.named();
        write!(f, " was refused: {}. Likeliest mistake: ", rule.sentence())?;
        self.advise(f)?;
        write!(f, " {rule}")
    }

    /// Everything there is to know.
    fn record(&self, f: &mut Formatter<'_>) -> Result {
        let rule = self.rule.named();
        write!(f, "{} was refused: {}. ", self.access, rule.sentence())?;
        match &self.named {
            Some(named) if matches!(named.state, NamedState::Dead { .. }) => {
                write!(f, "It last named {named}. ")?;
            }
            Some(named) => write!(f, "It names {named}. ")?,
            None => f.write_str("It names nothing. ")?,
        }
        if self.rule == Rule::Right {
            let granted = self.named.map(|named| named.rights).unwrap_or_default();
            write!(f, "Wanted: {}; granted: {granted}. ", self.wanted)?;
        }
        f.write_str("Likeliest mistake: ")?;
        self.advise(f)?;
        write!(f, " {rule}")
    }
}

/// A denial in a sentence or two, for a reader who knows what was asked.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a>(&'a Denial);

impl Display for Summary<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Summary(denial) = self;
        let rule = denial.rule.named();
        write!(f, "{}; ", rule.sentence())?;
        if let Some(NamedState::Dead { reason, ago }) = denial.named.map(|named| named.state) {
            write!(f, "it was {reason} {} before; ", Ago(ago))?;
        }
        f.write_str("likeliest mistake: ")?;
        denial.advise(f)?;
        write!(f, " {rule}")
    }
}

/// The likeliest mistake in a sentence or two, and what would have been right.
#[derive(Clone, Copy, Debug)]
pub struct Advice<'a>(&'a Denial);

impl Display for Advice<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.0.advise(f)
    }
}

impl Denial {
    /// Rule and likeliest mistake, without what was asked and without who else may do what.
    #[must_use]
    pub fn summary(&self) -> Summary<'_> {
        Summary(self)
    }

    /// The likeliest mistake alone, and what would have been right.
    #[must_use]
    pub fn advice(&self) -> Advice<'_> {
        Advice(self)
    }

    /// The likeliest mistake, and what would have been right.
    fn advise(&self, f: &mut Formatter<'_>) -> Result {
        let named = self.named.as_ref();
        let covered = named.map_or(Range(0, 0), |named| Range(named.base, named.length));
        let token = self.access.token;
        match self.likely {
            Mistake::TokenBytesSwapped => {
                let swapped = Token(token.0.swap_bytes());
                f.write_str("the token's bytes are in the wrong order")?;
                match &self.meant {
                    Some(meant) if matches!(meant.state, NamedState::Dead { .. }) => write!(
                        f,
                        ", and the token is closed: {swapped} last named {meant}. Ask its owner for a \
                         new one. "
                    )?,
                    Some(meant) => write!(f, ": {swapped} names {meant}. ")?,
                    None => write!(f, ": {swapped} is live. ")?,
                }
                f.write_str("Tokens travel as the bytes they are; do not swap them.")
            }
            Mistake::Stale if named.is_some() => f.write_str(
                "the token was used after it was closed. Stop using a token before its owner closes \
                 it, and ask for a new one: every Bind and Register makes its own.",
            ),
            Mistake::Stale => f.write_str(
                "the token was issued once, and closed so long ago that its slot is in use again. \
                 Ask its owner for a new one.",
            ),
            Mistake::NotYetBound if named.is_some_and(|named| !named.window) => f.write_str(
                "the region was used before its memory was registered. Fast-register first.",
            ),
            Mistake::NotYetBound => f.write_str(
                "the token was used before its Bind had executed. Send it behind the Bind on the \
                 same queue pair, or wait for the Bind's completion.",
            ),
            Mistake::WrongKind if named.is_some_and(|named| named.window) => f.write_str(
                "a window's token where a region's belongs. Windows are bound to regions, and \
                 invalidated rather than deregistered.",
            ),
            Mistake::WrongKind => f.write_str(
                "a region's token where a window's belongs. Windows are invalidated, regions \
                 deregistered.",
            ),
            Mistake::AnotherQueuePair => f.write_str(
                "a window that is bound to another queue pair. A window serves the peer of the one \
                 queue pair it is bound to: bind one for this peer too.",
            ),
            Mistake::AnotherConnection => f.write_str(
                "a token of another connection, perhaps of an earlier one between the same two. \
                 Each connection needs tokens of its own.",
            ),
            Mistake::AnotherDomain => f.write_str(
                "a token of another protection domain. Register the memory with the adapter or \
                 domain of this queue pair.",
            ),
            Mistake::PastTheEnd { bytes } => {
                write!(f, "{} past the end. The token covers {covered}.", Bytes(bytes.into()))
            }
            Mistake::BeforeTheBeginning { bytes } => {
                write!(f, "{} before the beginning. The token covers {covered}.", Bytes(bytes.into()))
            }
            Mistake::MissingRight => self.advise_right(f),
            Mistake::OffsetInsteadOfAddress => {
                let base = named.map_or(0, |named| named.base);
                let right = base.wrapping_add(self.access.address);
                write!(
                    f,
                    "an offset was given where an address belongs. There is no zero-based \
                     addressing: offset {:#x} has the address {right:#x}.",
                    self.access.address
                )
            }
            Mistake::AddressBytesSwapped => write!(
                f,
                "the address' bytes are in the wrong order: {:#x} lies inside {covered}. Addresses \
                 are in host order on both sides.",
                self.access.address.swap_bytes()
            ),
            Mistake::WrapsAround => write!(
                f,
                "the length: from that address the address space has only {} left. The token \
                 covers {covered}.",
                Bytes(u128::from(u64::MAX) + 1 - u128::from(self.access.address))
            ),
            Mistake::Misaligned { bytes: 0 } => f.write_str(
                "the region was registered at an address that its memory does not agree with. Let both be \
                 multiples of 8.",
            ),
            Mistake::Misaligned { bytes } => write!(
                f,
                "the address is {} behind a multiple of 8. Align the variable, and send its \
                 own address.",
                Bytes(bytes.into())
            ),
            Mistake::NotConnected => f.write_str(
                "the queue pair is not connected, or not any more. Remote access lasts as long as \
                 the connection.",
            ),
            Mistake::NeverIssued if token == Token(0) => f.write_str(
                "the token is 0, which a window has before its first Bind. Read the token after \
                 Bind has returned.",
            ),
            Mistake::NeverIssued => write!(
                f,
                "no token of the value {token} was ever issued here. Use the token as the owner sent it, \
                 on a connection to that owner."
            ),
            Mistake::Unknown if named.is_some() && self.rule == Rule::Bounds => {
                write!(f, "unknown; the address lies elsewhere. The token covers {covered}.")
            }
            Mistake::Unknown => f.write_str("unknown."),
        }
    }

    fn advise_right(&self, f: &mut Formatter<'_>) -> Result {
        let window = self.named.is_some_and(|named| named.window);
        match self.access.purpose {
            purpose if window && !purpose.is_remote() => f.write_str(
                "a window's token in a local request. Windows are for peers; local requests use \
                 the region's own token.",
            ),
            Purpose::Bind => write!(
                f,
                "the region was registered without {}, which this Bind needs.",
                self.wanted
            ),
            purpose if purpose.is_remote() && !window => write!(
                f,
                "the region's own token, which does not grant {}. Bind a window with that right \
                 for this peer, or register the region with it (verbs: IBV_ACCESS_{}).",
                self.wanted, self.wanted
            ),
            purpose if purpose.is_remote() => {
                write!(f, "the window was bound without {}.", self.wanted)
            }
            _ => {
                write!(f, "the region was registered without {}.", self.wanted)
            }
        }
    }
}
