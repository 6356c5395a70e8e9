//! Errors, and whose fault they are.

use crate::Operation;

/// The party at fault for an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The program on this side.
    Caller,
    /// The program or the adapter on the other side.
    Peer,
    /// The bytes in between: a checksum, a frame cut short.
    Wire,
    /// This machine: memory, descriptors, the kernel.
    System,
}

/// Why the engine refuses a message of the peer. A wire maps these to its own codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalClass {
    /// No live token of that value.
    Token,
    /// The token belongs to another domain, queue pair or connection.
    Scope,
    /// The token does not grant this operation.
    Right,
    /// The range lies outside the grant.
    Bounds,
    /// The range wraps around the end of the address space.
    Wrap,
    /// A Send found no receive.
    NoReceive,
    /// A Send is longer than the receive it met.
    TooLong,
    /// The token cannot be invalidated by this peer.
    NotInvalidatable,
    /// The memory behind a valid grant is gone, or this side failed otherwise.
    Internal,
    /// The program on this side takes no such message.
    Unsupported,
    /// An atomic names no aligned word.
    Misaligned,
}

impl RefusalClass {
    /// All of them. Their order is the number that our own wires give them: new ones come last.
    pub const ALL: [RefusalClass; 11] = [
        RefusalClass::Token,
        RefusalClass::Scope,
        RefusalClass::Right,
        RefusalClass::Bounds,
        RefusalClass::Wrap,
        RefusalClass::NoReceive,
        RefusalClass::TooLong,
        RefusalClass::NotInvalidatable,
        RefusalClass::Internal,
        RefusalClass::Unsupported,
        RefusalClass::Misaligned,
    ];
}

/// A refusal, as handed to a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The operation that the peer asked for.
    pub operation: Operation,
    /// Why not.
    pub class: RefusalClass,
    /// Text for the peer beyond the class (the owner decides); sent only where the wire has a place
    /// for it.
    pub explanation: Option<&'a str>,
}

/// The peer's words when it ended the stream with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerError {
    /// The class, when the wire's code has one.
    pub class: Option<RefusalClass>,
    /// The operation it blames, when known.
    pub operation: Option<Operation>,
    /// The wire's own code in the wire's own words, e.g. `Terminate 1/1/01: base or bounds`.
    pub code: String,
    /// The peer's explanation, if it gave one. Untrusted text: printable, bounded.
    pub explanation: Option<String>,
}

/// The explanation that a peer sent, for people to read: each character that a terminal does not show as it
/// is has become a space. `None`: the peer sent none.
#[must_use]
pub fn explanation_of(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let shown = text.chars().map(|c| if is_plain(c) { c } else { ' ' });
    (!bytes.is_empty()).then(|| shown.collect())
}

/// Whether a terminal shows a character, and takes it for no command. Characters that turn the direction of
/// writing around show what is not there.
#[must_use]
pub fn is_plain(c: char) -> bool {
    let turns = matches!(c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !turns
}

/// The stream broke a rule of its protocol. The stream is dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The side that is to blame.
    pub blame: Blame,
    /// The rule, e.g. `RFC 5041 7.1`: for programs, no part of the message.
    pub rule: &'static str,
    /// The fault that was seen and what would have been right, in a sentence.
    pub detail: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Violation {}
