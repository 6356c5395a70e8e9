//! Six classic mistakes, and the names of rules.

use transom::{Denial, Grant};

use super::talk::Record;

/// A mistake of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The four bytes of the token in the other order.
    TokenBytesSwapped,
    /// The window is closed already.
    StaleToken,
    /// More bytes than there are.
    PastTheEnd,
    /// A Write into a window for reading.
    MissingRight,
    /// Counting from 0 rather than from the window's address.
    OffsetForAddress,
    /// The token of a window that was opened to another connection.
    AnotherConnection,
}

pub(super) const ALL: [Wrong; 6] = [
    Wrong::TokenBytesSwapped,
    Wrong::StaleToken,
    Wrong::PastTheEnd,
    Wrong::MissingRight,
    Wrong::OffsetForAddress,
    Wrong::AnotherConnection,
];

/// Bytes that each mistake asks for.
pub(super) const ASKED: u64 = 64;
/// Bytes past the end that are reached by [`Wrong::PastTheEnd`].
pub(super) const TOO_FAR: u64 = 41;

impl Wrong {
    /// The mistake's name in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Wrong::TokenBytesSwapped => "token_bytes_swapped",
            Wrong::StaleToken => "stale_token",
            Wrong::PastTheEnd => "past_the_end",
            Wrong::MissingRight => "missing_right",
            Wrong::OffsetForAddress => "offset_for_address",
            Wrong::AnotherConnection => "another_connection",
        }
    }

    /// For people.
    pub(super) fn title(self) -> &'static str {
        match self {
            Wrong::TokenBytesSwapped => "token in the wrong byte order",
            Wrong::StaleToken => "token of a window closed since",
            Wrong::PastTheEnd => "41 bytes past the end",
            Wrong::MissingRight => "Write through a window for reading",
            Wrong::OffsetForAddress => "offset where an address belongs",
            Wrong::AnotherConnection => "token of another connection",
        }
    }

    /// The owner's expected findings: rule and likeliest mistake.
    pub(super) fn expected(self) -> (&'static str, &'static str) {
        match self {
            Wrong::TokenBytesSwapped => ("live_token", "token_bytes_swapped"),
            Wrong::StaleToken => ("live_token", "stale"),
            Wrong::PastTheEnd => ("range", "past_the_end"),
            Wrong::MissingRight => ("right", "missing_right"),
            Wrong::OffsetForAddress => ("range", "offset_instead_of_address"),
            Wrong::AnotherConnection => ("scope", "another_queue_pair"),
        }
    }

    /// The range that is asked for, given what was lent (to another connection, for that mistake).
    pub(super) fn ask(self, lent: Grant) -> Grant {
        let asked = lent.range(..ASKED.min(lent.len()));
        match self {
            Wrong::TokenBytesSwapped => Grant::from_parts(
                lent.token().swap_bytes(),
                asked.address(),
                asked.len(),
                lent.rights(),
            ),
            Wrong::PastTheEnd => lent.range(lent.len().saturating_sub(ASKED)..lent.len() + TOO_FAR),
            Wrong::OffsetForAddress => {
                Grant::from_parts(lent.token(), 0, asked.len(), lent.rights())
            }
            Wrong::StaleToken | Wrong::MissingRight | Wrong::AnotherConnection => asked,
        }
    }
}

/// A refusal as the owner records it.
pub(super) fn record(denial: &Denial) -> Record {
    Record {
        rule: denial.rule.named().name().to_owned(),
        likely: denial.likely.name().to_owned(),
        text: denial.to_string(),
    }
}
