//! The rules by which an access or a call is refused, in one table.
//!
//! A message for people ends with the name of the rule, "(`transom explain live_token`)";
//! `docs/rules/protection.md` has a page for each name. [`NamedRule::citation`] is for programs
//! that want the sources.

use std::fmt::{Display, Formatter, Result};

/// The rule that was broken, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The token is live (ND2 5.4, W1, W13, R18), and of the right kind.
    LiveToken,
    /// The token belongs to the actor's domain, queue pair or connection (ND2 W3, W18; WSD A-5,
    ///
    Scope,
    /// The connection is established (ND2 R23; WSD A-11).
    Connected,
    /// The token grants the operation (ND2 5.5, R11, R12, W8).
    Right,
    /// The range does not wrap around the address space (ND2 5.3).
    Wrap,
    /// The range lies inside the registration and the window (ND2 5.3, W6).
    Bounds,
    /// The word of an atomic is aligned (Verbs V95).
    Aligned,
}

/// A rule by which an access or a call is refused. `Display` writes "(`transom explain NAME`)".
#[derive(Debug, PartialEq, Eq)]
pub struct NamedRule {
    name: &'static str,
    sentence: &'static str,
    citation: &'static str,
}

impl NamedRule {
    /// The rule of this name, if there is one.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static NamedRule> {
        ALL.iter().copied().find(|rule| rule.name == name)
    }

    /// The stable name: words of small letters, joined by underscores.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The demand of the rule, in one sentence without capital and full stop.
    #[must_use]
    pub const fn sentence(&self) -> &'static str {
        self.sentence
    }

    /// Where `docs/rules` has the sources: `ND2 5.4, W1`.
    #[must_use]
    pub const fn citation(&self) -> &'static str {
        self.citation
    }
}

impl Display for NamedRule {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "(`transom explain {}`)", self.name)
    }
}

impl Rule {
    /// The name and the sentence of this rule.
    #[must_use]
    pub const fn named(self) -> &'static NamedRule {
        match self {
            Rule::LiveToken => &LIVE_TOKEN,
            Rule::Scope => &SCOPE,
            Rule::Connected => &CONNECTED,
            Rule::Right => &RIGHT,
            Rule::Wrap => &NO_WRAP,
            Rule::Bounds => &RANGE,
            Rule::Aligned => &ALIGNED,
        }
    }
}

macro_rules! rules {
    ($($constant:ident $name:literal: $sentence:literal, $citation:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`: ", $sentence, ".")]
            pub const $constant: NamedRule =
                NamedRule { name: $name, sentence: $sentence, citation: $citation };
        )*

        /// Every rule, in the order of the table.
        pub const ALL: &[&NamedRule] = &[$(&$constant),*];
    };
}

rules! {
    // Accesses, in the order in which they are judged.
    LIVE_TOKEN "live_token": "the token must be live", "ND2 5.4, W1, W13, R18";
    SCOPE "scope": "the token must be this queue pair's, connection's or domain's", "ND2 W3, W18, R6";
    CONNECTED "connected": "the connection must be established", "ND2 R23; WSD A-11";
    RIGHT "right": "the token must grant the operation", "ND2 5.5, W7";
    NO_WRAP "no_wrap": "address and length must not wrap around the address space", "ND2 5.3";
    RANGE "range": "the range must lie inside what the token covers", "ND2 5.3, W6";
    ALIGNED "aligned": "an atomic must name eight bytes that begin at a multiple of 8", "Verbs V95";
    PRESENT_PAGES "present_pages": "the pages behind registered memory must be there", "design rule 8";
    // Registration.
    REGISTRATION_SIZE "registration_size":
        "a registration must have at least one byte, and no more than the adapter's limit", "ND2 R8, R9";
    FREE_TOKEN "free_token": "a registration or a Bind must find a free token", "ND2 R10";
    RESERVED_REGION "reserved_region":
        "fast registration must name a region that is reserved for it and has no memory", "NDK FR-14";
    PAGE_LIST "page_list":
        "the pieces of a registration must hold its length, each beginning where the last one ends",
        "NDK MR-2, MR-4, MR-10";
    PAGE_OFFSET "page_offset":
        "the base of a fast registration must agree with its offset in the first page", "NDK FR-8, FR-9";
    NO_ZERO_BASE "no_zero_base": "a registration must not begin at address 0", "NDK MR-8";
    // Windows and closing.
    SAME_DOMAIN "same_domain":
        "region, window and queue pair must belong to one protection domain", "ND2 W5";
    WINDOW_SIZE "window_size": "a window must have at least one byte", "ND2 5.3";
    WINDOW_SCOPE "window_scope": "a window must not be open wider than its region", "WSD A-7";
    WINDOW_RIGHTS "window_rights": "a window must grant remote rights only", "ND2 W17";
    UNUSED_REGION "unused_region":
        "a region must have no window bound to it, and no use under way, when it goes", "ND2 R16; WSD A-18";
    FREE_WINDOW "free_window":
        "a window that keeps its index must be free when it is bound, and of the same domain", "Verbs V47";
    PEER_CLOSES "peer_closes":
        "a peer must close only live windows and fast registrations that are open to it", "NDK INV-7, INV-9";
    QUEUE_PAIR_ACCESS "queue_pair_access":
        "the access flags of the queue pair must allow its peer the operation", "Verbs V93";
    // Requests.
    CONNECTED_QUEUE_PAIR "connected_queue_pair":
        "a request that is no receive must find its queue pair connected", "ND2 4.1";
    QUEUE_ROOM "queue_room": "a request must find a free place in its queue", "ND2 2.9";
    LIST_LENGTH "list_length":
        "a list must have no more entries than its queue pair was made for", "ND2 2.9";
    TRANSFER_SIZE "transfer_size":
        "a transfer, or an inline one, must have no more bytes than its limit", "ND2 2.9";
    BOUND_WINDOW "bound_window":
        "an Invalidate must name a window that is bound on its queue pair", "ND2 W16, W19";
    READ_LIMIT "read_limit": "a Read needs an agreed read limit that is not 0", "ND2 4.8";
    POSTED_RECEIVE "posted_receive": "a Send needs a receive that its peer posts in time", "ND2 C42";
    COMPLETION_ROOM "completion_room":
        "a completion queue must be polled before more completes than it holds", "ND2 4.4";
}
